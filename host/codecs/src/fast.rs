//! The same code, compiled for what processors have.
//!
//! Codecs are plain loops, which compilers turn into vector instructions, but only into those that the target promises: SSE2 on any x86-64. So each
//! codec is compiled twice more, for AVX2 and for AVX-512, and what runs depends on the processor. No instruction fuses or reorders
//! sums of `f32`, so all three make the same bytes; tests/definitions.rs compares them.
#![allow(unsafe_code)]

use crate::codec::{Codec, Malformed};
use crate::factors::Shape;

#[cfg(target_arch = "x86_64")]
cpufeatures::new!(has_avx2, "avx2", "bmi1", "bmi2", "popcnt");
#[cfg(target_arch = "x86_64")]
cpufeatures::new!(
    has_avx512, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "bmi1", "bmi2", "popcnt"
);

/// A codec that takes the best code for this processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fast<C>(pub(crate) C);

/// A function of a codec that is compiled for each of the processors. It is `#[inline(always)]` in the codec, and so is all that it
/// calls in a loop: only what is inlined gets the instructions of its caller.
macro_rules! for_each_processor {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        fn $name(&self, $($arg: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
                fn avx512<C: Codec>(codec: &C, $($arg: $type),*) -> $result {
                    codec.$name($($arg),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                fn avx2<C: Codec>(codec: &C, $($arg: $type),*) -> $result {
                    codec.$name($($arg),*)
                }
                if has_avx512::get() {
                    // SAFETY: the processor and the system have all features that the function asks for.
                    return unsafe { avx512(&self.0, $($arg),*) };
                }
                if has_avx2::get() {
                    // SAFETY: the processor and the system have all features that the function asks for.
                    return unsafe { avx2(&self.0, $($arg),*) };
                }
            }
            self.0.$name($($arg),*)
        }
    };
}

impl<C: Codec> Codec for Fast<C> {
    fn bound(&self, n: usize) -> usize {
        self.0.bound(n)
    }

    fn state_len(&self, n: usize) -> usize {
        self.0.state_len(n)
    }

    fn feeds_back(&self) -> bool {
        self.0.feeds_back()
    }

    fn shape(&self, n: usize) -> Option<Shape> {
        self.0.shape(n)
    }

    for_each_processor!(give(gradient: &[f32], acc: &mut [f32], state: &mut [f32]) -> ());
    for_each_processor!(encode(acc: &mut [f32], state: &mut [f32], seed: u64, out: &mut [u8]) -> usize);
    for_each_processor!(merge(src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed>);
}
