//! `gradwire-xdp run`: from set-up to the last frame.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::shim::{SETS, Shim, StartError};
use crate::telemetry::Telemetry;
use crate::worker::{Orders, Worker};

/// How long after a thread's last sign of life frames go to the bridge.
pub const LIMIT: Duration = Duration::from_millis(100);
/// How often the main thread looks after what is not a frame's matter.
const TICK: Duration = Duration::from_secs(1);
/// A thread has the flow table on its stack while it is made.
const STACK: usize = 16 << 20;

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Set-up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The operating system.
    #[error("{what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        error: io::Error,
    },
    /// A thread ended that should not have; frames go by the bridge.
    #[error("a worker thread failed")]
    Worker,
}

/// What the main thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal(i32),
    WorkerEnded,
}

/// Runs between two ports until SIGTERM or SIGINT; SIGHUP reads the configuration file again.
///
/// # Errors
/// Why it did not start, or a thread that failed.
pub fn run(host: &str, network: &str, file: Option<&Path>) -> Result<(), RunError> {
    let system = |what| move |error| RunError::System { what, error };
    let mut config = file.map_or_else(|| Ok(Config::default()), Config::load)?;
    // Before all else: from here on no signal ends the process half set up.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system("signals"))?;
    let mut shim = Shim::set_up(host, network, &config, LIMIT)?;
    let telemetry = Arc::new(shim.telemetry(&config, file));
    let (events, inbox) = channel();
    let signal_events = events.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().all(|signal| signal_events.send(Event::Signal(signal)).is_ok()))
        .map_err(system("signals"))?;
    let workers = std::mem::take(&mut shim.workers);
    let workers = workers
        .into_iter()
        .enumerate()
        .map(|(number, worker)| {
            spawn(number, worker, Arc::clone(&shim.orders), Arc::clone(&telemetry), events.clone())
        })
        .collect::<io::Result<Vec<_>>>()
        .map_err(system("threads"))?;
    info!("ready");
    let result = serve(&mut shim, &mut config, file, &telemetry, &inbox);
    shim.orders.stop();
    let ended = workers.into_iter().map(JoinHandle::join).collect::<Vec<_>>();
    for failed in
        ended.into_iter().filter_map(|end| end.unwrap_or_else(|_| Err(io::Error::other("panic"))).err())
    {
        error!("worker: {failed}");
    }
    info!("stopped");
    result
}

/// Until the end is asked for.
fn serve(
    shim: &mut Shim,
    config: &mut Config,
    file: Option<&Path>,
    telemetry: &Telemetry,
    inbox: &Receiver<Event>,
) -> Result<(), RunError> {
    loop {
        match inbox.recv_timeout(TICK) {
            Ok(Event::Signal(SIGHUP)) => reload(shim, config, file, telemetry),
            Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::WorkerEnded) => return Err(RunError::Worker),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = shim.follow_bridge() {
                    warn!("the bridge's addresses: {error}");
                }
            }
        }
    }
}

/// Reads the file again. What cannot be understood changes nothing.
fn reload(shim: &Shim, config: &mut Config, file: Option<&Path>, telemetry: &Telemetry) {
    let Some(file) = file else {
        warn!("SIGHUP: there is no configuration file to read again (--config)");
        return;
    };
    match Config::load(file) {
        Ok(new) => {
            for setting in new.needs_restart(config) {
                warn!("{setting} changed: takes effect at the next start");
            }
            // The threads first: a frame of a rule that they do not know yet would go untouched.
            shim.orders.set_rules(new.rules.clone());
            shim.program.set_rules(&new.rules);
            telemetry.reloaded(new.rules.clone());
            config.rules = new.rules;
            info!(rules = config.rules.as_slice().len(), "reloaded");
        }
        Err(error) => error!("{error}; the rules in force stay"),
    }
}

fn spawn(
    number: usize,
    mut worker: Worker<SETS>,
    orders: Arc<Orders>,
    telemetry: Arc<Telemetry>,
    events: Sender<Event>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    /// Tells the main thread, also by a panic.
    struct Guard(Sender<Event>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(Event::WorkerEnded);
        }
    }
    thread::Builder::new().name(format!("worker-{number}")).stack_size(STACK).spawn(move || {
        let _guard = Guard(events);
        worker.run(&orders, &telemetry.board, number)
    })
}
