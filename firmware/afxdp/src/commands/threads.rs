//! Events for the main thread of a command that runs for long.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use signal_hook::iterator::Signals;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This signal.
    Signal(i32),
    /// A thread ended that should not have.
    WorkerEnded,
}

/// The two ends of the channel of events, signals among them from now on.
///
/// # Errors
/// There can be no thread.
pub(super) fn events(mut signals: Signals) -> io::Result<(Sender<Event>, Receiver<Event>)> {
    let (events, inbox) = channel();
    let to = events.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().all(|signal| to.send(Event::Signal(signal)).is_ok()))?;
    Ok((events, inbox))
}

/// Starts a thread whose end is an event, also its end by a panic.
///
/// # Errors
/// There can be no thread.
pub(super) fn spawn(
    name: String,
    stack: usize,
    events: Sender<Event>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    struct Guard(Sender<Event>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(Event::WorkerEnded);
        }
    }
    thread::Builder::new().name(name).stack_size(stack).spawn(move || {
        let _guard = Guard(events);
        work()
    })
}

/// Waits for threads that were told to end, and logs those that failed.
pub(super) fn join(threads: impl IntoIterator<Item = JoinHandle<io::Result<()>>>) {
    let ended = threads.into_iter().map(JoinHandle::join).collect::<Vec<_>>();
    let ended = ended.into_iter().map(|end| end.unwrap_or_else(|_| Err(io::Error::other("panic"))));
    for error in ended.filter_map(Result::err) {
        tracing::error!("worker: {error}");
    }
}
