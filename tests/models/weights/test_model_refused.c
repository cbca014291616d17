// SPDX-License-Identifier: MIT
/*  test_model_refused.c - models that are refused or fail: damaged files, unsupported descriptions, failing calls */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "model.h"

/* what is refused ------------------------------------------------------------------------------------------------- */

/*  Writes config.json with one text in the place of another, which must be there; "": appended behind the first brace.
    */
TEST(descriptions_that_cannot_be_followed_are_refused)
{
    static const struct {
        ck_model *model;
        const char *from, *to;
        ignis_status status;
        const char *message;
    } cases[] = {
#define UNSUPPORTED IGNIS_ERROR_UNSUPPORTED
#define FORMAT IGNIS_ERROR_FORMAT
        {&llama, "\"llama\"", "\"mamba\"", UNSUPPORTED, "has model_type 'mamba'; known are gpt2, llama,"},
        {&llama, "\"model_type\"", "\"model_types\"", FORMAT, "has no text model_type"},
        {&llama, "\"model_type\": \"llama\"", "\"model_type\": 3", FORMAT, "has no text model_type"},
        {&llama, "\"silu\"", "\"relu2\"", UNSUPPORTED, "has hidden_act 'relu2', which Ignis cannot do"},
        {&llama, "\"hidden_act\": \"silu\"", "\"hidden_act\": 7", UNSUPPORTED, "has hidden_act 7"},
        {&llama, "", "\"sliding_window\": 4096,", UNSUPPORTED, "has sliding_window 4096"},
        {&llama, "", "\"partial_rotary_factor\": 0.5,", UNSUPPORTED, "has partial_rotary_factor 0.5"},
        {&llama, "", "\"quantization_config\": {\"bits\": 4},", UNSUPPORTED,
         "has quantization_config.quant_method ''; awq, compressed-tensors, fp8, gptq and mxfp4 are known"},
        {&llama, "", "\"num_local_experts\": 8,", UNSUPPORTED, "has num_local_experts 8"},
        {&qwen2, "", "\"num_experts\": 8,", UNSUPPORTED, "has num_experts 8"},
        {&llama, "", "\"num_experts\": true,", UNSUPPORTED, "has num_experts true"},
        {&llama, "", "\"num_local_experts\": 0,", 0, NULL}, /* none: it is dense */
        {&qwen2, "", "\"num_experts\": 0,", 0, NULL},
        {&qwen3, "", "\"num_experts\": null, \"num_local_experts\": null,", 0, NULL},
        {&llama, "\"use_sliding_window\": false", "\"use_sliding_window\": true", UNSUPPORTED,
         "has use_sliding_window true"},
        {&llama, "", "\"layer_types\": [\"full_attention\", \"sliding_attention\"],", UNSUPPORTED,
         "has layer_types[] 'sliding_attention'"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2}", UNSUPPORTED,
         "by 'ntk'; default,"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", 0, NULL},
        {&llama, "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"mscale\": 1, \"mscale_all_dim\": 2}", 0, NULL},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\"}", FORMAT,
         "has no rope_scaling.factor"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"factor\": 4}", FORMAT,
         "has rope_scaling.factor, and does not say of which rope_type"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {}", 0, NULL},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": 4", UNSUPPORTED,
         "has rope_scaling 4, which Ignis cannot do"},
        {&llama, "\"rope_scaling\": null", "\"rope_parameters\": [1]", UNSUPPORTED,
         "has rope_parameters there, which Ignis cannot do"},
        {&qwen3, "", "\"is_causal\": false,", UNSUPPORTED, "has is_causal false, which Ignis cannot do"},
        {&qwen3, "", "\"is_causal\": true,", 0, NULL},
        {&qwen2, "", "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}},", UNSUPPORTED,
         "has rope_parameters.full_attention there, which Ignis cannot do"},
        {&llama, "\"rope_theta\": 10000, \"rope_scaling\": null",
         "\"rope_theta\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}", FORMAT,
         "rope_theta 1; yarn needs one above 1"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}", FORMAT,
         "rope_scaling.factor is no number"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}", FORMAT,
         "rope_scaling.factor -2; a positive"},
        {&llama3, "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5", FORMAT,
         "from 1 to 0.5, the wrong way round"},
        {&llama, "\"hidden_size\": 48, ", "", FORMAT, "has no hidden_size"},
        {&llama, "\"hidden_size\": 48", "\"hidden_size\": 48.5", FORMAT,
         "has hidden_size 48.5; a whole number from 1 to"},
        {&llama, "\"hidden_size\": 48", "\"hidden_size\": \"48\"", FORMAT, "hidden_size is no number"},
        {&llama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", FORMAT,
         "has num_hidden_layers 0; a whole number from 1 to"},
        {&llama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1e300", FORMAT, "has num_hidden_layers 1e+300"},
        {&llama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 65000", FORMAT,
         "has 65000 layers, but there are 21 tensors"},
        {&llama, "", "\"rope_interleaved\": true,", UNSUPPORTED, "has rope_interleaved true"},
        {&llama, "", "\"moe_layers\": [3],", UNSUPPORTED,
         "has 'moe_layers' there, an entry that the table of llama does not have"},
        {&qwen3, "", "\"hiddenSize\": 48,", UNSUPPORTED, "has 'hiddenSize' 48, an entry that the table of qwen3"},
        {&llama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"alpha\": 3}",
         UNSUPPORTED, "has 'rope_scaling.alpha' 3, an entry"},
        {&gpt2, "", "\"hidden_size\": 48,", UNSUPPORTED, "has 'hidden_size' 48, an entry that the table of gpt2"},
        {&llama, "", "\"moe_layers\": null, \"use_moe\": false, \"_name_or_path\": \"x\",", 0, NULL}, /* sets nothing */
        {&qwen2, "", "\"task_specific_params\": {\"a\": {\"b\": 1}}, \"id2label\": {\"0\": \"x\"},", 0, NULL},
        {&llama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", FORMAT,
         "no tensor 'model.layers.2.input_layernorm.weight', [48]"},
        {&llama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", FORMAT,
         "6 heads are no multiple of 4 of keys"},
        {&llama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", FORMAT,
         "tensor 'model.layers.0.self_attn.k_proj.weight' of '"},
        {&llama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", FORMAT,
         "is [16, 48]; its description makes it [24, 48]"},
        {&llama, "\"head_dim\": 8, ", "", 0, NULL}, /* hidden / heads */
        {&qwen3, "\"head_dim\": 80, ", "", FORMAT, "3 heads do not divide 40 numbers a token"},
        {&llama, "\"head_dim\": 8", "\"head_dim\": 9", UNSUPPORTED, "have 9 numbers; an even number up to 256"},
        {&llama, "\"head_dim\": 8", "\"head_dim\": 258", UNSUPPORTED, "have 258 numbers"},
        {&llama, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0", FORMAT, "has rms_norm_eps 0; a positive number"},
        {&llama, "\"vocab_size\": 67", "\"vocab_size\": 68", FORMAT, "tensor 'model.embed_tokens.weight' of '"},
        {&llama, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", 0,
         NULL}, /* another tensor is ignored */
        {&llama3, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", FORMAT,
         "no tensor 'lm_head.weight', [131, 32]"},
        {&gpt2, "\"gelu_new\"", "\"gelu\"", UNSUPPORTED, "has activation_function 'gelu'"},
        {&gpt2, "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", UNSUPPORTED,
         "has scale_attn_weights false"},
        {&gpt2, "", "\"scale_attn_by_inverse_layer_idx\": true,", UNSUPPORTED,
         "has scale_attn_by_inverse_layer_idx true"},
        {&gpt2, "\"n_head\": 3", "\"n_head\": 5", FORMAT, "5 heads do not divide 48 numbers a token"},
        {&gpt2, "\"n_inner\": 80, ", "", FORMAT, "is [48, 80]; its description makes it [48, 192]"},
        {&gpt2, "}\n", "", FORMAT, "is no sound JSON file: at byte"},
        {&gpt2, "{", "[", FORMAT, "at byte 0 of the file, a { is missing at the beginning"},
        {&gpt2, "}\n", "}}\n", FORMAT, "something follows the end of the JSON text"},
#undef UNSUPPORTED
#undef FORMAT
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        ignis_model_desc desc;
        ignis_model_info info;
        memset(&desc, 0, sizeof desc);
        desc.path = test_path("f");
        ck_make(cases[i].model);
        ck_write_folder(cases[i].model, test_path("f"), IGNIS_F32, 1);
        change_config(cases[i].model, cases[i].from, cases[i].to);
        if (cases[i].status == IGNIS_OK) {
            CHECK_OK(ignis_model_inspect(&desc, &info));
        } else {
            CHECK_STATUS(ignis_model_inspect(&desc, &info), cases[i].status,
                         cases[i].status == IGNIS_ERROR_FORMAT ? IGNIS_DIAG_MODEL_CONFIG : IGNIS_DIAG_UNSUPPORTED);
            CHECK_MESSAGE_HAS(cases[i].message);
            CHECK_FAILS(ignis_model_open(&desc), cases[i].status,
                        cases[i].status == IGNIS_ERROR_FORMAT ? IGNIS_DIAG_MODEL_CONFIG : IGNIS_DIAG_UNSUPPORTED);
            CHECK_MESSAGE_HAS(cases[i].message);
        }
        ck_free(cases[i].model);
    }
    CHECK_INT(memory().live_bytes, 0);
}

