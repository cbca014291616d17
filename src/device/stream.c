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

