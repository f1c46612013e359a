"""Trains the net of train.py by local steps, and goes on from its checkpoints, also with another number of ranks.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc_per_node 2 --max_restarts 3 examples/local_steps.py --folder checkpoints

Without that variable, ranks that torchrun 2.15 starts anew may get the addresses of those before. If torchrun is elastic (`--nnodes 2:4`),
it starts all ranks anew when a host leaves or comes: then, too, they go on from there.
"""

import argparse
import glob
import os

import gradwire
import torch
import torch.distributed as dist
from train import digits

SAVE_EVERY = 96
"""Iterations: some rounds."""


def save(folder: str, iteration: int, *states: object) -> None:
    """Writes this rank's part of a checkpoint. The name of the last part says that all are there."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.save(states, os.path.join(folder, f"{iteration:08}-{rank}-of-{ranks}"))
    dist.barrier()
    if rank == 0:
        open(os.path.join(folder, f"{iteration:08}-whole"), "w").close()


def newest(folder: str) -> tuple[int, list[str]]:
    """Returns the iteration of the newest whole checkpoint, and its parts by rank; 0 and none if there is none."""
    iteration = max((int(os.path.basename(name)[:8]) for name in glob.glob(os.path.join(folder, "*-whole"))), default=0)
    parts = glob.glob(os.path.join(folder, f"{iteration:08}-*-of-*"))
    return iteration, sorted(parts, key=lambda name: int(os.path.basename(name).split("-")[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plan", default="bounded:4", help="how what ranks moved is exchanged (docs/training.md)")
    parser.add_argument("--every", type=int, default=16, help="iterations of a round")
    parser.add_argument("--iterations", type=int, default=384)
    parser.add_argument("--folder", required=True, help="where checkpoints are, on a disk that all hosts have")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    local = gradwire.LocalSteps(model, optimizer, every=args.every, plan=args.plan)

    os.makedirs(args.folder, exist_ok=True)
    start, parts = newest(args.folder)
    if parts:
        states = [torch.load(part, weights_only=True) for part in parts]
        if len(parts) == ranks:
            model.load_state_dict(states[rank][0])
        optimizer.load_state_dict(states[rank % len(parts)][1])
        # Of other ranks than before: all begin with the common weights.
        local.load_state_dict(states[rank][2] if len(parts) == ranks else [each for *_, each in states])
        print(f"rank {rank} of {ranks} goes on behind iteration {start}, which {len(parts)} ranks saved", flush=True)

    images, labels = digits(4000, seed=1)
    images, labels = images[rank::ranks], labels[rank::ranks]
    for iteration in range(start + 1, args.iterations + 1):
        chosen = torch.randint(len(images), (32,), generator=torch.Generator().manual_seed(1000 * iteration + rank))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        if iteration % SAVE_EVERY == 0:
            save(args.folder, iteration, model.state_dict(), optimizer.state_dict(), local.state_dict())

    report = local.report()
    # All ranks have the same weights from here on.
    local.close()
    if rank == 0:
        images, labels = digits(2000, seed=2)
        with torch.no_grad():
            accuracy = (model(images).argmax(1) == labels).float().mean().item()
        print(f"accuracy {accuracy:.1%}\n{report}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
