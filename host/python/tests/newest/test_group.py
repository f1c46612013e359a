"""Buckets over a process group: against sums in f64, and against DDP without a hook."""

import contextlib
import itertools
import logging
import math
import os
import unittest
from unittest import mock

import gradwire
import torch
import torch.distributed as dist
from gradwire.device import exchange, over_group
from gradwire.device.bucket import Bucket, Layout
from gradwire.device.exchange import Group
from gradwire.device.plan import group_plan
from ranks import digest, finite, gathered, run, weights
from test_ddp import batch, hooked, net, sgd, step
from test_residuals import SCALERS, other_plans, scaled_plans, unused_plans
from torch.nn.parallel import DistributedDataParallel

LOSSY = ["group:3lc:1:320", "group:low-rank:4", "group:q8", "group:q4:64"]


def normal(n, rank, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(1000 * seed + rank))


def exchanged(rank, plan, sizes, dtype, iterations=3):
    """Returns the relative error of the sum of all means with the residual, and of the means alone; replicas have the same bits."""
    group, plan = Group(None), group_plan(plan)
    lens = [torch.Size(size).numel() for size in sizes]
    layout = Layout(tuple(map(str, range(len(sizes)))), sizes)
    n = sum(lens)
    bucket = Bucket(layout, torch.empty(n, dtype=dtype), may_be_unused=False, skips=False)
    given, delivered = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for iteration in range(iterations):
        values = normal(n, rank, iteration).to(dtype)
        mean = values.double()
        dist.all_reduce(mean)
        given += mean / group.ranks
        result = bucket.exchange(group, plan, values)
        assert values.dtype == dtype
        assert torch.equal(result.to(dtype), values), "values are the mean in their own dtype"
        assert len(set(gathered(result.numpy().tobytes()))) == 1, "replicas differ"
        delivered += result.double()
    left = torch.cat([bucket.saved(group)[0].get(str(at), torch.zeros(length)).double() for at, length in enumerate(lens)])
    dist.all_reduce(left)
    left /= group.ranks
    scale = max(given.norm().item(), 1e-30)
    return ((given - delivered - left).norm() / scale).item(), ((given - delivered).norm() / scale).item()


SHAPES = {
    "one value": ((1,),),
    "nothing": ((0,),),
    "small": ((700,), (33, 31)),
    "one vector": ((5000,),),
    "matrices and biases": ((90, 64), (90,), (70, 90), (70,), (1500,)),
    "many values": ((40001,),),
}


def laws(rank, plans, dtype):
    return {(plan, shape): exchanged(rank, plan, SHAPES[shape], dtype) for plan, shape in itertools.product(plans, SHAPES)}


def noted(name, begun):
    """A function of torch.distributed that says in `begun` that it began."""
    begin = getattr(dist, name)

    def note(*args, **options):
        begun.append(name)
        return begin(*args, **options)

    return note


def in_pieces(rank, cases):
    """What each of three iterations leaves at this rank, as bytes, with messages in one piece and in several; and the collectives that began.

    Rank 1 has kernels: all that it does has to fit what rank 0 does by torch operations.
    """
    os.environ["GRADWIRE_KERNELS"] = str(rank)
    group, lens = Group(None), [9000, 500, 4100]
    n = sum(lens)
    said = {}
    for name, may_be_unused in cases:
        plan, found = group_plan(name), []
        for piece_bytes in (1 << 16, 700):
            bucket = Bucket(Layout(tuple("abc"), tuple((length,) for length in lens)), torch.empty(n), may_be_unused=may_be_unused, skips=False)
            left, begun = [], []
            group.sent_bytes = 0
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.multiple(exchange, PIECES=4, PIECE_BYTES=piece_bytes))
                for each in ("all_to_all_single", "all_gather_into_tensor", "all_reduce"):
                    stack.enter_context(mock.patch.object(dist, each, noted(each, begun)))
                for iteration in range(3):
                    values = normal(n, rank, iteration)
                    if may_be_unused and iteration:
                        # At one rank, then at both.
                        values.split(lens)[0][:] *= 0 if iteration + rank > 1 else 1
                    if (rank, iteration) == (1, 1):
                        values[9600] = float("nan")
                    mean = bucket.exchange(group, plan, values)
                    left += [finite(each).numpy().tobytes() for each in (values, mean, bucket.residual, bucket.owned)] + [mean.isnan().sum().item()]
            found.append((left, group.sent_bytes, begun))
        said[name, may_be_unused] = found
    return said


