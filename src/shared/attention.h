#pragma once
/*  Params of the kernels of attention. Kernels define T, the type of elements, Bias, that of
    a bias, and Wide, that of statistics. */

/*  Rows of the heads of a tensor: head h of row r of batch b starts at data + b * batch + r * row + h * head. So a
    tensor may be a block of columns of a wider one, such as the q of a fused qkv. */
IGNIS__TEMPLATE(E) struct ignis__attention_rows {
    IGNIS__POINTER(E) data;
    long long row, head, batch; /* elements */
};

/*  Forward reads q, k, v and writes out and lse. Backward reads all of these and grad_out, and writes delta, then
    grad_q, grad_k, grad_v. Unused members may be null. Query head h attends to key head h / (heads / kv_heads). */
typedef struct ignis__attention_params {
    IGNIS__OF(ignis__attention_rows, const T) q, k, v;
    IGNIS__OF(ignis__attention_rows, T) out; /* [batch, sq, heads * head_dim] */
    IGNIS__OF(ignis__attention_rows, const T) grad_out;
    IGNIS__OF(ignis__attention_rows, T) grad_q, grad_k, grad_v;
    /* [batch, heads, sq]: log of the sum of exp(scale * score) over the keys that the query sees, and the sink;
       +infinity if it sees no key. With a bias: a bound of the scores, then, after all of these, log 2 of the sum of
       exp(score - bound): together they would lose digits, or the sum. */
    IGNIS__POINTER(Wide) lse;
    IGNIS__POINTER(Wide) delta; /* [batch, heads, sq]: sum of out * grad_out */
    int batches, heads, kv_heads, head_dim;
    int sq, sk;   /* queries and keys, below 2^30 */
    int causal;   /* query i sees the keys before i + sk - sq + 1, so the last query sees all; else every query does */
    double scale; /* of the scores, positive */
    double softcap;
    /* [batch, heads, sq, sk], steps of 0 where it is broadcast: row, head, batch */
    IGNIS__OF(ignis__attention_rows, const Bias) bias;
    IGNIS__OF(ignis__attention_rows, Bias) grad_bias;
    IGNIS__POINTER(const int) lengths; /* of the sequences, [batch]; or null: each has all keys */
    /* Of documents, [batch, sk + 1, 2], or null; with them sq is sk. For each row the first row of its document, and
       the row after its last one; kernels/attention_bounds.cu says what it is for a row in none. Then the same of all
       documents together. */
    IGNIS__POINTER(const int) bounds;
    int window; /* keys at this distance from the query's own, or farther, are not seen; max(sq, sk): all are seen */
    int wide_sinks; /* whether sinks are Wide, not T */
    /* [heads]: scores of a key that every query sees besides, whose value is 0; or null. They are in lse. */
    IGNIS__POINTER(const void) sinks;
} ignis__attention_params;
IGNIS__ASSERT_SIZE(ignis__attention_params, 416);

/*  kernels/attention_hopper.cu: how the items of the forward pass are distributed. */
typedef struct ignis__forward_plan {
    IGNIS__POINTER(unsigned) counter; /* of items that were handed out; 0, and left 0 */
    /* with splits: [splits][batches * heads * sq][D] sums, then for each a bound and a sum of weights */
    IGNIS__POINTER(float) parts;
    int section;       /* heads whose items are processed together */
    int splits, tiles; /* of the keys of an item, and tiles of keys of a split */
} ignis__forward_plan;
IGNIS__ASSERT_SIZE(ignis__forward_plan, 32);

/*  kernels/attention_hopper_backward.cu: scratch that the kernels pass on. Rows of a head are filled up to full tiles.
    */
typedef struct ignis__attention_scratch {
    IGNIS__POINTER(float) lse, delta; /* [batch, heads, rows]: lse in units of log 2, infinity after the last query */
    /* [batch, heads, tiles][QUERIES * D]: chunks of 8 columns, as the 128 threads of a group hold them;
       FEW: [parts of the keys][batch, heads, sq][D] */
    IGNIS__POINTER(float) grad_q;
    IGNIS__POINTER(uint32_t) turns; /* [batch, heads, tiles][TURNS]: number of blocks that have added to the tile */
    IGNIS__POINTER(uint32_t) next;  /* the place in the order for the next block */
    /* of columns, of SUMMED rows each: [batch, parts of the rows][heads of keys, of values][HEAD_DIM]; or null */
    IGNIS__POINTER(float) sums;
    int rows;
    /* key heads per section, so that what they read again stays in the L2 cache; FEW: tiles of keys of a part, which a
       block loops over */
    int section;
} ignis__attention_scratch;
IGNIS__ASSERT_SIZE(ignis__attention_scratch, 56);
