"""The choice of `plan="auto"`: by what repeats in trials, since whatever disturbs an iteration only makes it longer."""

from __future__ import annotations

import dataclasses
import statistics

TRIAL = 4
"""Iterations of a trial. The first one begins with iteration 4: DDP has rebuilt its buckets then. A pause at one rank makes two iterations
longer: the one that ends with it there, and the next one at the others, which wait. So a trial with one pause has undisturbed iterations."""
ROUNDS = 3
"""Trials of each plan. A round has one of each, so what disturbs a whole trial disturbs no plan alone."""
WORTH = 0.95
"""A codec is worth what it loses if it takes at most this part of the time without any."""


PLANS = {"f32": 1.0, "bf16": 1.0, "q8": 1.0, "q4": 1.05, "bounded:6": 1.05, "low-rank:16": 1.1, "low-rank:8": 1.25}
"""The plans that are tried, and by how many times the iterations of f32 a model may need with each (docs/training.md)."""
UNCODED = ("f32", "bf16")
"""Those of them that lose nothing, or no more than PyTorch's own 16 bits."""


@dataclasses.dataclass(frozen=True)
class Trials:
    """The plans that one path of buckets has."""

    plans: tuple[str, ...]

    @property
    def all(self) -> int:
        """Iterations of all trials."""
        return ROUNDS * len(self.plans) * TRIAL

    def plan(self, iteration: int) -> str:
        """Returns the plan of the trials' iteration of this number, from 0."""
        return self.plans[iteration // TRIAL % len(self.plans)]

    def choose(self, seconds: list[float]) -> tuple[str, str]:
        """The plan that learns soonest if the trials' iterations took so long, and why it.

        A trial counts as its quickest iteration, a plan as the median of its trials, and one without a codec as the quickest of them all:
        only a codec that is quicker again and again takes its place.
        """
        trials: dict[str, list[float]] = {plan: [] for plan in self.plans}
        for first in range(0, self.all, TRIAL):
            trials[self.plan(first)].append(min(seconds[first : first + TRIAL]))
        took = {plan: statistics.median(each) for plan, each in trials.items()}
        counted = {plan: took[plan] * PLANS[plan] for plan in self.plans if plan not in UNCODED}
        best = min(counted, key=counted.__getitem__)
        least = min((plan for plan in self.plans if plan in UNCODED), key=lambda plan: min(trials[plan]))
        if counted[best] > WORTH * min(trials[least]):
            best = least
        said = ", ".join(f"{plan} {took[plan] * 1000:.1f} ms ({min(each) * 1000:.1f} to {max(each) * 1000:.1f})" for plan, each in trials.items())
        more = ", ".join(f"{plan} as {round(100 * PLANS[plan] - 100)} % more" for plan in self.plans if PLANS[plan] > 1)
        return best, (
            f"the quickest of {TRIAL} iterations took, as the median of {ROUNDS} trials (and from the least to the most of them), {said}; "
            f"counted {more}, since a model may need more iterations; {round(100 * WORTH)} % of {least}'s least would have been quick enough"
        )


LINKS = Trials(("f32", "q8", "bounded:6", "low-rank:16", "low-rank:8"))
"""Over links."""
GROUP = Trials(("f32", "bf16", "q8", "q4", "low-rank:16", "low-rank:8"))
"""Over a process group."""
