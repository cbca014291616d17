/*  models/chat - chat templates. */
#pragma once

#include "../../base/room.h"
#include "../../formula/room.h"
#include "../tokenizer/room.h"

#ifndef IGNIS__CHAT_STEPS
#define IGNIS__CHAT_STEPS \
    20000000 /* evaluated nodes, items, written pieces, 4 characters read, 64 bytes copied or compared */
#define IGNIS__CHAT_MEMORY 268435456 /* bytes of the arena */
#endif

#define IGNIS__CHAT_DEPTH 250    /* nested nodes during evaluation: bounded by the C stack */
#define IGNIS__CHAT_NESTING 80   /* nested nodes in the template's text */
#define IGNIS__CHAT_RANGE 100000 /* the limit of jinja2's sandbox */
typedef enum ignis__chat_kind {
    IGNIS__CHAT_ABSENT, /* an argument that was not given */
    IGNIS__CHAT_UNDEFINED,
    IGNIS__CHAT_NONE,
    IGNIS__CHAT_BOOL,
    IGNIS__CHAT_INT,
    IGNIS__CHAT_FLOAT,
    IGNIS__CHAT_STRING,
    IGNIS__CHAT_LIST, /* from here to GENERATOR: kinds with items */
    IGNIS__CHAT_TUPLE,
    IGNIS__CHAT_RANGE_OF,
    IGNIS__CHAT_KEYS,
    IGNIS__CHAT_VALUES,
    IGNIS__CHAT_ITEMS,
    IGNIS__CHAT_GENERATOR, /* can be iterated once */
    IGNIS__CHAT_DICT,      /* items: key, value, key, value ... */
    IGNIS__CHAT_NAMESPACE, /* as DICT */
    IGNIS__CHAT_LOOP,
    IGNIS__CHAT_MACRO,
    IGNIS__CHAT_FUNCTION, /* a row of the table; methods have an object */
    IGNIS__CHAT_KINDS
} ignis__chat_kind;

typedef struct ignis__chat_value {
    unsigned char kind;
    unsigned char of; /* undefined: the kind of its object, 0 for a variable. A string: 1 after |safe */
    bool mark;        /* not for strings: the value came from the caller */
    int64_t number; /* a bool; an int; bytes of a string, or of the name of an undefined value; the row of a function */
    const char *marks; /* of a string: one per byte; NULL if none is marked */
    union {
        double real;
        const char *text; /* a string; the name of an undefined value */
        struct ignis__chat_items *items;
        struct ignis__chat_loop *loop;
        struct ignis__chat_macro *macro;
        struct ignis__chat_value *object;
    } u;
} ignis__chat_value;

typedef struct ignis__chat_items {
    ignis__chat_value *item;
    int64_t count, capacity;
    int64_t at; /* of a generator: items before it are consumed */
} ignis__chat_items;

/*  An output that grows. */
typedef struct ignis__chat_writer {
    char *text, *marks;
    size_t size, capacity;
} ignis__chat_writer;

typedef struct ignis__chat_scope {
    struct ignis__chat_scope *outer;
    ignis__chat_items names; /* name, value ... */
} ignis__chat_scope;

typedef enum ignis__chat_op {
    IGNIS__CHAT_CONST,
    IGNIS__CHAT_NAME,
    IGNIS__CHAT_ITEMS_OF, /* sign: LIST, TUPLE or DICT; list: the items, of a dict key, value ... */
    IGNIS__CHAT_ITEM,     /* a[b] */
    IGNIS__CHAT_SLICE,    /* a[list] */
    IGNIS__CHAT_ATTRIBUTE,
    IGNIS__CHAT_CALL, /* a(list) */
    IGNIS__CHAT_FILTER,
    IGNIS__CHAT_TEST,
    IGNIS__CHAT_UNARY,
    IGNIS__CHAT_CHOICE,  /* a if b else c */
    IGNIS__CHAT_CAPTURE, /* the output of the statements in b */
    IGNIS__CHAT_BINARY,
    IGNIS__CHAT_COMPARE, /* a, then list, whose nodes have the operators */
    IGNIS__CHAT_TEXT,    /* statements from here on */
    IGNIS__CHAT_PRINT,
    IGNIS__CHAT_IF,  /* list: branches, each a condition (a) and a body (b) */
    IGNIS__CHAT_FOR, /* for a in b if c; list: the body; d: the body of else */
    IGNIS__CHAT_SET,
    IGNIS__CHAT_SET_BLOCK,
    IGNIS__CHAT_MACRO_OF,   /* list: its parameters; b: its body; sign: 1 if the body names `caller` */
    IGNIS__CHAT_CALL_BLOCK, /* a: a call; b: the macro passed to it */
    IGNIS__CHAT_BLOCK,      /* a scope */
    IGNIS__CHAT_BREAK,
    IGNIS__CHAT_CONTINUE,
} ignis__chat_op;

