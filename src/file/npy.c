/*  file/npy.c - the header of a .npy file: parsed, checked, written

    Knows nothing of arrays or devices, so that tests and fuzzers run it alone. The format is that of numpy.lib.format:
    "\x93NUMPY", a version, the length of the header in 2 bytes (version 1) or 4, and the header, which is a literal
    of a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. The data follows.
    May use: safetensors_dtype.c, base/text.c. Locks: none. */

#include "room.h"

#define IGNIS__NPY_HEADER_LIMIT 65535 /* bytes; that of version 1, held for all */

static const struct {
    const char *kind, *name;
} ignis__npy_dtypes[] = {{"b1", "BOOL"}, {"u1", "U8"},  {"i1", "I8"},  {"i2", "I16"}, {"u2", "U16"}, {"f2", "F16"},
                         {"i4", "I32"},  {"u4", "U32"}, {"f4", "F32"}, {"f8", "F64"}, {"i8", "I64"}};

/*  Kinds that do not become a dtype of Ignis, by their letter. */
static const struct {
    char kind;
    const char *what;
} ignis__npy_refused[] = {
    {'u', "unsigned integers of 64 bits"},
    {'f', "floating numbers of another width"},
    {'c', "complex numbers of another width"},
    {'V', "raw bytes; bfloat16 is saved so: convert it to float32"},
    {'O', "Python objects"},
    {'S', "text"},
    {'a', "text"},
    {'U', "text"},
    {'M', "dates"},
    {'m', "times"},
};

/*  A reader of the literal. One fault ends it. */
typedef struct ignis__npy_reader {
    ignis__npy *npy;
    const char *start, *at, *end;
    ignis_diagnostic result;
} ignis__npy_reader;

IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__npy_fail(ignis__npy_reader *reader, ignis_diagnostic result, const char *format, ...)
{
    ignis__string_writer text;
    va_list args;
    if (reader->result != IGNIS_DIAG_NONE)
        return false;
    reader->result = result;
    ignis__string_begin(&text, reader->npy->fault, sizeof reader->npy->fault);
    va_start(args, format);
    ignis__string_addv(&text, format, args);
    va_end(args);
    return false;
}

IGNIS__COLD static bool ignis__npy_lacks(ignis__npy_reader *reader, const char *what)
{
    return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "at byte %lld of the header, %s is missing",
                           (long long)(reader->at - reader->start), what);
}

/*  Skips white space and returns the next character; 0 at the end. */
static char ignis__npy_peek(ignis__npy_reader *reader)
{
    while (reader->at < reader->end && *reader->at && strchr(" \t\n\r\f", *reader->at))
        reader->at++;
    return reader->at < reader->end ? *reader->at : 0;
}

static bool ignis__npy_take(ignis__npy_reader *reader, char wanted)
{
    if (reader->result != IGNIS_DIAG_NONE || ignis__npy_peek(reader) != wanted)
        return false;
    reader->at++;
    return true;
}

/*  Reads a string of either quote, of ASCII without escapes, cut to the size of `out`. */
static bool ignis__npy_string(ignis__npy_reader *reader, char *out, size_t size)
{
    char quote = ignis__npy_peek(reader);
    size_t length = 0;
    if (reader->result != IGNIS_DIAG_NONE || (quote != '\'' && quote != '"'))
        return ignis__npy_lacks(reader, "a string");
    for (reader->at++; reader->at < reader->end && *reader->at != quote; reader->at++) {
        if (*reader->at == '\\' || *reader->at < ' ' || *reader->at > '~')
            return ignis__npy_lacks(reader, "a string of plain ASCII");
        if (length < size - 1)
            out[length++] = *reader->at;
    }
    out[length] = 0;
    if (reader->at == reader->end)
        return ignis__npy_lacks(reader, "the end of a string");
    reader->at++;
    return true;
}

/*  Finds the dtype of "<f4". */
static bool ignis__npy_descr(ignis__npy_reader *reader)
{
    ignis__npy *npy = reader->npy;
    char descr[64];
    const char *kind;
    int i, type;
    if (ignis__npy_peek(reader) == '[')
        return ignis__npy_fail(reader, IGNIS_DIAG_UNSUPPORTED, "its elements have fields, which are not supported");
    if (!ignis__npy_string(reader, descr, sizeof descr))
        return false;
    kind = descr + (*descr && strchr("<>|=", *descr) != NULL);
    npy->is_swapped = *descr == '>';
    npy->is_complex = strcmp(kind, "c8") == 0 || strcmp(kind, "c16") == 0;
    if (npy->is_complex)
        kind = kind[1] == '8' ? "f4" : "f8";
    for (i = 0; i < IGNIS__COUNT(ignis__npy_dtypes); i++)
        for (type = 0; strcmp(kind, ignis__npy_dtypes[i].kind) == 0 && type < IGNIS__COUNT(ignis__file_dtypes); type++)
            if (strcmp(ignis__file_dtypes[type].name, ignis__npy_dtypes[i].name) == 0) {
                npy->type = type;
                return true;
            }
    for (i = 0; i < IGNIS__COUNT(ignis__npy_refused); i++)
        if (*kind == ignis__npy_refused[i].kind)
            return ignis__npy_fail(reader, IGNIS_DIAG_UNSUPPORTED, "its dtype is %s: %s, which are not supported",
                                   ignis__name_write(descr).text, ignis__npy_refused[i].what);
    return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "its dtype is %s, which is unknown",
                           ignis__name_write(descr).text);
}

