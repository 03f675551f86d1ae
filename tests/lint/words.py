#!/usr/bin/env python3
"""The texts of the project avoid the words of the list below (docs/contributing/style.md has the reasons).

    words.py ROOT                       compare the counts of each area with the limits; exit 1 if one is above
    words.py ROOT --list AREA [PATH..]  print the findings of an area
    words.py ROOT --record              lower the limits in this file to the present counts

The limits are a ratchet: a change may lower a count, never raise it.
"""
import collections
import fnmatch
import io
import os
import re
import subprocess
import sys
import tokenize

# area: (limit, what belongs to it)
LIMITS = {
    "docs": (0, "Markdown files"),
    "man": (0, "manual pages"),
    "messages": (0, "string literals of the programs: messages, help, JSON values"),
    "headers": (0, "include/ddp"),
    "comments": (0, "comments of all source files except tests"),
    "test comments": (0, "comments of tests"),
    "test names": (0, "names of test functions"),
}
MAX_EXCEPTIONS = 30

# word: (pattern, what to write). A pattern matches in any case and across a line break.
ALWAYS = {
    # a process is a thing with a name
    "who": (r"(?<!users )(?<!user )(?<!people )(?<!person )(?<!developers )(?<!developer )(?<!readers )(?<!reader )"
            r"(?<!administrators )(?<!administrator )(?<!anyone )(?<!those )\b(?:who|whom)\b",
            "the technical name of the process or node"),
    "whoever": (r"\bwh(?:o|om)ever\b", "any process that, any node that"),
    "nobody": (r"\bnobody\b", "no process, no node, nothing"),
    "somebody": (r"\b(?:somebody|someone else)\b", "a process, another process"),
    "everybody": (r"\beverybody\b", "every process, all users"),
    # German in English words
    "behind": (r"\bbehind\b(?! (?:a |an |the )?(?:NAT|firewall|proxy|load balancer|gateway))", "after, below, next to"),
    "is no": (r"(?<!there )\b(?:is|are|was|were) no(?= (?!longer|more\b|one\b))", "is not a"),
    "there is none": (r"\bthere (?:is|are|was|were) none\b", "does not exist, is not running"),
    "is none of": (r"\b(?:is|are) n(?:one of|either)\b", "invalid value 'x' for --opt: expected ..."),
    "anew": (r"\banew\b", "again"),
    "as ever": (r"\bas (?:ever|always)\b", "as before, or nothing"),
    "in vain": (r"\bin vain\b", "without success; timed out after"),
    "in the place of": (r"\bin the place of\b", "instead of"),
    "for ever": (r"\bfor ever\b", "forever"),
    "but for": (r"\bbut for\b", "except"),
    "likewise": (r"\blikewise\b", "the same, also"),
    "all the same": (r"\ball the same\b", "anyway, still"),
    "so do": (r"\bso (?:does|do|did|is|are) (?!not\b|far\b|that\b|called\b)(?:the|a|an|its|all|every|each|it|they|those|one)\b"
              r"(?! more)", "also"),
    "whence": (r"\bwhen?ce\b(?<!hence)", "from where"),
    "beside": (r"\bbeside\b", "next to, besides"),
    "Of X,": (r"(?:(?<=[.:] )|(?<=\n)|(?<=\n\n)|(?<=\* )|(?<=- )|(?<=^))(?-i:Of (?!course\b)[a-z][a-z ]*),",
              "name the subject first"),
    ", too": (r", too(?=[.,;:)\s]|$)", "also, before the verb"),
    # report, print, pass, specify
    "tell": (r"\b(?:tell|tells|told|telling)\b", "report, print, pass, know"),
    "say": (r"\b(?:say|says|said|saying)\b", "report, print, specify, state"),
    "hear of": (r"\bhear(?:s|d)? (?:of|from|nothing)\b", "receive, be notified of"),
    # join, leave, rendezvous
    "meet": (r"\b(?:meet|meets|met|meeting|meetings)\b", "rendezvous, connect; satisfy"),
    "node comes": (r"\b(?:nodes?|ranks?|peers?|hosts?|others?|joiners?) (?:come|comes|came|go|goes|went)\b(?! (?:from|to zero))",
                   "joins, leaves, starts, exits"),
    "go on": (r"\b(?:go|goes|went|gone|going) on\b", "continue"),
    "is here": (r"\b(?:is|are|was|were) (?:all )?here\b", "has joined, is present"),
    "let in": (r"\blet(?:s|ting)? (?:\w+ )?in\b(?!to)", "admit, accept"),
    "ends well": (r"\bend(?:s|ed|ing)? well\b", "exits with 0, succeeds"),
    "look at/after": (r"\blook(?:s|ed|ing)? (?:after|over)\b", "monitor, check"),
    "stands": (r"\bstands? (?:here|there|in|behind|at)\b", "is"),
    "exclude each other": (r"\b(?:exclude|contradict)s? (?:each other|one another)\b", "cannot be used together"),
    "no memory for": (r"\bno memory\b", "out of memory"),
    # one term per concept: docs/reference/glossary.md
    "kin": (r"\bkin\b", "derived from, compatible with"),
    "room": (r"\brooms?\b", "component; space, capacity"),
    "folder": (r"\bfolders?\b", "directory"),
    "time-out": (r"\btime-outs?\b", "timeout; timed out"),
    "exit code": (r"\bexit codes?\b", "exit status"),
    "old term": (r"\b(?:nursery|leash|leashes|parcels?|muster|buddies|buddy|strangers?|condemned|starter|mended|mending|mends|"
                 r"mendable|whereabouts)\b", "the glossary's term"),
    "given up": (r"\b(?:was|were|is|are) given up\b", "evicted; released"),
    "program of": (r"\b(?:programs?|scripts?|ranks?|jobs?) of (?:libddp|MPI|MPICH|Open MPI|PyTorch|NCCL|torch)\b",
                   "libddp program, MPI program, PyTorch script"),
    # American spelling
    "British": (r"\b(?:\w*(?:optimis|normalis|synchronis|initialis|recognis|serialis|organis|utilis|minimis|maximis|summaris|"
                r"quantis|parallelis|vectoris|randomis|generalis|specialis|finalis|prioritis|emphasis(?=e|ing))"
                r"(?:e|ed|es|er|ers|ing|ation|ations)|behaviours?|colou?rs?(?<=our)|colours|coloured|licences?|favours?|honou?r(?:s|ed)?"
                r"(?<!honor)(?<!honors)(?<!honored)|neighbours?|neighbouring|centres?|analys(?:e|ed|es)(?<=yse)|cancell(?:ed|ing)|"
                r"grey|catalogue|modelling|labell(?:ed|ing)|signall(?:ed|ing)|travell(?:ed|ing)|artefacts?|defence|whilst|"
                r"judgement|programme)\b", "American spelling"),
}
# only in what users read
USER = {
    "roster": (r"\brosters?\b", "coordinator"),
}
USER_AREAS = ("docs", "man", "messages", "headers")
# pages for contributors, where the roster is a module
FOR_CONTRIBUTORS = ("docs/design/", "docs/contributing/", "docs/explanation/architecture.md", "docs/reference/glossary.md",
                    "CONTRIBUTING.md")

