#!/usr/bin/env bash
# What bash offers for ddp-rendezvous, ddpctl and ddp-perf, from the installed completions. Other shells that are
# installed can read their completions.
#   completion_tools.sh DIRECTORY DDP_RENDEZVOUS DDPCTL DDP_PERF
# Covers: ctl/completion, ctl, perf, rendezvous/daemon
set -euo pipefail
folder=$1
failed=0
# shellcheck source=/dev/null
. "$folder/ddp-rendezvous.bash"
# shellcheck source=/dev/null
. "$folder/ddpctl.bash"
# shellcheck source=/dev/null
. "$folder/ddp-perf.bash"

# expect WANTED FUNCTION "words that COMP_WORDS has, the last is under the cursor"
expect() {
    local wanted=$1 function=$2 got
    shift 2
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    "$function" || :
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd' ')
    if [[ $got != "$wanted" ]]; then
        echo "behind '$*': '$got', expected '$wanted'"
        failed=1
    fi
}

expect '--max-clients --max-jobs --max-memory --max-nodes --max-value' _ddp_rendezvous ddp-rendezvous -v --max
expect '--port-file' _ddp_rendezvous ddp-rendezvous --bind 127.0.0.1:0 --p
expect '' _ddp_rendezvous ddp-rendezvous --bind ''
expect 'check logs ps report restart stack status stop store top' _ddpctl ddpctl ''
expect '--help --version' _ddpctl ddpctl -
expect 'add delete dump get set wait' _ddpctl ddpctl store ''
expect 'delete dump' _ddpctl ddpctl store --endpoint node7 d
expect 'delete dump' _ddpctl ddpctl store --endpoint = node7 d
expect '' _ddpctl ddpctl store --endpoint d
expect '' _ddpctl ddpctl store --endpoint = d
expect '--endpoint' _ddpctl ddpctl store get --e
expect '' _ddpctl ddpctl store get ''
expect '--hostfile --hosts' _ddpctl ddpctl check -j --ho
expect '' _ddpctl ddpctl unknown ''

expect 'reduce reduce_scatter' _ddp_perf ddp-perf re
expect '--maxbytes --minbytes' _ddp_perf ddp-perf all_reduce --m
expect 'float16 float32 float64' _ddp_perf ddp-perf all_reduce -d fl
expect 'plain' _ddp_perf ddp-perf all_reduce --buffer p
expect 'all_gather all_reduce all_to_all' _ddp_perf ddp-perf -b 4 all

# The help has the same options as each file.
same_options() { # NAME HELP-WORDS...
    local name=$1 found
    shift
    local options
    options=$("$@" --help | sed -nE 's/^.{6}--([a-z-]+).*/\1/p' | sort | paste -sd' ')
    [[ -n $options ]] || { echo "$name: the help has no options"; failed=1; }
    for found in \
        "$(sed -nE "s/^    '(\(-[a-zA-Z] )?--([a-z-]+).*/\2/p" "$folder/_$name" | sort -u | paste -sd' ')" \
        "$(sed -nE 's/.* -l ([a-z-]+) .*/\1/p' "$folder/$name.fish" | sort -u | paste -sd' ')"; do
        if [[ $found != "$options" ]]; then
            echo "$name: these are not the options of the help: $found"
            failed=1
        fi
    done
}
all_helps() { # of ddpctl, and of its commands; an option of several counts once
    local command
    {
        "$1" --help
        for command in check logs ps report restart stack status stop store top; do
            "$1" "$command" --help
        done
    } | sed -nE 's/^(.{6}--[a-z-]+).*/\1/p' | sort -u
}
same_options ddp-rendezvous "$2"
same_options ddpctl all_helps "$3"
same_options ddp-perf "$4"

if command -v zsh >/dev/null; then
    zsh -n "$folder/_ddp-rendezvous" && zsh -n "$folder/_ddpctl" && zsh -n "$folder/_ddp-perf" || failed=1
fi
if command -v fish >/dev/null; then
    fish -n "$folder/ddp-rendezvous.fish" && fish -n "$folder/ddpctl.fish" &&
        fish -n "$folder/ddp-perf.fish" || failed=1
fi
exit $failed
