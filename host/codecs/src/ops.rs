//! CompLL's seven operators, of which codecs are made: sort, filter, map, reduce, random, concat
//! and extract.
//!
//! A codec reads like its paper: `reduce` finds a scale, `map` makes a code of each value, `concat`
//! writes them, and [`Extract::unpack`] gives each code back. The operators work through slices in
//! steps of fixed length, which compilers turn into vector instructions; that is why values are not
//! passed one by one through iterators.

use core::iter::zip;
use core::num::NonZeroU32;

use crate::codec::Malformed;

/// Values that `reduce` works on at a time.
const LANES: usize = 16;
/// Values that `map` and `unpack` work on at a time; a multiple of what fills whole bytes.
const STEP: usize = 64;
/// The magnitude of an `f32`, among its bits.
pub const MAGNITUDE: u32 = 0x7fff_ffff;
/// The magnitude of an infinity; NaNs are above.
pub const INFINITE: u32 = 0x7f80_0000;

/// The number of values that share a scale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocks(Option<NonZeroU32>);

impl Blocks {
    /// All values of a tensor share one.
    pub const WHOLE: Self = Self(None);

    /// So many values share one; the last block may have fewer.
    #[must_use]
    pub const fn of(values: NonZeroU32) -> Self {
        Self(Some(values))
    }

    /// The values of a block, in a tensor of `n`; never 0.
    #[must_use]
    pub fn len(self, n: usize) -> usize {
        self.0.map_or(n.max(1), |values| values.get() as usize)
    }

    /// The blocks of a tensor of `n` values.
    #[must_use]
    pub fn count(self, n: usize) -> usize {
        n.div_ceil(self.len(n))
    }

    /// The bytes of a tensor of `n` values, if a block of some length has `block` bytes.
    #[inline(always)]
    pub fn bytes(self, n: usize, block: impl Fn(usize) -> usize) -> usize {
        let (len, rest) = (self.len(n), n % self.len(n));
        n / len * block(len) + if rest == 0 { 0 } else { block(rest) }
    }
}

/// **reduce**: `fold` over all values, beginning with `start`.
///
/// Sixteen results are made side by side, of the values 0, 16, 32, ..., of 1, 17, 33, ... and so
/// on, and joined from the first to the last. Whoever needs the same bits must add in the same
/// order.
#[inline(always)]
pub fn reduce<T: Copy>(values: &[f32], start: T, fold: impl Fn(T, f32) -> T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = fold(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = fold(*lane, *value);
    }
    lanes.into_iter().reduce(join).unwrap_or(start)
}

/// **reduce** to the largest whole number that `of` makes of a value, or 0. Any order gives the
/// same one, so the compiler chooses it; sixteen at a time, as for sums, it gathered values that
/// stand far apart, which took three times as long.
#[inline(always)]
pub fn largest(values: &[f32], of: impl Fn(f32) -> i32) -> i32 {
    let mut most = 0;
    // A loop, here and in `total`: an iterator's methods may become functions of their own, without
    // their caller's instructions.
    for value in values {
        most = most.max(of(*value));
    }
    most
}

/// The largest magnitude, by `largest`; NaN if a value is not finite.
#[must_use]
#[inline(always)]
pub fn peak(values: &[f32]) -> f32 {
    let bits = largest(values, |value| (value.to_bits() & MAGNITUDE) as i32);
    if bits < INFINITE as i32 { f32::from_bits(bits as u32) } else { f32::NAN }
}

/// The sum of `part` of each value: by `reduce` in `f32` over 1,024 values, and these sums one
/// after the other in `f64`.
#[inline(always)]
pub fn total(values: &[f32], part: impl Fn(f32) -> f32) -> f64 {
    let mut total = 0.0;
    for chunk in values.chunks(1024) {
        total += f64::from(reduce(chunk, 0.0, |sum, value| sum + part(value), |a: f32, b| a + b));
    }
    total
}

/// The loss of a message that says `sent` of `value`: nothing if that is no number.
#[must_use]
#[inline(always)]
pub fn lost(value: f32, sent: f32) -> f32 {
    let lost = value - sent;
    if lost.to_bits() & MAGNITUDE < INFINITE { lost } else { 0.0 }
}

