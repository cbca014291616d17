/*  kernel/bundle.c - bundles: programs compiled beforehand by tools/ignis_embed.c

    Opened from memory or a file, checked, and unpacked block by block at the first use. Everything is untrusted
    until its checksum matches.
    May use: program.c, base/file_io.c. Locks: the bundle's lock guards its blocks. */

#include "room.h"

IGNIS__PRIVATE const char ignis__bundle_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'N', '2'};

IGNIS__PRIVATE ignis__bundle ignis__the_bundle;             /* of ignis_setup */
static ignis__mutex ignis__bundle_lock = IGNIS__MUTEX_INIT; /* for its blocks */

IGNIS__PRIVATE ignis__bundle_entry ignis__bundle_get(const ignis__bundle *bundle, uint32_t index)
{
    ignis__bundle_entry entry;
    memcpy(&entry, bundle->data + sizeof(ignis__bundle_header) + index * sizeof entry, sizeof entry);
    return entry;
}

IGNIS__PRIVATE const char *ignis__bundle_text(const ignis__bundle *bundle, const ignis__bundle_entry *entry)
{
    return (const char *)bundle->data + entry->text;
}

/*  Returns a hash of the built-in sources, with 32 bits for each table, the lowest for that of ignis.h; 0 for a
    missing table. */
IGNIS__PRIVATE uint64_t ignis__sources_hash(void)
{
    const ignis__kernel_table *table;
    uint64_t hashes = 0;
    int i;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; i++)
        hashes |= (table->hash >> 32) << 32 * i;
    return hashes;
}

/*  Adds a reason to a text, and returns false. */
IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE bool ignis__explain(ignis__string_writer *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__string_addv(why, format, args);
    va_end(args);
    return false;
}

/*  Checks everything except the images. False, with the reason in `why`, if it is not a bundle. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__bundle_open(ignis__bundle *bundle, const void *data, size_t size,
                                                   ignis__string_writer *why)
{
    ignis__bundle_header *header = &bundle->header;
    const unsigned char *bytes = (const unsigned char *)data;
    size_t behind = offsetof(ignis__bundle_header, size);
    uint64_t texts, checksum;
    uint32_t i;
    if (size < sizeof *header)
        return ignis__explain(why, "it has %llu bytes, %d are the least", (unsigned long long)size,
                              (int)sizeof *header);
    memcpy(header, data, sizeof *header);
    texts = sizeof *header + (uint64_t)header->count * sizeof(ignis__bundle_entry);
    if (memcmp(header->magic, ignis__bundle_magic, sizeof header->magic) != 0)
        return ignis__explain(why, "it does not begin with %.8s", ignis__bundle_magic);
    if (header->size != size)
        return ignis__explain(why, "it has %llu bytes, and says that it has %llu", (unsigned long long)size,
                              (unsigned long long)header->size);
    if (header->blocks > size || texts >= header->blocks || bytes[header->blocks - 1] != 0)
        return ignis__explain(why, "%u entries and their names do not end at byte %llu of %llu",
                              (unsigned)header->count, (unsigned long long)header->blocks, (unsigned long long)size);
    checksum = ignis__hash(IGNIS__HASH_START, bytes + behind, (size_t)header->blocks - behind);
    if (checksum != header->checksum)
        return ignis__explain(why, "its entries have the checksum %016llx, which should be %016llx",
                              (unsigned long long)checksum, (unsigned long long)header->checksum);
    bundle->data = bytes;
    for (i = 0; i < header->count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        bool named = entry.text >= texts && entry.text < header->blocks &&
                     entry.text + strlen(ignis__bundle_text(bundle, &entry)) + 1 < header->blocks;
        if (!named || entry.offset < header->blocks || entry.offset > size || entry.stored > size - entry.offset ||
            entry.stored > entry.whole || entry.whole > IGNIS__BUNDLE_IMAGE || entry.at >= entry.whole ||
            entry.size >= entry.whole - entry.at || !memchr("\0afp", entry.kind, 4)) {
            ignis__string_add(
                why,
                "entry %u of %u: the name at %u, %llu bytes at %llu that become %llu, of which %llu at %llu, kind %d",
                (unsigned)i, (unsigned)header->count, (unsigned)entry.text, (unsigned long long)entry.stored,
                (unsigned long long)entry.offset, (unsigned long long)entry.whole, (unsigned long long)entry.size,
                (unsigned long long)entry.at, (int)entry.kind);
            bundle->data = NULL;
            return false;
        }
        bundle->wgmma =
            bundle->wgmma || (entry.kind == 'a' && strstr(ignis__bundle_text(bundle, &entry), "_hopper") != NULL);
    }
    return true;
}

static unsigned ignis__unpack_bit(ignis__unpacker *u, unsigned index)
{
    uint16_t *odds = u->odds[index];
    uint32_t bound;
    if (u->range < 1u << 24) {
        u->range <<= 8;
        u->code = u->code << 8 | (u->at < u->end ? *u->at++ : 0u);
    }
    bound = (u->range >> 16) * (((uint32_t)odds[0] + odds[1]) / 2);
    if (u->code < bound) {
        u->range = bound;
        odds[0] = (uint16_t)(odds[0] + (65535 - odds[0]) / 16);
        odds[1] = (uint16_t)(odds[1] + (65535 - odds[1]) / 64);
        return 0;
    }
    u->code -= bound;
    u->range -= bound;
    odds[0] = (uint16_t)(odds[0] - odds[0] / 16);
    odds[1] = (uint16_t)(odds[1] - odds[1] / 64);
    return 1;
}

static unsigned ignis__unpack_bits(ignis__unpacker *u, unsigned index, int count)
{
    unsigned bits = 1;
    while (!(bits >> count))
        bits = 2 * bits + ignis__unpack_bit(u, index + bits);
    return bits - (1u << count);
}

/*  Decodes a number of 1 or more: its count of bits, then those below the highest one; the lowest 4 have odds of
    their own if `low` is not 0. */
