// SPDX-License-Identifier: MIT
/*  vmm.c - virtual memory: physical memory, reserved addresses, and mappings

    Physical memory is a sealed memory file with a mark after its data, so that processes can share it and an
    import can check it. Unmapping does not wait for work.
*/
#include "driver.h"

/* Values of CUmemAllocationType, CUmemLocationType and CUmemAllocationHandleType. */
enum { MEMORY_PINNED = 1, LOCATION_DEVICE = 1, HANDLE_FILE = 1, HANDLE_TYPES = 15 };

/* The mark in the page after the data of every such file. An import recognises a file of the simulator by it. */
typedef struct sim_mark {
    char magic[24];
    uint32_t device, types; /* the device's number on the machine */
    uint64_t size;
} sim_mark;

static const char memory_magic[24] = "ignis-sim-memory-1";

static int check_properties(const CUmemAllocationProp *properties)
{
    int types = (int)properties->requestedHandleTypes;
    if ((int)properties->type != MEMORY_PINNED || types & ~HANDLE_TYPES || properties->win32HandleMetaData)
        return ERROR_INVALID_VALUE;
    if ((int)properties->location.type != LOCATION_DEVICE || types & ~HANDLE_FILE ||
        properties->allocFlags.gpuDirectRDMACapable)
        return ERROR_NOT_SUPPORTED;
    return is_device(properties->location.id) ? SUCCESS : ERROR_INVALID_DEVICE;
}

static int is_multiple(unsigned long long value) { return value && !(value % granularity); }

/* Makes a file of `size` bytes and the mark, with a fixed size. -1 on failure. */
static int memory_file(size_t size, const sim_mark *mark)
{
    int file = memfd_create("ignis-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    size_t filled = size < fill_limit ? size : fill_limit;
    void *data = ftruncate(file, (off_t)(size + page))
                     ? MAP_FAILED
                     : mmap(NULL, filled, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data == MAP_FAILED || pwrite(file, mark, sizeof *mark, (off_t)size) != sizeof *mark ||
        fcntl(file, F_ADD_SEALS, FIXED_SIZE)) {
        close(file);
        return -1;
    }
    memset(data, 0xFF, filled);
    munmap(data, filled);
    return file;
}

/* Makes physical memory. It takes over the file. */
static int physical_new(CUmemGenericAllocationHandle *out, int file, const sim_mark *mark, sim_context *charge_to)
{
    sim_physical *physical = calloc(1, sizeof *physical);
    if (physical)
        physical->handle = handle_new(OBJECT_PHYSICAL, physical, NULL);
    if (!physical || !physical->handle) {
        free(physical);
        close(file);
        return ERROR_OUT_OF_MEMORY;
    }
    physical->handles = 1;
    physical->file = file;
    physical->size = (size_t)mark->size;
    physical->types = (int)mark->types;
    physical->device = device_by_number((int)mark->device);
    physical->charged = charge_to;
    physical->id = ++sim.next_id;
    if (charge_to)
        charge_to->created += physical->size;
    sim.physicals++;
    sim.imports += !charge_to;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)physical->handle;
    return SUCCESS;
}

static void physical_release(sim_physical *physical)
{
    if (physical->handles || physical->mappings)
        return;
    if (physical->charged)
        physical->charged->created -= physical->size;
    sim.physicals--;
    sim.imports -= !physical->charged;
    close(physical->file);
    free(physical);
}

static sim_physical *physical_get(CUmemGenericAllocationHandle handle)
{
    return handle_get(OBJECT_PHYSICAL, (const void *)(uintptr_t)handle);
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags option)
{
    BEGIN(cuMemGetAllocationGranularity);
    REQUIRE(out && properties && ((int)option == 0 || (int)option == 1), ERROR_INVALID_VALUE);
    int code = check_properties(properties);
    REQUIRE(!code, code);
    *out = granularity;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    BEGIN(cuMemCreate);
    REQUIRE(out && properties && !flags && is_multiple(size), ERROR_INVALID_VALUE);
    int code = check_properties(properties);
    REQUIRE(!code, code);
    sim_context *context = &sim.contexts[properties->location.id];
    REQUIRE(size <= memory_left(context), ERROR_OUT_OF_MEMORY);
    sim_mark mark = {
        .device = (uint32_t)context->number, .types = (uint32_t)properties->requestedHandleTypes, .size = size};
    memcpy(mark.magic, memory_magic, sizeof mark.magic);
    int file = memory_file(size, &mark);
    REQUIRE(file >= 0, ERROR_OUT_OF_MEMORY);
    return leave(physical_new(out, file, &mark, context));
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    BEGIN(cuMemRelease);
    sim_physical *physical = physical_get(handle);
    REQUIRE(physical, ERROR_INVALID_VALUE);
    if (!--physical->handles) {
        handle_drop(physical->handle);
        physical->handle = NULL;
    }
    physical_release(physical);
    return leave(SUCCESS);
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    BEGIN(cuMemRetainAllocationHandle);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(out && range && range->kind == RANGE_MAPPED, ERROR_INVALID_VALUE);
    sim_physical *physical = range->physical;
    if (!physical->handle)
        physical->handle = handle_new(OBJECT_PHYSICAL, physical, NULL);
    REQUIRE(physical->handle, ERROR_OUT_OF_MEMORY);
    physical->handles++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)physical->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    BEGIN(cuMemGetAllocationPropertiesFromHandle);
    sim_physical *physical = physical_get(handle);
    REQUIRE(out && physical, ERROR_INVALID_VALUE);
    memset(out, 0, sizeof *out);
    out->type = MEMORY_PINNED;
    out->requestedHandleTypes = physical->types;
    out->location.type = LOCATION_DEVICE;
    out->location.id = physical->device;
    return leave(SUCCESS);
}

