//! The common part of all commands that serve until they get a signal: its start, whom it tells
//! what it does, and what its main thread looks after while other threads serve.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::util::KernelVersion;
use rustix::thread::CapabilitySet;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::info;
use tracing_subscriber::filter::ParseError;

use super::threads::{Event, join};
use crate::config::ConfigError;
use crate::path::shim::StartError;
use crate::system::interface::Interface;
use crate::system::notify::Notifier;
use crate::system::privileges::{PrivilegesError, drop_all_but};
use crate::telemetry::control::{Control, ControlError, RUN_DIR, SocketFile};
use crate::telemetry::logging;
use crate::telemetry::metrics::{Endpoint, Shown};

/// The time after a thread's last sign of life until frames go to the kernel.
pub const LIMIT: Duration = Duration::from_millis(100);
/// The number of times that the main thread looks after what is not a frame's matter.
const TICK: Duration = Duration::from_secs(1);

/// The folder of its socket, and its log.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// Folder of the control socket.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// The filter of the log on standard error: off, error, warn, info, debug, trace, or such by
    /// module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// The format of the log.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: logging::Format,
    /// The time after a thread's last sign of life until frames go to the kernel: longer, for tests
    /// on machines whose threads wait for a processor.
    #[arg(long, hide = true, value_name = "MS", default_value_t = LIMIT.as_millis() as u64)]
    pub limit_ms: u64,
}

impl ServiceArgs {
    /// Begins to log.
    ///
    /// # Errors
    /// [`RunError::Log`].
    pub(super) fn start_log(&self) -> Result<(), RunError> {
        logging::start(&self.log, self.log_format)
            .map_err(|source| RunError::Log { filter: self.log.clone(), source })
    }

