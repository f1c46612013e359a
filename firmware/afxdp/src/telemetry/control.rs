//! The control socket: whoever connects gets a snapshot as one line of JSON. There is one for each
//! pair of ports and for each interface with an aggregator, and it also tells which process serves
//! them.

use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::system::privileges::as_root;
use crate::telemetry;
use crate::telemetry::server::{self, Request, Terms, patience};

/// The folder of control sockets, unless an option names another.
pub const RUN_DIR: &str = "/run/gradwire-xdp";
/// A client that takes longer to read its snapshot does not get all of it.
const TERMS: Terms = Terms { name: "control socket", max_request: 0, time: patience(5) };
/// A snapshot may wait for queues that do not answer.
const READ_TIMEOUT: Duration = patience(2).saturating_add(telemetry::PATIENCE);

/// Why a control socket cannot be used.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process serves the ports.
    #[error("{}: process {pid} runs on these ports; end it first: gradwire-xdp unload {}", socket.display(), host_of(socket))]
    Running {
        /// The socket.
        socket: PathBuf,
        /// The process.
        pid: u32,
    },
    /// No process listens.
    #[error("{}: nobody listens: the process has gone; clear up after it: gradwire-xdp unload {}", socket.display(), host_of(socket))]
    Gone {
        /// The socket.
        socket: PathBuf,
    },
    /// The process does not answer.
    #[error("{}: process {pid} does not answer; end it: gradwire-xdp unload {}", socket.display(), host_of(socket))]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// The process.
        pid: u32,
    },
    /// The answer is no snapshot: client and server are of different versions.
    #[error("{}: not a snapshot of this version: {source}", socket.display())]
    Answer {
        /// The socket.
        socket: PathBuf,
        /// The difference.
        source: serde_json::Error,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}{}", path.display(), as_root(source))]
    Io {
        /// The socket, or its folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl ControlError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }
}

/// The socket of a pair of ports. A colon cannot be part of an interface's name.
#[must_use]
pub fn socket_path(run_dir: &Path, host: &str, net: &str) -> PathBuf {
    run_dir.join(format!("{host}:{net}.sock"))
}

/// The pair of ports that a socket is for; none if the file's name is not a socket's.
#[must_use]
pub fn ports_of(socket: &Path) -> Option<(String, String)> {
    let (host, net) = socket.file_name()?.to_str()?.strip_suffix(".sock")?.split_once(':')?;
    Some((host.to_owned(), net.to_owned()))
}

/// The socket of the aggregator on an interface.
#[must_use]
pub fn aggregator_socket_path(run_dir: &Path, interface: &str) -> PathBuf {
    run_dir.join(format!("{interface}:.aggregator"))
}

/// The interface that an aggregator's socket is for; none if the file's name is not such a
/// socket's.
#[must_use]
pub fn interface_of(socket: &Path) -> Option<String> {
    Some(socket.file_name()?.to_str()?.strip_suffix(":.aggregator")?.to_owned())
}

/// The argument of `unload` that ends what serves a socket.
fn host_of(socket: &Path) -> String {
    let host = ports_of(socket).map(|(host, _)| host);
    host.or_else(|| interface_of(socket)).unwrap_or_else(|| "--all".to_owned())
}

/// All sockets of shims in a folder and in the folders in it, in the order of their names; none if
/// there is no such folder. Under systemd each shim has a folder of its own below [`RUN_DIR`].
///
/// # Errors
/// [`ControlError::Io`].
pub fn sockets(run_dir: &Path) -> Result<Vec<PathBuf>, ControlError> {
    find(run_dir, |path| ports_of(path).is_some())
}

/// All sockets of aggregators there, as [`sockets`] are found.
///
/// # Errors
/// [`ControlError::Io`].
pub fn aggregator_sockets(run_dir: &Path) -> Result<Vec<PathBuf>, ControlError> {
    find(run_dir, |path| interface_of(path).is_some())
}

fn find(run_dir: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, ControlError> {
    let mut sockets = Vec::new();
    for path in entries(run_dir)? {
        if wanted(&path) {
            sockets.push(path);
        } else if path.is_dir() {
            sockets.extend(entries(&path)?.into_iter().filter(|path| wanted(path)));
        }
    }
    sockets.sort();
    Ok(sockets)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, ControlError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(ControlError::io(folder, "read"))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>();
    paths.map_err(ControlError::io(folder, "read"))
}

/// A bound control socket; the file goes when it is dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    file: SocketFile,
}

/// Removes the socket's file when dropped.
#[must_use]
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the next start copes with a file that stayed.
        let _ = fs::remove_file(&self.0);
    }
}

