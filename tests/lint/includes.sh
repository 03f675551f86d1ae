#!/bin/sh
# Includes point one way (CONTRIBUTING.md, "Rooms"), and each header compiles alone.
#   includes.sh SOURCE_ROOT [CC]
set -eu
cd "$1"
cc=${2:-cc}
bad=0

# room, then what it may include beside its own files and libc
check() {
    room=$1
    shift
    for file in "$room"/*.[ch]; do
        [ -e "$file" ] || continue
        includes=$(sed -n 's/^#include ["<]\([a-z-]*\/[^">]*\)[">].*/\1/p' "$file")
        for inc in $includes; do
            case "$inc" in
            sys/* | linux/* | netinet/* | arpa/* | net/* | uv/* | asm/*) continue ;;
            esac
            ok=no
            for allowed in "$@"; do
                # shellcheck disable=SC2254 # a pattern is what it is
                case "$inc" in
                $allowed) ok=yes ;;
                esac
            done
            if [ $ok = no ]; then
                echo "$file includes $inc, which $room may not"
                bad=1
            fi
        done
    done
}
check include/ddp 'ddp/*'
check common
check segments 'common/*'
check console 'common/*'
check rendezvous 'common/*'
check etcd 'common/*' 'curl/*'
check launcher 'ddp/*' 'common/*' 'segments/*' 'console/*' 'rendezvous/server/server.h' 'rendezvous/etcd/elector.h' 'rendezvous/etcd/etcd_plugin.h' \
    'rendezvous/net/address.h' 'rendezvous/net/allow.h' 'rendezvous/jobs/control_link.h' 'rendezvous/channel/control_wire.h' 'rendezvous/jobs/jobs.h' 'rendezvous/jobs/jobs_page.h' 'rendezvous/net/resolve.h' \
    'rendezvous/channel/seal.h' 'rendezvous/channel/token.h' 'rendezvous/pmi/pmi1_client.h' 'rendezvous/pmi/pmi1_server.h' 'rendezvous/store/wire.h' \
    'rendezvous/membership/restart_policy.h' 'rendezvous/membership/message.h' 'rendezvous/membership/lease.h' 'rendezvous/membership/member.h' 'rendezvous/membership/roster.h'
check daemon 'common/*' 'rendezvous/server/server.h' 'rendezvous/server/stats.h' 'rendezvous/net/allow.h' 'rendezvous/net/address.h' \
    'rendezvous/jobs/jobs.h' 'rendezvous/jobs/jobs_page.h' 'rendezvous/channel/seal.h' 'rendezvous/channel/token.h'
check ctl 'common/*' 'console/*' 'rendezvous/net/address.h' 'rendezvous/store/client.h' 'rendezvous/channel/seal.h' 'rendezvous/channel/token.h' \
    'launcher/platform/cli_world.h' 'launcher/hosts/host_list.h' 'launcher/hosts/managers.h' 'launcher/hosts/muster.h' 'launcher/platform/resources.h' 'launcher/hosts/slurm.h' 'launcher/hosts/way.h'
check worker-runtime 'ddp/*' 'common/*' 'segments/*' 'rendezvous/store/client.h' 'rendezvous/pmi/pmi1_client.h' 'rendezvous/store/session.h'
check nccl 'ddp/*' 'common/*' 'worker-runtime/arithmetic/device_layer.h' 'worker-runtime/device/device_plugin.h' 'worker-runtime/arithmetic/finite.h' 'worker-runtime/arithmetic/half.h'
check examples 'ddp/*'
check completion 'common/*' 'ctl/ctl_table.h' 'rendezvous/daemon/daemon_cli.h' 'launcher/options/cli_table.h' 'perf/perf_cli.h' 'perf/perf_work.h'
check perf 'ddp/*' 'common/*'
check bench 'ddp/*' 'common/*' 'rendezvous/channel/control_conn.h' 'rendezvous/channel/control_wire.h' 'rendezvous/membership/member.h' 'rendezvous/channel/seal.h' \
    'worker-runtime/nccl/kernel_math.h' 'worker-runtime/device/device_plugin.h'

# pure modules: no clock, no files, no sockets, no globals that change
for file in console/job_request.c ctl/check/check_facts.c ctl/check/check_gpus.c ctl/check/check_judge.c ctl/check/check_plan.c ctl/check/check_report.c ctl/check/check_text.c \
    ctl/check/check_wire.c ctl/check/ctl_check_cli.c ctl/history/history.c ctl/history/history_finish.c ctl/job/job_text.c ctl/base/table.c ctl/top/top_frame.c launcher/supervisor/supervisor.c launcher/supervisor/supervisor_facts.c launcher/supervisor/supervisor_verdict.c launcher/membership/guide.c launcher/options/cli.c launcher/options/cli_conf.c launcher/options/cli_meet.c \
    launcher/options/cli_nodes.c launcher/options/cli_terms.c launcher/options/cli_output.c \
    launcher/hosts/host_list.c launcher/options/cli_programs.c launcher/job/job_more.c launcher/options/cli_devices.c launcher/placement/cpu_set.c launcher/placement/placement.c \
    launcher/job/wrap.c launcher/stdio/fold.c launcher/stdio/bar.c launcher/stdio/lines.c \
    launcher/supervisor/hang.c launcher/diagnosis/hang_text.c launcher/supervisor/pace.c launcher/reporting/replay.c launcher/diagnosis/stack.c launcher/diagnosis/stack_missing.c launcher/stdio/tail.c launcher/reporting/wait_line.c \
    launcher/membership/endpoint_host.c launcher/reporting/status_json.c segments/call_kind.c \
    launcher/options/cli_hosts.c launcher/options/cli_managers.c launcher/options/cli_mpi.c launcher/platform/elf_needs.c launcher/membership/etcd_record.c launcher/hosts/managers.c launcher/remote/leash_wire.c launcher/hosts/muster.c launcher/hosts/pmi_seat_wire.c launcher/remote/remote_env.c \
    launcher/job/remote_spec.c launcher/hosts/slurm.c \
    launcher/diagnosis/oom.c launcher/diagnosis/oom_log.c launcher/diagnosis/oom_text.c launcher/job/output_spec.c launcher/job/rank_argv.c \
    launcher/job/worker_env.c rendezvous/store/store.c rendezvous/store/codec.c rendezvous/store/session.c \
    rendezvous/channel/control_wire.c rendezvous/membership/lease.c rendezvous/membership/member.c rendezvous/membership/member_input.c \
    rendezvous/membership/restart_policy.c rendezvous/membership/roster.c rendezvous/membership/roster_input.c \
    rendezvous/membership/roster_index.c rendezvous/membership/roster_nodes.c rendezvous/membership/roster_order.c rendezvous/membership/roster_past.c rendezvous/membership/roster_tell.c rendezvous/channel/seal.c \
    rendezvous/pmi/pmi1_server.c rendezvous/pmi/pmi1_wire.c \
    rendezvous/server/protocol.c rendezvous/server/http.c rendezvous/server/page.c rendezvous/server/stats.c rendezvous/net/allow.c rendezvous/daemon/daemon_cli.c \
    rendezvous/etcd/base64.c rendezvous/etcd/elector.c rendezvous/etcd/elector_input.c rendezvous/etcd/etcd_wire.c \
    worker-runtime/model/bucket_plan.c worker-runtime/shm/cpu_tuning.c worker-runtime/data/data_format.c worker-runtime/data/randperm.c worker-runtime/files/safetensors_header.c worker-runtime/arithmetic/utf8.c \
    worker-runtime/nccl/life.c worker-runtime/device/device_plan.c worker-runtime/core/call.c worker-runtime/model/commit.c worker-runtime/join/env.c worker-runtime/group/first_failure.c worker-runtime/core/layout.c \
    worker-runtime/arithmetic/moments.c worker-runtime/tcp/net_cause.c worker-runtime/tcp/net_map.c worker-runtime/tcp/net_math.c worker-runtime/arithmetic/optimizer.c worker-runtime/join/place.c \
    worker-runtime/group/progress_line.c worker-runtime/model/ready.c worker-runtime/files/safetensors_types.c worker-runtime/data/sampler_plan.c \
    perf/perf_cli.c perf/perf_crossover.c perf/perf_text.c perf/perf_values.c perf/perf_work.c; do
    [ -e "$file" ] || continue
    if grep -nE '^#include <(uv|sys/socket|fcntl|time|sys/mman|poll|signal)\.h>' "$file"; then
        echo "$file is to be pure, but includes what touches the world"
        bad=1
    fi
done

for header in include/ddp/*.h common/*.h segments/*.h console/*.h rendezvous/*.h etcd/*.h launcher/*.h daemon/*.h ctl/*.h worker-runtime/*.h worker-runtime/nccl/life.h worker-runtime/nccl/hand.h worker-runtime/nccl/kernel_clip.h worker-runtime/nccl/kernel_math.h worker-runtime/nccl/kernel_moments.h perf/*.h \
    examples/*.h; do
    [ -e "$header" ] || continue
    ! grep -q '^#include <cuda' "$header" || continue # compiled where there is CUDA
    if ! echo "#include \"$header\"" |
        $cc -x c -std=gnu17 -D_GNU_SOURCE -I. -Iinclude -Wall -Wextra -Werror -Wno-unused-function \
            -fsyntax-only -; then
        echo "$header does not compile alone"
        bad=1
    fi
done
for header in include/ddp/*.h; do # users may have C11 without GNU, or C++
    if ! printf "#include \"%s\"\nint x;\n" "$header" | $cc -x c -std=c11 -pedantic -Iinclude -Wall -Wextra -Werror -fsyntax-only -; then
        echo "$header is not plain C11"
        bad=1
    fi
done
exit $bad
