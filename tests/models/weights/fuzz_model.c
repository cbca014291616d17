// SPDX-License-Identifier: MIT
/*  fuzz_model.c - damaged GGUF files, config.json, shard indexes and folders of adapters: ignis_model_inspect and
    ignis_lora_open must say no with a reason, or what they say yes to must hold

        fuzz_model [iterations [seed]]

    It makes files by mutation from good ones; the same seed makes the same files.
    Build it with -fsanitize=address,undefined. It needs no device. */
#include "tensor.h"

#include "ignis_models.h"

#include "encoder.h"

static ck_model models[] = {{.family = "gpt2",
                             .layers = 1,
                             .hidden = 12,
                             .heads = 3,
                             .kv_heads = 3,
                             .head_dim = 4,
                             .inner = 20,
                             .vocab = 11,
                             .context = 8,
                             .eps = 1e-5},
                            {.family = "llama",
                             .layers = 1,
                             .hidden = 256,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 128,
                             .inner = 256,
                             .vocab = 5,
                             .context = 8,
                             .eps = 1e-5,
                             .theta = 10000,
                             .stretch = "yarn",
                             .old_config = true},
                            {.family = "qwen3",
                             .layers = 1,
                             .hidden = 16,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 8,
                             .inner = 20,
                             .vocab = 11,
                             .context = 8,
                             .eps = 1e-5,
                             .theta = 10000,
                             .stretch = "linear"}};
static const char *const others[] = {"2/model.safetensors.index.json",
                                     "a/adapter_config.json",
                                     "a/adapter_model.safetensors",
                                     "p-00001-of-00002.gguf",
                                     "p-00002-of-00002.gguf",
                                     "q/model.safetensors",
                                     "q/config.json",
                                     "f/model.safetensors",
                                     "f/config.json",
                                     "x/model.safetensors",
                                     "x/config.json",
                                     "w/model.safetensors",
                                     "w/config.json",
                                     "b/config.json",
                                     "b/model.safetensors",
                                     "n/config.json",
                                     "b.gguf",
                                     "n.gguf"};
/* GGUF files and config.json of each, and the others: adapters, one model in two files, four of packed weights, two
   encoders */
enum { MODELS = 3, PARTS = 2 * MODELS + 3, FOLDERS = PARTS + 2, ENCODER_FILES = FOLDERS + 11, FILES = FOLDERS + 13 };

static int put_part(ck_bytes *head)
{
    ck_text(head, "split.no"), ck_u32(head, 2), ck_put(head, &ck_part, 2);
    ck_text(head, "split.count"), ck_u32(head, 2), ck_put(head, &ck_parts, 2);
    return 2;
}

static char folder[] = "/tmp/ignis_fuzz_model_XXXXXX";
static uint64_t state;

static uint64_t draw(uint64_t limit)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return limit ? state % limit : 0;
}

static void quiet(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_model: %s; the files are in %s: %s\n", what, folder, ignis_status_message());
    abort();
}

/*  Changes a few places of a file. */
static void mutate(ck_bytes *b)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       31,
                                       32,
                                       33,
                                       255,
                                       256,
                                       65535,
                                       UINT64_C(0x7FFFFFFF),
                                       UINT64_C(0x80000000),
                                       UINT64_C(0xFFFFFFFF),
                                       UINT64_C(0x7FFFFFFFFFFFFFFF),
                                       UINT64_C(0x8000000000000000),
                                       UINT64_MAX};
    static const char *const words[] = {
        "{", "}", "[", "]", ",", "\"", "null", "true", "-1", "1e999", "0", "{\"factor\": 2}", "99999999999999999999"};
    int changes = 1 + (int)draw(3);
    while (changes-- > 0) {
        size_t head = b->size < 2048 ? b->size : 2048, at = draw(draw(8) ? head : b->size), size = draw(9);
        const char *word = words[draw(sizeof words / sizeof *words)];
        switch (draw(6)) {
        case 0: b->data[at] = (unsigned char)draw(256); break;
        case 1: b->data[at] ^= (unsigned char)(1u << draw(8)); break;
        case 2: memcpy(b->data + at, &numbers[draw(15)], b->size - at < size ? b->size - at : size); break;
        case 3: b->size = at + 1; break;
        case 4:
            size = strlen(word) < b->size - at ? strlen(word) : b->size - at;
            memcpy(b->data + at, word, size);
            break;
        default: /* a stretch of it elsewhere */
            size = draw(32);
            if (at + size <= b->size)
                memmove(b->data + draw(b->size - size), b->data + at, size);
        }
    }
}

