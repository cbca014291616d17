// SPDX-License-Identifier: MIT
/*  hopper.h - what a block of sm_90a does beside its threads: barriers in shared memory, bulk copies, products of warpgroups

    Part of executor.cpp, between its messages and its waiting. A real GPU does all of this at some time between the instruction and the
    wait for it. Here it happens as late as it may, or with IGNIS_SIM_ASYNC=early at once; a kernel must be right with both:

        bulk loads      read global memory at once; write shared memory, and count their bytes, when a thread waits at their barrier
        bulk stores     read shared memory at cp.async.bulk.wait_group.read, write global memory at wait_group; or when their thread exits
        wgmma           a warp computes its 16 rows at the wait_group that needs them; until then its sums are NaN

    Errors, besides misaligned, foreign or impossible operands:
        - an operand, or the source of a store, that threads wrote without their fence.proxy.async; programs with such instructions are
          compiled so that plain stores are seen, too, but for the sanitizers, which see only stmatrix, st.shared and cp.async
        - an operand, or the source of a store, that a bulk load is under way to; a bulk load over one that is still to be read, or a thread's
          write over the source of a store
        - a thread that exits with products or stores that it did not wait for; a block that ends with loads that nobody waited for
        - a tensor's tile that is stored, or added, from a coordinate below 0 on; one that is loaded may begin there
        - an mbarrier that is not initialised, or gets more arrivals than it expects
        - setmaxnreg beyond what the block has: it waits for ever
    Nobody hangs: when no thread of a block can go on, or the threads that can poll memory in vain (IGNIS_SIM_PATIENCE), the launch fails, and
    says who waits where: for mbarriers the place in shared memory, the phase, and the arrivals and bytes that it lacks.

    Not seen: whether the compiler lets products run beside other work (tools/nvrtc_check.c sees its notes) and how many registers it needs;
    what a missing fence does to global memory; anything but the swizzle of 128 bytes in products; and time.
*/

/* ------------------------------------------------------------------------------------------------ what a block has */

#define MAX_SUMS 128 /* of a thread: 64 x 256 in 128 threads */
#define GRANULE 4    /* bytes of shared memory that have one writer */

/* An mbarrier's 8 bytes. */
typedef struct mbarrier {
    uint64_t pending : 16, arrivals : 16, phase : 8; /* arrivals: expected in each phase */
    int64_t bytes : 22;                              /* announced and not there yet */
    uint64_t mark : 2;                               /* 1: initialised */
} mbarrier;

/* A bulk load whose bytes are not in shared memory yet. */
typedef struct bulk_load {
    struct bulk_load *next;
    mbarrier *barrier;
    char *to; /* NULL: no load, but an arrival of another block of the cluster */
    unsigned bytes;
    char data[1];
} bulk_load;

/* A bulk store, of bytes that follow each other, or of a tensor's tile. */
typedef struct bulk_store {
    struct bulk_store *next;
    unsigned thread, group;
    char *to;           /* NULL: a tile */
    sim_tensor_map map; /* of that */
    sim_coordinates where;
    const char *from; /* NULL: it has been read into data, and somebody has waited for that */
    int adds;
    bool done; /* written */
    unsigned bytes;
    char data[1];
} bulk_store;

/* The sums of a warp that products are to change. They are given back when no product is left. */
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
    bool computed;               /* at once; it still counts as under way */
    unsigned words[SIM_WARP][4]; /* A in registers */
} wgmma_product;

/* The products that a warpgroup has issued, as its first warp to come there did: the others must issue the same. */
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
    float left[16][32], right[32][2 * MAX_SUMS] __attribute__((aligned(32))); /* operands of the product that is computed */
    unsigned store_groups[MAX_THREADS], wgmma_groups[MAX_WARPS];              /* committed so far */
    unsigned short *writers; /* of each granule of dynamic shared memory: thread + 1 that wrote and made no fence, or 0 */
    size_t writers_size;
    stretch *written[MAX_THREADS];                                            /* since each thread's last fence */
    unsigned written_count[MAX_THREADS], written_room[MAX_THREADS], unfenced; /* their sum */
    unsigned short waiting[MAX_THREADS];                                      /* at mbarriers */
    unsigned waiting_count;
    unsigned registers[MAX_THREADS], registers_used, registers_all;
    unsigned short short_of_registers[MAX_THREADS];
    unsigned short_count;
} async;

