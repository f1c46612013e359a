"""Buckets on an accelerator, without one: no operation waits for the device, and streams are asked for in order.

Fake tensors of CUDA have shapes and no values, so whatever needs a value raises. No GPU was at hand.
"""

import contextlib
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from gradwire.device import lane
from gradwire.device.bucket import Bucket, Layout
from gradwire.device.exchange import Group
from gradwire.device.plan import group_plan
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

SIZES = ((900, 640), (640,), (70_000,), (33, 40))
OURS = ("q8", "q4:64", "3lc:1:1024", "low-rank:8", "f32", "bf16")
COMPLL = ("onebit", "onebit:1024", "tbq:0.1", "terngrad", "terngrad:4:256", "dgc:1", "graddrop:99", "adacomp")
PLANS = OURS + COMPLL


class NothingWaits(unittest.TestCase):
    def setUp(self):
        dist.init_process_group("fake", rank=1, world_size=8, store=FakeStore())
        self.addCleanup(dist.destroy_process_group)

    def test_an_exchange_needs_no_value_on_the_host(self):
        n = sum(torch.Size(size).numel() for size in SIZES)
        with FakeTensorMode():
            for plan in PLANS:
                for dtype in (torch.float32, torch.bfloat16, torch.float16):
                    for options in ({"may_be_unused": True, "skips": True}, {"may_be_unused": False, "skips": False}):
                        values = torch.randn(n, device="cuda").to(dtype)
                        bucket = Bucket(Layout(tuple("abcd"), SIZES), values, **options)
                        group = Group(None)
                        for _ in range(2):
                            mean = bucket.exchange(group, group_plan(plan), values, torch.ones((), device="cuda"))
                            bucket.commit(mean.isfinite().all() if options["skips"] else None)
                        self.assertEqual((mean.device.type, mean.shape, values.dtype), ("cuda", (n,), dtype))

    def test_fake_tensors_do_raise(self):
        # So the test above can fail.
        with FakeTensorMode(), self.assertRaises(DataDependentOutputException):
            torch.ones(3, device="cuda").sum().item()


class Device:
    """Stands in for torch.cuda: notes what streams are asked for."""

    def __init__(self):
        self.said = said = []
        self.now = "backward"

        class Stream:
            def __init__(self, device):
                pass

            def wait_stream(self, other):
                said.append(f"exchange waits for {other}")

            def synchronize(self):
                said.append("host waits")

        class Event:
            def __init__(self, enable_timing=False):
                pass

            def record(self):
                pass

            def query(self):
                return False

            def elapsed_time(self, other):
                return 250.0

        self.Stream, self.Event = Stream, Event

    def current_stream(self, device):
        return self.now

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.now = self.now, "exchange"
        yield
        self.now = before


class Future:
    def __init__(self, device, devices):
        self.device, self.devices = device, devices

    def set_result(self, tensor):
        self.device.said.append(f"result set on {self.device.now}, for {len(self.devices)} device")


class Streams(unittest.TestCase):
    def test_an_exchange_follows_the_backward_pass_and_precedes_whoever_waits(self):
        device = Device()
        with (
            mock.patch.object(torch, "get_device_module", lambda _: device),
            mock.patch.object(torch.futures, "Future", lambda devices: Future(device, devices)),
        ):
            stream = lane.StreamLane(torch.device("cuda", 0))
            tensor = mock.Mock()
            for _ in range(2):
                stream.run(lambda: device.said.append(f"job on {device.now}"), tensor)
            self.assertEqual(device.said, ["exchange waits for backward", "job on exchange", "result set on exchange, for 1 device"] * 2)
            self.assertEqual(tensor.record_stream.call_count, 2)
            self.assertEqual(stream.seconds(), 0.5)


class Unserved(unittest.TestCase):
    def test_devices_and_dtypes_are_named(self):
        from gradwire import Error
        from gradwire.device.over_group import check

        for device, dtype, text in (
            ("mps", torch.float32, "tensors on mps: gradwire serves the CPU, CUDA, ROCm and XPU"),
            ("cuda", torch.float64, "gradients of torch.float64: gradwire serves torch.float32, torch.bfloat16, torch.float16"),
            ("cpu", torch.int32, "gradients of torch.int32"),
        ):
            with self.assertRaisesRegex(Error, text):
                check(torch.device(device), dtype)


if __name__ == "__main__":
    unittest.main()
