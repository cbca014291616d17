/* ===============================================================================================================
   >>pool - handles. A slot counts how often it was used; a handle carries the count it was given.
   =============================================================================================================== */

/*  What private functions that give something up are called, here and in all sections:
        drop       one hold less (the opposite of hold); the last one of a dead item takes it apart
        unclaim    one reference less of an array (the opposite of claim), which may be its last
        give       back to those that are kept for the next who takes one (the opposite of take): slots, blocks, events
        unuse      of a block of memory that becomes free (the opposite of use)
        destroy    takes apart what nobody uses any more
        discard    of what was made by a call that failed then
        free       of host memory, as in ignis__free; public: of a handle, which is stale from then on (kill)
        unload     of a library or a module
        forget     of something that is not Ignis' own and is about to go, such as a stream of the caller
        close      of all that a section has, at ignis_shutdown */

/*  Who holds a lock takes only those that stand further right in a line, so that no two threads wait for each other:
        ignis__setup_lock     all others
        an optimizer's slot   a tensor's slot; those of memory and streams
        a model's engine      a model's slot
        a model's slot        planning, compiling
        planning, compiling   the loader's, the kernel caches', those of memory and streams
        ignis__audits         an array's slot, ignis__tracking
        ignis__tapes          a tape
        memory and streams    ignis__storages, a storage, a device
                              a fence, a device
                              an OpenGL buffer, an array's slot, a storage, a device
                              asking or trimming of a cache, the cache, a device
                              trimming of a cache, a stream of the caller, a device
                              an event of the caller, a stream of the caller, a device
    Behind a device's, a pool's, ignis__captures, ignis__callbacks, ignis__measurements and those of the kernel caches nothing is locked.
    Nobody waits for the device holding one that a launch needs: what runs there may wait for that launch. The logger is called with locks
    held, so it must not call Ignis. */

/*  handle: generation (32 bits) | kind (5 bits) | slot (27 bits). A slot's state: generation (32 bits) | holds (32 bits).
    An odd generation is live. The handle itself is one hold; a call that uses the item takes another, so an item is only taken
    apart when nobody is inside it. Slots are never freed and a generation never comes back (a slot that has used up its
    generations is not used again), which is why a stale handle is recognised for ever. */
typedef enum ignis__kind {
    IGNIS__KIND_ARRAY = 1,
    IGNIS__KIND_KERNEL,
    IGNIS__KIND_TENSOR,
    IGNIS__KIND_OPTIMIZER,
    IGNIS__KIND_GRAPH,
    IGNIS__KIND_EVENT,
    IGNIS__KIND_TICKET,
    IGNIS__KIND_FENCE,
    IGNIS__KIND_GL_BUFFER,
    IGNIS__KIND_VMM, /* from here on those of ignis_collective.h */
    IGNIS__KIND_RANGE,
    IGNIS__KIND_CHANNEL,
    IGNIS__KIND_TRANSPORT,
    IGNIS__KIND_COMM,
    IGNIS__KIND_PARALLEL,
    IGNIS__KIND_TOKENIZER, /* from here on those of IGNIS_MODELS */
    IGNIS__KIND_MODEL,
    IGNIS__KIND_SEQUENCE,
    IGNIS__KIND_LORA,
    IGNIS__KIND_COUNT,
    IGNIS__KIND_VALUE = 31 /* no handle of a pool: a number among the inputs of a formula */
} ignis__kind;

#define IGNIS__SLOT_BITS 27
#define IGNIS__SLOT_MASK (((uint64_t)1 << IGNIS__SLOT_BITS) - 1)

static uint64_t ignis__handle_kind(uint64_t handle) { return handle >> IGNIS__SLOT_BITS & 31; }

typedef struct ignis__slot {
    uint64_t state;
    uint64_t handle;   /* while live */
    ignis__mutex lock; /* for the item's own fields */
    struct ignis__slot *next_free;
    uint32_t index;
} ignis__slot;

/*  What an item was that is freed by now, so that messages about its stale handle can name it. It stays until the slot's next item is freed. */
typedef struct ignis__former {
    uint64_t handle, id;
    char name[32];
} ignis__former;

#define IGNIS__POOL_FIRST_PAGE 64u
#define IGNIS__POOL_PAGES 21 /* page k holds 64 << k items: 2^27 in all, but for 64 */

typedef struct ignis__pool {
    size_t item_size; /* items begin with an ignis__slot */
    ignis__kind kind;
    const char *what;       /* an item is, in messages */
    ignis_diagnostic freed; /* of a stale handle */
    size_t former;          /* where an item keeps its ignis__former; 0: it has none */
    ignis__mutex lock;
    uint64_t count; /* slots ever made */
    char *pages[IGNIS__POOL_PAGES];
    ignis__slot *free;
    struct ignis__pool *next;
} ignis__pool;

static uint64_t ignis__pools; /* a list of those with pages: the address of the first */

#define IGNIS__POOL(item, kind, what, freed) IGNIS__POOL_NAMED(item, kind, what, freed, 0)
#define IGNIS__POOL_NAMED(item, kind, what, freed, former)                             \
    {                                                                                  \
        sizeof(item), kind, what, freed, former, IGNIS__MUTEX_INIT, 0, {0}, NULL, NULL \
    }

static ignis__slot *ignis__pool_slot(const ignis__pool *pool, uint64_t index)
{
    uint64_t shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    return (ignis__slot *)(void *)(pool->pages[page] + (shifted - ((uint64_t)IGNIS__POOL_FIRST_PAGE << page)) * pool->item_size);
}

/*  Slots come from malloc and stay: they outlive ignis_shutdown, and with it the user's allocator. They go when a library is unloaded. */
IGNIS__COLD static ignis__slot *ignis__pool_grow(ignis__pool *pool)
{
    uint64_t index = pool->count, shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    ignis__slot *slot;
    if (page >= IGNIS__POOL_PAGES)
        return NULL;
    if (!pool->pages[page]) {
        pool->pages[page] = (char *)calloc(IGNIS__POOL_FIRST_PAGE << page, pool->item_size);
        if (!pool->pages[page])
            return NULL;
        if (page == 0) {
            uint64_t first = ignis__atomic_load(&ignis__pools);
            do
                pool->next = (ignis__pool *)(uintptr_t)first;
            while (!ignis__atomic_swap_if(&ignis__pools, &first, (uint64_t)(uintptr_t)pool));
        }
    }
    slot = ignis__pool_slot(pool, index);
    slot->index = (uint32_t)index;
    ignis__mutex_init(&slot->lock);
    ignis__atomic_store(&pool->count, index + 1);
    return slot;
}

/*  Frees all slots, when nobody can ask for a handle any more. */
IGNIS__COLD static void ignis__pools_free(void)
{
    ignis__pool *pool = (ignis__pool *)(uintptr_t)ignis__atomic_load(&ignis__pools);
    int page;
    for (; pool; pool = pool->next) {
        for (page = 0; page < IGNIS__POOL_PAGES; page++) {
            free(pool->pages[page]);
            pool->pages[page] = NULL;
        }
        ignis__atomic_store(&pool->count, 0);
        pool->free = NULL;
    }
    ignis__atomic_store(&ignis__pools, 0);
}

/*  A slot that nobody else can see yet; fill the item, then ignis__pool_publish it. Null, and reported: out of memory. */
static void *ignis__pool_take(const char *call, ignis__pool *pool)
{
    ignis__slot *slot;
    ignis__mutex_lock(&pool->lock);
    slot = pool->free;
    if (slot)
        pool->free = slot->next_free;
    else
        slot = ignis__pool_grow(pool);
    ignis__mutex_unlock(&pool->lock);
    if (!slot)
        ignis__fail_host_memory(call, pool->item_size);
    return slot;
}

/*  The same, with zeros behind the slot, up to what the item keeps of its former one. */
static void *ignis__pool_take_zeroed(const char *call, ignis__pool *pool)
{
    char *item = (char *)ignis__pool_take(call, pool);
    if (item)
        memset(item + sizeof(ignis__slot), 0, (pool->former ? pool->former : pool->item_size) - sizeof(ignis__slot));
    return item;
}

/*  Fills an item that was taken with all of another one but its slot, which others look at in one that is not live, too. */
IGNIS__MAYBE_UNUSED static void ignis__pool_fill(const ignis__pool *pool, void *item, const void *from)
{
    memcpy((char *)item + sizeof(ignis__slot), (const char *)from + sizeof(ignis__slot), pool->item_size - sizeof(ignis__slot));
}

/*  Gives the item a handle, by which others see it, and as many holds. */
static uint64_t ignis__pool_publish_held(ignis__pool *pool, void *item, int holds)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t generation = (ignis__atomic_load(&slot->state) >> 32) + 1;
    uint64_t handle = generation << 32 | (uint64_t)pool->kind << IGNIS__SLOT_BITS | slot->index;
    slot->handle = handle;
    ignis__atomic_store(&slot->state, generation << 32 | (uint64_t)holds); /* from here on it is everybody's, and may be another's */
    return handle;
}

static uint64_t ignis__pool_publish(ignis__pool *pool, void *item) { return ignis__pool_publish_held(pool, item, 1); }

/*  Makes the slot free for others; the item is taken apart already. */
IGNIS__ONE_COPY static void ignis__pool_give(ignis__pool *pool, void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    if (ignis__atomic_load(&slot->state) >> 32 >= 0xFFFFFFFEu)
        return;
    ignis__mutex_lock(&pool->lock);
    slot->next_free = pool->free;
    pool->free = slot;
    ignis__mutex_unlock(&pool->lock);
}

/*  The item of a slot, held, if it is live and of that generation; any generation will do for 0. */
static inline void *ignis__pool_hold_slot(ignis__pool *pool, uint64_t index, uint64_t generation)
{
    ignis__slot *slot = ignis__pool_slot(pool, index);
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state >> 32 & 1) || (generation && state >> 32 != generation))
            return NULL;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return slot;
}

/*  The item of a live handle, held; null when the handle is stale or was never given out. */
static void *ignis__pool_hold(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    if (ignis__handle_kind(handle) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count) || handle >> 32 == 0)
        return NULL;
    return ignis__pool_hold_slot(pool, index, handle >> 32);
}

/*  The next live item from a slot on, held; null: there is none. Begin with index 0. */
static void *ignis__pool_next(ignis__pool *pool, uint64_t *index)
{
    void *item = NULL;
    while (!item && *index < ignis__atomic_load(&pool->count))
        item = ignis__pool_hold_slot(pool, (*index)++, 0);
    return item;
}

/*  One more hold of an item that others hold; false: the last one was just given back, and the item is being taken apart. */
IGNIS__MAYBE_UNUSED static bool ignis__pool_hold_more(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state & 0xFFFFFFFFu))
            return false;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return true;
}

/*  Gives a hold back. True: it was the last one of a dead item, which the caller now takes apart. */
static bool ignis__pool_drop(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_add(&slot->state, (uint64_t)-1);
    return (state & 0xFFFFFFFFu) == 0 && !(state >> 32 & 1);
}

/*  Whether a held item is still live; ask with its lock taken, under which it dies. */
static bool ignis__pool_live(const void *item) { return ignis__atomic_load(&((const ignis__slot *)item)->state) >> 32 & 1; }

/*  Makes the handles of a live, held and locked item stale. The handle's own hold remains to be dropped. */
static void ignis__pool_kill(void *item) { ignis__atomic_add(&((ignis__slot *)item)->state, (uint64_t)1 << 32); }

/*  "array #7 'weights'": what messages call an item; 0 for no id, "" for no name. */
typedef struct ignis__label {
    char text[80];
} ignis__label;

IGNIS__COLD static ignis__label ignis__label_write(const char *what, uint64_t id, const char *name)
{
    ignis__label out;
    ignis__text text;
    ignis__text_begin(&text, out.text, sizeof out.text);
    ignis__text_add(&text, "%s", what);
    if (id)
        ignis__text_add(&text, " #%llu", (unsigned long long)id);
    if (*name)
        ignis__text_add(&text, " '%s'", name);
    return out;
}

/*  Writes down what an item is that is about to die; it is locked. */
static void ignis__former_write(ignis__former *former, const ignis__slot *slot, uint64_t id, const char *name)
{
    size_t length = strlen(name);
    former->handle = slot->handle;
    former->id = id;
    length = length < sizeof former->name ? length : sizeof former->name - 1;
    memcpy(former->name, name, length);
    former->name[length] = 0;
}

/*  "array #7 'weights', freed" for a stale handle; "" where that is forgotten, or was never there. */
IGNIS__COLD static ignis__label ignis__label_stale(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    ignis__former former = IGNIS__ZERO;
    ignis__label out = IGNIS__ZERO;
    ignis__text text;
    ignis__slot *slot;
    if (!handle || !pool->former || ignis__handle_kind(handle) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count))
        return out;
    slot = ignis__pool_slot(pool, index);
    ignis__mutex_lock(&slot->lock);
    memcpy(&former, (const char *)slot + pool->former, sizeof former);
    ignis__mutex_unlock(&slot->lock);
    ignis__text_begin(&text, out.text, sizeof out.text);
    if (former.handle == handle)
        ignis__text_add(&text, "%s, freed", ignis__label_write(pool->what, former.id, former.name).text);
    return out;
}

IGNIS__COLD static void ignis__fail_stale(const char *call, ignis__pool *pool, uint64_t handle)
{
    uint64_t kind = ignis__handle_kind(handle);
    ignis__label label = ignis__label_stale(pool, handle);
    if (kind != (uint64_t)pool->kind && kind >= IGNIS__KIND_ARRAY && kind < IGNIS__KIND_COUNT)
        ignis__fail(IGNIS_DIAG_WRONG_KIND, call, "%s handle 0x%llx is the handle of something else", pool->what,
                    (unsigned long long)handle);
    else if (*label.text)
        ignis__fail(pool->freed, call, "%s (handle 0x%llx)", label.text, (unsigned long long)handle);
    else if (handle)
        ignis__fail(pool->freed, call, "%s handle 0x%llx was freed, or never existed", pool->what, (unsigned long long)handle);
    /* 0 is what a failed call returned: the first error says why */
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(pool->freed, call, "%s handle is 0: no %s was created", pool->what, pool->what);
    else
        ignis__this_thread.latest = ignis__diagnostics[pool->freed].status;
}

/*  The item of a handle, held, for a public call; null, and reported, when there is none. */
IGNIS__ONE_COPY static void *ignis__handle_hold(const char *call, ignis__pool *pool, uint64_t handle)
{
    void *item = NULL;
    if (ignis__enter(call) && (item = ignis__pool_hold(pool, handle)) == NULL)
        ignis__fail_stale(call, pool, handle);
    return item;
}

/*  Makes the handle of a held item stale, once; false: another thread has. The caller's hold remains. */
static bool ignis__handle_kill(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    bool live;
    ignis__mutex_lock(&slot->lock);
    live = ignis__pool_live(item);
    if (live) {
        ignis__pool_kill(item);
        ignis__pool_drop(item); /* the handle's own hold */
    }
    ignis__mutex_unlock(&slot->lock);
    return live;
}

/*  What is alive at ignis_shutdown is reported, a line each, and counted beyond this many. */
#define IGNIS__LEAKS_SHOWN 20
static int ignis__leaks; /* reported by the ignis_shutdown that is under way */

IGNIS__PRINTF(3, 4)
IGNIS__COLD static void ignis__leak_report(const char *call, ignis_diagnostic diagnostic, const char *format, ...)
{
    char line[512];
    va_list args;
    if (ignis__leaks++ >= IGNIS__LEAKS_SHOWN)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ignis__note(IGNIS_LOG_WARNING, diagnostic, "%s: still alive: %s", call, line);
}

/* ===============================================================================================================
   >>device - contexts, device facts, what a thread uses.
   =============================================================================================================== */

/*  Numbers of the driver's enumerations. */
enum {
    IGNIS__CU_INVALID_VALUE = 1,
    IGNIS__CU_OUT_OF_MEMORY = 2,
    IGNIS__CU_NO_DEVICE = 100,
    IGNIS__CU_INVALID_IMAGE = 200,
    IGNIS__CU_INVALID_PTX = 218,
    IGNIS__CU_NO_JIT = 221,
    IGNIS__CU_UNSUPPORTED_PTX = 222,
    IGNIS__CU_NO_BINARY = 209,
    IGNIS__CU_ATTRIBUTE_MAX_THREADS = 1,
    IGNIS__CU_ATTRIBUTE_WARP_SIZE = 10,
    IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    IGNIS__CU_ATTRIBUTE_CLOCK = 13,        /* kHz, the highest */
    IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    IGNIS__CU_ATTRIBUTE_MEMORY_BITS = 37,
    IGNIS__CU_ATTRIBUTE_L2_BYTES = 38,
    IGNIS__CU_ATTRIBUTE_MAJOR = 75,
    IGNIS__CU_ATTRIBUTE_MINOR = 76,
    IGNIS__CU_ATTRIBUTE_SHARED_OPTIN = 97,
    IGNIS__CU_ATTRIBUTE_CLUSTERS = 120,
    IGNIS__CU_STREAM_DEFAULT = 0, /* a blocking stream: ordered with the legacy default stream */
    IGNIS__CU_STREAM_NON_BLOCKING = 1,
    IGNIS__CU_STREAM_LEGACY = 1, /* handles of streams, these two */
    IGNIS__CU_STREAM_PER_THREAD = 2,
    IGNIS__CU_EVENT_DEFAULT = 0,
    IGNIS__CU_EVENT_DISABLE_TIMING = 2,
    IGNIS__CU_POINTER_MEMORY_TYPE = 2,
    IGNIS__CU_POINTER_ORDINAL = 9,
    IGNIS__CU_POINTER_RANGE_START = 11,
    IGNIS__CU_POINTER_RANGE_SIZE = 12,
    IGNIS__CU_MEMORY_HOST = 1,
    IGNIS__CU_MEMORY_DEVICE = 2,
    IGNIS__CU_CAPTURE_RELAXED = 2,
    IGNIS__CU_NOT_FOUND = 500,
    IGNIS__CU_NOT_READY = 600,
    IGNIS__CU_CAPTURE_UNSUPPORTED = 900,
    IGNIS__CU_FUNC_MAX_THREADS = 0,
    IGNIS__CU_FUNC_SHARED = 1,
    IGNIS__CU_FUNC_LOCAL = 3,
    IGNIS__CU_FUNC_REGISTERS = 4,
    IGNIS__CU_FUNC_PTX_VERSION = 5, /* the architecture that it was compiled for first: 90 */
    IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    IGNIS__CU_LAUNCH_COOPERATIVE = 2,
    IGNIS__CU_LAUNCH_DEPENDENT = 6 /* programmatic stream serialization */
};

/*  What cuLaunchKernelEx takes. */
typedef struct ignis__launch_attribute {
    int id, padding;
    union {
        int allowed;
        char room[64];
    } value;
} ignis__launch_attribute;

typedef struct ignis__launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    ignis__launch_attribute *attributes;
    unsigned attribute_count;
} ignis__launch_config;

/*  A stream that the caller brought, or has made by ignis_stream_create. */
typedef struct ignis__foreign_stream {
    void *stream;
    bool created;
    uint64_t serial;   /* tells this stream from a later one at the same address */
    int holds;         /* its place in the list, and threads that are about to wait for it */
    ignis__mutex lock; /* held while a thread waits for it */
    bool forgotten;    /* by its owner, who may have destroyed it */
    struct ignis__foreign_stream *next;
} ignis__foreign_stream;

typedef struct ignis__spare_event {
    void *event;
    struct ignis__spare_event *next;
} ignis__spare_event;

typedef struct ignis__device {
    uint64_t opened;
    uint64_t captures;     /* that threads have open: until they end, nothing may wait for the context */
    ignis__rwlock waiting; /* read by threads that wait for the context, written by one that begins to capture */
    ignis__mutex lock;
    ignis__mutex planning; /* matrix products */
    int handle;            /* CUdevice */
    void *context;
    void *stream; /* Ignis' own */
    ignis_device_info info;
    int clusters; /* whether blocks can come in clusters */
    ignis__foreign_stream *foreign;
    ignis__spare_event *events;
    uint64_t no_dependents; /* own kernels come from PTX for devices that know no dependent launch, and do not wait */
} ignis__device;