impl Control {
    /// Binds the socket of a pair of ports, in place of one that a crash left behind. To be done
    /// before privileges are dropped.
    ///
    /// # Errors
    /// [`ControlError::Running`]; [`ControlError::Io`].
    pub fn bind(run_dir: &Path, host: &str, net: &str) -> Result<Self, ControlError> {
        Self::bind_at(run_dir, socket_path(run_dir, host, net))
    }

    /// Binds the socket of the aggregator on an interface, likewise.
    ///
    /// # Errors
    /// [`ControlError::Running`]; [`ControlError::Io`].
    pub fn bind_aggregator(run_dir: &Path, interface: &str) -> Result<Self, ControlError> {
        Self::bind_at(run_dir, aggregator_socket_path(run_dir, interface))
    }

    fn bind_at(run_dir: &Path, path: PathBuf) -> Result<Self, ControlError> {
        fs::create_dir_all(run_dir).map_err(ControlError::io(run_dir, "make"))?;
        match connect(&path) {
            Ok((_, pid)) => return Err(ControlError::Running { socket: path, pid }),
            Err(ControlError::Gone { .. }) => {
                fs::remove_file(&path).map_err(ControlError::io(&path, "remove"))?;
            }
            Err(ControlError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path).map_err(ControlError::io(&path, "bind"))?;
        let file = SocketFile(path);
        // Flows are nobody else's business.
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o660))
            .map_err(ControlError::io(&file.0, "set permissions of"))?;
        Ok(Self { listener, file })
    }

    /// Answers in a thread of its own for as long as the process lives.
    ///
    /// # Errors
    /// [`ControlError::Io`]: there can be no thread.
    pub fn serve<S: Serialize + 'static>(
        self,
        snapshot: impl Fn() -> S + Send + 'static,
    ) -> Result<SocketFile, ControlError> {
        let Self { listener, file } = self;
        let accept = |listener: &UnixListener| listener.accept().map(|(client, _)| client);
        let respond = move |_: &[u8]| answer(&snapshot());
        listener.set_nonblocking(true).map_err(ControlError::io(&file.0, "serve"))?;
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || server::serve(&listener, accept, TERMS, respond))
            .map_err(ControlError::io(&file.0, "serve"))?;
        Ok(file)
    }
}

/// Whoever connects has asked.
fn answer(snapshot: &impl Serialize) -> Request {
    serde_json::to_vec(snapshot).map_or(Request::Refused, |mut json| {
        json.push(b'\n');
        Request::Answer(json)
    })
}

/// Connects to a socket; the connection, and the process that listens.
fn connect(socket: &Path) -> Result<(UnixStream, u32), ControlError> {
    let stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused => ControlError::Gone { socket: socket.to_owned() },
        _ => ControlError::io(socket, "connect to")(source),
    })?;
    let peer = socket_peercred(&stream).map_err(|error| ControlError::io(socket, "ask")(error.into()))?;
    Ok((stream, peer.pid.as_raw_nonzero().get().unsigned_abs()))
}

/// The process that listens on a socket, also if it hangs.
///
/// # Errors
/// [`ControlError::Gone`]; [`ControlError::Io`].
pub fn owner(socket: &Path) -> Result<Pid, ControlError> {
    let (_, pid) = connect(socket)?;
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The kernel gives 0 for a process of another PID namespace.
    pid.ok_or_else(|| ControlError::io(socket, "see the process of")(io::ErrorKind::NotFound.into()))
}

/// Asks for a snapshot: a shim's or an aggregator's.
///
/// # Errors
/// The process has gone, hangs, or is of another version.
pub fn query<S: DeserializeOwned>(socket: &Path) -> Result<S, ControlError> {
    query_within(socket, READ_TIMEOUT)
}

