//! The capability table: what far ends advertised on their SYNs. Ingress writes it and egress reads
//! it, perhaps in other threads.
//!
//! Ingress writes before it hands a SYN on, and egress reads when the answer leaves, which the host
//! cannot send before it has the SYN. Nobody waits: a capability that is not found was not
//! advertised.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::rules::ECN;
use crate::wire::capability::Capability;
use crate::wire::flow_key::{FlowKey, mix};

/// The SYN of the far end that a capability came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A SYN: the host's SYN-ACK acknowledges it, with all or some of its data (TCP Fast Open, RFC
    /// 7413).
    Syn {
        /// Its sequence number.
        number: u32,
        /// Bytes of its data.
        len: u16,
    },
    /// A SYN-ACK.
    Answer {
        /// Its acknowledgment number: behind the host's SYN, and perhaps behind some of the SYN's
        /// data.
        acknowledges: u32,
    },
}

impl Start {
    /// Whether the host's SYN-ACK with this acknowledgment number answers it.
    pub(crate) const fn is_answered_by(self, acknowledges: u32) -> bool {
        match self {
            Self::Syn { number, len } => acknowledges.wrapping_sub(number).wrapping_sub(1) <= len as u32,
            Self::Answer { .. } => false,
        }
    }

    /// Whether it answers the host's SYN of this sequence number, with `len` bytes of data.
    pub(crate) const fn answers(self, number: u32, len: u16) -> bool {
        match self {
            Self::Syn { .. } => false,
            Self::Answer { acknowledges } => acknowledges.wrapping_sub(number).wrapping_sub(1) <= len as u32,
        }
    }
}

/// A capability as one end of a connection advertised it on its SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The capability.
    pub capability: Capability,
    /// The type of service of its SYN, without ECN: in-place frames of this one are restored.
    pub tos: u8,
}

/// One advertisement, in four words: its SYN's number, its in-place parameters, all else, and a
/// check.
///
/// The words are written one by one, and two threads may write the same slot. So a reader may find
/// words of different advertisements, or of another connection whose hash falls on the slot. The
/// check is a keyed hash of the flow's key and of the other three words: a mix fits by chance once
/// in 2^32, and must then have the 32-bit number of the very SYN that the reader asks for. Whoever
/// does not know the seed cannot do better than chance. So nothing depends on the order in which
/// the words are seen.
#[derive(Debug)]
pub struct Slot([AtomicU32; 4]);

impl Slot {
    fn load(&self) -> [u32; 4] {
        let Self([number, in_place, rest, check]) = self;
        let check = check.load(Ordering::Acquire);
        let [number, in_place, rest] = [number, in_place, rest].map(|word| word.load(Ordering::Relaxed));
        [number, in_place, rest, check]
    }

    // The check last: who sees it sees what it stands for.
    fn store(&self, [number, in_place, rest, check]: [u32; 4]) {
        let Self(words) = self;
        words[0].store(number, Ordering::Relaxed);
        words[1].store(in_place, Ordering::Relaxed);
        words[2].store(rest, Ordering::Relaxed);
        words[3].store(check, Ordering::Release);
    }
}

/// Advertisements that share a hash: the newest of a set are found.
const WAYS: usize = 4;

/// Advertised capabilities by the key of the flow that leaves the host; `S` is an array of
/// [`Slot`]s.
///
/// Each key has a set of four slots, of which the newest advertisement takes the first: trainers
/// open many connections at once. One that lost its slot to four newer ones counts as never made,
/// and its connection goes uncompressed. An advertisement holds for the SYN that it came with:
/// another start of the same ports does not find it.
#[derive(Debug)]
pub struct CapabilityTable<S: ?Sized = [Slot]> {
    /// High and low half.
    seed: [AtomicU32; 2],
    slots: S,
}

impl<const SLOTS: usize> CapabilityTable<[Slot; SLOTS]> {
    /// An empty table; `seed` keys the hash and should be random.
    // A host's table has a megabyte: one copy fewer on the caller's stack.
    #[inline(always)]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let seed = [AtomicU32::new((seed >> 32) as u32), AtomicU32::new(seed as u32)];
        Self { seed, slots: [const { Slot([const { AtomicU32::new(0) }; 4]) }; SLOTS] }
    }
}

/// For engines none of whose rules requires a handshake.
pub static NO_CAPABILITIES: CapabilityTable<[Slot; 0]> = CapabilityTable::new(0);

