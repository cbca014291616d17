// SPDX-License-Identifier: MIT
/*  channels.h - both ends of a channel in one process

    Included after ignis_collective.h. */
#ifndef CHANNELS_H
#define CHANNELS_H

/*  The method that descriptors travel through, which is the default. */
#ifdef _WIN32
#define METHOD_OF_DESCRIPTORS IGNIS_CHANNEL_PIPE
#else
#define METHOD_OF_DESCRIPTORS IGNIS_CHANNEL_SOCKET
#endif

static inline ignis_channel_desc desc_of_channel(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.name = name;
    desc.method = method;
    desc.timeout_s = timeout_s;
    return desc;
}

typedef struct pair {
    ignis_channel_desc desc;
    ignis_channel server, a, b;
} pair;

static inline void *pair_connect(void *data)
{
    pair *both = (pair *)data;
    both->b = ignis_channel_connect(&both->desc);
    CHECK_OK(ignis_status_last());
    return NULL;
}

static inline pair make_pair(ignis_channel_method method, double timeout_s)
{
    pair both;
    pthread_t thread;
    memset(&both, 0, sizeof both);
    both.desc = desc_of_channel("pair", method, timeout_s);
    both.server = ignis_channel_serve(&both.desc);
    pthread_create(&thread, NULL, pair_connect, &both);
    both.a = ignis_channel_accept(both.server);
    pthread_join(thread, NULL);
    CHECK(both.a.id != 0 && both.b.id != 0);
    return both;
}

static inline void drop_pair(pair *both)
{
    CHECK_OK(ignis_channel_close(both->a));
    CHECK_OK(ignis_channel_close(both->b));
    CHECK_OK(ignis_channel_close(both->server));
}

#endif /* CHANNELS_H */
