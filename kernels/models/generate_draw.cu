// SPDX-License-Identifier: MIT
/*  models/generate_draw.cu - sampling: the next token of each row, from its logits

    In the order of Hugging Face's processors: biases, repetition penalty, the mask of a grammar, temperature, top k,
    top p, min p. Three kernels:

        ignis_generate_draw        the likeliest token, or a sample of all; for filtered rows only the statistics
        ignis_generate_draw_bins   a histogram of the weights of scores; for top k and top p
        ignis_generate_draw_cut    top k, top p, min p, and a sample of the tokens that are left

    Sampling needs no sums: each token has noise of its own, and the greatest score / temperature + noise wins. That
    has the probabilities of a softmax if the noise is Gumbel's, -log(-log(u)) of a uniform u (Maddison, Tarlow,
    Minka: A* Sampling; NIPS 2014). So an unfiltered row is read once more than for its likeliest token.

    Filters order the tokens by falling scores, and equal scores by rising ids. Each filter ends at a position of
    that order: where a sum of weights, or a count, from the first token on reaches its target. The histogram tells
    in which bin that is. So only the tokens of a few bins are examined one by one, by the block of a row that ends
    last. No block waits for another.

    The kernels start when the caches are full of weights, and do little. Their time is the number of times that
    they wait for memory, and the size of their code, which is fetched, too.

    One program for all types: -DIGNIS_T=1.
*/
#include "ignis.cuh"
#include "generate.cuh"
#include "shared/models/sampling.h"

/*  The weight of a token: a whole number, so that sums do not depend on an order. It is e^(score - greatest) in units
    of 2^-43; less than half a unit is 0. 2^19 tokens add up to less than 2^63. */
typedef unsigned long long weight_t;
constexpr float UNITS = 8796093022208.0f; /* 2^43 */

constexpr int PARTS = IGNIS__DRAW_PARTS, PART_THREADS = 256, CUT_THREADS = 512; /* the host has the same threads */
constexpr int BINS = 2048, LIST = 16384, DIGITS = 256;
constexpr float BINS_EACH = BINS / 31.0f; /* e^-31 is less than half a unit */
constexpr int NOBODY = 0x7fffffff;
constexpr float LOWEST = -3.402823466e38f;

/*  The sampled one of some tokens: the greatest (score - greatest) / temperature + noise, the lowest id of equal
    ones. */
struct draw_best {
    float value;
    int32_t id;

    __device__ void take(float other, int32_t other_id)
    {
        if (other > value || (other == value && other_id < id)) {
            value = other;
            id = other_id;
        }
    }
    __device__ void take_warp()
    {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            take(__shfl_xor_sync(0xffffffff, value, distance), __shfl_xor_sync(0xffffffff, id, distance));
    }
};

/*  The statistics of a slice of a row, or of the row. */
struct draw_part {
    float most, sum;    /* of the logits, and of e^(logit - most) */
    draw_best greatest; /* of the scores */
    draw_best best;     /* relative to the greatest score of this slice */
};

/*  The state of a row between the kernels. The host knows its size. */
struct draw_bins {
    weight_t weight[BINS];
    uint32_t count[BINS];
    draw_part whole;
    uint32_t listed, ended; /* tokens of the list, blocks that have ended: zero between launches */
    int32_t list[LIST];     /* tokens to examine one by one; if there are more, all tokens are examined */
    draw_best best[PARTS];  /* results of the blocks that filter; left: tokens that they kept */
    uint32_t left[PARTS];
};
static_assert(sizeof(draw_part) == IGNIS__DRAW_PART && sizeof(draw_bins) == IGNIS__DRAW_BINS,
              "the host allocates both");

/*  Returns x, or minus infinity for NaN. */
__device__ inline float number_of(float x) { return x == x ? x : -ignis_infinity<float>(); }

/*  Returns whether scores equal the logits. */
__device__ inline bool is_plain(const ignis__generate_row &row)
{
    return row.biases == 0 && row.penalty == 1 && !row.masked;
}

