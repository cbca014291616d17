/* ===============================================================================================================
   >>gguf - GGUF files: keys and tensors

   All numbers are little-endian and packed. The head is read into host memory and checked as it is read.
   May use: >>file, >>error. Locks: none; a file is used by one thread at a time.
   =============================================================================================================== */

#include "room.h"

/*  The format:
        "GGUF", u32 version, u64 tensors, u64 keys
        a key: string (u64 length, bytes), u32 type, value; an array: u32 type of its items, u64 count, items
        a tensor: string, u32 dimensions, u64 for each (the fastest first), u32 type, u64 offset from the data
        padding up to a multiple of general.alignment, or 32; the data
    Each text in the head moves down by one byte, over the last byte of its length, which is no longer needed. So there
    is space for a 0 at its end: names and vocabularies are used in place. */

#define IGNIS__GGUF_HEAD_LIMIT ((int64_t)1 << 30) /* bytes; files of 2026 have up to 20 million */
#define IGNIS__GGUF_NAME_LIMIT 65535

static const struct {
    const char *name;
    int size; /* of a value; of a text or an array: of its length */
} ignis__gguf_kinds[IGNIS__GGUF_KINDS] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},  {"u32", 4},
                                          {"i32", 4}, {"f32", 4}, {"bool", 1}, {"text", 8}, {"array", 12},
                                          {"u64", 8}, {"i64", 8}, {"f64", 8}};

