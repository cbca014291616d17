// SPDX-License-Identifier: MIT
/*  linalg_jacobi.cu - eigenvalues of symmetric matrices and singular values, by rotations of pairs

    A sweep rotates each pair of rows once, in rounds of n/2 pairs that share no row (Brent and Luk 1985). Matrices of
    up to 64 rows run all sweeps in one launch, a block each; larger ones take a launch or two a round.
        eigh: a = J^T a J brings a to its diagonal; vectors are the columns of J (Golub and Van Loan 2013, 8.5)
        svd: w = J w makes the rows of w orthogonal (Hestenes 1958): their norms are the singular values

    Numbers are divided by a power of 2 near the largest one first: squares neither overflow nor vanish.
    scales [batch, 2]: this power, NaN for a matrix with NaN or infinities; and what counts as 0. */
#include "ignis.cuh"

#include "linalg.cuh"

#define THREADS IGNIS__LINALG_TEAM_THREADS
#define SWEEPS 30 /* of small matrices; the host limits others */

__device__ constexpr T epsilon() { return sizeof(T) == 8 ? T(2.220446049250313e-16) : T(1.1920928955078125e-07); }

/*  Finds pair `number` of a round of n rows, an even number. */
__device__ inline void pair_of(int round, int number, int n, int &p, int &q)
{
    const int a = number ? (round + number) % (n - 1) : n - 1, b = (round + n - 1 - number) % (n - 1);
    p = min(a, b);
    q = max(a, b);
}

/*  A view of one matrix of a batch. */
__device__ inline Matrix one_of(const Matrix &m, long long matrix)
{
    return Matrix{m.at + matrix * m.batch, m.row, m.column, 0};
}

/* >>begin ------------------------------------------------------------------------------------------------------- */

/*  work [rows, columns] = from / scale, j [rows, rows] = I. symmetric: from is the lower triangle of [n, n], and
    work has zeros after it. A block has a matrix. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS)
    ignis_linalg_jacobi_begin(Matrix work, Matrix j, T *scales, Matrix from, int rows, int columns, int n,
                              int symmetric)
{
    const Team team((int)blockDim.x);
    const long long matrix = blockIdx.x, count = (long long)rows * columns;
    T most = 0, sum = 0;
    for (long long item = threadIdx.x; item < count; item += blockDim.x) {
        const int r = (int)(item / columns), c = (int)(item % columns);
        const T x = symmetric ? (max(r, c) < n ? from(matrix, max(r, c), min(r, c)) : T(0)) : from(matrix, r, c);
        work(matrix, r, c) = x;
        most = most <= fabs(x) || x != x ? T(fabs(x)) : most;
    }
    most = team_largest(team, most);
    const bool finite = most < ignis_infinity<T>();
    const T scale = power_of_2(most);
    for (long long item = threadIdx.x; item < count; item += blockDim.x) {
        T &x = work(matrix, item / columns, item % columns);
        x = finite ? x / scale : T(0);
        sum += x * x;
    }
    for (long long item = threadIdx.x; item < (long long)rows * rows; item += blockDim.x)
        j(matrix, item / rows, item % rows) = item / rows == item % rows;
    sum = team_sum(team, sum);
    if (threadIdx.x == 0) {
        scales[2 * matrix] = finite ? scale : not_a_number();
        scales[2 * matrix + 1] = symmetric ? epsilon() * sqrt(sum) / T(4 * rows) : epsilon() * sqrt(T(columns));
    }
}

/* >>eigh -------------------------------------------------------------------------------------------------------- */

