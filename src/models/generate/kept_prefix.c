/*  models/generate/kept_prefix.c - pages of the KV cache that stay for sequences which begin with the same tokens

    Kept pages are a tree: an entry has the tokens of one page, and its parent has the tokens before. An entry is found
    by a hash and compared as a whole: tokens, how they were computed (in a chunk or not), boundary, adapters. So a
    sequence gets a page only if it would compute the same bits.
    An entry uses its pages as a sequence does. When pages are needed, entries without children go first, the least
    recently used one of them, and only if no sequence uses the page. Layers with a window have an order of their own:
    an entry can lose the page of those layers and keep the other one.
    Invariants: group->kept[page] is the entry of a page, or -1; group->spare counts the kept pages that no sequence
    uses. In an order, parents are newer than their children.
    May use: sequence.c. Locks: the caller holds the engine's lock; the public functions take it. */

#include "room.h"

/*  Moves an entry to the newest end of an order. fresh: it is in none yet. */
static void ignis__kept_use(ignis__kept *kept, int g, int number, bool fresh)
{
    ignis__kept_entry *entry = &kept->entries[number];
    if (!fresh && kept->newest[g] == number)
        return;
    if (!fresh) {
        *(entry->older[g] < 0 ? &kept->oldest[g] : &kept->entries[entry->older[g]].newer[g]) = entry->newer[g];
        kept->entries[entry->newer[g]].older[g] = entry->older[g];
    }
    entry->newer[g] = -1;
    entry->older[g] = kept->newest[g];
    *(kept->newest[g] < 0 ? &kept->oldest[g] : &kept->entries[kept->newest[g]].newer[g]) = number;
    kept->newest[g] = number;
}

static void ignis__kept_unlink(ignis__kept *kept, int g, int number)
{
    const ignis__kept_entry *entry = &kept->entries[number];
    *(entry->older[g] < 0 ? &kept->oldest[g] : &kept->entries[entry->older[g]].newer[g]) = entry->newer[g];
    *(entry->newer[g] < 0 ? &kept->newest[g] : &kept->entries[entry->newer[g]].older[g]) = entry->older[g];
}

/*  Returns the first number of a bucket's list. */
static int *ignis__kept_bucket(ignis__kept *kept, const ignis__kept_tokens *tokens)
{
    const uint64_t hash = ignis__hash(kept->seed, tokens, sizeof *tokens);
    return &kept->buckets[(hash ^ hash >> 32) & (uint64_t)(kept->bucket_count - 1)];
}

/*  Describes the tokens of a page of a sequence, after the entry `parent`. */
static ignis__kept_tokens ignis__kept_tokens_of(const ignis__sequence *sequence, int page, int parent)
{
    ignis__kept_tokens tokens;
    int i;
    memset(&tokens, 0, sizeof tokens); /* compared byte by byte */
    tokens.boundary = sequence->boundary;
    tokens.adapters = sequence->lora ? sequence->lora->slot.handle : 0;
    tokens.parent = parent;
    memcpy(tokens.ids, sequence->ids + page * IGNIS__PAGE, sizeof tokens.ids);
    for (i = 0; i < IGNIS__PAGE; i++)
        tokens.in_chunk |= (int32_t)sequence->in_chunk[page * IGNIS__PAGE + i] << i;
    return tokens;
}

/*  Returns the entry of these tokens, or -1. */
static int ignis__kept_find(ignis__kept *kept, const ignis__kept_tokens *tokens)
{
    int number = *ignis__kept_bucket(kept, tokens);
    while (number >= 0 && memcmp(&kept->entries[number].tokens, tokens, sizeof *tokens) != 0)
        number = kept->entries[number].next;
    return number;
}

