"""Two guests as nodes of Kubernetes: pods with a routed network of the CNI plugin `bridge`, kube-proxy's rules, and packaging/daemonset.yaml
as a container would run it. Each pod has a second interface behind br0, as docs/deploy.md says; the shim runs between that and the card.
"""

import json
import re
import time
from pathlib import Path

import yaml
from lab import Container, Failed, Guest, Job, Pair
from traffic import STREAM, Traffic, must, network, note

PACKAGING = Path(__file__).parents[1] / "packaging"
# Where a kubelet would have the ConfigMap of a node.
VOLUME = "/var/kubelet/configuration"
# The process of the container, among those of its control group.
SHIM = "$(for each in $(cat /sys/fs/cgroup/shim/cgroup.procs); do [ $(cat /proc/$each/comm) != gradwire-xdp ] || echo $each; done)"


class DaemonSet:
    """The sample, as a kubelet reads it."""

    def __init__(self) -> None:
        objects = {each["kind"]: each for each in yaml.safe_load_all((PACKAGING / "daemonset.yaml").read_text())}
        self.data: dict[str, str] = objects["ConfigMap"]["data"]
        pod = objects["DaemonSet"]["spec"]["template"]["spec"]
        (self.container,) = pod["containers"]
        must(pod["hostNetwork"], "the pod has a network of its own")
        recipe = (PACKAGING / "Containerfile").read_text()
        self.entry: list[str] = json.loads(re.findall(r"^ENTRYPOINT (.*)$", recipe, re.MULTILINE)[0])

    def command(self, host: str) -> list[str]:
        """What runs on a node whose ConfigMap names this port of the host."""
        values = {**self.data, "HOST": host}
        names = {each["name"]: values[each["valueFrom"]["configMapKeyRef"]["key"]] for each in self.container["env"]}
        return [*self.entry, *(re.sub(r"\$\((\w+)\)", lambda name: names[name[1]], word) for word in self.container["args"])]

    def script(self, host: str) -> str:
        """A container with this command: processes and mounts of its own, a root that it cannot write to, few capabilities, little memory."""
        context, mounts = self.container["securityContext"], {}
        for mount in self.container["volumeMounts"]:
            mounts[mount["name"]] = mount["mountPath"]
        must(context["runAsUser"] == 0 and context["readOnlyRootFilesystem"], f"{context}")
        must(context["capabilities"]["drop"] == ["ALL"], f"{context}")
        bounds = ",".join(["-all", *(f"+{name.lower()}" for name in context["capabilities"]["add"])])
        memory = self.container["resources"]["limits"]["memory"].removesuffix("i")
        # Mounts that are there are made read-only, and with them the root.
        inside = f"""
            mount -t proc proc /proc
            mount -o bind {VOLUME} {mounts["configuration"]}
            mount -o bind {mounts["run"]} {mounts["run"]}
            mount -o bind /proc/sys /proc/sys
            for place in {mounts["configuration"]} /proc/sys /sys /tmp /run /; do
              mount -o remount,bind,ro $place || exit 99
            done
            exec setpriv --bounding-set={bounds} --inh-caps=-all {" ".join(self.command(host))}
        """
        return f"""
            mkdir -p /sys/fs/cgroup/shim {mounts["configuration"]} {mounts["run"]}
            echo {memory} >/sys/fs/cgroup/shim/memory.max
            echo $$ >/sys/fs/cgroup/shim/cgroup.procs
            exec unshare --mount --pid --fork --kill-child sh -c '{inside}' >/tmp/shim.log 2>&1
        """

    def probe(self) -> str:
        """The readiness probe, which a kubelet runs in the container."""
        return in_container(" ".join(self.container["readinessProbe"]["exec"]["command"]))


def in_container(command: str) -> str:
    return f"nsenter -t {SHIM} -m -p {command}"


def config_map(guest: Guest, toml: str) -> None:
    """Changes the volume as a kubelet does: in a folder of its own, which a link then leads to."""
    guest.run(
        f"mkdir -p {VOLUME}; cd {VOLUME}; new=..$(ls -a | wc -l); mkdir $new; cat >$new/shim.toml <<'TOML'\n{toml}\nTOML\n"
        "ln -sfn $new ..data; ln -sfn ..data/shim.toml shim.toml"
    )


