/* ===============================================================================================================
   >>contract - acquire, release, assert, track, audit.
   =============================================================================================================== */

/*  What is tracked is kept in the array itself, under its lock; the tracking lock guards the counts and the freed ones. */
static void ignis__track(ignis__array *array, bool by_user)
{
    bool fresh = array->tracked_at_ns == 0;
    if (fresh || by_user)
        array->tracked_at_ns = ignis__monotonic_ns();
    array->tracked_by_user = array->tracked_by_user || by_user;
    if (fresh) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live++;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
}

static void ignis__untrack(ignis__array *array)
{
    if (array->tracked_at_ns) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live--;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
    array->tracked_at_ns = 0;
    array->tracked_by_user = false;
}

/*  Drops a freed array out of the list, which is locked. */
static void ignis__tracked_forget(ignis__tracked_freed **link)
{
    ignis__tracked_freed *freed = *link;
    *link = freed->next;
    ignis__tracking.freed_count--;
    ignis__free(freed);
}

/*  Makes a layer the owner of a held array until a call of it ends; the borrower tells the call from others, and may borrow an array again.
    Unlike ignis_contract_acquire it does not mind references, and leaves no trace: ignis__contract_return gives the array back. */
IGNIS__MAYBE_UNUSED static bool ignis__contract_borrow(const char *call, ignis__array *array, ignis_owner by, const void *borrower)
{
    ignis_owner owner;
    bool again;
    if (!ignis__array_lock(call, array))
        return false;
    owner = array->owner;
    again = array->borrower == borrower;
    if (owner == IGNIS_OWNER_IGNIS) {
        array->owner = by;
        array->borrower = borrower;
    }
    ignis__array_unlock(array);
    if (owner == IGNIS_OWNER_IGNIS || again)
        return true;
    return ignis__refuse(owner == by ? IGNIS_DIAG_DOUBLE_ACQUIRE : IGNIS_DIAG_OWNER_DIFFERS, call, "%s is owned by %s%s",
                         ignis__array_label(array).text, ignis__owner_name(owner),
                         owner == by ? " already: another thread's call works on it, or it was acquired"
                                     : ", which has to release it first");
}

IGNIS__MAYBE_UNUSED static void ignis__contract_return(ignis__array *array, const void *borrower)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->borrower == borrower) {
        array->owner = IGNIS_OWNER_IGNIS;
        array->borrower = NULL;
    }
    ignis__array_unlock(array);
}

IGNIS_API ignis_status ignis_contract_acquire(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_acquire";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner == by)
        ok = ignis__refuse(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "%s is already owned by %s: a double acquire", ignis__array_label(array).text,
                           ignis__owner_name(by));
    ok = ok && ignis__array_transfer(call, array, by) == IGNIS_OK;
    if (ok)
        ignis__track(array, false);
    return ignis__array_leave(call, array, ok);
}

IGNIS_API ignis_status ignis_contract_release(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_release";
    ignis__array *array;
    bool ok;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner != by)
        ok = ignis__refuse(IGNIS_DIAG_RELEASE_BY_OTHER, call, "%s is owned by %s, not by %s, which therefore cannot release it",
                           ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(by));
    return ignis__array_leave(call, array, ok && ignis__array_transfer(call, array, IGNIS_OWNER_IGNIS) == IGNIS_OK);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_contract_assert_owner";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, owner);
    if (ok && array->owner != owner)
        ok = ignis__refuse(IGNIS_DIAG_OWNER_DIFFERS, call, "%s was expected to be owned by %s, but is owned by %s",
                           ignis__array_label(array).text, ignis__owner_name(owner), ignis__owner_name(array->owner));
    return ignis__array_leave(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_track(ignis_array handle)
{
    static const char call[] = "ignis_contract_track";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ignis__track(array, true);
    return ignis__array_leave(call, array, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_untrack(ignis_array handle)
{
    static const char call[] = "ignis_contract_untrack";
    ignis__tracked_freed **link;
    ignis__array *array;
    bool live;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        live = ignis__pool_live(array); /* else another thread has freed it meanwhile */
        if (live)
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        if (live)
            return IGNIS_OK;
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (link = &ignis__tracking.freed; *link && (*link)->handle != handle.id; link = &(*link)->next)
        ;
    if (*link)
        ignis__tracked_forget(link);
    ignis__mutex_unlock(&ignis__tracking.lock);
    return IGNIS_OK;
}

static int ignis__audit_older(const void *a, const void *b)
{
    int64_t age_a = ((const ignis_contract_entry *)a)->age_ms, age_b = ((const ignis_contract_entry *)b)->age_ms;
    uint64_t id_a = ((const ignis_contract_entry *)a)->array_id, id_b = ((const ignis_contract_entry *)b)->array_id;
    return age_a != age_b ? (age_a < age_b) - (age_a > age_b) : (id_a > id_b) - (id_a < id_b);
}

/*  Audits are one at a time, and numbered: an array that is freed between the looks at the live and at the freed ones is listed once. */
static struct {
    ignis__mutex lock;
    uint64_t count;
} ignis__audits = {IGNIS__MUTEX_INIT, 0};

/*  Collects the oldest `capacity` entries in the order of their age; returns how many there are in all. */
typedef struct ignis__audit {
    ignis_contract_entry *entries;
    int capacity, kept, found;
    int64_t now_ns, min_age_ms;
} ignis__audit;

IGNIS__COLD static void ignis__audit_add(ignis__audit *audit, ignis_contract_entry *entry, int64_t tracked_at_ns)
{
    int place;
    entry->age_ms = (audit->now_ns - tracked_at_ns) / 1000000;
    if (entry->age_ms <= audit->min_age_ms)
        return;
    audit->found++;
    for (place = audit->kept; place > 0 && ignis__audit_older(entry, &audit->entries[place - 1]) < 0; place--)
        if (place < audit->capacity)
            audit->entries[place] = audit->entries[place - 1];
    if (place < audit->capacity)
        audit->entries[place] = *entry;
    if (audit->kept < audit->capacity)
        audit->kept++;
}

IGNIS__COLD IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms)
{
    static const char call[] = "ignis_contract_audit";
    ignis__audit audit = IGNIS__ZERO;
    ignis__tracked_freed *freed;
    ignis__slot *dead = NULL;
    ignis__array *array;
    uint64_t index = 0;
    if (!ignis__enter(call) || !ignis__room_given(call, "entries", entries, capacity))
        return -1;
    while (ignis__exports_reap && (array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        bool exported;
        ignis__mutex_lock(&array->slot.lock);
        exported = array->exports > 0;
        ignis__mutex_unlock(&array->slot.lock);
        if (exported)
            ignis__exports_reap(call, array, false);
        ignis__array_drop(call, array);
    }
    audit.entries = entries;
    audit.capacity = capacity;
    audit.now_ns = ignis__monotonic_ns();
    audit.min_age_ms = min_age_ms == 0 ? 5000 : min_age_ms;
    index = 0;
    ignis__mutex_lock(&ignis__audits.lock);
    ignis__audits.count++;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis_contract_entry entry;
        ignis__mutex_lock(&array->slot.lock);
        if (array->tracked_at_ns && ignis__pool_live(array)) {
            ignis__track_entry(array, &entry);
            ignis__audit_add(&audit, &entry, array->tracked_at_ns);
            array->audit = ignis__audits.count;
        }
        ignis__array_unlock(array);
        if (ignis__pool_drop(array)) { /* another thread has freed it meanwhile */
            array->slot.next_free = dead;
            dead = &array->slot;
        }
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (freed = ignis__tracking.freed; freed; freed = freed->next)
        if (freed->audit != ignis__audits.count)
            ignis__audit_add(&audit, &freed->entry, freed->tracked_at_ns);
    ignis__mutex_unlock(&ignis__tracking.lock);
    ignis__mutex_unlock(&ignis__audits.lock);
    while (dead) { /* without the lock: who is told of the release of wrapped memory may audit, too */
        array = (ignis__array *)(void *)dead;
        dead = dead->next_free;
        ignis__array_destroy(call, array);
    }
    return audit.found;
}

IGNIS_API int ignis_contract_tracked_count(void)
{
    int count;
    if (!ignis__enter("ignis_contract_tracked_count"))
        return -1;
    ignis__mutex_lock(&ignis__tracking.lock);
    count = ignis__tracking.live + ignis__tracking.freed_count;
    ignis__mutex_unlock(&ignis__tracking.lock);
    return count;
}

IGNIS__COLD static void ignis__tracking_reset(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    while (ignis__tracking.freed)
        ignis__tracked_forget(&ignis__tracking.freed);
    ignis__mutex_unlock(&ignis__tracking.lock);
}

IGNIS_API ignis_status ignis_contract_reset(void)
{
    static const char call[] = "ignis_contract_reset";
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tracking_reset(call);
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, Ignis' own kernels.
   =============================================================================================================== */

#include "ignis_kernels.h"

#if !defined(IGNIS_KERNELS_VERSION) || IGNIS_KERNELS_VERSION != IGNIS_VERSION
#error "ignis.h and ignis_kernels.h are of different versions: copy all headers of Ignis from one release"
#endif

enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  What is compiled: text, options, headers, and the name that is looked up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
    const ignis_kernel_header *headers; /* beside those of Ignis */
    int header_count;
    const void *image; /* what a compiler has made of it; then there is no text */
    size_t image_size;
    const char *part;           /* of a source of Ignis in records and bundles: the first of the kernels that are meant; null: all */
    const char *formula, *line; /* of a formula's kernel: its text, which messages have, and its line of a record; else null */
} ignis__program;

/*  What comes out: an image for one architecture, and the entry's name in it, in one block of memory. */
typedef struct ignis__image {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    uint64_t holds;            /* of the memory cache, and of those who load it */
    struct ignis__image *next; /* in the memory cache */
} ignis__image;

/*  Every kernel has a module of its own, loaded from an image, so that its __device__ variables are its own too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */

static struct {
    ignis__mutex lock;
    ignis__image *images;       /* the memory cache, last used first */
    ignis__mutex compiling[16]; /* by key: who asks for a program that is being compiled waits for it */
    char cache_dir[900];        /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken;     /* a warning was given */
    bool last_read;        /* the next one was looked for */
    uint64_t last_release; /* of the NVRTC that has last written to the disk cache */
} ignis__kernels_state;

IGNIS__COLD static char *ignis__source_join(const ignis__source *source)
{
    size_t size = 1, used = 0, length;
    char *text;
    int i;
    for (i = 0; i < source->line_count; i++)
        size += strlen(source->lines[i]) + 1;
    text = (char *)ignis__alloc(size);
    for (i = 0; text && i < source->line_count; i++) {
        length = strlen(source->lines[i]);
        memcpy(text + used, source->lines[i], length);
        used += length;
        text[used++] = '\n';
    }
    return text;
}

/*  Sources that others include. NVRTC gets them from memory, by their names. */
static bool ignis__source_is_header(int source) { return strstr(ignis__sources[source].name, ".cuh") != NULL; }

/* --- the disk cache ----------------------------------------------------------------------------------------------- */

/*  One file an image, named by its key: a header, the lowered name, the image. A file is written under another name and then
    renamed, so a reader meets a whole file or none; whatever is not whole is compiled again. */
typedef struct ignis__cache_header {
    char magic[8];
    uint64_t key[2];
    uint64_t lowered_size, image_size;
    uint64_t checksum; /* of what follows */
} ignis__cache_header;

static const char ignis__cache_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'I', '1'};

IGNIS__COLD static void ignis__cache_path(char *path, size_t size, const uint64_t key[2])
{
    snprintf(path, size, "%s/%016llx%016llx.ignis", ignis__kernels_state.cache_dir, (unsigned long long)key[0], (unsigned long long)key[1]);
}

/*  why: "", or the reason. */
IGNIS__COLD static void ignis__cache_warn(const char *call, const char *what, const char *path, const char *why)
{
    bool warned;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    warned = ignis__kernels_state.cache_broken;
    ignis__kernels_state.cache_broken = true;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!warned)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_CACHE_IO,
                    "%s: cannot %s %s%s%s; kernels are compiled again in every process. ignis_desc.cache_dir or "
                    "IGNIS_CACHE_DIR names another folder, \"off\" none",
                    call, what, path, *why ? ": " : "", why);
}

/*  Reads a file of the cache. One that others own or may write to is left alone: it could be anybody's program. */
IGNIS__COLD static void *ignis__cache_read(const char *call, const char *path, size_t *size)
{
    char why[160];
    void *data = ignis__file_read_as(path, size, why, sizeof why);
    if (*why)
        ignis__cache_warn(call, "use", path, why);
    return data;
}

/*  Makes the folder of the cache; false, and a warning: it is not there, or others own it or may write to it. */
IGNIS__COLD static bool ignis__cache_folder(const char *call)
{
    const char *folder = ignis__kernels_state.cache_dir;
    char why[160] = "";
    if (ignis__folder_make_all(folder) && ignis__path_is_private(folder, why, sizeof why))
        return true;
    ignis__cache_warn(call, *why ? "use the folder" : "make the folder", folder, why);
    return false;
}

/*  Whether a table of `count` times `each` bytes at `at` lies inside of an image. */
static bool ignis__image_has(size_t size, uint64_t at, uint64_t count, uint64_t each)
{
    return at <= size && count <= (size - at) / (each ? each : 1);
}

static uint64_t ignis__image_number(const unsigned char *image, uint64_t at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | image[at + (uint64_t)bytes];
    return number;
}

/*  The driver, which is told no size, must not read beyond an image, behind which a byte is 0. Null: it does not; else what is wrong. */
IGNIS__COLD static const char *ignis__image_fault(const void *data, size_t size)
{
    const unsigned char *image = (const unsigned char *)data;
    uint64_t i, sections, segments, count;
    if (size >= 64 && memcmp(image, "\177ELF\002", 5) == 0) {
        segments = ignis__image_number(image, 32, 8);
        sections = ignis__image_number(image, 40, 8);
        count = ignis__image_number(image, 60, 2);
        if ((count && ignis__image_number(image, 58, 2) != 64) || !ignis__image_has(size, sections, count, 64) ||
            !ignis__image_has(size, segments, ignis__image_number(image, 56, 2), ignis__image_number(image, 54, 2)))
            return "it is an ELF file, a cubin, whose tables are not inside of it";
        for (i = 0; i < count; i++) {
            uint64_t at = sections + 64 * i;
            if (ignis__image_number(image, at + 4, 4) != 8 && /* which has no bytes */
                !ignis__image_has(size, ignis__image_number(image, at + 24, 8), ignis__image_number(image, at + 32, 8), 1))
                return "it is an ELF file, a cubin, of which a section is not inside of it";
        }
        return NULL;
    }
    if (size >= 16 && ignis__image_number(image, 0, 4) == 0xBA55ED50u)
        return ignis__image_has(size, ignis__image_number(image, 6, 2), ignis__image_number(image, 8, 8), 1)
                   ? NULL
                   : "it is a fatbin that says it is longer";
    if (size > 0 && memchr(image, 0, size - 1) == NULL && strstr((const char *)image, ".version"))
        return NULL; /* PTX, with or without a zero at its end */
    return "it is neither a cubin, nor a fatbin, nor PTX";
}

/*  Whether bytes of a file, behind which there is room for one more, are the image of its key, which is then in them. */
IGNIS__COLD static bool ignis__cache_parse(ignis__image *image, char *file, size_t size)
{
    ignis__cache_header header;
    size_t body;
    if (size < sizeof header)
        return false;
    memcpy(&header, file, sizeof header);
    body = size - sizeof header;
    if (memcmp(header.magic, ignis__cache_magic, sizeof header.magic) != 0 || header.key[0] != image->key[0] ||
        header.key[1] != image->key[1] || header.lowered_size < 1 || header.lowered_size > body ||
        header.image_size != body - header.lowered_size || header.checksum != ignis__hash(IGNIS__HASH_START, file + sizeof header, body) ||
        memchr(file + sizeof header, 0, (size_t)header.lowered_size) != file + sizeof header + header.lowered_size - 1)
        return false;
    file[size] = 0;
    image->lowered = file + sizeof header;
    image->data = file + sizeof header + header.lowered_size;
    image->size = (size_t)header.image_size;
    return ignis__image_fault(image->data, image->size) == NULL;
}

IGNIS__COLD static bool ignis__image_from_disk(const char *call, ignis__image *image)
{
    char path[1024], *file;
    size_t size = 0;
    if (!ignis__kernels_state.cache_dir[0])
        return false;
    ignis__cache_path(path, sizeof path, image->key);
    file = (char *)ignis__cache_read(call, path, &size);
    if (!file)
        return false;
    if (ignis__cache_parse(image, file, size)) {
        image->memory = file;
        ignis__file_touch(path); /* the least recently used file is the first to go */
        return true;
    }
    ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_CACHE_IO, "%s: %s is damaged, and is made again", call, path);
    ignis__free(file);
    return false;
}

/*  Finds the oldest file of the cache, and the bytes of all. */
typedef struct ignis__cache_scan {
    int64_t total, oldest_time, oldest_size;
    char oldest[1024];
} ignis__cache_scan;

/*  Whether a file of the folder is the cache's own: the name of an image, 32 hexadecimal digits, or of what was to become one, or nvrtc.txt. */
static bool ignis__cache_is_own(const char *name)
{
    size_t length = strlen(name), digits = strspn(name, "0123456789abcdef"), part = strlen(".ignis-part");
    const char *behind = digits == 32 ? name + 32 : name;
    if (digits == 32 && strcmp(behind, ".ignis") == 0)
        return true;
    return (digits == 32 ? strncmp(behind, ".ignis.", 7) == 0 : strncmp(name, "nvrtc.txt.", 10) == 0) && length > part &&
           strcmp(name + length - part, ".ignis-part") == 0;
}

IGNIS__COLD static void ignis__cache_scan_file(void *context, const char *name)
{
    ignis__cache_scan *scan = (ignis__cache_scan *)context;
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s/%s", ignis__kernels_state.cache_dir, name);
    if (!ignis__cache_is_own(name) || !ignis__file_info(path, &size, &time))
        return;
    scan->total += size;
    if (!scan->oldest[0] || time < scan->oldest_time) {
        scan->oldest_time = time;
        scan->oldest_size = size;
        snprintf(scan->oldest, sizeof scan->oldest, "%s", path);
    }
}

IGNIS__COLD static void ignis__cache_evict(void)
{
    ignis__cache_scan scan;
    do {
        memset(&scan, 0, sizeof scan);
        if (!ignis__folder_list(ignis__kernels_state.cache_dir, ignis__cache_scan_file, &scan) ||
            scan.total <= ignis__kernels_state.cache_limit)
            return;
    } while (ignis__file_remove(scan.oldest));
}

/*  Writes down whose images these are: a program finds them without NVRTC, too. */
IGNIS__COLD static void ignis__cache_sign(const char *call)
{
    uint64_t release = ignis__libraries[IGNIS_LIBRARY_NVRTC].release;
    char path[1024], text[32], *part;
    FILE *file;
    bool ok, signs;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    signs = ignis__kernels_state.last_release != release;
    ignis__kernels_state.last_release = release;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!signs)
        return;
    snprintf(path, sizeof path, "%s/nvrtc.txt", ignis__kernels_state.cache_dir);
    snprintf(text, sizeof text, "%llx\n", (unsigned long long)release);
    part = ignis__file_part_path(path);
    file = part ? ignis__file_create(part, IGNIS__FILE_PRIVATE) : NULL;
    ok = file != NULL;
    if (ok) {
        ok = fwrite(text, strlen(text), 1, file) == 1;
        ok = fclose(file) == 0 && ok && ignis__file_rename(part, path);
        if (!ok)
            (void)ignis__file_remove(part);
    }
    ignis__free(part);
    if (!ok)
        ignis__cache_warn(call, "write", path, "");
}

IGNIS__COLD static void ignis__image_to_disk(const char *call, const ignis__image *image)
{
    char path[1024], *part;
    ignis__cache_header header;
    size_t lowered_size = strlen(image->lowered) + 1;
    FILE *file;
    bool ok;
    if (!ignis__kernels_state.cache_dir[0] || !ignis__cache_folder(call))
        return;
    memcpy(header.magic, ignis__cache_magic, sizeof header.magic);
    memcpy(header.key, image->key, sizeof header.key);
    header.lowered_size = lowered_size;
    header.image_size = image->size;
    header.checksum = ignis__hash(ignis__hash(IGNIS__HASH_START, image->lowered, lowered_size), image->data, image->size);
    ignis__cache_path(path, sizeof path, image->key);
    part = ignis__file_part_path(path);
    file = part ? ignis__file_create(part, IGNIS__FILE_PRIVATE) : NULL;
    if (!file) {
        ignis__cache_warn(call, "write", path, "");
        ignis__free(part);
        return;
    }
    ok = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(image->lowered, lowered_size, 1, file) == 1 &&
         fwrite(image->data, image->size, 1, file) == 1;
    ok = fclose(file) == 0 && ok;
    ok = ok && ignis__file_rename(part, path);
    if (!ok) {
        (void)ignis__file_remove(part);
        ignis__cache_warn(call, "write", path, "");
    }
    ignis__free(part);
    ignis__cache_sign(call);
    ignis__cache_evict();
}

/* --- the key of an image ---------------------------------------------------------------------------------------------- */

IGNIS__COLD static void ignis__key_add_bytes(uint64_t key[2], const void *data, size_t size)
{
    key[0] = ignis__hash(key[0], data, size);
    key[1] = ignis__hash(key[1] * 3, data, size);
}

IGNIS__COLD static void ignis__key_add(uint64_t key[2], const char *text) { ignis__key_add_bytes(key, text, strlen(text) + 1); }

/*  NVRTC reads included files from the folder of the source, of the including file and of each -I, and does not tell which it read. So every
    file that an #include could mean is looked for, and its text becomes part of the key: one too many does no harm. */
typedef struct ignis__included {
    struct ignis__included *next;
    char path[1024], tidy[1024];
    int64_t size, time;
} ignis__included;

typedef struct ignis__include_search {
    const ignis__program *program;
    ignis__included *first, **last; /* each file once, in the order it was found */
    int count;
    bool complete; /* every #include was understood, and every file could be listed */
} ignis__include_search;

#define IGNIS__MAX_INCLUDED 10000 /* more are a cycle of links */

static size_t ignis__folder_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] != '/' && path[length - 1] != '\\')
        length--;
    return length;
}

/*  Takes "folder/../" and "./" out of a path, so that headers that include each other are known again under ever longer names. What is left need
    not be the file: the folder may be a link to one elsewhere. */
static void ignis__path_tidy(char *path)
{
    char *at = path, *up, *folder;
    while ((up = strstr(path, "/./")) != NULL)
        memmove(up, up + 2, strlen(up + 2) + 1);
    while ((up = strstr(at, "/../")) != NULL) {
        for (folder = up; folder > path && folder[-1] != '/'; folder--)
            ;
        if (folder == up || strncmp(folder, "../", 3) == 0) {
            at = up + 3;
        } else {
            memmove(folder, up + 4, strlen(up + 4) + 1);
            at = path;
        }
    }
}

/*  Lists the file `name` of a folder, if there is one. */
IGNIS__COLD static void ignis__include_add(ignis__include_search *search, const char *folder, size_t folder_length, const char *name,
                                           size_t name_length)
{
    ignis__included *file;
    char path[sizeof file->path], tidy[sizeof file->tidy];
    bool slash = folder_length > 0 && folder[folder_length - 1] != '/' && folder[folder_length - 1] != '\\';
    int64_t size, time;
    int length = snprintf(path, sizeof path, "%.*s%s%.*s", (int)folder_length, folder, slash ? "/" : "", (int)name_length, name);
    if (length >= (int)sizeof path) {
        search->complete = false;
        return;
    }
    if (!ignis__file_info(path, &size, &time))
        return;
    memcpy(tidy, path, sizeof path);
    ignis__path_tidy(tidy);
    for (file = search->first; file; file = file->next)
        if (file->size == size && file->time == time && strcmp(file->tidy, tidy) == 0)
            return;
    file = search->count < IGNIS__MAX_INCLUDED ? (ignis__included *)ignis__alloc(sizeof *file) : NULL;
    if (!file) {
        search->complete = false;
        return;
    }
    memcpy(file->path, path, sizeof path);
    memcpy(file->tidy, tidy, sizeof tidy);
    file->size = size;
    file->time = time;
    *search->last = file;
    search->last = &file->next;
    search->count++;
}

/*  What an option names: the folder of "-Ifolder", "-I=folder", "--include-path=folder", the file of "-include=file", or what follows such
    an option as a string of its own. "" for macros. What names neither does no harm. */
static const char *ignis__option_value(const char *option)
{
    if (option[0] != '-')
        return option;
    if (option[1] == 'D' || option[1] == 'U')
        return "";
    option += option[1] == 'I' ? 2 : strcspn(option, "= ");
    return option + strspn(option, "= ");
}

static bool ignis__header_is_known(const ignis__program *program, const char *name, size_t length)
{
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++)
        if (ignis__source_is_header(i) && strlen(ignis__sources[i].name) == length && memcmp(ignis__sources[i].name, name, length) == 0)
            return true;
    for (i = 0; i < program->header_count; i++)
        if (strlen(program->headers[i].name) == length && memcmp(program->headers[i].name, name, length) == 0)
            return true;
    return false;
}

/*  Lists what an #include of a name in a file could mean: no file when there is such a header in memory. */
IGNIS__COLD static void ignis__include_find(ignis__include_search *search, const char *includer, const char *name, size_t length)
{
    const ignis__program *program = search->program;
    int i;
    if (length == 0 || ignis__header_is_known(program, name, length))
        return;
    ignis__include_add(search, "", 0, name, length);
    ignis__include_add(search, includer, ignis__folder_length(includer), name, length);
    ignis__include_add(search, program->name, ignis__folder_length(program->name), name, length);
    for (i = 0; i < program->option_count; i++) {
        const char *folder = ignis__option_value(program->options[i]);
        if (*folder)
            ignis__include_add(search, folder, strlen(folder), name, length);
    }
}

/*  Whether a word of a text goes on in the next line, behind a backslash. */
IGNIS__COLD static bool ignis__word_is_split(const char *text)
{
    const char *at = text, *next;
    while ((at = strchr(at, '\\')) != NULL) {
        next = at + 1 + (at[1] == '\r');
        if (*next == '\n' && at > text && at[-1] >= 'a' && at[-1] <= 'z' && next[1] >= 'a' && next[1] <= 'z')
            return true;
        at++;
    }
    return false;
}

/*  Finds each #include and __has_include of a text, also those that conditions or comments leave out. */
IGNIS__COLD static void ignis__include_scan(ignis__include_search *search, const char *includer, const char *text)
{
    const char *at = text, *before, *behind, *end;
    if (ignis__word_is_split(text)) /* it may be an include */
        search->complete = false;
    while ((at = strstr(at, "include")) != NULL) {
        bool asks = at - text >= 6 && strncmp(at - 6, "__has_", 6) == 0;
        for (before = at; before > text && (before[-1] == ' ' || before[-1] == '\t'); before--)
            ;
        at += strlen("include");
        behind = at += strncmp(at, "_next", 5) == 0 ? 5 : 0;
        at += strspn(at, " \t(");
        end = *at == '"' || *at == '<' ? at + 1 + strcspn(at + 1, *at == '"' ? "\"\n" : ">\n") : NULL;
        if (end && *end && *end != '\n')
            ignis__include_find(search, includer, at + 1, (size_t)(end - at - 1));
        else if (asks
                     ? memchr(behind, '(', (size_t)(at - behind)) != NULL
                     : before > text && (before[-1] == '#' || (before - 2 >= text && strchr("%*", before[-2]) && strchr(":/", before[-1]))))
            search->complete = false; /* its name is a macro, in the next line, or behind a comment */
    }
}

/*  Adds all files that a program may include to a key, and where they are. False: it cannot be told which. */
IGNIS__COLD static bool ignis__key_add_included(const ignis__program *program, uint64_t key[2], bool with_paths)
{
    ignis__include_search search = IGNIS__ZERO;
    ignis__included *file;
    int i;
    search.program = program;
    search.last = &search.first;
    search.complete = true;
    ignis__include_scan(&search, program->name, program->source);
    for (i = 0; i < program->header_count; i++)
        ignis__include_scan(&search, program->headers[i].name, program->headers[i].text);
    for (i = 0; i < program->option_count; i++) {
        const char *name = ignis__option_value(program->options[i]);
        ignis__include_find(&search, program->name, name, strlen(name));
    }
    for (file = search.first; file; file = file->next) {
        size_t size;
        char *text = (char *)ignis__file_read(file->path, &size);
        if (text) {
            if (with_paths)
                ignis__key_add(key, file->path);
            ignis__key_add_bytes(key, text, size);
            ignis__include_scan(&search, file->path, text);
        }
        search.complete = search.complete && text;
        ignis__free(text);
    }
    while ((file = search.first) != NULL) {
        search.first = file->next;
        ignis__free(file);
    }
    return search.complete;
}

