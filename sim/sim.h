// SPDX-License-Identifier: MIT
/*  sim.h - the interface between the driver and the executor of the simulator

    The simulator is three shared libraries that stand in for NVIDIA's:

        libcuda.so.1     driver/ (the driver API) + executor.cpp (runs kernels)
        libnvrtc.so      nvrtc.c  (turns CUDA C into a shared object with the host's C++ compiler)
        libcublasLt.so   cublaslt.c (matrix products on the CPU)

    An "image" (the result of nvrtcGetCUBIN, the argument of cuModuleLoadData) is the ELF shared object itself.
    This file has only what driver/ needs of executor.cpp.
*/
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The driver's result codes that the executor can produce. */
enum {
    SIM_OK = 0,
    SIM_INVALID_VALUE = 1,
    SIM_OUT_OF_MEMORY = 2,
    SIM_INVALID_IMAGE = 200,
    SIM_NOT_FOUND = 500,
    SIM_ILLEGAL_ADDRESS = 700,
    SIM_ASSERT = 710,
    SIM_ILLEGAL_INSTRUCTION = 715,
    SIM_MISALIGNED_ADDRESS = 716,
    SIM_LAUNCH_FAILED = 719,
    SIM_INVALID_CLUSTER = 912
};

#define SIM_MAX_PARAMS 128
#define SIM_MAX_TOGETHER 132 /* blocks of one launch that can wait for each other */

/* One kernel of a loaded module. The driver copies the arguments at launch time from these sizes. */
typedef struct sim_kernel {
    const char *name; /* lowered name, as for cuModuleGetFunction */
    int param_count;
    const size_t *param_sizes;   /* bytes of each parameter */
    const size_t *param_offsets; /* offsets in the packed parameter buffer, in the layout of the CUDA ABI */
    int max_threads;             /* from __launch_bounds__, else 1024 */
    size_t static_shared;        /* bytes of static __shared__ memory, 0 if not known */
    int spins;                   /* it may wait for what other launches, devices or processes write */
    int cluster;                 /* blocks of a cluster, from __cluster_dims__, else 1 */
} sim_kernel;

typedef struct sim_module sim_module;

/* Loads an image. Every load has its own copy of __device__ variables. Returns a result code. */
int sim_module_load(const void *image, sim_module **out);
void sim_module_unload(sim_module *module);
const sim_kernel *sim_module_kernel(sim_module *module, const char *name); /* NULL if it is not found */
int sim_module_global(sim_module *module, const char *name, void **ptr, size_t *bytes);

/* A tensor map as cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col write it: 128 bytes that a kernel passes
   to its bulk copies. The first dimension is the fastest. */
typedef struct sim_tensor_map {
    char magic[8];
    uint64_t base;
    uint64_t dims[5], strides[5]; /* elements; bytes, strides[0] is an element */
    uint16_t box[5];              /* elements; im2col: channels, pixels */
    int16_t lower[3],
        /* im2col: corners of the box of pixels, relative to the first and the last pixel of dimensions 1 ... */
        upper[3];
    uint8_t rank, element, swizzle; /* element: its bytes; swizzle: 0 none, 1 32 bytes, 2 64, 3 128 */
    uint8_t type, fill;             /* CUtensorMapDataType; elements outside are 0: zeros, 1: NaN */
    uint8_t im2col, steps[3];       /* whether it is an im2col map, and the steps between pixels of dimensions 1 ... */
    uint8_t rest[1];
} sim_tensor_map;
#define SIM_TENSOR_MAGIC "simtile"

/* The sizes and properties of a launch; the driver fills it from the simulated device. */
typedef struct sim_launch {
    unsigned grid[3], block[3];
    size_t dynamic_shared; /* bytes */
    int warp_size;         /* 32 */
    int device;            /* for messages only */
    int together;          /* all blocks have to run at the same time; at most SIM_MAX_TOGETHER */
    int must_wait; /* each thread has to run griddepcontrol.wait: on a real device earlier work may run until then */
} sim_launch;

/* Runs one kernel to its end on the calling thread; the executor's own threads may run some blocks. args[i]
   points to the i-th argument. Returns a result code; on failure `text` has what happened and where: kernel,
   block, thread, file and line as far as they are known. */
int sim_execute(const sim_kernel *kernel, const sim_launch *launch, void *const *args, char *text, size_t text_size);

/* Tells whether an address is inside simulated device memory. The driver implements it, so that the executor
   can tell a wild access of a kernel from a crash of the host program. `what` gets a sentence about the
   nearest block. */
int sim_address_describe(const void *address, char *what, size_t what_size);

/* Tells whether blocks of a cluster can run at the same time: not under a sanitizer. */
int sim_has_clusters(void);

/* Returns the code of a fault that has ended all work of the process, or SIM_OK. The driver implements it. */
int sim_fault(void);

#ifdef __cplusplus
}
#endif
#endif