/*  Gives up an entry's page of a group. */
static void ignis__kept_drop_page(ignis__engine *engine, int g, int number)
{
    ignis__page_group *group = &engine->groups[g];
    int32_t *page = &engine->kept->entries[number].page[g];
    if (*page < 0)
        return;
    group->kept[*page] = -1;
    group->spare -= group->uses[*page] == 1;
    ignis__page_drop(group, *page);
    *page = -1;
    if (g == IGNIS__PAGES_OF_WINDOWS)
        ignis__kept_unlink(engine->kept, g, number);
}

/*  Lets an entry use a page of the caller's sequence. */
static void ignis__kept_take_page(ignis__engine *engine, int g, int number, int page)
{
    ignis__page_hold(&engine->groups[g], page);
    engine->groups[g].kept[page] = number;
    engine->kept->entries[number].page[g] = page;
    if (g == IGNIS__PAGES_OF_WINDOWS)
        ignis__kept_use(engine->kept, g, number, true);
}

/*  Drops an entry that has no children. */
static void ignis__kept_drop(ignis__engine *engine, int number)
{
    ignis__kept *kept = engine->kept;
    ignis__kept_entry *entry = &kept->entries[number];
    int *link = ignis__kept_bucket(kept, &entry->tokens), g;
    while (*link != number)
        link = &kept->entries[*link].next;
    *link = entry->next;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        ignis__kept_drop_page(engine, g, number);
    ignis__kept_unlink(kept, IGNIS__PAGES_OF_ALL, number);
    if (entry->tokens.parent >= 0)
        kept->entries[entry->tokens.parent].children--;
    entry->next = kept->unused;
    kept->unused = number;
    kept->count--;
}

/*  Drops all entries. */
IGNIS__PRIVATE void ignis__kept_clear(ignis__engine *engine)
{
    int number;
    while (engine->kept && (number = engine->kept->oldest[IGNIS__PAGES_OF_ALL]) >= 0) {
        while (engine->kept->entries[number].children > 0)
            number = engine->kept->entries[number].newer[IGNIS__PAGES_OF_ALL];
        ignis__kept_drop(engine, number);
    }
}

/*  Drops what no sequence uses until a group has `needed` free pages, or nothing is left to drop. */
IGNIS__PRIVATE void ignis__kept_make_room(ignis__engine *engine, int g, int needed)
{
    const ignis__page_group *group = &engine->groups[g];
    ignis__kept *kept = engine->kept;
    int number, next;
    for (number = kept ? kept->oldest[g] : -1; number >= 0 && group->spare > 0 && group->free_count < needed;
         number = next) {
        const ignis__kept_entry *entry = &kept->entries[number];
        next = entry->newer[g];
        if (entry->page[g] < 0 || group->uses[entry->page[g]] > 1 || (g == IGNIS__PAGES_OF_ALL && entry->children))
            continue;
        kept->dropped += IGNIS__PAGE;
        if (g == IGNIS__PAGES_OF_ALL)
            ignis__kept_drop(engine, number);
        else
            ignis__kept_drop_page(engine, g, number);
    }
}

/*  Drops the entry of a page that only one sequence uses besides it, so that the sequence can write to the page. */
IGNIS__PRIVATE void ignis__kept_release(ignis__engine *engine, int g, int page)
{
    const ignis__page_group *group = &engine->groups[g];
    const int number = group->kept && group->uses[page] == 2 ? group->kept[page] : -1;
    if (number >= 0 && g == IGNIS__PAGES_OF_WINDOWS)
        ignis__kept_drop_page(engine, g, number);
    else if (number >= 0 && engine->kept->entries[number].children == 0)
        ignis__kept_drop(engine, number);
}

/*  Makes the path up to an entry the most recently used one, and of layers with a window the pages from `first` on.
    pages: of the path. */