static bool is_sound(ignis_status status)
{
    if (status == IGNIS_OK)
        return true;
    require(strlen(ignis_status_message()) > 30, "a refusal has no reason");
    require(status == IGNIS_ERROR_FORMAT || status == IGNIS_ERROR_UNSUPPORTED || status == IGNIS_ERROR_IO ||
                status == IGNIS_ERROR_MEMORY,
            "a refusal has a strange status");
    return false;
}

static bool inspect(const char *path)
{
    ignis_model_desc desc;
    ignis_model_info info;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    ignis_status_clear();
    if (!is_sound(ignis_model_inspect(&desc, &info)))
        return false;
    require(info.layers > 0 && info.heads > 0 && info.heads % info.kv_heads == 0 && info.head_dim > 0 &&
                info.head_dim <= 256,
            "what was accepted has strange heads");
    require(info.parameters > 0 && info.weight_bytes >= info.parameters / 2 && info.file_bytes > 0,
            "what was accepted has strange sizes");
    require((info.cache_bytes_of_token > 0 || info.family >= IGNIS_MODEL_BERT) && info.workspace_bytes > 0,
            "what was accepted has no cache");
    return true;
}

/*  The model that adapters are for, in a dry run, and its adapters in a folder. */
static ignis_model adapted;

static void adapt(const char *path, const char *adapters)
{
    static const char *const targets[] = {"all-linear"};
    ignis_model_desc from;
    ignis_lora_desc desc;
    ignis_lora lora;
    memset(&from, 0, sizeof from);
    memset(&desc, 0, sizeof desc);
    from.path = path;
    desc.rank = 2;
    desc.targets = targets;
    desc.target_count = 1;
    adapted = ignis_model_open(&from);
    lora = ignis_lora_create(adapted, &desc);
    require(ignis_lora_save(lora, adapters) == IGNIS_OK, "adapters are not saved");
    ignis_lora_free(lora);
}

static bool open_adapters(const char *path)
{
    ignis_lora_info info;
    ignis_lora lora;
    ignis_status_clear();
    lora = ignis_lora_open(adapted, path);
    if (!is_sound(ignis_status_last()))
        return false;
    require(ignis_lora_query(lora, &info) == IGNIS_OK && info.rank == 2 && info.adapters > 0 && info.adapters <= 7 &&
                info.parameters > 0,
            "what was accepted has strange sizes");
    require(info.alpha > 0 && info.scale > 0 && info.scale - info.scale == 0 && info.dropout >= 0 && info.dropout < 1,
            "what was accepted has strange numbers");
    require(ignis_lora_free(lora) == IGNIS_OK, "adapters are not freed");
    return true;
}

/*  Walks over all that a sound file has. */
static void walk(const char *path)
{
    ignis__gguf file;
    ignis__gguf_items items;
    size_t size;
    int64_t i;
    double sum = 0;
    if (!ignis__gguf_open("walk", path, &file))
        return;
    for (i = 0; i < file.key_count; i++) {
        const ignis__gguf_key *key = &file.keys[i];
        require(ignis__gguf_find(&file, key->name) == key, "a key is not found");
        items.at = file.head + key->at, items.kind = key->kind, items.left = key->count < 0 ? 1 : key->count;
        while (items.left > 0) {
            if (key->kind == IGNIS__GGUF_STRING)
                sum += ignis__gguf_next_text(&items, &size)[size]; /* its 0 */
            else
                sum += ignis__gguf_next_real(&items) > 0;
        }
    }
    for (i = 0; i < file.tensor_count; i++)
        require(file.tensors[i].begin >= 0 &&
                    (file.tensors[i].end == file.tensors[i].begin || file.tensors[i].end <= file.size),
                "a tensor is outside of its file");
    require(sum >= 0, "numbers are strange");
    ignis__gguf_close(&file);
}

