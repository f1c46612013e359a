"""The guests' kernels and initial file systems: tools from FOLDER/root, modules from FOLDER/kernel (`unpack`), and gradwire-xdp; some guests
have more, from FOLDER/field."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LOADER = "lib64/ld-linux-x86-64.so.2"
# A shell of its own, because busybox' shell runs its own `ip` whatever PATH says.
TOOLS = ["dash", "ip", "tc", "bridge", "ethtool", "nft", "ping", "kmod"]
# What a Kubernetes node has and the tools lack; what makes a container of a process; and what the
# doctor names.
POD_TOOLS = ["xtables-nft-multi", "arping", "bpftool", "nsenter", "setpriv", "unshare"]
CNI = ["bridge", "host-device", "host-local", "static"]
# What a host has on which systemd runs services, and dpkg installs packages.
SYSTEM_TOOLS = ["dpkg", "dpkg-deb", "dpkg-query", "dpkg-split", "ldconfig", "start-stop-daemon", "systemctl", "journalctl", "tar"]
SYSTEMD = ["systemd", "systemd-journald"]
# Modules that the guests may load, by folder or file below kernel/; what these depend on comes too.
MODULES = [
    "drivers/char/virtio_console.ko",
    "drivers/net/ethernet/intel/e1000e",
    "drivers/net/ethernet/intel/igb",
    "drivers/net/ifb.ko",
    "drivers/net/veth.ko",
    "drivers/net/virtio_net.ko",
    "drivers/net/vmxnet3",
    "drivers/virtio",
    "net/8021q",
    "net/bridge",
    "net/ipv4/netfilter",
    "net/ipv6/netfilter",
    "net/netfilter",
    "net/packet",
    "net/sched",
    "net/xdp",
]


class Archive:
    """A cpio archive (newc), which the kernel unpacks into the guest's root. Not compressed: emulated guests unpack slowly."""

    def __init__(self, path: Path) -> None:
        self.out, self.number = open(path, "wb"), 0
        self.folders: set[str] = set()

    def entry(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        for folder in reversed(Path(name).parents[:-1]):
            if str(folder) not in self.folders:
                self.folders.add(str(folder))
                self.entry(str(folder), 0o040755)
        self.number += 1
        fields = [self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        for part in (head, data):
            self.out.write(part + b"\0" * (-len(part) % 4))

    def file(self, name: str, source: Path) -> None:
        self.entry(name, 0o100000 | (source.stat().st_mode & 0o777), source.read_bytes())

    def link(self, name: str, target: str) -> None:
        self.entry(name, 0o120777, target.encode())

    def close(self) -> None:
        self.entry("TRAILER!!!", 0)
        self.out.close()


LIBRARIES = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd", "lib64"]


def library_path(root: Path) -> str:
    return ":".join(str(root / folder) for folder in LIBRARIES)


def command(root: Path, program: str) -> list[str]:
    """How a program of `root` runs here, with the libraries from there."""
    return [str(root / LOADER), "--library-path", library_path(root), str(find(root, program))]


def find(root: Path, program: str) -> Path:
    places = [root / folder / program for folder in ("usr/sbin", "sbin", "usr/bin", "bin")]
    return next(place for place in places if place.exists()).resolve()


def libraries(root: Path, program: Path) -> set[str]:
    """The libraries that a program loads, by their names."""
    listed = subprocess.run([root / LOADER, "--library-path", library_path(root), "--list", program], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines() if "=>" in line and not line.strip().startswith("/")}


def add_libraries(archive: Archive, root: Path, names: set[str]) -> None:
    for name in sorted(names):
        places = [root / folder / name for folder in LIBRARIES]
        archive.file(f"usr/lib/{name}", next(place for place in places if place.exists()).resolve())


def of_tools(root: Path) -> set[str]:
    """The libraries of all tools. Guests have each library once, and the tools' may be newer: from backports."""
    programs = [find(root, name) for name in [*TOOLS, "python3"]]
    return {"ld-linux-x86-64.so.2", "libgcc_s.so.1", "libm.so.6"}.union(*(libraries(root, program) for program in programs))


def tools(root: Path, path: Path) -> None:
    """Writes what is the same for all kernels and all versions of the shim."""
    archive = Archive(path)
    for name in ("proc", "sys", "dev", "run", "tmp", "etc", "root", "var"):
        archive.entry(name, 0o040755)
    # Before devtmpfs is there, the kernel gives init this console.
    archive.entry("dev/console", 0o020600, device=(5, 1))
    for name, target in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib"), ("var/run", "/run")):
        archive.link(name, target)
    python = find(root, "python3")
    wanted = {find(root, name): name for name in TOOLS} | {python: "python3"}
    for program, name in wanted.items():
        archive.file(f"usr/sbin/{name}", program)
    add_libraries(archive, root, of_tools(root))
    for name in ("modprobe", "depmod"):
        archive.link(f"usr/sbin/{name}", "kmod")
    archive.link("usr/bin/sh", "../sbin/dash")
    busybox = find(root, "busybox")
    archive.file("usr/bin/busybox", busybox)
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name not in ("busybox", "sh", *TOOLS, "modprobe", "depmod"):
            archive.link(f"usr/bin/{name}", "busybox")
    for module in python_modules(root):
        archive.file(f"usr/lib/{module.relative_to(root / 'usr/lib')}", module)
    archive.close()


def pods(folder: Path, path: Path) -> None:
    """Writes what a Kubernetes node has: iptables, plugins for pods' networks, and what makes containers."""
    root, archive = folder / "field", Archive(path)
    needed = programs(archive, root, {f"usr/sbin/{name}": find(root, name) for name in POD_TOOLS})
    for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"):
        archive.link(f"usr/sbin/{name}", "xtables-nft-multi")
    for extension in sorted((root / "usr/lib/x86_64-linux-gnu/xtables").glob("*.so")):
        archive.file(f"usr/lib/x86_64-linux-gnu/xtables/{extension.name}", extension)
    for name in CNI:
        plugin = root / "usr/lib/cni" / name
        archive.file(f"usr/lib/cni/{name}", plugin)
        needed |= libraries(root, plugin)
    add_libraries(archive, root, needed - of_tools(folder / "root"))
    archive.close()


def system(folder: Path, path: Path) -> None:
    """Writes what a host of Debian has whose first process is systemd, with few units; and dpkg, which knows of the packages unpacked here."""
    root, archive = folder / "field", Archive(path)
    system = root / "lib/systemd"
    wanted = {f"usr/sbin/{name}": find(root, name) for name in SYSTEM_TOOLS}
    wanted |= {f"usr/lib/systemd/{name}": system / name for name in SYSTEMD}
    add_libraries(archive, root, programs(archive, root, wanted) - of_tools(folder / "root"))
    for pattern in ("*.target", "*.slice", "systemd-journald.*", "systemd-journald-dev-log.socket"):
        for unit in sorted((system / "system").glob(pattern)):
            # Aliases are relative to this folder.
            name = f"usr/lib/systemd/system/{unit.name}"
            if unit.is_symlink():
                archive.link(name, str(unit.readlink()))
            else:
                archive.file(name, unit)
    archive.link("etc/systemd/system/default.target", "/usr/lib/systemd/system/multi-user.target")
    for socket in ("systemd-journald.socket", "systemd-journald-dev-log.socket"):
        archive.link(f"etc/systemd/system/sockets.target.wants/{socket}", f"/usr/lib/systemd/system/{socket}")
    archive.file("usr/lib/systemd/system/agent.service", HERE / "guest/agent.service")
    archive.link("etc/systemd/system/multi-user.target.wants/agent.service", "/usr/lib/systemd/system/agent.service")
    archive.file("systemd", HERE / "guest/systemd")
    known = (root / "var/lib/dpkg/status").read_bytes()
    for name, text in {
        "etc/machine-id": b"0123456789abcdef0123456789abcdef\n",
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": b"root:x:0:\n",
        "var/lib/dpkg/status": known,
        "var/lib/dpkg/available": b"",
        "var/lib/dpkg/info/format": b"1\n",
    }.items():
        archive.entry(name, 0o100644, text)
    for name in ("updates", "triggers", "parts"):
        archive.entry(f"var/lib/dpkg/{name}", 0o040755)
    archive.close()


def programs(archive: Archive, root: Path, wanted: dict[str, Path]) -> set[str]:
    """Adds programs, each by its name in the guest; the libraries that they load."""
    for name, program in wanted.items():
        archive.file(name, program)
    return set().union(*(libraries(root, program) for program in wanted.values()))


# What only some guests have; by name.
EXTRAS = {"pods": pods, "system": system}


def python_modules(root: Path) -> list[Path]:
    """What frames.py imports, compiled: an emulated guest would compile at each start."""
    imports = "import sys, _socket, time; print(*sorted(filter(None, (getattr(m, '__file__', None) for m in sys.modules.values()))), sep='\\n')"
    python = [*command(root, "python3"), "-S"]
    environment = {"PYTHONHOME": str(root / "usr"), "PATH": os.environ["PATH"]}
    listed = subprocess.run([*python, "-c", imports], env=environment, capture_output=True, text=True, check=True)
    modules = [Path(line) for line in listed.stdout.split()]
    compile = [*python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-i", "-"]
    subprocess.run(compile, env=environment, input=listed.stdout, text=True, check=True)
    compiled = [file for module in modules for file in module.parent.glob(f"__pycache__/{module.stem}.cpython-*.pyc") if ".opt-" not in file.name]
    # Where it looks for its library, it looks for os.py and this folder.
    library = root / "usr/lib" / find(root, "python3").name
    return sorted({*modules, *compiled, library / "os.py", next((library / "lib-dynload").glob("*.so"))})


def vmlinux(root: Path, kernel: Path, path: Path) -> None:
    """Writes a kernel without compression, which QEMU starts as it is (PVH): an emulated guest would take long to decompress it."""
    image = (kernel / "vmlinuz").read_bytes()
    # Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length.
    start, length = struct.unpack_from("<II", image, 0x248)
    start += (image[0x1F1] + 1) * 512
    payload = image[start : start + length]
    program = "xz" if payload.startswith(b"\xfd7zXZ") else "zstd"
    # The length of what comes out stands behind it, and is taken for damage.
    ran = subprocess.run([*command(root, program), "-dc"], input=payload, capture_output=True)
    if not ran.stdout.startswith(b"\x7fELF"):
        raise RuntimeError(f"{kernel / 'vmlinuz'} has no kernel that {program} decompresses: {ran.stderr.decode()}")
    path.write_bytes(ran.stdout)


def modules(root: Path, kernel: Path, path: Path) -> None:
    """Writes the modules of a kernel that the guests may load."""
    release = (kernel / "release").read_text().strip()
    base = kernel / "tree"
    tree = base / "lib/modules" / release
    if not (tree / "modules.dep").exists():
        subprocess.run(depmod(root, base, release), check=True)
    needs = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    wanted, chosen = set(), [m for m in needs if any(m.startswith((f"kernel/{n}/", f"kernel/{n}")) for n in MODULES)]
    while chosen:
        module = chosen.pop()
        if module not in wanted:
            wanted.add(module)
            chosen += needs[module]
    subset = kernel / "subset"
    shutil.rmtree(subset, ignore_errors=True)
    for module in wanted:
        there = subset / "lib/modules" / release / module
        there.parent.mkdir(parents=True, exist_ok=True)
        os.link(tree / module, there)
    for file in tree.glob("modules.builtin*"):
        os.link(file, subset / "lib/modules" / release / file.name)
    subprocess.run(depmod(root, subset, release), check=True, stderr=subprocess.DEVNULL)
    archive = Archive(path)
    for file in sorted((subset / "lib/modules").rglob("*")):
        if file.is_file():
            archive.file(f"usr/{file.relative_to(subset)}", file)
    archive.close()


def depmod(root: Path, base: Path, release: str) -> list[str]:
    """A call of kmod as depmod: it goes by the name that it was called by."""
    loader, *rest = command(root, "kmod")
    return [loader, "--argv0", "depmod", *rest, "-b", str(base), release]


def shim(program: Path, path: Path, beside: list[Path]) -> None:
    """Writes gradwire-xdp, without what a debugger wants, this folder's programs for guests, and files for /root."""
    stripped = path.with_suffix(".stripped")
    subprocess.run(["strip", "-o", stripped, program], check=True)
    archive = Archive(path)
    archive.file("usr/sbin/gradwire-xdp", stripped)
    stripped.unlink()
    for name in ("init", "frames.py"):
        archive.file(name, HERE / "guest" / name)
    for file in beside:
        archive.file(f"root/{file.name}", file)
    archive.close()


def build(folder: Path, kernel: str, program: Path, path: Path, extra: str | None = None, beside: list[Path] | None = None) -> None:
    """Writes the initial file system of a guest, and its kernel. What stays the same is kept in `folder`."""
    root, there = folder / "root", folder / "kernel" / kernel
    parts = [folder / "tools.cpio", there / "modules.cpio", path.with_suffix(".shim")]
    made = [
        (parts[0], lambda to: tools(root, to), root / "stamp"),
        (parts[1], lambda to: modules(root, there, to), there / "stamp"),
        (there / "vmlinux", lambda to: vmlinux(root, there, to), there / "stamp"),
    ]
    if extra:
        stamp = folder / "field/stamp"
        if not stamp.exists():
            raise RuntimeError(f"{stamp.parent} is not there: `unpack {folder} field` makes it")
        # Before the shim's, which is added last.
        parts.insert(2, folder / f"{extra}.cpio")
        made.append((parts[2], lambda to: EXTRAS[extra](folder, to), stamp))
    for part, make, source in made:
        newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
        if not part.exists() or part.stat().st_mtime < newest:
            fresh = part.with_suffix(f".{os.getpid()}")
            make(fresh)
            fresh.rename(part)
    shim(program, parts[-1], beside or [])
    with open(path, "wb") as out:
        for part in parts:
            with open(part, "rb") as opened:
                shutil.copyfileobj(opened, out)
    parts[-1].unlink()
