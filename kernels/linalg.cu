// SPDX-License-Identifier: MIT
/*  linalg.cu - Cholesky and LU factors, triangular systems, determinants

    Matrices of up to 64 rows are factored by a team of threads in shared memory. The host cuts larger ones
    into blocks, and updates these by matrix products. A view with negative strides turns an upper triangle
    into a lower one, and one with exchanged strides is a transpose: one kernel solves all triangular systems.

    info[matrix] is 0, or the number of the first pivot that failed, counted from 1. Kernels keep what is not 0. */
#include "ignis.cuh"

#include "linalg.cuh"

#define THREADS IGNIS__LINALG_THREADS

/* >>copies ------------------------------------------------------------------------------------------------------ */

/*  to = from inside the band low <= column - row <= high, 0 outside. subtract: to -= from instead, inside the band. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_copy(Matrix to, Matrix from, long long rows, long long columns, long long batch, long long low,
                      long long high, int subtract)
{
    const long long count = rows * columns * batch, step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < count; item += step) {
        const long long j = item % columns, i = item / columns % rows, matrix = item / columns / rows;
        const bool inside = low <= j - i && j - i <= high;
        if (!subtract)
            to(matrix, i, j) = inside ? from(matrix, i, j) : T(0);
        else if (inside)
            to(matrix, i, j) -= from(matrix, i, j);
    }
}

/* >>cholesky ---------------------------------------------------------------------------------------------------- */

/*  Writes L with a = L L^T, of which the lower triangle is read, row by row from the left (Golub and Van Loan 2013,
    4.2.5). From a pivot that is not above 0 on, L is NaN. n is 64 at most. zeros: also writes those above the
    diagonal. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_TEAM_THREADS)
    ignis_linalg_cholesky(Matrix to, Matrix a, int *info, int n, long long batch, int first, int zeros, int lanes)
{
    const Team team(lanes);
    const bool live = team.matrix < batch;
    const int stride = n | 1;
    T *const l = team_memory(team, n * stride + 1), *const diagonal = l + n * stride;
    int failed = 0;

    for (int i = 0; i < n; i++)
        for (int j = team.rank; j <= i; j += team.size)
            l[i * stride + j] = live ? a(team.matrix, i, j) : T(1);
    team.sync();
    for (int k = 0; k < n; k++) {
        T sum = 0;
        for (int i = k + team.rank; i < n; i += team.size) { /* one round, as a team has n threads */
            T odd = 0;
            int p = 0;
            sum = l[i * stride + k];
            for (; p + 1 < k; p += 2) {
                sum -= l[i * stride + p] * l[k * stride + p];
                odd += l[i * stride + p + 1] * l[k * stride + p + 1];
            }
            if (p < k)
                sum -= l[i * stride + p] * l[k * stride + p];
            sum -= odd;
        }
        if (team.rank == 0)
            *diagonal = sum > 0 ? sqrt(sum) : not_a_number();
        team.sync();
        const T pivot = *diagonal;
        if (!(pivot == pivot) && !failed)
            failed = first + k + 1;
        if (k + team.rank < n)
            l[(k + team.rank) * stride + k] = team.rank == 0 ? pivot : sum / pivot;
        team.sync();
    }
    for (int i = 0; i < n && live; i++)
        for (int j = team.rank; j < (zeros ? n : i + 1); j += team.size)
            to(team.matrix, i, j) = j <= i ? l[i * stride + j] : T(0);
    if (live && team.rank == 0 && failed && !info[team.matrix])
        info[team.matrix] = failed;
}

/* >>triangular -------------------------------------------------------------------------------------------------- */

/*  Replaces b by L^-1 b, of `tile` columns a team: a power of 2. unit: the diagonal of L counts as ones. n is 64 at
    most; parts: tiles of a matrix. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_TEAM_THREADS)
    ignis_linalg_solve_lower(Matrix lower, Matrix b, int n, long long columns, long long parts, long long batch,
                             int tile, int unit, int lanes)
{
    const Team team(lanes);
    const long long matrix = team.matrix / parts, column = team.matrix % parts * tile;
    const bool live = matrix < batch;
    const int stride = n | 1, width = (int)min((long long)tile, columns - column), shift = __ffs(tile) - 1;
    T *const l = team_memory(team, n * (stride + tile)), *const x = l + n * stride;

    for (int i = 0; i < n; i++)
        for (int j = team.rank; j <= i; j += team.size)
            l[i * stride + j] = live ? lower(matrix, i, j) : T(1);
    for (int e = team.rank; e < n * tile; e += team.size) {
        const int i = e >> shift, c = e & (tile - 1);
        x[e] = live && c < width ? b(matrix, i, column + c) : T(0);
    }
    team.sync();
    for (int k = 0; k < n; k++) {
        if (!unit)
            for (int c = team.rank; c < tile; c += team.size)
                x[k * tile + c] /= l[k * stride + k];
        team.sync();
        for (int e = (k + 1) * tile + team.rank; e < n * tile; e += team.size)
            x[e] -= l[(e >> shift) * stride + k] * x[k * tile + (e & (tile - 1))];
        team.sync();
    }
    for (int e = team.rank; e < n * tile && live; e += team.size) {
        const int i = e >> shift, c = e & (tile - 1);
        if (c < width)
            b(matrix, i, column + c) = x[e];
    }
}

/* >>lu ---------------------------------------------------------------------------------------------------------- */

