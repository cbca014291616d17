/*  >>formula.kernel - kernels of formulas: compiled, cached, recorded, or from a bundle

    A spec decides the text of a kernel. A record keeps specs as words; a bundle has kernels for any shape
    besides the recorded ones.
    Uses: emit; the room kernel. Locks: the formulas' lock guards each formula's list of kernels; nothing
    compiles under it. */

#include "room.h"

/*  Writes a spec as words of a record: its numbers that are not 0, as "index:number,...". */
IGNIS__COLD static void ignis__formula_spec_write(ignis__formula_text *t, const ignis__formula_spec *spec)
{
    uint16_t numbers[IGNIS__FORMULA_SPEC];
    const char *comma = "";
    int i;
    memcpy(numbers, spec, sizeof numbers);
    for (i = 0; i < IGNIS__FORMULA_SPEC; i++)
        if (numbers[i]) {
            ignis__formula_emit(t, "%s%d:%d", comma, i, numbers[i]);
            comma = ",";
        }
}

/*  Checks that a spec, which a person may have written, is possible. */
IGNIS__COLD static bool ignis__formula_spec_valid(const ignis__formula *formula, const ignis__formula_spec *spec)
{
    int i, count = formula->count, outs = 0;
    bool reduces = spec->mode != IGNIS__FORMULA_EACH;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] > IGNIS__FORMULA_COLUMN || spec->dtype[i] >= IGNIS_DTYPE_COUNT ||
            (!spec->dtype[i] && spec->kind[i] != IGNIS__FORMULA_UNUSED && spec->kind[i] != IGNIS__FORMULA_VALUE))
            return false;
    for (i = 0; i < spec->outs && i < IGNIS_MAX_INPUTS; i++)
        if (spec->out[i] == 0 || spec->out[i] >= IGNIS_DTYPE_COUNT)
            return false;
    for (i = 0; i < count; i++)
        outs += spec->needed >> i & 1;
    return spec->outs >= 1 && spec->outs <= IGNIS_MAX_INPUTS && spec->result < formula->result_count &&
           (spec->needed ? outs == spec->outs && !(spec->needed >> count)
                         : spec->result + spec->outs <= formula->result_count) &&
           spec->mode <= IGNIS__FORMULA_COLUMNS && spec->reduction < IGNIS_REDUCE_COUNT &&
           (spec->reduction != 0) == reduces && (spec->reduced != 0) == reduces && !(spec->reduced >> spec->outs) &&
           spec->rank >= 1 && spec->rank <= IGNIS__FORMULA_ANY_RANK && spec->pack >= 1 && spec->pack <= 16 &&
           !(spec->pack & (spec->pack - 1)) && spec->packs_per_thread >= 1 && spec->packs_per_thread <= 2 &&
           spec->team <= 128 && !(spec->team & (spec->team - 1)) &&
           (spec->mode != IGNIS__FORMULA_ROWS || spec->team >= 32) &&
           (spec->mode != IGNIS__FORMULA_COLUMNS || (spec->team >= 1 && spec->team <= 32)) && spec->whole <= 1 &&
           spec->wide <= 1 && spec->half <= 1 && spec->parts <= 1 &&
           (!spec->kept || (spec->kept >= IGNIS_REDUCE_PROD && spec->kept < IGNIS_REDUCE_COUNT));
}

/*  Changes a spec to a kernel for any shapes, strides and addresses. Inputs that are arrays are read by
    strides, one element at a time. */
IGNIS__PRIVATE void ignis__formula_spec_generalize(ignis__formula_spec *spec, int count)
{
    int i;
    for (i = 0; i <= count + 1; i++)
        if (spec->kind[i] != IGNIS__FORMULA_UNUSED && spec->kind[i] != IGNIS__FORMULA_VALUE)
            spec->kind[i] = IGNIS__FORMULA_COLUMN;
    spec->rank = IGNIS__FORMULA_ANY_RANK;
    spec->pack = spec->packs_per_thread = spec->whole = 1;
    spec->parts = spec->mode != IGNIS__FORMULA_EACH;
}

/*  Returns the variants of a kernel that other sizes and addresses need: those for inputs that broadcast
    alike, then those for any. False if there are no more. */
