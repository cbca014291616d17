// SPDX-License-Identifier: MIT
/*  nvrtc_check.c - compiles every kernel program of Ignis with the real NVRTC, for every architecture

        cc -I. tools/nvrtc_check.c -o build/nvrtc_check -ldl -lpthread
        build/nvrtc_check [--archs 75,120] [--only collective] [--short] [--jobs N] [path of libnvrtc]

    - --archs LIST: for these architectures only, as they are named in the table of archs below.
    - --only TEXT: only programs with this text in their names.
    - --short: one variant of each program; of those for Hopper, whose registers are scarce, half of those that are not
      in f16 beside others in bf16, and a quarter of those with masks.
    - --jobs N: this many at a time (as many as there are cores).

    Needs no GPU. The library is the one that the argument or IGNIS_NVRTC_LIBRARY names, else it is looked for; without
    one nothing is checked. Prints registers, behind a + the bytes of those that are spilled, and compile times, and
    fails on an error, on any word of the compiler that is not expected (such as the notes C7508 to C7520 on products of
    warpgroups that it could not let run beside other work), and on spilled registers, or on more of them than a
    program's line in the table allows for the architecture: none of this shows in the simulator.
    Some programs have such a fault on purpose; not to notice it is a failure, too. For 9.0, one kernel of each source
    is compiled without the others, too, as in a bundle.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IGNIS_IMPLEMENTATION
#include "ignis_kernels.h"

#include "build/model_kernels.c"
#include "kernel_part.h"

/* >>table ------------------------------------------------------------------------------------------------------- */

/*  What the kernels of Ignis do not use of ignis.cuh, but a user's kernel may. */
static const char user_kernel[] =
    "#include \"ignis.cuh\"\n"
    "template <typename T> __device__ void row(T *out, const T *in)\n"
    "{\n"
    "    const T x = in[blockIdx.x * blockDim.x + threadIdx.x];\n"
    "    out[0] = ignis_warp_sum(x) * ignis_block_sum(x);\n"
    "    out[1] = ignis_warp_max(x) - ignis_block_max(x);\n"
    "    out[2] = ignis_max_value<T>() + ignis_min_value<T>();\n"
    "}\n"
    "extern \"C\" __global__ void row_f32(float *out, const float *in) { row(out, in); }\n"
    "extern \"C\" __global__ void row_f64(double *out, const double *in) { row(out, in); }\n"
    "extern \"C\" __global__ void row_i32(int32_t *out, const int32_t *in) { row(out, in); }\n"
    "extern \"C\" __global__ void row_i64(int64_t *out, const int64_t *in) { row(out, in); }\n"
    "extern \"C\" __global__ void pack(ignis_bf16 *out, const ignis_bf16 *in, const ignis_f16 *scale)\n"
    "{\n"
    "    auto pack = ignis_load_once(in + 8 * threadIdx.x);\n"
    "    for (int i = 0; i < 8; i++) pack[i] = ignis_bf16(pack[i] * scale[i] + 1);\n"
    "    if (pack[0] < ignis_infinity<ignis_bf16>()) ignis_store(out + 8 * threadIdx.x, pack);\n"
    "    else ignis_store_streaming(out, ignis_load<4>(in));\n"
    "}\n";

/*  What generated kernels of formulas use of map.cuh: every pack and type, and functions of its own. */
static const char formula_kernel[] =
    "#if MAP == 2\n"
    "#define IGNIS_WIDE\n"
    "#define W double\n"
    "#else\n"
    "#define W float\n"
    "#endif\n"
    "#if MAP == 1\n"
    "#define IGNIS_HALF\n"
    "#endif\n"
    "#include \"map.cuh\"\n"
    "#define TYPE(T, size, SET) extern \"C\" __global__ void map_##T(char *y, const char *x, const u64 *w) { \\\n"
    "    const u32 at = blockIdx.x * blockDim.x + threadIdx.x, count = 8 / size; \\\n"
    "    u32 p[2], o[2] = {}; \\\n"
    "    ld8(p, x + at * 8); \\\n"
    "    for (int e = 0; e < count; e++) { const W v = f((W)GET_##T(p, e) + (W)ONE_##T(x), w, at); SET } \\\n"
    "    st8(y + at * 8, o); }\n"
    "DI W f(W x, const u64 *w, u32 at)\n"
    "{\n"
    "    x = map_softplus(x) + map_sigmoid(x) + erf(x) + log1p(x) + map_power(x, 3) + sin(x) * cos(x) + tan(x);\n"
    "    W r[5];\n"
    "    map_uniform(r, 1, at, w, 2, 0); map_uniform(r + 1, 4, at * 4, w, 2, 1);\n"
    "    x += map_normal(r[0], r[1]) + map_others(x, map_product(r[2], at & 1)) + map_divide(r[3], map_most(x, "
    "map_least(x, r[4])));\n"
    "    return x < map_infinity ? x + (W)(map_place(w, at) + map_modulo((i64)at, (i64)w[0])) : map_nan;\n"
    "}\n"
    "TYPE(f16, 2, TWO_f16(o, e & 2, v, v);)\n"
    "TYPE(bf16, 2, TWO_bf16(o, e & 2, v, v);)\n"
    "TYPE(f32, 4, SET_f32(o, e, v);)\n"
    "TYPE(f64, 8, SET_f64(o, e, v);)\n"
    "TYPE(i32, 4, SET_i32(o, e, v);)\n"
    "TYPE(i64, 8, SET_i64(o, e, v);)\n"
    "TYPE(u8, 1, SET_u8(o, e, v);)\n"
    "extern \"C\" __global__ void packs(char *y, const char *x)\n"
    "{\n"
    "    u32 p[4];\n"
    "    ld16(p, x); st16(y, p); ld4(p, x + 16); st4(y + 16, p);\n"
    "    ld2(p, x + 20); st2(y + 20, p); ld1(p, x + 22); st1(y + 22, p);\n"
    "}\n";

/*  What products of warpgroups make the compiler complain about. */
static const char planted_kernel[] =
    "#include \"ignis.cuh\"\n"
    "#include \"hopper.cuh\"\n"
    "#if PLANTED == 3\n"
    "#define BOUNDS\n"
    "#else\n"
    "#define BOUNDS __launch_bounds__(256, 1)\n"
    "#endif\n"
    "constexpr int N = PLANTED == 4 ? 256 : 64, sets = PLANTED == 4 ? 2 : 1;\n"
    "extern \"C\" __global__ void BOUNDS product(float *out)\n"
    "{\n"
    "    extern __shared__ char shared[];\n"
    "    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);\n"
    "    if (threadIdx.x >= 128) { ignis_ptx_setmaxnreg_dec<40>(); return; }\n"
    "    ignis_ptx_setmaxnreg_inc<232>();\n"
    "    float c[sets][N / 8][4];\n"
    "    const uint64_t a = ignis_wgmma_descriptor(at, 0, 1024);\n"
    "    for (int s = 0; s < sets; s++)\n"
    "        for (int i = 0; i < N / 8; i++)\n"
    "            for (int e = 0; e < 4; e++) c[s][i][e] = out[(s * N + 4 * i + e) * 128];\n"
    "#if PLANTED != 1\n"
    "    ignis_ptx_wgmma_fence();\n"
    "#endif\n"
    "    for (int s = 0; s < sets; s++)\n"
    "        ignis_ptx_wgmma<1, 0, 0>(c[s], ignis_wgmma_ahead(a, 8192), a);\n"
    "    ignis_ptx_wgmma_commit();\n"
    "#if PLANTED == 2\n"
    "    out[0] = c[0][0][0];\n"
    "#elif PLANTED == 5\n"
    "    printf(\"called\");\n"
    "#endif\n"
    "    ignis_ptx_wgmma_wait<0>();\n"
    "    for (int s = 0; s < sets; s++) {\n"
    "        ignis_wgmma_hold(c[s]);\n"
    "        for (int i = 0; i < N / 8; i++)\n"
    "            for (int e = 0; e < 4; e++) out[(s * N + 4 * i + e) * 128 + threadIdx.x] = c[s][i][e];\n"
    "    }\n"
    "}\n";

/*  Every program, with the options that make each of its variants, separated by spaces. */
static const char *const every_type[] = {"-DIGNIS_T=1", "-DIGNIS_T=2", "-DIGNIS_T=3", "-DIGNIS_T=4", "-DIGNIS_T=5",
                                         "-DIGNIS_T=6", "-DIGNIS_T=7", "-DIGNIS_T=8", "-DIGNIS_T=9", NULL};
static const char *const every_sum[] = {"-DIGNIS_T=1", "-DIGNIS_T=2", "-DIGNIS_T=3", "-DIGNIS_T=4",
                                        "-DIGNIS_T=5", "-DIGNIS_T=6", NULL};
static const char *const scans[] = {"-DIGNIS_T=4 -DIGNIS_SCAN=1",
                                    "-DIGNIS_T=1 -DIGNIS_SCAN=2",
                                    "-DIGNIS_T=3 -DIGNIS_SCAN=2",
                                    "-DIGNIS_T=4 -DIGNIS_SCAN=2",
                                    "-DIGNIS_T=6 -DIGNIS_SCAN=3",
                                    "-DIGNIS_T=7 -DIGNIS_SCAN=3",
                                    "-DIGNIS_T=2 -DIGNIS_SCAN=4",
                                    "-DIGNIS_T=4 -DIGNIS_SCAN=4",
                                    "-DIGNIS_T=3 -DIGNIS_SCAN=5",
                                    "-DIGNIS_T=4 -DIGNIS_SCAN=5",
                                    "-DIGNIS_T=1 -DIGNIS_SCAN=6",
                                    "-DIGNIS_T=4 -DIGNIS_SCAN=6",
                                    NULL};
