// SPDX-License-Identifier: MIT
/*  gemm.cuh - what the kernels of matrix products share: their parameters, the order of tiles, and what is
    done to a result before it is stored

    out [batch, m, n] = f(factor * op(a) op(b)), all matrices by rows; included after T, the type of the
    elements, is there. With -DIGNIS_OPERANDS=<IGNIS_F8_E4M3 or IGNIS_F8_E5M2> those of a and b are of that
    type instead, and have scales.

    A program compiled with -DIGNIS_PATCHES=<IGNIS__OPERAND_A or _B> is a convolution: a, or b, is an array of
    pixels, and the matrix is that of its patches, which is never stored. With -DIGNIS_VOLUMES=1 the pixels are in
    three dimensions. */
#ifndef IGNIS_GEMM_CUH
#define IGNIS_GEMM_CUH

#include "activation.cuh"
#include "divisor.cuh"

#ifndef IGNIS_OPERANDS
#define IGNIS_OPERANDS IGNIS_T
#endif
typedef ignis_type<IGNIS_OPERANDS> Operand;
typedef ignis_wide<T> Wide;
constexpr bool SCALED = sizeof(Operand) == 1;

#ifndef IGNIS_PATCHES
#define IGNIS_PATCHES 0
#endif
#if !IGNIS_PATCHES
#define IGNIS__NO_PATCHES
#endif
#ifndef IGNIS_VOLUMES
#define IGNIS_VOLUMES 0
#endif
#include "shared/gemm.h"

/*  A pixel of a grid: numbered along the columns of a row, the rows of a plane, the planes of an image, and the images.
    Images without depth have one plane. */
struct Pixel {
    int image, plane, row, column;
};

/*  An element of a patch: numbered along the channels of a tap, the taps of a row, and the rows of a plane. */
struct Tap {
    int plane, row, column, channel;
};

__device__ inline Pixel grid_pixel(const ignis__patches &q, int index)
{
    Pixel pixel;
    const int line = ignis_divide(q.columns, index, pixel.column), plane = ignis_divide(q.rows, line, pixel.row);
    pixel.image = plane;
    pixel.plane = 0;
    if (IGNIS_VOLUMES)
        pixel.image = ignis_divide(q.planes, plane, pixel.plane);
    return pixel;
}

__device__ inline Tap patch_tap(const ignis__patches &q, int element)
{
    Tap tap;
    const int number = ignis_divide(q.channels, element, tap.channel), row = ignis_divide(q.across, number, tap.column);
    tap.row = row;
    tap.plane = 0;
    if (IGNIS_VOLUMES)
        tap.plane = ignis_divide(q.down, row, tap.row);
    return tap;
}

/*  Returns the tap of the weights that a tap of a patch is multiplied by. */
__device__ inline int weight_tap(const ignis__patches &q, const Tap &tap)
{
    return q.weight + (IGNIS_VOLUMES ? tap.plane * q.weight_step[2] : 0) + tap.row * q.weight_step[0] +
           tap.column * q.weight_step[1];
}

/*  Returns the plane of the array, numbered through its images, in which a pixel of the grid begins its patch; and in z
    the plane of that image. */
__device__ inline long long first_plane(const ignis__patches &q, const Pixel &at, int &z)
{
    z = IGNIS_VOLUMES ? q.first[2] + at.plane * q.stride[2] : 0;
    return IGNIS_VOLUMES ? (long long)at.image * q.depth + z : at.image;
}

/*  Returns where an element of the matrix of patches is in the array; below 0 if it is zero. */
__device__ inline long long patch_offset(const ignis__patches &q, int index, int element)
{
    const Pixel at = grid_pixel(q, index);
    const Tap of = patch_tap(q, element);
    const int y = q.first[0] + at.row * q.stride[0] + of.row * q.step[0],
              x = q.first[1] + at.column * q.stride[1] + of.column * q.step[1];
    long long plane = at.image;
    if ((unsigned)y >= (unsigned)q.height || (unsigned)x >= (unsigned)q.width)
        return -1;
    if (IGNIS_VOLUMES) {
        const int z = q.first[2] + at.plane * q.stride[2] + of.plane * q.step[2];
        if ((unsigned)z >= (unsigned)q.depth)
            return -1;
        plane = plane * q.depth + z;
    }
    return ((plane * q.height + y) * q.width + x) * q.pixel + of.channel;
}

/*  The params of a product, with its patches if it has some. */
struct Product : ignis__gemm_params {
    /*  Where a row of out begins, and the bias of its columns. */
    __device__ long long out_at(long long batch, long long row) const
    {
#if IGNIS_PATCHES == 1
        const Pixel at = grid_pixel(patches, (int)row);
        return at.image * patches.out_image + (IGNIS_VOLUMES ? at.plane * patches.out_plane : 0) +
               at.row * patches.out_row + at.column * patches.out_column + batch * n;
#else
        return (batch * m + row) * n;
#endif
    }
    __device__ const T *bias_at(long long batch) const { return IGNIS_PATCHES ? bias + batch * n : bias; }

