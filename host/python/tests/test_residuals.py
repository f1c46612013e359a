"""Residuals when a step is skipped, the loss is scaled, a parameter is unused, and so on: the rows of docs/training.md.

Each test compares with a sum in f64: what all ranks gave is what was applied, and what residuals still have.
"""

import copy
import struct
import unittest

import gradwire
import torch
import torch.distributed as dist
from ranks import digest, gathered, run, weights
from test_ddp import batch, hooked, net, sgd, step
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

LOSSY = ["3lc:1:1024", "low-rank:4", "dgc:5", "onebit:1024", "q8", "hierarchy:1:3lc:1:1024"]


def residuals(state):
    """By name, from a checkpoint's bytes (`Residuals::save`), or from its tensors."""
    saved = state.state_dict().get("residuals", {})
    if isinstance(saved, dict):
        return {name: values.double().flatten() for name, values in saved.items()}
    data = saved.numpy().tobytes()
    at = 8

    def count():
        nonlocal at
        at += 4
        return struct.unpack_from("<I", data, at - 4)[0]

    def several(size):
        nonlocal at
        length = count()
        at += size * length
        return data[at - size * length : at]

    found = {}
    for _ in range(count()):
        name, values, _codec = several(1).decode(), several(4), several(1)
        for _ in range(count()):
            several(4)
        found[name] = torch.frombuffer(bytearray(values), dtype=torch.float32).double() if values else torch.zeros(0)
    assert at == len(data) - 8, (at, len(data))
    return found


class Balance:
    """Sums over all ranks, and all iterations whose step was applied."""

    def __init__(self, module, state):
        self.module, self.state = module, state
        self.given = {name: torch.zeros(parameter.numel(), dtype=torch.float64) for name, parameter in module.named_parameters()}
        self.applied = copy.deepcopy(self.given)

    def add(self, given, scale=1.0):
        """Returns the gradient of this rank's own backward pass, and what DDP left in `.grad`."""
        for name, parameter in self.module.named_parameters():
            if given[name] is not None:
                self.given[name] += given[name].double().flatten() / scale
            if parameter.grad is not None:
                self.applied[name] += parameter.grad.double().flatten()

    def off(self):
        """By parameter: what is missing, and the residual, as parts of what was given."""
        kept = residuals(self.state)
        said = {}
        for name, given in self.given.items():
            left = kept.get(name, torch.zeros_like(given))
            for tensor in (given, left):
                dist.all_reduce(tensor)
            missing = given - dist.get_world_size() * self.applied[name] - left
            said[name] = ((missing.norm() / given.norm()).item(), (left.norm() / given.norm()).item())
        return said


def own_gradients(module, loss):
    """Those of a copy, so that DDP has no part in them."""
    alone = copy.deepcopy(module)
    alone.zero_grad(set_to_none=True)
    loss(alone).backward()
    return {name: parameter.grad for name, parameter in alone.named_parameters()}


class Imitated:
    """`torch.cuda.amp.GradScaler`'s arithmetic; that of torch 1.13 needs CUDA."""

    def __init__(self, init_scale, growth_interval):
        self.now, self.interval, self.since = float(init_scale), growth_interval, 0
        self.found = False

    def get_scale(self):
        return self.now

    def scale(self, loss):
        return loss * torch.tensor(self.now)

    def unscale_(self, optimizer):
        inverse = torch.tensor(self.now).double().reciprocal().float()
        gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
        self.found = any(not gradient.isfinite().all() for gradient in gradients)
        [gradient.mul_(inverse) for gradient in gradients]

    def step(self, optimizer):
        if not self.found:
            optimizer.step()

    def update(self, new_scale=None):
        if new_scale is not None:
            self.now = new_scale
        elif self.found:
            self.now, self.since = self.now * 0.5, 0
        else:
            self.since += 1
            if self.since == self.interval:
                self.now, self.since = self.now * 2, 0


SCALERS = [Imitated]
if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
    SCALERS.append(lambda *args, **options: torch.amp.GradScaler("cpu", *args, **options))


def scaled(rank, plan, told, make):
    """Overflows at one rank: of the loss, and of one value of one gradient. The scale falls, falls far, and rises."""
    module, scaler = net(), SCALERS[make](init_scale=2.0**16, growth_interval=4)
    if plan is None:
        ddp, state = DistributedDataParallel(module, bucket_cap_mb=0.02), None
    else:
        ddp, state = hooked(module, plan, model=module, **({"scaler": scaler} if told else {}))
    optimizer, balance = torch.optim.SGD(ddp.parameters(), lr=0.05), Balance(module, state)
    scales = []
    for iteration in range(20):
        x, y = batch(rank, iteration)
        scale = scaler.get_scale()
        scales.append(scale)

        def loss(model):
            return scaler.scale(torch.nn.functional.cross_entropy(model(x), y))

        overflows = iteration in (4, 8)
        before = (digest(ddp), state and residuals(state))
        own = own_gradients(module, loss)
        hook = None
        if (rank, iteration) == (0, 8):
            spike = torch.zeros_like(module[2].weight)
            spike[3, 5] = float("inf")
            hook = module[2].weight.register_hook(lambda gradient: gradient + spike)
        optimizer.zero_grad()
        (loss(ddp) * (float("inf") if (rank, iteration) == (1, 4) else 1)).backward()
        if hook:
            hook.remove()
        scaler.unscale_(optimizer)
        if not overflows:
            balance.add(own, scale)
        scaler.step(optimizer)
        assert (digest(ddp) == before[0]) == overflows, iteration
        if told and overflows and state:
            now = residuals(state)
            assert before[1].keys() == now.keys() and all(torch.equal(now[name], before[1][name]) for name in now), iteration
        scaler.update(*([2.0**9] if iteration == 11 else []))
    assert len(set(gathered(digest(ddp)))) == 1
    off = state and balance.off()
    if state:
        state.close()
    return scales, off, weights(ddp).tolist()


