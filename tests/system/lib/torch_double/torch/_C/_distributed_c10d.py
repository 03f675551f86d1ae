"""A test double of torch's worker server: HTTP/1.1 over a Unix socket, in a thread. The flight recorder's dump is what the environment
variable TRACE has; DEAF=RANK: that rank's server accepts, and never answers."""
import faulthandler
import os
import socket
import sys
import tempfile
import threading


class _WorkerServer:
    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        print(f"Server listening to UNIX {path}", file=sys.stderr, flush=True)
        print("another warning", file=sys.stderr, flush=True)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        kept = []
        while True:
            s = self.listener.accept()[0]
            if os.environ.get("DEAF") == os.environ["RANK"]:
                kept.append(s)
                continue
            with s, s.makefile("rwb") as f:
                name = f.readline().split()[1].rpartition(b"/")[2].decode()
                while f.readline() not in (b"\r\n", b""):
                    pass
                body = self.answer(name)
                head = "200 OK" if body is not None else "404 Not Found"
                f.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body or '')}\r\nConnection: close\r\n\r\n{body or ''}".encode())

    @staticmethod
    def answer(name):
        if name == "dump_traceback":
            with tempfile.TemporaryFile("w+") as f:
                faulthandler.dump_traceback(f, all_threads=True)
                f.seek(0)
                return f.read()
        return os.environ.get("TRACE", "{}") if name == "fr_trace_json" else None
