// SPDX-License-Identifier: MIT
/*  test_sharing.c - checks of memory and events that several devices or processes share

    Every test is a child process for each mode of streams, so that each sees a fresh simulator. Some start another
    process and talk to it over a socket. Kernels need libnvrtc.so beside libcuda.so.1.

        test_sharing [folder of the libraries [word in the names of the tests to run]]     default: ../build/sim
*/
#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { CHUNK = 2 << 20 };

static void start_driver(void)
{
    load_driver();
    OK(cuInit(0));
}

/* >>kernels */

static const char *const kernel_text =
    "extern \"C\" {\n"
    "__global__ void store(int *out, int value) { out[threadIdx.x] = value; }\n"
    "__device__ unsigned load(const unsigned *p)\n"
    "{ unsigned v; asm volatile(\"ld.acquire.sys.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p) : \"memory\"); return "
    "v; }\n"
    "__device__ void tell(unsigned *p, unsigned v)\n"
    "{ asm volatile(\"st.release.sys.global.u32 [%0], %1;\" : : \"l\"(p), \"r\"(v) : \"memory\"); }\n"
    "__device__ unsigned long long time()\n"
    "{ unsigned long long t; asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(t)); return t; }\n"
    /* Each block signals the peer's block and waits for it, `rounds` times; out: 0, or 1 + the round that
       timed out. */
    "__global__ void meet(unsigned *mine, unsigned *theirs, int *out, unsigned first, unsigned rounds)\n"
    "{ __shared__ int late; unsigned b = blockIdx.x; if (!threadIdx.x) late = 0;\n"
    "  for (unsigned r = first; r < first + rounds; r++) {\n"
    "    __syncthreads(); if (threadIdx.x == blockDim.x - 1) { __threadfence_system(); tell(theirs + b, r); }\n"
    "    if (threadIdx.x == 0) { unsigned long long end = time() + 10000000000ull;\n"
    "      while (!late && (int)(load(mine + b) - r) < 0) if (time() > end) late = 1 + r; }\n"
    "    __syncthreads(); if (late) break; }\n"
    "  if (!threadIdx.x) out[b] = late; }\n"
    "__global__ void signal(unsigned *flag, unsigned value) { tell(flag, value); }\n"
    "__global__ void await(unsigned *flag, unsigned value, int *out)\n"
    "{ unsigned long long end = time() + 10000000000ull; *out = 0; while (load(flag) != value) if (time() > end) { "
    "*out = 1; break; } }\n"
    /* All blocks wait for each other, with atomics only. */
    "__global__ void together(int *count, int *out)\n"
    "{ atomicAdd(count, 1); long long left = 1000000000; while (atomicAdd(count, 0) < (int)gridDim.x && --left) "
    "__nanosleep(100);\n"
    "  out[blockIdx.x] = left == 0; }\n"
    /* Every thread sends 8 bytes of data with a flag in the same 16 bytes, and waits for the peer's. */
    "__global__ void swap(uint4 *mine, uint4 *theirs, unsigned *out, unsigned seed)\n"
    "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = seed + i, y = seed * i, a, b, c, d, f = 77;\n"
    "  asm volatile(\"st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};\" : : \"l\"(theirs + i), \"r\"(x), \"r\"(f), "
    "\"r\"(y), \"r\"(f) : "
    "\"memory\");\n"
    "  unsigned long long end = time() + 10000000000ull; b = d = 0;\n"
    "  while ((b != f || d != f) && time() < end)\n"
    "    asm volatile(\"ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];\" : \"=r\"(a), \"=r\"(b), \"=r\"(c), "
    "\"=r\"(d) : \"l\"(mine + i) "
    ": "
    "\"memory\");\n"
    "  out[2 * i] = a; out[2 * i + 1] = c; }\n"
    /* One instruction of each kind. */
    "__global__ void words(unsigned *p, unsigned long long *q)\n"
    "{ unsigned a, b, c, d; unsigned long long l;\n"
    "  asm volatile(\"st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};\" : : \"l\"(p), \"r\"(1), \"r\"(2), "
    "\"r\"(3), \"r\"(4) : "
    "\"memory\");\n"
    "  asm volatile(\"st.relaxed.sys.global.v2.u32 [%0], {%1, %2};\" : : \"l\"(p + 4), \"r\"(5), \"r\"(6) : "
    "\"memory\");\n"
    "  asm volatile(\"st.volatile.global.v2.u32 [%0], {%1, %2};\" : : \"l\"(p + 6), \"r\"(7), \"r\"(8) : \"memory\");\n"
    "  asm volatile(\"st.relaxed.sys.global.u32 [%0], %1;\" : : \"l\"(p + 8), \"r\"(9) : \"memory\");\n"
    "  asm volatile(\"st.volatile.global.u32 [%0], %1;\" : : \"l\"(p + 9), \"r\"(10) : \"memory\");\n"
    "  asm volatile(\"fence.acq_rel.sys;\" : : : \"memory\"); asm volatile(\"fence.sc.sys;\" : : : \"memory\");\n"
    "  asm volatile(\"membar.sys;\" : : : \"memory\");\n"
    "  asm volatile(\"red.release.sys.global.add.u32 [%0], %1;\" : : \"l\"(p + 9), \"r\"(1) : \"memory\");\n"
    "  asm volatile(\"st.release.sys.global.u64 [%0], %1;\" : : \"l\"(q), \"l\"(1ull << 40) : \"memory\");\n"
    "  asm volatile(\"ld.acquire.sys.global.u64 %0, [%1];\" : \"=l\"(l) : \"l\"(q) : \"memory\"); q[1] = l + 1;\n"
    "  asm volatile(\"ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];\" : \"=r\"(a), \"=r\"(b), \"=r\"(c), "
    "\"=r\"(d) : \"l\"(p) : "
    "\"memory\");\n"
    "  p[10] = a + 10 * b + 100 * c + 1000 * d;\n"
    "  asm volatile(\"ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];\" : \"=r\"(a), \"=r\"(b) : \"l\"(p + 4) : "
    "\"memory\");\n"
    "  asm volatile(\"ld.volatile.global.v2.u32 {%0, %1}, [%2];\" : \"=r\"(c), \"=r\"(d) : \"l\"(p + 6) : "
    "\"memory\");\n"
    "  p[11] = a + 10 * b + 100 * c + 1000 * d;\n"
    "  asm volatile(\"ld.relaxed.sys.global.u32 %0, [%1];\" : \"=r\"(a) : \"l\"(p + 8) : \"memory\");\n"
    "  asm volatile(\"ld.volatile.global.u32 %0, [%1];\" : \"=r\"(b) : \"l\"(p + 9) : \"memory\");\n"
    "  asm volatile(\"ld.global.nc.v2.u32 {%0, %1}, [%2];\" : \"=r\"(c), \"=r\"(d) : \"l\"(p)); p[12] = a + 10 * b + "
    "1000 * c + 10000 * "
    "d;\n"
    "  __nanosleep(10); }\n"
    "}\n";

