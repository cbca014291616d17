/*  models/tokenizer/charsmap.c - Precompiled: the normalizer that a model of SentencePiece has as a map of characters

    The map is a double array (a trie in one array of 32-bit units) over texts that end with a 0. As in tokenizers, a
    grapheme cluster of less than 6 bytes becomes the text of its shortest prefix in the map, if there is one. Otherwise
    each character becomes its own text. The rules of clusters are those of Unicode's UAX 29, except for pairs of
    regional indicators: a cluster with one of them has no other character that a map could join to it within 6 bytes.
    May use: unicode.c, tokenizer_json.c, tokenizer.c. Locks: none; a map does not change. */

#include "room.h"

/*  Decodes base64 in place. Returns the number of bytes; SIZE_MAX if the text is not base64 with its padding. */
IGNIS__PRIVATE size_t ignis__base64_decode(char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = strlen(text), at, out = 0, padding = 0;
    uint32_t bits = 0;
    unsigned char values[256];
    int i;
    memset(values, 64, sizeof values);
    for (i = 0; i < 64; i++)
        values[(unsigned char)digits[i]] = (unsigned char)i;
    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    if (size % 4)
        return SIZE_MAX;
    for (at = 0; at < size; at++) {
        const unsigned value = at >= size - padding ? 0 : values[(unsigned char)text[at]];
        if (value == 64)
            return SIZE_MAX;
        bits = bits << 6 | value;
        if (at % 4 < 3)
            continue;
        for (i = 16; i >= 0; i -= 8)
            text[out++] = (char)(bits >> i & 0xFF);
    }
    return out - padding;
}

/*  Returns a number of 4 bytes, the lowest first. */
static uint32_t ignis__charsmap_unit(const char *bytes)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    return byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
}

/*  Reads a map: bytes of units, units, texts. NULL, and reported, if it is damaged or without memory. */
IGNIS__COLD IGNIS__PRIVATE const ignis__charsmap *ignis__charsmap_read(ignis__tokenizer_load *load, const char *bytes,
                                                                       size_t size)
{
    ignis__charsmap *map =
        (ignis__charsmap *)ignis__tokenizer_keep(load->tokenizer, sizeof *map + 2 * sizeof(uint32_t) + size);
    const size_t units = size < 4 ? 0 : ignis__charsmap_unit(bytes);
    size_t i;
    uint32_t *unit;
    int length;
    if (!map) {
        ignis__tokenizer_no_memory(load);
        return NULL;
    }
    if (units < 4 || units % 4 || units > size - 4) {
        ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                               "its precompiled_charsmap has %lld bytes, and its units %lld; expected a multiple of 4",
                               (long long)size, (long long)units);
        return NULL;
    }
    map->count = (uint32_t)(units / 4);
    map->units = unit = (uint32_t *)(void *)(map + 1);
    for (i = 0; i < map->count; i++)
        unit[i] = ignis__charsmap_unit(bytes + 4 + 4 * i);
    map->text_size = size - 4 - units;
    map->texts = (const char *)(unit + map->count);
    memcpy(unit + map->count, bytes + 4 + units, map->text_size); /* a 0 follows */
    for (i = 0; i < map->text_size; i += (size_t)length) {
        length = map->texts[i] ? ignis__utf8_length(map->texts + i, map->text_size - i) : 1;
        if (length <= 0) {
            ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                   "its precompiled_charsmap has texts that are not UTF-8");
            return NULL;
        }
    }
    return map;
}

/*  Reads the map of a Precompiled in tokenizer.json, which becomes bytes in place. NULL, and reported, on failure. */
IGNIS__COLD IGNIS__PRIVATE const ignis__charsmap *ignis__charsmap_read_base64(ignis__tokenizer_load *load,
                                                                              const char *text)
{
    char *bytes = (char *)(uintptr_t)text;
    const size_t size = ignis__base64_decode(bytes);
    if (size != SIZE_MAX)
        return ignis__charsmap_read(load, bytes, size);
    ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its precompiled_charsmap is not base64");
    return NULL;
}

/*  Finds the text of the shortest prefix that a map has, which ends with a 0. NULL if it has none. */
static const char *ignis__charsmap_find(const ignis__charsmap *map, const char *text, size_t size)
{
    uint32_t at = 0, unit = map->units[0];
    size_t i;
    for (i = 0;; i++) {
        at ^= unit >> 10 << ((unit & 512) >> 6); /* the block of a node's children */
        if (i > 0 && unit & 256) {               /* the first of them is its value */
            const size_t value = at < map->count ? map->units[at] & 0x7FFFFFFF : SIZE_MAX;
            return value <= map->text_size && (map->texts[value] & 0xC0) != 0x80 ? map->texts + value : NULL;
        }
        if (i == size || !text[i])
            return NULL;
        at ^= (unsigned char)text[i];
        if (at >= map->count)
            return NULL;
        unit = map->units[at];
        if ((unit & 0x800000FF) != (unsigned char)text[i])
            return NULL;
    }
}

