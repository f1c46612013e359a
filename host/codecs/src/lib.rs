//! Codecs for gradients, above the transport: both ends agree on one, whole tensors are coded, and
//! what a message lost is kept and sent later.
//!
//! No std, no allocation: every slice is the caller's. `docs/host-format.md` has the bytes.
//!
//! ```
//! use gradwire_codecs::{Codec, Half};
//!
//! let gradient = [0.5, -3.0e-9, 1.0e6];
//! let mut residual = [0.0; 3];
//! let mut message = [0; 6];
//! Half.give(&gradient, &mut residual, &mut []);
//! let len = Half.encode(&mut residual, &mut [], 0, &mut message);
//! let mut sum = [0.0; 3];
//! Half.merge(&message[..len], &mut sum)?;
//! assert_eq!(sum, [0.5, 0.0, 65_504.0]);
//! assert_eq!(residual, [0.0, -3.0e-9, 934_496.0]);
//! # Ok::<(), gradwire_codecs::Malformed>(())
//! ```

#![no_std]

mod bounded;
mod codec;
mod dgc;
mod eight_bits;
mod factors;
mod fast;
mod four_bits;
mod graddrop;
mod half;
mod low_rank;
mod named;
mod one_bit;
pub mod ops;
mod quartic;
mod raw;
mod registry;
mod scale;
mod ternary;
mod terngrad;
mod three_lc;
mod threshold;
mod truncation;

pub use bounded::Bounded;
pub use codec::{Codec, Malformed};
pub use dgc::Dgc;
pub use eight_bits::EightBits;
pub use factors::{MAX_RANK, Shape};
pub use four_bits::FourBits;
pub use graddrop::GradDrop;
pub use half::Half;
pub use low_rank::LowRank;
pub use named::{Args, Named};
pub use one_bit::OneBit;
pub use ops::Blocks;
pub use raw::Raw;
pub use registry::{Chosen, Entry, NameError, Registry};
pub use ternary::Ternary;
pub use terngrad::TernGrad;
pub use three_lc::ThreeLc;
pub use threshold::Threshold;
pub use truncation::Truncation;
