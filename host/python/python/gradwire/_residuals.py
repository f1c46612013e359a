"""Checkpoints: each rank saves its own part, and may take over those of all ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

VERSION = 3
"""The version of checkpoints: 3 names the path of buckets."""
NOTHING = "none"
"""The path of a checkpoint from before the first bucket, which has nothing else."""
COMPARE_EVERY = 100
"""Replicas are compared at the first iteration, and then once in so many."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A rank, of so many, and the path of its buckets: "links" or "group"."""

    path: str
    rank: int
    ranks: int

    def state(self, plan: str, iteration: int, more: dict[str, Any]) -> dict[str, Any]:
        """Returns this rank's part of a checkpoint."""
        return {"version": VERSION, "path": self.path, "plan": plan, "rank": self.rank, "ranks": self.ranks, "iteration": iteration, **more}

    def checked(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
        """Returns the states of a checkpoint by rank, and whether it is this rank's own alone. ValueError if they do not fit."""
        own = isinstance(saved, dict)
        states: list[dict[str, Any]] = [saved] if isinstance(saved, dict) else sorted(saved, key=lambda one: one["rank"])
        for one in states:
            if one["version"] != VERSION:
                raise ValueError(f"this state has version {one['version']}: expected {VERSION}; another gradwire saved it")
            if one["path"] != self.path:
                raise ValueError(
                    f"this state is of buckets over {one['path']}, and this State takes them over {self.path}: whether a plan begins with "
                    "'group:', and the device of the model, say which; give the same"
                )
        first = states[0]
        if own and (first["rank"], first["ranks"]) != (self.rank, self.ranks):
            raise ValueError(
                f"this state is that of rank {first['rank']} of {first['ranks']}, and this is rank {self.rank} of "
                f"{self.ranks}: give each rank its own, or all ranks a list of all of them"
            )
        if not own and [one["rank"] for one in states] != list(range(first["ranks"])):
            given = ", ".join(str(one["rank"]) for one in states)
            raise ValueError(f"states of ranks {given}: expected those of all {first['ranks']} ranks")
        return states, own
