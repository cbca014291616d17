/*  base/loader.c - searches, opens and checks the libraries

    A path of the caller or the environment is the only candidate. Else: the system's names, the toolkit's folders,
    wheels of Pythons. A failure lists every candidate and the loader's reason.
    May use: driver_api.c. Locks: ignis__loader_lock, held while one library is opened; no other lock is taken under
    it. */

#include "room.h"

#define IGNIS__CUDA_SYMBOL(ret, name, args, version, required) \
    {#name, offsetof(struct ignis__cuda_api, name), version, required},
IGNIS__PRIVATE const ignis__symbol ignis__cuda_symbols[] = {IGNIS__CUDA_API(IGNIS__CUDA_SYMBOL)};
#define IGNIS__NVRTC_SYMBOL(ret, name, args, version, required) \
    {#name, offsetof(struct ignis__nvrtc_api, name), version, required},
static const ignis__symbol ignis__nvrtc_symbols[] = {IGNIS__NVRTC_API(IGNIS__NVRTC_SYMBOL)};
#define IGNIS__CUBLASLT_SYMBOL(ret, name, args, version, required) \
    {#name, offsetof(struct ignis__cublaslt_api, name), version, required},
static const ignis__symbol ignis__cublaslt_symbols[] = {IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_SYMBOL)};
#define IGNIS__NCCL_SYMBOL(ret, name, args, version, required) \
    {#name, offsetof(struct ignis__nccl_api, name), version, required},
IGNIS__PRIVATE const ignis__symbol ignis__nccl_symbols[] = {IGNIS__NCCL_API(IGNIS__NCCL_SYMBOL)};

/* clang-format off */
IGNIS__PRIVATE const ignis__library_spec ignis__library_specs[IGNIS_LIBRARY_COUNT] = {
    {"", "", {0}, {0}, {0}, NULL, "", NULL, NULL, 0},
#ifdef _WIN32
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"nvcuda.dll"}, {0}, {0}, NULL,
     "install NVIDIA's display driver", &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
     {"\\bin\\x64\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_120_0.dll",
      "\\bin\\nvrtc64_112_0.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\nvrtc64_130_0.dll", "\\nvidia\\cuda_nvrtc\\bin\\nvrtc64_120_0.dll"},
     "nvrtc-builtins64_", "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc,
     ignis__nvrtc_symbols, IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
     {"\\bin\\x64\\cublasLt64_13.dll", "\\bin\\cublasLt64_13.dll", "\\bin\\cublasLt64_12.dll",
      "\\bin\\cublasLt64_11.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\cublasLt64_13.dll", "\\nvidia\\cublas\\bin\\cublasLt64_12.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"nccl.dll"}, {0}, {0}, NULL, "NVIDIA makes none for Windows", &ignis__nccl,
     ignis__nccl_symbols, IGNIS__COUNT(ignis__nccl_symbols)},
#else
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"libcuda.so.1", "libcuda.so"},
     {"/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"}, {0}, NULL,
     "install NVIDIA's driver (without a GPU, `make sim-env` in Ignis' repository tells how to use its simulator)",
     &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
     {"/lib64/libnvrtc.so", "/lib/libnvrtc.so", "/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12"},
     {"/nvidia/cu13/lib/libnvrtc.so.13", "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}, "libnvrtc-builtins.so.",
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY",
     {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
     {"/lib64/libcublasLt.so", "/lib/libcublasLt.so", "/lib64/libcublasLt.so.13", "/lib64/libcublasLt.so.12"},
     {"/nvidia/cu13/lib/libcublasLt.so.13", "/nvidia/cublas/lib/libcublasLt.so.12"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"}, {"/lib64/libnccl.so.2", "/lib/libnccl.so.2"},
     {"/nvidia/nccl/lib/libnccl.so.2"}, NULL,
     "install it with your system's packages or by: pip install nvidia-nccl-cu13", &ignis__nccl, ignis__nccl_symbols,
     IGNIS__COUNT(ignis__nccl_symbols)},
#endif
};
/* clang-format on */

IGNIS__PRIVATE struct ignis__loaded ignis__libraries[IGNIS_LIBRARY_COUNT];

static ignis__mutex ignis__loader_lock = IGNIS__MUTEX_INIT;

#ifdef IGNIS_LINK_CUDA

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#if CUDA_VERSION < 12040
#error "IGNIS_LINK_CUDA needs the headers of CUDA 12.4 or newer; without it Ignis loads older drivers at run time"
#endif
#ifdef cuEventElapsedTime /* newer headers call another version so, which older drivers lack */
#undef cuEventElapsedTime
#ifdef __cplusplus
extern "C" CUresult CUDAAPI cuEventElapsedTime(float *, CUevent, CUevent);
#else
CUresult CUDAAPI cuEventElapsedTime(float *, CUevent, CUevent);
#endif
#endif

/*  Two functions that no linked library must have: one needs OpenGL's header, the other is in the driver of Windows
    alone. */
#if defined(__GNUC__) && !defined(_WIN32)
#define IGNIS__WEAK __attribute__((weak))
#else
#define IGNIS__WEAK
#endif
#ifdef __cplusplus
extern "C" {
#endif
CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource *, unsigned, unsigned) IGNIS__WEAK;
CUresult CUDAAPI cuDeviceGetLuid(char *, unsigned *, CUdevice) IGNIS__WEAK;
#ifdef __cplusplus
}
#endif

/*  Compilers accept a cast between unlike function types only through void(*)(void). */
static void ignis__library_bind(ignis_library which, struct ignis__loaded *library)
{
    snprintf(library->path, sizeof library->path, "linked");
    library->found = ignis__library_specs[which].symbol_count;
#define IGNIS__CUDA_LINK(ret, name, args, version, required) ignis__cuda.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__NVRTC_LINK(ret, name, args, version, required) ignis__nvrtc.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__CUBLASLT_LINK(ret, name, args, version, required) \
    ignis__cublaslt.name = (ret(*) args)(void (*)(void))name;
    switch (which) {
    case IGNIS_LIBRARY_CUDA: IGNIS__CUDA_API(IGNIS__CUDA_LINK) break;
    case IGNIS_LIBRARY_NVRTC: IGNIS__NVRTC_API(IGNIS__NVRTC_LINK) break;
    default: IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_LINK) break;
    }
}

#endif /* IGNIS_LINK_CUDA */

/*  A library that another one needs: its folder, and the beginning of its name. */
typedef struct ignis__companion {
    char folder[1024];
    const char *prefix;
} ignis__companion;

IGNIS__COLD static void ignis__companion_open(void *context, const char *name)
{
    const ignis__companion *companion = (const ignis__companion *)context;
    char path[2048], why[512];
    if (strncmp(name, companion->prefix, strlen(companion->prefix)) != 0 || strstr(name, ".alt"))
        return;
    snprintf(path, sizeof path, "%s/%s", companion->folder, name);
    (void)ignis__library_open(path, why, sizeof why); /* on failure NVRTC itself names the missing library */
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__search_try(ignis__search *search, const char *path)
{
    char why[512];
    const char *slash = strrchr(path, '/');
#ifdef _WIN32
    const char *backslash = strrchr(path, '\\');
    slash = !slash || (backslash && backslash > slash) ? backslash : slash;
#endif
    if (search->library)
        return true;
    if (slash && search->spec->companion) {
        ignis__companion companion;
        companion.prefix = search->spec->companion;
        snprintf(companion.folder, sizeof companion.folder, "%.*s", (int)(slash - path), path);
        (void)ignis__folder_list(companion.folder, ignis__companion_open, &companion);
    }
    search->library = ignis__library_open(path, why, sizeof why);
    if (search->library) {
        snprintf(search->path, sizeof search->path, "%s", path);
        return true;
    }
    ignis__string_add(&search->tried, "%s  ", search->tried.length ? "\n" : ""); /* a line for each */
    ignis__string_add_escaped(&search->tried, path, strlen(path), false);
    ignis__string_add(&search->tried, ": ");
    ignis__string_add_escaped(&search->tried, why, strlen(why), false);
    return false;
}

/*  Tries a file. One that does not exist is left out of the report. */
IGNIS__COLD static void ignis__search_try_existing(ignis__search *search, const char *folder, const char *file)
{
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s%s", folder, file);
    if (ignis__file_info(path, &size, &time))
        ignis__search_try(search, path);
}

IGNIS__COLD static void ignis__search_wheels(ignis__search *search, const char *packages)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(search->spec->wheels) && search->spec->wheels[i]; i++)
        ignis__search_try_existing(search, packages, search->spec->wheels[i]);
}

