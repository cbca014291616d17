/*  models/weights/config_json.c - reads a JSON file into a flat list of names and values

    Names have the path: "rope_scaling.factor". The texts of values are in the file's text, which lives as
    long as the list.
    May use: >>json, >>file. Locks: none. */

#include "room.h"

IGNIS__PRIVATE void ignis__config_close(ignis__config *config)
{
    ignis__free(config->items);
    ignis__free(config->file);
    memset(config, 0, sizeof *config);
}

static ignis__config_item *ignis__config_add(ignis__config *config, const char *name)
{
    if (config->count == config->capacity) {
        int capacity = config->capacity ? config->capacity * 2 : 64;
        ignis__config_item *items = (ignis__config_item *)ignis__alloc((size_t)capacity * sizeof *items);
        config->no_memory = !items;
        if (!items)
            return NULL;
        if (config->count)
            memcpy(items, config->items, (size_t)config->count * sizeof *items);
        ignis__free(config->items);
        config->items = items;
        config->capacity = capacity;
    }
    snprintf(config->items[config->count].name, sizeof config->items->name, "%s", name);
    return &config->items[config->count++];
}

/*  Reads the value at the reader's place and its members, to a small depth. Deeper values are skipped. */
static void ignis__config_read_value(ignis__json *json, ignis__config *config, const char *name, int depth)
{
    char c = ignis__json_peek(json), inner[160];
    ignis__config_item *item = ignis__config_add(config, name);
    bool first = true;
    size_t size;
    if (!item || json->fault[0]) {
        ignis__json_fail(json, "memory has run out");
        return;
    }
    item->kind = c;
    if ((c == '{' || c == '[') && depth == 4) {
        ignis__json_skip(json);
    } else if (c == '{') {
        json->at++;
        while (ignis__json_more(json, '}', &first)) {
            const char *key = ignis__json_string(json, &size);
            snprintf(inner, sizeof inner, "%.60s%s%.60s", name, *name ? "." : "", key);
            ignis__json_expect(json, ':');
            ignis__config_read_value(json, config, inner, depth + 1);
        }
    } else if (c == '[') {
        json->at++;
        snprintf(inner, sizeof inner, "%.60s[]", name);
        while (ignis__json_more(json, ']', &first))
            ignis__config_read_value(json, config, inner, depth + 1);
    } else if (c == '"') {
        item->kind = 't';
        item->text = ignis__json_string(json, &size);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        item->kind = 'n';
        item->number = ignis__json_number(json);
    } else {
        item->kind = c == 'n' ? '0' : 'b';
        item->number = c == 't';
        ignis__json_skip_scalar(json);
    }
}

/*  Reads a JSON file. Without `wanted` the file may be missing: the list is empty then. False, and reported,
    on failure. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__config_open(const char *call, const char *path, bool wanted,
                                                   ignis__config *config)
{
    ignis__json json;
    int64_t length = 0;
    int file;
    bool ok;
    memset(config, 0, sizeof *config);
    file = ignis__file_open(path, &length);
    if (file < 0)
        return !wanted || ignis__file_fail(call, path, "opened");
    if (length > IGNIS__HEADER_LIMIT) {
        ignis__file_close(file);
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, call, "'%s' has %lld bytes, above %d", path, (long long)length,
                    IGNIS__HEADER_LIMIT);
        return false;
    }
    config->file = (char *)ignis__alloc((size_t)length + 1);
    if (!config->file)
        ignis__fail_host_memory(call, (size_t)length + 1);
    ok = config->file != NULL;
    if (ok && ignis__file_read_at(file, 0, config->file, length) != length)
        ok = ignis__file_fail(call, path, "read");
    ignis__file_close(file);
    if (ok) {
        memset(&json, 0, sizeof json);
        json.what = "the file";
        json.start = json.at = config->file;
        json.end = config->file + length;
        if (ignis__json_peek(&json) != '{')
            ignis__json_fail(&json, "a { is missing at the beginning");
        else
            ignis__config_read_value(&json, config, "", 0);
        if (!json.fault[0] && (ignis__json_peek(&json), json.at != json.end))
            ignis__json_fail(&json, "something follows the end of the JSON text");
        if (config->no_memory)
            ignis__fail_host_memory(call, sizeof *config->items);
        else if (json.fault[0])
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, call, "'%s' is no sound JSON file: %s", path, json.fault);
        ok = !json.fault[0] && !config->no_memory;
    }
    if (!ok)
        ignis__config_close(config);
    return ok;
}

/*  Returns the last value of a name, as Python does. NULL if it is missing or null. */
IGNIS__PRIVATE const ignis__config_item *ignis__config_find(const ignis__config *config, const char *name)
{
    int i;
    for (i = config->count - 1; i >= 0; i--)
        if (strcmp(config->items[i].name, name) == 0)
            return config->items[i].kind == '0' ? NULL : &config->items[i];
    return NULL;
}
