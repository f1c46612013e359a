//! The meanings of outcomes' names, for readers of a report.

use gradwire::verdict::{Change, DropReason, PassReason};

/// The meaning of `name`, of an outcome in a report; `None` if there is no outcome of that name. A
/// dropped frame's reason stands in brackets: `dropped (groups)`.
#[must_use]
pub fn of(name: &str) -> Option<&'static str> {
    if let Some(reason) = name.strip_prefix("dropped (").and_then(|rest| rest.strip_suffix(')')) {
        return DropReason::ALL.iter().find(|known| known.name() == reason).and_then(|known| dropped(*known));
    }
    let change = Change::ALL.iter().find(|known| known.name() == name);
    let pass = PassReason::ALL.iter().find(|known| known.name() == name);
    change.and_then(|known| changed(*known)).or_else(|| pass.and_then(|known| passed(*known)))
}

const fn changed(change: Change) -> Option<&'static str> {
    Some(match change {
        Change::Compressed => "its values left in fewer bytes",
        Change::Remarked => "it looked like a compressed frame, and lost its type of service",
        Change::Restored => "its values came back",
        Change::OptionAdded => "a SYN that left with the capability option",
        Change::OptionStripped => "a SYN whose capability option was taken out",
        _ => return None,
    })
}

const fn passed(reason: PassReason) -> Option<&'static str> {
    Some(match reason {
        PassReason::NotIp => "neither IPv4 nor IPv6",
        PassReason::NoRule => "its type of service is not that of gradients",
        PassReason::Malformed => "a header is cut short, or contradicts itself",
        PassReason::Fragment => "a fragment of an IP packet",
        PassReason::Protocol => "neither TCP nor UDP, or behind an unknown extension header",
        PassReason::UdpOff => "UDP, and its rule has no handshake = \"off\"",
        PassReason::UdpOptions => "UDP options stand behind the datagram",
        PassReason::Tunnel => "a UDP port of a tunnel or of RDMA",
        PassReason::TcpFlags => "TCP with SYN, RST or URG",
        PassReason::TcpOption => "a TCP option signs or renumbers the payload (MD5, AO, MPTCP)",
        PassReason::NoPayload => "no payload, as of a bare ACK",
        PassReason::NoValue => "less payload than one whole value",
        PassReason::Trailer => "bytes follow the IP packet",
        PassReason::IpChecksum => "wrong IPv4 header checksum",
        PassReason::L4Checksum => "wrong TCP or UDP checksum, and not one left to the card",
        PassReason::AlignmentUnknown => "the connection's start was not seen, or it has ended",
        PassReason::AlignmentDoubtful => {
            "two starts of the connection were seen, or one that cannot be relied on"
        }
        PassReason::Misaligned => {
            "the payload starts within a value: in-place framing or the rule forbids it"
        }
        PassReason::NotNegotiated => "the far end's SYN did not advertise that it restores",
        PassReason::TaggedLate => "the connection's SYN was not tagged: tag before connect and listen",
        PassReason::ParametersDiffer => "the far end restores in-place frames with other parameters",
        PassReason::Resent => "TCP sends these bytes again, and they were sent before",
        PassReason::Bypassed => "the far end does not seem to restore what it is sent",
        PassReason::TableFull => "no room for another connection",
        PassReason::NotValues => "its connection carries headers, integers, text or random bytes",
        PassReason::NotShorter => "it would not get shorter",
        PassReason::NoRoom => "the output buffer is too small",
        PassReason::NotCompressed => "an ordinary frame, with nothing to restore",
        PassReason::ForeignMark => "the mark of compressed frames on a frame that no engine made",
        _ => return None,
    })
}

const fn dropped(reason: DropReason) -> Option<&'static str> {
    Some(match reason {
        DropReason::Malformed => "compressed, and a header is cut short or contradicts itself",
        DropReason::IpChecksum => "compressed, with a wrong IPv4 header checksum",
        DropReason::L4Checksum => "compressed, and its checksum is not that of a compressed segment",
        DropReason::NoChecksum => "compressed over UDP without a checksum: a host would take it for data",
        DropReason::Recomputed => "compressed, and somebody computed its checksum on the way",
        DropReason::SegmentHeader => "compressed, with a segment header that is not valid",
        DropReason::Groups => "compressed, and its groups or sections are damaged",
        DropReason::Excess => "compressed, and bytes follow the payload",
        DropReason::TooLong => "restored, it would exceed the MTU or a length field",
        DropReason::NoRoom => "the output buffer is too small",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason that the dataplane learns needs a line here.
    #[test]
    fn every_reason_has_a_legend() {
        let names = Change::ALL.iter().map(|change| change.name().to_owned());
        let names = names.chain(PassReason::ALL.iter().map(|reason| reason.name().to_owned()));
        let names = names.chain(DropReason::ALL.iter().map(|reason| format!("dropped ({reason})")));
        for name in names {
            // Beside the longest name, it fits a line of the report.
            assert!(of(&name).is_some_and(|meaning| meaning.len() <= 76), "{name}");
        }
        assert_eq!(of("nonsense"), None);
    }
}