typedef struct ignis__chat_node {
    unsigned char op, sign; /* sign: the operator, or the kind */
    size_t at;              /* place in the template */
    struct ignis__chat_node *a, *b, *c, *list, *last, *next;
    ignis__chat_value value; /* a constant; the name of a variable, attribute, filter, test or keyword argument */
} ignis__chat_node;

typedef struct ignis__chat_macro {
    const ignis__chat_node *node;
    ignis__chat_scope *scope;
} ignis__chat_macro;

typedef struct ignis__chat_loop {
    const ignis__chat_node *node;
    ignis__chat_scope *outer;
    ignis__chat_items *items;       /* in order, before the loop's condition is applied */
    int64_t next, end, index, base; /* the next item; items passed on; items passed on when `end` was set */
    bool filtered, peeked;          /* peeked: the next item is known */
    ignis__chat_value before, now, after;
} ignis__chat_loop;

typedef struct ignis__chat_chunk {
    struct ignis__chat_chunk *next;
    size_t size, used;
} ignis__chat_chunk;

/*  A template that is parsed and evaluated. After the first fault every token is the end, and evaluation
    stops. */
typedef struct ignis__chat {
    ignis__chat_chunk *chunk;
    size_t memory;
    int64_t now;      /* seconds since 1970; 0: ask the clock */
    const char *text; /* the template, with line ends of \n alone */
    size_t size, at;  /* at: the end of the current token */
    size_t start;     /* the begin of the current token */
    /* a name (a), an integer (0), a number (.), a string ("), an operator (+), the end of a tag (E) or of the
       template (0) */
    char kind;
    char tag; /* the kind of the current tag: { or % */
    int brackets, nesting, loops;
    bool line_start; /* the last token ended a line */
    bool caller;     /* the macro that is being parsed names it */
    int64_t steps;
    int depth;
    size_t here; /* place of the node that is evaluated */
    ignis__chat_scope *scope;
    ignis__chat_writer *out;
    ignis_diagnostic fault; /* 0: none */
    size_t fault_at;
    ignis__chat_node spare; /* returned for nodes made after a fault */
    char message[600];
} ignis__chat;

#define ignis__chat_fail(chat, ...) ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, (chat)->here, __VA_ARGS__)
#define ignis__chat_fail_unsupported(chat, ...) \
    ignis__chat_fault(chat, IGNIS_DIAG_UNSUPPORTED, (chat)->here, __VA_ARGS__)

/*  Options of json.dumps. */
typedef struct ignis__chat_json {
    ignis__chat_value indent, separators[2];
    bool ascii, sort, pretty;
} ignis__chat_json;

/*  Binary operators and their precedence. 3 is `not`; those of 4 are chained. */
struct ignis__chat_operators_type {
    const char *text;
    char level, sign;
};

/*  The arguments of a call. */
typedef struct ignis__chat_call {
    ignis__chat_value self; /* the object of a method, filter or test */
    ignis__chat_items given, named;
    ignis__chat_value value[6]; /* arguments in the order of the row's parameters */
    int how;                    /* `how` of the row */
} ignis__chat_call;

