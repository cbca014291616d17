// SPDX-License-Identifier: MIT
/*  examples.c - an example for each section of the headers

    `make manual` puts each function body here into the manual, at the section that its tag names. `make check-docs` compiles and runs this program:

        cc -I. docs/examples.c -o docs_examples -lm -ldl -lpthread && ./docs_examples

    Tensors that an example makes are released after it. Those that need a model's files, a graphics API or a second process are compiled only. */
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* >>status */
static void status(void)
{
    if (ignis_array_numel(IGNIS_NO_ARRAY) < 0) { // fails: this handle is none
        ignis_status_info info;
        ignis_status_query(&info); // the status, the diagnostic, the call, the message
        printf("%s: %s\n", ignis_status_name(info.status), ignis_status_message());
        ignis_status_clear(); // so that the next failure is kept
    }
}

/* >>setup */
static void setup(void)
{
    ignis_desc desc = {.memory_limit = (int64_t)4 << 30, .allow_tf32 = true};
    ignis_shutdown();
    if (ignis_setup(&desc) != IGNIS_OK)
        printf("%s\n", ignis_status_message()); // no driver, say
    printf("Ignis %s\n", ignis_version_string());
}

/* >>device */
static void device(void)
{
    ignis_device_info info;
    for (int i = 0; i < ignis_device_count(); i++)
        if (ignis_device_query(i, &info) == IGNIS_OK)
            printf("device %d: %s\n", i, info.name);
    ignis_device_use(0); // new arrays of this thread are there
}

/* >>stream */
static void stream(void)
{
    void *side = ignis_stream_create(NULL);
    ignis_event done = ignis_event_create();
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_array x = ignis_array_create(&desc);
    ignis_stream_use(side); // what this thread queues from here on goes to this stream
    ignis_array_fill(x, 1);
    ignis_event_record(done, side);
    ignis_stream_use(NULL);              // back to the default stream of the device
    ignis_stream_wait_event(NULL, done); // its later work comes after the event
    ignis_array_scale(x, x, 2);
    ignis_synchronize();
    ignis_array_free(x);
    ignis_event_free(done);
    ignis_stream_free(side);
}

/* >>memory */
static void memory(void)
{
    ignis_memory_info info;
    ignis_memory_query(0, &info);
    printf("%lld bytes in arrays, %lld reserved\n", (long long)info.live_bytes, (long long)info.reserved_bytes);
    ignis_memory_trim(0); // returns unused memory to the driver
}

/* >>array */
static void array(void)
{
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(4, 3), .dtype = IGNIS_F16, .tag = "table"};
    float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, row[3];
    ignis_array table = ignis_array_create(&desc);
    ignis_array_from_host(table, numbers, IGNIS_F32, 12); // converted to f16
    ignis_array second = ignis_array_slice(table, 0, 1, 1);
    ignis_array_to_host(second, row, IGNIS_F32, 3); // 4 5 6
    ignis_array_free(table);                        // the view keeps the memory alive
    ignis_array_free(second);
}

/* >>elementwise */
static void elementwise(void)
{
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_array x = ignis_array_create(&desc), y = ignis_array_create(&desc);
    ignis_array_fill(x, 3);
    ignis_array_scale(y, x, 0.5);
    ignis_array_add(y, x, y); // 4.5
    ignis_array half = ignis_array_cast(y, IGNIS_F16);
    ignis_array_free(half);
    ignis_array_free(x);
    ignis_array_free(y);
}

/* >>formula */
static void formula(void)
{
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)}, one = {.shape = IGNIS_SHAPE(1)};
    ignis_array x = ignis_array_create(&desc), y = ignis_array_create(&desc), dot = ignis_array_create(&one);
    ignis_array_fill(x, 2);
    ignis_array_map(y, "sqrt(x*x + 1)", IGNIS_ARRAYS(x)); // one kernel
    ignis_array_reduce(dot, IGNIS_REDUCE_SUM, "x*y", IGNIS_ARRAYS(x, y));
    ignis_array_free(dot);
    ignis_array_free(x);
    ignis_array_free(y);
}

/* >>contract */
static void contract(void)
{
    ignis_contract_entry alive[16];
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000), .tag = "weights"};
    ignis_array x = ignis_array_create(&desc);
    ignis_contract_track(x);
    ignis_array_increment_ref(x); // from here on ignis_array_free refuses
    int count = ignis_contract_audit(alive, 16, 0);
    for (int i = 0; i < count && i < 16; i++)
        printf("%s has %d references\n", alive[i].tag, alive[i].ref_count);
    ignis_array_decrement_ref(x);
    ignis_array_free(x);
}

