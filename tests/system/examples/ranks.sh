#!/bin/sh
# Training is the same on 1, 2 and 4 ranks, and twice the same on 2.
# Covers: examples, worker-runtime/model
. "$(dirname "$0")/common.sh"

steps=40

# losses N FILE OPTION...: train the double build on N ranks, and keep the losses. Without norm, unless an
# option requests it.
losses() {
    ranks=$1 file=$2
    shift 2
    rm -f "$file"
    start "$ranks" "$mnist_double" --data "$work/data" --draw 600 --norm none --batch 24 --steps $steps \
        --epochs 10 --lr 0.02 --loss-file "$file" "$@" >"$work/out"
}

# The largest relative difference of two files of numbers, line by line; "none" unless both have one for each step.
difference() {
    paste "$1" "$2" | awk -v steps="$steps" '
        NF == 2 { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > max) max = d; n++ }
        END { if (n == steps && NR == steps) printf "%.3g\n", max; else print "none" }'
}

losses alone "$work/loss1"
check "training alone" $?
grep -q 'drew digits' "$work/out"
check "the first run draws the data" $?
for n in 1 2 4; do
    losses $n "$work/loss"
    check "training on $n ranks" $?
    d=$(difference "$work/loss1" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks are those of one (relative difference $d)" $?
done
for n in 1 2 4; do
    losses $n "$work/loss" --accumulate 2
    check "training on $n ranks, in two parts" $?
    d=$(difference "$work/loss1" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks in two parts are those of one (relative difference $d)" $?
done
losses alone "$work/loss_norm" --norm batch
check "training alone, batch norm" $?
for n in 2 4; do
    losses $n "$work/loss" --norm batch --sync-bn
    check "training on $n ranks, batch norm over all" $?
    d=$(difference "$work/loss_norm" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks with --sync-bn are those of one (relative difference $d)" $?
done
for n in 1 2 3 4; do
    losses $n "$work/loss" --zero1
    check "training on $n ranks, each with a share of the optimiser" $?
    d=$(difference "$work/loss1" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks with --zero1 are those of one (relative difference $d)" $?
done
sed -n 's/^optimizer state: \([0-9]*\) of \([0-9]*\) bytes.*/\1 \2/p' "$work/out" |
    awk '{ n++; if ($1 * 4 < $2 * 0.98 || $1 * 4 > $2 * 1.02) n = 9 } END { exit n != 1 }'
check "with 4 ranks each has a quarter of the optimizer's state" $?
for n in 2 4; do
    losses $n "$work/loss" --pipeline
    check "training on $n ranks, half of a network on each" $?
    d=$(difference "$work/loss1" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks with --pipeline are those of one (relative difference $d)" $?
done
awk -v steps="$steps" 'NR == 1 { first = $1 } END { exit !(NR == steps && $1 < first - 0.1) }' "$work/loss1"
check "the loss falls" $?

# The program as it is: float, batch norm.
for run in a b; do
    start 2 "$mnist" --data "$work/data" --batch 24 --epochs 2 --checkpoint "$work/$run.safetensors" \
        >"$work/out.$run"
    check "run $run on 2 ranks" $?
done
cmp "$work/a.safetensors" "$work/b.safetensors"
check "two runs on 2 ranks give the same network, bit by bit" $?
[ "$(grep -c '^epoch ' "$work/out.a")" = 2 ] && [ "$(wc -l <"$work/out.a")" = 3 ]
check "only one rank reports" $?
start 2 "$mnist" --data "$work/data" --batch 24 --epochs 2 --seed 2 --checkpoint "$work/c.safetensors" \
    >"$work/out" && ! cmp "$work/a.safetensors" "$work/c.safetensors" >"$work/out"
check "another seed gives another network" $?

start 3 "$hello" >"$work/out" && [ "$(sort "$work/out")" = "rank 0 of 3: the sum of all ranks is 3
rank 1 of 3: the sum of all ranks is 3
rank 2 of 3: the sum of all ranks is 3" ]
check "hello adds up the ranks" $?
finish
