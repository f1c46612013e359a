//! Methods to exchange a buffer of gradients: a plan as it is, a plan with values scaled for the
//! wire, or PowerSGD's two rounds.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use gradwire_codecs::{MAX_RANK, Registry};

use crate::coding::{Coding, CodingError, Wire};
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::low_rank::low_rank;
use crate::plan::{CollectivePlan, GraphPlan, PlanError, aggregator_address};
use crate::residuals::Residuals;
use crate::scaled::scaled;
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
/// | a plan's TOML | that [`CollectivePlan`] |
#[derive(Clone, PartialEq, Debug)]
pub enum Method {
    /// The plan as it is.
    Plan(CollectivePlan),
    /// A tagged ring of values whose sum is below 1: ranks agree on a power of two for each tensor
    /// first.
    ScaledRing(Wire),
    /// An aggregator at this address sums values that are scaled likewise, with the [default
    /// coding](Wire::default).
    ScaledInNetwork(SocketAddr),
    /// PowerSGD (Vogels, Karimireddy, Jaggi, 2019) of this rank, with factors of 8 bits.
    LowRank(usize),
}

const RING: &str = "ring:";
const WIRE: &str = "wire:";
const IN_NETWORK: &str = "in-network:";
const LOW_RANK: &str = "low-rank:";
const HIERARCHY: &str = "hierarchy:";
const SERVERS: &str = "servers:";

/// The rank of PowerSGD's factors, if a text is that and no codec.
fn factors(text: &str) -> Option<usize> {
    let rank = text.strip_prefix(LOW_RANK)?.parse().ok()?;
    (1..=MAX_RANK).contains(&rank).then_some(rank)
}

/// The strategy that a codec has if it stands alone.
fn usual(coding: Coding) -> Strategy {
    if coding.is_exact() || coding.is_tagged() { Strategy::Ring } else { Strategy::Servers(None) }
}

