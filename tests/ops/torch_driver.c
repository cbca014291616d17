// SPDX-License-Identifier: MIT
/*  torch_driver.c - runs operations on inputs from a file, and writes what they give to another: the C half of
    torch_compare.py

        cc -O1 -I. -iquote tests tests/ops/torch_driver.c -o torch_driver -lm -ldl -lpthread
        ./torch_driver cases results

    The files hold little-endian numbers. A case is a name of 32 bytes, 16 int64, 8 double, the number of inputs and of
    gradients (int64 each), then so many tensors; a tensor is dtype, whether it requires a gradient, ndim (int64 each),
    8 int64 dimensions, the elements. Gradients are those of the outputs; with none nothing is differentiated. A result
    is a message of 512 bytes, empty for success, the number of outputs (int64), these tensors, and for each input its
    gradient, with ndim -1 for none. */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include "formulas.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32, INTS = 16, DOUBLES = 8, MESSAGE = 512, MAX_TENSORS = 64 };

/*  A case: what it is given, and what it gives. */
typedef struct job {
    char name[NAME];
    int64_t ints[INTS];
    double doubles[DOUBLES];
    int64_t input_count, gradient_count;
    ignis_tensor in[MAX_TENSORS], gradients[MAX_TENSORS], out[MAX_TENSORS];
    int out_count;
} job;

/* --- files ---------------------------------------------------------------------------------------------------------
   */

typedef struct record {
    int64_t dtype, requires_grad, ndim, dim[IGNIS_MAX_DIMS];
} record;

static const int64_t sizes[] = {0, 2, 2, 4, 8, 4, 8, 1}; /* of an element, by dtype */

static void stop(const char *what)
{
    fprintf(stderr, "torch_driver: %s\n", what);
    exit(1);
}

static void get(FILE *file, void *data, size_t size)
{
    if (size && fread(data, size, 1, file) != 1)
        stop("the file of cases is too short");
}

static void put(FILE *file, const void *data, size_t size)
{
    if (size && fwrite(data, size, 1, file) != 1)
        stop("the results cannot be written");
}

static int64_t record_bytes(const record *r)
{
    int64_t bytes = sizes[r->dtype], i;
    for (i = 0; i < r->ndim; i++)
        bytes *= r->dim[i];
    return bytes;
}

static ignis_tensor get_tensor(FILE *file)
{
    ignis_tensor_desc desc;
    ignis_tensor tensor;
    ignis_shape shape;
    record r;
    void *data;
    int i;
    get(file, &r, sizeof r);
    if (r.dtype < IGNIS_F16 || r.dtype > IGNIS_U8 || r.ndim < 1 || r.ndim > IGNIS_MAX_DIMS)
        stop("a tensor in the file of cases is damaged");
    shape.ndim = (int)r.ndim;
    for (i = 0; i < IGNIS_MAX_DIMS; i++)
        shape.dim[i] = r.dim[i];
    memset(&desc, 0, sizeof desc);
    desc.dtype = desc.host_dtype = (ignis_dtype)r.dtype;
    desc.requires_grad = r.requires_grad != 0;
    data = malloc((size_t)record_bytes(&r) + 1);
    get(file, data, (size_t)record_bytes(&r));
    tensor = ignis_tensor_from_host(data, shape, &desc);
    free(data);
    return tensor;
}

static void put_array(FILE *file, ignis_array array)
{
    ignis_array_info info;
    record r;
    void *data;
    int i;
    memset(&r, 0, sizeof r);
    r.ndim = -1;
    if (!array.id) {
        put(file, &r, sizeof r);
        return;
    }
    if (ignis_array_query(array, &info) != IGNIS_OK)
        stop(ignis_status_message());
    r.dtype = (int64_t)info.dtype;
    r.ndim = info.shape.ndim;
    for (i = 0; i < info.shape.ndim; i++)
        r.dim[i] = info.shape.dim[i];
    put(file, &r, sizeof r);
    data = malloc((size_t)record_bytes(&r) + 1);
    if (ignis_array_to_host_raw(array, data, record_bytes(&r)) != IGNIS_OK)
        stop(ignis_status_message());
    put(file, data, (size_t)record_bytes(&r));
    free(data);
}

/* --- operations ----------------------------------------------------------------------------------------------------
   */

static void one(job *j, ignis_tensor tensor)
{
    j->out[0] = tensor;
    j->out_count = 1;
}

static ignis_shape shape_of_ints(const int64_t *ints, int64_t count)
{
    ignis_shape shape;
    int i;
    memset(&shape, 0, sizeof shape);
    shape.ndim = (int)count;
    for (i = 0; i < count; i++)
        shape.dim[i] = ints[i];
    return shape;
}

static void run_map(job *j)
{
#define TEXT(number, text, expression) text,
    static const char *const texts[] = {FORMULAS(TEXT)};
    ignis_tensor a = j->in[0], b = j->in[1], c = j->in[2];
    one(j, ignis_map(texts[j->ints[0]], IGNIS_INPUTS(a, b, c)));
}

