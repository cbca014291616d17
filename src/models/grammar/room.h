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
    IGNIS__GRAMMAR_BUCKETS = 4096,
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
    char *source, *text; /* as given; as GBNF, which may be the same pointer */
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

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* grammar.c */
IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE bool ignis__grammar_fail(ignis__grammar *grammar, ignis_diagnostic diagnostic,
                                                    const char *at, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE void *ignis__grammar_add(ignis__grammar *grammar, ignis__list *list);

/* gbnf.c */
IGNIS__PRIVATE bool ignis__grammar_read_gbnf(ignis__grammar *grammar);

/* automaton.c */
IGNIS__PRIVATE bool ignis__grammar_reset_states(ignis__grammar *grammar);
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

/* json_schema.c */
IGNIS__PRIVATE ignis__grammar *ignis__grammar_make(const char *call, const char *source);
