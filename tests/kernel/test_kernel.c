// SPDX-License-Identifier: MIT
/*  test_kernel.c - the user's own kernels: compiling, arguments, launches, and what happens when a kernel faults */
#include "array.h"
#include "empty.h"

#include "processes.h"

static const char iota_source[] = "extern \"C\" __global__ void iota(int *out, int first, int n)\n"
                                  "{\n"
                                  "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                  "    if (i < n) out[i] = first + i;\n"
                                  "}\n";

static ignis_status run_iota(ignis_kernel kernel, ignis_array out, int first)
{
    int n = (int)ignis_array_numel(out);
    ignis_launch launch = test_launch((n + 63) / 64, 64);
    ignis_arg args[3];
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_i32(first);
    args[2] = ignis_arg_i32(n);
    return ignis_kernel_launch(kernel, &launch, args, 3);
}

/* compiling ----------------------------------------------------------------------------------------------------- */

TEST(a_kernel_runs)
{
    ignis_kernel kernel;
    ignis_array out;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    REQUIRE(kernel.id != 0);
    out = make(IGNIS_SHAPE(1000), IGNIS_I32); /* its first use: the launch allocates it, and it counts as written */
    CHECK_OK(run_iota(kernel, out, 7));
    CHECK_COUNTING(out, 1000, 7);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out);
}

TEST(compile_errors_name_file_and_line)
{
    ignis_kernel_desc desc;
    ignis_status_info info;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.source = "__global__ void broken(float *x)\n{\n    x[0] = undeclared_name;\n}\n";
    desc.entry = "broken";
    desc.name = "my_program.cu";
    CHECK_INT(ignis_kernel_compile(&desc).id, 0);
    CHECK_INT(ignis_status_query(&info), IGNIS_ERROR_COMPILE);
    CHECK(strstr(info.log, "my_program.cu(3)") || strstr(info.log, "my_program.cu:3"));
    CHECK_HAS(info.log, "undeclared_name");
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("my_program.cu");
    CHECK_MESSAGE_HAS("undeclared_name");
    desc.name = NULL;
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("kernel.cu");
}

TEST(a_missing_entry_is_named)
{
    SETUP(NULL);
    CHECK_INT(test_compile("__global__ void here(int *x) { x[0] = 1; }\n", "not_here", NULL).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_COMPILE);
    CHECK_HAS(ignis_status_message(), "not_here");
    ignis_status_clear();
}

/*  What is no kernel is refused, and a mistake is told once, at its place, without a word about the simulator's own
    text. */
TEST(errors_of_signatures_and_entries)
{
    static const struct {
        const char *source, *entry, *part;
        ignis_diagnostic diagnostic;
    } cases[] = {
        {"extern \"C\" void f(float *x) { x[0] = 1; }\n", "f", "f", IGNIS_DIAG_ENTRY_MISSING},
        {"void f(float *x) { x[0] = 1; }\n", "f", "f", IGNIS_DIAG_ENTRY_MISSING},
        {"__device__ void f(float *x) { x[0] = 1; }\n", "f", "f", IGNIS_DIAG_ENTRY_MISSING},
        {"template <class T> __device__ void f(T *x) { x[0] = 1; }\n", "f<float>", "f<float>",
         IGNIS_DIAG_ENTRY_MISSING},
        {"namespace a { __device__ int f(int x) { return x; } }\n", "a::f", "a::f", IGNIS_DIAG_ENTRY_MISSING},
        {"__global__ void here(int *x) { x[0] = 1; }\n", "not_here", "not_here", IGNIS_DIAG_ENTRY_MISSING},
        {"__global__ void here(int *x) { x[0] = 1; }\n", "here; nowhere", "nowhere", IGNIS_DIAG_ENTRY_MISSING},
        {"struct f {};\n", "f", "f", IGNIS_DIAG_ENTRY_MISSING},
        {"\nextern \"C\" __global__ void f(flaot *x) { x[0] = 1; }\n", "f",
         "kernel.cu(2): error:", IGNIS_DIAG_COMPILE_FAILED},
        {"\n__global__ void f(flaot *x) { x[0] = 1; }\n", "f", "flaot", IGNIS_DIAG_COMPILE_FAILED},
        {"\n__global__ void f(int n, flaot *x, int m) { x[0] = 1; }\n", "f", "flaot", IGNIS_DIAG_COMPILE_FAILED},
        {"\ntemplate <class T> __global__ void f(T *x, flaot y) { x[0] = 1; }\n", "f<float>", "flaot",
         IGNIS_DIAG_COMPILE_FAILED},
        {"\n__global__ int f(int *x) { return x[0]; }\n", "f", "must have a void return type",
         IGNIS_DIAG_COMPILE_FAILED},
        {"\n__global__ void f(int *x) { x[0] = y; }\n", "f", "kernel.cu(2): error:", IGNIS_DIAG_COMPILE_FAILED},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        const char *message, *at;
        ignis_status_info info;
        int errors = 0;
        CHECK_INT(test_compile(cases[i].source, cases[i].entry, NULL).id, 0);
        message = ignis_status_message();
        for (at = message; (at = strstr(at, "error: ")) != NULL; at++)
            errors++;
        if (strstr(message, "shim") || strstr(message, "SIM_") || (test_is_simulator() && errors != 1))
            test__fail(__FILE__, __LINE__, message);
        ignis_status_query(&info);
        CHECK_INT(info.diagnostic, cases[i].diagnostic);
        CHECK_HAS(message, cases[i].part);
        ignis_status_clear();
    }
}

