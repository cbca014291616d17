/* >>generate - sequences, sampling ------------------------------------------------------------------------------ */

/*  The tokens of a text, with their keys and values in the model's KV cache. */
typedef struct ignis_sequence {
    uint64_t id;
} ignis_sequence;

/*  A number that is added to the logit of a token. */
typedef struct ignis_logit_bias {
    int32_t id;
    float bias; /* -infinity forbids the token */
} ignis_logit_bias;

/*  How a token is sampled from logits. The order is: biases, repetition penalty, the sequence's grammar, temperature,
    top_k, top_p, min_p. That is the order of Hugging Face's processors; llama.cpp applies the temperature last. */
typedef struct ignis_sampling_desc {
    /* logits are divided by it; 0: the likeliest token, the lowest id of equal ones (0) */
    double temperature;
    /* keeps the `top_k` likeliest tokens, and those equal to the last of them (all) */
    int top_k;
    double top_p; /* keeps the fewest tokens that have this probability together (all) */
    /* keeps tokens with at least this fraction of the likeliest one's probability (all) */
    double min_p;
    /* divides positive logits of past tokens, and multiplies negative ones (1) */
    double repetition_penalty;
    int penalty_window; /* past tokens that the penalty counts, the latest ones (all) */
    /* equal seeds sample equal tokens after equal ids, in any batch (0) */
    uint64_t seed;
    const ignis_logit_bias *biases; /* in rising order of their ids (none) */
    int bias_count;                 /* at most 512 */
} ignis_sampling_desc;

typedef struct ignis_sequence_info {
    int length, context; /* tokens that it has; tokens that it may have */
    /* tokens in free pages of the KV cache, for all sequences of the model; of layers with a window only if all have
       one */
    int free_tokens;
    /* of the last sampled token, by the model itself: temperature 1, no filters */
    double log_prob;
} ignis_sequence_info;

/*  ignis_sequence_begin - make an empty sequence of a model
    The first sequence of a model allocates the KV cache. It has pages of 16 tokens, for ignis_model_desc.sequences
    sequences of ignis_model_desc.context tokens. More sequences are possible if they are shorter, or share their
    beginning. Layers with a window have pages of their own: a sequence keeps those of its window and of 64 tokens
    before it, up to a multiple of 64 tokens.
    The sequence is computed with the adapters that are set on the model (ignis_model_set_lora), as by
    ignis_sequence_set_lora.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph; an encoder; heads of more than 256 elements or not a
    multiple of 8; more than 2^19 tokens; a cache_dtype that is not the model's; a cache_type with f64, with latent
    attention, or whose blocks do not divide the heads; adapters of a rank above 512), MEMORY (also if the device has no
    memory for the KV cache), LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it with ignis_sequence_free. It keeps the model's memory alive.
    Threads: any; calls for sequences of one model wait for each other. With ignis_model_desc.parallel all ranks make
    the same calls in the same order. Calls that compute then also fail with MISMATCH if ranks disagree, TIMEOUT if a
    rank does not call, and PEER if a rank died.
    Streams: the first one works on the current stream of the model's device. */
IGNIS_API ignis_sequence ignis_sequence_begin(ignis_model model);

/*  ignis_sequence_set_lora - compute a sequence with adapters beside the weights; no handle: without adapters
    Each sequence of a model can have its own, also over quantised weights. One decode step computes all of them: the
    weights are read once, and a text has the same bits alone and in any batch. A step takes the values that A and B
    have then; keys and values of earlier tokens stay. Forks have the same adapters. The first adapters of a model take
    memory: 4 bytes, or 8 in f64, for 786432 elements, and for 64 rows of the widest product, or as many as a step
    has. Steps with adapters are graphs of their own, and not the single launches of ignis_sequence_next.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: FREED, ARGUMENT (adapters of another model, or merged ones; the sequence has tokens and other adapters),
    UNSUPPORTED (this thread captures a graph; a rank above 512; adapters of q_b of DeepSeek), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: the adapters cannot be freed or merged while sequences have them.
    Threads: any. Streams: works on the current stream of the model's device. */
IGNIS_API ignis_status ignis_sequence_set_lora(ignis_sequence sequence, ignis_lora lora);

/*  The sequences that may share computed tokens. */
typedef struct ignis_prefix_desc {
    /* sequences share tokens only with those of the same number: give each API key or user its own (0) */
    uint64_t boundary;
} ignis_prefix_desc;

