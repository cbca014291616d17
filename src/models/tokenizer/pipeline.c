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

IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_normalizer(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    int i;
    for (i = 0; i < load->part_count[IGNIS__PART_NORMALIZER]; i++) {
        const ignis__tokenizer_part *part = &load->parts[IGNIS__PART_NORMALIZER][i];
        ignis__normalizer_step *normal = &tokenizer->normals[tokenizer->normal_count++];
        if (ignis__tokenizer_part_is(part->type, "NFC")) {
            normal->kind = IGNIS__NORMAL_NFC;
        } else if (ignis__tokenizer_part_is(part->type, "Prepend") && part->prepend) {
            normal->kind = IGNIS__NORMAL_PREPEND;
            normal->to = ignis__tokenizer_keep_text(tokenizer, part->prepend, strlen(part->prepend));
        } else if (ignis__tokenizer_part_is(part->type, "Replace") && part->string && *part->string && part->content) {
            normal->kind = IGNIS__NORMAL_REPLACE;
            normal->from = ignis__tokenizer_keep_text(tokenizer, part->string, strlen(part->string));
            normal->to = ignis__tokenizer_keep_text(tokenizer, part->content, strlen(part->content));
        } else {
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_NORMALIZER, part, part->regex ? part->regex : "");
        }
        if (normal->kind != IGNIS__NORMAL_NFC &&
            (!normal->to || (normal->kind == IGNIS__NORMAL_REPLACE && !normal->from)))
            return ignis__tokenizer_no_memory(load);
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

/*  Reads the pre-tokenizer: Digits, Split and ByteLevel in this order, each of them optional; or Metaspace
    alone; or nothing. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_set_splitter(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__tokenizer_part *part = load->parts[IGNIS__PART_SPLITTER];
    int i, k, count = load->part_count[IGNIS__PART_SPLITTER];
    for (i = 0; i < count; i++, part++) {
        bool last = i == count - 1;
        if (ignis__tokenizer_part_is(part->type, "Metaspace") && count == 1) {
            tokenizer->metaspace = ignis__tokenizer_read_metaspace(load, IGNIS__PART_SPLITTER, part);
            tokenizer->metaspace_split = part->split != 0;
            return tokenizer->metaspace != IGNIS__METASPACE_NONE;
        }
        if (ignis__tokenizer_part_is(part->type, "Digits") && i == 0 && !last) {
            tokenizer->digits = part->individual == 1 ? 1 : 2;
        } else if (ignis__tokenizer_part_is(part->type, "Split") && tokenizer->split == IGNIS__SPLIT_NONE && !last) {
            if (!part->regex)
                return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part,
                                                    "its pattern is no regular expression");
            if (!(ignis__tokenizer_part_is(part->behavior, "Isolated") && part->invert != 1) &&
                !(ignis__tokenizer_part_is(part->behavior, "Removed") && part->invert == 1))
                return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part,
                                                    "it does not keep what its pattern matches, and that alone");
            for (k = 0; k < IGNIS__COUNT(ignis__tokenizer_patterns); k++)
                if (strcmp(part->regex, ignis__tokenizer_patterns[k].pattern) == 0)
                    tokenizer->split = ignis__tokenizer_patterns[k].split;
            if (tokenizer->split == IGNIS__SPLIT_NONE)
                return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part, part->regex);
        } else if (ignis__tokenizer_part_is(part->type, "ByteLevel") && last) {
            tokenizer->byte_level = true;
            tokenizer->prefix_space = part->prefix == 1;
            if (tokenizer->split != IGNIS__SPLIT_NONE && (tokenizer->prefix_space || part->use_regex != 0))
                return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part,
                                                    "it splits again, or puts spaces between what is split already");
            if (part->use_regex != 0)
                tokenizer->split = IGNIS__SPLIT_GPT2;
        } else {
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_SPLITTER, part,
                                                last && count > 1 ? "at the end of several" : "");
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