/*  A device's compute capability as one number: 89 is 8.9. */
static int ignis__capability(const ignis_device_info *info) { return 10 * info->compute_major + info->compute_minor; }

static ignis__device ignis__devices[IGNIS_MAX_DEVICES];
static int ignis__device_ordinal(const ignis__device *device) { return (int)(device - ignis__devices); }
static uint64_t ignis__devices_fault; /* the driver error that ended all work of the process, 0: none */
static bool ignis__allow_tf32;
static int ignis__matmul_by, ignis__attention_by; /* as in ignis_desc, or in the environment */
static int ignis__device_total;
static int ignis__device_first;
static uint64_t ignis__stream_serials; /* given out so far */
static uint64_t ignis__stream_forgets; /* ignis_stream_forget calls so far */

/*  Errors after which the driver answers every call of the process with the same error, whatever the device. */
static bool ignis__cuda_is_fatal(int error)
{
    static const short fatal[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
    int i;
    for (i = 0; i < IGNIS__COUNT(fatal); i++)
        if (fatal[i] == error)
            return true;
    return false;
}

/*  A kernel or copy has faulted, on whatever device: CUDA refuses everything on every device from then on. */
static bool ignis__devices_lost(void) { return ignis__atomic_load(&ignis__devices_fault) != 0; }

static const char *ignis__cuda_name(int error)
{
    const char *name = NULL;
    return ignis__cuda.cuGetErrorName && ignis__cuda.cuGetErrorName(error, &name) == 0 && name ? name : "unknown error";
}

/*  Turns a driver error into a failure of `call`. device may be null where none is concerned. */
IGNIS__COLD static ignis_status ignis__cuda_fail(const char *call, ignis__device *device, const char *function, int error)
{
    const char *name = ignis__cuda_name(error), *text = NULL;
    int ordinal = device ? ignis__device_ordinal(device) : -1;
    if (device && ignis__cuda_is_fatal(error)) {
        uint64_t none = 0;
        ignis__atomic_swap_if(&ignis__devices_fault, &none, (uint64_t)error);
        return ignis__fail_because(IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
                                   "an earlier kernel or copy has faulted: %s (%d), seen by %s on device %d. All arrays are lost, and CUDA "
                                   "keeps every device from this process until it ends",
                                   name, error, function, ordinal);
    }
    if (ignis__cuda.cuGetErrorString && ignis__cuda.cuGetErrorString(error, &text) != 0)
        text = NULL;
    return ignis__fail_because(error == IGNIS__CU_OUT_OF_MEMORY ? IGNIS_DIAG_DEVICE_MEMORY : IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
                               "%s failed with %s (%d)%s%s", function, name, error, text ? ": " : "", text ? text : "");
}

/*  if (IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (address))) return ...; the failure is recorded. */
#define IGNIS__CUDA_FAILED(call, device, name, args) (ignis__cuda_check(call, device, #name, IGNIS__CUDA(name, args)) != IGNIS_OK)
IGNIS__ONE_COPY static ignis_status ignis__cuda_check(const char *call, ignis__device *device, const char *function, int error)
{
    return error == 0 ? IGNIS_OK : ignis__cuda_fail(call, device, function, error);
}

IGNIS__ONE_COPY static ignis__device *ignis__device_get(const char *call, int ordinal)
{
    if (ordinal >= 0 && ordinal < ignis__device_total)
        return &ignis__devices[ordinal];
    if (ignis__device_total == 0)
        ignis__fail(IGNIS_DIAG_DEVICE_NONE, call, "there is no CUDA device");
    else
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "there is no device %d; there are %d, from 0", ordinal, ignis__device_total);
    return NULL;
}

/*  Asks for the facts about a locked device, once: others read them without the lock. */
IGNIS__COLD static bool ignis__device_read(const char *call, ignis__device *device)
{
    ignis_device_info read = IGNIS__ZERO, *info = &read;
    const struct {
        int attribute;
        int *into;
    } facts[] = {
        {IGNIS__CU_ATTRIBUTE_MAJOR, &info->compute_major},
        {IGNIS__CU_ATTRIBUTE_MINOR, &info->compute_minor},
        {IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS, &info->multiprocessors},
        {IGNIS__CU_ATTRIBUTE_WARP_SIZE, &info->warp_size},
        {IGNIS__CU_ATTRIBUTE_MAX_THREADS, &info->max_threads_per_block},
        {IGNIS__CU_ATTRIBUTE_SHARED_OPTIN, &info->shared_per_block},
    };
    int i, l2 = 0;
    size_t total = 0;

    if (device->info.warp_size)
        return true;
    info->device = ignis__device_ordinal(device);
    info->driver_version = ignis__libraries[IGNIS_LIBRARY_CUDA].version;
    if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGet, (&device->handle, info->device)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetName, (info->name, (int)sizeof info->name, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetUuid_v2, (info->uuid, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetPCIBusId, (info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceTotalMem_v2, (&total, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (&l2, IGNIS__CU_ATTRIBUTE_L2_BYTES, device->handle)))
        return false;
    for (i = 0; i < IGNIS__COUNT(facts); i++)
        if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (facts[i].into, facts[i].attribute, device->handle)))
            return false;
    if (IGNIS__CUDA(cuDeviceGetAttribute, (&device->clusters, IGNIS__CU_ATTRIBUTE_CLUSTERS, device->handle)) != 0)
        device->clusters = 0; /* the driver is older than they are */
    info->l2_bytes = l2;
    info->memory_total = (int64_t)total;
    if (!ignis__cuda.cuDeviceGetLuid || IGNIS__CUDA(cuDeviceGetLuid, ((char *)info->luid, &info->node_mask, device->handle)) != 0) {
        memset(info->luid, 0, sizeof info->luid);
        info->node_mask = 0;
    }
    device->info = read;
    return true;
}

/*  A context that is made current for one call. */
typedef struct ignis__binding {
    bool pushed;
} ignis__binding;

/*  Makes the device's context that of the thread. Returns what the driver says, of the call *what. */
static int ignis__context_try(ignis__device *device, ignis__binding *binding, const char **what)
{
    void *current = NULL;
    int error;
    binding->pushed = false;
    *what = "cuCtxGetCurrent";
    if ((error = IGNIS__CUDA(cuCtxGetCurrent, (&current))) != 0 || current == device->context)
        return error;
    *what = current ? "cuCtxPushCurrent_v2" : "cuCtxSetCurrent";
    error = current ? IGNIS__CUDA(cuCtxPushCurrent_v2, (device->context)) : IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    binding->pushed = current && error == 0;
    return error;
}

/*  A thread without a context gets this one and keeps it, as with cudart; one that has another gets that back. */
static bool ignis__context_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    const char *what;
    int error = ignis__context_try(device, binding, &what);
    return error == 0 || ignis__cuda_fail(call, device, what, error) == IGNIS_OK;
}

IGNIS__ONE_COPY static void ignis__context_leave(const ignis__binding *binding)
{
    void *context;
    if (binding->pushed)
        (void)IGNIS__CUDA(cuCtxPopCurrent_v2, (&context)); /* what was pushed can be popped */
}

IGNIS__COLD static bool ignis__device_open_locked(const char *call, ignis__device *device)
{
    ignis__binding binding;
    bool made;
    if (!ignis__device_read(call, device) || IGNIS__CUDA_FAILED(call, device, cuDevicePrimaryCtxRetain, (&device->context, device->handle)))
        return false;
    if (ignis__context_enter(call, device, &binding)) {
        made = !IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&device->stream, IGNIS__CU_STREAM_DEFAULT));
        ignis__context_leave(&binding);
        if (made)
            return true;
    }
    (void)IGNIS__CUDA(cuDevicePrimaryCtxRelease_v2, (device->handle)); /* the first failure is the one reported */
    device->context = NULL;
    return false;
}

/*  Opens the device if it is not, and makes its context current. Every path that succeeds here ends in ignis__device_leave. */
static bool ignis__device_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    int error = (int)ignis__atomic_load(&ignis__devices_fault);
    if (error) {
        ignis__fail_because(IGNIS_DIAG_DEVICE_LOST, call, error, ignis__cuda_name(error), NULL,
                            "an earlier kernel or copy has faulted: %s (%d); CUDA keeps every device from this process until it ends",
                            ignis__cuda_name(error), error);
        return false;
    }
    if (!ignis__atomic_load(&device->opened)) {
        ignis__mutex_lock(&device->lock);
        if (!ignis__atomic_load(&device->opened) && ignis__device_open_locked(call, device))
            ignis__atomic_store(&device->opened, 1);
        ignis__mutex_unlock(&device->lock);
        if (!ignis__atomic_load(&device->opened))
            return false;
    }
    return ignis__context_enter(call, device, binding);
}

/*  Enters an opened device to give something back, which must not fail for one call of the driver: it is tried again. False, and nothing reported,
    after a fault. */
static bool ignis__device_enter_to_give(const char *call, ignis__device *device, ignis__binding *binding)
{
    const char *what;
    if (ignis__devices_lost())
        return false;
    return ignis__context_try(device, binding, &what) == 0 || ignis__context_enter(call, device, binding);
}

static void ignis__device_leave(const ignis__binding *binding) { ignis__context_leave(binding); }

/*  Forgets what a thread has of an older setup, and its streams of which somebody else has said that they go. */
IGNIS__COLD static void ignis__thread_renew(ignis__thread *thread, uint64_t forgets)
{
    int i;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->device = ignis__device_first;
        thread->capture = NULL;
        thread->forgets = forgets;
        memset(thread->stream, 0, sizeof thread->stream);
    }
    if (thread->forgets != forgets) {
        thread->forgets = forgets;
        for (i = 0; i < ignis__device_total; i++) {
            ignis__foreign_stream *foreign;
            if (!thread->stream[i])
                continue;
            ignis__mutex_lock(&ignis__devices[i].lock);
            for (foreign = ignis__devices[i].foreign; foreign && foreign->serial != thread->stream_serial[i]; foreign = foreign->next)
                ;
            ignis__mutex_unlock(&ignis__devices[i].lock);
            if (!foreign)
                thread->stream[i] = NULL;
        }
    }
}

/*  The calling thread's state, fresh after an ignis_setup and after an ignis_stream_forget that concerns it. */
static ignis__thread *ignis__thread_now(void)
{
    ignis__thread *thread = &ignis__this_thread;
    uint64_t forgets = ignis__atomic_load(&ignis__stream_forgets);
    if (thread->setup != ignis__global.setups || thread->forgets != forgets)
        ignis__thread_renew(thread, forgets);
    return thread;
}

/*  The device that a desc names, and what names a device in one. */
static int ignis__desc_device(int device) { return device == 0 ? ignis__thread_now()->device : device == IGNIS_DEVICE_0 ? 0 : device; }
static int ignis__device_in_desc(const ignis__device *device)
{
    return device == ignis__devices ? IGNIS_DEVICE_0 : ignis__device_ordinal(device);
}

IGNIS__COLD static ignis_status ignis__devices_setup(const char *call, int first)
{
    int error, i;
    error = IGNIS__CUDA(cuInit, (0));
    if (error == IGNIS__CU_NO_DEVICE)
        return ignis__fail_because(IGNIS_DIAG_DEVICE_NONE, call, error, ignis__cuda_name(error), NULL, "the driver finds no CUDA device");
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuInit", error);
    error = IGNIS__CUDA(cuDeviceGetCount, (&ignis__device_total));
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuDeviceGetCount", error);
    if (ignis__device_total > IGNIS_MAX_DEVICES)
        ignis__device_total = IGNIS_MAX_DEVICES;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__devices[i], 0, sizeof ignis__devices[i]);
        ignis__rwlock_init(&ignis__devices[i].waiting);
        ignis__mutex_init(&ignis__devices[i].lock);
        ignis__mutex_init(&ignis__devices[i].planning);
    }
    ignis__atomic_store(&ignis__devices_fault, 0); /* the driver is asked anew */
    ignis__device_first = first;
    return ignis__device_get(call, first) ? IGNIS_OK : IGNIS_ERROR_DEVICE;
}

/*  Waits for the device and lets go of it. Goes on after an error, and reports the first. */
IGNIS__COLD static void ignis__device_close(const char *call, ignis__device *device)
{
    void *current = NULL;
    bool lost = ignis__devices_lost();
    (void)IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    while (device->events) {
        ignis__spare_event *spare = device->events;
        device->events = spare->next;
        (void)IGNIS__CUDA(cuEventDestroy_v2, (spare->event));
        ignis__free(spare);
    }
    while (device->foreign) {
        ignis__foreign_stream *foreign = device->foreign;
        device->foreign = foreign->next;
        if (foreign->created)
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (foreign->stream));
        ignis__free(foreign);
    }
    if (lost)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (device->stream));
    else
        (void)IGNIS__CUDA_FAILED(call, device, cuStreamDestroy_v2, (device->stream));
    if (IGNIS__CUDA(cuCtxGetCurrent, (&current)) == 0 && current == device->context)
        (void)IGNIS__CUDA(cuCtxSetCurrent, (NULL)); /* the context ends with its last user */
    (void)IGNIS__CUDA_FAILED(call, NULL, cuDevicePrimaryCtxRelease_v2, (device->handle));
    ignis__atomic_store(&device->opened, 0);
}

IGNIS_API int ignis_device_count(void) { return ignis__enter("ignis_device_count") ? ignis__device_total : 0; }

/*  Reads the facts about a device that is perhaps not open. */
IGNIS__COLD static bool ignis__device_know(const char *call, ignis__device *device)
{
    bool ok;
    ignis__mutex_lock(&device->lock);
    ok = ignis__device_read(call, device);
    ignis__mutex_unlock(&device->lock);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_query(int ordinal, ignis_device_info *info)
{
    static const char call[] = "ignis_device_query";
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__given(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device)
        return IGNIS_ERROR_DEVICE;
    if (!ignis__device_know(call, device))
        return ignis__failed();
    *info = device->info;
    return IGNIS_OK;
}

IGNIS__COLD IGNIS_API int ignis_device_find(const void *uuid, const void *luid)
{
    static const char call[] = "ignis_device_find";
    char wanted[2 * 16 + 1] = "";
    int i;
    if (!ignis__enter(call) || !ignis__given(call, "uuid and luid", uuid ? uuid : luid))
        return -1;
    for (i = 0; i < ignis__device_total; i++) {
        const ignis_device_info *info = &ignis__devices[i].info;
        if (!ignis__device_know(call, &ignis__devices[i]))
            return -1;
        if ((!uuid || memcmp(uuid, info->uuid, sizeof info->uuid) == 0) &&
            (!luid || (info->node_mask && memcmp(luid, info->luid, sizeof info->luid) == 0)))
            return i;
    }
    for (i = 0; i < (uuid ? 16 : 8); i++)
        snprintf(wanted + 2 * i, 3, "%02x", ((const unsigned char *)(uuid ? uuid : luid))[i]);
    ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "none of the %d devices that this process sees has the %s %s%s", ignis__device_total,
                uuid ? "UUID" : "LUID", wanted, uuid && luid ? " and that LUID" : "");
    return -1;
}

IGNIS__COLD IGNIS_API ignis_status ignis_device_use(int ordinal)
{
    static const char call[] = "ignis_device_use";
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ignis__device_leave(&binding);
    if (IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)))
        return ignis__failed();
    ignis__thread_now()->device = ordinal;
    return IGNIS_OK;
}

IGNIS_API int ignis_device_current(void) { return ignis__enter("ignis_device_current") ? ignis__thread_now()->device : -1; }

/*  The calling thread's current device, opened and entered; null on failure. */
static ignis__device *ignis__device_current_enter(const char *call, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__enter(call))
        return NULL;
    device = ignis__device_get(call, ignis__thread_now()->device);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

/* ===============================================================================================================
   >>capture - a thread's work that becomes a CUDA graph: where it goes meanwhile, what the graph keeps, what is refused.
   =============================================================================================================== */

/*  Something that a graph needs as long as it lives, and what gives it up. */
typedef struct ignis__held {
    void *item;
    void (*drop)(const char *call, void *item);
    bool written; /* a storage, by the graph */
    bool lent;    /* a storage, to a kernel of the caller in the graph */
    struct ignis__held *next;
} ignis__held;

/*  How often a graph was launched. Outlives the graph, as arrays do that have their memory from it. */
typedef struct ignis__replays {
    uint64_t users; /* the capture or graph, and storages */
    uint64_t count;
} ignis__replays;

static void ignis__replays_drop(ignis__replays *replays)
{
    if (ignis__atomic_add(&replays->users, (uint64_t)-1) == 0)
        ignis__free(replays);
}

/*  A thread has one between ignis_graph_begin and ignis_graph_end; then it is the graph's. What other sections have to do with it:
        ignis__memory_take        memory that is taken meanwhile is of a part of the cache whose key is the capture, and stays with the graph
        ignis__capture_hold       keeps what the work uses and what was there before: storages, kernels of the caller
        ignis__capture_pause      begins work that is to be done once, before any launch, and not by the graph
        ignis__capture_refuses    makes a call fail that would have to wait or to read host memory, or that is to happen once */
typedef struct ignis__capture {
    ignis__device *device;
    ignis__replays *replays;     /* of the graph that it becomes */
    uint64_t serial;             /* tells it from other captures */
    void *stream;                /* made for it alone: other threads go on working on theirs */
    struct ignis__capture *next; /* of those that threads have open */
    ignis__held *held;
    struct ignis__array *launches; /* counted by the graph itself, for random numbers; held, null where there are none */
} ignis__capture;

/*  Those that are open, for ignis_shutdown: a thread may have ended without ending its own. */
static struct {
    ignis__mutex lock;
    ignis__capture *first;
} ignis__captures = {IGNIS__MUTEX_INIT, NULL};

static ignis__capture *ignis__capturing(void) { return ignis__thread_now()->capture; }

/*  The capture that takes up the thread's work on this device, or null. */
IGNIS__ONE_COPY static ignis__capture *ignis__capture_on(const ignis__device *device)
{
    ignis__capture *capture = ignis__capturing();
    return capture && capture->device == device ? capture : NULL;
}

/*  The stream that the calling thread's work goes to on an open device. */
IGNIS__ONE_COPY static void *ignis__stream_now(const ignis__device *device)
{
    const ignis__thread *thread = ignis__thread_now();
    void *stream = thread->stream[device - ignis__devices];
    if (thread->capture && thread->capture->device == device)
        return thread->capture->stream;
    return stream ? stream : device->stream;
}

/*  True: the thread captures, and the call has failed. */
IGNIS__ONE_COPY static bool ignis__capture_refuses(const char *call)
{
    if (!ignis__capturing())
        return false;
    ignis__fail(
        IGNIS_DIAG_CAPTURE_REFUSED, call,
        "this cannot be captured: it waits for the device, reads host memory or is to be done once; call it before ignis_graph_begin or "
        "after ignis_graph_end");
    return true;
}

static ignis__held *ignis__capture_find(const ignis__capture *capture, const void *item)
{
    ignis__held *held = capture->held;
    while (held && held->item != item)
        held = held->next;
    return held;
}

/*  Keeps an item for the graph: its count of users (null: it counts the caller already) goes up, once; `drop` makes it go down. */
static bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
                                void (*drop)(const char *call, void *item))
{
    ignis__held *held;
    if (ignis__capture_find(capture, item))
        return true;
    held = (ignis__held *)ignis__alloc_for(call, sizeof *held);
    if (!held)
        return false;
    if (users)
        ignis__atomic_add(users, 1);
    held->item = item;
    held->drop = drop;
    held->next = capture->held;
    capture->held = held;
    return true;
}

