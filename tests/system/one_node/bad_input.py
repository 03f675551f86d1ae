"""Wrong words: a clear message that names the thing, the right exit status, nothing started.

Covers: launcher/options, launcher
"""
import os
import tempfile
import unittest

from harness import RANK, main, run


class BadInput(unittest.TestCase):
    def check(self, code, named, *args):
        got, out, err = run(*args)
        self.assertEqual(got, code, err)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("ddprun: "), err)
        self.assertIn(named, err)
        self.assertLessEqual(err.count("\n"), 3, err)

    def test_programs(self):
        with tempfile.TemporaryDirectory() as d:
            plain = os.path.join(d, "plain.bin")
            with open(plain, "wb") as f:
                f.write(b"\0\1\2")
            os.chmod(plain, 0o644)
            self.check(127, "/nowhere/prog", "-n", "2", "/nowhere/prog")
            self.check(127, "nowhere.py", "-n", "2", "nowhere.py")
            self.check(126, d, "-n", "2", d)
            self.check(126, plain, "-n", "2", "--no-python", plain)

    def test_numbers(self):
        for n in ("0", "-1", "two", "", "1e3", "99999999999999999999", "2 "):
            self.check(2, "'" + n, "-n", n, RANK)

    def test_options(self):
        self.check(2, "--standalone", "--standalon3", RANK)
        self.check(2, "--nproc-per-node", "--nproc-per-nod3", "2", RANK)
        self.check(2, "--master-port", "--master-port", "70000", RANK)
        self.check(2, "", "-n", "2")


main()
