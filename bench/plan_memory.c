// SPDX-License-Identifier: MIT
/*  plan_memory.c - the memory that a rank needs to train a Llama of 1B to 70B, for each kind of shard, on 1 to 64 ranks

    A dry run of two steps for each number: nothing is allocated, and no GPU is needed. bf16 with AdamW, sequences of
    2048 tokens, one for each rank. docs/scaling.md has the tables.

        cc -O2 -I. bench/plan_memory.c -o plan_memory -lm -ldl -lpthread
        ./plan_memory [all | keep-products | offload | none [SEQUENCES [LENGTH]]]   each kind of shard, on 1 to 64 ranks
        ./plan_memory activations                                                   each kind of recomputing, on 8 ranks

    Numbers are the peak of a rank's arrays in GiB, and behind them the smallest GPU of 24, 80 and 141 GB in which that
    and 1 GiB for the driver fit. *: the peak is that of the beginning, when each rank has whole parameters. Buffers
    between GPUs are not in a dry run.
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include "models.h"

static const int rank_counts[] = {1, 2, 4, 8, 16, 32, 64};

enum { COUNTS = sizeof rank_counts / sizeof rank_counts[0] };

typedef struct plan {
    const llama_shape *shape;
    ignis_shard shard;
    int ranks;
    llama_recompute recompute;
    int64_t sequences, length; /* of a rank */
} plan;

/*  GPUs by what is printed, and the GiB that programs get of them. */
static const struct {
    const char *name;
    double memory;
} gpus[] = {{"24", 23.5}, {"80", 79.1}, {"141", 139.8}};

/*  Returns the peak of a rank's arrays in GiB. *begins: it is that before the first step. */
static double peak_of(const plan *p, bool *begins)
{
    static llama l;
    static ignis_device_info device; /* facts that are 0 are those of an H200 */
    llama_shape shape = *p->shape;
    ignis_parallel_desc parallel_desc;
    ignis_comm_desc comm_desc;
    ignis_memory_info before, memory;
    ignis_parallel parallel;
    ignis_desc desc;
    ignis_comm comm;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&comm_desc, 0, sizeof comm_desc);
    memset(&parallel_desc, 0, sizeof parallel_desc);
    device.memory_total = (int64_t)1 << 44;
    desc.dry_run = true, desc.dry_device = &device;
    REQUIRE(ignis_setup(&desc));
    comm_desc.size = p->ranks;
    comm = ignis_comm_init(&comm_desc);
    require(comm.id != 0, "ignis_comm_init");
    shape.sequences = p->sequences;
    llama_open_with(&l, &shape, p->length);
    l.recompute = p->recompute;
    parallel_desc.shard = p->shard;
    if (p->shard == IGNIS_SHARD_PARAMETERS)
        parallel_desc.bucket_bytes = parallel_desc.first_bucket_bytes = llama_layer_bytes(&l);
    parallel = ignis_parallel_create(comm, l.all, l.count, &parallel_desc);
    require(parallel.id != 0, "ignis_parallel_create");
    REQUIRE(ignis_memory_query(0, &before));
    llama_optimize(&l);
    for (i = 0; i < 2; i++)
        llama_step(&l);
    REQUIRE(ignis_memory_query(0, &memory));
    REQUIRE(ignis_parallel_free(parallel));
    llama_close(&l);
    REQUIRE(ignis_comm_destroy(comm));
    REQUIRE(ignis_shutdown());
    *begins = memory.live_peak == before.live_peak;
    return (double)memory.live_peak / (double)(1 << 30);
}

static void print_cell(const plan *p)
{
    bool begins;
    const double peak = peak_of(p, &begins);
    size_t i = 0;
    while (i < sizeof gpus / sizeof gpus[0] && peak + 1 > gpus[i].memory)
        i++;
    printf(" %.1f%s %s |", peak, begins ? "*" : "", i < sizeof gpus / sizeof gpus[0] ? gpus[i].name : "-");
    fflush(stdout);
}

/*  Prints the lines below the names of `count` columns. */
static void print_rule(int count)
{
    printf("\n|");
    while (count-- > 0)
        printf("---|");
}

static void print_shards(plan *p)
{
    int model, k;
    printf("| model | `shard` |");
    for (k = 0; k < COUNTS; k++)
        printf(" %d |", rank_counts[k]);
    print_rule(2 + COUNTS);
    for (model = 0; model < LLAMA_SHAPES; model++) {
        p->shape = &llama_shapes[model];
        for (p->shard = IGNIS_SHARD_NONE; p->shard <= IGNIS_SHARD_PARAMETERS; p->shard = (ignis_shard)(p->shard + 1)) {
            printf("\n| %s | %s |", p->shape->name, shard_names[p->shard]);
            for (k = 0; k < COUNTS; k++) {
                p->ranks = rank_counts[k];
                print_cell(p);
            }
        }
    }
}

static void print_activations(plan *p)
{
    static const int64_t lengths[] = {2048, 8192, 32768};
    int model, k, i;
    printf("| model |");
    for (k = 0; k < 3; k++)
        for (i = 0; i < LLAMA_RECOMPUTES; i++)
            printf(" %lld, %s |", (long long)lengths[k], llama_recomputes[i]);
    print_rule(1 + 3 * LLAMA_RECOMPUTES);
    p->shard = IGNIS_SHARD_PARAMETERS, p->ranks = 8, p->sequences = 1;
    for (model = 0; model < LLAMA_SHAPES; model++) {
        p->shape = &llama_shapes[model];
        printf("\n| %s |", p->shape->name);
        for (k = 0; k < 3; k++)
            for (i = 0; i < LLAMA_RECOMPUTES; i++) {
                p->length = lengths[k], p->recompute = (llama_recompute)i;
                print_cell(p);
            }
    }
}

int main(int argc, char **argv)
{
    plan p;
    memset(&p, 0, sizeof p);
    if (argc > 1 && strcmp(argv[1], "activations") == 0) {
        print_activations(&p);
    } else {
        p.recompute = argc > 1 ? (llama_recompute)find_name(argv[1], llama_recomputes, LLAMA_RECOMPUTES) : LLAMA_ALL;
        p.sequences = argc > 2 ? atoll(argv[2]) : 1;
        p.length = argc > 3 ? atoll(argv[3]) : 2048;
        print_shards(&p);
    }
    printf("\n");
    return 0;
}
