/*  >>tensor.checkpoint - ignis_checkpoint: recompute in the backward pass what the forward pass did not keep

    The first run is not recorded; it notes which older arrays it reads. The backward function runs the
    caller's function again, recorded, on fresh leaves over the saved inputs. Results of products that the first
    run has kept are results of the same products in the second, in their order.
    Uses: tape, scope, backward_pass, the random numbers of kernel.
    Invariant: an input that has changed since the first run fails the pass; random numbers are the same in
    both runs. */

#include "room.h"

/*  Calls a function of the caller's. No handle if it failed, or did not end what it began. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_fn_call(const char *call, int no_grad, ignis_tensor_fn fn,
                                                  const ignis_tensor *inputs, int count, void *user_data)
{
    const uint64_t failures = ignis__failures();
    ignis__frame frame;
    ignis_tensor output;
    ignis__frame_begin(&frame, call, NULL, no_grad);
    output = fn(inputs, count, user_data);
    if (!ignis__frame_end(&frame))
        return ignis__no_tensor();
    if (!output.id && ignis__failures() == failures)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "the function returned no tensor and reported no failure");
    return output;
}

#define IGNIS__OFFLOAD_BYTES ((int64_t)1 << 20)

typedef struct ignis__checkpoint {
    ignis_tensor_fn fn;
    void *user_data;
    ignis__random_state random;
    bool counts;           /* random numbers depend on a graph's launches; their counter is the last array saved */
    bool keeps;            /* results of products */
    int64_t offload_bytes; /* results of as many bytes are kept in pinned memory; 0: none */
    int first_product, product_count; /* among the saved arrays */
} ignis__checkpoint;

/*  Adds a result, whose claim is taken over also on failure. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__products_add(const char *call, ignis__products *products, ignis__array *claimed)
{
    if (products->count == products->capacity) {
        int capacity = products->capacity ? 2 * products->capacity : 16;
        ignis__array **arrays = (ignis__array **)ignis__alloc_for(
            call, (sizeof *products->arrays + sizeof *products->versions) * (size_t)capacity);
        uint64_t *versions;
        if (!arrays) {
            ignis__array_unclaim(call, claimed);
            return false;
        }
        versions = (uint64_t *)(void *)(arrays + capacity);
        if (products->count) {
            memcpy(arrays, products->arrays, sizeof *arrays * (size_t)products->count);
            memcpy(versions, products->versions, sizeof *versions * (size_t)products->count);
        }
        ignis__free(products->arrays);
        products->arrays = arrays;
        products->versions = versions;
        products->capacity = capacity;
    }
    products->arrays[products->count] = claimed;
    products->versions[products->count++] = ignis__array_version(claimed);
    return true;
}

/*  Returns the result that the first run has kept of the product that is next. NULL, and reported, if that was another
    product. */
IGNIS__COLD IGNIS__PRIVATE ignis__array *ignis__products_next(const char *call, ignis__products *products,
                                                              const ignis_shape *shape, ignis_dtype dtype)
{
    ignis__array *kept = products->next < products->count ? products->arrays[products->next] : NULL;
    if (kept && kept->dtype == dtype && ignis__shape_same(&kept->shape, shape)) {
        products->next++;
        return kept;
    }
    ignis__fail(
        IGNIS_DIAG_CHECKPOINT_DIFFERS, call,
        "result %d of products is %s of %s in the second run of a checkpoint's function; expected %s%s%s, as in "
        "the first",
        products->next, ignis__shape_write(shape).text, ignis__dtypes[dtype].name,
        kept ? ignis__shape_write(&kept->shape).text : "no more", kept ? " of " : "",
        kept ? ignis__dtypes[kept->dtype].name : "");
    return NULL;
}

static void ignis__products_free(const char *call, ignis__products *products)
{
    while (products->count)
        ignis__array_unclaim(call, products->arrays[--products->count]);
    ignis__free(products->arrays);
}

/*  Runs the function of a checkpoint for the second time, recorded, with the random numbers and the products of the
    first. No handle after a failure. */
