// SPDX-License-Identifier: MIT
/*  bench_parallel.c - data-parallel training of GPT-2 124M: speed by number of GPUs

    Each rank trains on 32 sequences of 1024 tokens, in bf16. Figures are tokens a second of all ranks together, each
    the median of five runs of steps that begin and end with idle ranks: steps called one by one, steps as a CUDA graph,
    and steps without averaging, as N single GPUs would run.

        cc -O2 -I. bench/bench_parallel.c -o bench_parallel -lm -ldl -lpthread
        torchrun --no-python --nproc-per-node 4 ./bench_parallel

    Any launcher that ignis_comm_init knows works; without one it uses one GPU. The argument is the size of buckets in
    MiB (25). For PyTorch: python3 bench/peer_parallel.py
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include "models.h"

typedef struct job {
    gpt gpt;
    ignis_comm comm;
    ignis_comm_info ranks;
    ignis_parallel parallel;
} job;

/*  Measures a step, and prints the row. */
static void measure(job *j, const char *name, void (*step)(void *data))
{
    const double seconds =
        simulated ? median_step_seconds(j->comm, step, j, 1, 1, 1) : median_step_seconds(j->comm, step, j, 3, 5, 10);
    double tokens;
    require(ignis_status_last() == IGNIS_OK, name);
    tokens = (double)(j->ranks.size * j->gpt.sequences * j->gpt.context) / seconds;
    if (j->ranks.rank == 0)
        printf("GPT-2 124M on %d: %-28s %10.1f ktokens/s\n", j->ranks.size, name, tokens / 1e3);
    fflush(stdout);
}

static void step_eager(void *data) { gpt_step(&((job *)data)->gpt); }
static void step_replay(void *data) { REQUIRE(ignis_graph_launch(((job *)data)->gpt.graph)); }
static void step_alone(void *data)
{
    job *j = (job *)data;
    REQUIRE(ignis_parallel_no_sync_begin(j->parallel));
    gpt_step(&j->gpt);
    REQUIRE(ignis_parallel_no_sync_end(j->parallel));
}

int main(int argc, char **argv)
{
    static job j;
    ignis_parallel_desc desc;
    ignis_parallel_info info;
    ignis_device_info device;
    REQUIRE(ignis_setup(NULL));
    j.comm = ignis_comm_init(NULL);
    REQUIRE(ignis_comm_query(j.comm, &j.ranks));
    REQUIRE(ignis_device_use(j.ranks.device));
    REQUIRE(ignis_device_query(j.ranks.device, &device));
    simulated = strstr(device.name, "Simulator") != NULL;
    memset(&desc, 0, sizeof desc);
    desc.bucket_bytes = argc > 1 ? atoll(argv[1]) << 20 : 0;
    gpt_open(&j.gpt, &gpt_124m);
    j.parallel = ignis_parallel_create(j.comm, j.gpt.all, j.gpt.count, &desc);
    REQUIRE(ignis_parallel_query(j.parallel, &info));
    gpt_optimize(&j.gpt);
    if (j.ranks.rank == 0) {
        printf("%d x %s, %s; gradients: %.1f MiB in %d buckets\n", j.ranks.size, device.name, j.ranks.reason,
               (double)info.bytes / (1 << 20), info.buckets);
        if (simulated)
            printf("THIS IS THE SIMULATOR: the sizes are tiny, and the figures mean nothing.\n");
    }
    measure(&j, "called one by one", step_eager);
    if (j.ranks.size > 1)
        measure(&j, "gradients not averaged", step_alone);
    wait_for_ranks(j.comm);
    REQUIRE(ignis_graph_begin());
    gpt_step(&j.gpt);
    j.gpt.graph = ignis_graph_end();
    require(j.gpt.graph.id != 0, "the capture");
    measure(&j, "CUDA graph", step_replay);
    REQUIRE(ignis_graph_free(j.gpt.graph));
    REQUIRE(ignis_parallel_free(j.parallel));
    gpt_close(&j.gpt);
    REQUIRE(ignis_comm_destroy(j.comm));
    REQUIRE(ignis_shutdown());
    return 0;
}
