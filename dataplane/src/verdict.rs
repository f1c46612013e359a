//! The verdict on a frame, and counts of verdicts.

/// The caller's duty for a frame.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Verdict {
    /// Send the frame as it came.
    Untouched(PassReason),
    /// Send the first `len` bytes of `out` in its place.
    Changed {
        /// The change.
        change: Change,
        /// Length of the new frame in bytes, without FCS; the MAC pads it if it is below the
        /// Ethernet minimum.
        len: usize,
    },
    /// Send nothing.
    Dropped(DropReason),
}

/// Declares an enum of counted outcomes with a stable name for each.
macro_rules! outcomes {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum $name { $($(#[$item_doc])* $item,)+ }

        impl $name {
            /// Every one of them, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// Its name in reports, metrics and logs; stable across versions.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$item => $text,)+ }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use outcomes;

outcomes! {
    /// The change of a frame.
    Change {
        /// Egress: the payload was compressed.
        Compressed = "compressed",
        /// Egress: the far end would have taken the host's own frame for a compressed one, by its
        /// mark or, under in-place framing, because it was cut short; its type of service was set
        /// to 0.
        Remarked = "remarked",
        /// Ingress: the payload was restored.
        Restored = "restored",
        /// Egress: the capability option was added to a SYN, which advertises what its host
        /// restores.
        OptionAdded = "option-added",
        /// Ingress: a SYN's capability was recorded, and the option taken out.
        OptionStripped = "option-stripped",
    }
}

outcomes! {
    /// Why a frame was forwarded untouched.
    PassReason {
        /// Neither IPv4 nor IPv6.
        NotIp = "not-ip",
        /// No rule matches its type of service.
        NoRule = "no-rule",
        /// A header is cut short, or contradicts itself.
        Malformed = "malformed",
        /// A fragment of an IP packet.
        Fragment = "fragment",
        /// Neither TCP nor UDP, or behind an extension header that is not understood.
        Protocol = "protocol",
        /// UDP, and its rule does not say that both ends are configured for it.
        UdpOff = "udp-off",
        /// A UDP datagram that ends before its IP packet: UDP options stand behind it (RFC 9868).
        UdpOptions = "udp-options",
        /// A UDP port of a tunnel or of RDMA, whose payload is not the tagged socket's.
        Tunnel = "tunnel",
        /// TCP with SYN, RST or URG.
        TcpFlags = "tcp-flags",
        /// A TCP option that signs or renumbers the payload (MD5, AO, MPTCP).
        TcpOption = "tcp-option",
        /// No payload: a bare ACK, for example.
        NoPayload = "no-payload",
        /// Fewer payload bytes than one whole value.
        NoValue = "no-value",
        /// Bytes follow the IP packet.
        Trailer = "trailer",
        /// The IPv4 header checksum is wrong.
        IpChecksum = "ip-checksum",
        /// The TCP or UDP checksum is wrong, and not one left to offload.
        L4Checksum = "l4-checksum",
        /// The start of the TCP connection was not seen, so where values start is not known; or it
        /// has ended.
        AlignmentUnknown = "alignment-unknown",
        /// The connection's start cannot be relied on: two different ones were seen, or one far
        /// from the payload, or one whose options bind the payload.
        AlignmentDoubtful = "alignment-doubtful",
        /// The payload does not start on a value, and in-place framing or the rule's alignment
        /// needs it to.
        Misaligned = "misaligned",
        /// The far end did not advertise on the connection's SYN that it restores this codec.
        NotNegotiated = "not-negotiated",
        /// The connection's SYN was not tagged, so nobody was asked.
        TaggedLate = "tagged-late",
        /// The far end restores in-place frames with other parameters, or none, or of another type
        /// of service.
        ParametersDiffer = "parameters-differ",
        /// TCP sends these bytes again.
        Resent = "resent",
        /// The flow's peer does not seem to restore what it is sent.
        Bypassed = "bypassed",
        /// The flow table has no room for the connection.
        TableFull = "table-full",
        /// The payload does not look like values, or what its connection sent before did not.
        NotValues = "not-values",
        /// It would not get shorter on the wire.
        NotShorter = "not-shorter",
        /// The output buffer is too small.
        NoRoom = "no-room",
        /// Ingress: an ordinary frame; nothing to restore.
        NotCompressed = "not-compressed",
        /// Ingress: the mark of compressed frames on a frame that no engine made. Its ordinary
        /// checksum is right, or it needs none, and its payload is no compressed segment.
        ForeignMark = "foreign-mark",
    }
}

outcomes! {
    /// Why a frame that says it is compressed was dropped; TCP sends its bytes again.
    DropReason {
        /// A header is cut short, or contradicts itself.
        Malformed = "malformed",
        /// The IPv4 header checksum is wrong.
        IpChecksum = "ip-checksum",
        /// The TCP or UDP checksum is not that of a compressed segment.
        L4Checksum = "l4-checksum",
        /// A compressed segment over UDP without a checksum: a host would take it for data.
        NoChecksum = "no-checksum",
        /// A compressed segment with an ordinary checksum, which somebody has computed on the way:
        /// a host would take it for data.
        Recomputed = "recomputed",
        /// The segment header is cut short, of another version or codec, or holds invalid
        /// parameters.
        SegmentHeader = "segment-header",
        /// The groups are cut short, or a lane that must be absent is not.
        Groups = "groups",
        /// Bytes follow the payload.
        Excess = "excess",
        /// The restored frame would exceed the MTU or an IP length field.
        TooLong = "too-long",
        /// The output buffer is too small.
        NoRoom = "no-room",
    }
}

impl From<PassReason> for Verdict {
    fn from(reason: PassReason) -> Self {
        Self::Untouched(reason)
    }
}

impl From<DropReason> for Verdict {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}

/// Frames and bytes, by outcome; they wrap at 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    changed: [u64; Change::ALL.len()],
    passed: [u64; PassReason::ALL.len()],
    dropped: [u64; DropReason::ALL.len()],
    changed_bytes_in: u64,
    changed_bytes_out: u64,
}

impl Counters {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            changed: [0; Change::ALL.len()],
            passed: [0; PassReason::ALL.len()],
            dropped: [0; DropReason::ALL.len()],
            changed_bytes_in: 0,
            changed_bytes_out: 0,
        }
    }

    /// Counts one frame of `frame_len` bytes.
    pub(crate) fn count(&mut self, verdict: Verdict, frame_len: usize) {
        let slot = match verdict {
            Verdict::Untouched(reason) => self.passed.get_mut(reason as usize),
            Verdict::Dropped(reason) => self.dropped.get_mut(reason as usize),
            Verdict::Changed { change, len } => {
                self.changed_bytes_in = self.changed_bytes_in.wrapping_add(frame_len as u64);
                self.changed_bytes_out = self.changed_bytes_out.wrapping_add(len as u64);
                self.changed.get_mut(change as usize)
            }
        };
        if let Some(count) = slot {
            *count = count.wrapping_add(1);
        }
    }

    /// Frames changed this way.
    #[must_use]
    pub fn changed(&self, change: Change) -> u64 {
        self.changed.get(change as usize).copied().unwrap_or(0)
    }

    /// Frames forwarded untouched for this reason.
    #[must_use]
    pub fn passed(&self, reason: PassReason) -> u64 {
        self.passed.get(reason as usize).copied().unwrap_or(0)
    }

    /// Frames dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }

    /// Bytes of the changed frames, as they came and as they left, without FCS.
    #[must_use]
    pub const fn changed_bytes(&self) -> (u64, u64) {
        (self.changed_bytes_in, self.changed_bytes_out)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// Tagged frames, and what compression saved on them; the counts wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TaggedTraffic {
    /// Frames, compressed or not.
    pub frames: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
    /// Frames that left compressed.
    pub compressed: u64,
    /// Bytes by which those got shorter.
    pub saved: u64,
}

impl TaggedTraffic {
    /// Nothing yet.
    pub const NONE: Self = Self { frames: 0, bytes: 0, compressed: 0, saved: 0 };

    /// Counts one frame of `bytes` bytes.
    pub(crate) const fn count(&mut self, bytes: usize) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes as u64);
    }

    /// The frame counted last left compressed, shorter by `saved` bytes.
    pub(crate) const fn count_compressed(&mut self, saved: usize) {
        self.compressed = self.compressed.wrapping_add(1);
        self.saved = self.saved.wrapping_add(saved as u64);
    }
}
