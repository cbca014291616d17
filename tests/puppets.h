// SPDX-License-Identifier: MIT
/*  puppets.h - puppets that stay from one test to the next, their orders, and a thread that reads late

    Included after ranks.h. The test has replaced poll, or PeekNamedPipe, by the functions here before that. */
#ifndef PUPPETS_H
#define PUPPETS_H

enum { DOZE_MS = 2000 };
static uint64_t doze_until_ns; /* till then, threads but the one that obeys do not read */
static __thread bool obeys;

static inline void doze(void)
{
    while ((uint64_t)ignis__monotonic_ns() < ignis__atomic_load(&doze_until_ns) && !obeys)
        ignis__sleep_us(1000);
}

#ifdef _WIN32
#undef PeekNamedPipe
static inline BOOL WINAPI peek_late(HANDLE pipe, void *data, DWORD size, DWORD *got, DWORD *available, DWORD *left)
{
    doze();
    return PeekNamedPipe(pipe, data, size, got, available, left);
}
#else
#undef poll
static inline int poll_late(struct pollfd *polls, nfds_t count, int ms)
{
    int ready = poll(polls, count, ms);
    doze();
    return ready;
}
#endif

enum {
    FORK = OWN, /* a child that lives on, and is to find that it may do nothing */
    PREPARE,    /* compiles what FAULT launches */
    FAULT,      /* a kernel that writes to a wild address */
    DIFFER,     /* what rank 0 calls otherwise than the others, in the way `color` */
    DOZE,       /* for DOZE_MS nothing is read of what other ranks say */
    /* sums of numbers for which the order of the ranks matters, in several sizes and types; the outcome has a hash of
       them */
    BITS
};

enum { WAYS_TO_DIFFER = 5 }; /* count, element type, root, order, operation */
static inline void differ(ignis_comm comm, int way)
{
    ignis_comm_info info;
    ignis_array array;
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    array =
        make(IGNIS_SHAPE(way == 0 && info.rank == 0 ? 999 : 1000), way == 1 && info.rank == 0 ? IGNIS_I32 : IGNIS_F32);
    ignis_array_zero(array);
    if (way == 2 || (way == 3 && info.rank == 0))
        ignis_comm_broadcast(comm, array, info.rank == 0);
    else
        ignis_comm_all_reduce(comm, array, array, way == 4 && info.rank == 0 ? IGNIS_OP_MAX : IGNIS_OP_SUM);
    ignis_comm_synchronize(comm);
    ignis_array_free(array);
}

/*  The same on all ranks, unless one has got other bits than the others. */
static inline uint64_t bits(ignis_comm comm)
{
    static const int sizes[] = {7, 3000, 100000};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16};
    ignis_comm_info info;
    uint64_t hash = 1;
    int s, d, i;
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    for (s = 0; s < 3; s++)
        for (d = 0; d < 2; d++) {
            const int count = sizes[s];
            float *data = (float *)malloc(sizeof(float) * (size_t)count);
            ignis_array array = make(IGNIS_SHAPE(count), dtypes[d]);
            uint32_t word = (uint32_t)(info.rank * 7919 + count);
            for (i = 0; i < count; i++) {
                word = word * 1664525u + 1013904223u;
                data[i] = ((float)(word >> 8) - 8388608.0f) * (word >> 7 & 1 ? 1.0f : 1e-4f);
            }
            ignis_array_from_host(array, data, IGNIS_F32, count);
            memset(data, 0, sizeof(float) * (size_t)count);
            ignis_comm_all_reduce(comm, array, array, IGNIS_OP_SUM);
            ignis_comm_synchronize(comm);
            ignis_array_to_host_raw(array, data, ignis__dtypes[dtypes[d]].size * count);
            hash = ignis__hash(hash, data, (size_t)(ignis__dtypes[dtypes[d]].size * count));
            ignis_array_free(array);
            free(data);
        }
    return hash;
}

static ignis_kernel wild; /* writes where nothing is */

/*  Ahead of the fault: while others wait in an operation, they take the processors that a compiler needs. */
static inline void fault_prepare(void)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = "extern \"C\" __global__ void wild(long long at) { *(int *)at = 1; }";
    desc.entry = "wild";
    wild = ignis_kernel_compile(&desc);
}