/*  Returns whether top k or top p, which need weights, may exclude tokens; then whether any filter may. */
__device__ inline bool has_sums(const ignis__generate_row &row)
{
    return row.top_k > 0 || (row.top_p > 0 && row.top_p < 1);
}
__device__ inline bool has_cuts(const ignis__generate_row &row)
{
    return row.temperature != 0 && (has_sums(row) || row.min_p > 0);
}

__device__ inline uint32_t draw_word(uint4 words, int i)
{
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/* --- scores --------------------------------------------------------------------------------------------------- */

/*  The scores of a row: those that draw_scores wrote, or the logits. */
struct draw_row {
    const ignis__generate_row &row;
    const float *scores;
    float greatest, temperature;

    __device__ draw_row(const ignis__draw &p, const ignis__generate_row &row, float greatest)
        : row(row), scores((is_plain(row) ? p.logits : p.scores) + blockIdx.y * p.stride), greatest(greatest),
          temperature((float)row.temperature)
    {
    }
    __device__ float score(int id) const { return number_of(scores[id]); }
    /*  Returns how far a score is below another one. 0 for equal scores, even infinite ones. */
    __device__ float distance(float score, float from) const
    {
        return score == from ? 0 : (from - score) / temperature;
    }
    __device__ float distance(float score) const { return distance(score, greatest); }
    static __device__ weight_t weight(float distance) /* equal in all kernels */
    {
        return distance == 0 ? (weight_t)UNITS : (weight_t)fmaf(expf(-distance), UNITS, 0.5f);
    }
    /*  Returns the bin of a token that has a weight. */
    static __device__ int bin(float distance) { return (int)fminf(distance * BINS_EACH, BINS - 1); }
    /*  Returns random words of four tokens from `first` on, a multiple of four. */
    __device__ uint4 words(int first) const
    {
        return ignis_philox(make_uint4((uint32_t)row.position + 1, (uint32_t)first / 4, 0, 0),
                            make_uint2((uint32_t)row.seed, (uint32_t)(row.seed >> 32)));
    }
    static __device__ float noise(uint32_t word)
    {
        const float u = fminf(((float)word + 0.5f) / 4294967296.0f, 1 - 0x1p-24f);
        return -logf(-log1pf(-u)); /* of 1 - u: the greatest noises need the precision of small numbers */
    }
    /*  Calls use(first, count, scores) for four tokens at a time, from `from`, a multiple of four, up to `to`. All
        threads of a block call it equally often. */
    template <typename Use> __device__ void each_four(int from, int to, Use use) const
    {
#pragma unroll 1
        for (int base = from; base < to; base += 4 * (int)blockDim.x) {
            const int first = base + 4 * (int)threadIdx.x, count = min(max(to - first, 0), 4);
            float four[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                four[j] = j < count ? score(first + j) : -ignis_infinity<float>();
            use(first, count, four);
        }
    }
};

__device__ inline float bias_of(const ignis__generate_bias *biases, int count, int id)
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

/*  Finds the slice of a row that this block has, of `blocks` slices. It begins at a multiple of four. */
__device__ inline void draw_share(int vocab, int blocks, int &from, int &to)
{
    const int size = ((vocab + blocks - 1) / blocks + 3) / 4 * 4;
    from = min(vocab, (int)blockIdx.x * size);
    to = min(vocab, from + size);
}

/* --- the likeliest token, or a sample of all ------------------------------------------------------------------ */

/*  Merges two slices' statistics, except those that depend on a temperature. */
__device__ inline void draw_join(draw_part &part, const draw_part &other)
{
    const float most = fmaxf(part.most, other.most);
    part.sum = part.sum * (part.most == most ? 1.0f : expf(part.most - most)) +
               other.sum * (other.most == most ? 1.0f : expf(other.most - most));
    part.most = most;
    part.greatest.take(other.greatest.value, other.greatest.id);
}

__device__ inline void draw_join_warp(draw_part &part)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        draw_part other;
        other.most = __shfl_xor_sync(0xffffffff, part.most, distance);
        other.sum = __shfl_xor_sync(0xffffffff, part.sum, distance);
        other.greatest.value = __shfl_xor_sync(0xffffffff, part.greatest.value, distance);
        other.greatest.id = __shfl_xor_sync(0xffffffff, part.greatest.id, distance);
        draw_join(part, other);
    }
}

