"""Parameter servers: processes without torch, and the ranks that they serve."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import gradwire
import torch
from gradwire import _native
from ranks import PATIENCE_S, digest, gathered, run, weights
from test_ddp import batch, hooked, net, sgd, step

PLANS = ["f32", "q8", "3lc:1:1024", "low-rank:4", "bounded:6"]
# A process in which torch and numpy cannot be imported.
BARE = "import runpy, sys; sys.modules.update(torch=None, numpy=None); runpy.run_module('gradwire', run_name='__main__')"


class Server:
    """A server that listens at a port of its own."""

    def __init__(self, ranks, *options):
        self.folder = tempfile.TemporaryDirectory()
        self.token = os.path.join(self.folder.name, "token")
        said = ["serve", "--listen", "127.0.0.1:0", "--ranks", str(ranks), "--token-file", self.token, "--json", *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", BARE, *said], stdout=pipe, stderr=pipe, text=True)
        self.address = re.search(r"listening at (\S+) ", self.process.stderr.readline())[1]

    def __enter__(self):
        return self

    def end(self):
        """Its exit code, its report and its last words."""
        out, wrong = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads(out) if out else None, wrong

    def __exit__(self, *_):
        self.process.kill()
        with contextlib.suppress(ValueError):  # closed already
            self.process.communicate()
        self.folder.cleanup()


def served(rank, address, token, plan, rounds=8):
    ddp, state = hooked(net(), plan, gradwire.Link(token_file=token), server=address)
    optimizer = sgd(ddp)
    losses = [step(ddp, optimizer, rank, iteration) for iteration in range(rounds)]
    assert len(set(gathered(digest(ddp)))) == 1
    report = state.report()
    state.close()
    return weights(ddp).tolist(), report, losses


def plain(rank, rounds=8):
    ddp, state = hooked(net(), "f32")
    optimizer = sgd(ddp)
    for iteration in range(rounds):
        step(ddp, optimizer, rank, iteration)
    state.close()
    return weights(ddp).tolist()


class Sums(unittest.TestCase):
    def test_a_server_sums_what_ranks_send_it(self):
        expected = torch.tensor(run(plain, 3)[0])
        for plan in PLANS:
            with Server(3) as server:
                (got, report, _), *_ = run(served, 3, server.address, server.token, plan)
                code, said, wrong = server.end()
            self.assertEqual(code, 0, wrong)
            self.assertEqual((report.iterations, report.values), (8, 8 * len(got)))
            self.assertEqual(said["values"], report.values)
            off = (torch.tensor(got) - expected).abs().max().item()
            self.assertLess(off, 1e-6 if plan == "f32" else 0.05, plan)
            self.assertTrue(plan == "f32" or off > 0, plan)

    def test_a_plan_with_rows_and_auto_are_served(self):
        for plan in ('strategy = "ring"\ncodec = "q8"\n[[tensor]]\nname = "parameter.0"\ncodec = "f16"\n', "auto"):
            with Server(2) as server:
                run(served, 2, server.address, server.token, plan, 66)
                self.assertEqual(server.end()[0], 0, plan)


def stepped(rank, address, token, plan):
    ddp, state = hooked(net(seed=1 + rank), plan, gradwire.Link(token_file=token), server=address)
    optimizer = gradwire.ServedOptimizer(ddp.parameters(), state)
    losses = []
    for iteration in range(30):
        losses.append(step(ddp, optimizer, rank, iteration))
        assert all(not parameter.grad.any() for parameter in ddp.parameters())
    assert len(set(gathered(digest(ddp)))) == 1
    state.close()
    return weights(ddp).tolist(), sum(losses[-5:]) / sum(losses[:5])


def torchs(rank, options):
    ddp, state = hooked(net(), "f32")
    name, options = options
    optimizer = getattr(torch.optim, name)(ddp.parameters(), **options)
    for iteration in range(30):
        step(ddp, optimizer, rank, iteration)
    state.close()
    return weights(ddp).tolist()


class Optimizers(unittest.TestCase):
    def test_a_server_steps_as_torch_does(self):
        decay = ["--weight-decay", "0.02"]
        for options, said in (
            (("SGD", {"lr": 0.1}), ["sgd", "--lr", "0.1"]),
            (("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02}), ["momentum", "--lr", "0.05", *decay]),
            (("AdamW", {"lr": 0.002}), ["adamw", "--lr", "0.002"]),
        ):
            expected = torch.tensor(run(torchs, 2, options)[0])
            with Server(2, "--optimizer", *said) as server:
                (got, _), *_ = run(stepped, 2, server.address, server.token, "f32")
                code, report, wrong = server.end()
            self.assertEqual(code, 0, wrong)
            self.assertEqual(report["values"], 30 * len(got))
            torch.testing.assert_close(torch.tensor(got), expected, rtol=1e-4, atol=1e-5)

    def test_compressed_gradients_and_deltas_keep_replicas_equal_and_learn(self):
        sent = {}
        deltas = ["--returns", "deltas"]
        for plan, returns in (("f32", []), ("3lc:1:1024", []), ("3lc:1:1024", deltas), ("q8", [*deltas, "--codec", "q8"])):
            with Server(2, "--optimizer", "momentum", "--lr", "0.05", *returns) as server:
                for _, progress in run(stepped, 2, server.address, server.token, plan):
                    self.assertLess(progress, 0.97, (plan, returns))
                code, report, wrong = server.end()
            self.assertEqual(code, 0, wrong)
            sent[plan, *returns] = report["sent_bytes"]
        self.assertLess(3 * sent["3lc:1:1024", "--returns", "deltas"], sent["3lc:1:1024",])

    def test_skipped_steps_leave_replicas_as_the_server_knows_them(self):
        with Server(2, "--optimizer", "momentum", "--lr", "0.05", "--returns", "deltas") as server:
            run(skips, 2, server.address, server.token)
            self.assertEqual(server.end()[0], 0)

    def test_a_scaler_is_refused(self):
        for give in (False, True):
            with Server(1, "--optimizer", "sgd", "--lr", "0.1") as server:
                (said,) = run(scales, 1, server.address, server.token, give)
                self.assertRegex(said, "scaler goes with neither.*nor a server" if give else "cannot drive a ServedOptimizer.*times too far")

    def test_ranks_and_server_have_to_agree_who_steps(self):
        with Server(1, "--optimizer", "sgd", "--lr", "0.1") as server:
            (said,) = run(sums, 1, server.address, server.token)
            self.assertIn("this server has an optimizer", said)
            self.assertEqual(server.end()[0], 1)
        with Server(1) as server:
            (said,) = run(begins, 1, server.address, server.token, "f32")
            self.assertIn("this server has no optimizer", said)
            self.assertEqual(server.end()[0], 1)
        for plan, says in (("low-rank:4", "it takes what one message"), ("auto", "a plan other than auto")):
            with Server(1, "--optimizer", "sgd", "--lr", "0.1") as server:
                (said,) = run(begins, 1, server.address, server.token, plan)
                self.assertIn(says, said)


def skips(rank, address, token):
    """The server adds each delta that it sends to the weights that it takes for the ranks'; a rank skips most of its steps."""
    ddp, state = hooked(net(), "3lc:1:1024", gradwire.Link(token_file=token), server=address)
    optimizer = gradwire.ServedOptimizer(ddp.parameters(), state)
    names = [state._names.name(parameter) for parameter in ddp.parameters()]
    servers = {name: parameter.detach().flatten().clone() for name, parameter in zip(names, ddp.parameters())}
    keep = state._way.returned.keep

    def recorded(tensor, names, lens):
        for name, delta in zip(names, tensor.split(lens)):
            servers[name] += delta
        keep(tensor, names, lens)

    state._way.returned.keep = recorded
    for iteration in range(12):
        x, y = batch(rank, iteration)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        if iteration % 4 == 3:
            optimizer.step()
    for name, parameter in zip(names, ddp.parameters()):
        assert torch.equal(parameter.detach().flatten(), servers[name]), name
    state.close()