static void run_map_reduce(job *j)
{
    ignis_reducer reducer = (ignis_reducer)j->ints[0];
    bool truth = reducer == IGNIS_REDUCE_ANY || reducer == IGNIS_REDUCE_ALL;
    ignis_tensor a = j->in[0], b = j->in[1];
    ignis_reduce_desc desc;
    int d;
    memset(&desc, 0, sizeof desc);
    for (d = (int)j->ints[1]; d <= j->ints[2]; d++)
        desc.dims[desc.dim_count++] = d;
    one(j, ignis_map_reduce(reducer, truth ? "a*b > 0" : "1 + a*b/8", IGNIS_INPUTS(a, b), &desc));
}

static void run_add(job *j) { one(j, ignis_add(j->in[0], j->in[1])); }
static void run_sub(job *j) { one(j, ignis_sub(j->in[0], j->in[1])); }
static void run_mul(job *j) { one(j, ignis_mul(j->in[0], j->in[1])); }
static void run_scale(job *j) { one(j, ignis_scale(j->in[0], j->doubles[0])); }
static void run_add_bias(job *j) { one(j, ignis_add_bias(j->in[0], j->in[1])); }
static void run_matmul(job *j) { one(j, ignis_matmul(j->in[0], j->in[1])); }
static void run_matmul_t(job *j) { one(j, ignis_matmul_t(j->in[0], j->in[1])); }
static void run_relu(job *j) { one(j, ignis_relu(j->in[0])); }
static void run_gelu(job *j) { one(j, ignis_gelu(j->in[0])); }
static void run_gelu_exact(job *j) { one(j, ignis_gelu_exact(j->in[0])); }
static void run_silu(job *j) { one(j, ignis_silu(j->in[0])); }
static void run_silu_mul(job *j) { one(j, ignis_silu_mul(j->in[0], j->in[1])); }
static void run_softmax(job *j) { one(j, ignis_softmax(j->in[0])); }
static void run_log_softmax(job *j) { one(j, ignis_log_softmax(j->in[0])); }
static void run_layer_norm(job *j) { one(j, ignis_layer_norm(j->in[0], j->in[1], j->in[2], j->doubles[0])); }
static void run_rms_norm(job *j) { one(j, ignis_rms_norm(j->in[0], j->in[1], j->doubles[0])); }
static void run_transpose(job *j) { one(j, ignis_transpose(j->in[0], (int)j->ints[0], (int)j->ints[1])); }
static void run_reshape(job *j) { one(j, ignis_reshape(j->in[0], shape_of_ints(j->ints + 1, j->ints[0]))); }
static void run_sum(job *j) { one(j, ignis_sum(j->in[0])); }
static void run_mean(job *j) { one(j, ignis_mean(j->in[0])); }
static void run_sum_dim(job *j) { one(j, ignis_sum_dim(j->in[0], (int)j->ints[0])); }
static void run_mean_dim(job *j) { one(j, ignis_mean_dim(j->in[0], (int)j->ints[0])); }
static void run_embedding(job *j) { one(j, ignis_embedding(j->in[0], j->in[1])); }
static void run_dropout(job *j) { one(j, ignis_dropout(j->in[0], j->doubles[0])); }
static void run_cast(job *j) { one(j, ignis_cast(j->in[0], (ignis_dtype)j->ints[0])); }
static void run_concat(job *j) { one(j, ignis_concat(j->in, (int)j->input_count, (int)j->ints[0])); }

/*  dims */
static void run_permute(job *j)
{
    int dims[INTS], i, count = ignis_tensor_shape(j->in[0]).ndim;
    for (i = 0; i < count; i++)
        dims[i] = (int)j->ints[i];
    one(j, ignis_permute(j->in[0], dims, count));
}

/*  count, dims */
static void run_flip(job *j)
{
    int dims[INTS], i;
    for (i = 0; i < j->ints[0]; i++)
        dims[i] = (int)j->ints[1 + i];
    one(j, ignis_flip(j->in[0], dims, (int)j->ints[0]));
}

static void run_slice_step(job *j)
{
    one(j, ignis_slice_step(j->in[0], (int)j->ints[0], j->ints[1], j->ints[2], j->ints[3]));
}
static void run_expand(job *j) { one(j, ignis_expand(j->in[0], shape_of_ints(j->ints + 1, j->ints[0]))); }
static void run_stack(job *j) { one(j, ignis_stack(j->in, (int)j->input_count, (int)j->ints[0])); }
static void run_pad(job *j)
{
    one(j, ignis_pad(j->in[0], j->ints, j->ints + 8, ignis_tensor_shape(j->in[0]).ndim, j->doubles[0]));
}
/*  which of the three; before and after: 7 dimensions each */
static void run_pad_border(job *j)
{
    typedef ignis_tensor (*pad)(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count);
    static const pad pads[] = {ignis_pad_reflect, ignis_pad_replicate, ignis_pad_circular};
    one(j, pads[j->ints[0]](j->in[0], j->ints + 1, j->ints + 8, ignis_tensor_shape(j->in[0]).ndim));
}

static ignis_unfold_desc unfold_desc(const job *j)
{
    ignis_unfold_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < 2; i++) {
        desc.kernel[i] = (int)j->ints[i];
        desc.stride[i] = (int)j->ints[2 + i];
        desc.padding[i] = (int)j->ints[4 + i];
        desc.dilation[i] = (int)j->ints[6 + i];
    }
    return desc;
}

