"""A guest whose first process is systemd, with the Debian package: installed, started, killed, upgraded, removed, by docs/deploy.md's commands."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab import Failed, Guest, Pair
from traffic import STREAM, Traffic, must, network, note

PACKAGING = Path(__file__).parents[1] / "packaging"
FIRST, SECOND = "gradwire-xdp_first.deb", "gradwire-xdp_second.deb"
UNIT = "gradwire-xdp@train"
MARK = "second"


def packages(program: Path, folder: Path) -> list[Path]:
    """The package, and a later version of it: of the program, and of a file in /etc."""
    made = subprocess.run([PACKAGING / "deb", program, folder], capture_output=True, text=True, check=True)
    first = Path(made.stdout.strip()).rename(folder / FIRST)
    tree, second = folder / "package", folder / SECOND
    subprocess.run(["dpkg-deb", "--raw-extract", first, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nArchitecture:", "+second\nArchitecture:"))
    for file in ("usr/bin/gradwire-xdp", "etc/gradwire-xdp/example.toml"):
        with open(tree / file, "ab") as out:
            out.write(f"\n# {MARK}".encode())
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", "-Znone", tree, second], capture_output=True, check=True)
    return [first, second]


def shows(guest: Guest, name: str) -> str:
    return guest.run(f"systemctl show --value -p {name} {UNIT}").strip()


def wait_for(guest: Guest, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"{guest.name}: never {what}:\n{guest.run(f'systemctl status --no-pager -l {UNIT}', check=False)}")
        time.sleep(0.5)


def active(guest: Guest, but: str = "0") -> str:
    """Waits until the service has reported that it is ready; its process, which is not `but`."""
    wait_for(guest, "active", lambda: guest.run(f"systemctl is-active {UNIT}", check=False).strip() == "active" and shows(guest, "MainPID") != but)
    return shows(guest, "MainPID")


def systemd(pair: Pair) -> None:
    """The unit works under what systemd takes from it, comes back whatever happens, and goes with its package without a trace."""
    a, traffic = pair.a, Traffic(pair)
    pair.ready(pair.b, pair.shim(pair.b))
    note(f"{a.run('systemctl --version').splitlines()[0]}; installs the package")
    a.run(f"dpkg -i /root/{FIRST}")
    a.run("printf 'HOST=veth0\\nNET=eth0\\n' >/etc/gradwire-xdp/train.env; touch /etc/gradwire-xdp/train.toml")
    traffic.streams(STREAM // 4)

    note("starts before its interface is there")
    a.run("ip link del veth0")
    a.run(f"systemctl enable {UNIT} && systemctl start --no-block {UNIT}")
    wait_for(a, "waiting", lambda: "waits for veth0" in shows(a, "StatusText"))
    must(shows(a, "ActiveState") == "activating", "the service is ready without its interface")
    a.run(pair.veth(1))
    pid = active(a)
    confined(a, pid)
    must(network(a)["xdp"] == "native", f"{network(a)}")
    traffic.streams()
    traffic.tagged()

    note("a reload")
    for toml, rules in (("rule = []", 0), ("", 1)):
        a.run(f"echo '{toml}' >/etc/gradwire-xdp/train.toml; systemctl reload {UNIT}")
        wait_for(a, f"{rules} rules", lambda: len(a.status()["rules"]) == rules)
    must(active(a) == pid, "the reload has started another process")
    traffic.tagged()

    def meanwhile(what: str, script: str) -> str:
        """A script ends the process while streams flow; the next one's number."""
        note(what)
        before = shows(a, "MainPID")
        traffic.meanwhile(lambda: a.run(script.format(pid=before)), STREAM // 4)
        after = active(a, but=before)
        traffic.tagged()
        return after

    meanwhile("a restart", f"systemctl restart {UNIT}")
    meanwhile("its process is killed", "kill -9 {pid}")
    meanwhile("its process hangs", "kill -STOP {pid}")
    must("watchdog" in a.run(f"journalctl --no-pager -u {UNIT}").lower(), "systemd's watchdog did not find the process that hangs")

    note("the container ends, and its veth with it; another one comes")
    before = shows(a, "MainPID")
    a.run("ip link del veth0")
    wait_for(a, "waiting", lambda: "waits for veth0" in shows(a, "StatusText"))
    a.run(pair.veth(1))
    active(a, but=before)
    traffic.streams(STREAM // 4)
    traffic.tagged()

    note("an upgrade, over an edited file")
    before = active(a)
    a.run("echo '# mine' >>/etc/gradwire-xdp/example.toml")
    # What apt does when it may not ask.
    a.run(f"dpkg --force-confdef --force-confold -i /root/{SECOND}")
    must(a.run("tail -n 1 /etc/gradwire-xdp/example.toml").strip() == "# mine", "the upgrade took an edited file away")
    must(active(a) == before, "the upgrade has started another process")
    traffic.streams(STREAM // 4)
    traffic.tagged()
    after = meanwhile("a restart puts the new version in force", f"systemctl restart {UNIT}")
    must(a.run(f"tail -c {len(MARK)} /proc/{after}/exe") == MARK, "it is the old version that runs")

    note("removal, while streams flow")
    jobs = traffic.start_streams(STREAM // 2)
    time.sleep(1)
    a.run("dpkg -r gradwire-xdp")
    for job in jobs:
        job.wait()
    must("xdp" not in a.run("ip link show"), "an XDP program is left behind")
    traffic.streams(STREAM // 4)
    a.run("rm /etc/gradwire-xdp/train.*; dpkg -P gradwire-xdp")
    units = a.run("systemctl list-units --all --no-legend 'gradwire*'; systemctl list-units --failed --no-legend")
    # What is not the package's: the guest's own program, packages, logs of this scenario.
    files = a.run(
        "find / -xdev -iname '*gradwire*' ! -path '/usr/sbin/*' ! -path '/root/*' ! -path '/tmp/*' ! -path '/var/lib/dpkg/*'; ls -d /run/gradwire*",
        check=False,
    )
    must((units + files).strip() in ("", "ls: /run/gradwire*: No such file or directory"), f"left behind: {units}{files}")


def confined(guest: Guest, pid: str) -> None:
    """What the unit takes away is taken away."""
    status = dict(line.split(":", 1) for line in guest.run(f"cat /proc/{pid}/status").splitlines())
    must(status["Uid"].split()[0] not in ("0", "65534"), f"its user is {status['Uid']}")
    for name, value in (("CapEff", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
        must(status[name].strip() == value, f"{name} is {status[name].strip()}, not {value}")
    # NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON and BPF, by their bits in linux/capability.h.
    must(int(status["CapBnd"], 16) == 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39, f"it may get {status['CapBnd'].strip()}")
