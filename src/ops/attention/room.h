/*  ops/attention - scaled dot-product attention. */
#pragma once

#include "../room.h"

#include "../../shared/attention.h"

typedef struct ignis__attention_rows ignis__attention_rows;

/*  How the caller says where documents begin. */
typedef enum ignis__documents {
    IGNIS__DOCUMENTS_NONE,
    IGNIS__DOCUMENTS_IDS,
    IGNIS__DOCUMENTS_OFFSETS
} ignis__documents;

/*  An attention, and what its launch depends on. */
typedef struct ignis__attention {
    ignis__attention_params params;
    int bias_dtype, has_sinks, has_lengths; /* 0: none. From here on members are for the host: no kernel has them */
    ignis__documents documents;
    int windowed;              /* the caller has set a window, which longer rows exceed */
    ignis__address grad_sinks; /* backward; 0: not needed */
} ignis__attention;

/*  How a kernel is launched: rows of a block, rows that it steps over at a time, threads and dynamic shared
    memory. */
typedef struct ignis__attention_shape {
    int rows, walk, threads, shared;
} ignis__attention_shape;

typedef struct ignis__attention_variant {
    char define[96];
    ignis__builtin forward_kernel, delta_kernel, kv_kernel, q_kernel, bias_kernel;
    ignis__attention_shape forward, kv, q, bias;
} ignis__attention_variant;

/*  Geometry of kernels/attention_hopper.cu by the largest head size: teams of a block, groups of 64 queries
    of a team, keys of a tile, and tiles of k and of v that are loaded or on their way. */
typedef struct ignis__attention_hopper_shape {
    int head_dim, teams, groups, keys, stages;
} ignis__attention_hopper_shape;

/*  q, k and v as three tensors; in one tensor; or of one query, where num_kv_heads follows from the shapes. */
typedef enum ignis__sdpa_kind { IGNIS__SDPA, IGNIS__SDPA_PACKED, IGNIS__SDPA_DECODE } ignis__sdpa_kind;

/*  Values that the backward of q, k and v in one tensor needs besides the saved arrays. */
typedef struct ignis__sdpa_packed {
    ignis__attention attention;
    ignis__rope rope; /* of q and k; no heads: they are not rotated */
} ignis__sdpa_packed;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* select.c */
IGNIS__PRIVATE void ignis__attention_cost(const ignis__attention *p, ignis_dtype dtype, int like_q, int like_k,
                                          int products);
IGNIS__PRIVATE int ignis__attention_range(const ignis__attention *p);
IGNIS__PRIVATE int ignis__attention_hopper_range(const ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_options(char *define, size_t size, const ignis__attention *p, int range);
IGNIS__PRIVATE bool ignis__attention_takes_mma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p);
IGNIS__PRIVATE const ignis__attention_hopper_shape *ignis__attention_hopper_choose(const ignis__op *op,
                                                                                   const ignis__attention *p,
                                                                                   bool ranged);
IGNIS__PRIVATE void ignis__attention_hopper_define(char *define, size_t size, const ignis__attention *p,
                                                   const ignis__attention_hopper_shape *shape);
IGNIS__PRIVATE bool ignis__attention_takes_wgmma(const ignis__op *op, ignis_dtype dtype,
                                                 const ignis__attention *attention);
IGNIS__PRIVATE void ignis__attention_tma_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype,
                                             const ignis__attention *p, const ignis__attention_rows *tensor,
                                             bool of_keys, int rows, int slabs);
IGNIS__PRIVATE int ignis__attention_lse_count(const ignis__attention *p);
IGNIS__PRIVATE ignis__attention_variant ignis__attention_choose(const ignis__op *op, ignis_dtype dtype,
                                                                const ignis__attention *attention);
extern const char *const ignis__attention_backward_forms[];
IGNIS__COLD IGNIS__PRIVATE void ignis__attention_request(ignis__op *op, ignis_dtype dtype,
                                                         const ignis__attention *given, bool backward);
IGNIS__PRIVATE void ignis__attention_launch(ignis__op *op, const ignis__attention_variant *variant,
                                            ignis__builtin kernel, const ignis__attention_shape *shape,
                                            ignis_dtype dtype, int rows, int heads, ignis__attention *p);

/* operands.c */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__attention_rows ignis__attention_rows_of(const ignis_shape *shape, int head_dim,
                                                                              ignis__address address);
IGNIS__PRIVATE ignis__attention_rows ignis__attention_bias_rows(const ignis_shape *shape, ignis__address address);
IGNIS__PRIVATE int ignis__attention_read_options(ignis__op *op, int input, ignis__attention *p);
IGNIS__PRIVATE ignis__array *ignis__attention_find_bounds(ignis__op *op, ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_save_options(ignis__op *op, int input, ignis__array *bounds);
IGNIS__PRIVATE void ignis__attention_operands(ignis__op *op, ignis__array *out, ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_heads(ignis__op *op, int heads, int64_t kv_heads);
IGNIS__PRIVATE bool ignis__attention_sizes(ignis__op *op, int heads, int kv_heads, int most,
                                           ignis__attention *attention);
IGNIS__PRIVATE bool ignis__attention_packed_sizes(ignis__op *op, int heads, int kv_heads, ignis__attention *p);
IGNIS__PRIVATE ignis__array *ignis__attention_new_lse(ignis__op *op, const ignis__attention *p, ignis_dtype dtype);
IGNIS__PRIVATE ignis__array *ignis__attention_new_statistics(ignis__op *op, const ignis__attention *p,
                                                             ignis_dtype dtype, int count);

/* backward.c */
IGNIS__PRIVATE void ignis__attention_backward_run(ignis__op *op, ignis_dtype dtype, ignis__attention *attention);
IGNIS__PRIVATE ignis__array *ignis__attention_grad_sinks(ignis__op *op, int input, bool needed, ignis__attention *p);
IGNIS__PRIVATE ignis__array *ignis__attention_grad_bias(ignis__op *op, int input, bool needed, ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_has_one_query_tile(const ignis__attention *p);
IGNIS__PRIVATE bool ignis__attention_backward_takes_wgmma(ignis__op *op, ignis_dtype dtype, const ignis__attention *p);
IGNIS__PRIVATE void ignis__attention_backward_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *attention,
                                                    ignis__address sums, ignis__rotation *rotation);
IGNIS__PRIVATE ignis_status ignis__sdpa_backward(const ignis_backward_args *args);

/* sdpa.c */
IGNIS__PRIVATE int ignis__sdpa_inputs(const ignis_sdpa_desc *desc, ignis_tensor *inputs, int count);
IGNIS__PRIVATE bool ignis__sdpa_prepare(ignis__op *op, const ignis_sdpa_desc *desc, ignis__sdpa_kind kind,
                                        ignis__attention *attention);
IGNIS__PRIVATE void ignis__sdpa_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p);

/* of vjp_table.c */
IGNIS__PRIVATE void ignis__vjp_of_sdpa(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_sdpa_packed(const ignis_vjp_args *args);
