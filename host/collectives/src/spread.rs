//! Bytes that are no values, on tagged connections.
//!
//! A compressor of such a connection keeps each value to within its bound, and takes everything for
//! values: handshakes and headers too. So each byte travels as a value of its own, and these are so
//! far apart that no bound blurs them.

/// 2^55, from the value of one byte to that of the next: above any bound that gradients make sense
/// with, and 255 of them are below 2^64, from where on nothing looks like a value (FORMAT.md
/// section 5.1, S9).
const STEP: f32 = 36_028_797_018_963_968.0;
/// The factor by which bytes get longer.
pub(crate) const SPREAD: usize = 4;

/// Bytes as values.
pub(crate) fn spread(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| (f32::from(*byte) * STEP).to_le_bytes()).collect()
}

/// The bytes of such values. Others make other bytes, but never anything worse.
pub(crate) fn gather(values: &[u8]) -> Vec<u8> {
    let values = values.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value));
    values.map(|value| (value / STEP).round() as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::codec::bit_plane::Bound;
    use gradwire::codec::{Params, Split};
    use gradwire::kernels::Kernel;
    use gradwire::profile::Profile;

    #[test]
    fn bytes_survive_what_compresses_values() {
        let all: Vec<u8> = (0..=255).collect();
        let sent = spread(&all);
        assert_eq!((sent.len(), gather(&sent)), (SPREAD * all.len(), all.clone()));
        let bit_plane = |exponent| Profile::BitPlane(Bound::new(exponent).unwrap());
        let classes = |b, x| Profile::SizeClass(Params::new(b, Split::Dense, x).unwrap());
        for profile in [bit_plane(-10), bit_plane(-2), bit_plane(10), classes(10, 0), classes(6, 8)] {
            let kernel = Kernel::detect();
            let mut coded = vec![0; profile.max_encoded_len(sent.len())];
            let len = kernel.encode(&sent, &mut coded, profile).unwrap();
            let mut got = vec![0; sent.len()];
            kernel.decode(&coded[..len], &mut got, profile).unwrap();
            assert_eq!(gather(&got), all, "{profile:?}");
        }
        assert_eq!(gather(&[f32::NAN, f32::INFINITY, -1.0].map(f32::to_le_bytes).concat()), [0, 255, 0]);
    }
}
