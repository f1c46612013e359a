//! A LiteX SoC with VexRiscv and two LiteEth MACs (`LiteEthMAC`, Wishbone interface, 32-bit CSRs):
//! a skeleton. It compiles, and has run nowhere.
//!
//! Addresses are those of no particular SoC: take them from the `csr.csv` and `csr.h` of yours.
//! LiteEth has no DMA; frames are copied from and to its slots, a word at a time.
#![expect(unsafe_code, reason = "addresses of devices")]

use core::convert::Infallible;

use embedded_hal::delay::DelayNs;
use embedded_hal::digital::{ErrorType as PinErrorType, OutputPin};
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use gradwire::engine::Millis;
use gradwire::forward::{Buffer, Device, Port};
use softcore::board::{Board, Chip, Faults, Nics};
use softcore::buffers::{FrameBuffer, MAX_FRAME_LEN, Memory, Pool};
use static_cell::ConstStaticCell;

use super::kept::Kept;
use super::mmio::Mmio;

/// The place of `csr.csv`'s blocks.
const CTRL: usize = 0xf000_0000;
const LEDS: usize = 0xf000_2000;
const TIMER0: usize = 0xf000_4000;
const UART: usize = 0xf000_4800;
const ETHMAC: [usize; 2] = [0xf000_5000, 0xf000_6000];
const ETHMAC_SLOTS: [usize; 2] = [0x8000_0000, 0x8001_0000];
/// `sys_clk_freq`.
const CLOCK_HZ: u64 = 100_000_000;

/// Bytes of a slot, and slots each way: LiteEth's defaults.
const SLOT_LEN: usize = 2048;
const SLOTS: usize = 2;
/// One frame each way under way at a time, and two that the engines write to.
const BUFFERS: usize = 8;

fn csr(base: usize) -> Mmio {
    // SAFETY: as this file's addresses have it; CSRs change no memory but the slots of a MAC, which
    // are registers too.
    unsafe { Mmio::new(base, 0x800) }
}

/// Registers of `LiteEthMACSRAMWriter` and `LiteEthMACSRAMReader`.
mod ethmac {
    pub(super) const RX_SLOT: usize = 0x00;
    pub(super) const RX_LENGTH: usize = 0x04;
    pub(super) const RX_ERRORS: usize = 0x08;
    pub(super) const RX_PENDING: usize = 0x10;
    pub(super) const TX_START: usize = 0x18;
    pub(super) const TX_READY: usize = 0x1c;
    pub(super) const TX_SLOT: usize = 0x24;
    pub(super) const TX_LENGTH: usize = 0x28;
}

/// One MAC.
struct Mac {
    csr: Mmio,
    /// Receive slots, then transmit slots.
    slots: Mmio,
    next_slot: usize,
    /// The MAC's own count of overruns when it was read last.
    errors: u32,
    faults: Faults,
}

impl Mac {
    fn new(number: usize) -> Self {
        let (base, slots) = (ETHMAC.get(number).copied(), ETHMAC_SLOTS.get(number).copied());
        // SAFETY: as this file's addresses have it.
        let slots = unsafe { Mmio::new(slots.unwrap_or(0), 2 * SLOTS * SLOT_LEN) };
        Self { csr: csr(base.unwrap_or(0)), slots, next_slot: 0, errors: 0, faults: Faults::default() }
    }

    fn receive(&mut self, pool: &mut Pool<BUFFERS>) -> Option<FrameBuffer> {
        if self.csr.read32(ethmac::RX_PENDING) == 0 {
            return None;
        }
        let slot = self.csr.read32(ethmac::RX_SLOT) as usize % SLOTS;
        let len = self.csr.read32(ethmac::RX_LENGTH) as usize;
        let mut frame = None;
        if len < 14 {
            self.faults.runts = self.faults.runts.wrapping_add(1);
        } else if len > MAX_FRAME_LEN {
            self.faults.oversize = self.faults.oversize.wrapping_add(1);
        } else if let Some(mut buffer) = pool.take() {
            for (place, word) in buffer.room().chunks_mut(4).take(len.div_ceil(4)).enumerate() {
                let bytes = self.slots.read32(slot * SLOT_LEN + 4 * place).to_le_bytes();
                word.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            }
            buffer.set_len(len);
            frame = Some(buffer);
        } else {
            self.faults.overruns = self.faults.overruns.wrapping_add(1);
        }
        // The slot is the MAC's again.
        self.csr.write32(ethmac::RX_PENDING, 1);
        frame
    }

