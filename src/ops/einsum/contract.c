/*  >>ops.einsum.contract - products of two terms, and the order of products of several

    A term is a tensor with labels. First each term loses what it has alone: diagonals are taken, dimensions of 1 that
    broadcast are dropped, labels that no other term and no result has are summed. Then two terms at a time become one.
    Uses: equation, strided_copy, permute, reshape, matmul, map. */

#include "room.h"

static uint64_t ignis__term_labels(const ignis__term *term)
{
    uint64_t labels = 0;
    int i;
    for (i = 0; i < term->count; i++)
        labels |= (uint64_t)1 << term->label[i];
    return labels;
}

/*  Replaces the tensor of a term; the one before is released if it was made here. */
static bool ignis__term_set(ignis__term *term, ignis_tensor tensor)
{
    if (term->is_made && term->tensor.id)
        (void)ignis_tensor_release(term->tensor);
    term->tensor = tensor;
    term->is_made = true;
    return tensor.id != 0;
}

/*  Gives a term's tensor the shape of the sizes of its labels; [1] without labels. */
static bool ignis__term_reshape(ignis__term *term)
{
    ignis_shape shape = IGNIS_SHAPE(1);
    int i;
    for (i = 0; i < term->count; i++)
        shape.dim[i] = term->size[i];
    shape.ndim = term->count ? term->count : 1;
    return ignis__term_set(term, ignis_reshape(term->tensor, shape));
}

/*  Keeps one dimension of each label: the diagonal of those that come twice. A strided copy. */
static bool ignis__term_diagonal(ignis__term *term)
{
    ignis__strides strides, all;
    ignis__term made = *term;
    ignis_shape shape;
    ignis__op op;
    int i, k;
    if (!ignis__strided_begin(&op, "ignis_einsum", term->tensor, &strides))
        return false;
    all = strides;
    made.count = 0;
    for (i = 0; i < term->count; i++) {
        for (k = 0; k < made.count && made.label[k] != term->label[i]; k++)
            ;
        if (k < made.count) {
            strides.from[k] += all.from[i];
            continue;
        }
        made.label[k] = term->label[i];
        made.size[k] = shape.dim[k] = strides.size[k] = term->size[i];
        strides.from[k] = all.from[i];
        made.count++;
    }
    strides.rank = shape.ndim = made.count;
    if (!ignis__term_set(&made, ignis__strided_end(&op, "diagonal", &shape, &strides, NULL))) {
        term->tensor.id = 0;
        return false;
    }
    *term = made;
    return true;
}

/*  Sums a term over labels. */
static bool ignis__term_sum(ignis__term *term, uint64_t labels)
{
    ignis_reduce_desc desc = IGNIS__ZERO;
    ignis_inputs inputs = IGNIS__ZERO;
    int i, count = 0;
    inputs.names = "x";
    inputs.count = 1;
    inputs.tensor[0] = term->tensor;
    for (i = 0; i < term->count; i++) {
        if (labels >> term->label[i] & 1) {
            desc.dims[desc.dim_count++] = i;
            continue;
        }
        term->label[count] = term->label[i];
        term->size[count++] = term->size[i];
    }
    term->count = count;
    return ignis__term_set(term, ignis_map_reduce(IGNIS_REDUCE_SUM, "x", inputs, &desc));
}

/*  Takes from a term what it has alone. others: labels of the other terms and of the result. */
static bool ignis__term_prepare(ignis__einsum *e, ignis__term *term, uint64_t others)
{
    uint64_t seen = 0, alone;
    bool repeats = false;
    int i, count = 0;
    for (i = 0; i < term->count; i++) {
        repeats = repeats || (seen >> term->label[i] & 1);
        seen |= (uint64_t)1 << term->label[i];
    }
    if (repeats && !ignis__term_diagonal(term))
        return false;
    for (i = 0; i < term->count; i++) {
        if (term->size[i] == 1 && e->size[term->label[i]] != 1)
            continue;
        term->label[count] = term->label[i];
        term->size[count++] = term->size[i];
    }
    if (count < term->count) {
        term->count = count;
        if (!ignis__term_reshape(term))
            return false;
    }
    alone = ignis__term_labels(term) & ~others;
    return !alone || ignis__term_sum(term, alone);
}

