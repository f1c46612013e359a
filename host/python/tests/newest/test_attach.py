"""`gradwire.attach` and `python -m gradwire run`: DDP and FSDP2, against PyTorch's own exchange; what is not served is named."""

import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import gradwire
import torch
from gradwire import _attach
from ranks import PATIENCE_S, gathered, run
from test_ddp import net, step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

ITERATIONS = 30


def sharded(module, mesh, policy=None):
    options = {"mp_policy": policy} if policy else {}
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


def whole(model):
    parts = [parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter for parameter in model.parameters()]
    return torch.cat([part.detach().flatten() for part in parts])


def trained(rank, model, state=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for iteration in range(ITERATIONS):
        step(model, optimizer, rank, iteration)
    after = whole(model)
    assert len(set(gathered(after.numpy().tobytes()))) == 1, "replicas differ"
    return after


def hosts():
    """Two hosts with two accelerators each, as processes."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("host", "gpu"))


def ddp_in_two_steps(rank):
    """The largest difference of weights from DDP's, with and without a codec, and what ranks sent between hosts."""
    exact = trained(rank, DistributedDataParallel(net(), bucket_cap_mb=0.02))
    moved = (exact - torch.cat([each.detach().flatten() for each in net().parameters()])).abs().max().item()
    said = [moved]
    for plan in ("group:f32", "group:q8", "group:q4:64"):
        ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
        state = gradwire.attach(ddp, plan, group=hosts()["host"].get_group())
        said.append((trained(rank, ddp) - exact).abs().max().item())
        said.append(state.report().exchanging)
        state.close()
    return said


def by_host(rank, hosts):
    """The largest difference of weights from DDP's, what was told, and a run's that goes on from a checkpoint, if ranks are on these hosts."""
    os.environ["GRADWIRE_HOST"] = hosts[rank]
    exact = trained(rank, DistributedDataParallel(net(), bucket_cap_mb=0.02))
    said = []
    for plan in ("group:hierarchy:hosts:f32", "group:hierarchy:hosts:q8", "group:q8"):
        ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
        try:
            state = gradwire.attach(ddp, plan)
        except gradwire.Error as error:
            return str(error)
        off = (trained(rank, ddp) - exact).abs().max().item()
        saved = state.state_dict()
        said.append((off, state.report(), str(state.report())))
        state.close()
        ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
        state = gradwire.attach(ddp, plan)
        state.load_state_dict(saved)
        trained(rank, ddp)
        assert state.report().iterations == 2 * ITERATIONS
        try:
            state.load_state_dict({**saved, "rank": (saved["rank"] + 1) % len(hosts)})
            raise AssertionError("the state of another rank was taken")
        except ValueError:
            state.close()
    return said


def fsdp_between_hosts(rank, mixed):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else None
    exact = trained(rank, sharded(net(), init_device_mesh("cpu", (4,)), policy))
    said = {}
    for plan in ("f32", "bf16", "q8", "q4:64", "3lc:1:320"):
        mesh = hosts()
        model = sharded(net(), mesh["gpu"], policy)
        state = gradwire.attach(model, plan, group=mesh["host"].get_group())
        off = (trained(rank, model) - exact).abs().max().item()
        report = state.report()
        said[plan] = (off, report.iterations, report.ratio, report.residual)
        state.close()
    return said


def fsdp_resumes(rank):
    """A run with a checkpoint in the middle ends where one without does."""
    ends = []
    for saves in (False, True):
        mesh = hosts()
        model = sharded(net(), mesh["gpu"])
        state = gradwire.attach(model, "q4:64", group=mesh["host"].get_group())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for iteration in range(12):
            if saves and iteration == 6:
                saved = state.state_dict()
                state.close()
                state = gradwire.attach(model, "q4:64", group=mesh["host"].get_group())
                for wrong in ([saved], {**saved, "rank": (rank + 1) % 4}):
                    try:
                        state.load_state_dict(wrong)
                        raise AssertionError("states that are not this rank's were taken")
                    except (gradwire.Error, ValueError):
                        pass
                state.load_state_dict(saved)
                assert state.report().iterations == 6
            step(model, optimizer, rank, iteration)
        ends.append(whole(model))
        state.close()
    return (ends[0] - ends[1]).abs().max().item()


def fsdp_across_hosts(rank, dtype):
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype) if dtype != torch.float32 else None
    mesh = init_device_mesh("cpu", (4,))
    exact = trained(rank, sharded(net(), mesh, policy))
    model = sharded(net(), mesh, policy)
    comm = gradwire.attach(model, "q8")
    return (trained(rank, model) - exact).abs().max().item(), comm.sent_bytes


