// SPDX-License-Identifier: MIT
/*  generate.cu - what a step of generation does beside products and attention: rows, embeddings, norms, the cache, the draw

    The sum of what layers add (the residual) is kept in the wide type. Nothing here depends on how many rows there are.
    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "activation.cuh"
#include "rope.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W;

/* --- what the host sends, as parameters of launches: nothing of its memory needs to stay ------------------------------------- */

struct words {
    int32_t at[960];
};

extern "C" __global__ void ignis_generate_words(int32_t *to, const __grid_constant__ words from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

struct some_rows {
    generate_row at[32];
};

extern "C" __global__ void ignis_generate_rows(generate_row *to, const __grid_constant__ some_rows from, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = from.at[i];
}

/*  The rows of one sequence from a position on. */
extern "C" __global__ void ignis_generate_chunk(generate_row *to, const __grid_constant__ generate_row first, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        generate_row row = first;
        row.position += i;
        to[i] = row;
    }
}

/* --- embeddings and norms: a block a row ---------------------------------------------------------------------------------------- */

/*  positions: of learned ones, or null. The kernel ahead, which writes the rows, does not let this one begin before all has ended that came before:
    kernels behind may load weights before they wait. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_embed(W *sum, const T *embedding, const T *positions, const generate_row *rows, int hidden)
{
    const generate_row &row = rows[blockIdx.x];
    const long long to = (long long)blockIdx.x * hidden;
    ignis_grid_dependency();
    for (int i = threadIdx.x; i < hidden; i += 256) {
        W x = 0;
        if (row.position >= 0) {
            x = W(embedding[(long long)row.ids[row.position] * hidden + i]);
            if (positions)
                x += W(positions[(long long)row.position * hidden + i]);
        }
        sum[to + i] = x;
    }
}

/*  rms_norm, or layer_norm; bias may be null. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_norm(T *out, const W *sum, const T *weight, const T *bias, int hidden, double eps, int rms)
{
    const W *x = sum + (long long)blockIdx.x * hidden;
    T *y = out + (long long)blockIdx.x * hidden;
    W mean = 0, squares = 0;
    if (!rms) {
        for (int i = threadIdx.x; i < hidden; i += 256)
            mean += x[i];
        mean = ignis_block_sum(mean) / W(hidden);
    }
    for (int i = threadIdx.x; i < hidden; i += 256)
        squares += (x[i] - mean) * (x[i] - mean);
    const W factor = W(1) / sqrt(ignis_block_sum(squares) / W(hidden) + W(eps));
    for (int i = threadIdx.x; i < hidden; i += 256)
        y[i] = T((x[i] - mean) * factor * W(weight[i]) + (bias ? W(bias[i]) : W(0)));
}

/* --- behind the products of prompts: elements ------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(256) ignis_generate_add(W *sum, const T *x, long long n)
{
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL)
        sum[i] += W(x[i]);
}

/*  silu of the first half of each row, times the second; y has n elements. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_gate(T *y, const T *x, long long n, long long half)
{
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        const T *row = x + i / half * 2 * half + i % half;
        const W gate = W(row[0]);
        y[i] = T(gate * sigmoid(gate) * W(row[half]));
    }
}

/* --- the cache --------------------------------------------------------------------------------------------------------------------- */

/*  ignis.h has the same struct. */
struct cache_params {
    T *qkv;                      /* [rows, heads + 2 kv_heads, head_dim] */
    T *k, *v;                    /* of the cache */
    const T *q_weight, *k_weight; /* of an rms_norm of each head before it turns; null: none */
    const generate_row *rows;
    double eps;
    int heads, kv_heads, head_dim, turns;
};

/*  Heads of q turn where they are, those of k turn on their way to the cache, those of v go there. A warp has a head.
    grid = heads + 2 kv_heads, rows; 32 threads. */
