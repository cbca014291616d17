// SPDX-License-Identifier: MIT
/*  fuzz_file.c - damaged safetensors files, and indexes of saved trainings: the reader must say no or yes, and what it
    says yes to must hold

        fuzz_file [iterations [seed]]

    It makes files by mutation from good ones; the same seed makes the same files.
    Build it with -fsanitize=address,undefined: each file is in a block of memory of exactly its size. With
    -DFUZZ_LIBFUZZER and clang's -fsanitize=fuzzer the entry of libFuzzer is there instead of main. Neither needs a
    device. */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#define FUZZER "fuzz_file"
#include "fuzz.h"

/*  Writes what was read as a file of its own, whose header must be read as the same tensors again. */
static void check_rewritten(const ignis__safetensors *file, const unsigned char *bytes, size_t size)
{
    ignis__safetensors again;
    size_t header, data = size - (size_t)file->data;
    unsigned char *copy;
    int i, k;
    ignis__file_tensor *items = (ignis__file_tensor *)calloc((size_t)file->count + 1, sizeof *items);
    size_t length = ignis__metadata_write(file->metadata, file->metadata_count, NULL, 0);
    char *metadata = (char *)malloc(length + 1);
    require(ignis__metadata_write(file->metadata, file->metadata_count, metadata, length + 1) == length,
            "measured and written metadata differ", bytes, size);
    if (file->count)
        memcpy(items, file->items, (size_t)file->count * sizeof *items);
    require(ignis__safetensors_arrange(items, file->count), "what was read cannot be arranged", bytes, size);
    header = ignis__safetensors_write(items, file->count, metadata, NULL, 0);
    require(header % 8 == 0, "a header is not aligned", bytes, size);
    copy = (unsigned char *)malloc(8 + header + data + 1);
    for (i = 0; i < 8; i++)
        copy[i] = (unsigned char)(header >> 8 * i);
    require(ignis__safetensors_write(items, file->count, metadata, (char *)copy + 8, header + 1) == header,
            "measured and written differ", bytes, size);
    memset(copy + 8 + header, 0, data);
    require(ignis__safetensors_parse(&again, copy, (int64_t)(8 + header + data)) == IGNIS_DIAG_NONE,
            "what was written is not read", bytes, size);
    require(again.count == file->count && again.data == (int64_t)(8 + header), "the number of tensors differs", bytes,
            size);
    ignis__file_tensor_sort(items, file->count, ignis__file_tensor_by_name);
    ignis__file_tensor_sort(again.items, again.count, ignis__file_tensor_by_name);
    for (i = 0; i < again.count; i++) {
        const ignis__file_tensor *a = &items[i], *b = &again.items[i];
        bool same = strcmp(a->name, b->name) == 0 && a->type == b->type && a->begin == b->begin && a->end == b->end &&
                    a->shape.ndim == b->shape.ndim;
        for (k = 0; k < a->shape.ndim; k++)
            same = same && a->shape.dim[k] == b->shape.dim[k];
        require(same, "a tensor differs after writing and reading", bytes, size);
    }
    require(again.metadata_count == file->metadata_count, "the metadata differs", bytes, size);
    for (i = 0; i < again.metadata_count; i++)
        require(strcmp(again.metadata[i].key, file->metadata[i].key) == 0 &&
                    strcmp(again.metadata[i].value, file->metadata[i].value) == 0,
                "a text differs after writing and reading", bytes, size);
    ignis__safetensors_close(&again);
    free(metadata);
    free(copy);
    free(items);
}

/*  Reads a file; true when it is accepted. */
static bool try_file(const unsigned char *bytes, size_t size)
{
    ignis__safetensors file;
    ignis_diagnostic result = ignis__safetensors_parse(&file, bytes, (int64_t)size);
    int64_t end = 0;
    int i, k;
    if (result == IGNIS_DIAG_NONE) {
        require(file.data >= 8 && (size_t)file.data <= size, "the data begins outside the file", bytes, size);
        for (i = 0; i < file.count; i++) {
            const ignis__file_tensor *item = &file.items[i];
            require(item->begin == end && item->end >= end, "tensors overlap, or leave a hole", bytes, size);
            require(item->end - item->begin == ignis__file_tensor_bytes(item->type, &item->shape),
                    "a tensor has the wrong size", bytes, size);
            require(item->shape.ndim >= 1 && item->shape.ndim <= IGNIS_MAX_DIMS, "a tensor has the wrong rank", bytes,
                    size);
            for (k = 0; k < item->shape.ndim; k++)
                require(item->shape.dim[k] >= 0, "a dimension is negative", bytes, size);
            require(ignis__utf8_valid(item->name) && strcmp(item->name, "__metadata__") != 0, "a name is none", bytes,
                    size);
            end = item->end;
        }
        for (i = 0; i < file.metadata_count; i++)
            require(ignis__utf8_valid(file.metadata[i].key) && ignis__utf8_valid(file.metadata[i].value),
                    "metadata is no text", bytes, size);
        require(end == (int64_t)size - file.data, "the tensors are not the whole data", bytes, size);
        ignis__file_tensor_sort(file.items, file.count, ignis__file_tensor_by_name);
        require(!ignis__file_tensor_duplicate(file.items, file.count), "two tensors have one name", bytes, size);
        check_rewritten(&file, bytes, size);
    } else {
        require(result == IGNIS_DIAG_STORAGE_FORMAT, "a refusal has another reason than the format", bytes, size);
        require(strlen(file.fault) > 10 && strlen(file.fault) < sizeof file.fault, "a refusal has no reason", bytes,
                size);
        require(ignis__utf8_valid(file.fault) || strlen(file.fault) > 200, "a reason is not UTF-8", bytes, size);
    }
    ignis__safetensors_close(&file);
    return result == IGNIS_DIAG_NONE;
}

