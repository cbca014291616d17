/*  norm_odd.cu - layer_norm and rms_norm over rows that do not begin at multiples of 16 bytes, or that no team has in registers: see norm.cuh

    Rows that follow each other are one span of memory. A block brings a tile of them into shared memory, in whole packs wherever they begin;
    there a thread has the same columns of every row. One program per element type: compiled with -DIGNIS_T=<1 to 4>. x, y, dx and dy
    begin at multiples of 16 bytes.

        forward             a block a tile. _warp: a warp has a row, of up to 32 * VALUES elements; _block: the block has one, of up to
                            VALUES elements a thread. Dynamic shared memory for a tile
        backward            few blocks, of at most 384 (_block) or 512 threads: each walks over many tiles, brings in one while it works on the one before, and
                            leaves one row of partial sums of dw, and of db. _packed: packed rows, of up to IGNIS_ROW_PACKS packs a thread.
                            Dynamic shared memory for two tiles of x and two of dy, slot packs each
*/
#include "norm.cuh"
#if __CUDA_ARCH__ >= 800
#include "mma.cuh"
#endif

#define VALUES (sizeof(T) == 8 ? 8 : 16) /* of a row that a thread has; the host computes with it, too */
#define RESIDENT (sizeof(T) == 8 ? 512 : 1024) /* threads on a multiprocessor at least, in forward */

/* >>tiles ------------------------------------------------------------------------------------------------------- */

__device__ inline uint4 *tile_memory()
{
    extern __shared__ uint4 memory[];
    return memory;
}

/*  Starts to bring elements begin to end of an array of so many elements into shared memory: all packs that have one of them. */
__device__ inline void fetch(uint4 *to, const T *array, long long begin, long long end, long long elements)
{
    const long long first = begin / PACK * PACK;
    for (long long at = first + threadIdx.x * PACK; at < end; at += blockDim.x * PACK) {
        uint4 *const place = to + (at - first) / PACK;
#if __CUDA_ARCH__ >= 800
        ignis_ptx_cp_async((uint32_t)__cvta_generic_to_shared(place), array + at, (int)min(16LL, (elements - at) * (long long)sizeof(T)));
#else
        if (at + PACK <= elements)
            *place = *(const uint4 *)(array + at);
        else
            for (int i = 0; at + i < elements; i++)
                ((T *)place)[i] = array[at + i];
#endif
    }
}

/*  What was started before this call is a group; all but the youngest so many groups are there for the whole block afterwards. */
__device__ inline void fetched()
{
#if __CUDA_ARCH__ >= 800
    ignis_ptx_cp_async_commit();
#endif
}
template <int pending> __device__ inline void arrive()
{
#if __CUDA_ARCH__ >= 800
    ignis_ptx_cp_async_wait<pending>();
#endif
    __syncthreads();
}

/*  Writes elements begin to end of an array, from packs as fetch has laid them out. */
__device__ inline void put(T *array, const uint4 *from, long long begin, long long end)
{
    const long long first = begin / PACK * PACK;
    for (long long at = first + threadIdx.x * PACK; at < end; at += blockDim.x * PACK) {
        const uint4 *const place = from + (at - first) / PACK;
        if (at >= begin && at + PACK <= end)
            *(uint4 *)(array + at) = *place;
        else
            for (int i = 0; i < PACK; i++)
                if (at + i >= begin && at + i < end)
                    array[at + i] = ((const T *)place)[i];
    }
}

/*  The teams of a block, and which one this thread is in. */
template <typename Team> __device__ inline int teams() { return Team::is_block ? 1 : blockDim.x / 32; }
template <typename Team> __device__ inline int team() { return Team::is_block ? 0 : threadIdx.x / 32; }

/*  f(p, column) for this thread's packs of N columns of a row. */
template <typename Team, int N, int packs, typename F> __device__ inline void each_column(long long n, F f)
{
#pragma unroll
    for (int p = 0; p < packs; p++) {
        const int column = (p * Team::size() + Team::thread()) * N;
        if (column < n)
            f(p, column);
    }
}

/* >>forward ----------------------------------------------------------------------------------------------------- */

