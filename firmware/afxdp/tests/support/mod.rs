//! A laboratory of network namespaces, made for one test and removed when it ends, also by a panic:
//!
//! ```text
//! host A ── shim A ── wire ── shim B ── host B
//!          (bridge)  (bridge) (bridge)
//! ```
//!
//! What happens inside stays inside: nothing of it touches the machine's own interfaces.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own and uses a part")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub mod frames;
pub mod injector;
pub mod process;
pub mod relay;
pub mod shim;
mod skip;
pub mod traffic;

pub(crate) use skip::skip;

/// The time that anything may take: longer than any machine, however busy, keeps its processes
/// waiting.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One laboratory at a time: several would share the cores, and wait for each other.
static ONE: Mutex<()> = Mutex::new(());
static NEXT: AtomicU32 = AtomicU32::new(0);

/// One of the two hosts, or the shim beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The plan of the laboratory.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub mtu: u16,
    /// Queues of every interface.
    pub queues: u32,
    /// Whether the wire is a bridge; if not, its ends are left to the test.
    pub bridged: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, bridged: true }
    }
}

pub struct Lab {
    tag: String,
    pub plan: Plan,
    _one: MutexGuard<'static, ()>,
}

impl Lab {
    /// None, after a word about why, if this cannot be done; a failure with
    /// `GRADWIRE_REQUIRE_NET=1`.
    pub fn new(plan: Plan) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(missing) = possible() {
            skip(&missing);
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let lab = Self { tag: format!("{:x}{number:x}", std::process::id()), plan, _one: one };
        lab.build();
        Some(lab)
    }

    fn build(&self) {
        for place in ["ha", "sa", "w", "sb", "hb"] {
            self.ip(&["netns", "add", &self.netns(place)]);
            self.ip_in(place, "link set lo up");
            if place.starts_with(['s', 'w']) {
                // Nothing but the test's own frames on the wire; and the wire is a plain switch.
                self.sysctl(place, "net.ipv6.conf.all.disable_ipv6=1");
                self.sysctl(place, "net.ipv6.conf.default.disable_ipv6=1");
                self.sysctl(place, "net.bridge.bridge-nf-call-iptables=0");
                self.sysctl(place, "net.bridge.bridge-nf-call-ip6tables=0");
            }
        }
        for (side, number) in [(Side::A, 1), (Side::B, 2)] {
            let [host, shim] = [format!("h{}", side.name()), format!("s{}", side.name())];
            self.veth((&host, "eth0"), (&shim, &self.host_port(side)));
            self.veth((&shim, &self.network_port(side)), ("w", side.name()));
            self.ip_in(&host, &format!("address add 10.77.0.{number}/24 dev eth0"));
            self.ip_in(&host, &format!("address add fd77::{number}/64 dev eth0 nodad"));
            self.bridge(&shim, &[&self.host_port(side), &self.network_port(side)]);
        }
        if self.plan.bridged {
            self.bridge("w", &["a", "b"]);
        }
        // What comes up takes a moment: until the first answer.
        if self.plan.bridged {
            self.wait_for_ping();
        }
    }

    /// Waits until host A reaches host B over both versions of IP.
    pub fn wait_for_ping(&self) {
        let end = Instant::now() + PATIENCE;
        for address in ["10.77.0.2", "fd77::2"] {
            while !self.in_place("ha", &format!("ping -q -c 1 -W 1 {address}")).status.success() {
                assert!(Instant::now() < end, "no answer from {address}");
            }
        }
    }

    /// Fifty pings from host A are answered. A busy machine may answer one too late to count.
    pub fn assert_pings(&self, address: &str) {
        let ping = format!("ping -q -i 0.01 -c 50 -w {} -s 1000 {address}", PATIENCE.as_secs());
        let pings = self.run_in("ha", &ping);
        // Answers that come late come together, and then it takes one or two more than it was told
        // to wait for.
        let received = pings.split(" received").next().and_then(|before| before.rsplit(' ').next());
        assert!(received.and_then(|count| count.parse().ok()) >= Some(50), "{pings}");
    }