/*  Between the two the thread's work runs on its own stream, of an entered device. Resume waits for it: a capture has no order with others. */
IGNIS__MAYBE_UNUSED static ignis__capture *ignis__capture_pause(void)
{
    ignis__capture *capture = ignis__capturing();
    ignis__thread_now()->capture = NULL;
    return capture;
}

IGNIS__MAYBE_UNUSED static bool ignis__capture_resume(const char *call, ignis__capture *capture)
{
    bool ok = !capture || !IGNIS__CUDA_FAILED(call, capture->device, cuStreamSynchronize, (ignis__stream_now(capture->device)));
    ignis__thread_now()->capture = capture;
    return ok;
}

/*  Gives up what the capture holds. The device is idle. */
IGNIS__MAYBE_UNUSED static void ignis__capture_destroy(const char *call, ignis__capture *capture)
{
    while (capture->held) {
        ignis__held *held = capture->held;
        capture->held = held->next;
        held->drop(call, held->item);
        ignis__free(held);
    }
    ignis__replays_drop(capture->replays);
    ignis__free(capture);
}

/*  The thread's work goes to a capture from here on. The device is entered, and idle, so that no work of before is missing an event. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static bool ignis__capture_begin(const char *call, ignis__device *device)
{
    ignis__capture *capture = (ignis__capture *)ignis__alloc(sizeof *capture);
    ignis__replays *replays = (ignis__replays *)ignis__alloc(sizeof *replays);
    if (!capture || !replays) {
        ignis__free(capture), ignis__free(replays);
        ignis__fail_host_memory(call, sizeof *capture + sizeof *replays);
        return false;
    }
    replays->users = 1;
    capture->replays = replays;
    capture->serial = ignis__atomic_add(&ignis__stream_serials, 1);
    capture->device = device;
    ignis__atomic_add(&device->captures, 1);   /* from here on nobody begins to wait for the context, */
    ignis__rwlock_write(&device->waiting);     /* and this waits for those who do so now: */
    ignis__rwlock_write_end(&device->waiting); /* to wait for a context in which a stream is captured spoils the capture */
    /* Relaxed: the allocator may ask the driver for memory meanwhile. */
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&capture->stream, IGNIS__CU_STREAM_NON_BLOCKING)) &&
        !IGNIS__CUDA_FAILED(call, device, cuStreamBeginCapture_v2, (capture->stream, IGNIS__CU_CAPTURE_RELAXED))) {
        ignis__mutex_lock(&ignis__captures.lock);
        capture->next = ignis__captures.first;
        ignis__captures.first = capture;
        ignis__mutex_unlock(&ignis__captures.lock);
        ignis__thread_now()->capture = capture;
        return true;
    }
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (capture->stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    ignis__free(replays), ignis__free(capture);
    return false;
}

/*  Ends a capture, in any case, and makes an executable graph of it, which needs what the capture holds. Null on failure. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void *ignis__capture_end(const char *call, ignis__capture *capture)
{
    ignis__device *device = capture->device;
    void *captured = NULL, *exec = NULL;
    bool ok = !IGNIS__CUDA_FAILED(call, device, cuStreamEndCapture, (capture->stream, &captured)) && captured &&
              !IGNIS__CUDA_FAILED(call, device, cuGraphInstantiateWithFlags, (&exec, captured, 0));
    ignis__capture **link = &ignis__captures.first;
    if (ignis__capturing() == capture)
        ignis__thread_now()->capture = NULL;
    ignis__mutex_lock(&ignis__captures.lock);
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    ignis__mutex_unlock(&ignis__captures.lock);
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (captured)
        (void)IGNIS__CUDA(cuGraphDestroy, (captured));
    (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    return ok ? exec : NULL;
}

/* ===============================================================================================================
   >>stream - streams of the caller, events between streams, waiting for a device.
   =============================================================================================================== */

/*  Writes a stream of the caller down, after checking that it is one of this device. 0: it is not. */
IGNIS__COLD static uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream)
{
    ignis__foreign_stream *foreign;
    const ignis__capture *capture;
    uint64_t serial = 0;
    void *context = NULL;
    bool legacy = (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY; /* of the current context */
    if ((uintptr_t)stream == IGNIS__CU_STREAM_PER_THREAD) {
        ignis__fail(
            IGNIS_DIAG_STREAM_INVALID, call,
            "CU_STREAM_PER_THREAD (cudaStreamPerThread) is another stream in each thread, and no thread can wait for that of another: "
            "memory could not be handed on safely. Make a stream for this thread with cudaStreamCreate");
        return 0;
    }
    ignis__mutex_lock(&ignis__captures.lock);
    for (capture = ignis__captures.first; capture && capture->stream != stream; capture = capture->next)
        ;
    ignis__mutex_unlock(&ignis__captures.lock);
    if (capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                    "stream %p is that of a capture, and goes with ignis_graph_end. Work of the thread that captures goes there by itself",
                    stream);
        return 0;
    }
    if (!legacy && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!legacy && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call, "stream %p belongs to another device or context than device %d's primary context",
                    stream, ignis__device_ordinal(device));
        return 0;
    }
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (!foreign) {
        foreign = (ignis__foreign_stream *)ignis__alloc(sizeof *foreign);
        if (foreign) {
            ignis__mutex_init(&foreign->lock);
            foreign->stream = stream;
            foreign->holds = 1;
            foreign->serial = ignis__atomic_add(&ignis__stream_serials, 1);
            foreign->next = device->foreign;
            device->foreign = foreign;
        }
    }
    if (foreign)
        serial = foreign->serial;
    ignis__mutex_unlock(&device->lock);
    if (!serial)
        ignis__fail_host_memory(call, sizeof *foreign);
    return serial;
}

/*  Keeps an event of the device for the next one who needs one. */
IGNIS__ONE_COPY static void ignis__event_give(ignis__device *device, ignis__spare_event *spare)
{
    ignis__mutex_lock(&device->lock);
    spare->next = device->events;
    device->events = spare;
    ignis__mutex_unlock(&device->lock);
}

/*  An event behind what is queued on a stream now; null on failure. ignis__event_give takes it back. */
static ignis__spare_event *ignis__event_record(const char *call, ignis__device *device, void *stream)
{
    ignis__spare_event *spare;
    ignis__binding binding;
    if (!ignis__device_enter(call, device, &binding))
        return NULL;
    ignis__mutex_lock(&device->lock);
    spare = device->events;
    if (spare)
        device->events = spare->next;
    ignis__mutex_unlock(&device->lock);
    if (!spare) {
        spare = (ignis__spare_event *)ignis__alloc_for(call, sizeof *spare);
        if (spare && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&spare->event, IGNIS__CU_EVENT_DISABLE_TIMING))) {
            ignis__free(spare);
            spare = NULL;
        }
    }
    if (spare && IGNIS__CUDA_FAILED(call, device, cuEventRecord, (spare->event, stream))) {
        ignis__event_give(device, spare);
        spare = NULL;
    }
    ignis__device_leave(&binding);
    return spare;
}

/*  Makes `later` wait for what is queued on `earlier` now. The streams may be of different devices. */
static bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier, ignis__device *later_device, void *later)
{
    ignis__spare_event *spare;
    ignis__binding binding;
    bool ok;
    if (earlier_device == later_device && earlier == later)
        return true;
    spare = ignis__event_record(call, earlier_device, earlier);
    ok = spare && ignis__device_enter(call, later_device, &binding);
    if (ok) {
        ok = !IGNIS__CUDA_FAILED(call, later_device, cuStreamWaitEvent, (later, spare->event, 0));
        ignis__device_leave(&binding);
    }
    if (spare)
        ignis__event_give(earlier_device, spare); /* the wait refers to the record, not to the event: it can be recorded again at once */
    return ok;
}

/*  The stream of the caller that comes next after `serial`, held; null: there is none. */
static ignis__foreign_stream *ignis__foreign_next(ignis__device *device, uint64_t serial)
{
    ignis__foreign_stream *foreign, *next = NULL;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign; foreign = foreign->next)
        if (foreign->serial > serial && (!next || foreign->serial < next->serial))
            next = foreign;
    if (next)
        next->holds++;
    ignis__mutex_unlock(&device->lock);
    return next;
}

/*  What is known of a stream of the caller, held; null: it is none. */
static ignis__foreign_stream *ignis__foreign_hold(ignis__device *device, const void *stream)
{
    ignis__foreign_stream *foreign;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (foreign)
        foreign->holds++;
    ignis__mutex_unlock(&device->lock);
    return foreign;
}

static void ignis__foreign_drop(ignis__device *device, ignis__foreign_stream *foreign)
{
    bool last;
    ignis__mutex_lock(&device->lock);
    last = --foreign->holds == 0;
    ignis__mutex_unlock(&device->lock);
    if (last)
        ignis__free(foreign);
}

/*  Draws a stream of the caller into the thread's capture, behind what that has queued on `from`; serial: what ignis__stream_adopt gave. A
    thread that waits for the stream is waited for, as its wait would spoil the capture. */
IGNIS__MAYBE_UNUSED static bool ignis__capture_draw(const char *call, ignis__device *device, void *from, uint64_t serial)
{
    ignis__foreign_stream *foreign = ignis__foreign_next(device, serial - 1);
    bool ok;
    IGNIS_ASSERT(foreign && foreign->serial == serial);
    ignis__mutex_lock(&foreign->lock);
    ok = ignis__stream_order(call, device, from, device, foreign->stream);
    ignis__mutex_unlock(&foreign->lock);
    ignis__foreign_drop(device, foreign);
    return ok;
}

/*  Waits for a stream, unless a capture has drawn it in. Returns the driver's error. */
static int ignis__stream_finish(void *stream)
{
    int captures = 0, error = IGNIS__CUDA(cuStreamIsCapturing, (stream, &captures));
    return error == 0 && !captures ? IGNIS__CUDA(cuStreamSynchronize, (stream)) : error;
}

/*  Waits for the work of an entered device. While a thread captures on its context, which a wait would spoil, or when that wait has failed: for
    each known stream that no capture has drawn in. Returns the first error; the work is through also then, unless the devices are lost. */
IGNIS__COLD static int ignis__device_finish(ignis__device *device)
{
    ignis__foreign_stream *foreign;
    uint64_t serial = 0;
    int first = IGNIS__CU_CAPTURE_UNSUPPORTED, error;
    ignis__rwlock_read(&device->waiting);
    if (!ignis__atomic_load(&device->captures))
        first = IGNIS__CUDA(cuCtxSynchronize, ());
    ignis__rwlock_read_end(&device->waiting);
    if (first == 0 || ignis__cuda_is_fatal(first))
        return first;
    if (first == IGNIS__CU_CAPTURE_UNSUPPORTED) /* others may capture, too */
        first = 0;
    error = ignis__stream_finish(device->stream);
    first = first ? first : error;
    while ((foreign = ignis__foreign_next(device, serial)) != NULL) {
        ignis__mutex_lock(&foreign->lock);
        error = foreign->forgotten ? 0 : ignis__stream_finish(foreign->stream);
        ignis__mutex_unlock(&foreign->lock);
        first = first ? first : error;
        serial = foreign->serial;
        ignis__foreign_drop(device, foreign);
    }
    return first;
}

/*  The same, where the failure is to be reported. */
static bool ignis__device_wait(const char *call, ignis__device *device)
{
    return ignis__cuda_check(call, device, "cuCtxSynchronize", ignis__device_finish(device)) == IGNIS_OK;
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_use(void *stream)
{
    static const char call[] = "ignis_stream_use";
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    uint64_t serial = 0;
    bool ok;
    if (!device)
        return ignis__failed();
    if (stream == device->stream)
        stream = NULL;
    ok = !stream || (serial = ignis__stream_adopt(call, device, stream)) != 0;
    ignis__device_leave(&binding);
    if (!ok)
        return ignis__failed();
    ignis__this_thread.stream[device - ignis__devices] = stream;
    ignis__this_thread.stream_serial[device - ignis__devices] = serial;
    return IGNIS_OK;
}

IGNIS_API void *ignis_stream_current(void)
{
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter("ignis_stream_current", &binding);
    if (!device)
        return NULL;
    ignis__device_leave(&binding);
    return ignis__stream_now(device);
}

/* --- streams that Ignis makes, events of the caller -------------------------------------------------------------------- */

IGNIS__COLD IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc)
{
    static const char call[] = "ignis_stream_create";
    void *stream = NULL;
    int priority = desc ? desc->priority : 0; /* the driver's are the other way round */
    ignis__foreign_stream *foreign;
    uint64_t serial;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreateWithPriority,
                            (&stream, IGNIS__CU_STREAM_NON_BLOCKING, priority < -INT_MAX ? INT_MAX : -priority))) {
        serial = ignis__stream_adopt(call, device, stream);
        foreign = serial ? ignis__foreign_next(device, serial - 1) : NULL;
        if (foreign) {
            foreign->created = true;
            ignis__foreign_drop(device, foreign);
        } else {
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
            stream = NULL;
        }
    }
    ignis__device_leave(&binding);
    return stream;
}

/*  Names those that ignis_device_close frees. */
IGNIS__COLD static void ignis__streams_leaked(const char *call)
{
    const ignis__foreign_stream *foreign;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (foreign = ignis__devices[i].foreign; foreign; foreign = foreign->next)
            if (foreign->created)
                ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "stream %p of device %d, of ignis_stream_create", foreign->stream, i);
}

static bool ignis__stream_known(ignis__device *device, const void *stream)
{
    const ignis__capture *capture = ignis__capture_on(device);
    const ignis__foreign_stream *foreign;
    if (!ignis__atomic_load(&device->opened))
        return false;
    if (stream == device->stream || (capture && stream == capture->stream))
        return true;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return foreign != NULL;
}

/*  The device of a stream that a call names, entered: of one that Ignis knows, or else the current one if it is of that. null, and
    reported, when there is none. A stream of null becomes the current one. */
static ignis__device *ignis__stream_enter(const char *call, void **stream, ignis__binding *binding)
{
    ignis__device *device = ignis__device_current_enter(call, binding);
    int i;
    if (!device)
        return NULL;
    if (!*stream)
        *stream = ignis__stream_now(device);
    if (ignis__stream_known(device, *stream))
        return device;
    for (i = 0; i < ignis__device_total && (uintptr_t)*stream != IGNIS__CU_STREAM_LEGACY; i++) { /* each device has one of that name */
        if (ignis__stream_known(&ignis__devices[i], *stream)) {
            ignis__device_leave(binding);
            return ignis__device_enter(call, &ignis__devices[i], binding) ? &ignis__devices[i] : NULL;
        }
    }
    if (ignis__stream_adopt(call, device, *stream))
        return device;
    ignis__device_leave(binding);
    return NULL;
}

/*  Whether a stream is captured, by whatever thread. */
static bool ignis__stream_captured(const char *call, ignis__device *device, void *stream, bool *captured)
{
    int status = 0;
    bool ok = !ignis__atomic_load(&device->captures) || !IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &status));
    *captured = status != 0;
    return ok;
}

IGNIS__COLD static bool ignis__fail_captured(const char *call, const char *what)
{
    return ignis__refuse(IGNIS_DIAG_CAPTURE_REFUSED, call, "%s", what);
}

/*  Makes a stream of an entered device wait for an event; captured: one recorded in a capture, which the stream then joins. A thread that
    waits for the stream is waited for, as its wait would spoil the capture. */
static bool ignis__stream_await(const char *call, ignis__device *device, void *stream, void *event, bool captured)
{
    ignis__foreign_stream *foreign;
    uint64_t serial;
    bool joined, ok;
    if (!ignis__stream_captured(call, device, stream, &joined))
        return false;
    if (captured == joined)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    if (joined)
        return ignis__fail_captured(call, "the stream is captured, and cannot wait for what is outside of the capture");
    if (!ignis__capture_on(device) || stream == device->stream || (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY)
        return ignis__fail_captured(call,
                                    "what is to be waited for is captured: only other streams of the caller, on the capture's device and "
                                    "at the hand of its thread, join a capture");
    serial = ignis__stream_adopt(call, device, stream);
    foreign = serial ? ignis__foreign_next(device, serial - 1) : NULL;
    if (!foreign)
        return false;
    ignis__mutex_lock(&foreign->lock);
    ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    ignis__mutex_unlock(&foreign->lock);
    ignis__foreign_drop(device, foreign);
    return ok;
}

IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done)
{
    static const char call[] = "ignis_stream_query";
    ignis__foreign_stream *foreign;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    int error;
    if (!ignis__enter(call) || !ignis__given(call, "done", done))
        return ignis__failed();
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    foreign = ignis__foreign_hold(device, stream);
    if (foreign &&
        !ignis__mutex_try(&foreign->lock)) { /* a thread waits for it, or draws it into a capture, which a question would spoil */
        *done = false;
        ok = true;
    } else {
        if (ignis__stream_captured(call, device, stream, &captured)) {
            error = captured ? IGNIS__CU_CAPTURE_UNSUPPORTED : IGNIS__CUDA(cuStreamQuery, (stream));
            *done = error == 0;
            ok = captured ? ignis__fail_captured(call, "the stream is captured: its work runs at each launch of the graph")
                          : error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
        }
        if (foreign)
            ignis__mutex_unlock(&foreign->lock);
    }
    if (foreign)
        ignis__foreign_drop(device, foreign);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other)
{
    static const char call[] = "ignis_stream_wait";
    ignis__device *earlier = NULL, *later;
    ignis__spare_event *spare = NULL;
    ignis__binding binding;
    bool captured = false, ok;
    later = ignis__stream_enter(call, &stream, &binding);
    if (!later)
        return ignis__failed();
    ignis__device_leave(&binding);
    earlier = ignis__stream_enter(call, &other, &binding);
    if (!earlier)
        return ignis__failed();
    ok = ignis__stream_captured(call, earlier, other, &captured);
    if (ok && (earlier != later || stream != other))
        ok = (spare = ignis__event_record(call, earlier, other)) != NULL;
    ignis__device_leave(&binding);
    if (!spare || !ignis__device_enter(call, later, &binding)) {
        if (spare)
            ignis__event_give(earlier, spare);
        return ok && !spare ? IGNIS_OK : ignis__failed();
    }
    ok = ignis__stream_await(call, later, stream, spare->event, captured);
    ignis__device_leave(&binding);
    ignis__event_give(earlier, spare);
    return ok ? IGNIS_OK : ignis__failed();
}

typedef struct ignis__event {
    ignis__slot slot; /* its lock is held while the event is recorded, or asked */
    ignis__device *device;
    void *event;
    bool recorded;
    uint64_t capture; /* the serial of the capture in which it was recorded last; 0: it was in none */
} ignis__event;

static ignis__pool ignis__events = IGNIS__POOL(ignis__event, IGNIS__KIND_EVENT, "event", IGNIS_DIAG_EVENT_FREED);

IGNIS__COLD IGNIS_API ignis_event ignis_event_create(void)
{
    static const char call[] = "ignis_event_create";
    ignis_event handle = IGNIS__ZERO;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    ignis__event *event = device ? (ignis__event *)ignis__pool_take_zeroed(call, &ignis__events) : NULL;
    if (event && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&event->event, IGNIS__CU_EVENT_DEFAULT))) {
        ignis__pool_give(&ignis__events, event);
    } else if (event) {
        event->device = device;
        handle.id = ignis__pool_publish(&ignis__events, event);
    }
    if (device)
        ignis__device_leave(&binding);
    return handle;
}

static void ignis__event_drop(ignis__event *event)
{
    if (ignis__pool_drop(event)) {
        (void)IGNIS__CUDA(cuEventDestroy_v2, (event->event)); /* after a fault there is nothing more to say */
        ignis__pool_give(&ignis__events, event);
    }
}

/*  The event of a handle, held, and its device entered; null, and reported, when that cannot be. */
static ignis__event *ignis__event_enter(const char *call, ignis_event handle, ignis__binding *binding)
{
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (event && !ignis__device_enter(call, event->device, binding)) {
        ignis__event_drop(event);
        event = NULL;
    }
    return event;
}