/* >>kernel */
static void kernel(void)
{
    ignis_kernel_desc program = {.source = "template <typename T> __global__ void shift(T *x, T by, int n)\n"
                                           "{\n"
                                           "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                           "    if (i < n) x[i] += by;\n"
                                           "}\n",
                                 .entry = "shift<float>"};
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_launch launch = {.grid = {4}, .block = {256}};
    ignis_array x = ignis_array_create(&desc);
    ignis_kernel shift = ignis_kernel_compile(&program);
    ignis_arg args[] = {ignis_arg_array(x), ignis_arg_f32(0.5f), ignis_arg_i32(1000)};
    ignis_array_zero(x);
    ignis_kernel_launch(shift, &launch, args, 3); // the number and the sizes of the arguments are checked
    ignis_kernel_free(shift);
    ignis_array_free(x);
}

/* >>tensor */
static void tensor(void)
{
    ignis_tensor_desc weight = {.requires_grad = true, .dtype = IGNIS_BF16};
    ignis_seed(7);
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(64, 64), &weight);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor y = ignis_scope_return(scope, ignis_relu(w)); // ends the scope; of all tensors made since only y stays
    printf("%g\n", ignis_item(ignis_mean(y)));                 // waits for the device
}

/* >>tape */
static void tape(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor x = ignis_tensor_linspace(-1, 1, 100, &wanted);
    ignis_backward(ignis_sum(ignis_mul(x, x)), IGNIS_NO_ARRAY);
    ignis_array gradient = ignis_tensor_grad(x); // 2 x; it belongs to x
    printf("%lld numbers\n", (long long)ignis_array_numel(gradient));
    ignis_zero_grad(x);
    ignis_no_grad_begin(); // nothing is recorded
    ignis_scale(x, 2);
    ignis_no_grad_end();
}

/* >>ops.matmul */
static void ops_matmul(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(8, 32), NULL), none = {0};
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(16, 32), NULL), bias = ignis_tensor_zeros(IGNIS_SHAPE(16), NULL);
    ignis_linear(x, w, bias);                                       // x w^T + bias, [8, 16]
    ignis_linear(x, w, none);                                       // without a bias
    ignis_matmul(x, ignis_transpose(w, 0, 1));                      // x w^T
    ignis_matmul(ignis_tensor_ones(IGNIS_SHAPE(5, 4, 8), NULL), x); // leading dimensions broadcast: [5, 4, 32]
}

/* >>ops.conv */
static void ops_conv(void)
{
    ignis_conv_desc desc = {.stride = {2, 2}, .padding = {1, 1}};
    ignis_tensor images = ignis_tensor_randn(IGNIS_SHAPE(2, 16, 16, 8), NULL); // images, rows, columns, channels
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(12, 3, 3, 8), NULL),
                 bias = ignis_tensor_zeros(IGNIS_SHAPE(12), NULL);
    ignis_conv2d(images, w, bias, &desc); // [2, 8, 8, 12]
}

/* A convolution of volumes. */
static void ops_conv3d(void)
{
    ignis_conv_desc desc = {.padding = {1, 1, 1}};
    ignis_tensor volumes = ignis_tensor_randn(IGNIS_SHAPE(1, 4, 6, 6, 8), NULL), none = {0};
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(16, 3, 3, 3, 8), NULL);
    ignis_conv3d(volumes, w, none, &desc); // [1, 4, 6, 6, 16]
}

/* Patches as rows, and back: where patches overlap, their sum. A border of the image itself, for filters. */
static void ops_unfold(void)
{
    ignis_unfold_desc desc = {.kernel = {2, 2}, .stride = {2, 2}};
    int64_t size[] = {4, 6}, border[] = {0, 1, 1, 0};
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(1, 4, 6, 8), NULL);
    ignis_tensor rows = ignis_unfold(x, &desc); // [1, 6, 32]: 6 patches of 4 pixels
    ignis_fold(rows, size, 2, &desc);           // [1, 4, 6, 8]
    ignis_pad_reflect(x, border, border, 4);    // [1, 6, 8, 8]
}

/* An image turned by 30 degrees: the position in it of each pixel of the result. */
static void ops_grid_sample(void)
{
    ignis_grid_sample_desc desc = {.padding = IGNIS_GRID_REFLECTION};
    ignis_tensor image = ignis_tensor_randn(IGNIS_SHAPE(1, 16, 16, 3), NULL);
    ignis_tensor grid = ignis_map_shape("x = (2*index(2) + 1)/16 - 1; y = (2*index(1) + 1)/16 - 1; "
                                        "index(3) == 0 ? 0.866*x - 0.5*y : 0.5*x + 0.866*y",
                                        IGNIS_SHAPE(1, 16, 16, 2), IGNIS_NO_INPUTS, NULL);
    ignis_grid_sample(image, grid, &desc); // [1, 16, 16, 3]
}