/*  Reads an index of a saved training; true when it is accepted. */
static bool try_index(const unsigned char *bytes, size_t size)
{
    ignis__training_index index;
    ignis_diagnostic result = ignis__training_index_parse(&index, (const char *)bytes, size);
    int i;
    require(result == IGNIS_DIAG_NONE || (result == IGNIS_DIAG_STORAGE_FORMAT && strlen(index.fault) > 10),
            "a refusal has no reason", bytes, size);
    for (i = 0; result == IGNIS_DIAG_NONE && i < index.count; i++) {
        const ignis__training_place *place = &index.places[i];
        require(place->part >= 0 && place->part < index.ranks, "a tensor is in a file of no rank", bytes, size);
        require(!strchr(place->file, '/'), "a file is outside of the folder", bytes, size);
        require(i == 0 || strcmp(place[-1].name, place->name) < 0, "a tensor is in it twice", bytes, size);
        require(ignis__training_index_find(&index, place->name) == place, "a tensor is not found", bytes, size);
    }
    ignis__training_index_close(&index);
    return result == IGNIS_DIAG_NONE;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    try_file(bytes, size);
    try_index(bytes, size);
    return 0;
}

#else

enum { FILE_MAX = 4096 };

/*  Headers to begin with, each with the bytes of data that it needs. */
static const struct {
    const char *header;
    size_t data;
} seeds[] = {
    {"{}      ", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4},
    {"{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"},\"w.1\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]"
     "},"
     "\"w.2\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]},\"w.3\":{\"dtype\":\"U8\",\"shape\":[0,7],"
     "\"data_offsets\":[16,"
     "16]}}  ",
     16},
    {"{ \"b\" : { \"shape\" : [ 1 , 2 ] , \"data_offsets\" : [ 4 , 20 ] , \"dtype\" : \"F64\" } "
     ",\n\t\"a\":{\"data_offsets\":[0,4],\"dtype\":\"F16\","
     "\"shape\":[2]} }\r\n",
     20},
    {"{\"\\u00e9\\ud83d\\ude00\\n\\\\\\\"\\/\\b\\f\\r\\t\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\":{\"dtype\":\"\\u00468_E4M3\",\"shape\":[3],\"data_offsets\":[4,7]}}",
     7},
    {"{\"a\":{\"x\":[1,-2.5e+3,{\"y\":[null,true,false,\"s\",{}]},[]],\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,1],"
     "\"data_offsets\":[0,1]"
     "}}",
     1},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],"
     "\"data_offsets\":[3,6]}}",
     6},
};

/*  What mutations put in. */
/* clang-format off */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", " ", "\n", "0", "1", "-1", "-0", "1.0", "1e0", "00", "null", "true", "{}",
    "[]", "\"\"", "9223372036854775807", "9223372036854775808", "18446744073709551615", "4294967296",
    "99999999999999999999999", "\\u0000", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\u12", "\\x", "\x80", "\xC0\x80",
    "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF0\x9F\x98", "\xEF\xBB\xBF", "\x01", "\x7F", "\"dtype\":\"F32\"",
    "\"shape\":[1]", "\"data_offsets\":[0,4]", "\"__metadata__\":{}", "\"__metadata__\":null", "\"F64\"", "\"U8\"",
    "\"F33\"", "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":", "data_offsets", "shape",
};
/* clang-format on */

typedef struct text {
    unsigned char bytes[FILE_MAX];
    size_t size;
} text;

/*  Replaces `old_size` bytes at a place by others. */
static void splice(text *t, size_t at, size_t old_size, const void *with, size_t size)
{
    if (t->size - old_size + size > FILE_MAX)
        return;
    memmove(t->bytes + at + size, t->bytes + at + old_size, t->size - at - old_size);
    memcpy(t->bytes + at, with, size);
    t->size += size - old_size;
}

