"""FSDP2 (`fully_shard`): the coded exchange between hosts of what each rank has a shard of, and a coded reduce-scatter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from gradwire._names import Names
from gradwire._native import Error
from gradwire._report import Report
from gradwire._residuals import Place
from gradwire.codec import Codec
from gradwire.device.bucket import SMALL, Bucket, Layout
from gradwire.device.exchange import Group, gathered
from gradwire.device.over_group import OverGroup, check
from gradwire.device.plan import PREFIX, group_plan


def sharded_modules(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the modules that `fully_shard` was given, by name: none of another torch."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return {}
    return {name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)}


class ShardedState:
    """The exchange of an FSDP2 model between hosts: `attach` returns it. All ranks make it together.

    FSDP scatters and sums gradients inside a host; of what a rank owns then, it exchanges messages with the same rank of other hosts.
    The residual is as large as that, and a checkpoint fits the same rank of as many ranks.
    """

    def __init__(self, modules: dict[str, Any], plan: str, group: dist.ProcessGroup, exact_iterations: int | None) -> None:
        check_shards(modules, group)
        text = plan.removeprefix(PREFIX)
        if text == "auto" or (read := group_plan(text)).rank is not None or read.by_host:
            raise Error(f"plan {plan!r} of an FSDP model, which sums inside hosts, and whose shards are no matrices: use q8, q4, 3lc or bf16")
        device = next(iter(modules.values())).parameters().__next__().device
        names = Names(None)
        place = Place("group", dist.get_rank(), dist.get_world_size())
        self._over = OverGroup(text, group, names, device, exact_iterations=exact_iterations, inline=True, place=place)
        self._buckets: dict[str, Bucket] = {}
        # Of this iteration.
        self._seen: set[str] = set()
        for name, module in modules.items():
            module.set_all_reduce_hook(lambda values, name=name: self._hook(name, values))

    def _hook(self, name: str, values: torch.Tensor) -> None:
        if not self._seen or name in self._seen:
            self._over.end()
            self._seen.clear()
            self._over.begin()
        self._seen.add(name)
        if name not in self._buckets:
            # Without a model, OverGroup takes names of numbers.
            layout = Layout((f"parameter.{name}",), ((values.numel(),),))
            self._buckets[name] = self._over.add(layout, values)
        self._over.exchange(self._buckets[name], values.view(-1)).wait()

    def report(self) -> Report:
        """Returns the costs of all exchanges so far."""
        return self._over.report()

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of a checkpoint: each rank saves its own."""
        self._over.end()
        return self._over.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Goes on from this rank's part of a checkpoint."""
        if not isinstance(saved, dict):
            raise Error("states of several ranks: each rank of an FSDP model takes its own alone, since each has another shard")
        self._over.end()
        self._seen.clear()
        self._over.load_state_dict(saved)

    def drain(self) -> None:
        """Waits for all exchanges under way."""
        self._over.drain()

    def close(self) -> None:
        """Ends the exchange. The model keeps its hooks."""
        self._over.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire state cannot be pickled or copied: save its state_dict()")


class CodedReduceScatter:
    """FSDP's reduce-scatter where shards span hosts: `FSDPModule.set_custom_reduce_scatter` takes it.

    It keeps no residual, which would be as large as the whole model at every rank; so its codec is q8, which loses least.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._groups: dict[dist.ProcessGroup, Group] = {}

    @property
    def sent_bytes(self) -> int:
        return sum(group.sent_bytes for group in self._groups.values())

    def allocate(self, size: Iterable[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """FSDP's way to get a tensor."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        """Reduces and scatters, as `reduce_scatter_tensor` does."""
        if async_op:
            raise Error("a coded reduce-scatter with async_op=True: FSDP asks for none")
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise Error(f"a coded reduce-scatter with {op}: leave out set_gradient_divide_factor, or scale the loss")
        check(input_tensor.device, input_tensor.dtype)
        n = output_tensor.numel()
        if n < SMALL:
            dist.reduce_scatter_tensor(output_tensor, input_tensor, op=dist.ReduceOp.SUM, group=group)
            if op == dist.ReduceOp.AVG:
                output_tensor /= dist.get_world_size(group)
            return None
        mine = self._groups.setdefault(group, Group(group))
        total = mine.sum_of_part(input_tensor.view(mine.ranks, n).to(torch.float32), self._codec)
        output_tensor.view(-1).copy_(total / mine.ranks if op == dist.ReduceOp.AVG else total)
        return None


def check_shards(modules: dict[str, Any], group: dist.ProcessGroup) -> None:
    """Raises Error if this group's ranks do not hold the same shards."""
    me = dist.get_rank()
    between = set(dist.get_process_group_ranks(group))
    if me not in between:
        raise Error(f"rank {me} is not in the group: give the group between hosts that has this rank, as mesh['host'].get_group() is")
    shapes = []
    for name, module in modules.items():
        for parameter in module.parameters():
            mesh, placements = parameter.device_mesh, parameter.placements
            if any(placement.is_replicate() for placement in placements):
                raise Error(
                    f"module {name or 'root'} is sharded and replicated by FSDP itself (HSDP), whose all-reduce no hook replaces: shard inside the "
                    "host only, fully_shard(model, mesh=mesh['gpu']), and give attach group=mesh['host'].get_group()"
                )
            shared = between & set(mesh.mesh.flatten().tolist()) - {me}
            if shared:
                raise Error(
                    f"ranks {sorted(shared)} are in the group, and hold other shards of module {name or 'root'}: give the group between hosts, "
                    "whose ranks hold the same"
                )
            shapes.append((tuple(parameter.shape), mesh.get_coordinate()))
    everybody = gathered(shapes, group)
    for rank, theirs in enumerate(everybody):
        if theirs != everybody[0]:
            raise Error(f"rank {rank} of the group holds other shards than rank 0: start as many ranks on each host, and give all the same model")
