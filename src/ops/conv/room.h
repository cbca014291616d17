/*  ops/conv - convolutions, and patches of images. */
#pragma once

#include "../room.h"
#include "../matmul/room.h"

/*  A convolution along the rows, the columns or the planes of its images. */
typedef struct ignis__conv_side {
    int64_t in, out, kernel, stride, padding, dilation;
} ignis__conv_side;

/*  A convolution; channels and outs are of one group. It is patches of x, [images * out * out * out, kernel * kernel *
    kernel * channels], times weights. */
typedef struct ignis__conv {
    int64_t images, channels, outs, groups;
    ignis__conv_side side[IGNIS__SIDES];
    ignis_dtype dtype;
    int sides;    /* of the call: 1 of a signal */
    bool volumes; /* there are planes; else one */
} ignis__conv;

/*  How a grid of pixels and the taps of its patches step along a side of an array, as in kernels/gemm.cuh,
    and along the taps of the weights. */
typedef struct ignis__conv_grid {
    int64_t grid, taps, first, stride, step, weight, weight_step;
} ignis__conv_grid;

/*  An array of pixels or weights that is an operand: rows of `channels` channels. */
typedef struct ignis__conv_operand {
    ignis__address at;
    int64_t channels; /* as stored */
    int packed;       /* they are full packs: 1: of 16 bytes, 2: of 8 */
} ignis__conv_operand;

/*  The plan of a product by kernels/grouped_mma.cu: a slab of groups for a block, in chunks of 8 channels. */
typedef struct ignis__grouped {
    ignis__conv_tiles tiles;
    int channels, outs, taps, slab, slabs;
    int64_t shared;
    char define[IGNIS__DEFINES];
} ignis__grouped;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* geometry.c */
IGNIS__PRIVATE ignis__conv_grid ignis__conv_forward_grid(const ignis__conv_side *side);
IGNIS__PRIVATE int64_t ignis__conv_phases(const ignis__conv_side *side);
IGNIS__PRIVATE ignis__conv_grid ignis__conv_backward_grid(const ignis__conv_side *side, int64_t tap, int64_t *phase);
IGNIS__PRIVATE bool ignis__conv_skips_pixels(const ignis__conv *conv);
IGNIS__PRIVATE int64_t ignis__conv_taps(const ignis__conv *c);
IGNIS__PRIVATE int64_t ignis__conv_pixels(const ignis__conv *c);
IGNIS__PRIVATE bool ignis__conv_is_product(const ignis__conv *c, ignis__product *product);
IGNIS__PRIVATE bool ignis__conv_is_depthwise(const ignis__conv *c);
IGNIS__PRIVATE void ignis__conv_operands(ignis__op *op, const ignis__conv *conv, ignis__conv_operand operand[2],
                                         ignis__array *const arrays[2], const int64_t channels[2]);
IGNIS__PRIVATE void ignis__conv_patches(ignis__gemm *gemm, const ignis__conv *conv, int of,
                                        const ignis__conv_grid walk[IGNIS__SIDES], const int64_t size[IGNIS__SIDES],
                                        const ignis__conv_operand *pixels, int64_t channels);
IGNIS__PRIVATE void ignis__conv_weights(ignis__gemm *p, const ignis__conv *c, const ignis__conv_operand *w);

/* depthwise.c */
IGNIS__PRIVATE void ignis__depthwise(ignis__op *op, const ignis__conv *conv, ignis__gemm *gemm, ignis__array *sums);

/* grouped.c */
IGNIS__PRIVATE bool ignis__grouped_plan(const ignis__conv *conv, const ignis__gemm *gemm, bool weights,
                                        ignis__grouped *plan);
IGNIS__PRIVATE bool ignis__grouped_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p,
                                          const ignis__grouped *plan, bool weights);
IGNIS__PRIVATE void ignis__grouped_run(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__grouped *plan,
                                       ignis__array *sums);

/* implicit_gemm.c */
IGNIS__PRIVATE void ignis__conv_forward(ignis__op *op, const ignis__conv *conv, ignis__array *out, ignis__array *x,
                                        ignis__array *w, ignis__array *bias);
IGNIS__PRIVATE void ignis__conv_grad_x(ignis__op *op, const ignis__conv *conv, ignis__array *dx, ignis__array *g,
                                       ignis__array *w, ignis__array *bias);
IGNIS__PRIVATE void ignis__conv_grad_w(ignis__op *op, const ignis__conv *conv, ignis__array *dw, ignis__array *db,
                                       ignis__array *g, ignis__array *x);

/* conv.c */
IGNIS__PRIVATE bool ignis__conv_read_number(ignis__op *op, const char *name, const int *given, int sides, int least,
                                            int standard, int64_t to[IGNIS__SIDES]);
IGNIS__PRIVATE int ignis__conv_side_of(int sides, int i);
IGNIS__PRIVATE void ignis__conv_drop_planes(ignis__conv *conv);

/* of vjp_table.c */
IGNIS__PRIVATE void ignis__vjp_of_conv(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_conv_transpose(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_conv_part(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_unfold(const ignis_vjp_args *args);
IGNIS__PRIVATE void ignis__vjp_of_fold(const ignis_vjp_args *args);
