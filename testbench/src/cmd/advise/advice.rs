//! The advice: what suits the gradients, and what it buys on the cluster.

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire_simulator::{ComputeTimes, Model, Packets, Parameter};
use serde::Serialize;

use super::Args;
use super::cluster::{Cluster, Times};
use super::local::Local;
use super::sizes::{coded, summed};
use crate::check::{Shares, measure};
use crate::cmd::args::model::{model, traced};
use crate::error::Error;
use crate::input::recordings::{self, Recording};
use crate::report::ProgressBar;
use crate::report::columns::histogram;
use crate::verify::usefulness::Spectrum;
use crate::verify::values::scale_to_peak;

/// So much of the norm may be lost, of all tensors and of each.
const MOST_LOST: (f64, f64) = (0.01, 0.1);
/// The saving against f32 and 16 bits from which compression pays.
pub(super) const WORTH: f64 = 0.1;
/// Bounds that are tried, from half of the largest magnitude down.
const TRIED: i16 = 32;
/// Of these, so many are shown beyond the one that would do.
const BEYOND: usize = 4;
/// Gbit/s that the report goes through, besides the cluster's own.
const RATES: [f64; 9] = [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0];
/// Ranks, likewise.
const RANKS: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];

/// The advice of `advise`. The fields are those of `--json`; its help says what they mean.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the help of the command and the names of the fields")]
pub struct Advice {
    pub gradients: Gradients,
    pub bound: i16,
    pub scale: i8,
    pub bound_value: f64,
    pub codec: u8,
    pub ratio: Ratio,
    pub norm_lost: Lost,
    pub job: Job,
    pub iteration: Times,
    pub gain_f32: f64,
    pub gain_16bit: f64,
    pub pays: bool,
    pub why: String,
    pub local_steps: Option<Local>,
    pub by_bound: Vec<AtBound>,
    pub by_bandwidth: Vec<At>,
    pub by_ranks: Vec<At>,
    pub histogram: Vec<(i32, u64)>,
    pub classes: Vec<Classes>,
}

/// The gradients.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names of the fields")]
pub struct Gradients {
    pub tensors: usize,
    pub values: u64,
    pub peak: f64,
    pub non_finite: u64,
}

/// Bytes before by bytes after.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the help of the command")]
pub struct Ratio {
    pub values: f64,
    pub wire: f64,
    pub sums: f64,
    pub codec_1: Option<f64>,
}

/// Shares of norms that are lost.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    /// Of all gradients as one vector.
    pub all: f64,
    /// Of the tensor that loses most.
    pub most: f64,
    /// Its name.
    pub tensor: String,
}

/// The source of sizes and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Source {
    Model,
    Trace,
    Gradients,
}

/// The job and its cluster.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names of the fields")]
pub struct Job {
    pub source: Source,
    pub name: String,
    pub bytes: u64,
    pub ranks: u32,
    pub bandwidth: u64,
    pub latency_s: f64,
    pub mtu: u64,
}

/// Gradients at a bound of 2^`exponent`.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names of the fields")]
pub struct AtBound {
    pub exponent: i16,
    pub ratio: f64,
    pub norm_lost: f64,
}

/// The times at another bandwidth in Gbit/s, or with as many ranks.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names of the fields")]
pub struct At {
    pub at: f64,
    #[serde(flatten)]
    pub times: Times,
}

/// The shares of a tensor's values by class.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names of the fields")]
pub struct Classes {
    pub tensor: String,
    #[serde(flatten)]
    pub shares: Shares,
}

impl Advice {
    /// The bound's exponent.
    #[must_use]
    pub fn exponent(&self) -> i16 {
        i16::from(self.scale) - self.bound
    }

    /// The bound.
    #[must_use]
    pub const fn bound_value(&self) -> f64 {
        self.bound_value
    }
}

