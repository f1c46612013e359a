"""Residuals in checkpoints: what a rank saves, and what ranks take over from the files of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from gradwire import _native

# Of what `state_dict` returns: 2 names ranks and residuals.
VERSION = 2


def state_dict(channel: _native.Channel, plan: str, place: tuple[int, int], iteration: int, pending: dict[str, list[torch.Tensor]]) -> dict[str, Any]:
    """Returns a rank's part of a checkpoint. `place` is the rank, and how many there are."""
    rank, ranks = place
    return {
        "version": VERSION,
        "plan": plan,
        "rank": rank,
        "ranks": ranks,
        "iteration": iteration,
        # A tensor, which torch.load takes from anybody.
        "residuals": torch.frombuffer(bytearray(channel.save()), dtype=torch.uint8),
        "pending": {name: [one.clone() for one in values] for name, values in pending.items()},
    }


def load(
    channel: _native.Channel, saved: dict[str, Any] | Iterable[dict[str, Any]], place: tuple[int, int], known: set[str] | None
) -> dict[str, Any]:
    """Gives the channel the residuals of a rank's own checkpoint, or this rank's share of all ranks', and returns the first of these.

    `known` are the names of the model's parameters, if the state has a model.
    """
    rank, ranks = place
    dicts = [saved] if isinstance(saved, dict) else sorted(saved, key=lambda one: one["rank"])
    for one in dicts:
        if one["version"] != VERSION:
            raise ValueError(f"this state has version {one['version']}: expected {VERSION}; another gradwire saved it")
    first = dicts[0]
    residuals = [bytes(one["residuals"].numpy().tobytes()) for one in dicts]
    if len(dicts) == 1 and isinstance(saved, dict):
        if (first["rank"], first["ranks"]) != (rank, ranks):
            raise ValueError(
                f"this state is that of rank {first['rank']} of {first['ranks']}, and this is rank {rank} of "
                f"{ranks}: give each rank its own, or all ranks a list of all of them"
            )
        channel.resume(residuals[0])
    else:
        if [one["rank"] for one in dicts] != list(range(first["ranks"])):
            given = ", ".join(str(one["rank"]) for one in dicts)
            raise ValueError(f"states of ranks {given}: expected those of all {first['ranks']} ranks")
        channel.load(residuals, rank)
    names = sorted({*channel.names(), *first["pending"]})
    strange = [name for name in names if (name not in known if known is not None else not name.startswith("parameter."))]
    if strange:
        have = "has parameters of other names" if known is not None else "was made without model=..., and counts them"
        raise ValueError(
            f"this state has residuals of {', '.join(strange[:3])}{', ...' if len(strange) > 3 else ''}, and this State {have}: give "
            "State the model if, and only if, the one that was saved had it"
        )
    return first
