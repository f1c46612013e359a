//! Claims of the text of Chang et al. claims, and what comes out here.
//!
//! All with the calibrated backward times and the sizes of Table 2, on 32 workers at 25 Gbit/s
//! unless said otherwise.

use gradwire_simulator::{Mechanism, Scenario, SimError};
use serde::Serialize;

use super::figures::{COMPUTE_HEAVY, NETWORK_HEAVY, gain_with_copies};
use super::setting::{scenario, time, time_at, time_with_compute};

/// A claim, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The claim.
    pub claim: &'static str,
    /// The numbers, as they come out here.
    pub ours: String,
    /// Whether it reproduces.
    pub reproduces: bool,
}

/// Checks every claim.
///
/// # Errors
/// None, unless a committed model is damaged.
pub fn claims() -> Result<Vec<Claim>, SimError> {
    let butterfly_faster = gain_of_fast_compute(Mechanism::Butterfly)?;
    let both_faster = gain_of_fast_compute(Mechanism::BOTH)?;
    let mut claims = vec![
        Claim {
            claim: "ResNet-200 with 3x compute: butterfly is 10x the baseline",
            ours: format!("{butterfly_faster:.1}x"),
            reproduces: (butterfly_faster / 10.0 - 1.0).abs() <= 0.05,
        },
        Claim {
            claim: "ResNet-200 with 3x compute: multicast and aggregation are 19.5x the baseline",
            ours: format!("{both_faster:.1}x"),
            reproduces: (both_faster / 19.5 - 1.0).abs() <= 0.05,
        },
    ];
    let passed = |name| first_passing(name, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
    let (resnet, inception, vgg) = (passed("resnet200")?, passed("inceptionv3")?, passed("vgg16")?);
    claims.push(Claim {
        claim: "with faster compute, multicast and aggregation pass the ring on ResNet-200 between 2.5x and 3x",
        ours: resnet.map_or("never".into(), |speed| format!("at {speed}x")),
        reproduces: resnet == Some(3.0),
    });
    claims.push(Claim {
        claim: "... and never, up to 4x, on Inception-v3 and VGG-16",
        ours: format!("Inception-v3 {}, VGG-16 {}", at(inception), at(vgg)),
        reproduces: inception.is_none() && vgg.is_none(),
    });
    claims.push(butterfly_at_10g()?);
    claims.push(ring_at_every_bandwidth()?);
    claims.push(by_workers()?);
    claims.push(message_pipelining()?);
    claims.push(network_heavy()?);
    claims.extend(compute_heavy()?);
    Ok(claims)
}

fn at(speed: Option<f64>) -> String {
    speed.map_or_else(|| "never".to_owned(), |speed| format!("at {speed}x"))
}

fn gain_of_fast_compute(mechanism: Mechanism) -> Result<f64, SimError> {
    Ok(time_with_compute("resnet200", Mechanism::BASELINE, 3.0)?
        / time_with_compute("resnet200", mechanism, 3.0)?)
}

/// The first compute speed at which multicast and aggregation are faster than the ring by more than
/// 0.1 %.
fn first_passing(model: &str, speeds: &[f64]) -> Result<Option<f64>, SimError> {
    for &speed in speeds {
        let both = time_with_compute(model, Mechanism::BOTH, speed)?;
        if both < 0.999 * time_with_compute(model, Mechanism::RING, speed)? {
            return Ok(Some(speed));
        }
    }
    Ok(None)
}

fn butterfly_at_10g() -> Result<Claim, SimError> {
    let pair = |model| -> Result<(f64, f64), SimError> {
        Ok((time_at(model, Mechanism::Butterfly, 10)?, time_at(model, Mechanism::RING, 10)?))
    };
    let (inception, resnet, vgg) = (pair("inceptionv3")?, pair("resnet200")?, pair("vgg16")?);
    let show = |(butterfly, ring)| format!("{butterfly:.3} s and {ring:.3} s");
    Ok(Claim {
        claim: "at 10 Gbit/s butterfly equals the ring on Inception-v3 and loses on ResNet-200 and VGG-16",
        ours: format!("Inception-v3 {}, ResNet-200 {}, VGG-16 {}", show(inception), show(resnet), show(vgg)),
        reproduces: inception.0 / inception.1 < 1.01 && resnet.0 > 1.1 * resnet.1 && vgg.0 > 1.1 * vgg.1,
    })
}

fn ring_at_every_bandwidth() -> Result<Claim, SimError> {
    let mut ahead = Vec::new();
    for (model, name) in [
        ("vgg16", "VGG-16"),
        ("resnet200", "ResNet-200"),
        ("resnet101", "ResNet-101"),
        ("inceptionv3", "Inception-v3"),
    ] {
        for gigabits in [5, 10, 25, 50, 100] {
            let both = time_at(model, Mechanism::BOTH, gigabits)?;
            let ring = time_at(model, Mechanism::RING, gigabits)?;
            if both < 0.99 * ring {
                ahead.push(format!("{name} at {gigabits} Gbit/s {both:.3} s, ring {ring:.3} s"));
            }
        }
    }
    Ok(Claim {
        claim: "the ring beats multicast and aggregation at every bandwidth",
        reproduces: ahead.is_empty(),
        ours: if ahead.is_empty() {
            "always".into()
        } else {
            format!("they are ahead: {}", ahead.join("; "))
        },
    })
}

fn by_workers() -> Result<Claim, SimError> {
    let ratio = |workers| -> Result<f64, SimError> {
        let with = |mechanism| time(&Scenario { workers, ..scenario("vgg16", mechanism)? });
        Ok(with(Mechanism::BOTH)? / with(Mechanism::RING)?)
    };
    let (few, many) = (ratio(4)?, ratio(32)?);
    Ok(Claim {
        claim: "Fig. 8: on VGG-16 the ring is 2x multicast and aggregation at 4 workers, 1.3x at 32",
        ours: format!("{few:.2}x and {many:.2}x (Table 8's own cells: {:.2}x at 32)", 0.765 / 0.683),
        reproduces: (few / 2.0 - 1.0).abs() <= 0.1 && (many / 1.3 - 1.0).abs() <= 0.1,
    })
}

fn message_pipelining() -> Result<Claim, SimError> {
    let whole = scenario("vgg16", Mechanism::BOTH)?;
    let cut = Scenario { message: Some(2_500_000 * 8), ..whole.clone() };
    let (whole, cut) = (time(&whole)?, time(&cut)?);
    Ok(Claim {
        claim: "a parameter server does not gain from message pipelining",
        ours: format!("VGG-16 with both: {whole:.3} s whole, {cut:.3} s in 2.5 MB messages"),
        reproduces: cut > 0.99 * whole,
    })
}

fn network_heavy() -> Result<Claim, SimError> {
    let gain = |mechanism| gain_with_copies(mechanism, 125, NETWORK_HEAVY);
    let (aggregation, multicast) = (gain(Mechanism::AGGREGATION)?, gain(Mechanism::MULTICAST)?);
    Ok(Claim {
        claim: "Fig. 9: with 125 network-heavy modules, relief of one direction stays below 2x",
        ours: format!("aggregation {aggregation:.2}x, multicast {multicast:.2}x"),
        reproduces: aggregation < 2.0 && multicast < 2.0,
    })
}

fn compute_heavy() -> Result<[Claim; 2], SimError> {
    let gain = |mechanism| gain_with_copies(mechanism, 25, COMPUTE_HEAVY);
    let (none, aggregation) =
        (gain_with_copies(Mechanism::AGGREGATION, 0, COMPUTE_HEAVY)?, gain(Mechanism::AGGREGATION)?);
    let multicast = gain(Mechanism::MULTICAST)?;
    let others = [gain(Mechanism::BOTH)?, gain(Mechanism::RING)?, gain(Mechanism::Butterfly)?];
    let [both, ring, butterfly] = others;
    Ok([
        Claim {
            claim: "Fig. 10: with 25 compute-heavy modules, the gain of aggregation fades",
            ours: format!("{aggregation:.2}x, without modules {none:.2}x"),
            reproduces: aggregation < 1.1 && aggregation < none,
        },
        Claim {
            claim: "... and multicast equals the rest",
            ours: format!(
                "multicast {multicast:.2}x, both {both:.2}x, ring {ring:.2}x, butterfly {butterfly:.2}x"
            ),
            reproduces: others.iter().all(|other| (multicast / other - 1.0).abs() < 0.05),
        },
    ])
}
