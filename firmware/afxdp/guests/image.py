"""The guests' kernels and initial file systems: tools from FOLDER/root, modules from FOLDER/kernel (`unpack`), and gradwire-xdp."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LOADER = "lib64/ld-linux-x86-64.so.2"
# A shell of its own, because busybox' shell runs its own `ip` whatever PATH says.
TOOLS = ["dash", "ip", "tc", "bridge", "ethtool", "nft", "ping", "kmod"]
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
        self.out, self.number, self.folders = open(path, "wb"), 0, set()

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


def library_path(root: Path) -> str:
    return ":".join(str(root / folder) for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"))


def command(root: Path, program: str) -> list[str]:
    """How a program of `root` runs here, with the libraries from there."""
    return [str(root / LOADER), "--library-path", library_path(root), str(find(root, program))]


def find(root: Path, program: str) -> Path:
    places = [root / folder / program for folder in ("usr/sbin", "sbin", "usr/bin", "bin")]
    return next(place for place in places if place.exists()).resolve()


def libraries(root: Path, program: Path) -> set[str]:
    """The libraries that a program loads, by their names."""
    listed = subprocess.run(
        [root / LOADER, "--library-path", library_path(root), "--list", program], capture_output=True, text=True, check=True
    )
    return {line.split()[0] for line in listed.stdout.splitlines() if "=>" in line}


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
    needed = {"ld-linux-x86-64.so.2", "libgcc_s.so.1", "libm.so.6"}
    for program, name in wanted.items():
        archive.file(f"usr/sbin/{name}", program)
        needed |= libraries(root, program)
    for name in sorted(needed):
        places = [root / folder / name for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64")]
        archive.file(f"usr/lib/{name}", next(place for place in places if place.exists()).resolve())
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


def shim(root: Path, program: Path, path: Path) -> None:
    """Writes gradwire-xdp, without what a debugger wants, and this folder's programs for guests."""
    stripped = path.with_suffix(".stripped")
    subprocess.run(["strip", "-o", stripped, program], check=True)
    archive = Archive(path)
    archive.file("usr/sbin/gradwire-xdp", stripped)
    stripped.unlink()
    for name in ("init", "frames.py"):
        archive.file(name, HERE / "guest" / name)
    archive.close()


def build(folder: Path, kernel: str, program: Path, path: Path) -> None:
    """Writes the initial file system of a guest, and its kernel. What stays the same is kept in `folder`."""
    root, there = folder / "root", folder / "kernel" / kernel
    parts = [folder / "tools.cpio", there / "modules.cpio", path.with_suffix(".shim")]
    for part, make, source in (
        (parts[0], lambda to: tools(root, to), root / "stamp"),
        (parts[1], lambda to: modules(root, there, to), there / "stamp"),
        (there / "vmlinux", lambda to: vmlinux(root, there, to), there / "stamp"),
    ):
        newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
        if not part.exists() or part.stat().st_mtime < newest:
            beside = part.with_suffix(f".{os.getpid()}")
            make(beside)
            beside.rename(part)
    shim(root, program, parts[2])
    with open(path, "wb") as out:
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, out)
    parts[2].unlink()
