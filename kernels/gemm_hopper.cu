// SPDX-License-Identifier: MIT
/*  gemm_hopper.cu - matrix products of f16, bf16, f32 as tf32, and floats of 8 bits, by wgmma, for sm_90a

    One program per type, pair of transpositions and width of a tile: compiled with -DIGNIS_T=<IGNIS_F16,
    IGNIS_BF16 or IGNIS_F32> -DIGNIS_TRANSPOSE_A=<0 or 1> -DIGNIS_TRANSPOSE_B=<0 or 1> -DIGNIS_COLUMNS=<64,
    128, 192 or 256> -DIGNIS_DIRECT=<0 or 1>. Direct ones are finished in registers and stored by TMA. They
    get a bias and -DIGNIS_ACTIVATION=<relu or gelu of shared/gemm.h>, or with -DIGNIS_OTHER=<ADDED> a bias and another
    matrix, or with -DIGNIS_OTHER=<GRADIENT> the derivative of that activation and column sums. With the activation
    PAIRED the result is silu of the first half of its columns, times the second: a tile has 64 columns of each.
    Sums in float, in the order of k. With -DIGNIS_OPERANDS=<IGNIS_F8_E4M3 or
    IGNIS_F8_E5M2> both operands are of that type, and have scales. Tensor cores keep some 13 bits of sums of
    such products, so those of a few steps are summed in float, while further ones are made: tiles have 128
    columns, or 64 in pairs. With -DIGNIS_PATCHES it is a convolution, whose patches TMA gathers: k of a
    patch, or its columns, are whole multiples of 64 channels, beyond the last of which they are zero.

    Blocks stay, and do tiles of 128 rows in turn. One warp of the first warpgroup loads steps of 64 elements
    of k, as far ahead as there is room; the second and third warpgroup multiply 64 rows each. All operands
    are as the memory has them: wgmma transposes. An SM has two blocks with tiles of 64 columns, so that one
    multiplies while the other one stores; and with -DIGNIS_ROWS=64, where a tile has 64 rows and 128 columns,
    of which each warpgroup has 64. Tiles of 192 columns are finished beside the next one
    (gemm_hopper_ahead.cuh). With -DIGNIS_ROWS=192 three warpgroups multiply 64 rows each, and a tile has as
    many columns as make the tiles fit the SMs, a multiple of 16 from 64 to 192: for direct ones without
    another matrix.

    With -DIGNIS_PAIRS=<IGNIS__SHARE_A or _B> blocks come in pairs, and each loads half of what they share, for
    both. Pairs that share b have tiles one below the other: the L2 cache gives a quarter to a third less,
    which counts where rows are not full sectors of it. Pairs that share a have tiles of 64 columns side by
    side: small products keep more SMs busy, and read no more than with 128 columns. Of these a SM has one
    block, with more steps on their way, as small products wait for memory and not for each other. */
#include "ignis.cuh"
#include "mma.cuh"
#include "hopper.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_type<IGNIS_T == 3 ? 2 : IGNIS_T> Half; /* T, or where that is f32 one that is not used */
#include "gemm.cuh"

/*  The use of another matrix like out: it is added (the residual, or the old out), or the derivative of the
    activation is taken at it, or it is the gate. */
enum { NO_OTHER, ADDED, GRADIENT, GATE };

#ifndef IGNIS_ACTIVATION
#define IGNIS_ACTIVATION IGNIS__ACTIVATION_NONE
#endif
#ifndef IGNIS_OTHER
#define IGNIS_OTHER NO_OTHER
#endif
#ifndef IGNIS_ROWS
#define IGNIS_ROWS 128
#endif

/*  Parameters that a benchmark may vary: k steps by which the second warpgroup of two lags behind the first,
    so that one multiplies while the other one's results are activated and stored. */
#ifndef IGNIS_GEMM_LAG
#define IGNIS_GEMM_LAG                                                                 \
    (IGNIS_ROWS < 192 && (IGNIS_ACTIVATION == IGNIS__ACTIVATION_GELU ||                \
                          IGNIS_ACTIVATION == IGNIS__ACTIVATION_PAIRED || IGNIS_OTHER) \
         ? 1                                                                           \
         : 0)
#endif

/*  And k steps of 128 products of 8 bits that have sums of their own. */
#ifndef IGNIS_GEMM_SUM_STEPS
#define IGNIS_GEMM_SUM_STEPS 4
#endif

/*  The operand that the two blocks of a pair share. */

#ifndef IGNIS_PAIRS
#define IGNIS_PAIRS IGNIS__SHARE_NOTHING
#endif
constexpr bool SHARES_A = IGNIS_PAIRS == IGNIS__SHARE_A, SHARES_B = IGNIS_PAIRS == IGNIS__SHARE_B,
               IN_PAIRS = SHARES_A || SHARES_B;
constexpr int BM = IGNIS_ROWS, BN = IGNIS_COLUMNS, BK = 128 / (int)sizeof(Operand),
              SLAB = 64 * 128;                                /* bytes of 64 rows */
constexpr bool SIDE_BY_SIDE = BM == 64, LARGE = BM == 192;    /* the warpgroups are; three of them multiply */
constexpr bool NARROW = (BN == 64 && !LARGE) || SIDE_BY_SIDE; /* a warpgroup has 64 x 64 results */
constexpr int GROUPS = LARGE ? 3 : 2, BLOCKS = NARROW && !SHARES_A ? 2 : 1; /* that multiply; of an SM */
constexpr bool SLAB_STAGED = (NARROW || LARGE) && IGNIS_DIRECT && IGNIS_OTHER == NO_OTHER;
constexpr bool AHEAD = BN == 192 && !LARGE; /* a tile is finished beside the next one */
constexpr bool A_BY_K = !IGNIS_TRANSPOSE_A, B_BY_K = IGNIS_TRANSPOSE_B;
constexpr int A_BYTES = BM * 128, B_ROWS = B_BY_K ? BN : (BN + 63) / 64 * 64, STAGE_BYTES = A_BYTES + B_ROWS * 128;
constexpr bool HALVES = sizeof(T) == 2; /* f32 is rounded by TMA, and stored from registers */
constexpr bool OF_HALVES = sizeof(Operand) == 2;
static_assert(!SCALED || (BM == 128 && BN == 128) || SHARES_A, "there are registers for thrice as many sums");
static_assert(OF_HALVES || (A_BY_K && B_BY_K && !IGNIS_PATCHES), "wgmma transposes 16 bits alone");
constexpr int LARGE_STAGES =
    202 * 1024 / STAGE_BYTES < 6 ? 202 * 1024 / STAGE_BYTES : 6; /* the host computes it, too */
