//! The flow table: what it learns, what it forgets, and when it stops to believe in a peer.

use gradwire::flow::trust::{BYPASS_MS, EPOCH_MS, MAX_BACKOFF, SAMPLE_LEN, TrustState};
use gradwire::flow::{Event, FlowTable, IDLE_MS, Millis, OPENING_MS, Phase, Syn, WAYS};
use gradwire::rules::Alignment;
use gradwire::verdict::PassReason;
use gradwire::wire::flow_key::FlowKey;
use proptest::prelude::*;

const MSS: u32 = 1448;
const UNIT: u32 = SAMPLE_LEN / 64;

fn key(n: u64) -> FlowKey {
    FlowKey([n, 0, 0, 0, 5400])
}

fn syn(isn: u32) -> Syn {
    Syn { isn, tagged: true, doubtful: false }
}

/// A table of one set with one open flow whose stream starts at 1.
fn open() -> FlowTable<1> {
    let mut table = FlowTable::new(0);
    table.syn(&key(0), syn(0), Millis(0)).unwrap();
    table
}

/// Sends a whole segment compressed if that is allowed.
fn send(table: &mut FlowTable<1>, seq: u32, now: u64) -> Result<(), PassReason> {
    let flow = table.find(&key(0)).ok_or(PassReason::AlignmentUnknown)?;
    let result = flow.admit(seq, MSS, Millis(now));
    if result.is_ok() {
        flow.compressed(seq, 1);
    }
    result
}

fn trust(table: &mut FlowTable<1>) -> TrustState {
    table.find(&key(0)).unwrap().trust()
}

#[test]
fn the_phases_are_this_table() {
    use Event::{DoubtfulSyn, End, FarPayload, OtherSyn, Payload, Syn};
    use Phase::{Closed, Doubtful, Open, Opening, Vacant};
    let table = [
        (Vacant, [Opening, Opening, Doubtful, Vacant, Vacant, Vacant]),
        (Opening, [Opening, Doubtful, Doubtful, Open, Doubtful, Closed]),
        (Open, [Open, Doubtful, Doubtful, Open, Open, Closed]),
        (Doubtful, [Doubtful, Doubtful, Doubtful, Doubtful, Doubtful, Closed]),
        (Closed, [Closed, Opening, Doubtful, Closed, Closed, Closed]),
    ];
    for (phase, expected) in table {
        assert_eq!(
            [Syn, OtherSyn, DoubtfulSyn, Payload, FarPayload, End].map(|event| phase.next(event)),
            expected,
            "{phase:?}"
        );
    }
}

#[test]
fn values_start_behind_the_syn_across_the_wrap() {
    for isn in [0, 1, u32::MAX, u32::MAX - 1, 0x8000_0000] {
        let mut table = FlowTable::<1>::new(0);
        table.syn(&key(0), syn(isn), Millis(0)).unwrap();
        let flow = table.find(&key(0)).unwrap();
        for sent in 0..20u32 {
            let seq = isn.wrapping_add(1).wrapping_add(sent);
            let head_len = (4 - sent as usize % 4) % 4;
            assert_eq!(flow.head_len(seq, Alignment::Connection), Ok(head_len));
            let aligned = if head_len == 0 { Ok(0) } else { Err(PassReason::Misaligned) };
            assert_eq!(flow.head_len(seq, Alignment::Payload), aligned);
        }
    }
}

#[test]
fn only_what_was_not_sent_before_is_compressed() {
    let mut table = open();
    let half_wrap = 1u32.wrapping_sub(MSS); // behind the start of the stream
    assert_eq!(send(&mut table, 1, 0), Ok(()));
    assert_eq!(send(&mut table, 1, 0), Err(PassReason::Resent));
    assert_eq!(send(&mut table, 1 + MSS, 0), Ok(()));
    // Cut otherwise: partly new, but not only.
    assert_eq!(send(&mut table, 1 + MSS + 4, 0), Err(PassReason::Resent));
    assert_eq!(send(&mut table, 1 + 2 * MSS, 0), Err(PassReason::Resent));
    assert_eq!(send(&mut table, 1 + 2 * MSS + 4, 0), Err(PassReason::Resent));
    assert_eq!(send(&mut table, 1 + 3 * MSS + 4, 0), Ok(()));
    assert_eq!(send(&mut table, half_wrap, 0), Err(PassReason::Resent));
}