template <bool rms, typename Team>
__device__ void forward_of_tile(T *y, Wide *means, Wide *rstds, const T *x, const T *w, const T *b, long long rows, long long n, Wide eps, int tile)
{
    uint4 *const tile_x = tile_memory();
    const long long first = (long long)blockIdx.x * tile, last = min(rows, first + tile), begin = first * n;
    fetch(tile_x, x, begin, last * n, rows * n);
    fetched();
    arrive<0>();
    for (long long r = first + team<Team>(); r < last; r += teams<Team>()) {
        T *const row = (T *)tile_x + begin % PACK + (r - first) * n;
        Wide xs[VALUES], sum = 0, mean = 0, square = 0;
        each_column<Team, 1, VALUES>(n, [&](int p, int column) {
            xs[p] = row[column];
            sum += rms ? xs[p] * xs[p] : xs[p];
        });
        sum = Team::template reduce<ignis_sum>(sum);
        if constexpr (rms) {
            square = sum / Wide(n);
        } else {
            mean = sum / Wide(n);
            each_column<Team, 1, VALUES>(n, [&](int p, int) { square += (xs[p] - mean) * (xs[p] - mean); });
            square = Team::template reduce<ignis_sum>(square) / Wide(n);
        }
        const Wide rstd = Wide(1) / sqrt(square + eps);
        if (Team::thread() == 0) {
            rstds[r] = rstd;
            if (!rms)
                means[r] = mean;
        }
        each_column<Team, 1, VALUES>(
            n, [&](int p, int column) { row[column] = T((xs[p] - mean) * rstd * Wide(w[column]) + (rms ? Wide(0) : Wide(b[column]))); });
    }
    __syncthreads();
    put(y, tile_x, begin, last * n);
}

#define FORWARD(name, rms, team, Team, threads)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(threads, RESIDENT / threads) ignis_##name##_odd_##team(T *y, Wide *mean, Wide *rstd, const T *x, const T *w, \
                                                                                  const T *b, long long rows, long long n, double eps,                        \
                                                                                  int tile)                                                                   \
    {                                                                                                                                                         \
        forward_of_tile<rms, Team>(y, mean, rstd, x, w, b, rows, n, (Wide)eps, tile);                                                                         \
    }
FORWARD(layer_norm, false, warp, ignis_warp_team, 128)
FORWARD(layer_norm, false, block, ignis_block_team, 512)
FORWARD(rms_norm, true, warp, ignis_warp_team, 128) /* mean and b are not used */
FORWARD(rms_norm, true, block, ignis_block_team, 512)

/* >>backward ---------------------------------------------------------------------------------------------------- */

/*  A thread adds up dw and db of its columns over all rows of its team; the warps of a block meet in the shared block_w and block_b. dx takes
    the place of x in the tile. */