/*  The tokens that a model keeps for sequences that share prefixes, and what they saved. All numbers are tokens. */
typedef struct ignis_prefix_info {
    int64_t tokens;     /* kept now */
    int64_t fed, found; /* given to such sequences; of these, found and not computed */
    int64_t dropped;    /* no longer kept, because there was no other room */
} ignis_prefix_info;

/*  ignis_sequence_share_prefix - keep a sequence's prompt for later sequences, and take from earlier ones
    Tokens that are fed from now on are kept in the KV cache, in full pages of 16, also after the sequence is freed. A
    sequence whose first tokens are kept does not compute them again. Only sequences of the same boundary, with the
    same adapters, share tokens; boundaries keep users from finding out, by time, what others have asked. desc may be
    null. The text is the same as without, bit for bit: tokens are found only if they were computed as the sequence
    would compute them, more than 64 at a time or not. So sampled tokens are not found by a prompt of more. Kept pages
    that no sequence uses count as free; they are dropped when there is no other room, the least recently used ones
    first. Forks share as their sequence does. Models with recurrent layers keep nothing. After weights or adapters
    change, call ignis_model_drop_prefixes.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: FREED, ARGUMENT (the sequence has tokens), UNSUPPORTED (this thread captures a graph), MEMORY.
    Ownership: unchanged; desc may be reused when the call returns.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_share_prefix(ignis_sequence sequence, const ignis_prefix_desc *desc);

/*  ignis_model_prefixes - return what a model keeps for sequences that share prefixes
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT (null).
    Ownership: info is a copy.
    Threads: any. */
IGNIS_API ignis_status ignis_model_prefixes(ignis_model model, ignis_prefix_info *info);

/*  ignis_model_drop_prefixes - keep no prefix any more
    Sequences that use the pages go on using them. The numbers of ignis_model_prefixes, except `tokens`, stay.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_model_drop_prefixes(ignis_model model);

/*  ignis_sequence_feed - append tokens, and compute their keys and values
    They are computed now, in chunks of 512. Chunks of more than 64 tokens take the kernels of ignis_matmul and
    ignis_sdpa, which are many times faster and round differently. Of fewer tokens, the last one is computed when its
    logits are needed.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: FREED, ARGUMENT (null; a count below 0; an id that the model does not have; more tokens than the context),
    MEMORY (the KV cache is full; the message has the numbers), UNSUPPORTED (this thread captures a graph),
    LIBRARY, COMPILE, CUDA.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_next - sample the token after the last one, and append it
    All logits have the same bits alone, in any batch, in a fork, and after truncating and feeding. They depend only on
    the ids, and on which of them were computed more than 64 at a time. sampling may be null: the likeliest token.
    On devices of compute capability 9.x a decode step of one sequence is a single launch if the model is f16 or bf16.
    Quantised weights must then have 16 to 128 MB per layer (56 MB if some are Q8_0), and heads of more than 128
    elements must not have norms. The blocks of the launch wait for each other (a cooperative launch), so it begins
    when other work has left a place for one block on each SM.
    Returns: the token; -1 on failure, and then the sequence is as it was.
    Errors: FREED, ARGUMENT (no token yet; the context is full; a value of sampling out of its range; no token can be
    sampled because all are forbidden, or because no logit is a number above minus infinity), MEMORY (the KV cache is
    full), UNSUPPORTED (this thread captures a graph), LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc *sampling);

/*  ignis_sequence_next_all - sample and append a token for each of several sequences of one model, in one decode step
    samplings: one for each sequence; null: the likeliest tokens. A step has up to 512 sequences, or
    ignis_model_desc.sequences if that is fewer, but at least 8; more sequences take several steps. Steps of 1, 2, 4,
    ... 64, 128, 192, ... 512 sequences are captured as graphs the second time they run; other numbers are rounded up
    to these. A model keeps 84 graphs, as many as it can have without adapters; with adapters of several products the
    one that was used longest ago makes room. A step reads the weights once for each 64 sequences; on devices of
    compute capability 9.0 once for all, if they are of f16 or bf16 with rows of a multiple of 512 elements, or
    ignis_model_desc.f8_activations is set. The first sequence of a model takes the memory of a step: above all 8 bytes
    for each of its sequences and each token of the vocabulary, and, in bf16 and f16, 4 bytes for each of its
    sequences, each element of the heads and each 64 tokens of the context, up to 32 times.
    Returns: IGNIS_OK, with the tokens in ids; or the reason, and then ids are -1 and all sequences are as they were.
    If no token can be sampled for some sequences, the others still get theirs: those with a token in ids.
    Errors: those of ignis_sequence_next; ARGUMENT (null; a count below 0; sequences of different models; one of them
    twice).
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_next_all(const ignis_sequence *sequences, int count,
                                               const ignis_sampling_desc *samplings, int32_t *ids);

/*  ignis_sequence_logits - compute the logits of the token after the last one
    count: the number of tokens of the model.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null; no token yet; another count), MEMORY (the KV cache is full), UNSUPPORTED (this
    thread captures a graph), LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_logits(ignis_sequence sequence, float *logits, int count);

/*  ignis_sequence_length - return the number of tokens
    Returns: the number; -1 on failure.
    Errors: FREED.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API int ignis_sequence_length(ignis_sequence sequence);

/*  ignis_sequence_query - return every property of a sequence
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: info is a copy.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info);

/*  ignis_sequence_ids - copy the tokens, from the first one on
    ids may be null if capacity is 0.
    Returns: the number of tokens, also if it is above capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: ids are copies.
    Threads: any. */
