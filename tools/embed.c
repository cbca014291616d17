// SPDX-License-Identifier: MIT
/*  embed.c - writes the files of kernels/ as arrays of C strings: ignis_kernels.h, and of kernels/models/ a part of
    ignis_models.h. The texts of src/shared/ and src/shared/models/, which the host reads, too, come with them.

        cc tools/embed.c -o build/embed
        build/embed [--check | --strip FILE]

    - without options: writes ignis_kernels.h and build/model_kernels.c, which tools/amalgamate.c puts into
      ignis_models.h.
    - --check: exits with 1 when one of them is not what would be written.
    - --strip FILE: prints a source as it would be embedded.

    Run from the root of the repository. Equal sources give equal files on every machine. The version is that of Ignis.

    Every program carries the texts, so they have no comments and no indentation. Lines keep their numbers, so that
    messages of the compiler name the line of the file. tools/check_kernel_texts.sh compares the texts with the files.

    A source line is a literal of its own, and so is a run of empty lines, so that changes show line by line. The
    compiler joins literals to pieces of at most MAX_PIECE characters: compilers need not accept more than 4095 in C99.
    Each piece costs a pointer, and 24 bytes to relocate it. A piece is an array: linkers drop arrays that nothing
    names, and no literals.

    A source names the sources that it includes. So a program that uses one source carries its text and theirs, and
    no others.
*/
#include <ctype.h>
#include <dirent.h>
#include <stdint.h>

#define TOOL "embed"
#include "text.h"

#define SOURCE_DIR "kernels"
#define MODELS_DIR "kernels/models"
#define SHARED_DIR "src/shared" /* #include "shared/name.h"; those of models are in a folder below */
#define OUTPUT "ignis_kernels.h"
#define MODELS_OUTPUT "build/model_kernels.c"
#define COMMON "ignis.cuh" /* comes first in its folder, the others follow in alphabetical order */
#define MAX_SOURCES 192
#define MAX_LINE 2000
#define MAX_PIECE 4000

typedef struct source {
    char name[64];   /* "elementwise.cu"; as it is included */
    char symbol[64]; /* "elementwise_cu" */
    text content;    /* as it is embedded */
    int lines;
    int is_basic;   /* arrays and kernels alone need it */
    int is_written; /* in the output */
    uint64_t hash;
} source;

static uint64_t fnv1a(const char *data, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash;
}

/* >>stripping --------------------------------------------------------------------------------------------------- */

/* A source that is being stripped. */
typedef struct strip {
    const char *path, *at;
    int line;          /* that has `at` */
    int held;          /* line ends inside of comments since the last token, not written yet */
    int gap;           /* white space or a comment since the last token, not written yet */
    int is_empty;      /* no token yet since the last line end that was not continued */
    int ends_in_space; /* what was written, but for line ends */
    text out;
} strip;

static void refuse(const strip *s, const char *why) { die("%s:%d: %s", s->path, s->line, why); }

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Writes what is between two tokens. A comment of several lines between tokens of one line leaves continued lines. */
static void write_gap(strip *s)
{
    if (s->gap && !s->is_empty && !s->ends_in_space) {
        append(&s->out, " ", 1);
        s->ends_in_space = 1;
    }
    for (; s->held > 0; s->held--)
        append(&s->out, s->is_empty ? "\n" : "\\\n", s->is_empty ? 1 : 2);
    s->gap = 0;
}

static void write_token(strip *s, size_t length)
{
    write_gap(s);
    append(&s->out, s->at, length);
    for (; length > 0; length--)
        s->line += *s->at++ == '\n';
    s->is_empty = s->ends_in_space = 0;
}

static void skip_comment(strip *s)
{
    int is_line = s->at[1] == '/';
    const char *end = s->at + 2;
    if (is_line)
        while (*end && (*end != '\n' || end[-1] == '\\'))
            end++;
    else if ((end = strstr(end, "*/")) != NULL)
        end += 2;
    else
        refuse(s, "the comment has no end");
    for (; s->at < end; s->at++) {
        s->line += *s->at == '\n';
        s->held += *s->at == '\n';
    }
    s->gap = 1;
}

/* The characters of a word or a number: 1'000 is one, and so is the prefix of a literal. */
static size_t word_length(const char *at)
{
    size_t length = 1;
    while (is_word(at[length]) || (at[length] == '\'' && isdigit((unsigned char)at[0]) && is_word(at[length + 1])))
        length++;
    return length;
}