#[test]
fn a_flow_without_a_start_is_found_again() {
    let mut table = FlowTable::<1>::new(0);
    for n in 0..3 {
        assert_eq!(table.find_or_open(&key(n), Millis(n)).unwrap().phase(), Phase::Opening);
    }
    let found: Vec<_> = table.iter().map(|(key, _)| *key).collect();
    assert_eq!(found, [key(0), key(1), key(2)]);
    assert!(table.find(&key(2)).is_some() && table.find(&key(3)).is_none());
    // They are tagged, so they keep their places for a while.
    for n in 3..WAYS as u64 {
        assert!(table.find_or_open(&key(n), Millis(n)).is_ok());
    }
    assert_eq!(table.find_or_open(&key(100), Millis(OPENING_MS - 1)).err(), Some(PassReason::TableFull));
}

#[test]
fn sequence_numbers_wrap() {
    let mut table = FlowTable::<1>::new(0);
    let start = 0u32.wrapping_sub(10 * MSS);
    table.syn(&key(0), syn(start.wrapping_sub(1)), Millis(0)).unwrap();
    for segment in 0..20 {
        assert_eq!(send(&mut table, start.wrapping_add(segment * MSS), 0), Ok(()));
    }
    assert_eq!(send(&mut table, start.wrapping_add(9 * MSS), 0), Err(PassReason::Resent));
}

#[test]
fn a_second_start_raises_doubt_until_the_connection_ends() {
    let mut table = open();
    assert_eq!(send(&mut table, 1, 0), Ok(()));
    table.syn(&key(0), syn(0), Millis(0)).unwrap(); // the same SYN, doubled
    assert_eq!(send(&mut table, 1 + MSS, 0), Ok(()));
    table.syn(&key(0), syn(2), Millis(0)).unwrap();
    assert_eq!(send(&mut table, 1 + 2 * MSS, 0), Err(PassReason::AlignmentDoubtful));
    table.find(&key(0)).unwrap().end(1 + 3 * MSS);
    assert_eq!(send(&mut table, 1 + 3 * MSS, 0), Err(PassReason::AlignmentUnknown));
    // Behind it, only a start beyond what was sent is certainly another connection's.
    table.syn(&key(0), syn(3 * MSS), Millis(0)).unwrap();
    assert_eq!(send(&mut table, 1 + 3 * MSS, 0), Err(PassReason::AlignmentDoubtful));
    table.find(&key(0)).unwrap().end(1 + 4 * MSS);
    table.syn(&key(0), syn(1 + 4 * MSS), Millis(0)).unwrap();
    assert_eq!(send(&mut table, 2 + 4 * MSS, 0), Ok(()));
    // A SYN that cannot be relied on is never followed by compression.
    table.syn(&key(0), Syn { doubtful: true, ..syn(1 + 4 * MSS) }, Millis(0)).unwrap();
    assert_eq!(send(&mut table, 2 + 5 * MSS, 0), Err(PassReason::AlignmentDoubtful));
}

