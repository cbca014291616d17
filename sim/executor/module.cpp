// SPDX-License-Identifier: MIT
/*  module.cpp - modules: loads images, lists their kernels, finds their variables

    An image is an ELF shared object. Each load gives a module with its own variables.
*/

/* Returns the size of an image: its section headers are at its end. */
static size_t image_size(const void *image)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_type != ET_DYN)
        return 0;
    return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
}

static bool write_all(int file, const void *data, size_t size)
{
    const char *p = (const char *)data;
    while (size) {
        ssize_t n = write(file, p, size);
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* Opens the image through a memory file. It remains open as long as the module: its number makes the path
   unique (the loader would return the same module for the same path or file), debuggers and sanitizers read
   the lines from it, and no file is left on disk. */
/* Orders loading and unloading. ThreadSanitizer does not see the lock inside the C library that does; this
   one it sees. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool module_open(sim_module *m, const void *image, size_t size)
{
    char path[64];
    m->file = memfd_create("ignis_sim_kernels", MFD_CLOEXEC);
    if (m->file < 0 || !write_all(m->file, image, size))
        return false;
    void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, m->file, 0);
    if (mapped == MAP_FAILED)
        return false;
    m->elf = (const Elf64_Ehdr *)mapped;
    m->elf_size = size;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), m->file);
    pthread_mutex_lock(&loading);
    m->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&loading);
    if (!m->handle) {
        fprintf(stderr, "ignis sim: cannot load a kernel image: %s\n", dlerror());
        return false;
    }
    m->info = (const sim_module_info_t *)dlsym(m->handle, "sim_module_info");
    if (!m->info || m->info->abi != SIM_ABI_VERSION) {
        fprintf(stderr, "ignis sim: this image was made by another version of the simulator\n");
        return false;
    }
    return true;
}

static bool module_list_kernels(sim_module *m)
{
    m->kernels = (loaded_kernel *)calloc((size_t)m->info->entry_count + 1, sizeof *m->kernels);
    if (!m->kernels)
        return false;
    for (int i = 0; i < m->info->entry_count; i++) {
        const sim_entry_point *e = &m->info->entries[i];
        loaded_kernel *k = &m->kernels[i];
        Dl_info symbol;
        k->entry = e;
        k->module = m;
        k->facts.name = e->name;
        k->facts.param_count = e->param_count;
        k->facts.param_sizes = e->sizes;
        k->facts.param_offsets = e->offsets;
        k->facts.spins = (e->flags & SIM_KERNEL_SPINS) != 0;
        k->facts.cluster = e->cluster;
        k->facts.max_threads = e->max_threads < MAX_THREADS ? e->max_threads : MAX_THREADS;
        if (e->address && dladdr(e->address, &symbol) && symbol.dli_saddr == e->address)
            k->mangled = symbol.dli_sname;
    }
    return true;
}

extern "C" int sim_module_load(const void *image, sim_module **out)
{
    setup();
    size_t size = image ? image_size(image) : 0;
    if (!size)
        return SIM_INVALID_IMAGE;
    sim_module *m = (sim_module *)calloc(1, sizeof *m);
    if (!m)
        return SIM_OUT_OF_MEMORY;
    m->file = -1;
    pthread_mutex_init(&m->one_at_a_time, NULL);
    if (!module_open(m, image, size) || !module_list_kernels(m)) {
        sim_module_unload(m);
        return SIM_INVALID_IMAGE;
    }
    *m->info->runtime = &runtime;
    *out = m;
    return SIM_OK;
}

extern "C" void sim_module_unload(sim_module *m)
{
    pthread_mutex_lock(&loading);
    if (m->handle)
        dlclose(m->handle);
    pthread_mutex_unlock(&loading);
    if (m->elf)
        munmap((void *)m->elf, m->elf_size);
    if (m->file >= 0)
        close(m->file);
    free(m->kernels);
    free(m);
}

extern "C" const sim_kernel *sim_module_kernel(sim_module *m, const char *name)
{
    for (int i = 0; i < m->info->entry_count; i++) {
        const loaded_kernel *k = &m->kernels[i];
        if (strcmp(k->facts.name, name) == 0 || (k->mangled && strcmp(k->mangled, name) == 0))
            return &k->facts;
    }
    return NULL;
}

static const Elf64_Sym *find_variable(const sim_module *m, const char *name)
{
    const char *base = (const char *)m->elf;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + m->elf->e_shoff);
    for (int i = 0; i < m->elf->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const char *strings = base + sections[sections[i].sh_link].sh_offset;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(base + sections[i].sh_offset);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_OBJECT && symbols[k].st_shndx != SHN_UNDEF &&
                strcmp(strings + symbols[k].st_name, name) == 0)
                return &symbols[k];
    }
    return NULL;
}

extern "C" int sim_module_global(sim_module *m, const char *name, void **ptr, size_t *bytes)
{
    struct link_map *map;
    const Elf64_Sym *symbol = find_variable(m, name);
    if (!symbol || dlinfo(m->handle, RTLD_DI_LINKMAP, &map))
        return SIM_NOT_FOUND;
    if (ptr)
        *ptr = (char *)map->l_addr + symbol->st_value;
    if (bytes)
        *bytes = symbol->st_size;
    return SIM_OK;
}
