//! Exchanges between ranks: is the result of one what its messages say, and is nothing lost? All
//! sums here are in `f64`, and independent of the collectives.

use gradwire_codecs::{Codec, Raw};
use gradwire_collectives::Record;
use gradwire_collectives::graph::Format;

/// Is the result what the decoded messages say, summed in `f64`? One message has to give the very
/// bits.
pub fn is_replayed(record: &Record, result: &[f32]) -> bool {
    let (mut sums, mut sizes) = (vec![0.0f64; result.len()], vec![0.0f64; result.len()]);
    let mut counts = vec![0; result.len()];
    for decoded in &record.decoded {
        let codec: &dyn Codec =
            if decoded.message.format == Format::Raw { &Raw } else { decoded.coding.codec() };
        let mut part = vec![0.0; decoded.ranges.iter().map(ExactSizeIterator::len).sum()];
        if codec.merge(&decoded.bytes, &mut part) != Ok(decoded.bytes.len()) {
            return false;
        }
        for (at, value) in decoded.ranges.iter().cloned().flatten().zip(part) {
            sums[at] += f64::from(value);
            sizes[at] += f64::from(value).abs();
            counts[at] += 1;
        }
    }
    result.iter().enumerate().all(|(at, &result)| match counts[at] {
        0 => false,
        1 => f64::from(result) == sums[at],
        messages => (f64::from(result) - sums[at]).abs() <= rounding(messages, sizes[at]),
    })
}

/// Is the result the sum of all ranks' gradients, to rounding?
pub fn is_sum(result: &[f32], gradients: impl ExactSizeIterator<Item = Vec<f32>>) -> bool {
    let ranks = gradients.len();
    let (mut sums, mut sizes) = (vec![0.0f64; result.len()], vec![0.0f64; result.len()]);
    for gradient in gradients {
        for ((sum, size), value) in sums.iter_mut().zip(&mut sizes).zip(gradient) {
            *sum += f64::from(value);
            *size += f64::from(value).abs();
        }
    }
    let off = result.iter().zip(&sums).map(|(result, sum)| (f64::from(*result) - sum).abs());
    off.zip(&sizes).all(|(off, size)| off <= rounding(ranks, *size))
}

/// Is what was given what was delivered and the residuals, to rounding and to what the `network`
/// may have lost? Given, kept and the magnitudes of both are sums over all ranks.
pub fn is_conserved(
    result: &[f32],
    [given, kept, sizes]: &[Vec<f32>; 3],
    ranks: usize,
    network: f64,
) -> bool {
    let rows = result.iter().zip(given).zip(kept.iter().zip(sizes));
    rows.into_iter().all(|((&delivered, &given), (&kept, &size))| {
        let off = f64::from(given) - f64::from(kept) - f64::from(delivered);
        off.abs() <= network + 4.0 * rounding(ranks, f64::from(size) + f64::from(delivered).abs())
    })
}

/// The most by which sums in `f32` of terms with this magnitude in all may be off the sum in `f64`.
fn rounding(terms: usize, size: f64) -> f64 {
    (terms + 3) as f64 * f64::from(f32::EPSILON) * size + f64::from(f32::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_off_by_more_than_rounding_is_found() {
        let gradients = || [vec![1.0, 1e-3], vec![2.0, -1e-3]].into_iter();
        assert!(is_sum(&[3.0, 0.0], gradients()));
        assert!(!is_sum(&[3.00001, 0.0], gradients()));
        assert!(!is_sum(&[3.0, 1e-8], gradients()));
    }

    #[test]
    fn a_value_that_is_neither_delivered_nor_kept_is_found() {
        let sums = |given: f32, kept: f32| [vec![given], vec![kept], vec![given.abs() + kept.abs()]];
        assert!(is_conserved(&[0.75], &sums(1.0, 0.25), 2, 0.0));
        assert!(!is_conserved(&[0.75], &sums(1.0, 0.2501), 2, 0.0));
        assert!(is_conserved(&[0.75], &sums(1.0, 0.2501), 2, 1e-3));
    }
}