static handle load_kernels(void)
{
    handle module = NULL;
    char *image = compile_kernels(kernel_text);
    if (image)
        OK(cuModuleLoadData(&module, image));
    free(image);
    return module;
}

/* >>processes */

/* Starts a second process that runs `role` with its end of a socket; the caller gets the other end. Called
   before the driver starts. */
static pid_t start_peer(void (*role)(int), int *socket_out)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        exit(2);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        passed = failed = 0;
        role(ends[1]);
        fflush(stdout);
        _exit(failed != 0);
    }
    close(ends[1]);
    *socket_out = ends[0];
    return child;
}

static void end_peer(pid_t child, int socket)
{
    int status = 0;
    close(socket);
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

static void send_bytes(int socket, const void *data, size_t size) { CHECK(write(socket, data, size) == (ssize_t)size); }
static void receive_bytes(int socket, void *data, size_t size) { CHECK(read(socket, data, size) == (ssize_t)size); }
static void signal_peer(int socket) { send_bytes(socket, "x", 1); }
static void await_peer(int socket) { receive_bytes(socket, (char[1]){0}, 1); }

static void send_file(int socket, int file)
{
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &file, sizeof file);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_file(int socket)
{
    int file = -1;
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control)
        memcpy(&file, CMSG_DATA(control), sizeof file);
    return file;
}

/* >>virtual memory */

static properties on_device(int device) { return (properties){.type = 1, .types = 1, .where = {1, device}}; }
static access_of for_device(int device, int flags) { return (access_of){{1, device}, flags}; }

static ptr create(int device, size_t size)
{
    ptr memory = 0;
    properties p = on_device(device);
    OK(cuMemCreate(&memory, size, &p, 0));
    return memory;
}

static ptr reserve(size_t size)
{
    ptr address = 0;
    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(address % CHUNK == 0);
    return address;
}

static void allow(ptr address, size_t size, int device)
{
    access_of a = for_device(device, 3);
    OK(cuMemSetAccess(address, size, &a, 1));
}

static ptr map_all(ptr memory, size_t size, int device)
{
    ptr address = reserve(size);
    OK(cuMemMap(address, size, 0, memory, 0));
    allow(address, size, device);
    return address;
}

static void unmap_all(ptr address, size_t size)
{
    OK(cuMemUnmap(address, size));
    OK(cuMemAddressFree(address, size));
}