/*  Permutes a term to an order of its labels. */
static bool ignis__term_permute(ignis__term *term, const uint8_t *order)
{
    int64_t size[IGNIS_MAX_DIMS];
    int dims[IGNIS_MAX_DIMS], i, k;
    bool moves = false;
    for (i = 0; i < term->count; i++) {
        for (k = 0; term->label[k] != order[i]; k++)
            ;
        dims[i] = k;
        size[i] = term->size[k];
        moves = moves || k != i;
    }
    if (!moves)
        return true;
    memcpy(term->label, order, (size_t)term->count);
    memcpy(term->size, size, sizeof size);
    return ignis__term_set(term, ignis_permute(term->tensor, dims, term->count));
}

/*  Appends those of a term's labels that are in a set, in the term's order. */
static void ignis__order_add(uint8_t *order, int *count, const ignis__term *term, uint64_t set)
{
    int i;
    for (i = 0; i < term->count; i++)
        if (set >> term->label[i] & 1)
            order[(*count)++] = term->label[i];
}

/*  An arrangement of a matrix product of two terms. */
typedef struct ignis__contraction {
    uint8_t a[IGNIS_MAX_DIMS], b[IGNIS_MAX_DIMS], out[2 * IGNIS_MAX_DIMS];
    int a_count, b_count, out_count;
    bool swaps, transposes_b;
    double moved; /* elements that are permuted */
} ignis__contraction;

static double ignis__term_numel(const ignis__term *term)
{
    double numel = 1;
    int i;
    for (i = 0; i < term->count; i++)
        numel *= (double)term->size[i];
    return numel;
}

/*  Makes an arrangement. choice: bit 0: the order of labels of both that stay is b's; bit 1: that of labels that are
    summed; bit 2: b is the first factor; bit 3: the second factor is transposed. */
static ignis__contraction ignis__contraction_make(const ignis__einsum *e, const ignis__term *a, const ignis__term *b,
                                                  uint64_t both, uint64_t summed, int choice)
{
    const ignis__term *batch = choice & 1 ? b : a, *inner = choice & 2 ? b : a, *first = choice & 4 ? b : a,
                      *second = choice & 4 ? a : b;
    ignis__contraction c = IGNIS__ZERO;
    double rows = 1;
    int i;
    c.swaps = (choice & 4) != 0;
    c.transposes_b = (choice & 8) != 0;
    ignis__order_add(c.a, &c.a_count, batch, both);
    ignis__order_add(c.a, &c.a_count, first, ~(both | summed));
    ignis__order_add(c.a, &c.a_count, inner, summed);
    ignis__order_add(c.b, &c.b_count, batch, both);
    if (c.transposes_b)
        ignis__order_add(c.b, &c.b_count, second, ~(both | summed));
    ignis__order_add(c.b, &c.b_count, inner, summed);
    if (!c.transposes_b)
        ignis__order_add(c.b, &c.b_count, second, ~(both | summed));
    ignis__order_add(c.out, &c.out_count, batch, both);
    ignis__order_add(c.out, &c.out_count, first, ~(both | summed));
    ignis__order_add(c.out, &c.out_count, second, ~(both | summed));
    if (memcmp(c.a, first->label, (size_t)c.a_count) != 0)
        c.moved += ignis__term_numel(first);
    if (memcmp(c.b, second->label, (size_t)c.b_count) != 0)
        c.moved += ignis__term_numel(second);
    for (i = 0; i < c.out_count; i++)
        rows *= (double)e->size[c.out[i]];
    if (c.out_count == e->result.count && memcmp(c.out, e->result.label, (size_t)c.out_count) != 0)
        c.moved += rows;
    return c;
}

/*  Gives a tensor the shape of groups of its labels: [batch, m, k]; two dimensions without labels of a batch. */
static ignis_tensor ignis__term_matrix(const ignis__einsum *e, const ignis__term *term, uint64_t both, uint64_t last)
{
    ignis_shape shape = IGNIS_SHAPE(1, 1, 1);
    int i;
    for (i = 0; i < term->count; i++) {
        const uint64_t label = (uint64_t)1 << term->label[i];
        shape.dim[label & both ? 0 : label & last ? 2 : 1] *= e->size[term->label[i]];
    }
    if (!both) {
        shape.dim[0] = shape.dim[1];
        shape.dim[1] = shape.dim[2];
        shape.ndim = 2;
    }
    return ignis_reshape(term->tensor, shape);
}

