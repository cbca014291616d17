/* >>status ------------------------------------------------------------------------------------------------------ */

/*  IGNIS_STATUSES - every status, as X(enumerator suffix, meaning). */
#define IGNIS_STATUSES(X)                                                                \
    X(NOT_SETUP, "ignis_setup has not been called, or Ignis cannot be called here")      \
    X(ARGUMENT, "an argument is out of its range, null or contradictory")                \
    X(SHAPE, "shapes do not fit together, or a size overflows")                          \
    X(DTYPE, "an element type is not the one that is needed")                            \
    X(FREED, "the handle was freed, or never existed")                                   \
    X(CONTRACT, "a rule of the memory contract was about to be broken")                  \
    X(MEMORY, "host, pinned or device memory has run out")                               \
    X(LIBRARY, "the driver, NVRTC or cuBLASLt is missing, or too old")                   \
    X(DEVICE, "no such device, or the devices were lost to an earlier fault")            \
    X(COMPILE, "CUDA source did not compile; the log is in the message")                 \
    X(CUDA, "the driver refused a call")                                                 \
    X(UNSUPPORTED, "the request is meaningful, but this device or version cannot do it") \
    X(IO, "a file could not be read or written")                                         \
    X(FORMAT, "a file is not what it claims to be")                                      \
    X(PEER, "another process died or broke the protocol")                                \
    X(TIMEOUT, "a deadline has passed")                                                  \
    X(MISMATCH, "ranks disagree about a collective operation")

typedef enum ignis_status {
    IGNIS_OK = 0,
#define IGNIS__STATUS_ENUM(name, meaning) IGNIS_ERROR_##name,
    IGNIS_STATUSES(IGNIS__STATUS_ENUM)
#undef IGNIS__STATUS_ENUM
        IGNIS_STATUS_COUNT
} ignis_status;

/*  IGNIS_DIAGNOSTICS - every thing that can go wrong, as X(enumerator suffix, status suffix, the rule).
    Message texts may change between versions; these ids stay, so tests and tools compare ids. */
