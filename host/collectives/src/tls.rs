//! TLS between ranks: version 1.3, by rustls. Both ends have the one key that the job's token gives
//! (HKDF with SHA-256, then Ed25519), show it as a raw public key (RFC 7250), and accept no other.
//!
//! So no certificate, authority, name or clock of the world outside the job counts. The handshake
//! of [ranks](crate::handshake) comes after TLS's, inside.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use ring::hkdf;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, InvalidMessage, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::socket::left;
use crate::token::{LEN, Token};

/// What the key is for: another use of the token gives another one.
const USE: &[u8] = b"gradwire ranks, TLS 1.3, Ed25519";
/// A key of Ed25519 in PKCS #8 (RFC 8410), up to its 32 bytes.
const PKCS_8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Bytes that are read from the socket in one call, and bytes that may wait to be written: some of
/// TLS's records, which have 16 KiB.
const ROOM: usize = 1 << 17;
/// The content types of TLS's records of alerts and of handshakes, and the first byte of the
/// version behind it.
pub(crate) const ALERT: [u8; 2] = [21, 3];
pub(crate) const HELLO: [u8; 2] = [22, 3];

/// A job's two sides of TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// The cause why two ends have no TLS.
#[derive(Debug)]
pub(crate) enum Unsafe {
    /// The far end has another key.
    Token,
    /// The far end speaks no TLS.
    Plain,
    /// The connection ended, or something else is wrong.
    Io(io::Error),
}

impl Tls {
    pub(crate) fn new(token: &Token) -> io::Result<Self> {
        let provider = Arc::new(provider::default_provider());
        let signing = provider.key_provider.load_private_key(key(token)?.into()).map_err(io::Error::other)?;
        let public = signing.public_key().ok_or(io::ErrorKind::Unsupported)?.to_vec();
        let pinned = Arc::new(Pinned {
            public: public.clone(),
            algorithms: provider.signature_verification_algorithms,
        });
        let own = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(pinned.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.clone())));
        client.enable_sni = false;
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(pinned)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        // No rank connects twice.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The handshake of the end that connects.
    pub(crate) fn connect(&self, tcp: &TcpStream, until: Instant) -> Result<Session, Unsafe> {
        // Nobody looks at the name: the key says who it is.
        let name = ServerName::try_from("gradwire").expect("a name");
        let connection = ClientConnection::new(self.client.clone(), name).map_err(Unsafe::of)?;
        Session::new(connection.into(), tcp, until)
    }

    /// The handshake of the end that was connected to.
    pub(crate) fn accept(&self, tcp: &TcpStream, until: Instant) -> Result<Session, Unsafe> {
        let connection = ServerConnection::new(self.server.clone()).map_err(Unsafe::of)?;
        Session::new(connection.into(), tcp, until)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(secret)")
    }
}

impl Unsafe {
    fn of(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(_)
            | Error::NoCertificatesPresented
            | Error::AlertReceived(AlertDescription::AccessDenied) => Self::Token,
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::Plain,
            error => Self::Io(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

/// The job's key, in PKCS #8.
fn key(token: &Token) -> io::Result<PrivatePkcs8KeyDer<'static>> {
    let mut seed = [0; LEN];
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"gradwire").extract(token.secret());
    extracted
        .expand(&[USE], hkdf::HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut seed))
        .map_err(|_| io::Error::other("a key of another length"))?;
    Ok([&PKCS_8[..], &seed].concat().into())
}

