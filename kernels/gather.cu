// SPDX-License-Identifier: MIT
/*  gather.cu - elements by index along one dimension, and sums of elements by index

        gather      out[i] = src[.., id(i), ..]
        scatter     dst[.., id(i), ..] = src[i]      for ids that differ
        add         dst[.., id(i), ..] += src[i]     in a fixed order
        assign      dst[.., id(i), ..] = src[i]      the last one, of equal ids

    i counts through all elements (ignis__strided): `from` leads to the place in the array that is indexed,
    without that dimension, and `to` to the id, which is inside if it is below size, and then dim_stride
    elements further each.

    Sums have no atomic additions of numbers, so equal inputs give equal bits: destinations are keys
    (ignis_scatter_keys), which sort.cu sorts, with the positions of their elements. Then each warp sums the
    elements of equal keys among 32 neighbours, in a fixed tree (ignis_segment_sums); what belongs to a key
    that other warps have too, it leaves in partial [warps, 2]: first the sum that came in from the warp
    before, then that which goes on in the next. The warp in which a key begins adds these
    (ignis_segment_finish).

    Where the dimension is the last one, and a row of dst fits shared memory, a warp sums a row there instead,
    32 elements after the other (ignis_scatter_add_rows).

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. */
#include "strided.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#include "shared/index.h"

#define THREADS 256
#define PACK (16 / (int)sizeof(T))
#define IN_FLIGHT 4

/* >>gather ------------------------------------------------------------------------------------------------------ */

template <int N>
__device__ inline void gather(T *out, const T *src, const void *ids, int id_bytes, const ignis__strided &s,
                              long long size, long long dim_stride, T outside)
{
    const long long first = (long long)blockIdx.x * (THREADS * IN_FLIGHT) + threadIdx.x;
    ignis_pack<T, N> pack[IN_FLIGHT];
    long long from[IN_FLIGHT], id[IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; k++) {
        long long place = 0;
        from[k] = 0;
        id[k] = -1;
        if (first + k * THREADS >= s.count)
            continue;
        locate(s, first + k * THREADS, from[k], place);
        id[k] = ignis_index(ids, id_bytes, place);
    }
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; k++) {
        if (id[k] >= 0 && id[k] < size)
            pack[k] = ignis_load<N>(src + from[k] + id[k] * dim_stride);
        else
#pragma unroll
            for (int e = 0; e < N; e++)
                pack[k][e] = outside;
    }
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; k++)
        if (first + k * THREADS < s.count)
            ignis_store(out + (first + k * THREADS) * N, pack[k]);
}

/*  An id outside gives NaN if requested, else 0. Blocks of THREADS threads, for IN_FLIGHT elements or packs
    of 16 bytes each. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_gather(T *out, const T *src, const void *ids, int id_bytes, ignis__strided s, long long size,
                 long long dim_stride, int nan, int packs)
{
    T outside = T(0);
    if constexpr (ignis_is_float<T>)
        if (nan)
            outside = T(__int_as_float(0x7fffffff));
    if (packs)
        gather<PACK>(out, src, ids, id_bytes, s, size, dim_stride, outside);
    else
        gather<1>(out, src, ids, id_bytes, s, size, dim_stride, outside);
}

/*  Finds the place in dst of the i-th element, to. False if its id is outside; then to is where id 0 would be. */
__device__ inline bool find_place(const ignis__strided &s, const void *ids, int id_bytes, long long i, long long size,
                                  long long dim_stride, long long &to)
{
    long long place = 0;
    to = 0;
    locate(s, i, to, place);
    const long long id = ignis_index(ids, id_bytes, place);
    const bool inside = id >= 0 && id < size;
    to += inside ? id * dim_stride : 0;
    return inside;
}

/*  Blocks of THREADS threads, for an element each. Parameters as above. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scatter(T *dst, const T *src, const void *ids, int id_bytes, ignis__strided s, long long size,
                  long long dim_stride, int, int)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long to;
    if (i < s.count && find_place(s, ids, id_bytes, i, size, dim_stride, to))
        dst[to] = src[i];
}

/* >>add --------------------------------------------------------------------------------------------------------- */

/*  dst[row, id(row, i)] += src[row, i] for all i of 0 to n - 1 in their order, where the id is inside of a
    row of size elements. One warp a row, with that in shared memory. */
extern "C" __global__ void __launch_bounds__(32)
    ignis_scatter_add_rows(T *dst, const T *src, const void *ids, int id_bytes, long long n, long long size)
{
    constexpr int ahead = 8; /* groups of 32 that are loaded before the first is added */
    extern __shared__ uint4 scatter_memory[];
    Wide *const sums = (Wide *)scatter_memory;
    const long long first = blockIdx.x * n;
    const int lane = threadIdx.x;
    dst += blockIdx.x * size;
    for (long long i = lane; i < size; i += 32)
        sums[i] = Wide(dst[i]);
    const auto fetch = [&](int(&to)[ahead], T(&x)[ahead], long long at) {
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const bool is_there = at + 32 * k < n;
            const long long id = is_there ? ignis_index(ids, id_bytes, first + at + 32 * k) : -1;
            to[k] = id >= 0 && id < size ? (int)id : -1;
            x[k] = is_there ? src[first + at + 32 * k] : T(0);
        }
    };
    int to[ahead], next_to[ahead];
    T x[ahead], next_x[ahead];
    fetch(next_to, next_x, lane);
    for (long long at = lane; at - lane < n; at += 32 * ahead) {
#pragma unroll
        for (int k = 0; k < ahead; k++)
            to[k] = next_to[k], x[k] = next_x[k];
        fetch(next_to, next_x, at + 32 * ahead);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const bool inside = to[k] >= 0;
            Wide *const sum = sums + (inside ? to[k] : 0);
            const Wide before = *sum;
            __syncwarp();
            if (inside)
                *(volatile int *)sum = lane; /* one of the lanes that add to the same element remains */
            __syncwarp();
            const bool alone = !inside || *(volatile int *)sum == lane;
            __syncwarp();
            if (__all_sync(0xffffffff, alone)) {
                if (inside)
                    *sum = before + Wide(x[k]);
            } else {
                const int others =
                    __popc(__match_any_sync(0xffffffff, to[k]) & ((1u << lane) - 1)); /* the ones before this one */
                if (inside && others == 0)
                    *sum = before + Wide(x[k]);
                __syncwarp();
                for (int turn = 1; __any_sync(0xffffffff, inside && others >= turn); turn++) {
                    if (inside && others == turn)
                        *sum += Wide(x[k]);
                    __syncwarp();
                }
            }
            __syncwarp();
        }
    }
    __syncwarp();
    for (long long i = lane; i < size; i += 32)
        dst[i] = T(sums[i]);
}

