#pragma once
/*  The layout of a rank's region, and the structs of the kernels of communicators; kernels/collective.cuh explains the
    protocol. */
#ifndef IGNIS__COMM_DATA_MIB
#define IGNIS__COMM_DATA_MIB 24
#endif

enum {
    IGNIS__COMM_BLOCKS = 256, /* of a kernel, at most */
    IGNIS__COMM_LANES = 64,   /* blocks of one direction of a pair, at most */
    IGNIS__COMM_FLAGS = 4096, /* offsets into the region, and sizes of its buffers; control is at 0 */
    IGNIS__COMM_PAIRS = IGNIS__COMM_FLAGS + 4 * IGNIS__COMM_BLOCKS * 128,
    IGNIS__COMM_PACKETS = 1 << 18,
    IGNIS__COMM_PACKETS_SIZE = 4 << 20, /* of one set and phase */
    IGNIS__COMM_DATA = IGNIS__COMM_PACKETS + 4 * IGNIS__COMM_PACKETS_SIZE,
    IGNIS__COMM_DATA_SIZE = IGNIS__COMM_DATA_MIB << 20, /* of one set and phase */
    IGNIS__COMM_PAIR_DATA = IGNIS__COMM_DATA + 4 * IGNIS__COMM_DATA_SIZE,
    IGNIS__COMM_PAIR_SLOT = 16 << 10,
    IGNIS__COMM_PAIR_SLOTS = 4,
    IGNIS__COMM_ONE_PHASE_SLOTS = 4, /* steps that an operation may be in advance; see the kernels */
    IGNIS__COMM_TWO_PHASE_SLOTS = 3
};

/*  Codes of what broke a communicator. */
enum {
    IGNIS__COMM_FINE,
    IGNIS__COMM_TIMEOUT,
    IGNIS__COMM_MISMATCH,
    IGNIS__COMM_PEER,
    IGNIS__COMM_TWICE,
    IGNIS__COMM_NCCL_FAILED /* found by the host */
};

/*  The record, in pinned host memory. */
typedef struct ignis__comm_record {
    uint64_t abort; /* the host's request that kernels return: code, and peer << 8 */
    uint64_t code;  /* written last */
    uint32_t peer;
    uint32_t reporter;
    uint32_t op;
    uint64_t mine, theirs; /* fingerprints */
    uint64_t nccl;         /* the number of NCCL's running operation; 0: none */
} ignis__comm_record;
IGNIS__ASSERT_SIZE(ignis__comm_record, 56);

/*  The state, in memory of this rank alone. */
typedef struct ignis__comm_state {
    uint32_t op[IGNIS__COMM_BLOCKS]; /* the last one, counted by each block */
    uint32_t broken;                 /* a code */
    uint32_t running;                /* kernels, except for pairs */
    uint32_t rank, size;
    IGNIS__POINTER(ignis__comm_record) record;
    IGNIS__POINTER(char) region[8];
    uint32_t sent[8][IGNIS__COMM_LANES], received[8][IGNIS__COMM_LANES]; /* steps of pairs */
    uint64_t marks;                                                      /* operations of NCCL */
    uint64_t byte;                                                       /* for barriers by NCCL; not read by kernels */
} ignis__comm_state;
IGNIS__ASSERT_SIZE(ignis__comm_state, 5224);

/*  Arguments of a launch. A slice is what one rank sends to or takes from another. */
typedef struct ignis__comm_call {
    IGNIS__POINTER(char) region[8];
    IGNIS__POINTER(ignis__comm_state) state;
    IGNIS__POINTER(const char) in;
    IGNIS__POINTER(char) out;
    long long count;                 /* elements of a slice; of all slices together in operations of two phases */
    long long in_stride, out_stride; /* bytes from slice to slice */
    long long timeout_ns;
    uint64_t fingerprint;
    uint64_t fingerprint_in; /* of pairs: of the received message */
    int rank;
    /* packs of 16 bytes that a block moves of each slice in a step; packets of a slice for LL in two phases */
    int chunk;
    int steps;
    uint32_t push, take; /* ranks to which this one pushes, and from which it takes */
    uint32_t push_two;   /* as push, for the second phase */
    uint32_t take_two;
    int root;                    /* the rank whose data are copied */
    int none;                    /* the rank without a slice of a tile; the number of ranks: none */
    int in_aligned, out_aligned; /* every slice begins at a multiple of 16 bytes */
    int keep;                    /* this rank's own slice is copied to its output */
} ignis__comm_call;
IGNIS__ASSERT_SIZE(ignis__comm_call, 184);
