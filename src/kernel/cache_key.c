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