constexpr int STAGES = LARGE ? LARGE_STAGES : SHARES_A ? 8 : BN > 128 || SLAB_STAGED ? 4 : NARROW ? 3 : 6;
static_assert(!SIDE_BY_SIDE || (BN == 128 && IGNIS_OTHER == NO_OTHER), "a tile of 64 rows has 128 columns");
static_assert(!LARGE || (BN % 16 == 0 && SLAB_STAGED && !IGNIS_PATCHES), "nothing is read for a tile of 192 rows");
static_assert(!IN_PAIRS || (!SIDE_BY_SIDE && !IGNIS_PATCHES && SHARES_A == NARROW),
              "pairs that share a have tiles of 64 columns, others have wide ones");
static_assert(AHEAD || IGNIS_ACTIVATION != IGNIS__ACTIVATION_GATED, "no other ones are gated in registers");
constexpr bool IS_PAIRED = IGNIS_ACTIVATION == IGNIS__ACTIVATION_PAIRED;
static_assert(!IS_PAIRED || (BN == 128 && IGNIS_DIRECT && IGNIS_TRANSPOSE_B && !IGNIS_OTHER && !IGNIS_PATCHES),
              "a tile has two halves of 64 columns");
static_assert(!AHEAD || (IGNIS_DIRECT && !IGNIS_PATCHES && !SCALED), "tiles of 192 columns are finished in registers");
constexpr int STAGING_WIDTH = 64 + 4,
              STAGING_BYTES = AHEAD         ? 4 * SLAB
                              : SLAB_STAGED ? SLAB
                                            : 64 * STAGING_WIDTH * 4; /* of a warpgroup: 64 x 64 results */
constexpr int STAGING = STAGES * STAGE_BYTES, BARRIERS = STAGING + GROUPS * STAGING_BYTES,
              OTHER_BARRIERS = BARRIERS + 16 * STAGES;
constexpr int LAG = IGNIS_GEMM_LAG;
static_assert(LAG < STAGES, "the first warpgroup gets so far alone");
constexpr bool DIRECT = IGNIS_DIRECT,
               BIASED = HALVES && DIRECT && IGNIS_OTHER != GRADIENT && IGNIS_ACTIVATION != IGNIS__ACTIVATION_GATED;
constexpr bool OTHER_COMES = HALVES && IGNIS_OTHER; /* through shared memory */
constexpr bool SKIPS =
    LARGE ||
    (!IGNIS_PATCHES &&
     BN <= 128); /* rows that do not exist: with wide tiles there are no registers to count them, nor many such rows */

typedef PlaceOf<int> Spot; /* TMA takes no larger coordinates */

/*  Loads a k step of an operand in `most` boxes of some rows at most: by k as rows of 64 k, else as 64 rows
    at each k. A shared operand is loaded for both blocks of a pair. */
template <int most, bool by_k, bool shared>
__device__ inline void load(uint32_t to, const ignis__tensor_map *map, uint32_t barrier, int count, int box, int row,
                            int k, int batch)
{
#pragma unroll
    for (int i = 0; i < most; i++) {
        if (i >= count)
            break;
        const int x = by_k ? k : row + box * i, y = by_k ? row + box * i : k;
        if constexpr (shared)
            ignis_ptx_tensor_multicast(to + i * box * 128, map, barrier, 3, x, y, batch);
        else
            ignis_ptx_tensor_load<3>(to + i * box * 128, map, barrier, x, y, batch);
    }
}

/*  Returns the boxes of a tile's rows that an operand has. Boxes beyond its end are not loaded, as TMA takes
    longer to make zeros than to read. Products of old values there are not stored. */
__device__ inline int boxes_of(int rows, int first, long long all, int box)
{
    return (max(0, min(rows, (int)all - first)) + box - 1) / box;
}

#if IGNIS_PATCHES
/*  Of some pixels of the grid, 64 channels of a tap. */
__device__ inline void load_pixels(const ignis__patches &q, uint32_t to, const ignis__tensor_map *map, uint32_t barrier,
                                   const Pixel &at, const Tap &of)
{
    const int x = q.first[1] + at.column * q.stride[1], y = q.first[0] + at.row * q.stride[0],
              right = of.column * q.step[1], down = of.row * q.step[0];
#if IGNIS_VOLUMES
    ignis_ptx_voxels_load(to, map, barrier, of.channel, x, y, q.first[2] + at.plane * q.stride[2], at.image, right,
                          down, of.plane * q.step[2]);
#else
    ignis_ptx_pixels_load(to, map, barrier, of.channel, x, y, at.image, right, down);
#endif
}
#endif

/*  Stores 64 rows of 64 columns of out: at once, or as pixels that are apart. */
__device__ inline void store_slab(const Product &p, const ignis__tensor_map *map, uint32_t from, int column, int row,
                                  int batch)
{
#if IGNIS_PATCHES == 1
    if (p.patches.apart) {
        const Pixel at = grid_pixel(p.patches, row);
#if IGNIS_VOLUMES
        ignis_ptx_voxels_store(map, from, column, at.column, at.row, at.plane, at.image);
#else
        ignis_ptx_pixels_store(map, from, column, at.column, at.row, at.image);
#endif
        return;
    }
#endif
    ignis_ptx_tensor_store<3>(map, from, column, row, batch);
}

constexpr uint32_t ONES =
    ignis_is_same<Half, ignis_f16> ? 0x3c003c00 : 0x3f803f80; /* two ones: sums are products with them */

/*  Adds the sums of 16 rows of a step of op(a) to sums, which is a C of mma.m16n8k16 of equal columns: the
    product of a slab with ones. */
__device__ inline void add_rows(float (&sums)[4], uint32_t slab, int warp)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < BK / 16; i++) {
        uint32_t words[4];
        if constexpr (A_BY_K) {
            const int row = 16 * warp + lane % 16, chunk = 2 * i + lane / 16;
            ignis_ptx_ldmatrix(words, slab + row * 128 + (chunk ^ row % 8) * 16);
        } else {
            const int k = 16 * i + lane % 8 + lane / 16 * 8, chunk = 2 * warp + lane / 8 % 2;
            ignis_ptx_ldmatrix_transposed(words, slab + k * 128 + (chunk ^ k % 8) * 16);
        }
        ignis_mma<Half>(sums, words, ONES, ONES);
    }
}