/*  Computes the cosines and sines of a round's pairs from `first` on. Returns how many rotate. */
__device__ inline int find_angles(const Matrix &a, T *angles, int n, int round, T limit, int first, int step)
{
    int rotating = 0;
    for (int pair = first; pair < n / 2; pair += step) {
        int p, q;
        pair_of(round, pair, n, p, q);
        const T x = a(0, p, q);
        T c = 1, s = 0;
        if (fabs(x) > limit) {
            const T theta = (a(0, q, q) - a(0, p, p)) / (2 * x), size = fabs(theta);
            const T t = (theta < 0 ? T(-1) : T(1)) / (size + sqrt(size * size + 1));
            c = 1 / sqrt(t * t + 1);
            s = t * c;
            rotating++;
        }
        angles[2 * pair] = c;
        angles[2 * pair + 1] = s;
    }
    return rotating;
}

/*  Rotates the rows and columns of a, and the columns of v, [n, n]: items of a are pairs of pairs, of v a row and a
    pair. */
__device__ inline void rotate(const Matrix &a, const Matrix &v, const T *angles, int n, int round, long long first,
                              long long step)
{
    const int pairs = n / 2;
    for (long long item = first; item < (long long)pairs * (pairs + n); item += step) {
        const int i = (int)(item / pairs), j = (int)(item % pairs);
        const T c = angles[2 * j], s = angles[2 * j + 1];
        int r, t;
        pair_of(round, j, n, r, t);
        if (i >= pairs) {
            const T x = v(0, i - pairs, r), y = v(0, i - pairs, t);
            v(0, i - pairs, r) = c * x - s * y;
            v(0, i - pairs, t) = s * x + c * y;
        } else if (i == j) {
            const T x = a(0, r, t), tangent = s / c;
            if (s != 0) {
                a(0, r, r) -= tangent * x;
                a(0, t, t) += tangent * x;
                a(0, r, t) = a(0, t, r) = 0;
            }
        } else if (i < j) {
            const T ci = angles[2 * i], si = angles[2 * i + 1];
            int p, q;
            pair_of(round, i, n, p, q);
            const T x = a(0, p, r), y = a(0, p, t), z = a(0, q, r), w = a(0, q, t);
            const T pr = ci * x - si * z, pt = ci * y - si * w, qr = si * x + ci * z, qt = si * y + ci * w;
            a(0, p, r) = a(0, r, p) = c * pr - s * pt;
            a(0, p, t) = a(0, t, p) = s * pr + c * pt;
            a(0, q, r) = a(0, r, q) = c * qr - s * qt;
            a(0, q, t) = a(0, t, q) = s * qr + c * qt;
        }
    }
}

/*  Runs all sweeps of work and v [n, n], n even, in shared memory, or where they are. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_eigh(Matrix work, Matrix j, const T *scales, int n, int shared)
{
    __shared__ T angles[64];
    const long long matrix = blockIdx.x;
    const T limit = scales[2 * matrix + 1];
    const int stride = n | 1, count = n * n;
    T *const memory = block_memory();
    const Matrix there = one_of(work, matrix), vectors = one_of(j, matrix);
    const Matrix a = shared ? Matrix{memory, stride, 1, 0} : there,
                 v = shared ? Matrix{memory + n * stride, stride, 1, 0} : vectors;
    for (int item = (int)threadIdx.x; item < count && shared; item += (int)blockDim.x) {
        a(0, item / n, item % n) = there(0, item / n, item % n);
        v(0, item / n, item % n) = vectors(0, item / n, item % n);
    }
    __syncthreads();
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        int rotating = 0;
        for (int round = 0; round < n - 1; round++) {
            if (find_angles(a, angles, n, round, limit, (int)threadIdx.x, (int)blockDim.x))
                rotating = 1;
            __syncthreads();
            rotate(a, v, angles, n, round, threadIdx.x, blockDim.x);
            __syncthreads();
        }
        if (!__syncthreads_or(rotating))
            break;
    }
    for (int item = (int)threadIdx.x; item < count && shared; item += (int)blockDim.x) {
        there(0, item / n, item % n) = a(0, item / n, item % n);
        vectors(0, item / n, item % n) = v(0, item / n, item % n);
    }
}

/*  A round of larger matrices: the angles [batch, n], then the rotations. rotated [batch, sweeps] counts them; after a
    sweep without any nothing is done. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_eigh_angles(Matrix work, T *angles, int *rotated, const T *scales, int n, int round, int sweep,
                             int sweeps)
{
    const long long matrix = blockIdx.y;
    if (sweep && !rotated[matrix * sweeps + sweep - 1])
        return;
    const int count = find_angles(one_of(work, matrix), angles + matrix * n, n, round, scales[2 * matrix + 1],
                                  (int)(blockIdx.x * THREADS + threadIdx.x), (int)(gridDim.x * THREADS));
    if (count)
        atomicAdd(&rotated[matrix * sweeps + sweep], count); /* of integers: the order does not matter */
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_linalg_eigh_rotate(Matrix work, Matrix j, const T *angles, const int *rotated, int n, int round, int sweep,
                             int sweeps)
{
    const long long matrix = blockIdx.y;
    if (!rotated[matrix * sweeps + sweep])
        return;
    rotate(one_of(work, matrix), one_of(j, matrix), angles + matrix * n, n, round,
           (long long)blockIdx.x * THREADS + threadIdx.x, (long long)gridDim.x * THREADS);
}

