//! QEMU's `virt` machine (hw/riscv/virt.c): two virtio-net NICs, a 16550, CLINT and PLIC, and a
//! test device that restarts it. `virtio-mmio-bus.0` is the host's NIC, `.1` the network's.
#![expect(unsafe_code, reason = "addresses of devices, and enabling interrupts")]

use embedded_hal::delay::DelayNs;
use gradwire::engine::Millis;
use riscv::register::{mie, mstatus};
use softcore::board::{Board, Chip, IDLE_MS, NoPin};
use softcore::buffers::{Memory, Pool};
use softcore::progress;
use softcore::uart16550::{self, Uart};
use softcore::virtio::Registers;
use softcore::virtio::net::{Nic, Unusable};
use softcore::virtio::pair::{BUFFERS, Pair};
use softcore::virtio::queue::QueueMemory;
use static_cell::ConstStaticCell;

use super::kept::Kept;
use super::mmio::Mmio;

/// A tick of the timer, which bounds idling and watches the main loop.
const TICK: u64 = IDLE_MS as u64 * TIMER_HZ / 1000;
const TIMER_HZ: u64 = 10_000_000;
/// Ticks without a turn of the main loop after which the watchdog bites.
const PATIENCE: u32 = 100;

const UART_IRQ: usize = 10;
const VIRTIO_IRQ: usize = 1;

// SAFETY, all of them: the blocks of hw/riscv/virt.c, `virt_memmap`; no RAM is there.
const fn test_device() -> Mmio {
    // SAFETY: as above. It restarts or ends the machine, and does nothing else.
    unsafe { Mmio::new(0x10_0000, 0x1000) }
}

const fn clint() -> Mmio {
    // SAFETY: as above.
    unsafe { Mmio::new(0x200_0000, 0x1_0000) }
}

const fn plic() -> Mmio {
    // SAFETY: as above.
    unsafe { Mmio::new(0xc00_0000, 0x60_0000) }
}

/// The UART's registers.
pub(crate) struct UartRegisters(Mmio);

impl uart16550::Registers for UartRegisters {
    fn read(&self, register: usize) -> u8 {
        self.0.read8(register)
    }

    fn write(&mut self, register: usize, value: u8) {
        self.0.write8(register, value);
    }
}

/// The registers of one virtio device.
pub(crate) struct VirtioRegisters(Mmio);

impl VirtioRegisters {
    fn new(bus: usize) -> Self {
        // SAFETY: as above; one of eight. The only memory it touches are queues and what `Queue`
        // lends.
        Self(unsafe { Mmio::new(0x1000_1000 + 0x1000 * bus, 0x1000) })
    }
}

impl Registers for VirtioRegisters {
    fn read(&self, offset: usize) -> u32 {
        self.0.read32(offset)
    }

    fn write(&mut self, offset: usize, value: u32) {
        self.0.write32(offset, value);
    }
}

/// A proof that nothing else uses these parts.
pub(crate) struct Virt(());

/// The serial line. Start-up uses it before the firmware has it.
pub(crate) fn serial() -> Uart<UartRegisters> {
    // SAFETY: as above.
    Uart::new(UartRegisters(unsafe { Mmio::new(0x1000_0000, 0x100) }))
}

/// The board's parts.
///
/// # Errors
/// A NIC is missing.
pub(crate) fn start() -> Result<Board<Virt>, (&'static str, Unusable)> {
    static MEMORY: ConstStaticCell<[Memory; BUFFERS]> = ConstStaticCell::new([Memory::NEW; BUFFERS]);
    static QUEUES: [QueueMemory; 4] = [const { QueueMemory::new() }; 4];

    // Called once; a second call would find no NIC.
    let Some(memory) = MEMORY.try_take() else { return Err(("both NICs", Unusable::Absent)) };
    let [host_rx, host_tx, network_rx, network_tx] = &QUEUES;
    let host = Nic::new(VirtioRegisters::new(0), host_rx, host_tx).map_err(|why| ("host NIC", why))?;
    let network =
        Nic::new(VirtioRegisters::new(1), network_rx, network_tx).map_err(|why| ("network NIC", why))?;
    let mut plic = plic();
    for irq in [VIRTIO_IRQ, VIRTIO_IRQ + 1, UART_IRQ] {
        plic.write32(4 * irq, 1);
    }
    plic.write32(PLIC_ENABLE, 1 << VIRTIO_IRQ | 1 << (VIRTIO_IRQ + 1) | 1 << UART_IRQ);
    plic.write32(PLIC_THRESHOLD, 0);

    set_tick();
    // SAFETY: the trap vector is set, and the one interrupt enabled has a handler, which shares
    // nothing with others but what `critical-section` guards.
    unsafe { mie::set_mtimer() };
    // SAFETY: as above.
    unsafe { mstatus::set_mie() };
    Ok(Board {
        nics: Pair::new(host, network, Pool::new(memory)),
        serial: serial(),
        delay: Delay,
        link_pin: NoPin,
        traffic_pin: NoPin,
        chip: Virt(()),
    })
}

