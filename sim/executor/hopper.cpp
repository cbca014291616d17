// SPDX-License-Identifier: MIT
/*  hopper.cpp - what a block of sm_90a does beside its threads: barriers in shared memory, bulk copies, products of
    warpgroups

    This file has the barriers and the state of bulk copies and products; bulk.cpp and product.cpp execute them. A real
    GPU does all of this at some time between the instruction and the wait for it. Here it happens as late as permitted,
    or with IGNIS_SIM_ASYNC=early at once. A kernel must be right with both:

        bulk loads      read global memory at once; write shared memory, and count their bytes, when a thread waits at
                        their barrier
        bulk stores     read shared memory at cp.async.bulk.wait_group.read, write global memory at wait_group; or when
                        their thread exits
        wgmma           a warp computes its 16 rows at the wait_group that needs them; until then its sums are NaN

    Errors, besides misaligned, foreign or impossible operands:
        - an operand, or the source of a store, that threads wrote without fence.proxy.async; programs with such
          instructions are compiled so that plain stores are seen, too, except under sanitizers, which see only
          stmatrix, st.shared and cp.async
        - an operand, or the source of a store, that a bulk load is under way to; a bulk load over one that is still to
          be read, or a thread's write over the source of a store
        - a thread that exits with products or stores that it did not wait for; a block that ends with loads that no
          thread waited for
        - a tile of a tensor that is stored, or added, from a coordinate below 0 on; a load may begin there
        - an mbarrier that is not initialised, or gets more arrivals than it expects
        - setmaxnreg beyond the registers of the block: it waits for ever
    No launch hangs. When no thread of a block can run, or those that can poll memory in vain (IGNIS_SIM_PATIENCE), the
    launch fails. The message lists the waiting threads: for mbarriers the place in shared memory, the phase, and the
    missing arrivals and bytes.

    Not simulated: whether the compiler lets products overlap other work (tools/nvrtc_check.c sees its notes) and how
    many registers it needs; the effect of a missing fence on global memory; any swizzle but that of 128 bytes in
    products; and time.
*/

/* ------------------------------------------------------------------------------------ state of a block */

#define MAX_SUMS 128 /* of a thread: 64 x 256 in 128 threads */
#define GRANULE 4    /* bytes of shared memory that have one writer */

/* An mbarrier's 8 bytes. */
typedef struct mbarrier {
    uint64_t pending : 16, arrivals : 16, phase : 8; /* arrivals: expected in each phase */
    int64_t bytes : 22;                              /* announced and not arrived */
    uint64_t mark : 2;                               /* 1: initialised */
} mbarrier;

/* A bulk load whose bytes are not in shared memory yet. */
typedef struct bulk_load {
    struct bulk_load *next;
    mbarrier *barrier;
    char *to; /* NULL: an arrival of another block of the cluster, not a load */
    unsigned bytes;
    char data[1];
} bulk_load;

/* A bulk store of contiguous bytes, or of a tensor's tile. */
typedef struct bulk_store {
    struct bulk_store *next;
    unsigned thread, group;
    char *to;           /* NULL for a tile */
    sim_tensor_map map; /* of the tile */
    sim_coordinates where;
    const char *from; /* NULL: it was read into data, and a thread has waited for that */
    int adds;
    bool done; /* written */
    unsigned bytes;
    char data[1];
} bulk_store;

/* The sums of a warp that products will change. They are released when no product is left. */
typedef struct wgmma_sums {
    struct wgmma_sums *next;
    float *to[SIM_WARP];
    int n;
    unsigned products;
    float value[16][2 * MAX_SUMS] __attribute__((aligned(32)));
} wgmma_sums;

/* A warp's part of a product: 16 rows. */
typedef struct wgmma_product {
    struct wgmma_product *next;
    wgmma_sums *sums;
    sim_wgmma what;
    unsigned warp, group;
    bool computed;               /* computed at once; it still counts as under way */
    unsigned words[SIM_WARP][4]; /* A in registers */
} wgmma_product;