template <bool rms, typename Team, int N, int packs>
__device__ void backward_of_tiles(T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *means,
                                  const Wide *rstds, long long rows, long long n, int tile, int slot, Wide *block_w, Wide *block_b)
{
    const int lane = threadIdx.x % 32;
    ignis_pack<T, N> ws[packs];
    Wide dws[packs][N] = {}, dbs[packs][N] = {};
    const auto fetch_tile = [&](long long first, int turn) {
        if (first < rows) {
            uint4 *const to = tile_memory() + turn * 2 * slot;
            fetch(to, x, first * n, min(rows, first + tile) * n, rows * n);
            fetch(to + slot, dy, first * n, min(rows, first + tile) * n, rows * n);
        }
        fetched();
    };

    if constexpr (N == 1) /* else there are no registers for them */
        each_column<Team, N, packs>(n, [&](int p, int column) { ws[p] = ignis_load<N>(w + column); });
    int turn = 0;
    fetch_tile((long long)blockIdx.x * tile, turn);
    for (long long first = (long long)blockIdx.x * tile; first < rows; first += (long long)gridDim.x * tile, turn = 1 - turn) {
        const long long last = min(rows, first + tile), mine = first + team<Team>() + lane * teams<Team>(); /* the statistics of this row are */
        const Wide its_rstd = mine < last ? rstds[mine] : Wide(0), its_mean = !rms && mine < last ? means[mine] : Wide(0); /* this lane's */
        uint4 *const tile_x = tile_memory() + turn * 2 * slot;
        fetch_tile(first + (long long)gridDim.x * tile, 1 - turn);
        arrive<1>();
        int at = 0;
        for (long long r = first + team<Team>(); r < last; r += teams<Team>(), at++) {
            T *const row = (T *)tile_x + first * n % PACK + (r - first) * n;
            const T *const grads = row + slot * PACK;
            const Wide mean = rms ? Wide(0) : __shfl_sync(0xffffffff, its_mean, at), rstd = __shfl_sync(0xffffffff, its_rstd, at);
            Wide sum_g = 0, sum_gh = 0;
            const auto weight = [&](int p, int column) {
                if constexpr (N == 1)
                    return ws[p];
                else
                    return ignis_load<N>(w + column);
            };
            each_column<Team, N, packs>(n, [&](int p, int column) {
                const auto xs = ignis_load<N>(row + column), gs = ignis_load<N>(grads + column), its_w = weight(p, column);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    const Wide h = (Wide(xs[i]) - mean) * rstd, grad = gs[i], g = grad * Wide(its_w[i]);
                    sum_g += g;
                    sum_gh += g * h;
                    dws[p][i] += grad * h;
                    dbs[p][i] += grad;
                }
            });
            reduce_two<Team>(sum_g, sum_gh);
            const Wide average_g = sum_g / Wide(n), average_gh = sum_gh / Wide(n);
            each_column<Team, N, packs>(n, [&](int p, int column) {
                const auto xs = ignis_load<N>(row + column), gs = ignis_load<N>(grads + column), its_w = weight(p, column);
                Wide values[N];
#pragma unroll
                for (int i = 0; i < N; i++)
                    values[i] = gradient<rms>((Wide(xs[i]) - mean) * rstd, Wide(gs[i]) * Wide(its_w[i]), rstd, average_g, average_gh);
                ignis_store_shared(row + column, ignis_pack_round<T>(values));
            });
        }
        __syncthreads();
        put(dx, tile_x, first * n, last * n);
        __syncthreads(); /* the next tile but one comes to the same place */
    }

    partial_w += blockIdx.x * n;
    partial_b += blockIdx.x * n;
    for (int its_turn = 0; its_turn < teams<Team>(); its_turn++) { /* the teams add theirs one after the other */
        const bool is_last = its_turn == teams<Team>() - 1;
        Wide *const to_w = is_last ? partial_w : block_w, *const to_b = is_last ? partial_b : block_b;
        if (its_turn == team<Team>())
            each_column<Team, N, packs>(n, [&](int p, int column) {
#pragma unroll
                for (int i = 0; i < N; i++) {
                    to_w[column + i] = dws[p][i] + (its_turn ? block_w[column + i] : Wide(0));
                    if (!rms)
                        to_b[column + i] = dbs[p][i] + (its_turn ? block_b[column + i] : Wide(0));
                }
            });
        if (!Team::is_block)
            __syncthreads();
    }
}

#define PARAMETERS                                                                                                                    \
    T *dx, Wide *partial_w, Wide *partial_b, const T *dy, const T *x, const T *w, const Wide *mean, const Wide *rstd, long long rows, \
        long long n, int tile, int slot
#define BACKWARD(name, rms)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(32 * BACKWARD_WARPS, 4) ignis_##name##_odd_backward_warp(PARAMETERS)            \
    {                                                                                                                            \
        __shared__ Wide block_w[32 * VALUES], block_b[rms ? 1 : 32 * VALUES];                                                    \
        backward_of_tiles<rms, ignis_warp_team, 1, VALUES>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, tile, slot,  \
                                                           block_w, block_b);                                                    \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1) ignis_##name##_odd_backward_block(PARAMETERS)                           \
    {                                                                                                                            \
        backward_of_tiles<rms, ignis_block_team, 1, VALUES>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, tile, slot, \
                                                            nullptr, nullptr);                                                   \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512, 1) ignis_##name##_odd_backward_packed(PARAMETERS)                          \
    {                                                                                                                            \
        backward_of_tiles<rms, ignis_block_team, PACK, IGNIS_ROW_PACKS>(dx, partial_w, partial_b, dy, x, w, mean, rstd, rows, n, \
                                                                        tile, slot, nullptr, nullptr);                           \
    }
BACKWARD(layer_norm, false)
BACKWARD(rms_norm, true) /* mean and partial_b are not used */
