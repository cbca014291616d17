// SPDX-License-Identifier: MIT
/*  share_array_a.c - two programs use one GPU array: this one creates it, examples/share_array_b.c changes it

    An array of ignis_vmm_array is in memory that other processes can map. The channel carries a descriptor of that
    memory, no data: b works on the bytes that a has written, on the GPU, and nothing is copied. A channel connects
    processes of one user on one machine, by name. The programs agree when each may use the array: a sends it, b changes
    it and tells a, and a reads it. Until b has freed it or died, a cannot free it.

        cc -I. examples/share_array_a.c -o share_array_a -lm -ldl -lpthread
        cc -I. examples/share_array_b.c -o share_array_b -lm -ldl -lpthread && (./share_array_a & ./share_array_b; wait)
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <stdio.h>

int main(void)
{
    ignis_channel_desc meet = {.name = "share_array", .timeout_s = 20}; /* how long each wait for b may take */
    ignis_vmm_array_desc desc = {.shape = IGNIS_SHAPE(4), .tag = "shared"};
    float data[4] = {1, 2, 3, 4};
    char word[4] = "";

    ignis_setup(NULL);
    ignis_channel server = ignis_channel_serve(&meet);
    ignis_channel b = ignis_channel_accept(server);
    ignis_array x = ignis_vmm_array(&desc);
    ignis_array_from_host(x, data, IGNIS_F32, 4);
    ignis_share_send(b, x);
    ignis_channel_receive(b, word, sizeof word, NULL, NULL, 0, NULL); /* b says when it is done */
    ignis_array_to_host(x, data, IGNIS_F32, 4);
    if (ignis_status_last() != IGNIS_OK)
        return 1; /* Ignis has written the reason to stderr */

    printf("a: b says \"%.3s\", and x = %g %g %g %g\n", word, data[0], data[1], data[2], data[3]); /* x = 10 20 30 40 */
    ignis_channel_receive(b, word, sizeof word, NULL, NULL, 0, NULL); /* b has freed its array */
    ignis_array_free(x);
    return ignis_shutdown(); /* it closes the channels, too */
}