def not_finite(rank, plan):
    """A value at one rank that is not finite reaches all, and the next iteration has nothing of it."""
    group, plan, sizes = Group(None), group_plan(plan), ((60, 50), (2000,), (9,))
    n = 3000 + 2000 + 9
    said = []
    for wrong, at in ((float("inf"), 5), (float("nan"), 3100), (-float("inf"), n - 1)):
        bucket = Bucket(Layout(("a", "b", "c"), sizes), torch.empty(n), may_be_unused=False, skips=False)
        found = []
        for iteration in range(4):
            values = normal(n, rank, iteration)
            if (rank, iteration) == (1, 1):
                values[at] = wrong
            bucket.exchange(group, plan, values)
            found.append((bool(values.isfinite().all()), bool(values[at].isfinite())))
            assert len(set(gathered(torch.where(values.isnan(), 0.0, values).numpy().tobytes()))) == 1
        said.append(found)
    return said


def trained(rank, plan, options, iterations=60):
    ddp, state = hooked(net(), plan, options=options)
    optimizer = sgd(ddp)
    losses = [step(ddp, optimizer, rank, iteration) for iteration in range(iterations)]
    assert len(set(gathered(digest(ddp)))) == 1
    report = state.report()
    state.close()
    return losses, report


def without_hook(rank, iterations=60):
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
    optimizer = sgd(ddp)
    return [step(ddp, optimizer, rank, iteration) for iteration in range(iterations)], weights(ddp).tolist()


def own_all_reduce(rank):
    """`group:f32` is DDP without a hook."""
    ddp, state = hooked(net(), "group:f32")
    optimizer = sgd(ddp)
    losses = [step(ddp, optimizer, rank, iteration) for iteration in range(12)]
    report = state.report()
    state.close()
    return losses, weights(ddp).tolist(), report


def sixteen_bits(rank, dtype, plan):
    """A model of 16 bits: buckets, and the residual. Without a plan, DDP has no hook."""
    if plan is None:
        ddp = DistributedDataParallel(net().to(dtype), bucket_cap_mb=0.02)
    else:
        ddp, state = hooked(net().to(dtype), plan)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
    losses = []
    for iteration in range(60):
        x, y = batch(rank, iteration)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x.to(dtype)).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert len(set(gathered(digest(ddp.float())))) == 1
    kept = None
    if plan is not None:
        kept = {values.dtype for values in state.state_dict()["residuals"].values()}
        state.close()
    return sum(losses[-5:]) / 5, losses[0], kept


def pieces(values, number):
    """Returns the values in so many parts, whose names have their ranges."""
    longest = math.ceil(len(values) / number)
    return {f"[{start}:{min(start + longest, len(values))}]": values[start : start + longest] for start in range(0, len(values), longest)}


