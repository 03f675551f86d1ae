"""A job of torchft that loses ranks: its lighthouse, and N replica groups of one process each. For bench/recovery_torch.py.

usage: torchft_job.py N MS             until SIGTERM
       torchft_job.py N MS LIGHTHOUSE  one of the replicas

Each replica writes a line for each step that was committed, as tests/interop/torch_backend/recovering_rank.py does, and then sleeps for MS.
"""
import datetime
import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torchft

from torchft.coordination import LighthouseServer
from torchft.ddp import PureDistributedDataParallel


def replica(pause_s, lighthouse):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
    plain = torch.optim.AdamW(model.parameters(), 1e-3)

    def load(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=60)), min_replica_size=1,
                              load_state_dict=load, state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
                              rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1",
                              lighthouse_addr=lighthouse, replica_id=f"replica{os.getpid()}")
    # With gloo, DistributedDataParallel of torchft 0.2.0 raises an AssertionError when another replica dies.
    ddp, optimizer = PureDistributedDataParallel(manager, model), torchft.Optimizer(manager, plain)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        ddp(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if manager.current_step() > before:  # all of them committed it
            os.write(1, f"step {manager.current_step()} 0 generation {manager._quorum_id} pid {os.getpid()} rank {manager.participating_rank()} "
                        f"world {manager.num_participants()} lr - took - at {time.monotonic():.6f}\n".encode())
        time.sleep(pause_s)


def main():
    if len(sys.argv) > 3:
        replica(float(sys.argv[2]) / 1000, sys.argv[3])
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    lighthouse = LighthouseServer(bind="0.0.0.0:0", min_replicas=1)  # its address has the name of the host
    replicas = [subprocess.Popen([sys.executable, *sys.argv, lighthouse.address()]) for _ in range(int(sys.argv[1]))]
    signal.sigwait({signal.SIGTERM})
    for one in replicas:
        one.kill()
        one.wait()
    lighthouse.shutdown()


if __name__ == "__main__":
    main()
