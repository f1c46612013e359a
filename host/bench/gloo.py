"""One rank of an all-reduce by PyTorch's gloo: the baseline of `collectives.py`, which starts it in each namespace.

    python gloo.py RANK RANKS ADDRESS VALUES ROUNDS

Rank 0 prints the median of the rounds' milliseconds.
"""

import datetime
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    rank, ranks, values, rounds = (int(sys.argv[at]) for at in (1, 2, 4, 5))
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{sys.argv[3]}:29501", rank=rank, world_size=ranks,
        timeout=datetime.timedelta(seconds=120),
    )  # fmt: skip
    gradient = torch.full((values,), 1e-3)
    times = []
    # The first has connections to open.
    for _ in range(rounds + 1):
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(gradient)
        times.append(time.monotonic() - start)
    if rank == 0:
        print(1e3 * statistics.median(times[1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
