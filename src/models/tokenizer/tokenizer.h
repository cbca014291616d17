/* >>text - tokenizers ------------------------------------------------------------------------------------------- */

/*  A tokenizer: converts text to the ids that a language model takes, and back. It runs on the host without a
    GPU, so it works after an ignis_setup with dry_run, too. */
typedef struct ignis_tokenizer {
    uint64_t id;
} ignis_tokenizer;

/*  The units of a vocabulary. */
typedef enum ignis_tokenizer_kind {
    IGNIS_TOKENIZER_BYTES = 1, /* bytes: GPT-2, Llama 3, Qwen2 and 3, SmolLM */
    IGNIS_TOKENIZER_PIECES,    /* characters, some with bytes for missing ones: Llama 2, Gemma, T5, XLM-RoBERTa */
    IGNIS_TOKENIZER_WORDS,     /* words and their parts (WordPiece): BERT, MiniLM, BGE */
    IGNIS_TOKENIZER_COUNT
} ignis_tokenizer_kind;

typedef struct ignis_tokenizer_info {
    ignis_tokenizer_kind kind;
    /* how it splits text: as "gpt2", "llama3", "qwen2", "smollm", "llama" (2), "unigram", "bert", or "bytes": not at
       all */
    char family[16];
    int tokens;        /* ids are below it; models may have more rows */
    int bos, eos;      /* ids that begin and end a text; -1 if the files do not tell */
    int unknown;       /* the id for what the vocabulary lacks; -1: none */
    int padding;       /* fills up rows of a batch; -1 if the files do not tell */
    bool adds_bos;     /* true: encoding puts bos in front, unless ignis_encode_desc.no_bos is set */
    bool has_template; /* true: there is a chat template */
} ignis_tokenizer_info;

typedef struct ignis_encode_desc {
    bool no_bos; /* true: no ids are added before or after the text (as the files say, usually bos) */
    bool plain;  /* true: control tokens in the text, such as <|im_end|>, are plain text */
} ignis_encode_desc;

typedef struct ignis_decode_desc {
    bool control; /* true: control tokens are written, too (left out) */
} ignis_decode_desc;

/*  ignis_tokenizer_open - open a tokenizer of Hugging Face, or that of a GGUF file
    path: tokenizer.json, or Mistral's tekken.json, or the folder of either, or a GGUF file, whose weights are
    not read. In a folder, tokenizer_config.json and chat_template.jinja are read, too, if they exist: they
    have bos, eos and padding, whether bos and eos are added, and the chat template. truncation and padding of
    tokenizer.json are ignored.
    Returns: the tokenizer, or no handle.
    Errors: ARGUMENT (null), IO, FORMAT (damaged, or it contradicts itself), UNSUPPORTED (a model other than
    BPE, Unigram and WordPiece, a normalizer, pre-tokenizer, post-processor, decoder or pattern that Ignis does not
    know, an added token of more than 256 bytes, a token of more than 1024 bytes in a vocabulary with scores;
    the message names it), MEMORY.
    Ownership: the caller frees it with ignis_tokenizer_free; the files may change afterwards.
    Threads: any. */
IGNIS_API ignis_tokenizer ignis_tokenizer_open(const char *path);

/*  ignis_tokenizer_free - free a tokenizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: a call of another thread that is using it ends normally; later calls fail.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_free(ignis_tokenizer tokenizer);

/*  ignis_tokenizer_query - fill in facts about a tokenizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT (null).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_tokenizer_query(ignis_tokenizer tokenizer, ignis_tokenizer_info *info);

/*  ignis_tokenizer_encode - encode a text to ids, equal to those of Hugging Face's library tokenizers
    size: bytes of the text in UTF-8; other bytes become U+FFFD. desc may be null. ids may be null when
    capacity is 0.
    Returns: how many ids there are, also when that is more than capacity, and only the first are written; -1
    on failure.
    Errors: FREED, ARGUMENT (null, a size below 0 or above 2^29, a capacity below 0), MEMORY.
    Ownership: text may be freed when the call returns.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size,
                                     const ignis_encode_desc *desc, int32_t *ids, int capacity);

/*  ignis_tokenizer_decode - decode ids to text
    The result is bytes: ids that a model has made may not be valid UTF-8 together (the library tokenizers has
    U+FFFD there). See ignis_text_stream for text that grows. desc may be null. out may be null when capacity
    is 0.
    Returns: how many bytes there are, without a 0 at the end, also when that is more than capacity, and only
    the first are written; -1 on failure.
    Errors: FREED, ARGUMENT (null, a count or capacity below 0, an id that the tokenizer does not have),
    MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count,
                                         const ignis_decode_desc *desc, char *out, int64_t capacity);

/*  ignis_tokenizer_piece - get the bytes of an id in the middle of a text; of a control token, its name
    Returns: how many bytes there are, 0 for an id without a token, also when that is more than capacity; -1
    on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one tokenizer may be used by many at once. */
IGNIS_API int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity);

/*  Text that grows id by id, in whole characters. Zeroed, with a tokenizer, it is at the beginning of a text.
    It may be copied, and need not be freed. */
typedef struct ignis_text_stream {
    ignis_tokenizer tokenizer;
    bool control; /* true: control tokens are written, too (left out) */
    bool inside;  /* true: text came before, so a leading space is kept */
    char held[4]; /* the beginning of a character; private, as are the members after it */
    int held_count;
    int stripped;
} ignis_text_stream;

/*  ignis_text_stream_put - decode one more id, to the text that it completes
    The beginning of an incomplete character is kept for the next call. Bytes that cannot become a character
    are U+FFFD.
    Returns: how many bytes there are, often 0, without a 0 at the end. If that is more than capacity, nothing
    was written, and the stream is as before; -1 on failure.
    Errors: FREED, ARGUMENT (null, a capacity below 0, an id that the tokenizer does not have), MEMORY.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_put(ignis_text_stream *stream, int32_t id, char *out, int capacity);

/*  ignis_text_stream_end - end a text: an incomplete character becomes U+FFFD; the stream is at the beginning
    of a text again
    Returns: how many bytes there are, 0 or 3. If that is more than capacity, nothing was written, and the
    stream is as before; -1 on failure.
    Errors: ARGUMENT (null, a capacity below 0), NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; one stream by one thread at a time. */
IGNIS_API int ignis_text_stream_end(ignis_text_stream *stream, char *out, int capacity);
