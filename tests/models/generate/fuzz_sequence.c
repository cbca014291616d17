// SPDX-License-Identifier: MIT
/*  fuzz_sequence.c - damaged files of sequences: ignis_sequence_load must say no with a reason and leave no page in
    use, or the sequence must go on

        fuzz_sequence [iterations [seed]]

    It makes files by mutation from good ones, most with a checksum made right again. The same seed makes the same
    files. Build it with -fsanitize=address,undefined. It runs on the simulator. */
#include "tensor.h"

#include "ignis_models.h"

#include "generate.h"

enum { CONTEXT = 64, KINDS = 3 };

static uint64_t state;
static uint32_t below(uint32_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % limit);
}

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_sequence: %s: %s\n", what, ignis_status_message());
    abort();
}

typedef struct seed_file {
    unsigned char *bytes;
    size_t size;
} seed_file;

/*  A file of a sequence of `length` tokens. */
static seed_file seed_of(const test_model *t, const char *path, int length)
{
    ignis_sequence s = ignis_sequence_begin(t->handle);
    int32_t ids[CONTEXT];
    seed_file file = {NULL, 0};
    FILE *from;
    prompt_of(1, length, ids);
    require(ignis_sequence_feed(s, ids, length) == IGNIS_OK && ignis_sequence_save(s, path) == IGNIS_OK &&
                ignis_sequence_free(s) == IGNIS_OK,
            "a seed is not made");
    file.bytes = (unsigned char *)malloc(1 << 16);
    from = fopen(path, "rb");
    require(from && file.bytes, "a seed is not read");
    file.size = fread(file.bytes, 1, 1 << 16, from);
    fclose(from);
    return file;
}

/*  Makes the size and the checksum right. */
static void sign(unsigned char *bytes, size_t size)
{
    ignis__sequence_header header;
    if (size < sizeof header)
        return;
    memcpy(&header, bytes, sizeof header);
    header.bytes = (int64_t)size;
    header.checksum = ignis__hash(IGNIS__HASH_START, bytes + sizeof header, size - sizeof header);
    header.checksum = ignis__hash(IGNIS__HASH_START, &header, sizeof header);
    memcpy(bytes, &header, sizeof header);
}

int main(int argc, char **argv)
{
    static const test_shape shape = {2, 2, 1, 8, 16, 16, 120, false, false, true, IGNIS_F32};
    static const int lengths[KINDS] = {0, 5, 40};
    long iterations = argc > 1 ? atol(argv[1]) : 2000, accepted = 0, i;
    char folder[] = "/tmp/fuzz-sequence-XXXXXX", path[64];
    seed_file seeds[KINDS];
    ignis_sequence_info info;
    ignis_sequence probe;
    test_model t;
    int k, all;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    require(mkdtemp(folder) != NULL && ignis_setup(NULL) == IGNIS_OK, "no folder, or no setup");
    snprintf(path, sizeof path, "%s/s", folder);
    test_model_begin(&t, &shape, CONTEXT, 2);
    t.model->layer[0].window = 7;
    for (k = 0; k < KINDS; k++)
        seeds[k] = seed_of(&t, path, lengths[k]);
    probe = ignis_sequence_begin(t.handle);
    require(ignis_sequence_query(probe, &info) == IGNIS_OK, "no sequence");
    all = info.free_tokens;
    for (i = 0; i < iterations; i++) {
        const seed_file *from = &seeds[i < KINDS ? (uint32_t)i : below(KINDS)];
        size_t size = i < KINDS || below(8) ? from->size : below((uint32_t)from->size + 1);
        unsigned char *bytes = (unsigned char *)malloc(size + 1);
        ignis_sequence s;
        memcpy(bytes, from->bytes, size);
        for (k = i < KINDS ? 0 : 1 + (int)below(3); k > 0 && size > 0; k--) {
            const uint32_t head = (uint32_t)sizeof(ignis__sequence_header);
            uint32_t at = below(2) && size > head ? 32 + below(head - 32) : below((uint32_t)size);
            bytes[at] = (unsigned char)(below(2) ? bytes[at] ^ 1U << below(8) : below(3) ? below(4) : 0xFFU);
        }
        if (i >= KINDS && below(8))
            sign(bytes, size);
        test_write_file(path, bytes, size);
        free(bytes);
        s = ignis_sequence_load(t.handle, path);
        require(s.id || i >= KINDS, "a sound file is refused");
        require(s.id || strlen(ignis_status_message()) > 30, "a refusal has no reason");
        if (s.id) {
            const int length = ignis_sequence_length(s);
            accepted++;
            if (length > 0 && length < CONTEXT)
                require(ignis_sequence_next(s, NULL) >= 0 || ignis_status_last() == IGNIS_ERROR_ARGUMENT,
                        "a sequence does not go on"); /* keys that are no numbers */
            ignis_status_clear();
            require(ignis_sequence_free(s) == IGNIS_OK, "a sequence is not freed");
        }
        ignis_status_clear();
        require(ignis_sequence_query(probe, &info) == IGNIS_OK && info.free_tokens == all, "pages are lost");
    }
    for (k = 0; k < KINDS; k++)
        free(seeds[k].bytes);
    require(ignis_sequence_free(probe) == IGNIS_OK, "a sequence is not freed");
    test_model_end(&t);
    require(ignis_shutdown() == IGNIS_OK, "something is left");
    test_remove_folder(folder);
    printf("fuzz_sequence: %ld files, %ld accepted, nothing else wrong\n", iterations, accepted);
    require(iterations < 1000 || (accepted > iterations / 20 && accepted < iterations), "what is tried is not varied");
    return 0;
}