/*  kernel, stride, padding and dilation, each of rows and columns; of fold the size, too */
static void run_unfold(job *j)
{
    ignis_unfold_desc desc = unfold_desc(j);
    one(j, ignis_unfold(j->in[0], &desc));
}
static void run_fold(job *j)
{
    ignis_unfold_desc desc = unfold_desc(j);
    one(j, ignis_fold(j->in[0], j->ints + 8, 2, &desc));
}

/*  nearest, padding, align_corners */
static void run_grid_sample(job *j)
{
    ignis_grid_sample_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.nearest = j->ints[0] != 0;
    desc.padding = (ignis_grid_padding)j->ints[1];
    desc.align_corners = j->ints[2] != 0;
    one(j, ignis_grid_sample(j->in[0], j->in[1], &desc));
}
static void run_gather(job *j) { one(j, ignis_gather(j->in[0], (int)j->ints[0], j->in[1])); }
static void run_index_select(job *j) { one(j, ignis_index_select(j->in[0], (int)j->ints[0], j->in[1])); }
static void run_scatter_add(job *j) { one(j, ignis_scatter_add(j->in[0], (int)j->ints[0], j->in[1], j->in[2])); }
/*  ints: complex, real or back; dimensions; norm; whether inverse; points of the last dimension */
static void run_fft(job *j)
{
    ignis_fft_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ndim = (int)j->ints[1];
    desc.norm = (ignis_fft_norm)j->ints[2];
    desc.lengths[desc.ndim - 1] = j->ints[4];
    one(j, j->ints[0] == 1   ? ignis_rfft(j->in[0], &desc)
           : j->ints[0] == 2 ? ignis_irfft(j->in[0], &desc)
           : j->ints[3]      ? ignis_ifft(j->in[0], &desc)
                             : ignis_fft(j->in[0], &desc));
}
static void run_einsum(job *j)
{
    static const char *const equations[] = {"bij,bjk->bik", "ji,kj->ki", "ij,jk,kl->il", "bij,bij->b", "iij,jk->ik"};
    one(j, ignis_einsum(equations[j->ints[0]], j->in, (int)j->input_count));
}
static void run_cumsum(job *j) { one(j, ignis_cumsum(j->in[0], (int)j->ints[0])); }
static void run_cumprod(job *j) { one(j, ignis_cumprod(j->in[0], (int)j->ints[0])); }
static void run_logcumsumexp(job *j) { one(j, ignis_logcumsumexp(j->in[0], (int)j->ints[0])); }
/*  dimension, whether to return the indices */
static void run_cummax(job *j)
{
    one(j, ignis_cummax(j->in[0], (int)j->ints[0], &j->out[1]));
    j->out_count += j->ints[1] != 0;
}
static void run_cummin(job *j)
{
    one(j, ignis_cummin(j->in[0], (int)j->ints[0], &j->out[1]));
    j->out_count += j->ints[1] != 0;
}
/*  how many indices; whether to add */
static void run_index_put(job *j)
{
    one(j, ignis_index_put(j->in[0], j->in + 2, (int)j->ints[0], j->in[1], j->ints[1] != 0));
}
static void run_scatter(job *j) { one(j, ignis_scatter(j->in[0], (int)j->ints[0], j->in[1], j->in[2])); }
static void run_nonzero(job *j) { one(j, ignis_nonzero(j->in[0])); }
static void run_masked_select(job *j) { one(j, ignis_masked_select(j->in[0], j->in[1])); }
static void run_unique(job *j)
{
    one(j, ignis_unique(j->in[0], &j->out[1], &j->out[2]));
    j->out_count = 3;
}
static void run_searchsorted(job *j) { one(j, ignis_searchsorted(j->in[0], j->in[1], j->ints[0] != 0)); }
static void run_bincount(job *j)
{
    const ignis_tensor none = {0};
    one(j, ignis_bincount(j->in[0], none, j->ints[0]));
}
static void run_tril(job *j) { one(j, ignis_tril(j->in[0], j->ints[0])); }
static void run_triu(job *j) { one(j, ignis_triu(j->in[0], j->ints[0])); }

/*  rows and columns each: window, stride, padding; whether to round up, whether to exclude the padding */
static ignis_pool_desc pool_of_ints(const int64_t *ints)
{
    ignis_pool_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < 2; i++) {
        desc.window[i] = (int)ints[i];
        desc.stride[i] = (int)ints[2 + i];
        desc.padding[i] = (int)ints[4 + i];
    }
    desc.ceil_mode = ints[6] != 0;
    desc.exclude_padding = ints[7] != 0;
    return desc;
}

static void run_max_pool(job *j)
{
    ignis_pool_desc desc = pool_of_ints(j->ints);
    one(j, ignis_max_pool(j->in[0], &desc));
}

static void run_avg_pool(job *j)
{
    ignis_pool_desc desc = pool_of_ints(j->ints);
    one(j, ignis_avg_pool(j->in[0], &desc));
}

/*  rows, columns, mode, whether corners are aligned */
static void run_upsample(job *j)
{
    ignis_upsample_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.size[0] = j->ints[0];
    desc.size[1] = j->ints[1];
    desc.mode = (ignis_upsample_mode)j->ints[2];
    desc.align_corners = j->ints[3] != 0;
    one(j, ignis_upsample(j->in[0], &desc));
}

