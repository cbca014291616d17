// SPDX-License-Identifier: MIT
/*  gemm_tile.cuh - a tile of a matrix product in plain CUDA C, by 256 threads

    Included after gemm.cuh. Sums in float, of f64 in double, in an order that is fixed. The caller has waited for the
    work before it. */
#ifndef IGNIS_GEMM_TILE_CUH
#define IGNIS_GEMM_TILE_CUH

/*  A thread's share of loading a tile of op(x), rows x depth: one element of every few rows or columns, so
    that neighbours read neighbours. */
template <int operand, int rows, int depth> struct Loader {
    static constexpr int count = rows * depth / IGNIS__GEMM_THREADS, row_step = IGNIS__GEMM_THREADS / depth,
                         k_step = IGNIS__GEMM_THREADS / rows;
    const Product &p;
    const T *from; /* of the thread's first element at k = 0; with patches, of the array */
    long long stride, k_stride, step, first_row;
    int row, k, row_count; /* row_count: rows that exist from first_row on */
    bool by_k;

    /*  by_k: elements of a row are contiguous. */
    __device__ Loader(const Product &p, const T *matrix, long long first_row, long long row_end, bool by_k,
                      long long row_length)
        : p(p), stride(row_length), k_stride(by_k ? 1 : row_length), step((by_k ? row_step : k_step) * row_length),
          first_row(first_row), row(by_k ? threadIdx.x / depth : threadIdx.x % rows),
          k(by_k ? threadIdx.x % depth : threadIdx.x / rows), row_count((int)min((long long)rows, row_end - first_row)),
          by_k(by_k)
    {
        from = IGNIS_PATCHES ? matrix : matrix + (first_row + row) * (by_k ? row_length : 1) + k * k_stride;
    }
    /*  Not below 0, and known when all is that loads need: for ignis_grid_dependency_wait. */
    __device__ long long prepared() const { return (long long)from | step | k_stride | row_count; }

    __device__ void load(Wide (&x)[count], long long first_k, long long end_k) const
    {
        const int k_count = (int)min((long long)depth, end_k - first_k);
        const T *next = from + first_k * k_stride;
        int there; /* of the thread's elements */
        if (by_k)
            there = k < k_count ? (row_count - row + row_step - 1) / row_step : 0;
        else
            there = row < row_count ? (k_count - k + k_step - 1) / k_step : 0;
#pragma unroll
        for (int i = 0; i < count; i++, next += step) {
            if (IGNIS_PATCHES) {
                const int r = row + (by_k ? i * row_step : 0), at = k + (by_k ? 0 : i * k_step);
                const T *element = r < row_count && at < k_count
                                       ? p.find<operand>(from, by_k, stride, first_row + r, first_k + at)
                                       : nullptr;
                x[i] = element ? Wide(*element) : Wide(0);
            } else {
                x[i] = i < there ? Wide(*next) : Wide(0);
            }
        }
    }
    __device__ void store(Wide (*tile)[rows + 4], const Wide (&x)[count]) const
    {
#pragma unroll
        for (int i = 0; i < count; i++)
            tile[k + (by_k ? 0 : i * k_step)][row + (by_k ? i * row_step : 0)] = x[i];
    }
};

/*  Computes a tile of BM x BN. Each of 16 x 16 threads has R x C elements of it, in squares of 4 x 4 that are
    as far apart as fits, so that neighbouring threads read neighbouring elements. */
template <int R, int C> __device__ inline void multiply(const Product &p, const Place &place)
{
    constexpr int BM = 16 * R, BN = 16 * C, BK = 64 / sizeof(Wide), strip = 32;
    union alignas(16) Shared {
        struct {
            Wide a[2][BK][BM + 4], b[2][BK][BN + 4];
        };
        Wide results[strip][BN + 4];
        Wide sums[IGNIS__GEMM_THREADS / (BN / (16 / sizeof(T)))][BN];
    };
    __shared__ Shared shared;
    const Loader<IGNIS__OPERAND_A, BM, BK> a(p, p.a + place.batch * p.batch_a, place.row, p.m, !p.transpose_a, p.row_a);
    const Loader<IGNIS__OPERAND_B, BN, BK> b(p, p.b + place.batch * p.batch_b, place.column, p.n, p.transpose_b,
                                             p.row_b);
    const int down = threadIdx.x / 16 * 4, across = threadIdx.x % 16 * 4;
    const bool sums_rows = p.row_sums && place.column == 0 && threadIdx.x < BM;
    Wide next_a[a.count], next_b[b.count], sum[R][C], row_sum = 0;

#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            sum[r][c] = 0;
    a.load(next_a, place.first_k, place.end_k);
    b.load(next_b, place.first_k, place.end_k);
#pragma unroll 1
    for (long long k = place.first_k, turn = 0; k < place.end_k; k += BK, turn ^= 1) {
        a.store(shared.a[turn], next_a);
        b.store(shared.b[turn], next_b);
        __syncthreads(); /* of the other half of the tiles; all threads are done with the round before the last */
        if (k + BK < place.end_k) {
            a.load(next_a, k + BK, place.end_k);
            b.load(next_b, k + BK, place.end_k);
        }
#pragma unroll(sizeof(Wide) == 8 ? 2 : BK) /* registers hold no more doubles */
        for (int i = 0; i < BK; i++) {
            Wide x[R], y[C];
#pragma unroll
            for (int r = 0; r < R; r++)
                x[r] = shared.a[turn][i][r / 4 * 64 + down + r % 4];
#pragma unroll
            for (int c = 0; c < C; c++)
                y[c] = shared.b[turn][i][c / 4 * 64 + across + c % 4];
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int c = 0; c < C; c++)
                    sum[r][c] += x[r] * y[c];
        }
        if (sums_rows)
            for (int i = 0; i < BK; i++)
                row_sum += shared.a[turn][i][threadIdx.x];
    }
    if (sums_rows && place.row + threadIdx.x < p.m)
        p.row_sums[place.split * p.m + place.row + threadIdx.x] = row_sum;

    Epilogue<IGNIS__GEMM_THREADS, BN> epilogue(p, place, threadIdx.x);
#pragma unroll 1
    for (int first = 0; first < BM; first += strip) {
        const auto result = [&](int r, int c) { return shared.results[r][c]; };
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int row = r / 4 * 64 + down + r % 4 - first;
#pragma unroll
            for (int c = 0; c < C; c++)
                if (row >= 0 && row < strip)
                    shared.results[row][c / 4 * 64 + across + c % 4] = sum[r][c];
        }
        __syncthreads();
        if (p.partial)
            store_partial<IGNIS__GEMM_THREADS, BN>(p, place, threadIdx.x, first, strip, result);
        else
            epilogue.strip(first, strip, result);
    }
    epilogue.end(BM, shared.sums[0], [] { __syncthreads(); });
}

#endif /* IGNIS_GEMM_TILE_CUH */