def scaled_plans(rank, plans, told, make):
    return {plan: scaled(rank, plan, told, make) for plan in plans}


class Rare(torch.nn.Module):
    """Has a part that few batches use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body, self.rare, self.head = torch.nn.Linear(64, 60), torch.nn.Linear(60, 60), torch.nn.Linear(60, 10)

    def forward(self, x, rare):
        x = self.body(x).relu()
        return self.head(x + self.rare(x) if rare else x)


def unused(rank, plan, options):
    module = Rare()
    ddp, state = hooked(module, plan, model=module, options={"find_unused_parameters": True, **options})
    optimizer, balance = torch.optim.SGD(ddp.parameters(), lr=0.05), Balance(module, state)
    for iteration in range(18):
        # All ranks, none, one, none.
        rare = (True, False, rank == iteration // 4 % 2, False)[iteration % 4]
        x, y = batch(rank, iteration)

        def loss(model):
            return torch.nn.functional.cross_entropy(model(x, rare), y)

        own = own_gradients(module, loss)
        optimizer.zero_grad(set_to_none=True)
        loss(ddp).backward()
        assert (module.rare.weight.grad is None) == (iteration % 2 == 1), iteration
        balance.add(own)
        optimizer.step()
    assert len(set(gathered(digest(ddp)))) == 1
    off = balance.off()
    state.close()
    return off


def unused_plans(rank, plans):
    options = ({}, {"gradient_as_bucket_view": True})
    return {(plan, tuple(more)): unused(rank, plan, more) for plan in plans for more in options}


def other_plans(rank, pairs):
    """Each plan goes on from the checkpoint of another."""
    said = {}
    for before, after in pairs:
        module = net()
        ddp, state = hooked(module, before, model=module)
        balance = Balance(module, state)
        for iteration in range(8):
            if iteration == 4:
                saved = state.state_dict()
                state.close()
                ddp, state = hooked(module, after, model=module)
                state.load_state_dict(saved)
                balance.state = state
            x, y = batch(rank, iteration)

            def loss(model):
                return torch.nn.functional.cross_entropy(model(x), y)

            own = own_gradients(module, loss)
            ddp.zero_grad(set_to_none=True)
            loss(ddp).backward()
            balance.add(own)
        said[before, after] = balance.off()
        state.close()
    return said


def joined(rank, divide):
    """Rank 1 has fewer batches."""
    found = []
    for hook in ("ours", "torch's", "none"):
        if hook == "ours":
            ddp, state = hooked(net(), "f32")
        else:
            ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
        if hook == "torch's":
            ddp.register_comm_hook(None, allreduce_hook)
        optimizer = sgd(ddp)
        with ddp.join(divide_by_initial_world_size=divide):
            for iteration in range(3 - rank):
                step(ddp, optimizer, rank, iteration)
        if hook == "ours":
            state.close()
        found.append(weights(ddp).tolist())
    return found


class Wrapped(torch.nn.Module):
    """Names that differ in "module." alone, which is no prefix of DDP's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.head, self.module = torch.nn.Linear(64, 64), torch.nn.Sequential()
        self.module.add_module("head", torch.nn.Linear(64, 64))

    def forward(self, x):
        return self.module.head(self.head(x).relu())


def names(rank):
    said = []
    for which in ("module", "ddp"):
        module = Wrapped()
        ddp = DistributedDataParallel(module)
        state = gradwire.State(gradwire.Link(), "q8", model=module if which == "module" else ddp)
        ddp.register_comm_hook(state, gradwire.hook)
        step(ddp, sgd(ddp), rank, 0)
        said.append(sorted(residuals(state)))
        state.close()
    return said


def nothing_held(rank):
    ddp, state = hooked(net(), "f32")
    step(ddp, sgd(ddp), rank, 0)
    size = state.state_dict()["residuals"].numel()
    state.close()
    return size


