// SPDX-License-Identifier: MIT
/*  shim_abi.h - the interface between a compiled kernel module and the executor

    A module (the shared object that the NVRTC stand-in makes) exports one symbol, `sim_module_info`. The executor
    passes it a table of functions at load time: libcuda is opened with RTLD_LOCAL, so a module could not find them by
    name. executor.cpp includes this file, and it is the first part of the shim that every kernel is compiled with;
    therefore it uses no header.
*/
#ifndef SIM_SHIM_ABI_H
#define SIM_SHIM_ABI_H

#define SIM_ABI_VERSION 5
#define SIM_WARP 32

enum { SIM_LANE_PLAIN, SIM_LANE_ADDRESS, SIM_LANE_THREAD }; /* the sanitizer that a module was built with */
/* Kernel flags: never waits; uses __shared__; may wait for what other blocks, devices or processes write; has bulk
   copies, barriers in shared memory or products of warpgroups. */
enum { SIM_KERNEL_LOOP = 1, SIM_KERNEL_SHARED = 2, SIM_KERNEL_SPINS = 4, SIM_KERNEL_ASYNC = 8 };
enum { SIM_BARRIER_SYNC, SIM_BARRIER_COUNT, SIM_BARRIER_AND, SIM_BARRIER_OR };

/* A source position, for messages. */
typedef struct sim_place {
    const char *file;
    int line;
} sim_place;

/* The common state of a block's threads, copied into the module before the block begins. */
typedef struct sim_block {
    unsigned index[3], block_dim[3], grid_dim[3];
    void *dynamic_shared; /* 1024-byte aligned */
    unsigned long long dynamic_size;
    unsigned long long stamp; /* different for every block run: static shared memory is filled again on a change */
    unsigned processor;       /* %smid: the OS thread of the executor */
    int tracked;              /* wrote_shared has to be called */
} sim_block;

/* A cp.async that was issued and not waited for: only the wait stores the data. */
typedef struct sim_copy {
    void *to;
    unsigned bytes, group;
    unsigned char data[16];
} sim_copy;

typedef struct sim_copies {
    sim_copy *items;
    unsigned count, capacity, group; /* group: number of cp.async.commit_group so far */
} sim_copies;

/* Runs a warp-wide operation when all lanes have arrived. records[lane] is that lane's record. */
typedef void (*sim_combine)(void *const *records, unsigned lanes);

/* A product of a warpgroup, as one of its threads issues it: C += A B, C is 64 x n. */
enum { SIM_WGMMA_BF16, SIM_WGMMA_F16, SIM_WGMMA_TF32, SIM_WGMMA_E4M3, SIM_WGMMA_E5M2 };
typedef struct sim_wgmma {
    float *c; /* its n / 2 elements */
    int n, kind, keep, transpose_a, transpose_b, in_registers;
    unsigned long long a, b; /* descriptors */
    unsigned words[4];       /* A, if it is in registers */
} sim_wgmma;

/* The begin of a tensor's tile, and the offsets of the pixels that im2col reads. */
typedef struct sim_coordinates {
    int at[5], offset[3];
} sim_coordinates;

typedef struct sim_runtime {
    int strict;
    /* Waits for `count` threads (0: all) at barrier `id`; returns the reduction of `predicate`. */
    int (*barrier)(unsigned id, unsigned count, int reduction, int predicate, sim_place at);
    void (*arrive)(unsigned id, unsigned count, sim_place at);
    /* Waits for all lanes of `mask`. `fence`: memory written before is visible afterwards. */
    void (*warp)(unsigned mask, sim_combine combine, void *record, int fence, const char *what, sim_place at);
    unsigned (*live_lanes)(void);
    void (*yield)(void); /* lets other threads run; every loop that spins must call it */
    void (*fail)(int code, const char *text, sim_place at); /* ends the launch, does not return */
    /* Reports an ordered load; lets others run, in this block and in other processes, if it returned the same
       before. */
    void (*poll)(const void *address, unsigned long long value);
    void (*waited)(void);            /* for earlier work, by griddepcontrol.wait */
    sim_copies *(*copies)(int grow); /* this thread's pending cp.async, with space for one more if `grow` */

    /* For sm_90a, see executor/hopper.cpp. Addresses are generic ones. */
    void (*mbarrier_init)(void *barrier, unsigned arrivals, sim_place at);
    void (*mbarrier_arrive)(void *barrier, unsigned bytes, sim_place at); /* bytes of copies that it announces */
    int (*mbarrier_wait)(void *barrier, unsigned parity, int may_wait, sim_place at); /* whether that phase is over */
    void (*bulk_load)(void *to, const void *from, unsigned bytes, void *barrier, sim_place at);
    void (*bulk_store)(void *to, void *from, unsigned bytes, int adds, sim_place at);
    /* A rank below 0: im2col. */
    void (*tensor_load)(void *to, const void *map, sim_coordinates where, int rank, void *barrier, sim_place at);
    void (*tensor_store)(const void *map, sim_coordinates where, int rank, void *from, int adds, sim_place at);
    void (*bulk_commit)(void);
    void (*bulk_wait)(unsigned pending, int read_only);
    void (*wrote_shared)(const void *to, unsigned bytes); /* this thread wrote it with plain stores */
    void (*fence_async)(void);
    void (*set_registers)(unsigned count, int more, sim_place at);
    void (*wgmma)(sim_wgmma *product);
    void (*wgmma_commit)(void);
    void (*wgmma_wait)(unsigned pending);

    /* The barrier of a cluster, and the dynamic shared memory of one of its blocks. */
    void (*cluster_arrive)(sim_place at);
    void (*cluster_wait)(sim_place at);
    char *(*cluster_memory)(unsigned block, unsigned offset, unsigned bytes, sim_place at);
    /* The asynchronous proxy will read these bytes. */
    void (*bulk_source)(const void *from, unsigned bytes, sim_place at);
    /* Sends bytes to a block, counted as those of a copy at an mbarrier there. */
    void (*cluster_store)(unsigned block, unsigned offset, const void *from, unsigned bytes, unsigned barrier,
                          sim_place at);
    /* Arrives at an mbarrier of a block. */
    void (*cluster_signal)(unsigned block, unsigned barrier, sim_place at);
    void (*tensor_multicast)(void *to, const void *map, sim_coordinates where, int rank, void *barrier, unsigned blocks,
                             sim_place at);
} sim_runtime;

typedef struct sim_entry_point {
    const char *name;    /* lowered name */
    const void *address; /* of the kernel function, to find its mangled name; 0 if not needed */
    /* Runs the threads of the box begin..end one after the other. */
    void (*run)(void *const *args, const unsigned *begin, const unsigned *end);
    int param_count;
    const __SIZE_TYPE__ *sizes, *offsets;
    int max_threads, cluster; /* blocks of a cluster, along x */
    unsigned flags;
} sim_entry_point;

typedef struct sim_module_info_t {
    int abi, lane;
    const sim_entry_point *entries;
    int entry_count;
    const sim_runtime **runtime;
    void (*enter)(const sim_block *block);
} sim_module_info_t;

#endif
