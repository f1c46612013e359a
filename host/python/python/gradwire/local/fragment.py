"""A fragment: parameters that are exchanged as one, and the weights that all ranks have of them."""

from __future__ import annotations

from typing import Any, Callable

import torch

Outer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns what this rank has of a tensor, with the same storage: all of it, or its shard."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Returns all values, one tensor after the other, as f32."""
    return torch.cat([tensor.reshape(-1).to(torch.float32) for tensor in tensors])


def put(values: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """Replaces the tensors' values by flat ones."""
    for tensor, part in zip(tensors, values.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view(tensor.shape))


class Fragment:
    """Parameters `[n values in all]`, and their common weights: those after the last round, the same bits at all ranks."""

    def __init__(self, named: list[tuple[str, torch.Tensor]], outer: Outer | None) -> None:
        self.names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self.shapes = [tuple(local(parameter).shape) for parameter in self._parameters]
        with torch.no_grad():
            # f32 also if the weights are not: a mean is between theirs.
            self.common = flat(self.weights())
        parts = self.common.split([local(parameter).numel() for parameter in self._parameters])
        # In the same storage.
        self._views = [torch.nn.Parameter(part.view(shape)) for part, shape in zip(parts, self.shapes)]
        self.outer = None if outer is None else outer(self._views)

    def weights(self) -> list[torch.Tensor]:
        return [local(parameter) for parameter in self._parameters]

    def delta(self) -> torch.Tensor:
        """Returns what this rank moved away from the common weights: like a gradient, it is to be subtracted. f32 `[n]`."""
        return self.common - flat(self.weights())

    def step(self, mean: torch.Tensor) -> torch.Tensor:
        """Moves the common weights by the mean of all ranks' deltas, f32 `[n]`, and returns what they moved: before - after."""
        if self.outer is None:
            self.common -= mean
            return mean
        before = self.common.clone()
        for view, part in zip(self._views, mean.split([view.numel() for view in self._views])):
            view.grad = part.view(view.shape)
        self.outer.step()
        for view in self._views:
            view.grad = None
        return before - self.common

    def assign(self) -> None:
        """Replaces the weights by the common ones."""
        put(self.common, self.weights())

    def move(self, by: torch.Tensor) -> None:
        """Adds to the weights, in f32."""
        put(flat(self.weights()) + by, self.weights())

    def state_dict(self) -> dict[str, Any]:
        """Returns the common weights, by name, and the outer optimizer's state."""
        parts = self.common.cpu().split([view.numel() for view in self._views])
        common = {name: part.view(shape).clone() for name, part, shape in zip(self.names, parts, self.shapes)}
        return {"common": common, "outer": None if self.outer is None else self.outer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        shapes = {name: tuple(values.shape) for name, values in saved["common"].items()}
        if shapes != dict(zip(self.names, self.shapes)):
            raise ValueError(
                "this state is of other parameters, or of other fragments: give the same model, and the same number of fragments; "
                f"it has {', '.join(list(shapes)[:3])}, ..."
            )
        if (saved["outer"] is None) != (self.outer is None):
            raise ValueError(f"this state was saved {'without' if saved['outer'] is None else 'with'} an outer optimizer: give outer= as it was then")
        self.common.copy_(flat([saved["common"][name] for name in self.names]))
        if self.outer is not None:
            self.outer.load_state_dict(saved["outer"])


def divided(named: list[tuple[str, torch.Tensor]], count: int, outer: Outer | None) -> list[Fragment]:
    """Returns `count` fragments of about as many values, in the order of the parameters. ValueError if there are fewer parameters."""
    if len(named) < count:
        raise ValueError(f"fragments={count}: the model has {len(named)} parameters, and a fragment has one or more")
    whole = sum(local(parameter).numel() for _, parameter in named)
    parts: list[list[tuple[str, torch.Tensor]]] = [[]]
    so_far = 0
    for left, (name, parameter) in zip(range(len(named), 0, -1), named):
        missing = count - len(parts)
        if parts[-1] and missing and (so_far >= whole * len(parts) / count or left == missing):
            parts.append([])
        parts[-1].append((name, parameter))
        so_far += local(parameter).numel()
    return [Fragment(part, outer) for part in parts]