static bool ignis__npy_order(ignis__npy_reader *reader)
{
    static const char *const words[] = {"False", "True"};
    int i;
    (void)ignis__npy_peek(reader);
    for (i = 0; i < 2; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, words[i], length) != 0)
            continue;
        reader->at += length;
        reader->npy->is_fortran = i == 1;
        return true;
    }
    return ignis__npy_lacks(reader, "True or False");
}

/*  Reads (2, 3), (2,) or (). Python 2 has written 2L. */
static bool ignis__npy_shape(ignis__npy_reader *reader)
{
    ignis_shape *shape = &reader->npy->shape;
    bool has_comma = true;
    if (!ignis__npy_take(reader, '('))
        return ignis__npy_lacks(reader, "the ( of a shape");
    while (!ignis__npy_take(reader, ')')) {
        int64_t dim = 0;
        char c = ignis__npy_peek(reader);
        if (!has_comma || c < '0' || c > '9')
            return ignis__npy_lacks(reader, has_comma ? "a size" : "a comma");
        for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
            if (dim > (INT64_MAX - 9) / 10)
                return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "a size of its shape does not fit 63 bits");
            dim = 10 * dim + (*reader->at - '0');
        }
        if (reader->at < reader->end && *reader->at == 'L')
            reader->at++;
        if (shape->ndim == IGNIS_MAX_DIMS)
            return ignis__npy_fail(reader, IGNIS_DIAG_SHAPE_RANK, "it has more than %d dimensions", IGNIS_MAX_DIMS);
        shape->dim[shape->ndim++] = dim;
        has_comma = ignis__npy_take(reader, ',');
    }
    if (shape->ndim == 1 && !has_comma)
        return ignis__npy_lacks(reader, "the comma of a shape of one size");
    return true;
}

/*  Reads the whole literal: each of the three keys once, and no other. */
static bool ignis__npy_header(ignis__npy_reader *reader)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    static bool (*const values[])(ignis__npy_reader *) = {ignis__npy_descr, ignis__npy_order, ignis__npy_shape};
    bool seen[3] = {false, false, false}, has_comma = true;
    char key[64];
    int i;
    if (!ignis__npy_take(reader, '{'))
        return ignis__npy_lacks(reader, "the { of a dictionary");
    while (!ignis__npy_take(reader, '}')) {
        if (!has_comma)
            return ignis__npy_lacks(reader, "a comma or }");
        if (!ignis__npy_string(reader, key, sizeof key))
            return false;
        for (i = 0; i < 3 && strcmp(key, keys[i]) != 0; i++)
            ;
        if (i == 3 || seen[i])
            return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "the key %s %s", ignis__name_write(key).text,
                                   i == 3 ? "is unknown" : "comes twice");
        seen[i] = true;
        if (!ignis__npy_take(reader, ':'))
            return ignis__npy_lacks(reader, "a colon");
        if (!values[i](reader))
            return false;
        has_comma = ignis__npy_take(reader, ',');
    }
    for (i = 0; i < 3; i++)
        if (!seen[i])
            return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "the key '%s' is missing", keys[i]);
    if (ignis__npy_peek(reader) || reader->at != reader->end)
        return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT, "something follows the dictionary of the header");
    return true;
}

/*  Checks that the file has all bytes of the shape. `left`: bytes after the header. */
static bool ignis__npy_fits(ignis__npy_reader *reader, int64_t left)
{
    ignis__npy *npy = reader->npy;
    ignis_shape shape;
    int64_t bytes;
    if (npy->shape.ndim + npy->is_complex > IGNIS_MAX_DIMS)
        return ignis__npy_fail(reader, IGNIS_DIAG_SHAPE_RANK,
                               "it has more than %d dimensions, with that of complex "
                               "numbers",
                               IGNIS_MAX_DIMS);
    if (npy->shape.ndim == 0 && !npy->is_complex)
        npy->shape.dim[npy->shape.ndim++] = 1;
    shape = npy->shape;
    if (npy->is_complex)
        shape.dim[shape.ndim++] = 2;
    bytes = ignis__file_tensor_bytes(npy->type, &shape);
    if (bytes < 0)
        return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT,
                               "%s of shape %s has more bytes than 63 bits can count",
                               ignis__file_dtypes[npy->type].name, ignis__shape_write(&shape).text);
    if (bytes > left)
        return ignis__npy_fail(reader, IGNIS_DIAG_STORAGE_FORMAT,
                               "%s of shape %s has %lld bytes, but %lld are left of the file: it is truncated",
                               ignis__file_dtypes[npy->type].name, ignis__shape_write(&shape).text, (long long)bytes,
                               (long long)left);
    return true;
}