SKIP = ("tests/data/", "tests/fuzz/", "subprojects/")
C_TOKEN = re.compile(r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|'
                     r"'(?:[^'\\\n]|\\.)+'", re.DOTALL)
C_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.MULTILINE)
C_TEST = re.compile(r"\bSTART_TEST\((\w+)\)")
PY_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
INLINE_CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
SHELL_COMMENT = re.compile(r"(?:^|(?<=\s))#(?!!)[^\n]*", re.MULTILINE)


def c_pieces(text):
    """-> (kind, offset, text) of each run of comments and of adjacent string literals"""
    text = C_INCLUDE.sub(lambda m: " " * len(m[0]), text)
    end, joined, start = None, "", 0
    for m in C_TOKEN.finditer(text):
        if m["string"] is not None:
            body = m["string"][1:-1].replace("\\n", "\n ").replace('\\"', '"')
            if joined and text[end:m.start()].strip() == "":
                joined += body
            else:
                if joined:
                    yield "string", start, joined
                joined, start = body, m.start()
            end = m.end()
        elif m["comment"] is not None:
            yield "comment", m.start(), re.sub(r"\n\s*\* ?", "\n", m["comment"])
    if joined:
        yield "string", start, joined


def python_pieces(text):
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    before = tokenize.NEWLINE
    try:
        for t in tokenize.generate_tokens(io.StringIO(text).readline):
            at = lines[t.start[0] - 1] + t.start[1]
            if t.type == tokenize.COMMENT:
                yield "comment", at, t.string
            elif t.type == tokenize.STRING:
                is_doc = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL)
                yield ("comment" if is_doc else "string"), at, t.string
            if t.type not in (tokenize.NL, tokenize.COMMENT, tokenize.DEDENT):
                before = t.type
    except (tokenize.TokenError, IndentationError):
        pass


def shell_pieces(text):
    for m in SHELL_COMMENT.finditer(text):
        yield "comment", m.start(), m[0]


def test_names(pattern, text):
    for m in pattern.finditer(text):
        yield "name", m.start(1), m[1].replace("_", " ")


def kind_of(path, text):
    name = os.path.basename(path)
    if path.endswith(".md"):
        return "md"
    if re.search(r"\.[1-8]$", name) and path.startswith("man/"):
        return "man"
    if re.search(r"\.(?:c|h|cu|cuh)$", name) or re.search(r"\.[ch]\.in$", name):
        return "c"
    first = text.split("\n", 1)[0]
    if name.endswith(".py") or first.startswith("#!") and "python" in first:
        return "python"
    if name.endswith((".sh", ".build", ".yml", ".yaml", ".toml")) or name == "meson_options.txt" or first.startswith("#!"):
        return "shell"
    return None


