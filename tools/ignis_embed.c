// SPDX-License-Identifier: MIT
/*  ignis_embed.c - compiles the programs that a record names, for machines that have the driver alone

        cc -O2 -I. tools/ignis_embed.c -o ignis_embed -lm -ldl -lpthread
        ignis_embed game.record --archs 75,80,86,89,90a,100,120 --ptx 75 -o game.ignis

    Records are what a program writes with ignis_desc.record or IGNIS_RECORD=game.record; several may be given. Needs NVRTC, which is
    looked for as Ignis does, and no GPU. See ON SHIPPING in ignis.h.

        --archs LIST    compute capabilities to compile machine code for: 80 runs on 8.0, 8.6 and 8.9, 90a on 9.0 alone
        --ptx LIST      compute capabilities to compile PTX for, which the driver compiles on everything newer, slowly
        -o FILE         FILE.h becomes a C header with an array ignis_bundle, anything else a file for ignis_desc.bundle_path
        --name NAME     of the array in the header
        --plain         does not pack the images: the bundle is five times as large, and is made and read faster
        --list FILE     says what is in a bundle, and does nothing else

    Equal records give equal bundles. The images are packed, each on its own: see ignis__unpack.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "ignis_embed";

enum { MAX_ARCHS = 32 };

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", call);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void *grow(void *old, size_t size)
{
    void *memory = realloc(old, size ? size : 1);
    if (!memory)
        die("out of memory: %zu bytes", size);
    return memory;
}

/* >>packing ----------------------------------------------------------------------------------------------------- */

/*  The other side of ignis__unpack: the same odds, and a search for the cheapest way to write all bytes. */
typedef struct packer {
    unsigned char *out;
    size_t size;
    uint64_t low;
    uint32_t range;
    unsigned char held;
    size_t waiting; /* bytes that a carry may still change: `held` and then 0xFF */
    uint16_t odds[IGNIS__PACK_ODDS][2];
} packer;

static void pack_shift(packer *p)
{
    if (p->low < 0xFF000000u || p->low >> 32) {
        for (; p->waiting > 0; p->waiting--) {
            p->out[p->size++] = (unsigned char)(p->held + (p->low >> 32));
            p->held = 0xFF;
        }
        p->held = (unsigned char)(p->low >> 24);
    }
    p->waiting++;
    p->low = (uint32_t)(p->low << 8);
}

static void pack_bit(packer *p, unsigned index, unsigned bit)
{
    uint16_t *odds = p->odds[index];
    uint32_t bound;
    if (p->range < 1u << 24) {
        p->range <<= 8;
        pack_shift(p);
    }
    bound = (p->range >> 16) * (((uint32_t)odds[0] + odds[1]) / 2);
    if (!bit) {
        p->range = bound;
        odds[0] = (uint16_t)(odds[0] + (65535 - odds[0]) / 16);
        odds[1] = (uint16_t)(odds[1] + (65535 - odds[1]) / 64);
    } else {
        p->low += bound;
        p->range -= bound;
        odds[0] = (uint16_t)(odds[0] - odds[0] / 16);
        odds[1] = (uint16_t)(odds[1] - odds[1] / 64);
    }
}

/*  What a bit costs, in 1/256 bits, by its odds in 1/4096. */
static uint16_t bit_cost[4096];

static void costs_make(void)
{
    for (int i = 0; i < 4096; i++)
        bit_cost[i] = (uint16_t)(-256 * log2((i + 0.5) / 4096) + 0.5);
}

/*  Writes bits, or (`writes` false) says what they would cost. */
static uint32_t pack_one(packer *p, unsigned index, unsigned bit, bool writes)
{
    uint32_t odds = ((uint32_t)p->odds[index][0] + p->odds[index][1]) / 2;
    if (writes)
        pack_bit(p, index, bit);
    return bit_cost[(bit ? 65535 - odds : odds) >> 4];
}

static uint32_t pack_bits(packer *p, unsigned index, int count, unsigned bits, bool writes)
{
    uint32_t cost = 0;
    unsigned before = 1;
    while (count-- > 0) {
        unsigned bit = bits >> count & 1;
        cost += pack_one(p, index + before, bit, writes);
        before = 2 * before + bit;
    }
    return cost;
}

