"""Buckets on a GPU, with a stand-in for CUDA: what it is asked for, and that gradients come out as on the CPU. No GPU was at hand."""

import contextlib
import unittest
from unittest import mock

import torch
from gradwire import _gpu, _worker
from ranks import digest, run
from test_ddp import hooked, net, sgd, step


class Cuda:
    """Notes what each bucket asks for; its tensors are the CPU's."""

    def __init__(self):
        # For each bucket, by its event.
        self.said = {}
        said = self.said

        class Event:
            def record(self, stream):
                said[self] = ["record after " + stream]

        class Stream:
            def __init__(self, device):
                pass

            def wait_event(self, event):
                self.after = event
                said[event].append("wait")

            def synchronize(self):
                said[self.after].append("synchronize")

        self.patches = [
            mock.patch.multiple(
                torch.cuda,
                Event=Event,
                Stream=Stream,
                stream=lambda stream: contextlib.nullcontext(),
                current_stream=lambda device: "the backward pass",
            ),
            mock.patch.object(_gpu, "has", lambda tensor: True),
            mock.patch.object(_gpu, "_pinned", torch.empty),
            mock.patch.object(_gpu.Way, "future", lambda way: torch.futures.Future()),
        ]

    def __enter__(self):
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


def trained(rank, plan, **options):
    """The weights' bits, and what the report says."""
    ddp, state = hooked(net(), plan, **options)
    optimizer = sgd(ddp)
    for iteration in range(6):
        step(ddp, optimizer, rank, iteration)
    report = state.report()
    state.close()
    return digest(ddp), report.values, report.residual


def as_on_the_cpu(rank):
    for plan in ("f32", "low-rank:4", "q8"):
        expected = trained(rank, plan)
        with Cuda() as cuda:
            found = trained(rank, plan, untested_gpu=True)
        assert found == expected, plan
        # There, and back; one bucket an iteration or more.
        assert len(cuda.said) >= 6, cuda.said
        for said in cuda.said.values():
            assert said == ["record after the backward pass", *["wait", "synchronize"] * 2], said


def refused(rank):
    said = []
    for options in ({}, {"untested_gpu": True, "pipeline": True}):
        ddp, state = hooked(net(), "q8", **options)
        with Cuda():
            try:
                step(ddp, sgd(ddp), rank, 0)
            except RuntimeError as error:
                said.append(str(error))
        state.close()
    return said


def broken(rank):
    ddp, state = hooked(net(), "q8", untested_gpu=True)
    with Cuda(), mock.patch.object(_gpu.Way, "back", side_effect=OSError("the copy failed")):
        try:
            step(ddp, sgd(ddp), rank, 0)
        except RuntimeError as error:
            return str(error)


class Gpu(unittest.TestCase):
    def test_gradients_are_as_on_the_cpu(self):
        run(as_on_the_cpu, 2)

    def test_it_has_to_be_asked_for(self):
        for said in run(refused, 2):
            self.assertEqual(len(said), 2, said)
            self.assertRegex(said[0], "never ran with a GPU: .*untested_gpu=True")
            self.assertRegex(said[1], "without pipeline")

    def test_backward_raises_what_fails_on_the_way(self):
        for said in run(broken, 2):
            self.assertRegex(said, "the copy failed")

    def test_a_failure_has_no_tensors_for_torch_to_find(self):
        class Stubborn(Exception):
            def __reduce__(self):
                raise TypeError("no pickling")

        self.assertEqual(torch._jit_internal._extract_tensors(_worker.Raised(Stubborn())), [])


if __name__ == "__main__":
    unittest.main()
