// SPDX-License-Identifier: MIT
/*  amalgamate.c - writes the headers of Ignis from their parts in src/

        cc tools/amalgamate.c -o build/amalgamate
        build/amalgamate             writes ignis.h and its like: every #include "part" becomes the text of the part, once
        build/amalgamate --lines     writes them with #line directives, for a debugger that shows the parts
        build/amalgamate --check     exits with 1 when a header is not what would be written, and names the first line that differs

    Run from the root of the repository. Equal parts give equal headers on every machine. An empty line follows each part, except at the end of a
    comment. An #include of a file that src/ does not have is copied, as all other lines are: conditionals are not evaluated.

    Refused, with the part and the line: a conditional that is not closed in its part, a tab, a character outside of ASCII, a line above MAX_COLUMNS,
    a part without a final line end, or with an empty line at its end, and a part that no root includes.
*/
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 1024
#define MAX_PATH 512
#define MAX_COLUMNS 150

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static const char *const roots[][2] = {{"src/ignis.h", "ignis.h"}, {"src/ignis_collective.h", "ignis_collective.h"}};
#define ROOTS ((int)(sizeof(roots) / sizeof(roots[0])))

static char included[MAX_PARTS][MAX_PATH]; /* by any root */
static int included_count, first_of_root;
static int failures, with_lines;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("amalgamate: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* Reports what is wrong with a part; the others are read all the same. */
static void refuse(const char *path, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", path, line, what);
    failures++;
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

/* Reads a file without carriage returns. 0: cannot be opened. */
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

/* >>parts ------------------------------------------------------------------------------------------------------- */

/* Writes the path of what an #include "name" in the file `from` means, without "folder/..". */
static void resolve(char *path, const char *from, const char *name)
{
    const char *slash = strrchr(from, '/');
    int length = slash ? (int)(slash - from) + 1 : 0;
    while (strncmp(name, "../", 3) == 0 && length > 0) {
        for (length--; length > 0 && from[length - 1] != '/'; length--)
            ;
        name += 3;
    }
    if (snprintf(path, MAX_PATH, "%.*s%s", length, from, name) >= MAX_PATH)
        die("%s: the path of %s is too long", from, name);
}

static int is_root(const char *path)
{
    for (int i = 0; i < ROOTS; i++)
        if (strcmp(roots[i][0], path) == 0)
            return 1;
    return 0;
}

static int is_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file)
        fclose(file);
    return file != NULL;
}

/* Whether a line is the directive; what follows it is at *rest. */
static int is_directive(const char *line, const char *directive, const char **rest)
{
    if (*line != '#')
        return 0;
    for (line++; *line == ' '; line++)
        ;
    *rest = line + strlen(directive);
    return strncmp(line, directive, strlen(directive)) == 0;
}

static void check_line(const char *path, int number, const char *line, size_t length)
{
    if (length > MAX_COLUMNS)
        refuse(path, number, "the line is too long");
    for (size_t i = 0; i < length; i++)
        if (line[i] < 32 || line[i] > 126) {
            refuse(path, number, line[i] == '\t' ? "a tab" : "a character outside of ASCII");
            break;
        }
}

static void add_part(text *out, const char *path);

/* Puts the part that a line includes in its place, once a root, with an empty line behind it unless a comment ends there (`next` is the rest of the
   file). 0: the line includes no part. */
static int add_included(text *out, const char *from, int number, const char *line, const char *next)
{
    char name[MAX_PATH], path[MAX_PATH];
    if (strncmp(line, "#include \"", 10) != 0 || sscanf(line + 10, "%500[^\"]", name) != 1)
        return 0;
    resolve(path, from, name);
    if (is_root(path) || !is_file(path))
        return 0;
    for (int i = first_of_root; i < included_count; i++)
        if (strcmp(included[i], path) == 0)
            return 1;
    if (included_count == MAX_PARTS)
        die("more than %d parts", MAX_PARTS);
    strcpy(included[included_count++], path);
    add_part(out, path);
    if (strncmp(next, "*/", 2) != 0)
        append(out, "\n", 1);
    if (with_lines) {
        char where[MAX_PATH + 32];
        append(out, where, (size_t)snprintf(where, sizeof(where), "#line %d \"%s\"\n", number + 1, from));
    }
    return 1;
}