def resumed(rank, ranks_before, plan, a_host_before=1, hosts=None):
    """Goes on from the states of `ranks_before` ranks; nothing that they had not sent is lost. Ranks of a host had, or have, a piece each."""
    module = net()
    names = [name for name, _ in module.named_parameters()]
    lens = {name: parameter.numel() for name, parameter in module.named_parameters()}
    saved = []
    for other in range(ranks_before):
        residuals = {name: normal(lens[name], other // a_host_before, 7) for name in names}
        if a_host_before > 1:
            cut = {name: list(pieces(values, a_host_before).items())[other % a_host_before] for name, values in residuals.items()}
            residuals = {name + part: values for name, (part, values) in cut.items()}
        state = {"version": 3, "path": "group", "plan": plan, "rank": other, "ranks": ranks_before, "iteration": 9, "factors": {}}
        saved.append({**state, "ranks_a_host": a_host_before, "residuals": residuals})
    if hosts:
        os.environ["GRADWIRE_HOST"] = hosts[rank]
    ddp, state = hooked(module, "group:" + plan, model=module)
    own = ranks_before == dist.get_world_size() and not hosts
    state.load_state_dict(saved[rank] if own else saved)
    hosts_before = range(ranks_before // a_host_before)
    expected = {name: sum(normal(lens[name], host, 7).double() for host in hosts_before) / len(hosts_before) for name in names}
    applied = {name: torch.zeros(lens[name], dtype=torch.float64) for name in names}
    for _ in range(6):
        ddp.zero_grad()
        # Gradients of zeros that are not nothing: the residual alone is what is exchanged.
        (ddp(torch.zeros(1, 64)).sum() * 1e-30).backward()
        for name, parameter in module.named_parameters():
            applied[name] += parameter.grad.double().flatten()
    left = state.state_dict()
    assert left["iteration"] == 15, left["iteration"]
    off = {}
    for name in names:
        rest = torch.zeros(lens[name], dtype=torch.float64)
        for saved_as, values in left["residuals"].items():
            whole, _, part = saved_as.partition("[")
            if whole == name:
                start = int(part.partition(":")[0] or 0)
                rest[start : start + values.numel()] += values.flatten()
        dist.all_reduce(rest)
        exchanging = len(set(hosts)) if hosts else dist.get_world_size()
        off[name] = ((expected[name] - applied[name] - rest / exchanging).norm() / expected[name].norm()).item()
    state.close()
    return off


def disagree(rank, case):
    plan = {"plan": ["group:q8", "group:q4"][rank], "scaler": "group:q8", "iterations": "group:q8"}[case]
    options = {"scaler": {"scaler": SCALERS[0](8, 1)} if rank else {}, "iterations": {"exact_iterations": 3 + rank}}.get(case, {})
    ddp, state = hooked(net(), plan, **options)
    try:
        step(ddp, sgd(ddp), rank, 0)
    except RuntimeError as error:
        return str(error)


def scaled_in_pieces(rank):
    """A host's ranks have a piece each: a value that is not finite in one piece lets all keep their residual."""
    between = [dist.new_group(each) for each in ([0, 2], [1, 3])][rank % 2]
    module = net()
    ddp = DistributedDataParallel(module, bucket_cap_mb=0.02)
    state = gradwire.attach(ddp, "group:q4:64", group=between, scaler=SCALERS[0](8, 1))
    kept = []
    for iteration in range(6):
        x, y = batch(rank, iteration)
        ddp.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x), y) * 8
        hook = None
        if (rank, iteration) == (3, 4):
            spike = torch.zeros_like(module[4].weight)
            spike[0, 0] = float("inf")
            hook = module[4].weight.register_hook(lambda gradient: gradient + spike)
        loss.backward()
        if hook:
            hook.remove()
        kept.append({name: values.clone() for name, values in state.state_dict()["residuals"].items()})
    same = []
    for before, after in zip(kept[2:], kept[3:]):
        same.append(before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before))
    state.close()
    return same


def lost(rank, piece_bytes, hosts):
    """A rank that dies ends the others' backward by the process group's own error."""
    exchange.PIECE_BYTES = piece_bytes
    os.environ["GRADWIRE_HOST"] = hosts[rank]
    ddp, state = hooked(net(), "group:q8" if "c" in hosts else "group:hierarchy:hosts:q8")
    optimizer = sgd(ddp)
    for iteration in range(8):
        if (rank, iteration) == (1, 5):
            os._exit(1)
        try:
            step(ddp, optimizer, rank, iteration)
        except RuntimeError as error:
            try:
                state.report()
            except RuntimeError as again:
                return iteration, str(error), str(again)
    return None


