// SPDX-License-Identifier: MIT
/*  manual.c - makes one HTML page of the headers: their manuals, and everything that they declare

        cc tools/manual.c -o build/manual
        build/manual build/manual.html [HEADER...]
        build/manual --examples FOLDER [HEADER...]

    The first writes the page; it names file and line of what is not documented, and exits with 1 then. The second
    writes the examples of the manuals, as FOLDER/manual_NAME.c.
    Without headers named: ignis.h, ignis_kernels.h, ignis_models.h, ignis_collective.h. A section with functions has an
    example: in docs/examples.c the body of the function below the comment that has the section's tag. What it reads of
    a header:

    - The first comment is the manual. A heading is a line of its own at column 4, and begins in capitals. Text begins
      at column 8. What is indented further, or has gaps inside its lines, is shown as it is, but for lists ("- ").
      Examples are between "---- begin example NAME" and "---- end example".
    - Between the include guard and its #endif are declarations, in sections that begin with >>tag. A comment belongs to
      what follows it without an empty line; declarations one below the other share it.

    A function's comment names it, says after " - " what it does, and has all of FORM, in this order. A type or a macro
    has a comment above it or inside it. Names of what is declared, tags, and headings become links.
*/
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const FORM[] = {"Returns: ", "Errors: ", "Ownership: ", "Threads: "};
#define FORM_PARTS ((int)(sizeof FORM / sizeof *FORM))
#define MAX_NAMES 16 /* that share a comment */

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

typedef struct header {
    const char *path; /* as it was given */
    const char *name; /* without folders */
    char stem[64];    /* without ".h" */
    char **lines;
    int count;
    int manual_end; /* the line that ends the manual's comment */
    int first, end; /* lines of the declarations; equal for none */
} header;

typedef enum kind { CHAPTER, LEAD, SECTION, PART, NOTE, FUNCTION, TYPE, MACRO, OVERLOADS } kind;

typedef struct item {
    kind what;
    const header *in;
    char id[96];
    const char *title;         /* of a chapter, paragraph or part */
    int line;                  /* where it begins, counted from 0 */
    int doc, doc_end;          /* lines of its comment or text; equal for none */
    char names[MAX_NAMES][96]; /* that it declares */
    int name_count;
    text code;
} item;

/* A word that becomes a link. */
typedef struct symbol {
    char name[96], target[96];
    bool inside; /* the target is inside of the item's code: an enumerator */
} symbol;

static header headers[8];
static header families; /* the lines of docs/examples.c */
static item *items;
static symbol *symbols;
static int header_count, item_count, symbol_count, problems;
static char version[32];

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("manual: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void problem(const header *h, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", h->path, line + 1);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    problems++;
}

static void *more(void *data, size_t size)
{
    data = realloc(data, size);
    if (!data)
        die("out of memory");
    return data;
}