TEST(folders_that_are_damaged_are_refused)
{
    static const char index[] = "model.safetensors.index.json", shard[] = "model-00002-of-00002.safetensors";
    static const char *const bad[] = {"../model.safetensors", "a/b.safetensors", "a\\\\b", "..", "", "C:x"};
    char text[256], path[256];
    ignis_model_desc desc;
    ignis_model_info info;
    unsigned char *data;
    size_t size, i;
    SETUP(NULL);
    ck_make(&llama);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    test_remove_folder(desc.path);
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_write_folder(&llama, desc.path, IGNIS_F32, 2);
        snprintf(text, sizeof text, "{\"weight_map\": {\"x\": \"%s\"}}", bad[i]);
        ck_write_text(desc.path, index, text);
        CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
        CHECK_MESSAGE_HAS("which is not the plain name of a file");
    }
    ck_write_text(desc.path, index, "{\"weight_map\": {\"x\": 5}}");
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    ck_write_text(desc.path, index, "{\"weight_map\": {}}");
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    CHECK_MESSAGE_HAS("has no weight_map that names a file");
    ck_write_text(desc.path, index, "{\"weight_map\": ");
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);

    ck_write_folder(&llama, desc.path, IGNIS_F32, 2);
    snprintf(path, sizeof path, "%s/%s", desc.path, shard);
    data = file_bytes(path, &size);
    CHECK_INT(ignis__file_remove(path), true);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS(shard);
    for (i = 0; i < 3; i++) { /* cut off in its length, its header, its data */
        test_write_file(path, data, i == 0 ? 5 : i == 1 ? 200 : size - 1);
        CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_STORAGE_FORMAT);
    }
    snprintf(text, sizeof text, "%s/model-00001-of-00002.safetensors", desc.path);
    ignis__free(data);
    data = file_bytes(text, &size);
    test_write_file(path, data, size); /* the same tensors twice */
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    CHECK_MESSAGE_HAS("and again in");
    ignis__free(data);

    ck_write_folder(&llama, desc.path, IGNIS_F32, 1);
    snprintf(path, sizeof path, "%s/config.json", desc.path);
    CHECK_INT(ignis__file_remove(path), true);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("config.json' cannot be opened");
    ck_free(&llama);
}

