// SPDX-License-Identifier: MIT
/*  range.c - address space: the owner of each address, and the blocks of memory

    Ranges are sorted by address. Blocks are filled with a pattern that is NaN, have a canary up to the end of
    their page and a gap after it, and addresses are used again as late as possible.
*/
#include "driver.h"

#include <errno.h>

/* Returns the index of the first range that begins above `address`. */
size_t range_after(uintptr_t address)
{
    size_t low = 0, high = sim.range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sim.ranges[middle]->start > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

sim_range *range_at(uintptr_t address)
{
    size_t after = range_after(address);
    sim_range *range = after ? sim.ranges[after - 1] : NULL;
    return range && address - range->start < range->size ? range : NULL;
}

sim_range *range_starting(CUdeviceptr address, sim_range_kind kind)
{
    sim_range *range = range_at((uintptr_t)address);
    return range && range->start == address && range->kind == kind ? range : NULL;
}

static int range_insert(sim_range *range)
{
    if (sim.range_count == sim.range_room) {
        size_t room = sim.range_room ? sim.range_room * 2 : 256;
        sim_range **ranges = realloc(sim.ranges, room * sizeof *ranges);
        if (!ranges)
            return 0;
        sim.ranges = ranges;
        sim.range_room = room;
    }
    size_t at = range_after(range->start);
    memmove(sim.ranges + at + 1, sim.ranges + at, (sim.range_count - at) * sizeof *sim.ranges);
    sim.ranges[at] = range;
    sim.range_count++;
    return 1;
}

static void range_remove(sim_range *range)
{
    size_t at = range_after(range->start) - 1;
    sim.range_count--;
    memmove(sim.ranges + at, sim.ranges + at + 1, (sim.range_count - at) * sizeof *sim.ranges);
}

sim_arena *arena_at(uintptr_t address)
{
    if (address - sim.host_arena.base < sim.host_arena.size)
        return &sim.host_arena;
    for (int i = 0; i < sim.device_count; i++)
        if (address - sim.contexts[i].arena.base < sim.contexts[i].arena.size)
            return &sim.contexts[i].arena;
    return NULL;
}

sim_reservation *reservation_at(uintptr_t address)
{
    sim_reservation *reservation = sim.reservations;
    while (reservation && address - reservation->start >= reservation->size)
        reservation = reservation->next;
    return reservation;
}

int is_device_memory(const sim_range *range) { return range->kind == RANGE_DEVICE || range->kind >= RANGE_MAPPED; }

/* Tells whether a device has this access to mapped memory; for EVERY_DEVICE, whether any has. */
int range_allows(const sim_range *range, int device, int access)
{
    int allowed = 0;
    if (range->kind != RANGE_MAPPED)
        return 1;
    for (int i = 0; i < MAX_DEVICES; i++)
        allowed |= device == EVERY_DEVICE || device == i ? range->access[i] : 0;
    return (allowed & access) == access;
}

/* Checks that a copy may use `bytes` at `pointer`. `out` gets the range, NULL for ordinary host memory. A
   span may cross adjacent mapped ranges. */
int check_span(const void *pointer, size_t bytes, sim_side side, int device, int access, sim_range **out)
{
    uintptr_t address = (uintptr_t)pointer;
    sim_range *range = range_at(address);
    *out = range;
    if (!range) {
        int plain = address && !arena_at(address) && !reservation_at(address);
        return plain && side != SIDE_DEVICE ? SUCCESS : ERROR_INVALID_VALUE;
    }
    if (side == SIDE_HOST && is_device_memory(range))
        return ERROR_INVALID_VALUE;
    for (;;) {
        size_t here = range->size - (address - range->start);
        if (!range_allows(range, device, access))
            return ERROR_INVALID_VALUE;
        if (bytes <= here)
            return SUCCESS;
        if (range->kind != RANGE_MAPPED)
            return ERROR_INVALID_VALUE;
        bytes -= here;
        address += here;
        range = range_at(address);
        if (!range || range->kind != RANGE_MAPPED)
            return ERROR_INVALID_VALUE;
    }
}

/* >>blocks: memory followed by a gap, so that an access beyond its end shows */

int arena_open(sim_arena *arena, const char *name, size_t at_least)
{
    if (arena->base)
        return 1;
    /* Much more address space than memory: an address is used again only after all of it was used.
       ThreadSanitizer leaves a terabyte for all devices together. */
    size_t size = ((size_t)1 << 40) / (size_t)(sim.device_count + 1 < 4 ? 4 : sim.device_count + 1) & ~(page - 1);
    if (size < at_least)
        size = at_least;
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (; file >= 0 && size >= page; size = size / 2 & ~(page - 1)) {
        if (ftruncate(file, (off_t)size))
            continue;
        void *base = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        if (base == MAP_FAILED)
            continue;
        fcntl(file, F_ADD_SEALS, FIXED_SIZE); /* so that other processes may rely on their mappings */
        *arena = (sim_arena){.base = (uintptr_t)base, .size = size, .file = file};
        return 1;
    }
    if (file >= 0)
        close(file);
    return 0;
}

/* Finds the first gap between live blocks that fits: only after the arena was used up. */
static uintptr_t arena_gap(const sim_arena *arena, size_t span)
{
    uintptr_t start = arena->base, end = arena->base + arena->size;
    for (size_t i = range_after(start) ? range_after(start) - 1 : 0; i < sim.range_count; i++) {
        const sim_range *range = sim.ranges[i];
        if (range->start < start)
            continue;
        if (range->start >= end || range->start - start >= span)
            break;
        start = range->start + range->span;
    }
    size_t next = range_after(start);
    uintptr_t limit = next < sim.range_count && sim.ranges[next]->start < end ? sim.ranges[next]->start : end;
    return limit - start >= span ? start : 0;
}

static uintptr_t arena_take(sim_arena *arena, size_t span)
{
    if (span > arena->size - arena->cursor)
        return arena->reused = 1, arena_gap(arena, span);
    uintptr_t start = arena->base + arena->cursor;
    arena->cursor += span;
    return start;
}

static void poison(uintptr_t start, size_t bytes)
{
    if (sim.poison && bytes)
        sim.poison((const void *)start, bytes);
}

static void unpoison(uintptr_t start, size_t bytes)
{
    if (sim.unpoison && bytes)
        sim.unpoison((const void *)start, bytes);
}

/* Prepares a block: fills it with a pattern that is NaN in every float type, and sets a canary up to the end
   of the page. Called unlocked; no other thread knows the block yet. */
static int block_open(const sim_range *range)
{
    void *start = (void *)range->start;
    size_t usable = range->span - page;
    if (mprotect(start, usable, PROT_READ | PROT_WRITE)) {
        say("no memory for a block of %zu bytes: %s (vm.max_map_count limits the number of blocks)", range->size,
            strerror(errno));
        return 0;
    }
    /* AddressSanitizer's map is written no more than needed: it takes an eighth of the memory that it
       describes, permanently. */
    if (range->arena->reused)
        unpoison(range->start, usable);
    memset(start, 0xFF, range->size < fill_limit ? range->size : fill_limit);
    memset((char *)start + range->size, CANARY, usable - range->size);
    poison(range->start + range->size, range->span - range->size);
    return 1;
}

/* Returns the bytes changed between the end of the block and of its page; `first` gets the distance of the
   first. */
static size_t block_overrun(const sim_range *range, size_t *first)
{
    const unsigned char *end = (const unsigned char *)range->start + range->size;
    size_t slack = range->span - page - range->size, changed = 0;
    for (size_t i = slack; i-- > 0;)
        if (end[i] != CANARY)
            changed++, *first = i;
    return changed;
}

static void block_close(const sim_range *range)
{
    size_t usable = range->span - page;
    if (range->exported)
        fallocate(range->arena->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(range->start - range->arena->base + usable), (off_t)page);
    poison(range->start, usable < 16 * page ? usable : 16 * page);
    madvise((void *)range->start, usable, MADV_REMOVE);
    mprotect((void *)range->start, usable, PROT_NONE);
}

sim_range *range_new(uintptr_t start, size_t size, sim_range_kind kind, sim_context *context)
{
    sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    range->start = start;
    range->size = size;
    range->kind = kind;
    range->context = context;
    range->id = ++sim.next_id;
    if (range_insert(range))
        return range;
    free(range);
    return NULL;
}

void range_delete(sim_range *range)
{
    range_remove(range);
    free(range);
}

/* Makes a block. The lock is held, and released while the block is filled. */
sim_range *block_new(sim_arena *arena, size_t size, sim_range_kind kind, sim_context *context)
{
    size_t span = round_up(size, page) + page;
    uintptr_t start = size < arena->size ? arena_take(arena, span) : 0;
    sim_range *range = start ? range_new(start, size, kind, context) : NULL;
    if (!range)
        return NULL;
    range->span = span;
    range->arena = arena;
    pthread_mutex_unlock(&sim.lock);
    int opened = block_open(range);
    pthread_mutex_lock(&sim.lock);
    if (opened)
        return range;
    range_delete(range);
    return NULL;
}

/* Deletes a block. Returns the code of a damaged canary. */
int block_delete(sim_range *range)
{
    size_t first = 0, changed;
    int code = SUCCESS;
    unpoison(range->start + range->size, range->span - page - range->size);
    changed = block_overrun(range, &first);
    if (changed) {
        char text[256];
        snprintf(
            text, sizeof text,
            "%zu byte(s) were written behind the end of a block of %zu bytes at %#lx, the first %zu behind its end",
            changed, range->size, (unsigned long)range->start, first);
        code = ERROR_ILLEGAL_ADDRESS;
        context_fail(range->context, code, text);
    }
    block_close(range);
    unsigned at = sim.freed_count++ % REMEMBERED_BLOCKS;
    sim.freed[at].start = range->start;
    sim.freed[at].size = range->size;
    range_delete(range);
    return code;
}

size_t charged(size_t size) { return round_up(size, 512); }

size_t memory_left(const sim_context *context) { return sim.memory - context->used - context->created; }

/* >>for the executor */

static void describe_freed(uintptr_t address, char *what, size_t size)
{
    unsigned count = sim.freed_count < REMEMBERED_BLOCKS ? sim.freed_count : REMEMBERED_BLOCKS;
    for (unsigned i = 0; i < count; i++)
        if (address - sim.freed[i].start < sim.freed[i].size) {
            snprintf(what, size, "%zu bytes into a block of %zu bytes that was freed",
                     (size_t)(address - sim.freed[i].start), sim.freed[i].size);
            return;
        }
}

static void describe(uintptr_t address, char *what, size_t size)
{
    size_t after = range_after(address);
    sim_range *range = after ? sim.ranges[after - 1] : NULL;
    if (reservation_at(address)) {
        range = range_at(address);
        snprintf(what, size,
                 range ? "%zu bytes into a mapping without the access that was tried"
                       : "%zu bytes into reserved addresses, where nothing is mapped",
                 (size_t)(address - (range ? range->start : reservation_at(address)->start)));
        return;
    }
    snprintf(what, size, "device memory that belongs to no block");
    describe_freed(address, what, size);
    if (!range || !range->arena || address - range->start >= range->span)
        return;
    size_t offset = address - range->start;
    if (offset < range->size)
        snprintf(what, size, "%zu bytes into a block of %zu bytes", offset, range->size);
    else
        snprintf(what, size, "%zu bytes behind the end of a block of %zu bytes", offset - range->size, range->size);
}

/* Describes an address. A signal handler may call it while the crashed thread holds the lock, so it does not
   wait for ever. */
int sim_address_describe(const void *address, char *what, size_t what_size)
{
    int locked = 0;
    for (int i = 0; i < 1000 && !locked; i++) {
        locked = !pthread_mutex_trylock(&sim.lock);
        if (!locked)
            usleep(100);
    }
    int inside = arena_at((uintptr_t)address) || (locked && reservation_at((uintptr_t)address));
    if (locked) {
        if (inside)
            describe((uintptr_t)address, what, what_size);
        pthread_mutex_unlock(&sim.lock);
    } else if (inside) {
        snprintf(what, what_size, "device memory");
    }
    return inside;
}