static const char *const for_all_types[] = {"-DIGNIS_T=1", NULL};
static const char *const wide_floats[] = {"-DIGNIS_T=3", "-DIGNIS_T=4", NULL};
static const char *const halves[] = {"-DIGNIS_T=1", "-DIGNIS_T=2", NULL};
static const char *const every_float[] = {"-DIGNIS_T=1", "-DIGNIS_T=2", "-DIGNIS_T=3", "-DIGNIS_T=4", NULL};
static const char *const gemv_mma[] = {"-DIGNIS_T=1",
                                       "-DIGNIS_T=2",
                                       "-DIGNIS_T=2 -DIGNIS_GROUPS=2",
                                       "-DIGNIS_T=2 -DIGNIS_GROUPS=4",
                                       "-DIGNIS_T=1 -DIGNIS_GROUPS=8",
                                       "-DIGNIS_T=2 -DIGNIS_GROUPS=8",
                                       NULL};
#define IN_CLUSTERS(type, columns, blocks) "-DIGNIS_T=" #type " -DIGNIS_COLUMNS=" #columns " -DIGNIS_CLUSTER=" #blocks
static const char *const gemv_cluster[] = {IN_CLUSTERS(2, 16, 8),
                                           IN_CLUSTERS(2, 16, 4),
                                           IN_CLUSTERS(1, 16, 1),
                                           IN_CLUSTERS(2, 32, 8),
                                           IN_CLUSTERS(1, 32, 4),
                                           IN_CLUSTERS(2, 32, 1),
                                           IN_CLUSTERS(2, 64, 8),
                                           IN_CLUSTERS(2, 64, 2),
                                           IN_CLUSTERS(1, 64, 1),
                                           IN_CLUSTERS(2, 64, 1),
                                           NULL};
#define IN_TILES(t, columns, split) "-DIGNIS_T=" #t " -DIGNIS_COLUMNS=" #columns " -DIGNIS_SPLIT=" #split
static const char *const gemv_hopper[] = {IN_TILES(2, 128, 1), IN_TILES(2, 128, 2), IN_TILES(1, 64, 1),
                                          IN_TILES(2, 64, 2), NULL};
static const char *const gemv_f8[] = {IN_TILES(2, 16, 1),
                                      IN_TILES(2, 16, 2),
                                      IN_TILES(2, 32, 1),
                                      IN_TILES(1, 32, 2),
                                      IN_TILES(2, 64, 1),
                                      IN_TILES(2, 64, 2),
                                      IN_TILES(2, 128, 1),
                                      IN_TILES(2, 128, 2),
                                      IN_TILES(1, 16, 2),
                                      IN_TILES(1, 128, 1),
                                      NULL};
#define IN_CLUSTERS_BLOCKS(type, columns, blocks) IN_CLUSTERS(2, columns, blocks) " -DIGNIS_BLOCKS=" #type
static const char *const gemv_cluster_blocks[] = {
    IN_CLUSTERS_BLOCKS(2, 16, 2),  IN_CLUSTERS_BLOCKS(2, 16, 1),  IN_CLUSTERS_BLOCKS(2, 32, 2),
    IN_CLUSTERS_BLOCKS(2, 32, 1),  IN_CLUSTERS_BLOCKS(8, 16, 1),  IN_CLUSTERS_BLOCKS(8, 32, 2),
    IN_CLUSTERS_BLOCKS(8, 32, 1),  IN_CLUSTERS_BLOCKS(12, 16, 1), IN_CLUSTERS_BLOCKS(12, 32, 2),
    IN_CLUSTERS_BLOCKS(12, 32, 1), IN_CLUSTERS_BLOCKS(14, 16, 1), IN_CLUSTERS_BLOCKS(14, 32, 2),
    IN_CLUSTERS_BLOCKS(14, 32, 1), IN_CLUSTERS_BLOCKS(62, 32, 1), NULL};
static const char *const gemv_hopper_blocks[] = {
    IN_CLUSTERS_BLOCKS(2, 8, 4),   IN_CLUSTERS_BLOCKS(2, 8, 1),   IN_CLUSTERS_BLOCKS(2, 16, 4),
    IN_CLUSTERS_BLOCKS(2, 16, 1),  IN_CLUSTERS_BLOCKS(2, 32, 4),  IN_CLUSTERS_BLOCKS(2, 32, 1),
    IN_CLUSTERS_BLOCKS(2, 64, 4),  IN_CLUSTERS_BLOCKS(2, 64, 2),  IN_CLUSTERS_BLOCKS(2, 64, 1),
    IN_CLUSTERS_BLOCKS(12, 8, 1),  IN_CLUSTERS_BLOCKS(12, 16, 1), IN_CLUSTERS_BLOCKS(12, 32, 1),
    IN_CLUSTERS_BLOCKS(12, 64, 1), IN_CLUSTERS_BLOCKS(6, 64, 1),  IN_CLUSTERS_BLOCKS(13, 64, 1),
    IN_CLUSTERS_BLOCKS(62, 8, 4),  IN_CLUSTERS_BLOCKS(62, 16, 1), IN_CLUSTERS_BLOCKS(62, 32, 1),
    IN_CLUSTERS_BLOCKS(62, 64, 2), IN_CLUSTERS_BLOCKS(62, 64, 1), NULL};
static const char *const halves_of_blocks[] = {"-DIGNIS_T=1 -DIGNIS_BLOCKS=2",
                                               "-DIGNIS_T=2 -DIGNIS_BLOCKS=2",
                                               "-DIGNIS_T=1 -DIGNIS_BLOCKS=8",
                                               "-DIGNIS_T=2 -DIGNIS_BLOCKS=8",
                                               "-DIGNIS_T=1 -DIGNIS_BLOCKS=12",
                                               "-DIGNIS_T=2 -DIGNIS_BLOCKS=12",
                                               "-DIGNIS_T=1 -DIGNIS_BLOCKS=14",
                                               "-DIGNIS_T=2 -DIGNIS_BLOCKS=14",
                                               "-DIGNIS_T=1 -DIGNIS_BLOCKS=62",
                                               "-DIGNIS_T=2 -DIGNIS_BLOCKS=62",
                                               NULL};
/*  One of each layout; the types of IQ2 have one, and those of IQ3. */
static const char *const bf16_of_other_blocks[] = {
    "-DIGNIS_T=2 -DIGNIS_BLOCKS=23", "-DIGNIS_T=2 -DIGNIS_BLOCKS=3",  "-DIGNIS_T=2 -DIGNIS_BLOCKS=6",
    "-DIGNIS_T=2 -DIGNIS_BLOCKS=7",  "-DIGNIS_T=2 -DIGNIS_BLOCKS=10", "-DIGNIS_T=2 -DIGNIS_BLOCKS=11",
    "-DIGNIS_T=2 -DIGNIS_BLOCKS=13", "-DIGNIS_T=2 -DIGNIS_BLOCKS=16", "-DIGNIS_T=2 -DIGNIS_BLOCKS=20",
    "-DIGNIS_T=2 -DIGNIS_BLOCKS=21", "-DIGNIS_T=2 -DIGNIS_BLOCKS=39", NULL};
static const char *const wide_of_blocks[] = {"-DIGNIS_T=3 -DIGNIS_BLOCKS=2", "-DIGNIS_T=4 -DIGNIS_BLOCKS=39", NULL};
#define OF_BLOCKS(dtype, gate, up) "-DIGNIS_T=" #dtype " -DIGNIS_BLOCKS=" #gate " -DIGNIS_BLOCKS_UP=" #up
static const char *const experts_of_blocks[] = {
    OF_BLOCKS(2, 2, 2),   OF_BLOCKS(1, 8, 8),   OF_BLOCKS(2, 8, 8),   OF_BLOCKS(2, 12, 12), OF_BLOCKS(2, 14, 14),
    OF_BLOCKS(2, 39, 39), OF_BLOCKS(2, 12, 14), OF_BLOCKS(2, 0, 2),   OF_BLOCKS(3, 39, 39), OF_BLOCKS(4, 2, 2),
    OF_BLOCKS(2, 3, 3),   OF_BLOCKS(2, 10, 10), OF_BLOCKS(2, 11, 11), OF_BLOCKS(2, 13, 13), OF_BLOCKS(2, 21, 21),
    OF_BLOCKS(2, 16, 16), OF_BLOCKS(2, 62, 62), OF_BLOCKS(2, 62, 8),  OF_BLOCKS(3, 62, 62), NULL};
static const char *const delta_keys[] = {"-DIGNIS_T=2 -DIGNIS_DELTA_K=64", "-DIGNIS_T=2 -DIGNIS_DELTA_K=256",
                                         "-DIGNIS_T=4 -DIGNIS_DELTA_K=256", NULL};
static const char *const only_one[] = {"", NULL};
static const char *const formula[] = {"-DMAP=0", "-DMAP=1 -ftz=true", "-DMAP=2", NULL};
static const char *const planted[] = {"-DIGNIS_T=2 -DPLANTED=0",
                                      "-DIGNIS_T=2 -DPLANTED=1",
                                      "-DIGNIS_T=2 -DPLANTED=2",
                                      "-DIGNIS_T=2 -DPLANTED=3",
                                      "-DIGNIS_T=2 -DPLANTED=4",
                                      "-DIGNIS_T=2 -DPLANTED=5",
                                      NULL};

/*  Types that are computed in the same wider type differ little, so one of them has all sizes of heads. */
#define SIZES_UP(type) type " -DIGNIS_HEAD_DIM=64", type " -DIGNIS_HEAD_DIM=128", type " -DIGNIS_HEAD_DIM=256"
static const char *const attention[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64",
                                        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64",
                                        "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=32",
                                        "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=32",
                                        SIZES_UP("-DIGNIS_T=3"),
                                        SIZES_UP("-DIGNIS_T=4"),
                                        NULL};
static const char *const attention_mma[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64", "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=32",
                                            "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=96", "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192",
                                            SIZES_UP("-DIGNIS_T=2"),           NULL};
static const char *const attention_hopper[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=0",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=0",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=72 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=80 -DIGNIS_CAUSAL=0",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=96 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=112 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=160 -DIGNIS_CAUSAL=1",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192 -DIGNIS_CAUSAL=0",
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=1",
                                               NULL};
