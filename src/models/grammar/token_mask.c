/*  models/grammar/token_mask.c - the vocabulary as a tree of bytes, and masks of allowed tokens

    A mask visits the tree together with the states of the grammar, so that tokens with a common beginning
    share its cost.
    May use: automaton.c, the tokenizer. Locks: none; callers let one thread at a time use a grammar. */

#include "room.h"

/*  The tokens that are text, as a tree of their bytes. Nodes are in the order of a depth-first walk. */
typedef struct ignis__vocabulary_node {
    int32_t end, token,
        depth; /* end: the node after the subtree; token: the first of its tokens, which end at the next node's first */
    int32_t byte;
} ignis__vocabulary_node;

IGNIS__PRIVATE void ignis__vocabulary_free(ignis__vocabulary *vocabulary)
{
    ignis__free(vocabulary->text.data), ignis__free(vocabulary->tokens.items), ignis__free(vocabulary->place),
        ignis__free(vocabulary->path), ignis__free(vocabulary->nodes.items);
    ignis__free(vocabulary);
}

static int ignis__vocabulary_order(const void *a, const void *b)
{
    const ignis__vocabulary_token *one = (const ignis__vocabulary_token *)a,
                                  *other = (const ignis__vocabulary_token *)b;
    int order = memcmp(one->text, other->text, one->size < other->size ? one->size : other->size);
    return order ? order : one->size != other->size ? (one->size < other->size ? -1 : 1) : one->id < other->id ? -1 : 1;
}

/*  Collects the texts of a model's tokens, except those that end a text. A control token has one that only its id in a
    grammar matches. NULL without memory. */
IGNIS__COLD IGNIS__PRIVATE ignis__vocabulary *ignis__vocabulary_make(const ignis__tokenizer *tokenizer, int count,
                                                                     const int32_t *ends, int end_count)
{
    ignis__vocabulary *vocabulary = (ignis__vocabulary *)ignis__alloc(sizeof *vocabulary);
    ignis__vocabulary_token *token = NULL;
    ignis__vocabulary_node *node;
    int32_t open, i, k;
    unsigned char control[IGNIS__GRAMMAR_CONTROL_SIZE];
    size_t longest = 0;
    bool ok = vocabulary != NULL;
    if (!ok)
        return NULL;
    vocabulary->tokens.size = sizeof *token;
    vocabulary->nodes.size = sizeof *node;
    vocabulary->count = count;
    vocabulary->words = (count + 31) / 32;
    if (tokenizer->info.eos >= 0 && tokenizer->info.eos < count)
        vocabulary->ends[vocabulary->end_count++] = tokenizer->info.eos;
    for (i = 0; i < end_count && vocabulary->end_count < IGNIS__COUNT(vocabulary->ends); i++)
        if (ends[i] < count)
            vocabulary->ends[vocabulary->end_count++] = ends[i];
    for (i = 0; i < count && i < tokenizer->info.tokens && ok; i++) {
        size_t begin = vocabulary->text.size;
        for (k = 0; k < vocabulary->end_count && vocabulary->ends[k] != i;)
            k++;
        if (k < vocabulary->end_count || !(tokenizer->flags[i] & IGNIS__TOKEN_THERE))
            continue;
        if (tokenizer->flags[i] & IGNIS__TOKEN_CONTROL) {
            ignis__grammar_control_text(i, control);
            ok = ignis__bytes_add(&vocabulary->text, (const char *)control, sizeof control);
        } else {
            ok = ignis__token_add(tokenizer, i, false, &vocabulary->text);
            if (ok && vocabulary->text.size > begin &&
                memchr(vocabulary->text.data + begin, IGNIS__GRAMMAR_CONTROL, vocabulary->text.size - begin))
                vocabulary->text.size = begin; /* no text has this byte */
        }
        token = ok && vocabulary->text.size > begin ? (ignis__vocabulary_token *)ignis__list_add(&vocabulary->tokens)
                                                    : NULL;
        ok = ok && (token || vocabulary->text.size == begin);
        if (token) {
            token->begin = begin;
            token->size = vocabulary->text.size - begin;
            token->id = i;
            longest = token->size > longest ? token->size : longest;
        }
    }
    vocabulary->place = (int32_t *)ignis__alloc(sizeof *vocabulary->place * ((size_t)count + 1));
    vocabulary->path = (int32_t *)ignis__alloc(sizeof *vocabulary->path * (longest + 2));
    ok = ok && vocabulary->place && vocabulary->path;
    token = (ignis__vocabulary_token *)(void *)vocabulary->tokens.items;
    for (i = 0; ok && i < vocabulary->tokens.count; i++)
        token[i].text = vocabulary->text.data + token[i].begin;
    if (ok && vocabulary->tokens.count)
        qsort(token, (size_t)vocabulary->tokens.count, sizeof *token, ignis__vocabulary_order);
    for (i = 0; ok && i < count; i++)
        vocabulary->place[i] = -1;
    for (i = 0; ok && i <= vocabulary->tokens.count; i++) {
        size_t common = 0, size = i < vocabulary->tokens.count ? token[i].size : 0;
        while (i > 0 && common < size && common < token[i - 1].size &&
               token[i].text[common] == token[i - 1].text[common])
            common++;
        for (open = i > 0 ? (int32_t)token[i - 1].size - 1 : -1; open >= (int32_t)common;
             open--) /* states of the path to the node before */
            ((ignis__vocabulary_node *)(void *)vocabulary->nodes.items)[vocabulary->path[open]].end =
                (int32_t)vocabulary->nodes.count;
        for (; ok && common < size + (i == vocabulary->tokens.count); common++) {
            ok = (node = (ignis__vocabulary_node *)ignis__list_add(&vocabulary->nodes)) != NULL;
            if (!ok)
                break;
            vocabulary->path[common] = (int32_t)vocabulary->nodes.count - 1;
            node->token = i;
            node->depth = (int32_t)common;
            node->byte = i < vocabulary->tokens.count ? (unsigned char)token[i].text[common] : 0;
        }
        if (i < vocabulary->tokens.count)
            vocabulary->place[token[i].id] = i;
    }
    if (ok)
        return vocabulary;
    ignis__vocabulary_free(vocabulary);
    return NULL;
}

