"""tests/machines.py and what it is made of, without a root: which system calls the container's filter refuses, and what is read from
the logs of tests.

  machines.py SOURCE_ROOT
"""
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(sys.argv[1], folder) for folder in ("tests", "tests/support/machines")]
import confine  # noqa: E402 (found by the path above)
import machines  # noqa: E402

EPERM, ENOSYS = confine.FAIL | 1, confine.FAIL | 38


def verdict(column, number, argument=0, architecture=None):
    """What the kernel would make of a system call."""
    own = {place: code for place, code in confine.ARCHITECTURES.values()}[column]
    data = {0: number, 4: own if architecture is None else architecture, 16: argument}
    program, at, loaded = confine.filter_program(column), 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == confine.RETURN:
            return value
        if code == confine.LOAD:
            loaded = data[value]
        else:
            at += if_true if (loaded == value if code == confine.EQUALS else loaded & value) else if_false


class Filter(unittest.TestCase):
    def test_it_refuses_only_what_containers_refuse(self):
        for column in 0, 1:
            refused = {numbers[column] for numbers in confine.REFUSED.values()}
            special = {pair[column] for pair in (confine.CLONE, confine.CLONE3, confine.PERSONALITY)}
            for number in set(range(500)) - special:
                self.assertEqual(verdict(column, number), EPERM if number in refused else confine.ALLOW, number)

    def test_processes_and_threads_can_be_made_but_no_namespaces(self):
        for column in 0, 1:
            self.assertEqual(verdict(column, confine.CLONE[column], 0x3D0F00), confine.ALLOW)
            self.assertEqual(verdict(column, confine.CLONE[column], 0x10000000 | 17), EPERM)
            self.assertEqual(verdict(column, confine.CLONE3[column]), ENOSYS)

    def test_the_layout_of_addresses_cannot_be_fixed(self):
        for value, expected in ((0, confine.ALLOW), (0xFFFFFFFF, confine.ALLOW), (0x40000, EPERM)):
            self.assertEqual(verdict(0, confine.PERSONALITY[0], value), expected)

    def test_system_calls_of_another_architecture_are_refused(self):
        self.assertEqual(verdict(0, 1, architecture=0x40000003), EPERM)


class Logs(unittest.TestCase):
    def test_skips_of_programs_and_of_their_parts_are_found(self):
        tests = [{"name": "ddprun:a", "result": "SKIP", "stdout": "skipped: no torch\n", "stderr": ""},
                 {"name": "ddprun:b", "result": "OK", "stdout": "", "stderr": "test_x (b.X) ... skipped 'no ip(8)'\n"},
                 {"name": "ddprun:c", "result": "OK", "stdout": "", "stderr": "test_y (c.Y) ... skipped \"it's not\"\n"},
                 {"name": "ddprun:d", "result": "SKIP", "stdout": "no gdb\n", "stderr": ""},
                 {"name": "ddprun:e", "result": "OK", "stdout": "all fine\n", "stderr": ""}]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "testlog.json")
            with open(path, "w", encoding="utf-8") as f:
                f.write("".join(json.dumps(test) + "\n" for test in tests))
            self.assertEqual(machines.skips_in(path), {"no torch": ["a"], "no ip(8)": ["b"], "it's not": ["c"], "no gdb": ["d"]})

    def test_totals_and_failures_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "w", encoding="utf-8") as f:
                f.write("failed: quick: a (timeout)\n1 passed, 1 failed, 0 skipped\n")
            self.assertEqual(machines.failures_in(path), ("1 passed, 1 failed, 0 skipped", ["quick: a (timeout)"]))
            self.assertEqual(machines.failures_in(os.devnull), ("no totals", []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
