// SPDX-License-Identifier: MIT
/*  test_cache.c - compiled kernels on disk: hits, damage, folders that cannot be used, limits, many processes */
#include "fault.h"
#include "test.h"

#include "processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { MAX_FILES = 32, PROCESSES = 8 };

static char folder[256]; /* of the test that is running */

/* --- the folder ----------------------------------------------------------------------------------------------- */

typedef struct files {
    int count;
    long long bytes;
    char path[MAX_FILES][600];
    long long size[MAX_FILES];
} files;

static void list_files(const char *dir_path, files *out)
{
    DIR *dir = opendir(dir_path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        char path[600];
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(entry->d_name, "nvrtc.txt") == 0)
            continue;
        snprintf(path, sizeof path, "%.300s/%.255s", dir_path, entry->d_name);
        if (stat(path, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode))
            list_files(path, out);
        else if (out->count < MAX_FILES) {
            snprintf(out->path[out->count], sizeof out->path[0], "%s", path);
            out->size[out->count++] = (long long)status.st_size;
            out->bytes += (long long)status.st_size;
        }
    }
    if (dir)
        closedir(dir);
}

static files cached(void)
{
    files all;
    memset(&all, 0, sizeof all);
    list_files(folder, &all);
    return all;
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = (unsigned char *)malloc(1 << 22);
    if (!file || !bytes)
        abort();
    *size = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    return bytes;
}

/*  A fresh, empty folder for the test, and a setup that uses it. */
static void setup_in(const char *name)
{
    ignis_desc desc = test_desc(NULL);
    if (name)
        snprintf(folder, sizeof folder, "%s/%.100s", test_folder, name), mkdir(folder, 0700);
    desc.cache_dir = folder;
    CHECK_OK(ignis_setup(&desc));
}

static void setup_again(void)
{
    CHECK_OK(ignis_shutdown());
    setup_in(NULL);
}

/* --- a kernel that adds step, in as many versions as there are steps ------------------------------------------- */

static ignis_kernel compile(int step)
{
    char option[32];
    snprintf(option, sizeof option, "-DSTEP=%d", step);
    return test_compile("extern \"C\" __global__ void plus(float *x) { x[threadIdx.x] += STEP; }\n", "plus", option);
}

/*  Compiles and runs the kernel; returns whether it came from the cache. */
static bool use(int step)
{
    ignis_kernel_info info;
    ignis_launch launch = test_launch(1, 8);
    ignis_kernel kernel = compile(step);
    ignis_array a = test_array(1, 8);
    ignis_arg arg = ignis_arg_array(a);
    float data[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int i;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, 8));
    for (i = 0; i < 8; i++)
        CHECK(data[i] == (float)(i + step));
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_kernel_free(kernel));
    return info.from_cache;
}

/* --- hits ----------------------------------------------------------------------------------------------------- */

TEST(second_compile_is_a_hit)
{
    setup_in("hit");
    CHECK(!use(1));
    CHECK_INT(cached().count, 1);
    CHECK(use(1)); /* in this process' memory */
    setup_again();
    fault_reset_counts();
    CHECK(use(1)); /* from the disk */
    CHECK_INT(fault_count("nvrtcCompileProgram"), 0);
    CHECK_INT(cached().count, 1);
    CHECK(!use(2)); /* another option is another program */
    CHECK_INT(cached().count, 2);
    CHECK_INT(test_log_count(IGNIS_DIAG_CACHE_IO), 0);
}

