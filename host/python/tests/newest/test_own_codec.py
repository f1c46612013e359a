"""A codec that a script registers: everywhere where gradwire's own are, and told what is wrong with it before it trains."""

import contextlib
import importlib.util
import itertools
import math
import pathlib
import unittest

import gradwire
import torch
import torch.distributed as dist
from gradwire import codec as operators
from gradwire.codec import Codec, concat, extract, map, named, peak, reduce
from ranks import digest, gathered, run
from test_attach import hosts, sharded
from test_attach import trained as trained_shards
from test_ddp import hooked, net, sgd, step
from test_group import SHAPES, exchanged, not_finite, resumed, trained
from test_local import alike, given_and_delivered
from torch.nn.parallel import DistributedDataParallel

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "own_codec.py"
DOCUMENT = pathlib.Path(__file__).parents[4] / "docs" / "codecs.md"


@gradwire.register("power")
class PowersOfTwo(Codec):
    """`power[:BLOCK]`: each value is its sign times the block's peak, halved up to six times, or 0: four bits."""

    def __init__(self, block: int = 64):
        self.unit = self.block = block

    def encode(self, values):
        blocks = values.unflatten(1, (-1, self.block))
        largest = peak(blocks)
        halvings = (largest / blocks.abs()).log2().round().nan_to_num(7.0, 7.0).clamp(max=7)
        return concat(largest, map(blocks, lambda value: halvings + 8 * (value < 0), 4))

    def decode(self, messages, n):
        largest, codes = extract(messages.unflatten(1, (n // self.block, -1)), (torch.float32, 1), (4, self.block))
        sign, halvings = 1.0 - 2.0 * (codes >= 8), codes % 8
        # Exact, and NaN if the peak is.
        return (sign * largest * torch.where(halvings < 7, torch.exp2(-halvings.to(torch.float32)), 0.0)).flatten(1)


def everything(rank):
    """The laws of gradwire's own codecs; a rank starts once for all of them."""
    found = {shape: exchanged(rank, "power", SHAPES[shape], dtype) for shape, dtype in itertools.product(SHAPES, (torch.float32, torch.bfloat16))}
    return found, not_finite(rank, "power"), trained(rank, "group:power", {}), resumed(rank, 2, "power")


def attached(rank):
    """By the one line, also without a prefix where links have no such plan."""
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
    said = []
    for plan in ("power:64", "group:power:63:1", "group:powers"):
        try:
            gradwire.attach(ddp, plan)
        except ValueError as error:
            said.append(str(error))
    state = gradwire.attach(ddp, "group:power:32")
    optimizer = sgd(ddp)
    for iteration in range(6):
        step(ddp, optimizer, rank, iteration)
    report = state.report()
    state.close()
    return said, report.plan, len(set(gathered(digest(ddp)))), report.ratio


def by_local_steps(rank):
    return given_and_delivered(rank, {"plan": "group:power"}), alike(rank, {"plan": "group:power", "every": 4})


def between_hosts(rank):
    exact = trained_shards(rank, DistributedDataParallel(net(), bucket_cap_mb=0.02))
    mesh = hosts()
    model = sharded(net(), mesh["gpu"])
    state = gradwire.attach(model, "power", group=mesh["host"].get_group())
    off = (trained_shards(rank, model) - exact).abs().max().item()
    report = state.report()
    state.close()
    return off, report.ratio, report.residual


def other_code(rank):
    """Two ranks with other code under one name."""

    class One(Codec):
        def encode(self, values):
            return concat(values)

        def decode(self, messages, n):
            return extract(messages, (torch.float32, n))[0]

    class Two(One):
        def encode(self, values):
            return concat(-values)

    gradwire.register("mine")((One, Two)[rank])
    said = []
    ddp, state = hooked(net(), "group:mine")
    model = net()
    for wrong in (
        lambda: step(ddp, sgd(ddp), rank, 0),
        lambda: gradwire.LocalSteps(model, torch.optim.SGD(model.parameters(), 0.1), plan="group:mine"),
    ):
        with contextlib.suppress(AssertionError):
            try:
                wrong()
                said.append("nothing")
            except RuntimeError as error:
                said.append(str(error))
    dist.barrier()
    return said


class Served(unittest.TestCase):
    def test_the_laws_hold(self):
        for found, wrong, (losses, report), off in run(everything, 2):
            for shape, (missing, alone) in found.items():
                self.assertLess(missing, 1e-2, shape)
                if shape == "matrices and biases":
                    self.assertGreater(alone, 1e-3)
            for each in wrong:
                self.assertEqual(each, [(True, True), (False, False), (True, True), (True, True)])
            self.assertLess(sum(losses[-10:]) / 10, 0.9 * losses[0])
            self.assertEqual(report.plan, "group:power")
            self.assertLess(max(off.values()), 1e-5)

    def test_attach_takes_it_and_names_what_is_wrong(self):
        for said, plan, replicas, ratio in run(attached, 2):
            self.assertRegex(said[0], "over the process group there is one: give 'group:power:64'")
            self.assertRegex(said[1], r"plan 'power:63:1': .* there are .*, power\[:BLOCK\], .*of your own is registered before")
            self.assertRegex(said[2], "plan 'powers'")
            self.assertEqual((plan, replicas, ratio > 1.5), ("group:power:32", 1, True))

    def test_local_steps_take_it(self):
        for (missing, lost), (common, *_) in run(by_local_steps, 2):
            self.assertLess(missing, 1e-5)
            self.assertGreater(lost, 1e-4)
            self.assertGreater(len(set(common)), 3)

    def test_shards_between_hosts_take_it(self):
        for off, ratio, residual in run(between_hosts, 4):
            self.assertLess(off, 0.05)
            self.assertGreater(ratio, 2)
            self.assertGreater(residual, 0)

    def test_ranks_with_other_code_are_told_so(self):
        for said in run(other_code, 2):
            for each in said:
                self.assertRegex(
                    each, r"rank 1 has .*mine \(source [0-9a-f]{12}, 8192 bytes\).*rank 0 .*mine \(source [0-9a-f]{12}, .*give all ranks"
                )
            self.assertEqual(len(said), 2)


class Wrong(Codec):
    """A right one, of which tests override parts."""

    def encode(self, values):
        return concat(values)

    def decode(self, messages, n):
        return extract(messages, (torch.float32, n))[0]


class Refused(unittest.TestCase):
    def setUp(self):
        before = dict(operators._ENTRIES)
        self.addCleanup(operators._ENTRIES.update, before)
        self.addCleanup(operators._ENTRIES.clear)

    def test_names_that_are_taken(self):
        for name in ("q8", "dgc", "f32", "auto", "low-rank", "ring", "power"):
            with self.assertRaisesRegex(ValueError, f"{name!r} is taken"):
                gradwire.register(name)(Wrong)
        for name in ("", "Mine", "a:b", "a b", Wrong):
            with self.assertRaisesRegex(ValueError, "expected @register"):
                gradwire.register(name)
        gradwire.register("again")(Wrong)
        # As a notebook's cell does, and other code of that class counts.
        gradwire.register("again")(type("Wrong", (Wrong,), {"__module__": Wrong.__module__, "__qualname__": "Wrong", "unit": 4}))
        self.assertEqual(named("again").unit, 4)

    def test_classes_that_are_no_codec(self):
        for made, text in (
            (object, "expected a class of gradwire.codec.Codec"),
            (Wrong(), "expected a class of gradwire.codec.Codec"),
            (type("Half", (Codec,), {"encode": Wrong.encode}), "Half needs encode, or encode_with, and decode"),
            (type("Half", (Codec,), {"decode": Wrong.decode}), "Half needs encode, or encode_with, and decode"),
        ):
            with self.assertRaisesRegex(TypeError, text):
                gradwire.register("no-codec")(made)
        for init in (lambda self, block=1: None, lambda self, *blocks: None):
            with self.assertRaisesRegex(TypeError, "argument .* of __init__ needs the annotation int or float"):
                gradwire.register("no-codec")(type("Untyped", (Wrong,), {"__init__": init}))
        self.assertNotIn("no-codec", operators._ENTRIES)

    def test_codecs_that_break_a_rule(self):
        class State(Wrong):
            calls = 0

            def decode(self, messages, n):
                self.calls += 1
                return super().decode(messages, n) + self.calls

        def infinities(values):
            return concat(torch.where(values.isnan(), 0.0, values))

        for number, (made, text) in enumerate(
            (
                (
                    {"encode": lambda self, values: values},
                    r"encode returns torch.float32 \[3, 2048\] on cpu: expected torch.uint8 \[3, size\] on cpu",
                ),
                ({"encode": lambda self, values: None}, "encode returns NoneType: expected a tensor"),
                ({"encode": lambda self, values: concat(values)[0]}, r"\[8192\] on cpu: expected torch.uint8 \[3, size\]"),
                ({"encode": lambda self, values: concat(values)[:, : 4 * int((values[0] > 0).sum())]}, "decode|invalid|bytes"),
                ({"encode": lambda self, values: concat(values, values[:, : len(values)])}, r"have \[8196, 8204\] bytes: expected one size"),
                ({"encode": lambda self, values: concat(values.mul_(2))}, "encode changes the values that it is given"),
                ({"encode": lambda self, values: concat(values * (values.max().item() < 1e9))}, "on a device whose values are not known"),
                ({"encode": lambda self, values: concat(torch.where(values == 0, torch.zeros(2048), values))}, "without device="),
                ({"encode": lambda self, values: infinities(values)}, "not finite if, and only if"),
                ({"decode": lambda self, messages, n: Wrong.decode(self, messages, n).double()}, "decode returns torch.float64"),
                (
                    {"decode": lambda self, messages, n: Wrong.decode(self, messages, n)[:, 1:]},
                    r"\[3, 2047\] on cpu: expected torch.float32 \[3, 2048\]",
                ),
                ({"decode": State.decode, "calls": 0}, "replicas would differ"),
                ({"decode": lambda self, messages, n: Wrong.decode(self, messages, n) * len(messages)}, "of a message beside others"),
                ({"decode": lambda self, messages, n: Wrong.decode(self, messages, n) + math.inf}, "not finite if, and only if"),
                ({"unit": 0}, "unit is 0"),
            )
        ):
            name = f"wrong-{number}"
            gradwire.register(name)(type("Broken", (State if "calls" in made else Wrong,), {**made, "__qualname__": name}))
            with self.assertRaisesRegex(ValueError, text):
                gradwire.State(plan="group:" + name)
            with self.assertRaisesRegex(ValueError, f"^{name}: "):
                named(name)

    def test_arguments_that_do_not_parse(self):
        for plan, text in (
            ("power:x", "power:x: invalid literal"),
            ("onebit:-1", "onebit:-1: expected a BLOCK"),
            ("onebit:1:2", r"onebit\[:BLOCK\]"),
            ("tbq", "tbq:THRESHOLD"),
            ("tbq:0", "a threshold above 0"),
            ("tbq:1e-40", "a threshold above 0"),
            ("tbq:inf", "a threshold above 0"),
            ("terngrad:3", "2, 4 or 8 bits"),
            ("dgc:0", "above 0 and at most 100"),
            ("dgc:nan", "above 0 and at most 100"),
            ("graddrop:10", "at least 50 and below 100"),
            ("adacomp:5:6", "a BIN of 1 to 65536 values, and MOST of these"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                gradwire.State(plan="group:" + plan)

    def test_the_example_is_that_of_the_document(self):
        text = EXAMPLE.read_text()
        self.assertIn(text.partition('"""\n\n')[2], DOCUMENT.read_text())
        # Each rank imports it like this.
        spec = importlib.util.spec_from_file_location("own_codec", EXAMPLE)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        codec = named("sign:4")
        message = codec.encode(torch.tensor([[1.0, -2.0, 3.0, -4.0]]))
        self.assertEqual(message.tolist(), [[0, 0, 32, 64, 5]])
        self.assertEqual(codec.decode(message, 4).tolist(), [[2.5, -2.5, 2.5, -2.5]])

    def test_the_example_of_the_module_is_a_codec(self):
        @gradwire.register("sign")
        class Sign(Codec):
            def encode(self, values):
                mean = reduce(values.abs(), torch.sum) / values.shape[1]
                return concat(mean, map(values, lambda value: value >= 0, 1))

            def decode(self, messages, n):
                mean, codes = extract(messages, (torch.float32, 1), (1, n))
                return torch.where(codes == 1, mean, -mean)

        self.assertEqual(named("sign").encode(torch.tensor([[1.0, -2.0, 3.0]])).tolist(), [[0, 0, 0, 64, 5]])


if __name__ == "__main__":
    unittest.main()