KUBE_PROXY = """
*nat
:PREROUTING ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
:KUBE-SERVICES -
:KUBE-POSTROUTING -
:KUBE-MARK-MASQ -
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
{services}
COMMIT
*filter
:FORWARD ACCEPT
:KUBE-FORWARD -
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"""
SERVICE = """:KUBE-SVC-{number} -
:KUBE-SEP-{number} -
-A KUBE-SERVICES -d 10.96.0.{number}/32 -p tcp -m multiport --dports 5280:5399 -j KUBE-SVC-{number}
-A KUBE-SVC-{number} ! -s 10.244.0.0/16 -d 10.96.0.{number}/32 -p tcp -j KUBE-MARK-MASQ
-A KUBE-SVC-{number} -j KUBE-SEP-{number}
-A KUBE-SEP-{number} -s 10.244.{number}.2/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-{number} -p tcp -j DNAT --to-destination 10.244.{number}.2"""


def cni(action: str, interface: str, settings: dict) -> str:
    """Calls a CNI plugin for the pod, as a container runtime does; what it says is in /tmp/INTERFACE."""
    settings = {"cniVersion": "0.4.0", "name": interface, **settings}
    variables = f"CNI_COMMAND={action} CNI_CONTAINERID=pod CNI_NETNS=/run/netns/c CNI_IFNAME={interface} CNI_PATH=/usr/lib/cni"
    return f"{variables} /usr/lib/cni/{settings['type']} >/tmp/{interface} <<'CNI'\n{json.dumps(settings)}\nCNI\n"


def second(number: int) -> dict:
    """The second interface of a pod. With `bridge`, its end at the host gets a name by chance; `host-device` hands the pod one end of a pair
    that the host keeps."""
    addresses = [{"address": f"10.9.0.{number}/24"}, {"address": f"fd09::{number}/64"}]
    plugin = {"type": "bridge", "bridge": "br0"} if number == 1 else {"type": "host-device", "device": "pod0"}
    return {**plugin, "ipam": {"type": "static", "addresses": addresses}}