static void compile_fails(int step, ignis_status status, ignis_diagnostic diagnostic)
{
    CHECK_INT(compile(step).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_kernel_compile(", status, diagnostic);
}

/*  The version of NVRTC is part of the key, so that a newer NVRTC is used as soon as it is installed. Without NVRTC,
    kernels that the last one has compiled are used. */
TEST(a_hit_needs_no_compiler)
{
    ignis_desc desc = test_desc(NULL);
    char path[400];
    setup_in("compiler");
    CHECK(!use(1));
    CHECK_OK(ignis_shutdown());
    desc.cache_dir = folder;
    desc.compile = IGNIS_COMPILE_NEVER;
    SETUP(&desc);
    fault_reset_counts();
    CHECK(use(1));
    compile_fails(2, IGNIS_ERROR_COMPILE, IGNIS_DIAG_KERNEL_MISSING);
    CHECK_MESSAGE_HAS("kernel.cu plus -DSTEP=2 is not in the kernel cache");
    CHECK_INT(fault_count("nvrtcVersion"), 0);
    CHECK_OK(ignis_shutdown());
    desc.compile = IGNIS_COMPILE_AUTO;
#ifndef IGNIS_LINK_CUDA
    desc.nvrtc_library = "missing/libnvrtc.so";
    SETUP(&desc);
    CHECK(use(1));
    compile_fails(2, IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_OK(ignis_shutdown());
    snprintf(path, sizeof path, "%s/nvrtc.txt", folder);
    test_write_file(path, "123\n", 4); /* another one was the last */
    SETUP(&desc);
    compile_fails(1, IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(remove(path), 0);
    SETUP(&desc);
    compile_fails(1, IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_OK(ignis_shutdown());
#endif
    desc.nvrtc_library = NULL;
    SETUP(&desc);
    CHECK(use(1));
}

/*  Starts a process that uses the folder, and ends with 10 when it compiled, 11 when the cache had the kernel. */
static process start_child(int step)
{
    char role[16];
    process child;
    snprintf(role, sizeof role, "%d", step);
    child = process_start(role);
    CHECK(process_send(child.socket, folder, sizeof folder, -1));
    return child;
}

static int role_uses(int step)
{
    bool hit;
    if (!process_receive(PROCESS_SOCKET, folder, sizeof folder, NULL))
        return 1;
    setup_in(NULL);
    hit = use(step);
    if (test__state.failures || test_log_count(IGNIS_DIAG_CACHE_IO))
        return 2;
    return ignis_shutdown() == IGNIS_OK ? 10 + hit : 3;
}

TEST(another_process_hits)
{
    process child;
    int i;
    setup_in("process");
    for (i = 0; i < 2; i++) {
        child = start_child(5);
        CHECK_INT(process_end(&child), 10 + i);
    }
    CHECK(use(5));
}

TEST(many_processes_share_a_folder)
{
    process children[PROCESSES];
    files all;
    int i, code;
    snprintf(folder, sizeof folder, "%s/many", test_folder);
    for (i = 0; i < PROCESSES; i++)
        children[i] = start_child(i % 2);
    for (i = 0; i < PROCESSES; i++) {
        code = process_end(&children[i]);
        CHECK(code == 10 || code == 11);
    }
    all = cached();
    CHECK_INT(all.count, 2); /* and no temporary file */
    setup_in(NULL);
    CHECK(use(0));
    CHECK(use(1));
}

/* --- included files --------------------------------------------------------------------------------------------- */

static char headers[200]; /* a folder for them */

static void write_header(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", headers, name);
    test_write_file(path, text, strlen(text));
}

/*  A folder of headers: step.h has the step that the kernel adds, outer.h includes it from a folder beside it and by
    way of its own folder. */
static void make_headers(const char *name)
{
    char path[300];
    snprintf(headers, sizeof headers, "%s/%s", test_folder, name);
    CHECK_INT(mkdir(headers, 0700), 0);
    snprintf(path, sizeof path, "%s/inner", headers);
    CHECK_INT(mkdir(path, 0700), 0);
    write_header("step.h", "#define STEP 1\n");
    write_header("outer.h", "#pragma once\n#include \"inner/middle.h\"\n");
    write_header("inner/middle.h", "#pragma once\n#  include \"../outer.h\"\n#include \"../inner/../step.h\"\n");
}

/*  Compiles and runs a kernel with includes; returns whether it came from the cache. */
static bool use_included(const ignis_kernel_desc *with, const char *include, int step)
{
    char source[600];
    ignis_kernel_desc desc = *with;
    ignis_kernel_info info;
    ignis_launch launch = test_launch(1, 8);
    ignis_array a = test_array(1, 8);
    ignis_arg arg = ignis_arg_array(a);
    ignis_kernel kernel;
    float data[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    snprintf(source, sizeof source, "%s\nextern \"C\" __global__ void plus(float *x) { x[threadIdx.x] += STEP; }\n",
             include);
    desc.source = source;
    desc.entry = "plus";
    memset(&info, 0, sizeof info);
    kernel = ignis_kernel_compile(&desc);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, 8));
    CHECK_INT((long long)data[7], 7 + step);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_kernel_free(kernel));
    return info.from_cache;
}

/*  An image is that of the files as they are now: in memory, and on disk for the next process. */
static void check_edits(const ignis_kernel_desc *with, const char *include)
{
    write_header("step.h", "#define STEP 1\n");
    CHECK(!use_included(with, include, 1));
    CHECK(use_included(with, include, 1));
    write_header("step.h", "#define STEP 2\n");
    CHECK(!use_included(with, include, 2));
    setup_again();
    CHECK(use_included(with, include, 2));
    write_header("step.h", "#define STEP 3\n");
    setup_again();
    CHECK(!use_included(with, include, 3));
    write_header("step.h", "#define STEP 1\n");
    CHECK(use_included(with, include, 1));
}

TEST(an_edited_header_is_compiled_anew)
{
    char joined[256], equals[256], spaced[256], file[256], beside[256], absolute[256];
    const char *options[2];
    ignis_kernel_desc with;
    int way;
    make_headers("edited");
    setup_in("edits");
    snprintf(joined, sizeof joined, "-I%s", headers);
    snprintf(equals, sizeof equals, "--include-path=%s", headers);
    snprintf(spaced, sizeof spaced, "-I %s", headers);
    snprintf(file, sizeof file, "%s/step.h", headers);
    snprintf(beside, sizeof beside, "%s/kernel.cu", headers);
    snprintf(absolute, sizeof absolute, "#include \"%s/step.h\"", headers);
    for (way = 0; way < 9; way++) {
        static const char *const first[] = {NULL, NULL, NULL, "-I", "--include-path", "-include", NULL, NULL, NULL};
        memset(&with, 0, sizeof with);
        options[0] = way == 0 || way == 8 ? joined : way == 1 ? equals : way == 2 ? spaced : first[way];
        options[1] = way == 5 ? file : headers;
        with.options = options;
        with.option_count = first[way] ? 2 : options[0] ? 1 : 0;
        with.name = way == 6 ? beside : NULL;
        check_edits(&with, way == 5   ? ""
                           : way == 7 ? absolute
                           : way == 8 ? " #  include <outer.h> // again"
                                      : "#include \"step.h\"");
    }
    CHECK_INT(test_log_count(IGNIS_DIAG_CACHE_IO), 0);
}

/*  A header that appears in a folder that is searched earlier is the one that counts. */
TEST(a_header_that_appears_is_seen)
{
    const char *options[4] = {"-I", NULL, "-I", NULL};
    char inner[256], path[300];
    ignis_kernel_desc with;
    make_headers("appears");
    setup_in("appearing");
    snprintf(inner, sizeof inner, "%s/inner", headers);
    options[1] = inner;
    options[3] = headers;
    memset(&with, 0, sizeof with);
    with.options = options;
    with.option_count = 4;
    CHECK(!use_included(&with, "#include <step.h>", 1));
    CHECK(use_included(&with, "#include <step.h>", 1));
    write_header("inner/step.h", "#define STEP 5\n");
    CHECK(!use_included(&with, "#include <step.h>", 5));
    snprintf(path, sizeof path, "%s/step.h", inner);
    CHECK_INT(unlink(path), 0);
    CHECK(use_included(&with, "#include <step.h>", 1));
}

TEST(what_a_macro_includes_is_not_cached)
{
    static const char include[] = "#define NAME \"step.h\"\n#include NAME";
    const char *option = headers;
    ignis_kernel_desc with;
    char joined[256];
    make_headers("macro");
    setup_in("macros");
    snprintf(joined, sizeof joined, "-I%s", headers);
    option = joined;
    memset(&with, 0, sizeof with);
    with.options = &option;
    with.option_count = 1;
    CHECK(!use_included(&with, include, 1));
    CHECK_INT(cached().count, 0);
    write_header("step.h", "#define STEP 2\n");
    CHECK(!use_included(&with, include, 2));
    CHECK(!use_included(&with, "#define NAME <step.h>\n#include /* behind a comment */ NAME", 2));
    CHECK_INT(cached().count, 0);
    CHECK(!use_included(&with, "/* an include is no directive here */\n#define STEP 4", 4));
    CHECK_INT(cached().count, 1);
}

/*  Whatever an #include looks like, an edit of what it reads is seen. */
TEST(includes_are_found_wherever_they_are)
{
    static const char *const includes[] = {
        "/* include \"this, they said */\n#include \"step.h\"", /* a quote that does not end */
        "// include <this\n#include <step.h>\n// or > that",    /* a bracket that ends elsewhere */
        "#inc\\\nlude \"step.h\"",                              /* a word in two lines */
        "#include \\\n  \"step.h\"",                            /* a directive in two lines */
        "#include \"linked/../step.h\"",                        /* a folder that is not where its name says */
        "#include \"step.h\"\n#include \"linked/../step.h\"",   /* two files, of one name if that were so */
    };
    char target[256], link[256], option[256];
    const char *options[1];
    ignis_kernel_desc with;
    int i;
#ifdef _WIN32 /* symbolic links are for administrators there */
    int count = 4;
#else
    int count = (int)(sizeof includes / sizeof *includes);
#endif
    for (i = 0; i < count; i++) {
        char name[16];
        const char *edited = i < 4 ? "step.h" : "elsewhere/step.h";
        snprintf(name, sizeof name, "found-%d", i);
        (void)ignis_shutdown();
        make_headers(name);
        setup_in(name);
        snprintf(target, sizeof target, "%s/elsewhere", headers);
        CHECK_INT(mkdir(target, 0700), 0);
        snprintf(target, sizeof target, "%s/elsewhere/folder", headers);
        CHECK_INT(mkdir(target, 0700), 0);
        snprintf(link, sizeof link, "%s/linked", headers);
        CHECK_INT(i < 4 ? 0 : symlink("elsewhere/folder", link), 0);
        snprintf(option, sizeof option, "-I%s", headers);
        options[0] = option;
        memset(&with, 0, sizeof with);
        with.options = options;
        with.option_count = 1;
        write_header("step.h", i == 5 ? "\n" : "#define STEP 1\n");
        write_header(edited, "#define STEP 2\n");
        CHECK(!use_included(&with, includes[i], 2));
        write_header(edited, "#define STEP 3\n");
        CHECK(!use_included(&with, includes[i], 3));
    }
}

/*  What __has_include asks of a macro is not known either. */
TEST(what_a_macro_asks_for_is_not_cached)
{
    static const char ask[] =
        "#define NAME \"new.h\"\n#if __has_include(NAME)\n#define STEP 2\n#else\n#define STEP 1\n#endif";
    static const char guarded[] = "#if defined(__has_include)\n#define STEP 1\n#endif";
    const char *option;
    ignis_kernel_desc with;
    char joined[256];
    make_headers("asked");
    setup_in("asking");
    snprintf(joined, sizeof joined, "-I%s", headers);
    option = joined;
    memset(&with, 0, sizeof with);
    with.options = &option;
    with.option_count = 1;
    CHECK(!use_included(&with, ask, 1));
    write_header("new.h", "");
    CHECK(!use_included(&with, ask, 2));
    CHECK_INT(cached().count, 0);
    CHECK(!use_included(&with, guarded, 1));
    CHECK(use_included(&with, guarded, 1));
}

/*  Headers in memory are part of the key, by name and text, and go before files. */
TEST(headers_in_memory_are_part_of_the_key)
{
    ignis_kernel_header in_memory[2] = {{"step.h", "#include <parts/number.h>\n#define STEP NUMBER\n"},
                                        {"parts/number.h", "#define NUMBER 6\n"}};
    const char *option = headers;
    ignis_kernel_desc with;
    char joined[256];
    make_headers("beside_memory");
    setup_in("in_memory");
    snprintf(joined, sizeof joined, "-I%s", headers);
    option = joined;
    memset(&with, 0, sizeof with);
    with.options = &option;
    with.option_count = 1;
    with.headers = in_memory;
    with.header_count = 2;
    CHECK(!use_included(&with, "#include \"step.h\"", 6));
    CHECK(use_included(&with, "#include \"step.h\"", 6));
    in_memory[1].text = "#define NUMBER 7\n";
    CHECK(!use_included(&with, "#include \"step.h\"", 7));
    write_header("step.h", "#error memory goes first\n"); /* so it is not read, and no part of the key */
    setup_again();
    CHECK(use_included(&with, "#include \"step.h\"", 7));
    CHECK_INT(cached().count, 2);
}

/* --- damage --------------------------------------------------------------------------------------------------- */

/*  A file that was damaged is compiled anew and replaced, so the next process hits again. */
static void check_recovery(const char *path, size_t size)
{
    unsigned char *now;
    size_t now_size;
    setup_again();
    CHECK(!use(1));
    CHECK_INT(cached().count, 1);
    now = read_file(path, &now_size);
    CHECK_INT(now_size, size);
    free(now);
    setup_again();
    CHECK(use(1));
    CHECK_INT(cached().count, 1);
}

TEST(damaged_files_are_recompiled_and_replaced)
{
    unsigned char *good, *bad;
    size_t size, i;
    files all;
    setup_in("damage");
    CHECK(!use(1));
    all = cached();
    REQUIRE(all.count == 1);
    good = read_file(all.path[0], &size);
    bad = (unsigned char *)malloc(size + 16);
    REQUIRE(bad && size > 200);

    test_write_file(all.path[0], "", 0);
    check_recovery(all.path[0], size);
    test_write_file(all.path[0], good, 10);
    check_recovery(all.path[0], size);
    test_write_file(all.path[0], good, size / 2);
    check_recovery(all.path[0], size);
    test_write_file(all.path[0], good, size - 1);
    check_recovery(all.path[0], size);
    memcpy(bad, good, size);
    memset(bad + size, 0, 16);
    test_write_file(all.path[0], bad, size + 16); /* something appended */
    check_recovery(all.path[0], size);
    for (i = 0; i < size; i++)
        bad[i] = (unsigned char)(i * 131 + 7);
    test_write_file(all.path[0], bad, size);
    check_recovery(all.path[0], size);
    for (i = 0; i < size; i += size / 7) { /* one flipped bit, at several places */
        memcpy(bad, good, size);
        bad[i] ^= 0x10;
        test_write_file(all.path[0], bad, size);
        check_recovery(all.path[0], size);
    }
    free(good);
    free(bad);
}

TEST(a_file_of_another_key_is_not_believed)
{
    unsigned char *other;
    size_t size;
    files all;
    char first[600];
    setup_in("key");
    CHECK(!use(1));
    all = cached();
    REQUIRE(all.count == 1);
    snprintf(first, sizeof first, "%s", all.path[0]);
    CHECK(!use(2));
    all = cached();
    REQUIRE(all.count == 2);
    other =
        read_file(all.path[strcmp(all.path[0], first) == 0], &size); /* the file of step 2 under the name of step 1 */
    test_write_file(first, other, size);
    free(other);
    setup_again();
    CHECK(!use(1)); /* use checks the values, too */
    setup_again();
    CHECK(use(1));
    CHECK(use(2));
}

TEST(a_folder_in_place_of_a_file_is_survived)
{
    files all;
    setup_in("folder");
    CHECK(!use(1));
    all = cached();
    REQUIRE(all.count == 1);
    CHECK_INT(remove(all.path[0]), 0);
    CHECK_INT(mkdir(all.path[0], 0700), 0);
    setup_again();
    CHECK(!use(1));
    CHECK_INT(cached().count, 0); /* nothing half-written is left */
}

/* --- folders -------------------------------------------------------------------------------------------------- */

TEST(a_missing_folder_is_made)
{
    snprintf(folder, sizeof folder, "%s/missing/inner/most", test_folder);
    setup_in(NULL);
    CHECK(!use(1));
    CHECK_INT(cached().count, 1);
    CHECK_INT(test_log_count(IGNIS_DIAG_CACHE_IO), 0);
}

TEST(a_folder_that_cannot_be_made_is_a_warning)
{
    char path[300];
    snprintf(path, sizeof path, "%s/file", test_folder);
    test_write_file(path, "x", 1);
    snprintf(folder, sizeof folder, "%s/file/cache", test_folder);
    setup_in(NULL);
    CHECK(!use(1));
    CHECK(!use(2));
    CHECK(test_log_count(IGNIS_DIAG_CACHE_IO) >= 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_CACHE_IO), folder);
    CHECK_INT(ignis_status_last(), IGNIS_OK); /* a warning is not a failure */
}

/*  A warning names the call that was made. */
TEST(warnings_name_the_call)
{
    static const char *const calls[] = {"ignis_kernel_compile: cannot ", "ignis_array_fill: cannot ",
                                        "ignis_kernel_reload: cannot "};
    ignis_kernel_desc desc;
    ignis_kernel kernel;
    ignis_array array;
    char path[300];
    int i;
    snprintf(path, sizeof path, "%s/file", test_folder);
    test_write_file(path, "x", 1);
    snprintf(folder, sizeof folder, "%s/file/cache", test_folder);
    memset(&desc, 0, sizeof desc);
    desc.source = "extern \"C\" __global__ void f(int *x) { x[0] = 1; }\n";
    desc.entry = "f";
    for (i = 0; i < 3; i++) { /* each setup warns once */
        setup_in(NULL);
        if (i == 0) {
            CHECK_OK(ignis_kernel_free(ignis_kernel_compile(&desc)));
        } else if (i == 1) {
            array = test_array(1, 4);
            CHECK_OK(ignis_array_fill(array, 2));
            CHECK_OK(ignis_array_free(array));
        } else {
            ignis__kernels_state.cache_broken = true; /* the first program is not what is asked about */
            kernel = ignis_kernel_compile(&desc);
            ignis__kernels_state.cache_broken = false;
            desc.entry = "f";
            desc.source = "extern \"C\" __global__ void f(int *x) { x[0] = 2; }\n";
            CHECK_OK(ignis_ticket_wait(ignis_kernel_reload(kernel, &desc)));
            CHECK_OK(ignis_kernel_free(kernel));
        }
        CHECK_HAS(test_log_text(IGNIS_DIAG_CACHE_IO), calls[i]);
        CHECK(strncmp(test_log_text(IGNIS_DIAG_CACHE_IO), calls[i], strlen(calls[i])) == 0);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(a_folder_that_cannot_be_written_is_a_warning)
{
    NEEDS_POSIX("modes of folders");
    if (geteuid() == 0)
        SKIP("root may write everywhere");
    setup_in("readonly");
    CHECK_INT(chmod(folder, 0500), 0);
    CHECK(!use(1));
    CHECK_INT(chmod(folder, 0700), 0);
    CHECK(test_log_count(IGNIS_DIAG_CACHE_IO) >= 1);
    CHECK_INT(cached().count, 0);
}

TEST(off_writes_nothing)
{
    ignis_desc desc = test_desc(NULL);
    setup_in("off");
    CHECK_OK(ignis_shutdown());
    setenv("IGNIS_CACHE_DIR", folder, 1);
    desc.cache_dir = "off";
    SETUP(&desc);
    CHECK(!use(1));
    CHECK(use(1)); /* in memory still */
    CHECK_OK(ignis_shutdown());
    SETUP(&desc);
    CHECK(!use(1));
    CHECK_INT(cached().count, 0);
    CHECK_INT(access("off", F_OK), -1);
    unsetenv("IGNIS_CACHE_DIR");
}

TEST(the_environment_names_the_folder)
{
    snprintf(folder, sizeof folder, "%s/environment", test_folder);
    setenv("IGNIS_CACHE_DIR", folder, 1);
    SETUP(NULL);
    CHECK(!use(1));
    CHECK_INT(cached().count, 1);
    CHECK_OK(ignis_shutdown());
    setenv("IGNIS_CACHE_DIR", "off", 1);
    SETUP(NULL);
    CHECK(!use(1));
    CHECK_INT(access("off", F_OK), -1);
    unsetenv("IGNIS_CACHE_DIR");
}

/* --- the limit ------------------------------------------------------------------------------------------------ */

static void set_age(const char *path, int seconds)
{
    struct timespec times[2];
    memset(times, 0, sizeof times);
    times[0].tv_sec = times[1].tv_sec = time(NULL) - seconds;
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(the_oldest_files_make_room)
{
    ignis_desc desc = test_desc(NULL);
    char oldest[600];
    files all;
    int i;
    setup_in("limit");
    CHECK(!use(1));
    all = cached();
    REQUIRE(all.count == 1);
    snprintf(oldest, sizeof oldest, "%s", all.path[0]);
    CHECK(!use(2));
    all = cached();
    REQUIRE(all.count == 2);
    for (i = 0; i < 2; i++)
        set_age(all.path[i], strcmp(all.path[i], oldest) == 0 ? 2000 : 1000);
    CHECK_OK(ignis_shutdown());

    desc.cache_dir = folder;
    desc.cache_limit = all.bytes + all.bytes / 4; /* two fit, three do not */
    SETUP(&desc);
    CHECK(!use(3));
    all = cached();
    CHECK_INT(all.count, 2);
    CHECK(all.bytes <= desc.cache_limit);
    CHECK_INT(access(oldest, F_OK), -1);
    CHECK_OK(ignis_shutdown());
    SETUP(&desc);
    CHECK(use(3));
    CHECK(use(2));
    CHECK(!use(1));
    CHECK(cached().bytes <= desc.cache_limit);
}

TEST(a_limit_below_one_file_keeps_the_folder_small)
{
    ignis_desc desc = test_desc(NULL);
    setup_in("small");
    CHECK_OK(ignis_shutdown());
    desc.cache_dir = folder;
    desc.cache_limit = 100;
    SETUP(&desc);
    CHECK(!use(1));
    CHECK(!use(2));
    CHECK(cached().count <= 1);
}

/*  Only the cache's own files make room for others. */
TEST(files_of_a_user_stay)
{
    static const char *const names[] = {"game.ignis",
                                        "0123456789abcdef0123456789abcde.ignis",
                                        "0123456789abcdef0123456789abcdef0.ignis",
                                        "save.ignis-part",
                                        "0123456789ABCDEF0123456789ABCDEF.ignis",
                                        "0123456789abcdef0123456789abcdef.txt",
                                        "notes.txt",
                                        "0123456789abcdef0123456789abcdef-x.ignis",
                                        "x.0123456789abcdef0123456789abcdef.ignis",
                                        "products.txt",
                                        "nvrtc.txt.old",
                                        "game.ignis.1-2-3.ignis-part"};
    static const char *const own[] = {"0123456789abcdef0123456789abcdef.ignis",
                                      "0123456789abcdef0123456789abcdef.ignis.1-2-3.ignis-part",
                                      "nvrtc.txt.1-2-3.ignis-part"};
    ignis_desc desc = test_desc(NULL);
    char path[600];
    int i;
    setup_in("users");
    CHECK_OK(ignis_shutdown());
    for (i = 0; i < COUNT_OF(names) + COUNT_OF(own); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i < COUNT_OF(names) ? names[i] : own[i - COUNT_OF(names)]);
        test_write_file(path, "mine", 4);
        set_age(path, 5000);
    }
    desc.cache_dir = folder;
    desc.cache_limit = 1;
    SETUP(&desc);
    CHECK(!use(1));
    for (i = 0; i < COUNT_OF(names) + COUNT_OF(own); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i < COUNT_OF(names) ? names[i] : own[i - COUNT_OF(names)]);
        CHECK_INT(access(path, F_OK), i < COUNT_OF(names) ? 0 : -1);
    }
}

/* --- what others may have planted --------------------------------------------------------------------------------- */

/*  A folder or a file that others own or may write to is not used, and a warning says so. */
TEST(what_others_may_write_is_not_used)
{
    static const struct {
        bool is_folder;
        unsigned mode, owner; /* 0: as it is */
        const char *said;
    } ways[] = {{true, 0777, 0, "others may write to it (mode 0777)"},
                {true, 0770, 0, "others may write to it (mode 0770)"},
                {true, 01777, 0, "others may write to it (mode 01777)"},
                {false, 0666, 0, "others may write to it (mode 0666)"},
                {false, 0660, 0, "others may write to it (mode 0660)"},
                {true, 0, 12345, "its owner is user 12345, and this process runs as user 0"},
                {false, 0, 12345, "its owner is user 12345, and this process runs as user 0"}};
    char name[32], path[600];
    files all;
    int i, before;
    NEEDS_POSIX("modes of folders");
    for (i = 0; i < COUNT_OF(ways); i++) {
        if (ways[i].owner && geteuid() != 0)
            continue;
        snprintf(name, sizeof name, "planted%d", i);
        setup_in(name);
        CHECK(!use(1));
        CHECK_OK(ignis_shutdown());
        all = cached();
        REQUIRE(all.count == 1);
        snprintf(path, sizeof path, "%s", ways[i].is_folder ? folder : all.path[0]);
        CHECK_INT(ways[i].mode ? chmod(path, ways[i].mode) : chown(path, ways[i].owner, ways[i].owner), 0);
        before = test_log_count(IGNIS_DIAG_CACHE_IO);
        setup_in(NULL);
        CHECK(!use(1)); /* compiled, and not what lies there */
        CHECK_INT(test_log_count(IGNIS_DIAG_CACHE_IO), before + 1);
        CHECK_HAS(test_log_text(IGNIS_DIAG_CACHE_IO), ways[i].said);
        CHECK_HAS(test_log_text(IGNIS_DIAG_CACHE_IO), path);
        CHECK_OK(ignis_shutdown());
        setup_in(NULL);
        CHECK(use(1) == !ways[i].is_folder); /* a file is replaced, a folder is not written to */
        CHECK_OK(ignis_shutdown());
    }
}

/*  Files that only this user may write, whatever their umask lets others do. */
TEST(files_of_the_cache_are_closed_to_others)
{
    mode_t before = umask(0);
    struct stat info;
    files all;
    NEEDS_POSIX("modes of files");
    setup_in("umask");
    CHECK(!use(1));
    CHECK_OK(ignis_shutdown());
    (void)umask(before);
    all = cached();
    REQUIRE(all.count == 1 && stat(all.path[0], &info) == 0);
    CHECK_INT(info.st_mode & 077, 0);
    setup_in(NULL);
    CHECK(use(1));
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    if (role)
        return role_uses(atoi(role));
    unsetenv("IGNIS_CACHE_DIR");
    return test_run(argc, argv);
}
