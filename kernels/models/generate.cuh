// SPDX-License-Identifier: MIT
/*  models/generate.cuh - the rows of a decode step, and the layout of the KV cache

    A row is one token of one sequence. Rows are in device memory, so a captured step is replayed with other
    positions.
*/
#ifndef IGNIS_GENERATE_CUH
#define IGNIS_GENERATE_CUH

constexpr int PAGE = 16; /* tokens of a page of the KV cache; the host has the same */

struct generate_draw;

/*  The host has the same struct: ignis__generate_row. */
struct generate_row {
    int32_t *ids;         /* of the sequence: ids[position] is this row's token */
    const int32_t *pages; /* of the KV cache: pages[position / PAGE] has the position */
    int32_t position;     /* below 0: the row does not exist */
    int32_t top_k;        /* from here on: how ids[position + 1] is sampled; 0: all */
    double temperature;   /* 0: the likeliest token */
    double top_p, min_p;  /* 0: all */
    double penalty;       /* 1: none */
    uint64_t seed;
    int32_t window;       /* latest tokens that the penalty counts; 0: all */
    int32_t biases;       /* of the row */
    int32_t masked;       /* the number, from 1 on, of the mask of allowed tokens; 0: all are allowed */
    generate_draw *draws; /* two, in host memory: of even and of odd positions */
};

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
