//! What is done with a buffer of gradients: a plan as it is, a plan with values scaled for the wire, or PowerSGD's two rounds.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use gradwire_codecs::{MAX_RANK, Registry, Shape};

use crate::coding::{Coding, CodingError};
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::plan::{Choice, Plan, PlanError};
use crate::residuals::{Residual, Residuals, is_zero};
use crate::strategies::Strategy;

/// One way to exchange all tensors of a model. It prints as [`parse`](Self::parse) reads it.
///
/// | text | what |
/// |---|---|
/// | `f32` | a ring, nothing is lost |
/// | a codec, such as `q8` or `3lc:1:1024` | partitioned servers with that codec |
/// | `ring:C:B` | a tagged ring for `wire:C:B`, each tensor scaled by a power of two |
/// | `in-network:ADDRESS` | an aggregator at this address sums, in the network, values scaled like these; with a bound of 2^-10 |
/// | `low-rank:R` | two thin factors of each matrix, summed one after the other, in 8 bits |
/// | `hierarchy:GROUP:CODEC` | `f32` within groups of neighbouring ranks, the codec between them; also `hierarchy:GROUP:servers:CODEC` |
/// | a plan's TOML | that [`Plan`] |
#[derive(Clone, PartialEq, Debug)]
pub enum Method {
    /// The plan as it is.
    Plan(Plan),
    /// The plan for values whose sum is below 1. Ranks agree on a power of two for each tensor first. Its codec is a `wire:`, which holds
    /// nothing back: another rank's residual would be in other units.
    Scaled(Plan),
    /// PowerSGD (Vogels, Karimireddy, Jaggi, 2019) of this rank, with factors of 8 bits.
    LowRank(usize),
}

/// The codec of factors.
const FACTORS: &str = "q8:256";
/// What exponents of tensors without a finite peak are: above those of all numbers.
const NOT_FINITE: i32 = 200;
/// Below this, a tensor is not scaled further: it would soon reach the largest factor.
const LEAST_EXPONENT: i32 = -100;

impl Method {
    /// The method of this name, or of this TOML, with the host codecs of `registry`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, PlanError> {
        if let Some(rest) = text.strip_prefix("ring:") {
            let wire = Coding::parse(&format!("wire:{rest}"), registry).map_err(|_| CodingError::Codec {
                why: format!(
                    "plan '{text}': expected ring:C:B, C is the dataplane's codec 1 or 2, its bound is 2^-B"
                ),
            })?;
            return Ok(Self::Scaled(Plan::of(wire, Strategy::Ring)));
        }
        if text.starts_with("in-network:") {
            let plan = Plan::parse(&format!("strategy = {text:?}"), registry)?;
            return Ok(Self::Scaled(plan));
        }
        let rank = text.strip_prefix("low-rank:").and_then(|rank| rank.parse().ok());
        if let Some(rank) = rank.filter(|rank| (1..=MAX_RANK).contains(rank)) {
            return Ok(Self::LowRank(rank));
        }
        if let Some((group, rest)) = text.strip_prefix("hierarchy:").and_then(|rest| rest.split_once(':')) {
            let (between, codec) =
                rest.strip_prefix("servers:").map_or(("", rest), |codec| (":servers", codec));
            let strategy = format!("hierarchy:{group}{between}").parse()?;
            let coding = Coding::parse(codec, registry)?;
            coding.check(strategy)?;
            return Ok(Self::Plan(Plan::of(coding, strategy)));
        }
        if text.contains('=') {
            return Ok(Self::Plan(Plan::parse(text, registry)?));
        }
        let coding = Coding::parse(text, registry)?;
        let ring = coding.is_exact() || coding.is_tagged();
        Ok(Self::Plan(Plan::of(coding, if ring { Strategy::Ring } else { Strategy::Servers(None) })))
    }

    /// The plan, if gradients of one message a tensor can be given to a server's optimizer.
    ///
    /// # Errors
    /// They cannot.
    pub fn stepped(&self) -> Result<&Plan, PlanError> {
        match self {
            Self::Plan(plan) => plan.check_served().map(|()| plan),
            _ => Err(PlanError::Stepped { got: self.to_string() }),
        }
    }

    /// May rank 0 be a server?
    ///
    /// # Errors
    /// As [`Plan::check_served`].
    pub fn check_served(&self) -> Result<(), PlanError> {
        match self {
            Self::Plan(plan) | Self::Scaled(plan) => plan.check_served(),
            Self::LowRank(_) => Ok(()),
        }
    }

    /// Does it need tagged connections?
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        matches!(self, Self::Plan(plan) | Self::Scaled(plan) if plan.is_tagged())
    }

    /// Replaces the values of `buffer` by the sums over all ranks, as [`Link::exchange`] does. `rows` says by tensor how many rows
    /// it has as a matrix; 1, or a number that does not divide its values, if it is none.
    ///
    /// If a value of a tensor is not finite at any rank, some of the sums are not finite either, and nothing of these is kept as residual.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// `rows` has not one number for each tensor.
    pub fn exchange(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        layout: &Layout,
        rows: &[usize],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        assert_eq!(rows.len(), layout.tensors().len(), "one number of rows for each tensor");
        match self {
            Self::Plan(plan) => link.exchange(buffer, layout, plan, residuals),
            Self::Scaled(plan) => {
                link.check(buffer.len(), layout, plan, residuals)?;
                scaled(link, buffer, layout, plan, residuals)
            }
            Self::LowRank(rank) => {
                link.check(buffer.len(), layout, &exact(), residuals)?;
                low_rank(link, buffer, layout, rows, *rank, residuals)
            }
        }
    }
}

