#pragma once
/*  The table of parameters of an optimizer, and its state in device memory. */

enum {
    IGNIS__OPTIM_SHARE = 1024, /* elements that a block of a step takes at a time */
    IGNIS__OPTIM_LARGEST_CHUNK = 8192,
    IGNIS__OPTIM_BATCH = 26,           /* rows that one launch carries to the table: they fit a kernel's params */
    IGNIS__OPTIM_ADVANCE_THREADS = 512 /* of the block that advances the state, at most */
};

/*  Elements that a block of other launches takes: small parameters have more blocks, as they take as long as one block
    does. */
#define IGNIS__OPTIM_CHUNK(count) ((count) <= 128 * 1024 ? 1024 : IGNIS__OPTIM_LARGEST_CHUNK)

/*  The places of the state, which are double. */
enum {
    IGNIS__OPTIM_BASE_LR,   /* set by the caller; the schedule scales it */
    IGNIS__OPTIM_CLIP_NEXT, /* factor of the gradients of the next step; 1 unless clipped */
    IGNIS__OPTIM_NORM,      /* of all gradients, when they were clipped last */
    IGNIS__OPTIM_STEP,      /* the first one is 1 */
    IGNIS__OPTIM_CLIP,      /* the next ones are of the running step */
    IGNIS__OPTIM_LR,
    IGNIS__OPTIM_FACTOR,    /* of the schedule, which scales the rates of groups */
    IGNIS__OPTIM_SCALE = 8, /* of the loss; 1 without */
    IGNIS__OPTIM_GOOD,      /* steps since SCALE has changed */
    IGNIS__OPTIM_SKIPPED,   /* steps in all */
    IGNIS__OPTIM_SKIP,      /* the running step is skipped */
    IGNIS__OPTIM_CHECKED,   /* NORM is that of the gradients of the next step */
    IGNIS__OPTIM_COUNT,
    IGNIS__OPTIM_STATES = 16 /* the size of the state */
};

/*  The numbers of a group of parameters, which are double. */
enum { IGNIS__OPTIM_GROUP_LR, IGNIS__OPTIM_GROUP_DECAY, IGNIS__OPTIM_GROUP_COUNT };

/*  A row of the table: a parameter. Pointers are null if the optimizer does not use them. */
typedef struct ignis__optim_row {
    IGNIS__POINTER(T) data, grad;
    IGNIS__POINTER(Wide) first;    /* the first moment, or the momentum */
    IGNIS__POINTER(Wide) second;   /* the second moment */
    IGNIS__POINTER(Wide) master;   /* the parameter in full precision, or the 16 low bits of it */
    IGNIS__POINTER(double) missed; /* steps that it had no gradient for, for corrections of bias */
    IGNIS__POINTER(double) group;  /* its learning rate before the schedule, and its weight decay */
    IGNIS__POINTER(Wide) sum;      /* of earlier gradients, which a step adds to grad, and sets to 0 */
    IGNIS__POINTER(Wide) average;  /* of the parameter's values */
    long long count, chunk;        /* elements; a block takes `chunk` of them */
    long long first_block, first_step;
    long long first_square; /* the place of its first block's sum of squares among those of all ranks */
    double decay;           /* weight decay of this parameter; in a group 1 with decay, and 0 without */
    /* 1 / (1 - beta1^step) and 1 / sqrt(1 - beta2^step), of the parameter's own steps; the device writes both */
    double first_scale, second_scale;
    double average_share; /* of the new value in its average */
    long long is_split;   /* master has 16 low bits */
} ignis__optim_row;
IGNIS__ASSERT_SIZE(ignis__optim_row, 152);

typedef struct ignis__optim_batch {
    ignis__optim_row rows[IGNIS__OPTIM_BATCH];
} ignis__optim_batch;
