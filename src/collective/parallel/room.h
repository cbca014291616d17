/*  collective/parallel - data-parallel training. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../../tensor/room.h"
#include "../../ops/room.h"
#include "../../train/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../job/room.h"
#include "../comm/room.h"

#ifndef IGNIS_NO_TENSORS
/*  A bucket: gradients that are reduced together, views of one memory. */
typedef struct ignis__bucket {
    ignis__grad_group group; /* first */
    struct ignis__parallel_state *parallel;
    int first, last; /* parameters */
    /* Of the gradients; claimed. From IGNIS_SHARD_GRADIENTS on of this rank's slice of them, from an average until a
       step drops them; NULL: there are none. */
    ignis__array *memory;
    uint64_t memory_in; /* the serial of the capture that made it; 0: none */
    bool is_fresh;      /* nothing was written to it yet, while the bucket is reduced */
    ignis_dtype dtype;
    int64_t numel;        /* of the memory */
    ignis__array *values; /* with shards the parameters, in the same places; claimed */
    /* With IGNIS_SHARD_PARAMETERS: this rank's slice of the values, and all of them while they are gathered; claimed.
       parallel->gathering guards all but the slice. */
    ignis__array *slice, *whole;
    ignis__pooled_event *gathered; /* recorded after the gathering; NULL: there was none */
    void *ordered;                 /* the stream that has waited for it last; NULL: none */
    bool ready;                    /* complete in the backward pass that averages */
} ignis__bucket;

/*  The place of a rank among groups of ranks, each of which has a copy of what is shared. */
typedef struct ignis__parallel_place {
    int rank, ranks;   /* of the group */
    int group, copies; /* the group, of how many; each has a copy */
} ignis__parallel_place;

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
    int shard_ranks; /* of ignis_parallel_desc */
    ignis__parallel_place place;
    ignis_comm inside, across; /* of the group, comm if it has all ranks; of one position in each group, or none */
    ignis__array *staging;     /* gradients that the ranks reduce now, if they share them; claimed; NULL: none */
    /* in the order in which the backward pass completes them, if parameters are in the order of use */
    ignis__bucket *buckets;
    int count, bucket_count;
    int64_t bytes;
    int no_sync;
    ignis__mutex gathering; /* guards what follows, and the gathered buckets */
    int current, before;    /* buckets in use: the last one, and the one before; -1: none */
    ignis__array *window;   /* the slices of all buckets, as bytes; claimed; NULL: of other kinds */
    int64_t window_end;     /* bytes of it that buckets have */
    /* Whether other ranks may be reading this rank's slices, and whether its slices have changed, since the ranks have
       met last; equal on all ranks. */
    bool is_read, is_written;
    uint64_t gathered_in; /* the serial of the capture that has gathered buckets; 0: none */
    bool broadcasts;      /* parameters become those of rank 0 */
    bool is_installed;    /* the parameters know their buckets */
    /* The backward pass that averages now; it alone changes what follows. NULL: none. */
    const void *backward_pass;
    /* Buckets whose all-reduce was launched: always the first ones, as ranks must have the same order. */
    int launched;
    struct ignis__parallel_state *next_starting;
} ignis__parallel_state;

/*  The current stream of a thread while its work goes to the second stream of a training. */
typedef struct ignis__second_stream {
    ignis__capture *capture;
    void *main_stream, *own;
    uint64_t own_serial;
} ignis__second_stream;

/*  How data moves between ranks, along the first dimension. */
typedef enum ignis__rank_move {
    IGNIS__MOVE_NONE,
    IGNIS__MOVE_ALL_REDUCE,
    IGNIS__MOVE_ALL_GATHER,
    IGNIS__MOVE_REDUCE_SCATTER,
    IGNIS__MOVE_SLICE /* to this rank's slice; nothing travels */
} ignis__rank_move;

/*  An operation that moves a tensor between ranks, and its gradient in backward. */
typedef struct ignis__rank_exchange {
    const char *call, *name;
    ignis__rank_move forward, backward;
} ignis__rank_exchange;

#define IGNIS__BUCKET_ALIGNMENT 256 /* bytes, of each gradient in a bucket, as for memory of its own */

#endif

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* data_parallel.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis__parallel_state *ignis__parallel_hold(const char *call, ignis_parallel handle);
IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__parallel_enter_second(const char *call, ignis__parallel_state *parallel,
                                                 ignis__second_stream *second);
IGNIS__PRIVATE void ignis__parallel_leave_second(const ignis__parallel_state *parallel,
                                                 const ignis__second_stream *second);

/* group.c */
IGNIS__PRIVATE bool ignis__parallel_place_find(const char *call, ignis_comm handle, const ignis_parallel_desc *desc,
                                               ignis__parallel_place *place);
IGNIS__PRIVATE bool ignis__parallel_groups_make(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE void ignis__parallel_groups_leave(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__parallel_groups_average(const ignis__parallel_state *parallel, ignis_array whole,
                                                   ignis_array slice);

/* gather.c */
IGNIS__PRIVATE uint64_t ignis__gather_capture(const ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__gather_open(const char *call, ignis__parallel_state *parallel, int64_t bytes);
IGNIS__PRIVATE bool ignis__gather_stop(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__gather_reopen(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__gather_settle(const char *call, ignis__parallel_state *parallel, bool writes);
IGNIS__PRIVATE bool ignis__gather_close(const char *call, ignis__parallel_state *parallel,
                                        const ignis__capture *capture);
IGNIS__PRIVATE bool ignis__gather_update(const char *call, ignis__bucket *bucket);
IGNIS__PRIVATE bool ignis__gather_make(const char *call, ignis__bucket *bucket, ignis_dtype dtype, int64_t count);
IGNIS__PRIVATE bool ignis__gather_begin(const char *call, ignis__bucket *bucket, bool broadcasts);
IGNIS__PRIVATE void ignis__gather_end(const char *call, ignis__bucket *bucket);

/* shard.c */
extern const ignis__sharing ignis__shard_sharings[IGNIS_SHARD_COUNT];
IGNIS__PRIVATE bool ignis__shard_stage(const char *call, ignis__bucket *bucket);
IGNIS__PRIVATE void ignis__shard_unstage(const char *call, ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_scatter(const char *call, const ignis__bucket *bucket);
IGNIS__PRIVATE bool ignis__shard_average(const char *call, const ignis__bucket *bucket);
IGNIS__PRIVATE int64_t ignis__shard_place(const ignis__parallel_state *parallel, const ignis__tensor *parameter,
                                          int64_t *end);
IGNIS__PRIVATE int64_t ignis__shard_bucket_bytes(const ignis__parallel_state *parallel, ignis_dtype dtype, int64_t end);
IGNIS__PRIVATE bool ignis__shard_check(const char *call, const ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_broadcast(ignis__parallel_state *parallel);
IGNIS__PRIVATE bool ignis__shard_copy(const char *call, ignis__parallel_state *parallel, const ignis__bucket *bucket,
                                      int at);
#endif
