// SPDX-License-Identifier: MIT
/*  ipc.c - memory handles for other processes: the open file with a block, and its ticket

    A handle names an open file of the exporter. The ticket is in the gap after the block in that file, so an
    import can check that the block is the one that was exported.
*/
#include "driver.h"

static uint64_t ticket_check(const sim_ticket *ticket)
{
    uint64_t sum = 0xCBF29CE484222325u;
    const unsigned char *bytes = (const unsigned char *)ticket;
    for (size_t i = 0; i < offsetof(sim_ticket, check); i++)
        sum = (sum ^ bytes[i]) * 0x100000001B3u;
    return sum;
}

static const char ticket_magic[8] = "ignisim1";

sim_ticket ticket_new(int file, size_t offset, size_t size, int device)
{
    sim_ticket ticket = {.process = sim.process,
                         .id = ++sim.next_id,
                         .offset = offset,
                         .size = size,
                         .pid = (int32_t)getpid(),
                         .file = file,
                         .device = (uint32_t)device};
    memcpy(ticket.magic, ticket_magic, sizeof ticket.magic);
    ticket.check = ticket_check(&ticket);
    return ticket;
}

/* Opens the file that a handle names, if it is one, of another process. The caller has to check its content. */
int ticket_open(const void *handle, sim_ticket *ticket, const char *name, int *file)
{
    char path[64], target[128], wanted[64];
    struct stat facts;
    memcpy(ticket, handle, sizeof *ticket);
    if (memcmp(ticket->magic, ticket_magic, sizeof ticket->magic) || ticket->check != ticket_check(ticket))
        return ERROR_INVALID_VALUE;
    if (ticket->process == sim.process)
        return ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->file);
    snprintf(wanted, sizeof wanted, "/memfd:%s", name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0 || (size_t)length < strlen(wanted) || memcmp(target, wanted, strlen(wanted)))
        return ERROR_MAP_FAILED;
    *file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0)
        return ERROR_MAP_FAILED;
    int seals = fcntl(*file, F_GET_SEALS);
    int fixed = seals >= 0 && (seals & FIXED_SIZE) == FIXED_SIZE && !fstat(*file, &facts);
    if (fixed && ticket->offset <= (uint64_t)facts.st_size && ticket->size <= (uint64_t)facts.st_size - ticket->offset)
        return SUCCESS;
    close(*file);
    return ERROR_MAP_FAILED;
}

int ticket_stands(const sim_ticket *ticket, int file, size_t offset)
{
    sim_ticket found;
    return pread(file, &found, sizeof found, (off_t)offset) == sizeof found && !memcmp(&found, ticket, sizeof found);
}

/* The handle is always of the whole block. The ticket is in the gap after it, in the file only, and goes with
   the block. */
SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    BEGIN(cuIpcGetMemHandle);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(out && range && range->kind == RANGE_DEVICE, ERROR_INVALID_VALUE);
    size_t offset = range->start - range->arena->base, gap = offset + range->span - page;
    sim_ticket ticket;
    if (!range->exported) {
        ticket = ticket_new(range->arena->file, offset, range->size, range->context->number);
        REQUIRE(pwrite(range->arena->file, &ticket, sizeof ticket, (off_t)gap) == sizeof ticket, ERROR_OUT_OF_MEMORY);
        range->exported = 1;
    }
    REQUIRE(pread(range->arena->file, &ticket, sizeof ticket, (off_t)gap) == sizeof ticket, ERROR_MAP_FAILED);
    memcpy(out, &ticket, sizeof *out);
    return leave(SUCCESS);
}

static sim_range *import_find(const sim_ticket *ticket)
{
    for (size_t i = 0; i < sim.range_count; i++)
        if (sim.ranges[i]->import && sim.ranges[i]->context == current() &&
            !memcmp(&sim.ranges[i]->import->ticket, ticket, sizeof *ticket))
            return sim.ranges[i];
    return NULL;
}

/* Maps the block, followed by a gap. */
static sim_range *import_map(const sim_ticket *ticket, int file)
{
    size_t size = (size_t)ticket->size, usable = round_up(size, page);
    sim_import *import = calloc(1, sizeof *import);
    uintptr_t start = import ? reserve(0, usable, page) : 0;
    sim_range *range = start ? range_new(start, size, RANGE_IMPORTED, current()) : NULL;
    if (range && mmap((void *)start, usable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                      (off_t)ticket->offset) != MAP_FAILED) {
        *import = (sim_import){.ticket = *ticket, .span = usable + page};
        range->import = import;
        return range;
    }
    if (range)
        range_delete(range);
    if (start)
        munmap((void *)start, usable + page);
    free(import);
    return NULL;
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    BEGIN(cuIpcOpenMemHandle_v2);
    sim_ticket ticket;
    int file = -1;
    REQUIRE(out && flags == 1, ERROR_INVALID_VALUE); /* 1: enable peer access as needed */
    int code = ticket_open(&handle, &ticket, "ignis-sim-device", &file);
    REQUIRE(!code, code);
    sim_range *range = NULL;
    if (ticket.offset % page ||
        !ticket_stands(&ticket, file, (size_t)(ticket.offset + round_up((size_t)ticket.size, page))))
        code = ERROR_MAP_FAILED; /* freed meanwhile */
    else if (!devices_reach(current()->number, (int)ticket.device))
        code = ERROR_PEER_ACCESS_UNSUPPORTED;
    else if (!(range = import_find(&ticket)) && !(range = import_map(&ticket, file)))
        code = ERROR_OUT_OF_MEMORY;
    close(file);
    REQUIRE(!code, code);
    range->import->opened++;
    *out = range->start;
    return leave(SUCCESS);
}

void import_delete(sim_range *range)
{
    munmap((void *)range->start, range->import->span);
    free(range->import);
    range_delete(range);
}

/* Does not wait, as cuMemUnmap. */
SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    BEGIN(cuIpcCloseMemHandle);
    sim_range *range = range_starting(address, RANGE_IMPORTED);
    REQUIRE(range, ERROR_INVALID_VALUE);
    if (!--range->import->opened)
        import_delete(range);
    return leave(SUCCESS);
}
