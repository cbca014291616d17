// SPDX-License-Identifier: MIT
/*  fft.cu - complex Fourier transforms of one length, each read and written once (Stockham's autosort)

    A block transforms ROWS signals of N numbers with THREADS threads each. A thread computes butterflies in
    registers. Between two stages numbers go through shared memory, where one number in 16 (of f64: in 8) stays
    empty against bank conflicts. Roots of one are products of two exact ones from tables in shared memory.

    A program per length and kind of signal, compiled with
        -DIGNIS_T=<ignis_dtype>   IGNIS_F32 or IGNIS_F64
        -DIGNIS_N                 the length
        -DIGNIS_RADICES           of the stages: 4 bits each, the first ones lowest; radix - 1
        -DIGNIS_ROWS, -DIGNIS_THREADS
        -DIGNIS_LOAD, -DIGNIS_STORE   the kinds of signal: see fft.cuh
        -DIGNIS_HOW               the sum of: 1: neighbouring threads read neighbouring signals, and not neighbouring
                                  elements of one; 2: they write so; 4: a pass of Bluestein's algorithm; 8: results
                                  are multiplied by roots; 16: signals are neither cut nor
                                  filled, and pairs are aligned; 32, 64: elements of a signal are neighbours where
                                  they are read, where they are written; 128: the transform has no other pass

    Grid: tiles_a * count_b * (the number of indices c). Dynamic shared memory: see SHARED. */
#include "fft.cuh"

constexpr int N = IGNIS_N, ROWS = IGNIS_ROWS, THREADS = IGNIS_THREADS;
[[maybe_unused]] constexpr bool CHIRPS = IGNIS_HOW & 4, TURNS = IGNIS_HOW & 8, WHOLE = IGNIS_HOW & 16,
                                ADJACENT_IN = IGNIS_HOW & 32, ADJACENT_OUT = IGNIS_HOW & 64, ALONE = IGNIS_HOW & 128;
/*  Blocks of an SM at a time, which leave each thread some 80 registers (f64: 128): a block computes while others
    read. */
constexpr int BLOCK = ROWS * THREADS, RESIDENT = sizeof(T) == 4 ? 768 : 512,
              BLOCKS = BLOCK > RESIDENT       ? 1
                       : BLOCK < RESIDENT / 8 ? 8
                                              : (RESIDENT + BLOCK / 2) / BLOCK;
constexpr int PAD = sizeof(T) == 4 ? 16 : 8;
constexpr int ROW = (N + N / PAD) | 1;                             /* numbers from row to row in shared memory */
constexpr int LOW = N <= 256 ? N : 64, HIGH = (N + LOW - 1) / LOW; /* sizes of the tables of roots */
/*  SHARED: (ROWS * ROW + LOW + HIGH) complex numbers. */

/* >>butterflies ------------------------------------------------------------------------------------------------- */

/*  The sum of Taylor's series of the cosine and sine, for up to an eighth of a turn. */
__device__ constexpr double series(double x, double term, int from)
{
    double sum = term;
    for (int i = from; i < from + 20; i += 2) {
        term *= -x * x / (i * (i + 1.0));
        sum += term;
    }
    return sum;
}

/*  cos(2 pi k / n) and sin(2 pi k / n) for 0 <= k < n <= 16. */
__device__ constexpr double turn_sine(int k, int n)
{
    const double pi = 3.14159265358979323846;
    if (2 * k > n)
        return -turn_sine(n - k, n);
    if (4 * k > n)
        return turn_sine(n - 2 * k, 2 * n); /* sin(pi - x) */
    if (8 * k > n)
        return series(pi * (n - 4 * k) / (2.0 * n), 1, 1); /* cos(pi / 2 - x) */
    return series(2 * pi * k / n, 2 * pi * k / n, 2);
}
__device__ constexpr double turn_cosine(int k, int n) { return turn_sine((4 * k + n) % (4 * n), 4 * n); }

template <int n> struct Turns {
    T cosine[n], sine[n];
};
template <int n> __device__ constexpr Turns<n> turns()
{
    Turns<n> t = {};
    for (int k = 0; k < n; k++) {
        t.cosine[k] = T(turn_cosine(k, n));
        t.sine[k] = T(turn_sine(k, n));
    }
    return t;
}

__device__ constexpr int smallest_factor(int n)
{
    for (int f = 2; f * f <= n; f++)
        if (n % f == 0)
            return f;
    return n;
}

