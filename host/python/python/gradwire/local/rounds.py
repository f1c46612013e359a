"""The rounds that ranks have agreed on: what lets those that are left go on together after a death."""

from __future__ import annotations

import dataclasses
import enum
from typing import Generic, TypeVar

from gradwire._native import Error

Mean = TypeVar("Mean")


@dataclasses.dataclass(frozen=True)
class Standing:
    """What a rank tells the others before they go on together."""

    rounds: int
    """Rounds that it took over."""
    holds: bool
    """Does it hold the mean of one more?"""


class Act(enum.Enum):
    """What a rank does to be where the others are."""

    GO_ON = "drop what is unfinished"
    TAKE_OVER = "take over the mean that it holds"
    COPY = "copy the state of a rank that has one"


class Rounds(Generic[Mean]):
    """This rank's rounds.

    A round has two phases. In the first one, ranks exchange, and each holds the mean then. In the second one, each hears that all hold it,
    and takes it over. So if any rank took over a round, all ranks hold its mean, or took it over: a death between leaves nobody behind.
    """

    def __init__(self) -> None:
        self.number = 0
        self.held: Mean | None = None

    def hold(self, mean: Mean) -> None:
        """Ends the first phase."""
        self.held = mean

    def take_over(self) -> Mean:
        """Ends the second phase, and returns the mean."""
        mean, self.held = self.held, None
        if mean is None:
            raise Error("no mean is held: this round did not end its first phase")
        self.number += 1
        return mean

    def drop(self) -> None:
        """Forgets a round that no rank took over."""
        self.held = None

    def standing(self) -> Standing:
        return Standing(self.number, self.held is not None)


def settle(standings: list[Standing | None]) -> tuple[list[Act], int]:
    """Returns what each rank does, None being one that is new, and the rank whose state new ones copy. Error if they were never together."""
    newest = max((each.rounds for each in standings if each is not None), default=-1)
    if newest < 0:
        # A start: all have rank 0's.
        return [Act.GO_ON if rank == 0 else Act.COPY for rank in range(len(standings))], 0
    acts = []
    for rank, each in enumerate(standings):
        if each is None:
            acts.append(Act.COPY)
        elif each.rounds == newest:
            acts.append(Act.GO_ON)
        elif each.rounds == newest - 1 and each.holds:
            acts.append(Act.TAKE_OVER)
        else:
            raise Error(
                f"rank {rank} took over {each.rounds} rounds, and another rank {newest}: they were not in one job when this one's last round ended; "
                "make a new LocalSteps there, which copies the others' state"
            )
    return acts, next(rank for rank, each in enumerate(standings) if each is not None and each.rounds == newest)
