//! The token of both kernels for x86-64.

/// A kernel's token. Its methods call the functions of the same names in the module, which need
/// what `cpu` there looks for.
macro_rules! token {
    ($name:ident) => {
        /// Proof that the processor and the system support what this module needs.
        #[derive(Clone, Copy, Debug)]
        pub(in super::super) struct $name(());

        impl $name {
            pub(in super::super) fn detect() -> Option<Self> {
                cpu::get().then_some(Self(()))
            }

            pub(in super::super) fn sum(self, bytes: &[u8]) -> $crate::checksum::Sum {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { sum(bytes) }
            }

            pub(in super::super) fn any_may_be_implausible(self, values: &[u8]) -> bool {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { any_may_be_implausible(values) }
            }

            pub(in super::super) fn add(
                self,
                units: &[i32; $crate::sums::BLOCK_VALUES],
                sums: &mut [i32; $crate::sums::BLOCK_VALUES],
            ) -> i32 {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { add(units, sums) }
            }

            pub(in super::super) fn to_units(self, values: &mut [i32], unit: $crate::sums::Unit) -> u32 {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { to_units(values, unit) }
            }

            pub(in super::super) fn encode(
                self,
                values: &[u8],
                groups: &mut [u8],
                params: $crate::codec::Params,
            ) -> Result<usize, $crate::codec::EncodeError> {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { encode(values, groups, params) }
            }

            pub(in super::super) fn decode(
                self,
                groups: &[u8],
                values: &mut [u8],
                params: $crate::codec::Params,
            ) -> Result<usize, $crate::codec::DecodeError> {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { decode(groups, values, params) }
                    .map_or_else(|| $crate::codec::decode_payload(groups, values, params), Ok)
            }

            /// From groups to units, if all numbers of them have bits below `SIMPLE_BELOW`.
            pub(in super::super) fn decode_units(
                self,
                groups: &[u8],
                units: &mut [i32],
                params: $crate::codec::Params,
                unit: $crate::sums::Unit,
            ) -> Option<usize> {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { decode_units(groups, units, params, unit) }
            }

            /// From sums to the groups of their values, if there certainly is room.
            pub(in super::super) fn encode_result(
                self,
                sums: &[i32],
                groups: &mut [u8],
                params: $crate::codec::Params,
                unit: $crate::sums::Unit,
            ) -> Option<usize> {
                // SAFETY: the callee needs these features and nothing else; `self` proves them.
                unsafe { encode_result(sums, groups, params, unit) }
            }
        }
    };
}