extern "C" __global__ void __launch_bounds__(32) ignis_generate_cache(cache_params p, const __grid_constant__ frequency_table frequencies)
{
    const generate_row &row = p.rows[blockIdx.y];
    const int head = blockIdx.x, lane = threadIdx.x, half = p.head_dim / 2;
    T *from = p.qkv + ((long long)blockIdx.y * (p.heads + 2 * p.kv_heads) + head) * p.head_dim, *to = from;
    if (row.position < 0)
        return;
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
    if (!is_q) {
        const generate_cache<T> cache = {is_v ? p.v : p.k, p.kv_heads, p.head_dim};
        to = cache.at(row.pages, row.position, (head - p.heads) % p.kv_heads);
    }
    const T *weight = is_q ? p.q_weight : is_v ? nullptr : p.k_weight;
    W factor = 1;
    if (weight) {
        W squares = 0;
        for (int i = lane; i < p.head_dim; i += 32)
            squares += W(from[i]) * W(from[i]);
        factor = W(1) / sqrt(ignis_warp_sum(squares) / W(p.head_dim) + W(p.eps));
        __syncwarp(); /* q is written where all lanes have read */
    }
    for (int i = lane; i < half; i += 32) {
        W a = W(from[i]), b = W(from[i + half]), sine = 0, cosine = 1;
        if (weight) {
            a *= factor * W(weight[i]);
            b *= factor * W(weight[i + half]);
        }
        if (p.turns && !is_v)
            sine_cosine(W(row.position), W(frequencies.at[i]), sine, cosine);
        to[i] = T(turned(a, b, -sine, cosine));
        to[i + half] = T(turned(b, a, sine, cosine));
    }
}

/*  Keys and values of a sequence's first tokens, out of its pages: [tokens, kv_heads, head_dim]. head_dim is a multiple of 8. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_generate_gather(T *k_to, T *v_to, const T *k, const T *v, const generate_row *row, int tokens, int kv_heads, int head_dim)
{
    constexpr int pack = 16 / sizeof(T);
    const int width = kv_heads * head_dim / pack, at = blockIdx.x * 256 + threadIdx.x, token = at / width, i = at % width * pack;
    if (token >= tokens)
        return;
    const generate_cache<const T> keys = {k, kv_heads, head_dim}, values = {v, kv_heads, head_dim};
    ignis_store(k_to + (long long)at * pack, ignis_load(keys.at(row->pages, token, i / head_dim) + i % head_dim));
    ignis_store(v_to + (long long)at * pack, ignis_load(values.at(row->pages, token, i / head_dim) + i % head_dim));
}

/*  A page of all layers, keys and values: slabs of so many elements, one for each, of which a page has `page`. A sequence that is to write to a
    page which others have too gets its own. grid = slabs. */
extern "C" __global__ void __launch_bounds__(256) ignis_generate_copy(T *cache, long long slab, long long page, int to, int from)
{
    T *base = cache + blockIdx.x * slab;
    for (long long i = threadIdx.x; i < page; i += 256)
        base[to * page + i] = base[from * page + i];
}

/* --- the draw ---------------------------------------------------------------------------------------------------------------------- */

/*  What is added to a logit. Those of a row are in the order of their ids. */
struct logit_bias {
    int32_t id;
    float bias;
};

/*  What a row has drawn. ignis.h has the same struct. */
struct generate_draw {
    int32_t id, kept; /* kept: tokens that could have been drawn */
    float log_prob;   /* of the model itself: temperature 1, nothing cut off */
};

/*  Weights of tokens are whole numbers, so that sums of them have no order: e^(score - greatest) in units of 2^-43. Less than half of one is
    nothing. 2^19 tokens add up to less than 2^63. */
typedef unsigned long long weight_t;
constexpr float UNITS = 8796093022208.0f; /* 2^43 */

constexpr int DRAW_THREADS = 512, DRAW_WARPS = DRAW_THREADS / 32;

/*  Several blocks draw for a row. Its tokens are in shares of neighbours; in each phase of the draw every share gives some numbers, and the next one
    needs their sums. A block takes a share when it comes, and waits only for those that blocks have taken: so the draw goes on whichever blocks run,
    and those that come late find nothing to do. */
constexpr int SHARES = 16, SHARE = 512; /* at most; tokens of one at least: ignis.h has the same */
constexpr int NUMBERS = 16, PHASES = 22; /* at most */

