/* >>generate - sequences, sampling ------------------------------------------------------------------------------ */

/*  Tokens of a text, and what a model's cache has of them. */
typedef struct ignis_sequence {
    uint64_t id;
} ignis_sequence;

/*  What is added to the logit of a token. */
typedef struct ignis_logit_bias {
    int32_t id;
    float bias; /* -infinity forbids the token */
} ignis_logit_bias;

/*  How a token is drawn from logits, in this order: biases, repetition penalty, the sequence's grammar, temperature, top_k, top_p, min_p - the
    order of Hugging Face's processors; llama.cpp has the temperature last. */
typedef struct ignis_sampling_desc {
    double temperature; /* logits are divided by it; 0: always the likeliest token, the lowest one of equals (0) */
    int top_k;          /* of the likeliest so many, and those that are equal to the last (all) */
    double top_p;       /* of the fewest that have this much of the probability (all) */
    double min_p;       /* of those with this much of the likeliest one's probability (all) */
    double repetition_penalty; /* logits of tokens that were there are divided by it, negative ones multiplied (1) */
    int penalty_window;        /* were there among the latest so many (all) */
    uint64_t seed; /* equal ones draw the same tokens behind the same ids, whatever else a step computes (0) */
    const ignis_logit_bias *biases; /* in rising order of their ids (none) */
    int bias_count;                 /* at most 512 */
} ignis_sampling_desc;

typedef struct ignis_sequence_info {
    int length, context; /* tokens that it has, and may have */
    int free_tokens;     /* that the cache has whole pages for, for all sequences of the model */
    double log_prob;     /* of the token drawn last, by the model itself: at temperature 1, nothing cut off */
} ignis_sequence_info;

/*  ignis_sequence_begin - a new sequence of a model, without a token
    The first one of a model makes its cache, in pages of 16 tokens, for ignis_model_desc.sequences sequences of ignis_model_desc.context tokens;
    there may be more, if they are shorter or share what they begin with.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph; heads of more than 256 elements or of no multiple of 8, more than 2^19 tokens; a
    cache_dtype that is not the model's), MEMORY (also where the device has no room for the cache), LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it with ignis_sequence_free. It keeps the model's memory alive.
    Threads: any; calls for sequences of one model wait for each other. With ignis_model_desc.parallel all ranks make the same calls in the same
    order, and those that compute also fail with MISMATCH, TIMEOUT and PEER: what ranks disagree about, and ranks that do not come or have died.
    Streams: the first one works on the current stream of the model's device. */
IGNIS_API ignis_sequence ignis_sequence_begin(ignis_model model);

/*  ignis_sequence_feed - append tokens, and compute their keys and values
    They are computed now, 512 at a time. More than 64 at a time take the kernels of ignis_matmul and ignis_sdpa, which are many times as fast, and
    round otherwise; of fewer the last one is computed when its logits are needed.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: FREED, ARGUMENT (null, a count below 0, an id that the model has not, more tokens than the context), MEMORY (the cache is full; the
    message has the numbers), UNSUPPORTED (this thread captures a graph; adapters are set), LIBRARY, COMPILE, CUDA.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_next - draw a token behind the last one, and append it
    The bits of all logits are the same alone, in any batch, in a fork, after truncating and feeding: they follow from the ids, and from which of
    them were computed more than 64 at a time. sampling may be null: the likeliest token.
    On devices of compute capability 9.x a step of one sequence, of a model in f16 or bf16 whose weights are not quantised, or are 16 to 128 MB a
    layer then (56 MB where some are Q8_0), is one launch whose blocks wait for each other (a cooperative launch): it begins when other work has
    left room for one on each multiprocessor. Not where heads of more than 128 elements have norms.
    Returns: the token; -1 on failure, and then the sequence is as it was.
    Errors: FREED, ARGUMENT (no token yet, the context is full, a number of sampling outside of its range; no token can be drawn: all are forbidden,
    or no logit is a number above minus infinity), MEMORY (the cache is full), UNSUPPORTED (this thread captures a graph; adapters are set), LIBRARY,
    COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc *sampling);

/*  ignis_sequence_next_all - ignis_sequence_next of sequences of one model, in one step: the weights are read once for all
    samplings: one for each of them; null: the likeliest tokens. Steps of 1, 2, 4, ... sequences are captured as graphs when they come for the second
    time; up to 64 at once, or as many as ignis_model_desc.sequences, but 8 at least.
    Returns: IGNIS_OK, with the tokens in ids; or the reason, and then ids are -1 and all sequences as they were; but where no token can be drawn for
    some, the others go on: those of which ids has a token.
    Errors: those of ignis_sequence_next; ARGUMENT (null, a count below 0, sequences of different models, one of them twice).
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_next_all(const ignis_sequence *sequences, int count,
                                               const ignis_sampling_desc *samplings, int32_t *ids);

/*  ignis_sequence_logits - what the model says of the token behind the last one
    count: the tokens that the model has.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no token yet, another count), MEMORY (the cache is full), UNSUPPORTED (this thread captures a graph; adapters
    are set), LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_logits(ignis_sequence sequence, float *logits, int count);

/*  ignis_sequence_length - how many tokens it has
    Returns: the number; -1 on failure.
    Errors: FREED.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API int ignis_sequence_length(ignis_sequence sequence);

/*  ignis_sequence_query - what there is to know about it
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: info is a copy.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info);

/*  ignis_sequence_ids - its tokens, from the first one on
    ids may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: ids are copies.
    Threads: any. */
