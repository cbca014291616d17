// SPDX-License-Identifier: MIT
/*  linalg_qr.cu - QR factors by Householder reflections

    A team factors a matrix, or a panel of a larger one: H(k) ... H(1) a = R, H = I - tau v v^T, with v(0) = 1 (Golub
    and Van Loan 2013, 5.2). Panels are in shared memory if there is enough, else where they are. The host
    applies a panel to the columns after it as I - V T V^T, by products. */
#include "ignis.cuh"

#include "linalg.cuh"

/*  Applies I - tau v v^T to columns from `first` on; v is column k of a from row k on, its element there counting
    as 1. In a block a warp has a column, else a thread. */
__device__ inline void reflect(const Team &team, const Matrix &a, int k, T tau, int rows, int first, int columns)
{
    const int group = team.size > 32 ? 32 : 1, lane = team.rank % group;
    for (int c = first + team.rank / group; c < columns; c += team.size / group) {
        T sum = 0;
        for (int i = k + 1 + lane; i < rows; i += group)
            sum += a(0, i, k) * a(0, i, c);
        for (int distance = group / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        sum = tau * (sum + a(0, k, c));
        if (group == 32)
            __syncwarp(); /* all have read a(k, c) */
        if (lane == 0)
            a(0, k, c) -= sum;
        for (int i = k + 1 + lane; i < rows; i += group)
            a(0, i, c) -= sum * a(0, i, k);
    }
}

/*  Replaces a [rows, columns] by R, with v below the diagonal. taus are of the team. */
__device__ inline void factor_qr(const Team &team, const Matrix &a, T *taus, int rows, int columns)
{
    for (int k = 0; k < min(rows, columns); k++) {
        T most = 0, sum = 0;
        for (int i = k + 1 + team.rank; i < rows; i += team.size) {
            const T x = fabs(a(0, i, k));
            most = most <= x || x != x ? x : most;
        }
        most = team_largest(team, most);
        /* no branch: teams of a warp stay together */
        const bool reflects = most != 0;
        const T head = a(0, k, k), scale = power_of_2(most > fabs(head) ? most : T(fabs(head)));
        for (int i = k + team.rank; i < rows; i += team.size) {
            const T x = a(0, i, k) / scale;
            sum += x * x;
        }
        const T norm = scale * sqrt(team_sum(team, sum)), beta = head > 0 ? -norm : norm;
        const T tau = reflects ? (beta - head) / beta : T(0);
        team.sync();
        for (int i = k + 1 + team.rank; i < rows && reflects; i += team.size)
            a(0, i, k) /= head - beta;
        if (team.rank == 0 && reflects)
            a(0, k, k) = beta;
        if (team.rank == 0)
            taus[k] = tau;
        team.sync();
        reflect(team, a, k, tau, rows, k + 1, columns);
        team.sync();
    }
}

/*  Factors a [rows, columns] of up to 48 KiB: q [rows, k] and r [k, columns], with k the smaller side. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_TEAM_THREADS)
    ignis_linalg_qr(Matrix q, Matrix r, Matrix from, int rows, int columns, long long batch, int lanes)
{
    const Team team(lanes);
    const bool live = team.matrix < batch;
    const int stride = columns | 1, sides = min(rows, columns);
    T *const copy = team_memory(team, rows * stride + sides), *const taus = copy + rows * stride;
    const Matrix a = {copy, stride, 1, 0};
    for (int i = 0; i < rows; i++)
        for (int j = team.rank; j < columns; j += team.size)
            a(0, i, j) = live ? from(team.matrix, i, j) : T(0);
    team.sync();
    factor_qr(team, a, taus, rows, columns);
    for (int i = 0; i < sides && live; i++)
        for (int j = team.rank; j < columns; j += team.size)
            r(team.matrix, i, j) = j < i ? T(0) : a(0, i, j);
    team.sync();
    for (int k = sides - 1; k >= 0; k--) { /* H(1) ... H(k) I in place of v */
        const T tau = taus[k];
        for (int j = k + 1 + team.rank; j < sides; j += team.size)
            a(0, k, j) = 0;
        team.sync();
        reflect(team, a, k, tau, rows, k + 1, sides);
        team.sync();
        for (int i = team.rank; i < rows; i += team.size)
            a(0, i, k) = i < k ? T(0) : i == k ? 1 - tau : -tau * a(0, i, k);
        team.sync();
    }
    for (int i = 0; i < rows && live; i++)
        for (int j = team.rank; j < sides; j += team.size)
            q(team.matrix, i, j) = a(0, i, j);
}

/*  Factors a panel where it is: R stays in a, v with its ones and zeros goes to v [rows, columns], and T to t
    [columns, columns] (Schreiber and Van Loan 1989). A block has a panel; columns are 32 at most, and no more than
    rows. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS, 2)
    ignis_linalg_qr_panel(Matrix a, Matrix v, Matrix t, int rows, int columns, long long batch)
{
    __shared__ T taus[IGNIS__LINALG_QR_PANEL], dots[IGNIS__LINALG_QR_PANEL];
    const Team team((int)blockDim.x);
    const Matrix own = {&a(team.matrix, 0, 0), a.row, a.column, 0};
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    factor_qr(team, own, taus, rows, columns);
    for (long long item = threadIdx.x; item < (long long)rows * columns; item += blockDim.x) {
        const int i = (int)(item / columns), j = (int)(item % columns);
        v(team.matrix, i, j) = i < j ? T(0) : i == j ? T(1) : own(0, i, j);
    }
    for (int i = (int)threadIdx.x; i < columns * columns; i += (int)blockDim.x)
        t(team.matrix, i / columns, i % columns) = 0;
    __syncthreads();
    for (int j = 0; j < columns; j++) {
        for (int i = warp; i < j; i += (int)blockDim.x / 32) {
            T sum = 0;
            for (int p = lane; p < rows; p += 32)
                sum += v(team.matrix, p, i) * v(team.matrix, p, j);
            sum = ignis_warp_sum(sum);
            if (lane == 0)
                dots[i] = sum;
        }
        __syncthreads();
        if ((int)threadIdx.x < j) {
            T sum = 0;
            for (int p = (int)threadIdx.x; p < j; p++)
                sum += t(team.matrix, (int)threadIdx.x, p) * dots[p];
            t(team.matrix, (int)threadIdx.x, j) = -taus[j] * sum;
        } else if ((int)threadIdx.x == j) {
            t(team.matrix, j, j) = taus[j];
        }
        __syncthreads();
    }
}

/*  info[matrix] becomes the number of the first element of the diagonal of r that is tolerance times the largest one,
    or less. */
extern "C" __global__ void __launch_bounds__(IGNIS__LINALG_THREADS)
    ignis_linalg_rank(int *info, Matrix r, int n, double tolerance, long long batch)
{
    const long long step = (long long)gridDim.x * IGNIS__LINALG_THREADS;
    for (long long matrix = (long long)blockIdx.x * IGNIS__LINALG_THREADS + threadIdx.x; matrix < batch;
         matrix += step) {
        T most = 0;
        int found = 0;
        for (int i = 0; i < n; i++)
            most = max(most, T(fabs(r(matrix, i, i))));
        for (int i = n - 1; i >= 0; i--)
            if (fabs(r(matrix, i, i)) <= T(tolerance) * most)
                found = i + 1;
        info[matrix] = found;
    }
}
