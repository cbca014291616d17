// SPDX-License-Identifier: MIT
/*  init.c - cuInit and its settings, fork, names of errors, addresses of functions

    A setting that is malformed makes cuInit fail. The child of a fork must not use the simulator if the
    parent has.
*/
#include "driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <strings.h>
#include <sys/random.h>

static int read_size(const char *text, size_t *out)
{
    char *end;
    double value = strtod(text, &end);
    if (*end == 'K' || *end == 'k')
        value *= 1024, end++;
    else if (*end == 'M' || *end == 'm')
        value *= 1024 * 1024, end++;
    else if (*end == 'G' || *end == 'g')
        value *= 1024.0 * 1024 * 1024, end++;
    *out = value > 0 ? (size_t)value : 0;
    return !*end && value >= 1;
}

static int read_cc(const char *text, int *out)
{
    int major = 0, minor = 0;
    char rest;
    if (sscanf(text, "%d.%d%c", &major, &minor, &rest) == 2)
        *out = major * 10 + minor;
    else if (sscanf(text, "%d%c", &major, &rest) == 1)
        *out = major;
    else
        return 0;
    return *out >= 50 && *out < 200;
}

static int read_devices(const char *text, int *out)
{
    char rest;
    return sscanf(text, "%d%c", out, &rest) == 1 && *out >= 0 && *out <= MAX_DEVICES;
}

static int read_streams(const char *text, int *out)
{
    for (int i = 0; i < STREAMS_COUNT; i++)
        if (!strcmp(text, stream_modes[i]))
            return *out = i, 1;
    return 0;
}

/* Reads a number. -1 if malformed. */
static int read_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    return *end || end == text || number < 0 || number > INT_MAX ? -1 : (int)number;
}

static int read_delay(const char *text)
{
    char rest;
    return sscanf(text, "%d%c", &sim.delay, &rest) == 1 && sim.delay >= 0 && sim.delay < 1000000;
}

static int read_peers(const char *text)
{
    int a, b, length = 0;
    int all = !strcmp(text, "all") || !strcmp(text, "1");
    for (int i = 0; i < MAX_DEVICES; i++)
        sim.reach[i] = all ? (1u << MAX_DEVICES) - 1 : 0;
    if (all || !strcmp(text, "0"))
        return 1;
    for (; sscanf(text, "%d-%d%n", &a, &b, &length) == 2; text += length + 1) {
        if (a < 0 || b < 0 || a >= MAX_DEVICES || b >= MAX_DEVICES)
            return 0;
        sim.reach[a] |= 1u << b;
        sim.reach[b] |= 1u << a;
        if (text[length] != ',')
            return !text[length];
    }
    return 0;
}