static uint32_t ignis__unpack_number(ignis__unpacker *u, unsigned index, unsigned low)
{
    unsigned count = ignis__unpack_bits(u, index, 5), i;
    uint32_t number = 1;
    for (i = count; i > 0 && !(low && i == 4); i--)
        number = number << 1 | ignis__unpack_bit(u, index + 32 + count * 32 + i - 1);
    return i ? number << 4 | ignis__unpack_bits(u, low, 4) : number;
}

/*  Unpacks a block. False if it is damaged. */
IGNIS__PRIVATE bool ignis__unpack(ignis__unpacker *u, unsigned char *out, size_t size, const unsigned char *packed,
                                  size_t packed_size)
{
    size_t at = 0, i;
    uint32_t last[4] = {0, 0, 0, 0}, distance, length; /* distances, the last one first */
    unsigned before = 0, again, kind, which; /* before: 0 a new byte, 1 and 2 bytes at a new and at an old distance */
    for (i = 0; i < IGNIS__PACK_ODDS; i++)
        u->odds[i][0] = u->odds[i][1] = 32768;
    u->at = packed;
    u->end = packed + packed_size;
    u->range = 0xFFFFFFFFu;
    for (i = 0; i < 4; i++)
        u->code = u->code << 8 | (u->at < u->end ? *u->at++ : 0u);
    while (at < size) {
        if (!ignis__unpack_bit(u, IGNIS__PACK_KIND + 16 * before + (at & 15))) {
            out[at] = (unsigned char)ignis__unpack_bits(
                u, IGNIS__PACK_NEW + (before ? 4096u : 0u) + (unsigned)(at & 15) * 256, 8);
            at++;
            before = 0;
            continue;
        }
        again = ignis__unpack_bit(u, IGNIS__PACK_AGAIN + before);
        length = ignis__unpack_bits(u, IGNIS__PACK_LENGTH + (again * 16 + (unsigned)(at & 15)) * 32, 5);
        length = 2 - again + (length < 31 ? length : 30 + ignis__unpack_number(u, IGNIS__PACK_LONG, 0));
        which = 3;
        if (again) {
            which = ignis__unpack_bits(u, IGNIS__PACK_WHICH, 2);
            distance = last[which];
        } else {
            kind = length < 5 ? length - 2 : 3;
            distance = ignis__unpack_number(u, IGNIS__PACK_DISTANCE + kind * IGNIS__PACK_NUMBERS,
                                            IGNIS__PACK_LOW + 16 * (kind > 1));
        }
        for (; which > 0; which--)
            last[which] = last[which - 1];
        last[0] = distance;
        if (distance == 0 || distance > at || length > size - at)
            return false;
        for (; length > 0; length--, at++)
            out[at] = out[at - distance];
        before = 1 + again;
    }
    return true;
}

