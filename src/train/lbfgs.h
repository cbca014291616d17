/* >>lbfgs - L-BFGS, whose steps compute a loss several times -------------------------------------------------- */

typedef struct ignis_lbfgs_desc {
    double lr;               /* length of a step, or the first one that the line search tries (1) */
    int max_iter;            /* directions of a call (20) */
    int max_eval;            /* losses of a call, looked at after each direction (max_iter * 5 / 4) */
    double tolerance_grad;   /* ends a call where no gradient is larger (1e-7) */
    double tolerance_change; /* ends a call where loss or parameters change less (1e-9) */
    int history;             /* steps that the directions are made from (100) */
    bool no_line_search;     /* steps of length lr (false: strong Wolfe conditions) */
} ignis_lbfgs_desc;

/*  ignis_loss_fn - compute a loss of one element from the parameters, with a gradient; or return no handle to fail */
typedef ignis_tensor (*ignis_loss_fn)(void *user_data);

/*  ignis_lbfgs - an optimizer by L-BFGS (Liu and Nocedal 1989), with a line search for the strong Wolfe conditions; as
    torch.optim.LBFGS
    ignis_optimizer_add gives it parameters of f32 and f64, before its first step; there is no weight decay, and
    there are no groups. It keeps 2 history + 8 arrays as large as all parameters together. The history is no part of
    a saved state. It lives on the current device. desc may be null for all defaults.
    Returns: the optimizer, or no handle.
    Errors: ARGUMENT (a number of the desc below 0, NaN or infinite), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_optimizer_free.
    Threads: any. */
IGNIS_API ignis_optimizer ignis_lbfgs(const ignis_lbfgs_desc *desc);

/*  ignis_lbfgs_step - minimize a loss from the parameters on, by up to max_iter directions
    fn is called for each loss, in the calling thread and in a scope of its own; gradients are set to zero before it,
    and ignis_backward follows. It may not step the same optimizer. *loss becomes the loss before the step, and may be
    null. Host and device wait for each other some times for each direction. A call goes on from the history of those
    before.
    Returns: IGNIS_OK, or the reason; then the parameters may be between two points.
    Errors: FREED, ARGUMENT (fn is null; no parameters; another kind of optimizer; fn returned no tensor; steps in
    steps), UNSUPPORTED (this thread captures a graph), SHAPE (a loss of several elements), MEMORY, LIBRARY, COMPILE,
    CUDA, and what fn and ignis_backward fail with.
    Ownership: unchanged; the loss is released with its scope.
    Threads: any. Streams: queued on the current stream of the optimizer's device, and waits for it. */
IGNIS_API ignis_status ignis_lbfgs_step(ignis_optimizer optimizer, ignis_loss_fn fn, void *user_data, double *loss);
