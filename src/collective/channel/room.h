/*  collective/channel - messages and descriptors between two processes. */
#pragma once

#include "../../base/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../peer/room.h"

#define IGNIS__RING_BYTES (2 * (int)IGNIS_CHANNEL_MAX_BYTES)

#ifndef _WIN32
/*  The shared file. Side 0 is the server; each side writes its own ring. */
typedef struct ignis__shared {
    uint64_t magic;
    uint64_t unused[7];
    struct {
        uint64_t written; /* bytes that the side of the ring has written */
        uint64_t unused_a[7];
        uint64_t read; /* bytes that the peer has read */
        uint64_t unused_b[7];
    } ring[2];
    unsigned char bytes[2][IGNIS__RING_BYTES];
} ignis__shared;

#endif

/*  Paths, secret and kind of connection that follow from a description, equal on both sides. */
typedef struct ignis__endpoint {
    const ignis__connection_kind *kind;
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    unsigned char secret[IGNIS__SECRET]; /* desc.token */
    int64_t timeout_ns;
} ignis__endpoint;

/*  A channel: a connection that carries messages, or a listener. */
typedef struct ignis__channel {
    ignis__slot slot;
    ignis__connection *connection;
    ignis__listener *listener;
} ignis__channel;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* fifo.c */
IGNIS__PRIVATE bool ignis__pipe_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh);
IGNIS__PRIVATE bool ignis__pipe_connected(ignis__connection *fresh);
IGNIS__PRIVATE bool ignis__pipe_connect(ignis__peer_error *error, ignis__connection *connection, bool *again);
IGNIS__PRIVATE int64_t ignis__pipe_write(ignis__peer_error *error, ignis__connection *connection);
IGNIS__PRIVATE int64_t ignis__pipe_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                        size_t size);

#ifndef _WIN32
IGNIS__PRIVATE void ignis__pipe_remove(ignis__connection *connection);
#endif

/* shared_ring.c */
extern const ignis__connection_kind ignis__connection_pipe;
extern const ignis__connection_kind *const ignis__connection_kinds[];

#ifndef _WIN32
extern const ignis__connection_kind ignis__connection_memory;
#endif

/* named_pipe.c */
#ifdef _WIN32
IGNIS__PRIVATE void ignis__pipe_path(char path[IGNIS__PATH_MAX], uint64_t place);
#endif

/* channel.c */
extern const char *const ignis__method_names[];
IGNIS__PRIVATE bool ignis__endpoint_set_paths(const char *call, char folder[IGNIS__PATH_MAX], const char *name,
                                              ignis__endpoint *address);
extern ignis__pool ignis__channels;
IGNIS__PRIVATE void ignis__channel_drop(ignis__channel *channel);
IGNIS__PRIVATE ignis__channel *ignis__channel_hold(const char *call, ignis_channel handle);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__channel *ignis__channel_hold_as(const char *call, ignis_channel handle,
                                                                      bool server);
IGNIS__PRIVATE bool ignis__channel_send_message(ignis__peer_error *error, ignis__connection *connection, int type,
                                                const void *data, size_t size, const int *fds, int fd_count,
                                                double timeout_s);
IGNIS__PRIVATE void ignis__connection_send_rest(ignis__connection *connection);
IGNIS__PRIVATE bool ignis__connection_receive_next(ignis__peer_error *error, ignis__connection *connection,
                                                   double timeout_s);
