// SPDX-License-Identifier: MIT
/*  models/delta_net.cu - recurrent layers besides their state: the convolution, the norm; the gate of attention

    A row has the same bits alone, in a batch and in a chunk. One program per element type: compiled with
    -DIGNIS_T=<1 to 4>. delta_net_rule.cu has the state.
*/
#include "ignis.cuh"
#include "activation.cuh"
#include "generate.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;
#include "shared/models/delta_net.h"

/*  Writes silu of the convolution of each channel with the latest `window` rows of qkv of the sequence, and after its
    last row what the next one needs. grid = blocks of channels, rows. */
extern "C" __global__ void __launch_bounds__(256) ignis_delta_net_conv(ignis__delta_net p)
{
    const int channel = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y, token = row % p.tokens, before = p.window - 1;
    ignis_grid_dependency();
    const ignis__generate_row &first = p.rows[row - token];
    const int position = first.position, turn = (position + first.turn) & 1;
    if (position < 0 || channel >= p.channels)
        return;
    const long long at = p.layer + (long long)p.width * p.k + channel, stride = p.channels + p.width;
    const Wide *const from = (const Wide *)first.states + turn * p.state + at;
    Wide *const to = (Wide *)first.states + (1 - turn) * p.state + at;
    const T *const own = p.qkvz + (row - token) * stride + channel;
    const auto input = [&](int i) { /* of token i of this launch, or one before the first */
                                    return i >= 0              ? Wide(own[i * stride])
                                           : position + i >= 0 ? from[(long long)(before + i) * p.channels]
                                                               : Wide(0);
    };
    Wide sum = 0;
    for (int i = 0; i < p.window; i++)
        sum += Wide(p.conv[(long long)channel * p.window + i]) * input(token - before + i);
    p.mixed[(long long)row * p.channels + channel] = T(sum * sigmoid(sum));
    for (int i = 0; token == p.tokens - 1 && i < before; i++)
        to[(long long)i * p.channels] = input(p.tokens - before + i);
}

/*  Replaces each head of `out` by its rms_norm times silu of its gate. grid = rows. A warp has a head. */
extern "C" __global__ void __launch_bounds__(256) ignis_delta_net_norm(ignis__delta_net p)
{
    const int lane = threadIdx.x % 32;
    const long long row = blockIdx.x;
    ignis_grid_dependency();
    for (int head = threadIdx.x / 32; head < p.v_heads; head += 8) {
        T *const x = p.out + row * p.width + (long long)head * p.v;
        const T *const gate = p.qkvz + row * (p.channels + p.width) + p.channels + (long long)head * p.v;
        Wide squares = 0;
        for (int i = lane; i < p.v; i += 32)
            squares += Wide(x[i]) * Wide(x[i]);
        const Wide factor = Wide(1) / sqrt(ignis_warp_sum(squares) / Wide(p.v) + Wide(p.eps));
        for (int i = lane; i < p.v; i += 32) {
            const Wide z = Wide(gate[i]);
            x[i] = T(Wide(x[i]) * factor * Wide(p.norm[i]) * (z * sigmoid(z)));
        }
    }
}

/*  Multiplies x by the sigmoids of the gates. grid = any number of blocks. */
extern "C" __global__ void __launch_bounds__(256) ignis_delta_net_gate(T *x, const T *gates, long long count)
{
    ignis_grid_dependency();
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < count; i += gridDim.x * 256LL)
        x[i] = T(Wide(x[i]) * sigmoid(Wide(gates[i])));
}
