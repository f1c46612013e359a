"""Tests of the recorder, where torch is installed: python -m unittest (in this folder)."""

import json
import os
import tempfile
import unittest

try:
    import torch
    from record import Recorder, main
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not installed")
class RecorderTest(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(tempfile.mkdtemp(), "trace.jsonl")

    def lines(self):
        with open(self.path) as file:
            return [json.loads(line) for line in file]

    def test_each_parameter_is_needed_once_and_has_one_gradient_an_iteration(self):
        main(self.path)
        lines = self.lines()
        needs = [line["parameter"] for line in lines if line["source"] == "ps"]
        has = [line["parameter"] for line in lines if line["destination"] == "ps"]
        self.assertEqual(len(needs), 3 * 16)
        self.assertEqual(sorted(needs), sorted(has))
        self.assertEqual([line["time"] for line in lines], sorted(line["time"] for line in lines))
        self.assertEqual(lines[0]["bytes"], 4 * 3 * 32 * 9)

    def test_shared_and_frozen_parameters_and_inference(self):
        shared = torch.nn.Linear(4, 4)
        frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        model = torch.nn.Sequential(shared, frozen, shared)
        with Recorder(model, self.path):
            with torch.no_grad():
                model(torch.ones(1, 4))
            model(torch.ones(1, 4)).sum().backward()
        has = sorted(line["parameter"] for line in self.lines() if line["destination"] == "ps")
        self.assertEqual(has, ["0.bias", "0.weight"])
        self.assertEqual(len(self.lines()), 2 * 2 + 2)

    def test_hooks_are_gone_afterwards(self):
        model = torch.nn.Linear(2, 1)
        with Recorder(model, self.path):
            pass
        model(torch.ones(1, 2)).sum().backward()
        self.assertEqual(self.lines(), [])


if __name__ == "__main__":
    unittest.main()
