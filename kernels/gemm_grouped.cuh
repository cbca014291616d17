// SPDX-License-Identifier: MIT
/*  gemm_grouped.cuh - the tile of a block in a product of rows that are sorted by group

    Included after gemm.cuh. Group g has rows offsets[g] to offsets[g + 1] - 1. Two kinds of products: a row is
    multiplied by the matrix of its group, or (transpose_a) the rows of a group are the k of a matrix of its own. Groups
    are read on the device, so a grid has a block for each tile that there may be: a group of r rows has r / BM + 1 at
    most. Offsets that do not ascend give wrong numbers; nothing outside of the arrays is read or written. */
#ifndef IGNIS_GEMM_GROUPED_CUH
#define IGNIS_GEMM_GROUPED_CUH

struct Groups : ignis__gemm_groups {
    /*  Returns the first row of group `group` - 1 of the offsets. Groups 0 and count + 1 are the rows before and after
        all offsets. */
    __device__ long long first(long long group) const
    {
        if (group < 1 || group > count + 1)
            return group < 1 ? 0 : rows;
        const long long at = offset_bytes == 4 ? ((const int32_t *)offsets)[group - 1]
                                               : (long long)((const int64_t *)offsets)[group - 1];
        return max(0LL, min(at, rows));
    }

    /*  Returns the group of a tile of rows. Tiles of a group have numbers from first(group) / tile_rows + group on,
        which are free for one more than the group's rows fill. */
    __device__ long long of_tile(long long tile, int tile_rows) const
    {
        long long low = 0, high = count + 2;
        while (high - low > 1) {
            const long long middle = (low + high) / 2;
            if (first(middle) / tile_rows + middle <= tile)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
};

/*  Sets the block's tile of BM x BN, and in own the end of its rows and its matrix. False if there is no such tile.
    Rows of no group have no k, so they become 0, unless they are kept. */
template <int BM, int BN> __device__ inline bool find_tile(Product &own, Place &place, const Groups &groups)
{
    if (own.transpose_a) {
        place = Place(own, blockIdx.x, BM, BN);
        place.first_k = groups.first(place.batch + 1);
        place.end_k = max(place.first_k, groups.first(place.batch + 2));
        return true;
    }
    const unsigned tiles = (unsigned)(groups.rows / BM + groups.count + 2), tile = blockIdx.x % tiles;
    const long long group = groups.of_tile(tile, BM), first = groups.first(group);
    const bool exists = group > 0 && group <= groups.count;
    place.row = first + (tile - (first / BM + group)) * BM;
    place.column = (long long)(blockIdx.x / tiles) * BN;
    place.batch = place.split = place.first_k = 0;
    place.end_k = exists ? own.k : 0;
    own.m = groups.first(group + 1);
    own.b += exists ? (group - 1) * own.batch_b : 0;
    return place.row < own.m && (exists || !groups.keeps);
}

#endif /* IGNIS_GEMM_GROUPED_CUH */