static size_t literal_length(const strip *s)
{
    size_t length = 1;
    for (; s->at[length] != s->at[0]; length++) {
        length += s->at[length] == '\\'; /* of an escape, or of a line that goes on */
        if (s->at[length] == 0 || (s->at[length] == '\n' && s->at[length - 1] != '\\'))
            refuse(s, "the literal has no end in its line");
    }
    return length + 1;
}

static void strip_token(strip *s)
{
    const char *at = s->at;
    if (is_word(at[0])) {
        size_t length = word_length(at);
        if (at[length] == '"' && at[length - 1] == 'R')
            refuse(s, "raw string literals cannot be embedded");
        write_token(s, length);
    } else if (at[0] == '\\') {
        if (at[1] != '\n')
            refuse(s, "a backslash outside of literals does not end its line");
        write_gap(s);
        append(&s->out, "\\\n", 2);
        s->line++;
        s->at += 2;
    } else {
        write_token(s, at[0] == '"' || at[0] == '\'' ? literal_length(s) : 1);
    }
}

/* The tokens of a text that ends with a line end, each in its line, without comments and with one space where there was
   any. */
static text strip_text(const char *path, const text *from)
{
    strip s = {path, from->data, 1, 0, 0, 1, 0, {0}};
    while (*s.at) {
        if (*s.at == '\n') {
            s.is_empty = 1;
            s.held++;
            write_gap(&s);
            s.ends_in_space = 0;
            s.line++;
            s.at++;
        } else if (*s.at == ' ' || *s.at == '\t') {
            s.gap = 1;
            s.at++;
        } else if (s.at[0] == '/' && (s.at[1] == '/' || s.at[1] == '*')) {
            skip_comment(&s);
        } else {
            strip_token(&s);
        }
    }
    return s.out;
}

/* >>sources ----------------------------------------------------------------------------------------------------- */

static int is_source(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && dot != name && (strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
}

static int compare_sources(const void *a, const void *b)
{
    const char *name_a = ((const source *)a)->name, *name_b = ((const source *)b)->name;
    int common = (strcmp(name_b, COMMON) == 0) - (strcmp(name_a, COMMON) == 0);
    return common ? common : strcmp(name_a, name_b);
}

/* A file as it is embedded. */
static text read_stripped(const char *path)
{
    text file = {0}, stripped;
    int line = 1;
    size_t column = 0;
    if (!read_file(path, &file))
        die("cannot open %s", path);
    if (file.size == 0 || file.data[file.size - 1] != '\n')
        die("%s does not end with a line end", path);
    for (size_t i = 0; i < file.size; i++) {
        unsigned char c = (unsigned char)file.data[i];
        if (c == '\n') {
            line++;
            column = 0;
        } else {
            if (c != '\t' && (c < 32 || c > 126))
                die("%s:%d: byte 0x%02x is not printable ASCII", path, line, c);
            if (++column > MAX_LINE)
                die("%s:%d: the line is longer than %d characters", path, line, MAX_LINE);
        }
    }
    stripped = strip_text(path, &file);
    free(file.data);
    return stripped;
}

/* prefix: of the name by which kernels include it. */
static void read_source(source *s, const char *folder, const char *prefix, const char *name)
{
    char path[1024];
    if (snprintf(s->name, sizeof(s->name), "%s%s", prefix, name) >= (int)sizeof(s->name))
        die("%s/%s: the name is too long", folder, name);
    for (size_t i = 0; i <= strlen(s->name); i++) {
        const char c = s->name[i];
        s->symbol[i] = (char)(c && !isalnum((unsigned char)c) ? '_' : tolower((unsigned char)c));
    }

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    s->content = read_stripped(path);
    for (size_t i = 0; i < s->content.size; i++)
        s->lines += s->content.data[i] == '\n';
    s->hash = fnv1a(s->content.data, s->content.size);
}

/* Marks, in an array of flags, the sources that a source includes, by itself or in those. */
static void mark_included(const source *sources, int count, const source *from, char *marks)
{
    for (const char *at = from->content.data; (at = strstr(at, "#include \"")) != NULL;) {
        size_t length = strcspn(at += strlen("#include \""), "\"");
        for (int i = 0; i < count; i++) {
            if (strlen(sources[i].name) != length || strncmp(sources[i].name, at, length) != 0 || marks[i])
                continue;
            marks[i] = 1;
            mark_included(sources, count, &sources[i], marks);
        }
    }
}

/* Marks a source and what it includes as what arrays and kernels alone need. */
static void mark_basic(source *sources, int count, const char *name)
{
    char marks[MAX_SOURCES] = {0};
    for (int i = 0; i < count; i++) {
        if (strcmp(sources[i].name, name) != 0)
            continue;
        marks[i] = 1;
        mark_included(sources, count, &sources[i], marks);
    }
    for (int i = 0; i < count; i++)
        sources[i].is_basic |= marks[i];
}

/* Reads the sources of a folder behind the first `count`. Returns how many there are then. */
static int read_folder(source *sources, int count, const char *folder, const char *prefix)
{
    DIR *dir = opendir(folder);
    if (!dir && *prefix)
        return count; /* no shared texts */
    if (!dir)
        die("there is no folder %s here; run from the root of the repository", folder);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!is_source(entry->d_name))
            continue;
        if (count == MAX_SOURCES)
            die("more than %d sources", MAX_SOURCES);
        read_source(&sources[count++], folder, prefix, entry->d_name);
    }
    closedir(dir);
    return count;
}

