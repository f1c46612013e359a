//! PowerSGD (Vogels, Karimireddy, Jaggi, 2019): each matrix is exchanged as two thin factors, one
//! after the other.

use std::time::Instant;

use gradwire_codecs::{Registry, Shape};

use crate::coding::Coding;
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::magnitude::all_finite;
use crate::plan::{Choice, CollectivePlan, GraphPlan};
use crate::residuals::{Residual, Residuals, is_zero};
use crate::strategies::Strategy;

/// The codec of factors.
const FACTORS: &str = "q8:256";

/// A tensor that is exchanged as two factors.
struct Factors {
    at: usize,
    shape: Shape,
    residuals: Residual,
    p: Vec<f32>,
    q: Vec<f32>,
    finite: bool,
    /// Does any rank have a gradient?
    used: bool,
}

/// The tensor as a matrix, if its factors have fewer values than it has.
fn shape(values: usize, rows: usize, rank: usize) -> Option<Shape> {
    let cols = values.checked_div(rows).filter(|cols| cols * rows == values)?;
    let shape = Shape { rows, cols, rank: rank.min(rows).min(cols) };
    (shape.left_len() + shape.right_len() < values).then_some(shape)
}

/// P of all ranks summed, then Q of all ranks: both in blocks of 8 bits. What P loses only turns
/// the subspace. What Q loses, the rank's own and that of the sums that it owns, is kept as
/// residual with what the product does not reach.
pub(crate) fn low_rank(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    rows: &[usize],
    rank: usize,
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let start = Instant::now();
    link.check(buffer.len(), layout, &CollectivePlan::exact(), residuals)?;
    let codec = format!("low-rank:{rank}");
    let mut matrices: Vec<Factors> = Vec::new();
    let mut failed = None;
    for (at, (name, range)) in layout.tensors().iter().enumerate() {
        let Some(shape) = shape(range.len(), rows[at], rank) else { continue };
        match residuals.take(name, range.len(), &codec, std::iter::once(shape.right_len())) {
            Ok(residuals) => {
                let (p, q) = (vec![0.0; shape.left_len()], vec![0.0; shape.right_len()]);
                matrices.push(Factors { at, shape, residuals, p, q, finite: true, used: true });
            }
            Err(error) => {
                failed = Some(error.into());
                break;
            }
        }
    }
    let result = match failed {
        Some(error) => Err(error),
        None => exchange_factors(link, buffer, layout, &mut matrices, residuals),
    };
    for matrix in matrices {
        residuals.put(&layout.tensors()[matrix.at].0, matrix.residuals);
    }
    result.map(|reports| reports.finish(start))
}

fn exchange_factors(
    link: &mut Link,
    buffer: &mut [f32],
    layout: &Layout,
    matrices: &mut [Factors],
    residuals: &mut Residuals,
) -> Result<Report, LinkError> {
    let coding = Coding::parse(FACTORS, Registry::BUILT_IN).expect("factors have a codec");
    let plan = GraphPlan::of(coding, Strategy::Servers(None));
    // A big tensor that is no matrix is summed as it is.
    let whole = Choice { coding: Coding::exact(), strategy: Strategy::Ring, partitions: None };

    let mut chosen = Vec::new();
    let mut first = Vec::new();
    let mut tensors = Vec::new();
    let mut next = matrices.iter_mut().peekable();
    for (at, (name, range)) in layout.tensors().iter().enumerate() {
        let gradient = &buffer[range.clone()];
        let Some(matrix) = next.next_if(|matrix| matrix.at == at) else {
            let big = range.len() >= plan.small;
            // Ranks of all versions tell layouts apart by these names.
            tensors.push((if big { format!("f32 {name}") } else { name.clone() }, range.len()));
            chosen.push(big.then(|| whole.clone()));
            let start = first.len();
            first.extend(gradient);
            // These are sent whole, with their residual of another plan.
            residuals.release(name, &mut first[start..]);
            continue;
        };
        let (sum, state) = (&mut matrix.residuals.sum, &mut matrix.residuals.states[0]);
        sum.iter_mut().zip(gradient).for_each(|(sum, new)| *sum += new);
        matrix.shape.start(state);
        if is_zero(gradient) {
            // The residual stays, unless another rank has a gradient.
        } else if all_finite(sum) {
            matrix.shape.left(sum, state, &mut matrix.p);
            if is_zero(&matrix.p) {
                // Zeros say that there is no gradient, and this one is only out of Q's reach.
                let mut other = vec![0.0; matrix.q.len()];
                matrix.shape.start(&mut other);
                matrix.shape.left(sum, &other, &mut matrix.p);
            }
        } else {
            matrix.p.fill(f32::NAN);
        }
        tensors.push((format!("p of {name}"), matrix.p.len()));
        chosen.push(None);
        first.extend(&matrix.p);
    }
    let sums = Layout::new(tensors)?;
    let mut report = link.exchange_chosen(&mut first, &sums, &plan, &chosen, &mut Residuals::new())?;

    let mut second = Vec::new();
    let mut tensors = Vec::new();
    let mut next = matrices.iter_mut().peekable();
    for ((at, (name, range)), (_, from)) in layout.tensors().iter().enumerate().zip(sums.tensors()) {
        let from = &first[from.clone()];
        let Some(matrix) = next.next_if(|matrix| matrix.at == at) else {
            buffer[range.clone()].copy_from_slice(from);
            continue;
        };
        // All ranks see the same sum, so they agree on this.
        matrix.finite = all_finite(from);
        matrix.used = !is_zero(from);
        if matrix.finite && matrix.used {
            matrix.p.copy_from_slice(from);
            matrix.shape.orthonormalise(&mut matrix.p);
            matrix.shape.right(&matrix.residuals.sum, &matrix.p, &mut matrix.q);
        }
        tensors.push((format!("q of {name}"), matrix.q.len()));
        second.extend(&matrix.q);
    }
    if matrices.is_empty() {
        return Ok(report);
    }
    let sums = Layout::new(tensors)?;
    let mut lost = Residuals::new();
    report = report.then(link.exchange(&mut second, &sums, &plan.into(), &mut lost)?);

    for (matrix, (name, from)) in matrices.iter_mut().zip(sums.tensors()) {
        let mean = &second[from.clone()];
        let result = &mut buffer[layout.tensors()[matrix.at].1.clone()];
        let (sum, state) = (&mut matrix.residuals.sum, &mut matrix.residuals.states[0]);
        if !matrix.finite || !all_finite(mean) {
            result.fill(f32::NAN);
            sum.fill(0.0);
            state.fill(0.0);
            continue;
        }
        if !matrix.used {
            result.fill(0.0);
            continue;
        }
        let lost = lost.get(name).unwrap_or_default();
        matrix.q.iter_mut().zip(lost).for_each(|(q, lost)| *q -= lost);
        matrix.shape.subtract(sum, &matrix.p, &matrix.q);
        matrix.shape.product(&matrix.p, mean, result);
        state.copy_from_slice(mean);
    }
    Ok(report)
}
