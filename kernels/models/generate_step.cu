// SPDX-License-Identifier: MIT
/*  models/generate_step.cu - a decode step of one row: all layers and the logits in one launch

    A decode step reads each weight once, and runs at the bandwidth of the memory if copies are always in flight. So
    one block stays on each SM, and goes from product to product. While it waits for results of other blocks, the
    weights of the next products come to a ring in shared memory. Eight warps of a block multiply, each with a slice
    of K, and do attention. One warp adds the slices and does the epilogue. Two warps start copies of weights. With
    quantised weights, one warp prefetches what comes after the ring. Between products everything waits. So nothing
    there depends on a load that could come earlier, and loops are short rather than unrolled.

    Blocks exchange results through global memory, as words with a sequence number in one half: the number of the
    layer, counted over all steps. A reader loads a word until its number is right; no flag or fence is needed. A
    later layer overwrites a word only after its block has waited for something that depends on all reads of the
    word. So a block without tiles in a product does not read the product's input, either.

    Sums have the order of gemv_mma.cu and attention_paged_mma.cu, so a row has the same bits in every way. For f16
    and bf16, sm_90a; all blocks of a launch must run at once. One program per type and size of heads: compiled with
    -DIGNIS_T=<1 or 2> -DIGNIS_HEAD_DIM=<64, 128 or 256>, which serves smaller heads, too. Weights are of T:
    generate_step_dense.cuh; or ignis__quantised_weight, with -DIGNIS_BLOCKS_TYPES: generate_step_blocks.cuh, and sums
    have the order of gemv_blocks.cu. With -DIGNIS_HEAD_NORMS=1, heads of q and k have norms.
*/
#ifdef IGNIS_BLOCKS_TYPES
#define IGNIS__STEP_OF_PARTS
#include "generate_step_blocks.cuh"
#else
#define IGNIS__STEP_OF_MAPS
#include "generate_step_dense.cuh"
#endif
#include "blocks.cuh"
#include "attention_paged_team.cuh"

#ifndef IGNIS_HEAD_NORMS
#define IGNIS_HEAD_NORMS 0
#endif

typedef unsigned long long word;

constexpr int TEAMS = 2;   /* of warps, for attention */
constexpr int ROW = D + 8; /* elements from a row of q to the next in shared memory: lanes read without conflicts */

/* >>words ------------------------------------------------------------------------------------------------------- */

__device__ inline void put_word(word *to, uint32_t x, uint32_t number)
{
    ignis_ptx_st_relaxed_gpu_u64(to, (word)number << 32 | x);
}
__device__ inline void put_word(word *to, float x, uint32_t number) { put_word(to, __float_as_uint(x), number); }

/*  Loads N pairs of words, pair i from at(i) if there(i), until all have the number. */
template <int N, typename At, typename There>
__device__ inline void wait_words(ulonglong2 (&pairs)[N], uint32_t number, At at, There there)
{
    uint32_t wrong;
#pragma unroll
    for (int i = 0; i < N; i++)
        pairs[i].x = pairs[i].y = (word)number << 32;
    do {
        wrong = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (there(i))
                pairs[i] = ignis_ptx_ld_relaxed_gpu_v2(at(i));
#pragma unroll
        for (int i = 0; i < N; i++)
            wrong |= ((uint32_t)(pairs[i].x >> 32) ^ number) | ((uint32_t)(pairs[i].y >> 32) ^ number);
    } while (wrong);
}
__device__ inline float number_of(word x) { return __uint_as_float((uint32_t)x); }

/* >>weights ----------------------------------------------------------------------------------------------------- */

__device__ inline step_product product_of(const ignis__decode_step &p, int which)
{
    step_product x;
    int ahead = 0;
    for (int i = 0; i < which; i++)
        ahead += p.shapes[i].tiles;
    *(ignis__decode_step_shape *)&x = p.shapes[which];
    /* continues over a layer's products, so that blocks get equal numbers of tiles */
    x.first = (blockIdx.x + gridDim.x - ahead % gridDim.x) % gridDim.x;
    x.grains = (x.k + GRAIN - 1) / GRAIN;
    x.per_slice = (x.grains + SLICES - 1) / SLICES;
    x.pieces = (x.per_slice + PIECE - 1) / PIECE;
    x.size = (x.per_slice + x.pieces - 1) / x.pieces;
    return x;
}

/*  Enumerates the products of a decode step. */
struct step_place {
    int layer, which;

