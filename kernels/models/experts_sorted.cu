// SPDX-License-Identifier: MIT
/*  models/experts_sorted.cu - a mixture of experts for the rows of a prompt: slots in the order of their experts

    A row has a slot for each of its experts. The slots are sorted on the device, their rows of x are copied in this
    order, and kernels/gemm_grouped.cuh multiplies them: so the weights of an expert are read once for all of its rows.
    The results of a row are added in the order of its slots, so a row has the same bits whatever rows are beside it.
    One program per element type: compiled with -DIGNIS_T=<1 to 4>. */
#include "ignis.cuh"
#include "activation.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "experts.cuh"
#include "shared/models/experts_sorted.h"

constexpr int WARPS = 8, N = 16 / sizeof(T);

/*  Sorts slots by expert, equal ones by number. A warp has an expert: it counts the slots of those before it, and then
    writes its own, so no warp waits for another. grid = blocks of experts. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_experts_sort(ignis__experts_sorted p)
{
    const int expert = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, slots = p.rows * p.slot_count;
    int place = 0;
    ignis_grid_dependency();
    if (expert >= p.experts)
        return;
    for (int first = 0; first < slots; first += 32)
        place += __popc(__ballot_sync(0xffffffff, first + lane < slots && p.chosen[first + lane] < expert));
    if (lane == 0)
        p.offsets[expert] = place;
    for (int first = 0; first < slots; first += 32) {
        const int slot = first + lane;
        const bool own = slot < slots && p.chosen[slot] == expert;
        const uint32_t all = __ballot_sync(0xffffffff, own);
        if (own) {
            const int its = place + __popc(all & ((1u << lane) - 1));
            p.order[its] = slot;
            p.places[slot] = its;
        }
        place += __popc(all);
    }
    if (lane == 0 && expert == p.experts - 1)
        p.offsets[p.experts] = place;
}

/*  Copies the rows of x in the order of the slots. grid = slots. */
extern "C" __global__ void __launch_bounds__(256) ignis_experts_gather(ignis__experts_sorted p)
{
    ignis_grid_dependency();
    const T *from = p.x + (long long)(p.order[blockIdx.x] / p.slot_count) * p.hidden;
    T *to = p.in + (long long)blockIdx.x * p.hidden;
    if (p.hidden % N == 0)
        for (int i = threadIdx.x * N; i < p.hidden; i += 256 * N)
            ignis_store(to + i, ignis_load<N>(from + i));
    else
        for (int i = threadIdx.x; i < p.hidden; i += 256)
            to[i] = from[i];
}

/*  Computes the inner elements from the products of gate and up, in place of the first. grid = slots. */
extern "C" __global__ void __launch_bounds__(256) ignis_experts_gate(ignis__experts_sorted p)
{
    ignis_grid_dependency();
    const long long expert = p.chosen[p.order[blockIdx.x]];
    T *gate = p.gate + (long long)blockIdx.x * p.inner;
    const T *up = p.up + (long long)blockIdx.x * p.inner;
    for (int i = threadIdx.x; i < p.inner; i += 256)
        gate[i] = T(gated(Wide(p.limit), Wide(gate[i]) + bias_at(p.bias[0], expert * p.inner + i),
                          Wide(up[i]) + bias_at(p.bias[1], expert * p.inner + i)));
}

/*  Adds the results of the experts, times their shares, to the rows of `sum`, or writes them to `out`, if that is not
    null. They are in `in`. grid = rows. */
extern "C" __global__ void __launch_bounds__(256) ignis_experts_combine(ignis__experts_sorted p)
{
    ignis_grid_dependency();
    const long long row = blockIdx.x;
    for (int i = threadIdx.x; i < p.hidden; i += 256) {
        Wide total = 0;
        for (int slot = (int)row * p.slot_count; slot < ((int)row + 1) * p.slot_count; slot++)
            total += p.shares[slot] * (Wide(p.in[(long long)p.places[slot] * p.hidden + i]) +
                                       bias_at(p.bias[2], (long long)p.chosen[slot] * p.hidden + i));
        if (p.out)
            p.out[row * p.hidden + i] = T(total);
        else
            p.sum[row * p.hidden + i] += total;
    }
}
