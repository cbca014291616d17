/*  kernel/bundle_check.c - the bundle and the record of ignis_setup; ignis_bundle_check

    Opens bundle and record from desc or environment, and compares a bundle with this program and the device.
    May use: bundle.c, record.c. Locks: the bundle's lock, one block at a time. */

#include "room.h"

IGNIS__PRIVATE void ignis__bundle_close(void)
{
    ignis__blocks_drop(&ignis__the_bundle);
    ignis__free(ignis__the_bundle.memory);
    memset(&ignis__the_bundle, 0, sizeof ignis__the_bundle);
    ignis__free(ignis__requests.lines);
    ignis__requests.lines = NULL;
    ignis__requests.count = ignis__requests.room = 0;
    ignis__requests.path[0] = 0;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__requests_setup(const char *call, const ignis_desc *desc)
{
    const char *env = ignis__env("IGNIS_RECORD"), *path = desc->record ? desc->record : env ? env : "";
    char line[32], why[160];
    ignis__requests.broken = false;
    if (strlen(path) >= sizeof ignis__requests.path)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "the path of the record is longer than %d bytes",
                                 (int)sizeof ignis__requests.path - 1);
    snprintf(ignis__requests.path, sizeof ignis__requests.path, "%s", path);
    snprintf(line, sizeof line, "ignis %d\n", IGNIS_VERSION);
    ignis__requests.from_environment = !desc->record;
    if (*path && !ignis__line_append(path, line, !desc->record, why, sizeof why))
        return ignis__fail_false(IGNIS_DIAG_BUNDLE_IO, call, "%s'%s' cannot be written: %s",
                                 desc->record ? "" : "IGNIS_RECORD: ", path, why);
    return true;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__bundle_setup(const char *call, const ignis_desc *desc)
{
    ignis__bundle *bundle = &ignis__the_bundle;
    const char *env = ignis__env("IGNIS_BUNDLE"), *path = desc->bundle        ? NULL
                                                          : desc->bundle_path ? desc->bundle_path
                                                                              : env;
    const void *data = desc->bundle;
    size_t size = desc->bundle_size;
    char why[300] = "";
    ignis__string_writer text;
    if (desc->bundle && desc->bundle_path)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.bundle and desc.bundle_path are both set; a program has one bundle");
    if (!data && (!path || !*path))
        return true;
    snprintf(bundle->from, sizeof bundle->from, "%s", data ? "ignis_desc.bundle" : path);
    if (!data &&
        (data = bundle->memory = ignis__file_read_as(path, &size, desc->bundle_path ? NULL : why, sizeof why)) == NULL)
        return *why ? ignis__fail_false(IGNIS_DIAG_BUNDLE_IO, call,
                                        "IGNIS_BUNDLE: '%s' is not used, as a bundle is a program: %s", path, why)
                    : ignis__fail_file(IGNIS_DIAG_BUNDLE_IO, call, path, "read") == IGNIS_OK;
    ignis__string_begin(&text, why, sizeof why);
    if (!ignis__bundle_open(bundle, data, size, &text))
        return ignis__fail_false(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s is damaged, or no bundle: %s", bundle->from, why);
    return true;
}

/*  Counts the programs of a bundle for a device, and lists those without an image for it. */
IGNIS__COLD IGNIS__PRIVATE void ignis__bundle_count(const ignis__bundle *bundle, int capability,
                                                    ignis_bundle_info *info, ignis__string_writer *missing)
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
                ignis__string_add(missing, "%s%s", info->missing == 1 ? "" : "; ", ignis__bundle_text(bundle, &entry));
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
    uint64_t sources, own_sources;
    char faults[700], missing[500];
    ignis__string_writer text, names;
    uint32_t i;
    if (!ignis__enter(call) || (device = ignis__device_get(call, ignis__thread_state()->device)) == NULL ||
        !ignis__device_read_facts(call, device))
        return ignis__failed();
    if (!bundle->data)
        return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call,
                           "no bundle is set: ignis_desc.bundle, ignis_desc.bundle_path and IGNIS_BUNDLE are empty");
    info = info ? info : &own;
    memset(info, 0, sizeof *info);
    info->version = (int)bundle->header.version;
    info->bytes = (int64_t)bundle->header.size;
    info->images = (int)bundle->header.count;
    ignis__string_begin(&names, info->architectures, sizeof info->architectures);
    ignis__bundle_archs(bundle, NULL, &names);
    ignis__string_begin(&names, missing, sizeof missing);
    capability = ignis__capability(&device->info);
    ignis__bundle_count(bundle, capability, info, &names);
    ignis__string_begin(&text, faults, sizeof faults);
    looked_at = *bundle;
    looked_at.blocks = NULL; /* blocks for other devices are not kept */
    for (i = 0; i < bundle->header.count && wrong != IGNIS_DIAG_HOST_MEMORY; i++) {
        ignis__bundle_entry entry = ignis__bundle_get(bundle, i);
        char why[256];
        ignis__string_writer reason;
        void *image = NULL;
        ignis__string_begin(&reason, why, sizeof why);
        wrong = ignis__bundle_unpack(&looked_at, &entry, &image, &reason);
        if (wrong == IGNIS_DIAG_HOST_MEMORY)
            ignis__fail_host_memory(call, (size_t)entry.whole);
        else if (wrong != IGNIS_DIAG_NONE && damaged++ < 2)
            ignis__string_add(&text, "%s%s for %d: %s", damaged == 1 ? " " : "; ", ignis__bundle_text(bundle, &entry),
                              (int)entry.arch, why);
    }
    ignis__blocks_drop(&looked_at);
    if (wrong == IGNIS_DIAG_HOST_MEMORY)
        return ignis__failed();
    if (damaged)
        return ignis__fail(IGNIS_DIAG_BUNDLE_FORMAT, call, "%s: %d of %d images are damaged:%s", bundle->from, damaged,
                           info->images, faults);
    if (info->version != IGNIS_VERSION)
        return ignis__fail(IGNIS_DIAG_BUNDLE_MISMATCH, call,
                           "%s was made by ignis_embed of version %d.%d.%d, this program has Ignis %d.%d.%d: its "
                           "built-in kernels differ",
                           bundle->from, info->version / 10000, info->version / 100 % 100, info->version % 100,
                           IGNIS_VERSION_MAJOR, IGNIS_VERSION_MINOR, IGNIS_VERSION_PATCH);
    own_sources = ignis__sources_hash();
    sources = bundle->header.sources &
              (own_sources >> 32 ? UINT64_MAX : UINT32_MAX); /* sources of missing tables are not used */
    if (sources != own_sources)
        return ignis__fail(
            IGNIS_DIAG_BUNDLE_MISMATCH, call,
            "%s was made with other kernels of Ignis: its sources have the hash %016llx, those of this program %016llx",
            bundle->from, (unsigned long long)sources, (unsigned long long)own_sources);
    if (info->missing)
        return ignis__fail(IGNIS_DIAG_KERNEL_MISSING, call,
                           "%s has %d of %d programs for compute capability %d.%d, which device %d has, and is for %s. "
                           "Make it with ignis_embed "
                           "--archs ...,%d. Missing: %s%s",
                           bundle->from, info->usable, info->usable + info->missing, capability / 10, capability % 10,
                           device->info.device, info->architectures, capability, missing,
                           info->missing > 4 ? "; and more" : "");
    return IGNIS_OK;
}
