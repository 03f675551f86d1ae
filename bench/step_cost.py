#!/usr/bin/env python3
"""What a call of ddp_torch.step() costs: in a process whose pipe is emptied now and then, as ddprun does it.

    bench/step_cost.py            # the shortest and the median of 2000 means of 100 calls, in ns; and of os.getppid() for comparison
    bench/step_cost.py --ddprun build/launcher/ddprun    # the same below ddprun, which reads the pipe
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

BLOCKS, CALLS = 2000, 100


def measure(call):
    means = []
    for _ in range(BLOCKS):
        begun = time.perf_counter_ns()
        for n in range(CALLS):
            call(n)
        means.append((time.perf_counter_ns() - begun) / CALLS)
        yield
    yield f"{min(means):.0f} ns at least, {statistics.median(means):.0f} ns in the median"


def compare():
    """Blocks of both in turns: what disturbs one disturbs the other."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python/ddp_torch"))
    import progress
    own_fd = None
    if "DDP_PROGRESS_FD" not in os.environ:
        own_fd, fd = os.pipe()
        os.set_blocking(own_fd, False)
        os.set_blocking(fd, False)
        os.environ["DDP_PROGRESS_FD"] = str(fd)
    kinds = {"step": measure(progress.step), "getppid": measure(lambda _: os.getppid())}
    for _ in range(BLOCKS):
        for kind in kinds.values():
            next(kind)
        if own_fd is not None:
            try:
                os.read(own_fd, 1 << 16)
            except BlockingIOError:
                pass
        else:
            time.sleep(0.001)  # steps of a training are further apart
    for name, kind in kinds.items():
        print(f"{name}: {next(kind)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddprun", help="the program, to run below it")
    args = parser.parse_args()
    if args.ddprun:
        sys.exit(subprocess.run([args.ddprun, "-n", "1", "--no-python", sys.executable, os.path.abspath(__file__)], check=False).returncode)
    compare()


if __name__ == "__main__":
    main()