/// Works out what `args` ask for.
///
/// # Errors
/// A file or an option is refused, or the gradients show nothing: they are zero, or no bound spares
/// their norm.
pub fn advise(args: &Args) -> Result<Advice, Error> {
    let (gradients, refused) = recordings::load_or_builtin(&args.gradients)?;
    if let Some(error) = refused.into_iter().next() {
        return Err(error);
    }
    let kernel = Kernel::detect();
    let spectrum = spectrum(&gradients);
    let peak = spectrum
        .peak()
        .ok_or_else(|| Error::Usage("all values are zero: nothing shows what a bound would take".into()))?;
    let progress = ProgressBar::new("advice", 8 + (RATES.len() + RANKS.len()) as u64);
    let (bound, by_bound) = choose(&gradients, peak, kernel)?;
    let profile = Profile::BitPlane(bound);
    let all: Vec<u8> = gradients.iter().flat_map(|gradient| gradient.values.iter().copied()).collect();
    let scale = scale_to_peak(&all);
    let at_bound = coded(&gradients, profile, kernel)?;
    let sums_of = |ranks| coded(&summed(&gradients, ranks), profile, kernel).map(|coded| coded.ratio);
    progress.advance(8);

    let (source, model, times) = job(args, &gradients)?;
    let together = Recording { name: "all".into(), values: all };
    let cluster = Cluster {
        bandwidth: args.cluster.bandwidth,
        latency: args.cluster.latency,
        ranks: args.cluster.ranks,
        mtu: args.cluster.mtu,
        speed: measure(&together, profile, 0, kernel).speed,
        handled: 1e9 * args.cluster.handle,
        model,
        times,
    };
    let (ratio, sums) = (at_bound.ratio, sums_of(cluster.ranks)?);
    let iteration = cluster.times(ratio, sums)?;
    let rates = with(&RATES, cluster.bandwidth as f64 / 1e9, f64::total_cmp);
    let by_bandwidth = rates.into_iter().map(|rate| {
        progress.step();
        let times = Cluster { bandwidth: (rate * 1e9) as u64, ..cluster.clone() }.times(ratio, sums)?;
        Ok(At { at: rate, times })
    });
    let by_bandwidth = by_bandwidth.collect::<Result<Vec<At>, Error>>()?;
    let enough = |ranks: &u32| *ranks as usize >= cluster.times.len();
    let by_ranks = with(&RANKS, cluster.ranks, u32::cmp).into_iter().filter(enough).map(|ranks| {
        progress.step();
        let times = Cluster { ranks, ..cluster.clone() }.times(ratio, sums_of(ranks)?)?;
        Ok(At { at: f64::from(ranks), times })
    });
    let by_ranks = by_ranks.collect::<Result<Vec<At>, Error>>()?;

    let Packets { payload, overhead } = Packets::of_mtu(cluster.mtu);
    let (payload, overhead) = (payload as f64, overhead as f64);
    let (pays, why) = verdict(&iteration, source);
    Ok(Advice {
        gradients: Gradients {
            tensors: gradients.len(),
            values: together.values.len() as u64 / 4,
            peak: peak_of(&together.values),
            non_finite: spectrum.non_finite(),
        },
        bound: i16::from(scale) - i16::from(bound.y()),
        scale,
        bound_value: f64::from(bound.y()).exp2(),
        codec: profile.codec(),
        ratio: Ratio {
            values: ratio,
            wire: (payload + overhead) / (payload / ratio + overhead),
            sums,
            codec_1: codec_1(scale, bound)
                .map(|profile| coded(&gradients, profile, kernel))
                .transpose()?
                .map(|c| c.ratio),
        },
        norm_lost: Lost {
            all: at_bound.lost,
            most: at_bound.worst.1,
            tensor: gradients[at_bound.worst.0].name.clone(),
        },
        job: Job {
            source,
            name: cluster.model.name.clone(),
            bytes: cluster.model.bits() / 8,
            ranks: cluster.ranks,
            bandwidth: cluster.bandwidth,
            latency_s: cluster.latency,
            mtu: cluster.mtu,
        },
        gain_f32: gain(iteration.f32_s, iteration.in_nic_s),
        gain_16bit: gain(iteration.bits16_s, iteration.in_nic_s),
        local_steps: cluster.local(&iteration)?,
        iteration,
        pays,
        why,
        by_bound,
        by_bandwidth,
        by_ranks,
        histogram: histogram(&together.values),
        classes: gradients
            .iter()
            .map(|gradient| Classes {
                tensor: gradient.name.clone(),
                shares: measure(gradient, profile, 0, kernel).classes,
            })
            .collect(),
    })
}

/// The widest bound that spares the norms, and what was tried on the way and a little beyond.
fn choose(gradients: &[Recording], peak: i16, kernel: Kernel) -> Result<(Bound, Vec<AtBound>), Error> {
    let (mut chosen, mut tried) = (None, Vec::new());
    let mut beyond = 0;
    for y in (peak - TRIED..peak).rev() {
        let Some(bound) = i8::try_from(y).ok().and_then(|y| Bound::new(y).ok()) else { continue };
        let at = coded(gradients, bound.into(), kernel)?;
        tried.push(AtBound { exponent: y, ratio: at.ratio, norm_lost: at.lost });
        if chosen.is_none() && at.lost <= MOST_LOST.0 && at.worst.1 <= MOST_LOST.1 {
            chosen = Some(bound);
        } else if chosen.is_some() {
            beyond += 1;
        }
        if beyond == BEYOND {
            break;
        }
    }
    let chosen = chosen.ok_or_else(|| {
        Error::Usage(
            "no bound spares the norm of every tensor: their sizes differ too much for one bound. Give the small ones a rule or a \
             scale of their own: gradwire check --scale auto"
                .into(),
        )
    })?;
    Ok((chosen, tried))
}

/// Codec 1 with the same bound, if it has that.
fn codec_1(scale: i8, bound: Bound) -> Option<Profile> {
    let b = u8::try_from(i16::from(scale) - i16::from(bound.y())).ok()?;
    Params::new(b, Split::Dense, scale).ok().map(Profile::SizeClass)
}

