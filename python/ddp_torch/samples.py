"""A DistributedSampler whose place in an epoch survives a change of the ranks."""
import torch.utils.data


class DistributedSampler(torch.utils.data.DistributedSampler):
    """torch's DistributedSampler, with the same order of samples, for elastic.State.

    It can be made before torch.distributed is initialized: elastic.run() sets rank and number of ranks in each generation. With
    State.batches() it continues an epoch after the samples that completed steps have used, and divides the rest among the ranks
    that are there. As in torch, call set_epoch() before each epoch."""

    def __init__(self, dataset, num_replicas=1, rank=0, shuffle=True, seed=0, drop_last=False):
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self._start()

    def _start(self):
        self.done = 0  # samples of the epoch that completed steps have used, on all ranks
        self.taken = 0  # those that were handed out, at least `done`
        self._has_ended = False  # the loop over the epoch has ended in this generation

    def set_epoch(self, epoch):
        if epoch != self.epoch:
            self._start()
        self.epoch = epoch

    # --- for State --------------------------------------------------------------------------------

    def _place(self, rank, size):
        """In a new generation."""
        self.rank, self.num_replicas = rank, size
        self.taken = self.done
        self._has_ended = False

    def _begin_loop(self):
        if self._has_ended:  # a loop over the same epoch again, without set_epoch()
            self._start()
        self.taken = self.done

    def _take(self, batch_size):
        self.taken = min(self.taken + batch_size * self.num_replicas, len(self.dataset))

    def _end_loop(self):
        self._has_ended = True

    def _complete(self):
        self.done = self.taken

    def _get(self):
        return self.epoch, self.done

    def _set(self, place):
        self.epoch, self.done = place
        self.taken = self.done

    # --- of torch ---------------------------------------------------------------------------------

    def _order(self):
        if not self.shuffle:
            return list(range(len(self.dataset)))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(len(self.dataset), generator=generator).tolist()

    def _n_left(self):
        left = len(self.dataset) - self.done
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def __iter__(self):
        order = self._order()
        total = self._n_left() * self.num_replicas
        left = order[self.done:self.done + total]
        while len(left) < total:  # as torch does, with samples from the beginning
            left += order[:total - len(left)]
        return iter(left[self.rank::self.num_replicas])

    def __len__(self):
        return self._n_left()

    @classmethod
    def adopt(cls, sampler):
        """Make one of torch's own, which keeps its settings."""
        sampler.__class__ = cls
        sampler._start()
        return sampler
