/*  collective - what is opened and closed of ignis_collective.h. */
#pragma once

#include "../base/room.h"

/*  Sections in the order of the floors; ignis_shutdown closes them in reverse order. */
typedef enum ignis__section {
    IGNIS__SECTION_VMM,
    IGNIS__SECTION_CHANNEL,
    IGNIS__SECTION_TRANSPORT,
    IGNIS__SECTION_JOB,
    IGNIS__SECTION_COMM,
    IGNIS__SECTION_PARALLEL,
    IGNIS__SECTION_COUNT
} ignis__section;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* setup.c */
IGNIS__PRIVATE void ignis__section_use(ignis__section section, void (*close)(const char *call));
IGNIS__PRIVATE bool ignis__collective_enter(const char *call);