/* The products that a warpgroup has issued, as its first warp issued them: the others must issue the same. */
#define REMEMBERED_PRODUCTS 64
typedef struct warpgroup {
    sim_wgmma issued[REMEMBERED_PRODUCTS];
    unsigned count, by_warp[4];
} warpgroup;

/* Granules that a thread wrote. */
typedef struct stretch {
    unsigned begin, end;
} stretch;

typedef struct async {
    bulk_load *loads, **last_load;
    bulk_store *stores, **last_store;
    wgmma_product *products, **last_product;
    wgmma_sums *sums;
    warpgroup warpgroups[MAX_WARPS / 4];
    float left[16][32],
        right[32][2 * MAX_SUMS] __attribute__((aligned(32)));    /* operands of the product that is computed */
    unsigned store_groups[MAX_THREADS], wgmma_groups[MAX_WARPS]; /* committed so far */
    unsigned short *writers; /* by granule of dynamic shared memory: thread + 1 that wrote it without a fence, or 0 */
    size_t writers_size;
    stretch *written[MAX_THREADS];                                            /* since each thread's last fence */
    unsigned written_count[MAX_THREADS], written_room[MAX_THREADS], unfenced; /* their sum */
    unsigned short waiting[MAX_THREADS];                                      /* at mbarriers */
    unsigned waiting_count;
    unsigned registers[MAX_THREADS], registers_used, registers_all;
    unsigned short short_of_registers[MAX_THREADS];
    unsigned short_count;
} async;

/* A scope in which the thread sanitizer sees nothing. */
struct quietly {
    worker *w;
    quietly(worker *of) : w(of) { begin_quiet(w); }
    ~quietly() { end_quiet(w); }
};

static size_t shared_offset(const worker *w, const void *p)
{
    return (size_t)((const char *)p - (const char *)w->block.dynamic_shared);
}

static bool in_shared(const worker *w, const void *p, size_t bytes)
{
    size_t offset = shared_offset(w, p);
    return w->block.dynamic_shared && offset < w->block.dynamic_size && bytes <= w->block.dynamic_size - offset;
}

static void say_shared(sim_text *t, const worker *w, const void *p)
{
    if (in_shared(w, p, 1))
        say(t, "shared memory + %zu", shared_offset(w, p));
    else
        say(t, "static shared memory %p", p);
}

/* Gives the block up with a message about a place in shared memory. */
[[noreturn]] static void give_up_at(worker *w, const void *p, const char *sentence, sim_place at)
{
    sim_text t = {w->text, sizeof w->text};
    say_where(&t, w);
    say_shared(&t, w, p);
    say(&t, ": %s", sentence);
    say_place(&t, at);
    give_up(w, SIM_LAUNCH_FAILED, NULL, at);
}

template <class T> static void free_list(T **list, T ***last)
{
    while (*list) {
        T *next = (*list)->next;
        free(*list);
        *list = next;
    }
    *last = list;
}

static void *take_memory(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p)
        abort();
    return memset(p, 0, size);
}

/* Begins a block of a kernel with these launch bounds. */
static async *async_begin(worker *w, unsigned max_threads)
{
    quietly no_accesses(w);
    wgmma_sums **unused;
    if (!w->async_memory)
        w->async_memory = (async *)take_memory(sizeof(async));
    async *a = w->async_memory;
    free_list(&a->loads, &a->last_load);
    free_list(&a->stores, &a->last_store);
    free_list(&a->products, &a->last_product);
    free_list(&a->sums, &unused);
    memset(a->store_groups, 0, sizeof a->store_groups);
    memset(a->wgmma_groups, 0, sizeof a->wgmma_groups);
    memset(a->written_count, 0, sizeof a->written_count);
    memset(a->warpgroups, 0, sizeof a->warpgroups);
    a->unfenced = 0;
    size_t granules = w->block.dynamic_size / GRANULE + 1;
    if (granules > a->writers_size) {
        free(a->writers);
        a->writers = (unsigned short *)take_memory(granules * sizeof *a->writers);
        a->writers_size = granules;
    } else
        memset(a->writers, 0, granules * sizeof *a->writers);
    a->waiting_count = a->short_count = 0;
    /* The compiler gives a thread the registers that the launch bounds leave, in steps of 8; or fewer, if no
       setmaxnreg.inc of the kernel asks for more, and then they are always enough. */
    unsigned each = 65536u / max_threads / 8 * 8;
    each = each > 248 ? 248 : each;
    for (unsigned i = 0; i < w->thread_count; i++)
        a->registers[i] = each;
    a->registers_used = a->registers_all = each * w->thread_count;
    return a;
}

