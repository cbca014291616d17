/*  models/tokenizer - text to ids and back. */
#pragma once

#include "../../base/room.h"
#include "../room.h"

#define IGNIS__TOKEN_LIMIT ((int64_t)1 << 22) /* all ids are below it */
#define IGNIS__TEXT_LIMIT ((int64_t)1 << 29)  /* bytes of a text, and of tokenizer.json */
#define IGNIS__TEXT_STEPS 16                  /* of a normalizer, and of each other part */
#define IGNIS__ADDED_LIMIT 256                /* bytes of an added token, which is searched for at each place */
#define IGNIS__SCORED_LIMIT 1024              /* bytes of a token with a score: each of its prefixes is looked up */
#define IGNIS__PROBE_LIMIT 1000               /* probes of a hash table; only texts made to collide need more */
#define IGNIS__LOW_LINE "\xE2\x96\x81"        /* U+2581, which encodes a space in vocabularies of SentencePiece */
typedef enum ignis__splitter {
    IGNIS__SPLIT_NONE,
    IGNIS__SPLIT_GPT2,
    IGNIS__SPLIT_LLAMA3,
    IGNIS__SPLIT_QWEN2
} ignis__splitter;

/*  The known patterns, compared letter by letter. */
struct ignis__tokenizer_patterns_type {
    const char *pattern;
    ignis__splitter split;
};

/*  Flags of ids. */
enum { IGNIS__TOKEN_THERE = 1, IGNIS__TOKEN_MODEL = 2, IGNIS__TOKEN_NOT_BYTES = 4, IGNIS__TOKEN_CONTROL = 8 };

/*  A token that is cut out of text before it is split. */
typedef struct ignis__added_token {
    const char *text;
    size_t size;
    int32_t id;
    int order; /* in the file */
    bool special, normalized, lstrip, rstrip, single_word;
} ignis__added_token;

typedef struct ignis__added_set {
    ignis__added_token *items; /* sorted by text, shorter ones first */
    int count;
    bool first[256]; /* whether one begins with that byte */
} ignis__added_set;

typedef struct ignis__token_slot {
    uint32_t tag;
    int32_t id; /* + 1; 0 if the slot is free */
} ignis__token_slot;

/*  Two ids that are joined to one. */
typedef struct ignis__join {
    uint64_t key; /* (left << 32 | right) + 1; 0 if the slot is free */
    uint32_t rank;
    int32_t id;
} ignis__join;

typedef enum ignis__normalizer_kind {
    IGNIS__NORMAL_FORM, /* NFC, NFD, NFKC, NFKD */
    IGNIS__NORMAL_PREPEND,
    IGNIS__NORMAL_REPLACE,
    IGNIS__NORMAL_BERT,
    IGNIS__NORMAL_STRIP,
    IGNIS__NORMAL_ACCENTS,
    IGNIS__NORMAL_NMT,
    IGNIS__NORMAL_CHARSMAP
} ignis__normalizer_kind;

/*  Normal forms of Unicode, as bits: NFD has none. */
enum { IGNIS__FORM_COMPOSED = 1, IGNIS__FORM_COMPAT = 2 };

/*  Ends that Strip strips, as bits. */
enum { IGNIS__STRIP_LEFT = 1, IGNIS__STRIP_RIGHT = 2 };

/*  Changes of BertNormalizer, as bits. */
enum { IGNIS__BERT_CLEAN = 1, IGNIS__BERT_CHINESE = 2, IGNIS__BERT_STRIP = 4, IGNIS__BERT_LOWER = 8 };

/*  Characters of a decomposition, at most. */
#define IGNIS__CHAR_PARTS 24

/*  Kinds of characters to grapheme clusters. APART: it extends a cluster, but not the consonants of a conjunct. */
typedef enum ignis__cluster {
    IGNIS__CLUSTER_OTHER,
    IGNIS__CLUSTER_CONTROL,
    IGNIS__CLUSTER_EXTEND,
    IGNIS__CLUSTER_SPACING,
    IGNIS__CLUSTER_PREPEND,
    IGNIS__CLUSTER_ZWJ,
    IGNIS__CLUSTER_PICTOGRAPH,
    IGNIS__CLUSTER_CONSONANT,
    IGNIS__CLUSTER_LINKER,
    IGNIS__CLUSTER_APART,
    IGNIS__CLUSTER_L,
    IGNIS__CLUSTER_V,
    IGNIS__CLUSTER_T,
    IGNIS__CLUSTER_LV,
    IGNIS__CLUSTER_LVT
} ignis__cluster;