/* The thread sanitizer sees nothing of what happens in a scope with one of these. */
struct quietly {
    worker *w;
    quietly(worker *of) : w(of) { begin_quiet(w); }
    ~quietly() { end_quiet(w); }
};

static size_t shared_offset(const worker *w, const void *p) { return (size_t)((const char *)p - (const char *)w->block.dynamic_shared); }

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

/* Gives the block up with a sentence about a place in shared memory. */
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

/* A block begins, of a kernel with these launch bounds. */
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
    /* The compiler gives a thread what the launch bounds leave, in steps of 8; or less, when no setmaxnreg.inc of the kernel asks for that
       much, but then it is enough in any case. */
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
    unsigned begin = (unsigned)(shared_offset(w, p) / GRANULE), end = (unsigned)((shared_offset(w, p) + bytes + GRANULE - 1) / GRANULE);
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

/* It has written there: what threads wrote before is gone. */
static void forget_writers(worker *w, const char *p, size_t bytes)
{
    if (in_shared(w, p, bytes))
        memset(w->async->writers + shared_offset(w, p) / GRANULE, 0, (bytes + GRANULE - 1) / GRANULE * sizeof *w->async->writers);
}

/* The asynchronous side is about to read shared memory: no load may be under way to there, and no thread have written without a fence. */
static void check_readable(worker *w, const char *p, size_t bytes, const char *reader, sim_place at)
{
    const async *a = w->async;
    for (const bulk_load *l = a->loads; l; l = l->next)
        if (l->to < p + bytes && p < l->to + l->bytes) {
            char sentence[160];
            snprintf(sentence, sizeof sentence, "%s reads where a bulk load is under way that nobody has waited for", reader);
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
            snprintf(sentence, sizeof sentence, "%s reads what thread (%u,%u,%u) wrote without a fence.proxy.async behind it", reader, o[0],
                     o[1], o[2]);
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

/* Ends the phase if all that it waits for is there, and with it the waiting of those who wait for its end. */
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

/* An arrival, which announces so many bytes. */
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

/* The bytes of loads that count at one mbarrier (NULL: at all where a thread waits) get to where they belong. */
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

/* ----------------------------------------------------------------------------------------------------- formats */

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t h) { return from_bits((uint32_t)h << 16); }

static uint16_t to_bf16(float x)
{
    uint32_t u = to_bits(x);
    return x != x ? 0x7FFF : (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

/* A format with a sign, then `exponent` bits, then `mantissa` bits, and infinities as IEEE has them. */
static float from_small(uint32_t h, int exponent, int mantissa)
{
    uint32_t magnitude = h & ((1u << (exponent + mantissa)) - 1), top = ((1u << exponent) - 1) << mantissa;
    int bias = (1 << (exponent - 1)) - 1;
    float x = magnitude >= top             ? from_bits(0x7F800000 | (magnitude - top) << (23 - mantissa))
              : magnitude < 1u << mantissa ? (float)magnitude * from_bits((uint32_t)(127 + 1 - bias - mantissa) << 23)
                                           : from_bits((magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23));
    return h >> (exponent + mantissa) & 1 ? -x : x;
}

static float from_half(uint16_t h) { return from_small(h, 5, 10); }

static uint16_t to_half(float x)
{
    uint32_t u = to_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return 0x7FFF;
    if (magnitude >= 0x477FF000)
        return (uint16_t)(sign | 0x7C00); /* rounds to infinity */
    if (magnitude < 0x38800000)           /* subnormal: the sum's last bit is 2^-24 */
        return (uint16_t)(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3F000000));
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13));
}

static float from_e4m3(uint8_t b) /* no infinities, one NaN */
{
    uint32_t e = b >> 3 & 15, m = b & 7;
    float x = (b & 127) == 127 ? from_bits(0x7FFFFFFF) : e ? from_bits((e + 120) << 23 | m << 20) : (float)m * 0x1p-9f;
    return b & 128 ? -x : x;
}

/* Element i of an operand. */
static float operand_value(const void *p, int i, int kind)
{
    switch (kind) {
    case SIM_WGMMA_BF16: return from_bf16(((const uint16_t *)p)[i]);
    case SIM_WGMMA_F16: return from_half(((const uint16_t *)p)[i]);
    case SIM_WGMMA_TF32: return from_bits(((const uint32_t *)p)[i] & 0xFFFFE000);
    case SIM_WGMMA_E4M3: return from_e4m3(((const uint8_t *)p)[i]);
    default: return from_small(((const uint8_t *)p)[i], 5, 2);
    }
}

