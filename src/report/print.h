/* >>print - tensors and models as text ---------------------------------------------------------------------------- */

/*  ignis_tensor_values_to_string - write a tensor's values, shape and dtype as text, as repr of NumPy does
    tensor([[ 1.  ,  2.5 ],
            [-3.  ,  0.25]], shape=[2, 2], dtype=f32)
    Numbers have the fewest digits that tell them apart from others of their dtype, and at most 8 after the point. Of
    more than 1000 elements the first and the last 3 of each dimension are written, and alone read.
    Returns: the length of the whole text without its end, as snprintf does; out may be null if capacity is 0; -1 on
    failure.
    Errors: FREED, ARGUMENT (null out, never written to), UNSUPPORTED (this thread captures a graph), MEMORY, CUDA.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always terminated.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API int ignis_tensor_values_to_string(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_tensor_print - write the text of ignis_tensor_values_to_string and the end of a line to stdout
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_tensor_values_to_string; IO (stdout cannot be written).
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_tensor_print(ignis_tensor tensor);

/*  ignis_summary_to_string - write a table of a model's tensors as text: names, shapes, dtypes, numbers of parameters,
    bytes
    names may be null: tags of the tensors serve. Below the table are the sums: parameters, those that require a
    gradient, bytes of values and of gradients; and for each device of the tensors the memory that Ignis uses now and
    used at most.
    Returns: the length of the whole text without its end, as snprintf does; out may be null if capacity is 0; -1 on
    failure.
    Errors: FREED, ARGUMENT (null, a count below 0), MEMORY, CUDA.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always terminated.
    Threads: any. Does not wait. */
IGNIS_API int ignis_summary_to_string(const char *const *names, const ignis_tensor *tensors, int count, char *out,
                                      size_t capacity);

/*  ignis_summary_print - write the text of ignis_summary_to_string to stdout
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_summary_to_string; IO (stdout cannot be written).
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_summary_print(const char *const *names, const ignis_tensor *tensors, int count);