/*  Returns what grapheme clusters take a character for. */
static ignis__cluster ignis__char_cluster(uint32_t code)
{
    if (code < 0x80)
        return code < 32 || code == 127 ? IGNIS__CLUSTER_CONTROL : IGNIS__CLUSTER_OTHER;
    if (code - 0xAC00 < 11172)
        return (code - 0xAC00) % 28 ? IGNIS__CLUSTER_LVT : IGNIS__CLUSTER_LV;
    return (ignis__cluster)ignis__char_run(ignis__char_clusters, IGNIS__COUNT(ignis__char_clusters), 4, code);
}

static bool ignis__cluster_extends(ignis__cluster kind)
{
    return kind == IGNIS__CLUSTER_EXTEND || kind == IGNIS__CLUSTER_APART || kind == IGNIS__CLUSTER_LINKER ||
           kind == IGNIS__CLUSTER_ZWJ;
}

/*  Tells whether two characters beside each other are of one cluster, except for pictographs and conjuncts. */
static bool ignis__cluster_joins(ignis__cluster a, ignis__cluster b)
{
    if (a == IGNIS__CLUSTER_CONTROL || b == IGNIS__CLUSTER_CONTROL)
        return false;
    if (ignis__cluster_extends(b) || b == IGNIS__CLUSTER_SPACING || a == IGNIS__CLUSTER_PREPEND)
        return true;
    if (a == IGNIS__CLUSTER_L)
        return b == IGNIS__CLUSTER_L || b == IGNIS__CLUSTER_V || b == IGNIS__CLUSTER_LV || b == IGNIS__CLUSTER_LVT;
    if (a == IGNIS__CLUSTER_LV || a == IGNIS__CLUSTER_V)
        return b == IGNIS__CLUSTER_V || b == IGNIS__CLUSTER_T;
    return (a == IGNIS__CLUSTER_LVT || a == IGNIS__CLUSTER_T) && b == IGNIS__CLUSTER_T;
}

/*  Returns the end of the cluster at a place. */
static size_t ignis__cluster_end(const char *text, size_t size, size_t at)
{
    int length;
    bool pictograph, joined, consonant, linked = false; /* what the characters before the next one are */
    ignis__cluster kind = ignis__char_cluster(ignis__utf8_code(text + at, &length)), next;
    if (text[at] == '\r' && size - at > 1 && text[at + 1] == '\n')
        return at + 2;
    pictograph = kind == IGNIS__CLUSTER_PICTOGRAPH;
    consonant = kind == IGNIS__CLUSTER_CONSONANT;
    for (at += (size_t)length; at < size; at += (size_t)length, kind = next) {
        next = ignis__char_cluster(ignis__utf8_code(text + at, &length));
        joined = ignis__cluster_joins(kind, next) ||
                 (pictograph && kind == IGNIS__CLUSTER_ZWJ && next == IGNIS__CLUSTER_PICTOGRAPH) ||
                 (consonant && linked && next == IGNIS__CLUSTER_CONSONANT);
        if (!joined)
            break;
        pictograph = next == IGNIS__CLUSTER_PICTOGRAPH || (pictograph && ignis__cluster_extends(next));
        linked = next == IGNIS__CLUSTER_LINKER || (linked && next != IGNIS__CLUSTER_CONSONANT);
        consonant = next == IGNIS__CLUSTER_CONSONANT ||
                    (consonant && ignis__cluster_extends(next) && next != IGNIS__CLUSTER_APART);
    }
    return at;
}

/*  Appends a text of whole characters as a map changes it. False without memory, or if it has become too long. */
IGNIS__PRIVATE bool ignis__charsmap_add(const ignis__charsmap *map, ignis__bytes *out, const char *text, size_t size)
{
    size_t at = 0, end;
    const char *to;
    int length;
    bool ok = true;
    while (ok && at < size && out->size <= IGNIS__TEXT_LIMIT) {
        end = ignis__cluster_end(text, size, at);
        to = end - at < 6 ? ignis__charsmap_find(map, text + at, end - at) : NULL;
        if (to) {
            ok = ignis__bytes_add(out, to, strlen(to));
            at = end;
        }
        for (; ok && at < end && out->size <= IGNIS__TEXT_LIMIT; at += (size_t)length) {
            (void)ignis__utf8_code(text + at, &length);
            to = ignis__charsmap_find(map, text + at, (size_t)length);
            ok = ignis__bytes_add(out, to ? to : text + at, to ? strlen(to) : (size_t)length);
        }
    }
    return ok;
}
