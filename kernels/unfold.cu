// SPDX-License-Identifier: MIT
/*  unfold.cu - patches of images as rows of a matrix (im2col), and the sums of such rows as images (col2im)

    A row of the matrix is a pixel of the grid, its columns are the taps of the patch and their channels. Zeros are
    outside of the image. Each of the two is the gradient of the other: a pixel of ignis_fold gathers from the patches
    that have it, in the order of their taps, so equal inputs give equal bits.

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>, and with -DIGNIS_VOLUMES=1 for images
    with planes. Blocks have THREADS threads, grids any number of blocks. */
#define IGNIS_PATCHES 1
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"

#define THREADS IGNIS__UNFOLD_THREADS
#define PACK (16 / (int)sizeof(T))

template <int N> __device__ inline void unfold(T *rows, const T *image, const ignis__unfolding &p)
{
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (long long)gridDim.x * THREADS) {
        int column;
        const int row = (int)ignis_divide_any(p.packs, i, column);
        const long long from = patch_offset(p.patches, row, column * N);
        ignis_pack<T, N> pack;
#pragma unroll
        for (int e = 0; e < N; e++)
            pack[e] = T(0);
        if (from >= 0)
            pack = ignis_load<N>(image + from);
        ignis_store(rows + i * N, pack);
    }
}

/*  A side of the image at one pixel: the taps whose patches have it are found by trying each. */
struct Side {
    int first, step, count; /* pixel of the grid times the stride for tap 0, less for each tap; of the grid */

    __device__ Side(const ignis__unfolding &p, int side, int pixel, const ignis__divisor &grid)
        : first(pixel - p.patches.first[side]), step(p.patches.step[side]), count((int)grid.size)
    {
    }
    /*  Returns the pixel of the grid whose tap this is; below 0 if there is none. */
    __device__ int grid(const ignis__divisor &stride, int tap) const
    {
        const long long at = first - (long long)tap * step;
        int rest;
        if (at < 0 || at >> 31)
            return -1;
        const int pixel = ignis_divide(stride, (int)at, rest);
        return rest == 0 && pixel < count ? pixel : -1;
    }
};

template <int N> __device__ inline void fold(T *image, const T *rows, const ignis__unfolding &p)
{
    const ignis__patches &q = p.patches;
    const int channels = (int)q.channels.size, across = (int)q.across.size, down = (int)q.down.size;
    const long long row_length = (long long)p.taps * channels;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (long long)gridDim.x * THREADS) {
        int channel, x, y, z = 0;
        long long n = ignis_divide_any(p.packs, i, channel);
        n = ignis_divide_any(p.size[IGNIS__UNFOLD_COLUMNS], n, x);
        n = ignis_divide_any(p.size[IGNIS__UNFOLD_ROWS], n, y);
        if (IGNIS_VOLUMES)
            n = ignis_divide_any(p.size[IGNIS__UNFOLD_PLANES], n, z);
        const Side columns(p, IGNIS__UNFOLD_COLUMNS, x, q.columns), lines(p, IGNIS__UNFOLD_ROWS, y, q.rows),
            planes(p, IGNIS__UNFOLD_PLANES, z, q.planes);
        Wide sum[N] = {};
        for (int tap = 0; tap < p.taps; tap += across) {
            int line_tap = tap / across, plane_tap = 0, plane = 0;
            if (IGNIS_VOLUMES) {
                plane_tap = line_tap / down;
                line_tap -= plane_tap * down;
                plane = planes.grid(p.stride[IGNIS__UNFOLD_PLANES], plane_tap);
            }
            const int line = lines.grid(p.stride[IGNIS__UNFOLD_ROWS], line_tap);
            if (plane < 0 || line < 0)
                continue;
            const long long first = (IGNIS_VOLUMES ? n * q.planes.size + plane : n) * q.rows.size + line;
            for (int j = 0; j < across; j++) {
                const int column = columns.grid(p.stride[IGNIS__UNFOLD_COLUMNS], j);
                if (column < 0)
                    continue;
                const auto pack = ignis_load<N>(rows + (first * q.columns.size + column) * row_length +
                                                (long long)(tap + j) * channels + channel * N);
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += ignis_wide_at(pack, e);
            }
        }
        ignis_store(image + i * N, ignis_pack_round<T, N>(sum));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_unfold(T *rows, const T *image, const ignis__unfolding p)
{
    if (p.packed)
        unfold<PACK>(rows, image, p);
    else
        unfold<1>(rows, image, p);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) ignis_fold(T *image, const T *rows, const ignis__unfolding p)
{
    if (p.packed)
        fold<PACK>(image, rows, p);
    else
        fold<1>(image, rows, p);
}