static void test_create(void)
{
    start_driver();
    context_of(0);
    properties p = on_device(0), wrong, read;
    size_t size = 0, before = 0, after = 0, total;
    ptr memory = 0, second = 0;
    OK(cuMemGetAllocationGranularity(&size, &p, 0));
    CHECK(size == CHUNK);
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemCreate(&memory, 2 * CHUNK, &p, 0));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(before - after == 2 * CHUNK);
    OK(cuMemGetAllocationPropertiesFromHandle(&read, memory));
    CHECK(!memcmp(&read, &p, sizeof p));
    CODE(1, cuMemCreate(&second, CHUNK + 4096, &p, 0));
    CODE(1, cuMemCreate(&second, 0, &p, 0));
    CODE(1, cuMemCreate(&second, CHUNK, &p, 1));
    CODE(2, cuMemCreate(&second, (size_t)1 << 42, &p, 0));
    wrong = p, wrong.type = 0;
    CODE(1, cuMemCreate(&second, CHUNK, &wrong, 0));
    wrong = p, wrong.where.id = 99;
    CODE(101, cuMemCreate(&second, CHUNK, &wrong, 0));
    wrong = p, wrong.types = 8;
    CODE(801, cuMemCreate(&second, CHUNK, &wrong, 0));
    wrong = p, wrong.where.type = 2;
    CODE(801, cuMemCreate(&second, CHUNK, &wrong, 0));
    OK(cuMemRelease(memory));
    CODE(1, cuMemRelease(memory));
    CODE(1, cuMemGetAllocationPropertiesFromHandle(&read, memory));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(before == after && ignis_sim_live("handle") == 0);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void test_map(void)
{
    start_driver();
    handle zero = context_of(0);
    ptr first = create(0, CHUNK), second = create(0, 2 * CHUNK), address = reserve(4 * CHUNK), base = 0, again = 0;
    size_t size = 0;
    int value = 7, out = 0, mapped = -1;
    unsigned long long flags = 9;
    access_of both[] = {for_device(0, 3), for_device(1, 1)};
    location zero_at = {1, 0}, one_at = {1, 1};
    OK(cuPointerGetAttribute(&mapped, 13, address));
    CHECK(mapped == 0);
    CODE(1, cuPointerGetAttribute(&value, 2, address));
    CODE(1, cuMemMap(address, CHUNK, CHUNK, first, 0));
    CODE(1, cuMemMap(address, CHUNK, 0, second, 0));
    CODE(1, cuMemMap(address + 4096, CHUNK, 0, first, 0));
    CODE(1, cuMemMap(address + 3 * CHUNK, 2 * CHUNK, 0, second, 0));
    OK(cuMemMap(address, CHUNK, 0, first, 0));
    CODE(1, cuMemMap(address, CHUNK, 0, first, 0));
    OK(cuMemMap(address + CHUNK, 2 * CHUNK, 0, second, 0));
    CODE(1, cuMemcpyHtoD_v2(address, &value, 4));
    CODE(1, cuMemsetD8Async(address, 0, 4, NULL));
    CODE(1, cuMemSetAccess(address, 4 * CHUNK, both, 2));
    CODE(1, cuMemSetAccess(address, CHUNK / 2, both, 2));
    both[1].flags = 2;
    CODE(1, cuMemSetAccess(address, 3 * CHUNK, both, 2));
    both[1] = for_device(9, 1);
    CODE(101, cuMemSetAccess(address, 3 * CHUNK, both, 2));
    OK(cuMemGetAccess(&flags, &zero_at, address));
    CHECK(flags == 0);
    both[1] = for_device(1, 1);
    OK(cuMemSetAccess(address, 3 * CHUNK, both, 2));
    OK(cuMemGetAccess(&flags, &one_at, address + CHUNK));
    CHECK(flags == 1);
    /* Adjacent mappings are one range of memory; a device has only the access that it was given. */
    ptr middle = address + CHUNK - 2;
    OK(cuMemcpyHtoD_v2(middle, &value, 4));
    OK(cuMemcpyDtoH_v2(&out, middle, 4));
    CHECK(out == 7);
    context_of(1);
    OK(cuMemcpyDtoH_v2(&out, middle, 4));
    CODE(1, cuMemcpyHtoD_v2(middle, &value, 4));
    OK(cuCtxSetCurrent(zero));
    CODE(1, cuMemcpyDtoH_v2(&out, address + 3 * CHUNK - 2, 4));
    OK(cuMemGetAddressRange_v2(&base, &size, address + CHUNK + 5));
    CHECK(base == address + CHUNK && size == 2 * CHUNK);
    OK(cuPointerGetAttribute(&size, 12, address + CHUNK + 5));
    CHECK(size == 4 * CHUNK);
    OK(cuPointerGetAttribute(&size, 18, address + CHUNK + 5));
    CHECK(size == 2 * CHUNK);
    OK(cuPointerGetAttribute(&mapped, 13, address));
    CHECK(mapped == 1);
    OK(cuPointerGetAttribute(&mapped, 10, address));
    CHECK(mapped == 0);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + CHUNK + 100)));
    CHECK(again == second);
    OK(cuMemRelease(again));
    CODE(1, cuMemFree_v2(address));
    CODE(1, cuMemAddressFree(address, 4 * CHUNK));
    CODE(1, cuMemUnmap(address + CHUNK, CHUNK));
    CODE(1, cuMemUnmap(address, 2 * CHUNK));
    /* Memory without a handle lives as long as its mapping, from which a new handle can be made. */
    OK(cuMemRelease(first));
    OK(cuMemcpyDtoH_v2(&out, middle, 2));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    CHECK(again != first);
    OK(cuMemUnmap(address, 3 * CHUNK));
    CODE(1, cuMemcpyDtoH_v2(&out, middle, 2));
    OK(cuMemRelease(again));
    OK(cuMemRelease(second));
    CODE(1, cuMemAddressFree(address, CHUNK));
    OK(cuMemAddressFree(address, 4 * CHUNK));
    CODE(1, cuMemAddressFree(address, 4 * CHUNK));
    ptr block = 0;
    OK(cuMemAlloc_v2(&block, CHUNK));
    CODE(1, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)block));
    OK(cuMemFree_v2(block));
    CHECK(!ignis_sim_live("handle") && !ignis_sim_live("mapping") && !ignis_sim_live("reservation"));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void test_reserve(void)
{
    start_driver();
    ptr first = 0, second = 0;
    CODE(1, cuMemAddressReserve(&first, CHUNK + 1, 0, 0, 0));
    CODE(1, cuMemAddressReserve(&first, CHUNK, 3, 0, 0));
    CODE(1, cuMemAddressReserve(&first, CHUNK, 0, 0, 1));
    OK(cuMemAddressReserve(&first, (size_t)64 << 30, (size_t)1 << 30, 0, 0));
    CHECK(first % ((size_t)1 << 30) == 0);
    OK(cuMemAddressReserve(&second, CHUNK, 0, first, 0));
    CHECK(second != first);
    OK(cuMemAddressFree(second, CHUNK));
    OK(cuMemAddressFree(first, (size_t)64 << 30));
    OK(cuMemAddressReserve(&second, CHUNK, 0, first, 0));
    CHECK(second == first);
    OK(cuMemAddressFree(second, CHUNK));
}

/* Checks that a kernel that touches mapped memory without access faults, as at any other invalid address. */
static void test_access_fault(void)
{
    start_driver();
    context_of(0);
    handle module = is_sanitized() ? NULL : load_kernels();
    if (module) {
        ptr memory = create(0, CHUNK), address = reserve(CHUNK);
        int value = 3;
        void *arguments[] = {&address, &value};
        handle store = function_of(module, "store");
        OK(cuMemMap(address, CHUNK, 0, memory, 0));
        allow(address, CHUNK, 0);
        OK(cuLaunchKernel(store, 1, 1, 1, 4, 1, 1, 0, NULL, arguments, NULL));
        OK(cuCtxSynchronize());
        access_of none = for_device(0, 0);
        OK(cuMemSetAccess(address, CHUNK, &none, 1));
        OK(cuLaunchKernel(store, 1, 1, 1, 4, 1, 1, 0, NULL, arguments, NULL));
        CODE(700, cuCtxSynchronize());
        unmap_all(address, CHUNK);
        OK(cuMemRelease(memory));
    }
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static ptr import_file(int file)
{
    ptr memory = 0;
    OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)file, 1));
    close(file);
    return memory;
}

static void import_role(int socket)
{
    int file = receive_file(socket), value = 0;
    start_driver();
    context_of(1);
    ptr memory = import_file(file), address = map_all(memory, CHUNK, 1);
    properties p = {0};
    CHECK(ignis_sim_live("import") == 1);
    OK(cuMemGetAllocationPropertiesFromHandle(&p, memory));
    CHECK(p.where.id == 0 && p.types == 1);
    OK(cuMemcpyDtoH_v2(&value, address + 4096, 4));
    CHECK(value == 1234);
    value = 4321;
    OK(cuMemcpyHtoD_v2(address + 8192, &value, 4));
    signal_peer(socket);
    await_peer(socket); /* the exporter has released it, or died */
    OK(cuMemcpyDtoH_v2(&value, address + 4096, 4));
    CHECK(value == 1234);
    unmap_all(address, CHUNK);
    OK(cuMemRelease(memory));
    CHECK(ignis_sim_live("import") == 0);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    signal_peer(socket);
}

static void export_memory(int socket, ptr memory)
{
    int file = -1;
    OK(cuMemExportToShareableHandle(&file, memory, 1, 0));
    CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC);
    send_file(socket, file);
    close(file);
}

