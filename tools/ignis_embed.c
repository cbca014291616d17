// SPDX-License-Identifier: MIT
/*  ignis_embed.c - compiles the programs that a record names, for machines that have the driver alone

        cc -O2 -I. tools/ignis_embed.c -o ignis_embed -lm -ldl -lpthread
        ignis_embed game.record --archs 75,80,86,89,90a,100,120 --ptx 75 -o game.ignis

    Records are what a program writes with ignis_desc.record or IGNIS_RECORD=game.record; several may be given. Needs
    NVRTC, which is looked for as Ignis does, and no GPU. See ON SHIPPING in ignis.h.

        --archs LIST    compute capabilities to compile machine code for: 80 runs on 8.0, 8.6 and 8.9, 90a on 9.0 alone
        --ptx LIST      compute capabilities to compile PTX for, which the driver compiles on everything newer, slowly
        -o FILE         FILE.h becomes a C header with an array ignis_bundle, anything else a file for
        ignis_desc.bundle_path
        --name NAME     of the array in the header
        --plain         does not pack the images: the bundle is seven times as large, and is made and read faster
        --list FILE     says what is in a bundle, and does nothing else
        --help          says this, and does nothing else

    Equal records give equal bundles. Images of one architecture are packed together: see ignis__unpack.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h" /* programs that have it ask for more kernels */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_part.h"

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

static uint32_t pack_length(packer *p, size_t at, unsigned again, uint32_t length, bool writes)
{
    uint32_t more = length - (2 - again);
    uint32_t cost =
        pack_bits(p, IGNIS__PACK_LENGTH + (again * 16 + (unsigned)(at & 15)) * 32, 5, more < 31 ? more : 31, writes);
    return more < 31 ? cost : cost + pack_number(p, IGNIS__PACK_LONG, 0, more - 30, writes);
}

static uint32_t pack_distance(packer *p, uint32_t length, uint32_t distance, bool writes)
{
    unsigned kind = length < 5 ? length - 2 : 3;
    return pack_number(p, IGNIS__PACK_DISTANCE + kind * IGNIS__PACK_NUMBERS, IGNIS__PACK_LOW + 16 * (kind > 1),
                       distance, writes);
}

/*  The cheapest way to a place that is known: by a new byte, or by bytes that were there before, and behind these
    perhaps by a new byte and more at the same distance. */
typedef struct pack_step {
    uint32_t cost, length,
        more;         /* length 0: a new byte; more: bytes behind a new one behind the length (0: that ends the step) */
    uint32_t last[4]; /* distances, the last one first */
    unsigned before, which; /* which: of the last distances of the step before; 4: a new one */
} pack_step;

static size_t step_size(const pack_step *s) { return s->more || !s->length ? s->length + 1 + s->more : s->length; }

static void step_to(pack_step *to, const pack_step *from, uint32_t cost, uint32_t length, uint32_t more, unsigned which,
                    uint32_t distance)
{
    if (cost >= to->cost)
        return;
    to->cost = cost;
    to->length = length;
    to->more = more;
    to->which = which;
    to->before = more ? 2 : !length ? 0 : which < 4 ? 2 : 1;
    memcpy(to->last, from->last, sizeof to->last);
    if (!length)
        return;
    for (unsigned i = which < 4 ? which : 3; i > 0; i--)
        to->last[i] = from->last[i - 1];
    to->last[0] = distance;
}

enum { HASHES = 1 << 16, TRIES = 64, LONG_MATCH = 300, PASSES = 2 };

static uint32_t same_bytes(const unsigned char *in, size_t size, size_t at, uint32_t distance)
{
    uint32_t length = 0;
    while (at + length < size && in[at + length] == in[at + length - distance])
        length++;
    return length;
}

