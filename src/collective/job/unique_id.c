/*  >>job.unique_id - unique ids: a rendezvous and its secret, distributed by the program

    ignis_comm_unique_id opens the socket where rank 0 will listen.
    Uses: listeners.
    Invariants: an id is used for one rendezvous, by the process that created it.
    Locks: ignis__ids.lock around the list. */

#include "room.h"

/*  Listeners of ids that this process has created. */
typedef struct ignis__id_place {
    struct ignis__id_place *next;
    unsigned char secret[IGNIS__SECRET];
    ignis__file listener;
} ignis__id_place;

static struct {
    ignis__mutex lock;
    ignis__id_place *first;
} ignis__ids = {IGNIS__MUTEX_INIT, NULL};

/*  Takes the listener of an id, or of any (NULL). False if the id is unknown. */
IGNIS__PRIVATE bool ignis__id_take(const unsigned char *secret, ignis__file *listener)
{
    ignis__id_place **at, *place;
    ignis__mutex_lock(&ignis__ids.lock);
    for (at = &ignis__ids.first; *at && secret && memcmp((*at)->secret, secret, IGNIS__SECRET) != 0; at = &(*at)->next)
        ;
    if ((place = *at) != NULL) {
        *at = place->next;
        *listener = place->listener;
        ignis__free(place);
    }
    ignis__mutex_unlock(&ignis__ids.lock);
    return place != NULL;
}

static void ignis__ids_close(const char *call)
{
    ignis__file listener = IGNIS__NO_FILE;
    (void)call;
    while (ignis__id_take(NULL, &listener))
        ignis__peer_file_close(&listener);
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_unique_id(ignis_comm_id *out)
{
    static const char call[] = "ignis_comm_unique_id";
    ignis__id_place *place;
    ignis__id id;
    char why[256];
    place = ignis__collective_enter(call) && ignis__check_not_null(call, "id", out)
                ? (ignis__id_place *)ignis__alloc_for(call, sizeof *place)
                : NULL;
    if (!place)
        return ignis__failed();
    memset(&id, 0, sizeof id);
    memcpy(id.magic, "IGNISID1", sizeof id.magic);
    if (!ignis__id_listen(&id, &place->listener) || !ignis__random_bytes(id.secret, sizeof id.secret)) {
        ignis__system_error(why, sizeof why);
        ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, call, "this process cannot listen: %s", why);
        ignis__peer_file_close(&place->listener);
        ignis__free(place);
        return ignis__failed();
    }
    memcpy(place->secret, id.secret, sizeof place->secret);
    ignis__section_use(IGNIS__SECTION_JOB, ignis__ids_close);
    ignis__mutex_lock(&ignis__ids.lock);
    place->next = ignis__ids.first;
    ignis__ids.first = place;
    ignis__mutex_unlock(&ignis__ids.lock);
    memcpy(out, &id, sizeof *out);
    return IGNIS_OK;
}
