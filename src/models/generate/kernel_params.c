/* ===============================================================================================================
   >>generate - sequences over a cache of keys and values, sampling, text out.
   =============================================================================================================== */

/*  What the kernels of kernels/generate.cu, gemv.cu and attention_paged.cu get. All of it is in device memory but for what launches carry. */
enum {
    IGNIS__PAGE = 16,           /* tokens of a page of a cache */
    IGNIS__SPLIT = 64,          /* keys of a block of attention, or a multiple of it so that there are no more than */
    IGNIS__SPLITS = 32,         /* so many blocks */
    IGNIS__WORDS = 960,         /* that a launch carries, */
    IGNIS__ROWS_SENT = 32,      /* and rows */
    IGNIS__BIASES = 512,        /* of a row */
    IGNIS__MASKS_KEPT = 64,     /* beside those of the rows of a step */
    IGNIS__MANY_HEAD_DIM = 128, /* of heads that attention_paged_many.cu takes, at most */
    IGNIS__DRAW_PARTS = 64,     /* of a row's logits, and the bytes of what one has */
    IGNIS__DRAW_PART = 24,
    IGNIS__DRAW_BLOCKS = 32,                                 /* of a row of which something is cut, at most */
    IGNIS__DRAW_BINS = 2048 * 12 + 32 + 16384 * 4 + 64 * 12, /* bytes of what is known of a row */
    IGNIS__DRAW_VOCAB = 1 << 19,
    IGNIS__DRAW_NO_TOKEN = -1, /* in the place of an id: all tokens are forbidden, */
    IGNIS__DRAW_NO_LOGITS = -2 /* or no logit is above minus infinity */
};

typedef struct ignis__generate_row {
    ignis__address ids, pages;
    int32_t position, top_k;
    double temperature, top_p, min_p, penalty;
    uint64_t seed;
    int32_t window, biases, masked;
    ignis__address draws;
} ignis__generate_row;

typedef struct ignis__generate_rows {
    ignis__generate_row at[IGNIS__ROWS_SENT];
} ignis__generate_rows;

typedef struct ignis__generate_words {
    int32_t at[IGNIS__WORDS];
} ignis__generate_words;

typedef struct ignis__generate_bias {
    int32_t id;
    float bias;
} ignis__generate_bias;

typedef struct ignis__generate_draw {
    int32_t id, kept;
    float log_prob;
} ignis__generate_draw;

typedef struct ignis__generate_cache {
    ignis__address qkv, k, v, k_too, v_too, q_weight, k_weight, rows;
    double eps;
    int heads, kv_heads, head_dim, turns;
} ignis__generate_cache;

typedef struct ignis__paged {
    ignis__address q, out, k, v, rows, scratch, ended;
    int64_t q_row;
    double scale;
    int heads, kv_heads, head_dim, splits, settled, count;
} ignis__paged;

typedef struct ignis__draw {
    ignis__address logits, scores, rows, biases, parts, masks, bins;
    int64_t stride;
    int vocab, bias_room, mask_room;
} ignis__draw;

/*  What a step draws: no tokens, one of all for each row, or, for some rows, one of those that top k, top p and min p leave. */
typedef enum ignis__draws { IGNIS__DRAWS_NONE, IGNIS__DRAWS_ALL, IGNIS__DRAWS_CUT } ignis__draws;

typedef enum ignis__gemv_kind {
    IGNIS__GEMV_OUT,
    IGNIS__GEMV_GELU,
    IGNIS__GEMV_ADD,
    IGNIS__GEMV_LOGITS,
    IGNIS__GEMV_CACHE
} ignis__gemv_kind;

typedef struct ignis__gemv {
    ignis__address x, weights, bias, out, sum, logits;
    int64_t n, k, result_row;
    int rows, kind, packed;
} ignis__gemv;

typedef struct ignis__gemv_mma {
    ignis__address x, weights, bias, out, sum, logits, norm_of, norm_weight, norm_bias, places, keys, values, frequencies;
    double eps;
    int64_t n, k, result_row;
    int rows, kind, gated, rms, heads, kv_heads, head_dim, ring, found_at;
} ignis__gemv_mma;

/*  The same for a part of quantised weights, from its first row on: scales in no record; and many rows of x as whole numbers. */
typedef struct ignis__gemv_blocks {
    ignis__gemv_mma product;
    ignis__address scales_of, x, scales;
    int first;
} ignis__gemv_blocks;

