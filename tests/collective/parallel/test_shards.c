// SPDX-License-Identifier: MIT
/*  test_shards.c - shards of data-parallel training: the bits of unsharded training, in all its forms */
#include "fault.h"
#include "tensor.h"

#include "shards.h"

#include "rank_deaths.h"

static training plain, sharded, single; /* large */

/*  Trains without shards and with each kind of shards from `first` to `last`: all bits are the same. */
static void compare_range(const training *how, int first, int last, const char *what)
{
    int shard;
    plain = *how;
    trained(&plain);
    for (shard = first; shard <= last; shard++) {
        sharded = *how;
        sharded.shard = (ignis_shard)shard;
        trained(&sharded);
        CHECK_INT(sharded.info.shard, shard);
        if (shard >= IGNIS_SHARD_GRADIENTS)
            CHECK(sharded.info.bytes <= plain.info.bytes / 2 + 4 * 8192 * (int64_t)sizeof(double));
        if (!same_bits(&plain, &sharded))
            printf("%s: %d ranks, shard %d has other bits\n", what, how->ranks, shard);
        CHECK(same_bits(&plain, &sharded));
    }
}

static void compare_shards(const training *how, ignis_shard first, const char *what)
{
    compare_range(how, (int)first, IGNIS_SHARD_COUNT - 1, what);
}

static training how;

/*  Each form with each other one somewhere; small buckets are used in turns. */
TEST(every_form_of_training_has_the_bits_of_none)
{
    static const struct {
        bool graph, pieces, clips, scales, small, drops;
    } forms[] = {{false, true, true, true, true, true},
                 {true, false, true, false, true, true},
                 {true, false, false, true, false, false},
                 {false, true, false, false, false, false}};
    int i;
    char what[40];
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (i = 0; i < COUNT_OF(forms); i++) {
        begin(&how, 2, forms[i].scales ? IGNIS_F16 : IGNIS_F32);
        how.graph = forms[i].graph;
        how.pieces = forms[i].pieces ? 2 : 1;
        how.clips = forms[i].clips;
        how.scales = forms[i].scales;
        how.bucket_bytes = forms[i].small ? 2048 : 0;
        how.drops = forms[i].drops;
        snprintf(what, sizeof what, "form %d", i);
        compare_shards(&how, IGNIS_SHARD_OPTIMIZER, what);
    }
}

/*  A rank's piece is updated alike whatever else is shared, so simple optimizers have one kind of shard each. */
TEST(every_optimizer_has_the_bits_of_none)
{
    static const int first[METHODS] = {0, IGNIS_SHARD_PARAMETERS, IGNIS_SHARD_OPTIMIZER, IGNIS_SHARD_OPTIMIZER,
                                       IGNIS_SHARD_OPTIMIZER},
                     last[METHODS] = {0, IGNIS_SHARD_PARAMETERS, IGNIS_SHARD_OPTIMIZER, IGNIS_SHARD_GRADIENTS,
                                      IGNIS_SHARD_PARAMETERS};
    int kind;
    char what[40];
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (kind = SGD; kind < METHODS; kind++) {
        begin(&how, 2, kind == LION ? IGNIS_BF16 : kind == RMSPROP ? IGNIS_F64 : IGNIS_F32);
        how.method = (method)kind;
        how.clips = kind != SGD;
        how.scales = kind == MUON;
        how.is_wide = how.graph = kind == RMSPROP; /* in f64 another order of the norm's many addends shows */
        snprintf(what, sizeof what, "optimizer %d", kind);
        compare_range(&how, first[kind], last[kind], what);
    }
}

/*  Each rank has the state of its pieces: together all of it, and a rank at most that of a slice of each bucket. */
TEST(more_ranks_and_buckets_have_the_bits_of_none)
{
    int64_t all;
    int ranks, i;
    SETUP(NULL);
    NEEDS_DEVICES(8);
    for (ranks = 4; ranks <= 8; ranks *= 2) {
        begin(&how, ranks, IGNIS_BF16);
        how.clips = true;
        how.is_wide = true;
        how.bucket_bytes = ranks == 4 ? 2048 : 0;
        compare_shards(&how, ranks == 4 ? IGNIS_SHARD_GRADIENTS : IGNIS_SHARD_PARAMETERS, "ranks");
        for (i = 0, all = 0; i < ranks; i++) {
            CHECK(ranks == 4 || sharded.state_elements[i] <= 8192);
            CHECK_INT(plain.state_elements[i], WEIGHTS);
            all += sharded.state_elements[i];
        }
        CHECK_INT(all, WEIGHTS);
    }
}

