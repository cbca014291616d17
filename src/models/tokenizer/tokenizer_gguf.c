/*  models/tokenizer/tokenizer_gguf.c - the tokenizer of a GGUF file

    It becomes the tokenizer.json that it was converted from. Names of pre-tokenizers select patterns.
    May use: >>gguf, pipeline.c, vocabulary.c. Locks: none. */

#include "room.h"

static const char *const ignis__tokenizer_end_texts[] = {
    "<|end|>",
    "<|return|>",
    "<|flush|>",
    "<|call|>",
    "<|calls|>",
    "</s>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    ("<\xef\xbd\x9c" /* the next letter is not read as a hexadecimal digit */
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

/*  Returns the index of a token of a GGUF file in that list; -1 if it is not in it. */
IGNIS__PRIVATE int ignis__tokenizer_find_end_text(const char *text, int type)
{
    int i;
    if (*text != '<' && *text != '[' && *text != '_')
        return -1;
    for (i = 0; i < IGNIS__COUNT(ignis__tokenizer_end_texts) && strcmp(text, ignis__tokenizer_end_texts[i]) != 0;)
        i++;
    return i == IGNIS__COUNT(ignis__tokenizer_end_texts) || (i == IGNIS__END_SLASH_S && type == IGNIS__TYPE_NORMAL) ? -1
                                                                                                                    : i;
}

#define IGNIS__CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define IGNIS__BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define IGNIS__UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define IGNIS__LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define IGNIS__SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define IGNIS__WORDS_BY_CASE(end) \
    IGNIS__BEFORE IGNIS__UPPER "*" IGNIS__LOWER "+" end "|" IGNIS__BEFORE IGNIS__UPPER "+" IGNIS__LOWER "*" end
#define IGNIS__CJK "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"
#define IGNIS__BLOOM " ?[^(\\s|.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C)]+"
#define IGNIS__GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define IGNIS__OTHERS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" IGNIS__SPACES
#define IGNIS__QWEN2(number) IGNIS__BEFORE "\\p{L}+|" number "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
/*  Letters with an upper or a lower case, in the version of Unicode of DeepSeek's file. */
#define IGNIS__CASED                                                                                                   \
    "\\s?["                                                                                                            \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"                    \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"             \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                    \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                  \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                  \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"          \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"         \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                   \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}" \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"                    \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"                   \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                  \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"              \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"                             \
    "\\x{1E900}-\\x{1E943}"                                                                                            \
    "]+"

/*  Of vocabularies of characters: U+2581 replaces spaces, and lines are encoded whole. */
#define IGNIS__LINES "[^\\n]+|[\\n]+"
#define IGNIS__MARKS_AND_LETTERS                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+"
#define IGNIS__DEEPSEEK_V3                                                           \
    {                                                                                \
        "\\p{N}{1,3}", IGNIS__CJK, IGNIS__MARKS_AND_LETTERS "[\r\n]*|" IGNIS__SPACES \
    }
/*  Tiny Aya: groups of three digits from the end of a number. */
#define IGNIS__TINY_AYA                                                                                          \
    {                                                                                                            \
        "\\d{1,3}(?=(?:\\d{3})*\\b)", IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS \
    }
/*  Words by case without Chinese characters, which are pieces of their own. */
#define IGNIS__NOT_HAN(cases) "[" cases "\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define IGNIS__KIMI_WORD(upper, lower) \
    IGNIS__BEFORE IGNIS__NOT_HAN("\\p{Lu}\\p{Lt}") upper IGNIS__NOT_HAN("\\p{Ll}") lower IGNIS__CONTRACTION "?|"

