// SPDX-License-Identifier: MIT
/*  fuzz_bundle.c - damaged bundles, images, entries of the kernel cache and records: the reader must say no or yes, and
    what it says yes to must hold

        fuzz_bundle [iterations [seed]]

    It makes `iterations` of each by mutation from good ones, most with checksums made right again. The same seed makes
    the same ones. Of an entry of the cache each byte is wrong once besides.
    Build it with -fsanitize=address,undefined: each bundle is in a block of memory of exactly its size. It needs no
    device. */
#define main embed_main
#include "tools/ignis_embed.c"
#undef main

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_bundle: %s\n", what);
    abort();
}

static uint64_t state;
static uint32_t random_below(uint32_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % limit);
}

/*  A cubin of two sections, as far as anybody looks. */
static size_t image_make(unsigned char *image)
{
    size_t size = 700, i;
    for (i = 0; i < size; i++)
        image[i] = (unsigned char)(i % 16 * (i / 200));
    memset(image, 0, 64);
    memcpy(image, "\177ELF\002\001\001", 7);
    image[40] = 64; /* sections, 3 of 64 bytes */
    image[58] = 64;
    image[60] = 3;
    memset(image + 64, 0, 192);
    image[64 + 64 + 4] = 1;
    image[64 + 64 + 24] = 0xFF; /* 255 to 300 */
    image[64 + 64 + 32] = 45;
    image[64 + 128 + 4] = 8; /* no bytes, wherever it is */
    image[64 + 128 + 25] = 0xFF;
    return size;
}

static unsigned char *bundle_seed(size_t *size)
{
    static request asked[3];
    static unsigned char image[701];
    static job jobs[3];
    static block blocks[2]; /* one of two images, packed, and one as it is */
    for (int i = 0; i < 3; i++) {
        job *j = &jobs[i];
        snprintf(asked[i].name, sizeof asked[i].name, "program%d.cu", i);
        asked[i].key[0] = (uint64_t)i;
        asked[i].last = IGNIS__EVERY_ARCH;
        asked[i].program.source = asked[i].program.name = "";
        j->request = &asked[i];
        j->target.arch = 80 + i;
        j->target.kind = (char)(i == 2 ? 'p' : 0);
        j->image.size = i == 2 ? 24 : image_make(image);
        j->image.data = i == 2 ? (void *)".version 8.0\n.target s\n" : image;
        j->image.lowered = (char *)"entry";
        j->block = i == 2;
        j->at = i == 1 ? jobs[0].image.size / 16 * 16 + 16 : 0;
    }
    for (int i = 0; i < 3; i++) {
        block *b = &blocks[jobs[i].block];
        size_t before = b->size;
        b->size = jobs[i].at + jobs[i].image.size + 1;
        b->bytes = (unsigned char *)grow(b->bytes, b->size);
        memset(b->bytes + before, 0, b->size - before);
        memcpy(b->bytes + jobs[i].at, jobs[i].image.data, jobs[i].image.size);
    }
    blocks[1].plain = true;
    block_pack(blocks, 0);
    block_pack(blocks, 1);
    require(blocks[0].stored_size < blocks[0].size, "the seed is not packed");
    return bundle_make(jobs, 3, blocks, 2, size);
}

/*  Makes the checksums right, where what they are of is there. */
static void sign(unsigned char *bytes, size_t size)
{
    ignis__bundle_header header;
    size_t behind = offsetof(ignis__bundle_header, size);
    if (size < sizeof header)
        return;
    memcpy(&header, bytes, sizeof header);
    for (uint32_t i = 0; i < header.count && i < 3; i++) {
        ignis__bundle_entry entry;
        unsigned char *at = bytes + sizeof header + i * sizeof entry;
        if (sizeof header + (i + 1) * sizeof entry > size)
            break;
        memcpy(&entry, at, sizeof entry);
        if (entry.offset <= size && entry.stored <= size - entry.offset)
            entry.checksum = ignis__hash(IGNIS__HASH_START, bytes + entry.offset, (size_t)entry.stored);
        memcpy(at, &entry, sizeof entry);
    }
    if (header.blocks >= behind && header.blocks <= size)
        header.checksum = ignis__hash(IGNIS__HASH_START, bytes + behind, (size_t)header.blocks - behind);
    memcpy(bytes, &header, sizeof header);
}