#[test]
fn a_live_flow_never_loses_its_place() {
    let mut table = FlowTable::<1>::new(0);
    for n in 0..WAYS as u64 {
        table.syn(&key(n), syn(9), Millis(n)).unwrap();
        table.find(&key(n)).unwrap().admit(10, MSS, Millis(n)).unwrap();
    }
    let newcomer = key(100);
    assert_eq!(table.syn(&newcomer, syn(1), Millis(IDLE_MS - 1)).map(drop), Err(PassReason::TableFull));
    assert!((0..WAYS as u64).all(|n| table.find(&key(n)).is_some()));
    // Idle for long enough: the one seen longest ago goes.
    assert_eq!(table.syn(&newcomer, syn(1), Millis(IDLE_MS + 1)).map(drop), Ok(()));
    assert!(table.find(&key(0)).is_none() && table.find(&key(1)).is_some());
    // Ended: it goes before any that is idle.
    table.find(&key(5)).unwrap().end(10 + MSS);
    assert_eq!(table.syn(&key(101), syn(1), Millis(IDLE_MS - 1)).map(drop), Ok(()));
    assert!(table.find(&key(5)).is_none());
}

#[test]
fn an_ended_flow_is_remembered_while_there_is_room() {
    let mut table = FlowTable::<1>::new(0);
    table.syn(&key(0), syn(9), Millis(0)).unwrap();
    table.find(&key(0)).unwrap().end(10);
    for n in 1..WAYS as u64 {
        table.syn(&key(n), syn(9), Millis(n)).unwrap();
        assert_eq!(table.find(&key(0)).map(|flow| flow.phase()), Some(Phase::Closed));
    }
    table.syn(&key(100), syn(9), Millis(100)).unwrap();
    assert!(table.find(&key(0)).is_none());
}

#[test]
fn connections_without_a_tag_make_way() {
    let mut table = FlowTable::<1>::new(0);
    for n in 0..1000 {
        table.syn(&key(n), Syn { tagged: false, ..syn(9) }, Millis(n)).unwrap();
    }
    assert_eq!(table.iter().count(), WAYS);
    // One of the latest, tagged late, is still known; then it keeps its place.
    table.find(&key(998)).unwrap().admit(10, MSS, Millis(1000)).unwrap();
    for n in 1000..2000 {
        table.syn(&key(n), Syn { tagged: false, ..syn(9) }, Millis(n)).unwrap();
    }
    assert!(table.find(&key(998)).is_some());
}

#[test]
fn tagged_syns_without_payload_make_way_after_a_while() {
    let mut table = FlowTable::<1>::new(0);
    for n in 0..WAYS as u64 {
        table.syn(&key(n), syn(9), Millis(0)).unwrap();
    }
    assert_eq!(table.syn(&key(50), syn(9), Millis(OPENING_MS - 1)).map(drop), Err(PassReason::TableFull));
    assert_eq!(table.syn(&key(50), syn(9), Millis(OPENING_MS)).map(drop), Ok(()));
}

/// A flood makes a listener answer twice on the same ports: no more of a connection than one
/// answer.
#[test]
fn doubt_without_payload_makes_way_after_a_while() {
    let mut table = FlowTable::<1>::new(0);
    for n in 0..WAYS as u64 {
        table.syn(&key(n), syn(9), Millis(0)).unwrap();
        table.syn(&key(n), syn(8), Millis(0)).unwrap();
    }
    // One is a connection.
    assert_eq!(table.find(&key(0)).unwrap().admit(10, MSS, Millis(0)), Err(PassReason::AlignmentDoubtful));
    assert_eq!(table.syn(&key(50), syn(9), Millis(OPENING_MS - 1)).map(drop), Err(PassReason::TableFull));
    for n in 50..50 + WAYS as u64 - 1 {
        assert_eq!(table.syn(&key(n), syn(9), Millis(OPENING_MS)).map(drop), Ok(()));
    }
    assert_eq!(table.syn(&key(100), syn(9), Millis(OPENING_MS)).map(drop), Err(PassReason::TableFull));
    assert!(table.find(&key(0)).is_some());
}

/// Sends `count` new segments, then all of them again.
fn refuse(table: &mut FlowTable<1>, from: u32, count: u32, now: u64) -> u32 {
    for segment in 0..count {
        let _ = send(table, from + segment * MSS, now);
    }
    for segment in 0..count {
        assert_eq!(send(table, from + segment * MSS, now), Err(PassReason::Resent));
    }
    from + count * MSS
}

