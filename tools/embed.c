// SPDX-License-Identifier: MIT
/*  embed.c - writes ignis_kernels.h: the files of kernels/ as arrays of C strings

        cc tools/embed.c -o build/embed
        build/embed             writes ignis_kernels.h
        build/embed --check     exits with 1 when ignis_kernels.h is not what would be written

    Run from the root of the repository. Equal sources give an equal file on every machine. The version is that of ignis.h.

    One literal per source line: a literal that holds a whole file would be beyond what compilers must accept (4095
    characters in C99, 64 KB in MSVC), and changes would not show line by line.
*/
#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_FROM "ignis.h"
#define SOURCE_DIR "kernels"
#define OUTPUT "ignis_kernels.h"
#define COMMON "ignis.cuh" /* comes first, the others follow in alphabetical order */
#define MAX_SOURCES 96
#define MAX_LINE 2000

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

typedef struct source {
    char name[64];   /* "elementwise.cu" */
    char symbol[64]; /* "elementwise_cu" */
    text content;
    int lines;
    uint64_t hash;
} source;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("embed: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void append(text *t, const char *data, size_t size)
{
    if (t->size + size + 1 > t->capacity) {
        t->capacity = 2 * (t->size + size + 1);
        t->data = (char *)realloc(t->data, t->capacity);
        if (!t->data)
            die("out of memory");
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

static void print(text *t, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof(line))
        die("a line of the output is too long");
    append(t, line, (size_t)length);
}

/* Reads a file without carriage returns, so that a checkout with Windows line ends embeds the same. 0: cannot be opened. */
static int read_file(const char *path, text *t)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    append(t, "", 0); /* an empty file is an empty string */
    for (int c; (c = fgetc(file)) != EOF;) {
        char byte = (char)c;
        if (byte != '\r')
            append(t, &byte, 1);
    }
    if (ferror(file))
        die("cannot read %s", path);
    fclose(file);
    return 1;
}

static uint64_t fnv1a(const char *data, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash;
}

/* >>sources ----------------------------------------------------------------------------------------------------- */

static int is_source(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && dot != name && (strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0);
}

static int compare_sources(const void *a, const void *b)
{
    const char *name_a = ((const source *)a)->name, *name_b = ((const source *)b)->name;
    int common = (strcmp(name_b, COMMON) == 0) - (strcmp(name_a, COMMON) == 0);
    return common ? common : strcmp(name_a, name_b);
}

static void read_source(source *s, const char *name)
{
    char path[1024];
    if (strlen(name) >= sizeof(s->name))
        die("%s/%s: the name is too long", SOURCE_DIR, name);
    strcpy(s->name, name);
    for (size_t i = 0; i <= strlen(name); i++)
        s->symbol[i] = (char)(name[i] && !isalnum((unsigned char)name[i]) ? '_' : tolower((unsigned char)name[i]));

    snprintf(path, sizeof(path), "%s/%s", SOURCE_DIR, name);
    if (!read_file(path, &s->content))
        die("cannot open %s", path);
    if (s->content.size == 0 || s->content.data[s->content.size - 1] != '\n')
        die("%s does not end with a line end", path);

    size_t column = 0;
    for (size_t i = 0; i < s->content.size; i++) {
        unsigned char c = (unsigned char)s->content.data[i];
        if (c == '\n') {
            s->lines++;
            column = 0;
        } else {
            if (c != '\t' && (c < 32 || c > 126))
                die("%s:%d: byte 0x%02x is not printable ASCII", path, s->lines + 1, c);
            if (++column > MAX_LINE)
                die("%s:%d: the line is longer than %d characters", path, s->lines + 1, MAX_LINE);
        }
    }
    s->hash = fnv1a(s->content.data, s->content.size);
}

static int read_sources(source *sources)
{
    int count = 0;
    DIR *dir = opendir(SOURCE_DIR);
    if (!dir)
        die("there is no folder %s here; run from the root of the repository", SOURCE_DIR);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!is_source(entry->d_name))
            continue;
        if (count == MAX_SOURCES)
            die("more than %d sources", MAX_SOURCES);
        read_source(&sources[count++], entry->d_name);
    }
    closedir(dir);
    qsort(sources, (size_t)count, sizeof(source), compare_sources);
    if (count == 0 || strcmp(sources[0].name, COMMON) != 0)
        die("%s/%s is missing", SOURCE_DIR, COMMON);
    return count;
}

/*  Whether arrays and kernels alone need a source: what others include, and what ignis_array_... and collective operations launch. */
static int is_basic(const source *s)
{
    return strstr(s->name, ".cuh") || strcmp(s->name, "elementwise.cu") == 0 || strcmp(s->name, "collective.cu") == 0;
}

/* >>output ------------------------------------------------------------------------------------------------------ */

static void append_literal(text *out, const char *line, size_t length)
{
    append(out, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\t') {
            append(out, "\\t", 2);
            continue;
        }
        int trigraph = line[i] == '?' && i > 0 && line[i - 1] == '?';
        if (line[i] == '"' || line[i] == '\\' || trigraph)
            append(out, "\\", 1);
        append(out, &line[i], 1);
    }
    append(out, "\"", 1);
}

static void append_lines(text *out, const source *s)
{
    print(out, "static const char *const ignis__lines_%s[] = {\n", s->symbol);
    for (const char *line = s->content.data; *line;) {
        const char *end = strchr(line, '\n');
        append(out, "    ", 4);
        append_literal(out, line, (size_t)(end - line));
        append(out, ",\n", 2);
        line = end + 1;
    }
    print(out, "};\n\n");
}