/*  A step by `length` bytes, whose cost is known, a new one, and more at the same distance, if there are any. */
static void steps_on(packer *p, const unsigned char *in, size_t size, pack_step *steps, size_t at, uint32_t length,
                     unsigned which, uint32_t distance, uint32_t known)
{
    size_t new_at = at + length;
    unsigned before = !length ? steps[at].before : which < 4 ? 2 : 1;
    uint32_t more = new_at + 1 < size ? same_bytes(in, size, new_at + 1, distance) : 0;
    if (more == 0)
        return;
    known += pack_new(p, before, new_at, in[new_at], false);
    known += pack_one(p, IGNIS__PACK_KIND + (unsigned)((new_at + 1) & 15), 1, false) +
             pack_one(p, IGNIS__PACK_AGAIN, 1, false);
    known += pack_bits(p, IGNIS__PACK_WHICH, 2, 0, false) + pack_length(p, new_at + 1, 1, more, false);
    step_to(&steps[new_at + 1 + more], &steps[at], known, length, more, which, distance);
}

/*  Steps from one place by bytes that were there before, at a distance; how many there are. Of very many all are taken.
    */
static uint32_t steps_by(packer *p, const unsigned char *in, size_t size, pack_step *steps, size_t at,
                         uint32_t distance, uint32_t longest, const uint32_t *length_cost, unsigned which,
                         uint32_t known)
{
    const pack_step *here = &steps[at];
    uint32_t length = same_bytes(in, size, at, distance), cost[4] = {known, known, known, known};
    unsigned again = which < 4;
    if (length <= longest)
        return length;
    for (uint32_t kind = 0; kind < 4 && !again; kind++)
        cost[kind] += pack_distance(p, kind + 2, distance, false);
    for (uint32_t i = longest + 1; i <= length && i < LONG_MATCH; i++) {
        known = cost[again || i > 4 ? 3 : i - 2] + length_cost[i];
        step_to(&steps[at + i], here, known, i, 0, which, distance);
    }
    if (length >= LONG_MATCH)
        step_to(&steps[at + length], here, cost[3] + pack_length(p, at, again, length, false), length, 0, which,
                distance);
    else
        steps_on(p, in, size, steps, at, length, which, distance, known);
    return length;
}

/*  Finds the steps to all places, by what bits cost with the odds that the pass before has ended with. */
static void steps_find(packer *p, const unsigned char *in, size_t size, pack_step *steps, int32_t *heads,
                       int32_t *chain)
{
    uint32_t length_cost[16][2][LONG_MATCH];
    size_t dull = 0; /* up to there all is as before, and nothing better is looked for */
    for (uint32_t i = 2; i < LONG_MATCH; i++)
        for (unsigned place = 0; place < 16; place++)
            for (unsigned again = 0; again < 2; again++)
                length_cost[place][again][i] = pack_length(p, place, again, i, false);
    for (unsigned place = 0; place < 16; place++)
        length_cost[place][1][1] = pack_length(p, place, 1, 1, false);
    for (size_t i = 0; i <= size; i++)
        steps[i].cost = UINT32_MAX;
    for (int i = 0; i < HASHES; i++)
        heads[i] = -1;
    memset(&steps[0], 0, sizeof steps[0]);
    for (size_t at = 0; at < size; at++) {
        const pack_step here = steps[at];
        uint32_t known, again, longest = 1, length = 0, word;
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
        step_to(&steps[at + 1], &here, here.cost + pack_new(p, here.before, at, in[at], false), 0, 0, 0, 0);
        if (here.last[0])
            steps_on(p, in, size, steps, at, 0, 0, here.last[0], here.cost);
        again = known + pack_one(p, IGNIS__PACK_AGAIN + here.before, 1, false);
        for (unsigned which = 0; which < 4 && here.last[which]; which++) {
            uint32_t reach = steps_by(p, in, size, steps, at, here.last[which], 0, length_cost[at & 15][1], which,
                                      again + pack_bits(p, IGNIS__PACK_WHICH, 2, which, false));
            length = reach > length ? reach : length;
        }
        known += pack_one(p, IGNIS__PACK_AGAIN + here.before, 0, false);
        for (int tries = 0; from >= 0 && tries < TRIES && length < LONG_MATCH; tries++, from = chain[from]) {
            length = steps_by(p, in, size, steps, at, (uint32_t)at - (uint32_t)from, longest, length_cost[at & 15][0],
                              4, known);
            longest = length > longest ? length : longest;
        }
        if (length >= LONG_MATCH)
            dull = at + length;
    }
}

