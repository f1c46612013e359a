//! Why an aggregator refuses a child.

use core::fmt;

/// Declares the reasons of refusals with their bytes and names.
macro_rules! refusals {
    ($($(#[$doc:meta])* $item:ident = $byte:literal, $text:literal;)+) => {
        /// Why an aggregator refuses; the discriminant is its byte in the packet.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $item = $byte,)+ }

        impl Refusal {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// Its name in reports, metrics and logs; stable across versions.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$item => $text,)+ }
            }

            pub(super) const fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$item),)+ _ => None }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

refusals! {
    /// The aggregator has no such job: it was restarted, or the job's place was given away.
    UnknownJob = 1, "unknown-job";
    /// The hello has another key than the job of this number.
    Key = 2, "key";
    /// The job's epoch is later.
    OldEpoch = 3, "old-epoch";
    /// The hello disagrees with the job's: other numbers of workers, or other limits.
    Differs = 4, "differs";
    /// Another address has this child's number.
    Taken = 5, "taken";
    /// The aggregator has no room for another job.
    Full = 6, "full";
    /// The child's number, or a number of workers, is beyond what the aggregator serves.
    Workers = 7, "workers";
    /// The child is ahead of the aggregator, which must have lost the job's state.
    OutOfStep = 8, "out-of-step";
    /// The parent refuses.
    Parent = 9, "parent";
}