#define IGNIS_DIAGNOSTICS(X)                                                                                         \
    X(NOT_SETUP, NOT_SETUP, "call ignis_setup first")                                                                \
    X(FORKED, NOT_SETUP, "CUDA does not survive fork; call ignis_setup in the child's own program")                  \
    X(ALREADY_SETUP, ARGUMENT, "call ignis_shutdown before the next ignis_setup")                                    \
    X(NULL_ARGUMENT, ARGUMENT, "a pointer that must not be null is null")                                            \
    X(BAD_ENUM, ARGUMENT, "an enumerator is outside its enumeration")                                                \
    X(BAD_NUMBER, ARGUMENT, "a number is outside its range")                                                         \
    X(COUNT_MISMATCH, ARGUMENT, "a count is not the one that is needed")                                             \
    X(SHAPE_RANK, SHAPE, "a shape has 1 to IGNIS_MAX_DIMS dimensions")                                               \
    X(SHAPE_DIM, SHAPE, "a dimension is not negative")                                                               \
    X(SHAPE_OVERFLOW, SHAPE, "the number of elements and bytes fits 63 bits")                                        \
    X(SHAPE_DIFFERS, SHAPE, "shapes are equal, or hold equally many elements")                                       \
    X(SLICE_RANGE, SHAPE, "a slice lies inside its dimension")                                                       \
    X(SLICE_STRIDED, SHAPE, "only contiguous slices can be views")                                                   \
    X(ROWS_OVERFLOW, SHAPE, "rows are written inside the destination")                                               \
    X(DTYPE_DIFFERS, DTYPE, "arrays have the same element type")                                                     \
    X(ARRAY_FREED, FREED, "an array is used only while its handle is live")                                          \
    X(KERNEL_FREED, FREED, "a kernel is used only while its handle is live")                                         \
    X(ARRAY_UNWRITTEN, ARGUMENT, "an array is written before it is read")                                            \
    X(WRONG_KIND, FREED, "a handle is used only as what it is")                                                      \
    X(FREE_BY_OTHER, CONTRACT, "only its owner frees an array")                                                      \
    X(FREE_REFERENCED, CONTRACT, "an array is not freed while others hold references to it")                         \
    X(DOUBLE_ACQUIRE, CONTRACT, "an owner does not acquire what it owns already")                                    \
    X(RELEASE_BY_OTHER, CONTRACT, "only its owner releases an array")                                                \
    X(TRANSFER_REFERENCED, CONTRACT, "ownership does not move while ref_count is above 1")                           \
    X(OWNER_DIFFERS, CONTRACT, "an array is owned by the expected owner")                                            \
    X(REF_COUNT_ZERO, CONTRACT, "a reference is given back only after it was taken")                                 \
    X(REF_COUNT_OVERFLOW, CONTRACT, "a reference count stays below 2^31")                                            \
    X(PIN_TWICE, CONTRACT, "pinned host memory is allocated once per array")                                         \
    X(PIN_MISSING, CONTRACT, "pinned host memory is freed only after it was allocated")                              \
    X(ARRAY_LEAKED, CONTRACT, "every array is freed before shutdown")                                                \
    X(HOST_MEMORY, MEMORY, "the host allocator has memory")                                                          \
    X(DEVICE_MEMORY, MEMORY, "the device has memory")                                                                \
    X(PINNED_MEMORY, MEMORY, "the system has pinned host memory")                                                    \
    X(LIBRARY_MISSING, LIBRARY, "the library is installed where it is looked for")                                   \
    X(LIBRARY_SYMBOL, LIBRARY, "the library is new enough to have the function")                                     \
    X(DEVICE_NONE, DEVICE, "there is a CUDA device")                                                                 \
    X(DEVICE_RANGE, DEVICE, "a device ordinal is below ignis_device_count")                                          \
    X(DEVICE_DIFFERS, DEVICE, "arrays, streams and kernels of one call are on one device")                           \
    X(DEVICE_LOST, DEVICE, "no device is used after a fault, until the process ends")                                \
    X(COMPILE_FAILED, COMPILE, "the CUDA source compiles")                                                           \
    X(ENTRY_MISSING, COMPILE, "the source has a __global__ function of the entry's name")                            \
    X(ARG_COUNT, ARGUMENT, "a kernel gets as many arguments as it has parameters")                                   \
    X(ARG_SIZE, ARGUMENT, "an argument is as large as the kernel's parameter")                                       \
    X(LAUNCH_SIZE, ARGUMENT, "a launch stays inside the limits of device and kernel")                                \
    X(CUDA_CALL, CUDA, "the driver accepts the call")                                                                \
    X(STREAM_INVALID, ARGUMENT, "a stream belongs to the current device")                                            \
    X(UNSUPPORTED, UNSUPPORTED, "the device and the libraries can do what is asked")                                 \
    X(CACHE_IO, IO, "the kernel cache folder can be read and written")                                               \
    X(TENSOR_FREED, FREED, "a tensor is used only while its handle is live")                                         \
    X(GRAD_OF_INTEGERS, DTYPE, "gradients are floating-point")                                                       \
    X(SCOPE_ORDER, ARGUMENT, "scopes and no-grad sections end in the order in which they began, innermost first")    \
    X(TAPE_OF_OTHER, ARGUMENT, "a tape belongs to the thread that recorded it")                                      \
    X(TAPE_WALKED, ARGUMENT, "what a backward walks is not cleared under it")                                        \
    X(RECORDED_TWICE, ARGUMENT, "a tensor is the result of one operation")                                           \
    X(BACKWARD_NOT_SCALAR, ARGUMENT, "backward starts from one element, or from a gradient that is given")           \
    X(BACKWARD_TWICE, ARGUMENT, "what was recorded is walked once")                                                  \
    X(BACKWARD_FAILED, ARGUMENT, "a backward function says itself what went wrong")                                  \
    X(GRADIENT_LATE, ARGUMENT, "a gradient is known before it is given to other ranks")                              \
    X(PARALLEL_BUSY, ARGUMENT, "one backward at a time averages gradients over ranks")                               \
    X(NO_GRAD_WANTED, ARGUMENT, "gradients exist for tensors that require them")                                     \
    X(CAPTURE_STATE, ARGUMENT, "a thread captures one graph at a time")                                              \
    X(CAPTURE_REFUSED, UNSUPPORTED, "what waits for the device or reads host memory is not captured")                \
    X(GRAPH_FREED, FREED, "a graph is used only while its handle is live")                                           \
    X(GRADIENT_WRONG, MISMATCH, "a gradient is that of its function")                                                \
    X(MATMUL_SHAPE, SHAPE, "matrices fit together")                                                                  \
    X(CUBLAS_CALL, CUDA, "cuBLASLt accepts the call")                                                                \
    X(SDPA_HEADS, ARGUMENT, "query heads come in equal groups, one for each key head")                               \
    X(SDPA_SHAPE, SHAPE, "queries, keys and values fit together")                                                    \
    X(SPREAD_SHAPE, SHAPE, "the second shape is the first one, or spreads over it")                                  \
    X(DIM_RANGE, SHAPE, "a dimension is one that the tensor has")                                                    \
    X(PARTS_SHAPE, SHAPE, "parts differ in one dimension only, and add up")                                          \
    X(OPTIMIZER_FREED, FREED, "an optimizer is used only while its handle is live")                                  \
    X(PARAMETER_KIND, ARGUMENT, "parameters and checked inputs are leaves that require gradients, each once")        \
    X(STORAGE_IO, IO, "a file of tensors can be read and written")                                                   \
    X(STORAGE_FORMAT, FORMAT, "a file of tensors is a sound safetensors file")                                       \
    X(STORAGE_NAME, ARGUMENT, "tensors in a file have names in UTF-8, each of them once")                            \
    X(STORAGE_MISSING, ARGUMENT, "a tensor that is to be loaded is in the file")                                     \
    X(FREE_EXPORTED, CONTRACT, "an array is not freed, and does not change its owner, while other processes use it") \
    X(VMM_FREED, FREED, "VMM memory and address ranges are used only while their handles are live")                  \
    X(VMM_STATE, ARGUMENT, "memory is mapped once at a place, and unmapped as it was mapped")                        \
    X(VMM_SIZE, ARGUMENT, "sizes and offsets of VMM memory are multiples of its granularity")                        \
    X(NOT_SHAREABLE, ARGUMENT, "what is shared was made to be shared")                                               \
    X(CHANNEL_FREED, FREED, "a channel is used only while its handle is live")                                       \
    X(CHANNEL_IO, IO, "a channel can be opened, read and written")                                                   \
    X(CHANNEL_DESCRIPTOR, UNSUPPORTED, "a descriptor travels through a socket")                                      \
    X(CHANNEL_LOST, PEER, "the other side of a channel is there")                                                    \
    X(CHANNEL_MESSAGE, PEER, "messages keep to the protocol")                                                        \
    X(CHANNEL_TIMEOUT, TIMEOUT, "the other side answers before the deadline")                                        \
    X(TRANSPORT_FREED, FREED, "a transport is used only while its handle is live")                                   \
    X(TRANSPORT_STATE, ARGUMENT, "a transport is initialized before it is used")                                     \
    X(TRANSPORT_HANDLE, ARGUMENT, "a receive through IPC has the sender's handle")                                   \
    X(TRANSPORT_UNAVAILABLE, UNSUPPORTED, "the two devices can reach each other that way")                           \
    X(TRANSPORT_RECORD, FORMAT, "a handle that is imported is whole, and of this job")                               \
    X(TRANSPORT_PEER, PEER, "a handle comes from the process that it names")                                         \
    X(TRANSPORT_MISMATCH, MISMATCH, "a handle says what its memory is")                                              \
    X(COMM_FREED, FREED, "a communicator is used only while its handle is live")                                     \
    X(COMM_ENVIRONMENT, ARGUMENT, "the environment names rank and size, and does not contradict itself")             \
    X(COMM_RENDEZVOUS, PEER, "all ranks meet")                                                                       \
    X(COMM_TIMEOUT, TIMEOUT, "all ranks come to a collective operation before its deadline")                         \
    X(COMM_MISMATCH, MISMATCH, "all ranks ask for the same operation, count, dtype and root")                        \
    X(COMM_PEER, PEER, "all ranks are alive")                                                                        \
    X(COMM_BROKEN, PEER, "a communicator that has failed is shrunk or destroyed")                                    \
    X(COMM_OVERLAP, ARGUMENT, "input and output are the same memory, or apart")                                      \
    X(NCCL_CALL, CUDA, "NCCL accepts the call")                                                                      \
    X(PARALLEL_FREED, FREED, "data-parallel training is used only while its handle is live")                         \
    X(KERNEL_HEADER, ARGUMENT, "each header of a kernel has a name of its own")                                      \
    X(HANDLE_LEAKED, CONTRACT, "kernels, communicators and other handles are freed before shutdown")                 \
    X(OVERLAP, ARGUMENT, "what is read and what is written are the same memory, or apart")                           \
    X(SAVED_CHANGED, ARGUMENT, "what backward needs of the forward pass is not written to before it")                \
    X(GRADIENT_SHARED, ARGUMENT, "a gradient that is summed over ranks stays in its memory")                         \
    X(EVENT_FREED, FREED, "an event is used only while its handle is live")                                          \
    X(EVENT_STATE, ARGUMENT, "time is measured between events that were recorded, and are done")                     \
    X(TICKET_FREED, FREED, "a ticket is waited for once")                                                            \
    X(HOST_UNKNOWN, ARGUMENT, "pinned host memory is freed as it was allocated, once")                               \
    X(INSIDE_CALLBACK, NOT_SETUP, "what runs when a stream is done does not call Ignis")                             \
    X(SYMBOL_MISSING, ARGUMENT, "a kernel has a __constant__ or __device__ variable of that name")                   \
    X(FORMULA, ARGUMENT, "a formula is sound, and has named inputs")                                                 \
    X(CONV_SHAPE, SHAPE, "images, weights and bias of a convolution fit together")                                   \
    X(REPORT_IO, IO, "a report can be written to the file that is named")                                            \
    X(PROFILE_STATE, ARGUMENT, "one profile at a time is begun, and ended")                                          \
    X(KERNEL_MISSING, COMPILE, "where nothing is compiled, each program is in the bundle or in the cache")           \
    X(KERNEL_IMAGE, FORMAT, "the image of a kernel is a whole cubin, fatbin or PTX text")                            \
    X(BUNDLE_IO, IO, "a bundle can be read, and a record be written")                                                \
    X(BUNDLE_FORMAT, FORMAT, "a bundle is as ignis_embed has made it")                                               \
    X(BUNDLE_MISMATCH, MISMATCH, "a bundle is made by and for this version of Ignis, and for the device")            \
    X(GGUF_FORMAT, FORMAT, "a file of tensors and keys is a sound GGUF file")                                        \
    X(SEQUENCE_FREED, FREED, "a sequence is used only while its handle is live")                                     \
    X(CONTEXT_FULL, ARGUMENT, "a sequence is no longer than the context of its model")                               \
    X(CACHE_FULL, MEMORY, "the cache of a model has pages for all its sequences")                                    \
    X(WRONG_MODEL, ARGUMENT, "sequences of one step are of one model")                                               \
    X(MODEL_FREED, FREED, "a model is used only while its handle is live")                                           \
    X(MODEL_CONFIG, FORMAT, "a model's description is complete, and contradicts neither itself nor the weights")     \
    X(MODEL_CANCELLED, IO, "what opens a model is not told to stop")                                                 \
    X(LORA_FREED, FREED, "adapters are used only while their handle is live")                                        \
    X(LORA_FORMAT, FORMAT, "the files of adapters are complete, and fit the model")                                  \
    X(LORA_STATE, ARGUMENT, "adapters are set on the model they were made for, and merged once")                     \
    X(TOKENIZER_FREED, FREED, "a tokenizer is used only while its handle is live")                                   \
    X(TOKENIZER_IO, IO, "the files of a tokenizer can be read")                                                      \
    X(TOKENIZER_FORMAT, FORMAT, "the files of a tokenizer are whole, and do not contradict each other")              \
    X(TOKEN_RANGE, ARGUMENT, "an id is one of the tokenizer's")                                                      \
    X(GRAMMAR, ARGUMENT, "a grammar is sound, and texts keep to it")                                                 \
    X(EXTERNAL_HANDLE, ARGUMENT, "what a graphics API hands over is open, and of the type that is named")            \
    X(FENCE_FREED, FREED, "a fence is used only while its handle is live")                                           \
    X(FENCE_VALUE, ARGUMENT, "the value of a fence only rises")                                                      \
    X(GL_BUFFER_FREED, FREED, "a registered OpenGL buffer is used only while its handle is live")                    \
    X(GL_BUFFER_STATE, ARGUMENT, "an OpenGL buffer is mapped once, and unmapped before it is unregistered")          \
    X(GL_BUFFER_USED, CONTRACT, "an OpenGL buffer is unmapped when no view and no graph uses its memory")            \
    X(CHAT_TEMPLATE, ARGUMENT, "a chat template is sound, and has what it needs")                                    \
    X(CHAT_REFUSED, ARGUMENT, "a chat template takes the messages: if not, it says why")                             \
    X(CHAT_LIMIT, UNSUPPORTED, "a chat template keeps within its limits of steps, depth and memory")                 \
    X(CHAT_VARIABLES, ARGUMENT, "the variables of a chat are an object of JSON")                                     \
    X(NO_TOKEN, ARGUMENT, "some token can be drawn: its logit is a number, and nothing forbids it")

