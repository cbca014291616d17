// SPDX-License-Identifier: MIT
/*  custom_op.c - an operation of your own, with its gradient: a renderer that can be optimised

    Ignis knows nothing of pictures. Here a program adds the operation draw(discs): a list of discs with soft edges
    becomes a picture. It takes three things:

        forward     a CUDA kernel that computes the output, one thread per pixel
        backward    a CUDA kernel that turns the gradient of the output into the gradient of the input, one block per
        disc
        a rule      that ties the two together: ignis_tape_record puts it on the tape, as every operation of Ignis' own
        does

    From then on ignis_backward walks through draw() like through anything else. That the gradient is right need not be
    believed:
    ignis_gradcheck compares it with finite differences. Then gradient descent moves three discs until they show what
    the target shows, and the terminal shows them on their way.

        cc -I. examples/custom_op.c -o custom_op -lm -ldl -lpthread && ./custom_op
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>

#define DISCS 3
#define WIDTH 64 /* characters, which are about twice as high as wide */
#define HEIGHT 16
#define STEPS 150

/*  A disc is four numbers: centre x, centre y, radius, brightness. The picture goes from 0 to 2 across and from 0 to 1
    down.
    A pixel at the distance d of the centre gets brightness * s, where s = 1 / (1 + exp((d - radius) / SOFTNESS)): 1
    inside, 0 outside, and something between at the edge. Without that soft edge nothing would depend smoothly on where
    the disc is, and there would be no gradient to follow.

    The kernels are templates, as ignis_gradcheck wants double and the optimisation is well served with float. */
static const char draw_source[] =
    "#define SOFTNESS 0.05\n"
    "\n"
    "template <typename T> struct coverage { T dx, dy, distance, s; };\n"
    "\n"
    "template <typename T> __device__ coverage<T> cover(const T *disc, int pixel, int width, int height)\n"
    "{\n"
    "    coverage<T> c;\n"
    "    c.dx = T(2) * (pixel % width + T(0.5)) / width - disc[0];\n"
    "    c.dy = (pixel / width + T(0.5)) / height - disc[1];\n"
    "    c.distance = sqrt(c.dx * c.dx + c.dy * c.dy + T(1e-6));\n"
    "    c.s = 1 / (1 + exp((c.distance - disc[2]) / T(SOFTNESS)));\n"
    "    return c;\n"
    "}\n"
    "\n"
    "template <typename T> __global__ void draw(T *picture, const T *discs, int count, int width, int height)\n"
    "{\n"
    "    int pixel = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (pixel >= width * height) return;\n"
    "    T sum = 0;\n"
    "    for (int i = 0; i < count; i++) sum += discs[4 * i + 3] * cover(discs + 4 * i, pixel, width, height).s;\n"
    "    picture[pixel] = sum;\n"
    "}\n"
    "\n"
    "// One block of 128 threads sums, over all pixels, what each says about one disc; always in the same order.\n"
    "template <typename T> __global__ void draw_backward(T *grad_discs, const T *grad_picture, const T *discs, int "
    "width, int height)\n"
    "{\n"
    "    __shared__ T part[4][128];\n"
    "    const T *disc = discs + 4 * blockIdx.x;\n"
    "    T sum[4] = {0, 0, 0, 0};\n"
    "    for (int pixel = threadIdx.x; pixel < width * height; pixel += 128) {\n"
    "        coverage<T> c = cover(disc, pixel, width, height);\n"
    "        T edge = grad_picture[pixel] * disc[3] * c.s * (1 - c.s) / T(SOFTNESS);  // d s / d radius = s (1 - s) / "
    "SOFTNESS\n"
    "        sum[0] += edge * c.dx / c.distance;\n"
    "        sum[1] += edge * c.dy / c.distance;\n"
    "        sum[2] += edge;\n"
    "        sum[3] += grad_picture[pixel] * c.s;\n"
    "    }\n"
    "    for (int k = 0; k < 4; k++) part[k][threadIdx.x] = sum[k];\n"
    "    for (int half = 64; half > 0; half /= 2) {\n"
    "        __syncthreads();\n"
    "        for (int k = 0; k < 4; k++)\n"
    "            if (threadIdx.x < half) part[k][threadIdx.x] += part[k][threadIdx.x + half];\n"
    "    }\n"
    "    if (threadIdx.x == 0)\n"
    "        for (int k = 0; k < 4; k++) grad_discs[4 * blockIdx.x + k] = part[k][0];\n"
    "}\n";