/*  Multiplies terms as matrices. The result is in a. */
static bool ignis__terms_multiply(ignis__einsum *e, ignis__term *a, ignis__term *b, uint64_t both, uint64_t summed)
{
    ignis__contraction best = IGNIS__ZERO, c;
    ignis__term *first, *second;
    ignis_tensor left, right, product;
    int choice, i;
    for (choice = 0; choice < 16; choice++) {
        c = ignis__contraction_make(e, a, b, both, summed, choice);
        if (choice == 0 || c.moved < best.moved)
            best = c;
    }
    first = best.swaps ? b : a;
    second = best.swaps ? a : b;
    if (!ignis__term_permute(first, best.a) || !ignis__term_permute(second, best.b))
        return false;
    left = ignis__term_matrix(e, first, both, summed);
    right = ignis__term_matrix(e, second, both, best.transposes_b ? summed : ~(both | summed));
    product = best.transposes_b ? ignis_matmul_t(left, right) : ignis_matmul(left, right);
    if (left.id)
        (void)ignis_tensor_release(left);
    if (right.id)
        (void)ignis_tensor_release(right);
    if (!ignis__term_set(a, product))
        return false;
    a->count = best.out_count;
    for (i = 0; i < a->count; i++) {
        a->label[i] = best.out[i];
        a->size[i] = e->size[best.out[i]];
    }
    return ignis__term_reshape(a);
}

/*  Multiplies terms element by element, and sums over labels: those that stay are in the result's order where it has
    them. The result is in a. */
static bool ignis__terms_map(ignis__einsum *e, ignis__term *a, ignis__term *b, uint64_t summed)
{
    const uint64_t all = ignis__term_labels(a) | ignis__term_labels(b), known = ignis__term_labels(&e->result);
    ignis__term *terms[2], whole = IGNIS__ZERO;
    ignis_reduce_desc desc = IGNIS__ZERO;
    ignis_inputs inputs = IGNIS__ZERO;
    int count = 0, i, k, at;
    ignis__order_add(whole.label, &count, &e->result, all);
    ignis__order_add(whole.label, &count, a, ~(known | summed));
    ignis__order_add(whole.label, &count, b, ~(known | summed | ignis__term_labels(a)));
    whole.count = count; /* labels that stay */
    ignis__order_add(whole.label, &count, a, summed);
    inputs.names = "a, b";
    inputs.count = 2;
    terms[0] = a;
    terms[1] = b;
    for (i = 0; i < 2; i++) {
        uint8_t order[IGNIS_MAX_DIMS];
        ignis_shape shape = IGNIS_SHAPE(1);
        for (k = at = 0; k < count; k++) {
            const bool has = (ignis__term_labels(terms[i]) >> whole.label[k] & 1) != 0;
            shape.dim[k] = has ? e->size[whole.label[k]] : 1;
            if (has)
                order[at++] = whole.label[k];
        }
        shape.ndim = count ? count : 1;
        if (!ignis__term_permute(terms[i], order) || !ignis__term_set(terms[i], ignis_reshape(terms[i]->tensor, shape)))
            return false;
        inputs.tensor[i] = terms[i]->tensor;
    }
    for (k = whole.count; k < count; k++)
        desc.dims[desc.dim_count++] = k;
    for (k = 0; k < whole.count; k++) {
        a->label[k] = whole.label[k];
        a->size[k] = e->size[whole.label[k]];
    }
    a->count = whole.count;
    return ignis__term_set(a, summed ? ignis_map_reduce(IGNIS_REDUCE_SUM, "a*b", inputs, &desc)
                                     : ignis_map("a*b", inputs));
}

/*  Makes one term, a, of two. kept: labels of the other terms and of the result. */
static bool ignis__terms_contract(ignis__einsum *e, ignis__term *a, ignis__term *b, uint64_t kept)
{
    const uint64_t of_a = ignis__term_labels(a), of_b = ignis__term_labels(b), shared = of_a & of_b,
                   summed = shared & ~kept;
    const bool ok = summed && (of_a | of_b) != shared ? ignis__terms_multiply(e, a, b, shared & kept, summed)
                                                      : ignis__terms_map(e, a, b, summed);
    if (b->is_made && b->tensor.id)
        (void)ignis_tensor_release(b->tensor);
    b->tensor.id = 0;
    return ok;
}

