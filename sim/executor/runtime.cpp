// SPDX-License-Identifier: MIT
/*  runtime.cpp - the table of functions that kernels call, and the end of a thread

    The functions run on the fiber of the calling CUDA thread. shim_abi.h declares the table.
*/

static void runtime_set_registers(unsigned count, int more, sim_place at)
{
    worker *w = this_worker;
    async *a = w->async;
    unsigned t = w->current;
    refuse_in_loop(w, "setmaxnreg", at);
    if (count < 24 || count > 256 || count % 8 || (!more && count > a->registers[t])) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "setmaxnreg.%s to %u from %u registers: it takes multiples of 8 from 24 to 256, in its direction",
                 more ? "inc" : "dec", count, a->registers[t]);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    while (a->registers_used - a->registers[t] + count > a->registers_all) {
        w->threads[t].state = AT_REGISTERS;
        w->threads[t].at = at;
        a->short_of_registers[a->short_count++] = (unsigned short)t;
        give_way(w);
    }
    a->registers_used += count - a->registers[t];
    a->registers[t] = count;
    count_progress(w);
    while (!more && a->short_count)
        make_ready(w, a->short_of_registers[--a->short_count]);
}

static void runtime_wgmma(sim_wgmma *product)
{
    runtime_warp(~0u, issue_product, product, 0, "wgmma.mma_async", sim_place{NULL, 0});
}

static void runtime_wgmma_wait(unsigned pending)
{
    runtime_warp(~0u, finish_products, &pending, 0, "wgmma.wait_group", sim_place{NULL, 0});
}

static sim_runtime runtime = {0,
                              runtime_barrier,
                              runtime_arrive,
                              runtime_warp,
                              runtime_live_lanes,
                              runtime_yield,
                              runtime_fail,
                              runtime_poll,
                              runtime_waited,
                              runtime_copies,
                              runtime_mbarrier_init,
                              runtime_mbarrier_arrive,
                              runtime_mbarrier_wait,
                              runtime_bulk_load,
                              runtime_bulk_store,
                              runtime_tensor_load,
                              runtime_tensor_store,
                              runtime_bulk_commit,
                              runtime_bulk_wait,
                              runtime_wrote_shared,
                              runtime_fence_async,
                              runtime_set_registers,
                              runtime_wgmma,
                              runtime_wgmma_commit,
                              runtime_wgmma_wait,
                              runtime_cluster_arrive,
                              runtime_cluster_wait,
                              runtime_cluster_memory,
                              runtime_bulk_source,
                              runtime_cluster_store,
                              runtime_cluster_signal,
                              runtime_tensor_multicast};

/* Ends a thread. Others may have waited for it only. */
static void thread_exit(worker *w)
{
    unsigned warp_index = w->current / SIM_WARP;
    warp *p = &w->warps[warp_index];
    if (w->async)
        async_thread_exits(w);
    count_progress(w);
    w->threads[w->current].state = DONE;
    w->live--;
    p->live &= ~(1u << (w->current % SIM_WARP));
    p->exited |= 1u << (w->current % SIM_WARP);
    for (unsigned i = 0; i < p->op_count;) {
        warp_op *op = &p->ops[i];
        if (settings.strict && (op->mask & p->exited)) {
            char sentence[200];
            snprintf(sentence, sizeof sentence, "this thread exited while lanes %08x wait for it in %s", op->arrived,
                     op->what);
            give_up(w, SIM_LAUNCH_FAILED, sentence, op->at);
        }
        if (op->arrived == (op->mask & p->live))
            warp_complete(w, warp_index, op, 0);
        else
            i++;
    }
    barrier *b = &w->barriers[0];
    if (b->arrived && !b->expected && settings.strict)
        give_up(w, SIM_LAUNCH_FAILED, "this thread exited while others wait for it in __syncthreads", b->at);
    if (!b->expected && barrier_complete(w, b))
        barrier_release(w, b, SIM_BARRIER_SYNC);
    if (w->cluster)
        cluster_block_arrives(w);
}
