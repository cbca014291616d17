// SPDX-License-Identifier: MIT
/*  test_file.c - safetensors files: what is written, read back and refused, and what a failure leaves behind */
#include "fault.h"
#include "tensor.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

static size_t read_file(const char *path, unsigned char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(data, 1, capacity, file) : 0;
    CHECK(file != NULL);
    if (file)
        fclose(file);
    return size;
}

/*  A file of a header and so many bytes of data; returns its size. */
static size_t make_file(unsigned char *out, const char *header, size_t data)
{
    size_t length = strlen(header), i;
    for (i = 0; i < 8; i++)
        out[i] = (unsigned char)(length >> 8 * i);
    memcpy(out + 8, header, length);
    memset(out + 8 + length, 0, data);
    return 8 + length + data;
}

static void write_header(const char *path, const char *header, size_t data)
{
    unsigned char *file = (unsigned char *)malloc(strlen(header) + data + 8);
    test_write_file(path, file, make_file(file, header, data));
    free(file);
}

/*  A tensor of bytes that differ with `first`. */
static ignis_tensor make_tensor(ignis_shape shape, ignis_dtype dtype, int first)
{
    ignis_array array = make(shape, dtype);
    int64_t size = ignis_array_size_bytes(array), i;
    unsigned char *bytes = (unsigned char *)malloc((size_t)size + 1);
    ignis_tensor tensor;
    for (i = 0; i < size; i++)
        bytes[i] = (unsigned char)(first + i * 7 + i / 251);
    CHECK_OK(ignis_array_from_host_raw(array, bytes, size));
    free(bytes);
    tensor = ignis_tensor_from_array(array, false);
    drop(array);
    return tensor;
}

#define CHECK_TENSOR(tensor, shape, dtype, first) check_tensor(__LINE__, tensor, shape, dtype, first)
static void check_tensor(int line, ignis_tensor tensor, ignis_shape shape, ignis_dtype dtype, int first)
{
    ignis_array array = ignis_tensor_data(tensor);
    int64_t size = ignis_array_size_bytes(array), i, wrong = 0;
    unsigned char *bytes = (unsigned char *)malloc((size_t)(size < 0 ? 0 : size) + 1);
    check_shape(line, array, shape);
    test__check_int(__FILE__, line, "dtype", info_of(array).dtype, dtype);
    test__check_int(__FILE__, line, "owner", info_of(array).owner, IGNIS_OWNER_IGNIS);
    CHECK_OK(ignis_array_to_host_raw(array, bytes, size));
    for (i = 0; i < size; i++)
        wrong += bytes[i] != (unsigned char)(first + i * 7 + i / 251);
    test__check_int(__FILE__, line, "bytes that are not as written", wrong, 0);
    free(bytes);
}

/*  The names of a call for one tensor. */
static const char *const *one(const char *name)
{
    static __thread const char *names[1];
    names[0] = name;
    return names;
}

/* round trips ----------------------------------------------------------------------------------------------------- */

enum { KINDS = 9 };
static const char *const kind_names[KINDS] = {"f16", "bf16", "f32", "f64", "i32", "i64", "u8", "e4m3", "e5m2"};
static const ignis_dtype kind_dtypes[KINDS] = {IGNIS_F16, IGNIS_BF16, IGNIS_F32,     IGNIS_F64,    IGNIS_I32,
                                               IGNIS_I64, IGNIS_U8,   IGNIS_F8_E4M3, IGNIS_F8_E5M2};

TEST(every_dtype_comes_back_bit_for_bit)
{
    ignis_tensor saved[KINDS], loaded[KINDS];
    const char *path = test_path("dtypes.safetensors");
    int i;
    SETUP(NULL);
    for (i = 0; i < KINDS; i++)
        saved[i] = make_tensor(IGNIS_SHAPE(3, i + 1, 5), kind_dtypes[i], i);
    CHECK_OK(ignis_save(path, kind_names, saved, KINDS));
    memset(loaded, 0, sizeof loaded);
    CHECK_OK(ignis_load(path, kind_names, loaded, KINDS)); /* new tensors */
    for (i = 0; i < KINDS; i++) {
        CHECK_TENSOR(loaded[i], IGNIS_SHAPE(3, i + 1, 5), kind_dtypes[i], i);
        CHECK_TEXT(info_of(ignis_tensor_data(loaded[i])).tag, kind_names[i]);
        let_go(loaded[i]);
        loaded[i] = make_tensor(IGNIS_SHAPE(3, i + 1, 5), kind_dtypes[i], 99);
    }
    CHECK_OK(ignis_load(path, kind_names, loaded, KINDS)); /* into tensors that are there */
    for (i = 0; i < KINDS; i++) {
        CHECK_TENSOR(loaded[i], IGNIS_SHAPE(3, i + 1, 5), kind_dtypes[i], i);
        let_go(loaded[i]);
        let_go(saved[i]);
    }
}

TEST(tensors_that_are_large_empty_or_many_dimensional)
{
    static const char *const names[] = {"large", "empty", "deep", ""};
    ignis_tensor saved[4], loaded[4];
    const char *path = test_path("sizes.safetensors");
    int i;
    SETUP(NULL);
    saved[0] = make_tensor(IGNIS_SHAPE(1031, 1777), IGNIS_F32, 1); /* more than one piece */
    saved[1] = make_tensor(IGNIS_SHAPE(4, 0, 2), IGNIS_I64, 2);
    saved[2] = make_tensor(IGNIS_SHAPE(1, 2, 1, 2, 1, 2, 1, 3), IGNIS_U8, 3);
    saved[3] = make_tensor(IGNIS_SHAPE(1), IGNIS_F64, 4);
    memset(loaded, 0, sizeof loaded);
    CHECK_OK(ignis_save(path, names, saved, 4));
    CHECK_OK(ignis_load(path, names, loaded, 4));
    CHECK_TENSOR(loaded[0], IGNIS_SHAPE(1031, 1777), IGNIS_F32, 1);
    CHECK_SHAPE(ignis_tensor_data(loaded[1]), IGNIS_SHAPE(4, 0, 2));
    CHECK_TENSOR(loaded[2], IGNIS_SHAPE(1, 2, 1, 2, 1, 2, 1, 3), IGNIS_U8, 3);
    CHECK_TENSOR(loaded[3], IGNIS_SHAPE(1), IGNIS_F64, 4);
    for (i = 0; i < 4; i++)
        let_go(saved[i]), let_go(loaded[i]);
}