static void test_import(void)
{
    int socket, value = 1234;
    pid_t peer = start_peer(import_role, &socket);
    start_driver();
    context_of(0);
    ptr memory = create(0, CHUNK), address = map_all(memory, CHUNK, 0);
    OK(cuMemcpyHtoD_v2(address + 4096, &value, 4));
    export_memory(socket, memory);
    await_peer(socket);
    OK(cuMemcpyDtoH_v2(&value, address + 8192, 4));
    CHECK(value == 4321);
    unmap_all(address, CHUNK);
    OK(cuMemRelease(memory));
    signal_peer(socket);
    await_peer(socket);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    end_peer(peer, socket);
}

static void killed_role(int socket)
{
    int value = 1234;
    start_driver();
    context_of(0);
    ptr memory = create(0, CHUNK), address = map_all(memory, CHUNK, 0);
    OK(cuMemcpyHtoD_v2(address + 4096, &value, 4));
    export_memory(socket, memory);
    await_peer(socket);
    kill(getpid(), SIGKILL);
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder_of = opendir(path);
    while (folder_of && readdir(folder_of))
        count++;
    if (folder_of)
        closedir(folder_of);
    return count;
}

/* Checks that a killed exporter leaves no objects, and takes nothing from an importer. */
static void test_killed_exporter(void)
{
    int socket, value = 0, before = count_entries("/dev/shm");
    pid_t peer = start_peer(killed_role, &socket);
    int file = receive_file(socket);
    start_driver();
    context_of(1);
    ptr memory = import_file(file), address = map_all(memory, CHUNK, 1);
    signal_peer(socket);
    waitpid(peer, NULL, 0);
    OK(cuMemcpyDtoH_v2(&value, address + 4096, 4));
    CHECK(value == 1234);
    OK(cuMemsetD8Async(address, 0, CHUNK, NULL));
    OK(cuCtxSynchronize());
    unmap_all(address, CHUNK);
    OK(cuMemRelease(memory));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    CHECK(count_entries("/dev/shm") == before);
    close(socket);
}

/* Checks that any wrong descriptor is an error, never a mapping of something else. */
static void test_bad_files(void)
{
    start_driver();
    ptr memory = 0;
    properties p = on_device(0);
    int files[3], unshared = -1;
    files[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
    files[1] = memfd_create("ignis-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(!ftruncate(files[1], CHUNK + 4096));
    files[2] = memfd_create("ignis-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(!ftruncate(files[2], CHUNK + 4096) &&
          !fcntl(files[2], F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    for (int i = 0; i < 3; i++) {
        CODE(1, cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)files[i], 1));
        close(files[i]);
    }
    CODE(1, cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)files[0], 1));
    CODE(1, cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)-1, 1));
    CODE(1, cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)0, 8));
    p.types = 0;
    OK(cuMemCreate(&memory, CHUNK, &p, 0));
    CODE(1, cuMemExportToShareableHandle(&unshared, memory, 1, 0));
    CHECK(unshared == -1);
    OK(cuMemRelease(memory));
    CHECK(ignis_sim_fail("vmm:2") == 0);
    OK(cuMemCreate(&memory, CHUNK, &p, 0));
    CODE(2, cuMemAddressReserve(&memory, CHUNK, 0, 0, 0));
    OK(cuMemRelease(memory));
    CHECK(ignis_sim_live("handle") == 0);
}

/* >>blocks and events of other processes */

static void block_role(int socket)
{
    ipc_handle a, b, damaged;
    ptr first = 0, again = 0, base = 0;
    size_t size = 0;
    int value = 0, number = -1;
    receive_bytes(socket, &a, sizeof a);
    receive_bytes(socket, &b, sizeof b);
    start_driver();
    context_of(1);
    CODE(1, cuIpcOpenMemHandle_v2(&first, a, 0));
    OK(cuIpcOpenMemHandle_v2(&first, a, 1));
    OK(cuIpcOpenMemHandle_v2(&again, a, 1));
    CHECK(first == again && ignis_sim_live("import") == 1);
    OK(cuMemGetAddressRange_v2(&base, &size, first + 100));
    CHECK(base == first && size == 10000);
    OK(cuPointerGetAttribute(&number, 10, first));
    CHECK(number == 0);
    CODE(1, cuIpcGetMemHandle(&damaged, first));
    CODE(1, cuMemFree_v2(first));
    OK(cuMemcpyDtoH_v2(&value, first + 400, 4));
    CHECK(value == 55);
    CODE(1, cuMemcpyDtoH_v2(&value, first + 9998, 4));
    value = 66;
    OK(cuMemcpyHtoD_v2(first + 404, &value, 4));
    for (size_t i = 0; i < sizeof a; i++) { /* a handle with any byte changed is an error */
        damaged = a;
        damaged.bytes[i] ^= 0x40;
        CHECK(cuIpcOpenMemHandle_v2(&again, damaged, 1) != 0);
    }
    memset(&damaged, 0xA5, sizeof damaged);
    CODE(1, cuIpcOpenMemHandle_v2(&again, damaged, 1));
    CODE(1, cuIpcOpenEventHandle(&(handle){0}, damaged));
    OK(cuIpcCloseMemHandle(first));
    OK(cuMemcpyDtoH_v2(&value, first + 404, 4));
    OK(cuIpcCloseMemHandle(first));
    CODE(1, cuIpcCloseMemHandle(first));
    CODE(1, cuMemcpyDtoH_v2(&value, first + 404, 4));
    CODE(205, cuIpcOpenMemHandle_v2(&again, b, 1)); /* freed */
    OK(cuIpcOpenMemHandle_v2(&first, a, 1));
    signal_peer(socket);
    await_peer(socket);
    usleep(100000); /* the exporter has been killed */
    OK(cuMemcpyDtoH_v2(&value, first + 400, 4));
    CHECK(value == 55);
    CODE(205, cuIpcOpenMemHandle_v2(&again, a, 1));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    CHECK(ignis_sim_live("import") == 0);
    signal_peer(socket);
}

