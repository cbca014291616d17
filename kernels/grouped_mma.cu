// SPDX-License-Identifier: MIT
/*  grouped_mma.cu - convolutions in groups of few channels by mma.sync, for sm_80 and up

    A program per type and sizes: compiled with -DIGNIS_T=<IGNIS_F16 or IGNIS_BF16> -DIGNIS_CHANNELS=<channels
    of a group that are summed> -DIGNIS_OUTS=<channels of its results>, powers of 2 from 8 on,
    -DIGNIS_TAPS=<of a patch> and -DIGNIS_SLAB=<chunks of 8 channels of a pixel that a block has: 1, 2, 4 or
    8, whole groups>. The parameters are those of a product with patches whose batches are the groups; sums in
    float, in a fixed order.

    A block of 256 threads has a slab of groups, and does some tiles of the grid in turn. The pixels that a
    tile reads are in shared memory, chunk by chunk, with zeros for those outside of the image: so an
    operand's 8 x 8 matrix, 8 channels of a tap of 8 patches, is 8 chunks of it, and nothing is copied to make
    patches. While a tile is multiplied the next one is loaded. Chunks change places within a pixel, so that
    the 8 that ldmatrix reads at a time are in different banks. A missing tap or pixel is read from a chunk of
    zeros. */
#define IGNIS_PATCHES 1
#include "ignis.cuh"
#include "mma.cuh"

typedef ignis_type<IGNIS_T> T;
#include "gemm.cuh"

constexpr int C = IGNIS_CHANNELS, O = IGNIS_OUTS, CHUNKS = IGNIS_TAPS * C / 8,
              STEPS = (CHUNKS + 1) / 2; /* of k: two chunks each */
constexpr int SLAB = IGNIS_SLAB, GROUPS = SLAB * 8 / C, OUT_CHUNKS = GROUPS * O / 8,
              ZEROS = 128; /* bytes before the tiles */

/*  Where chunk c of a pixel is, in bytes; across chunks are side by side. */
template <int across> __device__ inline int place(int pixel, int c)
{
    constexpr int swizzled = across < 8 ? across : 8;
    return (pixel * across + (c ^ pixel * swizzled / 8 % swizzled)) * 16;
}

/*  The slab of a block. */
struct Slab {
    int index, groups, first_tile, step; /* groups: all of them */

    __device__ explicit Slab(const Product &p) : groups((int)p.batch)
    {
        const int slabs = (groups + GROUPS - 1) / GROUPS;
        index = blockIdx.x % slabs;
        first_tile = blockIdx.x / slabs;
        step = gridDim.x / slabs;
    }
};

/*  The first pixel of a tile. */
__device__ inline Pixel tile_at(const ignis__conv_tiles &tiles, int tile)
{
    Pixel at;
    const int line = ignis_divide(tiles.across, tile, at.column);
    at.image = ignis_divide(tiles.down, line, at.row);
    at.column *= tiles.columns.size;
    at.row *= tiles.rows;
    return at;
}

/*  Starts to copy the pixels of the array with patches that a tile reads. */
__device__ inline void load_pixels(uint32_t to, const T *array, const ignis__patches &q, const ignis__conv_tiles &tiles,
                                   const Slab &slab, const Pixel &at)
{
    const int y = q.first[0] + at.row * q.stride[0], x = q.first[1] + at.column * q.stride[1];
    const T *const image = array + (long long)at.image * q.height * q.width * q.pixel + slab.index * SLAB * 8;
    for (int i = threadIdx.x; i < tiles.halo_rows * (int)tiles.halo.size * SLAB; i += 256) {
        const int chunk = i % SLAB, pixel = i / SLAB;
        int column;
        const int row = ignis_divide(tiles.halo, pixel, column);
        const bool inside = (unsigned)(y + row) < (unsigned)q.height && (unsigned)(x + column) < (unsigned)q.width &&
                            slab.index * SLAB + chunk < slab.groups * C / 8;
        ignis_ptx_cp_async(to + place<SLAB>(pixel, chunk),
                           inside ? image + ((long long)(y + row) * q.width + x + column) * q.pixel + chunk * 8 : array,
                           inside ? 16 : 0);
    }
}

/*  How far in pixels a chunk of a patch is from the patch's first pixel. */
__device__ inline int offset_of(const ignis__patches &q, const ignis__conv_tiles &tiles, int chunk)
{
    int column;
    const int row = ignis_divide(q.across, chunk / (C / 8), column);
    return row * q.step[0] * (int)tiles.halo.size + column * q.step[1];
}

/*  The first pixel of the patch of a tile's pixel. */
__device__ inline int patch_of(const ignis__patches &q, const ignis__conv_tiles &tiles, int pixel)
{
    int column;
    const int row = ignis_divide(tiles.columns, pixel, column);
    return row * q.stride[0] * (int)tiles.halo.size + column * q.stride[1];
}

