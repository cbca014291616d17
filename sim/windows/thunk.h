// SPDX-License-Identifier: MIT
/*  thunk.h - the beginning of the files that thunks.c writes

    It opens the Linux library on the first call, and passes settings of the Windows program to it.
*/
#ifndef THUNK_H
#define THUNK_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ignis__address;
typedef struct ignis__ipc_handle {
    char bytes[64];
} ignis__ipc_handle;

#define WINDOWS __attribute__((ms_abi))
extern char *WINDOWS GetEnvironmentStringsA(void);
extern int WINDOWS FreeEnvironmentStringsA(char *);

/*  A Windows program has its own environment. Its settings of the simulator and the driver are passed on. */
static inline int is_theirs(const char *entry)
{
    return strncmp(entry, "IGNIS_SIM_", 10) == 0 || strncmp(entry, "CUDA_", 5) == 0;
}
static inline void import_environment(void)
{
    char *all = GetEnvironmentStringsA(), *entry, **old;
    for (old = environ; *old;)
        if (is_theirs(*old)) {
            char *name = strndup(*old, strcspn(*old, "="));
            unsetenv(name);
            free(name);
            old = environ;
        } else {
            old++;
        }
    for (entry = all; *entry; entry += strlen(entry) + 1)
        if (is_theirs(entry)) {
            char *name = strndup(entry, strcspn(entry, "="));
            setenv(name, strchr(entry, '=') ? strchr(entry, '=') + 1 : "", 1);
            free(name);
        }
    FreeEnvironmentStringsA(all);
}

/*  Opens a library from the folder IGNIS_SIM_FOLDER, or from where the system has it. */
static inline void *open_library(const char *name)
{
    const char *folder;
    char path[1024];
    void *library;
    import_environment();
    folder = getenv("IGNIS_SIM_FOLDER");
    snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fprintf(stderr, "thunk: %s\n", dlerror());
    return library;
}
static inline void *find(void *library, const char *name) { return library ? dlsym(library, name) : NULL; }

static void open_all(void);
static inline void open_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_all);
}

/*  Functions in special.h that do more than pass the call on. */
#define SPECIAL_cuInit special_cuInit
#define SPECIAL_cuLaunchHostFunc special_cuLaunchHostFunc
#define SPECIAL_cuDeviceGetAttribute special_cuDeviceGetAttribute
#define SPECIAL_cuMemCreate special_cuMemCreate
#define SPECIAL_cuMemGetAllocationGranularity special_cuMemGetAllocationGranularity
#define SPECIAL_cuMemExportToShareableHandle special_cuMemExportToShareableHandle
#define SPECIAL_cuMemImportFromShareableHandle special_cuMemImportFromShareableHandle
#define SPECIAL_cuImportExternalMemory special_cuImportExternalMemory
#define SPECIAL_cuImportExternalSemaphore special_cuImportExternalSemaphore

#endif /* THUNK_H */