static void block_exporter_role(int socket)
{
    ipc_handle a, again, b;
    ptr other = 0;
    int value = 55, capable = 0;
    start_driver();
    context_of(0);
    ptr first = new_block(10000), second = new_block(8);
    void *pinned = NULL;
    OK(cuMemcpyHtoD_v2(first + 400, &value, 4));
    OK(cuIpcGetMemHandle(&a, first));
    OK(cuIpcGetMemHandle(&again, first + 400));
    CHECK(!memcmp(&a, &again, sizeof a));
    CODE(201, cuIpcOpenMemHandle_v2(&other, a, 1));
    OK(cuIpcGetMemHandle(&b, second));
    OK(cuMemFree_v2(second));
    OK(cuPointerGetAttribute(&capable, 10, first));
    CHECK(capable == 1);
    OK(cuMemHostAlloc(&pinned, 64, 0));
    CODE(1, cuIpcGetMemHandle(&again, (ptr)(uintptr_t)pinned));
    CODE(1, cuIpcGetMemHandle(&again, 4096));
    ptr memory = create(0, CHUNK), mapped = map_all(memory, CHUNK, 0);
    CODE(1, cuIpcGetMemHandle(&again, mapped));
    send_bytes(socket, &a, sizeof a);
    send_bytes(socket, &b, sizeof b);
    await_peer(socket);
    OK(cuMemcpyDtoH_v2(&value, first + 404, 4));
    CHECK(value == 66);
    CHECK(ignis_sim_fail("ipc:1") == 0);
    CODE(205, cuIpcGetMemHandle(&again, first));
    signal_peer(socket);
    printf("%s", failed ? "block exporter failed\n" : "");
    fflush(stdout);
    kill(getpid(), failed ? SIGABRT : SIGKILL);
}

/* Runs two children: the exporter is killed while the importer has its block open. */
static void test_blocks(void)
{
    int status = 0, sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
        exit(2);
    pid_t exporter = fork();
    if (!exporter)
        prctl(PR_SET_PDEATHSIG, SIGKILL), block_exporter_role(sockets[1]), _exit(1);
    pid_t importer = fork();
    if (!importer) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        block_role(sockets[0]);
        fflush(stdout);
        _exit(failed != 0);
    }
    waitpid(exporter, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    waitpid(importer, &status, 0);
    CHECK(status == 0);
}

static void pause_a_while(void *unused)
{
    (void)unused;
    usleep(200000);
}

static handle shared_event(void)
{
    handle event = NULL;
    OK(cuEventCreate(&event, 6));
    return event;
}

