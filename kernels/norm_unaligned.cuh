// SPDX-License-Identifier: MIT
/*  norm_unaligned.cuh - how the kernels of norms share out rows of any address and length, and bring them in
    ahead

    A team takes rows that begin at the same address modulo 16, so that its threads have the same columns of
    all of them: packs where addresses are multiples of 16 bytes, and a few elements before and after them.
    Values of columns are read once, and sums over rows stay in registers. Rows come into shared memory
    while those before them are worked on, each thread's packs to places of its own: only this thread waits
    for them.

    A thread has FLIGHT packs of x at a time.

        _few                a warp has FLIGHT rows, a pack of each
        _warp               a warp has a row
        _block              a block has it, of at most 512 threads
        _even               a block has FLIGHT rows which follow each other, a thread one pack of each: of full packs,
        which begin at
                            multiples of 16 bytes in all arrays of rows. Any grid; w and b are in registers

    Dynamic shared memory: FLIGHT packs a thread of every array of rows that is read, and a row's of w and, in
    forward, b, twice as many of f32 beside 16 bits. Any grid whose teams are a multiple of the rows after which one
    begins at the same address modulo 16 again: few blocks, which take turns. All arrays of rows begin at the same
    address modulo 16. */
#ifndef IGNIS_NORM_UNALIGNED_CUH
#define IGNIS_NORM_UNALIGNED_CUH

#include "norm.cuh"
#if __CUDA_ARCH__ >= 800
#include "mma.cuh"
#endif

#define FLIGHT IGNIS__NORM_FLIGHT
#define WARPS IGNIS__NORM_WARPS
#define BLOCK_THREADS IGNIS__NORM_BLOCK_THREADS

/* >>flight ------------------------------------------------------------------------------------------------------ */

/*  Returns this thread's slot number i. */
__device__ inline uint4 *place(int i)
{
    extern __shared__ uint4 memory[];
    return memory + i * (int)blockDim.x + threadIdx.x;
}

/*  Closes a group of everything that was started before this call, and waits for all but the latest groups. */
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
}

/* >>share ------------------------------------------------------------------------------------------------------- */

/*  A batch in slots, out of which get takes a pack when it is used, so that it needs no registers. A pack of elements
    E that are larger than T takes several slots. */
template <int packs, typename E = T> struct placed {
    static constexpr int slots = sizeof(E) / sizeof(T); /* of a pack */
    struct {
        int at;
        __device__ auto get() const
        {
            if constexpr (slots == 1) {
                return ignis_pack_of<ignis_pack<E, PACK>>(*place(at));
            } else {
                ignis_pack<E, PACK> pack;
#pragma unroll
                for (int s = 0; s < slots; s++) {
                    const auto part = ignis_pack_of<ignis_pack<E, PACK / slots>>(*place(at + s));
#pragma unroll
                    for (int i = 0; i < PACK / slots; i++)
                        pack[s * (PACK / slots) + i] = part[i];
                }
                return pack;
            }
        }
    } at[packs];
    struct {
        ignis_pack<E, 1> pack;
        __device__ auto get() const { return pack; }
    } extra;

    __device__ explicit placed(int first)
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            at[p].at = first + p * slots;
    }
};

/*  A pack of a batch, or its extra element. */
struct in_pack {
    int p;
    template <typename Batch> __device__ auto &of(Batch &batch) const { return batch.at[p]; }
};
struct in_extra {
    template <typename Batch> __device__ auto &of(Batch &batch) const { return batch.extra; }
};

/*  A thread's share of the rows of its team, and the rows that are left; the next one begins at element at. */
template <typename Team, int packs> struct share_of {
    const ignis_row<T, Team, PACK, false, packs> row;
    const bool extras;            /* whether any thread has an extra element */
    const long long step, stride; /* from row to row, and from its elements to those */
    long long r, at;
    int left;

    __device__ share_of(const T *x, long long rows, long long n)
        : row(x + Team::first() * n, n), extras(row.begin > 0 || row.end < n), step(Team::count()), stride(step * n),
          r(Team::first()), at(r * n), left(r < rows ? (int)((rows - r + step - 1) / step) : 0)
    {
    }
    __device__ void advance(int count)
    {
        r += count * step;
        at += count * stride;
        left -= count;
    }

    /*  Returns whether row j exists of the rows that come at a time; if one comes at a time, it does. */
    __device__ bool has(int j) const { return packs == FLIGHT || j < left; }

    /*  f(in_pack or in_extra, column, whether this thread has it) for everything that any thread of the team
        has; in a block each has nearly all. fenced: one after the other, as there are no registers for more
        at a time. */
    template <bool fenced, typename F> __device__ void each(F f) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if ((Team::is_block && !fenced) || row.begin + p * Team::size() * PACK < row.end) {
                f(in_pack{p}, row.column(0, p), row.column(0, p) < row.end);
                if (fenced)
                    __syncwarp();
            }
        if (extras)
            f(in_extra{}, row.extra, row.extra >= 0);
    }

    /*  Starts to load the packs of a row of this array to slots first, first + 1, ... */
    __device__ void fetch(const T *from, int first) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) < row.end) {
#if __CUDA_ARCH__ >= 800
                ignis_ptx_cp_async((uint32_t)__cvta_generic_to_shared(place(first + p)), from + row.column(0, p), 16);
#else
                *place(first + p) = *(const uint4 *)(from + row.column(0, p));
#endif
            }
    }

    /*  Sets the slots of columns that a thread does not have to 0, for good. */
    __device__ void clear(int first) const
    {
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) >= row.end)
                *place(first + p) = make_uint4(0, 0, 0, 0);
    }
    template <typename E> __device__ ignis_pack<E, 1> extra_of(const E *from) const
    {
        ignis_pack<E, 1> pack;
        pack[0] = row.extra >= 0 ? from[row.extra] : E(0.0f);
        return pack;
    }

    /*  This thread's columns of w or b, wherever that begins. */
    __device__ void columns(placed<packs, W> &batch, const W *from) const
    {
        constexpr int slots = placed<packs, W>::slots, share = PACK / slots;
        if constexpr (slots == 1)
            clear(batch.at[0].at);
#pragma unroll
        for (int p = 0; p < packs; p++)
            if (row.column(0, p) < row.end) {
#pragma unroll
                for (int s = 0; s < slots; s++) {
                    ignis_pack<W, share> pack;
#pragma unroll
                    for (int i = 0; i < share; i++)
                        pack[i] = from[row.column(0, p) + s * share + i];
                    *place(batch.at[p].at + s) = ignis_word(pack);
                }
            } else if (slots > 1) {
#pragma unroll
                for (int s = 0; s < slots; s++)
                    *place(batch.at[p].at + s) = make_uint4(0, 0, 0, 0);
            }
        batch.extra.pack = extra_of(from);
    }
};

