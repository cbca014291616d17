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
#include "../file/room.h"

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
    ignis__array *grad;          /* claimed; of groups with a grad_fn only during a call */
    int64_t start, at;
    int copy, copies; /* this rank's copy of the piece, and how many there are */
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
    bool has_first, has_second, has_missed, no_master, split_master, zero_grad, drop_grad, like_adamw;
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
    uint64_t keeper;            /* the training that keeps the state before each step; 0: none does */
    uint64_t sharer;            /* the data-parallel training whose ranks share all parameters; 0: none does */
    ignis__grad_group *sharing; /* a group of it, whose owner a call holds; NULL: between calls, or without a sharer */
} ignis__optimizer;

/*  Arrays that a call on an optimizer writes besides the state. */
typedef enum ignis__optim_writes { IGNIS__WRITES_DATA = 1, IGNIS__WRITES_GRADS = 2 } ignis__optim_writes;

/*  A tensor of a training as files have it. Files have a piece of it by the name "name@start", of one dimension. */
typedef struct ignis__training_entry {
    char *name;          /* of the tensor; owned */
    char *written;       /* the name in the file of this rank; owned, NULL: this rank does not write it */
    ignis__array *array; /* of `count` elements; held during a call */
    int64_t *host;       /* NULL: it has an array; else i64 in host memory; owned */
    ignis_dtype dtype;
    ignis_shape shape;           /* of the whole tensor */
    int64_t numel, start, count; /* of the whole tensor; of the elements that this rank has */
    int64_t from, elements;      /* the elements that this rank writes */
    int64_t offset;              /* of their copy in pinned memory */
    bool is_piece, is_model;     /* files have pieces of it; it is in files of the model */
    int owner;                   /* the rank that writes the whole tensor; -1: each rank writes a piece */
    int copy, copies;            /* of a piece: this rank's copy, and how many there are; 0: each rank has one */
    bool is_shared;              /* other ranks have other pieces */
} ignis__training_entry;

/*  How ranks share parameters of a training: the place of this one, as in ignis__piece. */
typedef struct ignis__training_shares {
    uint64_t sharer;          /* 0: they share none */
    ignis__grad_group *group; /* of a parameter, whose owner is held */
    int rank, copy, copies;
} ignis__training_shares;

/*  The state of the last complete step, of trainings whose ranks share it and come back. */
typedef struct ignis__training_kept {
    ignis__array *memory; /* bytes, claimed; NULL: nothing is kept */
    bool has_begun;       /* a step has changed the state since the last mark; the memory has that of the mark */
    int64_t step;         /* complete steps of the state in the memory; -1: the memory has no state */
    ignis_random_state random;
} ignis__training_kept;

typedef struct ignis__training_entries {
    ignis__training_entry *list;
    int count, capacity;
} ignis__training_entries;

/*  A save that has begun. */
typedef struct ignis__training_save {
    bool has_begun, failed;
    uint64_t id;
    char *folder;
    ignis__training_entries entries;
    ignis__file_tensor *items[2]; /* of the model's file and of the training's; `index` is that of an entry */
    int item_count[2];
    ignis__pooled_event *copied;
    ignis_ticket ticket;
    uint64_t committed; /* this rank has written the index */
} ignis__training_save;

typedef struct ignis__training {
    ignis__slot slot;   /* first */
    ignis__mutex calls; /* one at a time; it guards the rest */
    ignis__device *device;
    ignis_ranks ranks;
    char **names;            /* of the model's tensors, then of the state; owned */
    ignis__tensor **tensors; /* held */
    int count, model_count;
    ignis__optimizer **optimizers; /* held */
    int optimizer_count;
    ignis__array *votes;       /* i64 [ranks + 1], claimed; NULL with one rank */
    int64_t *all;              /* the same on the host */
    uint64_t id, saves;        /* equal on all ranks */
    int64_t step;              /* complete steps; -1: the training is not complete */
    ignis_random_state random; /* of the thread after that step, if it was noted */
    bool is_noted, has_joined; /* has_joined: by ignis_training_regroup */
    ignis__training_kept kept;
    ignis__pinned *pinned;
    ignis__training_save save;
} ignis__training;

enum { IGNIS__TRAINING_MODEL, IGNIS__TRAINING_STATE, IGNIS__TRAINING_FILES };
#define IGNIS__TRAINING_INDEX "model.safetensors.index.json"
#define IGNIS__TRAINING_RANKS 99999 /* at most, as names of files have five digits */

/*  The name of a file of a saved training. */
typedef struct ignis__training_name {
    char text[80];
} ignis__training_name;

typedef struct ignis__training_place {
    const char *name, *file; /* of a tensor */
    int part;                /* the rank that wrote the file */
} ignis__training_place;

/*  The index of a saved training, read. */
typedef struct ignis__training_index {
    char *text; /* names are in it; owned */
    uint64_t id;
    int ranks;
    ignis__training_place *places; /* sorted by name */
    int count, capacity;
    char fault[400]; /* why it is not an index */
} ignis__training_index;

