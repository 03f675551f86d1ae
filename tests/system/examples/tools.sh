#!/bin/sh
# The smaller examples: a policy that learns by trying, a process with several devices, a table of workers.
# Covers: examples
. "$(dirname "$0")/common.sh"

start 2 "$reinforce" >"$work/out"
check "reinforce on 2 ranks" $?
cat "$work/out"
awk '/^solved after/ { n++; if ($(NF - 1) < 195) n = 9 } END { exit n != 1 }' "$work/out"
check "195 steps on average are reached" $?
[ "$(sed -n 's/^rank [01] of 2 plays with seed //p' "$work/out" | sort -u | wc -l)" = 2 ]
check "each rank has a seed of its own" $?
start alone "$reinforce" x >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q usage "$work/out"
check "reinforce says how it is used" $?

for n in 1 2; do
    "$dataparallel" $n >"$work/out"
    check "dataparallel with $n devices" $?
    tail -n 1 "$work/out"
    awk '/test images are right$/ { right = $3 } END { exit !(right > 95) }' "$work/out"
    check "of 100 test images 95 are right, at least" $?
done
"$dataparallel" 3 >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q usage "$work/out"
check "dataparallel says how it is used" $?

"$bench_1_vs_n" 2 2 >"$work/out"
check "a table of 1 against 2 workers" $?
[ "$(grep -c '^ *[12] .*x .* MB$' "$work/out")" = 4 ]
check "it has a row for each number of workers, of training and inference" $?
"$bench_1_vs_n" 0 >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q usage "$work/out"
check "bench_1_vs_n says how it is used" $?
finish