def pieces(path, text):
    """-> (area, offset, text)"""
    kind = kind_of(path, text)
    in_tests = path.startswith("tests/")
    comments = "test comments" if in_tests else "comments"
    if kind == "md":
        yield "docs", 0, INLINE_CODE.sub(lambda m: " " * len(m[0]), text)
    elif kind == "man":
        yield "man", 0, text
    elif kind == "c" and path.startswith("include/"):
        yield "headers", 0, re.sub(r"\n\s*\* ?", "\n", text)
    elif kind in ("c", "python", "shell"):
        read = {"c": c_pieces, "python": python_pieces, "shell": shell_pieces}[kind]
        for what, at, piece in read(text):
            if what == "comment":
                yield comments, at, piece
            elif not in_tests and not path.startswith(("bench/", "scripts/")):
                yield "messages", at, piece
        if in_tests and kind in ("c", "python"):
            for _, at, piece in test_names(C_TEST if kind == "c" else PY_TEST, text):
                yield "test names", at, piece


def compile_words(words):
    return {name: re.compile(re.sub(" ", r"\\s+", pattern) if "(?<" not in pattern else pattern, re.IGNORECASE)
            for name, (pattern, _) in words.items()}


def read_exceptions(path):
    """-> [(glob, word, text)], each line PATH | WORD | TEXT | REASON"""
    found = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                parts = [part.strip() for part in line.split(" | ")]
                if len(parts) != 4 or not parts[3]:
                    sys.exit(f"{path}: not 'PATH | WORD | TEXT | REASON': {line.rstrip()}")
                found.append(tuple(parts[:3]))
    return found


def findings(root, exceptions, used):
    always, user = compile_words(ALWAYS), compile_words(USER)
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for path in sorted(set(listed)):
        if path.startswith(SKIP) or path == "tests/lint/words.py" or not os.path.isfile(os.path.join(root, path)):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as f:
                text = f.read()
        except UnicodeDecodeError:
            continue
        own = [(i, e) for i, e in enumerate(exceptions) if fnmatch.fnmatch(path, e[0])]
        for area, at, piece in pieces(path, text):
            words = dict(always)
            if area in USER_AREAS and not path.startswith(FOR_CONTRIBUTORS):
                words.update(user)
            for name, pattern in words.items():
                for m in pattern.finditer(piece):
                    around = " ".join(piece[max(0, m.start() - 40):m.end() + 40].split())
                    excused = [i for i, (_, word, part) in own if word in ("*", name) and (part == "*" or part in around)]
                    used.update(excused)
                    if not excused:
                        if area in ("headers", "docs", "man"):
                            line = piece.count("\n", 0, m.start()) + 1
                        else:
                            line = text.count("\n", 0, at) + 1
                        yield area, path, line, name, around


def record(counts):
    """write the limits of this file"""
    with open(__file__, encoding="utf-8") as f:
        text = f.read()
    for area, (limit, _) in LIMITS.items():
        text = re.sub(rf'("{area}": \()\d+', rf"\g<1>{min(limit, counts[area]) if limit else counts[area]}", text, count=1)
    with open(__file__, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    root = sys.argv[1]
    if not os.path.exists(os.path.join(root, ".git")):
        print("not a git checkout: the files of the project are not known")
        return 77
    exceptions = read_exceptions(os.path.join(root, "tests/lint/words_exceptions.txt"))
    used = set()
    found = list(findings(root, exceptions, used))
    if sys.argv[2:3] == ["--list"]:
        area, paths = sys.argv[3], tuple(sys.argv[4:])
        for where, path, line, name, around in found:
            if where == area and (not paths or path.startswith(paths)):
                print(f"{path}:{line}: {name}: {around}")
        return 0
    counts = collections.Counter(area for area, *_ in found)
    if sys.argv[2:3] == ["--record"]:
        record(counts)
        return 0
    bad = False
    for area, (limit, _) in LIMITS.items():
        print(f"{area:14} {counts[area]:5} findings, limit {limit}")
        if counts[area] > limit:
            bad = True
            print(f"  above the limit: {sys.argv[0]} {root} --list '{area}'")
            if limit == 0:
                for where, path, line, name, around in found:
                    if where == area:
                        print(f"  {path}:{line}: {name} ({(ALWAYS | USER)[name][1]}): {around}")
        elif counts[area] < limit:
            print(f"  below the limit: lower it with {sys.argv[0]} {root} --record")
    for i, (path, word, part) in enumerate(exceptions):
        if i not in used:
            bad = True
            print(f"words_exceptions.txt: nothing matches: {path} | {word} | {part}")
    if len(exceptions) > MAX_EXCEPTIONS:
        bad = True
        print(f"{len(exceptions)} exceptions, at most {MAX_EXCEPTIONS}")
    return 1 if bad else 0


sys.exit(main())