/* Images twice as large: a transposed convolution, and channels that become pixels. */
static void ops_conv_transpose(void)
{
    ignis_conv_transpose_desc twice = {.stride = {2, 2}, .padding = {1, 1}};
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(2, 8, 8, 16), NULL), none = {0};
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(16, 4, 4, 12), NULL);
    ignis_tensor y = ignis_conv_transpose2d(x, w, none, &twice); // [2, 16, 16, 12]
    ignis_pixel_shuffle(y, 2);                                   // [2, 32, 32, 3]
}

/* >>ops.pointwise */
static void ops_pointwise(void)
{
    ignis_tensor a = ignis_tensor_randn(IGNIS_SHAPE(8, 32), NULL), row = ignis_tensor_ones(IGNIS_SHAPE(32), NULL);
    ignis_tensor h = ignis_gelu(ignis_add(a, row)); // the row is added to each row
    ignis_dropout(h, 0.1);
    ignis_cast(h, IGNIS_BF16);
}

/* >>ops.formula */
static void ops_formula(void)
{
    ignis_reduce_desc rows = {.dims = {-1}, .dim_count = 1};
    ignis_tensor p = ignis_tensor_randn(IGNIS_SHAPE(8, 32), NULL), t = ignis_tensor_zeros(IGNIS_SHAPE(8, 32), NULL);
    ignis_tensor y = ignis_map("x = p - t; x/(1 + abs(x))", IGNIS_INPUTS(p, t)); // one kernel, with a gradient
    ignis_map_reduce(IGNIS_REDUCE_MAX, "abs(y)*k", IGNIS_INPUTS(y, IGNIS_VALUE(k, 0.5)), &rows);
}

/* >>ops.fft */
static void ops_fft(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(8, 100), NULL), w = ignis_tensor_ones(IGNIS_SHAPE(25), NULL);
    ignis_tensor spectrum = ignis_rfft(x, NULL); // [8, 51, 2]
    ignis_irfft(spectrum, NULL);                 // x again
    ignis_fft_conv(x, w, 1);                     // [8, 124]
}

/* >>ops.einsum */
static void ops_einsum(void)
{
    const int last[] = {2}, first[] = {0};
    ignis_tensor q = ignis_tensor_randn(IGNIS_SHAPE(2, 5, 8), NULL), w = ignis_tensor_randn(IGNIS_SHAPE(8, 4), NULL);
    const ignis_tensor three[] = {q, q, w};
    ignis_einsum("bqd,bkd->bqk", three, 2);    // [2, 5, 5]
    ignis_einsum("bqd,bkd,de->bqe", three, 3); // [2, 5, 4], in the order with the fewest multiplications
    ignis_tensordot(q, w, last, first, 1);     // [2, 5, 4]
}

/* >>ops.sum */
static void ops_sum(void)
{
    ignis_tensor x = ignis_tensor_ones(IGNIS_SHAPE(8, 32), NULL);
    printf("%g\n", ignis_item(ignis_sum(x))); // 256
    ignis_mean_dim(x, 1);                     // [8]
    ignis_cumsum(x, 1);                       // 1, 2, 3, ... in each row
    ignis_cumprod(x, 1);
    ignis_logcumsumexp(x, 1); // log(1), log(2), log(3), ... plus 1
    ignis_tensor places;
    ignis_cummax(x, 0, &places); // the largest so far in each column, and its row
}

/* >>ops.shape */
static void ops_shape(void)
{
    const int order[] = {2, 0, 1};
    ignis_tensor x = ignis_tensor_arange(0, 24, 1, NULL), cube = ignis_reshape(x, IGNIS_SHAPE(2, 3, 4));
    ignis_permute(cube, order, 3); // [4, 2, 3]
    ignis_tensor halves[] = {ignis_slice(cube, 2, 0, 2), ignis_slice(cube, 2, 2, 2)};
    ignis_concat(halves, 2, 2); // cube again
    ignis_stack(halves, 2, 0);  // [2, 2, 3, 2]
}

/* >>ops.norm */
static void ops_norm(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(8, 64), NULL), w = ignis_tensor_ones(IGNIS_SHAPE(64), NULL);
    ignis_rms_norm(x, w, 1e-6);
    ignis_tensor sum; // of x and y, for the layers behind
    ignis_add_rms_norm(x, ignis_scale(x, 0.5), w, 1e-6, &sum);
    ignis_softmax(x); // of each row
}

/* >>ops.image */
static void ops_image(void)
{
    ignis_pool_desc pool = {.window = {2, 2}};
    ignis_upsample_desc twice = {.size = {32, 32}, .mode = IGNIS_UPSAMPLE_LINEAR};
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(2, 16, 16, 8), NULL);
    ignis_tensor w = ignis_tensor_ones(IGNIS_SHAPE(8), NULL), b = ignis_tensor_zeros(IGNIS_SHAPE(8), NULL);
    ignis_max_pool(x, &pool);  // [2, 8, 8, 8]
    ignis_upsample(x, &twice); // [2, 32, 32, 8]
    ignis_batch_norm(x, w, b, NULL);
}

