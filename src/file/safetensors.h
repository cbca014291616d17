/* >>file - safetensors files ------------------------------------------------------------------------------------ */

typedef struct ignis_storage_entry {
    char name[256];    /* cut, at a whole character, to 255 bytes */
    ignis_dtype dtype; /* after ignis_load; IGNIS_DTYPE_DEFAULT if not supported */
    ignis_shape shape; /* [1] for a tensor without dimensions */
    int64_t bytes;     /* in the file */
} ignis_storage_entry;

/*  ignis_save - write tensors and their names to a safetensors file
    Names are UTF-8, different from each other and not "__metadata__"; one tensor may have several. The file is
    identical to that of the Python package safetensors for the same tensors. It is written beside path, flushed to
    the disk and renamed, so path has the old file or the new one, whatever happens; on a failure the old one. The new
    file gets the old one's mode, and its owner and group as far as the system allows. A symbolic link stays, and its
    target is replaced; other hard links of the old file keep the old content. The same holds for all calls that write
    models, adapters and their configs. On Windows the folder decides on the rights of a new file.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null, a count below 0, a bad name, a tensor that was never written to), FREED, CONTRACT (an
    array is owned by another layer or being saved or loaded by another thread), UNSUPPORTED (this thread captures a
    graph), MEMORY, IO, CUDA.
    Ownership: during the call IGNIS_OWNER_WNAIS owns the tensors' arrays. names and tensors may be reused when the
    call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count);

/*  An entry of a file's metadata: two texts in UTF-8. */
typedef struct ignis_metadata {
    const char *key, *value;
} ignis_metadata;

typedef struct ignis_save_desc {
    const ignis_metadata *metadata; /* such as {"format", "pt"}, in the order of the list (none) */
    int metadata_count;
    /* In the file, for each tensor: "BOOL" of u8, "I8", "I16" or "U16" of i32, "U32" of i64; null is the tensor's own.
       A value that the dtype does not hold is an error (null: all are the tensors' own). */
    const char *const *dtypes;
} ignis_save_desc;

/*  ignis_save_with - ignis_save with metadata, and with dtypes of the file that Ignis does not compute in
    desc may be null for all defaults.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_save; ARGUMENT (metadata that is null, not UTF-8 or has a key twice; a value that the
    file's dtype does not hold), DTYPE (the tensor's dtype does not become that of the file).
    Ownership: as ignis_save; the texts may be reused when the call returns.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_save_with(const char *path, const char *const *names, const ignis_tensor *tensors,
                                       int count, const ignis_save_desc *desc);

/*  ignis_load - read tensors from a safetensors file by their names; the rest of the file is ignored
    If tensors[i].id is 0, a new tensor that requires no gradient is made on the current device. Else the values go
    into that tensor, whose shape and dtype must be those of the file. A tensor without dimensions counts as [1].
    BOOL becomes U8; I8, I16 and U16 become I32; U32 becomes I64. The whole header is checked, and every name found,
    before the first tensor is touched.
    Returns: IGNIS_OK, or the reason; then no tensor was made, and given tensors are unchanged, except after MEMORY,
    CUDA or IO (another process has shortened the file meanwhile, say).
    Errors: ARGUMENT (null, a count below 0, a name that is not in the file), FORMAT (the file is damaged, truncated
    or not safetensors), SHAPE, DTYPE (a given tensor differs from the file's), UNSUPPORTED (a dtype that Ignis does
    not support, or this thread captures a graph), FREED, CONTRACT (an array is owned by another layer or being
    saved or loaded by another thread), MEMORY, IO, CUDA.
    Ownership: new tensors as ignis_tensor_from_host. During the call IGNIS_OWNER_WNAIS owns the tensors' arrays.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count);

/*  ignis_load_trainable - ignis_load whose new tensors require gradients, except integers and types of 8 bits
    ignis_tensor_set_requires_grad changes it for one tensor. Given tensors stay as they are.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_load.
    Ownership: as ignis_load.
    Threads: any. Streams: writes on the current stream, and waits for the current device. */
IGNIS_API ignis_status ignis_load_trainable(const char *path, const char *const *names, ignis_tensor *tensors,
                                            int count);

/*  ignis_file_metadata - return the text of a key in the metadata of a safetensors file
    key null: all metadata, as one JSON object; "{}" if the file has none. Of a key that comes twice the last counts. A
    character 0 ends a text.
    Returns: the length of the whole text without its end, as snprintf does; out may be null if capacity is 0; -1 on
    failure.
    Errors: ARGUMENT (null; the file has no such key: the message has some that it has), FORMAT, MEMORY, IO.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always terminated.
    Threads: any. */
IGNIS_API int64_t ignis_file_metadata(const char *path, const char *key, char *out, size_t capacity);

/*  ignis_file_list - list the tensors in a safetensors file, in the order of their data
    entries may be null if capacity is 0.
    Returns: the number of tensors, also if that is more than capacity; -1 on failure.
    Errors: ARGUMENT, FORMAT (the file is damaged, truncated or not safetensors), MEMORY, IO.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_file_list(const char *path, ignis_storage_entry *entries, int capacity);
#define ignis_storage_list ignis_file_list /* the name up to 0.4; gone in 0.6 */

/*  ignis_npy_save - write a tensor to a .npy file of NumPy, version 1.0, in C order
    dtype: null for the tensor's own, or a dtype of the file as in ignis_save_desc ("BOOL" of u8, ...). The bytes are
    those of numpy.save. bf16 and the types of 8 bits have no dtype there: ignis_cast them. The file is written beside
    path and renamed, as by ignis_save.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null path, never written to, a value that dtype does not hold), DTYPE, FREED, CONTRACT,
    UNSUPPORTED (a dtype that .npy files do not have; this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: unchanged. During the call IGNIS_OWNER_WNAIS owns the tensor's array.
    Threads: any. Streams: reads on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_npy_save(const char *path, ignis_tensor tensor, const char *dtype);

/*  ignis_npy_load - read a tensor from a .npy file of NumPy: versions 1.0 to 3.0, C or Fortran order, either byte order
    Dtypes become those of ignis_load; complex64 and complex128 become f32 and f64 with one more dimension of 2. An
    array without dimensions becomes [1]. Data after the first array of the file is ignored. desc may be null for all
    defaults; desc->dtype casts (default: as the file), host_dtype and host_count are not used.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null path, no such dtype), FORMAT (not a .npy file, damaged or truncated), UNSUPPORTED (a dtype
    that does not become one of Ignis, such as uint64, text, Python objects or fields; this thread captures a graph),
    SHAPE (more than 8 dimensions), DTYPE (a gradient of integers), DEVICE, MEMORY, IO, CUDA, LIBRARY, COMPILE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: writes on the current stream, and waits for it. */
IGNIS_API ignis_tensor ignis_npy_load(const char *path, const ignis_tensor_desc *desc);
