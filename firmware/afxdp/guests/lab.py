"""Two guests, each as docs/deploy.md has a host: a container behind a veth, a bridge br0, and an emulated network card.

    guest a: [container 10.9.0.1, eth0]--veth0--br0 (10.9.0.11)--eth0 ---- network ---- eth0--br0 (10.9.0.12)--veth0--[10.9.0.2] :guest b

`python3 lab.py --card igb --program PATH` boots a pair and runs lines of standard input in it: `a COMMAND`, `b COMMAND`, or `c COMMAND` and
`d COMMAND` for the containers of a and b.
"""

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import image

FOLDER = Path(__file__).parents[3] / "target/drivers"
# A guest without KVM boots in 10 to 60 s, on a machine that does nothing else. One of some hundred
# boots stands still before its kernel says a word, emulated as its two processors are: so it has
# more than one try.
BOOTS = [200, 200, 200]
# A stock kernel boots with KVM in less time than this, or not at all: that /dev/kvm exists says
# nothing.
BOOTS_WITH_KVM = 10


class Failed(Exception):
    """A command failed, or a guest."""


@dataclass
class Card:
    """A network card as QEMU emulates it, with settings of that device; the machine has one for a name."""

    device: str
    settings: str = ""
    # Pairs of queues that the network side has; only taps and virtio have more than one.
    queues: int = 1
    # How many of them the driver uses, if the pair does not say; all, where XDP may add none.
    used: int | None = None

    @property
    def driver(self) -> str:
        return {"virtio-net-pci": "virtio_net"}.get(self.device, self.device)

    def argument(self, netdev: str, mac: str) -> str:
        parts = [self.device, f"netdev={netdev}", f"mac={mac}"]
        if self.device == "virtio-net-pci" and self.queues > 1:
            parts += ["mq=on", f"vectors={2 * self.queues + 2}"]
        # No boot from the network.
        return ",".join([*parts, "romfile=", *filter(None, [self.settings])])


CARDS = {
    "virtio": Card("virtio-net-pci", queues=4),
    # Zero-copy needs a driver that maps memory for the card as it does for hardware, and queues
    # that stay when the program goes.
    "virtio-zc": Card("virtio-net-pci", "disable-legacy=on,iommu_platform=on", queues=4, used=4),
    "virtio-generic": Card("virtio-net-pci", "ctrl_guest_offloads=off", queues=4),
    # More queues than the shim serves.
    "virtio-many": Card("virtio-net-pci", queues=80),
    "virtio-rss": Card("virtio-net-pci", "rss=on", queues=4),
    "igb": Card("igb"),
    "e1000e": Card("e1000e"),
    "vmxnet3": Card("vmxnet3"),
}


class Job:
    """A command that runs in a guest."""

    def __init__(self, guest: "Guest", number: int, script: str) -> None:
        self.guest, self.number, self.script = guest, number, script
        self.done, self.output = threading.Event(), ""
        self.status: int | None = None

    def wait(self, check: bool = True) -> str:
        """Its output, when it has ended. The guest kills it when its time is over (status 137)."""
        while not self.done.wait(1):
            self.guest.alive()
        if check and self.status != 0:
            raise Failed(f"{self.guest.name}: status {self.status}: {self.script}\n{self.output}")
        return self.output

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.guest.say(f"kill {self.number} {number}")


class Guest:
    """A virtual machine whose agent has answered."""

    def __init__(self, name: str, qemu: subprocess.Popen, scratch: Path) -> None:
        self.name, self.qemu, self.console = name, qemu, scratch / f"{name}.console"
        self.jobs: dict[int, Job] = {0: Job(self, 0, "boot")}
        self.started, self.lost = 0, False
        self.socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.socket.connect(str(scratch / f"{name}.agent"))
                break
            except OSError as error:
                if qemu.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"{name}: QEMU does not start: {(scratch / f'{name}.qemu').read_text()}") from error
                time.sleep(0.05)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in self.socket.makefile("r"):
                number, status, output = line.rstrip("\n").split(" ")
                job = self.jobs.pop(int(number))
                job.status, job.output = int(status), base64.b64decode(output).decode(errors="replace")
                job.done.set()
        except OSError:
            pass
        self.lost = True

    def alive(self) -> None:
        if self.lost:
            raise Failed(f"{self.name}: the guest has ended\n{self.last_words()}")

    def last_words(self) -> str:
        """The ends of what QEMU and the guest's kernel have said."""
        return "".join(log.read_text(errors="replace")[-3000:] for log in (self.console.with_suffix(".qemu"), self.console) if log.exists())

    def say(self, message: str) -> None:
        self.alive()
        self.socket.sendall(message.encode() + b"\n")

    def start(self, script: str, timeout: float = 120) -> Job:
        """Runs a shell script in the guest, and does not wait for it."""
        self.started += 1
        job = self.jobs[self.started] = Job(self, self.started, script)
        self.say(f"{self.started} {timeout:.0f} {base64.b64encode(script.encode()).decode()}")
        return job

    def run(self, script: str, timeout: float = 120, check: bool = True) -> str:
        return self.start(script, timeout).wait(check)

    def until(self, script: str, timeout: float = 120) -> str:
        """Repeats a script until it succeeds; what it then says on standard output."""
        return self.run(f"until out=$({script} 2>/dev/null); do sleep 0.2; done; printf '%s\\n' \"$out\"", timeout)

    def status(self) -> dict:
        """What the guest's shim says of itself; on a busy machine it may need some tries."""
        return json.loads(self.until("gradwire-xdp status --json"))


