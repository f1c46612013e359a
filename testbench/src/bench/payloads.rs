//! Payloads on which kernels are measured: payloads of one distribution, one to a buffer.

use std::hint::black_box;

use gradwire::codec::VALUE_LEN;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

use super::distributions::Distribution;
use super::slots::{PAYLOAD_AT, SLOT_LEN, SLOTS, Slots};

/// Bytes of values in a payload: a TCP segment at MTU 1500 with timestamps.
pub const PAYLOAD_LEN: usize = 1448;
/// Bytes of values that one pass handles.
pub const PASS_LEN: usize = SLOTS * PAYLOAD_LEN;
/// Values that one pass handles.
pub const PASS_VALUES: usize = PASS_LEN / VALUE_LEN;

/// The work on each payload.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Copied, values to where groups go.
    Memcpy,
    /// Encoded.
    Encode(Kernel),
    /// Decoded, one after the other.
    Decode(Kernel),
}

/// Payloads of one distribution: values, their groups, and room for both.
#[derive(Debug)]
pub struct Payloads {
    profile: Profile,
    values: Slots,
    groups: Slots,
    lens: [usize; SLOTS],
    /// The destination of encoders and of `memcpy`.
    encoded: Slots,
    /// The destination of decoders.
    decoded: Slots,
}

impl Payloads {
    /// Payloads of `distribution`, encoded with `profile`.
    #[must_use]
    pub fn new(distribution: &Distribution, profile: impl Into<Profile>) -> Self {
        let profile = profile.into();
        let mut payloads = Self {
            profile,
            values: Slots::new(),
            groups: Slots::new(),
            lens: [0; SLOTS],
            encoded: Slots::new(),
            decoded: Slots::new(),
        };
        let values = distribution.values(PASS_VALUES);
        let slots = payloads.values.iter_mut().zip(payloads.groups.iter_mut());
        for ((slot, groups), (payload, len)) in
            slots.zip(values.chunks_exact(PAYLOAD_LEN).zip(&mut payloads.lens))
        {
            payload_mut(slot).copy_from_slice(payload);
            *len = Kernel::PORTABLE.encode(payload, &mut groups[PAYLOAD_AT..], profile).unwrap_or(0);
        }
        payloads
    }

    /// Does `work` to every payload.
    pub fn pass(&mut self, work: Work) {
        // `black_box`: no length, and no result, may be known to the compiler.
        match work {
            Work::Memcpy => {
                for (values, to) in self.values.iter().zip(self.encoded.iter_mut()) {
                    black_box(payload_mut(to)).copy_from_slice(black_box(payload(values)));
                }
            }
            Work::Encode(kernel) => {
                for (values, to) in self.values.iter().zip(self.encoded.iter_mut()) {
                    let _ = black_box(kernel.encode(
                        black_box(payload(values)),
                        black_box(&mut to[PAYLOAD_AT..]),
                        self.profile,
                    ));
                }
            }
            Work::Decode(kernel) => {
                let groups = self.groups.iter().zip(self.lens);
                for ((groups, len), to) in groups.zip(self.decoded.iter_mut()) {
                    let _ = black_box(kernel.decode(
                        black_box(&groups[PAYLOAD_AT..][..len]),
                        black_box(payload_mut(to)),
                        self.profile,
                    ));
                }
            }
        }
        black_box(self);
    }
}

fn payload(slot: &[u8; SLOT_LEN]) -> &[u8] {
    &slot[PAYLOAD_AT..][..PAYLOAD_LEN]
}

fn payload_mut(slot: &mut [u8; SLOT_LEN]) -> &mut [u8] {
    &mut slot[PAYLOAD_AT..][..PAYLOAD_LEN]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::distributions;
    use crate::verify::values::{bound, error};
    use gradwire::codec::Params;
    use gradwire::codec::bit_plane::Bound;

    #[test]
    fn every_kernel_does_all_of_the_work() {
        for distribution in distributions::ALL {
            let profiles = [Params::DEFAULT.into(), Profile::BitPlane(Bound::new(-10).unwrap())];
            let kernels = Kernel::available().flat_map(|kernel| profiles.map(|profile| (kernel, profile)));
            for (kernel, profile) in kernels {
                let mut payloads = Payloads::new(&distribution, profile);
                payloads.pass(Work::Encode(kernel));
                payloads.pass(Work::Decode(kernel));
                let (values, encoded) = (payloads.values.iter(), payloads.encoded.iter());
                for (((values, encoded), decoded), len) in
                    values.zip(encoded).zip(payloads.decoded.iter()).zip(payloads.lens)
                {
                    let mut expected = [0; SLOT_LEN];
                    assert_eq!(profile.encode_payload(payload(values), &mut expected), Ok(len));
                    assert_eq!(encoded[PAYLOAD_AT..][..len], expected[..len]);
                    let mut restored = [0; PAYLOAD_LEN];
                    assert_eq!(profile.decode_payload(&expected, &mut restored), Ok(len));
                    assert_eq!(payload(decoded), restored);
                    let pairs = payload(values).as_chunks().0.iter().zip(restored.as_chunks().0);
                    for (value, got) in pairs {
                        let error = error(u32::from_le_bytes(*value), u32::from_le_bytes(*got));
                        assert!(error <= bound(profile));
                    }
                }
            }
        }
    }
}