typedef enum ignis_diagnostic {
    IGNIS_DIAG_NONE = 0,
#define IGNIS__DIAGNOSTIC_ENUM(name, status, rule) IGNIS_DIAG_##name,
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ENUM)
#undef IGNIS__DIAGNOSTIC_ENUM
        IGNIS_DIAG_COUNT
} ignis_diagnostic;

/*  The first failure of a thread since ignis_status_clear. Strings live until the thread's next ignis_status_clear, and no longer than until
    another thread calls ignis_shutdown: of a message that is longer the first 255 bytes stay then.
    Messages are UTF-8 in one line, to which the lines of a log may be added. Names and texts from files, peers, the environment and the caller are
    shown so that they cannot end the line or move a terminal: control characters, signs that turn the direction of writing and bytes that are no
    UTF-8 are written as \n, \x1b and so on. A message of more than 4,000 bytes loses its middle. What goes to the logger is written so, too. */
typedef struct ignis_status_info {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;        /* the public function that failed */
    const char *message;     /* "call: what was expected and what came" */
    int driver_error;        /* CUresult, nvrtcResult or cublasStatus_t; 0: none */
    const char *driver_name; /* its name, "" for none */
    const char *log;         /* the whole compile log, or the files that were tried; "" for none */
} ignis_status_info;

/*  How serious a message to the logger is. */
typedef enum ignis_log_level { IGNIS_LOG_INFO = 1, IGNIS_LOG_WARNING, IGNIS_LOG_ERROR } ignis_log_level;

/*  Gets every warning and error at the moment it happens, and information when ignis_desc.verbose is set.
    It is called on the thread that failed, and must not call Ignis. */
typedef struct ignis_logger {
    void (*log_fn)(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data);
    void *user_data;
} ignis_logger;