/* Reads the sources of a folder, and the shared texts that they include, behind the first `count`. */
static int read_sources(source *sources, int count, const char *folder, const char *shared, const char *prefix)
{
    const int first = count;
    count = read_folder(sources, read_folder(sources, first, folder, ""), shared, prefix);
    qsort(sources + first, (size_t)(count - first), sizeof(source), compare_sources);
    if (count == first)
        die("%s has no sources", folder);
    return count;
}

/* >>output ------------------------------------------------------------------------------------------------------ */

static void append_literal(text *out, const char *line, size_t length)
{
    append(out, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\t' || line[i] == '\n') {
            append(out, line[i] == '\t' ? "\\t" : "\\n", 2);
            continue;
        }
        int trigraph = line[i] == '?' && i > 0 && line[i - 1] == '?';
        if (line[i] == '"' || line[i] == '\\' || trigraph)
            append(out, "\\", 1);
        append(out, &line[i], 1);
    }
    append(out, "\"", 1);
}

/* A literal for each line, with the empty lines that follow it; then the list of the pieces. */
static void append_pieces(text *out, const source *s)
{
    size_t used = 0;
    int pieces = 1;
    print(out, "static const char ignis__text_%s_0[] =", s->symbol);
    for (const char *line = s->content.data; *line;) {
        size_t length = strcspn(line, "\n");
        length += strspn(line + length, "\n");
        if (used + length > MAX_PIECE) {
            print(out, ";\nstatic const char ignis__text_%s_%d[] =", s->symbol, pieces++);
            used = 0;
        }
        append(out, "\n    ", 5);
        append_literal(out, line, length);
        used += length;
        line += length;
    }
    print(out, ";\nstatic const char *const ignis__text_%s[] = {\n", s->symbol);
    for (int i = 0; i < pieces; i++)
        print(out, "    ignis__text_%s_%d,\n", s->symbol, i);
    print(out, "};\n\n");
}

static void append_upper(text *out, const char *symbol)
{
    for (; *symbol; symbol++) {
        char c = (char)toupper((unsigned char)*symbol);
        append(out, &c, 1);
    }
}

/* Writes the numbers of sources from `first` on, and what follows them. */
static void append_enumerators(text *out, const source *sources, int first, int count, const char *end)
{
    print(out, "enum {\n");
    for (int i = first; i < count; i++) {
        print(out, "    IGNIS__SOURCE_");
        append_upper(out, sources[i].symbol);
        print(out, "%s,\n", i == first && first > 0 ? " = IGNIS__SOURCE_COUNT" : "");
    }
    print(out, "    %s\n};\n\n", end);
}

