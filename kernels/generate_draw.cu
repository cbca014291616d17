// SPDX-License-Identifier: MIT
/*  generate_draw.cu - the draw of a step's tokens from logits

    In the order of Hugging Face's processors: biases, repetition penalty, the mask of a grammar, temperature, top k, top p, min p. Three kernels:

        ignis_generate_draw_parts   what parts of a row have: the greatest score, and the sum of e^logit
        ignis_generate_draw_bins    what scores weigh, by bins; not for the likeliest tokens
        ignis_generate_draw         cuts, draws, and makes the row that of the next token

    Tokens that may be drawn are thought of in the order of falling scores, and of rising ids where scores are equal. Each cut, and the draw, is a
    place in that order: where a sum of weights, or a count, from the first one on is reached. Bins say in which of them each place is, but for what
    follows from places ahead of it, as those at the end of a bin or at its begin: so only the tokens of few bins are looked at one by one, by the
    block of a row that ends last. No block waits for another.

    One program for all types: -DIGNIS_T=1.
*/
#include "ignis.cuh"
#include "generate.cuh"

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

constexpr int PARTS = 64, PART_THREADS = 256, DRAW_THREADS = 512; /* ignis.h has the same */
constexpr int BINS = 2048, LIST = 16384, DIGITS = 256;
constexpr float BINS_EACH = BINS / 31.0f; /* e^-31 is less than half a unit */

/*  What a part of a row has. */
struct draw_part {
    float most, sum; /* of the logits, and of e^(logit - most) */
    float greatest;  /* of the scores */
    int32_t first;   /* that has it */
};

/*  What a row's tokens weigh. ignis.h knows its size. */
struct draw_bins {
    weight_t weight[BINS];
    uint32_t count[BINS];
    uint32_t listed, ended; /* tokens of the list, blocks that have ended: zero between launches */
    int32_t list[LIST];     /* tokens that are looked at one by one; if there are more, all are looked through */
};
static_assert(sizeof(draw_part) == 16 && sizeof(draw_bins) == BINS * 12 + 8 + LIST * 4, "as IGNIS__DRAW_PART and IGNIS__DRAW_BINS say");

/*  ignis.h has the same struct. */
struct draw_params {
    const float *logits; /* [rows, stride] */
    float *scores;       /* room for as many */
    generate_row *rows;
    const logit_bias *biases; /* [rows, bias_room] */
    draw_part *parts;         /* [rows, PARTS] */
    const uint32_t *masks;    /* [any number, mask_room]: a bit for each token */
    draw_bins *bins;          /* [rows] */
    long long stride;
    int vocab, bias_room, mask_room;
};

/*  A number that is none counts as minus infinity. */
__device__ inline float number_of(float x) { return x == x ? x : -ignis_infinity<float>(); }

/*  Whether scores are the logits. */
__device__ inline bool is_plain(const generate_row &row) { return row.biases == 0 && row.penalty == 1 && !row.masked; }

/* --- the greatest score ----------------------------------------------------------------------------------------------------------------- */

/*  Of two parts. */
__device__ inline void draw_join(draw_part &part, const draw_part &other)
{
    const float most = fmaxf(part.most, other.most);
    part.sum = part.sum * (part.most == most ? 1.0f : expf(part.most - most)) + other.sum * (other.most == most ? 1.0f : expf(other.most - most));
    part.most = most;
    part.first = part.greatest > other.greatest   ? part.first
                 : other.greatest > part.greatest ? other.first
                                                  : min(part.first, other.first);
    part.greatest = fmaxf(part.greatest, other.greatest);
}

__device__ inline void draw_join_warp(draw_part &part)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const draw_part other = {__shfl_xor_sync(0xffffffff, part.most, distance), __shfl_xor_sync(0xffffffff, part.sum, distance),
                                 __shfl_xor_sync(0xffffffff, part.greatest, distance), __shfl_xor_sync(0xffffffff, part.first, distance)};
        draw_join(part, other);
    }
}

