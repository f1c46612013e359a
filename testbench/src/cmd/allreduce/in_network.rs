//! `gradwire allreduce --aggregate`: where the aggregator is, what it did, and whether sums are
//! exact.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use gradwire::profile::Profile;
use gradwire::sums::Summable;
use gradwire::wire::chunk::PORT;
use gradwire_collectives::{Aggregator, InNetwork, Wire};
use serde::Serialize;

use crate::error::Error;

/// The place of the aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatorPlace {
    /// In this process.
    Local,
    /// There.
    At(SocketAddr),
}

/// `local`, or an address with or without its port.
pub(super) fn place(text: &str) -> Result<AggregatorPlace, String> {
    if text == "local" {
        return Ok(AggregatorPlace::Local);
    }
    let at = text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT)));
    at.map(AggregatorPlace::At)
        .ok_or_else(|| format!("expected local, or an IP address, and :PORT unless it is {PORT}"))
}

/// An aggregator beside the ranks, for as long as this value lives.
pub(super) struct LocalAggregator {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LocalAggregator {
    pub(super) fn start() -> Result<Self, Error> {
        let failed = |error| Error::io("a UDP socket", "open", error);
        let mut aggregator = Aggregator::bind("127.0.0.1:0".parse().expect("an address")).map_err(failed)?;
        let (address, stop) = (aggregator.address().map_err(failed)?, Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        // If it fails, the ranks go on without it.
        let thread = std::thread::spawn(move || _ = aggregator.run(&stopped));
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for LocalAggregator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The summed chunks at rank 0, by who summed them, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summed {
    /// Chunks of all rounds.
    pub chunks: usize,
    /// Summed by the aggregator.
    pub from_aggregator: usize,
    /// Copied from another rank.
    pub copied: usize,
    /// Summed by ranks.
    pub summed: usize,
    /// By round: why the aggregator did not sum all of it.
    pub reasons: Vec<Option<&'static str>>,
}

impl Summed {
    pub(super) fn add(&mut self, round: InNetwork) {
        self.chunks += round.chunks;
        self.from_aggregator += round.from_aggregator;
        self.copied += round.copied;
        self.summed += round.summed;
        self.reasons.push(round.reason);
    }

    pub(super) fn write(&self, out: &mut impl Write) -> Result<(), Error> {
        let Self { chunks, from_aggregator, copied, summed, reasons } = self;
        write!(
            out,
            "\nchunks: {chunks}; {from_aggregator} summed by the aggregator, {summed} by ranks, {copied} copied from a rank"
        )?;
        let why: Vec<&str> = reasons.iter().flatten().copied().collect();
        if let Some(first) = why.first() {
            write!(
                out,
                "\nrounds that the aggregator did not sum alone: {}, the first because it was {first}",
                why.len()
            )?;
        }
        Ok(writeln!(out)?)
    }
}

/// Is the result, to the bit, the sum of all gradients as the codec's definition restores them?
/// Units are counted as integers.
pub(super) fn is_exact(result: &[f32], wire: Wire, gradients: impl Iterator<Item = Vec<f32>>) -> bool {
    let profile = wire.profile();
    let Ok(summable) = Summable::try_from(profile) else { return false };
    let unit = f64::from(summable.unit().value());
    let mut sums = vec![0i64; result.len()];
    for gradient in gradients {
        let raw: Vec<u8> = gradient.iter().flat_map(|value| value.to_le_bytes()).collect();
        let Some(restored) = restored(profile, &raw) else { return false };
        for (sum, bytes) in sums.iter_mut().zip(restored.as_chunks().0) {
            // The gradients of this command are below 1, so what is restored is a whole number of
            // units.
            let units = f64::from(f32::from_le_bytes(*bytes)) / unit;
            if units.fract() != 0.0 {
                return false;
            }
            *sum += units as i64;
        }
    }
    let nearest: Vec<u8> = sums.iter().flat_map(|sum| ((*sum as f64 * unit) as f32).to_le_bytes()).collect();
    let expected = match profile {
        // The result is coded, too.
        Profile::SizeClass(_) => restored(profile, &nearest),
        Profile::BitPlane(_) => Some(nearest),
    };
    expected.is_some_and(|expected| {
        result.iter().zip(expected.as_chunks().0).all(|(value, bytes)| value.to_le_bytes() == *bytes)
    })
}

/// The values that the codec's definition restores.
fn restored(profile: Profile, values: &[u8]) -> Option<Vec<u8>> {
    let (mut coded, mut restored) = (vec![0; profile.max_encoded_len(values.len())], vec![0; values.len()]);
    let len = profile.encode_payload(values, &mut coded).ok()?;
    profile.decode_payload(&coded[..len], &mut restored).ok()?;
    Some(restored)
}
