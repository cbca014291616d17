// SPDX-License-Identifier: MIT
/*  test_bundle.c - programs compiled beforehand: records, bundles, images of the caller, caches without NVRTC

    What makes a bundle is tools/ignis_embed.c itself, which is included here. */
#include "fault.h"

#include "empty.h"
#include "tensor.h"

#define main embed_main
#include "tools/ignis_embed.c"
#undef main

#include <signal.h>
#ifndef _WIN32
#include <sys/resource.h>
#include <sys/wait.h>
#endif

static char record[200], bundle_file[200]; /* of the test that is running */
static char nowhere[] = "/nowhere/library.so";

static const char plus_source[] = "// a \"quoted\" back\\slash\n"
                                  "#include \"ignis.cuh\"\n"
                                  "#ifndef STEP\n#include \"step.h\"\n#endif\n"
                                  "template <typename T> __global__ void plus(T *x, int n)\r\n"
                                  "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += T(STEP); }\n";

static ignis_kernel_desc plus_desc(const char *const *option)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = plus_source;
    desc.name = "plus.cu";
    desc.entry = "plus<float>";
    desc.options = option;
    desc.option_count = option != NULL;
    return desc;
}

/*  Compiles and runs the kernel on 0, 1, 2, ...; whether it added the step. */
static bool plus_adds(const ignis_kernel_desc *desc, float step)
{
    ignis_kernel kernel = ignis_kernel_compile(desc);
    ignis_launch launch = test_launch(1, 32);
    ignis_array a = test_array(1, 8);
    ignis_arg args[2];
    float data[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int i;
    args[0] = ignis_arg_array(a);
    args[1] = ignis_arg_i32(8);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 2));
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, 8));
    for (i = 0; i < 8 && data[i] == (float)i + step; i++)
        ;
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_kernel_free(kernel));
    return i == 8;
}

/*  The same for two entries of one program: floats by the first, ints by the other. */
static bool entries_add(const ignis_kernel_desc *desc, float step)
{
    ignis_kernel_desc both = *desc;
    ignis_kernel kernel, ints;
    ignis_launch launch = test_launch(1, 32);
    ignis_array a = test_array(1, 8), numbers = ignis_array_cast(a, IGNIS_I32);
    ignis_arg args[2];
    float data[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    both.entry = "plus<float>; plus<int>";
    kernel = ignis_kernel_compile(&both);
    ints = ignis_kernel_entry(kernel, "plus<int>");
    args[0] = ignis_arg_array(numbers);
    args[1] = ignis_arg_i32(8);
    CHECK_OK(ignis_kernel_launch(ints, &launch, args, 2));
    args[0] = ignis_arg_array(a);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 2));
    CHECK_OK(ignis_array_free(a));
    a = ignis_array_cast(numbers, IGNIS_F32);
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, 8));
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(numbers));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_kernel_free(ints));
    return data[0] == step && data[7] == step + 7;
}

static const char *const step_five[] = {"-DSTEP=5"};

/*  The architecture of device 0, as ignis_embed takes it. */
static const char *own_arch(void)
{
    static char arch[16];
    ignis_device_info info;
    CHECK_OK(ignis_device_query(0, &info));
    snprintf(arch, sizeof arch, "%d%d%s", info.compute_major, info.compute_minor, info.compute_major >= 9 ? "a" : "");
    return arch;
}

/*  Sets up to record, or to run from the bundle with nothing else. */
static ignis_desc recording(void)
{
    ignis_desc desc = test_desc(NULL);
    desc.record = record;
    return desc;
}
static ignis_desc alone(void)
{
    ignis_desc desc = test_desc(NULL);
    desc.bundle_path = bundle_file;
    desc.compile = IGNIS_COMPILE_NEVER;
    desc.cache_dir = "off";
#ifndef IGNIS_LINK_CUDA
    desc.nvrtc_library = desc.cublas_library = nowhere;
#endif
    return desc;
}

static void names_of(const char *test)
{
    snprintf(record, sizeof record, "%s/%s.record", test_folder, test);
    snprintf(bundle_file, sizeof bundle_file, "%s/%s.ignis", test_folder, test);
}

/*  Makes the bundle of the record for a list of architectures; Ignis is not set up. */
static void embed(const char *list, const char *archs, bool packed)
{
    char program[] = "ignis_embed", o[] = "-o", plain[] = "--plain";
    char *argv[9];
    int argc = 0;
    argv[argc++] = program;
    argv[argc++] = record;
    argv[argc++] = (char *)(uintptr_t)list;
    argv[argc++] = (char *)(uintptr_t)archs;
    argv[argc++] = o;
    argv[argc++] = bundle_file;
    if (!packed)
        argv[argc++] = plain;
    argv[argc] = NULL;
    CHECK_OK(ignis_setup(NULL)); /* the setup before may have had no NVRTC */
    CHECK_OK(ignis_shutdown());
    request_count = 0;
    CHECK_INT(embed_main(argc, argv), 0);
}

/*  What a tool of one run takes of memory it keeps to its end, and here it runs several times. Read by the leak checker
    alone. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:ignis_embed.c\n"; }

static char *text_of(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = (char *)calloc(1, 1 << 23);
    if (!file || !text)
        abort();
    *size = fread(text, 1, (1 << 23) - 1, file);
    fclose(file);
    return text;
}

static int lines_with(const char *path, const char *part)
{
    size_t size;
    char *text = text_of(path, &size), *at = text;
    int count = 0;
    for (; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    free(text);
    return count;
}

/* --- the whole way ---------------------------------------------------------------------------------------------- */

/*  Products, attention, a formula and a kernel of the program's own; the sum of it all. */
static double everything(ignis_dtype dtype, int64_t rows, int64_t columns, bool trains)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor a = tensor_noise(IGNIS_SHAPE(rows, 64), dtype, 1, trains),
                 b = tensor_noise(IGNIS_SHAPE(64, columns), dtype, 2, trains);
    ignis_tensor c = ignis_matmul(a, b), loss;
    ignis_sdpa_desc sdpa;
    double sum;
    memset(&sdpa, 0, sizeof sdpa);
    sdpa.num_heads = (int)(columns / 64);
    sdpa.mask = IGNIS_MASK_CAUSAL;
    c = ignis_sdpa(c, c, c, &sdpa);
    loss = trains ? ignis_map_sum("c*c + 0.25*c", IGNIS_INPUTS(c)) : ignis_sum(c);
    if (trains)
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    sum = value_at(loss, 0) + (trains ? grad_at(a, 1) + grad_at(b, 2) : 0);
    CHECK_OK(ignis_scope_end(scope));
    return sum;
}

TEST(a_program_runs_from_its_bundle)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus = plus_desc(step_five);
    ignis_bundle_info info;
    double there, here;
    const char *arch;
    char *bytes;
    size_t size;
    names_of("whole");
    SETUP(&desc);
    arch = own_arch();
    there = everything(IGNIS_F32, 33, 128, true);
    CHECK(plus_adds(&plus, 5));
    CHECK(entries_add(&plus, 5));
    CHECK_OK(ignis_shutdown());
    embed("--archs", arch, false);

    desc = alone();
    SETUP(&desc);
    fault_reset_counts();
    CHECK_OK(ignis_bundle_check(&info));
    CHECK_INT(info.version, IGNIS_VERSION);
    CHECK(info.programs >= 6);
    CHECK_INT(info.usable, info.programs);
    CHECK_INT(info.images, info.programs);
    CHECK_INT(info.missing, 0);
    CHECK_TEXT(info.architectures, arch);
    here = everything(IGNIS_F32, 33, 128, true);
    CHECK(here == there);
    CHECK(plus_adds(&plus, 5));
    CHECK(entries_add(&plus, 5));
    CHECK_OK(ignis_warmup(&plus, 1));
    CHECK_INT(fault_count("nvrtcCreateProgram"), 0);
    CHECK_INT(fault_count("nvrtcVersion"), 0);
    CHECK_OK(ignis_shutdown());

    bytes = text_of(bundle_file, &size); /* from memory, wherever it begins */
    CHECK_INT(info.bytes, size);
    memmove(bytes + 1, bytes, size);
    desc.bundle_path = NULL;
    desc.bundle = bytes + 1;
    desc.bundle_size = size;
    SETUP(&desc);
    CHECK(plus_adds(&plus, 5));
    here = everything(IGNIS_F32, 33, 128, true);
    CHECK(here == there);
    CHECK_OK(ignis_shutdown());
    free(bytes);
}

/*  A product long enough for tiles of 192 columns, on a device that is said to have a single multiprocessor, for which
    they are the best. Shorter ones have not recorded them. */
static void check_long_product(void)
{
    enum { ROWS = 64, COLUMNS = 568, LENGTH = 832 };
    ignis_tensor a = tensor_noise(IGNIS_SHAPE(ROWS, LENGTH), IGNIS_BF16, 1, false),
                 b = tensor_noise(IGNIS_SHAPE(LENGTH, COLUMNS), IGNIS_BF16, 2, false), c;
    double *left = tensor_values(a), *right = tensor_values(b), sum = 0;
    int processors = ignis__devices[0].info.multiprocessors, i;
    ignis__devices[0].info.multiprocessors = 1;
    c = ignis_matmul(a, b);
    ignis__devices[0].info.multiprocessors = processors;
    for (i = 0; i < LENGTH; i++)
        sum += left[(ROWS - 1) * LENGTH + i] * right[i * COLUMNS + COLUMNS - 1];
    CHECK_CLOSE(value_at(c, ROWS * COLUMNS - 1), sum, ldexp(fabs(sum), -8)); /* rounded to bf16 */
    free(left), free(right);
    let_go(a), let_go(b), let_go(c);
}