static void ignis__kept_use_path(ignis__kept *kept, int number, int pages, int first)
{
    int at = number, i;
    for (i = pages - 1; i >= first && at >= 0; i--, at = kept->entries[at].tokens.parent)
        if (kept->entries[at].page[IGNIS__PAGES_OF_WINDOWS] >= 0)
            ignis__kept_use(kept, IGNIS__PAGES_OF_WINDOWS, at, false);
    for (at = number; at >= 0; at = kept->entries[at].tokens.parent)
        ignis__kept_use(kept, IGNIS__PAGES_OF_ALL, at, false);
}

/*  Returns the tokens of which chunks of a sequence begin at multiples, so that its pages can be shared. Layers with a
    window round by which rows are in a tile of their attention; no tile has more than 128. */
IGNIS__PRIVATE int ignis__kept_grain(const ignis__sequence *sequence)
{
    enum { TILE = 128 };
    const ignis__model *model = sequence->model;
    int i = 0;
    while (i < model->layers && model->layer[i].window == 0)
        i++;
    return i < model->layers ? (int)TILE : 1;
}

/*  Gives a sequence the kept pages after those that it has, as far as they have its next tokens; at least the last
    token is left to compute. *path: the entry of the sequence's last page, or -1; *pages: of the path. in_chunk says
    for each token how it would be computed. */
IGNIS__PRIVATE void ignis__kept_give(ignis__sequence *sequence, int grain, int *path, int *pages)
{
    ignis__engine *engine = sequence->engine;
    ignis__kept *kept = engine->kept;
    ignis__page_table *all = &sequence->tables[IGNIS__PAGES_OF_ALL],
                      *windows = &sequence->tables[IGNIS__PAGES_OF_WINDOWS];
    const bool has_all = engine->groups[IGNIS__PAGES_OF_ALL].layers > 0,
               has_windows = engine->groups[IGNIS__PAGES_OF_WINDOWS].layers > 0;
    const int before = sequence->cached / IGNIS__PAGE;
    int entry = -1, best = -1, end = 0, run = 0, first = 0, page, from;
    *path = -1;
    *pages = 0;
    kept->fed += sequence->length - sequence->cached;
    if (sequence->stale)
        return;
    for (page = 0; page <= (sequence->length - 1) / IGNIS__PAGE - 1; page++) {
        const ignis__kept_tokens tokens = ignis__kept_tokens_of(sequence, page, entry);
        if ((page >= before && sequence->cached % IGNIS__PAGE != 0) || (entry = ignis__kept_find(kept, &tokens)) < 0)
            break;
        run = page >= before && kept->entries[entry].page[IGNIS__PAGES_OF_WINDOWS] >= 0 ? run + 1 : 0;
        from = has_windows ? ignis__sequence_window_page(engine, (page + 1) * IGNIS__PAGE - 1) : 0;
        if (page >= before && (page + 1) * IGNIS__PAGE % grain != 0)
            continue;
        if (page >= before && has_windows && run < page + 1 - (from > before ? from : before))
            continue;
        best = entry;
        end = page + 1;
        first = from;
    }
    *path = best;
    *pages = end;
    if (end <= before)
        return;
    while (all->count > before) /* taken for a step ahead */
        ignis__page_drop(&engine->groups[IGNIS__PAGES_OF_ALL], all->page[--all->count]);
    while (windows->count > before && windows->count > windows->first)
        ignis__page_drop(&engine->groups[IGNIS__PAGES_OF_WINDOWS], windows->page[--windows->count]);
    for (; has_windows && windows->first < windows->count && windows->first < first; windows->first++)
        ignis__page_drop(&engine->groups[IGNIS__PAGES_OF_WINDOWS], windows->page[windows->first]);
    if (has_windows && windows->first == windows->count)
        windows->first = first > before ? first : before;
    for (page = end - 1, entry = best; page >= before; page--, entry = kept->entries[entry].tokens.parent) {
        if (has_all)
            ignis__page_hold(&engine->groups[IGNIS__PAGES_OF_ALL],
                             all->page[page] = kept->entries[entry].page[IGNIS__PAGES_OF_ALL]);
        if (has_windows && page >= windows->first)
            ignis__page_hold(&engine->groups[IGNIS__PAGES_OF_WINDOWS],
                             windows->page[page] = kept->entries[entry].page[IGNIS__PAGES_OF_WINDOWS]);
    }
    all->count = has_all ? end : 0;
    windows->count = has_windows ? end : 0;
    all->uploaded = all->uploaded < before ? all->uploaded : before;
    windows->uploaded = windows->uploaded < before ? windows->uploaded : before;
    kept->found += end * IGNIS__PAGE - sequence->cached;
    sequence->cached = end * IGNIS__PAGE;
    ignis__kept_use_path(kept, best, end, first);
}

