"""Local steps: against closed forms in f64, torch's own optimizers and DDP."""

import copy
import inspect
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import gradwire
import torch
import torch.distributed as dist
from gradwire.local import steps
from gradwire.local.fragment import Fragment
from ranks import PATIENCE_S, digest, gathered, run, weights
from test_ddp import net, step
from test_residuals import residuals
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RATE = 0.25
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
DOCUMENT = pathlib.Path(__file__).parents[4] / "docs" / "local-steps.md"


class Lines(torch.nn.Module):
    """Parameters whose gradients a test gives: the loss is their product."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.ones(30, 50)), torch.nn.Parameter(torch.zeros(1100))

    def forward(self, given):
        return (self.a.flatten() * given[:1500]).sum() + (self.b * given[1500:]).sum()

    def values(self):
        return weights(self).double()


def gradient(rank, iteration):
    generator = torch.Generator().manual_seed(100 * rank + iteration)
    return torch.randn(2600, generator=generator)


def go(model, optimizer, rank, iterations):
    """Steps with gradients that are known beforehand."""
    for iteration in iterations:
        optimizer.zero_grad()
        model(gradient(rank, iteration)).backward()
        optimizer.step()


def learned(rank, iterations):
    """What plain SGD moves in these."""
    return -RATE * sum((gradient(rank, iteration).double() for iteration in iterations), torch.zeros(2600, dtype=torch.float64))


def mean_learned(ranks, iterations):
    return sum(learned(rank, iterations) for rank in ranks) / len(ranks)


def lines(**options):
    model = Lines()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    return model, optimizer, gradwire.LocalSteps(model, optimizer, **options)


def against_ddp(rank, plan):
    model = net()
    with_ddp = DistributedDataParallel(copy.deepcopy(model))
    local = gradwire.LocalSteps(model, optimizer := torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), every=1, plan=plan)
    reference = torch.optim.SGD(with_ddp.parameters(), 0.1, momentum=0.9)
    for iteration in range(20):
        step(model, optimizer, rank, iteration)
        step(with_ddp, reference, rank, iteration)
    off = (weights(model) - weights(with_ddp)).abs().max().item()
    moved = (weights(model) - weights(net())).abs().max().item()
    local.close()
    return off / moved


def closed_form(rank, ranks, options):
    """Returns how far a rank's weights and the common ones are from what they must be, at each iteration."""
    model, optimizer, local = lines(plan="f32", **options)
    start = model.values()
    every, delay = options["every"], options.get("delay", 0)
    off = []
    for iteration in range(1, 20):
        go(model, optimizer, rank, [iteration])
        # The last round whose mean is there.
        sent = (iteration - delay) // every * every if iteration >= every + delay else 0
        common = start + mean_learned(range(ranks), range(1, sent + 1))
        own = common + learned(rank, range(sent + 1, iteration + 1))
        off.append((model.values() - own).abs().max().item())
        with local.mean():
            off.append((model.values() - common).abs().max().item())
    local.close()
    return max(off), digest(model)


def alike(rank, options):
    """Returns digests of the common weights behind each iteration, and of a rank's own, and at the end."""
    outer = {"nesterov": lambda p: torch.optim.SGD(p, 0.7, momentum=0.9, nesterov=True)}.get(options.pop("outer", None))
    model = net()
    model.append(torch.nn.BatchNorm1d(10))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    local = gradwire.LocalSteps(model, optimizer, outer=outer, **options)
    common, own = [], []
    for iteration in range(24):
        step(model, optimizer, rank, iteration)
        own.append(digest(model))
        with local.mean():
            common.append(digest(model))
    report = local.report()
    local.close()
    return common, own, digest(model), (report.iterations, report.rounds, report.every, report.sent_bytes > 0)


def given_and_delivered(rank, options):
    """Returns what is missing, as a part of what was given, and so the residual."""
    model, optimizer, local = lines(every=3, **options)
    start, given = model.values(), torch.zeros(2600, dtype=torch.float64)

    def recorded(fragment):
        delta = taken(fragment)
        first = 0 if "a" in fragment.names else 1500
        given[first : first + len(delta)] += delta.double()
        return delta

    taken = Fragment.delta
    with mock.patch.object(Fragment, "delta", recorded):
        # The last of four rounds has arrived.
        go(model, optimizer, rank, range(14))
    lost = held(local)
    dist.all_reduce(given)
    with local.mean():
        delivered = dist.get_world_size() * (start - model.values())
    local.close()
    return ((given - delivered - lost).norm() / given.norm()).item(), (lost.norm() / given.norm()).item()