/*  How many images it gives; -1: it is refused. */
static int try_bundle(const unsigned char *bytes, size_t size)
{
    ignis__bundle bundle = IGNIS__ZERO;
    ignis_bundle_info info;
    char why[300], names[200];
    ignis__string_writer text;
    int images = 0;
    ignis__string_begin(&text, why, sizeof why);
    if (!ignis__bundle_open(&bundle, bytes, size, &text)) {
        require(strlen(why) > 10, "a refusal has no reason");
        return -1;
    }
    for (uint32_t i = 0; i < bundle.header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(&bundle, i), found;
        void *image = NULL;
        if (entry.whole > 1 << 20) /* what lies about its size is unpacked to as much: slow, and nothing new */
            continue;
        ignis__string_begin(&text, why, sizeof why);
        if (ignis__bundle_unpack(&bundle, &entry, &image, &text) == IGNIS_DIAG_NONE) {
            require(ignis__kernel_binary_fault(image, (size_t)entry.size) == NULL, "an image is none");
            images++;
        } else {
            require(strlen(why) > 10 && image == NULL, "a damaged image has no reason");
        }
        (void)ignis__bundle_find(&bundle, entry.key, (int)random_below(130), INT32_MAX, &found);
    }
    memset(&info, 0, sizeof info);
    ignis__string_begin(&text, names, sizeof names);
    ignis__bundle_archs(&bundle, NULL, &text);
    ignis__string_begin(&text, names, sizeof names);
    ignis__bundle_count(&bundle, (int)random_below(130), &info, &text);
    ignis__blocks_drop(&bundle);
    require(info.programs <= (int)bundle.header.count, "there are more programs than entries");
    return images;
}

/* --- the kernel cache --------------------------------------------------------------------------------------------- */

/*  A good entry of the cache; its block has room for one more byte. */
static char *entry_seed(size_t *size)
{
    static unsigned char image[701];
    static const char lowered[] = "_Z4plusPfi";
    ignis__cache_header header;
    char *bytes;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, ignis__cache_magic, sizeof header.magic);
    header.key[0] = 1, header.key[1] = 2;
    header.lowered_size = sizeof lowered;
    header.image_size = image_make(image);
    header.checksum =
        ignis__hash(ignis__hash(IGNIS__HASH_START, lowered, sizeof lowered), image, (size_t)header.image_size);
    *size = sizeof header + sizeof lowered + (size_t)header.image_size;
    bytes = (char *)grow(NULL, *size + 1);
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, lowered, sizeof lowered);
    memcpy(bytes + sizeof header + sizeof lowered, image, (size_t)header.image_size);
    return bytes;
}

static bool try_entry(const char *seed, size_t size, size_t seed_size, size_t at, int with, bool signs)
{
    ignis__kernel_binary image = IGNIS__ZERO;
    char *bytes = (char *)grow(NULL, size + 1);
    ignis__cache_header header;
    bool taken;
    memcpy(bytes, seed, size < seed_size ? size : seed_size);
    if (at < size)
        bytes[at] = (char)(bytes[at] ^ with);
    if (signs && size > sizeof header) {
        memcpy(&header, bytes, sizeof header);
        header.checksum = ignis__hash(IGNIS__HASH_START, bytes + sizeof header, size - sizeof header);
        memcpy(bytes, &header, sizeof header);
    }
    image.key[0] = 1, image.key[1] = 2;
    taken = ignis__cache_parse(&image, bytes, size);
    if (taken) {
        require(image.lowered + strlen(image.lowered) + 1 == (char *)image.data, "a name of an entry has no end");
        require((char *)image.data + image.size == bytes + size, "an image ends elsewhere");
        require(ignis__kernel_binary_fault(image.data, image.size) == NULL, "an image of an entry is none");
    }
    free(bytes);
    return taken;
}