int main(int argc, char **argv)
{
    long iterations = argc > 1 ? atol(argv[1]) : 10000, i, accepted = 0;
    ck_bytes good[FILES], changed = {0};
    char path[128], text[8192];
    ignis_desc setup;
    bool ok;
    int m;
    state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    if (!mkdtemp(folder))
        return 1;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    setup.logger.log_fn = quiet;
    require(ignis_setup(&setup) == IGNIS_OK, "there is no dry run");
    memset(good, 0, sizeof good);
    for (m = 0; m < MODELS; m++) {
        ck_make(&models[m]);
        good[m] = ck_gguf(&models[m], m == 1 ? 6 : 0, NULL);
        snprintf(path, sizeof path, "%s/%d", folder, m);
        ck_write_folder(&models[m], path, IGNIS_F32, m == 2 ? 2 : 1);
        ck_config(&models[m], text, sizeof text);
        ck_put(&good[MODELS + m], text, strlen(text));
    }
    snprintf(text, sizeof text, "%s/a", folder);
    adapt(path, text);
    ck_parts = 2, ck_more_keys = put_part;
    for (ck_part = 0; ck_part < 2; ck_part++) {
        ck_bytes part = ck_gguf(&models[1], 6, NULL);
        snprintf(path, sizeof path, "%s/%s", folder, others[3 + ck_part]);
        test_write_file(path, part.data, part.size);
        free(part.data);
    }
    ck_parts = 1, ck_part = 0, ck_more_keys = NULL;
    snprintf(path, sizeof path, "%s/q", folder);
    ck_write_packed(&models[1], path, false, 8, "{\"quant_method\": \"gptq\", \"group_size\": 32}");
    snprintf(path, sizeof path, "%s/f", folder);
    ck_write_packed(&models[1], path, true, 8, "{\"quant_method\": \"fp8\"}");
    snprintf(path, sizeof path, "%s/x", folder);
    ck_write_packed(&models[1], path, false, 0, "{\"quant_method\": \"mxfp4\"}");
    snprintf(path, sizeof path, "%s/w", folder);
    ck_write_packed(&models[1], path, false, -8, "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32}");
    for (m = 0; m <= 2; m += 2) { /* a cross-encoder of BERT, and Nomic */
        const encoder *e = &encoders[m ? 2 : 1];
        ck_model encoder_model;
        make_tensors(e, &encoder_model);
        snprintf(path, sizeof path, "%s/%s", folder, m ? "n" : "b");
        require(ignis__folder_make_all(path), "a folder is not made");
        write_files(e, &encoder_model, path);
        strcat(path, ".gguf");
        write_gguf_file(e, &encoder_model, path);
        ck_free(&encoder_model);
    }
    for (m = 2 * MODELS; m < FILES; m++) {
        snprintf(path, sizeof path, "%s/%s", folder, others[m - 2 * MODELS]);
        good[m].data = (unsigned char *)ignis__file_read(path, &good[m].size);
    }
    for (i = 0; i < iterations; i++) {
        int which = i < FILES ? (int)i : (int)draw(FILES);
        changed.size = 0;
        ck_put(&changed, good[which].data, good[which].size);
        if (i >= FILES) /* as they are, once */
            mutate(&changed);
        if (which < MODELS)
            snprintf(path, sizeof path, "%s/g", folder);
        else if (which < 2 * MODELS)
            snprintf(path, sizeof path, "%s/%d/config.json", folder, which - MODELS);
        else
            snprintf(path, sizeof path, "%s/%s", folder, others[which - 2 * MODELS]);
        test_write_file(path, changed.data, changed.size);
        snprintf(text, sizeof text, "%s", path);
        if (which < MODELS || which >= ENCODER_FILES)
            walk(path);
        else if (which >= PARTS && which < FOLDERS)
            snprintf(text, sizeof text, "%s/%s", folder, others[3]);
        else
            *strrchr(text, '/') = 0;
        ok = which > 2 * MODELS && which < PARTS ? open_adapters(text) : inspect(text);
        accepted += ok;
        require(ok || i >= FILES, "a sound file is refused");
        if (which >= MODELS) /* the next one is to find the rest as it was */
            test_write_file(path, good[which].data, good[which].size);
    }
    ignis_status_clear();
    require(ignis_model_free(adapted) == IGNIS_OK, "the model is not freed");
    for (m = 0; m < 2 * MODELS; m++)
        free(good[m].data);
    for (; m < FILES; m++)
        ignis__free(good[m].data);
    require(ignis_shutdown() == IGNIS_OK, "something is left");
    printf("fuzz_model: %ld files, %ld accepted, nothing else wrong\n", iterations, accepted);
    free(changed.data);
    for (m = 0; m < MODELS; m++)
        ck_free(&models[m]);
    test_remove_folder(folder);
    return 0;
}
