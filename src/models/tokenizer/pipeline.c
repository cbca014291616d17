/*  models/tokenizer/pipeline.c - the steps of tokenizer.json: normalizer, pre-tokenizer, decoder

    A step that would change ids and that Ignis does not know is refused by name.
    May use: tokenizer_json.c, tokenizer.c. Locks: none. */

#include "room.h"

/*  Refuses a step of a part, by its name. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_refuse_part(ignis__tokenizer_load *load, int kind,
                                                             const ignis__tokenizer_part *part, const char *why)
{
    return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its %s %s is not supported%s%s",
                                  ignis__tokenizer_part_names[kind], ignis__name_write(part->type).text,
                                  *why ? ": " : "", why);
}

IGNIS__PRIVATE bool ignis__tokenizer_part_is(const char *text, const char *other)
{
    return text && strcmp(text, other) == 0;
}

IGNIS__PRIVATE unsigned ignis__bert_flags(bool clean, bool chinese, bool strip, bool lower)
{
    return (clean ? (unsigned)IGNIS__BERT_CLEAN : 0) | (chinese ? (unsigned)IGNIS__BERT_CHINESE : 0) |
           (strip ? (unsigned)IGNIS__BERT_STRIP : 0) | (lower ? (unsigned)IGNIS__BERT_LOWER : 0);
}

/*  Reads what a step of the normalizer has beside its type. */
IGNIS__COLD static bool ignis__tokenizer_read_normal(ignis__tokenizer_load *load, const ignis__tokenizer_part *part,
                                                     ignis__normalizer_step *normal)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const char *to = normal->kind == IGNIS__NORMAL_PREPEND ? part->prepend : part->content;
    bool no_memory = false;
    if (normal->kind == IGNIS__NORMAL_BERT && !normal->how)
        normal->how = ignis__bert_flags(part->clean == 1, part->chinese == 1,
                                        part->strip == 1 || (part->strip < 0 && part->lower == 1), part->lower == 1);
    if (normal->kind == IGNIS__NORMAL_STRIP)
        normal->how =
            (part->left == 1 ? (unsigned)IGNIS__STRIP_LEFT : 0) | (part->right == 1 ? (unsigned)IGNIS__STRIP_RIGHT : 0);
    if (normal->kind == IGNIS__NORMAL_CHARSMAP) {
        if (!part->charsmap)
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_NORMALIZER, part, "its map is missing");
        normal->map = ignis__charsmap_read_base64(load, part->charsmap);
        return normal->map != NULL;
    }
    if (normal->kind != IGNIS__NORMAL_PREPEND && normal->kind != IGNIS__NORMAL_REPLACE)
        return true;
    if (!to || (normal->kind == IGNIS__NORMAL_REPLACE && !part->regex && !(part->string && *part->string)))
        return ignis__tokenizer_refuse_part(load, IGNIS__PART_NORMALIZER, part, "its texts are missing");
    normal->to = ignis__tokenizer_keep_text(tokenizer, to, strlen(to));
    if (part->regex && normal->kind == IGNIS__NORMAL_REPLACE) {
        normal->pattern = ignis__pattern_compile(tokenizer, part->regex, &no_memory);
        if (!normal->pattern && !no_memory)
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_NORMALIZER, part, part->regex);
    } else if (normal->kind == IGNIS__NORMAL_REPLACE) {
        normal->from = ignis__tokenizer_keep_text(tokenizer, part->string, strlen(part->string));
        no_memory = !normal->from;
    }
    return (normal->to && !no_memory) || ignis__tokenizer_no_memory(load);
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_normalizer(ignis__tokenizer_load *load)
{
    static const struct {
        const char *type;
        ignis__normalizer_kind kind;
        unsigned how;
    } kinds[] = {{"NFC", IGNIS__NORMAL_FORM, IGNIS__FORM_COMPOSED},
                 {"NFD", IGNIS__NORMAL_FORM, 0},
                 {"NFKC", IGNIS__NORMAL_FORM, IGNIS__FORM_COMPOSED | IGNIS__FORM_COMPAT},
                 {"NFKD", IGNIS__NORMAL_FORM, IGNIS__FORM_COMPAT},
                 {"Lowercase", IGNIS__NORMAL_BERT, IGNIS__BERT_LOWER},
                 {"BertNormalizer", IGNIS__NORMAL_BERT, 0},
                 {"Prepend", IGNIS__NORMAL_PREPEND, 0},
                 {"Replace", IGNIS__NORMAL_REPLACE, 0},
                 {"Strip", IGNIS__NORMAL_STRIP, 0},
                 {"StripAccents", IGNIS__NORMAL_ACCENTS, 0},
                 {"Nmt", IGNIS__NORMAL_NMT, 0},
                 {"Precompiled", IGNIS__NORMAL_CHARSMAP, 0}};
    ignis__tokenizer *tokenizer = load->tokenizer;
    int i, k;
    for (i = 0; i < load->part_count[IGNIS__PART_NORMALIZER]; i++) {
        const ignis__tokenizer_part *part = &load->parts[IGNIS__PART_NORMALIZER][i];
        ignis__normalizer_step *normal = &tokenizer->normals[tokenizer->normal_count++];
        for (k = 0; k < IGNIS__COUNT(kinds) && !ignis__tokenizer_part_is(part->type, kinds[k].type); k++)
            continue;
        if (k == IGNIS__COUNT(kinds))
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_NORMALIZER, part, "");
        normal->kind = kinds[k].kind;
        normal->how = kinds[k].how;
        if (!ignis__tokenizer_read_normal(load, part, normal))
            return false;
    }
    return true;
}