IGNIS_API int ignis_sequence_ids(ignis_sequence sequence, int32_t *ids, int capacity);

/*  ignis_sequence_truncate - leave the first `length` tokens
    Pages of the cache that nobody needs any more are free for others.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (below 0, or more than it has), UNSUPPORTED (this thread captures a graph).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length);

/*  ignis_sequence_fork - a second sequence that begins with the same tokens
    Both share the pages of the cache; who writes to a page that others have too gets a copy of it first. Give both different seeds to draw
    different texts.
    Returns: the sequence, or no handle.
    Errors: FREED, UNSUPPORTED (this thread captures a graph), MEMORY.
    Ownership: the caller frees it with ignis_sequence_free.
    Threads: any. */
IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence sequence);

/*  ignis_sequence_grammar - have what comes behind the sequence's tokens drawn by a grammar, which begins here; null: no grammar any more
    Of the tokens only those can be drawn from which on the text can still become one of the grammar's: others are left out ahead of temperature
    and the rest, whatever the biases. Those that end texts (ignis_model_info.ends, the tokenizer's eos) can be drawn where it may end, other control
    tokens never. Tokens that are fed have to keep to the grammar, too, which the next draw checks. Forks go on with it. After a truncation it is
    where the text is then; where tokens ahead of its beginning are cut off, it begins at the new end. ignis_generate ends with IGNIS_ENDING_GRAMMAR
    where nothing can come but the end. Equal seeds draw equal texts, whatever else is in a step; tokens are not drawn ahead. What a grammar
    is: ignis_grammar_check. Sequences of a model share what was found out about one. Where a text comes to a place of it for the first time, that
    takes time of the host: of JSON with 128k tokens 0.1 ms on average and 2.6 ms at most in one measured text, on one CPU.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was. Later draws fail with ARGUMENT where fed tokens do not keep to the grammar, or
    none can follow, and with UNSUPPORTED where the text is at too many places of it at once.
    Errors: FREED, those of ignis_grammar_check and of ignis_model_tokenizer; UNSUPPORTED (this thread captures a graph).
    Ownership: grammar may be reused when the call returns.
    Threads: any. */
IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar);

/*  ignis_sequence_free - free a sequence, and what only it has of the cache
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards.
    Threads: any. Calls of other threads that use it end as if it were still there, and it gives up what it has of the cache then. */
IGNIS_API ignis_status ignis_sequence_free(ignis_sequence sequence);

/*  Why a text has ended. */
typedef enum ignis_ending {
    IGNIS_ENDING_NONE = 0, /* it has not: there was a failure */
    IGNIS_ENDING_TOKEN,    /* the model has drawn a token that ends texts */
    IGNIS_ENDING_STOP,     /* one of desc.stops has come */
    IGNIS_ENDING_LENGTH,   /* there are desc.max_tokens */
    IGNIS_ENDING_CONTEXT,  /* the context is full */
    IGNIS_ENDING_CALLER,   /* desc.text_fn has returned false */
    IGNIS_ENDING_GRAMMAR,  /* nothing can come any more by the sequence's grammar */
    IGNIS_ENDING_COUNT
} ignis_ending;

typedef struct ignis_generate_info {
    ignis_ending ending;
    int tokens;            /* that were drawn, with the one that ended the text */
    int stop;              /* the number of the stop that has come; -1: none */
    double seconds, first; /* that all of them, and the first one, have taken */
} ignis_generate_info;