/// Accepts one key.
#[derive(Debug)]
struct Pinned {
    /// As the far end has to show it (SubjectPublicKeyInfo).
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn same(&self, theirs: &CertificateDer<'_>) -> Result<(), Error> {
        if theirs.as_ref() == self.public {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signed(
        &self,
        message: &[u8],
        theirs: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let public = SubjectPublicKeyInfoDer::from(theirs.as_ref());
        verify_tls13_signature_with_raw_key(message, &public, signature, &self.algorithms)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        theirs: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.same(theirs).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 was offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        theirs: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, theirs, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        theirs: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.same(theirs).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 was offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        theirs: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, theirs, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A connection's state of TLS. Its socket may block or not: then calls fail as the socket's do.
pub(crate) struct Session {
    tls: Connection,
    /// Bytes of the socket, and which of them TLS has not taken.
    arrived: Vec<u8>,
    left: std::ops::Range<usize>,
    /// Has it more to read, whatever comes on the socket?
    more: bool,
    /// Can nothing be written any more?
    broken: bool,
}

impl Session {
    fn new(mut tls: Connection, tcp: &TcpStream, until: Instant) -> Result<Self, Unsafe> {
        tls.set_buffer_limit(Some(ROOM));
        let wrong = |error: io::Error| match error.downcast::<Error>() {
            Ok(error) => Unsafe::of(error),
            Err(error) => Unsafe::Io(error),
        };
        tls.complete_io(&mut Until { tcp, until }).map_err(wrong)?;
        // A part of what is behind the handshake may have come with it.
        Ok(Self { tls, arrived: vec![0; ROOM], left: 0..0, more: true, broken: false })
    }

    pub(crate) fn read(&mut self, mut tcp: &TcpStream, room: &mut [u8]) -> io::Result<usize> {
        self.more = false;
        loop {
            match self.tls.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Ranks say goodbye in messages, so the end of a socket needs no word of TLS's.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => {
                    self.more = true;
                    return read;
                }
            }
            if self.left.is_empty() {
                self.left = 0..tcp.read(&mut self.arrived)?;
            }
            let mut rest = &self.arrived[self.left.clone()];
            self.tls.read_tls(&mut rest)?;
            self.left.start = self.left.end - rest.len();
            if let Err(error) = self.tls.process_new_packets() {
                // The far end is told, if that can be done at once.
                _ = self.tls.write_tls(&mut tcp);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Does `read` give bytes without any that come on the socket? It may not know.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// Takes bytes when those before them have been written; perhaps not all of them are.
    pub(crate) fn write(&mut self, tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(tcp)?;
        let len = self.tls.writer().write_vectored(slices)?;
        match self.flush(tcp) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    /// Writes what waits.
    pub(crate) fn flush(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        while !self.is_flushed() {
            match self.tls.write_tls(&mut tcp) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.broken = error.kind() != io::ErrorKind::WouldBlock;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.broken || !self.tls.wants_write()
    }
}

/// A socket with a deadline.
struct Until<'a> {
    tcp: &'a TcpStream,
    until: Instant,
}

impl Until<'_> {
    fn in_time<T>(
        &mut self,
        set: impl Fn(&TcpStream, Option<std::time::Duration>) -> io::Result<()>,
        mut io: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        set(self.tcp, left(self.until)?)?;
        // To rustls, this would be no error.
        io(self.tcp).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.in_time(TcpStream::set_read_timeout, |mut tcp| tcp.read(bytes))
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.in_time(TcpStream::set_write_timeout, |mut tcp| tcp.write(bytes))
    }

    /// All at once: an alert may be behind something else, and rustls writes it once.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.in_time(TcpStream::set_write_timeout, |mut tcp| tcp.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_rfc_5869() {
        // Computed with Python's hmac: extract with the salt "gradwire", expand with USE.
        let token = Token::from_hex(&(0..32).map(|i| format!("{i:02x}")).collect::<String>()).unwrap();
        let key = key(&token).unwrap();
        let hex: String = key.secret_pkcs8_der()[16..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "d3c1a8a5d6d0f77d9efd0c5fa9a5765274ef9439462c3b20d90aa5ebf0faf945");
        let other = super::key(&Token::random().unwrap()).unwrap();
        assert_ne!(other.secret_pkcs8_der(), key.secret_pkcs8_der());
        assert_eq!(format!("{:?}", Tls::new(&token).unwrap()), "Tls(secret)");
    }
}