/*  What a program is, whatever compiles it and for whom; without the files that it includes. */
IGNIS__COLD static void ignis__program_key(const ignis__program *program, uint64_t key[2])
{
    char facts[256];
    int i;
    key[0] = IGNIS__HASH_START;
    key[1] = ~IGNIS__HASH_START;
    snprintf(facts, sizeof facts, "%d options, %d headers", program->option_count, program->header_count);
    ignis__key_add(key, facts);
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++) {
        if (!ignis__source_is_header(i))
            continue;
        snprintf(facts, sizeof facts, "%016llx", (unsigned long long)ignis__sources[i].hash);
        ignis__key_add(key, facts);
    }
    ignis__key_add(key, program->source);
    ignis__key_add(key, program->name);
    ignis__key_add(key, program->entry ? program->entry : "");
    if (program->part)
        ignis__key_add(key, program->part);
    for (i = 0; i < program->option_count; i++)
        ignis__key_add(key, program->options[i]);
    for (i = 0; i < program->header_count; i++) {
        ignis__key_add(key, program->headers[i].name);
        ignis__key_add(key, program->headers[i].text);
    }
}

/*  A hash of the files that a program includes; 0: there are none. */
IGNIS__COLD static uint64_t ignis__program_included(const ignis__program *program)
{
    uint64_t key[2] = {0, 0};
    (void)ignis__key_add_included(program, key, false);
    return key[0];
}

static bool ignis__compile_never; /* ignis_desc.compile */

IGNIS__MAYBE_UNUSED static bool ignis__nvrtc_there(const char *call)
{
    return ignis__library_there(call, IGNIS_LIBRARY_NVRTC, "Kernels come from the bundle and from the cache alone");
}

/*  The exact version of NVRTC; of one that is not there, the one that has last written to the kernel cache; 0: there was none. */
IGNIS__COLD static uint64_t ignis__compiler_release(const char *call)
{
    struct ignis__loaded *nvrtc = &ignis__libraries[IGNIS_LIBRARY_NVRTC];
    char path[1024], why[160] = "", *text;
    uint64_t release;
    size_t size = 0;
    if (!ignis__compile_never && (ignis__atomic_load(&nvrtc->loaded) || ignis__nvrtc_there(call)))
        return nvrtc->release;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    if (!ignis__kernels_state.last_read && ignis__kernels_state.cache_dir[0]) {
        snprintf(path, sizeof path, "%s/nvrtc.txt", ignis__kernels_state.cache_dir);
        text = (char *)ignis__file_read_as(path, &size, why, sizeof why);
        if (text) {
            text[size] = 0;
            ignis__kernels_state.last_release = (uint64_t)strtoull(text, NULL, 16);
        }
        ignis__free(text);
    }
    ignis__kernels_state.last_read = true;
    release = ignis__kernels_state.last_release;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (*why)
        ignis__cache_warn(call, "use", path, why);
    return release;
}

/*  Everything that the image depends on, which has all parts of a program. False: there is more than can be told, so it must not be cached. */
IGNIS__COLD static bool ignis__image_key(const ignis__program *program, const ignis__device *device, uint64_t release, uint64_t key[2])
{
    ignis__program whole = *program;
    char facts[256];
    whole.part = NULL;
    ignis__program_key(&whole, key);
    snprintf(facts, sizeof facts, "nvrtc %llx sm %d.%d", (unsigned long long)release, device->info.compute_major,
             device->info.compute_minor);
    ignis__key_add(key, facts);
    return ignis__key_add_included(program, key, true);
}

/* --- compiling ------------------------------------------------------------------------------------------------------ */

IGNIS__COLD static ignis_status ignis__nvrtc_fail(const char *call, const char *function, int error)
{
    const char *name = ignis__nvrtc.nvrtcGetErrorString(error);
    return ignis__fail_because(error == IGNIS__NVRTC_OUT_OF_MEMORY ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_COMPILE_FAILED, call, error, name,
                               NULL, "%s failed with %s (%d)", function, name, error);
}

IGNIS__COLD static bool ignis__nvrtc_check(const char *call, const char *function, int error)
{
    return error == 0 || ignis__nvrtc_fail(call, function, error) == IGNIS_OK;
}
#define IGNIS__NVRTC_OK(call, name, args) ignis__nvrtc_check(call, #name, IGNIS__NVRTC(name, args))

/*  -arch for a device: its own machine code where this NVRTC knows it, with the architecture-specific instructions that come with 9.0
    ("sm_90a"); else the newest older virtual architecture, which the driver translates. */
IGNIS__COLD static bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch, size_t size, bool *is_ptx)
{
    int known[64], count = 0, best = 0, i, wanted = ignis__capability(&device->info);
    if (!IGNIS__NVRTC_OK(call, nvrtcGetNumSupportedArchs, (&count)))
        return false;
    count = count > IGNIS__COUNT(known) ? 0 : count;
    if (!IGNIS__NVRTC_OK(call, nvrtcGetSupportedArchs, (known)))
        return false;
    for (i = 0; i < count; i++)
        if (known[i] <= wanted && known[i] > best)
            best = known[i];
    if (!best)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, call,
                             "device %d has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d and newer", device->info.device,
                             device->info.compute_major, device->info.compute_minor, ignis__libraries[IGNIS_LIBRARY_NVRTC].version / 1000,
                             ignis__libraries[IGNIS_LIBRARY_NVRTC].version % 1000 / 10, known[0] / 10, known[0] % 10);
    *is_ptx = best != wanted;
    snprintf(arch, size, "-arch=%s_%d%s", *is_ptx ? "compute" : "sm", best, !*is_ptx && best >= 90 ? "a" : "");
    return true;
}

/*  The options that Ignis adds, unless the program has its own, and the program's. Returns how many. */
IGNIS__COLD static int ignis__options_gather(const ignis__program *program, const char *arch, const char **options)
{
    static const char *const defaults[] = {"-arch", "-std=c++17", "-default-device"};
    static const char *const long_names[] = {"--gpu-architecture", "--std", "--device-as-default-execution-space"};
    int count = 0, i, own;
    for (i = 0; i < IGNIS__COUNT(defaults); i++) {
        size_t stem = strcspn(defaults[i], "=");
        for (own = 0; own < program->option_count; own++)
            if (strncmp(program->options[own], defaults[i], stem) == 0 ||
                strncmp(program->options[own] + (program->options[own][0] == '-'), defaults[i], stem) == 0 ||
                strncmp(program->options[own], long_names[i], strlen(long_names[i])) == 0)
                break;
        if (own == program->option_count)
            options[count++] = i == 0 ? arch : defaults[i];
    }
    for (i = 0; i < program->option_count; i++)
        options[count++] = program->options[i];
    return count;
}

static bool ignis__has_include_path(const ignis__program *program)
{
    int i;
    for (i = 0; i < program->option_count; i++)
        if (strncmp(program->options[i], "-I", 2) == 0 || strncmp(program->options[i], "--include-path", 14) == 0)
            return true;
    return false;
}

/*  Reports what a compile had to say: remarks as a warning, errors as the failure. */
IGNIS__COLD static ignis_status ignis__compile_log(const char *call, const ignis__program *program, const char *arch, void *handle,
                                                   int error)
{
    size_t size = 0;
    char *log;
    const char *missing;
    bool entry_missing;
    ignis_status status;
    if (error != 0 && error != IGNIS__NVRTC_COMPILATION && error != IGNIS__NVRTC_INVALID_OPTION)
        return ignis__nvrtc_fail(call, "nvrtcCompileProgram", error);
    if (IGNIS__NVRTC(nvrtcGetProgramLogSize, (handle, &size)) != 0)
        size = 0;
    log = (char *)ignis__alloc(size + 1);
    if (log && size && IGNIS__NVRTC(nvrtcGetProgramLog, (handle, log)) != 0)
        log[0] = 0;
    while (log && *log && log[strlen(log) - 1] == '\n')
        log[strlen(log) - 1] = 0;
    if (error == 0) {
        if (log && *log)
            ignis__note_log(IGNIS_LOG_WARNING, IGNIS_DIAG_COMPILE_FAILED, log, "%s: the compiler has remarks on %s:", call, program->name);
        ignis__free(log);
        return IGNIS_OK;
    }
    entry_missing = log && program->entry && strncmp(log, "__nv_name_map", 13) == 0;
    missing = log ? strstr(log, "open source file \"") : NULL;
    if (entry_missing)
        status =
            ignis__fail_because(IGNIS_DIAG_ENTRY_MISSING, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                "%s has no __global__ function (or not exactly one) that is called '%s'", program->name, program->entry);
    else if (missing) {
        missing = strchr(missing, '"') + 1;
        status = ignis__fail_because(
            IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
            "%s includes \"%.*s\", which is not found. %s; desc.headers gives headers from memory; \"ignis.cuh\" "
            "is always there, with int8_t to uint64_t, ignis_f16, ignis_bf16, 16-byte packs, warp and block reductions",
            program->name, (int)strcspn(missing, "\""), missing,
            ignis__has_include_path(program) ? "It is in no folder that desc.options name, nor beside desc.name"
                                             : "There is no include path: desc.options may give one, as in \"-I/usr/local/cuda/include\"");
    } else
        status = ignis__fail_because(IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                     "%s does not compile with %s", program->name, arch);
    ignis__free(log);
    return status;
}

/*  The next name of a list with ; between names, and its length without the blanks around it; null: there is none. */
IGNIS__COLD static const char *ignis__entry_next(const char **list, size_t *length)
{
    const char *name = *list ? *list + strspn(*list, " \t\n") : "";
    if (!*name)
        return NULL;
    *length = strcspn(name, ";");
    *list = name + *length + (name[*length] == ';');
    while (*length > 0 && strchr(" \t\n", name[*length - 1]))
        --*length;
    return name;
}

/*  Where a name is in a list, from 0 on; -1: it is not there. */
IGNIS__COLD static int ignis__entry_index(const char *list, const char *wanted)
{
    size_t length;
    const char *name;
    int i;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL; i++)
        if (length == strlen(wanted) && memcmp(name, wanted, length) == 0)
            return i;
    return -1;
}

/*  A name of a list by its place, in memory of ignis__alloc. Null, and reported: there is no memory. */
IGNIS__COLD static char *ignis__entry_copy(const char *call, const char *list, int index)
{
    size_t length = 0;
    const char *name = ignis__entry_next(&list, &length);
    char *copy;
    while (index-- > 0)
        name = ignis__entry_next(&list, &length);
    copy = (char *)ignis__alloc_for(call, length + 1);
    if (copy && name)
        memcpy(copy, name, length);
    return copy;
}

/*  Copies the lowered names, in a list as the entries are, and the image of a compiled program out of NVRTC. */
IGNIS__COLD static bool ignis__image_fetch(const char *call, const ignis__program *program, void *handle, bool is_ptx, ignis__image *image)
{
    const char *list, *lowered;
    size_t size = 1, length;
    bool ok = is_ptx ? IGNIS__NVRTC_OK(call, nvrtcGetPTXSize, (handle, &image->size))
                     : IGNIS__NVRTC_OK(call, nvrtcGetCUBINSize, (handle, &image->size));
    ignis__text names;
    int round, i;
    for (round = 0; ok && round < 2; round++) { /* the first one measures */
        if (round == 1 && (image->memory = (char *)ignis__alloc_for(call, size + image->size)) == NULL)
            return false;
        ignis__text_begin(&names, image->memory, round == 1 ? size : 0);
        list = program->entry;
        for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
            char *entry = ignis__entry_copy(call, program->entry, i);
            ok = entry && IGNIS__NVRTC_OK(call, nvrtcGetLoweredName, (handle, entry, &lowered));
            if (ok)
                ignis__text_add(&names, "%s%s", i == 0 ? "" : ";", lowered);
            ignis__free(entry);
        }
        size = names.length + 1;
    }
    if (!ok)
        return false;
    image->lowered = image->memory;
    image->data = image->memory + size;
    return is_ptx ? IGNIS__NVRTC_OK(call, nvrtcGetPTX, (handle, (char *)image->data))
                  : IGNIS__NVRTC_OK(call, nvrtcGetCUBIN, (handle, (char *)image->data));
}

/*  All headers in memory as NVRTC takes them: those of Ignis, then the program's. */
typedef struct ignis__headers {
    char *own[IGNIS__SOURCE_COUNT];
    int own_count, count;
    const char **names, **texts; /* in one block */
} ignis__headers;

/*  The text behind its byte order mark, which NVRTC does not skip. */
static const char *ignis__without_mark(const char *text) { return strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text; }

static void ignis__headers_free(ignis__headers *headers)
{
    while (headers->own_count > 0)
        ignis__free(headers->own[--headers->own_count]);
    ignis__free((void *)headers->names);
}

IGNIS__COLD static bool ignis__headers_gather(const char *call, const ignis__program *program, ignis__headers *headers)
{
    size_t most = (size_t)(IGNIS__SOURCE_COUNT + program->header_count);
    bool ok;
    int i;
    memset(headers, 0, sizeof *headers);
    headers->names = (const char **)ignis__alloc(2 * most * sizeof *headers->names);
    headers->texts = headers->names + most;
    ok = headers->names != NULL;
    for (i = 0; ok && i < IGNIS__SOURCE_COUNT; i++) {
        char *text;
        if (!ignis__source_is_header(i))
            continue;
        text = ignis__source_join(&ignis__sources[i]);
        ok = text != NULL;
        headers->own[headers->own_count++] = text;
        headers->names[headers->count] = ignis__sources[i].name;
        headers->texts[headers->count++] = text;
    }
    for (i = 0; ok && i < program->header_count; i++) {
        headers->names[headers->count] = program->headers[i].name;
        headers->texts[headers->count++] = ignis__without_mark(program->headers[i].text);
    }
    if (!ok) {
        ignis__headers_free(headers);
        ignis__fail_host_memory(call, 1);
    }
    return ok;
}

/*  arch: an option of NVRTC, which is loaded. */
IGNIS__COLD static bool ignis__image_compile(const char *call, const ignis__program *program, const char *arch, bool is_ptx,
                                             ignis__image *image)
{
    const char *options[IGNIS__MAX_OPTIONS + 3];
    ignis__headers headers;
    const char *list;
    size_t length;
    void *handle = NULL;
    int error, count, i;
    bool ok;
    if (!ignis__headers_gather(call, program, &headers))
        return false;
    count = ignis__options_gather(program, arch, options);
    ok = IGNIS__NVRTC_OK(call, nvrtcCreateProgram,
                         (&handle, ignis__without_mark(program->source), program->name, headers.count, headers.texts, headers.names));
    list = program->entry;
    for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
        char *entry = ignis__entry_copy(call, program->entry, i);
        ok = entry && IGNIS__NVRTC_OK(call, nvrtcAddNameExpression, (handle, entry));
        ignis__free(entry);
    }
    if (ok) {
        error = IGNIS__NVRTC(nvrtcCompileProgram, (handle, count, options));
        ok = ignis__compile_log(call, program, options[0], handle, error) == IGNIS_OK &&
             ignis__image_fetch(call, program, handle, is_ptx, image);
    }
    if (handle)
        (void)IGNIS__NVRTC(nvrtcDestroyProgram, (&handle));
    ignis__headers_free(&headers);
    return ok;
}

/* --- records: which programs are asked for ------------------------------------------------------------------------------ */

/*  Each program that is asked for becomes a line of a file, once a process. tools/ignis_embed.c reads them:

        ignis VERSION                           of what wrote the lines below
        own FIRST-LAST FILE PART OPTION...      a source of Ignis, for compute capabilities from FIRST to LAST: 90 is 9.0; of its kernels
                                                those that are asked for with PART (see ignis__parts), or all where no PART is named
        formula FIRST-LAST "TEXT" "NAMES" INPUTS INTEGERS NUMBERS
                                                a kernel of a formula, as ignis__map_spec_write writes it; a bundle has those of other sizes, too
        kernel FIRST-LAST "NAME" "ENTRY" "SOURCE" OPTIONS "OPTION"... "HEADER" "TEXT"...       another program

    Which kernels are chosen depends on the device. So that a record serves all of them, whoever chooses asks for what each kind of device would
    choose: of compute capability 7.5, of 8.0 and newer, and of 9.0. */
static struct {
    ignis__mutex lock;
    char path[1024]; /* "": nothing is recorded */
    bool from_environment;
    uint64_t *lines; /* hashes of those that are written */
    int count, room;
    bool broken; /* a warning was given */
} ignis__requests = {IGNIS__MUTEX_INIT, {0}, false, NULL, 0, 0, false};

#define IGNIS__EVERY_ARCH 999

#ifndef IGNIS_NO_TENSORS
enum { IGNIS__MAP_SPEC = 15 + 3 * IGNIS_MAX_INPUTS + 4 }; /* numbers of an ignis__map_spec */
#endif

static bool ignis__program_is_own(const ignis__program *program)
{
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT && ignis__sources[i].name != program->name; i++)
        ;
    return i < IGNIS__SOURCE_COUNT;
}

/*  The compute capabilities that an own source compiles for. */
static void ignis__program_range(const ignis__program *program, int *first, int *last)
{
    bool own = ignis__program_is_own(program), wgmma = own && strstr(program->name, "hopper");
    int i;
    *first = wgmma ? 90 : own && strstr(program->name, "_mma.") ? 80 : 0;
    for (i = 0; own && i < program->option_count; i++)
        *first = strstr(program->options[i], "-DIGNIS_CLUSTERS") ? 90 : *first;
    *last = wgmma ? 90 : IGNIS__EVERY_ARCH;
}

/*  A program as messages and bundles name it: "gemm_mma.cu ignis_gemm_mma -DIGNIS_T=2 -DIGNIS_TRANSPOSE_A=0", "kernel.cu scale<float> -DN=4". */
IGNIS__COLD static void ignis__program_write(ignis__text *text, const ignis__program *program)
{
    const char *which = program->part ? program->part : program->entry;
    int i;
    if (program->formula) {
        ignis__text_add(text, "the formula '%s'", program->formula);
        return;
    }
    ignis__text_add(text, "%s%s%s", program->name, which ? " " : "", which ? which : "");
    for (i = 0; i < program->option_count; i++)
        ignis__text_add(text, " %s", program->options[i]);
}

IGNIS__COLD static void ignis__request_quote(ignis__text *text, const char *word)
{
    ignis__text_add(text, " \"");
    while (*word) {
        size_t plain = strcspn(word, "\"\\\r\n");
        ignis__text_add(text, "%.*s", (int)plain, word);
        word += plain;
        if (*word)
            ignis__text_add(text, "\\%c", *word == '\n' ? 'n' : *word == '\r' ? 'r' : *word);
        word += *word != 0;
    }
    ignis__text_add(text, "\"");
}

IGNIS__COLD static void ignis__request_write(ignis__text *text, const ignis__program *program, int first, int last)
{
    int i;
    if (program->line) {
        ignis__text_add(text, "%s\n", program->line);
        return;
    }
    ignis__text_add(text, "%s %d-%d", ignis__program_is_own(program) ? "own" : "kernel", first, last);
    if (ignis__program_is_own(program)) {
        ignis__text_add(text, " ");
        ignis__program_write(text, program);
    } else {
        ignis__request_quote(text, program->name);
        ignis__request_quote(text, program->entry ? program->entry : "");
        ignis__request_quote(text, program->source);
        ignis__text_add(text, " %d", program->option_count);
        for (i = 0; i < program->option_count; i++)
            ignis__request_quote(text, program->options[i]);
        for (i = 0; i < program->header_count; i++) {
            ignis__request_quote(text, program->headers[i].name);
            ignis__request_quote(text, program->headers[i].text);
        }
    }
    ignis__text_add(text, "\n");
}

/*  Adds a line to a file: one write, so that lines of several processes stay whole. A link is not followed; is_private: nor is a file written that
    others own or may write to. False: *why says the reason. */
IGNIS__COLD static bool ignis__line_append(const char *path, const char *line, bool is_private, char *why, size_t size)
{
    FILE *file = ignis__file_create(path, IGNIS__FILE_APPEND);
    bool ok;
    *why = 0;
    if (file && is_private && !ignis__stream_is_private(file, why, size)) {
        fclose(file);
        return false;
    }
    ok = file && setvbuf(file, NULL, _IONBF, 0) == 0 && fwrite(line, strlen(line), 1, file) == 1;
    if (!ok)
        ignis__system_error(why, size);
    return file && fclose(file) == 0 && ok;
}

/*  Whether a line is new; then it is remembered, if there is memory. The lock is held. */
IGNIS__COLD static bool ignis__request_is_new(uint64_t hash)
{
    int i;
    for (i = 0; i < ignis__requests.count; i++)
        if (ignis__requests.lines[i] == hash)
            return false;
    if (ignis__requests.count == ignis__requests.room) {
        int room = 2 * ignis__requests.room + 64;
        uint64_t *lines = (uint64_t *)ignis__alloc((size_t)room * sizeof *lines);
        if (!lines)
            return true;
        if (ignis__requests.count)
            memcpy(lines, ignis__requests.lines, (size_t)ignis__requests.count * sizeof *lines);
        ignis__free(ignis__requests.lines);
        ignis__requests.lines = lines;
        ignis__requests.room = room;
    }
    ignis__requests.lines[ignis__requests.count++] = hash;
    return true;
}

IGNIS__COLD static void ignis__request_add(const ignis__program *program, int first, int last)
{
    ignis__text text;
    char *line = NULL, why[160] = "out of memory";
    size_t size = 0;
    int turn;
    if (!ignis__requests.path[0])
        return;
    for (turn = 0; turn < 2; turn++) { /* the first measures */
        ignis__text_begin(&text, line, size);
        ignis__request_write(&text, program, first, last);
        if (turn == 0 && (line = (char *)ignis__alloc(size = text.length + 1)) == NULL)
            break;
    }
    ignis__mutex_lock(&ignis__requests.lock);
    if (!line ||
        (ignis__request_is_new(ignis__hash(IGNIS__HASH_START, line, size)) &&
         !ignis__line_append(ignis__requests.path, line, ignis__requests.from_environment, why, sizeof why) && !ignis__requests.broken)) {
        ignis__requests.broken = true;
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_BUNDLE_IO, "%s cannot be recorded in %s: %s", program->name, ignis__requests.path, why);
    }
    ignis__mutex_unlock(&ignis__requests.lock);
    ignis__free(line);
}

/* --- bundles: programs compiled beforehand ------------------------------------------------------------------------------- */

/*  A bundle is a header, its entries, their texts, and blocks of images, all little-endian; tools/ignis_embed.c writes it. Images of an architecture
    are packed together, being much alike. What is before the blocks, and each block, has a checksum: the driver sees nothing of what is damaged. */
typedef struct ignis__bundle_header {
    char magic[8];
    uint64_t checksum; /* of what is between it and the images */
    uint64_t size;     /* bytes of the bundle */
    uint64_t blocks;   /* where they begin */
    uint64_t sources;  /* a hash of Ignis' own */
    uint32_t version, count;
} ignis__bundle_header;

typedef struct ignis__bundle_entry {
    uint64_t key[2];                /* of the program */
    uint64_t included;              /* of the files that it includes */
    uint64_t checksum;              /* of the bytes of the block that are stored */
    uint64_t offset, stored, whole; /* where they are, and how many; bytes of the block, which is packed when they are more */
    uint64_t at, size;              /* of the image in the block: a zero is behind it */
    uint32_t text;                  /* where its name is, and behind that of the kernel in the image, each with a zero */
    uint16_t arch;                  /* 90 for 9.0 */
    uint16_t first, last;           /* compute capabilities that ask for the program */
    uint8_t kind;                   /* 0: machine code, 'a': with what one chip alone has, 'f': a family of chips; 'p': PTX */
    uint8_t nothing[5];
} ignis__bundle_entry;

static const char ignis__bundle_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'N', '2'};

#define IGNIS__BUNDLE_IMAGE ((uint64_t)256 << 20) /* bytes, of a block too: more are none */

/*  A block that was unpacked. */
typedef struct ignis__bundle_block {
    uint64_t offset, whole; /* in the bundle; bytes */
    unsigned char *bytes;
    struct ignis__bundle_block *next;
} ignis__bundle_block;

typedef struct ignis__bundle {
    const unsigned char *data; /* null: there is none */
    void *memory;              /* what of it is Ignis' own */
    ignis__bundle_header header;
    ignis__bundle_block *blocks; /* kept until it is closed */
    bool wgmma;                  /* it has kernels with products of warpgroups */
    char from[300];
} ignis__bundle;

static ignis__bundle ignis__the_bundle;                     /* of ignis_setup */
static ignis__mutex ignis__bundle_lock = IGNIS__MUTEX_INIT; /* for its blocks */

static ignis__bundle_entry ignis__bundle_get(const ignis__bundle *bundle, uint32_t index)
{
    ignis__bundle_entry entry;
    memcpy(&entry, bundle->data + sizeof(ignis__bundle_header) + index * sizeof entry, sizeof entry);
    return entry;
}

static const char *ignis__bundle_text(const ignis__bundle *bundle, const ignis__bundle_entry *entry)
{
    return (const char *)bundle->data + entry->text;
}

/*  A hash of all of Ignis' sources. */
static uint64_t ignis__sources_hash(void)
{
    uint64_t hash = IGNIS__HASH_START;
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++)
        hash = ignis__hash(hash, &ignis__sources[i].hash, sizeof ignis__sources[i].hash);
    return hash;
}

/*  Adds a reason to a text, and is always false. */
IGNIS__PRINTF(2, 3)
IGNIS__COLD static bool ignis__reason(ignis__text *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__text_addv(why, format, args);
    va_end(args);
    return false;
}

/*  Looks at everything but the images. False: it is no bundle, `why` says the reason. */
IGNIS__COLD static bool ignis__bundle_open(ignis__bundle *bundle, const void *data, size_t size, ignis__text *why)
{
    ignis__bundle_header *header = &bundle->header;
    const unsigned char *bytes = (const unsigned char *)data;
    size_t behind = offsetof(ignis__bundle_header, size);
    uint64_t texts, checksum;
    uint32_t i;
    if (size < sizeof *header)
        return ignis__reason(why, "it has %llu bytes, %d are the least", (unsigned long long)size, (int)sizeof *header);
    memcpy(header, data, sizeof *header);
    texts = sizeof *header + (uint64_t)header->count * sizeof(ignis__bundle_entry);
    if (memcmp(header->magic, ignis__bundle_magic, sizeof header->magic) != 0)
        return ignis__reason(why, "it does not begin with %.8s", ignis__bundle_magic);
    if (header->size != size)
        return ignis__reason(why, "it has %llu bytes, and says that it has %llu", (unsigned long long)size,
                             (unsigned long long)header->size);
    if (header->blocks > size || texts >= header->blocks || bytes[header->blocks - 1] != 0)
        return ignis__reason(why, "%u entries and their names do not end at byte %llu of %llu", (unsigned)header->count,
                             (unsigned long long)header->blocks, (unsigned long long)size);
    checksum = ignis__hash(IGNIS__HASH_START, bytes + behind, (size_t)header->blocks - behind);
    if (checksum != header->checksum)
        return ignis__reason(why, "its entries have the checksum %016llx, which should be %016llx", (unsigned long long)checksum,
                             (unsigned long long)header->checksum);
    bundle->data = bytes;
    for (i = 0; i < header->count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        bool named = entry.text >= texts && entry.text < header->blocks &&
                     entry.text + strlen(ignis__bundle_text(bundle, &entry)) + 1 < header->blocks;
        if (!named || entry.offset < header->blocks || entry.offset > size || entry.stored > size - entry.offset ||
            entry.stored > entry.whole || entry.whole > IGNIS__BUNDLE_IMAGE || entry.at >= entry.whole ||
            entry.size >= entry.whole - entry.at || !memchr("\0afp", entry.kind, 4)) {
            ignis__text_add(why, "entry %u of %u: the name at %u, %llu bytes at %llu that become %llu, of which %llu at %llu, kind %d",
                            (unsigned)i, (unsigned)header->count, (unsigned)entry.text, (unsigned long long)entry.stored,
                            (unsigned long long)entry.offset, (unsigned long long)entry.whole, (unsigned long long)entry.size,
                            (unsigned long long)entry.at, (int)entry.kind);
            bundle->data = NULL;
            return false;
        }
        bundle->wgmma = bundle->wgmma || (entry.kind == 'a' && strstr(ignis__bundle_text(bundle, &entry), "_hopper") != NULL);
    }
    return true;
}

/*  Unpacks what ignis_embed has packed: bytes of before, at a distance, or new ones, whose bits a range coder gives by the odds that those before
    have taught: at the same place of 16, as instructions have so many bytes. A quick and a slow estimate are averaged. */