/*  Makes an entry. -1 if all are in use. */
static int ignis__kept_make(ignis__engine *engine, const ignis__kept_tokens *tokens)
{
    ignis__kept *kept = engine->kept;
    ignis__kept_entry *entry;
    int number = kept->oldest[IGNIS__PAGES_OF_ALL], *bucket, g;
    if (kept->unused < 0) {
        while (number >= 0 && (kept->entries[number].children || number == tokens->parent))
            number = kept->entries[number].newer[IGNIS__PAGES_OF_ALL];
        if (number < 0)
            return -1;
        kept->dropped += IGNIS__PAGE;
        ignis__kept_drop(engine, number);
    }
    number = kept->unused;
    entry = &kept->entries[number];
    kept->unused = entry->next;
    kept->count++;
    bucket = ignis__kept_bucket(kept, tokens);
    entry->tokens = *tokens;
    entry->next = *bucket;
    *bucket = number;
    entry->children = 0;
    if (tokens->parent >= 0)
        kept->entries[tokens->parent].children++;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        entry->page[g] = -1;
    ignis__kept_use(kept, IGNIS__PAGES_OF_ALL, number, true);
    return number;
}

/*  Keeps the full pages of a sequence that follow the path, and extends the path. A page that is kept already is used
    in place of the sequence's own, which has the same bits. */
IGNIS__PRIVATE void ignis__kept_add(ignis__sequence *sequence, int *path, int *pages)
{
    ignis__engine *engine = sequence->engine;
    int g, number;
    for (; *pages < sequence->cached / IGNIS__PAGE; ++*pages, *path = number) {
        const ignis__kept_tokens tokens = ignis__kept_tokens_of(sequence, *pages, *path);
        number = ignis__kept_find(engine->kept, &tokens);
        if (number < 0 && (number = ignis__kept_make(engine, &tokens)) < 0)
            return;
        for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
            ignis__page_table *table = &sequence->tables[g];
            const int own = *pages >= table->first && *pages < table->count ? table->page[*pages] : -1,
                      other = engine->kept->entries[number].page[g];
            if (own < 0 || own == other)
                continue;
            if (other < 0) {
                ignis__kept_take_page(engine, g, number, own);
                continue;
            }
            ignis__page_hold(&engine->groups[g], other);
            ignis__page_drop(&engine->groups[g], own);
            table->page[*pages] = other;
            table->uploaded = table->uploaded < *pages ? table->uploaded : *pages;
        }
    }
}

/*  Makes the path of a sequence the most recently used one. */
IGNIS__PRIVATE void ignis__kept_use_sequence(const ignis__sequence *sequence, int path, int pages)
{
    ignis__kept_use_path(sequence->engine->kept, path, pages,
                         sequence->cached > 0 ? ignis__sequence_window_page(sequence->engine, sequence->cached - 1)
                                              : 0);
}

