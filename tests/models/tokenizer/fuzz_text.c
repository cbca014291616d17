// SPDX-License-Identifier: MIT
/*  fuzz_text.c - damaged tokenizer.json, tokenizer_config.json and GGUF files: the reader must say no or yes, and what
    it says yes to must work

        fuzz_text [iterations [seed]]

    It makes files by mutation from good ones; the same seed makes the same files.
    Build it with -fsanitize=address,undefined: each file is in a block of memory of exactly its size. With
    -DFUZZ_LIBFUZZER and clang's -fsanitize=fuzzer the entry of libFuzzer is there instead of main. Neither needs a
    device. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#define FUZZER "fuzz_text"
#include "fuzz.h"
#include "text_files.h"

static void quiet(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

/*  Text in and out again. */
static void use(ignis__tokenizer *tokenizer, const char *text, size_t text_size, const char *bytes, size_t size)
{
    enum { ROOM = 512 };
    int32_t ids[ROOM];
    ignis__bytes out = IGNIS__ZERO;
    ignis__encoder encoder = IGNIS__ZERO;
    int count, i;
    encoder.tokenizer = tokenizer;
    encoder.plain = text_size % 2 == 0;
    encoder.ids = ids;
    encoder.capacity = ROOM;
    count = ignis__tokenizer_encode("fuzz", &encoder, text, text_size, false);
    require(count >= 0 || strstr(ignis_status_message(), "takes too many steps"), "a text has no ids", bytes, size);
    for (i = 0; i < count && i < ROOM; i++) {
        require(ids[i] >= 0 && ids[i] < tokenizer->info.tokens, "an id is none", bytes, size);
        require(ignis__token_add(tokenizer, ids[i], i == 0, &out), "an id has no text", bytes, size);
    }
    ignis__free(out.data);
}

/*  The same for a GGUF file, which has to be one on the disk. */
static bool try_gguf(const char *bytes, size_t size)
{
    static const char path[] = "fuzz_text.gguf", text[] = "abba <s>ab \xE2\x96\x81\xFF\n c";
    ignis__tokenizer *tokenizer = (ignis__tokenizer *)ignis__pool_take("fuzz", &ignis__tokenizers);
    FILE *out = fopen(path, "wb");
    ignis__tokenizer_load load;
    ignis__gguf file;
    bool ok;
    if (!tokenizer || !out || fwrite(bytes, 1, size, out) != size || fclose(out) != 0)
        exit(1);
    ok = ignis__gguf_open("fuzz", path, &file);
    ignis__tokenizer_load_begin(&load, "fuzz", tokenizer);
    if (ok) {
        ok = ignis__tokenizer_read_gguf(&load, &file);
        ignis__gguf_close(&file);
        require(ok == (load.diagnostic == IGNIS_DIAG_NONE), "a refusal has no reason, or there is one without", bytes,
                size);
    }
    if (ok) {
        ignis__tokenizer_fill_info(tokenizer);
        use(tokenizer, text, sizeof text - 1, bytes, size);
    }
    ignis__tokenizer_load_end(&load);
    ignis__tokenizer_destroy(tokenizer);
    ignis_status_clear();
    return ok;
}

/*  Reads a file, of which it needs a copy; true when it is accepted. kind: 0 tokenizer.json, 1 tokenizer_config.json,
    2 tekken.json. */