/*  The map of a Precompiled: a double array, whose values are places of texts. */
typedef struct ignis__charsmap {
    const uint32_t *units;
    uint32_t count;
    const char *texts; /* each ends with a 0 */
    size_t text_size;
} ignis__charsmap;

/*  A set of characters; `count` ranges from `first` on of its pattern are those above 127. */
typedef struct ignis__pattern_set {
    uint32_t ascii[4], categories, scripts;
    int first, count;
    int other; /* 1 + the index of a set that has to have a character, too; 0: none */
    bool space, not_space, negated;
} ignis__pattern_set;

typedef enum ignis__item_kind {
    IGNIS__ITEM_SET,
    IGNIS__ITEM_GROUP,
    IGNIS__ITEM_AHEAD,
    IGNIS__ITEM_NOT_AHEAD,
    IGNIS__ITEM_LINE_BEGIN,
    IGNIS__ITEM_LINE_END,
    IGNIS__ITEM_WORD_EDGE,
    IGNIS__ITEM_LOOP, /* a repeated group at the end of all */
    IGNIS__ITEM_STEPS /* a repeated group whose matches have one length */
} ignis__item_kind;

/*  next: the following item, or -1. inner: the index of a set, or of the first alternative of a group. */
typedef struct ignis__pattern_item {
    ignis__item_kind kind;
    int next, inner, min, max;
    int width; /* characters of each repetition of STEPS */
    bool possessive;
} ignis__pattern_item;

typedef struct ignis__pattern_choice {
    int first, next; /* first: item, or -1 if it is empty; next: alternative, or -1 */
} ignis__pattern_choice;

/*  A compiled regular expression. */
typedef struct ignis__pattern {
    ignis__pattern_item *items;
    ignis__pattern_choice *choices;
    ignis__pattern_set *sets;
    uint32_t *ranges; /* pairs */
    int item_count, choice_count, set_count, range_count;
} ignis__pattern;

typedef struct ignis__normalizer_step {
    ignis__normalizer_kind kind;
    const char *from, *to;
    const ignis__pattern *pattern; /* instead of `from`, if it is not NULL */
    const ignis__charsmap *map;
    unsigned how; /* bits of its kind: IGNIS__FORM_COMPAT, IGNIS__BERT_CLEAN, IGNIS__STRIP_LEFT and the like */
} ignis__normalizer_step;

typedef struct ignis__pattern_search {
    const ignis__pattern *pattern;
    const char *text;
    size_t size;
    int64_t steps; /* left */
} ignis__pattern_search;

/*  The matches of a step of the pre-tokenizer. WORDS: runs of characters of words, and of others without spaces. */
typedef enum ignis__cut {
    IGNIS__CUT_PATTERN,
    IGNIS__CUT_DIGIT,
    IGNIS__CUT_PUNCTUATION,
    IGNIS__CUT_SPACE,
    IGNIS__CUT_WORDS
} ignis__cut;

/*  How matches become pieces, as in tokenizers. */
typedef enum ignis__split_behavior {
    IGNIS__BEHAVIOR_REMOVED,
    IGNIS__BEHAVIOR_ISOLATED,
    IGNIS__BEHAVIOR_PREVIOUS,
    IGNIS__BEHAVIOR_NEXT,
    IGNIS__BEHAVIOR_CONTIGUOUS
} ignis__split_behavior;

typedef struct ignis__split_step {
    ignis__cut cut;
    ignis__split_behavior behavior;
    bool invert; /* what is between matches counts as matches */
    const ignis__pattern *pattern;
} ignis__split_step;

typedef enum ignis__metaspace {
    IGNIS__METASPACE_NONE,
    IGNIS__METASPACE_ALWAYS,
    IGNIS__METASPACE_FIRST,
    IGNIS__METASPACE_NEVER
} ignis__metaspace;

/*  A trie in arrays: the children of node n are those from first[n] to first[n + 1]. Node 0 is the root. */
typedef struct ignis__trie {
    uint32_t *first;
    int32_t *ids;         /* of the token that ends at a node, or -1 */
    unsigned char *bytes; /* of a node */
} ignis__trie;

