// SPDX-License-Identifier: MIT
/*  places.h - what tests of channels share: their folder, their methods, and calls that fail */
#ifndef PLACES_H
#define PLACES_H

#include "array.h"

#include "ignis_collective.h"

#include "channels.h"
#include "processes.h"

static const ignis_channel_method methods[] = {IGNIS_CHANNEL_SOCKET, IGNIS_CHANNEL_PIPE, IGNIS_CHANNEL_SHM};
static const char *const method_names[] = {"", "socket", "pipe", "shm"};
#ifdef _WIN32 /* the methods that there are */
enum { FIRST_METHOD = IGNIS_CHANNEL_PIPE, LAST_METHOD = IGNIS_CHANNEL_PIPE };
#else
enum { FIRST_METHOD = IGNIS_CHANNEL_SOCKET, LAST_METHOD = IGNIS_CHANNEL_SHM };
#endif
#define EACH_METHOD(m)                                                                   \
    for (m = (ignis_channel_method)FIRST_METHOD; m <= (ignis_channel_method)LAST_METHOD; \
         m = (ignis_channel_method)(m + 1))

static char folder[256]; /* of all channels here; $IGNIS_COMM_DIR, also of the children */

static inline ignis_channel serve(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc = desc_of_channel(name, method, timeout_s);
    return ignis_channel_serve(&desc);
}

/*  make, ignis_channel_serve or _connect, fails with a desc. */
#define CHECK_NO_CHANNEL(make, desc, status, diagnostic) \
    check_no_channel(__LINE__, make, #make "(", desc, status, diagnostic)
static inline void check_no_channel(int line, ignis_channel (*make_it)(const ignis_channel_desc *), const char *call,
                                    ignis_channel_desc desc, ignis_status status, ignis_diagnostic diagnostic)
{
    CHECK_INT(make_it(&desc).id, 0);
    test__check_failure(__FILE__, line, call, status, diagnostic);
}

static inline ignis_channel_info info_of_channel(ignis_channel channel)
{
    ignis_channel_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_channel_query(channel, &info));
    return info;
}

/*  Makes a channel that was met in peace impatient. */
static inline void set_timeout(ignis_channel channel, double timeout_s)
{
    ignis__channel *item = (ignis__channel *)ignis__pool_hold(&ignis__channels, channel.id);
    *(item->connection ? &item->connection->timeout_ns : &item->listener->timeout_ns) = (int64_t)(timeout_s * 1e9);
    ignis__channel_drop(item);
}

static inline int receive_size(ignis_channel channel, void *data, int64_t capacity)
{
    int64_t size = -1;
    return ignis_channel_receive(channel, data, capacity, &size, NULL, 0, NULL) == IGNIS_OK ? (int)size : -1;
}

static unsigned char big[IGNIS_CHANNEL_MAX_BYTES], back[IGNIS_CHANNEL_MAX_BYTES];

#endif