static bool try_file(const char *bytes, size_t size, int kind)
{
    static const char config[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}],\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    static const char text[] = "ab <s>the \xE2\x96\x81  tensor</s>'s 123 e\xCC\x81\n\n \xFF\xF0\x9F\x98\x80 "
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    ignis__tokenizer *tokenizer = (ignis__tokenizer *)ignis__pool_take("fuzz", &ignis__tokenizers);
    ignis__tokenizer_load load;
    char *first = (char *)malloc(sizeof config), *second = (char *)malloc(size ? size : 1);
    size_t first_size = kind == 1 ? sizeof config - 1 : 0;
    bool ok = true;
    if (!tokenizer || !first || !second)
        exit(1);
    memcpy(first, config, first_size);
    if (size)
        memcpy(second, bytes, size);
    ignis__tokenizer_load_begin(&load, "fuzz", tokenizer);
    if (kind == 1) {
        ignis__tokenizer_load_json(&load, first, first_size);
        ok = ignis__tokenizer_read_json(&load) && ignis__tokenizer_build(&load);
        require(ok, "a good file is refused", bytes, size);
    }
    ignis__tokenizer_load_json(&load, second, size);
    ok = kind == 1   ? ignis__tokenizer_read_config(&load)
         : kind == 2 ? ignis__tokenizer_read_tekken(&load)
                     : ignis__tokenizer_read_json(&load) && ignis__tokenizer_build(&load);
    require(ok == (load.diagnostic == IGNIS_DIAG_NONE), "a refusal has no reason, or there is one without", bytes,
            size);
    if (ok) {
        ignis__tokenizer_fill_info(tokenizer);
        use(tokenizer, text, sizeof text - 1, bytes, size);
        use(tokenizer, bytes, size < 400 ? size : 400, bytes, size);
    } else {
        require(strlen(load.fault) > 5 && strlen(load.fault) < sizeof load.fault, "a refusal has no reason", bytes,
                size);
        require(load.diagnostic == IGNIS_DIAG_TOKENIZER_FORMAT || load.diagnostic == IGNIS_DIAG_UNSUPPORTED,
                "a refusal has another reason than the format", bytes, size);
    }
    ignis__tokenizer_load_end(&load);
    ignis__tokenizer_destroy(tokenizer);
    free(first);
    free(second);
    return ok;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    try_file((const char *)bytes, size, (int)(size % 3));
    return 0;
}

#else

enum { FILE_MAX = 16384 };

static char tekken[FILE_MAX];

/*  Makes a tekken.json of a token for each byte, and of some more. */
static void make_tekken(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at =
        (size_t)snprintf(tekken, sizeof tekken,
                         "{\"config\":{\"pattern\":\"[a-z]+|.\",\"default_vocab_size\":264,"
                         "\"default_num_special_tokens\":6},\"special_tokens\":[{\"rank\":0,\"token_str\":\"<unk>\"}"
                         ",{\"rank\":1,\"token_str\":\"<s>\"},{\"rank\":2,\"token_str\":\"</s>\"}],\"vocab\":[");
    int i;
    for (i = 0; i < 256; i++)
        at += (size_t)snprintf(tekken + at, sizeof tekken - at, "{\"rank\":%d,\"token_bytes\":\"%c%c==\"},", i,
                               digits[i >> 2], digits[(i & 3) << 4]);
    snprintf(tekken + at, sizeof tekken - at,
             "{\"rank\":256,\"token_bytes\":\"YWI=\"},{\"rank\":257,\"token_bytes\":\"YWJj\"}]}");
}

#define ADDED(id, content, normalized)       \
    "{\"id\":" #id ",\"content\":\"" content \
    "\",\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":" normalized ",\"special\":true}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define LLAMA3                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*"                                              \
    "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