/*  Forward, by groups and keys: the shapes that are not the default for the size of heads. */
#define ITEMS(groups, keys) " -DIGNIS_FORWARD_GROUPS=" #groups " -DIGNIS_FORWARD_KEYS=" #keys
static const char *const attention_hopper_items[] = {
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=0" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=72 -DIGNIS_CAUSAL=0" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=80 -DIGNIS_CAUSAL=1" ITEMS(2, 128),
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1" ITEMS(2, 64),
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0" ITEMS(2, 128),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1" ITEMS(2, 128),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_RANGE=1" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_RANGE=2" ITEMS(2, 64),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=112 -DIGNIS_CAUSAL=0 -DIGNIS_RANGE=1 -DIGNIS_SOFTCAP=1" ITEMS(2, 64),
    NULL};
static const char *const attention_hopper_few[] = {
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1",
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1 -DIGNIS_SOFTCAP=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=72 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1",
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=112 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1 -DIGNIS_RANGE=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1 -DIGNIS_RANGE=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1",
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=120 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=136 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1 -DIGNIS_SOFTCAP=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=0 -DIGNIS_FEW=1",
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=1 -DIGNIS_FEW=1 -DIGNIS_RANGE=1 -DIGNIS_SOFTCAP=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0 -DIGNIS_DIRECT=1",
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_DIRECT=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1 -DIGNIS_DIRECT=1 -DIGNIS_RANGE=1 -DIGNIS_SOFTCAP=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=0 -DIGNIS_DIRECT=1 -DIGNIS_RANGE=1",
    NULL};
/*  Variants: those that together need the most, and some alone. What a cap has on Hopper, has lengths, too. */
#define OPTIONS(range, softcap, bias) " -DIGNIS_RANGE=" #range " -DIGNIS_SOFTCAP=" #softcap " -DIGNIS_BIAS=" #bias
static const char *const attention_variants[] = {
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 1, 3),  "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=32" OPTIONS(1, 1, 3),
    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 0, 0),  "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128" OPTIONS(0, 0, 3),
    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=256" OPTIONS(1, 1, 3), "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 1, 4),
    "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=256" OPTIONS(1, 1, 4), NULL};