    fn veth(&self, (place, name): (&str, &str), (other_place, other_name): (&str, &str)) {
        let Plan { mtu, queues, .. } = self.plan;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let (netns, other_netns) = (self.netns(place), self.netns(other_place));
        self.ip_words(&format!(
            "link add {name} netns {netns} {queues} type veth peer name {other_name} netns {other_netns} {queues}"
        ));
        for (place, name) in [(place, name), (other_place, other_name)] {
            self.ip_in(place, &format!("link set dev {name} mtu {mtu} up"));
            // Frames as they are on a wire: of one MTU, and with their checksums.
            let offloads = if place.starts_with('h') { "tso off gso off gro off" } else { "gro off" };
            self.run_in(place, &format!("ethtool -K {name} {offloads}"));
        }
    }

    /// Sets the MTU of the hosts, of the shims' ports and of the wire.
    pub fn set_mtu(&self, mtu: u16) {
        let set = |place: &str, name: &str| {
            self.ip_in(place, &format!("link set dev {name} mtu {mtu}"));
        };
        for side in Side::BOTH {
            set("w", side.name());
            let shim = format!("s{}", side.name());
            set(&shim, &self.network_port(side));
            set(&shim, &self.host_port(side));
            set(&format!("h{}", side.name()), "eth0");
        }
    }

    /// Another host on a shim's bridge, of this name.
    pub fn add_container(&self, shim: &str, name: &str, address: &str) {
        self.ip(&["netns", "add", &self.netns(name)]);
        self.veth((name, "eth0"), (shim, name));
        self.ip_in(shim, &format!("link set dev {name} master br0"));
        self.ip_in(name, &format!("address add {address}/24 dev eth0"));
    }

    fn bridge(&self, place: &str, ports: &[&str]) {
        self.ip_in(place, "link add br0 type bridge");
        self.ip_in(place, "link set dev br0 up");
        for port in ports {
            self.ip_in(place, &format!("link set dev {port} master br0"));
        }
    }

    /// The name of a namespace.
    pub fn netns(&self, place: &str) -> String {
        format!("gwx{}-{place}", self.tag)
    }

    /// The shim's port towards its host.
    pub fn host_port(&self, side: Side) -> String {
        format!("h{}{}", side.name(), self.tag)
    }

    /// The shim's port towards the wire.
    pub fn network_port(&self, side: Side) -> String {
        format!("n{}{}", side.name(), self.tag)
    }

