// SPDX-License-Identifier: MIT
/*  test_windows.c - memory that ranks read of each other: gathered by copies, without kernels; failures */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

enum { RANKS_MAX = 4, COUNT = 3000, BYTES = 5 * COUNT };

typedef struct member {
    int rank, ranks;
    bool by_job;
    ignis_comm_id id;
    ignis_comm comm;
    void (*work)(struct member *m);
    pthread_barrier_t *start;
    ignis_status status;
    char message[512];
} member;

static void *member_run(void *context)
{
    member *m = (member *)context;
    ignis_comm_desc desc;
    CHECK_OK(ignis_device_use(m->rank));
    if (m->by_job) {
        memset(&desc, 0, sizeof desc);
        desc.rank = m->rank, desc.size = m->ranks;
        desc.device = m->rank ? m->rank : IGNIS_DEVICE_0;
        desc.id = &m->id;
        m->comm = ignis_comm_init(&desc);
        CHECK(m->comm.id);
    }
    m->work(m);
    m->status = ignis_status_last();
    snprintf(m->message, sizeof m->message, "%s", ignis_status_message());
    ignis_status_clear();
    return NULL;
}

static member members[RANKS_MAX];

/*  Every rank is a thread with a device; they meet as those of one process do, or as processes do. */
static void run(int ranks, bool by_job, double timeout_s, void (*work)(member *m))
{
    pthread_t threads[RANKS_MAX];
    pthread_barrier_t start;
    ignis_comm comms[RANKS_MAX];
    ignis_comm_id id;
    ignis_comm_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&id, 0, sizeof id);
    desc.timeout_s = timeout_s;
    if (by_job)
        CHECK_OK(ignis_comm_unique_id(&id));
    else
        CHECK_OK(ignis_comm_init_all(comms, NULL, ranks, &desc));
    CHECK_INT(pthread_barrier_init(&start, NULL, (unsigned)ranks), 0);
    memset(members, 0, sizeof members);
    for (i = 0; i < ranks; i++) {
        members[i].rank = i, members[i].ranks = ranks;
        members[i].by_job = by_job;
        members[i].id = id;
        members[i].comm = by_job ? members[i].comm : comms[i];
        members[i].work = work;
        members[i].start = &start;
        pthread_create(&threads[i], NULL, member_run, &members[i]);
    }
    for (i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < ranks; i++)
        CHECK_OK(ignis_comm_destroy(members[i].comm));
    pthread_barrier_destroy(&start);
}

static ignis__array *view_of(ignis__array *window, int64_t first, int64_t count)
{
    const ignis_shape shape = IGNIS_SHAPE(count);
    return ignis__array_adopt("test", ignis__array_view("test", window, &shape, count, first));
}

static unsigned char value_of(int rank, int at, int round) { return (unsigned char)(rank * 50 + at % 47 + round); }

static void write_slice(const member *m, const ignis__array *slice, int round)
{
    unsigned char bytes[COUNT];
    ignis_array handle;
    int i;
    handle.id = slice->slot.handle;
    for (i = 0; i < COUNT; i++)
        bytes[i] = value_of(m->rank, i, round);
    CHECK_OK(ignis_array_from_host_raw(handle, bytes, COUNT));
}

static void check_whole(const member *m, const ignis__array *whole, int round)
{
    unsigned char bytes[RANKS_MAX * COUNT];
    ignis_array handle;
    int i;
    handle.id = whole->slot.handle;
    CHECK_OK(ignis_array_to_host_raw(handle, bytes, m->ranks * COUNT));
    for (i = 0; i < m->ranks * COUNT; i++)
        CHECK_INT(bytes[i], value_of(i / COUNT, i % COUNT, round));
}

static int launches(void)
{
    int count;
    pthread_mutex_lock(&fault.lock); /* of the other ranks' calls */
    count = fault_count("cuLaunchKernel") + fault_count("cuLaunchKernelEx");
    pthread_mutex_unlock(&fault.lock);
    return count;
}

/*  Gathers a slice in the middle of the window twice; ranks free theirs one after the other, and the last ones read
    those of the first ones. */
