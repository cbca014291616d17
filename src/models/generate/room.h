/*  models/generate - sequences, the KV cache, sampling, text output. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../../tensor/room.h"
#include "../../ops/room.h"
#include "../../ops/matmul/room.h"
#include "../../ops/attention/room.h"
#include "../../file/room.h"
#include "../room.h"
#include "../tokenizer/room.h"
#include "../chat/room.h"
#include "../grammar/room.h"
#include "../weights/room.h"
#include "../lora/room.h"

/*  Limits that kernels of kernels/models know, too. */
enum {
    IGNIS__BIASES = 512,        /* logit biases of a row */
    IGNIS__SPARE_MASKS = 64,    /* masks on the device besides those of a step's rows */
    IGNIS__LATENT_WIDTH = 1024, /* the longest rows of attention_latent.cu */
    IGNIS__MANY_HEAD_DIM = 128, /* the largest heads of attention_paged_many.cu */
    IGNIS__DRAW_BLOCKS = 32,    /* the largest number of blocks that filter a row */
    IGNIS__DRAW_VOCAB = 1 << 19
};

#include "../../shared/models/generate.h"
#include "../../shared/models/kv_cache.h"
#include "../../shared/models/sampling.h"
#include "../../shared/models/gemv.h"
#include "../../shared/models/experts.h"
#include "../../shared/models/experts_sorted.h"
#include "../../shared/models/expert_choice.h"
#include "../../shared/models/fused_step.h"
#include "../../shared/models/lora.h"
#include "../../shared/models/latent.h"
#include "../../shared/models/delta_net.h"

/*  The kinds of sampling of a step: none; a token for each row; the same where top k, top p or min p filter some
    rows. */
typedef enum ignis__sampling_kind {
    IGNIS__SAMPLING_NONE,
    IGNIS__SAMPLING_UNFILTERED,
    IGNIS__SAMPLING_FILTERED
} ignis__sampling_kind;

/*  A norm that comes before a product. other: rows that are added to the sum first, or NULL. */
typedef struct ignis__pre_norm {
    ignis__array *sum, *other, *weight, *bias; /* bias: or NULL; weight: or NULL, the rounded sum then */
    double eps, offset;                        /* offset: is added to the weights */
    ignis_dtype dtype;                         /* of the result */
    bool rms;
} ignis__pre_norm;

/*  A product of rows with weights. The shapes are x [count, k], weights [n, k], or [2 n, k] if gated, and out [count, n
    or more]. */
typedef struct ignis__gemv_desc {
    int count; /* rows: of a step, or of a chunk */
    ignis__gemv_kind kind;
    bool gated;
    ignis__array *out, *x, *weights, *bias; /* bias: or NULL */
    /* Scratch: of quantised weights, for x as whole numbers or for some rows of the weights; of gated weights in a
       chunk, [count, 2 n], used if no kernel finishes both halves in registers. */
    ignis__array *dequantised, *gate_up;
    const ignis__pre_norm *norm; /* makes x first; NULL if x is ready */
    const ignis__gemv_mma
        *cache;          /* of IGNIS__GEMV_CACHE: the rows, keys, values, frequencies and head counts; or NULL */
    ignis__array *delta; /* what adapters add to the product of each row, not in a chunk; or NULL */
    /* scratch for x in the order of operands, where wgmma may multiply; or NULL */
    ignis__array *ordered;
    bool is_ordered, orders; /* by wgmma: x is in that order; out will be */
} ignis__gemv_desc;

typedef struct ignis__engine_layer {
    ignis__array *attn_norm, *attn_norm_bias, *qkv, *qkv_bias, *q_norm, *k_norm, *o, *o_bias, *mlp_norm, *mlp_norm_bias,
        *up, *up_bias, *down, *down_bias, *attn_norm_behind, *mlp_norm_behind, *router, *gate_experts, *up_experts,
        *down_experts, *shared_gate, *choice_bias, *router_bias, *gate_experts_bias, *up_experts_bias,
        *down_experts_bias, *sinks, *q_a_norm, *q_b, *kv_a_norm, *kv_b, *gate, *conv, *strengths, *decay_log,
        *decay_bias, *delta_norm;
} ignis__engine_layer;

/*  Numbers of rows for which a step has graphs: see ignis__step_width. Graphs that an engine keeps, at most: all that
    it can have without adapters, which are three kinds of sampling, of one sequence and of several, in each width. */
