//! PowerSGD's arithmetic: a tensor as a matrix M, and two thin factors P and Q with M near P Qᵀ.
//!
//! Every sum is made in the same order on every processor, without fused operations, so replicas that are given the same
//! factors make the same bits.

use core::iter::zip;

/// Sums that a dot product makes side by side.
const LANES: usize = 16;
/// Columns of a tile, which stays in the nearest cache while all rows pass.
const TILE: usize = 512;
/// The largest rank.
pub const MAX_RANK: usize = 32;

/// A tensor as a matrix, row by row, and the rank of its factors. Where the last row is not full, zeros are meant.
///
/// Factors are stored one rank after the other: P as `rank` times `rows` values, Q as `rank` times `cols`. Members exchange them so:
///
/// 1. [`start`](Self::start) Q, which all members have alike; [`left`](Self::left) makes each member's P of M and Q.
/// 2. The members add up their P; each [`orthonormalise`](Self::orthonormalise)s the sum.
/// 3. [`right`](Self::right) makes each member's Q of M and P. The members make the mean of their Q.
/// 4. [`subtract`](Self::subtract) of its own P Qᵀ leaves a member what it holds back; [`add`](Self::add) of P Qᵀ with the mean
///    Q is everybody's result. That Q is where the next iteration starts.
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

    /// Prepares Q for an iteration: each rank is multiplied by the power of two that brings its largest magnitude to 1 or more and below
    /// 2, and one that is all zeros becomes numbers between -1 and 1, the same for everybody.
    #[inline(always)]
    pub fn start(&self, q: &mut [f32]) {
        for (k, q) in q.chunks_exact_mut(self.cols.max(1)).enumerate() {
            let exponent = q.iter().fold(0, |most, q| most.max((q.to_bits() & 0x7fff_ffff) >> 23));
            let scale = f32::from_bits(254u32.saturating_sub(exponent) << 23);
            for (at, q) in q.iter_mut().enumerate() {
                // A finalizer of 32 bits: any numbers do that are not alike.
                let mixed = ((k * self.cols + at) as u32).wrapping_mul(0x9e37_79b1) ^ 0x85eb_ca6b;
                let mixed = (mixed ^ mixed >> 15).wrapping_mul(0xc2b2_ae35);
                let any = (mixed >> 8) as i32 as f32 / 8_388_608.0 - 1.0;
                *q = if exponent == 0 { any } else { *q * scale };
            }
        }
    }

    /// P = M Q.
    #[inline(always)]
    pub fn left(&self, m: &[f32], q: &[f32], p: &mut [f32]) {
        for (row, m) in m.chunks(self.cols.max(1)).enumerate() {
            for (k, q) in q.chunks_exact(self.cols.max(1)).enumerate() {
                p[k * self.rows + row] = dot(m, &q[..m.len()]);
            }
        }
    }

    /// Makes the ranks of P vectors of length 1 that are orthogonal to each other, by Gram and Schmidt's method in `f64`. A rank
    /// that the others already hold becomes zeros.
    #[inline(always)]
    pub fn orthonormalise(&self, p: &mut [f32]) {
        for k in 0..self.rank {
            let (before, from_here) = p.split_at_mut(k * self.rows);
            let new = &mut from_here[..self.rows];
            let length = dot64(new, new);
            for done in before.chunks_exact(self.rows.max(1)) {
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

    /// Q = Mᵀ P.
    #[inline(always)]
    pub fn right(&self, m: &[f32], p: &[f32], q: &mut [f32]) {
        q.fill(0.0);
        for (row, m) in m.chunks(self.cols.max(1)).enumerate() {
            for (k, q) in q.chunks_exact_mut(self.cols.max(1)).enumerate() {
                let p = p[k * self.rows + row];
                zip(q, m).for_each(|(q, m)| *q += p * m);
            }
        }
    }

    /// M -= P Qᵀ.
    #[inline(always)]
    pub fn subtract(&self, m: &mut [f32], p: &[f32], q: &[f32]) {
        self.each(
            m,
            |row, k| p[k * self.rows + row],
            |k, at, to| to.copy_from_slice(&q[k * self.cols + at..][..to.len()]),
            |m, v| *m -= v,
        );
    }

    /// M += P Qᵀ.
    #[inline(always)]
    pub fn add(&self, m: &mut [f32], p: &[f32], q: &[f32]) {
        self.each(
            m,
            |row, k| p[k * self.rows + row],
            |k, at, to| to.copy_from_slice(&q[k * self.cols + at..][..to.len()]),
            |m, v| *m += v,
        );
    }

    /// Calls `with` for each value of M and P Qᵀ. `p` gives a value by row and rank; `q` fills a part of a rank, from a column on.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        m: &mut [f32],
        p: impl Fn(usize, usize) -> f32,
        q: impl Fn(usize, usize, &mut [f32]),
        with: impl Fn(&mut f32, f32),
    ) {
        for at in (0..self.cols).step_by(TILE) {
            let width = TILE.min(self.cols - at);
            let mut tile = [[0.0; TILE]; MAX_RANK];
            for (k, tile) in tile.iter_mut().enumerate().take(self.rank) {
                q(k, at, &mut tile[..width]);
            }
            for (row, m) in m.chunks_mut(self.cols).enumerate() {
                let m = m.get_mut(at..).unwrap_or(&mut []);
                let m = if m.len() > width { &mut m[..width] } else { m };
                let mut product = [0.0; TILE];
                for (k, tile) in tile.iter().enumerate().take(self.rank) {
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