static void event_role(int socket)
{
    ipc_handle block_handle, event_handle;
    handle event = NULL;
    ptr block = 0;
    int *value = NULL;
    start_driver();
    context_of(1);
    handle stream = new_stream();
    OK(cuMemHostAlloc((void **)&value, 4, 0));
    receive_bytes(socket, &block_handle, sizeof block_handle);
    receive_bytes(socket, &event_handle, sizeof event_handle);
    OK(cuIpcOpenMemHandle_v2(&block, block_handle, 1));
    OK(cuIpcOpenEventHandle(&event, event_handle));
    OK(cuEventQuery(event)); /* not recorded yet */
    signal_peer(socket);
    await_peer(socket);
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuMemcpyDtoHAsync_v2(value, block, 4, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(*value == 0x01010101);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    /* The other direction: recorded here, waited for there. */
    OK(cuLaunchHostFunc(stream, pause_a_while, NULL));
    OK(cuMemsetD8Async(block, 2, 4, stream));
    OK(cuEventRecord(event, stream));
    signal_peer(socket);
    await_peer(socket);
    OK(cuEventDestroy_v2(event));
    OK(cuIpcCloseMemHandle(block));
    OK(cuMemFreeHost(value));
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void test_events(void)
{
    int socket, value = 0;
    ipc_handle block_handle, event_handle;
    pid_t peer = start_peer(event_role, &socket);
    start_driver();
    context_of(0);
    ptr block = new_block(4);
    handle stream = new_stream(), event = shared_event(), other = NULL, plain = NULL;
    CODE(1, cuEventCreate(&other, 4));
    OK(cuEventCreate(&plain, 2));
    CODE(1, cuIpcGetEventHandle(&event_handle, plain));
    OK(cuIpcGetMemHandle(&block_handle, block));
    OK(cuIpcGetEventHandle(&event_handle, event));
    CODE(201, cuIpcOpenEventHandle(&other, event_handle));
    send_bytes(socket, &block_handle, sizeof block_handle);
    send_bytes(socket, &event_handle, sizeof event_handle);
    await_peer(socket);
    OK(cuLaunchHostFunc(stream, pause_a_while, NULL));
    OK(cuMemsetD8Async(block, 1, 4, stream));
    OK(cuEventRecord(event, stream));
    signal_peer(socket);
    await_peer(socket);
    OK(cuEventSynchronize(event));
    OK(cuMemcpyDtoH_v2(&value, block, 4));
    CHECK(value == 0x02020202);
    signal_peer(socket);
    end_peer(peer, socket);
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(plain));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(block));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void pause_for_ever(void *unused)
{
    (void)unused;
    pause();
}

static void killed_recorder_role(int socket)
{
    ipc_handle event_handle;
    start_driver();
    context_of(0);
    handle stream = new_stream(), event = shared_event();
    OK(cuIpcGetEventHandle(&event_handle, event));
    OK(cuLaunchHostFunc(stream, pause_for_ever, NULL));
    send_bytes(socket, &event_handle, sizeof event_handle);
    OK(cuEventRecord(event, stream));
    signal_peer(socket);
    pause();
}

/* Checks that no thread waits for ever for an event of a killed process. */
static void test_killed_recorder(void)
{
    int socket;
    ipc_handle event_handle;
    handle event = NULL;
    if (!strcmp(streams, "eager"))
        return; /* otherwise the host function would keep the recording thread */
    pid_t peer = start_peer(killed_recorder_role, &socket);
    start_driver();
    context_of(1);
    handle stream = new_stream();
    receive_bytes(socket, &event_handle, sizeof event_handle);
    OK(cuIpcOpenEventHandle(&event, event_handle));
    await_peer(socket);
    CODE(600, cuEventQuery(event));
    OK(cuStreamWaitEvent(stream, event, 0));
    kill(peer, SIGKILL);
    OK(cuStreamSynchronize(stream));
    OK(cuEventSynchronize(event));
    waitpid(peer, NULL, 0);
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    close(socket);
}

/* >>kernels that wait for each other */

enum { MEET_BLOCKS = 6, MEET_THREADS = 40 };

/* One side of a meeting: a device, its flags, and the reports of its kernels. */
typedef struct party {
    int device;
    handle context, module, stream;
    ptr flags, out;
} party;

static party party_new(int device, ptr flags)
{
    party p = {.device = device, .context = context_of(device)};
    p.module = load_kernels();
    p.stream = new_stream();
    p.flags = flags ? flags : new_block(65536);
    p.out = new_block(65536);
    OK(cuMemsetD8Async(p.flags, 0, 65536, p.stream));
    OK(cuMemsetD8Async(p.out, 0xEE, 65536, p.stream));
    OK(cuStreamSynchronize(p.stream));
    return p;
}

static void party_meet(const party *p, ptr theirs, unsigned first, unsigned rounds)
{
    void *arguments[] = {(void *)&p->flags, &theirs, (void *)&p->out, &first, &rounds};
    OK(cuCtxSetCurrent(p->context));
    OK(cuLaunchKernel(function_of(p->module, "meet"), MEET_BLOCKS, 1, 1, MEET_THREADS, 1, 1, 0, p->stream, arguments,
                      NULL));
}

static void party_check(const party *p)
{
    int out[MEET_BLOCKS];
    memset(out, -1, sizeof out);
    OK(cuCtxSetCurrent(p->context));
    OK(cuMemcpyDtoHAsync_v2(out, p->out, sizeof out, p->stream));
    OK(cuStreamSynchronize(p->stream));
    for (int i = 0; i < MEET_BLOCKS; i++)
        CHECK(out[i] == 0);
}

static void party_end(const party *p)
{
    OK(cuCtxSetCurrent(p->context));
    OK(cuStreamDestroy_v2(p->stream));
    OK(cuMemFree_v2(p->flags));
    OK(cuMemFree_v2(p->out));
    OK(cuDevicePrimaryCtxRelease_v2(p->device));
}

/* Runs two devices from one thread; later work of a stream comes after. */
static void test_meet(void)
{
    start_driver();
    party a = party_new(0, 0), b = party_new(1, 0);
    double start = seconds();
    party_meet(&a, b.flags, 1, 100);
    party_meet(&a, b.flags, 101, 1);
    party_meet(&b, a.flags, 1, 100);
    party_meet(&b, a.flags, 101, 1);
    party_check(&a);
    party_check(&b);
    double took = seconds() - start;
    CHECK(took < 20);
    /* A wait for one device's stream runs both; so does polling. */
    party_meet(&a, b.flags, 102, 5);
    party_meet(&b, a.flags, 102, 5);
    OK(cuStreamSynchronize(b.stream));
    party_check(&a);
    party_meet(&a, b.flags, 107, 5);
    OK(cuCtxSetCurrent(a.context));
    for (int i = 0; i < 20; i++)
        CODE(600, cuStreamQuery(a.stream));
    party_meet(&b, a.flags, 107, 5);
    OK(cuCtxSetCurrent(a.context));
    for (int i = 0; i < 10000 && cuStreamQuery(a.stream) == 600; i++)
        usleep(1000);
    OK(cuStreamQuery(a.stream));
    party_check(&a);
    party_check(&b);
    party_end(&a);
    party_end(&b);
}

static void test_meet_random(void)
{
    setenv("IGNIS_SIM_ORDER", "random:5", 1);
    test_meet();
}

static void test_meet_reverse(void)
{
    setenv("IGNIS_SIM_ORDER", "reverse", 1);
    test_meet();
}

static void test_swap(void)
{
    enum { COUNT = 4 * 64 };
    unsigned out[2 * COUNT];
    start_driver();
    party p[2] = {party_new(0, 0), party_new(1, 0)};
    for (unsigned i = 0; i < 2; i++) {
        unsigned seed = 5 + i;
        void *arguments[] = {&p[i].flags, &p[1 - i].flags, &p[i].out, &seed};
        OK(cuCtxSetCurrent(p[i].context));
        OK(cuLaunchKernel(function_of(p[i].module, "swap"), COUNT / 64, 1, 1, 64, 1, 1, 0, p[i].stream, arguments,
                          NULL));
    }
    for (unsigned i = 0; i < 2; i++) {
        int wrong = 0;
        OK(cuCtxSetCurrent(p[i].context));
        OK(cuMemcpyDtoHAsync_v2(out, p[i].out, sizeof out, p[i].stream));
        OK(cuStreamSynchronize(p[i].stream));
        for (unsigned k = 0; k < COUNT; k++)
            wrong += out[2 * k] != 6 - i + k || out[2 * k + 1] != (6 - i) * k;
        CHECK(!wrong);
    }
    party_end(&p[0]);
    party_end(&p[1]);
}

/* Runs eight devices in a ring, whose threads all poll. */
static void test_ring(void)
{
    enum { DEVICES = 8, BLOCKS = 8, THREADS = 256, COUNT = BLOCKS * THREADS };
    static unsigned out[2 * COUNT];
    party p[DEVICES];
    setenv("IGNIS_SIM_DEVICES", "8", 1);
    start_driver();
    for (int i = 0; i < DEVICES; i++)
        p[i] = party_new(i, 0);
    double start = seconds();
    for (unsigned i = 0; i < DEVICES; i++) {
        unsigned seed = 5 + i;
        void *arguments[] = {&p[i].flags, &p[(i + 1) % DEVICES].flags, &p[i].out, &seed};
        OK(cuCtxSetCurrent(p[i].context));
        OK(cuLaunchKernel(function_of(p[i].module, "swap"), BLOCKS, 1, 1, THREADS, 1, 1, 0, p[i].stream, arguments,
                          NULL));
    }
    for (unsigned i = 0; i < DEVICES; i++) {
        unsigned wrong = 0, seed = 5 + (i + DEVICES - 1) % DEVICES;
        OK(cuCtxSetCurrent(p[i].context));
        OK(cuMemcpyDtoHAsync_v2(out, p[i].out, sizeof out, p[i].stream));
        OK(cuStreamSynchronize(p[i].stream));
        for (unsigned k = 0; k < COUNT; k++)
            wrong += out[2 * k] != seed + k || out[2 * k + 1] != seed * k;
        CHECK(!wrong);
    }
    if (getenv("SHOW_TIME"))
        printf("[%s] %.0f ms for the ring\n", streams, (seconds() - start) * 1e3);
    for (int i = 0; i < DEVICES; i++)
        party_end(&p[i]);
}

/* Captures work of both devices, and launches it three times. */
static void test_meet_graph(void)
{
    start_driver();
    party p[2] = {party_new(0, 0), party_new(1, 0)};
    handle graph[2], run[2];
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(p[i].context));
        OK(cuStreamBeginCapture_v2(p[i].stream, 2));
        OK(cuMemsetD32Async(p[i].flags + 32768, 0, 1, p[i].stream));
        party_meet(&p[i], p[1 - i].flags, 1, 3);
        OK(cuStreamEndCapture(p[i].stream, &graph[i]));
        OK(cuGraphInstantiateWithFlags(&run[i], graph[i], 0));
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 2; i++)
            OK(cuGraphLaunch(run[i], p[i].stream));
    for (int i = 0; i < 2; i++) {
        party_check(&p[i]);
        OK(cuGraphExecDestroy(run[i]));
        OK(cuGraphDestroy(graph[i]));
    }
    party_end(&p[0]);
    party_end(&p[1]);
}