/*  whether to evaluate, whether the running averages are outputs, too; momentum */
static void run_batch_norm(job *j)
{
    ignis_batch_norm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.running_mean = ignis_tensor_data(j->in[3]);
    desc.running_var = ignis_tensor_data(j->in[4]);
    desc.momentum = j->doubles[0];
    desc.eval = j->ints[0] != 0;
    one(j, ignis_batch_norm(j->in[0], j->in[1], j->in[2], &desc));
    j->out[1] = j->in[3];
    j->out[2] = j->in[4];
    j->out_count += j->ints[1] ? 2 : 0;
}

static void run_group_norm(job *j) { one(j, ignis_group_norm(j->in[0], (int)j->ints[0], j->in[1], j->in[2], 0)); }

/*  dimension, whether descending, whether the indices are an output, too */
static void run_sort(job *j)
{
    one(j, ignis_sort(j->in[0], (int)j->ints[0], j->ints[1] != 0, &j->out[1]));
    j->out_count += j->ints[2] != 0;
}

/*  k, dimension, whether the largest */
static void run_topk(job *j) { one(j, ignis_topk(j->in[0], j->ints[0], (int)j->ints[1], j->ints[2] != 0, NULL)); }

static void run_linear(job *j)
{
    ignis_tensor none = {0};
    one(j, ignis_linear(j->in[0], j->in[1], j->input_count > 2 ? j->in[2] : none));
}

/*  groups, stride, padding and dilation, each of three sides */
static void run_conv(job *j)
{
    typedef ignis_tensor (*conv)(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc);
    static const conv convs[] = {ignis_conv1d, ignis_conv2d, ignis_conv3d};
    ignis_conv_desc desc;
    ignis_tensor none = {0}, bias = j->input_count > 2 ? j->in[2] : none;
    int i;
    desc.groups = (int)j->ints[0];
    for (i = 0; i < 3; i++) {
        desc.stride[i] = (int)j->ints[1 + i];
        desc.padding[i] = (int)j->ints[4 + i];
        desc.dilation[i] = (int)j->ints[7 + i];
    }
    one(j, convs[j->name[4] - '1'](j->in[0], j->in[1], bias, &desc));
}

/*  groups, stride, padding, dilation and output padding, each of three sides */
static void run_conv_transpose(job *j)
{
    typedef ignis_tensor (*conv)(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                 const ignis_conv_transpose_desc *desc);
    static const conv convs[] = {ignis_conv_transpose1d, ignis_conv_transpose2d, ignis_conv_transpose3d};
    ignis_conv_transpose_desc desc;
    ignis_tensor none = {0}, bias = j->input_count > 2 ? j->in[2] : none;
    int i;
    desc.groups = (int)j->ints[0];
    for (i = 0; i < 3; i++) {
        desc.stride[i] = (int)j->ints[1 + i];
        desc.padding[i] = (int)j->ints[4 + i];
        desc.dilation[i] = (int)j->ints[7 + i];
        desc.output_padding[i] = (int)j->ints[10 + i];
    }
    one(j, convs[j->name[14] - '1'](j->in[0], j->in[1], bias, &desc));
}

/*  which function; of x, or of the symmetric x x^T / n + 1 */
static void run_linalg(job *j)
{
    const ignis_tensor x = j->in[0];
    const ignis_shape shape = ignis_tensor_shape(x);
    ignis_tensor a = ignis_matmul_t(x, x), sign;
    a = ignis_map("a/n + (index(-1) == index(-2))", IGNIS_INPUTS(a, IGNIS_VALUE(n, (double)shape.dim[shape.ndim - 1])));
    switch (j->ints[0]) {
    case 0: one(j, ignis_cholesky(a, NULL)); break;
    case 1: one(j, ignis_solve(a, j->in[1], NULL)); break;
    case 2: one(j, ignis_inverse(a, NULL)); break;
    case 3: one(j, ignis_det(a)); break;
    case 4: one(j, ignis_logdet(a, &sign)); break;
    case 5: one(j, ignis_eigh(a, NULL)); break;
    case 6: one(j, ignis_svd(x, NULL, NULL)); break;
    case 7: one(j, ignis_matrix_exp(a)); break;
    default: one(j, ignis_solve_triangular(a, j->in[1], NULL)); break;
    }
}

/*  dimension, count, whether sizes follow, sizes */
static void run_split(job *j)
{
    if (ignis_split(j->in[0], (int)j->ints[0], (int)j->ints[1], j->ints[2] ? j->ints + 3 : NULL, j->out) == IGNIS_OK)
        j->out_count = (int)j->ints[1];
}

/*  heads, position; base; the second input, if there is one, has inverse frequencies */
static void run_rope(job *j)
{
    float frequencies[512];
    ignis_rope_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = (int)j->ints[0];
    desc.pos_offset = j->ints[1];
    desc.base = j->doubles[0];
    if (j->input_count > 1) {
        desc.inv_freq_count = (int)ignis_array_numel(ignis_tensor_data(j->in[1]));
        if (desc.inv_freq_count > 512 ||
            ignis_tensor_to_host(j->in[1], frequencies, IGNIS_F32, desc.inv_freq_count) != IGNIS_OK)
            return;
        desc.inv_freq = frequencies;
    }
    one(j, ignis_rope(j->in[0], &desc));
}

