// SPDX-License-Identifier: MIT
/*  test_dry_ranks.c - dry runs of a rank: its memory is that of a rank among others, for each kind of shards */
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

enum { RANKS_MAX = 4, STEPS = 2, WIDTH = 96, ROWS = 8, LAYERS = 3, PARAMETERS = 2 * LAYERS, ROWS_MAX = 64 };

/*  The memory of a rank at its peak. */
typedef struct use {
    ignis_memory_info info;
    ignis_memory_row rows[ROWS_MAX];
    int row_count;
} use;

typedef struct member {
    ignis_comm comm;
    ignis_shard shard;
    int shard_ranks;
    bool gathers; /* saves the training, too */
    use memory;
} member;

/*  Trains two steps of a small network, as any program of several ranks does. */
static void train(member *r)
{
    ignis_tensor all[PARAMETERS], input, targets, x;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    ignis_parallel_desc parallel_desc;
    ignis_training_desc training_desc;
    ignis_adamw_desc adamw;
    ignis_optimizer optimizer;
    ignis_parallel parallel;
    ignis_training training;
    ignis_comm_info info;
    ignis_scope scope;
    int i, step;
    CHECK_OK(ignis_comm_query(r->comm, &info));
    CHECK_OK(ignis_device_use(info.device));
    for (i = 0; i < LAYERS; i++) {
        all[2 * i] = tensor_counting(IGNIS_SHAPE(WIDTH, WIDTH), IGNIS_BF16, 1e-6, true);
        all[2 * i + 1] = tensor_counting(IGNIS_SHAPE(WIDTH), IGNIS_BF16, 1e-4, true);
    }
    input = tensor_counting(IGNIS_SHAPE(ROWS, WIDTH), IGNIS_BF16, 1e-4, false);
    targets = tensor_counting(IGNIS_SHAPE(ROWS), IGNIS_I32, 1, false);
    memset(&parallel_desc, 0, sizeof parallel_desc);
    memset(&training_desc, 0, sizeof training_desc);
    memset(&adamw, 0, sizeof adamw);
    parallel_desc.shard = r->shard;
    parallel_desc.shard_ranks = r->shard_ranks;
    parallel_desc.bucket_bytes = parallel_desc.first_bucket_bytes = 20000;
    parallel = ignis_parallel_create(r->comm, all, PARAMETERS, &parallel_desc);
    CHECK(parallel.id);
    adamw.zero_grad = true;
    optimizer = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(optimizer, all[i], true));
    training_desc.names = names, training_desc.tensors = all, training_desc.count = PARAMETERS;
    training_desc.optimizers = &optimizer, training_desc.optimizer_count = 1;
    training_desc.ranks = ignis_comm_ranks(r->comm);
    training = ignis_training_create(&training_desc);
    CHECK(training.id);
    for (step = 0; step < STEPS; step++) {
        scope = ignis_scope_begin();
        for (x = input, i = 0; i < LAYERS; i++)
            x = ignis_gelu(ignis_linear(x, all[2 * i], all[2 * i + 1]));
        CHECK_OK(ignis_backward(ignis_cross_entropy(x, targets, NULL), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_clip_grad_norm(optimizer, 1));
        CHECK_OK(ignis_optimizer_step(optimizer));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_memory_query(info.device, &r->memory.info));
    r->memory.row_count = ignis_memory_rows(info.device, r->memory.rows, ROWS_MAX);
    CHECK(r->memory.row_count <= ROWS_MAX);
    CHECK_OK(ignis_training_free(training));
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_OK(ignis_optimizer_free(optimizer));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(all[i]));
    CHECK_OK(ignis_tensor_release(input));
    CHECK_OK(ignis_tensor_release(targets));
}

static void *member_run(void *context)
{
    train((member *)context);
    return NULL;
}

/*  Returns the bytes at the peak of memory with a tag. */
static int64_t bytes_of(const use *memory, const char *tag)
{
    int64_t bytes = 0;
    int i;
    for (i = 0; i < memory->row_count; i++)
        bytes += strcmp(memory->rows[i].tag, tag) == 0 ? memory->rows[i].peak_bytes : 0;
    return bytes;
}

#define CHECK_NEAR(a, b, part) CHECK_CLOSE((double)(a), (double)(b), (part) * (double)(b))

