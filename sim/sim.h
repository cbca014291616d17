// SPDX-License-Identifier: MIT
/*  sim.h - the seam inside the simulator

    The simulator is three shared libraries that stand in for NVIDIA's:

        libcuda.so.1     driver/ (the driver API) + executor.cpp (runs kernels)
        libnvrtc.so      nvrtc.c  (turns CUDA C into a shared object with the host's C++ compiler)
        libcublasLt.so   cublaslt.c (matrix products on the CPU)

    An "image" (what nvrtcGetCUBIN returns and cuModuleLoadData takes) is the ELF shared object itself.
    This file is what driver/ needs of executor.cpp, and nothing else.
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
    const char *name; /* lowered name, the one cuModuleGetFunction is asked for */
    int param_count;
    const size_t *param_sizes;   /* bytes of each parameter */
    const size_t *param_offsets; /* offsets in the packed parameter buffer, as the CUDA ABI lays them out */
    int max_threads;             /* from __launch_bounds__, else 1024 */
    size_t static_shared;        /* bytes of static __shared__ memory, 0 where it is not known */
    int spins;                   /* it may wait for what other launches, devices or processes write */
    int cluster;                 /* blocks of a cluster, from __cluster_dims__, else 1 */
} sim_kernel;

typedef struct sim_module sim_module;

/* Load an image. Every load has its own copy of __device__ variables. Returns a result code. */
int sim_module_load(const void *image, sim_module **out);
void sim_module_unload(sim_module *module);
const sim_kernel *sim_module_kernel(sim_module *module, const char *name); /* NULL: not found */
int sim_module_global(sim_module *module, const char *name, void **ptr, size_t *bytes);

/* What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col write: 128 bytes that a kernel hands on to its bulk copies. Its first dimension is
   the fastest. */
typedef struct sim_tensor_map {
    char magic[8];
    uint64_t base;
    uint64_t dims[5], strides[5];   /* elements; bytes, strides[0] is an element */
    uint16_t box[5];                /* elements; im2col: channels, pixels */
    int16_t lower[3], upper[3];     /* im2col: corners of the box of pixels, from the first and the last pixel of dimensions 1 ... */
    uint8_t rank, element, swizzle; /* element: its bytes; swizzle: 0 none, 1 32 bytes, 2 64, 3 128 */
    uint8_t type, fill;             /* CUtensorMapDataType; what lies outside reads as 0: zeros, 1: NaN */
    uint8_t im2col, steps[3];       /* whether it is of im2col, and then from pixel to pixel of dimensions 1 ... */
    uint8_t rest[1];
} sim_tensor_map;
#define SIM_TENSOR_MAGIC "simtile"

/* What one launch may run on; the driver fills it from the simulated device. */
typedef struct sim_launch {
    unsigned grid[3], block[3];
    size_t dynamic_shared; /* bytes */
    int warp_size;         /* 32 */
    int device;            /* for messages only */
    int together;          /* all blocks have to run at the same time: at most SIM_MAX_TOGETHER of them */
    int must_wait;         /* each thread has to run griddepcontrol.wait: on a real device earlier work may still run before that */
} sim_launch;

/* Run one kernel to its end on the calling thread (blocks may be spread over the executor's own threads).
   args[i] points at the i-th argument. Returns a result code; on failure `text` says what happened and where:
   kernel, block, thread, file and line as far as they are known. */
int sim_execute(const sim_kernel *kernel, const sim_launch *launch, void *const *args, char *text, size_t text_size);

/* True for an address inside simulated device memory of any device (implemented by driver/; lets the executor
   tell a wild access of a kernel from a crash of the host program). `what` gets a sentence about the nearest block. */
int sim_address_describe(const void *address, char *what, size_t what_size);

/* Whether blocks of a cluster can run side by side: not under a sanitizer. */
int sim_has_clusters(void);

/* The result code of a fault that has ended all work of the process, or SIM_OK (implemented by driver/). */
int sim_fault(void);

#ifdef __cplusplus
}
#endif
#endif