IGNIS_API int ignis_sequence_ids(ignis_sequence sequence, int32_t *ids, int capacity);

/*  ignis_sequence_truncate - keep the first `length` tokens only
    Pages of the KV cache that no sequence needs any more become free. If layers have a window, and more than 64 tokens
    are cut off, the keys of the new window may be gone: the next call that needs them computes all tokens of the
    sequence again, with the same bits.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (below 0, or more than it has), UNSUPPORTED (this thread captures a graph).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length);

/*  ignis_sequence_fork - make a second sequence that begins with the same tokens
    Both share the pages of the KV cache. A sequence that writes to a shared page gets a copy of it first. Give both
    different seeds to sample different texts.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph), MEMORY.
    Ownership: the caller frees it with ignis_sequence_free.
    Threads: any. */
IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence sequence);

/*  ignis_sequence_save - write a sequence to a file
    The file has the tokens and the contents of the cache, so that ignis_sequence_load need not compute them: those of
    latent attention, of windows and of recurrent layers, too. It is as large as the pages in use. A file at `path` is
    replaced when the new one is complete. The grammar, the boundary of the prefix and a text of
    ignis_generate_begin are not saved.
    Returns: IGNIS_OK, or the reason; then `path` is as it was.
    Errors: FREED, ARGUMENT (null; the sequence has adapters), IO, UNSUPPORTED (this thread captures a graph), MEMORY,
    CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_save(ignis_sequence sequence, const char *path);

/*  ignis_sequence_load - make a sequence from a file of ignis_sequence_save
    It continues with the same bits as the sequence that was saved. The model has the same weights, dtype and part of
    the ranks: its shapes, and the shapes, types and first bytes of all its weights are compared. On several ranks each
    has a file of its own. The context and the number of sequences may differ.
    Returns: the sequence, or no handle.
    Errors: FREED, ARGUMENT (null; more tokens than the context; the model has adapters), IO, FORMAT (another version;
    a file that is cut off or changed), MISMATCH (another model), MEMORY (the KV cache is full), UNSUPPORTED (this
    thread captures a graph), LIBRARY, COMPILE, CUDA. The message has what was expected and what came.
    Ownership: the caller frees it with ignis_sequence_free.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_sequence ignis_sequence_load(ignis_model model, const char *path);

/*  ignis_sequence_grammar - constrain the text from here on by a grammar; null: no grammar any more
    Only tokens after which the text can still match the grammar can be sampled. Other tokens are excluded before the
    temperature and all that follows, whatever the biases. Tokens that end texts (ignis_model_info.ends, the
    tokenizer's eos) can be sampled where the grammar may end, other control tokens never. Tokens that are fed must
    match, too; the next sampling checks that. Forks continue with the grammar. After a truncation its state is that
    of the remaining text; a truncation to before its beginning moves the beginning to the new end. ignis_generate
    ends with IGNIS_ENDING_GRAMMAR if only the end can follow. Equal seeds sample equal texts in any batch; no token
    is computed ahead. The syntax of grammars: ignis_grammar_check. Sequences of a model share the states of a
    grammar. The first visit of a state takes time on the host: in one measured text, JSON with 128k tokens took
    0.1 ms on average and at most 2.6 ms, on one CPU.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was. Later sampling fails with ARGUMENT if fed tokens
    do not match or no token can follow, and with UNSUPPORTED if the text is at too many positions of the grammar at
    once.
    Errors: FREED, those of ignis_grammar_check and of ignis_model_tokenizer; UNSUPPORTED (this thread captures a
    graph).
    Ownership: grammar may be reused when the call returns.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar);

/*  ignis_sequence_free - free a sequence, and its own pages of the KV cache
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards.
    Threads: any. Calls of other threads that use it end normally; the last one returns the pages. */