static void entries_fuzz(long iterations)
{
    size_t size, at;
    long taken = 0;
    int bit;
    char *seed = entry_seed(&size);
    require(try_entry(seed, size, size, size, 0, false), "the seed of the cache is not what it should be");
    for (at = 0; at < size; at++)
        for (bit = 0; bit < 8; bit++)
            require(!try_entry(seed, size, size, at, 1 << bit, false), "an entry with a wrong bit is taken");
    for (at = 0; at < size; at++)
        require(!try_entry(seed, at, size, at, 0, false), "an entry that was cut off is taken");
    for (long i = 0; i < iterations; i++) {
        at = random_below(4) ? random_below((uint32_t)size) : random_below(sizeof(ignis__cache_header));
        taken += try_entry(seed, random_below(8) ? size : random_below((uint32_t)size + 1), size, at,
                           (int)random_below(256), true);
    }
    free(seed);
    printf("fuzz_bundle: %ld entries of the cache, %ld taken\n", iterations, taken);
    require(iterations < 1000 || (taken > iterations / 20 && taken < iterations), "what is tried is not varied");
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static void records_fuzz(long iterations)
{
    static const char *const seeds[] = {
        "ignis 500",
        "# a remark",
        "own 80-999 gemm_mma.cu ignis_gemm_mma -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0",
        "own 0-999 softmax.cu",
        "kernel 0-999 \"plus.cu\" \"plus<float>\" \"// a \\\"text\\\"\\n\" 2 \"-DA=1\" \"-w\" \"step.h\" \"#define "
        "STEP 2\\n\"",
        "formula 0-999 \"sin(x)*2 + row\" \"x, row\" 2 0 6:2,7:4,8:1,9:1,14:1,15:3,16:3,33:1,34:4,51:3",
        "formula 0-999 \"x*y\" \"x, y\" 2 2 1:1,3:1,4:1,5:32,6:1,7:4,8:2,9:1,14:1,15:3,16:6,33:1,34:1,51:3",
        "formula 0-999 \"x*x\" \"x\" 1 0 1:1,3:1,4:1,5:128,6:9,7:1,8:1,9:1,12:1,14:1,15:3,33:5,51:3"};
    long taken = 0;
    for (long i = 0; i < iterations; i++) {
        const char *from = seeds[random_below(sizeof seeds / sizeof *seeds)];
        size_t size = strlen(from) + 1;
        char *line = (char *)grow(NULL, size), reason[300];
        ignis__request *request = (ignis__request *)grow(NULL, sizeof *request);
        ignis__string_writer why;
        memcpy(line, from, size);
        for (uint32_t n = random_below(4); n > 0; n--) {
            char *at = line + random_below((uint32_t)size - 1);
            *at = (char)(random_below(3) ? "0123456789,:\"\\ -x()+*"[random_below(20)] : *at ^ 1 << random_below(8));
        }
        ignis__string_begin(&why, reason, sizeof reason);
        if (ignis__request_read(line, ignis__request_read_formula, request, &why)) {
            ignis__formula_source other;
            taken++;
            for (int turn = 0; ignis__request_variant(request, turn, &other); turn++) {
                require(turn < 16 && strlen(other.program.source) > 100, "a formula has no other kernels");
                ignis__formula_source_free(&other);
            }
            ignis__request_free(request);
        } else {
            require(strlen(reason) > 5, "a line is refused without a reason");
        }
        free(request);
        free(line);
        if (i % 500 == 0)
            ignis__formulas_close(NULL);
    }
    ignis__formulas_close(NULL);
    printf("fuzz_bundle: %ld lines of records, %ld taken\n", iterations, taken);
    require(iterations < 1000 || (taken > iterations / 20 && taken < iterations), "what is tried is not varied");
}

int main(int argc, char **argv)
{
    long iterations = argc > 1 ? atol(argv[1]) : 100000, refused = 0, whole = 0;
    size_t seed_size, size;
    unsigned char *seed, *bytes;
    costs_make();
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    seed = bundle_seed(&seed_size);
    require(try_bundle(seed, seed_size) == 3, "the seed is not what it should be");
    for (long i = 0; i < iterations; i++) {
        int result;
        size = random_below(8) ? seed_size : random_below((uint32_t)seed_size + 1);
        bytes = (unsigned char *)malloc(size ? size : 1);
        memcpy(bytes, seed, size);
        for (uint32_t n = 1 + random_below(4); n > 0 && size > 0; n--) {
            uint32_t at = random_below(random_below(2) && size > 300 ? 300 : (uint32_t)size);
            bytes[at] = (unsigned char)(random_below(3)   ? bytes[at] ^ 1 << random_below(8)
                                        : random_below(2) ? 0xFF
                                                          : random_below(256));
        }
        if (random_below(8) && size >= 24) /* nearly always a size that is right */
            memcpy(bytes + offsetof(ignis__bundle_header, size), &(uint64_t){size}, 8);
        if (random_below(8))
            sign(bytes, size);
        result = try_bundle(bytes, size);
        refused += result < 0;
        whole += result == 3;
        free(bytes);
    }
    free(seed);
    printf("fuzz_bundle: %ld bundles, %ld refused, %ld with all images\n", iterations, refused, whole);
    require(refused > iterations / 20 && whole > iterations / 20, "what is tried is not varied");
    entries_fuzz(iterations);
    records_fuzz(iterations);
    return 0;
}
