/*  kernel/module.c - finds or makes images, and loads them as modules

    Order: the bundle, the memory cache, the disk cache, NVRTC. An image that the driver refuses is treated as a
    damaged file, and compiled.
    May use: compile.c, disk_cache.c, bundle.c, cache_key.c.
    Locks: the memory cache's lock; the lock of a key while it is compiled; none while the driver loads a module. */

#include "room.h"

IGNIS__PRIVATE void ignis__kernel_binary_drop(ignis__kernel_binary *image)
{
    if (!image || ignis__atomic_add(&image->holds, (uint64_t)-1) > 0)
        return;
    ignis__free(image->memory);
    ignis__free(image);
}

/*  Removes an image from the list of the memory cache, whose lock is held. NULL if it is not there. */
IGNIS__COLD static ignis__kernel_binary *ignis__kernel_binary_unlink(const uint64_t key[2])
{
    ignis__kernel_binary **link, *image;
    for (link = &ignis__kernels_state.images; *link; link = &(*link)->next)
        if ((*link)->key[0] == key[0] && (*link)->key[1] == key[1])
            break;
    image = *link;
    if (image)
        *link = image->next;
    return image;
}

/*  Holds and returns an image of the memory cache. NULL if it is not there. */
static ignis__kernel_binary *ignis__kernel_binary_find(const uint64_t key[2])
{
    ignis__kernel_binary *image;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    image = ignis__kernel_binary_unlink(key);
    if (image) {
        image->next = ignis__kernels_state.images;
        ignis__kernels_state.images = image;
        ignis__atomic_add(&image->holds, 1);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    return image;
}

/*  Puts an image into the memory cache, replacing one with its key; the least recently used images are dropped. */
IGNIS__COLD static void ignis__kernel_binary_keep(ignis__kernel_binary *image)
{
    ignis__kernel_binary **link = &ignis__kernels_state.images;
    size_t bytes = 0;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    ignis__kernel_binary_drop(ignis__kernel_binary_unlink(image->key));
    ignis__atomic_add(&image->holds, 1);
    image->next = *link;
    *link = image;
    while (*link && bytes + (*link)->size <= IGNIS__IMAGE_BYTES) {
        bytes += (*link)->size;
        link = &(*link)->next;
    }
    while (*link) {
        ignis__kernel_binary *old = *link;
        *link = old->next;
        ignis__kernel_binary_drop(old);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
}

/*  Holds and returns the image of a program: from memory, from disk, or compiled; always compiled if the caches are
    not trusted. NULL on failure. A thread that needs a program being compiled waits for it. The image is cached if
    its key is unchanged: an included file may have changed meanwhile. */
IGNIS__COLD static ignis__kernel_binary *ignis__kernel_binary_get(const char *call, ignis__device *device,
                                                                  const ignis__program *program, const uint64_t key[2],
                                                                  bool trust, bool *from_cache)
{
    ignis__mutex *compiling =
        &ignis__kernels_state.compiling[key[0] % (uint64_t)IGNIS__COUNT(ignis__kernels_state.compiling)];
    ignis__kernel_binary *image;
    uint64_t key_now[2];
    ignis__mutex_lock(compiling);
    image = trust ? ignis__kernel_binary_find(key) : NULL;
    *from_cache = image != NULL;
    if (!image) {
        image = (ignis__kernel_binary *)ignis__alloc_for(call, sizeof *image);
        if (image) {
            image->holds = 1;
            memcpy(image->key, key, sizeof image->key);
            *from_cache = trust && ignis__kernel_binary_from_disk(call, image);
        }
        if (image && *from_cache) {
            ignis__kernel_binary_keep(image);
        } else if (image && !ignis__program_compile(call, program, device, image)) {
            ignis__kernel_binary_drop(image);
            image = NULL;
        } else if (image && ignis__kernel_binary_key(program, device, ignis__compiler_release(call), key_now) &&
                   memcmp(key, key_now, sizeof key_now) == 0) {
            ignis__kernel_binary_to_disk(call, image);
            ignis__kernel_binary_keep(image);
        }
    }
    ignis__mutex_unlock(compiling);
    return image;
}

/*  Loads a module. False on failure: with *error of the driver, which the caller reports or handles; other failures
    are reported. */
IGNIS__COLD static bool ignis__module_load(const char *call, const ignis__kernel_binary *image, ignis__module *unit,
                                           int *error)
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

IGNIS__COLD IGNIS__PRIVATE void ignis__module_unload(ignis__module *unit)
{
    if (unit->module)
        (void)IGNIS__CUDA(cuModuleUnload, (unit->module));
    ignis__free(unit->lowered);
    memset(unit, 0, sizeof *unit);
}

/*  Unloads a module whose launches may still be queued, even if the device cannot be entered; after a fault it ends
    with the process. */
IGNIS__PRIVATE void ignis__module_unload_when_idle(const char *call, ignis__device *device, ignis__module *unit)
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

/*  Checks whether a driver's error means that an image does not suit the driver or the device. */
static bool ignis__kernel_binary_is_unsuitable(int error)
{
    return error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY || error == IGNIS__CU_INVALID_PTX ||
           error == IGNIS__CU_NO_JIT || error == IGNIS__CU_UNSUPPORTED_PTX;
}

/*  Loads a program from the bundle: the best image that the driver accepts. False with *failed if reported; else the
    program is not in it. */
IGNIS__COLD static bool ignis__module_from_bundle(const char *call, ignis__device *device,
                                                  const ignis__program *program, ignis__module *unit, bool *failed)
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
        ignis__kernel_binary image = IGNIS__ZERO;
        ignis_diagnostic wrong;
        char why[256];
        ignis__string_writer text;
        if (included != 0 && included != entry.included)
            continue; /* the files exist, but have changed */
        ignis__string_begin(&text, why, sizeof why);
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
        else if (error == 0 || !ignis__kernel_binary_is_unsuitable(error))
            *failed = error == 0 || ignis__cuda_fail(call, device, "cuModuleLoadData", error) != IGNIS_OK;
        else
            ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: the driver does not take %s for %d%s of %s: %s (%d)", call,
                       name, (int)entry.arch, entry.kind == 'p' ? " (PTX)" : "", bundle->from, ignis__cuda_name(error),
                       error);
        if (unit->module)
            return true;
    }
    return false;
}

