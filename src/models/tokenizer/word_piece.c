/*  models/tokenizer/word_piece.c - BertNormalizer, and WordPiece: a word to ids, the longest token first

    The tables of dropped characters and of lower case are in unicode_table.c.
    May use: nfc.c, unicode.c, byte_buffer.c, bpe.c. Locks: none. */

#include "room.h"

/*  Tells whether BertNormalizer puts spaces around a character. */
static bool ignis__char_chinese(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    int i;
    for (i = 0; i < IGNIS__COUNT(ranges); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

/*  Returns which normalizers drop a character, as ignis__char_drops has it. */
IGNIS__PRIVATE uint32_t ignis__char_drop(uint32_t code)
{
    return ignis__char_run(ignis__char_drops, IGNIS__COUNT(ignis__char_drops), 3, code);
}

/*  Appends a character, in lower case if `how` says so. */
static bool ignis__bert_put(ignis__bytes *out, uint32_t code, unsigned how)
{
    if (!ignis__bytes_reserve(out, 8))
        return false;
    if (how & IGNIS__BERT_LOWER && code == 0x130) { /* the only one that becomes two */
        memcpy(out->data + out->size, "i\xCC\x87", 3);
        out->size += 3;
        return true;
    }
    if (how & IGNIS__BERT_LOWER)
        code = code - 'A' < 26 ? code | 32 : ignis__char_case(ignis__char_lower, IGNIS__COUNT(ignis__char_lower), code);
    out->size += (size_t)ignis__utf8_write(out->data + out->size, code);
    return true;
}

/*  Appends the marks that follow a character, sorted by their classes. */
static bool ignis__bert_put_marks(ignis__bytes *out, ignis__bytes *marks, unsigned how)
{
    uint64_t *mark = (uint64_t *)(void *)marks->data;
    const size_t count = marks->size / sizeof *mark;
    bool ok = true;
    size_t i;
    if (count > 1)
        qsort(mark, count, sizeof *mark, ignis__u64_order);
    for (i = 0; ok && i < count; i++)
        ok = ignis__bert_put(out, (uint32_t)(mark[i] & 0x1FFFFF), how);
    marks->size = 0;
    return ok;
}

/*  Appends a text of whole characters: without controls, with spaces around Chinese characters, decomposed and without
    accents, in lower case. how: which of them. */
IGNIS__PRIVATE bool ignis__bert_normalize(ignis__bytes *out, const char *text, size_t size, unsigned how)
{
    ignis__bytes marks = IGNIS__ZERO;
    uint64_t parts[IGNIS__CHAR_PARTS];
    size_t at;
    int length, count, i;
    bool ok = true;
    for (at = 0; ok && at < size; at += (size_t)length) {
        uint32_t code = ignis__utf8_code(text + at, &length);
        const bool chinese = how & IGNIS__BERT_CHINESE && ignis__char_chinese(code);
        if (how & IGNIS__BERT_CLEAN && ignis__char_drop(code) & 1)
            continue;
        if (how & IGNIS__BERT_CLEAN && ignis__char_space(code))
            code = ' ';
        parts[0] = code;
        count = how & IGNIS__BERT_STRIP ? ignis__char_decompose(code, 0, parts) : 1;
        if (chinese)
            ok = ignis__bert_put_marks(out, &marks, how) && ignis__bert_put(out, ' ', how);
        for (i = 0; ok && i < count; i++) {
            code = (uint32_t)(parts[i] & 0x1FFFFF);
            if (how & IGNIS__BERT_STRIP && ignis__char_drop(code) & 2)
                continue;
            if (parts[i] >> 53) { /* it keeps its place among marks of its class */
                const uint64_t mark = parts[i] | (uint64_t)(marks.size / sizeof mark) << 21;
                ok = ignis__bytes_add(&marks, (const char *)(const void *)&mark, sizeof mark);
                continue;
            }
            ok = ignis__bert_put_marks(out, &marks, how) && ignis__bert_put(out, code, how);
        }
        if (chinese)
            ok = ok && ignis__bert_put_marks(out, &marks, how) && ignis__bert_put(out, ' ', how);
    }
    ok = ok && ignis__bert_put_marks(out, &marks, how);
    ignis__free(marks.data);
    return ok;
}

/*  Encodes a word as the longest tokens that it begins with, one after the other; as the unknown token if a place has
    none, or if the word is too long. */
IGNIS__PRIVATE bool ignis__encode_word(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    ignis__bytes *word = &encoder->spaced;
    const size_t prefix = strlen(tokenizer->word_prefix);
    const int64_t before = encoder->count;
    int64_t characters = 0;
    size_t at, end;
    int32_t id;
    for (at = 0; at < size; at++)
        characters += (text[at] & 0xC0) != 0x80;
    word->size = 0;
    if (!ignis__bytes_add(word, tokenizer->word_prefix, prefix) || !ignis__bytes_add(word, text, size))
        return false;
    for (at = 0; at < size && characters <= tokenizer->word_limit; at = end) {
        const size_t head = at > 0 ? prefix : 0;
        char *from = word->data + prefix - head + at;
        memcpy(from, tokenizer->word_prefix, head); /* over what is encoded already */
        for (id = -1, end = size; end > at; end -= end > at) {
            id = ignis__token_find(tokenizer, from, head + end - at, false);
            if (id >= 0)
                break;
            while ((text[end - 1] & 0xC0) == 0x80)
                end--;
        }
        if (id < 0)
            break;
        ignis__encoder_put(encoder, id);
    }
    if (at < size) {
        encoder->count = before;
        ignis__encoder_put(encoder, tokenizer->info.unknown);
    }
    return true;
}

/*  Appends the text of a token as the decoder WordPiece does: after a space, unless it continues a word. */
IGNIS__PRIVATE bool ignis__word_add(const ignis__tokenizer *tokenizer, const char *text, size_t size, bool first,
                                    ignis__bytes *out)
{
    static const char *const close[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    const size_t prefix = strlen(tokenizer->word_decoder_prefix);
    bool space = !first;
    int i;
    if (space && size >= prefix && memcmp(text, tokenizer->word_decoder_prefix, prefix) == 0)
        return ignis__bytes_add(out, text + prefix, size - prefix);
    for (i = 0; space && tokenizer->word_cleanup && i < IGNIS__COUNT(close); i++)
        space = size < strlen(close[i]) || memcmp(text, close[i], strlen(close[i])) != 0;
    return (!space || ignis__bytes_add(out, " ", 1)) && ignis__bytes_add(out, text, size);
}
