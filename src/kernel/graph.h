/* >>graph - a step captured once, replayed with one call -------------------------------------------------------- */

/*  Work captured once and replayed with one call. */
typedef struct ignis_graph {
    uint64_t id;
} ignis_graph;

/*  ignis_graph_begin - capture what the calling thread queues on its current stream from here on, instead of running
    it
    Work of other threads is not captured: it goes to their own streams. Run the same work once before the capture:
    this compiles kernels, makes plans and fills optimizer tables. During the capture, calls that would have to wait
    or to read host memory (to_host, item, from_host, synchronize, freeing a kernel, a graph or pinned memory, adding
    to an optimizer) fail with IGNIS_ERROR_UNSUPPORTED and leave the capture unchanged; so does ignis_graph_launch.
    Memory taken during the capture stays with the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (this thread captures already), DEVICE, CUDA.
    Ownership: nothing to free; end it with ignis_graph_end.
    Threads: any; each captures for itself. Waits for the device first, and for threads that wait for it. */
IGNIS_API ignis_status ignis_graph_begin(void);

/*  ignis_graph_end - end the capture, and make the graph
    Returns: the graph, or no handle; the capture is over either way.
    Errors: ARGUMENT (nothing is captured), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_graph_free. The graph keeps arrays and kernels of the captured work
    alive. Results keep their handles, and each launch writes them again.
    Threads: the one that began. */
IGNIS_API ignis_graph ignis_graph_end(void);

/*  ignis_graph_launch - replay the captured work
    Random numbers (ignis_dropout, ignis_tensor_rand, ignis_tensor_randn) are new at each launch; within one launch an
    operation and its gradient use the same numbers. They follow from the seed and the calls before the capture, and
    from the count of launches, which begins at 1. CUDA does not put a graph into another one: while the current
    stream is captured, the launch is refused and the capture goes on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DEVICE (another device is current), UNSUPPORTED (the current stream is captured), CUDA.
    Ownership: unchanged.
    Threads: any; launches of one graph must not overlap on different streams. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_graph_launch(ignis_graph graph);

/*  ignis_graph_launches - how often a graph has been launched; ignis_graph_set_launches - continue that count
    Random numbers of a graph follow from it. A run that is resumed captures the same work, in the state of
    ignis_random_save that the first run had at ignis_graph_begin, and sets the count that the first run had at the
    end: then the next launch has the numbers that the next one there would have had, bit for bit.
    Returns: the count, -1 on failure; IGNIS_OK, or the reason.
    Errors: FREED; for set also ARGUMENT (count below 0), UNSUPPORTED (this thread captures), CUDA.
    Ownership: unchanged.
    Threads: any; not while another thread launches the graph. Streams: queued on the current stream; set waits for
    it. */
IGNIS_API int64_t ignis_graph_launches(ignis_graph graph);
IGNIS_API ignis_status ignis_graph_set_launches(ignis_graph graph, int64_t count);

/*  ignis_graph_free - free a graph, and the memory that only it used
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures).
    Ownership: the handle is stale afterwards; results stay valid.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_graph_free(ignis_graph graph);
