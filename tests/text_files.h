// SPDX-License-Identifier: MIT
/*  text_files.h - small GGUF files with a tokenizer, for test_text.c and fuzz_text.c */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*  A map of characters in base64: a tab becomes a space, e and U+0301 become E. */
#define SMALL_MAP                                                                                          \
    "qAEAAACAAQCBRQAAAAAAAAAAAAAAAAAAZRQDAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMwwAgAAAAAAAAAAAAAAAAACAACAAAAA" \
    "gAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAnhAQAgAEUA"

/*  Unigram: of "abb", ab and b score more than a and bb. */
#define SMALL_UNIGRAM(normalizer, model)                                                                     \
    "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":false}],"              \
    "\"normalizer\":" normalizer ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"   \
    "\"WhitespaceSplit\"},{\"type\":\"Metaspace\","                                                          \
    "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}]},\"decoder\":{\"type\":\"Metaspace\"," \
    "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"},\"model\":" model "}"
#define SMALL_SCORES                                                                                                \
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"<s>\",0],[\"\xE2\x96\x81\",-2.5],[\"a\",-1]," \
    "[\"b\",-1.25],[\"ab\",-1.5],[\"bb\",-2],[\"E\",-3],[\"\xE2\x96\x81"                                            \
    "ab\",-9],[\"xy\",-3.5e0]]}"
#define SMALL_NORMALIZER                                                                                              \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" SMALL_MAP "\"},"  \
    "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" " \
    "{2,}\"},\"content\":\" \"},{\"type\":\"NFKC\"},{\"type\":\"Nmt\"}]}"

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

static void add_key_bool(buffer *out, const char *name, bool value)
{
    add_key(out, name, 7);
    add_number(out, value, 1);
}

/*  model: llama or t5, or gemma4, which has merges and no scores. */
static buffer gguf_characters(const char *model, const char *types, int scores)
{
    static const float values[] = {0, 0, 0, 0, -1, -2, -2, -3, -1, -9, -9, -9, -9};
    buffer out = {NULL, 0, 0};
    int i;
    add_key_text(&out, "tokenizer.ggml.model", model);
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

static buffer gguf_pieces(const char *types, int scores) { return gguf_characters("llama", types, scores); }

/*  Unigram with a map: a tab becomes a space. */
static buffer gguf_unigram(const char *types)
{
    static const unsigned char map[] = {108, 0, 0, 0, 0, 64, 0, 0}; /* the root, whose children are at 16 */
    buffer out = gguf_characters("t5", types, 13);
    int i;
    add_key_bool(&out, "tokenizer.ggml.add_space_prefix", true);
    add_key_bool(&out, "tokenizer.ggml.remove_extra_whitespaces", true);
    add_key(&out, "tokenizer.ggml.precompiled_charsmap", 9);
    add_number(&out, 0, 4);
    add_number(&out, 114, 8);
    add_bytes(&out, map, 8);
    for (i = 1; i < 27; i++) /* unit 25 is the tab, whose value is at 26: place 0 of the texts */
        add_number(&out, i == 25 ? (25 ^ 26) << 10 | 1 << 8 | 9 : i == 26 ? 1u << 31 : 0, 4);
    add_bytes(&out, " ", 2);
    return out;
}

#endif /* TEXT_FILES_H */
