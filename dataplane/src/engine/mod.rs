//! The path of a frame: in, verdict, out. Start reading here.
//!
//! ```text
//! egress   host -> IP header -> rule by ToS -> packet whole and right? -> flow: alignment, resend, trust
//!               -> groups -> headers -> wire
//! ingress  wire -> IP header -> marked, or shorter than it says? -> checksums, segment header
//!               -> values -> headers -> host
//! ```
//!
//! Whatever is in doubt leaves egress untouched. Ingress drops what says that it is compressed and
//! is not right: TCP sends it again, and egress does not compress what is sent again.
//!
//! Before that, the two ends agree: egress advertises on a SYN what its host restores, ingress
//! records it, and egress asks the [`CapabilityTable`] what the far end advertised (FORMAT.md
//! §5.5).

mod compress;
mod egress;
mod ingress;

pub use crate::flow::Millis;
pub use crate::flow::capabilities::{CapabilityTable, NO_CAPABILITIES};
pub use egress::{Coded, Egress};
pub use ingress::Ingress;
