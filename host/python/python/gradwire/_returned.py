"""The answer of a server's optimizer, until the script's optimizer takes it."""

from __future__ import annotations

import torch


class Returned:
    """The weights that the server takes for this rank's, by parameter: those it returned, or what its deltas add up to.

    The server adds each delta to them when it sends it. So does a rank, whether its step is skipped or not: deltas that were added up first
    would make other roundings, which nobody corrects.
    """

    def __init__(self, weights: bool, start: dict[str, torch.Tensor]) -> None:
        self.weights = weights
        self.values = {name: values.clone() for name, values in start.items()}
        # Since the last step.
        self.new: set[str] = set()

    def keep(self, tensor: torch.Tensor, names: list[str], lens: list[int]) -> None:
        """Takes it from a bucket. Zeros stay there: what is in `.grad` may be clipped or logged, and weights are no gradients."""
        for name, values in zip(names, tensor.split(lens)):
            mine = self.values[name]
            mine.copy_(values) if self.weights else mine.add_(values)
            self.new.add(name)
        tensor.zero_()

    def apply(self, name: str, parameter: torch.Tensor) -> None:
        if name in self.new:
            self.new.remove(name)
            parameter.copy_(self.values[name].view_as(parameter))
