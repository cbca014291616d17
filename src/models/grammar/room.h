/*  models/grammar - grammars and the tokens that they allow. */
#pragma once

#include "../../base/room.h"
#include "../../formula/room.h"
#include "../tokenizer/room.h"

/*  A rule has alternatives. An alternative is a row of parts: a byte within a range, another rule, or the
    end. Groups, classes and repetitions are anonymous rules. A character of several bytes is a row of bytes,
    so matched text is always UTF-8. A position is a place in a row, with a stack of places to return to. The
    set of all positions of a text is a state. States are made when a text reaches them, each once, and
    remember the next state for each class of bytes, as in a lazy automaton. So a byte that came before costs
    one table lookup. */
enum {
    IGNIS__GRAMMAR_PARTS = 1 << 18,     /* of a grammar, at most */
    IGNIS__GRAMMAR_RANGES = 256,        /* of a class of characters */
    IGNIS__GRAMMAR_NESTED = 100,        /* groups within groups */
    IGNIS__GRAMMAR_DEPTH = 500,         /* nested rules of a text */
    IGNIS__GRAMMAR_POSITIONS = 1 << 14, /* positions of a text at once */
    IGNIS__GRAMMAR_COMPARED = 1 << 26,  /* compared names of rules, while a grammar is read */
    IGNIS__GRAMMAR_STEPS = 1 << 24,     /* positions that one mask visits */
    IGNIS__GRAMMAR_STATES = 4096,       /* kept from one mask to the next, */
    IGNIS__GRAMMAR_MASKS = 256,         /* as are masks */
    IGNIS__GRAMMAR_BYTES = 1 << 24,     /* of states, as well */
    IGNIS__GRAMMAR_UNUSED = 1 << 22,    /* bytes of the states of a grammar that no sequence has */
    IGNIS__GRAMMAR_BUCKETS = 4096,
    IGNIS__GRAMMAR_CONTROL = 0xFF, /* the first byte of a control token's text in a grammar; not in UTF-8 */
    IGNIS__GRAMMAR_CONTROL_SIZE = 5,
    IGNIS__GRAMMAR_BYTE = -1, /* a part that is a range of bytes */
    IGNIS__GRAMMAR_END = -2
};

typedef struct ignis__grammar_part {
    int32_t rule; /* or one of the two above */
    int32_t alternative;
    int32_t other; /* the next part that calls the same rule; -1 at the end */
    unsigned char low, high;
} ignis__grammar_part;

typedef struct ignis__grammar_alternative {
    int32_t rule, first, next; /* first: a part; next: of the same rule, -1 at the end */
    int32_t open;              /* rules in it that are not known to end */
} ignis__grammar_alternative;

typedef struct ignis__grammar_rule {
    const char *name; /* in the text, where it is first used; NULL if anonymous */
    int32_t size, alternatives, calls, named;
    bool defined, ends, empty;
    bool generated;              /* of a schema within GBNF: names of the text itself are others */
    unsigned char seen;          /* search for left recursion: 1: being visited, 2: done */
    int32_t at, at_part, caller; /* for the same search */
} ignis__grammar_rule;

typedef struct ignis__grammar_place {
    int32_t part, stack;
} ignis__grammar_place;

typedef struct ignis__grammar_stack {
    ignis__grammar_place place; /* the place to return to */
    int32_t depth, link;
} ignis__grammar_stack;

typedef struct ignis__grammar_state {
    int32_t first, count, link; /* first, count: places */
    bool ends;                  /* the text may end here */
    bool any;                   /* the mask has a token */
    uint32_t *mask;             /* NULL: not computed yet */
} ignis__grammar_state;

typedef struct ignis__grammar {
    struct ignis__grammar *next;
    int uses;
    char *source, *text;             /* as given; as GBNF, which may be the same pointer */
    ignis__list schemas;             /* rules of the schemas within GBNF, as text: char * */
    int32_t sets, automata, numbers; /* numbers of rules that schemas have taken */
    int32_t plain;                   /* states of strings of plain text with bounds of length */
    int32_t any_plain;               /* the rules of all strings of plain text without this marker; 0: not there yet */
    char any_plain_marker[64];
    int64_t work;    /* bytes that were read of schemas */
    bool has_schema; /* the rules that all schemas share are there */
    ignis__list rules, alternatives, parts;
    ignis__list states, rows, places, stacks;
    int32_t root, start, masks, epoch; /* epoch: how often all states were discarded */
    uint64_t number;                   /* within its engine, from 1 on */
    int64_t steps;
    int classes;
    unsigned char class_of[256];
    int32_t rule_of[256], state_of[IGNIS__GRAMMAR_BUCKETS], stack_of[IGNIS__GRAMMAR_BUCKETS];
    struct {
        ignis__grammar_place place;
        int32_t slot;
    } reached[IGNIS__GRAMMAR_POSITIONS];
    int32_t reached_count, buckets[2 * IGNIS__GRAMMAR_POSITIONS];
    ignis_diagnostic diagnostic; /* NONE: no fault */
    char fault[320];
} ignis__grammar;

