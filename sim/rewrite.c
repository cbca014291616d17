// SPDX-License-Identifier: MIT
/*  rewrite.c - turns preprocessed CUDA C++ into C++ that compiles after shim.h

    It is a lexer and a rough parser of declarations; the rest of C++ is left to the compiler. Five things change:

        __global__ void k(...)          becomes a plain function, and a table at the end of the file lists the kernels
        __shared__ T x[n];              static, one per OS thread, filled with 0xFF in every block
        extern __shared__ T x[];        a pointer to the block's dynamic shared memory
        asm("cvt.rn.f16.f32 ..." ...)   a call of sim_ptx_cvt_rn_f16_f32
        extern "C" __constant__ T x;    extern "C" { T x; }, because CUDA defines x here and C++ would only declare it

    It also finds the kernels that can never wait for another thread: neither their body, nor any function that it calls
    by name, mentions one of the names that wait. The executor runs those as a plain loop. In doubt a kernel counts as
    waiting.

    Line markers and line ends are kept, so that every message names the line of the kernel's own file.
*/
#define _GNU_SOURCE
#include "rewrite.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------- buffers */

void sim_append(sim_buffer *b, const char *text, size_t length)
{
    if (b->length + length + 1 > b->capacity) {
        b->capacity = 2 * (b->length + length) + 256;
        b->text = realloc(b->text, b->capacity);
        if (!b->text)
            abort();
    }
    memcpy(b->text + b->length, text, length);
    b->length += length;
    b->text[b->length] = 0;
}

void sim_print(sim_buffer *b, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = malloc((size_t)n + 1);
    if (!text)
        abort();
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    sim_append(b, text, (size_t)n);
    free(text);
}

/* --------------------------------------------------------------------------------------------------- tokens */

typedef enum token_kind { T_IDENTIFIER, T_NUMBER, T_STRING, T_CHARACTER, T_PUNCTUATION, T_END } token_kind;

typedef struct token {
    const char *at;
    size_t length;
    token_kind kind;
} token;

/* A declaration at namespace level. */
typedef enum chunk_kind { C_FUNCTION, C_TYPE, C_OTHER } chunk_kind;
enum { TAINT_WAITS = 1, TAINT_SHARED = 2, TAINT_SPINS = 4, TAINT_ASYNC = 8, TAINT_ALL = 15 };

typedef struct chunk {
    int begin, end; /* tokens; end is one after the last */
    int name;       /* token; -1 if there is none */
    chunk_kind kind;
    int is_kernel, is_function, is_template, is_static, has_body, extern_c;
    int instantiation; /* explicit instantiation of name<...> */
    char *qualified;   /* kernels: name with its namespaces */
    unsigned taint;
} chunk;

typedef struct shared_statement {
    int begin, end; /* end: the semicolon */
    int is_extern;
} shared_statement;

typedef struct rewriter {
    const char *source;
    token *tokens;
    int token_count, token_capacity;
    chunk *chunks;
    int chunk_count, chunk_capacity;
    shared_statement *shared;
    int shared_count, shared_capacity;
    int *tainted; /* chunks that have any taint */
    int tainted_count, tainted_capacity;
    sim_buffer *out, *asm_names, *errors;
    int failed;
    int entry_count;
} rewriter;

static void *grow(void *items, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 64;
    items = realloc(items, (size_t)*capacity * size);
    if (!items)
        abort();
    return items;
}

static int is(const rewriter *r, int i, const char *text)
{
    const token *t = &r->tokens[i];
    return strlen(text) == t->length && memcmp(t->at, text, t->length) == 0;
}

static int same(const token *a, const token *b)
{
    return a->length == b->length && memcmp(a->at, b->at, a->length) == 0;
}

static const char *skip_quoted(const char *p)
{
    char quote = *p++;
    while (*p && *p != quote)
        p += *p == '\\' && p[1] ? 2 : 1;
    return *p ? p + 1 : p;
}

static const char *skip_raw_string(const char *p) /* at R"delimiter( */
{
    char end[32];
    const char *open = strchr(p, '(');
    if (!open)
        return p + strlen(p);
    snprintf(end, sizeof end, ")%.*s\"", (int)(open - p - 2), p + 2);
    const char *close = strstr(open, end);
    return close ? close + strlen(end) : p + strlen(p);
}

static void add_token(rewriter *r, const char *at, const char *end, token_kind kind)
{
    r->tokens = grow(r->tokens, r->token_count, &r->token_capacity, sizeof *r->tokens);
    r->tokens[r->token_count++] = (token){at, (size_t)(end - at), kind};
}

/* Splits the text into tokens. Text between them (blanks, line markers, pragmas) is copied later. */
static void tokenize(rewriter *r)
{
    const char *p = r->source;
    int line_start = 1;
    while (*p) {
        const char *start = p;
        if (*p == '\n') {
            line_start = 1;
            p++;
            continue;
        }
        if (isspace((unsigned char)*p)) {
            p++;
            continue;
        }
        if (*p == '#' && line_start) {
            p += strcspn(p, "\n");
            continue;
        }
        line_start = 0;
        if (p[0] == 'R' && p[1] == '"')
            add_token(r, start, p = skip_raw_string(p), T_STRING);
        else if (isalpha((unsigned char)*p) || *p == '_') {
            while (isalnum((unsigned char)*p) || *p == '_')
                p++;
            add_token(r, start, p, T_IDENTIFIER);
        } else if (isdigit((unsigned char)*p) || (*p == '.' && isdigit((unsigned char)p[1]))) {
            while (isalnum((unsigned char)*p) || *p == '.' || *p == '\'' ||
                   ((*p == '+' || *p == '-') && strchr("eEpP", p[-1])))
                p++;
            add_token(r, start, p, T_NUMBER);
        } else if (*p == '"' || *p == '\'')
            add_token(r, start, p = skip_quoted(p), *start == '"' ? T_STRING : T_CHARACTER);
        else
            add_token(r, start, ++p, T_PUNCTUATION);
    }
    add_token(r, p, p, T_END);
    r->token_count--;
}