/* The caller owns the descriptor, to pass on and to close. */
SIM_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags)
{
    BEGIN(cuMemExportToShareableHandle);
    sim_physical *physical = physical_get(handle);
    REQUIRE(out && physical && !flags && (int)type == HANDLE_FILE && physical->types & HANDLE_FILE,
            ERROR_INVALID_VALUE);
    int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    REQUIRE(file >= 0, ERROR_OPERATING_SYSTEM);
    *(int *)out = file;
    return leave(SUCCESS);
}

/* Reads the mark. Only a file with a fixed size may be mapped: a shrinking one would kill the reader. */
static int read_mark(int file, sim_mark *mark)
{
    struct stat facts;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & FIXED_SIZE) != FIXED_SIZE || fstat(file, &facts) || facts.st_size <= (off_t)page)
        return 0;
    off_t size = facts.st_size - (off_t)page;
    return pread(file, mark, sizeof *mark, size) == sizeof *mark &&
           !memcmp(mark->magic, memory_magic, sizeof mark->magic) && mark->size == (uint64_t)size &&
           is_multiple(mark->size) && mark->device < MAX_DEVICES && mark->types & HANDLE_FILE;
}

/* The caller keeps the descriptor. Every import has to be released. */
SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
                                                CUmemAllocationHandleType type)
{
    sim_mark mark;
    BEGIN(cuMemImportFromShareableHandle);
    intptr_t given = (intptr_t)handle;
    REQUIRE(out && (int)type == HANDLE_FILE && given >= 0 && given <= 0x7FFFFFFF, ERROR_INVALID_VALUE);
    int file = fcntl((int)given, F_DUPFD_CLOEXEC, 0);
    REQUIRE(file >= 0, ERROR_INVALID_VALUE);
    if (!read_mark(file, &mark))
        return close(file), leave(ERROR_INVALID_VALUE);
    return leave(physical_new(out, file, &mark, NULL));
}

/* Finds unused addresses, followed by a gap. */
uintptr_t reserve(uintptr_t wish, size_t size, size_t alignment)
{
    size_t span = size + page, slack = alignment > page ? alignment : 0;
    enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
    void *exact = wish ? mmap((void *)wish, span, PROT_NONE, FLAGS | MAP_FIXED_NOREPLACE, -1, 0) : MAP_FAILED;
    if (exact == (void *)wish)
        return wish;
    if (exact != MAP_FAILED)
        munmap(exact, span);
    void *base = mmap(NULL, span + slack, PROT_NONE, FLAGS, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    uintptr_t start = round_up((uintptr_t)base, alignment), end = (uintptr_t)base + span + slack;
    if (start > (uintptr_t)base)
        munmap(base, start - (uintptr_t)base);
    if (end > start + span)
        munmap((void *)(start + span), end - start - span);
    return start;
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish,
                                     unsigned long long flags)
{
    BEGIN(cuMemAddressReserve);
    REQUIRE(out && !flags && is_multiple(size) && !(alignment & (alignment - 1)), ERROR_INVALID_VALUE);
    REQUIRE(size < (size_t)1 << 46 && alignment < (size_t)1 << 46, ERROR_OUT_OF_MEMORY);
    if (alignment < granularity)
        alignment = granularity;
    sim_reservation *reservation = calloc(1, sizeof *reservation);
    REQUIRE(reservation, ERROR_OUT_OF_MEMORY);
    reservation->size = size;
    reservation->start = reserve(wish % alignment ? 0 : (uintptr_t)wish, size, alignment);
    if (!reservation->start)
        return free(reservation), leave(ERROR_OUT_OF_MEMORY);
    reservation->next = sim.reservations;
    sim.reservations = reservation;
    *out = reservation->start;
    return leave(SUCCESS);
}

/* Tells whether a mapped range overlaps these addresses. */
static int any_mapped(uintptr_t start, size_t size)
{
    size_t next = range_after(start);
    return range_at(start) || (next < sim.range_count && sim.ranges[next]->start - start < size);
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr start, size_t size)
{
    BEGIN(cuMemAddressFree);
    sim_reservation **link = &sim.reservations, *reservation;
    while (*link && (*link)->start != start)
        link = &(*link)->next;
    reservation = *link;
    REQUIRE(reservation && reservation->size == size && !any_mapped((uintptr_t)start, size), ERROR_INVALID_VALUE);
    *link = reservation->next;
    munmap((void *)reservation->start, size + page);
    free(reservation);
    return leave(SUCCESS);
}

/* No access is allowed before cuMemSetAccess. */
SIM_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    BEGIN(cuMemMap);
    uintptr_t start = (uintptr_t)address;
    sim_physical *physical = physical_get(handle);
    sim_reservation *reservation = reservation_at(start);
    REQUIRE(physical && reservation && !flags && !offset && size == physical->size && !(start % granularity),
            ERROR_INVALID_VALUE);
    REQUIRE(size <= reservation->size - (start - reservation->start) && !any_mapped(start, size), ERROR_INVALID_VALUE);
    sim_range *range = range_new(start, size, RANGE_MAPPED, &sim.contexts[physical->device < 0 ? 0 : physical->device]);
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    if (mmap((void *)start, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->file, 0) == MAP_FAILED)
        return range_delete(range), leave(ERROR_OUT_OF_MEMORY);
    range->physical = physical;
    physical->mappings++;
    return leave(SUCCESS);
}

