//! One soft core in QEMU: a process, a socket a NIC, a serial line.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gradwire::forward::Port;

use super::serial::{Item, Splitter};
use crate::error::Error;

/// The emulator.
pub const QEMU: &str = "qemu-system-riscv32";
/// RV32IMAC and nothing else; QEMU's default processor has more, which would hide a wrong
/// instruction set.
pub const CPU: &str = "sifive-e31";
/// The prompt of the console.
const PROMPT: &str = "gradwire> ";
/// An emulator that takes longer than this to start, to answer a command, or to send what it has
/// to, hangs, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any frame that a core sends.
const MAX_FRAME_LEN: usize = 1 << 16;

/// The options of a start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The firmware, an ELF file.
    pub image: PathBuf,
    /// Processor, as QEMU names it.
    pub cpu: String,
    /// Whether instructions are counted exactly, which is slower.
    pub icount: bool,
    /// The network's NIC is also on a network of the emulator's own, from which this machine's
    /// programs reach the core by TCP: [`Machine::forward`]. Frames of that network arrive as if
    /// from the NIC, too. It is 10.0.0.0/24 and has the address 10.0.0.2.
    pub clients: bool,
}

impl Options {
    /// [`CPU`], and time from the host.
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), cpu: CPU.into(), icount: false, clients: false }
    }

    /// QEMU's command line but for the NICs.
    ///
    /// # Errors
    /// There is no such image.
    pub fn command(&self) -> Result<Command, Error> {
        if !self.image.is_file() {
            let image = self.image.display();
            return Err(Error::Usage(format!(
                "{image}: no such file: firmware/softcore/cargo build --release"
            )));
        }
        let mut command = Command::new(QEMU);
        command
            .args(["-machine", "virt", "-m", "16", "-cpu", &self.cpu, "-display", "none", "-monitor", "none"])
            .args(["-serial", "stdio", "-global", "virtio-mmio.force-legacy=false", "-bios"])
            .arg(&self.image);
        if self.icount {
            command.args(["-icount", "shift=0"]);
        }
        Ok(command)
    }

    /// Starts QEMU with its serial line on pipes.
    ///
    /// # Errors
    /// It is not installed, or the image is missing.
    pub fn spawn(&self, more: &[String]) -> Result<Child, Error> {
        let mut command = self.command()?;
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                Error::Usage(format!("{QEMU}: not found: apt-get install qemu-system-misc"))
            }
            _ => Error::io(QEMU, "start", source),
        })
    }
}

/// A soft core that runs. It ends with the value.
#[derive(Debug)]
pub struct Machine {
    process: Child,
    nics: [UnixStream; 2],
    to_serial: ChildStdin,
    from_serial: Receiver<Item>,
    logs: Vec<Vec<u8>>,
    folder: PathBuf,
}