def refused(rank):
    mesh = hosts()
    between = mesh["host"].get_group()
    said = []

    def attach(model, *args, **options):
        try:
            gradwire.attach(model, *args, **options)
            said.append("attached")
        except (gradwire.Error, ValueError) as error:
            said.append(str(error))

    attach(net())
    attach(sharded(net(), mesh), "q8", group=between)
    attach(sharded(net(), mesh["gpu"]), "q8", group=mesh["gpu"].get_group())
    attach(sharded(net(), mesh["gpu"]), "low-rank:4", group=between)
    attach(sharded(net(), mesh["gpu"]), "hierarchy:hosts:q8", group=between)
    attach(sharded(net(), mesh["gpu"]), "q4")
    attach(sharded(net(), mesh["gpu"]), "q8", group=between, scaler=object())
    attach(DistributedDataParallel(net().double()), "group:q8")
    attach(DistributedDataParallel(net().to(torch.bfloat16)), "q8")
    attach(DistributedDataParallel(net()), "group:low-rank:4", group=between)
    attach(DistributedDataParallel(net()), "group:hierarchy:hosts:low-rank:4")
    ddp = DistributedDataParallel(net())
    gradwire.attach(ddp, "group:q8")
    attach(ddp, "group:q8")
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        attach(DistributedDataParallel(net()), "group:q8")
    model = sharded(net(), init_device_mesh("cpu", (4,)))
    for module in (model, *model):
        if isinstance(module, torch.distributed.fsdp.FSDPModule):
            module.set_gradient_divide_factor(3.0)
    gradwire.attach(model, "q8")
    try:
        step(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, 0)
    except gradwire.Error as error:
        said.append(str(error))
    return said


def compiled(rank):
    """What is attached to a compiled model, and the names of the residual that it keeps."""
    ddp = DistributedDataParallel(torch.compile(net(), backend="eager"))
    state = gradwire.attach(torch.compile(ddp, backend="eager"), "group:q4:64")
    trained(rank, ddp, state)
    names = state.state_dict()["residuals"].keys()
    state.close()
    return sorted(names)


def run_at_rank_0_alone(rank):
    """What rank 0 is told, if rank 1 makes its model without `gradwire run`."""
    if rank == 0:
        _attach.MEET = datetime.timedelta(seconds=2)
        _attach.everywhere("group:q8")
    try:
        DistributedDataParallel(net())
    except gradwire.Error as error:
        return str(error)
    return None


SCRIPT = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 100)).square().sum().backward()
    optimizer.step()
sys.stdout.write("arguments %s %s %s\\n" % (sys.argv[1:], __name__, os.path.basename(sys.path[0])))
dist.destroy_process_group()
"""
DDP = "model = torch.nn.parallel.DistributedDataParallel(model)"


def ran(wrap, *options):
    """Returns what `torchrun -m gradwire run` of a script ends with and says."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(SCRIPT.format(wrap=wrap))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "gradwire", "run"]
        done = subprocess.run([*command, *options, str(script), "--its", "own"], capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ)
        return done.returncode, done.stdout, done.stderr, os.path.basename(folder)


