//! `GET /metrics` over HTTP/1.0 (RFC 1945): a request, an answer, the end. No length is announced,
//! since the end of the connection is the end of the answer, and so counts need no memory on their
//! way.

use core::fmt::Write as _;

use heapless::String;

use super::metrics::{self, Facts};
use super::{Line, Next};

/// The longest request.
const MAX_REQUEST: usize = 4096;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Page,
    NotFound,
    NotAllowed,
    Bad,
}

impl Answer {
    /// Status line, headers and, for all but the page, the body.
    const fn head(self) -> &'static str {
        match self {
            Self::Page => "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n",
            Self::NotFound => "HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\n\r\nsee /metrics\n",
            Self::NotAllowed => {
                "HTTP/1.0 405 Method Not Allowed\r\nAllow: GET\r\nContent-Type: text/plain\r\n\r\nonly GET\n"
            }
            Self::Bad => {
                "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nexpected GET /metrics HTTP/1.0\n"
            }
        }
    }
}

/// A request and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The beginning of the request's first line; None where it is longer.
    first: Option<String<64>>,
    /// Bytes so far.
    len: usize,
    /// The first line has ended.
    is_headers: bool,
    /// Nothing stands in the line so far.
    is_empty_line: bool,
    /// The answer, and how many pieces of it are out.
    answer: Option<(Answer, usize)>,
}

impl Exchange {
    pub(super) const fn new() -> Self {
        Self { first: Some(String::new()), len: 0, is_headers: false, is_empty_line: true, answer: None }
    }

    /// Takes bytes of the request, and all behind it; how many.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        for byte in bytes {
            if self.answer.is_none() {
                self.byte(*byte);
            }
        }
        bytes.len()
    }

    fn byte(&mut self, byte: u8) {
        self.len += 1;
        match byte {
            b'\n' if self.is_empty_line || self.len > MAX_REQUEST => self.answer = Some((self.respond(), 0)),
            b'\n' => (self.is_headers, self.is_empty_line) = (true, true),
            b'\r' => {}
            _ => {
                self.is_empty_line = false;
                if !self.is_headers
                    && self.first.as_mut().is_some_and(|first| first.push(byte.into()).is_err())
                {
                    self.first = None;
                }
            }
        }
        if self.len > MAX_REQUEST {
            self.answer = Some((Answer::Bad, 0));
        }
    }

    fn respond(&self) -> Answer {
        let mut words = self.first.as_deref().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Answer::Bad;
        };
        match (method, path.split('?').next()) {
            _ if !version.starts_with("HTTP/1.") => Answer::Bad,
            ("GET", Some("/metrics")) => Answer::Page,
            ("GET", _) => Answer::NotFound,
            _ => Answer::NotAllowed,
        }
    }

    /// The next piece of the answer.
    pub(super) fn next(&mut self, facts: &Facts<'_>, line: &mut Line) -> Next {
        let Some((answer, at)) = &mut self.answer else { return Next::Wait };
        *at += 1;
        match (answer, *at) {
            (answer, 1) => {
                let _ = line.write_str(answer.head()); // the longest fits
            }
            (Answer::Page, at) if metrics::write(at - 2, facts, line).is_some() => {}
            _ => return Next::End,
        }
        Next::Line
    }
}