/*  ignis_status_last - the first failure of this thread since ignis_status_clear
    Returns: its status, IGNIS_OK for none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_last(void);

/*  ignis_status_message - the sentence of that failure, such as "ignis_array_slice: dim 3 is outside [2, 3]"
    Returns: the text, "" for no failure.
    Errors: none.
    Ownership: lives until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_message(void);

/*  ignis_status_latest_message - the sentence of this thread's latest failure since ignis_status_clear, which may be the first
    Returns: the text, "" for no failure. A call that failed quietly, as it was given handle 0 after a failure, has none.
    Errors: none.
    Ownership: lives until this thread's next failure or ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_latest_message(void);

/*  ignis_status_query - everything that is known of that failure
    Returns: its status.
    Errors: none; a null info is allowed.
    Ownership: the strings live until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_query(ignis_status_info *info);

/*  ignis_status_clear - forget the failure, so that the next one is kept
    Returns: nothing.
    Errors: none.
    Ownership: frees the texts of the failure, and that of ignis_status_latest_message.
    Threads: any; each has its own. */
IGNIS_API void ignis_status_clear(void);

/*  ignis_status_begin - put the thread's failure aside, so that a job which runs in a thread of others can ask for its own
    Until ignis_status_end the thread is as after ignis_status_clear: ignis_status_last, _message and _query are about what fails in between. Such
    pairs may be nested.
    Returns: nothing.
    Errors: none. Where there is no memory to put a failure aside, it stays the thread's first.
    Ownership: texts of the failure that is put aside live on.
    Threads: any; each has its own. Begin and end in one thread. */
IGNIS_API void ignis_status_begin(void);

/*  ignis_status_end - forget what has failed since ignis_status_begin, and have back what had failed before it
    Returns: the status of the first failure in between, IGNIS_OK for none.
    Errors: ARGUMENT (nothing was begun in this thread).
    Ownership: frees the texts of the failures in between.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_end(void);

/*  ignis_status_name - "IGNIS_ERROR_SHAPE" for IGNIS_ERROR_SHAPE
    Returns: a constant string, "unknown status" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_status_name(ignis_status status);

/*  ignis_diagnostic_name - "SLICE_STRIDED" for IGNIS_DIAG_SLICE_STRIDED
    Returns: a constant string, "unknown diagnostic" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic);

/*  ignis_diagnostic_rule - the rule behind a diagnostic: "only contiguous slices can be views"
    Returns: a constant string, "" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic);

/* >>setup ------------------------------------------------------------------------------------------------------- */

/*  Where Ignis' own host memory comes from. Set both functions or none. Called from any thread. */
typedef struct ignis_allocator {
    void *(*alloc_fn)(size_t size, void *user_data);
    void (*free_fn)(void *ptr, void *user_data);
    void *user_data;
} ignis_allocator;

/*  Who computes matrix products. Own kernels sum in a fixed order; so does cuBLASLt, in another one, so the last bits of the two differ. */
typedef enum ignis_matmul_by {
    IGNIS_MATMUL_AUTO,     /* own kernels for large products of f16, bf16 and tf32 on compute capability 9.0; else cuBLASLt, if found */
    IGNIS_MATMUL_CUBLASLT, /* cuBLASLt alone; without it products fail */
    IGNIS_MATMUL_OWN,      /* own kernels alone; cuBLASLt is not loaded */
    IGNIS_MATMUL_MEASURE,  /* the faster one of each kind of product, measured once a device and kept in the kernel cache's folder */
    IGNIS_MATMUL_COUNT
} ignis_matmul_by;

/*  Which kernels compute ignis_sdpa. */
typedef enum ignis_attention_by {
    IGNIS_ATTENTION_AUTO, /* IGNIS_ATTENTION_WGMMA where it can be had, else IGNIS_ATTENTION_MMA */
    IGNIS_ATTENTION_MMA, /* for tensor cores of every device that has them, in plain CUDA C for the others and for what those do not take */
    IGNIS_ATTENTION_WGMMA, /* for devices of compute capability 9.0, where they can: see ignis_sdpa; the others where they cannot */
    IGNIS_ATTENTION_COUNT
} ignis_attention_by;

/*  Whether programs may be compiled where the program runs: see ON SHIPPING. */
typedef enum ignis_compile_when {
    IGNIS_COMPILE_AUTO,  /* what is in no bundle and no cache is compiled */
    IGNIS_COMPILE_NEVER, /* what is in no bundle and no cache is an error; NVRTC is never opened */
    IGNIS_COMPILE_COUNT
} ignis_compile_when;

typedef struct ignis_desc {
    int device;                   /* the device that threads start with (0) */
    const char *cuda_library;     /* path of libcuda / nvcuda (searched) */
    const char *nvrtc_library;    /* path of libnvrtc (searched when a kernel has to be compiled) */
    const char *cublas_library;   /* path of libcublasLt (searched when a matrix product is asked for; none is needed) */
    const char *nccl_library;     /* path of libnccl, for ignis_collective.h (searched when asked for) */
    const char *cache_dir;        /* folder of the kernel cache (IGNIS_CACHE_DIR, else the user's cache folder); "off": none */
    int64_t cache_limit;          /* bytes that the kernel cache may hold (256 MiB) */
    int64_t memory_limit;         /* bytes of device memory that Ignis may reserve on each device (no limit) */
    bool allow_tf32;              /* true: products of f32 may round their factors to tf32 (10 bits), which is several times faster */
    bool memory_bypass;           /* true: no caching of device memory, each block is one driver allocation (IGNIS_MEMORY_BYPASS=1) */
    bool verbose;                 /* true: the logger gets information too (IGNIS_VERBOSE=1) */
    ignis_allocator allocator;    /* malloc and free */
    ignis_logger logger;          /* writes warnings and errors to stderr */
    ignis_matmul_by matmul;       /* who computes matrix products (IGNIS_MATMUL=cublaslt, own or measure; the faster as a rule) */
    ignis_attention_by attention; /* which kernels compute ignis_sdpa (IGNIS_ATTENTION=mma or wgmma; the fastest) */
    const char *record;           /* file to which each program that is asked for is added, for ignis_embed (IGNIS_RECORD; none) */
    const void *bundle;           /* programs that ignis_embed has compiled, in memory that lives until ignis_shutdown (none) */
    size_t bundle_size;           /* bytes of it */
    const char *bundle_path;      /* the same in a file (IGNIS_BUNDLE; none) */
    ignis_compile_when compile;   /* whether other programs may be compiled (IGNIS_COMPILE=never; yes) */
    bool dry_run;                 /* true: no driver, nothing runs, memory is only counted (IGNIS_DRY_RUN=1): see ON DRY RUNS */
    const struct ignis_device_info *dry_device; /* the device of a dry run: facts that are 0 are those of an H200 (all) */
    bool trace_memory; /* true: ignis_memory_rows knows what the peak was made of (IGNIS_TRACE_MEMORY=1; always in a dry run) */
} ignis_desc;