#define IGNIS__GRAMMAR_AT(grammar, kind, list, number) \
    ((ignis__grammar_##kind *)(void *)(grammar)->list.items + (number))
typedef struct ignis__vocabulary_token {
    size_t begin, size;
    const char *text;
    int32_t id;
} ignis__vocabulary_token;

typedef struct ignis__vocabulary {
    ignis__bytes text;  /* of all tokens */
    ignis__list tokens; /* sorted by text */
    int32_t *place,
        *path;         /* place: index in tokens of an id, -1 if it is not text; path: states on the way to a node */
    ignis__list nodes; /* and one more, the end */
    int count, words;  /* count: tokens of the model; words: of a mask */
    int32_t ends[20];  /* tokens that end a text */
    int end_count;
} ignis__vocabulary;

/*  A set of strings: an automaton of characters with one next state. */
enum {
    IGNIS__STRING_SET_CODES = 0x110000,
    IGNIS__STRING_SET_STATES = 4096,
    IGNIS__STRING_SET_WORK = 1 << 24 /* nodes that are visited while a set is made */
};

typedef struct ignis__string_set_edge {
    uint32_t low, high;
    int32_t to;
} ignis__string_set_edge;

typedef struct ignis__string_set_state {
    int32_t first, count; /* edges */
    bool ends;
} ignis__string_set_state;

typedef struct ignis__string_set {
    ignis__list states, edges;
} ignis__string_set;

typedef struct ignis__string_name {
    const char *text; /* UTF-8 */
    size_t size;
} ignis__string_name;

/*  A regular expression while it is read and translated. */
typedef enum ignis__regex_kind {
    IGNIS__REGEX_EMPTY,
    IGNIS__REGEX_RANGES, /* a character of a class */
    IGNIS__REGEX_BEGIN,  /* ^ */
    IGNIS__REGEX_END,    /* $ */
    IGNIS__REGEX_ROW,    /* a, then b */
    IGNIS__REGEX_EITHER,
    IGNIS__REGEX_REPEAT,
    IGNIS__REGEX_MATCH
} ignis__regex_kind;

enum {
    IGNIS__REGEX_NESTED = 50,
    IGNIS__REGEX_NODES = 1 << 15,
    IGNIS__REGEX_TIMES = 1000, /* of a repetition, at most */
    IGNIS__REGEX_BUCKETS = 1024
};

/*  A node of the tree, or a state with several next states: `a` and `b` are nodes, or -1. */
typedef struct ignis__regex_node {
    int32_t kind, a, b, least, most; /* most: below 0 without a limit */
    int32_t first, count;            /* ranges */
} ignis__regex_node;

typedef struct ignis__regex_range {
    uint32_t low, high;
} ignis__regex_range;

/*  A state of the result while it is made: a set of nodes. */
typedef struct ignis__regex_members {
    int32_t first, count, link;
} ignis__regex_members;

typedef struct ignis__regex {
    const char *at, *end, *fault; /* fault: or NULL */
    ignis__list tree, nodes, ranges, sets, members, borders;
    int32_t *mark, *todo, generation, start, work;
    int32_t bucket[IGNIS__REGEX_BUCKETS];
} ignis__regex;

#define IGNIS__REGEX_AT(regex, list, number) ((ignis__regex_node *)(void *)(regex)->list.items + (number))
#define IGNIS__REGEX_RANGE(regex, number) ((ignis__regex_range *)(void *)(regex)->ranges.items + (number))

/*  Keywords of a schema that constrain texts. */
typedef enum ignis__schema_word {
    IGNIS__SCHEMA_TYPE,
    IGNIS__SCHEMA_ENUM,
    IGNIS__SCHEMA_CONST,
    IGNIS__SCHEMA_REF,
    IGNIS__SCHEMA_ALL_OF,
    IGNIS__SCHEMA_ANY_OF,
    IGNIS__SCHEMA_ONE_OF,
    IGNIS__SCHEMA_PROPERTIES,
    IGNIS__SCHEMA_REQUIRED,
    IGNIS__SCHEMA_ADDITIONAL,
    IGNIS__SCHEMA_PREFIX_ITEMS,
    IGNIS__SCHEMA_ITEMS,
    IGNIS__SCHEMA_ADDITIONAL_ITEMS,
    IGNIS__SCHEMA_MIN_ITEMS,
    IGNIS__SCHEMA_MAX_ITEMS,
    IGNIS__SCHEMA_UNIQUE_ITEMS,
    IGNIS__SCHEMA_MIN_LENGTH,
    IGNIS__SCHEMA_MAX_LENGTH,
    IGNIS__SCHEMA_PATTERN,
    IGNIS__SCHEMA_FORMAT,
    IGNIS__SCHEMA_MINIMUM,
    IGNIS__SCHEMA_MAXIMUM,
    IGNIS__SCHEMA_EXCLUSIVE_MINIMUM,
    IGNIS__SCHEMA_EXCLUSIVE_MAXIMUM,
    IGNIS__SCHEMA_MULTIPLE_OF,
    IGNIS__SCHEMA_WORDS
} ignis__schema_word;

/*  Types of values, as bits. Each integer is also a number. */
enum {
    IGNIS__SCHEMA_OBJECT = 1,
    IGNIS__SCHEMA_ARRAY = 2,
    IGNIS__SCHEMA_STRING = 4,
    IGNIS__SCHEMA_NUMBER = 8,
    IGNIS__SCHEMA_INTEGER = 16,
    IGNIS__SCHEMA_BOOLEAN = 32,
    IGNIS__SCHEMA_NULL = 64,
    IGNIS__SCHEMA_ANY_TYPE = 127
};

typedef struct ignis__schema {
    ignis__grammar *grammar;
    const char *text;           /* valid JSON */
    const char *marker;         /* strings are plain text without this marker; NULL: they are JSON */
    ignis__bytes out, deferred; /* deferred: written after the line that is being written */
    ignis__list sets,
        elements;          /* sets: of elements, one for each rule; elements: of the sets, one set after the other */
    ignis__bytes names[2]; /* names whose escapes were replaced */
    int64_t work;          /* bytes that were read */
    int32_t *set_of;       /* of a schema alone, by byte: its set and 1 */
    int first_set, automata, numbers; /* the last numbers of rules before those of this schema */
} ignis__schema;
#define IGNIS__SCHEMA_WORK ((int64_t)1 << 27)
#define IGNIS__SCHEMA_PLAIN 1024 /* states of strings of plain text without the whole marker, and bounds of length */
#define ignis__schema_fail_unsupported(schema, ...) ignis__schema_fail(schema, IGNIS_DIAG_UNSUPPORTED, __VA_ARGS__)
#define ignis__schema_fail_malformed(schema, ...) ignis__schema_fail(schema, IGNIS_DIAG_GRAMMAR, __VA_ARGS__)

/*  A schema within a set of schemas that hold together: its byte, times 8, and which of its keywords other elements
    of the set replace. */
typedef int64_t ignis__schema_element;
enum {
    IGNIS__SCHEMA_DONE_REF = 1, /* $ref and allOf */
    IGNIS__SCHEMA_DONE_ANY = 2,
    IGNIS__SCHEMA_DONE_ONE = 4,
    IGNIS__SCHEMA_MERGED = 64 /* schemas that hold together, at most */
};

/*  A set of elements. */
typedef struct ignis__schema_set {
    int64_t first;
    int32_t count;
} ignis__schema_set;

typedef struct ignis__schema_node {
    const char *at;
    const char *has[IGNIS__SCHEMA_WORDS];
    unsigned done;
    bool open, given; /* open: its references are being followed; given: they were before, by the set that it is in */
} ignis__schema_node;

/*  Schemas that hold together, after references and allOf were followed. */
typedef struct ignis__schema_merged {
    ignis__schema_node node[IGNIS__SCHEMA_MERGED];
    int count;
    bool never, typed; /* never: one of them is false; typed: one of them says its type */
    unsigned types;    /* of all that say their type */
} ignis__schema_merged;

/*  A decimal number: digits before and after the point, without zeros at the begin and at the end. */
enum { IGNIS__DECIMAL_DIGITS = 40 };
typedef struct ignis__schema_decimal {
    bool negative;
    int whole, fraction; /* counts of digits; whole: 0 below 1 */
    char digits[2 * IGNIS__DECIMAL_DIGITS];
} ignis__schema_decimal;

/*  Bounds of a number. */
typedef struct ignis__number_range {
    ignis__schema_decimal least, most;
    bool has_least, has_most, above, below; /* above, below: the bound itself is excluded */
    int64_t multiple;                       /* of 10^-decimals; 0: of nothing */
    int decimals;
} ignis__number_range;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* grammar.c */
IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE bool ignis__grammar_fail(ignis__grammar *grammar, ignis_diagnostic diagnostic,
                                                    const char *at, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE void *ignis__grammar_add(ignis__grammar *grammar, ignis__list *list);

/* gbnf.c */
IGNIS__PRIVATE void ignis__grammar_control_text(int32_t id, unsigned char text[IGNIS__GRAMMAR_CONTROL_SIZE]);
IGNIS__PRIVATE bool ignis__grammar_read_gbnf(ignis__grammar *grammar);

/* automaton.c */
IGNIS__PRIVATE bool ignis__grammar_reset_states(ignis__grammar *grammar);
IGNIS__PRIVATE int64_t ignis__grammar_state_bytes(const ignis__grammar *grammar);
IGNIS__PRIVATE int32_t ignis__grammar_step(ignis__grammar *grammar, int32_t from, unsigned char byte);
IGNIS__COLD IGNIS__PRIVATE void ignis__grammar_free(ignis__grammar *grammar);

/* token_mask.c */
IGNIS__PRIVATE void ignis__vocabulary_free(ignis__vocabulary *vocabulary);
IGNIS__COLD IGNIS__PRIVATE ignis__vocabulary *ignis__vocabulary_make(const ignis__tokenizer *tokenizer, int count,
                                                                     const int32_t *ends, int end_count);
IGNIS__PRIVATE const uint32_t *ignis__grammar_compute_mask(ignis__grammar *grammar, const ignis__vocabulary *vocabulary,
                                                           int32_t state);
IGNIS__PRIVATE int32_t ignis__grammar_step_token(ignis__grammar *grammar, const ignis__vocabulary *vocabulary,
                                                 int32_t state, int32_t id);

/* string_set.c */
IGNIS__PRIVATE void ignis__string_set_free(ignis__string_set *set);
IGNIS__PRIVATE void ignis__string_set_begin(ignis__string_set *set);
IGNIS__PRIVATE bool ignis__string_set_add_edge(ignis__string_set *set, ignis__string_set_state *state, uint32_t low,
                                               uint32_t high, int32_t to);
IGNIS__PRIVATE bool ignis__string_set_of_lengths(ignis__string_set *set, int least, int most);
IGNIS__PRIVATE bool ignis__string_set_of_others(ignis__string_set *set, const ignis__string_name *names, int count);
IGNIS__PRIVATE bool ignis__string_set_without(ignis__string_set *set, const char *marker, size_t size);
IGNIS__PRIVATE bool ignis__string_set_intersect(ignis__string_set *set, const ignis__string_set *other);
IGNIS__PRIVATE bool ignis__string_set_has(const ignis__string_set *set, const char *text, size_t size);
IGNIS__PRIVATE bool ignis__string_set_is_empty(const ignis__string_set *set);

/* regular_expression.c */
extern const char ignis__regex_no_memory[19];
IGNIS__PRIVATE void ignis__regex_fail(ignis__regex *regex, const char *reason);
IGNIS__PRIVATE int32_t ignis__regex_add(ignis__regex *regex, ignis__list *list, int32_t kind, int32_t a, int32_t b);
IGNIS__PRIVATE int32_t ignis__regex_read_alternatives(ignis__regex *regex, int nested);

/* regular_expression_set.c */
IGNIS__PRIVATE const char *ignis__string_set_of_pattern(ignis__string_set *set, const char *text, size_t size);

/* schema_text.c */
extern const char *const ignis__schema_words[IGNIS__SCHEMA_WORDS];
extern const char *const ignis__schema_types[7];
IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE void ignis__schema_fail(ignis__schema *schema, ignis_diagnostic diagnostic, const char *at,
                                                   const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE void ignis__schema_fail_memory(ignis__schema *schema);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE void ignis__schema_write(ignis__schema *schema, ignis__bytes *to, const char *format, ...);
IGNIS__PRIVATE const char *ignis__schema_skip_blank(const char *at);
IGNIS__PRIVATE const char *ignis__schema_value_end(const char *at);
IGNIS__PRIVATE const char *ignis__schema_first(const char *at);
IGNIS__PRIVATE const char *ignis__schema_next(ignis__schema *schema, const char *value);
IGNIS__PRIVATE const char *ignis__schema_value(const char *key);
IGNIS__PRIVATE const char *ignis__schema_read_string(ignis__schema *schema, const char *at, int place, size_t *size);
IGNIS__PRIVATE bool ignis__schema_string_is(ignis__schema *schema, const char *at, const char *name, size_t size);
IGNIS__PRIVATE bool ignis__schema_strings_equal(ignis__schema *schema, const char *a, const char *b);
IGNIS__PRIVATE const char *ignis__schema_find_member(ignis__schema *schema, const char *object, const char *name,
                                                     size_t size);
IGNIS__PRIVATE const char *ignis__schema_find_element(ignis__schema *schema, const char *array, const char *number,
                                                      size_t size);
IGNIS__PRIVATE void ignis__schema_count_work(ignis__schema *schema, int64_t bytes);
IGNIS__PRIVATE int ignis__schema_count(ignis__schema *schema, const char *at, int otherwise);
IGNIS__PRIVATE void ignis__schema_read_counts(ignis__schema *schema, const ignis__schema_merged *merged, int word,
                                              int *least, int *most);
IGNIS__PRIVATE const char *ignis__schema_resolve(ignis__schema *schema, const char *ref);
IGNIS__PRIVATE void ignis__schema_write_literal(ignis__schema *schema, ignis__bytes *to, const char *value);
IGNIS__PRIVATE void ignis__schema_write_plain(ignis__schema *schema, ignis__bytes *to, const char *value);
IGNIS__PRIVATE void ignis__schema_write_name(ignis__schema *schema, ignis__bytes *to,
                                             const ignis__schema_element *elements, int count);
IGNIS__PRIVATE void ignis__schema_write_times(ignis__schema *schema, ignis__bytes *to, int least, int most);

/* schema_number.c */
IGNIS__PRIVATE bool ignis__decimal_read(ignis__schema_decimal *decimal, const char *text);
IGNIS__PRIVATE int ignis__decimal_compare(const ignis__schema_decimal *a, const ignis__schema_decimal *b);
IGNIS__PRIVATE void ignis__schema_read_range(ignis__schema *schema, const ignis__schema_merged *merged,
                                             ignis__number_range *range);
IGNIS__PRIVATE bool ignis__number_range_has(const ignis__number_range *range, const ignis__schema_decimal *number);
IGNIS__PRIVATE int ignis__schema_write_number(ignis__schema *schema, const ignis__number_range *range, bool integer);

/* schema_string.c */
IGNIS__PRIVATE bool ignis__schema_make_strings(ignis__schema *schema, const ignis__schema_merged *merged,
                                               ignis__string_set *set);
IGNIS__PRIVATE int ignis__schema_write_strings(ignis__schema *schema, const ignis__string_set *set);
IGNIS__PRIVATE void ignis__schema_write_plain_strings(ignis__schema *schema, const ignis__schema_merged *merged,
                                                      int least, int most);

/* schema_merge.c */
IGNIS__PRIVATE ignis__schema_merged *ignis__schema_merge(ignis__schema *schema, const ignis__schema_element *elements,
                                                         int count);
IGNIS__PRIVATE const char *ignis__schema_find_key(ignis__schema *schema, const char *object, const char *key);
IGNIS__PRIVATE bool ignis__schema_requires(ignis__schema *schema, const ignis__schema_merged *merged, const char *key);
IGNIS__PRIVATE int ignis__schema_property(ignis__schema *schema, const ignis__schema_merged *merged, const char *key,
                                          ignis__schema_element *elements);
IGNIS__PRIVATE bool ignis__schema_values_equal(ignis__schema *schema, const char *a, const char *b);
IGNIS__PRIVATE bool ignis__schema_allows(ignis__schema *schema, const ignis__schema_merged *merged, const char *value);
IGNIS__PRIVATE bool ignis__schema_disjoint(ignis__schema *schema, const ignis__schema_merged *a,
                                           const ignis__schema_merged *b, int nested);

/* schema_array.c */
IGNIS__PRIVATE void ignis__schema_write_array(ignis__schema *schema, const ignis__schema_merged *merged, int number);

/* json_schema.c */
IGNIS__PRIVATE char *ignis__schema_translate(ignis__grammar *grammar, const char *text, const char *marker, bool whole);
IGNIS__PRIVATE ignis__grammar *ignis__grammar_make(const char *call, const char *source);
