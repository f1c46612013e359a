//! The planner: for each tensor, whether compression pays, and what the whole iteration gains.
//!
//! [`collectives`], [`pipe_sgd`] and [`casync`] are cost models as published; a [`cost_profile`]
//! has the costs that they need; [`Planner`] decides by CaSync's Eq. 1 and 2. [`classes`] makes a
//! plan of that, which the collectives run, and [`in_network`] says what an aggregator would
//! change. [`table7`] is HiPress' own table.

pub mod casync;
pub mod classes;
pub mod collectives;
pub mod cost_profile;
pub mod curve;
pub mod in_network;
pub mod pipe_sgd;
pub mod table7;

use std::fmt;

use serde::Serialize;

use self::casync::{Best, Costs, Strategy, best, compressed, original};
use self::cost_profile::{CodecCosts, CostProfile};
use self::curve::Curve;
use crate::time::seconds;
use crate::workload::{self, Model};

/// The situation to plan for.
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    /// Costs on this machine or link.
    pub profile: &'a CostProfile,
    /// The strategy of exchange.
    pub strategy: Strategy,
    /// N.
    pub ranks: u32,
    /// Of codecs with an error bound, which are the network's, only those whose bound is
    /// 2^-`bound` or tighter.
    pub bound: u8,
    /// The codec is the network's and runs in the NIC, at the rate of the link: it costs no time of
    /// its own. If not, it is one of the host's.
    pub in_nic: bool,
    /// Smallest part of a tensor's time that has to be saved: 0.1 is 10 %.
    pub threshold: f64,
}

/// Why a tensor is sent as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// There is nobody to send to.
    OneRank,
    /// The profile has no codec that keeps the bound, or none that is asked for.
    NoCodec,
    /// Encoding and decoding take longer than compression saves on the wire.
    CodecCostsMore,
    /// The saving is below the threshold.
    BelowThreshold,
}

impl Reason {
    /// Its name in reports, as JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneRank => "one-rank",
            Self::NoCodec => "no-codec",
            Self::CodecCostsMore => "codec-costs-more",
            Self::BelowThreshold => "below-threshold",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneRank => "one rank has nobody to send to",
            Self::NoCodec => "the profile has no codec that loses so little",
            Self::CodecCostsMore => "the codec takes longer than it saves on the wire",
            Self::BelowThreshold => "the saving is below the threshold",
        })
    }
}

/// The decision on one tensor. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The parameter.
    pub tensor: String,
    /// Its size as `f32`.
    pub bytes: u64,
    /// Whether to compress it.
    pub compress: bool,
    /// Why not.
    pub reason: Option<Reason>,
    /// The codec that is or would be best.
    pub codec: Option<String>,
    /// Its error bound as an exponent, if it has one: 10 means 2^-10.
    pub bound: Option<u8>,
    /// Partitions to send it in, as decided.
    pub partitions: u32,
    /// Time as `f32`.
    pub plain_s: f64,
    /// Time truncated to 16 bits, at no cost.
    pub truncated_s: f64,
    /// Time with that codec.
    pub compressed_s: Option<f64>,
}

impl Decision {
    /// Time as decided.
    #[must_use]
    pub fn time(&self) -> f64 {
        match self.compressed_s {
            Some(time) if self.compress => time,
            _ => self.plain_s,
        }
    }
}

/// Decisions on all tensors and what they come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// In forward order.
    pub tensors: Vec<Decision>,
    /// An iteration with everything as `f32`, in seconds.
    pub iteration_f32_s: f64,
    /// An iteration with everything truncated to 16 bits.
    pub iteration_16bit_s: f64,
    /// An iteration as decided.
    pub iteration_s: f64,
    /// The first over the third.
    pub gain_f32: f64,
    /// The second over the third; below 1, truncation is the better plan.
    pub gain_16bit: f64,
    /// Whether an iteration saves the threshold against both.
    pub pays: bool,
}