/*  A record has what other sizes and devices ask for: of a device of compute capability 9.0 the tiles of its products,
    too. */
TEST(other_sizes_need_no_other_record)
{
    ignis_desc desc = recording();
    const char *arch;
    if (getenv("IGNIS_SIM_SANITIZE"))
        SKIP("its kernels take minutes to compile, and other tests run them");
    names_of("sizes");
    SETUP(&desc);
    arch = own_arch();
    everything(IGNIS_BF16, 64, 128, false);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(
        lines_with(record,
                   "own 80-999 gemm_mma.cu ignis_gemm_mma -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0 -DIGNIS_TRANSPOSE_B=0"),
        1);
    CHECK_INT(
        lines_with(record,
                   "own 90-90 gemm_hopper.cu ignis_gemm_hopper -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0 -DIGNIS_TRANSPOSE_B=0 "
                   "-DIGNIS_PATCHES=0 -DIGNIS_COLUMNS=256 "
                   "-DIGNIS_DIRECT=0"),
        1);
    CHECK_INT(lines_with(record, "own 0-999 attention.cu ignis_sdpa -DIGNIS_T=2 -DIGNIS_HEAD_DIM=64\n"), 1);
    CHECK_INT(lines_with(record, "own 80-999 attention_mma.cu ignis_sdpa -DIGNIS_T=2 -DIGNIS_HEAD_DIM=64\n"), 1);
    CHECK_INT(lines_with(record, "own 90-90 attention_hopper.cu"), 2);
    CHECK_INT(lines_with(record, "_backward"), 0); /* there was no backward */
    embed("--archs", arch, false);
    desc = alone();
    SETUP(&desc);
    everything(IGNIS_BF16, 1, 128, false);
    everything(IGNIS_BF16, 300, 256, false);
    CHECK_OK(ignis_status_last());
    check_long_product();
}

TEST(ptx_serves_what_is_newer)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus = plus_desc(step_five);
    names_of("ptx");
    SETUP(&desc);
    CHECK(plus_adds(&plus, 5));
    CHECK_OK(ignis_shutdown());
    embed("--ptx", "75,75", false);
    desc = alone();
    SETUP(&desc);
    CHECK_OK(ignis_bundle_check(NULL));
    CHECK(plus_adds(&plus, 5));
    CHECK_OK(ignis_shutdown());
}

/* --- records ------------------------------------------------------------------------------------------------------ */

TEST(each_program_is_recorded_once)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus = plus_desc(step_five);
    ignis_kernel_header header = {"step.h", "#define STEP 2\n"};
    char *line, copy_of[400];
    bool whole = true;
    int i;
    names_of("once");
    for (i = 0; i < 2; i++) {
        SETUP(&desc);
        CHECK(plus_adds(&plus, 5));
        CHECK(plus_adds(&plus, 5));
        plus.options = NULL, plus.option_count = 0;
        plus.headers = &header, plus.header_count = 1;
        CHECK(plus_adds(&plus, 2));
        plus = plus_desc(step_five);
        CHECK_OK(ignis_shutdown());
    }
    CHECK_INT(lines_with(record, "kernel 0-999 \"plus.cu\" \"plus<float>\" \"// a \\\"quoted\\\" back\\\\slash\\n"),
              4); /* two a process */
    CHECK_INT(lines_with(record, "\" 1 \"-DSTEP=5\"\n"), 2);
    CHECK_INT(lines_with(record, "\" 0 \"step.h\" \"#define STEP 2\\n\"\n"), 2);
    snprintf(copy_of, sizeof copy_of, "ignis %d\n", IGNIS_VERSION);
    CHECK_INT(lines_with(record, copy_of), 2);
    request_count = 0;
    record_read(record);
    CHECK_INT(request_count, 2);
    for (i = 0; i < request_count && strncmp(requests[i].name, "plus.cu", 7) != 0; i++)
        ;
    REQUIRE(i < request_count);
    CHECK_TEXT(requests[i].program.source, plus_source);
    CHECK_TEXT(requests[i].name, "plus.cu plus<float> -DSTEP=5");
    snprintf(copy_of, sizeof copy_of, " \"a\\\\n\\n\\r\\\"\" b  \"\"");
    line = copy_of;
    CHECK_TEXT(ignis__request_word(&line, &whole), "a\\n\n\r\"");
    CHECK_TEXT(ignis__request_word(&line, &whole), "b");
    CHECK_TEXT(ignis__request_word(&line, &whole), "");
    CHECK(ignis__request_word(&line, &whole) == NULL && whole);
    snprintf(copy_of, sizeof copy_of, "\"never ends");
    line = copy_of;
    CHECK(ignis__request_word(&line, &whole) == NULL && !whole);
}

TEST(a_record_that_cannot_be_written)
{
    ignis_desc desc = recording();
    desc.record = "/nowhere/at/all.record";
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_BUNDLE_IO);
    CHECK_MESSAGE_HAS("'/nowhere/at/all.record' cannot be written: ");
    desc.record = NULL;
    desc.bundle_path = "/nowhere/at/all.ignis";
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_BUNDLE_IO);
    CHECK_MESSAGE_HAS("'/nowhere/at/all.ignis' cannot be read: ");
    desc.bundle = nowhere;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.bundle = NULL;
    desc.bundle_path = NULL;
    desc.compile = IGNIS_COMPILE_COUNT;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc.compile is 2");
}

#ifndef _WIN32
/*  A disk fills up. What is half written would be taken for a new bundle by what made it, such as make. */
static void write_bundle_on_a_full_disk(const char *path)
{
    static unsigned char data[100000];
    struct rlimit small;
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        getrlimit(RLIMIT_FSIZE, &small);
        small.rlim_cur = 65536;
        setrlimit(RLIMIT_FSIZE, &small);
        signal(SIGXFSZ, SIG_IGN);
        if (freopen("/dev/null", "w", stderr))
            bundle_write(path, "ignis_bundle", data, sizeof data);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    CHECK(access(path, F_OK) != 0);
}

TEST(half_a_bundle_is_not_left)
{
    names_of("half");
    write_bundle_on_a_full_disk(bundle_file);
    snprintf(bundle_file, sizeof bundle_file, "%s/half.h", test_folder);
    write_bundle_on_a_full_disk(bundle_file);
}
#endif

/* --- compiling what a record names -----------------------------------------------------------------------------------
   */

/*  Formulas, a reduction, their gradients, and a kernel; the sum of it all. */
static double formulas_used(void)
{
    ignis_kernel_desc plus = plus_desc(step_five);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(3, 16), IGNIS_F32, 1, true),
                 row = tensor_noise(IGNIS_SHAPE(16), IGNIS_F64, 2, false);
    ignis_tensor y = ignis_map("x*x + row", IGNIS_INPUTS(x, row)), loss = ignis_map_sum("y*y", IGNIS_INPUTS(y));
    double sum;
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    sum = value_at(loss, 0) + grad_at(x, 5);
    CHECK_OK(ignis_scope_end(scope));
    CHECK(plus_adds(&plus, 5));
    return sum;
}

static ignis_desc cold(void)
{
    ignis_desc desc = test_desc(NULL);
    desc.cache_dir = "off";
    return desc;
}

TEST(what_a_record_names_is_compiled_ahead)
{
    ignis_desc desc = cold();
    ignis_ticket ticket;
    double there;
    int compiled;
    names_of("warm");
    desc.record = record;
    SETUP(&desc);
    fault_reset_counts();
    there = formulas_used();
    compiled = fault_count("nvrtcCompileProgram");
    CHECK(compiled >= 4);
    CHECK_OK(ignis_shutdown());

    desc = cold();
    SETUP(&desc);
    fault_reset_counts();
    ticket = ignis_warmup_record(record);
    CHECK(ticket.id);
    CHECK_OK(ignis_ticket_wait(ticket));
    CHECK(fault_count("nvrtcCompileProgram") >= compiled); /* what other sizes take of Ignis' own, too */
    compiled = fault_count("nvrtcCompileProgram");
    CHECK(formulas_used() == there); /* for the first time here */
    CHECK_INT(fault_count("nvrtcCompileProgram"), compiled);
    CHECK_OK(ignis_ticket_wait(ignis_warmup_record(record))); /* all is there */
    CHECK_INT(fault_count("nvrtcCompileProgram"), compiled);
    CHECK_OK(ignis_shutdown());

    SETUP(&desc); /* used meanwhile, by this thread */
    fault_reset_counts();
    ticket = ignis_warmup_record(record);
    CHECK(formulas_used() == there);
    CHECK_OK(ignis_ticket_wait(ticket));
    CHECK_INT(fault_count("nvrtcCompileProgram"), compiled);
    CHECK_OK(ignis_shutdown());
}