enum {
    IGNIS__PACK_KIND = 0,   /* new or not; by what was before, and the place */
    IGNIS__PACK_AGAIN = 48, /* at a distance of before */
    IGNIS__PACK_WHICH = 52, /* of the last four */
    IGNIS__PACK_NEW = 64,   /* new bytes: behind others, behind bytes that were there before */
    IGNIS__PACK_NUMBERS = 33 * 32,
    IGNIS__PACK_LENGTH = IGNIS__PACK_NEW + 2 * 16 * 256,              /* below 31, at a new distance, at one of before; by the place */
    IGNIS__PACK_LONG = IGNIS__PACK_LENGTH + 2 * 16 * 32,              /* what is beyond that */
    IGNIS__PACK_DISTANCE = IGNIS__PACK_LONG + IGNIS__PACK_NUMBERS,    /* of 2, 3, 4 and more bytes */
    IGNIS__PACK_LOW = IGNIS__PACK_DISTANCE + 4 * IGNIS__PACK_NUMBERS, /* its lowest 4 bits: of few bytes, of more */
    IGNIS__PACK_ODDS = IGNIS__PACK_LOW + 2 * 16
};

typedef struct ignis__unpacker {
    const unsigned char *at, *end;
    uint32_t range, code;
    uint16_t odds[IGNIS__PACK_ODDS][2];
} ignis__unpacker;

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

/*  A number from 1 on: how many bits it has, and those below the highest one; the lowest 4 have odds of their own where `low` is not 0. */
static uint32_t ignis__unpack_number(ignis__unpacker *u, unsigned index, unsigned low)
{
    unsigned count = ignis__unpack_bits(u, index, 5), i;
    uint32_t number = 1;
    for (i = count; i > 0 && !(low && i == 4); i--)
        number = number << 1 | ignis__unpack_bit(u, index + 32 + count * 32 + i - 1);
    return i ? number << 4 | ignis__unpack_bits(u, low, 4) : number;
}

/*  False: it is not what was packed. */
static bool ignis__unpack(ignis__unpacker *u, unsigned char *out, size_t size, const unsigned char *packed, size_t packed_size)
{
    size_t at = 0, i;
    uint32_t last[4] = {0, 0, 0, 0}, distance, length; /* distances, the last one first */
    unsigned before = 0, again, kind, which;           /* before: 0 a new byte, 1 and 2 bytes at a new and at an old distance */
    for (i = 0; i < IGNIS__PACK_ODDS; i++)
        u->odds[i][0] = u->odds[i][1] = 32768;
    u->at = packed;
    u->end = packed + packed_size;
    u->range = 0xFFFFFFFFu;
    for (i = 0; i < 4; i++)
        u->code = u->code << 8 | (u->at < u->end ? *u->at++ : 0u);
    while (at < size) {
        if (!ignis__unpack_bit(u, IGNIS__PACK_KIND + 16 * before + (at & 15))) {
            out[at] = (unsigned char)ignis__unpack_bits(u, IGNIS__PACK_NEW + (before ? 4096u : 0u) + (unsigned)(at & 15) * 256, 8);
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
            distance = ignis__unpack_number(u, IGNIS__PACK_DISTANCE + kind * IGNIS__PACK_NUMBERS, IGNIS__PACK_LOW + 16 * (kind > 1));
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

/*  The block of an entry, unpacked; the lock is held. When it is damaged, `why` says how. */
IGNIS__COLD static ignis_diagnostic ignis__block_get(ignis__bundle *bundle, const ignis__bundle_entry *entry, ignis__bundle_block **got,
                                                     ignis__text *why)
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
        ignis__text_add(why, "its %llu bytes at %llu have the checksum %016llx, which should be %016llx", (unsigned long long)entry->stored,
                        (unsigned long long)entry->offset, (unsigned long long)checksum, (unsigned long long)entry->checksum);
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
        ignis__text_add(why, "%llu bytes at %llu cannot be unpacked to %llu", (unsigned long long)entry->stored,
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

/*  The image of an entry, with a zero behind it, which lives until the blocks are dropped. When it is damaged, `why` says how. */
IGNIS__COLD static ignis_diagnostic ignis__bundle_unpack(ignis__bundle *bundle, const ignis__bundle_entry *entry, void **unpacked,
                                                         ignis__text *why)
{
    ignis__bundle_block *block;
    ignis_diagnostic wrong;
    const char *why_not = NULL;
    ignis__mutex_lock(&ignis__bundle_lock);
    wrong = ignis__block_get(bundle, entry, &block, why);
    ignis__mutex_unlock(&ignis__bundle_lock);
    if (wrong != IGNIS_DIAG_NONE)
        return wrong;
    if (entry->at >= block->whole || entry->size >= block->whole - entry->at || block->bytes[entry->at + entry->size] != 0)
        why_not = "its block is another one";
    why_not = why_not ? why_not : ignis__image_fault(block->bytes + entry->at, (size_t)entry->size);
    if (why_not) {
        ignis__text_add(why, "%s: %llu bytes at %llu of %llu that are at %llu", why_not, (unsigned long long)entry->size,
                        (unsigned long long)entry->at, (unsigned long long)entry->whole, (unsigned long long)entry->offset);
        return IGNIS_DIAG_BUNDLE_FORMAT;
    }
    *unpacked = block->bytes + entry->at;
    return IGNIS_DIAG_NONE;
}

static void ignis__blocks_drop(ignis__bundle *bundle)
{
    while (bundle->blocks) {
        ignis__bundle_block *block = bundle->blocks;
        bundle->blocks = block->next;
        ignis__free(block->bytes);
        ignis__free(block);
    }
}

/*  How well an image serves a compute capability; 0: not. Machine code: its major version, from its minor one on, or one chip; PTX: all newer. */
static int ignis__bundle_serves(const ignis__bundle_entry *entry, int capability)
{
    if (entry->kind == 'p')
        return entry->arch <= capability ? entry->arch : 0;
    if (entry->kind == 'a')
        return entry->arch == capability ? 3000 : 0;
    return entry->arch / 10 == capability / 10 && entry->arch <= capability ? 1000 + entry->arch : 0;
}

/*  The image of a program that serves a compute capability best, among those that serve it worse than `below`; how well. 0: there is none. */
IGNIS__COLD static int ignis__bundle_find(const ignis__bundle *bundle, const uint64_t key[2], int capability, int below,
                                          ignis__bundle_entry *found)
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

/*  "75 80 90a ptx75", from the oldest on. */
IGNIS__COLD static void ignis__bundle_archs(const ignis__bundle *bundle, const uint64_t *key, ignis__text *text)
{
    int last = 0, next;
    do {
        ignis__bundle_entry of_next = IGNIS__ZERO;
        uint32_t i;
        next = 0;
        for (i = 0; i < bundle->header.count; i++) {
            ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
            int place = (entry.kind == 'p' ? 65536 * 4 : 0) + entry.arch * 4 + (entry.kind == 'a' ? 1 : entry.kind == 'f' ? 2 : 0) + 1;
            if (place > last && (next == 0 || place < next) && (!key || (entry.key[0] == key[0] && entry.key[1] == key[1]))) {
                next = place;
                of_next = entry;
            }
        }
        if (next)
            ignis__text_add(text, "%s%s%d%s", last ? " " : "", of_next.kind == 'p' ? "ptx" : "", of_next.arch,
                            of_next.kind == 'a'   ? "a"
                            : of_next.kind == 'f' ? "f"
                                                  : "");
        last = next;
    } while (next);
}

/*  A program that is in no bundle and no cache, where it cannot be compiled. */
IGNIS__COLD static bool ignis__program_missing(const char *call, const ignis__program *program, const ignis__device *device)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    const char *why = ignis__compile_never ? "ignis_desc.compile is IGNIS_COMPILE_NEVER" : "there is no NVRTC";
    char name[400], archs[128], line[480] = "";
    int first, last, capability = ignis__capability(&device->info);
    ignis__text text;
    uint64_t key[2];
    ignis__program_range(program, &first, &last);
    ignis__program_key(program, key);
    ignis__text_begin(&text, name, sizeof name);
    ignis__program_write(&text, program);
    ignis__text_begin(&text, archs, sizeof archs);
    if (bundle->data)
        ignis__bundle_archs(bundle, key, &text);
    if (ignis__program_is_own(program))
        snprintf(line, sizeof line, ", or add this line to the record: own %d-%d %s", first, last, name);
    else if (program->line)
        snprintf(line, sizeof line, ", or add this line to the record: %s", program->line);
    if (archs[0])
        ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s is in %s for %s, but not for compute capability %d.%d, which device %d has, and %s. Make the bundle with ignis_embed "
            "--archs ...,%d",
            name, bundle->from, archs, capability / 10, capability % 10, device->info.device, why, capability);
    else
        ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s is not in %s, for compute capability %d.%d, which device %d has, and %s. Make the bundle with ignis_embed from what "
            "the program records where it is asked for (ignis_desc.record)%s",
            name, bundle->data ? bundle->from : "the kernel cache, and there is no bundle", capability / 10, capability % 10,
            device->info.device, why, line);
    return false;
}

/*  Whether products of warpgroups can be had of the bundle, or of NVRTC, which has them from 12.0 on. */
IGNIS__MAYBE_UNUSED static bool ignis__wgmma_compiles(const char *call)
{
    const ignis__bundle *bundle = &ignis__the_bundle;
    return bundle->wgmma || (!(bundle->data && ignis__compile_never) && ignis__compiler_release(call) >> 32 >= 12);
}

/*  Whether what is in no bundle and no cache is compiled. */
static bool ignis__compiler_there(const char *call)
{
    return !ignis__compile_never &&
           (!ignis__the_bundle.data ||
            ignis__library_there(call, IGNIS_LIBRARY_NVRTC, "Kernels come from the bundle and from the cache alone"));
}

/*  Whether the bundle has a program for a device. */
static bool ignis__program_bundled(const ignis__device *device, const ignis__program *program)
{
    ignis__bundle_entry entry;
    uint64_t key[2];
    if (!ignis__the_bundle.data)
        return false;
    ignis__program_key(program, key);
    return ignis__bundle_find(&ignis__the_bundle, key, ignis__capability(&device->info), INT32_MAX, &entry) > 0;
}

/*  An image of a program, compiled for a device where it may be. */
IGNIS__COLD static bool ignis__program_compile(const char *call, const ignis__program *program, const ignis__device *device,
                                               ignis__image *image)
{
    char arch[32];
    bool is_ptx;
    if (!ignis__compiler_there(call))
        return ignis__program_missing(call, program, device);
    return ignis__library_load(call, IGNIS_LIBRARY_NVRTC) && ignis__arch_choose(call, device, arch, sizeof arch, &is_ptx) &&
           ignis__image_compile(call, program, arch, is_ptx, image);
}

/* --- images and modules --------------------------------------------------------------------------------------------- */

static void ignis__image_drop(ignis__image *image)
{
    if (!image || ignis__atomic_add(&image->holds, (uint64_t)-1) > 0)
        return;
    ignis__free(image->memory);
    ignis__free(image);
}

/*  Takes an image out of the list of the memory cache, whose lock is held; null when it is not there. */
IGNIS__COLD static ignis__image *ignis__image_unlink(const uint64_t key[2])
{
    ignis__image **link, *image;
    for (link = &ignis__kernels_state.images; *link; link = &(*link)->next)
        if ((*link)->key[0] == key[0] && (*link)->key[1] == key[1])
            break;
    image = *link;
    if (image)
        *link = image->next;
    return image;
}

/*  An image of the memory cache, held; null when it is not there. */
static ignis__image *ignis__image_find(const uint64_t key[2])
{
    ignis__image *image;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    image = ignis__image_unlink(key);
    if (image) {
        image->next = ignis__kernels_state.images;
        ignis__kernels_state.images = image;
        ignis__atomic_add(&image->holds, 1);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    return image;
}

/*  Puts an image into the memory cache, instead of one of its key; the ones that were used least recently make room. */
IGNIS__COLD static void ignis__image_keep(ignis__image *image)
{
    ignis__image **link = &ignis__kernels_state.images;
    size_t bytes = 0;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    ignis__image_drop(ignis__image_unlink(image->key));
    ignis__atomic_add(&image->holds, 1);
    image->next = *link;
    *link = image;
    while (*link && bytes + (*link)->size <= IGNIS__IMAGE_BYTES) {
        bytes += (*link)->size;
        link = &(*link)->next;
    }
    while (*link) {
        ignis__image *old = *link;
        *link = old->next;
        ignis__image_drop(old);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
}

/*  The image of a program, held: from memory, from disk, or compiled, always so where the caches are not trusted. Null on failure. Who asks for one
    that is being compiled waits for it. It is cached when its key is what it was: a file that it includes may have changed meanwhile. */
IGNIS__COLD static ignis__image *ignis__image_get(const char *call, ignis__device *device, const ignis__program *program,
                                                  const uint64_t key[2], bool trust, bool *from_cache)
{
    ignis__mutex *compiling = &ignis__kernels_state.compiling[key[0] % (uint64_t)IGNIS__COUNT(ignis__kernels_state.compiling)];
    ignis__image *image;
    uint64_t key_now[2];
    ignis__mutex_lock(compiling);
    image = trust ? ignis__image_find(key) : NULL;
    *from_cache = image != NULL;
    if (!image) {
        image = (ignis__image *)ignis__alloc_for(call, sizeof *image);
        if (image) {
            image->holds = 1;
            memcpy(image->key, key, sizeof image->key);
            *from_cache = trust && ignis__image_from_disk(call, image);
        }
        if (image && *from_cache) {
            ignis__image_keep(image);
        } else if (image && !ignis__program_compile(call, program, device, image)) {
            ignis__image_drop(image);
            image = NULL;
        } else if (image && ignis__image_key(program, device, ignis__compiler_release(call), key_now) &&
                   memcmp(key, key_now, sizeof key_now) == 0) {
            ignis__image_to_disk(call, image);
            ignis__image_keep(image);
        }
    }
    ignis__mutex_unlock(compiling);
    return image;
}

/*  False after a failure: of the driver, when *error is not 0, which the caller may mend or report; another one is reported already. */
IGNIS__COLD static bool ignis__module_load(const char *call, const ignis__image *image, ignis__module *unit, int *error)
{
    unit->lowered = ignis__copy_string(image->lowered);
    if (!unit->lowered) {
        *error = 0;
        ignis__fail_host_memory(call, strlen(image->lowered) + 1);
        return false;
    }
    *error = IGNIS__CUDA(cuModuleLoadData, (&unit->module, image->data));
    if (*error == 0)
        return true;
    ignis__free(unit->lowered);
    unit->lowered = NULL;
    return false;
}

IGNIS__COLD static void ignis__module_unload(ignis__module *unit)
{
    if (unit->module)
        (void)IGNIS__CUDA(cuModuleUnload, (unit->module));
    ignis__free(unit->lowered);
    memset(unit, 0, sizeof *unit);
}

/*  Unloads a module whose launches may still be queued, even if the device cannot be entered; after a fault it ends with the process. */
static void ignis__module_unload_when_idle(const char *call, ignis__device *device, ignis__module *unit)
{
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    if (lost)
        unit->module = NULL;
    ignis__module_unload(unit);
    if (entered)
        ignis__device_leave(&binding);
}

/*  Whether a driver's error means that an image is not for it, or not for the device. */
static bool ignis__image_is_foreign(int error)
{
    return error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY || error == IGNIS__CU_INVALID_PTX ||
           error == IGNIS__CU_NO_JIT || error == IGNIS__CU_UNSUPPORTED_PTX;
}

/*  Loads a program from the bundle: its best image that the driver takes. False with *failed: that is reported; else it is not there. */
IGNIS__COLD static bool ignis__module_from_bundle(const char *call, ignis__device *device, const ignis__program *program,
                                                  ignis__module *unit, bool *failed)
{
    ignis__bundle *bundle = &ignis__the_bundle;
    int capability = ignis__capability(&device->info), serves = INT32_MAX, error = 0;
    uint64_t key[2], included;
    ignis__bundle_entry entry;
    *failed = false;
    if (!bundle->data)
        return false;
    ignis__program_key(program, key);
    included = ignis__compile_never ? 0 : ignis__program_included(program);
    while (!*failed && (serves = ignis__bundle_find(bundle, key, capability, serves, &entry)) > 0) {
        const char *name = ignis__bundle_text(bundle, &entry);
        ignis__image image = IGNIS__ZERO;
        ignis_diagnostic wrong;
        char why[256];
        ignis__text text;
        if (included != 0 && included != entry.included)
            continue; /* the files are there, and are others now */
        ignis__text_begin(&text, why, sizeof why);
        wrong = ignis__bundle_unpack(bundle, &entry, &image.data, &text);
        image.lowered = (char *)(uintptr_t)(name + strlen(name) + 1);
        *failed = wrong != IGNIS_DIAG_NONE;
        if (wrong == IGNIS_DIAG_HOST_MEMORY)
            ignis__fail_host_memory(call, (size_t)entry.whole);
        else if (wrong != IGNIS_DIAG_NONE)
            ignis__fail(wrong, call, "%s is damaged: of %s for %d%s %s", bundle->from, name, (int)entry.arch,
                        entry.kind == 'p' ? " (PTX)" : "", why);
        else if (ignis__module_load(call, &image, unit, &error))
            unit->from_cache = true;
        else if (error == 0 || !ignis__image_is_foreign(error))
            *failed = error == 0 || ignis__cuda_fail(call, device, "cuModuleLoadData", error) != IGNIS_OK;
        else
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: the driver does not take %s for %d%s of %s: %s (%d)", call, name,
                        (int)entry.arch, entry.kind == 'p' ? " (PTX)" : "", bundle->from, ignis__cuda_name(error), error);
        if (unit->module)
            return true;
    }
    return false;
}

/*  Loads the image that the caller has. */
IGNIS__COLD static bool ignis__module_from_image(const char *call, ignis__device *device, const ignis__program *program,
                                                 ignis__module *unit)
{
    ignis__image image = IGNIS__ZERO;
    int error = 0;
    image.lowered = (char *)(uintptr_t)program->entry;
    image.data = (void *)(uintptr_t)program->image;
    unit->from_cache = true;
    if (ignis__module_load(call, &image, unit, &error))
        return true;
    if (error != 0 && ignis__image_is_foreign(error))
        ignis__fail_because(IGNIS_DIAG_UNSUPPORTED, call, error, ignis__cuda_name(error), NULL,
                            "the driver does not take the image of kernel %s, %llu bytes with the hash %016llx, for device %d of compute "
                            "capability %d.%d: %s (%d)",
                            program->entry, (unsigned long long)program->image_size,
                            (unsigned long long)ignis__hash(IGNIS__HASH_START, program->image, program->image_size), device->info.device,
                            device->info.compute_major, device->info.compute_minor, ignis__cuda_name(error), error);
    else if (error != 0)
        ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    return false;
}

/*  Loads a program on a device that is entered. Loading may wait for the device, and that for a kernel which waits for what another thread is
    about to launch on another one: no lock is held meanwhile. */
IGNIS__COLD static bool ignis__module_make(const char *call, ignis__device *device, const ignis__program *program, ignis__module *unit)
{
    uint64_t key[2];
    bool trust, again;
    int first, last;
    memset(unit, 0, sizeof *unit);
    if (program->image && !ignis__global.dry_run)
        return ignis__module_from_image(call, device, program, unit);
    ignis__program_range(program, &first, &last);
    if (!program->image)
        ignis__request_add(program, first, last);
    if (ignis__global.dry_run) /* nothing is compiled, but what would be missing is missing */
        return (!ignis__compile_never || !ignis__the_bundle.data || program->image || ignis__program_bundled(device, program) ||
                ignis__program_missing(call, program, device)) &&
               !IGNIS__CUDA_FAILED(call, device, cuModuleLoadData, (&unit->module, NULL));
    if (ignis__module_from_bundle(call, device, program, unit, &again) || again)
        return unit->module != NULL;
    trust = ignis__image_key(program, device, ignis__compiler_release(call), key);
    do {
        int error = 0;
        ignis__image *image = ignis__image_get(call, device, program, key, trust, &unit->from_cache);
        bool loaded = image && ignis__module_load(call, image, unit, &error);
        ignis__image_drop(image);
        if (loaded)
            return true;
        /* in a cache, but not for this driver: that is like a damaged file */
        again = unit->from_cache && (error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY);
        trust = false;
        if (error != 0 && !again)
            ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    } while (again);
    return false;
}

/* --- the bundle and the record of ignis_setup ------------------------------------------------------------------------- */

static void ignis__bundle_close(void)
{
    ignis__blocks_drop(&ignis__the_bundle);
    ignis__free(ignis__the_bundle.memory);
    memset(&ignis__the_bundle, 0, sizeof ignis__the_bundle);
    ignis__free(ignis__requests.lines);
    ignis__requests.lines = NULL;
    ignis__requests.count = ignis__requests.room = 0;
    ignis__requests.path[0] = 0;
}

IGNIS__COLD static bool ignis__requests_setup(const char *call, const ignis_desc *desc)
{
    const char *env = ignis__env("IGNIS_RECORD"), *path = desc->record ? desc->record : env ? env : "";
    char line[32], why[160];
    ignis__requests.broken = false;
    if (strlen(path) >= sizeof ignis__requests.path)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "the path of the record is longer than %d bytes",
                             (int)sizeof ignis__requests.path - 1);
    snprintf(ignis__requests.path, sizeof ignis__requests.path, "%s", path);
    snprintf(line, sizeof line, "ignis %d\n", IGNIS_VERSION);
    ignis__requests.from_environment = !desc->record;
    if (*path && !ignis__line_append(path, line, !desc->record, why, sizeof why))
        return ignis__refuse(IGNIS_DIAG_BUNDLE_IO, call, "%s'%s' cannot be written: %s", desc->record ? "" : "IGNIS_RECORD: ", path, why);
    return true;
}

IGNIS__COLD static bool ignis__bundle_setup(const char *call, const ignis_desc *desc)
{
    ignis__bundle *bundle = &ignis__the_bundle;
    const char *env = ignis__env("IGNIS_BUNDLE"), *path = desc->bundle ? NULL : desc->bundle_path ? desc->bundle_path : env;
    const void *data = desc->bundle;
    size_t size = desc->bundle_size;
    char why[300] = "";
    ignis__text text;
    if (desc->bundle && desc->bundle_path)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.bundle and desc.bundle_path are both set; a program has one bundle");
    if (!data && (!path || !*path))
        return true;
    snprintf(bundle->from, sizeof bundle->from, "%s", data ? "ignis_desc.bundle" : path);
    if (!data && (data = bundle->memory = ignis__file_read_as(path, &size, desc->bundle_path ? NULL : why, sizeof why)) == NULL)
        return *why ? ignis__refuse(IGNIS_DIAG_BUNDLE_IO, call, "IGNIS_BUNDLE: '%s' is not used, as a bundle is a program: %s", path, why)
                    : ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read") == IGNIS_OK;
    ignis__text_begin(&text, why, sizeof why);
    if (!ignis__bundle_open(bundle, data, size, &text))
        return ignis__refuse(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is damaged, or no bundle: %s", bundle->from, why);
    return true;
}

/*  Counts the programs of a bundle for a device, and names those without an image for it. */
IGNIS__COLD static void ignis__bundle_count(const ignis__bundle *bundle, int capability, ignis_bundle_info *info, ignis__text *missing)
{
    ignis__bundle_entry found;
    uint32_t i, k;
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        bool seen = false;
        for (k = 0; k < i && !seen; k++) {
            ignis__bundle_entry before = ignis__bundle_get(bundle, k);
            seen = memcmp(entry.key, before.key, sizeof entry.key) == 0;
        }
        if (seen)
            continue;
        info->programs++;
        if (ignis__bundle_find(bundle, entry.key, capability, INT32_MAX, &found) > 0) {
            info->usable++;
        } else if (capability >= entry.first && capability <= entry.last) {
            if (info->missing++ < 4)
                ignis__text_add(missing, "%s%s", info->missing == 1 ? "" : "; ", ignis__bundle_text(bundle, &entry));
        }
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_bundle_check(ignis_bundle_info *info)
{
    static const char call[] = "ignis_bundle_check";
    const ignis__bundle *bundle = &ignis__the_bundle;
    ignis__bundle looked_at;
    ignis_bundle_info own;
    ignis__device *device;
    ignis_diagnostic wrong = IGNIS_DIAG_NONE;
    int capability, damaged = 0;
    char faults[700], missing[500];
    ignis__text text, names;
    uint32_t i;
    if (!ignis__enter(call) || (device = ignis__device_get(call, ignis__thread_now()->device)) == NULL || !ignis__device_know(call, device))
        return ignis__failed();
    if (!bundle->data)
        return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "there is no bundle: ignis_desc.bundle, bundle_path and IGNIS_BUNDLE name none");
    info = info ? info : &own;
    memset(info, 0, sizeof *info);
    info->version = (int)bundle->header.version;
    info->bytes = (int64_t)bundle->header.size;
    info->images = (int)bundle->header.count;
    ignis__text_begin(&names, info->architectures, sizeof info->architectures);
    ignis__bundle_archs(bundle, NULL, &names);
    ignis__text_begin(&names, missing, sizeof missing);
    capability = ignis__capability(&device->info);
    ignis__bundle_count(bundle, capability, info, &names);
    ignis__text_begin(&text, faults, sizeof faults);
    looked_at = *bundle;
    looked_at.blocks = NULL; /* what is for other devices is not kept */
    for (i = 0; i < bundle->header.count && wrong != IGNIS_DIAG_HOST_MEMORY; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        char why[256];
        ignis__text reason;
        void *image = NULL;
        ignis__text_begin(&reason, why, sizeof why);
        wrong = ignis__bundle_unpack(&looked_at, &entry, &image, &reason);
        if (wrong == IGNIS_DIAG_HOST_MEMORY)
            ignis__fail_host_memory(call, (size_t)entry.whole);
        else if (wrong != IGNIS_DIAG_NONE && damaged++ < 2)
            ignis__text_add(&text, "%s%s for %d: %s", damaged == 1 ? " " : "; ", ignis__bundle_text(bundle, &entry), (int)entry.arch, why);
    }
    ignis__blocks_drop(&looked_at);
    if (wrong == IGNIS_DIAG_HOST_MEMORY)
        return ignis__failed();
    if (damaged)
        return ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s: %d of %d images are damaged:%s", bundle->from, damaged, info->images,
                           faults);
    if (info->version != IGNIS_VERSION)
        return ignis__fail(IGNIS_DIAG_BUNDLE_MISMATCH, call,
                           "%s was made by ignis_embed of version %d.%d.%d, this program has Ignis %d.%d.%d: its own kernels are others",
                           bundle->from, info->version / 10000, info->version / 100 % 100, info->version % 100, IGNIS_VERSION_MAJOR,
                           IGNIS_VERSION_MINOR, IGNIS_VERSION_PATCH);
    if (bundle->header.sources != ignis__sources_hash())
        return ignis__fail(IGNIS_DIAG_BUNDLE_MISMATCH, call,
                           "%s was made with another ignis_kernels.h: its sources have the hash %016llx, those of this program %016llx",
                           bundle->from, (unsigned long long)bundle->header.sources, (unsigned long long)ignis__sources_hash());
    if (info->missing)
        return ignis__fail(
            IGNIS_DIAG_KERNEL_MISSING, call,
            "%s has %d of %d programs for compute capability %d.%d, which device %d has, and is for %s. Make it with ignis_embed "
            "--archs ...,%d. Missing: %s%s",
            bundle->from, info->usable, info->usable + info->missing, capability / 10, capability % 10, device->info.device,
            info->architectures, capability, missing, info->missing > 4 ? "; and more" : "");
    return IGNIS_OK;
}

/*  A function of a module, allowed all shared memory of a block: another thread could lower what a launch asked for. A driver that loads lazily
    loads it now: at its first launch that might wait for what runs on the device. */
IGNIS__COLD static bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                            void **function)
{
    int fixed; /* bytes that it declares */
    if (IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (function, unit->module, name)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&fixed, IGNIS__CU_FUNC_SHARED, *function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncSetAttribute,
                           (*function, IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, device->info.shared_per_block - fixed)))
        return false;
    ignis__function_name(*function, name);
    return true;
}

/*  Whether a function can wait for what is ahead of it: not where it was made from PTX for older devices, which has no instruction for that. */
IGNIS__COLD static bool ignis__function_waits(const char *call, ignis__device *device, void *function, bool *waits)
{
    int version = 0;
    *waits = device->info.compute_major >= 9;
    if (*waits && IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&version, IGNIS__CU_FUNC_PTX_VERSION, function)))
        return false;
    *waits = *waits && version >= 90;
    return true;
}

/* --- kernels of the caller ------------------------------------------------------------------------------------------ */

#define IGNIS__MAX_PARAMS 64