impl FromStr for Method {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, Registry::BUILT_IN)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(plan) => {
                let coding = plan.others.coding.to_string();
                let short = [coding.clone(), format!("{}:{coding}", plan.others.strategy)];
                let same =
                    |text: &&String| Self::parse(text, Registry::BUILT_IN).is_ok_and(|read| read == *self);
                f.write_str(short.iter().find(same).unwrap_or(&plan.to_toml()))
            }
            Self::Scaled(plan) if plan.in_network.is_some() => f.write_str(&plan.strategy()),
            Self::Scaled(plan) => {
                write!(f, "ring{}", plan.others.coding.to_string().strip_prefix("wire").unwrap_or_default())
            }
            Self::LowRank(rank) => write!(f, "low-rank:{rank}"),
        }
    }
}

/// Both of them.
pub(crate) fn both(a: Report, b: Report) -> Report {
    let mut traffic = a.traffic;
    traffic.sent_bytes += b.traffic.sent_bytes;
    traffic.sent_messages += b.traffic.sent_messages;
    traffic.send_calls += b.traffic.send_calls;
    let in_network = b.in_network.or(a.in_network);
    Report { time: a.time + b.time, compute: a.compute + b.compute, traffic, in_network }
}

/// The exchanges' reports, with what happened between them as computing.
pub(crate) fn whole(start: Instant, reports: Report) -> Report {
    let time = start.elapsed();
    Report { time, compute: reports.compute + time.saturating_sub(reports.time), ..reports }
}

/// `f32` through the servers: for what is small or has to be exact.
pub(crate) fn exact() -> Plan {
    Plan::of(Coding::exact(), Strategy::Servers(None))
}

/// The least power of two above all magnitudes, as its exponent.
fn exponent(values: &[f32]) -> i32 {
    // As integers, magnitudes are in the order of their values.
    let peak = values.iter().fold(0, |peak, value| peak.max(value.to_bits() & 0x7fff_ffff));
    match (peak >> 23) as i32 {
        255 => NOT_FINITE,
        biased => (biased - 126).max(LEAST_EXPONENT),
    }
}

