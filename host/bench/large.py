"""A model of 1.3 billion parameters over a process group: bytes, counted; seconds, modelled.

    python large.py

Tensors are fake: they have shapes and no values, and the process group moves nothing, so a laptop without an accelerator runs this in a
minute. What each rank sends, and what its device reads and writes for it, operation by operation, is counted in gradwire's own code. The
seconds are a model, and no measurement: a bucket's exchange takes its bytes at 90 % of the wire, and coding its bytes at the device's
memory; what is sent hides behind the backward pass, and what is coded does not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from typing import Any

import torch
import torch.distributed as dist
from gradwire.device.bucket import Bucket, Layout
from gradwire.device.exchange import Group
from gradwire.device.plan import group_plan
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

LAYERS, WIDTH, WORDS, CONTEXT = 24, 2048, 50_257, 2048
"""GPT-3 XL (Brown and others, 2020, table 2.1)."""
BUCKET_BYTES = 25 << 20
"""DDP's default."""
COMPUTE_S = 1.02
"""An iteration of 16 k tokens on an accelerator that reaches 125 TFLOP/s: 6 operations a token and parameter."""
MEMORY = 1.3e12
"""Bytes a second that coding reads and writes: of an A100's 1.55e12."""
TCP = 0.9
"""The part of the wire that a stack fills."""
PLANS = ("f32", "q8", "q4", "3lc:1:1024", "low-rank:16", "low-rank:32")
"""f32 is the process group's own all-reduce, here of bfloat16."""


def parameters() -> list[tuple[int, ...]]:
    """Returns the sizes of the model's parameters, the last first, as DDP gets their gradients."""
    sizes: list[tuple[int, ...]] = [(WORDS, WIDTH), (CONTEXT, WIDTH)]
    for _ in range(LAYERS):
        for rows, cols in ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
            sizes += [(WIDTH,)] * (rows != WIDTH) * 2 + [(rows, cols), (rows,)]
    return sizes[::-1] + [(WIDTH,), (WIDTH,)]


def buckets() -> list[list[tuple[int, ...]]]:
    """Returns them in DDP's buckets."""
    full: list[list[tuple[int, ...]]] = [[]]
    size = 0
    for each in parameters():
        full[-1].append(each)
        size += 2 * math.prod(each)
        if size >= BUCKET_BYTES:
            full.append([])
            size = 0
    return [bucket for bucket in full if bucket]


class Moved(TorchDispatchMode):
    """Counts the bytes that operations read and write. Views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and "c10d" not in str(func):
            for tensor in torch.utils._pytree.tree_leaves((args, kwargs, result)):
                if isinstance(tensor, torch.Tensor):
                    self.bytes += tensor.numel() * tensor.element_size()
        return result


@dataclasses.dataclass
class Counted:
    """An iteration's bytes at one rank."""

    values: int
    sent: int
    moved: int


def count(plan: str, ranks: int) -> Counted:
    dist.init_process_group("fake", rank=1, world_size=ranks, store=FakeStore())
    values = sent = moved = 0
    # Layers are alike, and so are many buckets.
    known: dict[tuple[tuple[int, ...], ...], tuple[int, int]] = {}
    group = Group(None)
    try:
        with FakeTensorMode():
            for number, sizes in enumerate(buckets()):
                n = sum(map(math.prod, sizes))
                if (key := tuple(sizes)) not in known:
                    gradient = torch.empty(n, dtype=torch.bfloat16, device="cuda")
                    layout = Layout(tuple(f"{number}.{at}" for at in range(len(sizes))), key)
                    bucket = Bucket(layout, gradient, may_be_unused=False, skips=False)
                    # The first exchange also makes what later ones keep.
                    bucket.exchange(group, group_plan(plan), gradient)
                    before = group.sent_bytes
                    with Moved() as counting:
                        bucket.exchange(group, group_plan(plan), gradient)
                    known[key] = group.sent_bytes - before, counting.bytes
                values, sent, moved = values + n, sent + known[key][0], moved + known[key][1]
    finally:
        dist.destroy_process_group()
    return Counted(values, sent, moved)


def seconds(counted: Counted, gigabits: float, coded: bool) -> float:
    """Returns an iteration's seconds: two thirds of computing are the backward pass, which sending hides behind."""
    wire = counted.sent / (TCP * gigabits * 1e9 / 8)
    coding = counted.moved / MEMORY if coded else 0.0
    return COMPUTE_S / 3 + max(2 * COMPUTE_S / 3, wire) + coding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="8,64", help="hosts with an accelerator each [8,64]")
    parser.add_argument("--wires", default="1,10,25", help="Gbit/s [1,10,25]")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    hosts, wires = ([float(each) for each in text.split(",")] for text in (args.hosts, args.wires))
    rows = []
    for ranks in map(int, hosts):
        own = count("f32", ranks)
        for plan in PLANS:
            print(f"{ranks} hosts, {plan}", file=sys.stderr)
            counted = own if plan == "f32" else count(plan, ranks)
            took = [seconds(counted, wire, plan != "f32") for wire in wires]
            gains = [seconds(own, wire, False) / each for wire, each in zip(wires, took)]
            # From which wire on the group's own all-reduce is at least as quick.
            coding = counted.moved / MEMORY
            ends = own.sent * 8e-9 / TCP / (2 * COMPUTE_S / 3 + coding) if plan != "f32" else None
            rows.append(
                {
                    "hosts": ranks,
                    "plan": plan,
                    "sent_mb": counted.sent / 1e6,
                    "bytes_moved_a_value": counted.moved / counted.values,
                    "seconds": dict(zip(args.wires.split(","), took)),
                    "gain": dict(zip(args.wires.split(","), gains)),
                    "pays_below_gbit_s": ends,
                }
            )
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{own.values / 1e9:.2f} billion values, bfloat16\n")
    print(
        "| hosts | plan | MB sent | bytes moved a value | " + " | ".join(f"{wire:g} Gbit/s, s (gain)" for wire in wires) + " | pays below, Gbit/s |"
    )
    print("|" + "---|" * (5 + len(wires)))
    for row in rows:
        cells = [f"{took:.2f} ({row['gain'][wire]:.1f})" for wire, took in row["seconds"].items()]
        ends = "-" if row["pays_below_gbit_s"] is None else f"{row['pays_below_gbit_s']:.0f}"
        name = "bf16 all-reduce" if row["plan"] == "f32" else f"`{row['plan']}`"
        print(f"| {row['hosts']} | {name} | {row['sent_mb']:.0f} | {row['bytes_moved_a_value']:.0f} | {' | '.join(cells)} | {ends} |")


if __name__ == "__main__":
    main()