static void record_of(const char *text) { test_write_file(record, text, strlen(text)); }

TEST(a_line_that_does_not_compile_is_named)
{
    static const char good[] = "kernel 0-999 \"plus.cu\" \"\" \"extern \\\"C\\\" __global__ void plus(float *x, int n) "
                               "{ x[n] += STEP; }\" 1 \"-DSTEP=5\"\n";
    static const char *const no_record[] = {"hello\n",
                                            "own x softmax.cu\n",
                                            "own 0-1000 softmax.cu\n",
                                            "own 80 softmax.cu\n",
                                            "own 0-999 nothing.cu\n",
                                            "own 0-999\n",
                                            "own 0-999 softmax.cu ignis_relu\n",
                                            "own 0-999 softmax.cu ignis_softmax_block\n",
                                            "ignis 1\n",
                                            "ignis\n",
                                            "formula 0-999\n",
                                            "formula 0-999 \"x\" \"x\" 1 0\n",
                                            "formula 0-999 \"x\" \"x\" 17 0 6:1\n",
                                            "formula 0-999 \"x +\" \"x\" 1 0 6:1\n",
                                            "formula 0-999 \"x\" \"x\" 1 0 6:1,\n",
                                            "formula 0-999 \"x\" \"x\" 1 0 99:1\n",
                                            "formula 0-999 \"x\" \"x\" 1 0 6:70000\n",
                                            "formula 0-999 \"x\" \"x\" 1 0 6:-1\n",
                                            "kernel 0-999 \"a.cu\"\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\" 2 \"-DA\"\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\" -1\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\" 65\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\" 0 \"a.h\"\n",
                                            "kernel 0-999 \"a.cu\" \"\" \"text\" 0 \"a.h\" \"never ends\n"};
    ignis_desc desc = cold();
    ignis_ticket ticket;
    char text[1000];
    int i;
    names_of("bad");
    remove(record);
    CHECK_FAILS(ignis_warmup_record(record), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    SETUP(&desc);
    CHECK_FAILS(ignis_warmup_record(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_warmup_record(record), IGNIS_ERROR_IO, IGNIS_DIAG_BUNDLE_IO);
    CHECK_MESSAGE_HAS(record);
    for (i = 0; i < COUNT_OF(no_record); i++) {
        snprintf(text, sizeof text, "# remarks and empty lines are fine\n\n%s%s", good, no_record[i]);
        record_of(text);
        CHECK_FAILS(ignis_warmup_record(record), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
        CHECK_MESSAGE_HAS("line 4 of ");
    }
    test_write_file(record, "own\0", 5);
    CHECK_FAILS(ignis_warmup_record(record), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
    record_of("");
    CHECK_OK(ignis_ticket_wait(ignis_warmup_record(record)));

    snprintf(text, sizeof text,
             "ignis %d\nkernel 0-999 \"formula.cu\" \"\" \"this is no CUDA\" 0\n%skernel 0-10 \"old.cu\" \"\" \"no "
             "CUDA either\" 0\n",
             IGNIS_VERSION, good);
    record_of(text);
    fault_reset_counts();
    ticket = ignis_warmup_record(record);
    CHECK(ticket.id);
    CHECK_INT(ignis_ticket_wait(ticket), IGNIS_ERROR_COMPILE);
    CHECK(strstr(ignis_status_message(), "formula.cu does not compile") != NULL);
    CHECK(strstr(ignis_status_message(), "(inside line 2 of ") != NULL);
    ignis_status_clear();
    CHECK_INT(fault_count("nvrtcCompileProgram"), 1); /* the others are compiled; that for another device is left out */
    CHECK_INT(fault_failed("nvrtcCompileProgram"), 1);
    CHECK_OK(ignis_shutdown());
}

/* --- what is missing ------------------------------------------------------------------------------------------------
   */

TEST(a_missing_program_is_named)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus = plus_desc(step_five), other;
    static const char *const step_six[] = {"-DSTEP=6"};
    ignis_bundle_info info;
    ignis_device_info device;
    char foreign[16], part[80];
    const char *arch;
    names_of("missing");
    SETUP(&desc);
    arch = own_arch();
    snprintf(foreign, sizeof foreign, "%s", strncmp(arch, "75", 2) == 0 ? "80" : "75");
    CHECK(plus_adds(&plus, 5));
    CHECK_OK(ignis_shutdown());
    embed("--archs", arch, false);
    desc = alone();
    SETUP(&desc);
    other = plus_desc(step_six);
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("plus.cu plus<float> -DSTEP=6 is not in ");
    CHECK_MESSAGE_HAS(bundle_file);
    CHECK_OK(ignis_device_query(0, &device));
    snprintf(part, sizeof part, "compute capability %d.%d", device.compute_major, device.compute_minor);
    CHECK_MESSAGE_HAS(part);
    CHECK_MESSAGE_HAS("IGNIS_COMPILE_NEVER");
    CHECK_FAILS(ignis_tensor_randn(IGNIS_SHAPE(3), NULL), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("add this line to the record: own 0-999 random.cu ignis_randn -DIGNIS_T=3");
    CHECK_STATUS(ignis_warmup(&other, 1), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK(plus_adds(&plus, 5)); /* all else works */
    CHECK_OK(ignis_shutdown());

    embed("--archs", foreign, false);
    SETUP(&desc);
    CHECK_FAILS(ignis_kernel_compile(&plus), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    snprintf(part, sizeof part, "for %s, but not for compute capability %d.%d", foreign, device.compute_major,
             device.compute_minor);
    CHECK_MESSAGE_HAS(part);
    CHECK_STATUS(ignis_bundle_check(&info), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("0 of 1 programs");
    CHECK_MESSAGE_HAS("plus.cu plus<float> -DSTEP=5");
    CHECK_INT(info.missing, 1);
    CHECK_INT(info.usable, 0);
    CHECK_TEXT(info.architectures, foreign);
    CHECK_OK(ignis_shutdown());

    desc.bundle_path = NULL;
    SETUP(&desc);
    CHECK_FAILS(ignis_kernel_compile(&plus), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("no bundle is set");
    CHECK_STATUS(ignis_bundle_check(&info), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_shutdown());

    desc.bundle_path = bundle_file; /* where it may be compiled it is, but for the lack of a compiler */
    desc.compile = IGNIS_COMPILE_AUTO;
#ifndef IGNIS_LINK_CUDA
    SETUP(&desc);
    CHECK_FAILS(ignis_kernel_compile(&plus), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("NVRTC is missing");
    CHECK_OK(ignis_shutdown());
#endif
    desc.nvrtc_library = NULL;
    SETUP(&desc);
    CHECK(plus_adds(&plus, 5));
}

/*  Of a source of Ignis a bundle has the kernels that were asked for, and what other sizes choose instead of them. */
TEST(kernels_that_nobody_asks_for_are_left_out)
{
    ignis_desc desc = recording();
    ignis_tensor x, wide, y;
    ignis_scope scope;
    const char *arch;
    int i;
    names_of("parts");
    SETUP(&desc);
    arch = own_arch();
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(5, 40), IGNIS_F32, 1, true);
    y = ignis_softmax(x);
    CHECK(y.id);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_shutdown());
    CHECK_INT(lines_with(record, "own 0-999 softmax.cu ignis_softmax_warp -DIGNIS_T=3\n"), 1);
    CHECK_INT(lines_with(record, "own 0-999 softmax.cu"), 1);
    embed("--archs", arch, true);

    desc = alone();
    for (i = 0; i < 2; i++) { /* where nothing compiles, and where it may */
        SETUP(&desc);
        fault_reset_counts();
        scope = ignis_scope_begin();
        x = tensor_noise(IGNIS_SHAPE(5, 40), IGNIS_F32, 1, true);
        wide = tensor_noise(IGNIS_SHAPE(2, 20000), IGNIS_F32, 1, false);
        y = ignis_softmax(x);
        CHECK(fabs(log(value_at(y, 3) / value_at(y, 4)) - (value_at(x, 3) - value_at(x, 4))) < 1e-5);
        CHECK(ignis_softmax(wide).id); /* by another kernel */
        CHECK_INT(fault_count("nvrtcCompileProgram"), 0);
        y = ignis_softmax(x);
        if (i == 0) {
            CHECK_INT(ignis_backward(y, ignis_tensor_data(x)), IGNIS_ERROR_COMPILE);
            CHECK(strstr(ignis_status_message(),
                         "add this line to the record: own 0-999 softmax.cu ignis_softmax_backward_warp -DIGNIS_T=3") !=
                  NULL);
            ignis_status_clear();
        } else {
            CHECK_OK(ignis_backward(y, ignis_tensor_data(x)));
            CHECK_INT(fault_count("nvrtcCompileProgram"), 1);
        }
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_shutdown());
        desc.compile = IGNIS_COMPILE_AUTO;
        desc.nvrtc_library = NULL;
    }
}

static void softmax_of_thread(void *failures, int index)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(5, 40 + index), IGNIS_F32, 1, false);
    ignis_tensor y = index % 2 ? ignis_softmax(x) : ignis_sum(x);
    ((bool *)failures)[index] =
        !(fabs(value_at(index % 2 ? ignis_sum(y) : ignis_sub(y, ignis_sum(x)), 0) - index % 2 * 5) < 1e-5);
    (void)ignis_scope_end(scope);
}

/*  Threads that ask for kernels of one block at a time. */
/*  Returns a kernel of ignis.h or ignis_models.h by its number. */
static ignis__builtin kernel_of_number(int number)
{
    const ignis__source *source;
    ignis__builtin builtin;
    int i, k;
    for (i = 0; (source = ignis__source_at(i)) != NULL; i++)
        for (k = 0; (builtin = ignis__builtin_of_source(source, k)) != NULL; k++)
            if (builtin->number == number)
                return builtin;
    return NULL;
}

TEST(parts_are_named_after_their_first_kernels)
{
    const ignis__kernel_table *table;
    int i, k, parts = 0;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; i++)
        for (k = 0; k < table->part_count; k++, parts++) {
            ignis__builtin first = kernel_of_number(table->parts[k].first),
                           last = kernel_of_number(table->parts[k].last);
            CHECK(first && last && first->number < last->number);
            if (!first || !last)
                continue;
            CHECK_TEXT(table->parts[k].name, first->entry);
            CHECK_TEXT(ignis__builtin_part(last), first->entry);
        }
    CHECK(parts > 40);
}

/*  A source of Ignis finds all that it includes, and nothing else; other programs find ignis.cuh and what it includes.
    */
TEST(sources_name_what_they_include)
{
    ignis__program program = {0};
    const ignis__source *source, *header;
    const char *at;
    char name[64];
    int i, k, more = 0, headers = 0;
    for (i = 0; (source = ignis__source_at(i)) != NULL; i++) {
        char *text = ignis__source_join(source);
        program.own = source;
        for (at = text; (at = strstr(at, "#include \"")) != NULL; at += strlen(name)) {
            at += strlen("#include \"");
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\""), at);
            CHECK(ignis__header_is_known(&program, name, strlen(name)));
        }
        CHECK(!ignis__header_is_known(&program, source->name, strlen(source->name)));
        for (k = 0; (header = ignis__header_next(&program, &k)) != NULL;) { /* kernels, if it includes them itself */
            snprintf(name, sizeof name, "#include \"%.50s\"", header->name);
            more += header == source || (strcmp(strrchr(header->name, '.'), ".cu") == 0 && !strstr(text, name));
        }
        ignis__free(text);
    }
    CHECK(more == 0);
    program.own = NULL;
    for (k = 0; ignis__header_next(&program, &k) != NULL;)
        headers++;
    CHECK_INT(headers, 2);
    CHECK(ignis__header_is_known(&program, "ignis.cuh", 9) && ignis__header_is_known(&program, "f8.cuh", 6));
}

TEST(threads_share_a_bundle)
{
    ignis_desc desc = recording();
    bool failures[8];
    const char *arch;
    int i, turn;
    names_of("threads");
    SETUP(&desc);
    arch = own_arch();
    softmax_of_thread(failures, 0);
    softmax_of_thread(failures, 1);
    CHECK_OK(ignis_shutdown());
    embed("--archs", arch, true);
    desc = alone();
    for (turn = 0; turn < 3; turn++) {
        SETUP(&desc);
        ignis__parallel(8, softmax_of_thread, failures);
        for (i = 0; i < 8; i++)
            CHECK(!failures[i]);
        CHECK_OK(ignis_bundle_check(NULL));
        CHECK_OK(ignis_shutdown());
    }
}

/*  A bundle does not stand in the way of who changes a header; where the header is not there any more, it counts. */
TEST(a_changed_header_is_compiled)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus;
    char folder[250], path[300];
    const char *options[1], *arch;
    names_of("header");
    snprintf(path, sizeof path, "%s/step.h", test_folder);
    snprintf(folder, sizeof folder, "-I%s", test_folder);
    options[0] = folder;
    plus = plus_desc(options);
    test_write_file(path, "#define STEP 1\n", 15);
    SETUP(&desc);
    arch = own_arch();
    CHECK(plus_adds(&plus, 1));
    CHECK_OK(ignis_shutdown());
    embed("--archs", arch, false);
    desc = alone();
    desc.compile = IGNIS_COMPILE_AUTO;
    desc.nvrtc_library = NULL;
    SETUP(&desc);
    fault_reset_counts();
    CHECK(plus_adds(&plus, 1));
    CHECK_INT(fault_count("nvrtcCompileProgram"), 0);
    test_write_file(path, "#define STEP 7\n", 15);
    CHECK(plus_adds(&plus, 7));
    CHECK_INT(fault_count("nvrtcCompileProgram"), 1);
    CHECK_INT(remove(path), 0);
    CHECK(plus_adds(&plus, 1));
    CHECK_INT(fault_count("nvrtcCompileProgram"), 1);
    CHECK_OK(ignis_shutdown());
    test_write_file(path, "#define STEP 7\n", 15);
    desc = alone();
    SETUP(&desc);
    CHECK(plus_adds(&plus, 1));
}