/* Returns the number of the device whose UUID begins with the text; -1 if there is none. */
static int device_by_uuid(const char *text, size_t length, int machine_count)
{
    for (int number = 0; number < machine_count; number++) {
        unsigned char uuid[16];
        char name[48];
        size_t used = (size_t)snprintf(name, sizeof name, "GPU-");
        uuid_of(number, uuid);
        for (int i = 0; i < 16; i++)
            used += (size_t)snprintf(name + used, sizeof name - used,
                                     i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
        if (length > 4 && length <= used && !strncasecmp(name, text, length))
            return number;
    }
    return -1;
}

/* Reads the visible devices. The list ends at the first entry that is not a device; a device listed twice
   makes it empty. */
static void read_visible(const char *text)
{
    int machine_count = sim.device_count, count = 0;
    unsigned seen = 0;
    for (int i = 0; i < machine_count; i++)
        sim.contexts[i].number = i;
    if (!text)
        return;
    while (count < machine_count) {
        size_t length = strcspn(text, ",");
        char *end;
        long number = strtol(text, &end, 10);
        if (end == text || end != text + length)
            number = device_by_uuid(text, length, machine_count);
        if (number < 0 || number >= machine_count)
            break;
        if (seen >> number & 1) {
            count = 0;
            break;
        }
        seen |= 1u << number;
        sim.contexts[count++].number = (int)number;
        if (!text[length])
            break;
        text += length + 1;
    }
    sim.device_count = count;
}

const char *knob(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

/* Fails if a setting was not understood: a misspelt one must not pass for the default. */
static int setting(const char *name, int understood)
{
    if (!understood)
        say("%s=%s is not understood", name, getenv(name));
    return understood;
}

static int read_settings(void)
{
    return setting("IGNIS_SIM_DEVICES", read_devices(knob("IGNIS_SIM_DEVICES", "2"), &sim.device_count)) &&
           setting("IGNIS_SIM_CC", read_cc(knob("IGNIS_SIM_CC", "90"), &sim.cc)) &&
           setting("IGNIS_SIM_MEMORY", read_size(knob("IGNIS_SIM_MEMORY", "2G"), &sim.memory)) &&
           setting("IGNIS_SIM_STREAMS", read_streams(knob("IGNIS_SIM_STREAMS", "eager"), &sim.streams)) &&
           setting("IGNIS_SIM_DELAY", read_delay(knob("IGNIS_SIM_DELAY", "0"))) &&
           setting("IGNIS_SIM_PATIENCE", (sim.patience = read_number(knob("IGNIS_SIM_PATIENCE", "10000"))) > 0) &&
           setting("IGNIS_SIM_PEER", read_peers(knob("IGNIS_SIM_PEER", "all"))) &&
           (sim.rule_count || setting("IGNIS_SIM_FAIL", set_rules(getenv("IGNIS_SIM_FAIL"))));
}

static void introduce(void)
{
    static const char *const shown[] = {"IGNIS_SIM_STREAMS", "IGNIS_SIM_DELAY", "IGNIS_SIM_FAIL"};
    char lane[256] = "";
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *value = knob(shown[i], NULL);
        size_t used = strlen(lane);
        if (value)
            snprintf(lane + used, sizeof lane - used, ", %s=%s", shown[i], value);
    }
    say("%d simulated GPU(s) on the CPU, no real device: sm_%d, %zu MiB each%s", sim.device_count, sim.cc,
        sim.memory >> 20, lane);
}

static void fork_prepare(void) { pthread_mutex_lock(&sim.lock); }
static void fork_parent(void) { pthread_mutex_unlock(&sim.lock); }

/* Marks the child of a fork. Workers of streams and locks of other threads do not survive a fork; nor does
   the real driver. */
static void fork_child(void)
{
    atomic_store(&sim.forked, 1);
    pthread_mutex_unlock(&sim.lock);
}

static void report_leaks(void)
{
    static const char *const watched[] = {"context", "malloc",      "bytes",    "hostalloc", "stream",
                                          "event",   "module",      "graph",    "handle",    "import",
                                          "mapping", "reservation", "external", "timeline",  "resource"};
    if (atomic_load(&sim.forked))
        return;
    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        if (live_count(watched[i]))
            say("at exit, still alive: %ld %s", live_count(watched[i]), watched[i]);
    pthread_mutex_unlock(&sim.lock);
}

SIM_API CUresult cuInit(unsigned int flags)
{
    BEGIN(cuInit);
    REQUIRE(!flags, ERROR_INVALID_VALUE);
    if (sim.ready)
        return leave(sim.device_count ? SUCCESS : ERROR_NO_DEVICE);
    REQUIRE(read_settings(), ERROR_INVALID_VALUE);
    read_visible(getenv("CUDA_VISIBLE_DEVICES"));
    for (int i = 0; i < sim.device_count; i++)
        sim.contexts[i].device = i;
    *(void **)&sim.poison = dlsym(RTLD_DEFAULT, "__asan_poison_memory_region");
    *(void **)&sim.unpoison = dlsym(RTLD_DEFAULT, "__asan_unpoison_memory_region");
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    if (!strcmp(knob("IGNIS_SIM_LEAKS", "0"), "1"))
        atexit(report_leaks);
    introduce();
    if (getrandom(&sim.process, sizeof sim.process, 0) != sizeof sim.process)
        sim.process = (uint64_t)now() << 20 ^ (uint64_t)getpid();
    sim.ready = 1;
    return leave(sim.device_count ? SUCCESS : ERROR_NO_DEVICE);
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return (CUresult)ERROR_INVALID_VALUE;
    *version = 13000;
    return (CUresult)SUCCESS;
}

SIM_API CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (!text)
        return (CUresult)ERROR_INVALID_VALUE;
    *text = code_name((int)error);
    return (CUresult)(*text ? SUCCESS : ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return (CUresult)ERROR_INVALID_VALUE;
    *text = code_sentence((int)error);
    return (CUresult)(*text ? SUCCESS : ERROR_INVALID_VALUE);
}

/* >>symbols */

/* Declares every function under a name of this file: its prototype is in the file that defines it. */
#define X(name, kind, needs) extern const char address_of_##name[] __asm__(#name);
SIM_FUNCTIONS(X)
#undef X

static void *function_address(const char *name, size_t length, const char *suffix)
{
    static const struct {
        const char *name;
        void *address;
    } table[] = {
#define X(name, kind, needs) {#name, (void *)address_of_##name},
        SIM_FUNCTIONS(X)
#undef X
            {"cuDriverGetVersion", (void *)cuDriverGetVersion},
        {"cuGetErrorName", (void *)cuGetErrorName},
        {"cuGetErrorString", (void *)cuGetErrorString}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strncmp(table[i].name, name, length) && !strcmp(table[i].name + length, suffix))
            return table[i].address;
    return NULL;
}

/* As the real one it takes base names; it returns the newest version. */
SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    (void)version, (void)flags;
    if (!symbol || !out)
        return (CUresult)ERROR_INVALID_VALUE;
    *out = !strcmp(symbol, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !*out; i++)
        *out = function_address(symbol, strlen(symbol), suffixes[i]);
    if (status)
        *status = *out ? 0 : 1;
    return (CUresult)(*out || status ? SUCCESS : ERROR_NOT_FOUND);
}
