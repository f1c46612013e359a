"""Compressed gradient exchange for PyTorch's DistributedDataParallel.

    import gradwire

    state = gradwire.State(gradwire.Link(), plan="low-rank:16")
    ddp.register_comm_hook(state, gradwire.hook)

docs/training.md says which plan to choose, and what is not supported.
"""

from gradwire._ddp import Link, Report, State
from gradwire._hook import hook
from gradwire._native import Error, Plan, __version__

__all__ = ["Error", "Link", "Plan", "Report", "State", "__version__", "hook"]
