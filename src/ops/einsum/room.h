/*  ops/einsum - products by an equation of labels. */
#pragma once

#include "../room.h"

#define IGNIS__LETTERS 52
#define IGNIS__LABELS (IGNIS__LETTERS + IGNIS_MAX_DIMS) /* letters, and the dimensions of dots */

/*  A tensor of ignis_einsum, with a label for each of its dimensions. */
typedef struct ignis__term {
    ignis_tensor tensor;
    bool is_made; /* by ignis_einsum, which releases it */
    bool has_dots;
    int count;
    uint8_t label[IGNIS_MAX_DIMS];
    int64_t size[IGNIS_MAX_DIMS];
} ignis__term;

typedef struct ignis__einsum {
    ignis__op *op; /* of the checks */
    const char *equation;
    int count;
    int64_t size[IGNIS__LABELS]; /* -1: no operand has the label */
    ignis__term terms[IGNIS_MAX_OPERANDS], result;
} ignis__einsum;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* equation.c */
IGNIS__PRIVATE bool ignis__equation_read(ignis__einsum *e);

/* contract.c */
IGNIS__PRIVATE ignis_tensor ignis__einsum_run(ignis__einsum *e);
