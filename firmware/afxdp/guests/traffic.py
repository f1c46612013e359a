"""Traffic between the containers of a pair, verified: untagged streams and frames arrive bit-equal, tagged values within their bound."""

import json
import time
from collections.abc import Callable

from lab import Container, Failed, Guest, Job, Pair

# Enough for each connection to leave slow start.
STREAM = 2_000_000
TAGGED_BYTES = "4M"
# A busy machine makes single frames late: these go by the bridge, and connections stay untouched. A
# round that shows that is repeated.
ROUNDS = 6


START = time.monotonic()


def note(what: str) -> None:
    """What comes next: the log of a run that stands still ends with it."""
    print(f"{time.monotonic() - START:6.0f} s  {what}", flush=True)


def must(true: bool, what: str) -> None:
    if not true:
        raise Failed(what)


class Traffic:
    """Receivers in the containers of a pair, and what is sent to them."""

    # A receiver does one test after the other, so each sender has its own.
    TAGGED, CONTAINER, HOST, BESIDE = 5280, 5300, 5310, 5320

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        for container in pair.containers:
            for port in (self.TAGGED, self.CONTAINER, self.HOST, self.BESIDE):
                container.start(f"exec gradwire-xdp test receive --port {port} --timeout 60 >/tmp/receive.{port} 2>&1", timeout=7200)
        for guest in pair.guests:
            guest.until("[ $(cat /tmp/receive.* | grep -c waits) = 4 ]")

    def streams(self, count: int = STREAM) -> None:
        """Untagged: from container to container both ways, by both versions of IP, and from a host. No bit may change."""
        note(f"untagged streams of {count} bytes")
        for job in self.start_streams(count):
            job.wait()

    def start_streams(self, count: int) -> list[Job]:
        return [sender.start(self.untagged(address, port, count), timeout=900) for sender, address, port in self.ways()]

    def ways(self) -> list[tuple[Guest | Container, str, int]]:
        """Who sends, to which address and port."""
        c, d = self.pair.containers
        return [
            (c, "10.9.0.2", self.CONTAINER),
            (d, "fd09::1", self.CONTAINER),
            (self.pair.a, "10.9.0.2", self.HOST),
            (self.pair.b, "fd09::1", self.HOST),
        ]

    @staticmethod
    def untagged(address: str, port: int, count: int) -> str:
        return f"exec gradwire-xdp test send {address} --port {port} --exact --tos 0 --bytes {count} --timeout 60 --run-dir /nowhere"

    def stream(self, count: int) -> Job:
        """One untagged stream that goes on while something else happens."""
        return self.pair.containers[0].start(self.untagged("10.9.0.2", self.BESIDE, count), timeout=900)

    def meanwhile(self, happens: Callable[[], object], count: int) -> None:
        """Something happens while untagged streams of `count` bytes flow, and tagged values: all arrive as they should."""
        values, jobs = self.values("--seconds 6"), self.start_streams(count)
        time.sleep(2)
        happens()
        found = json.loads(values.wait())
        must(found["good"], f"values: {found}")
        for job in jobs:
            job.wait()

    def values(self, arguments: str, address: str = "10.9.0.2") -> Job:
        return self.pair.containers[0].start(f"exec gradwire-xdp test send {address} --timeout 60 --json {arguments}", timeout=900)

    def tagged(
        self,
        arguments: str = f"--bytes {TAGGED_BYTES}",
        address: str = "10.9.0.2",
        compressed: bool = True,
        firewall: bool = False,
    ) -> dict:
        """Tagged values, each within the bound; and some of them compressed.

        `firewall`: if a busy machine's shim misses a SYN but not its SYN-ACK, a firewall sees the first only, and takes what follows for
        invalid. Such a round is repeated.
        """
        for _ in range(ROUNDS):
            note(f"tagged values to {address}: {arguments}")
            job = self.values(arguments, address)
            output = job.wait(check=not firewall)
            if job.status == 3 and firewall:
                note(output)
                continue
            found = json.loads(output)
            must(found["good"] and not found["wrong"] and not found["missing_bytes"], f"values: {found}")
            if not compressed or (found["wire"] and found["wire"]["compressed"]):
                return found
        raise Failed(f"no frame is compressed, in {ROUNDS} rounds; the last: {output}")

    def pings(self, mtu: int) -> None:
        """Each way, by both versions of IP, in packets as long as the MTU."""
        note(f"pings at MTU {mtu}")
        c, d = self.pair.containers
        jobs = []
        for sender, address, headers in ((c, "10.9.0.2", 28), (d, "10.9.0.1", 28), (c, "fd09::2", 48), (d, "fd09::1", 48)):
            ping = f"ping -q -c 1 -W 10 -M do -s {mtu - headers} {address}"
            jobs.append((ping, sender.start(f"n=0; until {ping}; do n=$((n+1)); [ $n -lt 6 ] || exit 1; done")))
        for ping, job in jobs:
            job.wait(check=False)
            must(job.status == 0, f"no answer, six times: {ping}\n{job.output}")

    def lengths(self, first: int, last: int) -> None:
        """A frame of each length, both ways."""
        note(f"frames of {first} to {last} bytes")
        c, d = self.pair.containers
        for sender, receiver in ((c, d), (d, c)):
            mac = receiver.run("cat /sys/class/net/eth0/address").strip()
            arrive = receiver.start(f"exec python3 -IS /frames.py receive {first} {last} 90", timeout=300)
            sends = sender.start(f"exec python3 -IS /frames.py send {first} {last} {mac}", timeout=300)
            arrive.wait(check=False)
            sends.kill()
            must(arrive.status == 0, arrive.output)


def agreed(guest) -> int:
    """Connections whose ends agree on compression."""
    return sum(queue["flows_known"]["negotiated"] for queue in guest.status()["queues"])


def network(guest) -> dict:
    return guest.status()["ports"]["network"]


def kill(guest) -> None:
    """What the kernel's killer of processes does."""
    note(f"the shim of {guest.name} is killed")
    guest.run(f"kill -9 {guest.status()['pid']}")


def set_mtu(pair: Pair, mtu: int) -> None:
    for guest in pair.guests:
        guest.run(f"ip -n c link set dev eth0 mtu {mtu}; ip link set dev veth0 mtu {mtu}; ip link set dev eth0 mtu {mtu}")
