// SPDX-License-Identifier: MIT
/*  models/experts.cu - a mixture of experts for the rows of a step: the router, the gate of an expert for all tokens

    A warp computes one result, in an order that does not depend on the number of rows, so a row has the same bits alone
    and in a batch. experts_product.cu has the products. One program per element type: compiled with -DIGNIS_T=<1 to 4>.
    Blocks have WARPS warps, but for the choice. */
#include "ignis.cuh"
#include "activation.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "shared/models/expert_choice.h"

constexpr int WARPS = 8, N = 16 / sizeof(T);

/*  Returns the product of two rows of n elements. */
__device__ inline Wide dot(const T *a, const T *b, int n)
{
    const int lane = threadIdx.x % 32;
    Wide sum = 0;
    if (n % N == 0) {
#pragma unroll 4
        for (int i = lane * N; i < n; i += 32 * N) {
            const auto x = ignis_load<N>(a + i), y = ignis_load<N>(b + i);
#pragma unroll
            for (int j = 0; j < N; j++)
                sum += Wide(x[j]) * Wide(y[j]);
        }
    } else {
        for (int i = lane; i < n; i += 32)
            sum += Wide(a[i]) * Wide(b[i]);
    }
    return ignis_warp_sum(sum);
}

/*  Computes logits [rows, experts] = x w^T + bias; bias: or null. grid = blocks of experts, rows. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ignis_experts_router(Wide *logits, const T *x, const T *w, const T *bias, int experts, int hidden)
{
    const int expert = blockIdx.x * WARPS + threadIdx.x / 32;
    ignis_grid_dependency();
    if (expert >= experts)
        return;
    const Wide sum = dot(x + (long long)blockIdx.y * hidden, w + (long long)expert * hidden, hidden);
    if (threadIdx.x % 32 == 0)
        logits[(long long)blockIdx.y * experts + expert] = sum + (bias ? Wide(bias[expert]) : Wide(0));
}

/*  Returns the place of the largest of n numbers that is not taken, of equal ones the first, and takes it. A lane has
    the bits of i, i + 32, ...; n is up to 1024. */
__device__ inline int take_largest(const Wide *row, int n, uint32_t &taken, Wide &value)
{
    const int lane = threadIdx.x;
    int best = -1;
    value = 0;
    for (int i = lane, j = 0; i < n; i += 32, j++)
        if (!(taken >> j & 1) && (best < 0 || row[i] > value)) {
            best = i;
            value = row[i];
        }
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const int other = __shfl_xor_sync(0xffffffff, best, step);
        const Wide other_value = __shfl_xor_sync(0xffffffff, value, step);
        if (other >= 0 && (best < 0 || other_value > value || (!(value > other_value) && other < best))) {
            best = other;
            value = other_value;
        }
    }
    if (best % 32 == lane)
        taken |= 1u << best / 32;
    return best;
}

/*  Leaves a token the groups of experts that count most: by the sum of their two largest scores, or by the largest one
    (DeepSeek-V2 and V3, 2024, sections 2.1.2). Scores of other groups become -infinity. With TWO a group has two
    experts or more. All lanes have written the scores. */
template <bool TWO> __device__ inline void leave_groups(const ignis__expert_choice &p, Wide *scores, Wide *sums)
{
    const int lane = threadIdx.x, size = p.experts / p.groups;
    uint32_t used = 0;
    Wide value;
    __syncwarp();
    for (int group = lane; group < p.groups; group += 32) {
        Wide first = -ignis_infinity<Wide>(), second = first;
        for (int i = group * size; i < group * size + size; i++) {
            second = scores[i] > first ? first : scores[i] > second ? scores[i] : second;
            first = scores[i] > first ? scores[i] : first;
        }
        sums[group] = TWO ? first + second : first;
    }
    __syncwarp();
    for (int i = 0; i < p.used_groups; i++)
        take_largest(sums, p.groups, used, value);
    for (int group = lane, j = 0; group < p.groups; group += 32, j++)
        for (int i = 0; i < (used >> j & 1 ? 0 : size); i++)
            scores[group * size + i] = -ignis_infinity<Wide>();
    __syncwarp();
}