    fn transmit(&mut self, frame: &[u8]) -> bool {
        if self.csr.read32(ethmac::TX_READY) == 0 {
            return false;
        }
        let slot = SLOTS + self.next_slot;
        for (place, word) in frame.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            self.slots.write32(slot * SLOT_LEN + 4 * place, u32::from_le_bytes(bytes));
        }
        self.csr.write32(ethmac::TX_SLOT, self.next_slot as u32);
        self.csr.write32(ethmac::TX_LENGTH, frame.len().max(60) as u32);
        self.csr.write32(ethmac::TX_START, 1);
        self.next_slot = (self.next_slot + 1) % SLOTS;
        true
    }

    fn service(&mut self) {
        let errors = self.csr.read32(ethmac::RX_ERRORS);
        self.faults.overruns = self.faults.overruns.wrapping_add(errors.wrapping_sub(self.errors));
        self.errors = errors;
    }
}

/// Both MACs. LiteEth does not say whether there is a link: a port would ask the PHY over MDIO.
pub(crate) struct Macs {
    macs: [Mac; 2],
    pool: Pool<BUFFERS>,
}

impl Macs {
    const fn mac(&mut self, port: Port) -> &mut Mac {
        let [host, network] = &mut self.macs;
        match port {
            Port::Host => host,
            Port::Network => network,
        }
    }
}

impl Device for Macs {
    type Port = Port;
    type Buffer = FrameBuffer;

    fn receive(&mut self, from: Port) -> Option<FrameBuffer> {
        let [host, network] = &mut self.macs;
        let mac = match from {
            Port::Host => host,
            Port::Network => network,
        };
        mac.receive(&mut self.pool)
    }

    fn transmit(&mut self, to: Port, frame: FrameBuffer) -> Result<(), FrameBuffer> {
        if !self.mac(to).transmit(frame.frame()) {
            return Err(frame);
        }
        self.pool.put(frame);
        Ok(())
    }

    fn take(&mut self) -> Option<FrameBuffer> {
        self.pool.take()
    }

    fn release(&mut self, buffer: FrameBuffer) {
        self.pool.put(buffer);
    }

    fn kick(&mut self, _to: Port) {}
}

impl Nics for Macs {
    fn service(&mut self) {
        Port::ALL.into_iter().for_each(|port| self.mac(port).service());
    }

    fn link(&self, _port: Port) -> bool {
        true
    }

    fn faults(&self, port: Port) -> Faults {
        let [host, network] = &self.macs;
        match port {
            Port::Host => host.faults,
            Port::Network => network.faults,
        }
    }

    fn clear_faults(&mut self) {
        Port::ALL.into_iter().for_each(|port| self.mac(port).faults = Faults::default());
    }
}

/// LiteX's UART: `rxtx`, `txfull`, `rxempty`, `ev_status`, `ev_pending`.
pub(crate) struct Uart(Mmio);

const RXTX: usize = 0x00;
const TXFULL: usize = 0x04;
const RXEMPTY: usize = 0x08;
const EV_PENDING: usize = 0x10;
/// Event of the receiver: writing it takes the next byte from the FIFO.
const RX_EVENT: u32 = 2;

impl ErrorType for Uart {
    type Error = Infallible;
}

impl ReadReady for Uart {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.0.read32(RXEMPTY) == 0)
    }
}