IGNIS__COLD static ignis_tensor ignis__checkpoint_run_again(const char *call, const ignis__node *node,
                                                            const ignis_tensor *inputs)
{
    const ignis__checkpoint *checkpoint = (const ignis__checkpoint *)node->params;
    ignis__random_state *random = &ignis__thread_state()->random, random_before = *random;
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__products products = IGNIS__ZERO, *keeps = thread->keeps, *replays = thread->replays;
    ignis_tensor output;
    products.arrays = node->saved + checkpoint->first_product;
    products.count = checkpoint->product_count;
    if (node->offload && !ignis__offload_use(call, node->offload, &products))
        return ignis__no_tensor();
    *random = checkpoint->random;
    random->again = true;
    random->launches = checkpoint->counts ? node->saved[node->saved_count - node->kept_count - 1]->slot.handle : 0;
    thread->keeps = NULL;
    thread->replays = checkpoint->keeps ? &products : NULL;
    output = ignis__tensor_fn_call(call, 0, checkpoint->fn, inputs, node->input_count, checkpoint->user_data);
    thread->keeps = keeps;
    thread->replays = replays;
    *random = random_before;
    if (node->offload && !ignis__offload_end_use(call, node->offload))
        output.id = 0;
    if (output.id && products.next < products.count) {
        ignis__fail(IGNIS_DIAG_CHECKPOINT_DIFFERS, call,
                    "the function has computed %d results of products in its second run; expected %d, as in the first",
                    products.next, products.count);
        output.id = 0;
    }
    return output;
}

/*  Runs the function again on fresh leaves over the saved inputs, this time recorded, and runs a backward
    pass through it. */
IGNIS__COLD static ignis_status ignis__checkpoint_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_checkpoint";
    ignis_tensor inputs[IGNIS__MAX_INPUTS], output;
    ignis_tensor_info info;
    ignis_scope scope = ignis_scope_begin();
    ignis_status status = IGNIS_OK;
    int i;
    if (!scope.id)
        return ignis__failed();
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
        output = ignis__checkpoint_run_again(call, ignis__tensor_thread_now()->pass->node, inputs);
    if (!output.id || ignis_tensor_query(output, &info) != IGNIS_OK)
        status = ignis__failed();
    else if (info.requires_grad)
        status = ignis_backward(output, args->grad_output);
    for (i = 0; status == IGNIS_OK && i < args->input_count; i++) {
        ignis__array *grad;
        ignis_array handle = args->needed[i] ? ignis_tensor_grad(inputs[i]) : args->grad_output;
        if (!args->needed[i] || !handle.id) /* fn did not use the input */
            continue;
        grad = ignis__array_hold(call, handle);
        args->grad_inputs[i] = ignis__array_view(call, grad, &grad->shape, grad->numel, 0); /* it outlives the leaf */
        ignis__array_drop(call, grad);
        if (!args->grad_inputs[i].id)
            status = ignis__failed();
    }
    ignis_scope_end(scope);
    return status;
}

/*  Runs the function again, recorded, on the inputs themselves, and differentiates what it has recorded. */
IGNIS__COLD static ignis_status ignis__checkpoint_vjp(const ignis_vjp_args *args)
{
    static const char call[] = "ignis_checkpoint";
    ignis_tensor output = ignis__checkpoint_run_again(call, args->node, args->inputs);
    return output.id ? ignis__recorded_splice(call, output, args->grad_output) : ignis__failed();
}

/*  Runs the function of a checkpoint unrecorded in a scope of its own. Returns a tensor over its result,
    which may be an input. */
IGNIS__COLD static ignis_tensor ignis__checkpoint_run(const char *call, const ignis__checkpoint *checkpoint,
                                                      const ignis_tensor *inputs, int count, ignis__products *products)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__products *keeps = thread->keeps, *replays = thread->replays;
    ignis_tensor output, result = IGNIS__ZERO;
    ignis__tensor *tensor = NULL;
    ignis__array *array = NULL;
    ignis_scope scope = ignis_scope_begin();
    if (!scope.id)
        return result;
    if (ignis__recording() && checkpoint->keeps)
        thread->keeps = products;
    else if (!checkpoint->keeps) /* nor are they for an enclosing checkpoint */
        thread->keeps = thread->replays = NULL;
    output = ignis__tensor_fn_call(call, thread->no_grad + 1, checkpoint->fn, inputs, count, checkpoint->user_data);
    thread->keeps = keeps;
    thread->replays = replays;
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

/*  Makes the result of a checkpoint's function the result of an operation on its held inputs, as they were
    before it ran. Integers have no gradient. */