static const char *const attention_documents[] = {
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" OPTIONS(2, 0, 0), "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=64" OPTIONS(2, 1, 3),
    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128" OPTIONS(2, 0, 0), "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=64" OPTIONS(2, 0, 0), NULL};
static const char *const attention_mma_documents[] = {
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" OPTIONS(2, 0, 0),  "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=32" OPTIONS(2, 0, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=96" OPTIONS(2, 0, 0),  "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=128" OPTIONS(2, 0, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" OPTIONS(2, 1, 3), "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192" OPTIONS(2, 0, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256" OPTIONS(2, 0, 0), NULL};
static const char *const document_ids[] = {"-DIGNIS_T=5", "-DIGNIS_T=6", NULL};
static const char *const attention_mma_variants[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 1, 3),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=32" OPTIONS(1, 1, 2),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 0, 0),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" OPTIONS(0, 0, 2),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=96" OPTIONS(1, 1, 2),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" OPTIONS(1, 0, 0),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" OPTIONS(0, 1, 0),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" OPTIONS(1, 1, 3),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=192" OPTIONS(1, 1, 2),
                                                     "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256" OPTIONS(1, 1, 3),
                                                     NULL};
#define HOPPER_VARIANTS(type, size)                                       \
    type " -DIGNIS_HEAD_DIM=" #size " -DIGNIS_CAUSAL=1" OPTIONS(1, 0, 0), \
        type " -DIGNIS_HEAD_DIM=" #size " -DIGNIS_CAUSAL=0" OPTIONS(1, 1, 0)
static const char *const attention_hopper_variants[] = {
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=0" OPTIONS(1, 0, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1" OPTIONS(1, 1, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1" OPTIONS(1, 1, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CAUSAL=1" OPTIONS(1, 1, 0),
    HOPPER_VARIANTS("-DIGNIS_T=2", 64),
    HOPPER_VARIANTS("-DIGNIS_T=1", 72),
    HOPPER_VARIANTS("-DIGNIS_T=2", 112),
    HOPPER_VARIANTS("-DIGNIS_T=2", 128),
    HOPPER_VARIANTS("-DIGNIS_T=2", 192),
    HOPPER_VARIANTS("-DIGNIS_T=2", 256),
    NULL};
#define HOPPER_DOCUMENTS(type, size)                                      \
    type " -DIGNIS_HEAD_DIM=" #size " -DIGNIS_CAUSAL=1" OPTIONS(2, 0, 0), \
        type " -DIGNIS_HEAD_DIM=" #size " -DIGNIS_CAUSAL=0" OPTIONS(2, 0, 0)
static const char *const attention_hopper_documents[] = {
    HOPPER_DOCUMENTS("-DIGNIS_T=2", 64),
    HOPPER_DOCUMENTS("-DIGNIS_T=1", 72),
    HOPPER_DOCUMENTS("-DIGNIS_T=2", 112),
    HOPPER_DOCUMENTS("-DIGNIS_T=2", 128),
    HOPPER_DOCUMENTS("-DIGNIS_T=2", 192),
    HOPPER_DOCUMENTS("-DIGNIS_T=2", 256),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CAUSAL=1" OPTIONS(2, 1, 0),
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CAUSAL=1" OPTIONS(2, 1, 0),
    NULL};
static const char *const attention_decode_variants[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 0, 0),
                                                        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" OPTIONS(1, 1, 2),
                                                        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256" OPTIONS(1, 1, 3), NULL};
static const char *const attention_decode_plain_variants[] = {
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" OPTIONS(1, 0, 0), "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128" OPTIONS(1, 1, 3),
    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=512" OPTIONS(1, 1, 3), "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=256" OPTIONS(1, 1, 4), NULL};
static const char *const attention_decode[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64",
                                               SIZES_UP("-DIGNIS_T=2"),
                                               SIZES_UP("-DIGNIS_T=3"),
                                               SIZES_UP("-DIGNIS_T=4"),
                                               "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=512",
                                               "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=512",
                                               "-DIGNIS_T=4 -DIGNIS_HEAD_DIM=512",
                                               NULL};
static const char *const attention_paged[] = {SIZES_UP("-DIGNIS_T=3"), SIZES_UP("-DIGNIS_T=4"),
                                              SIZES_UP("-DIGNIS_T=3 -DIGNIS_WINDOW=1"),
                                              SIZES_UP("-DIGNIS_T=4 -DIGNIS_WINDOW=1"), NULL};
#define PAGED_MMA(more)                                                                            \
    {                                                                                              \
        "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" more, "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" more,            \
            "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" more, "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256" more, NULL \
    }
static const char *const attention_paged_mma[] = PAGED_MMA(""), *const attention_paged_clusters[] =
                                                                    PAGED_MMA(" -DIGNIS_CLUSTERS=1");
static const char *const attention_paged_windows[] = PAGED_MMA(" -DIGNIS_WINDOW=1"),
                         *const attention_paged_window_clusters[] = PAGED_MMA(" -DIGNIS_CLUSTERS=1 -DIGNIS_WINDOW=1");
#define LATENT " -DIGNIS_LATENT=512 -DIGNIS_ROTARY=64"
static const char *const attention_latent[] = {"-DIGNIS_T=1" LATENT, "-DIGNIS_T=2" LATENT, "-DIGNIS_T=3" LATENT,
                                               "-DIGNIS_T=4" LATENT, NULL};
#define LATENT_MMA(rows, stages, chunk) \
    LATENT " -DIGNIS_ROWS=" #rows " -DIGNIS_STAGES=" #stages " -DIGNIS_CHUNK=" #chunk
static const char *const attention_latent_mma[] = {
    "-DIGNIS_T=2" LATENT_MMA(64, 2, 1), "-DIGNIS_T=2" LATENT_MMA(64, 2, 0), "-DIGNIS_T=2" LATENT_MMA(16, 2, 0),
    "-DIGNIS_T=1" LATENT_MMA(16, 1, 0), "-DIGNIS_T=1" LATENT_MMA(16, 1, 1), NULL};
static const char *const attention_latent_one_tile[] = {"-DIGNIS_T=2" LATENT_MMA(64, 1, 1),
                                                        "-DIGNIS_T=2" LATENT_MMA(64, 1, 0), NULL};
static const char *const attention_paged_many[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64", "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64",
                                                   "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128", NULL};
#define CACHE_TYPES(type)                                           \
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64 -DIGNIS_CACHE_TYPE=" type,     \
        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64 -DIGNIS_CACHE_TYPE=" type, \
        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=" type
static const char *const attention_paged_types[] = {"-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=1",
                                                    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=2",
                                                    "-DIGNIS_T=3 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=3", NULL};
static const char *const attention_paged_mma_types[] = {CACHE_TYPES("1"),
                                                        CACHE_TYPES("2"),
                                                        CACHE_TYPES("3"),
                                                        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CACHE_TYPE=1",
                                                        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CACHE_TYPE=3",
                                                        NULL};
static const char *const attention_paged_many_types[] = {CACHE_TYPES("1"), CACHE_TYPES("2"), CACHE_TYPES("3"), NULL};
static const char *const attention_paged_cluster_types[] = {
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=1 -DIGNIS_CLUSTERS=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128 -DIGNIS_CACHE_TYPE=3 -DIGNIS_CLUSTERS=1 -DIGNIS_WINDOW=1",
    "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=256 -DIGNIS_CACHE_TYPE=2 -DIGNIS_CLUSTERS=1", NULL};
static const char *const generate_step[] = PAGED_MMA(""),
                         *const generate_step_4_0[] = PAGED_MMA(" -DIGNIS_BLOCKS_TYPES=4"),
                         *const generate_step_8_0[] = PAGED_MMA(" -DIGNIS_BLOCKS_TYPES=256"),
                         *const generate_step_k[] = PAGED_MMA(" -DIGNIS_BLOCKS_TYPES=20480"), /* Q4_K and Q6_K */
                             *const generate_step_tables[] = PAGED_MMA(" -DIGNIS_BLOCKS_TYPES=8388608"), /* IQ4_XS */
                                 *const generate_step_powers[] =
                                     PAGED_MMA(" -DIGNIS_BLOCKS_TYPES=549755813888"); /* MXFP4 */
#define HEAD_NORMS(more)                                                \
    "-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64" more " -DIGNIS_HEAD_NORMS=1",     \
        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=64" more " -DIGNIS_HEAD_NORMS=1", \
        "-DIGNIS_T=2 -DIGNIS_HEAD_DIM=128" more " -DIGNIS_HEAD_NORMS=1"
static const char *const generate_step_normed[] = {HEAD_NORMS(""), NULL}, *const generate_step_normed_blocks[] = {
                                                                              HEAD_NORMS(" -DIGNIS_BLOCKS_TYPES=4"),
                                                                              HEAD_NORMS(" -DIGNIS_BLOCKS_TYPES=256"),
                                                                              HEAD_NORMS(" -DIGNIS_BLOCKS_TYPES=20480"),
                                                                              NULL};
static const char *const attention_decode_mma[] = {"-DIGNIS_T=1 -DIGNIS_HEAD_DIM=64", SIZES_UP("-DIGNIS_T=2"), NULL};

#define PATCHES(which) " -DIGNIS_PATCHES=" #which
#define VOLUMES(which) PATCHES(which) " -DIGNIS_VOLUMES=1"
static const char *const gemm[] = {"-DIGNIS_T=1",
                                   "-DIGNIS_T=2",
                                   "-DIGNIS_T=3",
                                   "-DIGNIS_T=4",
                                   "-DIGNIS_T=2" PATCHES(1),
                                   "-DIGNIS_T=3" PATCHES(1),
                                   "-DIGNIS_T=3" PATCHES(2),
                                   "-DIGNIS_T=4" PATCHES(1),
                                   "-DIGNIS_T=4" PATCHES(2),
                                   "-DIGNIS_T=3" VOLUMES(1),
                                   "-DIGNIS_T=3" VOLUMES(2),
                                   NULL};
#define TRANSPOSED(a, b) " -DIGNIS_TRANSPOSE_A=" #a " -DIGNIS_TRANSPOSE_B=" #b
static const char *const gemm_mma_eights[] = {"-DIGNIS_T=2 -DIGNIS_OPERANDS=8" TRANSPOSED(0, 1),
                                              "-DIGNIS_T=3 -DIGNIS_OPERANDS=9" TRANSPOSED(0, 1),
                                              "-DIGNIS_T=1 -DIGNIS_OPERANDS=8" TRANSPOSED(0, 1), NULL};
static const char *const gemm_grouped_mma[] = {"-DIGNIS_T=2" TRANSPOSED(0, 1), "-DIGNIS_T=2" TRANSPOSED(0, 0),
                                               "-DIGNIS_T=2" TRANSPOSED(1, 0), "-DIGNIS_T=3" TRANSPOSED(1, 0), NULL};
static const char *const gemm_mma[] = {"-DIGNIS_T=2" TRANSPOSED(0, 0),
                                       "-DIGNIS_T=2" TRANSPOSED(0, 1),
                                       "-DIGNIS_T=2" TRANSPOSED(1, 0),
                                       "-DIGNIS_T=2" TRANSPOSED(1, 1),
                                       "-DIGNIS_T=1" TRANSPOSED(0, 1),
                                       "-DIGNIS_T=3" TRANSPOSED(0, 1),
                                       "-DIGNIS_T=3" TRANSPOSED(1, 0),
                                       "-DIGNIS_T=2" TRANSPOSED(0, 1) PATCHES(1),
                                       "-DIGNIS_T=2" TRANSPOSED(0, 0) PATCHES(1),
                                       "-DIGNIS_T=2" TRANSPOSED(1, 0) PATCHES(2),
                                       "-DIGNIS_T=3" TRANSPOSED(0, 1) PATCHES(1),
                                       "-DIGNIS_T=3" TRANSPOSED(1, 0) PATCHES(2),
                                       "-DIGNIS_T=2" TRANSPOSED(0, 1) VOLUMES(1),
                                       "-DIGNIS_T=2" TRANSPOSED(0, 0) VOLUMES(1),
                                       "-DIGNIS_T=2" TRANSPOSED(1, 0) VOLUMES(2),
                                       NULL};

#define TILED(a, b, columns, direct) TRANSPOSED(a, b) " -DIGNIS_COLUMNS=" #columns " -DIGNIS_DIRECT=" #direct
static const char *const gemm_hopper[] = {
    "-DIGNIS_T=2" TILED(0, 0, 256, 1),
    "-DIGNIS_T=2" TILED(0, 1, 256, 1),
    "-DIGNIS_T=2" TILED(1, 0, 256, 1),
    "-DIGNIS_T=2" TILED(1, 1, 256, 0),
    "-DIGNIS_T=1" TILED(0, 1, 256, 0),
    "-DIGNIS_T=2" TILED(0, 1, 128, 1),
    "-DIGNIS_T=2" TILED(1, 0, 128, 0),
    "-DIGNIS_T=2" TILED(0, 1, 256, 1) " -DIGNIS_ACTIVATION=1",
    "-DIGNIS_T=2" TILED(0, 1, 256, 1) " -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=1" TILED(0, 1, 128, 1) " -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=2" TILED(0, 1, 128, 1) " -DIGNIS_ACTIVATION=4",
    "-DIGNIS_T=2" TILED(0, 1, 64, 1) " -DIGNIS_PAIRS=1",
    "-DIGNIS_T=2" TILED(0, 0, 64, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=2 -DIGNIS_PAIRS=1",
    "-DIGNIS_T=1" TILED(1, 0, 64, 0) " -DIGNIS_PAIRS=1",
    "-DIGNIS_T=2" TILED(0, 1, 128, 1) " -DIGNIS_ACTIVATION=4 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=2" TILED(0, 1, 256, 1) " -DIGNIS_PAIRS=2",
    "-DIGNIS_T=1" TILED(0, 0, 192, 1) " -DIGNIS_ACTIVATION=2 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=2" TILED(1, 0, 256, 0) " -DIGNIS_PAIRS=2",
    "-DIGNIS_T=2" TILED(1, 0, 256, 1) " -DIGNIS_OTHER=1",
    "-DIGNIS_T=2" TILED(0, 0, 256, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=1" TILED(0, 0, 128, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=1",
    "-DIGNIS_T=2" TILED(0, 0, 192, 1),
    "-DIGNIS_T=2" TILED(0, 1, 192, 1),
    "-DIGNIS_T=1" TILED(1, 0, 192, 1) " -DIGNIS_OTHER=1",
    "-DIGNIS_T=2" TILED(0, 1, 192, 1) " -DIGNIS_ACTIVATION=1",
    "-DIGNIS_T=2" TILED(0, 1, 192, 1) " -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=2" TILED(0, 0, 192, 1) " -DIGNIS_OTHER=1",
    "-DIGNIS_T=2" TILED(0, 0, 192, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=2" TILED(0, 1, 192, 1) " -DIGNIS_OTHER=3 -DIGNIS_ACTIVATION=3",
    "-DIGNIS_T=2" TILED(0, 0, 192, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=3",
    "-DIGNIS_T=2" TILED(0, 1, 256, 1) PATCHES(1),
    "-DIGNIS_T=2" TILED(0, 1, 128, 0) PATCHES(1),
    "-DIGNIS_T=2" TILED(0, 0, 256, 1) PATCHES(1),
    "-DIGNIS_T=2" TILED(1, 0, 256, 0) PATCHES(2),
    "-DIGNIS_T=1" TILED(1, 0, 128, 1) PATCHES(2),
    "-DIGNIS_T=2" TILED(0, 1, 256, 1) VOLUMES(1),
    "-DIGNIS_T=2" TILED(0, 0, 128, 1) VOLUMES(1),
    "-DIGNIS_T=2" TILED(1, 0, 256, 0) VOLUMES(2),
    "-DIGNIS_T=2" TILED(0, 1, 64, 1),
    "-DIGNIS_T=2" TILED(1, 0, 64, 0),
    "-DIGNIS_T=2" TILED(0, 1, 64, 1) " -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=2" TILED(0, 0, 64, 1) " -DIGNIS_OTHER=1",
    "-DIGNIS_T=1" TILED(0, 0, 64, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=2" TILED(0, 1, 64, 1) PATCHES(1),
    "-DIGNIS_T=2" TILED(0, 0, 64, 1) PATCHES(1),
    "-DIGNIS_T=2" TILED(1, 0, 64, 0) PATCHES(2),
    "-DIGNIS_T=2" TILED(1, 0, 128, 0) PATCHES(2) " -DIGNIS_ROWS=64",
    "-DIGNIS_T=2" TILED(1, 0, 128, 1) PATCHES(2) " -DIGNIS_ROWS=64",
    "-DIGNIS_T=3" TILED(0, 1, 256, 1),
    "-DIGNIS_T=3" TILED(0, 1, 256, 0) " -DIGNIS_PAIRS=2",
    "-DIGNIS_T=3" TILED(0, 1, 256, 1) " -DIGNIS_OTHER=1",
    "-DIGNIS_T=3" TILED(0, 1, 192, 1),
    "-DIGNIS_T=3" TILED(0, 1, 192, 1) " -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=3" TILED(0, 1, 128, 1) " -DIGNIS_OTHER=2 -DIGNIS_ACTIVATION=2",
    "-DIGNIS_T=3" TILED(0, 1, 64, 1) " -DIGNIS_PAIRS=1",
    "-DIGNIS_T=3" TILED(0, 1, 64, 0),
    "-DIGNIS_T=2 -DIGNIS_OPERANDS=8" TILED(0, 1, 128, 1),
    "-DIGNIS_T=2 -DIGNIS_OPERANDS=9" TILED(0, 1, 128, 0),
    "-DIGNIS_T=3 -DIGNIS_OPERANDS=8" TILED(0, 1, 128, 1) " -DIGNIS_PAIRS=2",
    "-DIGNIS_T=1 -DIGNIS_OPERANDS=9" TILED(0, 1, 64, 1) " -DIGNIS_PAIRS=1",
    "-DIGNIS_T=3 -DIGNIS_OPERANDS=9" TILED(0, 1, 64, 0) " -DIGNIS_PAIRS=1",
    NULL};
static const char *const gemm_hopper_large[] = {
    "-DIGNIS_T=2" TILED(0, 1, 192, 1) " -DIGNIS_ROWS=192",
    "-DIGNIS_T=2" TILED(0, 0, 192, 1) " -DIGNIS_ROWS=192 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=1" TILED(1, 0, 192, 1) " -DIGNIS_ROWS=192 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=2" TILED(0, 1, 192, 1) " -DIGNIS_ACTIVATION=2 -DIGNIS_ROWS=192 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=2" TILED(0, 0, 96, 1) " -DIGNIS_ROWS=192",
    "-DIGNIS_T=2" TILED(0, 1, 176, 1) " -DIGNIS_ROWS=192",
    "-DIGNIS_T=1" TILED(1, 1, 80, 1) " -DIGNIS_ACTIVATION=1 -DIGNIS_ROWS=192 -DIGNIS_PAIRS=2",
    "-DIGNIS_T=3" TILED(0, 1, 192, 1) " -DIGNIS_ROWS=192",
    "-DIGNIS_T=3" TILED(0, 1, 112, 1) " -DIGNIS_ACTIVATION=2 -DIGNIS_ROWS=192",
    NULL};

/*  Moving bytes; and combining, where the number of ranks and the type decide about registers, the operation hardly. */
static const char *const collective[] = {"-DIGNIS_RANKS=2",
                                         "-DIGNIS_RANKS=3",
                                         "-DIGNIS_RANKS=4",
                                         "-DIGNIS_RANKS=5",
                                         "-DIGNIS_RANKS=6",
                                         "-DIGNIS_RANKS=7",
                                         "-DIGNIS_RANKS=8",
                                         "-DIGNIS_RANKS=4 -DIGNIS_COMM_DELAY",
                                         "-DIGNIS_RANKS=2 -DIGNIS_T=2 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=4 -DIGNIS_T=3 -DIGNIS_OP=4",
                                         "-DIGNIS_RANKS=5 -DIGNIS_T=2 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=6 -DIGNIS_T=2 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=7 -DIGNIS_T=2 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=1 -DIGNIS_OP=3",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=2 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=3 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=4 -DIGNIS_OP=1",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=5 -DIGNIS_OP=2",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=6 -DIGNIS_OP=0",
                                         "-DIGNIS_RANKS=8 -DIGNIS_T=7 -DIGNIS_OP=0",
                                         NULL};

static const char *const depthwise[] = {"-DIGNIS_T=1 -DIGNIS_TAPS=3 -DIGNIS_STRIDE=1",
                                        "-DIGNIS_T=2 -DIGNIS_TAPS=3 -DIGNIS_STRIDE=1",
                                        "-DIGNIS_T=2 -DIGNIS_TAPS=3 -DIGNIS_STRIDE=2",
                                        "-DIGNIS_T=2 -DIGNIS_TAPS=5 -DIGNIS_STRIDE=1",
                                        "-DIGNIS_T=2 -DIGNIS_TAPS=7 -DIGNIS_STRIDE=1",
                                        "-DIGNIS_T=2 -DIGNIS_TAPS=7 -DIGNIS_STRIDE=2",
                                        "-DIGNIS_T=3 -DIGNIS_TAPS=7 -DIGNIS_STRIDE=2",
                                        "-DIGNIS_T=4 -DIGNIS_TAPS=7 -DIGNIS_STRIDE=2",
                                        "-DIGNIS_T=2 -DIGNIS_VOLUMES=1",
                                        "-DIGNIS_T=4 -DIGNIS_VOLUMES=1",
                                        NULL};

static const char *const weighted[] = {"-DIGNIS_T=1 -DIGNIS_WEIGHTED=1", "-DIGNIS_T=2 -DIGNIS_WEIGHTED=1",
                                       "-DIGNIS_T=3 -DIGNIS_WEIGHTED=1", "-DIGNIS_T=4 -DIGNIS_WEIGHTED=1", NULL};
static const char *const unfold[] = {"-DIGNIS_T=1",
                                     "-DIGNIS_T=2",
                                     "-DIGNIS_T=3",
                                     "-DIGNIS_T=4",
                                     "-DIGNIS_T=2 -DIGNIS_VOLUMES=1",
                                     "-DIGNIS_T=4 -DIGNIS_VOLUMES=1",
                                     NULL};

#define GROUPED(channels, outs, taps, slab) \
    " -DIGNIS_CHANNELS=" #channels " -DIGNIS_OUTS=" #outs " -DIGNIS_TAPS=" #taps " -DIGNIS_SLAB=" #slab
static const char *const grouped[] = {"-DIGNIS_T=2" GROUPED(8, 8, 9, 8),   "-DIGNIS_T=1" GROUPED(8, 8, 49, 1),
                                      "-DIGNIS_T=2" GROUPED(16, 16, 9, 8), "-DIGNIS_T=2" GROUPED(32, 32, 9, 8),
                                      "-DIGNIS_T=2" GROUPED(8, 16, 9, 8),  "-DIGNIS_T=2" GROUPED(16, 8, 25, 4),
                                      "-DIGNIS_T=2" GROUPED(8, 64, 28, 1), NULL};

#define FFT(n, radices, rows, threads, load, store, how)                                              \
    " -DIGNIS_N=" #n " -DIGNIS_RADICES=" #radices " -DIGNIS_ROWS=" #rows " -DIGNIS_THREADS=" #threads \
    " -DIGNIS_LOAD=" #load " -DIGNIS_STORE=" #store " -DIGNIS_HOW=" #how
static const char *const fft[] = {
    "-DIGNIS_T=3" FFT(1024, 0x77fULL, 8, 64, 0, 0, 27),  "-DIGNIS_T=3" FFT(1024, 0x77fULL, 4, 64, 0, 0, 240),
    "-DIGNIS_T=3" FFT(1024, 0x77fULL, 4, 64, 2, 3, 240), "-DIGNIS_T=3" FFT(1024, 0x77fULL, 4, 64, 3, 2, 240),
    "-DIGNIS_T=3" FFT(1001, 0x6acULL, 2, 91, 1, 4, 240), "-DIGNIS_T=3" FFT(1000, 0x999ULL, 2, 100, 0, 0, 100),
    "-DIGNIS_T=3" FFT(105, 0x6eULL, 16, 15, 4, 1, 240),  "-DIGNIS_T=4" FFT(1024, 0x77fULL, 4, 64, 0, 0, 58),
    "-DIGNIS_T=4" FFT(1001, 0x6acULL, 2, 91, 1, 4, 240), NULL};
static const char *const fft_long[] = {"-DIGNIS_T=3" FFT(16384, 0x77ffULL, 1, 1024, 0, 0, 240),
                                       "-DIGNIS_T=4" FFT(8192, 0x777fULL, 1, 512, 0, 0, 240), NULL};
static const char *const fft_rows[] = {"-DIGNIS_T=3", "-DIGNIS_T=4", NULL};

static const struct {
    int source; /* -1: user_kernel; -2: planted_kernel; -3: formula_kernel */
    const char *const *variants;
    int first_arch, last_arch; /* 0: all */
    int spills[3];             /* bytes that a kernel may spill: on sm_75, from sm_80 to 89, from sm_90 on */
} programs[] = {
    {-1, only_one, 0, 0, {0}},
    {-2, planted, 90, 90, {0}},
    {-3, formula, 0, 0, {0}},
    {IGNIS__SOURCE_ELEMENTWISE_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_SHAPE_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_POINTWISE_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_ACTIVATION_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_GEMM_CU, gemm, 0, 0, {0}},
    {IGNIS__SOURCE_DEPTHWISE_CU, every_float, 0, 0, {16}},
    {IGNIS__SOURCE_DEPTHWISE_CU, depthwise, 0, 0, {0}},
    {IGNIS__SOURCE_GEMM_MMA_CU, gemm_mma, 80, 0, {0}},
    {IGNIS__SOURCE_GEMM_MMA_CU, gemm_mma_eights, 89, 0, {0, 0, 20}}, /* where such a product is several instructions */
    {IGNIS__SOURCE_GEMM_GROUPED_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_GEMM_GROUPED_MMA_CU, gemm_grouped_mma, 80, 0, {0}},
    {IGNIS__SOURCE_GROUPED_MMA_CU, grouped, 80, 0, {0}},
    {IGNIS__SOURCE_GEMM_HOPPER_CU, gemm_hopper, 90, 90, {0}},
    {IGNIS__SOURCE_GEMM_HOPPER_CU, gemm_hopper_large, 90, 90, {0, 0, 16}}, /* between tiles */
    {IGNIS__SOURCE_FFT_CU, fft, 0, 0, {0}},
    {IGNIS__SOURCE_FFT_CU, fft_long, 80, 0, {0, 64, 64}}, /* 16 numbers a thread, in all registers that there are */
    {IGNIS__SOURCE_FFT_ROWS_CU, fft_rows, 0, 0, {0}},
    {IGNIS__SOURCE_REDUCE_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_RANDOM_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_OPTIM_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_OPTIM_EXTRA_CU, every_float, 0, 0, {0, 0, 8}}, /* ignis_muon_apply */
    {IGNIS__SOURCE_NORM_CU, every_float, 0, 0, {0, 0, 20}},       /* sm_90: rms_norm_block of bf16, in 64 registers */
    {IGNIS__SOURCE_NORM_ADD_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_NORM_WIDE_CU, halves, 0, 0, {0, 0, 32}}, /* as many blocks side by side as without */
    {IGNIS__SOURCE_NORM_ADD_WIDE_CU, halves, 0, 0, {0}},
    {IGNIS__SOURCE_NORM_UNALIGNED_WIDE_CU, halves, 0, 0, {8, 8, 24}},
    {IGNIS__SOURCE_NORM_GRAD_WIDE_CU, halves, 0, 0, {64, 8, 48}},
    {IGNIS__SOURCE_CHANNEL_NORM_WIDE_CU, halves, 0, 0, {0}},
    {IGNIS__SOURCE_NORM_UNALIGNED_CU,
     every_float,
     0,
     0,
     {4, 0, 24}}, /* layer_norm_rows_block of 16 bits, for as many blocks side by side */
    {IGNIS__SOURCE_NORM_GRAD_CU, every_float, 0, 0, {60, 0, 40}}, /* layer_norm_rows_backward of 16 bits, likewise */
    {IGNIS__SOURCE_CHANNEL_NORM_CU,
     every_float,
     0,
     0,
     {16, 16, 16}}, /* finish of f64, around the divisions of what does not fit */
    {IGNIS__SOURCE_POOL_CU, every_float, 0, 0, {0, 0, 12}}, /* sm_100: averages of 16 bits, in 40 and 48 registers */
    {IGNIS__SOURCE_UPSAMPLE_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_UNFOLD_CU, unfold, 0, 0, {0}},
    {IGNIS__SOURCE_GRID_SAMPLE_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_BORDER_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_QUANTIZE_CU, every_float, 0, 0, {0, 0, 4}}, /* sm_100: quantize_largest of f32 */
    {IGNIS__SOURCE_SOFTMAX_CU, every_float, 0, 0, {0, 0, 56}}, /* sm_120: cross_entropy_warp of f64 */
    {IGNIS__SOURCE_LOG_SOFTMAX_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_EMBEDDING_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_EMBEDDING_CU, weighted, 0, 0, {0}},
    {IGNIS__SOURCE_GATHER_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_PATTERN_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_DISTRIBUTION_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_SELECT_CU, every_type, 0, 0, {0}},
    {IGNIS__SOURCE_SCAN_CU, every_sum, 0, 0, {0}},
    {IGNIS__SOURCE_SCAN_CU, scans, 0, 0, {0}},
    {IGNIS__SOURCE_LINALG_CU, wide_floats, 0, 0, {0}},
    {IGNIS__SOURCE_LINALG_QR_CU, wide_floats, 0, 0, {0}},
    {IGNIS__SOURCE_LINALG_JACOBI_CU, wide_floats, 0, 0, {0}},
    {IGNIS__SOURCE_SORT_CU, every_type, 0, 0, {0, 0, 20}}, /* sm_100: sort_count of 16 bits; sm_90: of u8, 4 */
    {IGNIS__SOURCE_ROPE_CU, every_float, 0, 0, {0, 0, 8}}, /* sm_100: f64 */
    {IGNIS__SOURCE_ATTENTION_CU, attention, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_MMA_CU, attention_mma, 80, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_CU, attention_hopper, 90, 90, {0}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_CU, attention_hopper_items, 90, 90, {0}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU, attention_hopper, 90, 90, {0, 0, 28}}, /* outside of the products */
    {IGNIS__SOURCE_ATTENTION_DECODE_CU, attention_decode, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_DECODE_MMA_CU, attention_decode_mma, 80, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_CU,
     attention_variants,
     0,
     0,
     {36, 0, 68}}, /* gradients of k and v in f64, heads of 256 with all variants */
    /* heads of 64: the gradient of a bias on sm_100 and up; forward 48 on sm_90 */
    {IGNIS__SOURCE_ATTENTION_MMA_CU, attention_mma_variants, 80, 0, {0, 8, 104}},
    /* with a cap: heads of 256, the thread that copies; heads of 64, whose groups have 112 registers */
    {IGNIS__SOURCE_ATTENTION_HOPPER_CU, attention_hopper_variants, 90, 90, {0, 0, 52}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU, attention_hopper_variants, 90, 90, {0, 0, 56}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU, attention_hopper_few, 90, 90, {0}},
    {IGNIS__SOURCE_ATTENTION_BOUNDS_CU, document_ids, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_SINKS_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_CU, attention_documents, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_MMA_CU, attention_mma_documents, 80, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_CU, attention_hopper_documents, 90, 90, {0, 0, 36}},
    {IGNIS__SOURCE_ATTENTION_HOPPER_BACKWARD_CU, attention_hopper_documents, 90, 90, {0, 0, 56}},
    {IGNIS__SOURCE_ATTENTION_DECODE_CU, attention_decode_plain_variants, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_DECODE_MMA_CU,
     attention_decode_variants,
     80,
     0,
     {0, 0, 8}},                                                       /* sm_90: heads of 256 with all variants */
    {IGNIS__SOURCE_GENERATE_CU, every_float, 0, 0, {0, 0, 8}},         /* sm_100: sines of f64 */
    {IGNIS__SOURCE_GENERATE_DRAW_CU, for_all_types, 0, 0, {0, 0, 16}}, /* sm_100: bins, in 48 registers */
    {IGNIS__SOURCE_EXPERTS_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_EXPERTS_SORTED_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_EXPERTS_PRODUCT_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_EXPERTS_PRODUCT_CU, experts_of_blocks, 0, 0, {0, 0, 24}}, /* sm_90: Q2_K; 12 of others */
    {IGNIS__SOURCE_DELTA_NET_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_DELTA_NET_RULE_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_DELTA_NET_RULE_CU, delta_keys, 0, 0, {0}},
    {IGNIS__SOURCE_GEMV_CU, every_float, 0, 0, {0, 0, 16}}, /* sm_120; 4 on sm_90 */
    {IGNIS__SOURCE_LATENT_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_LATENT_CU, attention_latent, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_LATENT_MMA_CU, attention_latent_mma, 80, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_LATENT_MMA_CU, attention_latent_one_tile, 80, 80, {0}}, /* others have memory for two */
    {IGNIS__SOURCE_LORA_CU, every_float, 0, 0, {0, 0, 16}},                          /* sm_75: f64 */
    {IGNIS__SOURCE_GEMV_MMA_CU,
     gemv_mma,
     80,
     0,
     {0, 0, 12}}, /* sm_90: one row of bf16, in 80 registers; 8 on sm_100 and up */
    {IGNIS__SOURCE_BLOCKS_CU, every_float, 0, 0, {0}},
    {IGNIS__SOURCE_BLOCKS_ROWS_CU, halves_of_blocks, 0, 0, {0}},
    {IGNIS__SOURCE_BLOCKS_ROWS_CU, bf16_of_other_blocks, 0, 0, {0}},
    {IGNIS__SOURCE_BLOCKS_ROWS_CU, wide_of_blocks, 0, 0, {0}},
    {IGNIS__SOURCE_GEMV_BLOCKS_CU,
     halves_of_blocks,
     80,
     0,
     {0, 0, 64}}, /* sm_90: 64 rows of Q4_K; 28 on sm_100: 8 of Q6_K */
    {IGNIS__SOURCE_GEMV_BLOCKS_CU, bf16_of_other_blocks, 80, 0, {0, 0, 80}}, /* sm_90: 64 rows of Q4_1 */
    {IGNIS__SOURCE_ATTENTION_PAGED_CU, attention_paged, 0, 0, {0}},
    {IGNIS__SOURCE_GEMV_CLUSTER_CU, gemv_cluster, 90, 0, {0}},
    {IGNIS__SOURCE_GEMV_HOPPER_CU, gemv_hopper, 90, 90, {0}},
    {IGNIS__SOURCE_GEMV_F8_CU, gemv_f8, 90, 90, {0}},
    {IGNIS__SOURCE_GEMV_F8_CU, halves, 90, 90, {0}}, /* its rows */
    {IGNIS__SOURCE_GEMV_CLUSTER_BLOCKS_CU,
     gemv_cluster_blocks,
     90,
     0,
     {0, 0, 36}}, /* sm_120: 32 rows of Q6_K; 4 on sm_90 */
    {IGNIS__SOURCE_GEMV_HOPPER_BLOCKS_CU,
     gemv_hopper_blocks,
     90,
     90,
     {0, 0, 32}}, /* 16 columns of Q4_K, in 96 registers */
    {IGNIS__SOURCE_ATTENTION_PAGED_CU, attention_paged_mma, 75, 75, {0}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_mma, 80, 0, {0, 0, 4}}, /* heads of 64: in 96 registers */
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_clusters, 90, 0, {0, 0, 8}}, /* heads of 256 */
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_windows, 80, 0, {0, 0, 4}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_window_clusters, 90, 0, {0, 0, 8}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU, attention_paged_many, 80, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_PAGED_CU, attention_paged_types, 0, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_mma_types, 80, 0, {0, 0, 4}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU, attention_paged_cluster_types, 90, 0, {0}},
    {IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU, attention_paged_many_types, 80, 0, {0}},
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step, 90, 90, {0, 0, 72}}, /* heads of 256 */
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_normed, 90, 90, {0, 0, 4}},
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_normed_blocks, 90, 90, {0, 0, 40}},
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_4_0, 90, 90, {0, 0, 24}},    /* heads of 128 */
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_8_0, 90, 90, {0, 0, 4}},     /* heads of 256 */
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_k, 90, 90, {0, 0, 40}},      /* warps that bring weights */
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_tables, 90, 90, {0, 0, 64}}, /* tables stay in registers */
    {IGNIS__SOURCE_GENERATE_STEP_CU, generate_step_powers, 90, 90, {0, 0, 68}},
    {IGNIS__SOURCE_COLLECTIVE_CU, collective, 0, 0, {0, 0, 16}}, /* products of i32 of 8 ranks: 8 bytes on sm_90a */
};

