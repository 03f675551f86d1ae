"""Ranks that recover in place with ddp_torch.elastic, and kill themselves where a plan has it. Each reports each step.

usage: ddprun -n N recovering_rank.py --steps S [--backend B] [--ms T] [--kill STEP:PLACE:RANK[,RANK]]... [--marks DIR] [more]

PLACE is where in the step after STEP completed ones the ranks are: forward, backward, reduced (the gradients are averaged), done
(optimizer.step() has returned), or, in a generation after a death there, joining (no group is made yet) or sharing (a tensor of the
state has arrived). At stuck the rank does not die: it waits forever in a call of torch. Ranks of one kill die together, when the last of them
has reached the place. A kill happens once: --marks names a directory for what has happened. After each step a rank writes "step NUMBER PARAMETERS generation G pid P rank R
world W lr L took I,I,... at T", and then sleeps for --ms; PARAMETERS is a digest of all bits, T the monotonic clock in seconds.
"""
import argparse
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from ddp_torch import elastic, kept

N_SAMPLES, BATCH = 101, 4
RECOVERY = "joining", "sharing"


class Numbers(Dataset):
    def __len__(self):
        return N_SAMPLES

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, generator=generator)
        return x, x.square().sum(), i


class Plan:
    def __init__(self, words, marks, n_ranks=0):
        self.marks, self.n_ranks = marks, n_ranks
        self.kills = []
        for word in words:
            step, place, ranks = word.split(":")
            self.kills.append((int(step), place, [int(rank) for rank in ranks.split(",")]))

    def reach(self, place, step):
        for at, where, ranks in self.kills:
            rank = int(os.environ.get("RANK", "0"))
            if where == place and rank in ranks and (self.has_died(at) if where in RECOVERY else at == step):
                try:
                    os.close(os.open(self.mark(at, where, rank), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                if where == "stuck":
                    torch.futures.Future().wait()
                # a death could keep the others from their place: those that die here too, and those that get stuck in this step
                self.await_marks(lambda t, w: t == at and w in (place, "stuck"))
                self.await_standby()
                os.kill(os.getpid(), signal.SIGKILL)

    def has_died(self, step):
        """Whether a rank died at this step. A rank that survived it may lack the step before, if the others completed it first."""
        return any(os.path.exists(self.mark(at, where, rank)) for at, where, ranks in self.kills for rank in ranks
                   if at == step and where not in RECOVERY)

    def mark(self, step, place, rank):
        return os.path.join(self.marks, f"{step}-{place}-{rank}")

    def await_marks(self, is_meant):
        """Until all ranks have come to these places."""
        marks = [self.mark(at, where, rank) for at, where, ranks in self.kills if is_meant(at, where) for rank in ranks]
        deadline = time.monotonic() + 60
        while not all(map(os.path.exists, marks)) and time.monotonic() < deadline:
            time.sleep(0.001)

    def note_ready(self):
        """A process has begun. It may be a standby."""
        if self.n_ranks > 0:
            os.close(os.open(os.path.join(self.marks, f"ready-{os.getpid()}"), os.O_CREAT))

    def await_standby(self):
        """Until a standby has begun, if this job has one: its predecessors and the dead ranks had begun too."""
        deadline = time.monotonic() + 120
        while self.n_ranks > 0 and time.monotonic() < deadline:
            marks = os.listdir(self.marks)
            n_ready = sum(m.startswith("ready-") for m in marks)
            if n_ready >= self.n_ranks + len(marks) - n_ready:  # this death has its mark already
                return
            time.sleep(0.01)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--ms", type=float, default=0)
    parser.add_argument("--kill", action="append", default=[])
    parser.add_argument("--marks", default=".")
    parser.add_argument("--standby-of", type=int, default=0, help="kills wait for a standby; this is the number of ranks")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--scaler", action="store_true")
    parser.add_argument("--raise-at", type=int, help="rank 1 raises an exception after so many steps, and after a rank was killed")
    return parser.parse_args()


class Trainer:
    def __init__(self, args):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.args, self.plan = args, Plan(args.kill, args.marks, args.standby_of)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, args.width), torch.nn.Tanh(), torch.nn.Dropout(0.1),
                                         torch.nn.Linear(args.width, 1))
        optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        more = {"scaler": torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)} if args.scaler else {}
        self.dataset = Numbers()
        self.state = elastic.State(model=self.model, optimizer=optimizer, epoch=0, sampler=elastic.DistributedSampler(self.dataset, seed=3),
                                   scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9), **more)
        optimizer.register_step_pre_hook(lambda *_: self.plan.reach("reduced", self.state.step))
        for place in "forward", "stuck":
            self.model.register_forward_pre_hook(lambda *_, place=place: self.plan.reach(place, self.state.step))
        self.model[0].weight.register_hook(lambda _: self.plan.reach("backward", self.state.step))
        make = dist.init_process_group
        dist.init_process_group = lambda *a, **more: (self.plan.reach("joining", self.state.step), make(*a, **more))
        send = kept.send_tensor
        kept.send_tensor = lambda *a: (send(*a), self.plan.reach("sharing", self.state.step))

    def train(self, state):
        model = DistributedDataParallel(state.model, static_graph=self.args.static_graph)
        taken, n = [], 0
        while state.step < self.args.steps:
            state.sampler.set_epoch(state.epoch)
            loader = DataLoader(self.dataset, BATCH, sampler=state.sampler, num_workers=self.args.workers)
            for x, y, i in state.batches(loader):
                n += 1
                taken += i.tolist()
                self.compute(state, model, x, y, n % self.args.accumulate == 0)
                if n % self.args.accumulate == 0:
                    self.report(state, taken)
                    taken = []
                    if state.step == self.args.steps:
                        return
            state.epoch += 1

    def compute(self, state, model, x, y, is_last):
        if not is_last:
            with model.no_sync():
                (model(x).squeeze(1) - y).square().mean().backward()
            return
        loss = (model(x).squeeze(1) - y).square().mean()
        if self.args.scaler:
            state.scaler.scale(loss).backward()
            state.scaler.step(state.optimizer)
            state.scaler.update()
        else:
            loss.backward()
            state.optimizer.step()
        self.plan.reach("done", state.step - 1)
        state.optimizer.zero_grad()
        state.scheduler.step()

    def report(self, state, taken):
        now = time.monotonic()
        if self.args.raise_at == state.step and dist.get_rank() == 1:
            self.plan.await_marks(lambda step, _: step < state.step)
            raise RuntimeError("an error of the program's own")
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in state.model.parameters())).hexdigest()[:16]
        line = (f"step {state.step} {digest} generation {state.generation} pid {os.getpid()} rank {dist.get_rank()} world "
                f"{dist.get_world_size()} lr {state.optimizer.param_groups[0]['lr']!r} took {','.join(map(str, taken))} at {now:.6f}\n")
        os.write(1, line.encode())
        time.sleep(self.args.ms / 1000)


def main():
    args = parse()
    trainer = Trainer(args)
    trainer.plan.note_ready()
    elastic.run(trainer.train, trainer.state, backend=args.backend)


if __name__ == "__main__":
    main()
