// SPDX-License-Identifier: MIT
/*  test_system.c - what differs between systems: names in UTF-8, where libraries are looked for, how threads end,
    macros of headers */
#include "test.h"

#include "tensor.h"

#ifdef _WIN32
#define PLUG "plug.dll"
#define dlopen(name, how) ((void *)LoadLibraryA(name))
#define dlsym(library, name) ((void *)GetProcAddress((HMODULE)(library), name))
#define dlclose(library) (!FreeLibrary((HMODULE)(library)))
#define plug_mapped(name) (GetModuleHandleA(name) != NULL)
#else
#define PLUG "plug.so"
static bool plug_mapped(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library != NULL;
}
#endif
static char plug_path[1024]; /* beside this program */

static const char *const kernel_source = "extern \"C\" __global__ void fill(float *x) { x[threadIdx.x] = 7.0f; }\n";

/*  Letters of one byte in every code page, of two and three bytes, and two UTF-16 words. */
#define LETTERS "\303\244\316\262\347\201\253\360\237\224\245"

static int files_found;
static void find_letters(void *context, const char *name)
{
    (void)context;
    files_found += strstr(name, LETTERS) != NULL;
}

/*  Folders and files are found under the name that was asked for: one that was converted wrongly would stay unseen. */
TEST(names_are_utf_8)
{
    ignis_desc desc = test_desc(NULL);
    ignis_storage_entry stored[1];
    ignis_tensor tensor, loaded = {0};
    ignis_kernel kernel;
    const char *name = "weights", *path = test_path(LETTERS ".safetensors");
    float value = 3, got = 0;
    int64_t bytes, time;
    desc.cache_dir = test_path("cache-" LETTERS);
    SETUP(&desc);
    kernel = test_compile(kernel_source, "fill", NULL);
    CHECK(kernel.id != 0);
    CHECK_OK(ignis_kernel_free(kernel));
    files_found = 0;
    CHECK(ignis__folder_list(test_folder, find_letters, NULL));
    CHECK_INT(files_found, 1);
    files_found = 0;
    CHECK(ignis__folder_make(test_path("cache-" LETTERS))); /* is there already */
    CHECK(ignis__folder_list(test_path(""), find_letters, NULL));
    CHECK_INT(files_found, 1);
    tensor = ignis_tensor_from_host(&value, IGNIS_SHAPE(1), NULL);
    CHECK_OK(ignis_save(path, &name, &tensor, 1));
    CHECK(ignis__file_info(path, &bytes, &time) && bytes > 8);
    CHECK_INT(ignis_file_list(path, stored, 1), 1);
    CHECK_OK(ignis_load(path, &name, &loaded, 1));
    CHECK_OK(ignis_tensor_to_host(loaded, &got, IGNIS_F32, 1));
    CHECK(got == value);
    files_found = 0;
    CHECK(ignis__folder_list(test_folder, find_letters, NULL));
    CHECK_INT(files_found, 2);
    CHECK_OK(ignis_tensor_release(tensor));
    CHECK_OK(ignis_tensor_release(loaded));
}

/* --- a library with Ignis inside, loaded and unloaded ------------------------------------------------------------- */

/*  What a thread of the host is told to do while a module is loaded: it lives on when that is unloaded. */
typedef struct worker {
    pthread_t thread;
    pthread_barrier_t turn;
    int (*job)(void); /* null: end */
    int result;
} worker;

static void *worker_main(void *context)
{
    worker *self = (worker *)context;
    for (;;) {
        pthread_barrier_wait(&self->turn);
        if (!self->job)
            return NULL;
        self->result = self->job();
        pthread_barrier_wait(&self->turn);
    }
}

static bool worker_begin(worker *self)
{
    pthread_barrier_init(&self->turn, NULL, 2);
    return pthread_create(&self->thread, NULL, worker_main, self) == 0;
}

static int worker_do(worker *self, int (*job)(void))
{
    self->job = job;
    pthread_barrier_wait(&self->turn);
    pthread_barrier_wait(&self->turn);
    return self->result;
}

static void worker_end(worker *self)
{
    self->job = NULL;
    pthread_barrier_wait(&self->turn);
    pthread_join(self->thread, NULL);
    pthread_barrier_destroy(&self->turn);
}

static void *plug;
static void (*plug_count)(long *blocks);
static int (*plug_begin)(const char *cuda), (*plug_work)(void), (*plug_fail)(void), (*plug_end)(void);