static const char *const archs[] = {"75", "80", "86", "89", "90a", "100", "120"};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* >>nvrtc ------------------------------------------------------------------------------------------------------- */

typedef struct program *nvrtc_program;

#define NVRTC_FUNCTIONS(X)                                                                              \
    X(int, Version, (int *major, int *minor))                                                           \
    X(int, GetNumSupportedArchs, (int *count))                                                          \
    X(int, GetSupportedArchs, (int *archs))                                                             \
    X(int, CreateProgram,                                                                               \
      (nvrtc_program * program, const char *source, const char *name, int headers, const char *const *, \
       const char *const *))                                                                            \
    X(int, DestroyProgram, (nvrtc_program * program))                                                   \
    X(int, CompileProgram, (nvrtc_program program, int count, const char *const *options))              \
    X(int, GetProgramLogSize, (nvrtc_program program, size_t * size))                                   \
    X(int, GetProgramLog, (nvrtc_program program, char *log))                                           \
    X(int, GetCUBINSize, (nvrtc_program program, size_t * size))                                        \
    X(int, GetPTXSize, (nvrtc_program program, size_t * size))                                          \
    X(int, GetPTX, (nvrtc_program program, char *text))

static struct {
#define MEMBER(result, name, arguments) result(*name) arguments;
    NVRTC_FUNCTIONS(MEMBER)
#undef MEMBER
} nvrtc;