/*  The libraries that are opened at run time. */
typedef enum ignis_library {
    IGNIS_LIBRARY_CUDA = 1,
    IGNIS_LIBRARY_NVRTC,
    IGNIS_LIBRARY_CUBLASLT,
    IGNIS_LIBRARY_NCCL,
    IGNIS_LIBRARY_COUNT
} ignis_library;

typedef struct ignis_library_info {
    const char *path;    /* the name it was opened by; "linked" with IGNIS_LINK_CUDA, but for NCCL */
    int version;         /* 1000 * major + 10 * minor */
    int functions;       /* functions that Ignis knows */
    int functions_found; /* of which this version has so many */
} ignis_library_info;

/*  ignis_setup - load the driver and get ready; desc may be null for all defaults
    Opens no context and uses no device memory yet: a device is opened when it is first used.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (set up already, contradictory desc), LIBRARY (no driver; the message lists every place that was
    tried), DEVICE (no such device), IO and FORMAT (of the bundle; the record), MEMORY.
    Ownership: desc and its strings are copied, desc->bundle is not.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - free everything that Ignis holds, after reporting what is still alive: arrays, tensors, kernels, graphs, optimizers, channels
    It is said to the logger, a line each up to 20; of kernels with the file of their source, or the caller's line (ignis_call_site).
    Handles from before stay stale for ever, also after another ignis_setup. Without a setup it does nothing.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is released all the same.
    Errors: CUDA, ARGUMENT (inside a function that ignis_backward, ignis_checkpoint or ignis_gradcheck runs: nothing is freed then).
    Ownership: wrapped memory and streams stay the caller's.
    Threads: one thread, when no other is inside an Ignis call. Waits for all devices that were used. */
IGNIS_API ignis_status ignis_shutdown(void);

/*  ignis_version_string - IGNIS_VERSION_MAJOR, _MINOR and _PATCH as text
    Returns: a constant string.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_version_string(void);

/*  ignis_call_site - say where in the caller's code the calling thread is, for ignis_memory_rows and what is made of them
    It holds until the next one. With IGNIS_TRACE_CALLS defined before the #include, calls that make something say it themselves.
    Returns: nothing.
    Errors: none.
    Ownership: file is a constant string, such as __FILE__.
    Threads: any; each has its own. */
IGNIS_API void ignis_call_site(const char *file, int line);

/*  ignis_library_query - load a library if it is not loaded, and say which file it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);

/* >>device ------------------------------------------------------------------------------------------------------ */

#define IGNIS_MAX_DEVICES 64 /* that a process can use */

typedef struct ignis_device_info {
    int device; /* Ignis' and the driver's ordinal */
    char name[128];
    unsigned char uuid[16];
    char pci_bus_id[16]; /* "0000:1b:00.0" */
    int compute_major, compute_minor;
    int multiprocessors;
    int warp_size; /* threads */
    int max_threads_per_block;
    int shared_per_block; /* bytes of shared memory that a block may ask for, the opt-in maximum */
    int64_t l2_bytes;
    int64_t memory_total;  /* bytes */
    int driver_version;    /* 1000 * major + 10 * minor, such as 13000 */
    unsigned char luid[8]; /* Windows: what Direct3D and Vulkan call the adapter; 0 elsewhere */
    unsigned node_mask;    /* Windows: which node of that adapter; 0: there is no luid */
} ignis_device_info;

/*  ignis_device_count - how many CUDA devices this process sees
    Returns: the count, 0 when there is none or on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_count(void);

/*  ignis_device_query - facts about one device; opens no context
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE (no such device).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_device_query(int device, ignis_device_info *info);

/*  ignis_device_find - the device that another API calls by this UUID (16 bytes), or, on Windows, by this LUID (8 bytes)
    Vulkan has both in VkPhysicalDeviceIDProperties, Direct3D the LUID of its adapter. A null one does not matter.
    Returns: its ordinal, -1 on failure.
    Errors: ARGUMENT (both are null), DEVICE (there is no such device, or CUDA_VISIBLE_DEVICES hides it), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_find(const void *uuid, const void *luid);

/*  ignis_device_use - make a device the calling thread's current one, and open it if need be
    Afterwards its primary context is current in this thread, for cudart code too.
    Returns: IGNIS_OK, or the reason.
    Errors: DEVICE (no such device, or all lost to a fault), MEMORY, CUDA.
    Ownership: Ignis holds the primary context until ignis_shutdown.
    Threads: any; each has its own current device. */
IGNIS_API ignis_status ignis_device_use(int device);

/*  ignis_device_current - the calling thread's current device
    Returns: its ordinal, -1 before ignis_setup.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API int ignis_device_current(void);

/* >>stream ------------------------------------------------------------------------------------------------------ */

/*  ignis_stream_use - put the calling thread's work on the current device into the caller's cudaStream_t or CUstream
    null goes back to Ignis' own stream, which is a blocking one: ordered with the legacy default stream of cudart code. cudaStreamLegacy is
    accepted. cudaStreamPerThread is not, as it is one handle of as many streams as there are threads; in a program compiled with
    --default-stream per-thread, which makes that the default one of cudart calls, give each thread that uses Ignis a stream of cudaStreamCreate.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (the stream is of another device, or the per-thread one), UNSUPPORTED (it is that of a capture), CUDA.
    Ownership: the stream stays the caller's; call ignis_stream_forget before destroying it.
    Threads: any; each has its own current stream per device. */
IGNIS_API ignis_status ignis_stream_use(void *stream);

/*  ignis_stream_current - the stream that the calling thread's work on the current device goes to
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: NOT_SETUP, DEVICE, CUDA.
    Ownership: stays where it was.
    Threads: any; each has its own. */
IGNIS_API void *ignis_stream_current(void);

/*  ignis_stream_forget - before the caller destroys a stream: wait for its work, and stop using it
    Memory of arrays made on it moves to Ignis' own stream; a thread that has it as its current stream goes back to that one
    at its next call.
    Returns: IGNIS_OK; also for a stream that Ignis never saw.
    Errors: ARGUMENT (null, or one of ignis_stream_create, which ignis_stream_free forgets), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the stream stays the caller's.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_forget(void *stream);

typedef struct ignis_stream_desc {
    int priority; /* above 0: the device prefers its work, the more the higher, as far as it tells priorities apart (0, as other streams) */
} ignis_stream_desc;

/*  ignis_stream_create - a new stream of the current device, for ignis_stream_use and ignis_array_desc.stream; desc may be null
    It is ordered with no other stream (cudaStreamNonBlocking). Making one takes the driver some time: make streams when a program starts.
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_stream_free; ignis_shutdown reports and frees those that are left.
    Threads: any. */
IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc);

