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
    from gradwire._hook import hook
    from gradwire._link import Link
    from gradwire._report import Report
    from gradwire._served import ServedOptimizer
    from gradwire._state import State

__all__ = ["Error", "Link", "Plan", "Report", "ServedOptimizer", "State", "__version__", "hook"]


def __getattr__(name: str) -> Any:
    """Loads names that need torch when they are first used: a server's host has no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradwire import _hook, _link, _report, _served, _state

    where = {"Link": _link, "Report": _report, "ServedOptimizer": _served, "State": _state, "hook": _hook}
    found = globals()[name] = getattr(where[name], name)
    return found