/// PLIC, hart 0 in machine mode: enabled interrupts, threshold, claim and completion.
const PLIC_ENABLE: usize = 0x2000;
const PLIC_THRESHOLD: usize = 0x20_0000;
const PLIC_CLAIM: usize = 0x20_0004;

impl Chip for Virt {
    type Nics = Pair<VirtioRegisters>;
    type Serial = Uart<UartRegisters>;
    type Delay = Delay;
    type Pin = NoPin;

    fn now(&mut self) -> Millis {
        Millis(time() / (TIMER_HZ / 1000))
    }

    fn seed(&mut self) -> u64 {
        // The machine has no source of randomness: how long it ran, to the cycle.
        time().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ riscv::register::mcycle::read64()
    }

    fn feed_watchdog(&mut self) {
        // The timer looks at `progress` itself.
    }

    fn idle(&mut self) {
        riscv::interrupt::free(|| {
            // A NIC's interrupt stands until `service` stops it, and WFI does not wait while one
            // stands; interrupts are off, so it wakes and calls nothing. SAFETY: it can be taken
            // nowhere but here, where interrupts are off.
            unsafe { mie::set_mext() };
            riscv::asm::wfi();
            // SAFETY: only less can happen.
            unsafe { mie::clear_mext() };
        });
        // The PLIC forgets what it had latched; what still stands is latched again.
        let mut plic = plic();
        for _ in 0..3 {
            let irq = plic.read32(PLIC_CLAIM);
            if irq == 0 {
                break;
            }
            plic.write32(PLIC_CLAIM, irq);
        }
    }

    fn reset(&mut self) -> ! {
        restart()
    }
}

/// The timer interrupt: the next tick, and the watchdog. A `virt` machine has no other.
pub(crate) fn tick() {
    use core::sync::atomic::{AtomicU32, Ordering};
    static TURNS: AtomicU32 = AtomicU32::new(0);
    static TICKS: AtomicU32 = AtomicU32::new(0);

    set_tick();
    let turns = progress::read().turns;
    if TURNS.swap(turns, Ordering::Relaxed) != turns {
        TICKS.store(0, Ordering::Relaxed);
    } else if TICKS.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
        restart();
    }
}

/// Memory that a restart leaves as it is.
#[allow(dead_code, reason = "for the image that may panic")]
pub(crate) fn kept() -> Kept {
    // SAFETY: RAM behind what the linker script gives to the firmware; no device uses it, and
    // nothing else does.
    Kept::new(unsafe { Mmio::new(0x8020_0000, Kept::LEN) })
}

/// Starts the machine anew.
pub(crate) fn restart() -> ! {
    const RESET: u32 = 0x7777;
    test_device().write32(0, RESET);
    loop {
        riscv::asm::wfi();
    }
}

/// Ends the machine: its exit status is 0, or 1.
#[allow(dead_code, reason = "for the selftest alone")]
pub(crate) fn exit(success: bool) -> ! {
    const PASS: u32 = 0x5555;
    const FAIL_WITH_1: u32 = 1 << 16 | 0x3333;
    test_device().write32(0, if success { PASS } else { FAIL_WITH_1 });
    loop {
        riscv::asm::wfi();
    }
}

/// Sets the timer one tick ahead.
fn set_tick() {
    const MTIMECMP: usize = 0x4000;
    let at = time() + TICK;
    let mut clint = clint();
    // Never early in between (RISC-V Privileged Architecture, `mtimecmp` on RV32).
    clint.write32(MTIMECMP, u32::MAX);
    clint.write32(MTIMECMP + 4, (at >> 32) as u32);
    clint.write32(MTIMECMP, at as u32);
}

/// `mtime`, in units of `TIMER_HZ`.
fn time() -> u64 {
    const MTIME: usize = 0xbff8;
    let clint = clint();
    let (before, low, after) = (clint.read32(MTIME + 4), clint.read32(MTIME), clint.read32(MTIME + 4));
    // If the high half moved on in between, the low half is as good as zero.
    let low = if before == after { low } else { 0 };
    u64::from(after) << 32 | u64::from(low)
}

/// Waits for the timer.
pub(crate) struct Delay;

impl DelayNs for Delay {
    fn delay_ns(&mut self, ns: u32) {
        let until = time() + u64::from(ns) * (TIMER_HZ / 1_000_000) / 1000 + 1;
        while time() < until {}
    }
}
