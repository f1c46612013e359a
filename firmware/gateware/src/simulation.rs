//! A design that runs.

use std::io::{self, BufReader, BufWriter};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Error;
use crate::batch::{Batch, Outcome};
use crate::protocol;

/// A process that simulates one design. It keeps its state, and so the design's registers, from
/// batch to batch.
#[derive(Debug)]
pub struct Simulation {
    top: String,
    child: Child,
    /// Gone once the simulation was told to end.
    stdin: Option<BufWriter<ChildStdin>>,
    stdout: BufReader<ChildStdout>,
}

impl Simulation {
    /// Starts what was built of `top`; what it covers goes to `coverage`, if anywhere.
    pub(crate) fn start(
        top: &str,
        program: &Path,
        arguments: &[String],
        coverage: Option<&Path>,
    ) -> Result<Self, Error> {
        let refused = |source| Error::Io { path: program.to_owned(), source };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        match coverage {
            Some(path) => command.env("GATEWARE_COVERAGE", path),
            None => command.env_remove("GATEWARE_COVERAGE"),
        };
        let mut child = command.spawn().map_err(refused)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| refused(io::ErrorKind::BrokenPipe.into()))?;
        let (stdin, stdout) = (Some(BufWriter::new(stdin)), BufReader::new(stdout));
        Ok(Self { top: top.to_owned(), child, stdin, stdout })
    }

    /// Sends a batch through the design.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn run(&mut self, batch: &Batch) -> Result<Outcome, Error> {
        self.ask(|to| protocol::put_batch(to, batch), |from| protocol::take_outcome(from, batch.frames.len()))
    }

    /// Resets the design.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.ask(protocol::put_reset, protocol::take_u8)?;
        Ok(())
    }

    /// Writes a register.
    ///
    /// # Errors
    /// The design does not answer, or the simulation has ended.
    pub fn write(&mut self, address: u16, value: u32) -> Result<(), Error> {
        self.access(address, Some(value))?;
        Ok(())
    }

    /// Reads a register.
    ///
    /// # Errors
    /// The design does not answer, or the simulation has ended.
    pub fn read(&mut self, address: u16) -> Result<u32, Error> {
        self.access(address, None)
    }

    fn access(&mut self, address: u16, value: Option<u32>) -> Result<u32, Error> {
        let answer = self.ask(|to| protocol::put_access(to, address, value), protocol::take_access)?;
        answer.ok_or_else(|| Error::Register { top: self.top.clone(), address })
    }

    fn ask<T>(
        &mut self,
        put: impl FnOnce(&mut BufWriter<ChildStdin>) -> io::Result<()>,
        take: impl FnOnce(&mut BufReader<ChildStdout>) -> io::Result<T>,
    ) -> Result<T, Error> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let stdin = self.stdin.as_mut().ok_or_else(gone);
        let answer = stdin.and_then(put).and_then(|()| take(&mut self.stdout));
        answer.map_err(|source| Error::Broken { top: self.top.clone(), source })
    }
}

impl Drop for Simulation {
    /// Ends the process and waits for it, so that what it covers is written.
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Nobody is left to tell that it ended badly.
        let _ = self.child.wait();
    }
}
