/*  models/generate - sequences, the cache of keys and values, sampling, text out. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../../tensor/room.h"
#include "../../ops/room.h"
#include "../room.h"
#include "../tokenizer/room.h"
#include "../chat/room.h"
#include "../grammar/room.h"
#include "../weights/room.h"
#include "../lora/room.h"

/*  Of >>lora, which comes behind. */
struct ignis__lora;

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
    ignis__address x, weights, bias, out, sum, logits, norm_of, norm_weight, norm_bias, places, keys, values,
        frequencies;
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
    ignis__address bias[4], norm[2], norm_bias[2], head_norm[2],
        nothing[6]; /* maps of the next layer begin at 64 bytes */
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

/*  What all sequences of a model share: the cache, room for a step, its graphs. Its lock is held while a step runs and is waited for, as there is
    one room. */
enum { IGNIS__CHUNK = 512 }; /* rows of a prompt at a time */

typedef struct ignis__engine_layer {
    ignis__array *attn_norm, *attn_norm_bias, *qkv, *qkv_bias, *q_norm, *k_norm, *o, *o_bias, *mlp_norm, *mlp_norm_bias,
        *up, *up_bias, *down, *down_bias;
} ignis__engine_layer;

typedef struct ignis__sequence ignis__sequence;

/*  What a mask on the device has. */
typedef struct ignis__engine_mask {
    uint64_t grammar, used; /* the number of the grammar, 0: there is none; when it was used last */
    int32_t epoch, state;
} ignis__engine_mask;

typedef struct ignis__engine {
    ignis__mutex lock;
    const ignis__model *model;
    ignis__device *device;
    ignis__engine_layer *layer; /* arrays of the weights, held; null: the family has none */
    ignis__array *embedding, *positions, *norm, *norm_bias, *head;
    /* numbers: of a quantised weight; null: there is none; turning: the frequencies; ended: zeros, see attention_paged.cu; mine: logits from this
       rank's first one on; table, words: where layers have what, and what blocks tell each other, for generate_step.cu, null: it does not do steps;
       step_types: those of its weights as bits, 0: they are numbers; said: to other ranks; all arrays of these are claimed */
    ignis__array *cache, *rows, *sum, *normed, *qkv, *attended, *inner, *room, *scratch, *logits, *scores, *biases,
        *parts, *masks, *bins, *gathered, *numbers, *turning, *ended, *mine, *table, *words, *said;
    int context, step_rows, splits, pages, step_types;
    char step_define[96];
    int *uses, *free_pages; /* sequences that have a page; pages that none has */
    int free_count;
    double frequencies[IGNIS__ROPE_HALF];
    struct {
        ignis__sequence *sequence;  /* whose next token is drawn ahead, while the caller has the last one; null: none */
        ignis__pooled_event *drawn; /* behind it */
        const ignis_sampling_desc
            *sampling; /* of the call of ignis_generate that has it drawn, which settles it before it returns */
        void *stream;
        int length; /* of the sequence without the token */
    } ahead;
    ignis__generate_draw *draws; /* [step_rows][2]: of tokens behind even and odd positions */
    ignis__pinned *draws_piece;  /* which has them */
    struct {
        int runs;
        ignis__capture *capture;
        void *exec;                /* CUgraphExec; null: not yet */
    } steps[3][8];                 /* by ignis__draws, of 1, 2, 4 ... rows */
    ignis__vocabulary *vocabulary; /* for grammars; null: not yet */
    ignis__grammar *grammars;      /* that sequences have, and have had, the latest first */
    uint64_t grammars_made, masks_used;
    int mask_count; /* that `masks` has room for */
    ignis__engine_mask *mask;
} ignis__engine;

struct ignis__sequence {
    ignis__slot slot;
    ignis__model *model;   /* held */
    ignis__engine *engine; /* its lock guards the rest */
    int32_t *ids, *page;   /* room for the context, and one */
    bool *many;            /* of each token: it is computed as one of more than IGNIS__STEP_ROWS that were fed */
    int length, page_count;
    int cached;           /* tokens that the cache has: all but the last one, or all */
    int sent, pages_sent; /* that are in device memory, too */
    int said_length;      /* tokens that `said` is a number of: for other ranks to compare */
    uint32_t said;
    float log_prob,
        next_log_prob;        /* of the token drawn last; of one behind it that no one has seen, as the step goes on */
    ignis__grammar *grammar;  /* the engine's; null: none */
    int constrained, matched; /* tokens ahead of its text; tokens that its state is behind */
    int32_t state, epoch;     /* of the grammar; epoch: 0: there is none yet */
    ignis__array *on_device, *table; /* the same; claimed */
    ignis__array
        *last;       /* what all layers have found of the last of many tokens; claimed, forks have the same; or null */
    int last_length; /* up to that one; 0: of none that is there */
};

