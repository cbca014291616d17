/*  models/tokenizer/unigram.c - Unigram: the tokens of a text with the largest sum of scores

    A trie of all tokens is in arrays: the children of a node are beside each other, in the order of their bytes. The
    search goes over the text once, and keeps for each place the best tokens up to it (Viterbi 1967; Kudo 2018).
    May use: bpe.c, tokenizer_json.c, tokenizer.c. Locks: none. */

#include "room.h"

#define IGNIS__UNKNOWN_PENALTY 10.0 /* an unknown character scores that much below the lowest token */

/*  The tokens below a node: those from low to high in the sorted order, which have `depth` bytes in common. */
typedef struct ignis__trie_range {
    int32_t low, high;
    uint32_t depth;
} ignis__trie_range;

/*  A token of the model, to be sorted. */
typedef struct ignis__trie_text {
    const char *text;
    uint32_t size;
    int32_t id;
} ignis__trie_text;

static int ignis__trie_text_order(const void *a, const void *b)
{
    const ignis__trie_text *one = (const ignis__trie_text *)a, *other = (const ignis__trie_text *)b;
    const size_t size = one->size < other->size ? one->size : other->size;
    const int order = size ? memcmp(one->text, other->text, size) : 0;
    return order ? order : one->size < other->size ? -1 : one->size > other->size;
}

/*  Fills the trie from the sorted tokens: the children of each node after those of the node before it. */
IGNIS__COLD static void ignis__trie_fill(ignis__trie *trie, ignis__trie_range *ranges, const ignis__trie_text *texts,
                                         int32_t count)
{
    uint32_t node, nodes = 1;
    ranges[0].low = 0, ranges[0].high = count, ranges[0].depth = 0;
    for (node = 0; node < nodes; node++) {
        const uint32_t depth = ranges[node].depth;
        int32_t i = ranges[node].low;
        trie->ids[node] = -1;
        trie->first[node] = nodes;
        if (i < ranges[node].high && texts[i].size == depth)
            trie->ids[node] = texts[i++].id;
        while (i < ranges[node].high) {
            trie->bytes[nodes] = (unsigned char)texts[i].text[depth];
            ranges[nodes].low = i;
            while (i < ranges[node].high && (unsigned char)texts[i].text[depth] == trie->bytes[nodes])
                i++;
            ranges[nodes].high = i;
            ranges[nodes++].depth = depth + 1;
        }
    }
    trie->first[nodes] = nodes;
}

/*  Builds the trie and the table of scores. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_unigram(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    ignis__trie *trie = &tokenizer->trie;
    ignis__trie_text *texts = (ignis__trie_text *)ignis__alloc((size_t)tokenizer->info.tokens * sizeof *texts);
    ignis__trie_range *ranges = NULL;
    size_t nodes = 2;
    int32_t count = 0, id;
    uint32_t size;
    int64_t i;
    double lowest = 0;
    bool any = false;
    for (id = 0; texts && id < tokenizer->info.tokens; id++) {
        if (!(tokenizer->flags[id] & IGNIS__TOKEN_MODEL))
            continue;
        size = tokenizer->begin[id + 1] - tokenizer->begin[id];
        if (size > IGNIS__SCORED_LIMIT) {
            ignis__free(texts);
            return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                          "token %d has %lld bytes; with scores at most %d are supported", (int)id,
                                          (long long)size, IGNIS__SCORED_LIMIT);
        }
        texts[count].text = tokenizer->bytes + tokenizer->begin[id];
        texts[count].size = size;
        texts[count++].id = id;
        nodes += size;
    }
    if (texts)
        ranges = (ignis__trie_range *)ignis__alloc(nodes * sizeof *ranges);
    trie->first = (uint32_t *)ignis__tokenizer_keep(tokenizer, nodes * sizeof *trie->first);
    trie->ids = (int32_t *)ignis__tokenizer_keep(tokenizer, nodes * sizeof *trie->ids);
    trie->bytes = (unsigned char *)ignis__tokenizer_keep(tokenizer, nodes);
    tokenizer->scores =
        (double *)ignis__tokenizer_keep(tokenizer, (size_t)tokenizer->info.tokens * sizeof *tokenizer->scores);
    if (texts && ranges && trie->first && trie->ids && trie->bytes && tokenizer->scores) {
        if (count > 1)
            qsort(texts, (size_t)count, sizeof *texts, ignis__trie_text_order);
        ignis__trie_fill(trie, ranges, texts, count);
    } else {
        ignis__tokenizer_no_memory(load);
    }
    ignis__free(texts);
    ignis__free(ranges);
    for (i = 0; i < load->entries.count && load->diagnostic == IGNIS_DIAG_NONE; i++) {
        if (entries[i].id >= tokenizer->info.tokens || !(tokenizer->flags[entries[i].id] & IGNIS__TOKEN_MODEL))
            continue;
        tokenizer->scores[entries[i].id] = entries[i].score;
        if (entries[i].type == IGNIS__TYPE_UNUSED) /* converters fill vocabularies up with low scores */
            continue;
        lowest = any && lowest < entries[i].score ? lowest : entries[i].score;
        any = true;
    }
    tokenizer->unknown_score = lowest - IGNIS__UNKNOWN_PENALTY;
    return load->diagnostic == IGNIS_DIAG_NONE;
}

