// SPDX-License-Identifier: MIT
/*  models/experts.cu - a mixture of experts for the rows of a step: the router, the gate of an expert for all tokens

    A warp computes one result, in an order that does not depend on the number of rows, so a row has the same bits alone
    and in a batch. experts_product.cu has the products. One program per element type: compiled with -DIGNIS_T=<1 to 4>.
    Blocks have WARPS warps, but for the choice. */
#include "ignis.cuh"
#include "activation.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

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

/*  Chooses the `slots` experts with the largest logits, of equal ones the first, and their shares: of the softmax over
    all experts (Shazeer et al. 2017), or, if it normalises, over the chosen ones. A warp has a row; there are up to
    1024 experts, and up to 32 slots. */
extern "C" __global__ void __launch_bounds__(32)
    ignis_experts_choose(int32_t *chosen, Wide *shares, const Wide *logits, int experts, int slots, int normalises)
{
    const int lane = threadIdx.x;
    const Wide *const row = logits + (long long)blockIdx.x * experts;
    uint32_t taken = 0; /* of this lane's experts */
    int own_expert = 0;
    Wide own = 0, first = 0, sum = 0;
    ignis_grid_dependency();
    for (int slot = 0; slot < slots; slot++) {
        int best = -1;
        Wide value = 0;
        for (int i = lane, j = 0; i < experts; i += 32, j++)
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
        first = slot == 0 ? value : first;
        if (slot == lane) {
            own_expert = best;
            own = exp(value - first);
        }
    }
    if (normalises)
        sum = lane < slots ? own : Wide(0);
    else
        for (int i = lane; i < experts; i += 32)
            sum += exp(row[i] - first);
    sum = ignis_warp_sum(sum);
    if (lane < slots) {
        chosen[blockIdx.x * slots + lane] = own_expert;
        shares[blockIdx.x * slots + lane] = own / sum;
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
