"""The matrix, for releases: each driver with each kernel and mode, and what may change while the shim runs. It writes docs/drivers.md.

matrix.py [--kernel KERNEL]... [--card CARD]... [--again]

What ran is kept with the commit that it ran on, so that a run that was cut off goes on; --again forgets it.
"""

import argparse
import json
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import image
from lab import CARDS, FOLDER, Failed, Guest, Pair, end_on_sigterm
from traffic import Traffic, must, network, note, set_mtu

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/drivers.md"
KERNELS = ["6.1", "6.12", "newest"]
# Untagged bytes on each of four streams, and tagged ones.
STREAM = 500_000
TAGGED = "--bytes 1M --connections 2"
# Of the speeds' comparison; each has streams of two seconds by each way.
ROUNDS = 5
NAMES = {
    "virtio": "virtio_net",
    "virtio-zc": "virtio_net, `iommu_platform=on`",
    "virtio-generic": "virtio_net, `ctrl_guest_offloads=off`",
    "virtio-rss": "virtio_net, `rss=on`",
    "igb": "igb",
    "e1000e": "e1000e",
    "vmxnet3": "vmxnet3",
}


# What a table cannot say.
NOTES = {
    "virtio-zc": "With `iommu_platform=on` the driver uses all four of the card's queues. With two, the shim copies frames "
    "([deploy.md](deploy.md#zero-copy)).",
    "vmxnet3": "On vmxnet3 at MTU 9000, the receiver's emulated card counts packets of 4028 bytes as damaged (`ethtool -S`: `pkts rx err`).",
}


def effect(pair: Pair) -> str:
    port = network(pair.a)
    return f"{port['xdp']}, {port['bind']}"


def passes(pair: Pair, traffic: Traffic, mtu: int = 1500) -> str:
    """Untagged traffic, verified; then tagged, verified: whether it is compressed."""
    traffic.pings(mtu)
    traffic.streams(STREAM)
    found = traffic.tagged(TAGGED, compressed=False)
    traffic.streams(STREAM)
    if not found["wire"] or not found["wire"]["compressed"]:
        return "passes"
    return "works"


def bridge(pair: Pair, traffic: Traffic) -> str:
    traffic.pings(1500)
    traffic.streams(STREAM)
    return "works"


def with_path(settings: str, wanted: str) -> Callable[[Pair, Traffic], str]:
    def case(pair: Pair, traffic: Traffic) -> str:
        try:
            pair.shims(config=f"[path]\n{settings}")
        except Failed as error:
            return f"refused: {reason(error)}"
        if wanted not in effect(pair):
            return f"not there: {effect(pair)}"
        return f"{effect(pair)}: {passes(pair, traffic)}"

    return case


def reason(error: Exception) -> str:
    """The shim's last line, which says why it ended."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("gradwire-xdp: ")


def defaults(pair: Pair, traffic: Traffic) -> str:
    pair.shims()
    return f"{effect(pair)}: {passes(pair, traffic)}"


def at_mtu(mtu: int) -> Callable[[Pair, Traffic], str]:
    """The shim at an MTU; or, if it refuses that, at the one that its message names. What the bridge alone loses there is not the shim's."""

    def case(pair: Pair, traffic: Traffic) -> str:
        now = mtu
        # One port after the other may have something against it.
        for _ in range(3):
            set_mtu(pair, now)
            alone = False
            try:
                traffic.pings(now)
            except Failed as error:
                note(reason(error))
                alone = True
            try:
                pair.shims()
                break
            except Failed as error:
                named = re.search(r"ip link set dev \S+ mtu (\d+)", str(error))
                if not named:
                    raise
                now = int(named[1])
        else:
            raise Failed(f"the shim refuses each MTU that it names, at last {now}")
        refused = "" if now == mtu else f"{now} at most: "
        if alone:
            return f"{refused}the bridge alone loses packets; not verified"
        return f"{refused}{effect(pair)}: {passes(pair, traffic, now)}"

    return case


def offloads_off(pair: Pair, traffic: Traffic) -> str:
    for guest in pair.guests:
        for where in ("", "ip netns exec c "):
            for offload in ("tso", "gso", "gro", "lro", "rx-gro-hw", "tx", "rx"):
                # Not each card has each.
                guest.run(f"{where}ethtool -K eth0 {offload} off", check=False)
    pair.shims()
    return f"{effect(pair)}: {passes(pair, traffic)}"


def meanwhile(happens: Callable[[Pair], str | None]) -> Callable[[Pair, Traffic], str]:
    """Something happens to a's shim or card while a tagged and an untagged stream flow: both end, and what comes after passes."""

    def case(pair: Pair, traffic: Traffic) -> str:
        pair.shims()
        values, stream = traffic.values("--seconds 4"), traffic.stream(4 * STREAM)
        time.sleep(2)
        what = happens(pair)
        found = json.loads(values.wait())
        must(found["good"], f"values: {found}")
        stream.wait()
        return f"{what or ''}{passes(pair, traffic)}"

    return case