def scaler():
    """Torch 1.13 has one for CUDA alone, whose step needs none."""
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu")
    made = torch.cuda.amp.GradScaler(enabled=False)
    made._enabled, made._scale = True, torch.tensor(65536.0)
    made._growth_tracker = torch.tensor(0, dtype=torch.int32)
    made._per_optimizer_states = collections.defaultdict(torch.cuda.amp.grad_scaler._refresh_per_optimizer_state)
    return made


def scales(rank, address, token, give):
    def train():
        used = scaler()
        ddp, state = hooked(net(), "f32", gradwire.Link(token_file=token), server=address, **({"scaler": used} if give else {}))
        optimizer = gradwire.ServedOptimizer(ddp.parameters(), state)
        x, y = batch(rank, 0)
        loss = torch.nn.functional.cross_entropy(ddp(x), y)
        (used.scale(loss) if used._scale is None else loss * used._scale).backward()
        used.step(optimizer)

    return told(train)


def sums(rank, address, token):
    return told(served, rank, address, token, "f32")


def begins(rank, address, token, plan):
    return told(stepped, rank, address, token, plan)


def told(function, *args):
    """Returns the error."""
    try:
        function(*args)
    except (RuntimeError, OSError, ValueError) as error:
        return str(error)
    raise AssertionError("nothing is wrong")


def refused(rank, address, token, ranks, plan="f32"):
    link = gradwire.Link(token_file=token, timeout=20)
    return told(lambda: gradwire.State(link, plan, server=address))


def dies(rank, address, token, server):
    """At iteration 3, the server does (if `server` is its process), or rank 1."""
    ddp, state = hooked(net(), "q8", gradwire.Link(token_file=token), server=address)
    optimizer = sgd(ddp)
    for iteration in range(6):
        if iteration == 3:
            gathered(0)
            if server and rank == 0:
                os.kill(server, signal.SIGKILL)
            if not server and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        try:
            step(ddp, optimizer, rank, iteration)
        except RuntimeError as error:
            return iteration, str(error)
    return None


