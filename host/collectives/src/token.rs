//! The secret that the ranks of a job share, and the proof that a connection's other end knows it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Bytes of a token, of a nonce and of a proof.
pub(crate) const LEN: usize = 32;

/// A random number that the ranks of one job know, and nobody else. It never goes over the network.
///
/// It keeps jobs apart, and strangers out. It hides nothing unless ranks use
/// [TLS](crate::Options::tls): whoever can read or change the packets between ranks can do so with
/// what they exchange.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; LEN]);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; LEN];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The one that [`to_hex`](Self::to_hex) wrote.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        let mut bytes = [0; LEN];
        if text.len() != 2 * LEN || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// As 64 hexadecimal digits: keep them as secret as the token.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What keys are derived from.
    pub(crate) const fn secret(&self) -> &[u8; LEN] {
        &self.0
    }

    /// The proof that one knows the token, for what was said in this handshake: HMAC-SHA-256 (RFC
    /// 2104). The two sides' proofs differ, so neither can send the other's back.
    pub(crate) fn proof(&self, side: &[u8], said: &[&[u8]]) -> [u8; LEN] {
        let pad = |with: u8| {
            let mut block = [with; 64];
            block.iter_mut().zip(&self.0).for_each(|(pad, key)| *pad ^= key);
            block
        };
        let mut inner = Sha256::new_with_prefix(pad(0x36));
        inner.update(side);
        said.iter().for_each(|said| inner.update(said));
        let mut outer = Sha256::new_with_prefix(pad(0x5c));
        outer.update(inner.finalize());
        outer.finalize().into()
    }
}

/// Are they equal? Takes as long whatever they hold, so that nobody can guess a proof byte by byte.
pub(crate) fn same(a: &[u8; LEN], b: &[u8; LEN]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_that_of_rfc_2104() {
        // Computed with Python: hmac.new(bytes(range(32)), b"accept" + b"hello",
        // "sha256").hexdigest()
        let token = Token(std::array::from_fn(|i| i as u8));
        let hex: String =
            token.proof(b"accept", &[b"hel", b"lo"]).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "ea767e5620e0449e16ef3aa6be5487598d9f22a7e4fad95bba2b4e062dfc91d4");
    }

    #[test]
    fn tokens_come_back_from_their_digits_and_show_themselves_nowhere_else() {
        let token = Token::random().unwrap();
        assert_eq!(Token::from_hex(&token.to_hex()), Some(token.clone()));
        assert_ne!(Token::random().unwrap(), token);
        assert_eq!(format!("{token:?}"), "Token(secret)");
        for text in ["", "00", &"0g".repeat(32), &"é".repeat(32), &"0".repeat(66)] {
            assert_eq!(Token::from_hex(text), None);
        }
    }
}
