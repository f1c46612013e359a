//! Frames through the engines, over exactly the room that they ask for.

use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::rules::{DEFAULT_MARK, Rule, Rules};
use gradwire::verdict::Verdict;
use gradwire::wire::frame::MAX_LINK_LEN;

/// The MTU of ingress.
pub const MTU: u16 = 9216;
pub const NOW: Millis = Millis(0);

pub fn rules(rule: Rule) -> Rules {
    Rules::new(&[rule], DEFAULT_MARK).unwrap()
}

/// Egress over exactly the room it asks for.
pub fn egress(engine: &mut Egress<2>, frame: &[u8]) -> (Verdict, Vec<u8>) {
    let mut out = vec![0xaa; frame.len()];
    let verdict = engine.process(frame, &mut out, NOW, &NO_CAPABILITIES);
    (verdict, sent(verdict, frame, out))
}

pub fn ingress(engine: &mut Ingress, frame: &[u8]) -> (Verdict, Vec<u8>) {
    let mut out = vec![0x55; usize::from(MTU) + MAX_LINK_LEN];
    let verdict = engine.process(frame, &mut out, &NO_CAPABILITIES);
    (verdict, sent(verdict, frame, out))
}

fn sent(verdict: Verdict, frame: &[u8], mut out: Vec<u8>) -> Vec<u8> {
    match verdict {
        Verdict::Untouched(_) => frame.to_vec(),
        Verdict::Dropped(_) => vec![],
        Verdict::Changed { len, .. } => {
            out.truncate(len);
            out
        }
    }
}