static ignis_status ignis__event_leave(ignis__event *event, const ignis__binding *binding, bool ok)
{
    ignis__device_leave(binding);
    ignis__event_drop(event);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  What a locked event says of work outside of captures; *error is the driver's, IGNIS__CU_NOT_READY where work goes on. False: reported. */
static bool ignis__event_ask(const char *call, ignis__event *event, int *error)
{
    if (event->capture)
        return ignis__fail_captured(call, "the event was recorded in a capture: it is a point of the graph, until it is recorded again");
    *error = IGNIS__CUDA(cuEventQuery, (event->event));
    return *error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, event->device, "cuEventQuery", *error) == IGNIS_OK;
}

IGNIS_API ignis_status ignis_event_record(ignis_event handle, void *stream)
{
    static const char call[] = "ignis_event_record";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture;
    bool captured, ok = false;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    if (device != event->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the event is of device %d, the stream of device %d",
                    ignis__device_ordinal(event->device), ignis__device_ordinal(device));
    } else if (ignis__stream_captured(call, device, stream, &captured)) {
        capture = captured ? ignis__capture_on(device) : NULL;
        ok = captured == (capture != NULL) || ignis__fail_captured(call, "another thread captures the stream");
        ignis__mutex_lock(&event->slot.lock);
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuEventRecord, (event->event, stream));
        if (ok) {
            event->recorded = true;
            event->capture = capture ? capture->serial : 0;
        }
        ignis__mutex_unlock(&event->slot.lock);
    }
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_query(ignis_event handle, bool *done)
{
    static const char call[] = "ignis_event_query";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__given(call, "done", done) && ignis__event_ask(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (done)
        *done = ok && error == 0;
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_wait(ignis_event handle)
{
    static const char call[] = "ignis_event_wait";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__event_ask(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (ok && error != 0)
        ok = !IGNIS__CUDA_FAILED(call, event->device, cuEventSynchronize, (event->event));
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms)
{
    static const char call[] = "ignis_event_elapsed_ms";
    ignis_event handles[] = {first, last};
    ignis__event *events[2] = {NULL, NULL};
    ignis__binding bindings[2];
    float elapsed = 0;
    int i, error = 0;
    bool ok = true;
    if (!ignis__enter(call) || !ignis__given(call, "ms", ms))
        return ignis__failed();
    for (i = 0; ok && i < 2; i++) {
        events[i] = ignis__event_enter(call, handles[i], &bindings[i]);
        ok = events[i] != NULL;
        if (!ok)
            break;
        ignis__mutex_lock(&events[i]->slot.lock);
        ok = ignis__event_ask(call, events[i], &error);
        if (ok && (error != 0 || !events[i]->recorded))
            ok = ignis__refuse(IGNIS_DIAG_EVENT_STATE, call, "the %s event %s", i ? "last" : "first",
                               error ? "is not done: wait for it, or ask by ignis_event_query" : "was never recorded");
        ignis__mutex_unlock(&events[i]->slot.lock);
    }
    if (ok && events[0]->device != events[1]->device)
        ok = ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "the events are of device %d and device %d",
                           ignis__device_ordinal(events[0]->device), ignis__device_ordinal(events[1]->device));
    ok = ok && !IGNIS__CUDA_FAILED(call, events[0]->device, cuEventElapsedTime, (&elapsed, events[0]->event, events[1]->event));
    for (i = 1; i >= 0; i--)
        if (events[i])
            (void)ignis__event_leave(events[i], &bindings[i], true);
    if (ok)
        *ms = (double)elapsed;
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_event_free(ignis_event handle)
{
    static const char call[] = "ignis_event_free";
    const uint64_t failures = ignis__failures();
    ignis__event *event;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (!event)
        return ignis__failed();
    live = ignis__handle_kill(event);
    if (!live)
        ignis__fail_stale(call, &ignis__events, handle.id);
    ignis__event_drop(event);
    return ignis__ended(failures, live);
}

IGNIS__COLD static void ignis__events_close(const char *call)
{
    ignis__event *event;
    uint64_t index = 0;
    while ((event = (ignis__event *)ignis__pool_next(&ignis__events, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "event of device %d", ignis__device_ordinal(event->device));
        ignis__handle_kill(event);
        ignis__event_drop(event);
    }
}

IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event handle)
{
    static const char call[] = "ignis_stream_wait_event";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture = ignis__capturing();
    bool ok;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    ignis__mutex_lock(&event->slot.lock);
    if (event->capture && !(capture && capture->serial == event->capture))
        ok = ignis__fail_captured(call, "the event was recorded in a capture that is over, or another thread's");
    else
        ok = !event->recorded || ignis__stream_await(call, device, stream, event->event, event->capture != 0);
    ignis__mutex_unlock(&event->slot.lock);
    return ignis__event_leave(event, &binding, ok);
}

/* --- functions of the program that streams call --------------------------------------------------------------------------- */

typedef struct ignis__callback {
    void (*fn)(void *user_data);
    void *user_data;
    bool captured; /* called at each launch of a graph, which frees it */
    struct ignis__callback *next;
} ignis__callback;

/*  Those that are not captured and were not called yet. Nobody calls the driver with the lock held, as the driver's thread takes it. */
static struct {
    ignis__mutex lock;
    ignis__callback *first;
} ignis__callbacks = {IGNIS__MUTEX_INIT, NULL};

static void ignis__callback_free(ignis__callback *callback)
{
    ignis__callback **link = &ignis__callbacks.first;
    ignis__mutex_lock(&ignis__callbacks.lock);
    while (*link != callback)
        link = &(*link)->next;
    *link = callback->next;
    ignis__mutex_unlock(&ignis__callbacks.lock);
    ignis__free(callback);
}

static void ignis__callback_drop(const char *call, void *item)
{
    (void)call;
    ignis__free(item);
}

/*  Runs one, and calls of Ignis in it fail. The thread may be one that calls Ignis otherwise: what it has recorded stays. */
static void ignis__callback_run(void *context)
{
    ignis__callback *callback = (ignis__callback *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis_status latest = thread->latest;
    memset(&thread->record, 0, sizeof thread->record);
    thread->called_back = true;
    callback->fn(callback->user_data);
    thread->called_back = false;
    ignis__record_drop(thread);
    thread->record = before;
    thread->latest = latest;
    if (!callback->captured)
        ignis__callback_free(callback);
}

IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data)
{
    static const char call[] = "ignis_stream_call";
    ignis__capture *capture;
    ignis__callback *callback = NULL;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    if (!ignis__enter(call))
        return ignis__failed();
    if (!fn)
        return ignis__fail_null(call, "fn");
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    capture = ignis__capture_on(device);
    if (!ignis__stream_captured(call, device, stream, &captured) ||
        (captured && !capture && !ignis__fail_captured(call, "another thread captures the stream"))) {
        callback = NULL; /* reported */
    } else if ((callback = (ignis__callback *)ignis__alloc_for(call, sizeof *callback)) != NULL) {
        callback->fn = fn;
        callback->user_data = user_data;
        callback->captured = captured;
        if (!captured) {
            ignis__mutex_lock(&ignis__callbacks.lock);
            callback->next = ignis__callbacks.first;
            ignis__callbacks.first = callback;
            ignis__mutex_unlock(&ignis__callbacks.lock);
        }
        if (captured && !ignis__capture_hold(call, capture, callback, NULL, ignis__callback_drop))
            ignis__free(callback);
        else
            ok = !IGNIS__CUDA_FAILED(call, device, cuLaunchHostFunc, (stream, ignis__callback_run, callback));
        if (!ok && !captured)
            ignis__callback_free(callback);
    }
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Those that are never called, after a fault. The devices are idle. */
IGNIS__COLD static void ignis__callbacks_close(void)
{
    while (ignis__callbacks.first)
        ignis__callback_free(ignis__callbacks.first);
}

IGNIS_API ignis_status ignis_synchronize(void)
{
    static const char call[] = "ignis_synchronize";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return ignis__failed();
    ok = ignis__device_wait(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/* ===============================================================================================================
   >>profile - what runs, and how long: written down here, and made into reports further below.
   =============================================================================================================== */

typedef enum ignis__traced_kind {
    IGNIS__TRACED_CALL, /* on the host */
    IGNIS__TRACED_KERNEL,
    IGNIS__TRACED_COPY,
    IGNIS__TRACED_GRAPH,
    IGNIS__TRACED_COLLECTIVE,
    IGNIS__TRACED_MEMORY /* what a device has in use from then on */
} ignis__traced_kind;

typedef struct ignis__traced {
    ignis__traced_kind kind;
    int device, thread, line, rate;
    bool told;
    uint64_t operation;
    const char *call, *file; /* file may be null */
    char name[72];
    void *stream, *first, *last; /* events; null of what the host does */
    int64_t begin_ns, end_ns;    /* on the host */
    double bytes, flops;         /* 0: not known */
    int64_t at_ns;               /* on the device, by the host's clock, once it was asked; and how long, -1 where that is not known */
    double ms;
} ignis__traced;

#define IGNIS__TRACED_MOST ((size_t)1 << 18) /* what comes later is counted alone */

static struct {
    uint64_t on; /* read without the lock, as one branch of a launch */
    ignis__traced *items;
    size_t count, capacity, lost;
    int threads;
    int64_t begin_ns;
    struct {
        void *event; /* recorded when the host's clock was at ns */
        int64_t ns;
    } base[IGNIS_MAX_DEVICES];
    struct ignis__named *named[64]; /* names of functions, always kept */
    ignis_profile_row *rows;        /* of the last one that has ended */
    int row_count;
} ignis__profile;

static ignis__mutex ignis__profile_lock = IGNIS__MUTEX_INIT;

static bool ignis__profiling(void) { return ignis__atomic_load(&ignis__profile.on) != 0; }

/*  The names of kernels, by their functions. */
typedef struct ignis__named {
    void *function;
    char name[72];
    struct ignis__named *next;
} ignis__named;

/*  Without memory a function has no name. */
IGNIS__COLD static void ignis__function_name(void *function, const char *name)
{
    ignis__named **list = &ignis__profile.named[((uintptr_t)function >> 4) % 64], *named;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = *list; named && named->function != function; named = named->next)
        ;
    if (!named && (named = (ignis__named *)ignis__alloc(sizeof *named)) != NULL) {
        named->function = function;
        named->next = *list;
        *list = named;
    }
    if (named)
        snprintf(named->name, sizeof named->name, "%s", name);
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  The next kernel that this thread launches reads and writes so many bytes; of less than 0, what its operands have. rate: an ignis_dtype. */
static void ignis__cost(double bytes, double flops, int rate)
{
    ignis__thread *thread = &ignis__this_thread;
    if (!ignis__profiling())
        return;
    if (bytes >= 0)
        thread->bytes = bytes;
    thread->told = bytes >= 0;
    thread->flops = flops;
    thread->rate = rate;
}

/*  Puts an item into the profile, if there is one still; its events are those of the profile then. */
IGNIS__COLD static bool ignis__traced_add(const ignis__traced *traced)
{
    ignis__traced *items;
    size_t capacity;
    bool ok = false;
    ignis__mutex_lock(&ignis__profile_lock);
    if (ignis__profiling() && traced->begin_ns >= ignis__profile.begin_ns) {
        capacity = ignis__profile.capacity;
        if (ignis__profile.count == capacity && capacity < IGNIS__TRACED_MOST) {
            capacity = capacity ? 2 * capacity : 1024;
            items = (ignis__traced *)ignis__alloc(capacity * sizeof *items);
            if (items) {
                if (ignis__profile.count)
                    memcpy(items, ignis__profile.items, ignis__profile.count * sizeof *items);
                ignis__free(ignis__profile.items);
                ignis__profile.items = items;
                ignis__profile.capacity = capacity;
            }
        }
        ok = ignis__profile.count < ignis__profile.capacity;
        if (ok)
            ignis__profile.items[ignis__profile.count++] = *traced;
        else
            ignis__profile.lost++;
    }
    ignis__mutex_unlock(&ignis__profile_lock);
    return ok;
}

IGNIS__COLD static void ignis__traced_events_free(ignis__traced *traced)
{
    if (traced->first)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->first));
    if (traced->last)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->last));
    traced->first = traced->last = NULL;
}

/*  Something of this thread begins now. */
IGNIS__COLD static void ignis__traced_begin(ignis__traced *traced, ignis__traced_kind kind, const char *call, const ignis__device *device)
{
    ignis__thread *thread = &ignis__this_thread;
    memset(traced, 0, sizeof *traced);
    if (!thread->number) {
        ignis__mutex_lock(&ignis__profile_lock);
        thread->number = ++ignis__profile.threads;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    traced->kind = kind;
    traced->device = ignis__device_ordinal(device);
    traced->thread = thread->number;
    traced->call = call;
    traced->file = thread->file;
    traced->line = thread->line;
    traced->begin_ns = ignis__monotonic_ns();
}

/*  Relates the clocks of host and device, which is entered, on a stream that has nothing to do and waits for no other. */
IGNIS__COLD static void ignis__profile_base(ignis__device *device)
{
    int index = ignis__device_ordinal(device);
    void *event = NULL, *stream = NULL;
    ignis__mutex_lock(&ignis__profile_lock);
    if (!ignis__profile.base[index].event && IGNIS__CUDA(cuStreamCreate, (&stream, IGNIS__CU_STREAM_NON_BLOCKING)) == 0) {
        if (IGNIS__CUDA(cuEventCreate, (&event, IGNIS__CU_EVENT_DEFAULT)) == 0) {
            (void)IGNIS__CUDA(cuEventRecord, (event, stream));
            (void)IGNIS__CUDA(cuEventSynchronize, (event));
            ignis__profile.base[index].event = event;
            ignis__profile.base[index].ns = ignis__monotonic_ns();
        }
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
    }
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  What is queued on a stream between the two is an item of the profile. Work that a capture records is none: it has no time yet. False: no
    profile, or no events, which is counted. The device is entered. function: of a kernel; name: of anything else. */
IGNIS__COLD static bool ignis__traced_open(ignis__traced *traced, ignis__traced_kind kind, const char *call, ignis__device *device,
                                           void *stream, void *function, const char *name)
{
    ignis__thread *thread = &ignis__this_thread;
    const ignis__named *named;
    bool ok;
    if (ignis__capture_on(device)) {
        thread->bytes = thread->flops = 0;
        return false;
    }
    ignis__profile_base(device);
    ignis__traced_begin(traced, kind, call, device);
    traced->stream = stream;
    traced->bytes = thread->bytes;
    traced->flops = thread->flops;
    traced->rate = thread->rate;
    traced->told = thread->told;
    traced->operation = thread->operation;
    traced->ms = -1;
    thread->bytes = thread->flops = 0;
    thread->told = false;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = ignis__profile.named[((uintptr_t)function >> 4) % 64]; function && named && named->function != function;
         named = named->next)
        ;
    snprintf(traced->name, sizeof traced->name, "%s", name ? name : named ? named->name : call);
    ignis__mutex_unlock(&ignis__profile_lock);
    ok = IGNIS__CUDA(cuEventCreate, (&traced->first, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventCreate, (&traced->last, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventRecord, (traced->first, stream)) == 0;
    if (!ok) {
        ignis__traced_events_free(traced);
        ignis__mutex_lock(&ignis__profile_lock);
        ignis__profile.lost++;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    return ok;
}

/*  ok: what was between the two has been queued. */
IGNIS__COLD static bool ignis__traced_close(ignis__traced *traced, bool ok)
{
    bool recorded = ok && IGNIS__CUDA(cuEventRecord, (traced->last, traced->stream)) == 0;
    traced->end_ns = ignis__monotonic_ns();
    if (!recorded || !ignis__traced_add(traced))
        ignis__traced_events_free(traced);
    return ok;
}

/*  The same for what copies or fills so many bytes. */
static bool ignis__traced_copy(ignis__traced *traced, const char *call, ignis__device *device, void *stream, const char *name, int64_t size)
{
    if (!ignis__profiling())
        return false;
    ignis__cost((double)size, 0, 0);
    return ignis__traced_open(traced, IGNIS__TRACED_COPY, call, device, stream, NULL, name);
}

/*  What a device has in use from now on. */
IGNIS__COLD static void ignis__traced_memory(int device, int64_t live, int64_t reserved)
{
    ignis__traced traced = IGNIS__ZERO;
    traced.kind = IGNIS__TRACED_MEMORY;
    traced.device = device;
    traced.begin_ns = ignis__monotonic_ns();
    traced.bytes = (double)live;
    traced.flops = (double)reserved;
    (void)ignis__traced_add(&traced);
}

/*  A call on the host that began at begin_ns and ends now. */
IGNIS__COLD static void ignis__traced_call(const char *call, const ignis__device *device, int64_t begin_ns)
{
    ignis__traced traced;
    ignis__traced_begin(&traced, IGNIS__TRACED_CALL, call, device);
    traced.end_ns = traced.begin_ns;
    traced.begin_ns = begin_ns;
    (void)ignis__traced_add(&traced);
}

/* ===============================================================================================================
   >>memory - a caching allocator per device, ordered by streams; pinned host memory.
   =============================================================================================================== */

/*  Driver allocations ("segments") are cut into blocks. A free block belongs to the stream it was freed on: work queued on that
    stream is ordered before its next use there, so it can be handed out again at once. Another stream may take it only after
    waiting for an event of that stream. Blocks are kept in bins by size, each bin sorted, so the first that fits fits best.
    Small requests live in segments of their own, so that they do not nail large ones down. */
#define IGNIS__BLOCK_UNIT 512
#define IGNIS__SMALL_LIMIT ((int64_t)1 << 20)
#define IGNIS__SMALL_SEGMENT ((int64_t)2 << 20)
#define IGNIS__MEDIUM_LIMIT ((int64_t)10 << 20)
#define IGNIS__MEDIUM_SEGMENT ((int64_t)20 << 20)
#define IGNIS__BINS 512
#define IGNIS__NO_HOST_MEMORY (-1) /* beside the driver's error numbers */

/*  What memory was taken for. */
typedef struct ignis__origin {
    const char *call, *inside, *file; /* the last two may be null */
    int line;
    char tag[32];
} ignis__origin;

static void ignis__origin_now(ignis__origin *origin, const char *call)
{
    const ignis__thread *thread = &ignis__this_thread;
    origin->call = call;
    origin->inside = thread->inside ? thread->inside->call : NULL;
    origin->file = thread->file;
    origin->line = thread->line;
}

/*  A row of what is counted. */
typedef struct ignis__counted {
    ignis_memory_row row; /* its peak is that of the peak with the number... */
    uint64_t peaks;       /* ...and the live bytes where there was another one since */
    struct ignis__counted *next;
} ignis__counted;

typedef struct ignis__block {
    ignis__address address;
    int64_t size;
    ignis__origin origin;           /* of its last use; call is null when it is over */
    ignis__counted *counted;        /* null: nobody counts */
    struct ignis__cache_part *part; /* stream and size class it belongs to */
    bool used;
    struct ignis__block *below, *above;    /* neighbours in the segment */
    struct ignis__block *smaller, *larger; /* neighbours in the bin */
    struct ignis__block *next_segment;     /* of a segment's first block, which lives as long as the segment */
} ignis__block;

typedef struct ignis__cache_part {
    void *stream;  /* or the capture whose memory this is */
    bool captured; /* its blocks are used by a graph: no other stream takes them, and their segments stay */
    bool is_small;
    struct ignis__cache_part *next;
    ignis__block *zeroed;              /* of what ignis__memory_take_zeroed gives, linked by `larger`: in no bin, as if used */
    uint64_t filled[IGNIS__BINS / 64]; /* a bit for each bin that is not empty */
    ignis__block *bins[IGNIS__BINS];
} ignis__cache_part;

/*  Pinned host memory: of the caller, or a piece through which Ignis copies. */
typedef struct ignis__pinned {
    void *memory;
    int64_t size;
    struct ignis__pinned *next;
} ignis__pinned;

typedef struct ignis__cache {
    ignis__pinned *lent, *spare;   /* by ignis_host_alloc; pieces that nobody uses now */
    ignis__mutex lock;             /* which nobody holds during a call that may wait for the device: */
    ignis__mutex asking, trimming; /* taken before lock by who asks the driver for memory, and by who gives it back */
    ignis__cache_part *parts;
    ignis__block *segments;     /* their first blocks */
    ignis__block *spare_blocks; /* block structs for reuse, linked by `above` */
    ignis_memory_info info;
    ignis__counted *counted; /* with ignis_desc.trace_memory */
    uint64_t peaks;          /* of live_bytes so far */
} ignis__cache;

static ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
static bool ignis__memory_bypass, ignis__memory_traced;
static uint64_t ignis__pinned_bytes;

/*  Up to 63 units each size has its bin; above, a power of two has eight. */
static int ignis__bin_of(int64_t size)
{
    uint64_t units = (uint64_t)size / IGNIS__BLOCK_UNIT;
    int log;
    if (units < 64)
        return (int)units;
    log = ignis__log2(units);
    return 64 + (log - 6) * 8 + (int)(units >> (log - 3) & 7);
}

static void ignis__bin_insert(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__block **head = &block->part->bins[bin], *after = *head, *before = NULL;
    while (after && after->size < block->size) {
        before = after;
        after = after->larger;
    }
    block->smaller = before;
    block->larger = after;
    if (before)
        before->larger = block;
    else
        *head = block;
    if (after)
        after->smaller = block;
    block->part->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void ignis__bin_remove(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__cache_part *part = block->part;
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        part->bins[bin] = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
    if (!part->bins[bin])
        part->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    block->smaller = block->larger = NULL;
}

static ignis__block *ignis__bin_best(const ignis__cache_part *part, int64_t size)
{
    int bin = ignis__bin_of(size), word = (bin + 1) / 64;
    ignis__block *block = part->bins[bin];
    uint64_t bits;
    while (block && block->size < size)
        block = block->larger;
    if (block)
        return block;
    bits = word < IGNIS__BINS / 64 ? part->filled[word] & ~(uint64_t)0 << (bin + 1) % 64 : 0;
    while (!bits && ++word < IGNIS__BINS / 64)
        bits = part->filled[word];
    return bits ? part->bins[word * 64 + ignis__lowest_bit(bits)] : NULL;
}

/*  The stream's part for a size class, made when it is new; null: out of host memory. */
static ignis__cache_part *ignis__cache_part_of(ignis__cache *cache, void *stream, bool captured, bool is_small)
{
    ignis__cache_part *part = cache->parts;
    while (part && !(part->stream == stream && part->is_small == is_small))
        part = part->next;
    if (!part && (part = (ignis__cache_part *)ignis__alloc(sizeof *part)) != NULL) {
        part->stream = stream;
        part->captured = captured;
        part->is_small = is_small;
        part->next = cache->parts;
        cache->parts = part;
    }
    return part;
}

static ignis__block *ignis__block_take(ignis__cache *cache, ignis__cache_part *part, ignis__address address, int64_t size)
{
    ignis__block *block = cache->spare_blocks;
    if (block) {
        cache->spare_blocks = block->above;
        memset(block, 0, sizeof *block);
    } else {
        block = (ignis__block *)ignis__alloc(sizeof *block);
        if (!block)
            return NULL;
    }
    block->part = part;
    block->address = address;
    block->size = size;
    return block;
}

static void ignis__block_give(ignis__cache *cache, ignis__block *block)
{
    block->above = cache->spare_blocks;
    cache->spare_blocks = block;
}

/*  Joins `block` with the one above it, which goes. Both are free and in no bin. */
static void ignis__block_join(ignis__cache *cache, ignis__block *block)
{
    ignis__block *above = block->above;
    block->size += above->size;
    block->above = above->above;
    if (block->above)
        block->above->below = block;
    ignis__block_give(cache, above);
}

/*  Puts a block that became free into its bin, joined with free neighbours of the same stream. */
static void ignis__block_unuse(ignis__cache *cache, ignis__block *block)
{
    block->used = false;
    if (block->above && !block->above->used && block->above->part == block->part) {
        ignis__bin_remove(block->above);
        ignis__block_join(cache, block);
    }
    if (block->below && !block->below->used && block->below->part == block->part) {
        block = block->below;
        ignis__bin_remove(block);
        ignis__block_join(cache, block);
    }
    ignis__bin_insert(block);
}

/*  Takes a free block out of its bin for `size` bytes, and gives the rest back. Without host memory for the rest it keeps all. */
static void ignis__block_use(ignis__cache *cache, ignis__block *block, int64_t size)
{
    ignis__bin_remove(block);
    block->used = true;
    if (block->size > size) {
        ignis__block *rest = ignis__block_take(cache, block->part, block->address + (uint64_t)size, block->size - size);
        if (rest) {
            rest->below = block;
            rest->above = block->above;
            if (rest->above)
                rest->above->below = rest;
            block->above = rest;
            block->size = size;
            ignis__bin_insert(rest);
        }
    }
}

/*  The row of an origin in a list, added if it is new; null: out of host memory. */
IGNIS__COLD static ignis__counted *ignis__counted_find(ignis__counted **list, const ignis__origin *origin)
{
    const char *inside = origin->inside ? origin->inside : "", *file = origin->file ? origin->file : "";
    ignis__counted *counted = *list;
    while (counted &&
           !(counted->row.call == origin->call && counted->row.line == origin->line && strcmp(counted->row.inside, inside) == 0 &&
             strcmp(counted->row.tag, origin->tag) == 0 && strcmp(counted->row.file, file) == 0))
        counted = counted->next;
    if (counted || (counted = (ignis__counted *)ignis__alloc(sizeof *counted)) == NULL)
        return counted;
    memcpy(counted->row.tag, origin->tag, sizeof counted->row.tag);
    counted->row.call = origin->call;
    counted->row.inside = inside;
    counted->row.file = file;
    counted->row.line = origin->line;
    counted->next = *list;
    return *list = counted;
}

/*  What a row had at the peak is what it has, unless that was written down when it changed later. */
static int64_t ignis__counted_peak(const ignis__cache *cache, const ignis__counted *counted)
{
    return counted->peaks == cache->peaks ? counted->row.peak_bytes : counted->row.live_bytes;
}

IGNIS__COLD static void ignis__counted_add(ignis__cache *cache, ignis__counted *counted, int64_t bytes)
{
    counted->row.peak_bytes = ignis__counted_peak(cache, counted);
    counted->peaks = cache->peaks;
    counted->row.live_bytes += bytes;
    counted->row.live_blocks += bytes > 0 ? 1 : -1;
}

static void ignis__counted_free(ignis__counted **list)
{
    while (*list) {
        ignis__counted *next = (*list)->next;
        ignis__free(*list);
        *list = next;
    }
}

static void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved)
{
    ignis_memory_info *info = &cache->info;
    info->live_bytes += live;
    info->live_blocks += (live > 0) - (live < 0);
    info->reserved_bytes += reserved;
    info->segments += (reserved > 0) - (reserved < 0);
    if (info->live_bytes > info->live_peak) {
        info->live_peak = info->live_bytes;
        cache->peaks++;
    }
    if (info->reserved_bytes > info->reserved_peak)
        info->reserved_peak = info->reserved_bytes;
    if (ignis__profiling())
        ignis__traced_memory((int)(cache - ignis__caches), info->live_bytes, info->reserved_bytes);
}

/*  A block begins to be used, or ends. */
static void ignis__block_begin(ignis__cache *cache, ignis__block *block, const ignis__origin *origin)
{
    block->origin = *origin;
    block->counted = ignis__memory_traced ? ignis__counted_find(&cache->counted, origin) : NULL;
    if (block->counted)
        ignis__counted_add(cache, block->counted, block->size);
    ignis__memory_count(cache, block->size, 0);
}

static void ignis__block_end(ignis__cache *cache, ignis__block *block)
{
    if (block->counted)
        ignis__counted_add(cache, block->counted, -block->size);
    ignis__memory_count(cache, -block->size, 0);
    block->counted = NULL;
    block->origin.call = NULL;
}

/*  A new segment as one free block in its bin, at least `size` bytes; null: no memory. The lock of the cache is given up for the driver, which
    may wait for the device. Only who asks it too waits for this, and may then find that there is memory already. The part is found anew each
    time, as another thread may have forgotten its stream; null: out of host memory. */
IGNIS__COLD static ignis__block *ignis__segment_make(ignis__cache *cache, ignis__cache_part **part, int64_t size, int64_t wanted,
                                                     int *error)
{
    void *stream = (*part)->stream;
    bool captured = (*part)->captured, is_small = (*part)->is_small;
    ignis__address address = 0;
    ignis__block *block = NULL;
    int64_t room;
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_lock(&cache->asking);
    ignis__mutex_lock(&cache->lock);
    *part = ignis__cache_part_of(cache, stream, captured, is_small);
    if (*part && !ignis__memory_bypass)
        block = ignis__bin_best(*part, size);
    room = cache->info.limit - cache->info.reserved_bytes;
    if (cache->info.limit && wanted > room)
        wanted = room / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    if (*part && !block && wanted >= size) {
        ignis__mutex_unlock(&cache->lock);
        *error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)wanted));
        ignis__mutex_lock(&cache->lock);
        *part = ignis__cache_part_of(cache, stream, captured, is_small);
        block = *part && *error == 0 ? ignis__block_take(cache, *part, address, wanted) : NULL;
        if (block) {
            block->next_segment = cache->segments;
            cache->segments = block;
            cache->info.driver_allocations++;
            ignis__memory_count(cache, 0, wanted);
            ignis__bin_insert(block);
        } else if (*error == 0) {
            (void)IGNIS__CUDA(cuMemFree_v2, (address));
            *error = IGNIS__NO_HOST_MEMORY;
        }
    }
    ignis__mutex_unlock(&cache->asking);
    return block;
}

static int64_t ignis__segment_size(int64_t size)
{
    int64_t step = IGNIS__SMALL_SEGMENT;
    if (size <= IGNIS__SMALL_LIMIT)
        return IGNIS__SMALL_SEGMENT;
    if (size < IGNIS__MEDIUM_LIMIT)
        return IGNIS__MEDIUM_SEGMENT;
    return size > INT64_MAX - step ? size : (size + step - 1) / step * step;
}

/*  Makes what a part has zeroed as free as any other block: of a graph that never ran, the words were not even zeroed. */
static void ignis__zeroed_unuse(ignis__cache *cache, ignis__cache_part *part)
{
    while (part->zeroed) {
        ignis__block *block = part->zeroed;
        part->zeroed = block->larger;
        block->larger = NULL;
        ignis__block_unuse(cache, block);
    }
}

/*  Takes every segment that is free from end to end out of the cache, whose lock is held. A list of them, by next_segment. */
IGNIS__COLD static ignis__block *ignis__segments_take(ignis__cache *cache)
{
    ignis__block **link = &cache->segments, *block, *taken = NULL;
    ignis__cache_part *part;
    for (part = cache->parts; part; part = part->next)
        if (!part->captured)
            ignis__zeroed_unuse(cache, part);
    while (*link) {
        ignis__block *first = *link;
        for (block = first; block && !block->used && !block->part->captured; block = block->above)
            ;
        if (block) {
            link = &first->next_segment;
            continue;
        }
        for (block = first; block; block = block->above)
            ignis__bin_remove(block);
        while (first->above)
            ignis__block_join(cache, first);
        *link = first->next_segment;
        first->next_segment = taken;
        taken = first;
    }
    return taken;
}

/*  Gives back every segment that is free from end to end. Waits for the device, so the streams of blocks do not matter any more. What runs there may
    wait for what another thread is about to launch: only who trims too waits for this. Returns the bytes, -1 after a failure. */
IGNIS__COLD static int64_t ignis__cache_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__block *taken, *first;
    int64_t freed = 0;
    bool ok = true;
    if (ignis__atomic_load(&device->captures))
        return 0;
    ignis__mutex_lock(&cache->trimming);
    ignis__mutex_lock(&cache->lock);
    taken = ignis__segments_take(cache);
    ignis__mutex_unlock(&cache->lock);
    if (taken)
        ok = ignis__device_wait(call, device);
    while ((first = taken) != NULL) {
        taken = first->next_segment;
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        ignis__mutex_lock(&cache->lock);
        if (ok) {
            cache->info.driver_frees++;
            freed += first->size;
            ignis__memory_count(cache, 0, -first->size);
            ignis__block_give(cache, first);
        } else {
            first->next_segment = cache->segments;
            cache->segments = first;
            ignis__bin_insert(first);
        }
        ignis__mutex_unlock(&cache->lock);
    }
    ignis__mutex_unlock(&cache->trimming);
    return ok ? freed : -1;
}

/*  The best free block of another stream, after making `part`'s stream wait for what that stream still does with it. */
IGNIS__COLD static ignis__block *ignis__block_steal(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part,
                                                    int64_t size)
{
    ignis__cache_part *other;
    ignis__block *best = NULL;
    for (other = cache->parts; other; other = other->next) {
        ignis__block *block = other == part || other->captured ? NULL : ignis__bin_best(other, size);
        if (block && (!best || block->size < best->size))
            best = block;
    }
    if (!best || !ignis__stream_order(call, device, best->part->stream, device, part->stream))
        return NULL;
    ignis__block_use(cache, best, size); /* cut first, so that the rest stays with its stream */
    best->part = part;
    best->used = false;
    ignis__bin_insert(best);
    return best;
}

/*  A free block in its bin, at least `size` bytes; null: no memory. The lock of the cache is given up while it waits for the device. */
static ignis__block *ignis__memory_find(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part, int64_t size,
                                        int *error)
{
    ignis__block *block = ignis__bin_best(part, size);
    void *stream = part->stream;
    bool is_small = part->is_small, trimmed;
    if (block) {
        cache->info.cache_hits++;
        return block;
    }
    block = ignis__segment_make(cache, &part, size, ignis__segment_size(size), error);
    if (!block && part)
        block = ignis__segment_make(cache, &part, size, size, error);
    if (block || !part || part->captured || ignis__capturing()) /* the rest needs events or waits */
        return block;
    block = ignis__block_steal(call, device, cache, part, size);
    if (block)
        return block;
    ignis__mutex_unlock(&cache->lock);
    trimmed = ignis__cache_trim(call, device, cache) >= 0;
    ignis__mutex_lock(&cache->lock);
    part = trimmed ? ignis__cache_part_of(cache, stream, false, is_small) : NULL;
    block = part ? ignis__bin_best(part, size) : NULL;
    return block || !part ? block : ignis__segment_make(cache, &part, size, size, error);
}

IGNIS__COLD static int64_t ignis__cache_largest_free(const ignis__cache *cache)
{
    const ignis__cache_part *part;
    int64_t largest = 0;
    int word;
    for (part = cache->parts; part; part = part->next) {
        for (word = IGNIS__BINS / 64 - 1; word >= 0; word--) {
            const ignis__block *block;
            if (!part->filled[word])
                continue;
            for (block = part->bins[word * 64 + ignis__log2(part->filled[word])]; block; block = block->larger)
                if (block->size > largest)
                    largest = block->size;
            break;
        }
    }
    return largest;
}

/*  "1.50 GiB", "20.0 MiB", "512 bytes". */
IGNIS__COLD static ignis__label ignis__size_write(int64_t bytes)
{
    ignis__label out;
    ignis__text text;
    ignis__text_begin(&text, out.text, sizeof out.text);
    if (bytes >= (int64_t)1 << 30)
        ignis__text_add(&text, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= 1 << 20)
        ignis__text_add(&text, "%.1f MiB", (double)bytes / (1 << 20));
    else
        ignis__text_add(&text, "%lld bytes", (long long)bytes);
    return out;
}

IGNIS__COLD static ignis_status ignis__fail_device_memory(const char *call, ignis__device *device, const ignis__cache *cache, int64_t size,
                                                          int error)
{
    size_t available = 0, total = 0;
    const ignis_memory_info *info = &cache->info;
    char limit[sizeof(ignis__label) + 16] = "no limit is set";
    if (error != 0 && error != IGNIS__CU_OUT_OF_MEMORY)
        return ignis__cuda_fail(call, device, "cuMemAlloc_v2", error);
    (void)IGNIS__CUDA(cuMemGetInfo_v2, (&available, &total)); /* for the sentence only */
    if (info->limit)
        snprintf(limit, sizeof limit, "the limit is %s", ignis__size_write(info->limit).text);
    return ignis__fail_because(
        IGNIS_DIAG_DEVICE_MEMORY, call, error, error ? ignis__cuda_name(error) : NULL, NULL,
        "out of memory on device %d: %s were asked for; arrays use %s of %s reserved (largest free block %s), %s, %s beside that are VMM "
        "memory, and the device has %s of %s free",
        ignis__device_ordinal(device), ignis__size_write(size).text, ignis__size_write(info->live_bytes).text,
        ignis__size_write(info->reserved_bytes).text, ignis__size_write(ignis__cache_largest_free(cache)).text, limit,
        ignis__size_write(info->vmm_bytes).text, ignis__size_write((int64_t)available).text, ignis__size_write((int64_t)total).text);
}

/*  Memory of at least `size` bytes for work on `stream`; null on failure. The device is entered. */
static ignis__block *ignis__memory_take_for(const char *call, const ignis__origin *origin, ignis__device *device, void *stream,
                                            int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part *part;
    ignis__block *block = NULL;
    int64_t rounded = size > INT64_MAX - IGNIS__BLOCK_UNIT ? size : (size + IGNIS__BLOCK_UNIT - 1) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    ignis__capture *capture = ignis__capture_on(device);
    int error = 0;

    ignis__mutex_lock(&cache->lock);
    cache->info.allocations++;
    part = ignis__cache_part_of(cache, capture ? (void *)capture : stream, capture != NULL, rounded <= IGNIS__SMALL_LIMIT);
    if (!part)
        error = IGNIS__NO_HOST_MEMORY;
    if (part && ignis__memory_bypass) /* exact sizes, so that a memory checker sees every byte beyond them */
        block = ignis__segment_make(cache, &part, size, size, &error);
    else if (part)
        block = ignis__memory_find(call, device, cache, part, rounded, &error);
    if (block) {
        ignis__block_use(cache, block, ignis__memory_bypass ? block->size : rounded);
        ignis__block_begin(cache, block, origin);
    } else if (error == IGNIS__NO_HOST_MEMORY) {
        ignis__fail_host_memory(call, part ? sizeof *block : sizeof *part);
    } else if (!ignis__devices_lost()) {
        ignis__fail_device_memory(call, device, cache, size, error);
    }
    ignis__mutex_unlock(&cache->lock);
    return block;
}

static ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size)
{
    ignis__origin origin;
    ignis__origin_now(&origin, call);
    memset(origin.tag, 0, sizeof origin.tag);
    return ignis__memory_take_for(call, &origin, device, stream, size);
}

/*  Gives memory back in the order of its stream. The device is entered. */
static void ignis__memory_give(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    ignis__block_unuse(cache, block);
    ignis__mutex_unlock(&cache->lock);
    if (ignis__memory_bypass && !ignis__capturing())
        (void)ignis__cache_trim(call, device, cache);
}

/*  A word of 8 bytes that is 0 when the stream gets to it. Null on failure. The device is entered.
    Kernels leave it 0, so one that was given back needs no zeroing for its next use on the stream. In a graph, the first use zeroes it. */
IGNIS__MAYBE_UNUSED static ignis__block *ignis__memory_take_zeroed(const char *call, ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__capture *capture = ignis__capture_on(device);
    ignis__cache_part *part;
    ignis__origin origin = IGNIS__ZERO;
    ignis__block *block;
    ignis__mutex_lock(&cache->lock);
    part = ignis__cache_part_of(cache, capture ? (void *)capture : stream, capture != NULL, true);
    block = part ? part->zeroed : NULL;
    if (block) {
        part->zeroed = block->larger;
        block->larger = NULL;
        cache->info.allocations++;
        cache->info.cache_hits++;
        ignis__origin_now(&origin, call);
        ignis__block_begin(cache, block, &origin);
    }
    ignis__mutex_unlock(&cache->lock);
    if (block || (block = ignis__memory_take(call, device, stream, 8)) == NULL)
        return block;
    if (!IGNIS__CUDA_FAILED(call, device, cuMemsetD8Async, (block->address, 0, 8, stream)))
        return block;
    ignis__memory_give(call, device, block);
    return NULL;
}

/*  Gives the word back after its kernels were queued. One that may not be 0 is for ignis__memory_give. */
IGNIS__MAYBE_UNUSED static void ignis__memory_give_zeroed(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    if (ignis__memory_bypass) {
        ignis__memory_give(call, device, block);
        return;
    }
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    block->larger = block->part->zeroed;
    block->part->zeroed = block;
    ignis__mutex_unlock(&cache->lock);
}

static void ignis__cache_part_merge(ignis__cache *cache, ignis__cache_part *from, ignis__cache_part *into)
{
    ignis__block *first, *block;
    ignis__zeroed_unuse(cache, from);
    for (first = cache->segments; first; first = first->next_segment) {
        for (block = first; block; block = block->above) {
            if (block->part != from)
                continue;
            if (!block->used)
                ignis__bin_remove(block);
            block->part = into;
            if (!block->used)
                ignis__bin_insert(block);
        }
    }
}

/*  Hands a stream's blocks, free and used, to Ignis' own stream. The stream is idle. */
IGNIS__COLD static void ignis__memory_forget_stream(ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part **link = &cache->parts;
    ignis__mutex_lock(&cache->trimming); /* what it has taken out of the cache may come back to its part */
    ignis__mutex_lock(&cache->lock);
    while (*link) {
        ignis__cache_part *part = *link, *own = cache->parts;
        while (own && !(own->stream == device->stream && !own->captured && own->is_small == part->is_small))
            own = own->next;
        if (part->stream == stream && own) {
            ignis__cache_part_merge(cache, part, own);
            *link = part->next;
            ignis__free(part);
            continue;
        }
        if (part->stream == stream) {
            ignis__zeroed_unuse(cache, part);
            part->stream = device->stream;
            part->captured = false;
        }
        link = &part->next;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_unlock(&cache->trimming);
}

IGNIS__COLD static void ignis__memory_setup(int64_t limit, bool bypass, bool traced)
{
    int i;
    ignis__memory_bypass = bypass;
    ignis__memory_traced = traced;
    ignis__pinned_bytes = 0;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__caches[i], 0, sizeof ignis__caches[i]);
        ignis__mutex_init(&ignis__caches[i].lock);
        ignis__mutex_init(&ignis__caches[i].asking);
        ignis__mutex_init(&ignis__caches[i].trimming);
        ignis__caches[i].info.limit = limit;
    }
}