static void append_upper(text *out, const char *symbol)
{
    for (; *symbol; symbol++) {
        char c = (char)toupper((unsigned char)*symbol);
        append(out, &c, 1);
    }
}

/* The number behind #define NAME in a text. */
static int read_number(const text *t, const char *name)
{
    const char *line = t->data;
    size_t length = strlen(name);
    for (; (line = strstr(line, "\n#define ")) != NULL; line++)
        if (strncmp(line + 9, name, length) == 0 && line[9 + length] == ' ')
            return atoi(line + 9 + length);
    die("%s does not define %s", VERSION_FROM, name);
    return 0;
}

static void generate(text *out, const source *sources, int count)
{
    text header = {0};
    int major, minor, patch;
    if (!read_file(VERSION_FROM, &header))
        die("cannot open %s", VERSION_FROM);
    major = read_number(&header, "IGNIS_VERSION_MAJOR");
    minor = read_number(&header, "IGNIS_VERSION_MINOR");
    patch = read_number(&header, "IGNIS_VERSION_PATCH");
    print(out, "/*  ignis_kernels.h - v%d.%d.%d - the CUDA sources of Ignis, which it compiles at run time; ignis.h includes this file\n\n",
          major, minor, patch);
    print(out, "    SPDX-License-Identifier: MIT\n    The licence is at the end of ignis.h.\n\n");
    print(out, "    Generated from the folder %s by tools/embed.c. Change the sources, then: make %s\n\n", SOURCE_DIR, OUTPUT);
    for (int i = 0; i < count; i++)
        print(out, "        %-24s %5d lines %7lu bytes\n", sources[i].name, sources[i].lines, (unsigned long)sources[i].content.size);
    print(out, "*/\n#include <stdint.h>\n\n");
    print(out, "#define IGNIS_KERNELS_VERSION %d /* as IGNIS_VERSION */\n\n", 10000 * major + 100 * minor + patch);
    print(out, "#if defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_KERNELS_IMPLEMENTED)\n#define IGNIS_KERNELS_IMPLEMENTED\n\n");
    print(out, "typedef struct ignis__source {\n"
               "    const char *name;         /* of the file, for compile errors */\n"
               "    uint64_t hash;            /* 64-bit FNV-1a of the text */\n"
               "    const char *const *lines; /* the text is these, each followed by a line end; null: left out */\n"
               "    int line_count;\n"
               "} ignis__source;\n\n");

    print(out, "enum {\n");
    for (int i = 0; i < count; i++) {
        print(out, "    IGNIS__SOURCE_");
        append_upper(out, sources[i].symbol);
        print(out, ",\n");
    }
    print(out, "    IGNIS__SOURCE_COUNT\n};\n\n");

    for (int i = 0; i < count; i++)
        if (is_basic(&sources[i]))
            append_lines(out, &sources[i]);
    print(out, "#ifdef IGNIS_NO_TENSORS /* the sources stay known, by their hashes too: a bundle fits both kinds of program */\n"
               "#define IGNIS__LINES_OF_TENSORS(lines, count) NULL, 0\n#else\n"
               "#define IGNIS__LINES_OF_TENSORS(lines, count) lines, count\n\n");
    for (int i = 0; i < count; i++)
        if (!is_basic(&sources[i]))
            append_lines(out, &sources[i]);
    print(out, "#endif /* IGNIS_NO_TENSORS */\n\n");

    print(out, "#ifdef __GNUC__\n__attribute__((unused)) /* a program may do without kernels */\n#endif\n");
    print(out, "static const ignis__source ignis__sources[] = {\n");
    for (int i = 0; i < count; i++) {
        const source *s = &sources[i];
        print(out,
              is_basic(s) ? "    {\"%s\", 0x%08lx%08lxULL, ignis__lines_%s, %d},\n"
                          : "    {\"%s\", 0x%08lx%08lxULL, IGNIS__LINES_OF_TENSORS(ignis__lines_%s, %d)},\n",
              s->name, (unsigned long)(s->hash >> 32), (unsigned long)(s->hash & 0xffffffffu), s->symbol, s->lines);
    }
    print(out, "};\n\n#endif /* IGNIS_IMPLEMENTATION */\n");
}

/* Names the first line in which the two differ. */
static void check(const text *expected)
{
    text found = {0};
    size_t i = 0;
    int line = 1;
    if (!read_file(OUTPUT, &found))
        die("%s is missing; run: make %s", OUTPUT, OUTPUT);
    if (strcmp(found.data, expected->data) == 0)
        return;
    for (; found.data[i] && found.data[i] == expected->data[i]; i++)
        line += found.data[i] == '\n';
    die("%s differs from %s in line %d; run: make %s", OUTPUT, SOURCE_DIR, line, OUTPUT);
}

int main(int argc, char **argv)
{
    static source sources[MAX_SOURCES];
    text out = {0};
    int checking = argc == 2 && strcmp(argv[1], "--check") == 0;
    if (argc > 1 && !checking)
        die("usage: embed [--check]");

    generate(&out, sources, read_sources(sources));
    if (checking) {
        check(&out);
    } else {
        FILE *file = fopen(OUTPUT, "wb");
        if (!file || fwrite(out.data, 1, out.size, file) != out.size || fclose(file) != 0)
            die("cannot write %s", OUTPUT);
    }
    return 0;
}