/* --- other sizes -------------------------------------------------------------------------------------------------- */

/*  The bundle of the record, with images that nobody could run: a dry run looks at what is there, and at nothing in it.
    */
static void embed_dry(const char *arch)
{
    static char image[16] = ".version x.y", lowered[1] = "";
    target targets[MAX_ARCHS];
    int count, block_count, target_count = targets_read(arch, false, targets, 0), i;
    job *jobs;
    block *blocks;
    unsigned char *data;
    size_t size;
    request_count = 0;
    record_read(record);
    jobs = jobs_make(targets, target_count, &count);
    for (i = 0; i < count; i++) {
        jobs[i].image.data = image;
        jobs[i].image.size = strlen(image);
        jobs[i].image.lowered = lowered;
    }
    blocks = blocks_make(jobs, count, targets, target_count, true, &block_count);
    for (i = 0; i < block_count; i++) {
        blocks[i].stored = blocks[i].bytes;
        blocks[i].stored_size = blocks[i].size;
    }
    data = bundle_make(jobs, count, blocks, block_count, &size);
    bundle_write(bundle_file, "ignis_bundle", data, size);
    free(data);
    free(jobs);
    for (i = 0; i < block_count; i++)
        free(blocks[i].bytes);
    free(blocks);
}

static int walked_wrong;