/*  A filter, test, method or function. */
typedef struct ignis__chat_row {
    const char *of;         /* f: filters, t: tests, s d: methods of a string or dict, g: functions */
    const char *names;      /* separated by spaces */
    const char *parameters; /* names, a ! before required ones; NULL: the function reads the call itself */
    ignis__chat_value (*run)(ignis__chat *chat, ignis__chat_call *call);
    int how;
} ignis__chat_row;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* template.c */
extern const char *const ignis__chat_kinds[];
IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE ignis__chat_value ignis__chat_fault(ignis__chat *chat, ignis_diagnostic diagnostic,
                                                               size_t at, const char *format, ...);
IGNIS__PRIVATE bool ignis__chat_work(ignis__chat *chat, int64_t steps);
IGNIS__PRIVATE void *ignis__chat_alloc(ignis__chat *chat, size_t size);

/* value.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_make(ignis__chat_kind kind, int64_t number);
IGNIS__PRIVATE ignis__chat_value ignis__chat_bool(bool yes);
IGNIS__PRIVATE ignis__chat_value ignis__chat_real(double real);
IGNIS__PRIVATE ignis__chat_value ignis__chat_string(const char *text, size_t size, const char *marks);
IGNIS__PRIVATE ignis__chat_value ignis__chat_words(const char *text);
IGNIS__PRIVATE ignis__chat_value ignis__chat_part(ignis__chat_value string, size_t from, size_t to);
IGNIS__PRIVATE bool ignis__chat_is(ignis__chat_value value, const char *text);
IGNIS__PRIVATE bool ignis__chat_in_words(const char *words, const char *text, int64_t size);
IGNIS__PRIVATE ignis__chat_value ignis__chat_new(ignis__chat *chat, ignis__chat_kind kind);
IGNIS__PRIVATE void ignis__chat_add(ignis__chat *chat, ignis__chat_items *items, ignis__chat_value value);
IGNIS__PRIVATE void ignis__chat_add_all(ignis__chat *chat, ignis__chat_items *items, const ignis__chat_items *more);
IGNIS__PRIVATE bool ignis__chat_reserve(ignis__chat *chat, ignis__chat_writer *out, size_t capacity);
IGNIS__PRIVATE void ignis__chat_write(ignis__chat *chat, ignis__chat_writer *out, const char *text, size_t size,
                                      const char *marks, bool mark);
IGNIS__PRIVATE void ignis__chat_write_string(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value string);
IGNIS__PRIVATE void ignis__chat_write_words(ignis__chat *chat, ignis__chat_writer *out, const char *text, bool mark);
IGNIS__PRIVATE ignis__chat_value ignis__chat_writer_value(const ignis__chat_writer *out);
IGNIS__PRIVATE size_t ignis__chat_before(const char *text, size_t at);
IGNIS__PRIVATE uint32_t ignis__chat_code(const char *text);
IGNIS__PRIVATE int64_t ignis__chat_characters(ignis__chat *chat, ignis__chat_value string);
IGNIS__PRIVATE bool ignis__chat_is_space(const char *text);
IGNIS__PRIVATE size_t ignis__chat_line_end(const char *text, size_t left);
IGNIS__PRIVATE bool ignis__chat_is_marked(ignis__chat_value value);
IGNIS__COLD IGNIS__PRIVATE ignis__chat_value ignis__chat_fail_kind(ignis__chat *chat, const char *what,
                                                                   ignis__chat_value value);
IGNIS__PRIVATE size_t ignis__chat_character(const char *text);
IGNIS__PRIVATE bool ignis__chat_is_number(ignis__chat_value v);
IGNIS__PRIVATE bool ignis__chat_has_items(ignis__chat_value v);
IGNIS__PRIVATE bool ignis__chat_is_whole(ignis__chat_value v);
IGNIS__PRIVATE double ignis__chat_as_real(ignis__chat_value v);
IGNIS__PRIVATE bool ignis__chat_true(ignis__chat_value v);
IGNIS__PRIVATE bool ignis__chat_equal(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b);
IGNIS__PRIVATE bool ignis__chat_less(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b, bool or_equal);
IGNIS__PRIVATE ignis__chat_value ignis__chat_sorted(ignis__chat *chat, const ignis__chat_items *items,
                                                    const ignis__chat_items *keys, bool reverse);
IGNIS__PRIVATE int64_t ignis__chat_find(ignis__chat *chat, const ignis__chat_items *items, ignis__chat_value key);
IGNIS__PRIVATE void ignis__chat_put(ignis__chat *chat, ignis__chat_items *items, ignis__chat_value key,
                                    ignis__chat_value value);
IGNIS__PRIVATE void ignis__chat_put_all(ignis__chat *chat, ignis__chat_items *items, const ignis__chat_items *from);
IGNIS__PRIVATE bool ignis__chat_hashable(ignis__chat *chat, ignis__chat_value key);
IGNIS__PRIVATE bool ignis__chat_iterate(ignis__chat *chat, ignis__chat_value v, ignis__chat_items *out);
IGNIS__PRIVATE ignis__needle ignis__chat_needle_of(ignis__chat *chat, ignis__chat_value part, bool back);
IGNIS__PRIVATE const char *ignis__chat_search(ignis__chat *chat, const char *text, size_t size,
                                              const ignis__needle *needle);

/* repr.c */
IGNIS__PRIVATE bool ignis__chat_read_real(const char *text, size_t size, double *real);
IGNIS__PRIVATE bool ignis__chat_read_int(ignis__chat *chat, const char *text, size_t size, int64_t *number);
IGNIS__PRIVATE void ignis__chat_write_value(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value v,
                                            const ignis__chat_json *json, bool quoted, int depth);
