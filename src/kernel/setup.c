/*  kernel/setup.c - opens and closes the kernel section

    Reads desc and environment: the cache folder and its limit. Closing unloads built-in kernels and frees the
    memory cache.
    May use: all parts of the section. Locks: none, ignis_setup and ignis_shutdown alone call it. */

#include "room.h"

IGNIS__COLD IGNIS__PRIVATE void ignis__kernels_setup(const char *call, const ignis_desc *desc)
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
    else if (ignis__env("XDG_CACHE_HOME") && *ignis__env("XDG_CACHE_HOME") &&
             strlen(ignis__env("XDG_CACHE_HOME")) + 16 < size)
        snprintf(dir, size, "%s/ignis", ignis__env("XDG_CACHE_HOME"));
    else if (ignis__env("HOME") && *ignis__env("HOME") && strlen(ignis__env("HOME")) + 16 < size)
        snprintf(dir, size, "%s/.cache/ignis", ignis__env("HOME"));
#endif
    if (dir[0] && !ignis__path_is_private(dir, why, sizeof why)) {
        ignis__cache_warn(call, "use the folder", dir, why);
        dir[0] = 0;
    }
}

/*  Unloads the built-in kernels from a device; its context is current. */
IGNIS__COLD IGNIS__PRIVATE void ignis__builtins_close(ignis__device *device)
{
    ignis__kernel_table *table;
    int i, k;
    for (i = 0; (table = ignis__kernel_table_at(i)) != NULL; i++) {
        uint64_t *place = &table->code[device - ignis__devices];
        ignis__builtin_code *code = (ignis__builtin_code *)(uintptr_t)*place;
        for (k = 0; code && k < table->source_count * IGNIS_DTYPE_COUNT; k++)
            ignis__module_unload(&code->modules[k]);
        ignis__free(code);
        *place = 0;
    }
    while (ignis__variants.first[device - ignis__devices]) {
        ignis__variant *variant = ignis__variants.first[device - ignis__devices];
        ignis__variants.first[device - ignis__devices] = variant->next;
        ignis__module_unload(&variant->module);
        ignis__free(variant);
    }
}

IGNIS__PRIVATE void ignis__kernel_binaries_close(void)
{
    while (ignis__kernels_state.images) {
        ignis__kernel_binary *image = ignis__kernels_state.images;
        ignis__kernels_state.images = image->next;
        ignis__kernel_binary_drop(image);
    }
}
