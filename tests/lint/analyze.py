#!/usr/bin/env python3
"""The static analyzer of gcc, or of clang, finds nothing in the C sources of a build, except what analyze_exceptions.txt explains.

    analyze.py TOOL SOURCE_ROOT BUILD_ROOT [--list] [PATH...]

TOOL is gcc or clang. Which findings there are depends on the version of the compiler: gcc 12 and clang 14 are used. --list prints all
findings, and the status is 0. PATH limits the analysis to these sources.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

COMPILERS = {"gcc": "gcc-12", "clang": "clang-14"}
EXCEPTIONS = "tests/lint/analyze_exceptions.txt"
MODEL = "tests/lint/analyze_model.h"
NOT_MODELED = "common/error.c"  # what the model replaces
SKIPPED = 77
FILE_S = 900  # the slowest file takes a minute on an idle machine

Finding = collections.namedtuple("Finding", "check path function line text")


def run(words, directory):
    return subprocess.run(words, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FILE_S, check=False)


def preprocessor_words(command):
    """The words of a compiler's command line that select what is compiled."""
    kept, words = [], shlex.split(command)
    for word, following in zip(words, [*words[1:], ""]):
        if re.match(r"-[DUI].|-std=|-f(?:openmp|no-strict-aliasing)|-m|-pthread", word):
            kept.append(word)
        elif word in ("-D", "-U", "-I", "-isystem", "-include"):
            kept += [word, following]
    return kept


def read_json(lines):
    """What gcc reports; it prints one list, among lines of other programs."""
    for line in lines:
        if line.startswith("["):
            return json.loads(line)
    return []


def find_gcc(compiler, words, directory, source):
    """-> findings, an error message or None"""
    done = run([compiler, *words, "-fanalyzer", "-fdiagnostics-format=json", "-c", "-o", os.devnull, source], directory)
    findings = []
    for report in read_json(done.stderr.splitlines()):
        if report["kind"] == "error":
            return [], report["message"]
        if report.get("option", "").startswith("-Wanalyzer"):
            at = report["locations"][0]["caret"]
            path = report.get("path", [{"function": "-"}])
            findings.append(Finding(report["option"], at["file"], path[-1]["function"], at["line"], report["message"]))
    return findings, None if done.returncode == 0 else done.stderr.strip()


def find_clang(compiler, words, directory, source):
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "report.plist")
        done = run([compiler, *words, "-w", "--analyze", "-Xclang", "-analyzer-output=plist", "-o", path, source], directory)
        if done.returncode != 0:
            return [], done.stderr.strip()
        with open(path, "rb") as file:
            report = plistlib.load(file)
    findings = []
    for found in report["diagnostics"]:
        check = f"{found['check_name']}/{found['type'].replace(' ', '-')}"
        at = found["location"]
        findings.append(Finding(check, report["files"][at["file"]], found.get("issue_context", "-"), at["line"], found["description"]))
    return findings, None


FINDERS = {"gcc": find_gcc, "clang": find_clang}


def commands_of(root, build):
    """{source below root: (command, directory)}: one of each, since a source is compiled the same way everywhere."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        path = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), root)
        if path.endswith(".c") and not path.startswith((os.pardir, os.path.relpath(build, root), "subprojects")):
            found.setdefault(path, (entry["command"], entry["directory"]))
    return found


def read_exceptions(root, tool):
    """[(check, path, function)], patterns each, of the lines "TOOL CHECK PATH FUNCTION"; a comment above gives the reason. A CHECK
    "all" is for sources that the tool does not analyze."""
    found, has_reason = [], False
    with open(os.path.join(root, EXCEPTIONS), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if line.startswith("#") or not words:
                has_reason = line.startswith("#")
            elif not has_reason or len(words) != 4 or words[0] not in COMPILERS:
                sys.exit(f"{EXCEPTIONS}:{number}: expected a comment with the reason, then lines 'TOOL CHECK PATH FUNCTION'")
            elif words[0] == tool:
                found.append(tuple(words[1:]))
    return found


def matches(exception, finding):
    return all(map(fnmatch.fnmatchcase, finding[:3], exception))


def analyze(tool, compiler, root, commands):
    """-> findings, error messages"""
    def look(path):
        command, directory = commands[path]
        try:
            words = [*preprocessor_words(command), *([] if path == NOT_MODELED else ["-include", os.path.join(root, MODEL)])]
            found, problem = FINDERS[tool](compiler, words, directory, os.path.join(root, path))
        except subprocess.TimeoutExpired:
            return [], f"{path}: timed out after {FILE_S} s"
        return [each._replace(path=os.path.relpath(os.path.realpath(os.path.join(directory, each.path)), root)) for each in found], \
            problem and f"{path}: {problem}"

    os.nice(19)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        looks = list(pool.map(look, sorted(commands)))
    # a header is analyzed with each source that includes it
    return sorted({each for found, _ in looks for each in found}), [problem for _, problem in looks if problem]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("\n\n")[2].partition("\n\n")[0].strip(), add_help=False)
    parser.add_argument("tool", choices=COMPILERS)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_intermixed_args()
    root, build = os.path.realpath(args.root), os.path.realpath(args.build)
    compiler = shutil.which(COMPILERS[args.tool])
    if compiler is None:
        print(f"{COMPILERS[args.tool]} is missing")
        return SKIPPED

    exceptions = read_exceptions(root, args.tool)
    left_out = [path for check, path, _ in exceptions if check == "all"]
    commands = {path: command for path, command in commands_of(root, build).items()
                if path in args.paths or (not args.paths and not any(fnmatch.fnmatchcase(path, each) for each in left_out))}
    findings, problems = analyze(args.tool, compiler, root, commands)
    unexplained = [each for each in findings if args.list or not any(matches(exception, each) for exception in exceptions)]
    for each in unexplained:
        print(f"{each.path}:{each.line}: {each.function}: {each.text} [{each.check}]")
    if not args.paths:
        for exception in exceptions:
            if exception[0] != "all" and not any(matches(exception, each) for each in findings):
                print(f"note: {EXCEPTIONS}: '{args.tool} {' '.join(exception)}' explains nothing any more: remove it")
    print("\n".join([*problems, f"{len(commands)} sources, {len(findings)} findings of {os.path.basename(compiler)}, "
                                f"{len(unexplained)} unexplained"]))
    return 1 if problems or (unexplained and not args.list) else 0


if __name__ == "__main__":
    sys.exit(main())