/*  Makes an empty tree with an entry for each page of the cache. False, and reported, if there is no memory. */
IGNIS__COLD static bool ignis__kept_begin(const char *call, ignis__engine *engine)
{
    const int most = ignis__engine_context_pages(engine) * engine->model->sequences;
    ignis__kept *kept = (ignis__kept *)ignis__alloc_for(call, sizeof *kept);
    bool ok = kept != NULL;
    int g, i;
    if (!ok)
        return false;
    memset(kept, 0, sizeof *kept);
    engine->kept = kept;
    kept->seed = ignis__hash((uint64_t)ignis__wall_ns(), &kept, sizeof kept);
    for (kept->bucket_count = 64; kept->bucket_count < most;)
        kept->bucket_count *= 2;
    kept->entries = (ignis__kept_entry *)ignis__alloc_for(call, sizeof *kept->entries * (size_t)most);
    kept->buckets =
        kept->entries ? (int *)ignis__alloc_for(call, sizeof *kept->buckets * (size_t)kept->bucket_count) : NULL;
    ok = kept->buckets != NULL;
    for (g = 0; ok && g < IGNIS__PAGE_GROUPS; g++) {
        ignis__page_group *group = &engine->groups[g];
        kept->newest[g] = kept->oldest[g] = -1;
        if (!group->layers)
            continue;
        group->kept = (int *)ignis__alloc_for(call, sizeof *group->kept * (size_t)group->pages);
        ok = group->kept != NULL;
        for (i = 0; ok && i < group->pages; i++)
            group->kept[i] = -1;
    }
    if (!ok) {
        ignis__kept_free(engine);
        return false;
    }
    for (i = 0; i < kept->bucket_count; i++)
        kept->buckets[i] = -1;
    for (i = 0; i < most; i++)
        kept->entries[i].next = i + 1 < most ? i + 1 : -1;
    return true;
}

IGNIS_API ignis_status ignis_sequence_share_prefix(ignis_sequence handle, const ignis_prefix_desc *desc)
{
    static const char call[] = "ignis_sequence_share_prefix";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    bool ok = false;
    if (!sequence)
        return ignis__failed();
    if (sequence->length > 0)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                    "the sequence has %d tokens; the boundary of its prefix is set before the first one",
                    sequence->length);
    else
        ok = sequence->engine->kept || ignis__kept_begin(call, sequence->engine);
    if (ok) {
        sequence->shares = !sequence->states; /* pages without the states after them would not help */
        sequence->boundary = desc ? desc->boundary : 0;
    }
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Returns the locked engine of a held model, or NULL if it has had no sequence. A token ahead stays ahead. */
static ignis__engine *ignis__model_lock_engine(ignis__model *model)
{
    ignis__engine *engine;
    ignis__mutex_lock(&model->slot.lock);
    engine = (ignis__engine *)model->engine;
    ignis__mutex_unlock(&model->slot.lock);
    if (engine)
        ignis__mutex_lock(&engine->lock);
    return engine;
}

IGNIS_API ignis_status ignis_model_prefixes(ignis_model handle, ignis_prefix_info *info)
{
    static const char call[] = "ignis_model_prefixes";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis_status status = IGNIS_OK;
    ignis__engine *engine;
    if (!model)
        return ignis__failed();
    if (info)
        memset(info, 0, sizeof *info);
    else
        status = ignis__fail_null(call, "info");
    engine = info ? ignis__model_lock_engine(model) : NULL;
    if (engine && engine->kept) {
        info->tokens = (int64_t)engine->kept->count * IGNIS__PAGE;
        info->fed = engine->kept->fed;
        info->found = engine->kept->found;
        info->dropped = engine->kept->dropped;
    }
    if (engine)
        ignis__mutex_unlock(&engine->lock);
    ignis__model_drop(call, model);
    return status;
}

IGNIS_API ignis_status ignis_model_drop_prefixes(ignis_model handle)
{
    static const char call[] = "ignis_model_drop_prefixes";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__engine *engine;
    if (!model)
        return ignis__failed();
    engine = ignis__model_lock_engine(model);
    if (engine) {
        ignis__kept_clear(engine);
        ignis__mutex_unlock(&engine->lock);
    }
    ignis__model_drop(call, model);
    return IGNIS_OK;
}
