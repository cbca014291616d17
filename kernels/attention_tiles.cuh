// SPDX-License-Identifier: MIT
/*  attention_tiles.cuh - what attention kernels for tensor cores share: tiles in shared memory, their
    products, the online softmax

    For programs that are compiled with -DIGNIS_T=<IGNIS_F16 or IGNIS_BF16> -DIGNIS_HEAD_DIM=<32, 64, 96, 128,
    192 or 256>, and the variants of attention.cuh. A warp has 16 rows, or several times 16; products are laid
    out so that their results are the operands of the next product, in the registers of the same warp. */
#ifndef IGNIS_ATTENTION_TILES_CUH
#define IGNIS_ATTENTION_TILES_CUH

#ifndef IGNIS_HEAD_DIM
#define IGNIS_HEAD_DIM 64
#endif

constexpr int D = IGNIS_HEAD_DIM;
constexpr float LOG2_E = 1.44269504088896340736f;

/* >>tiles ------------------------------------------------------------------------------------------------------- */

/*  A tile is rows of D elements in shared memory, in chunks of 16 bytes. Chunk c of row r is at c ^ f(r) of
    its row, so that the 8 rows of a matrix of ldmatrix, all at one chunk, are in different banks. */
constexpr int CHUNKS = D / 8;
constexpr int ROW_BYTES = D * 2;
constexpr int SWIZZLED = CHUNKS % 8 == 0 ? 8 : 4; /* chunks that are swizzled with one another */
static_assert(D % 32 == 0 && D <= 256, "sizes of heads are multiples of 32");

__device__ inline uint32_t chunk_at(uint32_t tile, int row, int chunk)
{
    const int swizzle = SWIZZLED == 8 ? row % 8 : row / 2 % 4;
    return tile + row * ROW_BYTES + (chunk ^ swizzle) * 16;
}

/*  The address that a lane gives to ldmatrix for the 16 x 16 elements at the start of a tile: either in the
    order of an A (and, transposed, of two B with their k along the rows), or in the order of two B with their
    k along the columns. */
__device__ inline uint32_t lane_of_a(uint32_t tile)
{
    const int lane = threadIdx.x % 32;
    return chunk_at(tile, lane % 16, lane / 16);
}

