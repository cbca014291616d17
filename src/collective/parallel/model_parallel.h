/*  >>parallel.model - communicators for models that several ranks share

    Part of the interface of models, so it exists with ignis_models.h only.
    ignis_model_open reads the struct; the communicator must live as long as the model.
    See ON MODELS OF SEVERAL GPUS. */

/*  ignis_comm_parallel - return ignis_model_desc.parallel for a model that the ranks of comm share
    See ON MODELS OF SEVERAL GPUS.
    Returns: the rank, the size and the functions that sum; size -1 on failure, which ignis_model_open
    refuses.
    Errors: FREED.
    Ownership: nothing to free; free the model before comm is destroyed.
    Threads: any. */
IGNIS_API ignis_model_parallel ignis_comm_parallel(ignis_comm comm);
