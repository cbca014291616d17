// SPDX-License-Identifier: MIT
/*  product.cpp - products of warpgroups (wgmma): formats of operands, tiles in shared memory, sums

    A warp computes its 16 rows when a wait_group needs them. Until then its sums are NaN.
*/

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

/* Converts a float with a sign, then `exponent` bits, then `mantissa` bits, and infinities as in IEEE 754. */
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

/* Returns element i of an operand. */
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

static int operand_size(int kind)
{
    return kind == SIM_WGMMA_TF32 ? 4 : kind == SIM_WGMMA_BF16 || kind == SIM_WGMMA_F16 ? 2 : 1;
}

/* ------------------------------------------------------------------------------------------------------- tiles */

enum { TENSOR_F16 = 6, TENSOR_F32 = 7, TENSOR_BF16 = 9, TENSOR_TF32 = 11 }; /* CUtensorMapDataType */

/* Returns the bytes of shared memory after which a tile's pattern repeats; tiles are aligned to it. */
static unsigned swizzle_period(int swizzle) { return swizzle ? 128u << swizzle : 128; }

static size_t swizzled(size_t offset, int swizzle) { return offset ^ (offset >> 7 & ((1u << swizzle) - 1)) << 4; }

static const sim_tensor_map *tensor_map_at(worker *w, const void *p, int rank, sim_place at)
{
    const sim_tensor_map *m = (const sim_tensor_map *)p;
    if (memcmp(m->magic, SIM_TENSOR_MAGIC, sizeof m->magic) != 0)
        give_up(w, SIM_LAUNCH_FAILED, "this is no tensor map that cuTensorMapEncodeTiled made", at);
    if (m->im2col != (rank < 0))
        give_up(w, SIM_LAUNCH_FAILED,
                "a copy in im2col mode wants a tensor map of cuTensorMapEncodeIm2col, and no other does", at);
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

/* Adds f32 or 16-bit elements atomically, one after the other, as other blocks may add at the same time. */
static void add_elements(char *to, const char *from, unsigned count, int type)
{
    for (unsigned i = 0; i < count; i++)
        if (type == TENSOR_F16 || type == TENSOR_BF16) {
            uint16_t *p = (uint16_t *)to + i, old = __atomic_load_n(p, __ATOMIC_RELAXED), sum,
                     add = ((const uint16_t *)from)[i];
            do
                sum = type == TENSOR_BF16 ? to_bf16(from_bf16(old) + from_bf16(add))
                                          : to_half(from_half(old) + from_half(add));
            while (!__atomic_compare_exchange_n(p, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        } else {
            uint32_t *p = (uint32_t *)to + i, old = __atomic_load_n(p, __ATOMIC_RELAXED), sum,
                     add = ((const uint32_t *)from)[i];
            do
                sum = to_bits(from_bits(old) + from_bits(add));
            while (!__atomic_compare_exchange_n(p, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        }
}

/* Loads, stores or adds a tile: between global memory and the layout of shared memory. */
enum tile_way { TILE_LOAD, TILE_STORE, TILE_ADD };

/* Moves a row of a tile, from byte `at` of the tile on: the elements from `first` on of the row of the tensor
   that begins at `from`, if it is inside. */
static void move_row(const sim_tensor_map *m, uint64_t from, bool inside, int64_t first, char *tile, size_t at,
                     enum tile_way way)
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
            for (uint32_t *word = (uint32_t *)(shared + skip);
                 m->type == TENSOR_TF32 && (char *)word < shared + skip + bytes; word++)
                *word = (*word + 0x0FFF + (*word >> 13 & 1)) & 0xFFFFE000; /* to 10 bits, to even */
        } else if (way == TILE_STORE)
            memcpy(global, shared + skip, bytes);
        else
            add_elements(global, shared + skip, (unsigned)(end - begin), m->type);
    }
}

/* Moves the rows of a tile in im2col mode. Rows are pixels: they run through the box of pixels of one image
   after the other. */
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

/* Returns the place of 16 bytes of an operand: for element k (the first) of row `line` of A or column `line`
   of B; if the operand is transposed, for 8 lines of k. */
static const char *operand_at(worker *w, uint64_t descriptor, int line, int k, int transposed, int size)
{
    size_t start = (size_t)(descriptor & 0x3FFF) << 4, leading = (size_t)(descriptor >> 16 & 0x3FFF) << 4;
    size_t stride = (size_t)(descriptor >> 32 & 0x3FFF) << 4;
    size_t offset = transposed ? (size_t)(line / 64) * leading + (size_t)(line % 64 * 2) + (size_t)(k / 8) * stride +
                                     (size_t)(k % 8) * 128
                               : (size_t)(line / 8) * stride + (size_t)(line % 8) * 128 + (size_t)(k * size);
    const char *p = (const char *)w->block.dynamic_shared + swizzled(start + offset, 3);
    if (!in_shared(w, p, 16)) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "a descriptor of wgmma leads to shared memory + %zu, the block has %llu bytes", start + offset,
                 w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, sim_place{NULL, 0});
    }
    return p;
}

static void check_descriptor(worker *w, uint64_t descriptor)
{
    const char *fault = descriptor >> 62 != 1 || (descriptor >> 49 & 7)
                            ? "the simulator knows the swizzle of 128 bytes, with base offset 0"
                        : descriptor >> 3 & 7          ? "it does not start at a group of 8 rows, aligned to 1024 bytes"
                        : !(descriptor >> 32 & 0x3FFF) ? "there is no stride between groups of 8 rows"
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
        int transposed = is_b ? x->transpose_b : x->transpose_a, begin = is_b ? 0 : first,
            end = is_b ? x->n : first + 16;
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
__attribute__((target("avx2,fma"))) static void multiply_avx2(async *a, wgmma_sums *sums, int all_k)
{
    multiply(a, sums, all_k);
}
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
                a->left[lane / 4 + i % 2 * 8][i / 2 * all_k / 2 + lane % 4 * in_word + e] =
                    operand_value(&p->words[lane][i], e, x->kind);
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

static float *sum_of(wgmma_sums *s, int lane, int i)
{
    return &s->value[lane / 4 + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

/* Finds the sums that a product of a warp changes: those of a product under way, or the values in the
   registers. */
static wgmma_sums *take_sums(worker *w, sim_wgmma *const *lanes)
{
    async *a = w->async;
    int n = lanes[0]->n;
    for (wgmma_sums *s = a->sums; s; s = s->next) {
        if (s->to[0] == lanes[0]->c && s->n == n)
            return s;
        if (s->to[0] < lanes[0]->c + n / 2 && lanes[0]->c < s->to[0] + s->n / 2)
            give_up(w, SIM_LAUNCH_FAILED, "wgmma changes part of the sums of another that is under way",
                    sim_place{NULL, 0});
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

/* Issues a product when all lanes of a warp have reached a wgmma.mma_async. The records are their sim_wgmma. */
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
        each_piece(w, p, [&](const char *from, int, int, int) {
            check_readable(w, from, 16, "wgmma", sim_place{NULL, 0});
        });
    p->sums = take_sums(w, all);
    p->sums->products++;
    *a->last_product = p;
    a->last_product = &p->next;
    if (settings.async_early)
        compute_product(w, p);
}

/* Finishes products when all lanes of a warp have reached a wgmma.wait_group. */
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
