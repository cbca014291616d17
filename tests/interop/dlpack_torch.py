# SPDX-License-Identifier: MIT
"""Arrays of Ignis in PyTorch, CuPy and NumPy by DLPack, and back, with ctypes alone: python3 tests/interop/dlpack_torch.py libignis.so

libignis.so is the library that `make check-dlpack` builds of ignis.h. PyTorch and CuPy take part on a GPU, where they are installed. On the
simulator the memory of its devices is the host's: there NumPy and PyTorch on the CPU read it, after the script has written the CPU's
device type into the struct, so that the layout and the life of what is lent are tried without a GPU, too."""
import ctypes as c
import importlib
import sys

MAX_DIMS = 8


class Shape(c.Structure):
    _fields_ = [("ndim", c.c_int), ("dim", c.c_int64 * MAX_DIMS)]


class ArrayDesc(c.Structure):
    _fields_ = [("shape", Shape), ("dtype", c.c_int), ("device", c.c_int), ("owner", c.c_int), ("stream", c.c_void_p), ("ptr", c.c_void_p),
                ("release_fn", c.c_void_p), ("release_data", c.c_void_p), ("tag", c.c_char_p)]


class Array(c.Structure):
    _fields_ = [("id", c.c_uint64)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


class Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", c.c_void_p), ("flags", c.c_uint64),
                ("tensor", DLTensor)]