/// The nearest whole number, ties to even, for magnitudes below 2^22: as a value, and its two's
/// complement.
#[must_use]
#[inline(always)]
pub fn round(value: f32) -> (f32, i32) {
    // From here to twice as much, an f32 counts in ones.
    const ONES: f32 = 12_582_912.0;
    let shifted = value + ONES;
    (shifted - ONES, shifted.to_bits().wrapping_sub(ONES.to_bits()) as i32)
}

/// The largest whole number that is not larger, for magnitudes below 2^22: as a value, and its
/// two's complement.
#[must_use]
#[inline(always)]
pub fn floor(value: f32) -> (f32, i32) {
    let (nearest, code) = round(value);
    if nearest > value { (nearest - 1.0, code - 1) } else { (nearest, code) }
}

/// **random**: a number in 0 <= r < 1 that depends on nothing but `seed` and `index`.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    low: u32,
    high: u32,
}

impl Random {
    /// The numbers of a seed: the finalizer of SplitMix64 keeps the sequences of near seeds apart.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let z = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ z >> 31;
        Self { low: z as u32, high: (z >> 32) as u32 }
    }

    /// 32 bits for `index`: the finalizer of MurmurHash3.
    #[must_use]
    #[inline(always)]
    pub fn bits(self, index: usize) -> u32 {
        let x = (index as u32).wrapping_mul(0x9e37_79b1).wrapping_add(self.low);
        let x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        let x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16 ^ self.high
    }

    /// A whole number below `n`, for `index`.
    #[must_use]
    #[inline(always)]
    pub fn below(self, n: usize, index: usize) -> usize {
        ((u64::from(self.bits(index)) * n as u64) >> 32) as usize
    }

    /// The number for `index`: the upper 24 bits, as a fraction.
    #[must_use]
    #[inline(always)]
    pub fn unit(self, index: usize) -> f32 {
        (self.bits(index) >> 8) as i32 as f32 / 16_777_216.0
    }
}

/// The places of values if they were sorted by magnitude, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The magnitude, as its bits.
    pub key: u32,
    /// Values before it whose magnitude is larger.
    pub larger: usize,
}

/// **sort**: what stands at `place` if values are sorted by magnitude, the largest (NaN) first.
/// Nothing is moved: a place is found by counting 2,048 kinds of keys, three times, with fewer
/// values each time.
#[must_use]
#[inline(always)]
pub fn sort(values: &[f32], place: usize) -> Place {
    let (mut key, mut known, mut larger) = (0, 0, 0);
    for (shift, bits) in [(20, 11), (10, 10), (0, 10)] {
        let mut counts = [0u32; 2048];
        for value in values {
            let bits_of_value = value.to_bits() & MAGNITUDE;
            if bits_of_value & known == key {
                counts[(bits_of_value >> shift) as usize & ((1 << bits) - 1)] += 1;
            }
        }
        let mut digit = (1 << bits) - 1;
        while digit > 0 && larger + counts[digit] as usize <= place {
            larger += counts[digit] as usize;
            digit -= 1;
        }
        key |= (digit as u32) << shift;
        known |= ((1 << bits) - 1) << shift;
    }
    Place { key, larger }
}

/// **filter**: the indices of values whose magnitude has at least the bits `key`, in order.
#[inline(always)]
pub fn filter(values: &[f32], key: u32) -> impl Iterator<Item = usize> + Clone + '_ {
    let kept = move |value: &f32| value.to_bits() & MAGNITUDE >= key;
    // Most steps have none: one look at all of them is faster than a look at each.
    let any = move |step: &[f32]| step.iter().fold(false, |any, value| any | kept(value));
    let steps = values.chunks(STEP).enumerate().filter(move |(_, step)| any(step));
    steps.flat_map(move |(at, step)| {
        step.iter().enumerate().filter(move |(_, value)| kept(value)).map(move |(i, _)| at * STEP + i)
    })
}

/// The place from which values are sent if they should be from `place` on: zeros never are, and if
/// a value is not finite, only such ones.
#[must_use]
#[inline(always)]
pub fn worth(values: &[f32], place: Place) -> Place {
    match place.key {
        _ if peak(values).is_nan() => Place { key: INFINITE, larger: 0 },
        0 => Place { key: 1, larger: 0 },
        _ => place,
    }
}

