//! Codecs by their names, such as `3lc:1.5:1024`.
//!
//! There is no allocator, so a chosen codec is not a boxed object. It is a row of a table and some
//! numbers. Each call makes the codec of these numbers again, which is a handful of comparisons.

use core::fmt;

use crate::bounded::Bounded;
use crate::codec::{Codec, Malformed};
use crate::dgc::Dgc;
use crate::eight_bits::EightBits;
use crate::factors::Shape;
use crate::fast::Fast;
use crate::four_bits::FourBits;
use crate::graddrop::GradDrop;
use crate::half::Half;
use crate::low_rank::LowRank;
use crate::named::{Args, Named};
use crate::one_bit::OneBit;
use crate::raw::Raw;
use crate::ternary::Ternary;
use crate::terngrad::TernGrad;
use crate::three_lc::ThreeLc;
use crate::threshold::Threshold;
use crate::truncation::Truncation;

type Visit = fn(&Args, &mut dyn FnMut(&dyn Codec));

/// A row of the table of codecs.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The name: what stands before the first colon.
    pub name: &'static str,
    /// Its text.
    pub usage: &'static str,
    /// Calls back with the codec of these arguments; does nothing if they are none of its own.
    visit: Visit,
}

impl Entry {
    /// The row of a codec.
    #[must_use]
    pub const fn of<C: Named>() -> Self {
        let visit: Visit = |args, with| {
            if let Some(codec) = C::from_args(args) {
                with(&Fast(codec));
            }
        };
        Self { name: C::NAME, usage: C::USAGE, visit }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.usage)
    }
}

/// The codecs of this crate.
const BUILT_IN: &[Entry] = &[
    Entry::of::<Raw>(),
    Entry::of::<Half>(),
    Entry::of::<Truncation>(),
    Entry::of::<EightBits>(),
    Entry::of::<FourBits>(),
    Entry::of::<ThreeLc>(),
    Entry::of::<Ternary>(),
    Entry::of::<OneBit>(),
    Entry::of::<Threshold>(),
    Entry::of::<TernGrad>(),
    Entry::of::<Dgc>(),
    Entry::of::<GradDrop>(),
    Entry::of::<LowRank>(),
    Entry::of::<Bounded>(),
];

/// The codecs that one may name: those of this crate and one's own.
///
/// ```
/// use gradwire_codecs::{Entry, Named, Registry};
/// # use gradwire_codecs::{Args, Codec, Malformed, Raw};
/// # struct Mine;
/// # impl Codec for Mine {
/// #     fn bound(&self, n: usize) -> usize { Raw.bound(n) }
/// #     fn encode(&self, acc: &mut [f32], state: &mut [f32], seed: u64, out: &mut [u8]) -> usize { Raw.encode(acc, state, seed, out) }
/// #     fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> { Raw.merge(src, sum) }
/// # }
/// # impl Named for Mine {
/// #     const NAME: &str = "mine"; const USAGE: &str = "mine";
/// #     fn from_args(args: &Args) -> Option<Self> { args.numbers().is_empty().then_some(Self) }
/// # }
///
/// static CODECS: Registry = Registry::with(&[Entry::of::<Mine>()]);
/// assert_eq!(CODECS.codec("mine")?.name(), "mine");
/// assert_eq!(CODECS.codec("terngrad:3").unwrap_err().to_string(), "codec 'terngrad:3': expected terngrad[:BITS], BITS is 2, 4 or 8");
/// # Ok::<(), gradwire_codecs::NameError<'_>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    own: &'static [Entry],
}

impl Registry {
    /// The codecs of this crate.
    pub const BUILT_IN: Self = Self::with(&[]);

