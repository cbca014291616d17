#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds .npy files and printed tensors against NumPy, to the byte.

    tests/file/numpy_compare.py PROGRAM [SEED]        PROGRAM is npy_copy.c, compiled

NumPy writes random arrays in every dtype, order and version; Ignis reads them, prints them and writes them again. The files must be
those of numpy.save, and the texts those of numpy.array2string. The last line: N passed, N failed, N skipped
"""
import io
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: NumPy is not installed ({error})")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
if tuple(int(part) for part in np.__version__.split(".")[:2]) < (2, 4):
    print(f"skipped: NumPy is {np.__version__}; 2.4 has the rules for the printed numbers")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

COUNT = 300
NAMES = {"f2": "f16", "f4": "f32", "f8": "f64", "i4": "i32", "i8": "i64", "u1": "u8"}
LOADED = {"b1": "u1", "i1": "i4", "i2": "i4", "u2": "i4", "u4": "i8"}
rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)


def shape():
    sizes = [int(size) for size in rng.choice([1, 2, 3, 4, 7, 8, 13], size=rng.integers(0, 5))]
    if rng.random() < 0.2:
        sizes = [int(rng.integers(1, 2500))]
    elif rng.random() < 0.03:
        sizes = [0, 3]
    return sizes


def array():
    kind, dims = rng.integers(0, 8), shape()
    dtype = str(rng.choice(["f2", "f4", "f8", "c8", "c16", "b1", "u1", "i1", "i2", "u2", "i4", "u4", "i8"]))
    with np.errstate(all="ignore"):
        if dtype[0] not in "fc":
            values = rng.integers(0, 10 ** rng.integers(1, 10), size=dims)
        elif kind < 3:
            values = rng.normal(size=dims) * 10.0 ** rng.integers(-6, 8)
        elif kind < 6:
            values = rng.integers(-9, 9, size=dims) / rng.choice([1, 2, 4, 3, 10])
        else:
            values = 10.0 ** rng.normal(size=dims, scale=rng.choice([1, 3, 20]))
        values = np.array(values).astype(dtype)
    if dtype[0] == "f" and values.size and rng.random() < 0.3:
        values.reshape(-1)[rng.integers(0, values.size, 3)] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], 3)
    if rng.random() < 0.3:
        values = values.astype(values.dtype.newbyteorder(">"))
    return np.asfortranarray(values) if rng.random() < 0.4 else values


def loaded(values):
    """What Ignis makes of an array."""
    kind = values.dtype.str[1:]
    values = np.array(values.astype(values.dtype.newbyteorder("<")), order="C")
    if kind[0] == "c":
        values = np.stack([values.real, values.imag], -1)
    elif values.ndim == 0:
        values = values.reshape(1)
    return np.ascontiguousarray(values.astype(LOADED.get(kind, values.dtype.str[1:])))


def printed(values):
    body = "tensor(" + np.array2string(values, separator=", ", prefix="tensor(", suffix=")") + ","
    facts = f"shape=[{', '.join(map(str, values.shape))}], dtype={NAMES[values.dtype.str[1:]]})"
    column = len(body) - (body.rfind("\n") + 1)
    return body + ("\n       " if column + 1 + len(facts) > 75 else " ") + facts + "\n"


passed = failed = 0
with tempfile.TemporaryDirectory() as folder:
    arrays, paths = [array() for _ in range(COUNT)], []
    for i, values in enumerate(arrays):
        paths += [os.path.join(folder, f"{i}.npy"), os.path.join(folder, f"{i}.out.npy")]
        with open(paths[-2], "wb") as file:
            np.lib.format.write_array(file, values, [(1, 0), (2, 0), (3, 0)][rng.integers(0, 3)])
    texts = subprocess.run([sys.argv[1]] + paths, capture_output=True, text=True, check=True).stdout.split("---\n")
    for i, values in enumerate(arrays):
        expected, file, got = loaded(values), io.BytesIO(), b""
        np.save(file, expected)
        if os.path.exists(paths[2 * i + 1]):
            with open(paths[2 * i + 1], "rb") as out:
                got = out.read()
        for what, same in (("file", got == file.getvalue()), ("text", texts[i] == printed(expected))):
            passed, failed = passed + same, failed + (not same)
            if not same and failed < 10:
                print(f"failed: {what} of {values.dtype} {values.shape} {values.flags.f_contiguous}:\n{texts[i][:600]}")
                if what == "text":
                    print(f"expected:\n{printed(expected)[:600]}")
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