TEST(a_byte_order_mark_is_skipped)
{
    ignis_kernel kernel;
    SETUP(NULL);
    kernel = test_compile("\xEF\xBB\xBF"
                          "extern \"C\" __global__ void f(int *x) { x[0] = 1; }\n",
                          "f", NULL);
    CHECK(kernel.id != 0);
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(compile_refuses_bad_descs)
{
    ignis_kernel_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    CHECK_FAILS(ignis_kernel_compile(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.entry = "iota";
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.entry = NULL;
    desc.source = iota_source;
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.entry = "iota";
    desc.option_count = 1;
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.option_count = -1;
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
}

/*  What cannot be found is named, with what there is instead. */
TEST(a_missing_include_says_what_can_be_included)
{
    static const char *const path = "-I/nowhere";
    ignis_kernel_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.source = "#include <cuda_fp16.h>\nextern \"C\" __global__ void f(float *x) { x[0] = 1; }\n";
    desc.entry = "f";
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("kernel.cu includes \"cuda_fp16.h\", which is not found");
    CHECK_MESSAGE_HAS("There is no include path");
    CHECK_MESSAGE_HAS("desc.headers");
    CHECK_MESSAGE_HAS("\"ignis.cuh\" is always there");
    CHECK_MESSAGE_HAS("kernel.cu(1)"); /* the compiler's own words follow */
    desc.options = &path;
    desc.option_count = 1;
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("in no folder that desc.options name");
}

TEST(compile_refuses_bad_headers)
{
    ignis_kernel_header headers[2] = {{"a.h", "\n"}, {"b.h", "\n"}};
    ignis_kernel_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.source = iota_source;
    desc.entry = "iota";
    desc.header_count = 2;
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.headers = headers;
    desc.header_count = -1;
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.header_count = 2;
    headers[1].text = NULL;
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("desc.headers[1].text");
    headers[1].text = "\n";
    headers[1].name = "a.h";
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_KERNEL_HEADER);
    headers[1].name = "ignis.cuh";
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_KERNEL_HEADER);
    CHECK_MESSAGE_HAS("desc.headers[1].name is \"ignis.cuh\"");
}

TEST(errors_in_a_header_in_memory_name_it)
{
    ignis_kernel_header header = {"parts/broken.h",
                                  "#pragma once\n__device__ inline int broken() { return undeclared_name; }\n"};
    ignis_kernel_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.source = "#include \"parts/broken.h\"\nextern \"C\" __global__ void f(int *x) { x[0] = broken(); }\n";
    desc.entry = "f";
    desc.headers = &header;
    desc.header_count = 1;
    CHECK_REFUSED(0, ignis_kernel_compile(&desc).id, IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("parts/broken.h(2)");
}

TEST(templates_and_namespaces_as_entries)
{
    static const char source[] =
        "namespace outer { namespace inner {\n"
        "template <typename T, int N> __global__ void put(T *out, T value)\n"
        "{\n"
        "    for (int i = 0; i < N; i++) out[i] = value;\n"
        "}\n"
        "__global__ void plain(double *out, double value) { out[0] = value; out[1] = value + 1; }\n"
        "} }\n";
    ignis_kernel floats, shorts, plain;
    ignis_launch one = test_launch(1, 1);
    ignis_array f, d;
    float values[4];
    double pair[2];
    ignis_arg args[2];
    SETUP(NULL);
    floats = test_compile(source, "outer::inner::put<float, 4>", NULL);
    shorts = test_compile(source, "outer::inner::put<double, 2>", NULL);
    plain = test_compile(source, "outer::inner::plain", NULL);
    REQUIRE(floats.id && shorts.id && plain.id);
    f = make(IGNIS_SHAPE(4), IGNIS_F32);
    d = make(IGNIS_SHAPE(2), IGNIS_F64);
    args[0] = ignis_arg_array(f);
    args[1] = ignis_arg_f32(2.5f);
    CHECK_OK(ignis_kernel_launch(floats, &one, args, 2));
    CHECK_OK(ignis_array_to_host(f, values, IGNIS_F32, 4));
    CHECK(values[0] == 2.5f && values[3] == 2.5f);
    args[0] = ignis_arg_array(d);
    args[1] = ignis_arg_f64(0.1);
    CHECK_OK(ignis_kernel_launch(shorts, &one, args, 2));
    CHECK_OK(ignis_array_to_host(d, pair, IGNIS_F64, 2));
    CHECK(pair[0] == 0.1 && pair[1] == 0.1);
    CHECK_OK(ignis_kernel_launch(plain, &one, args, 2));
    CHECK_OK(ignis_array_to_host(d, pair, IGNIS_F64, 2));
    CHECK(pair[0] == 0.1 && pair[1] == 1.1);
    CHECK_OK(ignis_kernel_free(floats));
    CHECK_OK(ignis_kernel_free(shorts));
    CHECK_OK(ignis_kernel_free(plain));
    drop(f), drop(d);
}

TEST(options_reach_the_compiler)
{
    const char *const four[] = {"-DN=4", "-DOFFSET=100"}, *const five[] = {"-DN=5", "-DOFFSET=0"};
    const char *const *both[] = {four, five};
    int pass;
    SETUP(NULL);
    for (pass = 0; pass < 2; pass++) {
        ignis_array out = make(IGNIS_SHAPE(pass ? 5 : 4), IGNIS_I32);
        ignis_launch one = test_launch(1, 1);
        ignis_arg arg = ignis_arg_array(out);
        ignis_kernel_desc desc;
        ignis_kernel kernel;
        memset(&desc, 0, sizeof desc);
        desc.source = "extern \"C\" __global__ void f(int *out) { for (int i = 0; i < N; i++) out[i] = OFFSET + i; }\n";
        desc.entry = "f";
        desc.options = both[pass];
        desc.option_count = 2;
        kernel = ignis_kernel_compile(&desc);
        CHECK_OK(ignis_kernel_launch(kernel, &one, &arg, 1));
        CHECK_COUNTING(out, pass ? 5 : 4, pass ? 0 : 100);
        CHECK_OK(ignis_kernel_free(kernel));
        drop(out);
    }
}

TEST(the_desc_may_go_after_compiling)
{
    char source[sizeof iota_source + 32], entry[] = "iota", option[] = "-DSTEP=3", name[] = "offset.h",
                                          text[] = "#define OFFSET (STEP - 3)\n";
    const char *options[1];
    ignis_kernel_header header;
    ignis_kernel_desc desc;
    ignis_kernel kernel;
    ignis_kernel_info info;
    ignis_array out;
    int device;
    SETUP(NULL);
    snprintf(source, sizeof source, "#include <offset.h>\n%s", iota_source);
    memcpy(strstr(source, "first + i"), "OFFSET +i", 9);
    memset(&desc, 0, sizeof desc);
    desc.source = source;
    desc.entry = entry;
    desc.options = options;
    desc.option_count = 1;
    desc.headers = &header;
    desc.header_count = 1;
    options[0] = option;
    header.name = name;
    header.text = text;
    kernel = ignis_kernel_compile(&desc);
    memset(source, 'x', sizeof source - 1);
    memset(entry, 'x', sizeof entry - 1);
    memset(option, 'x', sizeof option - 1);
    memset(name, 'x', sizeof name - 1);
    memset(text, 'x', sizeof text - 1);
    memset(&header, 0, sizeof header);
    options[0] = NULL;
    for (device = 0; device < (ignis_device_count() > 1 ? 2 : 1);
         device++) { /* on another one it may be compiled again */
        CHECK_OK(ignis_device_use(device));
        out = make(IGNIS_SHAPE(10), IGNIS_I32);
        CHECK_OK(run_iota(kernel, out, 7));
        CHECK_COUNTING(out, 10, 0);
        drop(out);
    }
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_TEXT(info.entry, "iota");
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(ignis_cuh_can_be_included)
{
    static const char source[] = "#include \"ignis.cuh\"\n"
                                 "extern \"C\" __global__ void halves(ignis_bf16 *out, const float *x, int64_t n)\n"
                                 "{\n"
                                 "    int64_t i = threadIdx.x;\n"
                                 "    float sum = ignis_block_sum(i < n ? x[i] : 0.0f);\n"
                                 "    if (i < n) out[i] = ignis_convert<ignis_bf16>(x[i] / sum);\n"
                                 "}\n";
    ignis_kernel kernel;
    ignis_array x, out;
    ignis_launch launch = test_launch(1, 64);
    ignis_arg args[3];
    float values[40];
    int i;
    SETUP(NULL);
    kernel = test_compile(source, "halves", NULL);
    REQUIRE(kernel.id != 0);
    x = make(IGNIS_SHAPE(40), IGNIS_F32);
    out = make(IGNIS_SHAPE(40), IGNIS_BF16);
    for (i = 0; i < 40; i++)
        values[i] = i < 8 ? 1.0f : 0.25f; /* the sum is 16 */
    CHECK_OK(ignis_array_from_host(x, values, IGNIS_F32, 40));
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_array(x);
    args[2] = ignis_arg_i64(40);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 3));
    CHECK_OK(ignis_array_to_host(out, values, IGNIS_F32, 40));
    CHECK(values[0] == 0.0625f && values[7] == 0.0625f && values[8] == 0.015625f && values[39] == 0.015625f);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(x), drop(out);
}

/* arguments ----------------------------------------------------------------------------------------------------- */

typedef struct vec3 {
    float x, y, z;
} vec3;

static const char all_types_source[] = "struct vec3 { float x, y, z; };\n"
                                       "extern \"C\" __global__ void all_types(double *out, int i, long long l, float "
                                       "f, double d, const float *p, vec3 v, unsigned char c)\n"
                                       "{\n"
                                       "    out[0] = i; out[1] = (double)l; out[2] = f; out[3] = d; out[4] = p[1]; "
                                       "out[5] = v.x; out[6] = v.y; out[7] = v.z; out[8] = c;\n"
                                       "}\n";

TEST(arguments_of_every_type)
{
    static const double expected[9] = {-3, 1099511627776.0, 0.5, 0.1, 22, 1, 2, 3, 200};
    const float two[2] = {11, 22};
    const unsigned char c = 200;
    ignis_kernel kernel;
    ignis_launch one = test_launch(1, 1);
    ignis_array out, in;
    ignis_arg args[8];
    double values[9];
    vec3 v = {1, 2, 3};
    SETUP(NULL);
    kernel = test_compile(all_types_source, "all_types", NULL);
    out = make(IGNIS_SHAPE(9), IGNIS_F64);
    in = make(IGNIS_SHAPE(2), IGNIS_F32);
    CHECK_OK(ignis_array_from_host(in, two, IGNIS_F32, 2));
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_i32(-3);
    args[2] = ignis_arg_i64(INT64_C(1) << 40);
    args[3] = ignis_arg_f32(0.5f);
    args[4] = ignis_arg_f64(0.1);
    args[5] = ignis_arg_ptr(ignis_array_device_ptr(in));
    args[6] = ignis_arg_bytes(&v, sizeof v);
    args[7] = ignis_arg_bytes(&c, 1);
    CHECK_OK(ignis_kernel_launch(kernel, &one, args, 8));
    memset(&v, 0, sizeof v); /* bytes may go when the call returns */
    CHECK_OK(ignis_array_to_host(out, values, IGNIS_F64, 9));
    CHECK(memcmp(values, expected, sizeof values) == 0);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out), drop(in);
}

