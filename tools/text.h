// SPDX-License-Identifier: MIT
/*  text.h - texts that grow, files, and the version of Ignis, for the programs that write the headers

    Define TOOL, the name that begins messages, above the #include. */
#ifndef TEXT_H
#define TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_FROM "src/base/version.h"

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static int version[3]; /* major, minor, patch: see read_version */

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs(TOOL ": ", stderr);
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
    char line[2048];
    int length;
    va_list args;
    va_start(args, format);
    length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof(line))
        die("a line of the output is too long");
    append(t, line, (size_t)length);
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

/* Reads the version from VERSION_FROM, the one place that defines it. */
static void read_version(void)
{
    static const char *const names[] = {"MAJOR", "MINOR", "PATCH"};
    text t = {0};
    if (!read_file(VERSION_FROM, &t))
        die("cannot open %s", VERSION_FROM);
    for (int i = 0; i < 3; i++) {
        char define[64];
        const char *found;
        snprintf(define, sizeof(define), "#define IGNIS_VERSION_%s ", names[i]);
        found = strstr(t.data, define);
        if (!found)
            die("%s does not define IGNIS_VERSION_%s", VERSION_FROM, names[i]);
        version[i] = atoi(found + strlen(define));
    }
    free(t.data);
}

#endif