/*  Where each element goes, or `none`. Blocks of THREADS threads, for an element each. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scatter_keys(uint32_t *keys, const void *ids, int id_bytes, ignis__strided s, long long size,
                       long long dim_stride, uint32_t none)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long to = 0, place = 0;
    if (i >= s.count)
        return;
    locate(s, i, to, place);
    const long long id = ignis_index(ids, id_bytes, place);
    keys[i] = id >= 0 && id < size ? (uint32_t)(to + id * dim_stride) : none;
}

__device__ inline void add_to(T *dst, uint32_t key, Wide sum) { dst[key] = T(Wide(dst[key]) + sum); }

extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_segment_sums(T *dst, Wide *partial, const T *src, const uint32_t *keys, const uint32_t *positions,
                       long long count, uint32_t none)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x, warp = i / 32;
    const int lane = threadIdx.x % 32;
    const uint32_t key = i < count ? keys[i] : none;
    Wide sum = key != none ? Wide(src[positions[i]]) : Wide(0);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const Wide lower = __shfl_up_sync(0xffffffff, sum, distance);
        const uint32_t its_key = __shfl_up_sync(0xffffffff, key, distance);
        if (lane >= distance && its_key == key)
            sum = lower + sum;
    }
    if (key == none)
        return;
    const bool goes_on = i + 1 < count && keys[i + 1] == key;
    if (goes_on && lane < 31)
        return;
    const bool came_in = warp > 0 && keys[warp * 32 - 1] == key;
    if (came_in || goes_on)
        partial[2 * warp + !came_in] = sum;
    else
        add_to(dst, key, sum);
}

/*  A warp for each that wrote partial sums, the one after the other. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_segment_finish(T *dst, const Wide *partial, const uint32_t *keys, long long count, uint32_t none)
{
    const long long warp = ((long long)blockIdx.x * THREADS + threadIdx.x) / 32, next = (warp + 1) * 32;
    const int lane = threadIdx.x % 32;
    if (next >= count)
        return;
    const uint32_t key = keys[next];
    if (key == none || keys[next - 1] != key || (warp > 0 && keys[warp * 32 - 1] == key))
        return;
    long long inside = next, outside = count; /* the last element of the key is from inside to before outside */
    while (outside - inside > 1) {
        const long long middle = (inside + outside) / 2;
        if (keys[middle] == key)
            inside = middle;
        else
            outside = middle;
    }
    Wide sum = lane == 0 ? partial[2 * warp + 1] : Wide(0);
#pragma unroll 4
    for (long long other = warp + 1 + lane; other <= inside / 32; other += 32)
        sum += partial[2 * other];
    sum = ignis_warp_sum(sum);
    if (lane == 0)
        add_to(dst, key, sum);
}

/* >>assign ------------------------------------------------------------------------------------------------------ */

/*  Of the elements that go to one place the last one is written: the claim of each place, 0 before, becomes the number
    of that element plus 1. Equal inputs claim the same, in whatever order threads run. Blocks of THREADS threads, for
    an element each. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scatter_claim(uint32_t *claims, const void *ids, int id_bytes, ignis__strided s, long long size,
                        long long dim_stride)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long to;
    if (i < s.count && find_place(s, ids, id_bytes, i, size, dim_stride, to))
        atomicMax(&claims[to], (uint32_t)i + 1); /* of integers: the order does not matter */
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scatter_last(T *dst, const T *src, const uint32_t *claims, const void *ids, int id_bytes, ignis__strided s,
                       long long size, long long dim_stride, int what)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long to;
    if (i >= s.count)
        return;
    const bool inside = find_place(s, ids, id_bytes, i, size, dim_stride, to),
               is_last = inside && claims[to] == (uint32_t)i + 1;
    if (what == IGNIS__SCATTER_TAKE)
        dst[i] = is_last ? src[to] : T(0);
    else if (is_last)
        dst[to] = what == IGNIS__SCATTER_ASSIGN ? src[i] : T(0);
}

/*  Joins indices of several dimensions to one of all these together; -1 if one is outside. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_index_join(int64_t *joined, ignis__index_list indices, long long count)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    long long place = 0;
    if (i >= count)
        return;
    for (int d = 0; d < indices.count; d++) {
        const long long id = ignis_index(indices.ids[d], indices.id_bytes[d], i);
        const bool inside = id >= 0 && id < indices.size[d];
        place = inside && place >= 0 ? place * indices.size[d] + id : -1;
    }
    joined[i] = place;
}
