/*  ignis.h - v0.4.0 - GPU arrays with tracked ownership, CUDA kernels compiled at run time, and tape autograd, for C and C++

    MIT licence, at the end of the file. What has changed: CHANGELOG.md.

    CONTENTS. A tag stands at a section of the declarations and at that of the implementation; in the manual behind the topic.

        >>status        statuses, messages, diagnostics, the logger     ON ERRORS
        >>setup         ignis_setup and ignis_shutdown; libraries       HOW TO USE, OPTIONS
        >>device        devices, facts about them
        >>stream        streams, events, waiting for a device           ON STREAMS AND CUDART
        >>memory        what Ignis holds of a device's memory           ON MEMORY
        >>array         shapes, dtypes, owners; arrays and views        STEP BY STEP
        >>elementwise   fill, copy, cast, add, mul, scale of arrays
        >>contract      who owns an array, who may free it; the audit   ON OWNERSHIP
        >>kernel        CUDA source compiled, cached, launched          ON KERNELS
        >>tensor        tensors, scopes, random numbers                 ON TENSORS AND SCOPES
        >>tape          recording, backward, checkpoints, gradcheck     ON THE TAPE
        >>ops           operations on tensors, in families: >>ops.matmul .pointwise .sum .shape .norm .rope .embedding .loss .attention
        >>optim         AdamW, SGD, schedules, clipping
        >>graph         a step captured once, replayed with one call    ON GRAPHS
        >>file          safetensors files                               ON FILES

        In the implementation alone: >>platform >>loader >>pool >>capture.

    HOW TO USE

        Copy ignis.h and ignis_kernels.h into your project. In ONE C or C++ file, above the #include:

            #define IGNIS_IMPLEMENTATION
            #include "ignis.h"

        and build it with one of

            cc hello.c -o hello -lm -ldl -lpthread
            nvcc hello.cu

        Every other file just includes ignis.h. No CUDA toolkit is needed to compile, and nothing is linked but the C library: the driver
        (libcuda) is opened by ignis_setup, the compiler (NVRTC) when the first kernel has to be compiled.

    ---- begin example first
    #define IGNIS_IMPLEMENTATION
    #include "ignis.h"
    #include <stdio.h>

    int main(void)
    {
        const char *source = "extern \"C\" __global__ void twice(float *y, const float *x, int n)"
                             "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }";
        ignis_array_desc shape = {.shape = IGNIS_SHAPE(4)};
        ignis_kernel_desc desc = {.source = source, .entry = "twice"};
        ignis_launch launch = {.grid = {1}, .block = {32}};
        float numbers[4] = {1, 2, 3, 4};
        ignis_setup(NULL);
        ignis_array x = ignis_array_create(&shape), y = ignis_array_create(&shape);
        ignis_kernel twice = ignis_kernel_compile(&desc);
        ignis_array_from_host(x, numbers, IGNIS_F32, 4);
        ignis_arg args[] = {ignis_arg_array(y), ignis_arg_array(x), ignis_arg_i32(4)};
        ignis_kernel_launch(twice, &launch, args, 3);
        ignis_array_to_host(y, numbers, IGNIS_F32, 4);
        if (ignis_status_last() == IGNIS_OK)
            printf("%g %g %g %g\n", numbers[0], numbers[1], numbers[2], numbers[3]);
        ignis_array_free(x);
        ignis_array_free(y);
        return ignis_shutdown() != IGNIS_OK;
    }
    ---- end example

    and it trains models, too:

    ---- begin example fit
    #define IGNIS_IMPLEMENTATION
    #include "ignis.h"
    #include <stdio.h>

    int main(void) // finds w with x w = y
    {
        float x[4][2] = {{1, 0}, {0, 1}, {1, 1}, {1, -1}}, y[4] = {2, -3, -1, 5};
        ignis_tensor_desc wanted = {.requires_grad = true};
        ignis_adamw_desc adamw = {.lr = 0.1};
        ignis_setup(NULL);
        ignis_tensor w = ignis_tensor_zeros(IGNIS_SHAPE(2, 1), &wanted);
        ignis_tensor input = ignis_tensor_from_host(x, IGNIS_SHAPE(4, 2), NULL), target = ignis_tensor_from_host(y, IGNIS_SHAPE(4, 1), NULL);
        ignis_optimizer optimizer = ignis_adamw(&adamw);
        ignis_optimizer_add(optimizer, w, false);
        for (int step = 0; step < 200; step++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor error = ignis_sub(ignis_matmul(input, w), target);
            ignis_backward(ignis_mean(ignis_mul(error, error)), IGNIS_NO_ARRAY);
            ignis_optimizer_step(optimizer);
            ignis_optimizer_zero_grad(optimizer);
            ignis_scope_end(scope);
        }
        float found[2] = {0, 0};
        ignis_tensor_to_host(w, found, IGNIS_F32, 2);
        printf("w = %.2f %.2f\n", found[0], found[1]); // w = 2.00 -3.00
        ignis_optimizer_free(optimizer);
        ignis_tensor_release(w);
        ignis_tensor_release(input);
        ignis_tensor_release(target);
        return ignis_shutdown() != IGNIS_OK;
    }
    ---- end example

    WHAT IT DOES NOT DO

        No strided arrays: an array, and every view of one, is contiguous. No managed memory. No 32-bit systems. No GPUs but NVIDIA's.
        It does not order your streams for you: as in CUDA, work on two streams runs in any order unless events order it. Memory is safe all
        the same: it is not reused before the work that Ignis has queued on it, on any stream, is done.

    STEP BY STEP

        ignis_setup                 once, from one thread; null for defaults
        ignis_array_create          a shape, a dtype; device memory is taken when the array is first used
        ignis_array_from_host       copy and convert from the host; ignis_array_to_host back, waiting for the result
        ignis_kernel_compile        your CUDA source, compiled for the current device, or taken from the cache
        ignis_kernel_launch         grid, block, arguments that are checked against the kernel's parameters
        ignis_tensor_from_host      for training: tensors, operations on them, ignis_backward, ignis_optimizer_step
        ignis_array_free            as its owner; a second free is an error, not a crash
        ignis_shutdown              reports what you forgot to free, and frees it

    ON ERRORS (>>status)

        A call that can fail returns ignis_status, or a handle whose id is 0. The first failure of a thread is kept until
        ignis_status_clear: its status, a numbered diagnostic, the call, and a sentence that says what was expected and what came. A call
        that is given handle 0 fails quietly when a failure is recorded already: so a chain of calls is checked once, at its end, and the
        message is that of the first thing that went wrong; ignis_status_latest_message has that of the latest one. What fails in a function
        of yours that a call runs (a backward function, say) names that call, too. Warnings and errors go to ignis_desc.logger, else to
        stderr: none is dropped silently. Whatever fails leaves everything else as it was: the library keeps working.

            status              who can fix it
            NOT_SETUP ARGUMENT SHAPE DTYPE FREED CONTRACT COMPILE MISMATCH     you: the program is wrong
            MEMORY                                                             you: free something, or ask for less
            LIBRARY DEVICE UNSUPPORTED                                         the machine: driver, NVRTC, GPU
            CUDA                                                               the driver; often a fault in a kernel
            IO FORMAT PEER TIMEOUT                                             files and other processes

        A fault inside a kernel (an access out of bounds, say) shows at a later call. From then on CUDA refuses every call of the process,
        on all devices, until the process ends: nothing that it has on a GPU can be used or read any more. Ignis reports it once as CUDA,
        then as DEVICE; handles can still be freed, and ignis_shutdown returns.

    ON MEMORY (>>memory)

        Freed device memory stays in a cache, one per device, ordered by streams: the next array on the same stream takes it without a
        driver call or a wait. When the driver has no more, Ignis takes blocks of other streams once an event says that they are free,
        gives free segments back to the driver and tries again; only then a call fails with IGNIS_ERROR_MEMORY, and the message has all the
        numbers. ignis_memory_query shows them, ignis_memory_trim gives free segments back, ignis_desc.memory_limit bounds what is reserved.
        With ignis_desc.memory_bypass (or IGNIS_MEMORY_BYPASS=1) each array has an allocation of its own, so that compute-sanitizer sees
        accesses beyond its end; that is slow.

        Reading an array that nobody has written to is an error. Ignis counts its writes to memory in a version, which all views of the memory
        share (ignis_array_info.version). What your own kernels write, and code that was given an address, Ignis cannot see: such an array
        counts as written, and after changing it in place call ignis_array_mark_written. Arrays that wrap one pointer have a version each.

    ON OWNERSHIP (>>contract)

        Every array has an owner: IGNIS_OWNER_IGNIS, or a layer that works on it for a while and acquires it first
        (IGNIS_OWNER_NVCCL, the collective layer; IGNIS_OWNER_WNAIS, the storage layer).

            - only the owner frees; anybody may ask ignis_contract_assert_owner
            - nobody frees while ref_count is above 0; ownership does not move while it is above 1
            - acquiring what one owns already, and releasing what one does not own, are errors
            - views (slice, reshape) are arrays of their own: freeing the parent leaves them valid, and their memory alive
            - wrapped memory (ignis_array_desc.ptr) is never freed by Ignis

        While ignis_save, ignis_load or a collective operation runs, its layer owns the arrays it works on; views and copies that are made
        meanwhile are Ignis' own. ignis_contract_audit lists tracked arrays by age. ignis_shutdown reports what is still alive: arrays, and
        whatever else has a handle of its own (not tensors). Messages name a freed array as it was (array #7 'weights', freed), so that they can be
        matched with earlier ones.

    ON KERNELS (>>kernel)

        Kernels are compiled by NVRTC to machine code of the device ("sm_90a" where there is such a form), and kept in memory and on disk
        ($IGNIS_CACHE_DIR, else ~/.cache/ignis; beyond 256 MiB the least recently used are deleted). A cached kernel needs no
        compiler run, but NVRTC must be installed: its version is part of the key. Errors name your file and line (ignis_kernel_desc.name).

        #include "ignis.cuh" gives a kernel bf16 and half types, 16-byte packs and reductions; other headers come from memory
        (ignis_kernel_desc.headers) or from files: beside ignis_kernel_desc.name, and in the folders of options such as "-I/usr/local/cuda/include".
        There is no include path but that. All that is included is part of the key, so a changed header is compiled anew; a kernel that includes
        by a macro (#include NAME, __has_include(NAME)) is compiled in every process, as its headers are not known before.

    ON TENSORS AND SCOPES (>>tensor)

        A tensor is an array plus its gradient and its place on the tape. What operations return belongs to the thread's current scope:
        ignis_scope_begin opens one, ignis_scope_end releases all tensors made in it, ignis_scope_return ends it and passes one tensor on to
        the enclosing one. Outside of scopes, as for the weights of a model, a tensor lives until ignis_tensor_release. Its array
        (ignis_tensor_data) holds a reference, so it cannot be freed under the tensor.

    ON THE TAPE (>>tape, >>ops)

        Operations on tensors that require a gradient are recorded; ignis_backward goes through the record in reverse order and adds gradients
        to the leaves. Each thread has its own tape. An entry is freed with the tensor that it made, so results that are not used cost nothing;
        what backward needs stays alive when its tensor is released, and is freed as backward passes it (ignis_backward_retain keeps it for
        another one). Your own operation is recorded as Ignis' own are, by ignis_tape_record: a kernel, a result, and a rule for its gradient
        (examples/custom_op.c); ignis_gradcheck tells whether the rule is right. ignis_checkpoint trades time for memory, and between
        ignis_no_grad_begin and _end nothing is recorded. A gradient is set and dropped by ignis_tensor_set_grad.

        What an operation saved must not change before backward uses it: a backward that finds a saved array written to since (its version
        has changed) fails, and no gradient changes. Operations inside a capture are exempt, as each launch writes anew what they save.

        A backward function may call ignis_backward itself. What it has recorded is differentiated at once, and leaves that it has made have
        their gradients when the call returns. Everything older waits for the enclosing backward, which writes the gradients of all other
        leaves at its end: so a backward that fails, at whatever depth, has changed no leaf. A backward function ends the scopes and no-grad
        sections that it begins, and no others; so do the functions given to ignis_checkpoint and ignis_gradcheck.

    ON MATRIX PRODUCTS (>>ops.matmul)

        cuBLASLt computes them where it is found, and Ignis' own kernels where it is not: no program needs it. ignis_desc.matmul, or IGNIS_MATMUL
        in the environment, chooses: IGNIS_MATMUL_OWN takes own kernels alone, which do biases, activations and sums of gradients inside the
        products, IGNIS_MATMUL_CUBLASLT cuBLASLt alone. IGNIS_MATMUL_MEASURE times both the first time that a kind of product is asked for,
        outside of captures, and keeps the faster one in the file products.txt of the kernel cache's folder: the price is some 26 runs of each kind,
        and that another cache may choose otherwise and so give other last bits. With one cache, or without measuring, equal inputs give
        equal bits. ignis_mlp is a pair of linear layers in as few passes as can be.

    ON GRAPHS (>>graph)

        ignis_graph_begin captures what follows, a whole training step with its optimizer, and ignis_graph_launch replays it with one call.
        Run the step once before. Inputs are copied into the same tensors before each launch; results keep their handles, and count as never
        written until the first launch. Dropout draws a new mask at each launch. A graph has no graphs inside: launch several one after the other.

        To wait for a context spoils what any thread captures there. So ignis_graph_begin waits for the device, and for threads that wait for it
        already (in ignis_synchronize, say), as long as their work takes; and while a thread captures, those that wait do so stream by stream.

    ON FILES (>>file)

        ignis_save and ignis_load keep named tensors in the safetensors format, which other tools read too. A file is written whole or not
        at all; reading a damaged or malicious one is an error, and does no harm.

    ON STREAMS AND CUDART (>>stream)

        Ignis uses each device's primary context, as the CUDA runtime does, so pointers, streams and events mix: wrap cudaMalloc memory
        with ignis_array_desc.ptr, put work into your cudaStream_t with ignis_stream_use, give ignis_array_device_ptr to your own kernels. Call
        ignis_stream_forget before you destroy a stream that Ignis has used. A program without cudart makes its streams and events by
        ignis_stream_create and ignis_event_create, and orders them by ignis_stream_wait.

    ON FRAME LOOPS (>>stream, >>array, >>kernel)

        A loop that must not stand still reads back by ignis_array_to_host_async into memory of ignis_host_alloc, asks the ticket in a later
        frame by ignis_ticket_query, and ends it by ignis_ticket_wait when it is done. What else waits says so ("Waits" after Threads). Memory,
        streams, events, pinned memory and kernels are made before the loop: the first use of a size, a stream or a kernel may ask the driver,
        which may wait for the device. ignis_stream_call tells the program when a stream is done with what it has, ignis_kernel_reload puts a new
        program in the place of one that is in use. examples/frame_loop.cpp is such a loop.

    ON THREADS

        Every function may be called from any thread, and several may use one handle: of two that free it, one gets an error. Each
        thread has its own current device, current stream and first failure. After fork, every call in the child fails: CUDA does not
        survive fork. Compiling a kernel blocks only the threads that need the same kernel.

        Tensors are shared by these rules:

            - scopes, no-grad sections, random numbers and the tape are the thread's own
            - leaves, such as weights, belong to all: each thread records its own operations on them and runs its own backward. What several
              threads add to one gradient is added one after the other, also on streams of their own: nothing is lost, but the order is not
              fixed, and so the last bit of the sum is not
            - what one thread has recorded, others may read, query, ignis_detach and release, also during its backward, which holds what it
              needs. Recording more on it, ignis_backward and ignis_tape_dot are errors (TAPE_OF_OTHER)
            - ignis_zero_grad and ignis_tensor_set_grad are atomic, too. An optimizer's step, and reading a gradient, come after the backwards
              whose result they are to see: wait for those threads, and for their streams if they have other ones

    ON SHARED LIBRARIES

        Where two shared libraries of one process have Ignis inside and export its functions, the system's loader gives both the functions
        of the one that was loaded first: one ignis_setup for both, one state, and undefined behaviour when their versions differ. (Not on
        Windows, where a DLL always has its own functions.) So build a shared library with IGNIS_HIDDEN, or with -fvisibility=hidden: then it
        has an Ignis of its own. The price: each has its own setup, cache of device memory and compiled kernels, handles of one mean
        nothing to the other (pass device pointers instead, ignis_array_desc.ptr wraps them), and a program cannot call the functions in it.
        If a library is to offer Ignis to others, it exports the functions, and is the only one in the process that does.

    OPTIONS, for the file with the implementation; each with its price

        #define IGNIS_STATIC       all functions are static: no symbols, one copy per file that includes it
        #define IGNIS_HIDDEN       nothing of Ignis is exported from the shared library that contains it: see ON SHARED LIBRARIES
        #define IGNIS_API ...      linkage of your own, such as __declspec(dllexport)
        #define IGNIS_LINK_CUDA    bind to libcuda, NVRTC and cuBLASLt at link time: needs toolkit 12.4 or newer to build,
                                   -lcuda -lnvrtc -lcublasLt to link, and all three where it runs
        #define IGNIS_NO_TENSORS   arrays and kernels alone, in every file: no tensors, tape, operations, graphs and files. Compiles in
                                   half the time, and makes a program 0.14 MB smaller
        #define IGNIS_ASSERT(c)    instead of assert
        ignis_desc.allocator       instead of malloc; handle slots and messages still come from malloc, as they outlive ignis_shutdown

    LIMITS

        Driver for CUDA 11.4 or newer, NVRTC 11.2 or newer, a GPU that this NVRTC compiles for. 8 dimensions, 64 devices, 2^28 live
        handles of a kind, 64 kernel parameters, 2^31 - 1 blocks of 4096 elements in one built-in operation.
        On Windows it is compiled with MinGW in its tests; other compilers are written for and not tested there.
*/
/*  What the implementation needs of the system: -std=c99 hides it, unless one of these is defined before the first system header. */
#if defined(IGNIS_IMPLEMENTATION) && !defined(IGNIS_IMPLEMENTED)
#if defined(__APPLE__) && defined(_POSIX_C_SOURCE) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* where _POSIX_C_SOURCE hides more than it brings */
#elif defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE) && \
    !defined(_XOPEN_SOURCE) && !defined(_WIN32) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#if defined(EOF) || defined(CLOCKS_PER_SEC)
#define IGNIS__TOO_LATE /* stdio.h or time.h came before */
#endif
#endif
#endif

#if defined(IGNIS_INCLUDED) && (IGNIS_VERSION_MAJOR != 0 || IGNIS_VERSION_MINOR != 4 || IGNIS_VERSION_PATCH != 0)
#error "two versions of ignis.h are included in one file"
#endif

#ifndef IGNIS_INCLUDED
#define IGNIS_INCLUDED

#define IGNIS_VERSION_MAJOR 0
#define IGNIS_VERSION_MINOR 4
#define IGNIS_VERSION_PATCH 0
#define IGNIS_VERSION (10000 * IGNIS_VERSION_MAJOR + 100 * IGNIS_VERSION_MINOR + IGNIS_VERSION_PATCH)

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef IGNIS_API
#if defined(IGNIS_STATIC) && defined(__GNUC__)
#define IGNIS_API static __attribute__((unused))
#elif defined(IGNIS_STATIC)
#define IGNIS_API static
#elif defined(IGNIS_HIDDEN) && defined(__GNUC__) && !defined(_WIN32)
#define IGNIS_API extern __attribute__((visibility("hidden")))
#else
#define IGNIS_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
   Declarations, a section for each tag: types, then functions. Every option struct may be zero-initialised: 0 means the
   default named beside the field. Each function is documented in one form: what it does, then Returns, Errors,
   Ownership, Threads. "any" after Threads: callable from any thread at any time, also on one handle from several.
   Streams are named only where work is put on one: that is always the calling thread's current stream of the array's
   device, and the call does not wait unless it says so. Every function but ignis_setup, the status functions, the version,
   and names and sizes of dtypes and owners fails with IGNIS_ERROR_NOT_SETUP before ignis_setup, after ignis_shutdown, in
   a forked child, and in a function given to ignis_stream_call. */

/*  Handles. 0 is no handle. A handle names a slot and its generation, so one that was freed is recognised for ever. */
typedef struct ignis_array {
    uint64_t id;
} ignis_array;

typedef struct ignis_kernel {
    uint64_t id;
} ignis_kernel;

typedef struct ignis_event {
    uint64_t id;
} ignis_event;

typedef struct ignis_ticket {
    uint64_t id;
} ignis_ticket;

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
    X(SYMBOL_MISSING, ARGUMENT, "a kernel has a __constant__ or __device__ variable of that name")

typedef enum ignis_diagnostic {
    IGNIS_DIAG_NONE = 0,
#define IGNIS__DIAGNOSTIC_ENUM(name, status, rule) IGNIS_DIAG_##name,
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ENUM)
#undef IGNIS__DIAGNOSTIC_ENUM
        IGNIS_DIAG_COUNT
} ignis_diagnostic;

/*  The first failure of a thread since ignis_status_clear. Strings live until the thread's next ignis_status_clear. */
typedef struct ignis_status_info {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;        /* the public function that failed */
    const char *message;     /* "call: what was expected and what came" */
    int driver_error;        /* CUresult, nvrtcResult or cublasStatus_t; 0: none */
    const char *driver_name; /* its name, "" for none */
    const char *log;         /* the whole compile log, "" for none */
} ignis_status_info;

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
    Ownership: lives until this thread's ignis_status_clear.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_message(void);

/*  ignis_status_latest_message - the sentence of this thread's latest failure since ignis_status_clear, which may be the first
    Returns: the text, "" for no failure. A call that failed quietly, as it was given handle 0 after a failure, has none.
    Errors: none.
    Ownership: lives until this thread's next failure or ignis_status_clear.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_latest_message(void);

/*  ignis_status_query - everything that is known of that failure
    Returns: its status.
    Errors: none; a null info is allowed.
    Ownership: the strings live until this thread's ignis_status_clear.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_query(ignis_status_info *info);

/*  ignis_status_clear - forget the failure, so that the next one is kept
    Returns: nothing.
    Errors: none.
    Ownership: frees the texts of the failure, and that of ignis_status_latest_message.
    Threads: any; each has its own. */
IGNIS_API void ignis_status_clear(void);

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
    IGNIS_MATMUL_AUTO,     /* own kernels for large products of f16 and bf16 on compute capability 9.0; else cuBLASLt where it is found */
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
} ignis_desc;

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
    tried), DEVICE (no such device), MEMORY.
    Ownership: desc and its strings are copied.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - free everything that Ignis holds, after reporting what is still alive: arrays, kernels, graphs, optimizers, channels
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

/*  ignis_library_query - load a library if it is not loaded, and say which file it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);

/* >>device ------------------------------------------------------------------------------------------------------ */

#define IGNIS_MAX_DEVICES 64

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
    int64_t memory_total; /* bytes */
    int driver_version;   /* 1000 * major + 10 * minor, such as 13000 */
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
    Errors: ARGUMENT (the stream is of another device, or the per-thread one), CUDA.
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
    Errors: ARGUMENT (null, or one of ignis_stream_create, which ignis_stream_free forgets), CUDA.
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
    Errors: FREED, ARGUMENT (no stream of this device), DEVICE (a stream of another device than the event), CUDA.
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
    Errors: DEVICE (the devices were lost to a fault), CUDA.
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

/*  ignis_memory_trim - give cached memory that no array uses back to the driver
    Returns: the number of bytes given back, -1 on failure.
    Errors: DEVICE, CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device. */
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
    Threads: any. May wait for the device, as copies may still use it. */
IGNIS_API ignis_status ignis_host_free(void *memory);

/* >>array ------------------------------------------------------------------------------------------------------- */

#define IGNIS_MAX_DIMS 8

typedef struct ignis_shape {
    int ndim;
    int64_t dim[IGNIS_MAX_DIMS];
} ignis_shape;

/*  IGNIS_DTYPES - every element type, as X(enumerator suffix, lower-case name, bytes). */
#define IGNIS_DTYPES(X) \
    X(F16, f16, 2)      \
    X(BF16, bf16, 2)    \
    X(F32, f32, 4)      \
    X(F64, f64, 8)      \
    X(I32, i32, 4)      \
    X(I64, i64, 8)      \
    X(U8, u8, 1)

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
    Errors: ARGUMENT (also for a desc.ptr that is not device memory, or in an allocation that ends before the array), SHAPE, DEVICE, MEMORY.
    Ownership: the caller frees it with ignis_array_free. Wrapped memory stays the caller's and must outlive the array.
    Threads: any. */
IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc);

/*  ignis_array_free - free an array as IGNIS_OWNER_IGNIS; ignis_array_free_as - free it as the owner named
    The memory goes back in stream order once its last view is freed too; pinned host memory goes at once.
    Returns: IGNIS_OK, or why the array was left as it is.
    Errors: FREED (also for a second free), CONTRACT (another owner, or ref_count above 0; the message says who holds references).
    Ownership: the handle is stale afterwards; views of the array stay valid.
    Threads: any. Streams: work that is queued on the array still finishes first. */
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
    Conversion: to a floating type rounds to nearest even, keeps NaN, infinities and signed zeros, overflows to infinity. To an
    integer type rounds toward zero and saturates; NaN becomes 0. 0 for dtype means the array's own.
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
    Threads: any. May wait for copies that still use it. */
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
    Threads: any. */
IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array array, ignis_owner owner);

/* >>elementwise ------------------------------------------------------------------------------------------------- */

/*  ignis_array_fill - set every element to value, converted by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value);

/*  ignis_array_copy - copy all elements of src into dst, converting by the rules of ignis_array_from_host
    Shapes: equal numel. dst and src may be on different devices when their dtypes are equal. They must be the same memory or apart.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of dst's device, after the work queued on that of src's. */
IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src);

/*  ignis_array_cast - a new array of another element type with the same elements
    Returns: the new array, with the array's shape, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_cast(ignis_array array, ignis_dtype dtype);

/*  ignis_array_add - dst = a + b; ignis_array_mul - dst = a * b, element by element
    Shapes: equal numel; one dtype. f16 and bf16 are computed in f32 and rounded once; integers wrap around. dst may be a or b, but
    not overlap them in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a or b was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b);
IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b);

/*  ignis_array_scale - dst = src * factor, element by element
    Shapes: equal numel; one dtype. f16, bf16 and f32 are computed in f32 with the factor rounded to f32; integers are computed in f64
    and converted by the rules of ignis_array_from_host. dst may be src, but not overlap it in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor);

/* >>contract ---------------------------------------------------------------------------------------------------- */

typedef struct ignis_contract_entry {
    uint64_t array_id; /* ignis_array_info.id */
    ignis_owner owner; /* now, or when it was freed */
    int64_t age_ms;    /* since it was tracked */
    ignis_shape shape;
    ignis_dtype dtype;
    bool freed;
    char tag[32];
    int64_t bytes;
    int ref_count;
    int views;   /* other arrays that use the same memory */
    int exports; /* handles of it that other processes hold, or may still take up */
} ignis_contract_entry;

/*  ignis_contract_acquire - take the ownership of an array for a layer, before that layer works on it
    The array is tracked from then on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (already owned by it, or ref_count above 1).
    Ownership: moves to by.
    Threads: any; acquisitions are one at a time. */
IGNIS_API ignis_status ignis_contract_acquire(ignis_array array, ignis_owner by);

/*  ignis_contract_release - give the ownership of an array back to IGNIS_OWNER_IGNIS
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (not owned by it, or ref_count above 1).
    Ownership: moves to IGNIS_OWNER_IGNIS.
    Threads: any; releases are one at a time. */
IGNIS_API ignis_status ignis_contract_release(ignis_array array, ignis_owner by);

/*  ignis_contract_assert_owner - check that an array is owned by the expected owner
    Returns: IGNIS_OK if it is.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (another owner).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array array, ignis_owner owner);

/*  ignis_contract_track - list an array in the audit; ignis_contract_untrack - no longer, also after it was freed
    Tracking again starts its age anew. An array that was tracked by this call stays in the audit as freed until it is untracked;
    one that was only acquired leaves the audit when it is freed.
    Returns: IGNIS_OK, or the reason; untracking what is not tracked is fine.
    Errors: FREED (track), MEMORY.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_track(ignis_array array);
IGNIS_API ignis_status ignis_contract_untrack(ignis_array array);

/*  ignis_contract_audit - list the tracked arrays older than min_age_ms milliseconds, oldest first
    0 means 5000, as only old arrays are likely leaks; a negative number lists all. entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms);

/*  ignis_contract_tracked_count - how many arrays are tracked
    Returns: the count, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_contract_tracked_count(void);

/*  ignis_contract_reset - forget everything that is tracked; owners and arrays stay as they are
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_reset(void);

/* >>kernel ------------------------------------------------------------------------------------------------------ */

/*  A header in memory, for #include "name" in a kernel. */
typedef struct ignis_kernel_header {
    const char *name;
    const char *text;
} ignis_kernel_header;

typedef struct ignis_kernel_desc {
    const char *source;         /* required: CUDA C++ text; #include "ignis.cuh" gives it the types and helpers of Ignis' own kernels */
    const char *name;           /* the file name that compile errors show; files in its folder can be included ("kernel.cu") */
    const char *entry;          /* required: the __global__ function; a template instance or namespaced name is fine: "scale<float>" */
    const char *const *options; /* NVRTC options such as "-DN=4", "-I/usr/local/cuda/include" (none) */
    int option_count;
    const ignis_kernel_header *headers; /* headers in memory, found before any file (none beside those of Ignis) */
    int header_count;
} ignis_kernel_desc;

typedef struct ignis_launch {
    int64_t grid[3];      /* blocks; y and z: 0 means 1. x = 0 runs nothing and succeeds, so empty arrays need no special case */
    int block[3];         /* threads, x required; y and z: 0 means 1 */
    int64_t shared_bytes; /* dynamic shared memory of a block, above 48 KB too (0) */
} ignis_launch;

typedef enum ignis_arg_type {
    IGNIS_ARG_ARRAY = 1,
    IGNIS_ARG_I32,
    IGNIS_ARG_I64,
    IGNIS_ARG_F32,
    IGNIS_ARG_F64,
    IGNIS_ARG_PTR,
    IGNIS_ARG_BYTES
} ignis_arg_type;

typedef struct ignis_arg {
    ignis_arg_type type;
    size_t size; /* of an IGNIS_ARG_BYTES */
    union {
        ignis_array array;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        void *ptr;
        const void *bytes;
    } value;
} ignis_arg;

typedef struct ignis_kernel_info {
    const char *entry; /* lives as long as the kernel */
    int parameters;    /* -1: the driver is older than 12.4 and does not tell */
    int registers;     /* per thread */
    int local_bytes;   /* per thread, where registers spill */
    int shared_bytes;  /* static, per block */
    int max_threads;   /* per block */
    bool from_cache;   /* true: no compiler ran for the device that is current */
} ignis_kernel_info;

/*  ignis_kernel_compile - compile CUDA source for the current device, or take it from the cache
    The kernel runs on every device: on one of another architecture it is compiled again at its first launch there.
    Returns: the kernel, or no handle.
    Errors: ARGUMENT, LIBRARY (no NVRTC), COMPILE (the log is part of the message), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. desc and its strings are copied.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc);

/*  ignis_kernel_launch - run a kernel on the current device
    args are the kernel's parameters in order; array arguments are checked, allocated if need be, and become pointers. Of parameters the driver
    tells sizes alone: an f64 array for a `float *`, or an i32 for a `float`, cannot be seen. Nor can whether a parameter is const, so a launch
    does not count as writing to an array that was written before: where it does, call ignis_array_mark_written.
    Returns: IGNIS_OK, or the reason. A fault inside the kernel shows at a later call.
    Errors: FREED, ARGUMENT (count, sizes, limits of the launch), DEVICE (an array of another device), MEMORY, CUDA.
    Ownership: unchanged; args may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch *launch, const ignis_arg *args, int arg_count);

/*  ignis_kernel_query - registers, memory and limits of a kernel on the current device
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, LIBRARY, COMPILE, CUDA.
    Ownership: info->entry lives as long as the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_query(ignis_kernel kernel, ignis_kernel_info *info);

/*  ignis_kernel_set_symbol - write to a __constant__ or __device__ variable of a kernel's program, on the current device
    name: as in the source for a variable outside of namespaces, else its mangled name. size: all of its bytes. Each kernel handle has
    variables of its own, on each device, with the values of the source at first.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream: what other streams launch is not ordered with it. */
IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size);

/*  ignis_kernel_reload - compile another program in the background, and let a kernel be that one when it is ready
    Launches go on with the old program meanwhile, and for ever if the new one does not compile: then the logger gets the compiler's log,
    and ignis_ticket_wait the failure. Threads may launch the kernel all the time; each launch, and each capture, takes what is the newest
    then. Variables of the new program (ignis_kernel_set_symbol) have the values of its source. Of several reloads the one that was asked for
    last wins.
    What was replaced stays loaded until the kernel is freed.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT, DEVICE, MEMORY. By ignis_ticket_wait: LIBRARY (no NVRTC), COMPILE, MEMORY, CUDA.
    Ownership: desc and its strings are copied. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on a thread of its own, for each device that the kernel was used on. */
IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc *desc);

/*  ignis_kernel_free - free a kernel
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards; launches that are queued still run, and graphs that captured one keep the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_free(ignis_kernel kernel);

/*  ignis_arg_array, _i32, _i64, _f32, _f64, _ptr - one kernel argument; ignis_arg_bytes - a struct passed by value
    Returns: the argument.
    Errors: none here; ignis_kernel_launch checks.
    Ownership: borrows; bytes must live until ignis_kernel_launch returns.
    Threads: any. */
IGNIS_API ignis_arg ignis_arg_array(ignis_array array);
IGNIS_API ignis_arg ignis_arg_i32(int32_t value);
IGNIS_API ignis_arg ignis_arg_i64(int64_t value);
IGNIS_API ignis_arg ignis_arg_f32(float value);
IGNIS_API ignis_arg ignis_arg_f64(double value);
IGNIS_API ignis_arg ignis_arg_ptr(void *value);
IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size);

/*  ignis_warmup - compile Ignis' own kernels, and count kernels of the caller, ahead of their first use, on parallel threads
    descs may be null when count is 0.
    Returns: IGNIS_OK, or the first failure; the others are compiled all the same.
    Errors: ARGUMENT, LIBRARY, COMPILE, DEVICE, MEMORY, CUDA.
    Ownership: everything goes to the caches; nothing to free.
    Threads: any. Waits for the compilers. */
IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count);

#ifndef IGNIS_NO_TENSORS

/* >>tensor ------------------------------------------------------------------------------------------------------ */

typedef struct ignis_tensor {
    uint64_t id;
} ignis_tensor;

/*  The tensors that a thread has made since ignis_scope_begin. */
typedef struct ignis_scope {
    uint64_t id;
} ignis_scope;

typedef struct ignis_tensor_desc {
    ignis_dtype dtype;      /* IGNIS_F32 */
    int device;             /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad;     /* whether ignis_backward computes a gradient for it (false) */
    ignis_dtype host_dtype; /* of the data given to ignis_tensor_from_host (dtype, but f32 for f16 and bf16) */
    const char *tag;        /* as in ignis_array_desc */
    int64_t host_count;     /* elements that the data given to ignis_tensor_from_host has, which must be the shape's (0: not checked) */
} ignis_tensor_desc;

typedef struct ignis_tensor_info {
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    bool requires_grad;
    bool is_leaf; /* made by the caller, not by an operation on tensors that require a gradient */
    ignis_array data;
    ignis_array grad;      /* no handle until a gradient was computed */
    const char *operation; /* that recorded it on the tape; "" for none */
} ignis_tensor_info;

/*  ignis_tensor_from_host - a new tensor with the values at data
    Shape: as in ignis_array_create. data holds numel elements of desc->host_dtype; give their count as desc->host_count, so that a buffer
    which is too short for the shape is an error instead of being read beyond its end. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null data, host_count is not numel, no such dtype), SHAPE, DTYPE (a gradient of integers), DEVICE, MEMORY, CUDA.
    Ownership: the current scope's, else the caller's, who releases it with ignis_tensor_release; data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_from_array - a tensor over the memory of an array
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE (a gradient of integers), MEMORY.
    Ownership: as ignis_tensor_from_host. The array stays the caller's; its memory lives until both are gone.
    Threads: any. */
IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array array, bool requires_grad);

/*  ignis_tensor_zeros, _ones, _rand, _randn - a new tensor of zeros, ones, uniform values in [0, 1), standard normal values
    Random values come from Philox 4x32-10 (Salmon et al., SC 2011) keyed by ignis_seed: the same seed and the same calls give the same
    values on every GPU and on the simulator, but for the last bit of a normal value's logarithm and cosine.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT, SHAPE, DTYPE (random or differentiable integers), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_seed - start the calling thread's sequence of random numbers anew (0 at ignis_setup)
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own sequence. */
IGNIS_API ignis_status ignis_seed(uint64_t seed);

/*  ignis_tensor_data - the array of a tensor's values; ignis_tensor_grad - the array of its gradient
    Returns: the array, or no handle (no gradient was computed yet: that is no failure).
    Errors: FREED.
    Ownership: the tensor's: it holds a reference, so ignis_array_free refuses. The gradient is accumulated by each ignis_backward until
    ignis_zero_grad.
    Threads: any. */
IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor);
IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor);

/*  ignis_tensor_query - every attribute of a tensor
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: arrays in info are the tensor's.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_query(ignis_tensor tensor, ignis_tensor_info *info);

/*  ignis_tensor_shape, ignis_tensor_numel - the shape of a tensor, and how many elements it has
    Returns: the shape (ndim 0 on failure), the number (-1 on failure).
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor tensor);
IGNIS_API int64_t ignis_tensor_numel(ignis_tensor tensor);

/*  ignis_tensor_to_string - "tensor [2, 3] f32 on device 0, leaf, requires a gradient, 'weights'", or "..., result of matmul"
    A stale handle gives "tensor handle 0x... (freed)".
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0; -1 on failure.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_tensor_to_string(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_tensor_to_host - copy all elements to the host, converting to dtype, as ignis_array_to_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor tensor, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_item - the value of a tensor of one element; ignis_item_i64 - the value of one of integers, without rounding
    Returns: the value; on failure NaN, for ignis_item_i64 INT64_MIN.
    Errors: FREED, SHAPE (more or fewer elements), DTYPE (ignis_item_i64 of a tensor that is not of integers), ARGUMENT (never written to;
    ignis_item of an i64 that no double is equal to, which happens beyond 2^53), CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API double ignis_item(ignis_tensor tensor);
IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor);

/*  ignis_tensor_release - release a tensor's handle
    Memory that the tape needs for a gradient stays until ignis_backward or ignis_tape_clear.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_release(ignis_tensor tensor);

/*  ignis_scope_begin - from here on, tensors that the calling thread makes belong to a new scope inside the current one
    Returns: the scope, or no handle.
    Errors: MEMORY.
    Ownership: end it with ignis_scope_end or ignis_scope_return.
    Threads: any; each has its own scopes. */
IGNIS_API ignis_scope ignis_scope_begin(void);

/*  ignis_scope_end - release every tensor of the scope that was not released yet
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: the tensors' handles are stale afterwards.
    Threads: the one that began the scope. */
IGNIS_API ignis_status ignis_scope_end(ignis_scope scope);

/*  ignis_scope_return - end the scope, and pass one of its tensors on to the enclosing scope, or to the caller where there is none
    Returns: the tensor, also when the scope could not be ended.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: as for a tensor made outside of the scope.
    Threads: the one that began the scope. */
IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor);

/* >>tape -------------------------------------------------------------------------------------------------------- */

/*  What a backward function is given, and what it fills. */
typedef struct ignis_backward_args {
    ignis_array grad_output;  /* gradient of the output, in its shape and dtype; not to be written to */
    const ignis_array *saved; /* the memory of ignis_rule.saved, in order, by handles that are good until the function returns; not to be
                                 written to */
    int saved_count;
    const void *params; /* the copy of ignis_rule.params */
    int input_count;
    const bool *needed;       /* for each input, whether its gradient is wanted */
    ignis_array *grad_inputs; /* to be filled, for each needed input, with an array of its numel and dtype, which the tape takes
                                  over; may be grad_output, a saved array, or one array twice; no handle counts as zero */
    void *user_data;          /* ignis_rule.user_data */
} ignis_backward_args;

/*  How the gradient of an operation is computed. */
typedef struct ignis_rule {
    const char *name; /* a constant string: messages and graphs show it */
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    const ignis_array *saved; /* arrays whose memory backward needs: that is kept, also when they are freed */
    int saved_count;
    const void *params; /* small values that backward needs, copied (none) */
    size_t params_size;
    void *user_data;
} ignis_rule;

/*  A function of tensors, for ignis_checkpoint and ignis_gradcheck. */
typedef ignis_tensor (*ignis_tensor_fn)(const ignis_tensor *inputs, int count, void *user_data);

typedef struct ignis_gradcheck_desc {
    double step;      /* of the finite differences, relative to max(1, |x|) (1e-5) */
    double tolerance; /* relative error that passes (1e-6) */
} ignis_gradcheck_desc;

/*  ignis_backward - compute the gradient of a tensor with regard to every leaf that requires one
    grad_output is the gradient of the tensor itself; IGNIS_NO_ARRAY means 1, for a tensor of one element. Gradients are added to those that
    leaves have; they are written once, at the end. Entries of the tape are freed as backward passes them: a second backward through them is an
    error (see ignis_backward_retain). After a failure they are freed too, and no leaf has changed.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient, has more than one element without grad_output, was walked already, or was
    recorded by another thread; an operation on the way saved an array that was written to since; a backward function of the caller failed
    without saying why), SHAPE, DTYPE, DEVICE, MEMORY, CUDA, and what backward functions fail with.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_backward_retain - ignis_backward that keeps the entries of the tape for another one (retain_graph in PyTorch)
    Each adds its gradients to those that the leaves have. What backward needs stays in memory until an ignis_backward passes it, or the tensors
    that were computed from it are released. Saved arrays must not change in between.
    Returns: IGNIS_OK, or the reason; what was recorded is kept either way.
    Errors: those of ignis_backward.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_tensor_set_grad - copy an array's values into a tensor's gradient, whose memory is kept, or made where there is none
    IGNIS_NO_ARRAY drops the gradient: its memory is freed, and optimizers do not update the tensor, until another one is computed.
    Shapes: equal numel; the tensor's dtype and device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (the tensor requires no gradient, as those of integers; grad was never written to; a parameter of
    data-parallel training, whose gradient cannot be dropped), MEMORY, CUDA.
    Ownership: grad stays the caller's.
    Threads: any, but a gradient is not dropped while another thread's optimizer makes a step with it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_tensor_set_grad(ignis_tensor tensor, ignis_array grad);

/*  ignis_zero_grad - set a tensor's gradient to zero; its memory is kept, or made where there is none
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_zero_grad(ignis_tensor tensor);

/*  ignis_detach - a tensor over the same memory that is not on the tape and requires no gradient
    Returns: the tensor, or no handle.
    Errors: FREED, MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_detach(ignis_tensor tensor);

/*  ignis_no_grad_begin, ignis_no_grad_end - between them the calling thread records nothing; they nest
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (end without begin).
    Ownership: nothing to free.
    Threads: any; each has its own depth. */
IGNIS_API ignis_status ignis_no_grad_begin(void);
IGNIS_API ignis_status ignis_no_grad_end(void);

/*  ignis_tape_record - make output the result of an operation on inputs, whose gradients rule computes
    Ignis' own operations are recorded in the same way. Nothing is recorded inside ignis_no_grad_begin, or when no input requires a
    gradient. output must be new: a leaf that requires no gradient itself, and that no recorded operation has as an input.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (output is not new, null rule, an input recorded by another thread), DTYPE (integers), MEMORY.
    Ownership: inputs are kept, params are copied. Saved arrays stay the caller's: the tape keeps their memory, and they may be freed at once, used
    for ever, or saved again.
    Threads: any; the entry belongs to the calling thread's tape. */
IGNIS_API ignis_status ignis_tape_record(ignis_tensor output, const ignis_tensor *inputs, int count, const ignis_rule *rule);

/*  ignis_tape_clear - free all entries of the calling thread's tape
    Returns: IGNIS_OK, or the reason.
    Errors: NOT_SETUP, ARGUMENT (inside a backward function).
    Ownership: saved memory is freed; tensors stay, and a backward through them is an error.
    Threads: any; each has its own tape. */
IGNIS_API ignis_status ignis_tape_clear(void);

/*  ignis_tape_length - how many operations the calling thread's tape holds
    Returns: the number, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own tape. */
IGNIS_API int64_t ignis_tape_length(void);

/*  ignis_tape_dot - the operations that lead to a tensor as a Graphviz graph, with shapes, and the bytes that each keeps for backward
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0; -1 on failure.
    Errors: FREED, ARGUMENT, MEMORY.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: the one that recorded it. */
IGNIS_API int64_t ignis_tape_dot(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_checkpoint - run a function without keeping what its backward needs, and run it again in backward (Chen et al. 2016)
    The function runs in a scope of its own: what it makes is released when it returns, but for its result. The second run sees the same random
    numbers. Tensors that fn uses beside its inputs, such as weights, get their gradients too. Where inputs, or others that were there before and that
    operations in fn read, were written to before the backward, that fails. Where no tensor that fn uses requires a gradient, nothing is recorded.
    Returns: a new tensor over what fn returns, or no handle.
    Errors: FREED, ARGUMENT (fn has begun and not ended, or ended and not begun, a scope or a no-grad section), those of fn, MEMORY. Where fn writes
    to its inputs, the backward fails.
    Ownership: as ignis_tensor_from_host. user_data must live until backward.
    Threads: any. */
IGNIS_API ignis_tensor ignis_checkpoint(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count);

/*  ignis_gradcheck - compare the gradients of a function with central finite differences
    All inputs are f64 leaves, on one device. The function is called twice for each element of each input that requires a gradient, with the same
    random numbers each time, and recorded also where a no-grad section is open. The relative error is |a - b| / max(1, |a|, |b|).
    Returns: the largest relative error, also when it is above desc->tolerance; NaN on failure.
    Errors: FREED, ARGUMENT (an input that is the result of an operation or, in a backward function, older than it), DTYPE (an input that is not
    f64), MISMATCH (above the tolerance; the message names input and element), those of fn.
    Ownership: inputs keep their values; their gradients are set to zero. Other leaves that fn uses get theirs as from any backward.
    Threads: any. Waits. */
IGNIS_API double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                 const ignis_gradcheck_desc *desc);

/* >>ops --------------------------------------------------------------------------------------------------------- */

/*  Operations make new tensors, which belong to the current scope; inputs keep their values. All inputs of one call are on one device and,
    unless it says otherwise, of one dtype: f16, bf16, f32 or f64. Each is recorded for ignis_backward when an input requires a gradient.
    f16 and bf16 are computed in f32 and rounded once, at the end. */

/* >>ops.matmul -------------------------------------------------------------------------------------------------- */

/*  ignis_matmul - matrix product a b; ignis_matmul_t - a b^T, without transposing b in memory
    Shapes: a [..., m, k]; b [k, n] ([n, k] for _t), or [..., k, n] with the same leading dimensions as a; the result [..., m, n].
    f16, bf16 and f32 are summed in f32 (f32 by tf32 with ignis_desc.allow_tf32), f64 in f64.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (inner or leading dimensions differ), DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or, where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b);

/*  ignis_linear - x w^T + bias, as a layer of a network
    Shapes: x [..., in]; w [out, in]; bias [out], or no handle for none; the result [..., out]. Sums as in ignis_matmul; in f16 and
    bf16 cuBLASLt may round the product once before it adds the bias.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (no NVRTC or, where asked for, no cuBLASLt), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias);

typedef enum ignis_activation {
    IGNIS_ACTIVATION_RELU = 1,
    IGNIS_ACTIVATION_GELU /* as ignis_gelu; the numbers are those of kernels/gemm.cuh, too */
} ignis_activation;

/*  ignis_mlp - two linear layers and the activation between them: activation(x w1^T + b1) w2^T + b2
    The same as ignis_linear, ignis_relu or ignis_gelu, and ignis_linear, in fewer passes over memory: biases, the activation, its gradient and the
    gradients of the biases are part of the products, as far as those who compute them can (ignis_desc.matmul).
    Shapes: x [..., in]; w1 [hidden, in]; w2 [out, hidden]; b1 [hidden] and b2 [out], or no handles for none; the result [..., out].
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (no such activation), FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY (as ignis_linear), CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation);

/* >>ops.pointwise ----------------------------------------------------------------------------------------------- */

/*  ignis_add, ignis_sub, ignis_mul - a + b, a - b and a * b, element by element
    Shapes: b has the shape of a, or spreads over it: compared from the last dimension on, b may lack leading dimensions, or have 1 for one
    dimension or several neighbouring ones. So b may be a row, a column or a single element. The gradient of b is summed
    accordingly, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (b does not spread over a), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b);

/*  ignis_add_bias - add a bias [cols] to each row of a tensor [..., cols]
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (the bias is not [cols]), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias);

/*  ignis_scale - every element times factor; f16, bf16 and f32 with the factor rounded to f32
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor);

/*  ignis_cast - the same elements as another dtype, by the rules of ignis_array_from_host
    The gradient is cast back. A result of integers has none.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (no such dtype, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype);

/*  ignis_dropout - set each element to zero with the given probability, and divide the others by 1 - probability
    Which ones follows from ignis_seed and the calls since; backward computes the mask again, so none is kept. In a graph it also follows
    from how often that was launched: see ignis_graph_launch. For evaluation leave it out.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (probability outside 0 to below 1, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability);

/*  ignis_relu - max(x, 0); ignis_silu - x / (1 + exp(-x));
    ignis_gelu - x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); ignis_gelu_exact - x/2 (1 + erf(x / sqrt(2)))
    NaN stays NaN. The gradient of relu at 0 is 0.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor);

/*  ignis_silu_mul - silu(gate) * up in one pass, for gated MLPs; silu(gate) is not rounded in between
    Shapes: equal.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up);

/* >>ops.sum ----------------------------------------------------------------------------------------------------- */

/*  ignis_sum, ignis_mean - the sum or mean of all elements; ignis_sum_dim, ignis_mean_dim - along one dimension
    Shapes: [1]; along a dimension the shape without it, [1] for a tensor of one dimension. A negative dim counts from the last one on.
    Summed in f32 (f64 in f64) in a fixed order. The sum of no elements is 0, their mean NaN.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim);
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim);

/* >>ops.shape --------------------------------------------------------------------------------------------------- */

/*  ignis_reshape - the same elements under another shape, over the same memory; one dimension may be -1: what is left over
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (numel differs, more than one -1), MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape);

/*  ignis_transpose - swap two dimensions, in new memory; negative ones count from the last one on. Any dtype.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1);

/*  ignis_concat - concatenate count tensors along a dimension, in new memory. Any dtype.
    Shapes: equal but for that dimension. More than eight are concatenated in several passes.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, another one differs), DTYPE, DEVICE, ARGUMENT (null, count, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim);

/*  ignis_split - cut a tensor along a dimension into count parts of the given sizes, or into equal ones where sizes is null. Any dtype.
    Parts along the first dimension share the tensor's memory. Backward puts all parts' gradients into one array.
    Returns: IGNIS_OK, and parts[0] to parts[count - 1] filled; on failure they are 0.
    Errors: FREED, SHAPE (no such dimension, sizes do not add up, no equal parts), ARGUMENT (null, count, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for each part.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts);

/*  ignis_slice - elements [start, start + len) along a dimension; a negative dim counts from the last one on. Any dtype.
    Along the first dimension, and where only dimensions of 1 are before it, the slice shares the tensor's memory; else it is a copy.
    Backward puts the gradient into zeros of the tensor's shape: for many slices of one tensor ignis_split takes less.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, range outside of it), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len);

/* >>ops.norm ---------------------------------------------------------------------------------------------------- */

/*  ignis_softmax - exp(x) / sum of exp(x) over the last dimension
    A row of nothing but -infinity becomes zeros; one with NaN or +infinity becomes NaN.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (a last dimension of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_softmax(ignis_tensor x);

/*  ignis_layer_norm - (x - mean) / sqrt(variance + eps) * w + b, with mean and variance over the last dimension
    ignis_rms_norm - x / sqrt(mean of x^2 + eps) * w
    Shapes: x [..., n]; w and b [n]. eps 0 means 1e-5, as in PyTorch's layer_norm; for next to none give a tiny one, such as 1e-30.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps);
IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps);

/*  ignis_add_layer_norm, ignis_add_rms_norm - x + y, the end of a residual branch, and its norm: one walk over memory for both
    Gives what ignis_add and then ignis_layer_norm or ignis_rms_norm give, to the last bit. *sum becomes x + y, another tensor of the result's kind,
    and may be the variable that x is in: h = ignis_add_layer_norm(x, h, w, b, eps, &x). sum may be null where only the norm is needed.
    Backward needs nothing of this kind: the gradient of a norm adds itself to that which its input has from elsewhere, in one walk too.
    Shapes: x and y [..., n], the same; w and b [n]. eps as above.
    Returns: the norm, or no handle; then *sum is none either.
    Errors: FREED, ARGUMENT (eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps, ignis_tensor *sum);
IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps, ignis_tensor *sum);

/* >>ops.rope ---------------------------------------------------------------------------------------------------- */

typedef struct ignis_rope_desc {
    int num_heads;              /* required: a row is num_heads heads of head_dim elements */
    double base;                /* of the inverse frequencies base^(-2i / head_dim) (10000) */
    int64_t pos_offset;         /* position of the first row of every sequence (0) */
    const float *inv_freq;      /* on the host: other inverse frequencies, such as those of llama3, NTK or YaRN scaling (those of base) */
    int inv_freq_count;         /* head_dim / 2 */
    ignis_array inv_freq_array; /* instead of them: head_dim / 2 frequencies in f32 on the device (none) */
} ignis_rope_desc;

/*  ignis_rope - rotary position embedding, in the half-rotating order of Llama and Qwen
    Shapes: x [..., seq, num_heads * head_dim]; the position of a row is its index in seq plus desc->pos_offset. Elements i and
    i + head_dim / 2 of every head turn by position * inv_freq[i]. Frequencies on the device are read as the kernel runs, so a graph reads them
    anew at each launch; backward reads them again.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null desc, num_heads below 1, base not positive, pos_offset beyond 2^31, inv_freq_count or the array's numel is
    not head_dim / 2, frequencies given twice or never written to), SHAPE (the last dimension is not num_heads times an even head_dim), DTYPE,
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 512).
    Ownership: as ignis_tensor_from_host; inv_freq may be reused when the call returns, and inv_freq_array be freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc *desc);

/* >>ops.embedding ----------------------------------------------------------------------------------------------- */

/*  ignis_embedding - rows of a table: out[..., :] = table[ids[...], :]
    Shapes: table [vocab, n]; ids, of i32 or i64, any; the result is that of ids with n behind it. An id outside of the table gives a row of NaN, and
    no gradient. The gradient of the table is summed in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30, or 2^31 ids or rows, or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids);

/* >>ops.loss ---------------------------------------------------------------------------------------------------- */

typedef enum ignis_reduction { IGNIS_REDUCTION_MEAN = 0, IGNIS_REDUCTION_SUM, IGNIS_REDUCTION_COUNT } ignis_reduction;

typedef struct ignis_cross_entropy_desc {
    int64_t ignore_index;      /* rows with this target have neither loss nor gradient (-100) */
    bool ignore_zero;          /* with ignore_index 0: that it is meant, and not the default */
    ignis_reduction reduction; /* of the rows that are not ignored (IGNIS_REDUCTION_MEAN) */
    int64_t classes;           /* later columns are padding: they are ignored, and their gradient is 0 (all columns are classes) */
    int64_t chunk;             /* of ignis_linear_cross_entropy: rows whose logits exist at a time (as many as have about 2^27 logits) */
} ignis_cross_entropy_desc;

/*  ignis_cross_entropy - mean or sum over rows of log(sum of exp(logits)) - logits[target]
    Shapes: logits [..., classes]; targets, of i32 or i64, [...]; the result is [1], of f32, or f64 for logits of f64. desc may be null for
    all defaults.
    A target that is no class and not ignored makes the loss NaN, and the gradient of its row. So is the mean when every row is ignored.
    The gradient of f32, f64 and bf16 is computed with the loss, and backward only passes it on; it is scaled, and rounded once more, where
    the gradient of the loss is not 1.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the columns, reduction), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA,
    UNSUPPORTED (2^30 columns or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets, const ignis_cross_entropy_desc *desc);

/*  ignis_linear_cross_entropy - the cross-entropy of the logits hidden weight^T, which are never there as a whole
    The same as ignis_cross_entropy(ignis_matmul_t(hidden, weight), targets, desc), for vocabularies whose logits are larger than all else: they
    are made in chunks of desc->chunk rows, and so is their gradient. The gradients of hidden and weight are computed with the loss; backward passes
    them on, or scales them, and rounds them once more, where the gradient of the loss is not 1. For f16, whose range is small, backward computes
    them from the logits, which it makes once more: a fourth product. Sums over chunks have a fixed order, in f32 at least.
    Its price is memory for a chunk of logits, both gradients from forward on, and for 16-bit types with more than one chunk 6 bytes for each
    element of weight meanwhile; and a pass over weight and its sum for each chunk: small chunks are slow.
    Shapes: hidden [..., n], weight [classes, n], of one dtype; targets, of i32 or i64, [...]; the result is [1], of f32, or f64 for f64.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the rows of weight, reduction, chunk below 0), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA, UNSUPPORTED (n or classes of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc);

/* >>ops.attention ----------------------------------------------------------------------------------------------- */

typedef enum ignis_mask {
    IGNIS_MASK_CAUSAL = 0, /* of sq queries and sk keys, query i sees the keys before i + sk - sq + 1: the last query sees all */
    IGNIS_MASK_NONE,       /* every query sees all keys */
    IGNIS_MASK_COUNT
} ignis_mask;

typedef struct ignis_sdpa_desc {
    int num_heads;    /* a row of q is num_heads heads of head_dim elements (1) */
    int num_kv_heads; /* a row of k or v is num_kv_heads such heads, each shared by num_heads / num_kv_heads query heads (num_heads) */
    ignis_mask mask;  /* IGNIS_MASK_CAUSAL */
    double scale;     /* of the scores, positive (1 / sqrt(head_dim)) */
} ignis_sdpa_desc;

/*  ignis_sdpa - scaled dot-product attention of all heads: softmax(scale q k^T) v, without ever storing the scores
    Shapes: q [sq, num_heads * head_dim]; k and v [sk, num_kv_heads * head_dim]; or all with a batch in front; head_dim is at most 256. The
    result has the shape of q. A query that sees no key gives zeros, and no gradient. desc may be null for all defaults.
    f16 and bf16 use tensor cores on devices of compute capability 8.0 and up, if head_dim is a multiple of 8; probabilities are rounded
    to the dtype there. Compute capability 9.0 has kernels of its own, twice as fast, where head_dim is 64 at least and there are a query and a
    key (for the gradients 32 queries, or 16 if head_dim is not 64), and CUDA is 12.0 or newer; their gradients need 4 bytes for each element
    of q while they are computed. ignis_desc.attention takes the one kind or the other; what IGNIS_ATTENTION_WGMMA cannot take is told to the
    logger, as information (ignis_desc.verbose). Equal inputs give equal bits, with all kernels. Few queries and many keys need memory for the parts
    of a result, at most 2^18 bytes for each multiprocessor.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads or num_kv_heads below 1, num_heads is not a multiple of num_kv_heads, no such mask, scale is not
    positive), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (head_dim above 256, 2^30 rows or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc);

/*  ignis_sdpa_packed - ignis_sdpa of q, k and v where one projection (ignis_linear) left them: nothing is copied
    Shapes: qkv [seq, (num_heads + 2 num_kv_heads) * head_dim], or with a batch in front: in each row the heads of q, then those of k, then those of
    v. The result is [seq, num_heads * head_dim], or with the batch. Its gradient is one array of the shape of qkv. Same bits as ignis_sdpa of the
    three parts, where qkv begins at a multiple of 16 bytes; elsewhere f16 and bf16 use no tensor cores. desc may be null for all defaults.
    With rope q and k turn first as by ignis_rope, into memory of their own, where they stay for backward; its num_heads is 0, or that of q and k
    together. Without, rope is null.
    Returns: the tensor, or no handle.
    Errors: those of ignis_sdpa and ignis_rope.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope);

/*  ignis_decode_sdpa - attention of one new query to all keys of a cache, for generation token by token
    Shapes: q [1, num_heads * head_dim]; k and v [past + 1, num_kv_heads * head_dim], the new token's included, at least one row; or all with a
    batch in front; num_kv_heads follows from the shapes, head_dim is at most 512. The result has the shape of q. The scores are scaled by
    1 / sqrt(head_dim). Nothing is recorded: the result requires no gradient.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (num_heads below 1, or not a multiple of the number of key heads), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE,
    CUDA, UNSUPPORTED (head_dim above 512, 2^30 rows or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads);

/* >>optim ------------------------------------------------------------------------------------------------------- */

typedef struct ignis_optimizer {
    uint64_t id;
} ignis_optimizer;

typedef enum ignis_schedule {
    IGNIS_SCHEDULE_CONSTANT,
    IGNIS_SCHEDULE_COSINE, /* half a cosine from lr down to floor * lr */
    IGNIS_SCHEDULE_LINEAR  /* a straight line */
} ignis_schedule;

/*  The learning rate over the steps. It grows linearly to lr in the first `warmup` steps, and reaches its last value at step `total`. */
typedef struct ignis_schedule_desc {
    ignis_schedule kind; /* IGNIS_SCHEDULE_CONSTANT */
    int64_t warmup;      /* steps (0) */
    int64_t total;       /* steps, warm-up included; required but for a constant rate */
    double floor;        /* what part of lr is left at the end (0) */
} ignis_schedule_desc;

typedef struct ignis_adamw_desc {
    double lr;           /* 1e-3 */
    double beta1;        /* 0.9 */
    double beta2;        /* 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool
        no_master; /* f16 and bf16 parameters are changed as they are, without an f32 copy: saves 4 bytes each, loses small changes (false) */
    bool zero_grad; /* a step sets the gradients to zero, in the same pass (false) */
} ignis_adamw_desc;

typedef struct ignis_sgd_desc {
    double lr;           /* 1e-3 */
    double momentum;     /* 0 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* as in ignis_adamw_desc */
    bool zero_grad;
} ignis_sgd_desc;

typedef struct ignis_optimizer_info {
    int64_t step;     /* steps so far */
    double lr;        /* of the last step */
    double grad_norm; /* when gradients were clipped last, before it */
    int parameters;
} ignis_optimizer_info;

typedef enum ignis_optimizer_part {
    IGNIS_OPTIMIZER_SELF,   /* f64 [8]: learning rate, clipping, count of steps */
    IGNIS_OPTIMIZER_FIRST,  /* of a parameter: momentum */
    IGNIS_OPTIMIZER_SECOND, /* mean of the squared gradients */
    IGNIS_OPTIMIZER_MASTER  /* f32 copy of an f16 or bf16 parameter */
} ignis_optimizer_part;

/*  ignis_adamw - an optimizer by AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient
    ignis_sgd - by stochastic gradient descent with momentum; weight decay is part of the gradient, as in PyTorch
    It lives on the current device. desc may be null for all defaults.
    Returns: the optimizer, or no handle.
    Errors: ARGUMENT (a number outside its range, schedule.total), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_optimizer_free.
    Threads: any. */
IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc);
IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc);

/*  ignis_optimizer_add - make a tensor a parameter of an optimizer: a leaf that requires a gradient; decay: whether weight decay applies to it
    Master copies are made of the values that the tensor has now.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no leaf, no gradient required, added already, never written to), UNSUPPORTED (this thread captures a graph),
    DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the optimizer keeps the tensor's memory until it is freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer optimizer, ignis_tensor tensor, bool decay);

/*  ignis_optimizer_step - update all parameters that have a gradient
    One launch for each element type. Step count, learning rate and clipping are kept and updated on the device, so a CUDA graph of a step can be
    replayed. Without any gradient nothing happens, and no step is counted.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no parameters), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer optimizer);

/*  ignis_optimizer_zero_grad - set the gradients of all parameters to zero; their memory is kept
    Returns: IGNIS_OK, or the reason.
    Errors: as ignis_optimizer_step.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer optimizer);

/*  ignis_clip_grad_norm - if the norm of all gradients together is above max_norm, let the next step scale them down to it
    The gradients themselves stay as they are: ignis_optimizer_step multiplies them as it reads them. Nothing is copied to the host;
    ignis_optimizer_query returns the norm. The sum is computed in a fixed order.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (max_norm is not above 0, no parameters), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer optimizer, double max_norm);

/*  ignis_optimizer_set_lr - set the learning rate from the next step on, which the schedule scales
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (negative), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer optimizer, double lr);

/*  ignis_optimizer_query - step count, learning rate and gradient norm of an optimizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, CUDA.
    Ownership: *info is a copy.
    Threads: any. Streams: queued on the current stream of the optimizer's device, and waits for it. */
IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer optimizer, ignis_optimizer_info *info);

/*  ignis_optimizer_state - the array of a part of an optimizer's state, for saving it and, by ignis_array_copy, for restoring it
    parameter counts in the order of ignis_optimizer_add; IGNIS_OPTIMIZER_SELF ignores it. Training continues bit for bit as without the
    interruption when all parts and parameters are restored.
    Returns: the array, or no handle; a part that this optimizer or parameter does without is no failure.
    Errors: FREED, ARGUMENT (no such part or parameter).
    Ownership: the optimizer's.
    Threads: any. */
IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer optimizer, int parameter, ignis_optimizer_part part);

/*  ignis_optimizer_free - free an optimizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards; the parameters stay.
    Threads: any. */
IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer optimizer);

/* >>graph ------------------------------------------------------------------------------------------------------- */

/*  Work that was captured once and is replayed with one call. */
typedef struct ignis_graph {
    uint64_t id;
} ignis_graph;

/*  ignis_graph_begin - from here on, what the calling thread queues on its current stream is captured instead of run
    Work of other threads is not captured: it goes to their own streams. Run the same work once before: kernels are compiled, plans made
    and optimizer tables filled then. While it captures, calls that would have to wait or to read host memory (to_host, item, from_host,
    synchronize, freeing a kernel, a graph or pinned memory, adding to an optimizer) fail with IGNIS_ERROR_UNSUPPORTED and leave the capture
    as it is; so does ignis_graph_launch. Memory taken during the capture stays with the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (this thread captures already), DEVICE, CUDA.
    Ownership: nothing to free; end it with ignis_graph_end.
    Threads: any; each captures for itself. Waits for the device first, and for threads that wait for it. */
IGNIS_API ignis_status ignis_graph_begin(void);

/*  ignis_graph_end - end the capture, and make the graph
    Returns: the graph, or no handle; the capture is over either way.
    Errors: ARGUMENT (nothing is captured), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_graph_free. Arrays and kernels that the captured work uses are kept alive by the graph; results keep
    their handles, and each launch writes into them anew.
    Threads: the one that began. */
IGNIS_API ignis_graph ignis_graph_end(void);

/*  ignis_graph_launch - replay the captured work
    Random numbers (ignis_dropout, ignis_tensor_rand, ignis_tensor_randn) are new at each launch, and within one the same for an operation and
    its gradient. They follow from the seed and the calls before, as of the capture, and from the count of launches, which begins at 1.
    CUDA puts no graph into another one: while the current stream is captured, the launch is refused and the capture goes on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DEVICE (another device is current), UNSUPPORTED (the current stream is captured), CUDA.
    Ownership: unchanged.
    Threads: any; launches of one graph must not overlap on different streams. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_graph_launch(ignis_graph graph);

/*  ignis_graph_free - free a graph, and the memory that only it used
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures).
    Ownership: the handle is stale afterwards; results stay valid.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_graph_free(ignis_graph graph);

/* >>file -------------------------------------------------------------------------------------------------------- */

typedef struct ignis_storage_entry {
    char name[256];    /* cut, at a whole character, to 255 bytes */
    ignis_dtype dtype; /* IGNIS_DTYPE_DEFAULT: one that Ignis does not have, such as BOOL; ignis_load refuses that tensor */
    ignis_shape shape; /* [1] for a tensor without dimensions */
    int64_t bytes;
} ignis_storage_entry;

/*  ignis_save - write tensors and their names to a safetensors file
    Names are UTF-8, different from each other and not "__metadata__"; one tensor may have several. The file is identical to what the
    Python package safetensors writes for the same tensors. It is written beside path, flushed to the disk and renamed, so path holds
    the old file or the new one, whatever happens; on a failure it holds the old one.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null, a count below 0, a bad name, a tensor that was never written to), FREED, CONTRACT (an array is owned by another
    layer or being saved or loaded by another thread), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: while it works IGNIS_OWNER_WNAIS owns the tensors' arrays. names and tensors may be reused when the call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count);

/*  ignis_load - read tensors from a safetensors file by their names; what else is in the file does not matter
    Where tensors[i].id is 0 a new tensor that requires no gradient is made on the current device; else the values go into that
    tensor, whose shape and dtype must be those of the file. A tensor without dimensions counts as [1]. The whole header is checked, and
    every name found, before the first tensor is touched.
    Returns: IGNIS_OK, or the reason; then no tensor was made, and those given are as they were unless it is MEMORY, CUDA or IO (another process
    has shortened the file meanwhile, say).
    Errors: ARGUMENT (null, a count below 0, a name that is not in the file), FORMAT (the file is damaged, truncated or not safetensors),
    SHAPE, DTYPE (the tensor given is another than the file's), UNSUPPORTED (a dtype that Ignis does not have, or this thread captures a graph),
    FREED, CONTRACT (an array is owned by another layer or being saved or loaded by another thread), MEMORY, IO, CUDA.
    Ownership: new tensors as ignis_tensor_from_host. While it works IGNIS_OWNER_WNAIS owns the tensors' arrays.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count);

/*  ignis_storage_list - the tensors in a safetensors file, in the order of their data
    entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FORMAT (the file is damaged, truncated or not safetensors), MEMORY, IO.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_storage_list(const char *path, ignis_storage_entry *entries, int capacity);

#endif /* IGNIS_NO_TENSORS */

#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_array_create({...}). Static, so that each file's call the functions of that file with
    IGNIS_STATIC. */
static inline ignis_status ignis_setup(const ignis_desc &desc) { return ignis_setup(&desc); }
static inline void *ignis_stream_create(const ignis_stream_desc &desc) { return ignis_stream_create(&desc); }
static inline ignis_array ignis_array_create(const ignis_array_desc &desc) { return ignis_array_create(&desc); }
static inline ignis_kernel ignis_kernel_compile(const ignis_kernel_desc &desc) { return ignis_kernel_compile(&desc); }
static inline ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc &desc)
{
    return ignis_kernel_reload(kernel, &desc);
}
static inline ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch &launch, const ignis_arg *args, int arg_count)
{
    return ignis_kernel_launch(kernel, &launch, args, arg_count);
}

#ifndef IGNIS_NO_TENSORS
static inline ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc &desc)
{
    return ignis_tensor_from_host(data, shape, &desc);
}
static inline ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_zeros(shape, &desc); }
static inline ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_ones(shape, &desc); }
static inline ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_rand(shape, &desc); }
static inline ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc &desc) { return ignis_tensor_randn(shape, &desc); }
static inline double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                     const ignis_gradcheck_desc &desc)
{
    return ignis_gradcheck(fn, user_data, inputs, count, &desc);
}
static inline ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc &desc)
{
    return ignis_sdpa(q, k, v, &desc);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc *rope)
{
    return ignis_sdpa_packed(qkv, &desc, rope);
}
static inline ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc &desc, const ignis_rope_desc &rope)
{
    return ignis_sdpa_packed(qkv, &desc, &rope);
}
static inline ignis_tensor ignis_rope(ignis_tensor x, const ignis_rope_desc &desc) { return ignis_rope(x, &desc); }
static inline ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets, const ignis_cross_entropy_desc &desc)
{
    return ignis_cross_entropy(logits, targets, &desc);
}
static inline ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                      const ignis_cross_entropy_desc &desc)
{
    return ignis_linear_cross_entropy(hidden, weight, targets, &desc);
}
static inline ignis_optimizer ignis_adamw(const ignis_adamw_desc &desc) { return ignis_adamw(&desc); }
static inline ignis_optimizer ignis_sgd(const ignis_sgd_desc &desc) { return ignis_sgd(&desc); }
#endif

template <typename... ignis__dims> static inline ignis_shape ignis__make_shape(ignis__dims... dims)
{
    static_assert(sizeof...(dims) >= 1 && sizeof...(dims) <= IGNIS_MAX_DIMS, "a shape has 1 to IGNIS_MAX_DIMS dimensions");
    return ignis_shape{int(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}

#define IGNIS_SHAPE(...) ignis__make_shape(__VA_ARGS__)
#define IGNIS_NO_ARRAY (ignis_array{0})
#else
#define IGNIS_SHAPE(...) ((ignis_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IGNIS_NO_ARRAY ((ignis_array){0})
#endif

#endif /* IGNIS_INCLUDED */

/* ===============================================================================================================
   Implementation. Layers, bottom first; a section uses only what stands above it.
   =============================================================================================================== */
#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_IMPLEMENTED
#define IGNIS_IMPLEMENTED

/* ===============================================================================================================
   >>platform - threads, atomics, clock, libraries, files, host memory. The only place that knows the system.
   =============================================================================================================== */

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__GLIBC__) ? !defined(__USE_XOPEN2K8) : defined(IGNIS__TOO_LATE)
#error "ignis.h: with -std=c99 or c11, put #define _POSIX_C_SOURCE 200809L above the first #include of this file"
#endif
#endif

#if UINTPTR_MAX != 0xFFFFFFFFFFFFFFFF
#error "ignis.h needs a 64-bit system, as CUDA does"
#endif

#ifndef IGNIS_ASSERT
#include <assert.h>
#define IGNIS_ASSERT(condition) assert(condition)
#endif

/* clang-format off */
#ifdef __cplusplus
#define IGNIS__ZERO {}
#else
#define IGNIS__ZERO {0}
#endif
/* clang-format on */

#if defined(__MINGW_PRINTF_FORMAT)
#define IGNIS__PRINTF(at, first) __attribute__((format(__MINGW_PRINTF_FORMAT, at, first)))
#elif defined(__GNUC__)
#define IGNIS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define IGNIS__PRINTF(at, first)
#endif

/*  On what only the tensor layer uses, for IGNIS_NO_TENSORS. */
#ifdef __GNUC__
#define IGNIS__MAYBE_UNUSED __attribute__((unused))
#else
#define IGNIS__MAYBE_UNUSED
#endif

/*  What keeps compiling short. IGNIS__COLD: on functions that run when something has failed, once, or before files and compilers: made small,
    and out of the way of the others. IGNIS__ONE_COPY: on helpers with many callers; inlined, they are a sixth of all code. */
#if defined(__GNUC__)
#define IGNIS__COLD __attribute__((cold, noinline))
#define IGNIS__ONE_COPY __attribute__((noinline))
#elif defined(_MSC_VER)
#define IGNIS__COLD __declspec(noinline)
#define IGNIS__ONE_COPY __declspec(noinline)
#else
#define IGNIS__COLD
#define IGNIS__ONE_COPY
#endif

#define IGNIS__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/*  Atomics: acquire on load, release on store, both on read-modify-write. */
#if defined(__GNUC__)
#define IGNIS__TLS __thread
static uint64_t ignis__atomic_load(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static void ignis__atomic_store(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value) { return __atomic_add_fetch(at, value, __ATOMIC_ACQ_REL); }
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static int ignis__log2(uint64_t value) { return 63 - __builtin_clzll(value); }
static int ignis__lowest_bit(uint64_t value) { return __builtin_ctzll(value); }
#else
#include <intrin.h>
#define IGNIS__TLS __declspec(thread)
static uint64_t ignis__atomic_load(const uint64_t *at) { return (uint64_t)_InterlockedOr64((volatile __int64 *)at, 0); }
static void ignis__atomic_store(uint64_t *at, uint64_t value) { _InterlockedExchange64((volatile __int64 *)at, (__int64)value); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value)
{
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)at, (__int64)value) + value;
}
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    uint64_t was = (uint64_t)_InterlockedCompareExchange64((volatile __int64 *)at, (__int64)value, (__int64)*expected);
    bool swapped = was == *expected;
    *expected = was;
    return swapped;
}
static int ignis__log2(uint64_t value)
{
    unsigned long bit;
    _BitScanReverse64(&bit, value);
    return (int)bit;
}
static int ignis__lowest_bit(uint64_t value)
{
    unsigned long bit;
    _BitScanForward64(&bit, value);
    return (int)bit;
}
#endif

#ifdef _WIN32

typedef SRWLOCK ignis__mutex;
#define IGNIS__MUTEX_INIT SRWLOCK_INIT
static void ignis__mutex_init(ignis__mutex *mutex) { InitializeSRWLock(mutex); }
static void ignis__mutex_lock(ignis__mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static void ignis__mutex_unlock(ignis__mutex *mutex) { ReleaseSRWLockExclusive(mutex); }

/*  What a thread that holds a mutex waits for: it gives the mutex back meanwhile, until another thread wakes all who wait. */
typedef CONDITION_VARIABLE ignis__condition;
#define IGNIS__CONDITION_INIT CONDITION_VARIABLE_INIT
IGNIS__MAYBE_UNUSED static void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}
IGNIS__MAYBE_UNUSED static void ignis__condition_wake(ignis__condition *condition) { WakeAllConditionVariable(condition); }

typedef SRWLOCK ignis__rwlock;
static void ignis__rwlock_init(ignis__rwlock *lock) { InitializeSRWLock(lock); }
static void ignis__rwlock_read(ignis__rwlock *lock) { AcquireSRWLockShared(lock); }
static void ignis__rwlock_read_end(ignis__rwlock *lock) { ReleaseSRWLockShared(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write(ignis__rwlock *lock) { AcquireSRWLockExclusive(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write_end(ignis__rwlock *lock) { ReleaseSRWLockExclusive(lock); }

typedef HANDLE ignis__thread_handle;
#define IGNIS__THREAD_RESULT DWORD WINAPI
static bool ignis__thread_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    *thread = CreateThread(NULL, 0, run, context, 0, NULL);
    return *thread != NULL;
}
static void ignis__thread_join(ignis__thread_handle thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
IGNIS__MAYBE_UNUSED static void ignis__thread_detach(ignis__thread_handle thread) { CloseHandle(thread); }
static int ignis__core_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}

/*  Calls release(value) when the calling thread ends. */
static DWORD ignis__thread_exit_slot = FLS_OUT_OF_INDEXES;
static void ignis__at_thread_exit(void(WINAPI *release)(void *), void *value)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    ignis__mutex_lock(&lock);
    if (ignis__thread_exit_slot == FLS_OUT_OF_INDEXES)
        ignis__thread_exit_slot = FlsAlloc(release);
    ignis__mutex_unlock(&lock);
    FlsSetValue(ignis__thread_exit_slot, value);
}
#define IGNIS__THREAD_EXIT_FN void WINAPI

static void ignis__at_fork(void (*in_child)(void)) { (void)in_child; }

static int64_t ignis__wall_ns(void)
{
    FILETIME time; /* 100 ns ticks since 1601 */
    GetSystemTimeAsFileTime(&time);
    return ((int64_t)(((uint64_t)time.dwHighDateTime << 32) | time.dwLowDateTime) - 116444736000000000) * 100;
}
static int64_t ignis__monotonic_ns(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return count.QuadPart / frequency.QuadPart * 1000000000 + count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    HMODULE module = LoadLibraryA(path);
    if (!module)
        snprintf(why, why_size, "LoadLibrary error %lu", GetLastError());
    return (void *)module;
}
static void *ignis__library_symbol(void *library, const char *name)
{
    void *symbol = NULL;
    FARPROC function = GetProcAddress((HMODULE)library, name);
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    char pattern[1024];
    WIN32_FIND_DATAA entry;
    HANDLE find;
    snprintf(pattern, sizeof pattern, "%s\\*", path);
    find = FindFirstFileA(pattern, &entry);
    if (find == INVALID_HANDLE_VALUE)
        return false;
    do
        visit(context, entry.cFileName);
    while (FindNextFileA(find, &entry));
    FindClose(find);
    return true;
}
static bool ignis__folder_make(const char *path) { return CreateDirectoryA(path, NULL) || GetLastError() == ERROR_ALREADY_EXISTS; }
static bool ignis__file_rename(const char *from, const char *to) { return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) != 0; }
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExA(path, GetFileExInfoStandard, &data) || (data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
        return false;
    *size = (int64_t)(((uint64_t)data.nFileSizeHigh << 32) | data.nFileSizeLow);
    *time = (int64_t)(((uint64_t)data.ftLastWriteTime.dwHighDateTime << 32) | data.ftLastWriteTime.dwLowDateTime);
    return true;
}
static void ignis__file_touch(const char *path)
{
    HANDLE file =
        CreateFileA(path, FILE_WRITE_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
    FILETIME now;
    if (file == INVALID_HANDLE_VALUE)
        return;
    GetSystemTimeAsFileTime(&now);
    SetFileTime(file, NULL, NULL, &now);
    CloseHandle(file);
}
static unsigned long ignis__process_id(void) { return GetCurrentProcessId(); }

#else /* POSIX */

typedef pthread_mutex_t ignis__mutex;
#define IGNIS__MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
static void ignis__mutex_init(ignis__mutex *mutex)
{
    static const ignis__mutex unlocked = IGNIS__MUTEX_INIT;
    memcpy(mutex, &unlocked, sizeof *mutex); /* as a variable of this type begins: each array's memory has one, and the call takes longer */
}
static void ignis__mutex_lock(ignis__mutex *mutex) { pthread_mutex_lock(mutex); }
static void ignis__mutex_unlock(ignis__mutex *mutex) { pthread_mutex_unlock(mutex); }

typedef pthread_cond_t ignis__condition;
#define IGNIS__CONDITION_INIT PTHREAD_COND_INITIALIZER
IGNIS__MAYBE_UNUSED static void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    pthread_cond_wait(condition, mutex);
}
IGNIS__MAYBE_UNUSED static void ignis__condition_wake(ignis__condition *condition) { pthread_cond_broadcast(condition); }

typedef pthread_rwlock_t ignis__rwlock;
static void ignis__rwlock_init(ignis__rwlock *lock) { pthread_rwlock_init(lock, NULL); }
static void ignis__rwlock_read(ignis__rwlock *lock) { pthread_rwlock_rdlock(lock); }
static void ignis__rwlock_read_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write(ignis__rwlock *lock) { pthread_rwlock_wrlock(lock); }
IGNIS__MAYBE_UNUSED static void ignis__rwlock_write_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }

typedef pthread_t ignis__thread_handle;
#define IGNIS__THREAD_RESULT void *
static bool ignis__thread_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    return pthread_create(thread, NULL, run, context) == 0;
}
static void ignis__thread_join(ignis__thread_handle thread) { pthread_join(thread, NULL); }
IGNIS__MAYBE_UNUSED static void ignis__thread_detach(ignis__thread_handle thread) { pthread_detach(thread); }
static int ignis__core_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

/*  Calls release(value) when the calling thread ends. */
static pthread_key_t ignis__thread_exit_key;
static void ignis__at_thread_exit(void (*release)(void *), void *value)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static bool made;
    ignis__mutex_lock(&lock);
    if (!made)
        made = pthread_key_create(&ignis__thread_exit_key, release) == 0;
    ignis__mutex_unlock(&lock);
    if (made)
        pthread_setspecific(ignis__thread_exit_key, value);
}
#define IGNIS__THREAD_EXIT_FN void

static void ignis__at_fork(void (*in_child)(void)) { pthread_atfork(NULL, NULL, in_child); }

static int64_t ignis__clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#ifdef CLOCK_REALTIME_COARSE /* as of the last tick, which is enough for the age of an array, and read four times as fast */
static int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME_COARSE); }
#else
static int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME); }
#endif
static int64_t ignis__monotonic_ns(void) { return ignis__clock_ns(CLOCK_MONOTONIC); }

static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, why_size, "%s", dlerror());
    return library;
}
static void *ignis__library_symbol(void *library, const char *name) { return dlsym(library, name); }

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
IGNIS__COLD static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return false;
    while ((entry = readdir(folder)) != NULL)
        visit(context, entry->d_name);
    closedir(folder);
    return true;
}
static bool ignis__folder_make(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }
static bool ignis__file_rename(const char *from, const char *to) { return rename(from, to) == 0; }
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    struct stat info;
    struct timespec changed;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    *size = (int64_t)info.st_size;
#ifdef __APPLE__
    changed = info.st_mtimespec;
#else
    changed = info.st_mtim;
#endif
    *time = (int64_t)changed.tv_sec * 1000000000 + changed.tv_nsec;
    return true;
}
static void ignis__file_touch(const char *path) { (void)utimensat(AT_FDCWD, path, NULL, 0); }
static unsigned long ignis__process_id(void) { return (unsigned long)getpid(); }

#endif

/*  Runs work(context, 0) to work(context, count - 1) on up to as many threads as there are cores, and waits. */
typedef struct ignis__parallel_job {
    void (*work)(void *context, int index);
    void *context;
    uint64_t next;
    uint64_t count;
} ignis__parallel_job;

static IGNIS__THREAD_RESULT ignis__parallel_run(void *pointer)
{
    ignis__parallel_job *job = (ignis__parallel_job *)pointer;
    for (;;) {
        uint64_t index = ignis__atomic_add(&job->next, 1) - 1;
        if (index >= job->count)
            return 0;
        job->work(job->context, (int)index);
    }
}

static void ignis__parallel(int count, void (*work)(void *context, int index), void *context)
{
    ignis__parallel_job job = IGNIS__ZERO;
    ignis__thread_handle threads[32];
    int started = 0, wanted = ignis__core_count();
    job.work = work;
    job.context = context;
    job.count = (uint64_t)count;
    if (wanted > IGNIS__COUNT(threads))
        wanted = IGNIS__COUNT(threads);
    if (wanted > count)
        wanted = count;
    while (started < wanted - 1 && ignis__thread_start(&threads[started], ignis__parallel_run, &job))
        started++;
    ignis__parallel_run(&job);
    while (started > 0)
        ignis__thread_join(threads[--started]);
}

/*  Host memory. Zeroed, as every struct of Ignis starts from zero. */
static ignis_allocator ignis__allocator;

static void *ignis__alloc(size_t size)
{
    void *memory = ignis__allocator.alloc_fn ? ignis__allocator.alloc_fn(size, ignis__allocator.user_data) : malloc(size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

IGNIS__ONE_COPY static void ignis__free(void *memory)
{
    if (!memory)
        return;
    if (ignis__allocator.free_fn)
        ignis__allocator.free_fn(memory, ignis__allocator.user_data);
    else
        free(memory);
}

static char *ignis__copy_string(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = (char *)ignis__alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

/*  Text that grows at its end inside a fixed buffer; what does not fit is cut, and the text always ended. */
typedef struct ignis__text {
    char *data;
    size_t capacity, length; /* length counts what would have been written, as snprintf does */
} ignis__text;

IGNIS__ONE_COPY static void ignis__text_begin(ignis__text *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = capacity;
    text->length = 0;
    if (capacity)
        data[0] = 0;
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD static void ignis__text_addv(ignis__text *text, const char *format, va_list args)
{
    size_t used = text->length < text->capacity ? text->length : text->capacity;
    int added = vsnprintf(used < text->capacity ? text->data + used : NULL, text->capacity - used, format, args);
    if (added > 0)
        text->length += (size_t)added;
}

IGNIS__PRINTF(2, 3)
IGNIS__COLD static void ignis__text_add(ignis__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__text_addv(text, format, args);
    va_end(args);
}

/*  Reads a whole regular file into memory of ignis__alloc; null when it cannot be read. */
IGNIS__COLD static void *ignis__file_read(const char *path, size_t *size)
{
    int64_t length, time;
    void *data;
    FILE *file;
    if (!ignis__file_info(path, &length, &time) || (file = fopen(path, "rb")) == NULL)
        return NULL;
    *size = (size_t)length;
    data = ignis__alloc(*size + 1);
    if (data && fread(data, 1, *size, file) != *size) {
        ignis__free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/*  Makes a folder and those above it. */
IGNIS__COLD static bool ignis__folder_make_all(const char *path)
{
    char part[1024];
    size_t i, length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    for (i = 1; i < length; i++) {
        if (path[i] != '/' && path[i] != '\\')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        (void)ignis__folder_make(part); /* may exist, or be a drive; the last one tells */
    }
    return ignis__folder_make(path);
}

/*  Files of tensors: read in parts, flushed and renamed when written. */
#ifdef _WIN32

#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>

IGNIS__MAYBE_UNUSED static void ignis__system_error(char *out, size_t size) { snprintf(out, size, "Windows error %lu", GetLastError()); }

/*  A file to read from, and its size; -1: it cannot be opened, or is no regular file. close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED static int ignis__file_open(const char *path, int64_t *size)
{
    HANDLE file = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                              FILE_ATTRIBUTE_NORMAL, NULL);
    LARGE_INTEGER length;
    int descriptor = -1;
    if (file == INVALID_HANDLE_VALUE)
        return -1;
    if (GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &length))
        descriptor = _open_osfhandle((intptr_t)file, _O_RDONLY);
    if (descriptor < 0)
        CloseHandle(file);
    else
        *size = (int64_t)length.QuadPart;
    return descriptor;
}
/*  Reads a part of it. Returns the bytes that there were, fewer than `size` at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED static int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    int got = 1;
    if (_lseeki64(file, at, SEEK_SET) < 0)
        return -1;
    for (; got > 0 && done < size; done += got)
        if ((got = _read(file, (char *)out + done, (unsigned)(size - done < 1 << 30 ? size - done : 1 << 30))) < 0)
            return -1;
    return done;
}
IGNIS__MAYBE_UNUSED static void ignis__file_close(int file) { (void)_close(file); }

/*  A new file to write to; null when there is one of that name already, too. */
IGNIS__MAYBE_UNUSED static FILE *ignis__file_create(const char *path)
{
    int descriptor = _open(path, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    FILE *file = descriptor < 0 ? NULL : _fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        _close(descriptor);
    return file;
}
/*  Writes to the disk what was written to the file. */
IGNIS__MAYBE_UNUSED static bool ignis__file_flush(FILE *file) { return fflush(file) == 0 && _commit(_fileno(file)) == 0; }
/*  The same for the name of a file that was renamed, where the system can do it. */
IGNIS__MAYBE_UNUSED static void ignis__folder_flush(const char *path_of_file) { (void)path_of_file; }
/*  Whether there is something at a path that is no regular file, so must not be replaced by one. */
IGNIS__MAYBE_UNUSED static bool ignis__path_is_special(const char *path)
{
    DWORD attributes = GetFileAttributesA(path);
    return attributes != INVALID_FILE_ATTRIBUTES && (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE)) != 0;
}

#else /* POSIX */

IGNIS__MAYBE_UNUSED static void ignis__system_error(char *out, size_t size) { snprintf(out, size, "%s", strerror(errno)); }

/*  A file to read from, and its size; -1: it cannot be opened, or is no regular file. close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED static int ignis__file_open(const char *path, int64_t *size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    struct stat info;
    int error = 0;
    if (file < 0)
        return -1;
    if (fstat(file, &info) != 0)
        error = errno;
    else if (!S_ISREG(info.st_mode))
        error = EINVAL;
    else
        *size = (int64_t)info.st_size;
    if (error)
        close(file), file = -1;
    errno = error;
    return file;
}
/*  Reads a part of it. Returns the bytes that there were, fewer than `size` at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED static int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    ssize_t got = 1;
    while (got > 0 && done < size) {
        got = pread(file, (char *)out + done, (size_t)(size - done), (off_t)(at + done));
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? got : 0;
        got = got < 0 ? 1 : got; /* interrupted: once more */
    }
    return done;
}
IGNIS__MAYBE_UNUSED static void ignis__file_close(int file) { close(file); }

/*  A new file to write to; null when there is one of that name already, too. */
IGNIS__MAYBE_UNUSED static FILE *ignis__file_create(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        close(descriptor);
    return file;
}
/*  Writes to the disk what was written to the file. */
IGNIS__MAYBE_UNUSED static bool ignis__file_flush(FILE *file) { return fflush(file) == 0 && fsync(fileno(file)) == 0; }
/*  The same for the name of a file that was renamed, where the system can do it. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void ignis__folder_flush(const char *path_of_file)
{
    const char *slash = strrchr(path_of_file, '/');
    size_t length = slash == path_of_file ? 1 : slash ? (size_t)(slash - path_of_file) : 1;
    char folder[1024];
    int descriptor;
    if (length >= sizeof folder)
        return;
    memcpy(folder, slash ? path_of_file : ".", length);
    folder[length] = 0;
    descriptor = open(folder, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}
/*  Whether there is something at a path that is no regular file, so must not be replaced by one. */
IGNIS__MAYBE_UNUSED static bool ignis__path_is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

#endif

/*  A name for a file that is to become `path` by renaming: in the same folder, and no other thread's or process's. */
IGNIS__MAYBE_UNUSED static char *ignis__file_part_path(const char *path)
{
    static uint64_t serial;
    size_t size = strlen(path) + 64;
    char *part = (char *)ignis__alloc(size);
    if (part)
        snprintf(part, size, "%s.%lu-%llu.ignis-part", path, ignis__process_id(), (unsigned long long)ignis__atomic_add(&serial, 1));
    return part;
}

/*  A 64-bit FNV-1a hash (Fowler, Noll, Vo), continued from `hash`. */
#define IGNIS__HASH_START 0xCBF29CE484222325u
static uint64_t ignis__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    while (size--)
        hash = (hash ^ *byte++) * 0x100000001B3u;
    return hash;
}

/* ===============================================================================================================
   >>status - the error record of each thread, the logger, names of statuses and diagnostics.
   =============================================================================================================== */

/*  Every call of a driver library passes through here, so tests can count calls and make the n-th one fail. */
#ifndef IGNIS_CALL_HOOK
#define IGNIS_CALL_HOOK(name, call) (call)
#endif

/*  One failure. */
typedef struct ignis__record {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;
    int driver_error;
    const char *driver_name;
    char *message;   /* from malloc, as it may outlive ignis_shutdown; null: there was no memory for it */
    const char *log; /* the end of message */
    char text[256];  /* the beginning of the message */
} ignis__record;

/*  A call that runs functions of the caller: messages of what fails in them name it, too. */
typedef struct ignis__outer_call {
    const char *call;
    const char *rule; /* the rule whose backward function runs; null: none does */
    const struct ignis__outer_call *outer;
} ignis__outer_call;

/*  What a thread keeps. The device section uses the last part. */
typedef struct ignis__thread {
    ignis__record record;            /* the first failure */
    ignis_status latest;             /* of the last one, recorded or not */
    char *latest_message;            /* from malloc; null: there was none, or no memory for it */
    const ignis__outer_call *inside; /* the innermost one */
    bool quiet;                      /* failures are answers to what was tried, and not reported */
    bool called_back;                /* it runs a function given to ignis_stream_call */

    void *attached[2]; /* arrays of the tensor section, from malloc */
    uint64_t tape;     /* the number of its tape; 0: none */
    void (*tensors_end)(void);
    struct ignis__capture *capture; /* what ignis_graph_begin has begun */

    uint64_t setup; /* the setup that the rest belongs to: an older one is forgotten */
    int device;
    uint64_t forgets; /* ignis_stream_forget calls seen */
    void *stream[IGNIS_MAX_DEVICES];
    uint64_t stream_serial[IGNIS_MAX_DEVICES];
} ignis__thread;

static IGNIS__TLS ignis__thread ignis__this_thread;

static struct {
    uint64_t ready;  /* between ignis_setup and ignis_shutdown */
    uint64_t forked; /* this process is a child of the one that called ignis_setup */
    uint64_t setups; /* how many there were */
    bool verbose;
    ignis_logger logger;
} ignis__global;

IGNIS__COLD static void ignis__log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message)
{
    static const char *const names[] = {"", "info", "warning", "error"};
    if (level == IGNIS_LOG_INFO && !ignis__global.verbose)
        return;
    if (ignis__global.logger.log_fn)
        ignis__global.logger.log_fn(level, diagnostic, message, ignis__global.logger.user_data);
    else
        fprintf(stderr, "ignis: %s: %s\n", names[level], message);
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static void ignis__note(ignis_log_level level, ignis_diagnostic diagnostic, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ignis__log(level, diagnostic, message);
}

/* clang-format off */
static const struct {
    const char *name;
    ignis_status status;
    const char *rule;
} ignis__diagnostics[] = {
    {"NONE", IGNIS_OK, ""},
#define IGNIS__DIAGNOSTIC_ROW(name, status, rule) {#name, IGNIS_ERROR_##status, rule},
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ROW)
#undef IGNIS__DIAGNOSTIC_ROW
};
/* clang-format on */

static const char *ignis__record_text(const ignis__record *record) { return record->message ? record->message : record->text; }

static void ignis__record_drop(ignis__thread *thread)
{
    free(thread->record.message);
    memset(&thread->record, 0, sizeof thread->record);
}

IGNIS__COLD static IGNIS__THREAD_EXIT_FN ignis__thread_exit(void *pointer)
{
    ignis__thread *thread = (ignis__thread *)pointer;
    ignis__record_drop(thread);
    free(thread->latest_message);
    thread->latest_message = NULL;
    free(thread->attached[0]);
    free(thread->attached[1]);
    thread->attached[0] = thread->attached[1] = NULL; /* other destructors of the thread may use Ignis, and bring this here once more */
    if (thread->tensors_end && !ignis__atomic_load(&ignis__global.forked))
        thread->tensors_end();
}

/*  Keeps a copy of a failure's message as the latest. */
IGNIS__COLD static void ignis__latest_keep(ignis__thread *thread, const char *message)
{
    size_t size = strlen(message) + 1;
    free(thread->latest_message);
    thread->latest_message = (char *)malloc(size);
    if (thread->latest_message)
        memcpy(thread->latest_message, message, size);
}

/*  Makes a record this thread's first failure, if it has none, or frees it: the first failure is the one worth knowing. */
static ignis_status ignis__record_adopt(const ignis__record *record)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis_status status = record->status;
    thread->latest = status;
    ignis__at_thread_exit(ignis__thread_exit, thread);
    if (!thread->quiet)
        ignis__latest_keep(thread, ignis__record_text(record));
    if (thread->record.status == IGNIS_OK)
        thread->record = *record;
    else
        free(record->message);
    return status;
}

/*  Makes a failure of another thread, where it was reported already, one of this thread, too. */
IGNIS__MAYBE_UNUSED IGNIS__COLD static ignis_status ignis__record_repeat(const ignis__record *record)
{
    ignis__record copy = *record;
    size_t size = record->message ? strlen(record->message) + 1 : 0;
    copy.log = "";
    copy.message = size ? (char *)malloc(size) : NULL;
    if (copy.message) {
        memcpy(copy.message, record->message, size);
        copy.log = copy.message + (record->log - record->message);
    }
    return ignis__record_adopt(&copy);
}

/*  Between the two, failures of this thread are not reported: what was tried may fail. The first of them is *failure, whose message
    goes to `why` without the call. */
IGNIS__MAYBE_UNUSED static ignis__record ignis__quiet_begin(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    memset(&thread->record, 0, sizeof thread->record);
    thread->quiet = true;
    return before;
}

IGNIS__MAYBE_UNUSED static void ignis__quiet_end(const ignis__record *before, ignis__record *failure, char *why, size_t why_size)
{
    ignis__thread *thread = &ignis__this_thread;
    const char *colon;
    *failure = thread->record;
    colon = strstr(ignis__record_text(failure), ": ");
    snprintf(why, why_size, "%s", colon ? colon + 2 : ignis__record_text(failure));
    failure->message = NULL;
    failure->log = NULL;
    ignis__record_drop(thread);
    thread->record = *before;
    thread->quiet = false;
}

IGNIS__MAYBE_UNUSED static void ignis__outer_call_begin(ignis__outer_call *outer, const char *call, const char *rule)
{
    outer->call = call;
    outer->rule = rule;
    outer->outer = ignis__this_thread.inside;
    ignis__this_thread.inside = outer;
}

IGNIS__MAYBE_UNUSED static void ignis__outer_call_end(const ignis__outer_call *outer) { ignis__this_thread.inside = outer->outer; }

/*  Names the calls inside which a call has failed, the innermost first. */
static void ignis__text_add_outer_calls(ignis__text *text, const ignis__outer_call *outer, const char *call)
{
    const char *before = " (inside ";
    for (; outer; outer = outer->outer) {
        if (outer->rule)
            ignis__text_add(text, "%sthe backward of '%s', %s", before, outer->rule, outer->call);
        else if (outer->call != call) /* which was named just before */
            ignis__text_add(text, "%s%s", before, outer->call);
        else
            continue;
        before = ", ";
        call = outer->call;
    }
    if (*before == ',')
        ignis__text_add(text, ")");
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD static ignis_status ignis__failv(ignis__record cause, const char *format, va_list args)
{
    const char *log = cause.log ? cause.log : "";
    ignis__text text;
    int round;

    cause.status = ignis__diagnostics[cause.diagnostic].status;
    ignis__text_begin(&text, cause.text, sizeof cause.text);
    for (round = 0; round < 2; round++) { /* the first round measures */
        va_list again;
        va_copy(again, args);
        ignis__text_add(&text, "%s: ", cause.call);
        ignis__text_addv(&text, format, again);
        ignis__text_add_outer_calls(&text, ignis__this_thread.inside, cause.call);
        ignis__text_add(&text, "%s%s", *log ? "\n" : "", log);
        va_end(again);
        if (round == 1 || (cause.message = (char *)malloc(text.length + 1)) == NULL)
            break;
        ignis__text_begin(&text, cause.message, text.length + 1);
    }
    cause.log = cause.message ? cause.message + text.length - strlen(log) : "";
    if (!cause.driver_name)
        cause.driver_name = "";
    if (!ignis__this_thread.quiet)
        ignis__log(IGNIS_LOG_ERROR, cause.diagnostic, ignis__record_text(&cause));
    return ignis__record_adopt(&cause);
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

IGNIS__PRINTF(6, 7)
IGNIS__COLD static ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error, const char *name,
                                                    const char *log, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_error = error;
    cause.driver_name = name;
    cause.log = log;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

IGNIS__COLD static ignis_status ignis__fail_host_memory(const char *call, size_t size)
{
    return ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "out of host memory: %lld bytes were asked for", (long long)size);
}

IGNIS__COLD static ignis_status ignis__fail_null(const char *call, const char *argument)
{
    return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "%s is null", argument);
}

/*  The status of the failure that was just reported, for the caller of what reported it. */
IGNIS__ONE_COPY static ignis_status ignis__failed(void) { return ignis__this_thread.latest; }

/*  The check that stands first in every public function. */
static bool ignis__enter(const char *call)
{
    if (ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked) && !ignis__this_thread.called_back)
        return true;
    if (ignis__this_thread.called_back)
        ignis__fail(IGNIS_DIAG_INSIDE_CALLBACK, call,
                    "this is inside a function given to ignis_stream_call, on a thread of the driver, where nothing of Ignis or CUDA can "
                    "be called");
    else if (ignis__atomic_load(&ignis__global.forked))
        ignis__fail(IGNIS_DIAG_FORKED, call,
                    "this process was forked after ignis_setup, and CUDA does not work across fork; exec a new program instead");
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(IGNIS_DIAG_NOT_SETUP, call, "ignis_setup has not been called, or ignis_shutdown has");
    else /* most likely ignis_setup has failed and said why: one message is enough for all calls after it */
        ignis__this_thread.latest = IGNIS_ERROR_NOT_SETUP;
    return false;
}

IGNIS_API ignis_status ignis_status_last(void) { return ignis__this_thread.record.status; }

IGNIS_API const char *ignis_status_message(void) { return ignis__record_text(&ignis__this_thread.record); }

IGNIS_API const char *ignis_status_latest_message(void)
{
    const ignis__thread *thread = &ignis__this_thread;
    return thread->latest_message ? thread->latest_message : ignis_status_message();
}

IGNIS__COLD IGNIS_API ignis_status ignis_status_query(ignis_status_info *info)
{
    const ignis__record *record = &ignis__this_thread.record;
    bool failed = record->status != IGNIS_OK;
    if (info) {
        info->status = record->status;
        info->diagnostic = record->diagnostic;
        info->call = failed ? record->call : "";
        info->message = ignis_status_message();
        info->driver_error = record->driver_error;
        info->driver_name = failed ? record->driver_name : "";
        info->log = failed ? record->log : "";
    }
    return record->status;
}

IGNIS__COLD IGNIS_API void ignis_status_clear(void)
{
    ignis__record_drop(&ignis__this_thread);
    free(ignis__this_thread.latest_message);
    ignis__this_thread.latest_message = NULL;
}

IGNIS_API const char *ignis_status_name(ignis_status status)
{
    /* clang-format off */
    static const char *const names[] = {
        "IGNIS_OK",
#define IGNIS__STATUS_NAME(name, meaning) "IGNIS_ERROR_" #name,
        IGNIS_STATUSES(IGNIS__STATUS_NAME)
#undef IGNIS__STATUS_NAME
    };
    /* clang-format on */
    return (unsigned)status < IGNIS_STATUS_COUNT ? names[status] : "unknown status";
}

IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].name : "unknown diagnostic";
}

IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].rule : "";
}

IGNIS_API const char *ignis_version_string(void)
{
#define IGNIS__TEXT_OF(x) #x
#define IGNIS__TEXT(x) IGNIS__TEXT_OF(x)
    return IGNIS__TEXT(IGNIS_VERSION_MAJOR) "." IGNIS__TEXT(IGNIS_VERSION_MINOR) "." IGNIS__TEXT(IGNIS_VERSION_PATCH);
}

/* ===============================================================================================================
   >>loader - the driver, NVRTC and cuBLASLt, opened at run time from one table a library.
   =============================================================================================================== */

/*  X(return type, name, (argument types), first CUDA version that has it, required). The prototypes are Ignis' own: enumerations
    are int, handles void *, and device addresses ignis__address. tests/prototypes.cpp holds them against the toolkit's headers. */
typedef unsigned long long ignis__address;

typedef struct ignis__ipc_handle { /* CUipcMemHandle and CUipcEventHandle */
    char bytes[64];
} ignis__ipc_handle;

typedef struct ignis__nccl_id { /* ncclUniqueId */
    char bytes[128];
} ignis__nccl_id;

#define IGNIS__CUDA_API(X)                                                                                                                 \
    X(int, cuInit, (unsigned), 2000, 1)                                                                                                    \
    X(int, cuDriverGetVersion, (int *), 2020, 1)                                                                                           \
    X(int, cuGetErrorName, (int, const char **), 6000, 1)                                                                                  \
    X(int, cuGetErrorString, (int, const char **), 6000, 1)                                                                                \
    X(int, cuDeviceGetCount, (int *), 2000, 1)                                                                                             \
    X(int, cuDeviceGet, (int *, int), 2000, 1)                                                                                             \
    X(int, cuDeviceGetName, (char *, int, int), 2000, 1)                                                                                   \
    X(int, cuDeviceGetUuid_v2, (void *, int), 11040, 1)                                                                                    \
    X(int, cuDeviceGetPCIBusId, (char *, int, int), 4010, 1)                                                                               \
    X(int, cuDeviceGetAttribute, (int *, int, int), 2000, 1)                                                                               \
    X(int, cuDeviceTotalMem_v2, (size_t *, int), 3020, 1)                                                                                  \
    X(int, cuDevicePrimaryCtxRetain, (void **, int), 7000, 1)                                                                              \
    X(int, cuDevicePrimaryCtxRelease_v2, (int), 11000, 1)                                                                                  \
    X(int, cuCtxGetCurrent, (void **), 4000, 1)                                                                                            \
    X(int, cuCtxSetCurrent, (void *), 4000, 1)                                                                                             \
    X(int, cuCtxPushCurrent_v2, (void *), 4000, 1)                                                                                         \
    X(int, cuCtxPopCurrent_v2, (void **), 4000, 1)                                                                                         \
    X(int, cuCtxSynchronize, (void), 2000, 1)                                                                                              \
    X(int, cuMemGetInfo_v2, (size_t *, size_t *), 3020, 1)                                                                                 \
    X(int, cuMemAlloc_v2, (ignis__address *, size_t), 3020, 1)                                                                             \
    X(int, cuMemFree_v2, (ignis__address), 3020, 1)                                                                                        \
    X(int, cuMemHostAlloc, (void **, size_t, unsigned), 2020, 1)                                                                           \
    X(int, cuMemFreeHost, (void *), 2000, 1)                                                                                               \
    X(int, cuPointerGetAttributes, (unsigned, int *, void **, ignis__address), 7000, 1)                                                    \
    X(int, cuMemsetD8Async, (ignis__address, unsigned char, size_t, void *), 3020, 1)                                                      \
    X(int, cuMemcpyHtoDAsync_v2, (ignis__address, const void *, size_t, void *), 3020, 1)                                                  \
    X(int, cuMemcpyDtoHAsync_v2, (void *, ignis__address, size_t, void *), 3020, 1)                                                        \
    X(int, cuMemcpyDtoDAsync_v2, (ignis__address, ignis__address, size_t, void *), 3020, 1)                                                \
    X(int, cuMemcpyPeerAsync, (ignis__address, void *, ignis__address, void *, size_t, void *), 4000, 1)                                   \
    X(int, cuStreamCreate, (void **, unsigned), 2000, 1)                                                                                   \
    X(int, cuStreamCreateWithPriority, (void **, unsigned, int), 5050, 1)                                                                  \
    X(int, cuStreamDestroy_v2, (void *), 4000, 1)                                                                                          \
    X(int, cuStreamSynchronize, (void *), 2000, 1)                                                                                         \
    X(int, cuStreamWaitEvent, (void *, void *, unsigned), 3020, 1)                                                                         \
    X(int, cuStreamGetCtx, (void *, void **), 9020, 1)                                                                                     \
    X(int, cuEventCreate, (void **, unsigned), 2000, 1)                                                                                    \
    X(int, cuEventRecord, (void *, void *), 2000, 1)                                                                                       \
    X(int, cuEventDestroy_v2, (void *), 4000, 1)                                                                                           \
    X(int, cuModuleLoadData, (void **, const void *), 2000, 1)                                                                             \
    X(int, cuModuleUnload, (void *), 2000, 1)                                                                                              \
    X(int, cuModuleGetFunction, (void **, void *, const char *), 2000, 1)                                                                  \
    X(int, cuModuleGetGlobal_v2, (ignis__address *, size_t *, void *, const char *), 3020, 1)                                              \
    X(int, cuFuncGetAttribute, (int *, int, void *), 2020, 1)                                                                              \
    X(int, cuFuncSetAttribute, (void *, int, int), 9000, 1)                                                                                \
    X(int, cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *), 12040, 0)                                                             \
    X(int, cuStreamBeginCapture_v2, (void *, int), 10010, 1)                                                                               \
    X(int, cuStreamIsCapturing, (void *, int *), 10000, 1)                                                                                 \
    X(int, cuStreamEndCapture, (void *, void **), 10000, 1)                                                                                \
    X(int, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), 11040, 1)                                                   \
    X(int, cuGraphLaunch, (void *, void *), 10000, 1)                                                                                      \
    X(int, cuGraphExecDestroy, (void *), 10000, 1)                                                                                         \
    X(int, cuGraphDestroy, (void *), 10000, 1)                                                                                             \
    X(int, cuMemGetAddressRange_v2, (ignis__address *, size_t *, ignis__address), 3020, 1)                                                 \
    X(int, cuDeviceCanAccessPeer, (int *, int, int), 4000, 1)                                                                              \
    X(int, cuCtxEnablePeerAccess, (void *, unsigned), 4000, 1)                                                                             \
    X(int, cuDeviceGetP2PAttribute, (int *, int, int, int), 8000, 1)                                                                       \
    X(int, cuMemHostRegister_v2, (void *, size_t, unsigned), 6050, 1)                                                                      \
    X(int, cuMemHostUnregister, (void *), 4000, 1)                                                                                         \
    X(int, cuMemHostGetDevicePointer_v2, (ignis__address *, void *, unsigned), 3020, 1)                                                    \
    X(int, cuStreamQuery, (void *), 2000, 1)                                                                                               \
    X(int, cuEventQuery, (void *), 2000, 1)                                                                                                \
    X(int, cuEventElapsedTime, (float *, void *, void *), 2000, 1)                                                                         \
    X(int, cuEventSynchronize, (void *), 2000, 1)                                                                                          \
    X(int, cuLaunchHostFunc, (void *, void (*)(void *), void *), 10000, 1)                                                                 \
    X(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), 6050, 1)                                             \
    X(int, cuMemGetAllocationGranularity, (size_t *, const void *, int), 10020, 1)                                                         \
    X(int, cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long), 10020, 1)                                        \
    X(int, cuMemRelease, (unsigned long long), 10020, 1)                                                                                   \
    X(int, cuMemAddressReserve, (ignis__address *, size_t, size_t, ignis__address, unsigned long long), 10020, 1)                          \
    X(int, cuMemAddressFree, (ignis__address, size_t), 10020, 1)                                                                           \
    X(int, cuMemMap, (ignis__address, size_t, size_t, unsigned long long, unsigned long long), 10020, 1)                                   \
    X(int, cuMemUnmap, (ignis__address, size_t), 10020, 1)                                                                                 \
    X(int, cuMemSetAccess, (ignis__address, size_t, const void *, size_t), 10020, 1)                                                       \
    X(int, cuMemGetAccess, (unsigned long long *, const void *, ignis__address), 10020, 1)                                                 \
    X(int, cuMemExportToShareableHandle, (void *, unsigned long long, int, unsigned long long), 10020, 1)                                  \
    X(int, cuMemImportFromShareableHandle, (unsigned long long *, void *, int), 10020, 1)                                                  \
    X(int, cuMemGetAllocationPropertiesFromHandle, (void *, unsigned long long), 10020, 1)                                                 \
    X(int, cuMemRetainAllocationHandle, (unsigned long long *, void *), 11000, 1)                                                          \
    X(int, cuIpcGetMemHandle, (void *, ignis__address), 4010, 1)                                                                           \
    X(int, cuIpcOpenMemHandle_v2, (ignis__address *, ignis__ipc_handle, unsigned), 11000, 1)                                               \
    X(int, cuIpcCloseMemHandle, (ignis__address), 4010, 1)                                                                                 \
    X(int, cuIpcGetEventHandle, (void *, void *), 4010, 1)                                                                                 \
    X(int, cuIpcOpenEventHandle, (void **, ignis__ipc_handle), 4010, 1)                                                                    \
    X(int, cuTensorMapEncodeTiled,                                                                                                         \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const unsigned *, const unsigned *, int,     \
       int, int, int),                                                                                                                     \
      12000, 0)                                                                                                                            \
    X(int, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 4000, \
      1)

#define IGNIS__NVRTC_API(X)                                                                                                   \
    X(int, nvrtcVersion, (int *, int *), 7000, 1)                                                                             \
    X(const char *, nvrtcGetErrorString, (int), 7000, 1)                                                                      \
    X(int, nvrtcCreateProgram, (void **, const char *, const char *, int, const char *const *, const char *const *), 7000, 1) \
    X(int, nvrtcDestroyProgram, (void **), 7000, 1)                                                                           \
    X(int, nvrtcAddNameExpression, (void *, const char *), 8000, 1)                                                           \
    X(int, nvrtcCompileProgram, (void *, int, const char *const *), 7000, 1)                                                  \
    X(int, nvrtcGetProgramLogSize, (void *, size_t *), 7000, 1)                                                               \
    X(int, nvrtcGetProgramLog, (void *, char *), 7000, 1)                                                                     \
    X(int, nvrtcGetLoweredName, (void *, const char *, const char **), 8000, 1)                                               \
    X(int, nvrtcGetCUBINSize, (void *, size_t *), 11010, 1)                                                                   \
    X(int, nvrtcGetCUBIN, (void *, char *), 11010, 1)                                                                         \
    X(int, nvrtcGetPTXSize, (void *, size_t *), 7000, 1)                                                                      \
    X(int, nvrtcGetPTX, (void *, char *), 7000, 1)                                                                            \
    X(int, nvrtcGetNumSupportedArchs, (int *), 11020, 1)                                                                      \
    X(int, nvrtcGetSupportedArchs, (int *), 11020, 1)

#define IGNIS__CUBLASLT_API(X)                                                                                                       \
    X(size_t, cublasLtGetVersion, (void), 10010, 1)                                                                                  \
    X(int, cublasLtCreate, (void **), 10010, 1)                                                                                      \
    X(int, cublasLtDestroy, (void *), 10010, 1)                                                                                      \
    X(int, cublasLtMatmulDescCreate, (void **, int, int), 11000, 1)                                                                  \
    X(int, cublasLtMatmulDescDestroy, (void *), 10010, 1)                                                                            \
    X(int, cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                            \
    X(int, cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t), 10010, 1)                                        \
    X(int, cublasLtMatrixLayoutDestroy, (void *), 10010, 1)                                                                          \
    X(int, cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                          \
    X(int, cublasLtMatmulPreferenceCreate, (void **), 10010, 1)                                                                      \
    X(int, cublasLtMatmulPreferenceDestroy, (void *), 10010, 1)                                                                      \
    X(int, cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t), 10010, 1)                                      \
    X(int, cublasLtMatmulAlgoGetHeuristic, (void *, void *, void *, void *, void *, void *, void *, int, void *, int *), 10010, 1)   \
    X(int, cublasLtMatmul,                                                                                                           \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, \
       const void *, void *, size_t, void *),                                                                                        \
      10010, 1)

#define IGNIS__NCCL_API(X)                                                                       \
    X(int, ncclGetVersion, (int *), 2190, 1)                                                     \
    X(int, ncclGetUniqueId, (ignis__nccl_id *), 2190, 1)                                         \
    X(int, ncclCommInitRank, (void **, int, ignis__nccl_id, int), 2190, 1)                       \
    X(int, ncclCommInitRankConfig, (void **, int, ignis__nccl_id, int, void *), 2190, 1)         \
    X(int, ncclCommFinalize, (void *), 2190, 1)                                                  \
    X(int, ncclCommDestroy, (void *), 2190, 1)                                                   \
    X(int, ncclCommAbort, (void *), 2190, 1)                                                     \
    X(int, ncclCommGetAsyncError, (void *, int *), 2190, 1)                                      \
    X(const char *, ncclGetErrorString, (int), 2190, 1)                                          \
    X(const char *, ncclGetLastError, (void *), 2190, 1)                                         \
    X(int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclReduce, (const void *, void *, size_t, int, int, int, void *, void *), 2190, 1)   \
    X(int, ncclBroadcast, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclAllGather, (const void *, void *, size_t, int, void *, void *), 2190, 1)          \
    X(int, ncclReduceScatter, (const void *, void *, size_t, int, int, void *, void *), 2190, 1) \
    X(int, ncclSend, (const void *, size_t, int, int, void *, void *), 2190, 1)                  \
    X(int, ncclRecv, (void *, size_t, int, int, void *, void *), 2190, 1)                        \
    X(int, ncclGroupStart, (void), 2190, 1)                                                      \
    X(int, ncclGroupEnd, (void), 2190, 1)

#define IGNIS__API_MEMBER(ret, name, args, version, required) ret(*name) args;

static struct ignis__cuda_api {
    IGNIS__CUDA_API(IGNIS__API_MEMBER)
} ignis__cuda;

static struct ignis__nvrtc_api {
    IGNIS__NVRTC_API(IGNIS__API_MEMBER)
} ignis__nvrtc;

static struct ignis__cublaslt_api {
    IGNIS__CUBLASLT_API(IGNIS__API_MEMBER)
} ignis__cublaslt;

static struct ignis__nccl_api {
    IGNIS__NCCL_API(IGNIS__API_MEMBER)
} ignis__nccl;

/*  The one way to call them: IGNIS__CUDA(cuMemFree_v2, (address)). */
#define IGNIS__CUDA(name, args) IGNIS_CALL_HOOK(#name, ignis__cuda.name args)
#define IGNIS__NVRTC(name, args) IGNIS_CALL_HOOK(#name, ignis__nvrtc.name args)

typedef struct ignis__symbol {
    const char *name;
    size_t offset; /* of the pointer in its api struct */
    int version;
    bool required;
} ignis__symbol;

typedef struct ignis__library_spec {
    const char *title;
    const char *env;        /* the variable that names the file */
    const char *names[6];   /* for the system's own search, newest first */
    const char *folders[6]; /* below CUDA_PATH, and as they are */
    const char *wheels[3];  /* below each Python's site-packages */
    const char *companion;  /* a library that this one opens by itself, and must find beside it */
    const char *help;
    void *api;
    const ignis__symbol *symbols;
    int symbol_count;
} ignis__library_spec;

#define IGNIS__CUDA_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cuda_api, name), version, required},
static const ignis__symbol ignis__cuda_symbols[] = {IGNIS__CUDA_API(IGNIS__CUDA_SYMBOL)};
#define IGNIS__NVRTC_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__nvrtc_api, name), version, required},
static const ignis__symbol ignis__nvrtc_symbols[] = {IGNIS__NVRTC_API(IGNIS__NVRTC_SYMBOL)};
#define IGNIS__CUBLASLT_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cublaslt_api, name), version, required},
static const ignis__symbol ignis__cublaslt_symbols[] = {IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_SYMBOL)};
#define IGNIS__NCCL_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__nccl_api, name), version, required},
static const ignis__symbol ignis__nccl_symbols[] = {IGNIS__NCCL_API(IGNIS__NCCL_SYMBOL)};

/* clang-format off */
static const ignis__library_spec ignis__library_specs[IGNIS_LIBRARY_COUNT] = {
    {"", "", {0}, {0}, {0}, NULL, "", NULL, NULL, 0},
#ifdef _WIN32
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"nvcuda.dll"}, {0}, {0}, NULL,
     "install NVIDIA's display driver", &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
     {"\\bin\\x64\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_120_0.dll", "\\bin\\nvrtc64_112_0.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\nvrtc64_130_0.dll", "\\nvidia\\cuda_nvrtc\\bin\\nvrtc64_120_0.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
     {"\\bin\\x64\\cublasLt64_13.dll", "\\bin\\cublasLt64_13.dll", "\\bin\\cublasLt64_12.dll", "\\bin\\cublasLt64_11.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\cublasLt64_13.dll", "\\nvidia\\cublas\\bin\\cublasLt64_12.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"nccl.dll"}, {0}, {0}, NULL, "NVIDIA makes none for Windows", &ignis__nccl, ignis__nccl_symbols,
     IGNIS__COUNT(ignis__nccl_symbols)},
#else
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"libcuda.so.1", "libcuda.so"},
     {"/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"}, {0}, NULL,
     "install NVIDIA's driver (on a machine without a GPU, `make sim-env` in Ignis' repository tells how to use its simulator)",
     &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
     {"/lib64/libnvrtc.so", "/lib/libnvrtc.so", "/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12"},
     {"/nvidia/cu13/lib/libnvrtc.so.13", "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}, "libnvrtc-builtins.so.",
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
     {"/lib64/libcublasLt.so", "/lib/libcublasLt.so", "/lib64/libcublasLt.so.13", "/lib64/libcublasLt.so.12"},
     {"/nvidia/cu13/lib/libcublasLt.so.13", "/nvidia/cublas/lib/libcublasLt.so.12"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
    {"NCCL", "IGNIS_NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"}, {"/lib64/libnccl.so.2", "/lib/libnccl.so.2"},
     {"/nvidia/nccl/lib/libnccl.so.2"}, NULL,
     "install it with your system's packages or by: pip install nvidia-nccl-cu13", &ignis__nccl, ignis__nccl_symbols,
     IGNIS__COUNT(ignis__nccl_symbols)},
#endif
};
/* clang-format on */

static struct ignis__loaded {
    uint64_t loaded;   /* the api struct is filled */
    char path[1024];   /* what it was opened by */
    char wanted[1024]; /* ignis_desc's path, "" for a search */
    int version, found;
    uint64_t release; /* the exact version, for cache keys */
} ignis__libraries[IGNIS_LIBRARY_COUNT];

static ignis__mutex ignis__loader_lock = IGNIS__MUTEX_INIT;

#ifdef IGNIS_LINK_CUDA

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#if CUDA_VERSION < 12040
#error "IGNIS_LINK_CUDA needs the headers of CUDA 12.4 or newer; without it Ignis loads older drivers at run time"
#endif

/*  The cast through void(*)(void) is the one that compilers let pass between unlike function types. */
static void ignis__library_bind(ignis_library which, struct ignis__loaded *library)
{
    snprintf(library->path, sizeof library->path, "linked");
    library->found = ignis__library_specs[which].symbol_count;
#define IGNIS__CUDA_LINK(ret, name, args, version, required) ignis__cuda.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__NVRTC_LINK(ret, name, args, version, required) ignis__nvrtc.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__CUBLASLT_LINK(ret, name, args, version, required) ignis__cublaslt.name = (ret(*) args)(void (*)(void))name;
    switch (which) {
    case IGNIS_LIBRARY_CUDA: IGNIS__CUDA_API(IGNIS__CUDA_LINK) break;
    case IGNIS_LIBRARY_NVRTC: IGNIS__NVRTC_API(IGNIS__NVRTC_LINK) break;
    default: IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_LINK) break;
    }
}

#endif /* IGNIS_LINK_CUDA */

/*  One search for a library: where it looked, and why each place was not it. */
typedef struct ignis__search {
    const ignis__library_spec *spec;
    const char *below; /* the folder of Pythons that is being listed */
    void *library;
    char path[1024];
    ignis__text tried;
} ignis__search;

/*  Where the companion of a library is looked for: a folder, and the beginning of its name. */
typedef struct ignis__companion {
    char folder[1024];
    const char *prefix;
} ignis__companion;

IGNIS__COLD static void ignis__companion_open(void *context, const char *name)
{
    const ignis__companion *companion = (const ignis__companion *)context;
    char path[2048], why[512];
    if (strncmp(name, companion->prefix, strlen(companion->prefix)) != 0 || strstr(name, ".alt"))
        return;
    snprintf(path, sizeof path, "%s/%s", companion->folder, name);
    (void)ignis__library_open(path, why, sizeof why); /* without it NVRTC itself says what it misses */
}

IGNIS__COLD static bool ignis__search_try(ignis__search *search, const char *path)
{
    char why[512];
    const char *slash = strrchr(path, '/');
    if (search->library)
        return true;
    if (slash && search->spec->companion) {
        ignis__companion companion;
        companion.prefix = search->spec->companion;
        snprintf(companion.folder, sizeof companion.folder, "%.*s", (int)(slash - path), path);
        (void)ignis__folder_list(companion.folder, ignis__companion_open, &companion);
    }
    search->library = ignis__library_open(path, why, sizeof why);
    if (search->library)
        snprintf(search->path, sizeof search->path, "%s", path);
    else
        ignis__text_add(&search->tried, "\n  %s: %s", path, why);
    return search->library != NULL;
}

/*  Tries a file that is only worth a line in the report when it is there. */
IGNIS__COLD static void ignis__search_try_existing(ignis__search *search, const char *folder, const char *file)
{
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s%s", folder, file);
    if (ignis__file_info(path, &size, &time))
        ignis__search_try(search, path);
}

IGNIS__COLD static void ignis__search_wheels(ignis__search *search, const char *packages)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(search->spec->wheels) && search->spec->wheels[i]; i++)
        ignis__search_try_existing(search, packages, search->spec->wheels[i]);
}

IGNIS__COLD static void ignis__search_python(void *context, const char *name)
{
    ignis__search *search = (ignis__search *)context;
    char packages[1024];
    if (strncmp(name, "python3", 7) != 0)
        return;
    snprintf(packages, sizeof packages, "%s/%s/site-packages", search->below, name);
    ignis__search_wheels(search, packages);
    snprintf(packages, sizeof packages, "%s/%s/dist-packages", search->below, name);
    ignis__search_wheels(search, packages);
}

IGNIS__COLD static void ignis__search_pythons(ignis__search *search, const char *root, const char *below)
{
    char folder[1024];
    if (!root || !*root || search->library)
        return;
#ifdef _WIN32
    (void)below;
    snprintf(folder, sizeof folder, "%s\\Lib\\site-packages", root);
    ignis__search_wheels(search, folder);
    (void)ignis__search_python;
#else
    snprintf(folder, sizeof folder, "%s%s", root, below);
    search->below = folder;
    (void)ignis__folder_list(folder, ignis__search_python, search);
#endif
}

IGNIS__COLD static void ignis__search_everywhere(ignis__search *search)
{
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME", NULL};
    const ignis__library_spec *spec = search->spec;
    int i, r;
    for (i = 0; i < IGNIS__COUNT(spec->names) && spec->names[i]; i++)
        if (ignis__search_try(search, spec->names[i]))
            return;
    for (r = 0; r < IGNIS__COUNT(roots); r++) {
        const char *root = roots[r] ? getenv(roots[r]) : "/usr/local/cuda";
        for (i = 0; root && i < IGNIS__COUNT(spec->folders) && spec->folders[i]; i++)
            ignis__search_try_existing(search, spec->wheels[0] ? root : "", spec->folders[i]);
    }
    ignis__search_pythons(search, getenv("VIRTUAL_ENV"), "/lib");
    ignis__search_pythons(search, getenv("CONDA_PREFIX"), "/lib");
    ignis__search_pythons(search, getenv("HOME"), "/.local/lib");
    ignis__search_pythons(search, "/usr/local", "/lib");
    ignis__search_pythons(search, "/usr", "/lib");
}

IGNIS__COLD static bool ignis__library_find(const char *call, ignis_library which, struct ignis__loaded *library)
{
    const ignis__library_spec *spec = &ignis__library_specs[which];
    const char *from_env = getenv(spec->env);
    ignis__search search = IGNIS__ZERO;
    char tried[4096];
    int i;

#ifdef IGNIS_LINK_CUDA
    if (which != IGNIS_LIBRARY_NCCL) { /* which is never linked: most programs do without it */
        ignis__library_bind(which, library);
        return true;
    }
#endif
    search.spec = spec;
    ignis__text_begin(&search.tried, tried, sizeof tried);
    if (library->wanted[0]) /* a path that was asked for is the only one: another library would be a silent surprise */
        ignis__search_try(&search, library->wanted);
    else if (from_env && *from_env)
        ignis__search_try(&search, from_env);
    else
        ignis__search_everywhere(&search);
    if (!search.library) {
        ignis__fail(IGNIS_DIAG_LIBRARY_MISSING, call, "%s was not found: %s, or name its file in %s. Tried:%s", spec->title, spec->help,
                    spec->env, tried);
        return false;
    }
    library->found = 0;
    for (i = 0; i < spec->symbol_count; i++) {
        const ignis__symbol *symbol = &spec->symbols[i];
        void *function = ignis__library_symbol(search.library, symbol->name);
        memcpy((char *)spec->api + symbol->offset, &function, sizeof function);
        library->found += function != NULL;
        if (!function && symbol->required) {
            bool is_nccl = which == IGNIS_LIBRARY_NCCL;
            int needed = !is_nccl && symbol->version < 11040 ? 11040 : symbol->version; /* the oldest version that Ignis is made for */
            ignis__fail(IGNIS_DIAG_LIBRARY_SYMBOL, call, "%s (%s) has no function %s; it is not that library, or older than %s %d.%d",
                        spec->title, search.path, symbol->name, is_nccl ? "NCCL" : "CUDA", needed / 1000, needed % 1000 / 10);
            return false;
        }
    }
    snprintf(library->path, sizeof library->path, "%s", search.path);
    return true;
}

/*  Reads the version, as 1000 * major + 10 * minor, and exactly. */
IGNIS__COLD static void ignis__library_read_version(ignis_library which, struct ignis__loaded *library)
{
    int version = 0, minor = 0;
    size_t packed;
    switch (which) {
    case IGNIS_LIBRARY_CUDA:
        IGNIS__CUDA(cuDriverGetVersion, (&version));
        library->version = version;
        library->release = (uint64_t)version;
        break;
    case IGNIS_LIBRARY_NVRTC:
        IGNIS__NVRTC(nvrtcVersion, (&version, &minor));
        library->version = version * 1000 + (minor < 100 ? minor : 99) * 10;
        library->release = (uint64_t)version << 32 | (uint32_t)minor;
        break;
    case IGNIS_LIBRARY_NCCL: /* 22809 for 2.28.9 */
        (void)IGNIS_CALL_HOOK("ncclGetVersion", ignis__nccl.ncclGetVersion(&version));
        library->version = version / 10000 * 1000 + version / 100 % 100 * 10;
        library->release = (uint64_t)version;
        break;
    default:
        packed = ignis__cublaslt.cublasLtGetVersion(); /* 130100 for 13.1.0; 11401 for 11.4.1 */
        library->version =
            (int)(packed >= 100000 ? packed / 10000 * 1000 + packed / 100 % 100 * 10 : packed / 1000 * 1000 + packed / 100 % 10 * 10);
        library->release = packed;
    }
}

/*  Loads a library once. A failure is reported again at the next try, which may succeed: the user may have installed it. */
static bool ignis__library_load(const char *call, ignis_library which)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    bool ok = true;
    if (ignis__atomic_load(&library->loaded))
        return true;
    ignis__mutex_lock(&ignis__loader_lock);
    if (!ignis__atomic_load(&library->loaded)) {
        ok = ignis__library_find(call, which, library);
        if (ok) {
            ignis__library_read_version(which, library);
            ignis__atomic_store(&library->loaded, 1);
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s is %s, version %d.%d", call, ignis__library_specs[which].title,
                        library->path, library->version / 1000, library->version % 1000 / 10);
        }
    }
    ignis__mutex_unlock(&ignis__loader_lock);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info)
{
    static const char call[] = "ignis_library_query";
    const struct ignis__loaded *loaded;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (library < IGNIS_LIBRARY_CUDA || library >= IGNIS_LIBRARY_COUNT)
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no library %d; IGNIS_LIBRARY_CUDA to _NCCL are 1 to 4", (int)library);
    if (!info)
        return ignis__fail_null(call, "info");
    if (!ignis__library_load(call, library))
        return IGNIS_ERROR_LIBRARY;
    loaded = &ignis__libraries[library];
    info->path = loaded->path;
    info->version = loaded->version;
    info->functions = ignis__library_specs[library].symbol_count;
    info->functions_found = loaded->found;
    return IGNIS_OK;
}

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
        planning, compiling   the loader's, the kernel caches', those of memory and streams
        ignis__audits         an array's slot, ignis__tracking
        ignis__tapes          a tape
        memory and streams    ignis__storages, a storage, a device
                              asking or trimming of a cache, the cache, a device
                              trimming of a cache, a stream of the caller, a device
    Behind a device's, a pool's, ignis__captures, ignis__measurements and those of the kernel caches nothing is locked. Nobody waits for the device
    holding one that a launch needs: what runs there may wait for that launch. The logger is called with locks held, so it must not call Ignis. */

/*  handle: generation (32 bits) | kind (4 bits) | slot (28 bits). A slot's state: generation (32 bits) | holds (32 bits).
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
    IGNIS__KIND_VMM, /* from here on those of ignis_collective.h */
    IGNIS__KIND_RANGE,
    IGNIS__KIND_CHANNEL,
    IGNIS__KIND_TRANSPORT,
    IGNIS__KIND_COMM,
    IGNIS__KIND_PARALLEL,
    IGNIS__KIND_COUNT
} ignis__kind;

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
#define IGNIS__POOL_PAGES 22 /* page k holds 64 << k items: 2^28 in all */

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
} ignis__pool;

#define IGNIS__POOL(item, kind, what, freed) IGNIS__POOL_NAMED(item, kind, what, freed, 0)
#define IGNIS__POOL_NAMED(item, kind, what, freed, former)                       \
    {                                                                            \
        sizeof(item), kind, what, freed, former, IGNIS__MUTEX_INIT, 0, {0}, NULL \
    }

static ignis__slot *ignis__pool_slot(const ignis__pool *pool, uint64_t index)
{
    uint64_t shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    return (ignis__slot *)(void *)(pool->pages[page] + (shifted - ((uint64_t)IGNIS__POOL_FIRST_PAGE << page)) * pool->item_size);
}

/*  Slots come from malloc and stay: they outlive ignis_shutdown, and with it the user's allocator. */
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
    }
    slot = ignis__pool_slot(pool, index);
    slot->index = (uint32_t)index;
    ignis__mutex_init(&slot->lock);
    ignis__atomic_store(&pool->count, index + 1);
    return slot;
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

/*  Gives the item a handle, by which others see it, and as many holds. */
static uint64_t ignis__pool_publish_held(ignis__pool *pool, void *item, int holds)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t generation = (ignis__atomic_load(&slot->state) >> 32) + 1;
    slot->handle = generation << 32 | (uint64_t)pool->kind << 28 | slot->index;
    ignis__atomic_store(&slot->state, generation << 32 | (uint64_t)holds);
    return slot->handle;
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
    uint64_t index = handle & 0xFFFFFFFu;
    if ((handle >> 28 & 15) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count) || handle >> 32 == 0)
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
    uint64_t index = handle & 0xFFFFFFFu;
    ignis__former former = IGNIS__ZERO;
    ignis__label out = IGNIS__ZERO;
    ignis__text text;
    ignis__slot *slot;
    if (!handle || !pool->former || (handle >> 28 & 15) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count))
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
    uint64_t kind = handle >> 28 & 15;
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
    IGNIS__CU_NO_BINARY = 209,
    IGNIS__CU_ATTRIBUTE_MAX_THREADS = 1,
    IGNIS__CU_ATTRIBUTE_WARP_SIZE = 10,
    IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    IGNIS__CU_ATTRIBUTE_L2_BYTES = 38,
    IGNIS__CU_ATTRIBUTE_MAJOR = 75,
    IGNIS__CU_ATTRIBUTE_MINOR = 76,
    IGNIS__CU_ATTRIBUTE_SHARED_OPTIN = 97,
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
    IGNIS__CU_CAPTURE_RELAXED = 2,
    IGNIS__CU_NOT_FOUND = 500,
    IGNIS__CU_NOT_READY = 600,
    IGNIS__CU_CAPTURE_UNSUPPORTED = 900,
    IGNIS__CU_FUNC_MAX_THREADS = 0,
    IGNIS__CU_FUNC_SHARED = 1,
    IGNIS__CU_FUNC_LOCAL = 3,
    IGNIS__CU_FUNC_REGISTERS = 4,
    IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED = 8
};

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
    ignis__foreign_stream *foreign;
    ignis__spare_event *events;
} ignis__device;

static ignis__device ignis__devices[IGNIS_MAX_DEVICES];
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
    int ordinal = device ? (int)(device - ignis__devices) : -1;
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

IGNIS__COLD static bool ignis__device_read(const char *call, ignis__device *device)
{
    ignis_device_info *info = &device->info;
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

    info->device = (int)(device - ignis__devices);
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
    info->l2_bytes = l2;
    info->memory_total = (int64_t)total;
    return true;
}

/*  A context that is made current for one call. */
typedef struct ignis__binding {
    bool pushed;
} ignis__binding;

/*  A thread without a context gets this one and keeps it, as with cudart; one that has another gets that back. */
static bool ignis__context_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    void *current = NULL;
    binding->pushed = false;
    if (IGNIS__CUDA_FAILED(call, device, cuCtxGetCurrent, (&current)))
        return false;
    if (current == device->context)
        return true;
    if (!current)
        return !IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context));
    binding->pushed = !IGNIS__CUDA_FAILED(call, device, cuCtxPushCurrent_v2, (device->context));
    return binding->pushed;
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

IGNIS__COLD IGNIS_API ignis_status ignis_device_query(int ordinal, ignis_device_info *info)
{
    static const char call[] = "ignis_device_query";
    ignis__device *device;
    bool ok = true;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!info)
        return ignis__fail_null(call, "info");
    device = ignis__device_get(call, ordinal);
    if (!device)
        return IGNIS_ERROR_DEVICE;
    ignis__mutex_lock(&device->lock);
    if (!device->info.warp_size)
        ok = ignis__device_read(call, device);
    *info = device->info;
    ignis__mutex_unlock(&device->lock);
    return ok ? IGNIS_OK : ignis__failed();
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

/*  Keeps an item for the graph: its count of users goes up, once, and `drop` makes it go down. users may be null: then the caller counts as a
    user already, and `drop` is for that. */
static bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
                                void (*drop)(const char *call, void *item))
{
    ignis__held *held;
    if (ignis__capture_find(capture, item))
        return true;
    held = (ignis__held *)ignis__alloc(sizeof *held);
    if (!held) {
        ignis__fail_host_memory(call, sizeof *held);
        return false;
    }
    if (users)
        ignis__atomic_add(users, 1);
    held->item = item;
    held->drop = drop;
    held->next = capture->held;
    capture->held = held;
    return true;
}

/*  Between the two the thread's work runs, on its own stream. Resume waits for it, as a capture has no order with other streams. The device is
    entered. */
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
    if (!legacy && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!legacy && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call, "stream %p belongs to another device or context than device %d's primary context",
                    stream, (int)(device - ignis__devices));
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
        spare = (ignis__spare_event *)ignis__alloc(sizeof *spare);
        if (!spare)
            ignis__fail_host_memory(call, sizeof *spare);
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

/*  Waits for the work of a device that is entered. A context cannot be waited for while a thread captures on it, which would spoil that: then, and
    when that wait has failed, for each stream that Ignis knows, those that a capture has drawn in excepted. Returns the driver's first error; the
    work is through also then, unless the devices are lost. */
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
    for (i = 0; i < ignis__device_total; i++) {
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
    ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call, "%s", what);
    return false;
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
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    int error;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!done)
        return ignis__fail_null(call, "done");
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    if (ignis__stream_captured(call, device, stream, &captured)) {
        error = captured ? IGNIS__CU_CAPTURE_UNSUPPORTED : IGNIS__CUDA(cuStreamQuery, (stream));
        *done = error == 0;
        ok = captured ? ignis__fail_captured(call, "the stream is captured: its work runs at each launch of the graph")
                      : error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
    }
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
    ignis__event *event = device ? (ignis__event *)ignis__pool_take(call, &ignis__events) : NULL;
    if (event && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&event->event, IGNIS__CU_EVENT_DEFAULT))) {
        ignis__pool_give(&ignis__events, event);
    } else if (event) {
        event->device = device;
        event->recorded = false;
        event->capture = 0;
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
                    (int)(event->device - ignis__devices), (int)(device - ignis__devices));
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
    ok = done && ignis__event_ask(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (done)
        *done = ok && error == 0;
    else
        ignis__fail_null(call, "done");
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
    ignis_event handles[2];
    ignis__event *events[2] = {NULL, NULL};
    ignis__binding bindings[2];
    float elapsed = 0;
    int i, error = 0;
    bool ok = ms != NULL;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!ms)
        ignis__fail_null(call, "ms");
    handles[0] = first, handles[1] = last;
    for (i = 0; ok && i < 2; i++) {
        events[i] = ignis__event_enter(call, handles[i], &bindings[i]);
        ok = events[i] != NULL;
        if (!ok)
            break;
        ignis__mutex_lock(&events[i]->slot.lock);
        ok = ignis__event_ask(call, events[i], &error);
        if (ok && (error != 0 || !events[i]->recorded)) {
            ok = false;
            ignis__fail(IGNIS_DIAG_EVENT_STATE, call, "the %s event %s", i ? "last" : "first",
                        error ? "is not done: wait for it, or ask by ignis_event_query" : "was never recorded");
        }
        ignis__mutex_unlock(&events[i]->slot.lock);
    }
    if (ok && events[0]->device != events[1]->device) {
        ok = false;
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the events are of device %d and device %d", (int)(events[0]->device - ignis__devices),
                    (int)(events[1]->device - ignis__devices));
    }
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
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    bool live;
    if (!event)
        return ignis__failed();
    live = ignis__handle_kill(event);
    if (!live)
        ignis__fail_stale(call, &ignis__events, handle.id);
    ignis__event_drop(event);
    return live ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static void ignis__events_close(const char *call)
{
    ignis__event *event;
    uint64_t index = 0;
    while ((event = (ignis__event *)ignis__pool_next(&ignis__events, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "event of device %d", (int)(event->device - ignis__devices));
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
    } else if ((callback = (ignis__callback *)ignis__alloc(sizeof *callback)) == NULL) {
        ignis__fail_host_memory(call, sizeof *callback);
    } else {
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
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capture_refuses(call) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return ignis__failed();
    ok = ignis__device_wait(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
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

typedef struct ignis__block {
    ignis__address address;
    int64_t size;
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
    ignis__pinned *lent, *spare;   /* by ignis_host_alloc; pieces that nobody copies through now */
    ignis__mutex lock;             /* which nobody holds during a call that may wait for the device: */
    ignis__mutex asking, trimming; /* taken before lock by who asks the driver for memory, and by who gives it back */
    ignis__cache_part *parts;
    ignis__block *segments;     /* their first blocks */
    ignis__block *spare_blocks; /* block structs for reuse, linked by `above` */
    ignis_memory_info info;
} ignis__cache;

static ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
static bool ignis__memory_bypass;
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

static void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved)
{
    ignis_memory_info *info = &cache->info;
    info->live_bytes += live;
    info->live_blocks += (live > 0) - (live < 0);
    info->reserved_bytes += reserved;
    info->segments += (reserved > 0) - (reserved < 0);
    if (info->live_bytes > info->live_peak)
        info->live_peak = info->live_bytes;
    if (info->reserved_bytes > info->reserved_peak)
        info->reserved_peak = info->reserved_bytes;
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

IGNIS__COLD static ignis_status ignis__fail_device_memory(const char *call, ignis__device *device, const ignis__cache *cache, int64_t size,
                                                          int error)
{
    size_t available = 0, total = 0;
    const ignis_memory_info *info = &cache->info;
    char limit[64] = "no limit is set";
    if (error != 0 && error != IGNIS__CU_OUT_OF_MEMORY)
        return ignis__cuda_fail(call, device, "cuMemAlloc_v2", error);
    (void)IGNIS__CUDA(cuMemGetInfo_v2, (&available, &total)); /* for the sentence only */
    if (info->limit)
        snprintf(limit, sizeof limit, "the limit is %lld", (long long)info->limit);
    return ignis__fail_because(
        IGNIS_DIAG_DEVICE_MEMORY, call, error, error ? ignis__cuda_name(error) : NULL, NULL,
        "out of memory on device %d: %lld bytes were asked for; arrays use %lld of %lld reserved bytes (largest free block %lld), %s, "
        "%lld bytes beside that are VMM memory, and the device has %lld of %lld bytes free",
        (int)(device - ignis__devices), (long long)size, (long long)info->live_bytes, (long long)info->reserved_bytes,
        (long long)ignis__cache_largest_free(cache), limit, (long long)info->vmm_bytes, (long long)available, (long long)total);
}

/*  Memory of at least `size` bytes for work on `stream`; null on failure. The device is entered. */
static ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size)
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
        ignis__memory_count(cache, block->size, 0);
    } else if (error == IGNIS__NO_HOST_MEMORY) {
        ignis__fail_host_memory(call, part ? sizeof *block : sizeof *part);
    } else if (!ignis__devices_lost()) {
        ignis__fail_device_memory(call, device, cache, size, error);
    }
    ignis__mutex_unlock(&cache->lock);
    return block;
}

/*  Gives memory back in the order of its stream. The device is entered. */
static void ignis__memory_give(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    ignis__memory_count(cache, -block->size, 0);
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
    ignis__block *block;
    ignis__mutex_lock(&cache->lock);
    part = ignis__cache_part_of(cache, capture ? (void *)capture : stream, capture != NULL, true);
    block = part ? part->zeroed : NULL;
    if (block) {
        part->zeroed = block->larger;
        block->larger = NULL;
        cache->info.allocations++;
        cache->info.cache_hits++;
        ignis__memory_count(cache, block->size, 0);
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
    ignis__memory_count(cache, -block->size, 0);
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

IGNIS__COLD static void ignis__memory_setup(int64_t limit, bool bypass)
{
    int i;
    ignis__memory_bypass = bypass;
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
}

/*  What the driver knows of an address: the type of memory, 0 where it knows none (pageable host memory), and its device. */
static bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type, int *ordinal)
{
    int attributes[2] = {IGNIS__CU_POINTER_MEMORY_TYPE, IGNIS__CU_POINTER_ORDINAL};
    void *values[2];
    *type = *ordinal = 0;
    values[0] = type;
    values[1] = ordinal;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  The allocation, or the reserved range of addresses, that an address lies in; a size of 0 where the driver does not tell. */
static bool ignis__address_range(const char *call, ignis__device *device, const void *ptr, ignis__address *start, size_t *size)
{
    int attributes[2] = {IGNIS__CU_POINTER_RANGE_START, IGNIS__CU_POINTER_RANGE_SIZE};
    void *values[2];
    *start = 0;
    *size = 0;
    values[0] = start;
    values[1] = size;
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

/*  Waits for the device first, as copies may still use the memory. It is freed also when the device cannot be entered; after a
    fault there is nothing to wait for, and the memory ends with the process. */
static ignis_status ignis__pinned_give(const char *call, ignis__device *device, void *memory, int64_t size)
{
    ignis__binding binding;
    bool entered, ok;
    ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)-size);
    if (ignis__devices_lost())
        return IGNIS_OK;
    entered = ignis__device_enter(call, device, &binding);
    ok = entered && ignis__device_wait(call, device);
    if (IGNIS__CUDA_FAILED(call, device, cuMemFreeHost, (memory)))
        ok = false;
    if (entered)
        ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  New pinned memory with what Ignis knows of it; null on failure. The device is entered. */
IGNIS__COLD static ignis__pinned *ignis__pinned_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__pinned *pinned = (ignis__pinned *)ignis__alloc(sizeof *pinned);
    if (!pinned) {
        ignis__fail_host_memory(call, sizeof *pinned);
        return NULL;
    }
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

/*  A piece to copy through, of IGNIS__PIECE bytes. ignis__pinned_keep among the spare ones gives it back. */
#define IGNIS__PIECE ((int64_t)1 << 20)
static ignis__pinned *ignis__piece_take(const char *call, ignis__device *device)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__pinned *piece;
    ignis__mutex_lock(&cache->lock);
    piece = cache->spare;
    if (piece)
        cache->spare = piece->next;
    ignis__mutex_unlock(&cache->lock);
    return piece ? piece : ignis__pinned_make(call, device, IGNIS__PIECE);
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
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!memory)
        return IGNIS_OK;
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
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!info)
        return ignis__fail_null(call, "info");
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
    ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no owner %d; IGNIS_OWNER_IGNIS, _NVCCL and _WNAIS are 1 to 3", (int)owner);
    return false;
}

static bool ignis__dtype_valid(const char *call, ignis_dtype dtype)
{
    if (dtype > IGNIS_DTYPE_DEFAULT && dtype < IGNIS_DTYPE_COUNT)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no dtype %d; IGNIS_F16 to IGNIS_U8 are %d to %d", (int)dtype, (int)IGNIS_F16,
                (int)IGNIS_U8);
    return false;
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
    if (shape->ndim < 1 || shape->ndim > IGNIS_MAX_DIMS) {
        ignis__fail(IGNIS_DIAG_SHAPE_RANK, call, "a shape has 1 to %d dimensions, this one has %d; IGNIS_SHAPE(1) is a single element",
                    IGNIS_MAX_DIMS, shape->ndim);
        return false;
    }
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0) {
            ignis__fail(IGNIS_DIAG_SHAPE_DIM, call, "dimension %d of shape %s is negative", i, ignis__shape_write(shape).text);
            return false;
        }
        if (shape->dim[i] == 0)
            empty = true;
        else
            fits = fits && ignis__multiply(product, shape->dim[i], &product);
    }
    if (!fits) {
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "shape %s of %s has more bytes than 63 bits can count", ignis__shape_write(shape).text,
                    ignis__dtypes[dtype].name);
        return false;
    }
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

/*  A double that rounds to every shorter type as the integer itself would: what a double cannot hold goes into its last bit. */
static double ignis__widen_int(int64_t value)
{
    const int64_t low = 0x7FF;
    if (value > -((int64_t)1 << 53) && value < (int64_t)1 << 53)
        return (double)value;
    return (double)((value & ~low) | (value & low ? low + 1 : 0));
}

static int64_t ignis__double_to_int(double value, int64_t lowest, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= (double)highest) /* for 2^63 - 1 that is 2^63, which is as well the first that does not fit */
        return highest;
    return value <= (double)lowest ? lowest : (int64_t)value;
}

IGNIS__MAYBE_UNUSED static int64_t ignis__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

IGNIS__ONE_COPY static int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

static bool ignis__dtype_is_int(ignis_dtype dtype) { return dtype >= IGNIS_I32; }

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

/*  Memory is taken at the first use. Other streams than its own that have used it are remembered, so that its next user can be
    ordered behind them without asking the caller. */
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
    ignis__storage *storage = (ignis__storage *)ignis__alloc(sizeof *storage);
    if (!storage) {
        ignis__fail_host_memory(call, sizeof *storage);
        return NULL;
    }
    ignis__mutex_init(&storage->lock);
    storage->device = device;
    storage->size = size;
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

/*  Notes that work on `stream` is about to use the memory, and orders it behind the stream that the memory came from: that one
    may not be done with the block's last user. */
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

/*  Gives the memory of a storage without users back behind all work that used it. Where the device cannot be entered the block stays out of
    use until ignis_shutdown frees its segment. */
static void ignis__storage_give(const char *call, ignis__storage *storage)
{
    ignis__device *unordered[IGNIS__COUNT(storage->used_on)];
    ignis__spare_event *last = NULL;
    ignis__binding binding, other;
    bool entered = !ignis__devices_lost() && ignis__device_enter(call, storage->device, &binding);
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
        if (!ignis__devices_lost() && ignis__device_enter(call, unordered[count], &other)) {
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
    void *from;
    bool ok = true;
    if (!capture)
        ignis__storage_enlist(storage, device, stream);
    ignis__mutex_lock(&storage->lock);
    if (!storage->stream) /* that of a capture ends with it */
        storage->stream = device == storage->device && !capture ? stream : storage->device->stream;
    if (!ignis__atomic_load(&storage->address) && storage->size > 0) {
        from = storage->stream;
        ignis__mutex_unlock(&storage->lock); /* this may wait for the device, and that for who waits for the lock */
        block = ignis__memory_take(call, storage->device, from, storage->size);
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
    ignis__fail(IGNIS_DIAG_ARRAY_FREED, call, "%s, freed by another thread meanwhile", ignis__array_label(array).text);
    return false;
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
    ignis__array *array = (ignis__array *)ignis__pool_take(call, &ignis__arrays);
    if (!array)
        return NULL;
    ignis__atomic_add(&storage->users, 1);
    array->storage = storage;
    array->offset = 0;
    array->numel = numel;
    ignis__shape_copy(&array->shape, shape);
    array->dtype = dtype;
    array->owner = IGNIS_OWNER_IGNIS;
    array->ref_count = 0;
    array->view = array->owned_by_refs = array->tracked_by_user = false;
    array->id = ignis__atomic_add(&ignis__array_ids, 1);
    array->parent = 0;
    array->created_at_ns = ignis__wall_ns();
    array->tracked_at_ns = 0;
    array->audit = 0;
    array->exports = 0;
    array->borrower = NULL;
    array->pinned = NULL;
    memset(array->tag, 0, sizeof array->tag);
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
    int type, ordinal, wanted = (int)(device - ignis__devices);
    ignis__address start, at = (ignis__address)(uintptr_t)ptr;
    size_t range;
    if (!ignis__address_query(call, device, ptr, &type, &ordinal) || !ignis__address_range(call, device, ptr, &start, &range))
        return false;
    if (type == 0 || type == IGNIS__CU_MEMORY_HOST) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.ptr %p is not device memory; copy host memory with ignis_array_from_host", ptr);
        return false;
    }
    if (ordinal != wanted) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "desc.ptr %p is memory of device %d, the array is to be on device %d", ptr, ordinal,
                    wanted);
        return false;
    }
    if (range && (uint64_t)size > start + range - at) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                    "the array has %lld bytes, but from desc.ptr %p on there are %llu left of the %llu of its memory", (long long)size, ptr,
                    (unsigned long long)(start + range - at), (unsigned long long)range);
        return false;
    }
    return true;
}

/*  The part of ignis_array_create that needs the device: a pointer to check, a stream to write down. */
IGNIS__COLD static bool ignis__array_attach(const char *call, ignis__device *device, ignis__storage *storage, const ignis_array_desc *desc)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = (!desc->ptr || storage->size == 0 || ignis__array_wrappable(call, device, desc->ptr, storage->size)) &&
         (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0);
    ignis__device_leave(&binding);
    storage->wrapped = desc->ptr != NULL;
    storage->address = (uint64_t)(uintptr_t)desc->ptr;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    if (ok) { /* what fails to become an array stays the caller's */
        storage->release_fn = desc->release_fn;
        storage->release_data = desc->release_data;
    }
    return ok;
}

static ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc)
{
    ignis_array handle = IGNIS__ZERO;
    ignis__device *device;
    ignis__storage *storage;
    ignis__array *array;
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_owner owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    int ordinal = desc->device == 0 ? ignis__thread_now()->device : desc->device == IGNIS_DEVICE_0 ? 0 : desc->device;
    int64_t numel;
    size_t length;

    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, owner) || !ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (device = ignis__device_get(call, ordinal)) == NULL ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return handle;
    array = (!desc->ptr && !desc->stream) || ignis__array_attach(call, device, storage, desc)
                ? ignis__array_make(call, storage, &desc->shape, dtype, numel)
                : NULL;
    if (!array) {
        ignis__storage_destroy(storage);
        return handle;
    }
    array->owner = owner;
    if (desc->tag) {
        length = strlen(desc->tag);
        memcpy(array->tag, desc->tag, length < sizeof array->tag ? length : sizeof array->tag - 1);
    }
    return ignis__array_publish(array);
}

IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_array_create";
    ignis_array none = IGNIS__ZERO;
    if (!ignis__enter(call))
        return none;
    if (!desc) {
        ignis__fail_null(call, "desc");
        return none;
    }
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
    ignis_array_desc desc;
    int ordinal = (int)(like->storage->device - ignis__devices);
    memset(&desc, 0, sizeof desc);
    desc.shape = like->shape;
    desc.dtype = dtype;
    desc.device = ordinal ? ordinal : IGNIS_DEVICE_0;
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

/*  Looks which of those are gone by now, before an array is refused; set there, too. Both are set before an array counts an export, so they
    are read after its lock. */
static void (*ignis__exports_reap)(const char *call, ignis__array *array);

/*  The array of a handle, held and locked for a change of its own fields; null, and reported, when there is none. */
IGNIS__ONE_COPY static ignis__array *ignis__array_enter(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  The same for calls of the contract: what other processes hold of the array no longer is let go of before. */
static ignis__array *ignis__array_enter_reaped(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_enter(call, handle);
    if (!array || array->exports == 0)
        return array;
    ignis__array_unlock(array);
    ignis__exports_reap(call, array);
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
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    ignis_owner owner;
    int ref_count = 0;
    bool ok = false;
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
    return ignis__array_end(call, array, ok);
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
    if (!info) {
        ignis__fail_null(call, "info");
        return ignis__array_leave(call, array, false);
    }
    storage = array->storage;
    address = ignis__atomic_load(&storage->address);
    info->id = array->id;
    info->shape = array->shape;
    info->dtype = array->dtype;
    info->device = (int)(storage->device - ignis__devices);
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
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name,
                    (int)(array->storage->device - ignis__devices), ignis__owner_name(array->owner), array->ref_count);
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
    if (!ignis__enter(call))
        return -1;
    if (!out && capacity) {
        ignis__fail_null(call, "out");
        return -1;
    }
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

/* --- work on arrays: an operation enters the device, gets addresses on the current stream, and leaves ------------------- */

typedef struct ignis__work {
    const char *call;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
} ignis__work;

static bool ignis__work_begin(const char *call, ignis__device *device, ignis__work *work)
{
    work->call = call;
    work->device = device;
    if (!ignis__device_enter(call, device, &work->binding))
        return false;
    work->stream = ignis__stream_now(device);
    return true;
}

static void ignis__work_end(const ignis__work *work) { ignis__device_leave(&work->binding); }

/*  The address of an array's first element; its memory is allocated if need be. */
static bool ignis__work_address(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    uint64_t base;
    if (!ignis__storage_use(work->call, array->storage, work->device, work->stream, &base))
        return false;
    *address = base && array->numel ? base + (uint64_t)array->offset : 0;
    return true;
}

/*  What has no elements is not written, whatever it is a view of. */
static void ignis__array_written(ignis__array *array)
{
    if (array->numel > 0)
        ignis__storage_written(array->storage);
}

/*  The address for work that writes the array. */
static bool ignis__work_write(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    if (!ignis__work_address(work, array, address))
        return false;
    ignis__array_written(array);
    return true;
}

/*  False, and reported: nobody has written what the array holds. */
static bool ignis__array_readable(const char *call, const ignis__array *array)
{
    bool readable = array->numel == 0 || ignis__storage_readable(array->storage);
    if (!readable && ignis__atomic_load(&array->storage->address) && array->storage->replays)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call, "%s is written by a graph, which was never launched", ignis__array_label(array).text);
    else if (!readable)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, call,
                    "%s was never written to; if the caller's own code did it, say so with ignis_array_mark_written",
                    ignis__array_label(array).text);
    return readable;
}

/*  The address for work that reads it, where memory that nobody has written is a mistake. */
static bool ignis__work_read(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    return ignis__array_readable(work->call, array) && ignis__work_address(work, array, address);
}

/*  The array of a handle, held, and its device entered for work on it; null, and reported, when that cannot be. */
IGNIS__ONE_COPY static ignis__array *ignis__array_work(const char *call, ignis_array handle, ignis__work *work)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__work_begin(call, array->storage->device, work))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  Ends that, also after it could not begin. */
IGNIS__ONE_COPY static ignis_status ignis__array_work_end(const ignis__work *work, ignis__array *array, bool ok)
{
    if (!array)
        return ignis__failed();
    ignis__work_end(work);
    return ignis__array_end(work->call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_device(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_to_device", handle, &work);
    ignis__address address;
    return ignis__array_work_end(&work, array, array && ignis__work_address(&work, array, &address));
}

IGNIS_API void *ignis_array_device_ptr(ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work("ignis_array_device_ptr", handle, &work);
    ignis__address address = 0;
    bool ok = array && ignis__work_address(&work, array, &address);
    if (ok)
        ignis__atomic_store(&array->storage->lent, 1);
    return ignis__array_work_end(&work, array, ok) == IGNIS_OK ? (void *)(uintptr_t)address : NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_mark_written(ignis_array handle)
{
    static const char call[] = "ignis_array_mark_written";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address;
    bool ok = array != NULL;
    if (ok && ignis__capture_on(array->storage->device)) { /* each launch writes there, so the graph has to know the memory */
        ok = ignis__work_begin(call, array->storage->device, &work);
        if (ok) {
            ok = ignis__work_write(&work, array, &address);
            ignis__work_end(&work);
        }
    } else if (ok) {
        ignis__array_written(array);
    }
    return ignis__array_end(call, array, ok);
}

static ignis_status ignis__array_set_zero(const char *call, ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__address address;
    bool ok = array && ignis__work_write(&work, array, &address);
    if (ok && array->numel)
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuMemsetD8Async, (address, 0, (size_t)ignis__array_bytes(array), work.stream));
    return ignis__array_work_end(&work, array, ok);
}

IGNIS_API ignis_status ignis_array_zero(ignis_array array) { return ignis__array_set_zero("ignis_array_zero", array); }

/*  The driver has read pageable memory when the copy call returns; pinned memory it reads later, so there Ignis waits. */
IGNIS__COLD static bool ignis__copy_from_host(const ignis__work *work, ignis__address to, const void *from, int64_t size)
{
    int type, ordinal;
    if (size == 0)
        return true;
    if (ignis__capture_refuses(work->call))
        return false;
    if (!ignis__address_query(work->call, work->device, from, &type, &ordinal) ||
        IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (to, from, (size_t)size, work->stream)))
        return false;
    return type == 0 || !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

IGNIS__COLD static bool ignis__copy_to_host(const ignis__work *work, void *to, ignis__address from, int64_t size)
{
    if (ignis__capture_refuses(work->call))
        return false;
    if (size > 0 && IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2, (to, from, (size_t)size, work->stream)))
        return false;
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

static bool ignis__copy_on_device(const ignis__work *work, ignis__address to, ignis__address from, int64_t size)
{
    return size == 0 || to == from ||
           !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoDAsync_v2, (to, from, (size_t)size, work->stream));
}

/*  Converting copies go through this many bytes of host memory. */
#define IGNIS__CONVERT_CHUNK ((int64_t)4 << 20)

static bool ignis__convert_from_host(const ignis__work *work, ignis__address to, ignis_dtype to_dtype, const void *from,
                                     ignis_dtype from_dtype, int64_t count)
{
    int64_t size = ignis__dtypes[to_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ignis__convert(chunk, to_dtype, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        ok = ignis__copy_from_host(work, to + (uint64_t)(done * size), chunk, part * size);
    }
    ignis__free(chunk);
    return ok;
}

static bool ignis__convert_to_host(const ignis__work *work, void *to, ignis_dtype to_dtype, ignis__address from, ignis_dtype from_dtype,
                                   int64_t count)
{
    int64_t size = ignis__dtypes[from_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ok = ignis__copy_to_host(work, chunk, from + (uint64_t)(done * size), part * size);
        if (ok)
            ignis__convert((char *)to + done * ignis__dtypes[to_dtype].size, to_dtype, chunk, from_dtype, part);
    }
    ignis__free(chunk);
    return ok;
}

/*  What the four transfers check: a host pointer, and as many elements or bytes as the array has. */
IGNIS__COLD static bool ignis__transfer_check(const char *call, const ignis__array *array, const void *host, const char *host_name,
                                              int64_t count, int64_t needed, const char *unit)
{
    if (count != needed) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "%s %s %s has %lld %s, the call says %lld", ignis__array_label(array).text,
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name, (long long)needed, unit, (long long)count);
        return false;
    }
    if (!host && needed > 0) {
        ignis__fail_null(call, host_name);
        return false;
    }
    return true;
}

IGNIS__COLD static ignis_status ignis__array_from_host(const char *call, ignis__array *array, const void *data, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = (array->numel == 0 || !ignis__capture_refuses(call)) && ignis__work_write(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_from_host(&work, address, data, ignis__array_bytes(array))
                                    : ignis__convert_from_host(&work, address, array->dtype, data, dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static ignis_status ignis__array_to_host(const char *call, ignis__array *array, void *out, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_to_host(&work, out, address, ignis__array_bytes(array))
                                    : ignis__convert_to_host(&work, out, dtype, address, array->dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host(ignis_array handle, const void *data, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_from_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") &&
         ignis__array_from_host(call, array, data, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array handle, const void *bytes, int64_t size)
{
    static const char call[] = "ignis_array_from_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, bytes, "bytes", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_from_host(call, array, bytes, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host(ignis_array handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_to_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, out, "out", count, array->numel, "elements") &&
         ignis__array_to_host(call, array, out, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array handle, void *out, int64_t size)
{
    static const char call[] = "ignis_array_to_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, out, "out", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_to_host(call, array, out, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

/* --- tickets: work that a call has begun and not waited for --------------------------------------------------------------- */

/*  A part of a transfer that goes through a piece: a thread of the driver copies or converts it, in its place in the stream. */
typedef struct ignis__transfer_part {
    void *to;
    const void *from;
    ignis_dtype to_dtype, from_dtype;
    int64_t count;
} ignis__transfer_part;

typedef struct ignis__ticket {
    ignis__slot slot;
    ignis__device *device;
    ignis__spare_event *done;    /* behind the work; null: there is nothing to wait for */
    ignis__pinned *piece;        /* null: none is needed */
    ignis__transfer_part *parts; /* what the driver's thread has to do */
    void (*run)(void *context);  /* on a thread of its own, which is joined by who waits; null: there is none */
    void *context;
    ignis__thread_handle thread;
    bool joined;
    uint64_t through;     /* 1: it has run */
    ignis__record record; /* what failed in it */
} ignis__ticket;

static ignis__pool ignis__tickets = IGNIS__POOL(ignis__ticket, IGNIS__KIND_TICKET, "ticket", IGNIS_DIAG_TICKET_FREED);

/*  A ticket with nothing in it, that only its maker sees; null on failure. */
static ignis__ticket *ignis__ticket_make(const char *call, ignis__device *device)
{
    ignis__ticket *ticket = (ignis__ticket *)ignis__pool_take(call, &ignis__tickets);
    if (ticket) {
        ticket->device = device;
        ticket->done = NULL;
        ticket->piece = NULL;
        ticket->parts = NULL;
        ticket->run = NULL;
        ticket->joined = false;
        ignis__atomic_store(&ticket->through, 0);
        memset(&ticket->record, 0, sizeof ticket->record);
    }
    return ticket;
}

static IGNIS__THREAD_RESULT ignis__ticket_thread(void *pointer)
{
    ignis__ticket *ticket = (ignis__ticket *)pointer;
    ticket->run(ticket->context);
    ticket->record = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof ticket->record);
    ignis__atomic_store(&ticket->through, 1);
    return 0;
}

/*  A ticket for what a new thread does; null on failure. */
static ignis__ticket *ignis__ticket_start(const char *call, ignis__device *device, void (*run)(void *context), void *context)
{
    ignis__ticket *ticket = ignis__ticket_make(call, device);
    if (!ticket)
        return NULL;
    ticket->run = run;
    ticket->context = context;
    if (ignis__thread_start(&ticket->thread, ignis__ticket_thread, ticket))
        return ticket;
    ignis__pool_give(&ignis__tickets, ticket);
    ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "the system has no thread to compile on");
    return NULL;
}

/*  Takes a ticket apart whose work is through. */
static void ignis__ticket_destroy(ignis__ticket *ticket)
{
    if (ticket->done)
        ignis__event_give(ticket->device, ticket->done);
    if (ticket->piece)
        ignis__pinned_keep(ticket->device, &ignis__caches[ticket->device - ignis__devices].spare, ticket->piece);
    ignis__free(ticket->parts);
    free(ticket->record.message);
    ignis__pool_give(&ignis__tickets, ticket);
}

static void ignis__ticket_drop(ignis__ticket *ticket)
{
    if (ignis__pool_drop(ticket))
        ignis__ticket_destroy(ticket);
}

static void ignis__transfer_part_run(void *context)
{
    const ignis__transfer_part *part = (const ignis__transfer_part *)context;
    if (part->to_dtype == part->from_dtype)
        memcpy(part->to, part->from, (size_t)(part->count * ignis__dtypes[part->to_dtype].size));
    else
        ignis__convert(part->to, part->to_dtype, part->from, part->from_dtype, part->count);
}

/*  Whether a transfer needs no piece: all of the host's memory is pinned, as its ends are. */
static bool ignis__transfer_direct(const ignis__work *work, const void *host, int64_t size, bool *direct)
{
    int first, last, ordinal;
    bool ok = ignis__address_query(work->call, work->device, host, &first, &ordinal) &&
              ignis__address_query(work->call, work->device, (const char *)host + size - 1, &last, &ordinal);
    *direct = ok && first != 0 && last != 0;
    return ok;
}

/*  Queues a transfer of an array that has elements; out or data is null. */
static bool ignis__transfer_queue(const ignis__work *work, ignis__ticket *ticket, ignis__address address, ignis_dtype array_dtype,
                                  void *out, const void *data, ignis_dtype dtype, int64_t count)
{
    int64_t size = ignis__dtypes[array_dtype].size, step = IGNIS__PIECE / size, done;
    ignis__transfer_part *part;
    bool direct = false, ok = true;
    if (dtype == array_dtype && !ignis__transfer_direct(work, out ? out : data, count * size, &direct))
        return false;
    if (direct && out)
        return !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2, (out, address, (size_t)(count * size), work->stream));
    if (direct)
        return !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (address, data, (size_t)(count * size), work->stream));
    ticket->parts = (ignis__transfer_part *)ignis__alloc((size_t)((count + step - 1) / step) * sizeof *part);
    if (!ticket->parts) {
        ignis__fail_host_memory(work->call, (size_t)((count + step - 1) / step) * sizeof *part);
        return false;
    }
    ticket->piece = ignis__piece_take(work->call, work->device);
    ok = ticket->piece != NULL;
    for (done = 0, part = ticket->parts; ok && done < count; done += part->count, part++) {
        ignis__address at = address + (uint64_t)(done * size);
        void *piece = ticket->piece->memory;
        part->count = count - done < step ? count - done : step;
        part->to = out ? (char *)out + done * ignis__dtypes[dtype].size : (char *)piece;
        part->from = out ? (const char *)piece : (const char *)data + done * ignis__dtypes[dtype].size;
        part->to_dtype = out ? dtype : array_dtype;
        part->from_dtype = out ? array_dtype : dtype;
        ok = (!out || !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2,
                                          (piece, at, (size_t)(part->count * size), work->stream))) &&
             !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchHostFunc, (work->stream, ignis__transfer_part_run, part)) &&
             (out ||
              !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (at, piece, (size_t)(part->count * size), work->stream)));
    }
    return ok;
}

IGNIS__COLD static ignis_ticket ignis__transfer_begin(const char *call, ignis_array handle, void *out, const void *data, ignis_dtype dtype,
                                                      int64_t count, bool to_host)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__ticket *ticket = NULL;
    ignis__address address = 0;
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) &&
         ignis__transfer_check(call, array, to_host ? out : data, to_host ? "out" : "data", count, array->numel, "elements") &&
         !ignis__capture_refuses(call) &&
         (to_host ? ignis__work_read(&work, array, &address) : ignis__work_write(&work, array, &address)) &&
         (ticket = ignis__ticket_make(call, work.device)) != NULL;
    if (ok && count > 0) {
        ok = ignis__transfer_queue(&work, ticket, address, array->dtype, out, data, dtype, count) &&
             (ticket->done = ignis__event_record(call, work.device, work.stream)) != NULL;
        if (!ok)
            (void)ignis__device_finish(work.device); /* what is queued already uses the host's memory and the piece */
    }
    if (ok)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else if (ticket)
        ignis__ticket_destroy(ticket);
    ignis__array_work_end(&work, array, ok);
    return result;
}

IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count)
{
    return ignis__transfer_begin("ignis_array_to_host_async", array, out, NULL, dtype, count, true);
}

IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype, int64_t count)
{
    return ignis__transfer_begin("ignis_array_from_host_async", array, NULL, data, dtype, count, false);
}

IGNIS_API ignis_status ignis_ticket_query(ignis_ticket handle, bool *done)
{
    static const char call[] = "ignis_ticket_query";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    ignis__binding binding;
    bool ok = done != NULL;
    if (!ticket)
        return ignis__failed();
    if (!done) {
        ignis__fail_null(call, "done");
    } else {
        *done = !ticket->run || ignis__atomic_load(&ticket->through);
        if (ticket->done && !ignis__devices_lost() && (ok = ignis__device_enter(call, ticket->device, &binding)) == true) {
            *done = IGNIS__CUDA(cuEventQuery, (ticket->done->event)) != IGNIS__CU_NOT_READY;
            ignis__device_leave(&binding);
        }
    }
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Waits for the work of a held ticket, and ends the ticket and the hold. */
static ignis_status ignis__ticket_finish(const char *call, ignis__ticket *ticket)
{
    ignis__binding binding;
    bool ok = true;
    if (ticket->done && (ok = ignis__device_enter(call, ticket->device, &binding)) == true) {
        ok = !IGNIS__CUDA_FAILED(call, ticket->device, cuEventSynchronize, (ticket->done->event));
        if (!ok)
            (void)ignis__device_finish(ticket->device); /* what the work uses is the caller's again from here on */
        ignis__device_leave(&binding);
    }
    if (ticket->run) {
        ignis__mutex_lock(&ticket->slot.lock);
        if (!ticket->joined)
            ignis__thread_join(ticket->thread);
        ticket->joined = true;
        ignis__mutex_unlock(&ticket->slot.lock);
        ok = ticket->record.status == IGNIS_OK || ignis__record_repeat(&ticket->record) == IGNIS_OK;
    }
    ignis__handle_kill(ticket);
    ignis__ticket_drop(ticket);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket handle)
{
    static const char call[] = "ignis_ticket_wait";
    ignis__ticket *ticket = (ignis__ticket *)ignis__handle_hold(call, &ignis__tickets, handle.id);
    return ticket ? ignis__ticket_finish(call, ticket) : ignis__failed();
}

/*  Tickets that nobody has waited for. */
IGNIS__COLD static void ignis__tickets_close(const char *call)
{
    ignis__ticket *ticket;
    uint64_t index = 0;
    while ((ticket = (ignis__ticket *)ignis__pool_next(&ignis__tickets, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "ticket of device %d, not waited for", (int)(ticket->device - ignis__devices));
        (void)ignis__ticket_finish(call, ticket);
    }
}

/*  Whether `size` bytes of dst from an offset on, which are about to be written, and those of src are the same, or apart. */
static bool ignis__array_apart(const char *call, const ignis__array *dst, int64_t offset, int64_t size, const ignis__array *src)
{
    uint64_t to = ignis__atomic_load(&dst->storage->address), from = ignis__atomic_load(&src->storage->address);
    uint64_t from_size = (uint64_t)ignis__array_bytes(src);
    if (!to || !from || size == 0 || from_size == 0)
        return true;
    to += (uint64_t)(dst->offset + offset);
    from += (uint64_t)src->offset;
    if (to + (uint64_t)size <= from || from + from_size <= to || (to == from && (uint64_t)size == from_size))
        return true;
    ignis__fail(IGNIS_DIAG_OVERLAP, call, "%s (%llu bytes at 0x%llx) is read while a part of it is written, as %lld bytes of %s at 0x%llx",
                ignis__array_label(src).text, (unsigned long long)from_size, (unsigned long long)from, (long long)size,
                ignis__array_label(dst).text, (unsigned long long)to);
    return false;
}

/*  Copies the bytes of src over those of dst from an offset on; both on one device. */
static bool ignis__array_copy_bytes(const char *call, ignis__array *dst, int64_t offset, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             ignis__copy_on_device(&work, to + (uint64_t)offset, from, ignis__array_bytes(src));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Frees an array that a failed call has made and not yet returned. */
IGNIS__ONE_COPY static void ignis__array_discard(const char *call, ignis_array *handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle->id);
    ignis__handle_kill(array);
    ignis__array_drop(call, array);
    handle->id = 0;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_clone(ignis_array handle)
{
    static const char call[] = "ignis_array_clone";
    ignis_array copy = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *made;
    if (!array)
        return copy;
    copy = ignis__array_create_like(call, array, array->dtype);
    if (copy.id) {
        made = (ignis__array *)ignis__pool_hold(&ignis__arrays, copy.id);
        if (!ignis__array_copy_bytes(call, made, 0, array))
            ignis__array_discard(call, &copy);
        ignis__array_drop(call, made);
    }
    ignis__array_drop(call, array);
    return copy;
}

IGNIS__COLD static ignis_array ignis__array_slice(const char *call, const ignis__array *array, int dim, int64_t start, int64_t len)
{
    ignis_array none = IGNIS__ZERO;
    ignis_shape shape = array->shape;
    int64_t leading = 1, trailing = 1, numel;
    int i;
    if (dim < 0 || dim >= shape.ndim) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "dim %d is outside shape %s", dim, ignis__shape_write(&shape).text);
        return none;
    }
    if (start < 0 || len < 0 || len > shape.dim[dim] || start > shape.dim[dim] - len) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "elements %lld to %lld + %lld are outside dim %d of shape %s", (long long)start,
                    (long long)start, (long long)len, dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = 0; i < dim; i++)
        leading = shape.dim[i] > 1 ? 2 : leading; /* more than one is all that counts */
    if (leading > 1) {
        ignis__fail(IGNIS_DIAG_SLICE_STRIDED, call,
                    "a slice of dim %d of shape %s is strided: its elements are not next to each other. A view can hold dim 0, or a dim "
                    "with only 1s "
                    "before it; copy strided slices with a kernel",
                    dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = dim + 1; i < shape.ndim; i++)
        trailing *= shape.dim[i];
    shape.dim[dim] = len;
    if (!ignis__shape_check(call, &shape, array->dtype, &numel))
        return none;
    return ignis__array_view(call, array, &shape, numel, array->numel ? start * trailing * ignis__dtypes[array->dtype].size : 0);
}

IGNIS_API ignis_array ignis_array_slice(ignis_array handle, int dim, int64_t start, int64_t len)
{
    static const char call[] = "ignis_array_slice";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return view;
    view = ignis__array_slice(call, array, dim, start, len);
    ignis__array_drop(call, array);
    return view;
}

/*  Replaces the one -1 of a shape by what is left of numel; a shape without it stays. */
static bool ignis__shape_infer(const char *call, ignis_shape *shape, int64_t numel)
{
    int64_t known = 1;
    int i, open = -1;
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++) {
        if (shape->dim[i] == -1 && open >= 0) {
            ignis__fail(IGNIS_DIAG_SHAPE_DIM, call, "shape %s leaves more than one dimension open", ignis__shape_write(shape).text);
            return false;
        }
        if (shape->dim[i] == -1)
            open = i;
        else if (shape->dim[i] < 0 || !ignis__multiply(known, shape->dim[i], &known))
            return true; /* the check that follows says what is wrong */
    }
    if (open >= 0 && (known == 0 || numel % known != 0)) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%lld elements cannot be laid out as %s", (long long)numel,
                    ignis__shape_write(shape).text);
        return false;
    }
    if (open >= 0)
        shape->dim[open] = numel / known;
    return true;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_reshape(ignis_array handle, ignis_shape shape)
{
    static const char call[] = "ignis_array_reshape";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return view;
    if (ignis__shape_infer(call, &shape, array->numel) && ignis__shape_check(call, &shape, array->dtype, &numel)) {
        if (numel != array->numel)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s %s has %lld elements, the new shape %s has %lld",
                        ignis__array_label(array).text, ignis__shape_write(&array->shape).text, (long long)array->numel,
                        ignis__shape_write(&shape).text, (long long)numel);
        else
            view = ignis__array_view(call, array, &shape, numel, 0);
    }
    ignis__array_drop(call, array);
    return view;
}

IGNIS__COLD static bool ignis__write_rows_check(const char *call, const ignis__array *dst, const ignis__array *src, int64_t start_row,
                                                int64_t *row_bytes)
{
    int64_t rows = dst->shape.dim[0];
    *row_bytes = rows && dst->numel ? ignis__array_bytes(dst) / rows : 0;
    if (dst->dtype != src->dtype) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, src is %s", ignis__dtypes[dst->dtype].name, ignis__dtypes[src->dtype].name);
        return false;
    }
    if (dst->storage->device != src->storage->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, src is on device %d",
                    (int)(dst->storage->device - ignis__devices), (int)(src->storage->device - ignis__devices));
        return false;
    }
    if (start_row < 0 || start_row > rows) {
        ignis__fail(IGNIS_DIAG_ROWS_OVERFLOW, call, "row %lld is outside dst %s", (long long)start_row,
                    ignis__shape_write(&dst->shape).text);
        return false;
    }
    if (src->numel && (*row_bytes == 0 || ignis__array_bytes(src) % *row_bytes != 0)) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "src %s is not a whole number of rows of dst %s", ignis__shape_write(&src->shape).text,
                    ignis__shape_write(&dst->shape).text);
        return false;
    }
    if (src->numel && ignis__array_bytes(src) / *row_bytes > rows - start_row) {
        ignis__fail(IGNIS_DIAG_ROWS_OVERFLOW, call, "writing %lld bytes at row %lld (offset %lld) goes beyond the %lld bytes of dst %s",
                    (long long)ignis__array_bytes(src), (long long)start_row, (long long)(start_row * *row_bytes),
                    (long long)ignis__array_bytes(dst), ignis__shape_write(&dst->shape).text);
        return false;
    }
    return true;
}

/*  Holds two or three arrays of one call; false when one is stale, with none held. A null handle pointer is skipped. */
static bool ignis__array_hold_all(const char *call, int count, const ignis_array *handles, ignis__array **arrays)
{
    int i;
    for (i = 0; i < count; i++) {
        arrays[i] = ignis__array_hold(call, handles[i]);
        if (!arrays[i]) {
            while (i > 0)
                ignis__array_drop(call, arrays[--i]);
            return false;
        }
    }
    return true;
}

IGNIS__ONE_COPY static void ignis__array_drop_all(const char *call, int count, ignis__array **arrays)
{
    while (count > 0)
        ignis__array_drop(call, arrays[--count]);
}

IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row)
{
    static const char call[] = "ignis_array_write_rows";
    ignis_array handles[2];
    ignis__array *arrays[2];
    int64_t row_bytes;
    bool ok;
    handles[0] = dst;
    handles[1] = src;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__write_rows_check(call, arrays[0], arrays[1], start_row, &row_bytes) &&
         ignis__array_apart(call, arrays[0], start_row * row_bytes, ignis__array_bytes(arrays[1]), arrays[1]) &&
         (arrays[1]->numel == 0 || ignis__array_copy_bytes(call, arrays[0], start_row * row_bytes, arrays[1]));
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Gives the array its pinned memory; null: asks whether it may have some. */
IGNIS__COLD static bool ignis__array_set_pinned(const char *call, ignis__array *array, void *memory)
{
    bool ok = ignis__array_lock(call, array);
    if (!ok)
        return false;
    ok = !array->pinned;
    if (ok)
        array->pinned = memory;
    else
        ignis__fail(IGNIS_DIAG_PIN_TWICE, call, "%s has pinned host memory already", ignis__array_label(array).text);
    ignis__array_unlock(array);
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_array_pin(ignis_array handle)
{
    static const char call[] = "ignis_array_pin";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__device *device;
    ignis__binding binding;
    void *pinned = NULL;
    if (!array)
        return NULL;
    device = array->storage->device;
    if (ignis__array_set_pinned(call, array, NULL) && array->numel > 0 && ignis__device_enter(call, device, &binding)) {
        pinned = ignis__pinned_take(call, device, ignis__array_bytes(array)); /* which may wait for the device: without the lock */
        if (pinned && !ignis__array_set_pinned(call, array, pinned)) {
            (void)ignis__pinned_give(call, device, pinned, ignis__array_bytes(array));
            pinned = NULL;
        }
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return pinned;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_unpin(ignis_array handle)
{
    static const char call[] = "ignis_array_unpin";
    ignis__array *array = ignis__array_enter(call, handle);
    void *pinned = NULL;
    bool ok = false;
    if (!array)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        return ignis__array_leave(call, array, false);
    if (array->owner != IGNIS_OWNER_IGNIS) {
        ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call,
                    "%s is owned by %s, which may be using its pinned host memory; that is freed when ignis owns the array",
                    ignis__array_label(array).text, ignis__owner_name(array->owner));
    } else if (!array->pinned && array->numel > 0) {
        ignis__fail(IGNIS_DIAG_PIN_MISSING, call, "%s has no pinned host memory", ignis__array_label(array).text);
    } else {
        ok = true;
        pinned = array->pinned;
        array->pinned = NULL;
    }
    ignis__array_unlock(array);
    if (pinned)
        ok = ignis__pinned_give(call, array->storage->device, pinned, ignis__array_bytes(array)) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS_API int ignis_array_increment_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_increment_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == INT_MAX)
        ignis__fail(IGNIS_DIAG_REF_COUNT_OVERFLOW, call, "%s has %d references, and no room for another", ignis__array_label(array).text,
                    array->ref_count);
    else
        count = ++array->ref_count;
    ignis__array_leave(call, array, true);
    return count;
}

IGNIS_API int ignis_array_decrement_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_decrement_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == 0)
        ignis__fail(IGNIS_DIAG_REF_COUNT_ZERO, call, "%s, owned by %s, has a ref_count of 0 already", ignis__array_label(array).text,
                    ignis__owner_name(array->owner));
    else
        count = ignis__array_unref(array);
    ignis__array_leave(call, array, true);
    return count;
}

/*  Moves ownership of a locked array. */
IGNIS__COLD static ignis_status ignis__array_transfer(const char *call, ignis__array *array, ignis_owner owner)
{
    if (array->exports > 0)
        return ignis__fail_exported(call, array, "given to another owner");
    if (array->ref_count > 1)
        return ignis__fail(IGNIS_DIAG_TRANSFER_REFERENCED, call, "%s cannot move from owner %s to %s while its ref_count is %d, above 1",
                           ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(owner), array->ref_count);
    array->owner = owner;
    array->borrower = NULL;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_array_transfer_ownership";
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    if (!array)
        return ignis__failed();
    return ignis__array_leave(call, array, ignis__owner_valid(call, owner) && ignis__array_transfer(call, array, owner) == IGNIS_OK);
}

/*  Every storage that has the stream as its own, or was used on it, takes Ignis' own stream instead. The stream is idle. */
IGNIS__COLD static void ignis__storages_forget_stream(ignis__device *device, void *stream)
{
    ignis__storage *storage;
    ignis__mutex_lock(&ignis__storages.lock);
    for (storage = ignis__storages.first; storage; storage = storage->next) {
        int i;
        ignis__mutex_lock(&storage->lock);
        if (storage->device == device && storage->stream == stream) {
            ignis__atomic_store(&storage->at_hand, 0);
            storage->stream = device->stream;
        }
        if (storage->device == device && storage->summed_on == stream)
            storage->summed_on = NULL;
        for (i = 0; i < storage->used_on_count; i++)
            if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
                storage->used_on[i--] = storage->used_on[--storage->used_on_count];
        ignis__mutex_unlock(&storage->lock);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  Waits for a stream, and takes it out of all that has to do with it. created: it is one of ignis_stream_create, which has to be known. */
IGNIS__COLD static ignis_status ignis__stream_forget(const char *call, void *stream, bool created)
{
    ignis_status status = IGNIS_OK;
    bool found = !created;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capture_refuses(call))
        return ignis__failed();
    if (!stream)
        return ignis__fail_null(call, "stream");
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__foreign_stream *foreign, **link;
        ignis__binding binding;
        bool entered, ok;
        if (!ignis__atomic_load(&device->opened))
            continue;
        ignis__mutex_lock(&device->lock);
        for (link = &device->foreign; *link && (*link)->stream != stream; link = &(*link)->next)
            ;
        foreign = *link;
        found = foreign ? foreign->created == created : found;
        if (foreign && found)
            *link = foreign->next;
        ignis__mutex_unlock(&device->lock);
        if (!foreign || !found)
            continue;
        ignis__atomic_add(&ignis__stream_forgets, 1);
        entered = ignis__device_enter(call, device, &binding);
        ok = entered && !IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream));
        ignis__mutex_lock(&foreign->lock); /* the stream is idle: a thread that waits for it does not for long */
        foreign->forgotten = true;
        ignis__mutex_unlock(&foreign->lock);
        ignis__foreign_drop(device, foreign);
        if (!ok)
            status = ignis__failed();
        if (entered && !ok)
            (void)ignis__device_finish(device); /* what was the stream's is used again from here on */
        if (entered) {
            ignis__storages_forget_stream(device, stream);
            (void)IGNIS__CUDA(cuStreamSynchronize, (stream)); /* arrays that were freed until then have made it wait for other streams */
            ignis__memory_forget_stream(device, stream);
            ignis__device_leave(&binding);
        }
    }
    if (found)
        return status;
    return ignis__fail(IGNIS_DIAG_STREAM_INVALID, call,
                       created ? "stream %p is none of ignis_stream_create, or was freed already"
                               : "stream %p is one of ignis_stream_create: free it with ignis_stream_free",
                       stream);
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_forget(void *stream) { return ignis__stream_forget("ignis_stream_forget", stream, false); }

IGNIS__COLD IGNIS_API ignis_status ignis_stream_free(void *stream)
{
    ignis_status status = ignis__stream_forget("ignis_stream_free", stream, true);
    if (status != IGNIS_ERROR_ARGUMENT && status != IGNIS_ERROR_NOT_SETUP && status != IGNIS_ERROR_UNSUPPORTED)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream)); /* it is this thread's alone, whatever its work ended with */
    return status;
}

/* ===============================================================================================================
   >>contract - acquire, release, assert, track, audit.
   =============================================================================================================== */

/*  What is tracked is kept in the array itself, under its lock; the tracking lock guards the counts and the freed ones. */
static void ignis__track(ignis__array *array, bool by_user)
{
    bool fresh = array->tracked_at_ns == 0;
    if (fresh || by_user)
        array->tracked_at_ns = ignis__monotonic_ns();
    array->tracked_by_user = array->tracked_by_user || by_user;
    if (fresh) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live++;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
}

static void ignis__untrack(ignis__array *array)
{
    if (array->tracked_at_ns) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live--;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
    array->tracked_at_ns = 0;
    array->tracked_by_user = false;
}

/*  Makes a layer the owner of a held array until a call of it ends; the borrower tells the call from others, and may borrow an array again.
    Unlike ignis_contract_acquire it does not mind references, and leaves no trace: ignis__contract_return gives the array back. */
IGNIS__MAYBE_UNUSED static bool ignis__contract_borrow(const char *call, ignis__array *array, ignis_owner by, const void *borrower)
{
    ignis_owner owner;
    bool again;
    if (!ignis__array_lock(call, array))
        return false;
    owner = array->owner;
    again = array->borrower == borrower;
    if (owner == IGNIS_OWNER_IGNIS) {
        array->owner = by;
        array->borrower = borrower;
    }
    ignis__array_unlock(array);
    if (owner == IGNIS_OWNER_IGNIS || again)
        return true;
    if (owner == by)
        ignis__fail(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "%s is owned by %s already: another thread's call works on it, or it was acquired",
                    ignis__array_label(array).text, ignis__owner_name(owner));
    else
        ignis__fail(IGNIS_DIAG_OWNER_DIFFERS, call, "%s is owned by %s, which has to release it first", ignis__array_label(array).text,
                    ignis__owner_name(owner));
    return false;
}

IGNIS__MAYBE_UNUSED static void ignis__contract_return(ignis__array *array, const void *borrower)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->borrower == borrower) {
        array->owner = IGNIS_OWNER_IGNIS;
        array->borrower = NULL;
    }
    ignis__array_unlock(array);
}

IGNIS_API ignis_status ignis_contract_acquire(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_acquire";
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner == by) {
        ignis__fail(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "%s is already owned by %s: a double acquire", ignis__array_label(array).text,
                    ignis__owner_name(by));
        ok = false;
    }
    ok = ok && ignis__array_transfer(call, array, by) == IGNIS_OK;
    if (ok)
        ignis__track(array, false);
    return ignis__array_leave(call, array, ok);
}

IGNIS_API ignis_status ignis_contract_release(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_release";
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner != by) {
        ignis__fail(IGNIS_DIAG_RELEASE_BY_OTHER, call, "%s is owned by %s, not by %s, which therefore cannot release it",
                    ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(by));
        ok = false;
    }
    return ignis__array_leave(call, array, ok && ignis__array_transfer(call, array, IGNIS_OWNER_IGNIS) == IGNIS_OK);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_contract_assert_owner";
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, owner);
    if (ok && array->owner != owner) {
        ignis__fail(IGNIS_DIAG_OWNER_DIFFERS, call, "%s was expected to be owned by %s, but is owned by %s", ignis__array_label(array).text,
                    ignis__owner_name(owner), ignis__owner_name(array->owner));
        ok = false;
    }
    return ignis__array_leave(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_track(ignis_array handle)
{
    static const char call[] = "ignis_contract_track";
    ignis__array *array = ignis__array_enter_reaped(call, handle);
    if (!array)
        return ignis__failed();
    ignis__track(array, true);
    return ignis__array_leave(call, array, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_untrack(ignis_array handle)
{
    static const char call[] = "ignis_contract_untrack";
    ignis__tracked_freed **link;
    ignis__array *array;
    bool live;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        live = ignis__pool_live(array); /* else another thread has freed it meanwhile */
        if (live)
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        if (live)
            return IGNIS_OK;
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (link = &ignis__tracking.freed; *link && (*link)->handle != handle.id; link = &(*link)->next)
        ;
    if (*link) {
        ignis__tracked_freed *freed = *link;
        *link = freed->next;
        ignis__tracking.freed_count--;
        ignis__free(freed);
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
    return IGNIS_OK;
}

static int ignis__audit_older(const void *a, const void *b)
{
    int64_t age_a = ((const ignis_contract_entry *)a)->age_ms, age_b = ((const ignis_contract_entry *)b)->age_ms;
    uint64_t id_a = ((const ignis_contract_entry *)a)->array_id, id_b = ((const ignis_contract_entry *)b)->array_id;
    return age_a != age_b ? (age_a < age_b) - (age_a > age_b) : (id_a > id_b) - (id_a < id_b);
}

/*  Audits are one at a time, and numbered: an array that is freed between the look at those that live and that at the freed ones is listed
    once. */
static struct {
    ignis__mutex lock;
    uint64_t count;
} ignis__audits = {IGNIS__MUTEX_INIT, 0};

/*  Collects the oldest `capacity` entries in the order of their age; returns how many there are in all. */
typedef struct ignis__audit {
    ignis_contract_entry *entries;
    int capacity, kept, found;
    int64_t now_ns, min_age_ms;
} ignis__audit;

IGNIS__COLD static void ignis__audit_add(ignis__audit *audit, ignis_contract_entry *entry, int64_t tracked_at_ns)
{
    int place;
    entry->age_ms = (audit->now_ns - tracked_at_ns) / 1000000;
    if (entry->age_ms <= audit->min_age_ms)
        return;
    audit->found++;
    for (place = audit->kept; place > 0 && ignis__audit_older(entry, &audit->entries[place - 1]) < 0; place--)
        if (place < audit->capacity)
            audit->entries[place] = audit->entries[place - 1];
    if (place < audit->capacity)
        audit->entries[place] = *entry;
    if (audit->kept < audit->capacity)
        audit->kept++;
}

IGNIS__COLD IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms)
{
    static const char call[] = "ignis_contract_audit";
    ignis__audit audit = IGNIS__ZERO;
    ignis__tracked_freed *freed;
    ignis__slot *dead = NULL;
    ignis__array *array;
    uint64_t index = 0;
    if (!ignis__enter(call))
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
        return -1;
    }
    if (!entries && capacity > 0) {
        ignis__fail_null(call, "entries");
        return -1;
    }
    while (ignis__exports_reap && (array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        bool exported;
        ignis__mutex_lock(&array->slot.lock);
        exported = array->exports > 0;
        ignis__mutex_unlock(&array->slot.lock);
        if (exported)
            ignis__exports_reap(call, array);
        ignis__array_drop(call, array);
    }
    audit.entries = entries;
    audit.capacity = capacity;
    audit.now_ns = ignis__monotonic_ns();
    audit.min_age_ms = min_age_ms == 0 ? 5000 : min_age_ms;
    index = 0;
    ignis__mutex_lock(&ignis__audits.lock);
    ignis__audits.count++;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis_contract_entry entry;
        ignis__mutex_lock(&array->slot.lock);
        if (array->tracked_at_ns && ignis__pool_live(array)) {
            ignis__track_entry(array, &entry);
            ignis__audit_add(&audit, &entry, array->tracked_at_ns);
            array->audit = ignis__audits.count;
        }
        ignis__array_unlock(array);
        if (ignis__pool_drop(array)) { /* another thread has freed it meanwhile */
            array->slot.next_free = dead;
            dead = &array->slot;
        }
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (freed = ignis__tracking.freed; freed; freed = freed->next)
        if (freed->audit != ignis__audits.count)
            ignis__audit_add(&audit, &freed->entry, freed->tracked_at_ns);
    ignis__mutex_unlock(&ignis__tracking.lock);
    ignis__mutex_unlock(&ignis__audits.lock);
    while (dead) { /* without the lock: who is told of the release of wrapped memory may audit, too */
        array = (ignis__array *)(void *)dead;
        dead = dead->next_free;
        ignis__array_destroy(call, array);
    }
    return audit.found;
}

IGNIS_API int ignis_contract_tracked_count(void)
{
    int count;
    if (!ignis__enter("ignis_contract_tracked_count"))
        return -1;
    ignis__mutex_lock(&ignis__tracking.lock);
    count = ignis__tracking.live + ignis__tracking.freed_count;
    ignis__mutex_unlock(&ignis__tracking.lock);
    return count;
}

IGNIS__COLD static void ignis__tracking_reset(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    while (ignis__tracking.freed) {
        ignis__tracked_freed *freed = ignis__tracking.freed;
        ignis__tracking.freed = freed->next;
        ignis__tracking.freed_count--;
        ignis__free(freed);
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

IGNIS_API ignis_status ignis_contract_reset(void)
{
    static const char call[] = "ignis_contract_reset";
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tracking_reset(call);
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, Ignis' own kernels.
   =============================================================================================================== */

#include "ignis_kernels.h"

#if !defined(IGNIS_KERNELS_VERSION) || IGNIS_KERNELS_VERSION != IGNIS_VERSION
#error "ignis.h and ignis_kernels.h are of different versions: copy all headers of Ignis from one release"
#endif

enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  What is compiled: text, options, headers, and the name that is looked up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
    const ignis_kernel_header *headers; /* beside those of Ignis */
    int header_count;
} ignis__program;

/*  What comes out: an image for one architecture, and the entry's name in it, in one block of memory. */
typedef struct ignis__image {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    uint64_t holds;            /* of the memory cache, and of those who load it */
    struct ignis__image *next; /* in the memory cache */
} ignis__image;

/*  Every kernel has a module of its own, loaded from an image, so that its __device__ variables are its own too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */

static struct {
    ignis__mutex lock;
    ignis__image *images;       /* the memory cache, last used first */
    ignis__mutex compiling[16]; /* by key: who asks for a program that is being compiled waits for it */
    char cache_dir[900];        /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken; /* a warning was given */
} ignis__kernels_state;

IGNIS__COLD static char *ignis__source_join(const ignis__source *source)
{
    size_t size = 1, used = 0, length;
    char *text;
    int i;
    for (i = 0; i < source->line_count; i++)
        size += strlen(source->lines[i]) + 1;
    text = (char *)ignis__alloc(size);
    for (i = 0; text && i < source->line_count; i++) {
        length = strlen(source->lines[i]);
        memcpy(text + used, source->lines[i], length);
        used += length;
        text[used++] = '\n';
    }
    return text;
}

/*  Sources that others include. NVRTC gets them from memory, by their names. */
static bool ignis__source_is_header(int source) { return strstr(ignis__sources[source].name, ".cuh") != NULL; }

/* --- the disk cache ----------------------------------------------------------------------------------------------- */

/*  One file an image, named by its key: a header, the lowered name, the image. A file is written under another name and then
    renamed, so a reader meets a whole file or none; whatever is not whole is compiled again. */
typedef struct ignis__cache_header {
    char magic[8];
    uint64_t key[2];
    uint64_t lowered_size, image_size;
    uint64_t checksum; /* of what follows */
} ignis__cache_header;

static const char ignis__cache_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'I', '1'};

IGNIS__COLD static void ignis__cache_path(char *path, size_t size, const uint64_t key[2])
{
    snprintf(path, size, "%s/%016llx%016llx.ignis", ignis__kernels_state.cache_dir, (unsigned long long)key[0], (unsigned long long)key[1]);
}

IGNIS__COLD static void ignis__cache_warn(const char *what, const char *path)
{
    bool warned;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    warned = ignis__kernels_state.cache_broken;
    ignis__kernels_state.cache_broken = true;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!warned)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_CACHE_IO,
                    "ignis_kernel_compile: cannot %s %s; kernels are compiled again in every process. ignis_desc.cache_dir or "
                    "IGNIS_CACHE_DIR names "
                    "another folder, \"off\" none",
                    what, path);
}

IGNIS__COLD static bool ignis__image_from_disk(ignis__image *image)
{
    char path[1024];
    ignis__cache_header header;
    size_t size = 0, body;
    char *file;
    if (!ignis__kernels_state.cache_dir[0])
        return false;
    ignis__cache_path(path, sizeof path, image->key);
    file = (char *)ignis__file_read(path, &size);
    if (!file)
        return false;
    if (size < sizeof header)
        goto damaged;
    memcpy(&header, file, sizeof header);
    body = size - sizeof header;
    if (memcmp(header.magic, ignis__cache_magic, sizeof header.magic) != 0 || header.key[0] != image->key[0] ||
        header.key[1] != image->key[1] || header.lowered_size < 1 || header.lowered_size > body ||
        header.image_size != body - header.lowered_size || header.checksum != ignis__hash(IGNIS__HASH_START, file + sizeof header, body) ||
        file[sizeof header + header.lowered_size - 1] != 0)
        goto damaged;
    image->memory = file;
    image->lowered = file + sizeof header;
    image->data = file + sizeof header + header.lowered_size;
    image->size = (size_t)header.image_size;
    ignis__file_touch(path); /* the least recently used file is the first to go */
    return true;
damaged:
    ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_CACHE_IO, "ignis_kernel_compile: %s is damaged, and is made again", path);
    ignis__free(file);
    return false;
}

/*  Finds the oldest file of the cache, and the bytes of all. */
typedef struct ignis__cache_scan {
    int64_t total, oldest_time, oldest_size;
    char oldest[1024];
} ignis__cache_scan;

IGNIS__COLD static void ignis__cache_scan_file(void *context, const char *name)
{
    ignis__cache_scan *scan = (ignis__cache_scan *)context;
    char path[1024];
    int64_t size, time;
    const char *dot = strrchr(name, '.');
    bool ours = dot && (strcmp(dot, ".ignis") == 0 || strcmp(dot, ".ignis-part") == 0);
    snprintf(path, sizeof path, "%s/%s", ignis__kernels_state.cache_dir, name);
    if (!ours || !ignis__file_info(path, &size, &time))
        return;
    scan->total += size;
    if (!scan->oldest[0] || time < scan->oldest_time) {
        scan->oldest_time = time;
        scan->oldest_size = size;
        snprintf(scan->oldest, sizeof scan->oldest, "%s", path);
    }
}

IGNIS__COLD static void ignis__cache_evict(void)
{
    ignis__cache_scan scan;
    do {
        memset(&scan, 0, sizeof scan);
        if (!ignis__folder_list(ignis__kernels_state.cache_dir, ignis__cache_scan_file, &scan) ||
            scan.total <= ignis__kernels_state.cache_limit)
            return;
    } while (remove(scan.oldest) == 0);
}

IGNIS__COLD static void ignis__image_to_disk(const ignis__image *image)
{
    static uint64_t serial; /* two threads may write one file */
    char path[1024], part[1100];
    ignis__cache_header header;
    size_t lowered_size = strlen(image->lowered) + 1;
    FILE *file;
    bool ok;
    if (!ignis__kernels_state.cache_dir[0])
        return;
    if (!ignis__folder_make_all(ignis__kernels_state.cache_dir)) {
        ignis__cache_warn("make the folder", ignis__kernels_state.cache_dir);
        return;
    }
    memcpy(header.magic, ignis__cache_magic, sizeof header.magic);
    memcpy(header.key, image->key, sizeof header.key);
    header.lowered_size = lowered_size;
    header.image_size = image->size;
    header.checksum = ignis__hash(ignis__hash(IGNIS__HASH_START, image->lowered, lowered_size), image->data, image->size);
    ignis__cache_path(path, sizeof path, image->key);
    snprintf(part, sizeof part, "%s.%lu-%llu.ignis-part", path, ignis__process_id(), (unsigned long long)ignis__atomic_add(&serial, 1));
    file = fopen(part, "wb");
    if (!file) {
        ignis__cache_warn("write", part);
        return;
    }
    ok = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(image->lowered, lowered_size, 1, file) == 1 &&
         fwrite(image->data, image->size, 1, file) == 1;
    ok = fclose(file) == 0 && ok;
    ok = ok && ignis__file_rename(part, path);
    if (!ok) {
        remove(part);
        ignis__cache_warn("write", path);
    }
    ignis__cache_evict();
}

/* --- the key of an image ---------------------------------------------------------------------------------------------- */

IGNIS__COLD static void ignis__key_add_bytes(uint64_t key[2], const void *data, size_t size)
{
    key[0] = ignis__hash(key[0], data, size);
    key[1] = ignis__hash(key[1] * 3, data, size);
}

IGNIS__COLD static void ignis__key_add(uint64_t key[2], const char *text) { ignis__key_add_bytes(key, text, strlen(text) + 1); }

/*  NVRTC reads included files from the folder of the source, of the including file and of each -I, and does not tell which it read. So every
    file that an #include could mean is looked for, and its text becomes part of the key: one too many does no harm. */
typedef struct ignis__included {
    struct ignis__included *next;
    char path[1024], tidy[1024];
    int64_t size, time;
} ignis__included;

typedef struct ignis__include_search {
    const ignis__program *program;
    ignis__included *first, **last; /* each file once, in the order it was found */
    int count;
    bool complete; /* every #include was understood, and every file could be listed */
} ignis__include_search;

#define IGNIS__MAX_INCLUDED 10000 /* more are a cycle of links */

static size_t ignis__folder_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] != '/' && path[length - 1] != '\\')
        length--;
    return length;
}

/*  Takes "folder/../" and "./" out of a path, so that headers that include each other are known again under ever longer names. What is left need
    not be the file: the folder may be a link to one elsewhere. */
static void ignis__path_tidy(char *path)
{
    char *at = path, *up, *folder;
    while ((up = strstr(path, "/./")) != NULL)
        memmove(up, up + 2, strlen(up + 2) + 1);
    while ((up = strstr(at, "/../")) != NULL) {
        for (folder = up; folder > path && folder[-1] != '/'; folder--)
            ;
        if (folder == up || strncmp(folder, "../", 3) == 0) {
            at = up + 3;
        } else {
            memmove(folder, up + 4, strlen(up + 4) + 1);
            at = path;
        }
    }
}

/*  Lists the file `name` of a folder, if there is one. */
IGNIS__COLD static void ignis__include_add(ignis__include_search *search, const char *folder, size_t folder_length, const char *name,
                                           size_t name_length)
{
    ignis__included *file;
    char path[sizeof file->path], tidy[sizeof file->tidy];
    bool slash = folder_length > 0 && folder[folder_length - 1] != '/' && folder[folder_length - 1] != '\\';
    int64_t size, time;
    int length = snprintf(path, sizeof path, "%.*s%s%.*s", (int)folder_length, folder, slash ? "/" : "", (int)name_length, name);
    if (length >= (int)sizeof path) {
        search->complete = false;
        return;
    }
    if (!ignis__file_info(path, &size, &time))
        return;
    memcpy(tidy, path, sizeof path);
    ignis__path_tidy(tidy);
    for (file = search->first; file; file = file->next)
        if (file->size == size && file->time == time && strcmp(file->tidy, tidy) == 0)
            return;
    file = search->count < IGNIS__MAX_INCLUDED ? (ignis__included *)ignis__alloc(sizeof *file) : NULL;
    if (!file) {
        search->complete = false;
        return;
    }
    memcpy(file->path, path, sizeof path);
    memcpy(file->tidy, tidy, sizeof tidy);
    file->size = size;
    file->time = time;
    *search->last = file;
    search->last = &file->next;
    search->count++;
}

/*  What an option names: the folder of "-Ifolder", "-I=folder", "--include-path=folder", the file of "-include=file", or what follows such
    an option as a string of its own. "" for macros. What names neither does no harm. */
static const char *ignis__option_value(const char *option)
{
    if (option[0] != '-')
        return option;
    if (option[1] == 'D' || option[1] == 'U')
        return "";
    option += option[1] == 'I' ? 2 : strcspn(option, "= ");
    return option + strspn(option, "= ");
}

static bool ignis__header_is_known(const ignis__program *program, const char *name, size_t length)
{
    int i;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++)
        if (ignis__source_is_header(i) && strlen(ignis__sources[i].name) == length && memcmp(ignis__sources[i].name, name, length) == 0)
            return true;
    for (i = 0; i < program->header_count; i++)
        if (strlen(program->headers[i].name) == length && memcmp(program->headers[i].name, name, length) == 0)
            return true;
    return false;
}

/*  Lists what an #include of a name in a file could mean: no file when there is such a header in memory. */
IGNIS__COLD static void ignis__include_find(ignis__include_search *search, const char *includer, const char *name, size_t length)
{
    const ignis__program *program = search->program;
    int i;
    if (length == 0 || ignis__header_is_known(program, name, length))
        return;
    ignis__include_add(search, "", 0, name, length);
    ignis__include_add(search, includer, ignis__folder_length(includer), name, length);
    ignis__include_add(search, program->name, ignis__folder_length(program->name), name, length);
    for (i = 0; i < program->option_count; i++) {
        const char *folder = ignis__option_value(program->options[i]);
        if (*folder)
            ignis__include_add(search, folder, strlen(folder), name, length);
    }
}

/*  Whether a word of a text goes on in the next line, behind a backslash. */
IGNIS__COLD static bool ignis__word_is_split(const char *text)
{
    const char *at = text, *next;
    while ((at = strchr(at, '\\')) != NULL) {
        next = at + 1 + (at[1] == '\r');
        if (*next == '\n' && at > text && at[-1] >= 'a' && at[-1] <= 'z' && next[1] >= 'a' && next[1] <= 'z')
            return true;
        at++;
    }
    return false;
}

/*  Finds each #include and __has_include of a text, also those that conditions or comments leave out. */
IGNIS__COLD static void ignis__include_scan(ignis__include_search *search, const char *includer, const char *text)
{
    const char *at = text, *before, *behind, *end;
    if (ignis__word_is_split(text)) /* it may be an include */
        search->complete = false;
    while ((at = strstr(at, "include")) != NULL) {
        bool asks = at - text >= 6 && strncmp(at - 6, "__has_", 6) == 0;
        for (before = at; before > text && (before[-1] == ' ' || before[-1] == '\t'); before--)
            ;
        at += strlen("include");
        behind = at += strncmp(at, "_next", 5) == 0 ? 5 : 0;
        at += strspn(at, " \t(");
        end = *at == '"' || *at == '<' ? at + 1 + strcspn(at + 1, *at == '"' ? "\"\n" : ">\n") : NULL;
        if (end && *end && *end != '\n')
            ignis__include_find(search, includer, at + 1, (size_t)(end - at - 1));
        else if (asks
                     ? memchr(behind, '(', (size_t)(at - behind)) != NULL
                     : before > text && (before[-1] == '#' || (before - 2 >= text && strchr("%*", before[-2]) && strchr(":/", before[-1]))))
            search->complete = false; /* its name is a macro, in the next line, or behind a comment */
    }
}

/*  Adds all files that a program may include to a key. False: it cannot be told which. */
IGNIS__COLD static bool ignis__key_add_included(const ignis__program *program, uint64_t key[2])
{
    ignis__include_search search = IGNIS__ZERO;
    ignis__included *file;
    int i;
    search.program = program;
    search.last = &search.first;
    search.complete = true;
    ignis__include_scan(&search, program->name, program->source);
    for (i = 0; i < program->header_count; i++)
        ignis__include_scan(&search, program->headers[i].name, program->headers[i].text);
    for (i = 0; i < program->option_count; i++) {
        const char *name = ignis__option_value(program->options[i]);
        ignis__include_find(&search, program->name, name, strlen(name));
    }
    for (file = search.first; file; file = file->next) {
        size_t size;
        char *text = (char *)ignis__file_read(file->path, &size);
        if (text) {
            ignis__key_add(key, file->path);
            ignis__key_add_bytes(key, text, size);
            ignis__include_scan(&search, file->path, text);
        }
        search.complete = search.complete && text;
        ignis__free(text);
    }
    while ((file = search.first) != NULL) {
        search.first = file->next;
        ignis__free(file);
    }
    return search.complete;
}

/*  Everything that the image depends on. False: there is more than can be told, so it must not be cached. */
IGNIS__COLD static bool ignis__image_key(const ignis__program *program, const ignis__device *device, uint64_t key[2])
{
    char facts[256];
    int i;
    key[0] = IGNIS__HASH_START;
    key[1] = ~IGNIS__HASH_START;
    snprintf(facts, sizeof facts, "nvrtc %llx sm %d.%d, %d options, %d headers",
             (unsigned long long)ignis__libraries[IGNIS_LIBRARY_NVRTC].release, device->info.compute_major, device->info.compute_minor,
             program->option_count, program->header_count);
    ignis__key_add(key, facts);
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++) {
        if (!ignis__source_is_header(i))
            continue;
        snprintf(facts, sizeof facts, "%016llx", (unsigned long long)ignis__sources[i].hash);
        ignis__key_add(key, facts);
    }
    ignis__key_add(key, program->source);
    ignis__key_add(key, program->name);
    ignis__key_add(key, program->entry ? program->entry : "");
    for (i = 0; i < program->option_count; i++)
        ignis__key_add(key, program->options[i]);
    for (i = 0; i < program->header_count; i++) {
        ignis__key_add(key, program->headers[i].name);
        ignis__key_add(key, program->headers[i].text);
    }
    return ignis__key_add_included(program, key);
}

/* --- compiling ------------------------------------------------------------------------------------------------------ */

IGNIS__COLD static ignis_status ignis__nvrtc_fail(const char *call, const char *function, int error)
{
    const char *name = ignis__nvrtc.nvrtcGetErrorString(error);
    return ignis__fail_because(error == IGNIS__NVRTC_OUT_OF_MEMORY ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_COMPILE_FAILED, call, error, name,
                               NULL, "%s failed with %s (%d)", function, name, error);
}

/*  -arch for a device: its own machine code where this NVRTC knows it, with the architecture-specific instructions that come with 9.0
    ("sm_90a"); else the newest older virtual architecture, which the driver translates. */
IGNIS__COLD static bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch, size_t size, bool *is_ptx)
{
    int known[64], count = 0, best = 0, i, wanted = device->info.compute_major * 10 + device->info.compute_minor;
    int error = IGNIS__NVRTC(nvrtcGetNumSupportedArchs, (&count));
    if (error != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetNumSupportedArchs", error);
        return false;
    }
    count = count > IGNIS__COUNT(known) ? 0 : count;
    if ((error = IGNIS__NVRTC(nvrtcGetSupportedArchs, (known))) != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetSupportedArchs", error);
        return false;
    }
    for (i = 0; i < count; i++)
        if (known[i] <= wanted && known[i] > best)
            best = known[i];
    if (!best) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d and newer",
                    device->info.device, device->info.compute_major, device->info.compute_minor,
                    ignis__libraries[IGNIS_LIBRARY_NVRTC].version / 1000, ignis__libraries[IGNIS_LIBRARY_NVRTC].version % 1000 / 10,
                    known[0] / 10, known[0] % 10);
        return false;
    }
    *is_ptx = best != wanted;
    snprintf(arch, size, "-arch=%s_%d%s", *is_ptx ? "compute" : "sm", best, !*is_ptx && best >= 90 ? "a" : "");
    return true;
}

/*  The options that Ignis adds, unless the program has its own, and the program's. Returns how many. */
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

/*  Reports what a compile had to say: remarks as a warning, errors as the failure. */
IGNIS__COLD static ignis_status ignis__compile_log(const char *call, const ignis__program *program, const char *arch, void *handle,
                                                   int error)
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
            ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_COMPILE_FAILED, "%s: the compiler has remarks on %s:\n%s", call, program->name, log);
        ignis__free(log);
        return IGNIS_OK;
    }
    entry_missing = log && program->entry && strncmp(log, "__nv_name_map", 13) == 0;
    missing = log ? strstr(log, "open source file \"") : NULL;
    if (entry_missing)
        status =
            ignis__fail_because(IGNIS_DIAG_ENTRY_MISSING, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                "%s has no __global__ function (or not exactly one) that is called '%s'", program->name, program->entry);
    else if (missing) {
        missing = strchr(missing, '"') + 1;
        status = ignis__fail_because(
            IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
            "%s includes \"%.*s\", which is not found. %s; desc.headers gives headers from memory; \"ignis.cuh\" "
            "is always there, with int8_t to uint64_t, ignis_f16, ignis_bf16, 16-byte packs, warp and block reductions",
            program->name, (int)strcspn(missing, "\""), missing,
            ignis__has_include_path(program) ? "It is in no folder that desc.options name, nor beside desc.name"
                                             : "There is no include path: desc.options may give one, as in \"-I/usr/local/cuda/include\"");
    } else
        status = ignis__fail_because(IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                     "%s does not compile with %s", program->name, arch);
    ignis__free(log);
    return status;
}

/*  Copies the lowered name and the image of a compiled program out of NVRTC. */
IGNIS__COLD static bool ignis__image_fetch(const char *call, const ignis__program *program, void *handle, bool is_ptx, ignis__image *image)
{
    const char *lowered = "";
    size_t lowered_size;
    int error = program->entry ? IGNIS__NVRTC(nvrtcGetLoweredName, (handle, program->entry, &lowered)) : 0;
    if (error != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetLoweredName", error);
        return false;
    }
    error = is_ptx ? IGNIS__NVRTC(nvrtcGetPTXSize, (handle, &image->size)) : IGNIS__NVRTC(nvrtcGetCUBINSize, (handle, &image->size));
    if (error != 0) {
        ignis__nvrtc_fail(call, is_ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", error);
        return false;
    }
    lowered_size = strlen(lowered) + 1;
    image->memory = (char *)ignis__alloc(lowered_size + image->size);
    if (!image->memory) {
        ignis__fail_host_memory(call, lowered_size + image->size);
        return false;
    }
    image->lowered = image->memory;
    memcpy(image->lowered, lowered, lowered_size);
    image->data = image->lowered + lowered_size;
    error = is_ptx ? IGNIS__NVRTC(nvrtcGetPTX, (handle, (char *)image->data)) : IGNIS__NVRTC(nvrtcGetCUBIN, (handle, (char *)image->data));
    if (error != 0)
        ignis__nvrtc_fail(call, is_ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN", error);
    return error == 0;
}

/*  All headers in memory as NVRTC takes them: those of Ignis, then the program's. */
typedef struct ignis__headers {
    char *own[IGNIS__SOURCE_COUNT];
    int own_count, count;
    const char **names, **texts; /* in one block */
} ignis__headers;

static void ignis__headers_free(ignis__headers *headers)
{
    while (headers->own_count > 0)
        ignis__free(headers->own[--headers->own_count]);
    ignis__free((void *)headers->names);
}

IGNIS__COLD static bool ignis__headers_gather(const char *call, const ignis__program *program, ignis__headers *headers)
{
    size_t most = (size_t)(IGNIS__SOURCE_COUNT + program->header_count);
    bool ok;
    int i;
    memset(headers, 0, sizeof *headers);
    headers->names = (const char **)ignis__alloc(2 * most * sizeof *headers->names);
    headers->texts = headers->names + most;
    ok = headers->names != NULL;
    for (i = 0; ok && i < IGNIS__SOURCE_COUNT; i++) {
        char *text;
        if (!ignis__source_is_header(i))
            continue;
        text = ignis__source_join(&ignis__sources[i]);
        ok = text != NULL;
        headers->own[headers->own_count++] = text;
        headers->names[headers->count] = ignis__sources[i].name;
        headers->texts[headers->count++] = text;
    }
    for (i = 0; ok && i < program->header_count; i++) {
        headers->names[headers->count] = program->headers[i].name;
        headers->texts[headers->count++] = program->headers[i].text;
    }
    if (!ok) {
        ignis__headers_free(headers);
        ignis__fail_host_memory(call, 1);
    }
    return ok;
}

IGNIS__COLD static bool ignis__image_compile(const char *call, const ignis__program *program, const ignis__device *device,
                                             ignis__image *image)
{
    const char *options[IGNIS__MAX_OPTIONS + 3];
    ignis__headers headers;
    char arch[32];
    void *handle = NULL;
    int error, count;
    bool is_ptx, ok;
    if (!ignis__arch_choose(call, device, arch, sizeof arch, &is_ptx) || !ignis__headers_gather(call, program, &headers))
        return false;
    count = ignis__options_gather(program, arch, options);
    error = IGNIS__NVRTC(nvrtcCreateProgram, (&handle, program->source, program->name, headers.count, headers.texts, headers.names));
    ok = error == 0;
    if (!ok)
        ignis__nvrtc_fail(call, "nvrtcCreateProgram", error);
    if (ok && program->entry && (error = IGNIS__NVRTC(nvrtcAddNameExpression, (handle, program->entry))) != 0) {
        ignis__nvrtc_fail(call, "nvrtcAddNameExpression", error);
        ok = false;
    }
    if (ok) {
        error = IGNIS__NVRTC(nvrtcCompileProgram, (handle, count, options));
        ok = ignis__compile_log(call, program, options[0], handle, error) == IGNIS_OK &&
             ignis__image_fetch(call, program, handle, is_ptx, image);
    }
    if (handle)
        (void)IGNIS__NVRTC(nvrtcDestroyProgram, (&handle));
    ignis__headers_free(&headers);
    return ok;
}

/* --- images and modules --------------------------------------------------------------------------------------------- */

static void ignis__image_drop(ignis__image *image)
{
    if (!image || ignis__atomic_add(&image->holds, (uint64_t)-1) > 0)
        return;
    ignis__free(image->memory);
    ignis__free(image);
}

/*  Takes an image out of the list of the memory cache, whose lock is held; null when it is not there. */
IGNIS__COLD static ignis__image *ignis__image_unlink(const uint64_t key[2])
{
    ignis__image **link, *image;
    for (link = &ignis__kernels_state.images; *link; link = &(*link)->next)
        if ((*link)->key[0] == key[0] && (*link)->key[1] == key[1])
            break;
    image = *link;
    if (image)
        *link = image->next;
    return image;
}

/*  An image of the memory cache, held; null when it is not there. */
static ignis__image *ignis__image_find(const uint64_t key[2])
{
    ignis__image *image;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    image = ignis__image_unlink(key);
    if (image) {
        image->next = ignis__kernels_state.images;
        ignis__kernels_state.images = image;
        ignis__atomic_add(&image->holds, 1);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    return image;
}

/*  Puts an image into the memory cache, instead of one of its key; the ones that were used least recently make room. */
IGNIS__COLD static void ignis__image_keep(ignis__image *image)
{
    ignis__image **link = &ignis__kernels_state.images;
    size_t bytes = 0;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    ignis__image_drop(ignis__image_unlink(image->key));
    ignis__atomic_add(&image->holds, 1);
    image->next = *link;
    *link = image;
    while (*link && bytes + (*link)->size <= IGNIS__IMAGE_BYTES) {
        bytes += (*link)->size;
        link = &(*link)->next;
    }
    while (*link) {
        ignis__image *old = *link;
        *link = old->next;
        ignis__image_drop(old);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
}

/*  The image of a program, held: from the memory cache, from disk, or compiled, which it is in any case when the caches are not trusted. Null on
    failure. Whoever asks for one that is being compiled waits for it. What was compiled is cached when its key is what it was: a file that it
    includes may have changed meanwhile. */
IGNIS__COLD static ignis__image *ignis__image_get(const char *call, ignis__device *device, const ignis__program *program,
                                                  const uint64_t key[2], bool trust, bool *from_cache)
{
    ignis__mutex *compiling = &ignis__kernels_state.compiling[key[0] % (uint64_t)IGNIS__COUNT(ignis__kernels_state.compiling)];
    ignis__image *image;
    uint64_t key_now[2];
    ignis__mutex_lock(compiling);
    image = trust ? ignis__image_find(key) : NULL;
    *from_cache = image != NULL;
    if (!image) {
        image = (ignis__image *)ignis__alloc(sizeof *image);
        if (!image) {
            ignis__fail_host_memory(call, sizeof *image);
        } else {
            image->holds = 1;
            memcpy(image->key, key, sizeof image->key);
            *from_cache = trust && ignis__image_from_disk(image);
        }
        if (image && *from_cache) {
            ignis__image_keep(image);
        } else if (image && !ignis__image_compile(call, program, device, image)) {
            ignis__image_drop(image);
            image = NULL;
        } else if (image && ignis__image_key(program, device, key_now) && memcmp(key, key_now, sizeof key_now) == 0) {
            ignis__image_to_disk(image);
            ignis__image_keep(image);
        }
    }
    ignis__mutex_unlock(compiling);
    return image;
}

/*  False after a failure: of the driver, when *error is not 0, which the caller may mend or report; another one is reported already. */
IGNIS__COLD static bool ignis__module_load(const char *call, const ignis__image *image, ignis__module *unit, int *error)
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

IGNIS__COLD static void ignis__module_unload(ignis__module *unit)
{
    if (unit->module)
        (void)IGNIS__CUDA(cuModuleUnload, (unit->module));
    ignis__free(unit->lowered);
    memset(unit, 0, sizeof *unit);
}

/*  Unloads a module whose launches may still be queued. It is unloaded also when the device cannot be entered; after a
    fault it ends with the process. */
static void ignis__module_unload_when_idle(const char *call, ignis__device *device, ignis__module *unit)
{
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = !lost && ignis__device_enter(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    if (lost)
        unit->module = NULL;
    ignis__module_unload(unit);
    if (entered)
        ignis__device_leave(&binding);
}

/*  Loads a program on a device that is entered. Loading may wait for the device, and that for a kernel which waits for what another thread is
    about to launch on another one: no lock is held meanwhile. */
IGNIS__COLD static bool ignis__module_make(const char *call, ignis__device *device, const ignis__program *program, ignis__module *unit)
{
    uint64_t key[2];
    bool trust, again;
    memset(unit, 0, sizeof *unit);
    if (!ignis__library_load(call, IGNIS_LIBRARY_NVRTC)) /* its version is part of the key */
        return false;
    trust = ignis__image_key(program, device, key);
    do {
        int error = 0;
        ignis__image *image = ignis__image_get(call, device, program, key, trust, &unit->from_cache);
        bool loaded = image && ignis__module_load(call, image, unit, &error);
        ignis__image_drop(image);
        if (loaded)
            return true;
        /* in a cache, but not for this driver: that is like a damaged file */
        again = unit->from_cache && (error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY);
        trust = false;
        if (error != 0 && !again)
            ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    } while (again);
    return false;
}

/*  A function of a module, allowed all the shared memory that a block can have: an allowance that each launch asked for could be lowered by
    another thread just before the launch. A driver that loads lazily loads the function now: at its first launch that might wait for what runs
    on the device. */
IGNIS__COLD static bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                            void **function)
{
    int fixed; /* bytes that it declares */
    return !IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (function, unit->module, name)) &&
           !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&fixed, IGNIS__CU_FUNC_SHARED, *function)) &&
           !IGNIS__CUDA_FAILED(call, device, cuFuncSetAttribute,
                               (*function, IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, device->info.shared_per_block - fixed));
}

/* --- kernels of the caller ------------------------------------------------------------------------------------------ */

#define IGNIS__MAX_PARAMS 64

/*  A kernel on one device. */
typedef struct ignis__kernel_code {
    ignis__module module;
    void *function;
    int params; /* -1: the driver does not tell */
    size_t param_size[IGNIS__MAX_PARAMS];
    int max_threads, static_shared;
} ignis__kernel_code;

typedef struct ignis__kernel {
    ignis__slot slot;
    char *memory; /* of all that the program points to */
    ignis__program program;
    uint64_t code[IGNIS_MAX_DEVICES]; /* ignis__kernel_code *, made at the first use on a device */
    uint64_t newest; /* what has replaced the program, as an ignis__kernel * that is in no pool; 0: nothing has. Its lock is the slot's */
    struct ignis__kernel
        *older;               /* what that has replaced, in the same way. All live as long as the handle's, so that launches need no lock */
    uint64_t reloads, reload; /* asked for of this one so far; the number of the one that has made it */
    ignis__former former;
} ignis__kernel;

static ignis__pool ignis__kernels =
    IGNIS__POOL_NAMED(ignis__kernel, IGNIS__KIND_KERNEL, "kernel", IGNIS_DIAG_KERNEL_FREED, offsetof(ignis__kernel, former));

static ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle)
{
    return (ignis__kernel *)ignis__handle_hold(call, &ignis__kernels, handle.id);
}

/*  What launches of a held kernel run. */
static ignis__kernel *ignis__kernel_newest(ignis__kernel *kernel)
{
    ignis__kernel *newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest);
    return newest ? newest : kernel;
}

IGNIS__COLD static void ignis__kernel_unload(const char *call, ignis__kernel *kernel)
{
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&kernel->code[i]);
        if (code)
            ignis__module_unload_when_idle(call, &ignis__devices[i], &code->module);
        ignis__free(code);
    }
    ignis__free(kernel->memory);
}

IGNIS__COLD static void ignis__kernel_destroy(const char *call, ignis__kernel *kernel)
{
    ignis__kernel *version = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest), *older;
    for (; version; version = older) {
        older = version->older;
        ignis__kernel_unload(call, version);
        ignis__free(version);
    }
    ignis__kernel_unload(call, kernel);
    ignis__pool_give(&ignis__kernels, kernel);
}

IGNIS__ONE_COPY static void ignis__kernel_drop(const char *call, ignis__kernel *kernel)
{
    if (ignis__pool_drop(kernel))
        ignis__kernel_destroy(call, kernel);
}

static void ignis__kernel_drop_held(const char *call, void *item) { ignis__kernel_drop(call, (ignis__kernel *)item); }

IGNIS__COLD static bool ignis__kernel_read(const char *call, ignis__device *device, ignis__kernel_code *code)
{
    size_t offset;
    int error = 0;
    if (!ignis__function_get(call, device, &code->module, code->module.lowered, &code->function) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->max_threads, IGNIS__CU_FUNC_MAX_THREADS, code->function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->static_shared, IGNIS__CU_FUNC_SHARED, code->function)))
        return false;
    code->params = -1;
    if (ignis__cuda.cuFuncGetParamInfo) {
        code->params = 0;
        while (code->params < IGNIS__MAX_PARAMS && (error = IGNIS__CUDA(cuFuncGetParamInfo, (code->function, (size_t)code->params, &offset,
                                                                                             &code->param_size[code->params]))) == 0)
            code->params++;
    }
    return error == IGNIS__CU_INVALID_VALUE /* the number after the last parameter */ ||
           ignis__cuda_check(call, device, "cuFuncGetParamInfo", error) == IGNIS_OK;
}

/*  The kernel's code on a device that is entered, loaded at the first use there. Null on failure. */
IGNIS__COLD static ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    uint64_t *place = &kernel->code[device - ignis__devices];
    ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place), *made;
    if (code)
        return code;
    made = (ignis__kernel_code *)ignis__alloc(sizeof *made);
    if (!made) {
        ignis__fail_host_memory(call, sizeof *made);
        return NULL;
    }
    if (ignis__module_make(call, device, &kernel->program, &made->module) && ignis__kernel_read(call, device, made)) {
        ignis__mutex_lock(&kernel->slot.lock); /* another thread may have been as fast, and its code be in use */
        code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
        if (!code) {
            ignis__atomic_store(place, (uint64_t)(uintptr_t)made);
            code = made;
        }
        ignis__mutex_unlock(&kernel->slot.lock);
    }
    if (code != made) {
        ignis__module_unload(&made->module);
        ignis__free(made);
    }
    return code;
}

static ignis__program ignis__program_from(const ignis_kernel_desc *desc)
{
    ignis__program program;
    program.source = desc->source;
    program.name = desc->name ? desc->name : "kernel.cu";
    program.entry = desc->entry;
    program.options = desc->options;
    program.option_count = desc->option_count;
    program.headers = desc->headers;
    program.header_count = desc->header_count;
    return program;
}

/*  A header has a name and a text, and a name of its own: NVRTC refuses two of one name. */
IGNIS__COLD static bool ignis__kernel_header_check(const char *call, const ignis_kernel_desc *desc, int index)
{
    const ignis_kernel_header *header = &desc->headers[index];
    ignis__program before = ignis__program_from(desc);
    before.header_count = index;
    if (!header->name || !header->text)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.headers[%d].%s is null", index, header->name ? "text" : "name");
    else if (ignis__header_is_known(&before, header->name, strlen(header->name)))
        ignis__fail(IGNIS_DIAG_KERNEL_HEADER, call, "desc.headers[%d].name is \"%s\": a header before it, or one of Ignis, has that name",
                    index, header->name);
    else
        return true;
    return false;
}

IGNIS__COLD static bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc)
{
    int i;
    if (!desc)
        ignis__fail_null(call, "desc");
    else if (!desc->source)
        ignis__fail_null(call, "desc.source");
    else if (!desc->entry)
        ignis__fail_null(call, "desc.entry");
    else if (desc->option_count < 0 || desc->option_count > IGNIS__MAX_OPTIONS)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.option_count is %d, outside 0 to %d", desc->option_count, IGNIS__MAX_OPTIONS);
    else if (desc->option_count > 0 && !desc->options)
        ignis__fail_null(call, "desc.options");
    else if (desc->header_count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.header_count is %d, below 0", desc->header_count);
    else if (desc->header_count > 0 && !desc->headers)
        ignis__fail_null(call, "desc.headers");
    else {
        for (i = 0; i < desc->option_count && desc->options[i]; i++)
            ;
        if (i < desc->option_count)
            return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.options[%d] is null", i) == IGNIS_OK;
        for (i = 0; i < desc->header_count && ignis__kernel_header_check(call, desc, i); i++)
            ;
        return i == desc->header_count;
    }
    return false;
}

IGNIS__COLD static char *ignis__program_keep(char *at, const char **text)
{
    size_t size = strlen(*text) + 1;
    memcpy(at, *text, size);
    *text = at;
    return at + size;
}

/*  Copies a program, with all its strings, into memory of the kernel. */
IGNIS__COLD static bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program)
{
    size_t option_bytes = (size_t)program.option_count * sizeof *program.options;
    size_t header_bytes = (size_t)program.header_count * sizeof *program.headers;
    size_t size = option_bytes + header_bytes + strlen(program.source) + strlen(program.name) + strlen(program.entry) + 3;
    ignis_kernel_header *headers;
    const char **options;
    char *at;
    int i;
    for (i = 0; i < program.option_count; i++)
        size += strlen(program.options[i]) + 1;
    for (i = 0; i < program.header_count; i++)
        size += strlen(program.headers[i].name) + strlen(program.headers[i].text) + 2;
    kernel->memory = at = (char *)ignis__alloc(size);
    if (!at) {
        ignis__fail_host_memory(call, size);
        return false;
    }
    options = (const char **)(void *)at;
    headers = (ignis_kernel_header *)(void *)(at + option_bytes);
    at += option_bytes + header_bytes;
    at = ignis__program_keep(at, &program.source);
    at = ignis__program_keep(at, &program.name);
    at = ignis__program_keep(at, &program.entry);
    for (i = 0; i < program.option_count; i++) {
        options[i] = program.options[i];
        at = ignis__program_keep(at, &options[i]);
    }
    for (i = 0; i < program.header_count; i++) {
        headers[i] = program.headers[i];
        at = ignis__program_keep(at, &headers[i].name);
        at = ignis__program_keep(at, &headers[i].text);
    }
    program.options = options;
    program.headers = headers;
    kernel->program = program;
    return true;
}

IGNIS__COLD IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc)
{
    static const char call[] = "ignis_kernel_compile";
    ignis_kernel handle = IGNIS__ZERO;
    ignis__kernel *kernel;
    ignis__binding binding;
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__kernel_desc_check(call, desc) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return handle;
    kernel = (ignis__kernel *)ignis__pool_take(call, &ignis__kernels);
    if (kernel && !ignis__kernel_keep(call, kernel, ignis__program_from(desc))) {
        ignis__pool_give(&ignis__kernels, kernel);
    } else if (kernel) {
        memset(kernel->code, 0, sizeof kernel->code);
        ignis__atomic_store(&kernel->newest, 0);
        kernel->reloads = 0;
        if (ignis__kernel_code_get(call, device, kernel))
            handle.id = ignis__pool_publish(&ignis__kernels, kernel);
        else
            ignis__kernel_destroy(call, kernel);
    }
    ignis__device_leave(&binding);
    return handle;
}

IGNIS__COLD static bool ignis__kernel_kill(ignis__kernel *kernel)
{
    ignis__mutex_lock(&kernel->slot.lock);
    ignis__former_write(&kernel->former, &kernel->slot, 0, kernel->program.entry);
    ignis__mutex_unlock(&kernel->slot.lock);
    return ignis__handle_kill(kernel);
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_free(ignis_kernel handle)
{
    static const char call[] = "ignis_kernel_free";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    bool live;
    if (!kernel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        ignis__kernel_drop(call, kernel);
        return ignis__failed();
    }
    live = ignis__kernel_kill(kernel);
    if (!live)
        ignis__fail_stale(call, &ignis__kernels, handle.id);
    ignis__kernel_drop(call, kernel);
    return live ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel *newest;
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (!info) {
        ignis__fail_null(call, "info");
    } else if ((device = ignis__device_current_enter(call, &binding)) != NULL) {
        newest = ignis__kernel_newest(kernel);
        code = ignis__kernel_code_get(call, device, newest);
        ok = code && !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->registers, IGNIS__CU_FUNC_REGISTERS, code->function)) &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, code->function));
        if (ok) {
            info->entry = newest->program.entry;
            info->parameters = code->params;
            info->shared_bytes = code->static_shared;
            info->max_threads = code->max_threads;
            info->from_cache = code->module.from_cache;
        }
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static bool ignis__symbol_set(const ignis__work *work, ignis__kernel *kernel, const char *name, const void *data, int64_t size)
{
    ignis__kernel_code *code = ignis__kernel_code_get(work->call, work->device, kernel);
    ignis__address address = 0;
    size_t bytes = 0;
    int error = code ? IGNIS__CUDA(cuModuleGetGlobal_v2, (&address, &bytes, code->module.module, name)) : 0;
    if (!code)
        return false;
    if (error == IGNIS__CU_NOT_FOUND)
        ignis__fail(IGNIS_DIAG_SYMBOL_MISSING, work->call, "the program of kernel %s has no __constant__ or __device__ variable '%s'",
                    kernel->program.entry, name);
    else if (ignis__cuda_check(work->call, work->device, "cuModuleGetGlobal_v2", error) == IGNIS_OK && (int64_t)bytes != size)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, work->call, "'%s' has %lld bytes, the call says %lld", name, (long long)bytes,
                    (long long)size);
    else if (error == 0)
        return ignis__copy_from_host(work, address, data, size);
    return false;
}

IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel handle, const char *name, const void *data, int64_t size)
{
    static const char call[] = "ignis_kernel_set_symbol";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__device *device;
    ignis__work work;
    bool ok = kernel && name && data;
    if (!kernel)
        return ignis__failed();
    if (!ok)
        ignis__fail_null(call, name ? "data" : "name");
    if (ok && !ignis__capture_refuses(call) && (device = ignis__device_get(call, ignis__thread_now()->device)) != NULL &&
        ignis__work_begin(call, device, &work)) {
        ok = ignis__symbol_set(&work, ignis__kernel_newest(kernel), name, data, size);
        ignis__work_end(&work);
    } else {
        ok = false;
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- reloading -------------------------------------------------------------------------------------------------------- */

typedef struct ignis__reload {
    ignis__kernel *kernel; /* of the handle, held */
    ignis__kernel *version;
    bool device[IGNIS_MAX_DEVICES];
} ignis__reload;

static const char ignis__reload_call[] = "ignis_kernel_reload";

IGNIS__COLD static void ignis__reload_drop(ignis__reload *reload)
{
    if (reload->version) {
        ignis__kernel_unload(ignis__reload_call, reload->version);
        ignis__free(reload->version);
    }
    ignis__kernel_drop(ignis__reload_call, reload->kernel);
    ignis__free(reload);
}

/*  Compiles for all devices, and puts the result before those that were asked for earlier. */
IGNIS__COLD static void ignis__reload_run(void *context)
{
    ignis__reload *reload = (ignis__reload *)context;
    ignis__kernel *kernel = reload->kernel, *version = reload->version, *newest;
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; ok && i < ignis__device_total; i++) {
        if (reload->device[i] && (ok = ignis__device_enter(ignis__reload_call, &ignis__devices[i], &binding)) == true) {
            ok = ignis__kernel_code_get(ignis__reload_call, &ignis__devices[i], version) != NULL;
            ignis__device_leave(&binding);
        }
    }
    if (ok) {
        ignis__mutex_lock(&kernel->slot.lock);
        newest = (ignis__kernel *)(uintptr_t)ignis__atomic_load(&kernel->newest);
        if (newest && newest->reload > version->reload) {
            version->older = newest->older;
            newest->older = version;
        } else {
            version->older = newest;
            ignis__atomic_store(&kernel->newest, (uint64_t)(uintptr_t)version);
        }
        ignis__mutex_unlock(&kernel->slot.lock);
        reload->version = NULL;
    }
    ignis__reload_drop(reload);
}

IGNIS__COLD IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel handle, const ignis_kernel_desc *desc)
{
    ignis_ticket result = IGNIS__ZERO;
    ignis__kernel *kernel = ignis__kernel_hold(ignis__reload_call, handle);
    ignis__device *device = kernel ? ignis__device_get(ignis__reload_call, ignis__thread_now()->device) : NULL;
    ignis__ticket *ticket = NULL;
    ignis__reload *reload;
    int i;
    if (!kernel)
        return result;
    if (!device || !ignis__kernel_desc_check(ignis__reload_call, desc)) {
        ignis__kernel_drop(ignis__reload_call, kernel);
        return result;
    }
    reload = (ignis__reload *)ignis__alloc(sizeof *reload);
    if (reload)
        reload->version = (ignis__kernel *)ignis__alloc(sizeof *reload->version);
    if (!reload || !reload->version) {
        ignis__free(reload);
        ignis__kernel_drop(ignis__reload_call, kernel);
        ignis__fail_host_memory(ignis__reload_call, sizeof *reload + sizeof *kernel);
        return result;
    }
    reload->kernel = kernel;
    ignis__mutex_init(&reload->version->slot.lock);
    for (i = 0; i < ignis__device_total; i++)
        reload->device[i] = &ignis__devices[i] == device || ignis__atomic_load(&ignis__kernel_newest(kernel)->code[i]) != 0;
    ignis__mutex_lock(&kernel->slot.lock);
    reload->version->reload = ++kernel->reloads;
    ignis__mutex_unlock(&kernel->slot.lock);
    if (ignis__kernel_keep(ignis__reload_call, reload->version, ignis__program_from(desc)))
        ticket = ignis__ticket_start(ignis__reload_call, device, ignis__reload_run, reload);
    if (ticket)
        result.id = ignis__pool_publish(&ignis__tickets, ticket);
    else
        ignis__reload_drop(reload);
    return result;
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

#define IGNIS__ARG_SCALAR(suffix, ctype, TYPE)          \
    IGNIS_API ignis_arg ignis_arg_##suffix(ctype value) \
    {                                                   \
        ignis_arg arg;                                  \
        arg.type = IGNIS_ARG_##TYPE;                    \
        arg.size = 0;                                   \
        arg.value.suffix = value;                       \
        return arg;                                     \
    }
IGNIS__ARG_SCALAR(array, ignis_array, ARRAY)
IGNIS__ARG_SCALAR(i32, int32_t, I32)
IGNIS__ARG_SCALAR(i64, int64_t, I64)
IGNIS__ARG_SCALAR(f32, float, F32)
IGNIS__ARG_SCALAR(f64, double, F64)
IGNIS__ARG_SCALAR(ptr, void *, PTR)

IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size)
{
    ignis_arg arg;
    arg.type = IGNIS_ARG_BYTES;
    arg.size = size;
    arg.value.bytes = bytes;
    return arg;
}

/*  The arguments of one launch as the driver takes them, and the arrays that are held meanwhile. */
typedef struct ignis__launch_args {
    void *params[IGNIS__MAX_PARAMS];
    ignis__address addresses[IGNIS__MAX_PARAMS];
    ignis__array *arrays[IGNIS__MAX_PARAMS];
    int array_count;
} ignis__launch_args;

static size_t ignis__arg_size(const ignis_arg *arg)
{
    switch (arg->type) {
    case IGNIS_ARG_I32:
    case IGNIS_ARG_F32: return 4;
    case IGNIS_ARG_BYTES: return arg->size;
    default: return 8;
    }
}

static bool ignis__arg_array(const ignis__work *work, ignis__launch_args *launch, int index, ignis_array handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array) {
        ignis__fail_stale(work->call, &ignis__arrays, handle.id);
        return false;
    }
    launch->arrays[launch->array_count++] = array;
    if (array->storage->device != work->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, work->call, "argument %d, %s, is on device %d, the kernel runs on device %d", index,
                    ignis__array_label(array).text, (int)(array->storage->device - ignis__devices), (int)(work->device - ignis__devices));
        return false;
    }
    launch->params[index] = &launch->addresses[index];
    if (!ignis__work_address(work, array, &launch->addresses[index]))
        return false;
    ignis__storage_lent(array->storage);
    return true;
}

static bool ignis__args_gather(const ignis__work *work, const ignis__kernel *kernel, const ignis__kernel_code *code, const ignis_arg *args,
                               int count, ignis__launch_args *launch)
{
    int i;
    launch->array_count = 0;
    if (count < 0 || count > IGNIS__MAX_PARAMS || (code->params >= 0 && count != code->params)) {
        ignis__fail(IGNIS_DIAG_ARG_COUNT, work->call, "kernel %s has %d parameters, the call gives %d arguments", kernel->program.entry,
                    code->params >= 0 ? code->params : IGNIS__MAX_PARAMS, count);
        return false;
    }
    for (i = 0; i < count; i++) {
        if (args[i].type < IGNIS_ARG_ARRAY || args[i].type > IGNIS_ARG_BYTES) {
            ignis__fail(IGNIS_DIAG_BAD_ENUM, work->call, "argument %d has type %d; make it with an ignis_arg_ function", i,
                        (int)args[i].type);
            return false;
        }
        if (code->params >= 0 && ignis__arg_size(&args[i]) != code->param_size[i]) {
            ignis__fail(IGNIS_DIAG_ARG_SIZE, work->call, "argument %d of kernel %s is %llu bytes, its parameter %llu", i,
                        kernel->program.entry, (unsigned long long)ignis__arg_size(&args[i]), (unsigned long long)code->param_size[i]);
            return false;
        }
        if (args[i].type == IGNIS_ARG_BYTES && !args[i].value.bytes) {
            ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, work->call, "argument %d has no bytes", i);
            return false;
        }
        /* The driver only reads parameters; its prototype has no const. */
        if (args[i].type == IGNIS_ARG_BYTES)
            launch->params[i] = (void *)(uintptr_t)args[i].value.bytes;
        else if (args[i].type != IGNIS_ARG_ARRAY)
            launch->params[i] = (void *)(uintptr_t)&args[i].value;
        else if (!ignis__arg_array(work, launch, i, args[i].value.array))
            return false;
    }
    return true;
}

/*  Checks a launch against the limits of device and kernel, with 0 as 1 where that is allowed. */
static bool ignis__launch_check(const ignis__work *work, ignis__kernel *kernel, ignis__kernel_code *code, const ignis_launch *launch,
                                unsigned grid[3], unsigned block[3])
{
    static const int64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const int block_limit[3] = {1024, 1024, 64};
    const ignis_device_info *info = &work->device->info;
    int64_t threads = 1, shared_limit = info->shared_per_block - code->static_shared;
    int i;
    for (i = 0; i < 3; i++) {
        int64_t blocks = launch->grid[i] == 0 && i > 0 ? 1 : launch->grid[i];
        int size = launch->block[i] == 0 && i > 0 ? 1 : launch->block[i];
        if (blocks < 0 || blocks > grid_limit[i]) {
            ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "grid[%d] is %lld, outside 0 to %lld", i, (long long)launch->grid[i],
                        (long long)grid_limit[i]);
            return false;
        }
        if (size < 1 || size > block_limit[i]) {
            ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "block[%d] is %d, outside 1 to %d", i, launch->block[i], block_limit[i]);
            return false;
        }
        grid[i] = (unsigned)blocks;
        block[i] = (unsigned)size;
        threads *= size;
    }
    if (threads > code->max_threads) {
        ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "a block of %lld threads is more than the %d that kernel %s can have",
                    (long long)threads, code->max_threads, kernel->program.entry);
        return false;
    }
    if (launch->shared_bytes < 0 || launch->shared_bytes > shared_limit) {
        ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call,
                    "shared_bytes is %lld, outside 0 to the %lld that device %d leaves beside %d static bytes",
                    (long long)launch->shared_bytes, (long long)shared_limit, info->device, code->static_shared);
        return false;
    }
    return true;
}

static bool ignis__launch(const ignis__work *work, void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                          void **params)
{
    if ((int64_t)shared > work->device->info.shared_per_block) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, work->call, "the kernel needs %u bytes of shared memory in a block, device %d has %d", shared,
                    work->device->info.device, work->device->info.shared_per_block);
        return false;
    }
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernel,
                               (function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, work->stream, params, NULL));
}

static ignis_status ignis__kernel_launch(const char *call, ignis__kernel *kernel, const ignis_launch *launch, const ignis_arg *args,
                                         int count)
{
    ignis__launch_args gathered;
    ignis__kernel *newest;
    ignis__kernel_code *code;
    ignis__work work;
    ignis__capture *capture;
    unsigned grid[3], block[3];
    bool ok;
    ignis__device *device = ignis__device_get(call, ignis__thread_now()->device);
    if (!device || !ignis__work_begin(call, device, &work))
        return ignis__failed();
    capture = ignis__capture_on(device);
    newest = ignis__kernel_newest(kernel);
    code = ignis__kernel_code_get(call, work.device, newest);
    ok = code != NULL;
    if (ok) {
        ok = ignis__args_gather(&work, newest, code, args, count, &gathered) &&
             ignis__launch_check(&work, newest, code, launch, grid, block) &&
             (!capture || ignis__capture_hold(call, capture, kernel, &kernel->slot.state, ignis__kernel_drop_held)) &&
             (grid[0] == 0 || ignis__launch(&work, code->function, grid, block, (unsigned)launch->shared_bytes, gathered.params));
        ignis__array_drop_all(call, gathered.array_count, gathered.arrays);
    }
    ignis__work_end(&work);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel handle, const ignis_launch *launch, const ignis_arg *args, int arg_count)
{
    static const char call[] = "ignis_kernel_launch";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis_status status;
    if (!kernel)
        return ignis__failed();
    if (!launch)
        status = ignis__fail_null(call, "launch");
    else if (!args && arg_count > 0)
        status = ignis__fail_null(call, "args");
    else
        status = ignis__kernel_launch(call, kernel, launch, args, arg_count);
    ignis__kernel_drop(call, kernel);
    return status;
}

/* --- tensor maps ------------------------------------------------------------------------------------------------------ */

/*  Where the tiles of an array are, for the copy engine of sm_90 and up (TMA). The driver packs the bits on the host, for each launch anew, and
    the kernel gets them by value: a graph keeps what it was captured with. kernels/hopper.cuh has the same struct. */
typedef struct ignis__tensor_map {
    uint64_t words[16];
} ignis__tensor_map;

/*  A map of an array of up to 5 dimensions, the contiguous one first. `strides` are the bytes from one element to the next of the dimensions
    after it, multiples of 16 as the address is. A tile has box[i] elements of dimension i; its rows of 128 bytes lie in shared memory with
    their chunks of 16 bytes swizzled. What is outside of the array reads as zeros, and is not written. */
IGNIS__MAYBE_UNUSED static bool ignis__tensor_map_make(const ignis__work *work, ignis__tensor_map *map, ignis_dtype dtype,
                                                       ignis__address data, int rank, const int64_t *dims, const int64_t *strides,
                                                       const int *box)
{
    enum { F16 = 6, F32 = 7, F64 = 8, BF16 = 9, NO_INTERLEAVE = 0, SWIZZLE_128_BYTES = 3, PROMOTE_TO_128_BYTES = 2, ZEROS_OUTSIDE = 0 };
    int type = dtype == IGNIS_F16 ? F16 : dtype == IGNIS_BF16 ? BF16 : dtype == IGNIS_F64 ? F64 : F32, i;
    unsigned long long sizes[5], steps[5], aligned[24];
    unsigned boxes[5], ones[5];
    void *at = aligned + (64 - (uintptr_t)aligned % 64) % 64 / sizeof *aligned;
    IGNIS_ASSERT(rank >= 1 && rank <= 5 && dtype >= IGNIS_F16 && dtype <= IGNIS_F64);
    for (i = 0; i < rank; i++) {
        sizes[i] = (unsigned long long)dims[i];
        steps[i] = i + 1 < rank ? (unsigned long long)strides[i] : 0;
        boxes[i] = (unsigned)box[i];
        ones[i] = 1;
    }
    if (IGNIS__CUDA_FAILED(work->call, work->device, cuTensorMapEncodeTiled,
                           (at, type, (unsigned)rank, (void *)(uintptr_t)data, sizes, steps, boxes, ones, NO_INTERLEAVE, SWIZZLE_128_BYTES,
                            PROMOTE_TO_128_BYTES, ZEROS_OUTSIDE)))
        return false;
    memcpy(map, at, sizeof *map);
    return true;
}

/* --- Ignis' own kernels ----------------------------------------------------------------------------------------------- */

/*  X(enumerator, source, entry). Each source is one program a dtype, compiled with -DIGNIS_T=<dtype> when one of its kernels is first used. */
#define IGNIS__BUILTINS(X)                                                                     \
    X(FILL, ELEMENTWISE_CU, "ignis_fill")                                                      \
    X(ADD, ELEMENTWISE_CU, "ignis_add")                                                        \
    X(ADD_EACH, ELEMENTWISE_CU, "ignis_add_each")                                              \
    X(MUL, ELEMENTWISE_CU, "ignis_mul")                                                        \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale")                                                    \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16")                                              \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16")                                            \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32")                                              \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64")                                              \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32")                                              \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64")                                              \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8")                                                \
    X(SDPA, ATTENTION_CU, "ignis_sdpa")                                                        \
    X(SDPA_BACKWARD_DELTA, ATTENTION_CU, "ignis_sdpa_backward_delta")                          \
    X(SDPA_BACKWARD_KV, ATTENTION_CU, "ignis_sdpa_backward_kv")                                \
    X(SDPA_BACKWARD_Q, ATTENTION_CU, "ignis_sdpa_backward_q")                                  \
    X(SDPA_MMA, ATTENTION_MMA_CU, "ignis_sdpa")                                                \
    X(SDPA_MMA_BACKWARD_DELTA, ATTENTION_MMA_CU, "ignis_sdpa_backward_delta")                  \
    X(SDPA_MMA_BACKWARD_KV, ATTENTION_MMA_CU, "ignis_sdpa_backward_kv")                        \
    X(SDPA_MMA_BACKWARD_Q, ATTENTION_MMA_CU, "ignis_sdpa_backward_q")                          \
    X(SDPA_HOPPER, ATTENTION_HOPPER_CU, "ignis_sdpa")                                          \
    X(SDPA_HOPPER_COMBINE, ATTENTION_HOPPER_CU, "ignis_sdpa_combine")                          \
    X(SDPA_HOPPER_BACKWARD_ROWS, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_rows")     \
    X(SDPA_HOPPER_BACKWARD, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward")               \
    X(SDPA_HOPPER_BACKWARD_FINISH, ATTENTION_HOPPER_BACKWARD_CU, "ignis_sdpa_backward_finish") \
    X(SDPA_DECODE_1, ATTENTION_DECODE_CU, "ignis_sdpa_decode_1")                               \
    X(SDPA_DECODE_2, ATTENTION_DECODE_CU, "ignis_sdpa_decode_2")                               \
    X(SDPA_DECODE_4, ATTENTION_DECODE_CU, "ignis_sdpa_decode_4")                               \
    X(SDPA_DECODE_COMBINE, ATTENTION_DECODE_CU, "ignis_sdpa_decode_combine")                   \
    X(SDPA_MMA_DECODE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode")                           \
    X(SDPA_MMA_DECODE_COMBINE, ATTENTION_DECODE_MMA_CU, "ignis_sdpa_decode_combine")           \
    X(SUB, POINTWISE_CU, "ignis_sub")                                                          \
    X(ADD_SPREAD, POINTWISE_CU, "ignis_add_spread")                                            \
    X(SUB_SPREAD, POINTWISE_CU, "ignis_sub_spread")                                            \
    X(MUL_SPREAD, POINTWISE_CU, "ignis_mul_spread")                                            \
    X(SPREAD_SCALED, POINTWISE_CU, "ignis_spread_scaled")                                      \
    X(DROPOUT, POINTWISE_CU, "ignis_dropout")                                                  \
    X(RELU, ACTIVATION_CU, "ignis_relu")                                                       \
    X(RELU_BACKWARD, ACTIVATION_CU, "ignis_relu_backward")                                     \
    X(GELU, ACTIVATION_CU, "ignis_gelu")                                                       \
    X(GELU_BACKWARD, ACTIVATION_CU, "ignis_gelu_backward")                                     \
    X(GELU_EXACT, ACTIVATION_CU, "ignis_gelu_exact")                                           \
    X(GELU_EXACT_BACKWARD, ACTIVATION_CU, "ignis_gelu_exact_backward")                         \
    X(SILU, ACTIVATION_CU, "ignis_silu")                                                       \
    X(SILU_BACKWARD, ACTIVATION_CU, "ignis_silu_backward")                                     \
    X(SILU_MUL, ACTIVATION_CU, "ignis_silu_mul")                                               \
    X(SILU_MUL_BACKWARD, ACTIVATION_CU, "ignis_silu_mul_backward")                             \
    X(GEMM, GEMM_CU, "ignis_gemm")                                                             \
    X(GEMM_SMALL, GEMM_CU, "ignis_gemm_small")                                                 \
    X(GEMM_MMA, GEMM_MMA_CU, "ignis_gemm_mma")                                                 \
    X(GEMM_MMA_SMALL, GEMM_MMA_CU, "ignis_gemm_mma_small")                                     \
    X(GEMM_HOPPER, GEMM_HOPPER_CU, "ignis_gemm_hopper")                                        \
    X(GEMM_FINISH, GEMM_CU, "ignis_gemm_finish")                                               \
    X(GEMM_PACK, GEMM_CU, "ignis_gemm_pack")                                                   \
    X(GEMM_APPLY, GEMM_CU, "ignis_gemm_apply")                                                 \
    X(GEMM_SUMS, GEMM_CU, "ignis_gemm_sums")                                                   \
    X(SUM_ROWS, REDUCE_CU, "ignis_sum_rows")                                                   \
    X(DOT_ROWS, REDUCE_CU, "ignis_dot_rows")                                                   \
    X(SUM_COLUMNS, REDUCE_CU, "ignis_sum_columns")                                             \
    X(DOT_COLUMNS, REDUCE_CU, "ignis_dot_columns")                                             \
    X(SUM_FINISH, REDUCE_CU, "ignis_sum_finish")                                               \
    X(TRANSPOSE_RUNS, SHAPE_CU, "ignis_transpose_runs")                                        \
    X(TRANSPOSE_TILES, SHAPE_CU, "ignis_transpose_tiles")                                      \
    X(COPY_ROWS, SHAPE_CU, "ignis_copy_rows")                                                  \
    X(RANDOM_ADVANCE, RANDOM_CU, "ignis_random_advance")                                       \
    X(RAND, RANDOM_CU, "ignis_rand")                                                           \
    X(RANDN, RANDOM_CU, "ignis_randn")                                                         \
    X(OPTIM_TABLE, OPTIM_CU, "ignis_optim_table")                                              \
    X(OPTIM_ADVANCE, OPTIM_CU, "ignis_optim_advance")                                          \
    X(ADAMW, OPTIM_CU, "ignis_adamw")                                                          \
    X(SGD, OPTIM_CU, "ignis_sgd")                                                              \
    X(GRAD_SQUARES, OPTIM_CU, "ignis_grad_squares")                                            \
    X(GRAD_CLIP, OPTIM_CU, "ignis_grad_clip")                                                  \
    X(GRAD_ZERO, OPTIM_CU, "ignis_grad_zero")                                                  \
    X(LAYER_NORM_WARP, NORM_CU, "ignis_layer_norm_warp")                                       \
    X(LAYER_NORM_BLOCK, NORM_CU, "ignis_layer_norm_block")                                     \
    X(LAYER_NORM_BACKWARD_WARP, NORM_CU, "ignis_layer_norm_backward_warp")                     \
    X(LAYER_NORM_BACKWARD_BLOCK, NORM_CU, "ignis_layer_norm_backward_block")                   \
    X(LAYER_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_layer_norm_backward_averages")             \
    X(LAYER_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_layer_norm_backward_columns")               \
    X(RMS_NORM_WARP, NORM_CU, "ignis_rms_norm_warp")                                           \
    X(RMS_NORM_BLOCK, NORM_CU, "ignis_rms_norm_block")                                         \
    X(RMS_NORM_BACKWARD_WARP, NORM_CU, "ignis_rms_norm_backward_warp")                         \
    X(RMS_NORM_BACKWARD_BLOCK, NORM_CU, "ignis_rms_norm_backward_block")                       \
    X(RMS_NORM_BACKWARD_AVERAGES, NORM_CU, "ignis_rms_norm_backward_averages")                 \
    X(RMS_NORM_BACKWARD_COLUMNS, NORM_CU, "ignis_rms_norm_backward_columns")                   \
    X(NORM_BACKWARD_SUM, NORM_CU, "ignis_norm_backward_sum")                                   \
    X(ADD_LAYER_NORM_WARP, NORM_ADD_CU, "ignis_add_layer_norm_warp")                           \
    X(ADD_LAYER_NORM_BLOCK, NORM_ADD_CU, "ignis_add_layer_norm_block")                         \
    X(ADD_RMS_NORM_WARP, NORM_ADD_CU, "ignis_add_rms_norm_warp")                               \
    X(ADD_RMS_NORM_BLOCK, NORM_ADD_CU, "ignis_add_rms_norm_block")                             \
    X(LAYER_NORM_ONTO_WARP, NORM_ADD_CU, "ignis_layer_norm_backward_onto_warp")                \
    X(LAYER_NORM_ONTO_BLOCK, NORM_ADD_CU, "ignis_layer_norm_backward_onto_block")              \
    X(RMS_NORM_ONTO_WARP, NORM_ADD_CU, "ignis_rms_norm_backward_onto_warp")                    \
    X(RMS_NORM_ONTO_BLOCK, NORM_ADD_CU, "ignis_rms_norm_backward_onto_block")                  \
    X(LAYER_NORM_ODD_WARP, NORM_ODD_CU, "ignis_layer_norm_odd_warp")                           \
    X(LAYER_NORM_ODD_BLOCK, NORM_ODD_CU, "ignis_layer_norm_odd_block")                         \
    X(RMS_NORM_ODD_WARP, NORM_ODD_CU, "ignis_rms_norm_odd_warp")                               \
    X(RMS_NORM_ODD_BLOCK, NORM_ODD_CU, "ignis_rms_norm_odd_block")                             \
    X(LAYER_NORM_ODD_BACKWARD_WARP, NORM_ODD_CU, "ignis_layer_norm_odd_backward_warp")         \
    X(LAYER_NORM_ODD_BACKWARD_BLOCK, NORM_ODD_CU, "ignis_layer_norm_odd_backward_block")       \
    X(LAYER_NORM_ODD_BACKWARD_PACKED, NORM_ODD_CU, "ignis_layer_norm_odd_backward_packed")     \
    X(RMS_NORM_ODD_BACKWARD_WARP, NORM_ODD_CU, "ignis_rms_norm_odd_backward_warp")             \
    X(RMS_NORM_ODD_BACKWARD_BLOCK, NORM_ODD_CU, "ignis_rms_norm_odd_backward_block")           \
    X(RMS_NORM_ODD_BACKWARD_PACKED, NORM_ODD_CU, "ignis_rms_norm_odd_backward_packed")         \
    X(SOFTMAX_WARP, SOFTMAX_CU, "ignis_softmax_warp")                                          \
    X(SOFTMAX_BLOCK, SOFTMAX_CU, "ignis_softmax_block")                                        \
    X(SOFTMAX_LONG, SOFTMAX_CU, "ignis_softmax_long")                                          \
    X(SOFTMAX_BACKWARD_WARP, SOFTMAX_CU, "ignis_softmax_backward_warp")                        \
    X(SOFTMAX_BACKWARD_BLOCK, SOFTMAX_CU, "ignis_softmax_backward_block")                      \
    X(CROSS_ENTROPY_COUNT, SOFTMAX_CU, "ignis_cross_entropy_count")                            \
    X(CROSS_ENTROPY_WARP, SOFTMAX_CU, "ignis_cross_entropy_warp")                              \
    X(CROSS_ENTROPY_ROUND, SOFTMAX_CU, "ignis_cross_entropy_round")                            \
    X(CROSS_ENTROPY_EXACT, SOFTMAX_CU, "ignis_cross_entropy_exact")                            \
    X(CROSS_ENTROPY_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_block")                            \
    X(CROSS_ENTROPY_LOSS_WARP, SOFTMAX_CU, "ignis_cross_entropy_loss_warp")                    \
    X(CROSS_ENTROPY_LOSS_BLOCK, SOFTMAX_CU, "ignis_cross_entropy_loss_block")                  \
    X(CROSS_ENTROPY_FEW, SOFTMAX_CU, "ignis_cross_entropy_few")                                \
    X(CROSS_ENTROPY_RESCALE, SOFTMAX_CU, "ignis_cross_entropy_rescale")                        \
    X(CROSS_ENTROPY_ADD_UP, SOFTMAX_CU, "ignis_cross_entropy_add_up")                          \
    X(CROSS_ENTROPY_BACKWARD, SOFTMAX_CU, "ignis_cross_entropy_backward")                      \
    X(ROPE, ROPE_CU, "ignis_rope")                                                             \
    X(EMBEDDING, EMBEDDING_CU, "ignis_embedding")                                              \
    X(EMBEDDING_KEYS, EMBEDDING_CU, "ignis_embedding_keys")                                    \
    X(EMBEDDING_COUNT, EMBEDDING_CU, "ignis_embedding_count")                                  \
    X(EMBEDDING_SCAN, EMBEDDING_CU, "ignis_embedding_scan")                                    \
    X(EMBEDDING_SCATTER, EMBEDDING_CU, "ignis_embedding_scatter")                              \
    X(EMBEDDING_BOUNDS, EMBEDDING_CU, "ignis_embedding_bounds")                                \
    X(EMBEDDING_CHUNKS, EMBEDDING_CU, "ignis_embedding_chunks")                                \
    X(EMBEDDING_ROWS, EMBEDDING_CU, "ignis_embedding_rows")

typedef enum ignis__builtin {
#define IGNIS__BUILTIN_ENUM(name, source, entry) IGNIS__BUILTIN_##name,
    IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM)
#undef IGNIS__BUILTIN_ENUM
        IGNIS__BUILTIN_COUNT
} ignis__builtin;

static const struct {
    int source;
    const char *entry;
} ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry) {IGNIS__SOURCE_##source, entry},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

/*  What is loaded of them on each device: modules by source and dtype, functions (0 until their first use) by kernel and dtype. */
static struct ignis__builtin_code {
    ignis__module modules[IGNIS__SOURCE_COUNT][IGNIS_DTYPE_COUNT];
    uint64_t functions[IGNIS__BUILTIN_COUNT][IGNIS_DTYPE_COUNT];
} ignis__builtin_codes[IGNIS_MAX_DEVICES];

/*  Compiles a source for a dtype, and loads it on a device that is entered. `defines` are more options, separated by spaces; null: none. */
IGNIS__COLD static bool ignis__builtin_make(const char *call, ignis__device *device, int source, ignis_dtype dtype, const char *defines,
                                            ignis__module *unit)
{
    ignis__program program;
    char dtype_define[32], copy[128];
    const char *options[8];
    char *text = ignis__source_join(&ignis__sources[source]), *at;
    bool made;
    if (!text) {
        ignis__fail_host_memory(call, 1);
        return false;
    }
    memset(&program, 0, sizeof program);
    snprintf(dtype_define, sizeof dtype_define, "-DIGNIS_T=%d", (int)dtype);
    options[program.option_count++] = dtype_define;
    snprintf(copy, sizeof copy, "%s", defines ? defines : "");
    for (at = copy; *at && program.option_count < IGNIS__COUNT(options); at += strcspn(at, " ")) {
        if (*at == ' ')
            *at++ = 0;
        options[program.option_count++] = at;
    }
    program.source = text;
    program.name = ignis__sources[source].name;
    program.options = options;
    made = ignis__module_make(call, device, &program, unit);
    ignis__free(text);
    return made;
}

/*  Loads the module of a source for a dtype on a device that is entered. Null on failure. */
IGNIS__COLD static ignis__module *ignis__builtin_module(const char *call, ignis__device *device, int source, ignis_dtype dtype)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    ignis__module *place = &ignis__builtin_codes[device - ignis__devices].modules[source][dtype];
    ignis__module made;
    bool loaded;
    ignis__mutex_lock(&lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&lock);
    if (loaded)
        return place;
    if (!ignis__builtin_make(call, device, source, dtype, NULL, &made))
        return NULL;
    ignis__mutex_lock(&lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

/*  The function of one of Ignis' own kernels on a device that is entered; null on failure. */
static void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    uint64_t *place = &ignis__builtin_codes[device - ignis__devices].functions[builtin][dtype];
    void *function = (void *)(uintptr_t)ignis__atomic_load(place);
    ignis__module *unit;
    if (function)
        return function;
    unit = ignis__builtin_module(call, device, ignis__builtins[builtin].source, dtype);
    if (!unit || !ignis__function_get(call, device, unit, ignis__builtins[builtin].entry, &function))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}

/*  The function of a kernel in a variant that more than the dtype decides. */
typedef struct ignis__variant {
    ignis__builtin builtin;
    ignis_dtype dtype;
    char define[128]; /* options, separated by spaces */
    ignis__module module;
    void *function;
    struct ignis__variant *next;
} ignis__variant;

static struct {
    ignis__mutex lock;
    ignis__variant *first[IGNIS_MAX_DEVICES];
} ignis__variants = {IGNIS__MUTEX_INIT, {0}};

static ignis__variant *ignis__variant_find(const ignis__device *device, ignis__builtin builtin, ignis_dtype dtype, const char *define)
{
    ignis__variant *variant;
    ignis__mutex_lock(&ignis__variants.lock);
    for (variant = ignis__variants.first[device - ignis__devices]; variant; variant = variant->next)
        if (variant->builtin == builtin && variant->dtype == dtype && strcmp(variant->define, define) == 0)
            break;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant;
}

IGNIS__MAYBE_UNUSED static void *ignis__builtin_get_variant(const char *call, ignis__device *device, ignis__builtin builtin,
                                                            ignis_dtype dtype, const char *define)
{
    ignis__variant *variant = ignis__variant_find(device, builtin, dtype, define);
    if (variant)
        return variant->function;
    variant = (ignis__variant *)ignis__alloc(sizeof *variant);
    if (!variant) {
        ignis__fail_host_memory(call, sizeof *variant);
        return NULL;
    }
    variant->builtin = builtin;
    variant->dtype = dtype;
    snprintf(variant->define, sizeof variant->define, "%s", define);
    if (!ignis__builtin_make(call, device, ignis__builtins[builtin].source, dtype, define, &variant->module) ||
        !ignis__function_get(call, device, &variant->module, ignis__builtins[builtin].entry, &variant->function)) {
        ignis__module_unload(&variant->module);
        ignis__free(variant);
        return NULL;
    }
    ignis__mutex_lock(&ignis__variants.lock); /* two threads may make the same one; both stay, the newer is found */
    variant->next = ignis__variants.first[device - ignis__devices];
    ignis__variants.first[device - ignis__devices] = variant;
    ignis__mutex_unlock(&ignis__variants.lock);
    return variant->function;
}

/* --- warming up --------------------------------------------------------------------------------------------------------- */

/*  Jobs are Ignis' own programs, every source in every dtype, then the caller's. Each keeps the failure of its worker for the caller. */
typedef struct ignis__warmup {
    const char *call;
    int device;
    const ignis_kernel_desc *descs;
    ignis__record *records;
} ignis__warmup;

/*  For how many dtypes a source is one program without further choices: headers for none, and sources whose kernels come in variants. */
static int ignis__source_dtypes(int source)
{
    const char *name = ignis__sources[source].name;
    if (ignis__source_is_header(source) || strncmp(name, "attention", 9) == 0 || strncmp(name, "collective", 10) == 0 ||
        strncmp(name, "gemm_", 5) == 0)
        return 0;
    return source == IGNIS__SOURCE_ELEMENTWISE_CU ? IGNIS_DTYPE_COUNT - 1 : 4 /* the floating types come first */;
}

#define IGNIS__WARMUP_OWN (IGNIS__SOURCE_COUNT * (IGNIS_DTYPE_COUNT - 1))

IGNIS__COLD static void ignis__warmup_job(void *context, int index)
{
    ignis__warmup *warmup = (ignis__warmup *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis__device *device = &ignis__devices[warmup->device];
    ignis__module module;
    ignis__binding binding;
    memset(&thread->record, 0, sizeof thread->record);
    if (ignis__device_enter(warmup->call, device, &binding)) {
        if (index < IGNIS__WARMUP_OWN) {
            int source = index / (IGNIS_DTYPE_COUNT - 1), dtype = index % (IGNIS_DTYPE_COUNT - 1) + 1, builtin;
            for (builtin = 0; builtin < IGNIS__COUNT(ignis__builtins); builtin++)
                if (dtype <= ignis__source_dtypes(source) && ignis__builtins[builtin].source == source)
                    ignis__builtin_get(warmup->call, device, (ignis__builtin)builtin, (ignis_dtype)dtype);
        } else {
            ignis__program program = ignis__program_from(&warmup->descs[index - IGNIS__WARMUP_OWN]);
            if (ignis__module_make(warmup->call, device, &program, &module))
                ignis__module_unload(&module); /* its image stays in the caches */
        }
        ignis__device_leave(&binding);
    }
    warmup->records[index] = thread->record;
    thread->record = before;
}

IGNIS__COLD IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count)
{
    static const char call[] = "ignis_warmup";
    ignis__warmup warmup;
    ignis__binding binding;
    ignis__device *device;
    ignis_status status = IGNIS_OK;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !descs)
        return ignis__fail_null(call, "descs");
    for (i = 0; i < count; i++)
        if (!ignis__kernel_desc_check(call, &descs[i]))
            return ignis__failed();
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return ignis__failed();
    ignis__device_leave(&binding);
    warmup.call = call;
    warmup.device = device->info.device;
    warmup.descs = descs;
    warmup.records = (ignis__record *)ignis__alloc(sizeof(ignis__record) * (size_t)(IGNIS__WARMUP_OWN + count));
    if (!warmup.records)
        return ignis__fail_host_memory(call, sizeof(ignis__record) * (size_t)(IGNIS__WARMUP_OWN + count));
    ignis__parallel(IGNIS__WARMUP_OWN + count, ignis__warmup_job, &warmup);
    for (i = 0; i < IGNIS__WARMUP_OWN + count; i++) {
        ignis__record *record = &warmup.records[i];
        if (record->status != IGNIS_OK && status == IGNIS_OK)
            status = record->status;
        if (record->status != IGNIS_OK)
            ignis__record_adopt(record);
    }
    ignis__free(warmup.records);
    return status;
}

IGNIS__COLD static void ignis__kernels_setup(const ignis_desc *desc)
{
    const char *env = getenv("IGNIS_CACHE_DIR"), *chosen = desc->cache_dir && *desc->cache_dir ? desc->cache_dir : env && *env ? env : NULL;
    char *dir = ignis__kernels_state.cache_dir;
    size_t size = sizeof ignis__kernels_state.cache_dir;
    static bool locks_made;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__kernels_state.compiling) && !locks_made; i++)
        ignis__mutex_init(&ignis__kernels_state.compiling[i]);
    if (!locks_made)
        ignis__mutex_init(&ignis__kernels_state.lock);
    locks_made = true;
    ignis__kernels_state.cache_limit = desc->cache_limit ? desc->cache_limit : (int64_t)256 << 20;
    ignis__kernels_state.cache_broken = false;
    dir[0] = 0;
    if (chosen && strcmp(chosen, "off") == 0)
        return;
    if (chosen && strlen(chosen) < size) {
        snprintf(dir, size, "%s", chosen);
        return;
    }
    if (chosen) {
        ignis__cache_warn("use the folder (its name is too long)", chosen);
        return;
    }
#ifdef _WIN32
    if (getenv("LOCALAPPDATA") && strlen(getenv("LOCALAPPDATA")) + 16 < size)
        snprintf(dir, size, "%s\\ignis\\kernels", getenv("LOCALAPPDATA"));
#else
    if (getenv("XDG_CACHE_HOME") && *getenv("XDG_CACHE_HOME") && strlen(getenv("XDG_CACHE_HOME")) + 16 < size)
        snprintf(dir, size, "%s/ignis", getenv("XDG_CACHE_HOME"));
    else if (getenv("HOME") && *getenv("HOME") && strlen(getenv("HOME")) + 16 < size)
        snprintf(dir, size, "%s/.cache/ignis", getenv("HOME"));
#endif
}

/*  Unloads Ignis' own kernels from a device; its context is current. */
IGNIS__COLD static void ignis__builtins_close(ignis__device *device)
{
    struct ignis__builtin_code *code = &ignis__builtin_codes[device - ignis__devices];
    int source, dtype;
    for (source = 0; source < IGNIS__SOURCE_COUNT; source++)
        for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
            ignis__module_unload(&code->modules[source][dtype]);
    memset(code, 0, sizeof *code);
    while (ignis__variants.first[device - ignis__devices]) {
        ignis__variant *variant = ignis__variants.first[device - ignis__devices];
        ignis__variants.first[device - ignis__devices] = variant->next;
        ignis__module_unload(&variant->module);
        ignis__free(variant);
    }
}

static void ignis__images_close(void)
{
    while (ignis__kernels_state.images) {
        ignis__image *image = ignis__kernels_state.images;
        ignis__kernels_state.images = image->next;
        ignis__image_drop(image);
    }
}

/* ===============================================================================================================
   >>elementwise - fill, copy, cast, add, mul, scale.
   =============================================================================================================== */

/*  Geometry of kernels/elementwise.cu: 256 threads do 4096 elements. */
static bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    int64_t blocks = (numel + 4095) / 4096;
    void *function;
    if (numel == 0)
        return true;
    if (blocks > INT32_MAX) {
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%lld elements are more than one launch can cover", (long long)numel);
        return false;
    }
    grid[0] = (unsigned)blocks;
    function = ignis__builtin_get(work->call, work->device, builtin, dtype);
    return function && ignis__launch(work, function, grid, block, 0, params);
}

static bool ignis__work_fill(const ignis__work *work, ignis__array *array, double value)
{
    ignis__address to;
    char element[8];
    void *params[] = {&to, element, &array->numel};
    ignis__convert(element, array->dtype, &value, IGNIS_F64, 1);
    return ignis__work_write(work, array, &to) && ignis__elementwise(work, IGNIS__BUILTIN_FILL, array->dtype, array->numel, params);
}

static ignis_status ignis__array_set(const char *call, ignis_array handle, double value)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    return ignis__array_work_end(&work, array, array && ignis__work_fill(&work, array, value));
}

IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value) { return ignis__array_set("ignis_array_fill", array, value); }

static bool ignis__same_numel(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->numel == src->numel)
        return true;
    ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "dst %s has %lld elements, %s %s has %lld", ignis__shape_write(&dst->shape).text,
                (long long)dst->numel, name, ignis__shape_write(&src->shape).text, (long long)src->numel);
    return false;
}

static bool ignis__same_dtype(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->dtype == src->dtype)
        return true;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, %s is %s", ignis__dtypes[dst->dtype].name, name,
                ignis__dtypes[src->dtype].name);
    return false;
}

static bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->storage->device == src->storage->device)
        return true;
    ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, %s is on device %d", (int)(dst->storage->device - ignis__devices),
                name, (int)(src->storage->device - ignis__devices));
    return false;
}

/*  Converts on one device. */
static bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    ignis__builtin cast = (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dst->dtype - (int)IGNIS_F16);
    void *params[3];
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    params[0] = &to;
    params[1] = &from;
    params[2] = &src->numel;
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             (dst->dtype == src->dtype ? ignis__copy_on_device(&work, to, from, ignis__array_bytes(src))
                                       : ignis__elementwise(&work, cast, src->dtype, src->numel, params));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Copies between devices, on the current stream of dst's device, behind the work on that of src's. */
static bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__device *from_device = src->storage->device;
    ignis__work work, from_work;
    ignis__address to, from;
    uint64_t base;
    bool ok = ignis__work_begin(call, from_device, &from_work);
    if (!ok)
        return false;
    ok = ignis__work_read(&from_work, src, &from);
    ignis__work_end(&from_work);
    if (!ok || !ignis__work_begin(call, dst->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, dst, &to) && ignis__stream_order(call, from_device, from_work.stream, work.device, work.stream) &&
         ignis__storage_use(call, src->storage, work.device, work.stream, &base) &&
         (src->numel == 0 ||
          !IGNIS__CUDA_FAILED(call, work.device, cuMemcpyPeerAsync,
                              (to, work.device->context, from, from_device->context, (size_t)ignis__array_bytes(src), work.stream)));
    ignis__work_end(&work);
    return ok;
}

IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src)
{
    static const char call[] = "ignis_array_copy";
    ignis_array handles[2];
    ignis__array *arrays[2];
    bool ok;
    handles[0] = dst;
    handles[1] = src;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__same_numel(call, arrays[0], arrays[1], "src") &&
         ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[1]);
    if (ok && arrays[0]->storage->device == arrays[1]->storage->device)
        ok = ignis__array_convert(call, arrays[0], arrays[1]);
    else if (ok && arrays[0]->dtype != arrays[1]->dtype) /* the kernel would have to reach across; cast on one side first */
        ok = ignis__same_device(call, arrays[0], arrays[1], "src");
    else if (ok)
        ok = ignis__array_copy_peer(call, arrays[0], arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_array_cast(ignis_array handle, ignis_dtype dtype)
{
    static const char call[] = "ignis_array_cast";
    ignis_array made = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *target;
    if (!array)
        return made;
    if (ignis__dtype_valid(call, dtype))
        made = ignis__array_create_like(call, array, dtype);
    if (made.id) {
        target = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
        if (!ignis__array_convert(call, target, array))
            ignis__array_discard(call, &made);
        ignis__array_drop(call, target);
    }
    ignis__array_drop(call, array);
    return made;
}

/*  dst = f(sources), all of one dtype and numel on one device. params are the kernel's, with addresses[0] for dst. */
static ignis_status ignis__array_map(const char *call, ignis__builtin builtin, int count, const ignis_array *handles,
                                     const char *const *names, ignis__address *addresses, void **params, int64_t *numel)
{
    ignis__array *arrays[3];
    ignis__work work;
    bool ok = true;
    int i;
    if (!ignis__array_hold_all(call, count, handles, arrays))
        return ignis__failed();
    for (i = 1; ok && i < count; i++)
        ok = ignis__same_numel(call, arrays[0], arrays[i], names[i]) && ignis__same_dtype(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_device(call, arrays[0], arrays[i], names[i]) &&
             ignis__array_apart(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
    ok = ok && ignis__work_begin(call, arrays[0]->storage->device, &work);
    if (ok) {
        *numel = arrays[0]->numel;
        for (i = 1; ok && i < count; i++)
            ok = ignis__work_read(&work, arrays[i], &addresses[i]);
        ok = ok && ignis__work_write(&work, arrays[0], &addresses[0]) &&
             ignis__elementwise(&work, builtin, arrays[0]->dtype, *numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop_all(call, count, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst, ignis_array a, ignis_array b)
{
    static const char *const names[] = {"dst", "a", "b"};
    ignis_array handles[3];
    ignis__address addresses[3];
    int64_t numel;
    void *params[4];
    handles[0] = dst;
    handles[1] = a;
    handles[2] = b;
    params[0] = &addresses[0];
    params[1] = &addresses[1];
    params[2] = &addresses[2];
    params[3] = &numel;
    return ignis__array_map(call, builtin, 3, handles, names, addresses, params, &numel);
}

IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_add", IGNIS__BUILTIN_ADD, dst, a, b);
}

IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_mul", IGNIS__BUILTIN_MUL, dst, a, b);
}

IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor)
{
    static const char *const names[] = {"dst", "src"};
    ignis_array handles[2];
    ignis__address addresses[2];
    int64_t numel;
    void *params[4];
    handles[0] = dst;
    handles[1] = src;
    params[0] = &addresses[0];
    params[1] = &addresses[1];
    params[2] = &factor;
    params[3] = &numel;
    return ignis__array_map("ignis_array_scale", IGNIS__BUILTIN_SCALE, 2, handles, names, addresses, params, &numel);
}

#ifndef IGNIS_NO_TENSORS

/* ===============================================================================================================
   >>tensor - tensors, scopes, random numbers.
   =============================================================================================================== */

/*  Leaves whose gradients somebody wants as soon as a backward knows them all, as to add them up over several GPUs while it goes on. What a
    backward knows of a group belongs to the backward (ignis__met_group). */
typedef struct ignis__grad_group {
    ignis__slot *owner; /* each backward that has met the group holds it, until end_fn gives that hold back */
    bool (*meet_fn)(struct ignis__grad_group *group, const char *call, const void *walk, bool *joins); /* false, reported: not now */
    bool (*ready_fn)(struct ignis__grad_group *group, const char *call);                               /* the gradients are there */
    bool (*end_fn)(struct ignis__grad_group *group, const char *call, const void *walk, bool ok);      /* that backward is over */
} ignis__grad_group;

/*  A tensor's array belongs to it by a reference (ignis__array_claim), so that nobody frees it under the tensor. What the tape needs
    later it claims as well: releasing a tensor's handle gives up the tensor's claim only. */
typedef struct ignis__tensor {
    ignis__slot slot;         /* first; its lock guards what may change: all but shape, dtype, device and made_in */
    ignis__array *data;       /* null once the handle is released */
    ignis__array *grad;       /* changes only inside ignis__leaves_enter */
    bool entered;             /* a thread is inside; guarded by ignis__leaves.lock */
    struct ignis__node *node; /* the entry of the tape that made it */
    bool requires_grad, leaf;
    bool walked;       /* its entry was used up by a backward, or cleared */
    uint64_t read;     /* 1: an entry has it as an input, so it can be no result any more: entries would hold each other for ever */
    ignis_shape shape; /* of data, also when that is gone */
    ignis_dtype dtype;
    ignis__device *device;
    ignis__grad_group *group;   /* of a leaf; null: none */
    uint64_t made_in;           /* the backward whose backward function made it, by serial; 0: none */
    struct ignis__tensor *next; /* in a list of dead tensors */
} ignis__tensor;

static ignis__pool ignis__tensors = IGNIS__POOL(ignis__tensor, IGNIS__KIND_TENSOR, "tensor", IGNIS_DIAG_TENSOR_FREED);

/*  What the tensor sections keep of a thread. */
typedef struct ignis__tensor_thread {
    uint64_t setup;                    /* the setup that it belongs to: an older one is forgotten */
    int tensor_count, tensor_capacity; /* handles made inside scopes, those of the innermost scope last */
    int scope_count, scope_capacity;
    int no_grad;
    uint64_t seed, random_used; /* blocks of four random numbers given out */
    bool random_again;          /* a checkpoint runs its function again, with the numbers of the first time */
    uint64_t random_launches;   /* and this counter of a graph's launches, by handle; 0: none */
    struct ignis__tape *tape;
    struct ignis__walk *walk;       /* the innermost backward; null: none */
    uint64_t walk_serial;           /* its serial, or 0 */
    int scope_floor, no_grad_floor; /* what was open before a function of the caller's was called, which may not end it */
    bool unbalanced;                /* the function has tried to */
    bool saw_trainable;             /* an operation had an input that requires a gradient, recorded or not */
    struct ignis__watch *watch;     /* of the checkpoint whose function runs for the first time; null: none */
} ignis__tensor_thread;

static IGNIS__TLS ignis__tensor_thread ignis__this_tensor_thread;
static uint64_t ignis__scope_serials;

IGNIS__ONE_COPY static ignis__tensor_thread *ignis__tensor_thread_now(void)
{
    ignis__tensor_thread *thread = &ignis__this_tensor_thread;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->tensor_count = thread->scope_count = thread->no_grad = 0;
        thread->seed = thread->random_used = thread->random_launches = 0;
        thread->random_again = false;
        thread->tape = NULL;
        thread->walk = NULL;
        thread->walk_serial = 0;
        thread->scope_floor = thread->no_grad_floor = 0;
        thread->unbalanced = thread->saw_trainable = false;
        thread->watch = NULL;
    }
    return thread;
}

/* --- entries of the tape, as far as tensors hold them ---------------------------------------------------------------- */

/*  One operation: who its inputs are, what its backward function needs. It lives as long as its output's tensor, or until a
    backward has used it. One block of memory holds it with its lists.

    Only the thread of a tape adds entries to it, walks and clears it; any thread may release the tensor that keeps an entry. So the thread of the
    tape may use an entry as long as it holds the output, and others may under the output's lock. */
typedef struct ignis__node {
    struct ignis__tape *tape;
    struct ignis__node *before, *after; /* in the order of recording */
    uint64_t serial;                    /* that order as a number, from 1 */
    ignis__tensor *output;
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    void *user_data;
    int input_count, saved_count;
    bool drawn;             /* during ignis_tape_dot */
    bool counted;           /* during a backward: its inputs are among the uses of groups */
    bool running;           /* its backward function runs */
    bool nests;             /* backward_fn runs a backward of its own */
    bool knows_one;         /* backward_fn takes no grad_output for one that is 1, as a backward's first */
    ignis__tensor **inputs; /* each held */
    ignis__array **saved;   /* each claimed */
    uint64_t *versions;     /* of what is saved, when it was recorded; IGNIS__UNWRITTEN for what may be written later */
    void *params;
    bool *needed;       /* for each input, whether it required a gradient when this was recorded */
    ignis__array *grad; /* during a backward: of the output, as far as it is known; claimed. The output is held meanwhile */
} ignis__node;

typedef struct ignis__tape {
    ignis__mutex lock; /* for the links: a tensor may be released by another thread than the one that recorded it */
    ignis__node *first, *last;
    int64_t length;
    uint64_t serials;         /* given out */
    uint64_t number;          /* from 1, in the process */
    bool ended;               /* its thread has; it goes with its last entry */
    struct ignis__tape *next; /* in the list of all */
} ignis__tape;

/*  All tapes: of threads that have not ended, and those of which tensors still keep entries. This lock is taken before a tape's. */
static struct {
    ignis__mutex lock;
    uint64_t numbers; /* given out so far */
    ignis__tape *first;
} ignis__tapes = {IGNIS__MUTEX_INIT, 0, NULL};

/*  Frees a tape that is in the list; the list is locked. */
static void ignis__tape_free(ignis__tape *tape)
{
    ignis__tape **link = &ignis__tapes.first;
    while (*link != tape)
        link = &(*link)->next;
    *link = tape->next;
    ignis__free(tape);
}

/*  The thread ends. Its tape goes, which ignis_shutdown may have freed already; for what else runs at the thread's end all begins anew. */
static void ignis__tensors_end(void)
{
    ignis__tape *tape;
    bool empty;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape && tape->number != ignis__this_thread.tape; tape = tape->next)
        ;
    if (tape) {
        ignis__mutex_lock(&tape->lock);
        tape->ended = true;
        empty = tape->length == 0;
        ignis__mutex_unlock(&tape->lock);
        if (empty)
            ignis__tape_free(tape);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    ignis__this_thread.tape = 0;
    memset(&ignis__this_tensor_thread, 0, sizeof ignis__this_tensor_thread);
}

static void ignis__tensors_at_exit(void)
{
    ignis__this_thread.tensors_end = ignis__tensors_end;
    ignis__at_thread_exit(ignis__thread_exit, &ignis__this_thread);
}

static void ignis__node_unlink(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    bool last;
    ignis__mutex_lock(&tape->lock);
    if (node->before)
        node->before->after = node->after;
    else
        tape->first = node->after;
    if (node->after)
        node->after->before = node->before;
    else
        tape->last = node->before;
    last = --tape->length == 0 && tape->ended;
    ignis__mutex_unlock(&tape->lock);
    if (last) {
        ignis__mutex_lock(&ignis__tapes.lock);
        ignis__tape_free(tape);
        ignis__mutex_unlock(&ignis__tapes.lock);
    }
}

/*  Takes an entry apart that is on no tape. Inputs of which it had the last hold go onto the list of dead tensors. */
static void ignis__node_destroy(const char *call, ignis__node *node, ignis__tensor **dead)
{
    int i;
    for (i = 0; i < node->saved_count; i++)
        ignis__array_unclaim(call, node->saved[i]);
    if (node->grad)
        ignis__array_unclaim(call, node->grad);
    for (i = 0; i < node->input_count; i++) {
        if (ignis__pool_drop(node->inputs[i])) {
            node->inputs[i]->next = *dead;
            *dead = node->inputs[i];
        }
    }
    ignis__free(node);
}

/*  Takes dead tensors apart, and all that only they kept alive, in a loop: a chain of a hundred thousand operations needs no more
    stack than one. */
static void ignis__tensors_bury(const char *call, ignis__tensor *dead)
{
    while (dead) {
        ignis__tensor *tensor = dead;
        dead = tensor->next;
        if (tensor->data)
            ignis__array_unclaim(call, tensor->data);
        if (tensor->grad)
            ignis__array_unclaim(call, tensor->grad);
        if (tensor->node) {
            ignis__node_unlink(tensor->node);
            ignis__node_destroy(call, tensor->node, &dead);
        }
        ignis__pool_give(&ignis__tensors, tensor);
    }
}

IGNIS__ONE_COPY static void ignis__tensor_drop(const char *call, ignis__tensor *tensor)
{
    if (!ignis__pool_drop(tensor))
        return;
    tensor->next = NULL;
    ignis__tensors_bury(call, tensor);
}

/*  Ends the entry that made a tensor: its backward is used up. Only the thread of the tape does this, and it holds the output. */
static void ignis__node_consume(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__mutex_lock(&node->output->slot.lock);
    node->output->node = NULL;
    node->output->walked = true;
    ignis__mutex_unlock(&node->output->slot.lock);
    ignis__node_unlink(node);
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_bury(call, dead);
}

/* --- a thread's scopes ----------------------------------------------------------------------------------------------- */

/*  Where a thread's scopes begin in its list of tensors. */
typedef struct ignis__scope_mark {
    uint64_t serial;
    int first;
} ignis__scope_mark;

static uint64_t *ignis__scope_tensors(void) { return (uint64_t *)ignis__this_thread.attached[0]; }
static ignis__scope_mark *ignis__scope_marks(void) { return (ignis__scope_mark *)ignis__this_thread.attached[1]; }

/*  Room for one more element at the end of one of the thread's arrays. */
static bool ignis__scope_grow(const char *call, int which, int *capacity, int count, size_t size)
{
    int wanted = *capacity ? *capacity * 2 : 64;
    void *grown;
    if (count < *capacity)
        return true;
    grown = realloc(ignis__this_thread.attached[which], (size_t)wanted * size);
    if (!grown) {
        ignis__fail_host_memory(call, (size_t)wanted * size);
        return false;
    }
    ignis__this_thread.attached[which] = grown;
    ignis__tensors_at_exit();
    *capacity = wanted;
    return true;
}

/* --- tensors --------------------------------------------------------------------------------------------------------- */

IGNIS__ONE_COPY static ignis_tensor ignis__no_tensor(void)
{
    ignis_tensor none = IGNIS__ZERO;
    return none;
}

static bool ignis__dtype_is_float(ignis_dtype dtype) { return dtype >= IGNIS_F16 && dtype <= IGNIS_F64; }

static double ignis__nan(void)
{
    static const uint64_t bits = 0x7FF8000000000000u;
    double nan_value;
    memcpy(&nan_value, &bits, sizeof nan_value);
    return nan_value;
}

IGNIS__ONE_COPY static ignis__tensor *ignis__tensor_hold(const char *call, ignis_tensor handle)
{
    return (ignis__tensor *)ignis__handle_hold(call, &ignis__tensors, handle.id);
}

/*  How a held tensor stands to the tape at this moment. The entry may be used as ignis__node says. */
typedef struct ignis__standing {
    ignis__node *node;
    ignis__tape *tape; /* of the entry */
    bool requires_grad, leaf, walked;
} ignis__standing;

/*  The tensor is locked. */
static ignis__standing ignis__standing_of(const ignis__tensor *tensor)
{
    ignis__standing standing;
    standing.node = tensor->node;
    standing.tape = tensor->node ? tensor->node->tape : NULL;
    standing.requires_grad = tensor->requires_grad;
    standing.leaf = tensor->leaf;
    standing.walked = tensor->walked;
    return standing;
}

IGNIS__ONE_COPY static ignis__standing ignis__tensor_standing(ignis__tensor *tensor)
{
    ignis__standing standing;
    ignis__mutex_lock(&tensor->slot.lock);
    standing = ignis__standing_of(tensor);
    ignis__mutex_unlock(&tensor->slot.lock);
    return standing;
}

static bool ignis__tensor_requires_grad(ignis__tensor *tensor) { return ignis__tensor_standing(tensor).requires_grad; }

/*  The array of a held tensor, held itself, and how the tensor stands; null, and reported, when another thread has released the tensor. */
IGNIS__ONE_COPY static ignis__array *ignis__tensor_enter(const char *call, ignis__tensor *tensor, ignis__standing *standing)
{
    ignis__array *array = NULL;
    ignis__mutex_lock(&tensor->slot.lock);
    *standing = ignis__standing_of(tensor);
    if (tensor->data)
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, tensor->data->slot.handle);
    ignis__mutex_unlock(&tensor->slot.lock);
    if (!array)
        ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "a tensor was released by another thread");
    return array;
}

static ignis__array *ignis__tensor_array(const char *call, ignis__tensor *tensor)
{
    ignis__standing standing;
    return ignis__tensor_enter(call, tensor, &standing);
}

/*  A tensor over an array, one claim of which is its own from then on. Only its maker sees it until ignis__tensor_publish. Null: no memory. */
static ignis__tensor *ignis__tensor_make(const char *call, ignis__array *array, bool requires_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tensor *tensor;
    if (thread->scope_count && !ignis__scope_grow(call, 0, &thread->tensor_capacity, thread->tensor_count, sizeof(uint64_t)))
        return NULL;
    tensor = (ignis__tensor *)ignis__pool_take(call, &ignis__tensors);
    if (!tensor)
        return NULL;
    tensor->data = array;
    tensor->grad = NULL;
    tensor->entered = false;
    tensor->node = NULL;
    tensor->group = NULL;
    tensor->made_in = thread->walk_serial;
    tensor->requires_grad = requires_grad;
    tensor->leaf = true;
    tensor->walked = false;
    tensor->read = 0;
    tensor->shape = array->shape;
    tensor->dtype = array->dtype;
    tensor->device = array->storage->device;
    tensor->next = NULL;
    return tensor;
}

/*  Gives a tensor that was just made its handle, in the current scope. */
static ignis_tensor ignis__tensor_publish(ignis__tensor *tensor)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis_tensor handle;
    handle.id = ignis__pool_publish(&ignis__tensors, tensor);
    if (thread->scope_count)
        ignis__scope_tensors()[thread->tensor_count++] = handle.id;
    return handle;
}

/*  The tensor of a new array that nobody else has, which ends with it. A handle of 0 for the array passes through. */
static ignis_tensor ignis__tensor_adopt(const char *call, ignis_array made, bool requires_grad)
{
    ignis__array *array = ignis__array_adopt(call, made);
    ignis__tensor *tensor = NULL;
    if (!array)
        return ignis__no_tensor();
    if (requires_grad && !ignis__dtype_is_float(array->dtype))
        ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient", ignis__dtypes[array->dtype].name);
    else
        tensor = ignis__tensor_make(call, array, requires_grad);
    if (tensor)
        return ignis__tensor_publish(tensor);
    ignis__array_unclaim(call, array);
    return ignis__no_tensor();
}

IGNIS__COLD static ignis_array ignis__tensor_array_create(const char *call, ignis_shape shape, const ignis_tensor_desc *desc)
{
    ignis_array_desc array;
    memset(&array, 0, sizeof array);
    array.shape = shape;
    if (desc) {
        array.dtype = desc->dtype;
        array.device = desc->device;
        array.tag = desc->tag;
    }
    return ignis__array_create(call, &array);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_from_host";
    ignis_tensor none = IGNIS__ZERO;
    ignis_array made;
    ignis__array *array;
    ignis_dtype host;
    int64_t count;
    if (!ignis__enter(call))
        return none;
    made = ignis__tensor_array_create(call, shape, desc);
    if (!made.id)
        return none;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    count = desc && desc->host_count ? desc->host_count : array->numel;
    host = desc && desc->host_dtype ? desc->host_dtype : array->dtype == IGNIS_F16 || array->dtype == IGNIS_BF16 ? IGNIS_F32 : array->dtype;
    if (!ignis__dtype_valid(call, host) || !ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") ||
        ignis__array_from_host(call, array, data, host) != IGNIS_OK)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

/*  A tensor over the memory of an array, through an array of its own. */
static ignis_tensor ignis__tensor_over(const char *call, ignis__array *array, bool requires_grad)
{
    return ignis__tensor_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0), requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array handle, bool requires_grad)
{
    static const char call[] = "ignis_tensor_from_array";
    ignis_tensor tensor = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return tensor;
    tensor = ignis__tensor_over(call, array, requires_grad);
    ignis__array_drop(call, array);
    return tensor;
}

IGNIS__COLD static ignis_tensor ignis__tensor_filled(const char *call, ignis_shape shape, const ignis_tensor_desc *desc, double value)
{
    ignis_array made;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    made = ignis__tensor_array_create(call, shape, desc);
    if (made.id && (value == 0 ? ignis__array_set_zero(call, made) : ignis__array_set(call, made, value)) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_zeros", shape, desc, 0);
}

IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_ones", shape, desc, 1);
}

IGNIS_API ignis_status ignis_seed(uint64_t seed)
{
    if (!ignis__enter("ignis_seed"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tensor_thread_now()->seed = seed;
    ignis__tensor_thread_now()->random_used = 0;
    return IGNIS_OK;
}

/*  Where an operation's random numbers begin: the seed, the first of the Philox counters that are now its own, and where it is part of a
    CUDA graph the counter of launches. */
typedef struct ignis__random {
    uint64_t seed, first;
    ignis_array launches; /* no handle: none */
} ignis__random;

static void ignis__array_unclaim_held(const char *call, void *item) { ignis__array_unclaim(call, (ignis__array *)item); }

/*  Lets a capture count the launches of its graph, from 1: the counter begins beside the capture, and goes up ahead of its first reader. */
IGNIS__COLD static bool ignis__capture_count(const ignis__work *work, ignis__capture *capture, ignis_dtype dtype)
{
    unsigned one[3] = {1, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_RANDOM_ADVANCE, dtype), *params[1];
    ignis__address address;
    ignis__array *array;
    ignis_array_desc desc;
    ignis_array made;
    bool ok;
    if (!function)
        return false;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = 1;
    desc.dtype = IGNIS_I64;
    desc.device = work->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(work->device - ignis__devices);
    desc.tag = "launches";
    made = ignis__array_create(work->call, &desc);
    if (!made.id)
        return false;
    (void)ignis__capture_pause();
    ok = ignis__array_set_zero(work->call, made) == IGNIS_OK;
    ok = ignis__capture_resume(work->call, capture) && ok;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    params[0] = &address;
    ok = ok && ignis__work_write(work, array, &address) && ignis__launch(work, function, one, one, 0, params);
    if (ok) {
        ignis__array_claim(array);
        ok = ignis__capture_hold(work->call, capture, array, NULL, ignis__array_unclaim_held);
        if (ok)
            capture->launches = array;
        else
            ignis__array_unclaim(work->call, array);
    } else {
        ignis__array_discard(work->call, &made);
    }
    ignis__array_drop(work->call, array);
    return ok;
}

/*  The counter of launches for random numbers of the calling thread now, or no handle. */
static ignis_array ignis__random_launches(void)
{
    const ignis__tensor_thread *thread = ignis__tensor_thread_now();
    const ignis__capture *capture = ignis__capturing();
    ignis_array launches = IGNIS__ZERO;
    if (thread->random_again)
        launches.id = thread->random_launches;
    else if (capture && capture->launches)
        launches.id = capture->launches->slot.handle;
    return launches;
}

/*  The numbers for so many elements of a tensor on the device of the work. */
static bool ignis__random_take(const ignis__work *work, ignis_dtype dtype, int64_t numel, ignis__random *random)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__capture *capture = ignis__capture_on(work->device);
    if (capture && !capture->launches && !thread->random_again && !ignis__capture_count(work, capture, dtype))
        return false;
    random->seed = thread->seed;
    random->first = thread->random_used;
    random->launches.id = 0;
    if (capture || thread->random_again)
        random->launches = ignis__random_launches();
    thread->random_used += ((uint64_t)numel + 3) / 4;
    return true;
}

/*  The address of a counter of launches for a kernel; 0 for no handle. */
static bool ignis__random_step(const ignis__work *work, ignis_array launches, ignis__address *step)
{
    ignis__array *array;
    bool ok;
    *step = 0;
    if (!launches.id)
        return true;
    array = ignis__array_hold(work->call, launches);
    ok = array && (array->storage->device != work->device || ignis__work_read(work, array, step));
    if (array)
        ignis__array_drop(work->call, array);
    return ok;
}

/*  The array of a tensor by handle, unheld: what ignis_tensor_data returns. */
static ignis_array ignis__tensor_array_handle(const char *call, ignis_tensor handle, bool grad)
{
    ignis_array result = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return result;
    ignis__mutex_lock(&tensor->slot.lock);
    if (!grad && tensor->data)
        result.id = tensor->data->slot.handle;
    if (grad && tensor->grad)
        result.id = tensor->grad->slot.handle;
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__tensor_drop(call, tensor);
    return result;
}

IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor) { return ignis__tensor_array_handle("ignis_tensor_data", tensor, false); }

IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor) { return ignis__tensor_array_handle("ignis_tensor_grad", tensor, true); }

IGNIS_API ignis_status ignis_tensor_query(ignis_tensor handle, ignis_tensor_info *info)
{
    static const char call[] = "ignis_tensor_query";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!tensor)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        ignis__mutex_lock(&tensor->slot.lock);
        info->shape = tensor->shape;
        info->dtype = tensor->dtype;
        info->device = (int)(tensor->device - ignis__devices);
        info->requires_grad = tensor->requires_grad;
        info->is_leaf = tensor->leaf;
        info->data.id = tensor->data ? tensor->data->slot.handle : 0;
        info->grad.id = tensor->grad ? tensor->grad->slot.handle : 0;
        info->operation = tensor->node ? tensor->node->name : "";
        ignis__mutex_unlock(&tensor->slot.lock);
    }
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS__COLD static ignis_status ignis__tensor_read(const char *call, ignis__tensor *tensor, void *out, ignis_dtype dtype, int64_t count)
{
    ignis__array *array = ignis__tensor_array(call, tensor);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    if (ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, out, "out", count, array->numel, "elements"))
        status = ignis__array_to_host(call, array, out, dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_tensor_to_host";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__tensor_read(call, tensor, out, dtype, count);
    ignis__tensor_drop(call, tensor);
    return status;
}

static int64_t ignis__tensor_numel(const ignis__tensor *tensor)
{
    int64_t numel = 1;
    int i;
    for (i = 0; i < tensor->shape.ndim; i++)
        numel *= tensor->shape.dim[i];
    return numel;
}

IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_shape";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_shape shape = IGNIS__ZERO;
    if (!tensor)
        return shape;
    shape = tensor->shape;
    ignis__tensor_drop(call, tensor);
    return shape;
}

IGNIS_API int64_t ignis_tensor_numel(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_numel";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t numel;
    if (!tensor)
        return -1;
    numel = ignis__tensor_numel(tensor);
    ignis__tensor_drop(call, tensor);
    return numel;
}

IGNIS__COLD IGNIS_API int ignis_tensor_to_string(ignis_tensor handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_tensor_to_string";
    ignis__tensor *tensor;
    ignis__text text;
    char none[1];
    if (!ignis__enter(call))
        return -1;
    if (!out && capacity) {
        ignis__fail_null(call, "out");
        return -1;
    }
    ignis__text_begin(&text, out ? out : none, capacity);
    tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (tensor) {
        ignis__mutex_lock(&tensor->slot.lock);
        ignis__text_add(&text, "tensor %s %s on device %d", ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name,
                        (int)(tensor->device - ignis__devices));
        if (tensor->node)
            ignis__text_add(&text, ", result of %s", tensor->node->name);
        else
            ignis__text_add(&text, ", %s", tensor->leaf ? "leaf" : "result of an operation that was released");
        if (tensor->leaf && tensor->requires_grad)
            ignis__text_add(&text, ", requires a gradient");
        if (tensor->data && *tensor->data->tag)
            ignis__text_add(&text, ", '%s'", tensor->data->tag);
        ignis__mutex_unlock(&tensor->slot.lock);
        ignis__tensor_drop(call, tensor);
    } else {
        ignis__text_add(&text, "tensor handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  The one element of a tensor, as it is stored; *dtype is its type, IGNIS_DTYPE_DEFAULT on failure. */
IGNIS__COLD static int64_t ignis__tensor_item(const char *call, ignis_tensor handle, ignis_dtype *dtype)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t bits = 0;
    *dtype = IGNIS_DTYPE_DEFAULT;
    if (!tensor)
        return bits;
    if (ignis__tensor_numel(tensor) != 1)
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "a tensor of one element is needed, this one is %s",
                    ignis__shape_write(&tensor->shape).text);
    else if (ignis__tensor_read(call, tensor, &bits, ignis__dtype_is_float(tensor->dtype) ? IGNIS_F64 : IGNIS_I64, 1) == IGNIS_OK)
        *dtype = tensor->dtype;
    ignis__tensor_drop(call, tensor);
    return bits;
}

IGNIS__COLD IGNIS_API double ignis_item(ignis_tensor tensor)
{
    static const char call[] = "ignis_item";
    ignis_dtype dtype;
    int64_t bits = ignis__tensor_item(call, tensor, &dtype);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (dtype == IGNIS_DTYPE_DEFAULT)
        return ignis__nan();
    if (ignis__dtype_is_float(dtype))
        return value;
    if ((double)bits < 9223372036854775808.0 && (int64_t)(double)bits == bits)
        return (double)bits;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the value is %lld, which no double is equal to; ignis_item_i64 returns it", (long long)bits);
    return ignis__nan();
}

IGNIS__COLD IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor)
{
    static const char call[] = "ignis_item_i64";
    ignis_dtype dtype;
    int64_t value = ignis__tensor_item(call, tensor, &dtype);
    if (!ignis__dtype_is_float(dtype))
        return dtype ? value : INT64_MIN;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; i32, i64 or u8 is needed", ignis__dtypes[dtype].name);
    return INT64_MIN;
}

/*  Makes a held tensor's handle stale, and gives up its data; false when that was done already. */
static bool ignis__tensor_end_handle(const char *call, ignis__tensor *tensor)
{
    ignis__array *data;
    bool live;
    ignis__mutex_lock(&tensor->slot.lock);
    live = ignis__pool_live(tensor);
    data = live ? tensor->data : NULL;
    if (live) {
        tensor->data = NULL;
        ignis__pool_kill(tensor);
    }
    ignis__mutex_unlock(&tensor->slot.lock);
    if (data)
        ignis__array_unclaim(call, data);
    if (live)
        ignis__pool_drop(tensor); /* the handle's own hold; the caller still has one */
    return live;
}

IGNIS_API ignis_status ignis_tensor_release(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_release";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!tensor)
        return ignis__failed();
    if (!ignis__tensor_end_handle(call, tensor))
        status = ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "another thread has released the tensor");
    ignis__tensor_drop(call, tensor);
    return status;
}

/* --- scopes ----------------------------------------------------------------------------------------------------------- */

IGNIS_API ignis_scope ignis_scope_begin(void)
{
    static const char call[] = "ignis_scope_begin";
    ignis_scope scope = IGNIS__ZERO;
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return scope;
    thread = ignis__tensor_thread_now();
    if (!ignis__scope_grow(call, 1, &thread->scope_capacity, thread->scope_count, sizeof(ignis__scope_mark)))
        return scope;
    scope.id = ignis__atomic_add(&ignis__scope_serials, 1);
    ignis__scope_marks()[thread->scope_count].serial = scope.id;
    ignis__scope_marks()[thread->scope_count++].first = thread->tensor_count;
    return scope;
}

/*  Ends the innermost scope; `keep` goes on to the enclosing one. */
static void ignis__scope_pop(const char *call, uint64_t keep)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int first = ignis__scope_marks()[--thread->scope_count].first;
    ignis__tensor *tensor;
    bool kept = false;
    while (thread->tensor_count > first) {
        uint64_t handle = ignis__scope_tensors()[--thread->tensor_count];
        if (handle == keep) {
            kept = true;
            continue;
        }
        tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle);
        if (!tensor)
            continue;
        ignis__tensor_end_handle(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    if (kept && thread->scope_count) /* there is room: it was in the list before */
        ignis__scope_tensors()[thread->tensor_count++] = keep;
}

static bool ignis__scope_end(const char *call, ignis_scope scope, uint64_t keep)
{
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return false;
    thread = ignis__tensor_thread_now();
    if (!thread->scope_count || ignis__scope_marks()[thread->scope_count - 1].serial != scope.id) {
        ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "this is not the innermost open scope of this thread, which has %d open",
                    thread->scope_count);
        return false;
    }
    if (thread->scope_count == thread->scope_floor) {
        thread->unbalanced = true;
        ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "the scope was begun before the function that is running now, which cannot end it");
        return false;
    }
    ignis__scope_pop(call, keep);
    return true;
}

IGNIS_API ignis_status ignis_scope_end(ignis_scope scope)
{
    return ignis__scope_end("ignis_scope_end", scope, 0) ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor)
{
    (void)ignis__scope_end("ignis_scope_return", scope, tensor.id);
    return tensor;
}

/*  Around a function of the caller's that a call runs, for a rule or not (null): the scopes and no-grad sections of before are there again
    afterwards, and messages of what fails in it name the call. */
typedef struct ignis__frame {
    ignis__outer_call outer;
    int no_grad, scope_floor, no_grad_floor;
    bool unbalanced;
} ignis__frame;

static void ignis__frame_begin(ignis__frame *frame, const char *call, const char *rule, int no_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__outer_call_begin(&frame->outer, call, rule);
    frame->no_grad = thread->no_grad;
    frame->scope_floor = thread->scope_floor;
    frame->no_grad_floor = thread->no_grad_floor;
    frame->unbalanced = thread->unbalanced;
    thread->no_grad = thread->no_grad_floor = no_grad;
    thread->scope_floor = thread->scope_count;
    thread->unbalanced = false;
}

/*  False, and reported: the function has begun or ended what it did not end or begin. */
static bool ignis__frame_end(const ignis__frame *frame)
{
    const char *call = frame->outer.call, *what = frame->outer.rule ? frame->outer.rule : call;
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int scopes = thread->scope_count - thread->scope_floor, sections = thread->no_grad - thread->no_grad_floor;
    bool balanced = !thread->unbalanced && scopes == 0 && sections == 0; /* what it has ended too much was reported then */
    ignis__outer_call_end(&frame->outer);
    if (scopes || sections)
        ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call,
                    "the function of '%s' has returned with %d scopes and %d no-grad sections that it did not end", what, scopes, sections);
    while (thread->scope_count > thread->scope_floor)
        ignis__scope_pop(call, 0);
    thread->no_grad = frame->no_grad;
    thread->scope_floor = frame->scope_floor;
    thread->no_grad_floor = frame->no_grad_floor;
    thread->unbalanced = frame->unbalanced;
    return balanced;
}

/*  Adds the tensors that an array is the data or the gradient of to a text; returns how many they are. */
IGNIS__COLD static int ignis__tensors_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__tensor *tensor;
    uint64_t index = 0;
    int count = 0;
    while ((tensor = (ignis__tensor *)ignis__pool_next(&ignis__tensors, &index)) != NULL) {
        bool is_data, is_grad;
        ignis__mutex_lock(&tensor->slot.lock);
        is_data = tensor->data == array;
        is_grad = tensor->grad == array;
        ignis__mutex_unlock(&tensor->slot.lock);
        if (is_data || is_grad)
            ignis__text_add(text, ", it is the %s of a tensor %s", is_data ? "data" : "gradient", ignis__shape_write(&tensor->shape).text);
        count += is_data + is_grad;
        ignis__tensor_drop("ignis_array_free", tensor);
    }
    return count;
}

/* ===============================================================================================================
   >>tape - recording, backward, checkpoints. Knows no operation.
   =============================================================================================================== */

/*  Another hold of what the caller holds already. */
static void ignis__tensor_rehold(ignis__tensor *held) { ignis__atomic_add(&held->slot.state, 1); }

/*  The calling thread's tape, made at its first use. */
static ignis__tape *ignis__tape_now(const char *call)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tape *tape = thread->tape;
    if (tape)
        return tape;
    tape = (ignis__tape *)ignis__alloc(sizeof *tape);
    if (!tape) {
        ignis__fail_host_memory(call, sizeof *tape);
        return NULL;
    }
    ignis__mutex_init(&tape->lock);
    ignis__mutex_lock(&ignis__tapes.lock);
    tape->number = ++ignis__tapes.numbers;
    tape->next = ignis__tapes.first;
    ignis__tapes.first = tape;
    ignis__mutex_unlock(&ignis__tapes.lock);
    thread->tape = tape;
    ignis__this_thread.tape = tape->number;
    ignis__tensors_at_exit();
    return tape;
}

static bool ignis__recording(void) { return ignis__tensor_thread_now()->no_grad == 0; }

/*  What an entry keeps of a held array for its backward, claimed. An array that lives by its references gets one more. The caller's own is kept
    through a view: he may free it at any time, or use it for ever. Null, and reported: there is no memory. */
static ignis__array *ignis__array_keep(const char *call, ignis__array *array)
{
    bool kept;
    ignis__mutex_lock(&array->slot.lock);
    kept = array->owned_by_refs && ignis__pool_live(array);
    if (kept) {
        array->ref_count++;
        ignis__atomic_add(&array->slot.state, 1);
    }
    ignis__array_unlock(array);
    return kept ? array : ignis__array_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0));
}

/*  Takes an entry apart that did not get onto the tape. */
IGNIS__COLD static void ignis__node_discard(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_bury(call, dead);
}

/*  An entry for an operation on held inputs, of which one requires a gradient, while recording is on; standings: theirs, null: to be asked for. It
    is on no tape yet, and has saved nothing: there is room for what the rule saves. Null, and reported: it cannot be recorded on this thread's
    tape, or there is no memory. */
static ignis__node *ignis__node_make(const char *call, int count, ignis__tensor *const *inputs, const ignis__standing *standings,
                                     const ignis_rule *rule)
{
    ignis__tape *tape = ignis__tape_now(call);
    size_t saved_size = (sizeof(ignis__array *) + sizeof(uint64_t)) * (size_t)rule->saved_count;
    size_t size = sizeof(ignis__node) + (sizeof(ignis__tensor *) + sizeof(bool)) * (size_t)count + saved_size + rule->params_size;
    ignis__node *node = tape ? (ignis__node *)ignis__alloc(size) : NULL;
    int i;
    if (!node) {
        if (tape)
            ignis__fail_host_memory(call, size);
        return NULL;
    }
    node->tape = tape;
    node->name = rule->name;
    node->backward_fn = rule->backward_fn;
    node->user_data = rule->user_data;
    node->inputs = (ignis__tensor **)(void *)(node + 1);
    node->saved = (ignis__array **)(void *)(node->inputs + count);
    node->versions = (uint64_t *)(void *)(node->saved + rule->saved_count);
    node->params = node->versions + rule->saved_count;
    node->needed = (bool *)node->params + rule->params_size;
    if (rule->params_size)
        memcpy(node->params, rule->params, rule->params_size);
    for (i = 0; i < count; i++) {
        ignis__standing standing = standings ? standings[i] : ignis__tensor_standing(inputs[i]);
        if (standing.node && standing.tape != tape) {
            ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call,
                        "input %d was recorded by another thread, whose tape it belongs to; ignis_detach it", i);
            ignis__node_discard(call, node);
            return NULL;
        }
        ignis__tensor_rehold(inputs[i]);
        if (!ignis__atomic_load(&inputs[i]->read))
            ignis__atomic_store(&inputs[i]->read, 1);
        node->inputs[node->input_count++] = inputs[i];
        node->needed[i] = standing.requires_grad;
    }
    return node;
}

/*  Lets an entry have a claim of an array; false for none. */
static bool ignis__node_save(ignis__node *node, ignis__array *claimed)
{
    if (!claimed)
        return false;
    node->versions[node->saved_count] = ignis__array_version(claimed);
    node->saved[node->saved_count++] = claimed;
    return true;
}

/*  Makes a tensor, which is locked or seen by nobody else, the result of an entry. */
static void ignis__tensor_result(ignis__tensor *output, ignis__node *node)
{
    output->requires_grad = true;
    output->leaf = false;
    output->node = node;
    node->output = output;
}

/*  Puts an entry at the end of its tape. */
static void ignis__tape_append(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    ignis__mutex_lock(&tape->lock);
    node->serial = ++tape->serials;
    node->before = tape->last;
    if (tape->last)
        tape->last->after = node;
    else
        tape->first = node;
    tape->last = node;
    tape->length++;
    ignis__mutex_unlock(&tape->lock);
}

/*  Makes a held tensor the result of an entry, which goes onto the tape; false, and reported: it is not new. */
static bool ignis__tape_claims(const char *call, ignis__tensor *output, ignis__node *node)
{
    const char *what = NULL;
    bool read;
    ignis__mutex_lock(&output->slot.lock);
    read = ignis__atomic_load(&output->read) != 0;
    if (output->node || output->walked || output->requires_grad)
        what = output->node ? output->node->name : "an operation";
    else if (!read)
        ignis__tensor_result(output, node);
    ignis__mutex_unlock(&output->slot.lock);
    if (what)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call,
                    "output is the result of '%s' already, or a leaf that requires a gradient; record a new tensor", what);
    else if (read)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call, "output is an input of an operation that is recorded; record a new tensor");
    else
        ignis__tape_append(node);
    return !what && !read;
}

/*  Writes an operation on held tensors down that the caller has done; he has found that one of them requires a gradient, and that recording is on.
    Returns the entry, which is good as long as the output is held; null after a failure. */
static ignis__node *ignis__tape_add(const char *call, ignis__tensor *output, int count, ignis__tensor *const *inputs,
                                    const ignis_rule *rule)
{
    ignis__node *node = ignis__node_make(call, count, inputs, NULL, rule);
    bool ok = true;
    int i;
    for (i = 0; node && ok && i < rule->saved_count; i++) {
        ignis__array *array = ignis__array_hold(call, rule->saved[i]);
        ok = array && ignis__node_save(node, ignis__array_keep(call, array));
        if (array)
            ignis__array_drop(call, array);
    }
    if (node && ok && ignis__tape_claims(call, output, node))
        return node;
    if (node)
        ignis__node_discard(call, node);
    return NULL;
}

/*  What the function of a checkpoint reads and what was there before it: that has to be the same when the function runs again. */
typedef struct ignis__watch {
    uint64_t newest;     /* array that was there, by id */
    ignis_array *arrays; /* there is always room for one more */
    uint64_t *versions;  /* when they were read first; in the same block */
    int count, capacity;
} ignis__watch;

static bool ignis__watch_add(const char *call, ignis__watch *watch, const ignis__array *array)
{
    if (watch->count + 1 >= watch->capacity) {
        int capacity = watch->capacity ? 2 * watch->capacity : 64;
        size_t size = (sizeof *watch->arrays + sizeof *watch->versions) * (size_t)capacity;
        ignis_array *arrays = (ignis_array *)ignis__alloc(size);
        uint64_t *versions;
        if (!arrays) {
            ignis__fail_host_memory(call, size);
            return false;
        }
        versions = (uint64_t *)(void *)(arrays + capacity);
        if (watch->count) {
            memcpy(arrays, watch->arrays, sizeof *arrays * (size_t)watch->count);
            memcpy(versions, watch->versions, sizeof *versions * (size_t)watch->count);
        }
        ignis__free(watch->arrays);
        watch->arrays = arrays;
        watch->versions = versions;
        watch->capacity = capacity;
    }
    watch->arrays[watch->count].id = array->slot.handle;
    watch->versions[watch->count++] = ignis__array_version(array);
    return true;
}

/*  An operation is about to read an array. */
static bool ignis__watch_read(const char *call, const ignis__array *array)
{
    ignis__watch *watch = ignis__tensor_thread_now()->watch;
    int i;
    if (!watch || array->id > watch->newest)
        return true;
    for (i = 0; i < watch->count; i++)
        if (watch->arrays[i].id == array->slot.handle)
            return true;
    return ignis__watch_add(call, watch, array);
}

#define IGNIS__MAX_INPUTS 64

IGNIS_API ignis_status ignis_tape_record(ignis_tensor output_handle, const ignis_tensor *handles, int count, const ignis_rule *rule)
{
    static const char call[] = "ignis_tape_record";
    ignis__tensor *output, *inputs[IGNIS__MAX_INPUTS];
    bool wanted = false, ok = true;
    int i, held = 0;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!rule || !rule->backward_fn || !rule->name)
        return ignis__fail_null(call, !rule ? "rule" : !rule->name ? "rule->name" : "rule->backward_fn");
    if (count < 0 || count > IGNIS__MAX_INPUTS)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 0 to %d", count, IGNIS__MAX_INPUTS);
    if (rule->saved_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "rule->saved_count is %d, below 0", rule->saved_count);
    if ((count > 0 && !handles) || (rule->saved_count > 0 && !rule->saved) || (rule->params_size > 0 && !rule->params))
        return ignis__fail_null(call, count > 0 && !handles                   ? "inputs"
                                      : rule->saved_count > 0 && !rule->saved ? "rule->saved"
                                                                              : "rule->params");
    if ((output = ignis__tensor_hold(call, output_handle)) == NULL)
        return ignis__failed();
    for (; ok && held < count; held += ok) {
        inputs[held] = ignis__tensor_hold(call, handles[held]);
        ok = inputs[held] != NULL;
        if (ok && inputs[held] == output) {
            ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call, "output is input %d itself; record a new tensor", held);
            ignis__tensor_drop(call, inputs[held]);
            ok = false;
        }
        wanted = wanted || (ok && ignis__tensor_requires_grad(inputs[held]));
    }
    for (i = 0; ok && i < held; i++) {
        ignis__array *array = ignis__tensor_array(call, inputs[i]);
        ok = array && ignis__watch_read(call, array);
        if (array)
            ignis__array_drop(call, array);
    }
    if (ok && wanted)
        ignis__tensor_thread_now()->saw_trainable = true;
    if (ok && wanted && ignis__recording()) {
        ok = ignis__dtype_is_float(output->dtype);
        if (!ok)
            ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient", ignis__dtypes[output->dtype].name);
        ok = ok && ignis__tape_add(call, output, count, inputs, rule);
    }
    for (i = 0; i < held; i++)
        ignis__tensor_drop(call, inputs[i]);
    ignis__tensor_drop(call, output);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_no_grad_begin(void)
{
    if (!ignis__enter("ignis_no_grad_begin"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tensor_thread_now()->no_grad++;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_no_grad_end(void)
{
    static const char call[] = "ignis_no_grad_end";
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    thread = ignis__tensor_thread_now();
    if (thread->no_grad == thread->no_grad_floor) {
        thread->unbalanced = true;
        return ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "there was no ignis_no_grad_begin%s",
                           thread->no_grad ? " in the function that is running now" : "");
    }
    thread->no_grad--;
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_detach(ignis_tensor handle)
{
    static const char call[] = "ignis_detach";
    ignis_tensor detached = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return detached;
    array = ignis__tensor_array(call, tensor);
    if (array) {
        detached = ignis__tensor_over(call, array, false);
        ignis__array_drop(call, array);
    }
    ignis__tensor_drop(call, tensor);
    return detached;
}

/*  Adds the entries that have saved an array to a text; returns how often. */
IGNIS__COLD static int ignis__tape_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__tape *tape;
    const ignis__node *node;
    int count = 0, i;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape; tape = tape->next) {
        ignis__mutex_lock(&tape->lock);
        for (node = tape->first; node; node = node->after) {
            int before = count;
            for (i = 0; i < node->saved_count; i++)
                count += node->saved[i] == array;
            if (count > before)
                ignis__text_add(text, ", the gradient of '%s' needs it", node->name);
        }
        ignis__mutex_unlock(&tape->lock);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    return count;
}

/* --- gradients that add up ----------------------------------------------------------------------------------------------- */

/*  Whether nobody but the caller, by one claim, can see the array or its memory. */
static bool ignis__array_is_private(ignis__array *array)
{
    bool is_private;
    ignis__mutex_lock(&array->slot.lock);
    is_private = (ignis__atomic_load(&array->slot.state) & 0xFFFFFFFFu) == 2 /* its handle and the claim */ && array->ref_count == 1 &&
                 !array->view && ignis__atomic_load(&array->storage->users) == 1 && !array->storage->wrapped;
    ignis__array_unlock(array);
    return is_private;
}

/*  *sum += gradient; *sum is claimed, null for none yet, and the gradient's claim is taken over. The first gradient is only kept: a
    backward function may have given the same array elsewhere, so the sum is made in memory of its own unless *sum is private. */
static bool ignis__gradient_add(const char *call, ignis__array **sum, ignis__array *gradient)
{
    ignis_array handles[3], made = IGNIS__ZERO;
    ignis_status status;
    if (!*sum) {
        *sum = gradient;
        return true;
    }
    handles[1].id = (*sum)->slot.handle;
    handles[2].id = gradient->slot.handle;
    if (ignis__array_is_private(*sum)) {
        handles[0] = handles[1];
    } else if (ignis__array_is_private(gradient)) {
        handles[0] = handles[2];
    } else {
        made = ignis__array_create_like(call, *sum, (*sum)->dtype);
        if (!made.id) {
            ignis__array_unclaim(call, gradient);
            return false;
        }
        handles[0] = made;
    }
    status = ignis__array_binary(call, IGNIS__BUILTIN_ADD, handles[0], handles[1], handles[2]);
    if (made.id) {
        ignis__array_unclaim(call, gradient);
        ignis__array_unclaim(call, *sum);
        *sum = ignis__array_adopt(call, made);
    } else if (handles[0].id == handles[2].id) {
        ignis__array_unclaim(call, *sum);
        *sum = gradient;
    } else {
        ignis__array_unclaim(call, gradient);
    }
    return status == IGNIS_OK;
}

/*  Replaces a claimed sum by a copy, unless its memory is private already. */
static bool ignis__gradient_separate(const char *call, ignis__array **sum)
{
    ignis__array *copy;
    if (ignis__array_is_private(*sum))
        return true;
    copy = ignis__array_adopt(call, ignis__array_create_like(call, *sum, (*sum)->dtype));
    if (copy && !ignis__array_copy_bytes(call, copy, 0, *sum)) {
        ignis__array_unclaim(call, copy);
        copy = NULL;
    }
    if (!copy)
        return false;
    ignis__array_unclaim(call, *sum);
    *sum = copy;
    return true;
}

/* --- gradients of leaves, to which any number of threads may add ------------------------------------------------------------ */

/*  A leaf that a backward has reached, and the sum of what has reached it. */
typedef struct ignis__reached {
    ignis__tensor *leaf;            /* held */
    ignis__array *sum;              /* claimed; null: nothing yet, or written already */
    struct ignis__met_group *group; /* null: none */
    struct ignis__reached *next;
} ignis__reached;

/*  One thread at a time changes the gradient of a leaf, from ignis__leaves_enter to ignis__leaves_leave. A list is entered as a whole: a thread that
    waits has entered nothing, so no two wait for each other. No mutex is held in between, as taking memory and queueing work may take long. */
static struct {
    ignis__mutex lock;
    ignis__condition left;
} ignis__leaves = {IGNIS__MUTEX_INIT, IGNIS__CONDITION_INIT};

static void ignis__leaves_enter(ignis__reached *list)
{
    ignis__reached *at = list;
    ignis__mutex_lock(&ignis__leaves.lock);
    while (at) {
        if (at->leaf->entered) {
            ignis__condition_wait(&ignis__leaves.left, &ignis__leaves.lock);
            at = list;
        } else {
            at = at->next;
        }
    }
    for (at = list; at; at = at->next)
        at->leaf->entered = true;
    ignis__mutex_unlock(&ignis__leaves.lock);
}

static void ignis__leaves_leave(ignis__reached *list)
{
    ignis__mutex_lock(&ignis__leaves.lock);
    for (; list; list = list->next)
        list->leaf->entered = false;
    ignis__condition_wake(&ignis__leaves.left);
    ignis__mutex_unlock(&ignis__leaves.lock);
}

/*  The same for a single tensor. */
static void ignis__leaf_enter(ignis__tensor *leaf)
{
    ignis__reached one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_enter(&one);
}

static void ignis__leaf_leave(ignis__tensor *leaf)
{
    ignis__reached one = IGNIS__ZERO;
    one.leaf = leaf;
    ignis__leaves_leave(&one);
}

/*  Lets work on the current stream, which is about to change a gradient, wait for the changes that other threads have queued on their streams. Not in
    a capture: that began when all streams were idle, and who launches its graph orders the launch. */
static bool ignis__gradient_follow(const char *call, ignis__array *grad)
{
    ignis__device *device = grad->storage->device;
    return ignis__capture_on(device) || ignis__storage_sum_on(call, grad->storage, ignis__stream_now(device));
}

/*  Makes a claimed and private array the gradient of an entered leaf that has none yet. */
static void ignis__gradient_install(const char *call, ignis__tensor *leaf, ignis__array *grad)
{
    ignis__shape_copy(&grad->shape, &leaf->shape);
    (void)ignis__gradient_follow(call, grad); /* nothing comes before the first */
    ignis__mutex_lock(&leaf->slot.lock);
    leaf->grad = grad;
    ignis__mutex_unlock(&leaf->slot.lock);
}

#define IGNIS__ADDENDS 100 /* that one launch carries */

/*  A row of what ignis_add_each reads; kernels/elementwise.cu has the same. */
typedef struct ignis__addends {
    struct {
        ignis__address dst, src;
        int64_t n, first_block;
    } at[IGNIS__ADDENDS];
} ignis__addends;

/*  Adds the sum of a leaf to the gradient that it has, in one launch with the leaves of its kind that follow in the list. The
    gradients' memory stays: pointers to it may be part of a graph. */
static bool ignis__gradients_add(const char *call, ignis__reached *first)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    ignis__array *added[IGNIS__ADDENDS];
    ignis__reached *at;
    ignis__addends addends;
    ignis__work work;
    int64_t blocks = 0;
    int count = 0, i;
    void *params[2], *function;
    bool ok = ignis__work_begin(call, first->leaf->device, &work);
    if (!ok)
        return false;
    for (at = first; ok && at && count < IGNIS__ADDENDS; at = at->next) {
        ignis__tensor *leaf = at->leaf;
        if (!at->sum || !leaf->grad || leaf->dtype != first->leaf->dtype || leaf->device != first->leaf->device)
            continue;
        ok = ignis__gradient_follow(call, leaf->grad) && ignis__work_read(&work, at->sum, &addends.at[count].src) &&
             ignis__work_write(&work, leaf->grad, &addends.at[count].dst);
        addends.at[count].n = at->sum->numel;
        addends.at[count].first_block = blocks;
        blocks += (at->sum->numel + 4095) / 4096;
        added[count++] = at->sum;
        at->sum = NULL;
    }
    if (ok && blocks) {
        grid[0] = (unsigned)blocks;
        params[0] = &addends;
        params[1] = &count;
        function = ignis__builtin_get(call, work.device, IGNIS__BUILTIN_ADD_EACH, first->leaf->dtype);
        ok = function && ignis__launch(&work, function, grid, block, 0, params);
    }
    ignis__work_end(&work);
    for (i = 0; i < count; i++)
        ignis__array_unclaim(call, added[i]);
    return ok;
}

/*  Whether the kernel that adds to a leaf's gradient is there, which may have to be compiled and loaded first. */
static bool ignis__gradient_addable(const char *call, const ignis__tensor *leaf)
{
    ignis__work work;
    bool ok = ignis__work_begin(call, leaf->device, &work);
    if (ok) {
        ok = ignis__builtin_get(call, work.device, IGNIS__BUILTIN_ADD_EACH, leaf->dtype) != NULL;
        ignis__work_end(&work);
    }
    return ok;
}

/*  Writes the sums of a list to the gradients of its leaves. What takes memory, and what has to be loaded, comes first: a failure there changes
    nothing. */
static bool ignis__leaves_write(const char *call, ignis__reached *list)
{
    const ignis__tensor *added = NULL; /* the last leaf to which something is added: most are of one kind */
    ignis__reached *at;
    bool ok = true;
    ignis__leaves_enter(list);
    for (at = list; ok && at; at = at->next) {
        const ignis__tensor *leaf = at->leaf;
        if (at->sum && !leaf->grad) {
            ok = ignis__gradient_separate(call, &at->sum);
            continue;
        }
        ok = !at->sum || ignis__array_readable(call, leaf->grad);
        if (ok && at->sum && (!added || added->dtype != leaf->dtype || added->device != leaf->device)) {
            ok = ignis__gradient_addable(call, leaf);
            added = leaf;
        }
    }
    for (at = list; ok && at; at = at->next)
        ok = !at->sum || !at->leaf->grad || ignis__gradients_add(call, at);
    for (at = list; ok && at; at = at->next) {
        if (at->sum)
            ignis__gradient_install(call, at->leaf, at->sum);
        at->sum = NULL;
    }
    ignis__leaves_leave(list);
    return ok;
}

/* --- one backward: what it has reached, and the groups that it has met --------------------------------------------------------- */

static uint64_t ignis__grad_groups; /* that exist: without any, a backward need not count */
static uint64_t ignis__walk_serials;

/*  A group of leaves of which a backward has met one. The outermost backward knows, before it starts, how often its entries use leaves of the
    group, so it knows when it has passed the last. */
typedef struct ignis__met_group {
    ignis__grad_group *group;
    bool joins;             /* else its leaves are to this backward as all others are */
    bool done;              /* ready_fn was called */
    int64_t uses;           /* by entries that the backward has not passed yet */
    ignis__reached *leaves; /* those that it has reached, or will */
    struct ignis__met_group *next;
} ignis__met_group;

/*  One backward. A backward function that it calls may run another one, inside of it. */
typedef struct ignis__walk {
    const char *call;
    ignis__tape *tape;
    struct ignis__walk *outer; /* in whose backward function this one runs; null: none */
    uint64_t serial;
    bool retains;    /* entries are kept for another backward */
    ignis__node *at; /* the entry whose backward function is running; null: none is */
    uint64_t taken;  /* a bit for each input whose gradient that function has added up itself */
    uint64_t one;    /* the gradient that it starts from, by handle, where that is a 1 that nobody has written; else 0 */
    bool failed;     /* one inside of it has failed, and may have given only a part of its gradients */
    int64_t nests;   /* entries that it has not passed yet and that run a backward of their own */
    ignis__met_group *groups;
    ignis__reached *leaves; /* those that are in no group */
    ignis__reached **table; /* a hash table of all by their leaf; a power of two of places, of which at least half are empty */
    uint32_t count, capacity;
} ignis__walk;

/*  The place of a leaf in the walk's table, which holds null when the leaf was not reached yet. */
static ignis__reached **ignis__walk_find(const ignis__walk *walk, const ignis__tensor *leaf)
{
    uint32_t i = (leaf->slot.index * 2654435769u >> 7) & (walk->capacity - 1);
    while (walk->table[i] && walk->table[i]->leaf != leaf)
        i = (i + 1) & (walk->capacity - 1);
    return &walk->table[i];
}

/*  Room for one more leaf. */
static bool ignis__walk_grow(ignis__walk *walk)
{
    ignis__walk grown = *walk;
    uint32_t i;
    if (2 * walk->count < walk->capacity)
        return true;
    grown.capacity = walk->capacity ? 4 * walk->capacity : 64;
    grown.table = (ignis__reached **)ignis__alloc(sizeof *grown.table * grown.capacity);
    if (!grown.table) {
        ignis__fail_host_memory(walk->call, sizeof *grown.table * grown.capacity);
        return false;
    }
    for (i = 0; i < walk->capacity; i++)
        if (walk->table[i])
            *ignis__walk_find(&grown, walk->table[i]->leaf) = walk->table[i];
    ignis__free(walk->table);
    *walk = grown;
    return true;
}

/*  The group of a leaf, for the outermost walk: *met is null where the leaf has none, or where it does not join. */
static bool ignis__walk_meet(ignis__walk *walk, ignis__tensor *leaf, ignis__met_group **met)
{
    ignis__grad_group *group;
    ignis__met_group *known;
    *met = NULL;
    ignis__mutex_lock(&leaf->slot.lock);
    group = leaf->group;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    ignis__mutex_unlock(&leaf->slot.lock);
    if (!group)
        return true;
    for (known = walk->groups; known && known->group != group; known = known->next)
        ;
    if (known) {
        (void)ignis__pool_drop(group->owner); /* one hold is enough */
    } else {
        known = (ignis__met_group *)ignis__alloc(sizeof *known);
        if (!known)
            ignis__fail_host_memory(walk->call, sizeof *known);
        if (!known || !group->meet_fn(group, walk->call, walk, &known->joins)) {
            ignis__free(known);
            (void)group->end_fn(group, walk->call, walk, false);
            return false;
        }
        known->group = group;
        known->next = walk->groups;
        walk->groups = known;
    }
    *met = known->joins ? known : NULL;
    return true;
}

/*  What the walk knows of a held leaf. Null, and reported: out of memory, or the leaf's group cannot be met now. */
static ignis__reached *ignis__walk_reach(ignis__walk *walk, ignis__tensor *leaf)
{
    ignis__reached **list = &walk->leaves, *reached;
    if (!ignis__walk_grow(walk))
        return NULL;
    reached = *ignis__walk_find(walk, leaf);
    if (reached)
        return reached;
    reached = (ignis__reached *)ignis__alloc(sizeof *reached);
    if (!reached)
        ignis__fail_host_memory(walk->call, sizeof *reached);
    if (!reached || (!walk->outer && !ignis__walk_meet(walk, leaf, &reached->group))) {
        ignis__free(reached);
        return NULL;
    }
    ignis__tensor_rehold(leaf);
    reached->leaf = leaf;
    if (reached->group)
        list = &reached->group->leaves;
    reached->next = *list;
    *list = reached;
    *ignis__walk_find(walk, leaf) = reached;
    walk->count++;
    return reached;
}

/*  Frees a list, with the sums that were not written. */
static void ignis__reached_end(const char *call, ignis__reached **list)
{
    ignis__reached *reached;
    while ((reached = *list) != NULL) {
        *list = reached->next;
        if (reached->sum)
            ignis__array_unclaim(call, reached->sum);
        ignis__tensor_drop(call, reached->leaf);
        ignis__free(reached);
    }
}

static bool ignis__group_ready(const char *call, ignis__met_group *met)
{
    met->done = true;
    return ignis__leaves_write(call, met->leaves) && met->group->ready_fn(met->group, call);
}

/*  The nearest entry before this one (null: the newest of all) that is newer than `end`, with its output held; null: there is none. It skips entries
    that another thread is just about to end, having given back the last hold of their outputs. */
static ignis__node *ignis__node_before(ignis__tape *tape, const ignis__node *node, uint64_t end)
{
    ignis__node *before;
    ignis__mutex_lock(&tape->lock);
    before = node ? node->before : tape->last;
    while (before && before->serial > end && !ignis__pool_hold_more(before->output))
        before = before->before;
    ignis__mutex_unlock(&tape->lock);
    return before && before->serial > end ? before : NULL;
}

/*  Counts how often the entries on the way from a root use leaves of groups. Newest first: whoever uses an entry comes before it. */
static bool ignis__groups_count(ignis__walk *walk, ignis__node *root)
{
    ignis__node *node = root, *before;
    bool ok = true;
    int i;
    ignis__tensor_rehold(root->output);
    root->counted = true;
    for (; node; node = before) {
        for (i = 0; ok && node->counted && i < node->input_count; i++) {
            ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
            ignis__reached *reached;
            if (standing.node && standing.tape == walk->tape) {
                standing.node->counted = true;
            } else if (standing.leaf && node->needed[i]) {
                reached = ignis__walk_reach(walk, node->inputs[i]);
                ok = reached != NULL;
                if (ok && reached->group)
                    reached->group->uses++;
            }
        }
        walk->nests += node->counted && node->nests;
        before = ignis__node_before(walk->tape, node, 0);
        ignis__tensor_drop(walk->call, node->output);
    }
    return ok;
}

/*  The walk has passed an entry: groups of which it was the last use are ready, unless one that is to come may use anything. */
static bool ignis__groups_pass(ignis__walk *walk, ignis__node *node, bool ok)
{
    ignis__met_group *met;
    bool was_last = node->nests && walk->nests == 1;
    int i;
    node->counted = false;
    walk->nests -= node->nests;
    for (i = 0; i < node->input_count; i++) {
        ignis__reached *reached = walk->count && node->needed[i] ? *ignis__walk_find(walk, node->inputs[i]) : NULL;
        met = reached ? reached->group : NULL;
        if (met && --met->uses == 0 && !walk->nests && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    }
    for (met = was_last ? walk->groups : NULL; met; met = met->next)
        if (met->joins && met->uses == 0 && !met->done)
            ok = ok && ignis__group_ready(walk->call, met);
    return ok;
}

/*  The outermost walk is over: what is left of its groups is ready now, or dropped after a failure. */
static bool ignis__groups_end(ignis__walk *walk, bool ok)
{
    ignis__met_group *met;
    for (met = walk->groups; met; met = met->next) {
        if (ok && met->joins && !met->done)
            ok = ignis__group_ready(walk->call, met);
        ignis__reached_end(walk->call, &met->leaves);
    }
    while ((met = walk->groups) != NULL) {
        walk->groups = met->next;
        ok = met->group->end_fn(met->group, walk->call, walk, ok) && ok;
        ignis__free(met);
    }
    return ok;
}

/* --- backward ---------------------------------------------------------------------------------------------------------- */

/*  *sum += gradient as ignis__gradient_add does it, or *sum = gradient where that is the whole, with the sum in it. */
static bool ignis__walk_add(const ignis__walk *walk, ignis__array **sum, ignis__array *gradient, bool whole)
{
    if (whole && *sum) {
        ignis__array_unclaim(walk->call, *sum);
        *sum = NULL;
    }
    return ignis__gradient_add(walk->call, sum, gradient);
}

/*  Gives a gradient, whose claim is taken over, to a leaf. */
static bool ignis__walk_give_leaf(ignis__walk *walk, ignis__tensor *leaf, ignis__array *gradient, bool whole)
{
    ignis__reached *reached = ignis__walk_reach(walk, leaf);
    if (reached && !(reached->group && reached->group->done))
        return ignis__walk_add(walk, &reached->sum, gradient, whole);
    if (reached)
        ignis__fail(IGNIS_DIAG_GRADIENT_LATE, walk->call,
                    "a backward function ran a backward that reached a parameter %s of data-parallel training, whose gradient was given to "
                    "the other ranks already; use ignis_checkpoint for it",
                    ignis__shape_write(&leaf->shape).text);
    ignis__array_unclaim(walk->call, gradient);
    return false;
}

/*  Whether a gradient can still be given to an input of an entry. */
static bool ignis__walk_admits(const ignis__walk *walk, const ignis__tensor *tensor, const ignis__standing *standing)
{
    if (standing->node && standing->tape != walk->tape)
        ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, walk->call, "a tensor %s on the way was recorded by another thread meanwhile",
                    ignis__shape_write(&tensor->shape).text);
    else if (standing->node && standing->node->running)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way is the result of '%s', whose backward function is running",
                    ignis__shape_write(&tensor->shape).text, standing->node->name);
    else if (!standing->node && !standing->leaf)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way was made by operations that an earlier backward or ignis_tape_clear has released; "
                    "run them again",
                    ignis__shape_write(&tensor->shape).text);
    else
        return true;
    return false;
}

/*  Gives a gradient, whose claim is taken over, to a held tensor on the way. */
static bool ignis__walk_give(ignis__walk *walk, ignis__tensor *tensor, ignis__array *gradient, bool whole)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    if (!ignis__walk_admits(walk, tensor, &standing)) {
        ignis__array_unclaim(walk->call, gradient);
        return false;
    }
    if (!standing.node)
        return ignis__walk_give_leaf(walk, tensor, gradient, whole);
    if (!standing.node->grad)
        ignis__tensor_rehold(tensor); /* the output is held until its entry is done: nothing else may keep it alive */
    return ignis__walk_add(walk, &standing.node->grad, gradient, whole);
}

/*  For a backward function that is running: what its walk has as the gradient of an input by now; null: nothing yet. */
static ignis__array *ignis__walk_sum(int input)
{
    const ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis__tensor *tensor = walk->at->inputs[input];
    const ignis__node *maker = ignis__tensor_standing(tensor).node;
    const ignis__reached *leaf = !maker && walk->count ? *ignis__walk_find(walk, tensor) : NULL;
    return maker ? maker->grad : leaf ? leaf->sum : NULL;
}

/*  For a backward function that is running: the gradient that it gives for an input is the whole, and has ignis__walk_sum in it. */
static void ignis__walk_sum_taken(int input) { ignis__tensor_thread_now()->walk->taken |= (uint64_t)1 << input; }

/*  For a backward function that is running: whether it may run again, so what was saved for it has to stay as it is. */
static bool ignis__walk_retains(void) { return ignis__tensor_thread_now()->walk->retains; }

/*  Checks what a backward function gave for an input, and claims it. Null, and reported, when it does not fit. */
static ignis__array *ignis__walk_claim(const ignis__walk *walk, const ignis__node *node, int input, ignis_array handle)
{
    const ignis__tensor *tensor = node->inputs[input];
    ignis__array *gradient = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!gradient) {
        ignis__fail(IGNIS_DIAG_ARRAY_FREED, walk->call, "the backward of '%s' gave a freed array for input %d", node->name, input);
        return NULL;
    }
    ignis__array_claim(gradient);
    ignis__array_drop(walk->call, gradient);
    if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype && gradient->storage->device == tensor->device &&
        (gradient->numel == 0 || ignis__storage_readable(gradient->storage)))
        return gradient;
    if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient on device %d for input %d, which is on device %d", node->name,
                    (int)(gradient->storage->device - ignis__devices), input, (int)(tensor->device - ignis__devices));
    else if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, walk->call, "the backward of '%s' gave %s for input %d, which was never written to",
                    node->name, ignis__array_label(gradient).text, input);
    else
        ignis__fail(gradient->dtype != tensor->dtype ? IGNIS_DIAG_DTYPE_DIFFERS : IGNIS_DIAG_SHAPE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient %s of %s for input %d, which is %s of %s", node->name,
                    ignis__shape_write(&gradient->shape).text, ignis__dtypes[gradient->dtype].name, input,
                    ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
    ignis__array_unclaim(walk->call, gradient);
    return NULL;
}

/*  What an entry has saved is as it was when it was recorded. */
static bool ignis__walk_unchanged(const ignis__walk *walk, const ignis__node *node)
{
    int i;
    for (i = 0; i < node->saved_count; i++) {
        const ignis__array *saved = node->saved[i];
        uint64_t version = ignis__storage_version(saved->storage);
        char view_of[40] = "";
        if (version == node->versions[i] || node->versions[i] == IGNIS__UNWRITTEN)
            continue;
        if (saved->view) /* which the tape may have made itself, to keep an array of the caller */
            snprintf(view_of, sizeof view_of, ", a view of #%llu,", (unsigned long long)saved->parent);
        ignis__fail(
            IGNIS_DIAG_SAVED_CHANGED, walk->call,
            "the gradient of '%s' needs %s %s%s as it was when the operation was recorded, but it was written to since (version %llu, "
            "recorded at %llu); write after the backward, or to a copy",
            node->name, ignis__array_label(saved).text, ignis__shape_write(&saved->shape).text, view_of, (unsigned long long)version,
            (unsigned long long)node->versions[i]);
        return false;
    }
    return true;
}

/*  Runs the backward function of an entry, between scopes and no-grad sections that it cannot end. */
static bool ignis__walk_call(ignis__walk *walk, ignis__node *node, const ignis_backward_args *args)
{
    ignis__frame frame;
    ignis_status status;
    ignis__frame_begin(&frame, walk->call, node->name, ignis__tensor_thread_now()->no_grad + 1);
    walk->at = node;
    walk->taken = 0;
    node->running = true;
    status = node->backward_fn(args);
    node->running = false;
    walk->at = NULL;
    if (!ignis__frame_end(&frame) && status == IGNIS_OK)
        status = ignis__failed();
    if (walk->failed && status == IGNIS_OK)
        status = ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call,
                             "the backward of '%s' answered OK, but an ignis_backward inside of it has failed", node->name);
    if (status != IGNIS_OK && ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call, "the backward of '%s' answered %s", node->name, ignis_status_name(status));
    else if (status != IGNIS_OK)
        ignis__this_thread.latest = status;
    return status == IGNIS_OK;
}

/*  Gives the gradient of an entry's output the output's shape: it came in the shape that the function it is from, or the caller, gave it. */
static bool ignis__walk_shape(const ignis__walk *walk, ignis__node *node)
{
    const ignis_shape *shape = &node->output->shape;
    ignis__array *view;
    if (ignis__shape_same(&node->grad->shape, shape))
        return true;
    if (ignis__array_is_private(node->grad)) {
        ignis__shape_copy(&node->grad->shape, shape);
        return true;
    }
    view = ignis__array_adopt(walk->call, ignis__array_view(walk->call, node->grad, shape, node->grad->numel, 0));
    if (!view)
        return false;
    ignis__array_unclaim(walk->call, node->grad);
    node->grad = view;
    return true;
}

/*  Runs the backward of one entry, and hands its gradients on. */
static bool ignis__walk_step(ignis__walk *walk, ignis__node *node)
{
    ignis_backward_args args;
    ignis_array grads[IGNIS__MAX_INPUTS], saved_few[16], *saved = saved_few;
    ignis__array *given[IGNIS__MAX_INPUTS];
    bool ok = true;
    int i;
    for (i = 0; i < node->input_count; i++) {
        ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
        if (node->needed[i] && !ignis__walk_admits(walk, node->inputs[i], &standing))
            return false;
    }
    memset(&args, 0, sizeof args);
    memset(grads, 0, sizeof grads);
    if (node->saved_count > IGNIS__COUNT(saved_few) &&
        (saved = (ignis_array *)ignis__alloc(sizeof *saved * (size_t)node->saved_count)) == NULL) {
        ignis__fail_host_memory(walk->call, sizeof *saved * (size_t)node->saved_count);
        return false;
    }
    for (i = 0; i < node->saved_count; i++)
        saved[i].id = node->saved[i]->slot.handle;
    args.grad_output.id = node->grad->slot.handle != walk->one ? node->grad->slot.handle : 0;
    args.saved = saved;
    args.saved_count = node->saved_count;
    args.params = node->params;
    args.input_count = node->input_count;
    args.needed = node->needed;
    args.grad_inputs = grads;
    args.user_data = node->user_data;
    ok = ignis__walk_call(walk, node, &args);
    for (i = 0; i < node->input_count; i++) { /* claim all before any is given on: one array may be there twice */
        given[i] = grads[i].id ? ignis__walk_claim(walk, node, i, grads[i]) : NULL;
        ok = ok && (given[i] || !grads[i].id || !node->needed[i]);
    }
    for (i = 0; i < node->input_count; i++) {
        if (given[i] && ok && node->needed[i])
            ok = ignis__walk_give(walk, node->inputs[i], given[i], walk->taken >> i & 1);
        else if (given[i])
            ignis__array_unclaim(walk->call, given[i]);
    }
    if (saved != saved_few)
        ignis__free(saved);
    return ok;
}

/*  Walks from the entry of the root back to the first, running those that a gradient has reached, and takes these apart unless it retains them. A
    walk inside a backward function ends where the enclosing one stands. The output of the entry that the walk is at is held. */
static bool ignis__walk_run(ignis__walk *walk, ignis__node *root, ignis__array *gradient)
{
    uint64_t end = walk->outer ? walk->outer->at->serial : 0;
    ignis__node *node = root, *before;
    bool ok = true;
    ignis__tensor_rehold(root->output); /* as of every entry with a gradient */
    root->grad = gradient;
    ignis__tensor_rehold(root->output);
    if (!walk->outer && ignis__atomic_load(&ignis__grad_groups))
        ok = ignis__groups_count(walk, root);
    for (; node; node = before) {
        ignis__tensor *output = node->output;
        if (node->grad)
            ok = ok && ignis__walk_unchanged(walk, node) && ignis__walk_shape(walk, node) && ignis__walk_step(walk, node);
        if (node->counted)
            ok = ignis__groups_pass(walk, node, ok);
        before = ignis__node_before(walk->tape, node, end);
        if (node->grad) {
            if (walk->retains) {
                ignis__array_unclaim(walk->call, node->grad);
                node->grad = NULL;
            } else {
                ignis__node_consume(walk->call, node);
            }
            ignis__tensor_drop(walk->call, output);
        }
        ignis__tensor_drop(walk->call, output);
    }
    return ok;
}

/*  Writes the gradients of leaves. A walk inside a backward function writes those of leaves that the function has made, which wants to read them, and
    leaves the others to the enclosing walk: so when the outermost one fails, no leaf has changed. */
static bool ignis__walk_end(ignis__walk *walk, bool ok)
{
    ignis__reached **link = &walk->leaves, *reached;
    while (walk->outer && (reached = *link) != NULL) {
        ignis__array *sum = reached->sum;
        if (reached->leaf->made_in == walk->outer->serial) {
            link = &reached->next;
            continue;
        }
        if (ok && sum) {
            reached->sum = NULL;
            ok = ignis__walk_give_leaf(walk->outer, reached->leaf, sum, false);
        }
        *link = reached->next;
        reached->next = NULL;
        ignis__reached_end(walk->call, &reached);
    }
    ok = ok && ignis__leaves_write(walk->call, walk->leaves);
    ok = ignis__groups_end(walk, ok);
    ignis__reached_end(walk->call, &walk->leaves);
    ignis__free(walk->table);
    if (!ok && walk->outer)
        walk->outer->failed = true;
    return ok;
}

/*  An array of the caller's that is to be a tensor's gradient, held. Null, and reported, when it does not fit. */
static ignis__array *ignis__gradient_hold(const char *call, const ignis__tensor *tensor, ignis_array handle, const char *name)
{
    ignis__array *gradient = ignis__array_hold(call, handle);
    if (!gradient)
        return NULL;
    if (gradient->numel != ignis__tensor_numel(tensor))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__shape_write(&gradient->shape).text,
                    ignis__shape_write(&tensor->shape).text);
    else if (gradient->dtype != tensor->dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__dtypes[gradient->dtype].name,
                    ignis__dtypes[tensor->dtype].name);
    else if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d, the tensor on device %d", name,
                    (int)(gradient->storage->device - ignis__devices), (int)(tensor->device - ignis__devices));
    else
        return gradient;
    ignis__array_drop(call, gradient);
    return NULL;
}

/*  The gradient that a backward starts from, claimed: the caller's, or 1, which is written unless the entry knows it. Null, and reported, when
    it does not fit. */
static ignis__array *ignis__backward_start(const char *call, const ignis__tensor *tensor, ignis_array grad_output, bool known)
{
    ignis_array_desc desc;
    ignis_array made;
    ignis__array *gradient;
    int ordinal = (int)(tensor->device - ignis__devices);
    if (grad_output.id) {
        gradient = ignis__gradient_hold(call, tensor, grad_output, "grad_output");
        if (!gradient)
            return NULL;
        /* through a view, which ends with the walk: the array itself stays the caller's */
        made = ignis__array_view(call, gradient, &gradient->shape, gradient->numel, 0);
        ignis__array_drop(call, gradient);
        return ignis__array_adopt(call, made);
    }
    if (ignis__tensor_numel(tensor) != 1) {
        ignis__fail(IGNIS_DIAG_BACKWARD_NOT_SCALAR, call, "a tensor of shape %s needs grad_output; without it there has to be one element",
                    ignis__shape_write(&tensor->shape).text);
        return NULL;
    }
    memset(&desc, 0, sizeof desc);
    desc.shape = tensor->shape;
    desc.dtype = tensor->dtype;
    desc.device = ordinal ? ordinal : IGNIS_DEVICE_0;
    made = ignis__array_create(call, &desc);
    if (made.id && !known && ignis__array_set(call, made, 1.0) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__array_adopt(call, made);
}

static ignis_status ignis__backward_held(const char *call, ignis__tensor *tensor, ignis_array grad_output, bool retains)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__standing standing = ignis__tensor_standing(tensor);
    ignis__walk walk;
    ignis__array *gradient;
    bool ok, runs, known;
    if (standing.walked)
        return ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, call,
                           "the operations that made this tensor were released by an earlier backward or ignis_tape_clear; "
                           "run them again, or keep them with ignis_backward_retain");
    if (!standing.requires_grad)
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                           "the tensor does not require a gradient, and none of the tensors that it was made of does");
    if (standing.node && standing.tape != thread->tape)
        return ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call, "the tensor was recorded by another thread, whose tape it belongs to");
    if (thread->walk && !thread->walk->at)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "a backward of this thread is under way, outside of its backward functions");
    /* inside a backward function, what is older than its entry waits for the enclosing walk */
    runs = standing.node && (!thread->walk || standing.node->serial > thread->walk->at->serial);
    known = runs && !grad_output.id && standing.node->knows_one;
    gradient = ignis__backward_start(call, tensor, grad_output, known);
    if (!gradient)
        return ignis__failed();
    memset(&walk, 0, sizeof walk);
    walk.call = call;
    walk.tape = thread->tape;
    walk.retains = retains;
    walk.outer = thread->walk;
    walk.serial = ignis__atomic_add(&ignis__walk_serials, 1);
    walk.one = known ? gradient->slot.handle : 0;
    thread->walk = &walk;
    thread->walk_serial = walk.serial;
    ok = runs ? ignis__walk_run(&walk, standing.node, gradient) : ignis__walk_give(&walk, tensor, gradient, false);
    ok = ignis__walk_end(&walk, ok);
    thread->walk = walk.outer;
    thread->walk_serial = walk.outer ? walk.outer->serial : 0;
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__backward(const char *call, ignis_tensor handle, ignis_array grad_output, bool retains)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__backward_held(call, tensor, grad_output, retains);
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward", tensor, grad_output, false);
}

IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward_retain", tensor, grad_output, true);
}

/*  New memory for the gradient of a held tensor, claimed; null, and reported, on failure. */
static ignis__array *ignis__gradient_make(const char *call, ignis__tensor *tensor)
{
    ignis__array *data = ignis__tensor_array(call, tensor), *made;
    if (!data)
        return NULL;
    made = ignis__array_adopt(call, ignis__array_create_like(call, data, data->dtype));
    ignis__array_drop(call, data);
    return made;
}

/*  The values of an array (null: zeros) become the gradient of a held tensor, in the memory that it has for that, or in new memory. */
static bool ignis__gradient_set(const char *call, ignis__tensor *tensor, ignis__array *values)
{
    ignis__array *grad;
    ignis_array handle;
    bool ok, fresh;
    ignis__leaf_enter(tensor);
    fresh = !tensor->grad;
    grad = fresh ? ignis__gradient_make(call, tensor) : tensor->grad;
    ok = grad && (fresh || ignis__gradient_follow(call, grad));
    if (ok && !values) {
        handle.id = grad->slot.handle;
        ok = ignis__array_set_zero(call, handle) == IGNIS_OK;
    } else if (ok && values != grad) {
        ok = ignis__array_copy_bytes(call, grad, 0, values);
    }
    if (ok && fresh)
        ignis__gradient_install(call, tensor, grad);
    ignis__leaf_leave(tensor);
    if (grad && fresh && !ok)
        ignis__array_unclaim(call, grad);
    return ok;
}

static ignis_status ignis__zero_grad(const char *call, ignis__tensor *tensor)
{
    if (!ignis__tensor_requires_grad(tensor))
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call, "the tensor does not require a gradient");
    return ignis__gradient_set(call, tensor, NULL) ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_zero_grad(ignis_tensor handle)
{
    static const char call[] = "ignis_zero_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__zero_grad(call, tensor);
    ignis__tensor_drop(call, tensor);
    return status;
}

/*  Takes the gradient from a held tensor. One in memory that others read at the end of each backward stays. */
static bool ignis__gradient_drop(const char *call, ignis__tensor *tensor)
{
    ignis__array *before = NULL;
    bool grouped;
    ignis__leaf_enter(tensor);
    ignis__mutex_lock(&tensor->slot.lock);
    grouped = tensor->group != NULL;
    if (!grouped) {
        before = tensor->grad;
        tensor->grad = NULL;
    }
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__leaf_leave(tensor);
    if (before)
        ignis__array_unclaim(call, before);
    if (grouped)
        ignis__fail(IGNIS_DIAG_GRADIENT_SHARED, call, "the tensor %s is a parameter of data-parallel training; use ignis_zero_grad",
                    ignis__shape_write(&tensor->shape).text);
    return !grouped;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_set_grad(ignis_tensor handle, ignis_array grad)
{
    static const char call[] = "ignis_tensor_set_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *values = NULL;
    bool ok;
    if (!tensor)
        return ignis__failed();
    ok = ignis__tensor_requires_grad(tensor);
    if (!ok)
        ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call, "the tensor, of %s, does not require a gradient", ignis__dtypes[tensor->dtype].name);
    if (ok && grad.id)
        ok = (values = ignis__gradient_hold(call, tensor, grad, "grad")) != NULL;
    if (ok)
        ok = values ? ignis__gradient_set(call, tensor, values) : ignis__gradient_drop(call, tensor);
    if (values)
        ignis__array_drop(call, values);
    ignis__tensor_drop(call, tensor);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static void ignis__tape_clear(const char *call, ignis__tape *tape)
{
    ignis__node *node;
    while (tape && (node = ignis__node_before(tape, NULL, 0)) != NULL) { /* an output without handle goes with its entry, hence the hold */
        ignis__tensor *output = node->output;
        ignis__node_consume(call, node);
        ignis__tensor_drop(call, output);
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_tape_clear(void)
{
    static const char call[] = "ignis_tape_clear";
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    thread = ignis__tensor_thread_now();
    if (thread->walk)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "this is inside an ignis_backward, which needs the tape still");
    ignis__tape_clear(call, thread->tape);
    return IGNIS_OK;
}

IGNIS_API int64_t ignis_tape_length(void)
{
    ignis__tape *tape;
    int64_t length;
    if (!ignis__enter("ignis_tape_length"))
        return -1;
    tape = ignis__tensor_thread_now()->tape;
    if (!tape)
        return 0;
    ignis__mutex_lock(&tape->lock);
    length = tape->length;
    ignis__mutex_unlock(&tape->lock);
    return length;
}

/*  Calls a function of the caller's for a call. No handle: it has failed, or did not end what it began. */
static ignis_tensor ignis__tensor_fn_call(const char *call, int no_grad, ignis_tensor_fn fn, const ignis_tensor *inputs, int count,
                                          void *user_data)
{
    ignis__frame frame;
    ignis_tensor output;
    ignis__frame_begin(&frame, call, NULL, no_grad);
    output = fn(inputs, count, user_data);
    return ignis__frame_end(&frame) ? output : ignis__no_tensor();
}

/* --- checkpoints ---------------------------------------------------------------------------------------------------------- */

typedef struct ignis__checkpoint {
    ignis_tensor_fn fn;
    void *user_data;
    uint64_t seed, random_used;
    bool counts; /* the launches of a graph, for random numbers: that array is the last one saved */
} ignis__checkpoint;

/*  Runs the function again, on fresh leaves over the saved inputs, this time recorded, and walks back through it. */
IGNIS__COLD static ignis_status ignis__checkpoint_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_checkpoint";
    const ignis__checkpoint *checkpoint = (const ignis__checkpoint *)args->params;
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tensor_thread before = *thread;
    ignis_tensor inputs[IGNIS__MAX_INPUTS], output;
    ignis_tensor_info info;
    ignis_scope scope = ignis_scope_begin();
    ignis_status status = IGNIS_OK;
    int i;
    if (!scope.id)
        return ignis__failed();
    thread->seed = checkpoint->seed;
    thread->random_used = checkpoint->random_used;
    thread->random_again = true;
    thread->random_launches = checkpoint->counts ? args->saved[args->saved_count - 1].id : 0;
    for (i = 0; i < args->input_count; i++) {
        ignis__array *saved = ignis__array_hold(call, args->saved[i]);
        inputs[i].id = 0;
        if (!saved)
            break;
        inputs[i] = ignis__tensor_over(call, saved, args->needed[i]);
        ignis__array_drop(call, saved);
        if (!inputs[i].id)
            break;
    }
    output.id = 0;
    if (i == args->input_count)
        output = ignis__tensor_fn_call(call, 0, checkpoint->fn, inputs, args->input_count, checkpoint->user_data);
    if (!output.id || ignis_tensor_query(output, &info) != IGNIS_OK)
        status = ignis__failed();
    else if (info.requires_grad)
        status = ignis_backward(output, args->grad_output);
    thread->seed = before.seed;
    thread->random_used = before.random_used;
    thread->random_again = before.random_again;
    thread->random_launches = before.random_launches;
    for (i = 0; status == IGNIS_OK && i < args->input_count; i++) {
        ignis__array *grad;
        ignis_array handle = args->needed[i] ? ignis_tensor_grad(inputs[i]) : args->grad_output;
        if (!args->needed[i] || !handle.id) /* fn did not use the input */
            continue;
        grad = ignis__array_hold(call, handle);
        args->grad_inputs[i] = ignis__array_view(call, grad, &grad->shape, grad->numel, 0); /* which outlives the leaf */
        ignis__array_drop(call, grad);
        if (!args->grad_inputs[i].id)
            status = ignis__failed();
    }
    ignis_scope_end(scope);
    return status;
}

/*  Runs the function of a checkpoint without recording, in a scope of its own. Returns a tensor over what it gave: that may be one of its inputs, or
    something that lives on. */
IGNIS__COLD static ignis_tensor ignis__checkpoint_run(const char *call, const ignis__checkpoint *checkpoint, const ignis_tensor *inputs,
                                                      int count)
{
    ignis_tensor output, result = IGNIS__ZERO;
    ignis__tensor *tensor = NULL;
    ignis__array *array = NULL;
    ignis_scope scope = ignis_scope_begin();
    if (!scope.id)
        return result;
    output = ignis__tensor_fn_call(call, ignis__tensor_thread_now()->no_grad + 1, checkpoint->fn, inputs, count, checkpoint->user_data);
    if (output.id && (tensor = ignis__tensor_hold(call, output)) != NULL) {
        array = ignis__tensor_array(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    (void)ignis_scope_end(scope);
    if (array) {
        result = ignis__tensor_over(call, array, false);
        ignis__array_drop(call, array);
    }
    return result;
}

/*  Makes the result of a checkpoint's function one of an operation on its held inputs, as they were before it ran. Integers have no gradient. */
IGNIS__COLD static bool ignis__checkpoint_record(const char *call, ignis__checkpoint *checkpoint, ignis_tensor result,
                                                 ignis__tensor *const *inputs, int count, ignis__watch *watch)
{
    ignis_array launches = ignis__random_launches();
    ignis__tensor *made = ignis__tensor_hold(call, result);
    ignis__node *node;
    ignis_rule rule;
    int i, alive = count;
    if (!made || !ignis__dtype_is_float(made->dtype)) {
        if (made)
            ignis__tensor_drop(call, made);
        return made != NULL;
    }
    memset(&rule, 0, sizeof rule);
    rule.name = "checkpoint";
    rule.backward_fn = ignis__checkpoint_backward;
    for (i = count; i < watch->count; i++) { /* what fn itself has freed it cannot read again */
        if (ignis_array_is_live(watch->arrays[i])) {
            watch->arrays[alive] = watch->arrays[i];
            watch->versions[alive++] = watch->versions[i];
        }
    }
    checkpoint->counts = launches.id != 0;
    if (watch->arrays)
        watch->arrays[alive] = launches;
    rule.saved = watch->arrays ? watch->arrays : &launches;
    rule.saved_count = alive + checkpoint->counts;
    rule.params = checkpoint;
    rule.params_size = sizeof *checkpoint;
    node = ignis__tape_add(call, made, count, inputs, &rule);
    if (node) {
        node->nests = true;
        if (alive)
            memcpy(node->versions, watch->versions, sizeof *watch->versions * (size_t)alive);
    } else {
        ignis__tensor_end_handle(call, made);
    }
    ignis__tensor_drop(call, made);
    return node != NULL;
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_checkpoint(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count)
{
    static const char call[] = "ignis_checkpoint";
    ignis_tensor result = IGNIS__ZERO;
    ignis__watch watch, *before; /* of the inputs first: a function that writes to them would not do the same the second time */
    ignis__checkpoint checkpoint;
    ignis__tensor_thread *thread;
    ignis__tensor *held[IGNIS__MAX_INPUTS] = {NULL};
    bool saw_before, wanted = false, ok = true;
    int i = 0;
    if (!ignis__enter(call))
        return result;
    if (!fn || (count > 0 && !inputs)) {
        ignis__fail_null(call, fn ? "inputs" : "fn");
        return result;
    }
    if (count < 0 || count > IGNIS__MAX_INPUTS) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 0 to %d", count, IGNIS__MAX_INPUTS);
        return result;
    }
    thread = ignis__tensor_thread_now();
    memset(&watch, 0, sizeof watch);
    memset(&checkpoint, 0, sizeof checkpoint);
    checkpoint.fn = fn;
    checkpoint.user_data = user_data;
    checkpoint.seed = thread->seed;
    checkpoint.random_used = thread->random_used;
    for (; ok && i < count; i += ok) {
        ignis__array *array;
        held[i] = ignis__tensor_hold(call, inputs[i]);
        array = held[i] ? ignis__tensor_array(call, held[i]) : NULL;
        ok = array && ignis__watch_add(call, &watch, array);
        if (ok)
            wanted = wanted || ignis__tensor_requires_grad(held[i]);
        if (array)
            ignis__array_drop(call, array);
        if (!ok && held[i])
            ignis__tensor_drop(call, held[i]);
    }
    watch.newest = ignis__atomic_load(&ignis__array_ids);
    before = thread->watch;
    if (ignis__recording()) /* else an outer checkpoint may watch, whose function this is part of */
        thread->watch = &watch;
    saw_before = thread->saw_trainable;
    thread->saw_trainable = wanted;
    if (ok)
        result = ignis__checkpoint_run(call, &checkpoint, inputs, count);
    thread->watch = before;
    wanted = thread->saw_trainable; /* weights that fn uses beside its inputs may require gradients */
    thread->saw_trainable = saw_before || wanted;
    if (result.id && wanted && ignis__recording() && !ignis__checkpoint_record(call, &checkpoint, result, held, count, &watch))
        result.id = 0;
    ignis__free(watch.arrays);
    while (i > 0)
        ignis__tensor_drop(call, held[--i]);
    return result;
}

/* --- gradcheck ------------------------------------------------------------------------------------------------------------ */

/*  One check: the function, its inputs, and fixed weights that turn its output into one number. */
typedef struct ignis__gradcheck {
    const char *call;
    ignis_tensor_fn fn;
    void *user_data;
    const ignis_tensor *inputs;
    int count;
    uint64_t seed, random_used;
} ignis__gradcheck;

static double ignis__gradcheck_weight(int64_t i)
{
    return 0.5 + (double)((uint64_t)(i + 1) * 0x9E3779B97F4A7C15u >> 40) / (double)(1 << 24);
}

/*  Calls the function with the same random numbers as every time; no_grad: without recording. */
IGNIS__COLD static ignis_tensor ignis__gradcheck_call(const ignis__gradcheck *check, int no_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    thread->seed = check->seed;
    thread->random_used = check->random_used;
    return ignis__tensor_fn_call(check->call, no_grad, check->fn, check->inputs, check->count, check->user_data);
}

/*  The weighted sum of the function's output. False on failure. */
IGNIS__COLD static bool ignis__gradcheck_value(const ignis__gradcheck *check, double *value)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor output;
    ignis_tensor_info info;
    double *numbers;
    int64_t numel, i;
    bool ok = false;
    if (!scope.id)
        return false;
    output = ignis__gradcheck_call(check, 1);
    *value = 0;
    if (output.id && ignis_tensor_query(output, &info) == IGNIS_OK) {
        numel = ignis_array_numel(info.data);
        numbers = (double *)ignis__alloc(sizeof *numbers * (size_t)(numel + 1));
        if (!numbers)
            ignis__fail_host_memory(check->call, sizeof *numbers * (size_t)(numel + 1));
        ok = numbers && ignis_tensor_to_host(output, numbers, IGNIS_F64, numel) == IGNIS_OK;
        for (i = 0; ok && i < numel; i++)
            *value += numbers[i] * ignis__gradcheck_weight(i);
        ignis__free(numbers);
    }
    ignis_scope_end(scope);
    return ok;
}

/*  Computes all gradients by the tape. */
static bool ignis__gradcheck_tape(const ignis__gradcheck *check)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor output;
    ignis_tensor_info info;
    ignis_array weights = IGNIS__ZERO;
    double *numbers = NULL;
    int64_t numel = 0, i;
    bool ok = scope.id != 0;
    output.id = 0;
    for (i = 0; ok && i < check->count; i++) {
        ok = ignis_tensor_query(check->inputs[i], &info) == IGNIS_OK;
        if (ok && info.requires_grad)
            ok = ignis_zero_grad(check->inputs[i]) == IGNIS_OK;
    }
    if (ok)
        output = ignis__gradcheck_call(check, 0);
    ok = ok && output.id && ignis_tensor_query(output, &info) == IGNIS_OK;
    if (ok) {
        numel = ignis_array_numel(info.data);
        numbers = (double *)ignis__alloc(sizeof *numbers * (size_t)(numel + 1));
        weights = ignis_array_clone(info.data);
        ok = numbers && weights.id;
        for (i = 0; ok && i < numel; i++)
            numbers[i] = ignis__gradcheck_weight(i);
        ok = ok && ignis_array_from_host(weights, numbers, IGNIS_F64, numel) == IGNIS_OK && ignis_backward(output, weights) == IGNIS_OK;
        ignis__free(numbers);
        if (weights.id)
            ignis_array_free(weights);
    }
    if (scope.id)
        ignis_scope_end(scope);
    return ok;
}

/*  Compares the gradient of one input; *worst is the largest error so far, *where says it for the message. */
static bool ignis__gradcheck_input(const ignis__gradcheck *check, int input, double step, double *worst, char *where, size_t where_size)
{
    ignis_tensor_info info;
    double *values = NULL, *grads = NULL;
    int64_t numel, i;
    bool ok = ignis_tensor_query(check->inputs[input], &info) == IGNIS_OK;
    if (!ok || !info.requires_grad)
        return ok;
    numel = ignis_array_numel(info.data);
    values = (double *)ignis__alloc(sizeof *values * (size_t)(numel + 1));
    grads = (double *)ignis__alloc(sizeof *grads * (size_t)(numel + 1));
    if (!values || !grads)
        ignis__fail_host_memory(check->call, sizeof *values * (size_t)(numel + 1));
    ok = values && grads && ignis_array_to_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK &&
         ignis_array_to_host(ignis_tensor_grad(check->inputs[input]), grads, IGNIS_F64, numel) == IGNIS_OK;
    for (i = 0; ok && i < numel; i++) {
        double x = values[i], size = x < 0 ? -x : x, h = step * (size > 1 ? size : 1), high = 0, low = 0, slope, error, scale;
        values[i] = x + h;
        ok = ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK && ignis__gradcheck_value(check, &high);
        values[i] = x - h;
        ok = ok && ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK && ignis__gradcheck_value(check, &low);
        values[i] = x;
        ok = ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK && ok;
        slope = (high - low) / (2 * h);
        scale = slope < 0 ? -slope : slope;
        scale = grads[i] > scale ? grads[i] : -grads[i] > scale ? -grads[i] : scale;
        error = (slope > grads[i] ? slope - grads[i] : grads[i] - slope) / (scale > 1 ? scale : 1);
        if (!(error <= *worst)) { /* NaN counts as worse than everything */
            *worst = error;
            snprintf(where, where_size, "input %d, element %lld: the tape says %.17g, finite differences say %.17g", input, (long long)i,
                     grads[i], slope);
        }
    }
    ignis__free(values);
    ignis__free(grads);
    return ok;
}

/*  The backward whose backward function made a tensor that was found, by serial. */
static uint64_t ignis__tensor_made_in(ignis_tensor handle)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    uint64_t made_in = tensor ? tensor->made_in : 0;
    if (tensor)
        ignis__tensor_drop("ignis_gradcheck", tensor);
    return made_in;
}

/*  The largest relative error of all inputs; NaN on failure. */
static double ignis__gradcheck_run(const ignis__gradcheck *check, double step, double tolerance)
{
    uint64_t walk = ignis__tensor_thread_now()->walk_serial;
    ignis_tensor_info info;
    double worst = 0;
    char where[256] = "";
    bool ok = true;
    int i;
    for (i = 0; i < check->count; i++) {
        if (ignis_tensor_query(check->inputs[i], &info) != IGNIS_OK)
            return ignis__nan();
        if (info.dtype != IGNIS_F64 && info.requires_grad) {
            ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, check->call, "input %d is %s; finite differences need f64", i,
                        ignis__dtypes[info.dtype].name);
            return ignis__nan();
        }
        if (info.requires_grad && !info.is_leaf) {
            ignis__fail(IGNIS_DIAG_PARAMETER_KIND, check->call, "input %d is the result of an operation; use a leaf with its values", i);
            return ignis__nan();
        }
        if (info.requires_grad && walk && ignis__tensor_made_in(check->inputs[i]) != walk) {
            ignis__fail(IGNIS_DIAG_PARAMETER_KIND, check->call,
                        "input %d is older than the backward function that this is called in, and gets its gradient when that is over; use "
                        "a leaf made here with its values",
                        i);
            return ignis__nan();
        }
    }
    ok = ignis__gradcheck_tape(check);
    for (i = 0; ok && i < check->count; i++)
        ok = ignis__gradcheck_input(check, i, step, &worst, where, sizeof where);
    for (i = 0; i < check->count; i++)
        if (ignis_tensor_query(check->inputs[i], &info) == IGNIS_OK && info.requires_grad)
            ok = ignis_zero_grad(check->inputs[i]) == IGNIS_OK && ok;
    if (!ok)
        return ignis__nan();
    if (!(worst <= tolerance))
        ignis__fail(IGNIS_DIAG_GRADIENT_WRONG, check->call, "relative error %.3g is above %.3g at %s", worst, tolerance, where);
    return worst;
}

IGNIS__COLD IGNIS_API double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                             const ignis_gradcheck_desc *desc)
{
    static const char call[] = "ignis_gradcheck";
    ignis__gradcheck check;
    ignis__tensor_thread *thread;
    ignis__outer_call outer;
    double worst;
    if (!ignis__enter(call))
        return ignis__nan();
    if (!fn || !inputs || count < 1) {
        ignis__fail_null(call, fn ? "inputs" : "fn");
        return ignis__nan();
    }
    thread = ignis__tensor_thread_now();
    check.call = call;
    check.fn = fn;
    check.user_data = user_data;
    check.inputs = inputs;
    check.count = count;
    check.seed = thread->seed;
    check.random_used = thread->random_used;
    ignis__outer_call_begin(&outer, call, NULL);
    worst = ignis__gradcheck_run(&check, desc && desc->step > 0 ? desc->step : 1e-5, desc && desc->tolerance > 0 ? desc->tolerance : 1e-6);
    ignis__outer_call_end(&outer);
    return worst;
}

/* --- the tape as a picture --------------------------------------------------------------------------------------------------- */

IGNIS__COLD static void ignis__dot_tensor(ignis__text *text, const ignis__tensor *tensor)
{
    ignis__text_add(text, "%s %s", ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
}

/*  Draws an entry, and marks those that its inputs come from. */
static void ignis__dot_node(ignis__text *text, const ignis__node *node)
{
    int64_t bytes = 0;
    int i;
    for (i = 0; i < node->saved_count; i++)
        bytes += ignis__array_bytes(node->saved[i]);
    ignis__text_add(text, "  n%p [shape=box label=\"%s\\n", (const void *)node, node->name);
    ignis__dot_tensor(text, node->output);
    ignis__text_add(text, "\\n%lld bytes kept\"];\n", (long long)bytes);
    for (i = 0; i < node->input_count; i++) {
        ignis__tensor *input = node->inputs[i];
        ignis__standing standing = ignis__tensor_standing(input);
        if (standing.node && standing.tape == node->tape) {
            standing.node->drawn = true;
            ignis__text_add(text, "  n%p -> n%p;\n", (const void *)standing.node, (const void *)node);
            continue;
        }
        ignis__text_add(text, "  t%p [label=\"%s\\n", (const void *)input, node->needed[i] ? "leaf" : "constant");
        ignis__dot_tensor(text, input);
        ignis__text_add(text, "\"];\n  t%p -> n%p;\n", (const void *)input, (const void *)node);
    }
}

IGNIS__COLD IGNIS_API int64_t ignis_tape_dot(ignis_tensor handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_tape_dot";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__standing standing;
    ignis__node *node, *before;
    ignis__text text;
    char none[1];
    if (!tensor)
        return -1;
    standing = ignis__tensor_standing(tensor);
    if ((!out && capacity) || (standing.node && standing.tape != ignis__tensor_thread_now()->tape)) {
        if (!out && capacity)
            ignis__fail_null(call, "out");
        else
            ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call, "the tensor was recorded by another thread, whose tape it belongs to");
        ignis__tensor_drop(call, tensor);
        return -1;
    }
    ignis__text_begin(&text, out ? out : none, capacity);
    ignis__text_add(&text, "digraph tape {\n");
    node = standing.node;
    if (node) {
        node->drawn = true;
        ignis__tensor_rehold(tensor);
    }
    for (; node; node = before) { /* newest first: whoever uses an entry has been met before it */
        if (node->drawn)
            ignis__dot_node(&text, node);
        node->drawn = false;
        before = ignis__node_before(node->tape, node, 0);
        ignis__tensor_drop(call, node->output);
    }
    ignis__text_add(&text, "}\n");
    ignis__tensor_drop(call, tensor);
    return (int64_t)text.length;
}

/* --- shutdown ------------------------------------------------------------------------------------------------------------- */

/*  Ends every tensor; reports those that are alive, outside of the tape. */
static void ignis__tensors_close(const char *call)
{
    ignis__tensor *tensor;
    uint64_t index = 0;
    ignis__tape *tapes, *tape;
    ignis__mutex_lock(&ignis__tapes.lock);
    tapes = ignis__tapes.first; /* a thread that ends meanwhile does not find its own */
    ignis__tapes.first = NULL;
    for (tape = tapes; tape; tape = tape->next)
        tape->ended = false;
    ignis__mutex_unlock(&ignis__tapes.lock);
    for (tape = tapes; tape; tape = tape->next)
        ignis__tape_clear(call, tape);
    while ((tensor = (ignis__tensor *)ignis__pool_next(&ignis__tensors, &index)) != NULL) {
        if (tensor->data)
            ignis__array_leaked(call, tensor->data, "tensor over ");
        ignis__tensor_end_handle(call, tensor);
        ignis__tensor_drop(call, tensor);
    }
    while (tapes) {
        tape = tapes;
        tapes = tape->next;
        ignis__free(tape);
    }
}

/* ===============================================================================================================
   >>ops - the operations: checks, forward, backward rule.
   =============================================================================================================== */

/*  An operation under way. It holds its inputs, owns the arrays that it makes, has entered their device, and knows the stream. `ok` turns
    false at the first failure, which is reported then; what follows does nothing, so an operation checks once, at its end. */
#define IGNIS__OP_INPUTS 8
#define IGNIS__OP_MADE 24
#define IGNIS__OP_SAVED 5

typedef struct ignis__op {
    ignis__work work;
    bool ok;
    bool records;   /* an input requires a gradient, and recording is on */
    bool knows_one; /* its backward function takes no grad_output for one that is 1 */
    int count, made_count, saved_count;
    ignis__block *zeroed;                     /* what ignis__op_zeroed has taken */
    ignis__tensor *tensors[IGNIS__OP_INPUTS]; /* null where the operation works on arrays */
    ignis__array *in[IGNIS__OP_INPUTS];
    ignis__standing standing[IGNIS__OP_INPUTS]; /* of tensors. From here on only what the counts say is set */
    ignis__array *made[IGNIS__OP_MADE];         /* which nobody else sees, until ignis__op_hand_over */
    ignis__array *saved[IGNIS__OP_SAVED];       /* what its backward function is given */
} ignis__op;

/*  Reports a failure, if it is the operation's first. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__op_fail(ignis__op *op, ignis_diagnostic diagnostic, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    va_list args;
    if (!op->ok)
        return false;
    cause.diagnostic = diagnostic;
    cause.call = op->work.call;
    va_start(args, format);
    ignis__failv(cause, format, args);
    va_end(args);
    return op->ok = false;
}

IGNIS__ONE_COPY static void ignis__op_drop_inputs(ignis__op *op)
{
    int i;
    for (i = 0; i < op->count; i++) {
        ignis__array_drop(op->work.call, op->in[i]);
        if (op->tensors[i])
            ignis__tensor_drop(op->work.call, op->tensors[i]);
    }
}

/*  Enters the device that all inputs are on. On failure nothing is held. */
static bool ignis__op_enter(ignis__op *op)
{
    const char *call = op->work.call;
    ignis__device *device = op->in[0]->storage->device;
    int i;
    for (i = 1; i < op->count; i++)
        if (op->in[i]->storage->device != device)
            break;
    if (i < op->count)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "input 0 is on device %d, input %d is on device %d", (int)(device - ignis__devices), i,
                    (int)(op->in[i]->storage->device - ignis__devices));
    else if (ignis__work_begin(call, device, &op->work))
        return op->ok = true;
    ignis__op_drop_inputs(op);
    return false;
}

/*  Begins an operation on tensors. On failure it is over. */
static bool ignis__op_begin(ignis__op *op, const char *call, int count, const ignis_tensor *handles)
{
    memset(op, 0, offsetof(ignis__op, standing));
    op->work.call = call;
    for (; op->count < count; op->count++) {
        ignis__tensor *tensor = ignis__tensor_hold(call, handles[op->count]);
        ignis__array *array = tensor ? ignis__tensor_enter(call, tensor, &op->standing[op->count]) : NULL;
        if (!array || !ignis__watch_read(call, array)) {
            if (array)
                ignis__array_drop(call, array);
            if (tensor)
                ignis__tensor_drop(call, tensor);
            ignis__op_drop_inputs(op);
            return false;
        }
        op->tensors[op->count] = tensor;
        op->in[op->count] = array;
        op->records = op->records || op->standing[op->count].requires_grad;
    }
    if (op->records)
        ignis__tensor_thread_now()->saw_trainable = true;
    op->records = op->records && ignis__recording();
    return ignis__op_enter(op);
}

/*  Begins a backward function on the gradient and all that was saved, in this order. On failure it is over. */
static bool ignis__op_begin_backward(ignis__op *op, const char *call, const ignis_backward_args *args)
{
    memset(op, 0, offsetof(ignis__op, standing));
    op->work.call = call;
    for (; op->count < 1 + args->saved_count; op->count++) {
        op->in[op->count] = ignis__array_hold(call, op->count ? args->saved[op->count - 1] : args->grad_output);
        if (!op->in[op->count]) {
            ignis__op_drop_inputs(op);
            return false;
        }
    }
    return ignis__op_enter(op);
}

/*  A new array on the operation's device. Null after a failure. */
static ignis__array *ignis__op_new(ignis__op *op, const ignis_shape *shape, ignis_dtype dtype)
{
    const char *call = op->work.call;
    ignis__storage *storage;
    ignis__array *array;
    int64_t numel;
    if (!op->ok)
        return NULL;
    IGNIS_ASSERT(op->made_count < IGNIS__OP_MADE);
    op->ok = false;
    if (!ignis__shape_check(call, shape, dtype, &numel) ||
        (storage = ignis__storage_make(call, op->work.device, numel * ignis__dtypes[dtype].size)) == NULL)
        return NULL;
    array = ignis__array_make(call, storage, shape, dtype, numel);
    if (!array) {
        ignis__storage_destroy(storage);
        return NULL;
    }
    op->made[op->made_count++] = array;
    op->ok = true;
    return array;
}

IGNIS__ONE_COPY static ignis__array *ignis__op_new_like(ignis__op *op, const ignis__array *like)
{
    return ignis__op_new(op, &like->shape, like->dtype);
}

IGNIS__ONE_COPY static ignis__array *ignis__op_new_row(ignis__op *op, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 1;
    shape.dim[0] = n;
    return ignis__op_new(op, &shape, dtype);
}

/*  A new view of an input's elements from `offset` on. Null after a failure. */
static ignis__array *ignis__op_view(ignis__op *op, ignis__array *from, const ignis_shape *shape, int64_t numel, int64_t offset)
{
    ignis__array *view = NULL;
    if (op->ok)
        view = ignis__array_view_make(op->work.call, from, shape, numel, offset * ignis__dtypes[from->dtype].size);
    op->ok = view != NULL;
    if (view)
        op->made[op->made_count++] = view;
    return view;
}

/*  Lets others see an array that the operation has made: it belongs to its handle, and to so many references of theirs. False: the operation has
    not made it, or has handed it over before. */
static bool ignis__op_hand_over(ignis__op *op, ignis__array *array, int references)
{
    int i;
    for (i = op->made_count - 1; i >= 0; i--) {
        if (op->made[i] != array)
            continue;
        op->made[i] = op->made[--op->made_count];
        array->owned_by_refs = true;
        array->ref_count = references;
        ignis__array_publish(array);
        return true;
    }
    return false;
}

/*  Addresses for the operation's kernels; 0 after a failure, and for no elements. Reading what was never written is a failure. */
IGNIS__ONE_COPY static ignis__address ignis__op_read(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array && ignis__work_read(&op->work, array, &address);
    return op->ok ? address : 0;
}

IGNIS__ONE_COPY static ignis__address ignis__op_write(ignis__op *op, ignis__array *array)
{
    ignis__address address = 0;
    op->ok = op->ok && array && ignis__work_write(&op->work, array, &address);
    return op->ok ? address : 0;
}

/*  Launches one of Ignis' kernels. `define` chooses a variant beyond the dtype, such as "-DIGNIS_HEAD_DIM=64"; null: none. A grid of 0 blocks
    runs nothing. */
static void ignis__op_launch(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, const char *define, int64_t grid_x, int64_t grid_y,
                             int64_t grid_z, unsigned block_x, unsigned block_y, size_t shared_bytes, void **params)
{
    unsigned grid[3], block[3];
    void *function;
    if (!op->ok || grid_x == 0 || grid_y == 0 || grid_z == 0)
        return;
    if (grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535) {
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_OVERFLOW, "the tensors are larger than one launch can cover");
        return;
    }
    grid[0] = (unsigned)grid_x;
    grid[1] = (unsigned)grid_y;
    grid[2] = (unsigned)grid_z;
    block[0] = block_x;
    block[1] = block_y;
    block[2] = 1;
    function = define ? ignis__builtin_get_variant(op->work.call, op->work.device, builtin, dtype, define)
                      : ignis__builtin_get(op->work.call, op->work.device, builtin, dtype);
    op->ok = function && ignis__launch(&op->work, function, grid, block, (unsigned)shared_bytes, params);
}

/*  A kernel of one row of threads in one row of blocks. */
IGNIS__ONE_COPY static void ignis__op_launch_row(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t blocks, unsigned threads,
                                                 void **params)
{
    ignis__op_launch(op, builtin, dtype, NULL, blocks, 1, 1, threads, 1, 0, params);
}

/*  The kernels of elements: 256 threads do 4096 of them. */
IGNIS__ONE_COPY static void ignis__op_map(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    ignis__op_launch_row(op, builtin, dtype, ignis__ceil_div(numel, 4096), 256, params);
}

/*  Copies bytes on the device. */
IGNIS__ONE_COPY static void ignis__op_copy(ignis__op *op, ignis__array *to, ignis__array *from)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    op->ok = op->ok && ignis__copy_on_device(&op->work, target, source, ignis__array_bytes(from));
}

IGNIS__ONE_COPY static void ignis__op_zero(ignis__op *op, ignis__array *array)
{
    ignis__address target = ignis__op_write(op, array);
    if (op->ok && array->numel > 0)
        op->ok = !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuMemsetD8Async,
                                     (target, 0, (size_t)ignis__array_bytes(array), op->work.stream));
}

static void ignis__op_fill(ignis__op *op, ignis__array *array, double value)
{
    op->ok = op->ok && ignis__work_fill(&op->work, array, value);
}

/*  The operation's word of 8 bytes that is 0 for its kernels, and that they leave 0. */
static ignis__address ignis__op_zeroed(ignis__op *op)
{
    if (!op->ok)
        return 0;
    op->zeroed = ignis__memory_take_zeroed(op->work.call, op->work.device, op->work.stream);
    op->ok = op->zeroed != NULL;
    return op->ok ? op->zeroed->address : 0;
}

/*  Lets the arrays go that an operation has made but for the first so many, and has not handed over. */
static void ignis__op_unmake(ignis__op *op, int count)
{
    while (op->made_count > count)
        ignis__array_destroy(op->work.call, op->made[--op->made_count]);
}

/*  Ends an operation. Arrays that it made and has not handed over go; the failure status, or IGNIS_OK. */
static ignis_status ignis__op_leave(ignis__op *op)
{
    const char *call = op->work.call;
    if (op->zeroed && op->ok)
        ignis__memory_give_zeroed(call, op->work.device, op->zeroed);
    else if (op->zeroed)
        ignis__memory_give(call, op->work.device, op->zeroed);
    ignis__op_unmake(op, 0);
    ignis__op_drop_inputs(op);
    ignis__work_end(&op->work);
    return op->ok ? IGNIS_OK : ignis__failed();
}

/*  The entry of an operation on tensors, with what it saves. standings: as for ignis__node_make. Null after a failure. */
static ignis__node *ignis__op_record(ignis__op *op, int count, ignis__tensor *const *inputs, const ignis__standing *standings,
                                     const ignis_rule *rule)
{
    const char *call = op->work.call;
    ignis__node *node = ignis__node_make(call, count, inputs, standings, rule);
    int i;
    for (i = 0; node && i < rule->saved_count; i++) {
        ignis__array *array = op->saved[i];
        if (ignis__node_save(node, ignis__op_hand_over(op, array, 1) ? array : ignis__array_keep(call, array)))
            continue;
        ignis__node_discard(call, node);
        return NULL;
    }
    return node;
}

/*  A tensor of what an operation has made out of some tensors, recorded by the rule (null: not at all). No handle after a failure. */
static ignis_tensor ignis__op_result(ignis__op *op, ignis__array *output, int count, ignis__tensor *const *inputs,
                                     const ignis__standing *standings, const ignis_rule *rule)
{
    ignis_tensor result = IGNIS__ZERO;
    ignis__tensor *made;
    ignis__node *node = NULL;
    if (!op->ok)
        return result;
    if (!ignis__op_hand_over(op, output, 1))
        ignis__array_claim(output);
    made = ignis__tensor_make(op->work.call, output, false);
    if (!made) {
        ignis__array_unclaim(op->work.call, output);
    } else if (rule && (node = ignis__op_record(op, count, inputs, standings, rule)) == NULL) {
        ignis__tensors_bury(op->work.call, made);
        made = NULL;
    }
    if (node) {
        node->knows_one = op->knows_one;
        ignis__tensor_result(made, node);
        ignis__tape_append(node);
    }
    op->ok = made != NULL;
    return made ? ignis__tensor_publish(made) : result;
}

/*  Ends an operation on tensors with its result, recorded by the rule where a gradient is wanted (null: never). Arrays that the rule
    saves stay. No handle after a failure. */
static ignis_tensor ignis__op_end(ignis__op *op, ignis__array *output, const ignis_rule *rule)
{
    ignis_tensor result = ignis__op_result(op, output, op->count, op->tensors, op->standing, op->records ? rule : NULL);
    ignis__op_leave(op);
    return result;
}

/*  Saves an array for the backward function. */
IGNIS__ONE_COPY static void ignis__op_save(ignis__op *op, ignis__array *array)
{
    if (op->ok)
        op->saved[op->saved_count++] = array;
}

/*  A rule whose backward function needs what the operation has saved, and params. */
IGNIS__ONE_COPY static ignis_rule ignis__op_rule(const ignis__op *op, const char *name,
                                                 ignis_status (*backward_fn)(const ignis_backward_args *args), const void *params,
                                                 size_t params_size)
{
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = name;
    rule.backward_fn = backward_fn;
    rule.saved_count = op->saved_count;
    rule.params = params;
    rule.params_size = params_size;
    return rule;
}

/*  Ends an operation on tensors whose backward function needs what it saved, and params. Integers have no gradient. */
IGNIS__ONE_COPY static ignis_tensor ignis__op_end_recorded(ignis__op *op, ignis__array *output, const char *name,
                                                           ignis_status (*backward_fn)(const ignis_backward_args *args), const void *params,
                                                           size_t params_size)
{
    ignis_rule rule = ignis__op_rule(op, name, backward_fn, params, params_size);
    return ignis__op_end(op, output, op->ok && ignis__dtype_is_float(output->dtype) ? &rule : NULL);
}

/*  Ends a backward function: hands arrays that it made to the tape, each for the input of the same place (null: none). */
IGNIS__ONE_COPY static ignis_status ignis__op_give(ignis__op *op, const ignis_backward_args *args, int count,
                                                   ignis__array *const *gradients)
{
    int i;
    for (i = 0; op->ok && i < count; i++) {
        if (!gradients[i])
            continue;
        ignis__op_hand_over(op, gradients[i], 0);
        args->grad_inputs[i].id = gradients[i]->slot.handle;
    }
    return ignis__op_leave(op);
}

IGNIS__ONE_COPY static bool ignis__op_same_dtype(ignis__op *op, int input, const char *name)
{
    if (op->in[input]->dtype != op->in[0]->dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s, the first input is %s", name, ignis__dtypes[op->in[input]->dtype].name,
                       ignis__dtypes[op->in[0]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY static bool ignis__op_is_float(ignis__op *op, int input, const char *name)
{
    if (!ignis__dtype_is_float(op->in[input]->dtype))
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; f16, bf16, f32 or f64 is needed", name,
                       ignis__dtypes[op->in[input]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY static bool ignis__op_same_shape(ignis__op *op, int input, const char *name)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[input]->shape;
    if (!ignis__shape_same(a, b))
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s, the first input is %s", name, ignis__shape_write(b).text,
                       ignis__shape_write(a).text);
    return op->ok;
}

/*  A dimension by number, from the last one on backwards where negative. */
static bool ignis__op_dim(ignis__op *op, int *dim, const char *name)
{
    int ndim = op->in[0]->shape.ndim;
    if (*dim < -ndim || *dim >= ndim)
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "%s is %d, outside -%d to %d of %s", name, *dim, ndim, ndim - 1,
                              ignis__shape_write(&op->in[0]->shape).text);
    if (*dim < 0)
        *dim += ndim;
    return op->ok;
}

/*  Sums and statistics are in this. */
static ignis_dtype ignis__wide_dtype(ignis_dtype dtype) { return dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32; }

/*  Elements of 16 bytes, which a thread reads at a time. */
static int64_t ignis__pack_elements(ignis_dtype dtype) { return 16 / ignis__dtypes[dtype].size; }

/* >>ops.shape - reshape: the smallest operation, and the pattern of the others --------------------------------------------- */

static ignis_status ignis__reshape_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output; /* the same elements in the same order; the tape gives leaves their own shape */
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape)
{
    static const char call[] = "ignis_reshape";
    ignis__op op;
    ignis__array *view;
    int64_t numel = 0;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    op.ok = ignis__shape_infer(call, &shape, op.in[0]->numel) && ignis__shape_check(call, &shape, op.in[0]->dtype, &numel);
    if (op.ok && numel != op.in[0]->numel)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "%s cannot become %s: %lld elements are not %lld",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&shape).text, (long long)op.in[0]->numel,
                       (long long)numel);
    view = ignis__op_view(&op, op.in[0], &shape, numel, 0);
    return ignis__op_end_recorded(&op, view, "reshape", ignis__reshape_backward, NULL, 0);
}

/* >>ops.matmul - matrix products: own kernels ------------------------------------------------------------------------------ */

/*  A product of row-major matrices: out [batch, m, n] = op(a) op(b). */
typedef struct ignis__product {
    int64_t m, n, k, batch;
    int64_t batch_a, batch_b;     /* elements between the matrices of a batch; 0: one matrix for all */
    int transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int dtype, epilogue;          /* one of cuBLASLt's */
    int alignment;                /* of all addresses, in bytes: 16, 8, 4 or 2 */
    int nothing;                  /* in place of padding, as plans are found by the bytes of their product */
} ignis__product;

/*  What is done to a product before it is stored, in this order; null arrays leave their part out. Sums need a product without batches. */
typedef struct ignis__epilogue {
    double factor;             /* of the product; 0: 1 */
    ignis__array *bias;        /* [n], added to each row */
    int activation;            /* an ignis_activation; 0: none */
    bool gradient;             /* the product is multiplied by the derivative of the activation at pre */
    ignis__array *pre;         /* like out: where the product with its bias is kept; of a gradient, what was kept */
    ignis__array *residual;    /* like out, added */
    ignis__array *column_sums; /* [n]: the sums of the results over m */
    bool accumulate;           /* the result is added to what is in out */
    ignis__array *row_sums;    /* [m]: the sums of op(a) over k */
} ignis__epilogue;

/*  The parameters of the kernels, as in kernels/gemm.cuh. */
typedef struct ignis__gemm {
    ignis__address a, b, out, bias, pre, residual, partial, row_sums, column_sums;
    int64_t m, n, k, batch, batch_a, batch_b, row_a, row_b, split_k;
    double factor;
    int splits, transpose_a, transpose_b, activation, gradient, accumulate, packed_a, packed_b, packed_out;
} ignis__gemm;

/*  A kernel: the tile of a block and its threads, how many blocks a multiprocessor has at a time, and nanoseconds: what 64 elements of k of a tile
    take of a multiprocessor, and of one of its blocks at least, what is between two tiles, and before the first. As on an H200, of 16-bit
    elements, and of f32 in plain CUDA C. */
typedef struct ignis__gemm_tile {
    ignis__builtin builtin;
    int rows, columns;
    unsigned threads;
    int blocks, step, latency, between, before;
} ignis__gemm_tile;

/* clang-format off */
static const ignis__gemm_tile ignis__gemm_tile_sizes[] = {
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 256, 384, 1, 690, 690, 1000, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 128, 384, 1, 380, 380, 600, 800},
    {IGNIS__BUILTIN_GEMM_MMA, 128, 128, 256, 1, 600, 600, 1000, 0},
    {IGNIS__BUILTIN_GEMM_MMA_SMALL, 64, 64, 128, 4, 200, 450, 1000, 0},
    {IGNIS__BUILTIN_GEMM, 128, 128, 256, 1, 4800, 4800, 1000, 0},
    {IGNIS__BUILTIN_GEMM_SMALL, 64, 64, 256, 2, 1500, 2000, 1000, 0},
};
/* clang-format on */

/*  A kernel, and how it is launched for a product. */
typedef struct ignis__gemm_kernel {
    ignis__builtin builtin;
    int rows, columns, summed_rows; /* of a tile; so many rows of it are one row of column_sums */
    bool sums_rows;                 /* it makes row_sums */
    bool stays;                     /* a block does one tile after the other */
    bool packs;                     /* operands whose rows are no packs are copied first */
    int64_t splits;                 /* of k */
    unsigned threads, shared;
    char define[160]; /* of its variant; "": none */
} ignis__gemm_kernel;

static int64_t ignis__gemm_tiles(const ignis__gemm *p, int rows, int columns)
{
    return ignis__ceil_div(p->m, rows) * ignis__ceil_div(p->n, columns) * p->batch;
}

/*  Whether wgmma can be used: what the copy engine takes are fewer than 2^31 elements a side. */
static bool ignis__gemm_takes_wgmma(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p)
{
    int64_t most = INT32_MAX - 256;
    return (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && op->work.device->info.compute_major == 9 && ignis__cuda.cuTensorMapEncodeTiled &&
           ignis__library_load(op->work.call, IGNIS_LIBRARY_NVRTC) && ignis__libraries[IGNIS_LIBRARY_NVRTC].version >= 12000 && p->k > 0 &&
           p->m < most && p->n < most && p->k < most && p->batch < most;
}

/*  Estimates the nanoseconds of a kernel for a product whose k is shared out: by the multiprocessor with the most blocks, by the rounds of blocks
    that there is room for, and by the L2 cache, which gives 9500 bytes a nanosecond. ignis_gemm_finish has 8 loads under way a thread. */
static double ignis__gemm_time(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p, const ignis__gemm_tile *tile, int64_t splits)
{
    int64_t size = ignis__dtypes[dtype].size, processors = op->work.device->info.multiprocessors, room = processors * tile->blocks;
    int64_t blocks = ignis__gemm_tiles(p, tile->rows, tile->columns) * splits, rounds = ignis__ceil_div(blocks, room);
    double bytes = 64.0 * (double)(size * (ignis__clamp(p->m, 0, tile->rows) + ignis__clamp(p->n, 0, tile->columns)));
    double scale =
        tile->builtin == IGNIS__BUILTIN_GEMM || tile->builtin == IGNIS__BUILTIN_GEMM_SMALL ? size == 8 ? 2 : 1 : (double)size / 2;
    double step = scale * tile->step * (double)ignis__ceil_div(blocks, processors), latency = scale * tile->latency * (double)rounds;
    double cache = bytes * (double)(blocks < room ? blocks : room) * (double)rounds / 9500, time;
    step = step > latency ? step : latency;
    step = step > cache ? step : cache;
    time = step * (double)ignis__ceil_div(ignis__ceil_div(p->k, splits), 64) + (double)(tile->between * rounds + tile->before);
    if (splits > 1)
        time += 2000 + 600 * (double)ignis__ceil_div(splits, 8) + (double)(p->m * p->n * p->batch * (4 * splits + size)) / 3000;
    return time;
}

/*  Parts of k that fill so many rounds of blocks, each of at least 128 elements; 1: no more than balance the time of a kernel with that of adding
    them up. */
static int64_t ignis__gemm_splits(const ignis__op *op, const ignis__gemm *p, const ignis__gemm_tile *tile, int rounds)
{
    int64_t room = rounds * op->work.device->info.multiprocessors * tile->blocks / ignis__gemm_tiles(p, tile->rows, tile->columns),
            splits = 2;
    double whole = (double)tile->latency * (double)p->k / 64, part = 75 + (double)(p->m * p->n * p->batch) / 750;
    while (rounds == 1 && splits < room && 2 * (double)(splits * splits) * part < whole)
        splits *= 2;
    return ignis__clamp(rounds == 1 ? splits : room, 1, ignis__clamp(p->k / 128, 1, room > 1 ? room : 1));
}

/*  Larger operands are not copied. */
static int64_t ignis__gemm_pack_limit = (int64_t)1 << 30;

/*  The one place that chooses an own kernel: tensor cores for 16-bit types, and for f32 that may be rounded; plain CUDA C for the rest. Tiles and
    splits of k are those that should take the least time. wgmma needs rows of whole packs of 16 bytes, and mma.sync is 12 times slower without:
    other operands are copied for them. */
static ignis__gemm_kernel ignis__gemm_choose(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p)
{
    const ignis__gemm_tile *best = NULL;
    ignis__gemm_kernel kernel;
    int64_t bytes_a = (p->batch_a ? p->batch : 1) * p->m * p->k * ignis__dtypes[dtype].size;
    int64_t bytes_b = (p->batch_b ? p->batch : 1) * p->k * p->n * ignis__dtypes[dtype].size;
    bool rounds = dtype == IGNIS_F16 || dtype == IGNIS_BF16 || (dtype == IGNIS_F32 && ignis__allow_tf32);
    bool tensor_cores = rounds && op->work.device->info.compute_major >= 8, wgmma = tensor_cores && ignis__gemm_takes_wgmma(op, dtype, p);
    bool packed = p->packed_a && p->packed_b,
         may_pack = (p->packed_a || bytes_a <= ignis__gemm_pack_limit) && (p->packed_b || bytes_b <= ignis__gemm_pack_limit);
    double least = 0, packing = 3000 + (double)((p->packed_a ? 0 : bytes_a) + (p->packed_b ? 0 : bytes_b)) / 1500;
    int i, turn, at;
    memset(&kernel, 0, sizeof kernel);
    for (i = 0; i < IGNIS__COUNT(ignis__gemm_tile_sizes); i++) {
        const ignis__gemm_tile *tile = &ignis__gemm_tile_sizes[i];
        bool hopper = tile->builtin == IGNIS__BUILTIN_GEMM_HOPPER;
        bool mma = tile->builtin == IGNIS__BUILTIN_GEMM_MMA || tile->builtin == IGNIS__BUILTIN_GEMM_MMA_SMALL;
        if ((hopper || mma) != tensor_cores || (hopper && (!wgmma || !(packed || may_pack))))
            continue;
        for (turn = 0; turn <= (p->k < 256 ? 0 : 3); turn++) {
            int64_t splits = turn ? ignis__gemm_splits(op, p, tile, turn) : 1;
            double time = turn && splits == 1 ? least : ignis__gemm_time(op, dtype, p, tile, splits);
            bool packs = !packed && (hopper || (mma && may_pack && 12 * time > time + packing));
            time = packs ? time + packing : !packed && mma ? 12 * time : time;
            if (best && time >= least)
                continue;
            best = tile;
            least = time;
            kernel.splits = splits;
            kernel.packs = packs;
        }
    }
    kernel.builtin = best->builtin;
    kernel.rows = kernel.summed_rows = best->rows;
    kernel.columns = best->columns;
    kernel.threads = best->threads;
    kernel.sums_rows = !tensor_cores || dtype != IGNIS_F32; /* as what is summed would be rounded */
    if (!tensor_cores)
        return kernel;
    at = snprintf(kernel.define, sizeof kernel.define, "-DIGNIS_TRANSPOSE_A=%d -DIGNIS_TRANSPOSE_B=%d", p->transpose_a, p->transpose_b);
    if (best->builtin == IGNIS__BUILTIN_GEMM_HOPPER) {
        kernel.summed_rows = 64;
        kernel.stays = true;
        /* steps of both operands, 64 x 68 floats of two warpgroups, and the barriers: kernels/gemm_hopper.cu */
        kernel.shared = (kernel.columns == 256 ? 4u : 6u) * (128u * (unsigned)(kernel.rows + kernel.columns) + 16) + 2 * 64 * 68 * 4 + 32;
        snprintf(kernel.define + at, sizeof kernel.define - (size_t)at, " -DIGNIS_COLUMNS=%d", kernel.columns);
    } else {
        kernel.shared = 4 * 64 * 2 * (unsigned)kernel.rows; /* 4 steps of 64 bytes of each row of both operands */
    }
    return kernel;
}

/*  A map of the matrices [batch, rows, row] of 16-bit elements, in tiles of 64 columns and so many rows; row_stride and stride elements lie
    between the starts of rows and matrices. */
static void ignis__gemm_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, ignis__address at, int64_t row, int64_t row_stride,
                            int64_t rows, int64_t batch, int64_t stride, int box_rows)
{
    int64_t dims[3], strides[2];
    int box[3];
    dims[0] = row;
    dims[1] = rows;
    dims[2] = stride ? batch : 1;
    strides[0] = 2 * row_stride;
    strides[1] = 2 * (stride ? stride : row_stride * rows);
    box[0] = 64;
    box[1] = box_rows;
    box[2] = 1;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, dtype, at, 3, dims, strides, box);
}

/*  Whether all rows of so many elements, from these addresses on, are whole packs. */
static bool ignis__gemm_packed(ignis_dtype dtype, ignis__address addresses, int64_t row, int64_t batch)
{
    int64_t pack = ignis__pack_elements(dtype);
    return addresses % 16 == 0 && row % pack == 0 && batch % pack == 0;
}

/*  Adds [count, n] up, in the order of the rows. */
static void ignis__gemm_sums(ignis__op *op, ignis__array *out, ignis__address from, int64_t count)
{
    ignis__address to = ignis__op_write(op, out);
    void *params[] = {&to, &from, &count, &out->numel};
    if (from == to) /* there was one */
        return;
    ignis__op_launch_row(op, IGNIS__BUILTIN_GEMM_SUMS, out->dtype, ignis__ceil_div(out->numel, 32), 256, params);
}

static ignis__address ignis__gemm_room(ignis__op *op, int64_t count, ignis_dtype dtype)
{
    return ignis__op_write(op, ignis__op_new_row(op, count, ignis__wide_dtype(dtype)));
}

/*  Where a kernel puts so many rows of sums for ignis__gemm_sums: a single one of the same type is the result. */
static ignis__address ignis__gemm_sums_room(ignis__op *op, ignis__array *out, int64_t count, ignis_dtype dtype)
{
    return count == 1 && dtype == ignis__wide_dtype(dtype) ? ignis__op_write(op, out) : ignis__gemm_room(op, count * out->numel, dtype);
}

/*  The parameters but for sums over parts; out and what goes with it has elements. */
static ignis__gemm ignis__gemm_params(ignis__op *op, const ignis__product *product, ignis__array *out, const ignis__epilogue *epilogue)
{
    ignis__gemm p;
    memset(&p, 0, sizeof p);
    p.m = product->m;
    p.n = product->n;
    p.k = product->k;
    p.batch = product->batch;
    p.batch_a = product->batch_a;
    p.batch_b = product->batch_b;
    p.transpose_a = product->transpose_a;
    p.transpose_b = product->transpose_b;
    p.row_a = p.transpose_a ? p.m : p.k;
    p.row_b = p.transpose_b ? p.k : p.n;
    p.factor = epilogue->factor != 0 ? epilogue->factor : 1;
    p.splits = 1;
    p.split_k = p.k;
    p.activation = epilogue->activation;
    p.gradient = epilogue->gradient;
    p.accumulate = epilogue->accumulate;
    if (epilogue->bias)
        p.bias = ignis__op_read(op, epilogue->bias);
    if (epilogue->pre)
        p.pre = epilogue->gradient ? ignis__op_read(op, epilogue->pre) : ignis__op_write(op, epilogue->pre);
    if (epilogue->residual)
        p.residual = ignis__op_read(op, epilogue->residual);
    p.out = ignis__op_write(op, out);
    p.packed_out = ignis__gemm_packed((ignis_dtype)product->dtype, p.out | p.bias | p.pre | p.residual, p.n, 0);
    return p;
}

/*  Launches a kernel that does what comes behind a product: 128 columns of so many rows a block. */
static void ignis__gemm_end(ignis__op *op, ignis__builtin builtin, int rows, ignis_dtype dtype, ignis__gemm *p,
                            const ignis__epilogue *epilogue)
{
    void *params[] = {p};
    int64_t sums = ignis__ceil_div(p->m, rows);
    if (epilogue->column_sums)
        p->column_sums = ignis__gemm_sums_room(op, epilogue->column_sums, sums, dtype);
    ignis__op_launch_row(op, builtin, dtype, ignis__gemm_tiles(p, rows, 128), 256, params);
    if (epilogue->column_sums)
        ignis__gemm_sums(op, epilogue->column_sums, p->column_sums, sums);
}

/*  Whether a product by wgmma is finished in registers: kernels/gemm_hopper.cu. */
static bool ignis__gemm_direct(const ignis__gemm *p)
{
    int others = (p->gradient != 0) + (p->residual != 0) + (p->accumulate != 0);
    return p->packed_out && !p->partial && p->factor == 1 && others <= 1 && !(p->activation && p->row_sums) &&
           (p->gradient ? !p->bias : !p->column_sums && !(others && p->activation));
}

/*  Launches the product itself. */
static void ignis__gemm_launch(ignis__op *op, ignis__gemm_kernel *kernel, ignis_dtype dtype, ignis__gemm *p)
{
    int64_t blocks = ignis__gemm_tiles(p, kernel->rows, kernel->columns) * p->splits;
    ignis__tensor_map a, b, out, other;
    ignis__address another = p->residual ? p->residual : p->accumulate ? p->out : p->pre;
    bool direct = ignis__gemm_direct(p);
    void *mapped[] = {&a, &b, &out, &other, p}, *plain[] = {p};
    if (kernel->stays) { /* kernels/gemm_hopper.cu */
        blocks = ignis__clamp(blocks, 1, op->work.device->info.multiprocessors);
        ignis__gemm_map(op, &a, dtype, p->a, p->transpose_a ? p->m : p->k, p->row_a, p->transpose_a ? p->k : p->m, p->batch, p->batch_a,
                        p->transpose_a ? 64 : kernel->rows);
        ignis__gemm_map(op, &b, dtype, p->b, p->transpose_b ? p->k : p->n, p->row_b, p->transpose_b ? p->n : p->k, p->batch, p->batch_b,
                        p->transpose_b ? kernel->columns : 64);
        other = out = a; /* where they are not used */
        if (direct)
            ignis__gemm_map(op, &out, dtype, p->out, p->n, p->n, p->m, p->batch, p->m * p->n, 64);
        if (direct && another)
            ignis__gemm_map(op, &other, dtype, another, p->n, p->n, p->m, p->batch, p->m * p->n, 64);
        snprintf(kernel->define + strlen(kernel->define), sizeof kernel->define - strlen(kernel->define),
                 " -DIGNIS_DIRECT=%d -DIGNIS_ACTIVATION=%d -DIGNIS_OTHER=%d", direct, direct ? p->activation : 0,
                 direct ? p->gradient ? 2 : another != p->pre : 0);
    }
    ignis__op_launch(op, kernel->builtin, dtype, kernel->define[0] ? kernel->define : NULL, blocks, 1, 1, kernel->threads, 1,
                     kernel->shared, kernel->stays ? mapped : plain);
}

/*  A copy of an operand, as in kernels/gemm.cu. */
typedef struct ignis__gemm_copy {
    ignis__address to, from;
    int64_t row, stride, rows;
} ignis__gemm_copy;

/*  Gives an operand, matrices of so many rows, room of its own where they are packs. */
static void ignis__gemm_move(ignis__op *op, ignis_dtype dtype, ignis__gemm_copy *copy, ignis__address *at, int64_t *row, int64_t rows,
                             int64_t count, int64_t *batch, int *packed)
{
    int64_t pack = ignis__pack_elements(dtype);
    memset(copy, 0, sizeof *copy);
    if (*packed)
        return;
    copy->from = *at;
    copy->row = *row;
    copy->stride = ignis__ceil_div(*row, pack) * pack;
    copy->rows = *batch ? rows * count : rows;
    copy->to = ignis__op_write(op, ignis__op_new_row(op, copy->rows * copy->stride, dtype));
    *at = copy->to;
    *row = copy->stride;
    *batch = *batch ? rows * copy->stride : 0;
    *packed = 1;
}

/*  Copies operands whose rows are no packs to where they are. */
static void ignis__gemm_pack(ignis__op *op, ignis_dtype dtype, ignis__gemm *p)
{
    ignis__gemm_copy a, b;
    void *params[] = {&a, &b};
    ignis__gemm_move(op, dtype, &a, &p->a, &p->row_a, p->transpose_a ? p->k : p->m, p->batch, &p->batch_a, &p->packed_a);
    ignis__gemm_move(op, dtype, &b, &p->b, &p->row_b, p->transpose_b ? p->n : p->k, p->batch, &p->batch_b, &p->packed_b);
    ignis__op_launch_row(op, IGNIS__BUILTIN_GEMM_PACK, dtype,
                         ignis__ceil_div((a.rows * a.stride + b.rows * b.stride) / ignis__pack_elements(dtype), 256), 256, params);
}

/*  A product by own kernels; out has elements. False: its row sums are left to the caller. */
static bool ignis__gemm_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                            const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__gemm p = ignis__gemm_params(op, product, out, epilogue);
    ignis__gemm_kernel kernel;
    bool row_sums;
    if (p.k > 0) {
        p.a = ignis__op_read(op, a);
        p.b = ignis__op_read(op, b);
    }
    if (!op->ok)
        return false;
    p.packed_a = p.k == 0 || ignis__gemm_packed(dtype, p.a, p.row_a, p.batch_a);
    p.packed_b = p.k == 0 || ignis__gemm_packed(dtype, p.b, p.row_b, p.batch_b);
    kernel = ignis__gemm_choose(op, dtype, &p);
    row_sums = epilogue->row_sums && kernel.sums_rows;
    if (kernel.packs)
        ignis__gemm_pack(op, dtype, &p);
    if (kernel.splits > 1) {
        p.split_k = ignis__ceil_div(ignis__ceil_div(p.k, kernel.splits), 64) * 64;
        p.splits = (int)ignis__ceil_div(p.k, p.split_k);
    }
    if (p.splits > 1)
        p.partial = ignis__gemm_room(op, p.splits * p.batch * p.m * p.n, dtype);
    else if (epilogue->column_sums)
        p.column_sums = ignis__gemm_sums_room(op, epilogue->column_sums, ignis__ceil_div(p.m, kernel.summed_rows), dtype);
    if (row_sums)
        p.row_sums = ignis__gemm_sums_room(op, epilogue->row_sums, p.splits, dtype);
    ignis__gemm_launch(op, &kernel, dtype, &p);
    if (p.splits > 1)
        ignis__gemm_end(op, IGNIS__BUILTIN_GEMM_FINISH, 16, dtype, &p, epilogue);
    else if (epilogue->column_sums)
        ignis__gemm_sums(op, epilogue->column_sums, p.column_sums, ignis__ceil_div(p.m, kernel.summed_rows));
    if (row_sums)
        ignis__gemm_sums(op, epilogue->row_sums, p.row_sums, p.splits);
    return row_sums;
}

/* >>ops.matmul - matrix products: cuBLASLt with cached plans --------------------------------------------------------------- */

enum { /* numbers of cuBLASLt's enumerations */
       IGNIS__LT_COMPUTE_32F = 68,
       IGNIS__LT_COMPUTE_64F = 70,
       IGNIS__LT_COMPUTE_32F_TF32 = 77,
       IGNIS__LT_R_32F = 0,
       IGNIS__LT_R_64F = 1,
       IGNIS__LT_R_16F = 2,
       IGNIS__LT_R_16BF = 14,
       IGNIS__LT_DESC_TRANSA = 3,
       IGNIS__LT_DESC_TRANSB = 4,
       IGNIS__LT_DESC_EPILOGUE = 7,
       IGNIS__LT_DESC_BIAS_POINTER = 8,
       IGNIS__LT_LAYOUT_BATCH_COUNT = 5,
       IGNIS__LT_LAYOUT_BATCH_STRIDE = 6,
       IGNIS__LT_PREFERENCE_WORKSPACE = 1,
       IGNIS__LT_PREFERENCE_REDUCTION = 3,
       IGNIS__LT_REDUCTION_NONE = 0,
       IGNIS__LT_REDUCTION_COMPUTE_TYPE = 2,
       IGNIS__LT_PREFERENCE_ALIGNMENT_A = 5, /* B, C and D follow */
       IGNIS__LT_EPILOGUE_NONE = 1,
       IGNIS__LT_EPILOGUE_BIAS = 4,
       IGNIS__LT_EPILOGUE_BGRADB = 512,
       IGNIS__LT_NOT_SUPPORTED = 15,
       IGNIS__LT_WORKSPACE = 32 << 20 /* bytes: what NVIDIA advises for Hopper */
};

typedef struct ignis__lt_algo {
    uint64_t data[8];
} ignis__lt_algo;

typedef struct ignis__lt_choice {
    ignis__lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} ignis__lt_choice;

/*  What cuBLASLt has chosen for a product, kept for the next one of the same kind. It thinks in columns: a row-major matrix is its transpose there,
    so it computes out^T = op(b)^T op(a)^T with the operands exchanged, and nothing is copied. */
typedef struct ignis__plan {
    ignis__product product;
    void *desc, *layout_a, *layout_b, *layout_out; /* in cuBLASLt's order: its A is our b */
    ignis__lt_choice choice;
    ignis__mutex lock; /* the bias address is written into desc */
    struct ignis__plan *next;
} ignis__plan;

#define IGNIS__PLAN_BUCKETS 64

/*  cuBLASLt may load kernels for a plan, and that may wait for the device, and for another thread that plans for another one: `planning` of a
    device guards what is of that. */
static struct {
    void *handle[IGNIS_MAX_DEVICES];
    ignis__plan *plans[IGNIS_MAX_DEVICES][IGNIS__PLAN_BUCKETS];
    uint64_t missing; /* cuBLASLt was looked for and not found */
} ignis__matmul = IGNIS__ZERO;

#define IGNIS__CUBLASLT(name, args) IGNIS_CALL_HOOK(#name, ignis__cublaslt.name args)

IGNIS__ONE_COPY static bool ignis__lt_check(const char *call, const char *function, int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {{1, "CUBLAS_STATUS_NOT_INITIALIZED"}, {3, "CUBLAS_STATUS_ALLOC_FAILED"},      {7, "CUBLAS_STATUS_INVALID_VALUE"},
                 {8, "CUBLAS_STATUS_ARCH_MISMATCH"},   {13, "CUBLAS_STATUS_EXECUTION_FAILED"}, {14, "CUBLAS_STATUS_INTERNAL_ERROR"},
                 {15, "CUBLAS_STATUS_NOT_SUPPORTED"}};
    const char *name = "an unknown status";
    int i;
    if (error == 0)
        return true;
    for (i = 0; i < IGNIS__COUNT(names); i++)
        if (names[i].error == error)
            name = names[i].name;
    ignis__fail_because(IGNIS_DIAG_CUBLAS_CALL, call, error, name, NULL, "%s failed with %s (%d)", function, name, error);
    return false;
}
#define IGNIS__LT_OK(call, name, args) ignis__lt_check(call, #name, IGNIS__CUBLASLT(name, args))

static int ignis__lt_type(int dtype)
{
    return dtype == IGNIS_F16    ? IGNIS__LT_R_16F
           : dtype == IGNIS_BF16 ? IGNIS__LT_R_16BF
           : dtype == IGNIS_F64  ? IGNIS__LT_R_64F
                                 : IGNIS__LT_R_32F;
}

static void ignis__plan_free(ignis__plan *plan)
{
    if (plan->layout_a)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_a));
    if (plan->layout_b)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_b));
    if (plan->layout_out)
        (void)IGNIS__CUBLASLT(cublasLtMatrixLayoutDestroy, (plan->layout_out));
    if (plan->desc)
        (void)IGNIS__CUBLASLT(cublasLtMatmulDescDestroy, (plan->desc));
    ignis__free(plan);
}

/*  A matrix stored by rows, [rows, columns], as cuBLASLt sees it: [columns, rows] by columns. */
static bool ignis__plan_layout(const char *call, const ignis__plan *plan, int64_t rows, int64_t columns, int64_t batch_stride,
                               void **layout)
{
    int batch = (int)plan->product.batch;
    if (!IGNIS__LT_OK(call, cublasLtMatrixLayoutCreate,
                      (layout, ignis__lt_type(plan->product.dtype), (uint64_t)columns, (uint64_t)rows, columns)))
        return false;
    return plan->product.batch == 1 ||
           (IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute, (*layout, IGNIS__LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch)) &&
            IGNIS__LT_OK(call, cublasLtMatrixLayoutSetAttribute,
                         (*layout, IGNIS__LT_LAYOUT_BATCH_STRIDE, &batch_stride, sizeof batch_stride)));
}

/*  Describes the product, and lets cuBLASLt choose. *supported turns false when it has no kernel for it. */
static bool ignis__plan_fill(const char *call, void *handle, ignis__plan *plan, void *bias, bool *supported)
{
    const ignis__product *p = &plan->product;
    int compute = p->dtype == IGNIS_F64                        ? IGNIS__LT_COMPUTE_64F
                  : p->dtype == IGNIS_F32 && ignis__allow_tf32 ? IGNIS__LT_COMPUTE_32F_TF32
                                                               : IGNIS__LT_COMPUTE_32F;
    int scale = p->dtype == IGNIS_F64 ? IGNIS__LT_R_64F : IGNIS__LT_R_32F, found = 0, error = 0, i;
    size_t workspace = IGNIS__LT_WORKSPACE;
    uint32_t alignment = (uint32_t)p->alignment,
             /* parts of a sum are not rounded to 16 bits; a short sum is not split, as adding its parts up takes longer */
        reduction = p->k <= 512 ? IGNIS__LT_REDUCTION_NONE : IGNIS__LT_REDUCTION_COMPUTE_TYPE;
    void *preference = NULL;
    bool ok;
    *supported = true;
    ok = IGNIS__LT_OK(call, cublasLtMatmulDescCreate, (&plan->desc, compute, scale)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_TRANSA, &p->transpose_b, sizeof p->transpose_b)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_TRANSB, &p->transpose_a, sizeof p->transpose_a)) &&
         IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue)) &&
         (p->epilogue == IGNIS__LT_EPILOGUE_NONE ||
          IGNIS__LT_OK(call, cublasLtMatmulDescSetAttribute, (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias, sizeof bias))) &&
         ignis__plan_layout(call, plan, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->batch_b, &plan->layout_a) &&
         ignis__plan_layout(call, plan, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, p->batch_a, &plan->layout_b) &&
         ignis__plan_layout(call, plan, p->m, p->n, p->m * p->n, &plan->layout_out) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceCreate, (&preference)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_REDUCTION, &reduction, sizeof reduction)) &&
         IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                      (preference, IGNIS__LT_PREFERENCE_WORKSPACE, &workspace, sizeof workspace));
    for (i = 0; ok && i < 4; i++)
        ok = IGNIS__LT_OK(call, cublasLtMatmulPreferenceSetAttribute,
                          (preference, IGNIS__LT_PREFERENCE_ALIGNMENT_A + i, &alignment, sizeof alignment));
    if (ok) {
        error = IGNIS__CUBLASLT(cublasLtMatmulAlgoGetHeuristic, (handle, plan->desc, plan->layout_a, plan->layout_b, plan->layout_out,
                                                                 plan->layout_out, preference, 1, &plan->choice, &found));
        *supported = error != IGNIS__LT_NOT_SUPPORTED && (error != 0 || found > 0);
        ok = !*supported || ignis__lt_check(call, "cublasLtMatmulAlgoGetHeuristic", error);
    }
    if (preference)
        (void)IGNIS__CUBLASLT(cublasLtMatmulPreferenceDestroy, (preference));
    return ok;
}

/*  The plan for a product on a device that is entered. Null: not supported, or a failure that was reported (*supported tells). */
static ignis__plan *ignis__plan_get(const char *call, ignis__device *device, const ignis__product *product, void *bias, bool *supported)
{
    int index = (int)(device - ignis__devices),
        bucket = (int)(ignis__hash(IGNIS__HASH_START, product, sizeof *product) % IGNIS__PLAN_BUCKETS);
    ignis__plan *plan;
    *supported = true;
    ignis__mutex_lock(&device->planning);
    for (plan = ignis__matmul.plans[index][bucket]; plan; plan = plan->next)
        if (memcmp(&plan->product, product, sizeof *product) == 0)
            break;
    if (!plan && (ignis__matmul.handle[index] || (ignis__library_load(call, IGNIS_LIBRARY_CUBLASLT) &&
                                                  IGNIS__LT_OK(call, cublasLtCreate, (&ignis__matmul.handle[index]))))) {
        plan = (ignis__plan *)ignis__alloc(sizeof *plan);
        if (!plan)
            ignis__fail_host_memory(call, sizeof *plan);
        if (plan) {
            plan->product = *product;
            ignis__mutex_init(&plan->lock);
            if (ignis__plan_fill(call, ignis__matmul.handle[index], plan, bias, supported) && *supported) {
                plan->next = ignis__matmul.plans[index][bucket];
                ignis__matmul.plans[index][bucket] = plan;
            } else {
                ignis__plan_free(plan);
                plan = NULL;
            }
        }
    }
    ignis__mutex_unlock(&device->planning);
    return plan;
}

static int ignis__alignment_of(ignis__address a, ignis__address b, ignis__address c)
{
    ignis__address bits = a | b | c | 16;
    return (int)(bits & (~bits + 1));
}

/*  A product by cuBLASLt: out = factor * op(a) op(b), with IGNIS__LT_EPILOGUE_BIAS plus bias [n] in each row; IGNIS__LT_EPILOGUE_BGRADB makes
    bias [m] the sums of op(a) over k. False: it has no kernel for it, and nothing was done. All sizes are positive. */
static bool ignis__lt_run(ignis__op *op, const ignis__product *product, double factor, int epilogue, ignis__array *out, ignis__array *a,
                          ignis__array *b, ignis__array *bias)
{
    static const float zero_f32 = 0;
    static const double zero_f64 = 0;
    float factor_f32 = (float)factor;
    ignis__product described = *product;
    bool wide = product->dtype == IGNIS_F64, known;
    ignis__address at_a = ignis__op_read(op, a), at_b = ignis__op_read(op, b), at_out = ignis__op_write(op, out), at_bias = 0;
    ignis__block *workspace = NULL;
    ignis__plan *plan;
    void *bias_pointer;
    if (bias)
        at_bias = epilogue == IGNIS__LT_EPILOGUE_BGRADB ? ignis__op_write(op, bias) : ignis__op_read(op, bias);
    if (!op->ok)
        return true;
    described.epilogue = epilogue;
    described.alignment = ignis__alignment_of(at_a, at_b, at_out);
    bias_pointer = (void *)(uintptr_t)at_bias;
    plan = ignis__plan_get(op->work.call, op->work.device, &described, bias_pointer, &known);
    if (!plan) {
        op->ok = !known;
        return known;
    }
    if (plan->choice.workspace) {
        workspace = ignis__memory_take(op->work.call, op->work.device, op->work.stream, (int64_t)plan->choice.workspace);
        op->ok = workspace != NULL;
    }
    if (bias)
        ignis__mutex_lock(&plan->lock);
    if (bias && op->ok)
        op->ok = IGNIS__LT_OK(op->work.call, cublasLtMatmulDescSetAttribute,
                              (plan->desc, IGNIS__LT_DESC_BIAS_POINTER, &bias_pointer, sizeof bias_pointer));
    if (op->ok)
        op->ok = IGNIS__LT_OK(op->work.call, cublasLtMatmul,
                              (ignis__matmul.handle[op->work.device - ignis__devices], plan->desc,
                               wide ? (const void *)&factor : (const void *)&factor_f32, (const void *)(uintptr_t)at_b, plan->layout_a,
                               (const void *)(uintptr_t)at_a, plan->layout_b, wide ? (const void *)&zero_f64 : (const void *)&zero_f32,
                               (const void *)(uintptr_t)at_out, plan->layout_out, (void *)(uintptr_t)at_out, plan->layout_out,
                               &plan->choice.algo, (void *)(uintptr_t)(workspace ? workspace->address : 0), plan->choice.workspace,
                               op->work.stream));
    if (bias)
        ignis__mutex_unlock(&plan->lock);
    if (workspace)
        ignis__memory_give(op->work.call, op->work.device, workspace);
    return true;
}

/*  The same with an epilogue: the bias inside the product where cuBLASLt can, and what else there is in a pass behind it. */
static bool ignis__lt_multiply(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                               const ignis__epilogue *epilogue, bool *row_sums)
{
    bool narrow = product->dtype != IGNIS_F64, keeps = epilogue->pre && !epilogue->gradient, biased = false;
    ignis__array *to = epilogue->accumulate ? ignis__op_new_like(op, out) : keeps ? epilogue->pre : out;
    ignis__epilogue rest = *epilogue;
    double factor = epilogue->factor != 0 ? epilogue->factor : 1;
    ignis__gemm p;
    rest.factor = 1;
    *row_sums = false;
    if (product->k == 0)
        ignis__op_zero(op, to);
    else if (epilogue->bias && narrow)
        biased = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BIAS, to, a, b, epilogue->bias);
    else if (epilogue->row_sums && product->dtype == IGNIS_F32) /* it adds 16-bit numbers up in 16 bits */
        *row_sums = ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_BGRADB, to, a, b, epilogue->row_sums);
    if (product->k > 0 && !biased && !*row_sums && !ignis__lt_run(op, product, factor, IGNIS__LT_EPILOGUE_NONE, to, a, b, NULL))
        return false;
    if (biased)
        rest.bias = NULL;
    if (keeps && biased && to == epilogue->pre)
        rest.pre = NULL; /* it is there */
    if (rest.activation || rest.residual || rest.column_sums || rest.accumulate) {
        p = ignis__gemm_params(op, product, out, &rest);
        p.partial = ignis__op_read(op, to);
        p.packed_out = p.packed_out && p.partial % 16 == 0;
        ignis__gemm_end(op, IGNIS__BUILTIN_GEMM_APPLY, 32, out->dtype, &p, &rest);
    } else if (rest.bias) {
        ignis__address at = ignis__op_write(op, out), from = ignis__op_read(op, rest.bias);
        void *params[] = {&at, &at, &from, &out->numel, &rest.bias->numel, &out->numel};
        ignis__op_map(op, IGNIS__BUILTIN_ADD_SPREAD, out->dtype, out->numel, params);
    }
    return true;
}

/*  Frees the plans of a device; its context is current. */
static void ignis__matmul_close(ignis__device *device)
{
    int index = (int)(device - ignis__devices), bucket;
    for (bucket = 0; bucket < IGNIS__PLAN_BUCKETS; bucket++) {
        while (ignis__matmul.plans[index][bucket]) {
            ignis__plan *plan = ignis__matmul.plans[index][bucket];
            ignis__matmul.plans[index][bucket] = plan->next;
            ignis__plan_free(plan);
        }
    }
    if (ignis__matmul.handle[index])
        (void)IGNIS__CUBLASLT(cublasLtDestroy, (ignis__matmul.handle[index]));
    ignis__matmul.handle[index] = NULL;
}

/* >>ops.matmul ------------------------------------------------------------------------------------------------------------- */

IGNIS__ONE_COPY static int64_t ignis__shape_product(const ignis_shape *shape, int from, int to)
{
    int64_t product = 1;
    for (; from < to; from++)
        product *= shape->dim[from];
    return product;
}

/*  Whether cuBLASLt can be had. That it cannot is found out once. */
static bool ignis__lt_there(const char *call)
{
    ignis__record before, failure;
    char why[2048];
    bool found;
    if (ignis__atomic_load(&ignis__matmul.missing))
        return false;
    if (ignis__atomic_load(&ignis__libraries[IGNIS_LIBRARY_CUBLASLT].loaded))
        return true;
    before = ignis__quiet_begin();
    found = ignis__library_load(call, IGNIS_LIBRARY_CUBLASLT);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!found && ignis__atomic_add(&ignis__matmul.missing, 1) == 0)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: Ignis' own kernels compute products. %s", call, why);
    return found;
}

/* >>ops.matmul - which is faster: measured once for each kind of product on a kind of device ---------------------------------- */

#define IGNIS__MEASURE_ROUNDS 3 /* of which the fastest counts */
#define IGNIS__MEASURE_RUNS 4   /* in a round */

typedef struct ignis__measured {
    uint64_t key;
    bool own;
    struct ignis__measured *next;
} ignis__measured;

static struct {
    ignis__mutex lock; /* nobody measures with it: the work that is waited for may wait for a product of another thread */
    bool is_read;
    ignis__measured *first;
} ignis__measurements = {IGNIS__MUTEX_INIT, false, NULL};

static ignis__measured *ignis__measured_find(uint64_t key)
{
    ignis__measured *found = ignis__measurements.first;
    while (found && found->key != key)
        found = found->next;
    return found;
}

/*  Remembers one that is not known. Without memory it is not remembered. */
static void ignis__measured_add(uint64_t key, bool own)
{
    ignis__measured *added = (ignis__measured *)ignis__alloc(sizeof *added);
    if (!added)
        return;
    added->key = key;
    added->own = own;
    added->next = ignis__measurements.first;
    ignis__measurements.first = added;
}

static bool ignis__measured_path(char *path, size_t size)
{
    snprintf(path, size, "%s/products.txt", ignis__kernels_state.cache_dir);
    return ignis__kernels_state.cache_dir[0] != 0;
}

/*  Reads what was measured before: lines of a key, "own" or "cublaslt", and words for people. */
IGNIS__COLD static void ignis__measured_read(void)
{
    char path[1024], *text, *line;
    size_t size = 0;
    if (ignis__measurements.is_read || !ignis__measured_path(path, sizeof path))
        return;
    ignis__measurements.is_read = true;
    text = (char *)ignis__file_read(path, &size);
    for (line = text; line && line < text + size; line++) {
        char *end = (char *)memchr(line, '\n', (size_t)(text + size - line)), *word;
        unsigned long long key;
        if (!end)
            break;
        *end = 0;
        key = strtoull(line, &word, 16);
        if (word == line + 16 && (strncmp(word, " own ", 5) == 0 || strncmp(word, " cublaslt ", 10) == 0) && !ignis__measured_find(key))
            ignis__measured_add(key, word[1] == 'o');
        line = end;
    }
    ignis__free(text);
}

IGNIS__COLD static void ignis__measured_write(const char *line)
{
    char path[1024];
    FILE *file;
    bool ok;
    if (!ignis__measured_path(path, sizeof path))
        return;
    ok = ignis__folder_make_all(ignis__kernels_state.cache_dir) && (file = fopen(path, "ab")) != NULL;
    if (ok) {
        ok = fwrite(line, strlen(line), 1, file) == 1; /* one write: lines of several processes stay whole */
        ok = fclose(file) == 0 && ok;
    }
    if (!ok)
        ignis__cache_warn("write", path);
}

/*  What a choice holds for: the product, what is done to it, the device, and those who compute it. */
static uint64_t ignis__measured_key(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                                    const ignis__epilogue *epilogue)
{
    static const int sources[] = {IGNIS__SOURCE_GEMM_CU, IGNIS__SOURCE_GEMM_CUH, IGNIS__SOURCE_GEMM_MMA_CU, IGNIS__SOURCE_GEMM_HOPPER_CU};
    const ignis_device_info *info = &op->work.device->info;
    ignis__product described = *product;
    int parts[9], i;
    uint64_t key;
    parts[0] = epilogue->activation;
    parts[1] = epilogue->gradient;
    parts[2] = epilogue->bias != NULL;
    parts[3] = epilogue->pre != NULL;
    parts[4] = epilogue->residual != NULL;
    parts[5] = epilogue->row_sums != NULL;
    parts[6] = epilogue->column_sums != NULL;
    parts[7] = ignis__allow_tf32;
    parts[8] = info->multiprocessors;
    described.alignment = ignis__alignment_of(ignis__op_read(op, a), ignis__op_read(op, b), ignis__op_write(op, out));
    key = ignis__hash(IGNIS__HASH_START, &described, sizeof described);
    key = ignis__hash(key, parts, sizeof parts);
    key = ignis__hash(key, info->name, strlen(info->name));
    key = ignis__hash(key, &ignis__libraries[IGNIS_LIBRARY_CUBLASLT].release, sizeof(uint64_t));
    for (i = 0; i < IGNIS__COUNT(sources); i++)
        key = ignis__hash(key, &ignis__sources[sources[i]].hash, sizeof(uint64_t));
    return key;
}

/*  Runs the product by one of them, and gives the nanoseconds of one run of the fastest round; -1: it cannot, or a failure. */
IGNIS__COLD static int64_t ignis__measure_one(ignis__op *op, bool own, const ignis__product *product, ignis__array *out, ignis__array *a,
                                              ignis__array *b, const ignis__epilogue *epilogue)
{
    int64_t best = -1, start;
    int round, run, made = op->made_count;
    bool row_sums;
    for (round = 0; op->ok && round <= IGNIS__MEASURE_ROUNDS; round++) { /* the first one loads, and does not count */
        start = ignis__monotonic_ns();
        for (run = 0; run < (round ? IGNIS__MEASURE_RUNS : 1); run++) {
            if (own)
                ignis__gemm_run(op, product, out, a, b, epilogue);
            else if (!ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
                return -1;
            ignis__op_unmake(op, made);
        }
        op->ok = op->ok && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuStreamSynchronize, (op->work.stream));
        start = ignis__monotonic_ns() - start;
        if (round && (best < 0 || start < best))
            best = start;
    }
    return op->ok ? best / IGNIS__MEASURE_RUNS : -1;
}

/*  Whether it is known which one computes a product: *own. */
static bool ignis__measured_known(uint64_t key, bool *own)
{
    const ignis__measured *found;
    ignis__mutex_lock(&ignis__measurements.lock);
    ignis__measured_read();
    found = ignis__measured_find(key);
    if (found)
        *own = found->own;
    ignis__mutex_unlock(&ignis__measurements.lock);
    return found != NULL;
}

/*  Remembers what was measured. False: another thread was the first, and *own becomes what it has found. */
IGNIS__COLD static bool ignis__measured_keep(uint64_t key, bool *own)
{
    const ignis__measured *found;
    ignis__mutex_lock(&ignis__measurements.lock);
    found = ignis__measured_find(key);
    if (found)
        *own = found->own;
    else
        ignis__measured_add(key, *own);
    ignis__mutex_unlock(&ignis__measurements.lock);
    return !found;
}

/*  Whether an own kernel is to compute the product. Measures that where it is not known; a capture cannot, and takes cuBLASLt then. */
static bool ignis__measured_own(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                                const ignis__epilogue *epilogue)
{
    uint64_t key;
    int64_t own, other;
    bool is_own = false;
    ignis__record before, failure;
    char line[256], why[1024];
    if (product->k == 0 || epilogue->accumulate) /* to measure would add up */
        return false;
    key = ignis__measured_key(op, product, out, a, b, epilogue);
    if (ignis__measured_known(key, &is_own) || !op->ok || ignis__capture_on(op->work.device))
        return is_own;
    other = ignis__measure_one(op, false, product, out, a, b, epilogue);
    if (!op->ok)
        return false;
    before = ignis__quiet_begin();
    own = ignis__measure_one(op, true, product, out, a, b, epilogue);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    if (!op->ok) { /* without NVRTC, say; the run itself reports it where there is no other way */
        op->ok = true;
        if (other >= 0 && ignis__measured_keep(key, &is_own))
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: cuBLASLt computes this product, unmeasured. %s", op->work.call, why);
        return other < 0 || is_own;
    }
    is_own = own >= 0 && (other < 0 || own < other);
    snprintf(line, sizeof line, "%016llx %s (own %.1f us, cuBLASLt %.1f us): %s %lld x %lld x %lld, batch %lld\n", (unsigned long long)key,
             is_own ? "own" : "cublaslt", (double)own * 1e-3, (double)other * 1e-3, ignis__dtypes[product->dtype].name,
             (long long)product->m, (long long)product->n, (long long)product->k, (long long)product->batch);
    if (ignis__measured_keep(key, &is_own)) {
        ignis__measured_write(line);
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: measured: %s", op->work.call, line + 17);
    }
    return is_own;
}

static void ignis__measured_close(void)
{
    while (ignis__measurements.first) {
        ignis__measured *next = ignis__measurements.first->next;
        ignis__free(ignis__measurements.first);
        ignis__measurements.first = next;
    }
    ignis__measurements.is_read = false;
}

/* >>ops.matmul - the choice ------------------------------------------------------------------------------------------------ */

/*  Products for which own kernels are at least as fast as cuBLASLt on an H200: by wgmma, of a round of tiles at least, of which next to nothing
    lies outside. What is done to the result costs them less. */
static bool ignis__gemm_leads(const ignis__op *op, const ignis__product *product)
{
    int64_t tiles = ignis__ceil_div(product->m, 128) * ignis__ceil_div(product->n, 256) * product->batch, pack = 8;
    return (product->dtype == IGNIS_F16 || product->dtype == IGNIS_BF16) && op->work.device->info.compute_major == 9 &&
           ignis__cuda.cuTensorMapEncodeTiled && tiles >= op->work.device->info.multiprocessors && product->k >= 256 &&
           product->k <= 8192 && /* at 32768 and more they were slower */
           (product->m | product->n | product->k) % pack == 0 &&
           (double)tiles * 128 * 256 < 1.04 * (double)product->m * (double)product->n * (double)product->batch;
}

/*  A product, whose sizes may be zero, and what is done to it (null: nothing). False: epilogue->row_sums are left to the caller. */
static bool ignis__matmul_run(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                              const ignis__epilogue *epilogue)
{
    static const ignis__epilogue nothing = IGNIS__ZERO;
    int by = ignis__matmul_by;
    bool row_sums = false, own = by == IGNIS_MATMUL_OWN;
    if (!epilogue)
        epilogue = &nothing;
    if (!op->ok || out->numel == 0)
        return false;
    if (by == IGNIS_MATMUL_AUTO)
        own = ignis__gemm_leads(op, product) || !ignis__lt_there(op->work.call);
    else if (by == IGNIS_MATMUL_MEASURE)
        own = !ignis__lt_there(op->work.call) || ignis__measured_own(op, product, out, a, b, epilogue);
    if (!own && ignis__lt_multiply(op, product, out, a, b, epilogue, &row_sums))
        return row_sums;
    if (by == IGNIS_MATMUL_CUBLASLT)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "cuBLASLt has no kernel for this product of %s on device %d",
                              ignis__dtypes[product->dtype].name, op->work.device->info.device);
    return ignis__gemm_run(op, product, out, a, b, epilogue);
}

/*  y = a b: da = g b^T; y = a b^T: da = g b. */
static ignis__array *ignis__matmul_grad_a(ignis__op *op, const ignis__product *p, ignis__array *g, ignis__array *a, ignis__array *b)
{
    ignis__product q = *p;
    ignis__array *gradient = ignis__op_new_like(op, a);
    q.n = p->k;
    q.k = p->n;
    q.transpose_b = !p->transpose_b;
    q.batch_a = p->m * p->n;
    ignis__matmul_run(op, &q, gradient, g, b, NULL);
    return gradient;
}

/*  The product that gives db. y = a b: db [k, n] = a^T g; y = a b^T: db [n, k] = g^T a. */
static ignis__product ignis__matmul_product_b(const ignis__product *p)
{
    ignis__product q = *p;
    q.transpose_a = 1;
    q.transpose_b = 0;
    q.m = p->transpose_b ? p->n : p->k;
    q.n = p->transpose_b ? p->k : p->n;
    q.k = p->m;
    q.batch_a = p->transpose_b ? p->m * p->n : p->batch_a;
    q.batch_b = p->transpose_b ? p->batch_a : p->m * p->n;
    return q;
}

static ignis_status ignis__matmul_backward(const ignis_backward_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__product q = ignis__matmul_product_b(p);
    ignis__op op;
    if (!ignis__op_begin_backward(&op, p->transpose_b ? "ignis_matmul_t" : "ignis_matmul", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__matmul_grad_a(&op, p, op.in[0], op.in[1], op.in[2]);
    if (args->needed[1]) {
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
        ignis__matmul_run(&op, &q, gradients[1], p->transpose_b ? op.in[0] : op.in[1], p->transpose_b ? op.in[1] : op.in[0], NULL);
    }
    return ignis__op_give(&op, args, 2, gradients);
}

/*  Checks the shapes of a product, and describes it. A 2-D b serves all rows of a, whose leading dimensions are folded into m. */
static bool ignis__matmul_shapes(ignis__op *op, int transpose_b, ignis__product *product, ignis_shape *out)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[1]->shape;
    int64_t inner_b, leading_a;
    int i;
    if (a->ndim < 2 || b->ndim < 2 || (b->ndim > 2 && b->ndim != a->ndim))
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "a is %s, b is %s; b has 2 dimensions, or both have the same leading ones",
                              ignis__shape_write(a).text, ignis__shape_write(b).text);
    inner_b = b->dim[b->ndim - (transpose_b ? 1 : 2)];
    if (a->dim[a->ndim - 1] != inner_b)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "inner dimensions differ: a is %s, b is %s%s", ignis__shape_write(a).text,
                              ignis__shape_write(b).text, transpose_b ? ", transposed" : "");
    for (i = 0; b->ndim > 2 && i < b->ndim - 2; i++)
        if (a->dim[i] != b->dim[i])
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "leading dimensions differ: a is %s, b is %s", ignis__shape_write(a).text,
                                  ignis__shape_write(b).text);
    memset(product, 0, sizeof *product);
    leading_a = ignis__shape_product(a, 0, a->ndim - 2);
    product->n = b->dim[b->ndim - (transpose_b ? 2 : 1)];
    product->k = inner_b;
    product->m = a->dim[a->ndim - 2] * (b->ndim == 2 ? leading_a : 1);
    product->batch = b->ndim == 2 ? 1 : leading_a;
    product->batch_a = product->m * product->k;
    product->batch_b = product->k * product->n;
    product->transpose_b = transpose_b;
    product->dtype = (int)op->in[0]->dtype;
    *out = *a;
    out->dim[a->ndim - 1] = product->n;
    return true;
}

static ignis_tensor ignis__matmul_op(const char *call, ignis_tensor a, ignis_tensor b, int transpose_b)
{
    ignis_tensor inputs[] = {a, b};
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "a") && ignis__op_same_dtype(&op, 1, "b") && ignis__matmul_shapes(&op, transpose_b, &product, &shape)) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], NULL);
    }
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, transpose_b ? "matmul_t" : "matmul", ignis__matmul_backward, &product, sizeof product);
}

IGNIS_API ignis_tensor ignis_matmul(ignis_tensor a, ignis_tensor b) { return ignis__matmul_op("ignis_matmul", a, b, 0); }

IGNIS_API ignis_tensor ignis_matmul_t(ignis_tensor a, ignis_tensor b) { return ignis__matmul_op("ignis_matmul_t", a, b, 1); }

/* --- random tensors ---------------------------------------------------------------------------------------------------------------- */

IGNIS__COLD static ignis_tensor ignis__tensor_random(const char *call, ignis__builtin builtin, ignis_shape shape,
                                                     const ignis_tensor_desc *desc)
{
    ignis_array made;
    ignis__array *array;
    ignis__random random;
    ignis__work work;
    ignis__address to, step;
    double from = 0, by = 1; /* low and high; mean and deviation */
    int64_t numel;
    void *params[] = {&to, &from, &by, &random.seed, &random.first, &step, &numel};
    bool ok = false;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    made = ignis__tensor_array_create(call, shape, desc);
    if (!made.id)
        return ignis__no_tensor();
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    numel = array->numel;
    if (!ignis__dtype_is_float(array->dtype)) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; f16, bf16, f32 or f64 is needed", ignis__dtypes[array->dtype].name);
    } else if (ignis__work_begin(call, array->storage->device, &work)) {
        ok = ignis__random_take(&work, array->dtype, numel, &random) && ignis__random_step(&work, random.launches, &step) &&
             ignis__work_write(&work, array, &to) && ignis__elementwise(&work, builtin, array->dtype, numel, params);
        ignis__work_end(&work);
    }
    if (!ok)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_rand", IGNIS__BUILTIN_RAND, shape, desc);
}

IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_random("ignis_tensor_randn", IGNIS__BUILTIN_RANDN, shape, desc);
}

/* >>ops.sum ---------------------------------------------------------------------------------------------------------------- */

/*  An array seen as [outer, n, inner], of which [outer, inner] is the part that is summed to or spread from. */
typedef struct ignis__spread {
    int64_t outer, n, inner;
} ignis__spread;

static int64_t ignis__power_of_2_up(int64_t x) { return x <= 1 ? 1 : (int64_t)2 << ignis__log2((uint64_t)x - 1); }

/*  Geometry of the kernels that sum columns: threads lie side by side along a row of packs, and share its columns out among the rest. */
static void ignis__column_threads(int64_t packs, int64_t rows, unsigned *x, unsigned *y)
{
    *x = (unsigned)ignis__power_of_2_up(ignis__clamp(packs, 1, 32));
    *y = (unsigned)ignis__clamp(ignis__power_of_2_up(ignis__ceil_div(rows, 4)), 1, 512 / (int64_t)*x);
}

/*  out [outer, inner] = factor * the sum over n of a, or of the products of a and b where b is not null. */
static void ignis__op_sum(ignis__op *op, ignis__array *out, ignis__array *a, ignis__array *b, double factor, const ignis__spread *spread)
{
    ignis_dtype dtype = out->dtype, wide = ignis__wide_dtype(dtype);
    int64_t blocks = 2 * (int64_t)op->work.device->info.multiprocessors, per_pack = ignis__pack_elements(dtype);
    int64_t outer = spread->outer, n = spread->n, inner = spread->inner, count = outer * inner, part_length, parts, packs, grid;
    unsigned x, y;
    bool rows = inner == 1;
    ignis__builtin builtin = rows ? b ? IGNIS__BUILTIN_DOT_ROWS : IGNIS__BUILTIN_SUM_ROWS
                             : b  ? IGNIS__BUILTIN_DOT_COLUMNS
                                  : IGNIS__BUILTIN_SUM_COLUMNS;
    ignis__address to, to_partial = 0, from_a, from_b = 0;
    void *params[10], *finish[] = {&to, &to_partial, &factor, &count, &parts};
    int used = 0;
    if (!op->ok || count == 0)
        return;
    if (n == 0) {
        ignis__op_zero(op, out);
        return;
    }
    if (rows && (n <= 4096 && outer >= 8)) { /* a warp does a row */
        x = 32;
        y = 8;
        parts = 1;
        grid = ignis__ceil_div(outer, 8);
    } else if (rows) { /* a block does a part of a row */
        x = (unsigned)ignis__power_of_2_up(ignis__clamp(n / per_pack, 32, 512));
        y = 1;
        parts = ignis__clamp(blocks / outer, 1, ignis__ceil_div(n, 8192));
        grid = outer * parts;
    } else {
        packs = inner % per_pack == 0 ? inner / per_pack : inner;
        ignis__column_threads(packs, n, &x, &y);
        grid = outer * ignis__ceil_div(packs, (int64_t)x);
        parts = ignis__clamp(blocks / grid, 1, ignis__ceil_div(n, 4 * (int64_t)y));
        grid *= parts;
    }
    part_length = ignis__ceil_div(n, parts);
    if (rows && parts > 1)
        part_length = ignis__ceil_div(part_length, 64) * 64; /* parts begin with packs if rows do */
    parts = ignis__ceil_div(n, part_length);
    from_a = ignis__op_read(op, a);
    if (b)
        from_b = ignis__op_read(op, b);
    if (parts > 1)
        to_partial = ignis__op_write(op, ignis__op_new_row(op, parts * count, wide));
    to = ignis__op_write(op, out);
    params[used++] = &to;
    params[used++] = &to_partial;
    params[used++] = &from_a;
    if (b)
        params[used++] = &from_b;
    params[used++] = &factor;
    params[used++] = &outer;
    params[used++] = &n;
    if (!rows)
        params[used++] = &inner;
    params[used++] = &part_length;
    params[used++] = &parts;
    ignis__op_launch(op, builtin, dtype, NULL, ignis__clamp(grid, 1, INT32_MAX), 1, 1, x, y, 0, params);
    if (parts == 1)
        return;
    per_pack = ignis__pack_elements(wide);
    packs = count % per_pack == 0 ? count / per_pack : count;
    ignis__column_threads(packs, parts, &x, &y);
    grid = ignis__clamp(ignis__ceil_div(packs, (int64_t)x), 1, INT32_MAX);
    ignis__op_launch(op, IGNIS__BUILTIN_SUM_FINISH, dtype, NULL, grid, 1, 1, x, y, 0, finish);
}

/*  out [outer, n, inner] = factor * from [outer, inner] */
static void ignis__op_spread(ignis__op *op, ignis__array *out, ignis__array *from, double factor, const ignis__spread *spread)
{
    int64_t span = spread->n * spread->inner, inner = spread->inner;
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    void *params[] = {&target, &source, &factor, &span, &inner, &out->numel};
    if (!op->ok)
        return;
    ignis__op_map(op, IGNIS__BUILTIN_SPREAD_SCALED, out->dtype, out->numel, params);
}

/*  What a sum's gradient needs to know. */
typedef struct ignis__sum_params {
    ignis__spread spread;
    double factor;
    ignis_shape shape; /* of the input */
} ignis__sum_params;

static ignis_status ignis__sum_backward(const ignis_backward_args *args)
{
    const ignis__sum_params *p = (const ignis__sum_params *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_sum", args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    if (gradient)
        ignis__op_spread(&op, gradient, op.in[0], p->factor, &p->spread);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  The sum along a dimension, or of all elements where whole; divided by how many they are where mean. */
static ignis_tensor ignis__sum(const char *call, ignis_tensor tensor, bool whole, int dim, bool mean)
{
    ignis__sum_params p;
    ignis__op op;
    ignis__array *out;
    ignis_shape shape;
    int i;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "the tensor");
    if (!whole)
        ignis__op_dim(&op, &dim, "dim");
    if (op.ok) {
        p.shape = op.in[0]->shape;
        p.spread.outer = whole ? 1 : ignis__shape_product(&p.shape, 0, dim);
        p.spread.n = whole ? op.in[0]->numel : p.shape.dim[dim];
        p.spread.inner = whole ? 1 : ignis__shape_product(&p.shape, dim + 1, p.shape.ndim);
        p.factor = mean && p.spread.n ? 1.0 / (double)p.spread.n : 1.0;
    }
    shape = op.in[0]->shape;
    if (whole || shape.ndim == 1) {
        shape.ndim = 1;
        shape.dim[0] = 1;
    } else if (op.ok) {
        shape.ndim--;
        for (i = dim; i < shape.ndim; i++)
            shape.dim[i] = shape.dim[i + 1];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out && mean && p.spread.n == 0)
        ignis__op_fill(&op, out, ignis__nan());
    else if (out)
        ignis__op_sum(&op, out, op.in[0], NULL, p.factor, &p.spread);
    return ignis__op_end_recorded(&op, out, mean ? "mean" : "sum", ignis__sum_backward, &p, sizeof p);
}

IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor) { return ignis__sum("ignis_sum", tensor, true, 0, false); }
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor) { return ignis__sum("ignis_mean", tensor, true, 0, true); }
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim) { return ignis__sum("ignis_sum_dim", tensor, false, dim, false); }
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim) { return ignis__sum("ignis_mean_dim", tensor, false, dim, true); }

/* >>ops.pointwise - add, sub, mul: the second operand may spread over the first -------------------------------------------- */

/*  Whether b spreads over a: shapes are compared from the last dimension on; b may lack leading dimensions or have 1 for one or more
    neighbouring ones. */
static bool ignis__spread_find(const ignis_shape *a, const ignis_shape *b, ignis__spread *spread)
{
    int i, lacking = a->ndim - b->ndim, phase = 0;
    spread->outer = spread->n = spread->inner = 1;
    if (lacking < 0)
        return false;
    for (i = 0; i < a->ndim; i++) {
        int64_t of_a = a->dim[i], of_b = i < lacking ? 1 : b->dim[i - lacking];
        if (of_a == 1 && of_b == 1)
            continue;
        if (of_a != of_b && of_b != 1)
            return false;
        if (of_a != of_b && phase == 2) /* two places to spread over, apart from each other */
            return false;
        phase = of_a != of_b ? 1 : phase == 1 ? 2 : phase;
        *(phase == 0 ? &spread->outer : phase == 1 ? &spread->n : &spread->inner) *= of_a;
    }
    return true;
}

typedef struct ignis__binary_params {
    ignis__spread spread; /* of the second operand; n = 1 for equal shapes */
    ignis_shape shape;    /* of the second operand */
    int saved_a, saved_b; /* places among the saved arrays, -1: not saved */
} ignis__binary_params;

/*  The second operand's gradient: factor * the sum of g, or of g * a, over where it was spread. */
static ignis__array *ignis__binary_reduce(ignis__op *op, ignis__array *g, ignis__array *a, double factor, const ignis__binary_params *p)
{
    ignis__array *gradient = ignis__op_new(op, &p->shape, g->dtype);
    if (gradient)
        ignis__op_sum(op, gradient, g, a, factor, &p->spread);
    return gradient;
}

/*  A new array of g's shape: an elementwise kernel of two arrays, the second of which may spread. */
static ignis__array *ignis__binary_map(ignis__op *op, ignis__builtin same, ignis__builtin spreading, ignis__array *a, ignis__array *b,
                                       const ignis__spread *spread)
{
    ignis__array *out = ignis__op_new_like(op, a);
    ignis__address from_a = ignis__op_read(op, a), from_b = ignis__op_read(op, b), to = ignis__op_write(op, out);
    int64_t span = spread->n * spread->inner, inner = spread->inner;
    void *params[] = {&to, &from_a, &from_b, &span, &inner, &a->numel};
    bool is_same = spread->n == 1;
    if (is_same)
        params[3] = &a->numel;
    ignis__op_map(op, is_same ? same : spreading, a->dtype, a->numel, params);
    return out;
}

static ignis__array *ignis__op_scaled(ignis__op *op, ignis__array *from, double factor)
{
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    void *params[] = {&target, &source, &factor, &from->numel};
    ignis__op_map(op, IGNIS__BUILTIN_SCALE, from->dtype, from->numel, params);
    return out;
}

/*  a + b and a - b: g for a; g or -g for b, summed over where b was spread. */
static ignis_status ignis__sum_rule(const char *call, const ignis_backward_args *args, double sign)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (args->needed[0])
        args->grad_inputs[0] = args->grad_output;
    if (!args->needed[1])
        return IGNIS_OK;
    if (p->spread.n == 1 && sign > 0) {
        args->grad_inputs[1] = args->grad_output;
        return IGNIS_OK;
    }
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    gradients[1] = p->spread.n == 1 ? ignis__op_scaled(&op, op.in[0], sign) : ignis__binary_reduce(&op, op.in[0], NULL, sign, p);
    return ignis__op_give(&op, args, 2, gradients);
}

static ignis_status ignis__add_backward(const ignis_backward_args *args) { return ignis__sum_rule("ignis_add", args, 1); }
static ignis_status ignis__sub_backward(const ignis_backward_args *args) { return ignis__sum_rule("ignis_sub", args, -1); }

static ignis_status ignis__mul_backward(const ignis_backward_args *args)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_mul", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__binary_map(&op, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, op.in[0], op.in[1 + p->saved_b], &p->spread);
    if (args->needed[1] && p->spread.n == 1)
        gradients[1] = ignis__binary_map(&op, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, op.in[0], op.in[1 + p->saved_a], &p->spread);
    else if (args->needed[1])
        gradients[1] = ignis__binary_reduce(&op, op.in[0], op.in[1 + p->saved_a], 1, p);
    return ignis__op_give(&op, args, 2, gradients);
}

typedef struct ignis__binary_kind {
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    ignis__builtin same, spreading;
    bool saves;
} ignis__binary_kind;

static ignis_tensor ignis__binary(const char *call, const ignis__binary_kind *kind, ignis_tensor a, ignis_tensor b, bool bias)
{
    ignis_tensor inputs[] = {a, b};
    const ignis_shape *shape;
    ignis__binary_params p;
    ignis__op op;
    ignis__array *out = NULL;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "a");
    ignis__op_same_dtype(&op, 1, bias ? "the bias" : "b");
    shape = &op.in[0]->shape;
    p.shape = op.in[1]->shape;
    if (bias && (p.shape.ndim != 1 || p.shape.dim[0] != shape->dim[shape->ndim - 1]))
        ignis__op_fail(&op, IGNIS_DIAG_SPREAD_SHAPE, "the bias of %s is [%lld], this one is %s", ignis__shape_write(shape).text,
                       (long long)shape->dim[shape->ndim - 1], ignis__shape_write(&p.shape).text);
    if (!ignis__spread_find(shape, &p.shape, &p.spread))
        ignis__op_fail(&op, IGNIS_DIAG_SPREAD_SHAPE, "b is %s, which is not the shape of a, %s, and does not spread over it",
                       ignis__shape_write(&p.shape).text, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__binary_map(&op, kind->same, kind->spreading, op.in[0], op.in[1], &p.spread);
    if (kind->saves && op.standing[0].requires_grad) {
        p.saved_b = op.saved_count;
        ignis__op_save(&op, op.in[1]);
    }
    if (kind->saves && op.standing[1].requires_grad) {
        p.saved_a = op.saved_count;
        ignis__op_save(&op, op.in[0]);
    }
    return ignis__op_end_recorded(&op, out, kind->name, kind->backward_fn, &p, sizeof p);
}

static const ignis__binary_kind ignis__binary_add = {"add", ignis__add_backward, IGNIS__BUILTIN_ADD, IGNIS__BUILTIN_ADD_SPREAD, false};
static const ignis__binary_kind ignis__binary_sub = {"sub", ignis__sub_backward, IGNIS__BUILTIN_SUB, IGNIS__BUILTIN_SUB_SPREAD, false};
static const ignis__binary_kind ignis__binary_mul = {"mul", ignis__mul_backward, IGNIS__BUILTIN_MUL, IGNIS__BUILTIN_MUL_SPREAD, true};

IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_add", &ignis__binary_add, a, b, false); }
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_sub", &ignis__binary_sub, a, b, false); }
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b) { return ignis__binary("ignis_mul", &ignis__binary_mul, a, b, false); }
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias)
{
    return ignis__binary("ignis_add_bias", &ignis__binary_add, tensor, bias, true);
}

/* >>ops.pointwise - scale, cast, dropout ----------------------------------------------------------------------------------- */

static ignis_status ignis__scale_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_scale", args))
        return ignis__failed();
    gradient = ignis__op_scaled(&op, op.in[0], *(const double *)args->params);
    return ignis__op_give(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_scale", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_scaled(&op, op.in[0], factor);
    return ignis__op_end_recorded(&op, out, "scale", ignis__scale_backward, &factor, sizeof factor);
}

static ignis__array *ignis__op_cast(ignis__op *op, ignis__array *from, ignis_dtype dtype)
{
    ignis__array *out = ignis__op_new(op, &from->shape, dtype);
    ignis__address source, target;
    void *params[] = {&target, &source, &from->numel};
    if (out && dtype == from->dtype) {
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    ignis__op_map(op, (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dtype - (int)IGNIS_F16), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__cast_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_cast", args))
        return ignis__failed();
    gradient = ignis__op_cast(&op, op.in[0], *(const ignis_dtype *)args->params);
    return ignis__op_give(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype)
{
    static const char call[] = "ignis_cast";
    ignis__op op;
    ignis_dtype before;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    before = op.in[0]->dtype;
    op.ok = ignis__dtype_valid(call, dtype);
    if (op.ok)
        out = ignis__op_cast(&op, op.in[0], dtype);
    return ignis__op_end_recorded(&op, out, "cast", ignis__cast_backward, &before, sizeof before);
}

/*  An element is dropped when its 32-bit random word is below the threshold; backward makes the words again. */
typedef struct ignis__dropout_params {
    int64_t threshold;
    double scale;
    ignis__random random; /* whose counter of launches is saved as an array, where there is one */
} ignis__dropout_params;

static ignis__array *ignis__op_dropout(ignis__op *op, ignis__array *from, const ignis__dropout_params *given)
{
    ignis__dropout_params p = *given;
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out), step = 0;
    void *params[] = {&target, &source, &p.threshold, &p.scale, &p.random.seed, &p.random.first, &step, &from->numel};
    op->ok = op->ok && ignis__random_step(&op->work, p.random.launches, &step);
    ignis__op_map(op, IGNIS__BUILTIN_DROPOUT, from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__dropout_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_dropout", args))
        return ignis__failed();
    gradient = ignis__op_dropout(&op, op.in[0], (const ignis__dropout_params *)args->params);
    return ignis__op_give(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability)
{
    static const char call[] = "ignis_dropout";
    ignis__dropout_params p;
    ignis__op op;
    ignis__array *out = NULL, *launches;
    ignis_tensor result;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "the tensor");
    if (!(probability >= 0 && probability < 1))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "the probability is %g, outside 0 to below 1", probability);
    if (op.ok) {
        p.threshold = (int64_t)(probability * 4294967296.0 + 0.5);
        p.scale = 1 / (1 - probability);
        op.ok = ignis__random_take(&op.work, op.in[0]->dtype, op.in[0]->numel, &p.random);
        out = ignis__op_dropout(&op, op.in[0], &p);
    }
    launches = op.ok && p.random.launches.id ? ignis__array_hold(call, p.random.launches) : NULL;
    if (launches)
        ignis__op_save(&op, launches);
    result = ignis__op_end_recorded(&op, out, "dropout", ignis__dropout_backward, &p, sizeof p);
    if (launches)
        ignis__array_drop(call, launches);
    return result;
}

/* >>ops.pointwise - activations: functions of one element, which save their input ------------------------------------------ */

/*  out = kernel(a, ...): up to three arrays of one shape. */
static ignis__array *ignis__op_map_arrays(ignis__op *op, ignis__builtin builtin, int count, ignis__array *const *from)
{
    ignis__array *out = ignis__op_new_like(op, from[0]);
    ignis__address source[3], target;
    void *params[] = {&target, &source[0], &source[1], &source[2], NULL};
    int i;
    for (i = 0; i < count; i++)
        source[i] = ignis__op_read(op, from[i]);
    target = ignis__op_write(op, out);
    params[1 + count] = &from[0]->numel;
    ignis__op_map(op, builtin, from[0]->dtype, from[0]->numel, params);
    return out;
}

typedef struct ignis__activation {
    const char *call, *name;
    ignis__builtin forward, backward;
} ignis__activation;

static ignis_status ignis__activation_backward(const ignis_backward_args *args)
{
    const ignis__activation *kind = *(const ignis__activation *const *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, kind->call, args))
        return ignis__failed();
    gradient = ignis__op_map_arrays(&op, kind->backward, 2, op.in);
    return ignis__op_give(&op, args, 1, &gradient);
}

static ignis_tensor ignis__activate(const ignis__activation *kind, ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, kind->call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_save(&op, op.in[0]);
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_map_arrays(&op, kind->forward, 1, op.in);
    return ignis__op_end_recorded(&op, out, kind->name, ignis__activation_backward, &kind, sizeof kind);
}

IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor)
{
    static const ignis__activation kind = {"ignis_relu", "relu", IGNIS__BUILTIN_RELU, IGNIS__BUILTIN_RELU_BACKWARD};
    return ignis__activate(&kind, tensor);
}

IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor)
{
    static const ignis__activation kind = {"ignis_gelu", "gelu", IGNIS__BUILTIN_GELU, IGNIS__BUILTIN_GELU_BACKWARD};
    return ignis__activate(&kind, tensor);
}

IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor)
{
    static const ignis__activation kind = {"ignis_gelu_exact", "gelu_exact", IGNIS__BUILTIN_GELU_EXACT, IGNIS__BUILTIN_GELU_EXACT_BACKWARD};
    return ignis__activate(&kind, tensor);
}

IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor)
{
    static const ignis__activation kind = {"ignis_silu", "silu", IGNIS__BUILTIN_SILU, IGNIS__BUILTIN_SILU_BACKWARD};
    return ignis__activate(&kind, tensor);
}

static ignis_status ignis__silu_mul_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradients[2] = {NULL, NULL}, *gate_and_g[2];
    if (!ignis__op_begin_backward(&op, "ignis_silu_mul", args))
        return ignis__failed();
    gate_and_g[0] = op.in[1];
    gate_and_g[1] = op.in[0];
    if (args->needed[0])
        gradients[0] = ignis__op_map_arrays(&op, IGNIS__BUILTIN_SILU_MUL_BACKWARD, 3, op.in);
    if (args->needed[1])
        gradients[1] = ignis__op_map_arrays(&op, IGNIS__BUILTIN_SILU_MUL, 2, gate_and_g);
    return ignis__op_give(&op, args, 2, gradients);
}

IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up)
{
    ignis_tensor inputs[] = {gate, up};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_silu_mul", 2, inputs))
        return ignis__no_tensor();
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, op.in[1]);
    if (ignis__op_is_float(&op, 0, "gate") && ignis__op_same_dtype(&op, 1, "up") && ignis__op_same_shape(&op, 1, "up"))
        out = ignis__op_map_arrays(&op, IGNIS__BUILTIN_SILU_MUL, 2, op.in);
    return ignis__op_end_recorded(&op, out, "silu_mul", ignis__silu_mul_backward, NULL, 0);
}

/* >>ops.shape - transpose -------------------------------------------------------------------------------------------------- */

/*  [a, m, b, n, c] becomes [a, n, b, m, c]. */
typedef struct ignis__exchange {
    int64_t a, m, b, n, c;
} ignis__exchange;

static ignis__array *ignis__op_exchange(ignis__op *op, ignis__array *from, const ignis_shape *shape, const ignis__exchange *given)
{
    ignis__exchange e = *given;
    ignis__array *out = ignis__op_new(op, shape, from->dtype);
    ignis__address source, target;
    bool tiles = e.c == 1 && e.m >= 16 && e.n >= 16;
    int64_t edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32, pack = ignis__pack_elements(from->dtype), blocks;
    void *params[] = {&target, &source, &e.a, &e.m, &e.b, &e.n, &e.c};
    if (out && (e.m == 1 || e.n == 1) && (e.b == 1 || e.m == e.n)) { /* the order stays */
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    blocks = tiles ? e.a * e.b * ignis__ceil_div(e.m, edge) * ignis__ceil_div(e.n, edge)
                   : ignis__ceil_div(from->numel, 1024 * (e.c % pack == 0 ? pack : 1));
    if (from->numel > 0)
        ignis__op_launch_row(op, tiles ? IGNIS__BUILTIN_TRANSPOSE_TILES : IGNIS__BUILTIN_TRANSPOSE_RUNS, from->dtype,
                             ignis__clamp(blocks, 1, INT32_MAX), 256, params);
    return out;
}

typedef struct ignis__transpose_params {
    ignis__exchange back;
    ignis_shape shape; /* of the input */
} ignis__transpose_params;

static ignis_status ignis__transpose_backward(const ignis_backward_args *args)
{
    const ignis__transpose_params *p = (const ignis__transpose_params *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_transpose", args))
        return ignis__failed();
    gradient = ignis__op_exchange(&op, op.in[0], &p->shape, &p->back);
    return ignis__op_give(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1)
{
    ignis__transpose_params p;
    ignis__exchange e;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int low, high;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, "ignis_transpose", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim0, "dim0") && ignis__op_dim(&op, &dim1, "dim1")) {
        low = dim0 < dim1 ? dim0 : dim1;
        high = dim0 < dim1 ? dim1 : dim0;
        p.shape = shape = op.in[0]->shape;
        shape.dim[low] = p.shape.dim[high];
        shape.dim[high] = p.shape.dim[low];
        e.a = ignis__shape_product(&p.shape, 0, low);
        e.m = p.shape.dim[low];
        e.b = low < high ? ignis__shape_product(&p.shape, low + 1, high) : 1;
        e.n = low < high ? p.shape.dim[high] : 1;
        e.c = ignis__shape_product(&p.shape, high + 1, p.shape.ndim);
        p.back = e;
        p.back.m = e.n;
        p.back.n = e.m;
        out = ignis__op_exchange(&op, op.in[0], &shape, &e);
    }
    return ignis__op_end_recorded(&op, out, "transpose", ignis__transpose_backward, &p, sizeof p);
}

/* >>ops.shape - concat, split, slice ------------------------------------------------------------------------------------------- */

/*  Copies rows of `length` elements between arrays whose rows are `to_row` and `from_row` elements apart, from and to an offset. */
static void ignis__op_copy_rows(ignis__op *op, ignis__array *to, int64_t to_offset, int64_t to_row, ignis__array *from, int64_t from_offset,
                                int64_t from_row, int64_t length, int64_t rows)
{
    uint64_t size = (uint64_t)ignis__dtypes[from->dtype].size;
    ignis__address source = ignis__op_read(op, from) + (uint64_t)from_offset * size;
    ignis__address target = ignis__op_write(op, to) + (uint64_t)to_offset * size;
    void *params[] = {&target, &source, &to_row, &from_row, &length, &rows};
    ignis__op_map(op, IGNIS__BUILTIN_COPY_ROWS, from->dtype, length * rows, params);
}

typedef struct ignis__concat_params {
    int dim;
    int64_t row; /* elements of the result from one row to the next */
    ignis_shape shapes[IGNIS__OP_INPUTS];
} ignis__concat_params;

static ignis_status ignis__concat_backward(const ignis_backward_args *args)
{
    const ignis__concat_params *p = (const ignis__concat_params *)args->params;
    ignis__array *gradients[IGNIS__OP_INPUTS];
    ignis__op op;
    int64_t offset = 0, rows, length;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_concat", args))
        return ignis__failed();
    for (i = 0; i < args->input_count; i++) {
        rows = ignis__shape_product(&p->shapes[i], 0, p->dim);
        length = ignis__shape_product(&p->shapes[i], p->dim, p->shapes[i].ndim);
        gradients[i] = args->needed[i] ? ignis__op_new(&op, &p->shapes[i], op.in[0]->dtype) : NULL;
        if (gradients[i])
            ignis__op_copy_rows(&op, gradients[i], 0, length, op.in[0], offset, p->row, length, rows);
        offset += length;
    }
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Up to IGNIS__OP_INPUTS tensors. */
static ignis_tensor ignis__concat_few(const char *call, const ignis_tensor *tensors, int count, int dim)
{
    ignis__concat_params p;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int64_t offset = 0, rows = 1, length;
    int i, k;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, call, count, tensors))
        return ignis__no_tensor();
    ignis__op_dim(&op, &dim, "dim");
    shape = op.in[0]->shape;
    for (i = 0; op.ok && i < count; i++) {
        const ignis_shape *its = &op.in[i]->shape;
        bool fits = its->ndim == shape.ndim;
        for (k = 0; fits && k < shape.ndim; k++)
            fits = k == dim || its->dim[k] == shape.dim[k];
        if (ignis__op_same_dtype(&op, i, "one of the tensors") && !fits)
            ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "tensor %d is %s, tensor 0 is %s; they may differ in dimension %d only", i,
                           ignis__shape_write(its).text, ignis__shape_write(&op.in[0]->shape).text, dim);
        p.shapes[i] = *its;
        if (op.ok && i > 0)
            shape.dim[dim] += its->dim[dim];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out) {
        p.dim = dim;
        p.row = ignis__shape_product(&shape, dim, shape.ndim);
        rows = ignis__shape_product(&shape, 0, dim);
    }
    for (i = 0; op.ok && i < count; i++) {
        length = ignis__shape_product(&p.shapes[i], dim, shape.ndim);
        ignis__op_copy_rows(&op, out, offset, p.row, op.in[i], 0, length, length, rows);
        offset += length;
    }
    return ignis__op_end_recorded(&op, out, "concat", ignis__concat_backward, &p, sizeof p);
}

IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim)
{
    static const char call[] = "ignis_concat";
    ignis_tensor few[IGNIS__OP_INPUTS], result;
    int used = 1, at;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    if (!tensors) {
        ignis__fail_null(call, "tensors");
        return ignis__no_tensor();
    }
    if (count < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
        return ignis__no_tensor();
    }
    if (count <= IGNIS__OP_INPUTS)
        return ignis__concat_few(call, tensors, count, dim);
    few[0] = ignis__concat_few(call, tensors, IGNIS__OP_INPUTS, dim);
    for (at = IGNIS__OP_INPUTS; at < count && few[0].id; at += used - 1) {
        for (used = 1; used < IGNIS__OP_INPUTS && at + used - 1 < count; used++)
            few[used] = tensors[at + used - 1];
        result = ignis__concat_few(call, few, used, dim);
        (void)ignis_tensor_release(few[0]);
        few[0] = result;
    }
    return few[0];
}

/*  The parts of a split are parts of a tensor that nobody else sees. The first of their backwards that a walk comes to makes its gradient, zero but
    for that part; the others put theirs in. So it is whole when the split's own turn comes. */
static ignis_status ignis__split_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

typedef struct ignis__part_params {
    int64_t offset, row, length, rows;
    ignis_shape whole;
} ignis__part_params;

/*  Puts the gradient of a part into that of the whole, which is made, and given, where `sum` is null. */
static ignis_status ignis__part_give(const char *call, const ignis_backward_args *args, ignis__array *sum)
{
    const ignis__part_params *p = (const ignis__part_params *)args->params;
    ignis__array *made = NULL;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    if (!sum) {
        sum = made = ignis__op_new(&op, &p->whole, op.in[0]->dtype);
        if (made)
            ignis__op_zero(&op, made);
    }
    if (sum)
        ignis__op_copy_rows(&op, sum, p->offset, p->row, op.in[0], 0, p->length, p->length, p->rows);
    return ignis__op_give(&op, args, 1, &made);
}

static ignis_status ignis__part_backward(const ignis_backward_args *args)
{
    return ignis__part_give("ignis_split", args, ignis__walk_sum(0));
}

/*  The part of an input of `size` from `start` on along dim: a view where it is in one piece, else a copy. */
static ignis__array *ignis__op_part(ignis__op *op, int dim, int64_t start, int64_t size, ignis__part_params *p)
{
    ignis_shape shape = op->in[0]->shape;
    int64_t inner = ignis__shape_product(&shape, dim + 1, shape.ndim);
    ignis__array *out;
    p->whole = shape;
    p->rows = ignis__shape_product(&shape, 0, dim);
    p->row = shape.dim[dim] * inner;
    p->offset = start * inner;
    p->length = size * inner;
    shape.dim[dim] = size;
    if (p->rows == 1)
        return ignis__op_view(op, op->in[0], &shape, p->length, p->offset);
    out = ignis__op_new(op, &shape, op->in[0]->dtype);
    if (out)
        ignis__op_copy_rows(op, out, 0, p->length, op->in[0], p->offset, p->row, p->length, p->rows);
    return out;
}

/*  A part of a split. */
static ignis_tensor ignis__part(const char *call, ignis_tensor whole, int dim, int64_t start, int64_t size)
{
    ignis__part_params p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, call, 1, &whole))
        return ignis__no_tensor();
    out = ignis__op_part(&op, dim, start, size, &p);
    return ignis__op_end_recorded(&op, out, "part", ignis__part_backward, &p, sizeof p);
}

/*  Checks a split, fills in the sizes of equal parts, and gives the tensor of which the parts are made. */
static ignis_tensor ignis__split_whole(const char *call, ignis_tensor tensor, int *dim, int count, const int64_t *sizes)
{
    ignis__op op;
    ignis__array *view;
    const ignis_shape *shape;
    int64_t left; /* of the dimension */
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    left = ignis__op_dim(&op, dim, "dim") ? shape->dim[*dim] : 0;
    for (i = 0; sizes && i < count; i++)
        left = sizes[i] < 0 || sizes[i] > left ? -1 : left - sizes[i];
    if (op.ok && sizes && left != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "the sizes do not add up to dimension %d of %s, or one is negative", *dim,
                       ignis__shape_write(shape).text);
    else if (op.ok && !sizes && shape->dim[*dim] % count != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "dimension %d of %s cannot be cut into %d equal parts", *dim,
                       ignis__shape_write(shape).text, count);
    view = ignis__op_view(&op, op.in[0], shape, op.in[0]->numel, 0);
    return ignis__op_end_recorded(&op, view, "split", ignis__split_backward, NULL, 0);
}

IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts)
{
    static const char call[] = "ignis_split";
    ignis_tensor whole;
    ignis_tensor_info info;
    int64_t start = 0, size;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!parts)
        return ignis__fail_null(call, "parts");
    if (count < 1)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
    memset(parts, 0, sizeof *parts * (size_t)count);
    whole = ignis__split_whole(call, tensor, &dim, count, sizes);
    if (!whole.id || ignis_tensor_query(whole, &info) != IGNIS_OK)
        return ignis__failed();
    for (i = 0; i < count; i++) {
        size = sizes ? sizes[i] : info.shape.dim[dim] / count;
        parts[i] = ignis__part(call, whole, dim, start, size);
        if (!parts[i].id)
            break;
        start += size;
    }
    (void)ignis_tensor_release(whole);
    if (i == count)
        return IGNIS_OK;
    while (i-- > 0) {
        (void)ignis_tensor_release(parts[i]);
        parts[i].id = 0;
    }
    return ignis__failed();
}

static ignis_status ignis__slice_backward(const ignis_backward_args *args) { return ignis__part_give("ignis_slice", args, NULL); }

IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len)
{
    const ignis_shape *shape;
    ignis__part_params p;
    ignis__op op;
    ignis__array *out = NULL;
    memset(&p, 0, sizeof p);
    if (!ignis__op_begin(&op, "ignis_slice", 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    if (ignis__op_dim(&op, &dim, "dim") && (start < 0 || len < 0 || start > shape->dim[dim] || len > shape->dim[dim] - start))
        ignis__op_fail(&op, IGNIS_DIAG_SLICE_RANGE, "elements %lld to %lld + %lld are outside dim %d of shape %s", (long long)start,
                       (long long)start, (long long)len, dim, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__op_part(&op, dim, start, len, &p);
    return ignis__op_end_recorded(&op, out, "slice", ignis__slice_backward, &p, sizeof p);
}

/* >>ops.matmul - linear: x w^T + bias, the bias inside the product --------------------------------------------------------- */

/*  dw = g^T x, db = the sum of g over its rows, inside that product where it can be. */
static void ignis__linear_weight_backward(ignis__op *op, const ignis__product *forward, ignis__array *dw, ignis__array *db, ignis__array *g,
                                          ignis__array *x)
{
    ignis__product q = ignis__matmul_product_b(forward);
    ignis__epilogue epilogue;
    ignis__spread rows;
    bool summed = false;
    memset(&epilogue, 0, sizeof epilogue);
    epilogue.row_sums = db;
    if (dw)
        summed = ignis__matmul_run(op, &q, dw, g, x, &epilogue);
    rows.outer = 1;
    rows.n = forward->m;
    rows.inner = forward->n;
    if (db && !summed)
        ignis__op_sum(op, db, g, NULL, 1.0, &rows);
}

static ignis_status ignis__linear_backward(const ignis_backward_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_linear", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__matmul_grad_a(&op, p, op.in[0], op.in[1], op.in[2]);
    if (args->needed[1])
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__op_new_row(&op, p->n, op.in[0]->dtype);
    if (op.ok && (gradients[1] || gradients[2]))
        ignis__linear_weight_backward(&op, p, gradients[1], gradients[2], op.in[0], op.in[1]);
    return ignis__op_give(&op, args, args->input_count, gradients);
}

IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis__epilogue epilogue;
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, "ignis_linear", count, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") && (count == 2 || ignis__op_same_dtype(&op, 2, "bias"))) {
        if (op.in[1]->shape.ndim != 2)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w is %s; [out, in] is needed", ignis__shape_write(&op.in[1]->shape).text);
        else if (ignis__matmul_shapes(&op, 1, &product, &shape) && count == 3 && op.in[2]->numel != product.n)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "bias is %s; w %s needs [%lld]", ignis__shape_write(&op.in[2]->shape).text,
                           ignis__shape_write(&op.in[1]->shape).text, (long long)product.n);
    }
    if (op.ok) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.bias = count == 3 ? op.in[2] : NULL;
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], &epilogue);
    }
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, "linear", ignis__linear_backward, &product, sizeof product);
}

/* >>ops.matmul - mlp: two linear layers, with all that is between them inside the products ------------------------------------- */

typedef struct ignis__mlp {
    ignis__product first, second;
    int activation, bias_1, bias_2; /* the places of the biases among the inputs; 0: none */
} ignis__mlp;

static ignis_status ignis__mlp_backward(const ignis_backward_args *args)
{
    const ignis__mlp *p = (const ignis__mlp *)args->params;
    enum { GRAD, X, W_1, W_2, PRE, HIDDEN };
    ignis__array *gradients[5] = {NULL, NULL, NULL, NULL, NULL}, *grad_pre;
    ignis__epilogue epilogue;
    ignis__product q;
    ignis__op op;
    bool bias_1 = p->bias_1 && args->needed[p->bias_1], bias_2 = p->bias_2 && args->needed[p->bias_2];
    if (!ignis__op_begin_backward(&op, "ignis_mlp", args))
        return ignis__failed();
    if (args->needed[2])
        gradients[2] = ignis__op_new_like(&op, op.in[W_2]);
    if (bias_2)
        gradients[p->bias_2] = ignis__op_new_row(&op, p->second.n, op.in[W_2]->dtype);
    if (op.ok && (gradients[2] || bias_2))
        ignis__linear_weight_backward(&op, &p->second, gradients[2], bias_2 ? gradients[p->bias_2] : NULL, op.in[GRAD], op.in[HIDDEN]);
    if (args->needed[0] || args->needed[1] || bias_1) { /* what comes to the product of the first layer */
        grad_pre = ignis__op_new_like(&op, op.in[PRE]);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.activation = p->activation;
        epilogue.gradient = true;
        epilogue.pre = op.in[PRE];
        if (bias_1)
            epilogue.column_sums = gradients[p->bias_1] = ignis__op_new_row(&op, p->first.n, op.in[W_1]->dtype);
        q = p->second;
        q.n = p->second.k;
        q.k = p->second.n;
        q.transpose_b = 0;
        q.batch_a = q.m * q.k;
        if (op.ok && bias_1 && op.in[PRE]->numel == 0)
            ignis__op_zero(&op, gradients[p->bias_1]);
        ignis__matmul_run(&op, &q, grad_pre, op.in[GRAD], op.in[W_2], &epilogue);
        if (args->needed[0])
            gradients[0] = ignis__matmul_grad_a(&op, &p->first, grad_pre, op.in[X], op.in[W_1]);
        if (args->needed[1])
            gradients[1] = ignis__op_new_like(&op, op.in[W_1]);
        if (gradients[1])
            ignis__linear_weight_backward(&op, &p->first, gradients[1], NULL, grad_pre, op.in[X]);
    }
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Checks the inputs, and describes both products; out: the shape of the result, whose last dimension but for its size is that of hidden. */
static bool ignis__mlp_shapes(ignis__op *op, ignis__mlp *p, ignis_shape *hidden, ignis_shape *out)
{
    static const char *const names[] = {"x", "w1", "w2", "b1", "b2"};
    const ignis_shape *w_2 = &op->in[2]->shape;
    int i;
    for (i = 0; i < op->count; i++)
        if (!(i ? ignis__op_same_dtype(op, i, names[i == p->bias_2 ? 4 : i]) : ignis__op_is_float(op, 0, names[0])))
            return false;
    if (op->in[1]->shape.ndim != 2)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "w1 is %s; [hidden, in] is needed", ignis__shape_write(&op->in[1]->shape).text);
    if (!ignis__matmul_shapes(op, 1, &p->first, hidden))
        return false;
    if (w_2->ndim != 2 || w_2->dim[1] != p->first.n)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "w2 is %s; [out, %lld] is needed", ignis__shape_write(w_2).text,
                              (long long)p->first.n);
    p->second = p->first;
    p->second.k = p->first.n;
    p->second.n = w_2->dim[0];
    p->second.batch_a = p->second.m * p->second.k;
    p->second.batch_b = p->second.k * p->second.n;
    *out = *hidden;
    out->dim[out->ndim - 1] = p->second.n;
    for (i = 3; i < op->count; i++) {
        int64_t n = i == p->bias_2 ? p->second.n : p->first.n;
        if (op->in[i]->numel != n)
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [%lld] is needed", names[i == p->bias_2 ? 4 : i],
                                  ignis__shape_write(&op->in[i]->shape).text, (long long)n);
    }
    return true;
}

IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation)
{
    static const char call[] = "ignis_mlp";
    ignis_tensor inputs[5];
    ignis__array *hidden = NULL, *pre = NULL, *out = NULL;
    ignis_shape hidden_shape, out_shape;
    ignis__epilogue epilogue;
    ignis__mlp p;
    ignis__op op;
    int count = 3;
    memset(&p, 0, sizeof p);
    inputs[0] = x;
    inputs[1] = w1;
    inputs[2] = w2;
    if (b1.id)
        inputs[p.bias_1 = count++] = b1;
    if (b2.id)
        inputs[p.bias_2 = count++] = b2;
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    p.activation = (int)activation;
    if (activation != IGNIS_ACTIVATION_RELU && activation != IGNIS_ACTIVATION_GELU)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "activation is %d; it is IGNIS_ACTIVATION_RELU or _GELU", (int)activation);
    else if (ignis__mlp_shapes(&op, &p, &hidden_shape, &out_shape)) {
        hidden = ignis__op_new(&op, &hidden_shape, op.in[0]->dtype);
        pre = op.records ? ignis__op_new(&op, &hidden_shape, op.in[0]->dtype) : NULL;
        out = ignis__op_new(&op, &out_shape, op.in[0]->dtype);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.bias = p.bias_1 ? op.in[p.bias_1] : NULL;
        epilogue.activation = p.activation;
        epilogue.pre = pre;
        ignis__matmul_run(&op, &p.first, hidden, op.in[0], op.in[1], &epilogue);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.bias = p.bias_2 ? op.in[p.bias_2] : NULL;
        ignis__matmul_run(&op, &p.second, out, hidden, op.in[2], &epilogue);
    }
    if (op.records && op.ok) {
        ignis__op_save(&op, op.in[0]);
        ignis__op_save(&op, op.in[1]);
        ignis__op_save(&op, op.in[2]);
        ignis__op_save(&op, pre);
        ignis__op_save(&op, hidden);
    }
    return ignis__op_end_recorded(&op, out, "mlp", ignis__mlp_backward, &p, sizeof p);
}

/* --- operations on rows: how their kernels are launched ------------------------------------------------------------------------- */

/*  The tensor as rows of its last dimension. */
IGNIS__ONE_COPY static bool ignis__op_rows(ignis__op *op, const ignis__array *array, int64_t *rows, int64_t *n)
{
    *n = array->shape.dim[array->shape.ndim - 1];
    *rows = *n ? array->numel / *n : 0;
    if (*n >= (int64_t)1 << 30)
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "the last dimension has %lld elements, 2^30 or more", (long long)*n);
    return op->ok;
}

/*  Rows shared out as ignis_row in kernels/ignis.cuh does: a warp has 4 packs of 16 bytes a lane, or where packs do not fit, a block 8 elements
    a thread. */
#define IGNIS__ROW_PACKS 4
#define IGNIS__ROW_ELEMENTS 8
#define IGNIS__ROW_BLOCKS ((int64_t)1 << 30) /* which take turns, where there are more rows */

typedef struct ignis__rows {
    bool warp;        /* a warp has a row in registers; else a block has it, in one or more rounds */
    int packed, kept; /* the kernels' parameters */
    unsigned threads;
    int64_t blocks;
    size_t shared;
} ignis__rows;

/*  What a thread of a block has in a round. */
static int64_t ignis__row_share(ignis_dtype dtype, bool packed)
{
    return packed ? IGNIS__ROW_PACKS * ignis__pack_elements(dtype) : IGNIS__ROW_ELEMENTS;
}

static unsigned ignis__row_threads(int64_t n, int64_t share, unsigned most)
{
    return (unsigned)ignis__clamp(ignis__ceil_div(ignis__ceil_div(n, share), 32) * 32, 32, (int64_t)most);
}

/*  For kernels that walk over `arrays` arrays to and fro; 0: there is nothing to keep. So many blocks, 1 or 2, are to fit on a multiprocessor. */
static ignis__rows ignis__rows_plan(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n, bool packed, int arrays, int blocks)
{
    ignis__rows plan;
    int64_t share = ignis__row_share(dtype, packed), rounds, round_bytes, room = op->work.device->info.shared_per_block / blocks - 2048;
    memset(&plan, 0, sizeof plan);
    plan.packed = packed;
    plan.warp = packed && n <= 32 * share;
    plan.threads = plan.warp ? 128 : ignis__row_threads(n, share, 512);
    plan.blocks = ignis__clamp(plan.warp ? ignis__ceil_div(rows, 4) : rows, 0, IGNIS__ROW_BLOCKS);
    if (packed && !plan.warp && arrays) {
        rounds = ignis__ceil_div(n, plan.threads * share);
        round_bytes = (int64_t)plan.threads * IGNIS__ROW_PACKS * 16 * arrays;
        plan.kept = (int)(rounds - 1 < room / round_bytes ? rounds - 1 : room / round_bytes);
        plan.shared = (size_t)(plan.kept * round_bytes);
    }
    return plan;
}

static void ignis__rows_launch(ignis__op *op, const ignis__rows *plan, ignis__builtin warp, ignis__builtin block, ignis_dtype dtype,
                               void **params)
{
    ignis__op_launch(op, plan->warp ? warp : block, dtype, NULL, plan->blocks, 1, 1, plan->threads, 1, plan->shared, params);
}

/* >>ops.norm - softmax ----------------------------------------------------------------------------------------------------- */

static ignis_status ignis__softmax_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__address to, grad, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&to, &grad, &y, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin_backward(&op, "ignis_softmax", args))
        return ignis__failed();
    ignis__op_rows(&op, op.in[1], &rows, &n);
    dx = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    y = ignis__op_read(&op, op.in[1]);
    to = ignis__op_write(&op, dx);
    plan = ignis__rows_plan(&op, op.in[1]->dtype, rows, n, to % 16 == y % 16 && to % 16 == grad % 16, 2, 1);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_SOFTMAX_BACKWARD_WARP, IGNIS__BUILTIN_SOFTMAX_BACKWARD_BLOCK, op.in[1]->dtype, params);
    return ignis__op_give(&op, args, 1, &dx);
}

IGNIS_API ignis_tensor ignis_softmax(ignis_tensor tensor)
{
    static const char call[] = "ignis_softmax";
    ignis__op op;
    ignis__array *out;
    ignis__address x, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&y, &x, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "x");
    ignis__op_rows(&op, op.in[0], &rows, &n);
    out = ignis__op_new_like(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[0]);
    y = ignis__op_write(&op, out);
    plan = ignis__rows_plan(&op, op.in[0]->dtype, rows, n, x % 16 == y % 16, 1, 2);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN_SOFTMAX_WARP, plan.kept ? IGNIS__BUILTIN_SOFTMAX_LONG : IGNIS__BUILTIN_SOFTMAX_BLOCK,
                       op.in[0]->dtype, params);
    ignis__op_save(&op, out);
    return ignis__op_end_recorded(&op, out, "softmax", ignis__softmax_backward, NULL, 0);
}

/* >>ops.norm - layer_norm, rms_norm ---------------------------------------------------------------------------------------- */

/*  The kernels of one of the two; those of rms_norm take the same parameters, and leave out what they do not need. */
typedef struct ignis__norm {
    const char *call, *name;
    bool rms;
    ignis__builtin warp, block, add_warp, add_block, odd_warp, odd_block, backward_warp, backward_block, onto_warp, onto_block, averages,
        columns, odd_backward_warp, odd_backward_block, odd_backward_packed;
} ignis__norm;

#define IGNIS__NORM_KERNELS(NAME)                                                                                                       \
    IGNIS__BUILTIN_##NAME##_WARP, IGNIS__BUILTIN_##NAME##_BLOCK, IGNIS__BUILTIN_ADD_##NAME##_WARP, IGNIS__BUILTIN_ADD_##NAME##_BLOCK,   \
        IGNIS__BUILTIN_##NAME##_ODD_WARP, IGNIS__BUILTIN_##NAME##_ODD_BLOCK, IGNIS__BUILTIN_##NAME##_BACKWARD_WARP,                     \
        IGNIS__BUILTIN_##NAME##_BACKWARD_BLOCK, IGNIS__BUILTIN_##NAME##_ONTO_WARP, IGNIS__BUILTIN_##NAME##_ONTO_BLOCK,                  \
        IGNIS__BUILTIN_##NAME##_BACKWARD_AVERAGES, IGNIS__BUILTIN_##NAME##_BACKWARD_COLUMNS, IGNIS__BUILTIN_##NAME##_ODD_BACKWARD_WARP, \
        IGNIS__BUILTIN_##NAME##_ODD_BACKWARD_BLOCK, IGNIS__BUILTIN_##NAME##_ODD_BACKWARD_PACKED
static const ignis__norm ignis__layer_norm = {"ignis_layer_norm", "layer_norm", false, IGNIS__NORM_KERNELS(LAYER_NORM)};
static const ignis__norm ignis__rms_norm = {"ignis_rms_norm", "rms_norm", true, IGNIS__NORM_KERNELS(RMS_NORM)};

/*  What the backward kernels work on. The partial sums of dw come first, then those of db. */
typedef struct ignis__norm_backward_work {
    ignis__address dx, partial_w, partial_b, dy, x, w, mean, rstd, before; /* before: what is added to dx (0: nothing) */
    int64_t rows, n;
    int packed;
} ignis__norm_backward_work;

/*  How the kernels of norm_odd.cu are launched: a tile of rows is a multiple of 16 bytes, or one row. No threads: they cannot be. */
typedef struct ignis__norm_tiles {
    ignis__builtin builtin;
    unsigned threads;
    int tile, slot; /* rows, and packs of 16 bytes that hold them wherever they begin */
    size_t shared;
} ignis__norm_tiles;

#define IGNIS__ODD_VALUES 16  /* that a thread has of a row; 8 of f64 */
#define IGNIS__ODD_BYTES 8192 /* of a tile, about */

/*  warp and block: the kernels; share: what a thread has of a row; most: threads that the block may have; buffers: tiles that are in shared memory
    at a time. */
static ignis__norm_tiles ignis__norm_tile(const ignis__op *op, ignis_dtype dtype, int64_t n, int64_t share, bool packed,
                                          ignis__builtin warp, ignis__builtin block, unsigned most, int buffers)
{
    int64_t pack = ignis__pack_elements(dtype), size = ignis__dtypes[dtype].size, tile = 1;
    ignis__norm_tiles tiles;
    memset(&tiles, 0, sizeof tiles);
    tiles.builtin = block;
    tiles.threads = ignis__row_threads(n, share, most);
    if (!packed && n <= 32 * share) {
        tile = ignis__clamp(IGNIS__ODD_BYTES / (n * size) / pack, 1, 128 / pack) * pack; /* a lane has the statistics of one of its rows */
        tiles.builtin = warp;
        tiles.threads = 128;
    }
    tiles.tile = (int)tile;
    tiles.slot = (int)(tile * n / pack + 2);
    tiles.shared = (size_t)tiles.slot * 16 * (size_t)buffers;
    if (n > share * most || (int64_t)tiles.shared > op->work.device->info.shared_per_block - 8192)
        tiles.threads = 0;
    return tiles;
}

static int64_t ignis__odd_share(ignis_dtype dtype) { return dtype == IGNIS_F64 ? IGNIS__ODD_VALUES / 2 : IGNIS__ODD_VALUES; }

static void ignis__norm_partials(ignis__op *op, ignis__norm_backward_work *work, ignis_dtype wide, int64_t count)
{
    work->partial_w = ignis__op_write(op, ignis__op_new_row(op, 2 * count * work->n, wide));
    work->partial_b = work->partial_w + (ignis__address)(count * work->n * ignis__dtypes[wide].size);
}

/*  How many blocks a multiprocessor holds at a time, 1 at least. */
static int64_t ignis__op_resident(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, unsigned threads, size_t shared)
{
    void *function = op->ok ? ignis__builtin_get(op->work.call, op->work.device, builtin, dtype) : NULL;
    int resident = 0;
    op->ok = function && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                                             (&resident, function, (int)threads, shared));
    return resident > 1 ? resident : 1;
}

/*  How many blocks a multiprocessor holds at a time, where registers decide that: it has 65536, given out by 8 a thread. No more than 16. */
static int64_t ignis__resident_blocks(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, unsigned threads)
{
    void *function = op->ok ? ignis__builtin_get(op->work.call, op->work.device, builtin, dtype) : NULL;
    int registers = 0;
    op->ok = function &&
             !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuFuncGetAttribute, (&registers, IGNIS__CU_FUNC_REGISTERS, function));
    registers = registers < 32 ? 32 : (registers + 7) / 8 * 8;
    return ignis__clamp(65536 / (registers * (int)threads), 1, 16);
}

/*  dx and partial sums; returns how many. Rows that a team has in registers are read once, by a few blocks on each multiprocessor, which add up
    over many rows; so are longer ones, and those that are not packed, which blocks bring into shared memory. What is too long for that takes two
    kernels: averages of every row, then all columns. work->before becomes 0 where it is not in dx. */
static int64_t ignis__norm_backward_run(ignis__op *op, const ignis__norm *norm, ignis__norm_backward_work *work, ignis_dtype dtype)
{
    int64_t share = ignis__row_share(dtype, work->packed != 0), processors = op->work.device->info.multiprocessors, count, across;
    ignis_dtype wide = ignis__wide_dtype(dtype);
    ignis__address average_g, average_gh;
    bool warp = work->packed && work->n <= 32 * share;
    unsigned threads = warp ? 128 : ignis__row_threads(work->n, share, 256);
    bool in_registers = work->n <= threads * share, onto = in_registers && work->packed && work->before && work->before % 16 == 0;
    ignis__builtin builtin = onto ? (warp ? norm->onto_warp : norm->onto_block) : warp ? norm->backward_warp : norm->backward_block;
    void *last = onto ? (void *)&work->before : (void *)&work->packed;
    void *whole[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy, &work->x, &work->w,
                     &work->mean, &work->rstd,      &work->rows,      &work->n,  last};
    ignis__norm_tiles tiles = IGNIS__ZERO;
    void *odd[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy, &work->x,    &work->w,
                   &work->mean, &work->rstd,      &work->rows,      &work->n,  &tiles.tile, &tiles.slot};
    void *averages[] = {&average_g,  &average_gh, &work->dy,   &work->x, &work->w,
                        &work->mean, &work->rstd, &work->rows, &work->n, &work->packed};
    void *columns[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy,   &work->x, &work->w,     &work->mean,
                       &work->rstd, &average_g,       &average_gh,      &work->rows, &work->n, &work->packed};
    work->before = onto ? work->before : 0;
    if ((!in_registers || !work->packed) && (work->dx | work->dy | work->x) % 16 == 0)
        tiles = work->packed ? ignis__norm_tile(op, dtype, work->n, share, true, builtin, norm->odd_backward_packed, 512, 4)
                             : ignis__norm_tile(op, dtype, work->n, ignis__odd_share(dtype), false, norm->odd_backward_warp,
                                                norm->odd_backward_block, 384, 4);
    if (tiles.threads) {
        count = ignis__clamp(ignis__ceil_div(work->rows, tiles.tile), 0,
                             processors * ignis__op_resident(op, tiles.builtin, dtype, tiles.threads, tiles.shared));
        ignis__norm_partials(op, work, wide, count);
        ignis__op_launch(op, tiles.builtin, dtype, NULL, count, 1, 1, tiles.threads, 1, tiles.shared, odd);
        return count;
    }
    if (in_registers) {
        count = ignis__clamp(work->rows, 0, processors * ignis__resident_blocks(op, builtin, dtype, threads));
        ignis__norm_partials(op, work, wide, count);
        ignis__op_launch_row(op, builtin, dtype, count, threads, whole);
        return count;
    }
    threads = 128;
    across = ignis__ceil_div(work->n, threads * (work->packed ? ignis__pack_elements(dtype) : 1));
    count = ignis__clamp(work->rows, 0, ignis__ceil_div(processors * 8, across));
    ignis__norm_partials(op, work, wide, count);
    average_g = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    average_gh = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    ignis__op_launch_row(op, norm->averages, dtype, ignis__clamp(work->rows, 0, IGNIS__ROW_BLOCKS), 256, averages);
    ignis__op_launch(op, norm->columns, dtype, NULL, across, count, 1, threads, 1, 0, columns);
    return count;
}

/*  Saved: x, w, rstd, and mean of layer_norm. */
static ignis_status ignis__norm_backward(const ignis_backward_args *args)
{
    const ignis__norm *norm = *(const ignis__norm *const *)args->params;
    ignis__op op;
    ignis__array *gradients[3] = {NULL, NULL, NULL}, *before = args->needed[0] ? ignis__walk_sum(0) : NULL;
    ignis__norm_backward_work work;
    ignis__address dw, db = 0;
    int64_t n;
    ignis_dtype dtype;
    int partial_count, i;
    void *params[] = {&dw, &db, &work.partial_w, &work.partial_b, &partial_count, &n};
    memset(&work, 0, sizeof work);
    if (!ignis__op_begin_backward(&op, norm->call, args))
        return ignis__failed();
    dtype = op.in[1]->dtype;
    ignis__op_rows(&op, op.in[1], &work.rows, &work.n);
    n = work.n;
    for (i = 0; i < args->input_count; i++) /* x, w, b */
        gradients[i] = ignis__op_new_like(&op, op.in[i ? 2 : 1]);
    if (op.in[1]->numel == 0) {
        for (i = 1; i < args->input_count; i++)
            ignis__op_zero(&op, gradients[i]);
    } else {
        work.dy = ignis__op_read(&op, op.in[0]);
        work.x = ignis__op_read(&op, op.in[1]);
        work.w = ignis__op_read(&op, op.in[2]);
        work.rstd = ignis__op_read(&op, op.in[3]);
        work.mean = norm->rms ? 0 : ignis__op_read(&op, op.in[4]);
        work.dx = ignis__op_write(&op, gradients[0]);
        work.before = before ? ignis__op_read(&op, before) : 0;
        work.packed = n % ignis__pack_elements(dtype) == 0 && (work.dy | work.x | work.w | work.dx) % 16 == 0;
        partial_count = (int)ignis__norm_backward_run(&op, norm, &work, dtype);
        if (work.before)
            ignis__walk_sum_taken(0);
        dw = ignis__op_write(&op, gradients[1]);
        if (!norm->rms)
            db = ignis__op_write(&op, gradients[2]);
        ignis__op_launch(&op, IGNIS__BUILTIN_NORM_BACKWARD_SUM, dtype, NULL, ignis__ceil_div(n, 32), norm->rms ? 1 : 2, 1, 512, 1, 0,
                         params);
    }
    for (i = 0; i < args->input_count; i++)
        if (!args->needed[i])
            gradients[i] = NULL;
    return ignis__op_give(&op, args, args->input_count, gradients);
}

/*  Inputs: x, w, b of layer_norm, and in the end what is added to x first, if anything is. */
static bool ignis__norm_check(ignis__op *op, const ignis__norm *norm, double *eps, int64_t n)
{
    static const char *const names[] = {"x", "w", "b"};
    int weights = norm->rms ? 2 : 3, i;
    ignis__op_is_float(op, 0, "x");
    for (i = 1; i < weights; i++) {
        const ignis_shape *shape = &op->in[i]->shape;
        ignis__op_same_dtype(op, i, names[i]);
        if (shape->ndim != 1 || shape->dim[0] != n)
            ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s; x is %s, and needs [%lld]", names[i], ignis__shape_write(shape).text,
                           ignis__shape_write(&op->in[0]->shape).text, (long long)n);
    }
    if (op->count > weights && ignis__op_same_dtype(op, weights, "y"))
        ignis__op_same_shape(op, weights, "y");
    if (!(*eps >= 0))
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "eps is %g, not 0 or more", *eps);
    if (*eps == 0)
        *eps = 1e-5;
    return op->ok;
}

/*  What the forward kernels work on. */
typedef struct ignis__norm_work {
    ignis__address y, mean, rstd, x, w, b, sum, other;
    int64_t rows, n, numel;
    double eps;
} ignis__norm_work;

static bool ignis__norm_packed(const ignis__norm_work *work, ignis_dtype dtype)
{
    return work->n % ignis__pack_elements(dtype) == 0 && (work->x | work->y | work->w | work->b | work->sum | work->other) % 16 == 0;
}

/*  The norm of x, or of sum = x + other, which is made in the same walk where rows are packed. */
static void ignis__norm_run(ignis__op *op, const ignis__norm *norm, ignis__norm_work *work, ignis_dtype dtype)
{
    bool packed = ignis__norm_packed(work, dtype);
    ignis__rows plan;
    ignis__norm_tiles tiles = IGNIS__ZERO;
    void *plain[] = {&work->y,    &work->mean, &work->rstd, &work->x,     &work->w,  &work->b,
                     &work->rows, &work->n,    &work->eps,  &plan.packed, &plan.kept};
    void *adding[] = {&work->y,    &work->mean, &work->rstd, &work->x,   &work->w,     &work->b,
                      &work->rows, &work->n,    &work->eps,  &work->sum, &work->other, &plan.kept};
    void *odd[] = {&work->y, &work->mean, &work->rstd, &work->x, &work->w, &work->b, &work->rows, &work->n, &work->eps, &tiles.tile};
    void *add[] = {&work->sum, &work->x, &work->other, &work->numel};
    if (work->sum && !packed) { /* from here on it is the norm of a tensor as any other, by the same kernels */
        ignis__op_map(op, IGNIS__BUILTIN_ADD, dtype, work->numel, add);
        work->x = work->sum;
        work->sum = work->other = 0;
        packed = ignis__norm_packed(work, dtype);
    }
    plan = ignis__rows_plan(op, dtype, work->rows, work->n, packed, 1, 2);
    if (work->sum) {
        ignis__rows_launch(op, &plan, norm->add_warp, norm->add_block, dtype, adding);
        return;
    }
    if (!packed && (work->x | work->y) % 16 == 0)
        tiles = ignis__norm_tile(op, dtype, work->n, ignis__odd_share(dtype), false, norm->odd_warp, norm->odd_block, 512, 1);
    if (tiles.threads)
        ignis__op_launch(op, tiles.builtin, dtype, NULL, ignis__ceil_div(work->rows, tiles.tile), 1, 1, tiles.threads, 1, tiles.shared,
                         odd);
    else
        ignis__rows_launch(op, &plan, norm->warp, norm->block, dtype, plain);
}

/*  The tensor of a sum of the operation's first and last input. */
static ignis_tensor ignis__norm_sum(ignis__op *op, ignis__array *sum)
{
    ignis__tensor *added[2];
    ignis__binary_params same;
    ignis_rule rule;
    int last = op->count - 1;
    memset(&same, 0, sizeof same);
    same.spread.outer = same.spread.n = same.spread.inner = 1;
    rule = ignis__op_rule(op, "add", ignis__add_backward, &same, sizeof same);
    rule.saved_count = 0;
    added[0] = op->tensors[0];
    added[1] = op->tensors[last];
    return ignis__op_result(op, sum, 2, added, NULL,
                            op->records && (op->standing[0].requires_grad || op->standing[last].requires_grad) ? &rule : NULL);
}

/*  inputs: as ignis__norm_check has them. sum_out: null where nothing is added. */
static ignis_tensor ignis__norm_forward(const char *call, const ignis__norm *norm, int count, const ignis_tensor *inputs, double eps,
                                        ignis_tensor *sum_out)
{
    ignis__op op;
    ignis__array *out, *sum = NULL, *means = NULL, *rstds;
    ignis__tensor *made[3];
    ignis_tensor result = IGNIS__ZERO;
    ignis__norm_work work;
    ignis_dtype dtype;
    ignis_rule rule;
    if (sum_out)
        *sum_out = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, count, inputs))
        return result;
    memset(&work, 0, sizeof work);
    dtype = op.in[0]->dtype;
    work.eps = eps;
    work.numel = op.in[0]->numel;
    ignis__op_rows(&op, op.in[0], &work.rows, &work.n);
    ignis__norm_check(&op, norm, &work.eps, work.n);
    out = ignis__op_new_like(&op, op.in[0]);
    rstds = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
    work.x = ignis__op_read(&op, op.in[0]);
    work.w = ignis__op_read(&op, op.in[1]);
    work.y = ignis__op_write(&op, out);
    work.rstd = ignis__op_write(&op, rstds);
    if (!norm->rms) {
        means = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
        work.b = ignis__op_read(&op, op.in[2]);
        work.mean = ignis__op_write(&op, means);
    }
    if (sum_out) {
        sum = ignis__op_new_like(&op, op.in[0]);
        work.other = ignis__op_read(&op, op.in[count - 1]);
        work.sum = ignis__op_write(&op, sum);
    }
    ignis__norm_run(&op, norm, &work, dtype);
    ignis__op_save(&op, sum ? sum : op.in[0]);
    ignis__op_save(&op, op.in[1]);
    ignis__op_save(&op, rstds);
    if (means)
        ignis__op_save(&op, means);
    if (!sum_out)
        return ignis__op_end_recorded(&op, out, norm->name, ignis__norm_backward, &norm, sizeof norm);
    *sum_out = ignis__norm_sum(&op, sum);
    made[0] = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, sum_out->id);
    made[1] = op.tensors[1];
    made[2] = op.tensors[2];
    rule = ignis__op_rule(&op, norm->name, ignis__norm_backward, &norm, sizeof norm);
    result = ignis__op_result(&op, out, norm->rms ? 2 : 3, made, NULL, op.records ? &rule : NULL);
    if (made[0])
        ignis__tensor_drop(call, made[0]);
    if (ignis__op_leave(&op) != IGNIS_OK && sum_out->id) {
        (void)ignis_tensor_release(*sum_out);
        *sum_out = ignis__no_tensor();
    }
    return result;
}

IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps)
{
    ignis_tensor inputs[] = {x, w, b};
    return ignis__norm_forward("ignis_layer_norm", &ignis__layer_norm, 3, inputs, eps, NULL);
}

IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps)
{
    ignis_tensor inputs[] = {x, w};
    return ignis__norm_forward("ignis_rms_norm", &ignis__rms_norm, 2, inputs, eps, NULL);
}

/*  The norm of x + y, whose sum goes to the caller, or with sum null away. */
static ignis_tensor ignis__add_norm(const char *call, const ignis__norm *norm, int count, const ignis_tensor *inputs, double eps,
                                    ignis_tensor *sum)
{
    ignis_tensor unasked, result = ignis__norm_forward(call, norm, count, inputs, eps, sum ? sum : &unasked);
    if (!sum && unasked.id)
        (void)ignis_tensor_release(unasked);
    return result;
}

IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps, ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, b, y};
    return ignis__add_norm("ignis_add_layer_norm", &ignis__layer_norm, 4, inputs, eps, sum);
}

IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps, ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, y};
    return ignis__add_norm("ignis_add_rms_norm", &ignis__rms_norm, 3, inputs, eps, sum);
}

/* >>ops.rope --------------------------------------------------------------------------------------------------------------- */

#define IGNIS__ROPE_HALF 256

/*  The parameters of the kernel; the last one is passed by value, as the launch may be captured and the memory of a table be gone. */
typedef struct ignis__rope {
    int64_t rows, seq, offset;
    int heads, half;
    float frequencies[IGNIS__ROPE_HALF];
} ignis__rope;

/*  The root of x of some degree, by Newton's method: the C library's pow would have to be linked. */
static double ignis__root(double x, int degree)
{
    double root = 1, power, factor, step = 1;
    int i, exponent;
    for (i = 0; i < 2000 && (step > 1e-15 || step < -1e-15); i++) {
        power = 1;
        factor = root;
        for (exponent = degree; exponent; exponent >>= 1) {
            power *= exponent & 1 ? factor : 1;
            factor *= factor;
        }
        step = (x / power - 1) / degree;
        step = step > 0.5 ? 0.5 : step;
        root *= 1 + step;
    }
    return root;
}

/*  Turns the heads at the beginning of rows of x, of so many elements each, into rows of y, which may be x. own: the caller's frequencies on the
    device; null: those of the parameters. */
static void ignis__rope_turn(ignis__op *op, ignis__rope *rope, ignis_dtype dtype, ignis__address y, int64_t y_row, ignis__address x,
                             int64_t x_row, ignis__array *own, double direction)
{
    ignis__address table = own ? ignis__op_read(op, own) : 0;
    int64_t pack = ignis__pack_elements(dtype), threads;
    int packed = rope->half % pack == 0 && (x_row | y_row) % pack == 0 && (x | y) % 16 == 0;
    void *params[] = {&y,           &x,          &y_row,     &x_row,  &rope->rows, &rope->seq,       &rope->offset,
                      &rope->heads, &rope->half, &direction, &packed, &table,      rope->frequencies};
    threads = rope->rows * (packed ? rope->half / pack : rope->half) * ((rope->heads + 3) / 4); /* a thread turns 4 heads */
    ignis__op_launch_row(op, IGNIS__BUILTIN_ROPE, dtype, ignis__ceil_div(threads, 256), 256, params);
}

/*  The same for whole rows, from the operation's input to an array like it. */
static void ignis__rope_run(ignis__op *op, ignis__rope *rope, ignis__array *out, ignis__array *own, double direction)
{
    ignis__address x = ignis__op_read(op, op->in[0]), y = ignis__op_write(op, out);
    int64_t width = (int64_t)2 * rope->heads * rope->half;
    ignis__rope_turn(op, rope, op->in[0]->dtype, y, width, x, width, own, direction);
}

static ignis_status ignis__rope_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__rope rope;
    if (!ignis__op_begin_backward(&op, "ignis_rope", args))
        return ignis__failed();
    memcpy(&rope, args->params, sizeof rope);
    dx = ignis__op_new_like(&op, op.in[0]);
    ignis__rope_run(&op, &rope, dx, args->saved_count ? op.in[1] : NULL, -1);
    return ignis__op_give(&op, args, 1, &dx);
}

/*  Whether the caller's frequencies on the device fit heads of that many pairs. */
static bool ignis__rope_own_check(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int pairs)
{
    if (desc->inv_freq || desc->inv_freq_count)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "both desc->inv_freq and desc->inv_freq_array are given");
    if (own->storage->device != op->work.device)
        return ignis__op_fail(op, IGNIS_DIAG_DEVICE_DIFFERS, "desc->inv_freq_array is on device %d, x is on device %d",
                              (int)(own->storage->device - ignis__devices), (int)(op->work.device - ignis__devices));
    if (own->dtype != IGNIS_F32)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->inv_freq_array is %s; f32 is needed", ignis__dtypes[own->dtype].name);
    if (own->numel != pairs)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH, "desc->inv_freq_array is %s; heads of %d elements have %d frequencies",
                              ignis__shape_write(&own->shape).text, 2 * pairs, pairs);
    return true;
}

/*  Fills in what the kernel needs, for heads at the beginning of the input's rows. Reports what does not fit. */
static bool ignis__rope_prepare(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int heads, int64_t head_dim,
                                ignis__rope *rope)
{
    const ignis_shape *shape = &op->in[0]->shape;
    double base, ratio, frequency = 1;
    int i;
    memset(rope, 0, sizeof *rope);
    base = desc->base == 0 ? 10000.0 : desc->base;
    if (head_dim % 2 != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s has heads of %lld elements, which do not turn in pairs",
                              ignis__shape_write(shape).text, (long long)head_dim);
    if (head_dim > 2 * IGNIS__ROPE_HALF) /* which have no room in the parameters */
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "heads have %lld elements, more than %d", (long long)head_dim,
                              2 * IGNIS__ROPE_HALF);
    if (!(base > 0 && base < 1e300))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->base is %g, not a positive number", desc->base);
    if (desc->pos_offset > INT32_MAX || desc->pos_offset < -INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->pos_offset is %lld, beyond 2^31", (long long)desc->pos_offset);
    rope->heads = heads;
    rope->half = (int)(head_dim / 2);
    rope->seq = shape->ndim > 1 ? shape->dim[shape->ndim - 2] : 1;
    rope->rows = op->in[0]->numel / shape->dim[shape->ndim - 1];
    rope->offset = desc->pos_offset;
    if (own)
        return ignis__rope_own_check(op, desc, own, rope->half);
    if ((desc->inv_freq || desc->inv_freq_count) && desc->inv_freq_count != rope->half)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH, "desc->inv_freq_count is %d; heads of %d elements have %d frequencies",
                              desc->inv_freq_count, 2 * rope->half, rope->half);
    if (desc->inv_freq_count && !desc->inv_freq)
        return ignis__op_fail(op, IGNIS_DIAG_NULL_ARGUMENT, "desc->inv_freq is null");
    ratio = ignis__root(1 / base, rope->half);
    for (i = 0; i < rope->half; i++, frequency *= ratio)
        rope->frequencies[i] = desc->inv_freq ? desc->inv_freq[i] : (float)frequency;
    return true;
}

/*  The frequencies that the caller has on the device, held; null: none, or the operation has failed. */
static ignis__array *ignis__rope_own(ignis__op *op, const ignis_rope_desc *desc)
{
    ignis__array *own = NULL;
    if (op->ok && desc->inv_freq_array.id)
        op->ok = (own = ignis__array_hold(op->work.call, desc->inv_freq_array)) != NULL;
    return own;
}

IGNIS_API ignis_tensor ignis_rope(ignis_tensor tensor, const ignis_rope_desc *desc)
{
    static const char call[] = "ignis_rope";
    ignis__op op;
    ignis__rope rope;
    ignis__array *out = NULL, *own = NULL;
    ignis_tensor result;
    int64_t width;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    width = op.in[0]->shape.dim[op.in[0]->shape.ndim - 1];
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if (desc->num_heads < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", desc->num_heads);
    else if (ignis__op_is_float(&op, 0, "x") && (width == 0 || width % (2 * (int64_t)desc->num_heads) != 0))
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       "x is %s; its last dimension has to be %d heads of an even number of elements, which turn in pairs",
                       ignis__shape_write(&op.in[0]->shape).text, desc->num_heads);
    else
        own = ignis__rope_own(&op, desc);
    if (op.ok && ignis__rope_prepare(&op, desc, own, desc->num_heads, width / desc->num_heads, &rope)) {
        out = ignis__op_new_like(&op, op.in[0]);
        ignis__rope_run(&op, &rope, out, own, 1);
        if (own && op.records) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    result = ignis__op_end_recorded(&op, out, "rope", ignis__rope_backward, &rope, sizeof rope);
    if (own)
        ignis__array_drop(call, own);
    return result;
}

/* >>ops.embedding ---------------------------------------------------------------------------------------------------------- */

/*  Geometry of kernels/embedding.cu. */
#define IGNIS__SORT_TILE 2048
#define IGNIS__SORT_DIGITS 256
#define IGNIS__EMBEDDING_CHUNK 64

/*  Of one gradient: the lists that are sorted, in pairs of which each pass reads one and writes the other. */
typedef struct ignis__embedding_sort {
    ignis__address keys[2], positions[2], counts, bounds;
} ignis__embedding_sort;

/*  Sorts positions by id. Returns which of the lists are the sorted ones. */
static int ignis__embedding_sort_run(ignis__op *op, ignis__embedding_sort *sort, ignis__array *ids, int64_t vocab, ignis_dtype dtype)
{
    int64_t count = ids->numel, tiles = ignis__ceil_div(count, IGNIS__SORT_TILE), numbers = tiles * IGNIS__SORT_DIGITS;
    int64_t larger = count > 2 * vocab ? count : 2 * vocab;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size, from = 0, shift, i;
    ignis__address source = ignis__op_read(op, ids), none = 0;
    void *keys[] = {&sort->keys[0], &sort->bounds, &source, &id_bytes, &count, &vocab};
    void *digits[] = {&sort->counts, NULL, &count, &shift};
    void *scan[] = {&sort->counts, &numbers};
    void *scatter[] = {NULL, NULL, NULL, NULL, &sort->counts, &count, &shift};
    void *bounds[] = {&sort->bounds, NULL, &count, &vocab};
    for (i = 0; i < 2; i++) {
        sort->keys[i] = ignis__op_write(op, ignis__op_new_row(op, count, IGNIS_I32));
        sort->positions[i] = ignis__op_write(op, ignis__op_new_row(op, count, IGNIS_I32));
    }
    sort->counts = ignis__op_write(op, ignis__op_new_row(op, numbers, IGNIS_I32));
    sort->bounds = ignis__op_write(op, ignis__op_new_row(op, 2 * vocab, IGNIS_I32));
    ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_KEYS, dtype, ignis__ceil_div(larger, 256), 256, keys);
    for (shift = 0; vocab >> shift; shift += 8, from = 1 - from) { /* keys are up to vocab, for ids out of range */
        digits[1] = scatter[2] = &sort->keys[from];
        scatter[0] = &sort->keys[1 - from];
        scatter[1] = &sort->positions[1 - from];
        scatter[3] = shift == 0 ? &none : &sort->positions[from];
        ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_COUNT, dtype, tiles, 256, digits);
        ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_SCAN, dtype, tiles ? 1 : 0, 1024, scan);
        ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_SCATTER, dtype, tiles, 256, scatter);
    }
    bounds[1] = &sort->keys[from];
    ignis__op_launch_row(op, IGNIS__BUILTIN_EMBEDDING_BOUNDS, dtype, ignis__ceil_div(count, 256), 256, bounds);
    return from;
}

static ignis_status ignis__embedding_backward(const ignis_backward_args *args)
{
    const int64_t *table = (const int64_t *)args->params; /* vocab, n */
    ignis__op op;
    ignis_shape shape;
    ignis__array *made = NULL;
    ignis__embedding_sort sort;
    ignis__address to, grad, partial;
    int64_t count, vocab = table[0], n = table[1], chunks, share, across;
    ignis_dtype dtype;
    unsigned threads;
    int sorted, packed;
    void *whole[] = {&to, &partial, &grad, NULL, NULL, &count, &vocab, &n, &packed};
    void *rows[] = {&to, &partial, &sort.bounds, &vocab, &n, &packed};
    if (!ignis__op_begin_backward(&op, "ignis_embedding", args))
        return ignis__failed();
    dtype = op.in[0]->dtype;
    count = op.in[1]->numel;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = vocab;
    shape.dim[1] = n;
    made = ignis__op_new(&op, &shape, dtype);
    if (op.ok && made->numel > 0) {
        sorted = ignis__embedding_sort_run(&op, &sort, op.in[1], vocab, dtype);
        whole[3] = &sort.keys[sorted];
        whole[4] = &sort.positions[sorted];
        chunks = ignis__ceil_div(count, IGNIS__EMBEDDING_CHUNK);
        partial = ignis__op_write(&op, ignis__op_new_row(&op, 2 * chunks * n, ignis__wide_dtype(dtype)));
        grad = ignis__op_read(&op, op.in[0]);
        to = ignis__op_write(&op, made);
        packed = n % ignis__pack_elements(dtype) == 0 && (to | grad) % 16 == 0;
        share = packed ? ignis__pack_elements(dtype) : 1;
        threads = ignis__row_threads(n, share, 256);
        across = ignis__ceil_div(n, threads * share);
        ignis__op_launch(&op, IGNIS__BUILTIN_EMBEDDING_CHUNKS, dtype, NULL, chunks, across, 1, threads, 1, 0, whole);
        ignis__op_launch(&op, IGNIS__BUILTIN_EMBEDDING_ROWS, dtype, NULL, ignis__clamp(vocab, 0, 65536), across, 1, threads, 1, 0, rows);
    }
    return ignis__op_give(&op, args, 1, &made);
}

/*  The shape of ids, with n behind it. */
static bool ignis__embedding_shape(ignis__op *op, ignis_shape *shape)
{
    const ignis__array *table = op->in[0], *ids = op->in[1];
    *shape = ids->shape;
    if (ids->dtype != IGNIS_I32 && ids->dtype != IGNIS_I64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "ids is %s; i32 or i64 is needed", ignis__dtypes[ids->dtype].name);
    if (table->shape.ndim != 2)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "table is %s; [vocab, n] is needed", ignis__shape_write(&table->shape).text);
    if (ids->shape.ndim == IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_RANK, "ids is %s; the result would have more than %d dimensions",
                              ignis__shape_write(&ids->shape).text, IGNIS_MAX_DIMS);
    if (table->shape.dim[0] > INT32_MAX || table->shape.dim[1] >= (int64_t)1 << 30 || ids->numel > INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "table is %s, and ids has %lld elements; 2^31 rows or ids, or 2^30 columns, are too many",
                              ignis__shape_write(&table->shape).text, (long long)ids->numel);
    shape->dim[shape->ndim++] = table->shape.dim[1];
    return true;
}

IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids)
{
    ignis_tensor inputs[] = {table, ids};
    ignis__op op;
    ignis_shape shape;
    ignis__array *out = NULL;
    ignis__address from, indices, to;
    ignis_dtype dtype;
    int64_t count, sizes[2]; /* vocab, n */
    int id_bytes, packed;
    void *params[] = {&to, &from, &indices, &id_bytes, &count, &sizes[0], &sizes[1], &packed};
    if (!ignis__op_begin(&op, "ignis_embedding", 2, inputs))
        return ignis__no_tensor();
    dtype = op.in[0]->dtype;
    if (ignis__op_is_float(&op, 0, "table") && ignis__embedding_shape(&op, &shape)) {
        out = ignis__op_new(&op, &shape, dtype);
        from = ignis__op_read(&op, op.in[0]);
        indices = ignis__op_read(&op, op.in[1]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[1]->dtype].size;
        count = op.in[1]->numel;
        sizes[0] = op.in[0]->shape.dim[0];
        sizes[1] = op.in[0]->shape.dim[1];
        packed = sizes[1] % ignis__pack_elements(dtype) == 0 && (from | to) % 16 == 0;
        ignis__op_launch_row(&op, IGNIS__BUILTIN_EMBEDDING, dtype, sizes[1] ? count : 0,
                             ignis__row_threads(sizes[1], ignis__row_share(dtype, packed != 0), 256), params);
    }
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, "embedding", ignis__embedding_backward, sizes, sizeof sizes);
}

/* >>ops.loss --------------------------------------------------------------------------------------------------------------- */

typedef struct ignis__cross_entropy {
    int64_t rows, classes, stride, ignore_index;
    int mean, target_bytes;
} ignis__cross_entropy;

/*  Saved: the gradients themselves of the inputs that need one, of a loss whose gradient is 1, and nobody else's. */
static ignis_status ignis__cross_entropy_rescale(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *made[3] = {NULL, NULL, NULL};
    int i, at = 0;
    for (i = 0; i < args->input_count && !args->grad_output.id; i++)
        if (args->needed[i])
            args->grad_inputs[i] = args->saved[at++];
    if (!args->grad_output.id)
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    for (i = 0; i < args->input_count; i++) {
        ignis__array *saved;
        ignis__address gradient, grad;
        int64_t numel;
        void *params[] = {&gradient, &grad, &numel};
        if (!args->needed[i])
            continue;
        saved = op.in[1 + at];
        numel = saved->numel;
        if (ignis__walk_retains()) {
            made[i] = ignis__op_new_like(&op, saved);
            ignis__op_copy(&op, made[i], saved);
        }
        grad = ignis__op_read(&op, op.in[0]);
        gradient = ignis__op_write(&op, made[i] ? made[i] : saved);
        ignis__op_map(&op, IGNIS__BUILTIN_CROSS_ENTROPY_RESCALE, saved->dtype, numel, params);
        if (op.ok && !made[i])
            args->grad_inputs[i] = args->saved[at];
        at++;
    }
    return ignis__op_give(&op, args, args->input_count, made);
}

/*  The gradient from what forward has found out of the rows. It may take the logits' place. */
static void ignis__cross_entropy_launch_backward(ignis__op *op, ignis__cross_entropy *entropy, ignis_dtype dtype, ignis__address gradient,
                                                 ignis__address grad, ignis__address logits, ignis__address targets,
                                                 ignis__address log_sums, ignis__address scale)
{
    ignis__rows plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes, logits % 16 == gradient % 16, 0, 2);
    void *params[] = {&gradient,        &grad,
                      &log_sums,        &logits,
                      &targets,         &entropy->target_bytes,
                      &entropy->rows,   &entropy->classes,
                      &entropy->stride, &entropy->ignore_index,
                      &scale,           &plan.packed};
    if (plan.warp) { /* there is no such kernel */
        plan.threads = ignis__row_threads(entropy->classes, ignis__row_share(dtype, true), 512);
        plan.blocks = entropy->rows;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_BACKWARD, dtype, plan.blocks, plan.threads, params);
}

/*  Saved: logits, targets, log_sums, scale. */
static ignis_status ignis__cross_entropy_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis__array *made;
    ignis__address gradient, grad, logits, targets, log_sums, scale;
    ignis_dtype dtype;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    memcpy(&entropy, args->params, sizeof entropy);
    dtype = op.in[1]->dtype;
    made = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    logits = ignis__op_read(&op, op.in[1]);
    targets = ignis__op_read(&op, op.in[2]);
    log_sums = ignis__op_read(&op, op.in[3]);
    scale = ignis__op_read(&op, op.in[4]);
    gradient = ignis__op_write(&op, made);
    ignis__cross_entropy_launch_backward(&op, &entropy, dtype, gradient, grad, logits, targets, log_sums, scale);
    for (i = 1; i < args->input_count; i++)
        args->grad_inputs[i].id = 0;
    return ignis__op_give(&op, args, 1, &made);
}

/*  The logits are an input, or are to be made of one: so many rows of `columns`. */
static bool ignis__cross_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, int64_t rows, int64_t columns,
                                         const ignis__array *targets, ignis__cross_entropy *entropy)
{
    memset(entropy, 0, sizeof *entropy);
    entropy->rows = rows;
    entropy->stride = columns;
    if (targets->dtype != IGNIS_I32 && targets->dtype != IGNIS_I64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "targets is %s; i32 or i64 is needed", ignis__dtypes[targets->dtype].name);
    if (entropy->stride == 0 || targets->numel != entropy->rows)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "%s is %s, targets %s; one target is needed for each of %lld rows of at least one class",
                              op->in[1] == targets ? "logits" : "hidden", ignis__shape_write(&op->in[0]->shape).text,
                              ignis__shape_write(&targets->shape).text, (long long)rows);
    if (desc && (desc->reduction < IGNIS_REDUCTION_MEAN || desc->reduction >= IGNIS_REDUCTION_COUNT))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->reduction is %d", (int)desc->reduction);
    if (desc && (desc->classes < 0 || desc->classes > entropy->stride))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->classes is %lld; there are %lld columns of logits",
                              (long long)desc->classes, (long long)entropy->stride);
    entropy->classes = desc && desc->classes ? desc->classes : entropy->stride;
    entropy->ignore_index = desc && (desc->ignore_index || desc->ignore_zero) ? desc->ignore_index : -100;
    entropy->mean = !desc || desc->reduction == IGNIS_REDUCTION_MEAN;
    entropy->target_bytes = (int)ignis__dtypes[targets->dtype].size;
    return true;
}

/*  f16 does not hold the gradient of a mean over many rows before what scales the loss up is in it; other types do, and then forward has
    all that the gradient needs at hand. */
static bool ignis__cross_entropy_is_fused(ignis_dtype dtype) { return dtype != IGNIS_F16; }

typedef struct ignis__cross_entropy_work {
    ignis__address loss, scale, log_sums, gradient, logits, targets, losses, count;
    ignis__rows plan;
    ignis__builtin builtin;
    bool counts; /* the kernel finds out itself which rows are not ignored */
    bool part;   /* these are some of the rows, whose count is there */
} ignis__cross_entropy_work;

#define IGNIS__FEW_ROWS 128          /* that one block, a warp a row, is through with sooner than three launches are made */
#define IGNIS__COUNT_BLOCKS 64       /* and a count of these, and one more number, is what they leave */
#define IGNIS__ROWS_EXACT 2          /* for packed: all rows are whole packs of 16 bytes */
#define IGNIS__LOSS_WARP_THREADS 640 /* of a block that makes no gradient, of rows that a warp has */
#define IGNIS__LOSS_THREADS 256      /* and of those that a block has */
#define IGNIS__ROUND_BLOCKS 7        /* on a multiprocessor, each with a row in flight: one more is 4 % slower on an H200 */

static bool ignis__cross_entropy_is_few(const ignis__cross_entropy *entropy, const ignis__cross_entropy_work *work)
{
    return work->plan.warp && entropy->rows <= IGNIS__FEW_ROWS && !work->part;
}

/*  How the rows are shared out. Blocks stay for many rows, as many as the device holds at a time, so that few have something to hand over. */
static void ignis__cross_entropy_plan(ignis__op *op, const ignis__cross_entropy *entropy, ignis__cross_entropy_work *work,
                                      ignis_dtype dtype)
{
    ignis__rows *plan = &work->plan;
    int64_t resident;
    *plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes, !work->gradient || work->logits % 16 == work->gradient % 16,
                             work->gradient ? 1 : 0, 2);
    if (plan->packed && (work->logits | work->gradient) % 16 == 0 &&
        (entropy->classes | entropy->stride) % ignis__pack_elements(dtype) == 0)
        plan->packed = IGNIS__ROWS_EXACT;
    work->counts = !work->gradient && plan->packed == IGNIS__ROWS_EXACT && !work->part && !ignis__cross_entropy_is_few(entropy, work);
    if (work->counts) {
        plan->threads = plan->warp ? IGNIS__LOSS_WARP_THREADS : IGNIS__LOSS_THREADS;
        plan->blocks = ignis__ceil_div(entropy->rows, plan->warp ? plan->threads / 32 : 1);
    }
    work->builtin = work->counts && plan->warp          ? IGNIS__BUILTIN_CROSS_ENTROPY_LOSS_WARP
                    : work->counts                      ? IGNIS__BUILTIN_CROSS_ENTROPY_LOSS_BLOCK
                    : plan->warp                        ? IGNIS__BUILTIN_CROSS_ENTROPY_WARP
                    : plan->packed != IGNIS__ROWS_EXACT ? IGNIS__BUILTIN_CROSS_ENTROPY_BLOCK
                    : plan->threads <= 128              ? IGNIS__BUILTIN_CROSS_ENTROPY_ROUND
                                                        : IGNIS__BUILTIN_CROSS_ENTROPY_EXACT;
    if (ignis__cross_entropy_is_few(entropy, work))
        return;
    resident = ignis__op_resident(op, work->builtin, dtype, plan->threads, plan->shared);
    if (work->builtin == IGNIS__BUILTIN_CROSS_ENTROPY_ROUND && resident > IGNIS__ROUND_BLOCKS)
        resident = IGNIS__ROUND_BLOCKS;
    plan->blocks = ignis__clamp(plan->blocks, 1, op->work.device->info.multiprocessors * resident);
}

static void ignis__cross_entropy_count(ignis__op *op, ignis__cross_entropy *entropy, ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *count[] = {&work->count, &work->targets, &entropy->target_bytes, &entropy->rows, &entropy->ignore_index};
    ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_COUNT, dtype, IGNIS__COUNT_BLOCKS, 256, count);
}

static void ignis__cross_entropy_launch(ignis__op *op, ignis__cross_entropy *entropy, ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *rows[] = {&work->loss,       &work->scale,     &work->log_sums,        &work->gradient,
                    &work->logits,     &work->targets,   &entropy->target_bytes, &entropy->rows,
                    &entropy->classes, &entropy->stride, &entropy->ignore_index, &entropy->mean,
                    &work->losses,     &work->count,     &work->plan.packed,     &work->plan.kept};
    if (ignis__cross_entropy_is_few(entropy, work)) { /* it has the first twelve */
        ignis__op_launch_row(op, IGNIS__BUILTIN_CROSS_ENTROPY_FEW, dtype, 1, dtype == IGNIS_F64 ? 256 : 1024, rows);
        return;
    }
    if (!work->counts && !work->part)
        ignis__cross_entropy_count(op, entropy, work, dtype);
    ignis__op_launch(op, work->builtin, dtype, NULL, work->plan.blocks, 1, 1, work->plan.threads, 1, work->plan.shared, rows);
}

IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits_tensor, ignis_tensor targets_tensor, const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_cross_entropy";
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis_tensor inputs[] = {logits_tensor, targets_tensor};
    ignis__array *loss = NULL, *made = NULL, *losses = NULL, *count = NULL, *log_sums = NULL, *scale = NULL;
    ignis__cross_entropy_work work;
    ignis_dtype dtype, wide;
    int64_t rows, columns;
    bool fused;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    memset(&work, 0, sizeof work);
    dtype = op.in[0]->dtype;
    wide = ignis__wide_dtype(dtype);
    fused = op.records && ignis__cross_entropy_is_fused(dtype);
    op.knows_one = fused;
    op.ok = ignis__op_is_float(&op, 0, "logits") && ignis__op_rows(&op, op.in[0], &rows, &columns) &&
            ignis__cross_entropy_prepare(&op, desc, rows, columns, op.in[1], &entropy);
    if (op.ok) {
        made = fused ? ignis__op_new_like(&op, op.in[0]) : NULL;
        loss = ignis__op_new_row(&op, 1, wide);
        scale = ignis__op_new_row(&op, 1, wide);
        log_sums = ignis__op_new_row(&op, entropy.rows, wide);
    }
    work.logits = ignis__op_read(&op, op.in[0]);
    work.targets = ignis__op_read(&op, op.in[1]);
    if (fused)
        work.gradient = ignis__op_write(&op, made);
    if (op.ok)
        ignis__cross_entropy_plan(&op, &entropy, &work, dtype);
    if (op.ok) {
        losses = ignis__op_new_row(&op, 2 * work.plan.blocks, wide); /* or losses and counts */
        count = work.counts ? NULL : ignis__op_new_row(&op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64);
    }
    work.loss = ignis__op_write(&op, loss);
    work.scale = ignis__op_write(&op, scale);
    work.log_sums = ignis__op_write(&op, log_sums);
    work.losses = ignis__op_write(&op, losses);
    work.count = work.counts ? ignis__op_zeroed(&op) : ignis__op_write(&op, count);
    if (op.ok)
        ignis__cross_entropy_launch(&op, &entropy, &work, dtype);
    ignis__op_save(&op, fused ? made : op.in[0]);
    if (!fused) {
        ignis__op_save(&op, op.in[1]);
        ignis__op_save(&op, log_sums);
        ignis__op_save(&op, scale);
    }
    return ignis__op_end_recorded(&op, loss, "cross_entropy", fused ? ignis__cross_entropy_rescale : ignis__cross_entropy_backward,
                                  &entropy, sizeof entropy);
}

/* >>ops.loss - linear_cross_entropy: the logits are made, used and forgotten in chunks of rows ------------------------------------ */

#define IGNIS__CHUNK_LOGITS ((int64_t)1 << 27) /* of a chunk, about, where the caller does not say */

typedef struct ignis__linear_entropy {
    ignis__cross_entropy entropy; /* of all rows */
    ignis__product product;       /* logits = hidden w^T, of all rows */
    int64_t chunk;                /* rows of one, but for the last */
} ignis__linear_entropy;

/*  What the chunks of one call share. Null: not wanted, or not needed. */
typedef struct ignis__chunks {
    ignis__array *hidden, *w, *logits, *gradient; /* gradient: of the logits; it may be the same array */
    ignis__array *dhidden, *dw;
    ignis__array *part, *sum; /* of dw, where chunks of a 16-bit type are added up in f32: that of one chunk, and of all so far */
} ignis__chunks;

static int64_t ignis__chunk_count(const ignis__linear_entropy *p)
{
    return ignis__clamp(ignis__ceil_div(p->entropy.rows, p->chunk), 1, INT64_MAX);
}

/*  Rows of [rows, n] as an array. */
static ignis__array *ignis__op_view_rows(ignis__op *op, ignis__array *of, int64_t first, int64_t rows, int64_t n)
{
    ignis_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = rows;
    shape.dim[1] = n;
    return ignis__op_view(op, of, &shape, rows * n, first * n);
}

static ignis__array *ignis__op_new_rows(ignis__op *op, int64_t rows, int64_t n, ignis_dtype dtype)
{
    ignis_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = rows;
    shape.dim[1] = n;
    return ignis__op_new(op, &shape, dtype);
}

/*  The arrays for the gradients that are wanted. */
static void ignis__chunks_gradients(ignis__op *op, const ignis__linear_entropy *p, bool hidden, bool w, ignis__chunks *c)
{
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    if (hidden)
        c->dhidden = ignis__op_new_like(op, c->hidden);
    if (w)
        c->dw = ignis__op_new_like(op, c->w);
    if (w && dtype != wide && ignis__chunk_count(p) > 1) {
        c->part = ignis__op_new_like(op, c->w);
        c->sum = ignis__op_new_row(op, c->w->numel, wide);
    }
    if (c->dw && p->entropy.rows == 0)
        ignis__op_zero(op, c->dw);
}

/*  The product of a chunk's rows, which begin at `first`. */
static ignis__product ignis__chunk_product(const ignis__linear_entropy *p, int64_t first)
{
    ignis__product q = p->product;
    q.m = ignis__clamp(p->entropy.rows - first, 0, p->chunk);
    q.batch_a = q.m * q.k;
    return q;
}

static void ignis__chunk_logits(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, int64_t first)
{
    ignis__product q = ignis__chunk_product(p, first);
    ignis__array *rows = op->ok && q.m ? ignis__op_view_rows(op, c->hidden, first, q.m, q.k) : NULL;
    if (rows)
        ignis__matmul_run(op, &q, c->logits, rows, c->w, NULL);
}

/*  From the gradient of a chunk's logits to its rows of dhidden, and its part of dw: chunks are added up in their order. */
static void ignis__chunk_backward(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, int64_t first)
{
    ignis__product q = ignis__chunk_product(p, first), of_w = ignis__matmul_product_b(&q), of_hidden = q;
    ignis__epilogue epilogue;
    ignis__address dw, sum, part;
    int is_first = first == 0, is_last = first + q.m >= p->entropy.rows;
    ignis__array *rows;
    if (!op->ok || q.m == 0)
        return;
    if (c->dhidden) {
        of_hidden.n = q.k;
        of_hidden.k = q.n;
        of_hidden.transpose_b = 0;
        of_hidden.batch_a = q.m * q.n;
        rows = ignis__op_view_rows(op, c->dhidden, first, q.m, q.k);
        if (rows)
            ignis__matmul_run(op, &of_hidden, rows, c->gradient, c->w, NULL);
    }
    rows = c->dw ? ignis__op_view_rows(op, c->hidden, first, q.m, q.k) : NULL;
    if (!rows)
        return;
    memset(&epilogue, 0, sizeof epilogue);
    epilogue.accumulate = !c->sum && !is_first;
    ignis__matmul_run(op, &of_w, c->sum ? c->part : c->dw, c->gradient, rows, &epilogue);
    if (c->sum) {
        void *params[] = {&dw, &sum, &part, &is_first, &is_last, &c->dw->numel};
        part = ignis__op_read(op, c->part);
        if (!is_first)
            (void)ignis__op_read(op, c->sum);
        sum = ignis__op_write(op, c->sum);
        dw = ignis__op_write(op, c->dw);
        ignis__op_map(op, IGNIS__BUILTIN_CROSS_ENTROPY_ADD_UP, c->dw->dtype, c->dw->numel, params);
    }
}

/*  The loss of a chunk, and the gradient of its logits where there is an array for it. */
static void ignis__chunk_loss(ignis__op *op, const ignis__linear_entropy *p, const ignis__chunks *c, const ignis__cross_entropy_work *all,
                              int64_t first)
{
    ignis__cross_entropy entropy = p->entropy;
    ignis__cross_entropy_work work = *all;
    ignis_dtype dtype = c->w->dtype, wide = ignis__wide_dtype(dtype);
    entropy.rows = ignis__chunk_product(p, first).m;
    work.part = true;
    work.loss += (ignis__address)(first / p->chunk * ignis__dtypes[wide].size);
    work.log_sums += (ignis__address)(first * ignis__dtypes[wide].size);
    work.targets += (ignis__address)(first * entropy.target_bytes);
    work.logits = entropy.rows ? ignis__op_read(op, c->logits) : 0;
    work.gradient = c->gradient ? ignis__op_write(op, c->gradient) : 0;
    if (op->ok)
        ignis__cross_entropy_plan(op, &entropy, &work, dtype);
    if (op->ok)
        work.losses = ignis__op_write(op, ignis__op_new_row(op, 2 * work.plan.blocks, wide));
    if (op->ok)
        ignis__cross_entropy_launch(op, &entropy, &work, dtype);
}

/*  Saved: hidden, w, targets, log_sums, scale. Makes the logits once more. */
static ignis_status ignis__linear_entropy_backward(const ignis_backward_args *args)
{
    enum { GRAD, HIDDEN, W, TARGETS, LOG_SUMS, SCALE };
    ignis__op op;
    ignis__linear_entropy p;
    ignis__chunks c;
    ignis__array *gradients[2];
    int64_t first;
    int kept;
    memset(&c, 0, sizeof c);
    memcpy(&p, args->params, sizeof p);
    if (!ignis__op_begin_backward(&op, "ignis_linear_cross_entropy", args))
        return ignis__failed();
    c.hidden = op.in[HIDDEN];
    c.w = op.in[W];
    c.logits = c.gradient = ignis__op_new_rows(&op, p.chunk, p.entropy.stride, c.w->dtype);
    ignis__chunks_gradients(&op, &p, args->needed[0], args->needed[1], &c);
    kept = op.made_count;
    for (first = 0; op.ok && first < p.entropy.rows; first += p.chunk) {
        int64_t size = ignis__dtypes[op.in[LOG_SUMS]->dtype].size;
        ignis__cross_entropy entropy = p.entropy;
        ignis__address logits;
        entropy.rows = ignis__chunk_product(&p, first).m;
        ignis__chunk_logits(&op, &p, &c, first);
        logits = ignis__op_write(&op, c.logits);
        ignis__cross_entropy_launch_backward(&op, &entropy, c.w->dtype, logits, ignis__op_read(&op, op.in[GRAD]), logits,
                                             ignis__op_read(&op, op.in[TARGETS]) + (ignis__address)(first * entropy.target_bytes),
                                             ignis__op_read(&op, op.in[LOG_SUMS]) + (ignis__address)(first * size),
                                             ignis__op_read(&op, op.in[SCALE]));
        ignis__chunk_backward(&op, &p, &c, first);
        ignis__op_unmake(&op, kept);
    }
    gradients[0] = c.dhidden;
    gradients[1] = c.dw;
    return ignis__op_give(&op, args, 2, gradients);
}

/*  Checks the inputs, and describes what is to be done. */
static bool ignis__linear_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, ignis__linear_entropy *p)
{
    const ignis_shape *hidden = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t rows, n;
    memset(p, 0, sizeof *p);
    if (!ignis__op_is_float(op, 0, "hidden") || !ignis__op_same_dtype(op, 1, "weight") || !ignis__op_rows(op, op->in[0], &rows, &n))
        return false;
    if (w->ndim != 2 || w->dim[1] != n || w->dim[0] == 0 || n == 0)
        return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE,
                              "hidden is %s, weight %s; [..., n] and [classes, n] are needed, neither of them 0",
                              ignis__shape_write(hidden).text, ignis__shape_write(w).text);
    if (w->dim[0] >= (int64_t)1 << 30)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "weight is %s, with 2^30 rows or more", ignis__shape_write(w).text);
    if (desc && desc->chunk < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->chunk is %lld, below 0", (long long)desc->chunk);
    if (!ignis__cross_entropy_prepare(op, desc, rows, w->dim[0], op->in[2], &p->entropy))
        return false;
    p->chunk = desc && desc->chunk ? desc->chunk : ignis__clamp(IGNIS__CHUNK_LOGITS / w->dim[0] / 256, 1, INT64_MAX) * 256;
    p->chunk = ignis__clamp(rows, 1, p->chunk);
    p->product.m = rows;
    p->product.n = w->dim[0];
    p->product.k = n;
    p->product.batch = 1;
    p->product.batch_a = rows * n;
    p->product.batch_b = op->in[1]->numel;
    p->product.transpose_b = 1;
    p->product.dtype = (int)op->in[0]->dtype;
    return true;
}

IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc)
{
    ignis__op op;
    ignis__linear_entropy p;
    ignis__chunks c;
    ignis_tensor inputs[] = {hidden, weight, targets};
    ignis__array *loss = NULL, *losses = NULL, *log_sums = NULL, *scale = NULL;
    ignis__cross_entropy_work work;
    ignis__spread spread;
    ignis_dtype dtype, wide;
    int64_t first;
    bool fused;
    int kept;
    if (!ignis__op_begin(&op, "ignis_linear_cross_entropy", 3, inputs))
        return ignis__no_tensor();
    memset(&work, 0, sizeof work);
    memset(&c, 0, sizeof c);
    c.hidden = op.in[0];
    c.w = op.in[1];
    dtype = c.w->dtype;
    wide = ignis__wide_dtype(dtype);
    fused = op.records && ignis__cross_entropy_is_fused(dtype);
    op.knows_one = fused;
    op.ok = ignis__linear_entropy_prepare(&op, desc, &p);
    if (op.ok) {
        loss = ignis__op_new_row(&op, 1, wide);
        losses = ignis__chunk_count(&p) > 1 ? ignis__op_new_row(&op, ignis__chunk_count(&p), wide) : loss;
        scale = ignis__op_new_row(&op, 1, wide);
        log_sums = ignis__op_new_row(&op, p.entropy.rows, wide);
        c.logits = ignis__op_new_rows(&op, p.chunk, p.entropy.stride, dtype);
        work.loss = ignis__op_write(&op, losses);
        work.scale = ignis__op_write(&op, scale);
        work.log_sums = ignis__op_write(&op, log_sums);
        work.targets = ignis__op_read(&op, op.in[2]);
        work.count = ignis__op_write(&op, ignis__op_new_row(&op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64));
        ignis__cross_entropy_count(&op, &p.entropy, &work, dtype);
    }
    if (op.ok && fused) {
        c.gradient = c.logits; /* takes their place */
        ignis__chunks_gradients(&op, &p, op.standing[0].requires_grad, op.standing[1].requires_grad, &c);
    }
    kept = op.made_count;
    for (first = 0; op.ok && (first == 0 || first < p.entropy.rows); first += p.chunk) { /* the loss of no rows is 0, or as a mean NaN */
        ignis__chunk_logits(&op, &p, &c, first);
        ignis__chunk_loss(&op, &p, &c, &work, first);
        if (fused)
            ignis__chunk_backward(&op, &p, &c, first);
        ignis__op_unmake(&op, kept);
    }
    if (op.ok && losses != loss) {
        spread.outer = spread.inner = 1;
        spread.n = losses->numel;
        ignis__op_sum(&op, loss, losses, NULL, 1.0, &spread);
    }
    if (c.dhidden)
        ignis__op_save(&op, c.dhidden);
    if (c.dw)
        ignis__op_save(&op, c.dw);
    if (op.ok && !fused) {
        ignis__op_save(&op, op.in[0]);
        ignis__op_save(&op, op.in[1]);
        ignis__op_save(&op, op.in[2]);
        ignis__op_save(&op, log_sums);
        ignis__op_save(&op, scale);
    }
    return ignis__op_end_recorded(&op, loss, "linear_cross_entropy", fused ? ignis__cross_entropy_rescale : ignis__linear_entropy_backward,
                                  &p, sizeof p);
}

/* >>ops.attention ---------------------------------------------------------------------------------------------------------- */

/*  The parameters of the kernels, as in kernels/attention.cuh: the rows of the heads of a tensor, as elements from one row, head and batch to
    the next, and all of them. */
typedef struct ignis__attention_rows {
    ignis__address data;
    int64_t row, head, batch;
} ignis__attention_rows;

typedef struct ignis__attention {
    ignis__attention_rows q, k, v, out, grad_out, grad_q, grad_k, grad_v;
    ignis__address lse, delta;
    int batches, heads, kv_heads, head_dim, sq, sk, causal;
    double scale;
} ignis__attention;

/*  How a kernel is launched: its blocks have so many rows, walk over so many at a time, and have threads and dynamic shared memory. */
typedef struct ignis__attention_shape {
    int rows, walk, threads, shared;
} ignis__attention_shape;

typedef struct ignis__attention_variant {
    char define[32];
    ignis__builtin forward_kernel, delta_kernel, kv_kernel, q_kernel;
    ignis__attention_shape forward, kv, q;
} ignis__attention_variant;

/*  Geometry of kernels/attention_mma.cu for each size of heads that it is compiled for, without the shared memory. */
static const struct {
    int head_dim;
    ignis__attention_shape forward, kv, q;
} ignis__attention_mma[] = {
    {32, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}}, {64, {128, 64, 128, 0}, {128, 64, 128, 0}, {128, 64, 128, 0}},
    {96, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},  {128, {128, 32, 128, 0}, {64, 64, 128, 0}, {128, 32, 128, 0}},
    {192, {64, 32, 128, 0}, {32, 32, 192, 0}, {64, 16, 128, 0}},   {256, {64, 32, 128, 0}, {32, 32, 128, 0}, {64, 16, 128, 0}},
};

/*  The one place that chooses between tensor cores and plain CUDA C: f16 and bf16 take tensor cores where the device has mma.m16n8k16, and all rows
    consist of packs of 16 bytes. */
static bool ignis__attention_takes_mma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    const ignis__attention_rows *tensors = &p->q;
    bool takes = (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && op->work.device->info.compute_major >= 8 && p->head_dim % 8 == 0;
    int i;
    for (i = 0; i < 8; i++) /* to grad_v; those that are not there are 0 */
        takes = takes && tensors[i].data % 16 == 0;
    return takes;
}

/*  Geometry of kernels/attention_hopper.cu for heads of up to so many elements: groups of 64 queries that a block has, and keys that it walks
    over at a time. */
typedef struct ignis__attention_hopper_shape {
    int head_dim, groups, keys;
} ignis__attention_hopper_shape;

static const ignis__attention_hopper_shape ignis__attention_hopper[] = {{64, 3, 128}, {128, 2, 128}, {192, 2, 96}, {256, 2, 80}};

/*  Whether the kernels by wgmma can be had. Where the caller has asked for them and they cannot, the logger hears why. */
static bool ignis__attention_takes_wgmma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    const ignis__attention_rows *tensors = &p->q;
    const char *why = NULL;
    int i;
    if (ignis__attention_by == IGNIS_ATTENTION_MMA)
        return false;
    if (op->work.device->info.compute_major != 9)
        why = "the device is not of compute capability 9.0";
    else if (!ignis__cuda.cuTensorMapEncodeTiled)
        why = "the driver is older than CUDA 12.0";
    else if (ignis__library_load(op->work.call, IGNIS_LIBRARY_NVRTC) && ignis__libraries[IGNIS_LIBRARY_NVRTC].version < 12000)
        why = "NVRTC is older than 12.0";
    else if (dtype != IGNIS_F16 && dtype != IGNIS_BF16)
        why = "the dtype is not f16 or bf16";
    else if (p->head_dim % 8 != 0 || p->head_dim < 64 || p->head_dim > 256)
        why = "head_dim is not a multiple of 8 from 64 to 256";
    else if (p->batches == 0 || p->sq == 0 || p->sk == 0)
        why = "there is no query or no key";
    for (i = 0; i < 8; i++) /* to grad_v; those that are not there are 0 */
        if (tensors[i].data % 16 != 0 || (tensors[i].row | tensors[i].head | tensors[i].batch) % 8 != 0)
            why = why ? why : "rows are not aligned to 16 bytes";
    if (why && ignis__attention_by == IGNIS_ATTENTION_WGMMA)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED, "%s: not by IGNIS_ATTENTION_WGMMA, as %s", op->work.call, why);
    return !why;
}

/*  The map of one of the tensors, for tiles of so many of its `length` rows. A tile lies in shared memory as slabs of 64 columns, each of them
    `rows` rows of 128 bytes, one slab behind the other. A head of whole slabs is copied by one instruction, another one slab by slab: what is
    missing of the last one is zeros. */
static void ignis__attention_map(ignis__op *op, ignis__tensor_map *map, ignis_dtype dtype, const ignis__attention *p,
                                 const ignis__attention_rows *tensor, int heads, int length, int rows)
{
    int64_t dims[] = {64, length, p->head_dim / 64, heads, p->batches};
    int64_t strides[] = {2 * tensor->row, 128, 2 * tensor->head, 2 * tensor->batch};
    int box[] = {64, rows, p->head_dim / 64, 1, 1}, rank = 5;
    if (p->head_dim % 64 != 0) { /* no dimension of slabs */
        rank = 4;
        dims[0] = p->head_dim;
        dims[2] = heads;
        dims[3] = p->batches;
        strides[1] = strides[2];
        strides[2] = strides[3];
        box[2] = 1;
    }
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, dtype, tensor->data, rank, dims, strides, box);
}

static ignis__attention_variant ignis__attention_choose(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    ignis__attention_variant variant;
    int i, head_dim = 32, size = dtype == IGNIS_F64 ? 8 : 4, pack = 16 / size, bytes, lines;
    memset(&variant, 0, sizeof variant);
    if (ignis__attention_takes_mma(op, dtype, p)) {
        for (i = 0; ignis__attention_mma[i].head_dim < p->head_dim;)
            i++;
        head_dim = ignis__attention_mma[i].head_dim;
        variant.forward_kernel = IGNIS__BUILTIN_SDPA_MMA;
        variant.delta_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_DELTA;
        variant.kv_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_KV;
        variant.q_kernel = IGNIS__BUILTIN_SDPA_MMA_BACKWARD_Q;
        variant.forward = ignis__attention_mma[i].forward;
        variant.kv = ignis__attention_mma[i].kv;
        variant.q = ignis__attention_mma[i].q;
        variant.forward.shared = 2 * head_dim * (variant.forward.rows + 4 * variant.forward.walk);
        variant.kv.shared = 2 * head_dim * (2 * variant.kv.rows + 4 * variant.kv.walk) + 16 * variant.kv.walk;
        variant.q.shared = 2 * head_dim * (2 * variant.q.rows + 4 * variant.q.walk) + 8 * variant.q.rows;
    } else { /* as computed at the top of kernels/attention.cu */
        while (head_dim < p->head_dim)
            head_dim *= 2;
        bytes = head_dim * size;
        variant.forward_kernel = IGNIS__BUILTIN_SDPA;
        variant.delta_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_DELTA;
        variant.kv_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_KV;
        variant.q_kernel = IGNIS__BUILTIN_SDPA_BACKWARD_Q;
        variant.forward.threads = variant.kv.threads = bytes > 1024 ? 64 : 128;
        variant.forward.walk = variant.kv.walk = 16384 / bytes < 8 * pack ? 16384 / bytes : 8 * pack;
        lines = variant.forward.threads / 8;
        variant.forward.rows = lines * (2048 / bytes < pack ? 2048 / bytes : pack);
        variant.kv.rows = lines * (bytes > 1024 ? 1 : 1024 / bytes < pack ? 1024 / bytes : pack);
        variant.forward.shared =
            (variant.forward.rows + variant.forward.walk) * (bytes + 16) + variant.forward.rows * (variant.forward.walk * size + 16);
        variant.kv.shared = (2 * variant.kv.rows + variant.kv.walk) * (bytes + 16) + 2 * variant.kv.rows * (variant.kv.walk * size + 16);
        variant.q = variant.kv;
    }
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    return variant;
}

static void ignis__attention_launch(ignis__op *op, const ignis__attention_variant *variant, ignis__builtin kernel,
                                    const ignis__attention_shape *shape, ignis_dtype dtype, int rows, int heads, ignis__attention *p)
{
    int64_t blocks = ignis__ceil_div(rows, shape->rows) * heads * p->batches;
    void *params[] = {p};
    ignis__op_launch(op, kernel, dtype, variant->define, blocks, 1, 1, (unsigned)shape->threads, 1, (size_t)shape->shared, params);
}

/*  Where the rows of a contiguous tensor of the shape [rows, width] or [batch, rows, width] are. */
IGNIS__ONE_COPY static ignis__attention_rows ignis__attention_rows_of(const ignis_shape *shape, int head_dim, ignis__address address)
{
    ignis__attention_rows rows;
    IGNIS_ASSERT(shape->ndim >= 2);
    rows.data = address;
    rows.row = shape->dim[shape->ndim - 1];
    rows.head = head_dim;
    rows.batch = rows.row * shape->dim[shape->ndim - 2];
    return rows;
}

/*  The addresses of q, k, v, which were checked, and of the result. */
static void ignis__attention_operands(ignis__op *op, ignis__array *out, ignis__attention *p)
{
    if (!op->ok)
        return;
    p->q = ignis__attention_rows_of(&op->in[0]->shape, p->head_dim, ignis__op_read(op, op->in[0]));
    p->k = ignis__attention_rows_of(&op->in[1]->shape, p->head_dim, ignis__op_read(op, op->in[1]));
    p->v = ignis__attention_rows_of(&op->in[2]->shape, p->head_dim, ignis__op_read(op, op->in[2]));
    p->out = ignis__attention_rows_of(&op->in[0]->shape, p->head_dim, ignis__op_write(op, out));
}

static bool ignis__attention_heads(ignis__op *op, int heads, int64_t kv_heads)
{
    if (heads % kv_heads != 0)
        ignis__op_fail(op, IGNIS_DIAG_SDPA_HEADS, "num_heads (%d) must be a multiple of num_kv_heads (%lld)", heads, (long long)kv_heads);
    return op->ok;
}

/*  Fills in the sizes of rows of queries and of keys. Reports what is too large. */
static bool ignis__attention_fill(ignis__op *op, const ignis_shape *q, const ignis_shape *k, int heads, int kv_heads, int64_t head_dim,
                                  int most, ignis__attention *p)
{
    int64_t sq = q->dim[q->ndim - 2], sk = k->dim[k->ndim - 2], batches = q->ndim == 3 ? q->dim[0] : 1, limit = (int64_t)1 << 30;
    if (head_dim > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "head_dim is %lld; %d is the most", (long long)head_dim, most);
    if (sq >= limit || sk >= limit || batches >= limit)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "queries are %s, keys are %s; 2^30 rows are too many", ignis__shape_write(q).text,
                              ignis__shape_write(k).text);
    p->batches = (int)batches;
    p->heads = heads;
    p->kv_heads = kv_heads;
    p->head_dim = (int)head_dim;
    p->sq = (int)sq;
    p->sk = (int)sk;
    p->scale = ignis__root(1.0 / (double)head_dim, 2);
    return true;
}

/*  Fills in the sizes from the shapes of q, k and v; kv_heads 0: as many as k has room for. Heads have up to `most` elements. Reports what does
    not fit. */
static bool ignis__attention_sizes(ignis__op *op, int heads, int kv_heads, int most, ignis__attention *p)
{
    const ignis_shape *q = &op->in[0]->shape, *k = &op->in[1]->shape, *v = &op->in[2]->shape;
    int64_t width, head_dim, kv_width;
    int last = q->ndim - 1;
    if (!ignis__op_is_float(op, 0, "q") || !ignis__op_same_dtype(op, 1, "k") || !ignis__op_same_dtype(op, 2, "v"))
        return false;
    if (q->ndim < 2 || q->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(q).text);
    if (k->ndim != q->ndim || (q->ndim == 3 && k->dim[0] != q->dim[0]))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s, which does not go with q %s", ignis__shape_write(k).text,
                              ignis__shape_write(q).text);
    if (!ignis__shape_same(v, k))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "v is %s, k is %s", ignis__shape_write(v).text, ignis__shape_write(k).text);
    width = q->dim[last];
    kv_width = k->dim[last];
    if (width == 0 || width % heads != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q is %s; its last dimension has to be num_heads (%d) heads of equal size",
                              ignis__shape_write(q).text, heads);
    head_dim = width / heads;
    if (kv_heads == 0 && (kv_width == 0 || kv_width % head_dim != 0 || kv_width > width))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s; its last dimension has to be 1 to %d heads of %lld elements",
                              ignis__shape_write(k).text, heads, (long long)head_dim);
    if (kv_heads != 0 && kv_width != kv_heads * head_dim)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s; its last dimension has to be num_kv_heads (%d) heads of %lld elements",
                              ignis__shape_write(k).text, kv_heads, (long long)head_dim);
    if (!ignis__attention_heads(op, heads, kv_width / head_dim))
        return false;
    return ignis__attention_fill(op, q, k, heads, (int)(kv_width / head_dim), head_dim, most, p);
}

/*  The same for q, k and v in the rows of one tensor. */
static bool ignis__attention_packed_sizes(ignis__op *op, int heads, int kv_heads, ignis__attention *p)
{
    const ignis_shape *shape = &op->in[0]->shape;
    int64_t width = shape->dim[shape->ndim - 1], all = heads + 2 * (int64_t)kv_heads;
    if (!ignis__op_is_float(op, 0, "qkv"))
        return false;
    if (shape->ndim < 2 || shape->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "qkv is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(shape).text);
    if (width == 0 || width % all != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "qkv is %s; its last dimension has to be num_heads (%d) and 2 * num_kv_heads (%d) heads of equal size",
                              ignis__shape_write(shape).text, heads, kv_heads);
    return ignis__attention_fill(op, shape, shape, heads, kv_heads, width / all, 256, p);
}

/*  Room for a number for each query head of each row. */
static ignis__array *ignis__attention_stat(ignis__op *op, const ignis__attention *p, ignis_dtype dtype)
{
    return ignis__op_new_row(op, (int64_t)p->batches * p->heads * p->sq, ignis__wide_dtype(dtype));
}

static void ignis__attention_backward_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    ignis__attention_variant variant;
    int64_t blocks =
        ignis__clamp(ignis__ceil_div((int64_t)p->batches * p->heads * p->sq, 8), 0, 16 * op->work.device->info.multiprocessors);
    void *params[] = {p};
    p->delta = ignis__op_write(op, ignis__attention_stat(op, p, dtype));
    if (!op->ok)
        return;
    variant = ignis__attention_choose(op, dtype, p);
    ignis__op_launch(op, variant.delta_kernel, dtype, variant.define, blocks, 1, 1, 256, 1, 0, params);
    if (p->grad_k.data)
        ignis__attention_launch(op, &variant, variant.kv_kernel, &variant.kv, dtype, p->sk, p->kv_heads, p);
    if (p->grad_q.data)
        ignis__attention_launch(op, &variant, variant.q_kernel, &variant.q, dtype, p->sq, p->heads, p);
}

/*  The same by kernels/attention_hopper_backward.cu, for all three gradients. */
typedef struct ignis__attention_scratch {
    ignis__address lse, delta, grad_q, turns, next;
    int rows, section;
} ignis__attention_scratch;

/*  Tiles of the kernels: keys that a block has, queries that it walks over at a time. */
static int ignis__attention_backward_keys(const ignis__attention *p) { return p->head_dim <= 128 ? 128 : 64; }
static int ignis__attention_backward_queries(const ignis__attention *p) { return p->head_dim == 64 ? 128 : 64; }

/*  A tile with few queries would be mostly room for what is kept in float. */
static bool ignis__attention_backward_takes_wgmma(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    int least = ignis__attention_backward_queries(p) / 4;
    if (!op->ok || !ignis__attention_takes_wgmma(op, dtype, p))
        return false;
    if (p->sq < least && ignis__attention_by == IGNIS_ATTENTION_WGMMA)
        ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_UNSUPPORTED, "%s: backward not by IGNIS_ATTENTION_WGMMA, as there are fewer than %d queries",
                    op->work.call, least);
    return p->sq >= least;
}

/*  As computed in the kernels' source: tiles of keys and queries in slabs of 64 columns, scores, grad_q on its way, statistics, barriers. */
static int ignis__attention_backward_shared(const ignis__attention *p)
{
    int keys = ignis__attention_backward_keys(p), queries = ignis__attention_backward_queries(p), wide = p->head_dim > 128;
    int slabs = (p->head_dim + 63) / 64, columns = (p->head_dim + 15) / 16 * 16, stages = slabs == 4 ? 3 : 4;
    return slabs * 128 * (2 * keys + stages * queries) + (wide ? 4 : 2) * 2 * keys * queries + 2 * 4 * queries * (wide ? 64 : columns) +
           stages * 4 * queries + 80;
}

/*  Heads of keys that are walked at a time: q, grad_out and grad_q of their query heads fit 40 MiB of the L2 cache. At least two such sections,
    as the last one goes the other way round. */
static int ignis__attention_backward_section(const ignis__attention *p)
{
    int64_t pairs = (int64_t)p->batches * p->kv_heads, bytes = (int64_t)p->sq * p->head_dim * 8 * (p->heads / p->kv_heads), section = 1;
    while (2 * section * bytes <= (int64_t)40 << 20 && section < pairs)
        section *= 2;
    return (int)ignis__ceil_div(pairs, section < pairs ? ignis__ceil_div(pairs, section) : 2);
}

static void ignis__attention_backward_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    int keys = ignis__attention_backward_keys(p), queries = ignis__attention_backward_queries(p);
    int64_t tiles = ignis__ceil_div(p->sq, queries) * p->heads * p->batches, rows = tiles * queries;
    int64_t columns = ignis__ceil_div(p->head_dim, 16) * 16, turns = tiles * (p->head_dim <= 128 ? 1 : 2);
    int lanes = p->head_dim <= 64 ? 8 : p->head_dim <= 128 ? 16 : 32; /* for a row */
    ignis__attention_scratch scratch;
    ignis__tensor_map q, k, v, grad_out, grad_k, grad_v;
    void *params[] = {p, &scratch}, *maps[] = {&q, &k, &v, &grad_out, &grad_k, &grad_v, p, &scratch};
    char define[64];
    ignis__attention_map(op, &q, dtype, p, &p->q, p->heads, p->sq, queries);
    ignis__attention_map(op, &k, dtype, p, &p->k, p->kv_heads, p->sk, keys);
    ignis__attention_map(op, &v, dtype, p, &p->v, p->kv_heads, p->sk, keys);
    ignis__attention_map(op, &grad_out, dtype, p, &p->grad_out, p->heads, p->sq, queries);
    ignis__attention_map(op, &grad_k, dtype, p, &p->grad_k, p->kv_heads, p->sk, keys);
    ignis__attention_map(op, &grad_v, dtype, p, &p->grad_v, p->kv_heads, p->sk, keys);
    scratch.grad_q = ignis__op_write(op, ignis__op_new_row(op, rows * (columns + 2) + turns + 1, IGNIS_F32));
    scratch.lse = scratch.grad_q + (ignis__address)(rows * columns * 4);
    scratch.delta = scratch.lse + (ignis__address)(rows * 4);
    scratch.turns = scratch.delta + (ignis__address)(rows * 4);
    scratch.next = scratch.turns + (ignis__address)(turns * 4);
    scratch.rows = (int)ignis__ceil_div(p->sq, queries) * queries;
    scratch.section = ignis__attention_backward_section(p);
    snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d", p->head_dim, p->causal);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_ROWS, dtype, define, ignis__ceil_div(rows * lanes, 256), 1, 1, 256, 1, 0,
                     params);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD, dtype, define, ignis__ceil_div(p->sk, keys) * p->kv_heads * p->batches, 1, 1,
                     384, 1, (size_t)ignis__attention_backward_shared(p), maps);
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_BACKWARD_FINISH, dtype, define, tiles, 1, 1, 256, 1, 0, params);
}

static ignis_status ignis__sdpa_backward(const ignis_backward_args *args)
{
    ignis__attention p;
    ignis__op op; /* of grad_out, q, k, v, out, lse */
    ignis__array *gradients[3] = {NULL, NULL, NULL}, *grad_q, *grad_k, *grad_v;
    ignis_dtype dtype;
    bool wgmma;
    if (!ignis__op_begin_backward(&op, "ignis_sdpa", args))
        return ignis__failed();
    memcpy(&p, args->params, sizeof p);
    dtype = op.in[1]->dtype;
    p.q = ignis__attention_rows_of(&op.in[1]->shape, p.head_dim, ignis__op_read(&op, op.in[1]));
    p.k = ignis__attention_rows_of(&op.in[2]->shape, p.head_dim, ignis__op_read(&op, op.in[2]));
    p.v = ignis__attention_rows_of(&op.in[3]->shape, p.head_dim, ignis__op_read(&op, op.in[3]));
    p.out = ignis__attention_rows_of(&op.in[4]->shape, p.head_dim, ignis__op_read(&op, op.in[4]));
    p.grad_out = ignis__attention_rows_of(&op.in[4]->shape, p.head_dim, ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    p.lse = ignis__op_read(&op, op.in[5]);
    wgmma = ignis__attention_backward_takes_wgmma(&op, dtype, &p);
    if (args->needed[0] || wgmma) {
        grad_q = ignis__op_new_like(&op, op.in[1]);
        p.grad_q = ignis__attention_rows_of(&op.in[1]->shape, p.head_dim, ignis__op_write(&op, grad_q));
        gradients[0] = args->needed[0] ? grad_q : NULL;
    }
    if (args->needed[1] || args->needed[2] || wgmma) { /* they come together */
        grad_k = ignis__op_new_like(&op, op.in[2]);
        p.grad_k = ignis__attention_rows_of(&op.in[2]->shape, p.head_dim, ignis__op_write(&op, grad_k));
        grad_v = ignis__op_new_like(&op, op.in[3]);
        p.grad_v = ignis__attention_rows_of(&op.in[3]->shape, p.head_dim, ignis__op_write(&op, grad_v));
        gradients[1] = args->needed[1] ? grad_k : NULL;
        gradients[2] = args->needed[2] ? grad_v : NULL;
    }
    if (wgmma)
        ignis__attention_backward_wgmma(&op, dtype, &p);
    else
        ignis__attention_backward_run(&op, dtype, &p);
    return ignis__op_give(&op, args, 3, gradients);
}

/*  packed: q, k and v are in one tensor. */
static bool ignis__sdpa_prepare(ignis__op *op, const ignis_sdpa_desc *desc, bool packed, ignis__attention *p)
{
    static const ignis_sdpa_desc defaults = IGNIS__ZERO;
    int heads, kv_heads;
    desc = desc ? desc : &defaults;
    heads = desc->num_heads ? desc->num_heads : 1;
    kv_heads = desc->num_kv_heads ? desc->num_kv_heads : heads;
    memset(p, 0, sizeof *p);
    if (heads < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", heads);
    if (kv_heads < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_kv_heads is %d, below 1", kv_heads);
    if ((int)desc->mask < 0 || desc->mask >= IGNIS_MASK_COUNT)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->mask is %d, not one of ignis_mask", (int)desc->mask);
    if (!(desc->scale >= 0 && desc->scale < 1e30))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->scale is %g, not a positive number", desc->scale);
    if (!ignis__attention_heads(op, heads, kv_heads) ||
        !(packed ? ignis__attention_packed_sizes(op, heads, kv_heads, p) : ignis__attention_sizes(op, heads, kv_heads, 256, p)))
        return false;
    p->causal = desc->mask == IGNIS_MASK_CAUSAL;
    if (desc->scale > 0)
        p->scale = desc->scale;
    return true;
}

/*  How the items of the forward pass are shared out; kernels/attention_hopper.cu has the same. */
typedef struct ignis__forward_plan {
    ignis__address counter, parts;
    int section, splits, tiles;
} ignis__forward_plan;

#define IGNIS__SECTION_BYTES ((int64_t)32 << 20) /* of k and v, that stay in the second level cache of an H200 */

/*  Forward by kernels/attention_hopper.cu. */
static void ignis__sdpa_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    const ignis__attention_hopper_shape *shape = ignis__attention_hopper;
    int64_t multiprocessors = op->work.device->info.multiprocessors, pairs = (int64_t)p->batches * p->heads;
    int64_t items, tiles, wanted, slabs = ignis__ceil_div(p->head_dim, 64), shared;
    int64_t heads_of_section = IGNIS__SECTION_BYTES / (4 * (int64_t)p->sk * p->head_dim);
    ignis__tensor_map q, k, v, out;
    ignis__forward_plan plan;
    void *params[] = {&q, &k, &v, &out, p, &plan}, *combine[] = {p, &plan};
    int groups;
    char define[96];
    memset(&plan, 0, sizeof plan);
    while (shape->head_dim < p->head_dim)
        shape++;
    groups = p->sq <= 128 ? 2 : shape->groups; /* a third group would have nothing to do */
    ignis__attention_map(op, &q, dtype, p, &p->q, p->heads, p->sq, 64);
    ignis__attention_map(op, &k, dtype, p, &p->k, p->kv_heads, p->sk, shape->keys);
    ignis__attention_map(op, &v, dtype, p, &p->v, p->kv_heads, p->sk, shape->keys);
    ignis__attention_map(op, &out, dtype, p, &p->out, p->heads, p->sq, 64);
    snprintf(define, sizeof define, "-DIGNIS_HEAD_DIM=%d -DIGNIS_CAUSAL=%d -DIGNIS_FORWARD_GROUPS=%d", p->head_dim, p->causal, groups);

    items = ignis__ceil_div(p->sq, 64 * groups) * pairs;
    tiles = ignis__ceil_div(p->sk, shape->keys);
    wanted = ignis__clamp(multiprocessors / items, 1, tiles > 2 ? tiles / 2 : 1); /* two tiles of keys are worth a split */
    plan.tiles = (int)ignis__ceil_div(tiles, wanted);
    plan.splits = (int)ignis__ceil_div(tiles, plan.tiles);
    plan.section = (int)ignis__clamp(((int64_t)1 << ignis__log2((uint64_t)(heads_of_section | 1))) * (p->heads / p->kv_heads), 1, pairs);
    plan.counter = p->causal ? ignis__op_zeroed(op) : 0;
    if (plan.splits > 1)
        plan.parts = ignis__op_write(op, ignis__op_new_row(op, plan.splits * pairs * p->sq * (p->head_dim + 2), IGNIS_F32));
    shared = slabs * 128 * (64 * groups * (p->head_dim <= 128 ? 2 : 1) + 4 * shape->keys) + 128;
    ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER, dtype, define, ignis__clamp(items * plan.splits, 1, multiprocessors), 1, 1,
                     (unsigned)(128 * (groups + 1)), 1, (size_t)shared, params);
    if (plan.splits > 1)
        ignis__op_launch(op, IGNIS__BUILTIN_SDPA_HOPPER_COMBINE, dtype, define, ignis__ceil_div(pairs * p->sq, 8), 1, 1, 256, 1, 0,
                         combine);
}

/*  Forward by the kernels that are the best for the operands. */
static void ignis__sdpa_run(ignis__op *op, const ignis__array *out, ignis__attention *p)
{
    ignis__attention_variant variant;
    if (op->ok && ignis__attention_takes_wgmma(op, out->dtype, p)) {
        ignis__sdpa_wgmma(op, out->dtype, p);
    } else if (op->ok) {
        variant = ignis__attention_choose(op, out->dtype, p);
        ignis__attention_launch(op, &variant, variant.forward_kernel, &variant.forward, out->dtype, p->sq, p->heads, p);
    }
}

IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc)
{
    ignis_tensor inputs[] = {q, k, v};
    ignis__attention p;
    ignis__op op;
    ignis__array *out, *lse;
    int i;
    if (!ignis__op_begin(&op, "ignis_sdpa", 3, inputs))
        return ignis__no_tensor();
    ignis__sdpa_prepare(&op, desc, false, &p);
    out = ignis__op_new_like(&op, op.in[0]);
    ignis__attention_operands(&op, out, &p);
    if (op.records) {
        lse = ignis__attention_stat(&op, &p, op.in[0]->dtype);
        p.lse = ignis__op_write(&op, lse);
        for (i = 0; i < 3; i++)
            ignis__op_save(&op, op.in[i]);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
    }
    ignis__sdpa_run(&op, out, &p);
    return ignis__op_end_recorded(&op, out, "sdpa", ignis__sdpa_backward, &p, sizeof p);
}

/*  What the backward of q, k and v in one tensor needs beside what was saved. */
typedef struct ignis__sdpa_packed {
    ignis__attention attention;
    ignis__rope rope; /* of q and k, no heads: they do not turn */
} ignis__sdpa_packed;

/*  Where q, k and v are in the rows of one tensor, which begin with the heads of q, then those of k. */
static void ignis__attention_parts(const ignis__attention *p, const ignis__array *array, ignis__address address, ignis__attention_rows *q,
                                   ignis__attention_rows *k, ignis__attention_rows *v)
{
    ignis__address head = address ? (ignis__address)(p->head_dim * ignis__dtypes[array->dtype].size) : 0;
    *q = *k = *v = ignis__attention_rows_of(&array->shape, p->head_dim, address);
    k->data += head * (ignis__address)p->heads;
    v->data += head * (ignis__address)(p->heads + p->kv_heads);
}

/*  q, k and v for the kernels; turned: q and k that have turned, null where they do not. */
static void ignis__sdpa_packed_operands(ignis__op *op, ignis__array *qkv, ignis__array *turned, ignis__attention *p)
{
    ignis__attention_rows behind;
    ignis__attention_parts(p, qkv, ignis__op_read(op, qkv), &p->q, &p->k, &p->v);
    if (turned)
        ignis__attention_parts(p, turned, ignis__op_read(op, turned), &p->q, &p->k, &behind);
}

static ignis_status ignis__sdpa_packed_backward(const ignis_backward_args *args)
{
    ignis__sdpa_packed packed;
    ignis__attention *p = &packed.attention;
    ignis__op op; /* of grad_out, qkv, out, lse, q and k that have turned, their frequencies */
    ignis__array *grad;
    ignis__address address;
    if (!ignis__op_begin_backward(&op, "ignis_sdpa_packed", args))
        return ignis__failed();
    memcpy(&packed, args->params, sizeof packed);
    ignis__sdpa_packed_operands(&op, op.in[1], args->saved_count > 3 ? op.in[4] : NULL, p);
    p->out = ignis__attention_rows_of(&op.in[2]->shape, p->head_dim, ignis__op_read(&op, op.in[2]));
    p->grad_out = ignis__attention_rows_of(&op.in[2]->shape, p->head_dim, ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    p->lse = ignis__op_read(&op, op.in[3]);
    grad = ignis__op_new_like(&op, op.in[1]);
    address = ignis__op_write(&op, grad);
    if (op.ok)
        ignis__attention_parts(p, grad, address, &p->grad_q, &p->grad_k, &p->grad_v);
    if (ignis__attention_backward_takes_wgmma(&op, op.in[1]->dtype, p))
        ignis__attention_backward_wgmma(&op, op.in[1]->dtype, p);
    else
        ignis__attention_backward_run(&op, op.in[1]->dtype, p);
    if (packed.rope.heads) /* back, where they are */
        ignis__rope_turn(&op, &packed.rope, op.in[1]->dtype, address, p->grad_q.row, address, p->grad_q.row,
                         args->saved_count > 4 ? op.in[5] : NULL, -1);
    return ignis__op_give(&op, args, 1, &grad);
}

/*  An array for so many heads of each row of qkv. */
static ignis__array *ignis__sdpa_packed_new(ignis__op *op, const ignis__attention *p, int heads)
{
    ignis_shape shape = op->in[0]->shape;
    shape.dim[shape.ndim - 1] = op->ok ? (int64_t)heads * p->head_dim : 0;
    return ignis__op_new(op, &shape, op->in[0]->dtype);
}

/*  Turns q and k into an array of their own. */
static ignis__array *ignis__sdpa_packed_turn(ignis__op *op, const ignis_rope_desc *desc, ignis__array *own, ignis__sdpa_packed *packed)
{
    const ignis__attention *p = &packed->attention;
    int heads = p->heads + p->kv_heads;
    ignis__array *turned;
    ignis__address from, to;
    if (desc->num_heads != 0 && desc->num_heads != heads)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "rope->num_heads is %d; q and k have %d heads", desc->num_heads, heads);
    if (!op->ok || !ignis__rope_prepare(op, desc, own, heads, p->head_dim, &packed->rope))
        return NULL;
    turned = ignis__sdpa_packed_new(op, p, heads);
    from = ignis__op_read(op, op->in[0]);
    to = ignis__op_write(op, turned);
    ignis__rope_turn(op, &packed->rope, op->in[0]->dtype, to, (int64_t)heads * p->head_dim, from,
                     op->in[0]->shape.dim[op->in[0]->shape.ndim - 1], own, 1);
    return turned;
}

IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope)
{
    static const char call[] = "ignis_sdpa_packed";
    ignis__sdpa_packed packed;
    ignis__attention *p = &packed.attention;
    ignis__op op;
    ignis__array *out, *lse, *own = NULL, *turned = NULL;
    ignis_tensor result;
    if (!ignis__op_begin(&op, call, 1, &qkv))
        return ignis__no_tensor();
    memset(&packed, 0, sizeof packed);
    ignis__sdpa_prepare(&op, desc, true, p);
    if (rope) {
        own = ignis__rope_own(&op, rope);
        turned = ignis__sdpa_packed_turn(&op, rope, own, &packed);
    }
    out = ignis__sdpa_packed_new(&op, p, p->heads);
    if (op.ok)
        ignis__sdpa_packed_operands(&op, op.in[0], turned, p);
    if (op.ok)
        p->out = ignis__attention_rows_of(&out->shape, p->head_dim, ignis__op_write(&op, out));
    if (op.records) {
        lse = ignis__attention_stat(&op, p, op.in[0]->dtype);
        p->lse = ignis__op_write(&op, lse);
        ignis__op_save(&op, op.in[0]);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
        if (turned)
            ignis__op_save(&op, turned);
        if (own) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    ignis__sdpa_run(&op, out, p);
    result = ignis__op_end_recorded(&op, out, "sdpa_packed", ignis__sdpa_packed_backward, &packed, sizeof packed);
    if (own)
        ignis__array_drop(call, own);
    return result;
}

/*  How a cache is shared among blocks. */
typedef struct ignis__decode_variant {
    char define[32];
    ignis__builtin kernel, combine_kernel;
    int heads;                   /* query heads that a block does: it reads the keys once for all of them */
    int keys;                    /* that a block walks over at a time */
    int threads, shared, blocks; /* of a block; blocks that a multiprocessor should have */
} ignis__decode_variant;

/*  Geometry of kernels/attention_decode_mma.cu and kernels/attention_decode.cu. */
static ignis__decode_variant ignis__decode_choose(const ignis__op *op, ignis_dtype dtype, const ignis__attention *p)
{
    ignis__decode_variant variant;
    int head_dim = 64, group = p->heads / p->kv_heads, warps;
    memset(&variant, 0, sizeof variant);
    while (head_dim < p->head_dim)
        head_dim *= 2;
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    if (head_dim <= 256 && ignis__attention_takes_mma(op, dtype, p)) {
        warps = head_dim <= 128 ? 4 : 2;
        variant.kernel = IGNIS__BUILTIN_SDPA_MMA_DECODE;
        variant.combine_kernel = IGNIS__BUILTIN_SDPA_MMA_DECODE_COMBINE;
        variant.heads = 16;
        variant.keys = 16 * warps;
        variant.threads = 32 * warps;
        variant.shared = 2 * variant.keys * 3 * 2 * head_dim;
        variant.blocks = head_dim <= 64 ? 4 : 2;
    } else {
        group = group > 2 && dtype == IGNIS_F64 && head_dim > 256 ? 2 : group;
        variant.kernel = group == 1   ? IGNIS__BUILTIN_SDPA_DECODE_1
                         : group == 2 ? IGNIS__BUILTIN_SDPA_DECODE_2
                                      : IGNIS__BUILTIN_SDPA_DECODE_4;
        variant.combine_kernel = IGNIS__BUILTIN_SDPA_DECODE_COMBINE;
        variant.heads = group < 3 ? group : 4;
        variant.keys = 64;
        variant.threads = 256;
        variant.blocks = 2;
    }
    return variant;
}

/*  One block for each key head and split of its keys, then one for each query head. */
static void ignis__decode_run(ignis__op *op, ignis__attention *p, ignis_dtype dtype)
{
    ignis__decode_variant variant = ignis__decode_choose(op, dtype, p);
    int64_t passes = ignis__ceil_div(p->heads / p->kv_heads, variant.heads), items = passes * p->kv_heads * p->batches;
    int64_t wanted = ignis__clamp((int64_t)variant.blocks * op->work.device->info.multiprocessors / items, 1, 1024);
    int per_split = (int)(ignis__ceil_div(ignis__ceil_div(p->sk, wanted), variant.keys) * variant.keys);
    int splits = (int)ignis__ceil_div(p->sk, per_split);
    int64_t numbers = (int64_t)p->batches * p->heads * splits * (p->head_dim + 2);
    ignis__address scratch = ignis__op_write(op, ignis__op_new_row(op, numbers, ignis__wide_dtype(dtype)));
    void *parts[] = {p, &scratch, &per_split}, *combine[] = {p, &scratch, &splits};
    ignis__op_launch(op, variant.kernel, dtype, variant.define, splits, passes * p->kv_heads, p->batches, (unsigned)variant.threads, 1,
                     (size_t)variant.shared, parts);
    ignis__op_launch(op, variant.combine_kernel, dtype, variant.define, (int64_t)p->batches * p->heads, 1, 1, 128, 1, 0, combine);
}

IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads)
{
    ignis_tensor inputs[] = {q, k, v};
    ignis__attention p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, "ignis_decode_sdpa", 3, inputs))
        return ignis__no_tensor();
    memset(&p, 0, sizeof p);
    if (num_heads < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "num_heads is %d, below 1", num_heads);
    else if (ignis__attention_sizes(&op, num_heads, 0, 512, &p) && (p.sq != 1 || p.sk < 1))
        ignis__op_fail(&op, IGNIS_DIAG_SDPA_SHAPE, "q is %s, k is %s; one query and at least one key are needed",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&op.in[1]->shape).text);
    out = ignis__op_new_like(&op, op.in[0]);
    ignis__attention_operands(&op, out, &p);
    if (op.ok && p.batches > 0)
        ignis__decode_run(&op, &p, out->dtype);
    return ignis__op_end(&op, out, NULL);
}

/* ===============================================================================================================
   >>optim - optimizers: all parameters of one element type in one launch, state and schedule on the device.
   =============================================================================================================== */

/*  A row of the table that the kernels read; kernels/optim.cu has the same. */
typedef struct ignis__optim_row {
    ignis__address data, grad, first, second, master;
    int64_t count, chunk, first_block;
    double decay;
} ignis__optim_row;

enum { /* the state in device memory; kernels/optim.cu has the same */
       IGNIS__OPTIM_BASE_LR,
       IGNIS__OPTIM_CLIP_NEXT,
       IGNIS__OPTIM_NORM,
       IGNIS__OPTIM_STEP,
       IGNIS__OPTIM_CLIP,
       IGNIS__OPTIM_LR,
       IGNIS__OPTIM_STATES = 8
};

#define IGNIS__OPTIM_BATCH 56 /* rows that one launch carries to the table */

typedef struct ignis__optim_batch {
    ignis__optim_row rows[IGNIS__OPTIM_BATCH];
} ignis__optim_batch;

typedef struct ignis__parameter {
    ignis__tensor *tensor; /* held */
    ignis__array *data;    /* claimed, as are these; null without */
    ignis__array *first, *second, *master;
    double decay;
} ignis__parameter;

typedef struct ignis__optimizer {
    ignis__slot slot; /* first; its lock guards the rest */
    ignis__device *device;
    bool adamw, no_master, zero_grad;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    ignis_schedule_desc schedule;
    ignis__parameter *parameters;
    int count, capacity;
    ignis__array *state;      /* f64; claimed */
    ignis__array *table;      /* rows, as bytes; claimed, null before the first step */
    ignis__capture *table_of; /* the capture that it was made for, and that alone uses it; null: none */
    ignis__optim_row *rows;   /* what the table holds, in the order of element types */
    int row_count;
    bool is_written; /* the table holds them */
    int rows_of[IGNIS_DTYPE_COUNT];
    int64_t blocks_of[IGNIS_DTYPE_COUNT];
} ignis__optimizer;

static ignis__pool ignis__optimizers = IGNIS__POOL(ignis__optimizer, IGNIS__KIND_OPTIMIZER, "optimizer", IGNIS_DIAG_OPTIMIZER_FREED);

IGNIS__ONE_COPY static void ignis__optimizer_unclaim(const char *call, ignis__array **array)
{
    if (*array)
        ignis__array_unclaim(call, *array);
    *array = NULL;
}

static void ignis__parameter_end(const char *call, ignis__parameter *parameter)
{
    ignis__optimizer_unclaim(call, &parameter->data);
    ignis__optimizer_unclaim(call, &parameter->first);
    ignis__optimizer_unclaim(call, &parameter->second);
    ignis__optimizer_unclaim(call, &parameter->master);
    if (parameter->tensor)
        ignis__tensor_drop(call, parameter->tensor);
    parameter->tensor = NULL;
}

static void ignis__optimizer_drop(const char *call, ignis__optimizer *optimizer)
{
    int i;
    if (!ignis__pool_drop(optimizer))
        return;
    for (i = 0; i < optimizer->count; i++)
        ignis__parameter_end(call, &optimizer->parameters[i]);
    ignis__optimizer_unclaim(call, &optimizer->state);
    ignis__optimizer_unclaim(call, &optimizer->table);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    ignis__pool_give(&ignis__optimizers, optimizer);
}

static ignis__optimizer *ignis__optimizer_hold(const char *call, ignis_optimizer handle)
{
    return (ignis__optimizer *)ignis__handle_hold(call, &ignis__optimizers, handle.id);
}

/*  A new array that belongs to the optimizer, like one that is given but of another dtype: zero. On failure it may be there, and is the
    caller's to end. */
static bool ignis__optimizer_array(const char *call, const ignis__array *like, ignis_dtype dtype, ignis__array **claimed)
{
    ignis_array made = ignis__array_create_like(call, like, dtype);
    *claimed = ignis__array_adopt(call, made);
    return *claimed && ignis__array_set_zero(call, made) == IGNIS_OK;
}

/*  Adds the optimizers that an array belongs to to a text; returns how often. */
static int ignis__optimizers_claiming(ignis__text *text, const ignis__array *array)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    int count = 0, i;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__mutex_lock(&optimizer->slot.lock);
        for (i = 0; i < optimizer->count; i++) {
            if (optimizer->parameters[i].data != array)
                continue;
            ignis__text_add(text, ", an optimizer changes it");
            count++;
        }
        ignis__mutex_unlock(&optimizer->slot.lock);
        ignis__optimizer_drop("ignis_array_free", optimizer);
    }
    return count;
}

/* --- making one ------------------------------------------------------------------------------------------------------ */

/*  The state of a new optimizer, on the thread's current device. */
static bool ignis__optimizer_start(const char *call, ignis__optimizer *optimizer)
{
    double state[IGNIS__OPTIM_STATES];
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(state, 0, sizeof state);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = IGNIS__OPTIM_STATES;
    desc.dtype = IGNIS_F64;
    desc.tag = "optimizer";
    state[IGNIS__OPTIM_BASE_LR] = optimizer->lr;
    state[IGNIS__OPTIM_CLIP_NEXT] = state[IGNIS__OPTIM_CLIP] = 1;
    optimizer->state = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!optimizer->state)
        return false;
    optimizer->device = optimizer->state->storage->device;
    if (ignis__array_from_host(call, optimizer->state, state, IGNIS_F64) == IGNIS_OK)
        return true;
    ignis__optimizer_unclaim(call, &optimizer->state);
    return false;
}

IGNIS__ONE_COPY static bool ignis__optimizer_number(const char *call, const char *name, double value, double low, double below)
{
    if (value >= low && value < below)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "%s is %g, outside %g to below %g", name, value, low, below);
    return false;
}

static double ignis__default(double value, double otherwise) { return value == 0 ? otherwise : value; }

/*  Checks what all optimizers have in common, and makes one from a filled template. */
IGNIS__COLD static ignis_optimizer ignis__optimizer_make(const char *call, const ignis__optimizer *given)
{
    ignis_optimizer handle = IGNIS__ZERO;
    const ignis_schedule_desc *schedule = &given->schedule;
    const double no_limit = 1e300;
    ignis__optimizer *optimizer;
    ignis__slot slot;
    if (!ignis__optimizer_number(call, "lr", given->lr, 0, no_limit) || !ignis__optimizer_number(call, "beta1", given->beta1, 0, 1) ||
        !ignis__optimizer_number(call, "beta2", given->beta2, 0, 1) || !ignis__optimizer_number(call, "eps", given->eps, 0, no_limit) ||
        !ignis__optimizer_number(call, "weight_decay", given->weight_decay, 0, no_limit) ||
        !ignis__optimizer_number(call, "momentum", given->momentum, 0, no_limit) ||
        !ignis__optimizer_number(call, "schedule.floor", schedule->floor, 0, no_limit) ||
        !ignis__optimizer_number(call, "schedule.warmup", (double)schedule->warmup, 0, no_limit))
        return handle;
    if ((int)schedule->kind < IGNIS_SCHEDULE_CONSTANT || schedule->kind > IGNIS_SCHEDULE_LINEAR) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no schedule %d; IGNIS_SCHEDULE_CONSTANT to _LINEAR are 0 to 2",
                    (int)schedule->kind);
        return handle;
    }
    if (schedule->kind != IGNIS_SCHEDULE_CONSTANT && schedule->total <= schedule->warmup) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "schedule.total is %lld, which is not above schedule.warmup, %lld",
                    (long long)schedule->total, (long long)schedule->warmup);
        return handle;
    }
    optimizer = (ignis__optimizer *)ignis__pool_take(call, &ignis__optimizers);
    if (!optimizer)
        return handle;
    slot = optimizer->slot;
    *optimizer = *given;
    optimizer->slot = slot;
    if (!ignis__optimizer_start(call, optimizer)) {
        ignis__pool_give(&ignis__optimizers, optimizer);
        return handle;
    }
    handle.id = ignis__pool_publish(&ignis__optimizers, optimizer);
    return handle;
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc)
{
    static const char call[] = "ignis_adamw";
    ignis_optimizer none = IGNIS__ZERO;
    ignis_adamw_desc d;
    ignis__optimizer given;
    if (!ignis__enter(call))
        return none;
    memset(&d, 0, sizeof d);
    memset(&given, 0, sizeof given);
    if (desc)
        d = *desc;
    given.adamw = true;
    given.no_master = d.no_master;
    given.zero_grad = d.zero_grad;
    given.lr = ignis__default(d.lr, 1e-3);
    given.beta1 = ignis__default(d.beta1, 0.9);
    given.beta2 = ignis__default(d.beta2, 0.999);
    given.eps = ignis__default(d.eps, 1e-8);
    given.weight_decay = d.weight_decay;
    given.schedule = d.schedule;
    return ignis__optimizer_make(call, &given);
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc)
{
    static const char call[] = "ignis_sgd";
    ignis_optimizer none = IGNIS__ZERO;
    ignis_sgd_desc d;
    ignis__optimizer given;
    if (!ignis__enter(call))
        return none;
    memset(&d, 0, sizeof d);
    memset(&given, 0, sizeof given);
    if (desc)
        d = *desc;
    given.no_master = d.no_master;
    given.zero_grad = d.zero_grad;
    given.lr = ignis__default(d.lr, 1e-3);
    given.momentum = d.momentum;
    given.weight_decay = d.weight_decay;
    given.schedule = d.schedule;
    return ignis__optimizer_make(call, &given);
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer handle)
{
    static const char call[] = "ignis_optimizer_free";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    bool live;
    if (!optimizer)
        return ignis__failed();
    live = ignis__handle_kill(optimizer);
    ignis__optimizer_drop(call, optimizer);
    return live ? IGNIS_OK : ignis__fail(IGNIS_DIAG_OPTIMIZER_FREED, call, "another thread has freed the optimizer");
}

/*  Ends every optimizer; for ignis_shutdown, before tensors end. */
static void ignis__optimizers_close(const char *call)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "optimizer: %s of %d parameter%s on device %d",
                           optimizer->adamw ? "adamw" : "sgd", optimizer->count, optimizer->count == 1 ? "" : "s",
                           (int)(optimizer->device - ignis__devices));
        ignis__handle_kill(optimizer);
        ignis__optimizer_drop(call, optimizer);
    }
}

/* --- parameters ------------------------------------------------------------------------------------------------------ */

IGNIS__COLD static bool ignis__parameter_check(const char *call, const ignis__optimizer *optimizer, ignis__tensor *tensor)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    int i;
    if (!standing.leaf || !standing.requires_grad) {
        ignis__fail(IGNIS_DIAG_PARAMETER_KIND, call, "the tensor, %s, %s", ignis__shape_write(&tensor->shape).text,
                    standing.leaf ? "requires no gradient" : "is the result of an operation");
        return false;
    }
    if (tensor->device != optimizer->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the tensor is on device %d, the optimizer is on device %d",
                    (int)(tensor->device - ignis__devices), (int)(optimizer->device - ignis__devices));
        return false;
    }
    for (i = 0; i < optimizer->count; i++) {
        if (optimizer->parameters[i].tensor == tensor) {
            ignis__fail(IGNIS_DIAG_PARAMETER_KIND, call, "the tensor, %s, was added already, as parameter %d",
                        ignis__shape_write(&tensor->shape).text, i);
            return false;
        }
    }
    return true;
}

/*  Room for one more parameter. */
static bool ignis__optimizer_grow(const char *call, ignis__optimizer *optimizer)
{
    int wanted = optimizer->capacity ? 2 * optimizer->capacity : 16;
    ignis__parameter *parameters;
    ignis__optim_row *rows;
    if (optimizer->count < optimizer->capacity)
        return true;
    parameters = (ignis__parameter *)ignis__alloc(sizeof *parameters * (size_t)wanted);
    rows = (ignis__optim_row *)ignis__alloc(sizeof *rows * (size_t)wanted);
    if (!parameters || !rows) {
        ignis__free(parameters);
        ignis__free(rows);
        ignis__fail_host_memory(call, (sizeof *parameters + sizeof *rows) * (size_t)wanted);
        return false;
    }
    memset(parameters, 0, sizeof *parameters * (size_t)wanted);
    if (optimizer->count)
        memcpy(parameters, optimizer->parameters, sizeof *parameters * (size_t)optimizer->count);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    optimizer->parameters = parameters;
    optimizer->rows = rows;
    optimizer->row_count = 0;
    optimizer->is_written = false;
    optimizer->capacity = wanted;
    ignis__optimizer_unclaim(call, &optimizer->table); /* made anew, larger, at the next step */
    return true;
}

/*  Takes a tensor in; what the parameter has got by the time of a failure is the caller's to end. */
static bool ignis__parameter_start(const char *call, const ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    ignis_dtype dtype = parameter->tensor->dtype, wide = ignis__wide_dtype(dtype);
    ignis__array *data = ignis__tensor_array(call, parameter->tensor);
    bool ok;
    if (!data)
        return false;
    ignis__array_claim(data);
    parameter->data = data;
    ignis__array_drop(call, data);
    ok = (!optimizer->adamw && optimizer->momentum == 0) || ignis__optimizer_array(call, data, wide, &parameter->first);
    ok = ok && (!optimizer->adamw || ignis__optimizer_array(call, data, wide, &parameter->second));
    if (ok && dtype != wide && !optimizer->no_master)
        ok = ignis__optimizer_array(call, data, wide, &parameter->master) && ignis__array_convert(call, parameter->master, data);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer handle, ignis_tensor tensor, bool decay)
{
    static const char call[] = "ignis_optimizer_add";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__parameter *parameter;
    ignis__tensor *held;
    bool ok;
    if (!optimizer)
        return ignis__failed();
    held = ignis__capture_refuses(call) ? NULL : ignis__tensor_hold(call, tensor);
    if (!held) {
        ignis__optimizer_drop(call, optimizer);
        return ignis__failed();
    }
    ignis__mutex_lock(&optimizer->slot.lock);
    ok = ignis__parameter_check(call, optimizer, held) && ignis__optimizer_grow(call, optimizer);
    if (ok) {
        parameter = &optimizer->parameters[optimizer->count];
        memset(parameter, 0, sizeof *parameter);
        parameter->tensor = held;
        parameter->decay = decay ? optimizer->weight_decay : 0;
        held = NULL;
        ok = ignis__parameter_start(call, optimizer, parameter);
        if (ok)
            optimizer->count++;
        else
            ignis__parameter_end(call, parameter);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    if (held)
        ignis__tensor_drop(call, held);
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

/*  What a call on an optimizer writes to, beside the state. */
typedef enum ignis__optim_writes { IGNIS__WRITES_DATA = 1, IGNIS__WRITES_GRADS = 2 } ignis__optim_writes;

/*  The row of a parameter; false without failure in *ok when it has no gradient, or no elements. */
static bool ignis__parameter_row(const ignis__work *work, const ignis__parameter *parameter, unsigned writes, ignis__optim_row *row,
                                 bool *ok)
{
    ignis__array *grad = NULL;
    memset(row, 0, sizeof *row);
    ignis__mutex_lock(&parameter->tensor->slot.lock);
    if (parameter->tensor->grad)
        grad = (ignis__array *)ignis__pool_hold(&ignis__arrays, parameter->tensor->grad->slot.handle);
    ignis__mutex_unlock(&parameter->tensor->slot.lock);
    if (!grad)
        return false;
    row->count = parameter->data->numel;
    row->decay = parameter->decay;
    *ok = ignis__work_read(work, grad, &row->grad) && ignis__work_read(work, parameter->data, &row->data) &&
          (!parameter->first || ignis__work_write(work, parameter->first, &row->first)) &&
          (!parameter->second || ignis__work_write(work, parameter->second, &row->second)) &&
          (!parameter->master || ignis__work_write(work, parameter->master, &row->master));
    if (*ok && writes & IGNIS__WRITES_DATA)
        ignis__storage_written(parameter->data->storage);
    if (*ok && writes & IGNIS__WRITES_GRADS)
        ignis__storage_written(grad->storage);
    ignis__array_drop(work->call, grad); /* the tensor has it, and keeps its memory */
    return *ok && row->count > 0;
}

/*  Writes rows to the table. They travel as parameters of a kernel, so nothing of the host's needs to stay. */
static bool ignis__optimizer_write(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {64, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_OPTIM_TABLE, dtype);
    ignis__optim_batch batch;
    ignis__address table;
    int at, some;
    void *params[] = {&table, &batch, &some};
    bool ok = function && ignis__work_write(work, optimizer->table, &table);
    for (at = 0; ok && at < count; at += some) {
        some = count - at < IGNIS__OPTIM_BATCH ? count - at : IGNIS__OPTIM_BATCH;
        memset(&batch, 0, sizeof batch);
        memcpy(batch.rows, optimizer->rows + at, sizeof *optimizer->rows * (size_t)some);
        ok = ignis__launch(work, function, grid, block, 0, params);
        table += sizeof *optimizer->rows * (uint64_t)some;
    }
    return ok;
}

static bool ignis__optimizer_table(const char *call, ignis__optimizer *optimizer)
{
    ignis_array_desc desc;
    if (optimizer->table)
        return true;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = (int64_t)sizeof *optimizer->rows * optimizer->capacity;
    desc.dtype = IGNIS_U8;
    desc.device = optimizer->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(optimizer->device - ignis__devices);
    desc.tag = "optimizer";
    optimizer->table = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return optimizer->table != NULL;
}

/*  Writes the first rows to the table; those of a capture to a table of its own, which its graph then finds as it is now. */
static bool ignis__optimizer_renew(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    ignis__capture *capture = ignis__capture_on(optimizer->device);
    ignis__work aside = *work;
    bool ok;
    if (capture || optimizer->table_of)
        ignis__optimizer_unclaim(work->call, &optimizer->table);
    optimizer->table_of = capture;
    if (!ignis__optimizer_table(work->call, optimizer))
        return false;
    capture = ignis__capture_pause();
    aside.stream = ignis__stream_now(work->device);
    ok = ignis__optimizer_write(&aside, optimizer, count, dtype);
    return ignis__capture_resume(work->call, capture) && ok;
}

/*  Brings the table up to date: the parameters that have a gradient, ordered by element type. */
static bool ignis__optimizer_gather(const ignis__work *work, ignis__optimizer *optimizer, unsigned writes)
{
    ignis_dtype dtype, some = IGNIS_F32;
    ignis__optim_row row;
    int i, count = 0;
    bool ok = true, changed = !optimizer->is_written || optimizer->table_of != ignis__capture_on(optimizer->device);
    memset(optimizer->rows_of, 0, sizeof optimizer->rows_of);
    memset(optimizer->blocks_of, 0, sizeof optimizer->blocks_of);
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        for (i = 0; ok && i < optimizer->count; i++) {
            if (optimizer->parameters[i].tensor->dtype != dtype ||
                !ignis__parameter_row(work, &optimizer->parameters[i], writes, &row, &ok))
                continue;
            row.chunk = row.count <= 128 * 1024 ? 1024 : 8192; /* small ones are spread: they take as long as one block does */
            row.first_block = optimizer->blocks_of[dtype];
            optimizer->blocks_of[dtype] += ignis__ceil_div(row.count, row.chunk);
            optimizer->rows_of[dtype]++;
            changed = changed || count >= optimizer->row_count || memcmp(&row, &optimizer->rows[count], sizeof row) != 0;
            optimizer->rows[count++] = row;
            some = dtype;
        }
    }
    ok = ok && (!changed || ignis__optimizer_renew(work, optimizer, count, some));
    optimizer->row_count = ok ? count : 0;
    optimizer->is_written = ok;
    return ok;
}

/*  Launches a kernel for the rows of every element type. params are its own; those at table_at and the one after become the rows and their count;
    where squares is not null it is set to its first block's. */
static bool ignis__optimizer_launch(const ignis__work *work, ignis__optimizer *optimizer, ignis__builtin builtin, int table_at,
                                    void **params, ignis__address *squares)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__address table;
    ignis_dtype dtype;
    void *function;
    int count;
    bool ok = ignis__work_write(work, optimizer->table, &table);
    params[table_at] = &table;
    params[table_at + 1] = &count;
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        count = optimizer->rows_of[dtype];
        if (!count)
            continue;
        ok = optimizer->blocks_of[dtype] <= INT32_MAX;
        if (!ok) {
            ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "the parameters are more than one launch can cover");
            break;
        }
        grid[0] = (unsigned)optimizer->blocks_of[dtype];
        function = ignis__builtin_get(work->call, work->device, builtin, dtype);
        ok = function && ignis__launch(work, function, grid, block, 0, params);
        table += sizeof *optimizer->rows * (uint64_t)count;
        if (squares)
            *squares += sizeof(double) * (uint64_t)optimizer->blocks_of[dtype];
    }
    params[table_at] = params[table_at + 1] = NULL;
    return ok;
}

/*  Holds and locks an optimizer, enters its device and gathers the table. On failure nothing is held. */
static ignis__optimizer *ignis__optimizer_begin(const char *call, ignis_optimizer handle, unsigned writes, ignis__work *work)
{
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    if (!optimizer)
        return NULL;
    ignis__mutex_lock(&optimizer->slot.lock);
    if (optimizer->count == 0) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the optimizer has no parameters; ignis_optimizer_add gives it some");
    } else if (ignis__work_begin(call, optimizer->device, work)) {
        if (writes & IGNIS__WRITES_DATA && optimizer->zero_grad)
            writes |= IGNIS__WRITES_GRADS;
        if (ignis__optimizer_gather(work, optimizer, writes))
            return optimizer;
        ignis__work_end(work);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return NULL;
}

static ignis_status ignis__optimizer_end(ignis__optimizer *optimizer, const ignis__work *work, bool ok)
{
    ignis__work_end(work);
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(work->call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  An element type that the step compiles anyway, for the kernels that do not care. */
static ignis_dtype ignis__optimizer_dtype(const ignis__optimizer *optimizer)
{
    ignis_dtype dtype = IGNIS_F16;
    while (dtype < IGNIS_F64 && !optimizer->rows_of[dtype])
        dtype = (ignis_dtype)(dtype + 1);
    return dtype;
}

/* --- step, clipping, zero -------------------------------------------------------------------------------------------- */

static bool ignis__optimizer_advance(const ignis__work *work, ignis__optimizer *optimizer, ignis__address *state)
{
    unsigned one[3] = {1, 1, 1};
    int schedule = (int)optimizer->schedule.kind;
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN_OPTIM_ADVANCE, ignis__optimizer_dtype(optimizer));
    void *params[] = {state,
                      &optimizer->beta1,
                      &optimizer->beta2,
                      &schedule,
                      &optimizer->schedule.warmup,
                      &optimizer->schedule.total,
                      &optimizer->schedule.floor};
    return function && ignis__launch(work, function, one, one, 0, params);
}

IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer handle)
{
    ignis__work work;
    ignis__optimizer *optimizer = ignis__optimizer_begin("ignis_optimizer_step", handle, IGNIS__WRITES_DATA, &work);
    ignis__address state;
    int zero_grad;
    void *adamw[] = {NULL, NULL, &state, NULL, NULL, NULL, &zero_grad}, *sgd[] = {NULL, NULL, &state, NULL, &zero_grad};
    bool ok;
    if (!optimizer)
        return ignis__failed();
    zero_grad = optimizer->zero_grad;
    adamw[3] = &optimizer->beta1;
    adamw[4] = &optimizer->beta2;
    adamw[5] = &optimizer->eps;
    sgd[3] = &optimizer->momentum;
    ok = optimizer->row_count == 0 ||
         (ignis__work_write(&work, optimizer->state, &state) && ignis__optimizer_advance(&work, optimizer, &state) &&
          (optimizer->adamw ? ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_ADAMW, 0, adamw, NULL)
                            : ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_SGD, 0, sgd, NULL)));
    return ignis__optimizer_end(optimizer, &work, ok);
}

IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer handle)
{
    ignis__work work;
    ignis__optimizer *optimizer = ignis__optimizer_begin("ignis_optimizer_zero_grad", handle, IGNIS__WRITES_GRADS, &work);
    void *params[2];
    if (!optimizer)
        return ignis__failed();
    return ignis__optimizer_end(optimizer, &work, ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_GRAD_ZERO, 0, params, NULL));
}

IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer handle, double max_norm)
{
    static const char call[] = "ignis_clip_grad_norm";
    unsigned one[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__work work;
    ignis__optimizer *optimizer;
    ignis__storage *storage;
    ignis__address state, squares, at;
    uint64_t base;
    int64_t blocks = 0;
    int dtype;
    void *sums[] = {&at, NULL, NULL}, *clip[] = {&state, &squares, &blocks, &max_norm}, *function;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!(max_norm > 0))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "max_norm is %g, which is not above 0", max_norm);
    optimizer = ignis__optimizer_begin(call, handle, IGNIS__WRITES_GRADS, &work);
    if (!optimizer)
        return ignis__failed();
    for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
        blocks += optimizer->blocks_of[dtype];
    storage = blocks ? ignis__storage_make(call, work.device, blocks * (int64_t)sizeof(double)) : NULL;
    ok = blocks == 0;
    if (storage)
        ignis__atomic_add(&storage->users, 1); /* this call */
    if (storage && ignis__storage_use(call, storage, work.device, work.stream, &base)) {
        squares = at = base;
        ok = ignis__work_write(&work, optimizer->state, &state) &&
             ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN_GRAD_SQUARES, 1, sums, &at);
        function = ok ? ignis__builtin_get(call, work.device, IGNIS__BUILTIN_GRAD_CLIP, ignis__optimizer_dtype(optimizer)) : NULL;
        ok = function && ignis__launch(&work, function, one, block, 0, clip);
    }
    if (storage)
        ignis__storage_drop(call, storage);
    return ignis__optimizer_end(optimizer, &work, ok);
}

/* --- looking at and changing the state ------------------------------------------------------------------------------- */

IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer handle, double lr)
{
    static const char call[] = "ignis_optimizer_set_lr";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis_array view = IGNIS__ZERO;
    ignis__array *array;
    ignis_shape one;
    bool ok;
    if (!optimizer)
        return ignis__failed();
    memset(&one, 0, sizeof one);
    one.ndim = 1;
    one.dim[0] = 1;
    ok = ignis__optimizer_number(call, "lr", lr, 0, 1e300);
    if (ok)
        view = ignis__array_view(call, optimizer->state, &one, 1, IGNIS__OPTIM_BASE_LR * (int64_t)sizeof(double));
    ok = view.id != 0;
    if (ok) {
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, view.id);
        ok = ignis__array_from_host(call, array, &lr, IGNIS_F64) == IGNIS_OK;
        ignis__array_discard(call, &view);
        ignis__array_drop(call, array);
    }
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer handle, ignis_optimizer_info *info)
{
    static const char call[] = "ignis_optimizer_query";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    double state[IGNIS__OPTIM_STATES];
    ignis_status status;
    if (!optimizer)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        status = ignis__array_to_host(call, optimizer->state, state, IGNIS_F64);
        if (status == IGNIS_OK) {
            info->step = (int64_t)state[IGNIS__OPTIM_STEP];
            info->lr = state[IGNIS__OPTIM_LR];
            info->grad_norm = state[IGNIS__OPTIM_NORM];
            ignis__mutex_lock(&optimizer->slot.lock);
            info->parameters = optimizer->count;
            ignis__mutex_unlock(&optimizer->slot.lock);
        }
    }
    ignis__optimizer_drop(call, optimizer);
    return status;
}

IGNIS__COLD IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer handle, int parameter, ignis_optimizer_part part)
{
    static const char call[] = "ignis_optimizer_state";
    ignis_array none = IGNIS__ZERO;
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    const ignis__parameter *p;
    const ignis__array *array = NULL;
    if (!optimizer)
        return none;
    ignis__mutex_lock(&optimizer->slot.lock);
    if ((int)part < IGNIS_OPTIMIZER_SELF || part > IGNIS_OPTIMIZER_MASTER) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no part %d; IGNIS_OPTIMIZER_SELF to _MASTER are 0 to 3", (int)part);
    } else if (part == IGNIS_OPTIMIZER_SELF) {
        array = optimizer->state;
    } else if (parameter < 0 || parameter >= optimizer->count) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "parameter is %d, outside 0 to %d", parameter, optimizer->count - 1);
    } else {
        p = &optimizer->parameters[parameter];
        array = part == IGNIS_OPTIMIZER_FIRST ? p->first : part == IGNIS_OPTIMIZER_SECOND ? p->second : p->master;
    }
    if (array)
        none.id = array->slot.handle;
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return none;
}

/* ===============================================================================================================
   >>graph - CUDA graphs: capture and replay.
   =============================================================================================================== */

typedef struct ignis__graph {
    ignis__slot slot;
    void *exec;              /* CUgraphExec */
    ignis__capture *capture; /* what it was made of */
} ignis__graph;

static ignis__pool ignis__graphs = IGNIS__POOL(ignis__graph, IGNIS__KIND_GRAPH, "graph", IGNIS_DIAG_GRAPH_FREED);

/*  Takes apart what a capture has become; exec may be null. The device is idle, and what the capture took of its memory goes to Ignis' own stream. */
IGNIS__COLD static void ignis__graph_destroy(const char *call, ignis__capture *capture, void *exec)
{
    if (exec)
        (void)IGNIS__CUDA(cuGraphExecDestroy, (exec));
    ignis__memory_forget_stream(capture->device, capture);
    ignis__capture_destroy(call, capture);
}

static ignis__graph *ignis__graph_hold(const char *call, ignis_graph handle)
{
    return (ignis__graph *)ignis__handle_hold(call, &ignis__graphs, handle.id);
}

static void ignis__graph_drop(const char *call, ignis__graph *graph)
{
    ignis__device *device = graph->capture->device;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered;
    if (!ignis__pool_drop(graph))
        return;
    entered = !lost && ignis__device_enter(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    if (entered || lost)
        ignis__graph_destroy(call, graph->capture, lost ? NULL : graph->exec);
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_give(&ignis__graphs, graph);
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_begin(void)
{
    static const char call[] = "ignis_graph_begin";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capturing())
        return ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures already; call ignis_graph_end first");
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return ignis__failed();
    /* trimmed, as what earlier graphs left can become memory of this one */
    ok = ignis__device_wait(call, device) && ignis__cache_trim(call, device, &ignis__caches[device - ignis__devices]) >= 0 &&
         ignis__capture_begin(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_graph ignis_graph_end(void)
{
    static const char call[] = "ignis_graph_end";
    ignis_graph handle = IGNIS__ZERO;
    ignis__capture *capture;
    ignis__graph *graph = NULL;
    ignis__binding binding;
    void *exec;
    bool entered;
    if (!ignis__enter(call))
        return handle;
    capture = ignis__capturing();
    if (!capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures nothing; call ignis_graph_begin first");
        return handle;
    }
    entered = ignis__device_enter(call, capture->device, &binding);
    exec = ignis__capture_end(call, capture); /* without the device too, as the capture has to end; then it gives no graph */
    if (exec && entered)
        graph = (ignis__graph *)ignis__pool_take(call, &ignis__graphs);
    if (graph) {
        graph->exec = exec;
        graph->capture = capture;
        handle.id = ignis__pool_publish(&ignis__graphs, graph);
    } else {
        ignis__graph_destroy(call, capture, exec);
    }
    if (entered)
        ignis__device_leave(&binding);
    return handle;
}

/*  False, and reported: the stream is captured, by whomever. The driver would refuse a launch into it, and spoil the capture. */
static bool ignis__graph_launchable(const char *call, ignis__device *device, void *stream)
{
    int captures = 0;
    if (IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &captures)))
        return false;
    if (captures)
        ignis__fail(
            IGNIS_DIAG_CAPTURE_REFUSED, call,
            "the current stream is being captured, and CUDA puts no graph into another one: launch it before the capture begins or after "
            "it ends, or capture the same work again");
    return !captures;
}

IGNIS_API ignis_status ignis_graph_launch(ignis_graph handle)
{
    static const char call[] = "ignis_graph_launch";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    const ignis__held *held;
    ignis__work work;
    ignis__device *device;
    bool ok = false;
    if (!graph)
        return ignis__failed();
    device = graph->capture->device;
    if (ignis__thread_now()->device != (int)(device - ignis__devices))
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the graph is for device %d, device %d is current", (int)(device - ignis__devices),
                    ignis__thread_now()->device);
    else if (ignis__work_begin(call, device, &work)) {
        ok = ignis__graph_launchable(call, device, work.stream) &&
             !IGNIS__CUDA_FAILED(call, device, cuGraphLaunch, (graph->exec, work.stream));
        if (ok)
            ignis__atomic_add(&graph->capture->replays->count, 1);
        for (held = ok ? graph->capture->held : NULL; held; held = held->next) {
            if (held->written)
                ignis__storage_written((ignis__storage *)held->item);
            if (held->lent)
                ignis__storage_lent((ignis__storage *)held->item);
        }
        ignis__work_end(&work);
    }
    ignis__graph_drop(call, graph);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_free(ignis_graph handle)
{
    static const char call[] = "ignis_graph_free";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!graph)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        status = ignis__failed();
    else if (!ignis__handle_kill(graph))
        status = ignis__fail(IGNIS_DIAG_GRAPH_FREED, call, "another thread has freed the graph");
    ignis__graph_drop(call, graph);
    return status;
}

static void ignis__graphs_close(const char *call)
{
    ignis__graph *graph;
    ignis__binding binding;
    uint64_t index = 0;
    while (ignis__captures.first) {
        ignis__capture *open = ignis__captures.first;
        bool entered = ignis__device_enter(call, open->device, &binding);
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "a capture on device %d that ignis_graph_end has not ended",
                           (int)(open->device - ignis__devices));
        ignis__graph_destroy(call, open, ignis__capture_end(call, open));
        if (entered)
            ignis__device_leave(&binding);
    }
    while ((graph = (ignis__graph *)ignis__pool_next(&ignis__graphs, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "graph on device %d", (int)(graph->capture->device - ignis__devices));
        ignis__handle_kill(graph);
        ignis__graph_drop(call, graph);
    }
}

/* ===============================================================================================================
   >>file - safetensors files, read and written.
   =============================================================================================================== */

/*  A file is the length of its header as 8 bytes, little-endian; the header, JSON; the data of all tensors, little-endian, row by row:
        {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    Offsets count from the end of the header. No byte of the data belongs to two tensors, and none to no tensor.
    github.com/huggingface/safetensors is the reference. */

#define IGNIS__HEADER_LIMIT 100000000 /* bytes, as in the reference */

/*  Every dtype of the format, in the reference's order of alignment: files are written from the last to the first. */
static const struct {
    const char *name;
    int bits;
    ignis_dtype dtype; /* 0: Ignis has none like it */
} ignis__stored_types[] = {
    {"BOOL", 8, IGNIS_DTYPE_DEFAULT},
    {"F4", 4, IGNIS_DTYPE_DEFAULT},
    {"F6_E2M3", 6, IGNIS_DTYPE_DEFAULT},
    {"F6_E3M2", 6, IGNIS_DTYPE_DEFAULT},
    {"U8", 8, IGNIS_U8},
    {"I8", 8, IGNIS_DTYPE_DEFAULT},
    {"F8_E5M2", 8, IGNIS_DTYPE_DEFAULT},
    {"F8_E4M3", 8, IGNIS_DTYPE_DEFAULT},
    {"F8_E8M0", 8, IGNIS_DTYPE_DEFAULT},
    {"F8_E4M3FNUZ", 8, IGNIS_DTYPE_DEFAULT},
    {"F8_E5M2FNUZ", 8, IGNIS_DTYPE_DEFAULT},
    {"I16", 16, IGNIS_DTYPE_DEFAULT},
    {"U16", 16, IGNIS_DTYPE_DEFAULT},
    {"F16", 16, IGNIS_F16},
    {"BF16", 16, IGNIS_BF16},
    {"I32", 32, IGNIS_I32},
    {"U32", 32, IGNIS_DTYPE_DEFAULT},
    {"F32", 32, IGNIS_F32},
    {"C64", 64, IGNIS_DTYPE_DEFAULT},
    {"F64", 64, IGNIS_F64},
    {"I64", 64, IGNIS_I64},
    {"U64", 64, IGNIS_DTYPE_DEFAULT},
};

/*  One tensor of a file. */
typedef struct ignis__stored {
    const char *name;
    int type; /* in ignis__stored_types */
    ignis_shape shape;
    int64_t begin, end; /* of its bytes in the data */
    int index;          /* in the caller's list, when a file is written */
} ignis__stored;

/* --- text in UTF-8 and JSON -------------------------------------------------------------------------------------- */

/*  Bytes of the character at the beginning of a text of `size` bytes; 0 when it is not well-formed UTF-8 (Unicode, table 3-7). */
IGNIS__COLD static int ignis__utf8_length(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    int length, i;
    if (size == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xC2 || byte[0] > 0xF4)
        return 0;
    length = byte[0] < 0xE0 ? 2 : byte[0] < 0xF0 ? 3 : 4;
    if ((size_t)length > size)
        return 0;
    if (byte[0] == 0xE0)
        low = 0xA0; /* shorter forms exist */
    else if (byte[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (byte[0] == 0xF0)
        low = 0x90;
    else if (byte[0] == 0xF4)
        high = 0x8F; /* beyond U+10FFFF */
    if (byte[1] < low || byte[1] > high)
        return 0;
    for (i = 2; i < length; i++)
        if ((byte[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

static bool ignis__utf8_valid(const char *text)
{
    size_t left = strlen(text);
    int length;
    for (; left > 0; text += length, left -= (size_t)length)
        if ((length = ignis__utf8_length(text, left)) == 0)
            return false;
    return true;
}

/*  The longest beginning of a text, in whole characters, that fits into so many bytes. */
static size_t ignis__utf8_cut(const char *text, size_t limit)
{
    size_t size = strlen(text), cut = 0, length;
    while (cut < size && (length = (size_t)ignis__utf8_length(text + cut, size - cut)) > 0 && cut + length <= limit)
        cut += length;
    return cut;
}

/*  A name for a message, in a struct, so that a message can hold several: in quotes, cut, and nothing in it that a terminal obeys. */
typedef struct ignis__name_text {
    char text[80];
} ignis__name_text;

IGNIS__COLD static ignis__name_text ignis__name_write(const char *name)
{
    ignis__name_text out;
    size_t cut = ignis__utf8_cut(name, sizeof out.text - 8), i;
    memset(&out, 0, sizeof out);
    out.text[0] = '\'';
    for (i = 0; i < cut; i++)
        out.text[i + 1] = (unsigned char)name[i] < ' ' || name[i] == 0x7F ? '?' : name[i];
    memcpy(out.text + cut + 1, name[cut] ? "...'" : "'", name[cut] ? 4 : 1);
    return out;
}

/*  A reader of JSON. The first fault is kept, and ends it: from there on every function fails, without a step ahead. Strings are decoded
    where they are: they become shorter, if anything. */
typedef struct ignis__json {
    char *start, *at, *end;
    char fault[256]; /* "" for none */
} ignis__json;

IGNIS__PRINTF(2, 3)
IGNIS__COLD static bool ignis__json_fail(ignis__json *json, const char *format, ...)
{
    ignis__text text;
    va_list args;
    if (json->fault[0])
        return false;
    ignis__text_begin(&text, json->fault, sizeof json->fault);
    ignis__text_add(&text, "at byte %lld of the header, ", (long long)(json->at - json->start));
    va_start(args, format);
    ignis__text_addv(&text, format, args);
    va_end(args);
    return false;
}

/*  The next character behind white space; 0 at the end. */
IGNIS__COLD static char ignis__json_peek(ignis__json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
    return json->at < json->end ? *json->at : 0;
}

IGNIS__ONE_COPY static bool ignis__json_take(ignis__json *json, char wanted)
{
    if (json->fault[0] || ignis__json_peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

static bool ignis__json_expect(ignis__json *json, char wanted)
{
    return ignis__json_take(json, wanted) || ignis__json_fail(json, "a %c is missing", wanted);
}

/*  Whether another element follows in an object or array that ends with `close`, and steps over what is before it. *first is true behind
    the opening bracket. */
IGNIS__COLD static bool ignis__json_more(ignis__json *json, char close, bool *first)
{
    bool behind_element = !*first;
    *first = false;
    if (json->fault[0] || ignis__json_take(json, close))
        return false;
    if (behind_element && !ignis__json_take(json, ','))
        return ignis__json_fail(json, "a comma or %c is missing", close);
    return true;
}

/*  The number of four hexadecimal digits; -1 when they are not. */
IGNIS__COLD static int ignis__json_hex(ignis__json *json)
{
    int value = 0, i;
    if (json->end - json->at < 4)
        return -1;
    for (i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/*  Writes the character that an escape, behind its backslash, stands for; the place behind it. */
static char *ignis__json_escape(ignis__json *json, char *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *known = json->at < json->end && *json->at ? strchr(names, *json->at) : NULL;
    int code, low;
    if (known) {
        json->at++;
        *out++ = values[known - names];
        return out;
    }
    if (json->at == json->end || *json->at != 'u') {
        ignis__json_fail(json, "a backslash begins no escape");
        return out;
    }
    json->at++;
    code = ignis__json_hex(json);
    if (code >= 0xD800 && code < 0xDC00) { /* the first half of a pair */
        low = json->end - json->at >= 2 && json->at[0] == '\\' && json->at[1] == 'u' ? (json->at += 2, ignis__json_hex(json)) : -1;
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : -1;
    } else if (code >= 0xDC00 && code < 0xE000) {
        code = -1;
    }
    if (code < 0) {
        ignis__json_fail(json, "\\u is not followed by the four digits of a character, or of two surrogates in their order");
    } else if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

/*  A string, decoded and ended with a 0; *size tells of those inside. "" after a fault. */
IGNIS__COLD static const char *ignis__json_string(ignis__json *json, size_t *size)
{
    char *text, *out;
    int length;
    *size = 0;
    if (!ignis__json_take(json, '"')) {
        ignis__json_fail(json, "a string is missing");
        return "";
    }
    text = out = json->at;
    while (!json->fault[0] && json->at < json->end && *json->at != '"') {
        if (*json->at == '\\') {
            json->at++;
            out = ignis__json_escape(json, out);
        } else if ((unsigned char)*json->at < ' ') {
            ignis__json_fail(json, "a string holds the control character 0x%02x, which has to be escaped",
                             (unsigned)(unsigned char)*json->at);
        } else if ((length = ignis__utf8_length(json->at, (size_t)(json->end - json->at))) == 0) {
            ignis__json_fail(json, "a string is not well-formed UTF-8");
        } else {
            memmove(out, json->at, (size_t)length);
            json->at += length;
            out += length;
        }
    }
    if (json->at == json->end)
        ignis__json_fail(json, "the header ends inside a string");
    if (json->fault[0])
        return "";
    json->at++;
    *out = 0; /* at the closing quote, or before it */
    *size = (size_t)(out - text);
    return text;
}

/*  A whole number that is not negative and fits 63 bits; 0 after a fault. */
IGNIS__COLD static int64_t ignis__json_count(ignis__json *json)
{
    int64_t value = 0;
    const char *digits;
    char c = ignis__json_peek(json);
    if (c < '0' || c > '9') {
        ignis__json_fail(json, "a whole number, not below 0, is missing");
        return 0;
    }
    for (digits = json->at; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        if (value > (INT64_MAX - (*json->at - '0')) / 10) {
            ignis__json_fail(json, "a number does not fit 63 bits");
            return 0;
        }
        value = value * 10 + (*json->at - '0');
    }
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        ignis__json_fail(json, "a number is not whole");
    else if (*digits == '0' && json->at - digits > 1)
        ignis__json_fail(json, "a number begins with 0");
    return json->fault[0] ? 0 : value;
}

/*  Steps over the digits of a number; false when there are none. */
static bool ignis__json_digits(ignis__json *json)
{
    const char *digits = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > digits;
}

/*  Steps over true, false, null, a number or a string. */
static void ignis__json_skip_scalar(ignis__json *json)
{
    static const char *const words[] = {"true", "false", "null"};
    char c = ignis__json_peek(json);
    size_t size;
    bool ok;
    int i;
    if (c == '"') {
        ignis__json_string(json, &size);
        return;
    }
    for (i = 0; i < IGNIS__COUNT(words); i++) {
        size = strlen(words[i]);
        if ((size_t)(json->end - json->at) >= size && memcmp(json->at, words[i], size) == 0) {
            json->at += size;
            return;
        }
    }
    if (c == '-')
        json->at++;
    if (json->at < json->end && *json->at == '0')
        ok = (json->at++, true);
    else
        ok = ignis__json_digits(json);
    if (ok && json->at < json->end && *json->at == '.')
        ok = (json->at++, ignis__json_digits(json));
    if (ok && json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        ok = ignis__json_digits(json);
    }
    if (!ok)
        ignis__json_fail(json, "there is no value");
}

#define IGNIS__JSON_DEPTH 64

/*  Steps over a value of any kind. */
static void ignis__json_skip(ignis__json *json)
{
    uint64_t objects = 0; /* what is open, the innermost in the lowest bit: 1 for an object, 0 for an array */
    int depth = 0;
    size_t size;
    while (!json->fault[0]) {
        char c = ignis__json_peek(json);
        bool first = c == '{' || c == '[';
        if (first && depth == IGNIS__JSON_DEPTH) {
            ignis__json_fail(json, "values are nested deeper than %d", IGNIS__JSON_DEPTH);
        } else if (first) {
            json->at++;
            objects = objects << 1 | (uint64_t)(c == '{');
            depth++;
        } else {
            ignis__json_skip_scalar(json);
        }
        while (depth > 0 && !ignis__json_more(json, objects & 1 ? '}' : ']', &first)) {
            objects >>= 1;
            depth--;
        }
        if (depth == 0)
            return;
        if (objects & 1) {
            ignis__json_string(json, &size);
            ignis__json_expect(json, ':');
        }
    }
}

/* --- the header: read ---------------------------------------------------------------------------------------------- */

/*  What is in a file. */
typedef struct ignis__safetensors {
    char *header; /* a copy; the names are in it */
    ignis__stored *items;
    int count, capacity;
    int64_t data;    /* where the data begins in the file */
    char fault[400]; /* why it is no safetensors file */
} ignis__safetensors;

static void ignis__safetensors_close(ignis__safetensors *file)
{
    ignis__free(file->items);
    ignis__free(file->header);
    file->items = NULL;
    file->header = NULL;
    file->count = file->capacity = 0;
}

/*  Bytes of a tensor; -1 when they do not fit 63 bits, or end inside a byte. As in ignis__shape_check, the product must fit without its
    zeros, too. */
static int64_t ignis__stored_bytes(int type, const ignis_shape *shape)
{
    int bits = ignis__stored_types[type].bits, i;
    int64_t product = bits >= 8 ? bits / 8 : bits;
    bool empty = false;
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] == 0)
            empty = true;
        else if (!ignis__multiply(product, shape->dim[i], &product))
            return -1;
    }
    if (empty)
        return 0;
    if (bits >= 8)
        return product;
    return product % 8 ? -1 : product / 8;
}

static void ignis__safetensors_shape(ignis__json *json, ignis_shape *shape)
{
    bool first = true;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        int64_t dim = ignis__json_count(json);
        if (shape->ndim < IGNIS_MAX_DIMS)
            shape->dim[shape->ndim++] = dim;
        else
            ignis__json_fail(json, "a shape has more than %d dimensions", IGNIS_MAX_DIMS);
    }
    if (shape->ndim == 0)
        shape->dim[shape->ndim++] = 1;
}

static int ignis__safetensors_type(ignis__json *json)
{
    size_t size;
    const char *name = ignis__json_string(json, &size);
    int type;
    for (type = 0; type < IGNIS__COUNT(ignis__stored_types); type++)
        if (strlen(ignis__stored_types[type].name) == size && memcmp(ignis__stored_types[type].name, name, size) == 0)
            return type;
    ignis__json_fail(json, "there is no dtype %s", ignis__name_write(name).text);
    return 0;
}

/*  {"dtype": ..., "shape": ..., "data_offsets": ...} in any order. Other fields mean nothing to the reference, either. */
static void ignis__safetensors_item(ignis__json *json, ignis__stored *item)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    bool seen[3] = {false, false, false}, first = true;
    int64_t bytes;
    size_t size;
    int field;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        const char *key = ignis__json_string(json, &size);
        for (field = 0; field < 3 && (strlen(fields[field]) != size || memcmp(fields[field], key, size) != 0); field++)
            ;
        if (field < 3 && seen[field])
            ignis__json_fail(json, "tensor %s has two fields %s", ignis__name_write(item->name).text, fields[field]);
        ignis__json_expect(json, ':');
        if (field == 3) {
            ignis__json_skip(json);
            continue;
        }
        seen[field] = true;
        if (field == 0) {
            item->type = ignis__safetensors_type(json);
        } else if (field == 1) {
            ignis__safetensors_shape(json, &item->shape);
        } else {
            ignis__json_expect(json, '[');
            item->begin = ignis__json_count(json);
            ignis__json_expect(json, ',');
            item->end = ignis__json_count(json);
            ignis__json_expect(json, ']');
        }
    }
    for (field = 0; field < 3; field++)
        if (!seen[field])
            ignis__json_fail(json, "tensor %s has no field %s", ignis__name_write(item->name).text, fields[field]);
    if (json->fault[0])
        return;
    bytes = ignis__stored_bytes(item->type, &item->shape);
    if (bytes < 0)
        ignis__json_fail(json, "tensor %s, %s %s, is not a whole number of bytes that fits 63 bits", ignis__name_write(item->name).text,
                         ignis__stored_types[item->type].name, ignis__shape_write(&item->shape).text);
    else if (item->end < item->begin || item->end - item->begin != bytes)
        ignis__json_fail(json, "tensor %s, %s %s, has %lld bytes, but its data_offsets are %lld and %lld",
                         ignis__name_write(item->name).text, ignis__stored_types[item->type].name, ignis__shape_write(&item->shape).text,
                         (long long)bytes, (long long)item->begin, (long long)item->end);
}

/*  {"key": "text", ...}: checked, and of no other use to Ignis. */
static void ignis__safetensors_metadata(ignis__json *json)
{
    bool first = true;
    size_t size;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        ignis__json_string(json, &size);
    }
}

/*  Room for one more tensor; null: no memory. */
static ignis__stored *ignis__safetensors_add(ignis__safetensors *file)
{
    if (file->count == file->capacity) {
        int capacity = file->capacity ? file->capacity * 2 : 64;
        ignis__stored *items = (ignis__stored *)ignis__alloc((size_t)capacity * sizeof *items);
        if (!items)
            return NULL;
        if (file->count)
            memcpy(items, file->items, (size_t)file->count * sizeof *items);
        ignis__free(file->items);
        file->items = items;
        file->capacity = capacity;
    }
    return &file->items[file->count++];
}

static int ignis__stored_by_name(const void *a, const void *b)
{
    return strcmp(((const ignis__stored *)a)->name, ((const ignis__stored *)b)->name);
}

static int ignis__stored_by_offset(const void *a, const void *b)
{
    const ignis__stored *one = (const ignis__stored *)a, *other = (const ignis__stored *)b;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    if (one->end != other->end)
        return one->end < other->end ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int ignis__stored_by_type(const void *a, const void *b)
{
    const ignis__stored *one = (const ignis__stored *)a, *other = (const ignis__stored *)b;
    return one->type != other->type ? other->type - one->type : strcmp(one->name, other->name);
}

static void ignis__stored_sort(ignis__stored *items, int count, int (*order)(const void *, const void *))
{
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, order);
}

/*  A name that two neighbours have; null for none. */
static const char *ignis__stored_twice(const ignis__stored *items, int count)
{
    int i;
    for (i = 1; i < count; i++)
        if (strcmp(items[i - 1].name, items[i].name) == 0)
            return items[i].name;
    return NULL;
}

/*  Every byte of the data belongs to one tensor. Sorts by offset. */
static bool ignis__safetensors_covered(ignis__safetensors *file, int64_t data_size)
{
    int64_t end = 0;
    int i;
    ignis__stored_sort(file->items, file->count, ignis__stored_by_offset);
    for (i = 0; i < file->count; i++) {
        const ignis__stored *item = &file->items[i];
        if (item->begin != end) {
            snprintf(file->fault, sizeof file->fault, "the data of tensor %s begins at %lld, %s the data before it ends, at %lld",
                     ignis__name_write(item->name).text, (long long)item->begin, item->begin < end ? "before" : "after", (long long)end);
            return false;
        }
        end = item->end;
    }
    if (end != data_size)
        snprintf(file->fault, sizeof file->fault, "its tensors have %lld bytes, but the file has %lld bytes behind its header",
                 (long long)end, (long long)data_size);
    return end == data_size;
}

/*  The whole header; false after a fault or when memory has run out. */
static bool ignis__safetensors_header(ignis__safetensors *file, ignis__json *json, bool *no_memory)
{
    bool first = true, metadata = false;
    size_t size;
    if (json->at == json->end || *json->at != '{')
        ignis__json_fail(json, "there is no { to begin with");
    else
        json->at++;
    while (ignis__json_more(json, '}', &first)) {
        const char *name = ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                ignis__json_fail(json, "there is a second __metadata__");
            metadata = true;
            ignis__safetensors_metadata(json);
        } else {
            ignis__stored *item = ignis__safetensors_add(file);
            *no_memory = item == NULL;
            if (!item)
                return false;
            if (strlen(name) != size)
                ignis__json_fail(json, "the name %s goes on behind a character 0", ignis__name_write(name).text);
            item->name = name;
            ignis__safetensors_item(json, item);
        }
    }
    if (!json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    return !json->fault[0];
}

/*  The length of the header, which the first 8 bytes of a file say. */
IGNIS__COLD static uint64_t ignis__safetensors_length(const unsigned char *bytes, int64_t size)
{
    uint64_t length = 0;
    int i;
    for (i = 0; i < 8 && i < size; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    return length;
}

/*  Reads what is in a file of `size` bytes, and checks all of it but the values of the tensors, which `bytes` need not have. Afterwards the
    items are sorted by offset. Whatever the result, ignis__safetensors_close frees them. It is NONE, HOST_MEMORY, or STORAGE_FORMAT with
    file->fault. */
IGNIS__COLD static ignis_diagnostic ignis__safetensors_parse(ignis__safetensors *file, const unsigned char *bytes, int64_t size)
{
    ignis__json json;
    uint64_t length = ignis__safetensors_length(bytes, size);
    const char *twice;
    bool no_memory = false;
    memset(file, 0, sizeof *file);
    if (size < 8) {
        snprintf(file->fault, sizeof file->fault, "it has %lld bytes, and the length of its header would be 8", (long long)size);
    } else if (length > IGNIS__HEADER_LIMIT) {
        snprintf(file->fault, sizeof file->fault, "its header would have %llu bytes, above %d", (unsigned long long)length,
                 IGNIS__HEADER_LIMIT);
    } else if ((int64_t)length > size - 8) {
        snprintf(file->fault, sizeof file->fault, "its header would have %llu bytes, but %lld are left of the file: it is truncated",
                 (unsigned long long)length, (long long)(size - 8));
    } else {
        file->data = 8 + (int64_t)length;
        file->header = (char *)ignis__alloc(length ? (size_t)length : 1);
        if (!file->header)
            return IGNIS_DIAG_HOST_MEMORY;
        memcpy(file->header, bytes + 8, (size_t)length);
        memset(&json, 0, sizeof json);
        json.start = json.at = file->header;
        json.end = file->header + length;
        if (!ignis__safetensors_header(file, &json, &no_memory)) {
            memcpy(file->fault, json.fault, sizeof json.fault);
            return no_memory ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_STORAGE_FORMAT;
        }
        ignis__stored_sort(file->items, file->count, ignis__stored_by_name);
        twice = ignis__stored_twice(file->items, file->count);
        if (twice)
            snprintf(file->fault, sizeof file->fault, "it has two tensors %s", ignis__name_write(twice).text);
        else if (ignis__safetensors_covered(file, size - file->data))
            return IGNIS_DIAG_NONE;
    }
    return IGNIS_DIAG_STORAGE_FORMAT;
}

/* --- the header: written --------------------------------------------------------------------------------------------- */

static void ignis__json_write_string(ignis__text *text, const char *string)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *known;
    ignis__text_add(text, "\"");
    for (; *string; string++) {
        if ((known = strchr(plain, *string)) != NULL)
            ignis__text_add(text, "\\%c", escaped[known - plain]);
        else if ((unsigned char)*string < ' ')
            ignis__text_add(text, "\\u%04x", (unsigned)(unsigned char)*string);
        else
            ignis__text_add(text, "%c", *string);
    }
    ignis__text_add(text, "\"");
}

/*  Gives every item its place in the data, as the reference does: by alignment, the largest first, and then by name. False when they do
    not fit 63 bits together. */
static bool ignis__safetensors_arrange(ignis__stored *items, int count)
{
    int64_t end = 0, bytes;
    int i;
    ignis__stored_sort(items, count, ignis__stored_by_type);
    for (i = 0; i < count; i++) {
        bytes = ignis__stored_bytes(items[i].type, &items[i].shape);
        if (bytes > INT64_MAX - end)
            return false;
        items[i].begin = end;
        items[i].end = end += bytes;
    }
    return true;
}

/*  Writes the header of arranged items, letter by letter that of the reference, and returns its size: a multiple of 8, so the data is
    aligned. A capacity of 0 only measures. */
IGNIS__COLD static size_t ignis__safetensors_write(const ignis__stored *items, int count, char *header, size_t capacity)
{
    ignis__text text;
    int i, k;
    ignis__text_begin(&text, header, capacity);
    ignis__text_add(&text, "{");
    for (i = 0; i < count; i++) {
        if (i)
            ignis__text_add(&text, ",");
        ignis__json_write_string(&text, items[i].name);
        ignis__text_add(&text, ":{\"dtype\":\"%s\",\"shape\":[", ignis__stored_types[items[i].type].name);
        for (k = 0; k < items[i].shape.ndim; k++)
            ignis__text_add(&text, "%s%lld", k ? "," : "", (long long)items[i].shape.dim[k]);
        ignis__text_add(&text, "],\"data_offsets\":[%lld,%lld]}", (long long)items[i].begin, (long long)items[i].end);
    }
    ignis__text_add(&text, "}");
    while (text.length % 8)
        ignis__text_add(&text, " ");
    return text.length;
}

/* --- arrays that are lent to a call ---------------------------------------------------------------------------- */

/*  One tensor of a call that saves or loads. */
typedef struct ignis__lent {
    ignis__array *array; /* held */
    ignis_tensor made;   /* by this call, until it has succeeded */
    const ignis__stored *item;
} ignis__lent;

/*  Borrows every array; one may come twice. */
IGNIS__COLD static bool ignis__lent_acquire(const char *call, ignis__lent *lent, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (!ignis__contract_borrow(call, lent[i].array, IGNIS_OWNER_WNAIS, lent))
            return false;
    return true;
}

static void ignis__tensor_discard(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (!tensor)
        return;
    (void)ignis__tensor_end_handle(call, tensor);
    ignis__tensor_drop(call, tensor);
}

/*  Gives every array back; tensors that the call has made end unless it has succeeded. */
IGNIS__COLD static void ignis__lent_release(const char *call, ignis__lent *lent, int count, bool succeeded)
{
    int i;
    for (i = 0; i < count; i++) {
        if (lent[i].array) {
            ignis__contract_return(lent[i].array, lent);
            ignis__array_drop(call, lent[i].array);
        }
        if (lent[i].made.id && !succeeded)
            ignis__tensor_discard(call, lent[i].made);
    }
}

/*  The array of a tensor, held; null, and reported, when there is none. */
static ignis__array *ignis__lent_array(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return NULL;
    array = ignis__tensor_array(call, tensor);
    ignis__tensor_drop(call, tensor);
    return array;
}

/*  The arguments that saving and loading have in common. */
IGNIS__COLD static bool ignis__named_check(const char *call, const char *path, const char *const *names, const ignis_tensor *tensors,
                                           int count)
{
    int i;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return false;
    if (count < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
        return false;
    }
    if (!path || (count > 0 && (!names || !tensors))) {
        ignis__fail_null(call, !path ? "path" : !names ? "names" : "tensors");
        return false;
    }
    for (i = 0; i < count; i++) {
        if (!names[i]) {
            ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "names[%d] of %d is null", i, count);
            return false;
        }
    }
    return true;
}

/* --- saving ----------------------------------------------------------------------------------------------------------- */

IGNIS__COLD static bool ignis__file_fail(const char *call, const char *path, const char *what)
{
    char reason[256];
    ignis__system_error(reason, sizeof reason);
    ignis__fail(IGNIS_DIAG_STORAGE_IO, call, "'%s' cannot be %s: %s", path, what, reason);
    return false;
}

/*  The items for the tensors of a save, sorted by their place in the file. */
static bool ignis__save_items(const char *call, const char *const *names, ignis__stored *items, const ignis__lent *lent, int count)
{
    const char *twice;
    int i;
    for (i = 0; i < count; i++) {
        if (!ignis__utf8_valid(names[i]) || strcmp(names[i], "__metadata__") == 0) {
            ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "names[%d], %s, is %s", i, ignis__name_write(names[i]).text,
                        *names[i] == '_' ? "no name for a tensor: it is the file's own" : "not well-formed UTF-8");
            return false;
        }
        items[i].name = names[i];
        items[i].index = i;
        items[i].shape = lent[i].array->shape;
        while (ignis__stored_types[items[i].type].dtype != lent[i].array->dtype)
            items[i].type++;
    }
    ignis__stored_sort(items, count, ignis__stored_by_name);
    twice = ignis__stored_twice(items, count);
    if (twice)
        ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "two tensors have the name %s", ignis__name_write(twice).text);
    else if (!ignis__safetensors_arrange(items, count))
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "the %d tensors have more bytes than 63 bits can count", count);
    else
        return true;
    return false;
}

static bool ignis__save_write(const char *call, const char *path, FILE *file, const void *data, int64_t size)
{
    return fwrite(data, 1, (size_t)size, file) == (size_t)size || ignis__file_fail(call, path, "written");
}

static bool ignis__save_header(const char *call, const char *path, FILE *file, const ignis__stored *items, int count)
{
    size_t size = ignis__safetensors_write(items, count, NULL, 0);
    unsigned char length[8];
    char *header;
    bool ok;
    int i;
    if (size > IGNIS__HEADER_LIMIT) {
        ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "%d names and shapes take %lld bytes, of which a header holds %d", count,
                    (long long)size, IGNIS__HEADER_LIMIT);
        return false;
    }
    header = (char *)ignis__alloc(size + 1);
    if (!header) {
        ignis__fail_host_memory(call, size + 1);
        return false;
    }
    for (i = 0; i < 8; i++)
        length[i] = (unsigned char)(size >> 8 * i);
    ignis__safetensors_write(items, count, header, size + 1);
    ok = ignis__save_write(call, path, file, length, 8) && ignis__save_write(call, path, file, header, (int64_t)size);
    ignis__free(header);
    return ok;
}

/*  Writes an array, through IGNIS__CONVERT_CHUNK bytes of host memory. */
static bool ignis__save_array(const char *call, const char *path, FILE *file, ignis__array *array, void *chunk)
{
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), done, part;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_read(&work, array, &address);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__CONVERT_CHUNK ? size - done : IGNIS__CONVERT_CHUNK;
        ok = ignis__copy_to_host(&work, chunk, address + (uint64_t)done, part) && ignis__save_write(call, path, file, chunk, part);
    }
    ignis__work_end(&work);
    return ok;
}

/*  Writes a new file, down to the disk. */
static bool ignis__save_file(const char *call, const char *path, const ignis__stored *items, const ignis__lent *lent, int count)
{
    FILE *file = ignis__file_create(path);
    void *chunk;
    bool ok;
    int i;
    if (!file)
        return ignis__file_fail(call, path, "created");
    chunk = ignis__alloc((size_t)IGNIS__CONVERT_CHUNK);
    ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(call, (size_t)IGNIS__CONVERT_CHUNK);
    ok = ok && ignis__save_header(call, path, file, items, count);
    for (i = 0; ok && i < count; i++)
        ok = ignis__save_array(call, path, file, lent[items[i].index].array, chunk);
    ok = ok && (ignis__file_flush(file) || ignis__file_fail(call, path, "written to the disk"));
    if (fclose(file) != 0 && ok)
        ok = ignis__file_fail(call, path, "closed");
    ignis__free(chunk);
    return ok;
}

/*  Writes a file beside the path, and puts it there when it is whole. */
static bool ignis__save_atomically(const char *call, const char *path, const ignis__stored *items, const ignis__lent *lent, int count)
{
    char *part;
    bool ok;
    if (ignis__path_is_special(path)) {
        ignis__fail(IGNIS_DIAG_STORAGE_IO, call, "'%s' is there already, and no regular file: it is not replaced", path);
        return false;
    }
    part = ignis__file_part_path(path);
    if (!part) {
        ignis__fail_host_memory(call, strlen(path) + 64);
        return false;
    }
    ok = ignis__save_file(call, part, items, lent, count) && (ignis__file_rename(part, path) || ignis__file_fail(call, path, "replaced"));
    if (ok)
        ignis__folder_flush(path);
    else
        remove(part);
    ignis__free(part);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count)
{
    static const char call[] = "ignis_save";
    ignis__lent *lent;
    ignis__stored *items;
    bool ok;
    int i;
    if (!ignis__named_check(call, path, names, tensors, count))
        return ignis__failed();
    lent = (ignis__lent *)ignis__alloc(((size_t)count + 1) * sizeof *lent);
    items = (ignis__stored *)ignis__alloc(((size_t)count + 1) * sizeof *items);
    ok = lent && items;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * (sizeof *lent + sizeof *items));
    for (i = 0; ok && i < count; i++)
        ok = (lent[i].array = ignis__lent_array(call, tensors[i])) != NULL;
    ok = ok && ignis__save_items(call, names, items, lent, count) && ignis__lent_acquire(call, lent, count) &&
         ignis__save_atomically(call, path, items, lent, count);
    if (lent)
        ignis__lent_release(call, lent, count, ok);
    ignis__free(lent);
    ignis__free(items);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- loading ---------------------------------------------------------------------------------------------------------- */

/*  An open file, and what is in it. ignis__load_close ends both. */
typedef struct ignis__load {
    const char *path;
    int descriptor;
    int64_t size;
    ignis__safetensors file;
    char *staging; /* pinned memory for the parts of tensors that are on their way */
    int64_t part;  /* bytes: it has room for two */
} ignis__load;

static void ignis__load_close(ignis__load *load)
{
    ignis__safetensors_close(&load->file);
    ignis__file_close(load->descriptor);
}

static bool ignis__load_read(const char *call, const ignis__load *load, int64_t at, void *out, int64_t size)
{
    int64_t got = ignis__file_read_at(load->descriptor, at, out, size);
    if (got < 0)
        return ignis__file_fail(call, load->path, "read");
    if (got < size)
        ignis__fail(IGNIS_DIAG_STORAGE_IO, call, "'%s' had %lld bytes when it was opened, and now ends before byte %lld", load->path,
                    (long long)load->size, (long long)(at + size));
    return got == size;
}

IGNIS__COLD static bool ignis__load_open(const char *call, const char *path, ignis__load *load)
{
    unsigned char first[8], *head;
    int64_t size;
    uint64_t length;
    ignis_diagnostic result = IGNIS_DIAG_STORAGE_IO;
    memset(load, 0, sizeof *load);
    load->path = path;
    load->descriptor = ignis__file_open(path, &load->size);
    if (load->descriptor < 0) {
        if (!ignis__path_is_special(path))
            return ignis__file_fail(call, path, "opened");
        ignis__fail(IGNIS_DIAG_STORAGE_IO, call, "'%s' is no regular file", path);
        return false;
    }
    size = load->size < 8 ? load->size : 8;
    if (ignis__load_read(call, load, 0, first, size)) {
        length = ignis__safetensors_length(first, size);
        if (length <= IGNIS__HEADER_LIMIT && (int64_t)length <= load->size - size)
            size += (int64_t)length;
        head = (unsigned char *)ignis__alloc((size_t)size + 1);
        if (!head)
            result = IGNIS_DIAG_HOST_MEMORY;
        else if (ignis__load_read(call, load, 0, head, size))
            result = ignis__safetensors_parse(&load->file, head, load->size);
        ignis__free(head);
    }
    if (result == IGNIS_DIAG_NONE)
        return true;
    if (result == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(result, call, "out of host memory for the header of '%s', a file of %lld bytes", path, (long long)load->size);
    else if (result == IGNIS_DIAG_STORAGE_FORMAT)
        ignis__fail(result, call, "'%s' is not a sound safetensors file: %s", path, load->file.fault);
    ignis__load_close(load);
    return false;
}

/*  The item of a name; null, and reported with names that are there, when there is none. The items are sorted by name. */
static const ignis__stored *ignis__load_find(const char *call, const char *path, const ignis__safetensors *file, const char *name)
{
    ignis__stored key;
    const ignis__stored *item = NULL;
    char known[512];
    ignis__text text;
    int i;
    memset(&key, 0, sizeof key);
    key.name = name;
    if (file->count)
        item = (const ignis__stored *)bsearch(&key, file->items, (size_t)file->count, sizeof key, ignis__stored_by_name);
    if (item)
        return item;
    ignis__text_begin(&text, known, sizeof known);
    for (i = 0; i < file->count && i < 5; i++)
        ignis__text_add(&text, "%s%s", i ? ", " : ": ", ignis__name_write(file->items[i].name).text);
    ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "'%s' has no tensor %s; it has %d%s%s", path, ignis__name_write(name).text, file->count,
                known, file->count > 5 ? ", ..." : "");
    return NULL;
}

/*  Whether a tensor of a file can go into an array, or into a new one where that is null. */
static bool ignis__load_fits(const char *call, const ignis__stored *item, const ignis__array *array)
{
    ignis_dtype dtype = ignis__stored_types[item->type].dtype;
    if (!dtype)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "tensor %s is %s in the file, a dtype that Ignis has not",
                    ignis__name_write(item->name).text, ignis__stored_types[item->type].name);
    else if (array && array->dtype != dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__dtypes[dtype].name, ignis__dtypes[array->dtype].name);
    else if (array && !ignis__shape_same(&array->shape, &item->shape))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__shape_write(&item->shape).text, ignis__shape_write(&array->shape).text);
    else
        return true;
    return false;
}

/*  A new tensor like one of the file, and its array; false when it cannot be. */
static bool ignis__load_make(const char *call, ignis__lent *lent)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = lent->item->shape;
    desc.dtype = ignis__stored_types[lent->item->type].dtype;
    desc.tag = lent->item->name;
    lent->made = ignis__tensor_adopt(call, ignis__array_create(call, &desc), false);
    return lent->made.id && (lent->array = ignis__lent_array(call, lent->made)) != NULL;
}

/*  Copies from the file, and waits. While one part is copied to the device the next is read. */
static bool ignis__load_array(const char *call, const ignis__load *load, ignis__array *array, int64_t begin)
{
    ignis__spare_event *copied[2] = {NULL, NULL}; /* behind the copies from both halves of the staging memory */
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), done, part;
    int piece = 0;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, array, &address);
    for (done = 0; ok && done < size; done += part, piece = !piece) {
        char *staging = load->staging + piece * load->part;
        part = size - done < load->part ? size - done : load->part;
        if (copied[piece]) {
            ok = !IGNIS__CUDA_FAILED(call, work.device, cuEventSynchronize, (copied[piece]->event));
            ignis__event_give(work.device, copied[piece]);
        }
        copied[piece] = NULL;
        ok = ok && ignis__load_read(call, load, begin + done, staging, part) &&
             !IGNIS__CUDA_FAILED(call, work.device, cuMemcpyHtoDAsync_v2, (address + (uint64_t)done, staging, (size_t)part, work.stream)) &&
             (copied[piece] = ignis__event_record(call, work.device, work.stream)) != NULL;
    }
    for (piece = 0; piece < 2; piece++)
        if (copied[piece])
            ignis__event_give(work.device, copied[piece]);
    ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) && ok;
    ignis__work_end(&work);
    return ok;
}

/*  Copies all, through pinned memory of the current device, which serves every device. */
static bool ignis__load_arrays(const char *call, ignis__load *load, const ignis__lent *lent, int count)
{
    ignis__binding binding;
    ignis__device *device;
    int64_t largest = 0;
    bool ok = true;
    int i;
    for (i = 0; i < count; i++)
        if (largest < ignis__array_bytes(lent[i].array))
            largest = ignis__array_bytes(lent[i].array);
    if (largest == 0)
        return true;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return false;
    load->part = largest < IGNIS__CONVERT_CHUNK ? largest : IGNIS__CONVERT_CHUNK;
    load->staging = (char *)ignis__pinned_take(call, device, 2 * load->part);
    ignis__device_leave(&binding);
    ok = load->staging != NULL;
    for (i = 0; ok && i < count; i++)
        ok = ignis__load_array(call, load, lent[i].array, load->file.data + lent[i].item->begin);
    if (load->staging && ignis__pinned_give(call, device, load->staging, 2 * load->part) != IGNIS_OK)
        ok = false;
    return ok;
}

/*  Everything that can be known to fail is tried before an array is written to. */
static bool ignis__load_tensors(const char *call, const char *path, ignis__load *load, const char *const *names,
                                const ignis_tensor *tensors, ignis__lent *lent, int count)
{
    int i;
    ignis__stored_sort(load->file.items, load->file.count, ignis__stored_by_name);
    for (i = 0; i < count; i++) {
        lent[i].item = ignis__load_find(call, path, &load->file, names[i]);
        if (!lent[i].item || (tensors[i].id && (lent[i].array = ignis__lent_array(call, tensors[i])) == NULL) ||
            !ignis__load_fits(call, lent[i].item, lent[i].array))
            return false;
    }
    for (i = 0; i < count; i++)
        if (!lent[i].array && !ignis__load_make(call, &lent[i]))
            return false;
    return ignis__lent_acquire(call, lent, count) && ignis__load_arrays(call, load, lent, count);
}

IGNIS__COLD IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count)
{
    static const char call[] = "ignis_load";
    ignis__load load;
    ignis__lent *lent;
    bool ok = false;
    int i;
    if (!ignis__named_check(call, path, names, tensors, count) || !ignis__load_open(call, path, &load))
        return ignis__failed();
    lent = (ignis__lent *)ignis__alloc(((size_t)count + 1) * sizeof *lent);
    if (lent) {
        ok = ignis__load_tensors(call, path, &load, names, tensors, lent, count);
        for (i = 0; ok && i < count; i++)
            if (lent[i].made.id)
                tensors[i] = lent[i].made;
        ignis__lent_release(call, lent, count, ok);
        ignis__free(lent);
    } else {
        ignis__fail_host_memory(call, ((size_t)count + 1) * sizeof *lent);
    }
    ignis__load_close(&load);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API int ignis_storage_list(const char *path, ignis_storage_entry *entries, int capacity)
{
    static const char call[] = "ignis_storage_list";
    ignis__load load;
    int i, count;
    if (!ignis__enter(call))
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
        return -1;
    }
    if (!path || (!entries && capacity > 0)) {
        ignis__fail_null(call, !path ? "path" : "entries");
        return -1;
    }
    if (!ignis__load_open(call, path, &load))
        return -1;
    count = load.file.count;
    for (i = 0; i < count && i < capacity; i++) {
        const ignis__stored *item = &load.file.items[i];
        memset(&entries[i], 0, sizeof entries[i]);
        memcpy(entries[i].name, item->name, ignis__utf8_cut(item->name, sizeof entries[i].name - 1));
        entries[i].dtype = ignis__stored_types[item->type].dtype;
        entries[i].shape = item->shape;
        entries[i].bytes = item->end - item->begin;
    }
    ignis__load_close(&load);
    return count;
}

#endif /* IGNIS_NO_TENSORS */

/* ===============================================================================================================
   >>setup - bringing all layers up, and down.
   =============================================================================================================== */

static void ignis__forked(void) { ignis__atomic_store(&ignis__global.forked, 1); }

static bool ignis__desc_check(const char *call, const ignis_desc *desc)
{
    if (!desc->allocator.alloc_fn != !desc->allocator.free_fn)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.allocator has only one of alloc_fn and free_fn; set both or none");
    else if (desc->memory_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.memory_limit is %lld, below 0", (long long)desc->memory_limit);
    else if (desc->cache_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.cache_limit is %lld, below 0", (long long)desc->cache_limit);
    else
        return true;
    return false;
}

static bool ignis__env_flag(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

/*  One of several ways to do a thing: *choice is what the program says, and becomes what the user's environment says if that is "auto". */
IGNIS__COLD static bool ignis__choose(const char *call, const char *field, const char *variable, const char *const *names, int count,
                                      int *choice)
{
    const char *value = getenv(variable);
    char list[64];
    ignis__text text;
    int i;
    if (*choice < 0 || *choice >= count) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc.%s is %d; 0 to %d are known", field, *choice, count - 1);
        return false;
    }
    if (*choice != 0 || !value || !*value)
        return true;
    ignis__text_begin(&text, list, sizeof list);
    for (i = 0; i < count && strcmp(value, names[i]) != 0; i++)
        ignis__text_add(&text, "%s%s", i == 0 ? "" : i == count - 1 ? " or " : ", ", names[i]);
    *choice = i;
    if (i == count)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "%s is \"%s\"; it is %s", variable, value, list);
    return i < count;
}

IGNIS__COLD static bool ignis__library_want(const char *call, ignis_library library, const char *path)
{
    struct ignis__loaded *loaded = &ignis__libraries[library];
    memset(loaded, 0, sizeof *loaded);
    if (path && strlen(path) >= sizeof loaded->wanted) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the path of %s is longer than %d bytes", ignis__library_specs[library].title,
                    (int)sizeof loaded->wanted - 1);
        return false;
    }
    snprintf(loaded->wanted, sizeof loaded->wanted, "%s", path ? path : "");
    return true;
}

/*  What ignis_collective.h holds is let go first; it puts itself here when it is first used. */
static void (*ignis__collective_close)(const char *call);

#ifndef IGNIS_NO_TENSORS
/*  Who claims an array, for the message of one that cannot be freed. */
IGNIS__COLD static int ignis__claims_name(ignis__text *text, const ignis__array *array)
{
    return ignis__tensors_claiming(text, array) + ignis__tape_claiming(text, array) + ignis__optimizers_claiming(text, array);
}
#endif

static ignis_status ignis__setup(const char *call, const ignis_desc *desc)
{
    static const char *const products[] = {"auto", "cublaslt", "own", "measure"}, *const attention[] = {"auto", "mma", "wgmma"};
    static bool fork_watched;
    ignis__global.logger = desc->logger;
    ignis__global.verbose = desc->verbose || ignis__env_flag("IGNIS_VERBOSE");
    ignis__matmul_by = (int)desc->matmul, ignis__attention_by = (int)desc->attention;
    if (!ignis__desc_check(call, desc) || !ignis__choose(call, "matmul", "IGNIS_MATMUL", products, IGNIS_MATMUL_COUNT, &ignis__matmul_by) ||
        !ignis__choose(call, "attention", "IGNIS_ATTENTION", attention, IGNIS_ATTENTION_COUNT, &ignis__attention_by))
        return ignis__failed();
    ignis__allocator = desc->allocator;
    if (!ignis__library_want(call, IGNIS_LIBRARY_CUDA, desc->cuda_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NVRTC, desc->nvrtc_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_CUBLASLT, desc->cublas_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NCCL, desc->nccl_library) || !ignis__library_load(call, IGNIS_LIBRARY_CUDA) ||
        ignis__devices_setup(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device) != IGNIS_OK)
        return ignis__failed();
    ignis__allow_tf32 = desc->allow_tf32;
    ignis__memory_setup(desc->memory_limit, desc->memory_bypass || ignis__env_flag("IGNIS_MEMORY_BYPASS"));
    ignis__kernels_setup(desc);
#ifndef IGNIS_NO_TENSORS
    ignis__atomic_store(&ignis__matmul.missing, 0);
    ignis__claim_holders = ignis__claims_name;
#endif
    if (!fork_watched)
        ignis__at_fork(ignis__forked);
    fork_watched = true;
    ignis__global.setups++;
    return IGNIS_OK;
}

static ignis__mutex ignis__setup_lock = IGNIS__MUTEX_INIT;

/*  The caller's functions are lent from ignis_setup to ignis_shutdown. */
static void ignis__give_back_lent(void)
{
    memset(&ignis__allocator, 0, sizeof ignis__allocator);
    memset(&ignis__global.logger, 0, sizeof ignis__global.logger);
}

IGNIS__COLD IGNIS_API ignis_status ignis_setup(const ignis_desc *desc)
{
    static const char call[] = "ignis_setup";
    ignis_desc defaults;
    ignis_status status;
    memset(&defaults, 0, sizeof defaults);
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
    ignis__mutex_lock(&ignis__setup_lock);
    if (ignis__atomic_load(&ignis__global.ready)) {
        status = ignis__fail(IGNIS_DIAG_ALREADY_SETUP, call, "Ignis is set up already; call ignis_shutdown first");
    } else {
        status = ignis__setup(call, desc ? desc : &defaults);
        if (status == IGNIS_OK)
            ignis__atomic_store(&ignis__global.ready, 1);
        else
            ignis__give_back_lent();
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

/*  Reports every array that is alive, and frees it. Views count too: they are handles that nobody has freed. */
static void ignis__arrays_close(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__array_leaked(call, array, "");
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_kill(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
}

static void ignis__kernels_close(const char *call)
{
    ignis__kernel *kernel;
    uint64_t index = 0;
    while ((kernel = (ignis__kernel *)ignis__pool_next(&ignis__kernels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "%s", ignis__label_write("kernel", 0, kernel->program.entry).text);
        ignis__kernel_kill(kernel);
        ignis__kernel_drop(call, kernel);
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_shutdown(void)
{
    static const char call[] = "ignis_shutdown";
    ignis__record before = ignis__this_thread.record;
    ignis_status status;
    int i;
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
#ifndef IGNIS_NO_TENSORS
    if (ignis__atomic_load(&ignis__global.ready) && (ignis__tensor_thread_now()->walk || ignis__this_thread.inside))
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "this is inside of another call, whose tensors are needed still");
#endif
    ignis__mutex_lock(&ignis__setup_lock);
    if (!ignis__atomic_load(&ignis__global.ready)) {
        ignis__mutex_unlock(&ignis__setup_lock);
        return IGNIS_OK;
    }
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
#ifndef IGNIS_NO_TENSORS
    ignis__graphs_close(call);
#endif
    if (ignis__collective_close)
        ignis__collective_close(call);
#ifndef IGNIS_NO_TENSORS
    ignis__optimizers_close(call);
    ignis__tensors_close(call);
#endif
    ignis__tracking_reset(call);
    ignis__arrays_close(call);
    ignis__tickets_close(call);
    ignis__kernels_close(call);
    ignis__events_close(call);
    ignis__streams_leaked(call);
    ignis__pinned_leaked(call);
    if (ignis__leaks > IGNIS__LEAKS_SHOWN)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: and %d more", call, ignis__leaks - IGNIS__LEAKS_SHOWN);
    ignis__leaks = 0;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        if (!ignis__atomic_load(&device->opened))
            continue;
        if (!IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)) && !ignis__devices_lost())
            (void)ignis__device_wait(call, device);
        ignis__builtins_close(device);
#ifndef IGNIS_NO_TENSORS
        ignis__matmul_close(device);
#endif
        ignis__memory_close(call, device);
        ignis__device_close(call, device);
    }
    ignis__images_close();
    ignis__callbacks_close();
#ifndef IGNIS_NO_TENSORS
    ignis__measured_close();
#endif
    ignis__atomic_store(&ignis__global.ready, 0);
    ignis__give_back_lent();
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) { /* an earlier failure of the thread stays the first */
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

#endif /* IGNIS_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */

/*  LICENCE

    MIT License

    Copyright (c) 2026 Ignis authors

    Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
    "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
    distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
    the following conditions:

    The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

    THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
    MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
    ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH
    THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
