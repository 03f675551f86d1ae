"""Sections of bench/gpu with several ranks, which may share one GPU, and questions that only a GPU answers."""
import os
import re

import gpu_one_rank
import results
from gpu_runner import Failed

SHARED = "Ranks that share a GPU take turns on it, and sockets carry what NVLink would: times do not apply to ranks with a GPU each."


def hello(runner):
    """A communicator of several ranks, and NCCL's transport"""
    rows = []
    for n in 2, 3, 4:
        path = os.path.join(runner.folder, "nccl.%p")
        done = runner.job(runner.program("examples", "nccl_hello"), n=n, limit_s=60,
                          env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": path, "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,P2P,SHM"})
        text = done.out + done.said
        for name in os.listdir(runner.folder):
            if name.startswith("nccl."):
                with open(os.path.join(runner.folder, name), encoding="utf-8", errors="replace") as f:
                    text += f.read()
                os.unlink(os.path.join(runner.folder, name))
        if done.status != 0 or done.out.count(f"a communicator of {n} ranks") != n:
            raise Failed(f"{n} ranks: status {done.status}: {text.strip()[-900:]}")
        via = sorted(set(re.findall(r"via ([A-Z0-9]+(?:/[A-Za-z]+)?)", text)))
        nodes = re.search(r"nNodes (\d+)", text)
        rows.append([n, nodes[1] if nodes else "-", ", ".join(via) or "-", f"{done.seconds:.1f}"])
    return results.table(["ranks", "hosts as NCCL sees them", "transport", "whole job, s"], rows)


def collectives(runner):
    """All collectives on GPUs against those on CPUs, bit by bit"""
    rows = []
    for n in (2, 3, 4) if not runner.args.jobs else (2,):
        for line in runner.run(runner.program("bench", "gpu_collectives"), n=n, limit_s=120).splitlines():
            kind, cases, values = line.split()
            rows.append([kind, n, cases, values])
    return results.table(["call", "ranks", "cases", "values"], rows) + \
        "\n\nAverages over a number of ranks that is not a power of two may differ by one unit in the last place."


def trainings(runner):
    """mnist on several ranks against the CPU: losses in double precision"""
    tables = [gpu_one_rank.losses(runner, 2, [[], ["--sync-bn"], ["--amp", "O2"], ["--zero1"]])]
    if not runner.args.jobs:
        tables.append(gpu_one_rank.losses(runner, 3, [["--norm", "none"], ["--sync-bn"]]))
    return "\n\n".join(tables)


def overhead(runner):
    """What libddp adds to NCCL on two ranks"""
    return gpu_one_rank.overhead_of(runner, [2], min(runner.args.repeats, 30)) + "\n\n" + SHARED


def memory(runner):
    """Memory of the GPU, of ranks that share it"""
    rows = []
    for line in runner.run(runner.program("bench", "gpu_capture"), "memory", n=2).splitlines():
        what, size = line.split()
        rows.append([what.replace("_", " "), f"{int(size) / 2**20:.1f}"])
    return results.table(["for", "MiB of the device, both ranks at once"], rows)


def captures(runner):
    """Capture modes: may NCCL launch into a capture from a thread of its own?"""
    rows = []
    for mode in "global", "thread", "relaxed":
        for n in 1, 2:
            try:
                said = runner.run(runner.program("bench", "gpu_questions"), "capture", mode, n=n, limit_s=60).strip()
            except Failed as error:
                said = str(error).replace("\n", " ").replace("|", "/")[-160:]
            rows.append([mode, n, said])
    if not any(row[2] == "works" for row in rows):
        raise Failed(results.table(["mode", "ranks", "two captured all-reduces"], rows))
    return results.table(["mode", "ranks", "two captured all-reduces"], rows) + "\n\nA program cannot capture in a mode that does not work."


def graphs(runner):
    """Graphs with collectives of two ranks"""
    repeats = min(runner.args.repeats, 30)
    calls, one_by_one, captured = runner.run(runner.program("bench", "gpu_capture"), "graph", str(repeats), n=2).split()
    tensors, size, plain, replayed = runner.run(runner.program("bench", "gpu_steps"), "graph", str(repeats), n=2).split()
    return results.table(["two ranks", "plain, median, us", "as a graph, us"],
                         [[f"{calls} x `ddp_all_reduce` of 1 MiB", one_by_one, captured],
                          [f"a step with {tensors} gradients, {int(size) >> 20} MiB", plain, replayed]]) + f"\n\nn = {repeats}. " + SHARED


def waiting_calls(runner):
    """Calls of CUDA while a kernel waits for a peer"""
    rows = [line.split() for line in runner.run(runner.program("bench", "gpu_questions"), "memory", n=2, limit_s=60).splitlines()]
    late = [name for name, idle, busy in rows if float(busy) - float(idle) > 1000]
    verdict = f"{', '.join(late)} waited for it." if late else "No call waited for it."
    return results.table(["call", "idle, ms", "while it waits, ms"], rows) + f"\n\nThe kernel waits 2000 ms for the other rank. {verdict}"


def late_end(runner):
    """The end of a communicator when one rank is 5 s late"""
    rows = sorted(line.split() for line in runner.run(runner.program("bench", "gpu_questions"), "end", n=3, limit_s=90).splitlines())
    waited = any(float(ms) > 4000 for rank, ms in rows if rank != "1")
    verdict = "The others wait for it." if waited else "The others do not wait for it."
    return results.table(["rank", "`ddp_finalize`, ms"], rows) + f"\n\n{verdict}"


def growth(runner):
    """A communicator that another rank joins: ncclCommGrow, or a new one"""
    out = runner.run(runner.program("bench", "gpu_questions"), "grow", str(runner.args.jobs or 10), n=3, limit_s=150)
    rows = [line.split() for line in out.splitlines()]
    text = results.table(["communicator of 3 ranks", "n", "min, ms", "median, ms"], rows)
    return text if len(rows) > 1 else text + "\n\nThis NCCL has no `ncclCommGrow()`."


def launcher(runner):
    """GPUs in ddprun and ddpctl"""
    n = runner.n_gpus
    ddprun = runner.program("launcher", "ddprun")
    texts = []
    for options, want in ((["-p", "gpu"], n), (["--gpus", "0"], 1), (["-n", "1", "--bind-to", "numa", "--report-bindings"], 1)):
        done = runner.call([ddprun, *options, "sh", "-c", "echo GPUs=$CUDA_VISIBLE_DEVICES"], 60)
        ranks = done.out.count("GPUs=")
        if done.status != 0 or ranks != want:
            raise Failed(f"ddprun {' '.join(options)}: {ranks} ranks, not {want}; status {done.status}: {done.said.strip()[-400:]}")
        texts.append(f"$ ddprun {' '.join(options)}\n{(done.out + done.said).strip()}")
    check = runner.call([runner.program("ctl", "ddpctl"), "check"], 60, env={"PATH": os.path.dirname(ddprun) + ":" + os.environ["PATH"]})
    texts.append(f"$ ddpctl check\n{check.out.strip()}")
    return "```\n" + "\n\n".join(texts) + "\n```"
