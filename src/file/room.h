/*  file - files of tensors: safetensors and .npy. */
#pragma once

#include "../base/room.h"
#include "../device/room.h"
#include "../array/room.h"
#include "../kernel/room.h"
#include "../formula/room.h"
#include "../tensor/room.h"
#include "../ops/room.h"

#define IGNIS__HEADER_LIMIT 100000000 /* bytes, as in the reference */

/*  Every dtype of the format, in the reference's order of alignment: files are written from the last to the first. */
struct ignis__file_dtypes_type {
    const char *name;
    int bits;
    ignis_dtype dtype,
        loaded; /* the same dtype in Ignis; the dtype it is loaded as, by its values. 0 if not supported */
};

/*  One tensor of a file. */
typedef struct ignis__file_tensor {
    const char *name;
    int type; /* in ignis__file_dtypes */
    ignis_shape shape;
    int64_t begin, end; /* of its bytes in the data */
    int index;          /* in the caller's list, when a file is written */
} ignis__file_tensor;

/*  The header of a file. */
typedef struct ignis__safetensors {
    char *header; /* a copy; the names and texts are in it */
    ignis__file_tensor *items;
    int count, capacity;
    ignis_metadata *metadata;
    int metadata_count, metadata_capacity;
    int64_t data;    /* offset of the data in the file */
    char fault[400]; /* why it is not a safetensors file */
} ignis__safetensors;

/*  One tensor of a call that saves or loads. */
typedef struct ignis__borrowed_tensor {
    ignis__array *array; /* held */
    ignis_tensor made;   /* by this call, until it has succeeded */
    const ignis__file_tensor *item;
} ignis__borrowed_tensor;

/*  The header of a .npy file. */
typedef struct ignis__npy {
    int type; /* in ignis__file_dtypes */
    bool is_fortran, is_complex, is_swapped;
    ignis_shape shape; /* without the dimension of complex numbers; [1] for an array without dimensions */
    int64_t data;      /* offset of the data in the file */
    char fault[400];   /* why the file cannot be read */
} ignis__npy;

/*  A file written beside the one that it will replace, with the mode and owner of that one. Links are followed: their
    target is replaced. */
typedef struct ignis__replacement {
    const char *call, *path;
    char *target, *part;
    FILE *file;
} ignis__replacement;

/*  An open file and its header. ignis__load_close frees both. */
typedef struct ignis__load {
    const char *path;
    int descriptor;
    int64_t size;
    ignis__safetensors file;
    char *staging; /* pinned memory for the parts of tensors that are on their way */
    int64_t part;  /* bytes of a chunk; the memory has room for two */
    bool swaps;    /* elements are big-endian */
} ignis__load;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* safetensors_dtype.c */
extern const struct ignis__file_dtypes_type ignis__file_dtypes[22];

/* safetensors.c */
IGNIS__PRIVATE void ignis__safetensors_close(ignis__safetensors *file);
IGNIS__PRIVATE int64_t ignis__file_tensor_bytes(int type, const ignis_shape *shape);
IGNIS__PRIVATE int ignis__file_tensor_by_name(const void *a, const void *b);
IGNIS__PRIVATE void ignis__file_tensor_sort(ignis__file_tensor *items, int count,
                                            int (*order)(const void *, const void *));
IGNIS__PRIVATE const char *ignis__file_tensor_duplicate(const ignis__file_tensor *items, int count);
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__safetensors_length(const unsigned char *bytes, int64_t size);
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__safetensors_parse(ignis__safetensors *file,
                                                                     const unsigned char *bytes, int64_t size);
IGNIS__PRIVATE void ignis__json_write_string(ignis__string_writer *text, const char *string);
IGNIS__PRIVATE bool ignis__safetensors_arrange(ignis__file_tensor *items, int count);
IGNIS__COLD IGNIS__PRIVATE size_t ignis__safetensors_write(const ignis__file_tensor *items, int count,
                                                           const char *metadata, char *header, size_t capacity);

/* borrow.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__borrow_acquire(const char *call, ignis__borrowed_tensor *lent, int count);
IGNIS__COLD IGNIS__PRIVATE void ignis__borrow_release(const char *call, ignis__borrowed_tensor *lent, int count,
                                                      bool succeeded);
IGNIS__PRIVATE ignis__array *ignis__borrow_array(const char *call, ignis_tensor handle);
IGNIS__COLD IGNIS__PRIVATE bool ignis__check_named_tensors(const char *call, const char *path, const char *const *names,
                                                           const ignis_tensor *tensors, int count);

/* save.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__file_fail(const char *call, const char *path, const char *what);
IGNIS__COLD IGNIS__PRIVATE bool ignis__file_dtype_choose(const char *call, const char *name, ignis_dtype dtype,
                                                         int *type);
IGNIS__PRIVATE bool ignis__save_write(const char *call, const char *path, FILE *file, const void *data, int64_t size);
IGNIS__PRIVATE bool ignis__save_header(const char *call, const char *path, FILE *file, const ignis__file_tensor *items,
                                       int count, const char *metadata);
IGNIS__PRIVATE bool ignis__replace_begin(ignis__replacement *r, const char *call, const char *path);
IGNIS__PRIVATE bool ignis__replace_end(ignis__replacement *r, bool ok);
IGNIS__PRIVATE ignis_status ignis__save(const char *call, const char *path, const char *const *names,
                                        const ignis_tensor *tensors, int count, const char *metadata,
                                        const char *const *dtypes);
IGNIS__PRIVATE bool ignis__save_array(const char *call, const char *path, FILE *file, ignis__array *array,
                                      const ignis__file_tensor *item, void *chunk);

/* load.c */
IGNIS__PRIVATE void ignis__load_close(ignis__load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__load_open(const char *call, const char *path, ignis__load *load);
IGNIS__COLD IGNIS__PRIVATE bool ignis__load_open_file(const char *call, const char *path, ignis__load *load);
IGNIS__PRIVATE bool ignis__load_read(const char *call, const ignis__load *load, int64_t at, void *out, int64_t size);
IGNIS__PRIVATE bool ignis__load_arrays(const char *call, ignis__load *load, const ignis__borrowed_tensor *lent,
                                       int count);
IGNIS__PRIVATE ignis__file_tensor *ignis__file_tensor_find(const ignis__safetensors *file, const char *name);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__load_named(const char *call, const char *path, const char *const *names,
                                                          ignis_tensor *tensors, int count, bool trainable);

/* metadata.c */
IGNIS__COLD IGNIS__PRIVATE size_t ignis__metadata_write(const ignis_metadata *metadata, int count, char *out,
                                                        size_t capacity);

/* npy.c */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__npy_header_size(const unsigned char *bytes, int64_t size);
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__npy_parse(ignis__npy *npy, const unsigned char *bytes, int64_t size);
IGNIS__COLD IGNIS__PRIVATE size_t ignis__npy_write(int type, const ignis_shape *shape, char *out, size_t capacity);
