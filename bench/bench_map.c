// SPDX-License-Identifier: MIT
/*  bench_map.c - what formulas cost beside a copy on the device, which moves the fewest bytes that are possible

    Each formula runs forward, and forward and backward with all gradients, in bf16 and f32, for arrays of 16384 x 4096
    (on the simulator 64 x 64). A share of 1.00 means the bytes per second of ignis_array_copy, which takes turns with
    it; each array that is read or written counts once. The time that the first call takes is there, too: NVRTC, as
    IGNIS_CACHE_DIR=off keeps nothing.

        cc -O2 -I. bench/bench_map.c -o bench_map -lm -ldl -lpthread && IGNIS_CACHE_DIR=off ./bench_map

    peer_map.py has the times of torch.compile.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { ROUNDS = 9, PLACEMENTS = 3, REPEATS = 8 };

/*  Inputs of a formula: a, b and g are [rows, cols], row is [cols], col [rows, 1], m a mask of u8, k a value. */
static const struct {
    const char *name, *formula, *names;
    int reducer; /* 0: none; along all dimensions, or along the last one where rows */
    bool rows;
} cases[] = {
    {"copy", "a", "a", 0, false},
    {"silu(a)*b", "silu(a)*b", "a, b", 0, false},
    {"gelu exact", "gelu_exact(a)", "a", 0, false},
    {"gelu", "gelu(a)", "a", 0, false},
    {"huber", "d = a - b; abs(d) < k ? 0.5*d*d : k*(abs(d) - 0.5*k)", "a, b, k", 0, false},
    {"bce with logits", "max(a, 0) - a*b + log1p(exp(-abs(a)))", "a, b", 0, false},
    {"a*row", "a*row", "a, row", 0, false},
    {"a*col", "a*col", "a, col", 0, false},
    {"masked fill", "m ? k : a", "a, m, k", 0, false},
    {"softplus", "softplus(a)", "a", 0, false},
    {"silu(a+row)*(b+row)", "silu(a + row)*(b + row)", "a, b, row", 0, false},
    {"focal", "s = sigmoid(a); -(b*log(s) + (1-b)*log(1-s))*pow(1-s, 2)", "a, b", 0, false},
    {"sin(a)*b", "sin(a)*b", "a, b", 0, false},
    {"mish", "a*tanh(softplus(a))", "a", 0, false},
    {"kl", "b*(log(b) - log(a))", "a, b", 0, false},
    {"a*rsqrt(a*a+b*b+1)", "a*rsqrt(a*a + b*b + 1)", "a, b", 0, false},
    {"dropout", "rand() < 0.1 ? 0 : a/0.9", "a", 0, false},
    {"mean (a-b)^2", "square(a - b)", "a, b", IGNIS_REDUCE_MEAN, false},
    {"sum of rows a*b", "a*b", "a, b", IGNIS_REDUCE_SUM, true},
    {"logsumexp of rows", "a", "a", IGNIS_REDUCE_LOGSUMEXP, true},
    {"argmax of rows", "a", "a", IGNIS_REDUCE_ARGMAX, true},
};

static ignis_tensor tensor(int64_t rows, int64_t cols, bool flat, ignis_dtype dtype, bool grad)
{
    ignis_tensor_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.requires_grad = grad;
    return ignis_tensor_ones(flat ? IGNIS_SHAPE(cols) : IGNIS_SHAPE(rows, cols), &desc);
}

/*  Seconds of a run, of several in a row: of the value alone, or of the value and all gradients. */
static double run(int which, const ignis_inputs *inputs, ignis_array grad, bool backward, int repeats)
{
    static const ignis_reduce_desc rows = {{1}, 1, true};
    double start;
    int i, k;
    ignis_synchronize();
    start = now();
    for (k = 0; k < repeats; k++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor y;
        if (!backward)
            ignis_no_grad_begin();
        if (cases[which].reducer)
            y = ignis_map_reduce((ignis_reducer)cases[which].reducer, cases[which].formula, *inputs,
                                 cases[which].rows ? &rows : NULL);
        else
            y = ignis_map(cases[which].formula, *inputs);
        if (!backward)
            ignis_no_grad_end();
        else
            ignis_backward(y, cases[which].reducer && !cases[which].rows ? IGNIS_NO_ARRAY : grad);
        for (i = 0; i < inputs->count && backward; i++) { /* or the next one would be added to it */
            ignis_tensor_info info;
            memset(&info, 0, sizeof info);
            if (!ignis__handle_is_value(inputs->tensor[i].id) &&
                ignis_tensor_query(inputs->tensor[i], &info) == IGNIS_OK && info.requires_grad)
                ignis_tensor_set_grad(inputs->tensor[i], IGNIS_NO_ARRAY);
        }
        require(y.id != 0 && ignis_status_last() == IGNIS_OK, cases[which].name);
        ignis_scope_end(scope);
    }
    ignis_synchronize();
    return (now() - start) / repeats;
}