/*  Frees every segment and all host memory of a device's cache. Its context is current. */
IGNIS__COLD static void ignis__memory_close(const char *call, ignis__device *device)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    bool lost = ignis__devices_lost(); /* then each call would fail with the error that is known already */
    while (cache->segments) {
        ignis__block *first = cache->segments, *block = first;
        cache->segments = first->next_segment;
        if (lost)
            (void)IGNIS__CUDA(cuMemFree_v2, (first->address));
        else
            (void)IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        while (block) {
            ignis__block *above = block->above;
            ignis__block_give(cache, block);
            block = above;
        }
    }
    while (cache->spare_blocks) {
        ignis__block *block = cache->spare_blocks;
        cache->spare_blocks = block->above;
        ignis__free(block);
    }
    while (cache->lent || cache->spare) {
        ignis__pinned **list = cache->lent ? &cache->lent : &cache->spare, *pinned = *list;
        *list = pinned->next;
        (void)IGNIS__CUDA(cuMemFreeHost, (pinned->memory)); /* fails with what is known already, if at all */
        ignis__free(pinned);
    }
    while (cache->parts) {
        ignis__cache_part *part = cache->parts;
        cache->parts = part->next;
        ignis__free(part);
    }
    ignis__counted_free(&cache->counted);
}

/*  What the driver knows of an address: the type of memory, 0 where it knows none (pageable host memory), and its device. */
static bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type, int *ordinal)
{
    int attributes[2] = {IGNIS__CU_POINTER_MEMORY_TYPE, IGNIS__CU_POINTER_ORDINAL};
    void *values[2] = {type, ordinal};
    *type = *ordinal = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  The allocation, or the reserved range of addresses, that an address lies in; a size of 0 where the driver does not tell. */
static bool ignis__address_range(const char *call, ignis__device *device, const void *ptr, ignis__address *start, size_t *size)
{
    int attributes[2] = {IGNIS__CU_POINTER_RANGE_START, IGNIS__CU_POINTER_RANGE_SIZE};
    void *values[2] = {start, size};
    *start = 0;
    *size = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  Pinned host memory; the device is entered. Null on failure. */
static void *ignis__pinned_take(const char *call, ignis__device *device, int64_t size)
{
    void *memory = NULL;
    int error = IGNIS__CUDA(cuMemHostAlloc, (&memory, (size_t)size, 0));
    if (error == 0) {
        ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)size);
        return memory;
    }
    if (error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__fail_because(IGNIS_DIAG_PINNED_MEMORY, call, error, ignis__cuda_name(error), NULL,
                            "out of pinned host memory: %lld bytes were asked for, %lld are pinned already", (long long)size,
                            (long long)ignis__atomic_load(&ignis__pinned_bytes));
    else
        ignis__cuda_fail(call, device, "cuMemHostAlloc", error);
    return NULL;
}

/*  Waits for the device, as copies may still use the memory, and frees that (null: nothing), also when the device cannot be entered; after a fault
    there is nothing to wait for, and the memory ends with the process. */
static ignis_status ignis__pinned_end(const char *call, ignis__device *device, void *memory)
{
    ignis__binding binding;
    bool entered, ok;
    if (ignis__devices_lost())
        return IGNIS_OK;
    entered = ignis__device_enter_to_give(call, device, &binding);
    ok = entered && ignis__device_wait(call, device);
    if (memory && IGNIS__CUDA_FAILED(call, device, cuMemFreeHost, (memory)))
        ok = false;
    if (entered)
        ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__pinned_give(const char *call, ignis__device *device, void *memory, int64_t size)
{
    ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)-size);
    return ignis__pinned_end(call, device, memory);
}

