//! An aggregator (docs/aggregation-protocol.md), in place of the engines: an image of its own, on
//! the same boards.
//!
//! Workers are behind the network's NIC. Frames that come from the host's are not looked at.

use core::net::Ipv4Addr;

use embedded_io::{Read, ReadReady, Write, WriteReady};
use gradwire::aggregate::{Arrival, EthernetAggregator, Outcome, Peer, Settings};
use gradwire::engine::Millis;
use gradwire::forward::{Buffer as _, Device, Port};
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::Limits;
use heapless::String;

use crate::board::{Board, Chip, Nics as _};
use crate::console::PROMPT;
use crate::{BUDGET, MTU, progress};

/// One job, whose workers have 4 chunks of 1024 values under way: 36 KB of slots, each chunk having
/// two.
pub type SoftAggregator = EthernetAggregator<1, 8, 8>;

/// The aggregator's MAC address: a local one.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The aggregator's address.
pub const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// The kernel that adds.
pub const KERNEL: Kernel = Kernel::SCALAR32;
/// The limits that it agrees to.
pub const LIMITS: Limits = Limits { blocks: 8, window: 4, mtu: MTU };

/// Its settings. Each worker gets a copy of each result. The `seed` is the board's.
#[must_use]
pub const fn settings(seed: u64) -> Settings<Peer> {
    Settings { kernel: KERNEL, limits: LIMITS, group: None, parent: None, secret: [seed, !seed] }
}

/// The tasks of an image beside summing: `()` is nothing.
pub trait Beside<C: Chip> {
    /// Gives back a frame that is for the aggregator, and keeps any other.
    fn receive(&mut self, frame: BufferOf<C>, _nics: &mut C::Nics) -> Option<BufferOf<C>> {
        Some(frame)
    }

    /// The aggregator has sent a frame.
    fn sent(&mut self) {}

    /// A bounded piece of work, after the aggregator's; whether there is more to do at once.
    fn step(&mut self, _board: &mut Board<C>, _aggregator: &SoftAggregator, _now: Millis) -> bool {
        false
    }
}

impl<C: Chip> Beside<C> for () {}

type BufferOf<C> = <<C as Chip>::Nics as Device>::Buffer;

/// The main loop of the aggregator.
pub struct AggregatorFirmware<C: Chip, B = ()> {
    board: Board<C>,
    aggregator: &'static mut SoftAggregator,
    /// A frame that found no room at the NIC.
    held: Option<BufferOf<C>>,
    report: CountsReport,
    beside: B,
}

impl<C: Chip, B: Beside<C>> AggregatorFirmware<C, B> {
    /// A loop that asks for Enter on the serial line.
    pub fn new(board: Board<C>, aggregator: &'static mut SoftAggregator, beside: B) -> Self {
        Self { board, aggregator, held: None, report: CountsReport::new(), beside }
    }

    /// One turn: a bounded number of frames, each with its answers, and a piece of everything else.
    pub fn step(&mut self) {
        let now = self.board.chip.now();
        let mut frames = 0;
        // What is not sent is lost with the next frame. So the next one waits, and its sender with
        // it.
        while self.send()
            && frames < BUDGET
            && let Some(frame) = self.board.nics.receive(Port::Network)
        {
            if let Some(frame) = self.beside.receive(frame, &mut self.board.nics) {
                self.aggregator.process(frame.frame(), now);
                self.board.nics.release(frame);
            }
            self.board.nics.service();
            frames += 1;
        }
        let Self { board, aggregator, held, report, beside } = self;
        // Nobody sends anything there, but its receiver must not run full.
        for _ in 0..BUDGET {
            if let Some(frame) = board.nics.receive(Port::Host) {
                board.nics.release(frame);
            }
        }
        board.nics.service();
        progress::count(frames, now);
        board.chip.feed_watchdog();
        let is_answering = report.poll(&mut board.serial, aggregator);
        // The aggregator comes first: while it waits for room at the NIC, nothing else takes any.
        let is_busy = held.is_none() && beside.step(board, aggregator, now);
        if frames == 0 && held.is_none() && !is_answering && !is_busy {
            board.chip.idle();
        }
    }