/*  Returns the score that was computed from a logit. With a mask, allowed tokens stay above forbidden ones, even if
    biases forbid all of them. Tokens without a logit stay forbidden. */
__device__ inline float draw_score(const ignis__generate_row &row, float logit, float score)
{
    return row.masked && logit >= LOWEST ? fmaxf(score, LOWEST) : score;
}

/*  Computes the scores of a slice of a row, if they differ from the logits, and a thread's greatest one. */
__device__ inline void draw_scores(const ignis__draw &p, const ignis__generate_row &row, int from, int to,
                                   draw_best &greatest)
{
    const int thread = threadIdx.x;
    const float *logits = p.logits + blockIdx.y * p.stride;
    float *scores = p.scores + blockIdx.y * p.stride;
    const ignis__generate_bias *biases = p.biases + (long long)blockIdx.y * p.bias_room;
    const uint32_t *mask = p.masks + (long long)max(row.masked - 1, 0) * p.mask_room;
    for (int i = from + thread; i < to; i += PART_THREADS)
        scores[i] = number_of(logits[i]);
    __syncthreads();
    for (int i = thread; i < row.biases; i += PART_THREADS)
        if (biases[i].id >= from && biases[i].id < to)
            scores[biases[i].id] = draw_score(row, scores[biases[i].id], scores[biases[i].id] + biases[i].bias);
    if (row.penalty != 1) {
        const int behind = row.position + 1, first = row.window > 0 ? max(0, behind - row.window) : 0;
        const float penalty = (float)row.penalty;
        __syncthreads();
        /* a token that occurs twice gets the same number twice */
        for (int i = first + thread; i < behind; i += PART_THREADS) {
            const int id = row.ids[i];
            if (id < from || id >= to)
                continue;
            const float logit = number_of(logits[id]), x = logit + bias_of(biases, row.biases, id);
            atomicExch((unsigned *)&scores[id],
                       __float_as_uint(draw_score(row, logit, x < 0 ? x * penalty : x / penalty)));
        }
    }
    __syncthreads();
    greatest = {-ignis_infinity<float>(), NOBODY};
    for (int i = from + thread; i < to; i += PART_THREADS) {
        float x = scores[i];
        if (row.masked)
            scores[i] = x = mask[i / 32] >> (i % 32) & 1 ? x : -ignis_infinity<float>();
        greatest.take(x, i);
    }
    __syncthreads();
}

/*  Appends a row's token to the sequence, tells the host, and moves the row to this token. If no token can be
    sampled, a step that is queued already continues with token 0, and its result is ignored. */
__device__ inline void draw_put(const ignis__draw &p, ignis__generate_row &row, const draw_part &whole, int id,
                                int kept)
{
    const int position = row.position;
    const bool none = !(whole.greatest.value > -ignis_infinity<float>());
    id = none ? 0 : id;
    const float x = number_of(p.logits[blockIdx.y * p.stride + id]);
    ignis__generate_draw &draw = row.draws[position % IGNIS__DRAWS];
    draw.id = !none ? id : whole.most > -ignis_infinity<float>() ? IGNIS__DRAW_NO_TOKEN : IGNIS__DRAW_NO_LOGITS;
    draw.kept = kept;
    draw.log_prob = (x == whole.most ? 0.0f : x - whole.most) - logf(whole.sum);
    if (!row.checks)
        row.ids[position + 1] = id;
    row.position = position + 1;
}