/* >>ops.rope */
static void ops_rope(void)
{
    ignis_rope_desc desc = {.num_heads = 4, .base = 500000};
    ignis_rope(ignis_tensor_randn(IGNIS_SHAPE(2, 10, 4 * 16), NULL), &desc); // 2 sequences of 10 tokens
}

/* >>ops.embedding */
static void ops_embedding(void)
{
    const int32_t tokens[] = {5, 1, 5};
    ignis_tensor_desc integers = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
    ignis_tensor table = ignis_tensor_randn(IGNIS_SHAPE(100, 16), NULL);
    ignis_embedding(table, ignis_tensor_from_host(tokens, IGNIS_SHAPE(3), &integers)); // [3, 16]
}

/* >>ops.index */
static void ops_index(void)
{
    const int32_t numbers[] = {2, 0};
    ignis_tensor_desc integers = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(3, 4), NULL);
    ignis_tensor rows = ignis_tensor_from_host(numbers, IGNIS_SHAPE(2), &integers);
    ignis_index_select(x, 0, rows);    // rows 2 and 0
    ignis_one_hot(rows, 3, IGNIS_F32); // [[0, 0, 1], [1, 0, 0]]
    ignis_tensor two = ignis_tensor_zeros(IGNIS_SHAPE(2, 4), NULL);
    x = ignis_index_put(x, &rows, 1, two, false); // rows 2 and 0 become zeros
}

/* >>ops.random */
static void ops_random(void)
{
    ignis_seed(7);
    ignis_tensor rates = ignis_map_shape("1 + index(0)", IGNIS_SHAPE(8), IGNIS_NO_INPUTS, NULL);
    ignis_poisson(rates);
    ignis_random_state state = ignis_random_save(); // two numbers, for a checkpoint
    ignis_tensor batch = ignis_tensor_permutation(1000, NULL), ids = ignis_tensor_randint(0, 10, IGNIS_SHAPE(4), NULL);
    ignis_random_restore(state); // what follows has the numbers of batch and ids again
    ignis_categorical(rates, 3, false);
    ignis_beta(rates, rates);
    (void)batch, (void)ids;
}

/* >>ops.select */
static void ops_select(void)
{
    const int32_t words[] = {4, 1, 4, 2};
    ignis_tensor_desc integers = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
    ignis_tensor ids = ignis_tensor_from_host(words, IGNIS_SHAPE(4), &integers), none = {0}, inverse, counts;
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(8, 32), NULL);
    ignis_masked_select(x, ignis_map("x > 0", IGNIS_INPUTS(x))); // the positive ones; waits for their number
    ignis_nonzero(ids);                                          // [4, 1]
    ignis_unique(ids, &inverse, &counts);                        // 1, 2, 4; 2, 0, 2, 1; 1, 1, 2
    ignis_bincount(ids, none, 5);                                // 0, 1, 1, 0, 2
    ignis_histogram(x, 10, -3, 3);
    ignis_searchsorted(ids, ids, false); // of a row that is in order
}

/* >>ops.sort */
static void ops_sort(void)
{
    ignis_tensor x = ignis_tensor_rand(IGNIS_SHAPE(8, 100), NULL), places;
    ignis_sort(x, 1, true, NULL);       // each row, the largest first
    ignis_topk(x, 5, 1, true, &places); // the five largest of each row, and where they were
}

/* >>grad */
static void grad(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor x = ignis_tensor_linspace(-1, 1, 64, &wanted), energy, first, second;
    ignis_grad_desc desc = {.create_graph = true};
    energy = ignis_sum(ignis_map("x*x*sin(x)", IGNIS_INPUTS(x)));
    ignis_grad(&energy, 1, &x, 1, &first, &desc); // the derivative at each x
    first = ignis_derivative(energy, x);          // the same in short
    energy = ignis_sum(ignis_map("first*first", IGNIS_INPUTS(first)));
    ignis_grad(&energy, 1, &x, 1, &second, NULL); // through the first one: x.grad is not touched
    printf("%g\n", ignis_item(ignis_mean(second)));
}

/* >>linalg */
static void linalg(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(7, 8, 8), NULL), b = ignis_tensor_randn(IGNIS_SHAPE(7, 8), NULL),
                 info;
    ignis_tensor eye = ignis_tensor_eye(8, 8, NULL),
                 a = ignis_map("c + eye", IGNIS_INPUTS(IGNIS_NAMED(c, ignis_matmul_t(x, x)), eye));
    ignis_tensor l = ignis_cholesky(a, NULL); // waits: a matrix that is not positive definite would be named
    ignis_cholesky_solve(l, b);               // a x = b, for each of the 7
    ignis_lstsq(x, b, &info);                 // the least |x y - b|
    ignis_eigh(a, NULL);                      // 8 eigenvalues for each, the smallest first
    ignis_cond(x, IGNIS_NORM_SPECTRAL);       // the largest singular value divided by the smallest
    ignis_solve(x, b, &info);                 // does not wait: info has 7 numbers, 0 for each that was solved
    printf("%g\n", ignis_item(ignis_mean(ignis_logdet(a, NULL))));
}