static int operand_size(int kind) { return kind == SIM_WGMMA_TF32 ? 4 : kind == SIM_WGMMA_BF16 || kind == SIM_WGMMA_F16 ? 2 : 1; }

/* ------------------------------------------------------------------------------------------------------- tiles */

enum { TENSOR_F16 = 6, TENSOR_F32 = 7, TENSOR_BF16 = 9, TENSOR_TF32 = 11 }; /* CUtensorMapDataType */

/* Bytes of shared memory that a tile's pattern repeats after, and by which its place is aligned. */
static unsigned swizzle_period(int swizzle) { return swizzle ? 128u << swizzle : 128; }

static size_t swizzled(size_t offset, int swizzle) { return offset ^ (offset >> 7 & ((1u << swizzle) - 1)) << 4; }

static const sim_tensor_map *tensor_map_at(worker *w, const void *p, int rank, sim_place at)
{
    const sim_tensor_map *m = (const sim_tensor_map *)p;
    if (memcmp(m->magic, SIM_TENSOR_MAGIC, sizeof m->magic) != 0)
        give_up(w, SIM_LAUNCH_FAILED, "this is no tensor map that cuTensorMapEncodeTiled made", at);
    if (m->im2col != (rank < 0))
        give_up(w, SIM_LAUNCH_FAILED, "a copy in im2col mode wants a tensor map of cuTensorMapEncodeIm2col, and no other does", at);
    rank = rank < 0 ? -rank : rank;
    if ((uintptr_t)p % 64)
        give_up(w, SIM_MISALIGNED_ADDRESS, "a tensor map is not aligned to 64 bytes", at);
    if (m->rank != rank)
        give_up(w, SIM_LAUNCH_FAILED, "a copy names another number of dimensions than its tensor map has", at);
    if (m->swizzle && m->box[0] * m->element != 16 << m->swizzle)
        give_up(w, SIM_LAUNCH_FAILED, "the simulator knows tiles only whose rows are as long as their swizzle", at);
    return m;
}

static unsigned tile_bytes(const sim_tensor_map *m)
{
    unsigned bytes = m->element;
    for (int d = 0; d < (m->im2col ? 2 : m->rank); d++)
        bytes *= m->box[d];
    return bytes;
}