    __device__ explicit step_place(const ignis__decode_step &p)
        : layer(0), which(p.count > 0 ? IGNIS__STEP_QKV : IGNIS__STEP_HEAD)
    {
    }
    __device__ void go_on(const ignis__decode_step &p)
    {
        which++;
        if (which > IGNIS__STEP_DOWN) {
            which = layer + 1 < p.count ? IGNIS__STEP_QKV : IGNIS__STEP_HEAD;
            layer++;
        }
    }
    __device__ bool more(const ignis__decode_step &p) const { return layer <= p.count; }
};

/*  The shared memory of a block. */
struct step_memory {
    step_product products[IGNIS__STEP_PRODUCTS];
    team_memory teams[TEAMS];
    alignas(16) T q[TEAMS][HEADS + 2][ROW];           /* the last two rows: the row's own key and value */
    T head_norms[TEAMS][2][IGNIS_HEAD_NORMS ? D : 4]; /* each team loads its own */
    float sines[D / 2], cosines[D / 2];
    float norm[2][SLICES];
    uint32_t asked; /* stages of the ring, since the step began */
};

struct step_block {
    const ignis__decode_step &p;
    step_memory &m;
    const step_ring ring;
    const step_row row; /* of x, followed by zeros up to whole grains */
    uint32_t before;    /* the number of the last step's last layer */

    /*  Returns the number of a layer. That of layer -1, the embedding, is 1 in the first step: no word has it before.
        */
    __device__ uint32_t number(int layer) const { return before + layer + 2; }
    __device__ T *keys(int layer) const { return p.cache + 2 * layer * p.slab; }

    /*  Calls each(product, begin) for all that comes to the ring, stage after stage; a stage has a chunk of each
        warp. begin: grains from the start of a warp's slice. The source is at the tile. */
    template <typename Each> __device__ void each_piece(step_source &source, Each each) const
    {
        step_place at(p);
        source.load(p.layers[at.layer].weights[at.which % IGNIS__STEP_HEAD]);
#pragma unroll 1
        while (at.more(p)) {
            const step_product x = m.products[at.which];
            source.begin(x);
            at.go_on(p);
            if (at.more(p))
                source.load(p.layers[at.layer].weights[at.which % IGNIS__STEP_HEAD]);
#pragma unroll 1
            for (int tile = x.first; tile < x.tiles; tile += gridDim.x) {
                int low, high;
                tile_rows(x, 0, tile, low, high);
                source.tile(x, low, high);
#pragma unroll 1
                for (int piece = 0, begin = 0; piece < x.pieces; piece++, begin += x.size)
                    each(x, begin);
            }
        }
    }

    /*  Copies all weights of the step to the ring, by one thread of each of the BRINGERS warps; each does its part.
        Only enough copies are in flight to keep the memory busy, because all other reads wait for them. */
    __device__ void bring_weights(int own) const
    {
        step_turn stage = {0, 1}, oldest = {0, 0}; /* oldest: of the half stages in flight */
        uint32_t asked = 0;
        int on_way = 0;
        step_source source(own);
        each_piece(source, [&](const step_product &x, int begin) {
            ignis_mbarrier_wait(ring.empty + 8 * stage.at, stage.phase);
            const int most = min(source.on_way, 2 * ring.count);
            if (!step_row::NUMBERS && own == 0) /* look_ahead reads it */
                ignis_ptx_st_volatile_shared((uint32_t)__cvta_generic_to_shared(&m.asked), ++asked);
#pragma unroll 1
            for (int half = 0; half < 2; half++, on_way++) {
                for (; on_way >= most; on_way--) {
                    ignis_mbarrier_wait(ring.full_of(oldest.at), oldest.phase);
                    oldest.go_on(2 * ring.count);
                }
                source.ask(ring, stage.at, half, x, begin);
            }
            stage.go_on(ring.count);
        });
    }

#ifdef IGNIS_BLOCKS_TYPES
    /*  Prefetches the weights after the ring to the L2 cache, by one thread, while the ring is full: blocks wait for
        each other longer than it takes to fill it. It prefetches slowly, because reads of other blocks' results
        wait for it. */
    __device__ void look_ahead() const
    {
        uint32_t stage = 0;
        long long last = clock64();
        step_source source(0);
        each_piece(source, [&](const step_product &x, int begin) {
#pragma unroll 1
            for (int half = 0; half < 2;) {
                const uint32_t asked = ignis_ptx_ld_volatile_shared((uint32_t)__cvta_generic_to_shared(&m.asked));
                if (stage <= asked)
                    break;
                if (stage < asked + source.ahead && clock64() - last >= source.pause &&
                    !ignis_ptx_mbarrier_test_wait(ring.empty + 8 * (asked % ring.count),
                                                  (asked / ring.count + 1) % 2)) {
                    last = clock64();
                    source.prefetch(half++, x, begin);
                } else {
                    __nanosleep(40);
                }
            }
            stage++;
        });
    }
#endif

