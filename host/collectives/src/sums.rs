//! Sums of what ranks send each other where no aggregator sums: the same whole numbers, added by
//! one of them.
//!
//! A contribution is the values as the codec has them; what it restores is whole numbers of one
//! unit, which are added as integers, and the sums become what an aggregator's result would. If a
//! value is too large for that, it is sent as it is, and the sum is made in `f64`, in the order of
//! the ranks. One rank makes each sum and sends it to all, so all have the same bits.

use std::sync::Arc;

use gradwire::kernels::Kernel;
use gradwire::sums::{BLOCK_VALUES, NAN_BITS, NOT_A_NUMBER, Summable, Units, limit, units};

use crate::coding::Wire;
use crate::graph::{Format, Rank};
use crate::part::Bytes;

/// A peer's bytes that no rank of this version writes.
#[derive(Debug)]
pub(crate) struct Wrong;

/// Adds what ranks send.
pub(crate) struct Sums {
    kernel: Kernel,
    profile: Summable,
    limit: i32,
}

impl Sums {
    /// For values of this coding, of so many ranks.
    pub(crate) fn new(kernel: Kernel, wire: Wire, ranks: usize) -> Self {
        Self { kernel, profile: wire.summable(), limit: limit(u8::try_from(ranks).unwrap_or(u8::MAX)) }
    }

    /// The most bytes of a contribution or a result of so many values.
    pub(crate) fn longest(&self, values: usize) -> usize {
        let blocks = values.div_ceil(BLOCK_VALUES) * self.max_encoded_len(BLOCK_VALUES);
        blocks.max(self.max_encoded_len(values)).max(4 * values)
    }

    fn max_encoded_len(&self, values: usize) -> usize {
        self.profile.profile().max_encoded_len(4 * values)
    }

    /// This rank's part of a sum.
    pub(crate) fn contribution(&self, values: &[f32]) -> (Format, Bytes) {
        let raw = to_bytes(values);
        let mut coded = vec![0; self.max_encoded_len(values.len())];
        let len = self.kernel.encode(&raw, &mut coded, self.profile.profile()).expect("there is room");
        coded.truncate(len);
        let restored = self.restore(&coded, values.len()).expect("just encoded");
        let over = restored.iter().any(|value| matches!(self.units(*value), Units::Over(_)));
        if over { (Format::Raw, Arc::new(to_bytes(&restored))) } else { (Format::Coded, Arc::new(coded)) }
    }

    /// The sum of all contributions, in `values` and as what the others are sent.
    pub(crate) fn sum<'a>(
        &self,
        given: impl Iterator<Item = (Rank, Format, &'a [u8])>,
        values: &mut [f32],
    ) -> Result<(Format, Bytes), Wrong> {
        let restored = given.map(|(_, format, body)| match format {
            Format::Coded => self.restore(body, values.len()),
            Format::Raw => from_bytes(body, values.len()),
        });
        let restored: Vec<Vec<f32>> = restored.collect::<Result<_, Wrong>>()?;
        let add = |at: usize| {
            restored.iter().try_fold(0i32, |sum, values| match (sum, self.units(values[at])) {
                (_, Units::Over(_)) => None,
                (NOT_A_NUMBER, _) | (_, Units::NotANumber) => Some(NOT_A_NUMBER),
                // No sum of as many as the limit is for overflows.
                (sum, Units::Whole(units)) => sum.checked_add(units),
            })
        };
        if let Some(sums) = (0..values.len()).map(add).collect::<Option<Vec<i32>>>() {
            let mut body = Vec::with_capacity(self.longest(values.len()));
            for block in sums.chunks(BLOCK_VALUES) {
                let mut coded = vec![0; self.max_encoded_len(BLOCK_VALUES)];
                let len = self.kernel.encode_result(block, &mut coded, self.profile).expect("there is room");
                body.extend(&coded[..len]);
            }
            self.write(&sums, values);
            return Ok((Format::Coded, Arc::new(body)));
        }
        for (at, value) in values.iter_mut().enumerate() {
            let sum: f64 = restored.iter().map(|values| self.value(values[at])).sum();
            *value = if sum.is_nan() { f32::from_bits(NAN_BITS) } else { sum as f32 };
        }
        Ok((Format::Raw, Arc::new(to_bytes(values))))
    }

    /// A result that another rank made.
    pub(crate) fn result(&self, format: Format, body: &[u8], values: &mut [f32]) -> Result<(), Wrong> {
        if format == Format::Raw {
            values.copy_from_slice(&from_bytes(body, values.len())?);
            return Ok(());
        }
        let (mut rest, mut sums) = (body, [0; BLOCK_VALUES]);
        for block in values.chunks_mut(BLOCK_VALUES) {
            let sums = &mut sums[..block.len()];
            let len = self.kernel.decode_result(rest, sums, self.profile).ok_or(Wrong)?;
            rest = rest.get(len..).ok_or(Wrong)?;
            self.write(sums, block);
        }
        if rest.is_empty() { Ok(()) } else { Err(Wrong) }
    }

    /// Sums as values; those of a result are what it restores.
    fn write(&self, sums: &[i32], values: &mut [f32]) {
        for (value, &sum) in values.iter_mut().zip(sums) {
            *value = f32::from_bits(self.profile.restored(sum));
        }
    }

    /// Results as they are, for a rank that lacks them.
    pub(crate) fn copy(values: &[f32]) -> (Format, Bytes) {
        (Format::Raw, Arc::new(to_bytes(values)))
    }

    fn restore(&self, coded: &[u8], values: usize) -> Result<Vec<f32>, Wrong> {
        let mut raw = vec![0; 4 * values];
        let decoded = self.kernel.decode(coded, &mut raw, self.profile.profile());
        if decoded.is_ok() { from_bytes(&raw, values) } else { Err(Wrong) }
    }

    fn units(&self, value: f32) -> Units {
        units(value.to_bits(), self.profile.unit(), self.limit)
    }

    /// A restored value as it is summed, in `f64`.
    fn value(&self, value: f32) -> f64 {
        match self.units(value) {
            Units::Whole(units) => f64::from(units) * f64::from(self.profile.unit().value()),
            Units::Over(_) => value.into(),
            Units::NotANumber => f64::NAN,
        }
    }
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8], values: usize) -> Result<Vec<f32>, Wrong> {
    let (words, rest) = bytes.as_chunks();
    if words.len() != values || !rest.is_empty() {
        return Err(Wrong);
    }
    Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}
