// SPDX-License-Identifier: MIT
/*  test_npy.c - .npy files, metadata and dtypes of files: the bytes are those of NumPy 2.4 and safetensors 0.8 */
#include "fault.h"
#include "tensor.h"

enum { FILE_MAX = 1024, SWEEP_LIMIT = 200 };

static size_t read_file(const char *path, unsigned char *data)
{
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(data, 1, FILE_MAX, file) : 0;
    CHECK(file != NULL);
    if (file)
        fclose(file);
    return size;
}

/*  A file as numpy.save writes it: a header padded to 128 bytes, and the data. Returns its size. */
static size_t npy_of(unsigned char *out, int version, const char *header, const void *data, size_t size)
{
    size_t first = version == 1 ? 10 : 12;
    memset(out, ' ', 128);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version;
    out[7] = out[9] = 0;
    out[8] = (unsigned char)(128 - first);
    if (version > 1)
        out[10] = out[11] = 0;
    memcpy(out + first, header, strlen(header));
    out[127] = '\n';
    memcpy(out + 128, data, size);
    return 128 + size;
}

static void write_npy(const char *path, int version, const char *header, const void *data, size_t size)
{
    unsigned char file[FILE_MAX];
    test_write_file(path, file, npy_of(file, version, header, data, size));
}

/* --- written ----------------------------------------------------------------------------------------------------- */

