"""A script with torch's timers, as for torchrun: step 1 takes too long on rank 1."""
import os
import time

import torch.distributed.elastic.timer as timer


def read_a_batch_from_a_dead_disk():
    time.sleep(3600)


def main():
    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    with timer.expires(after=3600, scope="step 0"):
        pass
    with timer.expires(after=1 if os.environ["RANK"] == "1" else 3600, scope="step 1"):
        read_a_batch_from_a_dead_disk()


if __name__ == "__main__":
    main()