static bool ignis__formula_spec_variant(const ignis__formula_spec *spec, int count, int index,
                                        ignis__formula_spec *other)
{
    static const struct {
        uint16_t mode, team;
    } any[] = {{IGNIS__FORMULA_ROWS, 128}, {IGNIS__FORMULA_COLUMNS, 4}, {IGNIS__FORMULA_COLUMNS, 32}};
    bool broadcasts = false, reduces = spec->mode != IGNIS__FORMULA_EACH;
    int i, widest = 1, alike;
    for (i = 0; i <= count + 1; i++) {
        broadcasts = broadcasts || spec->kind[i] >= IGNIS__FORMULA_ROW;
        if ((spec->kind[i] == IGNIS__FORMULA_LINEAR || spec->kind[i] == IGNIS__FORMULA_ROW) &&
            ignis__dtypes[spec->dtype[i]].size > widest)
            widest = ignis__dtypes[spec->dtype[i]].size;
    }
    for (i = 0; i < spec->outs; i++)
        if (!(spec->reduced >> i & 1) && ignis__dtypes[spec->out[i]].size > widest)
            widest = ignis__dtypes[spec->out[i]].size;
    alike = spec->rank == IGNIS__FORMULA_ANY_RANK                      ? 0
            : !reduces                                                 ? 1 + broadcasts
            : spec->mode == IGNIS__FORMULA_COLUMNS && spec->team == 32 ? 2
                                                                       : 4;
    *other = *spec;
    if (index < alike) {
        other->pack = (uint16_t)(16 / widest);
        other->whole = reduces || index == 0;
        other->parts = reduces && index % 2;
        if (reduces && index >= 2)
            other->team = spec->mode == IGNIS__FORMULA_COLUMNS || spec->team != 32 ? 32 : 128;
        return true;
    }
    index -= alike;
    if (index >= (reduces ? IGNIS__COUNT(any) : 1))
        return false;
    if (reduces) {
        other->mode = any[index].mode;
        other->team = any[index].team;
    }
    ignis__formula_spec_generalize(other, count);
    return true;
}

/*  Returns whether another kernel can take the launch of `meant`. */
static bool ignis__formula_spec_serves(const ignis__formula_spec *other, const ignis__formula_spec *meant)
{
    bool any = other->rank == IGNIS__FORMULA_ANY_RANK;
    if (other->mode != meant->mode || other->parts < meant->parts)
        return false;
    if (any)
        return meant->mode != IGNIS__FORMULA_COLUMNS || other->team == 32 || other->team >= meant->team * meant->pack;
    return other->pack <= meant->pack && (!other->whole || meant->whole || other->pack == 1);
}