/*  New pinned memory with what Ignis knows of it; null on failure. The device is entered. */
IGNIS__COLD static ignis__pinned *ignis__pinned_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__pinned *pinned = (ignis__pinned *)ignis__alloc_for(call, sizeof *pinned);
    if (!pinned)
        return NULL;
    pinned->size = size;
    pinned->memory = ignis__pinned_take(call, device, size);
    if (pinned->memory)
        return pinned;
    ignis__free(pinned);
    return NULL;
}

static void ignis__pinned_keep(ignis__device *device, ignis__pinned **list, ignis__pinned *pinned)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    pinned->next = *list;
    *list = pinned;
    ignis__mutex_unlock(&cache->lock);
}

/*  A piece of pinned memory that Ignis uses for a while, with room for so many bytes: the smallest spare one that has, or a new one.
    ignis__piece_give gives it back, or ignis__piece_keep when nothing uses it any more. */
#define IGNIS__PIECE ((int64_t)1 << 20) /* to copy through */
static ignis__pinned *ignis__piece_take(const char *call, ignis__device *device, int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__pinned *piece = NULL, **link, **best = NULL;
    int64_t room = 4096; /* few sizes, so that pieces fit again */
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link; link = &(*link)->next)
        if ((*link)->size >= size && (!best || (*link)->size < (*best)->size))
            best = link;
    if (best) {
        piece = *best;
        *best = piece->next;
    }
    ignis__mutex_unlock(&cache->lock);
    while (room < size && room < IGNIS__PIECE)
        room *= 2;
    return piece ? piece : ignis__pinned_make(call, device, room < size ? size : room);
}

/*  Gives a piece back that nothing uses any more. */
static void ignis__piece_keep(ignis__device *device, ignis__pinned *piece)
{
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].spare, piece);
}

/*  Waits for the device, then keeps a piece, or frees it where it is large. But CUDA waits for all devices to free it, one of which may wait for what
    this thread has yet to begin, if both are ranks of this process: where there are others, it is kept. */
IGNIS__MAYBE_UNUSED static ignis_status ignis__piece_give(const char *call, ignis__device *device, ignis__pinned *piece)
{
    ignis_status status;
    int opened = 0, i;
    for (i = 0; i < ignis__device_total; i++)
        opened += ignis__atomic_load(&ignis__devices[i].opened) != 0;
    if (piece->size > IGNIS__PIECE && opened <= 1) {
        status = ignis__pinned_give(call, device, piece->memory, piece->size);
        ignis__free(piece);
        return status;
    }
    status = ignis__pinned_end(call, device, NULL);
    ignis__piece_keep(device, piece);
    return status;
}

/*  Frees the large ones of a device's spare pieces. */
IGNIS__COLD static bool ignis__pieces_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__pinned *taken = NULL, *piece, **link;
    bool ok = true;
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link;)
        if ((*link)->size > IGNIS__PIECE) {
            piece = *link;
            *link = piece->next;
            piece->next = taken;
            taken = piece;
        } else {
            link = &(*link)->next;
        }
    ignis__mutex_unlock(&cache->lock);
    while ((piece = taken) != NULL) {
        taken = piece->next;
        ok = ignis__pinned_give(call, device, piece->memory, piece->size) == IGNIS_OK && ok;
        ignis__free(piece);
    }
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_host_alloc(int64_t size)
{
    static const char call[] = "ignis_host_alloc";
    ignis__pinned *pinned;
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return NULL;
    if (size < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 1", (long long)size);
        return NULL;
    }
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    pinned = ignis__pinned_make(call, device, size);
    ignis__device_leave(&binding);
    if (!pinned)
        return NULL;
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].lent, pinned);
    return pinned->memory;
}

IGNIS__COLD IGNIS_API ignis_status ignis_host_free(void *memory)
{
    static const char call[] = "ignis_host_free";
    ignis__pinned *pinned = NULL, **link;
    ignis_status status;
    int i;
    if (!memory)
        return IGNIS_OK;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capture_refuses(call))
        return ignis__failed();
    for (i = 0; !pinned && i < ignis__device_total; i++) {
        ignis__cache *cache = &ignis__caches[i];
        ignis__mutex_lock(&cache->lock);
        for (link = &cache->lent; *link && (*link)->memory != memory; link = &(*link)->next)
            ;
        pinned = *link;
        if (pinned)
            *link = pinned->next;
        ignis__mutex_unlock(&cache->lock);
    }
    if (!pinned)
        return ignis__fail(IGNIS_DIAG_HOST_UNKNOWN, call, "%p is no address of ignis_host_alloc, or was freed already", memory);
    status = ignis__pinned_give(call, &ignis__devices[i - 1], memory, pinned->size);
    ignis__free(pinned);
    return status;
}

IGNIS__COLD static void ignis__pinned_leaked(const char *call)
{
    const ignis__pinned *pinned;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (pinned = ignis__caches[i].lent; pinned; pinned = pinned->next)
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "pinned host memory %p of ignis_host_alloc, %lld bytes", pinned->memory,
                               (long long)pinned->size);
}

IGNIS__COLD IGNIS_API ignis_status ignis_memory_query(int ordinal, ignis_memory_info *info)
{
    static const char call[] = "ignis_memory_query";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    size_t available = 0, total = 0;
    bool ok;
    if (!ignis__enter(call) || !ignis__given(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ok = !IGNIS__CUDA_FAILED(call, device, cuMemGetInfo_v2, (&available, &total));
    ignis__device_leave(&binding);
    cache = &ignis__caches[ordinal];
    ignis__mutex_lock(&cache->lock);
    *info = cache->info;
    info->largest_free = ignis__cache_largest_free(cache);
    ignis__mutex_unlock(&cache->lock);
    info->device_free = (int64_t)available;
    info->device_total = (int64_t)total;
    info->pinned_bytes = (int64_t)ignis__atomic_load(&ignis__pinned_bytes);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static int ignis__row_order(const void *a, const void *b)
{
    const ignis_memory_row *x = (const ignis_memory_row *)a, *y = (const ignis_memory_row *)b;
    int order = (x->peak_bytes < y->peak_bytes) - (x->peak_bytes > y->peak_bytes);
    return order ? order : (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

/*  All rows of a device in a block of memory, in order; null, and reported, without memory. */
IGNIS__COLD static ignis_memory_row *ignis__rows_make(const char *call, ignis__cache *cache, int *count)
{
    ignis__counted *list = NULL, **from = ignis__memory_traced ? &cache->counted : &list, *counted;
    ignis__block *first, *block;
    ignis_memory_row *rows = NULL;
    bool ok = true;
    *count = 0;
    ignis__mutex_lock(&cache->lock);
    for (first = ignis__memory_traced ? NULL : cache->segments; first; first = first->next_segment) {
        for (block = first; ok && block; block = block->above) {
            if (!block->used || !block->origin.call)
                continue;
            counted = ignis__counted_find(&list, &block->origin);
            ok = counted != NULL;
            if (ok) {
                counted->row.live_bytes += block->size;
                counted->row.live_blocks++;
            }
        }
    }
    for (counted = *from; counted; counted = counted->next)
        ++*count;
    rows = ok ? (ignis_memory_row *)ignis__alloc((size_t)(*count + 1) * sizeof *rows) : NULL;
    for (counted = *from, *count = 0; rows && counted; counted = counted->next) {
        rows[*count] = counted->row;
        rows[(*count)++].peak_bytes = ignis__memory_traced ? ignis__counted_peak(cache, counted) : 0;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__counted_free(&list);
    if (rows)
        qsort(rows, (size_t)*count, sizeof *rows, ignis__row_order);
    else
        ignis__fail_host_memory(call, (size_t)(*count + 1) * sizeof *rows);
    return rows;
}

IGNIS__COLD IGNIS_API int ignis_memory_rows(int ordinal, ignis_memory_row *rows, int capacity)
{
    static const char call[] = "ignis_memory_rows";
    ignis_memory_row *made;
    ignis__device *device;
    int count = 0;
    if (!ignis__enter(call) || !ignis__room_given(call, "rows", rows, capacity))
        return -1;
    device = ignis__device_get(call, ordinal);
    made = device ? ignis__rows_make(call, &ignis__caches[ordinal], &count) : NULL;
    if (!made)
        return -1;
    if (capacity > 0)
        memcpy(rows, made, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    ignis__free(made);
    return count;
}

IGNIS__COLD IGNIS_API int64_t ignis_memory_trim(int ordinal)
{
    static const char call[] = "ignis_memory_trim";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    int64_t freed;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return -1;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return -1;
    cache = &ignis__caches[ordinal];
    freed = ignis__cache_trim(call, device, cache);
    if (!ignis__pieces_trim(call, device, cache))
        freed = -1;
    ignis__device_leave(&binding);
    return freed;
}

/* ===============================================================================================================
   >>array - shapes, element types, conversion, storage, arrays, views, copies, pins.
   =============================================================================================================== */

/* clang-format off */
static const struct {
    const char *name;
    int size;
} ignis__dtypes[] = {
    {"default", 0},
#define IGNIS__DTYPE_ROW(NAME, name, size) {#name, size},
    IGNIS_DTYPES(IGNIS__DTYPE_ROW)
#undef IGNIS__DTYPE_ROW
};
/* clang-format on */

static const char *const ignis__owners[] = {"none", "ignis", "nvccl", "wnais"};

IGNIS__ONE_COPY static const char *ignis__owner_name(ignis_owner owner)
{
    return (unsigned)owner < IGNIS_OWNER_COUNT ? ignis__owners[owner] : "unknown owner";
}

IGNIS_API const char *ignis_dtype_name(ignis_dtype dtype)
{
    return (unsigned)dtype < IGNIS_DTYPE_COUNT ? ignis__dtypes[dtype ? dtype : IGNIS_F32].name : "unknown dtype";
}

IGNIS_API int ignis_dtype_size(ignis_dtype dtype)
{
    return (unsigned)dtype < IGNIS_DTYPE_COUNT ? ignis__dtypes[dtype ? dtype : IGNIS_F32].size : 0;
}

IGNIS_API const char *ignis_owner_name(ignis_owner owner) { return ignis__owner_name(owner ? owner : IGNIS_OWNER_IGNIS); }

static bool ignis__owner_valid(const char *call, ignis_owner owner)
{
    if (owner > IGNIS_OWNER_DEFAULT && owner < IGNIS_OWNER_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no owner %d; IGNIS_OWNER_IGNIS, _NVCCL and _WNAIS are 1 to 3", (int)owner);
}

static bool ignis__dtype_valid(const char *call, ignis_dtype dtype)
{
    if (dtype > IGNIS_DTYPE_DEFAULT && dtype < IGNIS_DTYPE_COUNT)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "there is no dtype %d; IGNIS_F16 to IGNIS_F8_E5M2 are %d to %d", (int)dtype,
                         (int)IGNIS_F16, (int)IGNIS_F8_E5M2);
}

/*  "[2, 3]" in a struct, so that a message can hold several. */
typedef struct ignis__shape_text {
    char text[IGNIS_MAX_DIMS * 22 + 4];
} ignis__shape_text;

IGNIS__COLD static ignis__shape_text ignis__shape_write(const ignis_shape *shape)
{
    ignis__shape_text out;
    ignis__text text;
    int i;
    ignis__text_begin(&text, out.text, sizeof out.text);
    ignis__text_add(&text, "[");
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++)
        ignis__text_add(&text, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
    ignis__text_add(&text, "]");
    return out;
}

/*  a * b of numbers that are not negative; false when it does not fit. */
static bool ignis__multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a != 0 && b > INT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/*  Checks a shape and counts its elements. The product without its zeros must fit too, so a stride can always be computed. */
static bool ignis__shape_check(const char *call, const ignis_shape *shape, ignis_dtype dtype, int64_t *numel)
{
    int64_t product = ignis__dtypes[dtype].size;
    bool empty = false, fits = true;
    int i;
    if (shape->ndim < 1 || shape->ndim > IGNIS_MAX_DIMS)
        return ignis__refuse(IGNIS_DIAG_SHAPE_RANK, call,
                             "a shape has 1 to %d dimensions, this one has %d; IGNIS_SHAPE(1) is a single element", IGNIS_MAX_DIMS,
                             shape->ndim);
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0)
            return ignis__refuse(IGNIS_DIAG_SHAPE_DIM, call, "dimension %d of shape %s is negative", i, ignis__shape_write(shape).text);
        if (shape->dim[i] == 0)
            empty = true;
        else
            fits = fits && ignis__multiply(product, shape->dim[i], &product);
    }
    if (!fits)
        return ignis__refuse(IGNIS_DIAG_SHAPE_OVERFLOW, call, "shape %s of %s has more bytes than 63 bits can count",
                             ignis__shape_write(shape).text, ignis__dtypes[dtype].name);
    *numel = empty ? 0 : product / ignis__dtypes[dtype].size;
    return true;
}

/* --- conversion on the host ------------------------------------------------------------------------------------ */

/*  Elements travel as int64_t (integers) or double (floats), both of which hold every value of their types, and are rounded
    once, at the end. kernels/ignis.cuh does the same on the device, bit for bit. */

/*  Rounds to a binary float of `fraction` bits and `exponent` bits, to nearest even (IEEE 754-2008, 4.3.1). */
static uint32_t ignis__round_double(double value, int fraction, int exponent)
{
    uint64_t bits, significand, rounded, remainder, middle;
    uint32_t sign, infinity = ((1u << exponent) - 1) << fraction;
    int power, shift;
    memcpy(&bits, &value, sizeof bits);
    sign = (uint32_t)(bits >> 63) << (fraction + exponent);
    power = (int)(bits >> 52 & 0x7FF);
    significand = bits & 0xFFFFFFFFFFFFFu;
    if (power == 0x7FF)
        return sign | infinity | (significand ? 1u << (fraction - 1) : 0);
    if (power == 0)
        return sign; /* far below every subnormal of a smaller type */
    significand |= (uint64_t)1 << 52;
    power += ((1 << (exponent - 1)) - 1) - 1023; /* the exponent field in the small type */
    shift = 52 - fraction;
    if (power < 1) { /* a subnormal: its exponent is that of field 1, with fewer bits */
        shift += 1 - power;
        power = 1;
        if (shift > 63)
            return sign;
    }
    rounded = significand >> shift;
    remainder = significand & (((uint64_t)1 << shift) - 1);
    middle = (uint64_t)1 << (shift - 1);
    if (remainder > middle || (remainder == middle && (rounded & 1)))
        rounded++;
    /* The hidden bit adds 1 to the field where it is set, and a carry of the rounding goes on into it. */
    rounded += (uint64_t)(power - 1) << fraction;
    return sign | (rounded >= infinity ? infinity : (uint32_t)rounded);
}

static double ignis__widen_float(uint32_t bits, int fraction, int exponent)
{
    uint64_t sign = (uint64_t)(bits >> (fraction + exponent)) << 63, wide;
    int power = (int)(bits >> fraction) & ((1 << exponent) - 1);
    uint64_t low = bits & ((1u << fraction) - 1);
    double value;
    if (power == (1 << exponent) - 1) {
        wide = (uint64_t)0x7FF << 52 | low << (52 - fraction);
    } else if (power == 0 && low == 0) {
        wide = 0;
    } else {
        if (power == 0) { /* a subnormal: shift its highest bit into the hidden place */
            int up = fraction - ignis__log2(low);
            low = low << up & ((1u << fraction) - 1);
            power = 1 - up;
        }
        wide = (uint64_t)(power + 1023 - ((1 << (exponent - 1)) - 1)) << 52 | low << (52 - fraction);
    }
    wide |= sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/*  f8_e5m2 is rounded as f16 is, but infinity becomes the largest number. */
static uint32_t ignis__round_e5m2(double value)
{
    uint32_t bits = ignis__round_double(value, 2, 5);
    return (bits & 0x7F) == 0x7C ? bits - 1 : bits;
}

/*  f8_e4m3 is, with 5 bits of exponent, a number 256 times smaller; its last bits are a NaN instead of one. */
static uint32_t ignis__round_e4m3(double value)
{
    uint32_t wide = ignis__round_double(value / 256, 3, 5), size = wide & 0xFF, sign = wide >> 1 & 0x80;
    return value != value ? 0x7F : sign | (size < 0x7E ? size : 0x7E);
}

static double ignis__widen_e4m3(uint32_t bits)
{
    uint32_t size = bits & 0x7F;
    return ignis__widen_float((bits & 0x80) << 1 | (size == 0x7F ? 0xFF : size), 3, 5) * 256;
}

/*  A double that rounds to every shorter type as the integer itself would: what a double cannot hold goes into its last bit. */
static double ignis__widen_int(int64_t value)
{
    const int64_t low = 0x7FF;
    if (value > -((int64_t)1 << 53) && value < (int64_t)1 << 53)
        return (double)value;
    return (double)((value & ~low) | (value & low ? low + 1 : 0));
}

/*  Whether it is neither NaN nor infinite, by its bits: so the answer stands where the compiler assumes that no number is one of these. */
IGNIS__MAYBE_UNUSED static bool ignis__is_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

IGNIS__MAYBE_UNUSED static bool ignis__is_nan(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits << 1 > (uint64_t)0x7FF << 53;
}

static int64_t ignis__double_to_int(double value, int64_t lowest, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= (double)highest) /* for 2^63 - 1 that is 2^63, which is as well the first that does not fit */
        return highest;
    return value <= (double)lowest ? lowest : (int64_t)value;
}

IGNIS__MAYBE_UNUSED static int64_t ignis__ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

IGNIS__ONE_COPY static int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

static bool ignis__dtype_is_int(ignis_dtype dtype) { return dtype >= IGNIS_I32 && dtype <= IGNIS_U8; }

static bool ignis__dtype_is_f8(ignis_dtype dtype) { return dtype == IGNIS_F8_E4M3 || dtype == IGNIS_F8_E5M2; }

/*  What elements travel in. */
typedef union ignis__wide {
    double f;
    int64_t i;
} ignis__wide;

#define IGNIS__FOR_EACH(type, statement)                    \
    for (i = 0; i < count; i++) {                           \
        type x;                                             \
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x); \
        statement;                                          \
    }                                                       \
    break;

static void ignis__load_wide(ignis__wide *to, const char *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, to[i].f = (double)x)
    case IGNIS_F64: IGNIS__FOR_EACH(double, to[i].f = x)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, to[i].i = x)
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, to[i].i = x)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_e4m3(x))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, to[i].f = ignis__widen_float(x, 2, 5))
    default: IGNIS__FOR_EACH(uint8_t, to[i].i = x)
    }
}
#undef IGNIS__FOR_EACH

