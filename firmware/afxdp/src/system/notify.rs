//! Messages to systemd about a service (sd_notify(3)): datagrams to the socket that `NOTIFY_SOCKET`
//! names. Without it, nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io, process};

use rustix::time::{ClockId, clock_gettime};

/// The way to the service manager.
#[derive(Debug)]
pub struct Notifier {
    /// None if nobody wants to know.
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says.
    ///
    /// # Errors
    /// `NOTIFY_SOCKET` is no address of a socket, or no socket can be made.
    pub fn from_env() -> io::Result<Self> {
        let watchdog = watchdog(
            env::var("WATCHDOG_USEC").ok().as_deref(),
            env::var("WATCHDOG_PID").ok().as_deref(),
            process::id(),
        );
        match env::var_os("NOTIFY_SOCKET") {
            None => Ok(Self { manager: None, watchdog }),
            Some(name) => Self::to(name.as_bytes(), watchdog),
        }
    }

    /// To a manager that listens at this address, and watches so often.
    ///
    /// # Errors
    /// It is no address of a socket, or no socket can be made.
    pub(crate) fn to(name: &[u8], watchdog: Option<Duration>) -> io::Result<Self> {
        Ok(Self { manager: Some((UnixDatagram::unbound()?, address(name)?)), watchdog })
    }

    /// The number of times that [`Self::alive`] has to be said at least; half of it is what systemd
    /// recommends. None if nobody watches.
    #[must_use]
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The service is up; `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// Starting takes at least so much longer; `status` is a line for people.
    pub fn waiting(&self, status: &str, longer: Duration) {
        self.send(&format!("STATUS={}\nEXTEND_TIMEOUT_USEC={}", line(status), longer.as_micros()));
    }

    /// The configuration is being read again; [`Self::ready`] ends it.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// It does not hang.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports its state, a line for people.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    fn send(&self, state: &str) {
        let Some((socket, manager)) = &self.manager else { return };
        // The manager may be restarting; that is no reason to disturb traffic.
        if let Err(error) = socket.send_to_addr(state.as_bytes(), manager) {
            tracing::debug!(%error, state, "the service manager was not reached");
        }
    }
}

/// A newline would start another assignment.
fn line(text: &str) -> String {
    text.replace('\n', " ")
}

/// A path, or an abstract name behind an `@`.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("NOTIFY_SOCKET is {:?}, expected a path or @name", String::from_utf8_lossy(name)),
        )),
    }
}

/// The interval that `WATCHDOG_USEC` gives, if `WATCHDOG_PID` does not name another process.
fn watchdog(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let usec = usec?.parse().ok().filter(|usec| *usec > 0)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn received(at: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let len = at.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    fn assert_received(manager: &UnixDatagram, name: &[u8]) {
        let notifier = Notifier::to(name, None).unwrap();
        notifier.ready("two\nlines");
        assert_eq!(received(manager), "READY=1\nSTATUS=two lines");
        notifier.alive();
        assert_eq!(received(manager), "WATCHDOG=1");
        notifier.reloading();
        let reloading = received(manager);
        let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(usec.parse::<u64>().unwrap() > 0);
        notifier.stopping();
        assert_eq!(received(manager), "STOPPING=1");
    }

    #[test]
    fn the_manager_hears_it_at_a_path_and_at_an_abstract_name() {
        let folder = Scratch::new();
        let path = folder.path().join("notify");
        assert_received(&UnixDatagram::bind(&path).unwrap(), path.as_os_str().as_bytes());

        let name = format!("@gradwire-notify-{}", process::id());
        assert_received(
            &UnixDatagram::bind_addr(&address(name.as_bytes()).unwrap()).unwrap(),
            name.as_bytes(),
        );
    }

    #[test]
    fn an_address_of_another_kind_is_refused() {
        assert!(address(b"vsock:2:1234").unwrap_err().to_string().contains("expected a path or @name"));
    }

    #[test]
    fn a_manager_that_went_away_is_no_fault() {
        let folder = Scratch::new();
        let path = folder.path().join("notify");
        Notifier::to(path.as_os_str().as_bytes(), None).unwrap().alive();
    }

    #[test]
    fn the_watchdog_is_this_process_s_own() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(Some("soon"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
    }
}
