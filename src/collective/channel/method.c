/* ===============================================================================================================
   >>channel - how a handle travels: unix socket, named pipe, shared memory.
   =============================================================================================================== */

#define IGNIS__WIRE_RING \
    (2 * (int)IGNIS_CHANNEL_MAX_BYTES) /* bytes of a pipe or ring; a whole message with its head fits */
