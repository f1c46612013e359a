//! Residuals: what a rank's messages lost, from one exchange to the next.

use std::collections::BTreeMap;

use crate::layout::{Hash, Layout, MAX_NAME};

/// By the name of a tensor: what its messages lost so far, and what else its codec keeps.
///
/// Every loss is here, in the units of the gradient of the tensor: what was lost of the rank's own
/// gradient, and what was lost of a sum that this rank owned. Both are added to the next gradient,
/// before a plan scales or factors it. So nothing depends on who owned which partition, and a
/// tensor may get another codec, other partitions or other owners. If the number of ranks changes,
/// see [`share`](Self::share).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Residuals {
    tensors: BTreeMap<String, Residual>,
    /// Since a mark: what tensors were when they were taken away for the first time.
    before: Option<BTreeMap<String, Residual>>,
}

/// One tensor's.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Residual {
    /// The loss so far.
    pub(crate) sum: Vec<f32>,
    /// The codec whose states these are.
    pub(crate) codec: String,
    /// By partition.
    pub(crate) states: Vec<Vec<f32>>,
}

const MAGIC: &[u8; 8] = b"gwheld\0\x01";

impl Residuals {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tensors, and the residual of each.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[f32])> {
        self.tensors.iter().map(|(name, residuals)| (&name[..], &residuals.sum[..]))
    }

    /// The residual of a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.tensors.get(name).map(|residuals| &residuals.sum[..])
    }

    /// Whether each residual has as many values as its tensor.
    ///
    /// # Errors
    /// The first one that has not.
    pub(crate) fn fits(&self, layout: &Layout) -> Result<(), ResidualError> {
        for (name, range) in layout.tensors() {
            let before = self.get(name).map_or(0, <[f32]>::len);
            if before != 0 && before != range.len() {
                return Err(ResidualError::Values { name: name.clone(), before, now: range.len() });
            }
        }
        Ok(())
    }

    /// Adds the residual of a tensor to its `gradient`, of as many values, and clears it: for
    /// whoever sends it in other units than the gradient's, or without a codec that feeds back. If
    /// there is no gradient, it stays: nobody may want the result.
    pub(crate) fn release(&mut self, name: &str, gradient: &mut [f32]) {
        if is_zero(gradient) {
            return;
        }
        self.remember(name);
        if let Some(residuals) = self.tensors.remove(name) {
            gradient.iter_mut().zip(residuals.sum).for_each(|(gradient, residuals)| *gradient += residuals);
        }
    }

    /// Remembers the residuals of now, for [`undo`](Self::undo). From now on, what is taken is
    /// copied once.
    pub fn mark(&mut self) {
        self.before = Some(BTreeMap::new());
    }

    /// Restores the residuals of the last [`mark`](Self::mark), because nobody applied what was
    /// delivered since: the step was skipped, and the sums had residuals in them.
    pub fn undo(&mut self) {
        for (name, residuals) in self.before.replace(BTreeMap::new()).unwrap_or_default() {
            if residuals.sum.is_empty() {
                self.tensors.remove(&name);
            } else {
                self.tensors.insert(name, residuals);
            }
        }
    }

    fn remember(&mut self, name: &str) {
        if let Some(before) = &mut self.before
            && !before.contains_key(name)
        {
            before.insert(name.to_owned(), self.tensors.get(name).cloned().unwrap_or_default());
        }
    }

    /// Takes a tensor's away to work with it; zeros if there is none, or none of its codec.
    pub(crate) fn take(
        &mut self,
        name: &str,
        values: usize,
        codec: &str,
        states: impl Iterator<Item = usize>,
    ) -> Result<Residual, ResidualError> {
        self.remember(name);
        let mut residuals = self.tensors.remove(name).unwrap_or_default();
        if residuals.sum.is_empty() {
            residuals.sum = vec![0.0; values];
        }
        if residuals.sum.len() != values {
            let before = residuals.sum.len();
            self.put(name, residuals);
            return Err(ResidualError::Values { name: name.to_owned(), before, now: values });
        }
        let lens: Vec<usize> = states.collect();
        if residuals.codec != codec || !residuals.states.iter().map(Vec::len).eq(lens.iter().copied()) {
            let whole = residuals.states.concat();
            // A number for each value, such as a velocity, only has to be cut elsewhere.
            let recut = residuals.codec == codec && whole.len() == lens.iter().sum::<usize>();
            let mut rest = if recut { &whole[..] } else { &[] };
            let state = |len| rest.split_off(..len).map_or_else(|| vec![0.0; len], <[f32]>::to_vec);
            residuals.states = lens.into_iter().map(state).collect();
            residuals.codec = codec.to_owned();
        }
        Ok(residuals)
    }

    /// Brings it back.
    pub(crate) fn put(&mut self, name: &str, residuals: Residual) {
        self.tensors.insert(name.to_owned(), residuals);
    }

    /// Brings it back, and adds it to what stayed.
    pub(crate) fn put_to(&mut self, name: &str, residuals: Residual) {
        match self.tensors.get_mut(name) {
            Some(stayed) => stayed.sum.iter_mut().zip(&residuals.sum).for_each(|(sum, new)| *sum += new),
            None => self.put(name, residuals),
        }
    }

    /// Forgets a tensor; its residual is lost.
    pub fn forget(&mut self, name: &str) {
        self.tensors.remove(name);
    }

    /// Adds the residuals of another rank, who leaves, and what else its codecs kept: velocities
    /// add up, and of factors any multiple is as good. Where this rank has another codec, only its
    /// own is kept.
    ///
    /// # Errors
    /// A tensor has other values there; then nothing is added.
    pub fn absorb(&mut self, other: Self) -> Result<(), ResidualError> {
        for (name, theirs) in &other.tensors {
            let mine = self.tensors.get(name).map_or(theirs.sum.len(), |mine| mine.sum.len());
            if mine != theirs.sum.len() {
                let (before, now) = (theirs.sum.len(), mine);
                return Err(ResidualError::Values { name: name.clone(), before, now });
            }
        }
        for (name, theirs) in other.tensors {
            match self.tensors.get_mut(&name) {
                Some(mine) => {
                    mine.sum.iter_mut().zip(&theirs.sum).for_each(|(mine, theirs)| *mine += theirs);
                    let same = mine.codec == theirs.codec;
                    let pairs = mine.states.iter_mut().zip(&theirs.states).filter(|_| same);
                    for (mine, theirs) in pairs.filter(|(mine, theirs)| mine.len() == theirs.len()) {
                        mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
                    }
                }
                None => self.put(&name, theirs),
            }
        }
        Ok(())
    }

    /// The residuals that rank `me` of `ranks` goes on with, if `before` are the residuals of all
    /// ranks before, by their ranks. A rank that has a successor of its own rank hands everything
    /// to it, and the others' is shared out, so nothing is lost. New ranks start with nothing.
    ///
    /// # Errors
    /// There is no such rank, or two ranks before had tensors of one name with other values.
    pub fn share(before: Vec<Self>, me: usize, ranks: usize) -> Result<Self, ResidualError> {
        if me >= ranks {
            return Err(ResidualError::NoSuchRank { me, ranks });
        }
        let mut mine = Self::new();
        for residuals in before.into_iter().skip(me).step_by(ranks) {
            mine.absorb(residuals)?;
        }
        Ok(mine)
    }

    /// All of it as bytes for a checkpoint; [`load`](Self::load) reads them on any processor.
    /// Tensors without a residual, and whose codec is in its first state, need no bytes.
    ///
    /// ```text
    /// "gwheld" 0 1 | tensors | per tensor: name, values, codec, states | hash
    /// ```
    /// Numbers are little-endian, counts have 32 bits, names and values have their count before
    /// them, and the hash is FNV-1a of 64 bits.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let count = |out: &mut Vec<u8>, count: usize| out.extend((count as u32).to_le_bytes());
        let values = |out: &mut Vec<u8>, values: &[f32]| {
            count(out, values.len());
            values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        };
        let text = |out: &mut Vec<u8>, text: &str| {
            count(out, text.len());
            out.extend(text.as_bytes());
        };
        let new = |residuals: &Residual| {
            is_zero(&residuals.sum) && residuals.states.iter().all(|state| is_zero(state))
        };
        let tensors = || self.tensors.iter().filter(|(_, residuals)| !new(residuals));
        count(&mut out, tensors().count());
        for (name, residuals) in tensors() {
            text(&mut out, name);
            values(&mut out, &residuals.sum);
            text(&mut out, &residuals.codec);
            count(&mut out, residuals.states.len());
            residuals.states.iter().for_each(|state| values(&mut out, state));
        }
        let mut hash = Hash::new();
        hash.bytes(&out);
        out.extend(hash.0.to_le_bytes());
        out
    }

    /// Reads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The bytes are not that, or not all of it.
    pub fn load(bytes: &[u8]) -> Result<Self, ResidualError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.bytes(8)? != MAGIC {
            return Err(ResidualError::Foreign);
        }
        let mut residuals = Self::new();
        for _ in 0..reader.count()? {
            let name = reader.text()?;
            let sum = reader.values()?;
            let codec = reader.text()?;
            // No capacity by a count that was not checked: each state takes at least four bytes of
            // what there is.
            let states = (0..reader.count()?).map(|_| reader.values()).collect::<Result<_, _>>()?;
            residuals.tensors.insert(name, Residual { sum, codec, states });
        }
        let mut hash = Hash::new();
        hash.bytes(&bytes[..reader.at]);
        let at = reader.at;
        if reader.bytes(8)? != hash.0.to_le_bytes() || reader.at != bytes.len() {
            return Err(ResidualError::Damaged { at });
        }
        Ok(residuals)
    }
}