/*  A GGUF file of two numbers and two tensors, in pieces that a test changes. */
static ck_bytes small_gguf(void)
{
    ck_bytes b = {0};
    ck_put(&b, "GGUF", 4), ck_u32(&b, 3), ck_u64(&b, 2), ck_u64(&b, 2); /* 0 4 8 16 */
    ck_text(&b, "general.alignment"), ck_u32(&b, 4), ck_u32(&b, 64);    /* 24: 8 + 17, 49 type, 53 value */
    ck_text(&b, "words"), ck_u32(&b, 9), ck_u32(&b, 8), ck_u64(&b, 2), ck_text(&b, "a"),
        ck_text(&b, "bc"); /* 57: 65, 70 9, 74 8, 78 2, 86 */
    ck_text(&b, "one"), ck_u32(&b, 2), ck_u64(&b, 32), ck_u64(&b, 2), ck_u32(&b, 2),
        ck_u64(&b, 0); /* 105: 113, 116 ndim, 120, 128, 136, 140 */
    ck_text(&b, "two"), ck_u32(&b, 1), ck_u64(&b, 4), ck_u32(&b, 0), ck_u64(&b, 64); /* 148: 156, 159, 163, 171, 175 */
    while (b.size < 192 + 64 + 16)
        ck_put(&b, "", 1);
    return b;
}

