//! The front of both directions: the burst buffer, the ToS comparator and the counters that tell
//! bypassed bytes from payload.

use gradwire::codec::{BURST_LEN, LANES, VALUE_LEN};
use gradwire::profile::Profile;
use gradwire::rules::Rule;

use super::aligner::Collector;
use super::{Beat, Layout};

/// The item at the front of the burst buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// Not enough yet to say, or to go on.
    Wait,
    /// So many bytes (0..=32) that leave as they came; they are in the buffer.
    Bypass(usize),
    /// Payload of so many lanes (1..=8); how much of it is in the buffer is the coder's to ask.
    Payload(usize),
}

/// `Idle --first beat--> Open --last beat--> Ended --buffer empty--> Idle`; a refused frame goes
/// from `Open` to `Refused` until its last beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between frames.
    Idle,
    /// More beats of the frame will come.
    Open,
    /// The frame's last byte is in the buffer; the next frame waits.
    Ended,
    /// The rest of the frame is taken and thrown away.
    Refused,
}

/// Burst buffer, comparator and counters.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    buffer: Collector,
    state: State,
    /// Whose frames are coded; `None` for bare payloads.
    rule: Option<Rule>,
    /// The comparator has yet to see the frame's first burst.
    uncompared: bool,
    /// Bytes left before the first value.
    bypass: usize,
    /// Values left.
    values: usize,
    /// Bytes of payload taken out of the buffer since the frame's first beat.
    coded: usize,
}

impl Intake {
    /// An idle front that codes frames of this rule only, or all if there is none.
    pub(super) fn new(rule: Option<&Rule>) -> Self {
        Self {
            buffer: Collector::new(),
            state: State::Idle,
            rule: rule.copied(),
            uncompared: false,
            bypass: 0,
            values: 0,
            coded: 0,
        }
    }

    /// No frame is open, nothing is held.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// All that will come of the frame is in the buffer.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The bytes in the buffer, oldest first.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Bytes of payload taken out of the buffer since the frame's first beat.
    pub(super) const fn coded(&self) -> usize {
        self.coded
    }

    /// Takes a beat, if the buffer has room and holds nothing of a frame that has ended. `layout`
    /// counts on a frame's first beat.
    pub(super) fn accept(&mut self, beat: &Beat, layout: Layout) -> bool {
        if self.state == State::Idle {
            self.state = State::Open;
            self.uncompared = self.rule.is_some();
            (self.bypass, self.values, self.coded) = (layout.bypass, layout.values, 0);
        }
        match self.state {
            State::Refused if beat.last => self.state = State::Idle,
            State::Refused => {}
            State::Idle | State::Open if self.buffer.push(beat.bytes()) => {
                self.state = if beat.last { State::Ended } else { State::Open };
            }
            State::Idle | State::Open | State::Ended => return false,
        }
        true
    }

    /// Looks at the front of the buffer, once the comparator has seen the frame's first burst.
    pub(super) fn front(&mut self) -> Front {
        let held = self.bytes().len();
        let ended = match self.state {
            State::Idle | State::Refused => return Front::Wait,
            State::Open => false,
            State::Ended => true,
        };
        if self.uncompared {
            if held < BURST_LEN && !ended {
                return Front::Wait;
            }
            self.compare();
        }
        let run = match (self.values, self.bypass) {
            (0, _) => BURST_LEN,
            (_, 0) => return Front::Payload(self.values.min(LANES)),
            (_, bypass) => bypass.min(BURST_LEN),
        };
        if held >= run || ended { Front::Bypass(run.min(held)) } else { Front::Wait }
    }

    /// Clips the values where the frame has ended: no more values than there are whole ones in the
    /// buffer.
    pub(super) fn clip_values(&mut self) {
        if self.has_ended() {
            let payload = self.bytes().len().saturating_sub(self.bypass);
            self.values = self.values.min(payload / VALUE_LEN);
        }
    }

    /// Shifts out bypassed bytes; `true` if the frame is over.
    pub(super) fn pass(&mut self, len: usize) -> bool {
        self.bypass = self.bypass.saturating_sub(len);
        self.shift_out(len)
    }

    /// Shifts out the payload of so many lanes; `true` if the frame is over.
    pub(super) fn take(&mut self, len: usize, lanes: usize) -> bool {
        self.values = self.values.saturating_sub(lanes);
        self.coded = self.coded.saturating_add(len);
        self.shift_out(len)
    }

    /// Throws the rest of the frame away, also what has yet to arrive.
    pub(super) fn refuse(&mut self) {
        self.buffer.clear();
        self.state = if self.has_ended() { State::Idle } else { State::Refused };
    }

    fn shift_out(&mut self, len: usize) -> bool {
        self.buffer.shift_out(len);
        if !self.has_ended() || !self.bytes().is_empty() {
            return false;
        }
        // The frame may end before the payload begins; values that are still owed are then found
        // missing.
        self.bypass = 0;
        if self.values == 0 {
            self.state = State::Idle;
        }
        self.values == 0
    }

    /// The comparator: a frame of another type of service, or of none, has no values; nor has one
    /// for another codec.
    fn compare(&mut self) {
        self.uncompared = false;
        if let Some(rule) = self.rule
            && !(matches!(rule.profile, Profile::SizeClass(_))
                && type_of_service(self.bytes()).is_some_and(|tos| (tos ^ rule.tos) & rule.mask == 0))
        {
            self.values = 0;
        }
    }
}

/// Type of service (IPv6: traffic class) of an Ethernet II frame with at most two VLAN tags.
///
/// It is within the first 24 bytes, so the first burst always holds it.
fn type_of_service(first_burst: &[u8]) -> Option<u8> {
    let mut ethertype = first_burst.get(12..)?;
    for _ in 0..3 {
        match *ethertype {
            [0x81, 0x00, _, _, ref rest @ ..] | [0x88, 0xa8, _, _, ref rest @ ..] => ethertype = rest,
            [0x08, 0x00, _, tos, ..] => return Some(tos),
            [0x86, 0xdd, high, low, ..] => return Some(high << 4 | low >> 4),
            _ => return None,
        }
    }
    None
}