/* >>ops.loss */
static void ops_loss(void)
{
    const int32_t classes[] = {3, 0, 9};
    ignis_tensor_desc integers = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
    ignis_tensor logits = ignis_tensor_randn(IGNIS_SHAPE(3, 10), NULL);
    ignis_tensor loss = ignis_cross_entropy(logits, ignis_tensor_from_host(classes, IGNIS_SHAPE(3), &integers), NULL);
    printf("%g\n", ignis_item(loss));
    ignis_mse_loss(logits, ignis_scale(logits, 0.5), IGNIS_REDUCTION_MEAN);
}

/* >>ops.attention */
static void ops_attention(void)
{
    ignis_sdpa_desc desc = {.num_heads = 8, .num_kv_heads = 2};            // causal; four heads share keys
    ignis_tensor q = ignis_tensor_randn(IGNIS_SHAPE(2, 10, 8 * 16), NULL); // batch, tokens, heads * head_dim
    ignis_tensor k = ignis_tensor_randn(IGNIS_SHAPE(2, 10, 2 * 16), NULL),
                 v = ignis_tensor_randn(IGNIS_SHAPE(2, 10, 2 * 16), NULL);
    ignis_sdpa(q, k, v, &desc); // [2, 10, 8 * 16]

    const int32_t ids[] = {0, 0, 0, 1, 1, 1, 1, 1, 1, -1, 5, 5, 5, 5, 5, 6, 6, 7, -1, -1}; // -1: in no document
    ignis_tensor_desc integers = {.dtype = IGNIS_I32, .host_dtype = IGNIS_I32};
    desc.segments = ignis_tensor_from_host(ids, IGNIS_SHAPE(2, 10), &integers);
    ignis_sdpa(q, k, v, &desc); // rows see only their own document
}

/* >>lbfgs */
static ignis_tensor distance(void *w)
{
    return ignis_map_sum("(w - 3)*(w - 3)", IGNIS_INPUTS(IGNIS_NAMED(w, *(ignis_tensor *)w)));
}
static void lbfgs(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(5), &wanted);
    ignis_optimizer optimizer = ignis_lbfgs(NULL);
    ignis_optimizer_add(optimizer, w, false);
    ignis_lbfgs_step(optimizer, distance, &w, NULL); // w is 3 in all elements
    ignis_optimizer_free(optimizer);
}

/* >>init */
static void init(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_init_desc desc = {.kind = IGNIS_INIT_XAVIER_UNIFORM, .gain = IGNIS_GAIN_TANH};
    ignis_tensor w = ignis_tensor_zeros(IGNIS_SHAPE(32, 16), &wanted);
    ignis_initialize(w, &desc); // for ignis_linear and a tanh
    ignis_optimizer optimizer = ignis_adamw(NULL);
    ignis_parameter(optimizer, IGNIS_SHAPE(32, 16), &desc); // the same, and trained
    ignis_parameter(optimizer, IGNIS_SHAPE(32), NULL);      // zeros: a bias
    ignis_optimizer_free(optimizer);
}

/* >>optim */
static void optim(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_adamw_desc desc = {.lr = 1e-3, .weight_decay = 0.01, .zero_grad = true};
    ignis_optimizer optimizer = ignis_adamw(&desc);
    ignis_tensor w = ignis_tensor_randn(IGNIS_SHAPE(16, 16), &wanted);
    ignis_optimizer_add(optimizer, w, true); // with weight decay
    ignis_backward(ignis_mean(ignis_mul(w, w)), IGNIS_NO_ARRAY);
    ignis_clip_grad_norm(optimizer, 1.0);
    ignis_optimizer_step(optimizer);
    ignis_optimizer_free(optimizer);
}

/* >>graph */
static void graph(void)
{
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_array x = ignis_array_create(&desc);
    ignis_array_fill(x, 1);
    ignis_array_scale(x, x, 2); // once without a graph, so that its kernel is compiled
    ignis_graph_begin();
    ignis_array_scale(x, x, 2); // recorded, not run
    ignis_graph step = ignis_graph_end();
    for (int i = 0; i < 3; i++)
        ignis_graph_launch(step);
    ignis_graph_free(step);
    ignis_array_free(x);
}