IGNIS__PRIVATE ignis__chat_value ignis__chat_text(ignis__chat *chat, ignis__chat_value v);

/* lexer.c */
IGNIS__PRIVATE size_t ignis__chat_skip_space(const ignis__chat *chat, size_t at);
IGNIS__PRIVATE bool ignis__chat_at(const ignis__chat *chat, size_t at, const char *sign);
IGNIS__PRIVATE bool ignis__chat_tag_end(ignis__chat *chat, size_t at, char tag);
IGNIS__PRIVATE void ignis__chat_next_token(ignis__chat *chat);
IGNIS__PRIVATE bool ignis__chat_is_word(const ignis__chat *chat, const char *word);
IGNIS__PRIVATE bool ignis__chat_accept(ignis__chat *chat, const char *word);
IGNIS__PRIVATE bool ignis__chat_follows(const ignis__chat *chat, const char *sign);
IGNIS__PRIVATE bool ignis__chat_is_listed(const ignis__chat *chat, const char *words);
IGNIS__COLD IGNIS__PRIVATE void ignis__chat_unexpected(ignis__chat *chat, const char *wanted);
IGNIS__PRIVATE void ignis__chat_expect(ignis__chat *chat, const char *sign);
IGNIS__PRIVATE ignis__chat_value ignis__chat_take_word(ignis__chat *chat);

/* parse_expression.c */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_make_node(ignis__chat *chat, ignis__chat_op op, size_t at);
IGNIS__PRIVATE void ignis__chat_nest(ignis__chat *chat);
IGNIS__PRIVATE void ignis__chat_append(ignis__chat_node *node, ignis__chat_node *part);
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_list(ignis__chat *chat, ignis__chat_node *(*read)(ignis__chat *chat),
                                                       bool empty);
IGNIS__PRIVATE void ignis__chat_read_arguments(ignis__chat *chat, ignis__chat_node *call);
IGNIS__PRIVATE ignis__chat_node *ignis__chat_wrap_node(ignis__chat *chat, ignis__chat_op op, size_t at,
                                                       ignis__chat_node *part);
extern const struct ignis__chat_operators_type ignis__chat_operators[];
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_condition(ignis__chat *chat);
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_expression(ignis__chat *chat);

/* parse_statement.c */
IGNIS__PRIVATE ignis__chat_node *ignis__chat_read_body(ignis__chat *chat, const char *ends);

