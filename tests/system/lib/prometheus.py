"""The text format 0.0.4 of Prometheus, read as strictly as its reference describes it."""
import re

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


def read_labels(text):
    """'a="b",c="d"' -> {"a": "b", "c": "d"}"""
    labels, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        if m is None or m[1] in labels:
            raise ValueError(f"bad labels: {text}")
        labels[m[1]] = re.sub(r"\\(.)", lambda e: "\n" if e[1] == "n" else e[1], m[2])
        at = m.end()
        if at < len(text) and text[at] != ",":
            raise ValueError(f"bad labels: {text}")
        at += 1
    return labels


def parse(text):
    """{name: (type, help, {labels as a sorted tuple: value})}. A line that does not belong is a ValueError."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    families, now = {}, None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            if name in families or METRIC.fullmatch(name) is None:
                raise ValueError(f"a second HELP, or a bad name: {line}")
            now, families[name] = name, [None, words, {}]
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name != now or families[name][0] is not None or kind not in TYPES:
                raise ValueError(f"TYPE without its HELP: {line}")
            families[name][0] = kind
        else:
            m = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
            if m is None or m[1] != now or families[now][0] is None:
                raise ValueError(f"a value outside of its family: {line}")
            if families[now][0] == "counter" and not now.endswith("_total"):
                raise ValueError(f"a counter whose name does not end in _total: {line}")
            key = tuple(sorted(read_labels(m[2] or "").items()))
            if key in families[now][2]:
                raise ValueError(f"the same value twice: {line}")
            families[now][2][key] = float(m[3])
    empty = [name for name, family in families.items() if not family[2]]
    if empty:
        raise ValueError(f"no values: {empty}")
    return {name: tuple(family) for name, family in families.items()}
