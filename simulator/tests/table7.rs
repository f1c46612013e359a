//! HiPress' Table 7: what Eq. 1 and 2 say, solved by hand, and what no costs can make them say.

use gradwire_simulator::planner::table7::{Pair, costs, rows, thresholds};
use proptest::{prop_assert, proptest};

const MB: f64 = 1_048_576.0;
/// Latency, and bytes a second, of sending; seconds and bytes a second of encoding and decoding.
const SEND: (f64, f64) = (11.7e-6, 10.7e9);
const ENCODE: (f64, f64) = (50e-6, 59e9);
const DECODE: (f64, f64) = (3.8e-6, 15.3e9);
const R: f64 = 1.0 / 32.0;

/// As the paper prints it: MB, and the tuples of PS with 4 and 16 ranks, and of the ring.
const PRINTED: [(u64, [(bool, u32); 4]); 3] = [
    (4, [(true, 2), (true, 1), (true, 1), (false, 16)]),
    (16, [(true, 4), (true, 6), (true, 4), (true, 5)]),
    (392, [(true, 12), (true, 16), (true, 4), (true, 16)]),
];

/// Servers in K parts take K E + X / K + ..., which is least where K (K - 1) <= X / E <= K (K + 1).
fn servers_parts(bytes: f64, n: f64) -> f64 {
    let x = R * bytes * (2.0 * (n - 1.0) / SEND.1 + n / DECODE.1);
    let best = |k: &f64| k * (k - 1.0) <= x / ENCODE.0 && x / ENCODE.0 < k * (k + 1.0);
    (1..1000).map(f64::from).find(best).unwrap().min(n)
}

/// Seconds of Eq. 2.
fn compressed(bytes: f64, n: f64, k: f64, encodings: f64) -> f64 {
    let line = |(fixed, rate): (f64, f64), bytes: f64| fixed + bytes / rate;
    let part = bytes / k;
    2.0 * (n - 1.0) * line(SEND, R * part) + encodings * line(ENCODE, part) + n * line(DECODE, R * part)
}

#[test]
fn rows_are_eq_1_and_2_by_hand() {
    let ours = rows(&costs());
    assert_eq!(ours.len(), 12);
    for (row, (megabytes, at)) in ours.iter().zip(PRINTED.iter().flat_map(|row| (0..4).map(|at| (row.0, at))))
    {
        let n = [4.0, 16.0, 4.0, 16.0][at];
        let (compress, partitions) = PRINTED.iter().find(|row| row.0 == megabytes).unwrap().1[at];
        assert_eq!((row.megabytes, row.strategy), (megabytes, ["PS", "PS", "Ring", "Ring"][at]));
        assert_eq!((f64::from(row.ranks), row.published), (n, Pair { compress, partitions }), "{row:?}");
        let bytes = megabytes as f64 * MB;
        let plain = 2.0 * (n - 1.0) * (SEND.0 + bytes / n / SEND.1);
        let (k, encodings) = if at < 2 { (servers_parts(bytes, n), servers_parts(bytes, n)) } else { (n, n) };
        let pays = compressed(bytes, n, k, encodings) < plain;
        let expected = Pair { compress: pays, partitions: if pays { k as u32 } else { n as u32 } };
        assert_eq!(row.ours, expected, "{row:?}");
        assert_eq!(row.why.is_some(), row.ours.partitions != row.published.partitions, "{row:?}");
    }
    // All decisions, and the partitions that no proof below excludes.
    assert!(ours.iter().all(|row| row.ours.compress == row.published.compress));
    let partitions: Vec<bool> = ours.iter().map(|row| row.why.is_none()).collect();
    let [yes, no] = [true, false];
    assert_eq!(partitions, [yes, no, no, yes, no, yes, yes, no, no, yes, yes, yes]);
}

/// A ring in N parts, and servers in K: where the fixed costs are what the bytes save.
#[test]
fn thresholds_are_eq_1_and_2_by_hand() {
    let saved = |n: f64, k: f64| {
        let a = 2.0 * (n - 1.0);
        a / n / SEND.1 - R / k * (a / SEND.1 + n / DECODE.1)
    };
    let ring = |n: f64| n * (ENCODE.0 + DECODE.0) / (saved(n, n) - 1.0 / ENCODE.1);
    let servers = |n: f64| {
        let border = |k: f64| (k * ENCODE.0 + n * DECODE.0) / (saved(n, k) - 1.0 / ENCODE.1);
        (1..=n as u32).map(|k| border(k.into())).filter(|border| *border > 0.0).fold(f64::INFINITY, f64::min)
    };
    let expected = [servers(4.0), servers(16.0), ring(4.0), ring(16.0)];
    for (ours, expected) in thresholds(&costs()).iter().zip(expected) {
        assert!((ours.ours * MB - expected).abs() <= 2.0, "{ours:?}, expected {expected}");
        assert!(ours.reproduces(), "{ours:?}");
    }
    let printed: Vec<(u64, u64)> = thresholds(&costs()).iter().map(|row| (row.above, row.up_to)).collect();
    assert_eq!(printed, [(0, 4), (0, 4), (0, 4), (4, 16)]);
}

/// The costs of whole and halved, of which more bytes never take less.
fn sum(n: f64, k: f64, [send, encode, decode]: [f64; 3]) -> f64 {
    2.0 * (n - 1.0) * send + k * encode + n * decode
}

proptest! {
    /// From one part to two, 4 ranks gain 6 S + 4 D and pay E, 16 ranks gain 30 S + 16 D and pay
    /// the same, where S and D are what half of the bytes take less.
    #[test]
    fn servers_are_not_in_two_parts_among_4_ranks_and_in_one_among_16(
        (send, less_send) in (0.0..1.0, 0.0..1.0),
        (encode, encode_half) in (0.0..10.0, 0.0..10.0),
        (decode, less_decode) in (0.0..1.0, 0.0..1.0),
    ) {
        let whole = [send + less_send, encode, decode + less_decode];
        let half = [send, encode_half, decode];
        let two_are_better = |n| sum(n, 2.0, half) < sum(n, 1.0, whole) - 1e-9;
        prop_assert!(!two_are_better(4.0) || two_are_better(16.0));
    }

    /// By fixed costs and rates, X / E among 16 ranks is four times that among 4 at least: 4 parts
    /// want 12, so 48, and 6 parts have 42 at most.
    #[test]
    fn servers_are_not_in_four_parts_among_4_ranks_and_in_six_among_16(
        (send, decode) in (0.0..1e3, 0.0..1e3),
    ) {
        let [few, many] = [4.0, 16.0].map(|n: f64| 2.0 * (n - 1.0) * send + n * decode);
        prop_assert!(many >= 4.0 * few && (few < 12.0 || many > 42.0));
    }

    /// All terms of a ring are of parts, and their numbers do not depend on K.
    #[test]
    fn a_ring_is_never_better_in_fewer_parts(
        (bytes, n, fewer) in (1.0..1e9, 2_u32..64, 1_u32..64),
    ) {
        let n = f64::from(n);
        prop_assert!(compressed(bytes, n, n, n) <= compressed(bytes, n, n.min(fewer.into()), n));
    }

    /// Three batches of four parts of a twelfth have the bytes of four parts of a quarter, and
    /// three times their fixed costs.
    #[test]
    fn batches_never_take_less(bytes in 1.0..1e9) {
        let batches = 3.0 * compressed(bytes / 3.0, 4.0, 4.0, 4.0);
        prop_assert!(batches >= compressed(bytes, 4.0, 4.0, 4.0));
    }
}
