//! Frames that chance would take long to come up with.

use super::compare::{Expected, Host, ingress};
use super::frames::Shape;
use super::settings::{MARK, rules};
use super::traffic::seal;

/// A datagram whose checksum is 0 and is sent as 0xffff, also once it is restored: its values are
/// zeros.
fn sums_to_zero() -> Shape {
    let mut shape = Shape::datagram(0xa8, vec![0; 330]);
    let (at, frame) = (shape.l4_at() + 6, shape.frame());
    shape.payload[..2].copy_from_slice(&frame[at..at + 2]);
    shape
}

pub fn of_host() -> [Expected; 2] {
    // Of values that stay raw, the compressor makes more than the longest frame.
    let shapes = [Shape::datagram(0x48, vec![0x7f; 9100]), sums_to_zero()];
    let mut host = Host::new(&rules());
    let expected = shapes.map(|shape| host.classify(&shape.frame()));
    assert_eq!(expected.each_ref().map(|one| one.place), [33, 0]);
    expected
}

pub fn from_wire() -> [Expected; 4] {
    let [_, zero] = of_host();
    let zero = zero.out.unwrap();
    // The frame was marked before it was compressed, says its segment header.
    let mut marked = zero.clone();
    marked[sums_to_zero().payload_at() + 2] = MARK;
    seal(&mut marked, 0x6777);
    let mut fragment = Shape::datagram(0x28, vec![0; 100]).frame();
    fragment[20] |= 0x20;
    // Cut short, as compressed frames are, but there was no value in it.
    let mut empty = Shape::datagram(0x28, vec![0; 3]).frame();
    empty.pop();
    let expected = [zero, marked, fragment, empty].map(|frame| ingress(&rules(), 1500, &frame).unwrap());
    assert_eq!(expected.each_ref().map(|one| one.place), [2, 45, 11, 40]);
    let restored = expected[0].out.as_ref().unwrap();
    assert_eq!(restored[40..42], [0xff, 0xff]);
    expected
}