    /*  Adds the slices of each tile and does its epilogue, by one warp. Each half of the warp has the tile's rows, a
        lane per row. */
    __device__ void finish() const
    {
        const int lane = threadIdx.x % 16, position = p.row->position;
        const int32_t *pages = p.row->pages;
        const long long page = position < 0 ? 0 : pages[position / PAGE];
        step_turn turn = {0, 0};
        for (step_place at(p); at.more(p); at.go_on(p)) {
            const step_product &x = m.products[at.which];
            const ignis__decode_step_layer &l = p.layers[at.layer];
            const T *bias = at.which == IGNIS__STEP_HEAD ? nullptr : l.bias[at.which];
            const bool adds = at.which == IGNIS__STEP_ATTENDED || at.which == IGNIS__STEP_DOWN;
            const uint32_t own = number(at.layer), base_number = at.which == IGNIS__STEP_DOWN ? own : own - 1;
            const word *const sums = p.sums[at.which == IGNIS__STEP_DOWN];
            ulonglong2 next_base;
            T next_more = T(0.0f);
            const auto find = [&](int tile, int &low, int &i) { /* a row of a tile; false if it does not exist */
                                                                int high;
                                                                tile_rows(x, 0, tile, low, high);
                                                                i = (lane < 8 ? low : high) + lane % 8;
                                                                return i < (x.gated ? 2 * x.n : x.n);
            };
            /* loads the summands one tile ahead, as that may take as long as a tile */
            const auto ask = [&](int tile) {
                int low, i;
                if (tile >= x.tiles || !find(tile, low, i))
                    return;
                if (bias)
                    next_more = bias[i];
                if (adds)
                    next_base = ignis_ptx_ld_relaxed_gpu_v2(sums + i / 2 * 2);
            };
            ask(x.first);
            for (int tile = x.first; tile < x.tiles; tile += gridDim.x) {
                int low, i;
                const bool there = find(tile, low, i);
                const T more = next_more;
                ulonglong2 base = next_base;
                ask(tile + gridDim.x);
                ignis_mbarrier_wait(ring.found_full + 8 * turn.at, turn.phase);
                float y = sum_of_slices(ring.found_of(turn.at, 0) + lane, COLUMN);
                ignis_warp_arrive(ring.found_free + 8 * turn.at);
                turn.go_on(TURNS);
                y += float(more);
                const float other = __shfl_xor_sync(0xffffffff, y, 8);
                if (at.which == IGNIS__STEP_UP) {
                    const float a = x.gated ? y * sigmoid(y) * other : gelu(y),
                                next = __shfl_down_sync(0xffffffff, a, 1);
                    if (threadIdx.x % 32 < (x.gated ? 8 : 16) && lane % 2 == 0 && there)
                        put_word(p.inner + i / 2, ignis_round_two<T>(a, next), own);
                    continue;
                }
                if (at.which == IGNIS__STEP_QKV) {
                    const int head = low / p.head_dim, d = i - head * p.head_dim, of_pair = d % (p.head_dim / 2);
                    /* else the readers rotate */
                    const bool value = head >= p.heads + p.kv_heads, turns = !value && !IGNIS_HEAD_NORMS;
                    const float sine = turns ? m.sines[of_pair] : 0.0f, cosine = turns ? m.cosines[of_pair] : 1.0f;
                    const float z = rotated(y, other, lane < 8 ? -sine : sine, cosine),
                                next = __shfl_down_sync(0xffffffff, z, 1);
                    if (!there || threadIdx.x % 32 >= 16)
                        continue;
                    if (lane % 2 == 0)
                        put_word(p.qkv + i / 2, ignis_round_two<T>(z, next), own);
                    if (head >= p.heads && position >= 0 && (value || !IGNIS_HEAD_NORMS)) { /* for later steps */
                        const generate_cache<T> cache = {keys(at.layer) + value * p.slab, p.kv_heads, p.head_dim};
                        cache.data[cache.in_page(page, position, head - p.heads - value * p.kv_heads) + d] = T(z);
                    }
                    continue;
                }
                if (!there || threadIdx.x % 32 >= 16)
                    continue;
                if (at.which == IGNIS__STEP_HEAD) {
                    p.logits[i] = y;
                } else {
                    while ((uint32_t)(base.x >> 32) != base_number || (uint32_t)(base.y >> 32) != base_number)
                        /* available since the block has x, but the load may have come before */
                        base = ignis_ptx_ld_relaxed_gpu_v2(sums + i / 2 * 2);
                    put_word(p.sums[at.which == IGNIS__STEP_ATTENDED] + i, number_of(i % 2 ? base.y : base.x) + y, own);
                }
            }
        }
    }

