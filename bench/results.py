"""Functions for all scripts of this directory: statistics, a description of the machine, RESULTS.md."""
import os
import platform
import re
import shlex
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def command_line():
    """The command that started this script, as typed in the root of the repository."""
    return shlex.join([os.path.relpath(os.path.abspath(sys.argv[0]), ROOT), *sys.argv[1:]])


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        found = re.search(r"^model name\s*:\s*(.+)$", f.read(), re.MULTILINE)
    return found[1] if found else platform.machine()


def machine():
    """One line with the machine and the date: figures mean little without them."""
    return (f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, "
            f"{time.strftime('%Y-%m-%d')}")


def load_average():
    return os.getloadavg()[0]


def spread(values):
    """(min, median)"""
    values = list(values)
    return min(values), statistics.median(values)


def table(head, rows):
    """A Markdown table whose columns are also aligned as plain text. The first column is left-aligned."""
    cells = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    rule = ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]]

    def line(row):
        return "| " + " | ".join([row[0].ljust(widths[0]),
                                  *[c.rjust(w) for c, w in zip(row[1:], widths[1:])]]) + " |"

    return "\n".join([line(head), "| " + " | ".join(rule) + " |", *map(line, cells[1:])])


def show(text, load_before):
    """Print it with the command, the machine, and the load, and return all of it."""
    text = (f"`{command_line()}`\n\n{machine()}; load average {load_before:.2f} before, "
            f"{load_average():.2f} after\n\n{text}\n")
    print(text)
    return text


def report(section, text, load_before):
    """Print the section and replace the section of the last run in RESULTS.md with it."""
    text = show(text, load_before)
    path = os.path.join(HERE, "RESULTS.md")
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->\n"
    with open(path, encoding="utf-8") as f:
        before, found, rest = f.read().partition(begin)
        _, found_end, after = rest.partition(end)
    if not found or not found_end:
        sys.exit(f"{path} has no section '{section}'")
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + begin + "\n" + text + "\n" + end + after)