static void meet_peer(int socket, int device)
{
    ipc_handle mine, theirs;
    ptr flags = 0;
    start_driver();
    party p = party_new(device, 0);
    OK(cuIpcGetMemHandle(&mine, p.flags));
    send_bytes(socket, &mine, sizeof mine);
    receive_bytes(socket, &theirs, sizeof theirs);
    OK(cuIpcOpenMemHandle_v2(&flags, theirs, 1));
    double start = seconds();
    party_meet(&p, flags, 1, 200);
    party_meet(&p, flags, 201, 1);
    party_check(&p);
    CHECK(seconds() - start < 20);
    if (getenv("SHOW_TIME"))
        printf("[%s] %.0f us a round\n", streams, (seconds() - start) / 201 * 1e6);
    signal_peer(socket);
    await_peer(socket);
    OK(cuIpcCloseMemHandle(flags));
    party_end(&p);
}

static void meet_role(int socket) { meet_peer(socket, 0); }

static void test_meet_processes(void)
{
    int socket;
    pid_t peer = start_peer(meet_role, &socket);
    meet_peer(socket, 1);
    end_peer(peer, socket);
}

/* One device only signals, the other only waits: with kernels and with stream memory operations. */
static void test_signals(void)
{
    unsigned value = 9, found = 0;
    start_driver();
    party a = party_new(0, 0), b = party_new(1, 0);
    ptr word = a.flags + 64;
    void *await[] = {&a.flags, &value, &a.out}, *tell[] = {&a.flags, &value};
    OK(cuCtxSetCurrent(a.context));
    OK(cuLaunchKernel(function_of(a.module, "await"), 1, 1, 1, 1, 1, 1, 0, a.stream, await, NULL));
    CODE(1, cuStreamWaitValue32_v2(a.stream, word + 2, 5, 0));
    CODE(1, cuStreamWaitValue32_v2(a.stream, word, 5, 4));
    CODE(1, cuStreamWaitValue32_v2(a.stream, (ptr)(uintptr_t)&found, 5, 0));
    OK(cuStreamWaitValue32_v2(a.stream, word, 5, 0));
    OK(cuStreamWaitValue64_v2(a.stream, word + 8, 1ull << 40, 1));
    OK(cuMemsetD32Async(word, 77, 1, a.stream));
    CODE(600, cuStreamQuery(a.stream));
    OK(cuCtxSetCurrent(b.context));
    OK(cuLaunchKernel(function_of(b.module, "signal"), 1, 1, 1, 1, 1, 1, 0, b.stream, tell, NULL));
    OK(cuStreamWriteValue64_v2(b.stream, word + 8, 1ull << 40, 0));
    OK(cuStreamWriteValue32_v2(b.stream, word, 6, 0));
    OK(cuCtxSetCurrent(a.context));
    OK(cuStreamSynchronize(a.stream));
    OK(cuMemcpyDtoH_v2(&found, word, 4));
    CHECK(found == 77);
    OK(cuMemcpyDtoH_v2(&found, a.out, 4));
    CHECK(found == 0);
    party_end(&a);
    party_end(&b);
}

static void test_cooperative(void)
{
    int out[20], wrong = 0;
    start_driver();
    party p = party_new(0, 0);
    void *arguments[] = {&p.flags, &p.out};
    handle function = function_of(p.module, "together");
    launch_attribute attribute = {2, 0, 1, {0}};
    launch_config config = {{10000, 1, 1}, {32, 1, 1}, 0, p.stream, &attribute, 1};
    CODE(720, cuLaunchCooperativeKernel(function, 10000, 1, 1, 32, 1, 1, 0, p.stream, arguments));
    CODE(720, cuLaunchKernelEx(&config, function, arguments, NULL));
    attribute.value = 0; /* not together: any number of blocks may be launched of a kernel that does not wait */
    config.grid[0] = config.block[0] = 1;
    OK(cuLaunchKernelEx(&config, function, arguments, NULL));
    OK(cuStreamSynchronize(p.stream));
    attribute.value = 1;
    config.grid[0] = 20;
    for (int by_attribute = 0; by_attribute < 2 && !is_sanitized(); by_attribute++) {
        OK(cuMemsetD32Async(p.flags, 0, 1, p.stream));
        OK(cuMemsetD32Async(p.out, 1, 20, p.stream));
        if (by_attribute)
            OK(cuLaunchKernelEx(&config, function, arguments, NULL));
        else
            OK(cuLaunchCooperativeKernel(function, 20, 1, 1, 1, 1, 1, 0, p.stream, arguments));
        OK(cuStreamSynchronize(p.stream));
        OK(cuMemcpyDtoH_v2(out, p.out, sizeof out));
        for (int i = 0; i < 20; i++)
            wrong += out[i] != 0;
        CHECK(!wrong);
    }
    party_end(&p);
}

/* Checks that waiting blocks keep their processors: a launch that does not fit begins when they have ended,
   another one runs. */
static void test_room(void)
{
    start_driver();
    party a = party_new(0, 0);
    handle beside[2] = {new_stream(), new_stream()}, function = function_of(a.module, "await");
    ptr here = a.flags + 4, outs[3] = {a.out, a.out + 4, a.out + 8};
    unsigned value = 5, begun = 1;
    void *waits[] = {&a.flags, &value, &outs[0]}, *large[] = {&here, &value, &outs[1]},
         *small[] = {&here, &value, &outs[2]};
    if (!is_sanitized()) { /* sanitizers run one block at a time */
        OK(cuMemsetD32Async(here, value, 1, a.stream));
        OK(cuMemsetD32Async(a.out, begun, 1, a.stream));
        OK(cuStreamSynchronize(a.stream));
        OK(cuLaunchKernel(function, 100, 1, 1, 1, 1, 1, 0, a.stream, waits, NULL));
        for (double end = seconds() + 10; begun && seconds() < end;
             usleep(1000)) {                    /* a block's first act is to write 0 */
            CODE(600, cuStreamQuery(a.stream)); /* enough queries start lazy streams */
            OK(cuMemcpyDtoHAsync_v2(&begun, a.out, 4, beside[0]));
            OK(cuStreamSynchronize(beside[0]));
        }
        CHECK(!begun);
        OK(cuLaunchKernel(function, 40, 1, 1, 1, 1, 1, 0, beside[0], large, NULL));
        OK(cuLaunchKernel(function, 30, 1, 1, 1, 1, 1, 0, beside[1], small, NULL));
        OK(cuStreamSynchronize(beside[1]));
        CODE(600, cuStreamQuery(beside[0]));
        OK(cuStreamWriteValue32_v2(beside[1], a.flags, value, 0));
        OK(cuStreamSynchronize(beside[0]));
        OK(cuStreamSynchronize(a.stream));
    }
    OK(cuStreamDestroy_v2(beside[0]));
    OK(cuStreamDestroy_v2(beside[1]));
    party_end(&a);
}

