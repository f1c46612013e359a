//! Questions to the kernel about network devices, over netlink: of the namespace that the process
//! is in, whatever `/sys` shows. [`link`](mod@link) and [`address`] ask rtnetlink, [`generic`] what
//! ethtool and the XDP features are about, and [`filter`] who filters frames.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

pub mod address;
pub mod filter;
pub mod generic;
pub mod link;

/// `struct nlmsghdr`, linux/netlink.h.
const HEADER_LEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_MULTI: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
/// Of an error: the request behind it is left out; attributes follow.
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// The upper two bits of an attribute's type are flags.
const NLA_TYPE_MASK: u16 = 0x3fff;
const NLA_F_NESTED: u16 = 0x8000;
/// The kernel answers at once; this is for a kernel that does not.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    /// The kernel's message about the last error, if it was asked for one (`NETLINK_EXT_ACK`).
    reason: Option<String>,
}

impl Netlink {
    /// A socket for rtnetlink, or for another protocol.
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, sequence: 0, reason: None })
    }

    fn route() -> io::Result<Self> {
        Self::open(None)
    }

    fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    fn netfilter() -> io::Result<Self> {
        Self::open(Some(netlink::NETFILTER))
    }

    /// Sends a request of type `kind` and takes its first answer, without the header; empty if the
    /// kernel only acknowledges.
    fn request(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        self.ask(kind, NLM_F_ACK, body, |part, is_one_of_many| {
            if !is_one_of_many && answer.is_empty() {
                answer = part.to_vec();
            }
        })?;
        Ok(answer)
    }

    /// Asks for all that there is of a kind; `each` gets every answer, without the header.
    fn dump(&mut self, kind: u16, body: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.ask(kind, NLM_F_DUMP, body, |part, _| each(part))
    }

    /// Sends a request, and hands over what comes back until its end: each body, and whether it is
    /// a part of many.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut each: impl FnMut(&[u8], bool),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER_LEN + body.len());
        message.extend(((HEADER_LEN + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        // The kernel fills in the port.
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        send(&self.socket, &message, SendFlags::empty())?;
        loop {
            let mut buffer = vec![MaybeUninit::uninit(); 1 << 16];
            let ((received, _), _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mut messages: &[u8] = received;
            while let Some((header, rest)) = Header::split(messages) {
                let (body, behind) = rest.split_at(header.body_len.min(rest.len()));
                messages = behind.get(padding(header.body_len)..).unwrap_or_default();
                if header.sequence != self.sequence {
                    continue;
                }
                match header.kind {
                    // The error, 0 for an acknowledgement, and the request.
                    NLMSG_ERROR => {
                        let errno = i32::from_ne_bytes(first(body)?);
                        return if errno == 0 {
                            Ok(())
                        } else {
                            self.reason = reason(header.flags, body);
                            Err(io::Error::from_raw_os_error(errno.saturating_neg()))
                        };
                    }
                    NLMSG_DONE => return Ok(()),
                    _ => each(body, header.flags & NLM_F_MULTI != 0),
                }
            }
        }
    }
}

struct Header {
    body_len: usize,
    kind: u16,
    flags: u16,
    sequence: u32,
}

impl Header {
    fn split(messages: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = messages.split_first_chunk::<HEADER_LEN>()?;
        let &[a, b, c, d, kind_0, kind_1, flags_0, flags_1, e, f, g, h, ..] = header;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let header = Self {
            body_len: len.checked_sub(HEADER_LEN)?,
            kind: u16::from_ne_bytes([kind_0, kind_1]),
            flags: u16::from_ne_bytes([flags_0, flags_1]),
            sequence: u32::from_ne_bytes([e, f, g, h]),
        };
        Some((header, rest))
    }
}

/// The kernel's message about an error, behind its number and the header of the request.
fn reason(flags: u16, body: &[u8]) -> Option<String> {
    let (request, rest) = Header::split(body.get(4..)?)?;
    let request_len = if flags & NLM_F_CAPPED == 0 { request.body_len.next_multiple_of(4) } else { 0 };
    let reason = Attributes(rest.get(request_len..)?).text(NLMSGERR_ATTR_MSG);
    reason.filter(|_| flags & NLM_F_ACK_TLVS != 0)
}

/// Bytes up to the next multiple of four.
const fn padding(len: usize) -> usize {
    len.next_multiple_of(4) - len
}

/// The first `N` bytes of an answer.
fn first<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut short");
    bytes.first_chunk().copied().ok_or_else(short)
}

/// The attributes of a message, as type and value.
#[derive(Clone, Copy, Debug)]
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[len_0, len_1, kind_0, kind_1] = self.0.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([len_0, len_1]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len + padding(len)..).unwrap_or_default();
        Some((u16::from_ne_bytes([kind_0, kind_1]) & NLA_TYPE_MASK, value))
    }
}

