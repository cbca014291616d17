// SPDX-License-Identifier: MIT
/*  eight_bits.c - a layer whose weights and inputs are floats of 8 bits: half of the memory, and up to twice as fast

    Numbers of 8 bits have 4 significant bits and reach from 2^-9 to 448 (e4m3), so they come with scales:
    ignis_quantize_f8 divides by what makes the largest number 448, and ignis_matmul_f8 multiplies what it has summed by
    the scales again. One scale for all is the least to keep; but one row with large numbers then takes the bits of all
    others, which a scale for each row prevents. The program shows both: half of the inputs' rows are a hundred thousand
    times smaller than the others.

        cc -I. examples/eight_bits.c -o eight_bits -lm -ldl -lpthread && ./eight_bits
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RUNS = 20 };

/*  The root of the mean square of what results lack, as a part of the results themselves; the worst row counts. */
static double error_of(ignis_tensor y, ignis_tensor exact)
{
    const ignis_reduce_desc rows = {.dims = {-1}, .dim_count = 1};
    ignis_tensor squares = ignis_map_reduce(IGNIS_REDUCE_SUM, "square(y - exact)", IGNIS_INPUTS(y, exact), &rows);
    ignis_tensor all = ignis_map_reduce(IGNIS_REDUCE_SUM, "square(exact)", IGNIS_INPUTS(exact), &rows);
    return ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "sqrt(squares / all)", IGNIS_INPUTS(squares, all), NULL));
}

/*  Milliseconds of a product: of 8 bits if there are scales, else of x and w as they are. */
static double time_of(ignis_tensor x, ignis_tensor w, ignis_tensor scale_x, ignis_tensor scale_w)
{
    const ignis_tensor none = {0};
    ignis_event start = ignis_event_create(), end = ignis_event_create();
    double milliseconds = 0;
    for (int i = 0; i < 1 + RUNS; i++) { /* the first one compiles */
        ignis_scope scope = ignis_scope_begin();
        if (i == 1)
            ignis_event_record(start, NULL);
        if (scale_x.id)
            ignis_matmul_f8(x, w, scale_x, scale_w, none, IGNIS_BF16);
        else
            ignis_matmul_t(x, w);
        ignis_scope_end(scope);
    }
    ignis_event_record(end, NULL);
    ignis_event_wait(end);
    ignis_event_elapsed_ms(start, end, &milliseconds);
    ignis_event_free(start);
    ignis_event_free(end);
    return milliseconds / RUNS;
}

int main(void)
{
    const ignis_tensor_desc f32 = {.dtype = IGNIS_F32}, bf16 = {.dtype = IGNIS_BF16};
    const ignis_tensor none = {0};
    ignis_device_info device;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &device) != IGNIS_OK) {
        fprintf(stderr, "%s\n", ignis_status_message());
        return 1;
    }
    if (10 * device.compute_major + device.compute_minor < 89) {
        printf("%s is of compute capability %d.%d; products of 8 bits need 8.9.\n", device.name, device.compute_major,
               device.compute_minor);
        return ignis_shutdown() != IGNIS_OK;
    }
    const int64_t size = strstr(device.name, "Simulator") ? 128 : 8192;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor noise = ignis_tensor_randn(IGNIS_SHAPE(2, size / 2, size), &f32),
                 w = ignis_tensor_randn(IGNIS_SHAPE(size, size), &bf16);
    ignis_tensor sizes = ignis_tensor_from_host((const float[]){1.0f, 1e-5f}, IGNIS_SHAPE(2, 1, 1), NULL), scale_w,
                 scale_x, y;
    ignis_tensor x = ignis_cast(
        ignis_reshape(ignis_map("noise * sizes", IGNIS_INPUTS(noise, sizes)), IGNIS_SHAPE(size, size)), IGNIS_BF16);
    ignis_tensor exact = ignis_matmul_t(ignis_cast(x, IGNIS_F32), ignis_cast(w, IGNIS_F32));
    ignis_tensor eighths =
        ignis_quantize_f8(w, IGNIS_F8_E4M3, true, &scale_w); /* of weights once, when they are loaded */

    printf("%lld x %lld x %lld on %s\n", (long long)size, (long long)size, (long long)size, device.name);
    printf("bf16                      error %.4f, %.3f ms\n", error_of(ignis_matmul_t(x, w), exact),
           time_of(x, w, none, none));
    for (int per_row = 0; per_row < 2; per_row++) {
        ignis_tensor q = ignis_quantize_f8(x, IGNIS_F8_E4M3, per_row, &scale_x);
        y = ignis_matmul_f8(q, eighths, scale_x, scale_w, none, IGNIS_BF16);
        printf("8 bits, %-17s error %.4f, %.3f ms\n", per_row ? "a scale per row" : "one scale", error_of(y, exact),
               time_of(q, eighths, scale_x, scale_w));
    }
    ignis_scope_end(scope);
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
