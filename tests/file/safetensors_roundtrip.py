#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds Ignis' files against the Python package safetensors, in both directions.

    tests/file/safetensors_roundtrip.py PROGRAM [SEED]        PROGRAM is file_copy.c, compiled

The package writes random tensors; Ignis reads them and writes them again: the two files must be equal byte for byte, and the
package must read back what it wrote. Then damaged files: what Ignis reads, the package must read, too, as equally many tensors.
The last line: N passed, N failed, N skipped
"""
import ctypes
import os
import random
import struct
import subprocess
import sys
import tempfile

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}

try:
    import safetensors
    from safetensors import SafetensorError, deserialize
except ImportError as error:
    print(f"skipped: the Python package safetensors is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

program = sys.argv[1]
rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("failed:", what)


def tensor(dtype, shape):
    count = SIZES[dtype]
    for dim in shape:
        count *= dim
    return {"dtype": dtype, "shape": list(shape), "data": rng.randbytes(count)}


def serialize(tensors, metadata=None):
    """The package's own serialize, which from version 0.8 on takes addresses."""
    if not hasattr(safetensors, "TensorSpec"):
        return safetensors.serialize(tensors, metadata)
    buffers = {key: ctypes.create_string_buffer(t["data"], len(t["data"]) + 1) for key, t in tensors.items()}
    specs = {key: safetensors.TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=ctypes.addressof(buffers[key]), data_len=len(t["data"]))
             for key, t in tensors.items()}
    return bytes(safetensors.serialize(specs, metadata=metadata))


def name(i):
    return rng.choice(["layers.%d.weight", "é€😀 %d", "quote\" \\ / %d", "tab\t\n\r\b\f\x01\x1f\x7f %d", " %d ", "%d" * 50]).replace("%d", str(i))


def run(mode, *files):
    return subprocess.run([program, mode, *files], capture_output=True, text=True, timeout=120)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def tensors_in(data):
    """What the package reads: name -> (dtype, shape, bytes), or None when it refuses."""
    try:
        return {key: (t["dtype"], list(t["shape"]), bytes(t["data"])) for key, t in deserialize(data)}
    except SafetensorError:
        return None


def round_trips(folder):
    source, copy = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    sets = [{}, {d: tensor(d, (3, 5)) for d in SIZES}, {"large": tensor("float32", (1031, 1777)), "odd": tensor("uint8", (7,))}]
    for _ in range(8):
        sets.append({name(i): tensor(rng.choice(list(SIZES)), [rng.choice([0, 1, 1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 8))])
                     for i in range(rng.randint(1, 30))})
    for i, tensors in enumerate(sets):
        written = serialize(tensors)
        for mode in ("copy", "fill"):
            write(source, written)
            result = run(mode, source, copy)
            check(result.returncode == 0, f"{mode} of set {i}: {result.stderr}")
            if result.returncode == 0:
                again = read(copy)
                check(again == written, f"{mode} of set {i}: the bytes differ")
                check(tensors_in(again) == tensors_in(written), f"{mode} of set {i}: the package reads something else")

    # metadata is left out, and no dimensions become one
    write(source, serialize({"step": tensor("int64", ())}, {"format": "pt"}))
    result = run("copy", source, copy)
    before, after = tensors_in(read(source)), tensors_in(read(copy)) if result.returncode == 0 else {}
    check(list(after) == ["step"] and after["step"] == (before["step"][0], [1], before["step"][2]), "a tensor without dimensions")


def damaged(folder):
    good = [serialize({"a": tensor("float32", (2, 3)), "b": tensor("uint8", (5,)), "é": tensor("int64", (0, 2))}, {"format": "pt", "k": ""}),
            serialize({"w": tensor("float16", (4,))})]
    pieces = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"0", b"1", b"9", b"-", b".", b"e", b"null", b'"a"', b"{}", b"[]", b"\\u0041",
              b"\\ud83d", b"\\ud83d\\ude00", b"\xc3\xa9", b"\xff", b"\x00", b"F32", b"I32", b"BOOL", b"18446744073709551615", b'"x":[[1],{}],']
    harmless = [(b"F32", b"I32"), (b"F32", b"U32"), (b"F16", b"BF16"), (b"U8", b"BOOL"), (b":", b" : "), (b",", b" ,\n\t"), (b'"a"', b'"\\u0061"'),
                (b'"b"', b'"\\ud83d\\ude00"'), (b"[2,3]", b"[1,6,1]"), (b"[0,2]", b"[2,0,99]"), (b"[4]", b"[2,2]"), (b'"shape"', b'"x":[{}],"shape"')]
    files, contents = [], []
    for i in range(1500):
        data = rng.choice(good)
        length, = struct.unpack("<Q", data[:8])
        header, rest = bytearray(data[8:8 + length]), data[8 + length:]
        for _ in range(rng.randint(0, 3)):
            header = header.replace(*rng.choice(harmless))
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            at = rng.randrange(len(header) + 1)
            header[at:at + rng.choice([0, 0, 1, 1, 2, 5])] = rng.choice(pieces)
        if rng.random() < 0.1:
            rest = rest[:rng.randrange(len(rest) + 1)]
        contents.append(struct.pack("<Q", len(header)) + bytes(header) + rest)
        files.append(os.path.join(folder, f"{i}.safetensors"))
        write(files[-1], contents[-1])
    result = run("check", *files)
    lines = result.stdout.splitlines()
    check(result.returncode == 0 and len(lines) == len(files), f"check: {result.returncode}, {len(lines)} lines: {result.stderr}")
    read_here = read_there = 0
    for line, data in zip(lines, contents):
        package = tensors_in(data)
        read_there += package is not None
        if line.isdigit():
            read_here += 1
            check(package is not None and len(package) == int(line), f"the package refuses what Ignis reads: {data!r}")
        else:
            check(line.startswith("IGNIS_ERROR_FORMAT ignis_file_list: "), f"another error than FORMAT: {line}")
    print(f"{len(files)} damaged files: Ignis reads {read_here}, the package {read_there}")


with tempfile.TemporaryDirectory() as temporary:
    round_trips(temporary)
    damaged(temporary)
print(f"the package is safetensors {safetensors.__version__}")
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
