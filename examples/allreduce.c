// SPDX-License-Identifier: MIT
/*  allreduce.c - several processes, with a GPU each, sum their arrays

        cc -I. examples/allreduce.c -o allreduce -lm -ldl -lpthread && examples/launch.sh 2 ./allreduce

    torchrun, mpirun and srun start it as well.
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"
#include <stdio.h>

int main(void)
{
    ignis_comm_info info = {0};
    float numbers[4];
    if (ignis_setup(NULL) != IGNIS_OK)
        return 1;
    ignis_comm comm = ignis_comm_init(NULL); // rank, size and device come from the environment
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);

    ignis_array_desc desc = {.shape = IGNIS_SHAPE(4), .dtype = IGNIS_F32};
    ignis_array mine = ignis_array_create(&desc), sum = ignis_array_create(&desc);
    for (int i = 0; i < 4; i++)
        numbers[i] = (float)((info.rank + 1) * (i + 1));
    ignis_array_from_host(mine, numbers, IGNIS_F32, 4);
    ignis_comm_all_reduce(comm, mine, sum, IGNIS_OP_SUM);
    ignis_array_to_host(sum, numbers, IGNIS_F32, 4);

    if (ignis_comm_synchronize(comm) == IGNIS_OK && ignis_status_last() == IGNIS_OK)
        printf("rank %d of %d, on device %d, has %g %g %g %g (%s)\n", info.rank, info.size, info.device, numbers[0],
               numbers[1], numbers[2], numbers[3], info.reason);
    ignis_array_free(mine);
    ignis_array_free(sum);
    ignis_comm_destroy(comm);
    bool failed = ignis_status_last() != IGNIS_OK;
    return ignis_shutdown() != IGNIS_OK || failed;
}
