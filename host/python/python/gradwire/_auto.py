"""The choice of `plan="auto"`: by what repeats in trials, since whatever disturbs an iteration only makes it longer."""

from __future__ import annotations

import statistics

PLANS = {"f32": 1.0, "q8": 1.0, "bounded:6": 1.05, "low-rank:16": 1.1, "low-rank:8": 1.25}
"""The plans that are tried, and by how many times the iterations of f32 a model may need with it (docs/training.md)."""
TRIAL = 4
"""Iterations of a trial. The first one begins with iteration 4: DDP has rebuilt its buckets then. A pause at one rank makes two iterations
longer: the one that ends with it there, and the next one at the others, which wait. So a trial with one pause has undisturbed iterations."""
ROUNDS = 3
"""Trials of each plan. A round has one of each, so what disturbs a whole trial disturbs no plan alone."""
ALL = ROUNDS * len(PLANS) * TRIAL
"""Iterations of all trials."""
WORTH = 0.95
"""Another plan is worth less bits if it takes at most this part of the time with f32."""


def plan(iteration: int) -> str:
    """Returns the plan of the trials' iteration of this number, from 0."""
    return list(PLANS)[iteration // TRIAL % len(PLANS)]


def choose(seconds: list[float]) -> tuple[str, str]:
    """The plan that learns soonest if the trials' iterations took so long, and why it.

    A trial counts as its quickest iteration, a plan as the median of its trials, and f32 as the quickest of them all: only a plan that
    is quicker again and again takes its place.
    """
    trials: dict[str, list[float]] = {plan: [] for plan in PLANS}
    for first in range(0, ALL, TRIAL):
        trials[plan(first)].append(min(seconds[first : first + TRIAL]))
    took = {plan: statistics.median(each) for plan, each in trials.items()}
    counted = {plan: took[plan] * factor for plan, factor in PLANS.items() if plan != "f32"}
    best = min(counted, key=counted.__getitem__)
    if counted[best] > WORTH * min(trials["f32"]):
        best = "f32"
    said = ", ".join(f"{plan} {took[plan] * 1000:.1f} ms ({min(each) * 1000:.1f} to {max(each) * 1000:.1f})" for plan, each in trials.items())
    more = ", ".join(f"{plan} as {round(100 * factor - 100)} % more" for plan, factor in PLANS.items() if factor > 1)
    return best, (
        f"the quickest of {TRIAL} iterations took, as the median of {ROUNDS} trials (and from the least to the most of them), {said}; "
        f"counted {more}, since a model may need more iterations; {round(100 * WORTH)} % of f32's least would have been quick enough"
    )
