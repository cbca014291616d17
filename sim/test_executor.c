// SPDX-License-Identifier: MIT
/*  test_executor.c - checks of the simulator's compiler and executor, below the driver

        test_executor               all checks, in every order of threads and with every sanitizer
        test_executor all           all checks, once
        test_executor NAME          the checks of that name

    Kernels are compiled by libnvrtc.so and run through sim_module_load and sim_execute. The programs
    test_executor_address and test_executor_thread are the same, built with a sanitizer; their planted faults must be
    caught and named.
*/
#include "test_build.h"

static int is_strict(void) { return getenv("IGNIS_SIM_STRICT") != NULL; }

/* -------------------------------------------------------------------------------------------------- kernels */

static void test_saxpy(void)
{
    build b = compile(
        "saxpy.cu",
        "extern \"C\" __global__ void saxpy(float a, const float *x, float *y, int n)\n"
        "{\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] += a * x[i];\n"
        "}\n"
        "extern \"C\" __global__ __launch_bounds__(256, 2) void saxpy4(float a, const float4 *x, float4 *y, int n)\n"
        "{\n"
        "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {\n"
        "        float4 u = x[i], v = y[i];\n"
        "        y[i] = make_float4(v.x + a * u.x, v.y + a * u.y, v.z + a * u.z, v.w + a * u.w);\n"
        "    }\n"
        "}\n"
        "extern \"C\" __global__ void cube(int *out)\n"
        "{\n"
        "    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        "    int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
        "    out[b * blockDim.x * blockDim.y * blockDim.z + t] += b * 1000 + t;\n"
        "}\n");
    enum { N = 1000 };
    float *x = aligned_alloc(16, 4096), *y = aligned_alloc(16, 4096), a = 2;
    int n = N, quarter = N / 4, wrong = 0, out[720] = {0}, *pout = out;
    for (int i = 0; i < N; i++)
        x[i] = (float)i, y[i] = 1;
    CHECK(run(&b, "saxpy", 8, 128, 0, (void *[]){&a, &x, &y, &n}) == 0);
    CHECK(run(&b, "saxpy4", 2, 64, 0, (void *[]){&a, &x, &y, &quarter}) == 0);
    for (int i = 0; i < N; i++)
        wrong += y[i] != 1 + 4 * (float)i;
    CHECK(wrong == 0);
    sim_launch l = {{2, 3, 5}, {2, 3, 4}, 0, 32, 0};
    CHECK(run_grid(&b, "cube", l, (void *[]){&pout}) == 0);
    for (int i = 0; i < 720; i++)
        wrong += out[i] != i / 24 * 1000 + i % 24;
    CHECK(wrong == 0);
    const sim_kernel *k = sim_module_kernel(b.module, "saxpy4");
    CHECK(k && k->param_count == 4 && k->param_sizes[0] == 4 && k->param_offsets[1] == 8 && k->max_threads == 256);
    CHECK(run(&b, "saxpy4", 1, 512, 0, (void *[]){&a, &x, &y, &quarter}) == SIM_INVALID_VALUE);
    CHECK(sim_module_kernel(b.module, "nothing") == NULL);
    free(x);
    free(y);
    discard(&b);
}

