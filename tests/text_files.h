// SPDX-License-Identifier: MIT
/*  text_files.h - small GGUF files with a tokenizer, for test_text.c and fuzz_text.c */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*  A text that grows, for files. */
typedef struct buffer {
    char *data;
    size_t size, capacity;
} buffer;

static void add_bytes(buffer *out, const void *data, size_t size)
{
    if (out->size + size + 1 > out->capacity) {
        out->capacity = (out->size + size + 1) * 2;
        out->data = (char *)realloc(out->data, out->capacity);
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
    out->data[out->size] = 0;
}

static void add_text(buffer *out, const char *text) { add_bytes(out, text, strlen(text)); }

static void add_number(buffer *out, uint64_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i);
        add_bytes(out, &byte, 1);
    }
}

static void add_string(buffer *out, const char *text)
{
    add_number(out, strlen(text), 8);
    add_text(out, text);
}

static int gguf_keys; /* that were added since the last file */

static void add_key(buffer *out, const char *name, uint32_t type)
{
    gguf_keys++;
    add_string(out, name);
    add_number(out, type, 4);
}

static void add_key_text(buffer *out, const char *name, const char *text)
{
    add_key(out, name, 8);
    add_string(out, text);
}

static void add_key_number(buffer *out, const char *name, uint32_t value)
{
    add_key(out, name, 4);
    add_number(out, value, 4);
}

/*  Texts with a space between them. */
static void add_key_texts(buffer *out, const char *name, const char *texts, char between)
{
    size_t count = 1, i;
    for (i = 0; texts[i]; i++)
        count += texts[i] == between;
    add_key(out, name, 9);
    add_number(out, 8, 4);
    add_number(out, count, 8);
    while (count-- > 0) {
        size_t size = 0;
        while (texts[size] && texts[size] != between)
            size++;
        add_number(out, size, 8);
        add_bytes(out, texts, size);
        texts += size + 1;
    }
}

static void add_key_types(buffer *out, const char *types)
{
    add_key(out, "tokenizer.ggml.token_type", 9);
    add_number(out, 5, 4);
    add_number(out, strlen(types), 8);
    for (; *types; types++)
        add_number(out, (uint64_t)(*types - '0'), 4);
}

/*  A GGUF file of keys, which are freed, and no tensors. */
static buffer gguf_file(buffer *keys)
{
    buffer out = {NULL, 0, 0};
    add_text(&out, "GGUF");
    add_number(&out, 3, 4);
    add_number(&out, 0, 8);
    add_number(&out, (uint64_t)gguf_keys, 8);
    add_bytes(&out, keys->data, keys->size);
    free(keys->data);
    memset(keys, 0, sizeof *keys);
    gguf_keys = 0;
    return out;
}

static buffer gguf_bytes(const char *pre, const char *types)
{
    buffer out = {NULL, 0, 0};
    add_key_text(&out, "tokenizer.ggml.model", "gpt2");
    if (pre)
        add_key_text(&out, "tokenizer.ggml.pre", pre);
    add_key_texts(&out, "tokenizer.ggml.tokens", "a b ab <s> <u> \xC4\xA0", ' ');
    add_key_types(&out, types);
    add_key_texts(&out, "tokenizer.ggml.merges", "a b", '\n');
    return out;
}

static buffer gguf_pieces(const char *types, int scores)
{
    static const float values[] = {0, 0, 0, 0, -1, -2, -2, -3, -1, -9, -9, -9, -9};
    buffer out = {NULL, 0, 0};
    int i;
    add_key_text(&out, "tokenizer.ggml.model", "llama");
    /* 0 ? 1 <s> 2 </s> 3 <0x0A> 4 ▁a 5 ab 6 ba 7 ▁ab 8 bb 9 ▁ 10 a 11 b 12 c */
    add_key_texts(&out, "tokenizer.ggml.tokens",
                  "<unk> <s> </s> <0x0A> \xE2\x96\x81"
                  "a ab ba \xE2\x96\x81"
                  "ab bb \xE2\x96\x81 a b c",
                  ' ');
    add_key_types(&out, types);
    add_key(&out, "tokenizer.ggml.scores", 9);
    add_number(&out, 6, 4);
    add_number(&out, (uint64_t)scores, 8);
    for (i = 0; i < scores; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        add_number(&out, bits, 4);
    }
    add_key_number(&out, "tokenizer.ggml.bos_token_id", 1);
    add_key_number(&out, "tokenizer.ggml.eos_token_id", 2);
    return out;
}

#endif /* TEXT_FILES_H */
