/* >>ops.attention - scaled dot-product attention ----------------------------------------------------------------

   Scores are never stored. Tensor cores (wgmma, mma) serve f16 and bf16 on devices that have them.
   Keys and values may have fewer heads than queries (grouped-query attention). */

typedef enum ignis_mask {
    IGNIS_MASK_CAUSAL =
        0, /* of sq queries and sk keys, query i sees the keys before i + sk - sq + 1: the last query sees all */
    IGNIS_MASK_NONE, /* every query sees all keys */
    IGNIS_MASK_COUNT
} ignis_mask;

typedef struct ignis_sdpa_desc {
    int num_heads; /* a row of q is num_heads heads of head_dim elements (1) */
    /* A row of k or v is num_kv_heads such heads, each shared by num_heads / num_kv_heads query heads
       (num_heads). */
    int num_kv_heads;
    ignis_mask mask;   /* IGNIS_MASK_CAUSAL */
    double scale;      /* of the scores, positive (1 / sqrt(head_dim)) */
    int window;        /* a query sees keys that are fewer than `window` positions from its own (all) */
    double softcap;    /* scores become softcap * tanh(score / softcap) (they stay as they are) */
    ignis_tensor bias; /* [batch or 1, num_heads or 1, sq or 1, sk], is added to the scores, after the softcap (none) */
    /* [num_heads], of the dtype of q, or f32 for f16 and bf16: a score of each head, in the softmax's sum beside those
       of keys, without a value (none) */
    ignis_tensor sinks;
    ignis_tensor lengths; /* i32 [batch]: number of keys of each sequence, the first ones (sk) */
    /* Documents, one of these two, instead of lengths; rows see only their own document (each sequence is one).
       i32 or i64: ids of rows, [batch, rows] or [rows]; or of one sequence [documents + 1], where each document
       begins, and where the last one ends. */
    ignis_tensor segments, offsets;
} ignis_sdpa_desc;

/*  ignis_sdpa - scaled dot-product attention of all heads: softmax(scale q k^T) v, without ever storing the
    scores
    Shapes: q [sq, num_heads * head_dim]; k and v [sk, num_kv_heads * head_dim]; or all with a batch in front;
    head_dim is at most 256. The result has the shape of q. A query that sees no key gives zeros, and no
    gradient. desc may be null for all defaults. desc->window: query i is at the place of key i + sk - sq.
    With a causal mask it sees that key and the window - 1 before it, else window - 1 on both sides.
    desc->lengths: one number if there is no batch; below 0 counts as 0, above sk as sk. Queries after their
    sequence's length see its keys as others do. Keys that no query sees take no time, forward and backward.
    desc->segments: a document is a run of rows with equal ids, which need not rise; equal ids that others
    separate are two documents. Rows with ids below 0 are in none. desc->offsets: document i is rows
    offsets[i] to offsets[i + 1] - 1, maybe none; rows before the first and after the last one are in none, and
    so are rows between offsets that fall. Where other libraries have [rows, heads, head_dim], reshape. A row in
    no document is zero in the result and the gradients. There have to be as many queries as keys; mask and
    window count inside a document. Time is proportional to the squares of the documents' lengths, memory to
    the rows.
    desc->softcap is that of Gemma 2. In keys and values that no query of their sequence sees, in queries that
    see no key, and in the gradients of their results anything may be, NaN and infinities too: it reaches no
    result and no gradient. A value that only some queries see reaches only those; but with tensor cores a NaN
    or an infinity there may make others NaN, too.
    desc->bias has the dtype of q, or f32 for f16 and bf16; dimensions of 1 in front may be missing, and it
    may be -infinity. Low numbers such as -1e9 or the lowest of the dtype mask, too: beside others such keys
    have weight 0, and alone they count alike. Its gradient is added up over what shares it, in f32 or f64.
    ALiBi is a bias [1, num_heads, 1, sk] of slope * j: what all keys of a query have in common does not
    matter. A key that a bias masks is seen all the same: its value has to be finite.
    desc->sinks are those of gpt-oss: each query has a key more, which neither mask, window nor document hides,
    whose score is the sink and whose value is 0. The score is not scaled, and has no softcap. -infinity is no
    sink, with the same bits; infinity gives zeros. The gradient of the sinks is added up in a fixed order, in
    f32 or f64. f16 and bf16 use
    tensor cores on devices of compute capability 8.0 and up, if head_dim is a multiple of 8; probabilities
    are rounded to the dtype there. Compute capability 9.0 has kernels of its own, twice as fast, where
    head_dim is 64 at least, there are a query and a key (for the gradients 32 queries, or 16 if head_dim is
    not 64) and no bias, and CUDA is 12.0 or newer; their gradients need 4 bytes for each element of q while
    they are computed. ignis_desc.attention takes the one kind or the other; what IGNIS_ATTENTION_WGMMA cannot
    take is told to the logger, as information (ignis_desc.verbose). Equal inputs give equal bits, with all
    kernels. Few queries and many keys need memory for the parts of a result, at most 2^18 bytes for each SM.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads or num_kv_heads below 1, num_heads is not a multiple of num_kv_heads, no
    such mask, scale or softcap is not positive, window below 0, more than one of lengths, segments and
    offsets), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 256, 2^30 rows
    or more, with documents 2^31 in all).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc);

/*  ignis_sdpa_packed - ignis_sdpa of q, k and v where one projection (ignis_linear) left them: nothing is
    copied
    Shapes: qkv [seq, (num_heads + 2 num_kv_heads) * head_dim], or with a batch in front: in each row the
    heads of q, then those of k, then those of v. The result is [seq, num_heads * head_dim], or with the
    batch. Its gradient is one array of the shape of qkv. Same bits as ignis_sdpa of the three parts, where
    qkv begins at a multiple of 16 bytes; elsewhere f16 and bf16 use no tensor cores. desc may be null for all
    defaults. With rope q and k are rotated first as by ignis_rope, into memory of their own, where they stay
    for backward; its num_heads is 0, or that of q and k together. Positions begin anew in each document.
    Without, rope is null; the backward of f16 and bf16 on compute capability 9.0 then also adds up the gradient
    of the projection's bias.
    Returns: the tensor, or no handle.
    Errors: those of ignis_sdpa and ignis_rope.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope);

/*  ignis_decode_sdpa - attention of one new query to all keys of a cache, for generation token by token
    Shapes: q [1, num_heads * head_dim]; k and v [past + 1, num_kv_heads * head_dim], the new token's
    included, at least one row; or all with a batch in front; num_kv_heads follows from the shapes, head_dim
    is at most 512. The result has the shape of q. The scores are scaled by 1 / sqrt(head_dim). Nothing is
    recorded: the result requires no gradient.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads below 1, or not a multiple of the number of key heads), SHAPE, DTYPE,
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 512, 2^30 rows or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads);

/*  ignis_decode_sdpa_with - ignis_decode_sdpa with the options of ignis_sdpa
    The query comes last in its sequence, also where lengths say that this has fewer keys than the cache has
    room for: a window is the last `window` keys before the length. So a batch may have sequences of different
    lengths, and a graph that was captured may go on with a cache that grows, whose length is in device
    memory. A sequence without a key gives zeros. desc->mask does not matter, num_kv_heads may be 0: as many
    as k has room for. Documents are not supported. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: those of ignis_sdpa and ignis_decode_sdpa.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v,
                                              const ignis_sdpa_desc *desc);
