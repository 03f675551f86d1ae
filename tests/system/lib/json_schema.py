"""The subset of JSON Schema (draft 2020-12) that schemas/*.schema.json use, and what ddprun writes compared with them.

check() raises on a keyword that it does not know, so a schema cannot use one that is silently ignored.
tests/lint/schemas.py compares its verdicts with those of python3-jsonschema, where that is installed.
"""
import json
import os
import re

ROOT = os.environ.get("SOURCE_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "enum", "required", "properties",
         "additionalProperties", "unevaluatedProperties", "items", "oneOf", "anyOf", "minimum", "maximum", "pattern"}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def is_same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Schema:
    def __init__(self, root):
        self.root = root

    def errors(self, value):
        """-> list of texts, empty if the value is valid"""
        return self._check(self.root, value, "$")[0]

    def _resolve(self, ref):
        found = self.root
        for part in ref.removeprefix("#/").split("/"):
            found = found[part]
        return found

    def _check(self, schema, value, at):
        """-> errors, names of the properties that the schema describes"""
        unknown = set(schema) - KNOWN
        if unknown:
            raise ValueError(f"keywords that this validator does not know: {sorted(unknown)}")
        errors, seen = [], set()
        if "$ref" in schema:
            more, names = self._check(self._resolve(schema["$ref"]), value, at)
            errors += more
            seen |= names
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(is_type(value, name) for name in types):
            return errors + [f"{at}: {value!r} is not of type {' or '.join(types)}"], seen
        if "const" in schema and not is_same(value, schema["const"]):
            errors.append(f"{at}: {value!r} is not {schema['const']!r}")
        if "enum" in schema and not any(is_same(value, one) for one in schema["enum"]):
            errors.append(f"{at}: {value!r} is not one of {schema['enum']}")
        if is_type(value, "number"):
            if "minimum" in schema and value < schema["minimum"]:
                errors.append(f"{at}: {value} is less than {schema['minimum']}")
            if "maximum" in schema and value > schema["maximum"]:
                errors.append(f"{at}: {value} is more than {schema['maximum']}")
        if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
            errors.append(f"{at}: {value!r} does not match {schema['pattern']}")
        if isinstance(value, list) and "items" in schema:
            for i, one in enumerate(value):
                errors += self._check(schema["items"], one, f"{at}[{i}]")[0]
        if isinstance(value, dict):
            for name in schema.get("required", []):
                if name not in value:
                    errors.append(f"{at}: {name} is missing")
            for name, part in schema.get("properties", {}).items():
                if name in value:
                    seen.add(name)
                    errors += self._check(part, value[name], f"{at}.{name}")[0]
        for keyword in "oneOf", "anyOf":
            if keyword in schema:
                more, names = self._choose(keyword, schema[keyword], value, at)
                errors += more
                seen |= names
        if isinstance(value, dict):
            for keyword, names in ("additionalProperties", set(schema.get("properties", {}))), ("unevaluatedProperties", seen):
                if schema.get(keyword) is False:
                    errors += [f"{at}: {name} is not in the schema" for name in sorted(set(value) - names)]
        return errors, seen

    def _choose(self, keyword, branches, value, at):
        results = [self._check(branch, value, at) for branch in branches]
        good = [names for errors, names in results if not errors]
        if len(good) == 1 or good and keyword == "anyOf":
            return [], set().union(*good)
        if good:
            return [f"{at}: {len(good)} branches of oneOf match"], set()
        # the errors of the branch that comes closest: an event has one whose `ev` is right
        errors, names = min(results, key=lambda result: (any(".ev:" in text for text in result[0]), len(result[0])))
        return errors, names


def load(name):
    with open(os.path.join(ROOT, "schemas", name + ".schema.json"), encoding="utf-8") as f:
        return json.load(f)


EVENTS, REPORT = Schema(load("events")), Schema(load("report"))


def check_event(line):
    errors = EVENTS.errors(line)
    if errors:
        raise AssertionError(f"schemas/events.schema.json: {errors} in {line}")


def check_report(report):
    errors = REPORT.errors(report)
    if errors:
        raise AssertionError(f"schemas/report.schema.json: {errors} in {report}")


def read_whole(path):
    """"": it is not a regular file"""
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def check_files(args, cwd):
    """Compare the files that the options --events and --report of this command line name with the schemas.

    A line that a full disk or a killed ddprun has cut is not JSON, and is skipped: the schema describes whole lines.
    """
    for option, path in zip(args, args[1:]):
        if option == "--events":
            for line in read_whole(os.path.join(cwd, path)).splitlines():
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                check_event(event)
        elif option == "--report" and path.endswith(".json"):
            text = read_whole(os.path.join(cwd, path))
            if text not in ("", "{}"):  # "{}": a test has put it there before
                check_report(json.loads(text))