static ignis_sdpa_desc attention_desc(int64_t heads, int64_t kv_heads, bool full, double scale)
{
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = (int)heads;
    desc.num_kv_heads = (int)kv_heads;
    if (full)
        desc.mask = IGNIS_MASK_NONE;
    desc.scale = scale;
    return desc;
}

/*  heads, heads of k and v, whether without a mask; scale */
static void run_sdpa(job *j)
{
    ignis_sdpa_desc desc = attention_desc(j->ints[0], j->ints[1], j->ints[2] != 0, j->doubles[0]);
    one(j, ignis_sdpa(j->in[0], j->in[1], j->in[2], &desc));
}

static void run_decode_sdpa(job *j) { one(j, ignis_decode_sdpa(j->in[0], j->in[1], j->in[2], (int)j->ints[0])); }

/*  reduction; then what the loss takes beside it */
static void run_mse_loss(job *j) { one(j, ignis_mse_loss(j->in[0], j->in[1], (ignis_reduction)j->ints[0])); }
static void run_l1_loss(job *j) { one(j, ignis_l1_loss(j->in[0], j->in[1], (ignis_reduction)j->ints[0])); }
static void run_huber_loss(job *j)
{
    one(j, ignis_huber_loss(j->in[0], j->in[1], j->doubles[0], (ignis_reduction)j->ints[0]));
}
static void run_kl_div(job *j)
{
    one(j, ignis_kl_div(j->in[0], j->in[1], j->ints[1] != 0, (ignis_reduction)j->ints[0]));
}
static void run_cosine_similarity(job *j) { one(j, ignis_cosine_similarity(j->in[0], j->in[1])); }

static void run_bce_with_logits(job *j)
{
    ignis_bce_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.weight = j->in[2];
    desc.pos_weight = j->in[3];
    desc.reduction = (ignis_reduction)j->ints[0];
    one(j, ignis_bce_with_logits(j->in[0], j->in[1], &desc));
}

/*  reduction, index to ignore; label smoothing */
static void run_loss_of_rows(job *j, ignis_tensor (*loss)(ignis_tensor, ignis_tensor, const ignis_cross_entropy_desc *))
{
    ignis_cross_entropy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.reduction = (ignis_reduction)j->ints[0];
    desc.ignore_index = j->ints[1];
    desc.label_smoothing = j->doubles[0];
    one(j, loss(j->in[0], j->in[1], &desc));
}
static void run_nll_loss(job *j) { run_loss_of_rows(j, ignis_nll_loss); }
static void run_smooth_cross_entropy(job *j) { run_loss_of_rows(j, ignis_cross_entropy); }

/*  As sdpa, then the window, whether there is a bias, whether there are sinks, and lengths; softcap. */
static ignis_sdpa_desc masked_desc(const job *j)
{
    ignis_sdpa_desc desc = attention_desc(j->ints[0], j->ints[1], j->ints[2] != 0, 0);
    int next = 3;
    desc.window = (int)j->ints[3];
    desc.softcap = j->doubles[0];
    if (j->ints[4])
        desc.bias = j->in[next++];
    if (j->ints[5])
        desc.sinks = j->in[next++];
    if (j->ints[6])
        desc.lengths = j->in[next];
    return desc;
}

static void run_masked_sdpa(job *j)
{
    ignis_sdpa_desc desc = masked_desc(j);
    one(j, ignis_sdpa(j->in[0], j->in[1], j->in[2], &desc));
}

static void run_masked_decode_sdpa(job *j)
{
    ignis_sdpa_desc desc = masked_desc(j);
    one(j, ignis_decode_sdpa_with(j->in[0], j->in[1], j->in[2], &desc));
}

/*  index to ignore, whether 0 is meant, sum instead of mean, classes */
static void run_cross_entropy(job *j)
{
    ignis_cross_entropy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ignore_index = j->ints[0];
    desc.ignore_zero = j->ints[1] != 0;
    desc.reduction = j->ints[2] ? IGNIS_REDUCTION_SUM : IGNIS_REDUCTION_MEAN;
    desc.classes = j->ints[3];
    one(j, ignis_cross_entropy(j->in[0], j->in[1], &desc));
}

/* --- optimizers: inputs are parameter, gradient, parameter, gradient, ...; outputs are the parameters ----------------
   */

static void run_optimizer(job *j, ignis_optimizer optimizer, double max_norm)
{
    int64_t step, i;
    bool ok = optimizer.id != 0;
    for (i = 0; ok && i < j->input_count; i += 2)
        ok = ignis_optimizer_add(optimizer, j->in[i], j->ints[1] == 0 || i == 0) == IGNIS_OK;
    for (step = 0; ok && step < j->ints[0]; step++) {
        for (i = 0; ok && i < j->input_count; i += 2)
            ok = ignis_backward(j->in[i], ignis_tensor_data(j->in[i + 1])) == IGNIS_OK;
        if (ok && max_norm > 0)
            ok = ignis_clip_grad_norm(optimizer, max_norm) == IGNIS_OK;
        ok = ok && ignis_optimizer_step(optimizer) == IGNIS_OK && ignis_optimizer_zero_grad(optimizer) == IGNIS_OK;
    }
    for (i = 0; ok && i < j->input_count; i += 2)
        j->out[j->out_count++] = ignis_detach(j->in[i]);
    if (optimizer.id)
        ignis_optimizer_free(optimizer);
}

