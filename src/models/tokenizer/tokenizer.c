/*  Ids are those of Hugging Face's library tokenizers. Text goes through it so:
        added tokens that are matched in the raw text are cut out, the leftmost first, of these the longest
        what lies between is normalized, and added tokens cut out that are matched in normalized text
        the rest is split into pieces: by one of the patterns in ignis__text_splits, each of which has its own code instead of an engine for
        regular expressions; or by nothing
        pieces become bytes or characters that the vocabulary has, of which the pair of the lowest rank is joined, the leftmost first, until
        no pair has a rank
    Bytes: tokens of a byte-level vocabulary are written in 256 characters that stand for bytes. Here they are the bytes. */

#define IGNIS__TOKEN_LIMIT ((int64_t)1 << 22) /* ids are below it */
#define IGNIS__TEXT_LIMIT ((int64_t)1 << 29)  /* bytes of a text, and of tokenizer.json */
#define IGNIS__TEXT_STEPS 16                  /* of a normalizer, and of the other parts */
#define IGNIS__ADDED_LIMIT 256                /* bytes of an added token, which is looked for at each place */
#define IGNIS__PROBE_LIMIT 1000               /* places of a table that are looked at; more come of texts made to collide */
#define IGNIS__LOW_LINE "\xE2\x96\x81"        /* U+2581, which stands for a space in vocabularies made by SentencePiece */

typedef enum ignis__splitter { IGNIS__SPLIT_NONE, IGNIS__SPLIT_GPT2, IGNIS__SPLIT_LLAMA3, IGNIS__SPLIT_QWEN2 } ignis__splitter;

/*  The patterns that are known, letter by letter. */
static const struct {
    const char *pattern;
    ignis__splitter split;
} ignis__text_splits[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", IGNIS__SPLIT_GPT2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_LLAMA3},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_QWEN2},
};

/*  Flags of ids. */
enum { IGNIS__TOKEN_THERE = 1, IGNIS__TOKEN_MODEL = 2, IGNIS__TOKEN_ODD = 4, IGNIS__TOKEN_CONTROL = 8 };

/*  A token that is cut out of text as it stands. */
typedef struct ignis__added {
    const char *text;
    size_t size;
    int32_t id;
    int order; /* in the file */
    bool special, normalized, lstrip, rstrip, single_word;
} ignis__added;

typedef struct ignis__added_set {
    ignis__added *items; /* sorted by their text, the shorter first */
    int count;
    bool first[256]; /* whether one begins with that byte */
} ignis__added_set;

typedef struct ignis__token_slot {
    uint32_t tag;
    int32_t id; /* + 1; 0: free */
} ignis__token_slot;

/*  Two ids that become one. */
typedef struct ignis__join {
    uint64_t key; /* (left << 32 | right) + 1; 0: free */
    uint32_t rank;
    int32_t id;
} ignis__join;

typedef enum ignis__normal_kind { IGNIS__NORMAL_NFC, IGNIS__NORMAL_PREPEND, IGNIS__NORMAL_REPLACE } ignis__normal_kind;

typedef struct ignis__normal {
    ignis__normal_kind kind;
    const char *from, *to;
} ignis__normal;

typedef enum ignis__metaspace {
    IGNIS__METASPACE_NONE,
    IGNIS__METASPACE_ALWAYS,
    IGNIS__METASPACE_FIRST,
    IGNIS__METASPACE_NEVER
} ignis__metaspace;

/*  It does not change once it is open, but for what is known of its tokens, so any number of threads may use it. */
typedef struct ignis__tokenizer {
    ignis__slot slot;
    void *kept;                /* blocks of ignis__tokenizer_keep: all that is pointed to below */
    const char *chat_template; /* null: none */
    const char *bos_text, *eos_text;
    ignis_tokenizer_info info;

    char *bytes; /* of all tokens, those of an id from begin[id] to begin[id + 1] */
    uint32_t *begin;
    unsigned char *flags;
    size_t longest;             /* token of the model */
    ignis__token_slot *buckets; /* by the bytes of a token of the model */
    uint64_t slot_mask;
    ignis__join *joins;
    uint64_t join_mask;
    int32_t single[256];   /* the token of one byte, or of a character below 128; -1: none */
    int32_t fallback[256]; /* <0x00> to <0xFF>; -1: none */
    uint64_t *known;       /* a bit for each id: whether it is known what its own text becomes */
    uint64_t *whole;       /* and whether that is this id alone */

    ignis__added_set added[2]; /* matched in the raw text, and in normalized text */
    ignis__normal normals[IGNIS__TEXT_STEPS];
    int normal_count;
    ignis__splitter split;
    int digits; /* 1: single ones are pieces; 2: runs of them */
    bool byte_level, prefix_space, ignore_merges, byte_fallback, fuse_unknown;
    bool words; /* no token goes on behind a character before a U+2581, so text may be split there */
    ignis__metaspace metaspace, metaspace_decoder;
    bool metaspace_split;
    bool byte_decoder; /* <0x00> to <0xFF> are bytes in decoded text */
    int strip;         /* spaces that go from the front of decoded text */
    int32_t *front, *back;
    int front_count, back_count;
} ignis__tokenizer;

static ignis__pool ignis__tokenizers = IGNIS__POOL(ignis__tokenizer, IGNIS__KIND_TOKENIZER, "tokenizer", IGNIS_DIAG_TOKENIZER_FREED);

/*  Zeroed memory that lives as long as the tokenizer; null: there is none. */
static void *ignis__tokenizer_keep(ignis__tokenizer *tokenizer, size_t size)
{
    void **block = (void **)ignis__alloc(size + 16);
    if (!block)
        return NULL;
    block[0] = tokenizer->kept;
    tokenizer->kept = block;
    return block + 2;
}

static const char *ignis__tokenizer_keep_text(ignis__tokenizer *tokenizer, const char *text, size_t size)
{
    char *copy = (char *)ignis__tokenizer_keep(tokenizer, size + 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static void ignis__tokenizer_destroy(ignis__tokenizer *tokenizer)
{
    while (tokenizer->kept) {
        void *next = *(void **)tokenizer->kept;
        ignis__free(tokenizer->kept);
        tokenizer->kept = next;
    }
    memset((char *)tokenizer + sizeof tokenizer->slot, 0, sizeof *tokenizer - sizeof tokenizer->slot);
    ignis__pool_recycle(&ignis__tokenizers, tokenizer);
}

static ignis__tokenizer *ignis__tokenizer_hold(const char *call, ignis_tokenizer handle)
{
    return (ignis__tokenizer *)ignis__handle_hold(call, &ignis__tokenizers, handle.id);
}

static void ignis__tokenizer_drop(ignis__tokenizer *tokenizer)
{
    if (ignis__pool_drop(tokenizer))
        ignis__tokenizer_destroy(tokenizer);
}

static void ignis__tokenizers_close(const char *call)
{
    ignis__tokenizer *tokenizer;
    uint64_t index = 0;
    while ((tokenizer = (ignis__tokenizer *)ignis__pool_next(&ignis__tokenizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "tokenizer of %d tokens, %s", tokenizer->info.tokens, tokenizer->info.family);
        ignis__handle_kill(tokenizer);
        ignis__tokenizer_drop(tokenizer);
    }
}