class Container:
    """The network namespace of a guest's container: commands run in it."""

    def __init__(self, guest: Guest, address: str) -> None:
        self.guest, self.address = guest, address

    def start(self, script: str, timeout: float = 120) -> Job:
        quoted = script.replace("'", "'\\''")
        return self.guest.start(f"exec ip netns exec c sh -c '{quoted}'", timeout)

    def run(self, script: str, timeout: float = 120, check: bool = True) -> str:
        return self.start(script, timeout).wait(check)


class Pair:
    """Two guests on one network. `with` ends them."""

    # Whether KVM may boot a kernel here: tried once.
    kvm = os.access("/dev/kvm", os.R_OK | os.W_OK)

    def __init__(
        self,
        card: Card,
        kernel: str = "newest",
        program: Path | None = None,
        folder: Path = FOLDER,
        mtu: int = 1500,
        queues: int | None = None,
        wire: bool = False,
        extras: dict[str, str] | None = None,
        host: Callable[[int], str] | None = None,
        files: Callable[[Path, Path], list[Path]] | None = None,
        memory: int = 768,
    ) -> None:
        """`queues`: how many the driver uses. `wire`: what a sends passes two more cards of b, joined by a bridge brw, on its way.

        `extras`: what guests have besides (image.EXTRAS). `host`: the script that makes a host of guest 1 or 2, in place of docs/deploy.md's.
        `files`: makes of gradwire-xdp what guests find in /root, in a folder of its own. `memory`: of each guest, in MiB.
        """
        self.card, self.kernel, self.folder, self.mtu, self.wire = card, kernel, folder, mtu, wire
        self.extras, self.memory = extras or {}, memory
        self.release = (folder / "kernel" / kernel / "release").read_text().strip()
        self.scratch = Path(tempfile.mkdtemp(prefix="gwlab"))
        self.namespace = f"gwlab-{os.getpid()}-{self.scratch.name[-4:]}"
        self.taps = os.path.exists("/dev/net/tun") and os.geteuid() == 0
        self.processes: list[subprocess.Popen] = []
        try:
            program = program or FOLDER.parent / "debug/gradwire-xdp"
            beside = files(program, self.scratch) if files else []
            for extra in {self.extras.get(name) for name in "ab"}:
                image.build(folder, kernel, program, self._initrd(extra), extra, beside)
            self._network()
            self.accelerator, self.guests = self._boot()
            self.a, self.b = self.guests
            self.containers = [Container(self.a, "10.9.0.1"), Container(self.b, "10.9.0.2")]
            make = host or (lambda number: self._host(number, queues or self.card.used))
            jobs = [guest.start(make(i + 1), timeout=300) for i, guest in enumerate(self.guests)]
            for job in jobs:
                job.wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        if self.taps:
            subprocess.run(["ip", "netns", "del", self.namespace], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _initrd(self, extra: str | None) -> Path:
        return self.scratch / f"initrd.{extra or 'plain'}"

    def _network(self) -> None:
        """Taps on bridges, in a namespace. Without /dev/net/tun, streams between two cards, with one queue."""
        # Which cards are joined: each guest's own, or each with a card of b's wire.
        self.links = [("a0", "w0"), ("w1", "b0")] if self.wire else [("a0", "b0")]
        if not self.taps:
            self.card = Card(self.card.device, self.card.settings)
            return
        lines = [f"netns add {self.namespace}"]
        inside = f"-n {self.namespace}"
        for number, ends in enumerate(self.links):
            lines.append(f"{inside} link add br{number} mtu 9300 type bridge mcast_snooping 0")
            for end in ends:
                many = " multi_queue" if self._queues(end) > 1 else ""
                lines += [
                    f"{inside} tuntap add dev {end} mode tap vnet_hdr{many}",
                    f"{inside} link set dev {end} mtu 9300 master br{number} up",
                ]
            lines.append(f"{inside} link set dev br{number} up")
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True)
        subprocess.run(
            ["ip", "netns", "exec", self.namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"],
            check=False,
            stderr=subprocess.DEVNULL,
        )

    def _queues(self, end: str) -> int:
        return 1 if end.startswith("w") else self.card.queues

    def _cards(self, name: str) -> list[str]:
        ends = ["a0"] if name == "a" else ["b0"] + (["w0", "w1"] if self.wire else [])
        arguments = []
        for number, end in enumerate(ends):
            if self.taps:
                queues = f",queues={self._queues(end)}" if self._queues(end) > 1 else ""
                netdev = f"tap,id={end},ifname={end},script=no,downscript=no,vhost=off{queues}"
            else:
                link, server = next((i, end == pair[0]) for i, pair in enumerate(self.links) if end in pair)
                role = "server=on" if server else "server=off,reconnect-ms=100"
                netdev = f"stream,id={end},addr.type=unix,addr.path={self.scratch}/link{link},{role}"
            # Cards of the wire get and send frames as they are on a wire: the guest merges none,
            # and completes no checksum.
            off = "csum guest_csum guest_tso4 guest_tso6 guest_ecn guest_ufo host_tso4 host_tso6 host_ufo"
            plain = ",".join(f"{offload}=off" for offload in off.split())
            card = Card("virtio-net-pci", plain) if end.startswith("w") else self.card
            mac = f"52:54:00:09:{'0a' if name == 'a' else '0b'}:{number:02x}"
            arguments += ["-netdev", netdev, "-device", card.argument(end, mac)]
        return arguments

    def _qemu(self, name: str, kvm: bool) -> Guest:
        root, scratch = self.folder / "root", self.scratch
        there = self.folder / "kernel" / self.kernel
        # It ends with this program, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL", *image.command(root, "qemu-system-x86_64")]
        accelerator = ["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg,thread=multi", "-cpu", "max"]
        # Some boots panic while they test the timer, if the machine is busy.
        drivers = ",".join(sorted({"virtio_pci", "virtio_console", self.card.driver, *(["virtio_net"] if self.wire else [])}))
        quick = "quiet panic=-1 no_timer_check nokaslr mitigations=off init_on_alloc=0 lsm=capability audit=0"
        kernel = f"console=ttyS0 {quick} net.ifnames=0 drivers={drivers}"
        kernel += " rdinit=/systemd systemd.show_status=no" if self.extras.get(name) == "system" else " rdinit=/init"
        command += [
            *accelerator,
            *["-machine", "q35", "-smp", "2", "-m", str(self.memory), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
            *["-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")],
            *["-kernel", str(there / "vmlinux"), "-initrd", str(self._initrd(self.extras.get(name))), "-append", kernel],
            *["-serial", f"file:{scratch}/{name}.console"],
            *["-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={scratch}/{name}.agent,server=on,wait=off"],
            *["-device", "virtserialport,chardev=agent,name=agent"],
            *self._cards(name),
        ]
        if self.taps:
            command = ["ip", "netns", "exec", self.namespace, *command]
        with open(scratch / f"{name}.qemu", "wb") as log:
            qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(qemu)
        return Guest(name, qemu, scratch)

    def _boot(self) -> tuple[str, list[Guest]]:
        tries = [(False, seconds) for seconds in BOOTS]
        if Pair.kvm:
            tries.insert(0, (True, BOOTS_WITH_KVM))
        for kvm, seconds in tries:
            guests, deadline = [], time.monotonic() + seconds
            try:
                for name in "ab":
                    guests.append(self._qemu(name, kvm))
                boots = [guest.jobs.get(0) for guest in guests]
                while not all(boot is None or boot.done.is_set() for boot in boots):
                    if time.monotonic() > deadline:
                        raise Failed(f"a guest does not boot in {seconds} s")
                    for guest in guests:
                        guest.alive()
                    time.sleep(0.1)
                return "KVM" if kvm else "TCG", guests
            except Failed as error:
                for process in self.processes:
                    process.kill()
                    process.wait()
                self.processes.clear()
                Pair.kvm = False
                failure = Failed("\n".join([str(error), *(guest.last_words() for guest in guests)]))
                if not kvm:
                    print(f"{error}; tries: {len(BOOTS)}", file=sys.stderr, flush=True)
        raise failure

    def _host(self, number: int, queues: int | None) -> str:
        """What docs/deploy.md says: a bridge that joins the container's veth and the card."""
        change_queues = f"ethtool -L eth0 combined {queues}" if queues else ""
        # In batches: an emulated guest needs long to start a program.
        script = f"""
            set -e
            {change_queues}
            ip -b - <<'IP'
            netns add c
            link set dev eth0 mtu {self.mtu}
            link add br0 type bridge
            link set dev br0 up
            link set dev eth0 master br0 up
            address add 10.9.0.1{number}/24 dev br0
            address add fd09::1{number}/64 dev br0 nodad
            IP
        """.replace("            ", "")
        script += self.veth(number)
        if self.wire and number == 2:
            script += """
ip link add brw mtu 9000 type bridge mcast_snooping 0
for wire in eth1 eth2; do
  ethtool -K $wire gro off
  ip link set dev $wire master brw up mtu 9000
done
ip link set dev brw up
"""
        return script

    def veth(self, number: int) -> str:
        """What joins a container and its host's bridge."""
        return f"""
            ip -b - <<'IP'
            link add veth0 mtu {self.mtu} type veth peer name eth0 mtu {self.mtu} netns c
            link set dev veth0 master br0 up
            IP
            ip -n c -b - <<'IP'
            link set dev lo up
            link set dev eth0 address 02:00:00:00:09:0{number} up
            address add 10.9.0.{number}/24 dev eth0
            address add fd09::{number}/64 dev eth0 nodad
            IP
        """.replace("            ", "")

    def shims(self, arguments: str = "", config: str = "") -> list[Job]:
        """Starts a shim in each guest, and waits until they run."""
        jobs = []
        for guest in self.guests:
            jobs.append(self.shim(guest, arguments, config))
        for guest, job in zip(self.guests, jobs, strict=True):
            self.ready(guest, job)
        return jobs

    def shim(self, guest: Guest, arguments: str = "", config: str = "") -> Job:
        return guest.start(
            f"cat >/tmp/shim.toml <<'TOML'\n{config}\nTOML\n"
            f"exec gradwire-xdp run --host veth0 --net eth0 --config /tmp/shim.toml {arguments} >/tmp/shim.log 2>&1",
            timeout=3600,
        )

    def ready(self, guest: Guest, job: Job) -> None:
        """Waits until a shim answers."""
        deadline = time.monotonic() + max(BOOTS)
        while not guest.run("gradwire-xdp status --json >/dev/null 2>&1 && echo yes", check=False):
            if job.done.is_set() or time.monotonic() > deadline:
                raise Failed(f"{guest.name}: the shim does not run:\n{guest.run('cat /tmp/shim.log')}")
            time.sleep(0.2)

    def logs(self) -> str:
        """What says why a scenario failed."""
        parts = []
        for guest in self.guests:
            try:
                text = guest.run(
                    "cat /tmp/shim.log; journalctl --no-pager -n 30; gradwire-xdp status; dmesg | tail -n 15; ip -s link show", 60, check=False
                )
            except Failed as error:
                text = str(error)
            parts.append(f"--- {guest.name}\n{text}")
        return "\n".join(parts)


def end_on_sigterm() -> None:
    """A program that is asked to end takes its namespaces away first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", choices=CARDS, default="virtio")
    parser.add_argument("--kernel", default="newest")
    parser.add_argument("--program", type=Path, help="gradwire-xdp; that of target/debug if none is named")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="what `unpack` has filled")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--queues", type=int)
    parser.add_argument("--wire", action="store_true", help="b also is the network, with a bridge brw that netem may slow down")
    asked = parser.parse_args()
    end_on_sigterm()
    start = time.monotonic()
    with Pair(CARDS[asked.card], asked.kernel, asked.program, asked.folder, asked.mtu, asked.queues, asked.wire) as pair:
        print(f"{pair.accelerator}, Linux {pair.release}, ready after {time.monotonic() - start:.0f} s", flush=True)
        places: dict[str, Guest | Container] = dict(zip("abcd", [*pair.guests, *pair.containers], strict=True))
        for line in sys.stdin:
            where, _, script = line.strip().partition(" ")
            if where not in places:
                print("a COMMAND, b COMMAND; in the containers: c COMMAND, d COMMAND", flush=True)
                continue
            job = places[where].start(script, 600)
            print(f"{job.wait(check=False)}[{job.status}]", flush=True)


if __name__ == "__main__":
    main()
