/*  models/tokenizer/bpe.c - byte-pair encoding: one piece of text to ids

    Short pieces search all pairs in each step, long ones use a queue. Pieces that are one token are
    remembered by two bits per id, read and written atomically.
    May use: unicode.c, byte_buffer.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE uint64_t ignis__token_hash(const char *text, size_t size)
{
    uint64_t hash = size * 0x9E3779B97F4A7C15u, word;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    for (word = 0; size > 0; size--)
        word = word << 8 | (unsigned char)text[size - 1];
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 32;
}

/*  Returns the id of the model's token with these bytes; -1 if there is none. odd: of a token whose text does
    not encode bytes. */
IGNIS__PRIVATE int32_t ignis__token_find(const ignis__tokenizer *tokenizer, const char *text, size_t size,
                                         bool not_bytes)
{
    uint64_t hash = ignis__token_hash(text, size), at = hash & tokenizer->slot_mask;
    const ignis__token_slot *slot;
    if (size > tokenizer->longest)
        return -1;
    for (; (slot = &tokenizer->buckets[at])->id; at = (at + 1) & tokenizer->slot_mask) {
        int32_t id = slot->id - 1;
        if (slot->tag == (uint32_t)(hash >> 32) && tokenizer->begin[id + 1] - tokenizer->begin[id] == size &&
            memcmp(tokenizer->bytes + tokenizer->begin[id], text, size) == 0 &&
            ((tokenizer->flags[id] & IGNIS__TOKEN_NOT_BYTES) != 0) == not_bytes)
            return id;
    }
    return -1;
}

static const ignis__join *ignis__join_find(const ignis__tokenizer *tokenizer, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1, hash = key * 0x9E3779B97F4A7C15u, at;
    for (at = (hash ^ hash >> 32) & tokenizer->join_mask; tokenizer->joins[at].key;
         at = (at + 1) & tokenizer->join_mask)
        if (tokenizer->joins[at].key == key)
            return &tokenizer->joins[at];
    return NULL;
}

IGNIS__PRIVATE void ignis__encoder_close(ignis__encoder *encoder)
{
    ignis__free(encoder->symbols);
    ignis__free(encoder->queue);
    ignis__free(encoder->places);
    ignis__free(encoder->fixed.data);
    ignis__free(encoder->normal[0].data);
    ignis__free(encoder->normal[1].data);
    ignis__free(encoder->spaced.data);
}

IGNIS__PRIVATE void ignis__encoder_put(ignis__encoder *encoder, int32_t id)
{
    if (encoder->count < encoder->capacity)
        encoder->ids[encoder->count] = id;
    encoder->count++;
}

/*  Grows an array to `wanted` items and keeps the first `kept`. False without memory. */
static bool ignis__encoder_reserve(ignis__encoder *encoder, void **items, size_t *capacity, size_t wanted, size_t size,
                                   size_t kept)
{
    size_t fresh_size = *capacity * 2 < wanted ? wanted + 64 : *capacity * 2;
    void *fresh;
    if (wanted <= *capacity)
        return true;
    fresh = ignis__alloc(fresh_size * size);
    if (!fresh) {
        encoder->failed = true;
        return false;
    }
    if (kept)
        memcpy(fresh, *items, kept * size);
    ignis__free(*items);
    *items = fresh;
    *capacity = fresh_size;
    return true;
}

