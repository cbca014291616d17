/*  collective/parallel - data-parallel training. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../tensor/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../comm/room.h"

#ifndef IGNIS_NO_TENSORS
/*  A bucket: gradients that are reduced together, views of one memory. */
typedef struct ignis__bucket {
    ignis__grad_group group; /* first */
    struct ignis__parallel_state *parallel;
    ignis__array *memory; /* claimed */
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

#endif

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* data_parallel.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis__parallel_state *ignis__parallel_hold(const char *call, ignis_parallel handle);
IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel);
#endif