/*  What generate_step.cu reads of a layer, in its order, and of the logits behind the last one; null: there is none. */
typedef struct ignis__step_arrays {
    ignis__array *weights[4], *bias[4], *norm[2], *norm_bias[2], *head_norm[2];
} ignis__step_arrays;

/*  Text that was not shown yet. */
typedef struct ignis__showing {
    const char *call;
    const ignis_generate_desc *desc;
    ignis_text_stream stream;
    int tokens; /* that the tokenizer has; those behind them are no text */
    char *text;
    size_t size, capacity;
    int stop; /* that has come; -1: none */
    bool cancelled;
} ignis__showing;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* kernel_params.c */
IGNIS__PRIVATE bool ignis__next_begin(ignis__op *op, const char *call, ignis__device *device);
IGNIS__PRIVATE void ignis__step_words(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first,
                                      const int32_t *from, int64_t count);
IGNIS__PRIVATE void ignis__step_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                     const ignis__generate_row *from, int count);
IGNIS__PRIVATE void ignis__step_chunk(ignis__op *op, ignis_dtype dtype, ignis__array *to, ignis__generate_row *first,
                                      int count);
IGNIS__PRIVATE int64_t ignis__weight_rows(const ignis__array *weights);
IGNIS__PRIVATE int64_t ignis__weight_columns(const ignis__array *weights);
IGNIS__PRIVATE void ignis__step_embed(ignis__op *op, int count, ignis_dtype dtype, ignis__array *sum,
                                      ignis__array *embedding, ignis__array *positions, ignis__array *rows);

/* gemv_cluster.c */
IGNIS__PRIVATE bool ignis__step_takes_mma(ignis__op *op, ignis_dtype dtype, ignis__array *weights);
IGNIS__PRIVATE void ignis__step_norm(ignis__op *op, int count, ignis__array *out, const ignis__step_norms *norm);
IGNIS__PRIVATE void ignis__step_mma_norm(ignis__op *op, ignis__gemv_mma *p, const ignis__step_norms *norm);
IGNIS__COLD IGNIS__PRIVATE void ignis__step_request(const ignis__op *op, ignis_dtype dtype, bool gated);
IGNIS__PRIVATE void ignis__step_ring(ignis__op *op, const ignis__array *weights, size_t rest, ignis__gemv_mma *p,
                                     ignis__tensor_map *map, int *resident);
IGNIS__PRIVATE bool ignis__step_mma_cluster(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights);
IGNIS__PRIVATE bool ignis__step_blocks_cluster(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type,
                                               int64_t units);

/* gemv.c */
IGNIS__PRIVATE void ignis__step_mma(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                    ignis__array *x, ignis__array *weights, ignis__array *bias,
                                    const ignis__step_norms *norm, const ignis__gemv_mma *cache);
IGNIS__PRIVATE void ignis__step_blocks(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                       ignis__array *x, ignis__array *weights, ignis__array *bias,
                                       ignis__array *numbers, const ignis__step_norms *norm,
                                       const ignis__gemv_mma *cache);
IGNIS__PRIVATE void ignis__step_product(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                        ignis__array *x, ignis__array *weights, ignis__array *bias,
                                        ignis__array *numbers, const ignis__step_norms *norm);
IGNIS__PRIVATE void ignis__step_product_many(ignis__op *op, int count, ignis__gemv_kind kind, bool gated,
                                             ignis__array *out, ignis__array *x, ignis__array *weights,
                                             ignis__array *bias, ignis__array *room, ignis__array *numbers);

/* paged_attention.c */
IGNIS__PRIVATE void ignis__step_cache(ignis__op *op, int count, ignis_dtype dtype, ignis__generate_cache *p,
                                      const double *frequencies);
IGNIS__PRIVATE int64_t ignis__paged_numbers(const ignis__paged *p, int rows);
IGNIS__PRIVATE int ignis__paged_head_dim(int head_dim);
IGNIS__PRIVATE void ignis__step_attention(ignis__op *op, int count, int at_a_time, ignis_dtype dtype,
                                          const ignis__paged *paged);
IGNIS__PRIVATE void ignis__step_draw(ignis__op *op, int count, ignis__draws draws, ignis__draw *p);
IGNIS__PRIVATE void ignis__step_attention_many(ignis__op *op, int count, int end, const ignis__paged *paged,
                                               ignis__array *gathered);

/* engine.c */
extern ignis__pool ignis__sequences;
IGNIS__PRIVATE int64_t ignis__engine_page_elements(const ignis__engine *e);
IGNIS__COLD IGNIS__PRIVATE void ignis__engine_destroy(const char *call, void *engine);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_room(const char *call, const ignis__engine *e, ignis__array **array,
                                                   int64_t rows, int64_t columns, ignis_dtype dtype);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_weights(const char *call, ignis__engine *e);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_ranks(const char *call, ignis__engine *e);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_numbers(const char *call, ignis__engine *e);
