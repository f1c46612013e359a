//! Rules as people write them, in the shim's configuration file and on the soft core's console.

use gradwire::profile::Profile;
use gradwire::rules::{Alignment, Framing, Rule};

/// `rule` is what its settings say, by the equations of FORMAT.md. `setting` has the text of a
/// setting by its name, if somebody wrote it. A rule that says nothing of its codec or its
/// heuristic has these.
///
/// # Panics
/// The rule is another one.
pub fn is_rule(rule: &Rule, (codec, heuristic): (u8, &str), setting: impl Fn(&str) -> Option<String>) {
    // FORMAT.md section 3.6.
    let preset = setting("profile").is_some_and(|name| name == "inceptionn");
    let of_preset = |name: &str| match name {
        "mask" => Some("0xff"),
        "codec" => Some("1"),
        "split" => Some("paper"),
        "framing" => Some("in-place"),
        "alignment" => Some("payload"),
        "handshake" => Some("off"),
        "heuristic" => Some("off"),
        _ => None,
    };
    let split = setting("split");
    let setting =
        |name: &str| setting(name).or_else(|| of_preset(name).filter(|_| preset).map(str::to_owned));
    let text = |name: &str, default: &str| setting(name).unwrap_or_else(|| default.to_owned());
    let number = |name: &str, default: &str| number(&text(name, default));
    assert_eq!(i64::from(rule.tos), number("tos", "0x28"));
    assert_eq!(i64::from(rule.mask), number("mask", "0xfc"));
    let b = number("bound", "10");
    let x = number("scale", "0");
    // A split is codec 1's.
    let codec = if setting("split").is_some_and(|split| split != "none") { 1 } else { codec };
    assert_eq!(i64::from(rule.profile.codec()), number("codec", &codec.to_string()));
    match rule.profile {
        Profile::SizeClass(params) => {
            assert_eq!(i64::from(params.b()), b);
            // 127 - M of FORMAT.md section 3.2.
            let k = match &text("split", "dense")[..] {
                "dense" => (b - 7).max(0),
                "paper" => b / 2,
                other => panic!("split {other}"),
            };
            assert_eq!(i64::from(params.k()), k);
            assert_eq!(i64::from(params.x()), x);
        }
        Profile::BitPlane(bound) => {
            assert_eq!(i64::from(bound.y()), x - b);
            assert!(split.is_none_or(|split| split == "none"), "a split was ignored");
        }
    }
    let framing = match &text("framing", "routed")[..] {
        "routed" => Framing::Routed,
        "in-place" => Framing::InPlace,
        other => panic!("framing {other}"),
    };
    assert_eq!(rule.framing, framing);
    let alignment = match &text("alignment", "connection")[..] {
        "connection" => Alignment::Connection,
        "payload" => Alignment::Payload,
        other => panic!("alignment {other}"),
    };
    assert_eq!(rule.alignment, alignment);
    assert_eq!(rule.handshake.name(), text("handshake", "required"));
    assert_eq!(rule.heuristic.name(), text("heuristic", heuristic));
    assert_eq!(i64::from(rule.udp_offset), number("udp-offset", "0"));
}

/// A decimal number, or a hexadecimal one behind `0x`.
///
/// # Panics
/// The text is neither.
#[must_use]
pub fn number(text: &str) -> i64 {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    i64::from_str_radix(digits, radix).expect("a number")
}