/*  steps, whether weight decay is for the first parameter alone; lr, beta1, beta2, eps, weight decay, clipping */
static void run_adam_of(job *j, bool coupled)
{
    ignis_adamw_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.coupled = coupled;
    desc.lr = j->doubles[0];
    desc.beta1 = j->doubles[1];
    desc.beta2 = j->doubles[2];
    desc.eps = j->doubles[3];
    desc.weight_decay = j->doubles[4];
    run_optimizer(j, ignis_adamw(&desc), j->doubles[5]);
}

static void run_adamw(job *j) { run_adam_of(j, false); }
static void run_adam(job *j) { run_adam_of(j, true); }

/*  steps, whether weight decay is for the first parameter alone; lr, momentum, weight decay, 0, 0, clipping */
static void run_sgd(job *j)
{
    ignis_sgd_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.lr = j->doubles[0];
    desc.momentum = j->doubles[1];
    desc.weight_decay = j->doubles[2];
    run_optimizer(j, ignis_sgd(&desc), j->doubles[5]);
}

/*  the same with momentum and alpha instead of beta1 and beta2 */
static void run_rmsprop(job *j)
{
    ignis_rmsprop_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.lr = j->doubles[0];
    desc.momentum = j->doubles[1];
    desc.alpha = j->doubles[2];
    desc.eps = j->doubles[3];
    desc.weight_decay = j->doubles[4];
    run_optimizer(j, ignis_rmsprop(&desc), j->doubles[5]);
}

/*  lr, momentum, whether like AdamW, 0, weight decay, clipping */
static void run_muon(job *j)
{
    ignis_muon_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.lr = j->doubles[0];
    desc.momentum = j->doubles[1];
    desc.like_adamw = j->doubles[2] != 0;
    desc.weight_decay = j->doubles[4];
    run_optimizer(j, ignis_muon(&desc), j->doubles[5]);
}

/* --- two blocks of transformers, trained -----------------------------------------------------------------------------
   */

/*  The next parameter; the order is that of the Python side. */
static ignis_tensor next(job *j, int *at) { return j->in[(*at)++]; }

/*  tokens and targets are the first two inputs; heads, heads of k and v, steps; lr, weight decay, clipping. The only
    output has the losses. */
static ignis_tensor gpt_loss(job *j)
{
    ignis_sdpa_desc attention = attention_desc(j->ints[0], j->ints[0], false, 0);
    ignis_tensor x, h, w, b, qkv[3];
    int at = 2;
    w = next(j, &at), x = ignis_embedding(w, j->in[0]);
    x = ignis_add(x, next(j, &at)); /* positions */
    w = next(j, &at), b = next(j, &at), h = ignis_layer_norm(x, w, b, 1e-5);
    w = next(j, &at), b = next(j, &at), h = ignis_linear(h, w, b);
    ignis_split(h, -1, 3, NULL, qkv);
    h = ignis_sdpa(qkv[0], qkv[1], qkv[2], &attention);
    w = next(j, &at), b = next(j, &at), h = ignis_linear(h, w, b);
    w = next(j, &at), b = next(j, &at), h = ignis_add_layer_norm(x, h, w, b, 1e-5, &x);
    w = next(j, &at), b = next(j, &at), h = ignis_gelu(ignis_linear(h, w, b));
    w = next(j, &at), b = next(j, &at), h = ignis_linear(h, w, b);
    w = next(j, &at), b = next(j, &at), x = ignis_add_layer_norm(x, h, w, b, 1e-5, NULL);
    return ignis_cross_entropy(ignis_matmul_t(x, j->in[2]), j->in[1], NULL); /* the table of tokens once more */
}

static ignis_tensor llama_loss(job *j)
{
    ignis_sdpa_desc attention = attention_desc(j->ints[0], j->ints[1], false, 0);
    ignis_tensor x, h, q, k, v, w, none = {0};
    ignis_rope_desc rope_q, rope_k;
    int at = 2;
    memset(&rope_q, 0, sizeof rope_q);
    rope_q.num_heads = (int)j->ints[0];
    rope_k = rope_q;
    rope_k.num_heads = (int)j->ints[1];
    w = next(j, &at), x = ignis_embedding(w, j->in[0]);
    h = ignis_rms_norm(x, next(j, &at), 1e-5);
    q = ignis_rope(ignis_linear(h, next(j, &at), none), &rope_q);
    k = ignis_rope(ignis_linear(h, next(j, &at), none), &rope_k);
    v = ignis_linear(h, next(j, &at), none);
    h = ignis_sdpa(q, k, v, &attention);
    w = next(j, &at), h = ignis_linear(h, w, none);
    h = ignis_add_rms_norm(x, h, next(j, &at), 1e-5, &x);
    w = next(j, &at), q = ignis_linear(h, w, none);                           /* gate */
    w = next(j, &at), h = ignis_mul(ignis_silu(q), ignis_linear(h, w, none)); /* up */
    w = next(j, &at), h = ignis_linear(h, w, none);
    x = ignis_add_rms_norm(x, h, next(j, &at), 1e-5, NULL);
    return ignis_cross_entropy(ignis_linear(x, next(j, &at), none), j->in[1], NULL);
}