/*  Returns how U+2581 replaces spaces. NONE, and reported, if the scheme is unknown. */
IGNIS__COLD static ignis__metaspace ignis__tokenizer_read_metaspace(ignis__tokenizer_load *load, int kind,
                                                                    const ignis__tokenizer_part *part)
{
    static const char *const schemes[] = {"", "always", "first", "never"};
    int i;
    const char *scheme = part->scheme ? part->scheme : part->prefix == 0 ? "never" : "always";
    if (!ignis__tokenizer_part_is(part->replacement, IGNIS__LOW_LINE)) {
        ignis__tokenizer_refuse_part(load, kind, part, "its replacement is not U+2581");
        return IGNIS__METASPACE_NONE;
    }
    for (i = 1; i < IGNIS__COUNT(schemes); i++)
        if (strcmp(scheme, schemes[i]) == 0)
            return (ignis__metaspace)i;
    ignis__tokenizer_refuse_part(load, kind, part, scheme);
    return IGNIS__METASPACE_NONE;
}

/*  Reads the behavior of a part. False, and reported, if it is unknown. */
IGNIS__COLD static bool ignis__tokenizer_read_behavior(ignis__tokenizer_load *load, const ignis__tokenizer_part *part,
                                                       ignis__split_behavior otherwise, ignis__split_behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    int i;
    *behavior = otherwise;
    if (!part->behavior)
        return true;
    for (i = 0; i < IGNIS__COUNT(names); i++)
        if (strcmp(part->behavior, names[i]) == 0) {
            *behavior = (ignis__split_behavior)i;
            return true;
        }
    return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part, part->behavior);
}

