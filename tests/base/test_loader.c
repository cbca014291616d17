// SPDX-License-Identifier: MIT
/*  test_loader.c - finding the driver and NVRTC, and saying what is missing */
#include "test.h"

#include "processes.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char *const kernel_source = "extern \"C\" __global__ void one(float *x) { x[0] = 1.0f; }\n";

/*  Sets an environment variable for one test; null unsets it. */
static char saved_value[4096];
static bool saved_any;
static void set_environment(const char *name, const char *value)
{
    const char *old = getenv(name);
    saved_any = old != NULL;
    snprintf(saved_value, sizeof saved_value, "%s", old ? old : "");
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void restore_environment(const char *name)
{
    if (saved_any)
        setenv(name, saved_value, 1);
    else
        unsetenv(name);
}

/*  Words of the system, and a library of it. */
#ifdef _WIN32
#define IS_MISSING "Windows error 126"
#define IS_NO_LIBRARY "Windows error "
#define SYSTEM_LIBRARY "kernel32.dll"
#define DRIVER_NAMES "nvcuda.dll: ", "nvcuda.dll: "
#else
#define IS_MISSING "cannot open shared object file"
#define IS_NO_LIBRARY "file too short"
#define SYSTEM_LIBRARY "libm.so.6"
#define DRIVER_NAMES "libcuda.so.1: ", "libcuda.so: "
#endif

#ifdef IGNIS_LINK_CUDA
#define NEEDS_LOADING() SKIP("the libraries are linked, not loaded")
#else
#define NEEDS_LOADING() (void)0
#endif

TEST(missing_driver_names_the_candidate_and_the_reason)
{
    ignis_desc desc = test_desc(NULL);
    NEEDS_LOADING();
    desc.cuda_library = "missing/libcuda.so.1";
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS("missing/libcuda.so.1");
    CHECK_MESSAGE_HAS(IS_MISSING);
    CHECK_INT(test_log_count(IGNIS_DIAG_LIBRARY_MISSING), 1);
}

TEST(a_file_that_is_no_library_is_told)
{
    char path[] = "/tmp/ignis_test_loader_XXXXXX";
    ignis_desc desc = test_desc(NULL);
    int file = mkstemp(path);
    NEEDS_LOADING();
    REQUIRE(file >= 0);
    CHECK_INT(fclose(fdopen(file, "wb")), 0); /* on Windows, `close` of the tests is for handles: windows/processes.h */
    test_write_file(path, "this is no library\n", 19);
    desc.cuda_library = path;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS(path);
    CHECK_MESSAGE_HAS(IS_NO_LIBRARY);
    unlink(path);
}

TEST(a_library_without_the_functions_is_told)
{
    ignis_desc desc = test_desc(NULL);
    NEEDS_LOADING();
    desc.cuda_library = SYSTEM_LIBRARY;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK_MESSAGE_HAS(SYSTEM_LIBRARY);
    CHECK_MESSAGE_HAS("cuInit");
}

/*  A driver that has what drivers before CUDA 11.4 had: the first function that it lacks is named, and the version that
    has it. */
TEST(an_older_driver_is_told_by_what_it_lacks)
{
    char path[] = "/tmp/ignis_test_old_driver_XXXXXX", source[300], command[700];
    const char *lacks = NULL;
    ignis_desc desc = test_desc(NULL);
    FILE *file;
    int i;
    NEEDS_LOADING();
    NEEDS_POSIX("compiler here");
    REQUIRE(mkdtemp(path) != NULL);
    snprintf(source, sizeof source, "%s/driver.c", path);
    file = fopen(source, "w");
    REQUIRE(file != NULL);
    for (i = 0; i < ignis__library_specs[IGNIS_LIBRARY_CUDA].symbol_count; i++) {
        const ignis__symbol *symbol = &ignis__cuda_symbols[i];
        if (symbol->version < 11040)
            fprintf(file, "int %s(void) { return 0; }\n", symbol->name);
        else if (!lacks && symbol->required)
            lacks = symbol->name;
    }
    fclose(file);
    snprintf(command, sizeof command, "cc -w -shared -fPIC -o %s/libcuda.so.1 %s", path, source);
    CHECK_INT(system(command), 0);
    snprintf(source, sizeof source, "%s/libcuda.so.1", path);
    desc.cuda_library = source;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK(lacks != NULL);
    CHECK_MESSAGE_HAS(lacks);
    CHECK_MESSAGE_HAS("older than CUDA 11.4");
    test_remove_folder(path);
}

TEST(environment_names_the_driver)
{
    ignis_desc desc = test_desc(NULL);
    NEEDS_LOADING();
    set_environment("IGNIS_CUDA_LIBRARY", "named/by/environment.so");
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    restore_environment("IGNIS_CUDA_LIBRARY");
    CHECK_MESSAGE_HAS("named/by/environment.so");
    set_environment("IGNIS_CUDA_LIBRARY", "named\033[31m/by\nenvironment.so"); /* stays in one line */
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    restore_environment("IGNIS_CUDA_LIBRARY");
    CHECK_MESSAGE_HAS("\n  named\\x1b[31m/by\\nenvironment.so: ");
}

TEST(desc_goes_before_environment)
{
    ignis_desc desc = test_desc(NULL);
    ignis_library_info info;
    char path[4096];
    NEEDS_LOADING();
    SETUP(NULL);
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &info));
    snprintf(path, sizeof path, "%s", info.path);
    CHECK_OK(ignis_shutdown());
    desc.cuda_library = path;
    set_environment("IGNIS_CUDA_LIBRARY", "named/by/environment.so");
    CHECK_OK(ignis_setup(&desc));
    restore_environment("IGNIS_CUDA_LIBRARY");
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &info));
    CHECK_TEXT(info.path, path);
}