/*  All of a row, by the first warp of a block. */
__device__ inline void draw_join_row(const draw_params &p, draw_part &whole)
{
    if (threadIdx.x < 32) {
        draw_part part = p.parts[blockIdx.y * PARTS + threadIdx.x];
        for (int i = threadIdx.x + 32; i < PARTS; i += 32)
            draw_join(part, p.parts[blockIdx.y * PARTS + i]);
        draw_join_warp(part);
        if (threadIdx.x == 0)
            whole = part;
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

/*  A thread's greatest score of a part of a row whose scores are not its logits. */
__device__ inline void draw_scores(const draw_params &p, const generate_row &row, int from, int to, draw_part &own)
{
    const int thread = threadIdx.x;
    const float *logits = p.logits + blockIdx.y * p.stride;
    float *scores = p.scores + blockIdx.y * p.stride;
    const logit_bias *biases = p.biases + (long long)blockIdx.y * p.bias_room;
    const uint32_t *mask = p.masks + (long long)max(row.masked - 1, 0) * p.mask_room;
    for (int i = from + thread; i < to; i += PART_THREADS)
        scores[i] = number_of(logits[i]);
    __syncthreads();
    for (int i = thread; i < row.biases; i += PART_THREADS)
        if (biases[i].id >= from && biases[i].id < to)
            scores[biases[i].id] += biases[i].bias;
    if (row.penalty != 1) {
        const int behind = row.position + 1, first = row.window > 0 ? max(0, behind - row.window) : 0;
        const float penalty = (float)row.penalty;
        __syncthreads();
        for (int i = first + thread; i < behind; i += PART_THREADS) { /* a token that is there twice gets the same number twice */
            const int id = row.ids[i];
            if (id < from || id >= to)
                continue;
            const float x = number_of(logits[id]) + bias_of(biases, row.biases, id);
            atomicExch((unsigned *)&scores[id], __float_as_uint(x < 0 ? x * penalty : x / penalty));
        }
    }
    __syncthreads();
    own.greatest = -ignis_infinity<float>();
    own.first = 0x7fffffff;
    for (int i = from + thread; i < to; i += PART_THREADS) {
        float x = scores[i];
        if (row.masked) /* those that may be drawn are above the others, even where biases forbid them all */
            scores[i] = x = mask[i / 32] >> (i % 32) & 1 ? fmaxf(x, -3.402823466e38f) : -ignis_infinity<float>();
        if (x > own.greatest || own.first == 0x7fffffff) {
            own.greatest = x;
            own.first = i;
        }
    }
}

/*  grid = PARTS, rows. */
extern "C" __global__ void __launch_bounds__(PART_THREADS) ignis_generate_draw_parts(draw_params p)
{
    constexpr int batch = 8;
    __shared__ draw_part found[PART_THREADS / 32];
    const generate_row &row = p.rows[blockIdx.y];
    const float *logits = p.logits + blockIdx.y * p.stride;
    const int size = (p.vocab + PARTS - 1) / PARTS, from = blockIdx.x * size, to = min(p.vocab, from + size), thread = threadIdx.x;
    draw_part own = {-ignis_infinity<float>(), 0, 0, 0x7fffffff};
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    for (int base = from + thread; base < to; base += batch * PART_THREADS) {
        float x[batch], most = own.most;
        int first = own.first;
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = base + j * PART_THREADS;
            x[j] = i < to ? number_of(logits[i]) : -ignis_infinity<float>();
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
    own.greatest = own.most;
    if (!is_plain(row))
        draw_scores(p, row, from, to, own);
    if (row.temperature != 0)
        for (int i = blockIdx.x * PART_THREADS + thread; i < BINS; i += PARTS * PART_THREADS) {
            p.bins[blockIdx.y].weight[i] = 0;
            p.bins[blockIdx.y].count[i] = 0;
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

/*  How many of the numbers from one to another a thread has, one in so many. */
__device__ inline int threads_share(int from, int to, int threads) { return (to - from - (int)threadIdx.x + threads - 1) / threads; }

/* --- weights ---------------------------------------------------------------------------------------------------------------------------- */

/*  A row's scores. They are cut step by step: a token is left that is above the border, or at it and not behind `last`. */
struct draw_row {
    const float *scores;
    float greatest, temperature;
    uint32_t border;
    int last;
    weight_t least; /* weights below it are cut, too */

    __device__ draw_row(const draw_params &p, const generate_row &row, float greatest)
        : scores((is_plain(row) ? p.logits : p.scores) + blockIdx.y * p.stride), greatest(greatest), temperature((float)row.temperature), border(0),
          last(p.vocab), least(1)
    {
    }
    /*  In the order of the scores. */
    static __device__ uint32_t key_of(float score)
    {
        const uint32_t bits = __float_as_uint(score + 0.0f); /* both zeros are one */
        return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }
    __device__ float distance(float score) const { return score == greatest ? 0 : (greatest - score) / temperature; }
    __device__ weight_t weight(int i, float score, float distance) const
    {
        const uint32_t key = key_of(score);
        const weight_t w = distance == 0 ? (weight_t)UNITS : (weight_t)fmaf(expf(-distance), UNITS, 0.5f); /* alike everywhere */
        return w >= least && (key > border || (key == border && i <= last)) ? w : 0;
    }
    /*  Each thread uses the tokens id(0), id(1) and so on up to its count of them, if they weigh something: their scores come eight at a time. */
    template <typename Id, typename Use> __device__ void each(int count, Id id, Use use) const
    {
        constexpr int batch = 8;
#pragma unroll 1
        for (int base = 0; base < count; base += batch) {
            int ids[batch];
            float score[batch];
#pragma unroll
            for (int j = 0; j < batch; j++)
                ids[j] = base + j < count ? id(base + j) : 0;
#pragma unroll
            for (int j = 0; j < batch; j++)
                score[j] = scores[ids[j]];
#pragma unroll
            for (int j = 0; j < batch; j++) {
                const float x = number_of(score[j]), away = distance(x);
                const weight_t w = base + j < count ? weight(ids[j], x, away) : 0;
                if (w > 0)
                    use(ids[j], x, w, bin_of(away));
            }
        }
    }
    /*  Of a token that weighs something. */
    static __device__ int bin_of(float distance) { return (int)fminf(distance * BINS_EACH, BINS - 1); }
};

/*  Tokens of a row by bins. grid = PARTS, rows. */
extern "C" __global__ void __launch_bounds__(PART_THREADS) ignis_generate_draw_bins(draw_params p)
{
    __shared__ draw_part whole;
    __shared__ weight_t weight[BINS]; /* of this part: many tokens would be added to the same few numbers of the row's */
    __shared__ uint32_t count[BINS];
    const generate_row &place = p.rows[blockIdx.y];
    draw_bins &bins = p.bins[blockIdx.y];
    const int size = (p.vocab + PARTS - 1) / PARTS, from = blockIdx.x * size, to = min(p.vocab, from + size);
    for (int i = threadIdx.x; i < BINS; i += PART_THREADS)
        weight[i] = count[i] = 0;
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    if (place.position < 0 || place.temperature == 0)
        return;
    draw_join_row(p, whole);
    const draw_row row(p, place, whole.greatest);
    row.each(threads_share(from, to, PART_THREADS), [&](int j) { return from + j * PART_THREADS + (int)threadIdx.x; },
             [&](int, float, weight_t w, int bin) {
                 atomicAdd(&weight[bin], w);
                 atomicAdd(&count[bin], 1u);
             });
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += PART_THREADS)
        if (count[i] > 0) {
            atomicAdd(&bins.weight[i], weight[i]);
            atomicAdd(&bins.count[i], count[i]);
        }
}

/* --- the draw --------------------------------------------------------------------------------------------------------------------------- */

struct draw_sum {
    weight_t weight;
    uint32_t count;
};

struct draw_memory {
    draw_part whole;
    weight_t weight[BINS]; /* of a bin and those above it */
    uint32_t count[BINS];
    union {
        draw_sum warp[DRAW_THREADS / 32];
        struct {
            weight_t weight[DIGITS];
            uint32_t count[DIGITS];
        } digit;
    };
    draw_sum above;
    uint32_t keys[2]; /* the inverse of the least one, and the greatest */
    uint32_t number;  /* what a thread tells the others: a digit, a key, a place in the list */
    int32_t id;       /* of the token that was found, if it is the only one */
    bool is_last;
};

/*  The first bin with which a sum of those from the greatest score on reaches `target`. */
template <typename Sum> __device__ inline int draw_bin(const Sum *upto, Sum target)
{
    int low = 0, high = BINS - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (upto[middle] < target)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*  The first threads' numbers, added up from the first one on: a thread's own and those ahead of it. */
__device__ inline draw_sum draw_scan_warp(draw_sum x)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const draw_sum other = {__shfl_up_sync(0xffffffff, x.weight, distance), __shfl_up_sync(0xffffffff, x.count, distance)};
        x.weight += lane >= distance ? other.weight : 0;
        x.count += lane >= distance ? other.count : 0;
    }
    return x;
}

/*  What threads of a block ahead of this one have. */
__device__ inline draw_sum draw_scan_block(draw_memory &memory, draw_sum own)
{
    const draw_sum upto = draw_scan_warp(own);
    draw_sum before = {upto.weight - own.weight, upto.count - own.count};
    __syncthreads();
    if (threadIdx.x % 32 == 31)
        memory.warp[threadIdx.x / 32] = upto;
    __syncthreads();
    for (int w = 0; w < (int)threadIdx.x / 32; w++) {
        before.weight += memory.warp[w].weight;
        before.count += memory.warp[w].count;
    }
    return before;
}

/*  A token's place in the order of all. */
struct draw_place {
    uint32_t key; /* of its score */
    int32_t id;
};

/*  Places in the order of a row's tokens, looked for by one block. */
struct draw_search {
    draw_memory &memory;
    draw_row &row;
    const draw_bins &bins;
    uint32_t listed; /* tokens of the list */
    int vocab;

    /*  Of ids below 2^24, in the order of tokens. */
    static __device__ uint32_t key_of(int id) { return 0xffffffu - (uint32_t)id; }

    /*  Each thread uses its tokens of these bins, which are in the list, or among all where it had no room. */
    template <typename Use> __device__ void each(int low, int high, Use use) const
    {
        const bool all = listed > LIST;
        const draw_row now = row;
        now.each(threads_share(0, all ? vocab : (int)listed, DRAW_THREADS),
                 [&](int j) {
                     const int at = j * DRAW_THREADS + (int)threadIdx.x;
                     return all ? at : __ldcg(&bins.list[at]);
                 },
                 [&](int i, float score, weight_t w, int bin) {
                     if (bin >= low && bin <= high)
                         use(i, draw_row::key_of(score), w);
                 });
    }

    /*  The token of bins low to high with which what there is from the first token on reaches `target`: weights, or counts. In: above, what tokens
        of higher bins have. Returns the key of its score; above: what tokens above that have; here: what those at it have. With `of`, only tokens
        with this key are there, and the key returned is that of the token's id. */
    __device__ __noinline__ uint32_t find(int low, int high, bool counts, weight_t target, draw_sum &above, draw_sum &here,
                                          const uint32_t *of = nullptr)
    {
        uint32_t least = 0, span = 0xffffffffu; /* what is looked through: keys from the least one on, so many and one more */
        const auto each_here = [&](auto use) {
            each(low, high, [&](int i, uint32_t key, weight_t w) {
                const bool is_one = !of || key == *of;
                key = of ? key_of(i) : key;
                if (is_one && key - least <= span)
                    use(i, key, w);
            });
        };
        if (threadIdx.x == 0)
            memory.keys[0] = memory.keys[1] = memory.number = 0;
        __syncthreads();
        uint32_t below = 0, greatest = 0; /* below: how far the least one is from the greatest that there can be */
        each_here([&](int, uint32_t key, weight_t) {
            below = max(below, ~key);
            greatest = max(greatest, key);
        });
        below = ignis_warp_max(below);
        greatest = ignis_warp_max(greatest);
        if (threadIdx.x % 32 == 0) {
            atomicMax(&memory.keys[0], below);
            atomicMax(&memory.keys[1], greatest);
        }
        __syncthreads();
        least = ~memory.keys[0];
        span = memory.keys[1] - least;
#pragma unroll 1
        for (;;) {
            const int shift = max(0, 32 - __clz(span) - 8);
            for (int d = threadIdx.x; d < DIGITS; d += DRAW_THREADS) {
                memory.digit.weight[d] = 0;
                memory.digit.count[d] = 0;
            }
            __syncthreads();
            each_here([&](int, uint32_t key, weight_t w) {
                const uint32_t digit = (key - least) >> shift;
                atomicAdd(&memory.digit.weight[digit], w);
                atomicAdd(&memory.digit.count[digit], 1u);
            });
            __syncthreads();
            if (threadIdx.x < 32) { /* a lane has eight digits, the first one the highest */
                constexpr int own = DIGITS / 32;
                const int top = DIGITS - 1 - own * (int)threadIdx.x;
                draw_sum sum = {0, 0};
#pragma unroll
                for (int d = 0; d < own; d++) {
                    sum.weight += memory.digit.weight[top - d];
                    sum.count += memory.digit.count[top - d];
                }
                const draw_sum upto = draw_scan_warp(sum);
                draw_sum before = {above.weight + upto.weight - sum.weight, above.count + upto.count - sum.count};
                const weight_t ahead = counts ? before.count : before.weight;
                if (target > ahead && target <= ahead + (counts ? sum.count : sum.weight)) {
                    int d = top;
                    for (; counts ? before.count + memory.digit.count[d] < target : before.weight + memory.digit.weight[d] < target; d--) {
                        before.weight += memory.digit.weight[d];
                        before.count += memory.digit.count[d];
                    }
                    memory.number = (uint32_t)d;
                    memory.above = before;
                }
            }
            __syncthreads();
            above = memory.above;
            here.weight = memory.digit.weight[memory.number];
            here.count = memory.digit.count[memory.number];
            least += memory.number << shift;
            span = (1u << shift) - 1;
            __syncthreads();
            if (here.count == 1 || span == 0)
                break;
        }
        if (here.count == 1) {
            each_here([&](int i, uint32_t key, weight_t) {
                memory.number = key;
                memory.id = i;
            });
            __syncthreads();
            least = memory.number;
            __syncthreads();
        }
        return least;
    }

    /*  The token of bins low to high with which weights reach `target`; above: what tokens of higher bins weigh. */
    __device__ draw_place place(int low, int high, weight_t target, draw_sum above)
    {
        draw_sum here, none = {0, 0};
        const uint32_t key = find(low, high, false, target, above, here);
        if (here.count == 1)
            return {key, memory.id};
        const weight_t one = here.weight / here.count; /* of those with this score as many as it takes */
        return {key, (int)key_of((int)find(low, high, true, (target - above.weight + one - 1) / one, none, here, &key))};
    }
};

/*  What top p asks for of a sum. */
__device__ inline weight_t draw_share(double share, weight_t sum)
{
    const weight_t some = (weight_t)ceil(share * (double)sum);
    return some > 0 ? some : 1;
}

/*  Draws the token behind each row's, writes it to the sequence, tells the host, and makes the row that of this token. grid = any number of blocks
    for each row, of which one does where scores have no weights; rows. */
extern "C" __global__ void __launch_bounds__(DRAW_THREADS, 1) ignis_generate_draw(draw_params p)
{
    __shared__ draw_memory memory;
    generate_row &place = p.rows[blockIdx.y];
    const float *logits = p.logits + blockIdx.y * p.stride;
    draw_bins &bins = p.bins[blockIdx.y];
    const draw_part &whole = memory.whole;
    const int vocab = p.vocab, thread = threadIdx.x;
    ignis_grid_dependency_wait();
    const int position = place.position;
    const auto put = [&](int id, int kept) {
        const float x = number_of(logits[id]);
        generate_draw &draw = place.draws[position % 2];
        draw.id = id;
        draw.kept = kept;
        draw.log_prob = (x == whole.most ? 0.0f : x - whole.most) - logf(whole.sum);
        place.ids[position + 1] = id;
        place.position = position + 1; /* the row is the next one's */
    };
    if (position < 0 || (place.temperature == 0 && blockIdx.x > 0))
        return;
    draw_join_row(p, memory.whole);
    if (place.temperature == 0) {
        if (thread == 0)
            put(whole.first, 1);
        return;
    }

    { /* bins, added up from the greatest score on */
        constexpr int own = BINS / DRAW_THREADS;
        draw_sum x[own], sum = {0, 0};
#pragma unroll
        for (int j = 0; j < own; j++) {
            x[j] = {bins.weight[thread * own + j], bins.count[thread * own + j]};
            sum.weight += x[j].weight;
            sum.count += x[j].count;
        }
        draw_sum upto = draw_scan_block(memory, sum);
#pragma unroll
        for (int j = 0; j < own; j++) {
            memory.weight[thread * own + j] = upto.weight += x[j].weight;
            memory.count[thread * own + j] = upto.count += x[j].count;
        }
        __syncthreads();
    }
    const draw_sum all = {memory.weight[BINS - 1], memory.count[BINS - 1]};
    const auto before = [&](int bin) { return bin > 0 ? draw_sum{memory.weight[bin - 1], memory.count[bin - 1]} : draw_sum{0, 0}; };
    const uint4 numbers =
        ignis_philox(make_uint4((uint32_t)position + 1, 0, 0, 0), make_uint2((uint32_t)place.seed, (uint32_t)(place.seed >> 32)));
    const weight_t random = (weight_t)numbers.x | (weight_t)numbers.y << 32;
    const bool cuts_count = place.top_k > 0 && (uint32_t)place.top_k < all.count, cuts_share = place.top_p > 0 && place.top_p < 1,
               cuts_least = place.min_p > 0;
    draw_row row(p, place, whole.greatest);

    /* The bins where a place may be, of sums between the least and the greatest that there can be. Up to `cut` nothing is cut. */
    int low[4], high[4], cut = BINS;
    weight_t least = all.weight, greatest = all.weight;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        low[i] = BINS;
        high[i] = -1;
    }
    if (cuts_count) {
        cut = low[0] = high[0] = draw_bin(memory.count, (uint32_t)place.top_k);
        least = before(cut).weight;
        greatest = memory.weight[cut];
    }
    if (cuts_share) {
        low[1] = draw_bin(memory.weight, draw_share(place.top_p, least));
        high[1] = draw_bin(memory.weight, draw_share(place.top_p, greatest));
        cut = min(cut, low[1]);
        least = min(least, before(low[1]).weight);
        greatest = min(greatest, memory.weight[high[1]]);
    }
    const weight_t enough = draw_share(place.min_p, (weight_t)UNITS);
    if (cuts_least) { /* what rounds to less is cut; rounding of the distance moves it by less than a bin */
        const int bin = row.bin_of(-logf(((float)enough - 0.5f) / UNITS));
        low[2] = max(bin - 1, 0);
        high[2] = min(bin + 1, BINS - 1);
        cut = min(cut, low[2]);
        least = min(least, before(low[2]).weight);
        greatest = min(greatest, memory.weight[high[2]]);
    }
    low[3] = draw_bin(memory.weight, __umul64hi(random, least) + 1);
    high[3] = draw_bin(memory.weight, __umul64hi(random, greatest) + 1);

    /* Their tokens, to the list: the block's own ones are counted first. */
    {
        const int size = (vocab + (int)gridDim.x - 1) / (int)gridDim.x, from = (int)blockIdx.x * size, to = min(vocab, from + size);
        const auto each = [&](auto use) {
            row.each(threads_share(from, to, DRAW_THREADS), [&](int j) { return from + j * DRAW_THREADS + thread; },
                     [&](int i, float, weight_t, int bin) {
                         bool is_wanted = false;
#pragma unroll
                         for (int j = 0; j < 4; j++)
                             is_wanted = is_wanted || (bin >= low[j] && bin <= high[j]);
                         if (is_wanted)
                             use(i);
                     });
        };
        uint32_t count = 0;
        each([&](int) { count++; });
        const uint32_t ahead = draw_scan_block(memory, {0, count}).count;
        if (thread == DRAW_THREADS - 1)
            memory.number = atomicAdd(&bins.listed, ahead + count);
        __syncthreads();
        uint32_t to_list = memory.number + ahead;
        if (count > 0)
            each([&](int i) {
                if (to_list < LIST)
                    bins.list[to_list] = i;
                to_list++;
            });
        __threadfence();
        __syncthreads();
        if (thread == 0)
            memory.is_last = atomicAdd(&bins.ended, 1u) == gridDim.x - 1;
        __syncthreads();
    }
    if (!memory.is_last)
        return;
    __threadfence();

    /* The same places by the tokens that are there: the block that ends last knows them all. */
    draw_search search = {memory, row, bins, *(volatile uint32_t *)&bins.listed, vocab};
    draw_sum left = all, here;
    cut = BINS;
    if (cuts_count) {
        cut = low[0];
        left = before(cut);
        row.border = search.find(cut, cut, true, (weight_t)place.top_k, left, here);
        left.weight += here.weight;
        left.count += here.count;
    }
    if (cuts_share) {
        const weight_t target = draw_share(place.top_p, left.weight);
        const int bin = draw_bin(memory.weight, target);
        const draw_place last = search.place(bin, bin, target, before(bin));
        row.border = last.key;
        row.last = last.id;
        cut = min(cut, bin);
    }
    if (cuts_least) {
        row.least = enough;
        cut = min(cut, low[2]);
    }
    if (cut < BINS) { /* what is left of the bins from there on */
        draw_sum own = {0, 0};
        search.each(cut, BINS - 1, [&](int, uint32_t, weight_t w) {
            own.weight += w;
            own.count++;
        });
        const draw_sum ahead = draw_scan_block(memory, own);
        if (thread == DRAW_THREADS - 1)
            memory.above = {before(cut).weight + ahead.weight + own.weight, before(cut).count + ahead.count + own.count};
        __syncthreads();
        left = memory.above;
    }
    const weight_t target = __umul64hi(random, left.weight) + 1;
    const int bin = min(draw_bin(memory.weight, target), cut);
    const int id = search.place(bin, bin < cut ? bin : BINS - 1, target, before(bin)).id;
    if (thread == 0) {
        put(id, (int)left.count);
        bins.listed = bins.ended = 0;
    }
}