/*  Returns the child of a node for a byte, or 0. */
static uint32_t ignis__trie_child(const ignis__trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t low = trie->first[node], high = trie->first[node + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (trie->bytes[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < trie->first[node + 1] && trie->bytes[low] == byte ? low : 0;
}

/*  Makes a token the last one of the best tokens up to a place, if it is. */
static void ignis__unigram_offer(ignis__unigram_place *place, double score, uint32_t begin, int32_t id)
{
    if (place->id >= 0 && score <= place->score)
        return;
    place->score = score;
    place->begin = begin;
    place->id = id;
}

/*  Finds the best tokens up to each place of a text. */
static void ignis__unigram_search(const ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    ignis__unigram_place *places = encoder->places;
    size_t at, end;
    int length;
    for (at = 0; at <= size; at++)
        places[at].id = -1;
    places[0].score = 0;
    for (at = 0; at < size; at += (size_t)length) {
        bool single = false;
        uint32_t node = 0;
        (void)ignis__utf8_code(text + at, &length);
        for (end = at; end < size; end++) {
            int32_t id;
            node = ignis__trie_child(&tokenizer->trie, node, (unsigned char)text[end]);
            if (!node)
                break;
            id = tokenizer->trie.ids[node];
            if (id < 0 || (encoder->part_plain && tokenizer->flags[id] & IGNIS__TOKEN_CONTROL))
                continue;
            single = single || end + 1 == at + (size_t)length;
            ignis__unigram_offer(&places[end + 1], places[at].score + tokenizer->scores[id], (uint32_t)at, id);
        }
        if (!single)
            ignis__unigram_offer(&places[at + (size_t)length], places[at].score + tokenizer->unknown_score,
                                 (uint32_t)at, tokenizer->info.unknown);
    }
}

/*  Adds the ids of a run of unknown characters: of their bytes if the vocabulary has them all. */
static void ignis__unigram_put_unknown(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    int32_t id = ignis__token_find(tokenizer, text, size, false);
    size_t i;
    if (id >= 0 && encoder->part_plain && tokenizer->flags[id] & IGNIS__TOKEN_CONTROL)
        id = -1;
    for (i = 0; id < 0 && tokenizer->byte_fallback && i < size; i++)
        if (tokenizer->fallback[(unsigned char)text[i]] < 0)
            break;
    if (id < 0 && (!tokenizer->byte_fallback || i < size))
        id = tokenizer->info.unknown;
    if (id >= 0)
        ignis__encoder_put(encoder, id);
    for (i = 0; id < 0 && i < size; i++)
        ignis__encoder_put(encoder, tokenizer->fallback[(unsigned char)text[i]]);
}

/*  Encodes a piece of text, which is not empty. */
IGNIS__PRIVATE bool ignis__encode_unigram(ignis__encoder *encoder, const char *text, size_t size)
{
    const int32_t unknown = encoder->tokenizer->info.unknown;
    ignis__unigram_place *places;
    uint32_t at, begin, next;
    if (size + 1 > encoder->place_capacity) {
        const size_t capacity = size + 1 > 2 * encoder->place_capacity ? size + 64 : 2 * encoder->place_capacity;
        ignis__free(encoder->places);
        encoder->place_capacity = 0;
        encoder->places = (ignis__unigram_place *)ignis__alloc(capacity * sizeof *encoder->places);
        if (!encoder->places)
            return false;
        encoder->place_capacity = capacity;
    }
    places = encoder->places;
    ignis__unigram_search(encoder, text, size);
    for (at = (uint32_t)size; at > 0; at = places[at].begin) /* from the end: each place learns where its token ends */
        places[places[at].begin].end = at;
    for (at = 0; at < size; at = next) {
        begin = at;
        next = places[at].end;
        if (places[next].id != unknown) {
            ignis__encoder_put(encoder, places[next].id);
            continue;
        }
        while (next < size && places[places[next].end].id == unknown)
            next = places[next].end;
        ignis__unigram_put_unknown(encoder, text + begin, next - begin);
    }
    return true;
}