typedef struct draw_kernels {
    ignis_kernel forward, backward;
} draw_kernels;

static draw_kernels for_floats, for_doubles;

static ignis_kernel compile(const char *entry)
{
    ignis_kernel_desc desc = {.source = draw_source, .name = "draw.cu", .entry = entry};
    return ignis_kernel_compile(&desc);
}

/* --- the operation ----------------------------------------------------------------------------------------------- */

/*  Given the gradient of the picture, make the gradient of the discs. The array becomes the tape's, which frees it when
    it is done. */
static ignis_status draw_backward(const ignis_backward_args *args)
{
    const draw_kernels *kernels = (const draw_kernels *)args->user_data;
    ignis_array discs = args->saved[0];
    ignis_array_info info;
    ignis_array_query(discs, &info);
    ignis_array_desc like_discs = {.shape = info.shape, .dtype = info.dtype, .tag = "gradient of discs"};
    ignis_array gradient = ignis_array_create(&like_discs);
    ignis_arg arguments[] = {ignis_arg_array(gradient), ignis_arg_array(args->grad_output), ignis_arg_array(discs),
                             ignis_arg_i32(WIDTH), ignis_arg_i32(HEIGHT)};
    ignis_launch launch = {.grid = {info.shape.dim[0]}, .block = {128}};
    args->grad_inputs[0] = gradient;
    return ignis_kernel_launch(kernels->backward, &launch, arguments, 5);
}

/*  discs [n, 4] -> picture [HEIGHT, WIDTH] */
static ignis_tensor draw(ignis_tensor discs)
{
    ignis_tensor_info info;
    if (ignis_tensor_query(discs, &info) != IGNIS_OK)
        return (ignis_tensor){0}; /* what should have made discs has failed: nothing to draw */
    draw_kernels *kernels = info.dtype == IGNIS_F64 ? &for_doubles : &for_floats;

    ignis_tensor_desc like_discs = {.dtype = info.dtype};
    ignis_tensor picture = ignis_tensor_zeros(IGNIS_SHAPE(HEIGHT, WIDTH), &like_discs);
    ignis_arg arguments[] = {ignis_arg_array(ignis_tensor_data(picture)), ignis_arg_array(info.data),
                             ignis_arg_i32((int)info.shape.dim[0]), ignis_arg_i32(WIDTH), ignis_arg_i32(HEIGHT)};
    ignis_launch launch = {.grid = {(WIDTH * HEIGHT + 127) / 128}, .block = {128}};
    ignis_kernel_launch(kernels->forward, &launch, arguments, 5);

    ignis_rule rule = {
        .name = "draw", .backward_fn = draw_backward, .saved = &info.data, .saved_count = 1, .user_data = kernels};
    ignis_tape_record(picture, &discs, 1, &rule);
    return picture;
}

/* --- using it ---------------------------------------------------------------------------------------------------- */

/*  How far a drawing is from the target: the mean of the squared differences. */
static ignis_tensor distance(ignis_tensor discs, ignis_tensor target)
{
    ignis_tensor difference = ignis_sub(draw(discs), target);
    return ignis_mean(ignis_mul(difference, difference));
}

/*  ignis_gradcheck wants a function of tensors; the sum of the picture's squares uses every pixel. */
static ignis_tensor sum_of_squares(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor picture = draw(inputs[0]);
    (void)count, (void)user_data;
    return ignis_sum(ignis_mul(picture, picture));
}