static bool ignis__bpe_queue_add(ignis__encoder *encoder, int32_t place, int32_t left, int32_t right)
{
    const ignis__join *join = ignis__join_find(encoder->tokenizer, left, right);
    ignis__bpe_pair item, *queue;
    void *items = encoder->queue;
    size_t at;
    if (!join)
        return true;
    if (!ignis__encoder_reserve(encoder, &items, &encoder->queue_capacity, encoder->queued + 1, sizeof item,
                                encoder->queued))
        return false;
    encoder->queue = queue = (ignis__bpe_pair *)items;
    item.order = (uint64_t)join->rank << 32 | (uint32_t)place;
    item.id = join->id;
    for (at = encoder->queued++; at > 0 && queue[(at - 1) / 2].order > item.order; at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = item;
    return true;
}

/*  Removes and returns the first item of the queue, which is not empty. */
static ignis__bpe_pair ignis__bpe_queue_take(ignis__encoder *encoder)
{
    ignis__bpe_pair *queue = encoder->queue, first = queue[0], item = queue[--encoder->queued];
    size_t at = 0, child;
    while ((child = at * 2 + 1) < encoder->queued) {
        if (child + 1 < encoder->queued && queue[child + 1].order < queue[child].order)
            child++;
        if (queue[child].order >= item.order)
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = item;
    return first;
}

/*  Joins the symbols of a long piece with a queue, in n log n steps. */
static bool ignis__bpe_join_long(ignis__encoder *encoder, int32_t count)
{
    ignis__bpe_symbol *symbols = encoder->symbols;
    int32_t i;
    encoder->queued = 0;
    for (i = 0; i < count; i++) {
        symbols[i].before = i - 1;
        symbols[i].after = i + 1 < count ? i + 1 : -1;
        if (i + 1 < count && !ignis__bpe_queue_add(encoder, i, symbols[i].id, symbols[i + 1].id))
            return false;
    }
    while (encoder->queued > 0) {
        ignis__bpe_pair first = ignis__bpe_queue_take(encoder);
        ignis__bpe_symbol *symbol = &symbols[(uint32_t)first.order], *right;
        const ignis__join *join;
        if (symbol->id < 0 || symbol->after < 0)
            continue;
        right = &symbols[symbol->after];
        join = ignis__join_find(encoder->tokenizer, symbol->id, right->id);
        if (!join || join->id != first.id)
            continue; /* one of the two has been joined meanwhile */
        symbol->id = first.id;
        right->id = -1;
        symbol->after = right->after;
        if (symbol->after >= 0)
            symbols[symbol->after].before = (int32_t)(symbol - symbols);
        if ((symbol->before >= 0 &&
             !ignis__bpe_queue_add(encoder, symbol->before, symbols[symbol->before].id, symbol->id)) ||
            (symbol->after >= 0 &&
             !ignis__bpe_queue_add(encoder, (int32_t)(symbol - symbols), symbol->id, symbols[symbol->after].id)))
            return false;
    }
    return true;
}

#define IGNIS__BPE_SHORT 32

/*  Joins the symbols of a short piece, searching all pairs each time. Returns how many remain. */
static int32_t ignis__bpe_join_short(ignis__encoder *encoder, int32_t count)
{
    const ignis__join *joins[IGNIS__BPE_SHORT];
    ignis__bpe_symbol *symbols = encoder->symbols;
    int32_t i, best;
    for (i = 0; i + 1 < count; i++)
        joins[i] = ignis__join_find(encoder->tokenizer, symbols[i].id, symbols[i + 1].id);
    for (;;) {
        for (best = -1, i = 0; i + 1 < count; i++)
            if (joins[i] && (best < 0 || joins[i]->rank < joins[best]->rank))
                best = i;
        if (best < 0)
            return count;
        symbols[best].id = joins[best]->id;
        for (count--, i = best + 1; i < count; i++) {
            symbols[i].id = symbols[i + 1].id;
            joins[i - 1] = joins[i];
        }
        if (best + 1 < count)
            joins[best] = ignis__join_find(encoder->tokenizer, symbols[best].id, symbols[best + 1].id);
        if (best > 0)
            joins[best - 1] = ignis__join_find(encoder->tokenizer, symbols[best - 1].id, symbols[best].id);
    }
}

/*  Splits a piece into its first symbols: bytes or characters that the vocabulary has. Returns their number.
    The caller has made space for them. */
static int32_t ignis__bpe_split_piece(const ignis__tokenizer *tokenizer, const char *text, size_t size,
                                      ignis__bpe_symbol *symbols)
{
    int32_t count = 0, id;
    int length = 1, i;
    bool unknown = false; /* an unknown token is pending */
    size_t at;
    for (at = 0; at < size; at += (size_t)length) {
        unsigned char byte = (unsigned char)text[at];
        if (!tokenizer->byte_level)
            (void)ignis__utf8_code(text + at, &length);
        id = length == 1 ? tokenizer->single[byte] : ignis__token_find(tokenizer, text + at, (size_t)length, false);
        if (id >= 0) {
            if (unknown)
                symbols[count++].id = tokenizer->info.unknown;
            unknown = false;
            symbols[count++].id = id;
            continue;
        }
        for (i = 0;
             tokenizer->byte_fallback && i < length && tokenizer->fallback[(unsigned char)text[at + (size_t)i]] >= 0;
             i++)
            continue;
        if (i == length) {
            for (i = 0; i < length; i++)
                symbols[count++].id = tokenizer->fallback[(unsigned char)text[at + (size_t)i]];
        } else if (tokenizer->info.unknown >= 0) {
            if (unknown && !tokenizer->fuse_unknown)
                symbols[count++].id = tokenizer->info.unknown;
            unknown = true;
        }
    }
    if (unknown)
        symbols[count++].id = tokenizer->info.unknown;
    return count;
}

static bool ignis__token_bit(const uint64_t *bits, int32_t at)
{
    return ignis__atomic_load(&bits[at / 64]) >> (at % 64) & 1;
}

static void ignis__token_bit_set(uint64_t *bits, int32_t at)
{
    uint64_t old = ignis__atomic_load(&bits[at / 64]), bit = (uint64_t)1 << (at % 64);
    while (!(old & bit) && !ignis__atomic_swap_if(&bits[at / 64], &old, old | bit))
        continue;
}

IGNIS__PRIVATE bool ignis__encode_piece(ignis__encoder *encoder, const char *text, size_t size)
{
    ignis__tokenizer *tokenizer = encoder->tokenizer;
    int32_t id = ignis__token_find(tokenizer, text, size, false), count, i;
    int64_t before = encoder->count;
    void *items = encoder->symbols;
    if (id >= 0 && encoder->part_plain && tokenizer->flags[id] & IGNIS__TOKEN_CONTROL)
        id = -1; /* in plain text a control token is split, even if it is in the vocabulary */
    if (id >= 0 && (tokenizer->ignore_merges || ignis__token_bit(tokenizer->whole, id))) {
        ignis__encoder_put(encoder, id);
        return true;
    }
    if (!ignis__encoder_reserve(encoder, &items, &encoder->symbol_capacity, size + 1, sizeof *encoder->symbols, 0))
        return false;
    encoder->symbols = (ignis__bpe_symbol *)items;
    count = ignis__bpe_split_piece(tokenizer, text, size, encoder->symbols);
    if (count <= IGNIS__BPE_SHORT)
        count = ignis__bpe_join_short(encoder, count);
    else if (!ignis__bpe_join_long(encoder, count))
        return false;
    for (i = 0; i < count; i++)
        if (encoder->symbols[i].id >= 0)
            ignis__encoder_put(encoder, encoder->symbols[i].id);
    if (id >= 0 && !ignis__token_bit(tokenizer->known, id)) {
        if (encoder->count == before + 1 && count > 0 && encoder->symbols[0].id == id)
            ignis__token_bit_set(tokenizer->whole, id); /* the next time it is one id without joining */
        ignis__token_bit_set(tokenizer->known, id);
    }
    return true;
}