TEST(the_bytes_are_those_of_numpy)
{
    static const struct {
        ignis_dtype dtype;
        const char *as, *header;
        ignis_shape shape;
        unsigned char data[24];
        size_t size;
    } cases[] = {
        {IGNIS_F32,
         NULL,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }",
         {2, {1, 3}},
         {0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40},
         12},
        {IGNIS_F64,
         NULL,
         "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
         {1, {2}},
         {0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40},
         16},
        {IGNIS_F16,
         NULL,
         "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 1), }",
         {2, {2, 1}},
         {0, 0x3C, 0, 0x40},
         4},
        {IGNIS_F16, NULL, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 12), }", {2, {0, 12}}, {0}, 0},
        {IGNIS_I32, NULL, "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", {1, {1}}, {1, 0, 0, 0}, 4},
        {IGNIS_I64,
         NULL,
         "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1), }",
         {8, {1, 1, 1, 1, 1, 1, 1, 1}},
         {1, 0, 0, 0, 0, 0, 0, 0},
         8},
        {IGNIS_U8, NULL, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", {1, {3}}, {1, 2, 3}, 3},
        {IGNIS_U8, "BOOL", "{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", {1, {1}}, {1}, 1},
        {IGNIS_I32, "I8", "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }", {1, {3}}, {1, 2, 3}, 3},
        {IGNIS_I32, "U16", "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", {1, {2}}, {1, 0, 2, 0}, 4},
        {IGNIS_I64,
         "U32",
         "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }",
         {1, {2}},
         {1, 0, 0, 0, 2, 0, 0, 0},
         8},
    };
    const char *path = test_path("written.npy");
    unsigned char expected[FILE_MAX], got[FILE_MAX];
    size_t size;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor tensor = tensor_counting(cases[i].shape, cases[i].dtype, 1, false), again;
        size = npy_of(expected, 1, cases[i].header, cases[i].data, cases[i].size);
        CHECK_OK(ignis_npy_save(path, tensor, cases[i].as));
        CHECK_INT(read_file(path, got), size);
        CHECK(memcmp(got, expected, size) == 0);
        again = ignis_npy_load(path, NULL);
        CHECK_SHAPE_IS(again, cases[i].shape);
        CHECK_INT(tensor_info(again).dtype, cases[i].dtype);
        if (cases[i].size)
            CHECK_NUMBER(value_at(again, numel_of(again) - 1), (double)numel_of(again));
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(dtypes_of_files_hold_their_values_or_say_no)
{
    static const struct {
        const char *name;
        ignis_dtype dtype;
        double least, most;
    } cases[] = {{"BOOL", IGNIS_U8, 0, 1},
                 {"I8", IGNIS_I32, -128, 127},
                 {"I16", IGNIS_I32, -32768, 32767},
                 {"U16", IGNIS_I32, 0, 65535},
                 {"U32", IGNIS_I64, 0, 4294967295.0}};
    static const char *const names[] = {"x", "y"};
    char path[256], npy_path[256];
    char word[64];
    int i, k;
    snprintf(path, sizeof path, "%s", test_path("narrow.safetensors"));
    snprintf(npy_path, sizeof npy_path, "%s", test_path("narrow.npy"));
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        const double ends[] = {cases[i].least, cases[i].most, 1};
        const char *dtypes[] = {cases[i].name, NULL};
        ignis_save_desc desc = {NULL, 0, dtypes};
        ignis_tensor saved[2], loaded[2] = {{0}, {0}}, npy;
        ignis_storage_entry entries[2];
        saved[0] = tensor_of(ends, IGNIS_SHAPE(3), cases[i].dtype, false);
        saved[1] = tensor_of(ends, IGNIS_SHAPE(3), IGNIS_F64, false);
        CHECK_OK(ignis_save_with(path, names, saved, 2, &desc));
        CHECK_INT(ignis_file_list(path, entries, 2), 2);
        CHECK_INT(entries[0].bytes + entries[1].bytes, 24 + 3 * (i == 0 || i == 1 ? 1 : i == 4 ? 4 : 2));
        CHECK_OK(ignis_load(path, names, loaded, 2));
        CHECK_OK(ignis_npy_save(npy_path, saved[0], cases[i].name));
        npy = ignis_npy_load(npy_path, NULL);
        CHECK_INT(tensor_info(loaded[0]).dtype, cases[i].dtype);
        for (k = 0; k < 3; k++) {
            CHECK_NUMBER(value_at(loaded[0], k), ends[k]);
            CHECK_NUMBER(value_at(npy, k), ends[k]);
        }
        for (k = 0; k < 2; k++) { /* one beyond each end; u8 has no -1 */
            const double beyond = k ? cases[i].most + 1 : cases[i].least - 1;
            if (beyond < 0 && cases[i].dtype == IGNIS_U8)
                continue;
            saved[0] = tensor_of(&beyond, IGNIS_SHAPE(1), cases[i].dtype, false);
            CHECK_STATUS(ignis_save_with(path, names, saved, 2, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
            sprintf(word, "tensor 'x' has the value %.0f, which %s does not hold", beyond, cases[i].name);
            CHECK_MESSAGE_HAS(word);
        }
        CHECK_INT(ignis_file_list(path, entries, 2), 2); /* the old file is there */
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* --- read -------------------------------------------------------------------------------------------------------- */

TEST(files_of_numpy_are_read)
{
    static const struct {
        int version;
        const char *header;
        unsigned char data[32];
        size_t size;
        ignis_dtype dtype;
        ignis_shape shape;
        double values[8];
    } cases[] = {
        {2,
         "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }",
         {0, 0, 0, 0, 0, 0, 0xF8, 0x3F},
         8,
         IGNIS_F64,
         {1, {1}},
         {1.5}},
        {3,
         "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }",
         {0, 0, 0, 0, 0, 0, 0xF8, 0x3F},
         8,
         IGNIS_F64,
         {1, {1}},
         {1.5}},
        {1,
         "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }",
         {0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0xFF, 0xFB},
         12,
         IGNIS_I32,
         {2, {2, 3}},
         {0, 1, 2, 3, 4, -5}},
        {1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", {7}, 8, IGNIS_I64, {1, {1}}, {7}},
        {1,
         "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
         {0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0xC0},
         16,
         IGNIS_F32,
         {2, {2, 2}},
         {1, 2, 3, -4}},
        {1,
         "{'descr': '>c8', 'fortran_order': True, 'shape': (2, 1), }",
         {0x3F, 0x80, 0, 0, 0x40, 0, 0, 0, 0x40, 0x40, 0, 0, 0xC0, 0x80, 0, 0},
         16,
         IGNIS_F32,
         {3, {2, 1, 2}},
         {1, 2, 3, -4}},
        {1,
         "{'descr': '<c16', 'fortran_order': False, 'shape': (), }",
         {0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40},
         16,
         IGNIS_F64,
         {1, {2}},
         {1, 2}},
        {1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", {1, 0}, 2, IGNIS_U8, {1, {2}}, {1, 0}},
        {1,
         "{'descr': '|i1', 'fortran_order': True, 'shape': (2, 1, 2), }",
         {1, 0xFE, 3, 0x80},
         4,
         IGNIS_I32,
         {3, {2, 1, 2}},
         {1, 3, -2, -128}},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 12), }", {0}, 0, IGNIS_F16, {2, {0, 12}}, {0}},
        {1,
         "{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }",
         {0xFF, 0xFF, 0xFF, 0xFF},
         4,
         IGNIS_I64,
         {1, {1}},
         {4294967295.0}},
        /* Python 2, other quotes, other orders, spaces, and a second array behind the first */
        {1,
         " { \"shape\" : ( 2L , 1 ) , 'fortran_order':False\n, \"descr\":'|u1' }",
         {5, 6, 0x93, 'N'},
         4,
         IGNIS_U8,
         {2, {2, 1}},
         {5, 6}},
    };
    const char *path = test_path("read.npy");
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor tensor;
        write_npy(path, cases[i].version, cases[i].header, cases[i].data, cases[i].size);
        tensor = ignis_npy_load(path, NULL);
        CHECK_SHAPE_IS(tensor, cases[i].shape);
        CHECK_INT(tensor_info(tensor).dtype, cases[i].dtype);
        for (k = 0; k < numel_of(tensor); k++)
            CHECK_NUMBER(value_at(tensor, k), cases[i].values[k]);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(options_of_a_load)
{
    static const unsigned char data[] = {1, 0, 2, 0};
    const char *path = test_path("options.npy");
    ignis_tensor_desc desc = tensor_desc(IGNIS_F64, true);
    ignis_scope scope;
    ignis_tensor tensor;
    SETUP(NULL);
    scope = ignis_scope_begin();
    write_npy(path, 1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }", data, 4);
    tensor = ignis_npy_load(path, &desc);
    CHECK_INT(tensor_info(tensor).dtype, IGNIS_F64);
    CHECK(tensor_info(tensor).requires_grad && tensor_info(tensor).is_leaf);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(tensor, tensor)), IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(tensor, 1), 4);
    desc.dtype = IGNIS_DTYPE_DEFAULT;
    CHECK_FAILS(ignis_npy_load(path, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
    desc = tensor_desc((ignis_dtype)99, false);
    CHECK_FAILS(ignis_npy_load(path, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc = tensor_desc(IGNIS_DTYPE_DEFAULT, false);
    desc.tag = "angles";
    if (ignis_device_count() > 1)
        desc.device = 1;
    tensor = ignis_npy_load(path, &desc);
    CHECK_INT(tensor_info(tensor).device, desc.device);
    CHECK_TEXT(info_of(ignis_tensor_data(tensor)).tag, "angles");
    CHECK_OK(ignis_scope_end(scope));
}

TEST(what_cannot_be_read_is_named)
{
    static const struct {
        const char *header, *message;
        ignis_status status;
        ignis_diagnostic code;
    } cases[] = {
#define DESCR(d) "{'descr': '" d "', 'fortran_order': False, 'shape': (1,), }"
#define SHAPED(s) "{'descr': '<f4', 'fortran_order': False, 'shape': " s ", }"
#define UNSUPPORTED IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED
#define FORMAT IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT
        {DESCR("<u8"), "its dtype is '<u8': unsigned integers of 64 bits, which are not supported", UNSUPPORTED},
        {DESCR("<f16"), "'<f16': floating numbers of another width", UNSUPPORTED},
        {DESCR("<c32"), "'<c32': complex numbers of another width", UNSUPPORTED},
        {DESCR("|V2"), "'|V2': raw bytes; bfloat16 is saved so: convert it to float32", UNSUPPORTED},
        {DESCR("|O"), "'|O': Python objects", UNSUPPORTED},
        {DESCR("<U5"), "'<U5': text", UNSUPPORTED},
        {DESCR("<M8[ns]"), "'<M8[ns]': dates", UNSUPPORTED},
        {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", "its elements have fields", UNSUPPORTED},
        {SHAPED("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "it has more than 8 dimensions", IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_RANK},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 0), }",
         "it has more than 8 dimensions, with that of complex numbers", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK},
        {DESCR("<q8"), "its dtype is '<q8', which is unknown", FORMAT},
        {DESCR(""), "its dtype is '', which is unknown", FORMAT},
        {SHAPED("(3,)"), "F32 of shape [3] has 12 bytes, but 8 are left of the file: it is truncated", FORMAT},
        {SHAPED("(4611686018427387904, 2)"), "has more bytes than 63 bits can count", FORMAT},
        {SHAPED("(99999999999999999999,)"), "a size of its shape does not fit 63 bits", FORMAT},
        {SHAPED("(1)"), "the comma of a shape of one size is missing", FORMAT},
        {SHAPED("(-1,)"), "a size is missing", FORMAT},
        {SHAPED("(1 2)"), "a comma is missing", FORMAT},
        {SHAPED("[1]"), "the ( of a shape is missing", FORMAT},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "True or False is missing", FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, }", "the key 'shape' is missing", FORMAT},
        {"{'descr': '<f4', 'descr': '<f4', }", "the key 'descr' comes twice", FORMAT},
        {"{'descr': '<f4', 'offset': 0, }", "the key 'offset' is unknown", FORMAT},
        {"{'descr': '<f4' 'shape': (1,), }", "a comma or } is missing", FORMAT},
        {"{'descr' '<f4', }", "a colon is missing", FORMAT},
        {"{'de\\scr': '<f4', }", "a string of plain ASCII is missing", FORMAT},
        {"['descr']", "at byte 0 of the header, the { of a dictionary is missing", FORMAT},
        {"{'descr", "a string of plain ASCII is missing", FORMAT}, /* the end of the line */
        {SHAPED("(1,)") " x", "something follows the dictionary of the header", FORMAT},
    };
    const char *path = test_path("refused.npy");
    unsigned char file[FILE_MAX];
    size_t size, cut;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        write_npy(path, 1, cases[i].header, "12345678", 8);
        CHECK_FAILS(ignis_npy_load(path, NULL), cases[i].status, cases[i].code);
        CHECK_MESSAGE_HAS(cases[i].message);
    }
    size = npy_of(file, 2, SHAPED("(2,)"), "12345678", 8);
    for (cut = 0; cut < size; cut++) { /* a file that ends anywhere */
        test_write_file(path, file, cut);
        CHECK_FAILS(ignis_npy_load(path, NULL), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    }
    file[6] = 4;
    test_write_file(path, file, size);
    CHECK_FAILS(ignis_npy_load(path, NULL), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    CHECK_MESSAGE_HAS("its version is 4.0; expected 1.0, 2.0 or 3.0");
    file[6] = 2, file[10] = 1;
    test_write_file(path, file, size);
    CHECK_FAILS(ignis_npy_load(path, NULL), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    CHECK_MESSAGE_HAS("the length of its header is 0, or above 65535");
    CHECK_FAILS(ignis_npy_load(test_path("nowhere.npy"), NULL), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_FAILS(ignis_npy_load(test_folder, NULL), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_FAILS(ignis_npy_load(NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
}

TEST(what_cannot_be_written_is_named)
{
    const char *path = test_path("unwritten.npy");
    ignis_tensor_desc half = tensor_desc(IGNIS_BF16, false);
    ignis_scope scope;
    ignis_tensor bf16, f32;
    int files;
    SETUP(NULL);
    scope = ignis_scope_begin();
    bf16 = ignis_tensor_zeros(IGNIS_SHAPE(2), &half);
    f32 = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    files = test_files_in(test_folder);
    CHECK_STATUS(ignis_npy_save(path, bf16, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the tensor is bf16, a dtype that .npy files do not have; ignis_cast it to f32");
    CHECK_STATUS(ignis_npy_save(path, f32, "I8"), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("a tensor of f32 cannot be written as I8; expected i32");
    CHECK_STATUS(ignis_npy_save(path, f32, "U64"), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("cannot be written as U64, which Ignis does not support");
    CHECK_STATUS(ignis_npy_save(path, f32, "float"), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("the file's dtype is 'float'; expected BOOL, I8, I16, U16, U32");
    CHECK_STATUS(ignis_npy_save(NULL, f32, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_npy_save(test_path("no/folder.npy"), f32, NULL), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_INT(test_files_in(test_folder), files);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_STATUS(ignis_npy_save(path, f32, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

/* --- metadata, and parameters of files --------------------------------------------------------------------------- */

TEST(metadata_comes_back)
{
    static const ignis_metadata metadata[] = {{"format", "pt"}, {"", ""}, {"\"\n", "\xC3\xA9\xE2\x82\xAC"}};
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\",\"\\\"\\n\":\"\xC3\xA9\xE2\x82\xAC\"},"
                                 "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    static const char *const names[] = {"x"};
    const char *path = test_path("metadata.safetensors");
    ignis_save_desc desc = {metadata, 3, NULL};
    ignis_tensor x;
    unsigned char file[FILE_MAX];
    char text[64];
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(1), IGNIS_U8, 1, false);
    CHECK_OK(ignis_save_with(path, names, &x, 1, &desc));
    CHECK_INT(read_file(path, file), 8 + (sizeof header + 6) / 8 * 8 + 1);
    CHECK(memcmp(file + 8, header, sizeof header - 1) == 0);
    CHECK_INT(ignis_file_metadata(path, "format", text, sizeof text), 2);
    CHECK_TEXT(text, "pt");
    CHECK_INT(ignis_file_metadata(path, "", text, sizeof text), 0);
    CHECK_TEXT(text, "");
    CHECK_INT(ignis_file_metadata(path, "\"\n", NULL, 0), 5);
    CHECK_INT(ignis_file_metadata(path, "\"\n", text, 5), 5);
    CHECK_TEXT(text, "\xC3\xA9"); /* cut at a whole character */
    CHECK_INT(ignis_file_metadata(path, NULL, text, sizeof text), 36);
    CHECK_TEXT(text, "{\"format\":\"pt\",\"\":\"\",\"\\\"\\n\":\"\xC3\xA9\xE2\x82\xAC\"}");
    CHECK_REFUSED(-1, ignis_file_metadata(path, "kind", text, sizeof text), IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_STORAGE_MISSING);
    CHECK_MESSAGE_HAS("has no metadata 'kind'; it has 3: 'format', ''");
    CHECK_REFUSED(-1, ignis_file_metadata(NULL, "kind", text, sizeof text), IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_save_with(path, names, &x, 1, NULL)); /* as ignis_save */
    CHECK_INT(ignis_file_metadata(path, NULL, text, sizeof text), 2);
    CHECK_TEXT(text, "{}");
    let_go(x);
}

TEST(metadata_is_checked)
{
    static const ignis_metadata twice[] = {{"a", "1"}, {"a", "2"}}, null[] = {{"a", NULL}}, bad[] = {{"\x80", "1"}};
    const char *path = test_path("unwritten.safetensors");
    ignis_save_desc desc = {twice, 2, NULL};
    SETUP(NULL);
    CHECK_STATUS(ignis_save_with(path, NULL, NULL, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_MESSAGE_HAS("desc.metadata has the key 'a' twice");
    desc.metadata = null, desc.metadata_count = 1;
    CHECK_STATUS(ignis_save_with(path, NULL, NULL, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("desc.metadata[0].value is null");
    desc.metadata = bad;
    CHECK_STATUS(ignis_save_with(path, NULL, NULL, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STORAGE_NAME);
    CHECK_MESSAGE_HAS("desc.metadata[0].key is not well-formed UTF-8");
    desc.metadata = NULL;
    CHECK_STATUS(ignis_save_with(path, NULL, NULL, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.metadata_count = -1;
    CHECK_STATUS(ignis_save_with(path, NULL, NULL, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
}

TEST(loaded_tensors_become_parameters)
{
    static const char *const names[] = {"w", "ids", "given"};
    const char *path = test_path("trainable.safetensors");
    ignis_tensor saved[3], loaded[3] = {{0}, {0}, {0}};
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    saved[0] = tensor_counting(IGNIS_SHAPE(2), IGNIS_F16, 1, false);
    saved[1] = tensor_counting(IGNIS_SHAPE(2), IGNIS_I64, 1, false);
    saved[2] = loaded[2] = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    CHECK_OK(ignis_save(path, names, saved, 3));
    CHECK_OK(ignis_load_trainable(path, names, loaded, 3));
    CHECK(tensor_info(loaded[0]).requires_grad && tensor_info(loaded[0]).is_leaf);
    CHECK(!tensor_info(loaded[1]).requires_grad);
    CHECK(!tensor_info(loaded[2]).requires_grad);
    CHECK_STATUS(ignis_load_trainable(NULL, names, loaded, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_HAS(test__message, "ignis_load_trainable");
    CHECK_OK(ignis_scope_end(scope));
}

/* --- failures ---------------------------------------------------------------------------------------------------- */

/*  Writes and reads once, in Fortran order and with a cast, with metadata. Returns the first failure. */
static ignis_status run_once(ignis_tensor tensor)
{
    static const ignis_metadata metadata[] = {{"k", "v"}};
    static const char *const names[] = {"x"}, *const dtypes[] = {"I16"};
    const ignis_save_desc options = {metadata, 1, dtypes};
    const ignis_tensor_desc desc = tensor_desc(IGNIS_F64, true);
    ignis_tensor loaded;
    ignis_status status = ignis_npy_save(test_path("fault.npy"), tensor, NULL);
    if (status == IGNIS_OK)
        status = ignis_save_with(test_path("fault.safetensors"), names, &tensor, 1, &options);
    if (status == IGNIS_OK && ignis_file_metadata(test_path("fault.safetensors"), "k", NULL, 0) != 1)
        status = ignis_status_last();
    if (status == IGNIS_OK) {
        loaded = ignis_npy_load(test_path("fortran.npy"), &desc);
        status = loaded.id ? IGNIS_OK : ignis_status_last();
        if (loaded.id)
            let_go(loaded);
    }
    if (status != IGNIS_OK) {
        CHECK_INT(status, IGNIS_ERROR_MEMORY);
        ignis_status_clear();
    }
    return status;
}

TEST(every_allocation_fails_once)
{
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    bool hit = true;
    int at, failed = 0, files = 0;
    write_npy(test_path("fortran.npy"), 1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", "abcdefghijkl",
              12);
    for (at = 0; (at == 0 || hit) && at < SWEEP_LIMIT; at++) {
        ignis_tensor tensor;
        SETUP(&desc);
        tensor = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 1, false);
        if (at)
            fault_plan(NULL, at, 0, &counter, false);
        failed += run_once(tensor) != IGNIS_OK;
        hit = at ? fault_over(&counter) : true;
        files = at ? files : test_files_in(test_folder);
        CHECK_INT(test_files_in(test_folder), files);
        let_go(tensor);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(counter.blocks, 0);
        CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);
    }
    CHECK(at < SWEEP_LIMIT);
    CHECK(failed > 8);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
