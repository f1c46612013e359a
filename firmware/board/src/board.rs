//! The board: what `start` hands over (docs/firmware.md). All addresses are those of QEMU's `virt`
//! machine.
#![expect(unsafe_code, reason = "registers are memory that no Rust object owns")]

use core::fmt;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use embedded_hal::delay::DelayNs;
use gradwire::engine::Millis;
use softcore::board::{Board, Chip, NoPin};
use softcore::buffers::{Memory, Pool};
use softcore::uart16550::{self, Uart};
use softcore::virtio;
use softcore::virtio::net::{Nic, Unusable};
use softcore::virtio::pair::{BUFFERS, Pair};
use softcore::virtio::queue::QueueMemory;
use static_cell::ConstStaticCell;

const TEST_DEVICE: usize = 0x10_0000;
const TIME: usize = 0x200_bff8;
const UART: usize = 0x1000_0000;
const VIRTIO: [usize; 2] = [0x1000_1000, 0x1000_2000];
const TIMER_HZ: u64 = 10_000_000;

fn read32(address: usize) -> u32 {
    // SAFETY: all callers are below, with addresses of registers that are words, and no memory of
    // Rust's.
    unsafe { with_exposed_provenance::<u32>(address).read_volatile() }
}

fn write32(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) }
}

/// The UART's registers, which are bytes.
pub struct UartRegisters;

impl uart16550::Registers for UartRegisters {
    fn read(&self, register: usize) -> u8 {
        // SAFETY: the UART has eight registers, and `Uart` asks for no others.
        unsafe { with_exposed_provenance::<u8>(UART + register % 8).read_volatile() }
    }

    fn write(&mut self, register: usize, value: u8) {
        // SAFETY: as above.
        unsafe { with_exposed_provenance_mut::<u8>(UART + register % 8).write_volatile(value) }
    }
}

/// The registers of a virtio NIC, by its place on the bus.
pub struct NicRegisters(usize);

impl virtio::Registers for NicRegisters {
    fn read(&self, offset: usize) -> u32 {
        read32(self.0 + offset % 0x1000)
    }

    fn write(&mut self, offset: usize, value: u32) {
        write32(self.0 + offset % 0x1000, value);
    }
}

/// A proof that nothing else uses these parts.
pub struct Virt(());

/// The board's parts.
///
/// # Errors
/// A NIC is missing.
pub fn start() -> Result<Board<Virt>, (&'static str, Unusable)> {
    static MEMORY: ConstStaticCell<[Memory; BUFFERS]> = ConstStaticCell::new([Memory::NEW; BUFFERS]);
    static QUEUES: [QueueMemory; 4] = [const { QueueMemory::new() }; 4];

    let Some(memory) = MEMORY.try_take() else { return Err(("both NICs", Unusable::Absent)) };
    let [host_rx, host_tx, network_rx, network_tx] = &QUEUES;
    let [host, network] = VIRTIO.map(NicRegisters);
    let host = Nic::new(host, host_rx, host_tx).map_err(|why| ("host NIC", why))?;
    let network = Nic::new(network, network_rx, network_tx).map_err(|why| ("network NIC", why))?;
    Ok(Board {
        nics: Pair::new(host, network, Pool::new(memory)),
        serial: Uart::new(UartRegisters),
        delay: Delay,
        link_pin: NoPin,
        traffic_pin: NoPin,
        chip: Virt(()),
    })
}

impl Chip for Virt {
    type Nics = Pair<NicRegisters>;
    type Serial = Uart<UartRegisters>;
    type Delay = Delay;
    type Pin = NoPin;

    fn now(&mut self) -> Millis {
        Millis(time() / (TIMER_HZ / 1000))
    }

    fn seed(&mut self) -> u64 {
        time().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ riscv::register::mcycle::read64()
    }

    fn feed_watchdog(&mut self) {}

    fn idle(&mut self) {
        // It polls: nothing that arrives can be missed.
    }

    fn reset(&mut self) -> ! {
        restart()
    }
}

/// Starts the machine anew.
pub fn restart() -> ! {
    write32(TEST_DEVICE, 0x7777);
    halt()
}

/// Nothing can be done.
pub fn halt() -> ! {
    loop {
        riscv::asm::wfi();
    }
}

fn time() -> u64 {
    let (before, low, after) = (read32(TIME + 4), read32(TIME), read32(TIME + 4));
    // If the high half moved on in between, the low half is as good as zero.
    u64::from(after) << 32 | u64::from(if before == after { low } else { 0 })
}

/// Waits for the timer.
pub struct Delay;

impl DelayNs for Delay {
    fn delay_ns(&mut self, ns: u32) {
        let until = time() + u64::from(ns) * (TIMER_HZ / 1_000_000) / 1000 + 1;
        while time() < until {}
    }
}

/// The serial line for the last words of a start-up that failed.
pub struct Text;

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut uart = Uart::new(UartRegisters);
        for byte in text.as_bytes() {
            let _ = embedded_io::Write::write(&mut uart, &[*byte]);
        }
        Ok(())
    }
}