/*  In a process of its own, which has not loaded a driver yet. Exit code 0: as it should be, 1: not, 2: there is a
    driver. */
static int search_for_driver(void)
{
    static const char *const names[] = {DRIVER_NAMES};
    ignis_desc desc = test_desc(NULL);
    unsetenv("IGNIS_CUDA_LIBRARY");
    if (ignis_setup(&desc) == IGNIS_OK)
        return 2;
    test__check_failure(__FILE__, __LINE__, "ignis_setup(", IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS(names[0]);
    CHECK_MESSAGE_HAS(names[1]);
    CHECK_MESSAGE_HAS("IGNIS_CUDA_LIBRARY");
    return test__state.failures ? 1 : 0;
}

TEST(the_search_lists_every_place_when_there_is_no_driver)
{
    process child;
    int code;
    NEEDS_LOADING();
    child = process_start("search for driver");
    code = process_end(&child);
    if (code == 2)
        SKIP("this machine has a driver where it is searched");
    CHECK_INT(code, 0);
}

/*  A wheel in the first Python that cannot be loaded does not end the search: the others are looked through, under
    their own names. */
TEST(wheels_of_every_python_are_tried)
{
#ifdef IGNIS_LINK_CUDA
    SKIP("the libraries are linked, not loaded");
#else
#ifdef _WIN32
    static const char *const pythons[] = {"Python310", "Python311", "Python312"}, below[] = "\\Programs\\Python";
    static const char path[] = "Lib/site-packages\\nvidia\\cu13\\bin\\x86_64\\nvrtc64_130_0.dll";
#else
    static const char *const pythons[] = {"python3.10", "python3.11", "python3.12"}, below[] = "/lib";
    static const char path[] = "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
#endif
    char root[] = "/tmp/ignis_test_wheels_XXXXXX", file[512], tried[4096];
    ignis__search search;
    int i;
    REQUIRE(mkdtemp(root) != NULL);
    for (i = 0; i < 3; i++) {
        int length = snprintf(file, sizeof file, "%s%s/%s/%s", root, below, pythons[i], path);
        while (file[length] != '/' && file[length] != '\\')
            length--;
        file[length] = 0;
        CHECK(ignis__folder_make_all(file));
        snprintf(file, sizeof file, "%s%s/%s/%s", root, below, pythons[i], path);
        test_write_file(file, "this is no library\n", 19);
    }
    memset(&search, 0, sizeof search);
    search.spec = &ignis__library_specs[IGNIS_LIBRARY_NVRTC];
    ignis__string_begin(&search.tried, tried, sizeof tried);
    ignis__search_pythons(&search, root, below);
    CHECK(!search.library);
    for (i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s%s/%s/%s: ", root, below, pythons[i], path);
        CHECK_HAS(tried, file);
    }
    test_remove_folder(root);
#endif
}

TEST(setup_works_after_failed_ones)
{
    ignis_desc desc = test_desc(NULL);
    ignis_array a;
    NEEDS_LOADING();
    desc.cuda_library = "missing/libcuda.so.1";
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    desc.cuda_library = SYSTEM_LIBRARY;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    SETUP(NULL);
    a = test_array(2, 3);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_free(a));
}