def down_and_up(pair: Pair) -> None:
    pair.a.run("ip link set dev eth0 down; sleep 1; ip link set dev eth0 up")


def other_queues(pair: Pair) -> str | None:
    has = pair.a.run("ethtool -l eth0 | sed -n '/Current/,$s/^Combined:[^0-9]*//p'", check=False).strip()
    if not has:
        return "the card has one queue; "
    job = pair.a.start(f"ethtool -L eth0 combined {1 if has != '1' else 2}")
    lines = job.wait(check=False).strip().splitlines()
    return f"the driver refuses ({lines[-1].removeprefix('netlink error: ')}); " if job.status else None


def reload(pair: Pair) -> None:
    pid = pair.a.status()["pid"]
    pair.a.run(f"echo 'rule = []' >/tmp/shim.toml; kill -HUP {pid}; sleep 1; echo >/tmp/shim.toml; kill -HUP {pid}")


def end_shim(guest: Guest) -> None:
    guest.run(f"kill {guest.status()['pid']}")
    guest.until("! ip link show | grep -q xdp")


def upgrade(pair: Pair) -> None:
    """As a package's upgrade and a restart do: the old one ends, a new one starts."""
    end_shim(pair.a)
    pair.ready(pair.a, pair.shim(pair.a))


def speed(settings: str) -> Callable[[Pair, Traffic], str]:
    """The speed of a stream through shims, as parts of the bridge's in the same round: untagged, and tagged. Medians, least and most."""

    def case(pair: Pair, traffic: Traffic) -> str:
        # By the settings that traffic is sent with: parts of the bridge's.
        parts: dict[str, list[float]] = {"untagged": [], "tagged": []}
        speeds = []
        untagged = "--tos 0 --exact --run-dir /nowhere"
        for _ in range(ROUNDS):
            speeds.append(speed_of(traffic, untagged))
            pair.shims(config=f"[path]\n{settings}")
            parts["untagged"].append(speed_of(traffic, untagged) / speeds[-1])
            parts["tagged"].append(speed_of(traffic, "") / speeds[-1])
            mode = effect(pair)
            for guest in pair.guests:
                end_shim(guest)
        told = ", ".join(f"{name} {statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})" for name, each in parts.items())
        return f"{mode}: {told} of {1000 * statistics.median(speeds):.0f} Mbit/s"

    return case


def speed_of(traffic: Traffic, arguments: str) -> float:
    """Gbit/s of one stream from container to container, which arrives as it should."""
    found = json.loads(traffic.values(f"--seconds 2 {arguments}").wait())
    must(found["good"], f"values: {found}")
    return found["gbit_per_second"]


# With the newest kernel alone.
SPEEDS = {
    "speed beside the bridge, defaults": speed(""),
    "speed beside the bridge, generic": speed('mode = "generic"'),
}
# What is tried, in order; each begins with no shim. The offloads come last, since they stay off.
CASES: dict[str, Callable[[Pair, Traffic], str]] = {
    "the bridge alone": bridge,
    "defaults": defaults,
    "native, copy": with_path('mode = "native"\nzero-copy = "off"', "native, copy"),
    "native, zero-copy": with_path('mode = "native"\nzero-copy = "on"', "zero-copy"),
    "generic": with_path('mode = "generic"', "generic"),
    "MTU 1280": at_mtu(1280),
    "MTU 9000": at_mtu(9000),
    "card down and up": meanwhile(down_and_up),
    "queues changed": meanwhile(other_queues),
    "rules taken away and back": meanwhile(reload),
    "another shim takes over": meanwhile(upgrade),
    **SPEEDS,
    "all offloads off": offloads_off,
    "all offloads off, generic": with_path('mode = "generic"', "generic"),
}


def try_all(kernel: str, card: str, program: Path, folder: Path, done: dict[str, str], keep: Callable[[str, str], None]) -> None:
    """Tries each case that is not done on a card with a kernel, in a pair of guests; in another if one is lost."""
    pair = None
    try:
        for case, act in CASES.items():
            if case in done or (case in SPEEDS and kernel != KERNELS[-1]):
                continue
            note(f"{card}, {kernel}: {case}")
            try:
                if pair is None:
                    pair = Pair(CARDS[card], kernel, program, folder)
                    traffic = Traffic(pair)
                result = act(pair, traffic)
            except Failed as error:
                print(error)
                if pair is None:
                    keep(case, f"**FAILED**: {reason(error)}")
                    return
                print(pair.logs())
                result = f"**FAILED**: {reason(error)[:200]}"
            keep(case, result)
            note(result)
            try:
                must("FAILED" not in result, "the next case needs another pair")
                for guest in pair.guests:
                    guest.run("gradwire-xdp unload veth0 || ! ip link show | grep -q xdp")
                    guest.until("! ip link show | grep -q xdp")
                set_mtu(pair, 1500)
            except Failed:
                pair.close()
                pair = None
    finally:
        if pair is not None:
            pair.close()