    /* >>products ------------------------------------------------------------------------------------------------- */

    /*  Loads words of two numbers each to shared memory: pairs first, first + step and so on up to `end`, AT_A_TIME
        at once. */
    template <int AT_A_TIME>
    __device__ void fetch(void *to, const word *from, uint32_t number, int first, int step, int end) const
    {
#pragma unroll 1
        for (int i = first; i < end; i += AT_A_TIME * step) {
            ulonglong2 x[AT_A_TIME];
            /* all lanes load the warp's last pair first: it belongs to a tile that blocks finish late */
            if (i + 4 * step < end) {
                const int last = min(i - (int)threadIdx.x % 32 + 31 + (AT_A_TIME - 1) * step, end - 1);
                ulonglong2 one[1];
                wait_words(
                    one, number, [&](int) { return from + 2 * last; }, [](int) { return true; });
            }
            wait_words(
                x, number, [&](int j) { return from + 2 * (i + j * step); }, [&](int j) { return i + j * step < end; });
#pragma unroll
            for (int j = 0; j < AT_A_TIME; j++)
                if (i + j * step < end)
                    ((uint2 *)to)[i + j * step] = make_uint2((uint32_t)x[j].x, (uint32_t)x[j].y);
        }
    }

    /*  Loads x to `row`, each warp its slice: as it is, or through its norm, with the bits of row_norm. normed: a
        norm is certain. */
    template <bool normed> __device__ void load_row(const step_place &at, const T *norm, const T *norm_bias) const
    {
        const step_product &x = m.products[at.which];
        const int k = x.k, slice = x.per_slice * GRAIN, length = x.grains * GRAIN;
        const int begin = min(threadIdx.x / 32 * slice, length), end = min(begin + slice, length),
                  lane = threadIdx.x % 32;
        const uint32_t own = number(at.layer);
        part_of_block::sync(); /* the previous row is no longer needed */
        if (!normed && at.which % 2) {
            const word *const from = at.which == IGNIS__STEP_ATTENDED ? p.attended : p.inner;
            if (D < 256 && slice > 8 * 32 * 4) /* else in two rounds; larger heads leave no registers for one */
                fetch<16>(row.at, from, own, begin / 4 + lane, 32, min(end, k) / 4);
            else
                fetch<8>(row.at, from, own, begin / 4 + lane, 32, min(end, k) / 4);
            __syncwarp();
            row.settle(begin, end, k);
            __syncwarp();
            return;
        }
        float *const numbers = (float *)(row.at + length);
        T *const bias = (T *)(numbers + k);
        const int first = threadIdx.x * 4;
        for (int i = first; i < k; i += THREADS * 4) { /* to where x will be */
            ignis_ptx_cp_async_8((uint32_t)__cvta_generic_to_shared(row.at + i), norm + i, 8);
            if (norm_bias)
                ignis_ptx_cp_async_8((uint32_t)__cvta_generic_to_shared(bias + i), norm_bias + i, 8);
        }
        ignis_ptx_cp_async_commit();
        fetch<8>(numbers, p.sums[at.which == IGNIS__STEP_UP], own - (at.which != IGNIS__STEP_UP), threadIdx.x, THREADS,
                 k / 2);
        ignis_ptx_cp_async_wait<0>();
        part_of_block::sync();
        float mean = 0, squares = 0;
        if (!p.rms) {
#pragma unroll 1
            for (int i = first; i < k; i += THREADS * 4) {
                const float4 v = *(const float4 *)(numbers + i);
                mean += (v.x + v.y) + (v.z + v.w);
            }
            mean = sum_of_threads<part_of_block>(mean, m.norm[0]) / k;
        }
#pragma unroll 1
        for (int i = first; i < k; i += THREADS * 4) {
            const float4 v = *(const float4 *)(numbers + i);
            squares = fmaf(v.x - mean, v.x - mean, squares);
            squares = fmaf(v.y - mean, v.y - mean, squares);
            squares = fmaf(v.z - mean, v.z - mean, squares);
            squares = fmaf(v.w - mean, v.w - mean, squares);
        }
        const float factor = rsqrtf(sum_of_threads<part_of_block>(squares, m.norm[1]) / k + (float)p.eps);
        row.fill(begin, end, k, [&](int i) {
            ignis_pack<T, step_row::EACH> y;
#pragma unroll
            for (int four = 0; four < step_row::EACH; four += 4) {
                const ignis_pack<float, 4> v = ignis_load(numbers + i + four);
                const ignis_pack<T, 4> w = ignis_load<4>(row.at + i + four),
                                       b = norm_bias ? ignis_load<4>(bias + i + four) : ignis_pack<T, 4>{};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    y[four + j] = T((v[j] - mean) * factor * float(w[j]) + float(b[j]));
            }
            return y;
        });
        __syncwarp();
    }