def node(number: int) -> str:
    """A node: its card in br0 with its address, pods' networks, services 10.96.0.1 and 10.96.0.2 (the pods of both nodes)."""
    other = 3 - number
    first = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "ipam": {"type": "host-local", "subnet": f"10.244.{number}.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    }
    rules = KUBE_PROXY.format(services="\n".join(SERVICE.format(number=each) for each in (1, 2)))
    return f"""
set -e
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
ln -s /usr/sbin/gradwire-xdp /usr/bin/gradwire-xdp
modprobe -a bridge br_netfilter
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
iptables-restore <<'RULES'{rules}RULES
ip -b - <<'IP'
link add br0 type bridge
link set dev br0 address 52:54:00:09:0{"ab"[number - 1]}:00 up
link set dev eth0 master br0 up
address add 10.9.0.1{number}/24 dev br0
address add fd09::1{number}/64 dev br0 nodad
route add 10.244.{other}.0/24 via 10.9.0.1{other}
route add default via 10.9.0.1{other}
netns add c
{"link add veth0 type veth peer name pod0" if number == 2 else ""}
{"link set dev veth0 master br0 up" if number == 2 else ""}
IP
ip -n c link set dev lo up
{cni("ADD", "eth0", first)}
{cni("ADD", "net1", second(number))}
"""


class PodTraffic(Traffic):
    """Also by the pods' first interfaces: pod to pod, to services, and to a node, with addresses translated on the way."""

    POD, SERVICE, NODE, OF_NODE = 5330, 5340, 5350, 5360

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        c, d = pair.containers
        for receiver, port in ((d, self.POD), (c, self.SERVICE), (pair.b, self.NODE), (d, self.OF_NODE)):
            receiver.start(f"exec gradwire-xdp test receive --port {port} --timeout 60 >/tmp/receive.{port} 2>&1", timeout=7200)
        pair.a.until(f"grep waits /tmp/receive.{self.SERVICE}")
        pair.b.until(f"[ $(cat /tmp/receive.{self.POD} /tmp/receive.{self.NODE} /tmp/receive.{self.OF_NODE} | grep -c waits) = 3 ]")

    def ways(self) -> list[tuple[Guest | Container, str, int]]:
        c, d = self.pair.containers
        return [
            *super().ways(),
            (c, "10.244.2.2", self.POD),
            (d, "10.96.0.1", self.SERVICE),
            (c, "10.9.0.12", self.NODE),
            (self.pair.a, "10.96.0.2", self.OF_NODE),
        ]

    def all_tagged(self) -> None:
        """Tagged: compressed between the second interfaces, and within the bound everywhere."""
        self.tagged(firewall=True)
        for address in ("10.244.2.2", "10.96.0.2"):
            self.tagged("--bytes 1M", address, compressed=False, firewall=True)


def pods(pair: Pair) -> None:
    """On nodes with kube-proxy's rules, the DaemonSet's command leaves the pods' ordinary traffic alone, whatever becomes of it."""
    sample = DaemonSet()
    traffic = PodTraffic(pair)
    found = [json.loads(guest.run("cat /tmp/net1"))["interfaces"] for guest in pair.guests]
    hosts = [next(each["name"] for each in found[0] if each["name"].startswith("veth")), sample.data["HOST"]]
    note(f"the pods' second interfaces are behind {hosts[0]}, of the plugin bridge, and {hosts[1]}, which host-device does not touch")

    def start(guest: Guest) -> Job:
        return guest.start(sample.script(hosts[pair.guests.index(guest)]), timeout=3600)

    def ready(guest: Guest, job: Job) -> None:
        deadline = time.monotonic() + 600
        while not guest.run(f"{sample.probe()} >/dev/null 2>&1 && echo ready", check=False):
            if job.done.is_set() or time.monotonic() > deadline:
                raise Failed(f"{guest.name}: the container is not ready:\n{guest.run('cat /tmp/shim.log')}")
            time.sleep(0.2)

    traffic.streams()
    note("the sample as it is: bridged frames meet iptables on these nodes, so the shim does not start")
    for guest in pair.guests:
        config_map(guest, sample.data["shim.toml"])
        refused = start(guest)
        refused.wait(check=False)
        log = guest.run("cat /tmp/shim.log")
        must(refused.status == 2 and "bridge-nf-call-iptables" in log and "bypass-filter" in log, f"{refused.status}: {log}")
    note("with the line that it names")
    jobs = []
    for guest in pair.guests:
        config_map(guest, "[path]\nbypass-filter = true")
        jobs.append(start(guest))
    for guest, job in zip(pair.guests, jobs, strict=True):
        ready(guest, job)
    must(network(pair.a)["xdp"] == "native", f"{network(pair.a)}")
    held = pair.a.run(f"grep -E '^Cap(Eff|Bnd)' /proc/{SHIM}/status").split()[1::2]
    # NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON and BPF, by their bits in linux/capability.h; and none
    # of them when set-up is done.
    must(held == [f"{bits:016x}" for bits in (0, 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39)], f"{held}")
    traffic.streams()
    traffic.all_tagged()

    note("a reload")

    def reload() -> None:
        for toml, rules in (("rule = []\n", 0), ("", 1)):
            config_map(pair.a, f"{toml}[path]\nbypass-filter = true")
            pair.a.run(in_container("sh -c 'kill -HUP 1'"))
            for _ in range(100):
                if len(pair.a.status()["rules"]) == rules:
                    break
                time.sleep(0.2)
            else:
                raise Failed("the reload has no effect")

    traffic.meanwhile(reload, STREAM // 2)
    traffic.streams(STREAM // 4)
    traffic.tagged(firewall=True)

    for victim in pair.guests:
        note(f"{victim.name}'s container is killed, and started again")
        again: list[Job] = []

        def kill(victim: Guest = victim, again: list[Job] = again) -> None:
            victim.run(f"kill -9 {SHIM}")
            victim.until("! ip link show | grep -q xdp")
            time.sleep(1)
            again.append(start(victim))

        traffic.meanwhile(kill, STREAM // 2)
        traffic.streams(STREAM // 4)
        ready(victim, again[0])
        traffic.tagged(firewall=True)

    note("a pod ends, and another one comes: host-device keeps the pair, so that the shim stays")
    before = pair.b.run(f"echo {SHIM}")
    pair.b.run(cni("DEL", "net1", second(2)))
    pair.b.run(cni("ADD", "net1", second(2)))
    # The plugin does not wait until the kernel knows that nobody else has the address; connections
    # before that have another source.
    pair.b.until("! ip -n c -6 address show dev net1 | grep tentative")
    must(pair.b.run(f"echo {SHIM}") == before, "the shim is another one")
    traffic.streams(STREAM // 4)
    traffic.all_tagged()

    note("the pods of the DaemonSet are deleted")

    def stop() -> None:
        for guest in pair.guests:
            guest.run(f"kill {SHIM}")
            guest.until("! ip link show | grep -q xdp")

    traffic.meanwhile(stop, STREAM // 2)
    traffic.streams(STREAM // 4)
    left = [guest.run("ls /run/gradwire-xdp") for guest in pair.guests]
    must(left == ["", ""], f"left behind: {left}")
