#!/usr/bin/env bash
# What bash offers at a cursor, from the installed completion. Other shells that are installed can read their
# completions.
#   completion.sh BASH_FILE ZSH_FILE FISH_FILE DDPRUN
# Covers: ctl/completion, launcher/options
set -euo pipefail
# shellcheck source=/dev/null
. "$1"
failed=0

# offers "words that COMP_WORDS has, the last is under the cursor" -> what is offered, sorted, in a line
offers() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _ddprun
    printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd' '
}

expect() {
    local wanted=$1 got
    shift
    got=$(offers "$@")
    if [[ $got != "$wanted" ]]; then
        echo "behind '$*': '$got', expected '$wanted'"
        failed=1
    fi
}

expect '--encrypt' ddprun --enc
expect '--memory-checkpoints' ddprun --mem
expect '--standalone --standby --start-method --start-timeout --stdin --store --store-allow --store-relay' ddprun --st
expect 'checkpoint now' ddprun --admit-at ''
expect '--tee' ddprun -n 4 --standalone --tee
expect 'agent auto worker' ddprun --store ''
expect 'agent auto' ddprun --store a
expect 'worker' ddprun --store = w
expect 'agent auto worker' ddprun --store =
expect 'auto cpu gpu xpu' ddprun -p ''
expect 'console null' ddprun --label = x --event-log-handler ''
expect '--timeout' ddprun --store = agent --timeo
expect 'hosts' ddprun --help h
expect 'environment exit-status' ddprun --help = e
expect '' ddprun train.py --st
expect '' ddprun -- --st
expect '' ddprun --events ''
[[ " $(offers ddprun /bin/s) " == *' /bin/sh '* ]] || { echo "no program is offered"; failed=1; }

# The option table is the help: each file has each of its options, and there are not more.
mapfile -t options < <("$4" --help | sed -nE 's/^.{6}--([a-z-]+).*/\1/p' | sort)
[[ ${#options[@]} -ge 40 ]] || { echo "the help has few options"; failed=1; }
for found in \
    "$(offers ddprun -- | tr ' ' '\n' | sed 's/^--//' | sort | paste -sd' ')" \
    "$(sed -nE "s/^    '(\(-[a-zA-Z] )?--([a-z-]+).*/\2/p" "$2" | sort | paste -sd' ')" \
    "$(sed -nE 's/.* -l ([a-z-]+) .*/\1/p' "$3" | sort | paste -sd' ')"; do
    if [[ $found != "${options[*]}" ]]; then
        echo "these are not the options of the help: $found"
        failed=1
    fi
done
if command -v zsh >/dev/null; then
    zsh -n "$2" || failed=1
fi
if command -v fish >/dev/null; then
    fish -n "$3" || failed=1
fi
exit $failed