    /*  The norm of the next product that has one. */
    struct step_norms {
        const T *weight, *bias;
    };
    /*  Does a product. with_keys: that of q, k and v, while keys for attention are in flight. */
    template <bool with_keys>
    __device__ void product(const step_place &at, step_norms &norms, step_turn &stage, step_turn &turn) const
    {
        const step_product &x = m.products[at.which];
        const step_norms own = norms;
        if (at.which % 2 == 0 && at.layer < p.count) {
            const ignis__decode_step_layer &next = p.layers[at.layer + (at.which == IGNIS__STEP_UP)];
            norms.weight = next.norm[at.which == IGNIS__STEP_QKV];
            norms.bias = next.norm_bias[at.which == IGNIS__STEP_QKV];
        }
        if (x.first >= x.tiles)
            return;
        load_row<with_keys>(at, own.weight, own.bias);
        multiply<with_keys>(ring, x, row, stage, turn);
    }

    /* >>attention ------------------------------------------------------------------------------------------------ */

    __device__ word *found_at(int head, int split) const
    {
        return p.found + ((long long)head * p.splits + split) * (2 + p.head_dim);
    }

    /*  Combines the results of all splits for this block's slice of attention's elements. `width` lanes, one per
        split, have a pair of elements; the warp has several such pairs at a time. */
    __device__ void combine(uint32_t own, const paged_splits &splits) const
    {
        const int width = splits.count > 16  ? 32
                          : splits.count > 8 ? 16
                                             : 8,
                  lane = threadIdx.x % width, begin = threadIdx.x % 32 - lane;
        const int pairs = p.heads * p.head_dim / 2, share = (pairs + gridDim.x - 1) / gridDim.x;
        const int end = min((int)(blockIdx.x + 1) * share, pairs);
        for (int first = blockIdx.x * share + threadIdx.x / 32 * (32 / width); first < end;
             first += SLICES * (32 / width)) {
            const int i = first + begin / width;
            const bool there = i < end;
            const word *from = found_at(2 * i / p.head_dim, lane);
            ulonglong2 x[2];
            float top = -ignis_infinity<float>(), sum = 0, a = 0, b = 0;
            wait_words(
                x, own, [&](int j) { return from + j * (2 + 2 * i % p.head_dim); },
                [&](int) { return there && lane < splits.count; });
            __syncwarp();
#pragma unroll 1
            for (int from = 0; from < splits.count; from += SPLITS_AT_A_TIME) {
                const int last = min(from + SPLITS_AT_A_TIME, splits.count);
                /* lower splits are in `top` */
                float higher = lane < last ? number_of(x[0].x) : -ignis_infinity<float>();
#pragma unroll 1
                for (int apart = width / 2; apart > 0; apart /= 2)
                    higher = max(higher, __shfl_xor_sync(0xffffffff, higher, apart));
                higher = max(top, higher);
                const float factor = power_of_2(top - higher), weight = power_of_2(number_of(x[0].x) - higher);
                sum *= factor;
                a *= factor;
                b *= factor;
                top = higher;
#pragma unroll 4
                for (int j = from; j < last; j++) {
                    const float w = __shfl_sync(0xffffffff, weight, begin + j);
                    sum += w * __shfl_sync(0xffffffff, number_of(x[0].y), begin + j);
                    a += w * __shfl_sync(0xffffffff, number_of(x[1].x), begin + j);
                    b += w * __shfl_sync(0xffffffff, number_of(x[1].y), begin + j);
                }
            }
            if (there && lane == 0)
                put_word(p.attended + i, splits.count > 0 ? ignis_round_two<T>(a / sum, b / sum) : 0, own);
        }
    }

