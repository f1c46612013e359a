"""The end of a training script whose optimizer is at a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch

from gradwire._native import Error
from gradwire._state import State


class ServedOptimizer(torch.optim.Optimizer):
    """Takes the place of an optimizer if the server has one: `step` takes the weights that the server made of all ranks' gradients.

    `params` are all that DDP has, `state` is one with a server. All ranks make it together, and start from rank 0's weights. Learning rate,
    momentum and the like are the server's: `python -m gradwire serve --help`. After `backward`, `.grad` is zero.
    """

    def __init__(self, params: Iterable[Any], state: State) -> None:
        super().__init__(params, {})
        self._state = state
        state._links().begin([parameter for group in self.param_groups for parameter in group["params"]])

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """A `GradScaler` asks for it in its `step`."""
        raise Error(
            "a GradScaler cannot drive a ServedOptimizer: the server has stepped with the scaled gradient, as many times too far as the "
            "scale says; start again without the scaler, as autocast to bfloat16 does, or without the optimizer at the server"
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes what the server returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        returned = self._state._links().returned
        assert returned is not None
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    returned.apply(self._state._names.name(parameter), parameter)
        return loss
