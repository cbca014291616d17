/*  formula - a text becomes a kernel with its gradient; broadcasting and reductions. Knows no tape. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"

/*  A row for each term: its CUDA text, with $a, $b and $c for the arguments and $r for the result; and its
    partial derivatives, NULL for 0. In the derivatives of a choice $d is the argument's own derivative.
    Types: W (w), an integer (i), a truth value (b). Type n is an integer if `integer` is set and all
    arguments are integers, else W. A function with a body is that formula of a, b and c. */
typedef struct ignis__formula_function {
    const char *name;
    int count; /* of arguments */
    char type;
    const char *value, *integer, *partial[2], *body;
} ignis__formula_function;

enum {
    IGNIS__FORMULA_INPUT,
    IGNIS__FORMULA_NUMBER,
    IGNIS__FORMULA_INDEX,
    IGNIS__FORMULA_RAND,
    IGNIS__FORMULA_RANDN,
    IGNIS__FORMULA_SELECT,
    IGNIS__FORMULA_POWER,
    IGNIS__FORMULA_WIDE,
    IGNIS__FORMULA_TRUTH,
    IGNIS__FORMULA_NEG,
    IGNIS__FORMULA_NOT,
    IGNIS__FORMULA_INVERT,
    IGNIS__FORMULA_DIVIDE,
    IGNIS__FORMULA_WHOLE,                                    /* floor, ceil, round and trunc of one value */
    IGNIS__FORMULA_WHOLE_QUOTIENT = IGNIS__FORMULA_WHOLE + 4 /* and of the quotient of two integers */
};

struct ignis__formula_constants_type {
    const char *name, *value;
};

#define IGNIS__FORMULA_TERMS 1000
#define IGNIS__FORMULA_NAMES 300
#define IGNIS__FORMULA_DEPTH 60
#define IGNIS__FORMULA_LENGTH 16384
#define IGNIS__FORMULA_INDICES 8 /* limit of index(d), and of random numbers */
typedef struct ignis__formula_term {
    short function, arg[3];
    char type;    /* w, i or b */
    short length; /* of text */
    /* An input's index; an integer; the exponent of a power; the dimension of an index; the number of a
       random number. */
    int64_t number;
    const char *text; /* of a number of type w; NULL: it is `number` */
} ignis__formula_term;

typedef struct ignis__formula_name {
    const char *text;
    size_t length;
    int term;
} ignis__formula_name;

/*  A formula while it is parsed. After the first error every token is the end. */
typedef struct ignis__formula_parser {
    const char *text;
    size_t at, start; /* after the current token; its start */
    /* Of the current token: a name (a), a number (0), an operator (+), the end (0). */
    char kind;
    int tokens, depth;
    bool inside;           /* the body of a function */
    int inputs, gradients; /* inputs of the formula; gradients that it is of, the outermost first */
    int name_first, name_count, term_count, result_count, randoms;
    int result[IGNIS_MAX_INPUTS];
    ignis__formula_name name[IGNIS__FORMULA_NAMES];
    ignis__formula_term term[IGNIS__FORMULA_TERMS];
    size_t column;
    char fault[400];
} ignis__formula_parser;

/*  The way out after a name that formulas do not have: "; it is pi", or "". */
typedef struct ignis__formula_hint {
    char text[120];
} ignis__formula_hint;

/*  The kinds of an input of a kernel. UNUSED: the kernel does not read it. */
enum {
    IGNIS__FORMULA_UNUSED,
    IGNIS__FORMULA_LINEAR,
    IGNIS__FORMULA_ONE,
    IGNIS__FORMULA_VALUE,
    IGNIS__FORMULA_ROW,
    IGNIS__FORMULA_COLUMN
};

#define IGNIS__FORMULA_THREADS 128
typedef struct ignis__formula_spec {
    /* Inputs whose gradients are the results; 0: the results are the formula's values. The incoming gradient
       is input `count`. */
    uint16_t needed;
    uint16_t reduced; /* bits of results */
    uint16_t result;  /* the result of the formula that is first, or differentiated */
    uint16_t mode, reduction, team, rank, pack, packs_per_thread, whole, wide, half;
    uint16_t parts; /* rows or columns are in chunks, which a second kernel combines */
    /* The reduction if something besides its result is saved, or was saved and is input `count` + 1; else 0.
       max and min save the position of the element, logsumexp the result as W, prod see `product`. */
    uint16_t kept;
    uint16_t outs;
    uint16_t dtype[IGNIS_MAX_INPUTS + 2], kind[IGNIS_MAX_INPUTS + 2], out[IGNIS_MAX_INPUTS];
} ignis__formula_spec; /* IGNIS__FORMULA_SPEC numbers of one type */

