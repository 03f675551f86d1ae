#!/bin/sh
# The full training, with its figures: accuracy on 1, 2 and 4 ranks, a linear classifier for comparison, exact
# losses over 100 steps, and the speed of two ranks against one. The speed is printed, not checked.
# Covers: examples
. "$(dirname "$0")/common.sh"

for n in 1 2 4; do
    start $n "$mnist" --data "$work/data" >"$work/out$n"
    check "training on $n ranks" $?
    cat "$work/out$n"
done
a1=$(last_accuracy "$work/out1") a2=$(last_accuracy "$work/out2") a4=$(last_accuracy "$work/out4")
[ "$a2" -ge 9700 ]
check "at least 97 % on 2 ranks" $?
for a in "$a2" "$a4"; do
    d=$((a - a1))
    [ ${d#-} -le 30 ]
    check "within 0.3 points of one rank ($a against $a1 hundredths)" $?
done

for level in "O1 float16" "O1 bfloat16" "O2 float16" "O2 bfloat16"; do
    # shellcheck disable=SC2086 # two words
    set -- $level
    start 2 "$mnist" --data "$work/data" --amp "$1" --amp-type "$2" >"$work/amp"
    check "training with --amp $1 --amp-type $2" $?
    a=$(last_accuracy "$work/amp")
    d=$((a - a2))
    [ ${d#-} -le 30 ]
    check "within 0.3 points of O0 ($a against $a2 hundredths)" $?
done

start 2 "$mnist" --data "$work/data" --model linear >"$work/linear"
check "training a linear classifier" $?
cat "$work/linear"
[ "$(last_accuracy "$work/linear")" -lt 9300 ]
check "a linear classifier stays below 93 %" $?

for n in 1 2 4; do
    start $n "$mnist_double" --data "$work/data" --norm none --steps 100 --loss-file "$work/loss$n" \
        >/dev/null
    check "100 steps in double on $n ranks" $?
    d=$(paste "$work/loss1" "$work/loss$n" | awk '
        { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > max) max = d }
        END { if (NR == 100) printf "%.3g\n", max; else print 1 }')
    awk -v d="$d" 'BEGIN { exit !(d < 1e-9) }'
    check "losses on $n ranks are those of one (relative difference $d)" $?
done

for run in a b; do
    start 2 "$mnist" --data "$work/data" --epochs 1 --checkpoint "$work/$run" >/dev/null
    check "run $run on 2 ranks" $?
done
cmp "$work/a" "$work/b"
check "two runs on 2 ranks give the same network, bit by bit" $?

awk '/^epoch/ { sub(/.*, /, ""); sum[FILENAME] += $1; n[FILENAME]++ }
    END { one = sum[ARGV[1]] / n[ARGV[1]]; two = sum[ARGV[2]] / n[ARGV[2]]
        printf "images/s: %.0f on 1 rank, %.0f on 2: %.2f times\n", one, two, two / one }' \
    "$work/out1" "$work/out2"
finish
