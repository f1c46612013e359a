"""Runs in a guest what the host asks for over a virtio port, at the same time if it asks so: lines of JSON in both directions."""

import glob
import json
import os
import signal
import subprocess
import threading


def port() -> int:
    for name in glob.glob("/sys/class/virtio-ports/*/name"):
        if open(name).read().strip() == "agent":
            return os.open(f"/dev/{name.split('/')[-2]}", os.O_RDWR)
    raise SystemExit("there is no virtio port named agent")


PORT = port()
SAY = threading.Lock()
RUNNING: dict[int, subprocess.Popen] = {}


def say(**answer) -> None:
    line = json.dumps(answer).encode() + b"\n"
    with SAY:
        while line:
            line = line[os.write(PORT, line) :]


def work(number: int, process: subprocess.Popen, timeout: float) -> None:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0] + b"\nnot done after %d s: killed" % timeout
    del RUNNING[number]
    say(id=number, status=process.returncode, output=output.decode(errors="replace"))


say(id=0, status=0, output=os.uname().release)
for line in open(PORT, closefd=False):
    asked = json.loads(line)
    if "kill" in asked:
        process = RUNNING.get(asked["kill"])
        if process is not None:
            os.killpg(process.pid, asked["signal"])
        continue
    process = subprocess.Popen(
        ["/bin/sh", "-c", asked["run"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    RUNNING[asked["id"]] = process
    threading.Thread(target=work, args=(asked["id"], process, asked["timeout"]), daemon=True).start()