/*  Multiplications and the best last step of the product of each set of terms. */
typedef struct ignis__orders {
    double cost[1 << IGNIS_MAX_OPERANDS];
    uint64_t labels[1 << IGNIS_MAX_OPERANDS]; /* of the result of a set */
    int first[1 << IGNIS_MAX_OPERANDS];       /* the set that is the first factor */
} ignis__orders;

static int ignis__label_count(uint64_t labels)
{
    int count = 0;
    for (; labels; labels &= labels - 1)
        count++;
    return count;
}

/*  Finds the order with the fewest multiplications, by those of all smaller sets. Results of more than IGNIS_MAX_DIMS
    dimensions are left out. */
static void ignis__orders_find(const ignis__einsum *e, ignis__orders *orders)
{
    const int all = (1 << e->count) - 1;
    int set, first, i;
    for (set = 1; set <= all; set++) {
        uint64_t inside = 0, outside = ignis__term_labels(&e->result);
        for (i = 0; i < e->count; i++)
            *(set >> i & 1 ? &inside : &outside) |= ignis__term_labels(&e->terms[i]);
        orders->labels[set] = inside & outside;
        orders->first[set] = 0;
        orders->cost[set] = (set & (set - 1)) == 0 ? 0 : -1;
        for (first = (set - 1) & set; first; first = (first - 1) & set) {
            uint64_t labels = orders->labels[first] | orders->labels[set ^ first];
            double cost = 1;
            if (orders->cost[first] < 0 || orders->cost[set ^ first] < 0 || first < (set ^ first) ||
                ignis__label_count(orders->labels[set]) > IGNIS_MAX_DIMS)
                continue;
            for (i = 0; i < IGNIS__LABELS; i++)
                if (labels >> i & 1)
                    cost *= (double)(e->size[i] > 0 ? e->size[i] : 1);
            cost += orders->cost[first] + orders->cost[set ^ first];
            if (orders->cost[set] < 0 || cost < orders->cost[set]) {
                orders->cost[set] = cost;
                orders->first[set] = first;
            }
        }
    }
}

/*  Contracts a set of terms in the order that was found. Returns the index of the term with the result; -1 after a
    failure. */
static int ignis__orders_run(ignis__einsum *e, const ignis__orders *orders, int set)
{
    uint64_t kept = ignis__term_labels(&e->result);
    int a, b, i;
    if ((set & (set - 1)) == 0) {
        for (i = 0; !(set >> i & 1); i++)
            ;
        return i;
    }
    a = ignis__orders_run(e, orders, orders->first[set]);
    b = a < 0 ? -1 : ignis__orders_run(e, orders, set ^ orders->first[set]);
    if (b < 0)
        return -1;
    for (i = 0; i < e->count; i++) /* terms outside of the set have their own labels, or a part's result has them */
        if (!(set >> i & 1) && e->terms[i].tensor.id)
            kept |= ignis__term_labels(&e->terms[i]);
    return ignis__terms_contract(e, &e->terms[a], &e->terms[b], kept) ? a : -1;
}

/*  Computes the result of terms whose tensors and sizes are set. No handle after a failure. */
IGNIS__PRIVATE ignis_tensor ignis__einsum_run(ignis__einsum *e)
{
    ignis_tensor result = IGNIS__ZERO;
    ignis__orders orders;
    bool ok = true;
    int i, k, at = -1;
    for (i = 0; ok && i < e->count; i++) {
        uint64_t others = ignis__term_labels(&e->result);
        for (k = 0; k < e->count; k++)
            others |= k == i ? 0 : ignis__term_labels(&e->terms[k]);
        ok = ignis__term_prepare(e, &e->terms[i], others);
    }
    if (ok) {
        ignis__orders_find(e, &orders);
        if (orders.cost[(1 << e->count) - 1] < 0)
            ignis__fail(IGNIS_DIAG_SHAPE_RANK, e->op->work.call,
                        "each order of the products has a result of more than %d dimensions in between",
                        IGNIS_MAX_DIMS);
        else
            at = ignis__orders_run(e, &orders, (1 << e->count) - 1);
    }
    if (at >= 0 && ignis__term_permute(&e->terms[at], e->result.label) && ignis__term_reshape(&e->terms[at])) {
        result = e->terms[at].tensor;
        e->terms[at].tensor.id = 0;
    }
    for (i = 0; i < e->count; i++)
        if (e->terms[i].is_made && e->terms[i].tensor.id)
            (void)ignis_tensor_release(e->terms[i].tensor);
    return result;
}
