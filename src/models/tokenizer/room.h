/*  models/tokenizer - text to ids and back. */
#pragma once

#include "../../base/room.h"
#include "../room.h"

#define IGNIS__TOKEN_LIMIT ((int64_t)1 << 22) /* ids are below it */
#define IGNIS__TEXT_LIMIT ((int64_t)1 << 29)  /* bytes of a text, and of tokenizer.json */
#define IGNIS__TEXT_STEPS 16                  /* of a normalizer, and of the other parts */
#define IGNIS__ADDED_LIMIT 256                /* bytes of an added token, which is looked for at each place */
#define IGNIS__PROBE_LIMIT 1000        /* places of a table that are looked at; more come of texts made to collide */
#define IGNIS__LOW_LINE "\xE2\x96\x81" /* U+2581, which stands for a space in vocabularies made by SentencePiece */
typedef enum ignis__splitter {
    IGNIS__SPLIT_NONE,
    IGNIS__SPLIT_GPT2,
    IGNIS__SPLIT_LLAMA3,
    IGNIS__SPLIT_QWEN2
} ignis__splitter;

/*  The patterns that are known, letter by letter. */
struct ignis__text_splits_type {
    const char *pattern;
    ignis__splitter split;
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

enum {
    IGNIS__CHAR_LETTER = 1,
    IGNIS__CHAR_NUMBER = 2,
    IGNIS__CHAR_WORD = 4,
    IGNIS__CHAR_DIGIT = 8,
    IGNIS__CHAR_SPACE = 16,
    IGNIS__CHAR_LINE = 32,
    IGNIS__CHAR_END = 64
};

typedef struct ignis__bytes {
    char *data;
    size_t size, capacity;
} ignis__bytes;

/*  Looks for a text in another, from the front or from the back, in a time that grows with the sum of their lengths: the two-way algorithm
    (Crochemore and Perrin 1991). */
typedef struct ignis__needle {
    const char *text;
    size_t length;
    bool back;
    size_t border, period; /* where its two parts meet; by how much it goes on when both were there */
    bool periodic;         /* what has been compared before that need not be again */
} ignis__needle;

/*  One symbol of a piece that is being joined, among others. */
typedef struct ignis__text_symbol {
    int32_t id, before, after; /* places; -1: none. id -1: it was joined to the one before it */
} ignis__text_symbol;

/*  A pair that may be joined: rank << 32 | the place of its first. */
typedef struct ignis__queued {
    uint64_t order;
    int32_t id;
} ignis__queued;

/*  A part of a text in which control tokens are text like any other. */
typedef struct ignis__plain_span {
    size_t begin, end;
} ignis__plain_span;

/*  What a call that encodes has. */
typedef struct ignis__encoder {
    ignis__tokenizer *tokenizer;
    bool plain, failed;             /* all of the text is plain; there was no memory */
    const ignis__plain_span *spans; /* the parts that are, one behind the other, if not all are */
    int64_t span_count;
    size_t part;     /* where what is being encoded begins in the raw text */
    bool part_plain; /* one of them is in it */
    bool too_long;   /* normalized text is longer than a text may be */
    bool unclear;    /* a control token was found in its normalized text, of which it is not known what is plain */
    int32_t *ids;
    int64_t capacity, count;
    ignis__text_symbol *symbols;
    size_t symbol_capacity;
    ignis__queued *queue;
    size_t queued, queue_capacity;
    ignis__bytes fixed, normal[2], spaced;
    const char *front; /* of the normalized text that begins where the raw one does; null: none does */
} ignis__encoder;

/*  Items that grow in number. */
typedef struct ignis__list {
    char *items;
    size_t size; /* of an item */
    int64_t count, capacity;
} ignis__list;

typedef struct ignis__token_entry {
    const char *text;
    size_t size;
    int64_t id;
    bool odd;   /* its text does not stand for bytes */
    bool apart; /* text never becomes it */
    float score;
    int type; /* in a GGUF file */
} ignis__token_entry;

typedef struct ignis__merge_entry {
    const char *left, *right;
    size_t left_size, right_size;
    uint32_t rank;
    int32_t ids[3]; /* left, right, joined */
} ignis__merge_entry;

/*  A step of a normalizer and of its like. Numbers and words that the file does not have are -1 and null. */
typedef struct ignis__text_part {
    const char *type, *prepend, *content, *behavior, *replacement, *scheme, *string, *regex;
    int64_t invert, individual, prefix, use_regex, split, start, stop;
} ignis__text_part;

enum { IGNIS__PART_NORMALIZER, IGNIS__PART_SPLITTER, IGNIS__PART_PROCESSOR, IGNIS__PART_DECODER, IGNIS__PART_KINDS };

#define IGNIS__TEMPLATE_TOKENS 16

/*  What opening a tokenizer has. Texts are in the file that is being read. */
typedef struct ignis__text_load {
    const char *call, *path;
    ignis__tokenizer *tokenizer;
    ignis__json json;
    ignis__list entries, merges, added;
    ignis__text_part parts[IGNIS__PART_KINDS][IGNIS__TEXT_STEPS];
    int part_count[IGNIS__PART_KINDS];
    const char *model, *unknown; /* null: none */
    bool has_vocabulary, has_merges, dropout, affix;
    const char *template_name[IGNIS__TEMPLATE_TOKENS]; /* around a text */
    bool template_behind[IGNIS__TEMPLATE_TOKENS];
    int template_count;
    bool template_text; /* the template has the text once */
    const char *special_name[IGNIS__TEMPLATE_TOKENS];
    int32_t special_ids[IGNIS__TEMPLATE_TOKENS][IGNIS__TEMPLATE_TOKENS];
    int special_id_count[IGNIS__TEMPLATE_TOKENS], special_count;
    ignis_diagnostic diagnostic; /* of what is wrong; NONE: nothing is */
    char fault[400];
} ignis__text_load;

enum {
    IGNIS__TYPE_NORMAL = 1,
    IGNIS__TYPE_UNKNOWN,
    IGNIS__TYPE_CONTROL,
    IGNIS__TYPE_USER,
    IGNIS__TYPE_UNUSED,
    IGNIS__TYPE_BYTE
};

/*  Tokens that end a text in whatever vocabulary they are. The list is llama.cpp's; those with a name have a rule of their own. */
enum {
    IGNIS__END_END,
    IGNIS__END_RETURN,
    IGNIS__END_FLUSH,
    IGNIS__END_CALL,
    IGNIS__END_CALLS,
    IGNIS__END_SLASH_S, /* in HTML, too: where it is an ordinary token it ends nothing */
    IGNIS__END_OTHERS
};

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* unicode_table.c */
extern const uint32_t ignis__char_kinds[1997];
extern const uint32_t ignis__char_marks[677];
extern const uint64_t ignis__char_parts[2060];
extern const uint16_t ignis__char_pairs[940];

/* tokenizer.c */
extern const struct ignis__text_splits_type ignis__text_splits[3];
extern ignis__pool ignis__tokenizers;
IGNIS__PRIVATE void *ignis__tokenizer_keep(ignis__tokenizer *tokenizer, size_t size);
IGNIS__PRIVATE const char *ignis__tokenizer_keep_text(ignis__tokenizer *tokenizer, const char *text, size_t size);
IGNIS__PRIVATE void ignis__tokenizer_destroy(ignis__tokenizer *tokenizer);
IGNIS__PRIVATE ignis__tokenizer *ignis__tokenizer_hold(const char *call, ignis_tokenizer handle);
IGNIS__PRIVATE void ignis__tokenizer_drop(ignis__tokenizer *tokenizer);
IGNIS__PRIVATE void ignis__tokenizers_close(const char *call);

/* unicode.c */
IGNIS__PRIVATE uint32_t ignis__char_run(const uint32_t *table, int count, int shift, uint32_t code);
IGNIS__PRIVATE bool ignis__char_space(uint32_t code);
IGNIS__COLD IGNIS__PRIVATE void ignis__text_place(const char *text, const char *at, int *line, int *column);
IGNIS__PRIVATE uint32_t ignis__utf8_code(const char *text, int *length);
IGNIS__PRIVATE int ignis__utf8_broken(const char *text, size_t size, bool *open);
IGNIS__PRIVATE unsigned ignis__char_at(const char *text, size_t size, size_t at, int *length);
IGNIS__PRIVATE size_t ignis__char_skip(const char *text, size_t size, size_t at, unsigned kinds, bool other);

/* byte_buffer.c */
IGNIS__PRIVATE bool ignis__bytes_room(ignis__bytes *bytes, size_t more);
IGNIS__PRIVATE bool ignis__bytes_add(ignis__bytes *bytes, const char *data, size_t size);
IGNIS__PRIVATE bool ignis__bytes_add_fixed(ignis__bytes *bytes, const char *text, size_t size);

/* string_search.c */
IGNIS__PRIVATE ignis__needle ignis__needle_of(const char *text, size_t length, bool back);
IGNIS__PRIVATE const char *ignis__needle_find(const ignis__needle *needle, const char *text, size_t size);

/* nfc.c */
IGNIS__PRIVATE uint32_t ignis__char_mark(uint32_t code);
IGNIS__PRIVATE int ignis__u64_order(const void *a, const void *b);
IGNIS__PRIVATE bool ignis__nfc_add(ignis__bytes *bytes, const char *text, size_t size);

/* pre_tokenizer.c */
IGNIS__PRIVATE size_t ignis__split_next(ignis__splitter split, const char *text, size_t size, size_t at);

/* bpe.c */
IGNIS__PRIVATE uint64_t ignis__token_hash(const char *text, size_t size);
IGNIS__PRIVATE int32_t ignis__token_find(const ignis__tokenizer *tokenizer, const char *text, size_t size, bool odd);
IGNIS__PRIVATE void ignis__encoder_close(ignis__encoder *encoder);
IGNIS__PRIVATE void ignis__encoder_put(ignis__encoder *encoder, int32_t id);
IGNIS__PRIVATE bool ignis__encode_piece(ignis__encoder *encoder, const char *text, size_t size);

/* encode.c */
IGNIS__PRIVATE const ignis__added *ignis__added_at(const ignis__added_set *set, const char *text, size_t size,
                                                   size_t at, size_t room, bool *hidden);
IGNIS__PRIVATE bool ignis__encode_normal(ignis__encoder *encoder, const char **text, size_t *size);
IGNIS__PRIVATE bool ignis__encode(ignis__encoder *encoder, const char *text, size_t size, bool no_bos);

/* tokenizer_json.c */
IGNIS__PRIVATE void *ignis__list_add(ignis__list *list);
extern const char *const ignis__part_names[IGNIS__PART_KINDS];
IGNIS__PRIVATE void ignis__text_load_begin(ignis__text_load *load, const char *call, ignis__tokenizer *tokenizer);
IGNIS__PRIVATE void ignis__text_load_end(ignis__text_load *load);
IGNIS__PRIVATE void ignis__text_load_json(ignis__text_load *load, char *text, size_t size);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_fault(ignis__text_load *load, ignis_diagnostic diagnostic,
                                                  const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_no_memory(ignis__text_load *load);
IGNIS__PRIVATE bool ignis__json_word(ignis__json *json, const char *word);
IGNIS__PRIVATE bool ignis__json_bool(ignis__json *json);
IGNIS__PRIVATE const char *ignis__json_field(ignis__json *json, bool *first);
IGNIS__PRIVATE const char *ignis__json_words(ignis__json *json);
IGNIS__PRIVATE bool ignis__merge_split(ignis__merge_entry *merge, const char *both, size_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_json_read(ignis__text_load *load);

/* pipeline.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__part_refuse(ignis__text_load *load, int kind, const ignis__text_part *part,
                                                   const char *why);
IGNIS__PRIVATE bool ignis__text_is(const char *text, const char *other);
IGNIS__COLD IGNIS__PRIVATE bool ignis__normalizer_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__splitter_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__decoder_take(ignis__text_load *load);

/* vocabulary.c */
IGNIS__PRIVATE int32_t ignis__token_of(const ignis__tokenizer *tokenizer, const char *text, size_t *size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokens_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__joins_build(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__merges_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__added_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_json_take(ignis__text_load *load);

/* tokenizer_config.c */
IGNIS__PRIVATE void ignis__template_set(int32_t *ids, int *count, int add, int32_t id);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_config_take(ignis__text_load *load);
IGNIS__COLD IGNIS__PRIVATE char *ignis__text_file(ignis__text_load *load, const char *path, bool needed, size_t *size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_beside_take(ignis__text_load *load, const char *folder, char *path,
                                                        size_t path_size);

/* tokenizer_gguf.c */
IGNIS__PRIVATE int ignis__text_ends(const char *text, int type);
IGNIS__COLD IGNIS__PRIVATE bool ignis__text_gguf_take(ignis__text_load *load, ignis__gguf *file);

/* open.c */
IGNIS__PRIVATE void ignis__tokenizer_facts(ignis__tokenizer *tokenizer);

/* codec.c */
IGNIS__PRIVATE int ignis__tokenizer_encode(const char *call, ignis__tokenizer *tokenizer, const char *text, size_t size,
                                           const ignis_encode_desc *desc, const ignis__plain_span *spans,
                                           int64_t span_count, int32_t *ids, int capacity);
IGNIS__PRIVATE bool ignis__token_add(const ignis__tokenizer *tokenizer, int32_t id, bool first, ignis__bytes *out);
IGNIS__PRIVATE bool ignis__token_check(const char *call, const ignis__tokenizer *tokenizer, int32_t id);