/*  Returns the bytes of a file up to its data, from its first 12 bytes: as many as must be read to parse it. */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__npy_header_size(const unsigned char *bytes, int64_t size)
{
    int64_t length = 0, first = size > 6 && bytes[6] == 1 ? 10 : 12, i;
    if (size < first)
        return size;
    for (i = 8; i < first; i++)
        length |= (int64_t)bytes[i] << 8 * (i - 8);
    return first + (length <= IGNIS__NPY_HEADER_LIMIT ? length : 0);
}

/*  Reads the header of a file of `size` bytes; `bytes` need not have the data. Returns NONE, or with npy->fault
    STORAGE_FORMAT, UNSUPPORTED or SHAPE_RANK. */
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__npy_parse(ignis__npy *npy, const unsigned char *bytes, int64_t size)
{
    ignis__npy_reader reader = IGNIS__ZERO;
    int64_t first, data = ignis__npy_header_size(bytes, size);
    memset(npy, 0, sizeof *npy);
    reader.npy = npy;
    reader.result = IGNIS_DIAG_NONE;
    if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        ignis__npy_fail(&reader, IGNIS_DIAG_STORAGE_FORMAT, "it does not begin with \\x93NUMPY and a version");
    } else if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        ignis__npy_fail(&reader, IGNIS_DIAG_STORAGE_FORMAT, "its version is %d.%d; expected 1.0, 2.0 or 3.0", bytes[6],
                        bytes[7]);
    } else {
        first = bytes[6] == 1 ? 10 : 12;
        if (size < first)
            ignis__npy_fail(&reader, IGNIS_DIAG_STORAGE_FORMAT, "it ends inside the length of its header");
        else if (data == first)
            ignis__npy_fail(&reader, IGNIS_DIAG_STORAGE_FORMAT, "the length of its header is 0, or above %d",
                            IGNIS__NPY_HEADER_LIMIT);
        else if (data > size)
            ignis__npy_fail(&reader, IGNIS_DIAG_STORAGE_FORMAT,
                            "its header would have %lld bytes, but %lld are left of the file: it is truncated",
                            (long long)(data - first), (long long)(size - first));
        else {
            reader.start = reader.at = (const char *)bytes + first;
            reader.end = (const char *)bytes + data;
            npy->data = data;
            if (ignis__npy_header(&reader))
                (void)ignis__npy_fits(&reader, size - data);
        }
    }
    return reader.result;
}

/*  Writes the header of version 1.0, byte for byte that of numpy.save, and returns its size: a multiple of 64, so the
    data is aligned. 0 if .npy files do not have the dtype. A capacity of 0 only measures. */
IGNIS__COLD IGNIS__PRIVATE size_t ignis__npy_write(int type, const ignis_shape *shape, char *out, size_t capacity)
{
    ignis__string_writer text;
    const char *kind = NULL;
    char none[1];
    size_t size;
    int i, digits;
    int64_t left;
    for (i = 0; i < IGNIS__COUNT(ignis__npy_dtypes); i++)
        if (strcmp(ignis__file_dtypes[type].name, ignis__npy_dtypes[i].name) == 0)
            kind = ignis__npy_dtypes[i].kind;
    if (!kind)
        return 0;
    ignis__string_begin(&text, out ? out : none, capacity);
    ignis__string_add(&text, "\x93NUMPY\x01...{'descr': '%s%s', 'fortran_order': False, 'shape': (",
                      ignis__file_dtypes[type].bits == 8 ? "|" : "<", kind);
    for (i = 0; i < shape->ndim; i++)
        ignis__string_add(&text, "%s%lld%s", i ? ", " : "", (long long)shape->dim[i], shape->ndim == 1 ? "," : "");
    ignis__string_add(&text, "), }");
    for (digits = 1, left = shape->dim[0]; left > 9; left /= 10)
        digits++;
    for (; digits < 21; digits++) /* NumPy leaves space for a first size of up to 21 digits */
        ignis__string_add(&text, " ");
    size = (text.length + 1 + 64) / 64 * 64; /* at least one space, as NumPy has */
    while (text.length < size - 1)
        ignis__string_add(&text, " ");
    ignis__string_add(&text, "\n");
    if (capacity > size) {
        out[7] = 0;
        out[8] = (char)(unsigned char)((size - 10) & 0xFF);
        out[9] = (char)(unsigned char)((size - 10) >> 8);
    }
    return size;
}