def other_layout(rank, address, token):
    link = gradwire.Link(token_file=token)
    state = gradwire.State(link, "f32", server=address)
    layout = _native.Layout([("a", 5 + rank, 1)])
    said = told(lambda: state._way.worker.channel.exchange(torch.zeros(5 + rank), layout, gradwire.Plan("f32"), False))
    state.close()
    return said


class Failures(unittest.TestCase):
    def test_a_dead_server_or_rank_is_named(self):
        for kill_server in (True, False):
            with Server(3) as server:
                process = server.process.pid if kill_server else None
                all_said = run(dies, 3, server.address, server.token, process, lost=[] if kill_server else [1])
                code, _, wrong = server.end()
            rank = 0 if kill_server else 2
            for said in all_said:
                if said is not None:
                    # What the dead one had still to send of iteration 2 is lost with it.
                    self.assertIn(said[0], (2, 3))
                    self.assertRegex(said[1], rf"\brank {rank}\b.*rank 0 is the server")
            self.assertEqual(len([said for said in all_said if said]), 3 if kill_server else 2)
            if not kill_server:
                self.assertEqual(code, 1)
                self.assertRegex(wrong, r"\brank 2\b")

    def test_another_number_of_workers_is_refused(self):
        with Server(3, "--timeout", "20") as server:
            for said in run(refused, 2, server.address, server.token, 2):
                self.assertRegex(said, "refused rank [12].*4 ranks, this rank 3")
            code, _, wrong = server.end()
        self.assertEqual(code, 1)
        self.assertRegex(wrong, "rank 2 of 3 ranks, expected 4")

    def test_another_token_is_refused(self):
        with Server(1) as server, tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "token")
            other.write_text(_native.token())
            (said,) = run(refused, 1, server.address, str(other), 1)
            self.assertIn("knows another token", said)
            (said,) = run(refused, 1, server.address, None, 1)
            self.assertIn("GRADWIRE_TOKEN_FILE", said)
            (said,) = run(refused, 1, "here", server.token, 1)
            self.assertIn("expected HOST:PORT", said)

    def test_plans_that_no_server_sums_are_refused(self):
        with Server(1) as server:
            for plan in ("ring:2:10", "in-network:127.0.0.1"):
                (said,) = run(refused, 1, server.address, server.token, 1, plan)
                self.assertIn("with a server", said)

    def test_ranks_with_other_tensors_are_told(self):
        with Server(2) as server:
            for said in run(other_layout, 2, server.address, server.token):
                self.assertRegex(said, "disagree: exchange 1 has .* values in layout")
            self.assertEqual(server.end()[0], 1)


class Command(unittest.TestCase):
    def run_it(self, *arguments):
        done = subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_it_starts_in_the_folder_that_it_was_installed_from(self):
        folder = pathlib.Path(__file__).parent.parent
        self.assertTrue((folder / "pyproject.toml").exists())
        command = [sys.executable, "-m", "gradwire", "serve", "--help"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("usage: ", done.stdout)

    def test_it_teaches_and_refuses(self):
        code, said = self.run_it("serve", "--help")
        self.assertEqual(code, 0)
        self.assertIn("GRADWIRE_TOKEN_FILE=token torchrun", said)
        with tempfile.TemporaryDirectory() as folder:
            token = os.path.join(folder, "token")
            ranks = ["serve", "--ranks", "2", "--token-file", token]
            self.assertIn("expected IP:PORT", self.run_it(*ranks, "--listen", "here")[1])
            self.assertIn("--optimizer needs --lr", self.run_it(*ranks, "--listen", "127.0.0.1:0", "--optimizer", "sgd")[1])
            self.assertIn("expected at least one", self.run_it(*ranks, "--listen", "127.0.0.1:0", "--ranks", "0")[1])
            for timeout in ("0", "nan", "1e18"):
                code, said = self.run_it(*ranks, "--listen", "127.0.0.1:0", "--timeout", timeout)
                self.assertEqual(code, 1)
                self.assertIn("expected seconds, more than 0", said)
            # Also those that say what holds anyway.
            for options, says in (
                ("--lr 0.1", "--lr is of --optimizer"),
                ("--weight-decay 0", "--weight-decay is of --optimizer"),
                ("--returns weights", "--returns is of --optimizer"),
                ("--codec 3lc:1:1024", "--codec is of --returns deltas"),
                ("--optimizer sgd --lr 0.1 --momentum 0.9", "--momentum is of --optimizer momentum"),
                ("--optimizer momentum --lr 0.1 --betas 0.9 0.999", "--betas is of --optimizer adamw"),
                ("--optimizer sgd --lr 0.1 --eps 1e-8", "--eps is of --optimizer adamw"),
            ):
                code, said = self.run_it(*ranks, "--listen", "127.0.0.1:0", *options.split())
                self.assertEqual(code, 2)
                self.assertIn(says, said)
            # It was made, for nobody else to read.
            self.assertEqual(os.stat(token).st_mode & 0o777, 0o600)
            pathlib.Path(token).write_text("short")
            code, said = self.run_it(*ranks, "--listen", "127.0.0.1:0")
            self.assertEqual(code, 1)
            self.assertIn("64 hexadecimal digits", said)


if __name__ == "__main__":
    unittest.main()