TEST(arguments_are_counted_and_measured)
{
    ignis_kernel kernel;
    ignis_launch one = test_launch(1, 1);
    ignis_array out;
    ignis_arg args[4];
    ignis_kernel_info info;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    CHECK_OK(ignis_kernel_query(kernel, &info));
    out = make(IGNIS_SHAPE(1), IGNIS_I32);
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_i32(0);
    args[2] = ignis_arg_i32(1);
    args[3] = ignis_arg_i32(1);
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, NULL, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_kernel_launch(kernel, NULL, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    args[2].type = (ignis_arg_type)99;
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    args[2] = ignis_arg_bytes(NULL, 4);
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    args[2] = ignis_arg_i32(1);
    if (info.parameters >= 0) {
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_COUNT);
        CHECK_MESSAGE_HAS("iota");
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_COUNT);
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_COUNT);
        args[1] = ignis_arg_i64(0);
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_SIZE);
        args[1] = ignis_arg_bytes(&one, 3);
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_SIZE);
        CHECK_MESSAGE_HAS("3");
        args[1] = ignis_arg_i32(0);
        args[0] = ignis_arg_f32(0);
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARG_SIZE);
        CHECK_INT(info.parameters, 3);
    }
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out);
}

TEST(kernels_without_arguments)
{
    ignis_kernel kernel;
    ignis_launch launch = test_launch(2, 32);
    SETUP(NULL);
    kernel = test_compile("extern \"C\" __global__ void nothing() {}\n", "nothing", NULL);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, NULL, 0));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(array_arguments_are_checked)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(4), IGNIS_I32);
    ignis_array stale, far;
    ignis_kernel kernel;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    stale = make(IGNIS_SHAPE(4), IGNIS_I32);
    drop(stale);
    {
        ignis_launch one = test_launch(1, 1);
        ignis_arg args[3];
        args[0] = ignis_arg_array(stale);
        args[1] = args[2] = ignis_arg_i32(0);
        CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
        if (ignis_device_count() > 1) {
            desc.device = 1;
            far = ignis_array_create(&desc);
            args[0] = ignis_arg_array(far);
            CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 3), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
            drop(far);
        }
    }
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(empty_arrays_become_null)
{
    ignis_array empty, out;
    ignis_kernel kernel;
    ignis_launch one = test_launch(1, 1);
    ignis_arg args[2];
    int32_t value;
    SETUP(NULL);
    kernel = test_compile("extern \"C\" __global__ void f(int *out, const float *p) { out[0] = p == nullptr; }\n", "f",
                          NULL);
    empty = make(IGNIS_SHAPE(0, 3), IGNIS_F32);
    out = make(IGNIS_SHAPE(1), IGNIS_I32);
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_array(empty);
    CHECK_OK(ignis_kernel_launch(kernel, &one, args, 2));
    CHECK_OK(ignis_array_to_host(out, &value, IGNIS_I32, 1));
    CHECK_INT(value, 1);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(empty), drop(out);
}

