"""Buckets over the process group that the script has: coded where they are, on an accelerator or on the CPU."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable
from typing import Any, Callable

import torch
import torch.distributed as dist

from gradwire import _auto
from gradwire._hosts import BY_HOST, ranks_by_host, this_host
from gradwire._names import Names
from gradwire._native import Error, __version__
from gradwire._report import Report
from gradwire._residuals import COMPARE_EVERY, Place
from gradwire.codec import identity
from gradwire.device.bucket import Bucket, Layout, shared
from gradwire.device.exchange import Group, checksum, gathered
from gradwire.device.lane import Inline, StreamLane, ThreadLane, later
from gradwire.device.plan import group_plan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LOG = logging.getLogger("gradwire")


def check(device: torch.device, dtype: torch.dtype) -> None:
    """Raises Error if values on that device, or of that type, cannot be exchanged over a process group."""
    if not hasattr(torch, "get_device_module") or not hasattr(torch.distributed, "all_gather_into_tensor"):
        raise Error(
            f"torch {torch.__version__} has no collectives of whole tensors on all devices: buckets over a process group need torch 2.4 or newer"
        )
    if device.type not in ("cpu", "cuda", "xpu"):
        raise Error(f"tensors on {device}: gradwire serves the CPU, CUDA, ROCm and XPU")
    if dtype not in DTYPES:
        raise Error(f"gradients of {dtype}: gradwire serves {', '.join(map(str, DTYPES))}")


class OverGroup:
    """The exchange of a `State` over a process group. All its ranks make it together.

    The first iterations, `exact_iterations` of them, have no codec. `inner` are the ranks of this host, if they sum before hosts do; the
    group then has one rank of each host. A plan may say so, too, and then the group has all ranks.
    With `inline`, an exchange has ended, or is in the current stream, when `exchange` returns. `place` is this rank's in a checkpoint.
    """

    def __init__(
        self,
        plan: str,
        group: dist.ProcessGroup | None,
        names: Names,
        device: torch.device,
        *,
        scaler: Any = None,
        exact_iterations: int | None = None,
        may_be_unused: bool = True,
        inner: list[int] | None = None,
        inline: bool = False,
        place: Place | None = None,
    ) -> None:
        self._undecided = plan == "auto"
        self.plan = group_plan("f32" if self._undecided else plan)
        self._exact = self.plan.exact_iterations if exact_iterations is None else exact_iterations
        said = (BY_HOST if self.plan.by_host else "") + identity(plan.removeprefix(BY_HOST))
        hosts = self._agree((__version__, said, self._exact, scaler is not None), group)
        self._device, self._names, self._scaler, self._may_be_unused = device, names, scaler, may_be_unused
        self._why = ""
        self.path = str(dist.get_backend(group))
        given = group
        if self.plan.by_host:
            group, inner = self._by_host(hosts, group)
        if inner is not None:
            inner_group = dist.new_group(inner, use_local_synchronization=True)
        if device.type == "cpu" and not inline and group is given:
            # DDP's own messages have another thread, and those of two threads would mix.
            group = dist.new_group(dist.get_process_group_ranks(group or dist.group.WORLD), use_local_synchronization=True)
        self.group, self._inner = Group(group), None if inner is None else Group(inner_group)
        ranks_a_host, rank_in_host = (1, 0) if self._inner is None else (self._inner.ranks, self._inner.rank)
        self._place = place or Place("group", self.group.rank * ranks_a_host + rank_in_host, self.group.ranks * ranks_a_host)
        # Ranks of a host wait for each other, too.
        groups = [each for each in (self.group, self._inner) if each is not None]
        self._lane = Inline() if inline else ThreadLane(*groups) if device.type == "cpu" else StreamLane(device)
        self.close = weakref.finalize(self, self._lane.close)
        self._buckets: list[Bucket] = []
        self._by_parameters: dict[tuple[int, ...], Bucket] = {}
        # Of a checkpoint, until their buckets take them.
        self._resumed: dict[str, torch.Tensor] = {}
        self._resumed_factors: dict[str, torch.Tensor] = {}
        self._iteration = self._since_start = 0
        # The iteration that is logged, and what was sent before it.
        self._announce, self._sent_before = 0, 0
        self._scale: torch.Tensor | None = None
        # Of this iteration: its buckets, whether all means are finite, and the sums of their bits.
        self._exchanged: list[Bucket] = []
        self._finite: torch.Tensor | None = None
        self._bits: torch.Tensor | None = None
        # The iteration of the last comparison, and what returns its result.
        self._compared: tuple[int, Callable[[], Any]] | None = None
        self._trials: list[float] = []
        self._values = self._uncoded_values = 0

    def _agree(self, mine: tuple[Any, ...], group: dist.ProcessGroup | None) -> list[str]:
        """Returns each rank's host. Error if ranks were given different things."""
        everybody = gathered((mine, this_host()), group)
        for rank, (theirs, _) in enumerate(everybody):
            if theirs != everybody[0][0]:
                raise Error(f"rank {rank} has {_said(theirs)}, rank 0 {_said(everybody[0][0])}: give all ranks the same")
        return [host for _, host in everybody]

    def _by_host(self, hosts: list[str], group: dist.ProcessGroup | None) -> tuple[dist.ProcessGroup | None, list[int] | None]:
        """Returns the group between hosts that has this rank, and the ranks of this host, if it has several; or else the group as it is."""
        by_host = ranks_by_host(hosts)
        if len(by_host) == 1 and self.plan.coded:
            self.plan, self._why = group_plan("f32"), f"all {len(hosts)} ranks are on host {hosts[0]}, and {self.plan} codes between hosts"
            if dist.get_rank() == 0:
                LOG.warning("nothing is coded: %s", self._why)
        if 1 in (len(by_host), len(by_host[0])):
            return group, None
        ranks, rank = dist.get_process_group_ranks(group or dist.group.WORLD), dist.get_rank(group)
        mine = next(each for each in by_host if rank in each)
        between = dist.new_group([ranks[each[mine.index(rank)]] for each in by_host], use_local_synchronization=True)
        return between, [ranks[each] for each in mine]

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's hook."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        key = tuple(map(id, parameters))
        if key not in self._by_parameters:
            self._replace(key)
            layout = Layout(tuple(map(self._names.name, parameters)), tuple(tuple(each.shape) for each in parameters))
            self._by_parameters[key] = self.add(layout, buffer)
        if bucket.index() == 0:
            self.begin()
        return self.exchange(self._by_parameters[key], buffer, last=bucket.is_last())

    def _replace(self, key: tuple[int, ...]) -> None:
        """Takes what buckets hold of these parameters: DDP makes its buckets anew once or twice at the start."""
        for old, bucket in list(self._by_parameters.items()):
            if set(old) & set(key):
                del self._by_parameters[old]
                self._buckets.remove(bucket)
                for resumed, more in zip((self._resumed, self._resumed_factors), bucket.saved(self.group)):
                    resumed.update(more)

    def exchange(self, bucket: Bucket, values: torch.Tensor, *, last: bool = False) -> torch.futures.Future[torch.Tensor]:
        """Replaces the bucket's `values` by their mean over the ranks, in the background. The `last` one ends the iteration."""
        number = self._iteration
        coded = self._since_start > self._exact
        if coded and self._resumed:
            bucket.take(self._resumed, self._resumed_factors)

        def job() -> None:
            plan = self.plan if coded else group_plan("f32")
            uncoded = bucket.n if not plan.coded else None
            mine = values if self._inner is None else self._inner.exact_mean_of_part(values)
            mean = bucket.exchange(self.group, plan, mine, self._scale)
            if self._inner is not None:
                self._inner.put_parts(mine, values)
            self._values += bucket.n
            self._uncoded_values += bucket.exact_values if uncoded is None else uncoded
            self._note(bucket, mean, values, number)
            if last:
                self._end(number)

        return self._lane.run(job, values)

    def add(self, layout: Layout, buffer: torch.Tensor) -> Bucket:
        """Returns a new bucket of these parameters, for the flat `buffer` that they are in; with inner ranks, of this rank's piece of it."""
        check(buffer.device, buffer.dtype)
        if self._inner is not None:
            piece = self._inner.part(buffer.numel(), 1)
            layout = layout.piece(self._inner.rank * piece, piece)
            buffer = buffer.new_empty(piece)
        self._buckets.append(Bucket(layout, buffer, may_be_unused=self._may_be_unused, skips=self._scaler is not None))
        return self._buckets[-1]

    def begin(self) -> None:
        """Begins an iteration, on the thread of the backward pass."""
        self._check_replicas()
        self._iteration += 1
        self._since_start += 1
        if self._scaler is not None:
            # Not get_scale(), which would wait for the device.
            self._scale = self._scaler.scale(torch.ones((), device=self._device))
        if self._since_start == self._exact + 1 and self.plan.coded:
            self._announce = self._iteration
        if self._undecided and self._since_start >= _auto.TRIAL:
            self._lane.post(self._next_trial)
            self._undecided = self._since_start < _auto.TRIAL + _auto.GROUP.all

    def _check_replicas(self) -> None:
        """Raises Error if a comparison has ended, and replicas differ."""
        if self._compared is None or (result := self._compared[1]()) is None:
            return
        iteration, (most, least) = self._compared[0], result
        self._compared = None
        if most != -least:
            raise Error(
                f"iteration {iteration}: replicas have different gradients after the exchange; do all ranks have the same hardware, "
                "torch and gradwire, and take the same buckets?"
            )

    def _say(self) -> None:
        """Logs what the first iteration with a codec sent: nobody is to think that a run is compressed if it is not."""
        values = sum(each.n for each in self._exchanged)
        coded = values - sum(each.exact_values for each in self._exchanged)
        ring = 2 * (self.group.ranks - 1) / self.group.ranks * sum(each.n * each.element_size for each in self._exchanged)
        sent = self.group.sent_bytes - self._sent_before
        if dist.get_rank():
            return
        level = logging.INFO if 2 * sent <= ring or not self.plan.coded else logging.WARNING
        LOG.log(
            level,
            "rank %d of %d: from iteration %d on, %s codes %d of %d values on %s, and sends %.1f kB an iteration over %s, where its own all-reduce "
            "would send %.1f kB",
            *(self._place.rank, self._place.ranks, self._iteration, self.plan, coded, values, self._device, sent / 1000, self.path, ring / 1000),
        )

    def end(self) -> None:
        """Ends an iteration that has exchanged something, if no bucket was said to be its last."""
        if self._exchanged:
            self._lane.post(lambda: self._end(self._iteration))

    def _note(self, bucket: Bucket, mean: torch.Tensor, values: torch.Tensor, number: int) -> None:
        self._exchanged.append(bucket)
        if self._scaler is not None:
            # As the scaler sees it: in the gradient's dtype, with the pieces of other ranks here.
            finite = values.isfinite().all()
            self._finite = finite if self._finite is None else self._finite & finite
        if number % COMPARE_EVERY == 1:
            bits = checksum(mean)
            self._bits = bits if self._bits is None else self._bits + bits

    def _end(self, number: int) -> None:
        """Ends an iteration with its last bucket."""
        if number == self._announce:
            self._say()
        self._sent_before = self.group.sent_bytes
        for each in self._exchanged:
            # All ranks have the same bits, and skip the step together.
            each.commit(self._finite)
        if self._bits is not None:
            self._compared = number, later(self.group.largest(torch.stack((self._bits, -self._bits))))
        self._exchanged, self._finite, self._bits = [], None, None

    def _next_trial(self) -> None:
        """Begins an iteration of `auto`'s trials, or chooses after the last one: as the slowest rank saw each, so all choose the same."""
        self._trials.append(time.monotonic())
        trials = _auto.GROUP
        if len(self._trials) <= trials.all:
            self.plan = group_plan(trials.plan(len(self._trials) - 1))
            return
        took = torch.tensor([end - began for began, end in zip(self._trials, self._trials[1:])], device=self._device)
        text, self._why = trials.choose(self.group.largest(took).tolist())
        self.plan = group_plan(text)
        if self.group.rank == 0:
            LOG.info("auto chose %s: %s", self.plan, self._why)

    def drain(self) -> None:
        self._lane.drain()
        self._check_replicas()

    def report(self) -> Report:
        self.drain()
        residual = max((each.largest_residual(self.group) for each in self._buckets), default=0.0)
        return Report(
            self.path,
            str(self.plan),
            self._why,
            self._place.rank,
            self._place.ranks,
            self.group.ranks,
            self._iteration,
            self._values,
            self._uncoded_values,
            self.group.sent_bytes,
            self._lane.seconds(),
            0.0,
            residual,
        )

    def state_dict(self) -> dict[str, Any]:
        self.drain()
        residuals, factors = dict(self._resumed), dict(self._resumed_factors)
        for bucket in self._buckets:
            for all_so_far, more in zip((residuals, factors), bucket.saved(self.group)):
                all_so_far.update(more)
        residuals = {name: values.cpu() for name, values in residuals.items() if values.any()}
        factors = {name: values.cpu() for name, values in factors.items()}
        plan = "auto" if self._undecided else self.plan.text
        ranks_a_host = self._place.ranks // self.group.ranks
        return self._place.state(plan, self._iteration, {"ranks_a_host": ranks_a_host, "residuals": residuals, "factors": factors})

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        self.drain()
        states, own = self._place.checked(saved)
        # Ranks of a host had a piece each.
        residuals = shared([one["residuals"] for one in states], 1 if own else len(states) // states[0].get("ranks_a_host", 1))
        self._names.check(set(residuals))
        first = states[0]
        if self._undecided and first["plan"] != "auto":
            self.plan, self._why, self._undecided = group_plan(first["plan"].removeprefix(BY_HOST)), "decided before the checkpoint", False
        for bucket in self._buckets:
            bucket.reset()
        self._trials.clear()
        self._resumed, self._resumed_factors = residuals, dict(first["factors"])
        self._iteration, self._since_start = (
            0 if self._undecided else first["iteration"],
            min(self._since_start, self._exact) if not self._undecided else 0,
        )


def _said(mine: tuple[Any, ...]) -> str:
    version, plan, exact, scaled = mine
    return f"gradwire {version}, plan {plan!r} from iteration {exact + 1} on and {'a' if scaled else 'no'} scaler"
