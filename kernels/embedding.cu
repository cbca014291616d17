// SPDX-License-Identifier: MIT
/*  embedding.cu - rows of a table by index, and the gradient of the table

        out[i] = table[ids[i]]                 grad_table[v] = sum of grad[i] over all i with ids[i] == v, in the order
        of i; where it adds,
                                               and what was there

    An id outside of the table gives a row of NaN, and its gradient is dropped; nothing is read
    out of bounds.

    The backward pass has no atomic additions of numbers, so equal inputs give equal bits: ids are sorted,
    with their positions, by the stable radix sort of sort.cu. Then blocks sum chunks of the sorted list,
    however often an id occurs.

        ignis_embedding_keys                            ids as keys; out of range: vocab
        ignis_sort_count, _scan, _scatter               once for each 8 bits of vocab
        ignis_embedding_bounds                          where each id begins and ends
        ignis_embedding_chunks, _rows                   sums of chunks, and of ids that are in several chunks

    With -DIGNIS_WEIGHTED=1 a row of grad counts for 2^shift ids, each times a weight: of ignis_grid_sample.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. Tokens, and rows of the table, are fewer
    than 2^31. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#include "shared/embedding.h"

#define THREADS IGNIS__EMBEDDING_THREADS
#define CHUNK IGNIS__EMBEDDING_CHUNK
#ifndef IGNIS_WEIGHTED
#define IGNIS_WEIGHTED 0
#endif

/* >>forward ----------------------------------------------------------------------------------------------------- */

template <int N>
__device__ void gather(T *out, const T *table, const void *ids, int id_bytes, long long count, long long vocab,
                       long long n)
{
    const T nan = T(__int_as_float(0x7fffffff));

    for (long long i = blockIdx.x; i < count; i += gridDim.x) {
        const long long id = ignis_index(ids, id_bytes, i);
        const bool valid = id >= 0 && id < vocab;
        T *to = out + i * n;
        const ignis_row<T, ignis_block_team, N> row(to, n);
        ignis_batch<T, N> batch;
        for (int round = 0; row.has(round); round++) {
            if (valid)
                row.load(batch, table + id * n, round);
            row.each(
                round,
                [&](int column, auto &pack) {
                    if (!valid)
#pragma unroll
                        for (int k = 0; k < pack.count; k++)
                            pack[k] = nan;
                    ignis_store(to + column, pack);
                },
                batch);
        }
    }
}

/*  Any grid; blocks of 32 to THREADS threads. packed: n is a multiple of a pack of 16 bytes, and out and
    table are aligned to it. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_embedding(T *out, const T *table, const void *ids, int id_bytes, long long count, long long vocab,
                    long long n, int packed)
{
    ignis_grid_dependency();
    if (packed)
        gather<16 / sizeof(T)>(out, table, ids, id_bytes, count, vocab, n);
    else
        gather<1>(out, table, ids, id_bytes, count, vocab, n);
}

/* >>keys -------------------------------------------------------------------------------------------------------- */

/*  Also clears bounds [vocab, 2]. Blocks of THREADS threads, for the larger of count and 2 * vocab. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_embedding_keys(uint32_t *keys, uint32_t *bounds, const void *ids, int id_bytes, long long count,
                         long long vocab)
{
    ignis_grid_dependency();
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        const long long id = ignis_index(ids, id_bytes, i);
        keys[i] = (uint32_t)(id >= 0 && id < vocab ? id : vocab);
    }
    if (i < 2 * vocab)
        bounds[i] = 0;
}

/*  bounds[v] = begin and end of id v in the sorted keys; both 0 if it does not occur. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_embedding_bounds(uint32_t *bounds, const uint32_t *keys, long long count, long long vocab)
{
    ignis_grid_dependency();
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count || keys[i] >= vocab)
        return;
    const long long key = keys[i];
    if (i == 0 || keys[i - 1] != key)
        bounds[2 * key] = (uint32_t)i;
    if (i + 1 == count || keys[i + 1] != key)
        bounds[2 * key + 1] = (uint32_t)(i + 1);
}

/* >>sums -------------------------------------------------------------------------------------------------------- */