def failed(rank, hosts):
    """A rank whose exchange fails, and which lives on, ends the others' too."""
    os.environ["GRADWIRE_HOST"] = hosts[rank]
    ddp, state = hooked(net(), "group:q8" if "c" in hosts else "group:hierarchy:hosts:q8")
    optimizer = sgd(ddp)
    said = None
    try:
        for iteration in range(8):
            if (rank, iteration) == (1, 5):
                for bucket in state._way._buckets:
                    bucket.exchange = mock.Mock(side_effect=RuntimeError("planted"))
            step(ddp, optimizer, rank, iteration)
    except RuntimeError as error:
        said = str(error)
    # Not by a barrier: who leaves it first closes connections that others still need.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"failed/{rank}", "")
    store.wait([f"failed/{each}" for each in range(len(hosts))])
    return said


def drifted(rank, iterations=110):
    """Replicas whose results differ are told so. Rank 1 decodes something else."""
    ddp, state = hooked(net(), "group:q8", exact_iterations=2)
    optimizer = sgd(ddp)
    try:
        for iteration in range(iterations):
            if rank and iteration == 100:
                bucket = state._way._buckets[-1]
                exchange = bucket.exchange

                def other(*args):
                    mean = exchange(*args)
                    mean[0] += 1
                    return mean

                bucket.exchange = other
            step(ddp, optimizer, rank, iteration)
        state.report()
    except RuntimeError as error:
        return iteration, str(error)
    return None


def logged(rank, plan, exact):
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, record.getMessage()))

    logger = logging.getLogger("gradwire")
    logger.setLevel(logging.INFO)
    logger.addHandler(Handler())
    ddp, state = hooked(net() if plan == "group:q8" else torch.nn.Sequential(torch.nn.Linear(64, 10)), plan, exact_iterations=exact)
    for iteration in range(exact + 2):
        step(ddp, sgd(ddp), rank, iteration)
    state.drain()
    state.close()
    return lines


def automatic(rank, times):
    ddp, state = hooked(net(), "group:auto")
    now = 0.0
    plans = []
    with mock.patch.object(over_group.time, "monotonic", lambda: now):
        for iteration in itertools.count():
            step(ddp, sgd(ddp), rank, iteration)
            state.drain()
            if state._way._why:
                break
            plan = state._way.plan.text
            plans.append(plan)
            now += (1 + rank) * times[plan.removesuffix(":256")]
    report = state.report()
    assert len(set(gathered(digest(ddp)))) == 1
    assert len(set(gathered((report.plan, report.why)))) == 1
    state.close()
    return plans, report.plan, report.why


class Laws(unittest.TestCase):
    def test_what_is_given_is_delivered_or_kept(self):
        plans = [plan.removeprefix("group:") for plan in LOSSY] + ["f32"]
        # What sums and residuals round: of bf16, a value keeps 8 bits.
        for ranks, (dtype, most) in itertools.product((2, 3), ((torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3))):
            for said in run(laws, ranks, plans, dtype):
                for case, (missing, _) in said.items():
                    self.assertLess(missing, most, (ranks, dtype, case))
                for plan in plans[:-1]:
                    # Else nothing is coded, and this test says nothing.
                    self.assertGreater(said[plan, "matrices and biases"][1], 1e-3, (ranks, dtype, plan))

    def test_one_rank_alone_may_have_messages_of_any_length(self):
        # Values without a codec stand behind a message: here, 22,870 bytes, no multiple of four.
        for said in run(laws, 1, ["q8:6"], torch.float32):
            for case, (missing, _) in said.items():
                self.assertLess(missing, 1e-5, case)

    def test_messages_in_pieces_are_those_in_one(self):
        cases = [("q8", False), ("q8", True), ("q4:64", False), ("q4:64", True), ("3lc:1:320", False)]
        for said in run(in_pieces, 2, cases):
            for case, (whole, cut) in said.items():
                # To owners and to all. The 500 values without a codec take none of their own.
                self.assertEqual(whole[2], 3 * 2 * ["all_to_all_single"], case)
                # As many pieces of 700 bytes or more as the message has, 4 at most.
                pieces = 1 if case[0].startswith("3lc") else 4
                self.assertEqual(cut[2], 3 * 2 * pieces * ["all_to_all_single"], case)
                self.assertTrue(whole[:2] == cut[:2], case)
                self.assertGreater(whole[0][9], 0, "the NaN")

    def test_values_that_are_not_finite_reach_all_and_leave_nothing(self):
        for plan in LOSSY:
            for said in run(not_finite, 2, plan.removeprefix("group:")):
                for found in said:
                    self.assertEqual([finite for finite, _ in found], [True, False, True, True], plan)
                    self.assertEqual([finite for _, finite in found], [True, False, True, True], plan)