/// So many percent of `n` values, rounded up.
#[must_use]
pub fn share(n: usize, percent: f64) -> usize {
    let exact = n as f64 * percent / 100.0;
    let whole = exact as usize;
    (whole + usize::from((whole as f64) < exact)).min(n)
}

/// The bytes of `count` among `n` values, with their number and indices.
#[must_use]
pub fn sparse_len(n: usize, count: usize) -> usize {
    4 + numbers_len(index_bits(n), count) + 4 * count
}

/// **map**: makes a code of each value, given its index, and leaves in it what the code lost. For
/// [`Concat::pack`].
pub struct Map<'a, F> {
    values: &'a mut [f32],
    code: F,
}

/// See [`Map`].
#[inline(always)]
pub fn map<F: FnMut(usize, &mut f32) -> u8>(values: &mut [f32], code: F) -> Map<'_, F> {
    Map { values, code }
}

/// **concat**: writes fields to the start of a slice, one after the other, little-endian.
pub struct Concat<'a> {
    out: &'a mut [u8],
    len: usize,
}

/// See [`Concat`].
pub fn concat(out: &mut [u8]) -> Concat<'_> {
    Concat { out, len: 0 }
}

impl<'a> Concat<'a> {
    /// A fresh field of so many bytes.
    #[inline(always)]
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let at = self.len;
        self.len += len;
        &mut self.out[at..at + len]
    }

    /// A number of 32 bits.
    #[inline(always)]
    pub fn u32(&mut self, value: u32) {
        self.bytes(4).copy_from_slice(&value.to_le_bytes());
    }

    /// An `f32`. All NaNs are written alike, since processors make different ones.
    #[inline(always)]
    pub fn f32(&mut self, value: f32) {
        self.u32(if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() });
    }

    /// Codes of 1, 2, 4 or 8 bits. The first stands in the lowest bits; unused bits of the last
    /// byte are zero.
    #[inline(always)]
    pub fn pack<const BITS: usize>(
        &mut self,
        Map { values, mut code }: Map<'_, impl FnMut(usize, &mut f32) -> u8>,
    ) {
        let out = self.bytes((values.len() * BITS).div_ceil(8));
        let (steps, rest) = values.as_chunks_mut::<STEP>();
        let (whole, last) = out.split_at_mut(steps.len() * STEP * BITS / 8);
        let at = steps.len() * STEP;
        for (i, (step, out)) in zip(steps, whole.chunks_exact_mut(STEP * BITS / 8)).enumerate() {
            pack_step::<BITS>(i * STEP, step, out, &mut code);
        }
        pack_step::<BITS>(at, rest, last, &mut code);
    }

    /// [`pack`](Self::pack) with a number of bits that is known only now: 1, 2, 4, and else 8.
    #[inline(always)]
    pub fn pack_bits(&mut self, bits: u32, codes: Map<'_, impl FnMut(usize, &mut f32) -> u8>) {
        match bits {
            1 => self.pack::<1>(codes),
            2 => self.pack::<2>(codes),
            4 => self.pack::<4>(codes),
            _ => self.pack::<8>(codes),
        }
    }

    /// `count` numbers of `width` bits each, at most 32, packed as [`pack`](Self::pack) does.
    #[inline(always)]
    pub fn numbers(&mut self, width: u32, count: usize, numbers: impl Iterator<Item = usize>) {
        let mut out = self.bytes(numbers_len(width, count)).iter_mut();
        let (mut word, mut bits) = (0, 0);
        for number in numbers.take(count) {
            word |= (number as u64) << bits;
            bits += width;
            while bits >= 8 {
                out.next().into_iter().for_each(|byte| *byte = word as u8);
                (word, bits) = (word >> 8, bits - 8);
            }
        }
        out.next().into_iter().for_each(|byte| *byte = word as u8);
    }

    /// Those values that `filter` keeps before and at `place`, of equal ones the first, at most
    /// `most`: their number, their indices, then they themselves. Nothing of them stays in the
    /// residual, nor of a value that is not finite, whether there was room for it or not: else one
    /// overflow would come again in as many messages as it needs. `sent` is told each index of
    /// these.
    #[inline(always)]
    pub fn sparse(&mut self, values: &mut [f32], place: Place, most: usize, mut sent: impl FnMut(usize)) {
        let (width, mut equal) = (index_bits(values.len()), most - place.larger);
        let all = &*values;
        let largest = filter(all, place.key).filter(move |index| {
            let larger = all[*index].to_bits() & MAGNITUDE > place.key;
            let first = !larger && equal > 0;
            equal -= usize::from(first);
            larger || first
        });
        let count = largest.clone().take(most).count();
        self.u32(count as u32);
        let start = self.len;
        self.numbers(width, count, largest);
        let (indices, rest) = self.out.split_at_mut(self.len);
        let mut behind = concat(rest);
        for index in extract(&indices[start..]).numbers(width, count) {
            behind.f32(core::mem::take(&mut values[index]));
            sent(index);
        }
        self.len += 4 * count;
        if place.key >= INFINITE {
            for (index, value) in values.iter_mut().enumerate().filter(|(_, value)| !value.is_finite()) {
                *value = 0.0;
                sent(index);
            }
        }
    }

    /// The number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Was nothing written?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The room behind the fields, for a field whose length only its writer knows: see
    /// [`advance`](Self::advance).
    pub fn rest(&mut self) -> &mut [u8] {
        &mut self.out[self.len..]
    }

    /// Takes the first bytes of what follows for written.
    pub fn advance(&mut self, len: usize) {
        self.len += len;
    }
}

