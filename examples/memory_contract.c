// SPDX-License-Identifier: MIT
/*  memory_contract.c - each rule of the memory contract, broken once

    Arrays have an owner: Ignis itself, the collective layer (NVCCL) or the storage layer (WNAIS). Only the owner
    may free an array. A layer acquires an array before it works on it, and releases it afterwards. References keep an
    array in place. Breaking a rule fails and changes nothing: the status tells the kind of mistake, the message names
    the array and the rule. At the end an array is leaked on purpose: the audit lists it, and shutdown reports it.

        cc -I. examples/memory_contract.c -o memory_contract -lm -ldl -lpthread && ./memory_contract
*/
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <stdio.h>

/*  Ignis writes failures to stderr by default. This logger writes all of them to stdout, including leaks at shutdown.
    */
static void log_to_stdout(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)user_data;
    if (level == IGNIS_LOG_WARNING)
        printf("  warning %s\n    %s\n", ignis_diagnostic_name(diagnostic), message);
}

/*  Prints the failure of the previous call, and clears it. A forbidden call that succeeds ends the program with 1. */
static int unexpected;

static void show(const char *what)
{
    ignis_status_info info;
    printf("%s\n", what);
    if (ignis_status_query(&info) == IGNIS_OK) {
        printf("  was not refused!\n");
        unexpected++;
    } else {
        printf("  %s, %s\n    %s\n", ignis_status_name(info.status), ignis_diagnostic_name(info.diagnostic),
               info.message);
    }
    ignis_status_clear();
}

int main(void)
{
    ignis_desc setup = {.logger = {.log_fn = log_to_stdout}};
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(8, 4), .tag = "weights"};
    float row[4] = {1, 2, 3, 4};

    if (ignis_setup(&setup) != IGNIS_OK) {
        printf("%s\n", ignis_status_message());
        return 1;
    }
    ignis_array a = ignis_array_create(&desc);
    ignis_array_from_host(a, row, IGNIS_F32, 4);
    show("Writing 4 elements to an array of 32");

    ignis_array_slice(a, 1, 0, 2);
    show("Slicing columns out of rows");

    printf("\n");
    ignis_contract_acquire(a, IGNIS_OWNER_NVCCL); /* the collective layer acquires it ... */
    ignis_array_free(a);
    show("Freeing an array that another layer has acquired");
    ignis_contract_acquire(a, IGNIS_OWNER_NVCCL);
    show("Acquiring twice");
    ignis_contract_release(a, IGNIS_OWNER_WNAIS);
    show("Releasing an array that another layer holds");
    ignis_contract_assert_owner(a, IGNIS_OWNER_IGNIS);
    show("Asserting the wrong owner");
    ignis_contract_release(a, IGNIS_OWNER_NVCCL); /* ... and releases it */

    printf("\n");
    ignis_array_increment_ref(a);
    ignis_array_free(a);
    show("Freeing a referenced array");
    ignis_array_increment_ref(a);
    ignis_array_transfer_ownership(a, IGNIS_OWNER_WNAIS);
    show("Transferring an array with two references");
    ignis_array_decrement_ref(a);
    ignis_array_decrement_ref(a);
    ignis_array_decrement_ref(a);
    show("Dropping a reference that was not taken");

    printf("\n");
    ignis_array_pin(a);
    ignis_array_pin(a);
    show("Pinning twice");
    ignis_array_unpin(a);
    ignis_array_unpin(a);
    show("Unpinning an array that is not pinned");

    printf("\n");
    ignis_array_free(a);
    ignis_array_zero(a);
    show("Using an array after its free");
    ignis_array_free(a);
    show("Freeing an array twice");
    ignis_array_zero((ignis_array){12345});
    show("Using a handle that never existed");

    printf("\nOne array is forgotten on purpose. The audit:\n");
    desc.tag = "forgotten";
    a = ignis_array_create(&desc);
    ignis_array_fill(a, 0);
    ignis_contract_track(a);
    ignis_contract_entry entries[8];
    int count = ignis_contract_audit(entries, 8, -1),
        i; /* -1: whatever their age; usually one asks for those above 5 seconds */
    for (i = 0; i < count; i++)
        printf("  array #%llu '%s', %lld bytes, %s, tracked for %lld ms\n", (unsigned long long)entries[i].array_id,
               entries[i].tag, (long long)entries[i].bytes, entries[i].freed ? "freed" : "live",
               (long long)entries[i].age_ms);
    printf("And at shutdown:\n");
    if (ignis_status_last() != IGNIS_OK || ignis_shutdown() != IGNIS_OK) {
        printf("%s\n", ignis_status_message());
        return 1;
    }
    return unexpected != 0;
}
