"""The end of a training script whose optimizer is at a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable

import torch

if TYPE_CHECKING:
    from gradwire._ddp import State


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
            values = values.view_as(parameter)
            parameter.copy_(values) if self.weights else parameter.add_(values)


class ServedOptimizer(torch.optim.Optimizer):
    """Takes the place of an optimizer if the server has one: `step` takes the weights that the server made of all ranks' gradients.

    `params` are all that DDP has, `state` is one with a server. All ranks make it together, and start from rank 0's weights. Learning rate,
    momentum and the like are the server's: `python -m gradwire serve --help`. After `backward`, `.grad` is zero.
    """

    def __init__(self, params: Iterable[Any], state: State) -> None:
        super().__init__(params, {})
        self._state = state
        state._begin([parameter for group in self.param_groups for parameter in group["params"]])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Takes what the server returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        returned = self._state._returned
        assert returned is not None
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    returned.apply(self._state._name(parameter), parameter)
        return loss