static uint32_t pack_number(packer *p, unsigned index, unsigned low, uint32_t number, bool writes)
{
    unsigned count = (unsigned)ignis__log2(number), i;
    uint32_t cost = pack_bits(p, index, 5, count, writes);
    for (i = count; i > 0 && !(low && i == 4); i--)
        cost += pack_one(p, index + 32 + count * 32 + i - 1, number >> (i - 1) & 1, writes);
    return i ? cost + pack_bits(p, low, 4, number & 15, writes) : cost;
}

static uint32_t pack_new(packer *p, unsigned before, size_t at, unsigned char byte, bool writes)
{
    uint32_t cost = pack_one(p, IGNIS__PACK_KIND + 16 * before + (unsigned)(at & 15), 0, writes);
    return cost + pack_bits(p, IGNIS__PACK_NEW + (before ? 4096u : 0u) + (unsigned)(at & 15) * 256, 8, byte, writes);
}

static uint32_t pack_distance(packer *p, uint32_t length, uint32_t distance, bool writes)
{
    unsigned kind = length < 5 ? length - 2 : 3;
    return pack_number(p, IGNIS__PACK_DISTANCE + kind * IGNIS__PACK_NUMBERS, IGNIS__PACK_LOW + 16 * (kind > 1), distance, writes);
}

/*  The cheapest way to a place that is known: by the bytes before it. */
typedef struct pack_step {
    uint32_t cost, length, distance; /* distance: the one used last; length 0: a new byte */
    unsigned before;
} pack_step;

static void step_to(pack_step *to, uint32_t cost, uint32_t length, uint32_t distance, unsigned before)
{
    if (cost < to->cost)
        *to = (pack_step){cost, length, distance, before};
}

enum { HASHES = 1 << 16, TRIES = 32, LONG = 300, PASSES = 2 };

/*  Steps from one place by bytes that were there before, at a distance; how many there are. Of very many all are taken. */
static uint32_t steps_by(packer *p, const unsigned char *in, size_t size, pack_step *steps, size_t at, uint32_t distance, uint32_t longest,
                         const uint32_t *length_cost, unsigned again, uint32_t known)
{
    uint32_t length = 0, cost[4] = {known, known, known, known};
    while (at + length < size && in[at + length] == in[at + length - distance])
        length++;
    if (length <= longest)
        return length;
    for (uint32_t kind = 0; kind < 4 && !again; kind++)
        cost[kind] += pack_distance(p, kind + 2, distance, false);
    for (uint32_t i = longest + 1; i <= length && i < LONG; i++)
        step_to(&steps[at + i], cost[again || i > 4 ? 3 : i - 2] + length_cost[i - 1 + again], i, distance, 1 + again);
    if (length >= LONG)
        step_to(&steps[at + length],
                cost[3] + pack_number(p, IGNIS__PACK_LENGTH + again * IGNIS__PACK_NUMBERS, 0, length - 1 + again, false), length, distance,
                1 + again);
    return length;
}

/*  Finds the steps to all places, by what bits cost with the odds that the pass before has ended with. */
static void steps_find(packer *p, const unsigned char *in, size_t size, pack_step *steps, int32_t *heads, int32_t *chain)
{
    uint32_t length_cost[2][LONG];
    size_t dull = 0; /* up to there all is as before, and nothing better is looked for */
    for (uint32_t i = 1; i < LONG; i++)
        for (unsigned again = 0; again < 2; again++)
            length_cost[again][i] = pack_number(p, IGNIS__PACK_LENGTH + again * IGNIS__PACK_NUMBERS, 0, i, false);
    for (size_t i = 0; i <= size; i++)
        steps[i].cost = UINT32_MAX;
    for (int i = 0; i < HASHES; i++)
        heads[i] = -1;
    steps[0] = (pack_step){0, 0, 0, 0};
    for (size_t at = 0; at < size; at++) {
        pack_step here = steps[at];
        uint32_t known, longest = 1, length = 0, word;
        int32_t from = -1;
        if (at + 4 <= size) {
            memcpy(&word, in + at, 4);
            word = word * 2654435761u >> 16;
            from = chain[at] = heads[word];
            heads[word] = (int32_t)at;
        }
        if (at < dull)
            continue;
        known = here.cost + pack_one(p, IGNIS__PACK_KIND + 16 * here.before + (unsigned)(at & 15), 1, false);
        step_to(&steps[at + 1], here.cost + pack_new(p, here.before, at, in[at], false), 0, here.distance, 0);
        if (here.distance)
            length = steps_by(p, in, size, steps, at, here.distance, 0, length_cost[1], 1,
                              known + pack_one(p, IGNIS__PACK_AGAIN + here.before, 1, false));
        known += pack_one(p, IGNIS__PACK_AGAIN + here.before, 0, false);
        for (int tries = 0; from >= 0 && tries < TRIES && length < LONG; tries++, from = chain[from]) {
            length = steps_by(p, in, size, steps, at, (uint32_t)at - (uint32_t)from, longest, length_cost[0], 0, known);
            longest = length > longest ? length : longest;
        }
        if (length >= LONG)
            dull = at + length;
    }
}