enum { IGNIS__STEP_WIDTHS = 14, IGNIS__STEP_GRAPHS = 3 * 2 * IGNIS__STEP_WIDTHS };

typedef struct ignis__sequence ignis__sequence;

/*  A grammar mask on the device. */
typedef struct ignis__engine_mask {
    /* grammar: its number, 0 if the place is free; used: counts up, for the least recently used one */
    uint64_t grammar, used;
    int32_t epoch, state;
} ignis__engine_mask;

/*  Layers whose keys and values are in the same numbers of pages: IGNIS__PAGES_OF_ALL keep those of all tokens,
    IGNIS__PAGES_OF_WINDOWS those that their windows can still reach. */
enum { IGNIS__PAGES_OF_ALL, IGNIS__PAGES_OF_WINDOWS, IGNIS__PAGE_GROUPS };
typedef struct ignis__page_group {
    int layers, window; /* window: the longest one; 0: of IGNIS__PAGES_OF_ALL */
    int pages;
    int *uses, *free_pages; /* uses: sequences of each page, and its entry; free_pages: pages without one */
    int free_count;
    int *kept; /* of each page its entry among the kept pages, or -1; NULL until a sequence shares its prefix */
    int spare; /* kept pages that no sequence uses */
} ignis__page_group;

/*  The tokens of a kept page, and all that their keys and values depend on. Compared byte by byte. */
typedef struct ignis__kept_tokens {
    uint64_t boundary, adapters; /* adapters: the handle, or 0 */
    int32_t ids[IGNIS__PAGE];
    int32_t in_chunk, parent; /* in_chunk: as bits; parent: the entry of the tokens before; or -1 */
} ignis__kept_tokens;

/*  A kept page. newer, older: in the order of use of a group, -1 at an end. All entries are in the order of
    IGNIS__PAGES_OF_ALL, those with a page for windows in the other. */
typedef struct ignis__kept_entry {
    ignis__kept_tokens tokens;
    int32_t page[IGNIS__PAGE_GROUPS]; /* -1: none */
    int children, next;               /* next: entry in the bucket, or unused one; or -1 */
    int newer[IGNIS__PAGE_GROUPS], older[IGNIS__PAGE_GROUPS];
} ignis__kept_entry;

/*  The pages that are kept for sequences that share their prefixes. */
typedef struct ignis__kept {
    ignis__kept_entry *entries;
    int *buckets; /* the first entry of each hash, or -1 */
    uint64_t seed;
    int bucket_count, count, unused; /* count: entries in use; unused: the first other one, or -1 */
    int newest[IGNIS__PAGE_GROUPS], oldest[IGNIS__PAGE_GROUPS];
    int64_t fed, found, dropped; /* tokens; see ignis_prefix_info */
} ignis__kept;

/*  The pages of a sequence in a group: page[first] to page[count - 1], by position / IGNIS__PAGE. */
typedef struct ignis__page_table {
    int32_t *page;
    int first, count;
    int uploaded; /* pages that are in device memory, too */
} ignis__page_table;

/*  A decode step as a graph. */
typedef struct ignis__engine_step {
    int runs;
    ignis__capture *capture;
    void *exec;    /* a CUgraphExec; NULL until it is captured */
    uint64_t used; /* counts up, for the least recently used one */
} ignis__engine_step;

/*  The KV cache, buffers and graphs that all sequences of a model share. The lock is held while a step runs, because
    there is one set of buffers. */
