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
        -DIGNIS_ALONG             1: neighbouring threads read neighbouring signals, and not neighbouring
                                  elements of one; 2: they write so; 3: both

    Grid: tiles_a * count_b * (the number of indices c). Dynamic shared memory: see SHARED. */
#include "fft.cuh"

constexpr int N = IGNIS_N, ROWS = IGNIS_ROWS, THREADS = IGNIS_THREADS;
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

/*  Where a thread of a block works. */
struct Place {
    long long from, to; /* the signals */
    int a, from_first, to_first, row, thread;
    bool valid;
};

__device__ inline Place place(const fft_params &p, bool along, unsigned tile, unsigned b, unsigned c)
{
    Place at;
    at.row = (int)threadIdx.x / THREADS;
    at.thread = (int)threadIdx.x % THREADS;
    if (along) {
        at.row = (int)threadIdx.x % ROWS;
        at.thread = (int)threadIdx.x / ROWS;
    }
    const long long a = (long long)tile * ROWS + at.row;
    at.valid = a < p.count_a;
    at.a = (int)a;
    at.from = a * p.from.a + b * p.from.b + c * p.from.c;
    at.to = a * p.to.a + b * p.to.b + c * p.to.c;
    at.from_first = at.a * p.from.first_a + (int)b * p.from.first_b;
    at.to_first = at.a * p.to.first_a + (int)b * p.to.first_b;
    return at;
}

__device__ constexpr int radix(int stage) { return (int)((unsigned long long)IGNIS_RADICES >> 4 * stage & 15) + 1; }
__device__ constexpr int padded(int i) { return i + i / PAD; }

__device__ inline Complex root_from(const Complex *tables, int q)
{
    if constexpr (HIGH == 1)
        return tables[q];
    return tables[q % LOW] * tables[LOW + q / LOW];
}

/*  Runs the stage that makes transforms of SIZE * R numbers from those of SIZE, and the stages after it. */
template <int STAGE, int SIZE>
__device__ inline void stages(const fft_params &p, const Place &in, const Place &out, Complex *rows,
                              const Complex *tables)
{
    constexpr int R = radix(STAGE), BUTTERFLIES = N / R, COUNT = (BUTTERFLIES + THREADS - 1) / THREADS;
    constexpr bool is_last = SIZE * R == N;
    const Place &at = STAGE == 0 ? in : out;
    Complex x[COUNT][R];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int first = at.thread + i * THREADS;
        if (BUTTERFLIES % THREADS && first >= BUTTERFLIES)
            break;
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int j = first + r * BUTTERFLIES;
            if constexpr (STAGE == 0)
                x[i][r] = at.valid ? fft_load<IGNIS_LOAD>(p, at.from, at.from_first + j * p.from.step) : Complex{0, 0};
            else
                x[i][r] = rows[at.row * ROW + padded(j)];
        }
        if constexpr (STAGE > 0) {
#pragma unroll
            for (int r = 1; r < R; r++)
                x[i][r] = x[i][r] * root_from(tables, first % SIZE * r * (N / (SIZE * R)));
        }
        butterfly<R>(x[i]);
    }
    if constexpr (is_last && IGNIS_STORE != IGNIS__FFT_MERGED) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int first = at.thread + i * THREADS;
            if (!at.valid || (BUTTERFLIES % THREADS && first >= BUTTERFLIES))
                break;
#pragma unroll
            for (int r = 0; r < R; r++) {
                const int k = first + r * SIZE;
                if (p.turn)
                    x[i][r] = x[i][r] * root((long long)at.a * k, p.turn);
                fft_store<IGNIS_STORE>(p, at.to, at.to_first + k * p.to.step, x[i][r]);
            }
        }
    } else {
        if constexpr (STAGE > 0)
            __syncthreads(); /* all have read */
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int first = at.thread + i * THREADS;
            if (BUTTERFLIES % THREADS && first >= BUTTERFLIES)
                break;
#pragma unroll
            for (int r = 0; r < R; r++)
                rows[at.row * ROW + padded(first / SIZE * SIZE * R + first % SIZE + r * SIZE)] = x[i][r];
        }
        __syncthreads();
        if constexpr (!is_last)
            stages<STAGE + 1, SIZE * R>(p, in, out, rows, tables);
    }
}

extern "C" __global__ void __launch_bounds__(ROWS *THREADS) ignis_fft(const fft_params p)
{
    extern __shared__ __align__(16) char memory[];
    Complex *rows = (Complex *)memory, *tables = rows + ROWS * ROW;
    const unsigned tile = blockIdx.x % (unsigned)p.tiles_a, rest = blockIdx.x / (unsigned)p.tiles_a,
                   b = rest % (unsigned)p.count_b, c = rest / (unsigned)p.count_b;
    const Place in = place(p, IGNIS_ALONG & 1, tile, b, c), out = place(p, IGNIS_ALONG & 2, tile, b, c);
    for (int i = (int)threadIdx.x; i < LOW + HIGH; i += ROWS * THREADS)
        tables[i] = i < LOW ? root(i, N) : root((long long)(i - LOW) * LOW, N);
    ignis_grid_dependency_wait();
    stages<0, 1>(p, in, out, rows, tables);
    if constexpr (IGNIS_STORE == IGNIS__FFT_MERGED) {
        const Complex *row = rows + out.row * ROW;
        for (int k = out.thread; out.valid && k <= N / 2; k += THREADS)
            fft_store_merged(p, out.to, N, k, row[padded(k)], row[padded(k ? N - k : 0)]);
    }
}
