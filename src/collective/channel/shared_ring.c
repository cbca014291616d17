/* --- shared memory: two rings in a sealed file without a name, which a link in the folder leads to
   (/proc/<pid>/fd/<number>). It serves one client, and the link goes then. Each side locks its byte of the
   file, by which the other knows that it lives: the system lets go of the locks of the dead. */

/*  Side 0 is the server; each writes its own ring, and never trusts the other's words. */
typedef struct ignis__shared {
    uint64_t magic;
    uint64_t unused[7];
    struct {
        uint64_t written; /* bytes so far, by the ring's side */
        uint64_t unused_a[7];
        uint64_t read; /* by the other side */
        uint64_t unused_b[7];
    } ring[2];
    unsigned char bytes[2][IGNIS__WIRE_RING];
} ignis__shared;

#ifdef F_OFD_SETLK
#define IGNIS__LOCK_GET F_OFD_GETLK
#define IGNIS__LOCK_SET F_OFD_SETLK
#else /* Linux has them, and strict standards hide them */
#define IGNIS__LOCK_GET 36
#define IGNIS__LOCK_SET 37
#endif

/*  how: F_WRLCK takes the byte of a side, F_UNLCK gives it back; with `taken`, whether another one has it. */
static bool ignis__shm_lock(const ignis__wire *wire, int side, short how, bool *taken)
{
    struct flock lock;
    int result;
    memset(&lock, 0, sizeof lock);
    lock.l_type = how;
    lock.l_whence = SEEK_SET;
    lock.l_start = side;
    lock.l_len = 1;
    result = fcntl(wire->shared_file, taken ? IGNIS__LOCK_GET : IGNIS__LOCK_SET, &lock);
    if (taken)
        *taken = result == 0 && lock.l_type != F_UNLCK;
    return result == 0;
}

static bool ignis__shm_alive(ignis__wire *wire)
{
    bool taken = false;
    (void)ignis__shm_lock(wire, 1 - wire->side, F_WRLCK, &taken);
    return taken;
}

static void ignis__shm_remove(ignis__wire *wire) { (void)unlink(wire->path); }

static bool ignis__shm_map(ignis__trouble *trouble, ignis__wire *wire, int side)
{
    struct stat info;
    wire->side = side;
    if (fstat(wire->shared_file, &info) == 0 && ignis__private_file(&info)) {
        wire->peer_uid = (int64_t)info.st_uid;
        wire->shared_bytes = sizeof(ignis__shared);
        wire->shared = (ignis__shared *)ignis__shared_map(wire->shared_file, wire->shared_bytes);
    }
    return wire->shared ||
           ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s leads to no shared memory of ours", wire->path);
}

/*  The link gets its name when what it leads to is whole. */
static bool ignis__shm_accept(ignis__trouble *trouble, ignis__listener *listener, ignis__wire *fresh)
{
    char fresh_path[IGNIS__PATH_MAX], target[64];
    if (listener->pending_count > 0)
        return false;
    if (snprintf(fresh_path, sizeof fresh_path, "%s.new", fresh->path) >= (int)sizeof fresh_path)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the path of the link is longer than %d bytes",
                                  IGNIS__PATH_MAX - 1);
    fresh->shared_file = ignis__fd_keep(ignis__shared_make(sizeof(ignis__shared)));
    if (fresh->shared_file < 0 || !ignis__shm_lock(fresh, 0, F_WRLCK, NULL))
        return ignis__trouble_errno(trouble, "shared memory");
    if (!ignis__shm_map(trouble, fresh, 0))
        return false;
    ignis__atomic_store(&fresh->shared->magic, IGNIS__WIRE_MAGIC);
    snprintf(target, sizeof target, "/proc/%lu/fd/%d", ignis__process_id(), fresh->shared_file);
    (void)unlink(fresh_path); /* remains; nobody else has the name while we have it */
    fresh->named = symlink(target, fresh_path) == 0 && rename(fresh_path, fresh->path) == 0;
    return fresh->named || ignis__trouble_errno(trouble, fresh->path);
}

static bool ignis__shm_connect(ignis__trouble *trouble, ignis__wire *wire, bool *again)
{
    struct stat info, now;
    wire->shared_file = ignis__fd_keep(open(wire->path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
    *again = wire->shared_file >= 0 || errno == ENOENT;
    if (wire->shared_file < 0)
        return ignis__trouble_errno(trouble, wire->path);
    if (!ignis__shm_map(trouble, wire, 1))
        return false;
    if (!ignis__shm_lock(wire, 1, F_WRLCK, NULL))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    if (fstat(wire->shared_file, &info) != 0 || stat(wire->path, &now) != 0 || now.st_ino != info.st_ino)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the server is changing its memory");
    if (ignis__atomic_load(&wire->shared->magic) != IGNIS__WIRE_MAGIC || !ignis__shm_alive(wire))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s belongs to no live server", wire->path);
    if (ignis__atomic_load(&wire->shared->ring[1].written))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO,
                                  "the server has not yet replaced the memory of a client that is gone");
    return true;
}

/*  Bytes that the other side has written and we have not read, or that we may write; -1: its words make no
    sense. */
static int64_t ignis__shm_room(ignis__trouble *trouble, const ignis__wire *wire, bool to_write)
{
    int ring = to_write ? wire->side : 1 - wire->side;
    uint64_t used =
        ignis__atomic_load(&wire->shared->ring[ring].written) - ignis__atomic_load(&wire->shared->ring[ring].read);
    if (used <= (uint64_t)IGNIS__WIRE_RING)
        return to_write ? IGNIS__WIRE_RING - (int64_t)used : (int64_t)used;
    ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "the words of the shared memory make no sense");
    return -1;
}

