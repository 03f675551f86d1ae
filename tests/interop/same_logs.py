"""What a run of a launcher has left on disk, in a form that two launchers can be compared by: names, kinds, modes,
contents. What is random in a name is left out, after a look at its form. Standard library only."""
import json
import os
import re
import stat

RANDOM = r"[A-Za-z0-9_]{6,8}"  # Python's mkdtemp makes 8, libc's 6


def read_logs(run_dir, run_id):
    """{path: (mode, content)}; the content of a directory is None. A path is in the form of place()."""
    found = {}
    for top in (os.path.join(run_dir, "logs"), *unnamed(run_dir)):
        for path, folders, files in os.walk(top):
            for name in folders + files:
                full = os.path.join(path, name)
                found[place(full, run_dir, run_id)] = describe(full)
    return found


def unnamed(run_dir):
    """The directories in $TMPDIR, which hold the logs without an option for the place."""
    tmp = os.path.join(run_dir, "tmp")
    return [os.path.join(tmp, name) for name in os.listdir(tmp) if re.fullmatch(f"torchelastic_{RANDOM}", name)]


def place(path, run_dir, run_id):
    """LOGS/... below the requested directory, TMP/... below one in $TMPDIR; JOB replaces the job's directory in
    either. Other paths only lose the parts that are specific to the run."""
    path = re.sub(f"^{re.escape(run_dir)}/", "", path)
    path = re.sub(f"^tmp/torchelastic_{RANDOM}/", "TMP/", re.sub("^logs/", "LOGS/", path))
    return re.sub(f"^((?:LOGS|TMP)(?:/.*)?)/{re.escape(run_id or 'JOB')}_{RANDOM}(?=/|$)", r"\1/JOB", path)


def describe(path):
    info = os.lstat(path)
    content = None
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as f:
            content = f.read()
        if os.path.basename(path).startswith("filtered_"):  # ranks write into it as they come
            content = b"".join(sorted(content.splitlines(keepends=True)))
        elif path.endswith(".json"):
            content = json.loads(content)
    return oct(info.st_mode), content


def compare(theirs, ours):
    """Yields a line for each difference."""
    for path in sorted(theirs.keys() | ours.keys()):
        if theirs.get(path) != ours.get(path):
            yield f"{path}: {theirs.get(path, 'not there')} and {ours.get(path, 'not there')}"


def said_lines(output):
    """What ranks printed on a launcher's own stream, sorted. ddprun's report repeats the last lines of the failed rank."""
    return sorted(line for line in output.split(b"\n")
                  if re.search(rb"(out|err) \d+\.\d+ ", line) and not line.startswith(b"    | "))
