//! Sums of scaled values, for what keeps to an absolute bound: the network, and an aggregator in
//! it.

use std::time::Instant;

use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::magnitude::{NOT_FINITE, exponent};
use crate::plan::CollectivePlan;
use crate::residuals::Residuals;

/// Sums values whose sum has to be below 1. Ranks agree on a power of two for each tensor first.
/// The plan's codec is a `wire:`, which holds nothing back: another rank's residual would be in
/// other units.
pub(crate) fn scaled(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    plan: &CollectivePlan,
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let start = Instant::now();
    link.check(buffer.len(), layout, plan, residuals)?;
    // The residual of another plan is in units of the gradient, so it joins the gradient before
    // there is a scale.
    for (name, range) in layout.tensors() {
        residuals.release(name, &mut buffer[range.clone()]);
    }
    let (count, ranks) = (layout.tensors().len(), link.ranks());
    // Everybody fills its own row, so the sum has all rows.
    let mut exponents = vec![0.0; ranks * count];
    let mine = &mut exponents[link.rank() * count..][..count];
    for (to, (_, range)) in mine.iter_mut().zip(layout.tensors()) {
        *to = exponent(&buffer[range.clone()]) as f32;
    }
    let table = Layout::new([("exponents", exponents.len())])?;
    let first = link.exchange(&mut exponents, &table, &CollectivePlan::exact(), &mut Residuals::new())?;
    let headroom = ranks.next_power_of_two().trailing_zeros() as i32;
    let shift = |tensor: usize| {
        let most = exponents.iter().skip(tensor).step_by(count).fold(f32::MIN, |most, e| most.max(*e));
        if most >= NOT_FINITE as f32 { 0 } else { most as i32 + headroom }
    };
    let scale = |values: &mut [f32], by: i32| {
        let factor = 2f64.powi(by);
        values.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
    };
    for (at, (_, range)) in layout.tensors().iter().enumerate() {
        scale(&mut buffer[range.clone()], -shift(at));
    }
    // What the network or its aggregator loses is in nobody's residual.
    let second = link.exchange(buffer, layout, plan, &mut Residuals::new())?;
    for (at, (_, range)) in layout.tensors().iter().enumerate() {
        scale(&mut buffer[range.clone()], shift(at));
    }
    Ok(first.then(second).finish(start))
}