/*  Walks an operation forward and backward; says which failed. */
static void walk(const char *what, ignis_tensor y, int64_t rows, int64_t columns)
{
    bool ok = y.id && (!tensor_info(y).requires_grad || ignis_backward(y, ignis_tensor_data(y)) == IGNIS_OK);
    if (!ok && walked_wrong++ < 12)
        fprintf(stderr, "%s of %dx%d: %s\n", what, (int)rows, (int)columns, ignis_status_message());
    CHECK(ok);
    ignis_status_clear();
    (void)ignis_tape_clear();
}
#define WALK(call)                   \
    do {                             \
        if (number++ == chosen)      \
            walk(#call, call, r, c); \
    } while (0)

static int ones_at; /* elements before each tensor, of a larger array: packs cannot be read from there */

static ignis_tensor ones(ignis_shape shape, ignis_dtype dtype, bool requires_grad)
{
    ignis_array whole = make(IGNIS_SHAPE(shape_numel(shape) + ones_at), dtype),
                part = ignis_array_slice(whole, 0, ones_at, shape_numel(shape));
    ignis_array view = ignis_array_reshape(part, shape);
    ignis_tensor tensor;
    CHECK_OK(ignis_array_fill(whole, 1));
    tensor = ignis_tensor_from_array(view, requires_grad);
    drop(view), drop(part), drop(whole);
    return tensor;
}

static void walk_optimizer(int which, ignis_tensor x, ignis_tensor row)
{
    ignis_optimizer made = which == 0   ? ignis_adamw(NULL)
                           : which == 1 ? ignis_sgd(NULL)
                           : which == 2 ? ignis_rmsprop(NULL)
                           : which == 3 ? ignis_lion(NULL)
                                        : ignis_muon(NULL);
    CHECK_OK(ignis_optimizer_add(made, x, true));
    if (which < 4) /* parameters of Muon have two dimensions */
        CHECK_OK(ignis_optimizer_add(made, row, false));
    CHECK_OK(ignis_backward(ignis_mean(ignis_mul(x, row)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(made));
    CHECK_OK(ignis_optimizer_free(made));
    ignis_status_clear();
}

/*  One of the operations of tensors at a size, forward and backward; returns how many there are. */
static int one_operation(int chosen, ignis_dtype dtype, int64_t r, int64_t c)
{
    static const int both[] = {1, 0}, first[] = {0};
    static const int64_t one[] = {0, 1}, two[] = {1, 2};
    ignis_reduce_desc rows_of = {{0}, 1, false}, apart = {{0, 2}, 2, false};
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = ones(IGNIS_SHAPE(r, c), dtype, true), y = ones(IGNIS_SHAPE(r, c), dtype, true),
                 row = ones(IGNIS_SHAPE(c), dtype, true);
    ignis_tensor column = ones(IGNIS_SHAPE(r, 1), dtype, true), single = ones(IGNIS_SHAPE(1), dtype, true);
    ignis_tensor cube = ones(IGNIS_SHAPE(2, r, c), dtype, true), w = ones(IGNIS_SHAPE(c, c), dtype, true);
    ignis_tensor ids = ones(IGNIS_SHAPE(r), IGNIS_I32, false), places = ones(IGNIS_SHAPE(r, c), IGNIS_I32, false),
                 more[2], sum, matrix;
    ignis_tensor image = ones(IGNIS_SHAPE(r, 5, 7, 4), dtype, true), taps = ones(IGNIS_SHAPE(8, 3, 3, 4), dtype, true);
    ignis_tensor channels = ones(IGNIS_SHAPE(4), dtype, true), eight = ones(IGNIS_SHAPE(8), dtype, true);
    ignis_tensor line = ones(IGNIS_SHAPE(r, c, 4), dtype, true), taps1 = ones(IGNIS_SHAPE(8, 3, 4), dtype, true);
    ignis_tensor depth = ones(IGNIS_SHAPE(4, 3, 3, 1), dtype, true), heads = ones(IGNIS_SHAPE(1, r, 128), dtype, true);
    ignis_tensor keys = ones(IGNIS_SHAPE(1, c, 128), dtype, true), packed = ones(IGNIS_SHAPE(1, r, 384), dtype, true);
    ignis_tensor cache = ones(IGNIS_SHAPE(1, c, 128), dtype, false), query = ones(IGNIS_SHAPE(1, 1, 128), dtype, false);
    ignis_pool_desc pool;
    ignis_conv_desc groups, halves;
    const ignis_unfold_desc patches = {{3, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    const int64_t sides[] = {4, r + 1, 3};
    ignis_upsample_desc up;
    ignis_fft_desc twelve;
    ignis_sdpa_desc sdpa;
    ignis_rope_desc rope;
    ignis_cross_entropy_desc smooth;
    int reducer, number = 0, i;
    memset(&pool, 0, sizeof pool), memset(&groups, 0, sizeof groups), memset(&halves, 0, sizeof halves),
        memset(&up, 0, sizeof up);
    memset(&twelve, 0, sizeof twelve), more[0] = x, more[1] = y;
    memset(&sdpa, 0, sizeof sdpa), memset(&rope, 0, sizeof rope), memset(&smooth, 0, sizeof smooth);
    smooth.label_smoothing = 0.1;
    pool.window[0] = pool.window[1] = 2;
    groups.groups = 4, halves.groups = 2;
    up.size[0] = 9, up.size[1] = 11;
    sdpa.num_heads = rope.num_heads = 2;
    WALK(ignis_map("sin(x)*2 + row", IGNIS_INPUTS(x, row)));
    WALK(ignis_map("x*y", IGNIS_INPUTS(x, y)));
    WALK(ignis_map("x*single + column", IGNIS_INPUTS(x, single, column)));
    WALK(ignis_map("x*index(0) + index(1)", IGNIS_INPUTS(x)));
    WALK(ignis_map_sum("x*row", IGNIS_INPUTS(x, row)));
    WALK(ignis_map_mean("(x - y)*(x - y)", IGNIS_INPUTS(x, y)));
    WALK(ignis_map_mean("x*row + column", IGNIS_INPUTS(x, row, column)));
    for (reducer = IGNIS_REDUCE_SUM; reducer < IGNIS_REDUCE_COUNT; reducer++) {
        rows_of.dims[0] = 0;
        WALK(ignis_map_reduce((ignis_reducer)reducer, "x*row", IGNIS_INPUTS(x, row), &rows_of));
        rows_of.dims[0] = 1;
        WALK(ignis_map_reduce((ignis_reducer)reducer, "x*row", IGNIS_INPUTS(x, row), &rows_of));
    }
    WALK(ignis_map_reduce(IGNIS_REDUCE_SUM, "cube*cube", IGNIS_INPUTS(cube), &apart));
    WALK(ignis_map_reduce(IGNIS_REDUCE_MEAN, "cube*row", IGNIS_INPUTS(cube, row), &apart));
    WALK(ignis_matmul(x, w));
    WALK(ignis_matmul_t(x, w));
    WALK(ignis_linear(x, w, row));
    WALK(ignis_grouped_linear(x, cube, ones(IGNIS_SHAPE(3), IGNIS_I32, false)));
    WALK(ignis_mlp(x, w, row, w, row, IGNIS_ACTIVATION_GELU));
    WALK(ignis_mlp_gated(x, w, w, w));
    WALK(ignis_add(x, y));
    WALK(ignis_add(x, row));
    WALK(ignis_sub(x, column));
    WALK(ignis_mul(x, single));
    WALK(ignis_mul(x, y));
    WALK(ignis_add_bias(x, row));
    WALK(ignis_scale(x, 2));
    WALK(ignis_dropout(x, 0.5));
    WALK(ignis_cast(x, dtype == IGNIS_F32 ? IGNIS_BF16 : IGNIS_F32));
    WALK(ignis_relu(x));
    WALK(ignis_gelu(x));
    WALK(ignis_gelu_exact(x));
    WALK(ignis_silu(x));
    WALK(ignis_silu_mul(x, y));
    WALK(ignis_sum(x));
    WALK(ignis_mean(x));
    WALK(ignis_sum_dim(x, 0));
    WALK(ignis_mean_dim(x, 1));
    WALK(ignis_sum_dim(cube, 1));
    twelve.lengths[0] = 12;
    WALK(ignis_rfft(dtype == IGNIS_F64 ? x : ignis_cast(x, IGNIS_F32), &twelve));
    twelve.lengths[0] = 34;
    WALK(ignis_rfft(dtype == IGNIS_F64 ? x : ignis_cast(x, IGNIS_F32), &twelve));
    WALK(ignis_complex_mul(ignis_reshape(ignis_concat(more, 2, 0), IGNIS_SHAPE(r, c, 2)),
                           ones(IGNIS_SHAPE(c, 2), dtype, true), false));
    WALK(ignis_cumsum(x, 0));
    WALK(ignis_cumsum(x, 1));
    WALK(ignis_cumprod(x, 0));
    WALK(ignis_cumprod(x, 1));
    WALK(ignis_logcumsumexp(x, 1));
    WALK(ignis_cummax(x, 1, &sum));
    WALK(ignis_cummin(x, 0, &sum));
    WALK(ignis_reshape(x, IGNIS_SHAPE(c, r)));
    WALK(ignis_transpose(x, 0, 1));
    WALK(ignis_transpose(cube, 0, 1));
    WALK(ignis_permute(x, both, 2));
    WALK(ignis_flip(x, first, 1));
    WALK(ignis_expand(column, IGNIS_SHAPE(r, c)));
    more[0] = x, more[1] = y;
    WALK(ignis_concat(more, 2, 0));
    WALK(ignis_concat(more, 2, 1));
    WALK(ignis_stack(more, 2, 1));
    WALK(ignis_slice(x, 1, c / 2, c - c / 2));
    WALK(ignis_slice_step(x, 1, 0, (c + 1) / 2, 2));
    WALK(ignis_pad(x, one, two, 2, 0));
    WALK(ignis_tril(x, 0));
    WALK(ignis_triu(x, 0));
    WALK(ignis_softmax(x));
    WALK(ignis_log_softmax(x));
    WALK(ignis_layer_norm(x, row, row, 0));
    WALK(ignis_rms_norm(x, row, 0));
    if (dtype == IGNIS_BF16)
        WALK(ignis_layer_norm(x, ones(IGNIS_SHAPE(c), IGNIS_F32, true), ones(IGNIS_SHAPE(c), IGNIS_F32, true), 0));
    WALK(ignis_add_layer_norm(x, y, row, row, 0, &sum));
    WALK(ignis_add_rms_norm(x, y, row, 0, &sum));
    WALK(ignis_add_rms_norm(x, y, row, 0, NULL));
    WALK(ignis_max_pool(image, &pool));
    WALK(ignis_avg_pool(image, &pool));
    WALK(ignis_upsample(image, &up));
    WALK(ignis_conv2d(image, taps, eight, NULL));
    WALK(ignis_conv2d(image, depth, channels, &groups));
    WALK(ignis_conv2d(image, ones(IGNIS_SHAPE(8, 3, 3, 2), dtype, true), eight, &halves));
    WALK(ignis_conv2d(ones(IGNIS_SHAPE(r, c + 2, 5, 4), dtype, true), taps, eight, NULL));
    WALK(ignis_conv1d(ones(IGNIS_SHAPE(r, c + 4, 4), dtype, true), taps1, eight, NULL));
    WALK(ignis_conv3d(ones(IGNIS_SHAPE(1, 3, r + 1, 4, 4), dtype, true), ones(IGNIS_SHAPE(8, 2, 2, 2, 4), dtype, true),
                      eight, NULL));
    WALK(ignis_conv3d(ones(IGNIS_SHAPE(1, 3, r + 1, 4, 4), dtype, true), ones(IGNIS_SHAPE(4, 2, 2, 2, 1), dtype, true),
                      channels, &groups));
    WALK(ignis_conv_transpose2d(image, ones(IGNIS_SHAPE(4, 3, 3, 8), dtype, true), eight, NULL));
    WALK(ignis_grid_sample(image, ones(IGNIS_SHAPE(r, 3, 2, 2), dtype, true), NULL));
    WALK(ignis_unfold(image, &patches));
    WALK(ignis_fold(ignis_unfold(ones(IGNIS_SHAPE(1, 4, r + 1, 3, 4), dtype, true), &patches), sides, 3, &patches));
    WALK(ignis_pad_replicate(x, one, two, 2));
    WALK(ignis_pixel_shuffle(image, 2));
    WALK(ignis_batch_norm(image, channels, channels, NULL));
    WALK(ignis_group_norm(line, 2, channels, channels, 0));
    WALK(ignis_rope(heads, &rope));
    WALK(ignis_embedding(w, ids));
    WALK(ignis_gather(x, 1, places));
    WALK(ignis_index_select(x, 0, ids));
    WALK(ignis_index_select(x, 1, ones(IGNIS_SHAPE(3), IGNIS_I32, false)));
    WALK(ignis_scatter_add(x, 1, places, y));
    WALK(ignis_scatter(x, 1, places, y));
    WALK(ignis_index_put(x, &ids, 1, x, false));
    WALK(ignis_nonzero(x));
    WALK(ignis_masked_select(x, y));
    WALK(ignis_unique(x, &sum, NULL));
    WALK(ignis_searchsorted(row, x, true));
    WALK(ignis_bincount(ids, no_tensor(), c));
    WALK(ignis_histogram(x, c, -1, 1));
    WALK(ignis_poisson(x));
    WALK(ignis_gamma(x));
    WALK(ignis_beta(x, y));
    WALK(ignis_categorical(ignis_detach(x), 1, true));
    WALK(ignis_categorical(ignis_detach(x), 1, false));
    WALK(ignis_one_hot(ids, c, dtype));
    WALK(ignis_sort(x, 1, false, &sum));
    WALK(ignis_sort(x, 0, true, &sum));
    WALK(ignis_sort(cube, 1, false, &sum));
    WALK(ignis_topk(x, 1, 1, true, &sum));
    if (dtype != IGNIS_BF16) {
        matrix = ones(IGNIS_SHAPE(r < 3 ? r : 2, c < 130 ? c : 130, c < 130 ? c : 130), dtype, true);
        WALK(ignis_cholesky(matrix, &sum));
        WALK(ignis_solve(matrix, matrix, &sum));
        WALK(ignis_inverse(matrix, &sum));
        WALK(ignis_solve_triangular(matrix, matrix, NULL));
        WALK(ignis_logdet(matrix, &sum));
        WALK(ignis_lu(matrix, &sum));
        WALK(ignis_qr(matrix, &sum));
        WALK(ignis_eigh(matrix, &sum));
        WALK(ignis_svd(matrix, &sum, &more[0]));
        WALK(ignis_matrix_exp(matrix));
    }
    WALK(ignis_quantize_f8(ignis_detach(x), IGNIS_F8_E4M3, true, &sum));
    WALK(ignis_quantize_f8(ignis_detach(x), IGNIS_F8_E5M2, true, &sum));
    WALK(ignis_mse_loss(x, y, IGNIS_REDUCTION_MEAN));
    WALK(ignis_l1_loss(x, y, IGNIS_REDUCTION_SUM));
    WALK(ignis_huber_loss(x, y, 1, IGNIS_REDUCTION_NONE));
    WALK(ignis_bce_with_logits(x, y, NULL));
    WALK(ignis_kl_div(x, y, true, IGNIS_REDUCTION_MEAN));
    WALK(ignis_cosine_similarity(x, y));
    WALK(ignis_cross_entropy(x, ids, NULL));
    WALK(ignis_cross_entropy(x, ids, &smooth));
    WALK(ignis_nll_loss(x, ids, NULL));
    WALK(ignis_linear_cross_entropy(x, w, ids, NULL));
    WALK(ignis_sdpa(heads, keys, keys, &sdpa));
    sdpa.mask = IGNIS_MASK_CAUSAL;
    WALK(ignis_sdpa_packed(packed, &sdpa, NULL));
    rope.num_heads = 4;
    WALK(ignis_sdpa_packed(packed, &sdpa, &rope));
    WALK(ignis_decode_sdpa(query, cache, cache, 2));
    sdpa.window = 100;
    WALK(ignis_sdpa(heads, keys, keys, &sdpa));
    WALK(ignis_decode_sdpa_with(query, cache, cache, &sdpa));
    sdpa.lengths = ones(IGNIS_SHAPE(1), IGNIS_I32, false);
    WALK(ignis_sdpa(heads, keys, keys, &sdpa));
    sdpa.softcap = 30;
    WALK(ignis_sdpa(heads, keys, keys, &sdpa));
    sdpa.lengths = no_tensor();
    sdpa.offsets = ones(IGNIS_SHAPE(3), IGNIS_I32, false);
    WALK(ignis_sdpa_packed(packed, &sdpa, &rope));
    sdpa.sinks = ones(IGNIS_SHAPE(2), dtype, true);
    WALK(ignis_sdpa_packed(packed, &sdpa, NULL));
    for (i = 0; i < 5; i++)
        if (number++ == chosen)
            walk_optimizer(i, x, row);
    CHECK_OK(ignis_scope_end(scope));
    return number;
}

/*  What a record made at one size misses at others: nothing. */
TEST(a_record_of_one_size_serves_others)
{
    static const struct {
        int64_t rows, columns;
    } sizes[] = {{1, 1},   {1, 64},  {2, 3},    {3, 768},  {5, 1000}, {7, 1024}, {64, 1},    {300, 33},
                 {9, 257}, {2, 520}, {4, 1536}, {3, 4096}, {33, 40},  {2, 8200}, {2048, 16}, {1, 20000}},
      bases[] = {{6, 96}, {6, 96}, {6, 96}, {1, 64}, {5, 1000}};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64, IGNIS_BF16, IGNIS_F32};
    static const struct {
        int major, minor, processors, shared;
        const char *arch;
    } devices[] = {{9, 0, 132, 232448, "90a"}, {8, 6, 84, 101376, "80"}, {7, 5, 40, 65536, "75"}};
    ignis_device_info device;
    int d, t, s, at, count = 1;
    memset(&device, 0, sizeof device);
    names_of("walked");
    for (t = 0; t < COUNT_OF(dtypes); t++) {
        for (at = 0; at < count; at++) {
            ignis_desc desc = recording();
            remove(record);
            desc.dry_run = true;
            SETUP(&desc);
            count = one_operation(at, dtypes[t], bases[t].rows, bases[t].columns);
            CHECK_OK(ignis_shutdown());
            for (d = 0; d < COUNT_OF(devices); d++) {
                ignis_desc there = alone();
                there.dry_run = true;
                there.dry_device = &device;
                device.compute_major = devices[d].major, device.compute_minor = devices[d].minor;
                device.multiprocessors = devices[d].processors, device.shared_per_block = devices[d].shared;
                embed_dry(devices[d].arch);
                SETUP(&there);
                for (s = 0; s < 2 * COUNT_OF(sizes); s++) {
                    ones_at = s % 2;
                    (void)one_operation(at, dtypes[t], sizes[s / 2].rows, sizes[s / 2].columns);
                }
                ones_at = 0;
                CHECK_OK(ignis_shutdown());
            }
        }
    }
    CHECK(count > 80);
}

/*  A formula and its sums at a size, with a gradient; whether they are right. */
static bool formula_is_right(int64_t rows, int64_t columns, int64_t offset)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, columns), IGNIS_F32, 1, 0, 1, offset, true);
    ignis_tensor row = noise_at(IGNIS_SHAPE(columns), IGNIS_F32, 2, 0, 1, offset, true), y, sums, total;
    ignis_reduce_desc first;
    double *a = tensor_values(x), *b = tensor_values(row), *to, *of_rows, *gradient, all = 0;
    int64_t i, k;
    bool right = true;
    memset(&first, 0, sizeof first);
    first.dim_count = 1;
    y = ignis_map("2*x + x*row", IGNIS_INPUTS(x, row));
    sums = ignis_map_reduce(IGNIS_REDUCE_SUM, "x*row", IGNIS_INPUTS(x, row), &first);
    total = ignis_map_mean("x*x*row", IGNIS_INPUTS(x, row));
    CHECK_OK(ignis_backward(total, IGNIS_NO_ARRAY));
    to = tensor_values(y), of_rows = tensor_values(sums), gradient = array_values(ignis_tensor_grad(row));
    for (k = 0; k < columns && right; k++) {
        double sum = 0, of_row = 0;
        for (i = 0; i < rows; i++) {
            double at = a[i * columns + k];
            right = right && is_close(to[i * columns + k], 2 * at + at * b[k], 1e-5);
            sum += at * b[k];
            of_row += at * at / (double)(rows * columns);
            all += at * at * b[k] / (double)(rows * columns);
        }
        right = right && is_close(of_rows[k], sum, 1e-4) && is_close(gradient[k], of_row, 1e-5);
    }
    right = right && is_close(value_at(total, 0), all, 1e-4);
    free(a), free(b), free(to), free(of_rows), free(gradient);
    CHECK_OK(ignis_scope_end(scope));
    return right && ignis_status_last() == IGNIS_OK;
}

/*  Kernels for any shapes compute what those of a shape do. */
TEST(a_formula_runs_at_any_size)
{
    static const struct {
        int64_t rows, columns, offset;
    } sizes[] = {{4, 64, 0}, {1, 1, 0},    {1, 70, 0},  {70, 1, 0},   {3, 5, 0},
                 {2, 64, 1}, {5, 1001, 3}, {300, 7, 0}, {1, 5000, 2}, {5000, 2, 0}};
    ignis_desc desc = recording();
    const char *arch;
    char line[1200], *start;
    int i;
    if (getenv("IGNIS_SIM_SANITIZE"))
        SKIP("its kernels take minutes to compile, and other tests run them");
    names_of("formulas");
    SETUP(&desc);
    arch = own_arch();
    CHECK(formula_is_right(sizes[0].rows, sizes[0].columns, 0));
    CHECK_OK(ignis_shutdown());
    CHECK_INT(lines_with(record, "formula 0-999 \"2*x + x*row\" \"x, row\" 2 0 "), 1);
    embed("--archs", arch, false);
    desc = alone();
    SETUP(&desc);
    for (i = 0; i < COUNT_OF(sizes); i++)
        CHECK(formula_is_right(sizes[i].rows, sizes[i].columns, sizes[i].offset));
    { /* one that is missing is named, and its line is all that a record needs */
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(3, 5), IGNIS_F32, 1, false);
        CHECK_FAILS(ignis_map("x + 0.5", IGNIS_INPUTS(x)), IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
        CHECK_MESSAGE_HAS("ignis_map: the formula 'x + 0.5' is not in ");
        start = strstr(test__message, "add this line to the record: ");
        REQUIRE(start);
        snprintf(line, sizeof line, "%.*s\n", (int)strcspn(start + 29, "\n"), start + 29);
        let_go(x);
    }
    CHECK_OK(ignis_shutdown());
    test_write_file(record, line, strlen(line));
    embed("--archs", arch, false);
    SETUP(&desc);
    CHECK_OK(ignis_bundle_check(NULL));
    {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(8, 9), IGNIS_F32, 1, false),
                     y = ignis_map("x + 0.5", IGNIS_INPUTS(x));
        CHECK_CLOSE(value_at(y, 71), value_at(x, 71) + 0.5, 1e-6);
        let_go(x), let_go(y);
    }
}