impl Read for Uart {
    fn read(&mut self, to: &mut [u8]) -> Result<usize, Infallible> {
        let Some(to) = to.first_mut() else { return Ok(0) };
        while !self.read_ready()? {}
        *to = self.0.read32(RXTX) as u8;
        self.0.write32(EV_PENDING, RX_EVENT);
        Ok(1)
    }
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.0.read32(TXFULL) == 0)
    }
}

impl Write for Uart {
    fn write(&mut self, from: &[u8]) -> Result<usize, Infallible> {
        let Some(byte) = from.first() else { return Ok(0) };
        while !self.write_ready()? {}
        self.0.write32(RXTX, u32::from(*byte));
        Ok(1)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// A bit of `leds_out`.
pub(crate) struct Led(u32);

impl PinErrorType for Led {
    type Error = Infallible;
}

impl OutputPin for Led {
    fn set_low(&mut self) -> Result<(), Infallible> {
        let mut leds = csr(LEDS);
        leds.write32(0, leds.read32(0) & !self.0);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        let mut leds = csr(LEDS);
        leds.write32(0, leds.read32(0) | self.0);
        Ok(())
    }
}

/// A proof that nothing else uses these parts.
pub(crate) struct Litex(());

impl Chip for Litex {
    type Nics = Macs;
    type Serial = Uart;
    type Delay = Delay;
    type Pin = Led;

    fn now(&mut self) -> Millis {
        Millis(cycles() / (CLOCK_HZ / 1000))
    }

    fn seed(&mut self) -> u64 {
        // Without a source of randomness in the SoC: how long it ran, to the cycle.
        cycles().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn feed_watchdog(&mut self) {
        // If the SoC has one (`add_watchdog`), its `feed` bit belongs here.
    }

    fn idle(&mut self) {
        // VexRiscv's interrupts have a mask of their own (CSR 0xbc0); until a port sets it, the
        // core polls.
    }

    fn reset(&mut self) -> ! {
        restart()
    }
}

/// The serial line. Start-up uses it before the firmware has it.
pub(crate) fn serial() -> Uart {
    Uart(csr(UART))
}

/// The board's parts.
///
/// # Errors
/// Its parts were handed over before.
pub(crate) fn start() -> Result<Board<Litex>, (&'static str, &'static str)> {
    static MEMORY: ConstStaticCell<[Memory; BUFFERS]> = ConstStaticCell::new([Memory::NEW; BUFFERS]);
    let Some(memory) = MEMORY.try_take() else { return Err(("both NICs", "taken")) };
    Ok(Board {
        nics: Macs { macs: [Mac::new(0), Mac::new(1)], pool: Pool::new(memory) },
        serial: serial(),
        delay: Delay,
        link_pin: Led(1),
        traffic_pin: Led(2),
        chip: Litex(()),
    })
}

/// No interrupt is enabled.
pub(crate) fn tick() {}

/// Memory that a restart leaves as it is.
#[allow(dead_code, reason = "for the image that may panic")]
pub(crate) fn kept() -> Kept {
    // SAFETY: RAM behind what the linker script gives to the firmware; no device uses it, and
    // nothing else does.
    Kept::new(unsafe { Mmio::new(0x4020_0000, Kept::LEN) })
}

/// Starts the SoC anew: `ctrl_reset`.
pub(crate) fn restart() -> ! {
    csr(CTRL).write32(0, 1);
    loop {
        riscv::asm::nop();
    }
}

/// Cycles since the start: `timer0_uptime_cycles`, of a timer with `add_uptime`.
fn cycles() -> u64 {
    const LATCH: usize = 0x20;
    const CYCLES: usize = 0x24;
    let mut timer = csr(TIMER0);
    timer.write32(LATCH, 1);
    u64::from(timer.read32(CYCLES)) << 32 | u64::from(timer.read32(CYCLES + 4))
}

/// Waits for the timer.
pub(crate) struct Delay;

impl DelayNs for Delay {
    fn delay_ns(&mut self, ns: u32) {
        let until = cycles() + u64::from(ns) * (CLOCK_HZ / 1_000_000) / 1000 + 1;
        while cycles() < until {}
    }
}
