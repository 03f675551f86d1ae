"""Sections of bench/gpu that need one rank: what libddp adds to NCCL, and kernels against the CPU."""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import results
from gpu_runner import Failed, descendants

LIMIT_S = 300
KEY = {"ncclAllReduce": "NCCL alone, on the group's communicator", "blocking": "NCCL alone, on a blocking communicator",
       "ddp_all_reduce": "`ddp_all_reduce`, `ddp_stream_wait`", "ddp_model_sync": "`ddp_model_ready`, `ddp_model_sync`"}


def overhead(bench):
    """What libddp adds to NCCL"""
    return overhead_of(bench, bench.counts(), bench.args.repeats)


def overhead_of(bench, counts, repeats):
    rows = []
    for n in counts:
        for line in bench.run(bench.program("bench", "gpu_steps"), "overhead", str(repeats), str(4 * bench.args.values), n=n,
                              limit_s=180).splitlines():
            size, way, fastest, median, host = line.split()
            rows.append([KEY[way], n, f"{int(size) >> 10}", repeats, host, fastest, median])
    return results.table(["call", "ranks", "KiB", "n", "until the call returns, median, us", "until it is done, min, us", "median, us"],
                         rows) + "\n\nA model of one rank has no other rank to average with, and does not call NCCL."


def mnist(bench):
    """mnist: images a second and accuracy"""
    rows = []
    for device, counts in (("cpu", [1]), ("cuda", bench.counts())):
        for n in counts:
            out = bench.run(bench.program("examples", "mnist"), "--device", device, *bench.digits(), n=n, limit_s=180)
            for epoch, accuracy, rate in re.findall(r"epoch (\d+): .* accuracy ([\d.]+) %.* ([\d.]+) images/s", out):
                rows.append([f"{device}", n, epoch, rate, accuracy])
    return results.table(["device", "ranks", "epoch", "images/s", "accuracy %"], rows)


def averages(bench):
    """The plug-in's kernels against the CPU: gradients that are averaged"""
    lines = bench.run(bench.program("bench", "gpu_kernels"), "averages").splitlines()
    cases = sorted({line.split()[0].rsplit(",", 1)[0] for line in lines})
    return f"{len(lines)} cases, {sum(int(line.split()[1]) for line in lines)} values in all, and each has the bits that it has on " \
        f"a CPU: finite values, an infinity and a NaN among them, of\n\n" + "\n".join(f"- {case.replace(',', ', ')}" for case in cases)


def statistics(bench):
    """The plug-in's kernels against the CPU: SyncBN, forward and backward"""
    rows = [line.split() for line in bench.run(bench.program("bench", "gpu_kernels"), "syncbn").splitlines()]
    return results.table(["layer", "largest relative difference"], [[name.replace(",", ", "), apart] for name, apart in rows])


def sanitizer(bench):
    """The plug-in's kernels under compute-sanitizer"""
    program = shutil.which("compute-sanitizer", path=os.path.join(bench.args.cuda, "bin") + ":" + os.environ.get("PATH", ""))
    if program is None:
        return "Not run: there is no `compute-sanitizer`."

    def check(tool, what):
        done = bench.call([program, "--tool", tool, "--report-api-errors", "no", "--kernel-name", "kernel_substring=ddp_",
                           bench.program("bench", "gpu_kernels"), what], LIMIT_S)
        summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.out + done.said)
        if done.status != 0 or not summary or not re.match(r"0 (?:errors|hazards)", summary[1]):
            reports = "\n".join(line for line in (done.out + done.said).splitlines() if line.startswith("="))
            raise Failed(f"{tool}, {what}: status {done.status}: {reports[:3000]}")
        return summary[1]

    cases = [(tool, what) for tool in ("memcheck", "racecheck", "initcheck", "synccheck") for what in ("averages", "syncbn")]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # each waits for the start of NCCL, most of the time
        said = list(pool.map(check, *zip(*cases)))
    return results.table(["tool", "kernels", "it reports"], [[*case, text] for case, text in zip(cases, said)])


def speed(bench):
    """The plug-in's kernels: memory that they read and write in a second"""
    rows = [line.split() for line in bench.run(bench.program("bench", "gpu_kernels"), "speed", str(min(100, bench.args.repeats)),
                                             str(bench.args.values)).splitlines()]
    whole = float(rows[0][1])
    return results.table(["what", "GB/s", "of a copy"],
                         [[name.replace(",", ", ").replace("_", " "), rate, f"{float(rate) / whole:.2f}"] for name, rate in rows])


def kernels(bench):
    """mnist's kernels against the CPU: the losses of 50 steps, in double precision"""
    return losses(bench, 1, [[], ["--sync-bn"], ["--norm", "none", "--accumulate", "3"], ["--model", "linear"], ["--amp", "O2"], ["--zero1"]])