TEST(a_file_of_nothing)
{
    unsigned char file[64];
    const char *path = test_path("nothing.safetensors");
    ignis_tensor tensor = no_tensor();
    SETUP(NULL);
    CHECK_OK(ignis_save(path, NULL, NULL, 0));
    CHECK_INT(read_file(path, file, sizeof file), 16);
    CHECK(memcmp(file, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    CHECK_OK(ignis_load(path, NULL, NULL, 0));
    CHECK_INT(ignis_file_list(path, NULL, 0), 0);
    CHECK_STATUS(ignis_load(path, one("a"), &tensor, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING);
    CHECK_MESSAGE_HAS("has no tensor 'a'; it has 0");
}

/* the bytes of a file --------------------------------------------------------------------------------------------- */

/*  What safetensors.numpy.save writes for the same tensors: those of the largest alignment first, then by name. */
TEST(the_bytes_are_those_of_the_reference)
{
    static const char *const names[] = {"u8", "half", "b", "a", "i32", "f64", "i64", "\xC3\xA9\x7F\x01\"\\/\n\t\r\b\f",
                                        "bf"};
    static const ignis_dtype dtypes[] = {IGNIS_U8,  IGNIS_F16, IGNIS_F32, IGNIS_F32, IGNIS_I32,
                                         IGNIS_F64, IGNIS_I64, IGNIS_F32, IGNIS_BF16};
    static const char header[] =
        "{\"i64\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"f64\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]},"
        "\"\xC3\xA9\x7F\\u0001\\\"\\\\/\\n\\t\\r\\b\\f\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[36,36]},"
        "\"i32\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[36,40]},"
        "\"bf\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[40,42]},"
        "\"half\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[42,44]},"
        "\"u8\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[44,47]}}";
    unsigned char file[1024], expected[1024];
    char padded[1024];
    ignis_tensor tensors[9];
    ignis_shape shape;
    const char *path = test_path("bytes.safetensors");
    size_t size, at;
    int i, k, value[9], bytes[9];
    SETUP(NULL);
    for (i = 0; i < 9; i++) {
        shape = i == 0 ? IGNIS_SHAPE(3) : i == 3 ? IGNIS_SHAPE(2, 2) : i == 7 ? IGNIS_SHAPE(0, 4) : IGNIS_SHAPE(1);
        tensors[i] = make_tensor(shape, dtypes[i], 40 * i);
        value[i] = 40 * i;
        bytes[i] = (int)ignis_array_size_bytes(ignis_tensor_data(tensors[i]));
    }
    CHECK_OK(ignis_save(path, names, tensors, 9));
    strcpy(padded, header);
    while (strlen(padded) % 8)
        strcat(padded, " ");
    size = make_file(expected, padded, 47);
    at = size - 47;
    CHECK_INT(at % 8, 0);
    for (i = 0; i < 9; i++) {
        static const int order[9] = {6, 5, 3, 2, 7, 4, 8, 1, 0};
        for (k = 0; k < bytes[order[i]]; k++)
            expected[at++] = (unsigned char)(value[order[i]] + k * 7);
    }
    CHECK_INT(read_file(path, file, sizeof file), size);
    CHECK(memcmp(file, expected, size) == 0);
    for (i = 0; i < 9; i++)
        let_go(tensors[i]);
}

/*  What others write: any order, white space, metadata, fields that mean nothing, escapes, no dimensions, foreign
    dtypes. */
TEST(files_of_others)
{
    static const char header[] =
        "{ \"__metadata__\" : {\"format\":\"pt\", \"\":\"\\u0000\"},\n "
        "\"second\":{\"shape\":[2],\"data_offsets\":[4,8],\"dtype\":\"F16\","
        "\"more\":{\"x\":[1,-0.5e+2,null,true,false,\"\",{},[]]}},\r\n\t"
        "\"first\":{\"data_offsets\":[0,4],\"dtype\":\"\\u004632\",\"shape\":[]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2,2],\"data_offsets\":[8,12]},\"\\u00e9\\ud83d\\ude00\":{\"dtype\":"
        "\"F4\",\"shape\":[4],"
        "\"data_offsets\":[12,14]},\"none\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]}} \n";
    const char *path = test_path("others.safetensors");
    static const char *const names[] = {"first", "second", "none"};
    ignis_storage_entry entries[5];
    ignis_tensor tensors[3];
    int i;
    SETUP(NULL);
    write_header(path, header, 14);
    memset(entries, 0x55, sizeof entries);
    CHECK_INT(ignis_file_list(path, entries, 5), 5);
    CHECK_TEXT(entries[0].name, "first");
    CHECK_INT(entries[0].dtype, IGNIS_F32);
    CHECK_INT(entries[0].shape.ndim, 1);
    CHECK_INT(entries[0].shape.dim[0], 1);
    CHECK_INT(entries[0].bytes, 4);
    CHECK_TEXT(entries[1].name, "second");
    CHECK_TEXT(entries[2].name, "none");
    CHECK_TEXT(entries[3].name, "mask");
    CHECK_INT(entries[3].dtype, IGNIS_U8);
    CHECK_INT(entries[3].bytes, 4);
    CHECK_INT(entries[4].dtype, IGNIS_DTYPE_DEFAULT);
    CHECK_TEXT(entries[4].name, "\xC3\xA9\xF0\x9F\x98\x80");
    CHECK_INT(entries[4].bytes, 2);
    memset(tensors, 0, sizeof tensors);
    CHECK_OK(ignis_load(path, names, tensors, 3));
    for (i = 0; i < 3; i++)
        let_go(tensors[i]);
    tensors[0] = no_tensor();
    CHECK_STATUS(ignis_load(path, one("\xC3\xA9\xF0\x9F\x98\x80"), &tensors[0], 1), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_UNSUPPORTED);
}

/*  Types that Ignis has not, and those that hold their values. */
TEST(whole_numbers_of_other_widths)
{
    static const struct {
        const char *name;
        int bytes;
        ignis_dtype dtype;
        int64_t low, high;
    } types[] = {{"BOOL", 1, IGNIS_U8, 0, 1},          {"I8", 1, IGNIS_I32, -128, 127},
                 {"I16", 2, IGNIS_I32, -32768, 32767}, {"U16", 2, IGNIS_I32, 0, 65535},
                 {"U32", 4, IGNIS_I64, 0, 4294967295}, {"U64", 8, IGNIS_DTYPE_DEFAULT, 0, 0}};
    const char *path = test_path("widths.safetensors");
    enum { COUNT = 700001 }; /* more than a part of staging memory */
    unsigned char *file = (unsigned char *)malloc((size_t)COUNT * 8 + 200);
    char *loaded = (char *)malloc((size_t)COUNT * 8), header[200];
    ignis_storage_entry entry;
    int i, k, b;
    SETUP(NULL);
    REQUIRE(file && loaded);
    for (i = 0; i < 6; i++) {
        size_t at;
        int wrong = 0;
        ignis_tensor tensor = no_tensor();
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                 types[i].name, COUNT, COUNT * types[i].bytes);
        at = make_file(file, header, 0);
        for (k = 0; k < COUNT; k++)
            for (b = 0; b < types[i].bytes; b++) {
                int64_t value = k == 0   ? types[i].low
                                : k == 1 ? types[i].high
                                         : types[i].low + (int64_t)k * 7919 % (types[i].high - types[i].low + 1);
                file[at++] = (unsigned char)((uint64_t)value >> 8 * b);
            }
        test_write_file(path, file, at);
        CHECK_INT(ignis_file_list(path, &entry, 1), 1);
        CHECK_INT(entry.dtype, types[i].dtype);
        CHECK_INT(entry.bytes, (int64_t)COUNT * types[i].bytes);
        if (!types[i].dtype) {
            CHECK_STATUS(ignis_load(path, one("x"), &tensor, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
            CHECK_MESSAGE_HAS("'x' is U64 in the file");
            continue;
        }
        CHECK_OK(ignis_load(path, one("x"), &tensor, 1));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(tensor), loaded,
                                         ignis_array_size_bytes(ignis_tensor_data(tensor))));
        for (k = 0; k < COUNT; k++) {
            int64_t value = k == 0   ? types[i].low
                            : k == 1 ? types[i].high
                                     : types[i].low + (int64_t)k * 7919 % (types[i].high - types[i].low + 1),
                    got = 0;
            if (types[i].dtype == IGNIS_I32)
                got = ((int32_t *)(void *)loaded)[k];
            else
                got = types[i].dtype == IGNIS_U8 ? (unsigned char)loaded[k] : ((int64_t *)(void *)loaded)[k];
            wrong += got != value;
        }
        CHECK_INT(wrong, 0);
        let_go(tensor);
    }
    free(file);
    free(loaded);
}

