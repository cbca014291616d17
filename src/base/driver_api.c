/* ===============================================================================================================
   >>loader - the driver, NVRTC and cuBLASLt, opened at run time from one table per library

   A row of the table becomes a typedef, a member of the struct of pointers and a name to look up. A required
   function that is missing makes the library unusable; an optional one is NULL.
   May use: >>status. Locks: see loader.c.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE struct ignis__cuda_api ignis__cuda;

IGNIS__PRIVATE struct ignis__nvrtc_api ignis__nvrtc;

IGNIS__PRIVATE struct ignis__cublaslt_api ignis__cublaslt;

IGNIS__PRIVATE struct ignis__nccl_api ignis__nccl;
