//! PowerSGD's arithmetic: a tensor as a matrix M, and two thin factors P and Q with M near P Qᵀ.
//!
//! Every sum is made in the same order on every processor, without fused operations, so replicas
//! that are given the same factors make the same bits.

use core::iter::zip;

/// Sums that a dot product makes side by side.
const LANES: usize = 16;
/// Columns of a tile, which stays in the nearest cache while all rows pass.
const TILE: usize = 512;
/// The largest rank.
pub const MAX_RANK: usize = 32;

/// A tensor as a matrix, row by row, and the rank of its factors. Where the last row is not full,
/// zeros are meant.
///
/// Factors are stored one rank after the other: P as `rank` times `rows` values, Q as `rank` times
/// `cols`. Processes exchange them so:
///
/// 1. [`start`](Self::start) Q, which all processes have alike; [`left`](Self::left) makes each
///    process's P of M and Q.
/// 2. The processes add up their P; each [`orthonormalise`](Self::orthonormalise)s the sum.
/// 3. [`right`](Self::right) makes each process's Q of M and P. The processes make the mean of
///    their Q.
/// 4. [`subtract`](Self::subtract) of its own P Qᵀ leaves a rank its residual; the
///    [`product`](Self::product) of P and the mean Q is everybody's result. That Q is where the
///    next iteration starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Columns of each factor.
    pub rank: usize,
}

impl Shape {
    /// Values of P.
    #[must_use]
    pub const fn left_len(&self) -> usize {
        self.rank * self.rows
    }

    /// Values of Q.
    #[must_use]
    pub const fn right_len(&self) -> usize {
        self.rank * self.cols
    }
}

/// A shape's arithmetic as plain loops. [`Shape`] has the same functions for everybody, compiled
/// for what processors have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain(pub Shape);