/*  ignis_stream_free - forget a stream of ignis_stream_create, as by ignis_stream_forget, and destroy it
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not one of ignis_stream_create, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the address means nothing afterwards, and may be that of a later stream.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_free(void *stream);

/*  ignis_stream_query - whether all work that was put into a stream is done; null for the calling thread's current one
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: ARGUMENT (null done, no stream of this device), UNSUPPORTED (it is captured), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done);

/*  ignis_stream_wait - let what is put into a stream from now on begin when all is done that another one has so far
    ignis_stream_wait_event - the same for what the other one had when the event was recorded; at once for one that never was
    null for the calling thread's current stream. The streams may be of different devices. In a capture a stream that waits for the one that
    is captured becomes part of the graph, too, and the captured one has to wait for it before ignis_graph_end; Ignis itself still puts
    its work into the captured one alone. What is outside of the capture cannot be waited for in it.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (no stream of this device), FREED, UNSUPPORTED (one of the two belongs to a capture that the other cannot join),
    DEVICE, CUDA.
    Ownership: unchanged; the event may be recorded again, or freed, at once.
    Threads: any. The calling thread does not wait. */
IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other);
IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event event);

/*  ignis_stream_call - call a function of the program once all is done that a stream has so far
    It runs on a thread of the driver, and what is put into the stream later begins when it has returned: so it sets a flag or wakes a
    thread. It must not wait for work of the device, nor call CUDA or Ignis: calls of Ignis inside it fail with IGNIS_DIAG_INSIDE_CALLBACK.
    In a capture it becomes part of the graph, and is called at each launch. After a fault of the device it is not called any more.
    null for the calling thread's current stream.
    Returns: IGNIS_OK, or the reason; then it is not called.
    Errors: ARGUMENT (null fn, no stream of this device), UNSUPPORTED (another thread captures the stream), MEMORY, DEVICE, CUDA.
    Ownership: user_data lives until the call; in a capture until the graph is freed.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data);

/*  ignis_event_create - a point in the work of the current device's streams, that can be waited for and timed
    Returns: the event, never recorded; or no handle.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_event_free.
    Threads: any. */
IGNIS_API ignis_event ignis_event_create(void);

/*  ignis_event_record - put an event behind all that a stream has so far; null for the calling thread's current stream
    Recording it again moves it. In a capture it is a point of the graph: ignis_stream_wait_event alone can use it then, until it is
    recorded anew.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no stream of this device), DEVICE (a stream of another device than the event), UNSUPPORTED (another thread captures
    the stream), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_event_record(ignis_event event, void *stream);

/*  ignis_event_query - whether the work before an event is done; ignis_event_wait - wait until it is
    An event that was never recorded is done.
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: FREED, ARGUMENT (null done), UNSUPPORTED (it was recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. ignis_event_wait waits; nobody may record the event in a capture meanwhile. */
IGNIS_API ignis_status ignis_event_query(ignis_event event, bool *done);
IGNIS_API ignis_status ignis_event_wait(ignis_event event);

/*  ignis_event_elapsed_ms - the time between two events of one device, in milliseconds, to about half a microsecond
    The driver gives it as a float: of more than ten seconds it is one part in 16 million that it is exact to.
    Returns: IGNIS_OK, and *ms.
    Errors: FREED, ARGUMENT (null ms; an event was never recorded, or is not done), UNSUPPORTED (recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms);

/*  ignis_event_free - free an event
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; streams that wait for it go on waiting.
    Threads: any. */
IGNIS_API ignis_status ignis_event_free(ignis_event event);

/*  ignis_synchronize - wait until all work on the current device is done, and report what failed meanwhile
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: DEVICE (the devices were lost to a fault), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_synchronize(void);

/* >>memory ------------------------------------------------------------------------------------------------------ */

/*  All sizes in bytes. "reserved" is what Ignis holds of the driver, "live" what arrays use of it. */
typedef struct ignis_memory_info {
    int64_t device_total, device_free; /* as the driver says, all processes together */
    int64_t live_bytes, live_peak;
    int64_t reserved_bytes, reserved_peak;
    int64_t live_blocks;
    int64_t segments;                /* driver allocations held */
    int64_t largest_free;            /* the largest block that the cache could hand out */
    int64_t allocations, cache_hits; /* requests since setup, and how many needed no driver call */
    int64_t driver_allocations, driver_frees;
    int64_t limit;        /* ignis_desc.memory_limit; 0: none */
    int64_t pinned_bytes; /* pinned host memory, of all devices together */
    int64_t vmm_bytes;    /* physical memory of ignis_collective.h, beside what is reserved: see ON VIRTUAL MEMORY there */
} ignis_memory_info;

/*  ignis_memory_query - what Ignis holds of a device's memory, and what the device has
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_memory_query(int device, ignis_memory_info *info);

/*  Memory by what it was taken for. */
typedef struct ignis_memory_row {
    char tag[32];       /* of the array; "": it has none, or it is memory that an operation works with */
    const char *call;   /* the function that made it, */
    const char *inside; /* and the one that has run that, such as "ignis_backward"; "" */
    const char *file;   /* where the caller's code called it, if compiled with IGNIS_TRACE_CALLS; "" */
    int line;
    int64_t live_bytes, live_blocks;
    int64_t peak_bytes; /* that it had when live_bytes of the device was at its peak; 0 without ignis_desc.trace_memory */
} ignis_memory_row;

/*  ignis_memory_rows - what a device's memory is used for: by tag, function and place in the caller's code, the most at the peak first
    With ignis_desc.trace_memory, and in a dry run, rows stay when their memory is freed, and say what they had at the peak; else there are those
    alone that live. Bytes are those of blocks, which are rounded up to 512. rows may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, DEVICE, MEMORY.
    Ownership: rows are copies; their strings are constant.
    Threads: any. */
IGNIS_API int ignis_memory_rows(int device, ignis_memory_row *rows, int capacity);

/*  ignis_memory_trim - give cached memory that no array uses back to the driver, and pinned memory that was kept for the next file that is read
    With several devices in use, what a file is read through is kept: to free pinned memory CUDA waits for all of them.
    Returns: the number of bytes of the device that were given back, -1 on failure.
    Errors: DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device, and for all others. */
IGNIS_API int64_t ignis_memory_trim(int device);

/*  ignis_host_alloc - pinned (page-locked) host memory, which every device copies to and from while the program goes on
    Takes the system a while: allocate when a program starts. Its content is undefined.
    Returns: the address, null on failure.
    Errors: ARGUMENT (size below 1), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_host_free; ignis_shutdown reports and frees what is left.
    Threads: any. */