/* eval_attribute.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_undefined(ignis__chat_value object, ignis__chat_value name);
IGNIS__PRIVATE int64_t ignis__chat_loop_length(ignis__chat *chat, ignis__chat_loop *loop);
IGNIS__PRIVATE size_t ignis__chat_offset(ignis__chat *chat, ignis__chat_value string, int64_t character);
IGNIS__PRIVATE bool ignis__chat_find_item(ignis__chat *chat, ignis__chat_value object, ignis__chat_value key,
                                          ignis__chat_value *out);
IGNIS__PRIVATE ignis__chat_value ignis__chat_join_like(ignis__chat *chat, ignis__chat_value other,
                                                       const ignis__chat_items *items);
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_member(ignis__chat *chat, ignis__chat_value object,
                                                         ignis__chat_value key, bool item);
IGNIS__PRIVATE ignis__chat_value ignis__chat_slice(ignis__chat *chat, ignis__chat_value object,
                                                   const ignis__chat_value *bound);

/* eval_operator.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_join_two(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b);
IGNIS__PRIVATE ignis__chat_value ignis__chat_repeat(ignis__chat *chat, ignis__chat_value a, int64_t times);
IGNIS__PRIVATE ignis__chat_value ignis__chat_binary_of(ignis__chat *chat, char op, ignis__chat_value a,
                                                       ignis__chat_value b);
IGNIS__PRIVATE bool ignis__chat_contains(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b);
IGNIS__PRIVATE bool ignis__chat_compares(ignis__chat *chat, char sign, ignis__chat_value a, ignis__chat_value b);

/* eval_statement.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_lookup(ignis__chat *chat, ignis__chat_value name);
IGNIS__PRIVATE ignis__chat_scope *ignis__chat_enter(ignis__chat *chat, ignis__chat_scope *outer);
IGNIS__PRIVATE ignis__chat_value ignis__chat_capture(ignis__chat *chat, const ignis__chat_node *body);
IGNIS__PRIVATE bool ignis__chat_peek(ignis__chat *chat, ignis__chat_loop *loop);
IGNIS__PRIVATE bool ignis__chat_enter_node(ignis__chat *chat, size_t at);
IGNIS__PRIVATE int ignis__chat_run(ignis__chat *chat, const ignis__chat_node *body);

/* eval_expression.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_apply(ignis__chat *chat, char of, ignis__chat_value name,
                                                   ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_call(ignis__chat *chat, const ignis__chat_node *node,
                                                       const ignis__chat_value *caller);
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval(ignis__chat *chat, const ignis__chat_node *node);

/* filter_argument.c */
IGNIS__PRIVATE bool ignis__chat_is_given(ignis__chat_value v);
IGNIS__PRIVATE bool ignis__chat_want_text(ignis__chat *chat, ignis__chat_value v);
IGNIS__PRIVATE int64_t ignis__chat_want_int(ignis__chat *chat, ignis__chat_value v, int64_t otherwise);
IGNIS__PRIVATE void ignis__chat_split(ignis__chat *chat, ignis__chat_value s, ignis__chat_value by, int64_t limit,
                                      bool right, ignis__chat_items *out);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_strip(ignis__chat *chat, ignis__chat_call *call);

/* case_mapping.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_case(ignis__chat *chat, ignis__chat_call *call);

/* filter_string.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_split(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_lines(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_affix(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_replace(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_find(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_find_path(ignis__chat *chat, ignis__chat_value item,
                                                       ignis__chat_value path, ignis__chat_value otherwise, bool fold);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_join(ignis__chat *chat, ignis__chat_call *call);

/* filter_list.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_length(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_end(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_extreme(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_list(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_pairs(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_get(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_default(ignis__chat *chat, ignis__chat_call *call);

/* filter_format.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_text(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_number(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_format(ignis__chat *chat, ignis__chat_value format,
                                                    ignis__chat_value values);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_format(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_indent(ignis__chat *chat, ignis__chat_call *call);

/* filter_map.c */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_map(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_sort(ignis__chat *chat, ignis__chat_call *call);
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_tojson(ignis__chat *chat, ignis__chat_call *call);

/* filter_table.c */
IGNIS__PRIVATE int ignis__chat_row_find(ignis__chat *chat, char of, ignis__chat_value name);
IGNIS__PRIVATE const ignis__chat_row *ignis__chat_row_at(int64_t row);

/* render.c */
IGNIS__PRIVATE void ignis__chat_close(ignis__chat *chat);
IGNIS__PRIVATE bool ignis__chat_render(ignis__chat *chat, const char *call, const char *text,
                                       const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                       ignis__tokenizer *tokenizer, ignis__chat_writer *out);
