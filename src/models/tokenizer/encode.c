/*  models/tokenizer/encode.c - a text to ids: added tokens, normalization, pieces

    Level 0 is the raw text, level 1 the normalized text between the added tokens of level 0.
    May use: normalize.c, pre_tokenizer.c, pattern.c, bpe.c, unigram.c, word_piece.c. Locks: none. */

#include "room.h"

/*  Encodes text with a byte-level vocabulary: splits it into pieces, after a leading space if the file asks
    for one. */
static bool ignis__encode_byte_level(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    size_t at = 0, end;
    if (tokenizer->prefix_space && size > 0 && text[0] != ' ') {
        encoder->spaced.size = 0;
        if (!ignis__bytes_add(&encoder->spaced, " ", 1) || !ignis__bytes_add(&encoder->spaced, text, size))
            return false;
        text = encoder->spaced.data;
        size = encoder->spaced.size;
    }
    for (; at < size; at = end) {
        end = ignis__split_next(tokenizer->split, text, size, at);
        if (!ignis__encode_piece(encoder, text + at, end - at))
            return false;
    }
    return true;
}

/*  Encodes a piece of characters. */
static bool ignis__encode_run(ignis__encoder *encoder, const char *text, size_t size)
{
    return encoder->tokenizer->unigram ? ignis__encode_unigram(encoder, text, size)
                                       : ignis__encode_piece(encoder, text, size);
}

/*  Encodes text with a vocabulary of characters: U+2581 replaces spaces. The text is split where that does
    not change the result. */
static bool ignis__encode_characters(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    bool first = text == encoder->front,
         split = tokenizer->metaspace != IGNIS__METASPACE_NONE && tokenizer->metaspace_split, low, before = false;
    size_t at, begin = 0;
    if (tokenizer->metaspace != IGNIS__METASPACE_NONE) {
        ignis__bytes *out = &encoder->spaced;
        out->size = 0;
        if ((tokenizer->metaspace == IGNIS__METASPACE_ALWAYS ||
             (tokenizer->metaspace == IGNIS__METASPACE_FIRST && first)) &&
            text[0] != ' ' && !(size >= 3 && memcmp(text, IGNIS__LOW_LINE, 3) == 0) &&
            !ignis__bytes_add(out, IGNIS__LOW_LINE, 3))
            return false;
        for (at = 0; at < size; at++)
            if (!(text[at] == ' ' ? ignis__bytes_add(out, IGNIS__LOW_LINE, 3) : ignis__bytes_add(out, text + at, 1)))
                return false;
        text = out->data;
        size = out->size;
    }
    for (at = 0; (split || tokenizer->words) && at < size; at += low ? 3 : 1, before = low) {
        low = size - at >= 3 && memcmp(text + at, IGNIS__LOW_LINE, 3) == 0;
        if (low && at > begin && (split || !before)) {
            if (!ignis__encode_run(encoder, text + begin, at - begin))
                return false;
            begin = at;
        }
    }
    return size == begin || ignis__encode_run(encoder, text + begin, size - begin);
}

/*  Finds what a step cuts out at or after a place. False if it finds nothing. */
static bool ignis__split_find(ignis__encoder *encoder, const ignis__split_step *step, const char *text, size_t size,
                              size_t at, size_t *begin, size_t *end)
{
    int length;
    if (step->cut == IGNIS__CUT_PATTERN) {
        ignis__pattern_search search;
        bool found;
        search.pattern = step->pattern;
        search.text = text;
        search.size = size;
        search.steps = encoder->steps;
        found = ignis__pattern_find(&search, at, begin, end);
        encoder->steps = search.steps;
        return found;
    }
    for (; at < size; at += (size_t)length) {
        unsigned kind = ignis__char_at(text, size, at, &length);
        bool is = step->cut == IGNIS__CUT_DIGIT ? (kind & IGNIS__CHAR_DIGIT) != 0
                  : step->cut == IGNIS__CUT_PUNCTUATION
                      ? ignis__char_punctuation(ignis__utf8_code(text + at, &length))
                      : ((kind & IGNIS__CHAR_SPACE) != 0) == (step->cut == IGNIS__CUT_SPACE);
        if (!is)
            continue;
        *begin = at;
        *end = at + (size_t)length;
        if (step->cut == IGNIS__CUT_WORDS)
            *end = kind & IGNIS__CHAR_WORD
                       ? ignis__char_skip(text, size, at, IGNIS__CHAR_WORD, false)
                       : ignis__char_skip(text, size, at, IGNIS__CHAR_WORD | IGNIS__CHAR_SPACE, true);
        return true;
    }
    return false;
}

