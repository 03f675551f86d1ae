#!/bin/sh
# Each component and each module has a test that scripts/test-of finds. scripts/test-of finds the right tests, and reports what is wrong.
#   test_of.sh SOURCE_ROOT BUILD_ROOT
set -eu
cd "$1"
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

scripts/test-of --build "$build" --check || bad=1

# prints NAME WORD...: the names of the tests of these words hold that one
prints() {
    name=$1
    shift
    if ! scripts/test-of --build "$build" "$@" >"$work/names" || ! grep -qxF "$name" "$work/names"; then
        echo "no $name among the tests of $*"
        bad=1
    fi
}

prints launcher/job/rank_argv launcher/job/rank_argv.c
[ "$(sed -n 1p "$work/names")" = launcher/job/rank_argv ] || bad=1 # the suite of its name is the first one
prints corpus_options rank_argv.h                              # it calls the module
prints sim_membership roster_index                             # which only other modules use
prints worker-runtime/tcp/nodes worker-runtime/tcp/backend_net # which ranks of the public interface use
prints system_perf perf/perf_run                               # which no other program contains
! grep -q '"nccl_clip"' "$build/meson-info/intro-tests.json" || # only where the plug-in is built
    prints nccl_clip worker-runtime/nccl/clip.cu                   # which the plug-in's table leads to
prints launcher/job/program launcher/job --system              # a component
grep -qx system_options "$work/names" || bad=1

# fails STATUS WORDS COMMAND...: COMMAND exits with STATUS, and prints WORDS
fails() {
    status=$1 words=$2 code=0
    shift 2
    "$@" >"$work/said" 2>&1 || code=$?
    if [ $code != "$status" ] || ! grep -qF "$words" "$work/said"; then
        echo "expected status $status and '$words' of $*, got $code and:"
        cat "$work/said"
        bad=1
    fi
}

fails 0 "usage: scripts/test-of" scripts/test-of --help
fails 2 "name modules, or --check" scripts/test-of
fails 2 "unrecognized arguments: --no-such" scripts/test-of --no-such rank_argv
fails 2 "no build directory $work" scripts/test-of --build "$work" rank_argv

# a tree of two components without a unit test
mkdir -p "$work/scripts" "$work/tests/system" "$work/one" "$work/two" "$work/build/meson-info"
cp scripts/test-of "$work/scripts"
printf 'one | - | | The first\ntwo | - | | The second\n' >"$work/scripts/components.txt"
echo 'int one(void);' >"$work/one/one.h"
echo 'int two(void);' >"$work/two/two.h"
printf '[{"type": "static library", "target_sources": [{"sources": ["%s", "%s"]}]}]' "$work/one/one.c" "$work/two/two.c" \
    >"$work/build/meson-info/intro-targets.json"
printf '[%s, %s]' "{\"name\": \"first\", \"suite\": [], \"cmd\": [\"python3\", \"$work/tests/system/first.py\"]}" \
    "{\"name\": \"second\", \"suite\": [], \"cmd\": [\"$work/tests/system/second.sh\"]}" >"$work/build/meson-info/intro-tests.json"
printf '"""The first.\n\nCovers: one, three\n"""\n' >"$work/tests/system/first.py"
printf '#!/bin/sh\n# The second.\n' >"$work/tests/system/second.sh"
fails 1 "tests/system/first.py: covers 'three', which is not in scripts/components.txt" "$work/scripts/test-of" --check
fails 1 'tests/system/second.sh: no line "Covers: COMPONENT, ..." at its head' "$work/scripts/test-of" --check
fails 1 "two: no unit, sim or system test covers it" "$work/scripts/test-of" --check
fails 1 "two/two: no test covers it" "$work/scripts/test-of" --check
printf '#!/bin/sh\n# Covers: two\n' >"$work/tests/system/second.sh"
printf '"""The first.\n\nCovers: one\n"""\n' >"$work/tests/system/first.py"
fails 0 "2 modules" "$work/scripts/test-of" --check
fails 0 second "$work/scripts/test-of" two
echo 'int one(void);' >"$work/two/one.h"
fails 2 "no module 'no/such.c' in this tree" "$work/scripts/test-of" no/such.c
fails 2 "'one.h' is ambiguous: one/one, two/one" "$work/scripts/test-of" one.h
exit $bad
