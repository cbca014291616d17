/* >>ops.rope - rotary position embedding ------------------------------------------------------------------------

   A head is rotated in pairs of elements.
   Frequencies come from a base, the host or the device. */

typedef struct ignis_rope_desc {
    int num_heads;      /* required: a row is num_heads heads of head_dim elements */
    double base;        /* of the inverse frequencies base^(-2i / head_dim) (10000) */
    int64_t pos_offset; /* position of the first row of every sequence (0) */
    /* On the host: other inverse frequencies, such as those of llama3, NTK or YaRN scaling (those of base). */
    const float *inv_freq;
    int inv_freq_count; /* head_dim / 2 */
    /* Instead of inv_freq: head_dim / 2 frequencies on the device, f32, or for x of f64 also f64 (none). */
    ignis_array inv_freq_array;
    const double *inv_freq_f64; /* instead of inv_freq, on the host: as many (none) */
} ignis_rope_desc;

/*  ignis_rope - rotary position embedding, in the half-rotating order of Llama and Qwen
    Shapes: x [..., seq, num_heads * head_dim]; the position of a row is its index in seq plus
    desc->pos_offset. Elements i and i + head_dim / 2 of every head are rotated by position * inv_freq[i], an angle
    in f64 for x of f64, else in f32. Frequencies on the device are read as the kernel runs, so a graph reads
    them anew at each launch; backward reads them again.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, num_heads below 1, base not positive, pos_offset beyond 2^31,
    inv_freq_count or the array's numel is not head_dim / 2, frequencies given twice or never written to),
    SHAPE (the last dimension is not num_heads times an even head_dim), DTYPE, DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA, UNSUPPORTED (head_dim above 512).
    Ownership: as ignis_tensor_from_host; inv_freq may be reused when the call returns, and inv_freq_array be
    freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc *desc);