/*  A place of a text that Unigram encodes: the last token of the best tokens up to it. */
typedef struct ignis__unigram_place {
    double score;
    uint32_t begin, end; /* begin: of that token; end: of the token that follows the place */
    int32_t id;          /* -1: the place is not in reach yet */
} ignis__unigram_place;

/*  Open tokenizers do not change, except for the bits of known and whole. So any number of threads may use
    one. */
typedef struct ignis__tokenizer {
    ignis__slot slot;
    void *kept;                /* blocks of ignis__tokenizer_keep, with all that is pointed to below */
    const char *chat_template; /* NULL if there is none */
    const char *bos_text, *eos_text;
    ignis_tokenizer_info info;

    char *bytes; /* of all tokens; those of an id from begin[id] to begin[id + 1] */
    uint32_t *begin;
    unsigned char *flags;
    size_t longest;             /* bytes of the longest token of the model */
    ignis__token_slot *buckets; /* hash table of the model's tokens by their bytes */
    uint64_t slot_mask;
    ignis__join *joins;
    uint64_t join_mask;
    int32_t single[256];   /* token of one byte, or of a character below 128; -1 if there is none */
    int32_t fallback[256]; /* <0x00> to <0xFF>; -1 if there is none */
    uint64_t *known;       /* a bit for each id: the bit in `whole` is valid */
    uint64_t *whole;       /* a bit for each id: its own text encodes to this id alone */

    ignis__added_set added[2]; /* matched in the raw text, and in normalized text */
    ignis__normalizer_step normals[IGNIS__TEXT_STEPS];
    int normal_count;
    ignis__splitter split;
    ignis__split_step steps[2 * IGNIS__TEXT_STEPS]; /* before `split`; a part of the file is two steps at most */
    int step_count;
    bool digits; /* the first step cuts out digits */
    bool byte_level, prefix_space, ignore_merges, byte_fallback, fuse_unknown;
    /* WordPiece: the longest token first. word_prefix: of tokens inside of a word; word_cleanup: no space precedes
       punctuation in decoded text; word_limit: characters of a word, at most */
    bool word_pieces, word_cleanup;
    const char *word_prefix, *word_decoder_prefix;
    int64_t word_limit;
    bool unigram; /* tokens have scores, and the largest sum wins */
    ignis__trie trie;
    double *scores, unknown_score;
    bool words; /* no token contains a U+2581 after another character, so text may be split there */
    ignis__metaspace metaspace, metaspace_decoder;
    bool metaspace_split;
    bool byte_decoder; /* <0x00> to <0xFF> become bytes in decoded text */
    int strip;         /* leading spaces that are removed from decoded text */
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

/*  A search for a text in another, from the front or from the back. Its time is linear in the sum of their
    lengths: the two-way algorithm (Crochemore and Perrin 1991). */
typedef struct ignis__needle {
    const char *text;
    size_t length;
    bool back;
    size_t border, period; /* border: where its two parts meet; period: the shift after both have matched */
    bool periodic;         /* matched bytes need not be compared again */
} ignis__needle;

/*  A symbol of a piece that is being joined. */
typedef struct ignis__bpe_symbol {
    int32_t id, before,
        after; /* before, after: indices of symbols, -1 at the ends. id -1: joined to the one before it */
} ignis__bpe_symbol;

/*  A pair that may be joined: rank << 32 | index of its first symbol. */
typedef struct ignis__bpe_pair {
    uint64_t order;
    int32_t id;
} ignis__bpe_pair;

/*  A range of a text in which control tokens are plain text. */
typedef struct ignis__plain_span {
    size_t begin, end;
} ignis__plain_span;

/*  The state of one call that encodes. */
typedef struct ignis__encoder {
    ignis__tokenizer *tokenizer;
    bool plain, failed;             /* plain: control tokens are plain text everywhere; failed: out of memory */
    const ignis__plain_span *spans; /* ranges of plain text, in order */
    int64_t span_count;
    size_t part;     /* place of the text that is being encoded in the raw text */
    bool part_plain; /* a plain span is in it */
    bool too_long;   /* normalized text exceeds the limit */
    bool too_slow;   /* a pattern of the pre-tokenizer takes too many steps */
    int64_t steps;   /* that patterns may still take */
    bool unclear;    /* a control token is in normalized text, whose plain ranges are unknown */
    int32_t *ids;
    int64_t capacity, count;
    ignis__bpe_symbol *symbols;
    size_t symbol_capacity;
    ignis__bpe_pair *queue;
    size_t queued, queue_capacity;
    ignis__unigram_place *places;
    size_t place_capacity;
    ignis__bytes fixed, normal[2], spaced;
    const char *front; /* the normalized text at the beginning of the raw text; NULL later */
    bool front_cut;    /* a normalizer has removed the first character of the text that it was given */
} ignis__encoder;

/*  A growing list of items. */
typedef struct ignis__list {
    char *items;
    size_t size; /* of an item */
    int64_t count, capacity;
} ignis__list;

typedef struct ignis__token_entry {
    const char *text;
    size_t size;
    int64_t id;
    bool not_bytes;   /* its text does not encode bytes */
    bool unreachable; /* text is never encoded to it */
    double score;
    int type; /* in a GGUF file */
} ignis__token_entry;

typedef struct ignis__merge_entry {
    const char *left, *right;
    size_t left_size, right_size;
    uint32_t rank;
    int32_t ids[3]; /* left, right, joined */
} ignis__merge_entry;

/*  A step of a normalizer or another part. Numbers that the file does not have are -1, texts NULL. */
typedef struct ignis__tokenizer_part {
    const char *type, *prepend, *content, *behavior, *replacement, *scheme, *string, *regex, *word_prefix, *charsmap,
        *delimiter;
    int64_t invert, individual, prefix, use_regex, split, start, stop, cleanup, clean, chinese, strip, lower, left,
        right;
} ignis__tokenizer_part;

enum { IGNIS__PART_NORMALIZER, IGNIS__PART_SPLITTER, IGNIS__PART_PROCESSOR, IGNIS__PART_DECODER, IGNIS__PART_KINDS };

#define IGNIS__TEMPLATE_TOKENS 16

/*  The state of opening a tokenizer. Its texts are in the file that is read. */
typedef struct ignis__tokenizer_load {
    const char *call, *path;
    ignis__tokenizer *tokenizer;
    ignis__json json;
    ignis__list entries, merges, added;
    ignis__tokenizer_part parts[IGNIS__PART_KINDS][IGNIS__TEXT_STEPS];
    int part_count[IGNIS__PART_KINDS];
    const char *model, *unknown; /* NULL if missing */
    const char *word_prefix;     /* of tokens inside of a word; NULL if missing */
    int64_t word_limit;
    int64_t unknown_id; /* of Unigram; -1 if missing */
    bool has_vocabulary, has_merges, has_scores, dropout, affix;
    const char *template_name[IGNIS__TEMPLATE_TOKENS]; /* added before and after a text */
    bool template_behind[IGNIS__TEMPLATE_TOKENS];
    int template_count;
    bool template_text; /* the template contains the text once */
    const char *special_name[IGNIS__TEMPLATE_TOKENS];
    int32_t special_ids[IGNIS__TEMPLATE_TOKENS][IGNIS__TEMPLATE_TOKENS];
    int special_id_count[IGNIS__TEMPLATE_TOKENS], special_count;
    ignis_diagnostic diagnostic; /* of the fault; NONE if there is none */
    char fault[400];
} ignis__tokenizer_load;

enum {
    IGNIS__TYPE_NORMAL = 1,
    IGNIS__TYPE_UNKNOWN,
    IGNIS__TYPE_CONTROL,
    IGNIS__TYPE_USER,
    IGNIS__TYPE_UNUSED,
    IGNIS__TYPE_BYTE
};

/*  Tokens that end a text in any vocabulary, as in llama.cpp. A token with a name has a rule of its own. */
enum {
    IGNIS__END_END,
    IGNIS__END_RETURN,
    IGNIS__END_FLUSH,
    IGNIS__END_CALL,
    IGNIS__END_CALLS,
    IGNIS__END_SLASH_S, /* also in HTML: an ordinary token with this text ends nothing */
    IGNIS__END_OTHERS
};

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* unicode_table.c */
extern const uint32_t ignis__char_kinds[1997];
extern const uint32_t ignis__char_marks[677];
extern const uint64_t ignis__char_parts[2060];
extern const uint32_t ignis__char_categories[4101];
extern const uint32_t ignis__char_scripts[151];
extern const uint16_t ignis__char_pairs[940];
extern const uint32_t ignis__char_drops[730];
extern const uint64_t ignis__char_lower[184];
extern const uint64_t ignis__char_compat[1159];
extern const uint64_t ignis__char_compat_texts[1171];
extern const uint32_t ignis__char_compat_points[3068];
extern const uint32_t ignis__char_clusters[1359];

/* tokenizer.c */
extern const struct ignis__tokenizer_patterns_type ignis__tokenizer_patterns[3];
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
IGNIS__PRIVATE int ignis__char_category(uint32_t code);
IGNIS__PRIVATE bool ignis__char_punctuation(uint32_t code);
IGNIS__PRIVATE uint32_t ignis__char_case(const uint64_t *table, int count, uint32_t code);

/* pattern.c */
IGNIS__COLD IGNIS__PRIVATE const ignis__pattern *ignis__pattern_compile(ignis__tokenizer *tokenizer, const char *text,
                                                                        bool *no_memory);
IGNIS__PRIVATE bool ignis__pattern_find(ignis__pattern_search *search, size_t at, size_t *begin, size_t *end);

/* byte_buffer.c */
IGNIS__PRIVATE bool ignis__bytes_reserve(ignis__bytes *bytes, size_t more);
IGNIS__PRIVATE bool ignis__bytes_add(ignis__bytes *bytes, const char *data, size_t size);
IGNIS__PRIVATE bool ignis__bytes_add_fixed(ignis__bytes *bytes, const char *text, size_t size);

/* string_search.c */
IGNIS__PRIVATE ignis__needle ignis__needle_of(const char *text, size_t length, bool back);
IGNIS__PRIVATE const char *ignis__needle_find(const ignis__needle *needle, const char *text, size_t size);

/* nfc.c */
IGNIS__PRIVATE uint32_t ignis__char_mark(uint32_t code);
IGNIS__PRIVATE int ignis__char_decompose(uint32_t code, unsigned form, uint64_t parts[IGNIS__CHAR_PARTS]);
IGNIS__PRIVATE int ignis__u64_order(const void *a, const void *b);
IGNIS__PRIVATE bool ignis__normal_form_add(ignis__bytes *bytes, const char *text, size_t size, unsigned form);

/* charsmap.c */
IGNIS__PRIVATE size_t ignis__base64_decode(char *text);
IGNIS__COLD IGNIS__PRIVATE const ignis__charsmap *ignis__charsmap_read(ignis__tokenizer_load *load, const char *bytes,
                                                                       size_t size);
IGNIS__COLD IGNIS__PRIVATE const ignis__charsmap *ignis__charsmap_read_base64(ignis__tokenizer_load *load,
                                                                              const char *text);
IGNIS__PRIVATE bool ignis__charsmap_add(const ignis__charsmap *map, ignis__bytes *out, const char *text, size_t size);

/* normalize.c */
IGNIS__PRIVATE bool ignis__encode_normalize(ignis__encoder *encoder, const char **text, size_t *size);

/* unigram.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_unigram(ignis__tokenizer_load *load);
IGNIS__PRIVATE bool ignis__encode_unigram(ignis__encoder *encoder, const char *text, size_t size);

/* word_piece.c */
IGNIS__PRIVATE uint32_t ignis__char_drop(uint32_t code);
IGNIS__PRIVATE bool ignis__bert_normalize(ignis__bytes *out, const char *text, size_t size, unsigned how);
IGNIS__PRIVATE bool ignis__encode_word(ignis__encoder *encoder, const char *text, size_t size);
IGNIS__PRIVATE bool ignis__word_add(const ignis__tokenizer *tokenizer, const char *text, size_t size, bool first,
                                    ignis__bytes *out);

/* pre_tokenizer.c */
IGNIS__PRIVATE size_t ignis__split_next(ignis__splitter split, const char *text, size_t size, size_t at);

/* bpe.c */
IGNIS__PRIVATE uint64_t ignis__token_hash(const char *text, size_t size);
IGNIS__PRIVATE int32_t ignis__token_find(const ignis__tokenizer *tokenizer, const char *text, size_t size,
                                         bool not_bytes);
IGNIS__PRIVATE void ignis__encoder_close(ignis__encoder *encoder);
IGNIS__PRIVATE void ignis__encoder_put(ignis__encoder *encoder, int32_t id);
IGNIS__PRIVATE bool ignis__encode_piece(ignis__encoder *encoder, const char *text, size_t size);

/* encode.c */
IGNIS__PRIVATE const ignis__added_token *ignis__added_set_find(const ignis__added_set *set, const char *text,
                                                               size_t size, size_t at, size_t limit, bool *hidden);
IGNIS__PRIVATE bool ignis__encode(ignis__encoder *encoder, const char *text, size_t size, bool no_bos);

/* tokenizer_json.c */
IGNIS__PRIVATE void *ignis__list_add(ignis__list *list);
extern const char *const ignis__tokenizer_part_names[IGNIS__PART_KINDS];
IGNIS__PRIVATE void ignis__tokenizer_load_begin(ignis__tokenizer_load *load, const char *call,
                                                ignis__tokenizer *tokenizer);
IGNIS__PRIVATE void ignis__tokenizer_load_end(ignis__tokenizer_load *load);
IGNIS__PRIVATE void ignis__tokenizer_load_json(ignis__tokenizer_load *load, char *text, size_t size);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_fault(ignis__tokenizer_load *load, ignis_diagnostic diagnostic,
                                                       const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_no_memory(ignis__tokenizer_load *load);
IGNIS__PRIVATE bool ignis__json_skip_word(ignis__json *json, const char *word);
IGNIS__PRIVATE bool ignis__json_read_bool(ignis__json *json);
IGNIS__PRIVATE const char *ignis__json_next_field(ignis__json *json, bool *first);
IGNIS__PRIVATE const char *ignis__json_read_text(ignis__json *json);
IGNIS__PRIVATE bool ignis__merge_split(ignis__merge_entry *merge, const char *both, size_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_json(ignis__tokenizer_load *load);

/* pipeline.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_refuse_part(ignis__tokenizer_load *load, int kind,
                                                             const ignis__tokenizer_part *part, const char *why);
IGNIS__PRIVATE unsigned ignis__bert_flags(bool clean, bool chinese, bool strip, bool lower);
IGNIS__PRIVATE void ignis__tokenizer_add_bert_cuts(ignis__tokenizer *tokenizer);
IGNIS__PRIVATE bool ignis__tokenizer_part_is(const char *text, const char *other);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_normalizer(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_add_pattern(ignis__tokenizer_load *load, const char *pattern,
                                                             ignis__split_behavior behavior, bool invert);
IGNIS__PRIVATE void ignis__tokenizer_add_cut(ignis__tokenizer *tokenizer, ignis__cut cut,
                                             ignis__split_behavior behavior);
IGNIS__PRIVATE void ignis__tokenizer_add_digits(ignis__tokenizer *tokenizer, bool individual);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_splitter(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_decoder(ignis__tokenizer_load *load);

/* vocabulary.c */
IGNIS__PRIVATE int32_t ignis__token_find_encoded(const ignis__tokenizer *tokenizer, const char *text, size_t *size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_vocabulary(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_joins(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_merges(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_added(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build(ignis__tokenizer_load *load);

/* tokenizer_config.c */
IGNIS__PRIVATE void ignis__tokenizer_set_template(int32_t *ids, int *count, int add, int32_t id);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_config(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE char *ignis__tokenizer_read_file(ignis__tokenizer_load *load, const char *path, bool needed,
                                                            size_t *size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_other_files(ignis__tokenizer_load *load, const char *folder,
                                                                  char *path, size_t path_size);

/* tokenizer_gguf.c */
IGNIS__PRIVATE int ignis__tokenizer_find_end_text(const char *text, int type);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_score_merges(ignis__tokenizer_load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_gguf(ignis__tokenizer_load *load, ignis__gguf *file);

/* tokenizer_tekken.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_tekken(ignis__tokenizer_load *load);

/* open.c */
IGNIS__PRIVATE void ignis__tokenizer_fill_info(ignis__tokenizer *tokenizer);

/* codec.c */
IGNIS__PRIVATE int ignis__tokenizer_encode(const char *call, ignis__encoder *encoder, const char *text, size_t size,
                                           bool no_bos);
IGNIS__PRIVATE bool ignis__token_add(const ignis__tokenizer *tokenizer, int32_t id, bool first, ignis__bytes *out);
IGNIS__PRIVATE bool ignis__token_check(const char *call, const ignis__tokenizer *tokenizer, int32_t id);