static void run_training(job *j, ignis_tensor (*loss_of)(job *))
{
    double losses[1024];
    ignis_tensor_desc desc;
    ignis_adamw_desc adamw;
    ignis_optimizer optimizer;
    int64_t steps = j->ints[2], step, i;
    bool ok;
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = j->doubles[0];
    adamw.weight_decay = j->doubles[1];
    optimizer = ignis_adamw(&adamw);
    ok = optimizer.id != 0 && steps <= 1024;
    for (i = 2; ok && i < j->input_count; i++)
        ok = ignis_optimizer_add(optimizer, j->in[i], true) == IGNIS_OK;
    for (step = 0; ok && step < steps; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor loss = loss_of(j);
        ok = ignis_backward(loss, IGNIS_NO_ARRAY) == IGNIS_OK;
        if (ok && j->doubles[2] > 0)
            ok = ignis_clip_grad_norm(optimizer, j->doubles[2]) == IGNIS_OK;
        ok = ok && ignis_optimizer_step(optimizer) == IGNIS_OK && ignis_optimizer_zero_grad(optimizer) == IGNIS_OK;
        losses[step] = ignis_item(loss);
        ignis_scope_end(scope);
    }
    if (optimizer.id)
        ignis_optimizer_free(optimizer);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_F64;
    if (ok)
        one(j, ignis_tensor_from_host(losses, IGNIS_SHAPE(steps), &desc));
}

static void run_train_gpt(job *j) { run_training(j, gpt_loss); }
static void run_train_llama(job *j) { run_training(j, llama_loss); }

/* --- the table -------------------------------------------------------------------------------------------------------
   */

static const struct {
    const char *name;
    void (*run)(job *j);
} operations[] = {
    {"map", run_map},
    {"map_reduce", run_map_reduce},
    {"add", run_add},
    {"sub", run_sub},
    {"mul", run_mul},
    {"scale", run_scale},
    {"add_bias", run_add_bias},
    {"matmul", run_matmul},
    {"matmul_t", run_matmul_t},
    {"linear", run_linear},
    {"conv1d", run_conv},
    {"conv2d", run_conv},
    {"conv3d", run_conv},
    {"pad_border", run_pad_border},
    {"unfold", run_unfold},
    {"fold", run_fold},
    {"grid_sample", run_grid_sample},
    {"conv_transpose1d", run_conv_transpose},
    {"conv_transpose2d", run_conv_transpose},
    {"conv_transpose3d", run_conv_transpose},
    {"linalg", run_linalg},
    {"relu", run_relu},
    {"gelu", run_gelu},
    {"gelu_exact", run_gelu_exact},
    {"silu", run_silu},
    {"silu_mul", run_silu_mul},
    {"softmax", run_softmax},
    {"log_softmax", run_log_softmax},
    {"layer_norm", run_layer_norm},
    {"rms_norm", run_rms_norm},
    {"max_pool", run_max_pool},
    {"avg_pool", run_avg_pool},
    {"upsample", run_upsample},
    {"batch_norm", run_batch_norm},
    {"group_norm", run_group_norm},
    {"rope", run_rope},
    {"sdpa", run_sdpa},
    {"decode_sdpa", run_decode_sdpa},
    {"masked_sdpa", run_masked_sdpa},
    {"masked_decode_sdpa", run_masked_decode_sdpa},
    {"transpose", run_transpose},
    {"reshape", run_reshape},
    {"sum", run_sum},
    {"mean", run_mean},
    {"sum_dim", run_sum_dim},
    {"mean_dim", run_mean_dim},
    {"embedding", run_embedding},
    {"cross_entropy", run_cross_entropy},
    {"dropout", run_dropout},
    {"cast", run_cast},
    {"concat", run_concat},
    {"permute", run_permute},
    {"flip", run_flip},
    {"slice_step", run_slice_step},
    {"expand", run_expand},
    {"stack", run_stack},
    {"pad", run_pad},
    {"gather", run_gather},
    {"index_select", run_index_select},
    {"scatter_add", run_scatter_add},
    {"fft", run_fft},
    {"einsum", run_einsum},
    {"cumsum", run_cumsum},
    {"scatter", run_scatter},
    {"index_put", run_index_put},
    {"nonzero", run_nonzero},
    {"masked_select", run_masked_select},
    {"unique", run_unique},
    {"searchsorted", run_searchsorted},
    {"bincount", run_bincount},
    {"cumprod", run_cumprod},
    {"logcumsumexp", run_logcumsumexp},
    {"cummax", run_cummax},
    {"cummin", run_cummin},
    {"tril", run_tril},
    {"triu", run_triu},
    {"sort", run_sort},
    {"topk", run_topk},
    {"split", run_split},
    {"mse_loss", run_mse_loss},
    {"l1_loss", run_l1_loss},
    {"huber_loss", run_huber_loss},
    {"bce_with_logits", run_bce_with_logits},
    {"kl_div", run_kl_div},
    {"cosine_similarity", run_cosine_similarity},
    {"nll_loss", run_nll_loss},
    {"smooth_cross_entropy", run_smooth_cross_entropy},
    {"adamw", run_adamw},
    {"adam", run_adam},
    {"rmsprop", run_rmsprop},
    {"muon", run_muon},
    {"sgd", run_sgd},
    {"train_gpt", run_train_gpt},
    {"train_llama", run_train_llama},
};