/*  One rank computes the loss of the whole batch: another order of sums, in f32. */
TEST(shards_train_as_one_gpu)
{
    int step, i;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (i = 2; i <= 4; i *= 2) {
        trained(begin(&single, 1, IGNIS_F32));
        begin(&sharded, i, IGNIS_F32)->shard = i == 2 ? IGNIS_SHARD_OPTIMIZER : IGNIS_SHARD_PARAMETERS;
        trained(&sharded);
        for (step = 0; step < sharded.steps; step++)
            CHECK_CLOSE(loss_of(&sharded, step), single.losses[0][step], 1e-5);
    }
}

TEST(averages_and_sums_have_the_bits_of_none)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_BF16)->ema_decay = 0.9;
    how.swaps = true;
    compare_shards(&how, IGNIS_SHARD_OPTIMIZER, "averages");
    begin(&how, 2, IGNIS_BF16)->sums = true;
    how.clips = true;
    compare_shards(&how, IGNIS_SHARD_OPTIMIZER, "sums");
    begin(&how, 2, IGNIS_F32)->zeroes_apart = true;
    how.pieces = 2;
    compare_shards(&how, IGNIS_SHARD_GRADIENTS, "zeroed apart");
    begin(&how, 2, IGNIS_F32)->zeroes_tensors = true;
    compare_shards(&how, IGNIS_SHARD_GRADIENTS, "zeroed one by one");
}

/* --- what is refused, and what fails --- */