/*  Returns the block of an entry, unpacked; the lock is held. If it is damaged, `why` has the reason. */
IGNIS__COLD static ignis_diagnostic ignis__block_get(ignis__bundle *bundle, const ignis__bundle_entry *entry,
                                                     ignis__bundle_block **got, ignis__string_writer *why)
{
    const unsigned char *stored = bundle->data + entry->offset;
    ignis__bundle_block *block = bundle->blocks;
    ignis__unpacker *unpacker;
    uint64_t checksum;
    bool whole = true;
    while (block && block->offset != entry->offset)
        block = block->next;
    *got = block;
    if (block)
        return IGNIS_DIAG_NONE;
    checksum = ignis__hash(IGNIS__HASH_START, stored, (size_t)entry->stored);
    if (checksum != entry->checksum) {
        ignis__string_add(why, "its %llu bytes at %llu have the checksum %016llx, which should be %016llx",
                          (unsigned long long)entry->stored, (unsigned long long)entry->offset,
                          (unsigned long long)checksum, (unsigned long long)entry->checksum);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    block = (ignis__bundle_block *)ignis__alloc(sizeof *block);
    unpacker = (ignis__unpacker *)ignis__alloc(sizeof *unpacker);
    if (block)
        block->bytes = (unsigned char *)ignis__alloc((size_t)entry->whole);
    if (!block || !block->bytes || !unpacker) {
        if (block)
            ignis__free(block->bytes);
        ignis__free(block);
        ignis__free(unpacker);
        return IGNIS_DIAG_HOST_MEMORY;
    }
    if (entry->stored == entry->whole)
        memcpy(block->bytes, stored, (size_t)entry->whole);
    else
        whole = ignis__unpack(unpacker, block->bytes, (size_t)entry->whole, stored, (size_t)entry->stored);
    ignis__free(unpacker);
    if (!whole) {
        ignis__string_add(why, "%llu bytes at %llu cannot be unpacked to %llu", (unsigned long long)entry->stored,
                          (unsigned long long)entry->offset, (unsigned long long)entry->whole);
        ignis__free(block->bytes);
        ignis__free(block);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    block->offset = entry->offset;
    block->whole = entry->whole;
    block->next = bundle->blocks;
    bundle->blocks = *got = block;
    return IGNIS_DIAG_NONE;
}

/*  Returns the image of an entry, followed by a zero. It lives until the blocks are dropped. If it is damaged, `why`
    has the reason. */
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__bundle_unpack(ignis__bundle *bundle,
                                                                 const ignis__bundle_entry *entry, void **unpacked,
                                                                 ignis__string_writer *why)
{
    ignis__bundle_block *block;
    ignis_diagnostic wrong;
    const char *why_not = NULL;
    ignis__mutex_lock(&ignis__bundle_lock);
    wrong = ignis__block_get(bundle, entry, &block, why);
    ignis__mutex_unlock(&ignis__bundle_lock);
    if (wrong != IGNIS_DIAG_NONE)
        return wrong;
    if (entry->at >= block->whole || entry->size >= block->whole - entry->at ||
        block->bytes[entry->at + entry->size] != 0)
        why_not = "its block is another one";
    why_not = why_not ? why_not : ignis__kernel_binary_fault(block->bytes + entry->at, (size_t)entry->size);
    if (why_not) {
        ignis__string_add(why, "%s: %llu bytes at %llu of %llu that are at %llu", why_not,
                          (unsigned long long)entry->size, (unsigned long long)entry->at,
                          (unsigned long long)entry->whole, (unsigned long long)entry->offset);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    *unpacked = block->bytes + entry->at;
    return IGNIS_DIAG_NONE;
}

IGNIS__PRIVATE void ignis__blocks_drop(ignis__bundle *bundle)
{
    while (bundle->blocks) {
        ignis__bundle_block *block = bundle->blocks;
        bundle->blocks = block->next;
        ignis__free(block->bytes);
        ignis__free(block);
    }
}

/*  Returns how well an image serves a compute capability; 0 if it does not. Machine code serves its major version
    from its minor one on, or one chip; PTX serves all newer devices. */
IGNIS__PRIVATE int ignis__bundle_serves(const ignis__bundle_entry *entry, int capability)
{
    if (entry->kind == 'p')
        return entry->arch <= capability ? entry->arch : 0;
    if (entry->kind == 'a')
        return entry->arch == capability ? 3000 : 0;
    return entry->arch / 10 == capability / 10 && entry->arch <= capability ? 1000 + entry->arch : 0;
}

/*  Finds the image of a program that serves a compute capability best, among those rated below `below`. Returns its
    rating, 0 if there is none. */
IGNIS__COLD IGNIS__PRIVATE int ignis__bundle_find(const ignis__bundle *bundle, const uint64_t key[2], int capability,
                                                  int below, ignis__bundle_entry *found)
{
    int best = 0, serves;
    uint32_t i;
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (entry.key[0] != key[0] || entry.key[1] != key[1])
            continue;
        serves = ignis__bundle_serves(&entry, capability);
        if (serves > best && serves < below) {
            best = serves;
            *found = entry;
        }
    }
    return best;
}

/*  Writes "75 80 90a ptx75", the oldest first. */
IGNIS__COLD IGNIS__PRIVATE void ignis__bundle_archs(const ignis__bundle *bundle, const uint64_t *key,
                                                    ignis__string_writer *text)
{
    int last = 0, next;
    do {
        ignis__bundle_entry of_next = IGNIS__ZERO;
        uint32_t i;
        next = 0;
        for (i = 0; i < bundle->header.count; i++) {
            ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
            int place = (entry.kind == 'p' ? 65536 * 4 : 0) + entry.arch * 4 +
                        (entry.kind == 'a'   ? 1
                         : entry.kind == 'f' ? 2
                                             : 0) +
                        1;
            if (place > last && (next == 0 || place < next) &&
                (!key || (entry.key[0] == key[0] && entry.key[1] == key[1]))) {
                next = place;
                of_next = entry;
            }
        }
        if (next)
            ignis__string_add(text, "%s%s%d%s", last ? " " : "", of_next.kind == 'p' ? "ptx" : "", of_next.arch,
                              of_next.kind == 'a'   ? "a"
                              : of_next.kind == 'f' ? "f"
                                                    : "");
        last = next;
    } while (next);
}

/*  Reports a program that is in no bundle and no cache, and cannot be compiled. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__program_missing(const char *call, const ignis__program *program,
                                                       const ignis__device *device)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    const char *why = ignis__compile_never ? "ignis_desc.compile is IGNIS_COMPILE_NEVER" : "NVRTC is missing";
    char name[400], archs[128], line[480] = "";
    int first, last, capability = ignis__capability(&device->info);
    ignis__string_writer text;
    uint64_t key[2];
    ignis__program_range(program, &first, &last);
    ignis__program_key(program, key);
    ignis__string_begin(&text, name, sizeof name);
    ignis__program_write(&text, program);
    ignis__string_begin(&text, archs, sizeof archs);
    if (bundle->data)
        ignis__bundle_archs(bundle, key, &text);
    if (program->own)
        snprintf(line, sizeof line, ", or add this line to the record: own %d-%d %s", first, last, name);
    else if (program->line)
        snprintf(line, sizeof line, ", or add this line to the record: %s", program->line);
    if (archs[0])
        ignis__fail(IGNIS_DIAG_KERNEL_MISSING, call,
                    "%s is in %s for %s, but not for compute capability %d.%d, which device %d has, and %s. Make the "
                    "bundle with ignis_embed "
                    "--archs ...,%d",
                    name, bundle->from, archs, capability / 10, capability % 10, device->info.device, why, capability);
    else
        ignis__fail(IGNIS_DIAG_KERNEL_MISSING, call,
                    "%s is not in %s, for compute capability %d.%d, which device %d has, and %s. Record the program "
                    "where it is "
                    "requested (ignis_desc.record), and make the bundle from the record with ignis_embed%s",
                    name, bundle->data ? bundle->from : "the kernel cache, and no bundle is set", capability / 10,
                    capability % 10, device->info.device, why, line);
    return false;
}

/*  Checks whether the bundle or NVRTC has products by wgmma; NVRTC has them from 12.0 on. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__wgmma_compiles(const char *call)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    return bundle->wgmma || (!(bundle->data && ignis__compile_never) && ignis__compiler_release(call) >> 32 >= 12);
}

/*  Checks whether programs that are in no bundle and no cache are compiled. */
IGNIS__PRIVATE bool ignis__compiler_available(const char *call)
{
    return !ignis__compile_never && (!ignis__the_bundle.data ||
                                     ignis__library_available(call, IGNIS_LIBRARY_NVRTC,
                                                              "Kernels come from the bundle and from the cache alone"));
}

/*  Checks whether the bundle has a program for a device. */
IGNIS__PRIVATE bool ignis__program_bundled(const ignis__device *device, const ignis__program *program)
{
    ignis__bundle_entry entry;
    uint64_t key[2];
    if (!ignis__the_bundle.data)
        return false;
    ignis__program_key(program, key);
    return ignis__bundle_find(&ignis__the_bundle, key, ignis__capability(&device->info), INT32_MAX, &entry) > 0;
}

/*  Compiles a program for a device, if that is allowed. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__program_compile(const char *call, const ignis__program *program,
                                                       const ignis__device *device, ignis__kernel_binary *image)
{
    char arch[32];
    bool is_ptx;
    if (!ignis__compiler_available(call))
        return ignis__program_missing(call, program, device);
    return ignis__library_load(call, IGNIS_LIBRARY_NVRTC) &&
           ignis__arch_choose(call, device, arch, sizeof arch, &is_ptx) &&
           ignis__kernel_binary_compile(call, program, arch, is_ptx, image);
}
