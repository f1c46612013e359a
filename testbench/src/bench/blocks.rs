//! Blocks on which sums in the network are measured: blocks of values, and what an aggregator does
//! to them.

use std::hint::black_box;

use gradwire::kernels::Kernel;
use gradwire::sums::{BLOCK_LEN, BLOCK_VALUES, Summable, limit};

use super::distributions::Distribution;
use super::payloads::PASS_VALUES;

/// Blocks that one pass handles: as many values as a pass of payloads has.
const BLOCKS: usize = PASS_VALUES / BLOCK_VALUES;
/// Blocks of a packet. All are decoded before one is added.
const PACKET_BLOCKS: usize = 16;
/// Whose values are summed.
const WORKERS: usize = 4;
/// Room for a section, and for what kernels write behind it.
const SECTION_ROOM: usize = 1024;

type Values = [u8; BLOCK_LEN];
type Sums = [i32; BLOCK_VALUES];

/// The work on each block.
#[derive(Clone, Copy, Debug)]
pub enum BlockWork {
    /// A worker encodes its values.
    Encode(Kernel),
    /// The values are decoded.
    Decode(Kernel),
    /// As an aggregator adds: the values are decoded to units, sixteen blocks at a time as in its
    /// packets, and then added to sums; or code is added straight to sums, where a kernel does
    /// that.
    Add(Kernel),
    /// Sums of four workers are encoded.
    Sums(Kernel),
}

impl BlockWork {
    /// All that is done with a kernel.
    #[must_use]
    pub fn all(kernel: Kernel) -> [(&'static str, Self); 4] {
        [
            ("encode-block", Self::Encode(kernel)),
            ("decode-block", Self::Decode(kernel)),
            ("add", Self::Add(kernel)),
            ("sums", Self::Sums(kernel)),
        ]
    }
}

/// Blocks of one distribution: values, their sections, the sums of four workers, and room for all.
#[derive(Debug)]
pub struct Blocks {
    profile: Summable,
    values: Vec<Values>,
    sections: Vec<([u8; SECTION_ROOM], usize)>,
    sums: Vec<Sums>,
    encoded: Vec<[u8; SECTION_ROOM]>,
    decoded: Vec<Values>,
    units: [Sums; PACKET_BLOCKS],
    added: Vec<Sums>,
}

impl Blocks {
    /// Blocks of `distribution`, encoded with `profile`.
    ///
    /// # Panics
    /// A section does not fit, which only a kernel that is wrong makes.
    #[must_use]
    pub fn new(distribution: &Distribution, profile: Summable) -> Self {
        let bytes = distribution.values(WORKERS * BLOCKS * BLOCK_VALUES);
        let (blocks, _) = bytes.as_chunks::<BLOCK_LEN>();
        let section = |values: &Values| {
            let mut section = [0; SECTION_ROOM];
            let coded = Kernel::PORTABLE.encode(values, &mut section, profile.profile());
            let len = coded.expect("room for a section");
            (section, len)
        };
        let sections: Vec<_> = blocks.iter().map(section).collect();
        let mut sums = vec![[0; BLOCK_VALUES]; BLOCKS];
        for (number, (section, len)) in sections.iter().enumerate() {
            let mut units = [0; BLOCK_VALUES];
            let units_len = decode_units(Kernel::PORTABLE, &section[..*len], &mut units, profile);
            assert_eq!(units_len, Some(*len), "what was encoded is decoded");
            Kernel::PORTABLE.add(&units, &mut sums[number % BLOCKS]);
        }
        Self {
            profile,
            values: blocks[..BLOCKS].to_vec(),
            sections: sections[..BLOCKS].to_vec(),
            sums,
            encoded: vec![[0; SECTION_ROOM]; BLOCKS],
            decoded: vec![[0; BLOCK_LEN]; BLOCKS],
            units: [[0; BLOCK_VALUES]; PACKET_BLOCKS],
            added: vec![[0; BLOCK_VALUES]; BLOCKS],
        }
    }

    /// Does `work` to every block.
    pub fn pass(&mut self, work: BlockWork) {
        // `black_box`: no length, and no result, may be known to the compiler.
        match work {
            BlockWork::Encode(kernel) => {
                for (values, to) in self.values.iter().zip(&mut self.encoded) {
                    let to = black_box(to.as_mut_slice());
                    let _ = black_box(kernel.encode(black_box(values), to, self.profile.profile()));
                }
            }
            BlockWork::Decode(kernel) => {
                for (section, to) in self.sections.iter().zip(&mut self.decoded) {
                    let to = black_box(to.as_mut_slice());
                    let _ = black_box(kernel.decode(code(section), to, self.profile.profile()));
                }
            }
            BlockWork::Add(kernel) => {
                let packets = self.sections.chunks(PACKET_BLOCKS).zip(self.added.chunks_mut(PACKET_BLOCKS));
                let adder = kernel.adder(self.profile, limit(WORKERS as u8));
                for (sections, sums) in packets {
                    if let Some(adder) = adder {
                        for (section, sums) in sections.iter().zip(sums) {
                            let codes = adder.codes(code(section), BLOCK_VALUES);
                            let _ = black_box(codes.map(|mut codes| codes.add(black_box(sums))));
                        }
                        continue;
                    }
                    for (section, units) in sections.iter().zip(&mut self.units) {
                        let _ = black_box(decode_units(kernel, code(section), units, self.profile));
                    }
                    for (units, sums) in self.units.iter().zip(sums) {
                        let _ = black_box(kernel.add(black_box(units), black_box(sums)));
                    }
                }
            }
            BlockWork::Sums(kernel) => {
                for (sums, to) in self.sums.iter().zip(&mut self.encoded) {
                    let _ = black_box(kernel.encode_result(black_box(sums), black_box(to), self.profile));
                }
            }
        }
        black_box(self);
    }
}

fn code((section, len): &([u8; SECTION_ROOM], usize)) -> &[u8] {
    black_box(&section[..*len])
}

fn decode_units(kernel: Kernel, section: &[u8], units: &mut Sums, profile: Summable) -> Option<usize> {
    kernel.decode_units(section, units, profile, limit(WORKERS as u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{distributions, profiles};

    #[test]
    fn every_kernel_does_all_of_the_work() {
        let of_distributions = profiles()
            .into_iter()
            .flat_map(|profile| distributions::ALL.map(|distribution| (profile, distribution)));
        for (profile, distribution) in of_distributions {
            let profile = Summable::try_from(profile).unwrap();
            let unit = f64::from(profile.unit().value());
            for kernel in Kernel::available() {
                let mut blocks = Blocks::new(&distribution, profile);
                BlockWork::all(kernel).into_iter().for_each(|(_, work)| blocks.pass(work));
                for (sums, encoded) in blocks.sums.iter().zip(&blocks.encoded) {
                    let mut expected = [0; SECTION_ROOM];
                    let len = profile.encode_result(sums, &mut expected).unwrap();
                    assert_eq!(encoded[..len], expected[..len]);
                }
                let sections = blocks.sections.iter().zip(&blocks.decoded).zip(&blocks.added);
                for (((section, len), decoded), added) in sections {
                    let mut expected = [0; BLOCK_VALUES];
                    let units = profile.decode_units(&section[..*len], &mut expected, limit(4));
                    assert_eq!((units, *added), (Some(*len), expected));
                    for (value, units) in decoded.as_chunks().0.iter().zip(expected) {
                        let value = f32::from_bits(u32::from_le_bytes(*value));
                        // Raw values may be half a unit off.
                        assert!((f64::from(value) / unit - f64::from(units)).abs() <= 0.5);
                    }
                }
            }
        }
    }
}