typedef struct ignis__engine {
    ignis__mutex lock;
    const ignis__model *model;
    ignis__device *device;
    /* arrays of the weights, held; NULL if the family has none */
    ignis__engine_layer *layer;
    ignis__array *embedding, *positions, *norm, *norm_bias, *head;
    /* Buffers, all claimed. caches: NULL if the group has no layers. dequantised: elements of a quantised weight, or
       NULL. rope_table: the frequencies. block_counts: zeros between launches, see attention_paged.cuh. rank_logits: a
       view of the logits from this rank's first one on. layer_table, step_scratch: for generate_step.cu; NULL if it
       does not run the steps. step_types: its quantised types as bits, 0 if dense. agreement: hashes of the ranks.
       result: of attention or MLP before it is added, if it is scaled or normalised first; else NULL. router_logits to
       expert_inner: of a mixture of experts: for each row the experts' logits, the chosen ones, their shares and their
       inner elements; else NULL. expert_order, expert_rows, expert_up: of the rows of a chunk, sorted by expert: this
       order, rows of x or of results, and one of the two products of a gate; expert_results, expert_whole: of rows
       outside of chunks, results of each expert, and its x as whole numbers; else NULL. shared_inner: of the expert
       for all tokens, if it differs from `inner`; else NULL.
       q_normed to latents: of latent attention, see latent.c, else NULL; q_normed and q also if q has no low rank.
       shrunk, delta: of adapters, see shared/models/lora.h; NULL until a sequence has adapters. qkvz, mixed, strengths,
       recalled: of recurrent layers, see delta_net.c; gates: of the results of attention; NULL without them. */
    ignis__array *caches[IGNIS__PAGE_GROUPS], *rows, *sum, *normed, *qkv, *attended, *inner, *gate_up, *scratch,
        *logits, *scores, *biases, *parts, *masks, *bins, *gathered, *dequantised, *rope_table, *block_counts,
        *rank_logits, *layer_table, *step_scratch, *result, *router_logits, *chosen, *shares, *expert_inner,
        *expert_order, *expert_rows, *expert_up, *expert_results, *expert_whole, *shared_inner, *shrunk, *delta,
        *q_normed, *q, *query, *latents, *qkvz, *mixed, *strengths, *recalled, *gates, *agreement;
    int64_t step_types;
    int context, step_rows, splits;
    bool one_sequence; /* the rows of the step that is launched are of one sequence */
    char step_define[96];
    ignis__page_group groups[IGNIS__PAGE_GROUPS];
    ignis__kept *kept;                       /* NULL until a sequence shares its prefix */
    double frequencies[2][IGNIS__ROPE_HALF]; /* common ones, and those of windowed layers */
    /* generations with steps on the device, by `place`; row_of: the one whose next row is in rows[0], or NULL */
    struct ignis__generation *ahead[IGNIS__STEP_ROWS], *row_of;
    ignis__generate_row *row;    /* [step_rows]: of the step that is being prepared */
    ignis__generate_draw *draws; /* [step_rows][IGNIS__DRAWS]: tokens by position */
    ignis__pinned *draws_memory; /* the pinned memory of draws */
    /* by products with adapters as bits, by ignis__sampling_kind, by one_sequence, by ignis__step_width */
    ignis__engine_step steps[1 << IGNIS__LORA_PRODUCTS][3][2][IGNIS__STEP_WIDTHS];
    int graph_count, max_graphs; /* of steps; max_graphs: IGNIS__STEP_GRAPHS, or fewer in a test */
    uint64_t graphs_used;
    ignis__vocabulary *vocabulary; /* for grammars; NULL until the first one */
    ignis__grammar *grammars;      /* grammars in use and a few unused ones, latest first */
    uint64_t grammars_made, masks_used;
    int mask_count; /* masks that `masks` has room for */
    ignis__engine_mask *mask;
} ignis__engine;

struct ignis__sequence {
    ignis__slot slot;
    ignis__model *model;   /* held */
    ignis__engine *engine; /* the engine's lock guards all below */
    ignis__lora *lora;     /* the adapters that it is computed with, held; or NULL */
    int32_t *ids;          /* of context + 1 tokens */
    /* of each token: it was computed in a chunk of more than IGNIS__PROMPT_ROWS rows */
    bool *in_chunk;
    ignis__page_table tables[IGNIS__PAGE_GROUPS];
    int length;
    int cached;        /* tokens in the KV cache: all, or all but the last one */
    uint64_t boundary; /* of the sequences that it shares its prefix with */
    bool shares;       /* its full pages are kept, and it takes kept ones */
    bool stale;        /* it has no pages, and the cached tokens have to be computed again */
    int uploaded;      /* tokens that are in device memory, too */
    int hashed_length; /* tokens in tokens_hash, which ranks compare */
    uint32_t tokens_hash;
    /* tokens after its end, of a step with several rows of this sequence; their log_probs by position */
    int waiting;
    float waiting_log_probs[IGNIS__STEP_ROWS];
    struct ignis__polled *polled; /* of ignis_generate_poll; or NULL */
    /* log_prob: of the last token; next_log_prob: of one that is sampled but not appended yet */
    float log_prob, next_log_prob;
    ignis__grammar *grammar; /* the engine's; or NULL */
    /* constrained: tokens before the grammar begins; matched: tokens that its state has seen */
    int constrained, matched;
    int32_t state, epoch; /* of the grammar; epoch 0: no state yet */
    /* ids, and [groups, pages of a context], on the device; claimed */
    ignis__array *ids_on_device, *pages_on_device;
    /* of recurrent layers, see sequence_state.c: claimed, or NULL; tokens that each of both has seen, up to `cached` */
    ignis__array *states;
    int state_tokens[2];
    /* the hidden state of the last token of a chunk; claimed, shared by forks; or NULL */
    ignis__array *last_hidden;
    int last_hidden_length; /* tokens up to that one; 0 if it is stale */
};