/* launches ------------------------------------------------------------------------------------------------------ */

TEST(one_to_three_dimensions)
{
    static const char source[] =
        "extern \"C\" __global__ void count(int *hits)\n"
        "{\n"
        "    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
        "    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        "    hits[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1 + gridDim.y * 10 + blockDim.z * 100;\n"
        "}\n";
    static const ignis_launch shapes[] = {
        {{5, 0, 0}, {6, 0, 0}, 0, false, false}, {{5, 1, 1}, {6, 1, 1}, 0, false, false},
        {{2, 3, 0}, {4, 5, 0}, 0, false, false}, {{2, 3, 2}, {2, 3, 4}, 0, false, false},
        {{1, 0, 7}, {1, 0, 9}, 0, false, false},
    };
    ignis_kernel kernel;
    int s, i, k;
    SETUP(NULL);
    kernel = test_compile(source, "count", NULL);
    for (s = 0; s < COUNT_OF(shapes); s++) {
        int32_t hits[512], total = 1, wrong = 0, value;
        ignis_array out = make(IGNIS_SHAPE(512), IGNIS_I32);
        ignis_arg arg = ignis_arg_array(out);
        for (k = 0; k < 3; k++)
            total *= (shapes[s].grid[k] ? (int)shapes[s].grid[k] : 1) * (shapes[s].block[k] ? shapes[s].block[k] : 1);
        value = 1 + (shapes[s].grid[1] ? (int)shapes[s].grid[1] : 1) * 10 +
                (shapes[s].block[2] ? shapes[s].block[2] : 1) * 100;
        CHECK_OK(ignis_array_zero(out));
        CHECK_OK(ignis_kernel_launch(kernel, &shapes[s], &arg, 1));
        CHECK_OK(ignis_array_to_host(out, hits, IGNIS_I32, 512));
        for (i = 0; i < 512; i++)
            wrong += hits[i] != (i < total ? value : 0);
        CHECK_INT(wrong, 0);
        drop(out);
    }
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(dynamic_shared_memory_of_96_kb)
{
    static const char source[] = "extern \"C\" __global__ void mirror(int *out, int n)\n"
                                 "{\n"
                                 "    extern __shared__ int tile[];\n"
                                 "    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[n - 1 - i] = i;\n"
                                 "    __syncthreads();\n"
                                 "    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[i];\n"
                                 "}\n";
    static int32_t values[24576];
    const int n = 24576;
    ignis_device_info device;
    ignis_launch launch = test_launch(1, 128);
    ignis_kernel kernel;
    ignis_array out;
    ignis_arg args[2];
    int i, wrong = 0;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &device));
    if (device.shared_per_block < 96 * 1024)
        SKIP("the device has less than 96 KB of shared memory per block");
    kernel = test_compile(source, "mirror", NULL);
    out = make(IGNIS_SHAPE(n), IGNIS_I32);
    args[0] = ignis_arg_array(out);
    args[1] = ignis_arg_i32(n);
    launch.shared_bytes = 96 * 1024;
    CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 2));
    CHECK_OK(ignis_array_to_host(out, values, IGNIS_I32, n));
    for (i = 0; i < n; i++)
        wrong += values[i] != n - 1 - i;
    CHECK_INT(wrong, 0);
    launch.shared_bytes = (int64_t)device.shared_per_block + 1;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    launch.shared_bytes = -1;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    launch.shared_bytes = INT64_C(1) << 40;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out);
}

TEST(launch_limits)
{
    static const ignis_launch bad[] = {
        {{1, 1, 1}, {0, 1, 1}, 0, false, false},
        {{1, 1, 1}, {1025, 1, 1}, 0, false, false},
        {{1, 1, 1}, {32, 33, 1}, 0, false, false},
        {{1, 1, 1}, {1, 1, 65}, 0, false, false},
        {{1, 1, 1}, {-1, 1, 1}, 0, false, false},
        {{-1, 1, 1}, {1, 1, 1}, 0, false, false},
        {{1, 65536, 1}, {1, 1, 1}, 0, false, false},
        {{1, 1, 65536}, {1, 1, 1}, 0, false, false},
        {{INT64_C(1) << 31, 1, 1}, {1, 1, 1}, 0, false, false},
        {{INT64_C(1) << 32, 1, 1}, {1, 1, 1}, 0, false, false},
        {{1, -1, 1}, {1, 1, 1}, 0, false, false},
        {{1, 1, 1}, {65536, 65536, 1}, 0, false, false},
    };
    static const char source[] =
        "extern \"C\" __global__ void __launch_bounds__(128) small(int *out) { out[threadIdx.x] = threadIdx.x; }\n";
    ignis_kernel kernel;
    ignis_kernel_info info;
    ignis_array out;
    ignis_launch launch;
    ignis_arg arg;
    int i;
    SETUP(NULL);
    kernel = test_compile("extern \"C\" __global__ void f() {}\n", "f", NULL);
    for (i = 0; i < COUNT_OF(bad); i++) {
        int failures = test__state.failures;
        CHECK_STATUS(ignis_kernel_launch(kernel, &bad[i], NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
        if (test__state.failures != failures)
            printf("    in case %d\n", i);
    }
    CHECK_OK(ignis_kernel_free(kernel));

    kernel = test_compile(source, "small", NULL); /* a kernel may have a limit below the device's */
    out = make(IGNIS_SHAPE(256), IGNIS_I32);
    arg = ignis_arg_array(out);
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_INT(info.max_threads, 128);
    launch = test_launch(1, 256);
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, &arg, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_MESSAGE_HAS("256");
    CHECK_MESSAGE_HAS("128");
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out);
}

TEST(a_grid_of_0_runs_nothing)
{
    ignis_kernel kernel;
    ignis_array out;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    out = make_counting(IGNIS_SHAPE(4), 50);
    {
        ignis_launch none = test_launch(0, 64);
        ignis_arg args[3];
        args[0] = ignis_arg_array(out);
        args[1] = ignis_arg_i32(0);
        args[2] = ignis_arg_i32(4);
        CHECK_OK(ignis_kernel_launch(kernel, &none, args, 3));
    }
    CHECK_COUNTING(out, 4, 50);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(out);
}

/*  A chain of kernels that begin early: each adds to what the one before has left. `waits`: they wait, as they have to.
    */
static ignis_status run_chain(bool waits, ignis_array array, int links)
{
    static const char *const source = "#include \"ignis.cuh\"\n"
                                      "extern \"C\" __global__ void link(int *x, int n)\n"
                                      "{\n"
                                      "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                      "    ignis_grid_dependents_launch();\n"
                                      "    if (WAITS)\n"
                                      "        ignis_grid_dependency_wait();\n"
                                      "    if (i < n)\n"
                                      "        x[n - 1 - i] = (3 * x[n - 1 - i] + i % 5 + 1) % 1000003;\n"
                                      "}\n";
    const char *option = waits ? "-DWAITS=1" : "-DWAITS=0";
    ignis_kernel_desc desc;
    ignis_kernel kernel;
    ignis_launch launch = test_launch(40, 128);
    ignis_arg args[2];
    ignis_status status = IGNIS_OK;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.source = source;
    desc.name = "link.cu";
    desc.entry = "link";
    desc.options = &option;
    desc.option_count = 1;
    kernel = ignis_kernel_compile(&desc);
    launch.dependent = true;
    args[0] = ignis_arg_array(array);
    args[1] = ignis_arg_i32(5000);
    for (i = 0; i < links && status == IGNIS_OK; i++)
        status = ignis_kernel_launch(kernel, &launch, args, 2);
    if (status == IGNIS_OK)
        status = ignis_synchronize();
    ignis_kernel_free(kernel);
    return status;
}

TEST(dependent_launches_wait_for_each_other)
{
    static int32_t values[5000], expected[5000];
    ignis_array array;
    int i, k, wrong = 0;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(5000), 7);
    CHECK_OK(run_chain(true, array, 15));
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_I32, 5000));
    for (i = 0; i < 5000; i++) {
        int32_t x = 7 + i;
        for (k = 0; k < 15; k++)
            x = (3 * x + (4999 - i) % 5 + 1) % 1000003;
        expected[i] = x;
        wrong += values[i] != expected[i];
    }
    CHECK_INT(wrong, 0);
    drop(array);
}

