"""What the doctor tells to do, done in guests in the situations in which it does: each has to help."""

import re
import time

from lab import Guest, Pair
from traffic import Traffic, must, note

DOCTOR = "gradwire-xdp doctor --host veth0 --net eth0"
OF_AGGREGATOR = "gradwire-xdp doctor --interface eth0 --address 10.9.9.9"


def remedy(guest: Guest, check: str, doctor: str = DOCTOR) -> str:
    """The command below what the doctor found of a check (and a port), without its comment; none if there is nothing to fix."""
    lines = guest.run(doctor, check=False).splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.match(rf"(FAIL|warn|\?  )\s+{check}\s", line):
            note(f"{line.strip()}: {below.strip()}")
            must("fix: " in below, f"no remedy: {line}")
            return below.split("fix: ")[1]
    return ""


def command(fix: str) -> str:
    return fix.split("   #")[0]


def helps(guest: Guest, check: str, doctor: str = DOCTOR) -> None:
    """The remedy is there, is a command that succeeds, and soon leaves nothing to fix: a process needs a moment to end."""
    fix = remedy(guest, check, doctor)
    must(fix != "", f"the doctor finds nothing: {check}")
    guest.run(command(fix))
    left, deadline = fix, time.monotonic() + 120
    while left and time.monotonic() < deadline:
        left = remedy(guest, check, doctor)
    must(left == "", f"still: {left}")


def remedies(pair: Pair) -> None:
    """What the doctor tells to do helps."""
    a, b = pair.guests
    traffic = Traffic(pair)
    traffic.streams(100_000)

    note("hardware GRO, as the doctor asks of drivers that no emulated card has; of virtio it does not, but the command is the same")
    a.run("ethtool -K eth0 rx-gro-hw on && ethtool -K eth0 rx-gro-hw off && ethtool -k eth0 | grep 'rx-gro-hw: off'")

    note("a program of another process, whose name is another's")
    a.run("cp /usr/sbin/gradwire-xdp /tmp/other")
    other = a.start("exec /tmp/other run --host veth0 --net eth0 --run-dir /tmp/other.run >/tmp/shim.log 2>&1", timeout=600)
    a.until("ip link show eth0 | grep xdp")
    must(command(remedy(a, "program eth0")).startswith("kill "), "not the process that holds it")
    helps(a, "program eth0")
    other.wait(check=False)
    must(remedy(a, "program veth0") == "", "it has not let go of the other port")

    note("programs that no process holds: of a link that is pinned; attached by netlink, for the driver and in the generic path")
    other = a.start("exec /tmp/other aggregate --interface eth0 --address 10.9.9.9 --run-dir /tmp/other.run >/tmp/shim.log 2>&1", timeout=600)
    program = a.until("ip link show eth0 | sed -n 's/.*prog.xdp id \\([0-9]*\\).*/\\1/p' | grep .").strip()
    link = a.run(f"bpftool link | sed -n 's/^\\([0-9]*\\): xdp  prog {program} .*/\\1/p'").strip()
    a.run(f"cd /sys/fs/bpf; bpftool link pin id {link} link; bpftool prog pin id {program} program")
    other.kill()
    other.wait(check=False)
    fix = remedy(a, "program eth0")
    refused = a.start(command(fix))
    refused.wait(check=False)
    must(refused.status != 0, "the first command is not refused, so that its comment is wrong")
    a.run(fix.split("if that is refused: ")[1])
    must(remedy(a, "program eth0") == "", "the link holds on")
    for mode in ("xdp", "xdpgeneric"):
        a.run(f"ip link set dev eth0 {mode} pinned /sys/fs/bpf/program")
        helps(a, "program eth0")

    note("more queues than are served, or than are with those that the driver adds")
    for queues in (70, 64):
        a.run(f"ethtool -L eth0 combined {queues}")
        helps(a, "queues eth0")
    # The shim itself would need 800 MiB for so many.
    a.run("ip link set dev eth0 xdp pinned /sys/fs/bpf/program")
    attached = int(a.run("ls -d /sys/class/net/eth0/queues/rx-* | wc -l"))
    must(attached == 64, f"{attached} queues with a program, and at most 64 are served")
    a.run("ip link set dev eth0 xdp off; rm /sys/fs/bpf/link /sys/fs/bpf/program")
    traffic.streams(100_000)
    a.run("ethtool -L eth0 combined 2; ip link set dev veth0 nomaster name other down")
    a.run("ip link add veth0 numrxqueues 70 numtxqueues 70 type veth peer name peer && ip link set dev veth0 master br0 up")
    helps(a, "queues veth0")

    note("an address that the kernel does not know the way to")
    a.run("ip route del default 2>/dev/null; ip address flush dev br0; ip link set dev eth0 nomaster")
    ask = command(remedy(a, "address", OF_AGGREGATOR))
    must(ask.startswith("arping "), f"{ask}")
    a.run(ask)
    b.run("ip address add 10.9.9.9/24 dev br0")
    answered = a.start(ask)
    answered.wait(check=False)
    must(answered.status != 0 and "1 response" in answered.output, f"another's address is taken for free: {answered.output}")