IGNIS_API ignis_status ignis_sequence_free(ignis_sequence sequence);

/*  The finish reason of a text. */
typedef enum ignis_ending {
    IGNIS_ENDING_NONE = 0, /* none: there was a failure */
    IGNIS_ENDING_TOKEN,    /* the model sampled a token that ends texts */
    IGNIS_ENDING_STOP,     /* one of desc.stops appeared */
    IGNIS_ENDING_LENGTH,   /* desc.max_tokens were sampled */
    IGNIS_ENDING_CONTEXT,  /* the context is full */
    IGNIS_ENDING_CALLER,   /* desc.text_fn returned false */
    IGNIS_ENDING_GRAMMAR,  /* no token can follow by the sequence's grammar */
    IGNIS_ENDING_COUNT
} ignis_ending;

typedef struct ignis_generate_info {
    ignis_ending ending;
    int tokens;            /* sampled tokens, with the one that ended the text */
    int stop;              /* the index of the stop that appeared, or -1 */
    double seconds, first; /* the time of all tokens, and of the first one */
    /* decode steps; tokens of drafts that they checked; tokens that they sampled besides the first one of each */
    int steps, guessed, accepted;
} ignis_generate_info;

typedef struct ignis_generate_desc {
    ignis_sampling_desc sampling;
    int max_tokens; /* (as many as fit the context) */
    /* tokens that end the text, and are not passed on; end_count below 0: none (those of the model's files) */
    const int32_t *ends;
    int end_count; /* of ends (0: those of the model) */
    /* strings that end the text; they and all after them are not passed on (none) */
    const char *const *stops;
    int stop_count;
    /* gets the text as it grows, in whole characters; returning false ends it (none) */
    bool (*text_fn)(const char *text, size_t size, void *user_data);
    void *user_data;  /* for text_fn */
    int draft_tokens; /* tokens that are guessed for a decode step, at most (none) */
    /* a sequence of another model of the same vocabulary, which guesses (what followed the last tokens earlier) */
    ignis_sequence draft;
    ignis_generate_info *info; /* receives the results, unless it is null */
} ignis_generate_desc;

/*  ignis_sequence_set - make a sequence consist of these tokens
    The common prefix stays and is not computed again. So a chat whose text is built anew for every message continues
    at the cost of the new part.
    Returns: IGNIS_OK, or the reason; then it may have only the common prefix, and after ARGUMENT is as it was.
    Errors: those of ignis_sequence_feed.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_chat - make a sequence consist of a chat, up to where the model's answer begins
    As ignis_sequence_set with the result of ignis_chat_encode: the model's own template, with add_generation_prompt.
    Text of messages never becomes a control token.
    Returns: IGNIS_OK, or the reason; then it may have only the common prefix.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_chat_encode.
    Ownership: messages may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence sequence, const ignis_message *messages, int count);

/*  ignis_sequence_text - append a text
    As ignis_sequence_feed with the result of the model's tokenizer. An empty sequence gets the tokens that begin texts
    (bos) first. size: bytes of the text, which is UTF-8. Control tokens such as <|im_end|> are recognised.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_tokenizer_encode.
    Ownership: text may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_text(ignis_sequence sequence, const char *text, int64_t size);

/*  ignis_generate - sample tokens until the text ends, and pass it on as it grows
    A stop may span tokens: text that could become one is kept back, and is dropped if it does. A token that ends the
    text, and the tokens of a stop, stay in the sequence. desc may be null.
    With draft_tokens a decode step checks guesses of the next tokens. It gives the guesses up to the first wrong one,
    and one token more. The text is the same, bit for bit, with sampling too; it comes sooner if many guesses are right:
    info->tokens / info->steps tokens a step. desc->draft becomes a copy of the sequence, and samples as it does. A step
    checks up to 7 guesses; 15, 31 or 63 if ignis_model_desc.sequences is above 8, 16 or 32. No guesses are checked
    with a grammar, for the first token after a chunk of a prompt, with recurrent layers, or with
    ignis_model_desc.parallel.
    Returns: IGNIS_OK when the text has ended, for any finish reason: desc->info has it. Else the reason of the failure;
    the tokens so far stay.
    Errors: those of ignis_sequence_next; ARGUMENT (a count below 0; a stop that is null or empty; max_tokens or
    draft_tokens below 0; a draft of another vocabulary, or the sequence itself); those of ignis_model_tokenizer if
    there is a text_fn or a stop.
    Ownership: text is valid inside text_fn alone.
    Threads: any; text_fn is called on the caller's, and may call Ignis. Streams: works on the current stream of the
    model's device, and waits for it. */