/*  Writes the steps that lead to the end; how many bytes. */
static size_t steps_write(packer *p, const unsigned char *in, size_t size, const pack_step *steps, uint32_t *order, unsigned char *out)
{
    size_t count = 0;
    unsigned before = 0;
    for (size_t at = size; at > 0; at -= steps[at].length ? steps[at].length : 1)
        order[count++] = (uint32_t)at;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < IGNIS__PACK_ODDS; i++)
        p->odds[i][0] = p->odds[i][1] = 32768;
    p->out = out;
    p->range = UINT32_MAX;
    p->waiting = 1;
    while (count-- > 0) {
        const pack_step *s = &steps[order[count]];
        size_t at = order[count] - (s->length ? s->length : 1);
        if (s->length == 0) {
            pack_new(p, before, at, in[at], true);
        } else {
            unsigned again = s->before - 1;
            pack_one(p, IGNIS__PACK_KIND + 16 * before + (unsigned)(at & 15), 1, true);
            pack_one(p, IGNIS__PACK_AGAIN + before, again, true);
            pack_number(p, IGNIS__PACK_LENGTH + again * IGNIS__PACK_NUMBERS, 0, s->length - 1 + again, true);
            if (!again)
                pack_distance(p, s->length, s->distance, true);
        }
        before = s->before;
    }
    for (int i = 0; i < 5; i++)
        pack_shift(p);
    while (p->size > 1 && p->out[p->size - 1] == 0) /* as the reader takes zeros behind the end */
        p->size--;
    return p->size - 1; /* the first byte, of a carry that never comes, is left out */
}

/*  Packs bytes into memory of malloc, and unpacks them again to be sure. What does not become smaller is copied. */
static unsigned char *pack(const unsigned char *in, size_t size, size_t *packed_size)
{
    packer *p = (packer *)grow(NULL, sizeof *p);
    pack_step *steps = (pack_step *)grow(NULL, (size + 1) * sizeof *steps);
    int32_t *heads = (int32_t *)grow(NULL, HASHES * sizeof *heads), *chain = (int32_t *)grow(NULL, size * sizeof *chain);
    uint32_t *order = (uint32_t *)grow(NULL, size * sizeof *order);
    unsigned char *out = (unsigned char *)grow(NULL, 2 * size + 4096), *again = (unsigned char *)grow(NULL, size);
    ignis__unpacker *unpacker = (ignis__unpacker *)grow(NULL, sizeof *unpacker);
    for (int i = 0; i < IGNIS__PACK_ODDS; i++)
        p->odds[i][0] = p->odds[i][1] = 32768;
    for (int pass = 0; pass < PASSES; pass++) {
        steps_find(p, in, size, steps, heads, chain);
        *packed_size = steps_write(p, in, size, steps, order, out);
    }
    memset(unpacker, 0, sizeof *unpacker);
    if (!ignis__unpack(unpacker, again, size, out + 1, *packed_size) || memcmp(again, in, size) != 0)
        die("what was packed, %zu bytes of %zu, cannot be unpacked", *packed_size, size);
    memmove(out, out + 1, *packed_size);
    if (*packed_size >= size) {
        memcpy(out, in, size);
        *packed_size = size;
    }
    free(p), free(steps), free(heads), free(chain), free(order), free(again), free(unpacker);
    return out;
}