/// The bytes that `count` numbers of `width` bits take.
#[must_use]
pub fn numbers_len(width: u32, count: usize) -> usize {
    (count as u64 * u64::from(width)).div_ceil(8) as usize
}

/// The bits of an index into `n` values.
#[must_use]
pub fn index_bits(n: usize) -> u32 {
    n.saturating_sub(1).checked_ilog2().map_or(0, |top| top + 1)
}

/// **extract**: reads fields from the start of a message, in the order in which `concat` wrote
/// them.
///
/// First [`need`](Self::need) as many bytes as the fields have: reading beyond them panics.
#[derive(Clone, Copy, Debug)]
pub struct Extract<'a> {
    src: &'a [u8],
    at: usize,
}

/// See [`Extract`].
#[must_use]
pub fn extract(src: &[u8]) -> Extract<'_> {
    Extract { src, at: 0 }
}

impl<'a> Extract<'a> {
    /// Are there `len` bytes more?
    ///
    /// # Errors
    /// There are not.
    pub fn need(&self, len: usize) -> Result<(), Malformed> {
        let (need, have) = (self.at.saturating_add(len), self.src.len());
        if need <= have { Ok(()) } else { Err(Malformed::Short { need, have }) }
    }

    /// A field of so many bytes.
    #[inline(always)]
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let at = self.at;
        self.at += len;
        &self.src[at..at + len]
    }

    /// A number of 32 bits.
    #[inline(always)]
    pub fn u32(&mut self) -> u32 {
        let bytes = self.bytes(4);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// An `f32`.
    #[inline(always)]
    pub fn f32(&mut self) -> f32 {
        f32::from_bits(self.u32())
    }

    /// Codes of 1, 2, 4 or 8 bits; `add` gets each with its place in `sum`.
    #[inline(always)]
    pub fn unpack<const BITS: usize>(&mut self, sum: &mut [f32], add: impl Fn(u8, &mut f32)) {
        let src = self.bytes((sum.len() * BITS).div_ceil(8));
        let (steps, rest) = sum.as_chunks_mut::<STEP>();
        let (whole, last) = src.split_at(steps.len() * STEP * BITS / 8);
        for (step, src) in zip(steps, whole.chunks_exact(STEP * BITS / 8)) {
            unpack_step::<BITS>(step, src, &add);
        }
        unpack_step::<BITS>(rest, last, &add);
    }

    /// [`unpack`](Self::unpack) with a number of bits that is known only now: 1, 2, 4, and else 8.
    #[inline(always)]
    pub fn unpack_bits(&mut self, bits: u32, sum: &mut [f32], add: impl Fn(u8, &mut f32)) {
        match bits {
            1 => self.unpack::<1>(sum, add),
            2 => self.unpack::<2>(sum, add),
            4 => self.unpack::<4>(sum, add),
            _ => self.unpack::<8>(sum, add),
        }
    }

    /// `count` numbers of `width` bits each, at most 32.
    #[inline(always)]
    pub fn numbers(&mut self, width: u32, count: usize) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let mut bytes = self.bytes(numbers_len(width, count)).iter();
        let (mut word, mut bits) = (0u64, 0);
        (0..count).map(move |_| {
            while bits < width {
                word |= u64::from(bytes.next().copied().unwrap_or(0)) << bits;
                bits += 8;
            }
            let number = word & ((1 << width) - 1);
            (word, bits) = (word >> width, bits - width);
            number as usize
        })
    }

    /// Adds values that [`Concat::sparse`] wrote to `sum`.
    ///
    /// # Errors
    /// There are more than `most`, an index is not above the one before or not below the length of
    /// `sum`, or the field is cut short. `sum` is then untouched.
    #[inline(always)]
    pub fn sparse(&mut self, sum: &mut [f32], most: usize) -> Result<(), Malformed> {
        self.need(4)?;
        let (at, count) = (self.at, self.u32() as usize);
        if count > most {
            return Err(Malformed::Field { what: "number of values", at });
        }
        self.need(sparse_len(sum.len(), count) - 4)?;
        let indices = self.numbers(index_bits(sum.len()), count);
        let mut next = 0;
        for index in indices.clone() {
            if index < next || index >= sum.len() {
                return Err(Malformed::Field { what: "index", at: at + 4 });
            }
            next = index + 1;
        }
        indices.for_each(|index| sum[index] += self.f32());
        Ok(())
    }

    /// The number of bytes read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.at
    }

    /// Was nothing read?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// The bytes behind the fields that were read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.src.get(self.at..).unwrap_or(&[])
    }

    /// Takes the first bytes of what follows for read.
    pub fn advance(&mut self, len: usize) {
        self.at += len;
    }
}

