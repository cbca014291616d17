// SPDX-License-Identifier: MIT
/*  models/delta_net_rule.cu - the gated delta rule (Yang, Kautz, Hatamizadeh 2024), token by token

    The state S of a head [k, v] is read once and written once, and stays in registers for all tokens between. Of token
    t, with keys and queries of length 1:
        S = decay S;  d = strength (v - k^T S);  S = S + k d^T;  out = q^T S = q^T (decay S) + (q^T k) d
    LANES lanes have a column of S, so a token needs shuffles and no barrier. Tokens come in groups: the inputs of the
    next group are loaded while the state passes through this one. A row has the same bits alone, in a batch and in a
    chunk; docs/models.md says why the rule in chunks is not used here. Compiled with -DIGNIS_T=<1 to 4> and
    -DIGNIS_DELTA_K=<elements of a head of k>, a multiple of 4 up to 256.
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

constexpr int K = IGNIS_DELTA_K, WARPS = 8, COLUMNS = 32, LANES = WARPS * 32 / COLUMNS;
constexpr int PARTS = (K + 31) / 32, PADDED = 32 * PARTS; /* a lane has 4 rows of each 32 of its column */
constexpr int FIT = (36 << 10) / (4 * PADDED * (int)sizeof(Wide)), GROUP = FIT < 16 ? FIT : 16; /* tokens */
constexpr int TURNS = (GROUP + WARPS - 1) / WARPS; /* tokens of a group that a warp prepares */
static_assert(K % 4 == 0 && K <= 256 && LANES * 4 == 32 && GROUP > 1, "a lane has packs of 4 rows");

/*  The inputs of a group of tokens, ready for the rule. product: q^T k. */
struct alignas(32) group {
    Wide q[GROUP][PADDED], k[GROUP][PADDED], value[GROUP][COLUMNS], strength[GROUP], decay[GROUP], product[GROUP];
};

/*  The inputs of tokens that a lane has read for its warp. gain: lane 0 has the strength, lane 1 the decay. */
struct inputs {
    T q[TURNS][PARTS], k[TURNS][PARTS], value[TURNS], gain[TURNS];
};

__device__ inline Wide softplus(Wide x) { return x > 20 ? x : Wide(log1p(exp(x))); }

/*  A head of v of a sequence, and the columns of a block. */
struct head_columns {
    const ignis__delta_net &p;
    const int head, key_head, first_column;
    const long long first_row;

    __device__ head_columns(const ignis__delta_net &p)
        : p(p), head(blockIdx.y), key_head(p.tiled ? head % p.heads : head / (p.v_heads / p.heads)),
          first_column(blockIdx.x * COLUMNS), first_row((long long)blockIdx.z * p.tokens)
    {
    }

    /*  Reads the inputs of the tokens of a group that this warp prepares. */
    __device__ void fetch(int first, inputs &in) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int token = turn * WARPS + warp;
            if (token >= GROUP || first + token >= p.tokens)
                continue;
            const long long row = first_row + first + token;
            const T *const mixed = p.mixed + row * p.channels, *const q = mixed + key_head * K;
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const bool exists = 32 * i + lane < K;
                in.q[turn][i] = exists ? q[32 * i + lane] : T(0);
                in.k[turn][i] = exists ? q[p.heads * K + 32 * i + lane] : T(0);
            }
            if (first_column + lane < p.v)
                in.value[turn] = mixed[2 * p.heads * K + head * p.v + first_column + lane];
            if (lane < 2)
                in.gain[turn] = p.strengths[row * 2 * p.v_heads + lane * p.v_heads + head];
        }
    }

    /*  Makes q and k of length 1, as transformers, and the gains numbers. */
    __device__ void prepare(int first, const inputs &in, group &to) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int token = turn * WARPS + warp;
            if (token >= GROUP || first + token >= p.tokens)
                continue;
            Wide q_square = 0, k_square = 0, product = 0;
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                q_square += Wide(in.q[turn][i]) * Wide(in.q[turn][i]);
                k_square += Wide(in.k[turn][i]) * Wide(in.k[turn][i]);
            }
            const Wide q_factor = Wide(1) / sqrt(Wide(K)) / sqrt(ignis_warp_sum(q_square) + Wide(1e-6)),
                       k_factor = Wide(1) / sqrt(ignis_warp_sum(k_square) + Wide(1e-6));
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const Wide q = Wide(in.q[turn][i]) * q_factor, k = Wide(in.k[turn][i]) * k_factor;
                to.q[token][32 * i + lane] = q;
                to.k[token][32 * i + lane] = k;
                product += q * k;
            }
            product = ignis_warp_sum(product);
            to.value[token][lane] = first_column + lane < p.v ? Wide(in.value[turn]) : Wide(0);
            if (lane == 0) {
                to.strength[token] = sigmoid(Wide(in.gain[turn]));
                to.product[token] = product;
            } else if (lane == 1) {
                to.decay[token] =
                    exp(-exp(p.decay_log[head]) * softplus(Wide(in.gain[turn]) + p.decay_bias[head]));
            }
        }
    }
};