static void add_part(text *out, const char *path)
{
    text t = {0};
    const char *rest;
    int number = 0, depth = 0;
    if (!read_file(path, &t))
        die("cannot open %s", path);
    if (t.size == 0 || t.data[t.size - 1] != '\n')
        refuse(path, 1, "the part does not end with a line end");
    if (t.size > 1 && t.data[t.size - 2] == '\n')
        refuse(path, 1, "the part ends with an empty line");
    if (with_lines && first_of_root < included_count) {
        char where[MAX_PATH + 32];
        append(out, where, (size_t)snprintf(where, sizeof(where), "#line 1 \"%s\"\n", path));
    }
    for (char *line = t.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        number++;
        check_line(path, number, line, (size_t)(end - line));
        depth += is_directive(line, "if", &rest);
        depth -= is_directive(line, "endif", &rest);
        if (depth < 0) {
            refuse(path, number, "#endif without #if");
            depth = 0;
        }
        if (!add_included(out, path, number, line, end + 1)) {
            append(out, line, (size_t)(end - line));
            append(out, "\n", 1);
        }
    }
    if (depth > 0)
        refuse(path, number, "an #if is not closed in its part");
    free(t.data);
}

/* >>unreached --------------------------------------------------------------------------------------------------- */

static int is_included(const char *path)
{
    for (int i = 0; i < included_count; i++)
        if (strcmp(included[i], path) == 0)
            return 1;
    return is_root(path);
}

/* Refuses the files of a folder, and of those in it, that no root includes. */
static void find_unreached(const char *folder)
{
    DIR *dir = opendir(folder);
    char path[MAX_PATH];
    if (!dir)
        die("cannot open %s", folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        DIR *below;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path))
            die("%s/%s: the path is too long", folder, entry->d_name);
        if ((below = opendir(path)) != NULL) {
            closedir(below);
            find_unreached(path);
        } else if (!is_included(path)) {
            refuse(path, 1, "no root includes this part");
        }
    }
    closedir(dir);
}

/* >>headers ----------------------------------------------------------------------------------------------------- */

/* 1: the header is what its parts make; else the first line that differs is named. */
static int check_header(const char *path, const text *made)
{
    text found = {0};
    size_t i;
    int line = 1;
    if (!read_file(path, &found))
        die("cannot open %s; run: make headers", path);
    for (i = 0; i < found.size && i < made->size && found.data[i] == made->data[i]; i++)
        line += found.data[i] == '\n';
    if (i < found.size || i < made->size)
        refuse(path, line, "is not what the parts in src/ make. Change these, then run: make headers");
    i = i == found.size && i == made->size;
    free(found.data);
    return (int)i;
}

/* A header that has not changed is left alone, so that make does not take it for a new one. */
static void write_header(const char *path, const text *made)
{
    text found = {0};
    const int same = read_file(path, &found) && found.size == made->size && memcmp(found.data, made->data, made->size) == 0;
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
    const int check = argc == 2 && strcmp(argv[1], "--check") == 0;
    text made[ROOTS] = {{0}};
    with_lines = argc == 2 && strcmp(argv[1], "--lines") == 0;
    if (argc > 1 && !check && !with_lines) {
        fputs("usage: amalgamate [--check | --lines]\n", stderr);
        return 2;
    }
    for (int i = 0; i < ROOTS; i++) {
        first_of_root = included_count;
        add_part(&made[i], roots[i][0]);
    }
    find_unreached("src");
    for (int i = 0; i < ROOTS && !failures; i++) {
        if (check)
            check_header(roots[i][1], &made[i]);
        else
            write_header(roots[i][1], &made[i]);
    }
    for (int i = 0; i < ROOTS; i++)
        free(made[i].data);
    return failures > 0;
}
