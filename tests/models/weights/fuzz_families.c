// SPDX-License-Identifier: MIT
/*  fuzz_families.c - damaged descriptions of each family, in config.json and in GGUF files: ignis_model_inspect refuses
    each with a reason, or its model has the sizes of the weights

        fuzz_families [iterations [seed]]

    Descriptions are made of the entries of families; the same seed makes the same descriptions.
    Entries get other values, are left out, repeated, or come from another family. Weights fit the sound descriptions.
    Build it with -fsanitize=address,undefined. It needs no device. */
#include "tensor.h"

#include "ignis_models.h"

#include "checkpoint.h"

#define FUZZER "fuzz_families"
#include "fuzz.h"

enum { ENTRIES = 96, TEXT = 1 << 14, LAYERS = 2, VOCAB = 11, DUMMIES = 20 };

/*  An entry of a description. value: as JSON has it. */
typedef struct entry {
    char name[96], value[80];
} entry;

static struct {
    entry entries[ENTRIES];
    int count;
} description;

static char folder[] = "/tmp/ignis_fuzz_families_XXXXXX", input[TEXT];

static void quiet(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

static void add(const char *name, const char *value)
{
    entry *one = &description.entries[description.count];
    if (description.count == ENTRIES)
        return;
    snprintf(one->name, sizeof one->name, "%s", name);
    snprintf(one->value, sizeof one->value, "%s", value);
    description.count++;
}

/*  Returns a value for a number of a description that fits the others. */
static const char *sound_value(ignis__number number)
{
    static const char *const values[] = {"2", "16", "2", "1", "12", "32", "1e-5", "8"};
    return number < IGNIS__COUNT(values)              ? values[number]
           : number == IGNIS__NUMBER_ROTARY_SHARE     ? "0.5"
           : number == IGNIS__NUMBER_QUERY_SCALAR     ? "8"
           : number == IGNIS__NUMBER_LOCAL_THETA      ? "1000"
           : number == IGNIS__NUMBER_ATTENTION_SCALE  ? "0.25"
           : number == IGNIS__NUMBER_DELTA_WIDTH      ? "16"
           : number == IGNIS__NUMBER_ATTENTION_PERIOD ? "2"
                                                      : "4";
}

/*  Tells whether a sound description needs a number that its key does not ask for: sizes of latent attention. */
static bool is_size_of_latents(const ignis__family *family, ignis__number number)
{
    int i;
    for (i = 0; i < family->key_count && family->keys[i].number != IGNIS__NUMBER_LATENT;)
        i++;
    return i < family->key_count && (number == IGNIS__NUMBER_PLAIN_DIM || number == IGNIS__NUMBER_VALUE_DIM ||
                                     number == IGNIS__NUMBER_HEAD_DIM || number == IGNIS__NUMBER_Q_RANK);
}

/*  Makes a sound description of a family: the numbers that it needs, and those that most files have. */
static void make_description(ignis_model_family number, bool gguf)
{
    const ignis__family *family = ignis__family_of(number);
    int i, k;
    description.count = 0;
    add(gguf ? "general.architecture" : "model_type", gguf ? family->architecture : family->model_type);
    for (i = 0; i < IGNIS__NUMBERS; i++) {
        const ignis__number_key *key = NULL;
        for (k = 0; k < ignis__common_key_count; k++)
            key = ignis__common_keys[k].number == (ignis__number)i ? &ignis__common_keys[k] : key;
        for (k = family->key_count - 1; k >= 0; k--) /* the first one; the others are names of other files */
            key = family->keys[k].number == (ignis__number)i ? &family->keys[k] : key;
        if (key && (gguf ? key->gguf : key->json) &&
            (key->kind < 'a' || i <= IGNIS__NUMBER_EPS || i >= IGNIS__NUMBER_ATTENTION_PERIOD ||
             is_size_of_latents(family, (ignis__number)i)))
            add(gguf ? key->gguf : key->json, sound_value((ignis__number)i));
    }
    if (!gguf) {
        char value[16];
        snprintf(value, sizeof value, "%d", (int)VOCAB);
        add("vocab_size", value);
        add("tie_word_embeddings", "true");
    }
}

/*  Writes the description as config.json. Names with a point are members of an object: one object for each. */
static void write_config(void)
{
    char path[128], *at = input;
    int i;
    for (i = 0; i < description.count; i++) {
        const entry *one = &description.entries[i];
        const char *point = strchr(one->name, '.');
        bool text = strcmp(one->name, "model_type") == 0;
        size_t room = (size_t)(input + sizeof input - at);
        int length = point ? snprintf(at, room, "%c\"%.*s\": {\"%s\": %s}", i ? ',' : '{', (int)(point - one->name),
                                      one->name, point + 1, one->value)
                           : snprintf(at, room, text ? "%c\"%s\": \"%s\"" : "%c\"%s\": %s", i ? ',' : '{', one->name,
                                      one->value);
        at += length;
    }
    snprintf(at, (size_t)(input + sizeof input - at), "}");
    snprintf(path, sizeof path, "%s/config.json", folder);
    test_write_file(path, input, strlen(input));
}

/*  Writes the description as a GGUF file whose tensors have no data but zeros. */
static void put_key(ck_bytes *head, const entry *one, const char *architecture)
{
    char name[128];
    const char *v = one->value;
    bool general = strcmp(one->name, "general.architecture") == 0;
    snprintf(name, sizeof name, "%s.%s", architecture, one->name);
    ck_text(head, general ? one->name : name);
    if (general || !strchr("-0123456789tf", *v))
        ck_u32(head, 8), ck_text(head, v);
    else if (*v == 't' || *v == 'f')
        ck_u32(head, 7), ck_put(head, *v == 't' ? "\1" : "", 1);
    else if (v[strcspn(v, ".e")])
        ck_u32(head, 6), ck_f32(head, (float)atof(v));
    else if (*v == '-')
        ck_u32(head, 5), ck_u32(head, (uint32_t)atoi(v));
    else
        ck_u32(head, 4), ck_u32(head, (uint32_t)strtoull(v, NULL, 10));
}

/*  A tensor of zeros. */
typedef struct zeros {
    char name[96];
    int64_t rows, columns; /* columns 0: it has one dimension */
    int64_t experts;       /* above 0: it has three dimensions, this one first */
    bool middle;           /* it has a dimension of 1 between both */
} zeros;

static struct {
    zeros tensors[128];
    int count;
} weights[2][IGNIS_MODEL_FAMILY_COUNT]; /* of folders and of GGUF files */

static void write_gguf(ignis_model_family family)
{
    ck_bytes file = {0};
    char path[128];
    uint64_t begin = 0;
    int i;
    ck_put(&file, "GGUF", 4), ck_u32(&file, 3), ck_u64(&file, (uint64_t)weights[1][family].count);
    ck_u64(&file, (uint64_t)description.count);
    for (i = 0; i < description.count; i++)
        put_key(&file, &description.entries[i], ignis__family_of(family)->architecture);
    for (i = 0; i < weights[1][family].count; i++) {
        const zeros *t = &weights[1][family].tensors[i];
        ck_text(&file, t->name), ck_u32(&file, (t->columns ? 2 : 1) + (t->experts ? 1 : 0));
        if (t->columns)
            ck_u64(&file, (uint64_t)t->columns);
        ck_u64(&file, (uint64_t)(t->experts ? t->rows / t->experts : t->rows));
        if (t->experts)
            ck_u64(&file, (uint64_t)t->experts);
        ck_u32(&file, 0), ck_u64(&file, begin);
        begin += (uint64_t)(t->rows * (t->columns ? t->columns : 1) * 4 + 31) / 32 * 32;
    }
    while (file.size % 32)
        ck_put(&file, "", 1);
    for (; begin > 0; begin -= 32)
        ck_put(&file, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    test_write_file(path, file.data, file.size);
    memcpy(input, file.data, file.size < sizeof input ? file.size : sizeof input);
    free(file.data);
}

static void write_safetensors(ignis_model_family family)
{
    ck_bytes header = {0}, file = {0};
    char line[256], path[128], columns[32] = "", experts[32] = "";
    size_t begin = 0;
    int i;
    for (i = 0; i < weights[0][family].count; i++) {
        const zeros *t = &weights[0][family].tensors[i];
        size_t size = (size_t)(t->rows * (t->columns ? t->columns : 1)) * 4;
        snprintf(columns, sizeof columns, !t->columns ? "" : t->middle ? ",1,%lld" : ",%lld", (long long)t->columns);
        snprintf(experts, sizeof experts, t->experts ? "%lld," : "", (long long)t->experts);
        snprintf(line, sizeof line, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s%lld%s],\"data_offsets\":[%zu,%zu]}",
                 i ? ',' : '{', t->name, experts, (long long)(t->rows / (t->experts ? t->experts : 1)), columns, begin,
                 begin + size);
        ck_put(&header, line, strlen(line));
        begin += size;
    }
    ck_put(&header, "}", 1);
    ck_u64(&file, header.size);
    ck_put(&file, header.data, header.size);
    while (file.size < 8 + header.size + begin)
        ck_put(&file, "", 1);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    test_write_file(path, file.data, file.size);
    free(header.data), free(file.data);
}

/*  Finds the weights that a sound description asks for: those of the table, with the sizes of the description. */
static void find_weights(ignis_model_family family, bool gguf)
{
    ignis__model_files files;
    ignis__model model;
    ignis__model_part *parts;
    char path[128];
    int i, k, count = 0;
    snprintf(path, sizeof path, gguf ? "%s/m.gguf" : "%s", folder);
    memset(&files, 0, sizeof files);
    memset(&model, 0, sizeof model);
    files.call = "fuzz_families", files.path = path, files.gguf.descriptor = -1, model.parallel.size = 1;
    for (i = 0; i < DUMMIES; i++) { /* tensors that only have to be there */
        snprintf(weights[gguf][family].tensors[i].name, sizeof weights[0]->tensors->name,
                 i ? "unknown.%d" : "token_embd.weight", i);
        weights[gguf][family].tensors[i].rows = VOCAB;
        weights[gguf][family].tensors[i].columns = 16;
    }
    weights[gguf][family].count = DUMMIES;
    if (gguf)
        write_gguf(family);
    else
        write_config(), write_safetensors(family);
    require_text((gguf ? ignis__model_open_gguf(&files) : ignis__model_open_folder(&files)) &&
                     ignis__model_read_hyperparameters(&files, &model),
                 ignis_status_message(), input);
    model.layer = (ignis__layer *)calloc((size_t)model.layers, sizeof *model.layer);
    require_text(ignis__model_read_layers(&files, &model), ignis_status_message(), input);
    parts = ignis__model_parts_make("fuzz_families", &files, &model, &count);
    require_text(parts && count <= IGNIS__COUNT(weights[0]->tensors), "there are too many weights", input);
    weights[gguf][family].count = 0;
    for (i = 0; i < count; i++) {
        zeros *t = &weights[gguf][family].tensors[weights[gguf][family].count];
        snprintf(t->name, sizeof t->name, "%s",
                 ignis__model_weight_name(&files, &model, parts[i].row, parts[i].layer, parts[i].expert).text);
        for (k = 0; k < weights[gguf][family].count && strcmp(weights[gguf][family].tensors[k].name, t->name) != 0;)
            k++;
        if (k < weights[gguf][family].count) /* other rows of the same tensor */
            continue;
        weights[gguf][family].count++;
        t->middle = !gguf && parts[i].row->how & IGNIS__MODEL_MIDDLE;
        t->rows = parts[i].file_rows, t->columns = parts[i].row->columns ? parts[i].file_columns : 0;
        t->experts = parts[i].row->how & (gguf ? IGNIS__MODEL_EXPERTS : IGNIS__MODEL_TOGETHER) ? model.experts : 0;
        if (parts[i].row->how & IGNIS__MODEL_OF_HEADS) /* latents have as many elements as heads do not rotate */
            t->experts = model.heads;
        if (!gguf && parts[i].row->how & IGNIS__MODEL_IN_OUT) {
            int64_t rows = t->rows;
            t->rows = t->columns, t->columns = rows;
        }
    }
    ignis__free(parts), free(model.layer);
    ignis__model_files_close(&files);
}

static bool inspect(bool gguf)
{
    ignis_model_desc desc;
    ignis_model_info info;
    ignis_status status;
    char path[128];
    snprintf(path, sizeof path, gguf ? "%s/m.gguf" : "%s", folder);
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    ignis_status_clear();
    status = ignis_model_inspect(&desc, &info);
    if (status != IGNIS_OK) {
        require_text(strlen(ignis_status_message()) > 30, "a refusal has no reason", input);
        require_text(status == IGNIS_ERROR_FORMAT || status == IGNIS_ERROR_UNSUPPORTED || status == IGNIS_ERROR_MEMORY,
                     "a refusal has another status", input);
        return false;
    }
    require_text(info.layers > 0 && info.layers <= LAYERS && info.heads > 0 && info.heads % info.kv_heads == 0 &&
                     info.head_dim > 0 && info.head_dim <= 256 && info.vocab == VOCAB,
                 "an accepted model has other sizes than its weights", input);
    require_text(info.parameters > 0 && info.cache_bytes_of_token > 0 && info.workspace_bytes > 0,
                 "an accepted model has no size", input);
    return true;
}

/*  Changes up to three entries. */
static void mutate(bool gguf)
{
    static const char *const values[] = {"0",
                                         "1",
                                         "-1",
                                         "2",
                                         "3",
                                         "0.5",
                                         "1e-30",
                                         "1e30",
                                         "1e999",
                                         "null",
                                         "true",
                                         "false",
                                         "\"x\"",
                                         "[]",
                                         "[1, 2]",
                                         "{}",
                                         "4096",
                                         "16",
                                         "8",
                                         "65537",
                                         "2147483648",
                                         "99999999999999999999",
                                         "\"silu\"",
                                         "\"gelu\"",
                                         "[\"full_attention\", \"sliding_attention\"]",
                                         "{\"rope_type\": \"yarn\"}",
                                         "{\"type\": \"longrope\", \"factor\": 2}"};
    int changes = 1 + (int)random_below(3);
    while (changes-- > 0) {
        int at = 1 + (int)random_below((size_t)description.count - 1);
        entry *one = &description.entries[at];
        const char *value = values[random_below(IGNIS__COUNT(values))];
        const ignis__family *other =
            ignis__family_of((ignis_model_family)(1 + random_below(IGNIS_MODEL_FAMILY_COUNT - 1)));
        int count = 0;
        switch (random_below(6)) {
        case 0:
        case 1: snprintf(one->value, sizeof one->value, "%s", value); break;
        case 2: /* left out */
            if (description.count > 2)
                *one = description.entries[--description.count];
            break;
        case 3: add(one->name, value); break;
        case 4: /* an entry of a family */
            if (other->key_count > 0) {
                const ignis__number_key *key = &other->keys[random_below((size_t)other->key_count)];
                if (gguf ? key->gguf : key->json)
                    add(gguf ? key->gguf : key->json, random_below(2) ? value : sound_value(key->number));
            }
            break;
        default:
            while (other->musts[count].name)
                count++;
            if (gguf)
                add("rope.scaling.type", value);
            else if (count > 0)
                add(other->musts[random_below((size_t)count)].name, value);
            else
                add(random_below(2) ? "rope_scaling" : "layer_types", value);
        }
    }
}

int main(int argc, char **argv)
{
    long iterations = argc > 1 ? atol(argv[1]) : 10000, i, accepted = 0;
    char path[128];
    ignis_desc setup;
    int kinds = 0, family, gguf, last = -1;
    random_begin(argc, argv);
    if (!mkdtemp(folder))
        return 1;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    setup.logger.log_fn = quiet;
    require_text(ignis_setup(&setup) == IGNIS_OK, "there is no dry run", "");
    for (gguf = 0; gguf < 2; gguf++)
        for (family = 1; family < IGNIS_MODEL_FAMILY_COUNT; family++) {
            const ignis__family *table = ignis__family_of(family);
            if (gguf && (!table->architecture || strcmp(table->model_type, "mixtral") == 0 ||
                         strcmp(table->model_type, "deepseek_v3") == 0))
                continue; /* their architectures are those of Llama and DeepSeek-V2 */
            if (!gguf && family == IGNIS_MODEL_GPT_OSS)
                continue; /* its experts are MXFP4 there */
            make_description((ignis_model_family)family, gguf);
            find_weights((ignis_model_family)family, gguf);
            if (gguf)
                write_gguf((ignis_model_family)family);
            else
                write_safetensors((ignis_model_family)family);
            require_text(inspect(gguf), ignis_status_message(), input);
            kinds++;
        }
    for (i = 0; i < iterations; i++) {
        if (i % 16 == 0) /* descriptions of one family share its weights */
            do {
                family = 1 + (int)random_below(IGNIS_MODEL_FAMILY_COUNT - 1);
                gguf = (int)random_below(2);
            } while (weights[gguf][family].count == 0);
        if (!gguf && family != last)
            write_safetensors((ignis_model_family)family), last = family;
        make_description((ignis_model_family)family, gguf);
        mutate(gguf);
        if (gguf)
            write_gguf((ignis_model_family)family);
        else
            write_config();
        accepted += inspect(gguf);
    }
    ignis_status_clear();
    require_text(ignis_shutdown() == IGNIS_OK, "memory is not freed", "");
    printf("fuzz_families: %d kinds of files, %ld descriptions, %ld accepted, nothing else wrong\n", kinds, iterations,
           accepted);
    snprintf(path, sizeof path, "%s", folder);
    test_remove_folder(path);
    return 0;
}