/*  Trains by ranks, each a thread with a device, and then each of them alone in a dry run. */
static void compare(int ranks, ignis_shard shard, ignis_device_info *facts)
{
    static member real[RANKS_MAX];
    static member dry;
    static const char *const tags[] = {"gradients", "parameters", "optimizer"};
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    ignis_comm_desc comm_desc;
    ignis_desc desc;
    int i, k;
    memset(&desc, 0, sizeof desc);
    memset(real, 0, sizeof real);
    desc.matmul = IGNIS_MATMUL_OWN; /* those of cuBLASLt ask for memory as they like */
    desc.trace_memory = true;
    SETUP(&desc);
    CHECK_OK(ignis_device_query(0, facts));
    CHECK_OK(ignis_comm_init_all(comms, NULL, ranks, NULL));
    for (i = 0; i < ranks; i++) {
        real[i].comm = comms[i], real[i].shard = shard;
        pthread_create(&threads[i], NULL, member_run, &real[i]);
    }
    for (i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
    CHECK_OK(ignis_shutdown());
    desc.dry_run = true;
    desc.dry_device = facts;
    for (i = 0; i < ranks; i++) {
        memset(&dry, 0, sizeof dry);
        SETUP(&desc);
        memset(&comm_desc, 0, sizeof comm_desc);
        comm_desc.rank = i, comm_desc.size = ranks;
        dry.comm = ignis_comm_init(&comm_desc);
        dry.shard = shard;
        CHECK(dry.comm.id);
        train(&dry);
        CHECK_OK(ignis_comm_destroy(dry.comm));
        CHECK_OK(ignis_shutdown());
        /* a product may be split otherwise, as a dry run estimates how many blocks run at once */
        CHECK_NEAR(dry.memory.info.live_peak, real[i].memory.info.live_peak, 0.01);
        CHECK_NEAR(bytes_of(&dry.memory, ""), bytes_of(&real[i].memory, ""), 0.05);
        for (k = 0; k < COUNT_OF(tags); k++)
            CHECK_INT(bytes_of(&dry.memory, tags[k]), bytes_of(&real[i].memory, tags[k]));
        CHECK(i > 0 || (bytes_of(&dry.memory, "optimizer") > 0 && bytes_of(&dry.memory, "gradients") > 0));
    }
}

TEST(the_memory_of_a_rank_is_that_among_others)
{
    ignis_device_info facts;
    int shard;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    CHECK_OK(ignis_shutdown());
    for (shard = 0; shard < IGNIS_SHARD_COUNT; shard++)
        compare(shard == IGNIS_SHARD_OPTIMIZER ? 4 : 2, (ignis_shard)shard, &facts);
    SETUP(NULL);
}

/*  A rank has as much of a model as one of fewer ranks that are as many as those of its group. */
TEST(groups_of_ranks_are_those_of_a_smaller_run)
{
    static const char *const tags[] = {"gradients", "parameters", "optimizer"};
    static const struct {
        int rank, ranks, shard_ranks;
    } runs[] = {{1, 4, 0}, {5, 8, 4}};
    static member dry[2];
    ignis_comm_desc comm_desc;
    ignis_parallel_desc parallel;
    ignis_tensor_desc leaf;
    ignis_tensor parameter;
    ignis_desc desc;
    int shard, i, k;
    memset(&desc, 0, sizeof desc);
    memset(&parallel, 0, sizeof parallel);
    memset(&leaf, 0, sizeof leaf);
    desc.dry_run = desc.trace_memory = true;
    leaf.requires_grad = true;
    for (shard = IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
        memset(dry, 0, sizeof dry);
        for (i = 0; i < 2; i++) {
            SETUP(&desc);
            memset(&comm_desc, 0, sizeof comm_desc);
            comm_desc.rank = runs[i].rank, comm_desc.size = runs[i].ranks;
            dry[i].comm = ignis_comm_init(&comm_desc);
            dry[i].shard = (ignis_shard)shard, dry[i].shard_ranks = runs[i].shard_ranks;
            train(&dry[i]);
            CHECK_OK(ignis_comm_destroy(dry[i].comm));
            CHECK_OK(ignis_shutdown());
        }
        for (k = 0; k < COUNT_OF(tags); k++)
            CHECK_INT(bytes_of(&dry[1].memory, tags[k]), bytes_of(&dry[0].memory, tags[k]));
        CHECK(bytes_of(&dry[1].memory, "optimizer") > 0);
    }
    SETUP(&desc);
    comm_desc.rank = 1, comm_desc.size = 8;
    dry[0].comm = ignis_comm_init(&comm_desc);
    parameter = ignis_tensor_zeros(IGNIS_SHAPE(4), &leaf);
    parallel.shard = IGNIS_SHARD_GRADIENTS;
    parallel.shard_ranks = IGNIS_SHARD_RANKS_HOST;
    CHECK_FAILS(ignis_parallel_create(dry[0].comm, &parameter, 1, &parallel), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("a dry run, which knows no hosts");
    CHECK_OK(ignis_tensor_release(parameter));
    CHECK_OK(ignis_comm_destroy(dry[0].comm));
}

/*  By the environment, as launchers say it, and more ranks than any machine has. */
TEST(ranks_of_a_dry_run_are_those_of_the_environment)
{
    ignis_desc desc;
    ignis_comm_info info;
    ignis_comm comm;
    static member dry;
    memset(&desc, 0, sizeof desc);
    memset(&dry, 0, sizeof dry);
    desc.dry_run = true;
    setenv("IGNIS_RANK", "37", 1), setenv("IGNIS_WORLD_SIZE", "64", 1);
    SETUP(&desc);
    comm = ignis_comm_init(NULL);
    CHECK(comm.id);
    CHECK_OK(ignis_comm_query(comm, &info));
    CHECK(info.rank == 37 && info.size == 64 && info.device == 0);
    CHECK_HAS(info.reason, "dry run");
    dry.comm = comm, dry.shard = IGNIS_SHARD_GRADIENTS;
    train(&dry);
    CHECK_OK(ignis_comm_barrier(comm));
    CHECK_INT(ignis_comm_split(comm, 0, 0).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "a dry run has");
    ignis_status_clear();
    CHECK_OK(ignis_comm_destroy(comm));
    unsetenv("IGNIS_RANK"), unsetenv("IGNIS_WORLD_SIZE");
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 1);
    return test_run(argc, argv);
}
