// SPDX-License-Identifier: MIT
/*  attention_bounds.cu - where the document of each row of a packed batch begins and ends

    bounds [batch, rows + 1, 2] has, for each row, the first row of its document and the row after its last one.
    A row in no document has twice the end of the documents before it, or twice the start of all documents if
    there are none before it: it sees nothing, and both numbers rise, or stay, from row to row. After the rows
    is the first row of all documents, and the row after their last one: equal ones if there is no document.

    Any input gives bounds inside 0 ... rows that fit one another, as the kernels of attention wait for blocks
    that these numbers name.

    One program per type of ids or offsets: compiled with -DIGNIS_T=<IGNIS_I32 or IGNIS_I64>. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

#define THREADS 256
#define AT_ONCE 4 /* rows that a thread asks */

/*  The bounds of a row that is in no document, between `from` and `end`, where none is. */
__device__ inline int2 no_document(int from, int end) { return from > 0 ? make_int2(from, from) : make_int2(end, end); }

/* >>ids --------------------------------------------------------------------------------------------------------- */

/*  A document is a run of equal ids. Negative ids are of rows in no document, and equal to one another. */
struct row_ids {
    const T *ids;
    int rows;

    __device__ T at(int row) const { return max(ids[row], T(-1)); }
    __device__ bool begins(int row) const { return row == 0 || at(row) != at(row - 1); }

    /*  By a block: the last row up to `row` with a property (-1: none), or the first one from `row` on (rows:
        none). */
    template <typename Has> __device__ int last_with(int row, Has has) const
    {
        for (; row >= 0; row -= AT_ONCE * THREADS) {
            int found = -1;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int its = row - i * THREADS - (int)threadIdx.x;
                found = max(found, its >= 0 && has(its) ? its : -1);
            }
            found = ignis_block_max(found);
            if (found >= 0)
                return found;
        }
        return -1;
    }
    template <typename Has> __device__ int first_with(int row, Has has) const
    {
        for (; row < rows; row += AT_ONCE * THREADS) {
            int found = rows;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int its = row + i * THREADS + (int)threadIdx.x;
                found = min(found, its < rows && has(its) ? its : rows);
            }
            found = -ignis_block_max(-found);
            if (found < rows)
                return found;
        }
        return rows;
    }
};

/*  A block has THREADS rows. Where the documents begin that reach into them, and end that reach beyond, it
    finds by reading on; that is little beside the attention to so long a document.
    grid = max(1, ceil(rows / THREADS)) * batches, blocks of THREADS. */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_document_bounds(int2 *bounds, const T *ids, int rows)
{
    ignis_grid_dependency();
    __shared__ int starts[THREADS], ends[THREADS];
    const int blocks = max(1, (rows + THREADS - 1) / THREADS), b = blockIdx.x / blocks,
              first = blockIdx.x % blocks * THREADS, row = first + (int)threadIdx.x;
    const row_ids its = {ids + (long long)b * rows, rows};
    const auto begins = [&](int r) { return its.begins(r); };
    const int before = its.last_with(first - 1, begins), after = its.first_with(first + THREADS, begins);
    bounds += (long long)b * (rows + 1);
    starts[threadIdx.x] = row < rows && its.begins(row) ? row : threadIdx.x == 0 ? before : -1;
    ends[threadIdx.x] = row + 1 < rows && threadIdx.x + 1 < THREADS ? (its.begins(row + 1) ? row + 1 : rows) : after;
    for (int distance = 1; distance < THREADS; distance *= 2) {
        __syncthreads();
        const int start = threadIdx.x >= distance ? max(starts[threadIdx.x], starts[threadIdx.x - distance])
                                                  : starts[threadIdx.x],
                  end = threadIdx.x + distance < THREADS ? min(ends[threadIdx.x], ends[threadIdx.x + distance])
                                                         : ends[threadIdx.x];
        __syncthreads();
        starts[threadIdx.x] = start;
        ends[threadIdx.x] = end;
    }
    if (row < rows)
        bounds[row] = its.at(row) < 0 ? no_document(starts[threadIdx.x], ends[threadIdx.x])
                                      : make_int2(starts[threadIdx.x], ends[threadIdx.x]);
    if (first > 0)
        return;
    const auto exists = [&](int r) { return its.at(r) >= 0; };
    const int from = its.first_with(0, exists), end = its.last_with(rows - 1, exists) + 1;
    if (threadIdx.x == 0)
        bounds[rows] = make_int2(from, max(from, end));
}

/* >>offsets ----------------------------------------------------------------------------------------------------- */

/*  The documents of one sequence, from offsets [documents + 1], which should rise or stay. */
struct row_offsets {
    const T *offsets;
    int documents, rows;

    __device__ int at(int i) const { return (int)max(T(0), min(T(rows), offsets[i])); }

    /*  A document whose offsets a row is between. Rows of one document are neighbours in any case, as the same
        offsets are compared with all rows. */
    __device__ int find(int row) const
    {
        int low = 0, high = documents;
        while (high - low > 1) {
            const int middle = low + (high - low) / 2;
            if (at(middle) <= row)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
    __device__ bool is_inside(int row) const { return documents > 0 && at(0) <= row && row < at(documents); }
    __device__ bool has(int document, int row) const { return is_inside(row) && find(row) == document; }
};

/*  grid = ceil((rows + 1) / THREADS), blocks of THREADS. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_document_bounds_of_offsets(int2 *bounds, const T *offsets, int documents, int rows)
{
    ignis_grid_dependency();
    const row_offsets its = {offsets, documents, rows};
    const int row = blockIdx.x * THREADS + (int)threadIdx.x;
    if (row > rows)
        return;
    const int from = documents > 0 ? its.at(0) : rows, all = documents > 0 ? its.at(documents) : rows,
              end = max(from, all);
    int2 found = make_int2(from, end);
    if (row < rows && its.is_inside(row)) {
        const int document = its.find(row);
        found = make_int2(its.at(document), its.at(document + 1));
        /* Offsets that fall can have other rows between these. */
        if (!its.has(document, found.x) || !its.has(document, found.y - 1))
            found = make_int2(row, row);
    } else if (row < rows) {
        found = row < from ? make_int2(from, from) : make_int2(end, end);
    }
    bounds[row] = found;
}
