/*  report/memory_snapshot.c - ignis_memory_snapshot: the uses of memory as JSON or a drawing

    Copies the rows of ignis_memory_rows and the facts of arrays, then writes without locks.
    May use: device/memory_query.c, >>array, report_file.c. Locks: those of arrays, one at a time. */

#include "room.h"

/*  The memory of a device in ignis_memory_snapshot. */
typedef struct ignis__snapshot {
    int device, count;
    ignis_memory_info info;
    ignis_memory_row *rows;
} ignis__snapshot;

/*  Writes the purpose of memory for readers. */
IGNIS__COLD static void ignis__row_name(const ignis_memory_row *row, char *name, size_t size)
{
    const char *slash = strrchr(row->file, '/');
    int used =
        snprintf(name, size, "%s%s%s", row->tag[0] ? row->tag : row->call, row->inside[0] ? " in " : "", row->inside);
    if (row->file[0] && used >= 0 && (size_t)used < size)
        snprintf(name + used, size - (size_t)used, ", %s:%d", slash ? slash + 1 : row->file, row->line);
}

IGNIS__COLD static void ignis__snapshot_json(FILE *file, const ignis__snapshot *shot, bool first)
{
    const ignis_memory_info *info = &shot->info;
    int i;
    fprintf(file, "%s\n{\"device\": %d, \"name\": ", first ? "" : ",", shot->device);
    ignis__json_text(file, ignis__devices[shot->device].info.name);
    fprintf(file,
            ", \"live_bytes\": %lld, \"live_peak\": %lld, \"reserved_bytes\": %lld, \"reserved_peak\": %lld, "
            "\"vmm_bytes\": %lld,\n\"rows\": [",
            (long long)info->live_bytes, (long long)info->live_peak, (long long)info->reserved_bytes,
            (long long)info->reserved_peak, (long long)info->vmm_bytes);
    for (i = 0; i < shot->count; i++) {
        const ignis_memory_row *row = &shot->rows[i];
        fprintf(file, "%s\n    {\"tag\": ", i ? "," : "");
        ignis__json_text(file, row->tag);
        fprintf(file, ", \"call\": \"%s\", \"inside\": \"%s\", \"file\": ", row->call, row->inside);
        ignis__json_text(file, row->file);
        fprintf(file, ", \"line\": %d, \"live_bytes\": %lld, \"live_blocks\": %lld, \"peak_bytes\": %lld}", row->line,
                (long long)row->live_bytes, (long long)row->live_blocks, (long long)row->peak_bytes);
    }
    fprintf(file, "]}");
}

/*  Writes all live arrays of all devices. */
IGNIS__COLD static void ignis__snapshot_arrays(const char *call, FILE *file)
{
    ignis__array *array;
    ignis__storage *storage;
    uint64_t index = 0;
    int64_t now = ignis__wall_ns();
    bool first = true;
    int k;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        storage = array->storage;
        fprintf(file, "%s\n    {\"id\": %llu, \"parent\": %llu, \"tag\": ", first ? "" : ",",
                (unsigned long long)array->id, (unsigned long long)array->parent);
        ignis__json_text(file, array->tag);
        fprintf(file, ", \"dtype\": \"%s\", \"shape\": [", ignis__dtypes[array->dtype].name);
        for (k = 0; k < array->shape.ndim; k++)
            fprintf(file, "%s%lld", k ? ", " : "", (long long)array->shape.dim[k]);
        fprintf(file,
                "], \"device\": %d, \"bytes\": %lld, \"on_device\": %s, \"wrapped\": %s, \"owner\": \"%s\", "
                "\"ref_count\": %d, \"age_ms\": "
                "%lld, \"call\": \"%s\", \"file\": ",
                ignis__device_ordinal(storage->device), (long long)ignis__array_bytes(array),
                ignis__atomic_load(&storage->address) ? "true" : "false", storage->wrapped ? "true" : "false",
                ignis_owner_name(array->owner), array->ref_count, (long long)((now - array->created_at_ns) / 1000000),
                storage->origin.call);
        ignis__json_text(file, storage->origin.file ? storage->origin.file : "");
        fprintf(file, ", \"line\": %d}", storage->origin.line);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        first = false;
    }
}

/*  Draws the bars of a device, downwards from y: live bytes, in front of those at the peak. Returns the y below
    them. */