TEST(a_list_is_cut_to_its_capacity_and_names_to_theirs)
{
    char name[301], expected[256];
    const char *path = test_path("list.safetensors");
    ignis_storage_entry entries[3];
    const char *names[3] = {"b", "a", NULL};
    ignis_tensor tensors[3];
    int i;
    SETUP(NULL);
    memset(name, 'x', 300);
    memcpy(name + 254, "\xE2\x82\xAC", 3); /* a character of three bytes across the limit */
    name[300] = 0;
    names[2] = name;
    for (i = 0; i < 3; i++)
        tensors[i] = make_tensor(IGNIS_SHAPE(i + 1, 2), IGNIS_I32, 0);
    CHECK_OK(ignis_save(path, names, tensors, 3));
    CHECK_INT(ignis_file_list(path, NULL, 0), 3);
    memset(entries, 0x55, sizeof entries);
    CHECK_INT(ignis_file_list(path, entries, 1), 3);
    CHECK_TEXT(entries[0].name, "a");
    CHECK_INT(entries[1].name[0], 0x55);
    CHECK_INT(ignis_file_list(path, entries, 3), 3);
    CHECK_INT(entries[1].shape.dim[0], 1);
    CHECK_INT(entries[1].bytes, 8);
    memset(expected, 'x', 254);
    expected[254] = 0;
    CHECK_TEXT(entries[2].name, expected);
    CHECK_FAILS(ignis_file_list(path, entries, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_file_list(path, NULL, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_file_list(NULL, entries, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    for (i = 0; i < 3; i++)
        let_go(tensors[i]);
}

/* hostile files --------------------------------------------------------------------------------------------------- */

#define A(fields) "{\"a\":{" fields "}}"
#define F32 "\"dtype\":\"F32\","
#define GOOD F32 "\"shape\":[2],\"data_offsets\":[0,8]"
#define TEN "[[[[[[[[[["

static const struct {
    const char *header;
    size_t data;
    const char *says;
} hostile[] = {
    /* no JSON */
    {"", 0, "a { is missing"},
    {" {}", 0, "a { is missing"},
    {"[]", 0, "a { is missing"},
    {"null", 0, "a { is missing"},
    {"\xEF\xBB\xBF{}", 0, "a { is missing"},
    {"{", 0, "a string is missing"},
    {"{\"a", 0, "ends inside a string"},
    {"{\"a\\", 0, "unknown escape"},
    {"{\"a\"", 0, "a : is missing"},
    {"{\"a\":", 0, "a { is missing"},
    {"{\"a\":{", 0, "a string is missing"},
    {"{}}", 0, "something follows"},
    {"{}{}", 0, "something follows"},
    {"{},", 0, "something follows"},
    {"{,}", 0, "a string is missing"},
    {"{a:1}", 0, "a string is missing"},
    {"{'a':{" GOOD "}}", 8, "a string is missing"},
    {"{\"a\":{" GOOD "},}", 8, "a string is missing"},
    {"{\"a\":{" GOOD "}", 8, "a comma or } is missing"},
    {"{\"a\":{" GOOD "} \"b\":{" GOOD "}}", 8, "a comma or } is missing"},
    {A(GOOD ","), 8, "a string is missing"},
    {"{\"a\" {" GOOD "}}", 8, "a : is missing"},
    {A(GOOD) "x", 8, "something follows"},
    /* strings */
    {"{\"a\nb\":{" GOOD "}}", 8, "control character 0x0a"},
    {"{\"\\x\":{" GOOD "}}", 8, "unknown escape"},
    {"{\"\\u12G4\":{" GOOD "}}", 8, "\\u is not followed"},
    {"{\"\\u12", 0, "\\u is not followed"},
    {"{\"\\ud83d\":{" GOOD "}}", 8, "\\u is not followed"},
    {"{\"\\ud83d\\u0041\":{" GOOD "}}", 8, "\\u is not followed"},
    {"{\"\\ude00\":{" GOOD "}}", 8, "\\u is not followed"},
    {"{\"a\\u0000b\":{" GOOD "}}", 8, "contains a character 0"},
    {"{\"\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xC0\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xE0\x80\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xED\xA0\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xF0\x80\x80\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xF4\x90\x80\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xF5\x80\x80\x80\":{" GOOD "}}", 8, "not well-formed UTF-8"},
    {"{\"\xE2\x82", 0, "not well-formed UTF-8"},
    /* tensors */
    {"{\"a\":null}", 0, "a { is missing"},
    {"{\"a\":[\"F32\",[2],[0,8]]}", 8, "a { is missing"},
    {"{\"a\":{}}", 0, "no field dtype"},
    {A("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "no field dtype"},
    {A(F32 "\"data_offsets\":[0,8]"), 8, "no field shape"},
    {A(F32 "\"shape\":[2]"), 8, "no field data_offsets"},
    {A(GOOD ",\"dtype\":\"F32\""), 8, "two fields dtype"},
    {A(GOOD ",\"shape\":[2]"), 8, "two fields shape"},
    {A(GOOD ",\"data_offsets\":[0,8]"), 8, "two fields data_offsets"},
    {A("\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "dtype is 'F33'"},
    {A("\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "dtype is 'f32'"},
    {A("\"dtype\":\"F32\\u0000\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "which is unknown"},
    {A("\"dtype\":3,\"shape\":[2],\"data_offsets\":[0,8]"), 8, "a string is missing"},
    {A(F32 "\"shape\":2,\"data_offsets\":[0,8]"), 8, "a [ is missing"},
    {A(F32 "\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, "not whole"},
    {A(F32 "\"shape\":[2e0],\"data_offsets\":[0,8]"), 8, "not whole"},
    {A(F32 "\"shape\":[02],\"data_offsets\":[0,8]"), 8, "begins with 0"},
    {A(F32 "\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "a whole number"},
    {A(F32 "\"shape\":[-0],\"data_offsets\":[0,0]"), 0, "a whole number"},
    {A(F32 "\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, "a whole number"},
    {A(F32 "\"shape\":[2,],\"data_offsets\":[0,8]"), 8, "a whole number"},
    {A(F32 "\"shape\":[1 2],\"data_offsets\":[0,8]"), 8, "a comma or ] is missing"},
    {A(F32 "\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8, "more than 8 dimensions"},
    {A(F32 "\"shape\":[9223372036854775808],\"data_offsets\":[0,8]"), 8, "does not fit 63 bits"},
    {A(F32 "\"shape\":[99999999999999999999999999],\"data_offsets\":[0,8]"), 8, "does not fit 63 bits"},
    {A(F32 "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "not a whole number of bytes that fits"},
    {A(F32 "\"shape\":[4611686018427387906],\"data_offsets\":[0,8]"), 8, "not a whole number of bytes that fits"},
    {A(F32 "\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "not a whole number of bytes that fits"},
    {A("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, "not a whole number of bytes"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[0]"), 8, "a , is missing"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[0,8,8]"), 8, "a ] is missing"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[0,18446744073709551616]"), 8, "does not fit 63 bits"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[8,0]"), 8, "has 8 bytes, but its data_offsets are 8 and 0"},
    {A(F32 "\"shape\":[3],\"data_offsets\":[0,8]"), 8, "has 12 bytes, but its data_offsets are 0 and 8"},
    {A("\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "has 16 bytes, but"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[9223372036854775799,9223372036854775807]"), 8,
     "begins at 9223372036854775799"},
    /* the data */
    {A(GOOD), 7, "have 8 bytes, but the file has 7"},
    {A(GOOD), 9, "have 8 bytes, but the file has 9"},
    {A(GOOD), 0, "have 8 bytes, but the file has 0"},
    {"{}", 1, "have 0 bytes, but the file has 1"},
    {A(F32 "\"shape\":[2],\"data_offsets\":[8,16]"), 16, "begins at 8, after"},
    {"{\"a\":{" GOOD "},\"b\":{" GOOD "}}", 8, "begins at 0, before"},
    {"{\"a\":{" GOOD "},\"b\":{" F32 "\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "begins at 4, before"},
    {"{\"a\":{" GOOD "},\"b\":{" F32 "\"shape\":[2],\"data_offsets\":[12,20]}}", 20, "begins at 12, after"},
    {"{\"a\":{" GOOD "},\"b\":{" F32 "\"shape\":[0],\"data_offsets\":[4,4]}}", 8, "begins at 4, before"},
    {"{\"a\":{" GOOD "},\"a\":{" F32 "\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "two tensors 'a'"},
    {"{\"a\":{" GOOD "},\"\\u0061\":{" F32 "\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "two tensors 'a'"},
    /* metadata */
    {"{\"__metadata__\":null,\"a\":{" GOOD "}}", 8, "a { is missing"},
    {"{\"__metadata__\":{\"k\":1},\"a\":{" GOOD "}}", 8, "a string is missing"},
    {"{\"__metadata__\":{\"k\":\"v\" \"l\":\"v\"},\"a\":{" GOOD "}}", 8, "a comma or } is missing"},
    {"{\"__metadata__\":{},\"a\":{" GOOD "},\"__metadata__\":{}}", 8, "__metadata__ comes twice"},
    {"{\"__metadata__\":{" GOOD "}}", 8, "a string is missing"},
    /* fields of no meaning */
    {A(GOOD ",\"x\":"), 8, "a value is missing"},
    {A(GOOD ",\"x\":nul"), 8, "a value is missing"},
    {A(GOOD ",\"x\":-"), 8, "a value is missing"},
    {A(GOOD ",\"x\":1."), 8, "a value is missing"},
    {A(GOOD ",\"x\":.5"), 8, "a value is missing"},
    {A(GOOD ",\"x\":1e+"), 8, "a value is missing"},
    {A(GOOD ",\"x\":012"), 8, "a comma or } is missing"},
    {A(GOOD ",\"x\":[1,]"), 8, "a value is missing"},
    {A(GOOD ",\"x\":[1}"), 8, "a comma or ] is missing"},
    {A(GOOD ",\"x\":{\"y\"}"), 8, "a : is missing"},
    {A(GOOD ",\"x\":" TEN TEN TEN TEN TEN TEN TEN), 8, "nested deeper than 64"},
};

TEST(hostile_files_are_refused_and_touch_nothing)
{
    const char *path = test_path("hostile.safetensors"), *names[] = {"a", "a"};
    ignis_tensor tensors[2];
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(hostile); i++) {
        tensors[0] = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 50);
        tensors[1] = no_tensor();
        write_header(path, hostile[i].header, hostile[i].data);
        CHECK_STATUS(ignis_load(path, names, tensors, 2), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
        CHECK_MESSAGE_HAS("hostile.safetensors' is not a sound safetensors file: ");
        CHECK_MESSAGE_HAS(hostile[i].says);
        CHECK_INT(tensors[1].id, 0);
        CHECK_TENSOR(tensors[0], IGNIS_SHAPE(2), IGNIS_F32, 50);
        CHECK_INT(ignis_file_list(path, NULL, 0), -1);
        CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
        let_go(tensors[0]);
    }
}

TEST(lengths_of_the_header_are_checked)
{
    static const struct {
        uint64_t length;
        const char *says;
    } lengths[] = {{3, "are left of the file"},           {1000, "are left of the file"},
                   {100000000, "are left of the file"},   {100000001, "above 100000000"},
                   {UINT64_MAX, "above 100000000"},       {UINT64_MAX - 7, "above 100000000"},
                   {(uint64_t)1 << 63, "above 100000000"}};
    unsigned char file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    const char *path = test_path("length.safetensors");
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(lengths); i++) {
        for (k = 0; k < 8; k++)
            file[k] = (unsigned char)(lengths[i].length >> 8 * k);
        test_write_file(path, file, sizeof file);
        CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
        CHECK_MESSAGE_HAS(lengths[i].says);
    }
}

TEST(a_file_that_ends_anywhere_is_refused)
{
    unsigned char file[512];
    const char *path = test_path("cut.safetensors");
    size_t size, cut;
    SETUP(NULL);
    size = make_file(file, "{\"a\":{" GOOD "},\"b\":{" F32 "\"shape\":[1],\"data_offsets\":[8,12]}}", 12);
    for (cut = 0; cut < size; cut++) {
        test_write_file(path, file, cut);
        CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    }
    test_write_file(path, file, size);
    CHECK_INT(ignis_file_list(path, NULL, 0), 2);
}

TEST(a_file_with_any_byte_changed_is_read_or_refused)
{
    unsigned char file[512];
    const char *path = test_path("changed.safetensors");
    size_t size, at;
    int bit, read = 0;
    SETUP(NULL);
    size = make_file(file, A(GOOD), 8);
    for (at = 0; at < size - 8; at++) {
        for (bit = 0; bit < 8; bit++) {
            file[at] = (unsigned char)(file[at] ^ 1 << bit);
            test_write_file(path, file, size);
            if (ignis_file_list(path, NULL, 0) == 1)
                read++;
            else
                CHECK_INT(ignis_status_last(), IGNIS_ERROR_FORMAT);
            ignis_status_clear();
            file[at] = (unsigned char)(file[at] ^ 1 << bit);
        }
    }
    CHECK(read > 0); /* another name, another dtype of four bytes */
}

TEST(names_of_hostile_files_do_not_reach_the_terminal)
{
    const char *path = test_path("terminal.safetensors");
    SETUP(NULL);
    write_header(
        path, "{\"\\u001b[2Jabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\":{}}", 0);
    CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    CHECK_MESSAGE_HAS("tensor '\\x1b[2Jabc");
    CHECK_MESSAGE_HAS("...' has no field dtype");
    CHECK(strchr(test__message, 27) == NULL);
}

/*  As many tensors as fit a few megabytes, and one deep and one long string: no time or stack to speak of. */
TEST(large_headers)
{
    enum { COUNT = 20000 };
    char *header = (char *)malloc(4 << 20), *at = header;
    const char *path = test_path("large.safetensors");
    int i;
    SETUP(NULL);
    at += sprintf(at, "{");
    for (i = COUNT - 1; i >= 0; i--)
        at += sprintf(at, "\"layer.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}%s", i, i,
                      i + 1, i ? "," : "}");
    write_header(path, header, COUNT);
    CHECK_INT(ignis_file_list(path, NULL, 0), COUNT);
    memset(header, '[', 1 << 20);
    memcpy(header, "{\"a\":{\"x\":", 10);
    header[1 << 20] = 0;
    write_header(path, header, 0);
    CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    memset(header, 'a', 1 << 20);
    memcpy(header, "{\"", 2);
    write_header(path, header, 0);
    CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    free(header);
}

/* arguments ------------------------------------------------------------------------------------------------------- */

TEST(arguments_are_checked)
{
    const char *path = test_path("arguments.safetensors"), *names[] = {"a", "b"}, *null_name[] = {"a", NULL};
    ignis_tensor tensors[2], freed, none[2];
    ignis_array array;
    SETUP(NULL);
    tensors[0] = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 0);
    tensors[1] = make_tensor(IGNIS_SHAPE(3), IGNIS_F32, 1);
    freed = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 0);
    let_go(freed);
    none[0] = none[1] = no_tensor();

    CHECK_STATUS(ignis_save(NULL, names, tensors, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_save(path, NULL, tensors, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_save(path, names, NULL, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_save(path, null_name, tensors, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("names[1]");
    CHECK_STATUS(ignis_save(path, names, tensors, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_save(path, one("a"), &freed, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_STATUS(ignis_save(path, one("a"), &none[0], 1), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_STATUS(ignis_save(path, one("__metadata__"), &tensors[0], 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_STATUS(ignis_save(path, one("a\xFF"), &tensors[0], 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_MESSAGE_HAS("not well-formed UTF-8");
    names[1] = "a";
    CHECK_STATUS(ignis_save(path, names, tensors, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_MESSAGE_HAS("two tensors have the name 'a'");
    names[1] = "b";
    array = make(IGNIS_SHAPE(2), IGNIS_F32);
    freed = ignis_tensor_from_array(array, false);
    CHECK_STATUS(ignis_save(path, one("a"), &freed, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    let_go(freed);
    drop(array);
    CHECK_INT(access(path, F_OK), -1);

    CHECK_OK(ignis_save(path, names, tensors, 2));
    CHECK_STATUS(ignis_load(NULL, names, none, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_load(path, NULL, none, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_load(path, names, NULL, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_load(path, null_name, none, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_load(path, names, none, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    names[1] = "c";
    CHECK_STATUS(ignis_load(path, names, none, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_MISSING);
    CHECK_MESSAGE_HAS("has no tensor 'c'; it has 2: 'a', 'b'");
    names[1] = "b";
    CHECK_STATUS(ignis_load(path, one("a"), &freed, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    none[1] = make_tensor(IGNIS_SHAPE(1, 3), IGNIS_F32, 9);
    CHECK_STATUS(ignis_load(path, names, none, 2), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("'b' is [3] in the file, but the tensor to load it into is [1, 3]");
    CHECK_TENSOR(none[1], IGNIS_SHAPE(1, 3), IGNIS_F32, 9);
    let_go(none[1]);
    none[1] = make_tensor(IGNIS_SHAPE(3), IGNIS_I32, 9);
    CHECK_STATUS(ignis_load(path, names, none, 2), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("'b' is f32 in the file, but the tensor to load it into is i32");
    CHECK_TENSOR(none[1], IGNIS_SHAPE(3), IGNIS_I32, 9);
    let_go(none[1]);
    CHECK_INT(none[0].id, 0);
    let_go(tensors[0]);
    let_go(tensors[1]);
    CHECK_OK(ignis_shutdown());
    CHECK_STATUS(ignis_save(path, NULL, NULL, 0), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_load(path, NULL, NULL, 0), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_FAILS(ignis_file_list(path, NULL, 0), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
}

/* files ----------------------------------------------------------------------------------------------------------- */

TEST(what_cannot_be_opened_or_replaced)
{
    const char *missing = test_path("missing");
    ignis_tensor tensor, none = no_tensor();
#ifndef _WIN32
    const char *fifo = test_path("fifo");
    struct stat info;
#endif
    SETUP(NULL);
    tensor = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 0);
    CHECK_STATUS(ignis_load(missing, one("a"), &none, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("missing' cannot be opened: ");
    CHECK_STATUS(ignis_load(test_folder, one("a"), &none, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("is not a regular file");
    CHECK_STATUS(ignis_load("", one("a"), &none, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_STATUS(ignis_save(test_folder, one("a"), &tensor, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
#ifndef _WIN32
    CHECK_STATUS(ignis_save("/dev/null", one("a"), &tensor, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("it is not replaced");
    CHECK(stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode));
    REQUIRE(mkfifo(fifo, 0600) == 0);
    CHECK_STATUS(ignis_load(fifo, one("a"), &none, 1), IGNIS_ERROR_IO,
                 IGNIS_DIAG_STORAGE_IO); /* and does not wait for a writer */
    CHECK_STATUS(ignis_save(fifo, one("a"), &tensor, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    unlink(fifo);
#endif
    CHECK_STATUS(ignis_save(test_path("no_such_folder/x"), one("a"), &tensor, 1), IGNIS_ERROR_IO,
                 IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("no_such_folder/x' cannot be created: "); /* the path as it was given */
    let_go(tensor);
}

#ifndef _WIN32 /* which has no modes, owners and links of this kind */
static unsigned mode_of(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 ? (unsigned)(info.st_mode & 07777) : 0;
}

/*  What is replaced hands on its mode, its owner and the links to it. */
TEST(what_is_replaced_hands_on_its_mode_owner_and_links)
{
    static const unsigned modes[] = {0600, 0640, 0644, 0664, 0666, 0444, 0400};
    char path[300], link[300], far[300], folder[300];
    ignis_tensor tensor;
    ignis_storage_entry entry;
    struct stat info;
    mode_t mask = umask(022);
    size_t i;
    SETUP(NULL);
    tensor = make_tensor(IGNIS_SHAPE(3), IGNIS_F32, 1);
    snprintf(path, sizeof path, "%s", test_path("modes.safetensors"));
    snprintf(link, sizeof link, "%s", test_path("link.safetensors"));
    snprintf(far, sizeof far, "%s", test_path("links/far.safetensors"));
    snprintf(folder, sizeof folder, "%s", test_path("links"));
    CHECK_OK(ignis_save(path, one("x"), &tensor, 1));
    CHECK_INT(mode_of(path), 0644); /* a new one has what the mask leaves */
    for (i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK_INT(chmod(path, modes[i]), 0);
        if (geteuid() == 0)
            CHECK_INT(chown(path, 1234, 2345), 0);
        CHECK_OK(ignis_save(path, one("x"), &tensor, 1));
        CHECK_INT(mode_of(path), modes[i]);
        CHECK_INT(stat(path, &info), 0);
        CHECK_INT(info.st_uid, geteuid() == 0 ? 1234 : geteuid());
    }
    CHECK_INT(symlink("modes.safetensors", link), 0); /* links of one and of two steps, and from another folder */
    CHECK_INT(mkdir(folder, 0700), 0);
    CHECK_INT(symlink("../link.safetensors", far), 0);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_save(i ? far : link, one(i ? "far" : "near"), &tensor, 1));
        CHECK_INT(lstat(link, &info) == 0 && S_ISLNK(info.st_mode), 1);
        CHECK_INT(lstat(far, &info) == 0 && S_ISLNK(info.st_mode), 1);
        CHECK_INT(ignis_file_list(path, &entry, 1), 1);
        CHECK_TEXT(entry.name, i ? "far" : "near");
        CHECK_INT(mode_of(path), 0400);
    }
    CHECK_INT(unlink(path), 0); /* one that leads to nothing yet */
    CHECK_OK(ignis_save(far, one("new"), &tensor, 1));
    CHECK_INT(ignis_file_list(path, &entry, 1), 1);
    CHECK_INT(unlink(link), 0); /* one that leads to itself */
    CHECK_INT(symlink("link.safetensors", link), 0);
    CHECK_STATUS(ignis_save(link, one("x"), &tensor, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("link.safetensors' cannot be created");
    i = strlen(folder) - strlen("links"); /* a name as long as there may be */
    REQUIRE(i + 256 <= sizeof folder);
    memset(folder + i, 'n', 255);
    folder[i + 255] = 0;
    CHECK_OK(ignis_save(folder, one("x"), &tensor, 1));
    CHECK_OK(ignis_save(folder, one("x"), &tensor, 1));
    CHECK_INT(ignis_file_list(folder, &entry, 1), 1);
    umask(mask);
    let_go(tensor);
}
#endif

/*  A process that was killed while it saved has left its part of a file, and this one has its number: in a container it
    is always the same. */
TEST(what_a_killed_process_has_left_is_in_nobodys_way)
{
    const char *path = test_path("again.safetensors");
    char part[1024];
    ignis_tensor tensor;
    int i;
    SETUP(NULL);
    tensor = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 0);
    for (i = 1; i < 64; i++) {
        snprintf(part, sizeof part, "%s.%lu-%d.ignis-part", path, ignis__process_id(), i);
        test_write_file(part, "", 0);
    }
    CHECK_OK(ignis_save(path, one("a"), &tensor, 1));
    for (i = 1; i < 64; i++) {
        snprintf(part, sizeof part, "%s.%lu-%d.ignis-part", path, ignis__process_id(), i);
        CHECK_INT(remove(part), 0);
    }
    let_go(tensor);
}

static const char *shortened;

static int shorten(const char *name)
{
    if (strcmp(name, "cuMemcpyHtoDAsync_v2") == 0)
        CHECK(truncate(shortened, 4096) == 0);
    return fault_take(name);
}

/*  Another process shortens a file after it was opened. */
TEST(a_file_that_is_shortened_while_it_is_read)
{
    static const char *const names[] = {"a", "b"};
    ignis_tensor tensors[2], loaded[2];
    SETUP(NULL);
    shortened = test_path("shortened.safetensors");
    tensors[0] = make_tensor(IGNIS_SHAPE(100000), IGNIS_F32, 1);
    tensors[1] = make_tensor(IGNIS_SHAPE(100000), IGNIS_F32, 2);
    loaded[0] = loaded[1] = no_tensor();
    CHECK_OK(ignis_save(shortened, names, tensors, 2));
    call_hook.begin = shorten;
    CHECK_STATUS(ignis_load(shortened, names, loaded, 2), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    call_hook.begin = fault_take;
    CHECK_MESSAGE_HAS("had 800144 bytes when it was opened, and now ends before byte 800144");
    CHECK(loaded[0].id == 0 && loaded[1].id == 0);
    CHECK_STATUS(ignis_load(shortened, names, loaded, 2), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    let_go(tensors[0]);
    let_go(tensors[1]);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_disk_that_fills_up_leaves_the_old_file)
{
    const char *path = test_path("full.safetensors");
    struct rlimit limit, small;
    ignis_tensor old, wide, loaded = no_tensor();
    int files;
    NEEDS_POSIX("limits of a process");
    SETUP(NULL);
    old = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 7);
    wide = make_tensor(IGNIS_SHAPE(100000), IGNIS_F32, 8);
    CHECK_OK(ignis_save(path, one("a"), &old, 1));
    files = test_files_in(test_folder);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 65536;
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_STATUS(ignis_save(path, one("a"), &wide, 1), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_INT(test_files_in(test_folder), files);
    CHECK_TENSOR(wide, IGNIS_SHAPE(100000), IGNIS_F32, 8); /* and released */
    CHECK_OK(ignis_load(path, one("a"), &loaded, 1));
    CHECK_TENSOR(loaded, IGNIS_SHAPE(2), IGNIS_F32, 7);
    CHECK_OK(ignis_save(path, one("a"), &wide, 1));
    let_go(loaded);
    let_go(old);
    let_go(wide);
}

/*  Two threads write one path over and over: a reader always gets a whole file of one of them. */
typedef struct writer {
    const char *path;
    int first;
} writer;

static void *write_often(void *context)
{
    const writer *w = (const writer *)context;
    ignis_tensor tensor = make_tensor(IGNIS_SHAPE(3000), IGNIS_F32, w->first);
    int i;
    for (i = 0; i < 20; i++)
        CHECK_OK(ignis_save(w->path, one("a"), &tensor, 1));
    let_go(tensor);
    return NULL;
}

TEST(readers_see_whole_files)
{
    static char path[128];
    unsigned char bytes[12000];
    writer writers[2];
    pthread_t threads[2];
    ignis_tensor tensor;
    int i, first;
    SETUP(NULL);
    snprintf(path, sizeof path, "%s", test_path("shared.safetensors"));
    tensor = make_tensor(IGNIS_SHAPE(3000), IGNIS_F32, 1);
    CHECK_OK(ignis_save(path, one("a"), &tensor, 1));
    for (i = 0; i < 2; i++) {
        writers[i].path = path;
        writers[i].first = i + 1;
        pthread_create(&threads[i], NULL, write_often, &writers[i]);
    }
    for (i = 0; i < 20; i++) {
        CHECK_OK(ignis_load(path, one("a"), &tensor, 1));
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(tensor), bytes, sizeof bytes));
        first = bytes[0];
        CHECK(first == 1 || first == 2);
        CHECK_TENSOR(tensor, IGNIS_SHAPE(3000), IGNIS_F32, first);
    }
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    let_go(tensor);
}

/* the contract ---------------------------------------------------------------------------------------------------- */

static ignis_array watched[2];
static ignis_array lent_view; /* made while the array is lent */
static int copies_seen, owners_wrong;

static int watch_owner(const char *name)
{
    ignis_array_info info;
    int i;
    if (strncmp(name, "cuMemcpyDtoH", 12) != 0 && strncmp(name, "cuMemcpyHtoD", 12) != 0)
        return fault_take(name);
    copies_seen++;
    for (i = 0; i < 2; i++)
        owners_wrong += ignis_array_query(watched[i], &info) != IGNIS_OK || info.owner != IGNIS_OWNER_WNAIS;
    if (!lent_view.id)
        lent_view = ignis_array_slice(watched[0], 0, 0, 1);
    return fault_take(name);
}

TEST(arrays_belong_to_the_storage_layer_meanwhile)
{
    static const char *const names[] = {"a", "b"};
    const char *path = test_path("owner.safetensors");
    ignis_tensor tensors[2];
    uint64_t version;
    SETUP(NULL);
    tensors[0] = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 0);
    tensors[1] = make_tensor(IGNIS_SHAPE(3), IGNIS_U8, 1);
    watched[0] = ignis_tensor_data(tensors[0]);
    watched[1] = ignis_tensor_data(tensors[1]);
    copies_seen = owners_wrong = 0;
    lent_view.id = 0;
    call_hook.begin = watch_owner;
    CHECK_OK(ignis_save(path, names, tensors, 2));
    CHECK_INT(copies_seen, 2);
    version = version_of(watched[0]); /* saving only reads */
    CHECK_INT(version, 1);
    CHECK_OK(ignis_load(path, names, tensors, 2));
    CHECK_INT(version_of(watched[0]), version + 1);
    CHECK_INT(copies_seen, 4);
    call_hook.begin = fault_take;
    CHECK_INT(owners_wrong, 0);
    CHECK_OK(ignis_contract_assert_owner(watched[0], IGNIS_OWNER_IGNIS));
    CHECK_OK(ignis_contract_assert_owner(watched[1], IGNIS_OWNER_IGNIS));
    CHECK_OK(ignis_contract_assert_owner(lent_view, IGNIS_OWNER_IGNIS)); /* for nobody would give it back */
    drop(lent_view);
    CHECK_INT(ignis_contract_tracked_count(), 0);
    let_go(tensors[0]);
    let_go(tensors[1]);
}

TEST(arrays_of_other_layers_are_left_alone)
{
    static const char *const names[] = {"a", "b", "c"};
    const char *path = test_path("layers.safetensors");
    ignis_tensor tensors[3];
    ignis_array array;
    int i;
    SETUP(NULL);
    for (i = 0; i < 3; i++)
        tensors[i] = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, i);
    CHECK_OK(ignis_save(path, names, tensors, 3));
    array = ignis_tensor_data(tensors[1]);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL));
    CHECK_STATUS(ignis_save(path, names, tensors, 3), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_OWNER_DIFFERS);
    CHECK_MESSAGE_HAS("is owned by nvccl");
    CHECK_STATUS(ignis_load(path, names, tensors, 3), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_OWNER_DIFFERS);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_save(path, names, tensors, 3), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_DOUBLE_ACQUIRE);
    CHECK_STATUS(ignis_load(path, names, tensors, 3), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_DOUBLE_ACQUIRE);
    CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_WNAIS));
    for (i = 0; i < 3; i++) {
        CHECK_TENSOR(tensors[i], IGNIS_SHAPE(2), IGNIS_F32, i); /* owned by ignis again, too */
        let_go(tensors[i]);
    }
}

TEST(one_tensor_under_two_names_and_one_with_references)
{
    static const char *const names[] = {"embedding", "head"};
    const char *path = test_path("tied.safetensors");
    ignis_tensor tensors[2], loaded[2];
    SETUP(NULL);
    tensors[0] = tensors[1] = make_tensor(IGNIS_SHAPE(2, 2), IGNIS_BF16, 3);
    CHECK_OK(ignis_save(path, names, tensors, 2));
    CHECK_OK(ignis_load(path, names, tensors, 2));
    CHECK_TENSOR(tensors[0], IGNIS_SHAPE(2, 2), IGNIS_BF16, 3);
    CHECK(ignis_array_increment_ref(ignis_tensor_data(tensors[0])) > 1);
    CHECK_OK(ignis_save(path, names, tensors, 2));
    CHECK(ignis_array_decrement_ref(ignis_tensor_data(tensors[0])) > 0);
    loaded[0] = loaded[1] = no_tensor();
    CHECK_OK(ignis_load(path, names, loaded, 2));
    CHECK(loaded[0].id != loaded[1].id);
    CHECK_TENSOR(loaded[1], IGNIS_SHAPE(2, 2), IGNIS_BF16, 3);
    let_go(tensors[0]);
    let_go(loaded[0]);
    let_go(loaded[1]);
}

TEST(a_capture_refuses_files_and_goes_on)
{
    const char *path = test_path("capture.safetensors");
    ignis_tensor tensor;
    ignis_graph graph;
    SETUP(NULL);
    tensor = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 3);
    CHECK_OK(ignis_save(path, one("a"), &tensor, 1));
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_save(path, one("a"), &tensor, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_load(path, one("a"), &tensor, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_INT(ignis_file_list(path, NULL, 0), 1);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_TENSOR(tensor, IGNIS_SHAPE(2), IGNIS_F32, 3);
    let_go(tensor);
}

TEST(loaded_tensors_belong_to_the_scope)
{
    const char *path = test_path("scope.safetensors");
    ignis_tensor tensor, loaded = no_tensor();
    ignis_tensor_info info;
    ignis_scope scope;
    SETUP(NULL);
    tensor = make_tensor(IGNIS_SHAPE(2), IGNIS_F32, 3);
    CHECK_OK(ignis_save(path, one("a"), &tensor, 1));
    scope = ignis_scope_begin();
    CHECK_OK(ignis_load(path, one("a"), &loaded, 1));
    CHECK_OK(ignis_tensor_query(loaded, &info));
    CHECK(!info.requires_grad && info.is_leaf);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_STATUS(ignis_tensor_query(loaded, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(tensor);
}

/* faults ---------------------------------------------------------------------------------------------------------- */

enum { OUT_OF_MEMORY = 2, SWEEP_LIMIT = 500 };

/*  Saves and loads with something failing on the way: a whole file is there, nothing else is, and everything is given
    back. */
static ignis_status run_with_fault(const char *path, int files)
{
    static const char *const names[] = {"a", "b"};
    static const char *const others[] = {"a", "b", "a"};
    ignis_tensor tensors[2], loaded[3];
    ignis_status status;
    int i;
    tensors[0] = make_tensor(IGNIS_SHAPE(5), IGNIS_F32, 1);
    tensors[1] = make_tensor(IGNIS_SHAPE(6), IGNIS_I64, 2);
    loaded[0] = loaded[2] = no_tensor();
    loaded[1] = make_tensor(IGNIS_SHAPE(6), IGNIS_I64, 9);
    fault.at = -fault.at; /* below 0 until here: no call is that one */
    fault.seen = 0;
    status = ignis_save(path, names, tensors, 2);
    if (status == IGNIS_OK)
        status = ignis_load(path, others, loaded, 3);
    fault.at = 0;
    if (status != IGNIS_OK) {
        CHECK_INT(status, ignis_status_last());
        ignis_status_clear();
        CHECK(loaded[0].id == 0 && loaded[2].id == 0);
    }
    for (i = 0; i < 3; i++) {
        if (!loaded[i].id)
            continue;
        CHECK_OK(ignis_contract_assert_owner(ignis_tensor_data(loaded[i]), IGNIS_OWNER_IGNIS));
        let_go(loaded[i]);
    }
    CHECK_TENSOR(tensors[0], IGNIS_SHAPE(5), IGNIS_F32, 1);
    CHECK_TENSOR(tensors[1], IGNIS_SHAPE(6), IGNIS_I64, 2);
    CHECK_INT(test_files_in(test_folder), files);
    let_go(tensors[0]);
    let_go(tensors[1]);
    return status;
}

TEST(every_driver_call_fails_once)
{
    const char *path = test_path("faults.safetensors");
    int at, files = test_files_in(test_folder) + 1, failed = 0;
    for (at = 1; at < SWEEP_LIMIT; at++) {
        SETUP(NULL);
        if (at == 1)
            CHECK_OK(run_with_fault(path, files));
        fault_arm("cu", -at, OUT_OF_MEMORY);
        failed += run_with_fault(path, files) != IGNIS_OK;
        CHECK_OK(ignis_shutdown());
        CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);
        if (!fault.failed)
            break;
    }
    fault_disarm();
    CHECK(at < SWEEP_LIMIT);
    CHECK(failed > 4);
}

TEST(every_host_allocation_fails_once)
{
    const char *path = test_path("faults.safetensors");
    static const char *const names[] = {"a", "b"};
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor tensors[2], loaded[2];
    ignis_status status;
    bool hit = true;
    int at, failed = 0;
    for (at = 1; hit && at < SWEEP_LIMIT; at++) {
        SETUP(&desc);
        tensors[0] = make_tensor(IGNIS_SHAPE(5), IGNIS_F32, 1);
        tensors[1] = make_tensor(IGNIS_SHAPE(6), IGNIS_I64, 2);
        loaded[0] = loaded[1] = no_tensor();
        fault_plan(NULL, at, 0, &counter, false);
        status = ignis_save(path, names, tensors, 2);
        if (status == IGNIS_OK)
            status = ignis_load(path, names, loaded, 2);
        if (status == IGNIS_OK && ignis_file_list(path, NULL, 0) != 2)
            status = ignis_status_last();
        hit = fault_over(&counter);
        if (status != IGNIS_OK) {
            CHECK_INT(status, IGNIS_ERROR_MEMORY);
            ignis_status_clear();
            failed++;
        }
        if (loaded[0].id)
            let_go(loaded[0]), let_go(loaded[1]);
        let_go(tensors[0]);
        let_go(tensors[1]);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(counter.blocks, 0);
        CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);
    }
    CHECK(at < SWEEP_LIMIT);
    CHECK(failed > 8);
}

/*  The names up to 0.4 still compile, and mean the same. */
TEST(old_names_work_for_one_version)
{
    ignis_matmul_by matmul = IGNIS_MATMUL_OWN;
    ignis_attention_by attention = IGNIS_ATTENTION_MMA;
    ignis_compile_when compile = IGNIS_COMPILE_NEVER;
    ignis_desc desc = {0};
    ignis_matmul_backend *new_matmul = &matmul;
    ignis_attention_backend *new_attention = &attention;
    ignis_compile_policy *new_compile = &compile;
    desc.matmul = *new_matmul, desc.attention = *new_attention, desc.compile = *new_compile;
    CHECK_INT(desc.matmul, IGNIS_MATMUL_OWN);
    CHECK_INT(desc.attention, IGNIS_ATTENTION_MMA);
    CHECK_INT(desc.compile, IGNIS_COMPILE_NEVER);
    CHECK(ignis_storage_list == ignis_file_list);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
