// SPDX-License-Identifier: MIT
/*  fuzz_npy.c - damaged .npy files: the reader must say no or yes, and what it says yes to must hold

        fuzz_npy [iterations [seed]]

    It makes files by mutation from good ones; the same seed makes the same files.
    Build it with -fsanitize=address,undefined: each file is in a block of memory of exactly its size. It needs no
    device. */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#define FUZZER "fuzz_npy"
#include "fuzz.h"

enum { HEADER_MAX = 1024, DATA = 64 };

/*  Reads a file; true when it is accepted. The header that it is written with must be read as the same. */
static bool try_file(const unsigned char *bytes, size_t size)
{
    ignis__npy npy, again;
    ignis_diagnostic result = ignis__npy_parse(&npy, bytes, (int64_t)size);
    ignis_shape shape;
    char header[512];
    unsigned char *copy;
    size_t length, data;
    if (result != IGNIS_DIAG_NONE) {
        require(result == IGNIS_DIAG_STORAGE_FORMAT || result == IGNIS_DIAG_UNSUPPORTED ||
                    result == IGNIS_DIAG_SHAPE_RANK,
                "a refusal has another reason than the file", bytes, size);
        require(strlen(npy.fault) > 10 && strlen(npy.fault) < sizeof npy.fault, "a refusal has no reason", bytes, size);
        require(ignis__utf8_valid(npy.fault), "a reason is not UTF-8", bytes, size);
        return false;
    }
    shape = npy.shape;
    if (npy.is_complex)
        shape.dim[shape.ndim++] = 2;
    require(shape.ndim >= 1 && shape.ndim <= IGNIS_MAX_DIMS, "it has the wrong rank", bytes, size);
    data = (size_t)ignis__file_tensor_bytes(npy.type, &shape);
    require(npy.data >= 10 && (size_t)npy.data <= size && data <= size - (size_t)npy.data,
            "the data is not in the file", bytes, size);
    length = ignis__npy_write(npy.type, &shape, header, sizeof header);
    require(length > 0 && length < sizeof header && length % 64 == 0, "what was read cannot be written", bytes, size);
    copy = (unsigned char *)calloc(1, length + data + 1);
    memcpy(copy, header, length);
    require(ignis__npy_parse(&again, copy, (int64_t)(length + data)) == IGNIS_DIAG_NONE, "what was written is not read",
            bytes, size);
    require(again.type == npy.type && again.shape.ndim == shape.ndim &&
                memcmp(again.shape.dim, shape.dim, sizeof shape.dim[0] * (size_t)shape.ndim) == 0 &&
                again.data == (int64_t)length && !again.is_fortran && !again.is_swapped && !again.is_complex,
            "it differs after writing and reading", bytes, size);
    free(copy);
    return true;
}

/* clang-format off */
static const char *const seeds[] = {
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '|b1', 'fortran_order': True, 'shape': (5,), }",
    "{'descr': '>c8', 'fortran_order': False, 'shape': (), }",
    "{\"shape\":(0L,7L),\"descr\":\"<i8\",\"fortran_order\":False}",
    "{'descr': '<u2', 'fortran_order': True, 'shape': (1, 1, 1, 1, 1, 1, 1, 2), }",
    "{'descr': '=f8', 'fortran_order': False, 'shape': (8,)}",
};
static const char *const words[] = {
    "{", "}", "(", ")", "[", "]", ",", ":", "'", "\"", "\\", " ", "\n", "L", "0", "1", "-1", "True", "False", "None",
    "'shape': ()", "'<f4'", "'|V2'", "'|O'", "'<c16'", "9223372036854775807", "9223372036854775808", "4294967296",
    "99999999999999999999999", "\x80", "\xC0\x80", "\x01", "\x7F", "descr", "fortran_order", "shape", "1, 1, 1, 1, ",
};
/* clang-format on */

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, accepted = 0, done;
    const size_t seed_count = sizeof seeds / sizeof *seeds;
    char header[HEADER_MAX];
    random_begin(argc, argv);
    for (done = 0; done < iterations; done++) {
        bool whole = done < seed_count; /* each seed once as it is */
        size_t k, at, first, length, size;
        unsigned char *file;
        int version = 1 + (int)random_below(3);
        bool ok;
        strcpy(header, seeds[whole ? (size_t)done : random_below(seed_count)]);
        for (k = whole ? 0 : 1 + random_below(2) * random_below(6); k > 0; k--) {
            const char *word = words[random_below(sizeof words / sizeof *words)];
            at = random_below(strlen(header) + 1);
            length = random_below(3) ? random_below(strlen(header) - at + 1) % 12 : 0;
            splice_string(header, sizeof header, at, length, word, random_below(4) ? strlen(word) : 0);
        }
        first = version == 1 ? 10 : 12;
        length = strlen(header) + 1;
        size = first + length + DATA;
        file = (unsigned char *)calloc(1, size);
        if (!file)
            return 1;
        memcpy(file, "\x93NUMPY", 6);
        file[6] = (unsigned char)version;
        memcpy(file + first, header, length - 1);
        file[first + length - 1] = '\n';
        if (!whole && random_below(16) == 0)
            length = random_below(4) ? random_below(2 * length) : (size_t)(random_next() >> random_below(64));
        for (k = 8; k < first; k++)
            file[k] = (unsigned char)(length >> 8 * (k - 8));
        for (k = whole || random_below(8) ? 0 : random_below(4); k > 0; k--)
            file[random_below(size)] = (unsigned char)random_next();
        if (!whole && random_below(16) == 0) { /* truncated, in a block that ends there */
            size = random_below(size + 1);
            file = (unsigned char *)realloc(file, size ? size : 1);
        }
        if (!file)
            return 1;
        ok = try_file(file, size);
        require(ok || !whole, "a good file is refused", file, size);
        accepted += ok;
        free(file);
    }
    printf("fuzz_npy: %llu files, %llu accepted, %llu refused\n", iterations, accepted, iterations - accepted);
    return 0;
}