/*  Returns a mask with a bit for each token that may follow in a state. NULL after a fault. */
IGNIS__PRIVATE const uint32_t *ignis__grammar_compute_mask(ignis__grammar *grammar, const ignis__vocabulary *vocabulary,
                                                           int32_t state)
{
    const ignis__vocabulary_node *node = (const ignis__vocabulary_node *)(const void *)vocabulary->nodes.items,
                                 *last = node + vocabulary->nodes.count - 1;
    const ignis__vocabulary_token *tokens = (const ignis__vocabulary_token *)(const void *)vocabulary->tokens.items;
    uint32_t *mask = IGNIS__GRAMMAR_AT(grammar, state, states, state)->mask;
    const int32_t *rows = (const int32_t *)(void *)grammar->rows.items;
    int32_t to, i;
    bool any = false;
    if (mask)
        return mask;
    mask = (uint32_t *)ignis__alloc(sizeof *mask * (size_t)vocabulary->words);
    if (!mask)
        ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    grammar->steps = 0;
    vocabulary->path[0] = state;
    while (mask && node < last) {
        to = rows[(int64_t)vocabulary->path[node->depth] * grammar->classes + grammar->class_of[node->byte]];
        if (to < 0) {
            to = ignis__grammar_step(grammar, vocabulary->path[node->depth], (unsigned char)node->byte);
            rows = (const int32_t *)(void *)grammar->rows.items;
        }
        if (to < 0)
            break;
        if (to == 0) {
            node = (const ignis__vocabulary_node *)(const void *)vocabulary->nodes.items + node->end;
            continue;
        }
        vocabulary->path[node->depth + 1] = to;
        for (i = node->token; i < node[1].token; i++, any = true)
            mask[tokens[i].id / 32] |= (uint32_t)1 << tokens[i].id % 32;
        node++;
    }
    if (grammar->diagnostic) {
        ignis__free(mask);
        return NULL;
    }
    IGNIS__GRAMMAR_AT(grammar, state, states, state)->any = any;
    grammar->masks++;
    return IGNIS__GRAMMAR_AT(grammar, state, states, state)->mask = mask;
}

/*  Returns the state after a token; 0 if the token is not allowed, -1 after a fault. */
IGNIS__PRIVATE int32_t ignis__grammar_step_token(ignis__grammar *grammar, const ignis__vocabulary *vocabulary,
                                                 int32_t state, int32_t id)
{
    const ignis__vocabulary_token *token =
        (const ignis__vocabulary_token *)(const void *)vocabulary->tokens.items + vocabulary->place[id];
    size_t i;
    if (vocabulary->place[id] < 0)
        return 0;
    for (i = 0, grammar->steps = 0; i < token->size && state > 0; i++)
        state = ignis__grammar_step(grammar, state, (unsigned char)token->text[i]);
    return state;
}
