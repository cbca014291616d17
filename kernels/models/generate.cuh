// SPDX-License-Identifier: MIT
/*  generate.cuh - what the kernels of generation share: the rows of a step, and where a cache has what

    A row is one token of one sequence. Rows lie in device memory, so that a captured step is replayed with other positions. */
#ifndef IGNIS_GENERATE_CUH
#define IGNIS_GENERATE_CUH

constexpr int PAGE = 16; /* tokens of a page of the cache; the host has the same */

struct generate_draw;

/*  ignis.h has the same struct as ignis__generate_row. */
struct generate_row {
    int32_t *ids;         /* of the sequence: ids[position] is this row's token */
    const int32_t *pages; /* of the cache: pages[position / PAGE] has the position */
    int32_t position;     /* below 0: there is no row here */
    int32_t top_k;        /* the rest is for the draw of ids[position + 1]; 0: all */
    double temperature;   /* 0: the likeliest one */
    double top_p, min_p;  /* 0: all */
    double penalty;       /* 1: none */
    uint64_t seed;
    int32_t window;       /* latest tokens that count for the penalty; 0: all */
    int32_t biases;       /* of the row */
    int32_t masked;       /* the number, from 1 on, of the mask that says which tokens may be drawn; 0: all may */
    generate_draw *draws; /* two, in the host's memory: of even and of odd positions */
};

/*  The keys, or the values, of a layer: [pages, kv_heads, PAGE, head_dim]. */
template <typename T> struct generate_cache {
    T *data;
    int kv_heads, head_dim;

    __device__ long long in_page(long long page, int position, int head) const
    {
        return ((page * kv_heads + head) * PAGE + position % PAGE) * head_dim;
    }
    __device__ long long offset(const int32_t *pages, int position, int head) const { return in_page(pages[position / PAGE], position, head); }
    __device__ T *at(const int32_t *pages, int position, int head) const { return data + offset(pages, position, head); }
};

#endif /* IGNIS_GENERATE_CUH */
