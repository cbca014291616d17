/*  array - dtypes, shapes, storage, arrays, views, copies, tickets, the contract. Knows no kernel. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"

struct ignis__dtypes_type {
    const char *name;
    int size;
};

/*  "[2, 3]" in a struct, so that a message can have several. */
typedef struct ignis__shape_text {
    char text[IGNIS_MAX_DIMS * 22 + 4];
} ignis__shape_text;

/*  A stream that has used a storage. Memory is taken at the first use; its next user waits for these streams. */
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
    bool external; /* memory of a graphics API, which cannot be shared with other processes */
    ignis__origin origin;
    void (*release_fn)(void *ptr, void *user_data); /* of wrapped memory; null: the caller sees to it */
    void *release_data;
    void *stream;            /* the stream whose order the memory follows; NULL if undecided */
    uint64_t at_hand;        /* `stream` as a number, once there is memory: it needs no lock then; else 0 */
    ignis__replays *replays; /* of the graph that owns the memory and writes to it; NULL if none does */
    ignis__used_on used_on[4];
    int used_on_count;
    void *summed_on;                      /* the stream that last added to it, if it is a gradient; or NULL */
    uint64_t version;                     /* counts writes to it, as far as Ignis knows */
    uint64_t exposed;                     /* 1: the caller's code has the address, and may have written there */
    uint64_t listed;                      /* 1: it is in the list of storages that a stream of the caller uses */
    struct ignis__storage *next, *before; /* in that list */
    /* Of memory that is elsewhere, and perhaps elsewhere at each use; NULL: it has its own. Finds the storage that has
       it now, which the caller holds as a user; NULL, and reported, on failure. Work on `stream` is ordered after what
       writes it. Called with the lock. */
    struct ignis__storage *(*find_fn)(const char *call, void *finder, ignis__device *device, void *stream);
    void *finder;   /* NULL: it was freed */
    uint64_t dirty; /* 1: written since it was found */
} ignis__storage;

/*  Storages that a stream of the caller uses, for ignis_stream_forget; their users may be arrays, graphs, or a call
    that is dropping them. Most storages use only Ignis' own streams, and are made and freed without the list's lock,
    which is taken before a storage's. */
struct ignis__storages_type {
    ignis__mutex lock;
    ignis__storage *first;
};

/*  The layout of a model's quantised weight: [rows, columns], in ranges of rows of one type. count 0: any other
    array. */
typedef struct ignis__blocks {
    int count, columns;
    struct {
        int type, rows; /* type: an ignis__gguf_type */
    } part[3];
    bool rounds_rows; /* rows that a sequence multiplies with it are rounded to e4m3 */
} ignis__blocks;

typedef struct ignis__array {
    ignis__slot slot; /* first; its lock guards the mutable fields: owner, ref_count, pinned, tracking */
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
    int exports;           /* references that ignis_collective.h holds for other processes; part of ref_count */
    const void *borrower;  /* the call whose layer owns the array until the call ends, or NULL */
    void *pinned;
    char tag[32];
    ignis__blocks blocks;       /* of a quantised weight, which is a row of u8 */
    ignis__tombstone tombstone; /* the slot's array before this one */
} ignis__array;

/*  The version of an array that is unwritten, or written by each launch of a graph. */
#define IGNIS__UNWRITTEN UINT64_MAX

/*  An array that was freed while ignis_contract_track watched it. The audit shows it until it is untracked. */
typedef struct ignis__tracked_freed {
    uint64_t handle;
    uint64_t audit; /* the last one that has listed it when it was alive */
    int64_t tracked_at_ns;
    ignis_contract_entry entry;
    struct ignis__tracked_freed *next;
} ignis__tracked_freed;

struct ignis__tracking_type {
    ignis__mutex lock;
    int live; /* tracked arrays that are not freed */
    int freed_count;
    ignis__tracked_freed *freed;
};