class Plain(c.Structure):
    _fields_ = [("tensor", DLTensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


CPU, CUDA = 1, 2
KINDS = {0: (Plain, b"dltensor"), 1: (Versioned, b"dltensor_versioned")}
USED = {0: b"used_dltensor", 1: b"used_dltensor_versioned"}  # kept: a capsule has no copy of its name
DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "float64": 4, "int32": 5, "int64": 6, "uint8": 7}

ignis = c.CDLL(sys.argv[1])
ignis.ignis_array_create.restype = Array
ignis.ignis_array_create.argtypes = [c.POINTER(ArrayDesc)]
ignis.ignis_array_to_dlpack.restype = c.c_void_p
ignis.ignis_array_to_dlpack.argtypes = [Array, c.c_int, c.c_void_p]
ignis.ignis_array_from_dlpack.restype = Array
ignis.ignis_array_from_dlpack.argtypes = [c.c_void_p, c.c_int, c.c_void_p]
ignis.ignis_array_from_host.argtypes = [Array, c.c_void_p, c.c_int, c.c_int64]
ignis.ignis_array_to_host.argtypes = [Array, c.c_void_p, c.c_int, c.c_int64]
ignis.ignis_array_fill.argtypes = [Array, c.c_double]
ignis.ignis_array_free.argtypes = [Array]
ignis.ignis_status_message.restype = c.c_char_p

new_capsule = c.pythonapi.PyCapsule_New
new_capsule.restype = c.py_object
new_capsule.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
capsule_pointer = c.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = c.c_void_p
capsule_pointer.argtypes = [c.py_object, c.c_char_p]
rename_capsule = c.pythonapi.PyCapsule_SetName
rename_capsule.argtypes = [c.py_object, c.c_char_p]


def check(ok, what):
    if not ok:
        sys.exit("FAIL: %s: %s" % (what, (ignis.ignis_status_message() or b"").decode()))


def made(shape, dtype, first):
    """An array of the numbers first, first + 1, ..."""
    desc = ArrayDesc()
    desc.shape.ndim = len(shape)
    count = 1
    for i, n in enumerate(shape):
        desc.shape.dim[i] = n
        count *= n
    desc.dtype = DTYPES[dtype]
    array = ignis.ignis_array_create(c.byref(desc))
    check(array.id != 0, "ignis_array_create")
    numbers = (c.c_double * count)(*[first + i for i in range(count)])
    check(ignis.ignis_array_from_host(array, numbers, DTYPES["float64"], count) == 0, "ignis_array_from_host")
    return array, count


def numbers_of(array, count):
    out = (c.c_double * count)()
    check(ignis.ignis_array_to_host(array, out, DTYPES["float64"], count) == 0, "ignis_array_to_host")
    return list(out)


class Lent:
    """What Python's protocol asks of an object that lends its memory. device: what the struct is to say."""

    def __init__(self, array, major, device):
        self.array, self.major, self.device = array, major, device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        kind, name = KINDS[self.major]
        pointer = ignis.ignis_array_to_dlpack(self.array, self.major, None if stream in (None, 1, -1) else stream)
        check(pointer, "ignis_array_to_dlpack")
        c.cast(pointer, c.POINTER(kind)).contents.tensor.device_type = self.device
        return new_capsule(pointer, name, None)


def taken(tensor, **options):
    """An array over the memory of a tensor of another library."""
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        capsule = tensor.__dlpack__(**options)
    major = 1 if "versioned" in repr(capsule) else 0
    name = KINDS[major][1]
    array = ignis.ignis_array_from_dlpack(capsule_pointer(capsule, name), major, None)
    if array.id:
        rename_capsule(capsule, USED[major])
    return array


def round_trip(name, library, device, dtypes, majors, back):
    for major in majors:
        for dtype in dtypes:
            array, count = made((3, 5), dtype, 2)
            other = library.from_dlpack(Lent(array, major, device))
            check(tuple(other.shape) == (3, 5) and dtype in str(other.dtype), "%s sees the shape and %s" % (name, dtype))
            check([float(x) for x in other.reshape(-1).tolist()] == [2.0 + i for i in range(count)], "%s reads %s" % (name, dtype))
            times = 1 if name == "NumPy" and major == 0 else 2  # NumPy writes to nothing that says less of itself
            if times == 2:
                other *= times  # seen by Ignis, as it is the same memory
            if back:
                back()
            check(numbers_of(array, count) == [times * (2.0 + i) for i in range(count)], "Ignis sees what %s wrote to %s" % (name, dtype))
            check(ignis.ignis_array_free(array) == 0, "ignis_array_free")
            check(float(other.reshape(-1).tolist()[1]) == 3 * times, "%s still has the memory of a freed array" % name)
            if device == CUDA:  # and home again
                again = taken(other)
                check(again.id != 0, "ignis_array_from_dlpack of %s" % name)
                check(numbers_of(again, count)[1] == 6, "Ignis reads what %s lends" % name)
                check(ignis.ignis_array_fill(again, 9) == 0 and ignis.ignis_synchronize() == 0, "filling it")
                check(float(other.reshape(-1).tolist()[14]) == 9, "%s sees what Ignis wrote" % name)
                check(ignis.ignis_array_free(again) == 0, "ignis_array_free")
            del other
    print("%s: %s, both ways" % (name, ", ".join(dtypes)) if device == CUDA else "%s reads and writes %s" % (name, ", ".join(dtypes)))


def imported(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print("skipped: %s is not installed" % name)


def main():
    check(ignis.ignis_setup(None) == 0, "ignis_setup")
    torch, cupy, numpy = imported("torch"), imported("cupy"), imported("numpy")
    info = c.create_string_buffer(4096)  # an ignis_device_info, whose name is behind the ordinal
    check(ignis.ignis_device_query(0, info) == 0, "ignis_device_query")
    simulated = info.raw[4:].split(b"\0")[0].startswith(b"Ignis Simulator")
    plain = ["float32", "float64", "float16", "int32", "int64", "uint8"]
    if simulated and numpy and int(numpy.__version__.split(".")[0]) >= 2:
        round_trip("NumPy", numpy, CPU, plain, (0, 1), None)
        host = numpy.arange(6, dtype="float32")
        check(taken(host).id == 0, "memory of the host is refused")
        ignis.ignis_status_clear()
    if simulated and torch:
        round_trip("PyTorch on the CPU", torch, CPU, plain + ["bfloat16"], (0,), None)
    if not simulated and torch and torch.cuda.is_available():
        newer = (0, 1) if tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 9) else (0,)
        round_trip("PyTorch", torch, CUDA, plain + ["bfloat16"], newer, torch.cuda.synchronize)
    if not simulated and cupy:
        round_trip("CuPy", cupy, CUDA, plain, (0, 1) if int(cupy.__version__.split(".")[0]) >= 14 else (0,),
                   lambda: cupy.cuda.Device().synchronize())
    check(ignis.ignis_shutdown() == 0, "ignis_shutdown")
    print("dlpack: ok")


main()