static void check_arrays_work_without_nvrtc(const char *library, ignis_diagnostic diagnostic)
{
    ignis_desc desc = test_desc(NULL);
    float data[6];
    ignis_array a;
    desc.nvrtc_library = library;
    desc.cache_dir = "off";
    CHECK_OK(ignis_setup(&desc));
    a = test_array(2, 3);
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, 6));
    CHECK(data[5] == 5.0F);
    CHECK_INT(test_compile(kernel_source, "one", NULL).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_kernel_compile(", IGNIS_ERROR_LIBRARY, diagnostic);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_shutdown());
}

TEST(without_nvrtc_arrays_work_and_compiling_says_how_to_get_it)
{
    NEEDS_LOADING();
    check_arrays_work_without_nvrtc("missing/libnvrtc.so", IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS("missing/libnvrtc.so");
    CHECK_MESSAGE_HAS(IS_MISSING);
    CHECK_MESSAGE_HAS("nvidia-cuda-nvrtc");
    check_arrays_work_without_nvrtc(SYSTEM_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK_MESSAGE_HAS("has no function nvrtc");
}

TEST(environment_names_nvrtc)
{
    NEEDS_LOADING();
    set_environment("IGNIS_NVRTC_LIBRARY", "named/by/environment.so");
    check_arrays_work_without_nvrtc(NULL, IGNIS_DIAG_LIBRARY_MISSING);
    restore_environment("IGNIS_NVRTC_LIBRARY");
    CHECK_MESSAGE_HAS("named/by/environment.so");
}

static void check_library(ignis_library library, int version)
{
    ignis_library_info info, again;
    CHECK_OK(ignis_library_query(library, &info));
    CHECK(info.path[0] != '\0');
    CHECK(info.version >= version);
    CHECK(info.functions_found > 0 && info.functions_found <= info.functions);
    CHECK_OK(ignis_library_query(library, &again));
    CHECK_TEXT(again.path, info.path);
}

TEST(library_query_tells_driver_and_nvrtc)
{
    ignis_device_info device;
    ignis_library_info info;
    SETUP(NULL);
    check_library(IGNIS_LIBRARY_CUDA, 11000);
    check_library(IGNIS_LIBRARY_NVRTC, 11000);
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &info));
    CHECK_OK(ignis_device_query(0, &device));
    CHECK_INT(info.version, device.driver_version);
}

TEST(library_query_tells_cublaslt)
{
    ignis_library_info info;
    SETUP(NULL);
    if (ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &info) != IGNIS_OK) {
        test__check_failure(__FILE__, __LINE__, "ignis_library_query(", IGNIS_ERROR_LIBRARY,
                            IGNIS_DIAG_LIBRARY_MISSING);
        CHECK_MESSAGE_HAS("cublasLt");
        SKIP("there is no cuBLASLt");
    }
    check_library(IGNIS_LIBRARY_CUBLASLT, 11000);
}

/* --- programs with more rights than whoever starts them ----------------------------------------------------------- */

/*  Variables that name a library, a file or a folder. */
static const char *const paths_of_environment[] = {"IGNIS_CUDA_LIBRARY",
                                                   "IGNIS_NVRTC_LIBRARY",
                                                   "IGNIS_CUBLAS_LIBRARY",
                                                   "IGNIS_NCCL_LIBRARY",
                                                   "IGNIS_CACHE_DIR",
                                                   "IGNIS_RECORD",
                                                   "IGNIS_BUNDLE",
                                                   "IGNIS_DRY_RUN",
                                                   "IGNIS_COMM_DIR",
                                                   "CUDA_PATH",
                                                   "CUDA_HOME",
                                                   "VIRTUAL_ENV",
                                                   "CONDA_PREFIX",
                                                   "XDG_CACHE_HOME",
                                                   "XDG_RUNTIME_DIR",
                                                   "TMPDIR",
                                                   "HOME"};

#ifndef _WIN32
enum { SECURE_FAILED = 1, SECURE_NOT = 77 };

/*  In a process that runs as another user than its caller: 0 when no variable is seen. */
static int see_nothing(void)
{
    ignis_desc desc = test_desc(NULL);
    int i, seen = 0;
    if (getuid() == geteuid())
        return SECURE_NOT; /* the file system has no setuid */
    for (i = 0; i < COUNT_OF(paths_of_environment); i++)
        seen += ignis__env(paths_of_environment[i]) != NULL;
    desc.dry_run = true; /* IGNIS_RECORD and IGNIS_BUNDLE name what cannot be written or read */
    return seen || ignis_setup(&desc) != IGNIS_OK || ignis__kernels_state.cache_dir[0] || ignis_shutdown() != IGNIS_OK
               ? SECURE_FAILED
               : 0;
}
#endif

TEST(more_rights_than_the_caller_read_no_environment)
{
#ifdef _WIN32
    SKIP("Windows has no setuid");
#else
    char folder[] = "/tmp/ignis-setuid-XXXXXX", program[64], copy[400];
    int status = 0, i;
    pid_t child;
    if (geteuid() != 0)
        SKIP("only root can make a program of another user's");
    REQUIRE(mkdtemp(folder) && chmod(folder, 0755) == 0);
    snprintf(program, sizeof program, "%s/program", folder);
    snprintf(copy, sizeof copy, "cp /proc/%ld/exe %s && chmod 4755 %s", (long)getpid(), program, program);
    CHECK_INT(system(copy), 0);
    child = fork();
    if (child == 0) {
        for (i = 0; i < COUNT_OF(paths_of_environment); i++)
            setenv(paths_of_environment[i], "/nowhere/at/all", 1);
        if (setgid(65534) == 0 && setuid(65534) == 0)
            execl(program, program, "--role", "secure", (char *)NULL);
        _exit(SECURE_FAILED);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_INT(remove(program), 0);
    CHECK_INT(rmdir(folder), 0);
    if (WEXITSTATUS(status) == SECURE_NOT)
        SKIP("programs run with the rights of their caller here");
    CHECK_INT(WEXITSTATUS(status), 0);
#endif
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
#ifndef _WIN32
    if (role && strcmp(role, "secure") == 0)
        return see_nothing();
#endif
    return role ? search_for_driver() : test_run(argc, argv);
}
