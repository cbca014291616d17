/*  models/tokenizer/tokenizer.c - the pool of tokenizers, their memory, the known patterns

    Ids are those of Hugging Face's library tokenizers. Text is encoded in these steps.
    1. Added tokens of the raw text are cut out, the leftmost first, of these the longest.
    2. The text between them is normalized, and added tokens of normalized text are cut out.
    3. The rest is split into pieces: by steps, and then by a pattern of ignis__tokenizer_patterns.
    4. Pieces become bytes or characters of the vocabulary. The pair of the lowest rank is joined, the
    leftmost first, until no pair has a rank. WordPiece and Unigram are in files of their own.
    Byte-level vocabularies write each byte as one of 256 characters. Tokens have the bytes here.
    May use: >>pool. Locks: none; tokenizers do not change once they are open. */

#include "room.h"

IGNIS__PRIVATE const struct ignis__tokenizer_patterns_type ignis__tokenizer_patterns[] = {
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

/*  Allocates zeroed memory that lives as long as the tokenizer. NULL without memory. */
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
