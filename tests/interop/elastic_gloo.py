#!/usr/bin/env python3
"""Jobs of several nodes with an unmodified PyTorch script on gloo: it continues when a node joins, is killed, is replaced.
The cases are those of tests/system/lib/elastic_cases.py, on addresses of the loopback interface. Standard library only.

usage: elastic_gloo.py --launcher DDPRUN [--runs N] [TEXT]...

Runs the cases whose titles contain a TEXT, by default all, N times. Prints why a case failed, with the output of the nodes.
"""
import argparse
import os
import sys

from run import HERE, NEWEST, fail, find_python

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system/lib"))
from elastic_cases import CASES, is_possible, try_case  # noqa: E402 (found by the path above)
from elastic_job import Launcher, Workers  # noqa: E402
from places import Loopback  # noqa: E402

LIMIT_S = 120  # importing torch is most of it


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True, help="ddprun")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("titles", nargs="*", metavar="TEXT")
    args = parser.parse_args()
    env = find_python(NEWEST)[1]
    ours = Launcher("ddprun", [os.path.abspath(args.launcher)], env, is_ours=True)
    gloo = Workers("gloo", [os.path.join(HERE, "elastic_steps.py")], {}, n_local=1)
    n_run = n_failed = 0
    with Loopback() as place:
        for _ in range(args.runs):
            for case in CASES:
                if not is_possible(case, place) or args.titles and not any(text in case.title for text in args.titles):
                    continue
                outcome = try_case(case, ours, gloo, place, LIMIT_S)
                n_run += 1
                if outcome.why:
                    n_failed += 1
                    print(f"{case.title}: {outcome.why}\n{outcome.logs}", flush=True)
    print(f"{n_run - n_failed} of {n_run} jobs did as they should", flush=True)
    if n_failed > 0 or n_run == 0:
        fail(f"{n_failed} of {n_run} did not")


if __name__ == "__main__":
    main()