#[test]
fn a_refusing_peer_is_bypassed_for_twice_as_long_each_time() {
    let mut table = open();
    let mut seq = refuse(&mut table, 1, 20, 0);
    let mut now = 0;
    for round in 0..u32::from(MAX_BACKOFF) + 3 {
        assert_eq!(trust(&mut table), TrustState::Bypassed, "round {round}");
        let wait = BYPASS_MS << round.min(MAX_BACKOFF.into());
        assert_eq!(send(&mut table, seq, now + wait - 1), Err(PassReason::Bypassed));
        now += wait;
        seq = refuse(&mut table, seq + MSS, 20, now);
    }
}

#[test]
fn a_probe_is_one_sample_and_ends_in_trust() {
    let mut table = open();
    let mut seq = refuse(&mut table, 1, 20, 0);
    let mut compressed = 0;
    for _ in 0..200 {
        compressed += u32::from(send(&mut table, seq, BYPASS_MS).is_ok());
        seq += MSS;
    }
    assert_eq!(trust(&mut table), TrustState::Probing);
    assert_eq!(compressed, SAMPLE_LEN.div_ceil(MSS));
    assert_eq!(send(&mut table, seq, BYPASS_MS + EPOCH_MS), Ok(()));
    assert_eq!(trust(&mut table), TrustState::Trusted);
    // The next bypass is a first one again.
    refuse(&mut table, seq + MSS, 20, BYPASS_MS + EPOCH_MS);
    assert_eq!(trust(&mut table), TrustState::Bypassed);
    let seq = seq + 21 * MSS;
    assert_eq!(send(&mut table, seq, BYPASS_MS + EPOCH_MS + BYPASS_MS), Ok(()));
}

/// Twelve units that were sent compressed, and none of them again, are worth an epoch's decision;
/// eleven are not.
#[test]
fn a_probe_of_few_segments_proves_nothing() {
    for (segments, decided) in [(11, TrustState::Probing), (12, TrustState::Trusted)] {
        let mut table = open();
        let seq = refuse(&mut table, 1, 20, 0);
        for segment in 0..segments {
            assert_eq!(send(&mut table, seq + segment * UNIT, BYPASS_MS), Ok(()));
        }
        assert_eq!(trust(&mut table), TrustState::Probing);
        assert_eq!(send(&mut table, seq + SAMPLE_LEN, BYPASS_MS + EPOCH_MS), Ok(()));
        assert_eq!(trust(&mut table), decided, "{segments} segments");
    }
}

/// Three quarters of all segments lost, some of them again and again: no peer that restores
/// nothing.
#[test]
fn heavy_loss_is_not_a_refusal() {
    let mut table = open();
    let mut seq = 1;
    for round in 0..3000u64 {
        assert_ne!(send(&mut table, seq, round), Err(PassReason::Bypassed), "round {round}");
        if round % 4 != 0 {
            for _ in 0..round % 5 {
                assert_eq!(send(&mut table, seq, round), Err(PassReason::Resent));
            }
        }
        seq += MSS;
    }
    assert_eq!(trust(&mut table), TrustState::Trusted);
}

/// Segments that went untouched say nothing about the peer when they are sent again.
#[test]
fn only_what_was_compressed_is_evidence() {
    let mut table = open();
    for segment in 0..2000u32 {
        let seq = 1 + segment * 2 * UNIT;
        let flow = table.find(&key(0)).unwrap();
        assert_eq!(flow.admit(seq, UNIT, Millis(0)), Ok(()));
        flow.compressed(seq, 1);
        assert_eq!(flow.admit(seq + UNIT, UNIT, Millis(0)), Ok(()));
        assert_eq!(flow.admit(seq + UNIT, UNIT, Millis(0)), Err(PassReason::Resent));
    }
    assert_eq!(trust(&mut table), TrustState::Trusted);
}