    /// Does `work` in a thread that is inside a namespace.
    pub fn enter<T: Send + 'static>(
        &self,
        place: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let file = File::open(format!("/run/netns/{}", self.netns(place))).unwrap();
        thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }

    /// The MAC address of a host.
    pub fn mac(&self, place: &str) -> [u8; 6] {
        let link = self.link(place, "eth0");
        let bytes =
            link["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
        bytes.collect::<Vec<_>>().try_into().unwrap()
    }

    /// The state of an interface, from `ip`.
    pub fn link(&self, place: &str, name: &str) -> serde_json::Value {
        let json = self.ip_in(place, &format!("-s -j link show dev {name}"));
        serde_json::from_str::<serde_json::Value>(&json).unwrap()[0].take()
    }

    /// Runs a command in a namespace, `/sys` included.
    pub fn in_place(&self, place: &str, command: &str) -> Output {
        self.command_in(place, command).output().unwrap()
    }

    pub fn command_in(&self, place: &str, command: &str) -> Command {
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", &self.netns(place)]).args(command.split_whitespace());
        ip
    }

    /// Runs a command in a namespace; it must succeed.
    pub fn run_in(&self, place: &str, command: &str) -> String {
        checked(command, &self.in_place(place, command))
    }

    pub fn ip_in(&self, place: &str, words: &str) -> String {
        self.ip_words(&format!("-n {} {words}", self.netns(place)))
    }

    fn sysctl(&self, place: &str, setting: &str) {
        // If the kernel does not have it, there is nothing to switch off.
        let _ = self.in_place(place, &format!("sysctl -q -w {setting}"));
    }

    fn ip_words(&self, words: &str) -> String {
        self.ip(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn ip(&self, words: &[&str]) -> String {
        checked(&words.join(" "), &Command::new("ip").args(words).output().unwrap())
    }

    /// The index of the wire's end at a side.
    pub fn wire_end(&self, side: Side) -> u32 {
        self.index("w", side.name())
    }

    /// The index of an interface.
    pub fn index(&self, place: &str, name: &str) -> u32 {
        self.link(place, name)["ifindex"].as_u64().unwrap() as u32
    }

    /// Bytes and frames that the wire's own interface got from a side's shim.
    pub fn wire_count(&self, from: Side) -> (u64, u64) {
        let link = self.link("w", from.name());
        let count = |field| link["stats64"]["rx"][field].as_u64().unwrap();
        (count("bytes"), count("packets"))
    }

    /// The wire loses so many frames of a hundred, in both directions.
    pub fn lose(&self, percent: u32) {
        self.nft("add table bridge loss");
        self.nft("add chain bridge loss wire { type filter hook forward priority 0 ; }");
        self.nft(&format!("add rule bridge loss wire numgen random mod 100 < {percent} counter drop"));
    }

    /// A command to the wire's packet filter.
    pub fn nft(&self, command: &str) {
        checked(command, &self.command_in("w", "nft").arg(command).output().unwrap());
    }

    /// From now on both hosts count IP packets with this type of service: A those that it sends,
    /// each a frame, and B those that arrive.
    pub fn count_packets(&self, tos: u8) {
        // A lets its card cut nothing.
        self.ip_in("ha", "link set dev eth0 gso_max_segs 1");
        for (host, hook) in [("ha", "output"), ("hb", "input")] {
            self.run_in(host, "nft add table ip packets");
            let chain = format!("add chain ip packets here {{ type filter hook {hook} priority 0 ; }}");
            self.run_in(host, &format!("nft {chain}"));
            self.run_in(host, &format!("nft add rule ip packets here ip dscp {} counter", tos >> 2));
        }
    }

    /// The number of packets that A has sent and B has not got, of those counted.
    pub fn packets_missing(&self) -> u64 {
        let [sent, got] = ["ha", "hb"].map(|host| counted(&self.run_in(host, "nft list table ip packets")));
        sent.saturating_sub(got)
    }

    /// Frames that interfaces between the hosts dropped, and the hosts' own.
    pub fn dropped(&self) -> u64 {
        let of = |(place, name): (String, String)| {
            let link = self.link(&place, &name);
            ["rx", "tx"].map(|way| link["stats64"][way]["dropped"].as_u64().unwrap()).iter().sum::<u64>()
        };
        let at = |side: Side| {
            let end = |place: &str| format!("{place}{}", side.name());
            let shim = [self.host_port(side), self.network_port(side)].map(|port| (end("s"), port));
            shim.into_iter().chain([(end("h"), "eth0".into()), ("w".into(), end(""))])
        };
        Side::BOTH.into_iter().flat_map(at).map(of).sum()
    }

    /// SYNs and SYN-ACKs that a host has sent again, as it does after a second without an answer: a
    /// shim tells on the first of them, too.
    pub fn syns_again(&self, host: &str) -> u64 {
        let counts = self.run_in(host, "cat /proc/net/netstat");
        // A line of names, and one of numbers.
        let mut lines = counts.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
        let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
        let (_, again) = names.zip(numbers).find(|(name, _)| *name == "TCPSynRetrans").unwrap();
        again.parse().unwrap()
    }

    /// Frames that the wire lost.
    pub fn lost(&self) -> u64 {
        counted(&self.run_in("w", "nft list table bridge loss"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for place in ["ha", "sa", "w", "sb", "hb", "c2", "c3", "n"] {
            let _ = Command::new("ip").args(["netns", "del", &self.netns(place)]).output();
        }
    }
}

/// The first counter among packet filter's rules.
fn counted(rules: &str) -> u64 {
    let after = rules.split("counter packets ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

fn checked(what: &str, output: &Output) -> String {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether this process may do what a laboratory needs, and has the tools.
fn possible() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("tests in network namespaces need root".into());
    }
    for (tool, package) in
        [("ip", "iproute2"), ("nft", "nftables"), ("ethtool", "ethtool"), ("ping", "iputils-ping")]
    {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(tool).is_file());
        if !found {
            return Err(format!("`{tool}` is not installed (Debian: {package})"));
        }
    }
    let probe = format!("gwxprobe{:x}", std::process::id());
    let made =
        Command::new("ip").args(["netns", "add", &probe]).output().map_err(|error| error.to_string())?;
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    if made.status.success() {
        Ok(())
    } else {
        Err(format!("no network namespace can be made: {}", String::from_utf8_lossy(&made.stderr).trim()))
    }
}
