// SPDX-License-Identifier: MIT
/*  rope.cu - rotary position embedding of the first heads of each of batches * seq rows

    The half-rotating form (Su and others: RoFormer, 2021; the order of Llama and Qwen): with half = head_dim
    / 2 and angle = position * frequency[i], position = row % seq + offset, elements i and i + half of every
    head rotate as a pair:
        y[i]        = x[i] * cos(angle) - x[i + half] * sin(angle)
        y[i + half] = x[i + half] * cos(angle) + x[i] * sin(angle)
    The backward pass rotates back: the same with direction -1.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>. */
#include "ignis.cuh"
#include "rope.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS IGNIS__ROPE_THREADS
#define HEADS IGNIS__ROPE_HEADS

/*  Rotates N pairs in a few heads of a row, at the distance of the threads that share the row's heads. */
template <int N, typename Own>
__device__ void rotate(T *y, const T *x, const ignis__rope_params &p, const Own *own,
                       const frequency_table<Wide> &frequencies)
{
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    const int packs = p.half / N, groups = (p.heads + HEADS - 1) / HEADS;
    const long long per_row = (long long)packs * groups, r = thread / per_row;
    if (r >= p.rows)
        return;
    const int rest = (int)(thread - r * per_row), first = rest % packs * N, group = rest / packs;
    y += r * p.y_row + first;
    x += r * p.x_row + first;
    ignis_pack<T, N> a[HEADS], b[HEADS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const long long head = group + (long long)k * groups;
        if (head < p.heads) {
            a[k] = ignis_load<N>(x + head * 2 * p.half);
            b[k] = ignis_load<N>(x + head * 2 * p.half + p.half);
        }
    }
    Wide sine[N], cosine[N];
    const long long at = r % p.seq, start = p.bounds ? p.bounds[r / p.seq * (p.seq + 1) + at].x : 0;
    angles(sine, cosine, at - start + p.offset, own, frequencies.at, first, Wide(p.direction));
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const long long head = group + (long long)k * groups;
        if (head < p.heads) {
            turn_pairs(a[k], b[k], sine, cosine);
            ignis_store(y + head * 2 * p.half, a[k]);
            ignis_store(y + head * 2 * p.half + p.half, b[k]);
        }
    }
}

/*  Blocks of THREADS threads, for rows * (half / N) * ceil(heads / HEADS) threads; N is 1, or if packed the elements of
    a pack. y may be x. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    ignis_rope(T *y, const T *x, const __grid_constant__ ignis__rope_params p,
               const __grid_constant__ frequency_table<Wide> frequencies)
{
    ignis_grid_dependency();
    if (sizeof(T) == 8 && p.own_is_wide)
        rotate<1>(y, x, p, (const Wide *)p.own, frequencies);
    else if (p.packed)
        rotate<16 / sizeof(T)>(y, x, p, p.own, frequencies);
    else
        rotate<1>(y, x, p, p.own, frequencies);
}