/*  The header of a file of a sequence. checksum: of the header, with the hash of the rest in its place. stale, hidden:
    0 or 1; hidden: the hidden state of the last token follows. first, pages: as in ignis__page_table. */
enum { IGNIS__SEQUENCE_VERSION = 1 };
typedef struct ignis__sequence_header {
    char magic[8];
    uint64_t checksum, model; /* model: a hash */
    int64_t bytes;            /* of the file */
    uint32_t version;
    int32_t layers, hidden_elements, vocab; /* of the model, for messages */
    int32_t length, cached, stale, hidden;
    int32_t state_tokens[2], first[IGNIS__PAGE_GROUPS], pages[IGNIS__PAGE_GROUPS];
    float log_prob;
    int32_t unused;
} ignis__sequence_header;

/*  A step of some sequences of an engine. */
typedef struct ignis__batch {
    ignis__sequence *const *sequences;
    const int *of;                       /* numbers of those that take part */
    const ignis_sampling_desc *sampling; /* by number; NULL: the likeliest tokens */
    int count;
    int place; /* the row of engine->draws that gets the tokens of the first one */
    int ahead; /* tokens between the last one of the sequences and those of the step */
    /* ready: the hidden states are known, so the layers are left out; samples: a token for each; keeps_row: the step
       before has left the row as this one needs it */
    bool ready, samples, keeps_row;
} ignis__batch;

/*  The tokens in place of ids. */
enum {
    IGNIS__TOKEN_NO_ROOM = -1,  /* the context is full */
    IGNIS__TOKEN_FAILED = -2,   /* reported */
    IGNIS__TOKEN_NO_OTHER = -3, /* the grammar is complete */
    IGNIS__TOKEN_ENOUGH = -4,   /* there are desc.max_tokens */
    IGNIS__TOKEN_NOT_YET = -5   /* the device has not sampled it */
};

/*  A text that is being generated, see generation.c. */
typedef struct ignis__generation {
    ignis__sequence *sequence;
    const ignis_sampling_desc *sampling;
    void *stream;                             /* of the steps */
    int place;                                /* in engine->ahead */
    int queued;                               /* steps whose tokens are not taken */
    int first;                                /* the position of the first one: that of the sequence's last token */
    ignis__pooled_event *drawn[IGNIS__DRAWS]; /* recorded after the steps, by position */
} ignis__generation;

/*  The arrays that generate_step.cu reads of a layer, in its order, or of the logits after the last layer. NULL if
    the model has no such array. */
typedef struct ignis__decode_step_arrays {
    ignis__array *weights[4], *bias[4], *norm[2], *norm_bias[2], *head_norm[2];
} ignis__decode_step_arrays;

/*  Text that the callback has not got yet. */
typedef struct ignis__text_output {
    const char *call;
    const ignis_generate_desc *desc;
    ignis_text_stream stream;
    int tokens; /* tokens of the tokenizer; ids from here on have no text */
    char *text;
    size_t size, capacity;
    int stop; /* the stop string that was found, or -1 */
    bool cancelled;
} ignis__text_output;

/*  The text of ignis_generate_poll. */
typedef struct ignis__polled {
    ignis__generation generation;
    ignis_generate_desc desc;
    ignis__text_output output; /* of desc */
    ignis_generate_info info;
    int64_t began; /* by the monotonic clock */
    bool busy;     /* a call works on it */
} ignis__polled;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* latent_forward.c */
IGNIS__PRIVATE ignis_tensor ignis__model_latent_attention(const ignis__model *model, const struct ignis__lora *lora,
                                                          const ignis__layer *layer, ignis_tensor h,
                                                          ignis_tensor lengths);