impl<'a> Attributes<'a> {
    fn find(self, kind: u16) -> Option<&'a [u8]> {
        let mut attributes = self;
        attributes.find_map(|(found, value)| (found == kind).then_some(value))
    }

    fn nested(self, kind: u16) -> Self {
        Self(self.find(kind).unwrap_or_default())
    }

    fn u8(self, kind: u16) -> Option<u8> {
        self.find(kind)?.first().copied()
    }

    fn u32(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.find(kind)?.first_chunk()?))
    }

    fn u64(self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.find(kind)?.first_chunk()?))
    }

    fn text(self, kind: u16) -> Option<String> {
        self.find(kind).map(text)
    }
}

/// A value that is text, up to its zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Appends an attribute.
fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.extend(std::iter::repeat_n(0, padding(value.len())));
}

/// Appends an attribute that holds attributes.
fn put_nested(message: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut nested = Vec::new();
    fill(&mut nested);
    put(message, kind | NLA_F_NESTED, &nested);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_out_as_they_went_in() {
        let mut message = Vec::new();
        put(&mut message, 3, b"eth0\0");
        put_nested(&mut message, 18, |nested| {
            put(nested, 1, &[7]);
            put(nested, 2, &9u64.to_ne_bytes());
        });
        put(&mut message, 4, &1500u32.to_ne_bytes());
        assert_eq!(message.len() % 4, 0);
        let attributes = Attributes(&message);
        assert_eq!(attributes.text(3).as_deref(), Some("eth0"));
        assert_eq!(attributes.nested(18).u8(1), Some(7));
        assert_eq!(attributes.nested(18).u64(2), Some(9));
        assert_eq!(attributes.u32(4), Some(1500));
        assert_eq!(attributes.u32(5), None);
    }

    #[test]
    fn attributes_cut_short_end_and_do_not_panic() {
        let mut message = Vec::new();
        put(&mut message, 3, b"eth0\0");
        put(&mut message, 4, &1500u32.to_ne_bytes());
        for len in 0..message.len() {
            assert!(Attributes(&message[..len]).count() <= 1);
        }
        // A length of zero must not be read forever.
        assert_eq!(Attributes(&[0, 0, 0, 0, 0, 0, 0, 0]).count(), 0);
    }

    #[test]
    fn an_errors_reason_is_behind_the_request_if_that_is_there() {
        let mut body = (-95i32).to_ne_bytes().to_vec();
        body.extend([23u32.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat());
        let mut capped = body.clone();
        body.extend([7; 8]);
        for message in [&mut body, &mut capped] {
            put(message, NLMSGERR_ATTR_MSG, b"no XDP here\0");
        }
        let of = |flags, body: &[u8]| reason(flags, body);
        assert_eq!(of(NLM_F_ACK_TLVS, &body).as_deref(), Some("no XDP here"));
        assert_eq!(of(NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped).as_deref(), Some("no XDP here"));
        assert_eq!(of(NLM_F_CAPPED, &capped), None);
        for len in 0..body.len() - 4 {
            assert_eq!(of(NLM_F_ACK_TLVS, &body[..len]), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>) {
            proptest::prop_assert!(Attributes(&bytes).count() <= bytes.len() / 4);
            let _ = link::Link::parse(&bytes);
            let _ = address::parse(&bytes);
            let _ = filter::Chain::parse(&bytes);
            let _ = reason(NLM_F_ACK_TLVS, &bytes);
            let mut messages = bytes.as_slice();
            while let Some((header, rest)) = Header::split(messages) {
                messages = rest.get(header.body_len..).unwrap_or_default();
            }
        }
    }
}
