/* >>ops.einsum - sums of products by labels of dimensions -------------------------------------------------------

   They are computed by the library's products, sums and permutations, and have their gradients. */

#define IGNIS_MAX_OPERANDS 8 /* of ignis_einsum */

/*  ignis_einsum - sums of products, by Einstein's convention
    ignis_einsum("bhqd,bhkd->bhqk", operands, 2)
    Each operand has a label, a letter, for each of its dimensions; terms are separated by commas. Elements are
    multiplied where labels are equal, and summed over labels that the result lacks. As numpy.einsum and
    torch.einsum:
        "ii->i"       a label twice in a term: the diagonal
        "...ij,...jk" dots: all other dimensions; they broadcast from the last one on. The result without dots sums them
        "ij,jk"       without ->, the result has the dots, and the labels that come once, in ASCII order: "ik"
    A dimension of 1 broadcasts to that of the same label elsewhere. Blanks do not count. The order of up to
    IGNIS_MAX_OPERANDS operands is that with the fewest multiplications, of all orders.
    A product of two that sums over a label is a matrix product (ignis_matmul), of permuted copies where labels are
    not in its order; other products are formulas. f16 and bf16 are rounded after each product of two.
    Shapes: up to 8 dimensions, also between two products; without labels the result is [1], and so is an operand.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null, count, an equation that is not sound, with its column), SHAPE (sizes of a label
    differ, labels and dimensions differ in number, more than 8 dimensions), DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_einsum(const char *equation, const ignis_tensor *operands, int count);

/*  ignis_tensordot - the sums of products of a and b over count pairs of dimensions: dims_a[i] of a and dims_b[i] of b
    Negative dimensions count from the last one on. Dimensions of the result are the others of a, and then those of
    b; [1] if there are none. count may be 0.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (null, count), SHAPE (no such dimension, one given twice, sizes of a pair differ, more
    than 8 dimensions), DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensordot(ignis_tensor a, ignis_tensor b, const int *dims_a, const int *dims_b, int count);
