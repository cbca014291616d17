/*  train - optimizers, initial values, gradcheck. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"
#include "../tensor/room.h"
#include "../ops/room.h"
#include "../linalg/room.h"

#include "../shared/optimizer.h"

typedef struct ignis__parameter {
    ignis__tensor *tensor; /* held */
    ignis__array *data;    /* claimed, as are these; null without */
    ignis__array *first, *second, *master, *missed;
    ignis__array *group; /* null: it has the optimizer's own rate and decay */
    ignis__array *sum, *average;
    double decay; /* as in ignis__optim_row */
    /* Of a parameter that ranks share: its group, and its piece. The arrays above have the piece alone. */
    ignis__grad_group *group_of; /* NULL: the parameter is whole */
    ignis__array *grad;          /* claimed */
    int64_t start, at;
    bool leads_group; /* it is the first of its group here */
    bool has_row;     /* the table gathered last has its gradient */
    bool grouped;     /* its gradient's memory is shared: it is not dropped */
} ignis__parameter;

/*  A point on the line of a search: its distance, its loss, the slope there, and which gradient it has. */
typedef struct ignis__lbfgs_point {
    double t, loss, slope;
    int g;
} ignis__lbfgs_point;

enum { IGNIS__LBFGS_GRADIENTS = 6 }; /* of the last direction and a line search: start, before, new, and two ends */

/*  The state of L-BFGS. Arrays are claimed, null before the first step. */
typedef struct ignis__lbfgs {
    ignis_lbfgs_desc desc; /* without defaults */
    bool is_running;       /* in a step: nothing else changes it */
    ignis_dtype dtype;
    int64_t n; /* elements of all parameters */
    ignis__array *start, *d, *g[IGNIS__LBFGS_GRADIENTS];
    ignis__array **s, **y, **numbers; /* history + 1 of each; the numbers are f64 [1] */
    double *rho;
    int first, count; /* of the ring of s and y; the next one is spare */
    int at, before;   /* the gradients at the parameters, and at those of the last direction */
    int64_t iterations;
    double t, h;
} ignis__lbfgs;

typedef struct ignis__optimizer {
    ignis__slot slot; /* first; its lock guards the rest */
    ignis__device *device;
    const char *name;
    ignis__builtin step;
    ignis__lbfgs *lbfgs; /* null: another method */
    bool has_first, has_second, has_missed, no_master, zero_grad, drop_grad, like_adamw;
    double lr, beta1, beta2, eps, weight_decay; /* beta1 may be a momentum, and beta2 an alpha */
    double ema_decay;                           /* 0: no averages */
    bool has_sums, is_swapped;                  /* gradients have sums; the averages are in the parameters */
    ignis_schedule_desc schedule;
    ignis_loss_scale_desc scale; /* interval 0: none */
    ignis__parameter *parameters;
    int count, capacity;
    ignis__array **groups; /* f64 [IGNIS__OPTIM_GROUP_COUNT] each; claimed */
    int group_count, group_capacity;
    ignis__array *state;      /* f64; claimed */
    ignis__array *table;      /* rows, as bytes; claimed, null before the first step */
    ignis__capture *table_of; /* the capture that it was made for, and that alone uses it; null: none */
    ignis__optim_row
        *rows;     /* rows of the table, in the order of element types; with has_missed then those without a gradient */
    int row_count; /* 0: no gradients */
    bool is_written; /* the table holds them */
    int rows_of[IGNIS_DTYPE_COUNT];
    int64_t blocks_of[IGNIS_DTYPE_COUNT], steps_of[IGNIS_DTYPE_COUNT]; /* blocks of a launch, and of a step */
    int64_t squares_of[IGNIS_DTYPE_COUNT];                             /* blocks of a launch on all ranks together */
    uint64_t sharer;            /* the data-parallel training whose ranks share all parameters; 0: none does */
    ignis__grad_group *sharing; /* a group of it, whose owner a call holds; NULL: between calls, or without a sharer */
} ignis__optimizer;

/*  Arrays that a call on an optimizer writes besides the state. */
typedef enum ignis__optim_writes { IGNIS__WRITES_DATA = 1, IGNIS__WRITES_GRADS = 2 } ignis__optim_writes;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* optimizer.c */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__optimizer_unclaim(const char *call, ignis__array **array);
IGNIS__PRIVATE void ignis__parameter_end(const char *call, ignis__parameter *parameter);
IGNIS__PRIVATE void ignis__optimizer_drop(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE ignis__optimizer *ignis__optimizer_hold(const char *call, ignis_optimizer handle);
IGNIS__PRIVATE bool ignis__optimizer_array(const char *call, const ignis__array *like, ignis_dtype dtype,
                                           ignis__array **claimed);
IGNIS__PRIVATE int ignis__optimizers_list_claims(ignis__string_writer *text, const ignis__array *array);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__optimizers_have(const ignis__tensor *tensor);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__optimizer_check_number(const char *call, const char *name, double value,
                                                                  double low, double below);
IGNIS__PRIVATE double ignis__number_or_default(double value, double otherwise);
IGNIS__PRIVATE void ignis__optimizers_close(const char *call);

/* parameter.c */
IGNIS__PRIVATE ignis__array *ignis__optimizer_numbers(const char *call, const ignis__optimizer *optimizer,
                                                      int64_t count);

/* table.c */
IGNIS__PRIVATE bool ignis__optimizer_launch(const ignis__work *work, ignis__optimizer *optimizer,
                                            ignis__builtin builtin, int table_at, void **params,
                                            ignis__address *squares);
IGNIS__PRIVATE ignis__optimizer *ignis__optimizer_begin(const char *call, ignis_optimizer handle, unsigned writes,
                                                        ignis__work *work);
IGNIS__PRIVATE ignis_status ignis__optimizer_end(ignis__optimizer *optimizer, const ignis__work *work, bool ok);
IGNIS__PRIVATE ignis_dtype ignis__optimizer_dtype(const ignis__optimizer *optimizer);

/* pieces.c */
IGNIS__PRIVATE bool ignis__pieces_check(const char *call, const ignis__optimizer *optimizer, ignis__tensor *tensor);
IGNIS__PRIVATE bool ignis__piece_take(const char *call, ignis__optimizer *optimizer, ignis__parameter *parameter);
IGNIS__PRIVATE bool ignis__pieces_begin(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE void ignis__pieces_end(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_zero(const char *call, const ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_spread(const ignis__optimizer *optimizer);
IGNIS__PRIVATE ignis_array ignis__piece_fill(const char *call, const ignis__parameter *parameter,
                                             const ignis__array *piece);

/* clip.c */
IGNIS__PRIVATE bool ignis__optimizer_norm(const ignis__work *work, ignis__optimizer *optimizer);

/* lbfgs_state.c */
IGNIS__PRIVATE bool ignis__lbfgs_start(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__lbfgs_map(ignis__array *to, const char *formula, ignis_array_inputs inputs);
IGNIS__PRIVATE bool ignis__lbfgs_number(ignis__array *number, ignis_reducer reducer, const char *formula,
                                        ignis_array_inputs inputs, double *value);
IGNIS__PRIVATE ignis_array ignis__lbfgs_handle(const ignis__array *array);
IGNIS__PRIVATE bool ignis__lbfgs_move(ignis__optimizer *optimizer, double t);
IGNIS__PRIVATE bool ignis__lbfgs_loss(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn, void *user_data,
                                      ignis__lbfgs_point *point);

/* lbfgs_search.c */
IGNIS__PRIVATE bool ignis__lbfgs_search(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn,
                                        void *user_data, ignis__lbfgs_point *point, double t, int *losses);
