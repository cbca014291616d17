// SPDX-License-Identifier: MIT
/*  bulk.cpp - bulk copies of bytes and of tensor tiles, and the end of threads and blocks

    Copies happen at once or as late as permitted: see hopper.cpp. A thread must not exit before its stores
    are read, nor a block before its loads have arrived.
*/

/* -------------------------------------------------------------------------------------------------- bulk copies */

static void check_place(worker *w, const void *p, size_t bytes, size_t alignment, sim_place at)
{
    char sentence[160];
    if ((uintptr_t)p % alignment) {
        snprintf(sentence, sizeof sentence, "a bulk copy's place in shared memory is not aligned to %zu bytes",
                 alignment);
        give_up(w, SIM_MISALIGNED_ADDRESS, sentence, at);
    }
    if (w->block.dynamic_shared && shared_offset(w, p) < 0x1000000 && !in_shared(w, p, bytes)) {
        snprintf(sentence, sizeof sentence, "a bulk copy of %zu bytes at shared memory + %zu, the block has %llu bytes",
                 bytes, shared_offset(w, p), w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
}

/* Checks that nothing under way still reads a place that a load will write. */
static void check_unread(worker *w, const char *to, size_t bytes, sim_place at)
{
    const async *a = w->async;
    for (const bulk_store *s = a->stores; s; s = s->next)
        if (s->from && s->from < to + bytes && to < s->from + s->bytes)
            give_up_at(w, to, "a bulk load over the source of a bulk store that nobody has waited for", at);
    for (const wgmma_product *p = a->products; p; p = p->next)
        each_piece(w, p, [&](const char *from, int, int, int) {
            if (from < to + bytes && to < from + 16)
                give_up_at(w, from, "a bulk load over an operand of a wgmma that nobody has waited for", at);
        });
}

static bulk_load *begin_load(worker *w, char *to, unsigned bytes, size_t alignment, void *counter, sim_place at)
{
    check_place(w, to, bytes, alignment, at);
    check_unread(w, to, bytes, at);
    mbarrier *b = mbarrier_at(w, counter, at);
    check_readable(w, (const char *)counter, sizeof *b, "a bulk load", at);
    bulk_load *l = (bulk_load *)take_memory(sizeof *l + bytes);
    l->barrier = b;
    l->to = to;
    l->bytes = bytes;
    return l;
}

static void end_load(worker *w, bulk_load *l)
{
    *w->async->last_load = l;
    w->async->last_load = &l->next;
    if (settings.async_early)
        deliver_loads(w, l->barrier);
}

static void runtime_bulk_load(void *to, const void *from, unsigned bytes, void *counter, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    if ((uintptr_t)from % 16 || bytes % 16)
        give_up(w, SIM_MISALIGNED_ADDRESS,
                "a bulk copy's address in global memory, or its number of bytes, is not a multiple of 16", at);
    bulk_load *l = begin_load(w, (char *)to, bytes, 16, counter, at);
    memcpy(l->data, from, bytes);
    end_load(w, l);
}

static void runtime_tensor_load(void *to, const void *map, sim_coordinates where, int rank, void *counter, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    const sim_tensor_map *m = tensor_map_at(w, map, rank, at);
    bulk_load *l = begin_load(w, (char *)to, tile_bytes(m), swizzle_period(m->swizzle), counter, at);
    move_tile(m, &where, l->data, TILE_LOAD);
    end_load(w, l);
}

static unsigned cluster_rank(worker *w, sim_place at);
static void send_to_block(worker *w, unsigned block, unsigned offset, const void *from, unsigned bytes,
                          unsigned counted_at, sim_place at);

/* Loads a tile for each block of the cluster whose bit is set, at the same places. */
static void runtime_tensor_multicast(void *to, const void *map, sim_coordinates where, int rank, void *counter,
                                     unsigned blocks, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    const sim_tensor_map *m = tensor_map_at(w, map, rank, at);
    unsigned own = cluster_rank(w, at), bytes = tile_bytes(m);
    bulk_load *l = begin_load(w, (char *)to, bytes, swizzle_period(m->swizzle), counter, at);
    move_tile(m, &where, l->data, TILE_LOAD);
    for (unsigned block = 0; block < 16; block++)
        if (blocks >> block & 1 && block != own)
            send_to_block(w, block, (unsigned)shared_offset(w, to), l->data, bytes, (unsigned)shared_offset(w, counter),
                          at);
    if (blocks >> own & 1)
        end_load(w, l);
    else
        free(l);
}

static void read_source(bulk_store *s)
{
    if (s->from && !s->done)
        memcpy(s->data, s->from, s->bytes);
    s->from = NULL;
}

static void write_target(bulk_store *s)
{
    if (s->done)
        return;
    if (!s->to)
        move_tile(&s->map, &s->where, s->data, s->adds ? TILE_ADD : TILE_STORE);
    else if (s->adds)
        add_elements(s->to, s->data, s->bytes / 4, TENSOR_F32);
    else
        memcpy(s->to, s->data, s->bytes);
    s->done = true;
}

/* Removes a finished store from the list. */
static void finish_store(bulk_store **p)
{
    bulk_store *s = *p;
    read_source(s);
    write_target(s);
    *p = s->next;
    free(s);
}

static void find_last_store(async *a)
{
    a->last_store = &a->stores;
    while (*a->last_store)
        a->last_store = &(*a->last_store)->next;
}

static bulk_store *begin_store(worker *w, const char *from, unsigned bytes, size_t alignment, int adds, sim_place at)
{
    check_place(w, from, bytes, alignment, at);
    check_readable(w, from, bytes, "a bulk store", at);
    bulk_store *s = (bulk_store *)take_memory(sizeof *s + bytes);
    s->thread = w->current;
    s->group = w->async->store_groups[w->current];
    s->from = from;
    s->bytes = bytes;
    s->adds = adds;
    return s;
}

/* Ends a store. It has to be waited for, even if it was done at once. */
static void end_store(worker *w, bulk_store *s)
{
    const char *from = s->from;
    *w->async->last_store = s;
    w->async->last_store = &s->next;
    if (!settings.async_early)
        return;
    read_source(s);
    write_target(s);
    s->from = from;
}

static void runtime_bulk_store(void *to, void *from, unsigned bytes, int adds, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    if ((uintptr_t)to % 16 || bytes % 16)
        give_up(w, SIM_MISALIGNED_ADDRESS,
                "a bulk copy's address in global memory, or its number of bytes, is not a multiple of 16", at);
    bulk_store *s = begin_store(w, (const char *)from, bytes, 16, adds, at);
    s->to = (char *)to;
    end_store(w, s);
}

static void runtime_tensor_store(const void *map, sim_coordinates where, int rank, void *from, int adds, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    const sim_tensor_map *m = tensor_map_at(w, map, rank, at);
    for (int i = 0; i < rank; i++) /* no im2col map, whose rank is below 0 */
        if (where.at[i] < 0)
            give_up(w, SIM_ILLEGAL_INSTRUCTION,
                    "a tile that is stored, or added, begins ahead of its tensor; it may only end outside of it", at);
    if (adds && m->type != TENSOR_F16 && m->type != TENSOR_F32 && m->type != TENSOR_BF16)
        give_up(w, SIM_LAUNCH_FAILED, "the simulator adds tiles of f16, bf16 and f32", at);
    bulk_store *s = begin_store(w, (const char *)from, tile_bytes(m), swizzle_period(m->swizzle), adds, at);
    s->map = *m;
    s->where = where;
    end_store(w, s);
}

static void runtime_bulk_commit(void)
{
    worker *w = this_worker;
    w->async->store_groups[w->current]++;
}

static void runtime_bulk_wait(unsigned pending, int read_only)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    async *a = w->async;
    for (bulk_store **p = &a->stores; *p;) {
        bool finished = (*p)->thread == w->current && (*p)->group + pending < a->store_groups[w->current];
        if (finished && !read_only) {
            finish_store(p);
            continue;
        }
        if (finished)
            read_source(*p);
        p = &(*p)->next;
    }
    find_last_store(a);
}

/* --------------------------------------------------------------------------------------------------------- ends */

/* Ends a thread's asynchronous work: what it started must be finished. Stores that only have to reach global
   memory do so now. */
static void async_thread_exits(worker *w)
{
    quietly no_accesses(w);
    async *a = w->async;
    for (const wgmma_product *p = a->products; p; p = p->next)
        if (p->warp == w->current / SIM_WARP)
            give_up(w, SIM_LAUNCH_FAILED,
                    "this thread exits while a wgmma of its warp is under way that nobody has waited for",
                    sim_place{NULL, 0});
    for (bulk_store **p = &a->stores; *p;) {
        if ((*p)->thread != w->current) {
            p = &(*p)->next;
            continue;
        }
        if ((*p)->from)
            give_up_at(w, (*p)->from,
                       "this thread exits before its bulk store from here has read it (cp.async.bulk.wait_group.read)",
                       sim_place{NULL, 0});
        finish_store(p);
    }
    find_last_store(a);
    if (w->live > 1)
        return;
    take_inbox(w);
    if (a->loads)
        give_up_at(w, a->loads->to, "the block ends while a bulk load to here is under way that nobody has waited for",
                   sim_place{NULL, 0});
    for (unsigned i = 0; i < MAX_WARPS; i++)
        if (a->warpgroups[i / 4].by_warp[i % 4] != a->warpgroups[i / 4].count)
            give_up(w, SIM_LAUNCH_FAILED, "the warps of a warpgroup issued different numbers of wgmma",
                    sim_place{NULL, 0});
}

/* Advances a block in which no thread can run. Loads that are waited for arrive now. Otherwise
   mbarrier.try_wait fails once, as a real one does after some time; that helps a thread with other work, or
   if another block of the cluster sends something. False if nothing helped. */
static bool async_goes_on(worker *w)
{
    enum { TRIES = 3 };
    async *a = w->async;
    if (deliver_loads(w, NULL) && w->ready_count)
        return true;
    w->stalls = w->progress == w->last_stall ? w->stalls + 1 : 0;
    w->last_stall = w->progress;
    if (!a->waiting_count || (w->stalls > TRIES && !w->cluster))
        return false;
    if (w->stalls > TRIES)
        wait_for_inbox(w);
    while (a->waiting_count)
        make_ready(w, a->waiting[--a->waiting_count]);
    return true;
}

/* Lists the threads that wait at mbarriers with what these lack, and those that wait for registers. */
static void say_async_waiting(sim_text *t, const worker *w)
{
    const async *a = w->async;
    bool said[MAX_THREADS] = {false};
    for (unsigned i = 0; i < a->waiting_count; i++) {
        const sim_thread *first = &w->threads[a->waiting[i]];
        const mbarrier *b = first->barrier;
        unsigned count = 0;
        for (unsigned k = i; k < a->waiting_count && !said[i]; k++) {
            const sim_thread *other = &w->threads[a->waiting[k]];
            if (other->barrier != b || other->parity != first->parity)
                continue;
            said[k] = k > i;
            count++;
        }
        if (said[i])
            continue;
        say(t, " %u threads (", count);
        unsigned p[3];
        thread_position(w, a->waiting[i], p);
        say(t, "one is %u,%u,%u) wait at the mbarrier at ", p[0], p[1], p[2]);
        say_shared(t, w, b);
        say(t, " for parity %u; it is in phase %u, which lacks %u of %u arrivals and %lld bytes;", first->parity,
            (unsigned)b->phase, (unsigned)b->pending, (unsigned)b->arrivals, (long long)b->bytes);
    }
    if (a->short_count)
        say(t, " %u threads wait in setmaxnreg.inc: %u registers of the block's %u are taken;", a->short_count,
            a->registers_used, a->registers_all);
}