    /// Sends what the aggregator has to say; whether that was all.
    fn send(&mut self) -> bool {
        let Self { board, aggregator, held, beside, .. } = self;
        let nics = &mut board.nics;
        let is_all = loop {
            let frame = match held.take() {
                Some(frame) => frame,
                None => {
                    let Some(mut frame) = nics.take() else { break false };
                    let Some(len) = aggregator.emit(frame.room()) else {
                        nics.release(frame);
                        break true;
                    };
                    frame.set_len(len);
                    frame
                }
            };
            if let Err(frame) = nics.transmit(Port::Network, frame) {
                *held = Some(frame);
                break false;
            }
            beside.sent();
        };
        nics.kick(Port::Network);
        is_all
    }
}

/// Writes all counts that are not zero when somebody presses Enter, a piece at a time.
#[derive(Debug)]
struct CountsReport {
    line: String<96>,
    /// Bytes of the line that are written.
    written: usize,
    /// The next count of an answer under way.
    next: Option<usize>,
}

impl CountsReport {
    fn new() -> Self {
        let mut line = String::new();
        for (before, octet) in ["gradwire aggregator ", ".", ".", "."].into_iter().zip(IP.octets()) {
            push(&mut line, before);
            push_number(&mut line, octet.into());
        }
        push(&mut line, ": Enter shows counts\r\n");
        push(&mut line, PROMPT);
        Self { line, written: 0, next: None }
    }

    /// Reads and writes a bounded piece; whether an answer is under way.
    fn poll<S: Read + ReadReady + Write + WriteReady>(
        &mut self,
        serial: &mut S,
        aggregator: &SoftAggregator,
    ) -> bool {
        if let Some(rest) = self.line.as_bytes().get(self.written..)
            && !rest.is_empty()
        {
            if matches!(serial.write_ready(), Ok(true)) {
                self.written += serial.write(rest).unwrap_or(0);
            }
            return true;
        }
        if let Some(number) = self.next {
            self.line.clear();
            self.written = 0;
            self.next = Some(number + 1);
            if write_count(&mut self.line, aggregator, number).is_none() {
                self.next = None;
                push(&mut self.line, PROMPT);
            }
            return true;
        }
        let mut byte = [0];
        if matches!(serial.read_ready(), Ok(true))
            && matches!(serial.read(&mut byte), Ok(1))
            && byte == *b"\r"
        {
            self.next = Some(0);
        }
        self.next.is_some()
    }
}

/// A line has room for the longest name and number.
fn push(line: &mut String<96>, text: &str) {
    let _ = line.push_str(text);
}

/// In decimal. `core::fmt` calls through tables, which a bound on the stack can hardly see through.
fn push_number(line: &mut String<96>, number: u64) {
    let mut unit = 1u64;
    while number / 10 >= unit {
        unit = unit.wrapping_mul(10);
    }
    // Behind the last digit, the unit is 0.
    while let Some(digits) = number.checked_div(unit) {
        let _ = line.push(char::from(b'0' + (digits % 10) as u8));
        unit /= 10;
    }
}

/// Writes the line of a count, or nothing if the count is zero; None behind the last one.
pub(crate) fn write_count(line: &mut String<96>, aggregator: &SoftAggregator, number: usize) -> Option<()> {
    let (of, name, count) = count(aggregator, number)?;
    if count != 0 {
        for word in [of, " ", name, " "] {
            push(line, word);
        }
        push_number(line, count);
        push(line, "\r\n");
    }
    Some(())
}

/// The subject of a count, its name, and the count; None behind the last one.
fn count(aggregator: &SoftAggregator, number: usize) -> Option<(&'static str, &'static str, u64)> {
    if let Some(arrival) = Arrival::ALL.get(number) {
        return Some(("frame", arrival.name(), aggregator.count(*arrival)));
    }
    let outcome = Outcome::ALL.get(number - Arrival::ALL.len())?;
    Some(("datagram", outcome.name(), aggregator.engine.count(*outcome)))
}