    /*  Returns the factor of sums of SCALED products. */
    __device__ float scale_of_row(long long row) const { return scale_a ? scale_a[row * scales_a] : 1; }
    __device__ float scale_of_column(long long column) const { return scale_b ? scale_b[column * scales_b] : 1; }

    /*  Where an element of an operand is: op(a) with by_k as it is stored, or op(b). Null: it is zero. */
    template <int operand>
    __device__ const Operand *find(const Operand *matrix, bool by_k, long long length, long long row, long long k) const
    {
#if IGNIS_PATCHES
        if (operand == IGNIS_PATCHES) {
            const long long at = patch_offset(patches, (int)(by_k ? row : k), (int)(by_k ? k : row));
            return at < 0 ? nullptr : matrix + at;
        }
        if (operand == IGNIS__OPERAND_B && !by_k) { /* a has patches, and these are weights */
            const Tap of = patch_tap(patches, (int)k);
            return of.channel < patches.weight_channels
                       ? matrix + of.channel * patches.weight_row + weight_tap(patches, of) * length + row
                       : nullptr;
        }
#endif
        return matrix + (by_k ? row * length + k : k * length + row);
    }
};

/*  The work of a block: a tile of a split of a product. Tiles are processed in groups of 8 rows, whose
    operands stay in L2. */
template <typename Index> struct PlaceOf {
    Index row, column, batch, split, first_k, end_k;

    PlaceOf() = default;
    template <typename From>
    __device__ explicit PlaceOf(const PlaceOf<From> &from)
        : row(from.row), column(from.column), batch(from.batch), split(from.split), first_k(from.first_k),
          end_k(from.end_k)
    {
    }
    __device__ PlaceOf(const Product &p, unsigned index, int tile_rows, int tile_columns)
    {
        const unsigned rows = (unsigned)((p.m + tile_rows - 1) / tile_rows),
                       columns = (unsigned)((p.n + tile_columns - 1) / tile_columns);
        const unsigned tile = index % (rows * columns), matrix = index / (rows * columns), group = tile / (8 * columns);
        const unsigned height = min(8u, rows - 8 * group), in_group = tile % (8 * columns);
        row = (Index)(8 * group + in_group % height) * tile_rows;
        column = (Index)(in_group / height) * tile_columns;
        batch = matrix % (unsigned)p.batch; /* a division of 64 bits takes as long as a k step of a product */
        split = matrix / (unsigned)p.batch;
        first_k = split * (Index)p.split_k;
        end_k = min((Index)p.k, first_k + (Index)p.split_k);
    }
};
typedef PlaceOf<long long> Place;

/*  The epilogue of a block's results before they are stored. They come as strips of rows, mostly in shared
    memory, and a thread has the same few columns of all. So the bias is read once, and column sums need
    registers only. The columns are a pack if rows consist of packs, else one every `step`, so that neighbours
    store neighbours. one_row: a thread has a single row. A gradient's input comes with the bias,
    when the epilogue is made, maybe long before there are results. */
template <int threads, int columns, bool one_row = false> struct Epilogue {
    static constexpr int N = 16 / sizeof(T), across = columns / N, down = threads / across;
    static_assert(threads % across == 0, "a thread has the same columns in each row");
    const Product &p;
    const Place &place;
    const int thread, step, column, count; /* `count` of this thread's columns exist: column, column + step, ... */
    const bool whole;                      /* all do, in packs */
    Wide bias[N], sums[N];
    ignis_pack<T, N> before; /* of one_row and full rows: of a gradient, the input of the activation */

    __device__ Epilogue(const Product &p, const Place &place, int thread)
        : p(p), place(place), thread(thread), step(p.packed_out ? 1 : across),
          column(thread % across * (p.packed_out ? N : 1)),
          count((int)min((long long)N, max(0LL, (p.n - place.column - column + step - 1) / step))),
          whole(count == N && p.packed_out)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            bias[i] = sums[i] = 0;
        if (p.bias && whole) {
            const auto pack = ignis_load<N>(p.bias_at(place.batch) + place.column + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                bias[i] = Wide(pack[i]);
        } else if (p.bias) {
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i < count)
                    bias[i] = Wide(p.bias_at(place.batch)[place.column + column + i * step]);
        }
        if (one_row && whole && p.gradient && place.row + thread / across < p.m)
            before = ignis_load<N>(p.pre + p.out_at(place.batch, place.row + thread / across) + place.column + column);
    }

    /*  Rows first ... of the tile; value(row of the strip, column) is one of them, pack(row of the strip,
        column, x) a pack of them. */
    template <typename Value, typename Pack> __device__ void strip(int first, int rows, Value value, Pack pack)
    {
        const long long left = p.m - place.row - first;
#pragma unroll 1
        for (int r = thread / across; r < rows && r < left; r += down) {
            const long long at = p.out_at(place.batch, place.row + first + r) + place.column + column;
            if (whole) {
                Wide x[N];
                pack(r, column, x);
                finish<N>(x, bias, at);
#pragma unroll
                for (int i = 0; i < N; i++)
                    sums[i] += x[i];
            } else {
#pragma unroll 1
                for (int c = 0; c < count; c++) {
                    Wide x[1] = {value(r, column + c * step)}, one_bias[1] = {0};
#pragma unroll
                    for (int i = 0; i < N; i++) /* biases and sums stay in registers */
                        one_bias[0] = i == c ? bias[i] : one_bias[0];
                    finish<1>(x, one_bias, at + c * step);
#pragma unroll
                    for (int i = 0; i < N; i++)
                        sums[i] += i == c ? x[0] : Wide(0);
                }
            }
        }
    }

    template <typename Value> __device__ void strip(int first, int rows, Value value)
    {
        strip(first, rows, value, [&](int r, int c, Wide(&x)[N]) {
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = value(r, c + i);
        });
    }

    /*  Leaves in x the terms of the column sums: the results without the old values of out. */
    template <int some> __device__ void finish(Wide (&x)[some], const Wide (&bias)[some], long long at)
    {
        ignis_pack<T, some> pack;
#pragma unroll
        for (int i = 0; i < some; i++)
            x[i] = Wide(p.factor) * x[i] + bias[i];
        if (p.activation == IGNIS__ACTIVATION_GATED) {
            gate(x, at);
            return;
        }
        if (p.activation) {
            if (!p.gradient)
                pack = ignis_pack_round<T, some>(x); /* the kept value is the one that is activated */
            else if constexpr (one_row && some == N)
                pack = before;
            else
                pack = ignis_load<some>(p.pre + at);
            if (p.pre && !p.gradient)
                ignis_store(p.pre + at, pack);
#pragma unroll
            for (int i = 0; i < some; i++) {
                const Wide before = pack[i];
                x[i] = p.activation == IGNIS__ACTIVATION_RELU ? p.gradient ? relu_gradient(x[i], before) : relu(before)
                       : p.gradient ? gelu_gradient(x[i], before)
                                                              : gelu(before);
            }
        }
        if (p.residual) {
            pack = ignis_load<some>(p.residual + at);
#pragma unroll
            for (int i = 0; i < some; i++)
                x[i] += Wide(pack[i]);
        }
        if (p.accumulate) {
            Wide sum[some];
            pack = ignis_load<some>(p.out + at);
#pragma unroll
            for (int i = 0; i < some; i++)
                sum[i] = x[i] + Wide(pack[i]);
            ignis_store(p.out + at, ignis_pack_round<T, some>(sum));
        } else {
            ignis_store(p.out + at, ignis_pack_round<T, some>(x));
        }
    }

    /*  Applies the gate. IGNIS__ACTIVATION_GATED results have no other epilogue. */
    template <int some> __device__ void gate(const Wide (&x)[some], long long at) const
    {
        const long long up_at = p.m * p.n + at;
        const auto gate = ignis_load<some>(p.pre + at),
                   up = p.gradient ? ignis_load<some>(p.pre + up_at) : ignis_pack_round<T, some>(x);
        Wide first[some], second[some];
#pragma unroll
        for (int i = 0; i < some; i++)
            if (p.gradient)
                gated_gradients<Wide>(first[i], second[i], x[i], gate[i], up[i], sigmoid(Wide(gate[i])));
            else
                first[i] = silu(Wide(gate[i])) * Wide(up[i]);
        ignis_store(p.out + at, ignis_pack_round<T, some>(first));
        if (p.gradient)
            ignis_store(p.out + up_at, ignis_pack_round<T, some>(second));
        else if (p.keeps)
            ignis_store(p.pre + up_at, up);
    }

    /*  After the last strip, by all threads; scratch for columns * down numbers in shared memory. sync is
        their barrier. */
    template <typename Sync> __device__ void end(int tile_rows, Wide *room, Sync sync)
    {
        if (!p.column_sums)
            return;
        sync();
#pragma unroll
        for (int i = 0; i < N; i++)
            room[thread / across * columns + column + i * step] = sums[i];
        sync();
        for (int c = thread; c < columns && place.column + c < p.n; c += threads) {
            Wide sum = 0;
            for (int d = 0; d < down; d++)
                sum += room[d * columns + c];
            p.column_sums[place.row / tile_rows * p.n + place.column + c] = sum;
        }
    }
};

/*  Returns where the partial sums of a tile and split are. */
__device__ inline Wide *partial_at(const Product &p, const Place &place)
{
    return (Wide *)p.partial + ((place.split * p.batch + place.batch) * p.m + place.row) * p.n + place.column;
}

/*  A strip of sums over a part of k, as they are. */
template <int threads, int columns, typename Value>
__device__ inline void store_partial(const Product &p, const Place &place, int thread, int first, int rows, Value value)
{
    Wide *to = partial_at(p, place) + first * p.n;
    const int column = thread % columns;
    if (place.column + column < p.n)
        for (int r = thread / columns; r < rows && place.row + first + r < p.m; r += threads / columns)
            to[r * p.n + column] = value(r, column);
}

#endif /* IGNIS_GEMM_CUH */