/// Reads no more than there is.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], ResidualError> {
        let end = self.at.checked_add(len);
        let bytes =
            end.and_then(|end| self.bytes.get(self.at..end)).ok_or(ResidualError::Damaged { at: self.at })?;
        self.at += len;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<usize, ResidualError> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    fn values(&mut self) -> Result<Vec<f32>, ResidualError> {
        let len = self.count()?.checked_mul(4).ok_or(ResidualError::Damaged { at: self.at })?;
        Ok(self.bytes(len)?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn text(&mut self) -> Result<String, ResidualError> {
        let (at, len) = (self.at, self.count()?);
        let damaged = ResidualError::Damaged { at };
        if len > MAX_NAME {
            return Err(damaged);
        }
        String::from_utf8(self.bytes(len)?.to_vec()).map_err(|_| damaged)
    }
}

/// Why residuals do not fit.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum ResidualError {
    /// A tensor has another number of values than before.
    #[error(
        "tensor '{name}' had {before} values and now has {now}: its residual fits no longer; give it another name, \
         or forget it"
    )]
    Values { name: String, before: usize, now: usize },
    /// Other bytes.
    #[error("these are no residuals: the file starts with other bytes than what was saved")]
    Foreign,
    /// Cut off or changed.
    #[error("the residuals are cut off or damaged near byte {at}: load the whole file that was saved")]
    Damaged { at: usize },
    /// A rank beyond the ranks.
    #[error("rank {me} of {ranks}: ranks go from 0 to one less than the ranks")]
    NoSuchRank { me: usize, ranks: usize },
}