/// At most `STEP` values become codes.
#[inline(always)]
fn pack_step<const BITS: usize>(
    at: usize,
    values: &mut [f32],
    out: &mut [u8],
    code: &mut impl FnMut(usize, &mut f32) -> u8,
) {
    let mut codes = [0; STEP];
    for (i, (to, value)) in zip(&mut codes, values).enumerate() {
        *to = code(at + i, value);
    }
    let mut packed = [0; STEP];
    for (to, eight) in zip(packed.chunks_exact_mut(BITS), codes.as_chunks().0) {
        to.copy_from_slice(&squeeze::<BITS>(u64::from_le_bytes(*eight)).to_le_bytes()[..BITS]);
    }
    out.copy_from_slice(&packed[..out.len()]);
}

/// At most `STEP` codes are added.
#[inline(always)]
fn unpack_step<const BITS: usize>(sum: &mut [f32], src: &[u8], add: &impl Fn(u8, &mut f32)) {
    let mut packed = [0; STEP];
    packed[..src.len()].copy_from_slice(src);
    let mut codes = [0; STEP];
    for (eight, from) in zip(codes.as_chunks_mut().0, packed.chunks_exact(BITS)) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(from);
        *eight = spread::<BITS>(u64::from_le_bytes(word)).to_le_bytes();
    }
    for (sum, code) in zip(sum, codes) {
        add(code, sum);
    }
}

/// The lowest `bits` of every lane of `lane` bits.
const fn every(lane: usize, bits: usize) -> u64 {
    let (mut mask, mut at) = (0, 0);
    while at < 64 {
        mask |= (u64::MAX >> (64 - bits)) << at;
        at += lane;
    }
    mask
}

/// Eight codes, each in a byte, moved together.
#[inline(always)]
fn squeeze<const BITS: usize>(codes: u64) -> u64 {
    if BITS == 1 {
        // The product's highest byte has the codes' lowest bits: the bit of byte i moves by 56 - 7
        // * i, and no two meet.
        return codes.wrapping_mul(0x0102_0408_1020_4080) >> 56;
    }
    let pairs = (codes | codes >> (8 - BITS)) & every(16, 2 * BITS);
    let fours = (pairs | pairs >> (16 - 2 * BITS)) & every(32, 4 * BITS);
    (fours | fours >> (32 - 4 * BITS)) & every(64, 8 * BITS)
}

/// The way back from `squeeze`.
#[inline(always)]
fn spread<const BITS: usize>(codes: u64) -> u64 {
    let fours = (codes | codes << (32 - 4 * BITS)) & every(32, 4 * BITS);
    let pairs = (fours | fours << (16 - 2 * BITS)) & every(16, 2 * BITS);
    (pairs | pairs << (8 - BITS)) & every(8, BITS)
}