static void append(text *t, const char *data, size_t size)
{
    if (t->size + size + 1 > t->capacity) {
        t->capacity = 2 * (t->size + size + 1);
        t->data = (char *)more(t->data, t->capacity);
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void put(text *t, const char *data) { append(t, data, strlen(data)); }

static void print(text *t, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof line)
        die("a line of the page is too long");
    append(t, line, (size_t)length);
}

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool is_blank(const char *s) { return s[strspn(s, " ")] == 0; }
static int indent(const char *s) { return (int)strspn(s, " "); }

static size_t word_length(const char *s)
{
    size_t length = 0;
    while (is_word(s[length]))
        length++;
    return length;
}

static void copy_name(char *to, const char *from, size_t length)
{
    if (length >= 96)
        die("a name is too long: %.100s", from);
    memcpy(to, from, length);
    to[length] = 0;
}

/* >>read -------------------------------------------------------------------------------------------------------- */

static void read_lines(header *h, const char *path)
{
    text all = {NULL, 0, 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        die("cannot open %s", path);
    for (int c; (c = fgetc(file)) != EOF;) {
        char byte = (char)c;
        if (byte != '\r')
            append(&all, &byte, 1);
    }
    fclose(file);
    h->path = path;
    h->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    copy_name(h->stem, h->name, strcspn(h->name, "."));
    for (char *line = all.data; line && *line;) {
        char *end = strchr(line, '\n');
        if (h->count % 1024 == 0)
            h->lines = (char **)more(h->lines, (size_t)(h->count + 1024) * sizeof *h->lines);
        h->lines[h->count++] = line;
        if (!end)
            break;
        *end = 0;
        line = end + 1;
    }
}

static void read_header(const char *path)
{
    header *h = &headers[header_count++];
    read_lines(h, path);
    if (h->count == 0 || !starts(h->lines[0], "/*  ") || !strstr(h->lines[0], " - v"))
        die("%s:1: the first line is not: /*  NAME - vVERSION - what it is", path);
    while (h->manual_end < h->count && strcmp(h->lines[h->manual_end], "*/") != 0)
        h->manual_end++;
    for (int i = h->manual_end; i < h->count; i++) {
        const char *line = h->lines[i];
        size_t length = strlen(line);
        if (starts(line, "#define IGNIS") && length > 9 && strcmp(line + length - 9, "_INCLUDED") == 0 && !h->first)
            h->first = h->end = i + 1;
        if (starts(line, "#endif /* IGNIS") && strstr(line, "_INCLUDED */") && h->first) {
            h->end = i;
            break;
        }
    }
    if (h->first && h->end == h->first)
        die("%s:%d: the include guard has no end", path, h->first);
}

static item *add_item(kind what, const header *h, int line)
{
    if (item_count % 256 == 0)
        items = (item *)more(items, (size_t)(item_count + 256) * sizeof *items);
    item *it = &items[item_count++];
    memset(it, 0, sizeof *it);
    it->what = what, it->in = h, it->line = line;
    return it;
}

static const symbol *find_symbol(const char *name, size_t length)
{
    int low = 0, high = symbol_count;
    while (low < high) {
        int middle = (low + high) / 2, order = strncmp(symbols[middle].name, name, length);
        if (order == 0 && symbols[middle].name[length])
            order = 1;
        if (order == 0)
            return &symbols[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Kept in order as it grows: there are some thousand. The first meaning of a name stays. */
static void add_symbol(const char *name, size_t length, const char *target, bool inside)
{
    int at = symbol_count;
    if (find_symbol(name, length))
        return;
    if (symbol_count % 1024 == 0)
        symbols = (symbol *)more(symbols, (size_t)(symbol_count + 1024) * sizeof *symbols);
    symbol made;
    copy_name(made.name, name, length);
    copy_name(made.target, target, strlen(target));
    made.inside = inside;
    for (; at > 0 && strcmp(symbols[at - 1].name, made.name) > 0; at--)
        symbols[at] = symbols[at - 1];
    symbols[at] = made;
    symbol_count++;
}

/* >>manual ------------------------------------------------------------------------------------------------------ */

static const char *example_name(const char *line)
{
    const char *begin = line + indent(line);
    return starts(begin, "---- begin example ") ? begin + 19 : NULL;
}

static bool example_ends(const char *line) { return starts(line + indent(line), "---- end example"); }

/* How long the capitals at the beginning are, to the end of their last word: the title in "ON ERRORS (>>status)" is "ON
   ERRORS". */
static size_t capitals(const char *s)
{
    size_t length = 0, title = 0;
    for (;; length++) {
        if (isupper((unsigned char)s[length]) || (title && s[length] == '-'))
            title = length + 1;
        else if (s[length] != ' ')
            break;
    }
    return is_word(s[length]) ? 0 : title;
}

static item *add_titled(kind what, const header *h, int line, const char *title, size_t id_length)
{
    item *it = add_item(what, h, line);
    size_t length = (size_t)snprintf(it->id, sizeof it->id, "%s-", h->stem);
    for (size_t i = 0; i < id_length && length + 1 < sizeof it->id; i++)
        it->id[length++] = title[i] == ' ' ? '-' : (char)tolower((unsigned char)title[i]);
    it->title = title;
    it->doc = it->doc_end = line + 1;
    return it;
}

/* Chapters, and paragraphs that begin with a title of their own: "ON SPEED. Small operations ..." */
static void read_manual(const header *h)
{
    int chapter = -1;
    bool example = false;
    for (int i = 1; i < h->manual_end; i++) {
        const char *line = h->lines[i];
        const char *define = strstr(line, "#define IGNIS");
        bool alone = is_blank(h->lines[i - 1]) && is_blank(h->lines[i + 1]), first = is_blank(h->lines[i - 1]);
        example = example_name(line) || (example && !example_ends(line));
        if (!example && indent(line) == 4 && alone && capitals(line + 4) > 1) {
            add_titled(CHAPTER, h, i, line + 4, capitals(line + 4));
            chapter = item_count - 1;
        } else if (!example && indent(line) == 8 && first && capitals(line + 8) > 5 &&
                   line[8 + capitals(line + 8)] == '.') {
            add_titled(LEAD, h, i, line + 8, capitals(line + 8));
        }
        if (chapter >= 0)
            items[chapter].doc_end = i + 1;
        if (chapter >= 0 && define && !example)
            add_symbol(define + 8, word_length(define + 8), items[chapter].id, false);
    }
    if (chapter < 0)
        problem(h, 0, "the manual has no headings");
}

/* >>declarations ------------------------------------------------------------------------------------------------ */

/* The entries of the list macro that line, such as "    IGNIS_STATUSES(IGNIS__STATUS_ENUM)", calls: one enumerator
   each. */
static bool expand_list(text *code, const char *line, const char *prefix, size_t prefix_length)
{
    const char *name = line + indent(line);
    size_t length = word_length(name);
    for (int i = 0; i < item_count; i++) {
        if (items[i].what != MACRO || strncmp(items[i].names[0], name, length) != 0 || items[i].names[0][length])
            continue;
        for (const char *x = items[i].code.data; (x = strstr(x, "X(")) != NULL; x += 2) {
            const char *end = strchr(x, '\n'), *quote = strchr(x, '"'), *last;
            if (strchr(" \n", x[-1]) == NULL || !is_word(x[2]) || x[2 + word_length(x + 2)] != ',')
                continue;
            put(code, "    ");
            append(code, prefix, prefix_length);
            append(code, x + 2, word_length(x + 2));
            put(code, ",");
            if (quote && end && quote < end) {
                for (last = end; *last != '"'; last--)
                    ;
                put(code, " /* ");
                append(code, quote + 1, (size_t)(last - quote - 1));
                put(code, " */");
            }
            put(code, "\n");
        }
        return true;
    }
    return false;
}

/* The code of a declaration; enumerators that a list macro makes are written out. */
static void read_code(item *it, int first, int end)
{
    const char *prefix = NULL;
    size_t prefix_length = 0;
    for (int i = first; i < end; i++) {
        const char *line = it->in->lines[i], *paste = strstr(line, "##");
        if (it->what == TYPE && line[0] == '#') {
            if (starts(line, "#define") && paste) {
                prefix = strstr(line, ") ") + 2;
                prefix_length = (size_t)(paste - prefix);
            }
        } else if (!(prefix && strstr(line, "(IGNIS__") && expand_list(&it->code, line, prefix, prefix_length))) {
            put(&it->code, starts(line, "IGNIS_API ")   ? line + 10
                           : prefix && indent(line) > 4 ? line + indent(line) - 4
                                                        : line);
            put(&it->code, "\n");
        }
    }
}

static void add_name(item *it, int line, const char *name, size_t length)
{
    if (it->name_count == MAX_NAMES) {
        problem(it->in, line, "more than %d declarations share a comment", MAX_NAMES);
        return;
    }
    copy_name(it->names[it->name_count], name, length);
    if (it->name_count++ == 0)
        copy_name(it->id, name, length);
    add_symbol(name, length, it->names[it->name_count - 1], false);
}

/* Enumerators, which come after { and commas outside of comments. */
static void add_enumerators(item *it)
{
    const char *s = strchr(it->code.data, '{');
    bool expected = false;
    for (; s && *s; s++) {
        if (starts(s, "/*")) {
            s = strstr(s, "*/") + 1;
        } else if (*s == '{' || *s == ',') {
            expected = true;
        } else if (is_word(*s)) {
            size_t length = word_length(s);
            char name[96];
            copy_name(name, s, length);
            if (expected && starts(s, "IGNIS_"))
                add_symbol(s, length, name, true);
            expected = false;
            s += length - 1;
        }
    }
}

/* How a declaration begins, and where it ends: at the line that has the mark. */
static const struct syntax {
    const char *begin, *end;
    kind what;
} SYNTAX[] = {
    {"IGNIS_API ", ";", FUNCTION},      {"typedef ", ";", TYPE},  {"#define IGNIS", "", MACRO},
    {"static inline ", "}", OVERLOADS}, {"template ", "}", NOTE}, /* of the implementation */
};

/* The line behind a declaration that begins at i. */
static int declaration_end(const header *h, int i, const struct syntax *syntax)
{
    int depth = 0;
    if (syntax->what == MACRO) {
        while (h->lines[i][0] && h->lines[i][strlen(h->lines[i]) - 1] == '\\')
            i++;
        return i + 1;
    }
    for (; i < h->end; i++) {
        const char *line = h->lines[i];
        for (const char *s = line; *s; s++) {
            if (starts(s, "/*")) {
                while (!strstr(s, "*/") && i + 1 < h->end)
                    s = h->lines[++i];
                s = strstr(s, "*/") ? strstr(s, "*/") + 1 : s;
                continue;
            }
            depth += (*s == '{') - (*s == '}');
            if (depth == 0 && *s == syntax->end[0])
                return i + 1;
        }
    }
    return i;
}

static void read_name(item *it, int line, const struct syntax *syntax, const char *code)
{
    const char *name = NULL, *stop;
    switch (syntax->what) {
    case MACRO: name = code + 8; break;
    case FUNCTION:
        for (name = strchr(code, '('); name && name > code && is_word(name[-1]); name--)
            ;
        break;
    case TYPE:
        name = strstr(code, "(*");
        if (name && !strchr(code, '{')) {
            name += 2;
            break;
        }
        for (stop = strrchr(code, ';'), name = stop; name && name > code && is_word(name[-1]); name--)
            ;
        break;
    default: return;
    }
    if (!name || !word_length(name))
        problem(it->in, line, "a declaration without a name");
    else
        add_name(it, line, name, word_length(name));
}

/* Names that are not part of the interface, have an entry already, or are described in the manual as options. */
static bool is_hidden_macro(const header *h, const char *name)
{
    size_t length = word_length(name);
    char define[128];
    if (starts(name, "IGNIS__"))
        return true;
    snprintf(define, sizeof define, "#define %.*s", (int)length, name);
    for (int i = 0; i < h->manual_end; i++) {
        const char *found = strstr(h->lines[i], define);
        if (found && !is_word(found[strlen(define)]))
            return true;
    }
    return find_symbol(name, length) != NULL;
}

static void add_note(const header *h, int doc, int doc_end)
{
    item *it = add_item(NOTE, h, doc);
    it->doc = doc, it->doc_end = doc_end;
}

/* Declarations that several headers have, between "#ifndef NAME_INCLUDED" and "#endif": the line to go on with, which
   is behind them where an earlier header had them. 0: line i begins none. */
static int shared_declarations(const header *h, int i)
{
    static const char *seen[8];
    static int seen_count;
    const char *line = h->lines[i], *guard = line + 8;
    size_t length = word_length(guard);
    if (!starts(line, "#ifndef IGNIS") || length < 9 || strcmp(guard + length - 9, "_INCLUDED") != 0)
        return 0;
    for (int k = 0; k < seen_count; k++) {
        if (strcmp(seen[k], guard) != 0)
            continue;
        while (i < h->end && !starts(h->lines[i], "#endif"))
            i++;
        return i + 1;
    }
    if (seen_count == 8)
        die("too many shared declarations");
    seen[seen_count++] = guard;
    return i + 2;
}

static void read_declarations(const header *h)
{
    int doc = 0, doc_end = 0, group = -1; /* a comment, and the item that declarations below it belong to */
    for (int i = h->first; i < h->end;) {
        const char *line = h->lines[i];
        const struct syntax *syntax = NULL;
        int shared = shared_declarations(h, i);
        if (shared) {
            i = shared;
            continue;
        }
        if (starts(line, "/*")) {
            int end = i;
            if (doc_end > doc && group < 0)
                add_note(h, doc, doc_end);
            while (end < h->end && !strstr(h->lines[end], "*/"))
                end++;
            doc = doc_end = 0, group = -1;
            if (starts(line, "/* >>")) {
                item *it = add_item(SECTION, h, i);
                copy_name(it->id, line + 5, strcspn(line + 5, " "));
            } else if (starts(line, "/* --- ")) {
                item *it = add_item(PART, h, i);
                snprintf(it->id, sizeof it->id, "%s-%d", h->stem, i + 1);
                it->title = line + 7;
            } else {
                doc = i + (starts(line, "/* ----") ? 1 : 0), doc_end = end + 1;
            }
            i = end + 1;
            continue;
        }
        for (size_t k = 0; k < sizeof SYNTAX / sizeof *SYNTAX && !syntax; k++)
            if (starts(line, SYNTAX[k].begin))
                syntax = &SYNTAX[k];
        if (!syntax) {
            if (line[0] && line[0] != '#' && line[0] != '}' && !starts(line, "extern \"C\""))
                problem(h, i, "this is no declaration that the manual knows");
            if (doc_end > doc && group < 0)
                add_note(h, doc, doc_end);
            doc = doc_end = 0, group = -1;
            i++;
            continue;
        }
        int end = declaration_end(h, i, syntax);
        if (syntax->what == NOTE || (syntax->what == MACRO && is_hidden_macro(h, line + 8))) {
            i = end;
            continue;
        }
        if (group < 0 || items[group].what != syntax->what ||
            (!doc_end && syntax->what != FUNCTION && syntax->what != OVERLOADS)) {
            add_item(syntax->what, h, i);
            group = item_count - 1;
            items[group].doc = doc, items[group].doc_end = doc_end;
        }
        size_t before = items[group].code.size;
        read_code(&items[group], i, end);
        read_name(&items[group], i, syntax, items[group].code.data + before);
        if (syntax->what == TYPE && starts(items[group].code.data + before, "typedef enum"))
            add_enumerators(&items[group]);
        i = end;
    }
}

/* >>check ------------------------------------------------------------------------------------------------------- */

/* Whether the comment has the name, in full, or the last part of it where names are listed: ", _suffix". */
static bool doc_names(const item *it, const char *name)
{
    const char *suffix = strrchr(name, '_');
    for (int i = it->doc; i < it->doc_end; i++) {
        const char *line = it->in->lines[i];
        for (const char *s = line; (s = strstr(s, name)) != NULL; s++)
            if (!is_word(s[strlen(name)]))
                return true;
        for (const char *s = line; (s = strstr(s, suffix)) != NULL; s++)
            if (s > line && strchr(" ,", s[-1]) && !is_word(s[strlen(suffix)]))
                return true;
    }
    return false;
}

static void check_function(const item *it)
{
    int part = 0;
    bool named = false;
    const char *first = it->in->lines[it->doc], *dash = strstr(first, " - ");
    for (int i = 0; i < it->name_count; i++) {
        size_t length = strlen(it->names[i]);
        named = named || (starts(first + 4, it->names[i]) && !is_word(first[4 + length]));
        if (!doc_names(it, it->names[i]))
            problem(it->in, it->line, "the comment does not name %s", it->names[i]);
    }
    if (!starts(first, "/*  ") || !dash || !named)
        problem(it->in, it->doc, "the comment of %s does not begin with: /*  %s - what it does", it->names[0],
                it->names[0]);
    for (int i = it->doc; i < it->doc_end; i++) {
        const char *line = it->in->lines[i];
        if (i > it->doc && !is_blank(line) && indent(line) < 4)
            problem(it->in, i, "a line of a comment that does not begin at column 4");
        for (int k = 0; k < FORM_PARTS; k++) {
            if (!starts(line + indent(line), FORM[k]))
                continue;
            if (k != part)
                problem(it->in, i, "%sis not the next part of the comment of %s, but %s", FORM[k], it->names[0],
                        part < FORM_PARTS ? FORM[part] : "its end");
            part = k + 1;
        }
    }
    if (part != FORM_PARTS)
        problem(it->in, it->line, "the comment of %s ends without %s", it->names[0], FORM[part]);
}

/* The example of a section: the lines of a function's body in docs/examples.c; false if there is none. */
static bool find_family(const char *tag, int *first, int *end)
{
    for (int i = 0; i + 2 < families.count; i++) {
        const char *line = families.lines[i];
        size_t length = strlen(tag);
        if (!starts(line, "/* >>") || strncmp(line + 5, tag, length) != 0 || strcmp(line + 5 + length, " */") != 0)
            continue;
        *first = i + 3; /* below the function's name and its { */
        for (*end = *first; *end < families.count && families.lines[*end][0] != '}'; ++*end)
            ;
        return *end > *first;
    }
    return false;
}

/* A section with functions has an example. */
static void check_family(int at)
{
    int first, end;
    for (int i = at + 1; i < item_count && items[i].what != SECTION && items[i].in == items[at].in; i++) {
        if (items[i].what == FUNCTION && !find_family(items[at].id, &first, &end)) {
            problem(items[at].in, items[at].line, "section >>%s has no example in %s", items[at].id, families.path);
            return;
        }
    }
}

static void check_items(void)
{
    for (int i = 0; i < item_count; i++) {
        const item *it = &items[i];
        bool inside = it->code.data && (strstr(it->code.data, "/*") || strstr(it->code.data, "//"));
        if (it->what == FUNCTION && it->doc_end > it->doc)
            check_function(it);
        else if (it->what == SECTION)
            check_family(i);
        else if (it->what == FUNCTION || ((it->what == TYPE || it->what == MACRO) && it->doc_end == it->doc && !inside))
            problem(it->in, it->line, "%s has no comment", it->names[0]);
        for (int k = 0; k < i; k++)
            if (it->id[0] && strcmp(it->id, items[k].id) == 0)
                problem(it->in, it->line, "%s is there already", it->id);
    }
}

/* >>links ------------------------------------------------------------------------------------------------------- */

static void escape(text *out, const char *s, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const char *entity = s[i] == '<'   ? "&lt;"
                             : s[i] == '>' ? "&gt;"
                             : s[i] == '&' ? "&amp;"
                             : s[i] == '"' ? "&quot;"
                                           : NULL;
        if (entity)
            put(out, entity);
        else
            append(out, s + i, 1);
    }
}

/* The chapter or paragraph whose title stands here, that of the same header first; the longest title counts. */
static const item *find_title(const header *h, const char *s, size_t *length)
{
    const item *found = NULL;
    *length = 0;
    for (int i = 0; i < item_count; i++) {
        const item *it = &items[i];
        if (it->what != CHAPTER && it->what != LEAD)
            continue;
        size_t title = capitals(it->title);
        if (strncmp(it->title, s, title) != 0 || is_word(s[title]) || title < *length ||
            (title == *length && it->in != h))
            continue;
        found = it, *length = title;
    }
    return found;
}

static const symbol *find_prefixed(const char *prefix, const char *word, size_t length)
{
    char name[96];
    if (strlen(prefix) + length >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%s%.*s", prefix, (int)length, word);
    return find_symbol(name, strlen(name));
}

static void put_link(text *out, const char *target, const char *s, size_t length)
{
    print(out, "<a href=\"#%s\">", target);
    escape(out, s, length);
    put(out, "</a>");
}

/* What a text is: statuses and diagnostics have short names in text, of which CUDA is one where errors are listed, and
   a word elsewhere. */
typedef enum mode { AS_TEXT, AS_ERRORS, AS_CODE } mode;

static const item *find_section(const char *tag, size_t length)
{
    for (int i = 0; i < item_count; i++)
        if (items[i].what == SECTION && strncmp(items[i].id, tag, length) == 0 && !items[i].id[length])
            return &items[i];
    return NULL;
}

/* A word, as a link if it has a meaning that is not the entry's own. */
static void put_word(text *out, const item *it, const char *s, size_t length, mode as)
{
    const symbol *found = find_symbol(s, length);
    if (!found && as != AS_CODE && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") >= length &&
        (as == AS_ERRORS || !starts(s, "CUDA"))) {
        found = find_prefixed("IGNIS_ERROR_", s, length);
        if (!found)
            found = find_prefixed("IGNIS_DIAG_", s, length);
    }
    for (int i = 0; found && i < it->name_count; i++)
        if (strcmp(it->names[i], found->name) == 0)
            found = NULL;
    if (found) {
        put_link(out, found->target, s, length);
    } else {
        escape(out, s, length);
    }
}

/* Text with links to names, sections and titles. */
static void put_text(text *out, const item *it, const char *s, const char *end, mode as)
{
    while (s < end) {
        size_t length = word_length(s), title;
        if (starts(s, ">>")) {
            size_t tag = strspn(s + 2, "abcdefghijklmnopqrstuvwxyz.");
            while (tag && s[1 + tag] == '.')
                tag--;
            const item *section = find_section(s + 2, tag);
            if (section)
                put_link(out, section->id, s, tag + 2);
            else
                escape(out, s, tag + 2);
            s += tag + 2;
            continue;
        }
        const item *chapter = length ? find_title(it->in, s, &title) : NULL;
        if (chapter && s + title <= end) {
            length = title;
            if (chapter == it)
                escape(out, s, title);
            else
                put_link(out, chapter->id, s, title);
        } else if (length) {
            put_word(out, it, s, length, as);
        } else {
            escape(out, s, length = 1);
        }
        s += length;
    }
}

/* Code with links to names; enumerators are what links lead to where they are declared. */
static void put_code(text *out, const item *it, const char *s, size_t size)
{
    bool declares = it->what == TYPE && starts(it->code.data, "typedef enum");
    const char *end = s + size;
    while (s < end) {
        size_t length = word_length(s);
        const symbol *found = declares && length ? find_symbol(s, length) : NULL;
        if (starts(s, "/*") || starts(s, "//")) {
            const char *stop = strstr(s, s[1] == '*' ? "*/" : "\n");
            length = stop && stop < end ? (size_t)(stop - s) + (s[1] == '*' ? 2 : 0) : (size_t)(end - s);
            put(out, "<i>");
            put_text(out, it, s, s + length, AS_TEXT);
            put(out, "</i>");
        } else if (*s == '"' || *s == '\'') {
            for (length = 1; s + length < end && s[length] != *s; length++)
                length += s[length] == '\\';
            length = s + length < end ? length + 1 : (size_t)(end - s);
            escape(out, s, length);
        } else if (found && found->inside) {
            print(out, "<b id=\"%s\">%s</b>", found->target, found->target);
        } else if (length) {
            put_word(out, it, s, length, AS_CODE);
        } else {
            escape(out, s, length = 1);
        }
        s += length;
    }
}

/* >>prose ------------------------------------------------------------------------------------------------------- */

/* The text of a line of a comment: without the comment's signs, and without its indentation. */
static text comment_line(const header *h, int i)
{
    text line = {NULL, 0, 0};
    const char *s = h->lines[i], *end;
    if (starts(s, "/*"))
        s += 2 + indent(s + 2);
    else
        s += indent(s) < 4 ? indent(s) : 4;
    end = strstr(s, "*/");
    append(&line, s, end ? (size_t)(end - s) : strlen(s));
    while (line.size && line.data[line.size - 1] == ' ')
        line.data[--line.size] = 0;
    return line;
}

static void put_paragraph(text *out, const item *it, text *paragraph, const char *tag, mode as)
{
    while (paragraph->size && paragraph->data[paragraph->size - 1] == ' ')
        paragraph->data[--paragraph->size] = 0;
    size_t lead;
    const item *titled = find_title(it->in, paragraph->data, &lead);
    if (titled && (titled->what != LEAD || titled->in != it->in || paragraph->data[lead] != '.'))
        titled = NULL;
    print(out, titled ? "<%s id=\"%s\">" : "<%s>", tag, titled ? titled->id : "");
    if (titled) {
        print(out, "<strong>%.*s.</strong>", (int)lead, paragraph->data);
        lead++;
    }
    put_text(out, it, paragraph->data + (titled ? lead : 0), paragraph->data + paragraph->size, as);
    print(out, "</%s>\n", tag);
}

/* Lines between empty ones: a list, a text, or what is shown as it is. */
static void put_block(text *out, const item *it, char **lines, int first, int end)
{
    int least = 1000, list = strncmp(lines[first] + indent(lines[first]), "- ", 2) == 0;
    bool plain = true;
    text all = {NULL, 0, 0};
    for (int i = first; i < end; i++) {
        const char *s = lines[i] + indent(lines[i]);
        least = indent(lines[i]) < least ? indent(lines[i]) : least;
        plain = plain && indent(lines[i]) <= 8 && !strstr(s, "   ");
    }
    append(&all, "", 0);
    if (list)
        put(out, "<ul>\n");
    for (int i = first; i < end; i++) {
        const char *s = lines[i] + indent(lines[i]);
        if (list && starts(s, "- ")) {
            if (all.size)
                put_paragraph(out, it, &all, "li", AS_TEXT);
            all.size = 0;
            s += 2;
        }
        if (!list && !plain)
            s = lines[i] + least;
        if (all.size)
            put(&all, list || plain ? " " : "\n");
        put(&all, s);
    }
    if (list || plain) {
        put_paragraph(out, it, &all, list ? "li" : "p", AS_TEXT);
        if (list)
            put(out, "</ul>\n");
    } else {
        put(out, "<pre>");
        put_text(out, it, all.data, all.data + all.size, AS_TEXT);
        put(out, "</pre>\n");
    }
    free(all.data);
}

/* Lines of an example, which begin at column 4. */
static int put_example(text *out, const header *h, int i)
{
    for (i++; i < h->manual_end && !example_ends(h->lines[i]); i++) {
        const char *line = h->lines[i];
        put(out, line + (indent(line) < 4 ? indent(line) : 4));
        put(out, "\n");
    }
    return i + 1;
}

static void put_chapter(text *out, const item *it)
{
    char **lines = it->in->lines;
    int end = it->doc_end;
    for (int i = it->doc; i < end;) {
        const char *example = example_name(lines[i]);
        int from = i;
        if (example) {
            text code = {NULL, 0, 0};
            i = put_example(&code, it->in, i);
            print(out, "<pre id=\"example-%s\" class=\"code\">", example);
            put_code(out, it, code.data, code.size);
            put(out, "</pre>\n");
            free(code.data);
            continue;
        }
        while (i < end && !is_blank(lines[i]) && !example_name(lines[i]))
            i++;
        if (i > from)
            put_block(out, it, lines, from, i);
        else
            i++;
    }
}

/* Whether a line of a comment begins a paragraph: the first one does not, and one does if its first word had had room
   above, if it has a label or names a function, or if a sentence without a full stop, which says what a function does,
   has ended above. */
static bool begins_paragraph(const text *above, const text *line, size_t column, bool head)
{
    size_t word = strcspn(line->data, " "), label = word_length(line->data);
    bool capital = isupper((unsigned char)line->data[0]);
    if (!line->size || !above->size)
        return true;
    if (column + 1 + word < 105 || (capital && line->data[label] == ':') ||
        (starts(line->data, "ignis_") && strstr(line->data, " - ")))
        return true;
    return head && capital && !strchr(".,;:", above->data[above->size - 1]);
}

/* A comment, until its parts begin: paragraphs. Then the parts. */
static void put_comment(text *out, const item *it)
{
    text paragraph = {NULL, 0, 0};
    size_t column = 0;
    int part = -1;
    bool head = it->what == FUNCTION;
    append(&paragraph, "", 0);
    for (int i = it->doc, end = it->doc_end; i <= end; i++) {
        text line = {NULL, 0, 0};
        int begun = -1;
        if (i < end)
            line = comment_line(it->in, i);
        for (int k = 0; k < FORM_PARTS && i < end && it->what == FUNCTION; k++)
            if (starts(line.data, FORM[k]))
                begun = k;
        if (paragraph.size &&
            (i == end || begun >= 0 || (part < 0 && begins_paragraph(&paragraph, &line, column, head)))) {
            put_paragraph(out, it, &paragraph, part < 0 ? "p" : "dd", part == 1 ? AS_ERRORS : AS_TEXT);
            paragraph.size = 0;
            head = false;
        }
        if (i == end)
            break;
        const char *s = line.data;
        if (begun >= 0) {
            if (part < 0)
                put(out, "<dl>\n");
            part = begun;
            print(out, "<dt>%.*s</dt>", (int)strlen(FORM[part]) - 2, FORM[part]);
            s += strlen(FORM[part]);
        }
        const char *streams = part >= 0 ? strstr(s, "Streams: ") : NULL;
        if (paragraph.size && *s)
            put(&paragraph, " ");
        append(&paragraph, s, streams ? (size_t)(streams - s) : strlen(s));
        if (streams) {
            put_paragraph(out, it, &paragraph, "dd", AS_TEXT);
            put(out, "<dt>Streams</dt>");
            paragraph.size = 0;
            put(&paragraph, streams + 9);
        }
        column = strlen(it->in->lines[i]);
        free(line.data);
    }
    if (part >= 0)
        put(out, "</dl>\n");
    free(paragraph.data);
}

/* >>page -------------------------------------------------------------------------------------------------------- */

static const char *const STYLE[] = {
    ":root{color-scheme:light "
    "dark;--back:#fff;--text:#1b1f24;--soft:#5c6670;--line:#d5dbe1;--code:#f4f6f8;--link:#0b57a8;--band:#e3ecf6}",
    "@media(prefers-color-scheme:dark){:root{--back:#15181c;--text:#dfe3e8;--soft:#98a3ae;--line:#343b43;--code:#"
    "1e2329;--link:#7fb6f5;",
    "--band:#22303f}}",
    "*{box-sizing:border-box}html{scroll-padding-top:1rem}",
    "body{margin:0;background:var(--back);color:var(--text);font:16px/1.5 "
    "system-ui,sans-serif;overflow-wrap:break-word}",
    "a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}",
    "main,nav,header{padding:0 1rem}main{max-width:64rem;min-width:0}header{padding-top:1rem}",
    "pre{background:var(--code);border:1px solid "
    "var(--line);border-radius:4px;padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}",
    "pre,code{font:13px/1.45 ui-monospace,Consolas,Menlo,monospace}pre i{color:var(--soft);font-style:normal}pre "
    "b{font-weight:600}",
    "header h1{font-size:1.4rem;margin:.5rem 0}",
    "main h1{font-size:1.9rem;line-height:1.2;margin:3rem 0 .8rem;padding:.6rem "
    ".8rem;background:var(--band);border-left:6px solid "
    "var(--link)}",
    "main h1.half{font-size:1.5rem}",
    "h2{font-size:1.35rem;margin:3rem 0 .5rem;padding-bottom:.15rem;border-bottom:2px solid var(--text)}",
    "h2.tag{font:600 1.3rem/1.4 ui-monospace,Consolas,Menlo,monospace;color:var(--link);border-color:var(--link)}",
    "h3{font-size:1.1rem;margin:2.2rem 0 .4rem;padding:.1rem 0 .1rem .6rem;border-left:4px solid var(--line)}",
    "h3 code{font-size:1.05rem;font-weight:700}h3.function{border-color:var(--link)}",
    "h3.type::after,h3.macro::after{font-size:.8rem;font-weight:400;color:var(--soft);padding-left:.6rem}",
    "h3.type::after{content:\"type\"}h3.macro::after{content:\"macro\"}",
    "h4{font-size:1rem;font-weight:600;font-style:italic;color:var(--soft);margin:2.5rem 0 .4rem;border-top:1px dashed "
    "var(--line)}",
    "dl{display:grid;grid-template-columns:6.5rem 1fr;gap:.15rem .6rem;margin:.5rem "
    "0}dt{color:var(--soft)}dd{margin:0}",
    "p{margin:.5rem 0}p,dl{max-width:54rem}.see{color:var(--soft)}:target{outline:2px solid "
    "var(--link);outline-offset:4px}",
    "nav ul{list-style:none;margin:0;padding:0 0 0 .9rem}nav "
    "summary{cursor:pointer}nav>details>summary{font-weight:600}",
    "nav .group{font-weight:600;color:var(--soft);margin:.5rem 0 0 -.4rem}",
    "input{width:100%;font:inherit;padding:.4rem .6rem;border:1px solid "
    "var(--line);border-radius:4px;background:var(--code);color:inherit}",
    ".search{padding:.5rem 0}#found{padding-left:.5rem}#found:empty{display:none}",
    "@media(max-width:35rem){dl{grid-template-columns:1fr}dd{margin:0 0 .3rem .9rem}}",
    "@media(min-width:64rem){body{display:grid;grid-template-columns:17rem minmax(0,1fr)}",
    "header{grid-column:2}nav{grid-row:1/"
    "3;position:sticky;top:0;height:100vh;overflow:auto;padding-top:1rem;border-right:1px solid "
    "var(--line)}",
    "main{grid-column:2}}",
    "@media print{body{display:block;font-size:10pt;background:#fff;color:#000}nav .search{display:none}",
    "nav{position:static;height:auto;border:0}nav ul{columns:2}nav ul "
    "ul{columns:1}main{max-width:none}a{color:inherit}",
    "h1,h2,h3{break-after:avoid}dl,pre{break-inside:avoid}}",
};

/* Each result is a link: first names that begin with what is typed, then names that contain it, then texts with all of
   its words. */
static const char *const SCRIPT[] = {
    "(function () {",
    "    var input = document.getElementById('search'), list = document.getElementById('found'), entries = null;",
    "    function rank(e, query, words) {",
    "        if (e.name.split(' ').some(function (n) { return n === query; })) return 0;",
    "        if (e.name.indexOf(query) === 0) return 1;",
    "        if (e.name.indexOf(query) >= 0) return 2;",
    "        return words.every(function (w) { return e.text.indexOf(w) >= 0; }) ? 3 : -1;",
    "    }",
    "    function search() {",
    "        var query = input.value.trim().toLowerCase(), words = query.split(/\\s+/), found = [];",
    "        list.textContent = '';",
    "        if (query.length < 2) return;",
    "        entries = entries || Array.prototype.map.call(document.querySelectorAll('main section'), function (s) {",
    "            var title = s.querySelector('h2,h3').textContent;",
    "            return {id: s.id, title: title, name: title.toLowerCase(), text: s.textContent.toLowerCase()};",
    "        });",
    "        entries.forEach(function (e) {",
    "            var r = rank(e, query, words);",
    "            if (r >= 0) found.push({rank: r, entry: e});",
    "        });",
    "        found.sort(function (a, b) { return a.rank - b.rank; });",
    "        found.slice(0, 40).forEach(function (f) {",
    "            var line = document.createElement('li'), link = document.createElement('a');",
    "            link.href = '#' + f.entry.id;",
    "            link.textContent = f.entry.title;",
    "            line.appendChild(link);",
    "            list.appendChild(line);",
    "        });",
    "        if (!found.length) list.textContent = 'nothing found';",
    "    }",
    "    if (!matchMedia('(min-width:64rem)').matches)",
    "        Array.prototype.forEach.call(document.querySelectorAll('nav>details'), function (d) { d.open = false; });",
    "    input.addEventListener('input', search);",
    "    input.value = decodeURIComponent((location.search.match(/[?&]search=([^&]*)/) || ['', ''])[1]);",
    "    search();",
    "})();",
};

/* A title as words: without what stands behind it, in small letters but for the first. */
static void put_title(text *out, const item *it)
{
    if (it->what == PART) {
        const char *end = strstr(it->title, " ---");
        escape(out, it->title, end ? (size_t)(end - it->title) : strlen(it->title));
    } else {
        escape(out, it->what == SECTION ? it->id : it->title,
               it->what == SECTION ? strlen(it->id) : capitals(it->title));
    }
}

static void put_contents(text *out)
{
    put(out, "<nav>\n<div class=\"search\"><input id=\"search\" type=\"search\" placeholder=\"Search\" "
             "aria-label=\"Search\">\n"
             "<ul id=\"found\"></ul></div>\n");
    for (int h = 0; h < header_count; h++) {
        bool chapter = false, section = false, overloads = false;
        if (!headers[h].end)
            continue;
        print(out, "<details open><summary><a href=\"#%s\">%s</a></summary>\n<ul>\n", headers[h].stem, headers[h].name);
        for (int i = 0; i < item_count; i++) {
            const item *it = &items[i];
            if (it->in != &headers[h])
                continue;
            overloads = overloads || it->what == OVERLOADS;
            if (it->what == SECTION && section)
                put(out, "</ul></details></li>\n");
            if (it->what == SECTION && !section)
                print(out, "<li class=\"group\"><a href=\"#%s-reference\">Reference</a></li>\n", headers[h].stem);
            if (it->what == CHAPTER && !chapter)
                put(out, "<li class=\"group\">Manual</li>\n");
            chapter = chapter || it->what == CHAPTER;
            if (it->what == SECTION || it->what == CHAPTER)
                print(out, it->what == SECTION ? "<li><details><summary><a href=\"#%s\">" : "<li><a href=\"#%s\">",
                      it->id);
            if (it->what == CHAPTER) {
                put_title(out, it);
                put(out, "</a></li>\n");
            } else if (it->what == SECTION) {
                put_title(out, it);
                put(out, "</a></summary><ul>\n");
                section = true;
            }
            for (int k = 0; section && k < it->name_count; k++)
                print(out, "<li><a href=\"#%s\">%s</a></li>\n", it->names[k], it->names[k]);
        }
        if (section)
            put(out, "</ul></details></li>\n");
        if (overloads)
            print(out, "<li><a href=\"#%s-cpp\">In C++</a></li>\n", headers[h].stem);
        put(out, "</ul></details>\n");
    }
    put(out, "</nav>\n");
}

/* A macro whose text is that of the implementation is shown without it. */
static void put_macro(text *out, const item *it)
{
    text shown = {NULL, 0, 0};
    for (const char *line = it->code.data; *line; line = strchr(line, '\n') + 1) {
        size_t length = strcspn(line, "\n"), name = starts(line, "#define ") ? 8 + word_length(line + 8) : 0;
        const char *private_name = strstr(line, "ignis_");
        if (name && line[name] == '(')
            name += strcspn(line + name, ")") + 1;
        append(&shown, line, name && private_name && private_name < line + length ? name : length);
        put(&shown, "\n");
    }
    put_code(out, it, shown.data, shown.size);
    free(shown.data);
}

/* Signatures of functions that are defined in the header. */
static void put_overloads(text *out, const item *it)
{
    for (const char *s = it->code.data; (s = strstr(s, "static inline ")) != NULL;) {
        size_t length = strcspn(s, "{");
        const char *begin = s + 14;
        s += length;
        length -= 14;
        while (length && strchr(" \n", begin[length - 1]))
            length--;
        put_code(out, it, begin, length);
        put(out, ";\n");
    }
}

/* The example of a section. */
static void put_family(text *out, const item *it)
{
    text code = {NULL, 0, 0};
    int first, end;
    if (!find_family(it->id, &first, &end))
        return;
    for (int i = first; i < end; i++) {
        const char *line = families.lines[i];
        put(&code, line + (indent(line) < 4 ? indent(line) : 4));
        put(&code, "\n");
    }
    print(out, "<p class=\"see\">For example</p>\n<pre class=\"code\" id=\"family-%s\">", it->id);
    put_code(out, it, code.data, code.size);
    put(out, "</pre>\n");
    free(code.data);
}

static void put_item(text *out, const item *it, bool *open)
{
    const char *about;
    if (*open && it->what != OVERLOADS) {
        put(out, "</section>\n");
        *open = false;
    }
    switch (it->what) {
    case LEAD: return;
    case PART:
        print(out, "<h4 id=\"%s\">", it->id);
        put_title(out, it);
        put(out, "</h4>\n");
        return;
    case NOTE: put_comment(out, it); return;
    case OVERLOADS:
        if (!*open)
            print(out, "<section id=\"%s-cpp\">\n<h2>In C++: %s</h2>\n", it->in->stem, it->in->name);
        *open = true;
        put_comment(out, it);
        put(out, "<pre class=\"code\">");
        put_overloads(out, it);
        put(out, "</pre>\n");
        return;
    case CHAPTER:
        print(out, "<section id=\"%s\">\n<h2>", it->id);
        about = strstr(it->title, ". ");
        put_text(out, it, it->title, about ? about : it->title + strlen(it->title), AS_TEXT);
        put(out, "</h2>\n");
        if (about) {
            put(out, "<p>");
            put_text(out, it, about + 2, about + strlen(about), AS_TEXT);
            put(out, "</p>\n");
        }
        put_chapter(out, it);
        put(out, "</section>\n");
        return;
    case SECTION:
        print(out, "<section id=\"%s\">\n<h2 class=\"tag\">&gt;&gt;%s</h2>\n", it->id, it->id);
        for (int i = 0; i < item_count; i++) {
            char tag[128];
            snprintf(tag, sizeof tag, ">>%s", it->id);
            const char *found = items[i].what == CHAPTER ? strstr(items[i].title, tag) : NULL;
            if (found && !isalpha((unsigned char)found[strlen(tag)])) {
                put(out, "<p class=\"see\">In the manual: ");
                put_link(out, items[i].id, items[i].title, capitals(items[i].title));
                put(out, "</p>\n");
            }
        }
        put_family(out, it);
        put(out, "</section>\n");
        return;
    default: break;
    }
    print(out, "<section id=\"%s\">\n<h3 class=\"%s\">", it->id,
          it->what == FUNCTION ? "function"
          : it->what == TYPE   ? "type"
                               : "macro");
    print(out, "<code>%s</code>", it->names[0]);
    for (int k = 1; k < it->name_count; k++)
        print(out, " <code id=\"%s\">%s</code>", it->names[k], it->names[k]);
    put(out, "</h3>\n<pre class=\"code\">");
    if (it->what == MACRO)
        put_macro(out, it);
    else
        put_code(out, it, it->code.data, it->code.size);
    put(out, "</pre>\n");
    put_comment(out, it);
    put(out, "</section>\n");
}

static void put_page(text *out)
{
    print(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Ignis %s</title>\n<style>\n",
        version);
    for (size_t i = 0; i < sizeof STYLE / sizeof *STYLE; i++)
        print(out, "%s\n", STYLE[i]);
    put(out, "</style>\n</head>\n<body>\n");
    put_contents(out);
    print(out, "<header><h1>Ignis %s</h1></header>\n<main>\n", version);
    for (int h = 0; h < header_count; h++) {
        bool open = false;
        if (!headers[h].end)
            continue;
        print(out, "<h1 id=\"%s\">%s</h1>\n<p>", headers[h].stem, headers[h].name);
        const char *about = strstr(strstr(headers[h].lines[0], " - ") + 3, " - ");
        escape(out, about ? about + 3 : "", about ? strlen(about + 3) : 0);
        put(out, "</p>\n");
        bool reference = false;
        for (int i = 0; i < item_count; i++) {
            if (items[i].in != &headers[h])
                continue;
            if (items[i].what == SECTION && !reference)
                print(out, "<h1 class=\"half\" id=\"%s-reference\">%s: reference</h1>\n", headers[h].stem,
                      headers[h].name);
            reference = reference || items[i].what == SECTION;
            put_item(out, &items[i], &open);
        }
        if (open)
            put(out, "</section>\n");
    }
    put(out, "</main>\n<script>\n");
    for (size_t i = 0; i < sizeof SCRIPT / sizeof *SCRIPT; i++)
        print(out, "%s\n", SCRIPT[i]);
    put(out, "</script>\n</body>\n</html>\n");
}

static void write_file(const char *path, const text *t)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(t->data, 1, t->size, file) != t->size || fclose(file) != 0)
        die("cannot write %s", path);
}

static void write_examples(const char *folder)
{
    for (int h = 0; h < header_count; h++) {
        for (int i = 0; i < headers[h].manual_end;) {
            const char *name = example_name(headers[h].lines[i]);
            char path[1024];
            text out = {NULL, 0, 0};
            if (!name) {
                i++;
                continue;
            }
            print(&out, "/* of %s */\n", headers[h].name);
            i = put_example(&out, &headers[h], i);
            snprintf(path, sizeof path, "%s/manual_%s.c", folder, name);
            write_file(path, &out);
            free(out.data);
        }
    }
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"ignis.h", "ignis_kernels.h", "ignis_models.h", "ignis_collective.h"};
    bool examples = argc > 1 && strcmp(argv[1], "--examples") == 0;
    int first = examples ? 3 : 2;
    int counts[OVERLOADS + 1] = {0};
    text out = {NULL, 0, 0};
    if (argc < first || argc - first > 8)
        die("usage: manual PAGE [HEADER...], or manual --examples FOLDER [HEADER...]");
    for (int i = first; i < argc; i++)
        read_header(argv[i]);
    read_lines(&families, "docs/examples.c");
    for (size_t i = 0; argc == first && i < sizeof all / sizeof *all; i++)
        read_header(all[i]);
    if (examples) {
        write_examples(argv[2]);
        return 0;
    }
    for (int i = 0; i < header_count; i++) {
        if (headers[i].end)
            read_manual(&headers[i]), read_declarations(&headers[i]);
    }
    check_items();
    if (problems)
        return 1;
    const char *from = strstr(headers[0].lines[0], " - v") + 4;
    snprintf(version, sizeof version, "%.*s", (int)strcspn(from, " "), from);
    put_page(&out);
    write_file(argv[1], &out);
    for (int i = 0; i < item_count; i++)
        counts[items[i].what] += items[i].name_count;
    printf("%d functions, %d types and %d macros are documented\n", counts[FUNCTION], counts[TYPE], counts[MACRO]);
    return 0;
}