static void async_destroy(async *a)
{
    if (!a)
        return;
    wgmma_sums **unused;
    free_list(&a->loads, &a->last_load);
    free_list(&a->stores, &a->last_store);
    free_list(&a->products, &a->last_product);
    free_list(&a->sums, &unused);
    for (unsigned i = 0; i < MAX_THREADS; i++)
        free(a->written[i]);
    free(a->writers);
    free(a);
}

/* ----------------------------------------------------------------------------------------------- the two proxies */

static void runtime_wrote_shared(const void *p, unsigned bytes)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    async *a = w->async;
    unsigned t = w->current;
    if (!in_shared(w, p, bytes))
        return;
    for (const bulk_store *s = a->stores; s; s = s->next)
        if (s->from && s->from < (const char *)p + bytes && (const char *)p < s->from + s->bytes)
            give_up_at(w, p, "a write over the source of a bulk store that nobody has waited for", sim_place{NULL, 0});
    unsigned begin = (unsigned)(shared_offset(w, p) / GRANULE),
             end = (unsigned)((shared_offset(w, p) + bytes + GRANULE - 1) / GRANULE);
    bool known = true;
    for (unsigned i = begin; i < end; i++) {
        known = known && a->writers[i] == t + 1;
        a->writers[i] = (unsigned short)(t + 1);
    }
    if (known)
        return;
    if (a->written_count[t] && a->written[t][a->written_count[t] - 1].end == begin) {
        a->written[t][a->written_count[t] - 1].end = end;
        return;
    }
    if (a->written_count[t] == a->written_room[t]) {
        a->written_room[t] = 2 * a->written_room[t] + 16;
        a->written[t] = (stretch *)realloc(a->written[t], a->written_room[t] * sizeof *a->written[t]);
        if (!a->written[t])
            abort();
    }
    a->written[t][a->written_count[t]++] = {begin, end};
    a->unfenced++;
}

static void runtime_fence_async(void)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    async *a = w->async;
    unsigned t = w->current;
    for (unsigned i = 0; i < a->written_count[t]; i++)
        for (unsigned k = a->written[t][i].begin; k < a->written[t][i].end; k++)
            if (a->writers[k] == t + 1)
                a->writers[k] = 0;
    a->unfenced -= a->written_count[t];
    a->written_count[t] = 0;
}

/* Forgets the writers of memory that a load has overwritten. */
static void forget_writers(worker *w, const char *p, size_t bytes)
{
    if (in_shared(w, p, bytes))
        memset(w->async->writers + shared_offset(w, p) / GRANULE, 0,
               (bytes + GRANULE - 1) / GRANULE * sizeof *w->async->writers);
}

/* Checks memory that the asynchronous proxy will read: no load may be under way to it, and no thread may have
   written it without a fence. */