/*  Names of pre-tokenizers that split by patterns, one after the other, as their tokenizer.json does. */
static const struct {
    const char *name;
    bool nfc, ignore_merges, adds_bos;
    const char *patterns[7];
} ignis__tokenizer_gguf_splits[] = {
    {"default", false, false, false, {"[\\p{P}$+<=>^~|]+", IGNIS__GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"kanana2", false, false, false, {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"talkie", false, false, false, {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"granite-embed-multi-97m",
     false,
     true,
     false,
     {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"youtu",
     false,
     true,
     false,
     {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}"
      "\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" IGNIS__CJK,
      IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}|" IGNIS__OTHERS}},
    {"minicpm5", false, true, false, {"\\p{N}{1,3}", IGNIS__CONTRACTION "|" IGNIS__QWEN2("\\p{N}+") IGNIS__SPACES}},
    {"ufakzeka", false, false, false, {IGNIS__QWEN2("\\p{N}") IGNIS__SPACES}},
    {"laguna", false, false, false, {"[^\\n]+|[\\n]+", IGNIS__CONTRACTION "|" IGNIS__QWEN2("\\p{N}") IGNIS__SPACES}},
    {"jais-2",
     false,
     false,
     false,
     {IGNIS__CONTRACTION "|" IGNIS__QWEN2("\\p{N}{1,3}") "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|"
                                                         "\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|"
                                                         "\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {"chameleon",
     false,
     false,
     true,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", IGNIS__GPT2}},
    {"deepseek-llm",
     false,
     false,
     false,
     {"[\r\n]", IGNIS__CASED,
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", "\\s+$",
      "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", "\\p{N}+"}},
    {"spark2_5",
     false,
     false,
     false,
     {"\\p{N}{1,3}", IGNIS__CJK, IGNIS__MARKS_AND_LETTERS "|[\r\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {"hy_v4", false, false, false, IGNIS__DEEPSEEK_V3},
    {"gemma4", false, false, true, {IGNIS__LINES}},
    {"granite-embed-multi-311m", false, false, true, {IGNIS__LINES}},
    {"sarvam-moe", false, false, false, {IGNIS__LINES}},
    {"tiny_aya", false, false, false, IGNIS__TINY_AYA},
    {"cohere2moe", false, false, false, IGNIS__TINY_AYA},
    {"kimi-k2",
     false,
     false,
     false,
     {"[\\p{Han}]+|" IGNIS__KIMI_WORD("*", "+")
          IGNIS__KIMI_WORD("+", "*") "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" IGNIS__SPACES}},
    {"superbpe", false, false, false, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"exaone-moe",
     false,
     false,
     false,
     {IGNIS__CONTRACTION "|" IGNIS__BEFORE
                         "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
                         "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"afmoe", /* numbers are cut as those of Tiny Aya; then scripts without spaces */
     false,
     false,
     false,
     {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
      "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
      "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}"
      "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+",
      IGNIS__MARKS_AND_LETTERS "[\r\n]*|" IGNIS__SPACES}},
    {"gpt-4o", false, false, false, {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"llama4", false, false, false, {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"minimax-m2", false, false, false, {IGNIS__WORDS_BY_CASE(IGNIS__CONTRACTION "?") "|\\p{N}{1,3}|" IGNIS__OTHERS}},
    {"tekken", false, true, true, {IGNIS__WORDS_BY_CASE("") "|\\p{N}|" IGNIS__OTHERS}},
    {"deepseek-v3", false, false, false, IGNIS__DEEPSEEK_V3},
    {"hunyuan-dense", false, false, false, IGNIS__DEEPSEEK_V3},
    {"joyai-llm", false, false, false, IGNIS__DEEPSEEK_V3},
    {"deepseek-coder",
     false,
     false,
     false,
     {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", "\\p{N}"}},
    {"falcon", false, false, false, {"[\\p{P}$+<=>^~|`]+", IGNIS__GPT2, "[0-9][0-9][0-9]"}},
    {"bloom", false, false, false, {IGNIS__BLOOM}},
    {"poro-chat", false, false, false, {IGNIS__BLOOM}},
    {"gpt3-finnish", false, false, false, {IGNIS__BLOOM}},
    {"viking", false, false, false, {IGNIS__BLOOM, "\\p{N}"}},
    {"qwen35",
     true,
     false,
     false,
     {IGNIS__CONTRACTION "|" IGNIS__BEFORE
                         "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" IGNIS__SPACES}},
#define IGNIS__BAILING                                                                                 \
    {                                                                                                  \
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|" \
        "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"                                                                \
    }
    {"bailingmoe", false, false, false, IGNIS__BAILING},
    {"bailingmoe2", false, false, false, IGNIS__BAILING},
    {"llada-moe", false, false, false, IGNIS__BAILING},
    {"seed-coder",
     false,
     false,
     false,
     {IGNIS__CONTRACTION "|" IGNIS__BEFORE "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
};

/*  Names of pre-tokenizers, with their equivalents in tokenizer.json. */
static const struct {
    const char *name;
    ignis__splitter split;
    bool digits, nfc, ignore_merges, adds_bos;
} ignis__tokenizer_gguf_patterns[] = {
    {"gpt-2", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"phi-2", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-v1-en", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-v2-code", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"roberta-bpe", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-es", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-de", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-v2-es", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-v2-de", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"gigachat", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"a.x-4.0", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"mellum", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"modern-bert", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"exaone4", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jais", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"trillion", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"granite-docling", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"mpt", IGNIS__SPLIT_GPT2, false, true, false, false},
    {"olmo", IGNIS__SPLIT_GPT2, false, true, false, false},
    {"smollm", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"starcoder", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"refact", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"codeshell", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"exaone", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"minerva-7b", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"mellum2", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"command-r", IGNIS__SPLIT_GPT2, true, true, false, false},
    {"llama-bpe", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"llama3", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"llama-v3", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"falcon3", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"falcon-h1", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"pixtral", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"midm-2.0", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"lfm2", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"jina-v5-nano", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"dbrx", IGNIS__SPLIT_LLAMA3, false, false, false, false},
    {"smaug-bpe", IGNIS__SPLIT_LLAMA3, false, false, false, false},
    {"chatglm-bpe", IGNIS__SPLIT_LLAMA3, false, false, false, false},
    {"glm4", IGNIS__SPLIT_LLAMA3, false, false, true, false},
    {"glm5", IGNIS__SPLIT_LLAMA3, false, false, true, false},
    {"qwen2", IGNIS__SPLIT_QWEN2, false, true, false, false},
    {"deepseek-r1-qwen", IGNIS__SPLIT_QWEN2, false, true, false, false},
    {"kormo", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"f2llmv2", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"megrez", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"stablelm2", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"hunyuan", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"solar-open", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"grok-2", IGNIS__SPLIT_QWEN2, false, false, false, false},
};

typedef struct ignis__scored_merge {
    double score;
    int32_t id;
} ignis__scored_merge;

static int ignis__scored_merge_order(const void *a, const void *b)
{
    const ignis__scored_merge *one = (const ignis__scored_merge *)a, *other = (const ignis__scored_merge *)b;
    if (one->score != other->score)
        return one->score > other->score ? -1 : 1;
    return one->id < other->id ? -1 : one->id > other->id;
}

/*  Reads a vocabulary with scores. Any two tokens that form a third are joined; the pair with the highest
    score comes first. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_score_merges(ignis__tokenizer_load *load)
{
    const ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    ignis__scored_merge *scored =
        (ignis__scored_merge *)ignis__alloc((size_t)(load->entries.count + 1) * sizeof *scored);
    int64_t count = 0, i;
    uint32_t rank = 0;
    bool ok = scored != NULL;
    for (i = 0; ok && i < load->entries.count; i++) {
        scored[count].score = entries[i].score;
        scored[count].id = (int32_t)entries[i].id;
        count += !entries[i].unreachable;
    }
    if (ok && count > 1)
        qsort(scored, (size_t)count, sizeof *scored, ignis__scored_merge_order);
    for (i = 0; ok && i < count; i++) {
        int32_t id = scored[i].id;
        const char *text = tokenizer->bytes + tokenizer->begin[id];
        size_t size = tokenizer->begin[id + 1] - tokenizer->begin[id], at;
        rank += i > 0 && scored[i].score != scored[i - 1].score;
        if (size > IGNIS__SCORED_LIMIT) {
            ignis__free(scored);
            return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                          "token %d has %lld bytes; with scores at most %d are supported", (int)id,
                                          (long long)size, IGNIS__SCORED_LIMIT);
        }
        for (at = 1; ok && at < size; at++) {
            int32_t left, right;
            ignis__merge_entry *merge;
            if ((!tokenizer->byte_level && (text[at] & 0xC0) == 0x80) ||
                (left = ignis__token_find(tokenizer, text, at, false)) < 0 ||
                (right = ignis__token_find(tokenizer, text + at, size - at, false)) < 0)
                continue;
            merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
            ok = merge != NULL;
            if (!ok)
                break;
            merge->rank = rank;
            merge->ids[0] = left;
            merge->ids[1] = right;
            merge->ids[2] = id;
        }
    }
    ignis__free(scored);
    return ok || ignis__tokenizer_no_memory(load);
}

/*  Reads the tokens of a file, their types and scores. */
IGNIS__COLD static bool ignis__tokenizer_read_gguf_tokens(ignis__tokenizer_load *load, ignis__gguf *file, bool scores)
{
    ignis__gguf_items texts = IGNIS__ZERO, types = IGNIS__ZERO, values = IGNIS__ZERO, merges = IGNIS__ZERO;
    ignis__gguf_found got[4];
    int64_t count, i;
    size_t size;
    got[0] = ignis__gguf_find_array(file, "tokenizer.ggml.tokens", IGNIS__GGUF_STRING, &texts);
    got[1] = ignis__gguf_find_array(file, "tokenizer.ggml.token_type", IGNIS__GGUF_I64, &types);
    got[2] =
        scores ? ignis__gguf_find_array(file, "tokenizer.ggml.scores", IGNIS__GGUF_F64, &values) : IGNIS__GGUF_NONE;
    got[3] =
        scores ? IGNIS__GGUF_NONE : ignis__gguf_find_array(file, "tokenizer.ggml.merges", IGNIS__GGUF_STRING, &merges);
    for (i = 0; i < 4; i++)
        if (got[i] == IGNIS__GGUF_BAD)
            return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    count = texts.left;
    if (!count || (got[scores ? 2 : 3] == IGNIS__GGUF_NONE && !load->tokenizer->word_pieces))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has no tokenizer.ggml.%s",
                                      !count   ? "tokens"
                                      : scores ? "scores"
                                               : "merges");
    if (count > IGNIS__TOKEN_LIMIT || (got[1] && types.left != count) || (got[2] && values.left != count))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                      "it has %lld tokens, %lld token_types and %lld scores; at most %lld tokens",
                                      (long long)count, (long long)(got[1] ? types.left : count),
                                      (long long)(got[2] ? values.left : count), (long long)IGNIS__TOKEN_LIMIT);
    for (i = 0; i < count; i++) {
        ignis__token_entry *entry = (ignis__token_entry *)ignis__list_add(&load->entries);
        int64_t type = got[1] ? ignis__gguf_next_int(&types) : (int64_t)IGNIS__TYPE_NORMAL;
        ignis__added_token *added;
        bool control;
        if (!entry)
            return ignis__tokenizer_no_memory(load);
        entry->text = ignis__gguf_next_text(&texts, &size);
        entry->size = size;
        entry->id = i;
        entry->type = (int)type;
        entry->unreachable = type != IGNIS__TYPE_NORMAL && !(load->tokenizer->unigram && type == IGNIS__TYPE_UNUSED);
        entry->score = got[2] ? ignis__gguf_next_real(&values) : 0;
        if (entry->score != entry->score || strlen(entry->text) != size || !ignis__utf8_valid(entry->text))
            return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                          "token %lld has no score, or is no text in UTF-8", (long long)i);
        control =
            type == IGNIS__TYPE_CONTROL || /* a token that ends a text is a control token, whatever the file has */
            ((type == IGNIS__TYPE_NORMAL || type == IGNIS__TYPE_USER) &&
             ignis__tokenizer_find_end_text(entry->text, (int)type) >= 0);
        if (!control && type != IGNIS__TYPE_USER)
            continue;
        added = (ignis__added_token *)ignis__list_add(&load->added);
        if (!added)
            return ignis__tokenizer_no_memory(load);
        added->text = entry->text;
        added->size = size;
        added->id = (int32_t)i;
        added->order = (int)load->added.count;
        added->special = control;
    }
    while (merges.left > 0) {
        ignis__merge_entry *merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
        const char *both = ignis__gguf_next_text(&merges, &size);
        if (!merge)
            return ignis__tokenizer_no_memory(load);
        merge->rank = (uint32_t)(load->merges.count - 1);
        if (strlen(both) != size || !ignis__utf8_valid(both) || !ignis__merge_split(merge, both, size))
            return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                          "merge %lld is not two tokens with a space between them",
                                          (long long)(load->merges.count - 1));
    }
    return true;
}

/*  Gives the tokens of a WordPiece vocabulary the texts of tokenizer.json: U+2581 marks a token at the beginning of a
    word in the file, and nothing a token inside of one. */
IGNIS__COLD static bool ignis__tokenizer_mark_word_parts(ignis__tokenizer_load *load)
{
    ignis__token_entry *entries = (ignis__token_entry *)(void *)load->entries.items;
    int64_t i;
    for (i = 0; i < load->entries.count; i++) {
        ignis__token_entry *entry = &entries[i];
        char *text;
        if (entry->type != IGNIS__TYPE_NORMAL && entry->type != IGNIS__TYPE_UNUSED)
            continue;
        if (entry->size >= 3 && memcmp(entry->text, IGNIS__LOW_LINE, 3) == 0) {
            entry->text += 3;
            entry->size -= 3;
            continue;
        }
        text = (char *)ignis__tokenizer_keep(load->tokenizer, entry->size + 3);
        if (!text)
            return ignis__tokenizer_no_memory(load);
        memcpy(text, "##", 2);
        memcpy(text + 2, entry->text, entry->size + 1);
        entry->text = text;
        entry->size += 2;
    }
    return true;
}

/*  Reads ids and flags of a file. */
IGNIS__COLD static bool ignis__tokenizer_read_gguf_facts(ignis__tokenizer_load *load, ignis__gguf *file, bool adds_bos)
{
    static const char *const names[] = {"tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.unknown_token_id",
                                        "tokenizer.ggml.cls_token_id",     "tokenizer.ggml.seperator_token_id"};
    ignis__tokenizer *tokenizer = load->tokenizer;
    int *ids[6], i;
    bool add[2], ok = true;
    const char *text = NULL;
    size_t size = 0;
    ids[0] = &tokenizer->info.bos;
    ids[1] = &tokenizer->info.eos;
    ids[2] = &tokenizer->info.padding;
    ids[3] = &tokenizer->info.unknown;
    ids[4] = ids[0];
    ids[5] = ids[1];
    add[0] = adds_bos;
    add[1] = tokenizer->word_pieces || tokenizer->unigram;
    for (i = 0; tokenizer->word_pieces && i < 2 && tokenizer->info.tokens > 102; i++) /* those of BERT, as llama.cpp */
        *ids[i] = 101 + i;
    for (i = 0; ok && i < (tokenizer->word_pieces ? 6 : 4); i++) {
        int64_t id = -1;
        ignis__gguf_found got = ignis__gguf_find_int(file, names[i], &id);
        if (got == IGNIS__GGUF_FOUND && (id < 0 || id >= tokenizer->info.tokens)) {
            if (id != UINT32_MAX) /* the value that some writers use for none */
                return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s is %lld, and it has %d tokens",
                                              names[i], (long long)id, tokenizer->info.tokens);
        } else if (got == IGNIS__GGUF_FOUND) {
            *ids[i] = (int)id;
        }
        ok = got != IGNIS__GGUF_BAD;
    }
    ok = ok && ignis__gguf_find_bool(file, "tokenizer.ggml.add_bos_token", &add[0]) != IGNIS__GGUF_BAD &&
         ignis__gguf_find_bool(file, "tokenizer.ggml.add_eos_token", &add[1]) != IGNIS__GGUF_BAD &&
         ignis__gguf_find_string(file, "tokenizer.chat_template", &text, &size) != IGNIS__GGUF_BAD;
    if (!ok)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    tokenizer->front = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    tokenizer->back = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    if (!tokenizer->front || !tokenizer->back)
        return ignis__tokenizer_no_memory(load);
    ignis__tokenizer_set_template(tokenizer->front, &tokenizer->front_count, add[0], tokenizer->info.bos);
    ignis__tokenizer_set_template(tokenizer->back, &tokenizer->back_count, add[1], tokenizer->info.eos);
    for (i = 0; i < 2; i++) {
        const char *kept = NULL;
        if (*ids[i] < 0)
            continue;
        kept = ignis__tokenizer_keep_text(tokenizer, tokenizer->bytes + tokenizer->begin[*ids[i]],
                                          tokenizer->begin[*ids[i] + 1] - tokenizer->begin[*ids[i]]);
        if (!kept)
            return ignis__tokenizer_no_memory(load);
        *(i == 0 ? &tokenizer->bos_text : &tokenizer->eos_text) = kept;
    }
    if (text && (strlen(text) != size || !ignis__utf8_valid(text)))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its chat template is no text in UTF-8");
    if (text && (tokenizer->chat_template = ignis__tokenizer_keep_text(tokenizer, text, size)) == NULL)
        return ignis__tokenizer_no_memory(load);
    return true;
}

/*  Sets what a vocabulary of characters has: U+2581 for spaces, bytes for characters that are missing. */
static void ignis__tokenizer_set_gguf_pieces(ignis__tokenizer *tokenizer, bool prefix)
{
    tokenizer->byte_fallback = tokenizer->byte_decoder = tokenizer->fuse_unknown = true;
    if (prefix) {
        tokenizer->normals[0].kind = IGNIS__NORMAL_PREPEND;
        tokenizer->normals[tokenizer->normal_count++].to = IGNIS__LOW_LINE;
    }
    tokenizer->normals[tokenizer->normal_count].kind = IGNIS__NORMAL_REPLACE;
    tokenizer->normals[tokenizer->normal_count].from = " ";
    tokenizer->normals[tokenizer->normal_count++].to = IGNIS__LOW_LINE;
    tokenizer->strip = prefix;
}

/*  Sets what WordPiece has. */
static void ignis__tokenizer_set_gguf_words(ignis__tokenizer *tokenizer)
{
    tokenizer->word_pieces = tokenizer->word_cleanup = true;
    tokenizer->word_prefix = tokenizer->word_decoder_prefix = "##";
    tokenizer->word_limit = 100;
    tokenizer->normals[0].kind = IGNIS__NORMAL_BERT;
    tokenizer->normals[tokenizer->normal_count++].how = ignis__bert_flags(true, true, true, true);
    ignis__tokenizer_add_bert_cuts(tokenizer);
}

/*  Sets what Unigram has, and reads its map of characters, if the file has one. */
IGNIS__COLD static bool ignis__tokenizer_set_gguf_unigram(ignis__tokenizer_load *load, ignis__gguf *file, bool prefix)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__normalizer_step *normal = &tokenizer->normals[0];
    ignis__gguf_items items = IGNIS__ZERO;
    ignis__bytes map = IGNIS__ZERO;
    bool extra = false, ok = true;
    const ignis__gguf_found got =
        ignis__gguf_find_array(file, "tokenizer.ggml.precompiled_charsmap", IGNIS__GGUF_I64, &items);
    if (got == IGNIS__GGUF_BAD ||
        ignis__gguf_find_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &extra) == IGNIS__GGUF_BAD)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    tokenizer->unigram = true;
    tokenizer->metaspace = prefix ? IGNIS__METASPACE_ALWAYS : IGNIS__METASPACE_NEVER;
    tokenizer->metaspace_decoder = tokenizer->metaspace;
    tokenizer->metaspace_split = extra;
    if (extra)
        ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_SPACE, IGNIS__BEHAVIOR_REMOVED);
    if (!items.left)
        return true;
    while (ok && items.left > 0) {
        const char byte = (char)ignis__gguf_next_int(&items);
        ok = ignis__bytes_add(&map, &byte, 1);
    }
    normal->kind = IGNIS__NORMAL_CHARSMAP;
    normal->map = ok ? ignis__charsmap_read(load, map.data, map.size) : NULL;
    tokenizer->normal_count = 1;
    ignis__free(map.data);
    return ok ? normal->map != NULL : ignis__tokenizer_no_memory(load);
}

/*  Sets what "whitespace" means (Jina's embeddings of Chinese): tokens of characters, and no token has white space. */
IGNIS__COLD static bool ignis__tokenizer_set_gguf_space(ignis__tokenizer_load *load, ignis__gguf *file)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    bool lower = false;
    if (ignis__gguf_find_bool(file, "tokenizer.ggml.normalizer.lowercase", &lower) == IGNIS__GGUF_BAD)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    tokenizer->byte_fallback = tokenizer->byte_decoder = true;
    tokenizer->normals[0].kind = IGNIS__NORMAL_BERT;
    tokenizer->normals[0].how = IGNIS__BERT_LOWER;
    tokenizer->normal_count = lower;
    ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_SPACE, IGNIS__BEHAVIOR_REMOVED);
    return true;
}

/*  Sets what a name of a pre-tokenizer means. False, and reported, if it is unknown. */
IGNIS__COLD static bool ignis__tokenizer_set_gguf_splits(ignis__tokenizer_load *load, ignis__gguf *file,
                                                         const char *name, bool *adds_bos)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    int at, split, i;
    for (at = 0; at < IGNIS__COUNT(ignis__tokenizer_gguf_patterns); at++)
        if (ignis__tokenizer_part_is(name, ignis__tokenizer_gguf_patterns[at].name))
            break;
    for (split = 0; split < IGNIS__COUNT(ignis__tokenizer_gguf_splits); split++)
        if (ignis__tokenizer_part_is(name, ignis__tokenizer_gguf_splits[split].name))
            break;
    *adds_bos = false;
    if (name && strcmp(name, "whitespace") == 0)
        return ignis__tokenizer_set_gguf_space(load, file);
    tokenizer->byte_level = true;
    tokenizer->normals[0].how = IGNIS__FORM_COMPOSED; /* NFC is the only normalizer */
    if (at < IGNIS__COUNT(ignis__tokenizer_gguf_patterns)) {
        tokenizer->split = ignis__tokenizer_gguf_patterns[at].split;
        if (ignis__tokenizer_gguf_patterns[at].digits)
            ignis__tokenizer_add_digits(tokenizer, true);
        tokenizer->ignore_merges = ignis__tokenizer_gguf_patterns[at].ignore_merges;
        tokenizer->normal_count = ignis__tokenizer_gguf_patterns[at].nfc;
        *adds_bos = ignis__tokenizer_gguf_patterns[at].adds_bos;
        return true;
    }
    if (split == IGNIS__COUNT(ignis__tokenizer_gguf_splits))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its tokenizer.ggml.pre %s is not supported",
                                      ignis__name_write(name ? name : "").text);
    tokenizer->ignore_merges = ignis__tokenizer_gguf_splits[split].ignore_merges;
    tokenizer->normal_count = ignis__tokenizer_gguf_splits[split].nfc;
    *adds_bos = ignis__tokenizer_gguf_splits[split].adds_bos;
    if (!ignis__tokenizer_gguf_splits[split].patterns[1] &&
        strcmp(ignis__tokenizer_gguf_splits[split].patterns[0], IGNIS__LINES) == 0) {
        tokenizer->byte_level = false;
        ignis__tokenizer_set_gguf_pieces(tokenizer, false);
    }
    for (i = 0; ignis__tokenizer_gguf_splits[split].patterns[i]; i++)
        if (!ignis__tokenizer_add_pattern(load, ignis__tokenizer_gguf_splits[split].patterns[i],
                                          IGNIS__BEHAVIOR_ISOLATED, false))
            return false;
    return true;
}

/*  Finds the tokens for bytes and for what is unknown. */
static void ignis__tokenizer_find_gguf_types(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    int64_t i;
    if (tokenizer->word_pieces && tokenizer->info.tokens > 100)
        tokenizer->info.unknown = 100;                      /* that of BERT */
    if (tokenizer->unigram && tokenizer->info.tokens > 2) { /* those of T5 */
        tokenizer->info.padding = 0;
        tokenizer->info.eos = 1;
        tokenizer->info.unknown = 2;
    }
    for (i = 0; i < load->entries.count; i++) {
        unsigned byte;
        if (entries[i].type == IGNIS__TYPE_BYTE && entries[i].size == 6 &&
            sscanf(entries[i].text, "<0x%2x>", &byte) == 1)
            tokenizer->fallback[byte] = (int32_t)i;
        if (entries[i].type == IGNIS__TYPE_UNKNOWN)
            tokenizer->info.unknown = (int)i;
        if (entries[i].type == IGNIS__TYPE_UNKNOWN && !tokenizer->byte_level && !tokenizer->word_pieces)
            tokenizer->flags[i] |= IGNIS__TOKEN_CONTROL;
    }
}

/*  Reads the tokenizer of a GGUF file, with the result of the tokenizer.json that it was converted from. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_gguf(ignis__tokenizer_load *load, ignis__gguf *file)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const char *model = NULL, *name = NULL;
    size_t size;
    bool pieces, words, unigram, prefix, adds_bos = true;
    if (ignis__gguf_find_string(file, "tokenizer.ggml.model", &model, &size) == IGNIS__GGUF_BAD ||
        ignis__gguf_find_string(file, "tokenizer.ggml.pre", &name, &size) == IGNIS__GGUF_BAD)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    if (!model)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has no tokenizer");
    pieces = strcmp(model, "llama") == 0;
    words = strcmp(model, "bert") == 0;
    unigram = strcmp(model, "t5") == 0;
    prefix = !unigram; /* as in llama.cpp, if the file does not tell */
    if (strcmp(model, "gemma4") == 0)
        name = model;
    else if (!pieces && !words && !unigram && strcmp(model, "gpt2") != 0)
        return ignis__tokenizer_fault(
            load, IGNIS_DIAG_UNSUPPORTED,
            "its tokenizer.ggml.model %s is not supported; gpt2, gemma4, llama, t5 and bert are",
            ignis__name_write(model).text);
    if (ignis__gguf_find_bool(file, "tokenizer.ggml.add_space_prefix", &prefix) == IGNIS__GGUF_BAD)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    if (words)
        ignis__tokenizer_set_gguf_words(tokenizer);
    else if (pieces)
        ignis__tokenizer_set_gguf_pieces(tokenizer, prefix);
    else if (!(unigram ? ignis__tokenizer_set_gguf_unigram(load, file, prefix)
                       : ignis__tokenizer_set_gguf_splits(load, file, name, &adds_bos)))
        return false;
    if (!ignis__tokenizer_read_gguf_tokens(load, file, pieces || unigram) ||
        (words && !ignis__tokenizer_mark_word_parts(load)) || !ignis__tokenizer_read_vocabulary(load) ||
        !(pieces ? ignis__tokenizer_build_score_merges(load) : ignis__tokenizer_build_merges(load)) ||
        !ignis__tokenizer_build_joins(load) || (unigram && !ignis__tokenizer_build_unigram(load)) ||
        !ignis__tokenizer_build_added(load))
        return false;
    ignis__tokenizer_find_gguf_types(load);
    if (!ignis__tokenizer_read_gguf_facts(load, file, adds_bos && !unigram))
        return false;
    if ((words || unigram) && tokenizer->info.unknown < 0)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                      "it has no token for what is unknown, which WordPiece and Unigram need");
    return true;
}