/* Writes a source, and before it those that it includes, unless they are in the output or before `first`. */
static void append_source(text *out, source *sources, int first, int count, int at)
{
    source *s = &sources[at];
    char marks[MAX_SOURCES] = {0};
    if (s->is_written || at < first)
        return;
    s->is_written = 1;
    mark_included(sources, count, s, marks);
    for (int i = first; i < count; i++)
        if (marks[i])
            append_source(out, sources, first, count, i);
    print(out, "static const ignis__source *const ignis__includes_%s[] = {\n", s->symbol);
    for (int i = 0; i < count; i++)
        if (marks[i])
            print(out, "    &ignis__source_%s,\n", sources[i].symbol);
    print(out, "    NULL};\n%s const ignis__source ignis__source_%s = {\n", first > 0 ? "static" : "IGNIS__PRIVATE",
          s->symbol);
    print(out, "    \"%s\", 0x%08lx%08lxULL, %s(%s), ignis__includes_%s, %d};\n\n", s->name,
          (unsigned long)(s->hash >> 32), (unsigned long)(s->hash & 0xffffffffu),
          s->is_basic || first > 0 ? "IGNIS__PIECES" : "IGNIS__PIECES_OF_TENSORS", s->symbol, s->symbol, at - first);
}

/* Writes a hash of the sources from `first` on, as a macro. */
static void append_hash(text *out, const source *sources, int first, int count, const char *name)
{
    uint64_t all = fnv1a(NULL, 0);
    for (int i = first; i < count; i++)
        all = (all ^ sources[i].hash) * 0x100000001b3u;
    print(out, "#define %s 0x%08lx%08lxULL /* of them all */\n\n", name, (unsigned long)(all >> 32),
          (unsigned long)(all & 0xffffffffu));
}

/* Writes the sources from `first` on, and a list of them. */
static void append_sources(text *out, source *sources, int first, int count, const char *list)
{
    for (int i = first; i < count; i++)
        append_source(out, sources, first, count, i);
    print(out, "/*  All of them: a program that uses this list carries all texts. */\n");
    print(out, "#ifdef __GNUC__\n__attribute__((unused)) /* a program may do without kernels */\n#endif\n");
    print(out, "%s = {\n", list);
    for (int i = first; i < count; i++)
        print(out, "    &ignis__source_%s,\n", sources[i].symbol);
    print(out, "};\n");
}

static void generate(text *out, source *sources, int count)
{
    read_version();
    print(out,
          "/*  ignis_kernels.h - v%d.%d.%d - the CUDA sources of Ignis, which it compiles at run time; ignis.h "
          "includes this file\n\n",
          version[0], version[1], version[2]);
    print(out, "    SPDX-License-Identifier: MIT\n    The licence is at the end of ignis.h.\n\n");
    print(out, "    Generated from %s and %s by tools/embed.c. Change the sources, then: make headers\n\n", SOURCE_DIR,
          SHARED_DIR);
    for (int i = 0; i < count; i++)
        print(out, "        %-24s %5d lines %7lu bytes\n", sources[i].name, sources[i].lines,
              (unsigned long)sources[i].content.size);
    print(out, "*/\n#include <stddef.h>\n#include <stdint.h>\n\n");
    print(out, "#define IGNIS_KERNELS_VERSION %d /* as IGNIS_VERSION */\n\n",
          10000 * version[0] + 100 * version[1] + version[2]);
    print(out, "#if (defined(IGNIS_IMPLEMENTATION) || defined(IGNIS__PARTS)) && !defined(IGNIS_KERNELS_IMPLEMENTED)\n"
               "#define IGNIS_KERNELS_IMPLEMENTED\n\n"
               "#ifndef IGNIS__PRIVATE\n#define IGNIS__PRIVATE static\n#endif\n\n");
    print(out, "/*  A text, and what it includes. Linkers leave out the sources that a program names nowhere. */\n"
               "typedef struct ignis__source {\n"
               "    const char *name;          /* of the file, for compile errors */\n"
               "    uint64_t hash;             /* 64-bit FNV-1a of the text */\n"
               "    const char *const *pieces; /* the text is these, one behind the other; null: left out */\n"
               "    int piece_count;\n"
               "    const struct ignis__source *const *includes; /* by itself or in those; a null follows them */\n"
               "    int number;                                  /* in the list of its header */\n"
               "} ignis__source;\n\n");

    append_enumerators(out, sources, 0, count, "IGNIS__SOURCE_COUNT");
    append_hash(out, sources, 0, count, "IGNIS__SOURCES_HASH");
    print(out, "#define IGNIS__PIECES(symbol) ignis__text_##symbol, (int)(sizeof ignis__text_##symbol / sizeof "
               "*ignis__text_##symbol)\n\n");
    print(out, "#ifdef IGNIS__PARTS /* a part that is compiled alone: see make parts */\n");
    for (int i = 0; i < count; i++)
        print(out, "extern const ignis__source ignis__source_%s;\n", sources[i].symbol);
    print(out, "extern const ignis__source *const ignis__sources[IGNIS__SOURCE_COUNT];\n#else\n\n");

    for (int i = 0; i < count; i++)
        if (sources[i].is_basic)
            append_pieces(out, &sources[i]);
    print(out, "#ifdef IGNIS_NO_TENSORS /* the sources stay known, by their hashes too: a bundle fits both kinds of "
               "program */\n"
               "#define IGNIS__PIECES_OF_TENSORS(symbol) NULL, 0\n#else\n"
               "#define IGNIS__PIECES_OF_TENSORS(symbol) IGNIS__PIECES(symbol)\n\n");
    for (int i = 0; i < count; i++)
        if (!sources[i].is_basic)
            append_pieces(out, &sources[i]);
    print(out, "#endif /* IGNIS_NO_TENSORS */\n\n");
    append_sources(out, sources, 0, count, "IGNIS__PRIVATE const ignis__source *const ignis__sources[]");
    print(out, "\n#endif /* IGNIS__PARTS */\n#endif /* IGNIS_IMPLEMENTATION */\n");
}

