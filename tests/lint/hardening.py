#!/usr/bin/env python3
"""The programs and libraries are position-independent, map nothing that is both writable and executable, resolve all symbols at start
(read-only relocations), and have stack protectors and checked libc calls.

    hardening.py [--plain-libc-calls] FILE...

--plain-libc-calls: they were compiled without optimization, and _FORTIFY_SOURCE needs it. A file without a dynamic symbol table, such as
ddprun-static, does not show which functions of libc it calls.
"""
import struct
import sys

ET_DYN = 3
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
PF_X, PF_W = 1, 2
DT_NULL, DT_STRTAB, DT_STRSZ, DT_TEXTREL, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 0, 5, 10, 22, 24, 30, 0x6FFFFFFB
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW = 4, 8, 1
PROTECTOR = "__stack_chk_fail"


class Elf:
    """A 64-bit little-endian file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        self.type, _, _, _, at, _, _, _, size, n = struct.unpack_from("<HHIQQQIHHH", self.bytes, 16)
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.bytes, at + i * size) for i in range(n)]
        self.dynamic = dict(self.read_dynamic())

    def find(self, kind):
        return [segment for segment in self.segments if segment[0] == kind]

    def read_dynamic(self):
        for _, _, at, _, _, size, _, _ in self.find(PT_DYNAMIC):
            for tag, value in struct.iter_unpack("<QQ", self.bytes[at:at + size]):
                if tag == DT_NULL:
                    return
                yield tag, value

    def names(self):
        """The strings of the dynamic symbol table: symbols, libraries, versions."""
        address = self.dynamic.get(DT_STRTAB, 0)
        for _, _, at, start, _, size, _, _ in self.find(PT_LOAD):
            if start <= address < start + size:
                begin = at + address - start
                return {name.decode() for name in self.bytes[begin:begin + self.dynamic[DT_STRSZ]].split(b"\0") if name}
        return set()


def problems_of(elf, has_checked_calls):
    stacks = elf.find(PT_GNU_STACK)
    flags, flags_1 = elf.dynamic.get(DT_FLAGS, 0), elf.dynamic.get(DT_FLAGS_1, 0)
    if elf.type != ET_DYN:
        yield "not position-independent"
    if not stacks or stacks[0][1] & PF_X:
        yield "its stack is executable"
    if any(segment[1] & PF_W and segment[1] & PF_X for segment in elf.find(PT_LOAD)):
        yield "has memory that is writable and executable"
    if DT_TEXTREL in elf.dynamic or flags & DF_TEXTREL:
        yield "has relocations in its code"
    if not elf.find(PT_GNU_RELRO):
        yield "its relocations stay writable (no RELRO)"
    if not (DT_BIND_NOW in elf.dynamic or flags & DF_BIND_NOW or flags_1 & DF_1_NOW):
        yield "resolves symbols when they are used (no BIND_NOW)"
    names = elf.names()
    if not any(name.startswith("lib") for name in names):
        return  # static
    if PROTECTOR not in names:
        yield "has no stack protector"
    if has_checked_calls and not any(name.startswith("__") and name.endswith("_chk") for name in names):
        yield "calls no checked function of libc (no _FORTIFY_SOURCE)"


def main():
    paths = [word for word in sys.argv[1:] if not word.startswith("--")]
    n_problems = 0
    for path in paths:
        for problem in problems_of(Elf(path), "--plain-libc-calls" not in sys.argv):
            print(f"{path}: {problem}")
            n_problems += 1
    print(f"{len(paths)} files, {n_problems} problems")
    return 1 if n_problems or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