def losses(bench, n, cases):
    """mnist_double on n ranks, on the GPU and on CPUs."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for options in cases:
            found = {}
            for device in ("cpu", "cuda"):
                path = os.path.join(folder, device)
                bench.run(bench.program("examples", "mnist_double"), "--device", device, *bench.digits(), "--batch",
                          "96", "--steps", str(bench.args.steps), "--loss-file", path, *options, n=n, limit_s=120)
                with open(path, encoding="utf-8") as f:
                    found[device] = [float(line) for line in f]
                os.unlink(path)
            apart = max(abs(a - b) / abs(a) for a, b in zip(found["cpu"], found["cuda"]))
            if not apart < 1e-6 or len(found["cpu"]) != len(found["cuda"]):
                raise Failed(f"losses of {n} ranks with '{' '.join(options)}' are up to {apart:.1e} apart")
            rows.append([" ".join(options) or "no options", n, len(found["cpu"]), f"{apart:.1e}"])
    return results.table(["mnist_double", "ranks", "steps", "largest relative difference"], rows)


def graph(bench):
    """Collectives of a graph that was captured"""
    rows = []
    for n in bench.counts():
        calls, one_by_one, captured = bench.run(bench.program("bench", "gpu_capture"), "graph", str(bench.args.repeats),
                                                n=n).split()
        rows.append([f"{calls} x 1 MiB", n, one_by_one, captured])
    return results.table(["ddp_all_reduce", "ranks", "one by one, us", "as a graph, us"], rows)


def model_graph(bench):
    """A step of a model in a graph that was captured"""
    rows = []
    for n in bench.counts():
        tensors, size, plain, replayed = bench.run(bench.program("bench", "gpu_steps"), "graph", str(bench.args.repeats),
                                                   n=n).split()
        rows.append([f"{tensors} gradients, {int(size) >> 20} MiB", n, plain, replayed])
    return results.table(["a small kernel for each gradient, its average", "ranks", "plain, us", "as a graph, us"], rows)


def memory(bench):
    """Memory of the GPU that a rank takes: a model of 100 MiB"""
    rows = []
    for n in bench.counts():
        for line in bench.run(bench.program("bench", "gpu_capture"), "memory", n=n).splitlines():
            what, size = line.split()
            rows.append([what.replace("_", " "), n, f"{int(size) / 2**20:.1f}"])
    return results.table(["for", "ranks", "MiB"], rows)


def loader(bench):
    """Batches of 4 MiB from a file to the GPU"""
    n, size, batch = 4096, 64 << 10, 64
    with tempfile.NamedTemporaryFile() as f:
        f.write(bytes([0, 0, 8, 2]) + n.to_bytes(4, "big") + size.to_bytes(4, "big"))
        for i in range(n):
            f.write(bytes([i & 255]) * size)
        f.flush()
        batches, taken, seconds = bench.run(bench.program("bench", "gpu_steps"), "loader", f.name, str(batch)).split()
    return results.table(["batches", "MiB", "seconds", "GiB/s"],
                         [[batches, int(taken) >> 20, seconds, f"{int(taken) / float(seconds) / 2**30:.2f}"]])


def clip(bench):
    """Gradients clipped by their norm, compared with a copy of the same memory"""
    rows = []
    for size in (1 << 20, 100 << 20, 1 << 30):
        clips, copies = map(float, bench.run(bench.program("bench", "gpu_steps"), "clip", str(size), str(bench.args.repeats)).split())
        rows.append([size >> 20, f"{clips:.1f}", f"{3 * size / clips / 1e3:.0f}", f"{copies:.1f}", f"{2 * size / copies / 1e3:.0f}"])
    return results.table(["MiB", "`ddp_model_clip`, us", "GB/s", "a copy, us", "GB/s"], rows) + \
        "\n\nMedians, until the host knows that it is done. Clipping that scales reads values twice and writes them once; a copy " \
        "reads and writes them."


def command_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read().strip()


def respawn(bench):
    """A rank with a GPU is killed, and another started in its place"""
    command = [bench.program("launcher", "ddprun"), "-n", "1", "--max-restarts", "1", bench.program("examples", "mnist"),
               "--device", "cuda", *bench.digits(), "--print-loss-every", "1", "--steps", "600"]
    killed = began_again = None
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        with subprocess.Popen(command, env=bench.env, stdout=subprocess.PIPE, stderr=said, text=True) as job:
            limit = threading.Timer(min(LIMIT_S, bench.left_s()), job.kill)  # also ends a job that prints nothing more
            limit.start()
            for line in job.stdout:
                if killed is None and line.startswith("step 20 "):
                    for pid in descendants(job.pid):
                        if command_of(pid) == "mnist":
                            os.kill(pid, signal.SIGKILL)
                    killed = time.monotonic()
                elif killed is not None and began_again is None and line.startswith("step 1 "):
                    began_again = time.monotonic()
            status = job.wait()
            limit.cancel()
        said.seek(0)
        if status != 0 or began_again is None:
            raise Failed(f"the job ended with status {status}: {said.read().strip()[-600:]}")
    return f"From SIGKILL to the first step of its successor, the start of CUDA and the images included: " \
           f"{began_again - killed:.2f} s."
