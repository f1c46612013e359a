//! The functions by which both kernels for x86-64 are called.

/// Defines them in a module whose `encode` and `decode` need what `$token` proves.
macro_rules! entries {
    ($token:ty) => {
        /// As [`crate::codec::bit_plane::encode_payload`].
        pub(in super::super) fn encode(
            _: $token,
            values: &[u8],
            out: &mut [u8],
            bound: $crate::codec::bit_plane::Bound,
        ) -> Result<usize, $crate::codec::EncodeError> {
            // SAFETY: the callee needs these features and nothing else; the token proves them.
            unsafe { encode::encode_sections(values, out, bound) }
        }

        /// As [`crate::codec::bit_plane::decode_payload`].
        pub(in super::super) fn decode(
            _: $token,
            sections: &[u8],
            values: &mut [u8],
            bound: $crate::codec::bit_plane::Bound,
        ) -> Result<usize, $crate::codec::DecodeError> {
            // SAFETY: the callee needs these features and nothing else; the token proves them.
            unsafe { decode::decode_sections(sections, values, bound) }
        }

        /// As [`crate::kernels::Kernel::decode_units`]; None also if there are raw values.
        pub(in super::super) fn decode_units(_: $token, section: &[u8], units: &mut [i32]) -> Option<usize> {
            // SAFETY: the callee needs these features and nothing else; the token proves them.
            unsafe { decode::decode_units(section, units) }
        }

        /// As [`crate::codec::bit_plane::sums::decode`].
        pub(in super::super) fn decode_sums(_: $token, section: &[u8], sums: &mut [i32]) -> Option<usize> {
            // SAFETY: the callee needs these features and nothing else; the token proves them.
            unsafe { decode::decode_sums(section, sums) }
        }
    };
}