IGNIS_API void *ignis_host_alloc(int64_t size);

/*  ignis_host_free - free memory of ignis_host_alloc; null does nothing
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not an address that ignis_host_alloc gave, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the memory is gone when the call returns.
    Threads: any. Waits for the device, as copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_host_free(void *memory);

/* >>array ------------------------------------------------------------------------------------------------------- */

#define IGNIS_MAX_DIMS 8 /* of a shape */

/*  The dimensions of an array: IGNIS_SHAPE(rows, columns). Elements are in row-major order, the last dimension is contiguous. */
typedef struct ignis_shape {
    int ndim;
    int64_t dim[IGNIS_MAX_DIMS];
} ignis_shape;

/*  IGNIS_DTYPES - every element type, as X(enumerator suffix, lower-case name, bytes). Those of 8 bits are of the OCP 8-bit Floating Point
    Specification (2023): e4m3 has 4 bits of exponent, 3 of fraction and no infinities, e5m2 5 and 2. Arrays, their operations, formulas and what
    moves elements take them; operations of networks do not. */
#define IGNIS_DTYPES(X)    \
    X(F16, f16, 2)         \
    X(BF16, bf16, 2)       \
    X(F32, f32, 4)         \
    X(F64, f64, 8)         \
    X(I32, i32, 4)         \
    X(I64, i64, 8)         \
    X(U8, u8, 1)           \
    X(F8_E4M3, f8_e4m3, 1) \
    X(F8_E5M2, f8_e5m2, 1)

typedef enum ignis_dtype {
    IGNIS_DTYPE_DEFAULT = 0, /* IGNIS_F32 */
#define IGNIS__DTYPE_ENUM(NAME, name, size) IGNIS_##NAME,
    IGNIS_DTYPES(IGNIS__DTYPE_ENUM)
#undef IGNIS__DTYPE_ENUM
        IGNIS_DTYPE_COUNT
} ignis_dtype;

/*  Who may free an array or move its ownership: Ignis itself, the collective layer, the storage layer. */
typedef enum ignis_owner {
    IGNIS_OWNER_DEFAULT = 0, /* in option structs: IGNIS_OWNER_IGNIS */
    IGNIS_OWNER_IGNIS,
    IGNIS_OWNER_NVCCL,
    IGNIS_OWNER_WNAIS,
    IGNIS_OWNER_COUNT
} ignis_owner;

/*  Names device 0 in an option struct while another device is current. */
#define IGNIS_DEVICE_0 (-1)

typedef struct ignis_array_desc {
    ignis_shape shape; /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype; /* IGNIS_F32 */
    int device;        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    void *stream;      /* stream in whose order its memory is taken and given back (the current stream at its first use) */
    void *ptr;         /* device memory to wrap, never freed by Ignis (its own memory, allocated at the first use) */
    void (*release_fn)(void *ptr, void *user_data); /* with ptr: called once, when the last array over it is gone and its work is done */
    void *release_data;
    const char *tag; /* a name for messages and audits; copied, the first 31 bytes count ("") */
} ignis_array_desc;

typedef struct ignis_array_info {
    uint64_t id; /* counts up from 1 within the process, never used twice */
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    ignis_owner owner;
    int ref_count;
    void *stream;          /* null until memory is allocated, unless the desc named one */
    void *ptr;             /* device memory; null until it is allocated. The caller may write there, so the array counts as written */
    void *pinned_host_ptr; /* null unless ignis_array_pin was called */
    int64_t created_at_ns; /* nanoseconds since 1970-01-01 UTC, exact to a few milliseconds */
    bool owns_memory;      /* false for views and wrapped memory */
    bool on_device;        /* device memory is allocated */
    uint64_t parent;       /* info.id of the array it is a view of; 0: none */
    char tag[32];
    uint64_t version; /* of its memory: how often it was written to, as far as Ignis knows (see ignis_array_mark_written) */
} ignis_array_info;

/*  ignis_dtype_name - "f32" for IGNIS_F32; ignis_owner_name - "nvccl" for IGNIS_OWNER_NVCCL
    IGNIS_DTYPE_DEFAULT and IGNIS_OWNER_DEFAULT have the names of what they stand for.
    Returns: a constant string, "unknown dtype" or "unknown owner" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_dtype_name(ignis_dtype dtype);
IGNIS_API const char *ignis_owner_name(ignis_owner owner);

/*  ignis_dtype_size - the bytes of an element of a dtype; IGNIS_DTYPE_DEFAULT is IGNIS_F32
    Returns: 1, 2, 4 or 8; 0 for a number that is no dtype.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_dtype_size(ignis_dtype dtype);

/*  ignis_array_create - a new array, or one that wraps memory of the caller
    Shape: 1 to 8 dimensions, each 0 or more; numel and bytes must fit 63 bits. No device memory is taken until the
    array is first used; reading it is an error until it is written. Wrapped memory counts as written.
    Returns: the array, or no handle.
    Errors: ARGUMENT (also for a desc.ptr that is not device memory, or in an allocation that ends before the array), SHAPE, DEVICE,
    UNSUPPORTED (desc.stream is that of a capture), MEMORY.
    Ownership: the caller frees it with ignis_array_free. Wrapped memory stays the caller's and must outlive the array.
    Threads: any. */
IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc);

/*  ignis_array_free - free an array as IGNIS_OWNER_IGNIS; ignis_array_free_as - free it as the owner named
    The memory goes back in stream order once its last view is freed too; pinned host memory goes at once, as by ignis_array_unpin.
    Returns: IGNIS_OK, or why the array was left as it is.
    Errors: FREED (also for a second free), CONTRACT (another owner, or ref_count above 0; the message says who holds references).
    Ownership: the handle is stale afterwards; views of the array stay valid.
    Threads: any; waits while the system ends a process that had the array by IPC, for 5 s at most. Streams: work that is queued on the array
    still finishes first. */
IGNIS_API ignis_status ignis_array_free(ignis_array array);
IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner);

/*  ignis_array_is_live - whether the handle names an array that was not freed
    Returns: true or false.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; another thread may free it the moment after. */
IGNIS_API bool ignis_array_is_live(ignis_array array);

/*  ignis_array_query - every attribute of an array
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: pointers in info live as long as the array's memory.
    Threads: any. */
IGNIS_API ignis_status ignis_array_query(ignis_array array, ignis_array_info *info);