static inline void fault_begin(void)
{
    const ignis_launch one = test_launch(1, 1);
    ignis_arg arg = ignis_arg_i64(0x1000);
    ignis_kernel_launch(wild, &one, &arg, 1);
    ignis_synchronize();
    ignis_kernel_free(wild);
}

static inline void own(const command *todo, ignis_comm comm, outcome *result)
{
    switch (todo->what) {
    case FORK:
        if (fork() == 0) { /* where there is no fork, no test asks for it */
            ignis__sleep_us(3000000);
            _exit(ignis_comm_query(comm, &result->info) != IGNIS_ERROR_NOT_SETUP);
        }
        break;
    case PREPARE: fault_prepare(); break;
    case FAULT: fault_begin(); break;
    case DIFFER: differ(comm, todo->color); break;
    case BITS: result->hash = bits(comm); break;
    case DOZE:
        obeys = true;
        ignis__atomic_store(&doze_until_ns, (uint64_t)ignis__monotonic_ns() + DOZE_MS * 1000000ull);
        break;
    default: break;
    }
}

static process idle[RANKS]; /* puppets that no test has now */

/*  A puppet, idle or new, that is given this environment. */
static inline process puppet_take(const char *text)
{
    process rank = {-1, -1};
    command todo;
    int i;
    for (i = 0; i < RANKS && rank.pid <= 0; i++)
        if (idle[i].pid > 0) {
            rank = idle[i];
            idle[i].pid = 0;
        }
    if (rank.pid <= 0)
        rank = puppet_new("");
    memset(&todo, 0, sizeof todo);
    todo.what = ENVIRONMENT;
    snprintf(todo.text, sizeof todo.text, "%s", text);
    CHECK(process_send(rank.socket, &todo, sizeof todo, -1));
    return rank;
}

/*  count ranks that meet in the folder; extra: more variables */
static inline void start(process *ranks, int count, const char *extra)
{
    int i;
    for (i = 0; i < count; i++)
        ranks[i] = puppet_take(rank_in_folder(i, count, i, extra));
    all_well(ranks, count);
}

/*  For other tests to use. Those that died are replaced when they are needed, and so are those of a test that has
    failed. */
static inline void finish(process *ranks, int count)
{
    int i, k;
    if (!test__state.failures)
        all(ranks, count, RESET, 0, 0);
    for (i = k = 0; i < count; i++) {
        while (k < RANKS && idle[k].pid > 0)
            k++;
        if (ranks[i].pid <= 0)
            continue;
        if (test__state.failures)
            process_kill(&ranks[i]);
        else if (k < RANKS)
            idle[k] = ranks[i];
        else
            CHECK_INT(process_end(&ranks[i]), 0);
    }
    patience = PATIENCE;
}

#ifdef _WIN32 /* nobody listens at a port, which is a part of a name */
static inline int free_port(void) { return 29500; }
#else
static inline int listener(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)&address, size);
    listen(fd, 8);
    getsockname(fd, (struct sockaddr *)&address, &size);
    *port = ntohs(address.sin_port);
    return fd;
}

static inline int free_port(void)
{
    int port;
    close(listener(&port));
    return port;
}
#endif

/*  Meets the others in a folder, or, each on a host of its own, at an address. */
static inline ignis__job *light_meet(int rank, int size, const char *where, const char *address)
{
    ignis__job_rank self;
    ignis__place place;
    memset(&self, 0, sizeof self);
    memset(&place, 0, sizeof place);
    self.host = *address ? (uint64_t)rank : 1;
    self.rank = place.rank = rank;
    self.size = place.size = size;
    memcpy(self.uuid, &rank, sizeof rank);
    snprintf(place.folder, sizeof place.folder, "%s", where);
    snprintf(place.name, sizeof place.name, "meet");
    snprintf(place.address, sizeof place.address, "%s", address);
    place.has_secret = *address != 0;
    return ignis__job_meet("light", &place, &self, (int64_t)60000000000);
}

/*  Two ranks that were told to meet are refused for having one GPU. */
static inline void one_gpu_is_refused(process *ranks)
{
    int i;
    for (i = 0; i < 2; i++) {
        outcome result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
        CHECK_HAS(result.message, "ranks 0 and 1 both use GPU");
    }
}

#endif