/*  grid = blocks of COLUMNS columns of v, heads of v, sequences. A state in memory has, of each 32 rows, 4 times those
    that the lanes of all columns have at a time: row 32 i + 4 part + r of a column is at r, column, part. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) ignis_delta_net_rule(ignis__delta_net p)
{
    __shared__ group groups[2];
    const head_columns own(p);
    const int part = threadIdx.x % LANES, place = threadIdx.x / LANES, column = own.first_column + place;
    Wide state[PARTS][4];
    inputs in;
    ignis_grid_dependency();
    const ignis__generate_row &first_of = p.rows[own.first_row];
    const int position = first_of.position, turn = (position + first_of.turn) & 1;
    if (position < 0)
        return;
    const long long at = p.layer + (long long)own.head * K * p.v;
    const Wide *const from = (const Wide *)first_of.states + turn * p.state + at;
    Wide *const to = (Wide *)first_of.states + (1 - turn) * p.state + at;
    const auto offset = [&](int i, int r, int lanes) {
        return (long long)32 * i * p.v + ((long long)r * p.v + column) * lanes + part;
    };
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const int lanes = min(LANES, K / 4 - LANES * i); /* that have rows of these */
#pragma unroll
        for (int r = 0; r < 4; r++)
            state[i][r] = column < p.v && part < lanes && position > 0 ? from[offset(i, r, lanes)] : Wide(0);
    }
    own.fetch(0, in);
    own.prepare(0, in, groups[0]);
    for (int first = 0, now = 0; first < p.tokens; first += GROUP, now ^= 1) {
        const group &g = groups[now];
        __syncthreads(); /* the group is ready, and all have read the one before it */
        own.fetch(first + GROUP, in);
        for (int token = 0; token < GROUP && first + token < p.tokens; token++) {
            const Wide decay = g.decay[token];
            Wide found = 0, result = 0;
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const auto k = *(const ignis_pack<Wide, 4> *)&g.k[token][32 * i + 4 * part];
                const auto q = *(const ignis_pack<Wide, 4> *)&g.q[token][32 * i + 4 * part];
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    state[i][r] *= decay;
                    found += state[i][r] * k[r];
                    result += state[i][r] * q[r];
                }
            }
#pragma unroll
            for (int mask = 1; mask < LANES; mask *= 2) {
                found += __shfl_xor_sync(0xffffffff, found, mask);
                result += __shfl_xor_sync(0xffffffff, result, mask);
            }
            const Wide change = (g.value[token][place] - found) * g.strength[token];
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const auto k = *(const ignis_pack<Wide, 4> *)&g.k[token][32 * i + 4 * part];
#pragma unroll
                for (int r = 0; r < 4; r++)
                    state[i][r] += k[r] * change;
            }
            if (part == 0 && column < p.v)
                p.out[(own.first_row + first + token) * p.width + own.head * p.v + column] =
                    T(result + g.product[token] * change);
        }
        own.prepare(first + GROUP, in, groups[1 - now]);
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const int lanes = min(LANES, K / 4 - LANES * i);
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (column < p.v && part < lanes)
                to[offset(i, r, lanes)] = state[i][r];
    }
}