impl Machine {
    /// Starts a core and waits for its prompt: its NICs are up then.
    ///
    /// # Errors
    /// The emulator cannot be started, or the firmware does not come up.
    pub fn start(options: &Options) -> Result<Self, Error> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("gradwire-softcore-{}-{number}", std::process::id()));
        let refused = |source| Error::io(folder.display().to_string(), "make", source);
        std::fs::create_dir(&folder).map_err(refused)?;
        let result = Self::start_in(options, &folder);
        if result.is_err() {
            let _ = std::fs::remove_dir_all(&folder);
        }
        result
    }

    fn start_in(options: &Options, folder: &Path) -> Result<Self, Error> {
        let refused = |source| Error::io(QEMU, "connect to", source);
        let mut more = Vec::new();
        let mut listeners = Vec::new();
        for nic in 0..2 {
            let path = folder.join(format!("nic{nic}"));
            let listener = UnixListener::bind(&path).map_err(refused)?;
            listener.set_nonblocking(true).map_err(refused)?;
            listeners.push(listener);
            let has_clients = options.clients && nic == Port::Network as usize;
            let socket = if has_clients { "socket".to_owned() } else { format!("n{nic}") };
            let mut netdevs =
                vec![format!("stream,id={socket},server=off,addr.type=unix,addr.path={}", path.display())];
            if has_clients {
                netdevs.push("user,id=clients,net=10.0.0.0/24,host=10.0.0.2,restrict=on,ipv6=off".into());
                netdevs.extend(
                    ["socket", "clients"].map(|to| format!("hubport,hubid=0,id={to}-port,netdev={to}")),
                );
                netdevs.push(format!("hubport,hubid=0,id=n{nic}"));
            }
            more.extend(netdevs.into_iter().flat_map(|netdev| ["-netdev".into(), netdev]));
            more.extend([
                "-device".into(),
                format!("virtio-net-device,bus=virtio-mmio-bus.{nic},netdev=n{nic}"),
            ]);
        }
        let qmp = folder.join("qmp");
        more.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", qmp.display())]);
        let mut process = options.spawn(&more)?;
        let result = connect(&mut process, &listeners);
        let (Ok([host, network]), Some(to_serial), Some(output)) =
            (result, process.stdin.take(), process.stdout.take())
        else {
            let _ = process.kill();
            let _ = process.wait();
            return Err(Error::Usage(format!("{QEMU} ended before it was connected: its message is above")));
        };
        let (sender, from_serial) = channel();
        std::thread::spawn(move || {
            let mut splitter = Splitter::default();
            for byte in io::BufReader::new(output).bytes().map_while(Result::ok) {
                if let Some(item) = splitter.byte(byte)
                    && sender.send(item).is_err()
                {
                    break;
                }
            }
        });
        let mut machine = Self {
            process,
            nics: [host, network],
            to_serial,
            from_serial,
            logs: Vec::new(),
            folder: folder.to_owned(),
        };
        machine.prompt()?;
        Ok(machine)
    }

    /// Sends a frame to a NIC.
    ///
    /// # Errors
    /// The emulator has gone.
    pub fn send(&mut self, to: Port, frame: &[u8]) -> Result<(), Error> {
        let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(frame);
        self.nics[to as usize].write_all(&bytes).map_err(|source| Error::io(QEMU, "send a frame to", source))
    }

    /// The next frame that a NIC sent, within `patience`.
    ///
    /// # Errors
    /// The emulator has gone.
    pub fn receive(&mut self, from: Port, patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        let refused = |source| Error::io(QEMU, "receive a frame from", source);
        let nic = &mut self.nics[from as usize];
        nic.set_read_timeout(Some(patience)).map_err(refused)?;
        let mut len = [0; 4];
        match nic.read(&mut len[..1]) {
            Ok(1) => {}
            Ok(_) => return Err(refused(io::ErrorKind::UnexpectedEof.into())),
            Err(late) if matches!(late.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(source) => return Err(refused(source)),
        }
        nic.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
        nic.read_exact(&mut len[1..]).map_err(refused)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_FRAME_LEN {
            return Err(Error::input(QEMU, 0u64, format!("a frame of {len} bytes"), "one that fits a NIC"));
        }
        let mut frame = vec![0; len];
        nic.read_exact(&mut frame).map_err(refused)?;
        Ok(Some(frame))
    }

    /// Sends bytes to the serial line.
    ///
    /// # Errors
    /// The emulator has gone.
    pub fn type_in(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sent = self.to_serial.write_all(bytes).and_then(|()| self.to_serial.flush());
        sent.map_err(|source| Error::io(QEMU, "write to the console of", source))
    }

    /// Gives the console a command; its answer, without echo and prompt.
    ///
    /// # Errors
    /// The emulator has gone, or does not answer.
    pub fn command(&mut self, line: &str) -> Result<String, Error> {
        self.type_in(format!("{line}\r").as_bytes())?;
        let text = self.prompt()?;
        let answer = text.strip_prefix(line).unwrap_or(&text);
        Ok(answer.replace('\r', "").trim_start_matches('\n').to_owned())
    }

    /// The text until the next prompt.
    ///
    /// # Errors
    /// The emulator has gone, or there is none for too long.
    pub fn prompt(&mut self) -> Result<String, Error> {
        let mut text = Vec::new();
        let until = Instant::now() + PATIENCE;
        while !text.ends_with(PROMPT.as_bytes()) {
            match self.from_serial.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Item::Text(byte)) => text.push(byte),
                Ok(Item::Frame(frame)) => self.logs.push(frame),
                Err(why) => {
                    let text_so_far = String::from_utf8_lossy(&text);
                    let why = match why {
                        RecvTimeoutError::Timeout => "says nothing",
                        RecvTimeoutError::Disconnected => "has gone",
                    };
                    return Err(Error::Usage(format!(
                        "the soft core {why}; its console's last words: {text_so_far:?}"
                    )));
                }
            }
        }
        text.truncate(text.len() - PROMPT.len());
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The log frames since the last call, in what the console has printed so far.
    pub fn logs(&mut self) -> Vec<Vec<u8>> {
        for item in self.from_serial.try_iter() {
            if let Item::Frame(frame) = item {
                self.logs.push(frame);
            }
        }
        std::mem::take(&mut self.logs)
    }

    /// A counter of the console's `counters`; those that are zero are not listed.
    ///
    /// # Errors
    /// The emulator has gone, or does not answer.
    pub fn counters(&mut self) -> Result<Vec<(String, u64)>, Error> {
        let answer = self.command("counters")?;
        let pairs = answer.lines().filter_map(|line| line.rsplit_once(' '));
        Ok(pairs.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?))).collect())
    }

    /// Pulls the cable of a NIC, or plugs it in.
    ///
    /// # Errors
    /// The emulator refuses.
    pub fn set_link(&mut self, port: Port, up: bool) -> Result<(), Error> {
        let nic = port as usize;
        self.control("set_link", &format!("{{\"name\":\"n{nic}\",\"up\":{up}}}"))?;
        Ok(())
    }

    /// The memory from `address`, as it is while the core runs.
    ///
    /// # Errors
    /// The emulator refuses.
    pub fn memory(&mut self, address: u32, len: u32) -> Result<Vec<u8>, Error> {
        let file = self.folder.join("memory");
        let name = file.display();
        self.control("pmemsave", &format!("{{\"val\":{address},\"size\":{len},\"filename\":\"{name}\"}}"))?;
        std::fs::read(&file).map_err(|source| Error::io(name.to_string(), "read", source))
    }

    /// From now on, connections to the address that is returned go to `to` through the network of
    /// [`Options::clients`].
    ///
    /// # Errors
    /// The emulator refuses.
    pub fn forward(&mut self, to: SocketAddrV4) -> Result<SocketAddrV4, Error> {
        let mut ask =
            |line: &str| self.control("human-monitor-command", &format!("{{\"command-line\":\"{line}\"}}"));
        ask(&format!("hostfwd_add clients tcp:127.0.0.1:0-{}:{}", to.ip(), to.port()))?;
        // A line for each connection: TCP[HOST_FORWARD], a file, address and port here, address and
        // port there, two queues.
        let list = ask("info usernet")?;
        let words: Vec<_> = list.split(|char: char| char == '\\' || char.is_whitespace()).collect();
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let (address, port) = (to.ip().to_string(), to.port().to_string());
        let found =
            words.windows(6).find(|at| at[0].ends_with("TCP[HOST_FORWARD]") && at[4..] == [&address, &port]);
        let port = found.and_then(|at| at[3].parse().ok());
        port.map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
            .ok_or_else(|| Error::Usage(format!("{QEMU} does not forward to {to}: {list}")))
    }

    /// Gives the emulator itself a command (QEMU Machine Protocol); the line with what it returns.
    fn control(&mut self, command: &str, arguments: &str) -> Result<String, Error> {
        let refused = |source| Error::io(QEMU, "control", source);
        let mut qmp = UnixStream::connect(self.folder.join("qmp")).map_err(refused)?;
        qmp.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
        let lines = format!(
            "{{\"execute\":\"qmp_capabilities\"}}\n{{\"execute\":\"{command}\",\"arguments\":{arguments}}}\n"
        );
        qmp.write_all(lines.as_bytes()).map_err(refused)?;
        // A greeting, answers to both, and events between them.
        let mut returned = 0;
        for line in io::BufRead::lines(io::BufReader::new(qmp)) {
            let line = line.map_err(refused)?;
            if line.contains("\"error\"") {
                return Err(Error::Usage(format!("{QEMU}: {line}")));
            }
            returned += u32::from(line.contains("\"return\""));
            if returned == 2 {
                return Ok(line);
            }
        }
        Err(refused(io::ErrorKind::UnexpectedEof.into()))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The connections that QEMU makes, in the order of the listeners.
fn connect(process: &mut Child, listeners: &[UnixListener]) -> io::Result<[UnixStream; 2]> {
    let until = Instant::now() + PATIENCE;
    let mut streams = Vec::new();
    for listener in listeners {
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(none) if none.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(source),
            }
            if process.try_wait()?.is_some() || Instant::now() > until {
                return Err(io::ErrorKind::NotConnected.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_nonblocking(false)?;
        streams.push(stream);
    }
    streams.try_into().map_err(|_| io::ErrorKind::NotConnected.into())
}