TEST(gguf_files_that_are_damaged_are_refused)
{
    static const struct {
        int at, size;
        uint64_t value;
        const char *message;
    } cases[] = {
        {0, 4, 0x46554746, "at byte 0, it does not begin with \"GGUF\""},
        {4, 4, 1, "at byte 4, the version is 1; 2 and 3 are known"},
        {4, 4, 0x03000000, "as in a big-endian file"},
        {8, 8, UINT64_C(1) << 60, "at byte 8, the number of tensors is 1152921504606846976, but"},
        {16, 8, 30, "the number of keys is 30, but"},
        {16, 8, 1, "tensor 'words' has"}, /* what is a key becomes a tensor */
        {24, 8, UINT64_MAX, "the name of a key is 18446744073709551615, but"},
        {24, 8, 250, "the name of a key is 250, but 240 bytes are left"},
        {40, 1, 0, "or holds a 0"},
        {49, 4, 13, "has the unknown type 13"},
        {49, 4, 6, "key 'general.alignment' is f32, not a whole number"},
        {53, 4, 24, "general.alignment is 24, not a power of two"},
        {53, 4, 0, "general.alignment is 0, not a power of two"},
        {53, 4, 128, "tensor 'one' lies at 0 to 36 of the data, which has 16 bytes"},
        {74, 4, 9, "is an array of arrays"},
        {74, 4, 99, "has the unknown type 99"},
        {78, 8, 1000, "the length of an array is 1000, but"},
        {86, 8, 1 << 20, "a text is 1048576, but"},
        {116, 4, 9, "tensor 'one' has 9 dimensions, above 8"},
        {120, 8, 33, "tensor 'one' is Q4_0 [2, 33]: its rows are no multiples of 32 elements"},
        {128, 8, UINT64_C(1) << 62, "has more bytes than 63 bits can count"},
        {128, 8, 4, "tensor 'two' begins inside of tensor 'one'"},
        {128, 8, 200, "tensor 'one' lies at 0 to 3600 of the data, which has 80 bytes"},
        {140, 8, 32, "tensor 'one' begins at 32 of the data, not a multiple of 64"},
        {140, 8, UINT64_C(1) << 63, "has more bytes than 63 bits can count"},
        {140, 8, INT64_MAX - 63, "tensor 'one' lies at 9223372036854775744 to"},
        {156, 3, 0x656e6f, "there is a second tensor 'one'"},
        {163, 8, 5, "tensor 'two' lies at 64 to 84 of the data, which has 80 bytes"},
    };
    ck_bytes b = small_gguf();
    ignis__gguf file;
    ignis__gguf_items items;
    const char *text;
    size_t length, cut;
    int64_t number;
    double real;
    bool flag;
    int i;
    SETUP(NULL);
    test_write_file(test_path("g"), b.data, b.size);
    CHECK(ignis__gguf_open("test", test_path("g"), &file));
    CHECK_INT(file.tensor_count, 2);
    CHECK_INT(ignis__gguf_find_tensor(&file, "two")->begin, 192 + 64);
    CHECK(!ignis__gguf_find_tensor(&file, "three"));
    CHECK_INT(ignis__gguf_find_tensor(&file, "one")->shape.dim[0], 2);
    CHECK_INT(ignis__gguf_find_array(&file, "words", IGNIS__GGUF_STRING, &items), IGNIS__GGUF_FOUND);
    CHECK_INT(items.left, 2);
    CHECK_TEXT(ignis__gguf_next_text(&items, &length), "a");
    CHECK_TEXT(ignis__gguf_next_text(&items, &length), "bc");
    CHECK_INT(length, 2);
    CHECK_INT(ignis__gguf_find_int(&file, "nothing", &number), IGNIS__GGUF_NONE);
    CHECK_INT(ignis__gguf_find_real(&file, "general.alignment", &real), IGNIS__GGUF_FOUND);
    CHECK(real == 64);
    CHECK_INT(ignis__gguf_find_bool(&file, "general.alignment", &flag), IGNIS__GGUF_BAD);
    CHECK_HAS(ignis_status_message(), "key 'general.alignment' is u32, not true or false");
    ignis_status_clear();
    CHECK_INT(ignis__gguf_find_string(&file, "words", &text, &length), IGNIS__GGUF_BAD);
    CHECK_HAS(ignis_status_message(), "key 'words' is an array of text, not a text");
    ignis_status_clear();
    ignis__gguf_close(&file);
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        unsigned char *changed = (unsigned char *)malloc(b.size);
        memcpy(changed, b.data, b.size);
        memcpy(changed + cases[i].at, &cases[i].value, (size_t)cases[i].size);
        test_write_file(test_path("g"), changed, b.size);
        CHECK(!ignis__gguf_open("test", test_path("g"), &file));
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_FORMAT);
        CHECK_HAS(ignis_status_message(), cases[i].message);
        ignis_status_clear();
        free(changed);
    }
    for (cut = 0; cut < b.size; cut++) { /* cut off anywhere */
        test_write_file(test_path("g"), b.data, cut);
        CHECK(!ignis__gguf_open("test", test_path("g"), &file));
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_FORMAT);
        ignis_status_clear();
    }
    CHECK(!ignis__gguf_open("test", test_path("none"), &file));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_IO);
    ignis_status_clear();
    free(b.data);
}

