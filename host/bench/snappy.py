"""A hook of DDP that sends gradients compressed by Snappy, in software: what INCEPTIONN compares its NIC with.

Each rank sums a part of the bucket, as gradwire's `servers` do. It needs PyPI's cramjam.
"""

import torch
import torch.distributed as dist


def hook(compresses: bool, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of the ranks' gradients; without `compresses`, by the same messages as they are."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    parts = list(bucket.buffer().tensor_split(dist.get_world_size()))
    me = dist.get_rank()
    for message in _exchanged([_message(part, compresses) for part in parts]):
        if message is not None:
            parts[me] += _values(message, compresses)
    mean = _message(parts[me].div_(len(parts)), compresses)
    for rank, message in enumerate(_exchanged([mean] * len(parts))):
        if message is not None:
            parts[rank].copy_(_values(message, compresses))
    done.set_result(bucket.buffer())
    return done


def _message(values: torch.Tensor, compresses: bool) -> torch.Tensor:
    import cramjam

    data = memoryview(values.numpy()).cast("B")
    return torch.frombuffer(bytearray(cramjam.snappy.compress_raw(data) if compresses else data), dtype=torch.uint8)


def _values(message: torch.Tensor, compresses: bool) -> torch.Tensor:
    import cramjam

    data = memoryview(message.numpy())
    return torch.frombuffer(bytearray(cramjam.snappy.decompress_raw(data) if compresses else data), dtype=torch.float32)


def _exchanged(messages: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """What the others sent this rank of what each sent each; None in this rank's own place."""
    ranks, me = len(messages), dist.get_rank()
    # gloo sends what the receiver knows the length of.
    lengths = [torch.zeros(ranks, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(message) for message in messages]))
    others = [(me + step) % ranks for step in range(1, ranks)]
    received = [None if rank == me else torch.empty(int(lengths[rank][me]), dtype=torch.uint8) for rank in range(ranks)]
    waits = [dist.irecv(received[rank], rank) for rank in others] + [dist.isend(messages[rank], rank) for rank in others]
    for wait in waits:
        wait.wait()
    return received