/*  Of a row, in global memory; ignis.h knows its size. All but the numbers is zero between launches. */
struct draw_exchange {
    weight_t numbers[PHASES][SHARES][NUMBERS];
    unsigned long long counts[PHASES]; /* of shares: taken, and done << 32 */
    unsigned long long left;           /* blocks that have ended */
};
static_assert(sizeof(draw_exchange) == PHASES * (SHARES * NUMBERS + 1) * 8 + 8, "as IGNIS__DRAW_EXCHANGE says");

struct draw_memory {
    weight_t sums[DRAW_WARPS][NUMBERS], total[NUMBERS];
    uint32_t share;
    int32_t id;
};

__device__ inline unsigned long long said(const unsigned long long *from)
{
    unsigned long long x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
    return x;
}

/*  The draw of a row, as a block sees it. */
struct draw_work {
    draw_memory &memory;
    draw_exchange *exchange;
    uint32_t shares;
    int vocab, phase, begin, end; /* tokens of the share that is computed */

    __device__ draw_work(draw_memory &memory, draw_exchange *exchange, int vocab) : memory(memory), exchange(exchange), vocab(vocab), phase(0)
    {
        shares = (uint32_t)min(SHARES, (vocab + SHARE - 1) / SHARE);
    }
    /*  The tokens of a share; those behind the last one have none. */
    __device__ void set(uint32_t share)
    {
        const int size = (int)((vocab + shares - 1) / shares);
        begin = min(vocab, (int)share * size);
        end = min(vocab, begin + size);
    }

    /*  Each thread uses its tokens of the share. */
    template <typename Use> __device__ void each(Use use) const
    {
#pragma unroll 4
        for (int i = begin + threadIdx.x; i < end; i += DRAW_THREADS)
            use(i);
    }

    /*  Another share, or the first; false: there is none, and all are done. */
    __device__ bool take(bool first)
    {
        if (threadIdx.x == 0) {
            unsigned long long *const counts = &exchange->counts[phase];
            for (uint32_t share = shares;;) {
                const unsigned long long now = first ? 0 : said(counts);
                first = false;
                if ((uint32_t)now < shares)
                    share = (uint32_t)atomicAdd(counts, 1ull);
                if (share < shares || now >> 32 == shares) {
                    memory.share = share;
                    break;
                }
            }
            __threadfence();
        }
        __syncthreads();
        set(memory.share);
        return memory.share < shares;
    }

    /*  This block's numbers of its share, of which lane i of each warp has one: their sums, or the greatest of each, are told to the other blocks. */
    __device__ __noinline__ void tell(weight_t x, int count, bool greatest)
    {
        const int lane = threadIdx.x % 32;
        if (lane < count)
            memory.sums[threadIdx.x / 32][lane] = x;
        __syncthreads();
        if (threadIdx.x < count) {
            weight_t total = 0;
            for (int w = 0; w < DRAW_WARPS; w++) {
                const weight_t other = memory.sums[w][lane];
                total = !greatest ? total + other : other > total ? other : total;
            }
            exchange->numbers[phase][memory.share][lane] = total;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(&exchange->counts[phase], 1ull << 32);
        }
    }

    /*  The phase is over: what all shares have told, in memory.total. */
    __device__ void end_phase(int count, bool greatest)
    {
        if (threadIdx.x < count) {
            weight_t total = 0;
#pragma unroll
            for (int share = 0; share < SHARES; share++) {
                const weight_t other = share < (int)shares ? exchange->numbers[phase][share][threadIdx.x] : 0;
                total = !greatest ? total + other : other > total ? other : total;
            }
            memory.total[threadIdx.x] = total;
        }
        phase++;
        __syncthreads();
    }

