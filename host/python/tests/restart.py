"""A run that torchrun starts again: rank 1 dies once, behind a checkpoint. `test_ddp.py` compares it with a run that goes through.

torchrun restart.py FOLDER [die]
"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from ranks import digest
from test_ddp import hooked, net, sgd, step

SAVED, DEATH, END = 5, 8, 12


def main():
    folder, dies = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["die"]
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    file = folder / f"rank{rank}.pt"
    ddp, state = hooked(net(), "low-rank:4")
    optimizer = sgd(ddp)
    begin = 0
    if not first:
        saved = torch.load(file)
        ddp.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["exchange"])
        begin = SAVED
    for iteration in range(begin, END):
        if iteration == SAVED and first:
            everything = {"model": ddp.state_dict(), "optimizer": optimizer.state_dict(), "exchange": state.state_dict()}
            torch.save(everything, file)
            dist.barrier()
        if iteration == DEATH and first and dies and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step(ddp, optimizer, rank, iteration)
    (folder / f"digest{rank}").write_text(f"{digest(ddp)} from iteration {begin}")
    state.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
