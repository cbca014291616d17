/*  Ids are those of Hugging Face's library tokenizers. Text goes through it so:
        added tokens that are matched in the raw text are cut out, the leftmost first, of these the longest
        what lies between is normalized, and added tokens cut out that are matched in normalized text
        the rest is split into pieces: by one of the patterns in ignis__text_splits, each of which has its own code instead of an engine for
        regular expressions; or by nothing
        pieces become bytes or characters that the vocabulary has, of which the pair of the lowest rank is joined, the leftmost first, until
        no pair has a rank
    Bytes: tokens of a byte-level vocabulary are written in 256 characters that stand for bytes. Here they are the bytes. */

#include "room.h"

IGNIS__PRIVATE const struct ignis__text_splits_type ignis__text_splits[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", IGNIS__SPLIT_GPT2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_LLAMA3},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_QWEN2},
};

IGNIS__PRIVATE ignis__pool ignis__tokenizers =
    IGNIS__POOL(ignis__tokenizer, IGNIS__KIND_TOKENIZER, "tokenizer", IGNIS_DIAG_TOKENIZER_FREED);

/*  Zeroed memory that lives as long as the tokenizer; null: there is none. */
IGNIS__PRIVATE void *ignis__tokenizer_keep(ignis__tokenizer *tokenizer, size_t size)
{
    void **block = (void **)ignis__alloc(size + 16);
    if (!block)
        return NULL;
    block[0] = tokenizer->kept;
    tokenizer->kept = block;
    return block + 2;
}

IGNIS__PRIVATE const char *ignis__tokenizer_keep_text(ignis__tokenizer *tokenizer, const char *text, size_t size)
{
    char *copy = (char *)ignis__tokenizer_keep(tokenizer, size + 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

IGNIS__PRIVATE void ignis__tokenizer_destroy(ignis__tokenizer *tokenizer)
{
    while (tokenizer->kept) {
        void *next = *(void **)tokenizer->kept;
        ignis__free(tokenizer->kept);
        tokenizer->kept = next;
    }
    memset((char *)tokenizer + sizeof tokenizer->slot, 0, sizeof *tokenizer - sizeof tokenizer->slot);
    ignis__pool_recycle(&ignis__tokenizers, tokenizer);
}

IGNIS__PRIVATE ignis__tokenizer *ignis__tokenizer_hold(const char *call, ignis_tokenizer handle)
{
    return (ignis__tokenizer *)ignis__handle_hold(call, &ignis__tokenizers, handle.id);
}

IGNIS__PRIVATE void ignis__tokenizer_drop(ignis__tokenizer *tokenizer)
{
    if (ignis__pool_drop(tokenizer))
        ignis__tokenizer_destroy(tokenizer);
}

IGNIS__PRIVATE void ignis__tokenizers_close(const char *call)
{
    ignis__tokenizer *tokenizer;
    uint64_t index = 0;
    while ((tokenizer = (ignis__tokenizer *)ignis__pool_next(&ignis__tokenizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "tokenizer of %d tokens, %s", tokenizer->info.tokens,
                           tokenizer->info.family);
        ignis__handle_kill(tokenizer);
        ignis__tokenizer_drop(tokenizer);
    }
}