/*  ignis_array_numel - number of elements; ignis_array_size_bytes - bytes of all elements
    Returns: the number, -1 on failure.
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_array_numel(ignis_array array);
IGNIS_API int64_t ignis_array_size_bytes(ignis_array array);

/*  ignis_array_to_string - "array #7 [2, 3] f32 on device 0, owner ignis, ref_count 0, 'weights'"
    A stale handle gives "array #7 'weights', freed", or "array handle 0x... (freed)" once its slot has been used and freed again.
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_array_to_string(ignis_array array, char *out, size_t capacity);

/*  ignis_array_to_device - allocate the array's device memory now, if it is not
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the memory is the array's.
    Threads: any. */
IGNIS_API ignis_status ignis_array_to_device(ignis_array array);

/*  ignis_array_device_ptr - the address of the array's first element, after ignis_array_to_device
    Returns: a device pointer (CUdeviceptr), null on failure and for an array of no elements.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the array's; valid until the array and its views are freed. Work that the caller queues with the pointer
    on another stream than the array's has to be finished, or ordered before the array's stream, when the array is freed.
    Threads: any. */
IGNIS_API void *ignis_array_device_ptr(ignis_array array);

/*  ignis_array_mark_written - say that the caller's code has written, or is about to write, to an array
    Counts as a write in the array's version, so that a backward that needs the old content fails instead of giving a wrong gradient. For
    what Ignis cannot see: kernels of the caller that change an array in place, and code that has its address. Inside a capture it is said of each
    launch of the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED; inside a capture MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_array_mark_written(ignis_array array);

/*  ignis_array_zero - set every byte to zero
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_zero(ignis_array array);

/*  ignis_array_from_host - copy count elements of type dtype from the host, converting to the array's type
    Conversion: to a floating type rounds to nearest even, keeps NaN, infinities and signed zeros, overflows to infinity. Floating types
    of 8 bits saturate, at 448 (e4m3) and 57344 (e5m2), infinities too. To an integer type rounds toward zero and saturates; NaN becomes 0.
    0 for dtype means the array's own.
    Returns: IGNIS_OK, or the reason; on failure the array's content is undefined.
    Errors: FREED, ARGUMENT (null data, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_array_from_host_raw - copy the array's exact bytes from the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null bytes, size is not size_bytes), MEMORY, CUDA.
    Ownership: bytes may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array array, const void *bytes, int64_t size);

/*  ignis_array_to_host - copy all elements to the host, converting to dtype by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason; on failure the content of out is undefined.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype, the array was never written to), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host(ignis_array array, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_array_to_host_raw - copy the array's exact bytes to the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, size is not size_bytes, the array was never written to), CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array array, void *out, int64_t size);

/*  ignis_array_to_host_async, ignis_array_from_host_async - as ignis_array_to_host and _from_host, but the call does not wait
    The copy has its place in the order of the stream: what is written to the array later on that stream is not seen by it. The array may be
    freed at once. The host memory must live, and be left alone, until the ticket is done. Pinned memory (ignis_host_alloc, ignis_array_pin,
    cudaMallocHost) of the array's own type is copied directly. Other memory goes through pieces of pinned memory that Ignis keeps, and a
    thread of the driver, which copies or converts them: then later work of the stream waits for that thread, too.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT (null memory, count is not numel, no such dtype, the array was never written to), UNSUPPORTED (this thread
    captures a graph), MEMORY, CUDA. What fails later is reported by ignis_ticket_wait.
    Ownership: the caller ends the ticket by ignis_ticket_wait; out and data stay the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count);
IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_ticket_query - whether what a ticket stands for is through, well or not
    Returns: IGNIS_OK, and *done; the ticket stays.
    Errors: FREED, ARGUMENT (null done).
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_ticket_query(ignis_ticket ticket, bool *done);

/*  ignis_ticket_wait - wait for what a ticket stands for, and end the ticket
    ignis_shutdown waits for tickets that are left, and reports them.
    Returns: IGNIS_OK, or what it failed with.
    Errors: FREED, DEVICE (the devices were lost to a fault), CUDA, and those of the work itself.
    Ownership: the handle is stale afterwards, also after a failure; the host memory is the caller's alone again.
    Threads: any; several that wait at the same time all get the answer. Waits. */
IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket ticket);

/*  ignis_array_clone - a copy that shares no memory with the array
    Returns: a new array of the same shape, dtype, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT (the array was never written to), MEMORY, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_clone(ignis_array array);

/*  ignis_array_slice - elements [start, start + len) along dimension dim, as a view of the same memory
    Only contiguous slices can be views: dim 0, or a dim with nothing but 1s before it.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (dim or range outside the shape, or a strided slice).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_slice(ignis_array array, int dim, int64_t start, int64_t len);

/*  ignis_array_reshape - the same elements under another shape, as a view of the same memory
    One dimension of the new shape may be -1: it becomes what is left over.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (numel differs, or more than one -1).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_reshape(ignis_array array, ignis_shape shape);

/*  ignis_array_write_rows - copy all of src into dst from row start_row on
    Shapes: dst [rows, ...], src [r, ...] of the same dtype; src must be whole rows: its bytes divide by those of a row of dst.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE, SHAPE (not whole rows, or beyond the last row), DEVICE (different devices), ARGUMENT (src was never written to, or
    overlaps those rows in part), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row);

/*  ignis_array_pin - allocate pinned (page-locked) host memory of the array's size, for staging
    Returns: the host address, null on failure (and for an array of no elements).
    Errors: FREED, CONTRACT (pinned already), MEMORY.
    Ownership: the array's; freed by ignis_array_unpin or with the array.
    Threads: any. */
IGNIS_API void *ignis_array_pin(ignis_array array);

/*  ignis_array_unpin - free the pinned host memory, as IGNIS_OWNER_IGNIS
    Pinned memory belongs to Ignis whoever owns the array; a layer that owns the array may be staging through it, so it is not freed then.
    Returns: IGNIS_OK, or why it was left as it is.
    Errors: FREED, CONTRACT (not pinned, or another layer owns the array), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the address of ignis_array_pin is invalid afterwards.
    Threads: any. Waits for the device, as copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_array_unpin(ignis_array array);

/*  ignis_array_increment_ref, ignis_array_decrement_ref - take a reference to an array, and give it back
    While ref_count is above 0 the array cannot be freed; above 1 its ownership cannot move.
    Returns: the new ref_count, -1 on failure.
    Errors: FREED, CONTRACT (decrement at 0).
    Ownership: the caller gives back every reference that it takes.
    Threads: any. */
IGNIS_API int ignis_array_increment_ref(ignis_array array);
IGNIS_API int ignis_array_decrement_ref(ignis_array array);

/*  ignis_array_transfer_ownership - make owner the array's owner, whoever owns it now
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (ref_count above 1).
    Ownership: only owner may free the array afterwards.
    Threads: any; waits as ignis_array_free does. */
IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array array, ignis_owner owner);