/*  Chooses the experts with the largest logits, of equal ones the first, and their shares: of the softmax over all
    experts (Shazeer et al. 2017), or, if it normalises, over the chosen ones; times a scale. A warp has a row; there
    are up to 1024 experts, and up to 32 slots. */
extern "C" __global__ void __launch_bounds__(32) ignis_experts_choose(ignis__expert_choice p)
{
    __shared__ Wide scores[1024], sums[1024];
    const int lane = threadIdx.x;
    const Wide *const row = p.logits + (long long)blockIdx.x * p.experts;
    uint32_t taken = 0;
    int own_expert = 0;
    Wide own = 0, first = 0, sum = 0, value;
    ignis_grid_dependency();
    if (p.used_groups < p.groups) {
        for (int i = lane; i < p.experts; i += 32)
            scores[i] = row[i];
        leave_groups<false>(p, scores, sums);
    }
    for (int slot = 0; slot < p.slot_count; slot++) {
        const int best = take_largest(p.used_groups < p.groups ? scores : row, p.experts, taken, value);
        first = slot == 0 ? value : first;
        if (slot == lane) {
            own_expert = best;
            own = exp(value - first);
        }
    }
    if (p.normalises)
        sum = lane < p.slot_count ? own : Wide(0);
    else
        for (int i = lane; i < p.experts; i += 32)
            sum += exp(row[i] - first);
    sum = ignis_warp_sum(sum);
    if (lane < p.slot_count) {
        p.chosen[blockIdx.x * p.slot_count + lane] = own_expert;
        p.shares[blockIdx.x * p.slot_count + lane] = own / sum * Wide(p.scale);
    }
}

/*  As ignis_experts_choose, by the sigmoid of the logit plus a bias. A share is the sigmoid; if it normalises, as a
    part of the sum of the chosen ones'; times a scale. */
extern "C" __global__ void __launch_bounds__(32) ignis_experts_choose_sigmoid(ignis__expert_choice p)
{
    __shared__ Wide scores[1024], sums[512];
    const int lane = threadIdx.x;
    const Wide *const row = p.logits + (long long)blockIdx.x * p.experts;
    uint32_t taken = 0;
    int own_expert = 0;
    Wide own = 0, value;
    ignis_grid_dependency();
    for (int i = lane; i < p.experts; i += 32)
        scores[i] = sigmoid(row[i]) + p.bias[i];
    __syncwarp();
    if (p.used_groups < p.groups)
        leave_groups<true>(p, scores, sums);
    for (int slot = 0; slot < p.slot_count; slot++) {
        const int best = take_largest(scores, p.experts, taken, value);
        if (slot == lane) {
            own_expert = best;
            own = sigmoid(row[best]);
        }
    }
    if (p.normalises)
        own /= ignis_warp_sum(own) + Wide(1e-20); /* as transformers */
    if (lane < p.slot_count) {
        p.chosen[blockIdx.x * p.slot_count + lane] = own_expert;
        p.shares[blockIdx.x * p.slot_count + lane] = own * Wide(p.scale);
    }
}

/*  Multiplies inner [rows, n] by the sigmoid of x w^T, one number for a row, which each warp computes. grid = rows. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ignis_experts_shared(T *inner, const T *x, const T *w, int n, int hidden)
{
    ignis_grid_dependency();
    const Wide share = sigmoid(dot(x + (long long)blockIdx.x * hidden, w, hidden));
    for (int i = threadIdx.x; i < n; i += 32 * WARPS)
        inner[(long long)blockIdx.x * n + i] = T(Wide(inner[(long long)blockIdx.x * n + i]) * share);
}