/* The path that was opened, or null. A library that was asked for by name has to be there. */
static const char *open_nvrtc(const char *asked)
{
    static const char *const usual[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    const char *path = asked;
    void *library = NULL;
    if (asked) {
        library = dlopen(asked, RTLD_NOW);
        if (!library) {
            fprintf(stderr, "nvrtc_check: %s\n", dlerror());
            exit(1);
        }
    }
    for (int i = 0; i < COUNT(usual) && !library; i++) {
        path = usual[i];
        library = dlopen(path, RTLD_NOW);
    }
    if (!library)
        return NULL;
#define LOAD(result, name, arguments)                                    \
    *(void **)&nvrtc.name = dlsym(library, "nvrtc" #name);               \
    if (!nvrtc.name) {                                                   \
        fprintf(stderr, "nvrtc_check: no nvrtc" #name " in %s\n", path); \
        exit(1);                                                         \
    }
    NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    return path;
}

/* >>jobs -------------------------------------------------------------------------------------------------------- */

#define MAX_KERNELS 64
#define MAX_JOBS 4096

/*  One compile: a program in one variant for one architecture. */
typedef struct job {
    int program;
    const char *variant, *arch;
    int skipped, failed, spills;
    int milliseconds;
    char *log;
    int kernels;
    char kernel[MAX_KERNELS][48];
    int registers[MAX_KERNELS], spilled[MAX_KERNELS];
} job;

static job *jobs[MAX_JOBS];
static int job_count, next_job;
static pthread_mutex_t next_job_lock = PTHREAD_MUTEX_INITIALIZER;
static char *texts[IGNIS__SOURCE_MODELS_END];

static const ignis__source *source_at(int source)
{
    return source < IGNIS__SOURCE_COUNT ? ignis__sources[source]
                                        : ignis__model_kernel_sources[source - IGNIS__SOURCE_COUNT];
}

static const char *program_name(int program)
{
    int source = programs[program].source;
    return source == -1   ? "user.cu"
           : source == -2 ? "planted.cu"
           : source == -3 ? "formula.cu"
                          : source_at(source)->name;
}

static int is_skipped(int program, const char *arch)
{
    return atoi(arch) < programs[program].first_arch ||
           (programs[program].last_arch && atoi(arch) > programs[program].last_arch);
}

/*  Returns the sum of the values of all options. */
static int sum_of_options(const char *variant)
{
    int sum = 0;
    for (; (variant = strchr(variant, '=')) != NULL; variant++)
        sum += atoi(variant + 1);
    return sum;
}

/*  Whether --short may take this variant. Of those with masks it may take the even sums: half of them, in which each
    two values of causal, range and softcap are together. */
static int is_candidate(int program, const char *variant)
{
    const char *const *variants = programs[program].variants;
    int i = 0, is_f16 = strncmp(variant, "-DIGNIS_T=1 ", 12) == 0;
    while (variants[i] && strncmp(variants[i], "-DIGNIS_T=2", 11) != 0)
        i++;
    if (programs[program].first_arch >= 90)
        return (!is_f16 || !variants[i]) && (!strstr(variant, "IGNIS_RANGE") || sum_of_options(variant) % 2 == 0);
    return variant == variants[variants[i] ? i : 0];
}

/*  The number of candidates before this one, or -1 if it is none. */
static int candidate_number(int program, const char *variant)
{
    int before = 0;
    for (const char *const *other = programs[program].variants; *other != variant; other++)
        before += is_candidate(program, *other);
    return is_candidate(program, variant) ? before : -1;
}

/*  Whether --short takes it: each second candidate, but all with faults on purpose. */
static int is_short(int program, const char *variant)
{
    int number = candidate_number(program, variant);
    return number >= 0 && (number % 2 == 0 || programs[program].source == -2);
}

static int shortened; /* --short */

/*  Whether one kernel is compiled without the others, too: of each candidate; --short: of the first one. */
static int has_part(const job *j)
{
    int number = candidate_number(j->program, j->variant);
    return j->kernels > 1 && atoi(j->arch) == 90 && (number == 0 || (number > 0 && !shortened));
}

static int allowed(const job *j) { return programs[j->program].spills[(atoi(j->arch) >= 80) + (atoi(j->arch) >= 90)]; }

static char *join(const ignis__source *source)
{
    size_t size = 1, at = 0;
    for (int i = 0; i < source->piece_count; i++)
        size += strlen(source->pieces[i]);
    char *text = malloc(size);
    if (!text)
        abort();
    for (int i = 0; i < source->piece_count; i++)
        at += (size_t)sprintf(text + at, "%s", source->pieces[i]);
    return text;
}

/* Goes through the log line by line: takes the figures out, and fails the job on everything that says more than
   figures. */
static void read_log(job *j)
{
    static const char *const expected[] = {"ptxas info    : Function properties", "ptxas info    : Compile time",
                                           " bytes gmem", " bytes cmem"};
    char *position = NULL, *log = strdup(j->log);
    if (!log)
        abort();
    for (char *line = strtok_r(log, "\n", &position); line; line = strtok_r(NULL, "\n", &position)) {
        int stores, loads, registers, is_expected = 0;
        const char *stack = strstr(line, "bytes stack frame");
        if (sscanf(line, "ptxas info    : Compiling entry function '%47[^']", j->kernel[j->kernels]) == 1) {
            if (++j->kernels == MAX_KERNELS)
                abort();
        } else if (stack && sscanf(stack, "bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stores,
                                   &loads) == 2) {
            j->spills += stores > allowed(j);
            if (j->kernels)
                j->spilled[j->kernels - 1] += stores;
        } else if (sscanf(line, "ptxas info    : Used %d registers", &registers) == 1 && j->kernels) {
            j->registers[j->kernels - 1] = registers;
        } else {
            for (int i = 0; i < COUNT(expected); i++)
                is_expected |= strstr(line, expected[i]) != NULL;
            j->failed |= !is_expected && strspn(line, " \t") != strlen(line);
        }
    }
    free(log);
    j->failed |= j->kernels == 0;
}

/*  Programs whose kernels load what no kernel ahead of them writes before they wait, or of which only some wait; and
    that of random numbers, none of whose kernels begins early (IGNIS__KERNEL_WAITS), though some share the code of
    others that do. */
static int waits_late(int source)
{
    return source == IGNIS__SOURCE_GEMV_MMA_CU || source == IGNIS__SOURCE_GEMV_CLUSTER_CU ||
           source == IGNIS__SOURCE_GEMV_CLUSTER_BLOCKS_CU || source == IGNIS__SOURCE_GEMV_HOPPER_CU ||
           source == IGNIS__SOURCE_GEMV_HOPPER_BLOCKS_CU || source == IGNIS__SOURCE_GEMV_BLOCKS_CU ||
           source == IGNIS__SOURCE_GEMV_F8_CU || source == IGNIS__SOURCE_ATTENTION_PAGED_CU ||
           source == IGNIS__SOURCE_ATTENTION_PAGED_MMA_CU || source == IGNIS__SOURCE_ATTENTION_PAGED_MANY_CU ||
           source == IGNIS__SOURCE_GENERATE_STEP_CU || source == IGNIS__SOURCE_GENERATE_CU ||
           source == IGNIS__SOURCE_RANDOM_CU;
}

/*  Kernels that may begin before what is ahead of them has ended (ignis_grid_dependency_wait) must wait before they
    touch global memory: if one of a program waits, all do, and no load, store or atomic operation of global memory
    comes before it. Returns what is wrong, or null. */
static const char *check_waits(int source, char *ptx)
{
    static const char *const touches[] = {"ld.global",   "ld.volatile", "ld.relaxed", "ld.acquire", "st.global",
                                          "st.volatile", "st.relaxed",  "st.release", "atom.",      "red.global",
                                          "red.relaxed", "cp.async",    "cp.reduce"};
    static __thread char what[160];
    char name[64] = "", *position = NULL;
    int waits = 0, touched = 0;
    if (!strstr(ptx, "griddepcontrol.wait") || waits_late(source))
        return NULL;
    for (char *line = strtok_r(ptx, "\n", &position);; line = strtok_r(NULL, "\n", &position)) {
        char *entry = line ? strstr(line, ".entry ") : NULL;
        if (!line || entry) {
            if (*name && !waits) {
                snprintf(what, sizeof(what), "%s does not wait for what is ahead of it", name);
                return what;
            }
            if (!line)
                return NULL;
            sscanf(entry + 7, "%63[a-zA-Z0-9_]", name);
            waits = touched = 0;
        }
        waits |= strstr(line, "griddepcontrol.wait") != NULL;
        for (int i = 0; i < COUNT(touches) && !waits; i++)
            touched |= strstr(line, touches[i]) != NULL;
        if (*name && touched && !waits) {
            snprintf(what, sizeof(what), "%s touches memory before it waits:%.60s", name, line);
            return what;
        }
    }
}

/*  What a compilation leaves: its log, and for a success on 9.0 or newer its PTX. The caller frees both. */
typedef struct compiled {
    int failed;
    char *log, *ptx;
} compiled;

static compiled run_compiler(const job *j, const char *text)
{
    char arch[16], defines[160], *position = NULL;
    const char *options[12] = {arch, "-std=c++17", "-default-device", "-Xptxas=-v"};
    const char *headers[IGNIS__SOURCE_MODELS_END], *header_names[IGNIS__SOURCE_MODELS_END];
    int option_count = 4, header_count = 0;
    compiled result = {0, NULL, NULL};
    size_t size = 0;
    nvrtc_program program;
    snprintf(arch, sizeof(arch), "-arch=sm_%s", j->arch);
    snprintf(defines, sizeof(defines), "%s", j->variant);
    for (char *define = strtok_r(defines, " ", &position); define && option_count < COUNT(options);
         define = strtok_r(NULL, " ", &position))
        options[option_count++] = define;
    for (int i = 0; i < IGNIS__SOURCE_MODELS_END; i++) {
        headers[header_count] = texts[i];
        header_names[header_count++] = source_at(i)->name;
    }
    if (nvrtc.CreateProgram(&program, text, program_name(j->program), header_count, headers, header_names))
        abort();
    result.failed = nvrtc.CompileProgram(program, option_count, options) != 0;
    if (nvrtc.GetProgramLogSize(program, &size) || !(result.log = malloc(size)) ||
        nvrtc.GetProgramLog(program, result.log))
        abort();
    if (!result.failed && (nvrtc.GetCUBINSize(program, &size) || size == 0))
        result.failed = 1;
    if (!result.failed && atoi(j->arch) >= 90 &&
        (nvrtc.GetPTXSize(program, &size) || !(result.ptx = malloc(size)) || nvrtc.GetPTX(program, result.ptx)))
        abort();
    nvrtc.DestroyProgram(&program);
    return result;
}

/*  Compiles one kernel of the program without the others, as ignis_embed does. */
static void compile_part(job *j, const char *source)
{
    size_t room = strlen(source) + sizeof KERNEL_PART_BEGIN + (size_t)j->kernels * 256, at = 0;
    char *text = malloc(room);
    compiled part;
    if (!text)
        abort();
    for (int k = 1; k < j->kernels; k++)
        at += (size_t)snprintf(text + at, room - at, KERNEL_LEFT_OUT, j->kernel[k], j->kernel[k], j->kernel[k]);
    snprintf(text + at, room - at, "%s%s", KERNEL_PART_BEGIN, source);
    part = run_compiler(j, text);
    if (part.failed) {
        j->failed = 1;
        free(j->log);
        j->log = part.log;
        part.log = NULL;
    }
    free(part.log);
    free(part.ptx);
    free(text);
}

static void compile(job *j)
{
    int source = programs[j->program].source;
    const char *text = source == -1   ? user_kernel
                       : source == -2 ? planted_kernel
                       : source == -3 ? formula_kernel
                                      : texts[source];
    const char *wrong;
    struct timespec start, end;
    compiled result;

    if (j->skipped)
        return;
    clock_gettime(CLOCK_MONOTONIC, &start);
    result = run_compiler(j, text);
    clock_gettime(CLOCK_MONOTONIC, &end);
    j->milliseconds = (int)(((end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec) / 1000000);
    j->failed = result.failed;
    j->log = result.log;
    wrong = source >= 0 && result.ptx ? check_waits(source, result.ptx) : NULL;
    if (wrong) {
        free(j->log);
        j->log = strdup(wrong);
    }
    free(result.ptx);
    read_log(j);
    if (source == -2 && !strstr(j->variant, "PLANTED=0")) {
        j->failed = !j->failed && !j->spills;
        j->spills = 0;
    }
    if (source >= 0 && !j->failed && has_part(j))
        compile_part(j, text);
}

static void *compile_jobs(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&next_job_lock);
        int i = next_job++;
        pthread_mutex_unlock(&next_job_lock);
        if (i >= job_count)
            return unused;
        compile(jobs[i]);
    }
}

/* >>report ------------------------------------------------------------------------------------------------------ */

/*  One program in one variant: count jobs, one for each architecture, as a table of registers. */
static void print_table(job *const *row, int count)
{
    const job *first = row[count - 1]; /* the newest architecture that is not skipped */
    for (int i = count; i-- > 0 && first->skipped;)
        first = row[i];
    printf("\n%-20s %-33s", program_name(first->program), first->variant);
    for (int i = 0; i < count; i++)
        printf("  sm_%-4s", row[i]->arch);
    printf("\n%-54s", "compile time, ms");
    for (int i = 0; i < count; i++)
        printf("  %7d", row[i]->milliseconds);
    printf("\n");
    for (int k = first->kernels - 1; k >= 0; k--) { /* the compiler takes the last one first */
        printf("    %-50s", first->kernel[k]);
        for (int i = 0; i < count; i++) {
            char text[32];
            int at = snprintf(text, sizeof text, "%d", k < row[i]->kernels ? row[i]->registers[k] : -1);
            if (k < row[i]->kernels && row[i]->spilled[k])
                snprintf(text + at, sizeof text - (size_t)at, "+%d", row[i]->spilled[k]);
            printf("  %7s", text);
        }
        printf("\n");
    }
    for (int i = 0; i < count; i++) {
        if (row[i]->failed || row[i]->spills)
            printf("*** %s for sm_%s:\n%s\n", row[i]->spills ? "SPILLS" : "FAILED", row[i]->arch, row[i]->log);
    }
}

/* >>main -------------------------------------------------------------------------------------------------------- */

/*  Whether a name is one of a list that commas separate. */
static int is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return 1;
    }
    return 0;
}

