/* >>status - statuses, messages, diagnostics, the logger -------------------------------------------------------- */

/*  IGNIS_STATUSES - every status, as X(enumerator suffix, meaning). */
#define IGNIS_STATUSES(X)                                                                \
    X(NOT_SETUP, "ignis_setup has not been called, or Ignis cannot be called here")      \
    X(ARGUMENT, "an argument is out of its range, null or contradictory")                \
    X(SHAPE, "shapes do not match, or a size overflows")                                 \
    X(DTYPE, "an element type differs from the expected one")                            \
    X(FREED, "the handle was freed, or never existed")                                   \
    X(CONTRACT, "a rule of the memory contract was about to be broken")                  \
    X(MEMORY, "host, pinned or device memory has run out")                               \
    X(LIBRARY, "the driver, NVRTC or cuBLASLt is missing, or too old")                   \
    X(DEVICE, "no such device, or the devices were lost to an earlier fault")            \
    X(COMPILE, "CUDA source did not compile; the log is in the message")                 \
    X(CUDA, "the driver refused a call")                                                 \
    X(UNSUPPORTED, "the request is meaningful, but this device or version cannot do it") \
    X(IO, "a file could not be read or written")                                         \
    X(FORMAT, "a file is damaged, or of another format")                                 \
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

/*  IGNIS_DIAGNOSTICS - everything that can go wrong, as X(enumerator suffix, status suffix, the rule).
    Message texts may change between versions. The ids stay: tests and tools compare ids. */