/*  Transforms x, whose result is in order. */
template <int R> __device__ inline void butterfly(Complex (&x)[R])
{
    constexpr Turns<R> t = turns<R>();
    if constexpr (R == 1) {
    } else if constexpr (R == 2) {
        const Complex sum = x[0] + x[1];
        x[1] = x[0] - x[1];
        x[0] = sum;
    } else if constexpr (R == 4) {
        const Complex a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = times_i(x[1] - x[3]);
        x[0] = a + c;
        x[1] = b - d;
        x[2] = a - c;
        x[3] = b + d;
    } else if constexpr (R % 2 && smallest_factor(R) == R) { /* an odd prime */
        constexpr int H = R / 2;
        Complex sum[H], difference[H], first = x[0];
#pragma unroll
        for (int m = 0; m < H; m++) {
            sum[m] = x[m + 1] + x[R - 1 - m];
            difference[m] = x[m + 1] - x[R - 1 - m];
            first = first + sum[m];
        }
#pragma unroll
        for (int k = 1; k <= H; k++) {
            Complex even = x[0], odd = {0, 0};
#pragma unroll
            for (int m = 0; m < H; m++) {
                const int at = k * (m + 1) % R;
                even = even + t.cosine[at] * sum[m];
                odd = odd + t.sine[at] * difference[m];
            }
            odd = times_i(odd);
            x[k] = even - odd;
            x[R - k] = even + odd;
        }
        x[0] = first;
    } else {
        constexpr int A = R == 16 ? 4 : smallest_factor(R), B = R / A;
        Complex columns[B][A];
#pragma unroll
        for (int j = 0; j < B; j++) {
#pragma unroll
            for (int i = 0; i < A; i++)
                columns[j][i] = x[i * B + j];
            butterfly<A>(columns[j]);
        }
#pragma unroll
        for (int k = 0; k < A; k++) {
            Complex row[B];
#pragma unroll
            for (int j = 0; j < B; j++)
                row[j] = j * k ? columns[j][k] * Complex{t.cosine[j * k], -t.sine[j * k]} : columns[j][k];
            butterfly<B>(row);
#pragma unroll
            for (int i = 0; i < B; i++)
                x[k + A * i] = row[i];
        }
    }
}

/* >>stages ------------------------------------------------------------------------------------------------------ */

/*  Where a thread works: row and thread of the block, index a of the row, the signal, and its first element. */
struct Place {
    long long signal;
    int row, thread, a, first;
    bool valid;
};

/*  Finds a thread's place on a side. along: neighbouring threads have neighbouring signals. */
__device__ inline Place place(const fft_params &p, const ignis__fft_side &side, bool along)
{
    unsigned tile = blockIdx.x, b = 0, c = 0;
    if (gridDim.x != (unsigned)p.tiles_a) {
        c = tile / (unsigned)p.tiles_a;
        tile -= c * (unsigned)p.tiles_a;
        b = c % (unsigned)p.count_b;
        c /= (unsigned)p.count_b;
    }
    Place at;
    at.row = along ? (int)threadIdx.x % ROWS : (int)threadIdx.x / THREADS;
    at.thread = along ? (int)threadIdx.x / ROWS : (int)threadIdx.x % THREADS;
    const long long a = (long long)tile * ROWS + at.row;
    at.valid = a < p.count_a;
    at.a = (int)a;
    at.signal = a * side.a + b * side.b + c * side.c;
    at.first = at.a * side.first_a + (int)b * side.first_b;
    return at;
}

__device__ constexpr int radix(int stage) { return (int)((unsigned long long)IGNIS_RADICES >> 4 * stage & 15) + 1; }
__device__ constexpr int padded(int i) { return i + i / PAD; }

/*  Returns where number base + offset of a row is, from where base is. sums: one of the two is a multiple of PAD, or
    both rests together are below it. */
template <bool sums> __device__ inline int padded_sum(int base, int base_padded, int offset)
{
    return sums ? base_padded + padded(offset) : padded(base + offset);
}

__device__ inline Complex root_from(const Complex *tables, int q)
{
    if constexpr (HIGH == 1)
        return tables[q];
    return tables[q % LOW] * tables[LOW + q / LOW];
}

/*  Multiplies number r by the r-th power of exp(-2 pi i q / N). Powers of 2 are from the tables, others are products of
    two others. */
template <int R> __device__ inline void multiply_by_roots(Complex (&x)[R], const Complex *tables, int q)
{
    Complex power[R];
#pragma unroll
    for (int r = 1; r < R; r++) {
        const int low = r & (r - 1), high = r - low; /* high: the lowest bit */
        power[r] = low ? power[low] * power[high] : root_from(tables, q * r);
        x[r] = x[r] * power[r];
    }
}

/*  Reads the numbers of a butterfly from a signal. */
template <int R> __device__ inline void read(Complex (&x)[R], const fft_params &p, const Place &at, int first)
{
    constexpr int BUTTERFLIES = N / R;
    if (IGNIS_LOAD == IGNIS__FFT_COMPLEX && WHOLE) {
        const Complex *from =
            (const Complex *)p.in + at.signal + (long long)(at.first + first * p.from.step) * p.from.stride;
        const long long step = ADJACENT_IN ? 1 : p.from.step * p.from.stride;
#pragma unroll
        for (int r = 0; r < R; r++)
            x[r] = from[r * BUTTERFLIES * step];
        if (p.how & IGNIS__FFT_SWAP_IN) {
#pragma unroll
            for (int r = 0; r < R; r++)
                x[r] = swapped(x[r]);
        }
    } else {
        const int points = ALONE ? N : p.points;
        const T inner = T(p.inner);
#pragma unroll
        for (int r = 0; r < R; r++)
            x[r] = fft_load<IGNIS_LOAD, CHIRPS, WHOLE>(p, at.signal, at.first + (first + r * BUTTERFLIES) * p.from.step,
                                                       points, inner);
    }
}

