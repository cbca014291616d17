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