TEST(a_kernel_runs_on_every_device)
{
    ignis_kernel kernel;
    ignis_array out;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    kernel = test_compile(iota_source, "iota", NULL);
    CHECK_OK(ignis_device_use(1));
    out = make(IGNIS_SHAPE(100), IGNIS_I32);
    CHECK_INT(info_of(out).device, 1);
    CHECK_OK(run_iota(kernel, out, 3));
    CHECK_COUNTING(out, 100, 3);
    drop(out);
    CHECK_OK(ignis_device_use(0));
    out = make(IGNIS_SHAPE(100), IGNIS_I32);
    CHECK_OK(run_iota(kernel, out, 4));
    CHECK_COUNTING(out, 100, 4);
    drop(out);
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(arrays_and_kernels_may_be_freed_while_queued)
{
    ignis_kernel kernel;
    ignis_array last, other;
    int i;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    last = make(IGNIS_SHAPE(1000), IGNIS_I32);
    for (i = 0; i < 20; i++) {
        ignis_array passing = make(IGNIS_SHAPE(1000), IGNIS_I32);
        CHECK_OK(run_iota(kernel, passing, i));
        if (i == 19)
            CHECK_OK(ignis_array_copy(last, passing));
        drop(passing);
        other = make_counting(IGNIS_SHAPE(1000), -i); /* may get the same memory, behind the kernel */
        CHECK_COUNTING(other, 1000, -i);
        drop(other);
    }
    CHECK_OK(run_iota(kernel, last, 19));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_COUNTING(last, 1000, 19);
    drop(last);
}

TEST(kernels_see_views)
{
    ignis_kernel kernel;
    ignis_array whole, view;
    int32_t values[10];
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    whole = make(IGNIS_SHAPE(10), IGNIS_I32);
    view = ignis_array_slice(whole, 0, 3, 4);
    CHECK_OK(ignis_array_zero(whole));
    CHECK_OK(run_iota(kernel, view, 100));
    CHECK_OK(ignis_array_to_host(whole, values, IGNIS_I32, 10));
    CHECK(values[2] == 0 && values[3] == 100 && values[6] == 103 && values[7] == 0);
    CHECK_OK(ignis_kernel_free(kernel));
    drop(whole), drop(view);
}

/*  __device__ variables live as long as the kernel, and each kernel has its own, also of equal source. */
TEST(constants_and_globals_of_a_program)
{
    static const char source[] =
        "__constant__ int table[3] = {10, 20, 30};\n"
        "__device__ int calls = 5;\n"
        "extern \"C\" __global__ void f(int *out) { out[0] = table[1]; out[1] = atomicAdd(&calls, 1); }\n";
    ignis_kernel kernels[2];
    ignis_array out;
    ignis_arg arg;
    ignis_launch one = test_launch(1, 1);
    int32_t values[2];
    int i, k;
    SETUP(NULL);
    out = make(IGNIS_SHAPE(2), IGNIS_I32);
    arg = ignis_arg_array(out);
    for (k = 0; k < 2; k++)
        kernels[k] = test_compile(source, "f", NULL);
    for (i = 0; i < 3; i++)
        for (k = 0; k < 2; k++) {
            CHECK_OK(ignis_kernel_launch(kernels[k], &one, &arg, 1));
            CHECK_OK(ignis_array_to_host(out, values, IGNIS_I32, 2));
            CHECK_INT(values[0], 20);
            CHECK_INT(values[1], 5 + i);
        }
    for (k = 0; k < 2; k++)
        CHECK_OK(ignis_kernel_free(kernels[k]));
    kernels[0] = test_compile(source, "f", NULL);
    CHECK_OK(ignis_kernel_launch(kernels[0], &one, &arg, 1));
    CHECK_OK(ignis_array_to_host(out, values, IGNIS_I32, 2));
    CHECK_INT(values[1], 5);
    CHECK_OK(ignis_kernel_free(kernels[0]));
    drop(out);
}

/* several entries of a program ----------------------------------------------------------------------------------- */

static const char crowd_source[] =
    "__device__ int total = 100;\n"
    "__constant__ int step[2] = {1, 1000};\n"
    "extern \"C\" __global__ void advance(int *out) { out[0] = atomicAdd(&total, step[0]) + step[0]; }\n"
    "template <typename T> __global__ void count(int *out, T by) { out[0] = total += (int)by * VERSION; }\n"
    "namespace deep { __global__ void twice(int *out) { out[0] = total *= 2; } }\n"
    "#ifndef WITHOUT\n"
    "extern \"C\" __global__ void unnamed(int *out, int a, int b) { out[0] = total - a - b; }\n"
    "#endif\n";

static ignis_kernel_desc crowd_desc(const char *const *options, int count)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = crowd_source;
    desc.name = "crowd.cu";
    desc.entry = "advance; count<float> ;count<int>;\n deep::twice";
    desc.options = options;
    desc.option_count = count;
    return desc;
}

