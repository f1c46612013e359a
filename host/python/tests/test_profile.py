"""The profile of a run, which the planner reads."""

import pathlib
import tempfile
import time
import unittest
from unittest import mock

import gradwire
from gradwire import _profile
from ranks import run
from test_ddp import hooked, net, sgd, step

LATENCY, BYTE = 2e-3, 1e-8


def profiled(rank, folder, plan):
    """Trains with a model that has several buckets; iterations begin 50 ms after the last one."""
    ddp, state = hooked(net(), plan)
    optimizer = sgd(ddp)
    said = []
    path = pathlib.Path(folder, f"{rank}.toml")
    for write in (state.write_profile, lambda _: step(ddp, optimizer, rank, 0), state.write_profile):
        try:
            write(path)
        except gradwire.Error as error:
            said.append(str(error))
    for iteration in range(1, 70 if plan == "auto" else 12):
        time.sleep(0.05)
        step(ddp, optimizer, rank, iteration)
    state.write_profile(path)
    state.close()
    return said, path.read_text()


def refused(rank, plan, more):
    _, state = hooked(net(), plan, **more)
    try:
        state.write_profile("/nowhere")
    except gradwire.Error as error:
        return str(error)
    finally:
        state.close()


class Profiles(unittest.TestCase):
    def test_a_curve_has_the_time_of_messages_and_of_bytes(self):
        # By hand: two messages of each size, that take 2 ms and 10 ns a byte. One exchange was
        # disturbed.
        sizes = [100, 10_000, 12_000, 1_000_000]
        exchanges = [(2, 2 * size, 2 * (LATENCY + size * BYTE)) for size in sizes] + [(2, 21_000, 9.0)]
        points = _profile.curve(exchanges)
        expected = [(0, 2.001e-3), (100, 2.001e-3), (10_500, 2.12e-3), (1_000_000, 12e-3), (1e12, 12e-3 + (1e12 - 1e6) * 9.88e-3 / 989_500)]
        self.assertEqual(len(points), len(expected))
        for (size, took), (expected_size, expected_took) in zip(points, expected):
            self.assertAlmostEqual(size, expected_size)
            self.assertAlmostEqual(took / expected_took, 1, places=9)
        # Of more bytes that took less, the fewer were disturbed.
        fewer = _profile.curve([(1, 100, 5.0), (1, 1000, 2.0), (1, 9000, 3.0)])
        self.assertEqual(fewer[:-1], [(0.0, 2.0), (100.0, 2.0), (1000.0, 2.0), (9000.0, 3.0)])
        # 8000 bytes took a second.
        self.assertAlmostEqual(fewer[-1][1] / (3.0 + (1e12 - 9000) / 8000), 1)
        for few in ([], [(4, 400, 1.0), (3, 330, 2.0)]):
            with self.assertRaisesRegex(gradwire.Error, "--bandwidth and --latency"):
                _profile.curve(few)

    def test_an_iteration_is_what_comes_before_its_first_and_before_its_last_bucket(self):
        clock = iter([10.0, 11.0, 13.0, 20.0, 22.0, 23.0, 30.0, 34.0])
        profile = _profile.Profile()
        with mock.patch.object(_profile.time, "monotonic", lambda: next(clock)):
            for took in (1.0, 0.5):
                profile.submitted(True, False)
                profile.submitted(False, True)
                # Of the same bucket the least, and of another one.
                profile.exchanged("a", 2, 200, took, False)
                profile.exchanged("b", 2, 20_200, 3.0, True)
            profile.submitted(True, False)
            profile.submitted(False, True)
        # From 13 s to 20, and 2 s more; from 23 s to 30, and 4 s more.
        with mock.patch.object(_profile, "FAR", 30_100):
            text = profile.toml("Of a test.")
        self.assertEqual(
            text.splitlines(),
            [
                "# Of a test.",
                "send = [[0.0, 0.25], [100.0, 0.25], [10100.0, 1.5], [30100, 4.0]]",
                "",
                "# Until the first bucket was there, and from then to the last one.",
                "[compute]",
                "forward = 7.0",
                "backward = 3.0",
            ],
        )

    def test_a_run_writes_it_after_some_iterations(self):
        with tempfile.TemporaryDirectory() as folder:
            for said, text in run(profiled, 2, folder, "auto"):
                self.assertEqual(len(said), 2, said)
                for each in said:
                    self.assertRegex(each, "no two iterations were exchanged yet: train a few more")
                self.assertRegex(text, r"# A run of 2 ranks, 70 iterations\.\nsend = \[\[0\.0, [\de.-]+\], \[")
                self.assertGreater(float(text.partition("forward = ")[2].split()[0]), 0.05)

    def test_what_has_no_profile_says_so(self):
        for said in run(refused, 2, "q8", {"pipeline": True}):
            self.assertRegex(said, "without pipeline and server")
        for said in run(refused, 2, "hierarchy:2:q8", {}):
            self.assertRegex(said, "with plan 'auto', 'f32' or another codec")


if __name__ == "__main__":
    unittest.main()