/*  Replaces the outputs by the gradients of the sum of their cubes / 6 by all inputs that require one, on the tape: for
    operations whose name begins with "d ". The squares of a norm have a constant sum, and so no gradient. */
static void take_gradients(job *j)
{
    ignis_tensor wanted[MAX_TENSORS], total = {0};
    ignis_grad_desc desc;
    ignis_tensor_info info;
    int i, count = 0;
    for (i = 0; i < j->out_count; i++) {
        ignis_tensor part = ignis_map_sum("y*y*y/6", IGNIS_INPUTS(IGNIS_NAMED(y, j->out[i])));
        total = i ? ignis_add(total, part) : part;
    }
    for (i = 0; i < j->input_count; i++)
        if (ignis_tensor_query(j->in[i], &info) == IGNIS_OK && info.requires_grad)
            wanted[count++] = j->in[i];
    memset(&desc, 0, sizeof desc);
    desc.create_graph = true;
    j->out_count = ignis_grad(&total, 1, wanted, count, j->out, &desc) == IGNIS_OK ? count : 0;
}

/*  Backward with a gradient for each output. Of several, the weighted sum is differentiated, which gives each output
    its gradient exactly. */
static ignis_status differentiate(job *j)
{
    ignis_tensor total = {0};
    int i;
    if (j->out_count == 1)
        return ignis_backward(j->out[0], ignis_tensor_data(j->gradients[0]));
    for (i = 0; i < j->out_count; i++) {
        ignis_tensor part = ignis_sum(ignis_mul(j->out[i], j->gradients[i]));
        total = i ? ignis_add(total, part) : part;
    }
    return ignis_backward(total, IGNIS_NO_ARRAY);
}

static void run_case(FILE *cases, FILE *results)
{
    static job j;
    char message[MESSAGE] = "";
    ignis_scope scope = ignis_scope_begin();
    int64_t count;
    bool is_second;
    size_t op;
    int i;
    memset(&j, 0, sizeof j);
    get(cases, j.name, sizeof j.name);
    get(cases, j.ints, sizeof j.ints);
    get(cases, j.doubles, sizeof j.doubles);
    get(cases, &j.input_count, sizeof j.input_count);
    get(cases, &j.gradient_count, sizeof j.gradient_count);
    if (j.input_count < 0 || j.input_count > MAX_TENSORS || j.gradient_count < 0 || j.gradient_count > MAX_TENSORS ||
        j.name[NAME - 1])
        stop("a case is damaged");
    for (i = 0; i < j.input_count; i++)
        j.in[i] = get_tensor(cases);
    for (i = 0; i < j.gradient_count; i++)
        j.gradients[i] = get_tensor(cases);
    is_second = strncmp(j.name, "d ", 2) == 0;
    if (is_second)
        memmove(j.name, j.name + 2, NAME - 2);
    for (op = 0; op < sizeof operations / sizeof operations[0] && strcmp(operations[op].name, j.name) != 0; op++)
        ;
    if (op == sizeof operations / sizeof operations[0])
        snprintf(message, sizeof message, "there is no operation %s", j.name);
    else
        operations[op].run(&j);
    if (!message[0] && ignis_status_last() == IGNIS_OK && is_second)
        take_gradients(&j);
    if (!message[0] && ignis_status_last() == IGNIS_OK && j.gradient_count && j.gradient_count != j.out_count)
        snprintf(message, sizeof message, "there are %d outputs, and %d gradients", j.out_count, (int)j.gradient_count);
    else if (!message[0] && ignis_status_last() == IGNIS_OK && j.gradient_count)
        differentiate(&j);
    if (!message[0] && ignis_status_last() != IGNIS_OK)
        snprintf(message, sizeof message, "%.500s", ignis_status_message());
    ignis_status_clear();
    count = message[0] ? 0 : j.out_count;
    put(results, message, sizeof message);
    put(results, &count, sizeof count);
    for (i = 0; i < count; i++)
        put_array(results, ignis_tensor_data(j.out[i]));
    for (i = 0; count && i < j.input_count; i++)
        put_array(results, ignis_tensor_grad(j.in[i]));
    ignis_scope_end(scope);
}

int main(int argc, char **argv)
{
    FILE *cases = argc == 3 ? fopen(argv[1], "rb") : NULL, *results = argc == 3 ? fopen(argv[2], "wb") : NULL;
    int64_t count, i;
    if (!cases || !results)
        stop("torch_driver cases results");
    if (ignis_setup(NULL) != IGNIS_OK)
        stop(ignis_status_message());
    get(cases, &count, sizeof count);
    for (i = 0; i < count; i++)
        run_case(cases, results);
    fclose(cases);
    if (fclose(results) != 0)
        stop("the results cannot be written");
    return ignis_shutdown() != IGNIS_OK;
}
