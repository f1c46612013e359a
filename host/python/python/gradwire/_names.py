"""Names of parameters, by which residuals are kept."""

from __future__ import annotations

import torch


class Names:
    """The names that a model gives its parameters; without a model, numbers in the order in which they are asked for."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        # By id, with the parameter, so that nothing else gets its id.
        self._names: dict[int, tuple[str, torch.Tensor]] = {}
        self._of_model, self._numbered = model is not None, 0
        if model is not None:
            # DDP puts a prefix before each name. Other models with a part called "module" do not.
            inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
            for name, parameter in inner.named_parameters():
                # Nor does a checkpoint depend on which parts torch.compile wraps.
                self._names[id(parameter)] = (name.replace("_orig_mod.", ""), parameter)

    def name(self, parameter: torch.Tensor) -> str:
        if id(parameter) not in self._names:
            self._names[id(parameter)] = (f"parameter.{self._numbered}", parameter)
            self._numbered += 1
        return self._names[id(parameter)][0]

    def check(self, saved: set[str]) -> None:
        """Raises ValueError if a checkpoint has other names than this model's."""
        known = {name for name, _ in self._names.values()} if self._of_model else None
        # A part of a parameter has its range behind the name.
        plain = {name: name.partition("[")[0] for name in sorted(saved)}
        strange = [name for name, of in plain.items() if (of not in known if known is not None else not of.startswith("parameter."))]
        if strange:
            have = "has parameters of other names" if known is not None else "was made without model=..., and counts them"
            raise ValueError(
                f"this state has residuals of {', '.join(strange[:3])}{', ...' if len(strange) > 3 else ''}, and this State {have}: give "
                "State the model if, and only if, the one that was saved had it"
            )
