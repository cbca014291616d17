/*  kernel/compile.c - compiles a program with NVRTC

    Chooses the architecture, collects options and headers, and copies image and lowered names out of NVRTC.
    May use: program.c, >>loader. Locks: none; callers hold the lock of the key. */

#include "room.h"

IGNIS__COLD static ignis_status ignis__nvrtc_fail(const char *call, const char *function, int error)
{
    const char *name = ignis__nvrtc.nvrtcGetErrorString(error);
    return ignis__fail_because(error == IGNIS__NVRTC_OUT_OF_MEMORY ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_COMPILE_FAILED,
                               call, error, name, NULL, "%s failed with %s (%d)", function, name, error);
}

IGNIS__COLD static bool ignis__nvrtc_check(const char *call, const char *function, int error)
{
    return error == 0 || ignis__nvrtc_fail(call, function, error) == IGNIS_OK;
}
#define IGNIS__NVRTC_OK(call, name, args) ignis__nvrtc_check(call, #name, IGNIS__NVRTC(name, args))

/*  Chooses -arch for a device: its own machine code if this NVRTC knows the device, from 9.0 on with the
    architecture-specific instructions ("sm_90a"); else the newest older virtual architecture, which the driver
    translates. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch,
                                                   size_t size, bool *is_ptx)
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
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "device %d has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d and newer",
                                 device->info.device, device->info.compute_major, device->info.compute_minor,
                                 ignis__libraries[IGNIS_LIBRARY_NVRTC].version / 1000,
                                 ignis__libraries[IGNIS_LIBRARY_NVRTC].version % 1000 / 10, known[0] / 10,
                                 known[0] % 10);
    *is_ptx = best != wanted;
    snprintf(arch, size, "-arch=%s_%d%s", *is_ptx ? "compute" : "sm", best, !*is_ptx && best >= 90 ? "a" : "");
    return true;
}

/*  Collects the options that Ignis adds, unless the program has its own, and the program's. Returns their count. */
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

/*  Reports the log of a compilation: remarks as a warning, errors as the failure. */
IGNIS__COLD static ignis_status ignis__compile_log(const char *call, const ignis__program *program, const char *arch,
                                                   void *handle, int error)
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
            ignis__log_message(IGNIS_LOG_WARNING, IGNIS_DIAG_COMPILE_FAILED, log,
                               "%s: the compiler has remarks on %s:", call, program->name);
        ignis__free(log);
        return IGNIS_OK;
    }
    entry_missing = log && program->entry && strncmp(log, "__nv_name_map", 13) == 0;
    missing = log ? strstr(log, "open source file \"") : NULL;
    if (entry_missing)
        status = ignis__fail_because(IGNIS_DIAG_ENTRY_MISSING, call, error, ignis__nvrtc.nvrtcGetErrorString(error),
                                     log, "%s has no __global__ function (or not exactly one) that is called '%s'",
                                     program->name, program->entry);
    else if (missing) {
        missing = strchr(missing, '"') + 1;
        status = ignis__fail_because(
            IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
            "%s includes \"%.*s\", which is not found. %s; desc.headers gives headers from memory; \"ignis.cuh\" "
            "is always there, with int8_t to uint64_t, ignis_f16, ignis_bf16, 16-byte packs, warp and block reductions",
            program->name, (int)strcspn(missing, "\""), missing,
            ignis__has_include_path(program)
                ? "It is in no folder that desc.options name, nor beside desc.name"
                : "There is no include path: desc.options may give one, as in \"-I/usr/local/cuda/include\"");
    } else
        status = ignis__fail_because(IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error),
                                     log, "%s does not compile with %s", program->name, arch);
    ignis__free(log);
    return status;
}

/*  Returns the next name of a list with ; between names, and its length without surrounding blanks. NULL if there is
    none. */
IGNIS__COLD IGNIS__PRIVATE const char *ignis__entry_next(const char **list, size_t *length)
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

/*  Returns the index of a name in a list, -1 if it is not there. */
IGNIS__COLD IGNIS__PRIVATE int ignis__entry_index(const char *list, const char *wanted)
{
    size_t length;
    const char *name;
    int i;
    for (i = 0; (name = ignis__entry_next(&list, &length)) != NULL; i++)
        if (length == strlen(wanted) && memcmp(name, wanted, length) == 0)
            return i;
    return -1;
}