/* forward.c */
IGNIS__PRIVATE ignis_tensor ignis__model_hidden(const ignis__model *model, const struct ignis__lora *lora,
                                                ignis_tensor ids, const ignis_hidden_desc *desc, int64_t seq);

/* kernel_params.c */
IGNIS__PRIVATE bool ignis__op_begin_on_device(ignis__op *op, const char *call, ignis__device *device);
IGNIS__PRIVATE void ignis__upload_i32(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first,
                                      const int32_t *from, int64_t count);
IGNIS__PRIVATE void ignis__upload_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                       const ignis__generate_row *from, int count);
IGNIS__PRIVATE void ignis__upload_rows_from(ignis__op *op, ignis_dtype dtype, ignis__array *to,
                                            ignis__generate_row *first, int count);
IGNIS__PRIVATE int64_t ignis__weight_rows(const ignis__array *weights);
IGNIS__PRIVATE int64_t ignis__weight_columns(const ignis__array *weights);
IGNIS__PRIVATE void ignis__embed_rows(ignis__op *op, int count, const ignis__engine *engine);

/* gemv_cluster.c */
IGNIS__PRIVATE bool ignis__gemv_uses_tensor_cores(ignis__op *op, ignis_dtype dtype, ignis__array *weights);
IGNIS__PRIVATE void ignis__pre_norm_launch(ignis__op *op, int count, ignis__array *out, const ignis__pre_norm *norm);
IGNIS__PRIVATE void ignis__pre_norm_fuse(ignis__op *op, ignis__gemv_mma *p, const ignis__pre_norm *norm);
IGNIS__PRIVATE void ignis__gemv_fill(ignis__op *op, ignis__gemv_mma *p, const ignis__gemv_desc *desc,
                                     int64_t result_row);
IGNIS__COLD IGNIS__PRIVATE void ignis__gemv_record(const ignis__op *op, ignis_dtype dtype, bool gated);
IGNIS__PRIVATE void ignis__gemv_choose_ring(ignis__op *op, const ignis__array *weights, size_t rest, ignis__gemv_mma *p,
                                            ignis__tensor_map *map, int *resident);
IGNIS__PRIVATE bool ignis__gemv_cluster_dense(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights);
IGNIS__PRIVATE bool ignis__gemv_takes_wgmma(ignis__op *op, const ignis__gemv_desc *desc);
IGNIS__PRIVATE void ignis__gemv_wgmma(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights);
IGNIS__PRIVATE void ignis__gemv_launch_rows(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type);
IGNIS__PRIVATE bool ignis__gemv_cluster_quantised(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type,
                                                  int64_t units);

/* gemv_f8.c */
IGNIS__PRIVATE bool ignis__gemv_takes_f8(const ignis__gemv_desc *desc);
IGNIS__PRIVATE void ignis__gemv_run_f8(ignis__op *op, const ignis__gemv_desc *desc, int64_t result_row);

/* gemv.c */
IGNIS__PRIVATE void ignis__gemv_run_dense(ignis__op *op, const ignis__gemv_desc *desc);
IGNIS__PRIVATE void ignis__gemv_run_quantised(ignis__op *op, const ignis__gemv_desc *desc);
IGNIS__PRIVATE void ignis__gemv_run(ignis__op *op, const ignis__gemv_desc *desc);
IGNIS__PRIVATE void ignis__gate_launch(ignis__op *op, int64_t rows, ignis__array *out, ignis__array *from, int columns,
                                       int is_gelu);
IGNIS__PRIVATE void ignis__chunk_gemm(ignis__op *op, const ignis__gemv_desc *desc);

/* paged_attention.c */
IGNIS__PRIVATE void ignis__kv_cache_append(ignis__op *op, int count, ignis_dtype dtype, ignis__generate_cache *p,
                                           const double *frequencies);
IGNIS__PRIVATE int64_t ignis__paged_scratch_elements(const ignis__paged *p, int rows);
IGNIS__PRIVATE int ignis__paged_head_dim(int head_dim);
IGNIS__PRIVATE void ignis__paged_attention(ignis__op *op, int count, int at_a_time, ignis_dtype dtype,
                                           const ignis__paged *paged);
IGNIS__PRIVATE void ignis__sampling_launch(ignis__op *op, int count, ignis__sampling_kind draws, ignis__draw *p);
IGNIS__PRIVATE void ignis__chunk_attention(ignis__op *op, int count, int end, const ignis__paged *paged,
                                           ignis__array *gathered);