/* >>records ----------------------------------------------------------------------------------------------------- */

typedef struct request {
    ignis__program program;
    uint64_t key[2];
    int first, last;
    char name[512]; /* in the bundle */
} request;

static request *requests;
static int request_count;

static char *text_copy(const char *text, size_t length)
{
    char *result = (char *)grow(NULL, length + 1);
    memcpy(result, text, length);
    result[length] = 0;
    return result;
}

/*  The next word of a line: in quotes, with \n, \r, \" and \\ for what they stand for, or up to a blank. Null: there is none. */
static char *word_next(char **line, const char *path, int number)
{
    char *from = *line + strspn(*line, " "), *to, *word;
    if (*from == 0)
        return NULL;
    if (*from != '"') {
        *line = from + strcspn(from, " ");
        return text_copy(from, (size_t)(*line - from));
    }
    word = to = text_copy(from, strlen(from));
    for (from++; *from && *from != '"'; from++) {
        bool escaped = *from == '\\' && from[1];
        from += escaped;
        *to++ = (char)(!escaped ? *from : *from == 'n' ? '\n' : *from == 'r' ? '\r' : *from);
    }
    if (*from != '"')
        die("%s:%d: a word has no quote at its end", path, number);
    *to = 0;
    *line = from + 1;
    return word;
}

/*  Text that is the program's, or a source of Ignis. */
static void request_add(ignis__program *program, int first, int last)
{
    request *r, added;
    ignis__text text;
    memset(&added, 0, sizeof added);
    added.program = *program;
    added.first = first;
    added.last = last;
    ignis__program_key(program, added.key);
    ignis__text_begin(&text, added.name, sizeof added.name);
    ignis__program_write(&text, program);
    for (r = requests; r < requests + request_count; r++) {
        if (memcmp(r->key, added.key, sizeof r->key) == 0) { /* again, perhaps for others */
            r->first = first < r->first ? first : r->first;
            r->last = last > r->last ? last : r->last;
            return;
        }
    }
    requests = (request *)grow(requests, ((size_t)request_count + 1) * sizeof *requests);
    requests[request_count++] = added;
}

static void read_own(ignis__program *program, char **line, const char *path, int number)
{
    const char **options = (const char **)grow(NULL, IGNIS__MAX_OPTIONS * sizeof *options);
    char *word = word_next(line, path, number);
    int source = 0;
    while (word && source < IGNIS__SOURCE_COUNT && strcmp(ignis__sources[source].name, word) != 0)
        source++;
    if (!word || source == IGNIS__SOURCE_COUNT)
        die("%s:%d: Ignis has no source %s", path, number, word ? word : "");
    program->name = ignis__sources[source].name;
    program->source = ignis__source_join(&ignis__sources[source]);
    program->options = options;
    while ((word = word_next(line, path, number)) != NULL) {
        if (program->option_count == IGNIS__MAX_OPTIONS)
            die("%s:%d: there are more than %d options", path, number, IGNIS__MAX_OPTIONS);
        options[program->option_count++] = word;
    }
}

static void read_kernel(ignis__program *program, char **line, const char *path, int number)
{
    const char **options = (const char **)grow(NULL, IGNIS__MAX_OPTIONS * sizeof *options);
    ignis_kernel_header *headers = NULL;
    char *name = word_next(line, path, number), *entry = word_next(line, path, number), *source = word_next(line, path, number);
    char *word = word_next(line, path, number);
    if (!word || atoi(word) < 0 || atoi(word) > IGNIS__MAX_OPTIONS)
        die("%s:%d: a kernel is a name, an entry, a source, a number of options, the options, and headers", path, number);
    program->name = name;
    program->entry = *entry ? entry : NULL;
    program->source = source;
    program->options = options;
    for (int i = atoi(word); i > 0; i--) {
        options[program->option_count++] = word = word_next(line, path, number);
        if (!word)
            die("%s:%d: there are fewer options than the line says", path, number);
    }
    while ((word = word_next(line, path, number)) != NULL) {
        headers = (ignis_kernel_header *)grow(headers, ((size_t)program->header_count + 1) * sizeof *headers);
        headers[program->header_count].name = word;
        headers[program->header_count++].text = word = word_next(line, path, number);
        if (!word)
            die("%s:%d: a header has no text", path, number);
    }
    program->headers = headers;
}

