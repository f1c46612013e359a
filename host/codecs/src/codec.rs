//! The trait of every codec.

use core::fmt;

use crate::factors::Shape;

/// Turns a tensor of gradients into a message, and adds what a message says to a sum.
///
/// A codec is a handful of parameters. It owns no memory: what a tensor must keep from one
/// iteration to the next lives in slices of the caller, one pair for each tensor and direction:
///
/// * `acc`, one `f32` a value: the residual. Before `encode` the caller lets [`give`](Self::give)
///   add the new gradient. After `encode`, `acc` holds what this message lost. So *given =
///   delivered + residual* at any time, to rounding.
/// * `state`, [`state_len`](Self::state_len) `f32`s: whatever else the codec keeps, such as a
///   momentum. **All zeros is a new state**, so whoever loads a checkpoint without a state starts
///   with zeros.
///
/// Both are plain `f32`s without addresses or sizes in them, so a checkpoint may store them as they
/// are.
///
/// Messages say neither their codec nor their number of values: whoever sends them says both.
pub trait Codec {
    /// The most bytes that a message of `n` values has.
    fn bound(&self, n: usize) -> usize;

    /// The number of `f32`s that the codec keeps for a tensor of `n` values, besides `acc`.
    fn state_len(&self, n: usize) -> usize {
        _ = n;
        0
    }

    /// The momentum that the codec puts on gradients in [`give`](Self::give), because the optimizer
    /// behind it has none; 0 for most. Whoever sends some tensors without this codec owes them the
    /// same momentum.
    fn momentum(&self) -> f32 {
        0.0
    }

    /// Is it right to keep what a message lost, and to add it to the next gradient?
    ///
    /// If not, the caller sets `acc` to zeros after `encode`. Codecs whose error has the mean zero
    /// need no feedback, and their papers use none.
    fn feeds_back(&self) -> bool {
        true
    }

    /// The matrix and the rank, if the codec makes two thin factors of a tensor.
    ///
    /// Processes may then exchange the factors one after the other, each as a sum of all
    /// processes', as [`Shape`] says. That is better than to add up the processes' products, each
    /// of which has factors of its own.
    fn shape(&self, n: usize) -> Option<Shape> {
        _ = n;
        None
    }

    /// Adds a new gradient to the residual.
    ///
    /// A codec that corrects momentum adds a velocity instead of the gradient. So `give` is for the
    /// point where gradients come in; an aggregator adds its inputs to `acc` by
    /// [`merge`](Self::merge).
    ///
    /// # Panics
    /// `gradient` and `acc` differ in length, or `state` has another length than `state_len` says.
    #[inline(always)]
    fn give(&self, gradient: &[f32], acc: &mut [f32], state: &mut [f32]) {
        assert_eq!(gradient.len(), acc.len(), "a gradient has as many values as the residual");
        assert_eq!(state.len(), self.state_len(acc.len()), "state has the length that state_len says");
        for (residual, new) in acc.iter_mut().zip(gradient) {
            *residual += new;
        }
    }

    /// Writes a message of `acc` to the start of `out`, leaves in `acc` what the message lost, and
    /// returns the message's length.
    ///
    /// The same `acc`, `state` and `seed` make the same bytes on every processor. Where values are
    /// not finite, the message says so, at least of as many as it has room for, and nothing of any
    /// of them is kept as residual.
    ///
    /// # Panics
    /// `out` is shorter than `bound` says, or `state` has another length than `state_len` says.
    fn encode(&self, acc: &mut [f32], state: &mut [f32], seed: u64, out: &mut [u8]) -> usize;

    /// Adds the values of the message at the start of `src` to `sum`, and returns the message's
    /// length.
    ///
    /// # Errors
    /// `src` does not start with a message of `sum.len()` values; `sum` is then untouched. No `src`
    /// makes it panic.
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed>;
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The message is cut short.
    Short {
        /// Bytes that the message has, as far as it could be read.
        need: usize,
        /// Bytes that there were.
        have: usize,
    },
    /// A field has a value that no encoder writes.
    Field {
        /// The field.
        what: &'static str,
        /// Its start, in bytes from the start of the message.
        at: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { need, have } => {
                write!(f, "the message needs at least {need} bytes and has {have}: send it whole")?;
            }
            Self::Field { what, at } => write!(f, "no encoder writes this {what} (byte {at})")?,
        }
        f.write_str("; or do both ends use the same codec, parameters and number of values?")
    }
}

impl core::error::Error for Malformed {}