/*  Samples, or computes the statistics of filtered rows. grid = PARTS, rows. */
extern "C" __global__ void __launch_bounds__(PART_THREADS) ignis_generate_draw(ignis__draw p)
{
    constexpr int batch = 8, warps = PART_THREADS / 32;
    __shared__ draw_part found[warps];
    __shared__ bool is_last;
    ignis__generate_row &row = p.rows[blockIdx.y];
    draw_bins &bins = p.bins[blockIdx.y];
    draw_part *parts = p.parts + blockIdx.y * PARTS;
    const float *logits = p.logits + blockIdx.y * p.stride;
    const int thread = threadIdx.x, warp = thread / 32;
    int from, to;
    draw_part own = {
        -ignis_infinity<float>(), 0, {-ignis_infinity<float>(), NOBODY}, {-ignis_infinity<float>(), NOBODY}};
    draw_share(p.vocab, PARTS, from, to);
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    if (row.position < 0)
        return;
    for (int base = from + thread; base < to; base += batch * PART_THREADS) {
        float x[batch], most = own.most;
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = base + j * PART_THREADS;
            x[j] = i < to ? number_of(logits[i]) : -ignis_infinity<float>();
        }
#pragma unroll
        for (int j = 0; j < batch; j++)
            if (base + j * PART_THREADS < to)
                own.greatest.take(x[j], base + j * PART_THREADS);
        own.most = own.greatest.value;
        own.sum *= own.most == most ? 1.0f : expf(most - own.most);
#pragma unroll
        for (int j = 0; j < batch; j++)
            if (base + j * PART_THREADS < to)
                own.sum += x[j] == own.most ? 1.0f : expf(x[j] - own.most);
    }
    if (!is_plain(row))
        draw_scores(p, row, from, to, own.greatest);
    draw_join_warp(own);
    if (thread % 32 == 0)
        found[warp] = own;
    __syncthreads();

    if (has_cuts(row)) {
        if (has_sums(row))
            for (int i = blockIdx.x * PART_THREADS + thread; i < BINS; i += PARTS * PART_THREADS) {
                bins.weight[i] = 0;
                bins.count[i] = 0;
            }
    } else if (row.temperature != 0) {
        float greatest = found[0].greatest.value;
#pragma unroll
        for (int w = 1; w < warps; w++)
            greatest = fmaxf(greatest, found[w].greatest.value);
        const draw_row scores(p, row, greatest);
        scores.each_four(from, to, [&](int first, int count, const float *score) {
            const uint4 words = scores.words(first);
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (j < count)
                    own.best.take(scores.noise(draw_word(words, j)) - scores.distance(score[j]), first + j);
        });
        own.best.take_warp();
        if (thread % 32 == 0)
            found[warp].best = own.best;
        __syncthreads();
    }
    if (thread == 0) {
#pragma unroll 1
        for (int w = 1; w < warps; w++) {
            draw_join(own, found[w]);
            own.best.take(found[w].best.value, found[w].best.id);
        }
        parts[blockIdx.x] = own;
        __threadfence();
        is_last = atomicAdd(&bins.ended, 1u) == PARTS - 1;
    }
    __syncthreads();
    if (!is_last || thread >= 32)
        return;
    __threadfence();
    draw_part whole = parts[thread];
    const draw_part other = parts[thread + 32];
    const draw_row scores(p, row, ignis_warp_max(fmaxf(whole.greatest.value, other.greatest.value)));
    whole.best.value -= scores.distance(whole.greatest.value);
    whole.best.take(other.best.value - scores.distance(other.greatest.value), other.best.id);
    whole.best.take_warp();
    draw_join(whole, other);
    draw_join_warp(whole);
    if (thread == 0) {
        bins.whole = whole;
        bins.ended = 0;
        if (!has_cuts(row))
            draw_put(p, row, whole, row.temperature == 0 ? whole.greatest.id : whole.best.id, 0);
    }
}

/* --- the histogram -------------------------------------------------------------------------------------------- */

/*  Counts and weighs the tokens of a row by bins. grid = PARTS, rows. */
extern "C" __global__ void __launch_bounds__(PART_THREADS) ignis_generate_draw_bins(ignis__draw p)
{
    __shared__ weight_t weight[BINS]; /* of this slice: atomics on the row's bins would collide */
    __shared__ uint32_t count[BINS];
    const ignis__generate_row &place = p.rows[blockIdx.y];
    draw_bins &bins = p.bins[blockIdx.y];
    int from, to;
    draw_share(p.vocab, PARTS, from, to);
    for (int i = threadIdx.x; i < BINS; i += PART_THREADS)
        weight[i] = count[i] = 0;
    ignis_grid_dependents_launch();
    ignis_grid_dependency_wait();
    if (place.position < 0 || !has_cuts(place) || !has_sums(place))
        return;
    const draw_row row(p, place, bins.whole.greatest.value);
    __syncthreads();
    row.each_four(from, to, [&](int, int many, const float *score) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float distance = row.distance(score[j]);
            const weight_t w = j < many ? row.weight(distance) : 0;
            if (w > 0) {
                atomicAdd(&weight[row.bin(distance)], w);
                atomicAdd(&count[row.bin(distance)], 1u);
            }
        }
    });
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += PART_THREADS)
        if (count[i] > 0) {
            atomicAdd(&bins.weight[i], weight[i]);
            atomicAdd(&bins.count[i], count[i]);
        }
}