/*  Files to begin with. */
static const struct {
    const char *text;
    int kind;
} seeds[] = {
    {tekken, 2},
    {"{\"version\":\"1.0\",\"added_tokens\":[" ADDED(6, "<s>", "false") "," ADDED(
         7, "</s>", "true") "],\"normalizer\":{\"type\":\"NFC\"},"
                            "\"pre_tokenizer\":" BYTES ",\"post_processor\":" BYTES ",\"decoder\":" BYTES
                            ",\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                            "\"unk_token\":null,\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
                            "\"\xC4\xA0\":3,\"\xC4\xA0"
                            "a\":4,\"aa\":5},"
                            "\"merges\":[\"a b\",[\"\xC4\xA0\",\"a\"],\"a a\"]}}",
     0},
    {"{\"added_tokens\":[" ADDED(
         3, "<s>",
         "false") "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                  "\"Split\",\"pattern\":{\"Regex\":\"" LLAMA3
                  "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"use_regex\":false}]},"
                  "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" BYTES
                  ",{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                  "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_"
                  "tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3],"
                  "\"tokens\":[\"<s>\"]}}}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                  "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,"
                  "\"ab\":2},\"merges\":[\"a b\"]}}",
     0},
    {"{\"added_tokens\":[" ADDED(0, "<unk>", "false") "," ADDED(
         1, "<s>", "true") "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                           "\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
                           "\"},\"content\":\"\xE2\x96\x81\"}]},"
                           "\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\","
                           "\"decoders\":[{\"type\":"
                           "\"Replace\",\"pattern\":{\"String\":"
                           "\"\xE2\x96\x81\"},\"content\":\" "
                           "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                           "\",\"start\":1,"
                           "\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_"
                           "fallback\":true,"
                           "\"vocab\":{\"<unk>\":0,\"<s>\":1,"
                           "\"<0x0A>\":2,\"\xE2\x96\x81\":3,\"a\":4,\"b\":5,\"\xE2\x96\x81"
                           "a\":6,\"\xE2\x96\x81\xE2\x96\x81\":7},\"merges\":[\"\xE2\x96\x81 a\","
                           "\"\xE2\x96\x81 \xE2\x96\x81\"]}}",
     0},
    {"{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
     "\"\xE2\x96\x81\",\"prepend_"
     "scheme\":\"first\","
     "\"split\":true},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"add_prefix_space\":true},"
     "\"model\":{\"vocab\":"
     "{\"a\":0,"
     "\"b\":1,\"ab\":2,\"\xE2\x96\x81\":9},\"merges\":[[\"a\",\"b\"]]}}",
     0},
    {"{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
     "\"individual_digits\":true}"
     "," BYTES "]},\"decoder\":" BYTES ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"1\":0},\"merges\":[]}}",
     0},
    {"{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\","
     "\"behavior\":\"Contiguous\"},{\"type\":\"Whitespace\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
     "\"[^\\\\r\\\\p{L}]?[\\\\p{Lu}a-c]*(?:\\\\p{M}+|'(?i:s|ll))?|\\\\s++(?!\\\\S)|x{1,3}(?=b)$\"},"
     "\"behavior\":\"MergedWithNext\",\"invert\":true},{\"type\":\"Split\",\"pattern\":{\"String\":\"ab\"},"
     "\"behavior\":\"Removed\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"decoder\":" BYTES
     ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}",
     0},
    {"{\"added_tokens\":[" ADDED(1, "[CLS]", "false") "," ADDED(
         2, "[SEP]", "true") "],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                             "\"handle_chinese_chars\":true,\"strip_accents\":null,"
                             "\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
                             "\"BertPreTokenizer\"},\"post_processor\":{\"type\":"
                             "\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]},"
                             "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\","
                             "\"cleanup\":true},\"model\":{\"type\":\"WordPiece\","
                             "\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\","
                             "\"max_input_chars_per_word\":9,\"vocab\":{\"u\":0,\"[CLS]\":1,"
                             "\"[SEP]\":2,\"a\":3,\"##a\":4,\"##ab\":5,\"b\":6,\".\":7}}}",
     0},
    {SMALL_UNIGRAM(SMALL_NORMALIZER, SMALL_SCORES), 0},
    {SMALL_UNIGRAM(
         "{\"type\":\"NFKD\"}",
         "{\"type\":\"Unigram\",\"unk_id\":1,\"byte_fallback\":true,\"vocab\":[[\"a\",1e2],[\"<s>\",0],[\"<0x41>\",-1],"
         "[\"ab\",-7]]}"),
     0},
    {"{\"add_bos_token\":true,\"add_eos_token\":false,\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_"
     "token\":\"a\",\"pad_"
     "token\":null,"
     "\"chat_template\":[{\"name\":\"default\",\"template\":\"{{ x }}\"}],\"model_max_length\":1e30}",
     1},
};