static void record_read(const char *path)
{
    size_t size;
    char *text = (char *)ignis__file_read(path, &size), *line = text, *end;
    if (!text)
        die("cannot read %s", path);
    text[size] = 0;
    for (int number = 1; *line; line = end, number++) {
        ignis__program program;
        int first = 0, last = 0;
        char *word, *range;
        end = line + strcspn(line, "\n");
        end += *end == '\n' ? (*end = 0, 1) : 0;
        if ((word = word_next(&line, path, number)) == NULL || *word == '#')
            continue;
        range = word_next(&line, path, number);
        if (strcmp(word, "ignis") == 0) {
            if (!range || atoi(range) != IGNIS_VERSION)
                die("%s:%d: the record is of version %s, this ignis_embed of %d; record again", path, number, range ? range : "",
                    IGNIS_VERSION);
            continue;
        }
        memset(&program, 0, sizeof program);
        if (!range || sscanf(range, "%d-%d", &first, &last) != 2 || first < 0 || last > IGNIS__EVERY_ARCH)
            die("%s:%d: behind '%s' has to be a range of compute capabilities, such as 80-%d", path, number, word, IGNIS__EVERY_ARCH);
        if (strcmp(word, "own") == 0)
            read_own(&program, &line, path, number);
        else if (strcmp(word, "kernel") == 0)
            read_kernel(&program, &line, path, number);
        else
            die("%s:%d: '%s' is not ignis, own or kernel", path, number, word);
        request_add(&program, first, last);
    }
    ignis__free(text);
}

/* >>compiling --------------------------------------------------------------------------------------------------- */

typedef struct target {
    int arch;
    char kind; /* as in ignis__bundle_entry */
} target;

/*  One program for one architecture. */
typedef struct job {
    const request *request;
    target target;
    ignis__image image;
    unsigned char *stored;
    size_t stored_size;
    bool plain, failed;
} job;

static void compile(void *context, int index)
{
    job *j = (job *)context + index;
    char arch[32];
    if (j->target.kind == 'p')
        snprintf(arch, sizeof arch, "-arch=compute_%d", j->target.arch);
    else
        snprintf(arch, sizeof arch, "-arch=sm_%d%c", j->target.arch, j->target.kind);
    j->failed = !ignis__image_compile(call, &j->request->program, arch, j->target.kind == 'p', &j->image);
    if (!j->failed && ignis__image_fault(j->image.data, j->image.size))
        die("%s for %s: %s", j->request->name, arch, ignis__image_fault(j->image.data, j->image.size));
    if (!j->failed && j->plain) {
        j->stored = (unsigned char *)text_copy((const char *)j->image.data, j->image.size);
        j->stored_size = j->image.size;
    } else if (!j->failed)
        j->stored = pack((const unsigned char *)j->image.data, j->image.size, &j->stored_size);
}

static int targets_read(const char *list, bool ptx, target *targets, int count)
{
    for (const char *at = list; at && *at; at += strcspn(at, ",") + (strchr(at, ',') != NULL)) {
        char *end;
        long arch = strtol(at, &end, 10);
        bool suffix = !ptx && (*end == 'a' || *end == 'f');
        if (arch < 50 || arch >= IGNIS__EVERY_ARCH || end[suffix] != (strchr(at, ',') ? ',' : 0) || count == MAX_ARCHS)
            die("--%s is %s; it takes numbers such as 75,80%s", ptx ? "ptx" : "archs", list, ptx ? "" : ",90a");
        targets[count].arch = (int)arch;
        targets[count++].kind = ptx ? 'p' : suffix ? *end : 0;
    }
    return count;
}

static int job_compare(const void *a, const void *b)
{
    const job *x = (const job *)a, *y = (const job *)b;
    int order = strcmp(x->request->name, y->request->name);
    order = order ? order : memcmp(x->request->key, y->request->key, sizeof x->request->key);
    order = order ? order : (x->target.kind == 'p') - (y->target.kind == 'p');
    order = order ? order : x->target.arch - y->target.arch;
    return order ? order : x->target.kind - y->target.kind;
}