def shown(result: str) -> str:
    """A cell: of an error, the kernel's word for it."""
    result = re.sub(r"refused: .*: ([^:]*) \(os error \d+\).*", r"refused: \1", result)
    return result.replace("|", "/").replace("\n", " ")


def page(results: dict, versions: str) -> str:
    """docs/drivers.md, of what ran: a column for each card. What differs between kernels is told of each."""
    lines = [
        "# The shim on network drivers",
        "",
        "<!-- Written by `.ci/drivers matrix` from what it ran. -->",
        "",
        "No hardware was tried. QEMU emulates the cards of two virtual machines, each with container and bridge as in [deploy.md](deploy.md).",
        "CI runs a selection (`.ci/drivers`).",
        "",
        "In each case untagged TCP between containers both ways and between hosts and containers, by IPv4 and IPv6, and pings as long as",
        'the MTU must arrive equal to the bit, and tagged values must keep their bound. "works" says that they did, and that the shim',
        'compressed; "passes", that they did, and that it compressed nothing.',
        "",
    ]
    releases = {kernel: row["release"] for kernel in KERNELS for key, row in results.items() if key.split()[0] == kernel}
    newest = series(list(releases.values())[-1])
    # Of each card that ran, what ran by the kernel's series.
    ran = {
        card: {series(release): results[f"{kernel} {card}"] for kernel, release in releases.items() if f"{kernel} {card}" in results}
        for card in NAMES
    }
    ran = {card: by_kernel for card, by_kernel in ran.items() if by_kernel}
    titles = [NAMES[card] + ("" if len(by_kernel) == len(releases) else f", Linux {', '.join(by_kernel)}") for card, by_kernel in ran.items()]

    # Cases with the same results share a row.
    rows: dict[tuple[str, ...], list[str]] = {}
    for case in CASES:
        cells = tuple(cell(case, by_kernel, newest) for by_kernel in ran.values())
        rows.setdefault(cells, []).append(case)
    lines += [f"Kernels: Linux {', '.join(releases.values())}.", ""]
    lines += ["| case | " + " | ".join(titles) + " |", "|---" * (len(ran) + 1) + "|"]
    lines += [f"| {'; '.join(cases)} | {' | '.join(cells)} |" for cells, cases in rows.items()]
    lines += [
        "",
        f"Speeds, with Linux {newest}, are medians of rounds that try all ways in turn, least and most in brackets.",
    ]
    lines += ["Where QEMU emulates the processor, too, they say little of others.", ""]
    for card, text in NOTES.items():
        if card in ran:
            lines += [text, ""]
    lines += [versions, ""]
    return "\n".join(lines)


def series(release: str) -> str:
    """The first two numbers of a kernel's release."""
    return ".".join(release.split("-")[0].split("+")[0].split(".")[:2])


def cell(case: str, by_kernel: dict[str, dict], newest: str) -> str:
    """What came out on one card, by the kernel if not the same with each."""
    by_result: dict[str, list[str]] = {}
    for kernel, row in by_kernel.items():
        if case not in SPEEDS or kernel == newest:
            by_result.setdefault(shown(row["cases"].get(case, "did not run")), []).append(kernel)
    if len(by_result) <= 1:
        return next(iter(by_result), "did not run")
    return "; ".join(f"{', '.join(kernels)}: {result}" for result, kernels in by_result.items())


def output_of(*command) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=FOLDER.parent / "debug/gradwire-xdp")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--kernel", action="append", choices=KERNELS)
    parser.add_argument("--card", action="append", choices=NAMES)
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    end_on_sigterm()
    commit = output_of("git", "-C", ROOT, "rev-parse", "--short=7", "HEAD").strip()
    kept = asked.folder / "matrix.json"
    results = json.loads(kept.read_text()) if kept.exists() and not asked.again else {}
    version = re.findall(r"version (\S+)", output_of(*image.command(asked.folder / "root", "qemu-system-x86_64"), "--version"))[0]
    for kernel in asked.kernel or reversed(KERNELS):
        for card in asked.card or NAMES:
            release = (asked.folder / "kernel" / kernel / "release").read_text().strip()
            row = results.setdefault(f"{kernel} {card}", {"release": release, "commit": commit, "cases": {}})

            def keep(case: str, result: str, row: dict = row) -> None:
                row["cases"][case] = result
                kept.write_text(json.dumps(results, indent=1))

            try_all(kernel, card, asked.program, asked.folder, row["cases"], keep)
            commits = sorted({row["commit"] for row in results.values()})
            source = f"Source: commit {', '.join(commits)}; QEMU {version}, emulation without KVM where that boots no kernel; `.ci/drivers matrix`."
            PAGE.write_text(page(results, source))
    failed = [f"{pair}: {case}" for pair, row in results.items() for case, result in row["cases"].items() if "FAILED" in result]
    if failed:
        raise SystemExit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
