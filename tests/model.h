// SPDX-License-Identifier: MIT
/*  model.h - what tests of models share: two models, and their files */
#ifndef MODEL_H
#define MODEL_H

#include "checkpoint.h"

/*  Driver calls that fail here leave their objects with the simulator. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

static ck_model gpt2 = {.family = "gpt2",
                        .layers = 2,
                        .hidden = 48,
                        .heads = 3,
                        .kv_heads = 3,
                        .head_dim = 16,
                        .inner = 80,
                        .vocab = 67,
                        .context = 24,
                        .tied = true,
                        .eps = 1e-5,
                        .seed = 1};
static ck_model llama = {.family = "llama",
                         .layers = 2,
                         .hidden = 48,
                         .heads = 6,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .inner = 72,
                         .vocab = 67,
                         .context = 64,
                         .eps = 1e-5,
                         .theta = 10000,
                         .old_config = true,
                         .seed = 2};
static ck_model llama3 = {.family = "llama",
                          .layers = 1,
                          .hidden = 32,
                          .heads = 4,
                          .kv_heads = 1,
                          .head_dim = 64,
                          .inner = 48,
                          .vocab = 131,
                          .context = 512,
                          .tied = true,
                          .biases = true,
                          .eps = 1e-6,
                          .theta = 500000,
                          .stretch = "llama3",
                          .old_config = true,
                          .seed = 3};
static ck_model qwen2 = {.family = "qwen2",
                         .layers = 2,
                         .hidden = 48,
                         .heads = 4,
                         .kv_heads = 4,
                         .head_dim = 12,
                         .inner = 40,
                         .vocab = 53,
                         .context = 128,
                         .tied = true,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .stretch = "yarn",
                         .seed = 4};
static ck_model qwen3 = {.family = "qwen3",
                         .layers = 2,
                         .hidden = 40,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 80,
                         .inner = 56,
                         .vocab = 71,
                         .context = 96,
                         .eps = 1e-6,
                         .theta = 1e6,
                         .stretch = "linear",
                         .seed = 5};
static ck_model *const models[] = {&gpt2, &llama, &llama3, &qwen2, &qwen3};
enum { MODELS = 5, SEQ = 13, BATCH = 2 };

static inline ignis_model open_with(const char *path, ignis_dtype dtype)
{
    ignis_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.dtype = dtype;
    return ignis_model_open(&desc);
}

/*  A model with rows of 256, as the K types need them. */
static ck_model wide = {.family = "llama",
                        .layers = 1,
                        .hidden = 256,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 64,
                        .inner = 256,
                        .vocab = 35,
                        .context = 32,
                        .eps = 1e-5,
                        .theta = 10000,
                        .seed = 6};

static inline void write_gguf(ck_model *m, int type, const char *path)
{
    ck_bytes file = ck_gguf(m, type, NULL);
    test_write_file(path, file.data, file.size);
    free(file.data);
}

static inline void change_config(const ck_model *m, const char *from, const char *to)
{
    static char text[8192], changed[8192];
    char *at;
    ck_config(m, text, sizeof text);
    at = *from ? strstr(text, from) : text + 1;
    CHECK(at != NULL);
    if (at)
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ck_write_text(test_path("f"), "config.json", changed);
}

static inline unsigned char *file_bytes(const char *path, size_t *size)
{
    unsigned char *data = (unsigned char *)ignis__file_read(path, size);
    CHECK(data != NULL);
    return data;
}

#endif