/// Is there no gradient? That of a parameter that was not used is all zeros.
pub(crate) fn is_zero(gradient: &[f32]) -> bool {
    gradient.iter().all(|value| *value == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residuals(tensors: &[(&str, &[f32])]) -> Residuals {
        let mut residuals = Residuals::new();
        for (name, sum) in tensors {
            let states = vec![vec![1.0, f32::NEG_INFINITY], vec![]];
            residuals.put(name, Residual { sum: sum.to_vec(), codec: "dgc:1".into(), states });
        }
        residuals
    }

    #[test]
    fn saved_residuals_are_loaded_and_nothing_else() {
        let saved = residuals(&[("fc", &[1.0, -0.0, 3.5]), ("ünïcode", &[])]).save();
        assert_eq!(Residuals::load(&saved).unwrap().save(), saved);
        assert_eq!(Residuals::load(&Residuals::new().save()), Ok(Residuals::new()));
        for len in 0..saved.len() {
            assert!(Residuals::load(&saved[..len]).is_err(), "{len} bytes");
        }
        for at in 0..saved.len() {
            let mut other = saved.clone();
            other[at] ^= 0x40;
            assert!(Residuals::load(&other).is_err(), "byte {at}");
        }
        assert!(Residuals::load(&[&saved[..], &[0]].concat()).is_err());
    }

    #[test]
    fn nothing_takes_no_bytes() {
        let mut all = residuals(&[("a", &[1.0])]);
        let saved = all.save();
        let states = vec![vec![0.0; 500]];
        all.put("b", Residual { sum: vec![0.0, -0.0], codec: "q8".into(), states });
        assert_eq!(all.save(), saved);
        // A velocity is more than nothing.
        all.put("b", Residual { sum: vec![0.0], codec: "dgc:1:0.9".into(), states: vec![vec![0.5]] });
        assert_eq!(Residuals::load(&all.save()), Ok(all));
    }

    #[test]
    fn no_number_of_ranks_loses_anything() {
        for before in 1..7 {
            for after in 1..7 {
                let all: Vec<Residuals> =
                    (0..before).map(|rank| residuals(&[("a", &[1.0, 2f32.powi(rank)])])).collect();
                let shared = (0..after).map(|me| Residuals::share(all.clone(), me, after).unwrap());
                let sums = shared.filter_map(|residuals| residuals.get("a").map(<[f32]>::to_vec));
                let total = sums.fold([0.0; 2], |total, sum| [total[0] + sum[0], total[1] + sum[1]]);
                assert_eq!(total, [before as f32, 2f32.powi(before) - 1.0]);
            }
        }
        assert!(Residuals::share(Vec::new(), 2, 2).is_err());
        let different = vec![residuals(&[("a", &[1.0])]), residuals(&[("a", &[1.0, 2.0])])];
        assert_eq!(
            Residuals::share(different, 0, 1),
            Err(ResidualError::Values { name: "a".into(), before: 2, now: 1 })
        );
    }

    #[test]
    fn velocities_follow_their_values_into_other_partitions_and_to_fewer_ranks() {
        let mut all = residuals(&[("a", &[1.0, 2.0, 3.0])]);
        let states = vec![vec![1.0, 2.0], vec![3.0]];
        all.put("a", Residual { sum: vec![0.0; 3], codec: "dgc:1:0.9".into(), states });
        all.absorb(all.clone()).unwrap();
        let cut = all.take("a", 3, "dgc:1:0.9", [1, 1, 1].into_iter()).unwrap();
        assert_eq!(cut.states, [[2.0], [4.0], [6.0]]);
        all.put("a", cut);
        // Of another length it is something else.
        assert_eq!(all.take("a", 3, "dgc:1:0.9", [4].into_iter()).unwrap().states, [[0.0; 4]]);
    }

    #[test]
    fn residuals_of_a_mark_come_back() {
        let mut all = residuals(&[("a", &[1.0, 2.0]), ("b", &[3.0])]);
        let whole = all.clone();
        let lens = || [2, 0].into_iter();
        for _ in 0..2 {
            all.mark();
            for _ in 0..2 {
                let mut taken = all.take("a", 2, "q8", lens()).unwrap();
                taken.sum.fill(7.0);
                all.put("a", taken);
                all.release("b", &mut [1.0]);
                let new = all.take("c", 1, "q8", lens()).unwrap();
                all.put("c", new);
            }
            assert_eq!(all.get("a"), Some(&[7.0, 7.0][..]));
            all.undo();
            assert_eq!(all.tensors, whole.tensors);
        }
    }

    #[test]
    fn another_codec_keeps_the_residual_and_starts_its_own_state() {
        let mut all = residuals(&[("a", &[1.0, 2.0])]);
        let lens = || [2, 0].into_iter();
        let same = all.take("a", 2, "dgc:1", lens()).unwrap();
        assert_eq!(same.states[0], [1.0, f32::NEG_INFINITY]);
        all.put("a", same);
        let other = all.take("a", 2, "q8", [1].into_iter()).unwrap();
        assert_eq!((&other.sum[..], &other.states[..]), (&[1.0, 2.0][..], &[vec![0.0]][..]));
        all.put("a", other);
        assert!(all.take("a", 3, "q8", lens()).is_err());
        assert_eq!(all.get("a"), Some(&[1.0, 2.0][..]));
    }
}