/*  A GGUF file without tensors; `count` keys are in `keys`. */
static bool open_keys(ignis__gguf *file, const ck_bytes *keys, int count)
{
    ck_bytes b = {0};
    ck_put(&b, "GGUF", 4), ck_u32(&b, 3), ck_u64(&b, 0), ck_u64(&b, (uint64_t)count);
    ck_put(&b, keys->data, keys->size);
    test_write_file(test_path("k"), b.data, b.size);
    free(b.data);
    return ignis__gguf_open("test", test_path("k"), file);
}

TEST(keys_of_gguf_files_hold_numbers_of_every_kind)
{
    static const struct {
        const char *name;
        uint32_t kind;
        int size;
        uint64_t bits;
        double value;
    } cases[] = {
        {"u8", IGNIS__GGUF_U8, 1, 0xF9, 249},
        {"i8", IGNIS__GGUF_I8, 1, 0xF9, -7},
        {"u16", IGNIS__GGUF_U16, 2, 0xFFF9, 65529},
        {"i16", IGNIS__GGUF_I16, 2, 0xFFF9, -7},
        {"u32", IGNIS__GGUF_U32, 4, 0xFFFFFFF9, 4294967289.0},
        {"i32", IGNIS__GGUF_I32, 4, 0xFFFFFFF9, -7},
        {"u64", IGNIS__GGUF_U64, 8, UINT64_C(1) << 62, 4611686018427387904.0},
        {"i64", IGNIS__GGUF_I64, 8, UINT64_C(0xFFFFFFFFFFFFFFF9), -7},
        {"f32", IGNIS__GGUF_F32, 4, 0xC0E00000, -7},
        {"f64", IGNIS__GGUF_F64, 8, UINT64_C(0xC01C000000000000), -7},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    ck_bytes keys = {0};
    ignis__gguf file;
    ignis__gguf_items items;
    int64_t whole;
    double real;
    int i;
    SETUP(NULL);
    for (i = 0; i < CASES; i++)
        ck_text(&keys, cases[i].name), ck_u32(&keys, cases[i].kind),
            ck_put(&keys, &cases[i].bits, (size_t)cases[i].size);
    ck_text(&keys, "large"), ck_u32(&keys, IGNIS__GGUF_U64), ck_u64(&keys, UINT64_MAX);
    ck_text(&keys, "text"), ck_u32(&keys, IGNIS__GGUF_STRING), ck_text(&keys, "7");
    CHECK(open_keys(&file, &keys, CASES + 2));
    for (i = 0; i < CASES; i++) {
        CHECK_INT(ignis__gguf_find_real(&file, cases[i].name, &real), IGNIS__GGUF_FOUND);
        CHECK(real == cases[i].value);
        if (cases[i].kind == IGNIS__GGUF_F32 || cases[i].kind == IGNIS__GGUF_F64)
            continue;
        CHECK_INT(ignis__gguf_find_int(&file, cases[i].name, &whole), IGNIS__GGUF_FOUND);
        CHECK_INT(whole, (int64_t)cases[i].value);
    }
    CHECK_INT(ignis__gguf_find_int(&file, "large", &whole), IGNIS__GGUF_BAD);
    CHECK_HAS(ignis_status_message(), "key 'large' is u64, not a number that fits 63 bits");
    ignis_status_clear();
    CHECK_INT(ignis__gguf_find_real(&file, "text", &real), IGNIS__GGUF_BAD);
    CHECK_HAS(ignis_status_message(), "key 'text' is text, not a number");
    ignis_status_clear();
    CHECK_INT(ignis__gguf_find_array(&file, "u8", IGNIS__GGUF_I64, &items), IGNIS__GGUF_BAD);
    CHECK_HAS(ignis_status_message(), "not an array of whole numbers");
    ignis_status_clear();
    ignis__gguf_close(&file);
    ck_text(&keys, "i16"), ck_u32(&keys, IGNIS__GGUF_U8), ck_put(&keys, "", 1);
    CHECK(!open_keys(&file, &keys, CASES + 3));
    CHECK_HAS(ignis_status_message(), "there is a second key 'i16'");
    ignis_status_clear();
    free(keys.data);
}

/*  A text in the place of another of the same length, wherever it is. */
static void replace(ck_bytes *b, const char *from, const char *to)
{
    size_t i, size = strlen(from);
    int found = 0;
    for (i = 0; i + size <= b->size; i++) {
        if (memcmp(b->data + i, from, size) == 0) {
            memcpy(b->data + i, to, size);
            found++;
        }
    }
    CHECK(found > 0);
}

TEST(gguf_models_that_cannot_be_followed_are_refused)
{
    static const struct {
        const char *from, *to;
        ignis_status status;
        const char *message;
    } cases[] = {
        {"general.architecture", "general.architecturE", IGNIS_ERROR_FORMAT, "has no text general.architecture"},
        {NULL, NULL, IGNIS_ERROR_UNSUPPORTED, "has general.architecture 'mamba'; known are gpt2, llama,"},
        {"llama.block_count", "llama.block_Count", IGNIS_ERROR_FORMAT, "has no block_count"},
        {"attention.key_length", "attention.kEy_length", IGNIS_ERROR_UNSUPPORTED,
         "has a key 'llama.attention.kEy_length' that the table of llama does not have"},
        {"attention.key_length", "rope.dimension_count", 0, NULL},              /* which says the same */
        {"expert_count", NULL, IGNIS_ERROR_FORMAT, "has no expert_used_count"}, /* so it is Mixtral */
        {"attention.sliding_window", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.attention.sliding_window 7, not 0"},
        {"rope.dimension_count", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.rope.dimension_count 7, not 8"},
        {"attention.scale", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.attention.scale 7, not 0"},
        {"attention.max_alibi_bias", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.attention.max_alibi_bias 7, not 0"},
        {"attention.clamp_kqv", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.attention.clamp_kqv 7, not 0"},
        {"final_logit_softcapping", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.final_logit_softcapping 7, not 0"},
        {"embedding_scale", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.embedding_scale 7, not 1"},
        {"residual_scale", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.residual_scale 7, not 1"},
        {"logit_scale", NULL, IGNIS_ERROR_UNSUPPORTED, "has llama.logit_scale 7, not 1"},
        {"rope.scaling.yarn_ext_factor", NULL, IGNIS_ERROR_UNSUPPORTED,
         "has llama.rope.scaling.yarn_ext_factor 7, not 1"},
        {"attention.causal", NULL, IGNIS_ERROR_FORMAT, "key 'llama.attention.causal' is u32, not true or false"},
        {"vocab_size", NULL, 0, NULL}, /* the table says how many there are */
        {"blk.1.attn_q.weight", "blk.1.attn_Q.weight", IGNIS_ERROR_FORMAT,
         "has no tensor 'blk.1.attn_q.weight', [48, 48]"},
        {"output_norm.weight", "output_Norm.weight", IGNIS_ERROR_FORMAT, "has no tensor 'output_norm.weight', [48]"},
        {"rope.freq_base", "rope.freq_Base", IGNIS_ERROR_UNSUPPORTED,
         "has a key 'llama.rope.freq_Base' that the table of llama does not have"},
    };
    ignis_model_desc desc;
    ignis_model_info info;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("m.gguf");
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        ck_model m = llama;
        m.family = cases[i].from ? "llama" : "mamba";
        ck_make(&m);
        ck_extra_key = cases[i].from && !cases[i].to ? cases[i].from : NULL;
        ck_bytes file = ck_gguf(&m, 0, NULL);
        ck_extra_key = NULL;
        if (cases[i].to)
            replace(&file, cases[i].from, cases[i].to);
        test_write_file(desc.path, file.data, file.size);
        CHECK_INT(ignis_model_inspect(&desc, &info), cases[i].status);
        if (cases[i].status)
            CHECK_HAS(ignis_status_message(), cases[i].message);
        ignis_status_clear();
        free(file.data);
        ck_free(&m);
    }
    { /* what divides the frequencies is positive */
        ck_model m = llama;
        float divisors[64];
        ck_make(&m);
        for (i = 0; i < 64; i++)
            divisors[i] = i == 2 ? -1.0f : 1.0f;
        ck_bytes file = ck_gguf(&m, 0, divisors);
        test_write_file(desc.path, file.data, file.size);
        CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
        CHECK_MESSAGE_HAS("has -1 at 2; positive numbers are needed");
        free(file.data);
        ck_free(&m);
    }
    ck_make(&wide);
    write_gguf(&wide, 3, desc.path);
    ck_bytes file = {0};
    size_t size;
    file.data = file_bytes(desc.path, &size);
    file.size = size;
    for (i = 0; i + 20 < (int)size;
         i++) /* the type of a matrix: Q8_0 becomes IQ1_S, of other sizes; then one that nobody knows */
        if (memcmp(file.data + i, "blk.0.attn_q.weight", 19) == 0)
            break;
    file.data[i + 19 + 4 + 16] = 19;
    test_write_file(desc.path, file.data, size);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("tensor 'blk.0.attn_q.weight' of '");
    CHECK_MESSAGE_HAS("is of type IQ1_S, which Ignis cannot read as a weight");
    file.data[i + 19 + 4 + 16] = 99;
    test_write_file(desc.path, file.data, size);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("is of type number 99, which Ignis cannot read as a weight");
    file.data[i + 19 + 4 + 16] = 62; /* F8 is of Ignis alone */
    test_write_file(desc.path, file.data, size);
    CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("is of type number 62, which Ignis cannot read as a weight");
    ignis__free(file.data);
    ck_free(&wide);
}

static ignis_status no_sum(uint64_t group, ignis_array array) { return (void)group, (void)array, IGNIS_OK; }
static ignis_status no_check(uint64_t group) { return (void)group, IGNIS_OK; }

/*  FP8 becomes floating point where blocks of 128 elements do not fit: the rows, or those of a rank. */
TEST(fp8_without_blocks_of_128)
{
    ck_model m = wide;
    ignis_model_desc desc;
    ignis_model_info info;
    int k;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("q");
    desc.parallel.sum_fn = no_sum, desc.parallel.check_fn = no_check;
    for (k = 0; k < 2; k++) {
        m.inner = k ? 384 : 320; /* a rank of two has 192 */
        ck_make(&m);
        ck_write_packed(&m, desc.path, true, 8, "{\"quant_method\": \"fp8\"}");
        desc.parallel.size = k ? 2 : 0;
        CHECK_OK(ignis_model_inspect(&desc, &info));
        CHECK(k ? info.quantised == 0 : info.quantised > 0 && info.quantised < info.parameters - m.hidden * m.inner);
        ignis_model model = ignis_model_open(&desc);
        ignis__model *held = ignis__model_hold("test", model); /* ignis_model_tensor refuses a share */
        CHECK_CLOSE(value_at(held->layer[0].down, 1), 0.011488, 4e-5);
        ignis__model_drop("test", held);
        CHECK_OK(ignis_model_free(model));
        ck_free(&m);
    }
}

TEST(packed_weights_that_do_not_fit_are_refused)
{
    static const struct {
        const char *config;
        bool f8;
        int zero;
        const char *message;
    } cases[] = {
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"sym\": true}", false, 8, NULL},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"sym\": false}", false, 3, NULL},
        {"{\"quant_method\": \"fp8\"}", true, 8, NULL},
        {"{\"quant_method\": \"mxfp4\"}", false, 0, NULL},
        {"{\"quant_method\": \"bitsandbytes\"}", false, 8, "has quantization_config.quant_method 'bitsandbytes'; awq,"},
        {"{\"quant_method\": \"gptq\", \"bits\": 3}", false, 8, "quantization_config.bits 3; expected 4 or 8"},
        {"{\"quant_method\": \"awq\", \"bits\": 8}", false, 8, "quantization_config.bits 8; expected 4"},
        {"{\"quant_method\": \"gptq\", \"group_size\": 48}", false, 8, "in groups of 48, a multiple of 32"},
        {"{\"quant_method\": \"gptq\", \"group_size\": 64}", false, 8, "expected F32, BF16 or F16 ["},
        {"{\"quant_method\": \"gptq\", \"group_size\": 32, \"desc_act\": true}", false, 8, "an index for each column"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", true, 8, "of blocks of 64 by 128"},
        {"{\"quant_method\": \"awq\", \"group_size\": 32}", false, 8, "is F16 [8, "}};
    ck_model m = wide;
    ignis_model_desc desc;
    ignis_model_info info;
    int i;
    SETUP(NULL);
    ck_make(&m);
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("q");
    for (i = 0; i < COUNT_OF(cases); i++) {
        ck_write_packed(&m, desc.path, cases[i].f8, cases[i].zero, cases[i].config);
        if (!cases[i].message) {
            ignis_model model;
            ignis_tensor tensor;
            ignis_scope scope = ignis_scope_begin();
            CHECK_OK(ignis_model_inspect(&desc, &info));
            CHECK(info.quantised > 0);
            model = ignis_model_open(&desc);
            tensor = ignis_model_tensor(model, "model.layers.0.mlp.down_proj.weight");
            CHECK_CLOSE(value_at(tensor, 1),
                        cases[i].f8     ? 0.011488
                        : cases[i].zero ? -cases[i].zero * 0.000995636
                                        : 0.0078125,
                        4e-3 * 0.011);
            CHECK_OK(ignis_scope_end(scope));
            CHECK_OK(ignis_model_free(model));
            continue;
        }
        if (i < 7)
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
        else
            CHECK_STATUS(ignis_model_inspect(&desc, &info), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
        CHECK_MESSAGE_HAS(cases[i].message);
    }
    ck_write_packed(&m, desc.path, false, 7, cases[0].config);
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_FORMAT, IGNIS_DIAG_MODEL_CONFIG);
    CHECK_MESSAGE_HAS("has a zero 7; expected 8, as config.json has sym");
    ck_free(&m);
}

/*  The file becomes shorter between its check and the reading of its weights. */
static char short_path[256];
static bool shorten(int64_t done, int64_t total, void *user_data)
{
    (void)done, (void)total, (void)user_data;
    CHECK_INT(truncate(short_path, 20000), 0);
    return true;
}

TEST(a_file_that_becomes_shorter_is_an_error)
{
    static ck_model large = {.family = "llama",
                             .layers = 1,
                             .hidden = 512,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 128,
                             .inner = 512,
                             .vocab = 10000,
                             .context = 32,
                             .eps = 1e-5,
                             .theta = 10000,
                             .seed = 6};
    ignis_model_desc desc;
    NEEDS_POSIX("truncate");
    SETUP(NULL);
    ck_make(&large);
    ck_write_folder(&large, test_path("f"), IGNIS_F32, 1);
    snprintf(short_path, sizeof short_path, "%s/model.safetensors", test_path("f"));
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("f");
    desc.progress_fn = shorten;
    CHECK_FAILS(ignis_model_open(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_STORAGE_IO);
    CHECK_MESSAGE_HAS("cannot be read: it has become shorter");
    CHECK_INT(memory().live_bytes, 0);
    ck_free(&large);
}

/*  Opens a folder with each allocation, or each call of the driver, failing once. */
static void check_failures(const char *path, const char *prefix, int dense, int step)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    int at, failures = 0;
    bool hit = true;
    for (at = 1; at < 2000 && hit; at += at < dense ? 1 : step) {
        ignis_model model;
        SETUP(&setup);
        model = open_with(path, IGNIS_F16);
        CHECK_OK(ignis_model_free(model)); /* so that what is made once is there */
        fault_plan(prefix, at, 2, &counter, false);
        model = open_with(path, IGNIS_F16);
        hit = fault_over(&counter);
        if (model.id) {
            CHECK_OK(ignis_model_free(model));
        } else {
            CHECK(hit);
            failures++;
        }
        ignis_status_clear();
        CHECK_INT(memory().live_bytes, 0);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(counter.blocks, 0);
    }
    CHECK(!hit);
    CHECK(failures > 20);
}

/*  Whatever fails, nothing stays behind, and the next try succeeds. */
TEST(what_fails_leaves_nothing_behind)
{
    static const char *const packed[] = {"{\"quant_method\": \"gptq\", \"group_size\": 32}",
                                         "{\"quant_method\": \"mxfp4\"}"};
    ck_model m = wide;
    int i;
    ck_make(&gpt2);
    ck_write_folder(&gpt2, test_path("f"), IGNIS_F32, 2);
    check_failures(test_path("f"), NULL, 60, 23);
    check_failures(test_path("f"), "cu", 60, 23);
    ck_free(&gpt2);
    ck_make(&m);
    for (i = 0; i < COUNT_OF(packed); i++) {
        ck_write_packed(&m, test_path("q"), false, i ? 0 : 8, packed[i]);
        check_failures(test_path("q"), NULL, 60, 7);
        check_failures(test_path("q"), "cu", 30, 7);
    }
    ck_free(&m);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