def by_outer(rank, ranks):
    """Nesterov's outer optimizer, against torch's own on one tensor in f64."""
    model, optimizer, local = lines(every=2, plan="f32", outer=lambda p: torch.optim.SGD(p, 0.7, momentum=0.9, nesterov=True))
    expected = torch.nn.Parameter(model.values())
    outer = torch.optim.SGD([expected], 0.7, momentum=0.9, nesterov=True)
    off = []
    for iteration in range(0, 10, 2):
        go(model, optimizer, rank, (iteration, iteration + 1))
        expected.grad = -mean_learned(range(ranks), (iteration, iteration + 1))
        outer.step()
        off.append((model.values() - expected.detach()).abs().max().item())
    local.close()
    return max(off)


def with_buffers(rank):
    """Returns the buffer's values before and after a round, and in `mean`."""
    model = Lines()
    model.register_buffer("seen", torch.full((3,), float(rank + 1)))
    model.register_buffer("count", torch.tensor(rank))
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    local = gradwire.LocalSteps(model, optimizer, every=2)
    said = [model.seen.tolist()]
    model.seen += rank + 1
    go(model, optimizer, rank, [0, 1])
    said.append(model.seen.tolist())
    model.seen += 10.0 * rank
    with local.mean():
        said.append(model.seen.tolist())
    said.append(model.seen.tolist())
    local.close()
    return said, model.count.item()


def saved(rank, folder, options):
    """Trains, saves a checkpoint on the way, and returns the weights at the end."""
    model, optimizer, local = lines(**options)
    go(model, optimizer, rank, range(10))
    torch.save((model.state_dict(), optimizer.state_dict(), local.state_dict()), os.path.join(folder, str(rank)))
    return ended(model, optimizer, local, rank)


def ended(model, optimizer, local, rank):
    """Trains on from there. Returns the common weights there, a rank's own at the end, bytes sent, and the weights of all."""
    with local.mean():
        common = digest(model)
    go(model, optimizer, rank, range(10, 20))
    own, sent = digest(model), local.report().sent_bytes
    local.close()
    return common, own, sent, digest(model)


def resumed(rank, folder, options, before):
    model, optimizer, local = lines(**options)
    states = [torch.load(os.path.join(folder, str(one)), weights_only=True) for one in range(before)]
    if before == dist.get_world_size():
        model.load_state_dict(states[rank][0])
        optimizer.load_state_dict(states[rank][1])
        local.load_state_dict(states[rank][2])
    else:
        local.load_state_dict([state for *_, state in states])
    return ended(model, optimizer, local, rank)


def kept(rank, folder, options):
    """Saves a checkpoint, and returns the sum of all ranks' residuals."""
    model, optimizer, local = lines(**options)
    go(model, optimizer, rank, range(10))
    torch.save(local.state_dict(), os.path.join(folder, str(rank)))
    return held(local).tolist()


def taken_over(rank, folder, options, before):
    """Likewise, of ranks that have loaded a checkpoint of others."""
    *_, local = lines(**options)
    local.load_state_dict([torch.load(os.path.join(folder, str(one)), weights_only=True) for one in range(before)])
    return held(local).tolist()


def held(local):
    """The sum of all ranks' residuals."""
    own = residuals(local)
    total = torch.cat([own.get(name, torch.zeros(n)) for name, n in (("a", 1500), ("b", 1100))]).double()
    dist.all_reduce(total)
    return total


