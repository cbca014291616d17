// SPDX-License-Identifier: MIT
/*  bench_fft.c - Fourier transforms and einsum: milliseconds, and of transforms the bandwidth of one reading and
    one writing
    as a share of that of a copy on the device

        cc -O2 -I. bench/bench_fft.c -o bench_fft -lm -ldl -lpthread && ./bench_fft [part of a name]

    Lines are what bench/peer_fft.py reads, which adds PyTorch's times for the same work in the same order, and
    the ratio. A
    transform has 64 MiB of complex numbers, 2 MiB on the simulator.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>
#include <string.h>

#include "timing.h"

#define ROUNDS 11

enum { FFT, IFFT, RFFT, IRFFT, EINSUM };

static const struct {
    const char *name;
    int kind, ndim;
    int64_t n; /* along each dimension; of real transforms too */
    ignis_dtype dtype;
    const char *equation;
} rows[] = {{"fft_1024", FFT, 1, 1024, IGNIS_F32, NULL},
            {"fft_2048", FFT, 1, 2048, IGNIS_F32, NULL},
            {"fft_4096", FFT, 1, 4096, IGNIS_F32, NULL},
            {"fft_8192", FFT, 1, 8192, IGNIS_F32, NULL},
            {"fft_16384", FFT, 1, 16384, IGNIS_F32, NULL},
            {"fft_32768", FFT, 1, 32768, IGNIS_F32, NULL},
            {"fft_65536", FFT, 1, 65536, IGNIS_F32, NULL},
            {"fft_262144", FFT, 1, 262144, IGNIS_F32, NULL},
            {"fft_1048576", FFT, 1, 1048576, IGNIS_F32, NULL},
            {"fft_64", FFT, 1, 64, IGNIS_F32, NULL},
            {"fft_256", FFT, 1, 256, IGNIS_F32, NULL},
            {"fft_1000", FFT, 1, 1000, IGNIS_F32, NULL},
            {"fft_1031", FFT, 1, 1031, IGNIS_F32, NULL},
            {"ifft_1024", IFFT, 1, 1024, IGNIS_F32, NULL},
            {"fft_1024_f64", FFT, 1, 1024, IGNIS_F64, NULL},
            {"fft_65536_f64", FFT, 1, 65536, IGNIS_F64, NULL},
            {"rfft_1024", RFFT, 1, 1024, IGNIS_F32, NULL},
            {"rfft_65536", RFFT, 1, 65536, IGNIS_F32, NULL},
            {"irfft_1024", IRFFT, 1, 1024, IGNIS_F32, NULL},
            {"irfft_65536", IRFFT, 1, 65536, IGNIS_F32, NULL},
            {"fft2_1024", FFT, 2, 1024, IGNIS_F32, NULL},
            {"rfft2_1024", RFFT, 2, 1024, IGNIS_F32, NULL},
            {"fft3_128", FFT, 3, 128, IGNIS_F32, NULL},
            {"einsum_scores", EINSUM, 0, 0, IGNIS_BF16, "bqhd,bkhd->bhqk"},
            {"einsum_values", EINSUM, 0, 0, IGNIS_BF16, "bhqk,bkhd->bqhd"}};

static ignis_tensor run(int row, const ignis_tensor *x)
{
    ignis_fft_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ndim = rows[row].ndim;
    switch (rows[row].kind) {
    case FFT: return ignis_fft(x[0], &desc);
    case IFFT: return ignis_ifft(x[0], &desc);
    case RFFT: return ignis_rfft(x[0], &desc);
    case IRFFT: return ignis_irfft(x[0], &desc);
    default: return ignis_einsum(rows[row].equation, x, 2);
    }
}

typedef struct transform {
    int row; /* -1: a copy */
    const ignis_tensor *x;
} transform;

static void run_transform(const void *work)
{
    const transform *c = (const transform *)work;
    (void)(c->row < 0 ? ignis_cast(c->x[0], IGNIS_F32) : run(c->row, c->x));
}

/*  The inputs of a row: numbers is that of complex numbers. */
static void inputs_of(int row, int64_t numbers, bool simulated, ignis_tensor *x)
{
    const int64_t n = rows[row].n, heads = simulated ? 2 : 16, length = simulated ? 16 : 2048,
                  batch = simulated ? 1 : 4;
    ignis_tensor_desc desc;
    ignis_shape shape = IGNIS_SHAPE(1);
    int64_t points = 1;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.dtype = rows[row].dtype;
    if (rows[row].kind == EINSUM) {
        x[1] = ignis_tensor_randn(IGNIS_SHAPE(batch, length, heads, 64), &desc);
        x[0] = strncmp(rows[row].equation, "bhqk", 4) == 0
                   ? ignis_tensor_randn(IGNIS_SHAPE(batch, heads, length, length), &desc)
                   : ignis_tensor_randn(IGNIS_SHAPE(batch, length, heads, 64), &desc);
        return;
    }
    for (i = 0; i < rows[row].ndim; i++)
        points *= n;
    shape.dim[0] = numbers * (rows[row].kind == RFFT || rows[row].kind == IRFFT ? 2 : 1) / points;
    shape.dim[0] = shape.dim[0] < 1 ? 1 : shape.dim[0];
    for (i = 0; i < rows[row].ndim; i++)
        shape.dim[shape.ndim++] = n;
    if (rows[row].kind == IRFFT)
        shape.dim[shape.ndim - 1] = n / 2 + 1;
    if (rows[row].kind != RFFT)
        shape.dim[shape.ndim++] = 2;
    x[0] = ignis_tensor_randn(shape, &desc);
}

int main(int argc, char **argv)
{
    ignis_device_info info;
    ignis_tensor x[2];
    transform c = {-1, NULL};
    repetition how = {ROUNDS, 50, 1e9};
    ignis_scope scope;
    double copy, seconds;
    bool simulated;
    int64_t numbers;
    size_t i;
    if (ignis_setup(NULL) != IGNIS_OK || ignis_device_query(0, &info) != IGNIS_OK)
        return 1;
    simulated = strstr(info.name, "imulat") != NULL;
    numbers = (int64_t)(simulated ? 2 : 64) << 17;
    scope = ignis_scope_begin();
    x[0] = ignis_tensor_randn(IGNIS_SHAPE(2 * numbers), NULL);
    c.x = x;
    how.most = simulated ? 1 : 50;
    copy = (double)numbers * 16 / median_seconds(run_transform, &c, how);
    ignis_scope_end(scope);
    printf("%s, %d MiB; a copy moves %.0f GB/s\n", info.name, simulated ? 2 : 64, 1e-9 * copy);
    for (i = 0; i < sizeof rows / sizeof rows[0] && ignis_status_last() == IGNIS_OK; i++) {
        if (argc > 1 && !strstr(rows[i].name, argv[1]))
            continue;
        scope = ignis_scope_begin();
        inputs_of((int)i, rows[i].dtype == IGNIS_F64 ? numbers / 2 : numbers, simulated, x);
        c.row = (int)i;
        seconds = median_seconds(run_transform, &c, how);
        printf("%-16s %10.4f ms", rows[i].name, 1e3 * seconds);
        if (rows[i].kind != EINSUM) /* real signals have as many bytes as their spectra */
            printf(" %6.2f of a copy", (double)numbers * 16 / seconds / copy);
        printf("\n");
        fflush(stdout);
        ignis_scope_end(scope);
    }
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    return ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK;
}
