/*  >>job - the processes of one program: how they meet, exchange messages and learn who died

    Reads rank, size and rendezvous from the description, the id, or the variables of launchers.
    Uses: peer and channel; the environment.
    Invariants: no variable is trusted before it is checked; two launchers that disagree are an error.
    Locks: none in this part. The order in the room: a connection's locks, then the job's lock. */

#include "room.h"

typedef char ignis__id_size_check[sizeof(ignis__id) == IGNIS_COMM_ID_BYTES ? 1 : -1];

/*  Launchers and their variables. The first complete one is used, unless another one contradicts. */
static const struct {
    const char *name, *rank, *size, *local_rank;
    const char *job[2]; /* together they name the job; NULL: none */
} ignis__launchers[] = {
    {"ignis", "IGNIS_RANK", "IGNIS_WORLD_SIZE", "IGNIS_LOCAL_RANK", {NULL, NULL}},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", NULL}},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"PMI_JOBID", NULL}},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

/*  Reads a variable with an integer from low to high; *number is -1 if it is unset. False, and reported, for
    other values. */
static bool ignis__env_number(const char *call, const char *name, int low, int high, int *number)
{
    const char *text = ignis__env(name), *digit;
    int64_t value = 0;
    *number = -1;
    if (!text)
        return true;
    for (digit = text; *digit >= '0' && *digit <= '9' && value <= high; digit++)
        value = value * 10 + (*digit - '0');
    if (digit == text || *digit || value < low || value > high)
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                 "%s is \"%.64s\"; expected an integer from %d to %d", name, text, low, high);
    *number = (int)value;
    return true;
}

/*  Reads the variables of one launcher. False, and reported, if they are incomplete or invalid; size is -1 if
    they are unset. */
static bool ignis__launcher_read(const char *call, int which, ignis__place *place)
{
    const char *rank = ignis__launchers[which].rank, *size = ignis__launchers[which].size;
    if (!ignis__env_number(call, rank, 0, IGNIS__JOB_MAX_RANKS - 1, &place->rank) ||
        !ignis__env_number(call, size, 1, IGNIS__JOB_MAX_RANKS, &place->size) ||
        !ignis__env_number(call, ignis__launchers[which].local_rank, 0, IGNIS__JOB_MAX_RANKS - 1, &place->local_rank))
        return false;
    if ((place->rank < 0) != (place->size < 0))
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "%s is set, but %s is not; a rank needs both",
                                 place->rank < 0 ? size : rank, place->rank < 0 ? rank : size);
    return place->size <= 0 || place->rank < place->size ||
           ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "%s is %d and %s is %d; expected a rank from 0 to %d",
                             rank, place->rank, size, place->size, place->size - 1);
}

/*  Reads the launcher's name of the job; torchrun says "none" for a job without a name. */
static void ignis__job_read_name(int which, ignis__place *place)
{
    const char *part[2];
    int i;
    for (i = 0; i < 2; i++) {
        const char *variable = ignis__launchers[which].job[i];
        part[i] = variable && ignis__env(variable) ? ignis__env(variable) : "";
    }
    if ((*part[0] || *part[1]) && strcmp(part[0], "none") != 0)
        snprintf(place->job, sizeof place->job, "%.60s.%.60s.%s", part[0], part[1], ignis__launchers[which].name);
}

static bool ignis__launchers_read(const char *call, ignis__place *place)
{
    const char *wanted = ignis__env("IGNIS_COMM_LAUNCHER");
    int i, found = -1;
    bool known = !wanted;
    for (i = 0; i < IGNIS__COUNT(ignis__launchers); i++) {
        ignis__place said = IGNIS__ZERO;
        if (wanted && strcmp(wanted, ignis__launchers[i].name) != 0)
            continue;
        known = true;
        if (!ignis__launcher_read(call, i, &said))
            return false;
        if (said.size < 0)
            continue;
        if (found < 0) {
            place->rank = said.rank;
            place->size = said.size;
            place->local_rank = said.local_rank;
            ignis__job_read_name(i, place);
            found = i;
        } else if (said.rank != place->rank || said.size != place->size) {
            return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                     "%s and %s say rank %d of %d, but %s and %s say rank %d of %d; unset one pair, or "
                                     "name the right launcher: "
                                     "IGNIS_COMM_LAUNCHER=%s or %s",
                                     ignis__launchers[found].rank, ignis__launchers[found].size, place->rank,
                                     place->size, ignis__launchers[i].rank, ignis__launchers[i].size, said.rank,
                                     said.size, ignis__launchers[found].name, ignis__launchers[i].name);
        }
    }
    if (!known || (wanted && found < 0))
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "IGNIS_COMM_LAUNCHER is \"%.64s\", %s", wanted,
                                 known ? "whose variables are not set"
                                       : "expected ignis, torchrun, openmpi, pmi or slurm");
    return true;
}

/*  Parses "dir:/path", "host:port" or "[::1]:port". */
static bool ignis__place_parse(const char *call, const char *what, const char *text, ignis__place *place)
{
    const char *colon = strrchr(text, ':'), *digit = colon ? colon + 1 : "";
    size_t length = colon ? (size_t)(colon - text) : 0;
    long port = 0;
    if (strncmp(text, "dir:", 4) == 0) {
        if (text[4] && strlen(text + 4) < sizeof place->folder) {
            snprintf(place->folder, sizeof place->folder, "%s", text + 4);
            return true;
        }
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s is \"%.300s\"; expected a path of 1 to %d bytes",
                                 what, text, (int)sizeof place->folder - 1);
    }
    while (*digit >= '0' && *digit <= '9' && port <= 65535)
        port = port * 10 + (*digit++ - '0');
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length > 0 && length < 256 && !*digit && port >= 1 && port <= 65535 && !memchr(text, ',', length)) {
        snprintf(place->address, sizeof place->address, "%.*s:%ld", (int)length, text, port);
        return true;
    }
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "%s is \"%.300s\"; expected \"dir:/path\", or \"host:port\" with a port from 1 to 65535",
                             what, text);
}

