//! The 16550 UART as QEMU's `virt` machine and most SoCs have it (National Semiconductor PC16550D),
//! polled.

use core::convert::Infallible;

use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};

/// Access to its registers by number, 0 to 7.
pub trait Registers {
    /// Reads a register.
    fn read(&self, register: usize) -> u8;

    /// Writes a register.
    fn write(&mut self, register: usize, value: u8);
}

/// Receiver buffer (read) and transmitter holding register (write).
const DATA: usize = 0;
const INTERRUPT_ENABLE: usize = 1;
const FIFO_CONTROL: usize = 2;
const LINE_CONTROL: usize = 3;
const LINE_STATUS: usize = 5;
/// Line status: a byte was received.
const DATA_READY: u8 = 1;
/// Line status: the transmitter's FIFO is empty, so it takes a FIFO's length.
const TRANSMITTER_EMPTY: u8 = 1 << 5;
const FIFO_LEN: usize = 16;

/// A UART. Reading and writing wait, as `embedded-io` has it, unless `read_ready` and `write_ready`
/// say yes.
#[derive(Debug)]
pub struct Uart<R> {
    registers: R,
}

impl<R: Registers> Uart<R> {
    /// Eight bits, no parity, FIFOs on; an interrupt if there is something to read. The rate stays
    /// as it is.
    pub fn new(mut registers: R) -> Self {
        registers.write(LINE_CONTROL, 0b11);
        registers.write(FIFO_CONTROL, 1);
        registers.write(INTERRUPT_ENABLE, 1);
        Self { registers }
    }
}

impl<R> ErrorType for Uart<R> {
    type Error = Infallible;
}

impl<R: Registers> ReadReady for Uart<R> {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.registers.read(LINE_STATUS) & DATA_READY != 0)
    }
}

impl<R: Registers> Read for Uart<R> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize, Infallible> {
        let mut len = 0;
        for byte in to.iter_mut().take(FIFO_LEN) {
            while !self.read_ready()? {
                if len > 0 {
                    return Ok(len);
                }
            }
            *byte = self.registers.read(DATA);
            len += 1;
        }
        Ok(len)
    }
}

impl<R: Registers> WriteReady for Uart<R> {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.registers.read(LINE_STATUS) & TRANSMITTER_EMPTY != 0)
    }
}

impl<R: Registers> Write for Uart<R> {
    fn write(&mut self, from: &[u8]) -> Result<usize, Infallible> {
        while !self.write_ready()? {}
        let from = from.get(..FIFO_LEN).unwrap_or(from);
        for byte in from {
            self.registers.write(DATA, *byte);
        }
        Ok(from.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