/* Tells whether the addresses are those of whole, adjacent mappings. */
static int whole_mappings(uintptr_t start, size_t size)
{
    while (size) {
        sim_range *range = range_starting(start, RANGE_MAPPED);
        if (!range || range->size > size)
            return 0;
        start += range->size;
        size -= range->size;
    }
    return 1;
}

/* Does not wait: unmapping memory in use gives faults, as with the real driver. */
SIM_API CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    BEGIN(cuMemUnmap);
    uintptr_t start = (uintptr_t)address, end = start + size;
    REQUIRE(size && whole_mappings(start, size), ERROR_INVALID_VALUE);
    while (start < end) {
        sim_range *range = range_starting(start, RANGE_MAPPED);
        sim_physical *physical = range->physical;
        mmap((void *)start, range->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        start += range->size;
        range_delete(range);
        physical->mappings--;
        physical_release(physical);
    }
    return leave(SUCCESS);
}

/* Sets the protection of a range. The devices share the process's mapping: it allows what any of them may do. */
static int range_protect(const sim_range *range)
{
    int can_read = range_allows(range, EVERY_DEVICE, ACCESS_READ),
        can_write = range_allows(range, EVERY_DEVICE, ACCESS_WRITE);
    return !mprotect((void *)range->start, range->size, (can_read ? PROT_READ : 0) | (can_write ? PROT_WRITE : 0));
}

static int check_access(const CUmemAccessDesc *wanted, uintptr_t start, size_t size)
{
    int flags = (int)wanted->flags, device = wanted->location.id;
    if ((int)wanted->location.type != LOCATION_DEVICE)
        return ERROR_NOT_SUPPORTED;
    if (flags != 0 && flags != ACCESS_READ && flags != ACCESS_BOTH)
        return ERROR_INVALID_VALUE;
    if (!is_device(device))
        return ERROR_INVALID_DEVICE;
    for (uintptr_t at = start; at < start + size; at += range_at(at)->size) {
        int owner = range_at(at)->physical->device;
        if (owner >= 0 && owner != device && !devices_reach(sim.contexts[owner].number, sim.contexts[device].number))
            return ERROR_INVALID_DEVICE;
    }
    return SUCCESS;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *wanted, size_t count)
{
    BEGIN(cuMemSetAccess);
    uintptr_t start = (uintptr_t)address;
    REQUIRE(wanted && count && size && whole_mappings(start, size), ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        int code = check_access(&wanted[i], start, size);
        REQUIRE(!code, code);
    }
    for (uintptr_t at = start; at < start + size;) {
        sim_range *range = range_at(at);
        for (size_t i = 0; i < count; i++)
            range->access[wanted[i].location.id] = (unsigned char)wanted[i].flags;
        REQUIRE(range_protect(range), ERROR_OUT_OF_MEMORY);
        at += range->size;
    }
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    BEGIN(cuMemGetAccess);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(flags && location && range && range->kind == RANGE_MAPPED, ERROR_INVALID_VALUE);
    REQUIRE((int)location->type == LOCATION_DEVICE, ERROR_NOT_SUPPORTED);
    REQUIRE(is_device(location->id), ERROR_INVALID_DEVICE);
    *flags = range->access[location->id];
    return leave(SUCCESS);
}