    /*  Starts copies of the norms of a layer's heads to shared memory. */
    __device__ void ask_for_head_norms(const paged_team<false> &team, int layer) const
    {
        const int quarter = p.head_dim / 4;
        for (int i = threadIdx.x % TEAM; i < 2 * quarter; i += TEAM) {
            const T *const from = p.layers[layer].head_norm[i / quarter];
            if (from)
                ignis_ptx_cp_async_8(
                    (uint32_t)__cvta_generic_to_shared(&m.head_norms[team.number][i / quarter][i % quarter * 4]),
                    from + i % quarter * 4, 8);
        }
        ignis_ptx_cp_async_commit();
    }
    /*  Applies the norms of q, and of the row's own key if it is there, and rotates them, as generate.cu does. Writes
        the key to the KV cache. */
    __device__ void norm_heads(const paged_team<false> &team, int layer, int first, int count, int last,
                               bool has_last) const
    {
#pragma unroll 1
        for (int r = team.warp; r < count + has_last; r += WARPS) {
            const bool is_key = r == count;
            T *const row = m.q[team.number][is_key ? HEADS : r];
            const T *const weight = p.layers[layer].head_norm[is_key] ? m.head_norms[team.number][is_key] : nullptr;
            const generate_cache<T> cache = {keys(layer), p.kv_heads, p.head_dim};
            T *const to =
                is_key && first % (p.heads / p.kv_heads) == 0 ? cache.at(p.row->pages, last, team.kv) : nullptr;
            const int half = p.head_dim / 2;
            const float factor = weight ? head_factor<1>((const T *)row, p.head_dim, p.eps) : 1;
            const auto put = [&](int i, T x) {
                row[i] = x;
                if (to)
                    to[i] = x;
            };
#pragma unroll 1
            for (int i = threadIdx.x % 32; i < half; i += 32) {
                float x = (float)row[i], other = (float)row[i + half];
                if (weight) {
                    x *= factor * (float)weight[i];
                    other *= factor * (float)weight[i + half];
                }
                const float sine = m.sines[i], cosine = m.cosines[i];
                put(i, T(rotated(x, other, -sine, cosine)));
                put(i + half, T(rotated(other, x, sine, cosine)));
            }
        }
    }

