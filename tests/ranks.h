/*  ranks.h - what tests need that start processes as ranks of communicators: their environment, and a clock

    Included after ignis_collective.h. */
#ifndef RANKS_H
#define RANKS_H

/*  Every variable that ignis_comm_init looks at. */
static const char *const variables[] = {"IGNIS_RANK",
                                        "IGNIS_WORLD_SIZE",
                                        "IGNIS_LOCAL_RANK",
                                        "IGNIS_COMM_DIR",
                                        "IGNIS_COMM_PORT",
                                        "IGNIS_COMM_TOKEN",
                                        "IGNIS_COMM_LAUNCHER",
                                        "IGNIS_COMM_TRANSPORT",
                                        "IGNIS_COMM_HOST",
                                        "IGNIS_COMM_TUNE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID"};

static void environment_clear(void)
{
    int i;
    for (i = 0; i < (int)(sizeof variables / sizeof variables[0]); i++)
        unsetenv(variables[i]);
}

/*  environment("RANK=1 WORLD_SIZE=2"): these and no others */
static void environment(const char *text)
{
    char copy[512], *at, *end;
    environment_clear();
    snprintf(copy, sizeof copy, "%s", text);
    for (at = strtok_r(copy, " ", &end); at; at = strtok_r(NULL, " ", &end)) {
        char *equals = strchr(at, '=');
        *equals = 0;
        setenv(at, equals + 1, 1);
    }
}

static double now_s(void) { return (double)ignis__monotonic_ns() * 1e-9; }

#endif