impl CapabilityTable {
    /// Forgets all of them; `seed` keys the hash from now on.
    pub fn clear(&self, seed: u64) {
        let [high, low] = &self.seed;
        high.store((seed >> 32) as u32, Ordering::Relaxed);
        low.store(seed as u32, Ordering::Relaxed);
        for word in self.slots.iter().flat_map(|slot| &slot.0) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Records what the far end of the flow `key` advertised on its SYN.
    pub(crate) fn learn(&self, key: &FlowKey, start: Start, advertised: Advertisement) {
        let hash = self.hash(key);
        let words @ [number, in_place, rest] = to_words(start, advertised);
        let mut newer = [number, in_place, rest, check_of(hash, words)];
        for slot in self.set(hash) {
            let older = slot.load();
            slot.store(newer);
            if is_of(hash, older) {
                break;
            }
            newer = older;
        }
    }

    /// The last advertisement of the far end of the flow `key`, and its SYN.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<(Start, Advertisement)> {
        let hash = self.hash(key);
        let [number, in_place, rest, _] =
            self.set(hash).iter().map(Slot::load).find(|words| is_of(hash, *words))?;
        from_words([number, in_place, rest])
    }

    fn hash(&self, key: &FlowKey) -> u64 {
        let [high, low] = self.seed.each_ref().map(|half| u64::from(half.load(Ordering::Relaxed)));
        key.hash(high << 32 | low)
    }

    fn set(&self, hash: u64) -> &[Slot] {
        // The highest bits of a product know of all its factors.
        let set = ((hash >> 32) * (self.slots.len() / WAYS) as u64) >> 32;
        self.slots.chunks(WAYS).nth(set as usize).unwrap_or(&[])
    }
}

/// Whether a slot's words are an advertisement of the flow with this hash.
fn is_of(hash: u64, [number, in_place, rest, check]: [u32; 4]) -> bool {
    check == check_of(hash, [number, in_place, rest])
}

/// All of the hash's bits, and all of the words', in 32.
const fn check_of(hash: u64, [number, in_place, rest]: [u32; 3]) -> u32 {
    let words = (number as u64) << 32 | in_place as u64;
    mix(mix(hash, words), rest as u64) as u32
}

/// Parts of the third word, of which an empty slot has neither of the first two: bits 0 and 1,
/// those that ECN leaves free; the type of service; the codecs in bits 8 to 15; bits 16 and 17; the
/// length above them.
const ROUTED: u32 = 1 << 0;
const IN_PLACE: u32 = 1 << 1;
const SYN: u32 = 1 << 16;
const ANSWER: u32 = 1 << 17;
const LEN_AT: u32 = 18;
/// No SYN has more data: it would be longer than jumbo frames are.
const MAX_LEN: u16 = (1 << (32 - LEN_AT)) - 1;

const fn to_words(start: Start, Advertisement { capability, tos }: Advertisement) -> [u32; 3] {
    let (number, start) = match start {
        Start::Syn { number, len } => {
            (number, SYN | (if len < MAX_LEN { len } else { MAX_LEN } as u32) << LEN_AT)
        }
        Start::Answer { acknowledges } => (acknowledges, ANSWER),
    };
    let routed = if capability.routed() { ROUTED } else { 0 };
    let (in_place, parameters) = match capability.in_place() {
        Some(parameters) => (IN_PLACE, parameters),
        None => (0, [0; 4]),
    };
    let rest = start | (capability.codecs() as u32) << 8 | (tos & !ECN) as u32 | routed | in_place;
    [number, u32::from_be_bytes(parameters), rest]
}