    /*  A phase: get gives so many numbers, a power of 2, of this thread's tokens of a share. Sums of them all in memory.total. */
    template <int count, typename Get> __device__ void sum(Get get)
    {
        for (bool first = true; take(first); first = false) {
            weight_t x[count] = {};
            get(x);
            /* a lane keeps half of them, and gives the others to the lane that keeps those, until it has one */
#pragma unroll
            for (int half = count / 2; half > 0; half /= 2) {
                const bool upper = threadIdx.x & half;
#pragma unroll
                for (int i = 0; i < half; i++) {
                    const weight_t low = x[i], high = x[half + i];
                    x[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, upper ? low : high, half);
                }
            }
#pragma unroll
            for (int distance = count; distance < 32; distance *= 2)
                x[0] += __shfl_xor_sync(0xffffffff, x[0], distance);
            tell(x[0], count, false);
        }
        end_phase(count, false);
    }

    /*  The same, of one number the greatest. */
    template <typename Get> __device__ weight_t most(Get get)
    {
        for (bool first = true; take(first); first = false) {
            weight_t x = get();
#pragma unroll
            for (int distance = 16; distance > 0; distance /= 2) {
                const weight_t other = __shfl_xor_sync(0xffffffff, x, distance);
                x = other > x ? other : x;
            }
            tell(x, 1, true);
        }
        end_phase(1, true);
        return memory.total[0];
    }

    /*  Behind a sum of values: the share whose tokens, in the order of ids, bring the sum above `at`, which is below the sum of all. What is left of
        `at` there. */
    __device__ uint32_t share_of(weight_t &at) const
    {
        weight_t upto = 0, before = 0;
        uint32_t found = 0;
#pragma unroll
        for (int share = 0; share < SHARES; share++) {
            upto += share < (int)shares ? exchange->numbers[phase - 1][share][0] : 0;
            if (at >= upto) {
                before = upto;
                found = share + 1;
            }
        }
        at -= before;
        return found;
    }

    /*  Ahead of the last phase, which one block does. */
    __device__ bool is_first()
    {
        if (threadIdx.x == 0)
            memory.share = (uint32_t)atomicAdd(&exchange->counts[phase], 1ull);
        __syncthreads();
        return memory.share == 0;
    }

    /*  The last block that ends makes way for the next launch. */
    __device__ void leave() const
    {
        if (threadIdx.x != 0 || atomicAdd(&exchange->left, 1ull) + 1 < gridDim.x)
            return;
        for (int i = 0; i < PHASES; i++)
            exchange->counts[i] = 0;
        exchange->left = 0;
    }
};

/*  A row's scores. They are cut step by step: a token is left that is above the border, or at it and not behind `last`. */
struct draw_row {
    const float *scores;
    float greatest, temperature;
    uint32_t border;
    int last;
    weight_t least; /* weights below it are cut, too */

    /*  In the order of the scores. */
    static __device__ uint32_t key_of(float score)
    {
        const uint32_t bits = __float_as_uint(score + 0.0f); /* both zeros are one */
        return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }
    static __device__ float score_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }
    __device__ weight_t weight_of(float score) const
    {
        return score == greatest ? (weight_t)UNITS : (weight_t)(expf((score - greatest) / temperature) * UNITS + 0.5f);
    }
    __device__ weight_t weight(int i) const
    {
        const float score = scores[i];
        const uint32_t key = key_of(score);
        const weight_t w = key > border || (key == border && i <= last) ? weight_of(score) : 0;
        return w >= least ? w : 0;
    }
};

/*  The greatest key so that those at it and above count `target` or more, or that share of what all count; or a lower one, with no token between.
    target is what that is then, and above what those above the key count. Four bits of it at a time, until those that are left are all needed.
    counts: each token is one, else it is its weight. */