/* >>file */
static void file(void)
{
    const char *names[] = {"w", "b"};
    ignis_tensor saved[] = {ignis_tensor_randn(IGNIS_SHAPE(4, 4), NULL), ignis_tensor_zeros(IGNIS_SHAPE(4), NULL)};
    ignis_tensor loaded[2] = {{0}}; // 0: ignis_load makes new tensors
    if (ignis_save("example.safetensors", names, saved, 2) == IGNIS_OK)
        ignis_load("example.safetensors", names, loaded, 2);
    remove("example.safetensors");
}

/* >>training */
static void training(void)
{
    const char *names[] = {"w"};
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor w = ignis_tensor_ones(IGNIS_SHAPE(16, 16), &wanted);
    ignis_optimizer optimizer = ignis_adamw(NULL);
    ignis_optimizer_add(optimizer, w, true);
    ignis_training_desc desc = {
        .names = names, .tensors = &w, .count = 1, .optimizers = &optimizer, .optimizer_count = 1};
    ignis_training whole = ignis_training_create(&desc);
    ignis_training_save(whole, "run"); // a thread writes; the training may go on
    if (ignis_training_wait(whole) == IGNIS_OK)
        ignis_training_load(whole, "run"); // in the next run of the program
    ignis_training_free(whole);
    ignis_optimizer_free(optimizer);
}

/* >>text */
static void text(void)
{
    int32_t ids[100];
    char out[400];
    ignis_tokenizer tokenizer =
        ignis_tokenizer_open("SmolLM2-135M-Instruct"); // a folder, tokenizer.json, or a .gguf file
    int count = ignis_tokenizer_encode(tokenizer, "Once upon a time", 16, NULL, ids, 100);
    ignis_tokenizer_decode(tokenizer, ids, count, NULL, out, sizeof out);
    ignis_tokenizer_free(tokenizer);
}

/* >>chat */
static void chat(void)
{
    const ignis_message talk[] = {{"system", "You answer in one sentence."}, {"user", "Why is the sky blue?"}};
    const ignis_chat_desc desc = {.add_generation_prompt = true};
    int32_t ids[1000];
    ignis_tokenizer tokenizer = ignis_tokenizer_open("SmolLM2-135M-Instruct");
    ignis_chat_encode(tokenizer, talk, 2, &desc, ids, 1000); // what a message says never becomes a control token
    ignis_tokenizer_free(tokenizer);
}

/* >>grammar */
static void grammar(void)
{
    ignis_grammar_check("root ::= [0-9]{4} \"-\" [0-9]{2}");                                           // GBNF
    ignis_grammar_check("{\"type\": \"object\", \"properties\": {\"age\": {\"type\": \"integer\"}}}"); // a JSON schema
}

/* >>model */
static void model(void)
{
    ignis_model_desc from = {.path = "SmolLM2-135M", .dtype = IGNIS_BF16};
    ignis_model_info info;
    ignis_model_inspect(&from, &info); // without a GPU: how much memory it takes
    ignis_model opened = ignis_model_open(&from);
    ignis_tensor ids = ignis_cast(ignis_tensor_arange(0, 8, 1, NULL), IGNIS_I32);
    ignis_model_forward(opened, ignis_reshape(ids, IGNIS_SHAPE(1, 8))); // logits
    ignis_model_free(opened);
}

/* >>lora */
static void lora(void)
{
    ignis_model_desc from = {.path = "SmolLM2-135M"};
    ignis_lora_desc small = {.rank = 16, .alpha = 32};
    ignis_tensor weights[512];
    ignis_model base = ignis_model_open(&from);
    ignis_lora adapter = ignis_lora_create(base, &small);
    ignis_model_set_lora(base, adapter); // ignis_model_forward uses it
    int count = ignis_lora_weights(adapter, weights, 512);
    printf("%d tensors to train\n", count);           // give them to an optimizer
    ignis_sequence text = ignis_sequence_begin(base); // is computed with the adapters, too
    ignis_lora other = ignis_lora_open(base, "adapter");
    ignis_sequence_set_lora(text, other); // and now with others; with none if there is no handle
    ignis_sequence_free(text);
    ignis_lora_free(other);
    ignis_lora_save(adapter, "adapter"); // as PEFT writes it
    ignis_lora_free(adapter);
    ignis_model_free(base);
}

static bool show(const char *piece, size_t size, void *user_data)
{
    (void)user_data;
    return fwrite(piece, 1, size, stdout) == size; // false ends the text
}

/* >>generate */
static void generate(void)
{
    ignis_model_desc from = {.path = "SmolLM2-135M-Instruct"};
    ignis_generate_desc how = {.max_tokens = 200, .sampling = {.temperature = 0.7, .seed = 1}, .text_fn = show};
    ignis_model opened = ignis_model_open(&from);
    ignis_sequence sequence = ignis_sequence_begin(opened);
    ignis_sequence_text(sequence, "Once upon a time", 16);
    ignis_generate(sequence, &how); // calls show with the text as it grows
    ignis_sequence_free(sequence);
    ignis_model_free(opened);
}