typedef struct ignis__work {
    const char *call;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
    int64_t begin_ns; /* of a profile; 0 without one */
    int found;        /* storages that the thread's work had found before */
} ignis__work;

/*  Bytes of host memory for converting copies. */
#define IGNIS__CONVERT_CHUNK ((int64_t)4 << 20)

/*  A chunk of a transfer: a thread of the driver copies or converts it, in order with the stream. */
typedef struct ignis__transfer_part {
    void *to;
    const void *from;
    ignis_dtype to_dtype, from_dtype;
    int64_t count;
} ignis__transfer_part;

typedef struct ignis__ticket {
    ignis__slot slot;
    ignis__device *device;
    ignis__pooled_event *done;   /* recorded after the work; NULL if there is nothing to wait for */
    ignis__pinned *piece;        /* NULL if none is needed */
    ignis__transfer_part *parts; /* the chunks for the driver's thread */
    void (*run)(void *context);  /* runs on a thread of its own, which the waiting thread joins; or NULL */
    void *context;
    ignis__thread_handle thread;
    bool joined;
    uint64_t through;     /* 1: it has run */
    ignis__record record; /* the failure of the work */
} ignis__ticket;

#ifndef IGNIS_NO_TENSORS
#include "../shared/divisor.h"
#endif

typedef void ignis__holders_hook(ignis__string_writer *text, const ignis__array *array);
typedef void ignis__reap_hook(const char *call, ignis__array *array, bool wait);

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* dtype.c */
extern const struct ignis__dtypes_type ignis__dtypes[];
IGNIS__ONE_COPY IGNIS__PRIVATE const char *ignis__owner_name(ignis_owner owner);
IGNIS__PRIVATE bool ignis__owner_valid(const char *call, ignis_owner owner);
IGNIS__PRIVATE bool ignis__dtype_valid(const char *call, ignis_dtype dtype);
IGNIS__COLD IGNIS__PRIVATE ignis__shape_text ignis__shape_write(const ignis_shape *shape);
IGNIS__PRIVATE bool ignis__multiply(int64_t a, int64_t b, int64_t *product);
IGNIS__PRIVATE bool ignis__shape_check(const char *call, const ignis_shape *shape, ignis_dtype dtype, int64_t *numel);

/* conversion.c */
IGNIS__PRIVATE double ignis__widen_float(uint32_t bits, int fraction, int exponent);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__is_finite(double value);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__is_nan(double value);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__ceil_div(int64_t a, int64_t b);
IGNIS__ONE_COPY IGNIS__PRIVATE int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest);
IGNIS__PRIVATE bool ignis__dtype_is_int(ignis_dtype dtype);
IGNIS__PRIVATE bool ignis__dtype_is_f8(ignis_dtype dtype);
IGNIS__PRIVATE void ignis__convert(void *to, ignis_dtype to_dtype, const void *from, ignis_dtype from_dtype,
                                   int64_t count);
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__shape_same(const ignis_shape *a, const ignis_shape *b);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__shape_copy(ignis_shape *to, const ignis_shape *from);

/* storage.c */
IGNIS__PRIVATE void ignis__storage_written(ignis__storage *storage);
IGNIS__PRIVATE void ignis__storage_expose(ignis__storage *storage);
IGNIS__PRIVATE uint64_t ignis__storage_version(const ignis__storage *storage);
IGNIS__PRIVATE bool ignis__storage_readable(const ignis__storage *storage);
extern struct ignis__storages_type ignis__storages;
IGNIS__PRIVATE void ignis__storage_enlist(ignis__storage *storage, const ignis__device *device, const void *stream);
IGNIS__PRIVATE ignis__storage *ignis__storage_make(const char *call, ignis__device *device, int64_t size);
IGNIS__PRIVATE void ignis__storage_destroy(ignis__storage *storage);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__storage_sum_on(const char *call, ignis__storage *storage, void *stream);
IGNIS__PRIVATE void ignis__storage_drop(const char *call, ignis__storage *storage);
IGNIS__PRIVATE bool ignis__capture_hold_storage(const char *call, ignis__capture *capture, ignis__storage *storage);
IGNIS__PRIVATE bool ignis__storage_use(const char *call, ignis__storage *storage, ignis__device *device, void *stream,
                                       uint64_t *address);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__storage_use_after(const char *call, ignis__storage *storage,
                                                                 void *stream, void *event);
