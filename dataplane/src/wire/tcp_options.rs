//! TCP options (RFC 9293 §3.1): a list of them, and which forbid to change the payload.

const END: u8 = 0;
const NOP: u8 = 1;

/// The options of a TCP header, without padding: where each starts, and its bytes.
///
/// The bytes are no more than the list has. So an option that is cut short has fewer than its
/// length says; one whose length is missing or below 2 is the last, with all that follows it.
#[derive(Clone, Debug)]
pub(crate) struct TcpOptions<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> TcpOptions<'a> {
    pub(crate) const fn new(list: &'a [u8]) -> Self {
        Self { rest: list, at: 0 }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // At most 40 bytes; every turn takes at least one.
        while let [kind, after @ ..] = self.rest {
            match *kind {
                END => break,
                NOP => (self.rest, self.at) = (after, self.at + 1),
                _ => {
                    let len = after.first().map_or(0, |len| usize::from(*len));
                    let whole = if len < 2 { None } else { self.rest.split_at_checked(len) };
                    let (option, rest) = whole.unwrap_or((self.rest, &[]));
                    let at = self.at;
                    (self.rest, self.at) = (rest, at + option.len());
                    return Some((at, option));
                }
            }
        }
        self.rest = &[];
        None
    }
}

/// Whether one of these options signs or renumbers the payload, or cannot be understood: who knows
/// what it says.
pub(crate) fn bind_payload(list: &[u8]) -> bool {
    const MD5: u8 = 19; // RFC 2385
    const AO: u8 = 29; // RFC 5925
    const MPTCP: u8 = 30; // RFC 8684
    TcpOptions::new(list).any(|(_, option)| match *option {
        [MD5 | AO | MPTCP, ..] => true,
        [_, len, ..] => len < 2,
        _ => true,
    })
}