impl Plain {
    #[inline(always)]
    pub(crate) fn start(&self, q: &mut [f32]) {
        for (k, q) in q.chunks_exact_mut(self.0.cols.max(1)).enumerate() {
            let exponent = q.iter().fold(0, |most, q| most.max((q.to_bits() & 0x7fff_ffff) >> 23));
            let scale = f32::from_bits(254u32.saturating_sub(exponent) << 23);
            for (at, q) in q.iter_mut().enumerate() {
                // A finalizer of 32 bits: any numbers do that are not alike.
                let mixed = ((k * self.0.cols + at) as u32).wrapping_mul(0x9e37_79b1) ^ 0x85eb_ca6b;
                let mixed = (mixed ^ mixed >> 15).wrapping_mul(0xc2b2_ae35);
                let any = (mixed >> 8) as i32 as f32 / 8_388_608.0 - 1.0;
                *q = if exponent == 0 { any } else { *q * scale };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn left(&self, m: &[f32], q: &[f32], p: &mut [f32]) {
        for (row, m) in m.chunks(self.0.cols.max(1)).enumerate() {
            for (k, q) in q.chunks_exact(self.0.cols.max(1)).enumerate() {
                p[k * self.0.rows + row] = dot(m, &q[..m.len()]);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn orthonormalise(&self, p: &mut [f32]) {
        for k in 0..self.0.rank {
            let (before, from_here) = p.split_at_mut(k * self.0.rows);
            let new = &mut from_here[..self.0.rows];
            let length = dot64(new, new);
            for done in before.chunks_exact(self.0.rows.max(1)) {
                let along = dot64(done, new);
                for (new, done) in zip(&mut *new, done) {
                    *new = (f64::from(*new) - along * f64::from(*done)) as f32;
                }
            }
            let rest = dot64(new, new);
            // What is left of a rank that the others hold is rounding.
            let scale = if rest > length * 1e-10 { 1.0 / root(rest) } else { 0.0 };
            new.iter_mut().for_each(|new| *new = (f64::from(*new) * scale) as f32);
        }
    }

    #[inline(always)]
    pub(crate) fn right(&self, m: &[f32], p: &[f32], q: &mut [f32]) {
        q.fill(0.0);
        for (row, m) in m.chunks(self.0.cols.max(1)).enumerate() {
            for (k, q) in q.chunks_exact_mut(self.0.cols.max(1)).enumerate() {
                let p = p[k * self.0.rows + row];
                zip(q, m).for_each(|(q, m)| *q += p * m);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn subtract(&self, m: &mut [f32], p: &[f32], q: &[f32]) {
        self.each_of(m, p, q, |m, v| *m -= v);
    }

    #[inline(always)]
    pub(crate) fn product(&self, p: &[f32], q: &[f32], m: &mut [f32]) {
        self.each_of(m, p, q, |m, v| *m = v);
    }

    /// [`Self::each`], for factors as they are.
    #[inline(always)]
    fn each_of(&self, m: &mut [f32], p: &[f32], q: &[f32], with: impl Fn(&mut f32, f32)) {
        self.each(
            m,
            |row, k| p[k * self.0.rows + row],
            |k, at, to| to.copy_from_slice(&q[k * self.0.cols + at..][..to.len()]),
            with,
        );
    }

    /// Calls `with` for each value of M and P Qᵀ. `p` gives a value by row and rank; `q` fills a
    /// part of a rank, from a column on.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        m: &mut [f32],
        p: impl Fn(usize, usize) -> f32,
        q: impl Fn(usize, usize, &mut [f32]),
        with: impl Fn(&mut f32, f32),
    ) {
        for at in (0..self.0.cols).step_by(TILE) {
            let width = TILE.min(self.0.cols - at);
            let mut tile = [[0.0; TILE]; MAX_RANK];
            for (k, tile) in tile.iter_mut().enumerate().take(self.0.rank) {
                q(k, at, &mut tile[..width]);
            }
            for (row, m) in m.chunks_mut(self.0.cols).enumerate() {
                let m = m.get_mut(at..).unwrap_or(&mut []);
                let m = if m.len() > width { &mut m[..width] } else { m };
                let mut product = [0.0; TILE];
                for (k, tile) in tile.iter().enumerate().take(self.0.rank) {
                    let p = p(row, k);
                    zip(&mut product, tile).for_each(|(product, q)| *product += p * q);
                }
                zip(m, product).for_each(|(m, product)| with(m, product));
            }
        }
    }
}

/// The sum of products: sixteen side by side, then joined from the first to the last.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in zip(a, b) {
        for (lane, (a, b)) in zip(&mut lanes, zip(a, b)) {
            *lane += a * b;
        }
    }
    for (lane, (a, b)) in zip(&mut lanes, zip(a_rest, b_rest)) {
        *lane += a * b;
    }
    lanes.into_iter().fold(0.0, |sum, lane| sum + lane)
}

/// The sum of products in `f64`: eight side by side, then joined from the first to the last.
#[inline(always)]
fn dot64(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for (a, b) in zip(a.chunks(8), b.chunks(8)) {
        for (lane, (a, b)) in zip(&mut lanes, zip(a, b)) {
            *lane += f64::from(*a) * f64::from(*b);
        }
    }
    lanes.into_iter().fold(0.0, |sum, lane| sum + lane)
}

/// The square root of a positive number, by Newton's method; `core` has none.
fn root(x: f64) -> f64 {
    // Half the exponent is a first guess within some percent.
    let mut y = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        y = (y + x / y) / 2.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize, seed: u32) -> [f32; 5000] {
        let mut values = [0.0; 5000];
        for (i, value) in values.iter_mut().enumerate().take(count) {
            let mixed = (i as u32 + seed).wrapping_mul(0x9e37_79b1);
            *value = ((mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / 8_388_608.0 - 1.0;
        }
        values
    }

    #[test]
    fn all_processors_make_the_bits_of_the_plain_loops() {
        // The last row is not full, and the columns are more than a tile has.
        for (rows, cols, rank) in [(1, 1, 1), (7, 600, 3), (70, 61, 16)] {
            let shape = Shape { rows, cols, rank };
            let plain = Plain(shape);
            let count = rows * cols - cols / 3;
            let m = &noise(count, 1)[..count];
            let (mut q, mut p) = (noise(shape.right_len(), 2), noise(0, 3));
            let (q, p) = (&mut q[..shape.right_len()], &mut p[..shape.left_len()]);
            let (mut expected_q, mut expected_p) = (noise(shape.right_len(), 2), noise(0, 3));
            let (expected_q, expected_p) = (&mut expected_q[..q.len()], &mut expected_p[..p.len()]);
            shape.start(q);
            plain.start(expected_q);
            assert_eq!(q, expected_q);
            shape.left(m, q, p);
            plain.left(m, q, expected_p);
            assert_eq!(p, expected_p);
            shape.orthonormalise(p);
            plain.orthonormalise(expected_p);
            assert_eq!(p, expected_p);
            shape.right(m, p, q);
            plain.right(m, p, expected_q);
            assert_eq!(q, expected_q);
            let (mut result, mut expected) = (noise(count, 1), noise(count, 1));
            shape.subtract(&mut result[..count], p, q);
            plain.subtract(&mut expected[..count], p, q);
            assert_eq!(result, expected);
            shape.product(p, q, &mut result[..count]);
            plain.product(p, q, &mut expected[..count]);
            assert_eq!(result, expected);
            assert!(result.iter().any(|value| *value != 0.0));
        }
    }
}
