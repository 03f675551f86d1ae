#!/bin/sh
# Each event that ddprun writes is known to ddpctl report.
#   event_names.sh SOURCE_ROOT
set -eu
cd "$1"
bad=0
names=$(sed -n 's/.*\<put_\(event\|rank\)(e, \([^,]*\),.*/\2/p' launcher/reporting/events.c |
    grep -o '"[^"]*"' | sort -u)
if [ "$(echo "$names" | wc -l)" -lt 10 ]; then
    echo "launcher/reporting/events.c is not understood: its events are not found"
    exit 1
fi
for name in $names; do
    if ! grep -q "^    {$name, " history/history.c; then
        echo "launcher/reporting/events.c writes $name, which history/history.c does not know"
        bad=1
    fi
done
exit $bad