/*  A kernel on one device. */
typedef struct ignis__kernel_code {
    ignis__module module;
    void *function;
    int params; /* -1: the driver does not tell */
    size_t param_size[IGNIS__MAX_PARAMS];
    int max_threads, static_shared;
    bool waits;  /* for what is ahead of it, if it asks for that */
    char *entry; /* which function it is */
    uint64_t
        entries; /* ignis__kernel_code * of other entries of the module, which is this one's: the newest, a list by `entries` of each */
} ignis__kernel_code;

typedef struct ignis__kernel {
    ignis__slot slot;
    char *memory; /* of all that the program points to */
    ignis__program program;
    char *entry;                  /* the first of the program, or what ignis_kernel_entry has asked for */
    struct ignis__kernel *shares; /* whose program it is then, held; null: its own */
    const char *file;             /* where the caller has made it, as ignis_call_site says; null: it does not */
    int line;
    uint64_t code[IGNIS_MAX_DEVICES]; /* ignis__kernel_code *, made at the first use on a device */
    uint64_t newest; /* what has replaced the program, as an ignis__kernel * that is in no pool; 0: nothing has. Its lock is the slot's */
    struct ignis__kernel
        *older;               /* what that has replaced, in the same way. All live as long as the handle's, so that launches need no lock */
    uint64_t reloads, reload; /* asked for of this one so far; the number of the one that has made it */
    ignis__former former;
} ignis__kernel;

static ignis__pool ignis__kernels =
    IGNIS__POOL_NAMED(ignis__kernel, IGNIS__KIND_KERNEL, "kernel", IGNIS_DIAG_KERNEL_FREED, offsetof(ignis__kernel, former));

static ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle)
{
    return (ignis__kernel *)ignis__handle_hold(call, &ignis__kernels, handle.id);
}

/*  The program that launches of a held kernel run. */
static ignis__kernel *ignis__kernel_newest(ignis__kernel *kernel)
{
    ignis__kernel *owner = kernel->shares ? kernel->shares : kernel;
    ignis__kernel *newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&owner->newest);
    return newest ? newest : owner;
}

IGNIS__COLD static void ignis__kernel_code_free(ignis__kernel_code *code)
{
    while (code) {
        ignis__kernel_code *next = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&code->entries);
        ignis__free(code->entry);
        ignis__free(code);
        code = next;
    }
}

IGNIS__COLD static void ignis__kernel_unload(const char *call, ignis__kernel *kernel)
{
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&kernel->code[i]);
        if (code)
            ignis__module_unload_when_idle(call, &ignis__devices[i], &code->module);
        ignis__kernel_code_free(code);
    }
    ignis__free(kernel->memory);
    ignis__free(kernel->entry);
}

IGNIS__COLD static void ignis__kernel_destroy(const char *call, ignis__kernel *kernel)
{
    ignis__kernel *version = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest), *older, *shares = kernel->shares;
    for (; version; version = older) {
        older = version->older;
        ignis__kernel_unload(call, version);
        ignis__free(version);
    }
    ignis__kernel_unload(call, kernel);
    ignis__pool_give(&ignis__kernels, kernel);
    if (shares && ignis__pool_drop(shares))
        ignis__kernel_destroy(call, shares); /* which shares nobody's */
}

IGNIS__ONE_COPY static void ignis__kernel_drop(const char *call, ignis__kernel *kernel)
{
    if (ignis__pool_drop(kernel))
        ignis__kernel_destroy(call, kernel);
}

static void ignis__kernel_drop_held(const char *call, void *item) { ignis__kernel_drop(call, (ignis__kernel *)item); }

IGNIS__COLD static bool ignis__kernel_read(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                           ignis__kernel_code *code)
{
    size_t offset;
    int error = 0;
    if (!ignis__function_get(call, device, unit, name, &code->function) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->max_threads, IGNIS__CU_FUNC_MAX_THREADS, code->function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->static_shared, IGNIS__CU_FUNC_SHARED, code->function)) ||
        !ignis__function_waits(call, device, code->function, &code->waits))
        return false;
    code->params = -1;
    if (ignis__cuda.cuFuncGetParamInfo) {
        code->params = 0;
        while (code->params < IGNIS__MAX_PARAMS && (error = IGNIS__CUDA(cuFuncGetParamInfo, (code->function, (size_t)code->params, &offset,
                                                                                             &code->param_size[code->params]))) == 0)
            code->params++;
    }
    return error == IGNIS__CU_INVALID_VALUE /* the number after the last parameter */ ||
           ignis__cuda_check(call, device, "cuFuncGetParamInfo", error) == IGNIS_OK;
}

/*  The function that code->entry names: one of those that were asked for when the program was compiled, or that the module has by this name. */
IGNIS__COLD static bool ignis__kernel_read_entry(const char *call, ignis__device *device, const ignis__kernel *program,
                                                 const ignis__module *unit, ignis__kernel_code *code)
{
    int index = unit->lowered ? ignis__entry_index(program->program.entry, code->entry) : -1, error = 0;
    char *name = index >= 0 ? ignis__entry_copy(call, unit->lowered, index) : code->entry;
    bool ok = name != NULL;
    bool missing = false;
    void *function;
    if (ok) {
        error = IGNIS__CUDA(cuModuleGetFunction, (&function, unit->module, name));
        missing = error == IGNIS__CU_NOT_FOUND || error == IGNIS__CU_INVALID_VALUE; /* of an empty name it says that */
    }
    if (missing && index >= 0)
        ok = ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "%s has no __global__ function (or not exactly one) that is called '%s'",
                           program->program.image ? "desc.image" : program->program.name, code->entry);
    else if (missing)
        ok = ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call,
                           "the program of kernel %s has no entry '%s': give desc.entry all names, \"%s; %s\", or make it extern \"C\"",
                           program->entry, code->entry, program->entry, code->entry);
    ok = ok && ignis__kernel_read(call, device, unit, name, code);
    if (ok)
        ignis__function_name(code->function, code->entry); /* as the caller has written it */
    if (name != code->entry)
        ignis__free(name);
    return ok;
}

/*  The kernel's code on a device that is entered, loaded at the first use there. Null on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    uint64_t *place = &kernel->code[device - ignis__devices];
    ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place), *made;
    if (code)
        return code;
    made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(kernel->entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(kernel->entry) + 1);
    else if (ignis__module_make(call, device, &kernel->program, &made->module) &&
             ignis__kernel_read_entry(call, device, kernel, &made->module, made)) {
        ignis__mutex_lock(&kernel->slot.lock); /* another thread may have been as fast, and its code be in use */
        code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
        if (!code) {
            ignis__atomic_store(place, (uint64_t)(uintptr_t)made);
            code = made;
        }
        ignis__mutex_unlock(&kernel->slot.lock);
    }
    if (code != made) {
        ignis__module_unload(&made->module);
        ignis__kernel_code_free(made);
    }
    return code;
}

/*  Another entry of a program, whose code is there. Null on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_make_entry(const char *call, ignis__device *device, ignis__kernel *program,
                                                                     ignis__kernel_code *code, const char *entry)
{
    ignis__kernel_code *made = (ignis__kernel_code *)ignis__alloc_for(call, sizeof *made);
    if (!made)
        return NULL;
    made->entry = ignis__copy_string(entry);
    if (!made->entry)
        ignis__fail_host_memory(call, strlen(entry) + 1);
    if (!made->entry || !ignis__kernel_read_entry(call, device, program, &code->module, made)) {
        ignis__kernel_code_free(made);
        return NULL;
    }
    ignis__mutex_lock(&program->slot.lock); /* two threads may both add it: both stay */
    made->entries = ignis__atomic_load(&code->entries);
    ignis__atomic_store(&code->entries, (uint64_t)(uintptr_t)made);
    ignis__mutex_unlock(&program->slot.lock);
    return made;
}

/*  That entry, looked for first. */
static ignis__kernel_code *ignis__kernel_code_entry(const char *call, ignis__device *device, ignis__kernel *program,
                                                    ignis__kernel_code *code, const char *entry)
{
    ignis__kernel_code *found = code;
    while (found && strcmp(found->entry, entry) != 0)
        found = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&found->entries);
    return found ? found : ignis__kernel_code_make_entry(call, device, program, code, entry);
}

/*  What launches of a held kernel run on a device that is entered, and its program. Null on failure. */
static ignis__kernel_code *ignis__kernel_code_of(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    ignis__kernel *program = ignis__kernel_newest(kernel);
    ignis__kernel_code *code = ignis__kernel_code_get(call, device, program);
    return code && kernel->shares ? ignis__kernel_code_entry(call, device, program, code, kernel->entry) : code;
}

static ignis__program ignis__program_from(const ignis_kernel_desc *desc)
{
    ignis__program program = IGNIS__ZERO;
    program.source = desc->source;
    program.name = desc->name ? desc->name : "kernel.cu";
    program.entry = desc->entry;
    program.options = desc->options;
    program.option_count = desc->option_count;
    program.headers = desc->headers;
    program.header_count = desc->header_count;
    program.image = desc->image;
    program.image_size = desc->image_size;
    return program;
}

/*  Entries have names, each once. */
IGNIS__COLD static bool ignis__kernel_entries_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *list = desc->entry, *name;
    size_t length = 0;
    int i, same;
    if (!ignis__given(call, "desc.entry", desc->entry))
        return false;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL && length > 0; i++) {
        char *copy = ignis__entry_copy(call, desc->entry, i);
        if (!copy)
            return false;
        same = ignis__entry_index(desc->entry, copy);
        ignis__free(copy);
        if (same != i)
            return ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", with one name twice", desc->entry);
    }
    if (i == 0 || name)
        return ignis__refuse(IGNIS_DIAG_ENTRY_MISSING, call, "desc.entry is \"%s\", where a name is missing", desc->entry);
    return true;
}

/*  A kernel whose image is given: it is looked at where a zero is behind it. */
IGNIS__COLD static bool ignis__kernel_image_check(const char *call, const ignis_kernel_desc *desc)
{
    const char *wrong;
    char *copy;
    if (desc->source || desc->option_count || desc->header_count)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call,
                             "desc.image is set, and desc.source, options or headers are; it is one or the other");
    if (!ignis__kernel_entries_check(call, desc))
        return false;
    copy = desc->image_size < IGNIS__BUNDLE_IMAGE ? (char *)ignis__alloc(desc->image_size + 1) : NULL;
    if (!copy)
        return ignis__fail_host_memory(call, desc->image_size) == IGNIS_OK;
    memcpy(copy, desc->image, desc->image_size);
    wrong = ignis__image_fault(copy, desc->image_size);
    if (wrong)
        ignis__fail(IGNIS_DIAG_KERNEL_IMAGE, call, "desc.image of kernel %s, %llu bytes with the hash %016llx: %s", desc->entry,
                    (unsigned long long)desc->image_size, (unsigned long long)ignis__hash(IGNIS__HASH_START, copy, desc->image_size),
                    wrong);
    ignis__free(copy);
    return !wrong;
}

/*  A header has a name and a text, and a name of its own: NVRTC refuses two of one name. */
IGNIS__COLD static bool ignis__kernel_header_check(const char *call, const ignis_kernel_desc *desc, int index)
{
    const ignis_kernel_header *header = &desc->headers[index];
    ignis__program before = ignis__program_from(desc);
    before.header_count = index;
    if (!header->name || !header->text)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.headers[%d].%s is null", index, header->name ? "text" : "name");
    else if (ignis__header_is_known(&before, header->name, strlen(header->name)))
        ignis__fail(IGNIS_DIAG_KERNEL_HEADER, call, "desc.headers[%d].name is \"%s\": a header before it, or one of Ignis, has that name",
                    index, header->name);
    else
        return true;
    return false;
}

IGNIS__COLD static bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc)
{
    int i;
    if (!ignis__given(call, "desc", desc))
        return false;
    if (desc->image)
        return ignis__kernel_image_check(call, desc);
    if (!ignis__given(call, "desc.source", desc->source) || !ignis__kernel_entries_check(call, desc))
        return false;
    if (desc->option_count < 0 || desc->option_count > IGNIS__MAX_OPTIONS)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.option_count is %d, outside 0 to %d", desc->option_count,
                             IGNIS__MAX_OPTIONS);
    if (desc->option_count > 0 && !ignis__given(call, "desc.options", desc->options))
        return false;
    if (desc->header_count < 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.header_count is %d, below 0", desc->header_count);
    if (desc->header_count > 0 && !ignis__given(call, "desc.headers", desc->headers))
        return false;
    for (i = 0; i < desc->option_count; i++)
        if (!desc->options[i])
            return ignis__refuse(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.options[%d] is null", i);
    for (i = 0; i < desc->header_count; i++)
        if (!ignis__kernel_header_check(call, desc, i))
            return false;
    return true;
}

IGNIS__COLD static char *ignis__program_keep(char *at, const char **text)
{
    size_t size = strlen(*text) + 1;
    memcpy(at, *text, size);
    *text = at;
    return at + size;
}

/*  Copies a program, with all its strings, into memory of the kernel. */
IGNIS__COLD static bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program)
{
    size_t option_bytes = (size_t)program.option_count * sizeof *program.options;
    size_t header_bytes = (size_t)program.header_count * sizeof *program.headers;
    size_t size = option_bytes + header_bytes + strlen(program.name) + strlen(program.entry) + 2;
    ignis_kernel_header *headers;
    const char **options;
    char *at;
    int i;
    size += program.image ? program.image_size + 1 : strlen(program.source) + 1;
    for (i = 0; i < program.option_count; i++)
        size += strlen(program.options[i]) + 1;
    for (i = 0; i < program.header_count; i++)
        size += strlen(program.headers[i].name) + strlen(program.headers[i].text) + 2;
    kernel->entry = ignis__entry_copy(call, program.entry, 0);
    kernel->memory = at = kernel->entry ? (char *)ignis__alloc_for(call, size) : NULL;
    if (!at) {
        ignis__free(kernel->entry);
        kernel->entry = NULL;
        return false;
    }
    options = (const char **)(void *)at;
    headers = (ignis_kernel_header *)(void *)(at + option_bytes);
    at += option_bytes + header_bytes;
    if (program.image) { /* at the beginning, as the driver may want it aligned */
        memcpy(at, program.image, program.image_size);
        program.image = at;
        at += program.image_size + 1;
    } else {
        at = ignis__program_keep(at, &program.source);
    }
    at = ignis__program_keep(at, &program.name);
    at = ignis__program_keep(at, &program.entry);
    for (i = 0; i < program.option_count; i++) {
        options[i] = program.options[i];
        at = ignis__program_keep(at, &options[i]);
    }
    for (i = 0; i < program.header_count; i++) {
        headers[i] = program.headers[i];
        at = ignis__program_keep(at, &headers[i].name);
        at = ignis__program_keep(at, &headers[i].text);
    }
    program.options = options;
    program.headers = headers;
    kernel->program = program;
    return true;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc)
{
    static const char call[] = "ignis_kernel_compile";
    ignis_kernel handle = IGNIS__ZERO;
    ignis__kernel *kernel;
    ignis__binding binding;
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__kernel_desc_check(call, desc) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return handle;
    kernel = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (kernel && !ignis__kernel_keep(call, kernel, ignis__program_from(desc))) {
        ignis__pool_give(&ignis__kernels, kernel);
    } else if (kernel) {
        kernel->file = ignis__this_thread.file;
        kernel->line = ignis__this_thread.line;
        if (ignis__kernel_code_get(call, device, kernel))
            handle.id = ignis__pool_publish(&ignis__kernels, kernel);
        else
            ignis__kernel_destroy(call, kernel);
    }
    ignis__device_leave(&binding);
    return handle;
}

/*  A handle for an entry of a held kernel's program, not published yet. */
IGNIS__COLD static ignis__kernel *ignis__kernel_make_entry(const char *call, ignis__kernel *kernel, const char *entry)
{
    ignis__kernel *made = (ignis__kernel *)ignis__pool_take_zeroed(call, &ignis__kernels);
    if (!made)
        return NULL;
    made->shares = kernel->shares ? kernel->shares : kernel;
    (void)ignis__pool_hold_more(made->shares);
    made->file = ignis__this_thread.file;
    made->line = ignis__this_thread.line;
    made->entry = ignis__copy_string(entry);
    if (made->entry)
        return made;
    ignis__fail_host_memory(call, strlen(entry) + 1);
    ignis__kernel_destroy(call, made);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel handle, const char *entry)
{
    static const char call[] = "ignis_kernel_entry";
    ignis_kernel result = IGNIS__ZERO;
    ignis__kernel *kernel = ignis__kernel_hold(call, handle), *made;
    ignis__binding binding;
    ignis__device *device;
    if (!kernel)
        return result;
    if (ignis__given(call, "entry", entry) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        made = ignis__kernel_make_entry(call, kernel, entry);
        if (made && ignis__kernel_code_of(call, device, made))
            result.id = ignis__pool_publish(&ignis__kernels, made);
        else if (made)
            ignis__kernel_destroy(call, made);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return result;
}

IGNIS__COLD static bool ignis__kernel_kill(ignis__kernel *kernel)
{
    ignis__mutex_lock(&kernel->slot.lock);
    ignis__former_write(&kernel->former, &kernel->slot, 0, kernel->entry);
    ignis__mutex_unlock(&kernel->slot.lock);
    return ignis__handle_kill(kernel);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_free(ignis_kernel handle)
{
    static const char call[] = "ignis_kernel_free";
    const uint64_t failures = ignis__failures();
    ignis__kernel *kernel;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    kernel = ignis__kernel_hold(call, handle);
    if (!kernel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        ignis__kernel_drop(call, kernel);
        return ignis__failed();
    }
    live = ignis__kernel_kill(kernel);
    if (!live)
        ignis__fail_stale(call, &ignis__kernels, handle.id);
    ignis__kernel_drop(call, kernel);
    return ignis__ended(failures, live);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "info", info) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code && !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->registers, IGNIS__CU_FUNC_REGISTERS, code->function)) &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, code->function));
        if (ok) {
            info->entry = code->entry;
            info->parameters = code->params;
            info->shared_bytes = code->static_shared;
            info->max_threads = code->max_threads;
            info->from_cache = ignis__kernel_code_get(call, device, ignis__kernel_newest(kernel))->module.from_cache;
        }
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Whether a block can have so many threads, and so much shared memory that is not static. */
static bool ignis__block_check(const char *call, const ignis__device *device, const ignis__kernel_code *code, int64_t threads,
                               int64_t shared_bytes)
{
    int64_t shared_limit = device->info.shared_per_block - code->static_shared;
    if (threads > code->max_threads)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call, "a block of %lld threads is more than the %d that kernel %s can have",
                             (long long)threads, code->max_threads, code->entry);
    if (shared_bytes < 0 || shared_bytes > shared_limit)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call,
                             "shared_bytes is %lld, outside 0 to the %lld that device %d leaves beside %d static bytes",
                             (long long)shared_bytes, (long long)shared_limit, device->info.device, code->static_shared);
    return true;
}

/*  How many blocks of so many threads run at once on a multiprocessor. */
static bool ignis__kernel_resident(const char *call, ignis__device *device, const ignis__kernel_code *code, int threads,
                                   int64_t shared_bytes, int *blocks)
{
    return !IGNIS__CUDA_FAILED(call, device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                               (blocks, code->function, threads, (size_t)shared_bytes));
}

IGNIS__COLD static bool ignis__kernel_occupancy(const char *call, ignis__device *device, const ignis__kernel_code *code, int block,
                                                int64_t shared_bytes, ignis_occupancy *out)
{
    int threads = block, warp = device->info.warp_size, blocks;
    if (block < 0)
        return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, call, "block is %d, below 0", block);
    if (!ignis__block_check(call, device, code, block, shared_bytes))
        return false;
    out->block = block;
    out->blocks = 0;
    if (block > 0 && !ignis__kernel_resident(call, device, code, block, shared_bytes, &out->blocks))
        return false;
    for (threads = code->max_threads / warp * warp; block == 0 && threads > 0; threads -= warp) {
        if (!ignis__kernel_resident(call, device, code, threads, shared_bytes, &blocks))
            return false;
        if (out->block == 0 || blocks * threads > out->blocks * out->block) {
            out->block = threads;
            out->blocks = blocks;
        }
    }
    out->grid = out->blocks * device->info.multiprocessors;
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel handle, int block, int64_t shared_bytes, ignis_occupancy *out)
{
    static const char call[] = "ignis_kernel_occupancy";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "out", out) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code && ignis__kernel_occupancy(call, device, code, block, shared_bytes, out);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Copies to a variable of a program from data, or from it to out; the other one is null. */
IGNIS__COLD static bool ignis__symbol_copy(const ignis__work *work, ignis__kernel *program, const char *name, const void *data, void *out,
                                           int64_t size)
{
    ignis__kernel_code *code = ignis__kernel_code_get(work->call, work->device, program);
    ignis__address address = 0;
    size_t bytes = 0;
    int error = code && !ignis__global.dry_run ? IGNIS__CUDA(cuModuleGetGlobal_v2, (&address, &bytes, code->module.module, name)) : 0;
    if (code && ignis__global.dry_run && out && size > 0) /* which knows no variables */
        memset(out, 0, (size_t)size);
    if (!code || ignis__global.dry_run)
        return code != NULL;
    if (error == IGNIS__CU_NOT_FOUND)
        ignis__fail(IGNIS_DIAG_SYMBOL_MISSING, work->call, "the program of kernel %s has no __constant__ or __device__ variable '%s'",
                    program->entry, name);
    else if (ignis__cuda_check(work->call, work->device, "cuModuleGetGlobal_v2", error) == IGNIS_OK && (int64_t)bytes != size)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, work->call, "'%s' has %lld bytes, the call says %lld", name, (long long)bytes,
                    (long long)size);
    else if (error == 0)
        return out ? ignis__copy_to_host(work, out, address, size) : ignis__copy_from_host(work, address, data, size);
    return false;
}

IGNIS__COLD static ignis_status ignis__kernel_symbol(const char *call, ignis_kernel handle, const char *name, const void *data, void *out,
                                                     int64_t size)
{
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__device *device;
    ignis__work work;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__given(call, "name", name) && ignis__given(call, "data", data ? data : out) && !ignis__capture_refuses(call) &&
        (device = ignis__device_get(call, ignis__thread_now()->device)) != NULL && ignis__work_begin(call, device, &work)) {
        ok = ignis__symbol_copy(&work, ignis__kernel_newest(kernel), name, data, out, size);
        ignis__work_end(&work);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_set_symbol", kernel, name, data, NULL, size);
}

IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_get_symbol", kernel, name, NULL, data, size);
}

/* --- reloading -------------------------------------------------------------------------------------------------------- */

typedef struct ignis__reload {
    ignis__kernel *kernel; /* of the handle, held */
    ignis__kernel *version;
    bool device[IGNIS_MAX_DEVICES];
} ignis__reload;

static const char ignis__reload_call[] = "ignis_kernel_reload";

IGNIS__COLD static void ignis__reload_drop(ignis__reload *reload)
{
    if (reload->version) {
        ignis__kernel_unload(ignis__reload_call, reload->version);
        ignis__free(reload->version);
    }
    ignis__kernel_drop(ignis__reload_call, reload->kernel);
    ignis__free(reload);
}

/*  Whether the new program has all entries of those that handles launch. */
IGNIS__COLD static bool ignis__reload_entries(ignis__device *device, ignis__kernel *before, ignis__kernel *version)
{
    ignis__kernel_code *code = ignis__kernel_code_get(ignis__reload_call, device, version), *old;
    old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&before->code[device - ignis__devices]);
    while (code && old && (old = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&old->entries)) != NULL)
        if (!ignis__kernel_code_entry(ignis__reload_call, device, version, code, old->entry))
            return false;
    return code != NULL;
}

/*  Compiles for all devices, and puts the result before those that were asked for earlier. */
IGNIS__COLD static void ignis__reload_run(void *context)
{
    ignis__reload *reload = (ignis__reload *)context;
    ignis__kernel *kernel = reload->kernel, *version = reload->version, *newest;
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; ok && i < ignis__device_total; i++) {
        if (reload->device[i] && (ok = ignis__device_enter(ignis__reload_call, &ignis__devices[i], &binding)) == true) {
            ok = ignis__reload_entries(&ignis__devices[i], ignis__kernel_newest(kernel), version);
            ignis__device_leave(&binding);
        }
    }
    if (ok) {
        ignis__mutex_lock(&kernel->slot.lock);
        newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest);
        if (newest && newest->reload > version->reload) {
            version->older = newest->older;
            newest->older = version;
        } else {
            version->older = newest;
            ignis__atomic_store(&kernel->newest, (uint64_t)(uintptr_t)version);
        }
        ignis__mutex_unlock(&kernel->slot.lock);
        reload->version = NULL;
    }
    ignis__reload_drop(reload);
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel handle, const ignis_kernel_desc *desc)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__kernel *held = ignis__kernel_hold(ignis__reload_call, handle), *kernel = held && held->shares ? held->shares : held;
    ignis__device *device = kernel ? ignis__device_get(ignis__reload_call, ignis__thread_now()->device) : NULL;
    ignis__ticket *ticket = NULL;
    ignis__reload *reload;
    int i;
    if (!kernel)
        return result;
    if (kernel != held) {
        (void)ignis__pool_hold_more(kernel);
        ignis__kernel_drop(ignis__reload_call, held);
    }
    if (!device || !ignis__kernel_desc_check(ignis__reload_call, desc)) {
        ignis__kernel_drop(ignis__reload_call, kernel);
        return result;
    }
    reload = (ignis__reload *)ignis__alloc(sizeof *reload);
    if (reload)
        reload->version = (ignis__kernel *)ignis__alloc(sizeof *reload->version);
    if (!reload || !reload->version) {
        ignis__free(reload);
        ignis__kernel_drop(ignis__reload_call, kernel);
        ignis__fail_host_memory(ignis__reload_call, sizeof *reload + sizeof *kernel);
        return result;
    }
    reload->kernel = kernel;
    ignis__mutex_init(&reload->version->slot.lock);
    for (i = 0; i < ignis__device_total; i++)
        reload->device[i] = &ignis__devices[i] == device || ignis__atomic_load(&ignis__kernel_newest(kernel)->code[i]) != 0;
    ignis__mutex_lock(&kernel->slot.lock);
    reload->version->reload = ++kernel->reloads;
    ignis__mutex_unlock(&kernel->slot.lock);
    if (ignis__kernel_keep(ignis__reload_call, reload->version, ignis__program_from(desc)))
        ticket = ignis__ticket_start(ignis__reload_call, device, ignis__reload_run, reload);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__reload_drop(reload);
    return result;
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

#define IGNIS__ARG_SCALAR(suffix, ctype, TYPE)          \
    IGNIS_API ignis_arg ignis_arg_##suffix(ctype value) \
    {                                                   \
        ignis_arg arg;                                  \
        arg.type = IGNIS_ARG_##TYPE;                    \
        arg.size = 0;                                   \
        arg.value.suffix = value;                       \
        return arg;                                     \
    }
IGNIS__ARG_SCALAR(array, ignis_array, ARRAY)
IGNIS__ARG_SCALAR(i32, int32_t, I32)
IGNIS__ARG_SCALAR(i64, int64_t, I64)
IGNIS__ARG_SCALAR(f32, float, F32)
IGNIS__ARG_SCALAR(f64, double, F64)
IGNIS__ARG_SCALAR(ptr, void *, PTR)

IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size)
{
    ignis_arg arg;
    arg.type = IGNIS_ARG_BYTES;
    arg.size = size;
    arg.value.bytes = bytes;
    return arg;
}

/*  The arguments of one launch as the driver takes them, and the arrays that are held meanwhile. */
typedef struct ignis__launch_args {
    void *params[IGNIS__MAX_PARAMS];
    ignis__address addresses[IGNIS__MAX_PARAMS];
    ignis__array *arrays[IGNIS__MAX_PARAMS];
    int array_count;
} ignis__launch_args;

static size_t ignis__arg_size(const ignis_arg *arg)
{
    switch (arg->type) {
    case IGNIS_ARG_I32:
    case IGNIS_ARG_F32: return 4;
    case IGNIS_ARG_BYTES: return arg->size;
    default: return 8;
    }
}

static bool ignis__arg_array(const ignis__work *work, ignis__launch_args *launch, int index, ignis_array handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array) {
        ignis__fail_stale(work->call, &ignis__arrays, handle.id);
        return false;
    }
    launch->arrays[launch->array_count++] = array;
    if (array->storage->device != work->device)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, work->call, "argument %d, %s, is on device %d, the kernel runs on device %d", index,
                             ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                             ignis__device_ordinal(work->device));
    launch->params[index] = &launch->addresses[index];
    if (!ignis__work_address(work, array, &launch->addresses[index]))
        return false;
    ignis__storage_lent(array->storage);
    return true;
}

