//! The sizes of gradients under a codec: bytes, and what is left of the norm.

use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

use crate::check::PAYLOAD_LEN;
use crate::error::Error;
use crate::input::recordings::Recording;
use crate::verify::values::ErrorTally;

/// Gradients through a codec.
pub(super) struct Coded {
    /// Bytes of values by bytes of code, over all tensors.
    pub(super) ratio: f64,
    /// The share of all tensors' norm that is lost.
    pub(super) lost: f64,
    /// The tensor that loses most of its own norm, and how much.
    pub(super) worst: (usize, f64),
}

/// Sends `gradients` through the codec of `profile`, in payloads.
pub(super) fn coded(gradients: &[Recording], profile: Profile, kernel: Kernel) -> Result<Coded, Error> {
    let (mut raw, mut small, mut sent, mut got) = (0usize, 0usize, 0.0, 0.0);
    let mut worst = (0, f64::NEG_INFINITY);
    let mut code = vec![0; profile.max_encoded_len(PAYLOAD_LEN)];
    let mut back = [0; PAYLOAD_LEN];
    for (at, gradient) in gradients.iter().enumerate() {
        let mut tally = ErrorTally::new(profile);
        for payload in gradient.values.chunks(PAYLOAD_LEN) {
            let refused = |error: &dyn std::fmt::Display| Error::Usage(format!("{}: {error}", gradient.name));
            let len = kernel.encode(payload, &mut code, profile).map_err(|error| refused(&error))?;
            let back = &mut back[..payload.len()];
            kernel.decode(&code[..len], back, profile).map_err(|error| refused(&error))?;
            tally.bytes(payload, back);
            small += len;
        }
        raw += gradient.values.len();
        let lost = tally.norm_lost();
        let norm = squares(&gradient.values);
        sent += norm;
        got += norm * (1.0 - lost) * (1.0 - lost);
        if norm > 0.0 && lost > worst.1 {
            worst = (at, lost);
        }
    }
    let lost = if sent > 0.0 { 1.0 - (got / sent).sqrt() } else { 0.0 };
    Ok(Coded { ratio: raw as f64 / small as f64, lost, worst: (worst.0, worst.1.max(0.0)) })
}

fn squares(values: &[u8]) -> f64 {
    let finite =
        |value: &[u8; 4]| Some(f64::from(f32::from_le_bytes(*value))).filter(|value| value.is_finite());
    values.as_chunks::<4>().0.iter().filter_map(finite).map(|value| value * value).sum()
}

/// The sums of `ranks` gradients such as these, if the ranks' differ as noise does: the square root
/// of `ranks` as large. Partial sums are smaller.
pub(super) fn summed(gradients: &[Recording], ranks: u32) -> Vec<Recording> {
    let factor = f64::from(ranks).sqrt() as f32;
    let larger = |value: &[u8; 4]| (f32::from_le_bytes(*value) * factor).to_le_bytes();
    gradients
        .iter()
        .map(|gradient| Recording {
            name: gradient.name.clone(),
            values: gradient.values.as_chunks::<4>().0.iter().flat_map(larger).collect(),
        })
        .collect()
}