#define IGNIS_DIAGNOSTICS(X)                                                                                         \
    X(NOT_SETUP, NOT_SETUP, "call ignis_setup first")                                                                \
    X(FORKED, NOT_SETUP, "CUDA does not survive fork; call ignis_setup in the child's own program")                  \
    X(ALREADY_SETUP, ARGUMENT, "call ignis_shutdown before the next ignis_setup")                                    \
    X(NULL_ARGUMENT, ARGUMENT, "a required pointer is not null")                                                     \
    X(BAD_ENUM, ARGUMENT, "an enumerator is inside its enumeration")                                                 \
    X(BAD_NUMBER, ARGUMENT, "a number is inside its range")                                                          \
    X(COUNT_MISMATCH, ARGUMENT, "a count is the expected one")                                                       \
    X(SHAPE_RANK, SHAPE, "a shape has 1 to IGNIS_MAX_DIMS dimensions")                                               \
    X(SHAPE_DIM, SHAPE, "a dimension is not negative")                                                               \
    X(SHAPE_OVERFLOW, SHAPE, "the number of elements and bytes fits 63 bits")                                        \
    X(SHAPE_DIFFERS, SHAPE, "shapes are equal, or have the same number of elements")                                 \
    X(SLICE_RANGE, SHAPE, "a slice is inside its dimension")                                                         \
    X(SLICE_STRIDED, SHAPE, "only contiguous slices can be views")                                                   \
    X(ROWS_OVERFLOW, SHAPE, "rows are written inside the destination")                                               \
    X(DTYPE_DIFFERS, DTYPE, "arrays have the same element type")                                                     \
    X(ARRAY_FREED, FREED, "an array is used only while its handle is live")                                          \
    X(KERNEL_FREED, FREED, "a kernel is used only while its handle is live")                                         \
    X(ARRAY_UNWRITTEN, ARGUMENT, "an array is written before it is read")                                            \
    X(WRONG_KIND, FREED, "a handle is used as the kind of object it names")                                          \
    X(FREE_BY_OTHER, CONTRACT, "only its owner frees an array")                                                      \
    X(FREE_REFERENCED, CONTRACT, "an array is not freed while others hold references to it")                         \
    X(DOUBLE_ACQUIRE, CONTRACT, "an owner does not acquire an array that it owns already")                           \
    X(RELEASE_BY_OTHER, CONTRACT, "only its owner releases an array")                                                \
    X(TRANSFER_REFERENCED, CONTRACT, "ownership does not move while ref_count is above 1")                           \
    X(OWNER_DIFFERS, CONTRACT, "an array is owned by the expected owner")                                            \
    X(REF_COUNT_ZERO, CONTRACT, "a reference is released only after it was taken")                                   \
    X(REF_COUNT_OVERFLOW, CONTRACT, "a reference count stays below 2^31")                                            \
    X(PIN_TWICE, CONTRACT, "pinned host memory is allocated once per array")                                         \
    X(PIN_MISSING, CONTRACT, "pinned host memory is freed only after it was allocated")                              \
    X(ARRAY_LEAKED, CONTRACT, "every array is freed before shutdown")                                                \
    X(HOST_MEMORY, MEMORY, "the host allocator has memory")                                                          \
    X(DEVICE_MEMORY, MEMORY, "the device has memory")                                                                \
    X(PINNED_MEMORY, MEMORY, "the system has pinned host memory")                                                    \
    X(LIBRARY_MISSING, LIBRARY, "the library is installed where Ignis searches")                                     \
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
    X(UNSUPPORTED, UNSUPPORTED, "the device and the libraries support the request")                                  \
    X(CACHE_IO, IO, "the kernel cache folder can be read and written")                                               \
    X(TENSOR_FREED, FREED, "a tensor is used only while its handle is live")                                         \
    X(GRAD_OF_INTEGERS, DTYPE, "gradients are floating-point")                                                       \
    X(SCOPE_ORDER, ARGUMENT, "scopes and no-grad sections end in the order in which they began, innermost first")    \
    X(TAPE_OF_OTHER, ARGUMENT, "a tape belongs to the thread that recorded it")                                      \
    X(TAPE_WALKED, ARGUMENT, "a tape is not cleared inside its backward pass")                                       \
    X(RECORDED_TWICE, ARGUMENT, "a tensor is the result of one operation")                                           \
    X(BACKWARD_NOT_SCALAR, ARGUMENT, "backward starts from one element, or from an explicit gradient")               \
    X(BACKWARD_TWICE, ARGUMENT, "a recorded operation takes part in one backward pass")                              \
    X(BACKWARD_FAILED, ARGUMENT, "a backward function reports its own failure")                                      \
    X(GRADIENT_LATE, ARGUMENT, "a gradient is known before it is given to other ranks")                              \
    X(PARALLEL_BUSY, ARGUMENT, "one backward at a time averages gradients over ranks")                               \
    X(NO_GRAD_WANTED, ARGUMENT, "only tensors that require gradients have them")                                     \
    X(CAPTURE_STATE, ARGUMENT, "a thread captures one graph at a time")                                              \
    X(CAPTURE_REFUSED, UNSUPPORTED, "calls that wait for the device or read host memory are not captured")           \
    X(GRAPH_FREED, FREED, "a graph is used only while its handle is live")                                           \
    X(GRADIENT_WRONG, MISMATCH, "a gradient is the derivative of its function")                                      \
    X(MATMUL_SHAPE, SHAPE, "the shapes of two matrices match")                                                       \
    X(CUBLAS_CALL, CUDA, "cuBLASLt accepts the call")                                                                \
    X(SDPA_HEADS, ARGUMENT, "query heads come in equal groups, one for each key head")                               \
    X(SDPA_SHAPE, SHAPE, "queries, keys and values fit together")                                                    \
    X(BROADCAST_SHAPE, SHAPE, "the second shape broadcasts to the first one")                                        \
    X(DIM_RANGE, SHAPE, "a dimension is one that the tensor has")                                                    \
    X(PARTS_SHAPE, SHAPE, "parts differ in one dimension only, and add up")                                          \
    X(OPTIMIZER_FREED, FREED, "an optimizer is used only while its handle is live")                                  \
    X(PARAMETER_KIND, ARGUMENT, "parameters and checked inputs are leaves that require gradients, each once")        \
    X(STORAGE_IO, IO, "a file of tensors can be read and written")                                                   \
    X(STORAGE_FORMAT, FORMAT, "a file of tensors is sound, of safetensors or .npy")                                  \
    X(STORAGE_NAME, ARGUMENT, "tensors in a file have names in UTF-8, each of them once")                            \
    X(STORAGE_MISSING, ARGUMENT, "a tensor that is to be loaded is in the file")                                     \
    X(FREE_EXPORTED, CONTRACT, "an array is not freed, and does not change its owner, while other processes use it") \
    X(VMM_FREED, FREED, "VMM memory and address ranges are used only while their handles are live")                  \
    X(VMM_STATE, ARGUMENT, "memory is mapped once at a place, and unmapped as it was mapped")                        \
    X(VMM_SIZE, ARGUMENT, "sizes and offsets of VMM memory are multiples of its granularity")                        \
    X(NOT_SHAREABLE, ARGUMENT, "only memory that was made for sharing is shared")                                    \
    X(CHANNEL_FREED, FREED, "a channel is used only while its handle is live")                                       \
    X(CHANNEL_IO, IO, "a channel can be opened, read and written")                                                   \
    X(CHANNEL_DESCRIPTOR, UNSUPPORTED, "a descriptor travels through a socket")                                      \
    X(CHANNEL_LOST, PEER, "the other side of a channel is alive")                                                    \
    X(CHANNEL_MESSAGE, PEER, "messages keep to the protocol")                                                        \
    X(CHANNEL_TIMEOUT, TIMEOUT, "the other side answers before the deadline")                                        \
    X(TRANSPORT_FREED, FREED, "a transport is used only while its handle is live")                                   \
    X(TRANSPORT_STATE, ARGUMENT, "a transport is initialized before it is used")                                     \
    X(TRANSPORT_HANDLE, ARGUMENT, "a receive through IPC has the sender's handle")                                   \
    X(TRANSPORT_UNAVAILABLE, UNSUPPORTED, "the two devices can reach each other that way")                           \
    X(TRANSPORT_RECORD, FORMAT, "a handle that is imported is whole, and of this job")                               \
    X(TRANSPORT_PEER, PEER, "a handle comes from the process that it names")                                         \
    X(TRANSPORT_MISMATCH, MISMATCH, "a handle describes its memory correctly")                                       \
    X(COMM_FREED, FREED, "a communicator is used only while its handle is live")                                     \
    X(COMM_ENVIRONMENT, ARGUMENT, "the environment names rank and size, consistently")                               \
    X(COMM_RENDEZVOUS, PEER, "all ranks meet")                                                                       \
    X(COMM_TIMEOUT, TIMEOUT, "all ranks come to a collective operation before its deadline")                         \
    X(COMM_MISMATCH, MISMATCH, "all ranks ask for the same operation, count, dtype and root")                        \
    X(COMM_PEER, PEER, "all ranks are alive")                                                                        \
    X(COMM_BROKEN, PEER, "a communicator that has failed is shrunk or destroyed")                                    \
    X(COMM_OVERLAP, ARGUMENT, "input and output of a collective operation are the same memory, or disjoint")         \
    X(NCCL_CALL, CUDA, "NCCL accepts the call")                                                                      \
    X(PARALLEL_FREED, FREED, "data-parallel training is used only while its handle is live")                         \
    X(KERNEL_HEADER, ARGUMENT, "each header of a kernel has a name of its own")                                      \
    X(HANDLE_LEAKED, CONTRACT, "kernels, communicators and other handles are freed before shutdown")                 \
    X(OVERLAP, ARGUMENT, "input and output of an operation are the same memory, or disjoint")                        \
    X(SAVED_CHANGED, ARGUMENT, "arrays saved for backward are not written to before it")                             \
    X(CHECKPOINT_DIFFERS, ARGUMENT, "the function of a checkpoint computes the same products in both runs")          \
    X(GRADIENT_SHARED, ARGUMENT, "a gradient that is summed over ranks stays in its memory")                         \
    X(EVENT_FREED, FREED, "an event is used only while its handle is live")                                          \
    X(EVENT_STATE, ARGUMENT, "time is measured between events that were recorded and are done")                      \
    X(TICKET_FREED, FREED, "a ticket is waited for once")                                                            \
    X(HOST_UNKNOWN, ARGUMENT, "pinned host memory is freed as it was allocated, once")                               \
    X(INSIDE_CALLBACK, NOT_SETUP, "a function given to ignis_stream_call does not call Ignis")                       \
    X(SYMBOL_MISSING, ARGUMENT, "a kernel has a __constant__ or __device__ variable of that name")                   \
    X(FORMULA, ARGUMENT, "a formula is sound, and has named inputs")                                                 \
    X(CONV_SHAPE, SHAPE, "the shapes of images, weights and bias of a convolution match")                            \
    X(REPORT_IO, IO, "a report can be written to its file")                                                          \
    X(PROFILE_STATE, ARGUMENT, "one profile at a time is begun and ended")                                           \
    X(KERNEL_MISSING, COMPILE, "without a compiler, each program is in the bundle or in the cache")                  \
    X(KERNEL_IMAGE, FORMAT, "the image of a kernel is a whole cubin, fatbin or PTX text")                            \
    X(BUNDLE_IO, IO, "a bundle can be read, and a record be written")                                                \
    X(BUNDLE_FORMAT, FORMAT, "a bundle is a file that ignis_embed has made")                                         \
    X(BUNDLE_MISMATCH, MISMATCH, "a bundle was made by this version of Ignis, and for the device")                   \
    X(GGUF_FORMAT, FORMAT, "a file of tensors and keys is a sound GGUF file")                                        \
    X(SEQUENCE_FREED, FREED, "a sequence is used only while its handle is live")                                     \
    X(CONTEXT_FULL, ARGUMENT, "a sequence fits into the context of its model")                                       \
    X(CACHE_FULL, MEMORY, "the cache of a model has pages for all its sequences")                                    \
    X(SEQUENCE_FILE, FORMAT, "a file of a sequence is whole, unchanged, and of this version")                        \
    X(SEQUENCE_MODEL, MISMATCH, "a file of a sequence was saved from the same model")                                \
    X(TEXT_STATE, ARGUMENT, "a polled text begins, is polled, and ends, in this order")                              \
    X(WRONG_MODEL, ARGUMENT, "sequences of one step are of one model")                                               \
    X(MODEL_FREED, FREED, "a model is used only while its handle is live")                                           \
    X(MODEL_CONFIG, FORMAT, "a model's config is complete, and consistent with itself and the weights")              \
    X(MODEL_CANCELLED, IO, "the caller does not cancel the opening of a model")                                      \
    X(LORA_FREED, FREED, "adapters are used only while their handle is live")                                        \
    X(LORA_FORMAT, FORMAT, "the files of adapters are complete, and match the model")                                \
    X(LORA_STATE, ARGUMENT, "adapters are set on the model they were made for, and merged once")                     \
    X(TOKENIZER_FREED, FREED, "a tokenizer is used only while its handle is live")                                   \
    X(TOKENIZER_IO, IO, "the files of a tokenizer can be read")                                                      \
    X(TOKENIZER_FORMAT, FORMAT, "the files of a tokenizer are complete and consistent")                              \
    X(TOKEN_RANGE, ARGUMENT, "an id is one of the tokenizer's")                                                      \
    X(GRAMMAR, ARGUMENT, "a grammar is sound, and texts match it")                                                   \
    X(EXTERNAL_HANDLE, ARGUMENT, "a handle of a graphics API is open, and of the named type")                        \
    X(FENCE_FREED, FREED, "a fence is used only while its handle is live")                                           \
    X(FENCE_VALUE, ARGUMENT, "the value of a fence only rises")                                                      \
    X(GL_BUFFER_FREED, FREED, "a registered OpenGL buffer is used only while its handle is live")                    \
    X(GL_BUFFER_STATE, ARGUMENT, "an OpenGL buffer is mapped once, and unmapped before it is unregistered")          \
    X(GL_BUFFER_USED, CONTRACT, "an OpenGL buffer is unmapped when no view and no graph uses its memory")            \
    X(CHAT_TEMPLATE, ARGUMENT, "a chat template is sound, and has the variables it needs")                           \
    X(CHAT_REFUSED, ARGUMENT, "a chat template accepts the messages")                                                \
    X(CHAT_LIMIT, UNSUPPORTED, "a chat template keeps within its limits of steps, depth and memory")                 \
    X(CHAT_VARIABLES, ARGUMENT, "the variables of a chat are an object of JSON")                                     \
    X(NO_TOKEN, ARGUMENT, "some token can be drawn: its logit is a number, and nothing forbids it")                  \
    X(MATRIX_SHAPE, SHAPE, "matrices of linear algebra are square where they must be, and fit their right sides")    \
    X(MATRIX_SINGULAR, ARGUMENT,                                                                                     \
      "a matrix that is solved with is not singular; Cholesky needs a positive definite one")                        \
    X(EQUATION, ARGUMENT, "an equation of ignis_einsum is sound, and has a term for each operand")                   \
    X(OPTIMIZER_STATE, ARGUMENT, "a call on an optimizer fits its kind, and what it holds")                          \
    X(TRAINING_FREED, FREED, "a training is used only while its handle is live")                                     \
    X(TRAINING_RANK, PEER, "a training is saved and loaded by all its ranks, or by none")

