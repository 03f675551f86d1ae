#!/bin/sh
# A GPT learns, is stopped, and continues with other numbers of ranks and the same results.
# Covers: examples
. "$(dirname "$0")/common.sh"

small="--layers 2 --width 32 --heads 2 --context 32 --batch 12 --print-every 0 --test-every 0"
cat "$(dirname "$0")"/*.sh "$(dirname "$0")"/../one_node/*.py >"$work/text" # of some 100 KiB, and always there

# train N FILE ARG...: train the double build on N ranks, keep the losses.
train() {
    n_ranks=$1 file=$2
    shift 2
    # shellcheck disable=SC2086 # words
    start "$n_ranks" "$chargpt_double" $small --steps 120 --loss-file "$file" "$@" "$work/text" \
        >"$work/out"
}

# The largest relative difference of two files of "STEP LOSS"; "none" unless both have the steps 1 to 120.
difference() {
    paste "$1" "$2" | awk '
        NF == 4 && $1 == NR && $3 == NR { d = ($2 - $4) / $2; d = d < 0 ? -d : d; if (d > max) max = d; n++ }
        END { if (n == 120 && NR == 120) printf "%.3g\n", max; else print "none" }'
}

train alone "$work/one"
check "training alone" $?
awk 'NR == 1 { first = $2 } END { exit !(NR == 120 && $2 < first - 1.5) }' "$work/one"
check "the loss falls" $?
for n in 2 4; do
    train $n "$work/loss"
    check "training on $n ranks" $?
    d=$(difference "$work/one" "$work/loss")
    below "$d" 1e-9
    check "losses on $n ranks are those of one (relative difference $d)" $?
done

save="--checkpoint $work/saved"
# shellcheck disable=SC2086 # words
train 2 "$work/leg1" $save --stop-at 40 --verify-data
check "two ranks train 40 steps and save" $?
grep -q 'the ranks took 480 stretches, 480 different' "$work/out"
check "no stretch was taken twice" $?
# shellcheck disable=SC2086 # words
train 3 "$work/leg2" $save --resume --stop-at 80 --save-every 10
check "three go on" $?
grep -q 'resuming after step 40' "$work/out"
check "from where the two stood" $?
# shellcheck disable=SC2086 # words
train alone "$work/leg3" $save --resume
check "one goes on" $?
cat "$work"/leg? >"$work/legs"
d=$(difference "$work/one" "$work/legs")
below "$d" 1e-9
check "the curve is that of a training in one go (relative difference $d)" $?
[ "$(cd "$work/saved" && echo *)" = "step-000000000080.manifest step-000000000080.safetensors \
step-000000000120.manifest step-000000000120.safetensors" ]
check "the last two checkpoints are kept" $?

# The same with AdamW dealt out over the ranks: two, then three, then one.
share="--zero1 --checkpoint $work/shares"
# shellcheck disable=SC2086 # words
train 2 "$work/part1" $share --stop-at 40 && train 3 "$work/part2" $share --resume --stop-at 80 &&
    train alone "$work/part3" $share --resume
check "two, three and one train with --zero1, and take up each other's shares" $?
cat "$work"/part? >"$work/parts"
d=$(difference "$work/one" "$work/parts")
below "$d" 1e-9
check "the curve is that of a whole optimiser in one go (relative difference $d)" $?

# shellcheck disable=SC2086 # words
! train 2 "$work/never" $save --resume --seed 2 2>"$work/err" &&
    grep -q 'the checkpoint was made with --seed 1: ' "$work/err"
check "a checkpoint of another seed is refused" $?
start alone "$chargpt" --text 2>"$work/err"
[ $? = 2 ] && grep -q "unknown option '--text'" "$work/err"
check "bad options are refused" $?
start 2 "$chargpt" "$work/none" 2>"$work/err"
[ $? != 0 ] && grep -q "cannot read '$work/none'" "$work/err"
check "a text that is not there is named" $?
start 2 "$chargpt" --batch 3 "$work/text" 2>"$work/err"
[ $? != 0 ] && grep -q 'is not divisible by 2 ranks: use a multiple of 2' "$work/err"
check "a batch that cannot be split is refused" $?
printf 'short' >"$work/short"
start alone "$chargpt" "$work/short" 2>"$work/err"
[ $? != 0 ] && grep -q '5 bytes of text are too few' "$work/err"
check "a short text is refused" $?
finish
