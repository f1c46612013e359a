"""The report of a `State`: what it exchanged so far, at what cost."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Report:
    """The exchanges of a `State` so far, at this rank."""

    path: str
    """"links", or the process group's backend, such as "nccl"."""
    plan: str
    """The plan."""
    why: str
    """Why that one, if `plan="auto"` chose it."""
    rank: int
    """This rank."""
    ranks: int
    """The number of ranks."""
    exchanging: int
    """Of these, how many exchange each value by the plan: all, or over a process group one of each host, if those of a host sum first."""
    iterations: int
    """Backward passes with an exchange."""
    values: int
    """Gradients exchanged, in values."""
    uncoded_values: int
    """Of these, over a process group: those that no codec coded, at the start or because their parameters are small."""
    sent_bytes: int
    """Bytes sent. Over a process group: those of its collectives as rings and pairs send them, without headers."""
    exchange_s: float
    """Seconds of exchanging, in the background of the backward pass. On an accelerator: of its stream."""
    compute_s: float
    """Of these, seconds of coding and summing; 0 over a process group, which does not tell them apart."""
    residual: float
    """The largest magnitude of the residuals, in units of the sum over all ranks."""

    @property
    def ratio(self) -> float:
        """The bytes that a ring of f32 between those would have sent, divided by those sent."""
        return 8 * (self.exchanging - 1) / self.exchanging * self.values / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        each = 1 / max(self.iterations, 1)
        return (
            f"gradwire {_short(self.plan)}: rank {self.rank} of {self.ranks}"
            + (f" on {self.exchanging} hosts" if self.exchanging < self.ranks else "")
            + f", {self.iterations} iterations; each exchanged "
            f"{self.values * each:,.0f} values in {self.sent_bytes * each / 1000:,.1f} kB sent ({self.ratio:.1f} times less than "
            f"a ring of f32) and {self.exchange_s * each * 1000:.2f} ms"
            + (f", {self.compute_s * each * 1000:.2f} of them computing" if self.path == "links" else f", over {self.path}")
            + (f"; {self.uncoded_values / max(self.values, 1):.1%} of all values without a codec" if self.uncoded_values else "")
            + (f"; {self.why}" if self.why else "")
        )


def _short(plan: str) -> str:
    """A plan's text in one line: of a file, strategy and codec of tensors without a row, and how many rows there are."""
    if "\n" not in plan:
        return plan
    fields = dict(line.split(" = ", 1) for line in plan.partition("[[tensor]]")[0].splitlines() if " = " in line)
    strategy, codec = (fields.get(name, "").strip('"') for name in ("strategy", "codec"))
    return f"{strategy}, {codec} and {plan.count('[[tensor]]')} rows"
