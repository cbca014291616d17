// SPDX-License-Identifier: MIT
/*  rope.cu - rotary position embedding of the first heads of each of batches * seq rows

    The half-rotating form (Su and others: RoFormer, 2021; the order of Llama and Qwen): with half = head_dim / 2 and
    angle = position * frequency[i], position = row % seq + offset, elements i and i + half of every head turn as a pair:
        y[i]        = x[i] * cos(angle) - x[i + half] * sin(angle)
        y[i + half] = x[i + half] * cos(angle) + x[i] * sin(angle)
    The backward pass turns back: the same with direction -1.

    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS 256
#define MAX_HALF 256 /* of the table that comes with the launch; the host's has as many */
#define HEADS 4 /* that a thread turns by the same angles */

/*  As a parameter the table needs no memory that would have to live as long as a graph which captured the launch. */
struct frequency_table {
    float at[MAX_HALF];
};

/*  Sine and cosine of position * frequency, as if computed exactly and rounded at the end, to a few units in the last place, for
    angles up to 4 million. Both steps that would lose digits are done with an error term: the product, and the subtraction of
    multiples of pi / 2 (Cody, Waite: Software Manual for the Elementary Functions, 1980). The polynomials are those of Moshier's
    Cephes library. It needs no slow path for large angles, which sincosf has. */
__device__ inline void sine_cosine(float position, float frequency, float &sine, float &cosine)
{
    const float angle = position * frequency, angle_error = fmaf(position, frequency, -angle);
    const float quarters = rintf(angle * 0.636619772f);
    float x = fmaf(-quarters, 1.57079637f, angle); /* exact */
    x += fmaf(-quarters, -4.37113883e-8f, angle_error);
    const float z = x * x;
    const float s = fmaf(x * z, fmaf(z, fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
    const float c = fmaf(z * z, fmaf(z, fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f), fmaf(z, -0.5f, 1.0f));
    const int quarter = (int)quarters & 3;
    sine = quarter & 1 ? c : s;
    cosine = quarter & 1 ? s : c;
    sine = quarter & 2 ? -sine : sine;
    cosine = (quarter + 1) & 2 ? -cosine : cosine;
}

__device__ inline void sine_cosine(double position, double frequency, double &sine, double &cosine)
{
    sincos(position * frequency, &sine, &cosine);
}

/*  A thread turns N pairs in a few heads of a row, at the distance of the threads that share the row's heads. */
template <int N>
__device__ void turn(T *y, const T *x, long long y_row, long long x_row, const float *own, const frequency_table &frequencies, long long rows, long long seq, long long offset, int heads, int half, double direction)
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
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float frequency = own ? own[first + i] : frequencies.at[first + i];
        sine_cosine(Wide(r % seq + offset), Wide(frequency), sine[i], cosine[i]);
        sine[i] *= Wide(direction);
    }
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const long long head = group + (long long)k * groups;
        if (head < heads) {
            Wide turned_a[N], turned_b[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                turned_a[i] = Wide(a[k][i]) * cosine[i] - Wide(b[k][i]) * sine[i];
                turned_b[i] = Wide(b[k][i]) * cosine[i] + Wide(a[k][i]) * sine[i];
            }
            ignis_store(y + head * 2 * half, ignis_pack_round<T>(turned_a));
            ignis_store(y + head * 2 * half + half, ignis_pack_round<T>(turned_b));
        }
    }
}

/*  The heads are those at the beginning of rows of x_row and y_row elements.
    packed: half and the rows are multiples of a pack of 16 bytes, and x and y are aligned to that; then N is its elements, else 1.
    own: frequencies in memory, half of them, instead of those of the table; null: none.
    Blocks of THREADS threads, for rows * (half / N) * ceil(heads / HEADS) threads. y may be x. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_rope(T *y, const T *x, long long y_row, long long x_row, long long rows, long long seq, long long offset, int heads, int half, double direction, int packed,
               const float *own, const __grid_constant__ frequency_table frequencies)
{
    if (packed)
        turn<16 / sizeof(T)>(y, x, y_row, x_row, own, frequencies, rows, seq, offset, heads, half, direction);
    else
        turn<1>(y, x, y_row, x_row, own, frequencies, rows, seq, offset, heads, half, direction);
}