/* --- damaged bundles ---------------------------------------------------------------------------------------------- */

/*  Bytes of a small bundle. */
static char *small_bundle(size_t *size)
{
    ignis_desc desc = recording();
    ignis_kernel_desc plus = plus_desc(step_five);
    const char *arch;
    names_of("small");
    remove(record);
    if (!test__setup(__FILE__, __LINE__, &desc))
        abort();
    arch = own_arch();
    CHECK(plus_adds(&plus, 5));
    CHECK_OK(ignis_shutdown());
    embed("--archs", arch, true);
    return text_of(bundle_file, size);
}

/*  Makes the checksums right again: of an image, and of the entries. */
static void sign(char *bytes, size_t image)
{
    ignis__bundle_header header;
    ignis__bundle_entry entry;
    size_t at = sizeof header + image * sizeof entry, behind = offsetof(ignis__bundle_header, size);
    memcpy(&header, bytes, sizeof header);
    memcpy(&entry, bytes + at, sizeof entry);
    if (entry.offset <= header.size && entry.stored <= header.size - entry.offset)
        entry.checksum = ignis__hash(IGNIS__HASH_START, bytes + entry.offset, (size_t)entry.stored);
    memcpy(bytes + at, &entry, sizeof entry);
    header.checksum = ignis__hash(IGNIS__HASH_START, bytes + behind, (size_t)header.blocks - behind);
    memcpy(bytes, &header, sizeof header);
}