template <int packs> __device__ inline void take(ignis_batch<T, PACK, packs> &batch, int first)
{
#pragma unroll
    for (int p = 0; p < packs; p++)
        batch.at[p] = ignis_pack_of<ignis_pack<T, PACK>>(*place(first + p));
}

/*  Several sums at the price of one wait. turn: 0 or 1, the other one at each call. */
template <typename Team, int count> __device__ inline void sum_all(Wide (&sums)[count], int &turn)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        sums[i] = ignis_warp_sum(sums[i]);
    if constexpr (Team::is_block) {
        __shared__ Wide partial[2][count][16]; /* a warp may still be reading the sums of the call before */
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0)
#pragma unroll
            for (int i = 0; i < count; i++)
                partial[turn][i][warp] = sums[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < count; i++) {
            sums[i] = lane % 16 < blockDim.x / 32 ? partial[turn][i][lane % 16] : Wide(0);
#pragma unroll
            for (int distance = 8; distance > 0; distance /= 2)
                sums[i] += __shfl_xor_sync(0xffffffff, sums[i], distance);
        }
        turn = 1 - turn;
    }
}

/* >>even -------------------------------------------------------------------------------------------------------- */

/*  Returns how many of the FLIGHT rows from row r on exist. */
__device__ inline int rows_left(long long r, long long rows) { return (int)max(min(rows - r, (long long)FLIGHT), 0LL); }

/*  Starts to load rows from row r of this array on to slots first, first + 1, ...: zeros for rows that are
    not left, and in threads without columns. */
__device__ inline void fetch_even(const T *from, int first, long long r, int left, long long n)
{
    const int column = (int)threadIdx.x * PACK;
    from += (left ? r : 0) * n;
    left = column < n ? left : 0;
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
        const T *const at = j < left ? from + j * n + column : from;
#if __CUDA_ARCH__ >= 800
        ignis_ptx_cp_async((uint32_t)__cvta_generic_to_shared(place(first + j)), at, j < left ? 16 : 0);
#else
        *place(first + j) = j < left ? *(const uint4 *)at : make_uint4(0, 0, 0, 0);
#endif
    }
}

__device__ inline void take_even(ignis_pack<T, PACK> (&packs)[FLIGHT], int first)
{
#pragma unroll
    for (int j = 0; j < FLIGHT; j++)
        packs[j] = ignis_pack_of<ignis_pack<T, PACK>>(*place(first + j));
}

/*  Loads this thread's columns of w or b, at any address; 0 if it has none. */
__device__ inline void columns_even(Wide (&columns)[PACK], const W *from, long long n)
{
    const int column = (int)threadIdx.x * PACK;
#pragma unroll
    for (int i = 0; i < PACK; i++)
        columns[i] = column < n ? Wide(from[column + i]) : Wide(0);
}

/*  Several sums over the block, in the layout of sum_all: 4 or 8. Halves of them go from lane to lane, until
    each lane has a part of one sum, number lane * count / 32. */
template <int count> __device__ inline void sum_even(Wide (&sums)[count], int &turn)
{
    constexpr int lanes = 32 / count;
    __shared__ Wide partial[2][count][16]; /* a warp may still be reading the sums of the call before */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (int)blockDim.x / 32;
    int left = count;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        if (left > 1) {
            left /= 2;
#pragma unroll
            for (int i = 0; i < count / 2; i++)
                if (i < left) {
                    const Wide low = sums[i], high = sums[i + left];
                    const bool upper = lane & distance;
                    sums[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
                }
        } else {
            sums[0] += __shfl_xor_sync(0xffffffff, sums[0], distance);
        }
    }
    if (lane % lanes == 0)
        partial[turn][lane / lanes][warp] = sums[0];
    __syncthreads();
    Wide sum = 0;
#pragma unroll
    for (int w = 0; w < 16; w += lanes)
        if (w < warps) {
            const Wide part = partial[turn][lane / lanes][w + lane % lanes];
            sum += w + lane % lanes < warps ? part : Wide(0);
        }
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
#pragma unroll
    for (int i = 0; i < count; i++)
        sums[i] = __shfl_sync(0xffffffff, sum, i * lanes);
    turn = 1 - turn;
}

#endif /* IGNIS_NORM_UNALIGNED_CUH */