def other_names(rank):
    said = []
    for before, after in ((False, True), (True, False), (True, True), (False, False)):
        module = net()
        ddp, state = hooked(module, "3lc:1:1024", model=module if before else None)
        step(ddp, sgd(ddp), rank, 0)
        saved = state.state_dict()
        state.close()
        ddp, state = hooked(module, "3lc:1:1024", model=module if after else None)
        try:
            state.load_state_dict(saved)
            said.append("loaded")
        except ValueError as error:
            said.append(str(error))
        state.close()
    return said


def refused(rank):
    said = []
    for options in ({"pipeline": True}, {"server": "127.0.0.1:9"}):
        try:
            gradwire.State(gradwire.Link(), "q8", scaler=Imitated(8, 1), **options)
        except ValueError as error:
            said.append(str(error))
    ddp = DistributedDataParallel(net(), find_unused_parameters=True)
    try:
        gradwire.State(gradwire.Link(), "q8", pipeline=True, model=ddp)
    except ValueError as error:
        said.append(str(error))
    ddp, state = hooked(net(), "q8", scaler=Imitated(float("inf"), 1))
    try:
        step(ddp, sgd(ddp), rank, 0)
    except RuntimeError as error:
        said.append(str(error))
    state.close()
    return said


class Residuals(unittest.TestCase):
    def test_nothing_is_lost_when_steps_are_skipped_and_the_scale_changes(self):
        for make in range(len(SCALERS)):
            for said in run(scaled_plans, 2, LOSSY, True, make):
                for plan, (scales, offs, _) in said.items():
                    self.assertEqual(scales[:12], [2.0**16] * 4 + [2.0**17] + [2.0**16] * 4 + [2.0**15] * 3, plan)
                    self.assertEqual(scales[12], 2.0**9)
                    self.assertGreater(max(scales[13:]), 2.0**9)
                    for name, (missing, _) in offs.items():
                        self.assertLess(missing, 1e-5, (plan, name))
                    self.assertGreater(max(kept for _, kept in offs.values()), 0.001, plan)

    def test_a_state_that_is_not_told_of_the_scaler_says_what_that_costs(self):
        # So the test above is able to fail.
        for said in run(scaled_plans, 2, ["3lc:1:1024", "low-rank:4", "dgc:5"], False, 0):
            for plan, (_, offs, _) in said.items():
                self.assertGreater(max(missing for missing, _ in offs.values()), 0.1, plan)

    def test_with_a_scaler_f32_is_as_ddp_without_a_hook(self):
        for make in range(len(SCALERS)):
            for said in run(scaled_plans, 2, ["f32", None], True, make):
                (ours, _, mine), (theirs, _, other) = said["f32"], said[None]
                self.assertEqual(ours, theirs)
                torch.testing.assert_close(torch.tensor(mine), torch.tensor(other), rtol=0, atol=1e-6)

    def test_nothing_is_lost_of_a_parameter_that_no_rank_used(self):
        for said in run(unused_plans, 2, LOSSY):
            for case, offs in said.items():
                for name, (missing, _) in offs.items():
                    self.assertLess(missing, 1e-5, (case, name))
                self.assertGreater(offs["rare.weight"][1], 0.001, case)

    def test_another_plan_takes_over(self):
        for said in run(other_plans, 2, [("3lc:1:1024", "low-rank:4"), ("low-rank:4", "onebit:1024"), ("dgc:5", "f32")]):
            for plans, offs in said.items():
                for name, (missing, _) in offs.items():
                    self.assertLess(missing, 1e-5, (plans, name))

    def test_a_checkpoint_with_other_names_is_refused(self):
        for said in run(other_names, 2):
            self.assertRegex(said[0], r"residuals of parameter\.\d+,.*has parameters of other names.*give State the model if")
            self.assertRegex(said[1], r"residuals of 0\.weight,.*made without model=.*give State the model if")
            self.assertEqual(said[2:], ["loaded"] * 2)

    def test_settings_that_would_lose_gradients_are_refused(self):
        for said in run(refused, 2):
            self.assertEqual(len(said), 4, said)
            for text in said[:2]:
                self.assertRegex(text, "neither pipeline=True.*nor a server.*bfloat16")
            self.assertRegex(said[2], "pipeline=True with find_unused_parameters=True.*leave one of them out")
            self.assertRegex(said[3], "the scaler's scale is inf")

    def test_names_lose_no_prefix_but_ddps(self):
        expected = [f"{name}.weight" for name in ("head", "module.head")]
        for said in run(names, 2):
            for found in said:
                self.assertEqual([name for name in found if "weight" in name], expected)

    def test_a_checkpoint_of_nothing_has_no_bytes_of_it(self):
        for size in run(nothing_held, 2):
            self.assertLess(size, 100)


class Joining(unittest.TestCase):
    def test_joined_ranks_count_as_with_torchs_own_hooks(self):
        for divide in (True, False):
            for ours, theirs, none in run(joined, 2, divide):
                ours, theirs, none = map(torch.tensor, (ours, theirs, none))
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
                # A hook is not told how many ranks are left.
                self.assertEqual((ours - none).abs().max().item() < 1e-6, divide)


if __name__ == "__main__":
    unittest.main()