/* Adds f32 or 16-bit elements, one after the other, as other blocks may do at the same time. */
static void add_elements(char *to, const char *from, unsigned count, int type)
{
    for (unsigned i = 0; i < count; i++)
        if (type == TENSOR_F16 || type == TENSOR_BF16) {
            uint16_t *p = (uint16_t *)to + i, old = __atomic_load_n(p, __ATOMIC_RELAXED), sum, add = ((const uint16_t *)from)[i];
            do
                sum = type == TENSOR_BF16 ? to_bf16(from_bf16(old) + from_bf16(add)) : to_half(from_half(old) + from_half(add));
            while (!__atomic_compare_exchange_n(p, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        } else {
            uint32_t *p = (uint32_t *)to + i, old = __atomic_load_n(p, __ATOMIC_RELAXED), sum, add = ((const uint32_t *)from)[i];
            do
                sum = to_bits(from_bits(old) + from_bits(add));
            while (!__atomic_compare_exchange_n(p, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        }
}

/* Between global memory and the bytes of a tile as they lie in shared memory: loads them, stores them, or adds them. */
enum tile_way { TILE_LOAD, TILE_STORE, TILE_ADD };

/* A row of a tile, at so many bytes of it: the elements from `first` on of the row of the tensor that begins there, if it is inside. */
static void move_row(const sim_tensor_map *m, uint64_t from, bool inside, int64_t first, char *tile, size_t at, enum tile_way way)
{
    size_t row = (size_t)m->box[0] * m->element, piece = m->swizzle ? 16 : row;
    for (size_t e = 0; e < row; e += piece, at += piece, first += (int64_t)(piece / m->element)) {
        char *shared = tile + swizzled(at, m->swizzle);
        int64_t count = (int64_t)(piece / m->element);
        int64_t begin = first < 0 ? -first : 0, end = (int64_t)m->dims[0] - first;
        begin = begin > count ? count : begin;
        end = !inside || end < begin ? begin : end > count ? count : end;
        char *global = (char *)from + (first + begin) * m->element;
        size_t skip = (size_t)begin * m->element, bytes = (size_t)(end - begin) * m->element;
        if (way == TILE_LOAD) {
            memset(shared, m->fill ? 0xFF : 0, piece);
            memcpy(shared + skip, global, bytes);
            for (uint32_t *word = (uint32_t *)(shared + skip); m->type == TENSOR_TF32 && (char *)word < shared + skip + bytes; word++)
                *word = (*word + 0x0FFF + (*word >> 13 & 1)) & 0xFFFFE000; /* to 10 bits, to even */
        } else if (way == TILE_STORE)
            memcpy(global, shared + skip, bytes);
        else
            add_elements(global, shared + skip, (unsigned)(end - begin), m->type);
    }
}

/* The rows of a tile in im2col mode are pixels: they walk through the box of pixels of one image after the other. */
static void move_pixels(const sim_tensor_map *m, const sim_coordinates *where, char *tile, enum tile_way way)
{
    int64_t i[5] = {0, where->at[1], where->at[2], where->at[3], where->at[4]};
    size_t row = (size_t)m->box[0] * m->element;
    int spatial = m->rank - 2;
    for (unsigned pixel = 0; pixel < m->box[1]; pixel++) {
        bool inside = true;
        uint64_t from = m->base;
        for (int d = 1; d < m->rank; d++) {
            int64_t k = i[d] + (d <= spatial ? where->offset[d - 1] : 0);
            inside = inside && k >= 0 && (uint64_t)k < m->dims[d];
            from += m->strides[d] * (uint64_t)k;
        }
        move_row(m, from, inside, where->at[0], tile, pixel * row, way);
        int d = 1;
        for (; d <= spatial; d++) {
            i[d] += m->steps[d - 1];
            if (i[d] <= (int64_t)m->dims[d] - 1 + m->upper[d - 1])
                break;
            i[d] = m->lower[d - 1];
        }
        if (d > spatial)
            i[d]++;
    }
}

static void move_tile(const sim_tensor_map *m, const sim_coordinates *where, char *tile, enum tile_way way)
{
    unsigned side[5] = {1, 1, 1, 1, 1}, i[5];
    size_t at = 0, row = (size_t)m->box[0] * m->element;
    if (m->im2col) {
        move_pixels(m, where, tile, way);
        return;
    }
    for (int d = 0; d < m->rank; d++)
        side[d] = m->box[d];
    for (i[4] = 0; i[4] < side[4]; i[4]++)
        for (i[3] = 0; i[3] < side[3]; i[3]++)
            for (i[2] = 0; i[2] < side[2]; i[2]++)
                for (i[1] = 0; i[1] < side[1]; i[1]++, at += row) {
                    bool inside = true;
                    uint64_t from = m->base;
                    for (int d = 1; d < m->rank; d++) {
                        int64_t k = (int64_t)where->at[d] + i[d];
                        inside = inside && k >= 0 && (uint64_t)k < m->dims[d];
                        from += m->strides[d] * (uint64_t)k;
                    }
                    move_row(m, from, inside, where->at[0], tile, at, way);
                }
}

/* ---------------------------------------------------------------------------------------------------- products */

/* Where 16 bytes of an operand lie: for element k (its first) of row `line` of A or column `line` of B; or when the operand is
   transposed, for 8 lines of k. */
static const char *operand_at(worker *w, uint64_t descriptor, int line, int k, int transposed, int size)
{
    size_t start = (size_t)(descriptor & 0x3FFF) << 4, leading = (size_t)(descriptor >> 16 & 0x3FFF) << 4;
    size_t stride = (size_t)(descriptor >> 32 & 0x3FFF) << 4;
    size_t offset = transposed ? (size_t)(line / 64) * leading + (size_t)(line % 64 * 2) + (size_t)(k / 8) * stride + (size_t)(k % 8) * 128
                               : (size_t)(line / 8) * stride + (size_t)(line % 8) * 128 + (size_t)(k * size);
    const char *p = (const char *)w->block.dynamic_shared + swizzled(start + offset, 3);
    if (!in_shared(w, p, 16)) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "a descriptor of wgmma leads to shared memory + %zu, the block has %llu bytes", start + offset,
                 w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, sim_place{NULL, 0});
    }
    return p;
}

static void check_descriptor(worker *w, uint64_t descriptor)
{
    const char *fault = descriptor >> 62 != 1 || (descriptor >> 49 & 7) ? "the simulator knows the swizzle of 128 bytes, with base offset 0"
                        : descriptor >> 3 & 7                           ? "it does not start at a group of 8 rows, aligned to 1024 bytes"
                        : !(descriptor >> 32 & 0x3FFF)                  ? "there is no stride between groups of 8 rows"
                                                                        : NULL;
    char sentence[160];
    if (!fault)
        return;
    snprintf(sentence, sizeof sentence, "a descriptor of wgmma, %016llx: %s", (unsigned long long)descriptor, fault);
    give_up(w, SIM_LAUNCH_FAILED, sentence, sim_place{NULL, 0});
}

/* Calls body(address, line, k, is_b) for each 16 bytes that a warp's part of a product reads. */
template <class Body> static void each_piece(worker *w, const wgmma_product *p, Body body)
{
    const sim_wgmma *x = &p->what;
    int size = operand_size(x->kind), all_k = 32 / size, first = (int)(p->warp % 4) * 16;
    for (int is_b = x->in_registers; is_b < 2; is_b++) {
        int transposed = is_b ? x->transpose_b : x->transpose_a, begin = is_b ? 0 : first, end = is_b ? x->n : first + 16;
        for (int line = begin; line < end; line += transposed ? 8 : 1)
            for (int k = 0; k < all_k; k += transposed ? 1 : 16 / size)
                body(operand_at(w, is_b ? x->b : x->a, line, k, transposed, size), line - begin, k, is_b);
    }
}

typedef float eight_floats __attribute__((vector_size(32)));
static inline __attribute__((always_inline)) void multiply(async *a, wgmma_sums *sums, int all_k)
{
    for (int row = 0; row < 16; row++) {
        eight_floats *c = (eight_floats *)sums->value[row];
        for (int k = 0; k < all_k; k++) {
            const eight_floats *b = (const eight_floats *)a->right[k];
            float x = a->left[row][k];
            for (int i = 0; i < sums->n / 8; i++)
                c[i] += b[i] * x;
        }
    }
}
static void multiply_anywhere(async *a, wgmma_sums *sums, int all_k) { multiply(a, sums, all_k); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void multiply_avx2(async *a, wgmma_sums *sums, int all_k) { multiply(a, sums, all_k); }
#endif

static void compute_product(worker *w, wgmma_product *p)
{
    async *a = w->async;
    const sim_wgmma *x = &p->what;
    int size = operand_size(x->kind), all_k = 32 / size, in_word = 4 / size;
    each_piece(w, p, [&](const char *from, int line, int k, int is_b) {
        int transposed = is_b ? x->transpose_b : x->transpose_a;
        for (int i = 0; i < 16 / size; i++) {
            float value = operand_value(from, i, x->kind);
            int l = transposed ? line + i : line, m = transposed ? k : k + i;
            if (is_b)
                a->right[m][l] = value;
            else
                a->left[l][m] = value;
        }
    });
    for (int lane = 0; lane < SIM_WARP && x->in_registers; lane++)
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < in_word; e++)
                a->left[lane / 4 + i % 2 * 8][i / 2 * all_k / 2 + lane % 4 * in_word + e] = operand_value(&p->words[lane][i], e, x->kind);
    if (!x->keep)
        memset(p->sums->value, 0, sizeof p->sums->value);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        multiply_avx2(a, p->sums, all_k);
    else
#endif
        multiply_anywhere(a, p->sums, all_k);
    p->computed = true;
}

static float *sum_of(wgmma_sums *s, int lane, int i) { return &s->value[lane / 4 + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2]; }

/* The sums that a product of a warp changes: those of one that is under way, or what is in the registers now. */
static wgmma_sums *take_sums(worker *w, sim_wgmma *const *lanes)
{
    async *a = w->async;
    int n = lanes[0]->n;
    for (wgmma_sums *s = a->sums; s; s = s->next) {
        if (s->to[0] == lanes[0]->c && s->n == n)
            return s;
        if (s->to[0] < lanes[0]->c + n / 2 && lanes[0]->c < s->to[0] + s->n / 2)
            give_up(w, SIM_LAUNCH_FAILED, "wgmma changes part of the sums of another that is under way", sim_place{NULL, 0});
    }
    wgmma_sums *s = (wgmma_sums *)take_memory(sizeof *s);
    s->next = a->sums;
    a->sums = s;
    s->n = n;
    for (int lane = 0; lane < SIM_WARP; lane++) {
        s->to[lane] = lanes[lane]->c;
        for (int i = 0; i < n / 2; i++) {
            *sum_of(s, lane, i) = s->to[lane][i];
            s->to[lane][i] = from_bits(0x7FFFFFFF);
        }
    }
    return s;
}

static bool same_product(const sim_wgmma *x, const sim_wgmma *y)
{
    return x->n == y->n && x->kind == y->kind && x->keep == y->keep && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->in_registers == y->in_registers && x->a == y->a && x->b == y->b;
}

/* All lanes of a warp have come to a wgmma.mma_async: records are their sim_wgmma. */
static void issue_product(void *const *records, unsigned lanes)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    async *a = w->async;
    sim_wgmma *const *all = (sim_wgmma *const *)records;
    unsigned self = w->current / SIM_WARP;
    if (lanes != ~0u)
        give_up(w, SIM_LAUNCH_FAILED, "wgmma in a warp that is not complete", sim_place{NULL, 0});
    for (int lane = 1; lane < SIM_WARP; lane++)
        if (!same_product(all[0], all[lane]))
            give_up(w, SIM_LAUNCH_FAILED, "the lanes of a warp issue different wgmma", sim_place{NULL, 0});
    warpgroup *g = &a->warpgroups[self / 4];
    unsigned index = g->by_warp[self % 4]++;
    if (index == g->count)
        g->issued[g->count++ % REMEMBERED_PRODUCTS] = *all[0];
    else if (g->count - index <= REMEMBERED_PRODUCTS && !same_product(&g->issued[index % REMEMBERED_PRODUCTS], all[0]))
        give_up(w, SIM_LAUNCH_FAILED, "the warps of a warpgroup issue different wgmma", sim_place{NULL, 0});

    wgmma_product *p = (wgmma_product *)take_memory(sizeof *p);
    p->what = *all[0];
    p->warp = self;
    p->group = a->wgmma_groups[self];
    for (int lane = 0; lane < SIM_WARP; lane++)
        memcpy(p->words[lane], all[lane]->words, sizeof p->words[lane]);
    check_descriptor(w, p->what.b);
    if (!p->what.in_registers)
        check_descriptor(w, p->what.a);
    if (a->unfenced || a->loads)
        each_piece(w, p, [&](const char *from, int, int, int) { check_readable(w, from, 16, "wgmma", sim_place{NULL, 0}); });
    p->sums = take_sums(w, all);
    p->sums->products++;
    *a->last_product = p;
    a->last_product = &p->next;
    if (settings.async_early)
        compute_product(w, p);
}

/* All lanes of a warp have come to a wgmma.wait_group. */
static void finish_products(void *const *records, unsigned lanes)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    async *a = w->async;
    unsigned self = w->current / SIM_WARP, pending = *(const unsigned *)records[0];
    if (lanes != ~0u)
        give_up(w, SIM_LAUNCH_FAILED, "wgmma.wait_group in a warp that is not complete", sim_place{NULL, 0});
    for (wgmma_product **at = &a->products; *at;) {
        wgmma_product *p = *at;
        if (p->warp != self || p->group + pending >= a->wgmma_groups[self]) {
            at = &p->next;
            continue;
        }
        if (!p->computed)
            compute_product(w, p);
        wgmma_sums *s = p->sums;
        if (--s->products == 0) {
            for (int lane = 0; lane < SIM_WARP; lane++)
                for (int i = 0; i < s->n / 2; i++)
                    s->to[lane][i] = *sum_of(s, lane, i);
            for (wgmma_sums **q = &a->sums; *q; q = &(*q)->next)
                if (*q == s) {
                    *q = s->next;
                    break;
                }
            free(s);
        }
        *at = p->next;
        if (!*at)
            a->last_product = at;
        free(p);
    }
}