static void test_reduce(void)
{
    build b =
        compile("reduce.cu",
                "template <class T> __device__ T warp_sum(T v)\n"
                "{\n"
                "    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);\n"
                "    return v;\n"
                "}\n"
                "extern \"C\" __global__ void sum(const double *x, double *out, int n)\n"
                "{\n"
                "    __shared__ double part[32];\n"
                "    double v = 0;\n"
                "    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[blockIdx.x * n + i];\n"
                "    v = warp_sum(v);\n"
                "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;\n"
                "    __syncthreads();\n"
                "    if (threadIdx.x < 32) {\n"
                "        v = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0);\n"
                "        if (threadIdx.x == 0) out[blockIdx.x] = v;\n"
                "    }\n"
                "}\n"
                "extern \"C\" __global__ void fresh(float *out)\n"
                "{\n"
                "    __shared__ float a[64], c;\n"
                "    out[blockIdx.x * 2] = a[threadIdx.x];\n"
                "    out[blockIdx.x * 2 + 1] = c;\n"
                "    a[threadIdx.x] = c = 1;\n"
                "}\n"
                "extern \"C\" __global__ void counts(int *out)\n"
                "{\n"
                "    int n = __syncthreads_count(threadIdx.x % 3 == 0), all = __syncthreads_and(threadIdx.x < 64);\n"
                "    int any = __syncthreads_or(threadIdx.x == 70);\n"
                "    if (threadIdx.x == 95) { out[0] = n; out[1] = all; out[2] = any; }\n"
                "}\n");
    double x[3 * 1000], *px = x, out[3], *pout = out;
    int n = 1000, counts[3], *pcounts = counts;
    float fresh[8], *pfresh = fresh;
    for (int i = 0; i < 3000; i++)
        x[i] = i;
    CHECK(run(&b, "sum", 3, 256, 0, (void *[]){&px, &pout, &n}) == 0);
    CHECK(out[0] == 499500 && out[1] == 1499500 && out[2] == 2499500);
    CHECK(run(&b, "fresh", 4, 1, 0, (void *[]){&pfresh}) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(fresh[i] != fresh[i]);
    CHECK(run(&b, "counts", 1, 96, 0, (void *[]){&pcounts}) == 0);
    CHECK(counts[0] == 32 && counts[1] == 0 && counts[2] == 1);
    discard(&b);
}

static void test_transpose(void)
{
    build b = compile(
        "transpose.cu",
        "extern \"C\" __global__ void transpose(const float *in, float *out, int rows, int cols)\n"
        "{\n"
        "    extern __shared__ __align__(16) float tile[];\n"
        "    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;\n"
        "    for (int j = 0; j < 32; j += 8)\n"
        "        if (x < cols && y + j < rows) tile[(threadIdx.y + j) * 33 + threadIdx.x] = in[(y + j) * cols + x];\n"
        "    __syncthreads();\n"
        "    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;\n"
        "    for (int j = 0; j < 32; j += 8)\n"
        "        if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x * 33 + threadIdx.y + j];\n"
        "}\n"
        "extern \"C\" __global__ void untouched(float *out)\n"
        "{\n"
        "    extern __shared__ float memory[];\n"
        "    out[threadIdx.x] = memory[threadIdx.x];\n"
        "}\n");
    enum { ROWS = 50, COLS = 70 };
    static float in[ROWS * COLS], out[ROWS * COLS];
    float *pin = in, *pout = out;
    int rows = ROWS, cols = COLS, wrong = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        in[i] = (float)i;
    sim_launch l = {{3, 2, 1}, {32, 8, 1}, 32 * 33 * 4, 32, 0};
    CHECK(run_grid(&b, "transpose", l, (void *[]){&pin, &pout, &rows, &cols}) == 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            wrong += out[c * ROWS + r] != in[r * COLS + c];
    CHECK(wrong == 0);
    CHECK(run(&b, "untouched", 1, 32, 128, (void *[]){&pout}) == 0);
    CHECK(out[0] != out[0] && out[31] != out[31]);
    discard(&b);
}

static void test_templates(void)
{
    static const char text[] =
        "struct pair { int a; double b; };\n"
        "namespace shop {\n"
        "template <class T, int N> __global__ void fill(T *p, T v) { if (threadIdx.x < N) p[threadIdx.x] = v; }\n"
        "__global__ void plain(int *p) { p[0] = 7; }\n"
        "}\n"
        "template <typename T> __global__ void twice(T *p) { p[threadIdx.x] *= 2; __syncthreads(); }\n"
        "template __global__ void twice<double>(double *p);\n"
        "__global__ void by_value(const __grid_constant__ pair s, double *p) { p[0] = s.a + s.b; }\n"
        "__constant__ float table[4];\n"
        "extern \"C\" __constant__ int limit;\n"
        "__device__ int counter = 5;\n"
        "extern \"C\" __global__ void look(float *p, int *q)\n"
        "{\n"
        "    auto square = [](float v) { return v * v; };\n"
        "    p[threadIdx.x] = square(table[threadIdx.x]);\n"
        "    if (threadIdx.x == 0) q[0] = limit + atomicAdd(&counter, 1);\n"
        "}\n";
    source s = {"templates.cu", text, NULL, NULL, "shop::fill<float, 4>"};
    build b = compile_with(&s, 3, usual_options);
    CHECK(b.result == 0);
    const char *lowered = NULL;
    CHECK(nvrtcGetLoweredName(b.program, s.expression, &lowered) == 0);
    float p[4] = {0}, *pp = p, v = 3;
    CHECK(run(&b, lowered, 1, 32, 0, (void *[]){&pp, &v}) == 0 && p[0] == 3 && p[3] == 3);
    double d[2] = {1, 2}, *pd = d;
    CHECK(run(&b, "_Z5twiceIdEvPT_", 1, 2, 0, (void *[]){&pd}) == 0 && d[0] == 2 && d[1] == 4);
    int i[1] = {0}, *pi = i;
    CHECK(run(&b, "_ZN4shop5plainEPi", 1, 1, 0, (void *[]){&pi}) == 0 && i[0] == 7);
    struct {
        int a;
        double b;
    } value = {3, 0.5};
    CHECK(run(&b, "_Z8by_value4pairPd", 1, 1, 0, (void *[]){&value, &pd}) == 0 && d[0] == 3.5);
    void *address;
    size_t bytes;
    CHECK(sim_module_global(b.module, "table", &address, &bytes) == 0 && bytes == 16);
    memcpy(address, (float[]){1, 2, 3, 4}, 16);
    CHECK(sim_module_global(b.module, "limit", &address, &bytes) == 0 && bytes == 4);
    *(int *)address = 100;
    CHECK(run(&b, "look", 1, 4, 0, (void *[]){&pp, &pi}) == 0 && p[3] == 16 && i[0] == 105);
    CHECK(sim_module_global(b.module, "nothing", &address, &bytes) == SIM_NOT_FOUND);
    build other = compile_with(&s, 3, usual_options); /* a second copy has its own variables */
    CHECK(sim_module_global(other.module, "limit", &address, &bytes) == 0 && *(int *)address == 0);
    discard(&other);
    discard(&b);
}

static void test_atomics(void)
{
    build b = compile(
        "atomics.cu",
        "extern \"C\" __global__ void histogram(const unsigned char *data, int n, unsigned *bins)\n"
        "{\n"
        "    __shared__ unsigned local[16];\n"
        "    if (threadIdx.x < 16) local[threadIdx.x] = 0;\n"
        "    __syncthreads();\n"
        "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
        "        atomicAdd(&local[data[i] & 15], 1);\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);\n"
        "}\n"
        "extern \"C\" __global__ void all(int *i, float *f, double *d, unsigned long long *u, float4 *v)\n"
        "{\n"
        "    int t = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    atomicMax(&i[0], t); atomicMin(&i[1], -t); atomicOr(&i[2], 1 << t % 8); atomicAnd(&i[3], ~(1 << t % 8));\n"
        "    atomicXor(&i[4], t); atomicSub(&i[5], 1); atomicAdd(f, 1.0f); atomicAdd(d, 0.5); atomicMax(u, 1ull << "
        "40);\n"
        "    atomicAdd(v, make_float4(1, 2, 3, 4));\n"
        "    while (atomicCAS(&i[6], 0, 1) != 0) ;\n"
        "    i[7] = i[7] + 1; __threadfence();\n"
        "    atomicExch(&i[6], 0);\n"
        "}\n");
    enum { N = 5000 };
    static unsigned char data[N];
    unsigned char *pdata = data;
    unsigned bins[16] = {0}, expected[16] = {0}, *pbins = bins;
    int n = N;
    for (int i = 0; i < N; i++)
        expected[(data[i] = (unsigned char)(i * i >> 3)) & 15]++;
    CHECK(run(&b, "histogram", 4, 64, 0, (void *[]){&pdata, &n, &pbins}) == 0);
    CHECK(memcmp(bins, expected, sizeof bins) == 0);
    int i[8] = {0, 0, 0, -1, 0, 0, 0, 0}, *pi = i;
    float f = 0, *pf = &f, *v = aligned_alloc(16, 16);
    double d = 0, *pd = &d;
    unsigned long long u = 0, *pu = &u;
    memset(v, 0, 16);
    CHECK(run(&b, "all", 4, 64, 0, (void *[]){&pi, &pf, &pd, &pu, &v}) == 0);
    CHECK(i[0] == 255 && i[1] == -255 && i[2] == 255 && i[3] == ~255 && i[4] == 0 && i[5] == -256 && i[7] == 256);
    CHECK(f == 256 && d == 128 && u == 1ull << 40 && v[0] == 256 && v[3] == 1024);
    free(v);
    discard(&b);
}

static void test_warps(void)
{
    build b = compile(
        "warps.cu",
        "extern \"C\" __global__ void compact(const int *in, int *out, int *count)\n"
        "{\n"
        "    int v = in[threadIdx.x], lane = threadIdx.x % 32;\n"
        "    unsigned keep = __ballot_sync(~0u, v > 0);\n"
        "    int base = 0;\n"
        "    if (lane == 0) base = atomicAdd(count, __popc(keep));\n"
        "    base = __shfl_sync(~0u, base, 0);\n"
        "    if (v > 0) out[base + __popc(keep & ((1u << lane) - 1))] = v;\n"
        "}\n"
        "extern \"C\" __global__ void votes(unsigned *out)\n"
        "{\n"
        "    unsigned lane = threadIdx.x % 32;\n"
        "    unsigned r[8];\n"
        "    r[0] = __any_sync(~0u, lane == 9); r[1] = __all_sync(~0u, lane < 31);\n"
        "    r[2] = __match_any_sync(~0u, lane / 8); r[3] = __reduce_add_sync(~0u, lane);\n"
        "    r[4] = __reduce_max_sync(~0u, (int)lane - 40); r[5] = __shfl_up_sync(~0u, lane, 3, 16);\n"
        "    r[6] = __shfl_xor_sync(~0u, lane, 5); r[7] = 0;\n"
        "    if (lane < 12) r[7] = __shfl_xor_sync(0xfffu, lane, 1); else r[7] = __ballot_sync(~0xfffu, lane & 1);\n"
        "    for (int i = 0; i < 8; i++) out[lane * 8 + i] = r[i];\n"
        "}\n");
    int in[64], out[64], count = 0, *pin = in, *pout = out, *pcount = &count, sum = 0, expected = 0, positive = 0;
    for (int i = 0; i < 64; i++) {
        in[i] = i * 37 % 11 - 5;
        positive += in[i] > 0;
        expected += in[i] > 0 ? in[i] : 0;
    }
    CHECK(run(&b, "compact", 1, 64, 0, (void *[]){&pin, &pout, &pcount}) == 0);
    for (int i = 0; i < count; i++)
        sum += out[i];
    CHECK(count == positive && sum == expected);
    unsigned r[32][8], *pr = &r[0][0];
    CHECK(run(&b, "votes", 1, 32, 0, (void *[]){&pr}) == 0);
    CHECK(r[3][0] == 1 && r[3][1] == 0 && r[9][2] == 0xff00 && r[5][3] == 496 && (int)r[5][4] == -9);
    CHECK(r[17][5] == 17 && r[19][5] == 16 && r[6][6] == 3 && r[4][7] == 5 && r[20][7] == 0xaaaaa000);
    discard(&b);
}

static void test_conversions(void)
{
    build b = compile(
        "convert.cu",
        "__device__ unsigned pack(float a, float b)\n"
        "{\n"
        "    unsigned d; asm volatile(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(d) : \"f\"(b), \"f\"(a)); return d;\n"
        "}\n"
        "__device__ unsigned short half(float a)\n"
        "{\n"
        "    unsigned short d; asm(\"cvt.rn.f16.f32 %0, %1;\\n\" : \"=h\"(d) : \"f\"(a)); return d;\n"
        "}\n"
        "extern \"C\" __global__ void convert(unsigned *out, const uint4 *in)\n"
        "{\n"
        "    float f; unsigned short h = half(1.5f); unsigned lane; uint4 v;\n"
        "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
        "    asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(lane));\n"
        "    asm volatile(\"ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4+16];\"\n"
        "                 : \"=r\"(v.x), \"=r\"(v.y), \"=r\"(v.z), \"=r\"(v.w) : \"l\"(in));\n"
        "    out[0] = pack(1.0f, -2.0f); out[1] = half(65519.0f); out[2] = half(65520.0f); out[3] = "
        "half(5.9604645e-8f);\n"
        "    out[4] = __float_as_uint(f); out[5] = lane; out[6] = v.x; out[7] = v.w;\n"
        "    out[8] = __float2int_rn(2.5f); out[9] = __float2int_rz(-3e9f); out[10] = __float2uint_rn(-1.0f);\n"
        "    out[11] = __float2int_rn(__int_as_float(0x7fc00000)); out[12] = __dp4a(0x01020304, 0x01010101, 5);\n"
        "    out[13] = __byte_perm(0x33221100, 0x77665544, 0x5140); out[14] = __brev(1); out[15] = __clz(1);\n"
        "    asm volatile(\"st.global.cs.v2.b32 [%0], {%1, %2};\" :: \"l\"(out + 16), \"r\"(11), \"r\"(12) : "
        "\"memory\");\n"
        "    float e; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(e) : \"f\"(3.0f)); out[18] = (unsigned)e;\n"
        "    asm(\"fma.rn.f32 %0, %1, %2, %0;\" : \"+f\"(e) : \"f\"(2.0f), \"f\"(4.0f)); out[19] = (unsigned)e;\n"
        "    asm(\"max.u16x2 %0, %1, %2;\" : \"=r\"(out[20]) : \"r\"(0xfffe0001), \"r\"(0x7fff8000));\n"
        "}\n");
    unsigned *out = aligned_alloc(16, 128), *in = aligned_alloc(16, 32);
    for (unsigned i = 0; i < 8; i++)
        in[i] = 100 + i;
    CHECK(run(&b, "convert", 1, 1, 0, (void *[]){&out, &in}) == 0);
    static const unsigned expected[21] = {0xc0003f80, 0x7bff, 0x7c00,     1,  0x3fc00000, 0,  104,
                                          107,        2,      0x80000000, 0,  0,          15, 0x55114400,
                                          0x80000000, 31,     11,         12, 8,          16, 0xfffe8000};
    for (int i = 0; i < 21; i++) {
        CHECK(out[i] == expected[i]);
        if (out[i] != expected[i])
            printf("    out[%d] is %08x, not %08x\n", i, out[i], expected[i]);
    }
    free(out);
    free(in);
    discard(&b);
}

static const char gemm_text[] =
    "typedef unsigned short bf16;\n"
    "__device__ void copy16(void *to, const void *from)\n"
    "{\n"
    "    unsigned s = (unsigned)__cvta_generic_to_shared(to);\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"(s), \"l\"(from));\n"
    "}\n"
    "__device__ void commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "template <int N> __device__ void wait() { asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(N) : \"memory\"); }\n"
    "__device__ void load4(unsigned (&r)[4], const void *p)\n"
    "{\n"
    "    unsigned s = (unsigned)__cvta_generic_to_shared(p);\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(s));\n"
    "}\n"
    "__device__ void load2_transposed(unsigned (&r)[2], const void *p)\n"
    "{\n"
    "    unsigned s = (unsigned)__cvta_generic_to_shared(p);\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\"\n"
    "                 : \"=r\"(r[0]), \"=r\"(r[1]) : \"r\"(s));\n"
    "}\n"
    "__device__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])\n"
    "{\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 \"\n"
    "                 \"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
    "                 : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
    "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(64) gemm(const bf16 *a, const bf16 *b, float *c, int n, int k)\n"
    "{\n"
    "    __shared__ __align__(16) bf16 as[2][32][24], bs[2][16][24];\n"
    "    int t = threadIdx.x, warp = t / 32, lane = t % 32, row0 = blockIdx.y * 32, col0 = blockIdx.x * 16;\n"
    "    float d[2][4] = {};\n"
    "    auto fetch = [&](int stage, int k0) {\n"
    "        copy16(&as[stage][t / 2][t % 2 * 8], a + (row0 + t / 2) * k + k0 + t % 2 * 8);\n"
    "        if (t < 32) copy16(&bs[stage][t / 2][t % 2 * 8], b + (k0 + t / 2) * n + col0 + t % 2 * 8);\n"
    "        commit();\n"
    "    };\n"
    "    fetch(0, 0);\n"
    "    for (int k0 = 0, stage = 0; k0 < k; k0 += 16, stage ^= 1) {\n"
    "        if (k0 + 16 < k) { fetch(stage ^ 1, k0 + 16); wait<1>(); } else wait<0>();\n"
    "        __syncthreads();\n"
    "        unsigned fa[4], fb[2];\n"
    "        load4(fa, &as[stage][warp * 16 + lane % 16][lane / 16 * 8]);\n"
    "        for (int j = 0; j < 2; j++) {\n"
    "            load2_transposed(fb, &bs[stage][lane % 16][j * 8]);\n"
    "            multiply(d[j], fa, fb);\n"
    "        }\n"
    "        __syncthreads(); /* LAST */\n"
    "    }\n"
    "    for (int j = 0; j < 2; j++)\n"
    "        for (int e = 0; e < 4; e++)\n"
    "            c[(row0 + warp * 16 + lane / 4 + e / 2 * 8) * n + col0 + j * 8 + lane % 4 * 2 + e % 2] = d[j][e];\n"
    "}\n";

static unsigned short to_bf16(float x)
{
    unsigned u;
    memcpy(&u, &x, 4);
    return (unsigned short)(u >> 16);
}

static int gemm_wrong(build *b)
{
    enum { M = 64, N = 32, K = 80 };
    unsigned short *a = aligned_alloc(16, M * K * 2), *bb = aligned_alloc(16, K * N * 2);
    static float fa[M * K], fb[K * N], c[M * N];
    float *pc = c;
    int n = N, k = K, wrong = 0;
    for (int i = 0; i < M * K; i++)
        a[i] = to_bf16(fa[i] = (float)(i * 7 % 13 - 6));
    for (int i = 0; i < K * N; i++)
        bb[i] = to_bf16(fb[i] = (float)(i * 5 % 17 - 8));
    sim_launch l = {{N / 16, M / 32, 1}, {64, 1, 1}, 0, 32, 0};
    CHECK(run_grid(b, "gemm", l, (void *[]){&a, &bb, &pc, &n, &k}) == 0);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int e = 0; e < K; e++)
                sum += fa[i * K + e] * fb[e * N + j];
            wrong += c[i * N + j] != sum;
        }
    free(a);
    free(bb);
    return wrong;
}

static void test_gemm(void)
{
    build b = compile("gemm.cu", gemm_text);
    CHECK(gemm_wrong(&b) == 0);
    discard(&b);
    char *without_wait = strdup(gemm_text), *wait = strstr(without_wait, "wait<1>();");
    memset(wait, ' ', strlen("wait<1>();"));
    b = compile("gemm.cu", without_wait);
    CHECK(gemm_wrong(&b) > 0);
    discard(&b);
    free(without_wait);
}

/* ---------------------------------------------------------------------------------------------- compile errors */

static void expect_error(const char *text, int code, const char *part)
{
    source s = {"broken.cu", text, NULL, NULL, NULL};
    build b = compile_with(&s, 3, usual_options);
    CHECK(b.result == code);
    CHECK_HAS(b.log, part);
    discard(&b);
}

static void test_errors(void)
{
    expect_error("extern \"C\" __global__ void k(float *x)\n{\n    x[0] = missing;\n}\n", 6, "broken.cu(3): error:");
    expect_error("extern \"C\" __global__ void k(float *x)\n{\n    x[0] = missing;\n}\n", 6,
                 "1 error detected in the compilation of \"broken.cu\".");
    expect_error("#include <stdint.h>\n", 6, "broken.cu(1): error: could not open source file \"stdint.h\"");
    expect_error("__global__ void k(int *x)\n{\n\n    asm(\"frob.rn.s32 %0, 1;\" : \"=r\"(x[0]));\n}\n", 6,
                 "broken.cu(4): error: the simulator knows no PTX instruction \"frob.rn.s32\"");
    expect_error(
        "__global__ void k(int *x)\n{\n    asm(\"add.s32 %0, %0, 1; add.s32 %0, %0, 1;\" : \"+r\"(x[0]));\n}\n", 6,
        "broken.cu(3): error: the simulator takes one PTX instruction per asm");
    if (in_lane("address") || in_lane("thread"))
        skipped++; /* the sanitizer's own names are also unresolved until the module is loaded */
    else
        expect_error("__device__ int f(int);\nextern \"C\" __global__ void k(int *x) { x[0] = f(1); }\n", 6,
                     "unresolved extern function 'f(int)'");
    expect_error("extern \"C\" __global__ void k(flaot *x) { x[0] = 1; }\n", 6,
                 "1 error detected in the compilation of \"broken.cu\".");
    expect_error("__global__ int k(int *x) { return x[0]; }\n", 6,
                 "error: a \"__global__\" function must have a void return type: k");
    source d = {"expr.cu", "__device__ void k(int *x) { x[0] = 1; }\n", NULL, NULL, "k"};
    build none = compile_with(&d, 3, usual_options);
    CHECK(none.result == 6);
    CHECK_HAS(none.log, "__nv_name_map(1): error: \"k\" is no __global__ function");
    discard(&none);
    source m = {"mark.cu",
                "\xEF\xBB\xBF"
                "__global__ void k(int *x) { x[0] = 1; }\n",
                NULL, NULL, "k"};
    build mark = compile_with(&m, 3, usual_options);
    CHECK(mark.result == 0);
    discard(&mark);
    source s = {"expr.cu", "template <class T> __global__ void k(T *x) { x[0] = 1; }\n", NULL, NULL, "nosuch<int>"};
    build b = compile_with(&s, 3, usual_options);
    CHECK(b.result == 6);
    CHECK_HAS(b.log, "nosuch");
    discard(&b);
    source t = {"options.cu", "extern \"C\" __global__ void k(int *x) { x[0] = VALUE + __CUDA_ARCH__; }\n", NULL, NULL,
                NULL};
    b = compile_with(&t, 2, (const char *const[]){"-arch=sm_80", "--wrong-option=1"});
    CHECK(b.result == 5);
    CHECK_HAS(b.log, "--wrong-option=1");
    discard(&b);
    b = compile_with(&t, 6,
                     (const char *const[]){"--gpu-architecture=compute_90", "-D", "VALUE=5", "--use_fast_math",
                                           "-Xptxas=-v", "-lineinfo"});
    int x = 0, *px = &x;
    CHECK(b.result == 0 && run(&b, "k", 1, 1, 0, (void *[]){&px}) == 0 && x == 905);
    discard(&b);
}

static void test_headers(void)
{
    static const char text[] = "#include \"common.cuh\"\n#include <parts/more.cuh>\n"
                               "extern \"C\" __global__ void k(int *x) { x[0] = common(); }\n";
    static const char *const names[] = {"common.cuh", "parts/more.cuh"};
    const char *texts[] = {"__device__ inline int common() { return 42; }\n", "\n\nstatic int more = 1;\n"};
    for (int broken = 0; broken < 2; broken++) {
        build b = {0};
        size_t size;
        if (broken)
            texts[1] = "\n\nint more = nothing;\n";
        nvrtcCreateProgram(&b.program, text, "folder/with_header.cu", 2, texts, names);
        b.result = nvrtcCompileProgram(b.program, 3, usual_options);
        CHECK(b.result == (broken ? 6 : 0));
        nvrtcGetProgramLogSize(b.program, &size);
        b.log = malloc(size);
        nvrtcGetProgramLog(b.program, b.log);
        CHECK_HAS(b.log, broken ? "parts/more.cuh(3): error:" : "");
        discard(&b);
    }
}

/* Checks a header of a folder: -I finds it in all spellings, and it is found beside the source, but never
   before one in memory. */
static void test_include_path(void)
{
    static const char text[] = "#include \"found.cuh\"\nextern \"C\" __global__ void k(int *x) { x[0] = FOUND; }\n";
    char parts[] = "/tmp/ignis_sim_include_XXXXXX", path[64], joined[64], beside[64];
    CHECK(mkdtemp(parts) != NULL);
    snprintf(path, sizeof path, "%s/found.cuh", parts);
    snprintf(joined, sizeof joined, "-I%s", parts);
    snprintf(beside, sizeof beside, "%s/source.cu", parts);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("#define FOUND 1\n", file) >= 0 && fclose(file) == 0);
    const struct {
        const char *name, *options[2], *header;
        int value; /* 0: not found */
    } cases[] = {
        {"source.cu", {"-arch=sm_80", "-lineinfo"}, NULL, 0},
        {"source.cu", {joined, "-lineinfo"}, NULL, 1},
        {"source.cu", {"-I", parts}, NULL, 1},
        {"source.cu", {"--include-path", parts}, NULL, 1},
        {beside, {"-arch=sm_80", "-lineinfo"}, NULL, 1},
        {beside, {"-I", parts}, "#define FOUND 2\n", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        source s = {cases[i].name, text, cases[i].header ? "found.cuh" : NULL, cases[i].header, NULL};
        build b = compile_with(&s, 2, cases[i].options);
        int x = 0, *px = &x;
        CHECK(b.result == (cases[i].value ? 0 : 6));
        CHECK(!cases[i].value || (run(&b, "k", 1, 1, 0, (void *[]){&px}) == 0 && x == cases[i].value));
        discard(&b);
    }
    unlink(path);
    rmdir(parts);
}

/* ---------------------------------------------------------------------------------------------------- faults */

static const char faults_text[] =
    "extern \"C\" __global__ void wild(float *x) { if (threadIdx.x == 5 && blockIdx.x == 2) x[1ull << 40] = 1; }\n"
    "extern \"C\" __global__ void wild_waiting(float *x)\n"
    "{\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x == 5) *(float *)64 = 1;\n"
    "    __syncthreads();\n"
    "}\n"
    "extern \"C\" __global__ void trap(float *x) { if (threadIdx.x == 3) __trap(); }\n"
    "extern \"C\" __global__ void check(float *x, int n)\n"
    "{\n"
    "    assert((int)threadIdx.x < n);\n"
    "}\n"
    "extern \"C\" __global__ void apart(float *x)\n"
    "{\n"
    "    if (threadIdx.x < 32)\n"
    "        __syncthreads();\n"
    "    else\n"
    "        __syncthreads();\n"
    "}\n"
    "extern \"C\" __global__ void leave(float *x)\n"
    "{\n"
    "    if (threadIdx.x >= 40) return;\n"
    "    __syncthreads();\n"
    "    x[threadIdx.x] = 1;\n"
    "}\n"
    "extern \"C\" __global__ void stuck(float *x)\n"
    "{\n"
    "    if (threadIdx.x < 16) __syncwarp(0xffffffffu);\n"
    "    __syncthreads();\n"
    "}\n"
    "extern \"C\" __global__ void absent(int *x) { if (threadIdx.x < 8) x[threadIdx.x] = __shfl_sync(0xffu, 1, 20); }\n"
    "extern \"C\" __global__ void divide(int *x) { x[0] = 5 / x[1]; }\n"
    "extern \"C\" __global__ void deep(int *x) { volatile int big[40000]; big[x[1]] = 1; x[0] = big[x[1]]; }\n"
    "extern \"C\" __global__ void fine(float *x) { x[threadIdx.x] = 2; }\n"
    "extern \"C\" __global__ void uneven(int *x)\n"
    "{\n"
    "    uint4 v;\n"
    "    asm(\"ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\" : \"=r\"(v.x), \"=r\"(v.y), \"=r\"(v.z), \"=r\"(v.w) : "
    "\"l\"(x + 1));\n"
    "    x[0] = v.x;\n"
    "}\n"
    "extern \"C\" __global__ void beyond(float *x, int n)\n"
    "{\n"
    "    extern __shared__ float s[];\n"
    "    s[threadIdx.x] = x[0];\n"
    "}\n";

static void test_faults(void)
{
    build b = compile("faults.cu", faults_text);
    float *x = aligned_alloc(16, 4096);
    int n = 20, sanitized = in_lane("address") || in_lane("thread");
    void *args[] = {&x, &n};
    memset(x, 0, 4096);
    CHECK(run(&b, "trap", 2, 32, 0, args) == SIM_LAUNCH_FAILED);
    CHECK_HAS(failure, "kernel trap, block (");
    CHECK_HAS(failure, "__trap() at faults.cu:8");
    CHECK(run(&b, "check", 1, 32, 0, args) == SIM_ASSERT);
    CHECK_HAS(failure, "(int)threadIdx.x < n at faults.cu:11");
    CHECK(run(&b, "apart", 1, 64, 0, args) == SIM_LAUNCH_FAILED);
    CHECK_HAS(failure, "at different barriers");
    CHECK_HAS(failure, "faults.cu:16");
    CHECK_HAS(failure, "faults.cu:18");
    CHECK(run(&b, "leave", 1, 64, 0, args) == (is_strict() ? SIM_LAUNCH_FAILED : 0));
    CHECK_HAS(failure, is_strict() ? "faults.cu:23" : "");
    CHECK(run(&b, "stuck", 1, 32, 0, args) == SIM_LAUNCH_FAILED);
    CHECK_HAS(failure, "__syncwarp at faults.cu:28");
    CHECK_HAS(failure, "faults.cu:29");
    CHECK(run(&b, "absent", 1, 32, 0, args) == (is_strict() ? SIM_LAUNCH_FAILED : 0));
    CHECK(run(&b, "uneven", 1, 1, 0, args) == SIM_MISALIGNED_ADDRESS);
    if (sanitized)
        skipped++;
    else {
        CHECK(run(&b, "wild", 4, 32, 0, args) == SIM_ILLEGAL_ADDRESS);
        CHECK_HAS(failure, "kernel wild, block (2,0,0), thread (5,0,0): illegal address");
        CHECK_HAS(failure, "no memory of this test");
        CHECK(run(&b, "wild_waiting", 2, 32, 0, args) == SIM_ILLEGAL_ADDRESS);
        CHECK_HAS(failure, "thread (5,0,0): illegal address 0x40");
        memset(x, 0, 4096);
        CHECK(run(&b, "divide", 1, 1, 0, args) == SIM_LAUNCH_FAILED);
        CHECK_HAS(failure, "division");
        CHECK(run(&b, "deep", 1, 1, 0, args) == SIM_LAUNCH_FAILED);
        CHECK_HAS(failure, "stack overflow");
        CHECK(run(&b, "beyond", 1, 32, 128, args) == 0);
        CHECK(run(&b, "beyond", 1, 33, 128, args) == SIM_ILLEGAL_ADDRESS);
        CHECK_HAS(failure, "kernel beyond, block (0,0,0): wrote byte 128 of its dynamic shared memory, which has 128");
    }
    CHECK(run(&b, "fine", 1, 32, 0, args) == 0 && x[31] == 2);
    free(x);
    discard(&b);
}

/* ------------------------------------------------------------------------- planted faults, for the sanitizers */

typedef struct planted {
    const char *lane, *name, *text;
    const char *report[3]; /* texts that the report must contain */
    size_t shared;
} planted;

static const planted plants[] = {
    {"address",
     "beyond_global",
     "extern \"C\" __global__ void k(float *x)\n{\n    x[threadIdx.x + 33] = 1;\n}\n",
     {"heap-buffer-overflow", "beyond_global.cu:3"},
     0},
    {"address",
     "beyond_shared",
     "__device__ void put(float *s, int i)\n{\n    s[i] = 1;\n}\n"
     "extern \"C\" __global__ void k(float *x)\n{\n    __shared__ float s[32];\n    put(s, threadIdx.x + 1);\n"
     "    __syncthreads();\n    x[threadIdx.x] = s[0];\n}\n",
     {"global-buffer-overflow", "beyond_shared.cu:3"},
     0},
    {"address",
     "beyond_dynamic",
     "extern \"C\" __global__ void k(float *x)\n{\n    extern __shared__ float s[];\n    s[threadIdx.x + 1] = 1;\n}\n",
     {"heap-buffer-overflow", "beyond_dynamic.cu:4"},
     128},
    {"address",
     "misaligned",
     "extern \"C\" __global__ void k(float *x)\n{\n    *(float4 *)(x + 1) = make_float4(1, 2, 3, 4);\n}\n",
     {"misaligned.cu:3", "misaligned address"},
     0},
    {"thread",
     "race",
     "extern \"C\" __global__ void k(float *x)\n{\n    __shared__ float s[64];\n    s[threadIdx.x] = x[threadIdx.x];\n"
     "    x[threadIdx.x] = s[threadIdx.x ^ 1];\n}\n",
     {"data race", "race.cu:4", "race.cu:5"},
     0},
    {"thread",
     "race_of_blocks",
     "extern \"C\" __global__ void k(float *x)\n{\n    if (threadIdx.x == blockIdx.x) x[0] += 1;\n}\n",
     {"data race", "race_of_blocks.cu:3"},
     0},
};

static void run_planted(const planted *p)
{
    char name[64];
    float *x = aligned_alloc(16, 33 * 4 + 12);
    snprintf(name, sizeof name, "%s.cu", p->name);
    build b = compile(name, p->text);
    memset(x, 0, 33 * 4);
    x = realloc(x, 33 * 4);
    int code = run(&b, "k", 2, 32, p->shared, (void *[]){&x});
    printf("the planted fault was not stopped: %d %s\n", code, failure);
}

static void test_planted(const char *self)
{
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        const planted *p = &plants[i];
        int status;
        char *text = run_child(self, p->lane, "", p->name, &status);
        snprintf(where, sizeof where, "%s: ", p->name);
        CHECK(status != 0);
        for (int k = 0; k < 3 && p->report[k]; k++)
            CHECK_HAS(text, p->report[k]);
        free(text);
    }
}

