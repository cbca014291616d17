/* >>text - tokenizers ------------------------------------------------------------------------------------------- */

/*  A tokenizer: text to the ids that a language model takes, and back. All of it is host work: no GPU is used, so after an ignis_setup with
    dry_run, which needs none, everything here does what it does elsewhere. */
typedef struct ignis_tokenizer {
    uint64_t id;
} ignis_tokenizer;

/*  What tokens are pieces of. */
typedef enum ignis_tokenizer_kind {
    IGNIS_TOKENIZER_BYTES = 1, /* of bytes: GPT-2, Llama 3, Qwen2 and 3, SmolLM */
    IGNIS_TOKENIZER_PIECES,    /* of characters, with bytes for those that are missing: Llama 2, TinyLlama */
    IGNIS_TOKENIZER_COUNT
} ignis_tokenizer_kind;

typedef struct ignis_tokenizer_info {
    ignis_tokenizer_kind kind;
    char family
        [16]; /* whose way to split text it has: "gpt2", "llama3", "qwen2", "smollm", "llama" (2), or "bytes": it does not split */
    int tokens;        /* ids are below it; models may have more rows than that */
    int bos, eos;      /* the ids that begin and end a text; -1: the files do not say */
    int unknown;       /* stands for what the vocabulary lacks; -1: nothing does */
    int padding;       /* fills up rows of a batch; -1: the files do not say */
    bool adds_bos;     /* true: encoding puts bos in front, unless ignis_encode_desc.no_bos is set */
    bool has_template; /* true: there is a chat template */
} ignis_tokenizer_info;

typedef struct ignis_encode_desc {
    bool no_bos; /* true: nothing is put in front of the text or behind it (what the files say, bos as a rule) */
    bool plain;  /* true: control tokens that are written in the text, such as <|im_end|>, are text like any other */
} ignis_encode_desc;

typedef struct ignis_decode_desc {
    bool control; /* true: control tokens are written out, too (left out) */
} ignis_decode_desc;

/*  ignis_tokenizer_open - open a tokenizer of Hugging Face, or that of a GGUF file
    path: tokenizer.json, or a folder with it, where tokenizer_config.json and chat_template.jinja are read, too, if they are there: they say
    what bos, eos and padding are, whether bos and eos are added, and have the chat template. truncation and padding of the file are ignored.
    Or a GGUF file, whose weights are not read.
    Returns: the tokenizer, or no handle.
    Errors: ARGUMENT (null), IO, FORMAT (damaged, or it contradicts itself), UNSUPPORTED (a model other than BPE, a normalizer, pre-tokenizer,
    post-processor, decoder or pattern that Ignis does not know, an added token of more than 256 bytes, of a vocabulary with scores a token of more
    than 1024; the message names it), MEMORY.
    Ownership: the caller frees it with ignis_tokenizer_free; the files may change afterwards.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_tokenizer_open(const char *path);

/*  ignis_tokenizer_free - free a tokenizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: calls of other threads that use it end as if it were still there; later ones fail.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_free(ignis_tokenizer tokenizer);

/*  ignis_tokenizer_query - facts about a tokenizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT (null).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_query(ignis_tokenizer tokenizer, ignis_tokenizer_info *info);

/*  ignis_tokenizer_encode - the ids of a text, equal to those of Hugging Face's library tokenizers
    size: bytes of the text, which is UTF-8; what is not becomes U+FFFD. desc may be null. ids may be null when capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a size below 0 or above 2^29, a capacity below 0), MEMORY.
    Ownership: text may be freed when the call returns.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size,
                                     const ignis_encode_desc *desc, int32_t *ids, int capacity);

/*  ignis_tokenizer_decode - the text of ids
    It is bytes, also where ids that a model has made are no UTF-8 together; tokenizers has U+FFFD there. See ignis_text_stream for text that
    grows. desc may be null. out may be null when capacity is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count,
                                         const ignis_decode_desc *desc, char *out, int64_t capacity);

/*  ignis_tokenizer_piece - the bytes that an id stands for in the middle of a text; of a control token, how it is written
    Returns: how many bytes there are, 0 for an id without a token, also when that is more than capacity; -1 on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity);

/*  Text that grows id by id, in whole characters. Zeroed, with a tokenizer, it is at the beginning of a text; it may be copied, and need not
    be freed. */
typedef struct ignis_text_stream {
    ignis_tokenizer tokenizer;
    bool control; /* true: control tokens are written out, too (left out) */
    bool inside;  /* true: there was text before, so a space that comes first stays */
    char held[4]; /* the beginning of a character; for Ignis, as is what follows */
    int held_count;
    int stripped;
} ignis_text_stream;

/*  ignis_text_stream_put - the text that one more id makes
    A character that is not whole yet is held back; what can become none is U+FFFD.
    Returns: how many bytes there are, often 0, without a 0 at the end. If that is more than capacity, nothing was written, and the stream is as
    before; -1 on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_put(ignis_text_stream *stream, int32_t id, char *out, int capacity);

/*  ignis_text_stream_end - the text that is held back, U+FFFD as it is no whole character; the stream is at the beginning of a text again
    Returns: how many bytes there are, 0 or 3. If that is more than capacity, nothing was written, and the stream is as before; -1 on failure.
    Errors: ARGUMENT (null, a capacity below 0), NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_end(ignis_text_stream *stream, char *out, int capacity);