static void write_bytes(packer *p, unsigned before, size_t at, uint32_t length, unsigned which, uint32_t distance)
{
    unsigned again = which < 4;
    pack_one(p, IGNIS__PACK_KIND + 16 * before + (unsigned)(at & 15), 1, true);
    pack_one(p, IGNIS__PACK_AGAIN + before, again, true);
    pack_length(p, at, again, length, true);
    if (again)
        pack_bits(p, IGNIS__PACK_WHICH, 2, which, true);
    else
        pack_distance(p, length, distance, true);
}

/*  Writes the steps that lead to the end; how many bytes. */
static size_t steps_write(packer *p, const unsigned char *in, size_t size, const pack_step *steps, uint32_t *order,
                          unsigned char *out)
{
    size_t count = 0;
    unsigned before = 0;
    for (size_t at = size; at > 0; at -= step_size(&steps[at]))
        order[count++] = (uint32_t)at;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < IGNIS__PACK_ODDS; i++)
        p->odds[i][0] = p->odds[i][1] = 32768;
    p->out = out;
    p->range = UINT32_MAX;
    p->waiting = 1;
    while (count-- > 0) {
        const pack_step *s = &steps[order[count]];
        size_t at = order[count] - step_size(s);
        if (s->length)
            write_bytes(p, before, at, s->length, s->which, s->last[0]);
        before = !s->length ? before : s->which < 4 ? 2 : 1;
        if (s->more || !s->length)
            pack_new(p, before, at + s->length, in[at + s->length], true);
        if (s->more)
            write_bytes(p, 0, at + s->length + 1, s->more, 0, s->last[0]);
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
    int32_t *heads = (int32_t *)grow(NULL, HASHES * sizeof *heads),
            *chain = (int32_t *)grow(NULL, size * sizeof *chain);
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

/*  Text that is the program's, or a source of Ignis. */
static void request_add(ignis__program *program, int first, int last)
{
    request *r, added;
    ignis__string_writer text;
    memset(&added, 0, sizeof added);
    added.program = *program;
    added.first = first;
    added.last = last;
    ignis__program_key(program, added.key);
    ignis__string_begin(&text, added.name, sizeof added.name);
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

static void record_read(const char *path)
{
    size_t size;
    char *text = (char *)ignis__file_read(path, &size), *line = text, *end;
    if (!text)
        die("cannot read %s", path);
    text[size] = 0;
    for (int number = 1; *line; line = end, number++) {
        ignis__request *asked = (ignis__request *)grow(NULL, sizeof *asked);
        ignis__formula_source other;
        char reason[300];
        ignis__string_writer why;
        end = line + strcspn(line, "\n");
        end += *end == '\n' ? (*end = 0, 1) : 0;
        ignis__string_begin(&why, reason, sizeof reason);
        if (!ignis__request_read(line, ignis__request_read_formula, asked, &why))
            die("%s:%d: %s", path, number, reason);
        if (asked->program.own)
            asked->program.source = ignis__source_join(asked->program.own);
        if (asked->program.name)
            request_add(&asked->program, asked->first, asked->last);
        for (int turn = 0; ignis__request_variant(asked, turn, &other); turn++)
            request_add(&other.program, asked->first, asked->last);
    }
}

/* >>compiling --------------------------------------------------------------------------------------------------- */

typedef struct target {
    int arch;
    char kind; /* as in ignis__bundle_entry */
} target;

/*  Returns the source of a program as it is compiled: kernels of its other parts are left out. */
static char *source_of_part(const ignis__program *program)
{
    size_t length = strlen(program->source), size = length + 64;
    ignis__string_writer text;
    char *source;
    ignis__builtin other;
    for (int i = 0; program->part && (other = ignis__builtin_of_source(program->own, i)) != NULL; i++)
        size += 3 * strlen(other->entry) + 60;
    source = (char *)grow(NULL, size);
    ignis__string_begin(&text, source, size);
    for (int i = 0; program->part && (other = ignis__builtin_of_source(program->own, i)) != NULL; i++) {
        const char *entry = other->entry;
        if (strcmp(ignis__builtin_part(other), program->part) != 0)
            ignis__string_add(&text, KERNEL_LEFT_OUT, entry, entry, entry);
    }
    ignis__string_add(&text, "%s", program->part ? KERNEL_PART_BEGIN : "#line 1\n");
    memcpy(source + text.length, program->source, length + 1);
    return source;
}

/*  One program for one architecture. */
typedef struct job {
    const request *request;
    target target;
    ignis__kernel_binary image;
    int block;
    size_t at; /* in the block */
    bool failed;
} job;

/*  Images of one architecture, each with a zero behind it, at multiples of 16. */
typedef struct block {
    unsigned char *bytes, *stored;
    size_t size, stored_size, offset; /* offset: in the bundle */
    bool plain;
} block;

enum { BLOCK_BYTES = 2 << 20 }; /* that a block may have, if it is of more than one image: 30 ms to unpack */

static void compile(void *context, int index)
{
    job *j = (job *)context + index;
    ignis__program program = j->request->program;
    char arch[32], *source = source_of_part(&program);
    if (j->target.kind == 'p')
        snprintf(arch, sizeof arch, "-arch=compute_%d", j->target.arch);
    else
        snprintf(arch, sizeof arch, "-arch=sm_%d%c", j->target.arch, j->target.kind);
    program.source = source;
    j->failed = !ignis__kernel_binary_compile(call, &program, arch, j->target.kind == 'p', &j->image);
    free(source);
    if (!j->failed && ignis__kernel_binary_fault(j->image.data, j->image.size))
        die("%s for %s: %s", j->request->name, arch, ignis__kernel_binary_fault(j->image.data, j->image.size));
}

static void block_pack(void *context, int index)
{
    block *b = (block *)context + index;
    b->stored_size = b->size;
    b->stored = b->plain ? b->bytes : pack(b->bytes, b->size, &b->stored_size);
}

/*  Shares the images out: those of an architecture in the order of their names, as what is much alike has names that
    are. */
static block *blocks_make(job *jobs, int count, const target *targets, int target_count, bool plain, int *block_count)
{
    block *blocks = NULL, *b = NULL;
    *block_count = 0;
    for (int t = 0; t < target_count; t++) {
        for (int i = 0; i < count; i++) {
            job *j = &jobs[i];
            size_t padded = (j->image.size + 16) / 16 * 16;
            if (j->target.arch != targets[t].arch || j->target.kind != targets[t].kind || j->block >= 0)
                continue;
            if (!b || plain || b->size + padded > BLOCK_BYTES) {
                blocks = (block *)grow(blocks, ((size_t)*block_count + 1) * sizeof *blocks);
                b = &blocks[(*block_count)++];
                memset(b, 0, sizeof *b);
                b->plain = plain;
            }
            b->bytes = (unsigned char *)grow(b->bytes, b->size + padded);
            memset(b->bytes + b->size, 0, padded);
            memcpy(b->bytes + b->size, j->image.data, j->image.size);
            j->block = *block_count - 1;
            j->at = b->size;
            b->size += padded;
        }
        b = NULL;
    }
    return blocks;
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
static job *jobs_make(const target *targets, int target_count, int *count)
{
    job *jobs = NULL;
    *count = 0;
    for (int r = 0; r < request_count; r++) {
        for (int t = 0; t < target_count; t++) {
            const target *at = &targets[t];
            if (at->arch < requests[r].first || at->arch > requests[r].last ||
                (requests[r].first == requests[r].last && at->kind != 'a'))
                continue;
            jobs = (job *)grow(jobs, ((size_t)*count + 1) * sizeof *jobs);
            memset(&jobs[*count], 0, sizeof *jobs);
            jobs[*count].request = &requests[r];
            jobs[*count].block = -1;
            jobs[(*count)++].target = *at;
        }
    }
    return jobs;
}

/* >>output ------------------------------------------------------------------------------------------------------ */

static unsigned char *bundle_make(const job *jobs, int count, block *blocks, int block_count, size_t *size)
{
    ignis__bundle_header header;
    unsigned char *data;
    size_t texts = sizeof header + (size_t)count * sizeof(ignis__bundle_entry), begin = texts + 1;
    for (int i = 0; i < count; i++)
        begin += strlen(jobs[i].request->name) + strlen(jobs[i].image.lowered) + 2;
    *size = begin;
    for (int i = 0; i < block_count; i++) {
        blocks[i].offset = *size;
        *size += blocks[i].stored_size;
    }
    data = (unsigned char *)grow(NULL, *size);
    memset(data, 0, begin);
    for (int i = 0; i < block_count; i++)
        memcpy(data + blocks[i].offset, blocks[i].stored, blocks[i].stored_size);
    for (int i = 0; i < count; i++) {
        ignis__bundle_entry entry;
        const job *j = &jobs[i];
        const block *b = &blocks[j->block];
        memset(&entry, 0, sizeof entry);
        memcpy(entry.key, j->request->key, sizeof entry.key);
        entry.included = ignis__program_included(&j->request->program);
        entry.checksum = ignis__hash(IGNIS__HASH_START, b->stored, b->stored_size);
        entry.offset = b->offset;
        entry.stored = b->stored_size;
        entry.whole = b->size;
        entry.at = j->at;
        entry.size = j->image.size;
        entry.text = (uint32_t)texts;
        entry.arch = (uint16_t)j->target.arch;
        entry.first = (uint16_t)j->request->first;
        entry.last = (uint16_t)j->request->last;
        entry.kind = (uint8_t)j->target.kind;
        memcpy(data + sizeof header + (size_t)i * sizeof entry, &entry, sizeof entry);
        texts += (size_t)sprintf((char *)data + texts, "%s", j->request->name) + 1;
        texts += (size_t)sprintf((char *)data + texts, "%s", j->image.lowered) + 1;
    }
    memset(&header, 0, sizeof header);
    memcpy(header.magic, ignis__bundle_magic, sizeof header.magic);
    header.size = *size;
    header.blocks = begin;
    header.sources = ignis__sources_hash();
    header.version = IGNIS_VERSION;
    header.count = (uint32_t)count;
    memcpy(data, &header, sizeof header);
    header.checksum = ignis__hash(IGNIS__HASH_START, data + offsetof(ignis__bundle_header, size),
                                  begin - offsetof(ignis__bundle_header, size));
    memcpy(data, &header, sizeof header);
    return data;
}

static void bundle_write(const char *path, const char *name, const unsigned char *data, size_t size)
{
    const char *dot = strrchr(path, '.');
    FILE *file = fopen(path, "wb");
    bool ok = file != NULL;
#ifndef _WIN32
    struct stat info;
    if (ok && fstat(fileno(file), &info) == 0 &&
        S_ISREG(info.st_mode)) /* IGNIS_BUNDLE takes no file that others may write to */
        (void)fchmod(fileno(file), info.st_mode & 07755);
#endif
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
    ok = ok && !ferror(file);
    if (file && fclose(file) == 0 && ok)
        return;
    if (file && !ignis__path_is_special(path)) /* a half would be newer than the record, and count as made */
        (void)ignis__file_remove(path);
    die("cannot write %s", path);
}

/*  What is in a bundle, by architecture. */
static void bundle_list(const char *path, const void *data, size_t size, bool all)
{
    ignis__bundle bundle = IGNIS__ZERO;
    ignis__string_writer text;
    char words[300], *archs[MAX_ARCHS];
    size_t stored[MAX_ARCHS] = {0}, raw[MAX_ARCHS] = {0};
    int count[MAX_ARCHS] = {0}, arch_count = 0;
    ignis__string_begin(&text, words, sizeof words);
    if (!ignis__bundle_open(&bundle, data, size, &text))
        die("%s is no bundle: %s", path, words);
    for (uint32_t i = 0; i < bundle.header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(&bundle, i);
        char arch[16];
        uint32_t earlier;
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
        for (earlier = 0; earlier < i && ignis__bundle_get(&bundle, earlier).offset != entry.offset; earlier++)
            ;
        stored[a] += earlier < i ? 0 : (size_t)entry.stored;
        raw[a] += (size_t)entry.size;
        count[a]++;
        if (all)
            printf("%8s %9.0f %9llu  %s\n", arch, (double)entry.size * (double)entry.stored / (double)entry.whole,
                   (unsigned long long)entry.size, ignis__bundle_text(&bundle, &entry)); /* its share of the block */
    }
    for (int a = 0; a < arch_count; a++)
        printf("%-8s %3d programs, %7.1f KB, unpacked %7.1f KB\n", archs[a], count[a], (double)stored[a] / 1024,
               (double)raw[a] / 1024);
    printf("%s: Ignis %d.%d.%d, %.1f KB\n", path, (int)bundle.header.version / 10000,
           (int)bundle.header.version / 100 % 100, (int)bundle.header.version % 100, (double)size / 1024);
}

/* >>main -------------------------------------------------------------------------------------------------------- */

static const char help[] =
    "ignis_embed RECORD... --archs LIST --ptx LIST -o FILE\n"
    "compiles the programs that a record names, for machines that have NVIDIA's driver alone. Needs NVRTC, and no "
    "GPU.\n"
    "\n"
    "    RECORD          what a program writes with IGNIS_RECORD=FILE in its environment, or ignis_desc.record\n"
    "    --archs LIST    compute capabilities to compile machine code for, such as 75,80,86,89,90a,100,120\n"
    "    --ptx LIST      compute capabilities to compile PTX for, which the driver compiles on everything newer, "
    "slowly\n"
    "    -o FILE         FILE.h becomes a C header with an array ignis_bundle, anything else a file for "
    "ignis_desc.bundle_path\n"
    "    --name NAME     of the array in the header\n"
    "    --plain         does not pack the images: the bundle is seven times as large, and is made and read faster\n"
    "    --list FILE     says what is in a bundle, and does nothing else\n"
    "    --help          says this, and does nothing else\n"
    "\n"
    "See ON SHIPPING in ignis.h.\n";

int main(int argc, char **argv)
{
    const char *out = NULL, *name = "ignis_bundle", *list = NULL;
    target targets[MAX_ARCHS];
    int target_count = 0, job_count, block_count, failed = 0;
    block *blocks;
    bool plain = false;
    unsigned char *data;
    size_t size;
    for (int i = 1; i < argc; i++) {
        bool takes_one = argv[i][0] == '-' && strcmp(argv[i], "--plain") != 0, asks = strcmp(argv[i], "--help") == 0;
        if (asks || strcmp(argv[i], "-h") == 0)
            return fputs(help, stdout) == EOF;
        if (takes_one && i + 1 == argc)
            die("%s needs something behind it; --help tells what there is", argv[i]);
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
            die("there is no %s; --help tells what there is", argv[i]);
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
        die("a record with programs, --archs or --ptx, and -o FILE are needed; --help tells what there is");
    if (!ignis__library_load(call, IGNIS_LIBRARY_NVRTC))
        return 1;
    costs_make();
    job *jobs = jobs_make(targets, target_count, &job_count);
    qsort(jobs, (size_t)job_count, sizeof *jobs, job_compare);
    ignis__parallel(job_count, compile, jobs);
    for (int i = 0; i < job_count; i++)
        failed += jobs[i].failed;
    if (failed)
        die("%d of %d programs do not compile; nothing is written", failed, job_count);
    blocks = blocks_make(jobs, job_count, targets, target_count, plain, &block_count);
    ignis__parallel(block_count, block_pack, blocks);
    data = bundle_make(jobs, job_count, blocks, block_count, &size);
    bundle_write(out, name, data, size);
    bundle_list(out, data, size, false);
    return 0;
}
