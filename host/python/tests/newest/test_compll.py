"""CompLL's algorithms and AdaComp in torch operations: against the messages of a second implementation, and against their laws."""

import ast
import itertools
import math
import pathlib
import re
import struct
import unittest
from unittest import mock

import numpy as np
import torch
from gradwire import codec as operators
from gradwire import compll
from gradwire.codec import named
from ranks import run
from test_codecs import GOLDEN, floats
from test_group import SHAPES, exchanged, not_finite, resumed, trained

FILES = pathlib.Path(compll.__file__)
DOCUMENT = pathlib.Path(__file__).parents[4] / "docs" / "codecs.md"
# Lines of logic and of functions that users define, as HiPress' Table 5 has them.
COMPLL = {"OneBit": (21, 9), "Threshold": (13, 18), "TernGrad": (23, 7), "Dgc": (29, 15), "GradDrop": (29, 21), "AdaComp": None}
PLANS = ("onebit:64", "tbq:0.5", "terngrad:4:64", "dgc:5", "graddrop:95", "adacomp:25:2")


def golden(kinds):
    """Name, gradient, seed and message, in the file's order."""
    tensor = None
    for line in (GOLDEN / "v1.txt").read_text().splitlines():
        kind, name, *rest = line.split(" ")
        if kind == "tensor":
            tensor = floats(rest[0])
        elif name.split(":")[0] in kinds and len(tensor):
            yield name, tensor, int(rest[0]), bytes.fromhex(rest[1])


def seeded(seed):
    return mock.patch.object(operators, "_seed", lambda: seed)


def lost(total, decoded):
    rest = total - decoded
    return torch.where(rest.isfinite(), rest, 0.0)


def said(message, n):
    """The indices and values of a sparse message, by section 3.9, which may have fewer than others."""
    (count,) = struct.unpack_from("<I", message)
    width = (n - 1).bit_length()
    number = int.from_bytes(message[4 : 4 + math.ceil(count * width / 8)], "little")
    indices = [number >> i * width & (1 << width) - 1 for i in range(count)]
    assert indices == sorted(set(indices)) and all(index < n for index in indices)
    values = message[4 + math.ceil(count * width / 8) :]
    assert len(values) == 4 * count
    return indices, values