/*  The architectures that the list names, or all; a list that names none of them, or another, ends the program. */
static int choose_archs(const char *list, const char **chosen)
{
    int count = 0, listed = list != NULL;
    for (const char *at = list; at && *at; at++)
        listed += *at == ',';
    for (int a = 0; a < COUNT(archs); a++)
        if (!list || is_listed(list, archs[a]))
            chosen[count++] = archs[a];
    if (list && count != listed) {
        fprintf(stderr, "nvrtc_check: --archs is %s; it takes some of", list);
        for (int a = 0; a < COUNT(archs); a++)
            fprintf(stderr, "%s%s", a ? "," : " ", archs[a]);
        fprintf(stderr, "\n");
        exit(1);
    }
    return count;
}

int main(int argc, char **argv)
{
    int major = 0, minor = 0, known_count = 0, known[256], failed = 0, spills = 0, chosen_count, arch_count = 0;
    int thread_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *asked = getenv("IGNIS_NVRTC_LIBRARY"), *list = NULL, *only = "";
    const char *chosen[COUNT(archs)], *usable[COUNT(archs)];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--archs") == 0 && i + 1 < argc)
            list = argv[++i];
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--short") == 0)
            shortened = 1;
        else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
            thread_count = atoi(argv[++i]);
        else
            asked = argv[i];
    }
    chosen_count = choose_archs(list, chosen);
    const char *path = open_nvrtc(asked && *asked ? asked : NULL);
    if (!path) {
        printf("skipped: no NVRTC\n");
        return 0;
    }
    if (nvrtc.Version(&major, &minor) || nvrtc.GetNumSupportedArchs(&known_count) || known_count > COUNT(known))
        abort();
    if (nvrtc.GetSupportedArchs(known))
        abort();
    printf("NVRTC %d.%d (%s); registers of each kernel\n", major, minor, path);

    for (int a = 0; a < chosen_count; a++) {
        int is_known = 0;
        for (int i = 0; i < known_count; i++)
            is_known |= known[i] == atoi(chosen[a]);
        if (is_known)
            usable[arch_count++] = chosen[a];
        else
            printf("skipped: sm_%s, which this version does not know\n", chosen[a]);
    }

    for (int i = 0; i < IGNIS__SOURCE_MODELS_END; i++) {
        int listed = strcmp(strrchr(source_at(i)->name, '.'), ".cu") != 0;
        for (int p = 0; p < COUNT(programs); p++)
            listed |= programs[p].source == i;
        if (!listed) {
            fprintf(stderr, "nvrtc_check: the table of programs lacks %s\n", source_at(i)->name);
            return 1;
        }
        texts[i] = join(source_at(i));
    }
    for (int p = 0; p < COUNT(programs) && arch_count; p++) {
        int taken = 0;
        for (int a = 0; a < arch_count; a++)
            taken |= !is_skipped(p, usable[a]);
        if (!strstr(program_name(p), only) || !taken)
            continue;
        for (const char *const *variant = programs[p].variants; *variant; variant++) {
            if (shortened && !is_short(p, *variant))
                continue;
            for (int a = 0; a < arch_count; a++) {
                job *j = calloc(1, sizeof(job));
                if (!j || job_count == MAX_JOBS)
                    abort();
                j->program = p;
                j->variant = *variant;
                j->arch = usable[a];
                j->skipped = is_skipped(p, usable[a]);
                jobs[job_count++] = j;
            }
        }
    }

    if (job_count == 0) {
        fprintf(stderr, "nvrtc_check: nothing to compile\n");
        return 1;
    }

    pthread_t threads[64];
    thread_count = thread_count < 1 ? 1 : thread_count > COUNT(threads) ? COUNT(threads) : thread_count;
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, compile_jobs, NULL))
            abort();
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);

    for (int i = 0; i < job_count; i += arch_count)
        print_table(jobs + i, arch_count);
    for (int i = 0; i < job_count; i++) {
        failed += jobs[i]->failed;
        spills += jobs[i]->spills;
    }
    printf("\nnvrtc_check: %d programs compiled, %d failed, %d spills\n", job_count, failed, spills);
    return failed || spills;
}