/// An iteration in seconds: the forward pass and then the backward pass, with exchanges one after
/// the other as gradients appear.
fn iteration(model: &Model, exchange: impl Fn(usize) -> f64) -> f64 {
    let times = workload::ComputeTimes::of(model);
    let mut computed = seconds(times.forward.iter().sum());
    let mut sent = computed;
    for (at, &backward) in times.backward.iter().enumerate().rev() {
        computed += seconds(backward);
        sent = computed.max(sent) + exchange(at);
    }
    sent
}

impl Planner<'_> {
    /// Decides on every tensor of `model`.
    ///
    /// An iteration is the forward pass and then the backward pass, with exchanges one after the
    /// other as gradients appear. A model without compute times is all exchange.
    #[must_use]
    pub fn plan(&self, model: &Model) -> Plan {
        let tensors: Vec<Decision> = model
            .parameters
            .iter()
            .map(|parameter| self.decide(&parameter.name, parameter.bits / 8))
            .collect();
        let iteration = |exchange: fn(&Decision) -> f64| iteration(model, |at| exchange(&tensors[at]));
        let (plain, truncated) = (iteration(|tensor| tensor.plain_s), iteration(|tensor| tensor.truncated_s));
        let decided = iteration(Decision::time);
        let gain = |over: f64| if decided > 0.0 { over / decided } else { 1.0 };
        let (gain_f32, gain_16bit) = (gain(plain), gain(truncated));
        let pays = decided < plain && decided <= (1.0 - self.threshold) * plain.min(truncated);
        Plan {
            tensors,
            iteration_f32_s: plain,
            iteration_16bit_s: truncated,
            iteration_s: decided,
            gain_f32,
            gain_16bit,
            pays,
        }
    }

    /// Decides on one tensor.
    #[must_use]
    pub fn decide(&self, tensor: &str, bytes: u64) -> Decision {
        let size = bytes as f64;
        let plain_of = |size: f64| {
            best(self.ranks, |k| original(&self.profile.send, self.strategy, self.ranks, size, k))
        };
        let (plain, truncated) = (plain_of(size), plain_of(size / 2.0));
        let mut decision = Decision {
            tensor: tensor.to_owned(),
            bytes,
            compress: false,
            reason: None,
            codec: None,
            bound: None,
            partitions: plain.partitions,
            plain_s: plain.time,
            truncated_s: truncated.time,
            compressed_s: None,
        };
        if self.ranks < 2 {
            (decision.plain_s, decision.truncated_s) = (0.0, 0.0);
            decision.reason = Some(Reason::OneRank);
            return decision;
        }
        let candidates = self.candidates(self.in_nic);
        let timed = candidates.map(|codec| (codec, self.time_with(codec, size)));
        let Some((codec, with)) = timed.min_by(|a, b| a.1.time.total_cmp(&b.1.time)) else {
            decision.reason = Some(Reason::NoCodec);
            return decision;
        };
        decision.codec = Some(codec.name.clone());
        decision.bound = codec.bound;
        decision.compressed_s = Some(with.time);
        decision.reason = if with.time >= plain.time {
            Some(Reason::CodecCostsMore)
        } else if with.time > (1.0 - self.threshold) * plain.time {
            Some(Reason::BelowThreshold)
        } else {
            decision.compress = true;
            decision.partitions = with.partitions;
            None
        };
        decision
    }

    /// The codecs to choose from: the network's, or the host's.
    fn candidates(&self, networks: bool) -> impl Iterator<Item = &CodecCosts> {
        let keeps = |codec: &CodecCosts| codec.bound.is_none_or(|bound| bound >= self.bound);
        self.profile.codecs.iter().filter(move |codec| codec.is_networks() == networks && keeps(codec))
    }

    fn time_with(&self, codec: &CodecCosts, bytes: f64) -> Best {
        let no_time = || Curve::affine(0.0, f64::INFINITY);
        let (encode, decode) =
            if self.in_nic { (no_time(), no_time()) } else { (codec.encode.clone(), codec.decode.clone()) };
        let costs = Costs { send: self.profile.send.clone(), encode, decode, rate: 1.0 / codec.ratio };
        best(self.ranks, |k| compressed(&costs, self.strategy, self.ranks, bytes, k).iter().sum())
    }
}
