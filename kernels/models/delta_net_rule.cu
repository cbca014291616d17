// SPDX-License-Identifier: MIT
/*  models/delta_net_rule.cu - the gated delta rule (Yang, Kautz, Hatamizadeh 2024), token by token

    The state S of a head [k, v] is read once and written once, and stays in registers for all tokens between. Of token
    t, with keys and queries of length 1:
        S = decay S;  d = strength (v - k^T S);  S = S + k d^T;  out = q^T S = q^T (decay S) + (q^T k) d
    A thread has one column of S and a quarter of its rows, so a step needs one exchange between the warps. A row has
    the same bits alone, in a batch and in a chunk. Compiled with -DIGNIS_T=<1 to 4> and -DIGNIS_DELTA_K=<elements of a
    head of k>, a multiple of 4 up to 256.
*/
#include "ignis.cuh"
#include "activation.cuh"
#include "generate.cuh"

#ifndef IGNIS_DELTA_K
#define IGNIS_DELTA_K 128
#endif

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "shared/models/delta_net.h"

constexpr int K = IGNIS_DELTA_K, WARPS = 4, PART = K / WARPS;
static_assert(K % WARPS == 0 && K <= 256, "a thread has a quarter of a column");

/*  Writes a head of q or k, times `scale`, and made of length 1. A warp does it. */
__device__ inline void normalise(Wide *to, const T *from, Wide scale)
{
    const int lane = threadIdx.x % 32;
    Wide squares = 0;
    for (int i = lane; i < K; i += 32)
        squares += Wide(from[i]) * Wide(from[i]);
    const Wide factor = scale / sqrt(ignis_warp_sum(squares) + Wide(1e-6)); /* as transformers */
    for (int i = lane; i < K; i += 32)
        to[i] = Wide(from[i]) * factor;
}

__device__ inline Wide softplus(Wide x) { return x > 20 ? x : Wide(log1p(exp(x))); }

/*  grid = blocks of 32 columns of v, heads of v, sequences. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_delta_net_rule(ignis__delta_net p)
{
    __shared__ Wide q[2][K], k[2][K], gains[2][2], sums[2][2][WARPS][32], products[2][WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane, head = blockIdx.y;
    const int key_head = p.tiled ? head % p.heads : head / (p.v_heads / p.heads);
    const bool exists = column < p.v;
    const long long first_row = (long long)blockIdx.z * p.tokens;
    Wide state[PART];
    ignis_grid_dependency();
    const ignis__generate_row &first = p.rows[first_row];
    const int position = first.position, turn = (position + first.turn) & 1;
    if (position < 0)
        return;
    const long long at = p.layer + ((long long)head * K + warp * PART) * p.v + column;
    const Wide *const from = (const Wide *)first.states + turn * p.state + at;
    Wide *const to = (Wide *)first.states + (1 - turn) * p.state + at;
#pragma unroll
    for (int i = 0; i < PART; i++)
        state[i] = exists && position > 0 ? from[(long long)i * p.v] : Wide(0);
    for (int token = 0; token < p.tokens; token++) {
        const long long row = first_row + token;
        const T *const mixed = p.mixed + row * p.channels;
        const int now = token & 1;
        if (warp == 0) {
            normalise(q[now], mixed + key_head * K, Wide(1) / sqrt(Wide(K)));
        } else if (warp == 1) {
            normalise(k[now], mixed + (p.heads + key_head) * K, Wide(1));
        } else if (warp == 2 && lane == 0) {
            const T *const own = p.strengths + row * 2 * p.v_heads + head;
            gains[now][0] = sigmoid(Wide(own[0]));
            gains[now][1] = exp(-exp(p.decay_log[head]) * softplus(Wide(own[p.v_heads]) + p.decay_bias[head]));
        }
        const Wide value = exists ? Wide(mixed[2 * p.heads * K + head * p.v + column]) : Wide(0);
        __syncthreads();
        const Wide decay = gains[now][1];
        Wide found = 0, result = 0, product = 0;
#pragma unroll
        for (int i = 0; i < PART; i++) {
            const Wide own_k = k[now][warp * PART + i], own_q = q[now][warp * PART + i];
            state[i] *= decay;
            found += state[i] * own_k;
            result += state[i] * own_q;
            product += own_k * own_q;
        }
        sums[now][0][warp][lane] = found;
        sums[now][1][warp][lane] = result;
        if (lane == 0)
            products[now][warp] = product;
        __syncthreads();
        found = result = product = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            found += sums[now][0][i][lane];
            result += sums[now][1][i][lane];
            product += products[now][i];
        }
        const Wide change = (value - found) * gains[now][0];
#pragma unroll
        for (int i = 0; i < PART; i++)
            state[i] += k[now][warp * PART + i] * change;
        if (warp == 0 && exists)
            p.out[row * p.width + head * p.v + column] = T(result + product * change);
    }
#pragma unroll
    for (int i = 0; i < PART; i++)
        if (exists)
            to[(long long)i * p.v] = state[i];
}