    pub(super) const fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms)
    }
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--log` is no filter.
    #[error("--log {filter}: {source}; expected a level, or module=level, separated by commas")]
    Log {
        /// The filter that was given.
        filter: String,
        /// Why it is none.
        source: ParseError,
    },
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Set-up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Privileges.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// The operating system.
    #[error("{what}: {error}")]
    System {
        /// The action that failed.
        what: String,
        /// Why it was not.
        error: io::Error,
    },
    /// The ports that `--wait` waits for did not come.
    #[error("waited {} s for {missing}", waited.as_secs())]
    Waited {
        /// The missing ports.
        missing: String,
        /// The wait so far.
        waited: Duration,
    },
    /// The protocol's packets do not fit.
    #[error(
        "{interface}: MTU {mtu} is too small for an aggregator: ip link set {interface} mtu {}",
        gradwire::wire::chunk::MIN_MTU
    )]
    SmallMtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u16,
    },
    /// A port was removed: its container ended, or its card.
    #[error("{interface} has gone; start again when it is back: with --wait, that may be now")]
    PortGone {
        /// The port.
        interface: String,
    },
    /// A thread ended that should not have; frames go by the bridge.
    #[error("a worker thread failed")]
    Worker,
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::System { what: what.into(), error }
}

/// The service manager, and signals: from here on none of them ends the process half set up.
///
/// # Errors
/// [`RunError::System`].
pub(super) fn manager_and_signals() -> Result<(Notifier, Signals), RunError> {
    let notifier = Notifier::from_env().map_err(system("service manager"))?;
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system("signals"))?;
    Ok((notifier, signals))
}

/// Gives up all capabilities but what the main thread still needs when all is set up: to change
/// maps, before Linux 5.19 let their owner.
///
/// # Errors
/// [`RunError::Privileges`].
pub(super) fn drop_privileges() -> Result<(), RunError> {
    let recent = KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(5, 19, 0));
    Ok(drop_all_but(if recent { CapabilitySet::empty() } else { CapabilitySet::BPF })?)
}

/// Binds the metrics endpoint, if there is to be one: at one of the next ports if `any_port`, and
/// this one is taken.
///
/// # Errors
/// [`RunError::System`].
pub(super) fn bind_endpoint(at: Option<SocketAddr>, any_port: bool) -> Result<Option<Endpoint>, RunError> {
    let bind = if any_port { Endpoint::bind_free } else { Endpoint::bind };
    at.map(|at| bind(at).map_err(system(format!("metrics, {at}")))).transpose()
}

/// From now on the control socket and the endpoint answer with snapshots, for as long as the
/// process lives.
///
/// # Errors
/// [`RunError::Control`], [`RunError::System`]: there can be no thread.
pub(super) fn serve_control<S: Shown + Serialize + 'static>(
    control: Control,
    endpoint: Option<Endpoint>,
    snapshot: impl Fn() -> S + Clone + Send + 'static,
) -> Result<SocketFile, RunError> {
    let file = control.serve(snapshot.clone())?;
    if let Some(endpoint) = endpoint {
        let at = endpoint.address().map_err(system("metrics"))?;
        info!(%at, "metrics");
        endpoint.serve(snapshot).map_err(system("metrics"))?;
    }
    Ok(file)
}

/// The duties of the main thread.
pub(super) trait Service {
    /// Whether every thread answers: it has given the XDP program a sign of life.
    fn all_answer(&self) -> bool;

    /// Once in a while; whether every thread answers.
    ///
    /// # Errors
    /// Why it has to end.
    fn look(&mut self) -> Result<bool, RunError>;

    /// SIGHUP came.
    fn reload(&mut self, notifier: &Notifier);

    /// A line for people.
    fn line(&self) -> String;

    /// Tells the threads to end.
    fn stop(&self);
}

/// Looks after a service until SIGTERM or SIGINT; then its threads end.
///
/// # Errors
/// Why it ended before.
pub(super) fn serve(
    service: &mut impl Service,
    notifier: &Notifier,
    inbox: &Receiver<Event>,
    threads: Vec<JoinHandle<io::Result<()>>>,
) -> Result<(), RunError> {
    let result = look_after(service, notifier, inbox, threads.len());
    notifier.stopping();
    service.stop();
    join(threads);
    info!("stopped");
    result
}

fn look_after(
    service: &mut impl Service,
    notifier: &Notifier,
    inbox: &Receiver<Event>,
    threads: usize,
) -> Result<(), RunError> {
    let tick = notifier.watchdog().map_or(TICK, |watchdog| TICK.min(watchdog / 3));
    let (mut is_ready, mut next) = (false, Instant::now());
    loop {
        match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(SIGHUP)) => {
                service.reload(notifier);
                if is_ready {
                    notifier.ready(&service.line());
                }
            }
            Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::WorkerEnded) => return Err(RunError::Worker),
            // A thread that has not answered yet is asked again at once.
            Err(RecvTimeoutError::Timeout) if !is_ready => {
                is_ready = service.all_answer();
                if is_ready {
                    info!(threads, "ready");
                    notifier.ready(&service.line());
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if service.look()? && notifier.watchdog().is_some() {
                    notifier.alive();
                }
                next = Instant::now() + tick;
            }
        }
    }
}

/// Fails if one of them has gone. Their sockets do not tell: they only have no more frames.
///
/// # Errors
/// [`RunError::PortGone`].
pub(super) fn all_there<'a>(interfaces: impl IntoIterator<Item = &'a Interface>) -> Result<(), RunError> {
    match interfaces.into_iter().find(|interface| !interface.exists()) {
        Some(gone) => Err(RunError::PortGone { interface: gone.name.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixDatagram;
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::scratch::Scratch;

    /// Its threads answer when they are asked for the fourth time. SIGHUP comes before, and again
    /// when it is ready; then SIGTERM.
    struct Slow {
        manager: UnixDatagram,
        events: Sender<Event>,
        asked: Cell<u32>,
        reloads: u32,
    }

    impl Slow {
        /// The message to the service manager that it has not read yet.
        fn received(&self) -> Option<String> {
            let mut buffer = [0; 256];
            let len = self.manager.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..len].to_vec()).unwrap())
        }

        fn comes(&self, signal: i32) {
            self.events.send(Event::Signal(signal)).unwrap();
        }
    }

    impl Service for Slow {
        fn all_answer(&self) -> bool {
            assert_eq!(self.received(), None, "asked {} times", self.asked.get());
            self.asked.set(self.asked.get() + 1);
            if self.asked.get() == 2 {
                self.comes(SIGHUP);
            }
            self.asked.get() == 4
        }

        fn look(&mut self) -> Result<bool, RunError> {
            assert_eq!(self.received().unwrap(), "READY=1\nSTATUS=asked 4 times, 1 reloads");
            self.comes(SIGHUP);
            self.comes(SIGTERM);
            Ok(true)
        }

        fn reload(&mut self, _: &Notifier) {
            self.reloads += 1;
        }

        fn line(&self) -> String {
            format!("asked {} times, {} reloads", self.asked.get(), self.reloads)
        }

        fn stop(&self) {}
    }

    /// A connection whose SYN comes before a thread's first sign of life is never compressed, so
    /// who waits for the service must not learn of it before.
    #[test]
    fn the_service_is_ready_when_every_thread_has_answered() {
        let folder = Scratch::new();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let notifier = Notifier::to(path.as_os_str().as_bytes(), None).unwrap();
        let (events, inbox) = channel();
        let mut service = Slow { manager, events, asked: Cell::new(0), reloads: 0 };
        look_after(&mut service, &notifier, &inbox, 1).unwrap();
        assert_eq!(service.received().unwrap(), "READY=1\nSTATUS=asked 4 times, 2 reloads");
        assert_eq!(service.received(), None);
    }
}
