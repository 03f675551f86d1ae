#!/bin/sh
# scripts/test-summary counts, names the slowest tests, and shows why tests failed within the lines that the end of a CI log has.
#   test_summary.sh SOURCE_ROOT
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# summary STATUS ARGUMENT...: its text goes to the file text
summary() {
    status=$1 code=0
    shift
    scripts/test-summary "$@" >"$work/text" 2>&1 || code=$?
    if [ $code != "$status" ]; then
        echo "expected status $status of $*, got $code and:"
        cat "$work/text"
        bad=1
    fi
}

# has LINE: the text has this line
has() {
    if ! grep -qxF -e "$1" "$work/text"; then
        echo "no line '$1' in:"
        cat "$work/text"
        bad=1
    fi
}

# lacks WORDS
lacks() {
    if grep -F -e "$1" "$work/text"; then
        echo "unexpected: $1"
        bad=1
    fi
}

# ends N LINE: the text ends with this line, and is not longer than N lines
ends() {
    if [ "$(tail -n 1 "$work/text")" != "$2" ] || [ "$(wc -l <"$work/text")" -gt "$1" ]; then
        echo "expected at most $1 lines, the last of them '$2'; $(wc -l <"$work/text") are:"
        cat "$work/text"
        bad=1
    fi
}

# test_line NAME RESULT SECONDS OUTPUT: a line of meson's log
test_line() {
    printf '{"name": "%s", "result": "%s", "duration": %s, "stdout": "%s"}\n' "$@"
}

# lines N: L1, L2, ..., as in a string of JSON
lines() {
    seq -f 'L%g' -s '\n' "$1"
}

summary 0
ends 1 "0 passed, 0 failed, 0 skipped"
{ test_line one OK 1 x; printf '\0\0{"name": "cut'; } >"$work/testlog-cut.json"
summary 1 "$work/testlog-cut.json"
has "failed: line 2 of $work/testlog-cut.json, which is damaged"
ends 5 "1 passed, 1 failed, 0 skipped"
summary 1 --broken="the build in x"
has "failed: the build in x"
ends 2 "0 passed, 1 failed, 0 skipped"

# two runs: the slowest of both, a skipped test, a test that failed and one that timed out
{
    for i in $(seq 12); do
        test_line "t$i" OK "$i.25" ''
    done
    test_line away SKIP 0.5 'first\nno etcd here\n'
} >"$work/testlog-quick.json"
{
    test_line worst FAIL 2.0 "$(lines 50)"
    test_line silent TIMEOUT 300.0 ''
    test_line leaky FAIL 1.0 "before\\n==7==ERROR: AddressSanitizer: heap-use-after-free\\n$(lines 60)"
} >"$work/testlog-asan.json"
summary 1 "$work/testlog-quick.json" "$work/testlog-asan.json"
has "skipped: quick: away: no etcd here"
has "   300.0 s  asan: silent"
has "    12.2 s  quick: t12"
lacks "quick: t3"
has "--- output of asan: worst"
has "L50"
has "--- output of asan: silent"
has "no output"
has "==7==ERROR: AddressSanitizer: heap-use-after-free"
lacks "before"
lacks "L60"
has "failed: asan: silent (timeout, 300.0 s)"
ends 111 "12 passed, 3 failed, 1 skipped"

# a test has its last 30 lines
test_line worst FAIL 2.0 "$(lines 50)" >"$work/testlog-one.json"
summary 1 "$work/testlog-one.json"
lacks "L20"
has "L21"
ends 35 "0 passed, 1 failed, 0 skipped"

# however many failed
for i in $(seq 100); do
    test_line "f$i" FAIL 1.0 "$(lines 50)"
done >"$work/testlog-many.json"
summary 1 "$work/testlog-many.json" --broken="the build in x"
has "failed: the build in x"
has "failed: many: f1 (fail, 1.0 s)"
has "failed: 61 more"
has "L50"
ends 110 "0 passed, 101 failed, 0 skipped"
exit $bad
