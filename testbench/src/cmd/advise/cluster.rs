//! The iteration's time on a cluster, as the simulator estimates it.

use gradwire_simulator::{
    CodecPlace, Compression, ComputeTimes, Links, Mechanism, Model, Packets, Ratios, Scenario, Wire, picos,
    seconds,
};
use serde::Serialize;

use crate::error::Error;

/// A job on a cluster, whose links and ranks a report varies.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The model that is trained.
    pub model: Model,
    /// The time that its passes take.
    pub times: Vec<ComputeTimes>,
    /// Of every host, in bit/s.
    pub bandwidth: u64,
    /// In seconds.
    pub latency: f64,
    /// Ranks on a ring.
    pub ranks: u32,
    /// For headers.
    pub mtu: u64,
    /// One core's encoder and decoder, in bytes of values a second.
    pub speed: (f64, f64),
    /// Bytes of values a second for which a rank handles an exchange of local steps.
    pub handled: f64,
}

/// Seconds that an iteration takes, in one way or another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// As `f32`.
    pub f32_s: f64,
    /// Truncated to 16 bits, at no cost.
    pub bits16_s: f64,
    /// With the codec in the NIC, at the rate of the link.
    pub in_nic_s: f64,
    /// With the codec on one core of a host like the one that this runs on.
    pub on_host_s: f64,
    /// The compute alone, without any exchange.
    pub compute_s: f64,
}

impl Cluster {
    /// The times with these ratios of a gradient and of sums.
    ///
    /// # Errors
    /// The simulator refuses the scenario.
    pub fn times(&self, gradient: f64, sums: f64) -> Result<Times, Error> {
        let ratios = Ratios { gradient, partial_sum: sums, parameters: 1.0, bound: None };
        let host = CodecPlace::Host { encode: self.speed.0, decode: self.speed.1 };
        Ok(Times {
            f32_s: self.iteration(None)?,
            bits16_s: self.iteration(Some(Compression::TRUNCATION_16))?,
            in_nic_s: self.iteration(Some(Compression { place: CodecPlace::Nic, ratios }))?,
            on_host_s: self.iteration(Some(Compression { place: host, ratios }))?,
            compute_s: seconds(self.scenario(None).compute()),
        })
    }

    fn iteration(&self, compression: Option<Compression>) -> Result<f64, Error> {
        let scenario = self.scenario(compression);
        scenario.check()?;
        Ok(seconds(scenario.run()?.iteration))
    }

    pub(super) fn scenario(&self, compression: Option<Compression>) -> Scenario {
        Scenario {
            compute_times: self.times.clone(),
            workers: self.ranks,
            links: Links {
                bandwidth: self.bandwidth,
                exceptions: Vec::new(),
                latency: picos(self.latency),
                racks: None,
            },
            wire: Wire { compression, packets: Some(Packets::of_mtu(self.mtu)) },
            ..Scenario::new(self.model.clone(), Mechanism::RING)
        }
    }
}
