"""The thread that exchanges: no failure in it is lost, and nobody waits for it in vain."""

import gc
import sys
import unittest

import gradwire
import torch
from gradwire import _native
from ranks import gathered, run
from test_ddp import TRIALS, assert_nothing_left, hooked, leftovers, net, sgd, step


class Named(torch.nn.Module):
    """Its parameter has the name of a plan."""

    def __init__(self):
        super().__init__()
        self.body, self.auto = net(), torch.nn.Parameter(torch.ones(40, 10))

    def forward(self, x):
        return self.body(x) @ self.auto.T[:, :10]


def a_parameter_named_auto(rank):
    module = Named()
    ddp, state = hooked(module, "auto", gradwire.Link(timeout=60), model=module)
    optimizer = sgd(ddp)
    for iteration in range(70):
        step(ddp, optimizer, rank, iteration)
    report = state.report()
    state.close()
    return report.why


def rolled_back(rank):
    """Loads a checkpoint from before the trials, amid the trials and after them."""
    ddp, state = hooked(net(), "auto", gradwire.Link(timeout=60))
    optimizer = sgd(ddp)
    saved = state.state_dict()
    for before in (9, 30, 80):
        plans = []
        state.load_state_dict(saved)
        for iteration in range(before):
            step(ddp, optimizer, rank, iteration)
            state.drain()
            plans.append(str(state._way.worker.plan))
        expected = (["f32"] * 3 + [plan for plan in TRIALS for _ in range(4)] * 3)[:before]
        assert plans[: len(expected)] == expected, plans
    assert len(set(gathered((state.report().plan, state.report().why)))) == 1
    assert state.report().why
    state.close()


def raises_in_any_job(rank):
    state = gradwire.State(gradwire.Link(timeout=60), "f32")

    def wrong():
        raise ZeroDivisionError("a job that is wrong")

    state._way.worker.queue.put(wrong)
    said = []
    for action in (state.drain, state.report, state.state_dict, lambda: state._way.worker.submit(torch.ones(1), None, False)):
        try:
            action()
            said.append("nothing")
        except ZeroDivisionError as error:
            said.append(str(error))
    state.close()
    return said


def waits_for_itself(rank):
    state = gradwire.State(gradwire.Link(timeout=60), "f32")
    said = []

    def job():
        try:
            state.report()
        except gradwire.Error as error:
            said.append(str(error))

    state._way.worker.queue.put(job)
    state.drain()
    state.close()
    return said


def closed_meanwhile(rank):
    """Another thread closes the state when this one has found it open."""
    said = []
    for action in ("drain", "submit"):
        state = gradwire.State(gradwire.Link(timeout=60), "f32")
        worker = state._way.worker
        jobs = worker.queue

        class Late:
            get = jobs.get

            @staticmethod
            def put(job):
                if job is not None:
                    state.close()
                jobs.put(job)

        worker.queue = Late
        layout = _native.Layout([("a", 1, 1)])
        try:
            state.drain() if action == "drain" else worker.submit(torch.ones(1), layout, False).wait()
            said.append("nothing")
        except gradwire.Error as error:
            said.append(str(error))
    return said


def collected_in_its_thread(rank):
    gathered(0)
    _, before = leftovers()
    state = gradwire.State(gradwire.Link(timeout=60), "f32")
    worker = state._way.worker
    wrong = []
    sys.excepthook = sys.unraisablehook = lambda *args: wrong.append(args)
    gc.disable()
    state.myself = state
    del state
    worker.queue.put(gc.collect)
    worker.thread.join()
    assert not wrong, wrong
    # Though there is still somebody who knows the channel.
    assert_nothing_left(before)
    return worker.closed


class Thread(unittest.TestCase):
    def test_a_parameter_may_be_named_auto(self):
        zero, one = run(a_parameter_named_auto, 2)
        self.assertRegex(zero, "median of 3 trials")
        self.assertEqual(zero, one)

    def test_a_checkpoint_from_before_the_choice_begins_the_trials_anew(self):
        run(rolled_back, 2)

    def test_an_exception_in_any_job_is_raised_again(self):
        for said in run(raises_in_any_job, 2):
            self.assertEqual(said, ["a job that is wrong"] * 4)

    def test_the_thread_does_not_wait_for_itself(self):
        for (said,) in run(waits_for_itself, 1):
            self.assertIn("it cannot wait for itself", said)

    def test_nobody_waits_for_a_state_that_another_thread_closes(self):
        for said in run(closed_meanwhile, 1):
            self.assertEqual(said[0], "nothing")
            self.assertIn("this gradwire.State is closed", said[1])

    def test_a_state_that_is_collected_in_its_own_thread_ends(self):
        self.assertEqual(run(collected_in_its_thread, 1), [True])


if __name__ == "__main__":
    unittest.main()