def again(folder, rank, ranks):
    """A new process group of who is left."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/again", rank=rank, world_size=ranks)


def survived(rank, folder, plan, options):
    """Rank 1 of four is killed; the others go on. Returns how far their weights are from what they learned, and seconds."""
    model, optimizer, local = lines(every=4, plan=plan, **options)
    start = model.values()
    go(model, optimizer, rank, range(8))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    done = 8
    begin = time.monotonic()
    try:
        for done in range(8, 100):
            go(model, optimizer, rank, [done])
        raise AssertionError("a dead rank was not noticed")
    except RuntimeError as error:
        # gradwire.Error, or that of the process group.
        text = str(error)
    noticed = time.monotonic()
    left = [0, 2, 3]
    again(folder, left.index(rank), 3)
    local.resume()
    resumed = time.monotonic()
    # A mean that was under way may have had the dead rank's part, or not.
    together = range(4 * (local.report().rounds - 1))
    apart = [learned(one, range(len(together), last + 1)) for one, last in zip(left, gathered(done))]
    expected = start + mean_learned(range(4), together) + sum(apart) / len(left)
    off = (model.values() - expected).abs().max().item()
    go(model, optimizer, rank, range(100, 104 + options.get("delay", 0)))
    expected += mean_learned(left, range(100, 104))
    with local.mean():
        off = max(off, (model.values() - expected).abs().max().item())
    local.close()
    return off, done, text, digest(model), (noticed - begin, resumed - noticed)


def joined(rank, folder):
    """Two train, then a third joins: it has their weights and moments, and their deltas are not thinned by its zeros."""
    if rank == 2:
        again(folder, 2, 3)
        model, optimizer, local = lines(every=4, plan="f32")
        start = Lines().values()
    else:
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{folder}/two", rank=rank, world_size=2)
        model, optimizer, local = lines(every=4, plan="f32")
        start = model.values()
        go(model, optimizer, rank, range(6))
        again(folder, rank, 3)
        local.resume()
    expected = start + mean_learned((0, 1), range(6))
    off = (model.values() - expected).abs().max().item()
    go(model, optimizer, rank, range(10, 14))
    expected += mean_learned(range(3), range(10, 14))
    off = max(off, (model.values() - expected).abs().max().item())
    iterations = local.report().iterations
    local.close()
    return off, iterations, digest(model)


def shards(rank, plan):
    """Two hosts of two ranks: FSDP2 inside, local steps between. Returns how far weights are from the closed form."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("host", "gpu"))
    model = Lines()
    start = model.values()
    fully_shard(model, mesh=mesh["gpu"])
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    local = gradwire.LocalSteps(model, optimizer, every=3, plan=plan, group=mesh["host"].get_group())
    go(model, optimizer, rank, range(6))
    whole = torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()]).double()
    local.close()
    return (whole - start - mean_learned(range(4), range(6))).abs().max().item()


def chosen_every(rank):
    model, optimizer, local = lines(every="auto", plan="f32")
    go(model, optimizer, rank, range(40))
    every = local.every
    local.close()
    return every


def refused(rank):
    """Returns what wrong arguments are told."""
    said = []
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), RATE)
    for model, options in (
        (ddp, {}),
        (ddp.module, {"every": 0}),
        (ddp.module, {"every": 4, "fragments": 3}),
        (ddp.module, {"every": 4, "fragments": 2, "delay": 3}),
        (ddp.module, {"plan": "auto"}),
        (ddp.module, {"every": 16, "fragments": 8}),
        (ddp.module, {"every": 4 + rank}),
    ):
        try:
            gradwire.LocalSteps(model, optimizer, **options)
            said.append("")
        except (ValueError, gradwire.Error) as error:
            said.append(str(error))
    local = gradwire.LocalSteps(ddp.module, optimizer)
    try:
        with local.mean():
            optimizer.step()
    except gradwire.Error as error:
        said.append(str(error))
    local.close()
    local.close()
    return said


class Laws(unittest.TestCase):
    def test_each_iteration_is_ddp(self):
        for plan in ("f32", "group:f32"):
            for off in run(against_ddp, 3, plan):
                self.assertLess(off, 1e-5)

    def test_means_arrive_once_and_at_their_iteration(self):
        for options in ({"every": 4}, {"every": 4, "delay": 3}, {"every": 2, "delay": 1}, {"every": 4, "delay": 4}):
            said = run(closed_form, 3, 3, options)
            for off, _ in said:
                self.assertLess(off, 1e-5, options)
            self.assertEqual(len({final for _, final in said}), 1, options)

    def test_replicas_are_equal_after_each_round(self):
        for options in (
            {"every": 4},
            {"every": 4, "plan": "q8", "warmup": 3},
            {"every": 8, "plan": "group:q4", "outer": "nesterov"},
            {"every": 4, "delay": 2, "fragments": 2, "outer": "nesterov"},
            {"every": 6, "plan": "group:low-rank:4", "fragments": 3, "delay": 1},
        ):
            said = run(alike, 2, options)
            (common, own, final, report), (others_common, others_own, others_final, others_report) = said
            self.assertEqual((common, final, report), (others_common, others_final, others_report), options)
            # They were apart meanwhile.
            self.assertNotEqual(own, others_own)
            self.assertEqual(report[0], 24)
            self.assertEqual(run(alike, 2, options), said, "the same inputs, other bits")

    def test_what_is_given_is_delivered_or_kept(self):
        for options in (
            {"plan": "bounded:4"},
            {"plan": "3lc:1:1024", "delay": 1},
            {"plan": "group:q4"},
            {"plan": "group:low-rank:4"},
        ):
            for missing, held in run(given_and_delivered, 3, options):
                self.assertLess(missing, 1e-5, options)
                self.assertGreater(held, 1e-3, options)

    def test_an_outer_optimizer_gets_the_mean(self):
        for off in run(by_outer, 2, 2):
            self.assertLess(off, 1e-5)

    def test_buffers_are_averaged(self):
        first, second = run(with_buffers, 2)
        # At the start, rank 0's.
        self.assertEqual(first, ([[1.0] * 3, [2.5] * 3, [2.5] * 3, [2.5] * 3], 0))
        self.assertEqual(second, ([[1.0] * 3, [2.5] * 3, [2.5] * 3, [12.5] * 3], 1))

    def test_shards_are_averaged_between_hosts(self):
        for plan in ("f32", "group:f32"):
            for off in run(shards, 4, plan):
                self.assertLess(off, 1e-5)


