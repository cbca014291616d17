// SPDX-License-Identifier: MIT
/*  models/blocks_rows.cu - dequantised rows of a matrix

    Layout and formulas of quantised weights: blocks.cuh. Every number is rounded as the host does it. Prompts multiply
    dequantised weights, all of them for each chunk: so a warp has the bytes of several records on their way.
    Compiled with -DIGNIS_T=<1 to 4> -DIGNIS_BLOCKS=<a blocks_type>.
*/
#include "ignis.cuh"
#include "blocks.cuh"

typedef ignis_type<IGNIS_T> T;

/*  Rows of a block, one of each warp; its records of a row, and those whose bytes are on their way at a time. The host
    has ROWS and RECORDS, too. */
constexpr int ROWS = 8, RECORDS = 16, AT_ONCE = 4;

/*  Dequantises `rows` rows from `first` on. grid = blocks of rows, of records. */
extern "C" __global__ void __launch_bounds__(32 * ROWS)
    ignis_blocks_rows(T *to, const __grid_constant__ ignis__quantised_weight w, long long first, long long rows)
{
    constexpr int pack = 16 / sizeof(T);
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, last = ((int)w.k - 1) / (32 * RECORD);
    ignis__quantised_weight own = w;
    own.type = IGNIS_BLOCKS; /* the compiler knows it */
    if (row >= rows)
        return;
    to += row * w.k + lane * 8;
#pragma unroll 1
    for (int record = blockIdx.y * RECORDS; record <= min(last, (int)blockIdx.y * RECORDS + RECORDS - 1);
         record += AT_ONCE) {
        const int left = (int)w.k - record * 32 * RECORD - lane * 8;
        ignis_pack<T, pack> x[AT_ONCE][8 / pack];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float v[8]; /* the last record is filled up with zeros */
            blocks_eight(own, first + row, min(record + i, last) * RECORD + lane / 4, lane % 4, v);
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[i][j / pack][j % pack] = T(v[j]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int part = 0; part < 8 / pack; part++)
                if (i * 32 * RECORD < left)
                    ignis_store(to + (record + i) * 32 * RECORD + part * pack, x[i][part]);
    }
}
