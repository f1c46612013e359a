"""What the server's optimizer returned, until the script's optimizer takes it."""

from __future__ import annotations

import torch


class Returned:
    """What the server's optimizer returned since the last step, by parameter: weights, or what to add to them."""

    def __init__(self, weights: bool) -> None:
        self.weights = weights
        self.values: dict[str, torch.Tensor] = {}

    def keep(self, tensor: torch.Tensor, names: list[str], lens: list[int]) -> None:
        """Takes it from a bucket. Zeros stay there: what is in `.grad` may be clipped or logged, and weights are no gradients."""
        for name, values in zip(names, tensor.split(lens)):
            before = None if self.weights else self.values.get(name)
            self.values[name] = values.clone() if before is None else before + values
        tensor.zero_()

    def apply(self, name: str, parameter: torch.Tensor) -> None:
        values = self.values.pop(name, None)
        if values is not None:
            values = values.view_as(parameter).to(parameter.device)
            parameter.copy_(values) if self.weights else parameter.add_(values)