fn scaled(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    plan: &Plan,
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let start = Instant::now();
    // The residual of another plan is in units of the gradient, so it joins the gradient before there is a scale.
    for (name, range) in layout.tensors() {
        residuals.release(name, &mut buffer[range.clone()]);
    }
    let (count, ranks) = (layout.tensors().len(), link.ranks());
    // Everybody fills its own row, so the sum has all rows.
    let mut exponents = vec![0.0; ranks * count];
    let mine = &mut exponents[link.rank() * count..][..count];
    for (to, (_, range)) in mine.iter_mut().zip(layout.tensors()) {
        *to = exponent(&buffer[range.clone()]) as f32;
    }
    let table = Layout::new([("exponents", exponents.len())])?;
    let first = link.exchange(&mut exponents, &table, &exact(), &mut Residuals::new())?;
    let headroom = ranks.next_power_of_two().trailing_zeros() as i32;
    let shift = |tensor: usize| {
        let most = exponents.iter().skip(tensor).step_by(count).fold(f32::MIN, |most, e| most.max(*e));
        if most >= NOT_FINITE as f32 { 0 } else { most as i32 + headroom }
    };
    let scale = |values: &mut [f32], by: i32| {
        let factor = 2f64.powi(by);
        values.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
    };
    for (at, (_, range)) in layout.tensors().iter().enumerate() {
        scale(&mut buffer[range.clone()], -shift(at));
    }
    // What the network or its aggregator loses is in nobody's residual.
    let second = link.exchange(buffer, layout, plan, &mut Residuals::new())?;
    for (at, (_, range)) in layout.tensors().iter().enumerate() {
        scale(&mut buffer[range.clone()], shift(at));
    }
    Ok(whole(start, both(first, second)))
}

/// A tensor that is exchanged as two factors.
struct Factors {
    at: usize,
    shape: Shape,
    residuals: Residual,
    p: Vec<f32>,
    q: Vec<f32>,
    finite: bool,
    /// Does any rank have a gradient?
    used: bool,
}

/// The tensor as a matrix, if its factors have fewer values than it has.
fn shape(values: usize, rows: usize, rank: usize) -> Option<Shape> {
    let cols = values.checked_div(rows).filter(|cols| cols * rows == values)?;
    let shape = Shape { rows, cols, rank: rank.min(rows).min(cols) };
    (shape.left_len() + shape.right_len() < values).then_some(shape)
}

pub(crate) fn all_finite(values: &[f32]) -> bool {
    exponent(values) < NOT_FINITE
}

/// P of all ranks summed, then Q of all ranks: both in blocks of 8 bits. What P loses only turns the subspace. What Q loses, the
/// rank's own and that of the sums that it owns, is kept as residual with what the product does not reach.
fn low_rank(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    rows: &[usize],
    rank: usize,
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let start = Instant::now();
    let codec = format!("low-rank:{rank}");
    let mut matrices: Vec<Factors> = Vec::new();
    let mut failed = None;
    for (at, (name, range)) in layout.tensors().iter().enumerate() {
        let Some(shape) = shape(range.len(), rows[at], rank) else { continue };
        match residuals.take(name, range.len(), &codec, std::iter::once(shape.right_len())) {
            Ok(residuals) => {
                let (p, q) = (vec![0.0; shape.left_len()], vec![0.0; shape.right_len()]);
                matrices.push(Factors { at, shape, residuals, p, q, finite: true, used: true });
            }
            Err(error) => {
                failed = Some(error.into());
                break;
            }
        }
    }
    let result = match failed {
        Some(error) => Err(error),
        None => exchange_factors(link, buffer, layout, &mut matrices, residuals),
    };
    for matrix in matrices {
        residuals.put(&layout.tensors()[matrix.at].0, matrix.residuals);
    }
    result.map(|reports| whole(start, reports))
}