int main(void)
{
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F32};
    ignis_device_info device;
    int64_t rows = 16384, cols = 4096;
    int t, i, k, n;
    require(ignis_setup(NULL) == IGNIS_OK && ignis_device_query(0, &device) == IGNIS_OK, "setup");
    if (strstr(device.name, "imulat"))
        rows = cols = 64;
    printf("%s, %lld x %lld\n", device.name, (long long)rows, (long long)cols);
    printf("%-22s %-5s %9s %9s %6s %9s %9s %6s\n", "formula", "dtype", "first ms", "us", "share", "first ms", "f+b us",
           "share");
    for (t = 0; t < 2; t++)
        for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
            int size = ignis_dtype_size(dtypes[t]), dense = 0, large = 0;
            bool differentiable = cases[i].reducer != IGNIS_REDUCE_ARGMAX;
            ignis_scope scope = ignis_scope_begin();
            char names[64];
            const char *name;
            ignis_inputs inputs;
            ignis_tensor out_grad = tensor(rows, cases[i].rows ? 1 : cols, false, dtypes[t], false);
            ignis_tensor source = tensor(rows, cols, false, dtypes[t], false),
                         target = tensor(rows, cols, false, dtypes[t], false);
            double times[2][ROUNDS * PLACEMENTS], copies[ROUNDS * PLACEMENTS], first[2] = {0, 0}, copy,
                                                                               elements = (double)rows * (double)cols;
            double bytes[2], middle[2] = {0, 0};
            memset(&inputs, 0, sizeof inputs);
            inputs.names = cases[i].names;
            snprintf(names, sizeof names, "%s", cases[i].names);
            for (name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
                bool is_dense = strcmp(name, "a") == 0 || strcmp(name, "b") == 0;
                inputs.tensor[inputs.count++] =
                    strcmp(name, "k") == 0     ? ignis_value(1)
                    : strcmp(name, "m") == 0   ? tensor(rows, cols, false, IGNIS_U8, false)
                    : strcmp(name, "row") == 0 ? tensor(rows, cols, true, dtypes[t], differentiable)
                    : strcmp(name, "col") == 0 ? tensor(rows, 1, false, dtypes[t], differentiable)
                                               : tensor(rows, cols, false, dtypes[t], differentiable);
                dense += is_dense;
                large += strcmp(name, "m") == 0;
            }
            bytes[0] = elements * (dense * size + large + (cases[i].reducer ? 0 : size));
            bytes[1] = bytes[0] + elements * (2 * dense * size + large + (cases[i].reducer ? 0 : size));
            for (k = 0; k < 1 + differentiable; k++)
                first[k] = run(i, &inputs, ignis_tensor_data(out_grad), k, 1);
            for (n = 0; n < ROUNDS * PLACEMENTS; n++) {
                double start;
                if (n % ROUNDS == 0) /* the place of the results alone moves a kernel by some percent */
                    tensor(3 + n, 1 << 20, false, IGNIS_U8, false);
                for (k = 0; k < 1 + differentiable; k++)
                    times[k][n] = run(i, &inputs, ignis_tensor_data(out_grad), k, REPEATS);
                ignis_synchronize();
                start = now();
                for (k = 0; k < REPEATS; k++)
                    ignis_array_copy(ignis_tensor_data(target), ignis_tensor_data(source));
                ignis_synchronize();
                copies[n] = (now() - start) / REPEATS;
            }
            copy = median(copies, n) / (2 * elements * size);
            for (k = 0; k < 1 + differentiable; k++)
                middle[k] = median(times[k], n);
            printf("%-22s %-5s %9.1f %9.1f %6.2f", cases[i].name, ignis_dtype_name(dtypes[t]), 1e3 * first[0],
                   1e6 * middle[0], bytes[0] * copy / middle[0]);
            if (differentiable)
                printf(" %9.1f %9.1f %6.2f", 1e3 * first[1], 1e6 * middle[1], bytes[1] * copy / middle[1]);
            printf("\n");
            ignis_scope_end(scope);
        }
    return ignis_shutdown() != IGNIS_OK;
}
