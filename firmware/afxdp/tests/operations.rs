//! Tasks of an operator, with real devices: the doctor and its remedies, status, metrics, the
//! service manager, ending it in every state. All inside namespaces of the test's own.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use gradwire_xdp::telemetry::Snapshot;
use gradwire_xdp::telemetry::control::{aggregator_socket_path, socket_path};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use support::shim::{PATIENT, Shim};
use support::traffic::{TAG, assert_within_bound, gradients, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gradwire-xdp");

/// Side A's shim and what belongs to it.
struct Operator {
    lab: Lab,
    host: String,
    net: String,
    folder: PathBuf,
}

impl Operator {
    fn new() -> Option<Self> {
        let lab = Lab::new(Plan::default())?;
        let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&host);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { lab, host, net, folder })
    }

    fn config(&self, text: &str) -> PathBuf {
        let path = self.folder.join("xdp.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn socket(&self) -> PathBuf {
        socket_path(&self.folder, &self.host, &self.net)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = self.lab.command_in("sa", PROGRAM);
        command.args(words.split_whitespace());
        command
    }

    fn output(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    fn ports(&self) -> String {
        format!("--host {} --net {}", self.host, self.net)
    }

    /// Starts it, and waits until it answers.
    fn start(&self, prepare: impl FnOnce(&mut Command)) -> Running {
        let (ports, folder) = (self.ports(), self.folder.display());
        let words = format!("run {ports} --run-dir {folder} --log-format json {PATIENT}");
        let mut command = self.command(&words);
        prepare(&mut command);
        let mut running = Running(command.stderr(Stdio::piped()).spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while self.status().is_none() {
            if let Some(status) = running.0.try_wait().unwrap() {
                panic!("{status}: {}", running.log());
            }
            assert!(Instant::now() < end, "it does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        running
    }

    fn status(&self) -> Option<Snapshot> {
        let output = self.output(&format!("status --json --run-dir {}", self.folder.display()));
        serde_json::from_slice(&output.stdout).ok()
    }

    /// As [`Self::status`], of one that runs, however late it answers.
    fn snapshot(&self) -> Snapshot {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.status() {
                Some(snapshot) => return snapshot,
                None => assert!(Instant::now() < end, "it does not answer"),
            }
        }
    }

    fn unload(&self, words: &str) -> String {
        self.unload_within(PATIENCE, words)
    }

    /// One that does not end by itself in this time is killed.
    fn unload_within(&self, time: Duration, words: &str) -> String {
        let time = time.as_secs_f32();
        let words = format!("unload {words} --timeout {time} --run-dir {}", self.folder.display());
        let output = self.output(&words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn assert_nothing_left(&self) {
        assert!(!self.socket().exists());
        for port in [&self.host, &self.net] {
            let link = self.lab.ip_in("sa", &format!("-d link show dev {port}"));
            assert!(!link.contains("xdp"), "{link}");
        }
    }

    /// The doctor's finding of one check; of a port, if it is about one.
    fn finding(&self, check: &str, port: Option<&str>, config: &str) -> Value {
        let file = self.config(config);
        let (file, folder) = (file.display(), self.folder.display());
        let words = format!("doctor --json {} --config {file} --run-dir {folder}", self.ports());
        let output = self.output(&words);
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        let failed = findings.iter().any(|finding| finding["status"] == "failed");
        assert_eq!(output.status.code(), Some(i32::from(failed)));
        let is_it = |f: &&Value| f["check"] == check && port.is_none_or(|port| f["port"] == port);
        // The worst of them: a check may find several things.
        let rank = |f: &&Value| {
            ["ok", "unknown", "warning", "failed"].iter().position(|status| f["status"] == *status)
        };
        findings.iter().filter(is_it).max_by_key(rank).cloned().unwrap_or(Value::Null)
    }

    /// After `harm` the doctor finds a fault, and its own command fixes it.
    fn fixed(&self, check: &str, port: Option<&str>, harm: &str, expected: &str, config: &str) {
        let before = self.finding(check, port, config);
        assert!(before.is_null() || before["status"] == "ok", "before `{harm}`: {before}");
        self.lab.run_in("sa", harm);
        let found = self.finding(check, port, config);
        assert_eq!(found["status"], expected, "after `{harm}`: {found}");
        let remedy = found["fix"].as_str().unwrap();
        let mut shell = self.lab.command_in("sa", "sh -c");
        let output = shell.arg(remedy).output().unwrap();
        assert!(output.status.success(), "{remedy}: {}", String::from_utf8_lossy(&output.stderr));
        let end = Instant::now() + PATIENCE;
        loop {
            let after = self.finding(check, port, config);
            if after.is_null() || after["status"] == "ok" {
                return;
            }
            // A link takes a moment to come up.
            assert!(Instant::now() < end, "after `{remedy}`: {after}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Running(Child);

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// All that it logged, after its end.
    fn log(&mut self) -> String {
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_doctors_remedies_fix_what_it_finds() {
    let Some(operator) = Operator::new() else { return };
    let (host, net) = (operator.host.as_str(), operator.net.as_str());
    for (check, port, harm, expected) in [
        ("link", Some(host), format!("ip link set dev {host} down"), "failed"),
        ("mtu", Some(net), format!("ip link set dev {net} mtu 9000"), "failed"),
        ("bridge", None, format!("ip link set dev {net} nomaster"), "failed"),
        ("bridge", None, format!("ip link set dev {host} nomaster"), "failed"),
        ("bridge", None, "ip link set dev br0 down".to_owned(), "failed"),
        (
            "qdisc",
            Some(net),
            format!("tc qdisc add dev {net} root tbf rate 1gbit burst 64k latency 1ms"),
            "warning",
        ),
    ] {
        operator.fixed(check, port, &harm, expected, "");
        // The remedy for a large MTU is the largest that works.
        for port in [host, net] {
            operator.lab.run_in("sa", &format!("ip link set dev {port} mtu 1500"));
        }
    }
    operator.fixed("pair", None, &format!("ip link set dev {host} mtu 1450"), "warning", "");
    operator.fixed(
        "offloads",
        Some(net),
        &format!("ethtool -K {net} gro on"),
        "failed",
        "[path]\nmode = \"generic\"",
    );
    let in_place = "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n[path]\nbypass-filter = true\n";
    if fs::exists("/proc/sys/net/bridge/bridge-nf-call-iptables").unwrap() {
        let harm = "sysctl -q -w net.bridge.bridge-nf-call-iptables=1";
        operator.fixed("packet-filter", None, harm, "warning", in_place);
    }
    assert_eq!(operator.finding("mtu", Some(host), "")["found"], "1500");
}

#[test]
fn the_doctor_sees_what_drivers_tell() {
    let Some(operator) = Operator::new() else { return };
    let xdp = operator.finding("xdp", Some(&operator.host), "");
    // A veth runs XDP itself and has no zero copy.
    assert_eq!(xdp["found"], "native, with a copy: the driver offers no other way");
    let generic = operator.finding("xdp", Some(&operator.host), "[path]\nmode = \"generic\"");
    assert_eq!(generic["status"], "warning");
    assert_eq!(operator.finding("link", Some(&operator.net), "")["found"], "veth, up");
    assert_eq!(operator.finding("queues", Some(&operator.net), "")["status"], "ok");
    assert_eq!(operator.finding("af-xdp", None, "")["status"], "ok");
    assert_eq!(operator.finding("capabilities", None, "")["status"], "ok");
    // Whether a shim runs already is seen, and whose it is.
    let running = operator.start(|_| {});
    let program = operator.finding("program", Some(&operator.net), "");
    let expected = format!("gradwire-xdp, process {}, runs here", running.0.id());
    assert_eq!((&program["found"], &program["status"]), (&Value::from(expected), &Value::from("ok")));
    // And what it was set up for, whatever the port is by now.
    operator.lab.run_in("sa", &format!("ip link set dev {} mtu 1600", operator.host));
    let end = Instant::now() + PATIENCE;
    loop {
        let mtu = operator.finding("mtu", Some(&operator.host), "");
        let found = mtu["found"].as_str().unwrap();
        if found.starts_with("1600, but the gradwire-xdp that runs started with 1500") {
            assert_eq!(mtu["status"], "warning");
            break;
        }
        // It waits two seconds for the one that runs.
        assert!(Instant::now() < end, "{mtu}");
    }
}

/// The driver could run XDP itself, and the file does not say otherwise: only the shim that runs
/// knows.
#[test]
fn of_a_shim_that_runs_the_doctor_says_what_is() {
    let Some(operator) = Operator::new() else { return };
    let (host, net) = (operator.host.as_str(), operator.net.as_str());
    let config = operator.config("[path]\nmode = \"generic\"\n");
    let _running = operator.start(|command| {
        command.arg("--config").arg(&config);
    });
    let end = Instant::now() + PATIENCE;
    for port in [host, net] {
        loop {
            let xdp = operator.finding("xdp", Some(port), "");
            let found = xdp["found"].as_str().unwrap();
            if found.starts_with("generic, with a copy, 1 queue, as the gradwire-xdp that runs has it") {
                assert_eq!(xdp["status"], "warning", "{xdp}");
                break;
            }
            // It waits two seconds for the one that runs.
            assert!(Instant::now() < end, "{xdp}");
        }
    }
    let gro = format!("ethtool -K {net} gro on");
    operator.fixed("offloads", Some(net), &gro, "failed", "");
}

#[test]
fn the_shim_runs_without_privileges_and_notifies_the_service_manager() {
    let Some(operator) = Operator::new() else { return };
    let notify = operator.folder.join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = operator.config("");
    let receive = |words: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut state = [0; 512];
            let len = manager.recv(&mut state).unwrap();
            let state = String::from_utf8_lossy(&state[..len]).into_owned();
            if state.lines().any(|line| line == words) {
                return;
            }
            assert!(Instant::now() < end, "no {words}, but {state}");
        }
    };
    let mut running = operator.start(|command| {
        command.arg("--config").arg(&config);
        command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "600000");
    });
    receive("READY=1");
    receive("WATCHDOG=1");

    let status = fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} not in {status}");
    }

    // Without privileges rules are still taken over.
    operator.config("[[rule]]\ntos = 0x50\n");
    kill_process(running.pid(), Signal::HUP).unwrap();
    receive("READY=1");
    let snapshot = operator.snapshot();
    assert_eq!((snapshot.reloads, snapshot.rules[0].tos), (1, 0x50));

    // A file that is refused changes nothing.
    operator.config("[[rule]]\ntos = 0x51\n");
    kill_process(running.pid(), Signal::HUP).unwrap();
    receive("READY=1");
    assert_eq!(operator.snapshot().rules[0].tos, 0x50);

    kill_process(running.pid(), Signal::TERM).unwrap();
    receive("STOPPING=1");
    assert!(running.0.wait().unwrap().success());
    operator.assert_nothing_left();
    let log = running.log();
    // Structured: an object on every line.
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = format!("{}: line 2: ", operator.folder.join("xdp.toml").display());
    let says = |f: &&Value| f["message"].as_str().is_some_and(|message| message.starts_with(&refused));
    assert_eq!(events.iter().find(says).unwrap()["level"], "ERROR");
}

/// Who reads a log by lines gets the reason of its end as one, too.
#[test]
fn the_error_that_ends_a_json_log_is_json() {
    let Some(operator) = Operator::new() else { return };
    let run = format!("run --host missing0 --net {} --run-dir {}", operator.net, operator.folder.display());
    let last_line = |words: &str| {
        let output = operator.output(&format!("{run} {words}"));
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
    };
    let event: Value = serde_json::from_str(&last_line("--log-format json")).unwrap();
    assert_eq!(event["level"], "ERROR");
    assert!(event["message"].as_str().unwrap().contains("missing0"), "{event}");
    for other in ["--log-format text", "--log-format json --log off"] {
        let line = last_line(other);
        assert!(line.starts_with("gradwire-xdp: ") && line.contains("missing0"), "{line}");
    }
}

#[test]
fn with_the_units_capabilities_it_needs_no_root() {
    let Some(operator) = Operator::new() else { return };
    let command = format!("run {}", operator.ports());
    serves_without_root(&operator, "gradwire-xdp", &command, &|run_dir| {
        socket_path(run_dir, &operator.host, &operator.net)
    });
    let command = format!("aggregate --interface {} --address 10.77.0.9", operator.net);
    serves_without_root(&operator, "gradwire-aggregator", &command, &|run_dir| {
        aggregator_socket_path(run_dir, &operator.net)
    });
}

/// Runs a command as nobody, with no more than the capabilities of a unit, until it answers at its
/// socket.
fn serves_without_root(operator: &Operator, unit: &str, command: &str, socket: &dyn Fn(&Path) -> PathBuf) {
    let unit = fs::read_to_string(format!("{}/systemd/{unit}@.service", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let capabilities = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap();
    let capabilities: Vec<_> =
        capabilities.split_whitespace().map(|name| format!("+{}", name[4..].to_ascii_lowercase())).collect();
    let capabilities = capabilities.join(",");
    // As anybody may: the program is not always where others may read.
    let program = std::env::temp_dir().join(&operator.host);
    fs::copy(PROGRAM, &program).unwrap();
    let run_dir = std::env::temp_dir().join(format!("{}.run", operator.host));
    fs::create_dir_all(&run_dir).unwrap();
    rustix::fs::chown(&run_dir, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    let words = format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all,{capabilities} \
         --ambient-caps {capabilities} --bounding-set -all,{capabilities} --no-new-privs {} {command} --run-dir {}",
        program.display(),
        run_dir.display()
    );
    let child = operator.lab.command_in("sa", &words).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let socket = socket(&run_dir);
    let end = Instant::now() + PATIENCE;
    while gradwire_xdp::telemetry::control::query::<Value>(&socket).is_err() {
        let ended = running.0.try_wait().unwrap();
        if ended.is_some() || Instant::now() > end {
            let _ = running.0.kill();
            let _ = fs::remove_dir_all(&run_dir);
            panic!("{ended:?}: {}", running.log());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    assert!(status.contains("Uid:\t65534") && status.contains("CapEff:\t0000000000000000"), "{status}");
    kill_process(running.pid(), Signal::TERM).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(!socket.exists());
    fs::remove_file(program).unwrap();
    fs::remove_dir_all(run_dir).unwrap();
}

#[test]
fn a_second_one_on_the_ports_is_told_of_the_first() {
    let Some(operator) = Operator::new() else { return };
    let first = operator.start(|_| {});
    let run =
        |folder: &str| operator.output(&format!("run {} --log off --run-dir {folder}", operator.ports()));
    let refused = run(&operator.folder.display().to_string());
    assert_eq!(refused.status.code(), Some(2));
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(says.contains(&format!("process {} runs on these ports", first.0.id())), "{says}");
    // Also if it does not see the other's socket.
    let refused = run(&operator.folder.join("other").display().to_string());
    assert_eq!(refused.status.code(), Some(2));
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(says.contains("gradwire-xdp unload"), "{says}");
}

#[test]
fn the_shim_can_be_ended_in_every_state() {
    let Some(operator) = Operator::new() else { return };
    let host = operator.host.clone();

    let mut running = operator.start(|_| {});
    let pid = running.0.id();
    assert!(operator.unload(&host).contains(&format!("process {pid} ended")));
    assert!(running.0.wait().unwrap().success());
    operator.assert_nothing_left();

    // Killed: the kernel takes the program away, and the socket is left.
    let mut running = operator.start(|_| {});
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    assert!(operator.socket().exists());
    let status = operator.output(&format!("status --run-dir {}", operator.folder.display()));
    assert_eq!(status.status.code(), Some(1));
    assert!(operator.unload("--all").contains("the process had gone; its socket is removed"));
    operator.assert_nothing_left();

    // Hanging: it cannot do what it is asked.
    let mut running = operator.start(|_| {});
    kill_process(running.pid(), Signal::STOP).unwrap();
    let text = operator.unload_within(Duration::from_millis(300), &operator.net);
    assert!(text.contains("did not answer and was killed"), "{text}");
    running.0.wait().unwrap();
    operator.assert_nothing_left();

    // Its socket lost: found by the program that it holds.
    let mut running = operator.start(|_| {});
    fs::remove_file(operator.socket()).unwrap();
    let text = operator.unload(&host);
    assert!(text.contains("which had no control socket"), "{text}");
    running.0.wait().unwrap();
    operator.assert_nothing_left();
    assert!(operator.unload(&host).contains("nothing to do"));
}

/// The guide's steps: a host without rules restores what others send; a rule comes and goes by a
/// reload.
#[test]
fn rolling_out_and_back() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let no_rule = "rule = []\n";
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, no_rule));
    let data = gradients(2_000_000);
    let sent_compressed = |shims: &[Shim; 2]| {
        let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
        assert_within_bound(&data, &got);
        let [egress, _] = shims[0].outcomes();
        let [_, ingress] = shims[1].outcomes();
        (egress.changed["compressed"], ingress.changed["restored"], got == data)
    };
    assert_eq!(sent_compressed(&shims), (0, 0, true));
    shims[0].reload("[[rule]]\ntos = 0x28\n");
    let (compressed, restored, same) = sent_compressed(&shims);
    assert!(compressed > 100 && restored > 100 && !same, "{compressed} {restored}");
    shims[0].reload(no_rule);
    assert_eq!(sent_compressed(&shims), (compressed, restored, true));
}

#[test]
fn prometheus_is_answered_only_where_it_was_asked_for() {
    let Some(operator) = Operator::new() else { return };
    let listening = || operator.lab.run_in("sa", "cat /proc/net/tcp /proc/net/tcp6").lines().count() - 2;
    let quiet = operator.start(|_| {});
    assert_eq!(listening(), 0, "off by default");
    drop(quiet);
    fs::remove_file(operator.socket()).unwrap();

    let config = operator.config("[metrics]\n");
    // Another shim's, for example.
    let (tx, rx) = std::sync::mpsc::channel();
    let first = operator.lab.enter("sa", move || {
        let taken = TcpListener::bind(("127.0.0.1", gradwire_xdp::config::METRICS_PORT)).unwrap();
        tx.send(()).unwrap();
        taken
    });
    rx.recv().unwrap();
    let taken = first.join().unwrap();
    let mut running = operator.start(|command| {
        command.arg("--config").arg(&config);
    });
    let listens = format!(":{:04X} ", gradwire_xdp::config::METRICS_PORT + 1);
    assert!(operator.lab.run_in("sa", "cat /proc/net/tcp").contains(&listens), "the next free port");
    kill_process(running.pid(), Signal::TERM).unwrap();
    assert!(running.0.wait().unwrap().success());
    drop(taken);

    let _running = operator.start(|command| {
        command.arg("--config").arg(&config);
    });
    let whose = format!("host=\"{}\",network=\"{}\"", operator.host, operator.net);
    let answers = format!("\ngradwire_queue_answers{{{whose},queue=\"0\"}} ");
    let end = Instant::now() + PATIENCE;
    let page = loop {
        let scrape = operator.lab.enter("sa", || {
            let mut client = TcpStream::connect(("127.0.0.1", gradwire_xdp::config::METRICS_PORT)).unwrap();
            client.write_all(b"GET /metrics HTTP/1.1\r\nHost: shim\r\n\r\n").unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            page
        });
        let page = scrape.join().unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        // A thread that waits a quarter of a second for its processor seems to hang.
        if page.contains(&format!("{answers}1\n")) {
            break page;
        }
        assert!(page.contains(&format!("{answers}0\n")) && Instant::now() < end, "{page}");
    };
    assert!(page.contains(&format!("\ngradwire_info{{{whose},version=")), "{page}");
}