/* >>embed */
static void embed(void)
{
    ignis_model_desc from = {.path = "all-MiniLM-L6-v2"};
    const char *texts[] = {"How do I cook rice?", "Bring two cups of water to the boil."};
    float vectors[2 * 384], similar = 0;
    ignis_model model = ignis_model_open(&from);
    ignis_model_embed(model, texts, 2, NULL, vectors); // each of length 1
    for (int i = 0; i < 384; i++)
        similar += vectors[i] * vectors[384 + i]; // 1 for the same meaning
    printf("%.3f\n", (double)similar);
    ignis_model_free(model);
}

/* >>dlpack */
static void dlpack(void)
{
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(4, 3)};
    ignis_array x = ignis_array_create(&desc);
    ignis_array_fill(x, 1);
    void *lent = ignis_array_to_dlpack(x, 0, NULL);         // for torch.from_dlpack, in a capsule
    ignis_array y = ignis_array_from_dlpack(lent, 0, NULL); // or back: the memory of x
    ignis_array_free(y);
    ignis_array_free(x);
}

/* >>graphics */
static void graphics(void)
{
    ignis_gl_buffer buffer = ignis_gl_register(1, IGNIS_GL_READ_WRITE); // a buffer that OpenGL has made
    ignis_array x = ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(1000, 3));
    ignis_array_scale(x, x, 2);
    ignis_array_free(x);
    ignis_gl_unmap(buffer); // OpenGL's again
    ignis_gl_unregister(buffer);
}

/* >>profile */
static void profile(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(64, 64), NULL);
    ignis_profile_begin();
    ignis_softmax(ignis_matmul(x, x));
    ignis_profile_end("trace.json", "kernels.txt"); // for ui.perfetto.dev, and a table
    remove("trace.json");
    remove("kernels.txt");
}

/* >>print */
static void print(void)
{
    ignis_tensor x = ignis_tensor_randn(IGNIS_SHAPE(64, 64), NULL);
    ignis_tensor_print(x); // as repr of NumPy does
    ignis_summary_print(NULL, &x, 1);
}

/* >>picture */
static void picture(void)
{
    ignis_progress progress = {.total = 100, .label = "train"};
    double losses[100];
    for (int step = 0; step < 100; step++) {
        losses[step] = 1.0 / (1 + step);
        ignis_progress_print(&progress, step + 1, "loss", losses[step]);
    }
    ignis_curve curve = {.name = "loss", .values = losses, .count = 100};
    ignis_curves_desc desc = {.x_label = "step", .log_y = true};
    ignis_curves_write("loss.svg", &curve, 1, &desc);
    remove("loss.svg");
}

/* >>vmm */
static void vmm(void)
{
    ignis_vmm_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_array x = ignis_vmm_array(&desc); // physical memory of its own, which other processes can map
    ignis_array_fill(x, 1);
    ignis_array_free(x);
}

/* >>channel */
static void channel(void)
{
    ignis_channel_desc meet = {.name = "example"};
    char word[16];
    int64_t size;
    ignis_channel server = ignis_channel_serve(&meet); // the other process calls ignis_channel_connect(&meet)
    ignis_channel peer = ignis_channel_accept(server);
    ignis_channel_send(peer, "ready", 5, NULL, 0);
    ignis_channel_receive(peer, word, sizeof word, &size, NULL, 0, NULL);
    ignis_channel_close(peer);
    ignis_channel_close(server);
}

/* >>transport */
static void transport(void)
{
    ignis_transport_desc desc = {.kind = IGNIS_TRANSPORT_AUTO};
    ignis_vmm_array_desc shape = {.shape = IGNIS_SHAPE(1000)};
    char why[200];
    if (!ignis_transport_available(IGNIS_TRANSPORT_VMM, 0, 1, why, sizeof why))
        printf("no mapped memory between GPU 0 and 1: %s\n", why);
    ignis_transport way = ignis_transport_create(&desc);
    ignis_transport_initialize(way);
    ignis_transport_handle handle;
    ignis_array x = ignis_vmm_array(&shape);
    ignis_array_fill(x, 1);
    ignis_transport_export_handle(way, x, &handle); // send it; the other process calls ignis_transport_import_handle
    ignis_transport_handle_close(&handle);
    ignis_transport_release_handle(way, x);
    ignis_transport_destroy(way);
    ignis_array_free(x);
}

/* >>share */
static void share(void)
{
    ignis_channel_desc meet = {.name = "share"};
    ignis_vmm_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_channel server = ignis_channel_serve(&meet), peer = ignis_channel_accept(server);
    ignis_array x = ignis_vmm_array(&desc);
    ignis_array_fill(x, 1);
    ignis_share_send(peer, x); // the other process calls ignis_share_receive, and has the same memory
    ignis_channel_close(peer);
    ignis_channel_close(server);
    ignis_array_free(x); // refused as long as the other one uses it
}