IGNIS__COLD static void ignis__search_python(void *context, const char *name)
{
    ignis__search *search = (ignis__search *)context;
    char packages[1024];
#ifdef _WIN32
    static const char *const kinds[] = {"Lib/site-packages",
                                        "site-packages"}; /* for all users of a Python, and for one user */
    const char *prefix = "Python3";
#else
    static const char *const kinds[] = {"site-packages", "dist-packages"};
    const char *prefix = "python3";
#endif
    int i;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return;
    for (i = 0; i < IGNIS__COUNT(kinds); i++) {
        snprintf(packages, sizeof packages, "%s/%s/%s", search->below, name, kinds[i]);
        ignis__search_wheels(search, packages);
    }
}

/*  Searches a folder of Pythons or, if `below` is NULL, the folder of one Python. */
IGNIS__COLD IGNIS__PRIVATE void ignis__search_pythons(ignis__search *search, const char *root, const char *below)
{
    char folder[1024];
    if (!root || !*root || search->library)
        return;
    snprintf(folder, sizeof folder, "%s%s", root, below ? below : "/Lib/site-packages");
    search->below = folder;
    if (below)
        (void)ignis__folder_list(folder, ignis__search_python, search);
    else
        ignis__search_wheels(search, folder);
}

IGNIS__COLD static void ignis__search_everywhere(ignis__search *search)
{
#ifdef _WIN32
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME"};
#else
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME", NULL};
#endif
    const ignis__library_spec *spec = search->spec;
    int i, r;
    for (i = 0; i < IGNIS__COUNT(spec->names) && spec->names[i]; i++)
        if (ignis__search_try(search, spec->names[i]))
            return;
    for (r = 0; r < IGNIS__COUNT(roots); r++) {
        const char *root = roots[r] ? ignis__env(roots[r]) : "/usr/local/cuda";
        for (i = 0; root && i < IGNIS__COUNT(spec->folders) && spec->folders[i]; i++)
            ignis__search_try_existing(search, spec->wheels[0] ? root : "", spec->folders[i]);
    }
#ifdef _WIN32
    ignis__search_pythons(search, ignis__env("VIRTUAL_ENV"), NULL);
    ignis__search_pythons(search, ignis__env("CONDA_PREFIX"), NULL);
    ignis__search_pythons(search, ignis__env("APPDATA"), "\\Python");
    ignis__search_pythons(search, ignis__env("LOCALAPPDATA"), "\\Programs\\Python");
#else
    ignis__search_pythons(search, ignis__env("VIRTUAL_ENV"), "/lib");
    ignis__search_pythons(search, ignis__env("CONDA_PREFIX"), "/lib");
    ignis__search_pythons(search, ignis__env("HOME"), "/.local/lib");
    ignis__search_pythons(search, "/usr/local", "/lib");
    ignis__search_pythons(search, "/usr", "/lib");
#endif
}