class Training(unittest.TestCase):
    def test_f32_is_ddp_without_a_hook(self):
        for (losses, mine, report), (expected, theirs) in zip(run(own_all_reduce, 2), run(without_hook, 2, 12)):
            torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=1e-6)
            self.assertEqual((report.path, report.uncoded_values, report.iterations), ("gloo", report.values, 12))

    def test_a_model_learns_as_without(self):
        expected = run(without_hook, 2)[0][0]
        end = sum(expected[-10:]) / 10
        self.assertLess(end, 0.9 * expected[0])
        others = ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True})
        for plan, worse, more in (
            ("group:q8", 0.02, others),
            ("group:q4:64", 0.03, ()),
            ("group:low-rank:4", 0.2, others),
            ("group:3lc:1:320", 0.2, ()),
            ("group:bf16", 0.02, ()),
        ):
            for options in ({}, *more):
                losses, report = run(trained, 2, plan, options)[0]
                self.assertLess(sum(losses[-10:]) / 10, end + worse, (plan, options))
                self.assertEqual(report.iterations, 60)
                self.assertGreater(report.ratio, 1.9, (plan, report))

    def test_sixteen_bits(self):
        for dtype, residual in ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)):
            expected, first, _ = run(sixteen_bits, 2, dtype, None)[0]
            self.assertLess(expected, first - 0.1)
            for plan, worse in (("group:q8", 0.02), ("group:low-rank:4", 0.2)):
                end, _, kept = run(sixteen_bits, 2, dtype, plan)[0]
                self.assertLess(end, expected + worse, (dtype, plan))
                self.assertEqual(kept, {residual})

    def test_auto_weighs_16_bits_too(self):
        names = ["f32", "bf16", "q8", "q4", "low-rank:16", "low-rank:8"]
        for times, chosen in (
            ([1.0, 0.6, 0.58, 0.57, 0.9, 0.9], "group:bf16"),
            ([1.0, 0.6, 0.5, 0.57, 0.9, 0.9], "group:q8:256"),
            ([1.0, 1.0, 0.98, 0.98, 0.9, 0.9], "group:f32"),
            ([1.0, 0.9, 0.8, 0.7, 0.2, 0.2], "group:low-rank:16"),
        ):
            for plans, plan, why in run(automatic, 2, dict(zip(names, times))):
                expected = ["f32"] * 3 + [name + (":256" if name in ("q8", "q4") else "") for name in names for _ in range(4)] * 3
                self.assertEqual(plans, expected)
                self.assertEqual(plan, chosen, why)


