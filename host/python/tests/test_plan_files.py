"""Plans that are files: what the planner writes, at ranks that train."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import gradwire
import gradwire._plan
from ranks import digest, gathered, run
from test_ddp import net, sgd, step
from torch.nn.parallel import DistributedDataParallel

HEAD = '# As gradwire plan decided.\nstrategy = "servers"\ncodec = "q8"\nsmall = 80\n'
# Of the net's tensors: weights of 5760, 6300 and 700 values, biases of 90, 70 and 10.
BY_SIZE = (
    HEAD
    + '[[tensor]]\nvalues = "80..1000"\ncodec = "f32"\npartitions = 1\n'
    + '[[tensor]]\nvalues = "6000.."\ncodec = "3lc:1:1024"\npartitions = 3\n'
)
BY_NAME = HEAD + "".join(
    f'[[tensor]]\nname = "{name}"\ncodec = "{codec}"\npartitions = {parts}\n'
    for name, codec, parts in [("0.bias", "f32", 1), ("4.weight", "f32", 1), ("2.weight", "3lc:1:1024", 3)]
)


def trained(plan):
    """Returns the weights and the bytes sent after some iterations with this plan."""
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
    state = gradwire.State(gradwire.Link(), plan, model=ddp)
    ddp.register_comm_hook(state, gradwire.hook)
    return finished(ddp, state)


def finished(ddp, state):
    optimizer = sgd(ddp)
    for iteration in range(6):
        step(ddp, optimizer, ddp.process_group.rank(), iteration)
    report = state.report()
    state.close()
    assert str(report).startswith("gradwire q8: rank" if report.plan == "q8" else "gradwire servers, q8 and "), report
    return digest(ddp), report.sent_bytes, report.plan


def of_a_file(rank, folder):
    path = pathlib.Path(folder, "plan.toml")
    found = [trained(plan) for plan in (BY_NAME, path, f"@{path}", gradwire.Plan(f"@{path}"))]
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.02)
    found.append(finished(ddp, gradwire.attach(ddp, f"@{path}")))
    assert len(set(gathered(found[0][0]))) == 1
    return found, trained("q8")


def of_different_files(rank, folder):
    said = []
    for name in (f"{rank}.toml", f"again{rank}.toml"):
        try:
            gradwire.State(gradwire.Link(), pathlib.Path(folder, name)).close()
        except gradwire.Error as error:
            said.append(str(error))
    return said


class PlanFiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def written(self, name, text):
        path = pathlib.Path(self.folder, name)
        path.write_text(text)
        return path

    def test_a_file_by_sizes_trains_as_a_plan_by_names(self):
        self.written("plan.toml", BY_SIZE)
        for (by_name, *by_file), q8 in run(of_a_file, 2, self.folder):
            for found in by_file:
                self.assertEqual(found[:2], by_name[:2])
                self.assertIn('values = "80..1000"', found[2])
            self.assertNotEqual(q8[:2], by_name[:2])

    def test_ranks_with_different_files_are_told(self):
        for rank, codec in enumerate(["q8", "q4"]):
            self.written(f"{rank}.toml", BY_SIZE.replace('"q8"', f'"{codec}"'))
            # What a comment says is no difference.
            self.written(f"again{rank}.toml", BY_SIZE.replace("decided", codec))
        for said in run(of_different_files, 2, self.folder):
            self.assertEqual(len(said), 1)
            self.assertRegex(
                said[0], """rank 1 has gradwire .* and plan with the line 'codec = "q4"', rank 0 .* with 'codec = "q8"': give all ranks the same"""
            )

    def test_a_bad_file_is_named_with_its_line_and_what_would_be_right(self):
        for line, text, says in [
            (3, BY_SIZE.replace("q8", "q9"), "there are f32"),
            (6, BY_SIZE.replace("80..1000", "80-1000"), "expected FROM..BELOW"),
            (10, BY_SIZE.replace('values = "6000', 'value = "6000'), "unknown field `value`"),
        ]:
            path = self.written("bad.toml", text)
            for plan in (path, f"@{path}"):
                with self.assertRaisesRegex(ValueError, rf"^{path}: [^\n]*line {line}\b(.|\n)*{says}"):
                    gradwire.State(plan=plan)
        with self.assertRaisesRegex(OSError, "no/such/file: No such file .*gradwire plan MODEL --ranks N --out FILE"):
            gradwire.State(plan="@no/such/file")

    def test_run_reads_a_file(self):
        command = [sys.executable, "-m", "gradwire", "run", "--plan"]
        script = self.written("script.py", "print('ran')")
        good = self.written("good.toml", BY_SIZE)
        done = subprocess.run([*command, f"@{good}", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
        done = subprocess.run([*command, "@no/such/file", script], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no/such/file: No such file", done.stderr)

    def test_what_differs_is_the_first_line_that_does(self):
        self.assertEqual(gradwire._plan.differ("q8", "q4"), ("'q8'", "'q4'"))
        self.assertEqual(gradwire._plan.differ("a\nb\nc\n", "a\nx\ny\n"), ("with the line 'b'", "with 'x'"))
        self.assertEqual(gradwire._plan.differ("a\nb", "a\n"), ("with the line 'b'", "with 'nothing more'"))


if __name__ == "__main__":
    unittest.main()