#define IN_FLIGHT 4 /* rows that are loaded before the first is added */

/*  Returns the first column of a thread, which has N; it has none if that is not below n. */
template <int N> __device__ inline long long first_column()
{
    return ((long long)blockIdx.y * blockDim.x + threadIdx.x) * N;
}

/*  adds: to the existing row. */
template <int N> __device__ inline void store_row(T *to, Wide (&sum)[N], int adds)
{
    if (adds) {
        const auto before = ignis_load<N>(to);
#pragma unroll
        for (int c = 0; c < N; c++)
            sum[c] += Wide(before[c]);
    }
    ignis_store(to, ignis_pack_round<T>(sum));
}

/*  Sums the rows of one chunk. An id whose positions are all in this chunk is finished. The sum of an id that
    began in an earlier chunk goes to partial[chunk, 0, n]; of one that only continues in the next, to
    partial[chunk, 1, n]. */
template <int N> __device__ void sum_chunk(const ignis__embedding_sums p)
{
    const long long begin = (long long)blockIdx.x * CHUNK, end = min(begin + CHUNK, p.count);
    const long long column = first_column<N>();
    if (column >= p.n)
        return;
    bool came_in = begin > 0 && p.keys[begin - 1] == p.keys[begin];
    Wide sum[N] = {};
    for (long long at = begin; at < end; at += IN_FLIGHT) {
        ignis_pack<T, N> packs[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (at + k < end)
                packs[k] =
                    ignis_load<N>(p.grad + (p.positions[at + k] >> (IGNIS_WEIGHTED ? p.shift : 0)) * p.n + column);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const long long i = at + k;
            if (i >= end)
                break;
#pragma unroll
            for (int c = 0; c < N; c++)
                sum[c] += IGNIS_WEIGHTED ? Wide(packs[k][c]) * p.weights[p.positions[i]] : Wide(packs[k][c]);
            const uint32_t key = p.keys[i];
            const bool goes_on = i + 1 < p.count && p.keys[i + 1] == key;
            if (goes_on && i + 1 < end)
                continue;
            if (key < p.vocab) {
                if (!came_in && !goes_on)
                    store_row(p.table + key * p.n + column, sum, p.adds);
                else
#pragma unroll
                    for (int c = 0; c < N; c++)
                        p.partial[(2 * (long long)blockIdx.x + !came_in) * p.n + column + c] = sum[c];
            }
            came_in = false;
#pragma unroll
            for (int c = 0; c < N; c++)
                sum[c] = 0;
        }
    }
}

/*  Writes the remaining rows: zeros for ids that do not occur, and the sums of ids in several chunks. */
template <int N> __device__ void sum_rows(const ignis__embedding_sums p)
{
    const long long column = first_column<N>();
    if (column >= p.n)
        return;
    for (long long id = blockIdx.x; id < p.vocab; id += gridDim.x) {
        const uint32_t begin = p.bounds[2 * id], end = p.bounds[2 * id + 1];
        const uint32_t first = begin / CHUNK, last = end == begin ? first : (end - 1) / CHUNK;
        if (end > begin ? first == last : p.adds)
            continue;
        Wide sum[N] = {};
        if (end > begin)
#pragma unroll 4
            for (long long chunk = first; chunk <= last; chunk++)
#pragma unroll
                for (int c = 0; c < N; c++)
                    sum[c] += p.partial[(2 * chunk + (chunk == first)) * p.n + column + c];
        store_row(p.table + id * p.n + column, sum, p.adds);
    }
}

/*  Grids of ceil(count / CHUNK), and of any number, blocks; y for the columns, at 1 or, if packed, 16 bytes a
    thread. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_embedding_chunks(const ignis__embedding_sums p)
{
    ignis_grid_dependency();
    if (p.packed)
        sum_chunk<16 / sizeof(T)>(p);
    else
        sum_chunk<1>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_embedding_rows(const ignis__embedding_sums p)
{
    ignis_grid_dependency();
    if (p.packed)
        sum_rows<16 / sizeof(T)>(p);
    else
        sum_rows<1>(p);
}