/* >>svd --------------------------------------------------------------------------------------------------------- */

/*  Makes rows p and q of w [n, length] orthogonal, and rotates those of j [n, n]. Returns whether they were not. */
__device__ inline bool make_orthogonal(const Team &team, const Matrix &w, const Matrix &j, int p, int q, int n,
                                       int length, T limit)
{
    T of_p = 0, of_q = 0, dot = 0;
    for (int i = team.rank; i < length; i += team.size) {
        const T x = w(0, p, i), y = w(0, q, i);
        of_p += x * x;
        of_q += y * y;
        dot += x * y;
    }
    of_p = team_sum(team, of_p);
    of_q = team_sum(team, of_q);
    dot = team_sum(team, dot);
    if (!(fabs(dot) > limit * sqrt(of_p) * sqrt(of_q)))
        return false;
    const T zeta = (of_q - of_p) / (2 * dot), size = fabs(zeta);
    const T t = (zeta < 0 ? T(-1) : T(1)) / (size + sqrt(size * size + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
    for (int i = team.rank; i < length; i += team.size) {
        const T x = w(0, p, i), y = w(0, q, i);
        w(0, p, i) = c * x - s * y;
        w(0, q, i) = s * x + c * y;
    }
    for (int i = team.rank; i < n; i += team.size) {
        const T x = j(0, p, i), y = j(0, q, i);
        j(0, p, i) = c * x - s * y;
        j(0, q, i) = s * x + c * y;
    }
    return true;
}

/*  Runs all sweeps of w [n, length] and j [n, n]. A warp has a pair. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    ignis_linalg_svd(Matrix work, Matrix j, const T *scales, int n, int length, int shared)
{
    const Team team(32);
    const long long matrix = blockIdx.x;
    const T limit = scales[2 * matrix + 1];
    const int stride = length | 1, even = n + (n & 1), teams = (int)blockDim.x / 32;
    T *const memory = block_memory();
    const Matrix there = one_of(work, matrix), rows = one_of(j, matrix);
    const Matrix w = shared ? Matrix{memory, stride, 1, 0} : there,
                 own = shared ? Matrix{memory + n * stride, n, 1, 0} : rows;
    for (int item = (int)threadIdx.x; item < n * length && shared; item += (int)blockDim.x)
        w(0, item / length, item % length) = there(0, item / length, item % length);
    for (int item = (int)threadIdx.x; item < n * n && shared; item += (int)blockDim.x)
        own(0, item / n, item % n) = rows(0, item / n, item % n);
    __syncthreads();
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        int rotating = 0;
        for (int round = 0; round < even - 1; round++) {
            for (int pair = team.number; pair < even / 2; pair += teams) {
                int p, q;
                pair_of(round, pair, even, p, q);
                if (q < n && make_orthogonal(team, w, own, p, q, n, length, limit))
                    rotating = 1;
            }
            __syncthreads();
        }
        if (!__syncthreads_or(rotating))
            break;
    }
    for (int item = (int)threadIdx.x; item < n * length && shared; item += (int)blockDim.x)
        there(0, item / length, item % length) = w(0, item / length, item % length);
    for (int item = (int)threadIdx.x; item < n * n && shared; item += (int)blockDim.x)
        rows(0, item / n, item % n) = own(0, item / n, item % n);
}

/*  A round of larger matrices: a block has a pair. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    ignis_linalg_svd_rotate(Matrix work, Matrix j, int *rotated, const T *scales, int n, int length, int round,
                            int sweep, int sweeps)
{
    const Team team(THREADS);
    const long long matrix = blockIdx.y;
    int p, q;
    if (sweep && !rotated[matrix * sweeps + sweep - 1])
        return;
    pair_of(round, (int)blockIdx.x, n + (n & 1), p, q);
    if (q < n &&
        make_orthogonal(team, one_of(work, matrix), one_of(j, matrix), p, q, n, length, scales[2 * matrix + 1]) &&
        threadIdx.x == 0)
        atomicAdd(&rotated[matrix * sweeps + sweep], 1); /* of integers: the order does not matter */
}

/* >>end --------------------------------------------------------------------------------------------------------- */

/*  Computes the values of a block's matrix, [n], and their places in order: of eigh the diagonal of work, the smallest
    first; of svd, where length is not 0, the norms of its rows, the largest first. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS)
    ignis_linalg_jacobi_values(T *values, int *places, T *unsorted, Matrix work, const T *scales, int n, int length)
{
    const Team team((int)blockDim.x);
    const long long matrix = blockIdx.x;
    const T scale = scales[2 * matrix];
    T *const own = unsorted + matrix * n;
    for (int i = (int)threadIdx.x / 32; i < n; i += (int)blockDim.x / 32) {
        T sum = 0;
        for (int c = (int)threadIdx.x % 32; c < length; c += 32)
            sum += work(matrix, i, c) * work(matrix, i, c);
        sum = ignis_warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            own[i] = length ? sqrt(sum) : work(matrix, i, i);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        const T x = own[i];
        int place = 0;
        for (int k = 0; k < n; k++)
            place += length ? own[k] > x || (own[k] == x && k < i) : own[k] < x || (own[k] == x && k < i);
        places[matrix * n + i] = place;
        values[matrix * n + place] = x * scale;
    }
}

/*  to(places[i], c) = from(i, c), for rows of `columns` elements; NaN for a matrix that has NaN as its scale. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS)
    ignis_linalg_jacobi_rows(Matrix to, Matrix from, const int *places, const T *scales, int n, int columns,
                             long long batch)
{
    const long long count = batch * n * columns, step = (long long)gridDim.x * 256;
    for (long long item = (long long)blockIdx.x * 256 + threadIdx.x; item < count; item += step) {
        const long long c = item % columns, i = item / columns % n, matrix = item / columns / n;
        const T scale = scales[2 * matrix];
        to(matrix, places[matrix * n + i], c) = scale == scale ? from(matrix, i, c) : scale;
    }
}

/*  Multiplies column j of q [rows, n] by the sign of element (j, j) of r. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS)
    ignis_linalg_sign_columns(Matrix q, Matrix r, long long rows, int n, long long batch)
{
    const long long count = batch * rows * n, step = (long long)gridDim.x * 256;
    for (long long item = (long long)blockIdx.x * 256 + threadIdx.x; item < count; item += step) {
        const long long c = item % n, i = item / n % rows, matrix = item / n / rows;
        if (r(matrix, c, c) < 0)
            q(matrix, i, c) = -q(matrix, i, c);
    }
}