/*  Reads the rendezvous from the environment, or derives it from the launcher's name of the job. torchrun's
    own store listens at MASTER_PORT, so its ranks meet at the next port. */
static bool ignis__place_read_environment(const char *call, ignis__place *place)
{
    const char *folder = ignis__env("IGNIS_COMM_DIR"), *host = ignis__env("MASTER_ADDR"),
               *agent = ignis__env("TORCHELASTIC_USE_AGENT_STORE");
    char text[512];
    int port, master;
    if (folder && *folder) {
        snprintf(text, sizeof text, "dir:%s", folder);
        return ignis__place_parse(call, "IGNIS_COMM_DIR", text, place);
    }
    if (!ignis__env_number(call, "IGNIS_COMM_PORT", 1, 65535, &port) ||
        !ignis__env_number(call, "MASTER_PORT", 1, 65534, &master))
        return false;
    if (port < 0 && master > 0)
        port = master + (agent && strcmp(agent, "True") == 0);
    if (host && *host && port > 0) {
        snprintf(text, sizeof text, strchr(host, ':') ? "[%.255s]:%d" : "%.255s:%d", host, port);
        return ignis__place_parse(call, "MASTER_ADDR", text, place);
    }
    if (*place->job)
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "rank %d of %d has no rendezvous: set IGNIS_COMM_DIR to a private folder (one host), "
                             "MASTER_ADDR and MASTER_PORT, desc.rendezvous, or desc.id",
                             place->rank, place->size);
}

/*  Tells if rank 0 listens at its host and port. If not, the ranks meet in the folder, by a name made of
    address and job. */
static bool ignis__place_is_host_port(const ignis__place *place)
{
#ifdef _WIN32 /* no ranks of other hosts: they need NCCL */
    (void)place;
    return false;
#else
    return place->has_secret;
#endif
}

/*  Reads the secret: of an id, of a token, or of the user's private folder. */
static bool ignis__place_secret_read(const char *call, const ignis_comm_desc *desc, ignis__place *place)
{
    const char *token = desc->token ? desc->token : ignis__env("IGNIS_COMM_TOKEN");
    ignis__sha sha;
    uint64_t hash;
    if (desc->id) {
        ignis__id id;
        memcpy(&id, desc->id, sizeof id);
        if (memcmp(id.magic, "IGNISID1", sizeof id.magic) != 0 || !memchr(id.address, 0, sizeof id.address) ||
            desc->rendezvous || desc->token)
            return ignis__fail_false(
                IGNIS_DIAG_BAD_NUMBER, call,
                desc->rendezvous || desc->token
                    ? "desc.id contains rendezvous and secret; with it desc.rendezvous and desc.token must be null"
                    : "desc.id was not made by ignis_comm_unique_id");
        snprintf(place->address, sizeof place->address, "%s", id.address);
        memcpy(place->secret, id.secret, sizeof place->secret);
        place->by_id = place->has_secret = true;
        return true;
    }
    if (!(desc->rendezvous ? ignis__place_parse(call, "desc.rendezvous", desc->rendezvous, place)
                           : ignis__place_read_environment(call, place)))
        return false;
    snprintf(place->name, sizeof place->name, "meet");
    if (token && *token && *place->address) {
        ignis__sha_begin(&sha);
        ignis__sha_add(&sha, token, strlen(token));
        ignis__sha_end(&sha, place->secret);
        place->has_secret = true;
    }
    if (!*place->folder && !ignis__place_is_host_port(place)) {
        hash = ignis__hash(ignis__hash(IGNIS__HASH_START, place->address, strlen(place->address)), place->job,
                           strlen(place->job));
        snprintf(place->name, sizeof place->name, "job-%016llx", (unsigned long long)hash);
        place->address[0] = 0;
    }
    return true;
}

IGNIS__PRIVATE bool ignis__place_read(const char *call, const ignis_comm_desc *desc, ignis__place *place)
{
    memset(place, 0, sizeof *place);
    place->size = 1;
    place->local_rank = -1;
    if (desc->size < 0 || desc->size > IGNIS__JOB_MAX_RANKS || desc->rank < 0 ||
        desc->rank >= (desc->size ? desc->size : 1))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.rank is %d and desc.size is %d; expected a size up to %d and a rank below it",
                                 desc->rank, desc->size, (int)IGNIS__JOB_MAX_RANKS);
    if (desc->size) {
        place->rank = desc->rank;
        place->size = desc->size;
    } else if (!ignis__launchers_read(call, place)) {
        return false;
    }
    return place->size == 1 || ignis__global.dry_run || ignis__place_secret_read(call, desc, place);
}

/*  Returns the device of a rank that does not name one. */
IGNIS__PRIVATE int ignis__place_device(const char *call, const ignis__place *place)
{
    int local = place->local_rank;
    if (ignis__device_total <= 1)
        return 0;
    if (local < 0)
        return place->rank % ignis__device_total;
    if (local >= ignis__device_total) {
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call,
                    "local rank %d would use device %d of %d; start one process for each GPU, or set desc.device",
                    local, local, ignis__device_total);
        return -1;
    }
    return local;
}