template <bool counts>
__device__ inline uint32_t draw_border(draw_work &work, const draw_row &row, double share, weight_t &target, weight_t &above)
{
    uint32_t found = 0;
    above = 0;
#pragma unroll 1
    for (int shift = 28; shift >= 0; shift -= 4) {
        work.sum<16>([&](weight_t(&at_least)[16]) {
            for (int i = work.begin + threadIdx.x; i < work.end; i += DRAW_THREADS) {
                const unsigned long long key = draw_row::key_of(row.scores[i]);
                if (key >> (shift + 4) != found)
                    continue;
                const int digit = (int)(key >> shift & 15);
                const weight_t x = counts ? 1 : row.weight(i);
#pragma unroll
                for (int d = 0; d < 16; d++)
                    at_least[d] += digit >= d ? x : 0;
            }
        });
        const weight_t *const total = work.memory.total;
        if (shift == 28 && share > 0)
            target = max((weight_t)ceil(share * (double)total[0]), (weight_t)1);
        int digit = 15;
        while (digit > 0 && above + total[digit] < target)
            digit--;
        const weight_t higher = digit < 15 ? total[digit + 1] : 0, here = total[digit] - higher;
        above += higher;
        found = found << 4 | (uint32_t)digit;
        const uint32_t lowest = found << shift;
        /* Nothing is left to decide: all those here are needed; or there is only one, as two would weigh twice as much as the lowest one could. */
        if (counts ? above + here == target : 2 * here < 3 * row.weight_of(draw_row::score_of(lowest)))
            return lowest;
    }
    return found;
}

/*  The first token of the block's share, in the order of ids, with which the sum of values is above `at`, which is below the sum of the share's. Each
    warp has its own part of them. Called by all threads; the token is in memory.id afterwards. */
template <typename Value> __device__ inline void draw_find(const draw_work &work, weight_t at, Value value)
{
    draw_memory &memory = work.memory;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, size = work.end - work.begin;
    const int part = (size + 32 * DRAW_WARPS - 1) / (32 * DRAW_WARPS) * 32, from = work.begin + warp * part, to = min(work.end, from + part);
    weight_t sum = 0, before = 0;
    for (int i = from + lane; i < to; i += 32)
        sum += value(i);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (lane == 0)
        memory.sums[warp][0] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        before += memory.sums[w][0];
    if (at >= before && at < before + sum) /* the whole warp */
        for (int base = from; base < to; base += 32) {
            weight_t own = base + lane < to ? value(base + lane) : 0, upto = own;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const weight_t other = __shfl_up_sync(0xffffffff, upto, distance);
                upto += lane >= distance ? other : 0;
            }
            if (at >= before + upto - own && at < before + upto)
                memory.id = base + lane;
            before += __shfl_sync(0xffffffff, upto, 31);
        }
    __syncthreads();
}

__device__ inline float bias_of(const logit_bias *biases, int count, int id)
{
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (biases[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return count > 0 && biases[low].id == id ? biases[low].bias : 0;
}

/*  What a part of a row's logits has; ignis.h has the same count of them. */
struct draw_part {
    float most, sum; /* of e^(logit - most) */
    int32_t first;   /* that is `most` */
};
constexpr int PARTS = 64, PART_THREADS = 256;

/*  ignis.h has the same struct. */
struct draw_params {
    const float *logits; /* [rows, stride] */
    float *scores;       /* room for as many */
    generate_row *rows;
    const logit_bias *biases; /* [rows, bias_room] */
    draw_part *parts; /* [rows, PARTS] */
    const uint32_t *masks; /* [any number, mask_room]: a bit for each token */
    draw_exchange *exchanges; /* [rows] */
    long long stride;
    int vocab, bias_room, mask_room;
};

/*  Of two parts. */
__device__ inline void draw_join(draw_part &part, const draw_part &other)
{
    const float most = fmaxf(part.most, other.most);
    part.sum = part.sum * (part.most == most ? 1.0f : expf(part.most - most)) + other.sum * (other.most == most ? 1.0f : expf(other.most - most));
    part.first = part.most > other.most ? part.first : other.most > part.most ? other.first : min(part.first, other.first);
    part.most = most;
}

__device__ inline void draw_join_warp(draw_part &part)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const draw_part other = {__shfl_xor_sync(0xffffffff, part.most, distance), __shfl_xor_sync(0xffffffff, part.sum, distance),
                                 __shfl_xor_sync(0xffffffff, part.first, distance)};
        draw_join(part, other);
    }
}

