"""The scripts of docs/frameworks.md: they run, gradients are compressed, replicas stay equal; and the document has the scripts' lines."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE.parent.parent / "examples" / "frameworks"
DOCUMENT = HERE.parent.parent.parent.parent / "docs" / "frameworks.md"
REPORT = re.compile(r"gradwire \S+: rank 0 of 2, (\d+) iterations; .* \(([0-9.]+) times less than a ring of f32\)(?:.*; ([0-9.]+)% of all values)?")


def command(source):
    """The command in a script's first lines, as words, and its number of processes."""
    words = shlex.split(re.search("^torchrun .*$", source, re.MULTILINE).group())
    return words, int(words[words.index("--nproc_per_node") + 1])


def ran(words):
    """Returns what a command of torchrun ends with, prints and says, beside the scripts."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = {"capture_output": True, "text": True, "timeout": 600, "cwd": SCRIPTS.parent.parent}
    done = subprocess.run([*torchrun, *words[1:]], env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)
    return done.returncode, done.stdout, done.stderr


def results(out):
    """What `tiny.result` printed at each rank. Another rank's line may stand before it: unbuffered, its end comes by itself."""
    return [json.loads(found) for found in re.findall('{"weights".*', out)]


def variant(name, change):
    """Runs a changed copy of a script, under `gradwire run` with the plan group:q8 or without it."""
    source = (SCRIPTS / name).read_text()
    options, changed = change(source)
    assert changed != source, f"nothing changed in {name}"
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, name)
        script.write_text(changed)
        (script.parent / "tiny.py").symlink_to(SCRIPTS / "tiny.py")
        return ran(["torchrun", "--nproc_per_node", "2", *options, str(script)])


def without_gradwire(source):
    """The script under `gradwire run`, without its own lines of gradwire."""
    source = re.sub(r"gradwire\.attach\(.*\)", "None", source).replace("import gradwire\n", "")
    source = re.sub(r"(tiny\.result\(.*), (self\.)?state\.report\(\)", r"\1", source)
    return ["-m", "gradwire", "run", "--plan", "group:q8"], re.sub(r".*state\.(report|close)\(\).*\n", "", source)


class Frameworks(unittest.TestCase):
    def check(self, name):
        """Runs a script that prints a report at each rank."""
        words, ranks = command((SCRIPTS / name).read_text())
        code, out, error = ran(words)
        self.assertEqual(code, 0, error)
        said = results(out)
        self.assertEqual(len(said), ranks, out)
        self.assertEqual(len({each["weights"] for each in said}), 1, "replicas differ")
        for report in (each["report"] for each in said):
            self.assertGreater(report["iterations"], 2)
            self.assertGreater(report["values"], 0)
            self.assertLess(report["uncoded_values"], report["values"] * 0.7)
            ring = 8 * (report["ranks"] - 1) / report["ranks"]
            self.assertGreater(report["sent_bytes"], 0)
            self.assertLess(report["sent_bytes"], 0.8 * ring * report["values"])
        self.assertIn("times less than a ring of f32", out)

    def check_run(self, code, out, error):
        """Checks what a script ends with under `gradwire run`, which says on stderr what was compressed."""
        self.assertEqual(code, 0, error)
        self.assertEqual(len(results(out)), 2, out)
        self.assertEqual(len({each["weights"] for each in results(out)}), 1, "replicas differ")
        self.assertRegex(error, REPORT)
        iterations, ratio, uncoded = REPORT.search(error).groups()
        self.assertGreater(int(iterations), 2)
        self.assertGreater(float(ratio), 1.25)
        self.assertLess(float(uncoded or 0), 70)

    def test_ddp(self):
        self.check("ddp.py")

    def test_an_unchanged_script(self):
        words, _ = command((SCRIPTS / "unchanged.py").read_text())
        self.check_run(*ran(words))

    def test_accelerate(self):
        self.check("hf_accelerate.py")

    def test_accelerate_unchanged(self):
        self.check_run(*variant("hf_accelerate.py", without_gradwire))

    def test_trainer(self):
        self.check("hf_trainer.py")

    def test_trainer_unchanged(self):
        self.check_run(*variant("hf_trainer.py", without_gradwire))

    def test_lightning(self):
        self.check("lightning_callback.py")

    def test_lightning_unchanged(self):
        self.check_run(*variant("lightning_callback.py", without_gradwire))

    def test_lightning_calls_no_hook_of_its_strategy_on_cpus(self):
        def by_strategy(source):
            strategy = "lightning.pytorch.strategies.DDPStrategy(ddp_comm_hook=hook)"
            hook = "def hook(*_):\n    raise AssertionError\n\n\n"
            source = source.replace('strategy="ddp"', f"strategy={strategy}").replace("callbacks=[Compress()], ", "")
            return [], source.replace("quiet =", hook + "quiet =")

        code, _, error = variant("lightning_callback.py", by_strategy)
        self.assertEqual(code, 0, error)

    def test_compiled(self):
        self.check("compiled.py")

    def test_compiled_unchanged(self):
        self.check_run(*variant("compiled.py", without_gradwire))

    def test_the_python_reducer_is_refused(self):
        def changed(source):
            return [], source.replace("dist.init_process_group", 'torch._dynamo.config.optimize_ddp = "python_reducer"\ndist.init_process_group')

        code, _, error = variant("compiled.py", changed)
        self.assertNotEqual(code, 0)
        self.assertRegex(error, 'gradwire.Error: .*optimize_ddp = "python_reducer", which has no buckets: leave it at its default')

    def test_fsdp_between_hosts(self):
        self.check("fsdp_between_hosts.py")

    def test_fsdp_across_hosts(self):
        words, ranks = command((SCRIPTS / "fsdp_across_hosts.py").read_text())
        code, out, error = ran(words)
        self.assertEqual(code, 0, error)
        said = results(out)
        self.assertEqual(len(said), ranks, out)
        self.assertEqual(len({each["weights"] for each in said}), 1, "replicas differ")
        # Twelve reduce-scatters of 19,210 values, whose other half each rank sends.
        for each in said:
            self.assertGreater(each["report"]["sent_bytes"], 12 * 19210 / 2)
            self.assertLess(each["report"]["sent_bytes"], 12 * 19210 / 2 * 4 * 0.3)


class Document(unittest.TestCase):
    def test_code_blocks_are_lines_of_the_scripts(self):
        shown, name = set(), ""
        for link, block in re.findall(
            r"examples/frameworks/(\w+\.py)\)|^```(?:python|sh)\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
        ):
            name = link or name
            if not block:
                continue
            rest = iter((SCRIPTS / name).read_text().splitlines())
            for line in filter(None, block.splitlines()):
                self.assertIn(line, rest, f"docs/frameworks.md has a line that {name} has not, or not there")
            shown.add(name)
        self.assertEqual(shown, {each.name for each in SCRIPTS.glob("*.py")} - {"tiny.py"})

    def test_versions_are_those_of_the_tests(self):
        text = DOCUMENT.read_text().lower()
        required = [HERE / "requirements.txt", HERE.parent / "newest" / "requirements.txt"]
        pins = dict(re.findall(r"^(\w+)==(\S+)$", "".join(file.read_text() for file in required), re.MULTILINE))
        for name in ("torch", "accelerate", "lightning", "transformers"):
            self.assertIn(f"{name} {pins[name]}", text)


if __name__ == "__main__":
    unittest.main()