typedef enum ignis_diagnostic {
    IGNIS_DIAG_NONE = 0,
#define IGNIS__DIAGNOSTIC_ENUM(name, status, rule) IGNIS_DIAG_##name,
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ENUM)
#undef IGNIS__DIAGNOSTIC_ENUM
        IGNIS_DIAG_COUNT
} ignis_diagnostic;
#define IGNIS_DIAG_SPREAD_SHAPE IGNIS_DIAG_BROADCAST_SHAPE /* its name before 0.5.0 */

/*  The first failure of a thread since ignis_status_clear. Strings live until the thread's next ignis_status_clear.
    When another thread calls ignis_shutdown, only the first 255 bytes of a message stay.
    Messages are UTF-8 in one line; the lines of a log may follow. Names and texts from files, peers, the environment
    and the caller are escaped as \n, \x1b and so on, so that they cannot end the line or control a terminal: control
    characters, bidirectional marks, and bytes that are not UTF-8. A message above 4,000 bytes loses its middle. The
    logger gets the same text. */
typedef struct ignis_status_info {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;        /* the public function that failed */
    const char *message;     /* "call: the expected value and the actual one" */
    int driver_error;        /* CUresult, nvrtcResult or cublasStatus_t; 0 if no driver was involved */
    const char *driver_name; /* its name, "" if there is none */
    const char *log;         /* the whole compile log, or the files that were tried; "" if there is none */
} ignis_status_info;