/* --- filters -------------------------------------------------------------------------------------------------- */

struct draw_sum {
    weight_t weight;
    uint32_t count;
};

struct draw_memory {
    weight_t weight[BINS]; /* of a bin and those above it */
    uint32_t count[BINS];
    union {
        draw_sum warp[CUT_THREADS / 32];
        struct {
            draw_best best;
            uint32_t left;
        } left[CUT_THREADS / 32];
        struct {
            weight_t weight[DIGITS];
            uint32_t count[DIGITS];
        } digit;
    };
    draw_sum above;
    uint32_t keys[2]; /* the inverse of the least key, and the greatest key */
    uint32_t number;  /* a digit or a key that a thread tells the others */
    int32_t id;       /* of the token that was found, if it is the only one */
    bool is_last;
};

/*  Returns the first bin at which a running sum, from the greatest score on, reaches `target`. */
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

/*  Returns the running sum over the lanes of a warp, with the lane's own. */
__device__ inline draw_sum draw_scan_warp(draw_sum x)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const draw_sum other = {__shfl_up_sync(0xffffffff, x.weight, distance),
                                __shfl_up_sync(0xffffffff, x.count, distance)};
        x.weight += lane >= distance ? other.weight : 0;
        x.count += lane >= distance ? other.count : 0;
    }
    return x;
}

/*  Returns the sum of the threads of a block before this one. */
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

/*  Merges the results of all threads of a block, for the first thread. */
__device__ inline void draw_join_block(draw_memory &memory, draw_best &best, uint32_t &left)
{
    best.take_warp();
    left = ignis_warp_sum(left);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        memory.left[threadIdx.x / 32] = {best, left};
    __syncthreads();
    if (threadIdx.x == 0)
#pragma unroll 1
        for (int w = 1; w < CUT_THREADS / 32; w++) {
            best.take(memory.left[w].best.value, memory.left[w].best.id);
            left += memory.left[w].left;
        }
}