/*  What generate_step.cu takes: its products, those of a layer and that of the logits; where each layer has what; and all else. */
typedef struct ignis__step_shape {
    int n, k, kind, gated, head_dim, tiles;
} ignis__step_shape;

/*  Of dense weights, or of quantised ones: parts of one type each. */
typedef union ignis__step_weights {
    ignis__tensor_map map;
    struct {
        ignis__address records;
        int type, first;
    } parts[3];
} ignis__step_weights;

typedef struct ignis__step_layer {
    ignis__step_weights weights[4];
    ignis__address bias[4], norm[2], norm_bias[2], head_norm[2], nothing[6]; /* maps of the next layer begin at 64 bytes */
} ignis__step_layer;

typedef struct ignis__step {
    ignis__address layers, row, frequencies, embedding, positions;
    ignis__quantised table;
    ignis__address cache;
    int64_t slab;
    ignis__address logits, state, sums[2], qkv, attended, inner, found;
    double eps, scale;
    ignis__step_shape shapes[5];
    int count, rms, heads, kv_heads, head_dim, splits, ring, found_at, row_at;
} ignis__step;

/*  A norm ahead of a product. other: what is added to the sum first, of which many rows are; or null. */
typedef struct ignis__step_norms {
    ignis__array *sum, *other, *weight, *bias; /* bias: or null */
    double eps;
    bool rms;
} ignis__step_norms;

/*  An operation without inputs, for launches on the thread's current stream. False, and reported: the device cannot be entered. */
static bool ignis__next_begin(ignis__op *op, const char *call, ignis__device *device)
{
    memset(op, 0, offsetof(ignis__op, tape_state));
    op->work.call = call;
    op->steady = true;
    return op->ok = ignis__work_begin(call, device, &op->work);
}

/*  Writes numbers to an i32 array, from an element on. */
static void ignis__step_words(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first, const int32_t *from, int64_t count)
{
    ignis__address at = ignis__op_write(op, to) + (ignis__address)(4 * first);
    ignis__generate_words words;
    int some;
    void *params[] = {&at, &words, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += 4 * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__WORDS);
        memcpy(words.at, from, 4 * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_WORDS, dtype, 1, 256, params);
    }
}

/*  Writes the rows of a step. */
static void ignis__step_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to, const ignis__generate_row *from, int count)
{
    ignis__address at = ignis__op_write(op, to);
    ignis__generate_rows rows;
    int some;
    void *params[] = {&at, &rows, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += sizeof *from * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__ROWS_SENT);
        memcpy(rows.at, from, sizeof *from * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_ROWS, dtype, 1, 32, params);
    }
}

/*  Writes rows of one sequence, from a position on. */
static void ignis__step_chunk(ignis__op *op, ignis_dtype dtype, ignis__array *to, ignis__generate_row *first, int count)
{
    ignis__address at = ignis__op_write(op, to);
    void *params[] = {&at, first, &count};
    ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_CHUNK, dtype, 1, 256, params);
}

static int64_t ignis__weight_rows(const ignis__array *weights)
{
    return weights->blocks.count ? ignis__blocks_rows(&weights->blocks) : weights->shape.dim[0];
}

static int64_t ignis__weight_columns(const ignis__array *weights)
{
    return weights->blocks.count ? weights->blocks.columns : weights->shape.dim[1];
}

static void ignis__step_embed(ignis__op *op, int count, ignis_dtype dtype, ignis__array *sum, ignis__array *embedding,
                              ignis__array *positions, ignis__array *rows)
{
    ignis__address to = ignis__op_write(op, sum), from = ignis__op_read(op, embedding),
                   learned = positions ? ignis__op_read(op, positions) : 0, places = ignis__op_read(op, rows);
    int hidden = (int)ignis__weight_columns(embedding);
    ignis__quantised q;
    void *params[] = {&to, &from, &learned, &places, &hidden}, *of_blocks[] = {&to, &q, &learned, &places};
    if (!embedding->blocks.count) {
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_EMBED, dtype, count, 256, params);
        return;
    }
    q = ignis__quantised_part(&embedding->blocks, 0, from);
    ignis__op_launch_row(op, IGNIS__BUILTIN_BLOCKS_EMBED, dtype, count, 256, of_blocks);
}
