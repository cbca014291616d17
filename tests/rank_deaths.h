// SPDX-License-Identifier: MIT
/*  rank_deaths.h - two ranks, each a process; one dies at a call of the driver in its second step, and the other one
    gets an error that names it: include it behind fault.h

    TEST(x) { NEEDS_POSIX("processes"); SETUP(NULL); NEEDS_DEVICES(2); check_rank_deaths(calls, COUNT_OF(calls)); }
    main:   role = process_role(argc, argv); return role ? rank_dies(role, prepare, train) : test_run(argc, argv); */
#ifndef RANK_DEATHS_H
#define RANK_DEATHS_H

#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

/*  Where two ranks meet, and the number of the driver call that rank 1 does not survive. */
typedef struct rank_death {
    char folder[64];
    int call;
} rank_death;

static inline void rank_death_now(void)
{
    fflush(stdout);
    _exit(0);
}

/*  Runs a rank; returns its exit code. prepare: makes the model of a rank, whose device is the current one.
    train: trains a step; returns its status, and the message of a failure. */
static inline int rank_dies(const char *role, void (*prepare)(int number, ignis_comm comm),
                            ignis_status (*train)(const char **message))
{
    const int number = atoi(role);
    ignis_desc setup = test_desc(NULL);
    ignis_comm_desc desc;
    ignis_comm comm;
    ignis_status status;
    rank_death death;
    const char *message = "";
    char rendezvous[128], done[128];
    int waited;
    if (!process_receive(PROCESS_SOCKET, &death, sizeof death, NULL) || ignis_setup(&setup) != IGNIS_OK)
        return 1;
    memset(&desc, 0, sizeof desc);
    snprintf(rendezvous, sizeof rendezvous, "dir:%s", death.folder);
    desc.rank = number;
    desc.size = 2;
    desc.rendezvous = rendezvous;
    desc.device = number ? number : IGNIS_DEVICE_0;
    desc.timeout_s = 20;
    comm = ignis_comm_init(&desc);
    CHECK(comm.id);
    CHECK_OK(ignis_device_use(number));
    prepare(number, comm);
    CHECK_INT(train(&message), IGNIS_OK);
    /* rank 1 may have ended a step that rank 0 has not: it dies after both have */
    snprintf(done, sizeof done, "%s/done", death.folder);
    if (number == 0) {
        FILE *file = fopen(done, "w");
        CHECK(file && fclose(file) == 0);
    }
    for (waited = 0; number == 1 && remove(done) != 0 && waited < 20000; waited++)
        test_sleep_ms(1);
    if (number == 1) {
        fault.drain = rank_death_now;
        fault_plan("cu", death.call, 2, NULL, true);
    }
    status = train(&message);
    CHECK(status == IGNIS_ERROR_PEER || status == IGNIS_ERROR_TIMEOUT);
    CHECK_HAS(message, "rank 1");
    return test__state.failures != 0;
}

/*  Lets rank 1 die at each of these calls. */
static inline void check_rank_deaths(const int *calls, int count)
{
    process children[2];
    rank_death death;
    int i, k;
    for (k = 0; k < count; k++) {
        memset(&death, 0, sizeof death);
        snprintf(death.folder, sizeof death.folder, "/tmp/ignis_test_deaths_XXXXXX");
        REQUIRE(mkdtemp(death.folder));
        death.call = calls[k];
        for (i = 0; i < 2; i++) {
            children[i] = process_start(i ? "1" : "0");
            CHECK(process_send(children[i].socket, &death, sizeof death, -1));
        }
        for (i = 0; i < 2; i++)
            CHECK_INT(process_end(&children[i]), 0);
        rmdir(death.folder);
    }
}

#endif /* RANK_DEATHS_H */
