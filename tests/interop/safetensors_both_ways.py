#!/usr/bin/env python3
"""Tensors of all types go from Python to libddp and back unchanged.

usage: safetensors_both_ways.py SAFETENSORS_COPY

The package `safetensors` writes a file, the program reads it and writes another one, and the package reads that.
The program also refuses what the package refuses. Runs on a Python that has torch and safetensors.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8,
         torch.uint8, torch.uint32, torch.uint64]
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (4, 5), (2, 3, 4, 5)]


def tensors(generator):
    made = {}
    for dtype in TYPES:
        for shape in SHAPES:
            n = torch.Size(shape).numel() * dtype.itemsize
            raw = torch.randint(0, 256, (n,), dtype=torch.uint8, generator=generator)
            made[f"{dtype} {shape} \"é\" \\ \N{GRINNING FACE}"] = raw.view(dtype).reshape(shape)
    return made


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def both_ways(program, folder):
    first, second = folder + "/first", folder + "/second"
    before = tensors(torch.Generator().manual_seed(1))
    save_file(before, first, metadata={"format": "pt", "a\n\"key\"": "é"})
    subprocess.run([program, first, second], check=True)
    after = load_file(second)
    assert before.keys() == after.keys(), set(before) ^ set(after)
    for name in before:
        assert same_bits(before[name], after[name]), name
    with safe_open(second, "pt") as f:
        assert f.metadata() == {"format": "pt"}, f.metadata()
    save_file({}, first)
    subprocess.run([program, first, second], check=True)
    assert load_file(second) == {}
    return len(before)


def refused_by_package(path):
    try:
        load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError):
        return True
    return False


def write(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text + data)


def damaged_alike(program, folder):
    """Both refuse."""
    path = folder + "/bad"
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    cases = {
        "overlap": ({"a": good, "b": dict(good, data_offsets=[4, 12])}, bytes(12), None),
        "hole": ({"a": good, "b": dict(good, data_offsets=[12, 20])}, bytes(20), None),
        "huge header": ({"a": good}, bytes(8), 1 << 40),
        "wrong dtype": ({"a": dict(good, dtype="F31")}, bytes(8), None),
        "wrong size": ({"a": dict(good, shape=[3])}, bytes(8), None),
        "truncated": ({"a": good}, bytes(7), None),
        "left over": ({"a": good}, bytes(9), None),
        "no JSON": (b"[1]", b"", None),
        "no UTF-8": (b'{"\xc3(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8), None),
    }
    for name, (header, data, length) in cases.items():
        write(path, header, data, length)
        assert refused_by_package(path), f"the package takes {name}"
        ours = subprocess.run([program, path, folder + "/never"], stderr=subprocess.PIPE, text=True)
        assert ours.returncode == 1 and ours.stderr, f"{name}: {ours}"
        assert not os.path.exists(folder + "/never")
    return len(cases)


def main():
    with tempfile.TemporaryDirectory() as folder:
        n, bad = both_ways(sys.argv[1], folder), damaged_alike(sys.argv[1], folder)
    print(f"{n} tensors went both ways, {bad} damaged files refused by both")


main()