/*  The severity of a message to the logger. */
typedef enum ignis_log_level { IGNIS_LOG_INFO = 1, IGNIS_LOG_WARNING, IGNIS_LOG_ERROR } ignis_log_level;

/*  Receives every warning and error at the moment it happens, and information if ignis_desc.verbose is set.
    It is called on the thread that failed, and must not call Ignis. */
typedef struct ignis_logger {
    void (*log_fn)(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data);
    void *user_data;
} ignis_logger;

/*  ignis_status_last - return the status of this thread's first failure since ignis_status_clear
    Returns: the status, IGNIS_OK if nothing has failed.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_last(void);

/*  ignis_status_message - return the message of that failure, such as "ignis_array_slice: dim 3 is outside [2, 3]"
    Returns: the text, "" if nothing has failed.
    Errors: none.
    Ownership: lives until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_message(void);

/*  ignis_status_latest_message - return the message of this thread's latest failure since ignis_status_clear, which
    may be the first
    Returns: the text, "" if nothing has failed. A call that got handle 0 after a failure fails quietly, without a
    message.
    Errors: none.
    Ownership: lives until this thread's next failure or ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_latest_message(void);

/*  ignis_status_query - return all facts about that failure
    Returns: its status.
    Errors: none; info may be null.
    Ownership: the strings live until this thread's ignis_status_clear, or another thread's ignis_shutdown.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_query(ignis_status_info *info);

/*  ignis_status_clear - forget the failure, so that the next one is kept
    Returns: nothing.
    Errors: none.
    Ownership: frees the texts of the failure, and that of ignis_status_latest_message.
    Threads: any; each has its own. */