/*  What the programs need: all in their range, products of warpgroups on 90a alone. */
static job *jobs_make(const target *targets, int target_count, bool plain, int *count)
{
    job *jobs = NULL;
    *count = 0;
    for (int r = 0; r < request_count; r++) {
        for (int t = 0; t < target_count; t++) {
            const target *at = &targets[t];
            if (at->arch < requests[r].first || at->arch > requests[r].last || (requests[r].first == requests[r].last && at->kind != 'a'))
                continue;
            jobs = (job *)grow(jobs, ((size_t)*count + 1) * sizeof *jobs);
            memset(&jobs[*count], 0, sizeof *jobs);
            jobs[*count].request = &requests[r];
            jobs[*count].plain = plain;
            jobs[(*count)++].target = *at;
        }
    }
    return jobs;
}

/* >>output ------------------------------------------------------------------------------------------------------ */

static unsigned char *bundle_make(const job *jobs, int count, size_t *size)
{
    ignis__bundle_header header;
    unsigned char *data;
    size_t texts = sizeof header + (size_t)count * sizeof(ignis__bundle_entry), images = texts + 1, at;
    for (int i = 0; i < count; i++)
        images += strlen(jobs[i].request->name) + strlen(jobs[i].image.lowered) + 2;
    *size = images;
    for (int i = 0; i < count; i++)
        *size += jobs[i].stored_size;
    data = (unsigned char *)grow(NULL, *size);
    memset(data, 0, *size);
    at = images;
    for (int i = 0; i < count; i++) {
        ignis__bundle_entry entry;
        const job *j = &jobs[i];
        memset(&entry, 0, sizeof entry);
        memcpy(entry.key, j->request->key, sizeof entry.key);
        entry.included = ignis__program_included(&j->request->program);
        entry.checksum = ignis__hash(IGNIS__HASH_START, j->stored, j->stored_size);
        entry.offset = at;
        entry.stored = j->stored_size;
        entry.size = j->image.size;
        entry.text = (uint32_t)texts;
        entry.arch = (uint16_t)j->target.arch;
        entry.first = (uint16_t)j->request->first;
        entry.last = (uint16_t)j->request->last;
        entry.kind = (uint8_t)j->target.kind;
        memcpy(data + sizeof header + (size_t)i * sizeof entry, &entry, sizeof entry);
        texts += (size_t)sprintf((char *)data + texts, "%s", j->request->name) + 1;
        texts += (size_t)sprintf((char *)data + texts, "%s", j->image.lowered) + 1;
        memcpy(data + at, j->stored, j->stored_size);
        at += j->stored_size;
    }
    memset(&header, 0, sizeof header);
    memcpy(header.magic, ignis__bundle_magic, sizeof header.magic);
    header.size = *size;
    header.images = images;
    header.sources = ignis__sources_hash();
    header.version = IGNIS_VERSION;
    header.count = (uint32_t)count;
    memcpy(data, &header, sizeof header);
    header.checksum =
        ignis__hash(IGNIS__HASH_START, data + offsetof(ignis__bundle_header, size), images - offsetof(ignis__bundle_header, size));
    memcpy(data, &header, sizeof header);
    return data;
}

static void bundle_write(const char *path, const char *name, const unsigned char *data, size_t size)
{
    const char *dot = strrchr(path, '.');
    FILE *file = fopen(path, "wb");
    bool ok = file != NULL;
    if (ok && dot && strcmp(dot, ".h") == 0) {
        fprintf(file, "/* Made by ignis_embed of Ignis %d.%d.%d: ignis_desc.bundle = %s, .bundle_size = sizeof %s */\n",
                IGNIS_VERSION_MAJOR, IGNIS_VERSION_MINOR, IGNIS_VERSION_PATCH, name, name);
        fprintf(file, "static const unsigned char %s[%zu] = {", name, size);
        for (size_t i = 0; i < size; i++)
            fprintf(file, "%s%d", i == 0 ? "\n" : i % 32 ? "," : ",\n", data[i]);
        ok = fprintf(file, "\n};\n") > 0;
    } else if (ok) {
        ok = fwrite(data, size, 1, file) == 1;
    }
    if (!file || fclose(file) != 0 || !ok)
        die("cannot write %s", path);
}