/*  What each part of the logits has, ahead of the draw. NaN counts as minus infinity. grid = PARTS, rows. */
extern "C" __global__ void __launch_bounds__(PART_THREADS) ignis_generate_draw_parts(draw_params p)
{
    constexpr int batch = 8;
    __shared__ draw_part found[PART_THREADS / 32];
    const float *logits = p.logits + blockIdx.y * p.stride;
    const int size = (p.vocab + PARTS - 1) / PARTS, from = blockIdx.x * size, to = min(p.vocab, from + size), thread = threadIdx.x;
    draw_part own = {-ignis_infinity<float>(), 0, 0x7fffffff};
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    for (int base = from + thread; base < to; base += batch * PART_THREADS) {
        float x[batch], most = own.most;
        int first = own.first;
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = base + j * PART_THREADS;
            x[j] = i < to ? logits[i] : -ignis_infinity<float>();
            x[j] = x[j] == x[j] ? x[j] : -ignis_infinity<float>();
        }
#pragma unroll
        for (int j = 0; j < batch; j++)
            if (x[j] > most || (first == 0x7fffffff && base + j * PART_THREADS < to)) {
                most = x[j];
                first = base + j * PART_THREADS;
            }
        own.sum *= own.most == most ? 1.0f : expf(own.most - most);
        own.most = most;
        own.first = first;
#pragma unroll
        for (int j = 0; j < batch; j++)
            if (base + j * PART_THREADS < to)
                own.sum += x[j] == most ? 1.0f : expf(x[j] - most);
    }
    draw_join_warp(own);
    if (thread % 32 == 0)
        found[thread / 32] = own;
    __syncthreads();
    if (thread == 0) {
        for (int w = 1; w < PART_THREADS / 32; w++)
            draw_join(own, found[w]);
        p.parts[blockIdx.y * PARTS + blockIdx.x] = own;
    }
}

/*  Draws the token behind each row's, writes it to the sequence, tells the host, and makes the row that of this token. In the order of Hugging Face's
    processors: bias, repetition penalty, the mask of a grammar, temperature, top k, top p, min p. grid = any number of blocks for each row, rows. */