/*  Returns the row of the largest size of all threads, the first one of equal sizes. What they read before may be
    written after it: a shuffle orders no memory. */
__device__ inline int largest_row(const Team &team, T size, int row)
{
    __shared__ T sizes[8];
    __shared__ int rows[8];
    for (int distance = min(team.size, 32) / 2; distance > 0; distance /= 2) {
        const T other = __shfl_xor_sync(0xffffffff, size, distance);
        const int other_row = __shfl_xor_sync(0xffffffff, row, distance);
        if (other > size || (other == size && other_row < row)) {
            size = other;
            row = other_row;
        }
    }
    if (team.size <= 32) {
        __syncwarp();
        return row;
    }
    if (threadIdx.x % 32 == 0) {
        sizes[threadIdx.x / 32] = size;
        rows[threadIdx.x / 32] = row;
    }
    __syncthreads();
    row = rows[0];
    size = sizes[0];
    for (int w = 1; w < team.size / 32; w++)
        if (sizes[w] > size || (sizes[w] == size && rows[w] < row)) {
            size = sizes[w];
            row = rows[w];
        }
    __syncthreads();
    return row;
}

/*  Replaces the matrix of a team, [rows, width], by its factors: of the first n columns, P a = L U; the other columns
    become L^-1 P a (Golub and Van Loan 2013, 3.4.1). pivots[k] becomes first + the row that was exchanged with row k.
    Returns the number of the first pivot that is 0, or 0. */
__device__ inline int factor_lu(const Team &team, const Matrix &a, int rows, int n, int width, int *pivots, int first)
{
    int failed = 0;
    for (int k = 0; k < min(rows, n); k++) {
        T largest = -1;
        int chosen = rows;
        for (int i = k + team.rank; i < rows; i += team.size) {
            const T x = a(0, i, k), size = x == x ? fabs(x) : ignis_infinity<T>();
            if (size > largest) {
                largest = size;
                chosen = i;
            }
        }
        chosen = largest_row(team, largest, chosen);
        if (pivots && team.rank == 0)
            pivots[k] = first + chosen;
        if (chosen != k)
            for (int j = team.rank; j < width; j += team.size) {
                const T x = a(0, k, j);
                a(0, k, j) = a(0, chosen, j);
                a(0, chosen, j) = x;
            }
        team.sync();
        const T pivot = a(0, k, k);
        if (pivot == 0 && !failed)
            failed = first + k + 1;
#pragma unroll 1
        for (int i = k + 1 + team.rank; i < rows && pivot != 0; i += team.size) {
            const T factor = a(0, i, k) / pivot;
            a(0, i, k) = factor;
#pragma unroll 4
            for (int j = k + 1; j < width; j++)
                a(0, i, j) -= factor * a(0, k, j);
        }
        team.sync();
    }
    return failed;
}

/*  Factors a [rows, n] in place: in shared memory, or where it is. pivots [batch, pivot_batch], from `first` on. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ignis_linalg_lu(Matrix a, int *pivots, int *info, int rows, int n, long long pivot_batch, long long batch,
                    int first, int lanes, int shared)
{
    const Team team(lanes);
    const bool live = team.matrix < batch;
    const int stride = n | 1;
    int *const own_pivots = live ? pivots + team.matrix * pivot_batch + first : nullptr;
    int failed;
    if (shared) {
        T *const copy = team_memory(team, rows * stride);
        for (int i = 0; i < rows; i++)
            for (int j = team.rank; j < n; j += team.size)
                copy[i * stride + j] = live ? a(team.matrix, i, j) : T(1);
        team.sync();
        failed = factor_lu(team, Matrix{copy, stride, 1, 0}, rows, n, n, own_pivots, first);
        for (int i = 0; i < rows && live; i++)
            for (int j = team.rank; j < n; j += team.size)
                a(team.matrix, i, j) = copy[i * stride + j];
    } else { /* a team is a block then */
        failed = factor_lu(team, Matrix{&a(team.matrix, 0, 0), a.row, a.column, 0}, rows, n, n, own_pivots, first);
    }
    if (live && team.rank == 0 && failed && !info[team.matrix])
        info[team.matrix] = failed;
}

