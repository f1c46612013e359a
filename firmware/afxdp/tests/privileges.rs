//! Dropping privileges, in a process of its own: capabilities belong to threads, and the test
//! harness has several.

#[path = "support/skip.rs"]
mod skip;

use std::{fs, thread};

use gradwire_xdp::system::privileges::drop_all_but;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::CapabilitySet;
use skip::skip;

/// A field of `/proc/thread-self/status`, which the kernel writes.
fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {status}")).trim().to_owned()
}

fn packet_socket() -> Result<(), rustix::io::Errno> {
    socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop)
}

fn main() {
    if !rustix::process::geteuid().is_root() {
        skip("dropping privileges needs root");
        return;
    }
    packet_socket().unwrap();

    // What is kept stays usable; the number is linux/capability.h's.
    drop_all_but(CapabilitySet::NET_RAW).unwrap();
    let net_raw = format!("{:016x}", 1u64 << 13);
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(status(set), net_raw, "{set}");
    }
    packet_socket().unwrap();

    drop_all_but(CapabilitySet::empty()).unwrap();
    let check = || {
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(status(set), format!("{:016x}", 0), "{set}");
        }
        assert_eq!(status("NoNewPrivs"), "1");
        assert_eq!(packet_socket(), Err(rustix::io::Errno::PERM));
    };
    check();
    thread::spawn(check).join().unwrap();
    println!("privileges: dropped, and gone");
}