/*  Copies in or out of a ring, around its end. */
static void ignis__shm_copy(unsigned char *ring, uint64_t at, void *data, size_t size, bool into)
{
    size_t begin = (size_t)(at % (uint64_t)IGNIS__WIRE_RING), first = (size_t)IGNIS__WIRE_RING - begin;
    unsigned char *bytes = (unsigned char *)data;
    first = first < size ? first : size;
    if (into) {
        memcpy(ring + begin, bytes, first);
        memcpy(ring, bytes + first, size - first);
    } else {
        memcpy(bytes, ring + begin, first);
        memcpy(bytes + first, ring, size - first);
    }
}

/*  The whole message or nothing. */
static int64_t ignis__shm_write(ignis__trouble *trouble, ignis__wire *wire)
{
    uint64_t *written = &wire->shared->ring[wire->side].written, at = ignis__atomic_load(written);
    int64_t room = ignis__shm_room(trouble, wire, true);
    if (!ignis__shm_alive(wire)) {
        ignis__trouble_lost(trouble);
        return -1;
    }
    if (room < (int64_t)wire->outbox_size)
        return room < 0 ? -1 : 0;
    ignis__shm_copy(wire->shared->bytes[wire->side], at, wire->outbox, wire->outbox_size, true);
    ignis__atomic_store(written, at + wire->outbox_size);
    return (int64_t)wire->outbox_size;
}

static int64_t ignis__shm_read(ignis__trouble *trouble, ignis__wire *wire, void *data, size_t size)
{
    uint64_t *read_so_far = &wire->shared->ring[1 - wire->side].read, at = ignis__atomic_load(read_so_far);
    int64_t room = ignis__shm_room(trouble, wire, false);
    if (room == 0) { /* it may write before it goes, and may not have come yet */
        bool lives = ignis__shm_alive(wire);
        wire->met |= lives;
        room = ignis__shm_room(trouble, wire, false);
        if (room == 0 && !lives && wire->met) {
            ignis__trouble_lost(trouble);
            return -1;
        }
    }
    if (room <= 0)
        return room;
    wire->met = true;
    if ((int64_t)size > room)
        size = (size_t)room;
    ignis__shm_copy(wire->shared->bytes[1 - wire->side], at, data, size, false);
    ignis__atomic_store(read_so_far, at + size);
    return (int64_t)size;
}

/*  Nothing wakes who waits for memory: it looks again, and less often with time. */
static bool ignis__shm_wait(ignis__trouble *trouble, ignis__wire *wire, bool to_write, const ignis__until *until,
                            const char *what)
{
    int *pause_us = &wire->pause_us[to_write];
    if (ignis__until_slice(until, 1) == 0)
        return ignis__trouble_late(trouble, until, what);
    if (*pause_us > 0)
        ignis__sleep_us(*pause_us);
    *pause_us = *pause_us < 1000 ? *pause_us + 20 : 1000;
    return true;
}

static void ignis__shm_shutdown(ignis__wire *wire) { (void)ignis__shm_lock(wire, wire->side, F_UNLCK, NULL); }

/* clang-format off */
static const ignis__wire_kind ignis__wire_pipe = {
    IGNIS_CHANNEL_PIPE, "pipe", false, false, NULL, ignis__pipe_accept, ignis__pipe_connected, ignis__pipe_connect, ignis__pipe_write,
    ignis__pipe_read, ignis__socket_wait, ignis__socket_alive, NULL, ignis__pipe_remove, NULL, NULL};
static const ignis__wire_kind ignis__wire_memory = {
    IGNIS_CHANNEL_SHM, "shm", false, false, NULL, ignis__shm_accept, ignis__shm_alive, ignis__shm_connect, ignis__shm_write,
    ignis__shm_read, ignis__shm_wait, ignis__shm_alive, ignis__shm_shutdown, ignis__shm_remove, NULL, NULL};
/* clang-format on */
/*  By ignis_channel_method. */
static const ignis__wire_kind *const ignis__wire_kinds[] = {&ignis__wire_socket, &ignis__wire_socket, &ignis__wire_pipe,
                                                            &ignis__wire_memory};