/* >>comm */
static void comm(void)
{
    ignis_comm ranks = ignis_comm_init(NULL); // waits for the other ranks; without a launcher there is one
    ignis_comm_info info;
    ignis_comm_query(ranks, &info);
    ignis_device_use(info.device);
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1000)};
    ignis_array x = ignis_array_create(&desc);
    ignis_array_fill(x, info.rank + 1.0);
    ignis_comm_all_reduce(ranks, x, x, IGNIS_OP_SUM);
    ignis_comm_synchronize(ranks);
    ignis_array_free(x);
    ignis_comm_destroy(ranks);
}

/* >>parallel */
static void parallel(void)
{
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor w = ignis_tensor_ones(IGNIS_SHAPE(16, 16), &wanted);
    ignis_comm ranks = ignis_comm_init(NULL);
    ignis_parallel all = ignis_parallel_create(ranks, &w, 1, NULL); // all ranks have rank 0's parameters now
    ignis_backward(ignis_mean(ignis_mul(w, w)), IGNIS_NO_ARRAY);    // leaves the mean over the ranks in the gradient
    ignis_parallel_free(all);
    ignis_comm_destroy(ranks);
}

/* >>parallel.tensor */
static void parallel_tensor(void)
{
    ignis_comm ranks = ignis_comm_init(NULL);
    ignis_comm_info info;
    ignis_comm_query(ranks, &info);
    ignis_tensor_desc wanted = {.requires_grad = true};
    ignis_tensor none = {0}, x = ignis_tensor_ones(IGNIS_SHAPE(4, 16), NULL); // the same on all ranks
    ignis_tensor up = ignis_tensor_ones(IGNIS_SHAPE(64 / info.size, 16), &wanted),
                 down = ignis_tensor_ones(IGNIS_SHAPE(16, 64 / info.size), &wanted); // this rank's parts
    ignis_tensor h = ignis_gelu(ignis_column_parallel_linear(ranks, x, up, none));   // [4, 64 / ranks]
    ignis_tensor y = ignis_row_parallel_linear(ranks, h, down, none);                // [4, 16], on all ranks
    ignis_backward(ignis_mean(y), IGNIS_NO_ARRAY);
    ignis_comm_destroy(ranks);
}

int main(void)
{
#define RUN(name)         \
    {                     \
#name, name, true \
    }
#define COMPILE(name)      \
    {                      \
#name, name, false \
    }
    static const struct {
        const char *name;
        void (*example)(void);
        bool runs;
    } all[] = {
        RUN(status),
        RUN(setup),
        RUN(device),
        RUN(stream),
        RUN(memory),
        RUN(array),
        RUN(elementwise),
        RUN(formula),
        RUN(contract),
        RUN(kernel),
        RUN(tensor),
        RUN(tape),
        RUN(ops_matmul),
        RUN(ops_conv),
        RUN(ops_pointwise),
        RUN(ops_formula),
        RUN(ops_fft),
        RUN(ops_einsum),
        RUN(ops_sum),
        RUN(ops_shape),
        RUN(ops_norm),
        RUN(ops_image),
        RUN(ops_rope),
        RUN(ops_embedding),
        RUN(ops_index),
        RUN(ops_sort),
        RUN(ops_loss),
        RUN(ops_conv_transpose),
        RUN(ops_conv3d),
        RUN(ops_unfold),
        RUN(ops_grid_sample),
        RUN(ops_random),
        RUN(ops_select),
        RUN(grad),
        RUN(linalg),
        RUN(ops_attention),
        RUN(init),
        RUN(lbfgs),
        RUN(optim),
        RUN(graph),
        RUN(file),
        RUN(training),
        COMPILE(text),
        COMPILE(chat),
        RUN(grammar),
        COMPILE(model),
        COMPILE(lora),
        COMPILE(generate),
        COMPILE(embed),
        RUN(dlpack),
        COMPILE(graphics),
        RUN(print),
        RUN(picture),
        RUN(profile),
        RUN(vmm),
        COMPILE(channel),
        RUN(transport),
        COMPILE(share),
        RUN(comm),
        RUN(parallel),
        RUN(parallel_tensor),
    };
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ignis_scope scope;
        if (!all[i].runs)
            continue;
        scope = ignis_scope_begin();
        all[i].example();
        if (strcmp(all[i].name, "setup") != 0) // which has ended that scope
            ignis_scope_end(scope);
        if (ignis_status_last() != IGNIS_OK) {
            printf("example %s: %s\n", all[i].name, ignis_status_message());
            return 1;
        }
    }
    return ignis_shutdown() != IGNIS_OK;
}