#define IGNIS__FOR_EACH(type, expression)                 \
    for (i = 0; i < count; i++) {                         \
        type x = (type)(expression);                      \
        memcpy(to + i * (int64_t)sizeof x, &x, sizeof x); \
    }                                                     \
    break;

static void ignis__store_wide(char *to, const ignis__wide *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, from[i].f)
    case IGNIS_F64: IGNIS__FOR_EACH(double, from[i].f)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, ignis__clamp(from[i].i, INT32_MIN, INT32_MAX))
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, from[i].i)
    case IGNIS_F8_E4M3: IGNIS__FOR_EACH(uint8_t, ignis__round_e4m3(from[i].f))
    case IGNIS_F8_E5M2: IGNIS__FOR_EACH(uint8_t, ignis__round_e5m2(from[i].f))
    default: IGNIS__FOR_EACH(uint8_t, ignis__clamp(from[i].i, 0, UINT8_MAX))
    }
}
#undef IGNIS__FOR_EACH

static void ignis__convert(void *to, ignis_dtype to_dtype, const void *from, ignis_dtype from_dtype, int64_t count)
{
    ignis__wide wide[256];
    int64_t done, part, i;
    bool from_int = ignis__dtype_is_int(from_dtype), to_int = ignis__dtype_is_int(to_dtype);
    for (done = 0; done < count; done += part) {
        part = count - done < IGNIS__COUNT(wide) ? count - done : IGNIS__COUNT(wide);
        ignis__load_wide(wide, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        if (from_int && to_dtype == IGNIS_F64)
            for (i = 0; i < part; i++)
                wide[i].f = (double)wide[i].i;
        else if (from_int && !to_int)
            for (i = 0; i < part; i++)
                wide[i].f = ignis__widen_int(wide[i].i);
        else if (!from_int && to_int)
            for (i = 0; i < part; i++)
                wide[i].i = ignis__double_to_int(wide[i].f, INT64_MIN, INT64_MAX);
        ignis__store_wide((char *)to + done * ignis__dtypes[to_dtype].size, wide, to_dtype, part);
    }
}

IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static bool ignis__shape_same(const ignis_shape *a, const ignis_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->ndim) == 0;
}

IGNIS__ONE_COPY static void ignis__shape_copy(ignis_shape *to, const ignis_shape *from)
{
    memset(to, 0, sizeof *to); /* dimensions that do not count are 0, whatever the caller left there */
    to->ndim = from->ndim;
    memcpy(to->dim, from->dim, sizeof from->dim[0] * (size_t)from->ndim);
}

/* --- storage: device memory that arrays and their views share ---------------------------------------------------- */

/*  Memory is taken at the first use. Which other streams have used it is kept, so that its next user comes behind them. */
typedef struct ignis__used_on {
    ignis__device *device;
    void *stream;
} ignis__used_on;

typedef struct ignis__storage {
    uint64_t users; /* arrays */
    ignis__mutex lock;
    ignis__device *device;
    ignis__block *block; /* null: not allocated, or wrapped */
    uint64_t address;    /* 0: not allocated */
    int64_t size;        /* bytes */
    bool wrapped;
    bool external; /* memory of a graphics API, which no other process gets from here */
    ignis__origin origin;
    void (*release_fn)(void *ptr, void *user_data); /* of wrapped memory; null: the caller sees to it */
    void *release_data;
    void *stream;            /* in whose order the memory is taken and given; null: not decided */
    uint64_t at_hand;        /* the same as a number, once there is memory: work on that stream needs no lock to use it; 0: it does */
    ignis__replays *replays; /* of the graph whose memory it is, and which writes there at each launch; null: none's */
    ignis__used_on used_on[4];
    int used_on_count;
    void *summed_on;                      /* the stream that has added to it last, if it is a gradient; null: none */
    uint64_t version;                     /* counts what is written to it, as far as Ignis knows */
    uint64_t lent;                        /* 1: the caller's code was given the address, and may have written there */
    uint64_t listed;                      /* 1: it is in the list of those that have to do with a stream of the caller */
    struct ignis__storage *next, *before; /* in that list */
} ignis__storage;

/*  Work that writes to the memory is about to be queued; what a capture records writes at each launch, and counts there. */
static void ignis__storage_written(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__held *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (held)
        held->written = true;
    else if (!capture) /* else it is memory of the capture's own */
        ignis__atomic_add(&storage->version, 1);
}

/*  The same for a kernel of the caller, of which Ignis does not know whether it writes. */
static void ignis__storage_lent(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__held *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (held)
        held->lent = true;
    else if (!capture)
        ignis__atomic_store(&storage->lent, 1);
}

/*  How often the memory was written to, as far as Ignis knows. */
static uint64_t ignis__storage_version(const ignis__storage *storage)
{
    const ignis__replays *replays = ignis__atomic_load(&storage->address) ? storage->replays : NULL;
    return ignis__atomic_load(&storage->version) + (replays ? ignis__atomic_load(&replays->count) : 0);
}

/*  False: reading it is a mistake. What a capture reads may be written before the launch, if there is memory for it. */
static bool ignis__storage_readable(const ignis__storage *storage)
{
    if (storage->wrapped || !ignis__atomic_load(&storage->address))
        return storage->wrapped;
    return ignis__storage_version(storage) || ignis__atomic_load(&storage->lent) || ignis__capture_on(storage->device);
}

/*  Those that have to do with a stream of the caller, for ignis_stream_forget, whoever uses them: arrays, graphs, a call that gives them up.
    The many that have to do with Ignis' own streams alone are made and freed without the list's lock, which is taken before a storage's. */
static struct {
    ignis__mutex lock;
    ignis__storage *first;
} ignis__storages = {IGNIS__MUTEX_INIT, NULL};

