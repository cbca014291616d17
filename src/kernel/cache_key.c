/*  kernel/cache_key.c - the key of an image: a hash of everything that it depends on

    Source, options, headers, included files, compiler and architecture. If the dependencies cannot be determined,
    the image is not cached.
    May use: program.c, base/file_io.c, base/hash.c. Locks: none. */

#include "room.h"

IGNIS__COLD static void ignis__key_add_bytes(uint64_t key[2], const void *data, size_t size)
{
    key[0] = ignis__hash(key[0], data, size);
    key[1] = ignis__hash(key[1] * 3, data, size);
}

IGNIS__COLD static void ignis__key_add(uint64_t key[2], const char *text)
{
    ignis__key_add_bytes(key, text, strlen(text) + 1);
}

/*  NVRTC reads included files from the folders of the source, of the including file and of each -I, and does not tell
    which it read. So every file that an #include could mean becomes part of the key. One too many does no harm. */
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

/*  Removes "folder/../" and "./" from a path, so that headers which include each other are recognised under ever
    longer names. The result need not be the same file: the folder may be a link. */
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
IGNIS__COLD static void ignis__include_add(ignis__include_search *search, const char *folder, size_t folder_length,
                                           const char *name, size_t name_length)
{
    ignis__included *file;
    char path[sizeof file->path], tidy[sizeof file->tidy];
    bool slash = folder_length > 0 && folder[folder_length - 1] != '/' && folder[folder_length - 1] != '\\';
    int64_t size, time;
    int length =
        snprintf(path, sizeof path, "%.*s%s%.*s", (int)folder_length, folder, slash ? "/" : "", (int)name_length, name);
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

/*  Returns the value of an option: the folder of "-Ifolder", "-I=folder", "--include-path=folder", the file of
    "-include=file", or the string after such an option. "" for macros. Other options do no harm. */
static const char *ignis__option_value(const char *option)
{
    if (option[0] != '-')
        return option;
    if (option[1] == 'D' || option[1] == 'U')
        return "";
    option += option[1] == 'I' ? 2 : strcspn(option, "= ");
    return option + strspn(option, "= ");
}

IGNIS__PRIVATE bool ignis__header_is_known(const ignis__program *program, const char *name, size_t length)
{
    const ignis__source *header;
    int i = 0;
    while ((header = ignis__header_next(program, &i)) != NULL)
        if (strlen(header->name) == length && memcmp(header->name, name, length) == 0)
            return true;
    for (i = 0; i < program->header_count; i++)
        if (strlen(program->headers[i].name) == length && memcmp(program->headers[i].name, name, length) == 0)
            return true;
    return false;
}

/*  Lists the files that an #include of a name in a file could mean: none if a header in memory has that name. */
IGNIS__COLD static void ignis__include_find(ignis__include_search *search, const char *includer, const char *name,
                                            size_t length)
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

/*  Checks whether a word of a text continues in the next line, after a backslash. */
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

/*  Finds each #include and __has_include of a text, also those in conditions or comments. */
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
        else if (asks ? memchr(behind, '(', (size_t)(at - behind)) != NULL
                      : before > text && (before[-1] == '#' ||
                                          (before - 2 >= text && strchr("%*", before[-2]) && strchr(":/", before[-1]))))
            search->complete = false; /* its name is a macro, in the next line, or after a comment */
    }
}

/*  Adds all files that a program may include, and their paths, to a key. False if they cannot be determined. */
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

/*  Adds everything that identifies a program, apart from compiler, device and included files. */
IGNIS__COLD IGNIS__PRIVATE void ignis__program_key(const ignis__program *program, uint64_t key[2])
{
    const ignis__source *header;
    char facts[256];
    int i = 0;
    key[0] = IGNIS__HASH_START;
    key[1] = ~IGNIS__HASH_START;
    snprintf(facts, sizeof facts, "%d options, %d headers", program->option_count, program->header_count);
    ignis__key_add(key, facts);
    while ((header = ignis__header_next(program, &i)) != NULL) {
        snprintf(facts, sizeof facts, "%016llx", (unsigned long long)header->hash);
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

/*  Returns a hash of the files that a program includes; 0 if there are none. */
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__program_included(const ignis__program *program)
{
    uint64_t key[2] = {0, 0};
    (void)ignis__key_add_included(program, key, false);
    return key[0];
}

IGNIS__PRIVATE bool ignis__compile_never; /* ignis_desc.compile */

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__nvrtc_available(const char *call)
{
    return ignis__library_available(call, IGNIS_LIBRARY_NVRTC, "Kernels come from the bundle and from the cache alone");
}

/*  Returns the exact version of NVRTC; without NVRTC, that of the one that last wrote to the kernel cache; 0 if there
    was none. */
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__compiler_release(const char *call)
{
    struct ignis__loaded *nvrtc = &ignis__libraries[IGNIS_LIBRARY_NVRTC];
    char path[1024], why[160] = "", *text;
    uint64_t release;
    size_t size = 0;
    if (!ignis__compile_never && (ignis__atomic_load(&nvrtc->loaded) || ignis__nvrtc_available(call)))
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

/*  Computes the key of an image from everything that it depends on. False if that cannot be determined: then the
    image must not be cached. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_key(const ignis__program *program, const ignis__device *device,
                                                         uint64_t release, uint64_t key[2])
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