/* Writes "file(line): error: " for a token. */
static void say_error(rewriter *r, int i, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say_error(rewriter *r, int i, const char *format, ...)
{
    char file[256] = "", message[512];
    int line = 1;
    for (const char *p = r->source; p < r->tokens[i].at;) {
        const char *next = p + strcspn(p, "\n") + 1;
        if (*p == '#' && sscanf(p, "# %d \"%255[^\"]\"", &line, file) == 2)
            line--;
        if (next <= r->tokens[i].at)
            line++;
        p = next;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    sim_print(r->errors, "%s(%d): error: %s\n", file, line, message);
    r->failed = 1;
}

/* Returns the token after the bracket that closes the one at i. */
static int skip_brackets(const rewriter *r, int i)
{
    int depth = 0;
    for (; i < r->token_count; i++) {
        if (r->tokens[i].kind != T_PUNCTUATION)
            continue;
        if (strchr("([{", *r->tokens[i].at))
            depth++;
        else if (strchr(")]}", *r->tokens[i].at) && --depth == 0)
            return i + 1;
    }
    return i;
}

static int skip_angles(const rewriter *r, int i)
{
    int depth = 0;
    while (i < r->token_count) {
        if (is(r, i, "(")) {
            i = skip_brackets(r, i);
            continue;
        }
        if (is(r, i, "<"))
            depth++;
        else if (is(r, i, ">") && --depth == 0)
            return i + 1;
        i++;
    }
    return i;
}

/* Tells whether the parentheses after a word are not those of a function's parameters. */
static int takes_arguments(const rewriter *r, int i)
{
    static const char *const words[] = {"__launch_bounds__", "__attribute__", "alignas",  "__align__", "decltype",
                                        "__cluster_dims__",  "__maxnreg__",   "noexcept", "explicit"};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (i >= 0 && is(r, i, words[k]))
            return 1;
    return 0;
}

/* --------------------------------------------------------------------------------------------- declarations */

static int is_type_keyword(const rewriter *r, int i)
{
    return is(r, i, "struct") || is(r, i, "class") || is(r, i, "union") || is(r, i, "enum");
}

static int type_name(const rewriter *r, int i) /* of the struct keyword at i */
{
    for (i++; i < r->token_count; i++) {
        if (takes_arguments(r, i) && is(r, i + 1, "("))
            i = skip_brackets(r, i + 1) - 1;
        else if (is(r, i, "["))
            i = skip_brackets(r, i) - 1;
        else
            return r->tokens[i].kind == T_IDENTIFIER ? i : -1;
    }
    return -1;
}

/* Finds the end of the declaration that begins at token c->begin, its name and its kind. */
static void read_declaration(rewriter *r, chunk *c)
{
    int i = c->begin, parameters = 0, assigned = 0, type = 0;
    c->name = -1;
    c->kind = C_OTHER;
    while (is(r, i, "template")) {
        if (!is(r, i + 1, "<")) {
            c->instantiation = 1;
            i++;
            break;
        }
        c->is_template = 1;
        i = skip_angles(r, i + 1);
    }
    for (; i < r->token_count; i++) {
        if (is(r, i, ";")) {
            i++;
            break;
        }
        if (is(r, i, "}"))
            break;
        if (is(r, i, "{")) {
            i = skip_brackets(r, i) - 1;
            if (parameters && !assigned) {
                c->kind = C_FUNCTION;
                c->has_body = 1;
                i++;
                break;
            }
        } else if (is(r, i, "(")) {
            if (!parameters && !assigned && !takes_arguments(r, i - 1)) {
                parameters = 1;
                if (c->name < 0 || !is(r, c->name, "operator"))
                    c->name = i - 1;
            }
            i = skip_brackets(r, i) - 1;
        } else if (is(r, i, "[")) {
            if (!parameters && !assigned && !type && i > c->begin)
                c->name = i - 1;
            i = skip_brackets(r, i) - 1;
        } else if (is(r, i, "=") && !parameters) {
            if (!assigned && c->name < 0)
                c->name = i - 1;
            assigned = 1;
        } else if (is(r, i, "__global__"))
            c->is_kernel = 1;
        else if (is(r, i, "static"))
            c->is_static = 1;
        else if (is(r, i, "operator") && !parameters)
            c->name = i;
        else if (is_type_keyword(r, i) && !parameters && !assigned) {
            type = 1;
            c->kind = C_TYPE;
            c->name = type_name(r, i);
        }
    }
    c->end = i;
    c->is_function = parameters;
    if (parameters && c->kind != C_FUNCTION)
        c->kind = C_OTHER;
    if (c->name < 0 && i - 2 >= c->begin && r->tokens[i - 2].kind == T_IDENTIFIER)
        c->name = i - 2;
    if (c->instantiation && c->name >= 0 && is(r, c->name, ">")) {
        int depth = 0, k = c->name; /* k<...>( : the name is k */
        for (; k > c->begin; k--) {
            depth += is(r, k, ">") ? 1 : is(r, k, "<") ? -1 : 0;
            if (depth == 0)
                break;
        }
        c->name = k - 1;
    }
}

static char *qualify(const rewriter *r, char **scopes, int depth, int name)
{
    sim_buffer b = {0};
    for (int i = 0; i < depth; i++)
        if (scopes[i][0])
            sim_print(&b, "%s::", scopes[i]);
    sim_append(&b, r->tokens[name].at, r->tokens[name].length);
    return b.text;
}

#define MAX_SCOPES 32

/* Opens a scope, such as `namespace a::b {` or `extern "C" {`. Returns the token after the brace and adds the
   scope's name ("" for none), or returns i if it is something else. */
static int open_scope(const rewriter *r, int i, char **scopes, int *extern_c, int *depth)
{
    int k = i, linkage = is(r, i, "extern") && r->tokens[i + 1].kind == T_STRING && is(r, i + 2, "{");
    sim_buffer name = {0};
    sim_append(&name, "", 0);
    if (is(r, k, "inline") && is(r, k + 1, "namespace"))
        k++;
    if (linkage)
        k += 2;
    else if (is(r, k, "namespace")) {
        for (k++; k < r->token_count && !is(r, k, "{") && !is(r, k, ";") && !is(r, k, "="); k++)
            sim_append(&name, r->tokens[k].at, r->tokens[k].length);
    }
    if (k == i || !is(r, k, "{") || *depth == MAX_SCOPES) {
        free(name.text);
        return i;
    }
    scopes[*depth] = name.text;
    extern_c[(*depth)++] = linkage;
    return k + 1;
}

static void read_declarations(rewriter *r)
{
    char *scopes[MAX_SCOPES];
    int extern_c[MAX_SCOPES], depth = 0, i = 0;
    while (i < r->token_count) {
        int inside = open_scope(r, i, scopes, extern_c, &depth);
        if (inside != i) {
            i = inside;
            continue;
        }
        if (is(r, i, "}") && depth > 0) {
            free(scopes[--depth]);
            i++;
            continue;
        }
        chunk c = {.begin = i};
        read_declaration(r, &c);
        if (c.end <= i)
            c.end = i + 1;
        c.extern_c = is(r, i, "extern") && r->tokens[i + 1].kind == T_STRING;
        for (int k = 0; k < depth; k++)
            c.extern_c |= extern_c[k];
        if (c.is_kernel && c.name >= 0)
            c.qualified = qualify(r, scopes, depth, c.name);
        r->chunks = grow(r->chunks, r->chunk_count, &r->chunk_capacity, sizeof *r->chunks);
        r->chunks[r->chunk_count++] = c;
        i = c.end;
    }
    while (depth > 0)
        free(scopes[--depth]);
}

/* ------------------------------------------------------------------------------------- which kernels can wait */

static int starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* Tells whether a token is a name by which a thread may wait, or spin, for another. */
static int token_waits(const rewriter *r, int i)
{
    static const char *const prefixes[] = {"__sync",     "__shfl",     "__ballot",   "__any_sync",
                                           "__all_sync", "__match_",   "__reduce_",  "__activemask",
                                           "atomicCAS",  "atomicExch", "__nanosleep"};
    const token *t = &r->tokens[i];
    if (t->kind == T_STRING) { /* PTX: every instruction that waits has one of these */
        static const char *const instructions[] = {
            "mma.",    "ldmatrix", "bar.",    "barrier.", "cp.async",  "shfl.",    "redux",      "activemask",
            "acquire", "volatile", "relaxed", "atom.",    "nanosleep", "stmatrix", "setmaxnreg", "cp.reduce"};
        for (size_t k = 0; k < sizeof instructions / sizeof instructions[0]; k++)
            if (memmem(t->at, t->length, instructions[k], strlen(instructions[k])))
                return 1;
        return 0;
    }
    if (t->kind != T_IDENTIFIER)
        return 0;
    for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++)
        if (starts_with(t->at, prefixes[k]))
            return 1;
    return is(r, i, "volatile") && !(i > 0 && (is(r, i - 1, "asm") || is(r, i - 1, "__asm__")));
}

/* Tells whether a token communicates with another block, device or process: ordered loads and stores in PTX,
   and functions of system scope. */
static int token_spins(const rewriter *r, int i)
{
    static const char *const instructions[] = {"ld.acquire", "ld.relaxed",  "ld.volatile", "st.release",
                                               "st.relaxed", "st.volatile", "red.release"};
    static const char scope[] = "_system";
    const token *t = &r->tokens[i];
    for (size_t k = 0; t->kind == T_STRING && k < sizeof instructions / sizeof instructions[0]; k++)
        if (memmem(t->at, t->length, instructions[k], strlen(instructions[k])))
            return 1;
    size_t length = sizeof scope - 1;
    return t->kind == T_IDENTIFIER && t->length > length && !memcmp(t->at + t->length - length, scope, length);
}

/* Tells whether a token belongs to bulk copies, barriers in shared memory or products of warpgroups. */
static int token_is_async(const rewriter *r, int i)
{
    static const char *const instructions[] = {"mbarrier", "wgmma.", "async.bulk", "setmaxnreg"};
    const token *t = &r->tokens[i];
    for (size_t k = 0; t->kind == T_STRING && k < sizeof instructions / sizeof instructions[0]; k++)
        if (memmem(t->at, t->length, instructions[k], strlen(instructions[k])))
            return 1;
    return 0;
}

static unsigned taint_of_name(const rewriter *r, const token *name)
{
    unsigned taint = 0;
    for (int i = 0; i < r->tainted_count; i++) {
        const chunk *c = &r->chunks[r->tainted[i]];
        if (c->name >= 0 && same(name, &r->tokens[c->name]))
            taint |= c->taint;
    }
    return taint;
}

static void add_taint(rewriter *r, int chunk_index, unsigned taint)
{
    if (taint && !r->chunks[chunk_index].taint) {
        r->tainted = grow(r->tainted, r->tainted_count, &r->tainted_capacity, sizeof *r->tainted);
        r->tainted[r->tainted_count++] = chunk_index;
    }
    r->chunks[chunk_index].taint |= taint;
}

/* Taints each declaration with the taint of what it mentions, until nothing changes. */
static void spread_taint(rewriter *r)
{
    int changed = 1;
    for (int i = 0; i < r->chunk_count; i++)
        for (int k = r->chunks[i].begin; k < r->chunks[i].end; k++) {
            if (token_waits(r, k))
                add_taint(r, i, TAINT_WAITS);
            if (is(r, k, "__shared__"))
                add_taint(r, i, TAINT_SHARED);
            if (token_spins(r, k))
                add_taint(r, i, TAINT_SPINS);
            if (token_is_async(r, k))
                add_taint(r, i, TAINT_ASYNC);
        }
    while (changed) {
        changed = 0;
        for (int i = 0; i < r->chunk_count; i++) {
            const chunk *c = &r->chunks[i];
            unsigned taint = c->taint;
            for (int k = c->begin; k < c->end && taint != TAINT_ALL; k++)
                if (r->tokens[k].kind == T_IDENTIFIER)
                    taint |= taint_of_name(r, &r->tokens[k]);
            changed |= taint != c->taint;
            add_taint(r, i, taint);
        }
    }
}

/* ------------------------------------------------------------------------------------------- shared memory */

/* Returns the first token of the declaration that has __shared__ at i. */
static int statement_begin(const rewriter *r, int i)
{
    static const char *const words[] = {"extern", "static", "const", "volatile", "constexpr", "__device__"};
    for (;;) {
        int known = 0;
        if (i > 0)
            for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
                known |= is(r, i - 1, words[k]);
        if (known) {
            i--;
            continue;
        }
        int open = i - 1, depth = 0; /* alignas(16) __shared__ ... */
        if (i == 0 || !is(r, open, ")"))
            return i;
        for (; open > 0; open--) {
            depth += is(r, open, ")") ? 1 : is(r, open, "(") ? -1 : 0;
            if (depth == 0)
                break;
        }
        if (open == 0 || !takes_arguments(r, open - 1))
            return i;
        i = open - 1;
    }
}

static void find_shared_statements(rewriter *r)
{
    for (int i = 0; i < r->token_count; i++) {
        if (!is(r, i, "__shared__"))
            continue;
        shared_statement s = {statement_begin(r, i), i, 0};
        while (s.end < r->token_count && !is(r, s.end, ";"))
            s.end = strchr("([{", *r->tokens[s.end].at) ? skip_brackets(r, s.end) : s.end + 1;
        for (int k = s.begin; k < s.end; k++)
            s.is_extern |= is(r, k, "extern");
        r->shared = grow(r->shared, r->shared_count, &r->shared_capacity, sizeof *r->shared);
        r->shared[r->shared_count++] = s;
        i = s.end;
    }
}

/* Copies the blanks and line markers before token i. */
static void copy_gap(rewriter *r, int i)
{
    const char *from = i ? r->tokens[i - 1].at + r->tokens[i - 1].length : r->source;
    sim_append(r->out, from, (size_t)(r->tokens[i].at - from));
}

static void copy_token(rewriter *r, int i) { sim_append(r->out, r->tokens[i].at, r->tokens[i].length); }

static int inside_braces(const rewriter *r, int i)
{
    int depth = 0;
    for (int c = 0; c < r->chunk_count; c++)
        if (r->chunks[c].begin <= i && i < r->chunks[c].end)
            for (int k = r->chunks[c].begin; k < i; k++)
                depth += is(r, k, "{") ? 1 : is(r, k, "}") ? -1 : 0;
    return depth > 0;
}

static void write_shared_variables(rewriter *r, const shared_statement *s)
{
    sim_buffer fills = {0};
    int angles = 0, fill = inside_braces(r, s->begin);
    copy_gap(r, s->begin);
    sim_print(r->out, "SIM_PER_WORKER ");
    for (int i = s->begin; i <= s->end; i++) {
        if (i > s->begin)
            copy_gap(r, i);
        if (is(r, i, "__shared__") || is(r, i, "static"))
            continue;
        if (strchr("([{", *r->tokens[i].at)) { /* bounds, alignment or a struct's body: without declared names */
            int end = skip_brackets(r, i);
            copy_token(r, i);
            for (i++; i < end; i++) {
                copy_gap(r, i);
                copy_token(r, i);
            }
            i--;
            continue;
        }
        angles += is(r, i, "<") ? 1 : is(r, i, ">") ? -1 : 0;
        if (r->tokens[i].kind == T_IDENTIFIER && angles == 0 && strchr("[,;=", *r->tokens[i + 1].at))
            sim_print(&fills, " SIM_SHARED(%.*s)", (int)r->tokens[i].length, r->tokens[i].at);
        copy_token(r, i);
    }
    if (fill && fills.length)
        sim_append(r->out, fills.text, fills.length);
    free(fills.text);
}

/* Writes extern __shared__ T x[]; as T *const x = (T *)sim_dynamic_shared(); */
static void write_dynamic_shared(rewriter *r, const shared_statement *s)
{
    sim_buffer type = {0};
    int name = -1;
    for (int i = s->begin; i < s->end; i++) {
        if (takes_arguments(r, i) && is(r, i + 1, "("))
            i = skip_brackets(r, i + 1) - 1;
        else if (is(r, i + 1, "[") && is(r, i + 2, "]"))
            name = i, i += 2;
        else if (!is(r, i, "extern") && !is(r, i, "__shared__"))
            sim_print(&type, "%.*s ", (int)r->tokens[i].length, r->tokens[i].at);
    }
    if (name < 0 || !type.length || !inside_braces(r, s->begin))
        say_error(r, s->begin,
                  "the simulator takes extern __shared__ only as \"extern __shared__ T name[];\" inside "
                  "a function");
    else
        sim_print(r->out, " %s*const %.*s = (%s*)sim_dynamic_shared();", type.text, (int)r->tokens[name].length,
                  r->tokens[name].at, type.text);
    for (int i = s->begin; i <= s->end; i++)
        copy_gap(r, i);
    free(type.text);
}

/* ---------------------------------------------------------------------------------------------- inline PTX */

typedef struct asm_operand {
    int is_output;
    char constraint;
    int begin, end; /* tokens of the expression */
} asm_operand;

#define MAX_OPERANDS 160 /* a product of a warpgroup with 256 columns has 137 */

typedef struct asm_statement {
    sim_buffer text; /* the PTX, C escapes resolved */
    asm_operand operands[MAX_OPERANDS];
    int operand_count;
} asm_statement;

static void append_string_literal(sim_buffer *b, const token *t)
{
    for (const char *p = t->at + 1; p < t->at + t->length - 1; p++) {
        char c = *p;
        if (c == '\\' && (p[1] == 'n' || p[1] == 't' || p[1] == 'r'))
            c = ' ', p++;
        else if (c == '\\')
            c = *++p;
        sim_append(b, &c, 1);
    }
}

/* Reads asm ( "text" : "=r"(x), ... : "r"(y), ... : clobbers ) from its parenthesis on. */
static void read_asm(rewriter *r, int i, int end, asm_statement *a)
{
    int section = 0;
    sim_append(&a->text, "", 0);
    while (i < end) {
        if (is(r, i, ":"))
            section++, i++;
        else if (section == 0 && r->tokens[i].kind == T_STRING)
            append_string_literal(&a->text, &r->tokens[i++]);
        else if ((section == 1 || section == 2) && r->tokens[i].kind == T_STRING && is(r, i + 1, "(") &&
                 a->operand_count < MAX_OPERANDS) {
            asm_operand *o = &a->operands[a->operand_count++];
            o->is_output = section == 1;
            o->constraint = r->tokens[i].at[r->tokens[i].length - 2];
            o->begin = i + 2;
            i = skip_brackets(r, i + 1);
            o->end = i - 1;
        } else
            i++;
    }
}

/* Tells whether a modifier only changes how fast or how exact an instruction is, which has no effect here. */
static int only_tunes(const char *part)
{
    static const char *const words[] = {"ftz", "approx", "full", "aligned", "nc", "ca",     "cg",
                                        "cs",  "lu",     "cv",   "wb",      "wt", "global", "gpu",
                                        "sys", "cta",    "weak", "L1",      "L2", "noftz"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(part, words[i]) == 0)
            return 1;
    return starts_with(part, "L1::") || starts_with(part, "L2::");
}

static const char *plain_type(const char *part)
{
    static const char *const names[][2] = {{"u16", "b16"}, {"s16", "b16"}, {"f16", "b16"}, {"u32", "b32"},
                                           {"s32", "b32"}, {"f32", "b32"}, {"u64", "b64"}, {"s64", "b64"},
                                           {"f64", "b64"}, {"b8", "u8"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(part, names[i][0]) == 0)
            return names[i][1];
    return part;
}

/* Writes the canonical name: "ld.global.nc.L1::no_allocate.v4.u32" becomes "ld_v4_b32". */
static void canonical_name(const char *mnemonic, sim_buffer *out)
{
    char copy[160], *rest = copy;
    snprintf(copy, sizeof copy, "%s", mnemonic);
    int moves = starts_with(copy, "ld.") || starts_with(copy, "st.") || starts_with(copy, "mov.");
    int atomic = starts_with(copy, "red.") || starts_with(copy, "atom.");
    for (char *part; (part = strsep(&rest, ".")) != NULL;) {
        if (out->length && only_tunes(part))
            continue;
        if (atomic && (!strcmp(part, "relaxed") || !strcmp(part, "acquire") || !strcmp(part, "release") ||
                       !strcmp(part, "acq_rel")))
            continue;
        if (starts_with(part, "m64n") && starts_with(copy, "wgmma"))
            continue; /* the columns become an argument */
        if (strcmp(part, "barrier") == 0)
            part = "bar";
        if (strcmp(part, "shared::cta") == 0)
            part = "shared";
        sim_print(out, "%s%s", out->length ? "_" : "", moves ? plain_type(part) : part);
    }
    for (size_t i = 0; i < out->length; i++)
        if (!isalnum((unsigned char)out->text[i]))
            out->text[i] = '_';
}

static const char *register_type(char constraint)
{
    switch (constraint) {
    case 'r': return "unsigned";
    case 'l': return "unsigned long long";
    case 'f': return "float";
    case 'd': return "double";
    case 'h': return "unsigned short";
    default: return NULL;
    }
}

static void write_expression(rewriter *r, sim_buffer *out, const asm_operand *o)
{
    for (int i = o->begin; i < o->end; i++)
        sim_print(out, "%s%.*s",
                  i > o->begin && r->tokens[i - 1].at + r->tokens[i - 1].length != r->tokens[i].at ? " " : "",
                  (int)r->tokens[i].length, r->tokens[i].at);
}

static void write_operand(rewriter *r, sim_buffer *out, const asm_operand *o)
{
    const char *type = register_type(o->constraint);
    sim_print(out, o->is_output ? "sim_out<%s>(" : "(%s)(", type ? type : "int");
    write_expression(r, out, o);
    sim_print(out, ")");
}

/* Writes an address: [%2], [%2+16], or a tensor's tile: [%1, {%2, %3}]. */
static const char *write_address(rewriter *r, sim_buffer *out, const asm_statement *a, const char *p)
{
    int index, used = 0;
    long long offset = 0;
    char sign = 0;
    if (sscanf(p, "[ %%%d%n", &index, &used) != 1 || index >= a->operand_count)
        return NULL;
    p += used;
    if (sscanf(p, " %c %lld%n", &sign, &offset, &used) == 2 && (sign == '+' || sign == '-')) {
        offset = sign == '-' ? -offset : offset;
        p += used;
    } else
        offset = 0;
    p += strspn(p, " ");
    const asm_operand *o = &a->operands[index];
    sim_print(out, o->constraint == 'l' ? "sim_address_of((" : "sim_address_of((unsigned)(");
    write_expression(r, out, o);
    sim_print(out, "), %lld)", offset);
    if (*p == ',') {
        sim_print(out, ", sim_coordinates{");
        for (p += strspn(p, ", {"); sscanf(p, "%%%d%n", &index, &used) == 1 && index < a->operand_count;
             p += strspn(p, ", ")) {
            p += used;
            sim_print(out, "(int)(");
            write_expression(r, out, &a->operands[index]);
            sim_print(out, "), ");
        }
        sim_print(out, "}");
        p += strspn(p, " }");
    }
    return *p == ']' ? p + 1 : NULL;
}

/* Writes the arguments in the order in which the PTX names them. 0 if something is unknown. */
static int write_ptx_arguments(rewriter *r, sim_buffer *out, const asm_statement *a, const char *p)
{
    int count = 0;
    for (;;) {
        p += strspn(p, " ,{}");
        if (!*p)
            return 1;
        if (*p == '_') { /* a result that is not used */
            p++;
            continue;
        }
        sim_print(out, count++ ? ", " : "");
        if (*p == '[') {
            p = write_address(r, out, a, p);
            if (!p)
                return 0;
        } else if (*p == '%' && isdigit((unsigned char)p[1])) {
            long index = strtol(p + 1, (char **)&p, 10);
            if (index >= a->operand_count)
                return 0;
            write_operand(r, out, &a->operands[index]);
        } else if (*p == '%') { /* %laneid, written %%laneid if there are operands */
            p += strspn(p, "%");
            size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_.");
            sim_print(out, "sim_register_");
            for (size_t i = 0; i < n; i++)
                sim_print(out, "%c", p[i] == '.' ? '_' : p[i]);
            sim_print(out, "()");
            p += n;
        } else if (starts_with(p, "0f") || starts_with(p, "0F")) {
            sim_print(out, "__uint_as_float(0x%.8s)", p + 2);
            p += strnlen(p, 10);
        } else if (isdigit((unsigned char)*p) || *p == '-') {
            size_t n = 1 + strspn(p + 1, "0123456789abcdefABCDEFxXuU");
            sim_append(out, p, n);
            p += n;
        } else
            return 0;
    }
}

/* Writes the sums of a product of a warpgroup, "{%0, %1, ...". They must be in one array: its first and last
   element represent it. */
static const char *write_sums(rewriter *r, sim_buffer *out, const asm_statement *a, const char *p, int count)
{
    p += strspn(p, " {");
    for (int i = 0, index, used; i < count; i++, p += used + strspn(p + used, ", "))
        if (sscanf(p, "%%%d%n", &index, &used) != 1 || index != i || i >= a->operand_count)
            return NULL;
    if (*p != '}')
        return NULL;
    sim_print(out, "&");
    write_operand(r, out, &a->operands[0]);
    sim_print(out, ", &");
    write_operand(r, out, &a->operands[count - 1]);
    sim_print(out, ", ");
    return p + 1;
}

/* Removes the block around an instruction whose result is a predicate: "{ .reg .pred p; X p, ...; selp.u32
   %0, 1, 0, p; }" becomes "X %0, ...". NULL if it is something else. */
static char *without_predicate(const char *text)
{
    static const char head[] = "{ .reg .pred p; ", tail[] = "; selp.u32 %0, 1, 0, p; }";
    const char *end = strstr(text, tail), *result = strstr(text, " p,");
    if (!starts_with(text, head) || !end || !result || result > end)
        return NULL;
    text += sizeof head - 1;
    sim_buffer b = {0};
    sim_print(&b, "%.*s %%0%.*s", (int)(result - text), text, (int)(end - result - 2), result + 2);
    return b.text;
}

static void write_ptx(rewriter *r, int at, asm_statement *a)
{
    char *text = a->text.text + strspn(a->text.text, " ");
    size_t length = strlen(text);
    while (length && strchr(" ;", text[length - 1]))
        text[--length] = 0;
    if (!length) { /* asm volatile("" ::: "memory") */
        sim_print(r->out, "__threadfence()");
        return;
    }
    char *plain = without_predicate(text);
    if (plain)
        text = plain;
    if (strchr(text, ';') || *text == '{' || *text == '@') {
        say_error(r, at, "the simulator takes one PTX instruction per asm, without predicate or block: \"%.80s\"",
                  text);
        free(plain);
        return;
    }
    size_t mnemonic_length = strcspn(text, " ");
    char mnemonic[160];
    sim_buffer name = {0}, arguments = {0};
    snprintf(mnemonic, sizeof mnemonic, "%.*s", (int)mnemonic_length, text);
    canonical_name(mnemonic, &name);
    sim_append(&arguments, "", 0);
    sim_print(r->asm_names, "sim_ptx_%s %s\n", name.text, mnemonic);
    const char *operands = text + mnemonic_length;
    int columns = starts_with(mnemonic, "wgmma.mma_async.") && strstr(mnemonic, ".m64n")
                      ? atoi(strstr(mnemonic, ".m64n") + 5)
                      : 0;
    if (columns) {
        sim_print(&name, "<%d>", columns);
        operands = write_sums(r, &arguments, a, operands, columns / 2);
    }
    if (!operands || !write_ptx_arguments(r, &arguments, a, operands))
        say_error(r, at, "the simulator does not understand the operands of \"%.120s\"", text);
    sim_print(r->out, "sim_ptx_%s(%s)", name.text, arguments.text);
    free(name.text);
    free(arguments.text);
    free(plain);
}

/* Writes the asm statement at token i. Returns the token after its closing parenthesis. */
static int write_asm(rewriter *r, int i)
{
    int open = i + 1;
    while (r->tokens[open].kind == T_IDENTIFIER) /* volatile */
        open++;
    int end = skip_brackets(r, open);
    asm_statement a = {0};
    read_asm(r, open + 1, end - 1, &a);
    copy_gap(r, i);
    write_ptx(r, i, &a);
    for (int k = i + 1; k < end; k++)
        copy_gap(r, k);
    free(a.text.text);
    return end;
}

/* --------------------------------------------------------------------------------------------------- output */

/* Writes a kernel. A kernel that never waits is inlined into its loop. The inline form of an extern "C"
   kernel needs no copy of its own; that of a C++ kernel keeps one, whose symbol gives the mangled name. */
static void write_global(rewriter *r, const chunk *c)
{
    if (c->has_body && !(c->taint & TAINT_WAITS))
        sim_print(r->out, "%s__attribute__((always_inline))", c->extern_c || c->is_template ? "inline " : "");
}

static int declares_device_variable(const rewriter *r, const chunk *c)
{
    int device = 0;
    if (c->kind != C_OTHER || !is(r, c->begin, "extern") || r->tokens[c->begin + 1].kind != T_STRING)
        return 0;
    for (int i = c->begin; i < c->end; i++) {
        device |= is(r, i, "__device__") || is(r, i, "__constant__");
        if (is(r, i, "(") && !takes_arguments(r, i - 1))
            return 0;
    }
    return device;
}

static void write_source(rewriter *r)
{
    int next_shared = 0, c = 0;
    for (int i = 0; i < r->token_count;) {
        while (c < r->chunk_count && r->chunks[c].end <= i)
            c++;
        const chunk *here = c < r->chunk_count && r->chunks[c].begin <= i ? &r->chunks[c] : NULL;
        if (next_shared < r->shared_count && r->shared[next_shared].begin == i) {
            const shared_statement *s = &r->shared[next_shared++];
            if (s->is_extern)
                write_dynamic_shared(r, s);
            else
                write_shared_variables(r, s);
            i = s->end + 1;
            continue;
        }
        if (is(r, i, "asm") || is(r, i, "__asm__") || is(r, i, "__asm")) {
            i = write_asm(r, i);
            continue;
        }
        copy_gap(r, i);
        if (here && is(r, i, "__global__"))
            write_global(r, here);
        else if (here && i == here->begin && declares_device_variable(r, here)) {
            sim_print(r->out, "extern \"C\" {");
            i += 2;
            continue;
        } else
            copy_token(r, i);
        if (here && i == here->end - 1 && declares_device_variable(r, here))
            sim_print(r->out, " }");
        i++;
    }
    copy_gap(r, r->token_count);
}

/* Writes the first argument of an attribute if the table can express it: names of template parameters, or of
   constants in a namespace, have no meaning there. */
static void write_first_of(rewriter *r, const chunk *c, const char *attribute, const char *otherwise)
{
    for (int i = c ? c->begin : 0; c && i + 2 < c->end; i++)
        if (is(r, i, attribute)) {
            int end = skip_brackets(r, i + 1) - 1, k = i + 2;
            sim_buffer value = {0};
            for (; k < end && !is(r, k, ","); k++) {
                if (r->tokens[k].kind == T_IDENTIFIER && (c->is_template || strchr(c->qualified, ':')))
                    break;
                sim_print(&value, "%.*s ", (int)r->tokens[k].length, r->tokens[k].at);
            }
            if (value.length && (k == end || is(r, k, ",")))
                sim_print(r->out, "(int)(%s)", value.text);
            else
                sim_print(r->out, "%s", otherwise);
            free(value.text);
            return;
        }
    sim_print(r->out, "%s", otherwise);
}

static void write_entry(rewriter *r, const chunk *c, const char *name, const char *expression, unsigned taint,
                        int wants_mangled_name)
{
    const char *strip = expression + strspn(expression, "& ");
    sim_print(r->out, "SIM_ENTRY(\"%s\", %d, ", name, wants_mangled_name);
    write_first_of(r, c, "__launch_bounds__", "1024");
    sim_print(r->out, ", ");
    write_first_of(r, c, "__cluster_dims__", "1");
    sim_print(r->out, ", %s | %s | %s | %s, &%s),\n", taint & TAINT_WAITS ? "0" : "SIM_KERNEL_LOOP",
              taint & TAINT_SHARED ? "SIM_KERNEL_SHARED" : "0", taint & TAINT_SPINS ? "SIM_KERNEL_SPINS" : "0",
              taint & TAINT_ASYNC ? "SIM_KERNEL_ASYNC" : "0", strip);
    r->entry_count++;
}

static int is_listed(const chunk *c) { return c->is_kernel && c->qualified && c->has_body && !c->is_template; }

static int same_kernel_count(const rewriter *r, const char *qualified)
{
    int count = 0;
    for (int i = 0; i < r->chunk_count; i++)
        count += is_listed(&r->chunks[i]) && strcmp(r->chunks[i].qualified, qualified) == 0;
    return count;
}

/* Returns name<...> of an explicit instantiation as text. */
static char *instantiation_expression(const rewriter *r, const chunk *c)
{
    sim_buffer b = {0};
    int end = is(r, c->name + 1, "<") ? skip_angles(r, c->name + 1) : c->name + 1;
    sim_print(&b, "%s", c->qualified);
    for (int i = c->name + 1; i < end; i++)
        sim_print(&b, "%.*s%s", (int)r->tokens[i].length, r->tokens[i].at,
                  r->tokens[i].kind == T_IDENTIFIER && r->tokens[i + 1].kind == T_IDENTIFIER ? " " : "");
    return b.text;
}

/* Finds the last declaration of a plain name, without regard to namespaces. */
static const chunk *find_by_name(const rewriter *r, const char *name, size_t length)
{
    token wanted = {name, length, T_IDENTIFIER};
    for (int i = r->chunk_count - 1; i >= 0; i--)
        if (r->chunks[i].name >= 0 && !r->chunks[i].instantiation && same(&wanted, &r->tokens[r->chunks[i].name]))
            return &r->chunks[i];
    return NULL;
}

/* Tells whether a plain name belongs to functions and types only, and to no kernel. */
static int is_no_kernel(const rewriter *r, const char *name, size_t length)
{
    token wanted = {name, length, T_IDENTIFIER};
    int found = 0;
    for (int i = 0; i < r->chunk_count; i++) {
        const chunk *c = &r->chunks[i];
        if (c->name < 0 || !same(&wanted, &r->tokens[c->name]))
            continue;
        if (c->is_kernel || (!c->is_function && c->kind != C_TYPE))
            return 0;
        found++;
    }
    return found > 0;
}

/* Returns the taints of the names in an expression. */
static unsigned taint_of_text(const rewriter *r, const char *text)
{
    unsigned taint = 0;
    while (*text) {
        size_t n = 0;
        while (isalnum((unsigned char)text[n]) || text[n] == '_')
            n++;
        token name = {text, n, T_IDENTIFIER};
        if (n)
            taint |= taint_of_name(r, &name);
        text += n ? n : 1;
    }
    return taint;
}

static char *copy_text(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        abort();
    return copy;
}

/* Adds the kernel of a name expression, unless the table has it already, and finds its lowered name. */
static char *write_name_expression(rewriter *r, const char *expression)
{
    const char *strip = expression + strspn(expression, "& :");
    size_t base_end = strcspn(strip, "<"), base = base_end;
    while (base > 0 && (isalnum((unsigned char)strip[base - 1]) || strip[base - 1] == '_'))
        base--;
    const chunk *c = find_by_name(r, strip + base, base_end - base);
    int plain = strip[base_end] == 0;
    if (is_no_kernel(r, strip + base, base_end - base)) {
        sim_print(
            r->errors,
            "__nv_name_map(1): error: \"%s\" is no __global__ function, nor a __device__ or __constant__ variable\n",
            strip);
        r->failed = 1;
    }
    if (plain && c && is_listed(c))
        return copy_text(c->qualified);
    if (plain && c && c->kind == C_OTHER && !c->is_kernel)
        return copy_text(strip); /* a __device__ or __constant__ variable */
    sim_print(r->out, "# 1 \"name expression \\\"%s\\\"\"\n", expression);
    write_entry(r, c && c->is_kernel ? c : NULL, strip, strip, taint_of_text(r, strip), 1);
    return copy_text(strip);
}

static void write_table(rewriter *r, const char *const *expressions, int expression_count, char **lowered)
{
    sim_print(r->out, "\n# 1 \"kernel table\"\nstatic const sim_entry_point sim_kernel_table[] = {\n");
    for (int i = 0; i < r->chunk_count; i++) {
        const chunk *c = &r->chunks[i];
        if (is_listed(c) && same_kernel_count(r, c->qualified) == 1)
            write_entry(r, c, c->qualified, c->qualified, c->taint, !c->extern_c);
        if (c->is_kernel && c->qualified && c->instantiation) {
            char *expression = instantiation_expression(r, c);
            write_entry(r, NULL, expression, expression, taint_of_text(r, expression), 1);
            free(expression);
        }
    }
    for (int i = 0; i < expression_count; i++)
        lowered[i] = write_name_expression(r, expressions[i]);
    sim_print(r->out, "# 1 \"kernel table\"\n{ 0, 0, 0, 0, 0, 0, 0, 0, 0 } };\nSIM_MODULE(sim_kernel_table, %d)\n",
              r->entry_count);
}

int sim_rewrite(const char *source, const char *const *expressions, int expression_count, char **lowered,
                sim_buffer *out, sim_buffer *asm_names, sim_buffer *errors, int *is_async)
{
    rewriter r = {.source = source, .out = out, .asm_names = asm_names, .errors = errors};
    sim_append(asm_names, "", 0);
    sim_append(errors, "", 0);
    tokenize(&r);
    read_declarations(&r);
    spread_taint(&r);
    find_shared_statements(&r);
    write_source(&r);
    write_table(&r, expressions, expression_count, lowered);
    *is_async = 0;
    for (int i = 0; i < r.chunk_count; i++)
        *is_async |= r.chunks[i].is_kernel && (r.chunks[i].taint & TAINT_ASYNC);
    for (int i = 0; i < r.chunk_count; i++)
        free(r.chunks[i].qualified);
    free(r.chunks);
    free(r.shared);
    free(r.tainted);
    free(r.tokens);
    return !r.failed;
}