IGNIS__COLD static bool ignis__checkpoint_record(const char *call, ignis__checkpoint *checkpoint, ignis_tensor result,
                                                 ignis__tensor *const *inputs, int count,
                                                 ignis__checkpoint_inputs *reads, ignis__products *products)
{
    ignis_array launches = ignis__random_launches();
    ignis__tensor *made = ignis__tensor_hold(call, result);
    ignis__node *node;
    ignis__offload *offload = NULL;
    ignis_rule rule = IGNIS__ZERO;
    int i, alive = count;
    bool ok = true;
    if (!made || !ignis__dtype_is_float(made->dtype)) {
        if (made)
            ignis__tensor_drop(call, made);
        return made != NULL;
    }
    rule.name = "checkpoint";
    rule.backward_fn = ignis__checkpoint_backward;
    rule.vjp_fn = ignis__checkpoint_vjp;
    /* Arrays that fn has freed itself cannot be read again. */
    for (i = count; i < reads->count; i++) {
        if (ignis_array_is_live(reads->arrays[i])) {
            reads->arrays[alive] = reads->arrays[i];
            reads->versions[alive++] = reads->versions[i];
        }
    }
    if (checkpoint->offload_bytes && products->count &&
        (offload = ignis__offload_begin(call, products, checkpoint->offload_bytes)) == NULL) {
        ok = false;
    }
    reads->count = checkpoint->first_product = alive;
    checkpoint->product_count = products->count;
    for (i = 0; ok && i < products->count; i++) {
        if (!ignis__checkpoint_inputs_add(call, reads, products->arrays[i])) {
            ok = false;
            break;
        }
        reads->versions[alive++] = products->versions[i];
    }
    checkpoint->counts = launches.id != 0;
    if (reads->arrays)
        reads->arrays[alive] = launches;
    rule.saved = reads->arrays ? reads->arrays : &launches;
    rule.saved_count = alive + checkpoint->counts;
    rule.params = checkpoint;
    rule.params_size = sizeof *checkpoint;
    node = ok ? ignis__tape_add(call, made, count, inputs, &rule) : NULL;
    if (node) {
        node->nests = true;
        node->offload = offload;
        node->uses = reads->uses;
        node->use_count = reads->use_count;
        reads->uses = NULL;
        reads->use_count = 0;
        if (alive)
            memcpy(node->versions, reads->versions, sizeof *reads->versions * (size_t)alive);
    } else {
        ignis__tensor_end_handle(call, made);
        if (offload)
            ignis__offload_close(call, offload);
    }
    ignis__tensor_drop(call, made);
    return node != NULL;
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_checkpoint(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs,
                                                    int count, const ignis_checkpoint_desc *desc)
{
    static const char call[] = "ignis_checkpoint";
    ignis_tensor result = IGNIS__ZERO;
    ignis__checkpoint_inputs reads,
        /* Of the inputs first: a function that writes to them would not do the same the second time. */
        *before;
    ignis__checkpoint checkpoint = IGNIS__ZERO;
    ignis__products products = IGNIS__ZERO;
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
    if (desc && ((int)desc->recompute < 0 || desc->recompute >= IGNIS_RECOMPUTE_COUNT)) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->recompute is %d, not one of ignis_recompute",
                    (int)desc->recompute);
        return result;
    }
    if (desc && desc->offload_bytes < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->offload_bytes is %lld, below 0",
                    (long long)desc->offload_bytes);
        return result;
    }
    thread = ignis__tensor_thread_now();
    memset(&reads, 0, sizeof reads);
    checkpoint.fn = fn;
    checkpoint.user_data = user_data;
    checkpoint.keeps = desc && desc->recompute != IGNIS_RECOMPUTE_ALL;
    if (desc && desc->recompute == IGNIS_RECOMPUTE_OFFLOAD_PRODUCTS)
        checkpoint.offload_bytes = desc->offload_bytes ? desc->offload_bytes : IGNIS__OFFLOAD_BYTES;
    checkpoint.random = ignis__thread_state()->random;
    for (; ok && i < count; i += ok) {
        ignis__array *array;
        held[i] = ignis__tensor_hold(call, inputs[i]);
        array = held[i] ? ignis__tensor_array(call, held[i]) : NULL;
        ok = array && ignis__checkpoint_inputs_add(call, &reads, array);
        if (ok)
            wanted = wanted || ignis__tensor_requires_grad(held[i]);
        if (array)
            ignis__array_drop(call, array);
        if (!ok && held[i])
            ignis__tensor_drop(call, held[i]);
    }
    reads.newest = ignis__atomic_load(&ignis__array_ids);
    before = thread->checkpoint_inputs;
    /* Unrecorded, an outer checkpoint may note the reads of its function, which this is part of. */
    if (ignis__recording())
        thread->checkpoint_inputs = &reads;
    saw_before = thread->saw_trainable;
    thread->saw_trainable = wanted;
    if (ok)
        result = ignis__checkpoint_run(call, &checkpoint, inputs, count, &products);
    thread->checkpoint_inputs = before;
    /* Weights that fn uses besides its inputs may require gradients. */
    wanted = thread->saw_trainable;
    thread->saw_trainable = saw_before || wanted;
    if (result.id && wanted && ignis__recording() &&
        !ignis__checkpoint_record(call, &checkpoint, result, held, count, &reads, &products))
        result.id = 0;
    ignis__products_free(call, &products);
    ignis__free(reads.arrays);
    while (reads.use_count > 0)
        ignis__tensor_drop(call, reads.uses[--reads.use_count]);
    ignis__free(reads.uses);
    while (i > 0)
        ignis__tensor_drop(call, held[--i]);
    return result;
}