#define IGNIS__FORMULA_ANY_RANK (IGNIS_MAX_DIMS + 1) /* rank of a kernel for any shape; its last dimension is 1 */
typedef struct ignis__formula_kernel {
    ignis__formula_spec spec;
    ignis__device *device;
    ignis__module module;
    void *function, *finish;                     /* NULL if there are no chunks */
    const struct ignis__formula_kernel *instead; /* used if this one is in no bundle; NULL: this one */
    struct ignis__formula_kernel *next;
} ignis__formula_kernel;

/*  Needs of the gradients of some inputs: the inputs they are computed from, and the inputs whose gradient
    equals the incoming one. */
typedef struct ignis__formula_needs {
    uint32_t needed, used, same; /* further bits of needed: the result; the highest one: with the value */
} ignis__formula_needs;

/*  A parsed formula for one choice of integer inputs. It is kept until ignis_shutdown. */
typedef struct ignis__formula {
    uint64_t hash;
    uint32_t integers;
    int count, term_count, result_count, randoms;
    int result[IGNIS_MAX_INPUTS];
    char *text, *names;
    ignis__formula_term *term;
    ignis__formula_kernel *kernels;
    ignis__formula_needs needs[4]; /* the latest */
    int needs_next;
    struct ignis__formula *next;
} ignis__formula;

struct ignis__formulas_type {
    ignis__mutex lock;
    ignis__formula *first[256];
};

/*  A text that grows. */
typedef struct ignis__formula_text {
    char *data;
    size_t length, capacity;
    bool failed;
} ignis__formula_text;

/*  Lines of a formula while they are written. used: terms that have a name. partial, by term and input: 0, 1,
    or 2 + the term whose line holds it. guarded, by the same: a choice may have made the derivative 0, and
    then it stays 0 in every product. */
typedef struct ignis__formula_lines {
    const ignis__formula *formula;
    ignis__formula_text text;
    unsigned char *used, *guarded;
    short *partial;
    uint32_t exact; /* bits of inputs that are also needed as f64 */
} ignis__formula_lines;

/*  How a kernel uses the elements: each one is a result; or they are reduced along rows of packs, or down
    columns of packs. */
enum { IGNIS__FORMULA_EACH, IGNIS__FORMULA_ROWS, IGNIS__FORMULA_COLUMNS };

/*  The reductions in the order of ignis_reducer: the initial state in W and in integers, and how two states a
    and b combine. A state has a value v and, if `place` is set, the index i of its element. NaN wins over
    numbers in max and min. */
struct ignis__formula_reductions_type {
    const char *name, *none, *none_integer, *fold;
    bool place;
};

/*  A kernel's text while it is written, and the offsets of its parameter's words. */
typedef struct ignis__formula_writer {
    ignis__formula_text text;
    const ignis__formula *formula;
    const ignis__formula_spec *spec;
    int input[IGNIS_MAX_INPUTS + 2], strides[IGNIS_MAX_INPUTS + 2]; /* of each input */
    int packs; /* number of full packs, then of the elements after the last one */
    int dims;  /* size and divisor of each dimension but the first */
    /* Of reductions: rows, packs of a row, chunks, rows or packs of a chunk, results, memory of the chunks,
       factor, what is saved. */
    int shared;
    /* Of each index(d), and of the saved position: its divisors. */
    int indices;
    int random; /* seed, first counter, address of the launch counter */
    int words;
    uint32_t exact;   /* see ignis__formula_lines */
    bool broadcasts;  /* some inputs are rows or columns */
    const char *type; /* of f's first result, and of what is reduced */
} ignis__formula_writer;

/*  The program of a kernel. */
typedef struct ignis__formula_source {
    ignis__program program;
    ignis__formula_text text, line;
} ignis__formula_source;

/*  One run of a formula: the shapes of its result and of the inputs that are arrays. Input `count` is the
    incoming gradient. */
typedef struct ignis__formula_run {
    ignis__formula *formula;
    ignis_shape shape;
    const ignis_shape *input[IGNIS_MAX_INPUTS + 2]; /* NULL: a value */
    ignis_dtype dtype[IGNIS_MAX_INPUTS + 2];
    ignis__address address[IGNIS_MAX_INPUTS + 2];
    double value[IGNIS_MAX_INPUTS];
    ignis__random random;  /* if the formula has random numbers */
    int result;            /* see ignis__formula_spec */
    uint32_t used, needed; /* bits of inputs */
    uint32_t reduced;      /* bits of results that are reduced to to_shape, which broadcasts to shape */
    int kept;              /* see ignis__formula_spec */
    ignis__address kept_to;
    ignis_reducer reduction;
    const ignis_shape *to_shape;
    double factor; /* of the incoming gradient; number of elements of a mean */
    int outs;
    ignis_dtype out[IGNIS_MAX_INPUTS];
    ignis__address to[IGNIS_MAX_INPUTS];
} ignis__formula_run;