static bool ignis__args_gather(const ignis__work *work, const ignis__kernel_code *code, const ignis_arg *args, int count,
                               ignis__launch_args *launch)
{
    int i;
    launch->array_count = 0;
    if (count < 0 || count > IGNIS__MAX_PARAMS || (code->params >= 0 && count != code->params))
        return ignis__refuse(IGNIS_DIAG_ARG_COUNT, work->call, "kernel %s has %d parameters, the call gives %d arguments", code->entry,
                             code->params >= 0 ? code->params : IGNIS__MAX_PARAMS, count);
    for (i = 0; i < count; i++) {
        if (args[i].type < IGNIS_ARG_ARRAY || args[i].type > IGNIS_ARG_BYTES)
            return ignis__refuse(IGNIS_DIAG_BAD_ENUM, work->call, "argument %d has type %d; make it with an ignis_arg_ function", i,
                                 (int)args[i].type);
        if (code->params >= 0 && ignis__arg_size(&args[i]) != code->param_size[i])
            return ignis__refuse(IGNIS_DIAG_ARG_SIZE, work->call, "argument %d of kernel %s is %llu bytes, its parameter %llu", i,
                                 code->entry, (unsigned long long)ignis__arg_size(&args[i]), (unsigned long long)code->param_size[i]);
        if (args[i].type == IGNIS_ARG_BYTES && !args[i].value.bytes)
            return ignis__refuse(IGNIS_DIAG_NULL_ARGUMENT, work->call, "argument %d has no bytes", i);
        /* The driver only reads parameters; its prototype has no const. */
        if (args[i].type == IGNIS_ARG_BYTES)
            launch->params[i] = (void *)(uintptr_t)args[i].value.bytes;
        else if (args[i].type != IGNIS_ARG_ARRAY)
            launch->params[i] = (void *)(uintptr_t)&args[i].value;
        else if (!ignis__arg_array(work, launch, i, args[i].value.array))
            return false;
    }
    return true;
}

/*  Whether all blocks of a launch can run at once, the kernel alone on the device. */
IGNIS__COLD static bool ignis__launch_check_together(const ignis__work *work, const ignis__kernel_code *code, const ignis_launch *launch,
                                                     const unsigned grid[3], int threads)
{
    int64_t wanted = (int64_t)grid[0] * grid[1] * grid[2], room;
    int blocks = 0;
    if (!ignis__cuda.cuLaunchKernelEx)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, work->call, "cooperative launches need a driver of CUDA 12.3 or newer");
    if (!ignis__kernel_resident(work->call, work->device, code, threads, launch->shared_bytes, &blocks))
        return false;
    room = (int64_t)blocks * work->device->info.multiprocessors;
    return wanted <= room ||
           ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call,
                         "a cooperative launch of %lld blocks of %d threads: kernel %s has room for %lld on device %d, %d on each of its "
                         "%d multiprocessors (ignis_kernel_occupancy)",
                         (long long)wanted, threads, code->entry, (long long)room, work->device->info.device, blocks,
                         work->device->info.multiprocessors);
}

/*  Checks a launch against the limits of device and kernel, with 0 as 1 where that is allowed. */
static bool ignis__launch_check(const ignis__work *work, const ignis__kernel_code *code, const ignis_launch *launch, unsigned grid[3],
                                unsigned block[3])
{
    static const int64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const int block_limit[3] = {1024, 1024, 64};
    int64_t threads = 1;
    int i;
    for (i = 0; i < 3; i++) {
        int64_t blocks = launch->grid[i] == 0 && i > 0 ? 1 : launch->grid[i];
        int size = launch->block[i] == 0 && i > 0 ? 1 : launch->block[i];
        if (blocks < 0 || blocks > grid_limit[i])
            return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call, "grid[%d] is %lld, outside 0 to %lld", i, (long long)launch->grid[i],
                                 (long long)grid_limit[i]);
        if (size < 1 || size > block_limit[i])
            return ignis__refuse(IGNIS_DIAG_LAUNCH_SIZE, work->call, "block[%d] is %d, outside 1 to %d", i, launch->block[i],
                                 block_limit[i]);
        grid[i] = (unsigned)blocks;
        block[i] = (unsigned)size;
        threads *= size;
    }
    return ignis__block_check(work->call, work->device, code, threads, launch->shared_bytes) &&
           (!launch->cooperative || ignis__launch_check_together(work, code, launch, grid, (int)threads));
}

/*  dependent: the kernel waits by itself for what is ahead of it on the stream, and may begin earlier (programmatic dependent launch). together: its
    blocks wait for each other, and all run at once; the driver has cuLaunchKernelEx. */
static bool ignis__launch_as(const ignis__work *work, void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                             void **params, bool dependent, bool together)
{
    ignis__traced item;
    unsigned count = 0;
    bool traced, ok;
    if ((int64_t)shared > work->device->info.shared_per_block)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, work->call, "the kernel needs %u bytes of shared memory in a block, device %d has %d",
                             shared, work->device->info.device, work->device->info.shared_per_block);
    traced = ignis__profiling() && ignis__traced_open(&item, IGNIS__TRACED_KERNEL, work->call, work->device, work->stream, function, NULL);
    dependent = dependent && ignis__cuda.cuLaunchKernelEx && work->device->info.compute_major >= 9;
    if (dependent || together) {
        ignis__launch_attribute attributes[2];
        ignis__launch_config config = IGNIS__ZERO;
        memset(attributes, 0, sizeof attributes);
        attributes[0].value.allowed = attributes[1].value.allowed = 1;
        if (dependent)
            attributes[count++].id = IGNIS__CU_LAUNCH_DEPENDENT;
        if (together)
            attributes[count++].id = IGNIS__CU_LAUNCH_COOPERATIVE;
        memcpy(config.grid, grid, sizeof config.grid);
        memcpy(config.block, block, sizeof config.block);
        config.shared_bytes = shared;
        config.stream = work->stream;
        config.attributes = attributes;
        config.attribute_count = count;
        ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernelEx, (&config, function, params, NULL));
    } else {
        ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernel,
                                 (function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, work->stream, params, NULL));
    }
    return traced ? ignis__traced_close(&item, ok) : ok;
}

static ignis_status ignis__kernel_launch(const char *call, ignis__kernel *kernel, const ignis_launch *launch, const ignis_arg *args,
                                         int count)
{
    ignis__launch_args gathered;
    ignis__kernel_code *code;
    ignis__work work;
    ignis__capture *capture;
    unsigned grid[3], block[3];
    bool ok;
    ignis__device *device = ignis__device_get(call, ignis__thread_now()->device);
    if (!device || !ignis__work_begin(call, device, &work))
        return ignis__failed();
    capture = ignis__capture_on(device);
    code = ignis__kernel_code_of(call, work.device, kernel);
    ok = code != NULL;
    if (ok) {
        ok = ignis__args_gather(&work, code, args, count, &gathered) && ignis__launch_check(&work, code, launch, grid, block) &&
             (!capture || ignis__capture_hold(call, capture, kernel, &kernel->slot.state, ignis__kernel_drop_held)) &&
             (grid[0] == 0 || ignis__launch_as(&work, code->function, grid, block, (unsigned)launch->shared_bytes, gathered.params,
                                               launch->dependent && code->waits, launch->cooperative));
        ignis__array_drop_all(call, gathered.array_count, gathered.arrays);
    }
    ignis__work_end(&work);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel handle, const ignis_launch *launch, const ignis_arg *args, int arg_count)
{
    static const char call[] = "ignis_kernel_launch";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis_status status;
    if (!kernel)
        return ignis__failed();
    if (!launch)
        status = ignis__fail_null(call, "launch");
    else if (!args && arg_count > 0)
        status = ignis__fail_null(call, "args");
    else
        status = ignis__kernel_launch(call, kernel, launch, args, arg_count);
    ignis__kernel_drop(call, kernel);
    return status;
}

/* --- tensor maps ------------------------------------------------------------------------------------------------------ */

/*  Where the tiles of an array are, for the copy engine of sm_90 and up (TMA). The driver packs the bits on the host, for each launch anew, and
    the kernel gets them by value: a graph keeps what it was captured with. kernels/hopper.cuh has the same struct. */
typedef struct ignis__tensor_map {
    uint64_t words[16];
} ignis__tensor_map;

/*  What pixels of images a tile has: so many, one after the other of a box in each image, from lower to upper, which count from the first and
    the last pixel on, of every step-th row and column. Columns come first. */
typedef struct ignis__tensor_pixels {
    int lower[2], upper[2], step[2], count;
} ignis__tensor_pixels;

/*  A map of an array of up to 5 dimensions, the contiguous one first. `strides` are the bytes from one element to the next of the dimensions
    after it, multiples of 16 as the address is. A tile has box[i] elements of dimension i; its rows of 128 bytes lie in shared memory with
    their chunks of 16 bytes swizzled. What is outside of the array reads as zeros, and is not written. With pixels (null: none) the array is
    [image, row, column, channel], and a tile has box[0] channels of them. */
IGNIS__MAYBE_UNUSED static bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map, ignis_dtype dtype, bool rounds,
                                                       ignis__address data, int rank, const int64_t *dims, const int64_t *strides,
                                                       const int *box, const ignis__tensor_pixels *pixels)
{
    enum {
        U8 = 0,
        F16 = 6,
        F32 = 7,
        F64 = 8,
        BF16 = 9,
        TF32 = 11,
        NO_INTERLEAVE = 0,
        SWIZZLE_128_BYTES = 3,
        PROMOTE_TO_128_BYTES = 2,
        ZEROS_OUTSIDE = 0
    };
    int type = dtype == IGNIS_F16          ? F16
               : dtype == IGNIS_BF16       ? BF16
               : dtype == IGNIS_F64        ? F64
               : ignis__dtype_is_f8(dtype) ? U8
               : rounds                    ? TF32
                                           : F32,
        i;
    unsigned long long sizes[5], steps[5], aligned[24];
    unsigned boxes[5], walk[5];
    void *at = aligned + (64 - (uintptr_t)aligned % 64) % 64 / sizeof *aligned;
    IGNIS_ASSERT(rank >= 1 && rank <= 5 && !ignis__dtype_is_int(dtype) && (!pixels || rank == 4));
    for (i = 0; i < rank; i++) {
        sizes[i] = (unsigned long long)dims[i];
        steps[i] = i + 1 < rank ? (unsigned long long)strides[i] : 0;
        boxes[i] = pixels ? 0 : (unsigned)box[i];
        walk[i] = pixels && (i == 1 || i == 2) ? (unsigned)pixels->step[i - 1] : 1;
    }
    if (pixels ? IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeIm2col,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, pixels->lower, pixels->upper,
                                     (unsigned)box[0], (unsigned)pixels->count, walk, NO_INTERLEAVE, SWIZZLE_128_BYTES,
                                     PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE))
               : IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeTiled,
                                    (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, boxes, walk, NO_INTERLEAVE,
                                     SWIZZLE_128_BYTES, PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE)))
        return false;
    memcpy(map, at, sizeof *map);
    return true;
}

/* --- Ignis' own kernels ----------------------------------------------------------------------------------------------- */

/*  Those of generation, which others do not warm up. */
#ifdef IGNIS_MODELS
#define IGNIS__BUILTINS_MODELS(X)                                               \
    X(BLOCKS_ROWS, BLOCKS_CU, "ignis_blocks_rows")                              \
    X(BLOCKS_EMBEDDING, BLOCKS_CU, "ignis_blocks_embedding")                    \
    X(BLOCKS_EMBED, BLOCKS_CU, "ignis_blocks_embed")                            \
    X(GENERATE_WORDS, GENERATE_CU, "ignis_generate_words")                      \
    X(GENERATE_ROWS, GENERATE_CU, "ignis_generate_rows")                        \
    X(GENERATE_CHUNK, GENERATE_CU, "ignis_generate_chunk")                      \
    X(GENERATE_EMBED, GENERATE_CU, "ignis_generate_embed")                      \
    X(GENERATE_NORM, GENERATE_CU, "ignis_generate_norm")                        \
    X(GENERATE_GATE, GENERATE_CU, "ignis_generate_gate")                        \
    X(GENERATE_CACHE, GENERATE_CU, "ignis_generate_cache")                      \
    X(GENERATE_GATHER, GENERATE_CU, "ignis_generate_gather")                    \
    X(GENERATE_COPY, GENERATE_CU, "ignis_generate_copy")                        \
    X(GENERATE_DRAW, GENERATE_DRAW_CU, "ignis_generate_draw")                   \
    X(GENERATE_DRAW_BINS, GENERATE_DRAW_CU, "ignis_generate_draw_bins")         \
    X(GENERATE_DRAW_CUT, GENERATE_DRAW_CU, "ignis_generate_draw_cut")           \
    X(GEMV_1, GEMV_CU, "ignis_gemv_1")                                          \
    X(GEMV_2, GEMV_CU, "ignis_gemv_2")                                          \
    X(GEMV_4, GEMV_CU, "ignis_gemv_4")                                          \
    X(GEMV_8, GEMV_CU, "ignis_gemv_8")                                          \
    X(GEMV_GATED_1, GEMV_CU, "ignis_gemv_gated_1")                              \
    X(GEMV_GATED_2, GEMV_CU, "ignis_gemv_gated_2")                              \
    X(GEMV_GATED_4, GEMV_CU, "ignis_gemv_gated_4")                              \
    X(GEMV_GATED_8, GEMV_CU, "ignis_gemv_gated_8")                              \
    X(GEMV_MMA_NORM, GEMV_MMA_CU, "ignis_gemv_mma_norm")                        \
    X(GEMV_MMA_1, GEMV_MMA_CU, "ignis_gemv_mma_1")                              \
    X(GEMV_MMA_8, GEMV_MMA_CU, "ignis_gemv_mma_8")                              \
    X(GEMV_MMA_16, GEMV_MMA_CU, "ignis_gemv_mma_16")                            \
    X(GEMV_MMA_32, GEMV_MMA_CU, "ignis_gemv_mma_32")                            \
    X(GEMV_MMA_64, GEMV_MMA_CU, "ignis_gemv_mma_64")                            \
    X(GEMV_CLUSTER, GEMV_CLUSTER_CU, "ignis_gemv_cluster")                      \
    X(GEMV_CLUSTER_BLOCKS, GEMV_CLUSTER_BLOCKS_CU, "ignis_gemv_cluster_blocks") \
    X(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_CU, "ignis_gemv_blocks_rows")               \
    X(GEMV_BLOCKS_1, GEMV_BLOCKS_CU, "ignis_gemv_blocks_1")                     \
    X(GEMV_BLOCKS_8, GEMV_BLOCKS_CU, "ignis_gemv_blocks_8")                     \
    X(GEMV_BLOCKS_16, GEMV_BLOCKS_CU, "ignis_gemv_blocks_16")                   \
    X(GEMV_BLOCKS_32, GEMV_BLOCKS_CU, "ignis_gemv_blocks_32")                   \
    X(GEMV_BLOCKS_64, GEMV_BLOCKS_CU, "ignis_gemv_blocks_64")                   \
    X(PAGED_1, ATTENTION_PAGED_CU, "ignis_attention_paged_1")                   \
    X(PAGED_2, ATTENTION_PAGED_CU, "ignis_attention_paged_2")                   \
    X(PAGED_MMA, ATTENTION_PAGED_MMA_CU, "ignis_attention_paged_mma")           \
    X(PAGED_MANY, ATTENTION_PAGED_MANY_CU, "ignis_attention_paged_many")        \
    X(GENERATE_STEP, GENERATE_STEP_CU, "ignis_generate_step")
#else
#define IGNIS__BUILTINS_MODELS(X)
#endif

/*  X(enumerator, source, entry). Each source is one program a dtype, compiled with -DIGNIS_T=<dtype> when one of its kernels is first used. */
#define IGNIS__BUILTINS(X)                                                                     \
    X(FILL, ELEMENTWISE_CU, "ignis_fill")                                                      \
    X(ADD, ELEMENTWISE_CU, "ignis_add")                                                        \
    X(ADD_EACH, ELEMENTWISE_CU, "ignis_add_each")                                              \
    X(MUL, ELEMENTWISE_CU, "ignis_mul")                                                        \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale")                                                    \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16")                                              \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16")                                            \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32")                                              \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64")                                              \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32")                                              \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64")                                              \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8")                                                \
    X(CAST_F8_E4M3, ELEMENTWISE_CU, "ignis_cast_f8_e4m3")                                      \
    X(CAST_F8_E5M2, ELEMENTWISE_CU, "ignis_cast_f8_e5m2")                                      \
    X(SDPA, ATTENTION_CU, "ignis_sdpa")                                                        \
    X(SDPA_BACKWARD_DELTA, ATTENTION_CU, "ignis_sdpa_backward_delta")                          \
    X(SDPA_BACKWARD_KV, ATTENTION_CU, "ignis_sdpa_backward_kv")                                \
    X(SDPA_BACKWARD_Q, ATTENTION_CU, "ignis_sdpa_backward_q")                                  \
    X(SDPA_BACKWARD_BIAS, ATTENTION_CU, "ignis_sdpa_backward_bias")                            \
    X(SDPA_MMA, ATTENTION_MMA_CU, "ignis_sdpa")                                                \
    X(SDPA_MMA_BACKWARD_DELTA, ATTENTION_MMA_CU, "ignis_sdpa_backward_delta")                  \
    X(SDPA_MMA_BACKWARD_KV, ATTENTION_MMA_CU, "ignis_sdpa_backward_kv")                        \
    X(SDPA_MMA_BACKWARD_Q, ATTENTION_MMA_CU, "ignis_sdpa_backward_q")                          \
    X(SDPA_MMA_BACKWARD_BIAS, ATTENTION_MMA_CU, "ignis_sdpa_backward_bias")                    \
    X(SDPA_HOPPER, ATTENTION_HOPPER_CU, "ignis_sdpa")                                          \
    X(SDPA_HOPPER_COMBINE, ATTENTION_HOPPER_CU, "ignis_sdpa_combine")                          \
    X(SDPA_HOPPER_BACKWARD_ROWS, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rows")     \
    X(SDPA_HOPPER_BACKWARD, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward")               \
    X(SDPA_HOPPER_BACKWARD_FINISH, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_finish") \
    X(SDPA_HOPPER_BACKWARD_TURNED, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_turned") \
    X(SDPA_DECODE_1, ATTENTION_DECODE_CU, "ignis_sdpa_decode_1")                               \
    X(SDPA_DECODE_2, ATTENTION_DECODE_CU, "ignis_sdpa_decode_2")                               \
    X(SDPA_DECODE_4, ATTENTION_DECODE_CU, "ignis_sdpa_decode_4")                               \
    X(SDPA_DECODE_COMBINE, ATTENTION_DECODE_CU, "ignis_sdpa_decode_combine")                   \
    X(SDPA_MMA_DECODE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode")                           \
    X(SDPA_MMA_DECODE_COMBINE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode_combine")           \
    X(SUB, POINTWISE_CU, "ignis_sub")                                                          \
    X(ADD_SPREAD, POINTWISE_CU, "ignis_add_spread")                                            \
    X(SUB_SPREAD, POINTWISE_CU, "ignis_sub_spread")                                            \
    X(MUL_SPREAD, POINTWISE_CU, "ignis_mul_spread")                                            \
    X(SPREAD_SCALED, POINTWISE_CU, "ignis_spread_scaled")                                      \
    X(DROPOUT, POINTWISE_CU, "ignis_dropout")                                                  \
    X(RELU, ACTIVATION_CU, "ignis_relu")                                                       \
    X(RELU_BACKWARD, ACTIVATION_CU, "ignis_relu_backward")                                     \
    X(GELU, ACTIVATION_CU, "ignis_gelu")                                                       \
    X(GELU_BACKWARD, ACTIVATION_CU, "ignis_gelu_backward")                                     \
    X(GELU_EXACT, ACTIVATION_CU, "ignis_gelu_exact")                                           \
    X(GELU_EXACT_BACKWARD, ACTIVATION_CU, "ignis_gelu_exact_backward")                         \
    X(SILU, ACTIVATION_CU, "ignis_silu")                                                       \
    X(SILU_BACKWARD, ACTIVATION_CU, "ignis_silu_backward")                                     \
    X(SILU_MUL, ACTIVATION_CU, "ignis_silu_mul")                                               \
    X(SILU_MUL_BACKWARD, ACTIVATION_CU, "ignis_silu_mul_backward")                             \
    X(GEMM, GEMM_CU, "ignis_gemm")                                                             \
    X(GEMM_SMALL, GEMM_CU, "ignis_gemm_small")                                                 \
    X(GEMM_TINY, GEMM_CU, "ignis_gemm_tiny")                                                   \
    X(GEMM_MMA, GEMM_MMA_CU, "ignis_gemm_mma")                                                 \
    X(GEMM_MMA_SMALL, GEMM_MMA_CU, "ignis_gemm_mma_small")                                     \
    X(GEMM_HOPPER, GEMM_HOPPER_CU, "ignis_gemm_hopper")                                        \
    X(DEPTHWISE, DEPTHWISE_CU, "ignis_depthwise")                                              \
    X(DEPTHWISE_ODD, DEPTHWISE_CU, "ignis_depthwise_odd")                                      \
    X(DEPTHWISE_WEIGHTS, DEPTHWISE_CU, "ignis_depthwise_weights")                              \
    X(DEPTHWISE_WEIGHTS_ODD, DEPTHWISE_CU, "ignis_depthwise_weights_odd")                      \
    X(GROUPED, GROUPED_MMA_CU, "ignis_grouped")                                                \
    X(GROUPED_WEIGHTS, GROUPED_MMA_CU, "ignis_grouped_weights")                                \
    X(GEMM_FINISH, GEMM_CU, "ignis_gemm_finish")                                               \
    X(GEMM_PACK, GEMM_CU, "ignis_gemm_pack")                                                   \
    X(GEMM_SUMS, GEMM_CU, "ignis_gemm_sums")                                                   \
    X(GEMM_APPLY, GEMM_CU, "ignis_gemm_apply")                                                 \
    X(SUM_ROWS, REDUCE_CU, "ignis_sum_rows")                                                   \
    X(DOT_ROWS, REDUCE_CU, "ignis_dot_rows")                                                   \
    X(SUM_COLUMNS, REDUCE_CU, "ignis_sum_columns")                                             \
    X(DOT_COLUMNS, REDUCE_CU, "ignis_dot_columns")                                             \
    X(SUM_FINISH, REDUCE_CU, "ignis_sum_finish")                                               \
    X(TRANSPOSE_RUNS, SHAPE_CU, "ignis_transpose_runs")                                        \
    X(TRANSPOSE_TILES, SHAPE_CU, "ignis_transpose_tiles")                                      \
    X(COPY_ROWS, SHAPE_CU, "ignis_copy_rows")                                                  \
    X(STRIDED_COPY, SHAPE_CU, "ignis_strided_copy")                                            \
    X(STRIDED_TILES, SHAPE_CU, "ignis_strided_tiles")                                          \
    X(SCAN_ROWS, SCAN_CU, "ignis_scan_rows")                                                   \
    X(SCAN_TILES, SCAN_CU, "ignis_scan_tiles")                                                 \
    X(SCAN_COLUMNS, SCAN_CU, "ignis_scan_columns")                                             \
    X(LINE, PATTERN_CU, "ignis_line")                                                          \
    X(BAND, PATTERN_CU, "ignis_band")                                                          \
    X(ONE_HOT, PATTERN_CU, "ignis_one_hot")                                                    \
    X(GATHER, GATHER_CU, "ignis_gather")                                                       \
    X(SCATTER, GATHER_CU, "ignis_scatter")                                                     \
    X(SCATTER_ADD_ROWS, GATHER_CU, "ignis_scatter_add_rows")                                   \
    X(SCATTER_KEYS, GATHER_CU, "ignis_scatter_keys")                                           \
    X(SEGMENT_SUMS, GATHER_CU, "ignis_segment_sums")                                           \
    X(SEGMENT_FINISH, GATHER_CU, "ignis_segment_finish")                                       \
    X(SORT_SMALL, SORT_CU, "ignis_sort_small")                                                 \
    X(SORT_ROW, SORT_CU, "ignis_sort_row")                                                     \
    X(SORT_SELECT, SORT_CU, "ignis_sort_select")                                               \
    X(SORT_SELECT_FEW, SORT_CU, "ignis_sort_select_few")                                       \
    X(SORT_COUNT, SORT_CU, "ignis_sort_count")                                                 \
    X(SORT_PASS, SORT_CU, "ignis_sort_pass")                                                   \
    X(RANDOM_ADVANCE, RANDOM_CU, "ignis_random_advance")                                       \
    X(RAND, RANDOM_CU, "ignis_rand")                                                           \
    X(RANDN, RANDOM_CU, "ignis_randn")                                                         \
    X(OPTIM_TABLE, OPTIM_CU, "ignis_optim_table")                                              \
    X(OPTIM_ADVANCE, OPTIM_CU, "ignis_optim_advance")                                          \
    X(ADAMW, OPTIM_CU, "ignis_adamw")                                                          \
    X(ADAM, OPTIM_CU, "ignis_adam")                                                            \
    X(SGD, OPTIM_CU, "ignis_sgd")                                                              \
    X(RMSPROP, OPTIM_CU, "ignis_rmsprop")                                                      \
    X(LION, OPTIM_CU, "ignis_lion")                                                            \
    X(MUON, OPTIM_CU, "ignis_muon")                                                            \
    X(MUON_APPLY, OPTIM_CU, "ignis_muon_apply")                                                \
    X(GRAD_SQUARES, OPTIM_CU, "ignis_grad_squares")                                            \
    X(GRAD_CLIP, OPTIM_CU, "ignis_grad_clip")                                                  \
    X(GRAD_ZERO, OPTIM_CU, "ignis_grad_zero")                                                  \
    X(LAYER_NORM_WARP, NORM_CU, "ignis_layer_norm_warp")                                       \
    X(LAYER_NORM_ROW, NORM_CU, "ignis_layer_norm_row")                                         \
    X(LAYER_NORM_LONG, NORM_CU, "ignis_layer_norm_long")                                       \
    X(LAYER_NORM_BLOCK, NORM_CU, "ignis_layer_norm_block")                                     \
    X(LAYER_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_layer_norm_backward_averages")             \
    X(LAYER_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_layer_norm_backward_columns")               \
    X(RMS_NORM_WARP, NORM_CU, "ignis_rms_norm_warp")                                           \
    X(RMS_NORM_ROW, NORM_CU, "ignis_rms_norm_row")                                             \
    X(RMS_NORM_LONG, NORM_CU, "ignis_rms_norm_long")                                           \
    X(RMS_NORM_BLOCK, NORM_CU, "ignis_rms_norm_block")                                         \
    X(RMS_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_rms_norm_backward_averages")                 \
    X(RMS_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_rms_norm_backward_columns")                   \
    X(NORM_BACKWARD_SUM, NORM_CU, "ignis_norm_backward_sum")                                   \
    X(ADD_LAYER_NORM_WARP, NORM_ADD_CU, "ignis_add_layer_norm_warp")                           \
    X(ADD_LAYER_NORM_ROW, NORM_ADD_CU, "ignis_add_layer_norm_row")                             \
    X(ADD_LAYER_NORM_LONG, NORM_ADD_CU, "ignis_add_layer_norm_long")                           \
    X(ADD_LAYER_NORM_BLOCK, NORM_ADD_CU, "ignis_add_layer_norm_block")                         \
    X(ADD_RMS_NORM_WARP, NORM_ADD_CU, "ignis_add_rms_norm_warp")                               \
    X(ADD_RMS_NORM_ROW, NORM_ADD_CU, "ignis_add_rms_norm_row")                                 \
    X(ADD_RMS_NORM_LONG, NORM_ADD_CU, "ignis_add_rms_norm_long")                               \
    X(ADD_RMS_NORM_BLOCK, NORM_ADD_CU, "ignis_add_rms_norm_block")                             \
    X(LAYER_NORM_ROWS_FEW, NORM_ODD_CU, "ignis_layer_norm_rows_few")                           \
    X(LAYER_NORM_ROWS_WARP, NORM_ODD_CU, "ignis_layer_norm_rows_warp")                         \
    X(LAYER_NORM_ROWS_BLOCK, NORM_ODD_CU, "ignis_layer_norm_rows_block")                       \
    X(LAYER_NORM_ROWS_EVEN, NORM_ODD_CU, "ignis_layer_norm_rows_even")                         \
    X(LAYER_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_few")        \
    X(LAYER_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_warp")      \
    X(LAYER_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_block")    \
    X(LAYER_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_layer_norm_rows_backward_even")      \
    X(RMS_NORM_ROWS_FEW, NORM_ODD_CU, "ignis_rms_norm_rows_few")                               \
    X(RMS_NORM_ROWS_WARP, NORM_ODD_CU, "ignis_rms_norm_rows_warp")                             \
    X(RMS_NORM_ROWS_BLOCK, NORM_ODD_CU, "ignis_rms_norm_rows_block")                           \
    X(RMS_NORM_ROWS_EVEN, NORM_ODD_CU, "ignis_rms_norm_rows_even")                             \
    X(RMS_NORM_ROWS_BACKWARD_FEW, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_few")            \
    X(RMS_NORM_ROWS_BACKWARD_WARP, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_warp")          \
    X(RMS_NORM_ROWS_BACKWARD_BLOCK, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_block")        \
    X(RMS_NORM_ROWS_BACKWARD_EVEN, NORM_GRAD_CU, "ignis_rms_norm_rows_backward_even")          \
    X(CHANNEL_STATISTICS, CHANNEL_NORM_CU, "ignis_channel_statistics")                         \
    X(CHANNEL_FINISH, CHANNEL_NORM_CU, "ignis_channel_finish")                                 \
    X(CHANNEL_APPLY, CHANNEL_NORM_CU, "ignis_channel_apply")                                   \
    X(CHANNEL_SUMS, CHANNEL_NORM_CU, "ignis_channel_sums")                                     \
    X(CHANNEL_WEIGHTS, CHANNEL_NORM_CU, "ignis_channel_weights")                               \
    X(CHANNEL_AVERAGES, CHANNEL_NORM_CU, "ignis_channel_averages")                             \
    X(CHANNEL_BACKWARD, CHANNEL_NORM_CU, "ignis_channel_backward")                             \
    X(MAX_POOL, POOL_CU, "ignis_max_pool")                                                     \
    X(MAX_POOL_BACKWARD, POOL_CU, "ignis_max_pool_backward")                                   \
    X(AVG_POOL, POOL_CU, "ignis_avg_pool")                                                     \
    X(AVG_POOL_BACKWARD, POOL_CU, "ignis_avg_pool_backward")                                   \
    X(UPSAMPLE, UPSAMPLE_CU, "ignis_upsample")                                                 \
    X(UPSAMPLE_BACKWARD, UPSAMPLE_CU, "ignis_upsample_backward")                               \
    X(SOFTMAX_WARP, SOFTMAX_CU, "ignis_softmax_warp")                                          \
    X(SOFTMAX_BLOCK, SOFTMAX_CU, "ignis_softmax_block")                                        \
    X(SOFTMAX_LONG, SOFTMAX_CU, "ignis_softmax_long")                                          \
    X(SOFTMAX_BACKWARD_WARP, SOFTMAX_CU, "ignis_softmax_backward_warp")                        \
    X(SOFTMAX_BACKWARD_BLOCK, SOFTMAX_CU, "ignis_softmax_backward_block")                      \
    X(LOG_SOFTMAX_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_warp")                              \
    X(LOG_SOFTMAX_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_block")                            \
    X(LOG_SOFTMAX_LONG, LOG_SOFTMAX_CU, "ignis_log_softmax_long")                              \
    X(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_warp")            \
    X(LOG_SOFTMAX_BACKWARD_BLOCK, LOG_SOFTMAX_CU, "ignis_log_softmax_backward_block")          \
    X(CROSS_ENTROPY_COUNT, SOFTMAX_CU, "ignis_cross_entropy_count")                            \
    X(CROSS_ENTROPY_WARP, SOFTMAX_CU, "ignis_cross_entropy_warp")                              \
    X(CROSS_ENTROPY_FEW, SOFTMAX_CU, "ignis_cross_entropy_few")                                \
    X(CROSS_ENTROPY_ROUND, SOFTMAX_CU, "ignis_cross_entropy_round")                            \
    X(CROSS_ENTROPY_EXACT, SOFTMAX_CU, "ignis_cross_entropy_exact")                            \
    X(CROSS_ENTROPY_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_block")                            \
    X(CROSS_ENTROPY_LOSS_WARP, SOFTMAX_CU, "ignis_cross_entropy_loss_warp")                    \
    X(CROSS_ENTROPY_LOSS_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_loss_block")                  \
    X(CROSS_ENTROPY_RESCALE, SOFTMAX_CU, "ignis_cross_entropy_rescale")                        \
    X(CROSS_ENTROPY_ADD_UP, SOFTMAX_CU, "ignis_cross_entropy_add_up")                          \
    X(QUANTIZE_LARGEST, QUANTIZE_CU, "ignis_quantize_largest")                                 \
    X(QUANTIZE_F8_E4M3_WARP, QUANTIZE_CU, "ignis_quantize_f8_e4m3_warp")                       \
    X(QUANTIZE_F8_E4M3_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e4m3_block")                     \
    X(QUANTIZE_F8_E4M3, QUANTIZE_CU, "ignis_quantize_f8_e4m3")                                 \
    X(QUANTIZE_F8_E5M2_WARP, QUANTIZE_CU, "ignis_quantize_f8_e5m2_warp")                       \
    X(QUANTIZE_F8_E5M2_BLOCK, QUANTIZE_CU, "ignis_quantize_f8_e5m2_block")                     \
    X(QUANTIZE_F8_E5M2, QUANTIZE_CU, "ignis_quantize_f8_e5m2")                                 \
    X(CROSS_ENTROPY_BACKWARD, SOFTMAX_CU, "ignis_cross_entropy_backward")                      \
    X(ROPE, ROPE_CU, "ignis_rope")                                                             \
    X(EMBEDDING, EMBEDDING_CU, "ignis_embedding")                                              \
    X(EMBEDDING_KEYS, EMBEDDING_CU, "ignis_embedding_keys")                                    \
    X(EMBEDDING_BOUNDS, EMBEDDING_CU, "ignis_embedding_bounds")                                \
    X(EMBEDDING_CHUNKS, EMBEDDING_CU, "ignis_embedding_chunks")                                \
    X(EMBEDDING_ROWS, EMBEDDING_CU, "ignis_embedding_rows")                                    \
    IGNIS__BUILTINS_MODELS(X)

typedef enum ignis__builtin {
#define IGNIS__BUILTIN_ENUM(name, source, entry) IGNIS__BUILTIN_##name,
    IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM)
#undef IGNIS__BUILTIN_ENUM
        IGNIS__BUILTIN_COUNT
} ignis__builtin;