IGNIS_API ignis_status ignis_generate(ignis_sequence sequence, const ignis_generate_desc *desc);

/*  ignis_generate_begin - begin a text that ignis_generate_poll generates
    The text is that of ignis_generate with the same description, bit for bit. It belongs to the sequence, which has one
    such text at a time. desc may be null. desc->info shows the text so far after each poll; its `ending` is
    IGNIS_ENDING_NONE until the text has ended. Nothing is queued yet.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED; ARGUMENT (as ignis_generate; draft_tokens other than 0; a text of the sequence has not ended),
    UNSUPPORTED (ranks share the model; this thread captures a graph), MEMORY, and those of ignis_model_tokenizer if
    there is a text_fn or a stop.
    Ownership: desc may be reused when the call returns. All that it points to, the strings of stops and the biases of
    sampling too, stays as it is until ignis_generate_end or the next ignis_generate_begin. Both free the text, and so
    does ignis_sequence_free.
    Threads: any. */
IGNIS_API ignis_status ignis_generate_begin(ignis_sequence sequence, const ignis_generate_desc *desc);

/*  ignis_generate_poll - pass on the tokens that the device has sampled, and queue decode steps for the next ones
    For a loop that must not wait, such as that of an engine: it passes on up to `tokens` tokens that are done, then
    queues steps until that number is on the device, and returns. tokens: 1 to 8; more count as 8, 0 counts as 1. One
    step at a time is queued with a grammar or biases, two with recurrent layers. Texts of several sequences take turns
    on the device. If another thread works on the model, this call does nothing. Other calls for sequences of the model
    first wait for the steps on the device, and discard their tokens; the next poll queues them again, with the same
    bits. ignis_model_warmup comes before the loop: without it the first steps compile kernels, and wait for it.
    Returns: IGNIS_OK, also if no token was done, or after the text has ended; or the reason of a failure. Then the
    tokens so far stay, and it may be polled again.
    Errors: those of ignis_sequence_next; ARGUMENT (no text has begun; tokens below 0; called by text_fn).
    Ownership: text is valid inside text_fn alone.
    Threads: any; text_fn is called on the caller's, and may call Ignis. Streams: queued on the current stream of the
    model's device. */
IGNIS_API ignis_status ignis_generate_poll(ignis_sequence sequence, int tokens);

/*  ignis_generate_end - end a text of ignis_generate_begin, whether it is complete or not
    Waits for its steps on the device. The tokens that were passed on stay in the sequence, others do not. Nothing
    happens if there is no text.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (called by text_fn, which returns false instead), UNSUPPORTED (this thread captures a
    graph).
    Ownership: the description's pointers are not used any more.
    Threads: any. */
IGNIS_API ignis_status ignis_generate_end(ignis_sequence sequence);

/*  The work that a model is prepared for. */
typedef struct ignis_model_warmup_desc {
    /* of one decode step, at most (ignis_model_desc.sequences) */
    int sequences;
    int tokens; /* of one ignis_sequence_feed, at most (512) */
    /* gets the pieces of work that are done, of all; returning false stops (none) */
    bool (*progress_fn)(int done, int total, void *user_data);
    void *user_data; /* for progress_fn */
} ignis_model_warmup_desc;

/*  ignis_model_warmup - compile a model's kernels of generation, measure its GEMMs and capture its decode steps
    Without it the first call of each size does so, which takes seconds if the cache of kernels is empty. It computes
    on sequences of its own: decode steps of 1, 2, 4, ... sequences with each kind of sampling, prompts of each length
    class up to desc->tokens, and one of the whole context. Later calls with at most desc->sequences and desc->tokens
    compile nothing. While programs are recorded (ignis_desc.record), it records all kernels that sequences of the
    model take. desc may be null.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a number below 0), IO (desc->progress_fn has returned false), and those of
    ignis_sequence_begin, _feed and _next_all: MEMORY if other sequences have left too little of the KV cache.
    Ownership: nothing to free; its sequences are freed.
    Threads: any; calls for sequences of the model wait between its pieces of work. progress_fn is called on the
    caller's. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc);
