// SPDX-License-Identifier: MIT
/*  game.cpp - things that move: each an array, which a kernel from a file steps, and whose newest state comes back when
    it comes */
#include <stdio.h>
#include <string.h>

#include "engine.h"

namespace
{

class Actor
{
  public:
    bool start()
    {
        ignis_array_desc desc = ignis_array_desc();
        desc.shape = IGNIS_SHAPE(GAME_SIZE);
        desc.dtype = IGNIS_I32;
        desc.tag = "actor";
        array = ignis_array_create(desc);
        memory = static_cast<int *>(ignis_host_alloc(GAME_SIZE * sizeof(int)));
        steps = seen = seen_at = at = 0;
        torn = false;
        stream = ignis_stream_create(nullptr);
        return memory && stream && ignis_array_fill(array, 0) == IGNIS_OK && ignis_synchronize() == IGNIS_OK;
    }

    /*  On any worker, and never waits for the GPU. Streams run in any order, so all that is done to an actor goes
        through its own. */
    void step(ignis_kernel kernel)
    {
        ignis_arg args[] = {ignis_arg_array(array), ignis_arg_i32(GAME_SIZE)};
        ignis_launch launch = {{(GAME_SIZE + 255) / 256, 0, 0}, {256, 0, 0}, 0, false, false};
        bool done = false;
        ignis_stream_use(stream);
        if (ignis_kernel_launch(kernel, launch, args, 2) == IGNIS_OK)
            steps++;
        if (ticket.id && ignis_ticket_query(ticket, &done) == IGNIS_OK && done)
            look();
        if (!ticket.id) {
            at = steps;
            ticket = ignis_array_to_host_async(array, memory, IGNIS_I32, GAME_SIZE);
        }
        ignis_stream_use(nullptr);
    }

    /*  Takes what has been read back, waiting for it if it is still on its way. */
    void look()
    {
        if (!ticket.id || ignis_ticket_wait(ticket) != IGNIS_OK)
            return;
        ticket.id = 0;
        for (int i = 0; i < GAME_SIZE; i++)
            torn = torn || memory[i] != memory[0];
        seen = memory[0];
        seen_at = at;
    }

    bool stop()
    {
        look();
        ignis_host_free(memory);
        return ignis_array_free(array) == IGNIS_OK && ignis_stream_free(stream) == IGNIS_OK;
    }

    ignis_array array;
    int steps, seen, seen_at;
    bool torn;

  private:
    void *stream;
    int *memory, at;
    ignis_ticket ticket;
};

Actor actors[GAME_ACTORS];
ignis_kernel kernel;

/*  The text of a file, for a kernel; empty: it cannot be read. */
ignis_kernel_desc program(const char *path, char *text, size_t size)
{
    ignis_kernel_desc desc = ignis_kernel_desc();
    FILE *file = fopen(path, "rb");
    text[file ? fread(text, 1, size - 1, file) : 0] = 0;
    if (file)
        fclose(file);
    desc.source = text;
    desc.name = path;
    desc.entry = "step";
    return desc;
}

} // namespace

bool game_start(const char *path)
{
    char text[4096];
    kernel = ignis_kernel_compile(program(path, text, sizeof text));
    bool ok = kernel.id != 0;
    for (Actor &actor : actors)
        ok = actor.start() && ok;
    return ok;
}

bool game_stop()
{
    bool ok = true;
    for (Actor &actor : actors)
        ok = actor.stop() && ok;
    return ignis_kernel_free(kernel) == IGNIS_OK && ok;
}

ignis_status game_reload(const char *path)
{
    char text[4096];
    return ignis_ticket_wait(ignis_kernel_reload(kernel, program(path, text, sizeof text)));
}

void game_step(int actor) { actors[actor % GAME_ACTORS].step(kernel); }
int game_steps(int actor) { return actors[actor].steps; }
int game_seen_at(int actor) { return actors[actor].seen_at; }
int game_seen(int actor) { return actors[actor].seen; }
ignis_array game_array(int actor) { return actors[actor].array; }

bool game_torn()
{
    bool torn = false;
    for (Actor &actor : actors)
        torn = torn || actor.torn;
    return torn;
}