class Attached(unittest.TestCase):
    def test_ranks_of_a_host_sum_first(self):
        for moved, exact, exchanging, eight, _, four, _ in run(ddp_in_two_steps, 4):
            self.assertGreater(moved, 0.01)
            self.assertEqual(exchanging, 2)
            self.assertLess(exact, 1e-6)
            self.assertLess(eight, 1e-3)
            self.assertLess(four, 1e-2)

    def test_a_plan_lets_ranks_of_a_host_sum_first(self):
        for hosts in ("aabb", "abab", "ab", "aaa"):
            for rank, ((exact, *_), (off, report, text), (_, flat, _)) in enumerate(run(by_host, len(hosts), hosts)):
                self.assertLess(exact, 1e-6, hosts)
                self.assertEqual((report.rank, report.ranks), (rank if hosts != "abab" else (0, 2, 1, 3)[rank], len(hosts)))
                if hosts == "aaa":
                    self.assertEqual(report.plan, "group:f32")
                    self.assertEqual(report.why, "all 3 ranks are on host a, and group:hierarchy:hosts:q8:256 codes between hosts")
                    self.assertLess(off, 1e-6)
                    continue
                self.assertEqual((report.plan, report.exchanging), ("group:hierarchy:hosts:q8:256", 2))
                self.assertLess(off, 1e-3, hosts)
                self.assertGreater(report.ratio, 2)
                self.assertGreater(report.residual, 0)
                if hosts != "ab":
                    # Of each host's two ranks, one exchanges each value with one of the other host.
                    self.assertIn(f"rank {report.rank} of 4 on 2 hosts, {ITERATIONS} iterations", text)
                    self.assertAlmostEqual(report.sent_bytes / flat.sent_bytes, (1 / 2) / (3 / 2), delta=0.1)
        for said in run(by_host, 4, "aaab"):
            self.assertIn("ranks are on hosts a, a, a, b: over a process group, hierarchy:hosts: needs equally many on each", said)

    def test_fsdp_between_hosts_learns_as_over_all_ranks(self):
        for mixed in (False, True):
            for said in run(fsdp_between_hosts, 4, mixed):
                for plan, most in (("f32", 5e-4), ("bf16", 1e-3), ("q8", 1e-3), ("q4:64", 1e-2), ("3lc:1:320", 3e-2)):
                    off, iterations, ratio, residual = said[plan]
                    self.assertLess(off, most, (mixed, plan))
                    self.assertEqual(iterations, ITERATIONS)
                    if plan not in ("f32", "bf16"):
                        self.assertGreater(ratio, 2, plan)
                        self.assertGreater(residual, 0, plan)

    def test_fsdp_goes_on_from_a_checkpoint(self):
        for off in run(fsdp_resumes, 4):
            # The owned part's residual becomes the rank's own, and two iterations have no codec.
            self.assertLess(off, 1e-3)

    def test_fsdp_whose_shards_span_hosts(self):
        for dtype, most in ((torch.float32, 1e-3), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)):
            for off, sent in run(fsdp_across_hosts, 4, dtype):
                self.assertLess(off, most, dtype)
                self.assertGreater(sent, 0)

    def test_names_are_those_of_the_model_that_is_compiled(self):
        expected = sorted(name for name, each in net().named_parameters() if each.numel() >= 1024)
        for names in run(compiled, 2):
            self.assertEqual(names, expected)

    def test_what_is_not_served_is_named_with_a_remedy(self):
        expected = (
            "a Sequential is neither a DistributedDataParallel nor was it given to fully_shard: wrap it first",
            r"\(HSDP\), whose all-reduce no hook replaces: shard inside the host only",
            "are in the group, and hold other shards of module .*give the group between hosts",
            "'low-rank:4' of an FSDP model, which sums inside hosts, and whose shards are no matrices: use q8, q4, 3lc or bf16",
            "'hierarchy:hosts:q8' of an FSDP model, which sums inside hosts",
            "'q4' of an FSDP model whose shards span hosts: .*q8 is the only plan; give group",
            "a scaler with an FSDP model: train in bfloat16",
            "parameter 0.weight: gradients of torch.float64: gradwire serves torch.float32",
            "parameter 0.weight: gradients of torch.bfloat16 on the CPU: plan='group:q8' takes them",
            *["plan 'hierarchy:hosts:low-rank:4': where ranks of a host sum first.*use f32, bf16, q8, q4 or 3lc between hosts"] * 2,
            "the model has the communication hook 'hook' already, and DDP takes one: attach once",
            'made with torch._dynamo.config.optimize_ddp = "python_reducer", which has no buckets: leave it at its default',
            "leave out set_gradient_divide_factor",
        )
        for said in run(refused, 4):
            self.assertEqual(len(said), len(expected), said)
            for text, pattern in zip(said, expected):
                self.assertRegex(text, pattern)


class Ran(unittest.TestCase):
    def test_a_script_is_compressed_and_its_report_printed(self):
        code, out, error, folder = ran(DDP, "--plan", "group:q8")
        self.assertEqual(code, 0, error)
        self.assertEqual(out.count(f"arguments ['--its', 'own'] __main__ {folder}"), 2, out)
        self.assertRegex(error, r"gradwire: rank 0 of 2: from iteration 3 on, group:q8:256 codes 22000 of 22210 values on cpu")
        self.assertRegex(error, r"gradwire group:q8:256: rank 0 of 2, 6 iterations; .*without a codec")

    def test_a_plan_is_one_of_either_way(self):
        code, _, error, _ = ran(DDP, "--plan", "hierarchy:hosts:q8")
        self.assertEqual(code, 0, error)
        self.assertRegex(error, r"gradwire hierarchy:2:q8: rank 0 of 2, 6 iterations")
        code, _, error, _ = ran(DDP, "--plan", "bf16")
        self.assertNotEqual(code, 0)
        self.assertIn("over the process group there is one: give 'group:bf16'", error)

    def test_a_script_without_ddp_is_told_so(self):
        code, _, error, _ = ran("", "--plan", "q8")
        self.assertEqual(code, 0, error)
        self.assertIn("the script made no DistributedDataParallel, so nothing was compressed", error)

    def test_a_script_with_a_hook_of_its_own_is_refused(self):
        code, _, error, _ = ran(DDP + "\nmodel.register_comm_hook(None, print)", "--plan", "group:q8")
        self.assertNotEqual(code, 0)
        self.assertIn("this script registers a communication hook of its own", error)

    def test_a_rank_that_runs_without_is_named(self):
        said, nothing = run(run_at_rank_0_alone, 2)
        self.assertIn("rank 1 has no `gradwire run`: start all ranks by it", said)
        self.assertIsNone(nothing)

    def test_help_teaches(self):
        done = subprocess.run([sys.executable, "-m", "gradwire", "run", "--help"], capture_output=True, text=True, check=True)
        for text in ("--plan", "torchrun", "group:low-rank:16"):
            self.assertIn(text, done.stdout)
        done = subprocess.run([sys.executable, "-m", "gradwire", "run", "--plan", "group:q9", "x.py"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, re.escape("plan 'q9'"))


if __name__ == "__main__":
    unittest.main()