IGNIS_API void ignis_status_clear(void);

/*  ignis_status_begin - save the thread's failure, so that a job in a shared thread can ask for its own failures
    Until ignis_status_end the thread is as after ignis_status_clear: ignis_status_last, _message and _query report
    failures in between. Pairs may be nested.
    Returns: nothing.
    Errors: none. If out of memory, the failure is not saved and stays the thread's first.
    Ownership: the texts of the saved failure live on.
    Threads: any; each has its own. Begin and end in one thread. */
IGNIS_API void ignis_status_begin(void);

/*  ignis_status_end - forget the failures since ignis_status_begin, and restore the failure before it
    Returns: the status of the first failure in between, IGNIS_OK if there was none.
    Errors: ARGUMENT (nothing was begun in this thread).
    Ownership: frees the texts of the failures in between.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_end(void);

/*  ignis_status_name - return "IGNIS_ERROR_SHAPE" for IGNIS_ERROR_SHAPE
    Returns: a constant string, "unknown status" for an unknown number.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_status_name(ignis_status status);

/*  ignis_diagnostic_name - return "SLICE_STRIDED" for IGNIS_DIAG_SLICE_STRIDED
    Returns: a constant string, "unknown diagnostic" for an unknown number.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic);

/*  ignis_diagnostic_rule - return the rule of a diagnostic: "only contiguous slices can be views"
    Returns: a constant string, "" for an unknown number.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic);
