//! The messages between this crate and `sim/driver.cpp`, which must agree. All numbers are
//! little-endian.

use std::io::{self, Read, Write};

use crate::batch::{Batch, Outcome, Received, Sent};

/// Writes a batch.
pub(crate) fn put_batch(to: &mut impl Write, batch: &Batch) -> io::Result<()> {
    let pauses = batch.pauses;
    to.write_all(b"B")?;
    to.write_all(&batch.seed.to_le_bytes())?;
    to.write_all(&[pauses.source, pauses.source_longest.max(1), pauses.sink, pauses.sink_longest.max(1)])?;
    to.write_all(&[u8::from(batch.noise)])?;
    to.write_all(&batch.reset_at.unwrap_or(0).to_le_bytes())?;
    to.write_all(&batch.expected.to_le_bytes())?;
    to.write_all(&batch.quiet.to_le_bytes())?;
    to.write_all(&(batch.frames.len() as u32).to_le_bytes())?;
    for frame in &batch.frames {
        to.write_all(&[frame.port])?;
        to.write_all(&frame.user.to_le_bytes())?;
        let whole = !frame.bytes.is_empty() && frame.bytes.len().is_multiple_of(32);
        to.write_all(&[u8::from(frame.empty_last && whole)])?;
        to.write_all(&(frame.bytes.len() as u32).to_le_bytes())?;
        to.write_all(&frame.bytes)?;
    }
    to.flush()
}

/// Reads what a batch of so many frames did.
pub(crate) fn take_outcome(from: &mut impl Read, sent: usize) -> io::Result<Outcome> {
    let (clocks, stalls, waits) = (take_u64(from)?, take_u64(from)?, take_u64(from)?);
    let broken = String::from_utf8_lossy(&take_bytes(from)?).into_owned();
    let sent = (0..sent)
        .map(|_| Ok(Sent { first: take_u64(from)?, last: take_u64(from)? }))
        .collect::<io::Result<Vec<_>>>()?;
    let frames = (0..take_u32(from)?)
        .map(|_| {
            Ok(Received {
                port: take_u8(from)?,
                user: take_u64(from)?,
                first: take_u64(from)?,
                last: take_u64(from)?,
                bytes: take_bytes(from)?,
            })
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok(Outcome { clocks, stalls, waits, broken, sent, frames })
}

/// Writes an access to a register: a write of `value`, or a read if there is none.
pub(crate) fn put_access(to: &mut impl Write, address: u16, value: Option<u32>) -> io::Result<()> {
    to.write_all(if value.is_some() { b"W" } else { b"R" })?;
    to.write_all(&address.to_le_bytes())?;
    to.write_all(&value.unwrap_or(0).to_le_bytes())?;
    to.flush()
}

/// Reads the answer to an access; none if the design gave none.
pub(crate) fn take_access(from: &mut impl Read) -> io::Result<Option<u32>> {
    let answered = take_u8(from)? != 0;
    let value = take_u32(from)?;
    Ok(answered.then_some(value))
}

/// Asks for a reset.
pub(crate) fn put_reset(to: &mut impl Write) -> io::Result<()> {
    to.write_all(b"X")?;
    to.flush()
}

/// Reads one byte.
pub(crate) fn take_u8(from: &mut impl Read) -> io::Result<u8> {
    let mut bytes = [0];
    from.read_exact(&mut bytes)?;
    Ok(bytes[0])
}

fn take_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn take_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn take_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; take_u32(from)? as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