/*  Writes the results of a butterfly of the last stage to a signal. */
template <int R> __device__ inline void write(Complex (&x)[R], const fft_params &p, const Place &at, int first)
{
    constexpr int SIZE = N / R;
    const T scale = T(p.scale);
    if constexpr (TURNS) {
        const T inverse = T(1) / T((unsigned)p.turn);
#pragma unroll
        for (int r = 0; r < R; r++)
            x[r] = x[r] * root((unsigned)at.a * (unsigned)(first + r * SIZE), (unsigned)p.turn, inverse);
    }
    if (IGNIS_STORE == IGNIS__FFT_COMPLEX && WHOLE) {
        Complex *to = (Complex *)p.out + at.signal + (long long)(at.first + first * p.to.step) * p.to.stride;
        const long long step = ADJACENT_OUT ? 1 : p.to.step * p.to.stride;
        const bool swaps = p.how & IGNIS__FFT_SWAP_OUT;
#pragma unroll
        for (int r = 0; r < R; r++)
            to[r * SIZE * step] = scale * (swaps ? swapped(x[r]) : x[r]);
    } else {
#pragma unroll
        for (int r = 0; r < R; r++)
            fft_store<IGNIS_STORE, CHIRPS, WHOLE>(p, at.signal, at.first + (first + r * SIZE) * p.to.step, scale, x[r]);
    }
}

/*  Runs the stage that makes transforms of SIZE * R numbers from those of SIZE, and the stages after it. */
template <int STAGE, int SIZE> __device__ inline void stages(const fft_params &p, Complex *rows, const Complex *tables)
{
    constexpr int R = radix(STAGE), BUTTERFLIES = N / R, COUNT = (BUTTERFLIES + THREADS - 1) / THREADS;
    constexpr bool is_last = SIZE * R == N;
    const Place at = STAGE == 0 ? place(p, p.from, IGNIS_HOW & 1) : place(p, p.to, IGNIS_HOW & 2);
    Complex x[COUNT][R], *row = rows + at.row * ROW;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int first = at.thread + i * THREADS;
        if (BUTTERFLIES % THREADS && first >= BUTTERFLIES)
            break;
        if constexpr (STAGE == 0) {
            if (at.valid)
                read(x[i], p, at, first);
        } else {
            const int first_padded = padded(first);
#pragma unroll
            for (int r = 0; r < R; r++)
                x[i][r] = row[padded_sum<BUTTERFLIES % PAD == 0>(first, first_padded, r * BUTTERFLIES)];
            multiply_by_roots(x[i], tables, first % SIZE * (N / (SIZE * R)));
        }
        butterfly<R>(x[i]);
    }
    if constexpr (is_last && IGNIS_STORE != IGNIS__FFT_MERGED) {
        const Place to = place(p, p.to, IGNIS_HOW & (STAGE == 0 ? 1 : 2));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int first = to.thread + i * THREADS;
            if (!to.valid || (BUTTERFLIES % THREADS && first >= BUTTERFLIES))
                break;
            write(x[i], p, to, first);
        }
    } else {
        if constexpr (STAGE > 0)
            __syncthreads(); /* all have read */
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int first = at.thread + i * THREADS, base = first / SIZE * SIZE * R + first % SIZE,
                      base_padded = padded(base);
            if (BUTTERFLIES % THREADS && first >= BUTTERFLIES)
                break;
#pragma unroll
            for (int r = 0; r < R; r++)
                row[padded_sum < SIZE % PAD == 0 || (SIZE == 1 && R % PAD == 0) > (base, base_padded, r * SIZE)] =
                    x[i][r];
        }
        __syncthreads();
        if constexpr (!is_last)
            stages<STAGE + 1, SIZE * R>(p, rows, tables);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS) ignis_fft(const fft_params p)
{
    extern __shared__ __align__(16) char memory[];
    Complex *rows = (Complex *)memory, *tables = rows + ROWS * ROW;
    for (int i = (int)threadIdx.x; i < LOW + HIGH; i += BLOCK)
        tables[i] = i < LOW ? root((unsigned)i, N) : root((unsigned)(i - LOW) * LOW, N);
    ignis_grid_dependency_wait();
    stages<0, 1>(p, rows, tables);
    if constexpr (IGNIS_STORE == IGNIS__FFT_MERGED) {
        const Place to = place(p, p.to, IGNIS_HOW & 2);
        const Complex *row = rows + to.row * ROW;
        for (int k = to.thread; to.valid && k <= N / 2; k += THREADS)
            fft_store_merged<WHOLE>(p, to.signal, N, k, row[padded(k)], row[padded(k ? N - k : 0)]);
    }
}
