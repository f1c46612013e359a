//! HiPress' Table 7: which gradients CompLL-onebit compresses, in how many partitions, and what
//! Eq. 1 and 2 say.
//!
//! The paper has the link (100 Gbit/s), the rate (one bit of 32) and the factors of Eq. 1 and 2,
//! but neither the latency nor what onebit takes on its GPUs. [`costs`] are constants with which
//! all decisions of the table come out, and as many of its partitions as can.

use serde::Serialize;

use super::Planner;
use super::casync::Strategy;
use super::cost_profile::{CodecCosts, CostProfile};
use super::curve::Curve;

/// Bytes of the table's MB.
const MB: u64 = 1 << 20;

/// Send: 11.7 us a message, and 86 % of 100 Gbit/s. Encode: 50 us and 59 GB/s of values. Decode:
/// 3.8 us and 15.3 GB/s of compressed bytes.
#[must_use]
pub fn costs() -> CostProfile {
    let codec = CodecCosts {
        name: "onebit".into(),
        bound: None,
        lost: 1.0,
        ratio: 32.0,
        encode: Curve::affine(50e-6, 59e9),
        decode: Curve::affine(3.8e-6, 15.3e9),
    };
    CostProfile { send: Curve::affine(11.7e-6, 10.7e9), compute: None, codecs: vec![codec] }
}

/// Whether to compress, and partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Whether to compress.
    pub compress: bool,
    /// K.
    pub partitions: u32,
}

/// A tuple of the table beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of the gradient, in MB of 2^20.
    pub megabytes: u64,
    /// CaSync-PS or CaSync-Ring.
    pub strategy: &'static str,
    /// N.
    pub ranks: u32,
    /// As printed.
    pub published: Pair,
    /// As Eq. 1 and 2 say.
    pub ours: Pair,
    /// Why the partitions cannot be the printed ones, if they are not.
    pub why: Option<&'static str>,
}

/// The smallest gradient that is compressed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// CaSync-PS or CaSync-Ring.
    pub strategy: &'static str,
    /// N.
    pub ranks: u32,
    /// The largest gradient of the table that is not compressed, in MB.
    pub above: u64,
    /// The smallest one that is, in MB.
    pub up_to: u64,
    /// As Eq. 1 and 2 say, in MB.
    pub ours: f64,
}

impl Threshold {
    /// Is ours between the table's two?
    #[must_use]
    pub fn reproduces(&self) -> bool {
        (self.above as f64) < self.ours && self.ours <= self.up_to as f64
    }
}

const RING: &str = "every term of a ring falls with K, so that K is N";
const MORE: &str = "K is more than N: that many batches take no less by Eq. 2";
const RANKS: &str = "Eq. 2 wants no fewer parts among more ranks: 2 among 4 and 1 among 16 are of no costs";
const FOUR: &str = "4 among 4 ranks and 6 among 16 are of no fixed cost and rate";

const PS: (&str, Strategy) = ("PS", Strategy::PsColocated);
const RINGS: (&str, Strategy) = ("Ring", Strategy::Ring);

type Printed = (u64, (&'static str, Strategy), u32, bool, u32, &'static str);

/// As printed, and what would be wrong with its partitions.
const PRINTED: [Printed; 12] = [
    (4, PS, 4, true, 2, RANKS),
    (4, PS, 16, true, 1, RANKS),
    (4, RINGS, 4, true, 1, RING),
    (4, RINGS, 16, false, 16, RING),
    (16, PS, 4, true, 4, FOUR),
    (16, PS, 16, true, 6, FOUR),
    (16, RINGS, 4, true, 4, RING),
    (16, RINGS, 16, true, 5, RING),
    (392, PS, 4, true, 12, MORE),
    (392, PS, 16, true, 16, MORE),
    (392, RINGS, 4, true, 4, RING),
    (392, RINGS, 16, true, 16, RING),
];

fn planner(profile: &CostProfile, strategy: Strategy, ranks: u32) -> Planner<'_> {
    Planner { profile, strategy, ranks, bound: 0, in_nic: false, threshold: 0.0 }
}

/// The table's twelve tuples beside those of these costs.
#[must_use]
pub fn rows(profile: &CostProfile) -> Vec<Row> {
    let row = |&(megabytes, (name, strategy), ranks, compress, partitions, why): &Printed| {
        let decision = planner(profile, strategy, ranks).decide("", megabytes * MB);
        let published = Pair { compress, partitions };
        let ours = Pair { compress: decision.compress, partitions: decision.partitions };
        let why = (ours.partitions != partitions).then_some(why);
        Row { megabytes, strategy: name, ranks, published, ours, why }
    };
    PRINTED.iter().map(row).collect()
}

/// The table's four columns: from which size on gradients are compressed.
#[must_use]
pub fn thresholds(profile: &CostProfile) -> Vec<Threshold> {
    let columns = [PS, RINGS].into_iter().flat_map(|strategy| [(strategy, 4), (strategy, 16)]);
    let threshold = |((name, strategy), ranks): ((&'static str, Strategy), u32)| {
        let column = PRINTED.iter().filter(|row| (row.1.0, row.2) == (name, ranks));
        let above = column.clone().filter(|row| !row.3).map(|row| row.0).max().unwrap_or(0);
        let up_to = column.filter(|row| row.3).map(|row| row.0).min().unwrap_or(u64::MAX);
        let planner = planner(profile, strategy, ranks);
        // The border, to the byte: none is compressed, and this is more than any gradient has.
        let (mut none, mut some) = (0, 1 << 40);
        while some - none > 1 {
            let middle = none + (some - none) / 2;
            if planner.decide("", middle).compress { some = middle } else { none = middle }
        }
        Threshold { strategy: name, ranks, above, up_to, ours: some as f64 / MB as f64 }
    };
    columns.map(threshold).collect()
}
