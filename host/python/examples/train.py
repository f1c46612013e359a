"""Trains a small net on drawn digits with DDP, and prints its accuracy and what the exchange took.

    torchrun --nproc_per_node 2 examples/train.py --plan low-rank:16

Without --plan, DDP exchanges the gradients itself.
"""

import argparse
import time

import gradwire
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = """
.###. ..#.. .###. ####. #..#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# #..#. #.... #.... ....# #...# #...#
#...# ..#.. ....# ....# #..#. ####. #.... ...#. #...# #...#
#...# ..#.. ...#. .###. ##### ....# ####. ..#.. .###. .####
#...# ..#.. ..#.. ....# ...#. ....# #...# ..#.. #...# ....#
#...# ..#.. .#... ....# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### ####. ...#. .###. .###. ..#.. .###. .###.
"""


def digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits of 5 x 7 pixels at any place of 8 x 8, fainter or stronger, under noise: the same ones on every machine."""
    shapes = torch.tensor([[[pixel == "#" for pixel in row] for row in line.split()] for line in DIGITS.split("\n")[1:-1]])
    shapes = shapes.permute(1, 0, 2).float()
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    places = torch.randint(4, (count,), generator=random), torch.randint(2, (count,), generator=random)
    images = 0.35 * torch.randn(count, 8, 8, generator=random)
    strengths = 0.7 + 0.6 * torch.rand(count, generator=random)
    for image, label, x, y, strength in zip(images, labels.tolist(), *(p.tolist() for p in places), strengths):
        image[y : y + 7, x : x + 5] += strength * shapes[label]
    return images.flatten(1), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plan", help="how gradients are exchanged (docs/training.md)")
    parser.add_argument("--pipeline", action="store_true", help="apply the gradients of the iteration before")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="images of each rank in an iteration")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    widths = [64, 300, 300, 10]
    layers = [layer for sizes in zip(widths, widths[1:]) for layer in (torch.nn.Linear(*sizes), torch.nn.ReLU())]
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]))
    state = None
    if args.plan:
        if args.pipeline:
            state = gradwire.State(gradwire.Link(), args.plan, pipeline=True)
            ddp.register_comm_hook(state, gradwire.hook)
        else:
            state = gradwire.attach(ddp, args.plan)

    images, labels = digits(4000, seed=1)
    images, labels = images[rank::ranks], labels[rank::ranks]
    order = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    start = time.monotonic()
    for _ in range(args.iterations):
        chosen = torch.randint(len(images), (args.batch,), generator=order)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    seconds = time.monotonic() - start

    if rank == 0:
        images, labels = digits(2000, seed=2)
        with torch.no_grad():
            accuracy = (ddp.module(images).argmax(1) == labels).float().mean().item()
        print(f"accuracy {accuracy:.1%} after {args.iterations} iterations of {ranks} ranks, {seconds:.1f} s")
        if state:
            print(state.report())
    if state:
        state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
