//! The program under test, as a process.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Instant;

use gradwire_xdp::telemetry::control::{RUN_DIR, query, socket_path};
use gradwire_xdp::telemetry::{Outcomes, Snapshot};
use rustix::process::Signal;

use super::process::Process;
use super::{Lab, PATIENCE, Side};

/// Frames of a thread that waits longer for a processor go by the bridge, uncompressed. Tests of
/// what is compressed must not depend on that, so it never happens to them.
pub const PATIENT: &str = "--limit-ms 600000";

pub struct Shim {
    process: Process,
    ports: [String; 2],
    config: PathBuf,
}

/// A shim answers as its process.
impl Deref for Shim {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Shim {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Shim {
    /// Starts beside one host, and waits until it is ready. It waits for its threads as long as it
    /// takes.
    pub fn start(lab: &Lab, side: Side, config: &str) -> Self {
        Self::start_with(lab, side, config, PATIENT)
    }

    /// As [`Shim::start`], but with the limit that users have: after that, frames go by the bridge.
    pub fn start_prompt(lab: &Lab, side: Side, config: &str) -> Self {
        Self::start_with(lab, side, config, "")
    }

    /// As [`Shim::start_prompt`], with more words on the command line.
    pub fn start_with(lab: &Lab, side: Side, config: &str, words: &str) -> Self {
        let mut shim = Self::spawn(lab, side, config, words);
        shim.wait_for("ready");
        shim
    }

    /// Starts, and waits for nothing.
    pub fn spawn(lab: &Lab, side: Side, config: &str, words: &str) -> Self {
        let ports = [lab.host_port(side), lab.network_port(side)];
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("{}.toml", ports[0]));
        fs::write(&path, config).unwrap();
        let place = format!("s{}", side.name());
        let [host, network] = &ports;
        let program = env!("CARGO_BIN_EXE_gradwire-xdp");
        let command =
            format!("{program} run --host {host} --net {network} --config {} {words}", path.display());
        let process = Process::spawn(&place, lab.command_in(&place, &command));
        Self { process, ports, config: path }
    }

    /// Writes another configuration and has it read.
    pub fn reload(&mut self, config: &str) {
        fs::write(&self.config, config).unwrap();
        self.signal(Signal::HUP);
        self.wait_for("reloaded");
    }

    /// Writes a configuration that cannot be taken over, and has it read.
    pub fn reload_refused(&mut self, config: &str) {
        fs::write(&self.config, config).unwrap();
        self.signal(Signal::HUP);
        // Either way, the line has the word.
        let line = self.wait_for("rules");
        assert!(line.contains("the rules in force stay"), "{line}");
    }

    /// Its snapshot: when all of its threads have answered.
    pub fn status(&self) -> Snapshot {
        let [host, network] = &self.ports;
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = query::<Snapshot>(&socket_path(RUN_DIR.as_ref(), host, network));
            match answer {
                Ok(status) if status.queues.iter().all(|queue| queue.answered) => return status,
                _ => assert!(Instant::now() < end, "no answer but {answer:?}"),
            }
        }
    }

    /// The outcomes of its egress, over all queues; and its ingress.
    pub fn outcomes(&self) -> [Outcomes; 2] {
        let status = self.status();
        let mut sums = [Outcomes::default(), Outcomes::default()];
        for queue in &status.queues {
            sums[0].add(&queue.egress);
            sums[1].add(&queue.ingress);
        }
        sums
    }

    /// Nanoseconds of CPU that all its threads used, and the part of it outside the kernel in ticks
    /// of 10 ms.
    pub fn cpu(&self) -> (u64, u64) {
        let folder = format!("/proc/{}/task", self.id());
        let tasks = fs::read_dir(folder).unwrap().map(|task| task.unwrap().path());
        let of = |path: PathBuf| {
            let schedule = fs::read_to_string(path.join("schedstat")).unwrap();
            let stat = fs::read_to_string(path.join("stat")).unwrap();
            let stat = stat.rsplit(')').next().unwrap();
            // Fields 14 of proc_pid_stat(5), counted from the third.
            let user = stat.split_whitespace().nth(11).unwrap();
            (schedule.split(' ').next().unwrap().parse::<u64>().unwrap(), user.parse::<u64>().unwrap())
        };
        tasks.map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Its memory in use, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // One that was killed leaves its socket behind.
        let [host, network] = &self.ports;
        if !self.ended {
            let _ = fs::remove_file(socket_path(RUN_DIR.as_ref(), host, network));
        }
    }
}
