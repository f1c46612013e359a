"""What must hold on emulated cards, in pairs of guests. Each scenario judges untagged traffic, too: it arrives bit-equal, and never stalls.

scenarios.py [--program PATH] [NAME...]     all of them, or those named; see SCENARIOS
"""

import argparse
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from lab import CARDS, FOLDER, Failed, Pair, end_on_sigterm

# Enough for each connection to leave slow start.
STREAM = 2_000_000
TAGGED_BYTES = "4M"
# A busy machine makes single frames late: these go by the bridge, and connections stay untouched. A round that shows that is repeated.
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
        c, d = self.pair.containers
        ways = (c, "10.9.0.2", self.CONTAINER), (d, "fd09::1", self.CONTAINER), (self.pair.a, "10.9.0.2", self.HOST), (self.pair.b, "fd09::1", self.HOST)
        jobs = [sender.start(self.untagged(address, port, count), timeout=900) for sender, address, port in ways]
        for job in jobs:
            job.wait()

    @staticmethod
    def untagged(address: str, port: int, count: int) -> str:
        return f"exec gradwire-xdp test send {address} --port {port} --exact --tos 0 --bytes {count} --timeout 60 --run-dir /nowhere"

    def stream(self, count: int):
        """One untagged stream that goes on while something else happens."""
        return self.pair.containers[0].start(self.untagged("10.9.0.2", self.BESIDE, count), timeout=900)

    def values(self, arguments: str, address: str = "10.9.0.2"):
        return self.pair.containers[0].start(f"exec gradwire-xdp test send {address} --timeout 60 --json {arguments}", timeout=900)

    def tagged(self, arguments: str = f"--bytes {TAGGED_BYTES}", address: str = "10.9.0.2", compressed: bool = True, firewall: bool = False) -> dict:
        """Tagged values, each within the bound; and some of them compressed.

        `firewall`: if a busy machine's shim misses a SYN but not its SYN-ACK, a firewall sees the first only, and takes what follows for
        invalid. Such a round is repeated.
        """
        for _ in range(ROUNDS):
            note(f"tagged values to {address}: {arguments}")
            job = self.values(arguments, address)
            said = job.wait(check=not firewall)
            if job.status == 3 and firewall:
                note(said)
                continue
            found = json.loads(said)
            must(found["good"] and not found["wrong"] and not found["missing_bytes"], f"values: {found}")
            if not compressed or (found["wire"] and found["wire"]["compressed"]):
                return found
        raise Failed(f"no frame is compressed, in {ROUNDS} rounds; the last: {said}")

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
    return sum(queue["flows_known"]["agreed"] for queue in guest.status()["queues"])


def network(guest) -> dict:
    return guest.status()["ports"]["network"]


def kill(guest) -> None:
    """What the kernel's killer of processes does."""
    note(f"the shim of {guest.name} is killed")
    guest.run(f"kill -9 {guest.status()['pid']}")


def served(pair: Pair) -> None:
    """Each receive queue that the card's driver has now has a socket."""
    for guest in pair.guests:
        has = int(guest.run("ls -d /sys/class/net/eth0/queues/rx-* | wc -l"))
        serves = network(guest)["queues"]
        must(has == serves, f"{guest.name}: eth0 has {has} receive queues, the shim serves {serves}")


def queues(pair: Pair) -> None:
    """Native mode adds queues to virtio: all are served, so all connections are compressed. Shims that are killed stop nothing."""
    traffic = Traffic(pair)
    pair.shims()
    must(network(pair.a)["xdp"] == "native", f"{network(pair.a)}")
    traffic.streams()
    for attempt in range(ROUNDS):
        before = agreed(pair.a)
        traffic.tagged("--bytes 2M --connections 8")
        new = agreed(pair.a) - before
        if new == 8:
            break
        must(attempt + 1 < ROUNDS, f"{new} of 8 connections agree on compression, in the last of {ROUNDS} rounds")
    served(pair)
    for victim in pair.guests:
        values, stream = compressed_stream(traffic), traffic.stream(STREAM)
        kill(victim)
        found = json.loads(values.wait())
        must(found["good"], f"values: {found}")
        stream.wait()
        traffic.streams(STREAM // 4)
        pair.ready(victim, pair.shim(victim))
        traffic.tagged()


def compressed_stream(traffic: Traffic):
    """A tagged stream that goes on, and of which frames have been compressed."""
    def compressed() -> int:
        return traffic.pair.a.status()["rules"][0]["traffic"]["compressed"]

    for seconds in (8, 16, 32, 64):
        before, values = compressed(), traffic.values(f"--seconds {seconds}")
        while not values.done.is_set():
            if compressed() >= before + 100:
                return values
            time.sleep(0.1)
        values.wait()
    raise Failed("nothing is compressed, in four streams")


def every_length(pair: Pair) -> None:
    """Without a copy, untagged frames of every length that Ethernet has pass an igb card."""
    traffic = Traffic(pair)
    pair.shims(config='[path]\nzero-copy = "on"')
    must(network(pair.a)["bind"] == "zero-copy", f"not without a copy: {network(pair.a)}")
    traffic.lengths(60, 1514)
    traffic.pings(1500)
    traffic.streams()
    traffic.tagged()


def zero_copy_then_generic(pair: Pair) -> None:
    """On virtio, without a copy; then in generic mode, where plain TCP through the bridge needs frames that the kernel has room for."""
    traffic = Traffic(pair)
    pair.shims(config='[path]\nzero-copy = "on"')
    must(network(pair.a)["bind"] == "zero-copy", f"not without a copy: {network(pair.a)}")
    traffic.streams()
    traffic.tagged()
    traffic.pings(1500)
    stop(pair)
    pair.shims(config='[path]\nmode = "generic"')
    must(network(pair.a)["xdp"] == "generic", f"{network(pair.a)}")
    traffic.streams()
    traffic.tagged(compressed=False)
    traffic.pings(1500)


def stop(pair: Pair) -> None:
    for guest in pair.guests:
        guest.run("gradwire-xdp unload veth0")
        guest.until("! ip link show | grep -q xdp")


def set_mtu(pair: Pair, mtu: int) -> None:
    for guest in pair.guests:
        guest.run(f"ip -n c link set dev eth0 mtu {mtu}; ip link set dev veth0 mtu {mtu}; ip link set dev eth0 mtu {mtu}")


def doctors_mtu(pair: Pair) -> None:
    """With jumbo frames, the doctor's command leads to an MTU at which the shim runs and the longest packets pass."""
    traffic = Traffic(pair)
    set_mtu(pair, 9000)
    mtu = min(
        int(line.split()[-1])
        for guest in pair.guests
        for line in guest.run("gradwire-xdp doctor --host veth0 --net eth0", check=False).splitlines()
        if line.strip().startswith("mend: ip link set dev") and " mtu " in line
    )
    set_mtu(pair, mtu)
    said = pair.a.run("gradwire-xdp doctor --host veth0 --net eth0", check=False)
    must("FAIL" not in said, said)
    pair.shims()
    traffic.pings(mtu)
    traffic.streams()
    traffic.tagged()
    note(f"MTU {mtu} works")


STATEFUL = """
add table {family} stateful
add chain {family} stateful forward {{ type filter hook forward priority 0; policy accept; }}
add rule {family} stateful forward ct state invalid counter drop
add rule {family} stateful forward ct state established,related counter accept
add rule {family} stateful forward ct state new counter accept
"""


def watches(guest, family: str) -> None:
    """The firewall has met established connections: its hooks are in these frames' way."""
    rules = guest.run(f"nft list table {family} stateful")
    met = [int(line.split(" packets ")[1].split()[0]) for line in rules.splitlines() if "established" in line]
    must(met and met[0] > 0, f"the firewall sees no connection: {rules}")


def firewalls(pair: Pair) -> None:
    """A bridge that watches connections, iptables' hooks in it, and VLANs: the shim starts if told to, and nothing stops."""
    traffic = Traffic(pair)
    b = pair.b
    b.run(f"nft -f - <<'NFT'{STATEFUL.format(family='bridge')}NFT")
    traffic.streams(STREAM // 4)
    refused = b.start("exec gradwire-xdp run --host veth0 --net eth0")
    refused.wait(check=False)
    must(refused.status not in (0, None) and "stateful" in refused.output, f"it starts past a firewall: {refused.output}")
    pair.shims("--bypass-filter")
    traffic.streams()
    traffic.tagged("--bytes 4M --connections 4", firewall=True)
    watches(b, "bridge")
    # A far end without a shim: its connections go by the bridge, all of them or none of them.
    kill(pair.a)
    traffic.tagged("--bytes 2M --connections 4", compressed=False, firewall=True)
    traffic.streams(STREAM // 4)
    pair.ready(pair.a, pair.shim(pair.a, "--bypass-filter"))
    b.run("nft flush ruleset; modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1")
    b.run(f"nft -f - <<'NFT'{STATEFUL.format(family='inet')}NFT")
    traffic.streams()
    traffic.tagged("--bytes 4M --connections 4", firewall=True)
    watches(b, "inet")
    b.run("nft flush ruleset; sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0")
    for guest in pair.guests:
        guest.run("for port in eth0 veth0; do bridge vlan add vid 100 dev $port; done; ip link set dev br0 type bridge vlan_filtering 1")
    for number, container in enumerate(pair.containers, 1):
        container.run(
            f"ip link add link eth0 name eth0.100 type vlan id 100 && ip link set dev eth0.100 up && ip address add 10.10.0.{number}/24 dev eth0.100"
        )
    traffic.streams()
    pair.containers[0].run(traffic.untagged("10.10.0.2", traffic.CONTAINER, STREAM // 2), timeout=900)
    traffic.tagged(address="10.10.0.2", compressed=False)
    traffic.tagged()


def bad_network(pair: Pair) -> None:
    """Loss, reordering, duplicates and 150 ms of delay at once, between the shims."""
    pair.b.run(
        "tc qdisc replace dev eth1 root netem delay 75ms 5ms loss 1% duplicate 1% reorder 5% 25%;"
        "tc qdisc replace dev eth2 root netem delay 75ms 5ms loss 1% duplicate 1% reorder 5% 25%"
    )
    traffic = Traffic(pair)
    pair.shims()
    values = traffic.values("--bytes 2M --connections 8")
    traffic.streams(STREAM // 8)
    found = json.loads(values.wait())
    must(found["good"], f"values: {found}")
    traffic.tagged("--bytes 500k --connections 4")


# What each needs: a card, and how the pair is made. CI runs them in this order.
SCENARIOS: dict[str, tuple[Callable[[Pair], None], str, dict]] = {
    "queues": (queues, "virtio", {"queues": 2}),
    "every-length": (every_length, "igb", {}),
    "zero-copy-then-generic": (zero_copy_then_generic, "virtio-zc", {}),
    "doctors-mtu": (doctors_mtu, "virtio", {}),
    "firewalls": (firewalls, "virtio", {}),
    "bad-network": (bad_network, "virtio", {"wire": True}),
}


def processor() -> float:
    """Seconds of processors that guests have taken which have ended: a measure that does not depend on the machine's load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, program: Path, folder: Path, kernel: str = "newest") -> str | None:
    """Runs a scenario; what went wrong, or nothing."""
    scenario, card, settings = SCENARIOS[name]
    start, used = time.monotonic(), processor()
    try:
        note(f"{name}: {scenario.__doc__}")
        with Pair(CARDS[card], kernel, program, folder, **settings) as pair:
            boot = time.monotonic() - start
            note(f"two guests, {card}, Linux {pair.release}, {pair.accelerator}")
            if not pair.taps:
                note("NOT JUDGED: cards with several queues. They need /dev/net/tun and root")
            try:
                scenario(pair)
            except Exception as error:
                if not isinstance(error, Failed):
                    traceback.print_exc()
                print(pair.logs())
                raise
        print(
            f"{name}: good, in {time.monotonic() - start:.0f} s, of which {boot:.0f} s were for the boot; {processor() - used:.0f} s of processors",
            flush=True,
        )
        return None
    except Exception as error:
        print(f"{name}: FAILED after {time.monotonic() - start:.0f} s: {error}", flush=True)
        return str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--program", type=Path, default=FOLDER.parent / "debug/gradwire-xdp")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--kernel", default="newest")
    asked = parser.parse_args()
    end_on_sigterm()
    for name in asked.names:
        if name not in SCENARIOS:
            parser.error(f"no scenario {name}")
    failed = [name for name in asked.names or SCENARIOS if run(name, asked.program, asked.folder, asked.kernel)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