static void refused(const char *bytes, size_t size, const char *part)
{
    ignis_desc desc = alone();
    desc.bundle_path = NULL;
    desc.bundle = bytes;
    desc.bundle_size = size;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
    CHECK_MESSAGE_HAS("ignis_desc.bundle is damaged");
    CHECK_MESSAGE_HAS(part);
    CHECK_OK(ignis_shutdown());
}

/*  Set up with a bundle whose check fails with this; and its kernel is not run. */
static void found(const char *bytes, size_t size, ignis_status status, ignis_diagnostic diagnostic, const char *part)
{
    ignis_desc desc = alone();
    ignis_kernel_desc plus = plus_desc(step_five);
    desc.bundle_path = NULL;
    desc.bundle = bytes;
    desc.bundle_size = size;
    SETUP(&desc);
    CHECK_STATUS(ignis_bundle_check(NULL), status, diagnostic);
    CHECK_MESSAGE_HAS(part);
    if (diagnostic == IGNIS_DIAG_BUNDLE_FORMAT) {
        CHECK_FAILS(ignis_kernel_compile(&plus), status, diagnostic);
        CHECK_MESSAGE_HAS("plus.cu plus<float> -DSTEP=5");
    }
    CHECK_OK(ignis_shutdown());
}

TEST(a_damaged_bundle_is_refused)
{
    size_t size, images, last, i;
    char *bytes = small_bundle(&size), *copy_of = (char *)malloc(size + 1);
    ignis__bundle_header header;
    ignis__bundle_entry entry;
    ignis_desc desc = alone();
    char part[64];
    REQUIRE(bytes && copy_of && size > sizeof header);
    memcpy(&header, bytes, sizeof header);
    images = (size_t)header.blocks;
    desc.bundle_path = NULL;
    for (last = 0; last + 1 < header.count; last++) { /* the entry of the kernel */
        memcpy(&entry, bytes + sizeof header + last * sizeof entry, sizeof entry);
        if (strncmp(bytes + entry.text, "plus.cu", 7) == 0)
            break;
    }
    memcpy(&entry, bytes + sizeof header + last * sizeof entry, sizeof entry);
    REQUIRE(strncmp(bytes + entry.text, "plus.cu", 7) == 0);

    for (i = 0; i < size; i += i < 400 ? 1 : size / 50) { /* cut off */
        memcpy(copy_of, bytes, i);
        refused(copy_of, i, i < sizeof header ? "48 are the least" : "and says that it has");
    }
    memcpy(copy_of, bytes, size);
    copy_of[size] = 0;
    refused(copy_of, size + 1, "and says that it has");
    for (i = 0; i < images; i += 7) { /* one bit is wrong */
        memcpy(copy_of, bytes, size);
        copy_of[i] = (char)(copy_of[i] ^ 1 << i % 8);
        refused(copy_of, size, i < 8 ? "IGNISBN2" : "");
    }
    for (i = (size_t)entry.offset; i < (size_t)(entry.offset + entry.stored); i += (size_t)entry.stored / 9 + 1) {
        memcpy(copy_of, bytes, size);
        copy_of[i] = (char)(copy_of[i] ^ 16);
        found(copy_of, size, IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT, "which should be");
        sign(copy_of, last); /* the checksum, too: it may unpack to anything, and harms nobody */
        desc.bundle = copy_of;
        desc.bundle_size = size;
        SETUP(&desc);
        (void)ignis_bundle_check(NULL);
        ignis_status_clear();
        CHECK_OK(ignis_shutdown());
    }
#define LIES(field, value, part)                                                 \
    do {                                                                         \
        ignis__bundle_entry lie = entry;                                         \
        lie.field = value;                                                       \
        memcpy(copy_of, bytes, size);                                            \
        memcpy(copy_of + sizeof header + last * sizeof entry, &lie, sizeof lie); \
        sign(copy_of, last);                                                     \
        refused(copy_of, size, part);                                            \
    } while (0)
    snprintf(part, sizeof part, "entry %d of %d", (int)last, (int)header.count);
    LIES(offset, UINT64_MAX, part);
    LIES(offset, 8, part);
    LIES(offset, size + 1, part);
    LIES(stored, UINT64_MAX - 5, part);
    LIES(stored, size - entry.offset + 1, part);
    LIES(whole, entry.stored - 1, part);
    LIES(whole, UINT64_MAX, part);
    LIES(size, entry.whole, part);
    LIES(size, UINT64_MAX, part);
    LIES(at, entry.whole, part);
    LIES(at, UINT64_MAX, part);
    LIES(text, 0, part);
    LIES(text, (uint32_t)images, part);
    LIES(text, (uint32_t)images - 1, part);
    LIES(kind, 'x', part);
#undef LIES
    entry.whole = entry.stored + 1; /* less than is packed: what comes is the beginning of an image */
    entry.at = 0;
    entry.size = entry.stored;
    memcpy(copy_of, bytes, size);
    memcpy(copy_of + sizeof header + last * sizeof entry, &entry, sizeof entry);
    sign(copy_of, last);
    found(copy_of, size, IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT, "damaged");
    free(bytes);
    free(copy_of);
}

#ifndef _WIN32
/*  Bundles and records that the environment names are this user's, and nobody else may write to them; links are not
    followed to write. */