IGNIS__COLD static bool ignis__library_find(const char *call, ignis_library which, struct ignis__loaded *library)
{
    const ignis__library_spec *spec = &ignis__library_specs[which];
    const char *from_env = ignis__env(spec->env);
    ignis__search search = IGNIS__ZERO;
    char tried[4096];
    int i;

#ifdef IGNIS_LINK_CUDA
    if (which != IGNIS_LIBRARY_NCCL) { /* which is never linked: most programs do without it */
        ignis__library_bind(which, library);
        return true;
    }
#endif
    search.spec = spec;
    ignis__string_begin(&search.tried, tried, sizeof tried);
    if (library->wanted[0]) /* a requested path is the only candidate: another library would be a silent surprise */
        ignis__search_try(&search, library->wanted);
    else if (from_env && *from_env)
        ignis__search_try(&search, from_env);
    else
        ignis__search_everywhere(&search);
    if (!search.library)
        return ignis__fail_because(IGNIS_DIAG_LIBRARY_MISSING, call, 0, NULL, tried,
                                   "%s was not found: %s, or name its file in %s. Tried:", spec->title, spec->help,
                                   spec->env) == IGNIS_OK;
    library->found = 0;
    for (i = 0; i < spec->symbol_count; i++) {
        const ignis__symbol *symbol = &spec->symbols[i];
        void *function = ignis__library_symbol(search.library, symbol->name);
        memcpy((char *)spec->api + symbol->offset, &function, sizeof function);
        library->found += function != NULL;
        if (!function && symbol->required) {
            bool is_nccl = which == IGNIS_LIBRARY_NCCL;
            int needed = !is_nccl && symbol->version < 11040
                             ? 11040
                             : symbol->version; /* the oldest version that Ignis is made for */
            return ignis__fail_false(IGNIS_DIAG_LIBRARY_SYMBOL, call,
                                     "%s (%s) has no function %s; it is not that library, or older than %s %d.%d",
                                     spec->title, search.path, symbol->name, is_nccl ? "NCCL" : "CUDA", needed / 1000,
                                     needed % 1000 / 10);
        }
    }
    snprintf(library->path, sizeof library->path, "%s", search.path);
    return true;
}