/*  The addresses of the accumulators of a tile's 16-byte chunk of columns: lane l of a warp gives stmatrix
    row l % 16 and chunk l / 16 of two. */
struct Chunks {
    uint32_t line;
    int row, upper;

    __device__ Chunks(uint32_t room, int warp, int lane) : row(lane % 16 % 8), upper(lane / 16)
    {
        line = room + (16 * warp + lane % 16) * 128;
    }
    /*  The pair of chunks from this one on, of slabs of 8 chunks. */
    __device__ uint32_t at(int chunk) const { return line + chunk / 8 * SLAB + ((chunk % 8 + upper) ^ row) * 16; }
};

/*  Returns the column of b that pairs with one of the first half of a tile of pairs. */
__device__ inline int second_half(const Product &p, int column) { return (int)(p.n / 2) + column; }

/*  The bias of this thread's columns, two in a word. */
template <int chunks> __device__ inline void load_bias(const Product &p, uint32_t (&bias)[chunks], int column)
{
#pragma unroll
    for (int c = 0; c < chunks; c++) {
        const int at = (IS_PAIRED && c >= 8 ? second_half(p, column - 64) : column) + 8 * c + threadIdx.x % 4 * 2;
        bias[c] = at < (int)p.n ? *(const uint32_t *)(p.bias + at) : 0;
    }
}

template <int chunks> __device__ inline void add_bias(float (&sum)[chunks][4], const uint32_t (&bias)[chunks])
{
#pragma unroll
    for (int c = 0; c < chunks; c++) {
        const auto two = ignis_pack_of<ignis_pack<Half, 2>>(bias[c]);
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[c][e] += ignis_wide_at(two, e % 2);
    }
}

/*  The activation of two numbers as they are kept. */
__device__ inline uint32_t activate(uint32_t before)
{
    const auto two = ignis_pack_of<ignis_pack<Half, 2>>(before);
    float x = ignis_wide_at(two, 0), y = ignis_wide_at(two, 1);
    if (IGNIS_ACTIVATION == IGNIS__ACTIVATION_RELU)
        x = relu(x), y = relu(y);
    else
        gelu_two(x, y);
    return ignis_round_two<Half>(x, y);
}

/*  Stores a warpgroup's part of a tile with a bias and an activation: rounded, 64 or 128 columns at a time
    pass through its staging memory to TMA, which skips what does not exist. The activation's input takes the
    same way before. */
template <int N>
__device__ inline void store_direct(const Product &p, const ignis__tensor_map *out, const ignis__tensor_map *pre,
                                    const Spot &place, int group, uint32_t room, float (&sum)[N / 8][4])
{
    constexpr int across = SLAB_STAGED || N < 128 ? 64 : 128;
    const bool first = threadIdx.x % 128 == 0;
    const int row = place.row, column = place.column, batch = place.batch;
    const Chunks chunks(room, threadIdx.x / 32 % 4, threadIdx.x % 32);
    const auto begin = [&] { /* TMA has read the staging memory */
                             if (first)
                                 ignis_ptx_bulk_wait_read<0>();
                             ignis_ptx_bar_sync(1 + group, 128);
    };
    const auto end = [&](const ignis__tensor_map *map, T *array, int at, int width) {
        ignis_ptx_fence_proxy_async();
        ignis_ptx_bar_sync(1 + group, 128);
        if (width < 64) { /* the columns beside it belong to the next tile */
            for (int i = threadIdx.x % 128; i < 8 * width; i += 128) {
                const int r = i / (width / 8), c = i % (width / 8);
                if (row + r < (int)p.m && at + 8 * c < (int)p.n)
                    *(uint4 *)(array + p.out_at(batch, row + r) + at + 8 * c) =
                        *(const uint4 *)__cvta_shared_to_generic(room + r * 128 + (c ^ r % 8) * 16);
            }
            return;
        }
        if (!first)
            return;
#pragma unroll
        for (int slab = 0; slab < across / 64; slab++)
            if (at + 64 * slab < (int)p.n)
                store_slab(p, map, room + slab * SLAB, at + 64 * slab, row, batch);
        ignis_ptx_bulk_commit();
    };
    if (row >= (int)p.m)
        return;
#pragma unroll
    for (int piece = 0; piece < (N + across - 1) / across; piece++) {
        const int at = column + across * piece, width = N - across * piece < across ? N - across * piece : across;
        if (piece && at >= (int)p.n)
            return;
        uint32_t words[across / 8][2];
        const auto put = [&] {
            begin();
#pragma unroll
            for (int c = 0; c < across / 8; c += 2)
                if (8 * c < width)
                    ignis_ptx_stmatrix(chunks.at(c), words[c][0], words[c][1], words[c + 1][0], words[c + 1][1]);
        };
#pragma unroll
        for (int c = 0; c < across / 8; c++)
#pragma unroll
            for (int i = 0; i < 2 && 8 * c < width; i++)
                words[c][i] =
                    ignis_round_two<Half>(sum[across / 8 * piece + c][2 * i], sum[across / 8 * piece + c][2 * i + 1]);
        if (IGNIS_ACTIVATION && !IS_PAIRED && p.pre) {
            put();
            end(pre, p.pre, at, width);
        }
        if (IGNIS_ACTIVATION && !IS_PAIRED)
#pragma unroll
            for (int c = 0; c < across / 8; c++)
#pragma unroll
                for (int i = 0; i < 2 && 8 * c < width; i++)
                    words[c][i] = activate(words[c][i]);
        put();
        end(out, p.out, at, width);
    }
}

/*  Stores silu of the first half of a warpgroup's part of a tile, times the second half. */
template <int N>
__device__ inline void store_paired(const Product &p, const ignis__tensor_map *out, const Spot &place, int group,
                                    uint32_t room, float (&sum)[N / 8][4])
{
    float x[N / 16][4];
#pragma unroll
    for (int c = 0; c < N / 16; c++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float gate[2] = {sum[c][i], sum[c][i + 1]};
            float s[2];
            sigmoid_two(s, gate);
            x[c][i] = gate[0] * s[0] * sum[N / 16 + c][i];
            x[c][i + 1] = gate[1] * s[1] * sum[N / 16 + c][i + 1];
        }
    store_direct<N / 2>(p, out, nullptr, place, group, room, x);
}

