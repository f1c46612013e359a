//! Helpers for models whose tensors follow from a few numbers.

use super::model::{Parameter, VALUE_BITS};

/// Tensors in forward order.
#[derive(Default)]
pub(super) struct Rows(Vec<Parameter>);

impl Rows {
    pub(super) fn into_parameters(self) -> Vec<Parameter> {
        self.0
    }

    pub(super) fn tensor(&mut self, name: String, values: u64, forward_flops: u64) {
        self.0.push(Parameter { name, values, forward_flops, bits: values * VALUE_BITS });
    }

    /// A matrix that multiplies each of `times` vectors.
    pub(super) fn matrix(&mut self, name: String, from: u64, to: u64, times: u64) {
        self.tensor(name, from * to, 2 * from * to * times);
    }
}

/// The FLOPs of attention for a sequence beside its matrices: scores and their sums, over `width`
/// values of `tokens` tokens.
pub(super) const fn attention_flops(tokens: u64, width: u64) -> u64 {
    2 * 2 * tokens * tokens * width
}
