// SPDX-License-Identifier: MIT
/*  test_shared.c - structs of src/shared: a kernel and the host agree on each size, and on where each member is

    build/shared_layout.h lists all structs and members; see tools/shared_layout.awk. */
#include "ignis_collective.h"
#include "ignis_models.h"
#include "test.h"

#include "build/shared_layout.h"

typedef struct place {
    const char *type, *member; /* member NULL: the size of the type */
    size_t value;
} place;

#define SIZE(type) {#type, NULL, sizeof(type)},
#define OFFSET(type, member) {#type, #member, offsetof(type, member)},

static const place places[] = {SHARED_STRUCTS(SIZE) SHARED_MEMBERS(OFFSET)};

enum { PLACES = sizeof places / sizeof *places, HEADERS = 64 };

/*  Texts that others need come first. */
static const char *const first[] = {"shared/divisor.h", "shared/models/generate.h", "shared/models/weights.h"};

static bool is_shared(const ignis__source *source) { return strncmp(source->name, "shared/", 7) == 0; }

/*  A kernel that writes what the host has in `places`. */
static void write_source(char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "#include \"ignis.cuh\"\ntypedef float T, W, Wide, Operand, Bias;\n");
    const ignis__source *source;
    int i;
    for (i = 0; i < IGNIS__COUNT(first); i++)
        at += (size_t)snprintf(text + at, size - at, "#include \"%s\"\n", first[i]);
    for (i = 0; (source = ignis__source_at(i)) != NULL; i++)
        if (is_shared(source))
            at += (size_t)snprintf(text + at, size - at, "#include \"%s\"\n", source->name);
    at += (size_t)snprintf(text + at, size - at,
                           "extern \"C\" __global__ void places(long long *to)\n{\n    const int of[] = {\n");
    for (i = 0; i < PLACES; i++)
        at += places[i].member
                  ? (size_t)snprintf(text + at, size - at, "        (int)(unsigned long long)&((%s *)0)->%s,\n",
                                     places[i].type, places[i].member) /* NVRTC has no offsetof */
                  : (size_t)snprintf(text + at, size - at, "        (int)sizeof(%s),\n", places[i].type);
    at += (size_t)snprintf(text + at, size - at,
                           "    };\n    for (int i = 0; i < %d; i++)\n        to[i] = of[i];\n}\n", PLACES);
    CHECK(at < size);
}

TEST(host_and_kernels_agree)
{
    static char source[64 << 10];
    static long long found[PLACES];
    ignis_kernel_header headers[HEADERS];
    ignis_kernel_desc program;
    ignis_array_desc desc;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg arg;
    ignis_array to;
    ignis_kernel kernel;
    const ignis__source *shared;
    int i, count = 0;
    SETUP(NULL);
    memset(&program, 0, sizeof program), memset(&desc, 0, sizeof desc), memset(headers, 0, sizeof headers);
    write_source(source, sizeof source);
    for (i = 0; (shared = ignis__source_at(i)) != NULL; i++)
        if (is_shared(shared) && count < HEADERS) { /* programs of a user do not get these */
            headers[count].name = shared->name;
            headers[count++].text = ignis__source_join(shared);
        }
    program.source = source;
    program.name = "places.cu";
    program.entry = "places";
    program.headers = headers;
    program.header_count = count;
    kernel = ignis_kernel_compile(&program);
    CHECK(kernel.id != 0);
    while (count > 0)
        ignis__free((void *)(uintptr_t)headers[--count].text);
    if (!kernel.id)
        return;
    desc.shape = IGNIS_SHAPE(PLACES);
    desc.dtype = IGNIS_I64;
    to = ignis_array_create(&desc);
    arg = ignis_arg_array(to);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_array_to_host(to, found, IGNIS_I64, PLACES));
    for (i = 0; i < PLACES; i++)
        if ((size_t)found[i] != places[i].value) {
            char message[200];
            snprintf(message, sizeof message, "%s %s %s: the kernel has %lld, the host has %zu",
                     places[i].member ? "offset of" : "size of", places[i].type,
                     places[i].member ? places[i].member : "", found[i], places[i].value);
            test__fail(__FILE__, __LINE__, message);
        }
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(to));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
