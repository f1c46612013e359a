//! `dgc:P[:MOMENTUM]` and `graddrop:P`: the largest values, with their indices.

use core::iter::zip;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{
    INFINITE, MAGNITUDE, Place, Random, concat, extract, filter, index_bits, numbers_len, peak, sort,
};

/// Deep gradient compression: the `percent` largest of the values as they are; all others are held back.
///
/// With a momentum it sends velocities in place of gradients (momentum correction), and where a value was sent, its velocity starts again
/// from zero (factor masking). The optimizer then has no momentum of its own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dgc {
    percent: f64,
    momentum: f32,
}

/// GradDrop: drops `percent` of the values, those below a threshold that a sample of 1,024 values gives; at most twice as many as
/// that leaves are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GradDrop {
    percent: f64,
}

impl Dgc {
    /// Sends `percent` of the values, above 0 and at most 100. The momentum is at least 0 and below 1; 0 is none, and needs no state.
    #[must_use]
    pub fn new(percent: f64, momentum: f32) -> Option<Self> {
        let good = percent > 0.0 && percent <= 100.0 && (0.0..1.0).contains(&momentum);
        good.then_some(Self { percent, momentum })
    }
}

impl GradDrop {
    /// Drops `percent` of the values: at least 50 and below 100.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        (50.0..100.0).contains(&percent).then_some(Self { percent })
    }
}

/// Values of a sample.
const SAMPLE: usize = 1024;

/// So many percent of `n` values, rounded up.
fn share(n: usize, percent: f64) -> usize {
    let exact = n as f64 * percent / 100.0;
    let whole = exact as usize;
    (whole + usize::from((whole as f64) < exact)).min(n)
}

/// The most bytes of a message of `count` among `n` values.
fn message_len(n: usize, count: usize) -> usize {
    4 + numbers_len(index_bits(n), count) + 4 * count
}

/// Sends the values before and at `place`, the first of equal ones, at most `most`: their number, their indices, then they themselves.
/// Nothing of them is held back; `sent` is told each index.
fn send(acc: &mut [f32], place: Place, most: usize, out: &mut [u8], mut sent: impl FnMut(usize)) -> usize {
    let (mut message, width) = (concat(out), index_bits(acc.len()));
    let mut equal = most - place.larger;
    let values = &*acc;
    let largest = filter(values, place.key).filter(move |index| {
        let larger = values[*index].to_bits() & MAGNITUDE > place.key;
        let first = !larger && equal > 0;
        equal -= usize::from(first);
        larger || first
    });
    let count = largest.clone().take(most).count();
    message.u32(count as u32);
    message.numbers(width, count, largest);
    let at = message.len();
    let (head, tail) = out.split_at_mut(at);
    let mut values = concat(tail);
    for index in extract(&head[4..]).numbers(width, count) {
        values.f32(core::mem::take(&mut acc[index]));
        sent(index);
    }
    message_len(acc.len(), count)
}

/// Where values begin to be sent if they should from `place` on: zeros never are, and if a value is not finite, only such ones.
fn least(acc: &[f32], place: Place) -> Place {
    match place.key {
        _ if peak(acc).is_nan() => Place { key: INFINITE, larger: 0 },
        0 => Place { key: 1, larger: 0 },
        _ => place,
    }
}

/// Adds the values of a message of at most `most`.
fn merge(src: &[u8], sum: &mut [f32], most: usize) -> Result<usize, Malformed> {
    let (mut src, width) = (extract(src), index_bits(sum.len()));
    src.need(4)?;
    let count = src.u32() as usize;
    if count > most {
        return Err(Malformed::Field { what: "number of values", at: 0 });
    }
    src.need(message_len(sum.len(), count) - 4)?;
    let indices = src.numbers(width, count);
    let mut next = 0;
    for index in indices.clone() {
        if index < next || index >= sum.len() {
            return Err(Malformed::Field { what: "index", at: 4 });
        }
        next = index + 1;
    }
    indices.for_each(|index| sum[index] += src.f32());
    Ok(src.len())
}

impl Codec for Dgc {
    fn bound(&self, n: usize) -> usize {
        message_len(n, share(n, self.percent))
    }

    fn state_len(&self, n: usize) -> usize {
        if self.momentum == 0.0 { 0 } else { n }
    }

    fn give(&self, gradient: &[f32], acc: &mut [f32], state: &mut [f32]) {
        assert_eq!(gradient.len(), acc.len(), "a gradient has as many values as what was held back");
        if state.is_empty() {
            return zip(acc, gradient).for_each(|(held, new)| *held += new);
        }
        for (held, (velocity, new)) in zip(acc, zip(state, gradient)) {
            *velocity = self.momentum * *velocity + new;
            *held += *velocity;
        }
    }

    fn encode(&self, acc: &mut [f32], state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let most = share(acc.len(), self.percent);
        let place = least(acc, sort(acc, most.saturating_sub(1)));
        send(acc, place, most, out, |index| {
            if let Some(velocity) = state.get_mut(index) {
                *velocity = 0.0;
            }
        })
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        merge(src, sum, share(sum.len(), self.percent))
    }
}

impl GradDrop {
    /// The most of `n` values that are sent.
    fn most(self, n: usize) -> usize {
        (2 * share(n, 100.0 - self.percent)).min(n)
    }
}

impl Codec for GradDrop {
    fn bound(&self, n: usize) -> usize {
        message_len(n, self.most(n))
    }

    fn encode(&self, acc: &mut [f32], _state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        let (n, random) = (acc.len(), Random::new(seed));
        let mut sample = [0.0; SAMPLE];
        let sample = &mut sample[..n.min(SAMPLE)];
        for (i, value) in sample.iter_mut().enumerate() {
            *value = acc[if n <= SAMPLE { i } else { random.below(n, i) }];
        }
        let place = sort(sample, share(sample.len(), 100.0 - self.percent).saturating_sub(1));
        send(acc, least(acc, Place { larger: 0, ..place }), self.most(n), out, |_| ())
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        merge(src, sum, self.most(sum.len()))
    }
}

impl Named for Dgc {
    const NAME: &str = "dgc";
    const USAGE: &str =
        "dgc:P[:MOMENTUM], P percent of the values are sent; MOMENTUM is below 1, 0 without it";

    fn from_args(args: &Args) -> Option<Self> {
        match *args.numbers() {
            [percent] => Self::new(percent, 0.0),
            [percent, momentum] => Self::new(percent, momentum as f32),
            _ => None,
        }
    }
}

impl Named for GradDrop {
    const NAME: &str = "graddrop";
    const USAGE: &str = "graddrop:P, P percent of the values are dropped: at least 50 and below 100";

    fn from_args(args: &Args) -> Option<Self> {
        match *args.numbers() {
            [percent] => Self::new(percent),
            _ => None,
        }
    }
}