static void *rank_refuses(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel_desc desc;
    ignis_optimizer other, lbfgs;
    ignis_tensor apart;
    ignis_tensor_desc leaf;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    memset(&desc, 0, sizeof desc);
    desc.shard = IGNIS_SHARD_COUNT;
    CHECK_FAILS(ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    rank_optimizers(r);
    desc.shard = IGNIS_SHARD_OPTIMIZER;
    CHECK_FAILS(ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("call ignis_optimizer_add after ignis_parallel_create");
    CHECK_OK(ignis_optimizer_free(r->optimizers[0]));
    r->parallel = parallel_of(r);
    CHECK(r->parallel.id);
    rank_optimizers(r);
    memset(&leaf, 0, sizeof leaf);
    leaf.requires_grad = true;
    apart = ignis_tensor_zeros(IGNIS_SHAPE(3), &leaf);
    CHECK_STATUS(ignis_optimizer_add(r->optimizers[0], apart, false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is not shared by ranks, but parameters before it are");
    other = optimizer_of(r->run, ADAMW);
    CHECK_OK(ignis_optimizer_add(other, apart, false));
    CHECK_STATUS(ignis_optimizer_add(other, r->all[0], false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is shared by ranks, but parameters before it are not");
    CHECK_OK(ignis_zero_grad(apart));
    r->optimizers[1] = other;
    CHECK_STATUS(ignis_clip_grad_norms(r->optimizers, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("are not shared by the same ranks");
    lbfgs = ignis_lbfgs(NULL);
    CHECK_STATUS(ignis_optimizer_add(lbfgs, r->all[0], false), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_optimizer_free(lbfgs));
    CHECK_OK(ignis_parallel_free(r->parallel));
    CHECK_STATUS(ignis_optimizer_step(r->optimizers[0]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_MESSAGE_HAS("was freed");
    CHECK_OK(ignis_optimizer_free(other));
    CHECK_OK(ignis_tensor_release(apart));
    rank_release(r);
    return NULL;
}

TEST(what_does_not_fit_is_refused)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_F32)->shard = IGNIS_SHARD_OPTIMIZER;
    how.pieces = 1;
    ranks_run(&how, 60, rank_refuses, ranks_of);
}

static pthread_barrier_t together;
static int fault_at;
static bool fault_hit;

static void *rank_fails(void *context)
{
    rank *r = (rank *)context;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    r->parallel = parallel_of(r);
    rank_optimizers(r);
    rank_inputs(r, 0, 0);
    rank_tries(r); /* compiles what a step needs */
    CHECK_INT(r->status, IGNIS_OK);
    pthread_barrier_wait(&together);
    if (r->rank == 0)
        fault_arm("cu", fault_at, 2 /* CUDA_ERROR_OUT_OF_MEMORY */);
    pthread_barrier_wait(&together);
    rank_tries(r);
    pthread_barrier_wait(&together);
    if (r->rank == 0)
        fault_hit = fault_over(NULL); /* what comes now is no part of the step */
    pthread_barrier_wait(&together);
    (void)ignis_parallel_free(r->parallel);
    ignis_status_clear();
    rank_release(r);
    return NULL;
}

/*  A driver call of a step fails, of one rank or the other: both learn of it, and nothing is left. */
TEST(a_call_that_fails_in_a_step_fails_on_all_ranks)
{
    static const char *const from_peer[] = {"rank 1", "rank 0"};
    int64_t before;
    int shard, i, hits = 0, misses = 0;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    pthread_barrier_init(&together, NULL, 2);
    for (shard = IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
        for (fault_at = 1, misses = 0; misses == 0; fault_at += 2 + fault_at) {
            begin(&how, 2, IGNIS_F16)->shard = (ignis_shard)shard;
            how.bucket_bytes = shard == IGNIS_SHARD_PARAMETERS ? 1 : 0; /* more are gathered ahead */
            how.pieces = 1;
            how.clips = how.scales = true;
            before = memory().live_bytes;
            ranks_run(&how, 20, rank_fails, ranks_of);
            if (!fault_hit) {
                misses++;
                continue;
            }
            hits++;
            CHECK_INT(memory().live_bytes, before);
            for (i = 0; i < 2; i++) {
                if (ranks_of[i].status == IGNIS_ERROR_PEER)
                    CHECK(strstr(ranks_of[i].message, from_peer[i]));
            }
            CHECK((ranks_of[0].status == IGNIS_OK) == (ranks_of[1].status == IGNIS_OK));
        }
    }
    CHECK(hits > 5);
    pthread_barrier_destroy(&together);
}

/*  Rank 1 does not come to the step. */
static void *rank_stays_away(void *context)
{
    rank *r = (rank *)context;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    r->parallel = parallel_of(r);
    rank_optimizers(r);
    rank_inputs(r, 0, 0);
    CHECK_OK(forward_and_backward(r));
    if (r->rank == 0) {
        r->status = update(r);
        if (r->status == IGNIS_OK)
            r->status = ignis_comm_synchronize(r->comm);
        CHECK_INT(r->status, IGNIS_ERROR_TIMEOUT);
        CHECK_HAS(ignis_status_message(), "rank 1");
        ignis_status_clear();
    }
    (void)ignis_parallel_free(r->parallel);
    ignis_status_clear();
    rank_release(r);
    return NULL;
}

TEST(a_rank_that_does_not_step_is_a_timeout)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_F32)->shard = IGNIS_SHARD_OPTIMIZER;
    how.pieces = 1;
    ranks_run(&how, 2, rank_stays_away, ranks_of);
}

/* --- ranks that die: processes --- */

static training dying_run;
static rank dying;

static void dying_begin(int number, ignis_comm comm)
{
    begin(&dying_run, 2, IGNIS_F32)->shard = (ignis_shard)(IGNIS_SHARD_COUNT - 1);
    dying_run.pieces = 1;
    dying_run.bucket_bytes = 1;
    dying_run.clips = true;
    dying.run = &dying_run;
    dying.rank = number;
    dying.comm = comm;
    rank_model(&dying);
    dying.parallel = parallel_of(&dying);
    CHECK(dying.parallel.id);
    rank_optimizers(&dying);
    rank_inputs(&dying, 0, 0);
}

static ignis_status dying_step(const char **message)
{
    rank_tries(&dying);
    *message = dying.message;
    return dying.status;
}

TEST(a_rank_that_dies_in_a_step_is_an_error)
{
    static const int calls[] = {1, 20, 60};
    NEEDS_POSIX("communicators between processes");
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_rank_deaths(calls, COUNT_OF(calls));
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "8", 0);
    /* kernels with many threads cost most of a simulated step, and a sanitizer's memory */
    setenv("IGNIS_COMM_TUNE", "ll_blocks=3,ll_threads=64,blocks=3,threads=64", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return role ? rank_dies(role, dying_begin, dying_step) : test_run(argc, argv);
}
