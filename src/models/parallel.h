#ifndef IGNIS_MODEL_PARALLEL_INCLUDED
#define IGNIS_MODEL_PARALLEL_INCLUDED
/*  parallel.h - the ranks that share a model. ignis_models.h and ignis_collective.h both declare them, in any
    order. */

/*  The GPUs that share a model, one rank each. ignis_comm_parallel of ignis_collective.h makes it of a
    communicator. ignis_model_inspect needs rank and size only. */
typedef struct ignis_model_parallel {
    int rank, size; /* 0, 0: the model is not shared */
    uint64_t group; /* passed to the functions */
    /* array = its sum over the ranks, the same bits on all: queued on the current stream, captured by graphs */
    ignis_status (*sum_fn)(uint64_t group, ignis_array array);
    ignis_status (*check_fn)(uint64_t group); /* the failure of the sums that are done; does not wait */
} ignis_model_parallel;
#endif