/* Checks that a polling kernel can fail with its launch, and ends with a fault of another device. */
static void test_failing(void)
{
    if (is_sanitized())
        return; /* a sanitizer would end the program at the wild access */
    start_driver();
    party a = party_new(0, 0), b = party_new(1, 0);
    ptr bad = 64;
    unsigned value = 1;
    void *arguments[] = {&bad, &value};
    party_meet(&b, a.flags, 1, 2); /* the peer is missing */
    OK(cuStreamWaitValue32_v2(b.stream, b.flags + 64, 5, 0));
    OK(cuCtxSetCurrent(a.context));
    OK(cuLaunchKernel(function_of(a.module, "signal"), 3, 1, 1, 1, 1, 1, 0, a.stream, arguments, NULL));
    CODE(700, cuStreamSynchronize(a.stream));
    OK(cuCtxSetCurrent(b.context));
    CODE(700, cuStreamSynchronize(b.stream));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void test_words(void)
{
    unsigned out[13];
    unsigned long long wide[2];
    start_driver();
    party p = party_new(0, 0);
    ptr second = p.flags + 1024;
    void *arguments[] = {&p.flags, &second};
    OK(cuLaunchKernel(function_of(p.module, "words"), 1, 1, 1, 1, 1, 1, 0, p.stream, arguments, NULL));
    OK(cuStreamSynchronize(p.stream));
    OK(cuMemcpyDtoH_v2(out, p.flags, sizeof out));
    OK(cuMemcpyDtoH_v2(wide, second, sizeof wide));
    CHECK(out[9] == 11 && out[10] == 4321 && out[11] == 8765 && out[12] == 9 + 110 + 1000 + 20000);
    CHECK(wide[0] == 1ull << 40 && wide[1] == wide[0] + 1);
    party_end(&p);
}

/* >>devices */

static void test_visible(void)
{
    int count = 0, can = 9, value = 9;
    char uuid[16], id[32];
    setenv("IGNIS_SIM_DEVICES", "4", 1);
    setenv("IGNIS_SIM_PEER", "0-1,2-3", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3,1,0,-1,2", 1);
    start_driver();
    OK(cuDeviceGetCount(&count));
    CHECK(count == 3);
    OK(cuDeviceGetUuid_v2(uuid, 0));
    CHECK(uuid[15] == 3);
    OK(cuDeviceGetPCIBusId(id, sizeof id, 1));
    CHECK(!strcmp(id, "0000:02:00.0"));
    OK(cuDeviceGetByPCIBusId(&value, id));
    CHECK(value == 1);
    CODE(101, cuDeviceGetByPCIBusId(&value, "0000:03:00.0"));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 0);
    OK(cuDeviceCanAccessPeer(&can, 1, 2));
    CHECK(can == 1);
    OK(cuDeviceGetP2PAttribute(&value, 2, 2, 1));
    CHECK(value == 1);
    OK(cuDeviceGetP2PAttribute(&value, 3, 2, 0));
    CHECK(value == 0);
    CODE(101, cuDeviceGetP2PAttribute(&value, 2, 1, 1));
    handle zero = context_of(0), one = context_of(1), two = context_of(2);
    CODE(217, cuCtxEnablePeerAccess(zero, 0));
    OK(cuCtxSetCurrent(one));
    CODE(201, cuCtxEnablePeerAccess(one, 0));
    OK(cuCtxEnablePeerAccess(two, 0));
    CODE(704, cuCtxEnablePeerAccess(two, 0));
    CODE(705, cuCtxDisablePeerAccess(zero));
    OK(cuCtxDisablePeerAccess(two));
    ptr memory = create(1, CHUNK), address = map_all(memory, CHUNK, 1);
    access_of a = for_device(2, 3);
    OK(cuMemSetAccess(address, CHUNK, &a, 1));
    a = for_device(0, 3);
    CODE(101, cuMemSetAccess(address, CHUNK, &a, 1));
    unmap_all(address, CHUNK);
    OK(cuMemRelease(memory));
    for (int i = 0; i < 3; i++)
        OK(cuDevicePrimaryCtxRelease_v2(i));
}

static void test_invisible(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "GPU-49676e69,", 1);
    void *library = open_library("libcuda.so.1");
    int (*init)(unsigned) = NULL, (*count_of)(int *) = NULL, count = 0;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count_of = dlsym(library, "cuDeviceGetCount");
    OK(init(0));
    OK(count_of(&count));
    CHECK(count == 1);
}

/* >>main */

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"create", test_create},
             {"map", test_map},
             {"reserve", test_reserve},
             {"access fault", test_access_fault},
             {"import", test_import},
             {"killed exporter", test_killed_exporter},
             {"bad files", test_bad_files},
             {"blocks", test_blocks},
             {"events", test_events},
             {"killed recorder", test_killed_recorder},
             {"meet", test_meet},
             {"meet in random order", test_meet_random},
             {"meet in reverse", test_meet_reverse},
             {"swap", test_swap},
             {"meet in graphs", test_meet_graph},
             {"meet of processes", test_meet_processes},
             {"ring", test_ring},
             {"signals", test_signals},
             {"cooperative", test_cooperative},
             {"room", test_room},
             {"failing", test_failing},
             {"words", test_words},
             {"visible", test_visible},
             {"invisible", test_invisible}};

int main(int argc, char **argv)
{
    static const char *const modes[] = {"eager", "lazy", "thread"};
    if (argc > 1)
        folder = argv[1];
    signal(SIGPIPE, SIG_IGN);
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
            if (argc < 3 || strstr(tests[i].name, argv[2]))
                run_apart(modes[mode], tests[i].name, tests[i].run);
    return report();
}