fn exchange_factors(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    matrices: &mut [Factors],
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let coding = Coding::parse(FACTORS, Registry::BUILT_IN).expect("factors have a codec");
    let mut plan = Plan::of(coding, Strategy::Servers(None));
    // What is no matrix, but big, as it is.
    let ring = Choice { strategy: Strategy::Ring, ..exact().others };
    plan.rows.push(("f32 *".into(), ring));

    let mut first = Vec::new();
    let mut tensors = Vec::new();
    let mut next = matrices.iter_mut().peekable();
    for (at, (name, range)) in layout.tensors().iter().enumerate() {
        let gradient = &buffer[range.clone()];
        let Some(matrix) = next.next_if(|matrix| matrix.at == at) else {
            let big = if range.len() < plan.small { "" } else { "f32 " };
            tensors.push((format!("{big}{name}"), range.len()));
            let start = first.len();
            first.extend(gradient);
            // These are sent whole, with their residual of another plan.
            residuals.release(name, &mut first[start..]);
            continue;
        };
        let (sum, state) = (&mut matrix.residuals.sum, &mut matrix.residuals.states[0]);
        sum.iter_mut().zip(gradient).for_each(|(sum, new)| *sum += new);
        matrix.shape.start(state);
        if is_zero(gradient) {
            // The residual stays, unless another rank has a gradient.
        } else if all_finite(sum) {
            matrix.shape.left(sum, state, &mut matrix.p);
            if is_zero(&matrix.p) {
                // Zeros say that there is no gradient, and this one is only out of Q's reach.
                let mut other = vec![0.0; matrix.q.len()];
                matrix.shape.start(&mut other);
                matrix.shape.left(sum, &other, &mut matrix.p);
            }
        } else {
            matrix.p.fill(f32::NAN);
        }
        tensors.push((format!("p of {name}"), matrix.p.len()));
        first.extend(&matrix.p);
    }
    let sums = Layout::new(tensors)?;
    let mut report = link.exchange(&mut first, &sums, &plan, &mut Residuals::new())?;

    let mut second = Vec::new();
    let mut tensors = Vec::new();
    let mut next = matrices.iter_mut().peekable();
    for ((at, (name, range)), (_, from)) in layout.tensors().iter().enumerate().zip(sums.tensors()) {
        let from = &first[from.clone()];
        let Some(matrix) = next.next_if(|matrix| matrix.at == at) else {
            buffer[range.clone()].copy_from_slice(from);
            continue;
        };
        // All ranks see the same sum, so they agree on this.
        matrix.finite = all_finite(from);
        matrix.used = !is_zero(from);
        if matrix.finite && matrix.used {
            matrix.p.copy_from_slice(from);
            matrix.shape.orthonormalise(&mut matrix.p);
            matrix.shape.right(&matrix.residuals.sum, &matrix.p, &mut matrix.q);
        }
        tensors.push((format!("q of {name}"), matrix.q.len()));
        second.extend(&matrix.q);
    }
    if matrices.is_empty() {
        return Ok(report);
    }
    let sums = Layout::new(tensors)?;
    let mut lost = Residuals::new();
    report = both(report, link.exchange(&mut second, &sums, &plan, &mut lost)?);

    for (matrix, (name, from)) in matrices.iter_mut().zip(sums.tensors()) {
        let mean = &second[from.clone()];
        let result = &mut buffer[layout.tensors()[matrix.at].1.clone()];
        let (sum, state) = (&mut matrix.residuals.sum, &mut matrix.residuals.states[0]);
        if !matrix.finite || !all_finite(mean) {
            result.fill(f32::NAN);
            sum.fill(0.0);
            state.fill(0.0);
            continue;
        }
        if !matrix.used {
            result.fill(0.0);
            continue;
        }
        let lost = lost.get(name).unwrap_or_default();
        matrix.q.iter_mut().zip(lost).for_each(|(q, lost)| *q -= lost);
        matrix.shape.subtract(sum, &matrix.p, &matrix.q);
        matrix.shape.product(&matrix.p, mean, result);
        state.copy_from_slice(mean);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listening, Options, Token};

    /// What `ranks` get, and their residuals, if each exchanges `rounds` gradients of its own with `method`.
    fn run(
        method: &Method,
        ranks: usize,
        tensors: &[(&'static str, usize, usize)],
        rounds: usize,
        gradient: impl Fn(usize, usize, usize) -> f32 + Sync,
    ) -> Vec<(Vec<Vec<f32>>, Residuals)> {
        let options = Options { tagged: method.is_tagged(), ..Options::new(Token::random().unwrap()) };
        let layout = Layout::new(tensors.iter().map(|(name, rows, cols)| (*name, rows * cols))).unwrap();
        let rows: Vec<usize> = tensors.iter().map(|tensor| tensor.1).collect();
        let any = "127.0.0.1:0".parse().unwrap();
        let root = Listening::bind(any, options.clone()).unwrap();
        let at = root.address().unwrap();
        let join = |listening: Listening, rank: usize| {
            let mut link = listening.join(rank, ranks, at).unwrap();
            let mut residuals = Residuals::new();
            let rounds = (0..rounds).map(|round| {
                let mut buffer: Vec<f32> = (0..layout.values()).map(|i| gradient(round, rank, i)).collect();
                method.exchange(&mut link, &mut buffer, &layout, &rows, &mut residuals).unwrap();
                buffer
            });
            (rounds.collect(), residuals)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..ranks)
                .map(|rank| {
                    let (options, join) = (options.clone(), &join);
                    scope.spawn(move || join(Listening::bind(any, options).unwrap(), rank))
                })
                .collect();
            let mut all = vec![join(root, 0)];
            all.extend(others.into_iter().map(|other| other.join().unwrap()));
            all
        })
    }

    fn noise(round: usize, rank: usize, i: usize) -> f32 {
        let mixed = (round as u32 * 97 + rank as u32 * 31 + i as u32 + 1).wrapping_mul(0x9e37_79b1);
        ((mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / 8_388_608.0 - 1.0
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    const TENSORS: &[(&str, usize, usize)] = &[("fc", 40, 60), ("bias", 40, 1), ("long", 1, 1500)];

    #[test]
    fn low_rank_loses_nothing_for_good() {
        let method = "low-rank:4".parse().unwrap();
        for ranks in 1..4 {
            let all = run(&method, ranks, TENSORS, 20, noise);
            for other in &all {
                assert!(other.0.iter().zip(&all[0].0).all(|(a, b)| bits(a) == bits(b)));
            }
            for i in 0..2400 + 40 + 1500 {
                let given: f64 = (0..ranks * 20).map(|k| f64::from(noise(k % 20, k / 20, i))).sum();
                let delivered: f64 = all[0].0.iter().map(|round| f64::from(round[i])).sum();
                let residuals = |residuals: &Residuals| {
                    if i < 2400 { f64::from(residuals.get("fc").unwrap()[i]) } else { 0.0 }
                };
                let residuals: f64 = all.iter().map(|(_, state)| residuals(state)).sum();
                assert!((given - delivered - residuals).abs() < 1e-3, "{ranks} ranks, value {i}");
            }
            // The rounding of noise is far above its sum's, were the matrix sent whole.
            assert!(all[0].1.get("fc").unwrap().iter().any(|residuals| residuals.abs() > 0.5));
        }
    }

    #[test]
    fn a_matrix_of_low_rank_arrives_at_once() {
        let product = |_: usize, rank: usize, i: usize| {
            ((i / 60 % 40) as f32 - 20.0) * ((i % 60) as f32 + 1.0) * (rank + 1) as f32 / 1000.0
        };
        let all = run(&"low-rank:2".parse().unwrap(), 2, &[("fc", 40, 60)], 2, product);
        for (i, sum) in all[1].0[1].iter().enumerate() {
            let expected = product(0, 0, i) * 3.0;
            assert!((sum - expected).abs() < 0.05, "value {i}: {sum}, expected {expected}");
        }
    }

    #[test]
    fn scaled_values_reach_the_bound_whatever_their_size() {
        for exponent in [-40, -3, 0, 17, 90] {
            let size = 2f32.powi(exponent);
            let sized = |round: usize, rank: usize, i: usize| size * noise(round, rank, i);
            let all = run(&"ring:2:10".parse().unwrap(), 3, TENSORS, 2, sized);
            for round in 0..2 {
                assert_eq!(bits(&all[0].0[round]), bits(&all[2].0[round]));
                for (i, sum) in all[0].0[round].iter().enumerate() {
                    let expected: f32 = (0..3).map(|rank| sized(round, rank, i)).sum();
                    // The sum of three is scaled by four times the power of two above the largest value.
                    assert!(
                        (sum - expected).abs() <= size * 4.0 / 1024.0,
                        "2^{exponent}, value {i}: {sum:e}, expected {expected:e}"
                    );
                }
            }
        }
    }

    /// With few such values, and with a tensor full of them: an overflow usually reaches all gradients.
    #[test]
    fn what_is_not_finite_reaches_all_and_is_not_held_back() {
        for text in [
            "low-rank:4",
            "ring:2:10",
            "ring:1:8",
            "f32",
            "q8",
            "3lc:1:1024",
            "bounded:6",
            "low-rank:4:60",
            "dgc:1",
            "dgc:5:0.9",
            "graddrop:99",
            "hierarchy:2:dgc:1",
            "strategy = \"all-gather\"\ncodec = \"dgc:1\"",
        ] {
            for (bad, whole) in
                [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|bad| [(bad, false), (bad, true)]).concat()
            {
                let once = |round: usize, rank: usize, i: usize| {
                    if (round, rank) == (1, 1) && (whole || i % 700 == 37) {
                        bad
                    } else {
                        noise(round, rank, i)
                    }
                };
                let all = run(&text.parse().unwrap(), 3, TENSORS, 4, once);
                for (rounds, residuals) in &all {
                    for (round, values) in rounds.iter().enumerate() {
                        assert_eq!(bits(values), bits(&all[0].0[round]), "{text} {bad}");
                        for (name, range) in [("fc", 0..2400), ("bias", 2400..2440), ("long", 2440..3940)] {
                            // None of the few is in the bias.
                            let reached = round == 1 && (whole || name != "bias");
                            assert_eq!(
                                all_finite(&values[range]),
                                !reached,
                                "{text} {bad}, round {round}, {name}"
                            );
                        }
                    }
                    assert!(residuals.tensors().all(|(_, values)| all_finite(values)), "{text} {bad}");
                }
            }
        }
    }

    #[test]
    fn names_come_back_and_others_are_refused() {
        for text in [
            "f32",
            "q8",
            "3lc:1:1024",
            "ring:2:10",
            "low-rank:16",
            "low-rank:4:60",
            "wire:2:10",
            "hierarchy:4:q8",
            "hierarchy:2:servers:3lc:1:1024",
            "strategy = \"all-gather\"\ncodec = \"dgc:1\"\nsmall = 1024\nbulk = 65536\norder = \"turns\"\ntensor = []\n",
        ] {
            assert_eq!(text.parse::<Method>().unwrap().to_string(), text);
        }
        for (text, says) in [
            ("ring", "no codec has this name"),
            ("ring:2", "expected ring:C:B"),
            ("ring:3:10", "expected ring:C:B"),
            ("low-rank:0", "1 to 32"),
            ("low-rank:33", "1 to 32"),
            ("zip", "no codec has this name"),
            ("hierarchy:q8", "no codec has this name"),
            ("hierarchy:0:q8", "hierarchy:GROUP"),
            ("hierarchy:2:wire:2:10", "use the strategy ring"),
        ] {
            let error = text.parse::<Method>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
