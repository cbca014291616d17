/*  ignis_comm_parallel - what ignis_model_desc.parallel gets for a model that the ranks of comm share: see ON
    MODELS OF SEVERAL GPUS
    Returns: what this rank is, and how it sums; size -1 on failure, which ignis_model_open refuses.
    Errors: FREED.
    Ownership: nothing to free; free the model before comm is destroyed.
    Threads: any. */
IGNIS_API ignis_model_parallel ignis_comm_parallel(ignis_comm comm);