class Checkpoints(unittest.TestCase):
    def test_a_job_goes_on_with_the_same_bits(self):
        for options in ({"every": 4}, {"every": 4, "delay": 3}, {"every": 4, "plan": "q8", "fragments": 2, "delay": 1}):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(run(saved, 2, folder, options), run(resumed, 2, folder, options, 2), options)

    def test_other_ranks_begin_with_the_common_weights(self):
        for before, now, plan in ((2, 3, "bounded:4"), (3, 2, "bounded:4"), (2, 3, "group:q4")):
            with tempfile.TemporaryDirectory() as folder:
                options = {"every": 4, "plan": plan}
                common = {common for common, *_ in run(saved, before, folder, options)}
                said = run(resumed, now, folder, options, before)
                self.assertEqual({common for common, *_ in said}, common)
                self.assertEqual(len({final for *_, final in said}), 1)

    def test_what_messages_lost_is_shared_by_other_ranks(self):
        # Over links the sum stays, and over a process group the mean.
        for plan, share in (("bounded:4", 1), ("group:q4", 2 / 3)):
            with tempfile.TemporaryDirectory() as folder:
                options = {"every": 4, "plan": plan}
                before = torch.tensor(run(kept, 3, folder, options)[0])
                self.assertGreater(before.norm(), 1e-3)
                for after in run(taken_over, 2, folder, options, 3):
                    self.assertLess((torch.tensor(after) - share * before).norm(), 1e-5 * before.norm(), plan)


class Survivors(unittest.TestCase):
    def test_three_of_four_go_on(self):
        for plan, options in (("f32", {}), ("f32", {"delay": 2}), ("group:f32", {})):
            with tempfile.TemporaryDirectory() as folder:
                said = run(survived, 4, folder, plan, options, lost=(1,))
                left = [each for each in said if each]
                for off, done, text, _, seconds in left:
                    self.assertLess(off, 1e-5, (plan, options, done, text, seconds))
                self.assertEqual(len({final for *_, final, _ in left}), 1)

    def test_a_rank_joins(self):
        with tempfile.TemporaryDirectory() as folder:
            said = run(joined, 3, folder)
            for off, iterations, _ in said:
                self.assertLess(off, 1e-5)
                self.assertEqual(iterations, 10)
            self.assertEqual(len({final for *_, final in said}), 1)


