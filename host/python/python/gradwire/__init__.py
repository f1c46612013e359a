"""Compressed gradient exchange for PyTorch's DistributedDataParallel and FSDP2.

    import gradwire

    state = gradwire.attach(ddp, plan="low-rank:16")

docs/training.md says which plan to choose, and what is not supported. `python -m gradwire serve` is a parameter server, without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._native import Error, Plan, __version__

if TYPE_CHECKING:
    from gradwire._attach import attach
    from gradwire._hook import hook
    from gradwire._link import Link
    from gradwire._report import Report
    from gradwire._served import ServedOptimizer
    from gradwire._state import State
    from gradwire.codec import register
    from gradwire.device.fsdp import CodedReduceScatter, ShardedState
    from gradwire.local.steps import LocalReport, LocalSteps

__all__ = [
    "CodedReduceScatter",
    "Error",
    "Link",
    "LocalReport",
    "LocalSteps",
    "Plan",
    "Report",
    "ServedOptimizer",
    "ShardedState",
    "State",
    "__version__",
    "attach",
    "hook",
    "register",
]


def __getattr__(name: str) -> Any:
    """Loads names that need torch when they are first used: a server's host has no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradwire import _attach, _hook, _link, _report, _served, _state, codec
    from gradwire.device import fsdp
    from gradwire.local import steps

    where = {
        "CodedReduceScatter": fsdp,
        "Link": _link,
        "LocalReport": steps,
        "LocalSteps": steps,
        "Report": _report,
        "ServedOptimizer": _served,
        "ShardedState": fsdp,
        "State": _state,
        "attach": _attach,
        "hook": _hook,
        "register": codec,
    }
    found = globals()[name] = getattr(where[name], name)
    return found