fn from_words([number, in_place, rest]: [u32; 3]) -> Option<(Start, Advertisement)> {
    let start = match rest & (SYN | ANSWER) {
        SYN => Start::Syn { number, len: (rest >> LEN_AT) as u16 },
        ANSWER => Start::Answer { acknowledges: number },
        _ => return None,
    };
    let in_place = (rest & IN_PLACE != 0).then_some(in_place.to_be_bytes());
    let capability = Capability::new(rest & ROUTED != 0, (rest >> 8) as u8, in_place);
    Some((start, Advertisement { capability, tos: rest as u8 & !ECN }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SYN_5: Start = Start::Syn { number: 5, len: 0 };

    fn key(number: u64) -> FlowKey {
        FlowKey([number << 32 | !number & 0xffff_ffff, 0, 0, 0, number << 48 | 5400 << 32])
    }

    /// Every part of it says which number it belongs to.
    fn advertised(number: u32) -> Advertisement {
        let [tos, codecs, ..] = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        Advertisement {
            capability: Capability::new(true, codecs, Some(number.to_be_bytes())),
            tos: tos & !ECN,
        }
    }

    #[test]
    fn a_capability_is_found_as_it_was_recorded() {
        let capabilities: &CapabilityTable = &CapabilityTable::<[Slot; 64]>::new(7);
        assert_eq!(capabilities.find(&key(1)), None);
        for start in [SYN_5, Start::Syn { number: u32::MAX, len: 9000 }, Start::Answer { acknowledges: 6 }] {
            for advertised in
                [advertised(9), Advertisement { capability: Capability::new(false, 0xff, None), tos: 0 }]
            {
                capabilities.learn(&key(1), start, advertised);
                assert_eq!(capabilities.find(&key(1)), Some((start, advertised)));
            }
        }
        capabilities.clear(8);
        assert_eq!(capabilities.find(&key(1)), None);
    }

    #[test]
    fn a_start_is_answered_behind_its_syn_or_its_data() {
        for (number, len) in [(5, 0), (u32::MAX, 0), (u32::MAX - 3, 10)] {
            let syn = Start::Syn { number, len };
            for far in 0..30 {
                let acknowledges = number.wrapping_add(far);
                let right = (1..=1 + u32::from(len)).contains(&far);
                assert_eq!(syn.is_answered_by(acknowledges), right, "{number} {far}");
                assert_eq!(Start::Answer { acknowledges }.answers(number, len), right, "{number} {far}");
                assert!(
                    !syn.answers(number, len) && !Start::Answer { acknowledges }.is_answered_by(acknowledges)
                );
            }
        }
    }

    /// One slot: all flows fall on it, and only the newest has it.
    #[test]
    fn flows_that_share_a_slot_do_not_share_a_capability() {
        let capabilities: &CapabilityTable = &CapabilityTable::<[Slot; 1]>::new(7);
        for number in 0..1000 {
            capabilities.learn(&key(number), SYN_5, advertised(3));
            for other in (0..1000).filter(|other| *other != number) {
                assert_eq!(capabilities.find(&key(other)), None, "{number} {other}");
            }
            assert_eq!(capabilities.find(&key(number)), Some((SYN_5, advertised(3))));
        }
    }

    /// One set.
    #[test]
    fn the_newest_four_of_a_set_are_found() {
        let capabilities: &CapabilityTable = &CapabilityTable::<[Slot; 4]>::new(7);
        for number in 0..1000u32 {
            // Again, and nobody loses a slot by it.
            for codec in [3, number] {
                capabilities.learn(&key(number.into()), SYN_5, advertised(codec));
            }
            for other in 0..=number {
                let found = (other + 4 > number).then_some((SYN_5, advertised(other)));
                assert_eq!(capabilities.find(&key(other.into())), found, "{number} {other}");
            }
        }
    }

    #[test]
    fn many_connections_at_once_keep_their_capabilities() {
        let capabilities: &CapabilityTable = &CapabilityTable::<[Slot; 256]>::new(7);
        (0..32).for_each(|number| capabilities.learn(&key(number), SYN_5, advertised(3)));
        // In 64 sets: of 100 seeds, one has a set with more than four of them.
        assert!((0..32).all(|number| capabilities.find(&key(number)).is_some()));
    }

    /// A word of another advertisement makes the whole slot count as empty.
    #[test]
    fn the_check_is_of_every_bit() {
        let (hash, words) = (0x0123_4567_89ab_cdef, [5, 7, 9]);
        let check = check_of(hash, words);
        for bit in 0..64 {
            assert_ne!(check_of(hash ^ 1 << bit, words), check, "bit {bit} of the hash");
        }
        for (word, bit) in (0..3).flat_map(|word| (0..32).map(move |bit| (word, bit))) {
            let mut other = words;
            other[word] ^= 1 << bit;
            assert_ne!(check_of(hash, other), check, "bit {bit} of word {word}");
        }
    }

    /// Threads write other advertisements to the same slot all the time: a reader finds one as it
    /// was written, or none.
    #[test]
    fn a_torn_advertisement_is_not_found() {
        const WRITES: u32 = 200_000;
        let capabilities: &CapabilityTable = &CapabilityTable::<[Slot; 1]>::new(7);
        thread::scope(|scope| {
            let writers = [0, 1].map(|first| {
                scope.spawn(move || {
                    for number in (first..WRITES).step_by(2) {
                        capabilities.learn(&key(1), SYN_5, advertised(number));
                    }
                })
            });
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                if let Some((start, got)) = capabilities.find(&key(1)) {
                    let number = u32::from_be_bytes(got.capability.in_place().unwrap());
                    assert!(start == SYN_5 && number < WRITES && got == advertised(number), "{got:?}");
                }
            }
        });
        // What both wrote last may be torn for good.
        let last = [1, 2].map(|back| Some((SYN_5, advertised(WRITES - back))));
        assert!(capabilities.find(&key(1)).is_none_or(|found| last.contains(&Some(found))));
    }
}
