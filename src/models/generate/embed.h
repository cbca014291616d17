/* >>embed - hidden states, vectors and scores of texts ---------------------------------------------------------- */

typedef struct ignis_hidden_desc {
    ignis_tensor lengths; /* i32 [batch]: tokens of each text, the first ones of its row (seq) */
    ignis_tensor types;   /* i32 or i64, the shape of ids: types of tokens, which BERT has (0) */
} ignis_hidden_desc;

/*  ignis_model_hidden - compute the hidden states of whole texts, after the last norm
    Shapes: ids [seq] or [batch, seq], of i32 or i64, from position 0; the result is [seq, hidden] or [batch, seq,
    hidden]. In an encoder (BERT) every token sees all tokens of its text, in other models itself and those before
    it. Rows after a text's length have values that mean nothing. It consists of recorded operations, as
    ignis_model_forward does: a model is trained through it. desc may be null.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (ids of other shapes, or longer than the model's positions), UNSUPPORTED (a share of a model;
    types for a model that has none), and those of ignis_embedding, ignis_linear, ignis_rope, ignis_sdpa and the
    norms.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_model_hidden(ignis_model model, ignis_tensor ids, const ignis_hidden_desc *desc);

typedef struct ignis_embed_desc {
    ignis_pooling pooling; /* how hidden states become a vector (IGNIS_POOLING_DEFAULT) */
    bool raw;              /* true: vectors keep their lengths (they are divided by them) */
    bool truncate;         /* true: a text that is longer than the model's context is cut (it is an error) */
} ignis_embed_desc;

/*  ignis_model_embed - compute a vector of each text; those of texts with similar meanings are similar
    texts: `count` texts in UTF-8 with a 0 at the end. vectors: receives [count, hidden], hidden as in
    ignis_model_info. The scalar product of two vectors is their similarity, from -1 to 1, unless desc->raw is set.
    Ids that the tokenizer adds around a text are added. Some models are trained with words before a text, such as
    "query: "; the caller writes them. Texts are computed many at a time, in the order of their lengths; the last
    bits of a vector may depend on the other texts. desc may be null.
    Returns: IGNIS_OK, or the reason; then vectors may be written in part.
    Errors: FREED, ARGUMENT (null; a count below 0; no such pooling; a text without a token, or with more tokens than
    ignis_model_info.context), UNSUPPORTED (a share of a model; IGNIS_POOLING_DEFAULT where the files pool in another
    way than ignis_pooling has, or have a 2_Dense), those of ignis_model_tokenizer, ignis_model_hidden, MEMORY.
    Ownership: vectors is the caller's.
    Threads: any. Streams: works on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_model_embed(ignis_model model, const char *const *texts, int count,
                                         const ignis_embed_desc *desc, float *vectors);

/*  ignis_model_score - compute how well each text answers a query, with a cross-encoder (a reranker)
    The model has to be one of BERT's kind with a classifier of one class. The query and a text are one sequence:
    [CLS] query [SEP] text [SEP]. scores: receives `count` scores, as the classifier gives them; larger is better. Many
    programs show 1 / (1 + exp(-score)). Of desc only truncate matters: the longer of both is cut first. desc may be
    null.
    Returns: IGNIS_OK, or the reason; then scores may be written in part.
    Errors: those of ignis_model_embed; UNSUPPORTED (a model without a classifier, or with several classes).
    Ownership: scores is the caller's.
    Threads: any. Streams: works on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_model_score(ignis_model model, const char *query, const char *const *texts, int count,
                                         const ignis_embed_desc *desc, float *scores);