/* engine.c */
extern ignis__pool ignis__sequences;
IGNIS__PRIVATE int64_t ignis__engine_page_elements(const ignis__engine *engine);
IGNIS__PRIVATE int ignis__engine_slabs(const ignis__engine *engine);
IGNIS__PRIVATE int ignis__engine_context_pages(const ignis__engine *engine);
IGNIS__COLD IGNIS__PRIVATE void ignis__kept_free(ignis__engine *engine);
IGNIS__PRIVATE int ignis__step_width(int count);
IGNIS__COLD IGNIS__PRIVATE void ignis__engine_destroy(const char *call, void *engine);
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__engine_rows_outside_chunks(const ignis__engine *engine);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc(const char *call, const ignis__engine *engine, ignis__array **array,
                                                    int64_t rows, int64_t columns, ignis_dtype dtype);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_hold_weights(const char *call, ignis__engine *engine);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_for_ranks(const char *call, ignis__engine *engine);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_dequantised(const char *call, ignis__engine *engine);
IGNIS__PRIVATE ignis__decode_step_arrays ignis__engine_layer_arrays(const ignis__engine *engine, int layer);

/* fused_step.c */
extern int ignis__single_launch_stages;
IGNIS__PRIVATE size_t ignis__engine_single_launch_shared(const ignis__engine *engine, ignis__decode_step *p);
extern int64_t ignis__single_launch_min_bytes;
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_single_launch(const char *call, ignis__engine *engine);

/* latent.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_latent(const char *call, ignis__engine *engine, int64_t rows);
IGNIS__PRIVATE void ignis__latent_write(ignis__op *op, const ignis__engine *engine, const ignis__engine_layer *layer,
                                        const ignis__paged *paged, int count);
IGNIS__PRIVATE void ignis__latent_attention(ignis__op *op, const ignis__model *model, const ignis__paged *paged,
                                            bool is_chunk);
IGNIS__PRIVATE void ignis__latent_attend(ignis__op *op, const ignis__engine *engine, const ignis__engine_layer *layer,
                                         const ignis__paged *paged, int count, bool is_chunk);

/* experts.c */
IGNIS__PRIVATE int64_t ignis__experts_whole_bytes(int64_t k);
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_experts(const char *call, ignis__engine *engine, int64_t rows);
IGNIS__PRIVATE void ignis__experts_run(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                       int count, bool is_chunk);
IGNIS__PRIVATE void ignis__experts_run_shared_gate(ignis__op *op, ignis__engine *engine,
                                                   const ignis__engine_layer *layer, int count);

/* delta_net.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_delta(const char *call, ignis__engine *engine, int64_t rows);
IGNIS__PRIVATE void ignis__delta_net_launch(ignis__op *op, ignis__engine *engine, const ignis__engine_layer *layer,
                                            int number, int count, int tokens);
IGNIS__PRIVATE void ignis__delta_net_gate(ignis__op *op, ignis__engine *engine, int count);

/* delta_forward.c */
IGNIS__PRIVATE ignis_tensor ignis__model_delta_net(const ignis__model *model, const ignis__layer *layer,
                                                   ignis_tensor qkvz, ignis_tensor strengths);

/* engine_create.c */
IGNIS__COLD IGNIS__PRIVATE ignis__engine *ignis__engine_make(const char *call, const ignis__model *model);

/* sequence_lora.c */
IGNIS__PRIVATE void ignis__lora_launch(ignis__op *op, const ignis__engine *engine, int count, int product,
                                       ignis__array *x, ignis__array *out);
IGNIS__PRIVATE void ignis__sequence_read_lora(ignis__op *op, const ignis__sequence *sequence);
IGNIS__PRIVATE bool ignis__sequence_take_lora(const char *call, ignis__sequence *sequence, ignis__lora *lora);
IGNIS__PRIVATE void ignis__sequence_share_lora(const ignis__sequence *sequence, ignis__sequence *fork);
IGNIS__PRIVATE void ignis__sequence_drop_lora(const char *call, ignis__sequence *sequence);

/* engine_step.c */
IGNIS__PRIVATE void ignis__engine_layers(ignis__op *op, ignis__engine *engine, int count, int end, bool is_chunk,
                                         int adapted);
IGNIS__PRIVATE void ignis__engine_launch_step(ignis__op *op, ignis__engine *engine, int count,
                                              ignis__sampling_kind draws, bool ready, int adapted);