IGNIS__COLD static int ignis__snapshot_draw(FILE *file, const ignis__snapshot *shot, int y)
{
    const double mib = 1048576;
    const ignis_memory_info *info = &shot->info;
    int64_t most = 1;
    char name[160];
    int i;
    for (i = 0; i < shot->count; i++) {
        most = shot->rows[i].live_bytes > most ? shot->rows[i].live_bytes : most;
        most = shot->rows[i].peak_bytes > most ? shot->rows[i].peak_bytes : most;
    }
    fprintf(file, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">device %d, ", y + 18, shot->device);
    ignis__xml_text(file, ignis__devices[shot->device].info.name);
    fprintf(file, ": in use %.1f MiB, at the peak %.1f MiB; of the driver %.1f MiB, at the peak %.1f MiB</text>\n",
            (double)info->live_bytes / mib, (double)info->live_peak / mib, (double)info->reserved_bytes / mib,
            (double)info->reserved_peak / mib);
    for (i = 0, y += 28; i < shot->count; i++, y += 20) {
        const ignis_memory_row *row = &shot->rows[i];
        ignis__row_name(row, name, sizeof name);
        fprintf(file, "<rect x=\"400\" y=\"%d\" width=\"%s\" height=\"16\" fill=\"#b8cce4\"/>\n", y,
                ignis__point_write(480.0 * (double)row->peak_bytes / (double)most).text);
        fprintf(file,
                "<rect x=\"400\" y=\"%d\" width=\"%s\" height=\"10\" fill=\"#1f5fa8\"/>\n<text x=\"390\" y=\"%d\" "
                "text-anchor=\"end\">",
                y + 3, ignis__point_write(480.0 * (double)row->live_bytes / (double)most).text, y + 12);
        ignis__xml_text(file, name);
        fprintf(file, "</text>\n<text x=\"890\" y=\"%d\">%.1f / %.1f MiB, %lld</text>\n", y + 12,
                (double)row->live_bytes / mib, (double)row->peak_bytes / mib, (long long)row->live_blocks);
    }
    return y + 12;
}

IGNIS__COLD static bool ignis__snapshot_write(const char *call, const char *path, const ignis__snapshot *shots,
                                              int count)
{
    size_t length = strlen(path);
    bool drawn = length >= 4 && strcmp(path + length - 4, ".svg") == 0;
    FILE *file = ignis__report_open(call, path);
    int i, y = 34;
    if (!file)
        return false;
    if (drawn) {
        for (i = 0; i < count; i++)
            y += 40 + 20 * shots[i].count;
        fprintf(file,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1100\" height=\"%d\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"10\" y=\"20\">Dark: in use now; "
                "light: at the peak, where "
                "it was traced. MiB now / at the peak, blocks now</text>\n",
                y);
        for (i = 0, y = 30; i < count; i++)
            y = ignis__snapshot_draw(file, &shots[i], y);
        fprintf(file, "</svg>\n");
    } else {
        fprintf(file, "{\"ignis\": \"%s\", \"devices\": [", ignis_version_string());
        for (i = 0; i < count; i++)
            ignis__snapshot_json(file, &shots[i], i == 0);
        fprintf(file, "],\n\"arrays\": [");
        ignis__snapshot_arrays(call, file);
        fprintf(file, "]}\n");
    }
    return ignis__report_close(call, path, file);
}

IGNIS__COLD IGNIS_API ignis_status ignis_memory_snapshot(const char *path)
{
    static const char call[] = "ignis_memory_snapshot";
    ignis__snapshot *shots;
    int i, count = 0;
    bool ok = true;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "path", path))
        return ignis__failed();
    shots = (ignis__snapshot *)ignis__alloc_for(call, sizeof *shots * (size_t)(ignis__device_total + 1));
    if (!shots)
        return ignis__failed();
    for (i = 0; ok && i < ignis__device_total; i++) {
        ignis__snapshot *shot = &shots[count];
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        shot->device = i;
        shot->rows = ignis__rows_make(call, &ignis__caches[i], &shot->count);
        ignis__mutex_lock(&ignis__caches[i].lock);
        shot->info = ignis__caches[i].info;
        ignis__mutex_unlock(&ignis__caches[i].lock);
        ok = shot->rows != NULL;
        count += ok;
    }
    ok = ok && ignis__snapshot_write(call, path, shots, count);
    while (count > 0)
        ignis__free(shots[--count].rows);
    ignis__free(shots);
    return ok ? IGNIS_OK : ignis__failed();
}
