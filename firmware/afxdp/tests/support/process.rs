//! A program of ours, as a process that logs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

pub struct Process {
    child: Child,
    /// Its name, for people.
    name: String,
    /// Its log.
    log: Arc<Mutex<String>>,
    lines: Receiver<String>,
    /// Reads what it logs, until it ends.
    reader: Option<JoinHandle<()>>,
    /// Its end was waited for: what is there by the names that it used may be another one's by now.
    pub ended: bool,
}

impl Process {
    /// Starts, and waits for nothing.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (log, (sender, lines)) = (Arc::new(Mutex::new(String::new())), channel());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let copy = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *copy.lock().unwrap() += &format!("{line}\n");
                let _ = sender.send(line);
            }
        });
        Self { child, name: name.to_owned(), log, lines, reader: Some(reader), ended: false }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it logs a line with these words; the line.
    pub fn wait_for(&mut self, words: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(words) => return line,
                Ok(_) => {}
                Err(_) => panic!("no `{words}` from {}; it printed:\n{}", self.name, self.log()),
            }
        }
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, and for the last line of its log.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                if let Some(reader) = self.reader.take() {
                    reader.join().unwrap();
                }
                self.ended = true;
                return status;
            }
            assert!(Instant::now() < end, "it does not end; it printed:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has it end in good order.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success(), "{}", self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{}:\n{}", self.name, self.log());
        }
    }
}