/*  Reads the version, as 1000 * major + 10 * minor, from the library itself. */
IGNIS__COLD static void ignis__library_read_version(ignis_library which, struct ignis__loaded *library)
{
    int version = 0, minor = 0;
    size_t packed;
    switch (which) {
    case IGNIS_LIBRARY_CUDA:
        IGNIS__CUDA(cuDriverGetVersion, (&version));
        library->version = version;
        library->release = (uint64_t)version;
        break;
    case IGNIS_LIBRARY_NVRTC:
        IGNIS__NVRTC(nvrtcVersion, (&version, &minor));
        library->version = version * 1000 + (minor < 100 ? minor : 99) * 10;
        library->release = (uint64_t)version << 32 | (uint32_t)minor;
        break;
    case IGNIS_LIBRARY_NCCL: /* 22809 for 2.28.9 */
        (void)IGNIS_CALL_HOOK("ncclGetVersion", ignis__nccl.ncclGetVersion(&version));
        library->version = version / 10000 * 1000 + version / 100 % 100 * 10;
        library->release = (uint64_t)version;
        break;
    default:
        packed = ignis__cublaslt.cublasLtGetVersion(); /* 130100 for 13.1.0; 11401 for 11.4.1 */
        library->version = (int)(packed >= 100000 ? packed / 10000 * 1000 + packed / 100 % 100 * 10
                                                  : packed / 1000 * 1000 + packed / 100 % 10 * 10);
        library->release = packed;
    }
}

/*  Loads a library once. A failure is reported again at each attempt, and may become a success: the user may have
    installed the library. */
IGNIS__PRIVATE bool ignis__library_load(const char *call, ignis_library which)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    bool ok = true;
    if (ignis__atomic_load(&library->loaded))
        return true;
    ignis__mutex_lock(&ignis__loader_lock);
    if (!ignis__atomic_load(&library->loaded)) {
        ok = ignis__library_find(call, which, library);
        if (ok) {
            ignis__library_read_version(which, library);
            ignis__atomic_store(&library->loaded, 1);
            ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s is %s, version %d.%d", call,
                       ignis__library_specs[which].title, library->path, library->version / 1000,
                       library->version % 1000 / 10);
        }
    }
    ignis__mutex_unlock(&ignis__loader_lock);
    return ok;
}

/*  Checks whether a library can be loaded. The logger is told once if it cannot, and what follows from it. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__library_available(const char *call, ignis_library which,
                                                                 const char *then)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    ignis__record before, failure;
    char why[2048];
    bool found;
    if (ignis__atomic_load(&library->missing))
        return false;
    if (ignis__atomic_load(&library->loaded))
        return true;
    before = ignis__quiet_begin();
    found = ignis__library_load(call, which);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!found && ignis__atomic_add(&library->missing, 1) == 1)
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s. %s", call, then, why);
    return found;
}

IGNIS__COLD IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info)
{
    static const char call[] = "ignis_library_query";
    const struct ignis__loaded *loaded;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (library < IGNIS_LIBRARY_CUDA || library >= IGNIS_LIBRARY_COUNT)
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "library is %d; expected IGNIS_LIBRARY_CUDA to _NCCL, 1 to 4",
                           (int)library);
    if (!info)
        return ignis__fail_null(call, "info");
    if (!ignis__library_load(call, library))
        return IGNIS_ERROR_LIBRARY;
    loaded = &ignis__libraries[library];
    info->path = loaded->path;
    info->version = loaded->version;
    info->functions = ignis__library_specs[library].symbol_count;
    info->functions_found = loaded->found;
    return IGNIS_OK;
}
