"""The hook by itself: DDP looks at its annotations, and they must not be strings there."""

import torch
import torch.distributed as dist

from gradwire._state import State


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's communication hook: `ddp.register_comm_hook(state, gradwire.hook)`."""
    return state._hook(bucket)
