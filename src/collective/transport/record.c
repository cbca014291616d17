/* --- records ----------------------------------------------------------------------------------------------------------- */

#define IGNIS__RECORD_MAGIC "IGNIS-TR"
#define IGNIS__RECORD_VERSION 2
#define IGNIS__IPC_BLOCK ((int64_t)2 << 20) /* the driver shares nothing smaller */

/*  What a handle says. No padding, so that the seal covers every byte. Nothing of it grants anything: sizes
    and addresses are those of what this process has exported or mapped, and who has sent it is the socket's
    word. */
typedef struct ignis__record_of_array {
    char magic[8];
    uint32_t version, kind;
    int32_t dtype, ndim;
    uint32_t pid, pid_namespace;
    int64_t dim[IGNIS_MAX_DIMS];
    int64_t block_size, offset; /* of the memory that is shared, and of the array in it */
    unsigned char uuid[16];     /* of the exporter's device */
    uint64_t host;              /* the machine, since it was started */
    unsigned char process[16];  /* random, of the exporter: numbers of processes are used again */
    uint64_t serial;            /* of the export, in that process: never used twice */
    ignis__ipc_handle ipc;      /* of IGNIS_TRANSPORT_IPC */
    char tag[32];               /* of the array */
    uint64_t name;              /* from here on each handle of an export has its own; 0: descriptors came beside it */
    unsigned char seal[32];
} ignis__record_of_array;

typedef char ignis__record_has_its_size[sizeof(ignis__record_of_array) == IGNIS_TRANSPORT_RECORD_BYTES ? 1 : -1];

/*  Two handles of one export say the same. */
static bool ignis__record_same(const ignis__record_of_array *a, const ignis__record_of_array *b)
{
    return memcmp(a, b, offsetof(ignis__record_of_array, name)) == 0;
}

/*  The secret of this user, made by whoever needs it first. */
IGNIS__COLD static bool ignis__transport_secret(const char *call, unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES])
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
                /* if another process was faster, its token is read in the next round */
                (void)ignis__file_publish(part, path);
            else
                (void)ignis__file_remove(part);
        }
        ignis__free(part);
    }
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                             "the token in %s cannot be made or read; set desc.token on both sides", path);
}

/*  What all records of this process begin with. */
static ignis__record_of_array ignis__self;
static ignis__mutex ignis__self_lock = IGNIS__MUTEX_INIT;