extern "C" __global__ void __launch_bounds__(DRAW_THREADS, 1) ignis_generate_draw(draw_params p)
{
    __shared__ draw_memory memory;
    __shared__ draw_part whole;
    generate_row &place = p.rows[blockIdx.y];
    const float *logits = p.logits + blockIdx.y * p.stride;
    const logit_bias *biases = p.biases + (long long)blockIdx.y * p.bias_room;
    const uint32_t *mask = p.masks + (long long)max(place.masked - 1, 0) * p.mask_room;
    float *scores = p.scores + blockIdx.y * p.stride;
    const int vocab = p.vocab, thread = threadIdx.x;
    const float infinity = ignis_infinity<float>();
    const bool as_they_are = place.temperature == 0 && place.biases == 0 && place.penalty == 1 && !place.masked; /* scores are logits: the likeliest */
    ignis_grid_dependency_wait();
    const int position = place.position; /* the block that has drawn moves it on; those that come later have nothing to do */
    const auto put = [&](int id, int kept, float x) {
        generate_draw &draw = place.draws[position % 2];
        draw.id = id;
        draw.kept = kept;
        draw.log_prob = (x == whole.most ? 0.0f : x - whole.most) - logf(whole.sum);
        place.ids[position + 1] = id;
        place.position = position + 1; /* the row is the next one's */
    };
    if (position < 0)
        return;
    if (thread < 32) {
        draw_part part = p.parts[blockIdx.y * PARTS + thread];
        for (int i = thread + 32; i < PARTS; i += 32)
            draw_join(part, p.parts[blockIdx.y * PARTS + i]);
        draw_join_warp(part);
        if (thread == 0)
            whole = part;
    }
    __syncthreads();
    if (as_they_are && whole.most > -infinity) {
        if (thread == 0 && blockIdx.x == 0)
            put(whole.first, 1, whole.most);
        return;
    }

    draw_work work(memory, p.exchanges + blockIdx.y, vocab);
    const weight_t most = work.most([&] {
        work.each([&](int i) { scores[i] = logits[i] == logits[i] ? logits[i] : -infinity; });
        __syncthreads();
        for (int i = thread; i < place.biases; i += DRAW_THREADS)
            if (biases[i].id >= work.begin && biases[i].id < work.end)
                scores[biases[i].id] += biases[i].bias;
        if (place.penalty != 1) {
            const int behind = position + 1, first = place.window > 0 ? max(0, behind - place.window) : 0;
            const float penalty = (float)place.penalty;
            __syncthreads();
            for (int i = first + thread; i < behind; i += DRAW_THREADS) { /* a token that is there twice gets the same number twice */
                const int id = place.ids[i];
                if (id < work.begin || id >= work.end)
                    continue;
                float x = logits[id] == logits[id] ? logits[id] : -infinity;
                x += bias_of(biases, place.biases, id);
                atomicExch((unsigned *)&scores[id], __float_as_uint(x < 0 ? x * penalty : x / penalty));
            }
        }
        __syncthreads();
        float greatest = -infinity;
        work.each([&](int i) {
            if (place.masked) /* those that may be drawn are above the others, even where biases forbid them all */
                scores[i] = mask[i / 32] >> (i % 32) & 1 ? fmaxf(scores[i], -3.402823466e38f) : -infinity;
            greatest = fmaxf(greatest, scores[i]);
        });
        return (weight_t)draw_row::key_of(greatest);
    });
    draw_row row = {scores, draw_row::score_of((uint32_t)most), (float)place.temperature, 0, vocab, 1};
    const auto find = [&](weight_t at, auto value) { /* one block's token with which the sum of the last phase is above `at` */
        const uint32_t share = work.share_of(at);
        if (!work.is_first())
            return false;
        work.set(share);
        draw_find(work, at, value);
        return true;
    };
    const auto sum_of = [&](auto value) { work.sum<1>([&](weight_t(&x)[1]) { work.each([&](int i) { x[0] += value(i); }); }); };
    int kept = 1;
    bool mine;
    if (place.temperature == 0) { /* the first of the greatest */
        const auto is_greatest = [&](int i) { return (weight_t)(scores[i] == row.greatest); };
        sum_of(is_greatest);
        mine = find(0, is_greatest);
    } else {
        weight_t above = 0;
        if (place.top_k > 0 && place.top_k < vocab) {
            weight_t target = (weight_t)place.top_k;
            row.border = draw_border<true>(work, row, 0, target, above);
        }
        if (place.top_p > 0 && place.top_p < 1) {
            weight_t target = 0;
            const uint32_t border = draw_border<false>(work, row, place.top_p, target, above);
            /* Of those at the border, as many from the first on as it takes. Its score is that of one of them. */
            const weight_t one = row.weight_of(draw_row::score_of(border)), some = one ? (target - above + one - 1) / one : 1;
            const auto is_at_border = [&](int i) { return (weight_t)(draw_row::key_of(scores[i]) == border); };
            sum_of(is_at_border);
            if (memory.total[0] >= some) {
                weight_t at = some - 1;
                const uint32_t share = work.share_of(at);
                work.sum<1>([&](weight_t(&x)[1]) {
                    if (memory.share == share) {
                        draw_find(work, at, is_at_border);
                        x[0] = thread == 0 ? (weight_t)memory.id : 0;
                    }
                });
                row.last = (int)memory.total[0];
            }
            row.border = max(row.border, border);
        }
        if (place.min_p > 0)
            row.least = max((weight_t)ceil(place.min_p * (double)UNITS), (weight_t)1);
        work.sum<2>([&](weight_t(&x)[2]) {
            work.each([&](int i) {
                const weight_t w = row.weight(i);
                x[0] += w;
                x[1] += w > 0;
            });
        });
        kept = (int)memory.total[1];
        const uint32_t at = (uint32_t)position + 1;
        const uint4 random = ignis_philox(make_uint4(at, 0, 0, 0), make_uint2((uint32_t)place.seed, (uint32_t)(place.seed >> 32)));
        mine = find(__umul64hi((weight_t)random.x | (weight_t)random.y << 32, memory.total[0]), [&](int i) { return row.weight(i); });
    }
    if (mine && thread == 0)
        put(memory.id, kept, logits[memory.id]);
    work.leave();
}