/*  The arrays or tensors among the inputs of a formula: their handles, and indices among all inputs. */
typedef struct ignis__formula_handles {
    uint64_t id[IGNIS_MAX_INPUTS];
    int at[IGNIS_MAX_INPUTS], count;
} ignis__formula_handles;

/*  An array seen as [outer, n, inner]. A sum over the axis leaves [outer, inner]; a broadcast along it starts
    from [outer, inner]. */
typedef struct ignis__axis {
    int64_t outer, n, inner;
} ignis__axis;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* functions.c */
extern const ignis__formula_function ignis__formula_functions[84];
extern const struct ignis__formula_constants_type ignis__formula_constants[4];
IGNIS__COLD IGNIS__PRIVATE ignis__formula_hint ignis__formula_hint_of(const char *name, size_t length);

/* lexer.c */
IGNIS__PRIVATE bool ignis__formula_is_letter(char c);
IGNIS__PRIVATE bool ignis__formula_is_digit(char c);
IGNIS__PRIVATE size_t ignis__formula_name_length(const char *text);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE int ignis__formula_syntax_error(ignis__formula_parser *r, size_t at, const char *format,
                                                           ...);
IGNIS__PRIVATE void ignis__formula_next_token(ignis__formula_parser *parser);
IGNIS__PRIVATE bool ignis__formula_at_token(const ignis__formula_parser *r, const char *sign);
IGNIS__PRIVATE bool ignis__formula_accept(ignis__formula_parser *r, const char *sign);
IGNIS__COLD IGNIS__PRIVATE const char *ignis__formula_token_text(const ignis__formula_parser *r, char *out,
                                                                 size_t size);
IGNIS__PRIVATE void ignis__formula_expect(ignis__formula_parser *r, const char *sign);

/* parse.c */
IGNIS__PRIVATE int ignis__formula_apply(ignis__formula_parser *r, int function, const int *args, int64_t number);
IGNIS__PRIVATE int ignis__formula_power(ignis__formula_parser *r, int x, int64_t n);
IGNIS__PRIVATE int ignis__formula_apply_body(ignis__formula_parser *parser, const char *body, int count,
                                             const int *args);
IGNIS__PRIVATE int ignis__formula_add_leaf(ignis__formula_parser *r, int function, char type, int64_t number,
                                           const char *text, size_t length);
IGNIS__PRIVATE void ignis__formula_parse_program(ignis__formula_parser *parser);
IGNIS__PRIVATE bool ignis__formula_parse_names(const char *text, ignis__formula_name *names, int *count, int capacity);

/* gradient_formula.c */
IGNIS__PRIVATE bool ignis__formula_parse_gradient(ignis__formula_parser *parser);

/* cache.c */
extern struct ignis__formulas_type ignis__formulas;
IGNIS__COLD IGNIS__PRIVATE ignis__formula *ignis__formula_read(ignis__formula_parser *parser, const char *text,
                                                               const char *names, uint64_t hash, int count,
                                                               uint32_t integers);
IGNIS__PRIVATE ignis__formula *ignis__formula_get(const char *call, const char *text, const char *names, int count,
                                                  uint32_t integers);