impl Method {
    /// The method of this name, or of this TOML, with the host codecs of `registry`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, PlanError> {
        if text.contains('=') {
            return CollectivePlan::parse(text, registry).map(Self::Plan);
        }
        if let Some(rest) = text.strip_prefix(RING) {
            return match Coding::parse(&format!("{WIRE}{rest}"), registry) {
                Ok(Coding::Wire(wire)) => Ok(Self::ScaledRing(wire)),
                _ => Err(PlanError::Coding(CodingError::Codec {
                    why: format!(
                        "plan '{text}': expected ring:C:B, C is the dataplane's codec 1 or 2, its bound is 2^-B"
                    ),
                })),
            };
        }
        if let Some(address) = text.strip_prefix(IN_NETWORK) {
            return aggregator_address(address).map(Self::ScaledInNetwork);
        }
        if let Some(rank) = factors(text) {
            return Ok(Self::LowRank(rank));
        }
        if let Some((group, rest)) = text.strip_prefix(HIERARCHY).and_then(|rest| rest.split_once(':')) {
            let (between, codec) = rest.strip_prefix(SERVERS).map_or(("", rest), |codec| (":servers", codec));
            let strategy = format!("{HIERARCHY}{group}{between}").parse()?;
            let coding = Coding::parse(codec, registry)?;
            coding.check(strategy)?;
            return Ok(Self::Plan(CollectivePlan::of(coding, strategy)));
        }
        let coding = Coding::parse(text, registry)?;
        Ok(Self::Plan(CollectivePlan::of(coding, usual(coding))))
    }

    /// The plan, if gradients of one message a tensor can be given to a server's optimizer.
    ///
    /// # Errors
    /// They cannot.
    pub fn stepped(&self) -> Result<&GraphPlan, PlanError> {
        match self {
            Self::Plan(plan) => plan.check_served(),
            _ => Err(PlanError::Stepped { got: self.to_string() }),
        }
    }

    /// May rank 0 be a server?
    ///
    /// # Errors
    /// As [`CollectivePlan::check_served`].
    pub fn check_served(&self) -> Result<(), PlanError> {
        match self {
            Self::Plan(plan) => plan.check_served().map(drop),
            Self::ScaledRing(wire) => Err(PlanError::Served { got: wire.to_string() }),
            Self::ScaledInNetwork(_) => Err(PlanError::Served { got: self.to_string() }),
            Self::LowRank(_) => Ok(()),
        }
    }

    /// What [`Options::tagged`](crate::Options::tagged) has to be.
    #[must_use]
    pub fn tagged(&self) -> Option<usize> {
        match self {
            Self::Plan(plan) => plan.tagged(),
            Self::ScaledRing(_) => Some(1),
            Self::ScaledInNetwork(_) | Self::LowRank(_) => None,
        }
    }

    /// Replaces the values of `buffer` by the sums over all ranks, as [`Link::exchange`] does.
    /// `rows` says by tensor how many rows it has as a matrix; 1, or a number that does not divide
    /// its values, if it is none.
    ///
    /// If a value of a tensor is not finite at any rank, some of the sums are not finite either,
    /// and nothing of these is kept as residual.
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
        match *self {
            Self::Plan(ref plan) => link.exchange(buffer, layout, plan, residuals),
            Self::ScaledRing(wire) => {
                let plan = CollectivePlan::of(Coding::Wire(wire), Strategy::Ring);
                scaled(link, buffer, layout, &plan, residuals)
            }
            Self::ScaledInNetwork(address) => {
                let plan = CollectivePlan::InNetwork { address, wire: Wire::default() };
                scaled(link, buffer, layout, &plan, residuals)
            }
            Self::LowRank(rank) => low_rank(link, buffer, layout, rows, rank, residuals),
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
            Self::Plan(plan) => match plan.graph().and_then(GraphPlan::uniform) {
                Some((coding, strategy @ Strategy::Hierarchy { .. })) => write!(f, "{strategy}:{coding}"),
                // A codec that is written as PowerSGD's factors are needs more words.
                Some((coding, strategy))
                    if strategy == usual(coding) && factors(&coding.to_string()).is_none() =>
                {
                    coding.fmt(f)
                }
                _ => f.write_str(&plan.to_toml()),
            },
            Self::ScaledRing(wire) => {
                let wire = wire.to_string();
                write!(f, "{RING}{}", wire.strip_prefix(WIRE).unwrap_or_default())
            }
            Self::ScaledInNetwork(address) => write!(f, "{IN_NETWORK}{address}"),
            Self::LowRank(rank) => write!(f, "{LOW_RANK}{rank}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::magnitude::all_finite;
    use crate::{Listening, Options, Token};

    /// Results of `ranks`, and their residuals, if each exchanges `rounds` gradients of its own
    /// with `method`.
    fn run(
        method: &Method,
        ranks: usize,
        tensors: &[(&'static str, usize, usize)],
        rounds: usize,
        gradient: impl Fn(usize, usize, usize) -> f32 + Sync,
    ) -> Vec<(Vec<Vec<f32>>, Residuals)> {
        let options = Options { tagged: method.tagged(), ..Options::new(Token::random().unwrap()) };
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
                    // The sum of three is scaled by four times the power of two above the largest
                    // value.
                    assert!(
                        (sum - expected).abs() <= size * 4.0 / 1024.0,
                        "2^{exponent}, value {i}: {sum:e}, expected {expected:e}"
                    );
                }
            }
        }
    }

    /// With few such values, and with a tensor full of them: an overflow usually reaches all
    /// gradients.
    #[test]
    fn values_that_are_not_finite_reach_all_and_no_residual() {
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
            "hierarchy:2:low-rank:4",
            "ring:1:8:3",
            "in-network:10.0.0.9:59255",
            "in-network:[::1]:7",
            "strategy = \"in-network:10.0.0.9:7\"\ncodec = \"wire:2:8\"\ntensor = []\n",
            "strategy = \"servers\"\ncodec = \"low-rank:4\"\nsmall = 1024\nbulk = 65536\norder = \"turns\"\ntensor = []\n",
            "strategy = \"ring\"\ncodec = \"q8\"\nsmall = 1024\nbulk = 65536\norder = \"turns\"\ntensor = []\n",
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
            ("hierarchy:2:servers:wire:2:10", "use the strategy ring"),
        ] {
            let error = text.parse::<Method>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
