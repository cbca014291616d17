/*  >>transport.record - records: the bytes of a handle

    Describes an exported array, and the secret that seals records.
    Uses: the private folder, SHA-256.
    Invariants: a record grants nothing: sizes and addresses come from what this process mapped or exported,
    the sender from the socket.
    Locks: ignis__own_identity_lock around the identity of this process. */

#include "room.h"

typedef char ignis__record_size_check[sizeof(ignis__record_of_array) == IGNIS_TRANSPORT_RECORD_BYTES ? 1 : -1];

/*  Tells if two handles describe the same export. */
IGNIS__PRIVATE bool ignis__record_equal(const ignis__record_of_array *a, const ignis__record_of_array *b)
{
    return memcmp(a, b, offsetof(ignis__record_of_array, name)) == 0;
}

/*  Reads the secret of this user; the first caller creates it. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__transport_secret(const char *call,
                                                        unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES])
{
    char folder[IGNIS__PATH_MAX] = "", path[IGNIS__PATH_MAX + 32];
    int round;
    if (!ignis__private_folder(call, folder, sizeof folder))
        return false;
    snprintf(path, sizeof path, "%s/transport.token", folder);
    for (round = 0; round < 2; round++) {
        char *part;
        FILE *file;
        bool ok;
        if (ignis__name_file_read(path, token, IGNIS_TRANSPORT_TOKEN_BYTES))
            return true;
        part = round == 0 ? ignis__file_part_path(path) : NULL;
        file = part ? ignis__file_create(part, IGNIS__FILE_NEW) : NULL;
        if (file) {
            ok = ignis__random_bytes(token, IGNIS_TRANSPORT_TOKEN_BYTES) &&
                 fwrite(token, 1, IGNIS_TRANSPORT_TOKEN_BYTES, file) == IGNIS_TRANSPORT_TOKEN_BYTES;
            if (fclose(file) == 0 && ok)
                /* if another process was faster, the next round reads its token */
                (void)ignis__file_publish(part, path);
            else
                (void)ignis__file_remove(part);
        }
        ignis__free(part);
    }
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                             "cannot create or read the token in %s; set desc.token on both sides", path);
}

/*  The fields that all records of this process share. */
IGNIS__PRIVATE ignis__record_of_array ignis__own_identity;
IGNIS__PRIVATE ignis__mutex ignis__own_identity_lock = IGNIS__MUTEX_INIT;