/*  Returns a key that rises with the score. */
__device__ inline uint32_t draw_key(float score)
{
    const uint32_t bits = __float_as_uint(score + 0.0f); /* both zeros are equal */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/*  Returns a key that rises in the order of tokens. Ids are below 2^24. */
__device__ inline uint32_t draw_key(int id) { return 0xffffffu - (uint32_t)id; }

/*  A token that is examined by itself. */
struct draw_token {
    int32_t id;
    uint32_t key;    /* of its score */
    float distance;  /* of its score from the greatest one */
    weight_t weight; /* 0: no token */
};

/*  A position in the order of all tokens. */
struct draw_place {
    uint32_t key; /* of the score */
    int32_t id;
};

/*  A search for positions in the order of a row's tokens, by one block. */
struct draw_search {
    draw_memory &memory;
    const draw_row &row;
    const int32_t *list;
    int count; /* tokens to examine: the list, or all if the list was too short */
    bool all;
    draw_place last; /* tokens after it are excluded */
    draw_token own;  /* the thread's first token: mostly its only one */

    __device__ draw_search(draw_memory &memory, const draw_row &row, const draw_bins &bins, int vocab)
        : memory(memory), row(row), list(bins.list), count(*(const volatile uint32_t *)&bins.listed), last{0, vocab}
    {
        all = count > LIST;
        if (all)
            count = vocab;
        own = token((int)threadIdx.x);
    }
    __device__ draw_token token(int at) const
    {
        if (at >= count)
            return {0, 0, 0, 0};
        const int id = all ? at : __ldcg(&list[at]);
        const float score = row.score(id), distance = row.distance(score);
        return {id, draw_key(score), distance, row.weight(distance)};
    }
    /*  Calls use(token) for each token of a thread in bins `low` to `high` that is not excluded. */
    template <typename Use> __device__ void each(int low, int high, Use use) const
    {
        draw_token now = own;
#pragma unroll 1
        for (int at = threadIdx.x;;) {
            const int bin = row.bin(now.distance);
            if (now.weight > 0 && bin >= low && bin <= high &&
                (now.key > last.key || (now.key == last.key && now.id <= last.id)))
                use(now);
            at += CUT_THREADS;
            if (at >= count)
                break;
            now = token(at);
        }
    }

    /*  Finds the token of a bin at which the running sum from the first token on reaches `target`: a sum of weights,
        or counts. above: sums of higher bins at the call. Returns the key of the token's score; above then has the
        sums above that key, here those at it. of: only tokens with this key exist, and the returned key is that of
        the token's id. */
    __device__ __noinline__ uint32_t find(int bin, bool counts, weight_t target, draw_sum &above, draw_sum &here,
                                          const uint32_t *of = nullptr)
    {
        uint32_t least = 0, span = 0xffffffffu; /* keys from `least` to `least + span` */
        const auto each_here = [&](auto use) {
            each(bin, bin, [&](const draw_token &token) {
                const uint32_t key = of ? draw_key(token.id) : token.key;
                if ((!of || token.key == *of) && key - least <= span)
                    use(token, key);
            });
        };
        if (threadIdx.x == 0)
            memory.keys[0] = memory.keys[1] = memory.number = 0;
        __syncthreads();
        uint32_t below = 0, greatest = 0; /* below: the distance of the least key from the greatest possible one */
        each_here([&](const draw_token &, uint32_t key) {
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
            for (int d = threadIdx.x; d < DIGITS; d += CUT_THREADS) {
                memory.digit.weight[d] = 0;
                memory.digit.count[d] = 0;
            }
            __syncthreads();
            each_here([&](const draw_token &token, uint32_t key) {
                const uint32_t digit = (key - least) >> shift;
                atomicAdd(&memory.digit.weight[digit], token.weight);
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
                    for (; counts ? before.count + memory.digit.count[d] < target
                                  : before.weight + memory.digit.weight[d] < target;
                         d--) {
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
            each_here([&](const draw_token &token, uint32_t key) {
                memory.number = key;
                memory.id = token.id;
            });
            __syncthreads();
            least = memory.number;
            __syncthreads();
        }
        return least;
    }

    /*  Finds the token of a bin at which weights reach `target`. above: weights of higher bins. */
    __device__ draw_place place(int bin, weight_t target, draw_sum above)
    {
        draw_sum here, none = {0, 0};
        const uint32_t key = find(bin, false, target, above, here);
        if (here.count == 1)
            return {key, memory.id};
        const weight_t one = here.weight / here.count; /* of equal scores, as many as the target needs */
        return {key, (int)draw_key((int)find(bin, true, (target - above.weight + one - 1) / one, none, here, &key))};
    }
};

/*  Returns the weight of a share of a sum, at least 1. */
__device__ inline weight_t draw_weight_of(double share, weight_t sum)
{
    const weight_t some = (weight_t)ceil(share * (double)sum);
    return some > 0 ? some : 1;
}

/*  Filters, samples, and moves the row to the next token. grid = any number of blocks up to PARTS, rows. */
extern "C" __global__ void __launch_bounds__(CUT_THREADS, 1) ignis_generate_draw_cut(ignis__draw p)
{
    __shared__ draw_memory memory;
    ignis__generate_row &place = p.rows[blockIdx.y];
    draw_bins &bins = p.bins[blockIdx.y];
    const int thread = threadIdx.x;
    ignis_grid_dependency_wait();
    if (place.position < 0 || !has_cuts(place))
        return;
    const draw_row row(p, place, bins.whole.greatest.value);
    if (has_sums(place)) { /* running sums of the bins, from the greatest score on */
        constexpr int own = BINS / CUT_THREADS;
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
    const auto before = [&](int bin) {
        return bin > 0 ? draw_sum{memory.weight[bin - 1], memory.count[bin - 1]} : draw_sum{0, 0};
    };
    const bool cuts_count =
        place.top_k > 0 && (uint32_t)place.top_k<memory.count[BINS - 1], cuts_share = place.top_p> 0 && place.top_p < 1;
    const weight_t least = place.min_p > 0 ? draw_weight_of(place.min_p, (weight_t)UNITS) : 1;

    /* The bins in which top k, and then top p, end. Sums are between bounds, so top p has a range of bins. Tokens in
       bins before the first of these are not excluded by them. */
    int count_bin = BINS, low = BINS, high = -1;
    if (cuts_count)
        count_bin = draw_bin(memory.count, (uint32_t)place.top_k);
    if (cuts_share) {
        low = draw_bin(memory.weight, draw_weight_of(place.top_p, before(count_bin).weight));
        high = draw_bin(memory.weight, draw_weight_of(place.top_p, memory.weight[min(count_bin, BINS - 1)]));
    }
    const int cut = min(count_bin, low);

    /* The best token that is surely kept, and a list of those that need a look: each block has its own. */
    {
        const int lane = thread % 32;
        draw_best best = {-ignis_infinity<float>(), NOBODY};
        uint32_t left = 0;
        int from, to;
        draw_share(p.vocab, (int)gridDim.x, from, to);
        row.each_four(from, to, [&](int first, int count, const float *score) {
            const uint4 words = row.words(first);
            uint32_t ahead[4], listed = 0; /* tokens that the warp lists before the thread's */
            bool lists[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float distance = row.distance(score[j]);
                const weight_t w = j < count ? row.weight(distance) : 0;
                const int bin = row.bin(distance);
                if (w >= least && bin < cut) {
                    best.take(row.noise(draw_word(words, j)) - distance, first + j);
                    left++;
                }
                lists[j] = w > 0 && (bin == count_bin || (bin >= low && bin <= high));
                const uint32_t those = __ballot_sync(0xffffffff, lists[j]);
                ahead[j] = listed + __popc(those & ((1u << lane) - 1));
                listed += __popc(those);
            }
            if (listed == 0)
                return;
            const uint32_t begin = __shfl_sync(0xffffffff, lane == 0 ? atomicAdd(&bins.listed, listed) : 0u, 0);
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (lists[j] && begin + ahead[j] < LIST)
                    bins.list[begin + ahead[j]] = first + j;
        });
        draw_join_block(memory, best, left);
        if (thread == 0) {
            bins.best[blockIdx.x] = best;
            bins.left[blockIdx.x] = left;
        }
        __threadfence();
        __syncthreads();
        if (thread == 0)
            memory.is_last = atomicAdd(&bins.ended, 1u) == gridDim.x - 1;
        __syncthreads();
    }
    if (!memory.is_last)
        return;
    __threadfence();

    /* The exact positions, by the listed tokens: the block that ends last has all of them. */
    draw_search search(memory, row, bins, p.vocab);
    draw_sum all = cuts_count || cuts_share ? before(count_bin) : draw_sum{0, 0}, here;
    if (cuts_count) {
        search.last.key = search.find(count_bin, true, (weight_t)place.top_k, all, here);
        all.weight += here.weight;
    }
    if (cuts_share) {
        const weight_t target = draw_weight_of(place.top_p, all.weight);
        const int bin = draw_bin(memory.weight, target);
        search.last = search.place(bin, target, before(bin));
    }
    draw_best best = {-ignis_infinity<float>(), NOBODY};
    uint32_t left = 0;
    if (thread < (int)gridDim.x) {
        best = bins.best[thread];
        left = bins.left[thread];
    }
    search.each(cut, BINS - 1, [&](const draw_token &token) {
        if (token.weight >= least) {
            best.take(row.noise(draw_word(row.words(token.id), token.id % 4)) - token.distance, token.id);
            left++;
        }
    });
    draw_join_block(memory, best, left);
    if (thread == 0) {
        draw_put(p, place, bins.whole, best.id, (int)left);
        bins.listed = bins.ended = 0;
    }
}
