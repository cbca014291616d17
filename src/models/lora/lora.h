/* >>lora - adapters of models ----------------------------------------------------------------------------------- */

/*  The adapters of a model: pairs of narrow matrices beside some of its products. */
typedef struct ignis_lora {
    uint64_t id;
} ignis_lora;

typedef struct ignis_lora_desc {
    int rank;     /* rows of A and columns of B, at most 65536 (8) */
    double alpha; /* the output of A and B is multiplied by alpha / rank (rank) */
    bool rslora;  /* by alpha / sqrt(rank) instead (Kalajdzievski 2023, arXiv 2312.03732) (false) */
    /* fraction of A's input that is dropped while gradients are recorded; not within ignis_no_grad_begin (0) */
    double dropout;
    const char *const
        *targets;     /* products that get an adapter, by the last words of their names: "q_proj", "mlp.c_proj",
                         "layers.3.mlp.up_proj"; "all-linear": all (as PEFT: "c_attn" of GPT-2, else "q_proj" and
                         "v_proj") */
    int target_count; /* number of targets */
    ignis_dtype
        dtype; /* of A and B: f16, bf16, f32 or f64; if it is not the model's, their input is converted (the model's) */
    uint64_t seed; /* of A: equal seeds give equal values (0) */
} ignis_lora_desc;

typedef struct ignis_lora_info {
    int rank, adapters; /* adapters: products that have one */
    double alpha, dropout, scale;
    bool rslora;
    bool set, merged; /* set on the model by ignis_model_set_lora; merged into its weights by ignis_lora_merge */
    int sequences;    /* that are computed with them */
    ignis_dtype dtype;
    int64_t parameters; /* elements of all A and B */
} ignis_lora_info;

/*  ignis_lora_create - make adapters for a model
    A [rank, in] is uniform within 1 / sqrt(in), as PEFT's Kaiming initialisation is. B [out, rank] is 0, so
    new adapters change nothing. Products of layers can have an adapter; the head and the embedding cannot.
    desc may be null for all defaults.
    Returns: the adapters, which are not set yet; or no handle.
    Errors: FREED, ARGUMENT (a number or dtype of desc out of its range, null, a target that names no product:
    the message has the names), UNSUPPORTED (this thread captures a graph), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller's, until ignis_lora_free, whatever scope is current. They keep the model's memory
    alive, but not its handle.
    Threads: any. Streams: queued on the current stream of the model's device. */
IGNIS_API ignis_lora ignis_lora_create(ignis_model model, const ignis_lora_desc *desc);

/*  ignis_lora_open - read adapters as PEFT writes them: a folder with adapter_config.json and
    adapter_model.safetensors
    The file of tensors decides which products have an adapter. A and B keep the file's dtype. They can be
    trained further, with the file's dropout. Features that Ignis lacks are refused by name: DoRA, biases,
    modules_to_save, patterns of ranks or alphas, initialisations that change the base (PiSSA, OLoRA). So is
    every unknown key, unless it is null, false, 0 or empty.
    Returns: the adapters, which are not set yet; or no handle.
    Errors: FREED, ARGUMENT (null), IO (a file is missing or cannot be read), FORMAT (a damaged file; a number
    that is missing or out of its range; a tensor that is missing, has no place in the model, or another
    shape), UNSUPPORTED (as above, named with its value; dtypes that differ; this thread captures a graph),
    MEMORY, CUDA.
    Ownership: as ignis_lora_create.
    Threads: any. Streams: writes on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_lora ignis_lora_open(ignis_model model, const char *folder);

/*  ignis_model_set_lora - let ignis_model_forward use adapters, in place of those before; no handle: none
    Sequences (>>generate) that begin from now on have them, too; those that exist keep theirs.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (adapters of another model, or merged ones).
    Ownership: unchanged; freeing the adapters takes them off the model.
    Threads: any; a forward that runs keeps the adapters it began with. */
IGNIS_API ignis_status ignis_model_set_lora(ignis_model model, ignis_lora lora);

/*  ignis_lora_query - fill in facts about adapters
    Returns: IGNIS_OK, and *info filled, or the reason.
    Errors: FREED, ARGUMENT (null info).
    Ownership: info is the caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_lora_query(ignis_lora lora, ignis_lora_info *info);

/*  ignis_lora_weights - list A and B of every adapter, ordered by layer: the parameters for an optimizer
    tensors may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: the tensors are the adapters': do not release them.
    Threads: any. */
IGNIS_API int ignis_lora_weights(ignis_lora lora, ignis_tensor *tensors, int capacity);

/*  ignis_lora_save - write adapters as a folder that PEFT and ignis_lora_open open: adapter_config.json and
    adapter_model.safetensors
    The folder is made if it does not exist. base_model_name_or_path is the path that the model was opened
    from. Merged adapters can be saved, too.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null), FREED, UNSUPPORTED (this thread captures a graph), and those of ignis_save.
    Ownership: as ignis_save.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_lora_save(ignis_lora lora, const char *folder);

/*  ignis_lora_merge - add scale B A to the model's weights: afterwards the model is as fast as one without
    adapters
    B A is computed in f32 (f64 in f64), and each weight is rounded once, to the model's dtype. A merge cannot
    be undone: subtracting B A does not restore what was rounded off. To have the old weights, open the model
    again. Keys and values of existing sequences remain those of the old weights. The adapters are taken off
    the model, and can still be saved.
    Returns: IGNIS_OK, or the reason; after a failure some weights may be merged, and another call continues
    with the others.
    Errors: FREED, ARGUMENT (merged already, or by another thread now; sequences have them), UNSUPPORTED (this
    thread captures a graph; the model has quantised weights), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any, while no other one uses the model. Streams: works on the current stream of the model's
    device, and waits for it. */
IGNIS_API ignis_status ignis_lora_merge(ignis_lora lora);

/*  ignis_lora_free - free adapters, and take them off their model
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (sequences have them).
    Ownership: the handle and those of A and B are stale afterwards. The tape keeps those that it needs until
    ignis_backward or ignis_tape_clear.
    Threads: any. A call of another thread that is using them ends normally; A and B are stale after it. */
IGNIS_API ignis_status ignis_lora_free(ignis_lora lora);