/*  Adds a step that splits by a pattern. False, and reported, if it has something that is not supported. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_add_pattern(ignis__tokenizer_load *load, const char *pattern,
                                                             ignis__split_behavior behavior, bool invert)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__split_step *step = &tokenizer->steps[tokenizer->step_count];
    ignis__tokenizer_part part;
    bool no_memory;
    step->cut = IGNIS__CUT_PATTERN;
    step->behavior = behavior;
    step->invert = invert;
    step->pattern = ignis__pattern_compile(tokenizer, pattern, &no_memory);
    if (no_memory)
        return ignis__tokenizer_no_memory(load);
    if (step->pattern) {
        tokenizer->step_count++;
        return true;
    }
    memset(&part, 0, sizeof part);
    part.type = "Split";
    return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, &part, pattern);
}

/*  Reads a Split before another part. The known patterns have code of their own, if nothing else splits after them. */
IGNIS__COLD static bool ignis__tokenizer_read_split(ignis__tokenizer_load *load, const ignis__tokenizer_part *part,
                                                    bool is_last)
{
    static const char special[] = "\\^$.|?*+()[]{}";
    ignis__split_behavior behavior;
    char escaped[512];
    size_t size = 0;
    const char *from;
    int k;
    if (!ignis__tokenizer_read_behavior(load, part, IGNIS__BEHAVIOR_ISOLATED, &behavior))
        return false;
    if (!part->regex && (!part->string || !*part->string || strlen(part->string) > sizeof escaped / 2 - 1))
        return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part, "its pattern is missing, or too long");
    if (!part->regex) {
        for (from = part->string; *from; from++) {
            if (strchr(special, *from))
                escaped[size++] = '\\';
            escaped[size++] = *from;
        }
        escaped[size] = 0;
        return ignis__tokenizer_add_pattern(load, escaped, behavior, part->invert == 1);
    }
    for (k = 0; k < IGNIS__COUNT(ignis__tokenizer_patterns); k++)
        if (is_last && strcmp(part->regex, ignis__tokenizer_patterns[k].pattern) == 0 &&
            behavior == (part->invert == 1 ? IGNIS__BEHAVIOR_REMOVED : IGNIS__BEHAVIOR_ISOLATED)) {
            load->tokenizer->split = ignis__tokenizer_patterns[k].split;
            return true;
        }
    return ignis__tokenizer_add_pattern(load, part->regex, behavior, part->invert == 1);
}

/*  Adds a step that cuts out characters of a kind. */
IGNIS__PRIVATE void ignis__tokenizer_add_cut(ignis__tokenizer *tokenizer, ignis__cut cut,
                                             ignis__split_behavior behavior)
{
    ignis__split_step *step = &tokenizer->steps[tokenizer->step_count++];
    step->cut = cut;
    step->behavior = behavior;
    step->invert = cut == IGNIS__CUT_WORDS;
}

IGNIS__PRIVATE void ignis__tokenizer_add_digits(ignis__tokenizer *tokenizer, bool individual)
{
    tokenizer->digits = tokenizer->digits || tokenizer->step_count == 0;
    ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_DIGIT,
                             individual ? IGNIS__BEHAVIOR_ISOLATED : IGNIS__BEHAVIOR_CONTIGUOUS);
}

/*  Adds the steps of BertPreTokenizer: words without the white space between them, and punctuation by itself. */
IGNIS__PRIVATE void ignis__tokenizer_add_bert_cuts(ignis__tokenizer *tokenizer)
{
    ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_SPACE, IGNIS__BEHAVIOR_REMOVED);
    ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_PUNCTUATION, IGNIS__BEHAVIOR_ISOLATED);
}

