#!/usr/bin/env python3
"""schemas/*.schema.json have each event and each field of the code, and no other ones.

    schemas.py ROOT

The validator of the system tests (tests/system/lib/json_schema.py) is compared with python3-jsonschema, where that is installed.
"""
import copy
import os
import re
import sys

ROOT = sys.argv[1]
os.environ["SOURCE_ROOT"] = ROOT
sys.path.insert(0, os.path.join(ROOT, "tests/system/lib"))
from json_schema import EVENTS, REPORT  # noqa: E402 (found by the path above)

EVENT_SOURCES = ["launcher/reporting/events.c", "launcher/diagnosis/hang_report.c", "launcher/diagnosis/oom_report.c",
                 "launcher/reporting/goodput_json.c"]
REPORT_SOURCES = ["launcher/reporting/job_report.c", "launcher/reporting/health_list.c", "launcher/reporting/node_result.c", *EVENT_SOURCES[1:]]
bad = []


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def arguments(text, at):
    """The arguments of the call whose parenthesis opens at text[at - 1]."""
    found, depth, start = [], 0, at
    while True:
        c = text[at]
        if c == '"':
            at = text.index('"', at + 1)
        elif c == "," and depth == 0 or c == ")" and depth == 0:
            found.append(text[start:at].strip())
            if c == ")":
                return found
            start = at + 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        at += 1


def keys(path):
    """The names that json_pack() and json_object_set_new() give to values."""
    text, found = read(path), set()
    for m in re.finditer(r"\bjson_pack\(", text):
        form, *rest = arguments(text, m.end())
        values = iter(rest)
        for kind in re.findall(r"s:(\w)", form):
            found.add(next(values).strip('"'))
            if kind != "n":
                next(values)
    for m in re.finditer(r"\bjson_object_set_new\(", text):
        found.add(arguments(text, m.end())[1].strip('"'))
    return found


def names_of(schema):
    """All names of properties."""
    if isinstance(schema, list):
        return set().union(*map(names_of, schema))
    if not isinstance(schema, dict):
        return set()
    found = set(schema.get("properties", {}))
    for key, value in schema.items():
        found |= set().union(*map(names_of, value.values())) if key in ("properties", "$defs") else names_of(value)
    return found


def compare(what, code, schema):
    bad.extend(f"{what}: {name} is in the code, and not in the schema" for name in sorted(code - schema))
    bad.extend(f"{what}: {name} is in the schema, and not in the code" for name in sorted(schema - code))


def code_events():
    text = read("launcher/reporting/events.c")
    calls = re.findall(r"\bput_(?:event|rank)\(e, ([^,]*),", text)
    return {name for call in calls for name in re.findall(r'"(\w+)"', call)}


def events_of_schema():
    return {value["properties"]["ev"]["const"] for value in EVENTS.root["$defs"].values() if "ev" in value.get("properties", {})}


def samples():
    """(validator, value, whether it is valid)"""
    exit_event = {"v": 1, "t": 1732125000.5, "ms": 12, "ev": "rank_exit", "job": "a1", "gen": 0, "node": None, "host": "n2",
                  "rank": 9, "lrank": 1, "pid": 4711, "code": None, "signal": "SIGSEGV", "forwarded": False, "lost_peer": False,
                  "step": None}
    rank = {"node": 0, "host": "n1", "rank": 0, "local_rank": 0, "pid": 7, "exit_code": 3, "signal": None, "stopped_by": None,
            "lost_peer": False, "was_failing": False, "duration_s": 0.5}
    report = {"version": 2, "job": "a1", "outcome": "rank_failed", "exit_code": 3, "signal": None, "verdict": None, "restarts": 0,
              "generations": 1, "duration_s": 0.5, "goodput": None, "output_error": None, "host": "n1", "program": "./a", "root_cause": None, "unhealthy": [],
              "ranks": [rank]}
    yield EVENTS, exit_event, True
    yield REPORT, report, True
    for validator, value, changes in (
            (EVENTS, exit_event, [("more", 1), ("ev", "rank_start"), ("ev", "unheard"), ("v", 2), ("signal", "segv"), ("code", 256),
                                  ("code", "1"), ("forwarded", 0), ("step", None), ("gen", -1), ("gen", 1.5), ("why", "end")]),
            (REPORT, report, [("more", 1), ("outcome", "well"), ("ranks", None), ("ranks", [{}]), ("ranks", [{**rank, "x": 1}]),
                              ("root_cause", {}), ("exit_code", True), ("duration_s", None), ("verdict", {"node": None})])):
        for name, change in changes:
            yield validator, {**value, name: change}, (name, change) == ("step", None)
        for name in value:
            less = copy.copy(value)
            del less[name]
            yield validator, less, False


compare("events", code_events(), events_of_schema())
# the level of the line itself; "own_ms" and its like are in lists
compare("fields of events", set().union(*map(keys, EVENT_SOURCES)), names_of(EVENTS.root))
compare("fields of the report", set().union(*map(keys, REPORT_SOURCES)), names_of(REPORT.root))
for page, schema in ("events", EVENTS), ("report", REPORT):
    text = read(f"docs/reference/{page}.md") + read("docs/reference/report.md")
    for name in sorted(names_of(schema.root) | (events_of_schema() if page == "events" else set())):
        if f"`{name}`" not in text:
            bad.append(f"docs/reference/{page}.md does not have `{name}`")
for validator, value, is_valid in samples():
    if (not validator.errors(value)) != is_valid:
        bad.append(f"json_schema.py: {'invalid' if is_valid else 'valid'}: {value}: {validator.errors(value)}")
try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is missing: the schemas and our validator are not compared with it")
else:
    for validator in EVENTS, REPORT:
        jsonschema.Draft202012Validator.check_schema(validator.root)
    for validator, value, is_valid in samples():
        if jsonschema.Draft202012Validator(validator.root).is_valid(value) != is_valid:
            bad.append(f"jsonschema: {'invalid' if is_valid else 'valid'}: {value}")
print("\n".join(bad))
sys.exit(1 if bad else 0)