static void check_readable(worker *w, const char *p, size_t bytes, const char *reader, sim_place at)
{
    const async *a = w->async;
    for (const bulk_load *l = a->loads; l; l = l->next)
        if (l->to < p + bytes && p < l->to + l->bytes) {
            char sentence[160];
            snprintf(sentence, sizeof sentence, "%s reads where a bulk load is under way that nobody has waited for",
                     reader);
            give_up_at(w, p, sentence, at);
        }
    if (!a->unfenced || !in_shared(w, p, bytes))
        return;
    size_t begin = shared_offset(w, p) / GRANULE, end = (shared_offset(w, p) + bytes + GRANULE - 1) / GRANULE;
    for (size_t i = begin; i < end; i++)
        if (a->writers[i]) {
            char sentence[200];
            unsigned o[3];
            thread_position(w, a->writers[i] - 1u, o);
            snprintf(sentence, sizeof sentence,
                     "%s reads what thread (%u,%u,%u) wrote without a fence.proxy.async behind it", reader, o[0], o[1],
                     o[2]);
            give_up_at(w, (const char *)w->block.dynamic_shared + i * GRANULE, sentence, at);
        }
}

/* -------------------------------------------------------------------------------------------------- mbarriers */

static mbarrier *mbarrier_at(worker *w, void *p, sim_place at)
{
    mbarrier *b = (mbarrier *)p;
    if ((uintptr_t)p % sizeof *b)
        give_up(w, SIM_MISALIGNED_ADDRESS, "an mbarrier is not aligned to 8 bytes", at);
    if (b->mark != 1 || !b->arrivals || b->pending > b->arrivals)
        give_up_at(w, p, "this mbarrier is not initialised, or something was written over it", at);
    return b;
}

/* Ends the phase if all arrivals and bytes are there, and wakes the threads that wait for its end. */
static void mbarrier_settle(worker *w, mbarrier *b)
{
    async *a = w->async;
    count_progress(w);
    if (b->pending || b->bytes)
        return;
    b->pending = b->arrivals;
    b->phase++;
    for (unsigned i = 0; i < a->waiting_count;) {
        unsigned t = a->waiting[i];
        if (w->threads[t].barrier == b) {
            a->waiting[i] = a->waiting[--a->waiting_count];
            make_ready_first(w, t);
        } else
            i++;
    }
}

/* Counts an arrival, which announces `bytes` bytes. */
static void mbarrier_arrival(worker *w, mbarrier *b, unsigned bytes, sim_place at)
{
    if (!b->pending)
        give_up_at(w, b, "more arrivals at this mbarrier than it expects", at);
    b->pending--;
    b->bytes += bytes;
    mbarrier_settle(w, b);
}

static void runtime_mbarrier_init(void *p, unsigned arrivals, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    mbarrier *b = (mbarrier *)p;
    if ((uintptr_t)p % sizeof *b)
        give_up(w, SIM_MISALIGNED_ADDRESS, "an mbarrier is not aligned to 8 bytes", at);
    if (!arrivals || arrivals > 0xFFFF)
        give_up_at(w, p, "the simulator's mbarriers expect 1 to 65535 arrivals", at);
    memset(b, 0, sizeof *b);
    b->pending = b->arrivals = (uint16_t)arrivals;
    b->mark = 1;
    runtime_wrote_shared(p, sizeof *b);
}

static void take_inbox(worker *w);
static void wait_for_inbox(worker *w);

/* Delivers the loads that count at one mbarrier (NULL: at all where a thread waits). */
static bool deliver_loads(worker *w, const mbarrier *only)
{
    quietly no_accesses(w);
    async *a = w->async;
    bool any = false;
    take_inbox(w);
    for (bulk_load **p = &a->loads; *p;) {
        bulk_load *l = *p;
        bool wanted = l->barrier == only;
        for (unsigned i = 0; i < a->waiting_count && !only; i++)
            wanted |= w->threads[a->waiting[i]].barrier == l->barrier;
        if (!wanted) {
            p = &l->next;
            continue;
        }
        memcpy(l->to, l->data, l->bytes);
        forget_writers(w, l->to, l->bytes);
        *p = l->next;
        if (!*p)
            a->last_load = p;
        l->barrier->bytes -= l->bytes;
        mbarrier_settle(w, l->barrier);
        free(l);
        any = true;
    }
    return any;
}