/*  Adds two numbers of the other matrix to two results, or multiplies the results by the derivative there. */
__device__ inline void combine(float *x, uint32_t other)
{
    const auto two = ignis_pack_of<ignis_pack<Half, 2>>(other);
    const float first = ignis_wide_at(two, 0), second = ignis_wide_at(two, 1);
    if (IGNIS_OTHER == ADDED)
        x[0] += first, x[1] += second;
    else if (IGNIS_ACTIVATION == IGNIS__ACTIVATION_RELU)
        x[0] = relu_gradient(x[0], first), x[1] = relu_gradient(x[1], second);
    else
        gelu_gradient_two(x[0], x[1], first, second);
}

/*  Returns how many strips of 64 columns a warpgroup has, whose part of a tile begins at a place. */
__device__ inline int strips_of(const Product &p, const Spot &place)
{
    return place.row < (int)p.m ? min(BN / 64, ((int)p.n - place.column + 63) / 64) : 0;
}

/*  Loads a strip of the other matrix, by one thread. `turn` counts the strips of all tiles: two alternate in
    the staging memory. */
__device__ inline void load_other(const ignis__tensor_map *other, const Spot &place, int strip, uint32_t room,
                                  uint32_t barriers, int turn)
{
    const uint32_t barrier = barriers + turn % 2 * 8;
    ignis_ptx_mbarrier_arrive_expect(barrier, SLAB);
    ignis_ptx_tensor_load<3>(room + turn % 2 * SLAB, other, barrier, place.column + 64 * strip, place.row, place.batch);
}

/*  One round of shuffles: a lane keeps one half of its columns, and gives the other half to the lane that
    keeps that. */
template <int half> __device__ inline void share_columns(float (&x)[16])
{
    const bool upper = threadIdx.x & 2 * half;
#pragma unroll
    for (int i = 0; i < half; i++) {
        const float low = x[i], high = x[half + i];
        x[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, upper ? low : high, 2 * half);
    }
}

/*  Sums the 16 rows of a warp of a strip: a lane gets the sums of two columns, its own ones of chunk lane /
    4. */
__device__ inline void sum_columns(float (&two)[2], const float (*sum)[4])
{
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = sum[i / 2][i % 2] + sum[i / 2][i % 2 + 2];
    share_columns<8>(x);
    share_columns<4>(x);
    share_columns<2>(x);
    two[0] = x[0], two[1] = x[1];
}

/*  Shared memory of a warpgroup for the results of a tile, whose strips alternate there. */
struct Staging {
    uint32_t room, barriers; /* of the strips of the other matrix */
    float *sums;             /* of columns */
};

/*  Stores a warpgroup's part of a tile with another matrix, whose strips of 64 columns come and go through
    the staging memory. The first two are on their way. */
template <int N>
__device__ inline void store_with_other(const Product &p, const ignis__tensor_map *out, const ignis__tensor_map *other,
                                        const Spot &place, int group, const Staging to, int &turn,
                                        float (&sum)[N / 8][4])
{
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, count = strips_of(p, place);
    const Chunks chunks(to.room, warp, lane);
    const auto sync = [&] { ignis_ptx_bar_sync(1 + group, 128); };
#pragma unroll
    for (int strip = 0; strip < N / 64; strip++, turn++) {
        if (strip >= count)
            return;
        const uint32_t slot = turn % 2 * SLAB;
        ignis_mbarrier_wait(to.barriers + turn % 2 * 8, turn / 2 % 2);
#pragma unroll
        for (int c = 0; c < 8; c += 2) {
            uint32_t words[4];
            ignis_ptx_ldmatrix(words, chunks.at(c) + slot);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *const x = &sum[8 * strip + c + i / 2][i % 2 * 2];
                combine(x, words[i]);
                words[i] = ignis_round_two<Half>(x[0], x[1]);
            }
            ignis_ptx_stmatrix(chunks.at(c) + slot, words[0], words[1], words[2], words[3]);
        }
        if (IGNIS_OTHER == GRADIENT && p.column_sums) {
            float two[2];
            sum_columns(two, &sum[8 * strip]);
            sync(); /* the sums of the strip before are read */
            *(float2 *)&to.sums[warp * 64 + lane / 4 * 8 + lane % 4 * 2] = make_float2(two[0], two[1]);
        }
        ignis_ptx_fence_proxy_async();
        sync();
        const int column = place.column + 64 * strip;
        if (IGNIS_OTHER == GRADIENT && p.column_sums && thread < 64 && column + thread < (int)p.n)
            p.column_sums[place.row / 64 * p.n + column + thread] =
                to.sums[thread] + to.sums[64 + thread] + to.sums[128 + thread] + to.sums[192 + thread];
        if (thread == 0) {
            ignis_ptx_tensor_store<3>(out, to.room + slot, column, place.row, place.batch);
            ignis_ptx_bulk_commit();
            if (strip + 2 < count) {
                ignis_ptx_bulk_wait_read<0>();
                load_other(other, place, strip + 2, to.room, to.barriers, turn + 2);
            }
        }
    }
}

/*  Stores sums over a part of k as they are: four lanes fill a sector. */
template <int N> __device__ inline void store_part(const Product &p, const Spot &tile, const float (&sum)[N / 8][4])
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4, pair = lane % 4 * 2;
    float *const to = partial_at(p, Place(tile)) + row * p.n + pair;
#pragma unroll
    for (int c = 0; c < N / 8; c++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int column = tile.column + 8 * c + pair;
            float *const at = to + 8 * i * p.n + 8 * c;
            if (tile.row + row + 8 * i >= (int)p.m || column >= (int)p.n)
                continue;
            if (p.n % 2 == 0) {
                *(float2 *)at = make_float2(sum[c][2 * i], sum[c][2 * i + 1]);
            } else {
                at[0] = sum[c][2 * i];
                if (column + 1 < (int)p.n)
                    at[1] = sum[c][2 * i + 1];
            }
        }
}