/*  Returns a name of a list by its index, in memory of ignis__alloc. NULL, and reported, if out of memory. */
IGNIS__COLD IGNIS__PRIVATE char *ignis__entry_copy(const char *call, const char *list, int index)
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

/*  Copies the lowered names, in the order of the entries, and the image of a compiled program out of NVRTC. */
IGNIS__COLD static bool ignis__kernel_binary_fetch(const char *call, const ignis__program *program, void *handle,
                                                   bool is_ptx, ignis__kernel_binary *image)
{
    const char *list, *lowered;
    size_t size = 1, length;
    bool ok = is_ptx ? IGNIS__NVRTC_OK(call, nvrtcGetPTXSize, (handle, &image->size))
                     : IGNIS__NVRTC_OK(call, nvrtcGetCUBINSize, (handle, &image->size));
    ignis__string_writer names;
    int round, i;
    for (round = 0; ok && round < 2; round++) { /* the first one measures */
        if (round == 1 && (image->memory = (char *)ignis__alloc_for(call, size + image->size)) == NULL)
            return false;
        ignis__string_begin(&names, image->memory, round == 1 ? size : 0);
        list = program->entry;
        for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
            char *entry = ignis__entry_copy(call, program->entry, i);
            ok = entry && IGNIS__NVRTC_OK(call, nvrtcGetLoweredName, (handle, entry, &lowered));
            if (ok)
                ignis__string_add(&names, "%s%s", i == 0 ? "" : ";", lowered);
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
    int own_count, count;        /* the texts of the first are Ignis' own copies */
    const char **names, **texts; /* in one block */
} ignis__headers;

/*  Returns the text after its byte order mark, which NVRTC does not skip. */
static const char *ignis__skip_byte_order_mark(const char *text)
{
    return strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text;
}

static void ignis__headers_free(ignis__headers *headers)
{
    while (headers->own_count > 0)
        ignis__free((void *)(uintptr_t)headers->texts[--headers->own_count]);
    ignis__free((void *)headers->names);
}

IGNIS__COLD static bool ignis__headers_gather(const char *call, const ignis__program *program, ignis__headers *headers)
{
    const ignis__source *header;
    size_t most = (size_t)program->header_count;
    bool ok;
    int i = 0;
    memset(headers, 0, sizeof *headers);
    while (ignis__header_next(program, &i) != NULL)
        most++;
    headers->names = (const char **)ignis__alloc(2 * most * sizeof *headers->names);
    headers->texts = headers->names + most;
    ok = headers->names != NULL;
    for (i = 0; ok && (header = ignis__header_next(program, &i)) != NULL; headers->own_count = ++headers->count) {
        char *text = ignis__source_join(header);
        ok = text != NULL;
        headers->names[headers->count] = header->name;
        headers->texts[headers->count] = text;
    }
    for (i = 0; ok && i < program->header_count; i++) {
        headers->names[headers->count] = program->headers[i].name;
        headers->texts[headers->count++] = ignis__skip_byte_order_mark(program->headers[i].text);
    }
    if (!ok) {
        ignis__headers_free(headers);
        ignis__fail_host_memory(call, 1);
    }
    return ok;
}

/*  Compiles a program; NVRTC is loaded. arch: an option of NVRTC. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__kernel_binary_compile(const char *call, const ignis__program *program,
                                                             const char *arch, bool is_ptx, ignis__kernel_binary *image)
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
                         (&handle, ignis__skip_byte_order_mark(program->source), program->name, headers.count,
                          headers.texts, headers.names));
    list = program->entry;
    for (i = 0; ok && ignis__entry_next(&list, &length) != NULL; i++) {
        char *entry = ignis__entry_copy(call, program->entry, i);
        ok = entry && IGNIS__NVRTC_OK(call, nvrtcAddNameExpression, (handle, entry));
        ignis__free(entry);
    }
    if (ok) {
        error = IGNIS__NVRTC(nvrtcCompileProgram, (handle, count, options));
        ok = ignis__compile_log(call, program, options[0], handle, error) == IGNIS_OK &&
             ignis__kernel_binary_fetch(call, program, handle, is_ptx, image);
    }
    if (handle)
        (void)IGNIS__NVRTC(nvrtcDestroyProgram, (&handle));
    ignis__headers_free(&headers);
    return ok;
}