    /// Each codec of this crate, with parameters that people use: for benchmarks and documents.
    pub const EXAMPLES: [&str; 23] = [
        "f32",
        "f16",
        "trunc:16",
        "trunc:22",
        "trunc:24",
        "q8",
        "q8:256",
        "q4",
        "q4:256",
        "3lc:1",
        "3lc:1:1024",
        "3lc:1.75",
        "ternary",
        "onebit",
        "onebit:1024",
        "tbq:0.001",
        "terngrad",
        "terngrad:8",
        "dgc:1",
        "graddrop:99",
        "low-rank:4",
        "low-rank:16",
        "bounded:8",
    ];

    /// The codecs of this crate, and before them others.
    #[must_use]
    pub const fn with(own: &'static [Entry]) -> Self {
        Self { own }
    }

    /// All rows. Where two have one name, the first one counts.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry> + Clone + use<> {
        self.own.iter().chain(BUILT_IN)
    }

    /// The codec with this name and these arguments.
    ///
    /// # Errors
    /// There is no codec of that name, or the arguments are none of its own.
    pub fn codec<'a>(&self, text: &'a str) -> Result<Chosen, NameError<'a>> {
        let (name, args) = text.split_once(':').map_or((text, None), |(name, args)| (name, Some(args)));
        let entry = self.entries().find(|entry| entry.name == name);
        let entry = entry.ok_or(NameError::Unknown { got: text, registry: *self })?;
        let chosen = Args::parse(args).map(|args| Chosen { entry, args });
        let chosen = chosen.filter(|chosen| chosen.visit(|_| ()).is_some());
        chosen.ok_or(NameError::Arguments { got: text, usage: entry.usage })
    }
}

/// Why a name is none of a codec.
#[derive(Clone, Copy, Debug)]
pub enum NameError<'a> {
    /// No codec has this name.
    Unknown {
        /// The name that was asked for.
        got: &'a str,
        /// The registry's names.
        registry: Registry,
    },
    /// The codec has other arguments.
    Arguments {
        /// The name that was asked for.
        got: &'a str,
        /// Its text.
        usage: &'static str,
    },
}

impl fmt::Display for NameError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { got, registry } => {
                write!(f, "codec '{got}': no codec has this name; there are ")?;
                for (i, entry) in registry.entries().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, entry.name)?;
                }
                Ok(())
            }
            Self::Arguments { got, usage } => write!(f, "codec '{got}': expected {usage}"),
        }
    }
}

impl core::error::Error for NameError<'_> {}

/// A codec that was chosen by its name. It prints as that name.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    entry: &'static Entry,
    args: Args,
}

impl Chosen {
    /// The name without its arguments.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The result of `with` for the codec; nothing if the arguments are none of its own.
    fn visit<R>(&self, with: impl FnOnce(&dyn Codec) -> R) -> Option<R> {
        let (mut with, mut result) = (Some(with), None);
        (self.entry.visit)(&self.args, &mut |codec| result = with.take().map(|with| with(codec)));
        result
    }

    fn with<R>(&self, with: impl FnOnce(&dyn Codec) -> R) -> R {
        self.visit(with).expect("the arguments were good when the codec was chosen")
    }
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        self.entry.name == other.entry.name && self.args == other.args
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        self.args.numbers().iter().try_for_each(|number| write!(f, ":{number}"))
    }
}

impl Codec for Chosen {
    fn bound(&self, n: usize) -> usize {
        self.with(|codec| codec.bound(n))
    }

    fn state_len(&self, n: usize) -> usize {
        self.with(|codec| codec.state_len(n))
    }

    fn momentum(&self) -> f32 {
        self.with(|codec| codec.momentum())
    }

    fn feeds_back(&self) -> bool {
        self.with(|codec| codec.feeds_back())
    }

    fn shape(&self, n: usize) -> Option<Shape> {
        self.with(|codec| codec.shape(n))
    }

    fn give(&self, gradient: &[f32], acc: &mut [f32], state: &mut [f32]) {
        self.with(|codec| codec.give(gradient, acc, state));
    }

    fn encode(&self, acc: &mut [f32], state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        self.with(|codec| codec.encode(acc, state, seed, out))
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        self.with(|codec| codec.merge(src, sum))
    }
}
