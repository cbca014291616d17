// SPDX-License-Identifier: MIT
/*  models/blocks.cu - rows of a quantised embedding; those of a matrix: blocks_rows.cu

    Layout and formulas of quantised weights: blocks.cuh. Every number is rounded as the host does it.
    One program per element type: compiled with -DIGNIS_T=<1 to 4>.
*/
#include "ignis.cuh"
#include "generate.cuh"
#include "blocks.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> W;

/*  Dequantises a row. One block of threads does it. */
template <typename To> __device__ inline void numbers_of(To *to, const ignis__quantised_weight &w, long long row)
{
    constexpr int some = sizeof(To) > 4 ? 2 : 4;
    for (int i = threadIdx.x; i < w.k / 8; i += blockDim.x) {
        float v[8];
        blocks_eight(w, row, i / 4, i % 4, v);
#pragma unroll
        for (int part = 0; part < 8; part += some) {
            ignis_pack<To, some> pack;
#pragma unroll
            for (int j = 0; j < some; j++)
                pack[j] = To(v[part + j]);
            ignis_store(to + i * 8 + part, pack);
        }
    }
}

/*  Gathers rows by ids; NaN for an id outside the table, as in ignis_embedding. grid = any number of blocks. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_blocks_embedding(T *to, const __grid_constant__ ignis__quantised_weight w, const void *ids, int id_bytes,
                           long long count, long long vocab)
{
    for (long long i = blockIdx.x; i < count; i += gridDim.x) {
        const long long id = ignis_index(ids, id_bytes, i);
        if (id >= 0 && id < vocab)
            numbers_of(to + i * w.k, w, id);
        else
            for (long long j = threadIdx.x; j < w.k; j += blockDim.x)
                to[i * w.k + j] = T(__int_as_float(0x7fffffff));
    }
}

/*  Embeds the tokens of a decode step, as ignis_generate_embed; positions: learned ones that are added, or null;
    scale: of the embeddings. grid = rows. */
extern "C" __global__ void __launch_bounds__(256)
    ignis_blocks_embed(W *sum, const __grid_constant__ ignis__quantised_weight w, const T *positions,
                       const ignis__generate_row *rows, double scale)
{
    const ignis__generate_row &row = rows[blockIdx.x];
    W *to = sum + blockIdx.x * w.k;
    if (row.position < 0) {
        for (int i = threadIdx.x; i < w.k; i += 256)
            to[i] = 0;
        return;
    }
    numbers_of(to, w, row.ids[row.position]);
    __syncthreads();
    for (int i = threadIdx.x; (positions || scale != 1) && i < w.k; i += 256)
        to[i] = to[i] * W(scale) + (positions ? W(positions[row.position * w.k + i]) : W(0));
}