typedef struct ignis_generate_desc {
    ignis_sampling_desc sampling;
    int max_tokens; /* (as many as the context has room for) */
    const int32_t *
        ends; /* tokens that end the text, and are not shown; with end_count below 0: none (those that the model's files name) */
    int end_count;            /* of ends (0: those of the model) */
    const char *const *stops; /* texts that end it, and are not shown, nor what comes behind them (none) */
    int stop_count;
    bool (*text_fn)(const char *text, size_t size,
                    void *user_data); /* gets the text as it grows, in whole characters; false ends it (none) */
    void *user_data;                  /* for text_fn */
    ignis_generate_info *info;        /* is filled in, if it is not null */
} ignis_generate_desc;

/*  ignis_sequence_set - make a sequence consist of these tokens
    What it has in common with them from the first one on stays, and is not computed again: the way to go on with a talk whose text is made anew
    every turn.
    Returns: IGNIS_OK, or the reason; then it may have only what both have in common, and after ARGUMENT is as it was.
    Errors: those of ignis_sequence_feed.
    Ownership: ids may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count);

/*  ignis_sequence_chat - make a sequence consist of a talk, up to where the model's answer begins
    As ignis_sequence_set of what ignis_chat_encode makes of the messages by the model's own template, with add_generation_prompt. Text of messages
    never becomes a control token.
    Returns: IGNIS_OK, or the reason; then it may have only what both have in common.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_chat_encode.
    Ownership: messages may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence sequence, const ignis_message *messages, int count);

/*  ignis_sequence_text - append a text
    As ignis_sequence_feed of what the model's tokenizer makes of it. What the files put in front of texts (bos) comes if the sequence has no token
    yet. size: bytes of the text, which is UTF-8. Control tokens such as <|im_end|> are control tokens.
    Returns: IGNIS_OK, or the reason; then the sequence is as it was.
    Errors: those of ignis_sequence_feed, ignis_model_tokenizer and ignis_tokenizer_encode.
    Ownership: text may be reused when the call returns.
    Threads: any. Streams: works on the current stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_sequence_text(ignis_sequence sequence, const char *text, int64_t size);

/*  ignis_generate - draw tokens until the text ends, and show it as it grows
    A stop may lie across tokens: what could still become one is held back, and never shown if it does. A token that ends the text, and those that
    make a stop, stay in the sequence. desc may be null.
    Returns: IGNIS_OK when the text has ended, for whatever reason: desc->info has it; else the reason of the failure, and the tokens so far stay.
    Errors: those of ignis_sequence_next; ARGUMENT (a count below 0, a stop that is null or empty, max_tokens below 0); those of
    ignis_model_tokenizer where there is a text_fn or a stop.
    Ownership: text is valid inside text_fn alone.
    Threads: any; text_fn is called on the caller's, and may call Ignis. Streams: works on the current stream of the model's device, and waits for
    it. */
IGNIS_API ignis_status ignis_generate(ignis_sequence sequence, const ignis_generate_desc *desc);

/*  What a model is to be ready for. */
typedef struct ignis_model_warmup_desc {
    int sequences;                                             /* of one step, at most (ignis_model_desc.sequences) */
    int tokens;                                                /* of one ignis_sequence_feed, at most (512) */
    bool (*progress_fn)(int done, int total, void *user_data); /* parts of the work that are done; false stops (none) */
    void *user_data;                                           /* for progress_fn */
} ignis_model_warmup_desc;

/*  ignis_model_warmup - compile the kernels that sequences of a model use, measure its products and capture its steps as graphs
    Without it the first call of each size does so, which takes seconds where the cache of kernels is empty. It computes on sequences of its own:
    steps of 1, 2, 4, ... sequences with each way of drawing tokens, prompts of each length class up to desc->tokens, and one of the whole context.
    Later calls with at most desc->sequences and desc->tokens compile nothing. While programs are recorded (ignis_desc.record), a record with it
    has all that sequences of the model take. desc may be null.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a number below 0), IO (desc->progress_fn has returned false), and those of ignis_sequence_begin, _feed and _next_all:
    MEMORY where other sequences have left too little of the cache.
    Ownership: nothing to free; its sequences are freed.
    Threads: any; calls for sequences of the model wait between its parts. progress_fn is called on the caller's. Streams: works on the current
    stream of the model's device, and waits for it. */
IGNIS_API ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc);
