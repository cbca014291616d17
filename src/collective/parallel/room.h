/*  collective/parallel - data-parallel training. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../../tensor/room.h"
#include "../../train/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../comm/room.h"

#ifndef IGNIS_NO_TENSORS
/*  A bucket: gradients that are reduced together, views of one memory. */
typedef struct ignis__bucket {
    ignis__grad_group group; /* first */
    struct ignis__parallel_state *parallel;
    int first, last;      /* parameters */
    ignis__array *memory; /* of the gradients, or with IGNIS_SHARD_GRADIENTS of this rank's slice of them; claimed */
    ignis__array *values; /* with shards the parameters, in the same places; claimed */
    bool ready;           /* complete in the backward pass that averages */
} ignis__bucket;

typedef struct ignis__parallel_state {
    ignis__slot slot; /* first; its lock guards no_sync and backward_pass */
    ignis_comm comm;
    ignis__device *device;
    void *stream; /* of the all-reduces, so that the backward pass goes on meanwhile */
    uint64_t stream_serial;
    ignis__tensor **parameters; /* held */
    ignis__array **grads;       /* views of the buckets, claimed until the parameters own them */
    ignis__array **values;      /* as grads, of the parameters; each NULL without shards */
    int64_t *places;            /* of the parameters in their buckets, in elements */
    ignis_shard shard;
    int rank, ranks;
    ignis__array *staging; /* gradients that the ranks reduce now, if they share them; claimed; NULL: none */
    /* in the order in which the backward pass completes them, if parameters are in the order of use */
    ignis__bucket *buckets;
    int count, bucket_count;
    int64_t bytes;
    int no_sync;
    bool is_installed; /* the parameters know their buckets */
    /* The backward pass that averages now; it alone changes what follows. NULL: none. */
    const void *backward_pass;
    /* Buckets whose all-reduce was launched: always the first ones, as ranks must have the same order. */
    int launched;
    struct ignis__parallel_state *next_starting;
} ignis__parallel_state;

#define IGNIS__BUCKET_ALIGNMENT 256 /* bytes, of each gradient in a bucket, as for memory of its own */

#endif

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* data_parallel.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis__parallel_state *ignis__parallel_hold(const char *call, ignis_parallel handle);
IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel);

/* shard.c */
extern const ignis__sharing ignis__shard_sharing, ignis__shard_gradient_sharing;
IGNIS__PRIVATE bool ignis__shard_stage(const char *call, const ignis__bucket *bucket);
IGNIS__PRIVATE void ignis__shard_unstage(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_scatter(const char *call, const ignis__bucket *bucket);
IGNIS__PRIVATE int64_t ignis__shard_place(const ignis__parallel_state *parallel, const ignis__tensor *parameter,
                                          int64_t *end);
IGNIS__PRIVATE int64_t ignis__shard_bucket_bytes(const ignis__parallel_state *parallel, ignis_dtype dtype, int64_t end);
IGNIS__PRIVATE bool ignis__shard_check(const char *call, const ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_broadcast(ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_copy(const char *call, ignis__parallel_state *parallel, int at);
#endif
