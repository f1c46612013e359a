//! Requests of rank 1 to a server, as they arrive: in parts, and perhaps before the server has
//! served the one before.

/// The most bytes of a request. Of all requests that the server has not begun to do, there are
/// twice as many at most.
pub const MAX_REQUEST: usize = 1 << 24;

/// Bytes that a request costs beside its own.
const OVERHEAD: usize = 64;

/// Requests under way.
#[derive(Default)]
pub(super) struct Requests {
    /// The next one, as far as it is here.
    part: Vec<u8>,
    /// Bytes since the server began an exchange.
    waiting: usize,
}

impl Requests {
    /// A part of a request. Returns the request if it is whole.
    pub(super) fn add(&mut self, last: bool, text: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        self.waiting += text.len() + OVERHEAD;
        if self.part.len() + text.len() > MAX_REQUEST || self.waiting > 2 * MAX_REQUEST {
            return Err(format!("rank 1 asks for more than {MAX_REQUEST} bytes can say"));
        }
        self.part.extend(text);
        Ok(last.then(|| std::mem::take(&mut self.part)))
    }

    /// The server does what was asked.
    pub(super) fn begin(&mut self) {
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_parts_and_no_more_than_the_server_does() {
        let mut requests = Requests::default();
        assert_eq!(requests.add(false, b"sum".to_vec()), Ok(None));
        assert_eq!(requests.add(true, b"ming".to_vec()), Ok(Some(b"summing".to_vec())));
        let many = 2 * MAX_REQUEST / OVERHEAD;
        assert!((0..many).map(|_| requests.add(true, vec![])).any(|added| added.is_err()));
        requests.begin();
        assert_eq!(requests.add(true, vec![1]), Ok(Some(vec![1])));
        requests.begin();
        assert!(requests.add(false, vec![0; MAX_REQUEST + 1]).is_err());
    }
}