IGNIS__COLD IGNIS__PRIVATE void ignis__storages_drop_found(const char *call, int count);

/* array.c */
extern ignis__pool ignis__arrays;
extern uint64_t ignis__array_ids;
IGNIS__PRIVATE int64_t ignis__array_bytes(const ignis__array *array);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__label ignis__array_label(const ignis__array *array);
IGNIS__PRIVATE ignis__array *ignis__array_hold(const char *call, ignis_array handle);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE uint64_t ignis__array_version(const ignis__array *array);
IGNIS__PRIVATE void ignis__array_destroy(const char *call, ignis__array *array);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_drop(const char *call, ignis__array *array);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_end(const char *call, ignis__array *array, bool ok);
IGNIS__PRIVATE bool ignis__array_lock(const char *call, ignis__array *array);
IGNIS__PRIVATE void ignis__array_unlock(ignis__array *array);
extern struct ignis__tracking_type ignis__tracking;
IGNIS__COLD IGNIS__PRIVATE void ignis__track_entry(const ignis__array *array, ignis_contract_entry *entry);
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__array_claim(ignis__array *array);
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__array *ignis__array_adopt(const char *call, ignis_array made);
IGNIS__PRIVATE void ignis__array_kill(ignis__array *array);
IGNIS__PRIVATE int ignis__array_unref(ignis__array *array);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__array_unclaim(const char *call, ignis__array *array);
IGNIS__PRIVATE ignis__array *ignis__array_make(const char *call, ignis__storage *storage, const ignis_shape *shape,
                                               ignis_dtype dtype, int64_t numel);
IGNIS__PRIVATE ignis_array ignis__array_publish(ignis__array *array);
IGNIS__PRIVATE ignis_array ignis__array_create_over(const char *call, const ignis_array_desc *desc, bool external);
IGNIS__PRIVATE ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc);
IGNIS__PRIVATE ignis_owner ignis__array_owner(const ignis__array *array);
IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__array_create_like(const char *call, const ignis__array *like,
                                                                ignis_dtype dtype);
IGNIS__PRIVATE ignis__array *ignis__array_view_make(const char *call, const ignis__array *of, const ignis_shape *shape,
                                                    int64_t numel, int64_t offset);
IGNIS__PRIVATE ignis_array ignis__array_view(const char *call, const ignis__array *of, const ignis_shape *shape,
                                             int64_t numel, int64_t offset);
extern uint64_t ignis__export_holders, ignis__exports_reap;
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__array_enter(const char *call, ignis_array handle);
IGNIS__PRIVATE ignis__array *ignis__array_enter_reaped(const char *call, ignis_array handle, bool wait);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_leave(const char *call, ignis__array *array, bool ok);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_exported(const char *call, const ignis__array *array,
                                                             const char *what);
extern int (*ignis__claim_holders)(ignis__string_writer *text, const ignis__array *array);
IGNIS__PRIVATE ignis_status ignis__array_free_as(const char *call, ignis_array handle, ignis_owner as);
IGNIS__COLD IGNIS__PRIVATE void ignis__array_leaked(const char *call, const ignis__array *array, const char *what);