static void gather(member *m)
{
    ignis__array *window = ignis__window_make("test", m->comm, BYTES, "test"), *slice, *whole;
    ignis_array_desc desc;
    int round, kernels;
    CHECK(window && ignis__window_has(window));
    slice = view_of(window, COUNT, COUNT);
    CHECK(slice && ignis__window_has(slice));
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(m->ranks * COUNT);
    desc.dtype = IGNIS_U8;
    whole = ignis__array_adopt("test", ignis__array_create("test", &desc));
    for (round = 0; round < 2; round++) {
        write_slice(m, slice, round);
        CHECK_OK(ignis_comm_barrier(m->comm));
        CHECK_OK(ignis_comm_synchronize(m->comm));
        pthread_barrier_wait(m->start);
        kernels = launches();
        CHECK(ignis__window_gather("test", m->comm, slice, whole));
        check_whole(m, whole, round);
        CHECK_INT(launches(), kernels);
        pthread_barrier_wait(m->start);
        CHECK_OK(ignis_comm_barrier(m->comm)); /* all have read */
        CHECK_OK(ignis_comm_synchronize(m->comm));
    }
    for (round = 0; round < m->ranks; round++) {
        if (m->rank == round) {
            CHECK(ignis__window_gather("test", m->comm, slice, whole));
            check_whole(m, whole, 1);
            ignis__array_unclaim("test", slice);
            ignis__array_unclaim("test", window);
        }
        pthread_barrier_wait(m->start);
    }
    ignis__array_unclaim("test", whole);
}

static int64_t vmm_bytes(void)
{
    ignis_memory_info info;
    int64_t bytes = 0;
    int i;
    for (i = 0; i < ignis_device_count(); i++) {
        CHECK_OK(ignis_memory_query(i, &info));
        bytes += info.vmm_bytes + info.live_bytes;
    }
    return bytes;
}

TEST(slices_are_copied_and_parts_live_as_long_as_a_rank_reads_them)
{
    int64_t before;
    int i, ranks;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks = ignis_device_count() < RANKS_MAX ? ignis_device_count() : RANKS_MAX;
    before = vmm_bytes();
    for (i = 0; i < 3; i++) {
        run(i == 1 ? 2 : ranks, i == 2, 0, gather);
        CHECK_INT(members[0].status, IGNIS_OK);
        CHECK_INT(vmm_bytes(), before);
    }
}

static void fail_alone(member *m)
{
    if (m->rank == 1) {
        fault_arm("cuMemCreate", 1, 2 /* CUDA_ERROR_OUT_OF_MEMORY */);
        fault.all = true;
        CHECK(!ignis__window_make("test", m->comm, BYTES, "test"));
        fault_disarm();
    }
    pthread_barrier_wait(m->start);
    if (m->rank != 1)
        CHECK(!ignis__window_make("test", m->comm, BYTES, "test"));
}

static void come_late(member *m)
{
    if (m->rank == 0)
        CHECK(!ignis__window_make("test", m->comm, BYTES, "test"));
    pthread_barrier_wait(m->start);
    if (m->rank == 1)
        CHECK(!ignis__window_make("test", m->comm, BYTES, "test"));
}

/*  Rank 1 has no memory for its part before the others begin; a late rank finds that the other one has given up. */
TEST(what_keeps_a_rank_from_its_window_fails_on_all)
{
    static const struct {
        double timeout_s;
        void (*work)(member *m);
        ignis_status status[2];
        const char *message[2];
    } table[] = {
        {0,
         fail_alone,
         {IGNIS_ERROR_PEER, IGNIS_ERROR_MEMORY},
         {"rank 1 could not share its memory", "CUDA_ERROR_OUT_OF_MEMORY"}},
        {0.2,
         come_late,
         {IGNIS_ERROR_TIMEOUT, IGNIS_ERROR_PEER},
         {"rank 1 did not share its memory within 0.2 s", "rank 0 could not share its memory"}},
    };
    int64_t before;
    int i, k;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    before = vmm_bytes();
    for (i = 0; i < COUNT_OF(table); i++) {
        run(2, false, table[i].timeout_s, table[i].work);
        for (k = 0; k < 2; k++) {
            CHECK_INT(members[k].status, table[i].status[k]);
            CHECK_HAS(members[k].message, table[i].message[k]);
        }
        CHECK_INT(vmm_bytes(), before);
    }
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 1);
    return test_run(argc, argv);
}