/*  What is in a bundle, by architecture. */
static void bundle_list(const char *path, const void *data, size_t size, bool all)
{
    ignis__bundle bundle = IGNIS__ZERO;
    ignis__text text;
    char words[300], *archs[MAX_ARCHS];
    size_t stored[MAX_ARCHS] = {0}, raw[MAX_ARCHS] = {0};
    int count[MAX_ARCHS] = {0}, arch_count = 0;
    ignis__text_begin(&text, words, sizeof words);
    if (!ignis__bundle_open(&bundle, data, size, &text))
        die("%s is no bundle: %s", path, words);
    for (uint32_t i = 0; i < bundle.header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(&bundle, i);
        char arch[16];
        int a = 0;
        snprintf(arch, sizeof arch, "%s%d%s", entry.kind == 'p' ? "ptx" : "", entry.arch,
                 entry.kind == 'a'   ? "a"
                 : entry.kind == 'f' ? "f"
                                     : "");
        while (a < arch_count && strcmp(archs[a], arch) != 0)
            a++;
        if (a == MAX_ARCHS)
            die("%s is for more than %d architectures", path, MAX_ARCHS);
        if (a == arch_count)
            archs[arch_count++] = text_copy(arch, strlen(arch));
        stored[a] += (size_t)entry.stored;
        raw[a] += (size_t)entry.size;
        count[a]++;
        if (all)
            printf("%8s %9llu %9llu  %s\n", arch, (unsigned long long)entry.stored, (unsigned long long)entry.size,
                   ignis__bundle_text(&bundle, &entry));
    }
    for (int a = 0; a < arch_count; a++)
        printf("%-8s %3d programs, %7.1f KB, unpacked %7.1f KB\n", archs[a], count[a], (double)stored[a] / 1024, (double)raw[a] / 1024);
    printf("%s: Ignis %d.%d.%d, %.1f KB\n", path, (int)bundle.header.version / 10000, (int)bundle.header.version / 100 % 100,
           (int)bundle.header.version % 100, (double)size / 1024);
}

/* >>main -------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *out = NULL, *name = "ignis_bundle", *list = NULL;
    target targets[MAX_ARCHS];
    int target_count = 0, job_count, failed = 0;
    bool plain = false;
    unsigned char *data;
    size_t size;
    for (int i = 1; i < argc; i++) {
        bool takes_one = argv[i][0] == '-' && strcmp(argv[i], "--plain") != 0;
        if (takes_one && i + 1 == argc)
            die("%s needs something behind it; the beginning of tools/ignis_embed.c tells what there is", argv[i]);
        if (strcmp(argv[i], "--archs") == 0)
            target_count = targets_read(argv[++i], false, targets, target_count);
        else if (strcmp(argv[i], "--ptx") == 0)
            target_count = targets_read(argv[++i], true, targets, target_count);
        else if (strcmp(argv[i], "-o") == 0)
            out = argv[++i];
        else if (strcmp(argv[i], "--name") == 0)
            name = argv[++i];
        else if (strcmp(argv[i], "--list") == 0)
            list = argv[++i];
        else if (strcmp(argv[i], "--plain") == 0)
            plain = true;
        else if (takes_one)
            die("there is no %s; the beginning of tools/ignis_embed.c tells what there is", argv[i]);
        else
            record_read(argv[i]);
    }
    if (list) {
        void *bundle = ignis__file_read(list, &size);
        if (!bundle)
            die("cannot read %s", list);
        bundle_list(list, bundle, size, true);
        return 0;
    }
    if (!out || request_count == 0 || target_count == 0)
        die("a record with programs, --archs or --ptx, and -o FILE are needed");
    if (!ignis__library_load(call, IGNIS_LIBRARY_NVRTC))
        return 1;
    costs_make();
    job *jobs = jobs_make(targets, target_count, plain, &job_count);
    qsort(jobs, (size_t)job_count, sizeof *jobs, job_compare);
    ignis__parallel(job_count, compile, jobs);
    for (int i = 0; i < job_count; i++)
        failed += jobs[i].failed;
    if (failed)
        die("%d of %d programs do not compile; nothing is written", failed, job_count);
    data = bundle_make(jobs, job_count, &size);
    bundle_write(out, name, data, size);
    bundle_list(out, data, size, false);
    return 0;
}