/* work.c */
IGNIS__PRIVATE bool ignis__work_begin(const char *call, ignis__device *device, ignis__work *work);
IGNIS__PRIVATE void ignis__work_end(const ignis__work *work);
IGNIS__PRIVATE bool ignis__work_address(const ignis__work *work, ignis__array *array, ignis__address *address);
IGNIS__PRIVATE void ignis__array_written(ignis__array *array);
IGNIS__COLD IGNIS__PRIVATE bool ignis__array_refuses_address(const char *call, const ignis__array *array);
IGNIS__PRIVATE bool ignis__work_write(const ignis__work *work, ignis__array *array, ignis__address *address);
IGNIS__PRIVATE bool ignis__array_readable(const char *call, const ignis__array *array);
IGNIS__PRIVATE bool ignis__work_read(const ignis__work *work, ignis__array *array, ignis__address *address);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__array_work(const char *call, ignis_array handle, ignis__work *work);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_work_end(const ignis__work *work, ignis__array *array,
                                                                  bool ok);

/* copy.c */
IGNIS__PRIVATE bool ignis__copy_up(const ignis__work *work, ignis__address to, const void *from, int64_t size);
IGNIS__PRIVATE bool ignis__copy_down(const ignis__work *work, void *to, ignis__address from, int64_t size);
IGNIS__PRIVATE bool ignis__copy_zeros(const ignis__work *work, ignis__address to, int64_t size);
IGNIS__PRIVATE bool ignis__copy_on_device(const ignis__work *work, ignis__address to, ignis__address from,
                                          int64_t size);
IGNIS__PRIVATE ignis_status ignis__array_set_zero(const char *call, ignis_array handle);
IGNIS__COLD IGNIS__PRIVATE bool ignis__copy_from_host(const ignis__work *work, ignis__address to, const void *from,
                                                      int64_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__copy_to_host(const ignis__work *work, void *to, ignis__address from,
                                                    int64_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__transfer_check(const char *call, const ignis__array *array, const void *host,
                                                      const char *host_name, int64_t count, int64_t needed,
                                                      const char *unit);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_from_host(const char *call, ignis__array *array, const void *data,
                                                               ignis_dtype dtype);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_to_host(const char *call, ignis__array *array, void *out,
                                                             ignis_dtype dtype);

/* ticket.c */
extern ignis__pool ignis__tickets;
IGNIS__PRIVATE ignis__ticket *ignis__ticket_start(const char *call, ignis__device *device, void (*run)(void *context),
                                                  void *context);
IGNIS__COLD IGNIS__PRIVATE void ignis__tickets_close(const char *call);

/* view.c */
IGNIS__PRIVATE bool ignis__array_check_overlap(const char *call, const ignis__array *dst, int64_t offset, int64_t size,
                                               const ignis__array *src);
IGNIS__PRIVATE bool ignis__array_copy_bytes(const char *call, ignis__array *dst, int64_t offset, ignis__array *src);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_discard(const char *call, ignis_array *handle);
IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__array_slice(const char *call, const ignis__array *array, int dim,
                                                          int64_t start, int64_t len);
IGNIS__PRIVATE bool ignis__shape_infer(const char *call, ignis_shape *shape, int64_t numel);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_drop_all(const char *call, int count, ignis__array **arrays);
IGNIS__PRIVATE bool ignis__array_hold_all(const char *call, int count, const ignis_array *handles,
                                          ignis__array **arrays);

/* pin.c */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_transfer(const char *call, ignis__array *array, ignis_owner owner);

/* contract.c */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__contract_borrow(const char *call, ignis__array *array, ignis_owner by,
                                                               const void *borrower);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__contract_return(ignis__array *array, const void *borrower);
IGNIS__COLD IGNIS__PRIVATE void ignis__tracking_reset(const char *call);

/* number.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE double ignis__double_of(uint64_t bits);
IGNIS__PRIVATE double ignis__nan(void);
IGNIS__PRIVATE int64_t ignis__power_of_2_up(int64_t x);
IGNIS__PRIVATE bool ignis__is_power_of_2(int64_t x);
IGNIS__PRIVATE ignis__divisor ignis__divisor_of(int64_t size);
IGNIS__ONE_COPY IGNIS__PRIVATE int64_t ignis__shape_product(const ignis_shape *shape, int from, int to);
IGNIS__PRIVATE void ignis__shape_strides(const ignis_shape *shape, int64_t *strides);
#endif
