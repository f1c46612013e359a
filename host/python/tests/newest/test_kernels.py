"""Kernels: bit for bit what torch operations make, Triton's in its interpreter; and what these are compiled to. No GPU was at hand."""

import collections
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

# Before Triton is imported, here or by the processes of ranks.
os.environ["TRITON_INTERPRET"] = "1"

import torch
from gradwire import _native
from gradwire.codec import named
from gradwire.device import bucket, codecs, exchange, kernels, low_rank, native
from gradwire.device.bucket import Bucket, Layout
from gradwire.device.exchange import Group
from gradwire.device.plan import group_plan
from ranks import finite, gathered, run
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.runtime import interpreter

HERE = pathlib.Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Each with all dtypes, then other sizes of blocks: no power of two, and units of several blocks
# and groups.
NAMES = ("q8:256", "q4:64", "3lc:1:320")
OTHERS = ("q8:4", "q8:100", "q4:8", "q4:1000", "3lc:1.75:64", "3lc:1:640", "3lc:1.5:1024", "3lc:1:960")


def setUpModule():
    kernels.DEVICES = ("cpu",)
    # NumPy's, of quotients and products that are not used.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")


def blocks_of(block, most, generator):
    """Blocks of all sorts `[sorts, block]`; `most` is the largest integer of the codec, or 2 if half of it is where a digit begins."""

    def normal():
        return torch.randn(block, generator=generator)

    ties = torch.arange(block) % (2 * most) - (most - 0.5)
    ties[0] = most
    tiny = torch.arange(block, dtype=torch.int32).view(torch.float32)
    # Half of its peak is 0, as most of its values.
    least = torch.zeros(block)
    least[0] = 2.0**-149
    peak, far = normal() * 2.0**-103, normal()
    peak[1], far[0] = 2.0**-100, torch.finfo(torch.float32).max
    below = peak.clone()
    below[1] = torch.tensor(2.0**-100).nextafter(torch.zeros(()))
    inf, minus, nan, signed, subnormal = normal(), normal(), normal(), -torch.zeros(block), normal() * 2.0**-110
    inf[block - 1], minus[block // 2], nan[1], nan[2] = float("inf"), -float("inf"), float("nan"), float("inf")
    subnormal[0] = 1e-42
    wide = normal() * torch.logspace(-12, 3, block)
    alone = [normal(), torch.zeros(block), ties, ties * 2.0**-90, tiny, least, far, peak, below, wide]
    return torch.stack([*alone, inf, minus, nan, signed, subnormal])


def values_for(codec, seed):
    """Values whose length is no multiple of anything, and the integers between which they are rounded."""
    kind, *_, block = codec.name.split(":")
    most = {"q8": 127, "q4": 7, "3lc": 2}[kind]
    values = blocks_of(int(block), most, torch.Generator().manual_seed(seed)).view(-1)
    return torch.cat((values, values[:5]))


def bits(tensor):
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


class Case(unittest.TestCase):
    def assert_same(self, mine, theirs, case):
        """The same bits, but for those of a NaN."""
        self.assertEqual((mine.dtype, mine.shape), (theirs.dtype, theirs.shape), case)
        if mine.dtype == torch.uint8:
            self.assertTrue(torch.equal(mine, theirs), case)
            return
        self.assertTrue(torch.equal(mine.isnan(), theirs.isnan()), case)
        self.assertTrue(torch.equal(bits(mine)[~mine.isnan()], bits(theirs)[~theirs.isnan()]), case)


class Same:
    """Of kernels, what `kernels` gives for codecs of these names, each with all dtypes, and of `OTHERS`."""

    NAMES, OTHERS, DTYPES = NAMES, OTHERS, DTYPES

    def test_encoders_are_the_torch_operations(self):
        cases = [(name, *dtypes) for name in self.NAMES for dtypes in itertools.product(self.DTYPES, self.DTYPES[:2])]
        seen = collections.Counter()
        for case in cases + [(name, torch.float32, torch.float32) for name in self.OTHERS]:
            name, dtype, held = case
            codec = named(name)
            gradient = values_for(codec, 1).to(dtype)
            n = len(gradient)
            residual = values_for(codec, 2).to(held)
            # Sums of two thirds are values alone: ties stay.
            residual[: 2 * n // 3] = 0.0
            residual = finite(residual)
            rows, part = 2, -(-n // (2 * codec.unit)) * codec.unit
            padded = torch.nn.functional.pad(gradient.to(torch.float32) + residual.to(torch.float32), (0, rows * part - n)).view(rows, part)
            expected = codec.encode(padded)
            lost = finite(padded - codec.decode(expected, part)).view(-1)[:n].to(held)
            self.assert_same(self.kernels(codec, gradient).encode(gradient, residual, rows, part), expected, case)
            self.assert_same(residual, lost, case)
            # Parameters of a third each.
            third, residual = n // 3, values_for(codec, 4).to(held)
            residual = finite(residual)
            before = residual.to(torch.float32)
            used = torch.cat([torch.full((length,), flag) for length, flag in ((third, True), (third, False), (n - 2 * third, True))])
            gradient = torch.where(used, gradient, 0.0)
            total = gradient.to(torch.float32) + torch.where(used, before, 0.0)
            padded = torch.nn.functional.pad(total, (0, rows * part - n)).view(rows, part)
            expected = codec.encode(padded)
            unused = finite(padded - codec.decode(expected, part)).view(-1)[:n]
            unused = torch.where(used, unused, before + unused).to(held)
            self.assert_same(self.kernels(codec, gradient).encode(gradient, residual, rows, part, used), expected, case)
            self.assert_same(residual, unused, case)
            seen["lost"] += (lost != 0).sum().item()
            seen["subnormal"] += ((lost != 0) & (lost.abs() < 2.0**-126)).sum().item()
        self.assertGreater(min(seen.values()), 1000, seen)

    def test_sums_of_ranks_are_the_torch_operations(self):
        for case in [*itertools.product(self.NAMES, (1, 2, 3), self.DTYPES[:2]), *((name, 3, torch.float32) for name in self.OTHERS)]:
            name, ranks, held = case
            codec = named(name)
            values = [values_for(codec, seed) for seed in range(ranks)]
            part = -(-len(values[0]) // codec.unit) * codec.unit
            received = torch.cat([codec.encode(torch.nn.functional.pad(each, (0, part - len(each))).view(1, -1)) for each in values])
            residual = torch.randn(part, generator=torch.Generator().manual_seed(9)).to(held)
            total = codec.decode(received[:1], part)
            for rank in range(1, ranks):
                total += codec.decode(received[rank : rank + 1], part)
            total = codecs.divided(total, ranks)
            self.assert_same(self.kernels(codec, values[0]).mean(received, part), total[0], case)
            total += residual.to(torch.float32)
            expected = codec.encode(total)
            lost = finite(total - codec.decode(expected, part))[0].to(held)
            self.assert_same(self.kernels(codec, values[0]).encode_mean(received, residual), expected, case)
            self.assert_same(residual, lost, case)

    def test_decoders_are_the_torch_operations(self):
        for name, dtype in [*itertools.product(self.NAMES, self.DTYPES), *((name, torch.float32) for name in self.OTHERS)]:
            codec = named(name)
            given = values_for(codec, 3)
            n = len(given)
            part = -(-n // (2 * codec.unit)) * codec.unit
            messages = codec.encode(torch.nn.functional.pad(given, (0, 2 * part - n)).view(2, part))
            expected = codec.decode(messages, part).view(-1)[:n]
            values = torch.zeros(n, dtype=dtype)
            mean = self.kernels(codec, values).decode(messages, part, values)
            self.assert_same(mean, expected, (name, dtype))
            self.assert_same(values, expected.to(dtype), (name, dtype))
            self.assertGreater(expected.isnan().sum(), 0)

    def test_every_byte_decodes_as_in_torch(self):
        """Also those that no encoder writes."""
        for name in ("q8:256", "q4:512"):
            codec = named(name)
            message = torch.cat((torch.tensor([0.37]).view(torch.uint8), torch.arange(256, dtype=torch.uint8))).view(1, -1)
            values = torch.zeros(codec.unit)
            self.kernels(codec, values).decode(message, codec.unit, values)
            self.assert_same(values, codec.decode(message, codec.unit)[0], name)


class Native(Same, Case):
    NAMES, OTHERS, DTYPES = ("q8:256", "q4:64"), ("q8:4", "q8:100", "q8:5000", "q4:6", "q4:1000"), (torch.float32,)
    kernels = staticmethod(native.kernels)


class Interpreted(Same, Case):
    kernels = staticmethod(kernels.kernels)

    def test_bytes_that_are_moved_are_those_of_the_documentation(self):
        moved = collections.Counter()

        class Counting:
            def __getattr__(self, name):
                return getattr(real, name)

            def load(self, at, mask, other, dtype):
                moved[self] += int(mask.sum()) * dtype.itemsize
                return real.load(at, mask, other, dtype)

            def store(self, at, values, mask):
                moved[self] += int(mask.sum()) * values.itemsize
                real.store(at, values, mask)

        real, ranks, said = interpreter._interpreter, 8, []
        for name in ("q8:256", "q4:256", "3lc:1:320"):
            codec = named(name)
            part = 4 * codec.unit
            values, residual, owned = (torch.zeros(n, dtype=torch.bfloat16) for n in (ranks * part, ranks * part, part))
            found, counting = kernels.kernels(codec, values), Counting()
            with mock.patch.object(interpreter, "_interpreter", counting):
                messages = found.encode(values, residual, ranks, part)
                found.encode_mean(messages, owned)
                found.decode(messages, part, values)
            said.append(f"{name}: {moved[counting] / len(values):.1f}")
        self.assertIn(f"for an all-reduce of bfloat16 over 8 ranks, bytes a value: {', '.join(said)}.", " ".join(kernels.__doc__.split()))


def instructions():
    """By codec, kernel, GPU and whether products and sums may be fused: how often it has each instruction, and how AMD's treats subnormals."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON")}
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, HERE / "compiled.py"], env={**environment, "TRITON_CACHE_DIR": cache}, stdout=subprocess.PIPE, check=True, text=True
        )
    return {tuple(key): (found, modes) for *key, found, modes in map(json.loads, done.stdout.splitlines())}


def divides(name, step):
    """By the number of ranks, or for a scale, which 3lc does not."""
    return "mean" in step or ("encode" in step and name != "3lc:1:320")


class Compiled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = instructions()

    def number(self, key, *beginnings):
        return sum(count for name, count in self.found[key][0].items() if name.startswith(beginnings))

    def test_every_kernel_compiles_for_every_gpu(self):
        exact = {key[:3] for key in self.found if not key[3]}
        steps = ("encode", "encode what is used", "encode_mean", "mean", "decode")
        self.assertEqual(exact, set(itertools.product(("q8:256", "q4:256", "3lc:1:320"), steps, ("sm_80", "sm_90", "gfx942"))))

    def test_nvidia_fuses_nothing_and_keeps_subnormals(self):
        for key in self.found:
            name, step, gpu, fused = key
            if not gpu.startswith("sm_"):
                continue
            # Those of integers are called mad.lo.
            self.assertEqual(self.number(key, "fma.", "mad.rn", "mad.f32") > 0, fused, key)
            self.assertGreater(self.number(key, "mul.rn.f32", "fma.rn.f32"), 0, key)
            self.assertEqual([each for each in self.found[key][0] if ".ftz" in each or ".approx" in each or ".full" in each], [], key)
            self.assertEqual(self.number(key, "div.rn.f32") > 0, divides(name, step), key)

    def test_amd_fuses_in_divisions_alone_and_keeps_subnormals(self):
        for key in self.found:
            name, step, gpu, fused = key
            if gpu != "gfx942":
                continue
            # A division ends with v_div_fixup, and has five before.
            divisions = self.number(key, "v_div_fixup_f32")
            self.assertEqual(divisions > 0, divides(name, step), key)
            others = self.number(key, "v_fma_", "v_fmac_", "v_mac_", "v_mad_f", "v_pk_fma", "v_dot") - 5 * divisions
            self.assertEqual(others > 0, fused, (key, others))
            self.assertGreaterEqual(others, 0, key)
            self.assertEqual(self.found[key][1], ["3"], key)


SIZES = ((90, 64), (90,), (70, 90), (70,), (1500,))
LENS = [torch.Size(size).numel() for size in SIZES]
N = sum(LENS)


def exchanged(rank, plan, dtype, by_kernels, options, scale=None, made_by=kernels.kernels):
    """What each of three iterations leaves at this rank, as bytes, and how often kernels were asked."""
    said, made = [], Bucket(Layout(tuple("abcde"), SIZES), torch.empty(N, dtype=dtype), **options)
    # Also parameters without a codec may come with something.
    made.take({name: torch.linspace(-1, 1, length) for name, length in zip("abcde", LENS)}, {})
    group, plan = Group(None), group_plan(plan)
    asked = mock.Mock(side_effect=made_by if rank in by_kernels else lambda *_: None)
    with mock.patch.object(bucket, "kernels", asked), mock.patch.object(low_rank, "kernels", asked):
        for iteration in range(3):
            values = torch.randn(N, generator=torch.Generator().manual_seed(10 * iteration + rank)).to(dtype)
            if options["may_be_unused"] and iteration:
                # At one rank, then at both, a parameter that is coded and one that is not.
                for part in values.split(LENS)[iteration + rank : 4]:
                    part.zero_()
            if (rank, iteration) == (1, 1):
                values[100] = float("nan")
            mean = made.exchange(group, plan, values, scale)
            assert len(set(gathered(finite(mean).numpy().tobytes()))) == 1, "replicas differ"
            left = (values, mean, made.residual, made.owned, *made.saved(group)[0].values(), *made.saved(group)[1].values())
            said.append([finite(each.to(torch.float32)).numpy().tobytes() for each in left if each is not None])
            said[-1] += [int(mean.isnan().sum()), group.sent_bytes]
    return said, asked.call_count


def by_kernels_and_not(rank, cases):
    """By torch operations at all ranks, and by kernels at rank 1."""
    kernels.DEVICES = ("cpu",)
    return {
        case: [exchanged(rank, *case[:2], by, {**SERVED, "may_be_unused": case[2]}, None, MADE_BY[case[3]]) for by in ((), (1,))] for case in cases
    }


def asked(rank, cases):
    return [exchanged(rank, "q8", torch.float32, (), *case)[1] for case in cases]


SERVED = {"may_be_unused": False, "skips": False}
MADE_BY = {"triton": kernels.kernels, "rust": native.kernels}


class Buckets(unittest.TestCase):
    def test_a_bucket_by_kernels_is_one_by_torch_operations(self):
        cases = [
            ("q8", torch.float32, False, "triton"), ("q8", torch.bfloat16, True, "triton"), ("q4:64", torch.float16, True, "triton"),
            ("3lc:1:320", torch.bfloat16, False, "triton"), ("q8", torch.float32, True, "rust"), ("q4:64", torch.float32, False, "rust"),
            ("low-rank:4", torch.float32, True, "rust"), ("low-rank:4", torch.bfloat16, False, "triton"),
        ]  # fmt: skip
        for said in run(by_kernels_and_not, 2, cases):
            for case, ((expected, _), (found, count)) in said.items():
                self.assertGreater(expected[1][-2], 0, "the NaN")
                # Of low-rank, for both factors.
                self.assertEqual(count, 6 if case[0].startswith("low-rank") else 3)
                self.assertTrue(found == expected, case)

    def test_what_kernels_do_not_serve_is_left_to_torch(self):
        cases = [({**SERVED, "skips": True},), (SERVED, torch.full((), 2.0)), (SERVED,)]
        for said in run(asked, 2, cases):
            self.assertEqual(said, [0, 0, 3])
        values = torch.zeros(10)
        for name in ("q8:2", "q8:8196", "q4:4", "q4:16388", "3lc:1:32", "3lc:1:100", "3lc:1:4096"):
            self.assertIsNone(kernels.kernels(named(name), values), name)
        codec = named("q8:256")
        for other in (values.double(), values[::2], torch.empty(1 << 29, device="meta")):
            with mock.patch.object(kernels, "DEVICES", ("cpu", "meta")):
                self.assertIsNone(kernels.kernels(codec, other))
        for name in ("q8:8192", "q4:16384", "3lc:1:2048"):
            self.assertIsNotNone(kernels.kernels(named(name), values), name)


WITHOUT = """
import sys, tempfile
sys.modules["triton"] = None
import torch, torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
import gradwire
from gradwire.codec import named
from gradwire.device import exchange
from gradwire.device.bucket import Bucket, Layout
from gradwire.device.plan import group_plan
try:
    import gradwire.device.kernels
except ImportError:
    pass
else:
    raise AssertionError("there is a Triton")
with FakeTensorMode():
    assert exchange.kernels(named("q8"), torch.empty(9, device="cuda")) is None
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    values = torch.linspace(-1, 1, 3000)
    bucket = Bucket(Layout(("a",), ((3000,),)), values, may_be_unused=False, skips=False)
    mean = bucket.exchange(exchange.Group(None), group_plan("q8"), values.clone())
    assert 0 < (mean - values).abs().max() < 0.02
    dist.destroy_process_group()
print("worked")
"""


class Choice(unittest.TestCase):
    def test_the_package_works_without_triton(self):
        asked = {**os.environ, "GRADWIRE_KERNELS": "1"}
        done = subprocess.run([sys.executable, "-c", WITHOUT], stdout=subprocess.PIPE, check=True, text=True, env=asked)
        self.assertEqual(done.stdout, "worked\n")

    def test_a_variable_turns_kernels_on(self):
        codec = named("q8")
        with FakeTensorMode(), mock.patch.object(kernels, "DEVICES", ("cuda",)):
            values = torch.empty(9, device="cuda", dtype=torch.bfloat16)
            self.assertIsNone(exchange.kernels(codec, values))
            with mock.patch.dict(os.environ, {"GRADWIRE_KERNELS": "1"}):
                self.assertIsInstance(exchange.kernels(codec, values), kernels.IntegerKernels)
                # Whatever Triton's say.
                self.assertIsNone(exchange.kernels(codec, torch.zeros(9)), "a fake tensor")
        with mock.patch.object(kernels, "DEVICES", ("cpu",)), mock.patch.dict(os.environ, {"GRADWIRE_KERNELS": "1"}):
            self.assertIsInstance(exchange.kernels(codec, torch.zeros(9)), native.NativeKernels)

    def test_rust_serves_the_cpu_unless_a_variable_says_no(self):
        values = torch.zeros(9)
        self.assertIsInstance(exchange.kernels(named("q4"), values), native.NativeKernels)
        for codec, other in ((named("3lc:1:320"), values), (named("q8"), values.bfloat16()), (named("q8"), values[::2])):
            self.assertIsNone(exchange.kernels(codec, other))
        with mock.patch.dict(os.environ, {"GRADWIRE_KERNELS": "0"}):
            self.assertIsNone(exchange.kernels(named("q4"), values))

    def test_lengths_that_do_not_fit_are_refused(self):
        made, values = _native.Coder(8, 256), torch.zeros(512)
        for n in (0, 260, 519, 521):
            message = torch.empty(n, dtype=torch.uint8)
            text = f"{n} bytes are no messages of 512 values, 256 each"
            with self.assertRaisesRegex(ValueError, text):
                made.encode(values, values.clone(), 256, message)
            with self.assertRaisesRegex(ValueError, text):
                made.decode(message, 256, values)
            with self.assertRaisesRegex(ValueError, "no messages of 512 values"):
                made.mean(message, values)
        message = torch.empty(520, dtype=torch.uint8)
        with self.assertRaisesRegex(ValueError, "a tensor of 512 values, expected 511"):
            made.encode(values, values[:511].clone(), 256, message)
        with self.assertRaisesRegex(ValueError, "got torch.uint8"):
            made.decode(message, 256, message)
        with self.assertRaisesRegex(ValueError, "got torch.float32"):
            made.decode(values, 256, values)
        for bits, block in ((7, 256), (8, 0)):
            with self.assertRaisesRegex(ValueError, f"codec 'q{bits}:{block}'"):
                _native.Coder(bits, block)

    def test_the_cpu_does_not_import_triton(self):
        script = (
            "import sys, torch, gradwire; from gradwire.codec import named; from gradwire.device import exchange; codec = named('q8'); "
            "before = set(sys.modules); assert exchange.kernels(codec, torch.empty(9)) is not None; assert set(sys.modules) == before"
        )
        subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "GRADWIRE_KERNELS": "1"})


if __name__ == "__main__":
    unittest.main()