    /*  The units of a team: query heads that share a key head, and a split of the keys. Keys of the first tile are
        loaded before the product that gives q, if registers suffice (EARLY). All else is done after it (`walks`). */
    struct unit_walk {
        paged_team<false> team;
        int unit, at, split, first, count; /* at: its tile that was fetched; first, count: its query heads */
        int groups, units;                 /* groups of query heads; units of all teams */
    };
    __device__ void attend(unit_walk &w, int layer, const paged_splits &splits, bool walks) const
    {
        constexpr bool EARLY = D < 256;
        const uint32_t own = number(layer);
        const int last = splits.end - 1;
        paged_team<false> &team = w.team;
        T(&rows)[HEADS + 2][ROW] = m.q[team.number];
        bool fetched = EARLY && walks;
        if (IGNIS_HEAD_NORMS && !walks)
            ask_for_head_norms(team, layer);
        if (IGNIS_HEAD_NORMS && walks)
            ignis_ptx_cp_async_wait<0>();
        if (!walks && EARLY)
            team.forget();
        team.source.k = keys(layer);
        team.source.v = keys(layer) + p.slab;
        if (!walks && !EARLY)
            return;
        if (!fetched) {
            w.unit = blockIdx.x + team.number * gridDim.x;
            w.at = team.to;
        }
        /* in the same pages as in the previous layer */
        if (!fetched && EARLY && w.units <= TEAMS * gridDim.x && splits.keys == SPLIT && layer > 0) {
            w.at = team.from;
            if (w.unit < w.units)
                team.fetch(w.at);
            return;
        }
#pragma unroll 1
        for (;; fetched = true) {
            if (fetched && w.unit < w.units) {
                const bool has_last = last < team.to;
                /* q as a row of words, and the key and value that are not in the KV cache yet */
                if (w.at == team.from) {
                    const int quarter = p.head_dim / 4, all = (w.count + 2 * has_last) * quarter;
                    team.clear();
                    for (int i = threadIdx.x % TEAM; i < all; i += 2 * TEAM) {
                        ulonglong2 pairs[2];
                        const auto of = [&](int j) {
                            const int r = (i + j * TEAM) / quarter;
                            return r < w.count ? w.first + r : p.heads + team.kv + (r - w.count) * p.kv_heads;
                        };
                        wait_words(
                            pairs, own,
                            [&](int j) { return p.qkv + of(j) * (p.head_dim / 2) + (i + j * TEAM) % quarter * 2; },
                            [&](int j) { return i + j * TEAM < all; });
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            const int r = (i + j * TEAM) / quarter;
                            if (i + j * TEAM < all)
                                *(uint2 *)&rows[r < w.count ? r : HEADS + r - w.count][(i + j * TEAM) % quarter * 4] =
                                    make_uint2((uint32_t)pairs[j].x, (uint32_t)pairs[j].y);
                        }
                    }
                    team.sync();
                    if (IGNIS_HEAD_NORMS) {
                        norm_heads(team, layer, w.first, w.count, last, has_last);
                        team.sync();
                    }
                }
                const auto chunk_of = [&](int r) {
                    return [&, r](int c) {
                        return (team.t + 4 * c) * 8 < p.head_dim ? *(const uint4 *)&rows[r][(team.t + 4 * c) * 8]
                                                                 : make_uint4(0, 0, 0, 0);
                    };
                };
                if (last < w.at + SPLIT)
                    team.replace(w.at, last, chunk_of(HEADS),
                                 team.own_d < p.head_dim ? *(const value_part *)&rows[HEADS + 1][team.own_d]
                                                         : value_part{});
                team.add(w.at, chunk_of(min(team.g, w.count - 1)));
                w.at += SPLIT;
                if (w.at >= team.to) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int h = 2 * team.t + i;
                        if (h >= w.count)
                            continue;
                        word *const to = found_at(w.first + h, w.split);
                        if (team.warp == 0 && team.g == 0) {
                            put_word(to, team.top[i], own);
                            put_word(to + 1, team.sum[i], own);
                        }
#pragma unroll
                        for (int j = 0; j < D / 64 && team.own_d < p.head_dim; j++) {
                            put_word(to + 2 + team.own_d + 2 * j, team.out[j][i], own);
                            put_word(to + 2 + team.own_d + 2 * j + 1, team.out[j][2 + i], own);
                        }
                    }
                    w.unit += TEAMS * gridDim.x;
                }
            }
            if (w.unit >= w.units)
                break;
            if (w.at >= team.to) {
                const paged_heads heads(p, HEADS, w.unit % w.groups);
                w.split = w.unit / w.groups;
                w.first = heads.first;
                w.count = heads.count;
                team.kv = heads.kv;
                w.at = team.from = w.split * splits.keys;
                team.to = min(splits.end, team.from + splits.keys);
            }
            team.find(w.at);
            team.fetch(w.at);
            if (!walks)
                break;
        }
    }

    /*  Runs the step, by the warps that multiply. */
    __device__ void run() const
    {
        const paged_splits splits(p.row->position + 1);
        unit_walk w = {paged_team<false>({nullptr, nullptr, p.kv_heads, p.head_dim}, p.row->pages, p.scale,
                                         m.teams[threadIdx.x / TEAM]),
                       0,
                       0,
                       0,
                       0,
                       0,
                       p.kv_heads * ((p.heads / p.kv_heads + HEADS - 1) / HEADS),
                       0};
        w.units = w.groups * splits.count;
        w.team.from = w.team.to = 0;
        step_turn stage = {0, 0}, turn = {0, 1};
        step_norms norms = {p.layers[0].norm[0], p.layers[0].norm_bias[0]};
        step_place at(p);
#pragma unroll 1
        while (at.more(p)) {
            if (at.which == IGNIS__STEP_QKV) {
                attend(w, at.layer, splits, false);
                product<true>(at, norms, stage, turn);
                at.go_on(p);
                attend(w, at.layer, splits, true);
                combine(number(at.layer), splits);
            }
#pragma unroll 1
            do { /* separate from the product above, where registers hold keys, too */
                if (at.which == IGNIS__STEP_HEAD)
                    ignis_grid_dependents_launch();
                product<false>(at, norms, stage, turn);
                at.go_on(p);
            } while (at.more(p) && at.which != IGNIS__STEP_QKV);
        }
    }
};

/*  grid = any number of blocks that run at once. Shared memory for the ring, barriers, results of
    slices, and the longest row, with what its norm takes, or with 352 elements after it that warps read and ignore.
    */