TEST(the_environment_names_files_of_ones_own)
{
    static const struct {
        unsigned mode, owner;
        const char *said;
    } ways[] = {{0666, 0, "others may write to it (mode 0666)"},
                {0660, 0, "others may write to it (mode 0660)"},
                {0, 12345, "its owner is user 12345, and this process runs as user "}};
    ignis_desc desc = test_desc(NULL);
    ignis_kernel_desc plus = plus_desc(step_five);
    char target_of[300];
    struct stat info;
    size_t size, before;
    mode_t mask;
    int i;
    mask = umask(0);
    names_of("small");
    remove(bundle_file);
    free(small_bundle(&size)); /* whatever others may do by the umask */
    (void)umask(mask);
    CHECK(stat(bundle_file, &info) == 0 && (info.st_mode & 022) == 0);
    CHECK(stat(record, &info) == 0 && (info.st_mode & 022) == 0);
    CHECK_INT(chmod(bundle_file, 0664), 0); /* as older versions have made it */
    free(small_bundle(&size));
    CHECK(stat(bundle_file, &info) == 0 && (info.st_mode & 0777) == 0644);
    for (i = 0; i < COUNT_OF(ways); i++) {
        const char *path;
        if (ways[i].owner && geteuid() != 0)
            continue;
        for (path = bundle_file; path; path = path == bundle_file ? record : NULL) {
            const char *variable = path == record ? "IGNIS_RECORD" : "IGNIS_BUNDLE";
            CHECK_INT(ways[i].mode ? chmod(path, ways[i].mode) : chown(path, ways[i].owner, ways[i].owner), 0);
            setenv(variable, path, 1);
            CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_BUNDLE_IO);
            CHECK_MESSAGE_HAS(variable);
            CHECK_MESSAGE_HAS(path);
            CHECK_MESSAGE_HAS(ways[i].said);
            CHECK_INT(chmod(path, 0644), 0);
            if (ways[i].owner)
                CHECK_INT(chown(path, geteuid(), getegid()), 0);
            SETUP(&desc);
            CHECK(plus_adds(&plus, 5));
            CHECK_OK(ignis_shutdown());
            unsetenv(variable);
        }
    }
    snprintf(target_of, sizeof target_of, "%s/target", test_folder);
    test_write_file(target_of, "mine\n", 5);
    remove(record);
    CHECK_INT(symlink(target_of, record), 0);
    for (i = 0; i < 2; i++) { /* whoever names it */
        desc.record = i ? record : NULL;
        setenv("IGNIS_RECORD", record, 1);
        CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_BUNDLE_IO);
        unsetenv("IGNIS_RECORD");
    }
    free(text_of(target_of, &before));
    CHECK_INT(before, 5);
}
#endif

TEST(a_bundle_of_another_version_is_told)
{
    size_t size;
    char *bytes = small_bundle(&size);
    ignis__bundle_header header, lie;
    ignis_desc desc = alone();
    memcpy(&header, bytes, sizeof header);
    lie = header;
    lie.version = 103;
    memcpy(bytes, &lie, sizeof lie);
    sign(bytes, 0);
    found(bytes, size, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_BUNDLE_MISMATCH, "ignis_embed of version 0.1.3");
    lie = header;
    lie.sources ^= 1;
    memcpy(bytes, &lie, sizeof lie);
    sign(bytes, 0);
    found(bytes, size, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_BUNDLE_MISMATCH, "other kernels of Ignis");
    free(bytes);
    desc.bundle_path = record; /* no bundle at all */
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_FORMAT, IGNIS_DIAG_BUNDLE_FORMAT);
}

/*  Whatever allocation fails: a failure is reported, and the next try is right. */
TEST(without_memory_a_bundle_waits)
{
    size_t size;
    host_counter counter;
    ignis_desc desc;
    ignis_kernel_desc plus = plus_desc(step_five);
    ignis_kernel kernel;
    bool reached = true;
    int at, failures = 0;
    free(small_bundle(&size));
    desc = test_counting_desc(&counter);
    desc.bundle_path = bundle_file;
    desc.compile = IGNIS_COMPILE_NEVER;
    desc.cache_dir = "off";
    for (at = 1; at < 200 && reached; at++) {
        host_counter_init(&counter);
        fault_plan(NULL, at, 2, &counter, false);
        if (ignis_setup(&desc) == IGNIS_OK) {
            (void)ignis_bundle_check(NULL);
            kernel = ignis_kernel_compile(&plus);
            reached = fault_over(&counter);
            failures += ignis_status_last() != IGNIS_OK;
            if (ignis_status_last() != IGNIS_OK)
                CHECK_INT(ignis_status_last(), IGNIS_ERROR_MEMORY);
            ignis_status_clear();
            if (kernel.id)
                CHECK_OK(ignis_kernel_free(kernel));
            CHECK(plus_adds(&plus, 5));
            CHECK_OK(ignis_shutdown());
        } else {
            reached = fault_over(&counter);
            failures++;
            CHECK(reached);
            ignis_status_clear();
        }
        CHECK_INT(counter.blocks, 0);
    }
    CHECK(failures > 5);
}

/* --- images of the caller ----------------------------------------------------------------------------------------- */

TEST(a_kernel_from_an_image)
{
    static const char source[] =
        "extern \"C\" __global__ void plus(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 3; }\n";
    static const char *const none[1] = {NULL};
    ignis_desc setup = test_desc(NULL);
    ignis_kernel_desc desc, other;
    ignis_kernel_info info;
    ignis__program program;
    ignis__kernel_binary image;
    ignis_kernel kernel;
    char arch[32], *bytes;
    size_t i;
    setup.cache_dir = test_path("cache");
    SETUP(&setup);
    memset(&program, 0, sizeof program);
    memset(&image, 0, sizeof image);
    memset(&desc, 0, sizeof desc);
    program.source = source;
    program.name = "plus.cu";
    program.options = none;
    snprintf(arch, sizeof arch, "-arch=sm_%s", own_arch());
    REQUIRE(ignis__library_load("test", IGNIS_LIBRARY_NVRTC));
    REQUIRE(ignis__kernel_binary_compile("test", &program, arch, false, &image));
    desc.image = image.data;
    desc.image_size = image.size;
    desc.entry = "plus";
    CHECK(plus_adds(&desc, 3));
    kernel = ignis_kernel_compile(&desc);
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK(info.from_cache);
    CHECK_OK(ignis_kernel_free(kernel));
    empty_begin();
    CHECK_OK(ignis_warmup(&desc, 1));
    empty_end();

    other = desc;
    other.source = source;
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    other = desc;
    other.entry = NULL;
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    other = desc;
    other.entry = "minus";
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_COMPILE, IGNIS_DIAG_ENTRY_MISSING);
    other = desc;
    for (i = 0; i < image.size; i += i < 70 ? 23 : image.size / 3 + 1) { /* cut off: the driver never sees it */
        other.image_size = i;
        CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_FORMAT, IGNIS_DIAG_KERNEL_IMAGE);
    }
    CHECK_MESSAGE_HAS("image of kernel plus");
    bytes = (char *)malloc(image.size);
    REQUIRE(bytes);
    other.image = bytes;
    other.image_size = image.size;
    memcpy(bytes, image.data, image.size);
    memset(bytes + 40, 0xFF, 8); /* its sections are elsewhere */
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_FORMAT, IGNIS_DIAG_KERNEL_IMAGE);
    CHECK_MESSAGE_HAS("tables are not inside");
    memset(bytes, 'x', image.size);
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_FORMAT, IGNIS_DIAG_KERNEL_IMAGE);
    CHECK_MESSAGE_HAS("neither a cubin, nor a fatbin, nor PTX");
    memcpy(bytes, "\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff\xff\xff\x00\x00\x00\x00", 16);
    CHECK_FAILS(ignis_kernel_compile(&other), IGNIS_ERROR_FORMAT, IGNIS_DIAG_KERNEL_IMAGE);
    CHECK_MESSAGE_HAS("a fatbin that says it is longer");
    free(bytes);
    bytes = NULL;
    other.image = ".version 9.9\n.target sm_75\nnonsense";
    other.image_size = strlen((const char *)other.image);
    CHECK(ignis_kernel_compile(&other).id == 0); /* the driver's to say */
    CHECK(ignis_status_last() == IGNIS_ERROR_UNSUPPORTED || ignis_status_last() == IGNIS_ERROR_CUDA);
    ignis_status_clear();
    ignis__free(image.memory);
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

TEST(what_is_packed_is_unpacked)
{
    static const size_t sizes[] = {1, 2, 3, 15, 16, 17, 100, 299, 300, 301, 1000, 4099, 70001};
    unsigned char *bytes = (unsigned char *)malloc(70001), *packed;
    size_t size, i;
    int s, kind;
    REQUIRE(bytes);
    costs_make();
    for (s = 0; s < COUNT_OF(sizes); s++) {
        for (kind = 0; kind < 4; kind++) { /* zeros, noise, repetition at 16, words; pack itself compares */
            for (i = 0; i < sizes[s]; i++)
                bytes[i] =
                    (unsigned char)(kind == 0   ? 0
                                    : kind == 1 ? (int)(noise(1, (int64_t)i) * 128)
                                    : kind == 2 ? (int)(i % 16 + (i / 400) * (i % 3))
                                                : "the same words again and again "[i % 31 * (i / 1000 + 1) % 31]);
            packed = pack(bytes, sizes[s], &size);
            CHECK(size <= sizes[s]);
            if (kind != 1 && sizes[s] > 200)
                CHECK(size < sizes[s] / 3);
            free(packed);
        }
    }
    free(bytes);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