class Example(unittest.TestCase):
    """examples/local_steps.py, as docs/local-steps.md starts it."""

    def start(self, folder, options, change, **environment):
        """Starts `torchrun` of the script with a change."""
        source = (EXAMPLES / "local_steps.py").read_text()
        script = pathlib.Path(folder, "local_steps.py")
        script.write_text(change(source))
        command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), "--folder", os.path.join(folder, "checkpoints")]
        path = f"{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}"
        # Else, ranks that torchrun starts anew may get the addresses of those before.
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment}
        torchrun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **own})
        self.addCleanup(torchrun.kill)
        return torchrun

    def test_ranks_are_started_anew(self):
        def deadly(source):
            new = source.replace(
                "        optimizer.zero_grad()\n",
                "        if (rank, iteration, os.environ['TORCHELASTIC_RESTART_COUNT']) == (1, 250, '0'):\n            os._exit(1)\n"
                "        optimizer.zero_grad()\n",
            )
            self.assertNotEqual(new, source)
            return new

        with tempfile.TemporaryDirectory() as folder:
            torchrun = self.start(folder, ["--standalone", "--max_restarts", "1", "--nproc_per_node", "2"], deadly)
            out, err = torchrun.communicate(timeout=PATIENCE_S)
            self.assertEqual(torchrun.returncode, 0, err)
            self.assertIn("rank 1 of 2 goes on behind iteration 192, which 2 ranks saved", out)
            self.assertGreater(float(re.search(r"accuracy ([0-9.]+)%", out)[1]), 85)

    def test_hosts_come_and_go(self):
        """Two hosts wait in iteration 250 for a third, which is gone without a word in iteration 330."""

        def changed(source):
            new = source.replace(
                "        optimizer.zero_grad()\n",
                "        while (ranks, iteration) == (2, 250):\n            time.sleep(0.1)\n"
                "        if (ranks, iteration) == (3, 330) and 'LEAVES' in os.environ:\n"
                "            os.kill(os.getppid(), signal.SIGKILL)\n            os._exit(1)\n"
                "        optimizer.zero_grad()\n",
            ).replace("import os\n", "import os\nimport signal\nimport time\n")
            self.assertEqual(new.count("os._exit") + new.count("import signal"), 2)
            return new

        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
            free.close()
            meeting = f"--rdzv_backend c10d --rdzv_endpoint {endpoint} --rdzv_id job --rdzv_conf last_call_timeout=2 --local_addr 127.0.0.1"
            options = f"--nnodes 2:4 --nproc_per_node 1 --max_restarts 9 --monitor_interval 1 {meeting}".split()
            # The first one has the store where hosts meet.
            first = self.start(folder, options, changed)
            second = self.start(folder, options, changed)
            whole, end = pathlib.Path(folder, "checkpoints", "00000192-whole"), time.monotonic() + PATIENCE_S
            while not whole.exists() and time.monotonic() < end:
                time.sleep(0.1)
            third = self.start(folder, options, changed, LEAVES="1")
            said = [each.communicate(timeout=PATIENCE_S) for each in (first, second, third)]
            self.assertEqual([first.returncode, second.returncode, third.returncode], [0, 0, -signal.SIGKILL], said)
            out = "".join(out for out, _ in said)
            for rank in range(3):
                self.assertIn(f"rank {rank} of 3 goes on behind iteration 192, which 2 ranks saved", out)
            for rank in range(2):
                self.assertIn(f"rank {rank} of 2 goes on behind iteration 288, which 3 ranks saved", out)
            self.assertGreater(float(re.search(r"accuracy ([0-9.]+)%", out)[1]), 85)
            self.assertRegex(out, "gradwire bounded:4, local steps: rank 0 of 2, 384 iterations in rounds of 16")


class Document(unittest.TestCase):
    def test_settings_and_their_defaults_are_those_of_the_document(self):
        table = DOCUMENT.read_text().partition("## The settings")[2].partition("## What holds")[0]
        said = dict(re.findall(r"^\| `(\w+)`(?:, `\w+`)? \| `?([^|`]+)`? \|", table, re.MULTILINE))
        self.assertEqual((said.pop("outer"), said.pop("link")), ("averaging", "all ranks"))
        parameters = inspect.signature(gradwire.LocalSteps).parameters
        settings = {name: parameters[name].default for name in parameters if name not in ("model", "optimizer", "outer", "link", "group")}
        self.assertEqual({name: text.strip().strip('"') for name, text in said.items()}, {name: str(each) for name, each in settings.items()})


class Chosen(unittest.TestCase):
    def test_the_shortest_round_whose_exchange_takes_a_tenth(self):
        self.assertEqual(steps.chosen(1.0, 0.05, 1), 1)
        self.assertEqual(steps.chosen(1.0, 0.12, 1), 2)
        self.assertEqual(steps.chosen(1.0, 0.8, 1), 8)
        self.assertEqual(steps.chosen(1.0, 100.0, 1), 32)
        self.assertEqual(steps.chosen(1.0, 0.01, 4), 4)

    def test_ranks_choose_together(self):
        (every,) = set(run(chosen_every, 2))
        self.assertIn(every, (1, 2, 4, 8, 16, 32))

    def test_what_is_not_served_is_told(self):
        for said in run(refused, 2):
            for text, expected in zip(
                said,
                (
                    "averages the gradients of ranks .* already: give LocalSteps the module alone",
                    "every=0: expected",
                    "every=4 with fragments=3",
                    "delay=3: the next messages begin after 2 iterations",
                    'plan="auto" chooses by the iterations of DDP',
                    "fragments=8: the model has 6 parameters",
                    "rank 1 has .* every=5.*, rank 0 .* every=4",
                    "optimizer.step.. inside of mean",
                ),
            ):
                self.assertRegex(text, expected)
            self.assertEqual(len(said), 8)


if __name__ == "__main__":
    unittest.main()