__device__ inline uint32_t begin_memory()
{
    extern __shared__ uint4 memory[];
    if (threadIdx.x < ZEROS / 16)
        memory[threadIdx.x] = make_uint4(0, 0, 0, 0);
    return (uint32_t)__cvta_generic_to_shared(memory);
}

/*  Computes out = the patches of a times b, and bias: a warp has NW chunks of results of a group, whose
    weights stay in registers; 16 pixels at a time. */
extern "C" __global__ void __launch_bounds__(256, 2) ignis_grouped(const Product p, const ignis__conv_tiles tiles)
{
    constexpr int N_WARPS = OUT_CHUNKS < 8 ? OUT_CHUNKS : 8, NW = OUT_CHUNKS / N_WARPS;
    const ignis__patches &q = p.patches;
    const Slab slab(p);
    const uint32_t zeros = begin_memory(), room = zeros + ZEROS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pixels = tiles.rows * (int)tiles.columns.size;
    const int stage_bytes = tiles.halo_rows * (int)tiles.halo.size * SLAB * 16;
    const int first_chunk = warp % N_WARPS * NW, in_slab = first_chunk * 8 / O, group = slab.index * GROUPS + in_slab;
    const bool exists = group < slab.groups;
    const auto load = [&](int tile, int stage) {
        if (tile < tiles.count)
            load_pixels(room + stage * stage_bytes, p.a, q, tiles, slab, tile_at(tiles, tile));
        ignis_ptx_cp_async_commit();
    };
    uint32_t weights[STEPS][NW][2];
    Wide bias[NW][2];
    int offset[STEPS];

    load(slab.first_tile, 0);
    const T *const b = p.b + group * p.batch_b;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        offset[s] = offset_of(q, tiles, min(2 * s + lane / 16, CHUNKS - 1));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int k = (2 * s + half) * 8 + lane % 4 * 2, channel = k % C;  /* and the one after it */
            const T *const tap = b + weight_tap(q, patch_tap(q, k)) * p.row_b; /* of weights that are not transposed */
#pragma unroll
            for (int j = 0; j < NW; j++) {
                const int n = (first_chunk + j) * 8 % O + lane / 4;
                ignis_pack<T, 2> two = ignis_pack_of<ignis_pack<T, 2>>(0);
                if (exists && 2 * s + half < CHUNKS && p.transpose_b) {
                    two = ignis_load<2>(b + n * p.row_b + k);
                } else if (exists && 2 * s + half < CHUNKS) {
                    if (channel < q.weight_channels)
                        two[0] = tap[channel * q.weight_row + n];
                    if (channel + 1 < q.weight_channels)
                        two[1] = tap[(channel + 1) * q.weight_row + n];
                }
                weights[s][j][half] = ignis_word(two);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < NW; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            bias[j][e] =
                p.bias && exists ? Wide(p.bias[group * O + (first_chunk + j) * 8 % O + lane % 4 * 2 + e]) : Wide(0);

    int stage = 0;
#pragma unroll 1
    for (int tile = slab.first_tile; tile < tiles.count; tile += slab.step, stage ^= 1) {
        const Pixel at = tile_at(tiles, tile);
        const uint32_t from = room + stage * stage_bytes;
        load(tile + slab.step, stage ^ 1);
        ignis_ptx_cp_async_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int first = warp / N_WARPS * 16; exists && first < pixels; first += 8 / N_WARPS * 16) {
            const int patch = patch_of(q, tiles, min(first + lane % 16, pixels - 1));
            float sum[NW][4];
#pragma unroll
            for (int j = 0; j < NW; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sum[j][e] = bias[j][e % 2];
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const int chunk = 2 * s + lane / 16, in_pixel = in_slab * (C / 8) + chunk % (C / 8);
                uint32_t words[4];
                ignis_ptx_ldmatrix(words, chunk < CHUNKS ? from + place<SLAB>(patch + offset[s], in_pixel) : zeros);
#pragma unroll
                for (int j = 0; j < NW; j++)
                    ignis_mma<T>(sum[j], words, weights[s][j][0], weights[s][j][1]);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int pixel = first + lane / 4 + 8 * half;
                int column;
                const int row = at.row + ignis_divide(tiles.columns, pixel, column);
                column += at.column;
                if (pixel >= pixels || row >= (int)q.rows.size || column >= (int)q.columns.size)
                    continue;
                T *const to = p.out + at.image * q.out_image + row * q.out_row + column * q.out_column + group * O +
                              first_chunk * 8 % O + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < NW; j++)
                    ignis_store(to + 8 * j, ignis_pack_of<ignis_pack<T, 2>>(
                                                ignis_round_two<T>(sum[j][2 * half], sum[j][2 * half + 1])));
            }
        }
        __syncthreads();
    }
}

/*  Computes partial [split, group, out, tap, channel] = the sums over some pixels of a, which are those of
    the result, times the patches of b. A warp sums the transposed matrix: rows are chunks of patches, columns
    NW chunks of results. K_WARPS warps share the pixels, 32 at a time; each of them makes a split of its own. */