/*  Writes x = a^-1 b of small systems: eliminates [a, b] with pivots, and substitutes back. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_TEAM_THREADS)
    ignis_linalg_solve(Matrix x, Matrix a, Matrix b, int *info, int n, int columns, long long batch, int lanes)
{
    const Team team(lanes);
    const bool live = team.matrix < batch;
    const int stride = (n + columns) | 1;
    T *const copy = team_memory(team, n * stride), *const right = copy + n;
    for (int i = 0; i < n; i++) {
        for (int j = team.rank; j < n; j += team.size)
            copy[i * stride + j] = live ? a(team.matrix, i, j) : T(i == j);
        for (int j = team.rank; j < columns; j += team.size)
            right[i * stride + j] = live ? b(team.matrix, i, j) : T(0);
    }
    team.sync();
    const int failed = factor_lu(team, Matrix{copy, stride, 1, 0}, n, n, n + columns, nullptr, 0);
    for (int k = n - 1; k >= 0; k--) {
        for (int j = team.rank; j < columns; j += team.size)
            right[k * stride + j] /= copy[k * stride + k];
        team.sync();
        for (int i = team.rank; i < k; i += team.size)
            for (int j = 0; j < columns; j++)
                right[i * stride + j] -= copy[i * stride + k] * right[k * stride + j];
        team.sync();
    }
    for (int i = 0; i < n && live; i++)
        for (int j = team.rank; j < columns; j += team.size)
            x(team.matrix, i, j) = right[i * stride + j];
    if (live && team.rank == 0 && failed && !info[team.matrix])
        info[team.matrix] = failed;
}

/*  Exchanges row k of b with row pivots[k] - first, for k = 0 to count - 1 in this order. A thread has a column. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_swap_rows(Matrix b, const int *pivots, int count, int first, long long pivot_batch, long long columns,
                           long long batch)
{
    const long long step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < columns * batch; item += step) {
        const long long matrix = item / columns, column = item % columns;
        const int *const own = pivots + matrix * pivot_batch + first;
        for (int k = 0; k < count; k++) {
            const int other = own[k] - first;
            if (other == k)
                continue;
            const T x = b(matrix, k, column);
            b(matrix, k, column) = b(matrix, other, column);
            b(matrix, other, column) = x;
        }
    }
}

/*  permutation[matrix, i]: the row of a that is row i of L U. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_permutation(int64_t *permutation, const int *pivots, long long rows, int count, long long batch)
{
    const long long step = (long long)gridDim.x * THREADS;
    for (long long matrix = (long long)blockIdx.x * THREADS + threadIdx.x; matrix < batch; matrix += step) {
        int64_t *const own = permutation + matrix * rows;
        for (long long i = 0; i < rows; i++)
            own[i] = i;
        for (int k = 0; k < count; k++) {
            const int other = pivots[matrix * count + k];
            const int64_t row = own[k];
            own[k] = own[other];
            own[other] = row;
        }
    }
}

/*  The determinant from the factors, or the logarithm of its absolute value, and its sign. A warp has a matrix. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_det(T *det, T *sign, Matrix lu, const int *pivots, int n, long long batch)
{
    const int lane = (int)threadIdx.x % 32;
    const long long step = (long long)gridDim.x * (THREADS / 32);
    for (long long matrix = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; matrix < batch; matrix += step) {
        T value = sign ? 0 : 1, turned = 1;
        for (int k = lane; k < n; k += 32) {
            const T x = lu(matrix, k, k);
            if (pivots[matrix * n + k] != k)
                turned = -turned;
            if (!sign) {
                value *= x;
            } else {
                value += log(fabs(x));
                turned *= x > 0 ? T(1) : x < 0 ? T(-1) : x; /* 0 and NaN stay */
            }
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            const T other = __shfl_xor_sync(0xffffffff, value, distance);
            turned *= __shfl_xor_sync(0xffffffff, turned, distance);
            value = sign ? value + other : value * other;
        }
        if (lane == 0 && sign)
            sign[matrix] = turned;
        if (lane == 0)
            det[matrix] = sign ? value : value * turned;
    }
}