fn query_within<S: DeserializeOwned>(socket: &Path, timeout: Duration) -> Result<S, ControlError> {
    let (stream, pid) = connect(socket)?;
    stream.set_read_timeout(Some(timeout)).map_err(ControlError::io(socket, "use"))?;
    let mut answer = String::new();
    match BufReader::new(stream).read_line(&mut answer) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            return Err(ControlError::Silent { socket: socket.to_owned(), pid });
        }
        Err(error) => return Err(ControlError::io(socket, "read from")(error)),
    }
    serde_json::from_str(&answer).map_err(|source| ControlError::Answer { socket: socket.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process;

    use super::*;
    use crate::scratch::Scratch;
    use crate::telemetry::Snapshot;
    use crate::telemetry::tests::example;

    #[test]
    fn a_snapshot_comes_through_the_socket() {
        let run_dir = Scratch::new();
        let control = Control::bind(run_dir.path(), "veth0", "eth0").unwrap();
        let file = control.serve(example).unwrap();
        let sockets = sockets(run_dir.path()).unwrap();
        assert_eq!(sockets, [socket_path(run_dir.path(), "veth0", "eth0")]);
        for _ in 0..3 {
            assert_eq!(query::<Snapshot>(&sockets[0]).unwrap(), example());
        }
        assert_eq!(owner(&sockets[0]).unwrap(), Pid::from_raw(process::id() as i32).unwrap());
        drop(file);
        assert!(!sockets[0].exists());
    }

    /// Each could take long to read its answer; none of them makes another one wait.
    #[test]
    fn clients_that_do_not_read_keep_nobody_out() {
        let run_dir = Scratch::new();
        let control = Control::bind(run_dir.path(), "veth0", "eth0").unwrap();
        // More than a socket holds.
        let large = || {
            let mut snapshot = example();
            snapshot.version = "9".repeat(1 << 18);
            snapshot
        };
        let file = control.serve(large).unwrap();
        let path = socket_path(run_dir.path(), "veth0", "eth0");
        let connect = |_| UnixStream::connect(&path).unwrap();
        let silent = (0..4).map(connect).collect::<Vec<_>>();
        assert_eq!(query_within::<Snapshot>(&path, Duration::from_secs(120)).unwrap(), large());
        drop((silent, file));
    }

    #[test]
    fn a_second_process_on_the_ports_is_told_of_the_first() {
        let run_dir = Scratch::new();
        let _first = Control::bind(run_dir.path(), "veth0", "eth0").unwrap();
        let error = Control::bind(run_dir.path(), "veth0", "eth0").unwrap_err();
        let expected =
            format!("process {} runs on these ports; end it first: gradwire-xdp unload veth0", process::id());
        assert!(error.to_string().ends_with(&expected), "{error}");
        // Other ports are others' affair.
        let _other = Control::bind(run_dir.path(), "veth1", "eth0").unwrap();
    }

    #[test]
    fn a_socket_left_by_a_crash_is_replaced() {
        let run_dir = Scratch::new();
        let path = socket_path(run_dir.path(), "veth0", "eth0");
        // Closing a listener leaves its file, as a crash does.
        drop(UnixListener::bind(&path).unwrap());
        let error = query::<Snapshot>(&path).unwrap_err();
        assert!(matches!(error, ControlError::Gone { .. }));
        assert!(error.to_string().ends_with("clear up after it: gradwire-xdp unload veth0"), "{error}");
        let file = Control::bind(run_dir.path(), "veth0", "eth0").unwrap().serve(example).unwrap();
        assert_eq!(query::<Snapshot>(&path).unwrap(), example());
        drop(file);
    }

    #[test]
    fn a_process_that_hangs_is_named() {
        let run_dir = Scratch::new();
        let path = socket_path(run_dir.path(), "veth0", "eth0");
        let _silent = UnixListener::bind(&path).unwrap();
        let error = query_within::<Snapshot>(&path, Duration::from_millis(20)).unwrap_err();
        let expected =
            format!("process {} does not answer; end it: gradwire-xdp unload veth0", process::id());
        assert!(error.to_string().ends_with(&expected), "{error}");
    }

    #[test]
    fn an_answer_of_another_version_is_refused() {
        let run_dir = Scratch::new();
        let path = socket_path(run_dir.path(), "veth0", "eth0");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(b"{\"version\":\"9\"}\n"));
        let error = query::<Snapshot>(&path).unwrap_err();
        assert!(error.to_string().contains("not a snapshot of this version"), "{error}");
        server.join().unwrap().unwrap();
    }

    #[test]
    fn only_its_group_may_use_the_socket() {
        let run_dir = Scratch::new();
        let _control = Control::bind(run_dir.path(), "veth0", "eth0").unwrap();
        let socket = fs::metadata(socket_path(run_dir.path(), "veth0", "eth0")).unwrap();
        assert_eq!(socket.permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn only_sockets_are_listed() {
        let run_dir = Scratch::new();
        fs::write(run_dir.path().join("notes.sock"), "").unwrap();
        fs::write(run_dir.path().join("a:b.pid"), "").unwrap();
        assert!(sockets(run_dir.path()).unwrap().is_empty());
        let own = run_dir.path().join("instance");
        fs::create_dir(&own).unwrap();
        let _control = Control::bind(&own, "a", "b").unwrap();
        let _aggregator = Control::bind_aggregator(run_dir.path(), "a").unwrap();
        assert_eq!(sockets(run_dir.path()).unwrap(), [socket_path(&own, "a", "b")]);
        assert_eq!(
            aggregator_sockets(run_dir.path()).unwrap(),
            [aggregator_socket_path(run_dir.path(), "a")]
        );
        assert!(sockets(&run_dir.path().join("missing")).unwrap().is_empty());
    }
}
