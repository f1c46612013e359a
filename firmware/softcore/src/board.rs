//! The parts of a board. A port makes a [`Board`] and nothing else; docs/firmware.md says how to
//! bring one up.

use embedded_hal::delay::DelayNs;
use embedded_hal::digital::OutputPin;
use embedded_io::{Read, ReadReady, Write, WriteReady};
use gradwire::engine::Millis;
use gradwire::forward::{Device, Port};

/// The types of a board's parts, and what belongs to none of them.
pub trait Chip {
    /// Both NICs, and the buffers between them.
    type Nics: Nics;
    /// The line with console and logs. It is written to and read from only if it says that it is
    /// ready.
    type Serial: Read + ReadReady + Write + WriteReady;
    /// Waits before a restart, for the last words to leave the serial line.
    type Delay: DelayNs;
    /// Indicators; [`NoPin`] if there are none.
    type Pin: OutputPin;

    /// Milliseconds since the start.
    fn now(&mut self) -> Millis;

    /// A number that a sender of frames cannot guess, as good as the board has one.
    fn seed(&mut self) -> u64;

    /// Tells the watchdog that the main loop runs: called in every turn, the longest apart by
    /// [`IDLE_MS`] and the work of one batch each way.
    fn feed_watchdog(&mut self);

    /// Waits until a NIC or the serial line has something, at most [`IDLE_MS`]; may return at once.
    /// Must not lose what arrived after [`Nics::service`] looked last.
    fn idle(&mut self);

    /// Starts anew.
    fn reset(&mut self) -> !;
}

/// A board: two NICs, a serial line, a delay, indicators.
pub struct Board<C: Chip> {
    /// Both NICs.
    pub nics: C::Nics,
    /// Console and logs.
    pub serial: C::Serial,
    /// Waits.
    pub delay: C::Delay,
    /// High while both links are up.
    pub link_pin: C::Pin,
    /// Changes with traffic.
    pub traffic_pin: C::Pin,
    /// The rest.
    pub chip: C,
}

/// The longest that a board may idle.
pub const IDLE_MS: u32 = 10;

/// Two NICs as `gradwire`'s forwarding loop takes them, and what else the firmware wants to know of
/// them.
pub trait Nics: Device<Port = Port> {
    /// Does what is to be done between batches: gives the receiver free buffers, looks after the
    /// links.
    fn service(&mut self);

    /// Whether a port has a link.
    fn link(&self, port: Port) -> bool;

    /// Faults at a port.
    fn faults(&self, port: Port) -> Faults;

    /// Sets those counts to zero.
    fn clear_faults(&mut self);
}

/// Faults at a NIC; counts wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(test), derive(defmt::Format))]
pub struct Faults {
    /// Times that the receiver had no buffer left: frames were lost, or waited.
    pub overruns: u32,
    /// Frames longer than the MTU and link headers: dropped.
    pub oversize: u32,
    /// Frames shorter than an Ethernet header: dropped.
    pub runts: u32,
    /// Things a NIC must not do, as its driver found.
    pub violations: u32,
    /// Times that the link went.
    pub links_lost: u32,
}

/// A pin that is not there.
#[derive(Debug)]
pub struct NoPin;

impl embedded_hal::digital::ErrorType for NoPin {
    type Error = core::convert::Infallible;
}

impl OutputPin for NoPin {
    fn set_low(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