/*  Ranks that have parts of the gradients of the first `divided` optimizers, and equal ones of the others. */
typedef struct ignis__clip_ranks {
    ignis_ranks of;
    int divided;
} ignis__clip_ranks;

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
IGNIS__PRIVATE bool ignis__parameter_follow(const char *call, const ignis__optimizer *optimizer,
                                            ignis__parameter *parameter);
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
IGNIS__PRIVATE ignis__grad_group *ignis__pieces_hold(ignis__tensor *tensor, uint64_t *sharer);
IGNIS__PRIVATE bool ignis__pieces_check(const char *call, const ignis__optimizer *optimizer, ignis__tensor *tensor);
IGNIS__PRIVATE bool ignis__piece_take(const char *call, ignis__optimizer *optimizer, ignis__parameter *parameter);
IGNIS__PRIVATE bool ignis__pieces_begin(const char *call, ignis__optimizer *optimizer, bool writes);
IGNIS__PRIVATE bool ignis__pieces_gradients(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_may_drop(const ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_drop(const char *call, const ignis__optimizer *optimizer);
IGNIS__PRIVATE void ignis__pieces_end(const char *call, ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_zero(const char *call, const ignis__optimizer *optimizer);
IGNIS__PRIVATE bool ignis__pieces_spread(const char *call, const ignis__optimizer *optimizer);
IGNIS__PRIVATE ignis_array ignis__piece_fill(const char *call, const ignis__parameter *parameter,
                                             const ignis__array *piece);

/* clip.c */
IGNIS__PRIVATE bool ignis__optimizer_norm(const ignis__work *work, ignis__optimizer *optimizer);
IGNIS__PRIVATE ignis_status ignis__clip_grad_norms(const char *call, const ignis_optimizer *optimizers, int count,
                                                   double max_norm, const ignis__clip_ranks *ranks);

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

/* training.c */
IGNIS__PRIVATE bool ignis__training_exchange(const char *call, ignis__training *training, int64_t mine,
                                             int64_t of_first);
IGNIS__PRIVATE bool ignis__training_check_ranks(const char *call, const char *name, const ignis_ranks *ranks);
IGNIS__PRIVATE bool ignis__training_meet(const char *call, ignis__training *training);
IGNIS__PRIVATE bool ignis__training_agree(const char *call, ignis__training *training, bool ok);
IGNIS__PRIVATE ignis__training *ignis__training_enter(const char *call, ignis_training handle);
IGNIS__PRIVATE ignis__training *ignis__training_seize(uint64_t handle);
IGNIS__PRIVATE ignis_status ignis__training_leave(const char *call, ignis__training *training, bool ok);
IGNIS__PRIVATE void ignis__trainings_close(const char *call);

/* training_entries.c */
IGNIS__PRIVATE bool ignis__training_entries_make(const char *call, const ignis__training *training,
                                                 ignis__training_entries *entries);
IGNIS__PRIVATE bool ignis__training_entries_sort(const char *call, ignis__training_entries *entries);
IGNIS__PRIVATE ignis__training_entry *ignis__training_entries_find(const ignis__training_entries *entries,
                                                                   const char *name, size_t length);
IGNIS__PRIVATE void ignis__training_entries_release(const char *call, ignis__training_entries *entries);
IGNIS__PRIVATE void ignis__training_entries_free(const char *call, ignis__training_entries *entries);

/* training_keep.c */
IGNIS__PRIVATE bool ignis__training_shares_find(const char *call, const ignis__training *training,
                                                ignis__training_shares *shares);
IGNIS__PRIVATE void ignis__training_shares_drop(const char *call, const ignis__training_shares *shares);
IGNIS__PRIVATE bool ignis__training_pieces_make(const char *call, const ignis__training *training,
                                                ignis__training_entries *entries);
IGNIS__PRIVATE bool ignis__training_keep_open(const char *call, ignis__training *training);
IGNIS__PRIVATE void ignis__training_keep_close(const char *call, ignis__training *training);
IGNIS__PRIVATE bool ignis__training_keep(const char *call, ignis_optimizer handle);
IGNIS__PRIVATE bool ignis__training_undo(const char *call, ignis__training *training, int64_t step);

/* training_index.c */
IGNIS__PRIVATE ignis__training_name ignis__training_file_name(int kind, uint64_t id, int rank, int ranks);
IGNIS__PRIVATE char *ignis__training_path(const char *call, const char *folder, const char *name);
IGNIS__PRIVATE void ignis__training_sweep_folder(const char *folder, uint64_t id);
IGNIS__PRIVATE bool ignis__training_index_write(const char *call, const ignis__training *training);
IGNIS__PRIVATE void ignis__training_index_close(ignis__training_index *index);
IGNIS__PRIVATE ignis_diagnostic ignis__training_index_parse(ignis__training_index *index, const char *text,
                                                            size_t size);
IGNIS__PRIVATE const ignis__training_place *ignis__training_index_find(const ignis__training_index *index,
                                                                       const char *name);

/* training_save.c */
IGNIS__PRIVATE bool ignis__training_finish(const char *call, ignis__training *training);
IGNIS__PRIVATE bool ignis__training_save_end(const char *call, ignis__training *training);
