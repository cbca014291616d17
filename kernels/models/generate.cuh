// SPDX-License-Identifier: MIT
/*  models/generate.cuh - the rows of a decode step, and the layout of the KV cache

    A row is one token of one sequence. Rows are in device memory, so a captured step is replayed with other
    positions.
*/
#ifndef IGNIS_GENERATE_CUH
#define IGNIS_GENERATE_CUH

#include "shared/models/generate.h"

constexpr int PAGE = IGNIS__PAGE;

/*  The keys, or the values, of a layer: [pages, kv_heads, PAGE, head_dim]. */
template <typename T> struct generate_cache {
    T *data;
    int kv_heads, head_dim;

    __device__ long long in_page(long long page, int position, int head) const
    {
        return ((page * kv_heads + head) * PAGE + position % PAGE) * head_dim;
    }
    __device__ long long offset(const int32_t *pages, int position, int head) const
    {
        return in_page(pages[position / PAGE], position, head);
    }
    __device__ T *at(const int32_t *pages, int position, int head) const
    {
        return data + offset(pages, position, head);
    }
};

#endif /* IGNIS_GENERATE_CUH */
