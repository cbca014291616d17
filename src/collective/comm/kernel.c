/*  >>comm.kernel - programs of collective.cu, compiled and loaded

    One program a device, number of ranks, dtype and op.
    Uses: modules of ignis.h, kernels/collective.cu.
    Invariants: a program is loaded by one thread; the others wait for it.
    Locks: ignis__comm_programs.lock around the lists; no lock is held while a program is loaded. */

#include "room.h"

IGNIS__PRIVATE struct ignis__comm_programs_type ignis__comm_programs = {IGNIS__MUTEX_INIT, {NULL}};

IGNIS__PRIVATE bool ignis__comm_program_load(const char *call, ignis__device *device, ignis__comm_program *program)
{
    static const char *const names[IGNIS__COMM_KERNELS] = {"ignis_comm_packets", "ignis_comm_packets_two",
                                                           "ignis_comm_parts",   "ignis_comm_slices",
                                                           "ignis_comm_pair",    "ignis_comm_mark"};
    char defines[128];
    bool ok = true;
    int kernel, length = snprintf(defines, sizeof defines, "-DIGNIS_RANKS=%d -DIGNIS__COMM_DATA_MIB=%d", program->ranks,
                                  IGNIS__COMM_DATA_MIB);
    if (program->op >= 0)
        length += snprintf(defines + length, sizeof defines - (size_t)length, " -DIGNIS_OP=%d", program->op);
    if (program->delay)
        snprintf(defines + length, sizeof defines - (size_t)length, " -DIGNIS_COMM_DELAY");
    if (!ignis__builtin_make(call, device, &ignis__source_collective_cu, NULL,
                             program->op >= 0 ? (ignis_dtype)program->dtype : IGNIS_U8, defines, &program->module))
        return false;
    for (kernel = 0; ok && kernel < IGNIS__COMM_KERNELS; kernel++)
        if (program->op >= 0 ? kernel < IGNIS__COMM_KERNEL_PAIR : kernel != IGNIS__COMM_KERNEL_PACKETS_TWO)
            ok = ignis__function_get(call, device, &program->module, names[kernel], &program->function[kernel]);
    ok = ok && ignis__function_waits(call, device, program->function[IGNIS__COMM_KERNEL_PACKETS], &program->waits);
    if (!ok)
        ignis__module_unload(&program->module);
    return ok;
}

/*  Finds a loaded program, or one that the caller must load (*ours). Waits for another thread that loads it.
    NULL if host memory is short. */
static ignis__comm_program *ignis__comm_program_claim(const ignis__device *device, int ranks, int dtype, int op,
                                                      bool delay, bool *ours)
{
    ignis__comm_program **first = &ignis__comm_programs.first[device - ignis__devices], *program;
    bool loading = false;
    *ours = false;
    do {
        if (loading)
            ignis__sleep_us(50);
        ignis__mutex_lock(&ignis__comm_programs.lock);
        for (program = *first; program; program = program->next)
            if (program->ranks == ranks && program->dtype == dtype && program->op == op && program->delay == delay)
                break;
        loading = program && !program->loaded;
        if (!program && (program = (ignis__comm_program *)ignis__alloc(sizeof *program)) != NULL) {
            *ours = true;
            program->ranks = ranks;
            program->dtype = dtype;
            program->op = op;
            program->delay = delay;
            program->next = *first;
            *first = program;
        }
        ignis__mutex_unlock(&ignis__comm_programs.lock);
    } while (loading);
    return program;
}

/*  Returns a program on an entered device, compiled and loaded if needed. NULL on failure. */
IGNIS__COLD IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_get(const char *call, ignis__device *device,
                                                                        int ranks, int dtype, int op, bool delay)
{
    ignis__comm_program **link = &ignis__comm_programs.first[device - ignis__devices];
    bool ours, loaded;
    ignis__comm_program *program = ignis__comm_program_claim(device, ranks, dtype, op, delay, &ours);
    if (!program)
        ignis__fail_host_memory(call, sizeof *program);
    if (!ours)
        return program;
    loaded = ignis__comm_program_load(call, device, program);
    ignis__mutex_lock(&ignis__comm_programs.lock);
    program->loaded = loaded;
    while (!loaded && *link != program)
        link = &(*link)->next;
    if (!loaded)
        *link = program->next;
    ignis__mutex_unlock(&ignis__comm_programs.lock);
    if (loaded)
        return program;
    ignis__free(program);
    return NULL;
}

/*  Returns the program for the communicator's device, which is entered; the caller has the communicator's
    lock. Programs of the other devices of its group are loaded first: loading may wait for a device, whose
    kernel may wait for this one. */
IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_for(const char *call, ignis__comm *comm, int dtype, int op)
{
    ignis__comm_program **known = &comm->programs[op < 0 ? 0 : dtype][op < 0 ? 0 : op];
    const ignis__comm_regions *regions = comm->memory->regions;
    int i;
    for (i = 0; !*known && !comm->job && i < regions->count; i++) {
        ignis__device *device = regions->block[i].device;
        ignis__binding binding;
        bool ok;
        if (device == comm->device)
            continue;
        if (!ignis__device_enter(call, device, &binding))
            return NULL;
        ok = ignis__comm_program_get(call, device, comm->size, dtype, op, comm->tune.delay != 0) != NULL;
        ignis__device_leave(&binding);
        if (!ok)
            return NULL;
    }
    if (!*known)
        *known = ignis__comm_program_get(call, comm->device, comm->size, dtype, op, comm->tune.delay != 0);
    return *known;
}
