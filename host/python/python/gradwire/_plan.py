"""Plans that are files."""

from __future__ import annotations

import itertools
import os

from gradwire._native import Plan

FILE = "@"
"""Before the name of a plan's file."""


def read(plan: str | Plan | os.PathLike[str]) -> str | Plan:
    """Returns what a path or "@FILE" has; any other plan as it is. The error names the file, and the line."""
    if isinstance(plan, (str, Plan)):
        return Plan(plan) if isinstance(plan, str) and plan.startswith(FILE) else plan
    return Plan.load(plan)


def differ(theirs: str, ours: str) -> tuple[str, str]:
    """Returns what two ranks have; of files, which have many lines, the first one that differs."""
    if "\n" not in theirs + ours:
        return repr(theirs), repr(ours)
    lines = itertools.zip_longest(theirs.splitlines(), ours.splitlines(), fillvalue="nothing more")
    return next(((f"with the line {one!r}", f"with {other!r}") for one, other in lines if one != other), (repr(theirs), repr(ours)))
