//! `gradwire-xdp unload`: ends shims, also those that hang, and clears up after those that crashed.
//!
//! An XDP program of gradwire's lives as long as its process: its link is not pinned. So what there
//! is to do is to find the process, by its control socket or, if that is lost, by the link that it
//! holds.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::CommandError;
use super::arguments::seconds;
use crate::system::holders::{Holder, holders};
use crate::system::netlink::link::Link;
use crate::system::privileges::as_root;
use crate::telemetry::control::{self, ControlError, RUN_DIR};

/// Ends the gradwire-xdp that serves an interface, shim or aggregator, also if it hangs, and clears
/// up after one that crashed.
///
/// Traffic goes on by the bridge. XDP programs of others stay.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["interfaces", "all"])), after_help = "\
Examples:
  gradwire-xdp unload veth0
  gradwire-xdp unload --all --timeout 1")]
pub struct UnloadArgs {
    /// Interfaces that are freed; one of a pair is enough.
    #[arg(value_name = "IF")]
    pub interfaces: Vec<String>,
    /// Every gradwire-xdp with a control socket here.
    #[arg(long)]
    pub all: bool,
    /// Seconds that it gets to end by itself before it is killed.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,
    /// Folder of the control sockets.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
}

/// Why a shim could not be ended.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum UnloadError {
    /// Its process cannot be ended.
    #[error("process {pid}: cannot {action}: {source}{}", as_root(source))]
    Process {
        /// The process.
        pid: i32,
        /// The action that failed.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel does not tell of a device.
    #[error("{interface}: cannot ask the kernel: {source}")]
    Device {
        /// The interface.
        interface: String,
        /// Its answer.
        source: io::Error,
    },
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// When it was asked to.
    Asked,
    /// It had to be killed.
    Killed,
    /// Before it was asked.
    Gone,
}

/// Does it, and says to `out` what was done.
///
/// # Errors
/// A process could not be ended, or a socket not be removed.
pub fn run(args: &UnloadArgs, out: &mut impl Write) -> Result<(), CommandError> {
    let mut done = false;
    let mut interfaces = args.interfaces.clone();
    for socket in control::sockets(&args.run_dir)? {
        let Some((host, net)) = control::ports_of(&socket) else { continue };
        if !args.all && !args.interfaces.contains(&host) && !args.interfaces.contains(&net) {
            continue;
        }
        done = true;
        let ending = end_owner(&socket, args.timeout)?;
        writeln!(out, "{host} and {net}: {ending}")?;
        for interface in [host, net] {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
    }
    for socket in control::aggregator_sockets(&args.run_dir)? {
        let Some(interface) = control::interface_of(&socket) else { continue };
        if args.all || args.interfaces.contains(&interface) {
            done = true;
            let ending = end_owner(&socket, args.timeout)?;
            writeln!(out, "{interface}, an aggregator: {ending}")?;
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
    }
    for interface in &interfaces {
        done |= free(interface, args.timeout, out)?;
    }
    if !done {
        writeln!(out, "nothing to do: no gradwire-xdp found")?;
    }
    Ok(())
}

/// Ends the process that serves a socket, if there is one, and removes the socket; what was done.
fn end_owner(socket: &Path, timeout: Duration) -> Result<String, CommandError> {
    let done = match control::owner(socket) {
        Ok(pid) => describe(pid.as_raw_nonzero().get(), end(pid, timeout)?),
        Err(ControlError::Gone { .. }) => "the process had gone; its socket is removed".to_owned(),
        Err(error) => return Err(error.into()),
    };
    remove(socket)?;
    Ok(done)
}

/// Ends the aggregator of an interface, if there is one.
///
/// # Errors
/// It cannot be ended.
pub(super) fn end_aggregator(run_dir: &Path, interface: &str, timeout: Duration) -> Result<(), CommandError> {
    let socket = control::aggregator_socket_path(run_dir, interface);
    if socket.exists() {
        end_owner(&socket, timeout)?;
    }
    Ok(())
}

/// Ends what of gradwire's still holds an interface; whether there was anything to say.
fn free(interface: &str, timeout: Duration, out: &mut impl Write) -> Result<bool, CommandError> {
    let device = Link::find(interface)
        .map_err(|source| UnloadError::Device { interface: interface.to_owned(), source })?;
    let Some(device) = device else {
        writeln!(out, "{interface}: there is no such interface in this network namespace")?;
        return Ok(true);
    };
    let Some(program) = device.xdp_program else { return Ok(false) };
    let holders = holders(Path::new("/"), program);
    let (ours, others): (Vec<_>, Vec<_>) = holders.into_iter().partition(Holder::is_gradwire);
    for holder in &ours {
        if let Some(pid) = Pid::from_raw(holder.pid) {
            let ending = end(pid, timeout)?;
            writeln!(out, "{interface}: {}, which had no control socket", describe(holder.pid, ending))?;
        }
    }
    if ours.is_empty() {
        let holder = others.first();
        let whose =
            holder.map_or_else(String::new, |other| format!(" of {}, process {},", other.name, other.pid));
        writeln!(out, "{interface}: XDP program {program}{whose} is not gradwire's and stays")?;
    }
    Ok(true)
}

fn describe(pid: i32, ending: Ending) -> String {
    match ending {
        Ending::Asked => format!("process {pid} ended"),
        Ending::Killed => format!("process {pid} did not answer and was killed"),
        Ending::Gone => format!("process {pid} had gone"),
    }
}

/// Asks a process to end, and kills it if it has not after `timeout`.
fn end(pid: Pid, timeout: Duration) -> Result<Ending, UnloadError> {
    let error = |action| {
        move |error: rustix::io::Errno| UnloadError::Process {
            pid: pid.as_raw_nonzero().get(),
            action,
            source: error.into(),
        }
    };
    // A descriptor, unlike a number, is never that of another process by now.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(Ending::Gone),
        result => result.map_err(error("find"))?,
    };
    let ended = |patience: Duration| {
        let timeout =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
        // Readable means ended.
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(error("wait for")(errno)),
        }
    };
    let send = |signal, action| match pidfd_send_signal(&process, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(error(action)(errno)),
    };
    send(Signal::TERM, "end")?;
    if ended(timeout)? {
        return Ok(Ending::Asked);
    }
    send(Signal::KILL, "kill")?;
    if ended(Duration::from_secs(10))? {
        return Ok(Ending::Killed);
    }
    Err(error("kill")(rustix::io::Errno::TIMEDOUT))
}

