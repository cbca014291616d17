// SPDX-License-Identifier: MIT
/*  attention_sinks.cu - the gradient of the sinks of attention

    A sink is the score of a key that every query of a head sees, and whose value is 0 (Xiao et al. 2024). So its dP is
    0, and its dS is -P delta, with P = e^(sink - lse). The other gradients need nothing new: lse has the sink.
    One program for each type: compiled with -DIGNIS_T=<ignis_dtype>. */
#include "ignis.cuh"
#include "attention.cuh"

constexpr int THREADS = 512;

/*  Writes the gradient, of the type of p.sinks. delta [batch, heads, rows]: of p.sq rows of the `rows` of a head. Rows
    that see no key may have anything there. Rows are added up in a fixed order. grid = heads. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_sdpa_backward_sinks(Attention p, const Wide *delta, int rows, void *grad)
{
    ignis_grid_dependency();
    const int h = blockIdx.x;
    const Wide sink = p.sink(h);
    const long long all = (long long)p.batches * p.sq;
    Wide sum = 0;
    for (long long i = threadIdx.x; i < all; i += THREADS) {
        const long long b = i / p.sq, row = i % p.sq, at = p.stat(b, h) + row;
        const Wide lse = p.lse[at], log_sum = p.bias.data ? p.lse[p.stat(p.batches, 0) + at] : Wide(0);
        const Wide share = Wide(exp2((sink - lse) * Wide(LOG2) - log_sum));
        if (lse != ignis_infinity<Wide>()) /* the largest numbers leave no digits for a difference: a share is 1 then */
            sum -= (share > 1 ? Wide(1) : share) * delta[(b * p.heads + h) * rows + row];
    }
    sum = ignis_block_sum(sum);
    if (threadIdx.x > 0)
        return;
    if (p.wide_sinks)
        ((Wide *)grad)[h] = sum;
    else
        ((T *)grad)[h] = T(sum);
}
