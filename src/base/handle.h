/* ---------------------------------------------------------------------------------------------------------------
   Declarations, a section for each tag: types, then functions. Every option struct may be zero-initialised: 0 means
   the default beside the field. The comment of a function says what it does, then Returns, Errors, Ownership and
   Threads. "Threads: any" means: callable from any thread at any time, also on one handle from several threads. Work
   goes to the calling thread's current stream of the array's device, and the call does not wait unless it says so.
   Before ignis_setup, after ignis_shutdown, in a forked child, and in a function given to ignis_stream_call,
   functions fail with IGNIS_ERROR_NOT_SETUP. Exceptions are ignis_setup, the status functions, the version, and
   names and sizes of dtypes and owners.
   --------------------------------------------------------------------------------------------------------------- */

/*  Handles. 0 is no handle. A handle names a slot and its generation, so the handle of a freed object is recognised
    for ever. */
typedef struct ignis_array {
    uint64_t id;
} ignis_array;

/*  A kernel that ignis_kernel_compile has made. */
typedef struct ignis_kernel {
    uint64_t id;
} ignis_kernel;

/*  A point in the work of a stream: ignis_event_create. */
typedef struct ignis_event {
    uint64_t id;
} ignis_event;

/*  A counter that CUDA and a graphics API wait for and raise: ignis_external_fence. */
typedef struct ignis_fence {
    uint64_t id;
} ignis_fence;

/*  A buffer of OpenGL that can be mapped as an array: ignis_gl_register. */
typedef struct ignis_gl_buffer {
    uint64_t id;
} ignis_gl_buffer;

/*  A copy between device and host that nobody waits for yet: ignis_ticket_wait. */
typedef struct ignis_ticket {
    uint64_t id;
} ignis_ticket;
