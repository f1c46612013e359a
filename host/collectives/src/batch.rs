//! Small tensors coded in one batch.

use gradwire_codecs::{Codec, Malformed};

use crate::coding::Coding;
use crate::residuals::is_zero;

/// A codec of several tensors, one behind the other: HiPress' batch compression (Bai et al., SOSP
/// 2021, section 3.2). Each tensor has the coding's message and state by itself, and all leave
/// together.
///
/// A message is, for each tensor, a byte 0 if all its values are zeros, or a byte 1 and the
/// coding's message. So a tensor without a gradient gets no result from its neighbours'.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    coding: Coding,
    /// By tensor: its values.
    lens: Vec<usize>,
}

const ZEROS: u8 = 0;
const CODED: u8 = 1;

impl Batch {
    /// The batch of tensors of so many values.
    #[must_use]
    pub const fn new(coding: Coding, lens: Vec<usize>) -> Self {
        Self { coding, lens }
    }

    fn codec(&self) -> &dyn Codec {
        self.coding.codec()
    }

    /// By tensor, its message; none of zeros.
    pub(crate) fn split<'a>(&self, src: &'a [u8]) -> Result<Vec<&'a [u8]>, Malformed> {
        self.add(src, &mut vec![0.0; self.lens.iter().sum()])
    }

    /// Adds a message to `sum`, in part if it is malformed, and returns what [`split`](Self::split)
    /// does.
    fn add<'a>(&self, mut src: &'a [u8], mut sum: &mut [f32]) -> Result<Vec<&'a [u8]>, Malformed> {
        let (mut messages, mut at) = (Vec::with_capacity(self.lens.len()), 0);
        for &len in &self.lens {
            let values = take(&mut sum, len);
            let (&kind, rest) = src.split_first().ok_or(Malformed::Short { need: at + 1, have: at })?;
            let taken = match kind {
                ZEROS => 0,
                CODED => self.codec().merge(rest, values).map_err(|error| behind(error, at + 1))?,
                _ => return Err(Malformed::Field { what: "kind of a tensor in a batch", at }),
            };
            let (message, rest) = rest.split_at(taken);
            messages.push(message);
            (src, at) = (rest, at + 1 + taken);
        }
        Ok(messages)
    }
}

/// The error of a message that begins at this byte of the batch.
fn behind(error: Malformed, start: usize) -> Malformed {
    match error {
        Malformed::Short { need, have } => Malformed::Short { need: start + need, have: start + have },
        Malformed::Field { what, at } => Malformed::Field { what, at: start + at },
    }
}

/// Takes the first `len` values.
fn take<'a>(values: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    values.split_off_mut(..len).expect("a batch has the values of its tensors")
}

impl Codec for Batch {
    fn bound(&self, n: usize) -> usize {
        assert_eq!(n, self.lens.iter().sum::<usize>(), "a batch has the values of its tensors");
        self.lens.iter().map(|&len| 1 + self.codec().bound(len)).sum()
    }

    fn state_len(&self, _: usize) -> usize {
        self.lens.iter().map(|&len| self.codec().state_len(len)).sum()
    }

    fn momentum(&self) -> f32 {
        self.codec().momentum()
    }

    fn feeds_back(&self) -> bool {
        self.codec().feeds_back()
    }

    fn give(&self, mut gradient: &[f32], mut acc: &mut [f32], mut state: &mut [f32]) {
        for &len in &self.lens {
            let (new, rest) = gradient.split_at(len);
            self.codec().give(new, take(&mut acc, len), take(&mut state, self.codec().state_len(len)));
            gradient = rest;
        }
    }

    /// `state` may have what other codecs need for a momentum, too.
    fn encode(&self, mut acc: &mut [f32], mut state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        let mut at = 0;
        for (tensor, &len) in self.lens.iter().enumerate() {
            let values = take(&mut acc, len);
            let state = take(&mut state, self.codec().state_len(len));
            let kind = if is_zero(values) { ZEROS } else { CODED };
            out[at] = kind;
            at += 1;
            if kind == CODED {
                at += self.codec().encode(values, state, seed.wrapping_add(tensor as u64), &mut out[at..]);
            }
        }
        at
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        // A message that is none adds nothing.
        let mut added = sum.to_vec();
        let messages = self.add(src, &mut added)?;
        sum.copy_from_slice(&added);
        Ok(messages.iter().map(|message| 1 + message.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(codec: &str) -> Batch {
        Batch::new(codec.parse().unwrap(), vec![3, 0, 100, 40])
    }

    /// Codecs without a zero among their levels are the ones that would give it another value.
    #[test]
    fn each_tensor_is_coded_by_itself_and_zeros_stay_zeros() {
        for codec in ["f32", "q8", "onebit", "terngrad:2", "3lc:1.5", "dgc:10", "low-rank:2"] {
            let batch = batch(codec);
            let mut values: Vec<f32> = (0..143).map(|i| (f64::from(i) * 0.7).sin() as f32 + 0.5).collect();
            values[3..103].fill(0.0);
            let (given, mut state) = (values.clone(), vec![0.0; batch.state_len(143)]);
            let mut out = vec![0xaa; batch.bound(143)];
            let len = batch.encode(&mut values, &mut state, 7, &mut out);
            let mut sum = vec![0.0; 143];
            assert_eq!(batch.merge(&out, &mut sum), Ok(len), "{codec}");
            assert!(sum[3..103].iter().all(|&value| value == 0.0), "{codec}");
            // The same as by itself.
            let (coding, mut alone) = (codec.parse::<Coding>().unwrap(), given[103..].to_vec());
            let mut state = vec![0.0; coding.codec().state_len(40)];
            let mut message = vec![0; coding.codec().bound(40)];
            let alone_len = coding.codec().encode(&mut alone, &mut state, 7 + 3, &mut message);
            let messages = batch.split(&out[..len]).unwrap();
            assert_eq!((messages.len(), messages[3]), (4, &message[..alone_len]), "{codec}");
            assert_eq!(values[103..], alone, "{codec}");
        }
    }

    #[test]
    fn what_is_no_batch_is_refused_and_adds_nothing() {
        let batch = batch("q8");
        let mut values = vec![0.5; 143];
        let mut out = vec![0; batch.bound(143)];
        let len = batch.encode(&mut values, &mut [], 1, &mut out);
        for cut in 0..len {
            let mut sum = vec![0.0; 143];
            let refused = batch.merge(&out[..cut], &mut sum).unwrap_err();
            assert!(matches!(refused, Malformed::Short { need, have } if need > have), "{refused:?}");
            assert!(sum.iter().all(|&value| value == 0.0), "{cut} bytes");
        }
        out[0] = 2;
        let refused = batch.merge(&out[..len], &mut vec![0.0; 143]);
        assert_eq!(refused, Err(Malformed::Field { what: "kind of a tensor in a batch", at: 0 }));
    }

    proptest! {
        /// Bytes below 16, many of which are kinds of a tensor.
        #[test]
        fn no_bytes_panic_or_add_a_part(bytes in prop::collection::vec(0u8..16, 0..200)) {
            let mut sum = vec![0.0; 143];
            if batch("q8").merge(&bytes, &mut sum).is_err() {
                prop_assert!(sum.iter().all(|&value| value == 0.0));
            }
        }
    }
}
