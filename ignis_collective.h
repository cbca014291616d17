/*  ignis_collective.h - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    Part of Ignis; MIT licence, at the end of ignis.h.

    HOW TO USE

        Copy ignis.h, ignis_kernels.h and ignis_collective.h into your project. In ONE C or C++ file:

            #define IGNIS_IMPLEMENTATION
            #include "ignis_collective.h"

        It includes ignis.h, and is built in the same way. NCCL is needed for nothing on one host of up to 8 GPUs; where it is installed it
        is used for what it does best.
*/
#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#include "ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>vmm --------------------------------------------------------------------------------------------------------- */

/* >>channel ----------------------------------------------------------------------------------------------------- */

/* >>transport --------------------------------------------------------------------------------------------------- */

/* >>comm -------------------------------------------------------------------------------------------------------- */

#define IGNIS_COMM_MAX_RANKS 8 /* of Ignis' own kernels; beyond, NCCL does the work */

/*  A communicator: what one rank of a group of GPUs holds. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

typedef enum ignis_op { IGNIS_OP_SUM, IGNIS_OP_PROD, IGNIS_OP_MIN, IGNIS_OP_MAX, IGNIS_OP_AVG, IGNIS_OP_COUNT } ignis_op;

/* >>parallel ---------------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED

/* ===============================================================================================================
   >>vmm - physical memory, address ranges, mappings, access; export and import.
   =============================================================================================================== */

/* ===============================================================================================================
   >>channel - how a handle travels: unix socket, named pipe, shared memory.
   =============================================================================================================== */

/* ===============================================================================================================
   >>transport - VMM, legacy IPC, peer copy, host-staged: one table of functions each.
   =============================================================================================================== */

/* ===============================================================================================================
   >>nccl - NCCL, opened at run time.
   =============================================================================================================== */

/* ===============================================================================================================
   >>job - the processes of one program: how they meet, what they tell each other, who died.
   =============================================================================================================== */

/* ===============================================================================================================
   >>comm - communicators and collective operations.
   =============================================================================================================== */

/* --- the communicator, its region, its kernels ------------------------------------------------------------------------ */

/* --- operations ------------------------------------------------------------------------------------------------------- */

/* --- making, splitting, ending ---------------------------------------------------------------------------------------- */

/* ===============================================================================================================
   >>parallel - data-parallel training.
   =============================================================================================================== */

#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */
