"""What must hold on emulated cards, in pairs of guests. Each scenario verifies untagged traffic, too: it arrives bit-equal, and never stalls.

scenarios.py [--program PATH] [--field] [NAME...]     those that CI runs (SCENARIOS), those for releases (FIELD), or those named
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
from pods import node, pods
from remedies import DOCTOR, helps, remedies
from traffic import ROUNDS, STREAM, Traffic, agreed, kill, must, network, note, set_mtu
from units import packages, systemd


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
    """On virtio, without a copy where the kernel survives that; then in generic mode, where plain TCP through the bridge needs frames that the
    kernel has room for; then in native mode again, where a kernel that had kept memory of the first sockets would crash."""
    traffic = Traffic(pair)
    without_copy = '[path]\nzero-copy = "on"'
    pair.shims(config=without_copy)
    must(network(pair.a)["bind"] == "copy", f"without a copy, on queues that go with the program: {network(pair.a)}")
    stop(pair)
    for guest in pair.guests:
        helps(guest, "xdp eth0", f"{DOCTOR} --config /tmp/shim.toml")
    pair.shims(config=without_copy)
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
    stop(pair)
    pair.shims()
    traffic.streams(STREAM // 4)


def stop(pair: Pair) -> None:
    for guest in pair.guests:
        guest.run("gradwire-xdp unload veth0")
        guest.until("! ip link show | grep -q xdp")


def doctors_mtu(pair: Pair) -> None:
    """With jumbo frames, the doctor's command leads to an MTU at which the shim runs and the longest packets pass."""
    traffic = Traffic(pair)
    set_mtu(pair, 9000)
    mtu = min(
        int(line.split()[-1])
        for guest in pair.guests
        for line in guest.run("gradwire-xdp doctor --host veth0 --net eth0", check=False).splitlines()
        if line.strip().startswith("fix: ip link set dev") and " mtu " in line
    )
    set_mtu(pair, mtu)
    report = pair.a.run("gradwire-xdp doctor --host veth0 --net eth0", check=False)
    must("FAIL" not in report, report)
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
    must(bool(met) and met[0] > 0, f"the firewall sees no connection: {rules}")


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
        container.run("ip link add link eth0 name eth0.100 type vlan id 100 && ip link set dev eth0.100 up")
        container.run(f"ip address add 10.10.0.{number}/24 dev eth0.100")
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
    "zero-copy-then-generic": (zero_copy_then_generic, "virtio-zc", {"queues": 2}),
    "doctors-mtu": (doctors_mtu, "virtio", {}),
    "firewalls": (firewalls, "virtio", {}),
    "bad-network": (bad_network, "virtio", {"wire": True}),
}
# And for releases.
FIELD: dict[str, tuple[Callable[[Pair], None], str, dict]] = {
    "pods": (pods, "virtio", {"extras": {"a": "pods", "b": "pods"}, "host": node}),
    "remedies": (remedies, "virtio-many", {"extras": {"a": "pods"}, "memory": 2048, "queues": 2}),
    "systemd": (systemd, "virtio", {"extras": {"a": "system"}, "files": packages}),
}


def processor() -> float:
    """Seconds of processors that guests have taken which have ended: a measure that does not depend on the machine's load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, program: Path, folder: Path, kernel: str = "newest") -> str | None:
    """Runs a scenario; what went wrong, or nothing."""
    scenario, card, settings = (SCENARIOS | FIELD)[name]
    start, used = time.monotonic(), processor()
    try:
        note(f"{name}: {scenario.__doc__}")
        with Pair(CARDS[card], kernel, program, folder, **settings) as pair:
            boot = time.monotonic() - start
            note(f"two guests, {card}, Linux {pair.release}, {pair.accelerator}")
            if not pair.taps:
                note("NOT CHECKED: cards with several queues. They need /dev/net/tun and root")
            try:
                scenario(pair)
            except Exception as error:
                if not isinstance(error, Failed):
                    traceback.print_exc()
                print(pair.logs())
                raise
        took = f"{time.monotonic() - start:.0f} s, of which {boot:.0f} s were for the boot; {processor() - used:.0f} s of processors"
        print(f"{name}: good, in {took}", flush=True)
        return None
    except Exception as error:
        print(f"{name}: FAILED after {time.monotonic() - start:.0f} s: {error}", flush=True)
        return str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS | FIELD))
    parser.add_argument("--program", type=Path, default=FOLDER.parent / "debug/gradwire-xdp")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--kernel", default="newest")
    parser.add_argument("--field", action="store_true")
    asked = parser.parse_args()
    end_on_sigterm()
    for name in asked.names:
        if name not in SCENARIOS | FIELD:
            parser.error(f"no scenario {name}")
    failed = [name for name in asked.names or (FIELD if asked.field else SCENARIOS) if run(name, asked.program, asked.folder, asked.kernel)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
