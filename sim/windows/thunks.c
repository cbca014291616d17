// SPDX-License-Identifier: MIT
/*  thunks.c - writes Windows libraries that pass calls on to Linux ones, for Wine

    thunks nvcuda|nvrtc64_130_0|cublasLt64_13 >NAME.c
    thunks NAME spec >NAME.spec

    winegcc -shared NAME.spec NAME.c makes a library that Wine loads as NAME.dll. It is an ELF file, so it can open the
    Linux driver, or the simulator's; its functions have the calling convention of Windows. Their prototypes come from
    the tables in ignis.h: no argument needs translating, but those of the functions in thunk.h. */
#define IGNIS_IMPLEMENTATION
#include "../../ignis.h"

typedef struct row {
    const char *ret, *name, *args;
} row;

#define ROW(ret, name, args, version, required) {#ret, #name, #args},
static const row cuda[] = {IGNIS__CUDA_API(ROW)};
static const row nvrtc[] = {IGNIS__NVRTC_API(ROW)};
static const row cublaslt[] = {IGNIS__CUBLASLT_API(ROW)};

static const struct {
    const char *name, *file;
    const row *rows;
    int count;
} libraries[] = {
    {"nvcuda", "libcuda.so.1", cuda, IGNIS__COUNT(cuda)},
    {"nvrtc64_130_0", "libnvrtc.so", nvrtc, IGNIS__COUNT(nvrtc)},
    {"cublasLt64_13", "libcublasLt.so", cublaslt, IGNIS__COUNT(cublaslt)},
};

/*  Writes "(int *, size_t)" as parameters a0, a1, ... Returns their number. */
static int write_parameters(const char *args)
{
    const char *at = args + 1, *end;
    int count = 0;
    if (strcmp(args, "(void)") == 0)
        return printf("void"), 0;
    for (; *at; at = *end == ',' ? end + 2 : end + 1) {
        int depth = 0, length;
        const char *hole;
        for (end = at; *end && (depth > 0 || (*end != ',' && *end != ')')); end++)
            depth += *end == '(' ? 1 : *end == ')' ? -1 : 0;
        length = (int)(end - at);
        hole = strstr(at, "(*)");
        hole = hole && hole < end ? hole + 2 : (hole = strchr(at, '[')) != NULL && hole < end ? hole : end;
        printf("%s%.*s a%d%.*s", count ? ", " : "", (int)(hole - at), at, count, length - (int)(hole - at), hole);
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    int i, k, a;
    for (k = 0; k < IGNIS__COUNT(libraries); k++) {
        if (argc < 2 || strcmp(argv[1], libraries[k].name) != 0)
            continue;
        if (argc > 2) {
            for (i = 0; i < libraries[k].count; i++)
                printf("@ stdcall %s() thunk_%s\n", libraries[k].rows[i].name, libraries[k].rows[i].name);
            return 0;
        }
        printf("#include \"thunk.h\"\n");
        for (i = 0; i < libraries[k].count; i++) {
            const row *row = &libraries[k].rows[i];
            int count;
            printf("static %s (*real_%s)%s;\n#define CALL_%s real_%s\n", row->ret, row->name, row->args, row->name,
                   row->name);
            printf("#ifdef SPECIAL_%s\n#undef CALL_%s\n#define CALL_%s SPECIAL_%s\n", row->name, row->name, row->name,
                   row->name);
            printf("static %s SPECIAL_%s%s;\n#endif\n", row->ret, row->name, row->args);
            printf("%s __attribute__((ms_abi)) thunk_%s(", row->ret, row->name);
            count = write_parameters(row->args);
            printf(")\n{\n    open_once();\n    return CALL_%s(", row->name);
            for (a = 0; a < count; a++)
                printf("%sa%d", a ? ", " : "", a);
            printf(");\n}\n");
        }
        printf("static void open_all(void)\n{\n    void *library = open_library(\"%s\");\n", libraries[k].file);
        for (i = 0; i < libraries[k].count; i++)
            printf("    *(void **)&real_%s = find(library, \"%s\");\n", libraries[k].rows[i].name,
                   libraries[k].rows[i].name);
        printf("}\n#define LIBRARY_%s\n#include \"special.h\"\n", libraries[k].name);
        return 0;
    }
    fprintf(stderr, "usage: thunks LIBRARY [spec]\n");
    return 1;
}