def scattered(message, n):
    bits = np.zeros(n, np.uint32)
    indices, values = said(message, n)
    bits[indices] = np.frombuffer(values, np.uint32)
    return bits


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Golden(unittest.TestCase):
    def test_messages_of_tbq_and_terngrad_are_those_of_the_second_implementation(self):
        compared = dict.fromkeys(("tbq:0.25", "terngrad", "terngrad:4", "terngrad:8"), 0)
        for name, gradient, seed, message in golden(("tbq", "terngrad")):
            codec = named(name)
            if seed == 1:
                residual = torch.zeros_like(gradient)
            total = residual + gradient
            with seeded(seed):
                mine = codec.encode(total.view(1, -1))
            self.assertEqual(mine[0].numpy().tobytes(), message, (name, seed, len(gradient)))
            residual = lost(total, codec.decode(mine, len(total))[0])
            compared[name] += 1
        self.assertEqual(set(compared.values()), {16}, compared)

    def test_signs_of_onebit_are_those_of_the_second_implementation_and_means_nearly(self):
        """But for a last block that is not full, as messages here have none. Means are sums in another order."""
        compared = dict.fromkeys(("onebit", "onebit:100"), 0)
        for name, gradient, seed, message in golden(("onebit",)):
            n, codec = len(gradient), named(name)
            block = codec.block or n
            if seed == 1:
                residual = torch.zeros_like(gradient)
            total, row = residual + gradient, 8 + math.ceil(block / 8)
            for number in range(n // block):
                there = torch.frombuffer(bytearray(message[number * row : (number + 1) * row]), dtype=torch.uint8)
                part = total[number * block : (number + 1) * block]
                mine = codec.encode(part.view(1, -1))[0]
                self.assertTrue(torch.equal(mine[8:], there[8:]), (name, seed, n))
                # A sum of 1,024 values in f32 is off by at most some roundings of the sum of
                # magnitudes.
                off = (mine[:8].view(torch.float32) - there[:8].clone().view(torch.float32)).abs()
                if part.isfinite().all():
                    self.assertLessEqual(off.max(), part.abs().mean() * 2.0**-18, (name, seed, n))
                else:
                    self.assertTrue(torch.equal(mine[:8], there[:8]))
                # What it lost is what it says, so that both go on from the same.
                residual[number * block : (number + 1) * block] = lost(part, codec.decode(there.view(1, -1), block)[0])
                compared[name] += 1
        self.assertGreater(min(compared.values()), 15, compared)

    def test_values_of_dgc_and_graddrop_are_those_of_the_second_implementation(self):
        compared, whole = dict.fromkeys(("dgc:5", "graddrop:99"), 0), 0
        for name, gradient, seed, message in golden(("dgc", "graddrop")):
            n, codec = len(gradient), named(name)
            if seed == 1:
                residual = torch.zeros_like(gradient)
            total = residual + gradient
            with seeded(seed):
                mine = codec.encode(total.view(1, -1))
            bits = scattered(message, n)
            decoded = torch.from_numpy(bits.view(np.float32).copy())
            # By section 3.9, and by the codec.
            self.assertTrue(np.array_equal(scattered(mine[0].numpy().tobytes(), n) if n > 1 else bits, bits), (name, seed, n))
            self.assertTrue(np.array_equal(codec.decode(mine, n)[0].numpy().view(np.uint32), bits), (name, seed, n))
            if len(message) == mine.shape[1]:
                self.assertEqual(mine[0].numpy().tobytes(), message, (name, seed, n))
                whole += 1
            residual = lost(total, decoded)
            compared[name] += 1
        self.assertEqual(set(compared.values()), {16}, compared)
        self.assertGreater(whole, 8)


def adacomp(values, gradient, size, most):
    """What arrives, value by value: Chen et al.'s Algorithm 2, with at most `most` values of a bin, and a scale for 16 bins."""
    sent = np.zeros_like(values)
    for first in range(0, len(values), 16 * size):
        starts = range(first, first + 16 * size, size)
        scale = np.float32(sum(np.float64(np.abs(values[start : start + size]).max()) for start in starts) / 16)
        for start in starts:
            inside = range(start, start + size)
            largest = max(abs(values[i]) for i in inside)
            chosen = [i for i in inside if abs(values[i] + gradient[i]) >= largest and values[i] != 0]
            for i in sorted(chosen, key=lambda i: (-abs(values[i]), i))[:most]:
                sent[i] = math.copysign(scale, values[i])
    return sent


class Laws(unittest.TestCase):
    def test_adacomp_is_its_algorithm(self):
        for size, most in ((50, 3), (500, 4), (7, 7), (1, 1)):
            codec = named(f"adacomp:{size}:{most}")
            n = 3 * codec.unit
            gradient, residual = normal(2, n, seed=1), 0.7 * normal(2, n, seed=2)
            residual[0, : 2 * size], gradient[0, : 2 * size] = 0.0, 0.0
            values = gradient + residual
            decoded = codec.decode(codec.encode_with(values, gradient), n).numpy()
            for row in range(2):
                expected = adacomp(values[row].numpy(), gradient[row].numpy(), size, most)
                self.assertTrue(np.array_equal(decoded[row] != 0, expected != 0), (size, most))
                np.testing.assert_allclose(decoded[row], expected, rtol=1e-6)
            self.assertTrue(0 < np.count_nonzero(decoded[0]) <= n // size * most)

    def test_a_value_of_adacomp_that_is_not_finite_arrives_and_spoils_its_sixteen_bins_alone(self):
        codec = named("adacomp:20:2")
        for wrong in (math.inf, -math.inf, math.nan):
            values = normal(1, 3 * codec.unit)
            values[0, 21] = wrong
            decoded = codec.decode(codec.encode(values), values.shape[1])[0]
            self.assertTrue(decoded[21].isnan())
            self.assertTrue(decoded[codec.unit :].isfinite().all())

    def test_steps_of_terngrad_are_unbiased(self):
        values = normal(1, 64, seed=3)
        for name, steps in (("terngrad", 3), ("terngrad:4", 15), ("terngrad:8:32", 255)):
            codec = named(name)
            draws = torch.cat([codec.decode(codec.encode(values), 64) for _ in range(2000)]).double()
            block = codec.block or 64
            for part in range(0, 64, block):
                mine, drawn = values[0, part : part + block].double(), draws[:, part : part + block]
                gap = (mine.max() - mine.min()) / steps
                level = (drawn - mine.min()) / gap
                self.assertLess((level - level.round()).abs().max(), 1e-4)
                self.assertTrue(((drawn - mine).abs() <= gap * 1.0001).all())
                # Of 64 means of 2000 draws, each of at most half a gap of deviation, none is off by
                # five deviations.
                self.assertLess((drawn.mean(0) - mine).abs().max(), 5 * gap / 2 / 2000**0.5)

    def test_graddrop_keeps_about_the_rest(self):
        values, codec = normal(50, 20_000, seed=4), named("graddrop:95")
        kept = (codec.decode(codec.encode(values), 20_000) != 0).sum(1)
        # The place of a threshold of 1,024 values: 5 % of these, give or take.
        self.assertTrue(700 < kept.double().mean() < 1300, kept)
        self.assertLessEqual(kept.max(), 2000)
        self.assertGreater(len(set(kept.tolist())), 10, "another sample each time")


class Operators(unittest.TestCase):
    def test_sort_finds_the_largest_and_of_equal_ones_the_first(self):
        keys = torch.randint(0, 6, (5, 3, 41), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
        keys[0, 0, :3] = 0x7FFFFFFF
        for most in (0, 1, 7, 41):
            expected = np.argsort(-keys.numpy().astype(np.int64), axis=-1, kind="stable")[..., :most]
            self.assertTrue(np.array_equal(operators.sort(keys, most).numpy(), expected))

    def test_filter_takes_the_first_and_fills_up(self):
        keep = torch.tensor([[0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()
        self.assertEqual(operators.filter(keep, 3).tolist(), [[1, 3, 4], [0, 1, 4], [0, 1, 2]])

    def test_codes_are_packed_as_the_format_says(self):
        generator = torch.Generator().manual_seed(2)
        for bits, n in itertools.product((1, 2, 3, 4, 7, 8, 9, 12, 17, 25, 31), (1, 5, 8, 13)):
            codes = torch.randint(0, 2**bits, (2, 3, n), generator=generator)
            packed = operators.map(codes, lambda code: code, bits)
            for row, mine in zip(codes.view(-1, n).tolist(), packed.view(6, -1)):
                number = sum(code << i * bits for i, code in enumerate(row))
                self.assertEqual(mine.numpy().tobytes(), number.to_bytes(math.ceil(n * bits / 8), "little"), (bits, n))
            (back,) = operators.extract(packed, (bits, n))
            self.assertTrue(torch.equal(back, codes.to(torch.int32)))

    def test_fields_come_back_in_their_order(self):
        scale, flags = torch.tensor([[[1.5, math.nan]], [[-0.0, math.inf]]]), torch.tensor([[[1, 0, 1]], [[0, 1, 1]]])
        count = torch.tensor([[[-7]], [[9]]], dtype=torch.int32)
        messages = operators.concat(operators.map(flags, lambda flag: flag == 1, 1), scale, count)
        self.assertEqual(messages[0].numpy().tobytes(), bytes([5]) + struct.pack("<f", 1.5) + bytes.fromhex("0000c07f") + struct.pack("<i", -7))
        # The second row begins at no multiple of 4.
        for rows in (messages, messages[1:]):
            back = operators.extract(rows.unflatten(1, (1, -1)), (1, 3), (torch.float32, 2), (torch.int32, 1))
            for mine, theirs in zip(back, (flags, scale, count)):
                torch.testing.assert_close(mine.double(), theirs[-len(rows) :].double(), equal_nan=True, rtol=0, atol=0)
        with self.assertRaisesRegex(TypeError, "a field of torch.float64"):
            operators.concat(scale.double())

    def test_reduce_keeps_the_dimension(self):
        values = torch.tensor([[[1.0, -5.0], [2.0, 3.0]]])
        self.assertEqual(operators.reduce(values, torch.amax).tolist(), [[[1.0], [3.0]]])
        self.assertEqual(operators.reduce(values, torch.sum).tolist(), [[[-4.0], [5.0]]])

    def test_random_numbers_are_even_and_others_at_each_call(self):
        like = torch.empty(4, 25_000)
        first, second = operators.random(like), operators.random(like)
        for draw in (first, second):
            counts = torch.histc(draw, 10, 0, 1)
            self.assertLess((counts - 10_000).abs().max(), 500)
            self.assertTrue(0 <= draw.min() and draw.max() < 1)
        self.assertLess(np.corrcoef(first.flatten(), second.flatten())[0, 1], 0.02)
        below = operators.random(like, 7)
        self.assertEqual((below.dtype, set(below.unique().tolist())), (torch.int64, set(range(7))))
        state = torch.get_rng_state()
        operators.random(like)
        self.assertTrue(torch.equal(torch.get_rng_state(), state), "the script's own stay")


def laws(rank):
    return {(plan, shape): exchanged(rank, plan, SHAPES[shape], torch.float32) for plan, shape in itertools.product(PLANS, SHAPES)}


def all_not_finite(rank):
    return {plan: not_finite(rank, plan) for plan in PLANS}


def all_trained(rank):
    return {plan: trained(rank, "group:" + plan, {}) for plan in PLANS}


def all_resumed(rank):
    return {plan: resumed(rank, 3, plan) for plan in PLANS if named(plan).feeds_back}


class OverGroup(unittest.TestCase):
    """Each plan at once: most of the time is that of processes that start."""

    def test_what_is_given_is_delivered_or_kept(self):
        for found in run(laws, 2):
            for (plan, shape), (missing, alone) in found.items():
                if named(plan).feeds_back:
                    self.assertLess(missing, 1e-5, (plan, shape))
                if shape == "matrices and biases":
                    self.assertGreater(alone, 1e-3, plan)

    def test_values_that_are_not_finite_reach_all_and_leave_nothing(self):
        for said_by_plan in run(all_not_finite, 2):
            for plan, cases in said_by_plan.items():
                for found in cases:
                    self.assertEqual([finite for finite, _ in found], [True, False, True, True], plan)
                    self.assertEqual([finite for _, finite in found], [True, False, True, True], plan)

    def test_a_model_learns(self):
        for plan, (losses, report) in run(all_trained, 2)[0].items():
            self.assertLess(sum(losses[-10:]) / 10, 0.97 * losses[0], plan)
            self.assertEqual(report.plan, "group:" + plan)
            self.assertGreater(report.ratio, 2.5, (plan, report))

    def test_other_ranks_go_on_from_a_checkpoint(self):
        for found in run(all_resumed, 2):
            for plan, off in found.items():
                self.assertLess(max(off.values()), 1e-5, (plan, off))


def code_lines(tree):
    """The lines of a class with code: without blanks, comments and docstrings."""
    docstrings = {
        line
        for each in ast.walk(tree)
        if isinstance(each, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(each)
        for line in range(each.body[0].lineno, each.body[0].end_lineno + 1)
    }
    text = FILES.read_text().splitlines()
    first = tree.decorator_list[0].lineno
    lines = [number for number in range(first, tree.end_lineno + 1) if number not in docstrings]
    return sum(bool(re.match(r"\s*[^\s#]", text[number - 1])) for number in lines)


class Document(unittest.TestCase):
    def test_lines_and_operators_are_counted_rightly(self):
        names = ["sort", "filter", "map", "reduce", "random", "concat", "extract"]
        # Of calls that have others inside.
        inside = {"sparse": ("concat", "map"), "dense": ("extract",), "peak": ("reduce",), "filter": ("sort",)}
        rows = []
        for tree in ast.parse(FILES.read_text()).body:
            if not isinstance(tree, ast.ClassDef):
                continue
            called = {each.func.id for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
            called |= {more for each in called for more in inside.get(each, ())}
            lines, theirs = code_lines(tree), COMPLL[tree.name]
            self.assertLessEqual(lines, 30, tree.name)
            name = tree.decorator_list[0].args[0].value
            rows.append(
                f"| `{name}` | {lines} | {', '.join(each for each in names if each in called)} | "
                + (f"{theirs[0]} + {theirs[1]} = {sum(theirs)}" if theirs else "").strip()
                + " |"
            )
        self.assertEqual(len(rows), 6)
        table = DOCUMENT.read_text().partition("\n| codec | lines |")[2].splitlines()[2:]
        found = list(itertools.takewhile(lambda line: line.startswith("|"), table))
        self.assertEqual(found, rows, "the table should be\n" + "\n".join(rows))


if __name__ == "__main__":
    unittest.main()
