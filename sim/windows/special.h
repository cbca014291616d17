// SPDX-License-Identifier: MIT
/*  special.h - the functions of nvcuda.dll that do more than pass a call on

    They convert callbacks, handles and structures between Windows and Linux.
*/
#ifdef LIBRARY_nvcuda

static int special_cuInit(unsigned flags)
{
    import_environment();
    return real_cuInit(flags);
}

/*  Calls of Windows functions from threads of the driver. Such a function reads its thread's block (TEB), so
    it needs a thread that Wine has made. The driver calls from its own threads, so one other thread runs all
    these functions, one after the other. */
extern void *WINDOWS CreateThread(void *security, size_t stack, unsigned(WINDOWS *fn)(void *), void *data,
                                  unsigned flags, unsigned *id);
extern int WINDOWS CloseHandle(void *handle);

typedef struct host_call {
    void(WINDOWS *fn)(void *);
    void *data;
} host_call;

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t host_changed = PTHREAD_COND_INITIALIZER;
static const host_call *host_next; /* the call that host_thread has to run, or runs */
static pthread_once_t host_once = PTHREAD_ONCE_INIT;
static void *host_handle;

static unsigned WINDOWS host_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&host_lock);
    for (;;) {
        while (!host_next)
            pthread_cond_wait(&host_changed, &host_lock);
        pthread_mutex_unlock(&host_lock);
        host_next->fn(host_next->data);
        pthread_mutex_lock(&host_lock);
        host_next = NULL;
        pthread_cond_broadcast(&host_changed);
    }
    return 0;
}

static void host_start(void)
{
    host_handle = CreateThread(NULL, 0, host_thread, NULL, 0, NULL);
    if (host_handle)
        CloseHandle(host_handle);
}

static void run_host_call(void *pointer)
{
    const host_call *call = pointer; /* a graph may launch it again, so its memory is kept */
    pthread_mutex_lock(&host_lock);
    while (host_next)
        pthread_cond_wait(&host_changed, &host_lock);
    host_next = call;
    pthread_cond_broadcast(&host_changed);
    while (host_next == call)
        pthread_cond_wait(&host_changed, &host_lock);
    pthread_mutex_unlock(&host_lock);
}

static int special_cuLaunchHostFunc(void *stream, void (*fn)(void *), void *data)
{
    host_call *call = malloc(sizeof *call);
    pthread_once(&host_once, host_start);
    if (!call || !host_handle)
        return free(call), 2;
    call->fn = (void(WINDOWS *)(void *))fn;
    call->data = data;
    return real_cuLaunchHostFunc(stream, fn ? run_host_call : NULL, call);
}

/*  Handles of memory: descriptors of Linux. Wine converts them to handles of Windows and back. 1: POSIX
    descriptor, 2: NT handle; attributes 103 and 104 tell whether they are supported. */
extern int WINDOWS wine_server_fd_to_handle(int fd, unsigned access, unsigned attributes, void **handle);
extern int WINDOWS wine_server_handle_to_fd(void *handle, unsigned access, int *fd, unsigned *options);
enum { POSIX_FD = 1, NT_HANDLE = 2, HAS_POSIX_FD = 103, HAS_NT_HANDLE = 104, ANY_ACCESS = 0x10000000 };

typedef struct memory_prop { /* CUmemAllocationProp */
    int type, handles, location_type, location;
    void *security;
    unsigned char flags[8];
} memory_prop;

static memory_prop posix_prop(const void *given)
{
    memory_prop prop;
    memcpy(&prop, given, sizeof prop);
    if (prop.handles == NT_HANDLE)
        prop.handles = POSIX_FD, prop.security = NULL;
    return prop;
}

static int special_cuMemCreate(unsigned long long *handle, size_t size, const void *given, unsigned long long flags)
{
    memory_prop prop = posix_prop(given);
    return real_cuMemCreate(handle, size, &prop, flags);
}

static int special_cuMemGetAllocationGranularity(size_t *granularity, const void *given, int option)
{
    memory_prop prop = posix_prop(given);
    return real_cuMemGetAllocationGranularity(granularity, &prop, option);
}

static int special_cuMemExportToShareableHandle(void *out, unsigned long long handle, int type,
                                                unsigned long long flags)
{
    int fd = -1, code = real_cuMemExportToShareableHandle(type == NT_HANDLE ? &fd : out, handle,
                                                          type == NT_HANDLE ? POSIX_FD : type, flags);
    if (type != NT_HANDLE || code)
        return code;
    if (wine_server_fd_to_handle(fd, ANY_ACCESS, 0, out))
        code = 304; /* CUDA_ERROR_OPERATING_SYSTEM */
    close(fd);
    return code;
}

static int special_cuMemImportFromShareableHandle(unsigned long long *out, void *os, int type)
{
    int fd = -1, code;
    if (type != NT_HANDLE)
        return real_cuMemImportFromShareableHandle(out, os, type);
    if (wine_server_handle_to_fd(os, ANY_ACCESS, &fd, NULL))
        return 1; /* CUDA_ERROR_INVALID_VALUE */
    code = real_cuMemImportFromShareableHandle(out, (void *)(intptr_t)fd, POSIX_FD);
    close(fd);
    return code;
}

/*  The beginning of CUDA_EXTERNAL_MEMORY_HANDLE_DESC and CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC. The driver gets
    its own descriptor; the caller keeps the NT handle. */
typedef struct external_head {
    int type;
    union {
        int fd;
        void *handle;
    } os;
} external_head;

/*  Imports. given: `size` bytes, in which the type of NT handles becomes the type of descriptors. */
static int import_external(int (*import)(void **, const void *), void **out, const void *given, size_t size, int nt,
                           int posix)
{
    union {
        external_head head;
        char bytes[128];
    } desc;
    int code, fd = -1;
    memcpy(desc.bytes, given, size);
    if (desc.head.type != nt)
        return import(out, given);
    if (wine_server_handle_to_fd(desc.head.os.handle, ANY_ACCESS, &fd, NULL))
        return 400; /* CUDA_ERROR_INVALID_HANDLE */
    desc.head.type = posix;
    desc.head.os.fd = fd;
    code = import(out, &desc);
    if (code)
        close(fd);
    return code;
}

static int special_cuImportExternalMemory(void **out, const void *given)
{
    return import_external(real_cuImportExternalMemory, out, given, 104, 2, 1);
}

static int special_cuImportExternalSemaphore(void **out, const void *given)
{
    return import_external(real_cuImportExternalSemaphore, out, given, 96, 10, 9);
}

static int special_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int code = real_cuDeviceGetAttribute(value, attribute == HAS_NT_HANDLE ? HAS_POSIX_FD : attribute, device);
    if (attribute == HAS_POSIX_FD && code == 0)
        *value = 0;
    return code;
}

#endif