static const struct {
    int source;
    const char *entry;
} ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry) {IGNIS__SOURCE_##source, entry},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

/*  Kernels from a first to a last one of which sizes, addresses or the device choose, or that are always launched together: records and bundles have
    all of them or none. Others are there alone. The first one's name is that of the part. */
static const struct {
    ignis__builtin first, last;
} ignis__parts[] = {
#define IGNIS__PART(first, last)                      \
    {                                                 \
        IGNIS__BUILTIN_##first, IGNIS__BUILTIN_##last \
    }
    IGNIS__PART(SDPA_BACKWARD_DELTA, SDPA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_MMA_BACKWARD_DELTA, SDPA_MMA_BACKWARD_BIAS),
    IGNIS__PART(SDPA_HOPPER, SDPA_HOPPER_COMBINE),
    IGNIS__PART(SDPA_HOPPER_BACKWARD_ROWS, SDPA_HOPPER_BACKWARD_TURNED),
    IGNIS__PART(SDPA_DECODE_1, SDPA_DECODE_COMBINE),
    IGNIS__PART(SDPA_MMA_DECODE, SDPA_MMA_DECODE_COMBINE),
    IGNIS__PART(GEMM, GEMM_SMALL),
    IGNIS__PART(GEMM_MMA, GEMM_MMA_SMALL),
    IGNIS__PART(DEPTHWISE, DEPTHWISE_ODD),
    IGNIS__PART(DEPTHWISE_WEIGHTS, DEPTHWISE_WEIGHTS_ODD),
    IGNIS__PART(GEMM_FINISH, GEMM_SUMS),
    IGNIS__PART(TRANSPOSE_RUNS, TRANSPOSE_TILES),
    IGNIS__PART(STRIDED_COPY, STRIDED_TILES),
    IGNIS__PART(SUM_ROWS, SUM_FINISH),
    IGNIS__PART(SCAN_ROWS, SCAN_COLUMNS),
    IGNIS__PART(SCATTER_ADD_ROWS, SEGMENT_FINISH),
    IGNIS__PART(SORT_SMALL, SORT_SELECT_FEW),
    IGNIS__PART(SORT_COUNT, SORT_PASS),
    IGNIS__PART(LAYER_NORM_WARP, LAYER_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_BACKWARD_AVERAGES, LAYER_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(RMS_NORM_WARP, RMS_NORM_BLOCK),
    IGNIS__PART(RMS_NORM_BACKWARD_AVERAGES, RMS_NORM_BACKWARD_COLUMNS),
    IGNIS__PART(ADD_LAYER_NORM_WARP, ADD_LAYER_NORM_BLOCK),
    IGNIS__PART(ADD_RMS_NORM_WARP, ADD_RMS_NORM_BLOCK),
    IGNIS__PART(LAYER_NORM_ROWS_FEW, LAYER_NORM_ROWS_EVEN),
    IGNIS__PART(LAYER_NORM_ROWS_BACKWARD_FEW, LAYER_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_FEW, RMS_NORM_ROWS_EVEN),
    IGNIS__PART(RMS_NORM_ROWS_BACKWARD_FEW, RMS_NORM_ROWS_BACKWARD_EVEN),
    IGNIS__PART(CHANNEL_STATISTICS, CHANNEL_APPLY),
    IGNIS__PART(CHANNEL_SUMS, CHANNEL_BACKWARD),
    IGNIS__PART(SOFTMAX_WARP, SOFTMAX_LONG),
    IGNIS__PART(SOFTMAX_BACKWARD_WARP, SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(LOG_SOFTMAX_WARP, LOG_SOFTMAX_LONG),
    IGNIS__PART(LOG_SOFTMAX_BACKWARD_WARP, LOG_SOFTMAX_BACKWARD_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_WARP, CROSS_ENTROPY_BLOCK),
    IGNIS__PART(CROSS_ENTROPY_LOSS_WARP, CROSS_ENTROPY_LOSS_BLOCK),
    IGNIS__PART(EMBEDDING_KEYS, EMBEDDING_ROWS),
    IGNIS__PART(QUANTIZE_F8_E4M3_WARP, QUANTIZE_F8_E4M3_BLOCK),
    IGNIS__PART(QUANTIZE_F8_E5M2_WARP, QUANTIZE_F8_E5M2_BLOCK),
#ifdef IGNIS_MODELS
    IGNIS__PART(BLOCKS_ROWS, BLOCKS_EMBED),
    IGNIS__PART(GENERATE_WORDS, GENERATE_DRAW),
    IGNIS__PART(GEMV_1, GEMV_8),
    IGNIS__PART(GEMV_GATED_1, GEMV_GATED_8),
    IGNIS__PART(GEMV_BLOCKS_ROWS, GEMV_BLOCKS_64),
    IGNIS__PART(GEMV_MMA_NORM, GEMV_MMA_8),
    IGNIS__PART(GEMV_MMA_16, GEMV_MMA_64),
    IGNIS__PART(PAGED_1, PAGED_2),
#endif
#undef IGNIS__PART
};

/*  The name of a kernel's part. */
static const char *ignis__builtin_part(ignis__builtin builtin)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__parts); i++)
        if (builtin >= ignis__parts[i].first && builtin <= ignis__parts[i].last)
            return ignis__builtins[ignis__parts[i].first].entry;
    return ignis__builtins[builtin].entry;
}

/*  Records a kernel of Ignis' own, which this device or another asks for; `define`: options behind that of the dtype, separated by spaces. */
IGNIS__COLD static void ignis__request_own(ignis__builtin builtin, ignis_dtype dtype, const char *define, int first, int last)
{
    ignis__program program = IGNIS__ZERO;
    char option[256];
    const char *options[] = {option};
    snprintf(option, sizeof option, "-DIGNIS_T=%d%s%s", (int)dtype, *define ? " " : "", define);
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    program.part = ignis__builtin_part(builtin);
    program.options = options;
    program.option_count = 1;
    ignis__request_add(&program, first, last);
}

/*  Records a kernel for all devices that have it. */
static void ignis__request_builtin(ignis__builtin builtin, ignis_dtype dtype)
{
    ignis__program program = IGNIS__ZERO;
    int first, last;
    if (!ignis__requests.path[0])
        return;
    program.name = ignis__sources[ignis__builtins[builtin].source].name;
    ignis__program_range(&program, &first, &last);
    ignis__request_own(builtin, dtype, "", first, last);
}

/*  Whether the bundle has a kernel with these options, for devices of a compute capability; 0: for any. */
static bool ignis__bundle_has(const ignis__bundle *bundle, ignis__builtin builtin, ignis_dtype dtype, const char *define, int capability)
{
    char name[256];
    uint32_t i;
    if (!bundle->data)
        return false;
    snprintf(name, sizeof name, "%s %s -DIGNIS_T=%d%s%s", ignis__sources[ignis__builtins[builtin].source].name,
             ignis__builtin_part(builtin), (int)dtype, *define ? " " : "", define);
    for (i = 0; i < bundle->header.count; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        if (strcmp(ignis__bundle_text(bundle, &entry), name) == 0 && (!capability || ignis__bundle_serves(&entry, capability)))
            return true;
    }
    return false;
}

/*  Whether a kernel may be launched before what is ahead of it has ended: its threads begin by ignis_grid_dependency_wait. */
static bool ignis__builtin_waits(ignis__builtin builtin)
{
    switch (ignis__builtins[builtin].source) {
    case IGNIS__SOURCE_ACTIVATION_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_CU:
    case IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU:
    case IGNIS__SOURCE_ELEMENTWISE_CU:
    case IGNIS__SOURCE_EMBEDDING_CU:
    case IGNIS__SOURCE_GEMM_CU:
    case IGNIS__SOURCE_GEMM_HOPPER_CU:
    case IGNIS__SOURCE_GEMM_MMA_CU:
    case IGNIS__SOURCE_LOG_SOFTMAX_CU:
    case IGNIS__SOURCE_NORM_CU:
    case IGNIS__SOURCE_NORM_ADD_CU:
    case IGNIS__SOURCE_NORM_GRAD_CU:
    case IGNIS__SOURCE_NORM_ODD_CU:
    case IGNIS__SOURCE_OPTIM_CU:
    case IGNIS__SOURCE_POINTWISE_CU:
    case IGNIS__SOURCE_QUANTIZE_CU:
    case IGNIS__SOURCE_REDUCE_CU:
    case IGNIS__SOURCE_ROPE_CU:
    case IGNIS__SOURCE_SOFTMAX_CU:
    case IGNIS__SOURCE_SORT_CU: return true;
#ifdef IGNIS_MODELS
    case IGNIS__SOURCE_GEMV_MMA_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_CU:
    case IGNIS__SOURCE_GEMV_CLUSTER_BLOCKS_CU:
    case IGNIS__SOURCE_GEMV_BLOCKS_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU:
    case IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU:
    case IGNIS__SOURCE_GENERATE_DRAW_CU:
    case IGNIS__SOURCE_GENERATE_STEP_CU: return true;
    case IGNIS__SOURCE_GENERATE_CU: return builtin >= IGNIS__BUILTIN_GENERATE_EMBED && builtin <= IGNIS__BUILTIN_GENERATE_GATHER;
#endif
    default: return false;
    }
}

/*  What is loaded of them on each device: modules by source and dtype, functions (0 until their first use) by kernel and dtype. */
static struct ignis__builtin_code {
    ignis__module modules[IGNIS__SOURCE_COUNT][IGNIS_DTYPE_COUNT];
    uint64_t functions[IGNIS__BUILTIN_COUNT][IGNIS_DTYPE_COUNT];
} ignis__builtin_codes[IGNIS_MAX_DEVICES];

#define IGNIS__DEFINES 200 /* characters of options that make a variant, with the end */

/*  Compiles a source for a dtype, with more options (null: none), and loads it on an entered device; of a bundle a part (null: all). */
IGNIS__COLD static bool ignis__builtin_make(const char *call, ignis__device *device, int source, const char *part, ignis_dtype dtype,
                                            const char *defines, ignis__module *unit)
{
    ignis__program program = IGNIS__ZERO;
    char dtype_define[32], copy[IGNIS__DEFINES];
    const char *options[10];
    char *text = ignis__source_join(&ignis__sources[source]), *at;
    bool made;
    if (!text) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    snprintf(dtype_define, sizeof dtype_define, "-DIGNIS_T=%d", (int)dtype);
    options[program.option_count++] = dtype_define;
    snprintf(copy, sizeof copy, "%s", defines ? defines : "");
    for (at = copy; *at && program.option_count < IGNIS__COUNT(options); at += strcspn(at, " ")) {
        if (*at == ' ')
            *at++ = 0;
        options[program.option_count++] = at;
    }
    program.source = text;
    program.name = ignis__sources[source].name;
    program.part = part;
    program.options = options;
    made = ignis__module_make(call, device, &program, unit);
    ignis__free(text);
    return made;
}

/*  Loads the module of a kernel's source for a dtype on a device that is entered. Null on failure. */
IGNIS__COLD static ignis__module *ignis__builtin_module(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    int source = ignis__builtins[builtin].source;
    ignis__module *place = &ignis__builtin_codes[device - ignis__devices].modules[source][dtype];
    ignis__module made;
    bool loaded;
    ignis__mutex_lock(&lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&lock);
    if (loaded)
        return place;
    if (!ignis__builtin_make(call, device, source, ignis__builtin_part(builtin), dtype, NULL, &made))
        return NULL;
    ignis__mutex_lock(&lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

/*  The function of a kernel in a variant that more than the dtype decides. */
typedef struct ignis__variant {
    ignis__builtin builtin;
    ignis_dtype dtype;
    char define[IGNIS__DEFINES]; /* options, separated by spaces */
    ignis__module module;
    void *function;
    struct ignis__variant *next;
} ignis__variant;

static struct {
    ignis__mutex lock;
    ignis__variant *first[IGNIS_MAX_DEVICES];
} ignis__variants = {IGNIS__MUTEX_INIT, {0}};

static ignis__variant *ignis__variant_find(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype, const char *define)
{
    ignis__variant *variant;
    ignis__mutex_lock(&ignis__variants.lock);
    for (variant = ignis__variants.first[device - ignis__devices]; variant; variant = variant->next)
        if (variant->builtin == builtin && variant->dtype == dtype && strcmp(variant->define, define) == 0)
            break;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant;
}

/*  Whether a variant can be had: compiled, or as somebody recorded it for this kind of device. */
IGNIS__MAYBE_UNUSED static bool ignis__variant_exists(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                                      const char *define)
{
    return !ignis__compile_never || ignis__variant_find(device, builtin, dtype, define) ||
           ignis__bundle_has(&ignis__the_bundle, builtin, dtype, define, ignis__capability(&device->info));
}

/*  The function of a kernel in its module. Where one that should wait cannot, none is launched early. */
IGNIS__COLD static bool ignis__builtin_function(const char *call, ignis__device *device, ignis__builtin builtin, const ignis__module *unit,
                                                void **function)
{
    bool waits = true;
    if (!ignis__function_get(call, device, unit, ignis__builtins[builtin].entry, function) ||
        (ignis__builtin_waits(builtin) && !ignis__function_waits(call, device, *function, &waits)))
        return false;
    if (!waits)
        ignis__atomic_store(&device->no_dependents, 1);
    return true;
}

/*  Launches one of Ignis' own kernels, early where it waits by itself. */
static bool ignis__builtin_launch(const ignis__work *work, ignis__builtin builtin, void *function, const unsigned grid[3],
                                  const unsigned block[3], unsigned shared, void **params)
{
    return ignis__launch_as(work, function, grid, block, shared, params,
                            ignis__builtin_waits(builtin) && !ignis__atomic_load(&work->device->no_dependents),
                            ignis__builtins[builtin].source == IGNIS__SOURCE_GENERATE_STEP_CU);
}

static void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype,
                                        const char *define)
{
    ignis__variant *variant = ignis__variant_find(device, builtin, dtype, define);
    IGNIS_ASSERT(strlen(define) < IGNIS__DEFINES);
    if (variant)
        return variant->function;
    variant = (ignis__variant *)ignis__alloc_for(call, sizeof *variant);
    if (!variant)
        return NULL;
    variant->builtin = builtin;
    variant->dtype = dtype;
    snprintf(variant->define, sizeof variant->define, "%s", define);
    if (!ignis__builtin_make(call, device, ignis__builtins[builtin].source, ignis__builtin_part(builtin), dtype, define,
                             &variant->module) ||
        !ignis__builtin_function(call, device, builtin, &variant->module, &variant->function)) {
        ignis__module_unload(&variant->module);
        ignis__free(variant);
        return NULL;
    }
    ignis__mutex_lock(&ignis__variants.lock); /* two threads may make the same one; both stay, the newer is found */
    variant->next = ignis__variants.first[device - ignis__devices];
    ignis__variants.first[device - ignis__devices] = variant;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant->function;
}

/*  The function of one of Ignis' own kernels on a device that is entered; null on failure. */
static void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    uint64_t *place = &ignis__builtin_codes[device - ignis__devices].functions[builtin][dtype];
    void *function = (void *)(uintptr_t)ignis__atomic_load(place);
    ignis__module *unit;
    if (function)
        return function;
    ignis__request_builtin(builtin, dtype);
    if (ignis__bundle_has(&ignis__the_bundle, builtin, dtype, "", 0)) { /* where it has a module of its own */
        function = ignis__builtin_get_variant(call, device, builtin, dtype, "");
        ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
        return function;
    }
    unit = ignis__builtin_module(call, device, builtin, dtype);
    if (!unit || !ignis__builtin_function(call, device, builtin, unit, &function))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}

/* --- reading records ------------------------------------------------------------------------------------------------------- */

/*  A line of a record: see ignis__requests. */
typedef struct ignis__request {
    ignis__program program; /* its text is that of the line; an own source has none yet. No name: the line asks for nothing */
    int source;             /* of Ignis' own, or -1 */
    int first, last, line;
    const char *options[IGNIS__MAX_OPTIONS]; /* program.options, unless the request was moved */
    ignis_kernel_header *headers;            /* ignis__request_free frees them, and the text of a formula's kernel */
    char *text;
#ifndef IGNIS_NO_TENSORS
    const struct ignis__formula *formula; /* of a line of a formula, and its ignis__map_spec */
    uint16_t spec[IGNIS__MAP_SPEC];
#endif
} ignis__request;

static void ignis__request_free(ignis__request *request)
{
    ignis__free(request->headers);
    ignis__free(request->text);
    request->headers = NULL;
    request->text = NULL;
}

/*  Reads the line of a formula, which comes in >>map. */
#ifndef IGNIS_NO_TENSORS
static bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole, ignis__text *why);
#else
IGNIS__COLD static bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    (void)line, (void)request, (void)whole;
    return ignis__reason(why, "it is a formula, and IGNIS_NO_TENSORS leaves formulas out");
}
#endif

/*  The next word of a line, in its place: in quotes, with \n, \r, \" and \\ for what they stand for, or up to a blank. Null: there is none, or
    (*whole false) no quote at its end. */
IGNIS__COLD static char *ignis__request_word(char **line, bool *whole)
{
    char *from = *line + strspn(*line, " "), *word = from, *to;
    if (*from == 0)
        return NULL;
    if (*from != '"') {
        from += strcspn(from, " ");
        *line = from + (*from != 0);
        *from = 0;
        return word;
    }
    word = to = ++from;
    for (; *from && *from != '"'; from++) {
        bool escaped = *from == '\\' && from[1];
        from += escaped;
        *to++ = (char)(!escaped ? *from : *from == 'n' ? '\n' : *from == 'r' ? '\r' : *from);
    }
    *whole = *whole && *from == '"';
    *line = from + (*from != 0);
    *to = 0;
    return *whole ? word : NULL;
}

/*  The source, part and options of a line. */
IGNIS__COLD static bool ignis__request_read_own(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    ignis__program *program = &request->program;
    char *word = ignis__request_word(&line, whole);
    int source = 0, builtin = 0;
    while (word && source < IGNIS__SOURCE_COUNT && strcmp(ignis__sources[source].name, word) != 0)
        source++;
    if (!word || source == IGNIS__SOURCE_COUNT)
        return ignis__reason(why, "Ignis has no source %s", word ? word : "");
    if (!ignis__sources[source].lines)
        return ignis__reason(why, "%s is of the operations of tensors, which IGNIS_NO_TENSORS leaves out", word);
    request->source = source;
    program->name = ignis__sources[source].name;
    program->source = "";
    word = ignis__request_word(&line, whole);
    if (word && *word != '-') {
        while (builtin < IGNIS__BUILTIN_COUNT &&
               (ignis__builtins[builtin].source != source || strcmp(ignis__builtin_part((ignis__builtin)builtin), word) != 0))
            builtin++;
        if (builtin == IGNIS__BUILTIN_COUNT)
            return ignis__reason(why, "%s of Ignis has no part %s", program->name, word);
        program->part = word;
        word = ignis__request_word(&line, whole);
    }
    for (; word; word = ignis__request_word(&line, whole)) {
        if (program->option_count == IGNIS__MAX_OPTIONS)
            return ignis__reason(why, "there are more than %d options", IGNIS__MAX_OPTIONS);
        request->options[program->option_count++] = word;
    }
    return true;
}

/*  A program with all of its text. */
IGNIS__COLD static bool ignis__request_read_kernel(char *line, ignis__request *request, bool *whole, ignis__text *why)
{
    ignis__program *program = &request->program;
    char *name = ignis__request_word(&line, whole), *entry = ignis__request_word(&line, whole);
    char *source = ignis__request_word(&line, whole), *word = ignis__request_word(&line, whole);
    long options = word ? strtol(word, NULL, 10) : -1;
    if (options < 0 || options > IGNIS__MAX_OPTIONS)
        return ignis__reason(why, "a kernel is a name, an entry, a source, a number of options, the options, and headers");
    program->name = name;
    program->entry = *entry ? entry : NULL;
    program->source = source;
    for (; options > 0 && (word = ignis__request_word(&line, whole)) != NULL; options--)
        request->options[program->option_count++] = word;
    if (options > 0)
        return ignis__reason(why, "there are fewer options than the line says");
    request->headers =
        (ignis_kernel_header *)ignis__alloc((strlen(line) / 4 + 1) * sizeof *request->headers); /* two words in quotes each */
    if (!request->headers)
        return ignis__reason(why, "out of memory");
    while ((word = ignis__request_word(&line, whole)) != NULL) {
        request->headers[program->header_count].name = word;
        request->headers[program->header_count++].text = word = ignis__request_word(&line, whole);
        if (!word)
            return ignis__reason(why, "a header has no text");
    }
    program->headers = request->headers;
    return true;
}

/*  Reads a line, which it changes, and which the request then points to. False: it is none, `why` says the reason. */
IGNIS__COLD static bool ignis__request_read(char *line, ignis__request *request, ignis__text *why)
{
    bool whole = true, read = false;
    char *word = ignis__request_word(&line, &whole), *range = word && *word != '#' ? ignis__request_word(&line, &whole) : NULL, *end = word;
    memset(request, 0, sizeof *request);
    request->source = -1;
    request->program.options = request->options;
    if (whole && (!word || *word == '#'))
        return true;
    if (whole && strcmp(word, "ignis") == 0) {
        if (range && atoi(range) == IGNIS_VERSION)
            return true;
        return ignis__reason(why, "the record is of version %s, this is %d; record again", range ? range : "", IGNIS_VERSION);
    }
    request->first = range ? (int)strtol(range, &end, 10) : -1;
    request->last = range && *end == '-' ? (int)strtol(end + 1, &end, 10) : -1;
    if (!whole)
        ;
    else if (request->first < 0 || request->last < 0 || request->last > IGNIS__EVERY_ARCH || *end)
        ignis__text_add(why, "behind '%s' has to be a range of compute capabilities, such as 80-%d", word, IGNIS__EVERY_ARCH);
    else if (strcmp(word, "own") == 0)
        read = ignis__request_read_own(line, request, &whole, why);
    else if (strcmp(word, "kernel") == 0)
        read = ignis__request_read_kernel(line, request, &whole, why);
    else if (strcmp(word, "formula") == 0)
        read = ignis__request_read_formula(line, request, &whole, why);
    else
        ignis__text_add(why, "'%s' is not ignis, own, formula or kernel", word);
    if (!whole) {
        ignis__text_begin(why, why->data, why->capacity);
        ignis__text_add(why, "a word has no quote at its end");
    }
    if (read && whole)
        return true;
    ignis__request_free(request);
    return false;
}

/* --- warming up --------------------------------------------------------------------------------------------------------- */

/*  Jobs are Ignis' own programs (`own` of them), then the caller's or those of a record. Each keeps its failure for the caller. */
typedef struct ignis__warmup {
    const char *call;
    ignis__device *device;
    int own, count;
    const ignis_kernel_desc *descs;
    ignis__record *records;
    ignis__request *requests; /* instead of descs */
    char *text, *path;        /* of the record, in memory of Ignis */
} ignis__warmup;