/*  Stores a warpgroup's part of a tile by the shared epilogue, 64 columns at a time, as floats in shared
    memory. */
template <int N>
__device__ inline void store(const Product &p, const Spot &tile, int group, float *results, float (&sum)[N / 8][4])
{
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto sync = [&] { ignis_ptx_bar_sync(1 + group, 128); };
    Place place(tile);
    if (p.partial) {
        store_part<N>(p, tile, sum);
        return;
    }
#pragma unroll 1
    for (int strip = 0; strip < N / 64 && place.row < p.m && place.column < p.n; strip++, place.column += 64) {
        sync(); /* nobody uses the room any more */
#pragma unroll
        for (int c = 0; c < N / 8; c += 2) { /* 16 columns */
            if (c / 8 != strip)
                continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float2 *)&results[(16 * warp + lane / 4 + i % 2 * 8) * STAGING_WIDTH + c % 8 * 8 + i / 2 * 8 +
                                    lane % 4 * 2] =
                    make_float2(sum[c + i / 2][i % 2 * 2], sum[c + i / 2][i % 2 * 2 + 1]);
        }
        sync();
        const auto result = [&](int r, int c) { return results[r * STAGING_WIDTH + c]; };
        Epilogue<128, 64> epilogue(p, place, thread);
        epilogue.strip(0, 64, result);
        epilogue.end(64, results, sync);
    }
}

/*  Returns the activation of a number of f32, if there is one. */
__device__ inline Wide activated(Wide x)
{
    return IGNIS_ACTIVATION == IGNIS__ACTIVATION_RELU   ? relu(x)
           : IGNIS_ACTIVATION == IGNIS__ACTIVATION_GELU ? gelu(x)
                                                        : x;
}

/*  Finishes a warpgroup's part of a tile of f32, and stores it from registers: four lanes fill a sector. */
template <int N> __device__ inline void store_words(const Product &p, const Spot &place, const float (*sum)[4])
{
    const int lane = threadIdx.x % 32, row = place.row + threadIdx.x / 32 % 4 * 16 + lane / 4,
              column = place.column + lane % 4 * 2;
    const long long first = p.out_at(place.batch, row) + column;
    const T *const other = IGNIS_OTHER == GRADIENT ? p.pre : p.residual ? p.residual : p.out;
#pragma unroll
    for (int c = 0; c < N / 8; c++) {
        if (column + 8 * c >= (int)p.n)
            return;
        ignis_pack<T, 2> bias, before;
        if (p.bias)
            bias = ignis_load<2>(p.bias + column + 8 * c);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const long long at = first + 8 * i * p.n + 8 * c;
            Wide x[2];
            if (row + 8 * i >= (int)p.m)
                continue;
            if (IGNIS_OTHER)
                before = ignis_load<2>(other + at);
#pragma unroll
            for (int e = 0; e < 2; e++)
                x[e] = sum[c][2 * i + e] + (p.bias ? Wide(bias[e]) : 0);
            if (IGNIS_ACTIVATION && !IGNIS_OTHER && p.pre)
                ignis_store(p.pre + at, ignis_pack_round<T, 2>(x));
#pragma unroll
            for (int e = 0; e < 2; e++)
                x[e] = IGNIS_OTHER == NO_OTHER                      ? activated(x[e])
                       : IGNIS_OTHER == ADDED                       ? x[e] + Wide(before[e])
                       : IGNIS_ACTIVATION == IGNIS__ACTIVATION_RELU ? relu_gradient(x[e], Wide(before[e]))
                                                                    : gelu_gradient(x[e], Wide(before[e]));
            ignis_store(p.out + at, ignis_pack_round<T, 2>(x));
        }
    }
}

/*  Multiplies a warpgroup's part of a tile by the scales of its rows and columns. */
template <int chunks> __device__ inline void scale(const Product &p, const Spot &place, float (&sum)[chunks][4])
{
    const int lane = threadIdx.x % 32, row = place.row + threadIdx.x / 32 % 4 * 16 + lane / 4,
              first = place.column + lane % 4 * 2;
    const float rows[2] = {p.scale_of_row(min(row, (int)p.m - 1)), p.scale_of_row(min(row + 8, (int)p.m - 1))};
#pragma unroll
    for (int c = 0; c < chunks; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float column = p.scale_of_column(min(first + 8 * c + e, (int)p.n - 1));
            sum[c][e] *= rows[0] * column, sum[c][2 + e] *= rows[1] * column;
        }
}

/*  32 bytes of k of each row; keep 0: the first ones. */
template <int keep, int chunks> __device__ inline void step(float (&sum)[chunks][4], uint64_t a, uint64_t b)
{
    if constexpr (OF_HALVES)
        ignis_ptx_wgmma<keep, !A_BY_K, !B_BY_K>(sum, a, b);
    else
        ignis_ptx_wgmma<keep>(sum, a, b);
}

/*  A step of BK of k; keep 0: the first one. */
template <int keep, int chunks> __device__ inline void multiply(float (&sum)[chunks][4], uint64_t a, uint64_t b)
{
    if (!AHEAD && !SCALED)
        ignis_wgmma_hold(sum);
    ignis_ptx_wgmma_fence();
    step<keep>(sum, a, b);
#pragma unroll
    for (int i = 1; i < 4; i++)
        step<1>(sum, ignis_wgmma_ahead(a, A_BY_K ? 32 * i : 2048 * i),
                ignis_wgmma_ahead(b, B_BY_K ? 32 * i : 2048 * i));
    ignis_ptx_wgmma_commit();
}

template <int N> struct Constant {
    static constexpr int value = N;
};

#if IGNIS_COLUMNS == 192 && IGNIS_ROWS < 192
#include "gemm_hopper_ahead.cuh"
#endif

/*  Waits for earlier work, but for a product beside this one: that has waited for all earlier work before it let this
    one begin. The next product beside this one begins where blocks leave room. */
__device__ inline void begin_beside(const Product &p)
{
#if IGNIS_PATCHES == 1
    if (p.patches.beside) {
        if (!(p.patches.beside & IGNIS__BESIDE_LAST))
            ignis_grid_dependency_wait();
        ignis_grid_dependents_launch();
        return;
    }
#endif
    ignis_grid_dependency();
}