/// Sizes and times of the job.
fn job(args: &Args, gradients: &[Recording]) -> Result<(Source, Model, Vec<ComputeTimes>), Error> {
    if !args.cluster.trace.is_empty() {
        let (model, times) = traced(&args.cluster.trace)?;
        return Ok((Source::Trace, model, times));
    }
    let (source, model) = match &args.cluster.model {
        Some(name) => (Source::Model, model(name)?),
        None => (Source::Gradients, of(gradients)),
    };
    let model = args.times.of(model);
    let times = vec![ComputeTimes::of(&model)];
    Ok((source, model, times))
}

/// The gradients as a model, a tensor each; how long it computes, they do not say.
fn of(gradients: &[Recording]) -> Model {
    let parameters = gradients.iter().map(|gradient| {
        let values = gradient.values.len() as u64 / 4;
        Parameter { name: gradient.name.clone(), values, forward_flops: 0, bits: 32 * values }
    });
    Model {
        name: "gradients".into(),
        parameters: parameters.collect(),
        variables: Vec::new(),
        forward: 0.0,
        backward: 0.0,
    }
}

/// Whether it pays, and a sentence that says why, or why not.
fn verdict(times: &Times, source: Source) -> (bool, String) {
    let Times { f32_s, bits16_s, in_nic_s, on_host_s, compute_s } = *times;
    let most = (1.0 - WORTH) * f32_s.min(bits16_s);
    let estimate = match (source, compute_s > 0.0) {
        (_, false) => "an estimate of the exchange alone: say --forward and --backward, or give a --trace",
        (Source::Model, true) => "an estimate from a model's times: a --trace of the job is better",
        (Source::Trace | Source::Gradients, true) => {
            "an estimate: the simulator knows no loss and no congestion"
        }
    };
    let pays = in_nic_s <= most;
    let what = if pays && on_host_s <= most {
        "pays, in the NIC and on one core of a host".to_owned()
    } else if pays {
        "pays in the NIC, but not on one core of a host: the codec is slower than this link".to_owned()
    } else if f32_s - compute_s <= WORTH * f32_s {
        format!(
            "does not pay: compute takes {:.0}% of the iteration already as f32",
            100.0 * compute_s / f32_s
        )
    } else if bits16_s - compute_s <= WORTH * bits16_s {
        format!(
            "does not pay: with 16 bit, compute takes {:.0}% of the iteration",
            100.0 * compute_s / bits16_s
        )
    } else {
        format!(
            "does not pay: it saves {:.0}% against 16 bit, which costs nothing",
            100.0 * (1.0 - in_nic_s / bits16_s)
        )
    };
    (pays, format!("compression {what} ({estimate})"))
}

fn gain(over: f64, time: f64) -> f64 {
    if time > 0.0 { over / time } else { 1.0 }
}

/// `values` and `own`, each once and in order.
fn with<T: Copy>(values: &[T], own: T, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<T> {
    let mut all = values.to_vec();
    all.push(own);
    all.sort_by(&order);
    all.dedup_by(|a, b| order(a, b).is_eq());
    all
}

fn values(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value))
}

fn spectrum(gradients: &[Recording]) -> Spectrum {
    let mut spectrum = Spectrum::new();
    gradients.iter().flat_map(|gradient| values(&gradient.values)).for_each(|value| spectrum.value(value));
    spectrum
}

fn peak_of(bytes: &[u8]) -> f64 {
    values(bytes).filter(|value| value.is_finite()).map(|value| f64::from(value.abs())).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { f32_s: 1.0, bits16_s: 0.6, in_nic_s: 0.3, on_host_s: 0.4, compute_s: 0.2 };

    #[test]
    fn a_verdict_says_why_not() {
        let says = |times, source| verdict(&times, source);
        let (pays, why) = says(TIMES, Source::Trace);
        assert!(pays && why.contains("in the NIC and on one core"), "{why}");
        let (pays, why) = says(Times { on_host_s: 0.59, ..TIMES }, Source::Model);
        assert!(pays && why.contains("not on one core") && why.contains("model's times"), "{why}");
        let bound = Times { f32_s: 1.0, bits16_s: 0.96, in_nic_s: 0.95, on_host_s: 0.95, compute_s: 0.94 };
        let (pays, why) = says(bound, Source::Trace);
        assert!(!pays && why.contains("compute takes 94% of the iteration already as f32"), "{why}");
        let (pays, why) = says(Times { in_nic_s: 0.57, ..TIMES }, Source::Gradients);
        assert!(!pays && why.contains("saves 5% against 16 bit"), "{why}");
        let (_, why) = says(Times { compute_s: 0.0, ..TIMES }, Source::Gradients);
        assert!(why.contains("the exchange alone"), "{why}");
    }

    #[test]
    fn own_values_stand_among_the_others_once() {
        assert_eq!(with(&[2, 4, 8], 6, u32::cmp), [2, 4, 6, 8]);
        assert_eq!(with(&[2, 4, 8], 8, u32::cmp), [2, 4, 8]);
    }
}
