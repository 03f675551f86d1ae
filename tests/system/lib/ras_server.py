"""A mock of the socket that NCCL's RAS opens on a node: it answers with what NCCL's documented schema has, about processes that the test
names."""
import contextlib
import json
import socket
import threading


class RasServer:
    """`pids` and `counts` of the ranks of one communicator; the answer is complete. After each, all counts grow by `step`."""

    def __init__(self, pids, counts):
        self.pids, self.counts, self.step = pids, counts, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()
        self.thread.join()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                with self.listener.accept()[0] as s, contextlib.suppress(OSError):
                    self.answer(s)

    def answer(self, s):
        with s.makefile("rwb") as f:
            for line in f:
                if line.startswith(b"CLIENT PROTOCOL"):
                    f.write(b"SERVER PROTOCOL 2\n")
                elif line == b"STATUS\n":
                    f.write(json.dumps(self.status(), indent=2).encode() + b"\n")
                    self.counts = [count + self.step for count in self.counts]
                    return
                else:
                    f.write(b"OK\n")
                f.flush()

    def status(self):
        ranks = [{"rank": rank, "host": "127.0.0.1", "pid": pid, "cuda_dev": rank, "nvml_dev": rank,
                  "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
                  "collective_counts": {"Broadcast": 1, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count}}
                 for rank, (pid, count) in enumerate(zip(self.pids(), self.counts))]
        return {"nccl_version": "2.28.9", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2026-11-22 13:06:53",
                "communicators_count": 1,
                "communicators": [{"hash": "0x5bd5f7fa3dd5ad2e", "secondary_hash": "0x7f00:0x1267", "size": len(ranks),
                                   "ranks_count": len(ranks), "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": []}],
                "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}