/*  The piece that a step has not passed on yet, as more text may join it. */
typedef struct ignis__split_pending {
    size_t begin, end;
    bool exists, match;
} ignis__split_pending;

static bool ignis__encode_step(ignis__encoder *encoder, int index, const char *text, size_t size);

/*  Passes a match, or the text between two, to the next step, or joins it to the pending piece. */
static bool ignis__split_put(ignis__encoder *encoder, int index, const char *text, ignis__split_pending *pending,
                             const ignis__split_pending *now)
{
    const ignis__split_behavior behavior = encoder->tokenizer->steps[index].behavior;
    const bool last = pending->match;
    bool ok = true;
    if (now->exists && now->begin == now->end)
        return true;
    if (now->exists && pending->exists &&
        ((behavior == IGNIS__BEHAVIOR_CONTIGUOUS && now->match == last) ||
         (behavior == IGNIS__BEHAVIOR_PREVIOUS && now->match && !last) ||
         (behavior == IGNIS__BEHAVIOR_NEXT && !now->match && last))) {
        pending->end = now->end;
        pending->match = now->match;
        return true;
    }
    if (pending->exists && !(behavior == IGNIS__BEHAVIOR_REMOVED && last))
        ok = ignis__encode_step(encoder, index + 1, text + pending->begin, pending->end - pending->begin);
    *pending = *now;
    return ok;
}

/*  Splits text by the steps from `index` on, and encodes the pieces. */
static bool ignis__encode_step(ignis__encoder *encoder, int index, const char *text, size_t size)
{
    const ignis__split_step *step = &encoder->tokenizer->steps[index];
    ignis__split_pending pending = {0, 0, false, false}, now = {0, 0, true, false};
    size_t done = 0, at = 0, begin, end;
    if (index == encoder->tokenizer->step_count)
        return encoder->tokenizer->word_pieces  ? ignis__encode_word(encoder, text, size)
               : encoder->tokenizer->byte_level ? ignis__encode_byte_level(encoder, text, size)
                                                : ignis__encode_characters(encoder, text, size);
    while (at <= size && ignis__split_find(encoder, step, text, size, at, &begin, &end)) {
        int length = 1;
        now.begin = done, now.end = begin, now.match = step->invert;
        if (!ignis__split_put(encoder, index, text, &pending, &now))
            return false;
        now.begin = begin, now.end = end, now.match = !step->invert;
        if (!ignis__split_put(encoder, index, text, &pending, &now))
            return false;
        done = at = end;
        if (begin == end && at < size) /* an empty match only splits */
            (void)ignis__utf8_code(text + at, &length);
        at += begin == end ? (size_t)length : 0;
    }
    encoder->too_slow = encoder->too_slow || encoder->steps <= 0;
    now.begin = done, now.end = size, now.match = step->invert;
    if (encoder->too_slow || !ignis__split_put(encoder, index, text, &pending, &now))
        return false;
    now.exists = false; /* the end */
    return ignis__split_put(encoder, index, text, &pending, &now);
}

/*  Tells whether the character before a place, or at it, belongs to a word. */
static bool ignis__is_word_at(const char *text, size_t size, size_t at, bool before)
{
    int length;
    if (before ? at == 0 : at == size)
        return false;
    if (before)
        while ((text[--at] & 0xC0) == 0x80)
            continue;
    return (ignis__char_at(text, size, at, &length) & IGNIS__CHAR_WORD) != 0;
}

/*  Finds the longest added token at a place, control tokens of at most `limit` bytes. NULL if there is none.
    *hidden: a control token is longer than that. */
IGNIS__PRIVATE const ignis__added_token *ignis__added_set_find(const ignis__added_set *set, const char *text,
                                                               size_t size, size_t at, size_t limit, bool *hidden)
{
    const ignis__added_token *found = NULL;
    int low = 0, high = set->count, begin, end;
    size_t depth;
    *hidden = false;
    for (depth = 0; low < high; depth++) {
        unsigned char c;
        if (set->items[low].size == depth) {
            *hidden = set->items[low].special && depth > limit;
            found = *hidden ? found : &set->items[low];
            low++;
        }
        if (at + depth == size)
            break;
        c = (unsigned char)text[at + depth];
        if (low < high && (unsigned char)set->items[low].text[depth] == c &&
            (unsigned char)set->items[high - 1].text[depth] == c)
            continue;                                 /* all candidates have this byte */
        for (begin = low, end = high; begin < end;) { /* the first with this byte, or above it */
            int middle = (begin + end) / 2;
            if ((unsigned char)set->items[middle].text[depth] < c)
                begin = middle + 1;
            else
                end = middle;
        }
        low = begin;
        for (end = high; begin < end;) {
            int middle = (begin + end) / 2;
            if ((unsigned char)set->items[middle].text[depth] <= c)
                begin = middle + 1;
            else
                end = middle;
        }
        high = begin;
    }
    return found;
}