/// An epoch ends: what a healthy peer did long ago does not excuse it now.
#[test]
fn a_peer_that_fails_late_is_noticed() {
    let mut table = open();
    let mut seq = 1;
    for round in 0..10_000u64 {
        assert_eq!(send(&mut table, seq, round), Ok(()));
        seq += MSS;
    }
    let now = 10_000 + EPOCH_MS;
    refuse(&mut table, seq, 40, now);
    assert_eq!(trust(&mut table), TrustState::Bypassed);
}

#[test]
fn a_clock_that_goes_back_does_not_prolong_a_bypass() {
    let mut table = open();
    let seq = refuse(&mut table, 1, 20, u64::MAX / 2);
    assert_eq!(send(&mut table, seq, 5), Err(PassReason::Bypassed));
    assert_eq!(send(&mut table, seq + MSS, 5 + BYPASS_MS), Ok(()));
}

proptest! {
    /// Whatever happens: a byte is compressed at most once in a flow's life, unless it began anew.
    #[test]
    fn no_byte_is_compressed_twice(
        events in prop::collection::vec((0u32..40, 1u32..3000, any::<u64>()), 1..200), isn: u32,
    ) {
        let mut table = FlowTable::<1>::new(0);
        table.syn(&key(0), syn(isn), Millis(0)).unwrap();
        let mut highest: Option<u32> = None;
        for (step, len, now) in events {
            let offset = step * 1000;
            let seq = isn.wrapping_add(1).wrapping_add(offset);
            let flow = table.find(&key(0)).unwrap();
            if flow.admit(seq, len, Millis(now)).is_ok() {
                flow.compressed(seq, 1);
                prop_assert!(highest.is_none_or(|highest| offset >= highest));
            }
            highest = highest.max(Some(offset + len));
        }
    }
}

/// Whatever differs between connections: source port, destination port, an address, a VLAN.
#[test]
fn connections_spread_over_the_table() {
    const FLOWS: u64 = 256;
    let shapes: [fn(u64) -> [u64; 5]; 8] = [
        |flow| [0x0a4d_0001_0a4d_0002, 0, 0, 0, (flow + 40_000) << 48 | 5400 << 32],
        // Linux connects from every other port.
        |flow| [0x0a4d_0001_0a4d_0002, 0, 0, 0, (2 * flow + 40_000) << 48 | 5400 << 32],
        |flow| [0x0a4d_0001_0a4d_0002, 0, 0, 0, (32 * flow + 2_000) << 48 | 5400 << 32],
        |flow| [0x0a4d_0001_0a4d_0002, 0, 0, 0, 40_000 << 48 | (flow + 5_400) << 32],
        |flow| [(0x0a4d_0001 + flow) << 32 | 0x0a4d_0002, 0, 0, 0, 40_000 << 48 | 5400 << 32],
        |flow| [0x0a4d_0001 << 32 | (0x0a4d_0002 + flow), 0, 0, 0, 40_000 << 48 | 5400 << 32],
        |flow| [0xfd77 << 48, 1 + (flow << 56), 0xfd77 << 48, 2, 40_000 << 48 | 5400 << 32 | 1],
        |flow| [0x0a4d_0001_0a4d_0002, 0, 0, 0, 40_000 << 48 | 5400 << 32 | (flow << 8)],
    ];
    for (shape, key) in shapes.iter().enumerate() {
        for seed in 0..8 {
            // Half full, if spread evenly.
            let mut table = FlowTable::<64>::new(seed);
            let syn = Syn { isn: 1, tagged: true, doubtful: false };
            let known =
                (0..FLOWS).filter(|flow| table.syn(&FlowKey(key(*flow)), syn, Millis(0)).is_ok()).count();
            assert!(known as u64 > FLOWS * 19 / 20, "shape {shape}, seed {seed}: room for {known}");
        }
    }
}