__device__ inline uint32_t lane_of_b(uint32_t tile)
{
    const int lane = threadIdx.x % 32;
    return chunk_at(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/*  As lane_of_a, for the elements that start at a row and a column, multiples of 16. Tiles are aligned to 128
    bytes. */
__device__ inline uint32_t moved(uint32_t lane_address, int row, int column)
{
    const int chunk = column / 8;
    return (lane_address ^ (chunk % SWIZZLED * 16)) + chunk / SWIZZLED * SWIZZLED * 16 + row * ROW_BYTES;
}

/*  Starts to copy a tile: rows first ... of a head, of which those before `count` exist, and, with from_least, from
    `least` on; the others are zero. Called by `threads` threads, of which this one is the thread-th. */
template <int rows, int threads, bool from_least = false>
__device__ inline void copy_tile(uint32_t tile, const T *head, long long stride, int first, int count, int head_dim,
                                 unsigned thread, int least = 0)
{
    constexpr int copies = rows * CHUNKS;
    if constexpr (threads % CHUNKS == 0) {
        constexpr int step = threads / CHUNKS; /* rows that all threads do at a time */
        static_assert(rows % step == 0, "threads have equally many rows");
        const int row = thread / CHUNKS, chunk = thread % CHUNKS;
        const int exist = chunk * 8 < head_dim ? count - first - row : 0;
        const T *from = head + (first + row) * stride + chunk * 8;
#pragma unroll
        for (int i = 0; i < rows; i += step) {
            const bool exists = i < exist && (!from_least || first + row + i >= least);
            ignis_ptx_cp_async(chunk_at(tile, row + i, chunk), exists ? from : head, exists ? 16 : 0);
            from += step * stride;
        }
    } else {
#pragma unroll
        for (int i = 0; i < (copies + threads - 1) / threads; i++) {
            const int index = i * threads + thread, row = index / CHUNKS, chunk = index % CHUNKS;
            const bool exists = (!from_least || first + row >= least) && first + row < count && chunk * 8 < head_dim;
            if (copies % threads == 0 || index < copies)
                ignis_ptx_cp_async(chunk_at(tile, row, chunk),
                                   exists ? head + (first + row) * stride + chunk * 8 : head, exists ? 16 : 0);
        }
    }
}

/*  C += A B^T over all columns, for A rows of a tile, from one on, and B rows of another. Rows are constants,
    so that they become part of the instructions. */
template <int tiles, int count>
__device__ inline void product_of_rows(float (&c)[tiles][count / 8][4], uint32_t a_lane, int a_row, uint32_t b_lane,
                                       int b_row)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t a[tiles][4];
#pragma unroll
        for (int m = 0; m < tiles; m++)
            ignis_ptx_ldmatrix(a[m], moved(a_lane, a_row + 16 * m, k));
#pragma unroll
        for (int n = 0; n < count; n += 16) {
            uint32_t b[4];
            ignis_ptx_ldmatrix(b, moved(b_lane, b_row + n, k));
#pragma unroll
            for (int m = 0; m < tiles; m++) {
                ignis_mma<T>(c[m][n / 8], a[m], b[0], b[1]);
                ignis_mma<T>(c[m][n / 8 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/*  C += A B for A results of a product, rounded, and B rows of a tile, from one on. */
template <int tiles, int count, int columns>
__device__ inline void product_of_results(float (&c)[tiles][columns / 8][4], const float (&a)[tiles][count / 8][4],
                                          uint32_t b_lane, int b_row)
{
#pragma unroll
    for (int k = 0; k < count; k += 16) {
        uint32_t pairs[tiles][4];
#pragma unroll
        for (int m = 0; m < tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                pairs[m][i] = ignis_round_two<T>(a[m][k / 8 + i / 2][i % 2 * 2], a[m][k / 8 + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < columns; n += 16) {
            uint32_t b[4];
            ignis_ptx_ldmatrix_transposed(b, moved(b_lane, b_row + k, n));
#pragma unroll
            for (int m = 0; m < tiles; m++) {
                ignis_mma<T>(c[m][n / 8], pairs[m], b[0], b[1]);
                ignis_mma<T>(c[m][n / 8 + 1], pairs[m], b[2], b[3]);
            }
        }
    }
}

template <int tiles, int columns> __device__ inline void clear(float (&c)[tiles][columns][4])
{
#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
        for (int n = 0; n < columns; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

__device__ inline char *shared_memory()
{
    extern __shared__ __align__(128) char bytes[];
    return bytes;
}

__device__ inline uint32_t shared_address() { return (uint32_t)__cvta_generic_to_shared(shared_memory()); }

/* >>softmax ----------------------------------------------------------------------------------------------------- */

/*  The softmax state of a warp's rows: out is the sum of 2^(x - top) v and sum the sum of 2^(x - top) over
    the keys so far. x is a score in its unit, and top a bound that x exceeds by 8 at most. A true maximum
    would have to be found across lanes for each tile, and out scaled whenever it grows. With a bound both are
    rare, and 2^8 more costs no precision. sum is a lane's own part. */
template <int tiles> struct softmax {
    float out[tiles][D / 8][4];
    float top[tiles][2], sum[tiles][2];

    __device__ softmax()
    {
        clear(out);
#pragma unroll
        for (int m = 0; m < tiles; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top[m][half] = -ignis_infinity<float>();
                sum[m][half] = 0;
            }
    }
};

constexpr float SLACK = 8;

/*  Processes the next keys, whose tile of v follows that of k. The rows of q are in q, if kept, else at
    q_lane. For the row r after a lane's first one, view has the keys of the tile that it sees, view.first(r)
    to view.limit(r), which counts if masked, and its scores, view.score(product, r, key), if they are more
    than a scale. */
template <bool masked, bool kept, int tiles, int keys, typename View>
__device__ inline void softmax_step(softmax<tiles> &state, const uint32_t (&q)[D / 16][tiles][4], uint32_t q_lane,
                                    uint32_t kv_tile, float scale, const View &view)
{
    const int lane = threadIdx.x % 32;
    const uint32_t k_lane = lane_of_b(kv_tile), v_lane = lane_of_a(kv_tile);
    float s[tiles][keys / 8][4];
    clear(s);
    if constexpr (kept) {
#pragma unroll
        for (int k = 0; k < D; k += 16)
#pragma unroll
            for (int n = 0; n < keys; n += 16) {
                uint32_t b[4];
                ignis_ptx_ldmatrix(b, moved(k_lane, n, k));
#pragma unroll
                for (int m = 0; m < tiles; m++) {
                    ignis_mma<T>(s[m][n / 8], q[k / 16][m], b[0], b[1]);
                    ignis_mma<T>(s[m][n / 8 + 1], q[k / 16][m], b[2], b[3]);
                }
            }
    } else {
        product_of_rows<tiles, keys>(s, q_lane, 0, k_lane, 0);
    }

    if constexpr (kept && BIASED && D > 128 && __CUDA_ARCH__ == 800)
        __syncwarp(); /* keeps the compiler from loading the bias before the product, as there are too few registers */
    float most[tiles][2];
    bool raise = false;
#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int seen = masked ? view.limit(16 * m + 8 * half) : 0,
                      start = masked && RANGE ? view.first(16 * m + 8 * half) : 0;
            float x = -ignis_infinity<float>();
#pragma unroll
            for (int n = 0; n < keys / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    const int column = n * 8 + lane % 4 * 2 + i % 2;
                    if constexpr (SCORED)
                        s[m][n][i] = view.score(s[m][n][i], 16 * m + 8 * half, column);
                    if (masked && (column >= seen || (RANGE && column < start)))
                        s[m][n][i] = -ignis_infinity<float>();
                    x = fmaxf(x, s[m][n][i]);
                }
            most[m][half] = SCORED ? x : x * scale;
            raise |= most[m][half] > state.top[m][half] + SLACK;
        }

    if (__any_sync(0xffffffff, raise)) {
#pragma unroll
        for (int m = 0; m < tiles; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float top = most[m][half];
                top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
                /* a row has the same bits whatever rows are beside it */
                top = top > state.top[m][half] + SLACK ? top : state.top[m][half];
                const float factor =
                    top > state.top[m][half] ? ignis_ptx_ex2_ftz(exponent(state.top[m][half], top)) : 1;
                state.top[m][half] = top;
                state.sum[m][half] *= factor;
#pragma unroll
                for (int n = 0; n < D / 8; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++)
                        state.out[m][n][i] *= factor;
            }
    }

#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool nothing = (masked || BIASED) && state.top[m][half] == -ignis_infinity<float>(); /* seen so far */
            const float top = nothing ? 0 : state.top[m][half];
#pragma unroll
            for (int n = 0; n < keys / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = ignis_ptx_ex2_ftz(SCORED ? exponent(s[m][n][i], top) : fmaf(s[m][n][i], scale, -top));
                    state.sum[m][half] += s[m][n][i];
                }
        }
    product_of_results<tiles, keys, D>(state.out, s, v_lane, keys);
}

#endif /* IGNIS_ATTENTION_TILES_CUH */