static void show(const char *title, ignis_tensor picture)
{
    static const char shades[] = " .:-=+*#%@";
    float pixels[HEIGHT * WIDTH] = {0};
    int x, y;
    ignis_tensor_to_host(picture, pixels, IGNIS_F32, HEIGHT * WIDTH);
    printf("%s\n", title);
    for (y = 0; y < HEIGHT; y++) {
        printf("    ");
        for (x = 0; x < WIDTH; x++) {
            float shade = pixels[y * WIDTH + x] * 9;
            putchar(shades[shade < 0 ? 0 : shade > 9 ? 9 : (int)shade]);
        }
        putchar('\n');
    }
}

int main(void)
{
    static const float wanted[DISCS][4] = {
        {0.45f, 0.35f, 0.22f, 0.9f}, {1.55f, 0.3f, 0.15f, 0.6f}, {1.2f, 0.7f, 0.25f, 0.75f}};
    static const float start[DISCS][4] = {{0.7f, 0.7f, 0.3f, 0.5f}, {1.4f, 0.5f, 0.3f, 0.5f}, {1.0f, 0.9f, 0.3f, 0.5f}};
    float found[DISCS][4];
    char title[64];
    int step, i;

    if (ignis_setup(NULL) != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */
    for_floats.forward = compile("draw<float>"), for_floats.backward = compile("draw_backward<float>");
    for_doubles.forward = compile("draw<double>"), for_doubles.backward = compile("draw_backward<double>");

    /* Is the backward function right? In double precision, finite differences agree with it to many digits. */
    ignis_tensor_desc checked = {.dtype = IGNIS_F64, .host_dtype = IGNIS_F32, .requires_grad = true};
    ignis_tensor probe = ignis_tensor_from_host(start, IGNIS_SHAPE(DISCS, 4), &checked);
    double error = ignis_gradcheck(sum_of_squares, NULL, &probe, 1, NULL);
    printf("ignis_gradcheck: the largest relative error of the gradient is %.1e\n\n", error);
    ignis_tensor_release(probe);

    /* The target is a picture; the optimisation does not see the numbers it was made of. */
    ignis_tensor target_discs = ignis_tensor_from_host(wanted, IGNIS_SHAPE(DISCS, 4), NULL);
    ignis_tensor target = draw(target_discs);
    show("The target:", target);

    ignis_tensor_desc trained = {.requires_grad = true};
    ignis_tensor discs = ignis_tensor_from_host(start, IGNIS_SHAPE(DISCS, 4), &trained);
    ignis_adamw_desc adamw = {.lr = 0.02, .drop_grad = true};
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    ignis_optimizer_add(optimizer, discs, false);

    for (step = 0; step <= STEPS && ignis_status_last() == IGNIS_OK; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor loss = distance(discs, target);
        if (step % (STEPS / 2) == 0) {
            snprintf(title, sizeof title, "\nAfter %d steps, at a distance of %.5f:", step, ignis_item(loss));
            show(title, draw(discs));
        }
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        ignis_scope_end(scope);
    }

    ignis_tensor_to_host(discs, found, IGNIS_F32, DISCS * 4);
    if (ignis_status_last() != IGNIS_OK)
        return 1;
    printf("\n               x      y      radius brightness\n");
    for (i = 0; i < DISCS; i++)
        printf("    found   %6.3f %6.3f %6.3f %6.3f\n", found[i][0], found[i][1], found[i][2], found[i][3]);
    for (i = 0; i < DISCS; i++)
        printf("    wanted  %6.3f %6.3f %6.3f %6.3f\n", wanted[i][0], wanted[i][1], wanted[i][2], wanted[i][3]);

    ignis_optimizer_free(optimizer);
    ignis_tensor_release(discs);
    ignis_tensor_release(target);
    ignis_tensor_release(target_discs);
    ignis_kernel_free(for_floats.forward), ignis_kernel_free(for_floats.backward);
    ignis_kernel_free(for_doubles.forward), ignis_kernel_free(for_doubles.backward);
    return ignis_shutdown() != IGNIS_OK;
}
