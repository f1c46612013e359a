"""Plans over a process group: what `group:` takes, and what is the plan of a bucket on an accelerator."""

from __future__ import annotations

import dataclasses

from gradwire._hosts import BY_HOST
from gradwire.codec import Codec, named, usages
from gradwire.device import low_rank

PREFIX = "group:"
"""Before a plan: over the process group, also for buckets on the CPU."""
EXACT_ITERATIONS = 2
"""Iterations without a codec at the start: DDP makes its buckets anew after the first."""
LOW_RANK_EXACT_ITERATIONS = 10
"""Likewise for `low-rank`: PowerSGD approximates early gradients badly, so PyTorch's starts late as well."""


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """One of these: a codec, a rank, or neither, which is the process group's own all-reduce."""

    text: str
    codec: Codec | None = None
    rank: int | None = None
    bf16: bool = False
    """Without a codec: are f32 values sent as bfloat16?"""
    by_host: bool = False
    """Do ranks of a host sum first, and each exchange its piece with other hosts?"""

    @property
    def coded(self) -> bool:
        return self.codec is not None or self.rank is not None

    @property
    def exact_iterations(self) -> int:
        """The default."""
        return LOW_RANK_EXACT_ITERATIONS if self.rank else EXACT_ITERATIONS

    def __str__(self) -> str:
        return PREFIX + self.text


def group_plan(text: str) -> GroupPlan:
    """Reads a plan without its prefix. ValueError names the plans there are."""
    if text.startswith(BY_HOST):
        between = text.removeprefix(BY_HOST)
        if between.startswith(("auto", "low-rank", "hierarchy")):
            raise ValueError(
                f"plan {text!r}: where ranks of a host sum first, each has a piece of the bucket, and no matrix; "
                "use f32, bf16, q8, q4 or 3lc between hosts"
            )
        found = group_plan(between)
        return dataclasses.replace(found, text=BY_HOST + found.text, by_host=True)
    kind, _, argument = text.partition(":")
    if text in ("f32", "bf16"):
        return GroupPlan(text, bf16=text == "bf16")
    if kind == "low-rank" and argument.isdecimal() and 1 <= int(argument) <= low_rank.MAX_RANK:
        return GroupPlan(text, rank=int(argument))
    codec = named(text)
    if codec is None:
        raise ValueError(
            f"plan {text!r}: over a process group, which is the way of buckets on an accelerator, there are f32, bf16, {', '.join(usages())}, "
            f"low-rank:R and auto, and {BY_HOST} goes before one of a codec; others take buckets on the CPU. "
            "A codec of your own is registered before (docs/codecs.md)"
        )
    return GroupPlan(codec.name, codec)