static void mutate(text *t)
{
    size_t at = random_below(t->size + 1), left = t->size - at, some = random_below((left < 24 ? left : 24) + 1);
    const char *word = words[random_below(sizeof words / sizeof *words)];
    unsigned char piece[256], byte;
    char number[32];
    size_t i;
    switch (random_below(9)) {
    case 0: /* one bit */
        if (left)
            t->bytes[at] ^= (unsigned char)(1 << random_below(8));
        break;
    case 1: /* one byte */
        byte = (unsigned char)random_next();
        splice(t, at, left > 0, &byte, 1);
        break;
    case 2: /* a piece less */ splice(t, at, some, "", 0); break;
    case 3: /* a piece twice */
        memcpy(piece, t->bytes + at, some);
        splice(t, at, 0, piece, some);
        break;
    case 4: /* a piece from elsewhere */
        i = random_below(t->size - some + 1);
        memcpy(piece, t->bytes + i, some);
        splice(t, at, random_below(2) ? some : 0, piece, some);
        break;
    case 5: /* a word more */ splice(t, at, 0, word, strlen(word)); break;
    case 6: /* a word instead */ splice(t, at, some, word, strlen(word)); break;
    case 7: /* another number where there is one */
    case 8:
        for (i = 0; i < t->size && !(t->bytes[(at + i) % t->size] >= '0' && t->bytes[(at + i) % t->size] <= '9'); i++)
            ;
        if (i == t->size)
            break;
        at = (at + i) % t->size;
        for (i = at; i < t->size && t->bytes[i] >= '0' && t->bytes[i] <= '9'; i++)
            ;
        snprintf(number, sizeof number, "%d", (int)random_below(random_below(4) ? 10 : 40));
        splice(t, at, i - at, number, strlen(number));
        break;
    default: break;
    }
}

/*  An index, whole or with mutations, in a block of exactly its size. */
static void fuzz_index(bool whole)
{
    static const char *const indexes[] = {
        "{\n  \"metadata\": {\"total_size\": 12, \"ignis_save\": \"0123456789abcdef\", \"ignis_ranks\": 2},\n"
        "  \"weight_map\": {\n    \"a\": \"model-0123456789abcdef-00001-of-00002.safetensors\",\n"
        "    \"b\": \"model-0123456789abcdef-00002-of-00002.safetensors\"\n  }\n}\n",
        "{\"weight_map\":{\"\\u00e9\":\"model-00000000000000ff-00001-of-00001.safetensors\"},\"x\":[{}],"
        "\"metadata\":{\"ignis_ranks\":1,\"other\":null,\"ignis_save\":\"00000000000000ff\"}}"};
    static text index;
    const char *from = indexes[random_below(sizeof indexes / sizeof *indexes)];
    unsigned char *block;
    size_t k;
    bool ok;
    index.size = strlen(from);
    memcpy(index.bytes, from, index.size);
    for (k = whole ? 0 : 1 + random_below(2) * random_below(4); k > 0; k--)
        mutate(&index);
    block = (unsigned char *)malloc(index.size ? index.size : 1);
    if (!block)
        exit(1);
    memcpy(block, index.bytes, index.size);
    ok = try_index(block, index.size);
    require(ok || !whole, "a good index is refused", block, index.size);
    free(block);
}

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, accepted = 0, done;
    size_t i, k, data, length;
    static text header;
    random_begin(argc, argv);
    for (done = 0; done < iterations; done++) {
        unsigned char *file;
        size_t size;
        bool ok;
        bool whole = done < sizeof seeds / sizeof *seeds; /* each seed once as it is */
        if (done % 4 == 0)
            fuzz_index(whole);
        i = whole ? (size_t)done : random_below(sizeof seeds / sizeof *seeds);
        header.size = strlen(seeds[i].header);
        memcpy(header.bytes, seeds[i].header, header.size);
        data = seeds[i].data;
        for (k = whole ? 0 : 1 + random_below(2) * random_below(2) * random_below(8); k > 0;
             k--) /* most get one mutation */
            mutate(&header);
        length = header.size;
        if (!whole && random_below(16) == 0)
            length = random_below(4) ? random_below(2 * header.size + 8) : (size_t)(random_next() >> random_below(64));
        if (!whole && random_below(8) == 0)
            data = random_below(48);
        size = 8 + header.size + data;
        file = (unsigned char *)malloc(size);
        if (!file)
            return 1;
        for (k = 0; k < 8; k++)
            file[k] = (unsigned char)(length >> 8 * k);
        memcpy(file + 8, header.bytes, header.size);
        memset(file + 8 + header.size, 'x', data);
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
    printf("fuzz_file: %llu files, %llu accepted, %llu refused\n", iterations, accepted, iterations - accepted);
    return 0;
}

#endif