/*  Puts a storage in that list that is about to be used on a stream, if that is one of the caller. */
static void ignis__storage_enlist(ignis__storage *storage, const ignis__device *device, const void *stream)
{
    if (!stream || stream == device->stream || ignis__atomic_load(&storage->listed))
        return;
    ignis__mutex_lock(&ignis__storages.lock);
    if (!ignis__atomic_load(&storage->listed)) {
        storage->next = ignis__storages.first;
        if (storage->next)
            storage->next->before = storage;
        ignis__storages.first = storage;
        ignis__atomic_store(&storage->listed, 1);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  A storage with no users yet; null on failure. */
static ignis__storage *ignis__storage_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__storage *storage = (ignis__storage *)ignis__alloc_for(call, sizeof *storage);
    if (!storage)
        return NULL;
    ignis__mutex_init(&storage->lock);
    storage->device = device;
    storage->size = size;
    ignis__origin_now(&storage->origin, call);
    return storage;
}

static void ignis__storage_destroy(ignis__storage *storage)
{
    if (ignis__atomic_load(&storage->listed)) {
        ignis__mutex_lock(&ignis__storages.lock);
        if (storage->before)
            storage->before->next = storage->next;
        else
            ignis__storages.first = storage->next;
        if (storage->next)
            storage->next->before = storage->before;
        ignis__mutex_unlock(&ignis__storages.lock);
    }
    if (storage->replays)
        ignis__replays_drop(storage->replays);
    ignis__free(storage);
}

/*  Work on `stream` is about to use the memory: it comes behind the stream of the memory, where the block's last user may still be. */
static bool ignis__storage_used_on(const char *call, ignis__storage *storage, ignis__device *device, void *stream)
{
    ignis__used_on *slot;
    int i;
    if (stream == storage->stream && device == storage->device)
        return true;
    for (i = 0; i < storage->used_on_count; i++)
        if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
            return true;
    if (!ignis__stream_order(call, storage->device, storage->stream, device, stream))
        return false;
    if (storage->used_on_count < IGNIS__COUNT(storage->used_on)) {
        slot = &storage->used_on[storage->used_on_count++];
    } else { /* more streams than places: make the memory's own stream wait for one of them now, and forget that one */
        slot = &storage->used_on[0];
        if (!ignis__stream_order(call, slot->device, slot->stream, storage->device, storage->stream))
            return false;
    }
    slot->device = device;
    slot->stream = stream;
    return true;
}

/*  Lets work on `stream` of the storage's device, which is about to add to a sum, come after what was added before on another stream. */
IGNIS__MAYBE_UNUSED static bool ignis__storage_sum_on(const char *call, ignis__storage *storage, void *stream)
{
    bool ok;
    ignis__storage_enlist(storage, storage->device, stream);
    ignis__mutex_lock(&storage->lock);
    ok = !storage->summed_on || ignis__stream_order(call, storage->device, storage->summed_on, storage->device, stream);
    storage->summed_on = stream;
    ignis__mutex_unlock(&storage->lock);
    return ok;
}

/*  Gives the memory of a storage without users back, behind all that used it. Where the device cannot be entered it stays out of use. */
static void ignis__storage_give(const char *call, ignis__storage *storage)
{
    ignis__device *unordered[IGNIS__COUNT(storage->used_on)];
    ignis__spare_event *last = NULL;
    ignis__binding binding, other;
    bool entered = ignis__device_enter_to_give(call, storage->device, &binding);
    bool listed = ignis__atomic_load(&storage->listed) != 0; /* no other thread can see it if not */
    int i, count = 0;
    if (listed)
        ignis__mutex_lock(&storage->lock);
    /* A thread that forgets one of these streams waits until it is not needed here, so nothing waits here. */
    for (i = 0; i < storage->used_on_count; i++) {
        ignis__used_on *used = &storage->used_on[i];
        if (!entered || !ignis__stream_order(call, used->device, used->stream, storage->device, storage->stream))
            unordered[count++] = used->device;
    }
    if (entered && !storage->block && storage->stream)
        last = ignis__event_record(call, storage->device, storage->stream);
    if (listed)
        ignis__mutex_unlock(&storage->lock);
    while (count-- > 0) {
        if (ignis__device_enter_to_give(call, unordered[count], &other)) {
            (void)ignis__device_finish(unordered[count]); /* without an order, waiting is what is left */
            ignis__device_leave(&other);
        }
    }
    if (entered) {
        if (storage->block) {
            ignis__memory_give(call, storage->device, storage->block);
        } else if (storage->stream) { /* the memory goes to somebody who knows nothing of streams */
            if (!last || IGNIS__CUDA(cuEventSynchronize, (last->event)) != 0)
                (void)ignis__device_finish(storage->device);
            if (last)
                ignis__event_give(storage->device, last);
        }
        ignis__device_leave(&binding);
    }
    if (storage->release_fn)
        storage->release_fn((void *)(uintptr_t)storage->address, storage->release_data);
}

/*  One user less; the last gives the memory back, unless it is the caller's, and so is all order. */
static void ignis__storage_drop(const char *call, ignis__storage *storage)
{
    if (ignis__atomic_add(&storage->users, (uint64_t)-1) != 0)
        return;
    if (storage->block || storage->release_fn)
        ignis__storage_give(call, storage);
    ignis__storage_destroy(storage);
}

static void ignis__storage_drop_held(const char *call, void *item) { ignis__storage_drop(call, (ignis__storage *)item); }

static bool ignis__capture_hold_storage(const char *call, ignis__capture *capture, ignis__storage *storage)
{
    return ignis__capture_hold(call, capture, storage, &storage->users, ignis__storage_drop_held);
}

/*  Takes memory where there is none, and orders work on `stream` of `device` behind what used it before. */
IGNIS__ONE_COPY static bool ignis__storage_prepare(const char *call, ignis__storage *storage, ignis__device *device, void *stream,
                                                   uint64_t *address)
{
    ignis__capture *open = ignis__capturing(), *capture = open && open->device == device ? open : NULL;
    ignis__block *block = NULL;
    bool forgotten = false; /* another thread has forgotten the stream, and memory was taken for it after that */
    void *from = NULL;
    bool ok = true;
    if (!capture)
        ignis__storage_enlist(storage, device, stream);
    ignis__mutex_lock(&storage->lock);
    if (!storage->stream) /* that of a capture ends with it */
        storage->stream = device == storage->device && !capture ? stream : storage->device->stream;
    if (!ignis__atomic_load(&storage->address) && storage->size > 0) {
        from = storage->stream;
        ignis__mutex_unlock(&storage->lock); /* this may wait for the device, and that for who waits for the lock */
        block = ignis__memory_take_for(call, &storage->origin, storage->device, from, storage->size);
        ignis__mutex_lock(&storage->lock);
        ok = block != NULL;
        if (ok && !ignis__atomic_load(&storage->address)) {
            storage->block = block;
            if (open && open->device == storage->device) {
                storage->replays = open->replays;
                ignis__atomic_add(&open->replays->users, 1);
            }
            ignis__atomic_store(&storage->address, block->address);
            block = NULL;
        }
        if (storage->replays)
            storage->stream = storage->device->stream; /* which gets the memory when the graph goes */
        else
            forgotten = storage->stream != from;
    }
    if (ok && capture) /* all streams were idle when it began: no order is missing */
        ok = storage->replays == capture->replays || ignis__capture_hold_storage(call, capture, storage);
    else
        ok = ok && (storage->size == 0 || ignis__storage_used_on(call, storage, device, stream));
    *address = ignis__atomic_load(&storage->address);
    if (*address)
        ignis__atomic_store(&storage->at_hand, (uintptr_t)storage->stream);
    ignis__mutex_unlock(&storage->lock);
    if (block) /* another thread was faster */
        ignis__memory_give(call, storage->device, block);
    if (forgotten)
        ignis__memory_forget_stream(storage->device, from);
    return ok;
}

/*  The address for work on `stream` of `device`, allocating if need be. 0: failure, or nothing to store. */
static bool ignis__storage_use(const char *call, ignis__storage *storage, ignis__device *device, void *stream, uint64_t *address)
{
    const ignis__capture *capture = ignis__capturing();
    if (device != storage->device || ignis__atomic_load(&storage->at_hand) != (uintptr_t)stream || (capture && capture->device == device))
        return ignis__storage_prepare(call, storage, device, stream, address);
    *address = ignis__atomic_load(&storage->address);
    return true;
}

/* --- arrays ------------------------------------------------------------------------------------------------------ */

/*  What the bytes of a model's quantised weight are: [rows, columns], in parts of rows that are of one type. count 0: any other array. */
typedef struct ignis__blocks {
    int count, columns;
    struct {
        int type, rows; /* type: an ignis__gguf_type */
    } part[3];
} ignis__blocks;

typedef struct ignis__array {
    ignis__slot slot; /* first; its lock guards what may change: owner, ref_count, pinned, tracking */
    ignis__storage *storage;
    int64_t offset; /* bytes into the storage */
    int64_t numel;
    ignis_shape shape;
    ignis_dtype dtype;
    ignis_owner owner;
    int ref_count;
    bool view;
    bool owned_by_refs; /* its last reference frees it: a tensor or the tape made it */
    bool tracked_by_user;
    uint64_t id;
    uint64_t parent;
    int64_t created_at_ns;
    int64_t tracked_at_ns; /* monotonic; 0: not tracked */
    uint64_t audit;        /* the last one that has listed it */
    int exports;           /* of the references, those that ignis_collective.h holds for other processes */
    const void *borrower;  /* the call that has made its layer the owner until it ends; null: none */
    void *pinned;
    char tag[32];
    ignis__blocks blocks; /* of a quantised weight, which is a row of u8 */
    ignis__former former; /* the slot's array before this one */
} ignis__array;

static ignis__pool ignis__arrays =
    IGNIS__POOL_NAMED(ignis__array, IGNIS__KIND_ARRAY, "array", IGNIS_DIAG_ARRAY_FREED, offsetof(ignis__array, former));
static uint64_t ignis__array_ids; /* given out so far, in this process */

static int64_t ignis__array_bytes(const ignis__array *array) { return array->numel * ignis__dtypes[array->dtype].size; }

IGNIS__ONE_COPY static ignis__label ignis__array_label(const ignis__array *array)
{
    return ignis__label_write("array", array->id, array->tag);
}

/*  The array of a handle, held; null, and reported, when there is none. */
static ignis__array *ignis__array_hold(const char *call, ignis_array handle)
{
    return (ignis__array *)ignis__handle_hold(call, &ignis__arrays, handle.id);
}

/*  The version of what an array holds; none of what nobody has written yet, or of what each launch of a graph writes. */
#define IGNIS__UNWRITTEN UINT64_MAX
IGNIS__MAYBE_UNUSED static uint64_t ignis__array_version(const ignis__array *array)
{
    bool written = !ignis__capture_on(array->storage->device) && ignis__storage_readable(array->storage);
    return written ? ignis__storage_version(array->storage) : IGNIS__UNWRITTEN;
}

/*  Takes a dead array apart. */
static void ignis__array_destroy(const char *call, ignis__array *array)
{
    if (array->pinned)
        ignis__pinned_give(call, array->storage->device, array->pinned, ignis__array_bytes(array));
    ignis__storage_drop(call, array->storage);
    array->pinned = NULL;
    array->storage = NULL;
    ignis__pool_give(&ignis__arrays, array);
}

IGNIS__ONE_COPY static void ignis__array_drop(const char *call, ignis__array *array)
{
    if (ignis__pool_drop(array))
        ignis__array_destroy(call, array);
}

/*  Ends a call on an array that it holds, or could not hold: null. */
IGNIS__ONE_COPY static ignis_status ignis__array_end(const char *call, ignis__array *array, bool ok)
{
    if (array)
        ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Locks a held array for a change of its own fields; false, and reported, when another thread has freed it meanwhile. */
static bool ignis__array_lock(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (ignis__pool_live(array))
        return true;
    ignis__mutex_unlock(&array->slot.lock);
    return ignis__refuse(IGNIS_DIAG_ARRAY_FREED, call, "%s, freed by another thread meanwhile", ignis__array_label(array).text);
}

static void ignis__array_unlock(ignis__array *array) { ignis__mutex_unlock(&array->slot.lock); }

/*  Arrays that were freed while ignis_contract_track watched them: the audit shows them until they are untracked. */
typedef struct ignis__tracked_freed {
    uint64_t handle;
    uint64_t audit; /* the last one that has listed it when it was alive */
    int64_t tracked_at_ns;
    ignis_contract_entry entry;
    struct ignis__tracked_freed *next;
} ignis__tracked_freed;

static struct {
    ignis__mutex lock;
    int live; /* tracked arrays that are not freed */
    int freed_count;
    ignis__tracked_freed *freed;
} ignis__tracking = {IGNIS__MUTEX_INIT, 0, 0, NULL};

IGNIS__COLD static void ignis__track_entry(const ignis__array *array, ignis_contract_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->array_id = array->id;
    entry->owner = array->owner;
    entry->shape = array->shape;
    entry->dtype = array->dtype;
    entry->bytes = ignis__array_bytes(array);
    entry->ref_count = array->ref_count;
    entry->views = (int)ignis__atomic_load(&array->storage->users) - 1;
    entry->exports = array->exports;
    memcpy(entry->tag, array->tag, sizeof entry->tag);
}

/*  A tracked array has died. One that was only acquired leaves the audit; one that the user watches stays, as freed. */
IGNIS__COLD static void ignis__track_freed(const ignis__array *array)
{
    ignis__tracked_freed *freed = array->tracked_by_user ? (ignis__tracked_freed *)ignis__alloc(sizeof *freed) : NULL;
    ignis__mutex_lock(&ignis__tracking.lock);
    ignis__tracking.live--;
    if (freed) {
        ignis__track_entry(array, &freed->entry);
        freed->entry.freed = true;
        freed->handle = array->slot.handle;
        freed->audit = array->audit;
        freed->tracked_at_ns = array->tracked_at_ns;
        freed->next = ignis__tracking.freed;
        ignis__tracking.freed = freed;
        ignis__tracking.freed_count++;
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

/*  A reference that keeps an array alive, and with it the pointer: for tensors and the tape, to whom it belongs from now on. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static void ignis__array_claim(ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->ref_count++;
    array->owned_by_refs = true;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__mutex_unlock(&array->slot.lock);
}

/*  Claims an array that was just made, which lives as long as its claims from then on; null for no handle. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED static ignis__array *ignis__array_adopt(const char *call, ignis_array made)
{
    ignis__array *array = made.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id) : NULL;
    if (!array)
        return NULL;
    ignis__array_claim(array);
    ignis__array_drop(call, array);
    return array;
}

/*  Makes the handle of a live, held and locked array stale. */
static void ignis__array_kill(ignis__array *array)
{
    if (array->tracked_at_ns)
        ignis__track_freed(array);
    ignis__former_write(&array->former, &array->slot, array->id, array->tag);
    ignis__pool_kill(array);
    ignis__pool_drop(array); /* the handle's own hold; the caller still has one */
}

/*  Gives a reference of a locked array back; the last one ends an array that belongs to its references. */
static int ignis__array_unref(ignis__array *array)
{
    int count = --array->ref_count;
    if (count == 0 && array->owned_by_refs && ignis__pool_live(array))
        ignis__array_kill(array);
    return count;
}

IGNIS__MAYBE_UNUSED static void ignis__array_unclaim(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->ref_count > 0) /* a caller may have given back references that were not theirs */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  A new array over a storage, of which it becomes a user. Only its maker sees it until ignis__array_publish. Null: no memory. */
static ignis__array *ignis__array_make(const char *call, ignis__storage *storage, const ignis_shape *shape, ignis_dtype dtype,
                                       int64_t numel)
{
    ignis__array *array = (ignis__array *)ignis__pool_take_zeroed(call, &ignis__arrays);
    if (!array)
        return NULL;
    ignis__atomic_add(&storage->users, 1);
    array->storage = storage;
    array->numel = numel;
    ignis__shape_copy(&array->shape, shape);
    array->dtype = dtype;
    array->owner = IGNIS_OWNER_IGNIS;
    array->id = ignis__atomic_add(&ignis__array_ids, 1);
    array->created_at_ns = ignis__wall_ns();
    return array;
}

/*  References that it has already are claims. */
static ignis_array ignis__array_publish(ignis__array *array)
{
    ignis_array handle;
    handle.id = ignis__pool_publish_held(&ignis__arrays, array, 1 + array->ref_count);
    return handle;
}

/*  What wrapped memory must be: memory that the device can use, of that device, and as large as the array. */
IGNIS__COLD static bool ignis__array_wrappable(const char *call, ignis__device *device, void *ptr, int64_t size)
{
    int type, ordinal, wanted = ignis__device_ordinal(device);
    ignis__address start, at = (ignis__address)(uintptr_t)ptr;
    size_t range;
    if (!ignis__address_query(call, device, ptr, &type, &ordinal) || !ignis__address_range(call, device, ptr, &start, &range))
        return false;
    if (type == 0 || type == IGNIS__CU_MEMORY_HOST)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.ptr %p is not device memory; copy host memory with ignis_array_from_host",
                             ptr);
    if (ordinal != wanted)
        return ignis__refuse(IGNIS_DIAG_DEVICE_DIFFERS, call, "desc.ptr %p is memory of device %d, the array is to be on device %d", ptr,
                             ordinal, wanted);
    if (range && (uint64_t)size > start + range - at)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call,
                             "the array has %lld bytes, but from desc.ptr %p on there are %llu left of the %llu of its memory",
                             (long long)size, ptr, (unsigned long long)(start + range - at), (unsigned long long)range);
    return true;
}

/*  The part of ignis_array_create that needs the device: a pointer to check, unless it is an external one, and a stream to write down. */
IGNIS__COLD static bool ignis__array_attach(const char *call, ignis__device *device, ignis__storage *storage, const ignis_array_desc *desc,
                                            bool external)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = (!desc->ptr || storage->size == 0 || external || ignis__array_wrappable(call, device, desc->ptr, storage->size)) &&
         (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0);
    ignis__device_leave(&binding);
    storage->wrapped = desc->ptr != NULL;
    storage->external = external;
    storage->address = (uint64_t)(uintptr_t)desc->ptr;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    if (ok) { /* what fails to become an array stays the caller's */
        storage->release_fn = desc->release_fn;
        storage->release_data = desc->release_data;
    }
    return ok;
}

/*  external: desc->ptr is memory of a graphics API, of which the caller of this knows how much there is. */
static ignis_array ignis__array_create_over(const char *call, const ignis_array_desc *desc, bool external)
{
    ignis_array handle = IGNIS__ZERO;
    ignis__device *device;
    ignis__storage *storage;
    ignis__array *array;
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_owner owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    int ordinal = ignis__desc_device(desc->device);
    int64_t numel;
    size_t length;

    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, owner) || !ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (device = ignis__device_get(call, ordinal)) == NULL ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return handle;
    array = (!desc->ptr && !desc->stream) || ignis__array_attach(call, device, storage, desc, external)
                ? ignis__array_make(call, storage, &desc->shape, dtype, numel)
                : NULL;
    if (!array) {
        ignis__storage_destroy(storage);
        return handle;
    }
    array->owner = owner;
    if (desc->tag) {
        length = ignis__utf8_cut(desc->tag, sizeof array->tag - 1);
        memcpy(array->tag, desc->tag, length);
        memcpy(storage->origin.tag, array->tag, sizeof array->tag);
    }
    return ignis__array_publish(array);
}

static ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc)
{
    return ignis__array_create_over(call, desc, false);
}

IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_array_create";
    ignis_array none = IGNIS__ZERO;
    if (!ignis__enter(call) || !ignis__given(call, "desc", desc))
        return none;
    return ignis__array_create(call, desc);
}

/*  Whose a view or a copy of an array is: that of its owner, or of who has it back after a loan. Another thread may be about to transfer it. */
static ignis_owner ignis__array_owner(const ignis__array *array)
{
    ignis__mutex *lock = (ignis__mutex *)(uintptr_t)&array->slot.lock;
    ignis_owner owner;
    ignis__mutex_lock(lock);
    owner = array->borrower ? IGNIS_OWNER_IGNIS : array->owner;
    ignis__mutex_unlock(lock);
    return owner;
}

/*  An array like another one, of another dtype perhaps, with memory of its own. */
IGNIS__COLD static ignis_array ignis__array_create_like(const char *call, const ignis__array *like, ignis_dtype dtype)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = like->shape;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(like->storage->device);
    desc.owner = ignis__array_owner(like);
    desc.tag = like->tag;
    return ignis__array_create(call, &desc);
}

/*  Views of an array share its storage, owner and tag. Only its maker sees this one until ignis__array_publish. */
static ignis__array *ignis__array_view_make(const char *call, const ignis__array *of, const ignis_shape *shape, int64_t numel,
                                            int64_t offset)
{
    ignis__array *view = ignis__array_make(call, of->storage, shape, of->dtype, numel);
    if (!view)
        return NULL;
    view->offset = of->offset + offset;
    view->owner = ignis__array_owner(of);
    view->view = true;
    view->parent = of->id;
    memcpy(view->tag, of->tag, sizeof view->tag);
    return view;
}

static ignis_array ignis__array_view(const char *call, const ignis__array *of, const ignis_shape *shape, int64_t numel, int64_t offset)
{
    ignis_array none = IGNIS__ZERO;
    ignis__array *view = ignis__array_view_make(call, of, shape, numel, offset);
    return view ? ignis__array_publish(view) : none;
}

/*  Writes who holds what an array exports; ignis_collective.h, which knows, puts itself here. The array is locked. */
static void (*ignis__export_holders)(ignis__text *text, const ignis__array *array);

/*  Looks which of those are gone by now, before an array is refused, and waits for processes that are just being ended; set there, too. Both
    are set before an array counts an export, so they are read after its lock. */
static void (*ignis__exports_reap)(const char *call, ignis__array *array, bool wait);

/*  The array of a handle, held and locked for a change of its own fields; null, and reported, when there is none. */
IGNIS__ONE_COPY static ignis__array *ignis__array_enter(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  The same for calls of the contract: what other processes hold no longer is let go of before; with wait, also what is just being ended. */
static ignis__array *ignis__array_enter_reaped(const char *call, ignis_array handle, bool wait)
{
    ignis__array *array = ignis__array_enter(call, handle);
    if (!array || array->exports == 0)
        return array;
    ignis__array_unlock(array);
    ignis__exports_reap(call, array, wait);
    if (ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

IGNIS__ONE_COPY static ignis_status ignis__array_leave(const char *call, ignis__array *array, bool ok)
{
    ignis__array_unlock(array);
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD static ignis_status ignis__fail_exported(const char *call, const ignis__array *array, const char *what)
{
    char holders[512];
    ignis__text text;
    ignis__text_begin(&text, holders, sizeof holders);
    if (ignis__export_holders)
        ignis__export_holders(&text, array);
    return ignis__fail(IGNIS_DIAG_FREE_EXPORTED, call, "%s cannot be %s while %d handle%s of it %s out: %s", ignis__array_label(array).text,
                       what, array->exports, array->exports == 1 ? "" : "s", array->exports == 1 ? "is" : "are", holders);
}

/*  Writes who claims an array, each after a comma, and returns how many claims those are; the sections above put themselves here. */
static int (*ignis__claim_holders)(ignis__text *text, const ignis__array *array);

/*  The array is held, and had references when it was locked. */
IGNIS__COLD static ignis_status ignis__fail_referenced(const char *call, const ignis__array *array, ignis_owner owner, int ref_count)
{
    char holders[512];
    ignis__text text;
    int others;
    ignis__text_begin(&text, holders, sizeof holders);
    others = ref_count - (ignis__claim_holders ? ignis__claim_holders(&text, array) : 0);
    if (others > 0)
        ignis__text_add(&text, ", %d held otherwise, as by ignis_array_increment_ref", others);
    return ignis__fail(IGNIS_DIAG_FREE_REFERENCED, call, "%s, owned by %s, cannot be freed while its ref_count is %d, not 0%s%s",
                       ignis__array_label(array).text, ignis__owner_name(owner), ref_count, text.length ? ":" : "",
                       text.length ? holders + 1 : "");
}

static ignis_status ignis__array_free_as(const char *call, ignis_array handle, ignis_owner as)
{
    const uint64_t failures = ignis__failures();
    ignis__array *array;
    ignis_owner owner;
    int ref_count = 0;
    bool ok = false;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, true);
    if (!array)
        return ignis__failed();
    if (!ignis__owner_valid(call, as))
        return ignis__array_leave(call, array, false);
    owner = array->owner;
    if (owner != as)
        ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call, "%s is owned by %s and may only be freed by it, not by %s",
                    ignis__array_label(array).text, ignis__owner_name(owner), ignis__owner_name(as));
    else if (array->exports > 0)
        ignis__fail_exported(call, array, "freed");
    else if (array->ref_count > 0)
        ref_count = array->ref_count;
    else
        ok = true;
    if (ok)
        ignis__array_kill(array);
    ignis__array_unlock(array);
    if (ref_count) /* without its lock, which who holds it takes behind others */
        ignis__fail_referenced(call, array, owner, ref_count);
    (void)ignis__array_end(call, array, ok);
    return ignis__ended(failures, ok);
}

IGNIS_API ignis_status ignis_array_free(ignis_array array) { return ignis__array_free_as("ignis_array_free", array, IGNIS_OWNER_IGNIS); }

IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner)
{
    return ignis__array_free_as("ignis_array_free_as", array, owner);
}

IGNIS_API bool ignis_array_is_live(ignis_array handle)
{
    bool usable = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    void *array = usable ? ignis__pool_hold(&ignis__arrays, handle.id) : NULL;
    if (!array)
        return false;
    ignis__array_drop("ignis_array_is_live", (ignis__array *)array);
    return true;
}

IGNIS_API ignis_status ignis_array_query(ignis_array handle, ignis_array_info *info)
{
    static const char call[] = "ignis_array_query";
    ignis__array *array = ignis__array_enter(call, handle);
    ignis__storage *storage;
    uint64_t address;
    if (!array)
        return ignis__failed();
    if (!ignis__given(call, "info", info))
        return ignis__array_leave(call, array, false);
    storage = array->storage;
    address = ignis__atomic_load(&storage->address);
    info->id = array->id;
    info->shape = array->shape;
    info->dtype = array->dtype;
    info->device = ignis__device_ordinal(storage->device);
    info->owner = array->owner;
    info->ref_count = array->ref_count;
    info->ptr = address ? (void *)(uintptr_t)(address + (uint64_t)array->offset) : NULL;
    info->pinned_host_ptr = array->pinned;
    info->created_at_ns = array->created_at_ns;
    info->owns_memory = !array->view && !storage->wrapped;
    info->on_device = address != 0;
    info->parent = array->parent;
    memcpy(info->tag, array->tag, sizeof info->tag);
    info->version = ignis__storage_version(storage);
    ignis__array_unlock(array);
    if (address)
        ignis__atomic_store(&storage->lent, 1);
    ignis__mutex_lock(&storage->lock);
    info->stream = storage->stream;
    ignis__mutex_unlock(&storage->lock);
    return ignis__array_end(call, array, true);
}

IGNIS_API int64_t ignis_array_numel(ignis_array handle)
{
    static const char call[] = "ignis_array_numel";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return -1;
    numel = array->numel;
    ignis__array_drop(call, array);
    return numel;
}

IGNIS_API int64_t ignis_array_size_bytes(ignis_array handle)
{
    static const char call[] = "ignis_array_size_bytes";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t size;
    if (!array)
        return -1;
    size = ignis__array_bytes(array);
    ignis__array_drop(call, array);
    return size;
}

IGNIS__COLD static void ignis__array_describe(ignis__text *text, const ignis__array *array)
{
    ignis__text_add(text, "array #%llu %s %s on device %d, owner %s, ref_count %d", (unsigned long long)array->id,
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name, ignis__device_ordinal(array->storage->device),
                    ignis__owner_name(array->owner), array->ref_count);
    if (*array->tag)
        ignis__text_add(text, ", '%s'", array->tag);
}

IGNIS__COLD IGNIS_API int ignis_array_to_string(ignis_array handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_array_to_string";
    ignis__array *array;
    ignis__label label;
    ignis__text text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__given(call, "out", out)))
        return -1;
    ignis__text_begin(&text, out ? out : none, capacity);
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_describe(&text, array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    } else {
        label = ignis__label_stale(&ignis__arrays, handle.id);
        if (*label.text)
            ignis__text_add(&text, "%s", label.text);
        else
            ignis__text_add(&text, "array handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  An array that is still alive at ignis_shutdown; `what` comes before its description. */
IGNIS__COLD static void ignis__array_leaked(const char *call, const ignis__array *array, const char *what)
{
    char line[256];
    ignis__text text;
    ignis__text_begin(&text, line, sizeof line);
    ignis__array_describe(&text, array);
    ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "%s%s, %lld bytes, %lld ms old", what, line, (long long)ignis__array_bytes(array),
                       (long long)((ignis__wall_ns() - array->created_at_ns) / 1000000));
}

