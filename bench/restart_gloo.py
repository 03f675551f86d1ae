#!/usr/bin/env python3
"""Measure how often an unmodified gloo script reaches its next step after kill -9 of one of its two ranks.

usage: bench/restart_gloo.py [--runs N] [--limit-s S] [--build DIR]

The launchers take turns; each run is a new job that may restart once and loses rank 0 and rank 1 in turns. torchrun is that of the
newest PyTorch, from scripts/install-deps --interop, and of 2.11, from --interop-old, each also with
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ("own store"); the ranks use the PyTorch of their torchrun, those of ddprun the newest. A job
that has not reached a step after --limit-s has not recovered; the reason is printed at once.
"""
import argparse
import os
import sys

import results
from torch_venv import OWN_STORE, torch_venv, torchruns

sys.path.insert(0, os.path.join(results.ROOT, "tests/interop"))
from gloo_restarts import restart_once  # noqa: E402 (found by the path above)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--limit-s", type=float, default=120)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    venv = torch_venv()
    if venv is None:
        sys.exit("no PyTorch: scripts/install-deps --interop")
    launchers = {"ddprun": ([os.path.join(args.build, "launcher/ddprun")], venv[1])}
    for name, (torchrun, env) in torchruns().items():
        launchers[name] = (torchrun, env)
        launchers[name + ", own store"] = (torchrun, {**env, **OWN_STORE})
    load = results.load_average()
    outcomes = {name: [] for name in launchers}
    for run in range(args.runs):
        for name, (command, env) in launchers.items():
            outcome = restart_once(command, env, run % 2, args.limit_s)
            outcomes[name].append(outcome)
            if not outcome.came_back:
                print(f"{name}, run {run}, kill -9 of rank {run % 2}: {outcome.why}", file=sys.stderr, flush=True)
    rows = []
    for name, all_of in outcomes.items():
        back = [outcome.after_s for outcome in all_of if outcome.came_back]
        times = [f"{seconds:.1f}" for seconds in results.spread(back)] if back else ["-", "-"]
        rows.append([name, len(all_of), len(back), *times])
    head = ["launcher", "restarts", "reached a step", "min s", "median s"]
    results.report("restart_gloo", results.table(head, rows), load)


if __name__ == "__main__":
    main()
