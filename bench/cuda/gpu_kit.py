"""bench/gpu --kit: what a machine with a GPU needs, in one directory that can be copied there."""
import glob
import lzma
import os
import shutil
import struct
import subprocess
import sys

import results

MOST_BYTES = 64 << 20
PROGRAMS = ["launcher/ddprun", "ctl/ddpctl", "worker-runtime/libddp.so*", "worker-runtime/nccl/libddp-nccl.so", "bench/gpu_*",
            "bench/libnccl_faults.so", "examples/mnist", "examples/mnist_double", "examples/nccl_hello", "examples/libmnist*-cuda.so"]
SCRIPTS = ["bench/gpu", "bench/results.py", "bench/cuda/*.py", "bench/programs/torch_*.py", "python/ddp_torch/*.py"]
LIBTORCH = "bench/libtorch_rank"
NCCL_FILE = "nccl/libnccl.so.2.xz"

# The header of a fat binary, and of an entry of it
FATBIN_MAGIC = 0xBA55ED50
KIND_CODE, ARCHITECTURE_AT = 2, 28


def sections(elf):
    """Name to (offset, size) of a 64-bit ELF file."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, n, names = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(n)]
    start = heads[names][4]
    found = {}
    for name, _, _, _, offset, length in heads:
        end = elf.index(b"\0", start + name)
        found[elf[start + name:end].decode()] = (offset, length)
    return found


def keep_architecture(elf, architecture):
    """Zero the code for other GPUs in place: offsets stay, and zeros compress to nothing."""
    found = sections(elf)
    offset, length = found.get("__nv_relfatbin", (0, 0))  # left by the linker; nothing loads it
    elf[offset:offset + length] = bytes(length)
    at, length = found[".nv_fatbin"]
    end = at + length
    while at + 16 <= end:
        magic, _, head, size = struct.unpack_from("<IHHQ", elf, at)
        if magic != FATBIN_MAGIC:
            at += 8
            continue
        entry, stop = at + head, at + head + size
        while entry < stop:
            kind, _, entry_head, entry_size = struct.unpack_from("<HHIQ", elf, entry)
            this, = struct.unpack_from("<I", elf, entry + ARCHITECTURE_AT)
            if kind != KIND_CODE or this != architecture:
                elf[entry + entry_head:entry + entry_head + entry_size] = bytes(entry_size)
            entry += entry_head + entry_size
        at = stop


def pack_nccl(library, kit, architecture):
    """A libnccl with the code of one generation of GPUs, compressed."""
    target = os.path.join(kit, NCCL_FILE)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    plain = target[:-len(".xz")]
    subprocess.run(["strip", "--strip-debug", "-o", plain, library], check=True)
    with open(plain, "rb") as f:
        elf = bytearray(f.read())
    keep_architecture(elf, architecture)
    with lzma.open(target, "wb", preset=1) as f:
        f.write(elf)
    os.unlink(plain)


def unpack_nccl(kit, folder):
    """The directory with the library of a kit, None: it has none."""
    packed = os.path.join(kit, NCCL_FILE)
    if not os.path.exists(packed):
        return None
    with lzma.open(packed) as f, open(os.path.join(folder, "libnccl.so.2"), "wb") as to:
        shutil.copyfileobj(f, to)
    return folder


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    shutil.copy(source, target)
    if is_elf(target):
        subprocess.run(["strip", "--strip-unneeded", target], check=True)


def size_of(folder):
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)


def build_libtorch(build, kit, python):
    """The ranks of the section libtorch, with the libtorch of that Python."""
    sys.path.insert(0, os.path.join(results.ROOT, "tests/interop"))
    import libtorch_same
    found = libtorch_same.torch_directory(python, dict(os.environ))
    program = os.path.join(build, LIBTORCH)
    libtorch_same.build(os.path.dirname(program), os.path.join(build, "worker-runtime/libddp.so"), found, program, optimize=1)
    copy(program, os.path.join(kit, LIBTORCH))


def make(build, kit, nccl, architecture, libtorch=None):
    """Make it. Returns its size in bytes; raises ValueError if a part is missing or it is too large."""
    for patterns, top in (PROGRAMS, build), (SCRIPTS, results.ROOT):
        for pattern in patterns:
            found = [p for p in glob.glob(os.path.join(top, pattern)) if os.path.isfile(p) and not p.endswith(".symbols")]
            if not found:
                raise ValueError(f"{os.path.join(top, pattern)} is missing: build everything with -Dnccl=enabled first")
            for path in found:
                copy(path, os.path.join(kit, os.path.relpath(path, top)))
    if nccl:
        pack_nccl(nccl, kit, architecture)
    if libtorch:
        build_libtorch(build, kit, libtorch)
    size = size_of(kit)
    if size > MOST_BYTES:
        raise ValueError(f"{kit} has {size >> 20} MiB: at most {MOST_BYTES >> 20} are meant to travel; use a release build")
    return size
