// SPDX-License-Identifier: MIT
/*  text_ids.c - the other side of tokenizers_compare.py

    text_ids TOKENIZER             answers what stands on its standard input, an answer for each request, all numbers 32
    bits, little-endian:
        'e' flags size bytes       encodes a text (flags: 1 no_bos, 2 plain): the count, the ids
        'd' flags count ids        decodes (flags: 1 with control tokens): the size, the bytes
        's' flags count ids        the same through an ignis_text_stream
    text_ids TOKENIZER FILE        how many megabytes of the file it encodes a second
    What cannot be opened: the name of the status and the message, and exit code 2. No GPU is needed. */
#define _POSIX_C_SOURCE 200809L
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void say_nothing(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

static bool read_number(int32_t *number) { return fread(number, 1, 4, stdin) == 4; }

static void write_bytes(int64_t count, const void *data, size_t size)
{
    int32_t number = (int32_t)count;
    fwrite(&number, 1, 4, stdout);
    if (count > 0)
        fwrite(data, size, (size_t)count, stdout);
    fflush(stdout);
}

static int64_t stream_all(ignis_tokenizer tokenizer, const int32_t *ids, int count, bool control, char *out,
                          int capacity)
{
    ignis_text_stream stream;
    int size = 0, i, got;
    memset(&stream, 0, sizeof stream);
    stream.tokenizer = tokenizer;
    stream.control = control;
    for (i = 0; i <= count; i++) {
        got = i < count ? ignis_text_stream_put(&stream, ids[i], out + size, capacity - size)
                        : ignis_text_stream_end(&stream, out + size, capacity - size);
        if (got < 0)
            return -1;
        size += got;
    }
    return size;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int measure(ignis_tokenizer tokenizer, const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = (char *)malloc(1 << 28);
    size_t size = file && text ? fread(text, 1, 1 << 28, file) : 0;
    int32_t *ids = (int32_t *)malloc((size + 16) * sizeof *ids);
    double best = 1e9, begin;
    int i, count = 0;
    if (file)
        fclose(file);
    for (i = 0; ids && i < 5; i++) {
        begin = seconds();
        count = ignis_tokenizer_encode(tokenizer, text, (int64_t)size, NULL, ids, (int)size + 16);
        best = seconds() - begin < best ? seconds() - begin : best;
    }
    printf("%.2f MB/s, %d ids\n", (double)size / best / 1e6, count);
    free(text);
    free(ids);
    return 0;
}

int main(int argc, char **argv)
{
    ignis_desc desc;
    ignis_encode_desc encode;
    ignis_decode_desc decode;
    ignis_tokenizer tokenizer;
    int kind, capacity = 1 << 24;
    int32_t flags, size, *ids = (int32_t *)malloc((size_t)capacity * 4);
    char *bytes = (char *)malloc((size_t)capacity);
    memset(&desc, 0, sizeof desc);
    memset(&encode, 0, sizeof encode);
    memset(&decode, 0, sizeof decode);
    desc.dry_run = true;
    desc.logger.log_fn = say_nothing;
    if (argc < 2 || !ids || !bytes || ignis_setup(&desc) != IGNIS_OK)
        return 1;
    tokenizer = ignis_tokenizer_open(argv[1]);
    if (!tokenizer.id) {
        printf("%s %s\n", ignis_status_name(ignis_status_last()), ignis_status_message());
        return 2;
    }
    if (argc > 2)
        measure(tokenizer, argv[2]);
    while (argc == 2 && (kind = getchar()) != EOF) {
        if (!read_number(&flags) || !read_number(&size))
            return 1;
        encode.no_bos = (flags & 1) != 0;
        encode.plain = (flags & 2) != 0;
        decode.control = (flags & 1) != 0;
        if (kind == 'e') {
            char *text = (char *)malloc((size_t)size + 1); /* of exactly its size, for sanitizers */
            if (!text || fread(text, 1, (size_t)size, stdin) != (size_t)size)
                return 1;
            write_bytes(ignis_tokenizer_encode(tokenizer, text, size, &encode, ids, capacity), ids, 4);
            free(text);
        } else if (fread(ids, 4, (size_t)size, stdin) != (size_t)size) {
            return 1;
        } else if (kind == 'd') {
            write_bytes(ignis_tokenizer_decode(tokenizer, ids, size, &decode, bytes, capacity), bytes, 1);
        } else {
            write_bytes(stream_all(tokenizer, ids, size, decode.control, bytes, capacity), bytes, 1);
        }
    }
    ignis_tokenizer_free(tokenizer);
    free(ids);
    free(bytes);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "text_ids: %s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