/* ------------------------------------------------------------------------------------------------------ main */

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"saxpy", test_saxpy},
    {"reduce", test_reduce},
    {"transpose", test_transpose},
    {"templates", test_templates},
    {"atomics", test_atomics},
    {"warps", test_warps},
    {"conversions", test_conversions},
    {"gemm", test_gemm},
    {"errors", test_errors},
    {"headers", test_headers},
    {"include_path", test_include_path},
    {"faults", test_faults},
};

static void run_tests(const char *only)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (!only || strcmp(only, tests[i].name) == 0) {
            snprintf(where, sizeof where, "%s: ", tests[i].name);
            tests[i].run();
        }
}

int main(int count, char **arguments)
{
    const char *what = count > 1 && !strchr(arguments[1], '/') ? arguments[1] : NULL; /* not the folder from make */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; what && i < sizeof plants / sizeof plants[0]; i++)
        if (strcmp(what, plants[i].name) == 0) {
            run_planted(&plants[i]);
            return failed != 0; /* 0 if nothing stopped it; the thread sanitizer changes that at exit */
        }
    if (!what) {
        run_lane("test_executor", arguments[0], NULL, "IGNIS_SIM_ORDER=forward");
        run_lane("test_executor", arguments[0], NULL, "IGNIS_SIM_ORDER=reverse IGNIS_SIM_STRICT=1");
        run_lane("test_executor", arguments[0], NULL, "IGNIS_SIM_ORDER=random:7 IGNIS_SIM_THREADS=3");
        run_lane("test_executor", arguments[0], "address", "");
        run_lane("test_executor", arguments[0], "thread", "");
        test_planted(arguments[0]);
    } else
        run_tests(strcmp(what, "all") != 0 ? what : NULL);
    report_as("test_executor");
    return failed != 0;
}