static bool plug_symbol(void *function, const char *name)
{
    void *symbol = dlsym(plug, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool plug_load(void)
{
    plug = dlopen(plug_path, RTLD_NOW | RTLD_LOCAL);
    return plug && plug_symbol(&plug_begin, "plug_begin") && plug_symbol(&plug_work, "plug_work") &&
           plug_symbol(&plug_fail, "plug_fail") && plug_symbol(&plug_end, "plug_end") &&
           plug_symbol(&plug_count, "plug_count");
}

/*  After an unload nothing of the module is called: not when threads end that have worked or failed in it, before, in,
    or after a setup, in one setup or in several. The system has its keys of threads back, and no memory is lost. */
TEST(a_library_is_unloaded_while_threads_live_on)
{
    /* jobs, a letter each: s setup and e shutdown by the host's main thread, x a setup that fails; w work and f failure
       in the thread, W and F the same in the main thread */
    static const char *const cases[] = {"e", "swe", "sfe", "swfe", "f",         "fswe",     "sWef",  "xf",     "x",
                                        "F", "fF",  "sWe", "sWFe", "swWeswWeF", "swfeswfe", "seswe", "swefswe"};
    int i, round;
    long blocks = 0;
    if (!plug_load())
        SKIP("there is no " PLUG " beside the program");
#ifdef _WIN32
    SKIP("on Windows threads have to end first: under Wine some that ended behind an unload still ran code of the "
         "library");
#endif
    dlclose(plug);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        for (round = 0; round < 2; round++) {
            const char *job;
            worker thread;
#ifndef _WIN32
            static unsigned first_key;
            pthread_key_t key;
#endif
            REQUIRE(worker_begin(&thread));
            REQUIRE(plug_load());
            plug_count(&blocks);
            blocks = 0;
            for (job = cases[i]; *job; job++) {
                int result = *job == 's'   ? plug_begin(NULL)
                             : *job == 'x' ? plug_begin("/nowhere/libcuda.so") == 0
                             : *job == 'w' ? worker_do(&thread, plug_work)
                             : *job == 'f' ? worker_do(&thread, plug_fail)
                             : *job == 'W' ? plug_work()
                             : *job == 'F' ? plug_fail()
                                           : plug_end();
                if (result != 0)
                    test__fail(__FILE__, __LINE__, job);
            }
            CHECK_INT(dlclose(plug), 0);
            CHECK(!plug_mapped(plug_path));
            worker_end(&thread);
            if (blocks != 0)
                printf("%s: %ld blocks of memory are lost\n", cases[i], blocks),
                    test__fail(__FILE__, __LINE__, "none is");
#ifndef _WIN32
            REQUIRE(pthread_key_create(&key, NULL) == 0);
            first_key = i == 0 && round == 0 ? (unsigned)key : first_key;
            CHECK_INT(key, first_key);
            CHECK_INT(pthread_key_delete(key), 0);
#endif
        }
    }
}

#ifdef _WIN32

static void setenv_wide(const char *name, const char *value)
{
    WCHAR wide[IGNIS__WIDE], text[IGNIS__WIDE];
    SetEnvironmentVariableW(ignis__utf16(name, wide), value ? ignis__utf16(value, text) : NULL);
}

TEST(variables_are_utf_8)
{
    static const char *const names[] = {"IGNIS_A", "IGNIS_B", "IGNIS_C", "IGNIS_D", "IGNIS_E", "IGNIS_F", "IGNIS_G"};
    const char *first, *other, *path = test_path("environment-" LETTERS);
    char longest[IGNIS__WIDE + 1];
    int i;
    setenv_wide("IGNIS_CACHE_DIR", path);
    first = ignis__env("IGNIS_CACHE_DIR");
    CHECK_TEXT(first, path);
    for (i = 0; i < 7; i++) {
        setenv_wide(names[i], names[i]);
        other = ignis__env(names[i]);
        CHECK_TEXT(other, names[i]);
    }
    CHECK_TEXT(first, path); /* still */
    SETUP(NULL);
    CHECK_TEXT(ignis__kernels_state.cache_dir, path);
    setenv_wide("IGNIS_CACHE_DIR", NULL);
    CHECK(ignis__env("IGNIS_CACHE_DIR") == NULL);
    setenv_wide("IGNIS_A", "");
    CHECK(!ignis__env("IGNIS_A") || !*ignis__env("IGNIS_A"));
    memset(longest, 'x', IGNIS__WIDE);
    longest[IGNIS__WIDE] = 0;
    _putenv_s("IGNIS_A", longest);
    CHECK(ignis__env("IGNIS_A") == NULL);
    longest[IGNIS__WIDE - 1] = 0;
    _putenv_s("IGNIS_A", longest);
    CHECK_TEXT(ignis__env("IGNIS_A"), longest);
}

TEST(what_is_no_utf_8_names_no_file)
{
    WCHAR wide[IGNIS__WIDE];
    char longest[IGNIS__WIDE + 1];
    int64_t size, time;
    CHECK_INT(ignis__utf16("\303", wide)[0], 0);
    CHECK_INT(ignis__utf16("a\377", wide)[0], 0);
    memset(longest, 'x', IGNIS__WIDE);
    longest[IGNIS__WIDE] = 0;
    CHECK_INT(ignis__utf16(longest, wide)[0], 0);
    longest[IGNIS__WIDE - 1] = 0;
    CHECK(wcslen(ignis__utf16(longest, wide)) == IGNIS__WIDE - 1);
    CHECK(!ignis__file_info("\303", &size, &time));
    CHECK(!ignis__folder_make("\303\303/x"));
}

/*  A file of that name in the current folder or in a folder of PATH is not even opened. */
TEST(libraries_are_not_taken_from_where_anybody_may_put_them)
{
    char folder[512], before[512], why[512], paths[1024];
    const char *name = "ignis_test_planted.dll";
    snprintf(folder, sizeof folder, "%s", test_path("planted"));
    CHECK(ignis__folder_make(folder));
    test_write_file(test_path("planted/ignis_test_planted.dll"), "this is no library\n", 19);
    CHECK(GetCurrentDirectoryA(sizeof before, before) > 0);
    CHECK(SetCurrentDirectoryA(folder));
    snprintf(paths, sizeof paths, "%.500s;%.500s", folder, getenv("PATH") ? getenv("PATH") : "");
    _putenv_s("PATH", paths);
    CHECK(!LoadLibraryA(name) && GetLastError() != ERROR_MOD_NOT_FOUND); /* it is found so, and no library */
    CHECK(!ignis__library_open(name, why, sizeof why));
    CHECK_HAS(why, "Windows error 126");
    CHECK(!ignis__library_open("./ignis_test_planted.dll", why, sizeof why)); /* a path is another thing */
    CHECK(!strstr(why, "Windows error 126"));
    CHECK(SetCurrentDirectoryA(before));
}

/*  NVRTC opens a library of its own by name alone, so it is opened before: from the folder of NVRTC. */
TEST(nvrtc_is_found_below_cuda_path_with_its_companion)
{
    ignis__search search;
    char tried[4096], from[600];
    int i;
    static const char *const parts[] = {"toolkit", "toolkit/bin", "toolkit/bin/x64"};
    for (i = 0; i < 3; i++)
        CHECK(ignis__folder_make(test_path(parts[i])));
    SETUP(NULL);
    CHECK(GetSystemDirectoryA(from, 500) > 0);
    strcat(from, "\\version.dll"); /* small, and not loaded yet */
    CHECK(CopyFileA(from, test_path("toolkit/bin/x64/nvrtc-builtins64_130.dll"), FALSE));
    CHECK(CopyFileA(from, test_path("toolkit/bin/x64/nvrtc64_130_0.dll"), FALSE));
    setenv_wide("CUDA_PATH", test_path("toolkit"));
    memset(&search, 0, sizeof search);
    search.spec = &ignis__library_specs[IGNIS_LIBRARY_NVRTC];
    ignis__string_begin(&search.tried, tried, sizeof tried);
    snprintf(from, sizeof from, "%s\\bin\\x64\\nvrtc64_130_0.dll", test_path("toolkit"));
    CHECK(ignis__search_try(&search, from));
    CHECK(FreeLibrary((HMODULE)search.library));
    CHECK(GetModuleHandleA("nvrtc-builtins64_130.dll") && FreeLibrary(GetModuleHandleA("nvrtc-builtins64_130.dll")));
    setenv_wide("CUDA_PATH", NULL);
}

static void use_and_fail(void)
{
    ignis_array a = test_array(2, 3);
    CHECK_OK(ignis_scope_end(ignis_scope_begin()));
    CHECK(ignis_array_zero(IGNIS_NO_ARRAY) != IGNIS_OK);
    CHECK_HAS(ignis_status_message(), "ignis_array_zero: ");
    ignis_status_clear();
    CHECK_OK(ignis_array_free(a));
    CHECK(ignis_array_zero(IGNIS_NO_ARRAY) != IGNIS_OK); /* and left so */
}

static DWORD WINAPI thread_of_windows(void *context)
{
    (void)context;
    use_and_fail();
    return 0;
}

static void *thread_of_posix(void *context)
{
    (void)context;
    use_and_fail();
    return NULL;
}

static void *main_fiber;
static void WINAPI fiber(void *context)
{
    (void)context;
    use_and_fail();
    SwitchToFiber(main_fiber);
}

static DWORD WINAPI thread_of_fibers(void *context)
{
    int i;
    (void)context;
    main_fiber = ConvertThreadToFiber(NULL);
    for (i = 0; i < 3; i++) { /* the first that calls Ignis goes before the thread does */
        void *one = CreateFiber(0, fiber, NULL);
        SwitchToFiber(one);
        DeleteFiber(one);
    }
    use_and_fail();
    return 0;
}

/*  However a thread was started, what it leaves goes with it, and nothing of another is touched. */
TEST(threads_of_every_kind_end_well)
{
    static DWORD(WINAPI *const kinds[])(void *) = {thread_of_windows, thread_of_fibers};
    pthread_t thread;
    int round, i;
    SETUP(NULL);
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 2; i++) {
            HANDLE handle = CreateThread(NULL, 0, kinds[i], NULL, 0, NULL);
            REQUIRE(handle != NULL);
            WaitForSingleObject(handle, INFINITE);
            CloseHandle(handle);
        }
        REQUIRE(pthread_create(&thread, NULL, thread_of_posix, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(HeapValidate(GetProcessHeap(), 0, NULL));
}

#endif

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    snprintf(plug_path, sizeof plug_path, "%.*s" PLUG, slash ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
    return test_run(argc, argv);
}
