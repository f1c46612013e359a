//! A codec's work on the rows of a tensor: messages with feedback, means, values.
//!
//! What `gradwire/device/exchange.py` does by torch operations, bit for bit, in one pass over
//! memory: a few blocks at a time, which stay in the cache.

use std::slice::Chunks;

use gradwire_codecs::{Chosen, Codec, Malformed, Registry};
use pyo3::prelude::*;

use crate::errors::invalid;
use crate::memory::Tensor;

/// Values that are coded at a time, at least.
const STRIDE: usize = 4096;

/// `q8:BLOCK` or `q4:BLOCK`, whose messages of whole blocks are those of the blocks, one behind the
/// other.
#[pyclass(frozen, module = "gradwire")]
pub(crate) struct Coder {
    codec: Chosen,
    /// Whole blocks.
    stride: usize,
}

#[pymethods]
impl Coder {
    #[new]
    fn new(bits: u8, block: usize) -> PyResult<Self> {
        let codec = Registry::BUILT_IN.codec(&format!("q{bits}:{block}")).map_err(invalid)?;
        Ok(Self { codec, stride: STRIDE.div_ceil(block) * block })
    }

    /// Writes messages, one of each `part` values, of gradient plus residual, padded with zeros.
    /// The residual becomes what they lost.
    fn encode(
        &self,
        py: Python<'_>,
        gradient: &Bound<'_, PyAny>,
        residual: &Bound<'_, PyAny>,
        part: usize,
        messages: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (mut gradient, mut residual) = (Tensor::new(gradient)?, Tensor::new(residual)?);
        let mut messages = Tensor::new(messages)?;
        same(gradient.values().len(), residual.values().len())?;
        let size = self.size(messages.values().len(), part, residual.values().len())?;
        py.detach(|| {
            let parts = gradient.values().chunks(part).zip(residual.values().chunks_mut(part));
            let mut messages = messages.values().chunks_mut(size);
            for ((gradient, residual), message) in parts.zip(&mut messages) {
                self.encode_part(gradient, residual, part, message);
            }
            messages.for_each(|message| self.encode_part(&[], &mut [], part, message));
        });
        Ok(())
    }

    /// Writes the message of the mean of what `received` says, plus the residual, which becomes
    /// what the message lost.
    fn encode_mean(
        &self,
        py: Python<'_>,
        received: &Bound<'_, PyAny>,
        residual: &Bound<'_, PyAny>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (mut received, mut residual) = (Tensor::new(received)?, Tensor::new(residual)?);
        let mut message = Tensor::new(message)?;
        let part = residual.values().len();
        same(message.values().len(), self.codec.bound(part))?;
        let size = self.size(received.values().len(), part, part)?;
        py.detach(|| -> Result<(), Malformed> {
            let mut mean = vec![0.0; self.stride.min(part)];
            let mut to = message.values();
            for (place, residual) in residual.values().chunks_mut(self.stride).enumerate() {
                let mean = &mut mean[..residual.len()];
                self.mean_of(received.values().chunks(size), place, mean)?;
                self.codec.give(mean, residual, &mut []);
                let len = self.codec.encode(residual, &mut [], 0, to);
                to = &mut std::mem::take(&mut to)[len..];
            }
            Ok(())
        })
        .map_err(invalid)
    }

    /// Replaces `mean` by that of what `received` says.
    fn mean(&self, py: Python<'_>, received: &Bound<'_, PyAny>, mean: &Bound<'_, PyAny>) -> PyResult<()> {
        let (mut received, mut mean) = (Tensor::new(received)?, Tensor::new(mean)?);
        let part = mean.values().len();
        let size = self.size(received.values().len(), part, part)?;
        py.detach(|| {
            let mut strides = mean.values().chunks_mut(self.stride).enumerate();
            strides.try_for_each(|(place, mean)| self.mean_of(received.values().chunks(size), place, mean))
        })
        .map_err(invalid)
    }

    /// Replaces `values` by what messages of `part` values each say.
    fn decode(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        part: usize,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (mut messages, mut values) = (Tensor::new(messages)?, Tensor::new(values)?);
        let size = self.size(messages.values().len(), part, values.values().len())?;
        py.detach(|| -> Result<(), Malformed> {
            let mut whole = vec![0.0; self.stride.min(part)];
            for (values, mut from) in values.values().chunks_mut(part).zip(messages.values().chunks(size)) {
                let mut left = part;
                for values in values.chunks_mut(self.stride) {
                    let len = left.min(self.stride);
                    left -= len;
                    let whole = &mut whole[..len];
                    whole.fill(0.0);
                    from = &from[self.codec.merge(from, whole)?..];
                    values.copy_from_slice(&whole[..values.len()]);
                }
            }
            Ok(())
        })
        .map_err(invalid)
    }
}

impl Coder {
    /// Writes a message of `part` values, those of the slices and zeros behind.
    fn encode_part(&self, gradient: &[f32], residual: &mut [f32], part: usize, mut message: &mut [u8]) {
        let mut done = 0;
        let mut padded = Vec::new();
        while done < part {
            let len = self.stride.min(part - done);
            let here = done.min(residual.len())..(done + len).min(residual.len());
            let (gradient, residual) = (&gradient[here.clone()], &mut residual[here]);
            self.codec.give(gradient, residual, &mut []);
            let written = if residual.len() == len {
                self.codec.encode(residual, &mut [], 0, message)
            } else {
                padded.clear();
                padded.extend_from_slice(residual);
                padded.resize(len, 0.0);
                let written = self.codec.encode(&mut padded, &mut [], 0, message);
                residual.copy_from_slice(&padded[..residual.len()]);
                written
            };
            message = &mut std::mem::take(&mut message)[written..];
            done += len;
        }
    }

    /// Replaces `mean`, the values of the stride at this place, by that of what all ranks' messages
    /// say.
    fn mean_of(&self, received: Chunks<'_, u8>, place: usize, mean: &mut [f32]) -> Result<(), Malformed> {
        mean.fill(0.0);
        let (at, ranks) = (place * self.codec.bound(self.stride), received.len() as f32);
        for message in received {
            self.codec.merge(&message[at..], mean)?;
        }
        mean.iter_mut().for_each(|value| *value /= ranks);
        Ok(())
    }

    /// The length of a message of `part` values, of which there are so many bytes, and enough of
    /// them for `n` values.
    fn size(&self, bytes: usize, part: usize, n: usize) -> PyResult<usize> {
        let size = self.codec.bound(part);
        if part == 0 || !bytes.is_multiple_of(size) || bytes / size < n.div_ceil(part) {
            return Err(invalid(format!("{bytes} bytes are no messages of {n} values, {part} each")));
        }
        Ok(size)
    }
}

fn same(got: usize, expected: usize) -> PyResult<()> {
    if got == expected {
        return Ok(());
    }
    Err(invalid(format!("a tensor of {got} values, expected {expected}")))
}