/*  Reads the pre-tokenizer: any number of Split, CharDelimiterSplit, Digits, Punctuation, Whitespace, WhitespaceSplit
    and BertPreTokenizer, and then Metaspace, or ByteLevel for BPE, or nothing. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_splitter(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__tokenizer_part *part = load->parts[IGNIS__PART_SPLITTER];
    int i, count = load->part_count[IGNIS__PART_SPLITTER];
    ignis__split_behavior behavior;
    for (i = 0; i < count; i++, part++) {
        bool last = i == count - 1;
        if (ignis__tokenizer_part_is(part->type, "Metaspace") && last && !tokenizer->word_pieces) {
            tokenizer->metaspace = ignis__tokenizer_read_metaspace(load, IGNIS__PART_SPLITTER, part);
            tokenizer->metaspace_split = part->split != 0;
            return tokenizer->metaspace != IGNIS__METASPACE_NONE;
        }
        if (ignis__tokenizer_part_is(part->type, "ByteLevel") && last && !tokenizer->word_pieces &&
            !tokenizer->unigram) {
            tokenizer->byte_level = true;
            tokenizer->prefix_space = part->prefix == 1;
            if (part->use_regex != 0)
                tokenizer->split = IGNIS__SPLIT_GPT2;
        } else if (ignis__tokenizer_part_is(part->type, "BertPreTokenizer")) {
            ignis__tokenizer_add_bert_cuts(tokenizer);
        } else if (ignis__tokenizer_part_is(part->type, "Digits")) {
            ignis__tokenizer_add_digits(tokenizer, part->individual == 1);
        } else if (ignis__tokenizer_part_is(part->type, "Punctuation")) {
            if (!ignis__tokenizer_read_behavior(load, part, IGNIS__BEHAVIOR_ISOLATED, &behavior))
                return false;
            ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_PUNCTUATION, behavior);
        } else if (ignis__tokenizer_part_is(part->type, "Whitespace")) {
            ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_WORDS, IGNIS__BEHAVIOR_REMOVED);
        } else if (ignis__tokenizer_part_is(part->type, "WhitespaceSplit")) {
            ignis__tokenizer_add_cut(tokenizer, IGNIS__CUT_SPACE, IGNIS__BEHAVIOR_REMOVED);
        } else if (ignis__tokenizer_part_is(part->type, "Split")) {
            if (!ignis__tokenizer_read_split(load, part,
                                             i == count - 2 && ignis__tokenizer_part_is(part[1].type, "ByteLevel") &&
                                                 part[1].use_regex == 0))
                return false;
        } else if (ignis__tokenizer_part_is(part->type, "CharDelimiterSplit") && part->delimiter) {
            ignis__tokenizer_part split = *part;
            split.string = part->delimiter;
            split.behavior = "Removed";
            if (!ignis__tokenizer_read_split(load, &split, false))
                return false;
        } else {
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part, "");
        }
    }
    return true;
}

/*  Reads the decoder: ByteLevel; or Metaspace; or Replace of U+2581 by spaces, ByteFallback, Fuse, Strip of
    leading spaces. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_decoder(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__tokenizer_part *part = load->parts[IGNIS__PART_DECODER];
    int i, count = load->part_count[IGNIS__PART_DECODER];
    bool replaced = false, fused = false;
    if (tokenizer->word_pieces) {
        if (count != 1 || !ignis__tokenizer_part_is(part->type, "WordPiece"))
            return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                          "its model is WordPiece, and its decoder is not that alone");
        tokenizer->word_cleanup = part->cleanup != 0;
        tokenizer->word_decoder_prefix = part->word_prefix ? part->word_prefix : "##";
        tokenizer->word_decoder_prefix = ignis__tokenizer_keep_text(tokenizer, tokenizer->word_decoder_prefix,
                                                                    strlen(tokenizer->word_decoder_prefix));
        return tokenizer->word_decoder_prefix || ignis__tokenizer_no_memory(load);
    }
    if (count == 0)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                      "it has no decoder, and so only tokens with spaces between them");
    for (i = 0; i < count; i++, part++) {
        if (tokenizer->byte_level ? ignis__tokenizer_part_is(part->type, "ByteLevel") && count == 1
                                  : ignis__tokenizer_part_is(part->type, "Metaspace") && count == 1) {
            if (!tokenizer->byte_level)
                tokenizer->metaspace_decoder = ignis__tokenizer_read_metaspace(load, IGNIS__PART_DECODER, part);
            return load->diagnostic == IGNIS_DIAG_NONE;
        }
        if (tokenizer->byte_level)
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_DECODER, part, "its pre_tokenizer is ByteLevel");
        if (ignis__tokenizer_part_is(part->type, "Replace") &&
            ignis__tokenizer_part_is(part->string, IGNIS__LOW_LINE) && ignis__tokenizer_part_is(part->content, " ") &&
            i == 0)
            replaced = true;
        else if (ignis__tokenizer_part_is(part->type, "Fuse"))
            fused = true;
        else if (ignis__tokenizer_part_is(part->type, "Strip") && ignis__tokenizer_part_is(part->content, " ") &&
                 part->stop <= 0 && part->start < 100 && fused && i == count - 1)
            tokenizer->strip = part->start > 0 ? (int)part->start : 0;
        else if (!ignis__tokenizer_part_is(part->type, "ByteFallback") || fused)
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_DECODER, part, "");
        else
            tokenizer->byte_decoder = true;
    }
    return replaced ||
           ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its decoder does not replace U+2581 by spaces");
}