class Residuals(unittest.TestCase):
    def test_nothing_is_lost_when_steps_are_skipped_and_the_scale_changes(self):
        for make in range(len(SCALERS)):
            for said in run(scaled_plans, 2, LOSSY, True, make):
                for plan, (_, offs, _) in said.items():
                    for name, (missing, _) in offs.items():
                        self.assertLess(missing, 1e-5, (plan, name))
                    self.assertGreater(max(kept for _, kept in offs.values()), 0.001, plan)

    def test_a_skipped_step_is_skipped_in_all_pieces(self):
        for same in run(scaled_in_pieces, 4):
            self.assertEqual(same, [False, True, False])

    def test_a_state_that_is_not_told_of_the_scaler_says_what_that_costs(self):
        # So the test above is able to fail.
        for said in run(scaled_plans, 2, ["group:3lc:1:320", "group:low-rank:4"], False, 0):
            for plan, (_, offs, _) in said.items():
                self.assertGreater(max(missing for missing, _ in offs.values()), 0.1, plan)

    def test_nothing_is_lost_of_a_parameter_that_no_rank_used(self):
        for said in run(unused_plans, 2, LOSSY):
            for case, offs in said.items():
                for name, (missing, _) in offs.items():
                    self.assertLess(missing, 1e-5, (case, name))
                self.assertGreater(offs["rare.weight"][1], 0.001, case)

    def test_another_plan_takes_over(self):
        pairs = [("group:3lc:1:320", "group:low-rank:4"), ("group:low-rank:4", "group:q4:64"), ("group:q4:64", "group:f32")]
        for said in run(other_plans, 2, pairs):
            for plans, offs in said.items():
                for name, (missing, _) in offs.items():
                    self.assertLess(missing, 1e-5, (plans, name))

    def test_other_ranks_go_on_from_a_checkpoint(self):
        for before in (2, 3):
            for plan in ("q8", "low-rank:4"):
                for off in run(resumed, 2, before, plan):
                    self.assertLess(max(off.values()), 1e-5, (before, plan, off))

    def test_hosts_of_other_ranks_go_on_from_a_checkpoint(self):
        for before, hosts in (((4, 2), "aabb"), ((4, 2), None), ((2, 1), "aabb"), ((6, 3), "abab")):
            plan = "hierarchy:hosts:q8" if hosts else "q8"
            for off in run(resumed, len(hosts or "ab"), before[0], plan, before[1], hosts):
                self.assertLess(max(off.values()), 1e-5, (before, hosts, off))


class Failures(unittest.TestCase):
    def test_ranks_that_disagree_are_told_so(self):
        for case, text in (
            ("plan", "rank 1 has gradwire .* plan 'q4' .*rank 0 gradwire .* plan 'q8'"),
            ("scaler", "a scaler, rank 0 .* no scaler"),
            ("iterations", "iteration 5 on .*iteration 4 on"),
        ):
            for said in run(disagree, 2, case):
                self.assertRegex(said, text)

    def test_a_lost_rank_ends_the_others(self):
        # Gloo tells a rank's neighbours that it is lost: those tell the others, also of their host.
        for piece_bytes, hosts in ((exchange.PIECE_BYTES, "abcd"), (300, "abcd"), (300, "aaaabbbb")):
            first, _, *others = run(lost, len(hosts), piece_bytes, hosts, lost=(1,))
            for iteration, error, again in (first, *others):
                self.assertEqual(iteration, 5)
                self.assertTrue(error and again)

    def test_a_rank_that_fails_and_lives_ends_the_others(self):
        for hosts in ("abcd", "aaaabbbb"):
            for said in run(failed, len(hosts), hosts):
                self.assertTrue(said, hosts)

    def test_replicas_that_differ_are_told_so(self):
        for said in run(drifted, 2):
            self.assertEqual(said[0], 101)
            self.assertRegex(said[1], "iteration 101: replicas have different gradients")

    def test_a_report_tells_of_replicas_that_differ(self):
        for said in run(drifted, 2, 101):
            self.assertRegex(said[1], "iteration 101: replicas have different gradients")

    def test_the_first_coded_iteration_is_logged(self):
        (level, text), *more = run(logged, 2, "group:q8", 2)[0]
        self.assertEqual((level, more), ("INFO", []))
        self.assertRegex(text, r"from iteration 3 on, group:q8:256 codes 12060 of 12930 values on cpu")
        (level, text), *_ = run(logged, 2, "group:q4", 3)[0]
        self.assertEqual(level, "WARNING")
        self.assertRegex(text, r"codes 0 of 650 values")

    def test_plans_that_a_process_group_has_not_are_named(self):
        for plan in ("group:bounded:6", "group:low-rank:33", "group:q9", "group:ring:2:10"):
            with self.assertRaisesRegex(ValueError, "over a process group.*q8.*low-rank:R and auto"):
                gradwire.State(plan=plan)
        with self.assertRaisesRegex(ValueError, "'group:q8' with pipeline"):
            gradwire.State(plan="group:q8", pipeline=True)


if __name__ == "__main__":
    unittest.main()