/*  Loads the caller's image. */
IGNIS__COLD static bool ignis__module_from_image(const char *call, ignis__device *device, const ignis__program *program,
                                                 ignis__module *unit)
{
    ignis__kernel_binary image = IGNIS__ZERO;
    int error = 0;
    image.lowered = (char *)(uintptr_t)program->entry;
    image.data = (void *)(uintptr_t)program->image;
    unit->from_cache = true;
    if (ignis__module_load(call, &image, unit, &error))
        return true;
    if (error != 0 && ignis__kernel_binary_is_unsuitable(error))
        ignis__fail_because(IGNIS_DIAG_UNSUPPORTED, call, error, ignis__cuda_name(error), NULL,
                            "the driver does not take the image of kernel %s, %llu bytes with the hash %016llx, for "
                            "device %d of compute "
                            "capability %d.%d: %s (%d)",
                            program->entry, (unsigned long long)program->image_size,
                            (unsigned long long)ignis__hash(IGNIS__HASH_START, program->image, program->image_size),
                            device->info.device, device->info.compute_major, device->info.compute_minor,
                            ignis__cuda_name(error), error);
    else if (error != 0)
        ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    return false;
}

/*  Loads a program on an entered device. Loading may wait for the device, and the device for a kernel that waits for
    a launch of another thread on another device: no lock is held meanwhile. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__module_make(const char *call, ignis__device *device,
                                                   const ignis__program *program, ignis__module *unit)
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
    if (ignis__global.dry_run) /* nothing is compiled, but a missing program is reported */
        return (!ignis__compile_never || !ignis__the_bundle.data || program->image ||
                ignis__program_bundled(device, program) || ignis__program_missing(call, program, device)) &&
               !IGNIS__CUDA_FAILED(call, device, cuModuleLoadData, (&unit->module, NULL));
    if (ignis__module_from_bundle(call, device, program, unit, &again) || again)
        return unit->module != NULL;
    trust = ignis__kernel_binary_key(program, device, ignis__compiler_release(call), key);
    do {
        int error = 0;
        ignis__kernel_binary *image = ignis__kernel_binary_get(call, device, program, key, trust, &unit->from_cache);
        bool loaded = image && ignis__module_load(call, image, unit, &error);
        ignis__kernel_binary_drop(image);
        if (loaded)
            return true;
        /* the driver refuses an image of the cache: treat it as a damaged file */
        again = unit->from_cache && (error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY);
        trust = false;
        if (error != 0 && !again)
            ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    } while (again);
    return false;
}