IGNIS__PRIVATE const struct ignis__gguf_types_type ignis__gguf_types[] = {
    {"F32", 0, 1, 4, IGNIS_F32, true},
    {"F16", 1, 1, 2, IGNIS_F16, true},
#define IGNIS__GGUF_ROW(name, number, elements, bytes, bits, scales, numbers, divisor) \
    {#name, number, elements, bytes, IGNIS_DTYPE_DEFAULT, true},
    IGNIS__BLOCKS_TYPES(IGNIS__GGUF_ROW)
#undef IGNIS__GGUF_ROW
        {"IQ1_S", 19, 256, 50, IGNIS_DTYPE_DEFAULT, false},
    {"IQ1_M", 29, 256, 56, IGNIS_DTYPE_DEFAULT, false},
    {"TQ1_0", 34, 256, 54, IGNIS_DTYPE_DEFAULT, false},
    {"TQ2_0", 35, 256, 66, IGNIS_DTYPE_DEFAULT, false},
    {"I8", 24, 1, 1, IGNIS_DTYPE_DEFAULT, false},
    {"I16", 25, 1, 2, IGNIS_DTYPE_DEFAULT, false},
    {"I32", 26, 1, 4, IGNIS_I32, false},
    {"I64", 27, 1, 8, IGNIS_I64, false},
    {"F64", 28, 1, 8, IGNIS_F64, true},
    {"BF16", 30, 1, 2, IGNIS_BF16, true},
};

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__gguf_close(ignis__gguf *file)
{
    ignis__free(file->keys);
    ignis__free(file->tensors);
    ignis__free(file->head);
    if (file->descriptor >= 0)
        ignis__file_close(file->descriptor);
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__gguf_fail(ignis__gguf *file, int64_t at, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!file->failed)
        ignis__fail(IGNIS_DIAG_GGUF_FORMAT, file->call, "'%s' is not a sound GGUF file: at byte %lld, %s", file->path,
                    (long long)at, line);
    file->failed = true;
    return false;
}

/*  Reads the head until `bytes` bytes from the reader's place on are there. `what` names them in the message. */
static bool ignis__gguf_load_head(ignis__gguf *file, int64_t bytes, const char *what)
{
    int64_t wanted;
    unsigned char *head;
    if (file->failed)
        return false;
    if (bytes <= file->have - file->at)
        return true;
    if (bytes > file->size - file->at)
        return ignis__gguf_fail(file, file->at, "%s would take %lld bytes, but %lld are left of the file", what,
                                (long long)bytes, (long long)(file->size - file->at));
    if (file->at + bytes > IGNIS__GGUF_HEAD_LIMIT)
        return ignis__gguf_fail(file, file->at, "%s would end %lld bytes behind the beginning of the file, above %lld",
                                what, (long long)(file->at + bytes), (long long)IGNIS__GGUF_HEAD_LIMIT);
    wanted = file->have * 2 < 65536 ? 65536 : file->have * 2;
    wanted = wanted < file->at + bytes ? file->at + bytes : wanted;
    wanted = wanted > file->size ? file->size : wanted;
    head = (unsigned char *)ignis__alloc((size_t)wanted);
    if (!head) {
        ignis__fail_host_memory(file->call, (size_t)wanted);
        file->failed = true;
        return false;
    }
    if (file->have)
        memcpy(head, file->head, (size_t)file->have);
    ignis__free(file->head);
    file->head = head;
    if (ignis__file_read_at(file->descriptor, file->have, head + file->have, wanted - file->have) !=
        wanted - file->have) {
        file->failed = true;
        return ignis__file_fail(file->call, file->path, "read");
    }
    file->have = wanted;
    return true;
}

static uint64_t ignis__gguf_bytes(const unsigned char *from, int size)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < size; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

/*  Reads a number of `size` bytes. 0 after a failure. */
static uint64_t ignis__gguf_read_number(ignis__gguf *file, int size, const char *what)
{
    uint64_t value;
    if (!ignis__gguf_load_head(file, size, what))
        return 0;
    value = ignis__gguf_bytes(file->head + file->at, size);
    file->at += size;
    return value;
}

/*  Reads a count of items of at least `least` bytes each. Fails if the file is too short for them. */
static int64_t ignis__gguf_read_count(ignis__gguf *file, int64_t least, const char *what)
{
    int64_t at = file->at;
    uint64_t count = ignis__gguf_read_number(file, 8, what);
    if (!file->failed && count > (uint64_t)((file->size - file->at) / least))
        ignis__gguf_fail(file, at, "%s is %llu, but %lld bytes are left of the file", what, (unsigned long long)count,
                         (long long)(file->size - file->at));
    return file->failed ? 0 : (int64_t)count;
}

/*  Reads a text and terminates it with a 0. Returns the place of its first byte. */
static int64_t ignis__gguf_read_text(ignis__gguf *file, const char *what)
{
    int64_t size = ignis__gguf_read_count(file, 1, what), at = file->at;
    if (!ignis__gguf_load_head(file, size, what))
        return 0;
    memmove(file->head + at - 1, file->head + at, (size_t)size);
    file->head[at - 1 + size] = 0;
    file->at += size;
    return at - 1;
}

static int64_t ignis__gguf_name(ignis__gguf *file, const char *what)
{
    int64_t before = file->at, at = ignis__gguf_read_text(file, what), size = file->at - at - 1;
    if (!file->failed && (size > IGNIS__GGUF_NAME_LIMIT || (int64_t)strlen((const char *)file->head + at) != size))
        ignis__gguf_fail(file, before, "%s is longer than %d bytes, or holds a 0", what, IGNIS__GGUF_NAME_LIMIT);
    return at;
}

/*  Reads a key, and skips its value. */
static void ignis__gguf_read_key(ignis__gguf *file, ignis__gguf_key *key)
{
    int64_t at, i;
    key->name_at = ignis__gguf_name(file, "the name of a key");
    at = file->at;
    key->kind = (uint32_t)ignis__gguf_read_number(file, 4, "the type of a key");
    key->count = -1;
    if (key->kind == IGNIS__GGUF_ARRAY) {
        key->kind = (uint32_t)ignis__gguf_read_number(file, 4, "the type of an array");
        if (!file->failed && key->kind < IGNIS__GGUF_KINDS && key->kind != IGNIS__GGUF_ARRAY)
            key->count = ignis__gguf_read_count(file, ignis__gguf_kinds[key->kind].size, "the length of an array");
    }
    if (!file->failed && (key->kind >= IGNIS__GGUF_KINDS || key->kind == IGNIS__GGUF_ARRAY))
        ignis__gguf_fail(file, at, "key %s has the unknown type %u, or is an array of arrays",
                         ignis__name_write((const char *)file->head + key->name_at).text, (unsigned)key->kind);
    key->at = file->at;
    if (key->kind == IGNIS__GGUF_STRING) {
        for (i = 0; i < (key->count < 0 ? 1 : key->count) && !file->failed; i++)
            (void)ignis__gguf_read_text(file, "a text");
    } else if (!file->failed) {
        int64_t bytes =
            (key->count < 0 ? 1 : key->count) * ignis__gguf_kinds[key->kind].size; /* bounded by the size of the file */
        if (ignis__gguf_load_head(file, bytes, "the value of a key"))
            file->at += bytes;
    }
}

static void ignis__gguf_read_tensor(ignis__gguf *file, ignis__gguf_tensor *tensor)
{
    int64_t at, bytes = 0;
    uint32_t ndim, i;
    bool fits = true;
    const char *name;
    tensor->name_at = ignis__gguf_name(file, "the name of a tensor");
    at = file->at;
    ndim = (uint32_t)ignis__gguf_read_number(file, 4, "the number of dimensions of a tensor");
    if (!file->failed && ndim > IGNIS_MAX_DIMS)
        ignis__gguf_fail(file, at, "tensor %s has %u dimensions, above %d",
                         ignis__name_write((const char *)file->head + tensor->name_at).text, (unsigned)ndim,
                         IGNIS_MAX_DIMS);
    if (file->failed)
        return;
    tensor->shape.ndim = ndim ? (int)ndim : 1;
    tensor->shape.dim[0] = 1;
    for (i = 0; i < ndim; i++) {
        uint64_t dim = ignis__gguf_read_number(file, 8, "a dimension of a tensor");
        fits = fits && dim <= INT64_MAX;
        tensor->shape.dim[ndim - 1 - i] = (int64_t)(dim & INT64_MAX);
    }
    tensor->id = (uint32_t)ignis__gguf_read_number(file, 4, "the type of a tensor");
    tensor->begin =
        (int64_t)ignis__gguf_read_number(file, 8, "the offset of a tensor"); /* below 0 if it does not fit */
    if (file->failed)
        return;
    name = (const char *)file->head + tensor->name_at;
    for (tensor->type = IGNIS__COUNT(ignis__gguf_types) - 1;
         tensor->type >= 0 && (ignis__gguf_types[tensor->type].id != tensor->id ||
                               tensor->id == (uint32_t)IGNIS__GGUF_F8); /* no file has it */
         tensor->type--)
        continue;
    if (tensor->type >= 0) {
        int elements = ignis__gguf_types[tensor->type].elements;
        ignis_shape blocks = tensor->shape;
        if (fits && blocks.dim[blocks.ndim - 1] % elements != 0) {
            ignis__gguf_fail(file, at, "tensor %s is %s %s: its rows are no multiples of %d elements",
                             ignis__name_write(name).text, ignis__gguf_types[tensor->type].name,
                             ignis__shape_write(&tensor->shape).text, elements);
            return;
        }
        blocks.dim[blocks.ndim - 1] /= elements;
        for (bytes = ignis__gguf_types[tensor->type].bytes, i = 0; i < (uint32_t)blocks.ndim; i++)
            fits = fits && ignis__multiply(bytes, blocks.dim[i], &bytes);
    }
    if (!fits || tensor->begin < 0 || bytes > INT64_MAX - tensor->begin)
        ignis__gguf_fail(file, at, "tensor %s, %s, has more bytes than 63 bits can count", ignis__name_write(name).text,
                         ignis__shape_write(&tensor->shape).text);
    else
        tensor->end = tensor->begin + bytes;
}

static int ignis__gguf_key_order(const void *a, const void *b)
{
    return strcmp(((const ignis__gguf_key *)a)->name, ((const ignis__gguf_key *)b)->name);
}

static int ignis__gguf_tensor_order(const void *a, const void *b)
{
    return strcmp(((const ignis__gguf_tensor *)a)->name, ((const ignis__gguf_tensor *)b)->name);
}

static int ignis__gguf_place_order(const void *a, const void *b)
{
    const ignis__gguf_tensor *one = (const ignis__gguf_tensor *)a, *other = (const ignis__gguf_tensor *)b;
    return one->begin != other->begin ? (one->begin < other->begin ? -1 : 1)
           : one->end != other->end   ? (one->end < other->end ? -1 : 1)
                                      : 0;
}

/*  Returns the key of a name; NULL if it is missing. */
IGNIS__PRIVATE const ignis__gguf_key *ignis__gguf_find(const ignis__gguf *file, const char *name)
{
    ignis__gguf_key key = IGNIS__ZERO;
    key.name = name;
    return file->key_count ? (const ignis__gguf_key *)bsearch(&key, file->keys, (size_t)file->key_count, sizeof key,
                                                              ignis__gguf_key_order)
                           : NULL;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE const ignis__gguf_tensor *ignis__gguf_find_tensor(const ignis__gguf *file,
                                                                                     const char *name)
{
    ignis__gguf_tensor key = IGNIS__ZERO;
    key.name = name;
    return file->tensor_count ? (const ignis__gguf_tensor *)bsearch(&key, file->tensors, (size_t)file->tensor_count,
                                                                    sizeof key, ignis__gguf_tensor_order)
                              : NULL;
}

static ignis__gguf_found ignis__gguf_fail_kind(ignis__gguf *file, const ignis__gguf_key *key, const char *wanted)
{
    file->failed = false; /* each lookup reports its own failure */
    ignis__gguf_fail(file, key->at, "key %s is %s%s, not %s", ignis__name_write(key->name).text,
                     key->count < 0 ? "" : "an array of ", ignis__gguf_kinds[key->kind].name, wanted);
    return IGNIS__GGUF_BAD;
}

/*  Reads a number of any kind. ignis__gguf_int_at makes an unsigned 64-bit number negative if it exceeds 63
    bits. */
static double ignis__gguf_real_at(const unsigned char *at, uint32_t kind)
{
    uint64_t bits = ignis__gguf_bytes(at, ignis__gguf_kinds[kind].size);
    uint32_t low = (uint32_t)bits;
    float single;
    double value;
    switch (kind) {
    case IGNIS__GGUF_I8: return (int8_t)bits;
    case IGNIS__GGUF_I16: return (int16_t)bits;
    case IGNIS__GGUF_I32: return (int32_t)low;
    case IGNIS__GGUF_I64: return (double)(int64_t)bits;
    case IGNIS__GGUF_F32: memcpy(&single, &low, sizeof single); return (double)single;
    case IGNIS__GGUF_F64: memcpy(&value, &bits, sizeof value); return value;
    default: return (double)bits;
    }
}

static int64_t ignis__gguf_int_at(const unsigned char *at, uint32_t kind)
{
    uint64_t bits = ignis__gguf_bytes(at, ignis__gguf_kinds[kind].size);
    return kind == IGNIS__GGUF_I8    ? (int8_t)bits
           : kind == IGNIS__GGUF_I16 ? (int16_t)bits
           : kind == IGNIS__GGUF_I32 ? (int32_t)bits
                                     : (int64_t)bits;
}

static bool ignis__gguf_is_int(uint32_t kind)
{
    return kind <= IGNIS__GGUF_I32 || kind == IGNIS__GGUF_U64 || kind == IGNIS__GGUF_I64;
}

static bool ignis__gguf_is_real(uint32_t kind) { return kind == IGNIS__GGUF_F32 || kind == IGNIS__GGUF_F64; }

/*  Reads the value of a key: an integer (an unsigned 64-bit one must fit 63 bits), a number, a bool, a text. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_int(ignis__gguf *file, const char *name,
                                                                          int64_t *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || !ignis__gguf_is_int(key->kind))
        return ignis__gguf_fail_kind(file, key, "a whole number");
    *value = ignis__gguf_int_at(file->head + key->at, key->kind);
    return key->kind == IGNIS__GGUF_U64 && *value < 0 ? ignis__gguf_fail_kind(file, key, "a number that fits 63 bits")
                                                      : IGNIS__GGUF_FOUND;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_real(ignis__gguf *file, const char *name,
                                                                           double *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || !(ignis__gguf_is_int(key->kind) || ignis__gguf_is_real(key->kind)))
        return ignis__gguf_fail_kind(file, key, "a number");
    *value = ignis__gguf_real_at(file->head + key->at, key->kind);
    return IGNIS__GGUF_FOUND;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_bool(ignis__gguf *file, const char *name,
                                                                           bool *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || key->kind != IGNIS__GGUF_BOOL)
        return ignis__gguf_fail_kind(file, key, "true or false");
    *value = file->head[key->at] != 0;
    return IGNIS__GGUF_FOUND;
}

/*  Reads the next text. The highest byte of its length was overwritten; it was 0, as the head is smaller than
    that. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE const char *ignis__gguf_next_text(ignis__gguf_items *items, size_t *size)
{
    const char *text = (const char *)items->at + 7;
    *size = (size_t)ignis__gguf_bytes(items->at, 7);
    items->at += 8 + *size;
    items->left--;
    return text;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__gguf_next_int(ignis__gguf_items *items)
{
    int64_t value = ignis__gguf_int_at(items->at, items->kind);
    items->at += ignis__gguf_kinds[items->kind].size;
    items->left--;
    return value;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__gguf_next_real(ignis__gguf_items *items)
{
    double value = ignis__gguf_real_at(items->at, items->kind);
    items->at += ignis__gguf_kinds[items->kind].size;
    items->left--;
    return value;
}

/*  Reads the text of a key. A 0 follows its *size bytes. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_string(ignis__gguf *file, const char *name,
                                                                             const char **text, size_t *size)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    ignis__gguf_items one;
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || key->kind != IGNIS__GGUF_STRING)
        return ignis__gguf_fail_kind(file, key, "a text");
    one.at = file->head + key->at;
    one.kind = key->kind;
    one.left = 1;
    *text = ignis__gguf_next_text(&one, size);
    return IGNIS__GGUF_FOUND;
}

/*  Reads the array of a key. `like` is the required kind of its items: STRING, I64 for any integers, F64 for
    any numbers, BOOL. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__gguf_found ignis__gguf_find_array(ignis__gguf *file, const char *name,
                                                                            ignis__gguf_kind like,
                                                                            ignis__gguf_items *items)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    bool fits;
    if (!key)
        return IGNIS__GGUF_NONE;
    fits = like == IGNIS__GGUF_F64   ? ignis__gguf_is_int(key->kind) || ignis__gguf_is_real(key->kind)
           : like == IGNIS__GGUF_I64 ? ignis__gguf_is_int(key->kind)
                                     : key->kind == (uint32_t)like;
    if (key->count < 0 || !fits)
        return ignis__gguf_fail_kind(file, key,
                                     like == IGNIS__GGUF_STRING ? "an array of texts"
                                     : like == IGNIS__GGUF_I64  ? "an array of whole numbers"
                                                                : "an array of such values");
    items->at = file->head + key->at;
    items->kind = key->kind;
    items->left = key->count;
    return IGNIS__GGUF_FOUND;
}

/*  Checks the places of the tensors: inside the data, at multiples of the alignment, without overlaps. */
static bool ignis__gguf_check_places(ignis__gguf *file)
{
    int64_t alignment = 32, data, i;
    if (ignis__gguf_find_int(file, "general.alignment", &alignment) == IGNIS__GGUF_BAD)
        return false;
    if (alignment < 1 || alignment > 1 << 30 || (alignment & (alignment - 1)) != 0)
        return ignis__gguf_fail(file, ignis__gguf_find(file, "general.alignment")->at,
                                "general.alignment is %lld, not a power of two up to 2^30", (long long)alignment);
    data = (file->at + alignment - 1) / alignment * alignment;
    for (i = 0; i < file->tensor_count; i++) {
        ignis__gguf_tensor *tensor = &file->tensors[i];
        if (tensor->begin % alignment != 0)
            return ignis__gguf_fail(
                file, tensor->name_at, "tensor %s begins at %lld of the data, not a multiple of %lld",
                ignis__name_write(tensor->name).text, (long long)tensor->begin, (long long)alignment);
        if (tensor->end > tensor->begin && (file->size < data || tensor->end > file->size - data))
            return ignis__gguf_fail(file, tensor->name_at,
                                    "tensor %s lies at %lld to %lld of the data, which has %lld bytes",
                                    ignis__name_write(tensor->name).text, (long long)tensor->begin,
                                    (long long)tensor->end, (long long)(file->size < data ? 0 : file->size - data));
        if (tensor->end == tensor->begin)
            tensor->begin = tensor->end = 0; /* empty, or of an unknown type */
        tensor->begin += data;
        tensor->end += data;
    }
    if (file->tensor_count > 1)
        qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, ignis__gguf_place_order);
    for (i = 1; i < file->tensor_count; i++)
        if (file->tensors[i].begin < file->tensors[i - 1].end)
            return ignis__gguf_fail(file, file->tensors[i].name_at, "tensor %s begins inside of tensor %s",
                                    ignis__name_write(file->tensors[i].name).text,
                                    ignis__name_write(file->tensors[i - 1].name).text);
    if (file->tensor_count > 1)
        qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, ignis__gguf_tensor_order);
    for (i = 1; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return ignis__gguf_fail(file, file->tensors[i].name_at, "there is a second tensor %s",
                                    ignis__name_write(file->tensors[i].name).text);
    return true;
}

/*  Allocates `count` keys or tensors. The file was found large enough for them. */
static void *ignis__gguf_alloc(ignis__gguf *file, int64_t count, size_t size)
{
    void *items = file->failed || count > IGNIS__GGUF_HEAD_LIMIT / (int64_t)size
                      ? NULL
                      : ignis__alloc((size_t)(count + 1) * size);
    if (!items && !file->failed)
        ignis__fail_host_memory(file->call, (size_t)(count + 1) * size);
    file->failed = items == NULL;
    return items;
}

/*  Opens a file and checks all of it except the values of its tensors. On failure it reports and closes the
    file. */
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE bool ignis__gguf_open(const char *call, const char *path,
                                                                     ignis__gguf *file)
{
    int64_t tensors = 0, keys = 0, i;
    uint32_t version;
    memset(file, 0, sizeof *file);
    file->path = path;
    file->call = call;
    file->descriptor = ignis__file_open(path, &file->size);
    if (file->descriptor < 0)
        return ignis__file_fail(call, path, "opened");
    if (file->size < 4 || !ignis__gguf_load_head(file, 4, "the first bytes") || memcmp(file->head, "GGUF", 4) != 0)
        ignis__gguf_fail(file, 0, "it does not begin with \"GGUF\"");
    file->at = 4;
    version = (uint32_t)ignis__gguf_read_number(file, 4, "the version");
    if (!file->failed && version != 2 && version != 3)
        ignis__gguf_fail(file, 4, "the version is %u%s; 2 and 3 are known", (unsigned)version,
                         version == 2u << 24 || version == 3u << 24 ? ", as in a big-endian file" : "");
    tensors = ignis__gguf_read_count(file, 24, "the number of tensors");
    keys = ignis__gguf_read_count(file, 13, "the number of keys");
    file->keys = (ignis__gguf_key *)ignis__gguf_alloc(file, keys, sizeof *file->keys);
    file->tensors = (ignis__gguf_tensor *)ignis__gguf_alloc(file, tensors, sizeof *file->tensors);
    for (i = 0; i < keys && !file->failed; i++, file->key_count++)
        ignis__gguf_read_key(file, &file->keys[i]);
    for (i = 0; i < tensors && !file->failed; i++, file->tensor_count++)
        ignis__gguf_read_tensor(file, &file->tensors[i]);
    for (i = 0; i < keys && !file->failed; i++) /* the head does not move any more */
        file->keys[i].name = (const char *)file->head + file->keys[i].name_at;
    for (i = 0; i < tensors && !file->failed; i++)
        file->tensors[i].name = (const char *)file->head + file->tensors[i].name_at;
    if (!file->failed && keys > 1)
        qsort(file->keys, (size_t)keys, sizeof *file->keys, ignis__gguf_key_order);
    for (i = 1; i < keys && !file->failed; i++)
        if (strcmp(file->keys[i - 1].name, file->keys[i].name) == 0)
            ignis__gguf_fail(file, file->keys[i].name_at, "there is a second key %s",
                             ignis__name_write(file->keys[i].name).text);
    if (!file->failed && ignis__gguf_check_places(file))
        return true;
    ignis__gguf_close(file);
    return false;
}