/*  For how many dtypes a source is one program without further choices: headers for none, and sources whose kernels come in variants. */
static int ignis__source_dtypes(int source)
{
    const char *name = ignis__sources[source].name;
    int builtin = 0;
    while (builtin < IGNIS__COUNT(ignis__builtins) && ignis__builtins[builtin].source != source)
        builtin++;
    if (builtin == IGNIS__COUNT(ignis__builtins) || !ignis__sources[source].lines || strncmp(name, "attention", 9) == 0 ||
        strncmp(name, "collective", 10) == 0 || strncmp(name, "gemm_", 5) == 0 || strncmp(name, "gemv_", 5) == 0 ||
        strncmp(name, "grouped_", 8) == 0 || strncmp(name, "generate_step", 13) == 0)
        return 0;
    if (strncmp(name, "generate_draw", 13) == 0) /* logits are floats in any case */
        return 1;
    return source == IGNIS__SOURCE_ELEMENTWISE_CU || source == IGNIS__SOURCE_SORT_CU ? IGNIS_DTYPE_COUNT - 1
                                                                                     : 4 /* the floating types come first */;
}

#define IGNIS__WARMUP_OWN (IGNIS__SOURCE_COUNT * (IGNIS_DTYPE_COUNT - 1))

IGNIS__COLD static void ignis__warmup_own(const ignis__warmup *warmup, int source, ignis_dtype dtype)
{
    int builtin;
    for (builtin = 0; builtin < IGNIS__COUNT(ignis__builtins); builtin++)
        if ((int)dtype <= ignis__source_dtypes(source) && ignis__builtins[builtin].source == source &&
            (!ignis__compile_never || ignis__bundle_has(&ignis__the_bundle, (ignis__builtin)builtin, dtype, "", 0)))
            ignis__builtin_get(warmup->call, warmup->device, (ignis__builtin)builtin, dtype);
}

IGNIS__COLD static void ignis__warmup_program(const ignis__warmup *warmup, int index)
{
    ignis__request *request = warmup->requests ? &warmup->requests[index] : NULL;
    ignis__program program = request ? request->program : ignis__program_from(&warmup->descs[index]);
    ignis__module module;
    ignis__outer_call outer;
    char where[300], *source = NULL;
    if (request) {
        snprintf(where, sizeof where, "line %d of %s", request->line, warmup->path);
        ignis__outer_call_begin(&outer, where, NULL);
        program.options = request->options;
    }
    if (request && request->source >= 0) {
        program.source = source = ignis__source_join(&ignis__sources[request->source]);
        if (!source)
            ignis__fail_host_memory(warmup->call, 1);
    }
    if ((program.source || program.image) && ignis__module_make(warmup->call, warmup->device, &program, &module))
        ignis__module_unload(&module); /* its image stays in the caches */
    ignis__free(source);
    if (request)
        ignis__outer_call_end(&outer);
}

IGNIS__COLD static void ignis__warmup_job(void *context, int index)
{
    ignis__warmup *warmup = (ignis__warmup *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis__binding binding;
    memset(&thread->record, 0, sizeof thread->record);
    if (ignis__device_enter(warmup->call, warmup->device, &binding)) {
        if (index < warmup->own)
            ignis__warmup_own(warmup, index / (IGNIS_DTYPE_COUNT - 1), (ignis_dtype)(index % (IGNIS_DTYPE_COUNT - 1) + 1));
        else
            ignis__warmup_program(warmup, index - warmup->own);
        ignis__device_leave(&binding);
    }
    warmup->records[index] = thread->record;
    thread->record = before;
}

/*  Runs all jobs. The first failure becomes the thread's. */
IGNIS__COLD static ignis_status ignis__warmup_run(ignis__warmup *warmup)
{
    int count = warmup->own + warmup->count, i;
    ignis_status status = IGNIS_OK;
    warmup->records = (ignis__record *)ignis__alloc(sizeof(ignis__record) * (size_t)(count + 1));
    if (!warmup->records)
        return ignis__fail_host_memory(warmup->call, sizeof(ignis__record) * (size_t)(count + 1));
    ignis__parallel(count, ignis__warmup_job, warmup);
    for (i = 0; i < count; i++) {
        ignis__record *record = &warmup->records[i];
        if (record->status != IGNIS_OK && status == IGNIS_OK)
            status = record->status;
        if (record->status != IGNIS_OK)
            ignis__record_adopt(record);
    }
    ignis__free(warmup->records);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count)
{
    static const char call[] = "ignis_warmup";
    ignis__warmup warmup = IGNIS__ZERO;
    ignis__binding binding;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !ignis__given(call, "descs", descs))
        return ignis__failed();
    for (i = 0; i < count; i++)
        if (!ignis__kernel_desc_check(call, &descs[i]))
            return ignis__failed();
    warmup.device = ignis__device_current_enter(call, &binding);
    if (!warmup.device)
        return ignis__failed();
    ignis__device_leave(&binding);
    warmup.call = call;
    warmup.own = IGNIS__WARMUP_OWN;
    warmup.count = count;
    warmup.descs = descs;
    return ignis__warmup_run(&warmup);
}

static const char ignis__warmup_record_call[] = "ignis_warmup_record";

IGNIS__COLD static void ignis__warmup_free(ignis__warmup *warmup)
{
    while (warmup->count > 0)
        ignis__request_free(&warmup->requests[--warmup->count]);
    ignis__free(warmup->requests);
    ignis__free(warmup->text);
    ignis__free(warmup->path);
    ignis__free(warmup);
}

IGNIS__COLD static void ignis__warmup_background(void *context)
{
    (void)ignis__warmup_run((ignis__warmup *)context);
    ignis__warmup_free((ignis__warmup *)context);
}

/*  Whether a request is for a device, and not for what one before it compiles, too: of own sources that is the whole. */
IGNIS__COLD static bool ignis__warmup_takes(const ignis__warmup *warmup, const ignis__request *request)
{
    const ignis_device_info *info = &warmup->device->info;
    int capability = ignis__capability(info), i;
    uint64_t key[2], other[2];
    ignis__program whole = request->program;
    if (!whole.name || capability < request->first || capability > request->last)
        return false;
    if (request->source >= 0 && strstr(whole.name, "hopper") && !ignis__wgmma_compiles(warmup->call))
        return false;
    if (!ignis__the_bundle.data)
        whole.part = NULL;
    ignis__program_key(&whole, key);
    for (i = 0; i < warmup->count; i++) {
        whole = warmup->requests[i].program;
        if (!ignis__the_bundle.data)
            whole.part = NULL;
        ignis__program_key(&whole, other);
        if (key[0] == other[0] && key[1] == other[1])
            return false;
    }
    return true;
}

/*  Reads the requests of a record that are for the device. */
IGNIS__COLD static bool ignis__warmup_read(ignis__warmup *warmup)
{
    char *line, *end, reason[300];
    int lines = 1;
    ignis__text why;
    for (line = warmup->text; (line = strchr(line, '\n')) != NULL; line++)
        lines++;
    warmup->requests = (ignis__request *)ignis__alloc_for(warmup->call, (size_t)lines * sizeof *warmup->requests);
    if (!warmup->requests)
        return false;
    lines = 0;
    for (line = warmup->text; line; line = end) {
        ignis__request *request = &warmup->requests[warmup->count];
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        lines++;
        ignis__text_begin(&why, reason, sizeof reason);
        if (!ignis__request_read(line, request, &why))
            return ignis__refuse(IGNIS_DIAG_BUNDLE_FORMAT, warmup->call, "line %d of %s is none of a record: %s", lines, warmup->path,
                                 reason);
        request->line = lines;
        if (ignis__warmup_takes(warmup, request))
            warmup->count++;
        else
            ignis__request_free(request);
    }
    return true;
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_warmup_record(const char *path)
{
    static const char *const call = ignis__warmup_record_call;
    ignis_ticket result = IGNIS__ZERO;
    ignis__ticket *ticket = NULL;
    ignis__warmup *warmup;
    ignis__device *device;
    ignis__binding binding;
    size_t size;
    if (!ignis__enter(call) || !ignis__given(call, "path", path))
        return result;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    ignis__device_leave(&binding);
    warmup = (ignis__warmup *)ignis__alloc_for(call, sizeof *warmup);
    if (!warmup)
        return result;
    memset(warmup, 0, sizeof *warmup);
    warmup->call = call;
    warmup->device = device;
    warmup->path = ignis__copy_string(path);
    warmup->text = (char *)ignis__file_read(path, &size);
    if (warmup->text)
        warmup->text[size] = 0;
    if (!warmup->path)
        ignis__fail_host_memory(call, strlen(path) + 1);
    else if (!warmup->text)
        ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read");
    else if (memchr(warmup->text, 0, size))
        ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is no record: it has bytes that are 0", path);
    else if (ignis__warmup_read(warmup))
        ticket = ignis__ticket_start(call, device, ignis__warmup_background, warmup);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__warmup_free(warmup);
    return result;
}

IGNIS__COLD static void ignis__kernels_setup(const char *call, const ignis_desc *desc)
{
    const char *env = ignis__env("IGNIS_CACHE_DIR"), *chosen = desc->cache_dir && *desc->cache_dir ? desc->cache_dir
                                                               : env && *env                       ? env
                                                                                                   : NULL;
    char *dir = ignis__kernels_state.cache_dir;
    size_t size = sizeof ignis__kernels_state.cache_dir;
    static bool locks_made;
    char why[160];
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__kernels_state.compiling) && !locks_made; i++)
        ignis__mutex_init(&ignis__kernels_state.compiling[i]);
    if (!locks_made)
        ignis__mutex_init(&ignis__kernels_state.lock);
    locks_made = true;
    ignis__kernels_state.cache_limit = desc->cache_limit ? desc->cache_limit : (int64_t)256 << 20;
    ignis__kernels_state.cache_broken = ignis__kernels_state.last_read = false;
    ignis__kernels_state.last_release = 0;
    dir[0] = 0;
    if (chosen && strcmp(chosen, "off") == 0)
        return;
    if (chosen && strlen(chosen) >= size)
        ignis__cache_warn(call, "use the folder (its name is too long)", chosen, "");
    else if (chosen)
        snprintf(dir, size, "%s", chosen);
#ifdef _WIN32
    else if (ignis__env("LOCALAPPDATA") && strlen(ignis__env("LOCALAPPDATA")) + 16 < size)
        snprintf(dir, size, "%s\\ignis\\kernels", ignis__env("LOCALAPPDATA"));
#else
    else if (ignis__env("XDG_CACHE_HOME") && *ignis__env("XDG_CACHE_HOME") && strlen(ignis__env("XDG_CACHE_HOME")) + 16 < size)
        snprintf(dir, size, "%s/ignis", ignis__env("XDG_CACHE_HOME"));
    else if (ignis__env("HOME") && *ignis__env("HOME") && strlen(ignis__env("HOME")) + 16 < size)
        snprintf(dir, size, "%s/.cache/ignis", ignis__env("HOME"));
#endif
    if (dir[0] && !ignis__path_is_private(dir, why, sizeof why)) {
        ignis__cache_warn(call, "use the folder", dir, why);
        dir[0] = 0;
    }
}

/*  Unloads Ignis' own kernels from a device; its context is current. */
IGNIS__COLD static void ignis__builtins_close(ignis__device *device)
{
    struct ignis__builtin_code *code = &ignis__builtin_codes[device - ignis__devices];
    int source, dtype;
    for (source = 0; source < IGNIS__SOURCE_COUNT; source++)
        for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
            ignis__module_unload(&code->modules[source][dtype]);
    memset(code, 0, sizeof *code);
    while (ignis__variants.first[device - ignis__devices]) {
        ignis__variant *variant = ignis__variants.first[device - ignis__devices];
        ignis__variants.first[device - ignis__devices] = variant->next;
        ignis__module_unload(&variant->module);
        ignis__free(variant);
    }
}

static void ignis__images_close(void)
{
    while (ignis__kernels_state.images) {
        ignis__image *image = ignis__kernels_state.images;
        ignis__kernels_state.images = image->next;
        ignis__image_drop(image);
    }
}

/* ===============================================================================================================
   >>elementwise - fill, copy, cast, add, mul, scale.
   =============================================================================================================== */

/*  Geometry of kernels/elementwise.cu: 256 threads do 4096 elements. */
static bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    int64_t blocks = (numel + 4095) / 4096;
    void *function;
    if (numel == 0)
        return true;
    if (blocks > INT32_MAX)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%lld elements are more than one launch can cover", (long long)numel);
    grid[0] = (unsigned)blocks;
    function = ignis__builtin_get(work->call, work->device, builtin, dtype);
    return function && ignis__builtin_launch(work, builtin, function, grid, block, 0, params);
}

static bool ignis__work_fill(const ignis__work *work, ignis__array *array, double value)
{
    ignis__address to;
    char element[8];
    void *params[] = {&to, element, &array->numel};
    ignis__convert(element, array->dtype, &value, IGNIS_F64, 1);
    return ignis__work_write(work, array, &to) && ignis__elementwise(work, IGNIS__BUILTIN_FILL, array->dtype, array->numel, params);
}

static ignis_status ignis__array_set(const char *call, ignis_array handle, double value)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    return ignis__array_work_end(&work, array, array && ignis__work_fill(&work, array, value));
}

IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value) { return ignis__array_set("ignis_array_fill", array, value); }

static bool ignis__same_numel(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->numel == src->numel)
        return true;
    return ignis__refuse(IGNIS_DIAG_SHAPE_DIFFERS, call, "dst %s has %lld elements, %s %s has %lld", ignis__shape_write(&dst->shape).text,
                         (long long)dst->numel, name, ignis__shape_write(&src->shape).text, (long long)src->numel);
}

static bool ignis__same_dtype(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->dtype == src->dtype)
        return true;
    return ignis__refuse(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, %s is %s", ignis__dtypes[dst->dtype].name, name,
                         ignis__dtypes[src->dtype].name);
}

static bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->storage->device == src->storage->device)
        return true;
    return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, %s is on device %d",
                         ignis__device_ordinal(dst->storage->device), name, ignis__device_ordinal(src->storage->device));
}

/*  Converts on one device. */
static bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    ignis__builtin cast = (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dst->dtype - (int)IGNIS_F16);
    void *params[] = {&to, &from, &src->numel};
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             (dst->dtype == src->dtype ? ignis__copy_on_device(&work, to, from, ignis__array_bytes(src))
                                       : ignis__elementwise(&work, cast, src->dtype, src->numel, params));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Copies between devices, on the current stream of dst's device, behind the work on that of src's. */
static bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__device *from_device = src->storage->device;
    ignis__work work, from_work;
    ignis__address to, from;
    uint64_t base;
    ignis__traced item;
    bool traced, ok = ignis__work_begin(call, from_device, &from_work);
    if (!ok)
        return false;
    ok = ignis__work_read(&from_work, src, &from);
    ignis__work_end(&from_work);
    if (!ok || !ignis__work_begin(call, dst->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, dst, &to) && ignis__stream_order(call, from_device, from_work.stream, work.device, work.stream) &&
         ignis__storage_use(call, src->storage, work.device, work.stream, &base);
    if (ok && src->numel > 0) {
        traced = ignis__traced_copy(&item, call, work.device, work.stream, "copy between devices", ignis__array_bytes(src));
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuMemcpyPeerAsync,
                                 (to, work.device->context, from, from_device->context, (size_t)ignis__array_bytes(src), work.stream));
        if (traced)
            (void)ignis__traced_close(&item, ok);
    }
    ignis__work_end(&work);
    return ok;
}

IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src)
{
    static const char call[] = "ignis_array_copy";
    ignis_array handles[] = {dst, src};
    ignis__array *arrays[2];
    bool ok;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__same_numel(call, arrays[0], arrays[1], "src") &&
         ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[1]);
    if (ok && arrays[0]->storage->device == arrays[1]->storage->device)
        ok = ignis__array_convert(call, arrays[0], arrays[1]);
    else if (ok && arrays[0]->dtype != arrays[1]->dtype) /* the kernel would have to reach across; cast on one side first */
        ok = ignis__same_device(call, arrays[0], arrays[1], "src");
    else if (ok)
        ok = ignis__array_copy_peer(call, arrays[0], arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_array_cast(ignis_array handle, ignis_dtype dtype)
{
    static const char call[] = "ignis_array_cast";
    ignis_array made = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *target;
    if (!array)
        return made;
    if (ignis__dtype_valid(call, dtype))
        made = ignis__array_create_like(call, array, dtype);
    if (made.id) {
        target = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
        if (!ignis__array_convert(call, target, array))
            ignis__array_discard(call, &made);
        ignis__array_drop(call, target);
    }
    ignis__array_drop(call, array);
    return made;
}

/*  dst = f(sources), all of one dtype and numel on one device. params are the kernel's, with addresses[0] for dst. */
static ignis_status ignis__array_map(const char *call, ignis__builtin builtin, int count, const ignis_array *handles,
                                     const char *const *names, ignis__address *addresses, void **params, int64_t *numel)
{
    ignis__array *arrays[3];
    ignis__work work;
    bool ok = true;
    int i;
    if (!ignis__array_hold_all(call, count, handles, arrays))
        return ignis__failed();
    for (i = 1; ok && i < count; i++)
        ok = ignis__same_numel(call, arrays[0], arrays[i], names[i]) && ignis__same_dtype(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_device(call, arrays[0], arrays[i], names[i]) &&
             ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
    ok = ok && ignis__work_begin(call, arrays[0]->storage->device, &work);
    if (ok) {
        *numel = arrays[0]->numel;
        for (i = 1; ok && i < count; i++)
            ok = ignis__work_read(&work, arrays[i], &addresses[i]);
        ok = ok && ignis__work_write(&work, arrays[0], &addresses[0]) &&
             ignis__elementwise(&work, builtin, arrays[0]->dtype, *numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop_all(call, count, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst, ignis_array a, ignis_array b)
{
    static const char *const names[] = {"dst", "a", "b"};
    ignis_array handles[] = {dst, a, b};
    ignis__address addresses[3];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &addresses[2], &numel};
    return ignis__array_map(call, builtin, 3, handles, names, addresses, params, &numel);
}

IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_add", IGNIS__BUILTIN_ADD, dst, a, b);
}

IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_mul", IGNIS__BUILTIN_MUL, dst, a, b);
}

IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor)
{
    static const char *const names[] = {"dst", "src"};
    ignis_array handles[] = {dst, src};
    ignis__address addresses[2];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &factor, &numel};
    return ignis__array_map("ignis_array_scale", IGNIS__BUILTIN_SCALE, 2, handles, names, addresses, params, &numel);
}

#ifndef IGNIS_NO_TENSORS

/* ===============================================================================================================
   >>random - where random numbers begin, and what tensors keep for a thread.
   =============================================================================================================== */

/*  What the tensor sections keep of a thread. */
typedef struct ignis__tensor_thread {
    uint64_t setup;                    /* the setup that it belongs to: an older one is forgotten */
    int tensor_count, tensor_capacity; /* handles made inside scopes, those of the innermost scope last */
    int scope_count, scope_capacity;
    int no_grad;
    uint64_t seed, random_used; /* blocks of four random numbers given out */
    bool random_again;          /* a checkpoint runs its function again, with the numbers of the first time */
    uint64_t random_launches;   /* and this counter of a graph's launches, by handle; 0: none */
    struct ignis__tape *tape;
    struct ignis__walk *walk;       /* the innermost backward; null: none */
    uint64_t walk_serial;           /* its serial, or 0 */
    int scope_floor, no_grad_floor; /* what was open before a function of the caller's was called, which may not end it */
    bool unbalanced;                /* the function has tried to */
    bool saw_trainable;             /* an operation had an input that requires a gradient, recorded or not */
    struct ignis__watch *watch;     /* of the checkpoint whose function runs for the first time; null: none */
} ignis__tensor_thread;

IGNIS__LOCAL(ignis__tensor_thread, ignis__this_tensor_thread, IGNIS__LOCAL_TENSORS)
#ifdef _WIN32
#define ignis__this_tensor_thread (*ignis__this_tensor_thread_get())
#endif

IGNIS__ONE_COPY static ignis__tensor_thread *ignis__tensor_thread_now(void)
{
    ignis__tensor_thread *thread = &ignis__this_tensor_thread;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->tensor_count = thread->scope_count = thread->no_grad = 0;
        thread->tensor_capacity = thread->scope_capacity = 0; /* ignis_shutdown has freed them */
        thread->seed = thread->random_used = thread->random_launches = 0;
        thread->random_again = false;
        thread->tape = NULL;
        thread->walk = NULL;
        thread->walk_serial = 0;
        thread->scope_floor = thread->no_grad_floor = 0;
        thread->unbalanced = thread->saw_trainable = false;
        thread->watch = NULL;
    }
    return thread;
}

/*  Where an operation's random numbers begin: seed, first Philox counter, and in a CUDA graph the counter of its launches. */
typedef struct ignis__random {
    uint64_t seed, first;
    ignis_array launches; /* no handle: none */
} ignis__random;

static void ignis__array_unclaim_held(const char *call, void *item) { ignis__array_unclaim(call, (ignis__array *)item); }

/*  Lets a capture count the launches of its graph, from 1: the counter begins beside the capture, and goes up ahead of its first reader. */
IGNIS__COLD static bool ignis__capture_count(const ignis__work *work, ignis__capture *capture, ignis_dtype dtype)
{
    unsigned one[3] = {1, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_RANDOM_ADVANCE, dtype);
    ignis__address address;
    void *params[] = {&address};
    ignis__array *array;
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    bool ok;
    if (!function)
        return false;
    desc.shape = IGNIS_SHAPE(1);
    desc.dtype = IGNIS_I64;
    desc.device = ignis__device_in_desc(work->device);
    desc.tag = "launches";
    made = ignis__array_create(work->call, &desc);
    if (!made.id)
        return false;
    (void)ignis__capture_pause();
    ok = ignis__array_set_zero(work->call, made) == IGNIS_OK;
    ok = ignis__capture_resume(work->call, capture) && ok;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    ok = ok && ignis__work_write(work, array, &address) && ignis__launch_as(work, function, one, one, 0, params, false, false);
    if (ok) {
        ignis__array_claim(array);
        ok = ignis__capture_hold(work->call, capture, array, NULL, ignis__array_unclaim_held);
        if (ok)
            capture->launches = array;
        else
            ignis__array_unclaim(work->call, array);
    } else {
        ignis__array_discard(work->call, &made);
    }
    ignis__array_drop(work->call, array);
    return ok;
}

/*  The counter of launches for random numbers of the calling thread now, or no handle. */
static ignis_array ignis__random_launches(void)
{
    const ignis__tensor_thread *thread = ignis__tensor_thread_now();
    const ignis__capture *capture = ignis__capturing();
    ignis_array launches = IGNIS__ZERO;
    if (thread->random_again)
        launches.id = thread->random_launches;
    else if (capture && capture->launches)
        launches.id = capture->launches->slot.handle;
    return launches;
}

/*  The numbers for so many elements of a tensor on the device of the work. */
static bool ignis__random_take(const ignis__work *work, ignis_dtype dtype, int64_t numel, ignis__random *random)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__capture *capture = ignis__capture_on(work->device);
    if (capture && !capture->launches && !thread->random_again && !ignis__capture_count(work, capture, dtype))
        return false;
    random->seed = thread->seed;
    random->first = thread->random_used;
    random->launches.id = 0;
    if (capture || thread->random_again)
        random->launches = ignis__random_launches();
    thread->random_used += ((uint64_t)numel + 3) / 4;
    return true;
}

/*  The address of a counter of launches for a kernel; 0 for no handle. */
static bool ignis__random_step(const ignis__work *work, ignis_array launches, ignis__address *step)
{
    ignis__array *array;
    bool ok;
    *step = 0;
    if (!launches.id)
        return true;
    array = ignis__array_hold(work->call, launches);
    ok = array && (array->storage->device != work->device || ignis__work_read(work, array, step));
    if (array)
        ignis__array_drop(work->call, array);
    return ok;
}

/* ===============================================================================================================
   >>map - formulas: a text becomes typed terms, their derivatives, a kernel.
   =============================================================================================================== */

/* --- functions and operators ---------------------------------------------------------------------------------------------- */

/*  A row for all that a term can be: how it is written in CUDA, with $a, $b and $c for its arguments and $r for itself, and its partial
    derivatives, null for 0, where $d, of those that choose, is the argument's own derivative. A term is of type W (w), an integer (i) or a truth
    value (b). Of type n are those that are integers, where `integer` is given and all arguments are, and W else. Functions with a body are what
    that formula of a, b and c is. */
typedef struct ignis__map_function {
    const char *name;
    int count; /* of arguments */
    char type;
    const char *value, *integer, *partial[2], *body;
} ignis__map_function;

enum {
    IGNIS__MAP_INPUT,
    IGNIS__MAP_NUMBER,
    IGNIS__MAP_INDEX,
    IGNIS__MAP_RAND,
    IGNIS__MAP_RANDN,
    IGNIS__MAP_SELECT,
    IGNIS__MAP_POWER,
    IGNIS__MAP_WIDE,
    IGNIS__MAP_TRUTH,
    IGNIS__MAP_NEG,
    IGNIS__MAP_NOT,
    IGNIS__MAP_INVERT,
    IGNIS__MAP_DIVIDE,
    IGNIS__MAP_WHOLE,                                /* floor, ceil, round and trunc, of one value */
    IGNIS__MAP_WHOLE_QUOTIENT = IGNIS__MAP_WHOLE + 4 /* and of the quotient of two integers */
};

