/* ===============================================================================================================
   >>chat - chat templates: a small Jinja, bounded in steps, depth and output.
   =============================================================================================================== */

/*  A template is read once into nodes, which are then walked. Everything lies in one arena. Text carries a mark for each byte: 1 where it came from
    the caller's messages or variables, so that ignis_chat_encode can tell what a message says from what the template says. Operations keep
    marks; where it is not clear which byte is whose, the result is marked. */

#ifndef IGNIS__CHAT_STEPS
#define IGNIS__CHAT_STEPS 20000000   /* nodes walked, items, pieces written, 4 characters looked at, 64 bytes copied or compared */
#define IGNIS__CHAT_MEMORY 268435456 /* bytes of the arena */
#endif
#define IGNIS__CHAT_DEPTH 250    /* nodes inside nodes while they are walked: the C stack */
#define IGNIS__CHAT_NESTING 80   /* nodes inside nodes of the template's text */
#define IGNIS__CHAT_RANGE 100000 /* as jinja2's sandbox */

/* --- values ------------------------------------------------------------------------------------------------------- */

typedef enum ignis__chat_kind {
    IGNIS__CHAT_ABSENT, /* an argument that is not given */
    IGNIS__CHAT_UNDEFINED,
    IGNIS__CHAT_NONE,
    IGNIS__CHAT_BOOL,
    IGNIS__CHAT_INT,
    IGNIS__CHAT_FLOAT,
    IGNIS__CHAT_STRING,
    IGNIS__CHAT_LIST, /* from here to GENERATOR: items */
    IGNIS__CHAT_TUPLE,
    IGNIS__CHAT_RANGE_OF,
    IGNIS__CHAT_KEYS,
    IGNIS__CHAT_VALUES,
    IGNIS__CHAT_ITEMS,
    IGNIS__CHAT_GENERATOR, /* can be walked once */
    IGNIS__CHAT_DICT,      /* items: key, value, key, value ... */
    IGNIS__CHAT_NAMESPACE, /* the same */
    IGNIS__CHAT_LOOP,
    IGNIS__CHAT_MACRO,
    IGNIS__CHAT_FUNCTION, /* of the table; a method has an object */
    IGNIS__CHAT_KINDS
} ignis__chat_kind;

static const char *const ignis__chat_kinds[] = {"",     "Undefined", "NoneType",    "bool",      "int",         "float",      "str",
                                                "list", "tuple",     "range",       "dict_keys", "dict_values", "dict_items", "generator",
                                                "dict", "Namespace", "LoopContext", "Macro",     "function"};

typedef struct ignis__chat_value {
    unsigned char kind;
    unsigned char of;  /* undefined: the kind of what lacks it, 0 for a variable. A string: 1 behind |safe */
    bool mark;         /* of what is no string: it came from the caller */
    int64_t number;    /* a bool, an int; the bytes of a string, or of the name of what is undefined; the row of a function */
    const char *marks; /* of a string: one for each byte; null: none is marked */
    union {
        double real;
        const char *text; /* a string; the name of what is undefined */
        struct ignis__chat_items *items;
        struct ignis__chat_loop *loop;
        struct ignis__chat_macro *macro;
        struct ignis__chat_value *object;
    } u;
} ignis__chat_value;

typedef struct ignis__chat_items {
    ignis__chat_value *item;
    int64_t count, capacity;
    int64_t at; /* of a generator: those before it are gone */
} ignis__chat_items;

/*  Text that is being written. */
typedef struct ignis__chat_writer {
    char *text, *marks;
    size_t size, capacity;
} ignis__chat_writer;

typedef struct ignis__chat_scope {
    struct ignis__chat_scope *outer;
    ignis__chat_items names; /* name, value ... */
} ignis__chat_scope;

/* --- nodes -------------------------------------------------------------------------------------------------------- */

typedef enum ignis__chat_op {
    IGNIS__CHAT_CONST,
    IGNIS__CHAT_NAME,
    IGNIS__CHAT_ITEMS_OF, /* sign: the kind, of list, tuple or dict; list: the items, of a dict key, value ... */
    IGNIS__CHAT_ITEM,     /* a[b] */
    IGNIS__CHAT_SLICE,    /* a[list] */
    IGNIS__CHAT_ATTRIBUTE,
    IGNIS__CHAT_CALL, /* a(list) */
    IGNIS__CHAT_FILTER,
    IGNIS__CHAT_TEST,
    IGNIS__CHAT_UNARY,
    IGNIS__CHAT_CHOICE,  /* a if b else c */
    IGNIS__CHAT_CAPTURE, /* what the statements of b write */
    IGNIS__CHAT_BINARY,
    IGNIS__CHAT_COMPARE, /* a, then list, whose nodes have the operators */
    IGNIS__CHAT_TEXT,    /* statements from here on */
    IGNIS__CHAT_PRINT,
    IGNIS__CHAT_IF,  /* list: branches, each a condition (a) and a body (b) */
    IGNIS__CHAT_FOR, /* for a in b if c; list: the body, then d: that of else */
    IGNIS__CHAT_SET,
    IGNIS__CHAT_SET_BLOCK,
    IGNIS__CHAT_MACRO_OF,   /* list: its parameters; b: its body, in which sign: `caller` is named */
    IGNIS__CHAT_CALL_BLOCK, /* a: a call, which is given the macro b */
    IGNIS__CHAT_BLOCK,      /* a scope of its own */
    IGNIS__CHAT_BREAK,
    IGNIS__CHAT_CONTINUE,
} ignis__chat_op;