/*  Returns where plain text begins, at or after a place of the raw text; SIZE_MAX if there is none. */
static size_t ignis__encoder_find_plain(const ignis__encoder *encoder, size_t begin)
{
    int64_t low = 0, high = encoder->span_count;
    while (low < high) { /* the first that ends after it */
        int64_t middle = (low + high) / 2;
        if (encoder->spans[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (encoder->plain || (low < encoder->span_count && encoder->spans[low].begin <= begin))
        return begin;
    return low < encoder->span_count ? encoder->spans[low].begin : SIZE_MAX;
}

/*  Returns how many bytes a control token at a place may have before it would overlap plain text. */
static size_t ignis__encoder_token_limit(const ignis__encoder *encoder, int level, size_t at)
{
    if (level == 0 || encoder->tokenizer->normal_count == 0) {
        at += level == 0 ? 0 : encoder->part;
        return ignis__encoder_find_plain(encoder, at) - at;
    }
    return encoder->part_plain ? 0 : SIZE_MAX;
}

/*  Encodes a text, raw at level 0: cuts added tokens out, and passes the text between them to the next level. */
static bool ignis__encode_level(ignis__encoder *encoder, int level, const char *text, size_t size)
{
    const ignis__added_set *set = &encoder->tokenizer->added[level];
    size_t at = 0, done = 0, begin, end;
    const ignis__added_token *found = NULL;
    bool hidden;
    int length;
    for (;;) {
        for (found = NULL; at < size && !found; at += !found) {
            if (!set->first[(unsigned char)text[at]])
                continue;
            found = ignis__added_set_find(set, text, size, at, ignis__encoder_token_limit(encoder, level, at), &hidden);
            if (hidden && level == 1 && encoder->tokenizer->normal_count > 0 && !encoder->plain)
                encoder->unclear = true;
        }
        begin = end = at;
        if (found) {
            at = end += found->size;
            if (found->single_word &&
                (ignis__is_word_at(text, size, begin, true) || ignis__is_word_at(text, size, end, false)))
                continue;
            while (found->lstrip && begin > done) {
                size_t last = begin - 1;
                while (last > 0 && (text[last] & 0xC0) == 0x80)
                    last--;
                if (!(ignis__char_at(text, size, last, &length) & IGNIS__CHAR_SPACE))
                    break;
                begin = last;
            }
            if (found->rstrip) /* white space that the last token took is skipped */
                end = ignis__char_skip(text, size, end < done ? done : end, IGNIS__CHAR_SPACE, false);
        }
        if (begin > done) {
            const char *part = text + done;
            size_t part_size = begin - done;
            bool ok;
            if (level == 1) {
                ok = ignis__encode_step(encoder, 0, part, part_size);
            } else {
                encoder->part = done;
                encoder->part_plain = ignis__encoder_find_plain(encoder, done) < begin;
                ok = ignis__encode_normalize(encoder, &part, &part_size);
                encoder->front = done == 0 && !encoder->front_cut ? part : NULL;
                ok = ok && ignis__encode_level(encoder, 1, part, part_size);
            }
            if (!ok) {
                encoder->failed = true;
                return false;
            }
        }
        if (!found)
            return true;
        ignis__encoder_put(encoder, found->id);
        done = end;
    }
}

/*  Encodes a whole text. With spans it has to be valid UTF-8, as spans count its bytes. */
IGNIS__PRIVATE bool ignis__encode(ignis__encoder *encoder, const char *text, size_t size, bool no_bos)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    size_t at = 0;
    int i, length = 1;
    encoder->steps = ((int64_t)1 << 22) + 512 * (int64_t)size;
    while (at < size && (length = ignis__utf8_length(text + at, size - at)) > 0)
        at += (size_t)length;
    if (at < size) {
        if (!ignis__bytes_add_fixed(&encoder->fixed, text, size)) {
            encoder->failed = true;
            return false;
        }
        text = encoder->fixed.data;
        size = encoder->fixed.size;
    }
    for (i = 0; !no_bos && i < tokenizer->front_count; i++)
        ignis__encoder_put(encoder, tokenizer->front[i]);
    if (!ignis__encode_level(encoder, 0, text, size))
        return false;
    for (i = 0; !no_bos && i < tokenizer->back_count; i++)
        ignis__encoder_put(encoder, tokenizer->back[i]);
    return true;
}
