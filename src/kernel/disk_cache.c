/*  kernel/disk_cache.c - the kernel cache on disk: a file per image, named by its key

    Files are private to the user, complete or absent, and checked before the driver reads them. The least recently
    used are deleted beyond the limit.
    May use: program.c, base/file_io.c. Failures are warnings: a program then runs without the cache. Locks: none,
    files are renamed into place. */

#include "room.h"

IGNIS__PRIVATE const char ignis__cache_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'I', '1'};

IGNIS__COLD static void ignis__cache_path(char *path, size_t size, const uint64_t key[2])
{
    snprintf(path, size, "%s/%016llx%016llx.ignis", ignis__kernels_state.cache_dir, (unsigned long long)key[0],
             (unsigned long long)key[1]);
}

/*  Logs that the cache cannot be used. why: "", or the reason. */
IGNIS__COLD IGNIS__PRIVATE void ignis__cache_warn(const char *call, const char *what, const char *path, const char *why)
{
    bool warned;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    warned = ignis__kernels_state.cache_broken;
    ignis__kernels_state.cache_broken = true;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!warned)
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CACHE_IO,
                   "%s: cannot %s %s%s%s; kernels are compiled again in every process. ignis_desc.cache_dir or "
                   "IGNIS_CACHE_DIR names another folder, \"off\" none",
                   call, what, path, *why ? ": " : "", why);
}

/*  Reads a file of the cache. A file that other users own or may write to is ignored: it could contain any program. */
IGNIS__COLD IGNIS__PRIVATE void *ignis__cache_read(const char *call, const char *path, size_t *size)
{
    char why[160];
    void *data = ignis__file_read_as(path, size, why, sizeof why);
    if (*why)
        ignis__cache_warn(call, "use", path, why);
    return data;
}

/*  Creates the folder of the cache. False, and a warning, if it cannot, or if other users own it or may write to it. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__cache_folder(const char *call)
{
    const char *folder = ignis__kernels_state.cache_dir;
    char why[160] = "";
    if (ignis__folder_make_all(folder) && ignis__path_is_private(folder, why, sizeof why))
        return true;
    ignis__cache_warn(call, *why ? "use the folder" : "make the folder", folder, why);
    return false;
}

/*  Checks that a table of `count` entries of `each` bytes at `at` is inside an image. */
static bool ignis__kernel_binary_has_table(size_t size, uint64_t at, uint64_t count, uint64_t each)
{
    return at <= size && count <= (size - at) / (each ? each : 1);
}

static uint64_t ignis__kernel_binary_number(const unsigned char *image, uint64_t at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | image[at + (uint64_t)bytes];
    return number;
}

/*  Checks that an image ends inside its buffer, which a 0 follows: the driver takes no size. Returns NULL if it does,
    else the reason. */
IGNIS__COLD IGNIS__PRIVATE const char *ignis__kernel_binary_fault(const void *data, size_t size)
{
    const unsigned char *image = (const unsigned char *)data;
    uint64_t i, sections, segments, count;
    if (size >= 64 && memcmp(image, "\177ELF\002", 5) == 0) {
        segments = ignis__kernel_binary_number(image, 32, 8);
        sections = ignis__kernel_binary_number(image, 40, 8);
        count = ignis__kernel_binary_number(image, 60, 2);
        if ((count && ignis__kernel_binary_number(image, 58, 2) != 64) ||
            !ignis__kernel_binary_has_table(size, sections, count, 64) ||
            !ignis__kernel_binary_has_table(size, segments, ignis__kernel_binary_number(image, 56, 2),
                                            ignis__kernel_binary_number(image, 54, 2)))
            return "it is an ELF file, a cubin, whose tables are not inside of it";
        for (i = 0; i < count; i++) {
            uint64_t at = sections + 64 * i;
            if (ignis__kernel_binary_number(image, at + 4, 4) != 8 && /* which has no bytes */
                !ignis__kernel_binary_has_table(size, ignis__kernel_binary_number(image, at + 24, 8),
                                                ignis__kernel_binary_number(image, at + 32, 8), 1))
                return "it is an ELF file (a cubin) with a section that is not inside the file";
        }
        return NULL;
    }
    if (size >= 16 && ignis__kernel_binary_number(image, 0, 4) == 0xBA55ED50u)
        return ignis__kernel_binary_has_table(size, ignis__kernel_binary_number(image, 6, 2),
                                              ignis__kernel_binary_number(image, 8, 8), 1)
                   ? NULL
                   : "it is a fatbin that says it is longer";
    if (size > 0 && memchr(image, 0, size - 1) == NULL && strstr((const char *)image, ".version"))
        return NULL; /* PTX, with or without a zero at its end */
    return "it is neither a cubin, nor a fatbin, nor PTX";
}

/*  Checks that the bytes of a file are the image of its key, and fills the image. The buffer has room for one more
    byte. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__cache_parse(ignis__kernel_binary *image, char *file, size_t size)
{
    ignis__cache_header header;
    size_t body;
    if (size < sizeof header)
        return false;
    memcpy(&header, file, sizeof header);
    body = size - sizeof header;
    if (memcmp(header.magic, ignis__cache_magic, sizeof header.magic) != 0 || header.key[0] != image->key[0] ||
        header.key[1] != image->key[1] || header.lowered_size < 1 || header.lowered_size > body ||
        header.image_size != body - header.lowered_size ||
        header.checksum != ignis__hash(IGNIS__HASH_START, file + sizeof header, body) ||
        memchr(file + sizeof header, 0, (size_t)header.lowered_size) != file + sizeof header + header.lowered_size - 1)
        return false;
    file[size] = 0;
    image->lowered = file + sizeof header;
    image->data = file + sizeof header + header.lowered_size;
    image->size = (size_t)header.image_size;
    return ignis__kernel_binary_fault(image->data, image->size) == NULL;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_from_disk(const char *call, ignis__kernel_binary *image)
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
    ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_CACHE_IO, "%s: %s is damaged, and is compiled again", call, path);
    ignis__free(file);
    return false;
}

/*  A search for the oldest file of the cache, and the bytes of all files. */
typedef struct ignis__cache_scan {
    int64_t total, oldest_time, oldest_size;
    char oldest[1024];
} ignis__cache_scan;

/*  Checks whether a file of the folder belongs to the cache: an image (32 hexadecimal digits), an unfinished one, or
    nvrtc.txt. */
static bool ignis__cache_owns_file(const char *name)
{
    size_t length = strlen(name), digits = strspn(name, "0123456789abcdef"), part = strlen(".ignis-part");
    const char *behind = digits == 32 ? name + 32 : name;
    if (digits == 32 && strcmp(behind, ".ignis") == 0)
        return true;
    return (digits == 32 ? strncmp(behind, ".ignis.", 7) == 0 : strncmp(name, "nvrtc.txt.", 10) == 0) &&
           length > part && strcmp(name + length - part, ".ignis-part") == 0;
}

IGNIS__COLD static void ignis__cache_scan_file(void *context, const char *name)
{
    ignis__cache_scan *scan = (ignis__cache_scan *)context;
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s/%s", ignis__kernels_state.cache_dir, name);
    if (!ignis__cache_owns_file(name) || !ignis__file_info(path, &size, &time))
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

/*  Writes the version of the NVRTC that compiled these images, so that programs without NVRTC find them. */
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

IGNIS__COLD IGNIS__PRIVATE void ignis__kernel_binary_to_disk(const char *call, const ignis__kernel_binary *image)
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
    header.checksum =
        ignis__hash(ignis__hash(IGNIS__HASH_START, image->lowered, lowered_size), image->data, image->size);
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