/*  What mutations put in. */
/* clang-format off */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", " ", "\n", "0", "1", "-1", "1.0", "00", "null", "true", "false", "{}",
    "[]", "\"\"", "4194303", "4194304", "9223372036854775808", "\\u0000", "\\ud800", "\\ud83d\\ude00", "\x80",
    "\xE2\x96\x81", "\xC4\xA0", "\x01", "\"type\":\"Sequence\"", "\"normalizers\":[", "\"decoders\":[",
    "\"processors\":[", "\"pretokenizers\":[", "\"ab\":1,", "\"a b\",", "\"a a\",", "\"special\":false",
    "\"byte_fallback\":true,", "\"ignore_merges\":true,", "\"unk_token\":\"a\",", "\"NFC\"", "\"Digits\"",
    "\"Metaspace\"", "\"ByteLevel\"", "\"content\":\"\"", "\"content\":\" \"", "\"prefix\":true", "\"start\":7",
    "(?:", "(?=", "(?i:", ")", "|", "*", "+", "?", "{2,9}", "[^", "\\\\p{Lu}", "\\\\S", "a-z", "$", "\"Punctuation\"",
    "\"WhitespaceSplit\"", "\"Isolated\"", "\"NFKC\"", "\"StripAccents\"", "\"Nmt\"", "\"Precompiled\"", "1e999",
    "\"CharDelimiterSplit\"", "\"delimiter\":\"a\"", "AAAA", "////", "[\"a\",-1],", "\xEF\xAC\x81", "\"Unigram\"",
    "\"id\":\"A\"", "{\"type\":\"Fuse\"},", "[[[[[[[[[[[[[[[[[[[[", "\"ids\":[0,1,2,3]",
};
/* clang-format on */

static char file[FILE_MAX];
static size_t file_size;

/*  Replaces `old_size` bytes at a place by others. */
static void splice(size_t at, size_t old_size, const void *with, size_t size)
{
    if (file_size - old_size + size > FILE_MAX)
        return;
    memmove(file + at + size, file + at + old_size, file_size - at - old_size);
    memcpy(file + at, with, size);
    file_size += size - old_size;
}

static void mutate(void)
{
    size_t at = random_below(file_size + 1), left = file_size - at, some = random_below((left < 24 ? left : 24) + 1), i;
    const char *word = words[random_below(sizeof words / sizeof *words)];
    char piece[32], byte = (char)random_next();
    switch (random_below(7)) {
    case 0: /* one bit */
        if (left)
            file[at] = (char)(file[at] ^ 1 << random_below(8));
        break;
    case 1: /* one byte */ splice(at, left > 0, &byte, 1); break;
    case 2: /* a piece less */ splice(at, some, "", 0); break;
    case 3: /* a piece from elsewhere */
        i = random_below(file_size - some + 1);
        memcpy(piece, file + i, some);
        splice(at, random_below(2) ? some : 0, piece, some);
        break;
    case 4: /* a word more */ splice(at, 0, word, strlen(word)); break;
    case 5: /* a word instead */ splice(at, some, word, strlen(word)); break;
    default: /* the end is missing */
        if (random_below(8) == 0)
            file_size = at;
        break;
    }
}

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, accepted = 0, done;
    const size_t count = sizeof seeds / sizeof *seeds;
    size_t i, k;
    buffer keys = gguf_bytes("llama-bpe", "111341"), gguf[3];
    ignis__global.logger.log_fn = quiet; /* there is no ignis_setup */
    gguf[0] = gguf_file(&keys);
    keys = gguf_pieces("2336111111111", 13);
    gguf[1] = gguf_file(&keys);
    keys = gguf_unigram("2336111111111");
    gguf[2] = gguf_file(&keys);
    make_tekken();
    random_begin(argc, argv);
    for (done = 0; done < iterations; done++) {
        bool whole = done < count + 3, ok; /* each seed once as it is */
        char *exact;
        i = whole ? (size_t)done : random_below(20) ? random_below(count) : count + random_below(3);
        file_size = i < count ? strlen(seeds[i].text) : gguf[i - count].size;
        memcpy(file, i < count ? seeds[i].text : gguf[i - count].data, file_size);
        for (k = whole ? 0 : 1 + random_below(2) * random_below(2) * random_below(8); k > 0;
             k--) /* most get one mutation */
            mutate();
        exact = (char *)malloc(file_size ? file_size : 1);
        if (!exact)
            return 1;
        memcpy(exact, file, file_size);
        ok = i < count ? try_file(exact, file_size, seeds[i].kind) : try_gguf(exact, file_size);
        require(ok || !whole, "a good file is refused", exact, file_size);
        accepted += ok;
        free(exact);
    }
    remove("fuzz_text.gguf");
    free(gguf[0].data);
    free(gguf[1].data);
    free(gguf[2].data);
    printf("fuzz_text: %llu files, %llu accepted, %llu refused\n", iterations, accepted, iterations - accepted);
    return 0;
}

#endif