/* derivative.c */
IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit(ignis__formula_text *text, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_term(ignis__formula_lines *lines, int at);
IGNIS__PRIVATE bool ignis__formula_is_guarded(const ignis__formula_lines *lines, int partial, int input);
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_lines_write(ignis__formula_lines *lines, const ignis__formula *formula,
                                                           int first, int count, uint32_t needed, bool value);
IGNIS__PRIVATE void ignis__formula_lines_free(ignis__formula_lines *lines);
IGNIS__PRIVATE bool ignis__formula_saves_value(int kept);
IGNIS__PRIVATE bool ignis__formula_reduces_wide(int reduction);
IGNIS__PRIVATE bool ignis__formula_needs_get(const char *call, ignis__formula *formula, int result, uint32_t needed,
                                             bool value, ignis__formula_needs *needs);

/* emit.c */
extern const struct ignis__formula_reductions_type ignis__formula_reductions[];
IGNIS__PRIVATE bool ignis__formula_saves_position(const ignis__formula_spec *spec);
IGNIS__PRIVATE int ignis__formula_index_count(const ignis__formula *formula, int *terms);
IGNIS__PRIVATE void ignis__formula_plan_words(ignis__formula_writer *writer);
IGNIS__PRIVATE const char *ignis__formula_result_type(const ignis__formula_writer *w, int k);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_store(ignis__formula_writer *w, int k, int n, bool one,
                                                          const char *index);
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_emit_function(ignis__formula_writer *writer);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_constants(ignis__formula_writer *w);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_packs(ignis__formula_writer *writer, const char *there,
                                                          const char *at);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_emit_rest(ignis__formula_writer *writer, const char *thread);

/* emit_reduce.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_write_kernel(ignis__formula_writer *writer,
                                                            const ignis__formula *formula,
                                                            const ignis__formula_spec *spec);

/* kernel.c */
IGNIS__PRIVATE void ignis__formula_spec_generalize(ignis__formula_spec *spec, int count);
IGNIS__PRIVATE void ignis__formula_source_free(ignis__formula_source *made);
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_source_make(const char *call, const ignis__formula *formula,
                                                           const ignis__formula_spec *spec,
                                                           ignis__formula_source *made);
IGNIS__COLD IGNIS__PRIVATE bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole,
                                                            ignis__string_writer *why);
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE bool ignis__request_variant(const ignis__request *request, int index,
                                                                           ignis__formula_source *made);
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_record(const char *call, const ignis__formula *formula,
                                                      const ignis__formula_spec *spec);
IGNIS__PRIVATE const ignis__formula_kernel *ignis__formula_kernel_find(const ignis__device *device,
                                                                       const ignis__formula *formula,
                                                                       const ignis__formula_spec *spec);
IGNIS__PRIVATE const ignis__formula_kernel *ignis__formula_kernel_get(const char *call, ignis__device *device,
                                                                      ignis__formula *formula,
                                                                      const ignis__formula_spec *spec);
IGNIS__COLD IGNIS__PRIVATE void ignis__formulas_close(const ignis__device *device);

/* broadcast.c */
IGNIS__PRIVATE bool ignis__formula_strides(const ignis_shape *shape, const ignis_shape *array, int64_t *stride);
IGNIS__PRIVATE int ignis__formula_collapse_dims(const ignis_shape *shape, int count,
                                                int64_t stride[][IGNIS__FORMULA_ANY_RANK], int64_t *dim);
IGNIS__PRIVATE ignis__axis ignis__axis_of_dim(const ignis_shape *shape, int dim);
IGNIS__PRIVATE bool ignis__axis_of_broadcast(const ignis_shape *a, const ignis_shape *b, ignis__axis *axis);
IGNIS__PRIVATE int ignis__formula_choose_pack(const ignis__formula_run *run, const ignis__formula_spec *spec,
                                              int widest, int64_t multiple);
IGNIS__PRIVATE void ignis__formula_divisor(int64_t divisor, uint64_t *magic);
IGNIS__PRIVATE void ignis__formula_coordinate_divisor(int64_t inner, int64_t n, uint64_t *magic);

/* launch.c */
IGNIS__PRIVATE void ignis__formula_record_run(const char *call, const ignis__formula_run *run);
IGNIS__PRIVATE bool ignis__formula_is_available(const char *call, const ignis__device *device,
                                                const ignis__formula_run *run);
IGNIS__PRIVATE bool ignis__formula_launch(const ignis__work *work, const ignis__formula_run *run);

/* reduce.c */
IGNIS__PRIVATE bool ignis__formula_needs_neighbours(const ignis__formula_run *run);
IGNIS__PRIVATE bool ignis__formula_reduce(const ignis__work *work, ignis__formula_run *run);
IGNIS__PRIVATE bool ignis__formula_reduce_empty(const char *call, ignis_reducer reducer, double *value);
IGNIS__PRIVATE bool ignis__formula_check_reducer(const char *call, ignis_reducer reducer);

/* inputs.c */
IGNIS__PRIVATE ignis_dtype ignis__formula_result_dtype(const ignis__formula_run *run, int result);
IGNIS__PRIVATE uint64_t ignis__value_make(double value);
IGNIS__PRIVATE bool ignis__formula_begin(const char *call, const char *formula, const char *names, int count,
                                         const uint64_t *handles, ignis__formula_run *run,
                                         ignis__formula_handles *found);
IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_has_no_shape(const char *call);
IGNIS__PRIVATE bool ignis__formula_prepare(const ignis__work *work, const char *formula, const char *names, int count,
                                           int results, ignis__formula_run *run);

/* array.c */
IGNIS__PRIVATE ignis_status ignis__formula_run_into(const char *call, int count, const ignis_array *dsts,
                                                    const char *formula, const ignis_array_inputs *inputs);
IGNIS__PRIVATE bool ignis__formula_check_count(const char *call, int count, const void *results);
