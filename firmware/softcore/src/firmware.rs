//! The main loop: frames, NICs, console, watchdog.

use embedded_hal::delay::DelayNs;
use embedded_hal::digital::{OutputPin, PinState};
use gradwire::engine::CapabilityTable;
use gradwire::forward::{Forwarder, Port};
use gradwire::verdict::{Change, DropReason};
use heapless::Vec;

use crate::board::{Board, Chip, Faults, Nics};
use crate::console::{Console, Request};
use crate::{BUDGET, SETS, logs, progress};

/// Milliseconds for the last words before a restart.
const LAST_WORDS_MS: u32 = 20;

/// Milliseconds between two lines about traffic.
const TRAFFIC_MS: u32 = 10_000;

/// Frames so far; counts wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(test), derive(defmt::Format))]
pub struct FrameCounts {
    /// Received by both ports.
    pub frames: u32,
    /// Compressed on their way out.
    pub compressed: u32,
    /// Restored on their way in.
    pub restored: u32,
    /// Compressed ones that were dropped, since they cannot be restored.
    pub dropped: u32,
}

impl FrameCounts {
    /// Of all frames until now.
    #[must_use]
    pub fn of(forwarder: &Forwarder<SETS>) -> Self {
        let ingress = forwarder.ingress().counters();
        let dropped: u64 = DropReason::ALL.iter().map(|reason| ingress.dropped(*reason)).sum();
        Self {
            frames: progress::read().frames,
            compressed: forwarder.egress().counters().changed(Change::Compressed) as u32,
            restored: ingress.changed(Change::Restored) as u32,
            dropped: dropped as u32,
        }
    }
}

/// An event that is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), derive(defmt::Format))]
pub enum Event {
    /// A link came or went.
    Link {
        /// At which NIC.
        port: Port,
        /// Whether it is there now.
        up: bool,
    },
    /// Something else went wrong at a NIC: its counts so far.
    Faults {
        /// At which NIC.
        port: Port,
        /// The counts.
        faults: Faults,
    },
    /// Frames have come since the last such line.
    Traffic(FrameCounts),
    /// The console asked for it.
    Console(Request),
}

/// Events of one turn: a link and faults at each port, traffic, and the console's.
pub type Events = Vec<Event, 6>;

/// The main loop and all it works on.
pub struct Firmware<C: Chip> {
    board: Board<C>,
    forwarder: &'static mut Forwarder<SETS>,
    capabilities: &'static CapabilityTable,
    console: Console,
    /// By port: as they were when they were looked at last.
    seen: [(bool, Faults); 2],
    /// The counts of the last line about traffic, and its time in milliseconds.
    printed: (FrameCounts, u32),
}

impl<C: Chip> Firmware<C> {
    /// Nothing is logged of links that are up from the start.
    pub fn new(
        board: Board<C>,
        forwarder: &'static mut Forwarder<SETS>,
        capabilities: &'static CapabilityTable,
    ) -> Self {
        let seen = Port::ALL.map(|port| (board.nics.link(port), board.nics.faults(port)));
        Self { board, forwarder, capabilities, console: Console::new(), seen, printed: Default::default() }
    }

    /// One turn: a batch each way, and a piece of everything else. What happened is for the caller
    /// to log.
    pub fn step(&mut self) -> Events {
        let now = self.board.chip.now();
        let mut frames = 0;
        for port in Port::ALL {
            frames += self.forwarder.forward(&mut self.board.nics, port, BUDGET, now, self.capabilities);
            self.board.nics.service();
        }
        progress::count(frames, now);
        self.board.chip.feed_watchdog();

        let mut events = Events::new();
        self.look_at_nics(&mut events);
        self.look_at_traffic(now.0 as u32, &mut events);
        let Self { board, forwarder, console, .. } = self;
        if let Some(request) = console.poll(&mut board.serial, forwarder, &board.nics) {
            let _ = events.push(Event::Console(request)); // there is a place for each
            if request == Request::Reset {
                let seed = board.chip.seed();
                forwarder.reset(seed);
                self.capabilities.clear(seed);
                board.nics.clear_faults();
            }
        }
        if frames > 0 {
            let on = progress::read().frames & 1 != 0;
            let _ = board.traffic_pin.set_state(PinState::from(on));
        } else if events.is_empty() && !console.is_busy() && !logs::is_waiting() {
            board.chip.idle();
        }
        events
    }

    /// Starts anew, after the last words have left the serial line.
    pub fn restart(&mut self) -> ! {
        for _ in 0..LAST_WORDS_MS {
            let Self { board, forwarder, console, .. } = self;
            let _ = console.poll(&mut board.serial, forwarder, &board.nics);
            board.delay.delay_ms(1);
        }
        self.board.chip.reset()
    }

    /// The first frames are printed at once: who brings up a board waits for them.
    fn look_at_traffic(&mut self, now_ms: u32, events: &mut Events) {
        let (before, at) = self.printed;
        if progress::read().frames == before.frames
            || (before.frames != 0 && now_ms.wrapping_sub(at) < TRAFFIC_MS)
        {
            return;
        }
        let traffic = FrameCounts::of(self.forwarder);
        self.printed = (traffic, now_ms);
        let _ = events.push(Event::Traffic(traffic)); // there is a place for each
    }

    fn look_at_nics(&mut self, events: &mut Events) {
        let nics = &self.board.nics;
        for (port, seen) in Port::ALL.into_iter().zip(&mut self.seen) {
            let (up, faults) = (nics.link(port), nics.faults(port));
            let (was_up, before) = core::mem::replace(seen, (up, faults));
            if up != was_up {
                let _ = events.push(Event::Link { port, up });
            }
            // What a peer can do in every frame is logged the first time: logs are no counters.
            let first = |now: u32, before: u32| now != 0 && before == 0;
            if first(faults.violations, before.violations)
                || first(faults.overruns, before.overruns)
                || first(faults.oversize, before.oversize)
                || first(faults.runts, before.runts)
            {
                let _ = events.push(Event::Faults { port, faults });
            }
        }
        let both = Port::ALL.into_iter().all(|port| nics.link(port));
        let _ = self.board.link_pin.set_state(PinState::from(both));
    }
}
