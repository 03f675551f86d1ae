"""The command lines of the pages are lines that ddprun takes: each is run with --dry-run, those of the other programs have the options
that their own help has.

Covers: launcher/options, ctl, rendezvous/daemon, perf
"""
import os
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = os.environ["SOURCE_ROOT"]
PROGRAMS = {"ddprun": os.environ["DDPRUN"], "ddpctl": os.environ["DDPCTL"], "ddp-rendezvous": os.environ["DDP_RENDEZVOUS"],
            "ddp-perf": os.environ["DDP_PERF"]}

# The options that ddprun passes to itself on other hosts
OF_OUR_OWN = ["--launch-channel"]

# The directories whose files the pages name
TREE = "|".join(["bench", "common", "console", "ctl", "docs", "examples", "history", "include", "launcher", "man", "packaging", "perf", "python",
                 "rendezvous", "schemas", "scripts", "segments", "tests", "worker-runtime"])

# What a line has before the program: variables, a scheduler's launcher
BEFORE = re.compile(r"^(?:\w+=\S+ +)*(?:srun(?: +-\S+(?: +\d\S*)?)* +)?(?:\S*/)?(ddprun|ddpctl|ddp-rendezvous|ddp-perf)(?= |$)")


def code_of(text):
    """The lines of its shell blocks, those after a prompt in blocks of terminal output, and those that are indented as code:
    (number, line)"""
    inside = None
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r" *```(\w*)", line)
        if fence:
            inside = fence[1] if inside is None else None
        elif inside == "sh" or (inside is None and line.startswith("    ")) or (inside == "" and line.startswith("$ ")):
            yield number, line.strip().removeprefix("$ ")


def lines_of(page):
    """Those that start one of our programs: (number, program, words)"""
    with open(page, encoding="utf-8") as f:
        text = f.read()
    whole = ""
    for number, line in code_of(text):
        whole += line
        if whole.endswith("\\"):
            whole = whole[:-1] + " "
            continue
        found = BEFORE.match(whole)
        if found:
            words = shlex.split(whole[found.end():], comments=True)
            yield number, found[1], words[:next((n for n, word in enumerate(words) if word in ("|", "&", ">", ";", "&&")), None)]
        whole = ""


def spans_of(page):
    """Those in the text that name options: (number, program, words), up to the program that ddprun is to start."""
    with open(page, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            for span in re.findall(r"`([^`]+)`", line):
                found = BEFORE.match(span)
                if found and "--" in span:
                    words = span[found.end():].replace("'", "").split()
                    yield number, found[1], words[:next((n for n, word in enumerate(words) if re.match(r"\./|\.\.\.|.*\.py$|--$|#", word)), None)]


def prose_of(page):
    """The page without its blocks of code."""
    with open(page, encoding="utf-8") as f:
        return re.sub(r"^```.*?^```", "", f.read(), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """Those of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", prose_of(page), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def pages():
    yield os.path.join(ROOT, "README.md")
    yield os.path.join(ROOT, "examples", "README.md")
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "docs"))):
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make(self, words):
        """The files that a command line names."""
        for word in words:
            path = os.path.join(self.folder, word.lstrip("/"))
            if not re.fullmatch(r"(\./)?[A-Za-z][\w-]*([./][\w-]+)*", word) or os.path.exists(path):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write("node1 slots=2\n" if "hosts" in word else "#!/bin/sh\n" + "0123456789abcdef" * 2 + "\n")
            os.chmod(path, 0o700)

    def takes(self, words):
        self.make(words)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PET_", "DDP_"))}
        return subprocess.run([PROGRAMS["ddprun"], "--dry-run", *words], cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)

    def test_ddprun_accepts_each_command_line(self):
        n = 0
        for page in pages():
            for number, program, words in lines_of(page):
                if program == "ddprun":
                    n += 1
                    with self.subTest(f"{os.path.relpath(page, ROOT)}:{number}"):
                        done = self.takes(words)
                        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(n, 20)

    def has_options(self, page, number, program, words):
        """Each of them is in the program's help."""
        with self.subTest(f"{os.path.relpath(page, ROOT)}:{number}"):
            before = words[:1] if program == "ddpctl" and words and not words[0].startswith("-") else []
            if before == ["store"]:
                before = words[:2]
            help_text = subprocess.run([PROGRAMS[program], *before, "--help"], capture_output=True, text=True, timeout=60)
            self.assertEqual(help_text.returncode, 0, help_text.stderr)
            for word in words:
                option = re.match(r"--[\w-]+|-\w", word)
                if option and option[0] not in OF_OUR_OWN:
                    self.assertIsNotNone(re.search(rf"(?<![\w-]){re.escape(option[0])}(?![\w-])", help_text.stdout), option[0])

    def test_the_other_programs_have_the_options_of_their_command_lines(self):
        for page in pages():
            for number, program, words in lines_of(page):
                if program != "ddprun":
                    self.has_options(page, number, program, words)

    def test_options_in_running_text_exist(self):
        n = 0
        for page in pages():
            for number, program, words in spans_of(page):
                n += 1
                self.has_options(page, number, program, words)
        self.assertGreater(n, 5)

    def test_the_index_links_to_every_page(self):
        index = os.path.join(ROOT, "docs", "index.md")
        with open(index, encoding="utf-8") as f:
            targets = {os.path.normpath(os.path.join(ROOT, "docs", target)) for target in re.findall(r"\]\(([^)#\s]+)", f.read())}
        self.assertEqual([os.path.relpath(page, ROOT) for page in pages()
                          if page.startswith(os.path.dirname(index) + os.sep) and page != index and page not in targets], [])

    def test_links_to_headings_lead_to_headings(self):
        for page in pages():
            for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", prose_of(page)):
                goal = os.path.join(os.path.dirname(page), target) if target else page
                if "://" not in target and goal.endswith(".md"):
                    with self.subTest(f"{os.path.relpath(page, ROOT)}: {target}#{anchor}"):
                        self.assertIn(anchor, anchors_of(goal))

    def test_links_lead_to_files(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose_of(page)):
                if "://" not in target:
                    with self.subTest(f"{os.path.relpath(page, ROOT)}: {target}"):
                        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(page), target)))

    def test_named_files_exist(self):
        for page in pages():
            with open(page, encoding="utf-8") as f:
                text = f.read()
            for name in re.findall(rf"`((?:{TREE})/[\w./-]+\w)`", text):
                with self.subTest(f"{os.path.relpath(page, ROOT)}: {name}"):
                    self.assertTrue(os.path.exists(os.path.join(ROOT, name)) or
                                    any(os.path.exists(os.path.join(ROOT, name + end)) for end in (".c", ".py", ".h")))


if __name__ == "__main__":
    unittest.main()