IGNIS__PRIVATE void ignis__engine_run_step(ignis__op *op, ignis__engine *engine, int count, ignis__sampling_kind draws,
                                           int adapted);

/* grammar_mask.c */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_match_grammar(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_check_grammar(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE int ignis__sequence_upload_mask(ignis__op *op, ignis__sequence *sequence);

/* kept_prefix.c */
IGNIS__PRIVATE void ignis__kept_clear(ignis__engine *engine);
IGNIS__PRIVATE void ignis__kept_make_room(ignis__engine *engine, int g, int needed);
IGNIS__PRIVATE void ignis__kept_release(ignis__engine *engine, int g, int page);
IGNIS__PRIVATE int ignis__kept_grain(const ignis__sequence *sequence);
IGNIS__PRIVATE void ignis__kept_give(ignis__sequence *sequence, int grain, int *path, int *pages);
IGNIS__PRIVATE void ignis__kept_add(ignis__sequence *sequence, int *path, int *pages);
IGNIS__PRIVATE void ignis__kept_use_sequence(const ignis__sequence *sequence, int path, int pages);

/* sequence.c */
IGNIS__PRIVATE void ignis__page_hold(ignis__page_group *group, int page);
IGNIS__PRIVATE int ignis__page_take(ignis__page_group *group);
IGNIS__PRIVATE void ignis__page_drop(ignis__page_group *group, int page);
IGNIS__PRIVATE int ignis__window_begin(const ignis__page_group *group, int position, bool rewinds);
IGNIS__PRIVATE int ignis__sequence_window_page(const ignis__engine *engine, int position);
IGNIS__PRIVATE void ignis__sequence_drop_pages(ignis__sequence *sequence);
IGNIS__PRIVATE void *ignis__generation_last(const ignis__generation *g);
IGNIS__PRIVATE void ignis__generation_settle(const char *call, ignis__generation *g);
IGNIS__PRIVATE void ignis__polled_free(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE void ignis__sequence_clear(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE void ignis__sequence_drop(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE void ignis__sequences_close(const char *call);
IGNIS__PRIVATE void ignis__engine_settle(const char *call, ignis__engine *engine);
IGNIS__PRIVATE void ignis__engine_lock(const char *call, ignis__engine *engine);
IGNIS__PRIVATE bool ignis__engine_leave(ignis__op *op);
IGNIS__PRIVATE ignis__sequence *ignis__sequence_hold(const char *call, ignis_sequence handle);
IGNIS__PRIVATE ignis__sequence *ignis__sequence_enter(const char *call, ignis_sequence handle);
IGNIS__PRIVATE void ignis__sequence_leave(const char *call, ignis__sequence *sequence);

/* sequence_state.c */
IGNIS__PRIVATE bool ignis__sequence_alloc_states(const char *call, ignis__sequence *sequence);
IGNIS__PRIVATE int ignis__sequence_find_state(const ignis__sequence *sequence, int position);
IGNIS__PRIVATE void ignis__sequence_advance_state(ignis__sequence *sequence, int first, int count);
IGNIS__PRIVATE void ignis__sequence_forget_states(ignis__sequence *sequence);
IGNIS__PRIVATE bool ignis__sequence_copy_states(const char *call, const ignis__sequence *sequence,
                                                ignis__sequence *fork);

/* kv_cache.c */
IGNIS__PRIVATE bool ignis__engine_has_pages(const char *call, ignis__engine *engine, int g, int needed);
IGNIS__PRIVATE bool ignis__sequence_has_pages(const char *call, ignis__sequence *sequence, int from, int to);
IGNIS__PRIVATE void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *sequence, int from, int to);
IGNIS__PRIVATE void ignis__sequence_fill_row(ignis__op *op, ignis__sequence *sequence, int position,
                                             ignis__generate_row *row);
IGNIS__PRIVATE void ignis__sequence_run_chunk(ignis__op *op, ignis__sequence *sequence, int first, int count);
IGNIS__PRIVATE void ignis__sequence_refill(ignis__op *op, ignis__sequence *sequence, int position);
IGNIS__PRIVATE void ignis__sequence_keep_hidden(ignis__op *op, ignis__sequence *sequence, int count);
IGNIS__PRIVATE void ignis__sequence_truncate(ignis__sequence *sequence, int length);
IGNIS__PRIVATE bool ignis__sequence_check_ids(const char *call, const ignis__sequence *sequence, const int32_t *ids,
                                              int count);
IGNIS__PRIVATE bool ignis__sequence_append(const char *call, ignis__sequence *sequence, const int32_t *ids, int count);

/* sampling.c */
IGNIS__PRIVATE bool ignis__sampling_check(const char *call, const ignis_sampling_desc *desc, int vocab);
IGNIS__PRIVATE bool ignis__sampling_filters(const ignis_sampling_desc *desc);
IGNIS__PRIVATE const ignis__generate_draw *ignis__sampling_draw(const ignis__engine *engine, int number, int position);
IGNIS__PRIVATE void ignis__sampling_upload_biases(ignis__op *op, const ignis__engine *engine, int number,
                                                  const ignis_sampling_desc *desc);
IGNIS__PRIVATE void ignis__sampling_fill_row(const ignis__engine *engine, int number, const ignis_sampling_desc *desc,
                                             ignis__generate_row *row);

/* rank_check.c */
IGNIS__PRIVATE uint32_t ignis__engine_agreement_hash(const ignis__engine *engine, const ignis__batch *batch);
IGNIS__PRIVATE void ignis__engine_upload_agreement(ignis__op *op, const ignis__engine *engine, uint32_t hash);
IGNIS__PRIVATE bool ignis__engine_check_agreement(ignis__op *op, const ignis__engine *engine, uint32_t hash);

/* sequence_step.c */
IGNIS__PRIVATE bool ignis__sequence_ends_in_chunk(const ignis__sequence *sequence);
IGNIS__COLD IGNIS__PRIVATE void ignis__sampling_fail(const char *call, int32_t drawn, int number);
IGNIS__PRIVATE uint32_t ignis__engine_queue_batch(ignis__op *op, const ignis__batch *batch);
IGNIS__PRIVATE bool ignis__sequence_check_step(const char *call, ignis__sequence *sequence,
                                               const ignis_sampling_desc *sampling, bool samples);
IGNIS__PRIVATE void ignis__sequence_prepare_step(ignis__op *op, ignis__sequence *sequence);
IGNIS__PRIVATE bool ignis__engine_decode(const char *call, ignis__sequence *const *sequences, int count,
                                         const ignis_sampling_desc *sampling, bool samples, float *logits,
                                         int32_t *sampled);

/* generation.c */
IGNIS__PRIVATE int32_t ignis__generation_check(const char *call, const ignis__generation *g);
IGNIS__PRIVATE int32_t ignis__generation_fill(const char *call, ignis__generation *g, int most);
IGNIS__PRIVATE int32_t ignis__generation_take(const char *call, ignis__generation *g, bool waits);

/* generate.c */
IGNIS__PRIVATE bool ignis__generate_put(ignis__text_output *output, const ignis__sequence *sequence,
                                        ignis_generate_info *info, int32_t id);

/* speculate.c */
IGNIS__PRIVATE int ignis__sequence_guess(const ignis__sequence *sequence, int32_t *guesses, int most);
IGNIS__PRIVATE int ignis__sequence_guess_by(const char *call, ignis__sequence *draft, const int32_t *ids, int count,
                                            const ignis_sampling_desc *sampling, int32_t *guesses, int most);
IGNIS__PRIVATE int32_t ignis__sequence_take_waiting(ignis__sequence *sequence);
IGNIS__PRIVATE bool ignis__sequence_check(const char *call, ignis__sequence *sequence, const int32_t *draft, int count,
                                          const ignis_sampling_desc *sampling, int *checked);

/* prompt.c */
IGNIS__PRIVATE bool ignis__sequence_replace_tokens(const char *call, ignis__sequence *sequence, const int32_t *ids,
                                                   int count);

/* sequence_next.c */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_make(const char *call, ignis__model *model, ignis__engine *engine);
IGNIS__PRIVATE ignis_sequence ignis__sequence_new(const char *call, ignis_model handle);

/* sequence_file.c */
extern const char ignis__sequence_magic[8];

/* stop_string.c */
IGNIS__PRIVATE bool ignis__text_output_begin(ignis__text_output *output, const ignis__sequence *sequence);
IGNIS__PRIVATE bool ignis__text_output_put(ignis__text_output *output, int32_t id);
IGNIS__PRIVATE bool ignis__generate_check(const char *call, const ignis_generate_desc *desc);
