#!/bin/sh
# No wait follows the wall clock, which people and NTP set: only what writes a date reads it, or compares it with that of a file, of torch, or of another node.
#   clocks.sh SOURCE_ROOT
set -eu
cd "$1"
wall='CLOCK_REALTIME|\b(gettimeofday|time|ftime|sem_timedwait|pthread_cond_timedwait|pthread_mutex_timedlock|mq_timedsend|mq_timedreceive|uv_gettimeofday)\('
dates='launcher/reporting/events\.c|launcher/reporting/post_mortem\.c|launcher/membership/fitness\.c|rendezvous/jobs/peers\.c|launcher/node/node_dump\.c|launcher/node/node_hang\.c|launcher/node/node_timers\.c|launcher/trainjob/trainjob_poster\.c|ctl/ctl_top\.c|ctl/probe/check_collect\.c|launcher/stdio/rank_io\.c|worker-runtime/group/fail\.c'
found=$(find common segments rendezvous console launcher ctl worker-runtime perf -name '*.[ch]' -exec grep -nE "$wall" {} + |
    grep -vE "^($dates):" || :)
if [ -n "$found" ]; then
    echo "$found"
    echo "these follow the wall clock: common/clock.h has one that does not jump"
    exit 1
fi
