/*  >>channel.method - bytes that pipes and rings hold

    Room for a whole message with its header in each direction.
    Uses: the limits of channel.h. Channels connect two processes of a machine and user; a kind of connection
    is chosen by ignis_channel_method. */

#include "room.h"
