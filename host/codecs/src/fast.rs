//! The same code, compiled for what processors have.
//!
//! Codecs are plain loops, which compilers turn into vector instructions, but only into those that
//! the target promises: SSE2 on any x86-64. So each codec is compiled twice more, for AVX2 and for
//! AVX-512, and what runs depends on the processor. No instruction fuses or reorders sums of `f32`,
//! so all three make the same bytes; tests/definitions.rs compares them.
#![allow(unsafe_code)]

use crate::codec::{Codec, Malformed};
use crate::factors::{Plain, Shape};

#[cfg(target_arch = "x86_64")]
cpufeatures::new!(has_avx2, "avx2", "bmi1", "bmi2", "popcnt");
#[cfg(target_arch = "x86_64")]
cpufeatures::new!(
    has_avx512, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "bmi1", "bmi2", "popcnt"
);

/// A codec that takes the best code for this processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fast<C>(pub(crate) C);

/// A function that calls another one of the same name, compiled for each of the processors. That
/// one is `#[inline(always)]`, and so is all that it calls in a loop: only what is inlined gets the
/// instructions of its caller.
macro_rules! for_each_processor {
    (
        $(#[$doc:meta])*
        $vis:vis fn $name:ident(&$self:ident as $plain:expr => $type:ty $(where $generic:ident: $bound:ident)?, $($arg:ident: $of:ty),*)
            $(-> $result:ty)?
    ) => {
        $(#[$doc])*
        $vis fn $name(&$self, $($arg: $of),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
                fn avx512$(<$generic: $bound>)?(plain: &$type, $($arg: $of),*) $(-> $result)? {
                    plain.$name($($arg),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                fn avx2$(<$generic: $bound>)?(plain: &$type, $($arg: $of),*) $(-> $result)? {
                    plain.$name($($arg),*)
                }
                if has_avx512::get() {
                    // SAFETY: the processor and the system have all features that the function asks
                    // for.
                    return unsafe { avx512(&$plain, $($arg),*) };
                }
                if has_avx2::get() {
                    // SAFETY: the processor and the system have all features that the function asks
                    // for.
                    return unsafe { avx2(&$plain, $($arg),*) };
                }
            }
            $plain.$name($($arg),*)
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

    fn momentum(&self) -> f32 {
        self.0.momentum()
    }

    fn feeds_back(&self) -> bool {
        self.0.feeds_back()
    }

    fn shape(&self, n: usize) -> Option<Shape> {
        self.0.shape(n)
    }

    for_each_processor! {
        fn give(&self as self.0 => C where C: Codec, gradient: &[f32], acc: &mut [f32], state: &mut [f32])
    }
    for_each_processor! {
        fn encode(&self as self.0 => C where C: Codec, acc: &mut [f32], state: &mut [f32], seed: u64, out: &mut [u8]) -> usize
    }
    for_each_processor! {
        fn merge(&self as self.0 => C where C: Codec, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed>
    }
}

impl Shape {
    for_each_processor! {
        /// Prepares Q for an iteration: each rank is multiplied by the power of two that brings its
        /// largest magnitude to 1 or more and below 2, and one that is all zeros becomes numbers
        /// between -1 and 1, the same for everybody.
        pub fn start(&self as Plain(*self) => Plain, q: &mut [f32])
    }
    for_each_processor! {
        /// P = M Q.
        pub fn left(&self as Plain(*self) => Plain, m: &[f32], q: &[f32], p: &mut [f32])
    }
    for_each_processor! {
        /// Makes the ranks of P vectors of length 1 that are orthogonal to each other, by Gram and
        /// Schmidt's method in `f64`. A rank that the others already hold becomes zeros.
        pub fn orthonormalise(&self as Plain(*self) => Plain, p: &mut [f32])
    }
    for_each_processor! {
        /// Q = Mᵀ P.
        pub fn right(&self as Plain(*self) => Plain, m: &[f32], p: &[f32], q: &mut [f32])
    }
    for_each_processor! {
        /// M -= P Qᵀ.
        pub fn subtract(&self as Plain(*self) => Plain, m: &mut [f32], p: &[f32], q: &[f32])
    }
    for_each_processor! {
        /// M = P Qᵀ.
        pub fn product(&self as Plain(*self) => Plain, p: &[f32], q: &[f32], m: &mut [f32])
    }
}