IGNIS__PRIVATE void ignis__formula_source_free(ignis__formula_source *made)
{
    ignis__free(made->text.data);
    ignis__free(made->line.data);
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__formula_source_make(const char *call, const ignis__formula *formula,
                                                           const ignis__formula_spec *spec, ignis__formula_source *made)
{
    static const char *const options[] = {"-w", "-ftz=true", "-prec-div=false"};
    ignis__formula_writer writer;
    const char *words[2], *at;
    bool ok;
    int i;
    memset(made, 0, sizeof *made);
    ok = ignis__formula_write_kernel(&writer, formula, spec);
    made->text = writer.text;
    words[0] = formula->text;
    words[1] = formula->names;
    ignis__formula_emit(&made->line, "formula 0-%d", IGNIS__EVERY_ARCH);
    for (i = 0; i < 2; i++) {
        ignis__formula_emit(&made->line, " \"");
        for (at = words[i]; *at; at++)
            ignis__formula_emit(&made->line, "%s%c",
                                *at == '"' || *at == '\\' || *at == '\n' || *at == '\r' ? "\\" : "",
                                *at == '\n'   ? 'n'
                                : *at == '\r' ? 'r'
                                              : *at);
        ignis__formula_emit(&made->line, "\"");
    }
    ignis__formula_emit(&made->line, " %d %u ", formula->count, (unsigned)formula->integers);
    ignis__formula_spec_write(&made->line, spec);
    made->program.source = made->text.data;
    made->program.name = "formula.cu";
    made->program.common = &ignis__source_map_cuh;
    made->program.options = options;
    made->program.option_count = spec->half ? 3 : 1;
    made->program.formula = formula->text;
    made->program.line = made->line.data;
    if (ok && !made->line.failed)
        return true;
    ignis__formula_source_free(made);
    ignis__fail_host_memory(call, 1);
    return false;
}

/*  Reads a line "TEXT" "NAMES" INPUTS INTEGERS NUMBERS */
IGNIS__COLD IGNIS__PRIVATE bool ignis__request_read_formula(char *line, ignis__request *request, bool *whole,
                                                            ignis__string_writer *why)
{
    char *text = ignis__request_word(&line, whole), *names = ignis__request_word(&line, whole), *word[3], *at, *end;
    long count, integers, place, number;
    uint16_t numbers[IGNIS__FORMULA_SPEC];
    char reason[300];
    ignis__record before, failure;
    ignis__formula_spec spec;
    ignis__formula_source made;
    ignis__formula *formula;
    int i;
    for (i = 0; i < 3; i++)
        word[i] = ignis__request_word(&line, whole);
    count = word[0] ? strtol(word[0], NULL, 10) : 0;
    integers = word[1] ? strtol(word[1], NULL, 10) : -1;
    if (!word[2] || count < 1 || count > IGNIS_MAX_INPUTS || integers < 0 || integers >> count)
        return ignis__explain(
            why, "a formula is a text, names of inputs, how many, which are integers, and numbers of its kernel");
    memset(numbers, 0, sizeof numbers);
    for (at = word[2]; *at; at = end + (*end == ',')) {
        place = strtol(at, &end, 10);
        number = *end == ':' ? strtol(end + 1, &end, 10) : -1;
        if (place < 0 || place >= IGNIS__FORMULA_SPEC || number < 0 || number > 65535 || (*end && *end != ','))
            return ignis__explain(why, "a formula's kernel has a malformed number at '%.20s'", at);
        numbers[place] = (uint16_t)number;
    }
    memcpy(&spec, numbers, sizeof spec);
    before = ignis__quiet_begin();
    formula = ignis__formula_get("the formula", text, names, (int)count, (uint32_t)integers);
    ignis__quiet_end(&before, &failure, reason, sizeof reason);
    if (!formula)
        return ignis__explain(why, "%s", reason);
    if (!ignis__formula_spec_valid(formula, &spec))
        return ignis__explain(why, "a formula's kernel has impossible numbers");
    request->formula = formula;
    memcpy(request->spec, numbers, sizeof numbers);
    if (spec.rank == IGNIS__FORMULA_ANY_RANK) /* of a bundle only: this kernel and its variants */
        return true;
    if (!ignis__formula_source_make("a record", formula, &spec, &made))
        return ignis__explain(why, "out of memory");
    ignis__free(made.line.data);
    for (i = 0; i < made.program.option_count; i++)
        request->options[i] = made.program.options[i];
    made.program.options = request->options;
    made.program.line = NULL;
    request->program = made.program;
    request->text = made.text.data;
    return true;
}

/*  Returns the variants that a bundle holds besides the kernel of a formula's line. False if there are no
    more. For tools/ignis_embed.c. */
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE bool ignis__request_variant(const ignis__request *request, int index,
                                                                           ignis__formula_source *made)
{
    ignis__formula_spec spec, other;
    memcpy(&spec, request->spec, sizeof spec);
    return request->formula && ignis__formula_spec_variant(&spec, request->formula->count, index, &other) &&
           ignis__formula_source_make("a record", request->formula, &other, made);
}

/*  Records a kernel and the variants that other sizes need. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formula_record(const char *call, const ignis__formula *formula,
                                                      const ignis__formula_spec *spec)
{
    ignis__formula_source made;
    if (!ignis__formula_source_make(call, formula, spec, &made))
        return;
    ignis__request_add(&made.program, 0, IGNIS__EVERY_ARCH);
    ignis__formula_source_free(&made);
}

/*  Finds a kernel made for a spec, or one that serves instead. NULL if there is none yet. */
IGNIS__PRIVATE const ignis__formula_kernel *ignis__formula_kernel_find(const ignis__device *device,
                                                                       const ignis__formula *formula,
                                                                       const ignis__formula_spec *spec)
{
    const ignis__formula_kernel *kernel;
    ignis__mutex_lock(&ignis__formulas.lock);
    for (kernel = formula->kernels; kernel; kernel = kernel->next)
        if (kernel->device == device && memcmp(&kernel->spec, spec, sizeof *spec) == 0)
            break;
    ignis__mutex_unlock(&ignis__formulas.lock);
    return kernel && kernel->instead ? kernel->instead : kernel;
}

/*  Adds a kernel to the list. Two threads may make the same one; both stay, the newer is found. */
static void ignis__formula_kernel_list(ignis__formula *formula, ignis__formula_kernel *kernel)
{
    ignis__mutex_lock(&ignis__formulas.lock);
    kernel->next = formula->kernels;
    formula->kernels = kernel;
    ignis__mutex_unlock(&ignis__formulas.lock);
}

/*  Loads a kernel on a device that is entered. bundled: only from the bundle. NULL on failure, or with
    *failed false if it does not exist. */
IGNIS__COLD static const ignis__formula_kernel *ignis__formula_kernel_load(const char *call, ignis__device *device,
                                                                           ignis__formula *formula,
                                                                           const ignis__formula_spec *spec,
                                                                           bool bundled, bool *failed)
{
    ignis__formula_kernel *kernel = NULL;
    ignis__formula_source made;
    *failed = true;
    if (!ignis__formula_source_make(call, formula, spec, &made))
        return NULL;
    *failed = !bundled || ignis__program_bundled(device, &made.program);
    if (*failed && (kernel = (ignis__formula_kernel *)ignis__alloc_for(call, sizeof *kernel)) != NULL) {
        memset(kernel, 0, sizeof *kernel);
        kernel->spec = *spec;
        kernel->device = device;
        if (!ignis__module_make(call, device, &made.program, &kernel->module) ||
            !ignis__function_get(call, device, &kernel->module, "k", &kernel->function) ||
            (spec->parts && !ignis__function_get(call, device, &kernel->module, "finish", &kernel->finish))) {
            ignis__module_unload(&kernel->module);
            ignis__free(kernel);
            kernel = NULL;
        }
    }
    ignis__formula_source_free(&made);
    if (!kernel)
        return NULL;
    *failed = false;
    ignis__function_name(kernel->function, formula->text);
    ignis__formula_kernel_list(formula, kernel);
    return kernel;
}

/*  Returns a kernel on a device that is entered. If the spec's kernel is neither in the bundle nor can be
    compiled, a kernel of the bundle that serves. NULL on failure. */
IGNIS__PRIVATE const ignis__formula_kernel *ignis__formula_kernel_get(const char *call, ignis__device *device,
                                                                      ignis__formula *formula,
                                                                      const ignis__formula_spec *spec)
{
    const ignis__formula_kernel *kernel = ignis__formula_kernel_find(device, formula, spec);
    ignis__formula_kernel *stands;
    ignis__formula_spec other;
    bool failed = false;
    int index;
    if (kernel)
        return kernel;
    if (!ignis__the_bundle.data || ignis__compiler_available(call))
        return ignis__formula_kernel_load(call, device, formula, spec, false, &failed);
    kernel = ignis__formula_kernel_load(call, device, formula, spec, true, &failed);
    if (kernel || failed)
        return kernel;
    for (index = 0; !kernel && !failed && ignis__formula_spec_variant(spec, formula->count, index, &other); index++)
        if (ignis__formula_spec_serves(&other, spec) &&
            (kernel = ignis__formula_kernel_find(device, formula, &other)) == NULL)
            kernel = ignis__formula_kernel_load(call, device, formula, &other, true, &failed);
    if (failed)
        return NULL;
    if (!kernel) /* from the caches; a missing kernel is reported by its name */
        return ignis__formula_kernel_load(call, device, formula, spec, false, &failed);
    stands = (ignis__formula_kernel *)ignis__alloc(sizeof *stands);
    if (stands) { /* else it is looked up again */
        memset(stands, 0, sizeof *stands);
        stands->spec = *spec;
        stands->device = device;
        stands->instead = kernel;
        ignis__formula_kernel_list(formula, stands);
    }
    return kernel;
}

/*  Unloads the kernels of a device, whose context is current. NULL: forgets the formulas, which have no
    kernels any more. */
IGNIS__COLD IGNIS__PRIVATE void ignis__formulas_close(const ignis__device *device)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__formulas.first); i++) {
        ignis__formula *formula = ignis__formulas.first[i], *next;
        for (; formula; formula = next) {
            ignis__formula_kernel **link = &formula->kernels, *kernel;
            next = formula->next;
            while (device && (kernel = *link) != NULL) {
                if (kernel->device != device) {
                    link = &kernel->next;
                    continue;
                }
                *link = kernel->next;
                ignis__module_unload(&kernel->module);
                ignis__free(kernel);
            }
            if (!device) {
                ignis__free(formula->term);
                ignis__free(formula);
            }
        }
        if (!device)
            ignis__formulas.first[i] = NULL;
    }
}

/*  Here and not in kernel/, so that formulas are not part of a program that reads no record. */
IGNIS__COLD IGNIS_API ignis_ticket ignis_warmup_record(const char *path)
{
    return ignis__warmup_record(path, ignis__request_read_formula);
}