/*  Waits for the product beside this one, so that work that waits for this one waits for both. */
__device__ inline void end_beside(const Product &p)
{
#if IGNIS_PATCHES == 1
    if (p.patches.beside & IGNIS__BESIDE_LAST)
        ignis_grid_dependency_wait();
#endif
}

#if IGNIS_PAIRS
#define IGNIS_CLUSTERED __cluster_dims__(2, 1, 1)
#else /* no cluster is not a cluster of one block, which needs a device with clusters */
#define IGNIS_CLUSTERED
#endif
extern "C" __global__ void IGNIS_CLUSTERED __launch_bounds__(128 + 128 * GROUPS, BLOCKS)
    ignis_gemm_hopper(const __grid_constant__ ignis__tensor_map a, const __grid_constant__ ignis__tensor_map b,
                      const __grid_constant__ ignis__tensor_map out, const __grid_constant__ ignis__tensor_map other,
                      const __grid_constant__ Product p)
{
    extern __shared__ __align__(1024) char memory[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
    const auto full = [&](int stage) { return base + BARRIERS + 16 * stage; };
    const auto empty = [&](int stage) { return base + BARRIERS + 16 * stage + 8; };
    const int group = __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0) - 1;
    constexpr int PAIR = IN_PAIRS ? 2 : 1, ROWS = SHARES_B ? 2 * BM : BM,
                  COLUMNS = SHARES_A ? 2 * BN : BN; /* the tiles of a pair are one */
    const int rank = blockIdx.x % PAIR;
    const unsigned tiles = (unsigned)((p.m + ROWS - 1) / ROWS * ((p.n + COLUMNS - 1) / COLUMNS) * p.batch * p.splits);
    unsigned next_tile = blockIdx.x / PAIR;
    /* moves to the block's next tile, which may have no elements for the second block of a pair; false: there
       are no more tiles */
    const auto walk = [&](Spot &place) {
        const bool is_there = next_tile < tiles;
        place = Spot(p, next_tile, ROWS, COLUMNS);
        if (SHARES_A)
            place.column += rank * BN;
        if (SHARES_B)
            place.row += rank * BM;
        if (IS_PAIRED)
            place.column /= 2;
        next_tile += gridDim.x / PAIR;
        return is_there;
    };
    const auto meet = [&] { /* all threads of a pair; else of the block */
                            if (IN_PAIRS) {
                                __syncwarp();
                                ignis_ptx_cluster_arrive_relaxed();
                                ignis_ptx_cluster_wait();
                            } else {
                                __syncthreads();
                            }
    };

    if (threadIdx.x == 0) { /* while the kernel ahead runs */
        ignis_ptx_prefetch_tensormap(&a);
        ignis_ptx_prefetch_tensormap(&b);
        for (int i = 0; i < STAGES; i++) {
            ignis_ptx_mbarrier_init(full(i), 1);
            ignis_ptx_mbarrier_init(empty(i), 4 * GROUPS * PAIR); /* warps */
        }
        for (int i = 0; OTHER_COMES && i < (AHEAD ? 6 : 4); i++)
            ignis_ptx_mbarrier_init(base + OTHER_BARRIERS + 8 * i, 1);
        ignis_ptx_fence_mbarrier_init();
    }
    begin_beside(p);
    meet();

    int stage = 0;
    const auto next = [&](int &parity) {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };
    if (group < 0) {
        ignis_ptx_setmaxnreg_dec<AHEAD ? 24 : 40>();
        int parity = 1; /* the first round finds all stages empty */
        for (Spot place; threadIdx.x == 0 && walk(place);) {
            const int row = place.row, column = place.column, end_k = place.end_k;
            const int box_a = SKIPS ? p.box_a : A_BY_K ? BM : 64, box_b = SKIPS ? p.box_b : B_BY_K ? BN : 64;
            const int of_a = SKIPS ? boxes_of(BM, row, p.m, box_a) : BM / box_a;
            const int of_b = SKIPS && !IS_PAIRED ? boxes_of(BN, column, p.n, box_b) : B_ROWS / box_b;
            const int bytes = SKIPS ? (of_a * box_a + of_b * box_b) * 128 : STAGE_BYTES;
#if IGNIS_PATCHES == 1
            const Pixel pixel = grid_pixel(p.patches, row);
            Tap tap = patch_tap(p.patches, place.first_k);
#elif IGNIS_PATCHES == 2
            Tap taps[BN / 64];
#pragma unroll
            for (int i = 0; i < BN / 64; i++)
                taps[i] = patch_tap(p.patches,
                                    min(column + 64 * i, (int)p.n - 64)); /* columns after the last are not stored */
#endif
#pragma unroll 1
            for (int k = place.first_k; k < end_k; k += BK) {
                const uint32_t to = base + stage * STAGE_BYTES;
                ignis_mbarrier_wait(empty(stage), parity);
                ignis_ptx_mbarrier_arrive_expect(full(stage), bytes);
#if IGNIS_PATCHES == 1
                load_pixels(p.patches, to, &a, full(stage), pixel, tap);
                load<BN / 64, B_BY_K, false>(to + A_BYTES, &b, full(stage), of_b, box_b, column, tap.channel,
                                             weight_tap(p.patches, tap));
                if ((tap.channel += BK) == (int)p.patches.channels.size) {
                    tap.channel = 0;
                    if (++tap.column == (int)p.patches.across.size)
                        tap.column = 0, tap.row++;
                    if (IGNIS_VOLUMES && tap.row == (int)p.patches.down.size)
                        tap.row = 0, tap.plane++;
                }
#elif IGNIS_PATCHES == 2
                const Pixel pixel = grid_pixel(p.patches, k);
                load<BM / 64, A_BY_K, false>(to, &a, full(stage), of_a, box_a, row, k, p.batch_a ? place.batch : 0);
#pragma unroll
                for (int i = 0; i < BN / 64; i++)
                    load_pixels(p.patches, to + A_BYTES + i * SLAB, &b, full(stage), pixel, taps[i]);
#else
                const int batch_a = p.batch_a ? place.batch : 0, batch_b = p.batch_b ? place.batch : 0,
                          half = SHARES_B ? rank * (box_b / 2) : 0;
                if (SHARES_A) /* one of two boxes */
                    load<1, A_BY_K, true>(to + rank * box_a * 128, &a, full(stage), of_a - rank, box_a,
                                          row + rank * box_a, k, batch_a);
                else
                    load<BM / 64, A_BY_K, false>(to, &a, full(stage), of_a, box_a, row, k, batch_a);
                if (IS_PAIRED) {
                    load<1, true, SHARES_B>(to + A_BYTES + half * 128, &b, full(stage), 1, box_b, column + half, k, 0);
                    load<1, true, SHARES_B>(to + A_BYTES + SLAB + half * 128, &b, full(stage), 1, box_b,
                                            second_half(p, column) + half, k, 0);
                } else { /* of a pair half of each box */
                    load<(BN + 63) / 64, B_BY_K, SHARES_B>(to + A_BYTES + half * 128, &b, full(stage), of_b, box_b,
                                                           B_BY_K ? column + half : column, B_BY_K ? k : k + half,
                                                           batch_b);
                }
#endif
                next(parity);
            }
        }
        if (IN_PAIRS)
            meet(); /* nobody sends anything to a block that has ended */
        end_beside(p);
        return;
    }

    ignis_ptx_setmaxnreg_inc<AHEAD ? 240 : LARGE ? 152 : BLOCKS == 2 ? 96 : 232>();
    int parity = 0;
    const uint32_t room = base + STAGING + group * STAGING_BYTES;
    const uint32_t own_a = base + (SIDE_BY_SIDE ? 0 : group * SLAB),
                   own_b = base + A_BYTES + (SIDE_BY_SIDE ? group * SLAB : 0);
    const uint64_t first_a = ignis_wgmma_descriptor(own_a, 0, 1024);
    const uint64_t first_b = ignis_wgmma_descriptor(own_b, B_BY_K ? 0 : SLAB, 1024);
    const auto at = [&](uint64_t first) { return ignis_wgmma_ahead(first, stage * STAGE_BYTES); };
    const auto release = [&](int stage) {
        if (!IN_PAIRS && threadIdx.x % 32 == 0)
            ignis_ptx_mbarrier_arrive(empty(stage));
        if (IN_PAIRS && threadIdx.x % 32 < 2) /* each block loads half of a shared operand */
            ignis_ptx_mbarrier_arrive_cluster(ignis_ptx_mapa(empty(stage), threadIdx.x % 32));
    };

#if IGNIS_COLUMNS == 192 && IGNIS_ROWS < 192
    Finish finish = {p,
                     &out,
                     &other,
                     room,
                     base + OTHER_BARRIERS + 24 * group,
                     group,
                     0,
                     0,
                     Chunks(room, threadIdx.x / 32 % 4, threadIdx.x % 32)};
    int held = 0; /* the stage that is multiplied */
    /* begins a k step, and returns its stage */
    const auto issue = [&](auto keep, float(&sum)[BN / 8][4]) {
        const int now = stage;
        ignis_mbarrier_wait(full(stage), parity);
        multiply<decltype(keep)::value>(sum, at(first_a), at(first_b));
        next(parity);
        return now;
    };
    /* with a k step on its way, waits for the one before, and releases its stage */
    const auto end_before = [&](int now) {
        ignis_ptx_wgmma_wait<1>();
        release(held);
        held = now;
    };
    const auto steps_of = [&](const Spot &place) { return (place.end_k - place.first_k + BK - 1) / BK; };
    const auto next_place = [&](Spot &place) {
        const bool is_there = walk(place);
        place.row += 64 * group;
        return is_there;
    };
    /* sums a tile, while the sums of the tile before are finished; they are complete when the first k step is
       on its way */
    const auto multiply_tile = [&](float(&sum)[BN / 8][4], const Spot &place, float(&before)[BN / 8][4],
                                   const Spot &place_before) __attribute__((always_inline))
    {
        const int steps = steps_of(place);
        uint32_t next_bias[2]; /* for the next part, which does not wait for it then */
        finish.load_bias(next_bias, place_before, 0, 0);
        const auto piece = [&](auto number) __attribute__((always_inline))
        {
            constexpr int i = decltype(number)::value;
            const uint32_t bias[2] = {next_bias[0], next_bias[1]};
            const int now = issue(Constant<(i > 0)>(), sum);
            end_before(now); /* first, as the stage that it releases is loaded while the part is finished */
            if (i == 0)
                ignis_wgmma_hold(before);
            if (i < STRIPS * PIECES - 1)
                finish.load_bias(next_bias, place_before, (i + 1) / PIECES, (i + 1) % PIECES);
            finish.run<i % PIECES>(&before[i / PIECES * (STRIP / 8)], bias, place_before, i / PIECES, place, true);
        };
        piece(Constant<0>()), piece(Constant<1>()), piece(Constant<2>()), piece(Constant<3>()), piece(Constant<4>()),
            piece(Constant<5>());
        piece(Constant<6>()), piece(Constant<7>()), piece(Constant<8>()), piece(Constant<9>()), piece(Constant<10>()),
            piece(Constant<11>());
#pragma unroll 1
        for (int i = STRIPS * PIECES; i < steps; i++)
            end_before(issue(Constant<1>(), sum));
    };
    Spot place, place_before;
    next_place(place);
    const auto finish_last = [&](float(&sum)[BN / 8][4]) {
        ignis_ptx_wgmma_wait<0>();
        ignis_wgmma_hold(sum);
#pragma unroll 1
        for (int strip = 0; strip < STRIPS; strip++) {
            const auto piece = [&](auto number) {
                constexpr int i = decltype(number)::value;
                uint32_t bias[2];
                finish.load_bias(bias, place_before, strip, i);
                finish.run<i>(sum, bias, place_before, strip, place, false);
            };
            piece(Constant<0>()), piece(Constant<1>());
            if constexpr (PIECES > 2)
                piece(Constant<2>()), piece(Constant<3>());
            shift(sum);
        }
    };
    float even[BN / 8][4], odd[BN / 8][4];
    finish.begin(place);
    held = issue(Constant<0>(), even);
#pragma unroll 1
    for (int i = 1; i < steps_of(place); i++)
        end_before(issue(Constant<1>(), even));
    for (;;) {
        place_before = place;
        if (!next_place(place)) {
            finish_last(even);
            break;
        }
        multiply_tile(odd, place, even, place_before);
        place_before = place;
        if (!next_place(place)) {
            finish_last(odd);
            break;
        }
        multiply_tile(even, place, odd, place_before);
    }
#else
    float *const results = (float *)(memory + STAGING + group * STAGING_BYTES);
    const uint32_t other_barriers = base + OTHER_BARRIERS + group * 16;
    int turn = 0;
    Spot next_place;
    bool has_next = walk(next_place);
    /*  Computes the first `width` columns of a tile, and finds the next place. */
    const auto multiply_tile = [&](auto width, const Spot &place) {
        constexpr int N = width.value;
        const int steps = (place.end_k - place.first_k + BK - 1) / BK;
        const bool lags =
            LAG && steps >= STAGES; /* with fewer, the first warpgroup may be a tile ahead, and arrive twice */
        const bool sums_rows = OF_HALVES && !LARGE && !IGNIS_ACTIVATION && p.row_sums && !(SIDE_BY_SIDE && group) &&
                               !(SHARES_A && place.column >= (int)p.n);
        const int across = ((int)p.n + BN - 1) / BN,
                  share = place.column / BN; /* the tiles of a row share the k steps whose rows are summed */
        int until = share;
        Spot own = place;
        SIDE_BY_SIDE ? own.column += 64 *group : own.row += 64 * group;
        float sum[N / 8][4], row_sums[4] = {0, 0, 0, 0};
        const auto begin = [&](int step) {
            if (lags && group == 0 && step == LAG)
                ignis_ptx_bar_arrive(3, 256);
            ignis_mbarrier_wait(full(stage), parity);
        };
        const auto end = [&] { /* releases the stage */
                               const int done = stage;
                               if (sums_rows && until-- == 0) {
                                   until = across - 1;
                                   add_rows(row_sums, own_a + stage * STAGE_BYTES, threadIdx.x / 32 % 4);
                               }
                               next(parity);
                               return done;
        };
        if (lags && group == 1)
            ignis_ptx_bar_sync(3, 256);
        int last, step = 1;
        /* with a k step on its way, waits for the one before, and releases its stage */
        const auto end_before = [&] {
            const int now = end();
            ignis_ptx_wgmma_wait<1>();
            release(last);
            last = now;
        };
        const auto go_on = [&](float(&some)[N / 8][4], int until) __attribute__((always_inline))
        {
#pragma unroll 1
            for (; step < until; step++) {
                begin(step);
                multiply<1>(some, at(first_a), at(first_b));
                end_before();
            }
        };
        begin(0);
        multiply<0>(sum, at(first_a), at(first_b));
        last = end();
        if constexpr (!SCALED) {
            go_on(sum, steps);
        } else {
            float other[N / 8][4], total[N / 8][4] = {};
            const auto add = [&](float(&some)[N / 8][4]) __attribute__((always_inline))
            {
                ignis_wgmma_hold(some);
#pragma unroll
                for (int i = 0; i < N / 2; i++)
                    total[i / 4][i % 4] += some[i / 4][i % 4];
            };
            /* Begins sums, which continue for some k steps; the sums before are complete when the first of
               these is on its way. */
            const auto go_over = [&](float(&next)[N / 8][4], float(&before)[N / 8][4]) __attribute__((always_inline))
            {
                begin(step++);
                multiply<0>(next, at(first_a), at(first_b));
                end_before();
                add(before);
                go_on(next, min(steps, step + IGNIS_GEMM_SUM_STEPS - 1));
            };
            /* returns whether these sums were the last ones; each way out waits for all of them, or the
               compiler does not see that they are complete */
            const auto ends = [&](float(&some)[N / 8][4]) __attribute__((always_inline))
            {
                if (step < steps)
                    return false;
                ignis_ptx_wgmma_wait<0>();
                add(some);
                return true;
            };
            go_on(sum, min(steps, IGNIS_GEMM_SUM_STEPS));
#pragma unroll 1
            for (;;) {
                if (ends(sum))
                    break;
                go_over(other, sum);
                if (ends(other))
                    break;
                go_over(sum, other);
            }
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sum[i / 4][i % 4] = total[i / 4][i % 4];
        }

        /* work that the products do not need is done while they run */
        has_next = walk(next_place);
        uint32_t bias[N / 8];
        if constexpr (BIASED)
            if (p.bias)
                load_bias(p, bias, own.column);
        if (OTHER_COMES && threadIdx.x % 128 == 0) {
            ignis_ptx_bulk_wait_read<0>();
            for (int strip = 0; strip < min(2, strips_of(p, own)); strip++)
                load_other(&other, own, strip, room, other_barriers, turn + strip);
        }
        if (!SCALED) {
            ignis_ptx_wgmma_wait<0>();
            ignis_wgmma_hold(sum);
        }
        release(last);
        if constexpr (SCALED)
            scale(p, own, sum);
        if (sums_rows && threadIdx.x % 4 == 0) {
            const long long row = own.row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
            Wide *const to = p.row_sums + (long long)(place.split * across + share) * p.m + row;
            if (row < p.m)
                to[0] = row_sums[0];
            if (row + 8 < p.m)
                to[8] = row_sums[2];
        }
        if constexpr (BIASED)
            if (p.bias)
                add_bias(sum, bias);
        if constexpr (DIRECT && !HALVES)
            store_words<N>(p, own, sum);
        else if constexpr (IGNIS_OTHER != NO_OTHER)
            store_with_other<N>(p, &out, &other, own, group, {room, other_barriers, results + 2 * SLAB / 4}, turn, sum);
        else if constexpr (IS_PAIRED && N == BN)
            store_paired<N>(p, &out, own, group, room, sum);
        else if constexpr (DIRECT)
            store_direct<N>(p, &out, &other, own, group, room, sum);
        else
            store<N>(p, own, group, results, sum);
    };
    while (has_next) {
        constexpr int some = NARROW || BN == 64 ? 64 : LARGE ? (BN - 1) / 64 * 64 : BN / 2; /* columns */
        const Spot place = next_place;
        if (NARROW || ((IS_PAIRED || place.column + some < (int)p.n) && place.row + 64 * group < (int)p.m))
            multiply_tile(Constant < SIDE_BY_SIDE ? 64 : BN > (), place);
        else /* some of a tile at the right edge, or nothing at the lower one */
            multiply_tile(Constant<some>(), place);
    }
#endif
    if (DIRECT && threadIdx.x % 128 == 0)
        ignis_ptx_bulk_wait<0>();
    end_beside(p);
    if (IN_PAIRS)
        meet();
}