extern "C" __global__ void __launch_bounds__(THREADS + 128, 1)
    ignis_generate_step(const __grid_constant__ ignis__decode_step p)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ step_memory m;
    const uint32_t stages = (uint32_t)__cvta_generic_to_shared(memory), full = stages + p.ring * STAGE_BYTES,
                   empty = full + 8 * 2 * p.ring;
    const uint32_t found_full = empty + 8 * p.ring;
    const step_ring ring = {
        stages, full, empty, found_full, found_full + 8 * TURNS, p.ring, (float *)(memory + p.found_at)};
    step_block block = {p, m, ring, step_row((T *)(memory + p.row_at), ring.found + TURNS * SLICES * COLUMN), 0};
    if (threadIdx.x < IGNIS__STEP_PRODUCTS)
        m.products[threadIdx.x] = product_of(p, threadIdx.x);
    if (threadIdx.x == 0)
        m.asked = 0;
    if (threadIdx.x == 32) {
        for (int i = 0; i < ring.count; i++) {
            for (int half = 0; half < 2; half++)
                ignis_ptx_mbarrier_init(full + 8 * (2 * i + half), BRINGERS);
            ignis_ptx_mbarrier_init(empty + 8 * i, SLICES * IGNIS_WARP_ARRIVALS);
        }
        for (int i = 0; i < TURNS; i++) {
            ignis_ptx_mbarrier_init(ring.found_full + 8 * i, SLICES * IGNIS_WARP_ARRIVALS);
            ignis_ptx_mbarrier_init(ring.found_free + 8 * i, IGNIS_WARP_ARRIVALS);
        }
        ignis_ptx_fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        ignis_ptx_setmaxnreg_dec<OTHER_REGISTERS>();
        const int bringer = threadIdx.x / 32 - SLICES - 1;
        if (bringer >= 0 && bringer < BRINGERS && threadIdx.x % 32 == 0)
            block.bring_weights(bringer);
#ifdef IGNIS_BLOCKS_TYPES
        if (bringer == BRINGERS && threadIdx.x % 32 == 0)
            block.look_ahead();
#endif
        ignis_grid_dependency_wait();
        if (threadIdx.x >= THREADS + 32)
            return;
        block.before = p.state[0];
        ignis_ptx_bar_sync(4, THREADS + 32);
        block.finish();
        ignis_ptx_bar_sync(4, THREADS + 32);
        return;
    }

    ignis_ptx_setmaxnreg_inc<MULTIPLYING_REGISTERS>();
    ignis_grid_dependency_wait();
    block.before = p.state[0];
    const int position = p.row->position, hidden = p.shapes[IGNIS__STEP_QKV].k;
    if (threadIdx.x < p.head_dim / 2) {
        m.sines[threadIdx.x] = 0;
        m.cosines[threadIdx.x] = 1;
        if (p.frequencies)
            sine_cosine((float)position, p.frequencies[threadIdx.x], m.sines[threadIdx.x], m.cosines[threadIdx.x]);
    }
    const bool by_blocks = !step_row::NUMBERS && p.table.records;
    /* as blocks.cu does */
    for (int i = blockIdx.x * THREADS + threadIdx.x; by_blocks && i < hidden / 8; i += gridDim.x * THREADS) {
        float x[8] = {};
        if (position >= 0)
            blocks_eight(p.table, p.row->ids[position], i / 4, i % 4, x);
        for (int j = 0; j < 8; j++) {
            if (position >= 0 && p.positions)
                x[j] += float(p.positions[(long long)position * hidden + 8 * i + j]);
            put_word(p.sums[0] + 8 * i + j, x[j], block.number(-1));
        }
    }
    /* as generate.cu does */
    for (int i = blockIdx.x * THREADS + threadIdx.x; !by_blocks && i < hidden; i += gridDim.x * THREADS) {
        float x = 0;
        if (position >= 0) {
            x = float(p.embedding[(long long)p.row->ids[position] * hidden + i]);
            if (p.positions)
                x += float(p.positions[(long long)position * hidden + i]);
        }
        put_word(p.sums[0] + i, x, block.number(-1));
    }
    ignis_ptx_bar_sync(4, THREADS + 32);
    block.run();
    ignis_ptx_bar_sync(4, THREADS + 32);
    if (threadIdx.x == 0 && atomicAdd(p.state + 1, 1) == gridDim.x - 1) {
        p.state[0] = block.number(p.count - 1);
        p.state[1] = 0;
    }
}
