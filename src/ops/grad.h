/* >>grad - gradients as tensors, and derivatives of them ---------------------------------------------------------

   ignis_grad returns gradients and changes none that tensors have. With create_graph what computes them is recorded, so
   they can be differentiated again, to any order. */

typedef struct ignis_grad_desc {
    /* The gradient of each output, in its shape and dtype; no handle: 1, for an output of one element (NULL: none) */
    const ignis_tensor *seeds;
    bool create_graph; /* the gradients are on the tape; costs the memory of all that computes them (false) */
    bool retain_graph; /* the entries of the tape stay for another pass, as with create_graph (false) */
    bool allow_unused; /* inputs that do not lead to the outputs get no handle (false: an error) */
} ignis_grad_desc;

/*  ignis_grad - compute the gradients of outputs with regard to some tensors, as tensors of their own
    grads[i] is the sum over all outputs of the gradient with regard to inputs[i], which is a leaf or the result of an
    operation on the way. No gradient that a tensor has is read or changed. Only operations that an input leads to are
    run. Without create_graph and retain_graph their entries of the tape are freed, as by ignis_backward. With
    create_graph, also inside ignis_no_grad_begin, the gradients depend on inputs and seeds. An operation without a
    second derivative fails then, by its name. Inside a backward function or vjp_fn all inputs must be made there.
    Shapes and dtypes: those of the inputs.
    Returns: IGNIS_OK, and grads filled; on failure they are 0.
    Errors: FREED, ARGUMENT (null; a count below 1; a tensor that requires no gradient; an input that does not lead to
    the outputs; an output of several elements without a seed; those of ignis_backward), SHAPE, DTYPE, DEVICE (a seed),
    UNSUPPORTED (an operation without a second derivative), MEMORY, CUDA, and what backward functions fail with.
    Ownership: as ignis_tensor_from_host, for each gradient. Inputs, outputs and seeds stay the caller's.
    Threads: the one that recorded the outputs. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_grad(const ignis_tensor *outputs, int output_count, const ignis_tensor *inputs,
                                  int input_count, ignis_tensor *grads, const ignis_grad_desc *desc);

/*  ignis_derivative - the gradient of the sum of an output's elements with regard to an input, on the tape
    As ignis_grad with create_graph and seeds of 1. Where each row of the output depends on its own row of the input
    alone, as of a network at points, the rows of the result are the derivatives there; the derivative of that is the
    second one.
    Shapes and dtypes: those of the input.
    Returns: the tensor, or no handle.
    Errors: those of ignis_grad.
    Ownership: as ignis_tensor_from_host.
    Threads: the one that recorded the output. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_derivative(ignis_tensor output, ignis_tensor input);

/*  ignis_hvp - multiply the second derivatives of an output of one element by vectors (Pearlmutter 1994)
    products[i] is the sum over j of d^2 output / (d inputs[i] d inputs[j]) times vectors[j]: one gradient with
    create_graph, and one of that. No matrix is stored. Inputs that the gradient does not depend on get zeros. The tape
    keeps the entries of the output.
    Shapes and dtypes: those of the inputs, for vectors and products.
    Returns: IGNIS_OK, and products filled; on failure they are 0.
    Errors: those of ignis_grad.
    Ownership: as ignis_tensor_from_host, for each product.
    Threads: the one that recorded the output. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_hvp(ignis_tensor output, const ignis_tensor *inputs, int count,
                                 const ignis_tensor *vectors, ignis_tensor *products);

/*  ignis_jacobian - compute all derivatives of an output by an input
    A pass for each element of the output; for each element of the input where those are fewer, through the gradient of
    the gradient by its seed. The tape keeps the entries of the output. The result is not on the tape.
    Shapes: [elements of the output, elements of the input].
    Returns: the tensor, or no handle.
    Errors: those of ignis_grad.
    Ownership: as ignis_tensor_from_host.
    Threads: the one that recorded the output. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_jacobian(ignis_tensor output, ignis_tensor input);