IGNIS__PRIVATE ignis__step_arrays ignis__engine_arrays(const ignis__engine *e, int layer);

/* fused_step.c */
extern int ignis__step_stages;
IGNIS__PRIVATE size_t ignis__engine_whole_shared(const ignis__engine *e, ignis__step *p);
extern int64_t ignis__step_least;
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_whole(const char *call, ignis__engine *e);

/* engine_create.c */
IGNIS__COLD IGNIS__PRIVATE ignis__engine *ignis__engine_make(const char *call, const ignis__model *m);

/* engine_step.c */
IGNIS__PRIVATE void ignis__engine_layers(ignis__op *op, ignis__engine *e, int count, int end, bool many);
IGNIS__PRIVATE void ignis__engine_launches(ignis__op *op, ignis__engine *e, int count, ignis__draws draws, bool ready);
IGNIS__PRIVATE void ignis__engine_step(ignis__op *op, ignis__engine *e, int count, ignis__draws draws);

/* grammar_mask.c */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_match(const char *call, ignis__sequence *s);
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_allows(const char *call, ignis__sequence *s);
IGNIS__PRIVATE int ignis__sequence_mask(ignis__op *op, ignis__sequence *s);

/* sequence.c */
IGNIS__PRIVATE void ignis__sequence_drop(const char *call, ignis__sequence *s);
IGNIS__PRIVATE void ignis__engine_settle(const char *call, ignis__engine *e);
IGNIS__PRIVATE void ignis__engine_lock(const char *call, ignis__engine *e);
IGNIS__PRIVATE bool ignis__engine_leave(ignis__op *op);
IGNIS__PRIVATE ignis__sequence *ignis__sequence_hold(const char *call, ignis_sequence handle);
IGNIS__PRIVATE ignis__sequence *ignis__sequence_enter(const char *call, ignis_sequence handle);
IGNIS__PRIVATE void ignis__sequence_leave(const char *call, ignis__sequence *s);

/* kv_cache.c */
IGNIS__PRIVATE int ignis__sequence_pages_needed(const ignis__sequence *s, int from, int to);
IGNIS__PRIVATE bool ignis__engine_has_pages(const char *call, const ignis__engine *e, int needed);
IGNIS__PRIVATE void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *s, int from, int to);
IGNIS__PRIVATE void ignis__sequence_row(ignis__op *op, ignis__sequence *s, int position, ignis__generate_row *row);
IGNIS__PRIVATE void ignis__sequence_piece(ignis__op *op, ignis__sequence *s, int first, int count);
IGNIS__PRIVATE void ignis__sequence_keep(ignis__op *op, ignis__sequence *s, int count);
IGNIS__PRIVATE void ignis__sequence_cut(ignis__sequence *s, int length);
IGNIS__PRIVATE bool ignis__sequence_knows(const char *call, const ignis__sequence *s, const int32_t *ids, int count);
IGNIS__PRIVATE bool ignis__sequence_append(const char *call, ignis__sequence *s, const int32_t *ids, int count);

/* sampling.c */
IGNIS__PRIVATE bool ignis__sampling_check(const char *call, const ignis_sampling_desc *d, int vocab);
IGNIS__PRIVATE bool ignis__sampling_cuts(const ignis_sampling_desc *d);
IGNIS__PRIVATE void ignis__sampling_row(const ignis__engine *e, int number, const ignis_sampling_desc *d,
                                        ignis__generate_row *row);

/* rank_check.c */
IGNIS__PRIVATE uint32_t ignis__engine_says(const ignis__engine *e, ignis__sequence *const *sequences, const int *of,
                                           int count, const ignis_sampling_desc *sampling, bool draws);
IGNIS__PRIVATE void ignis__engine_say(ignis__op *op, const ignis__engine *e, uint32_t said);
IGNIS__PRIVATE bool ignis__engine_agrees(ignis__op *op, const ignis__engine *e, uint32_t said);

/* sequence_step.c */
IGNIS__PRIVATE bool ignis__sequence_ready(const ignis__sequence *s);
IGNIS__COLD IGNIS__PRIVATE void ignis__draw_fail(const char *call, int32_t drawn, int number);
IGNIS__PRIVATE bool ignis__engine_run(const char *call, ignis__sequence *const *sequences, int count,
                                      const ignis_sampling_desc *sampling, bool draws, float *logits, int32_t *drawn);

/* sequence_next.c */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_make(const char *call, ignis__model *model, ignis__engine *e);
IGNIS__PRIVATE ignis_sequence ignis__sequence_new(const char *call, ignis_model handle);

/* stop_string.c */
IGNIS__PRIVATE bool ignis__showing_put(ignis__showing *show, int32_t id);
IGNIS__PRIVATE bool ignis__generate_check(const char *call, const ignis_generate_desc *desc);

/* warmup.c */
IGNIS__PRIVATE void ignis__sequences_close(const char *call);
