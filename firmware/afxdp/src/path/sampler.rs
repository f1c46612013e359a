//! Looks at a few of the compressed frames: how much of their values is left. The engines hold the
//! bound of every value; whether the bound suits the values, nobody knows who does not look.

use gradwire::engine::Coded;
use gradwire::kernels::Kernel;
use gradwire::rules::MAX_RULES;

use crate::telemetry::Sampled;

/// One of so many compressed frames is looked at, and the first. To restore a frame takes less than
/// to compress it.
const EVERY: u32 = 256;

/// Restores frames and compares them, for each rule.
#[derive(Debug)]
pub struct Sampler {
    kernel: Kernel,
    /// Frames that pass before the next one is looked at.
    pass: u32,
    /// Room for the values of a frame.
    restored: Box<[u8]>,
    sampled: [Sampled; MAX_RULES],
}

impl Sampler {
    /// For IP packets of at most `mtu` bytes.
    #[must_use]
    pub fn new(kernel: Kernel, mtu: u16) -> Self {
        let restored = vec![0; mtu.into()].into();
        Self { kernel, pass: 0, restored, sampled: [Sampled::NONE; MAX_RULES] }
    }

    /// A frame was compressed.
    pub fn observe(&mut self, coded: Coded<'_>) {
        if self.pass > 0 {
            self.pass -= 1;
            return;
        }
        self.pass = EVERY - 1;
        let Some(restored) = self.restored.get_mut(..coded.values.len()) else { return };
        // The kernel's own groups: it does not refuse them.
        if self.kernel.decode(coded.groups, restored, coded.profile).is_ok()
            && let Some(sampled) = self.sampled.get_mut(coded.rule)
        {
            sampled.frame(coded.values, restored);
        }
    }

    /// By the rules' places.
    #[must_use]
    pub const fn sampled(&self) -> &[Sampled; MAX_RULES] {
        &self.sampled
    }

    /// Other rules are in force.
    pub fn clear(&mut self) {
        self.sampled = [Sampled::NONE; MAX_RULES];
        self.pass = 0;
    }
}

#[cfg(test)]
mod tests {
    use gradwire::codec::bit_plane::Bound;

    use super::*;

    #[test]
    fn the_first_frame_is_looked_at_and_then_one_of_many() {
        let kernel = Kernel::detect();
        let profile = Bound::new(-10).unwrap().into();
        // Half of the values are far below the bound.
        let values: Vec<u8> =
            (0..100).flat_map(|i| if i % 2 == 0 { 1e-6f32 } else { 0.5 }.to_le_bytes()).collect();
        let mut groups = vec![0; 1000];
        let len = kernel.encode(&values, &mut groups, profile).unwrap();
        let mut sampler = Sampler::new(kernel, 1500);
        let coded = Coded { rule: 1, profile, values: &values, groups: &groups[..len] };
        for _ in 0..=EVERY {
            sampler.observe(coded);
        }
        let [none, sampled, ..] = sampler.sampled();
        assert_eq!(*none, Sampled::NONE);
        assert_eq!((sampled.frames, sampled.values, sampled.zeroed), (2, 200, 100));
        assert!(sampled.norm_lost().unwrap().abs() < 0.01, "{sampled:?}");

        // Longer than any frame: not looked at.
        let mut small = Sampler::new(kernel, 399);
        small.observe(coded);
        assert_eq!(*small.sampled(), [Sampled::NONE; MAX_RULES]);
        sampler.clear();
        assert_eq!(*sampler.sampled(), [Sampled::NONE; MAX_RULES]);
    }
}
