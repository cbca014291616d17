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

#define THREADS 256
#define HEADS 2 /* that a thread rotates by the same angles; the host knows it too */

/*  Rotates N pairs in a few heads of a row, at the distance of the threads that share the row's heads. */
template <int N, typename Own>
__device__ void rotate(T *y, const T *x, long long y_row, long long x_row, const Own *own,
                       const frequency_table<Wide> &frequencies, long long rows, long long seq, long long offset,
                       const int2 *bounds, int heads, int half, double direction)
{
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    const int packs = half / N, groups = (heads + HEADS - 1) / HEADS;
    const long long per_row = (long long)packs * groups, r = thread / per_row;
    if (r >= rows)
        return;
    const int rest = (int)(thread - r * per_row), first = rest % packs * N, group = rest / packs;
    y += r * y_row + first;
    x += r * x_row + first;
    ignis_pack<T, N> a[HEADS], b[HEADS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const long long head = group + (long long)k * groups;
        if (head < heads) {
            a[k] = ignis_load<N>(x + head * 2 * half);
            b[k] = ignis_load<N>(x + head * 2 * half + half);
        }
    }
    Wide sine[N], cosine[N];
    const long long at = r % seq, start = bounds ? bounds[r / seq * (seq + 1) + at].x : 0;
    angles(sine, cosine, at - start + offset, own, frequencies.at, first, Wide(direction));
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const long long head = group + (long long)k * groups;
        if (head < heads) {
            turn_pairs(a[k], b[k], sine, cosine);
            ignis_store(y + head * 2 * half, a[k]);
            ignis_store(y + head * 2 * half + half, b[k]);
        }
    }
}

/*  The heads are at the beginning of rows of x_row and y_row elements. packed: half and the rows are
    multiples of a pack of 16 bytes, and x and y are aligned to that; then N is its elements, else 1. own:
    frequencies in memory, half of them, instead of those of the table; null: none. bounds: of documents, as in
    attention_bounds.cu, from whose first row positions count; null: from that of the sequence. For f64 they may be f64:
    own_is_wide. Blocks of THREADS threads, for rows * (half / N) * ceil(heads / HEADS) threads. y may be x. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    ignis_rope(T *y, const T *x, long long y_row, long long x_row, long long rows, long long seq, long long offset,
               const int2 *bounds, int heads, int half, double direction, int packed, const float *own, int own_is_wide,
               const __grid_constant__ frequency_table<Wide> frequencies)
{
    ignis_grid_dependency();
    if (sizeof(T) == 8 && own_is_wide)
        rotate<1>(y, x, y_row, x_row, (const Wide *)own, frequencies, rows, seq, offset, bounds, heads, half,
                  direction);
    else if (packed)
        rotate<16 / sizeof(T)>(y, x, y_row, x_row, own, frequencies, rows, seq, offset, bounds, heads, half, direction);
    else
        rotate<1>(y, x, y_row, x_row, own, frequencies, rows, seq, offset, bounds, heads, half, direction);
}