/*  What an entry writes. by: its second argument and third one, if it has them. */
static int crowd_runs(ignis_kernel kernel, const ignis_arg *by, int count)
{
    ignis_launch one = test_launch(1, 1);
    ignis_array out = make(IGNIS_SHAPE(1), IGNIS_I32);
    ignis_arg args[3];
    int32_t value = -1;
    int i;
    args[0] = ignis_arg_array(out);
    for (i = 0; i < count; i++)
        args[1 + i] = by[i];
    CHECK_OK(ignis_kernel_launch(kernel, &one, args, 1 + count));
    CHECK_OK(ignis_array_to_host(out, &value, IGNIS_I32, 1));
    drop(out);
    return value;
}

/*  One compilation, one set of variables, whoever of the handles writes or reads them, and whichever is freed first. */
TEST(entries_share_a_program)
{
    static const char *const options[] = {"-DVERSION=1", "-DVERSION=2", "-DWITHOUT"};
    static const int thousand = 1000, steps[2] = {7, 8};
    ignis_kernel_desc desc = crowd_desc(options, 1), other = crowd_desc(options + 1, 1),
                      without = crowd_desc(options + 1, 2);
    ignis_kernel first, floats, ints, twice, unnamed, again;
    ignis_kernel_info info;
    ignis_arg by[2];
    int value = 0, got[2] = {0, 0}, device;
    SETUP(NULL);
    first = ignis_kernel_compile(&desc);
    REQUIRE(first.id);
    floats = ignis_kernel_entry(first, "count<float>");
    ints = ignis_kernel_entry(floats, "count<int>"); /* any handle of the program will do */
    twice = ignis_kernel_entry(first, "deep::twice");
    unnamed = ignis_kernel_entry(first, "unnamed"); /* extern "C": found by its name */
    again = ignis_kernel_entry(unnamed, "advance");
    REQUIRE(floats.id && ints.id && twice.id && unnamed.id && again.id);
    CHECK_OK(ignis_kernel_query(ints, &info));
    CHECK_TEXT(info.entry, "count<int>");
    CHECK(info.parameters == 2 || info.parameters == -1);
    CHECK_OK(ignis_kernel_query(first, &info));
    CHECK_TEXT(info.entry, "advance");
    for (device = 0; device < 2 && device < ignis_device_count(); device++) { /* each device has its own variables */
        CHECK_OK(ignis_device_use(device));
        CHECK_INT(crowd_runs(first, NULL, 0), 101);
        by[0] = ignis_arg_f32(10);
        CHECK_INT(crowd_runs(floats, by, 1), 111);
        by[0] = ignis_arg_i32(9);
        CHECK_INT(crowd_runs(ints, by, 1), 120);
        CHECK_INT(crowd_runs(twice, NULL, 0), 240);
        by[0] = ignis_arg_i32(30), by[1] = ignis_arg_i32(10);
        CHECK_INT(crowd_runs(unnamed, by, 2), 200);
        CHECK_INT(crowd_runs(again, NULL, 0), 241);
        CHECK_OK(ignis_kernel_get_symbol(twice, "total", &value, sizeof value));
        CHECK_INT(value, 241);
        CHECK_OK(ignis_kernel_set_symbol(ints, "total", &thousand, sizeof thousand));
        CHECK_OK(ignis_kernel_set_symbol(unnamed, "step", steps, sizeof steps));
        CHECK_OK(ignis_kernel_get_symbol(first, "step", got, sizeof got));
        CHECK(got[0] == 7 && got[1] == 8);
        CHECK_INT(crowd_runs(first, NULL, 0), 1007);
    }
    CHECK_OK(ignis_device_use(0));
    CHECK_STATUS(ignis_kernel_get_symbol(first, "total", NULL, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_kernel_get_symbol(first, "total", got, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_kernel_get_symbol(first, "nothing", got, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SYMBOL_MISSING);
    /* a program that lacks an entry takes nobody's place; one that has all takes that of all */
    CHECK_INT(ignis_ticket_wait(ignis_kernel_reload(twice, &without)), IGNIS_ERROR_COMPILE);
    CHECK_HAS(ignis_status_message(), "'unnamed'");
    ignis_status_clear();
    by[0] = ignis_arg_i32(1);
    CHECK_INT(crowd_runs(ints, by, 1), 1008);
    CHECK_OK(ignis_ticket_wait(ignis_kernel_reload(ints, &other)));
    CHECK_INT(crowd_runs(first, NULL, 0), 101);
    CHECK_INT(crowd_runs(ints, by, 1), 103); /* version 2 counts twice as much */
    CHECK_OK(ignis_kernel_get_symbol(again, "total", &value, sizeof value));
    CHECK_INT(value, 103);
    CHECK_OK(ignis_kernel_free(first)); /* the program stays as long as one of its handles */
    CHECK_INT(crowd_runs(again, NULL, 0), 104);
    CHECK_STATUS(ignis_kernel_free(first), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    CHECK_FAILS(ignis_kernel_entry(first, "advance"), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    CHECK_OK(ignis_kernel_free(ints));
    CHECK_OK(ignis_kernel_free(floats));
    CHECK_OK(ignis_kernel_free(unnamed));
    CHECK_OK(ignis_kernel_free(again));
    CHECK_INT(crowd_runs(twice, NULL, 0), 208);
    CHECK_OK(ignis_kernel_free(twice));
}

TEST(entries_that_are_not_there)
{
    static const char *const options[] = {"-DVERSION=1"};
    static const char *const missing[] = {"count<double>", "twice", "total", "", "advance; unnamed"};
    static const char *const lists[] = {
        "", "  ", ";", "advance;;unnamed", "; advance", "advance; advance", "advance; count<int>;advance"};
    ignis_kernel_desc desc = crowd_desc(options, 1);
    ignis_kernel kernel;
    int i;
    SETUP(NULL);
    kernel = ignis_kernel_compile(&desc);
    REQUIRE(kernel.id);
    for (i = 0; i < 5; i++) {
        CHECK_FAILS(ignis_kernel_entry(kernel, missing[i]), IGNIS_ERROR_COMPILE, IGNIS_DIAG_ENTRY_MISSING);
        CHECK_MESSAGE_HAS("ignis_kernel_entry: the program of kernel advance has no entry '");
        CHECK_MESSAGE_HAS(missing[i]);
    }
    CHECK_FAILS(ignis_kernel_entry(kernel, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_kernel_free(kernel));
    for (i = 0; i < 7; i++) {
        desc.entry = lists[i];
        CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_COMPILE, IGNIS_DIAG_ENTRY_MISSING);
        CHECK_MESSAGE_HAS("desc.entry");
    }
    desc.entry = "advance; nowhere";
    CHECK_FAILS(ignis_kernel_compile(&desc), IGNIS_ERROR_COMPILE, IGNIS_DIAG_ENTRY_MISSING);
    CHECK_MESSAGE_HAS("nowhere");
    desc.entry = "advance;";
    kernel = ignis_kernel_compile(&desc);
    CHECK_INT(crowd_runs(kernel, NULL, 0), 101);
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(occupancy_and_cooperative_launches)
{
    static const char source[] = "extern \"C\" __global__ void meet(int *met, int *out)\n"
                                 "{\n"
                                 "    if (threadIdx.x == 0) {\n"
                                 "        atomicAdd(met, 1);\n"
                                 "        while (atomicAdd(met, 0) < gridDim.x * gridDim.y * gridDim.z) {}\n"
                                 "        atomicAdd(out, 1);\n"
                                 "    }\n"
                                 "}\n";
    static const int threads[] = {1, 32, 33, 100, 256, 1024};
    ignis_launch launch = test_launch(4, 32);
    ignis_occupancy found, other;
    ignis_device_info info;
    ignis_kernel kernel;
    ignis_array met, out;
    ignis_arg args[2];
    int32_t value = 0;
    int i;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &info));
    kernel = test_compile(source, "meet", NULL);
    REQUIRE(kernel.id);
    for (i = 0; i < 6; i++) {
        CHECK_OK(ignis_kernel_occupancy(kernel, threads[i], 0, &found));
        CHECK_INT(found.block, threads[i]);
        CHECK(found.blocks >= 1 && found.blocks * ((threads[i] + 31) / 32) * 32 <= 2048);
        CHECK_INT(found.grid, found.blocks * info.multiprocessors);
        CHECK_OK(ignis_kernel_occupancy(kernel, threads[i], info.shared_per_block, &other));
        CHECK_INT(other.blocks, 1); /* one block has all shared memory */
    }
    CHECK_OK(ignis_kernel_occupancy(kernel, 0, 0, &found));
    CHECK(found.block % 32 == 0 && found.block > 0 && found.block <= 1024);
    for (i = 0; i < 6; i++) {
        CHECK_OK(ignis_kernel_occupancy(kernel, threads[i], 0, &other));
        CHECK(other.block * other.blocks <= found.block * found.blocks);
    }
    CHECK_STATUS(ignis_kernel_occupancy(kernel, 32, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_kernel_occupancy(kernel, -1, 0, &found), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_STATUS(ignis_kernel_occupancy(kernel, 1025, 0, &found), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_STATUS(ignis_kernel_occupancy(kernel, 32, -1, &found), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_STATUS(ignis_kernel_occupancy(kernel, 0, (int64_t)1 << 40, &found), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_LAUNCH_SIZE);
    met = make_counting(IGNIS_SHAPE(1), 0), out = make_counting(IGNIS_SHAPE(1), 0);
    args[0] = ignis_arg_array(met), args[1] = ignis_arg_array(out);
    launch.cooperative = true;
    CHECK_OK(ignis_kernel_occupancy(kernel, 32, 0, &found));
    launch.grid[0] = found.grid + 1;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    CHECK_MESSAGE_HAS("kernel meet has room for");
    launch.grid[0] = 3, launch.grid[1] = found.grid;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    launch.grid[0] = 1, launch.grid[1] = info.multiprocessors + 1; /* with all shared memory a multiprocessor has one */
    launch.shared_bytes = info.shared_per_block;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, args, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    launch.shared_bytes = 0;
    if (!getenv("IGNIS_SIM_SANITIZE")) { /* where blocks run one after the other */
        launch.grid[0] = 3, launch.grid[1] = 2;
        CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 2));
        CHECK_OK(ignis_array_to_host(out, &value, IGNIS_I32, 1));
        CHECK_INT(value, 6);
    }
    drop(met), drop(out);
    CHECK_OK(ignis_kernel_free(kernel));
}

/* query, warmup, stale handles ---------------------------------------------------------------------------------- */

TEST(query_tells_of_a_kernel)
{
    static const char source[] = "extern \"C\" __global__ void f(float *x)\n"
                                 "{\n"
                                 "    __shared__ float tile[256];\n"
                                 "    tile[threadIdx.x] = x[threadIdx.x];\n"
                                 "    __syncthreads();\n"
                                 "    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];\n"
                                 "}\n";
    ignis_kernel_info info;
    ignis_kernel kernel;
    SETUP(NULL);
    kernel = test_compile(source, "f", NULL);
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_TEXT(info.entry, "f");
    CHECK(info.parameters == 1 || info.parameters == -1);
    CHECK(info.registers >= 0 && info.registers <= 255);
    CHECK(info.local_bytes >= 0);
    CHECK(info.max_threads >= 1 && info.max_threads <= 1024);
    if (!test_is_simulator())
        CHECK_INT(info.shared_bytes, 1024);
    CHECK_STATUS(ignis_kernel_query(kernel, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(warmup_compiles_ahead)
{
    ignis_desc desc = test_desc(NULL);
    ignis_kernel_desc descs[2];
    ignis_kernel kernel;
    ignis_kernel_info info;
    desc.cache_dir = test_path("cache");
    SETUP(&desc);
    memset(descs, 0, sizeof descs);
    descs[0].source = descs[1].source = iota_source;
    descs[0].entry = descs[1].entry = "iota";
    empty_begin();
    CHECK_OK(ignis_warmup(NULL, 0));
    CHECK_OK(ignis_warmup(descs, 1));
    empty_end();
    kernel = ignis_kernel_compile(&descs[0]);
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK(info.from_cache);
    CHECK_OK(ignis_kernel_free(kernel));
    descs[1].source = "__global__ void iota(int *x) { wrong }\n";
    descs[1].name = "wrong.cu";
    CHECK_STATUS(ignis_warmup(descs, 2), IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("wrong.cu");
    CHECK_STATUS(ignis_warmup(NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_warmup(descs, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
}

TEST(stale_kernels_are_refused)
{
    ignis_launch one = test_launch(1, 1);
    ignis_kernel kernel, as_kernel;
    ignis_array array, as_array;
    ignis_kernel_info info;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    array = make(IGNIS_SHAPE(1), IGNIS_I32);
    as_kernel.id = array.id; /* a handle of another kind */
    as_array.id = kernel.id;
    CHECK_STATUS(ignis_kernel_launch(as_kernel, &one, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_STATUS(ignis_kernel_free(as_kernel), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_STATUS(ignis_array_free(as_array), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK(!ignis_array_is_live(as_array));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_STATUS(ignis_kernel_free(kernel), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    CHECK_STATUS(ignis_kernel_query(kernel, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    drop(array);
}

TEST(kernels_end_with_shutdown)
{
    ignis_launch one = test_launch(1, 1);
    ignis_kernel kernel;
    SETUP(NULL);
    kernel = test_compile(iota_source, "iota", NULL);
    CHECK(kernel.id != 0);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "kernel 'iota' of 'kernel.cu'");
    SETUP(NULL);
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, NULL, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    CHECK_MESSAGE_HAS("kernel 'iota', freed");
    ignis_call_site("engine/boot.c", 77);
    kernel = test_compile(iota_source, "iota", NULL);
    ignis_call_site("engine/other.c", 1);
    CHECK_OK(ignis_shutdown());
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "kernel 'iota', made at engine/boot.c:77");
    ignis_call_site(NULL, 0);
}

TEST(entries_end_with_shutdown)
{
    static const char *const options[] = {"-DVERSION=1"};
    ignis_kernel_desc desc = crowd_desc(options, 1);
    ignis_kernel kernel, freed;
    int order;
    test_leaks_expected = true;
    for (order = 0; order < 3; order++) {
        SETUP(NULL);
        kernel = ignis_kernel_compile(&desc);
        freed = ignis_kernel_entry(kernel, "deep::twice");
        CHECK(ignis_kernel_entry(freed, "count<int>").id != 0);
        if (order > 0)
            CHECK_OK(ignis_kernel_free(order == 1 ? kernel : freed));
        CHECK_OK(ignis_shutdown());
    }
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 3 + 2 + 2);
}

/* faults -------------------------------------------------------------------------------------------------------- */

/*  In a process of its own: a kernel writes to a wild address, and all devices are lost to the process. */
static int fault_main(void)
{
    static const char source[] =
        "extern \"C\" __global__ void put(int *p, long long wild) { *(wild ? (int *)wild : p) = 1; }\n";
    ignis_desc desc = test_desc(NULL);
    ignis_launch one = test_launch(1, 1);
    ignis_kernel kernel;
    ignis_array array, other;
    ignis_arg args[2];
    ignis_status status;
    int32_t values[4];
    int last;
    CHECK_OK(ignis_setup(&desc));
    last = ignis_device_count() - 1; /* another one where there are two */
    CHECK_OK(ignis_device_use(last));
    other = make_counting(IGNIS_SHAPE(4), 0);
    CHECK_OK(ignis_device_use(0));
    array = make_counting(IGNIS_SHAPE(4), 9);
    kernel = test_compile(source, "put", NULL);
    args[0] = ignis_arg_array(array);
    args[1] = ignis_arg_i64(0);
    CHECK_OK(ignis_kernel_launch(kernel, &one, args, 2)); /* harmless */
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_I32, 4));
    CHECK(values[0] == 1 && values[1] == 10);

    args[1] = ignis_arg_i64(0x1000);
    status = ignis_kernel_launch(kernel, &one, args, 2);
    if (status == IGNIS_OK)
        status = ignis_synchronize();
    CHECK_INT(status, IGNIS_ERROR_CUDA);
    CHECK_INT(ignis_status_last(), status);
    CHECK_HAS(ignis_status_message(), "CUDA_ERROR_ILLEGAL_ADDRESS");
    ignis_status_clear();

    CHECK_STATUS(ignis_array_zero(array), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_array_to_host(array, values, IGNIS_I32, 4), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_kernel_launch(kernel, &one, args, 2), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_MESSAGE_HAS("CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_device_use(last), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_array_to_host(other, values, IGNIS_I32, 4), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_INT(info_of(array).shape.dim[0], 4); /* what needs no device goes on */
    CHECK_OK(ignis_kernel_free(kernel));       /* handles can still be given back */
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_array_free(other));
    (void)ignis_shutdown(); /* may report what the driver says of the device */
    ignis_status_clear();
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);

    /* A new setup does not crash, and brings nothing back. */
    if (ignis_setup(&desc) == IGNIS_OK) {
        array = make(IGNIS_SHAPE(4), IGNIS_I32);
        status = ignis_array_zero(array);
        CHECK(status == IGNIS_OK || status == IGNIS_ERROR_CUDA || status == IGNIS_ERROR_DEVICE);
        if (test_is_simulator())
            CHECK_INT(status, IGNIS_ERROR_CUDA);
        CHECK_OK(ignis_array_free(array));
        (void)ignis_shutdown();
    }
    ignis_status_clear();
    return test__state.failures != 0;
}

/*  A kernel that is launched to begin early, and does not wait: the simulator notices. */
static int unwaited_main(void)
{
    ignis_array array;
    CHECK_OK(ignis_setup(NULL));
    array = make_counting(IGNIS_SHAPE(5000), 7);
    CHECK_INT(run_chain(false, array, 1), IGNIS_ERROR_CUDA);
    CHECK_HAS(ignis_status_message(), "CUDA_ERROR_LAUNCH_FAILED");
    ignis_status_clear();
    (void)ignis_shutdown();
    return test__state.failures != 0;
}

TEST(a_dependent_kernel_that_never_waits_is_noticed)
{
    process child;
    SETUP(NULL);
    if (!test_is_simulator() || getenv("IGNIS_SIM_SANITIZE"))
        SKIP("a GPU runs it, and gives wrong results at times");
    child = process_start("unwaited");
    CHECK_INT(process_end(&child), 0);
}

TEST(a_faulting_kernel_costs_the_process_its_devices)
{
    process child;
    if (test_is_bypass() || getenv("IGNIS_SIM_SANITIZE"))
        SKIP("a memory checker takes the fault for a mistake");
    child = process_start("fault");
    CHECK_INT(process_end(&child), 0);
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    return !role ? test_run(argc, argv) : strcmp(role, "unwaited") == 0 ? unwaited_main() : fault_main();
}
