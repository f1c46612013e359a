//! Which processes hold an XDP program: a program that a `bpf_link` attached stays as long as
//! somebody has the link open, and goes with the last of them.

use std::fs;
use std::path::Path;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: i32,
    /// Its name, as `ps -o comm` has it.
    pub name: String,
}

impl Holder {
    /// Whether it is one of this program's.
    #[must_use]
    pub fn is_gradwire(&self) -> bool {
        self.name == env!("CARGO_PKG_NAME")
    }
}

/// The processes below `root`, which is `/` but for tests, that have a link of `program` open.
/// Those of other users are only seen by root.
#[must_use]
pub fn holders(root: &Path, program: u32) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir(root.join("proc")) else { return Vec::new() };
    let holder = |process: fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(process.path().join("fdinfo")).ok()?;
        // A process may end while it is looked at.
        let mut infos = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
        infos.any(|info| links(&info, program)).then(|| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            Holder { pid, name: name.trim_end().to_owned() }
        })
    };
    let mut holders: Vec<_> = processes.flatten().filter_map(holder).collect();
    holders.sort_by_key(|holder| holder.pid);
    holders
}

/// Whether this is what `/proc/*/fdinfo/*` says of a link of `program`.
fn links(info: &str, program: u32) -> bool {
    let field = |name: &str| info.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
    field("link_type:").is_some() && field("prog_id:").is_some_and(|id| id.parse() == Ok(program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn holders_are_found_by_their_open_links() {
        let root = Scratch::new();
        let process = |pid: &str, name: &str, info: &str| {
            let folder = root.path().join("proc").join(pid);
            fs::create_dir_all(folder.join("fdinfo")).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("fdinfo/0"), "pos:\t0\nflags:\t02\n").unwrap();
            fs::write(folder.join("fdinfo/7"), info).unwrap();
        };
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t3\nprog_tag:\t00\nprog_id:\t41\nifindex:\t5\n";
        process("30", "gradwire-xdp", link);
        process("4", "xdp-loader", link);
        // Another program's link, and the program itself: it does not keep it attached.
        process("5", "other", &link.replace("41", "412"));
        process("6", "bpftool", "prog_type:\t6\nprog_id:\t41\n");
        process("self", "x", link);

        let found = holders(root.path(), 41);
        assert_eq!(found.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [4, 30]);
        assert_eq!(found.iter().map(Holder::is_gradwire).collect::<Vec<_>>(), [false, true]);
        assert!(holders(root.path(), 42).is_empty());
    }
}
