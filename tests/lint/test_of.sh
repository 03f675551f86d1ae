#!/bin/sh
# Each component and each module has a test that scripts/test-of finds. scripts/test-of finds the right tests, and reports what is wrong.
#   test_of.sh SOURCE_ROOT BUILD_ROOT
set -eu
cd "$1"
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# In one process, which reads the tree once: NAME among the tests of WORD...
python3 - "$build" <<'EOF' || bad=1
import contextlib
import functools
import io
import os
import sys
import types

build, bad = sys.argv[1], False
test_of = types.ModuleType("test_of")
test_of.__file__ = os.path.abspath("scripts/test-of")
with open(test_of.__file__, encoding="utf-8") as file:
    exec(compile(file.read(), test_of.__file__, "exec"), vars(test_of))
test_of.Tree = functools.cache(test_of.Tree)


def run(*words):
    """The exit status and the lines that it prints."""
    sys.argv = ["test-of", "--build", build, *words]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = test_of.main()
    return status, out.getvalue().splitlines()


def expect(is_right, text):
    global bad
    if not is_right:
        print(text)
        bad = True


def expect_test(name, *words):
    status, names = run(*words)
    expect(status == 0 and name in names, f"no {name} among the tests of {' '.join(words)}")
    return names


status, problems = run("--check")
expect(status == 0, "\n".join(problems))
names = expect_test("launcher/job/rank_argv", "launcher/job/rank_argv.c")
expect(names[:1] == ["launcher/job/rank_argv"], "the suite of the name of the module is not the first one")
expect_test("corpus_options", "rank_argv.h")  # it calls the module
expect_test("sim_membership", "roster_index")  # which only other modules use
expect_test("worker-runtime/tcp/nodes", "worker-runtime/tcp/backend_net")  # which ranks of the public interface use
expect_test("system_perf", "perf/perf_run")  # which no other program contains
with open(os.path.join(build, "meson-info/intro-tests.json"), encoding="utf-8") as file:
    if '"nccl_clip"' in file.read():  # only where the plug-in is built
        expect_test("nccl_clip", "worker-runtime/nccl/clip.cu")  # which the plug-in's table leads to
names = expect_test("launcher/job/program", "launcher/job", "--system")  # a component
expect("system_options" in names, "no system_options among the tests of launcher/job --system")
sys.exit(bad)
EOF
scripts/test-of --build "$build" rank_argv >"$work/names" && grep -qx launcher/job/rank_argv "$work/names" || bad=1

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
