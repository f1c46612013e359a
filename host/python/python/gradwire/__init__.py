"""Compressed gradient exchange for PyTorch's DistributedDataParallel.

    import gradwire

    state = gradwire.State(gradwire.Link(), plan="low-rank:16")
    ddp.register_comm_hook(state, gradwire.hook)

docs/training.md says which plan to choose, and what is not supported. `python -m gradwire serve` is a parameter server, without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._native import Error, Plan, __version__

if TYPE_CHECKING:
    from gradwire._ddp import Link, Report, State
    from gradwire._hook import hook
    from gradwire._served import ServedOptimizer

__all__ = ["Error", "Link", "Plan", "Report", "ServedOptimizer", "State", "__version__", "hook"]


def __getattr__(name: str) -> Any:
    """What needs torch is loaded when it is first used: a server's host has no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradwire import _ddp, _hook, _served

    where = {"hook": _hook, "ServedOptimizer": _served}.get(name, _ddp)
    found = globals()[name] = getattr(where, name)
    return found
