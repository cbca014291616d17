/*  >>comm.synchronize - waiting for the operations of a communicator

    Waits for the streams of a communicator and reports what broke it.
    Uses: communicators, NCCL's errors.
    Invariants: the wait is bounded by the deadlines of kernels and of ignis__comm_check_nccl_deadline.
    Locks: none while waiting. */

#include "room.h"

IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm handle)
{
    static const char call[] = "ignis_comm_synchronize";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__work work;
    void *last;
    bool ok;
    if (!comm)
        return ignis__failed();
    ok = !ignis__capture_refuses(call) && ignis__work_begin(call, comm->device, &work);
    /* bounded by the deadlines of kernels; for NCCL by ignis__comm_check_nccl_deadline, which asks it for
       errors meanwhile */
    if (ok) {
        ignis__mutex_lock(&comm->slot.lock);
        last = comm->stream && comm->stream != work.stream && ignis__comm_stream_exists(work.device, comm->stream)
                   ? comm->stream
                   : NULL;
        ignis__mutex_unlock(&comm->slot.lock);
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) &&
             (!last || !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (last)));
        ignis__work_end(&work);
    }
    if (ok)
        ignis__comm_nccl_check(comm);
    return ignis__comm_end_call(call, comm, ok);
}