constexpr int M_WARPS = GROUPS == 1 && OUT_CHUNKS > 1 && STEPS > 7 ? 2 : 1, OWN = (STEPS + M_WARPS - 1) / M_WARPS;
extern "C" __global__ void __launch_bounds__(256, OWN > 16 ? 1 : 2)
    ignis_grouped_weights(const Product p, const ignis__conv_tiles tiles)
{
    constexpr int N_WARPS = OUT_CHUNKS < 8 / M_WARPS ? OUT_CHUNKS : 8 / M_WARPS, K_WARPS = 8 / M_WARPS / N_WARPS,
                  NW = OUT_CHUNKS / N_WARPS;
    const ignis__patches &q = p.patches;
    const Slab slab(p);
    const uint32_t zeros = begin_memory(), room = zeros + ZEROS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pixels = tiles.rows * (int)tiles.columns.size,
              padded = (pixels + 31) / 32 * 32;
    const int read_bytes = tiles.halo_rows * (int)tiles.halo.size * SLAB * 16,
              stage_bytes = read_bytes + padded * OUT_CHUNKS * 16;
    const int first_chunk = warp % N_WARPS * NW, first_step = warp / N_WARPS % M_WARPS * OWN,
              turn = warp / N_WARPS / M_WARPS;
    const int in_slab = first_chunk * 8 / O, group = slab.index * GROUPS + in_slab;
    const auto load = [&](int tile, int stage) {
        if (tile < tiles.count) {
            const Pixel at = tile_at(tiles, tile);
            const uint32_t to = room + stage * stage_bytes;
            load_pixels(to, p.b, q, tiles, slab, at);
            for (int i = threadIdx.x; i < padded * OUT_CHUNKS; i += 256) {
                const int chunk = i % OUT_CHUNKS, pixel = i / OUT_CHUNKS;
                int column;
                const int row = at.row + ignis_divide(tiles.columns, pixel, column);
                column += at.column;
                const bool inside = pixel < pixels && row < (int)q.rows.size && column < (int)q.columns.size &&
                                    slab.index * OUT_CHUNKS + chunk < slab.groups * O / 8;
                const long long number = ((long long)at.image * q.rows.size + row) * q.columns.size + column;
                ignis_ptx_cp_async(to + read_bytes + place<OUT_CHUNKS>(pixel, chunk),
                                   inside ? p.a + number * p.row_a + (slab.index * OUT_CHUNKS + chunk) * 8 : p.a,
                                   inside ? 16 : 0);
            }
        }
        ignis_ptx_cp_async_commit();
    };
    float sum[OWN][NW][4] = {};
    int offset[OWN], stage = 0;
#pragma unroll
    for (int s = 0; s < OWN; s++)
        offset[s] = offset_of(q, tiles, min(2 * (first_step + s) + lane / 8 % 2, CHUNKS - 1));

    load(slab.first_tile, 0);
#pragma unroll 1
    for (int tile = slab.first_tile; tile < tiles.count; tile += slab.step, stage ^= 1) {
        const uint32_t from = room + stage * stage_bytes;
        load(tile + slab.step, stage ^ 1);
        ignis_ptx_cp_async_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int first = turn * 32; first < padded; first += K_WARPS * 32) {
            uint32_t results[NW][4];
#pragma unroll
            for (int j = 0; j < NW; j++)
                ignis_ptx_ldmatrix_transposed(results[j],
                                              from + read_bytes + place<OUT_CHUNKS>(first + lane, first_chunk + j));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int pixel = first + 16 * half + lane % 8 + lane / 16 * 8;
                const int patch = patch_of(q, tiles, min(pixel, pixels - 1));
#pragma unroll
                for (int s = 0; s < OWN; s++) {
                    const int chunk = 2 * (first_step + s) + lane / 8 % 2,
                              in_pixel = in_slab * (C / 8) + chunk % (C / 8);
                    uint32_t words[4];
                    ignis_ptx_ldmatrix_transposed(words, chunk < CHUNKS && pixel < pixels
                                                             ? from + place<SLAB>(patch + offset[s], in_pixel)
                                                             : zeros);
#pragma unroll
                    for (int j = 0; j < NW; j++)
                        ignis_mma<T>(sum[s][j], words, results[j][2 * half], results[j][2 * half + 1]);
                }
            }
        }
        __syncthreads();
    }
    if (group >= slab.groups)
        return;
    Wide *const to =
        (Wide *)p.partial + ((long long)(slab.first_tile * K_WARPS + turn) * p.batch + group) * O * CHUNKS * 8;
#pragma unroll
    for (int s = 0; s < OWN; s++)
#pragma unroll
        for (int j = 0; j < NW; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int chunk = 2 * (first_step + s) + e / 2, n = (first_chunk + j) * 8 % O + lane % 4 * 2 + e % 2;
                if (chunk < CHUNKS)
                    to[(n * CHUNKS + chunk) * 8 + lane / 4] = sum[s][j][e];
            }
}