/* clang-format off */
static const ignis__map_function ignis__map_functions[] = {
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL}, /* the first rows are those of the enumeration */
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"", 0, 'i', "", NULL, {NULL, NULL}, NULL},
    {"rand", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"randn", 2, 'w', "map_normal($a,$b)", NULL, {NULL, NULL}, NULL}, /* of two rand, which the reader gives it */
    {"?", 3, 'n', "$a?$b:$c", "$a?$b:$c", {NULL, NULL}, NULL},
    {"", 1, 'n', "map_power($a,$n)", "map_power_whole($a,$n)", {"(W)$n*map_power($a,$n-1)", NULL}, NULL},
    {"", 1, 'w', "(W)$a", NULL, {NULL, NULL}, NULL},
    {"", 1, 'b', "$a!=0", "$a!=0", {NULL, NULL}, NULL},
    {"", 1, 'n', "-$a", "(i64)(0-(u64)$a)", {"-1", NULL}, NULL},
    {"!", 1, 'b', "!$a", NULL, {NULL, NULL}, NULL},
    {"~", 1, 'i', "", "~(i64)$a", {NULL, NULL}, NULL},
    {"/", 2, 'w', "map_divide($a,$b)", NULL, {"1/$b", "-$r/$b"}, NULL},
    {"floor", 1, 'n', "floor($a)", "$a", {NULL, NULL}, NULL},
    {"ceil", 1, 'n', "ceil($a)", "$a", {NULL, NULL}, NULL},
    {"round", 1, 'n', "rint($a)", "$a", {NULL, NULL}, NULL},
    {"trunc", 1, 'n', "trunc($a)", "$a", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_floor($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_ceil($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_round($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_trunc($a,$b)", {NULL, NULL}, NULL},
    {"||", 2, 'b', "$a||$b", NULL, {NULL, NULL}, NULL},
    {"&&", 2, 'b', "$a&&$b", NULL, {NULL, NULL}, NULL},
    {"|", 2, 'i', "", "$a|$b", {NULL, NULL}, NULL},
    {"^", 2, 'i', "", "$a^$b", {NULL, NULL}, NULL},
    {"&", 2, 'i', "", "$a&$b", {NULL, NULL}, NULL},
    {"<<", 2, 'i', "", "map_left($a,$b)", {NULL, NULL}, NULL},
    {">>", 2, 'i', "", "map_right($a,$b)", {NULL, NULL}, NULL},
    {"==", 2, 'b', "$a==$b", "$a==$b", {NULL, NULL}, NULL},
    {"!=", 2, 'b', "$a!=$b", "$a!=$b", {NULL, NULL}, NULL},
    {"<=", 2, 'b', "$a<=$b", "$a<=$b", {NULL, NULL}, NULL},
    {">=", 2, 'b', "$a>=$b", "$a>=$b", {NULL, NULL}, NULL},
    {"<", 2, 'b', "$a<$b", "$a<$b", {NULL, NULL}, NULL},
    {">", 2, 'b', "$a>$b", "$a>$b", {NULL, NULL}, NULL},
    {"+", 2, 'n', "$a+$b", "(i64)((u64)$a+(u64)$b)", {"1", "1"}, NULL},
    {"-", 2, 'n', "$a-$b", "(i64)((u64)$a-(u64)$b)", {"1", "-1"}, NULL},
    {"*", 2, 'n', "$a*$b", "(i64)((u64)$a*(u64)$b)", {"$b", "$a"}, NULL},
    {"%", 2, 'n', "fmod($a,$b)", "map_modulo($a,$b)", {"1", "-trunc(map_divide($a,$b))"}, NULL},
    {"abs", 1, 'n', "fabs($a)", "$a<0?(i64)(0-(u64)$a):$a", {"$a>0?$d:$a<0?-$d:$a==0||$d==0?(W)0:$a", NULL}, NULL},
    {"sign", 1, 'n', "$a!=$a?$a:(W)(($a>0)-($a<0))", "(i64)(($a>0)-($a<0))", {NULL, NULL}, NULL},
    {"max", 2, 'n', "map_most($a,$b)", "map_most((i64)$a,(i64)$b)", {"$a<$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b<$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"min", 2, 'n', "map_least($a,$b)", "map_least((i64)$a,(i64)$b)", {"$a>$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b>$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"relu", 1, 'n', "map_most($a,(W)0)", "$a>0?$a:0", {"$a<=0?(W)0:$d", NULL}, NULL},
    {"exp", 1, 'w', "exp($a)", NULL, {"$r", NULL}, NULL},
    {"exp2", 1, 'w', "exp2($a)", NULL, {"$r*(W)0.693147180559945309", NULL}, NULL},
    {"expm1", 1, 'w', "expm1($a)", NULL, {"$r+1", NULL}, NULL},
    {"log", 1, 'w', "log($a)", NULL, {"1/$a", NULL}, NULL},
    {"log2", 1, 'w', "log2($a)", NULL, {"(W)1.44269504088896341/$a", NULL}, NULL},
    {"log10", 1, 'w', "log10($a)", NULL, {"(W)0.434294481903251828/$a", NULL}, NULL},
    {"log1p", 1, 'w', "log1p($a)", NULL, {"1/(1+$a)", NULL}, NULL},
    {"sqrt", 1, 'w', "sqrt($a)", NULL, {"(W)0.5/$r", NULL}, NULL},
    {"rsqrt", 1, 'w', "rsqrt($a)", NULL, {"(W)-0.5*$r*$r*$r", NULL}, NULL},
    {"cbrt", 1, 'w', "cbrt($a)", NULL, {"1/(3*$r*$r)", NULL}, NULL},
    {"sin", 1, 'w', "sin($a)", NULL, {"cos($a)", NULL}, NULL},
    {"cos", 1, 'w', "cos($a)", NULL, {"-sin($a)", NULL}, NULL},
    {"tan", 1, 'w', "tan($a)", NULL, {"1+$r*$r", NULL}, NULL},
    {"asin", 1, 'w', "asin($a)", NULL, {"rsqrt(1-$a*$a)", NULL}, NULL},
    {"acos", 1, 'w', "acos($a)", NULL, {"-rsqrt(1-$a*$a)", NULL}, NULL},
    {"atan", 1, 'w', "atan($a)", NULL, {"1/(1+$a*$a)", NULL}, NULL},
    {"sinh", 1, 'w', "sinh($a)", NULL, {"cosh($a)", NULL}, NULL},
    {"cosh", 1, 'w', "cosh($a)", NULL, {"sinh($a)", NULL}, NULL},
    {"tanh", 1, 'w', "tanh($a)", NULL, {"1-$r*$r", NULL}, NULL},
    {"sigmoid", 1, 'w', "map_sigmoid($a)", NULL, {"$r*(1-$r)", NULL}, NULL},
    {"softplus", 1, 'w', "map_softplus($a)", NULL, {"map_sigmoid($a)", NULL}, NULL},
    {"erf", 1, 'w', "erf($a)", NULL, {"(W)1.12837916709551257*exp(-$a*$a)", NULL}, NULL},
    {"pow", 2, 'w', "pow($a,$b)", NULL, {"$b==0||$d==0?(W)0:$b*pow($a,$b-1)*$d", "($a==0&&$b>=0)||$d==0?(W)0:$r*log($a)*$d"}, NULL},
    {"detach", 1, 'n', "$a", "$a", {NULL, NULL}, NULL},
    {"with_grad", 2, 'w', "$a", NULL, {NULL, "1"}, NULL},
    {"atan2", 2, 'w', "atan2($a,$b)", NULL, {"$b/hypot($a,$b)/hypot($a,$b)", "-$a/hypot($a,$b)/hypot($a,$b)"}, NULL},
    {"silu", 1, 0, NULL, NULL, {NULL, NULL}, "a*sigmoid(a)"},
    {"gelu", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + tanh(0.79788456080286536*a*(1 + 0.044715*min(a*a, 100))))"},
    {"gelu_exact", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + erf(a*0.70710678118654752))"},
    {"logsigmoid", 1, 0, NULL, NULL, {NULL, NULL}, "-softplus(-a)"},
    {"square", 1, 0, NULL, NULL, {NULL, NULL}, "a*a"},
    {"clamp", 3, 0, NULL, NULL, {NULL, NULL}, "a < b ? b : a > c ? c : a"},
    {"lerp", 3, 0, NULL, NULL, {NULL, NULL}, "a + c*(b - a)"},
    {"isnan", 1, 0, NULL, NULL, {NULL, NULL}, "a != a"},
    {"isinf", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) == inf"},
    {"isfinite", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) < inf"},
};

static const struct {
    const char *name, *value;
} ignis__map_constants[] = {{"pi", "(W)3.14159265358979324"}, {"e", "(W)2.71828182845904524"}, {"inf", "map_infinity"}, {"nan", "map_nan"}};
/* clang-format on */

/* --- reading a formula ---------------------------------------------------------------------------------------------------- */

#define IGNIS__MAP_TERMS 1000
#define IGNIS__MAP_NAMES 300
#define IGNIS__MAP_TOKENS 1000
#define IGNIS__MAP_DEPTH 60
#define IGNIS__MAP_LENGTH 16384
#define IGNIS__MAP_INDICES 8 /* and so many random numbers */

typedef struct ignis__map_term {
    short function, arg[3];
    char type;        /* w, i or b */
    short length;     /* of text */
    int64_t number;   /* an input's index; an integer; the exponent of a power; the dimension of an index; which random number it is */
    const char *text; /* of a number of type w; null: it is `number` */
} ignis__map_term;

typedef struct ignis__map_name {
    const char *text;
    size_t length;
    int term;
} ignis__map_name;

/*  A formula being read. After the first fault every token is the end. */
typedef struct ignis__map_reader {
    const char *text;
    size_t at, start; /* behind the current token; its place */
    char kind;        /* of the current token: a name (a), a number (0), an operator (+), the end (0) */
    int tokens, depth;
    bool inside; /* the body of a function */
    int name_first, name_count, term_count, result_count, randoms;
    int result[IGNIS_MAX_INPUTS];
    ignis__map_name name[IGNIS__MAP_NAMES];
    ignis__map_term term[IGNIS__MAP_TERMS];
    size_t column;
    char fault[400];
} ignis__map_reader;

static bool ignis__map_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool ignis__map_is_digit(char c) { return c >= '0' && c <= '9'; }
static size_t ignis__map_word(const char *text)
{
    size_t length = 0;
    while (ignis__map_is_letter(text[length]) || (length && ignis__map_is_digit(text[length])))
        length++;
    return length;
}

/*  The length of a number: 12, 1.5, 1.5f, 1e-3 or, of up to 16 digits, 0xff. */
static size_t ignis__map_digits(const char *text)
{
    static const char *const digits = "0123456789";
    size_t length = strspn(text, digits), whole = length, exponent;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        length = strspn(text + 2, "0123456789abcdefABCDEF");
        return length ? 2 + (length < 16 ? length : 16) : 1;
    }
    length += text[length] == '.';
    length += strspn(text + length, digits);
    if (text[length] == 'e' || text[length] == 'E') {
        exponent = 1 + (size_t)(text[length + 1] == '+' || text[length + 1] == '-');
        if (ignis__map_is_digit(text[length + exponent]))
            length += exponent + strspn(text + length + exponent, digits);
    }
    return length + (length > whole && (text[length] == 'f' || text[length] == 'F'));
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static int ignis__map_fault(ignis__map_reader *r, size_t at, const char *format, ...)
{
    va_list args;
    if (!*r->fault) {
        va_start(args, format);
        vsnprintf(r->fault, sizeof r->fault, format, args);
        va_end(args);
        r->column = at + 1;
        r->kind = 0;
    }
    return 0;
}

/*  Goes on to the next token. */
static void ignis__map_next(ignis__map_reader *r)
{
    const char *text = r->text;
    size_t at = r->at;
    if (*r->fault)
        return;
    at += strspn(text + at, " \t\r\n");
    r->start = at;
    if (!r->inside && ++r->tokens > IGNIS__MAP_TOKENS) {
        ignis__map_fault(r, at, "the formula has more than %d words and signs", IGNIS__MAP_TOKENS);
        return;
    }
    if (!text[at]) {
        r->kind = 0;
    } else if (ignis__map_is_letter(text[at])) {
        r->kind = 'a';
        at += ignis__map_word(text + at);
    } else if (ignis__map_is_digit(text[at]) || (text[at] == '.' && ignis__map_is_digit(text[at + 1]))) {
        r->kind = '0';
        at += ignis__map_digits(text + at);
        if (ignis__map_is_letter(text[at]) || ignis__map_is_digit(text[at]) || text[at] == '.')
            ignis__map_fault(r, at, "'%c' does not belong to a number", text[at]);
    } else {
        r->kind = '+';
        if (!strchr("+-*/%<>=!&|^~?:;(),", text[at]))
            ignis__map_fault(r, at, "'%c' is no part of a formula", text[at] > ' ' && text[at] < 127 ? text[at] : '?');
        else if (text[at] == '*' && text[at + 1] == '*')
            ignis__map_fault(r, at, "'**' is no part of a formula; use pow(a, b)");
        else if ((strchr("&|<>", text[at]) && text[at + 1] == text[at]) || (strchr("<>=!", text[at]) && text[at + 1] == '='))
            at++;
        at++;
    }
    r->at = at;
}

static bool ignis__map_is(const ignis__map_reader *r, const char *sign)
{
    size_t length = strlen(sign);
    return r->kind == '+' && r->at - r->start == length && strncmp(r->text + r->start, sign, length) == 0;
}

static bool ignis__map_take(ignis__map_reader *r, const char *sign)
{
    bool is = ignis__map_is(r, sign);
    if (is)
        ignis__map_next(r);
    return is;
}

/*  The current token for a message, in *out. */
IGNIS__COLD static const char *ignis__map_token(const ignis__map_reader *r, char *out, size_t size)
{
    size_t length = r->at - r->start;
    if (r->kind)
        snprintf(out, size, "'%.*s'", (int)(length < 30 ? length : 30), r->text + r->start);
    else
        snprintf(out, size, "the end");
    return out;
}

static void ignis__map_want(ignis__map_reader *r, const char *sign)
{
    char token[40];
    if (!ignis__map_take(r, sign))
        ignis__map_fault(r, r->start, "'%s' is expected before %s", sign, ignis__map_token(r, token, sizeof token));
}

/*  The term that is as given, a new one or one that is there. */
static int ignis__map_term_of(ignis__map_reader *r, const ignis__map_term *wanted)
{
    int i;
    for (i = r->term_count - 1; i >= 0; i--) {
        const ignis__map_term *term = &r->term[i];
        if (term->function == wanted->function && term->type == wanted->type && term->number == wanted->number &&
            memcmp(term->arg, wanted->arg, sizeof term->arg) == 0 && term->length == wanted->length &&
            (term->length == 0 || memcmp(term->text, wanted->text, (size_t)term->length) == 0))
            return i;
    }
    if (r->term_count == IGNIS__MAP_TERMS)
        return ignis__map_fault(r, r->start, "the formula has more than %d operations", IGNIS__MAP_TERMS);
    r->term[r->term_count] = *wanted;
    return r->term_count++;
}

/*  A term without arguments. */
static int ignis__map_leaf(ignis__map_reader *r, int function, char type, int64_t number, const char *text, size_t length)
{
    ignis__map_term term = IGNIS__ZERO;
    term.function = (short)function;
    term.type = type;
    term.number = number;
    term.text = text;
    term.length = (short)length;
    return ignis__map_term_of(r, &term);
}

static int ignis__map_integer(ignis__map_reader *r, int64_t number) { return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'i', number, NULL, 0); }

/*  A term as W, or as a truth value. */
static int ignis__map_as(ignis__map_reader *r, char type, int x)
{
    ignis__map_term term;
    if (r->term[x].type == type)
        return x;
    if (r->term[x].function == IGNIS__MAP_NUMBER && type == 'w')
        return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', r->term[x].number, NULL, 0);
    memset(&term, 0, sizeof term);
    term.function = type == 'w' ? IGNIS__MAP_WIDE : IGNIS__MAP_TRUTH;
    term.type = type;
    term.arg[0] = (short)x;
    return ignis__map_term_of(r, &term);
}

/*  A function of terms: the term, with its arguments in the types that it takes. */
static int ignis__map_apply(ignis__map_reader *r, int function, const int *args, int64_t number)
{
    const ignis__map_function *f = &ignis__map_functions[function];
    ignis__map_term term = IGNIS__ZERO;
    bool select = function == IGNIS__MAP_SELECT, integers = f->integer != NULL, truths = f->type == 'b' && !f->integer;
    int i;
    term.function = (short)function;
    term.number = number;
    for (i = select; i < f->count; i++)
        integers = integers && r->term[args[i]].type != 'w';
    for (i = 0; i < f->count; i++)
        term.arg[i] = (short)ignis__map_as(r, truths || (select && i == 0) ? 'b' : integers ? r->term[args[i]].type : 'w', args[i]);
    term.type = f->type != 'n' ? f->type : integers ? 'i' : 'w';
    return ignis__map_term_of(r, &term);
}

static int ignis__map_expression(ignis__map_reader *r);

/*  What a function's body is of terms. */
static int ignis__map_body(ignis__map_reader *r, const ignis__map_function *f, const int *args)
{
    static const char *const letters = "abc";
    const char *text = r->text;
    size_t at = r->at, start = r->start;
    char kind = r->kind;
    bool inside = r->inside;
    int first = r->name_first, count = r->name_count, i, result;
    if (*r->fault || count + f->count > IGNIS__MAP_NAMES)
        return ignis__map_fault(r, start, "the formula has more than %d names", IGNIS__MAP_NAMES);
    for (i = 0; i < f->count; i++) {
        r->name[count + i].text = letters + i;
        r->name[count + i].length = 1;
        r->name[count + i].term = args[i];
    }
    r->name_first = count;
    r->name_count = count + f->count;
    r->text = f->body;
    r->at = 0;
    r->inside = true;
    ignis__map_next(r);
    result = ignis__map_expression(r);
    r->text = text;
    r->at = at;
    r->start = start;
    r->kind = *r->fault ? 0 : kind;
    r->inside = inside;
    r->name_first = first;
    r->name_count = count;
    return result;
}

/*  index(d), of which d is a number in the text. */
static int ignis__map_index(ignis__map_reader *r, size_t start)
{
    const ignis__map_term *term;
    int at, count = 0, dim;
    ignis__map_next(r);
    dim = ignis__map_expression(r);
    ignis__map_want(r, ")");
    if (*r->fault)
        return 0;
    term = &r->term[dim];
    if (term->function != IGNIS__MAP_NUMBER || term->type != 'i' || term->number < -IGNIS_MAX_DIMS || term->number >= IGNIS_MAX_DIMS)
        return ignis__map_fault(r, start, "index takes the number of a dimension, -%d to %d", IGNIS_MAX_DIMS, IGNIS_MAX_DIMS - 1);
    at = ignis__map_leaf(r, IGNIS__MAP_INDEX, 'i', term->number, NULL, 0);
    for (dim = 0; dim < r->term_count; dim++)
        count += r->term[dim].function == IGNIS__MAP_INDEX;
    return count <= IGNIS__MAP_INDICES ? at : ignis__map_fault(r, start, "the formula has more than %d indices", IGNIS__MAP_INDICES);
}

/*  rand() or randn(): each is a random number of its own. */
static int ignis__map_random(ignis__map_reader *r, size_t start, bool normal)
{
    int uniform[2] = {0, 0}, i;
    ignis__map_next(r);
    ignis__map_want(r, ")");
    for (i = 0; i < 1 + normal; i++) {
        if (r->randoms == IGNIS__MAP_INDICES)
            return ignis__map_fault(r, start, "the formula takes more than %d random numbers, of which randn() is two", IGNIS__MAP_INDICES);
        uniform[i] = ignis__map_leaf(r, IGNIS__MAP_RAND, 'w', r->randoms++, NULL, 0);
    }
    return normal && !*r->fault ? ignis__map_apply(r, IGNIS__MAP_RANDN, uniform, 0) : uniform[0];
}

/*  A term to the power of a whole number that is written down. Of an integer it is one, unless the result may be a fraction, or both are
    written down. */
static int ignis__map_power(ignis__map_reader *r, int x, int64_t n)
{
    if (n < 0 || r->term[x].function == IGNIS__MAP_NUMBER)
        x = ignis__map_as(r, 'w', x);
    if (n == 0) /* of NaN, too */
        return r->term[x].type == 'w' ? ignis__map_as(r, 'w', ignis__map_integer(r, 1)) : ignis__map_integer(r, 1);
    return ignis__map_apply(r, IGNIS__MAP_POWER, &x, n);
}

/*  The integer that a term of type W was made of; false: of none. */
static bool ignis__map_narrow(ignis__map_reader *r, int x, int *integer)
{
    const ignis__map_term *term = &r->term[x];
    bool number = term->function == IGNIS__MAP_NUMBER && !term->text;
    if (number || term->function == IGNIS__MAP_WIDE)
        *integer = number ? ignis__map_integer(r, term->number) : term->arg[0];
    return number || term->function == IGNIS__MAP_WIDE;
}

/*  A function's call, behind its name, which begins at `start`. */
static int ignis__map_call(ignis__map_reader *r, size_t start, size_t length)
{
    const char *name = r->text + start;
    int function, count = 0, args[3] = {0, 0, 0};
    const ignis__map_function *f = NULL;
    if (length == 5 && strncmp(name, "index", length) == 0)
        return ignis__map_index(r, start);
    if ((length == 4 || length == 5) && strncmp(name, "randn", length) == 0)
        return ignis__map_random(r, start, length == 5);
    for (function = 0; function < IGNIS__COUNT(ignis__map_functions); function++) {
        f = &ignis__map_functions[function];
        if (strlen(f->name) == length && strncmp(f->name, name, length) == 0)
            break;
    }
    if (function == IGNIS__COUNT(ignis__map_functions))
        return ignis__map_fault(r, start, "there is no function '%.*s'", (int)(length < 30 ? length : 30), name);
    ignis__map_next(r);
    if (!ignis__map_is(r, ")")) {
        do {
            int arg = ignis__map_expression(r);
            if (count < 3)
                args[count] = arg;
            count++;
        } while (ignis__map_take(r, ","));
    }
    ignis__map_want(r, ")");
    if (count != f->count)
        return ignis__map_fault(r, start, "%s takes %d value%s, not %d", f->name, f->count, f->count == 1 ? "" : "s", count);
    if (*r->fault)
        return 0;
    if (f->body)
        return ignis__map_body(r, f, args);
    if (strcmp(f->name, "pow") == 0 && r->term[args[1]].function == IGNIS__MAP_NUMBER && r->term[args[1]].type == 'i')
        return ignis__map_power(r, args[0], r->term[args[1]].number);
    if (function >= IGNIS__MAP_WHOLE && function < IGNIS__MAP_WHOLE_QUOTIENT && r->term[args[0]].function == IGNIS__MAP_DIVIDE) {
        const short *of = r->term[args[0]].arg;
        int sides[2];
        if (ignis__map_narrow(r, of[0], &sides[0]) && ignis__map_narrow(r, of[1], &sides[1]))
            return ignis__map_apply(r, function + IGNIS__MAP_WHOLE_QUOTIENT - IGNIS__MAP_WHOLE, sides, 0);
    }
    return ignis__map_apply(r, function, args, 0);
}

IGNIS__COLD static int ignis__map_unknown(ignis__map_reader *r, size_t start, size_t length)
{
    char names[300] = "";
    ignis__text text;
    int i;
    ignis__text_begin(&text, names, sizeof names);
    for (i = r->name_first; i < r->name_count; i++)
        ignis__text_add(&text, "%s%.*s", i > r->name_first ? ", " : "", (int)r->name[i].length, r->name[i].text);
    return ignis__map_fault(r, start, "'%.*s' is not known; the names are %s", (int)(length < 30 ? length : 30), r->text + start, names);
}

/*  A name, a call, a number or an expression in parentheses. */
static int ignis__map_primary(ignis__map_reader *r)
{
    size_t start = r->start, length = r->at - start, digit;
    const char *text = r->text + start;
    char kind = r->kind, token[40];
    int i;
    if (ignis__map_take(r, "(")) {
        i = ignis__map_expression(r);
        ignis__map_want(r, ")");
        return i;
    }
    if (kind != 'a' && kind != '0')
        return ignis__map_fault(r, start, "%s where a value is expected", ignis__map_token(r, token, sizeof token));
    ignis__map_next(r);
    if (kind == '0' && length > 2 && (text[1] == 'x' || text[1] == 'X')) {
        uint64_t bits = 0;
        for (digit = 2; digit < length; digit++)
            bits = bits << 4 | (uint64_t)(ignis__map_is_digit(text[digit]) ? text[digit] - '0' : (text[digit] | 32) - 'a' + 10);
        return ignis__map_integer(r, (int64_t)bits);
    }
    if (kind == '0') {
        int64_t number = 0;
        length -= text[length - 1] == 'f' || text[length - 1] == 'F';
        for (digit = 0; digit < length && ignis__map_is_digit(text[digit]); digit++) {
            if (number > (INT64_MAX - 9) / 10)
                break;
            number = 10 * number + (text[digit] - '0');
        }
        return digit == length ? ignis__map_integer(r, number) : ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', 0, text, length);
    }
    if (ignis__map_is(r, "("))
        return ignis__map_call(r, start, length);
    for (i = r->name_count - 1; i >= r->name_first; i--)
        if (r->name[i].length == length && strncmp(r->name[i].text, text, length) == 0)
            return r->name[i].term;
    for (i = 0; i < IGNIS__COUNT(ignis__map_constants); i++)
        if (strlen(ignis__map_constants[i].name) == length && strncmp(ignis__map_constants[i].name, text, length) == 0)
            return ignis__map_leaf(r, IGNIS__MAP_NUMBER, 'w', 0, ignis__map_constants[i].value, strlen(ignis__map_constants[i].value));
    return ignis__map_unknown(r, start, length);
}

/*  Whether a term may stand beside an operator of bits, which begins at `start`. */
static bool ignis__map_bits(ignis__map_reader *r, size_t start, const char *name, int x)
{
    if (r->term[x].type == 'w')
        ignis__map_fault(r, start, "'%s' takes integers, and one here is a floating number%s", name,
                         *name == '^'                     ? "; pow(a, b) is a power"
                         : (*name == '&' || *name == '|') ? "; && and || are those of truth values"
                                                          : "");
    return !*r->fault;
}

/*  An expression behind signs. Signs are counted, as they nest. */
static int ignis__map_unary(ignis__map_reader *r)
{
    bool minus = ignis__map_is(r, "-"), bits = ignis__map_is(r, "~");
    size_t start = r->start;
    int x;
    if (!minus && !bits && !ignis__map_is(r, "!") && !ignis__map_is(r, "+"))
        return ignis__map_primary(r);
    if (++r->depth > IGNIS__MAP_DEPTH)
        return ignis__map_fault(r, r->start, "the formula is nested deeper than %d", IGNIS__MAP_DEPTH);
    if (ignis__map_take(r, "+")) {
        x = ignis__map_unary(r);
    } else {
        ignis__map_next(r);
        x = ignis__map_unary(r);
        if (minus && r->term[x].function == IGNIS__MAP_NUMBER && r->term[x].type == 'i')
            x = ignis__map_integer(r, (int64_t)(0 - (uint64_t)r->term[x].number));
        else if (!*r->fault && (!bits || ignis__map_bits(r, start, "~", x)))
            x = ignis__map_apply(r, minus ? IGNIS__MAP_NEG : bits ? IGNIS__MAP_INVERT : IGNIS__MAP_NOT, &x, 0);
    }
    r->depth--;
    return x;
}

/*  Operators of two sides, by how tightly they bind. */
static int ignis__map_binary(ignis__map_reader *r, int level)
{
    static const char *const levels[] = {"||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %"};
    const char *name;
    int sides[2], function;
    if (level == IGNIS__COUNT(levels))
        return ignis__map_unary(r);
    sides[0] = ignis__map_binary(r, level + 1);
    for (;;) {
        size_t length = r->at - r->start, start = r->start;
        for (function = 0; function < IGNIS__COUNT(ignis__map_functions); function++) {
            name = ignis__map_functions[function].name;
            if (ignis__map_functions[function].count == 2 && *name && !ignis__map_is_letter(*name) && ignis__map_is(r, name))
                break;
        }
        if (function == IGNIS__COUNT(ignis__map_functions) || *r->fault)
            return sides[0];
        { /* one of this level? its name stands in the list as a word */
            const char *found = strstr(levels[level], name);
            while (found && (found[length] > ' ' || (found > levels[level] && found[-1] > ' ')))
                found = strstr(found + 1, name);
            if (!found)
                return sides[0];
        }
        ignis__map_next(r);
        sides[1] = ignis__map_binary(r, level + 1);
        if (!*r->fault && ignis__map_functions[function].type == 'i')
            (void)(ignis__map_bits(r, start, name, sides[0]) && ignis__map_bits(r, start, name, sides[1]));
        if (*r->fault)
            return 0;
        sides[0] = ignis__map_apply(r, function, sides, 0);
    }
}

static int ignis__map_expression(ignis__map_reader *r)
{
    int args[3];
    if (++r->depth > IGNIS__MAP_DEPTH)
        return ignis__map_fault(r, r->start, "the formula is nested deeper than %d", IGNIS__MAP_DEPTH);
    args[0] = ignis__map_binary(r, 0);
    if (ignis__map_take(r, "?")) {
        args[1] = ignis__map_expression(r);
        ignis__map_want(r, ":");
        args[2] = ignis__map_expression(r);
        args[0] = *r->fault ? 0 : ignis__map_apply(r, IGNIS__MAP_SELECT, args, 0);
    }
    r->depth--;
    return args[0];
}

/*  Statements `name = expression;`, then the expressions that are the results. */
static void ignis__map_program(ignis__map_reader *r)
{
    char token[40];
    int result;
    ignis__map_next(r);
    while (r->kind == 'a') {
        size_t start = r->start, length = r->at - start, behind = r->at + strspn(r->text + r->at, " \t\r\n");
        ignis__map_name *name = &r->name[r->name_count];
        if (r->text[behind] != '=' || r->text[behind + 1] == '=')
            break;
        ignis__map_next(r);
        ignis__map_next(r);
        result = ignis__map_expression(r);
        ignis__map_want(r, ";");
        if (r->name_count == IGNIS__MAP_NAMES)
            ignis__map_fault(r, start, "the formula has more than %d names", IGNIS__MAP_NAMES);
        if (*r->fault)
            return;
        name->text = r->text + start;
        name->length = length;
        name->term = result;
        r->name_count++;
    }
    do {
        size_t start = r->start;
        result = ignis__map_expression(r);
        if (r->result_count == IGNIS_MAX_INPUTS)
            ignis__map_fault(r, start, "the formula has more than %d results", IGNIS_MAX_INPUTS);
        else
            r->result[r->result_count++] = result;
    } while (ignis__map_take(r, ","));
    ignis__map_take(r, ";");
    if (r->kind)
        ignis__map_fault(r, r->start, "%s is not expected here", ignis__map_token(r, token, sizeof token));
}

/*  Splits the names of inputs, as a macro has made a text of its arguments: `x`, or MACRO(x, ...), whose first argument is the name.
    False: the last of the names is neither, or one too many. */
static bool ignis__map_names(const char *text, ignis__map_name *names, int *count, int capacity)
{
    *count = 0;
    for (;;) {
        ignis__map_name *name = &names[*count];
        size_t word, length = 0;
        int depth = 0;
        text += strspn(text, " \t\r\n");
        while (text[length] && (depth > 0 || text[length] != ',')) {
            depth += strchr("([{", text[length]) ? 1 : strchr(")]}", text[length]) ? -1 : 0;
            length++;
        }
        if (*count == capacity)
            return false;
        ++*count;
        name->text = text;
        name->length = length;
        word = ignis__map_word(text);
        if (word > 0 && word + strspn(text + word, " \t\r\n") == length) {
            name->length = word;
        } else {
            const char *inner = text + word + strspn(text + word, " \t\r\n");
            if (word == 0 || *inner != '(')
                return false;
            inner += 1 + strspn(inner + 1, " \t\r\n");
            word = ignis__map_word(inner);
            if (word == 0 || inner[word + strspn(inner + word, " \t\r\n")] != ',')
                return false;
            name->text = inner;
            name->length = word;
        }
        if (!text[length])
            return true;
        text += length + 1;
    }
}