/* The part of ignis_models.h. Its numbers follow those of ignis_kernels.h. */
static void generate_models(text *out, source *sources, int first, int count)
{
    print(out,
          "/* --- kernels of models, written from %s by tools/embed.c. Change the sources, then: make headers */\n",
          MODELS_DIR);
    print(out, "/* clang-format off */\n\n");
    append_enumerators(out, sources, first, count, "IGNIS__SOURCE_MODELS_END");
    append_hash(out, sources, first, count, "IGNIS__MODEL_SOURCES_HASH");
    for (int i = first; i < count; i++)
        append_pieces(out, &sources[i]);
    append_sources(out, sources, first, count, "static const ignis__source *const ignis__model_kernel_sources[]");
    print(out, "/* clang-format on */\n");
}

/* Names the first line in which the file and what would be written differ. */
static void check(const char *path, const char *folder, const text *expected)
{
    text found = {0};
    size_t i = 0;
    int line = 1;
    if (!read_file(path, &found))
        die("%s is missing; run: make headers", path);
    if (strcmp(found.data, expected->data) == 0)
        return;
    for (; found.data[i] && found.data[i] == expected->data[i]; i++)
        line += found.data[i] == '\n';
    die("%s differs from %s in line %d; run: make headers", path, folder, line);
}

/* A file that has not changed is left alone, so that make does not take it for a new one. */
static void write(const char *path, const text *made)
{
    text found = {0};
    const int same =
        read_file(path, &found) && found.size == made->size && memcmp(found.data, made->data, made->size) == 0;
    FILE *file;
    free(found.data);
    if (same)
        return;
    file = fopen(path, "wb");
    if (!file || fwrite(made->data, 1, made->size, file) != made->size || fclose(file) != 0)
        die("cannot write %s", path);
}

int main(int argc, char **argv)
{
    static source sources[MAX_SOURCES];
    int own, all;
    text kernels = {0}, models = {0};
    int checking = argc == 2 && strcmp(argv[1], "--check") == 0,
        stripping = argc == 3 && strcmp(argv[1], "--strip") == 0;
    if (argc > 1 && !checking && !stripping)
        die("usage: embed [--check | --strip FILE]");
    if (stripping) {
        text stripped = read_stripped(argv[2]);
        fputs(stripped.data, stdout);
        return 0;
    }

    own = read_sources(sources, 0, SOURCE_DIR, SHARED_DIR, "shared/");
    all = read_sources(sources, own, MODELS_DIR, SHARED_DIR "/models", "shared/models/");
    if (strcmp(sources[0].name, COMMON) != 0)
        die("%s/%s is missing", SOURCE_DIR, COMMON);
    mark_basic(sources, own, COMMON); /* for kernels of users */
    mark_basic(sources, own, "elementwise.cu");
    mark_basic(sources, own, "collective.cu");
    generate(&kernels, sources, own);
    generate_models(&models, sources, own, all);
    if (checking) {
        check(OUTPUT, SOURCE_DIR, &kernels);
        check(MODELS_OUTPUT, MODELS_DIR, &models);
    } else {
        write(OUTPUT, &kernels);
        write(MODELS_OUTPUT, &models);
    }
    return 0;
}