/// Removes a socket's file, which its process may have done itself.
fn remove(socket: &Path) -> Result<(), ControlError> {
    match fs::remove_file(socket) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ControlError::Io { path: socket.to_owned(), action: "remove", source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command};
    use std::thread;

    use super::*;
    use crate::scratch::Scratch;

    fn child(script: &str) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    #[test]
    fn a_process_that_obeys_is_asked_and_one_that_does_not_is_killed() {
        // `exec`: no shell stays behind.
        let (mut obedient, pid) = child("exec sleep 600");
        // Longer than any machine keeps a process waiting.
        assert_eq!(end(pid, Duration::from_secs(120)).unwrap(), Ending::Asked);
        obedient.wait().unwrap();
        assert_eq!(end(pid, Duration::from_secs(120)).unwrap(), Ending::Gone);

        let (mut stopped, pid) = child("exec sleep 600");
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        // Stopped is `T` in the kernel's own words; before that, another signal would still reach
        // it.
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            thread::yield_now();
        }
        assert_eq!(end(pid, Duration::from_millis(50)).unwrap(), Ending::Killed);
        stopped.wait().unwrap();
    }

    fn unload(run_dir: &Scratch, interfaces: &[&str]) -> String {
        let args = UnloadArgs {
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            all: interfaces.is_empty(),
            timeout: Duration::from_secs(1),
            run_dir: run_dir.path().to_owned(),
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sockets_that_crashes_left_are_removed() {
        let run_dir = Scratch::new();
        let left = |host: &str| {
            let path = control::socket_path(run_dir.path(), host, "gw-b");
            drop(UnixListener::bind(&path).unwrap());
            path
        };
        let (first, second) = (left("gw-a"), left("gw-c"));
        let text = unload(&run_dir, &["gw-a"]);
        assert!(text.starts_with("gw-a and gw-b: the process had gone; its socket is removed\n"), "{text}");
        assert!(!first.exists() && second.exists());
        unload(&run_dir, &[]);
        assert!(!second.exists());
        let aggregator = control::aggregator_socket_path(run_dir.path(), "gw-n");
        drop(UnixListener::bind(&aggregator).unwrap());
        let text = unload(&run_dir, &["gw-n"]);
        assert!(
            text.starts_with("gw-n, an aggregator: the process had gone; its socket is removed\n"),
            "{text}"
        );
        assert!(!aggregator.exists());
        // Twice is as good as once.
        assert_eq!(unload(&run_dir, &[]), "nothing to do: no gradwire-xdp found\n");
        assert_eq!(unload(&run_dir, &["lo"]), "nothing to do: no gradwire-xdp found\n");
    }

    #[test]
    fn only_the_shim_of_the_interface_is_ended() {
        let run_dir = Scratch::new();
        // This process serves the socket: it would not survive a mistake.
        let path = control::socket_path(run_dir.path(), "gw-a", "gw-b");
        let listener = UnixListener::bind(&path).unwrap();
        unload(&run_dir, &["gw-c"]);
        assert!(path.exists());
        thread::spawn(move || drop(listener)).join().unwrap();
    }
}
