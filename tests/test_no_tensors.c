// SPDX-License-Identifier: MIT
/*  test_no_tensors.c - IGNIS_NO_TENSORS: arrays and kernels work, and the sources of what is left out are named when
    they are asked for */
#define IGNIS_NO_TENSORS
#include "test.h"

static const char source[] = "#include \"ignis.cuh\"\n"
                             "extern \"C\" __global__ void twice(float *x, int n)\n"
                             "{\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i < n) x[i] = 2 * x[i];\n"
                             "}\n";

TEST(arrays_and_kernels)
{
    enum { COUNT = 1000 };
    ignis_array_desc desc = {0};
    ignis_kernel_desc program = {0};
    ignis_launch launch = {{4, 0, 0}, {256, 0, 0}, 0, false, false};
    ignis_array x, half;
    ignis_kernel twice;
    float got[COUNT];
    int i;
    SETUP(NULL);
    desc.shape = IGNIS_SHAPE(COUNT);
    x = ignis_array_create(&desc);
    desc.dtype = IGNIS_F16;
    half = ignis_array_create(&desc);
    CHECK_OK(ignis_array_fill(x, 1.5));
    CHECK_OK(ignis_array_add(x, x, x));
    program.source = source;
    program.name = "twice.cu";
    program.entry = "twice";
    twice = ignis_kernel_compile(&program);
    CHECK(twice.id != 0);
    {
        ignis_arg args[] = {ignis_arg_array(x), ignis_arg_i32(COUNT)};
        CHECK_OK(ignis_kernel_launch(twice, &launch, args, 2));
    }
    CHECK_OK(ignis_array_copy(half, x));
    CHECK_OK(ignis_array_to_host(half, got, IGNIS_F32, COUNT));
    for (i = 0; i < COUNT; i++)
        CHECK(got[i] == 6);
    CHECK_OK(ignis_kernel_free(twice));
    CHECK_OK(ignis_array_free(x));
    CHECK_OK(ignis_array_free(half));
}

TEST(other_headers_of_ignis)
{
    ignis_kernel_desc program = {0};
    SETUP(NULL);
    program.source = "#include \"map.cuh\"\nextern \"C\" __global__ void nothing() {}\n";
    program.entry = "nothing";
    CHECK_FAILS(ignis_kernel_compile(&program), IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_MESSAGE_HAS("map.cuh");
}

TEST(warmup_compiles_what_is_there)
{
    SETUP(NULL);
    CHECK_OK(ignis_warmup(NULL, 0));
}

TEST(records_of_programs_with_tensors)
{
    const char *path = test_path("tensors.record");
    char text[100];
    snprintf(text, sizeof text, "ignis %d\nown 0-999 norm.cu -DIGNIS_T=1\n", IGNIS_VERSION);
    test_write_file(path, text, strlen(text));
    SETUP(NULL);
    CHECK_FAILS(ignis_warmup_record(path), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
    CHECK_MESSAGE_HAS("norm.cu is of the operations of tensors, which IGNIS_NO_TENSORS leaves out");
    snprintf(text, sizeof text, "ignis %d\nformula 0-999 \"x*x\" \"x\" 1 0 1:1\n", IGNIS_VERSION);
    test_write_file(path, text, strlen(text));
    CHECK_FAILS(ignis_warmup_record(path), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
    CHECK_MESSAGE_HAS("it is a formula, and IGNIS_NO_TENSORS leaves formulas out");
}

int main(int argc, char **argv) { return test_run(argc, argv); }