static void runtime_wgmma_commit(void)
{
    worker *w = this_worker;
    if (w->current % SIM_WARP == 0)
        w->async->wgmma_groups[w->current / SIM_WARP]++;
}

/* -------------------------------------------------------------------------------------------------- bulk copies */

static void check_place(worker *w, const void *p, size_t bytes, size_t alignment, sim_place at)
{
    char sentence[160];
    if ((uintptr_t)p % alignment) {
        snprintf(sentence, sizeof sentence, "a bulk copy's place in shared memory is not aligned to %zu bytes", alignment);
        give_up(w, SIM_MISALIGNED_ADDRESS, sentence, at);
    }
    if (w->block.dynamic_shared && shared_offset(w, p) < 0x1000000 && !in_shared(w, p, bytes)) {
        snprintf(sentence, sizeof sentence, "a bulk copy of %zu bytes at shared memory + %zu, the block has %llu bytes", bytes,
                 shared_offset(w, p), w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
}

/* A load is to write here. Nothing that is under way may still read it. */
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
        give_up(w, SIM_MISALIGNED_ADDRESS, "a bulk copy's address in global memory, or its number of bytes, is not a multiple of 16", at);
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
static void send_to_block(worker *w, unsigned block, unsigned offset, const void *from, unsigned bytes, unsigned counted_at, sim_place at);

/* For each block of the cluster whose bit is set, at the same places. */
static void runtime_tensor_multicast(void *to, const void *map, sim_coordinates where, int rank, void *counter, unsigned blocks,
                                     sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    const sim_tensor_map *m = tensor_map_at(w, map, rank, at);
    unsigned own = cluster_rank(w, at), bytes = tile_bytes(m);
    bulk_load *l = begin_load(w, (char *)to, bytes, swizzle_period(m->swizzle), counter, at);
    move_tile(m, &where, l->data, TILE_LOAD);
    for (unsigned block = 0; block < 16; block++)
        if (blocks >> block & 1 && block != own)
            send_to_block(w, block, (unsigned)shared_offset(w, to), l->data, bytes, (unsigned)shared_offset(w, counter), at);
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

/* Takes a store out of the list, once it is through. */
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

/* Even where it is done at once, it is to be waited for. */
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
        give_up(w, SIM_MISALIGNED_ADDRESS, "a bulk copy's address in global memory, or its number of bytes, is not a multiple of 16", at);
    bulk_store *s = begin_store(w, (const char *)from, bytes, 16, adds, at);
    s->to = (char *)to;
    end_store(w, s);
}

static void runtime_tensor_store(const void *map, sim_coordinates where, int rank, void *from, int adds, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    const sim_tensor_map *m = tensor_map_at(w, map, rank, at);
    for (int i = 0; i < rank; i++) /* none of im2col, whose rank is below 0 */
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

/* A thread is through: what it started must be. Stores that only have to get to global memory do so now. */
static void async_thread_exits(worker *w)
{
    quietly no_accesses(w);
    async *a = w->async;
    for (const wgmma_product *p = a->products; p; p = p->next)
        if (p->warp == w->current / SIM_WARP)
            give_up(w, SIM_LAUNCH_FAILED, "this thread exits while a wgmma of its warp is under way that nobody has waited for",
                    sim_place{NULL, 0});
    for (bulk_store **p = &a->stores; *p;) {
        if ((*p)->thread != w->current) {
            p = &(*p)->next;
            continue;
        }
        if ((*p)->from)
            give_up_at(w, (*p)->from, "this thread exits before its bulk store from here has read it (cp.async.bulk.wait_group.read)",
                       sim_place{NULL, 0});
        finish_store(p);
    }
    find_last_store(a);
    if (w->live > 1)
        return;
    take_inbox(w);
    if (a->loads)
        give_up_at(w, a->loads->to, "the block ends while a bulk load to here is under way that nobody has waited for", sim_place{NULL, 0});
    for (unsigned i = 0; i < MAX_WARPS; i++)
        if (a->warpgroups[i / 4].by_warp[i % 4] != a->warpgroups[i / 4].count)
            give_up(w, SIM_LAUNCH_FAILED, "the warps of a warpgroup issued different numbers of wgmma", sim_place{NULL, 0});
}

/* Nobody of the block can go on: loads that are waited for come now. Else mbarrier.try_wait gives up for once, as a real one does after some
   time; that helps a thread that then does something else, or if another block of the cluster sends something. False: nothing of it helped. */
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

/* Who waits at mbarriers, and what these lack; who waits for registers. */
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
        say(t, " for parity %u; it is in phase %u, which lacks %u of %u arrivals and %lld bytes;", first->parity, (unsigned)b->phase,
            (unsigned)b->pending, (unsigned)b->arrivals, (long long)b->bytes);
    }
    if (a->short_count)
        say(t, " %u threads wait in setmaxnreg.inc: %u registers of the block's %u are taken;", a->short_count, a->registers_used,
            a->registers_all);
}
