"""Compare ddp_scaler with torch's GradScaler, step by step: scale and growth tracker to the bit.

    python3 scaler_vs_torch.py PATH_TO_SCALER_PRINT [RUNS [SEED]]

Draws RUNS (60) scalers and which of their steps overflow; prints the SEED. Ends with 0 if all are equal, with 1
and the first difference if not, with 77 (skipped) where torch is missing.
"""

import random
import subprocess
import sys

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def draw_run(rng):
    overflows = rng.choice([0.0, 0.02, 0.3, 0.9])
    return (
        rng.choice([65536.0, 1.0, 2.0**126, 2.0**-140, 3.0]),
        rng.choice([2.0, 1.1, 1.5]),
        rng.choice([0.5, 0.7, 0.25]),
        rng.choice([1, 2, 5, 30]),
        [int(rng.random() < overflows) for _ in range(200)],
    )


def run_of_torch(init_scale, growth_factor, backoff_factor, growth_interval, overflows):
    """Its real way: scale a loss, go backward, step, update."""
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=init_scale,
        growth_factor=growth_factor,
        backoff_factor=backoff_factor,
        growth_interval=growth_interval,
    )
    weight = torch.zeros(2, requires_grad=True)
    sgd = torch.optim.SGD([weight], lr=0.0)
    states = []
    for overflows_now in overflows:
        sgd.zero_grad()
        scaler.scale(torch.zeros(()))  # makes the scale's tensor
        weight.grad = torch.tensor([1.0, float("inf") if overflows_now else 2.0])
        scaler.step(sgd)
        scaler.update()
        state = scaler.state_dict()
        states.append((state["scale"], state["_growth_tracker"]))
    return states


def main():
    program = sys.argv[1]
    n_runs = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    drawn_with = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(2**32)
    print(f"{n_runs} scalers, drawn with seed {drawn_with}")
    rng = random.Random(drawn_with)
    runs = [draw_run(rng) for _ in range(n_runs)]
    asked = "".join(f"{a!r} {b!r} {c!r} {d} {' '.join(map(str, e))}\n" for a, b, c, d, e in runs)
    answer = subprocess.run([program], input=asked, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    lines = answer.stdout.splitlines()
    if len(lines) != n_runs:
        print(f"{program} answered {len(lines)} lines instead of {n_runs}")
        return 1
    for run, line in zip(runs, lines):
        words = line.split()
        ours = [(float.fromhex(s), int(t)) for s, t in zip(words[::2], words[1::2])]
        theirs = run_of_torch(*run)
        if ours != theirs:
            step = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
            print("differs: init, growth, backoff, interval =", *run[:4], "in step", step)
            print("ours ", ours[step], "torch", theirs[step])
            return 1
    print("all the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