typedef struct ignis__chat_node {
    unsigned char op, sign; /* sign: which operator, or which kind */
    size_t at;              /* in the template */
    struct ignis__chat_node *a, *b, *c, *list, *last, *next;
    ignis__chat_value value; /* a constant; the name of a variable, attribute, filter or test; the name of a keyword argument */
} ignis__chat_node;

typedef struct ignis__chat_macro {
    const ignis__chat_node *node;
    ignis__chat_scope *scope;
} ignis__chat_macro;

typedef struct ignis__chat_loop {
    const ignis__chat_node *node;
    ignis__chat_scope *outer;
    ignis__chat_items *items;       /* as they come, before the loop's condition */
    int64_t next, end, index, base; /* the next one of them; how many have come out; how many had when `end` was set */
    bool filtered, peeked;          /* the next item is known */
    ignis__chat_value before, now, after;
} ignis__chat_loop;

typedef struct ignis__chat_chunk {
    struct ignis__chat_chunk *next;
    size_t size, used;
} ignis__chat_chunk;

/*  A template being read and walked. After the first fault every token is the end, and nothing is walked any more. */
typedef struct ignis__chat {
    ignis__chat_chunk *chunk;
    size_t memory;
    int64_t now;      /* seconds since 1970; 0: ask the clock */
    const char *text; /* the template, whose lines end with \n alone */
    size_t size, at;  /* behind the current token */
    size_t start;     /* of the current token */
    char kind; /* a name (a), an integer (0), a number (.), a string ("), an operator (+), the end of a tag (E), of the template (0) */
    char tag;  /* which one is read: { or % */
    int brackets, nesting, loops;
    bool line_start; /* what was read last ended a line */
    bool caller;     /* the macro that is being read names it */
    int64_t steps;
    int depth;
    size_t here; /* of the node that is walked */
    ignis__chat_scope *scope;
    ignis__chat_writer *out;
    ignis_diagnostic fault; /* 0: none */
    size_t fault_at;
    ignis__chat_node spare; /* nodes made after a fault */
    char message[600];
} ignis__chat;

IGNIS__PRINTF(4, 5)
IGNIS__COLD static ignis__chat_value ignis__chat_fault(ignis__chat *c, ignis_diagnostic diagnostic, size_t at, const char *format, ...)
{
    ignis__chat_value undefined;
    va_list args;
    memset(&undefined, 0, sizeof undefined);
    undefined.kind = IGNIS__CHAT_UNDEFINED;
    if (!c->fault) {
        va_start(args, format);
        vsnprintf(c->message, sizeof c->message, format, args);
        va_end(args);
        c->fault = diagnostic;
        c->fault_at = at;
        c->kind = 0;
    }
    return undefined;
}
#define ignis__chat_fail(c, ...) ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, (c)->here, __VA_ARGS__)
#define ignis__chat_lacks(c, ...) ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, (c)->here, __VA_ARGS__)

/*  Counts work; false when there was too much of it, or a fault. */
static bool ignis__chat_work(ignis__chat *c, int64_t steps)
{
    c->steps += steps;
    if (c->steps > IGNIS__CHAT_STEPS)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d steps", IGNIS__CHAT_STEPS);
    return !c->fault;
}

/*  Memory of the arena, zeroed; null after a fault. */
static void *ignis__chat_alloc(ignis__chat *c, size_t size)
{
    ignis__chat_chunk *chunk = c->chunk;
    void *memory;
    size = (size + 15) / 16 * 16;
    if (c->fault)
        return NULL;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > 32768 ? size : 32768, head = (sizeof *chunk + 15) / 16 * 16;
        if (size > IGNIS__CHAT_MEMORY || c->memory + room > IGNIS__CHAT_MEMORY) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d bytes of memory", IGNIS__CHAT_MEMORY);
            return NULL;
        }
        chunk = (ignis__chat_chunk *)ignis__alloc(head + room);
        if (!chunk) {
            ignis__chat_fault(c, IGNIS_DIAG_HOST_MEMORY, c->here, "out of host memory: %lld bytes were requested",
                              (long long)(head + room));
            return NULL;
        }
        chunk->size = head + room;
        chunk->used = head;
        chunk->next = c->chunk;
        c->chunk = chunk;
        c->memory += room;
    }
    memory = (char *)chunk + chunk->used;
    chunk->used += size;
    return memory;
}
