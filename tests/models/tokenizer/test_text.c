// SPDX-License-Identifier: MIT
/*  test_text.c - tokenizers: ids and text as the package tokenizers has them, files that are refused, streams, threads

    No device: everything runs in a dry run. What it is compared with is in text_tables.h. */
#include "fault.h"

#include "test.h"

#include "ignis_models.h"

#include "text_files.h"
#include "text_tables.h"

static ignis_desc dry_desc(void)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dry_run = true;
    return desc;
}

#define DRY()                          \
    ignis_desc dry_setup = dry_desc(); \
    SETUP(&dry_setup)

/* files -------------------------------------------------------------------------------------------------------------
   */

static void add_lines(buffer *out, const char *const *lines)
{
    for (; *lines; lines++)
        add_text(out, *lines);
}

/*  The tokenizer.json of a family; free it. */
static buffer family_json(const text_family *family)
{
    buffer out = {NULL, 0, 0};
    add_text(&out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":");
    add_text(&out, family->added);
    add_text(&out, ",\"normalizer\":");
    add_text(&out, family->normalizer);
    add_text(&out, ",\"pre_tokenizer\":");
    add_text(&out, family->pre_tokenizer);
    add_text(&out, ",\"post_processor\":");
    add_text(&out, family->post_processor);
    add_text(&out, ",\"decoder\":");
    add_text(&out, family->decoder);
    add_text(&out, ",\"model\":{\"type\":\"BPE\"");
    add_text(&out, family->model);
    add_text(&out, ",\"vocab\":{");
    add_lines(&out, family->pieces ? pieces_vocabulary : bytes_vocabulary);
    add_text(&out, "},\"merges\":[");
    add_lines(&out, family->pieces ? pieces_merges : bytes_merges);
    add_text(&out, "]}}");
    return out;
}

static const char *write_family(const text_family *family)
{
    buffer json = family_json(family);
    const char *path = test_path("family.json");
    test_write_file(path, json.data, json.size);
    free(json.data);
    return path;
}

static ignis_tokenizer open_family(int family) { return ignis_tokenizer_open(write_family(&families[family])); }

static const char *write_text(const char *name, const char *text)
{
    const char *path = test_path(name);
    test_write_file(path, text, strlen(text));
    return path;
}

static void let_go(ignis_tokenizer tokenizer) { CHECK_OK(ignis_tokenizer_free(tokenizer)); }

/* ids ---------------------------------------------------------------------------------------------------------------
   */

enum { ROOM = 4096 };

#define CHECK_IDS(tokenizer, text, size, desc, ids, count) check_ids(__LINE__, tokenizer, text, size, desc, ids, count)
static void check_ids(int line, ignis_tokenizer tokenizer, const char *text, int64_t size,
                      const ignis_encode_desc *desc, const int32_t *ids, int count)
{
    int32_t got[ROOM];
    int got_count = ignis_tokenizer_encode(tokenizer, text, size, desc, got, ROOM), i;
    test__check_int(__FILE__, line, text, got_count, count);
    for (i = 0; i < count && i < got_count; i++)
        if (got[i] != ids[i]) {
            test__check_int(__FILE__, line, text, got[i], ids[i]);
            return;
        }
}

/*  All of a text by a stream, in at most `capacity` bytes. */
static int stream_text(ignis_text_stream *stream, const int32_t *ids, int count, char *out, int capacity)
{
    int size = 0, i, got;
    for (i = 0; i <= count; i++) {
        got = i < count ? ignis_text_stream_put(stream, ids[i], out + size, capacity - size)
                        : ignis_text_stream_end(stream, out + size, capacity - size);
        if (got < 0 || got > capacity - size)
            return -1;
        size += got;
    }
    return size;
}

TEST(ids_and_texts_are_those_of_the_package)
{
    ignis_encode_desc plain;
    ignis_tokenizer tokenizer;
    ignis_text_stream stream;
    const int32_t *ids = text_ids;
    char out[ROOM];
    int family = -1, i;
    DRY();
    memset(&plain, 0, sizeof plain);
    memset(&tokenizer, 0, sizeof tokenizer);
    plain.no_bos = plain.plain = true;
    for (i = 0; i < (int)(sizeof text_cases / sizeof *text_cases); i++) {
        const text_case *one = &text_cases[i];
        if (one->family != family) {
            if (family >= 0)
                let_go(tokenizer);
            family = one->family;
            tokenizer = open_family(family);
        }
        CHECK_IDS(tokenizer, one->text, one->size, one->flags ? &plain : NULL, ids, one->count);
        CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, one->count, NULL, out, ROOM), one->out_size);
        CHECK(memcmp(out, one->out, (size_t)one->out_size) == 0);
        memset(&stream, 0, sizeof stream);
        stream.tokenizer = tokenizer;
        CHECK_INT(stream_text(&stream, ids, one->count, out, ROOM), one->out_size);
        CHECK(memcmp(out, one->out, (size_t)one->out_size) == 0);
        ids += one->count;
    }
    CHECK_INT(ids - text_ids, sizeof text_ids / sizeof *text_ids);
    let_go(tokenizer);
}

TEST(facts)
{
    static const ignis_tokenizer_kind kinds[] = {IGNIS_TOKENIZER_BYTES, IGNIS_TOKENIZER_PIECES};
    ignis_tokenizer_info info;
    int i, count = (int)(sizeof families / sizeof *families);
    DRY();
    for (i = 0; i < count; i++) {
        ignis_tokenizer tokenizer = open_family(i);
        memset(&info, 0xFF, sizeof info);
        CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
        CHECK_TEXT(info.family, families[i].name);
        CHECK_INT(info.kind, kinds[families[i].pieces]);
        CHECK_INT(info.tokens >= (families[i].pieces ? PIECES_TOKENS : BYTES_TOKENS + 1), 1);
        CHECK_INT(info.eos, -1);
        CHECK_INT(info.padding, -1);
        CHECK_INT(info.has_template, 0);
        CHECK_INT(info.unknown, families[i].pieces ? 0 : -1);
        CHECK_INT(info.adds_bos, i == 2 || i == 5 || i == 6);
        CHECK_INT(info.bos, i == 2 ? BYTES_TOKENS : i == 5 || i == 6 ? 1 : -1);
        let_go(tokenizer);
    }
}

TEST(capacities)
{
    int32_t ids[8] = {-7, -7, -7, -7, -7, -7, -7, -7}, all[64];
    char out[16] = "................";
    ignis_tokenizer tokenizer;
    int count;
    int64_t size;
    DRY();
    tokenizer = open_family(0);
    count = ignis_tokenizer_encode(tokenizer, "hello world, hello", 18, NULL, NULL, 0);
    CHECK(count > 3);
    CHECK_INT(ignis_tokenizer_encode(tokenizer, "hello world, hello", 18, NULL, all, 64), count);
    CHECK_INT(ignis_tokenizer_encode(tokenizer, "hello world, hello", 18, NULL, ids, 2), count);
    CHECK(ids[0] == all[0] && ids[1] == all[1] && ids[2] == -7);
    CHECK_INT(ignis_tokenizer_encode(tokenizer, NULL, 0, NULL, ids, 2), 0);
    size = ignis_tokenizer_decode(tokenizer, all, count, NULL, NULL, 0);
    CHECK_INT(size, 18);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, all, count, NULL, out, 5), 18);
    CHECK(memcmp(out, "hello...", 8) == 0);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, NULL, 0, NULL, NULL, 0), 0);
    CHECK_INT(ignis_tokenizer_piece(tokenizer, BYTES_TOKENS, NULL, 0), 13);
    CHECK_INT(ignis_tokenizer_piece(tokenizer, BYTES_TOKENS, out, 4), 13);
    CHECK(memcmp(out, "<|eno...", 8) == 0);
    let_go(tokenizer);
}

TEST(control_tokens_in_decoded_text)
{
    static const int32_t ids[] = {BYTES_TOKENS, 0, BYTES_TOKENS + 1};
    ignis_decode_desc all;
    char out[64];
    ignis_tokenizer tokenizer;
    DRY();
    memset(&all, 0, sizeof all);
    all.control = true;
    tokenizer = open_family(3);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, 3, NULL, out, 64), 1);
    CHECK_INT(out[0], '!');
    CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, 3, &all, out, 64), 26);
    CHECK(memcmp(out, "<|endoftext|>!<|im_start|>", 26) == 0);
    let_go(tokenizer);
}

/*  What is no UTF-8 is U+FFFD, one for what could have begun a character. */
TEST(text_that_is_not_utf8)
{
    static const struct {
        const char *text, *same;
    } cases[] = {{"a\x80z", "a\xEF\xBF\xBDz"},
                 {"\xC3", "\xEF\xBF\xBD"},
                 {"\xE2\x82", "\xEF\xBF\xBD"},
                 {"\xE2\x82 \xF0\x9F\x98", "\xEF\xBF\xBD \xEF\xBF\xBD"},
                 {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xC0\xAF\xFF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xF0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                 {"\xE0\x9F\xC3\xA9", "\xEF\xBF\xBD\xEF\xBF\xBD\xC3\xA9"}};
    int32_t ids[64];
    int i, k, count;
    DRY();
    for (k = 0; k < 6; k += 5) {
        ignis_tokenizer tokenizer = open_family(k);
        for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
            count = ignis_tokenizer_encode(tokenizer, cases[i].same, (int64_t)strlen(cases[i].same), NULL, ids, 64);
            CHECK_IDS(tokenizer, cases[i].text, (int64_t)strlen(cases[i].text), NULL, ids, count);
        }
        let_go(tokenizer);
    }
}

/*  Work that grows with the square of these sizes would not end. */
TEST(long_texts)
{
    enum { SIZE = 300000 };
    char *text = (char *)malloc(SIZE);
    int32_t *ids = (int32_t *)malloc(sizeof *ids * (SIZE + 4));
    ignis_tokenizer tokenizer;
    int count, i;
    DRY();
    REQUIRE(text && ids);
    memset(text, 'a', SIZE);
    for (i = 0; i <= 5; i += 5) {
        tokenizer = open_family(i);
        count = ignis_tokenizer_encode(tokenizer, text, SIZE, NULL, ids, SIZE + 4);
        CHECK(count > 1000 && count <= SIZE / 2 + 2); /* some were joined */
        CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, count, NULL, NULL, 0), SIZE);
        memset(text, '<', SIZE); /* as added tokens begin */
        count = ignis_tokenizer_encode(tokenizer, text, SIZE, NULL, ids, SIZE + 4);
        CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, count, NULL, NULL, 0), SIZE);
        memset(text, ' ', SIZE);
        count = ignis_tokenizer_encode(tokenizer, text, SIZE, NULL, ids, SIZE + 4);
        CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, count, NULL, NULL, 0), SIZE);
        memset(text, 'a', SIZE);
        let_go(tokenizer);
    }
    tokenizer = open_family(3);
    for (i = 0; i < SIZE; i += 2) /* marks above and below, in turn: NFC puts them in order */
        memcpy(text + i, i % 4 ? "\xCC\xA3" : "\xCC\x88", 2);
    count = ignis_tokenizer_encode(tokenizer, text, SIZE, NULL, ids, SIZE + 4);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, count, NULL, text, SIZE), SIZE);
    CHECK(memcmp(text, "\xCC\xA3\xCC\xA3", 4) == 0 && memcmp(text + SIZE - 4, "\xCC\x88\xCC\x88", 4) == 0);
    let_go(tokenizer);
    free(text);
    free(ids);
}

/*  A piece is joined in another way when it is long; the ids do not differ. */
TEST(short_and_long_pieces)
{
    char text[256];
    int32_t ids[256], parts[256];
    ignis_tokenizer tokenizer;
    int length, count, i;
    DRY();
    tokenizer = open_family(0);
    for (length = 1; length < 200; length++) {
        for (i = 0; i < length; i++)
            text[i] = "aaehtlorwd"[(i * 7 + i * i % 11 + length) % 10];
        count = ignis_tokenizer_encode(tokenizer, text, length, NULL, ids, 256);
        CHECK_INT(ignis_tokenizer_encode(tokenizer, text, length, NULL, parts, 256), count); /* and when it is known */
        CHECK(memcmp(ids, parts, sizeof *ids * (size_t)count) == 0);
        CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, count, NULL, NULL, 0), length);
    }
    let_go(tokenizer);
}

static int encode_with_spans(ignis__tokenizer *tokenizer, const char *text, size_t size, const ignis__plain_span *spans,
                             int count, int32_t *ids)
{
    ignis__encoder encoder;
    memset(&encoder, 0, sizeof encoder);
    encoder.tokenizer = tokenizer;
    encoder.spans = spans;
    encoder.span_count = count;
    encoder.ids = ids;
    encoder.capacity = 64;
    return ignis__tokenizer_encode("test", &encoder, text, size, false);
}

/*  Parts of a text that a user wrote hold no control tokens, whatever is written there; the rest does. */
TEST(plain_parts)
{
    static const char text[] = "<|im_start|>a<|im_end|>b<|im_end|>";
    ignis__plain_span spans[2] = {{12, 24}, {24, 24}};
    int32_t all[64], ids[64];
    ignis_encode_desc plain;
    ignis_tokenizer tokenizer;
    ignis__tokenizer *held;
    int count;
    DRY();
    memset(&plain, 0, sizeof plain);
    plain.plain = true;
    tokenizer = open_family(3);
    count = ignis_tokenizer_encode(tokenizer, text + 12, 12, &plain, all, 64);
    CHECK(count > 3);
    held = ignis__tokenizer_hold("test", tokenizer);
    CHECK_INT(encode_with_spans(held, text, sizeof text - 1, spans, 2, ids), count + 2);
    CHECK_INT(ids[0], BYTES_TOKENS + 1);
    CHECK(memcmp(ids + 1, all, sizeof *ids * (size_t)count) == 0);
    CHECK_INT(ids[count + 1], BYTES_TOKENS + 2);
    spans[0].begin = 11; /* half of a control token is in it */
    CHECK(encode_with_spans(held, text, sizeof text - 1, spans, 1, ids) > count + 2);
    CHECK(ids[0] < BYTES_TOKENS);
    ignis__tokenizer_drop(held);
    let_go(tokenizer);
}

/* streams -----------------------------------------------------------------------------------------------------------
   */

TEST(a_stream_never_cuts_a_character)
{
    char out[256], text[256];
    int32_t ids[64];
    ignis_tokenizer tokenizer;
    ignis_text_stream stream;
    int count, i, got, size;
    DRY();
    tokenizer = open_family(0);
    memset(&stream, 0, sizeof stream);
    stream.tokenizer = tokenizer;
    count = ignis_tokenizer_encode(tokenizer, "\xF0\x9F\x91\xA9x\xE2\x82\xAC", 8, NULL, ids, 64);
    CHECK(count > 5);
    for (i = size = 0; i < count; i++) {
        got = ignis_text_stream_put(&stream, ids[i], out, 256);
        CHECK(got >= 0 && got <= 4);
        memcpy(text + size, out, (size_t)got);
        size += got;
        text[size] = 0;
        CHECK(ignis__utf8_valid(text));
    }
    CHECK_INT(ignis_text_stream_end(&stream, out, 256), 0);
    CHECK_TEXT(text, "\xF0\x9F\x91\xA9x\xE2\x82\xAC");

    CHECK_INT(ignis_text_stream_put(&stream, ids[0], out, 256), 0); /* the beginning alone */
    CHECK_INT(ignis_text_stream_end(&stream, out, 2), 3);
    CHECK_INT(ignis_text_stream_end(&stream, out, 256), 3);
    CHECK(memcmp(out, "\xEF\xBF\xBD", 3) == 0);
    CHECK_INT(ignis_text_stream_end(&stream, out, 256), 0);

    CHECK_INT(ignis_text_stream_put(&stream, ids[0], out, 256), 0); /* and then something else */
    CHECK_INT(ignis_text_stream_put(&stream, 0, out, 3), 4);        /* no room: as if it had not been called */
    CHECK_INT(ignis_text_stream_put(&stream, 0, out, 4), 4);
    CHECK(memcmp(out, "\xEF\xBF\xBD!", 4) == 0);
    CHECK_INT(ignis_text_stream_end(&stream, NULL, 0), 0);
    let_go(tokenizer);
}

TEST(a_stream_and_the_space_in_front)
{
    char out[256];
    int32_t ids[64];
    ignis_tokenizer tokenizer;
    ignis_text_stream stream;
    int count, size, i;
    DRY();
    for (i = 5; i < 8; i++) { /* with Strip, and with Metaspace */
        tokenizer = open_family(i);
        memset(&stream, 0, sizeof stream);
        stream.tokenizer = tokenizer;
        count = ignis_tokenizer_encode(tokenizer, "hello", 5, NULL, ids, 64);
        size = stream_text(&stream, ids, count, out, 256);
        CHECK(size == 5 && memcmp(out, "hello", 5) == 0);
        stream.inside = true; /* behind a prompt */
        size = stream_text(&stream, ids, count, out, 256);
        CHECK(size == 6 && memcmp(out, " hello", 6) == 0);
        size = stream_text(&stream, ids, count, out, 256); /* it ended, and begins again */
        CHECK(size == 5 && memcmp(out, "hello", 5) == 0);
        let_go(tokenizer);
    }
}

/* files that are refused --------------------------------------------------------------------------------------------
   */

/*  A tokenizer.json small enough to be damaged at every byte. */
#define SMALL_MODEL "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define SMALL_REST(model)                                                                                         \
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"   \
    "\"normalized\":false,\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"      \
    "\"ByteLevel\","                                                                                              \
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":{\"type\":"          \
    "\"TemplateProcessing\","                                                                                     \
    "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]," \
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]}}},\"decoder\":{\"type\":"      \
    "\"ByteLevel\"},"                                                                                             \
    "\"model\":" model "}"
static const char small[] = SMALL_REST(SMALL_MODEL);

/*  The small one with a part replaced by another; free it. */
static char *replaced(const char *part, const char *other)
{
    const char *at = strstr(small, part);
    size_t size = strlen(small) + strlen(other) + 1;
    char *out = (char *)malloc(size);
    if (!at) {
        test__fail(__FILE__, __LINE__, part);
        at = small;
    }
    snprintf(out, size, "%.*s%s%s", (int)(at - small), small, other, at + strlen(part));
    return out;
}

TEST(small_file)
{
    static const int32_t ids[] = {3, 2, 0, 1};
    ignis_tokenizer tokenizer;
    DRY();
    tokenizer = ignis_tokenizer_open(write_text("small.json", small));
    CHECK_IDS(tokenizer, "aba", 3, NULL, ids, 3);
    CHECK_IDS(tokenizer, "ab", 2, NULL, ids, 2);
    CHECK_IDS(tokenizer, "c\xC3\xA9z", 4, NULL, ids, 1); /* what the vocabulary lacks is left out, as by the package */
    let_go(tokenizer);
}

/*  A vocabulary may have its control tokens, too, and take pieces whole. */
TEST(plain_text_is_never_a_control_token)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"normalized\":false,\"special\":true}],\"pre_tokenizer\":{"
        "\"type\":\"ByteLevel\",\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
        "\"ignore_merges\":true,\"vocab\":{\"<s>\":3,\"<\":4,\"s\":5,\">\":6},\"merges\":[]}}";
    static const int32_t control[] = {3}, plain[] = {4, 5, 6};
    ignis_encode_desc desc;
    ignis_tokenizer tokenizer;
    DRY();
    memset(&desc, 0, sizeof desc);
    tokenizer = ignis_tokenizer_open(write_text("whole.json", json));
    CHECK_IDS(tokenizer, "<s>", 3, &desc, control, 1);
    desc.plain = true;
    CHECK_IDS(tokenizer, "<s>", 3, &desc, plain, 3);
    let_go(tokenizer);
}

/*  An added token, of the small file's byte-level kind. */
static int add_added(buffer *json, int id, const char *text, bool special, bool rstrip)
{
    char rest[200];
    add_text(json, id > 3 ? ",{\"content\":\"" : "{\"content\":\"");
    add_text(json, text);
    snprintf(rest, sizeof rest, "\",\"id\":%d,\"normalized\":false,\"special\":%s,\"rstrip\":%s}", id,
             special ? "true" : "false", rstrip ? "true" : "false");
    add_text(json, rest);
    return id + 1;
}

/*  Files and texts with which a search for added tokens would go over the same bytes again and again, a million times a
    million of them. */
TEST(hostile_tokens_cost_no_more_than_their_text)
{
    enum { SIZE = 1000000 };
    char *text = (char *)malloc(SIZE + 1), token[300];
    int32_t *ids = (int32_t *)malloc(SIZE * sizeof *ids);
    ignis_encode_desc plain;
    ignis_tokenizer tokenizer;
    buffer json;
    int kind, size, i, id;
    DRY();
    memset(&plain, 0, sizeof plain);
    plain.plain = true;
    for (kind = 0; kind < 3; kind++) {
        memset(&json, 0, sizeof json);
        memset(token, 0, sizeof token);
        add_text(&json, "{\"added_tokens\":[");
        if (kind == 0) { /* a space that takes those behind it with it: each of them is one, too */
            add_added(&json, 3, " ", false, true);
        } else if (kind == 1) { /* a token that nearly stands everywhere */
            memset(token, 'a', 255);
            token[255] = 'b';
            add_added(&json, 3, token, false, false);
        } else { /* control tokens, each the beginning of the next, in text of which none may become one */
            token[0] = 'a';
            for (id = 3, i = 1; i < 250; i++) {
                token[i] = 'a';
                id = add_added(&json, id, token, true, false);
            }
        }
        add_text(
            &json,
            "],\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":" SMALL_MODEL
            "}");
        tokenizer = ignis_tokenizer_open(write_text("hostile.json", json.data));
        size = kind == 0 ? SIZE : SIZE / 20;
        memset(text, kind == 0 ? ' ' : 'a', (size_t)size);
        CHECK_INT(ignis_tokenizer_encode(tokenizer, text, size, &plain, ids, SIZE), size);
        CHECK_INT(ids[0], kind == 0 ? 3 : 0);
        CHECK_INT(ids[size - 1], kind == 0 ? 3 : 0);
        let_go(tokenizer);
        free(json.data);
    }
    free(text);
    free(ids);
}

TEST(hostile_files_are_refused_soon)
{
    char token[400], *text;
    buffer json;
    ignis_tokenizer tokenizer;
    int i, k, group;
    DRY();
    memset(&json, 0, sizeof json); /* an added token that is too long */
    memset(token, 'a', 257);
    token[257] = 0;
    add_text(&json, "{\"added_tokens\":[");
    add_added(&json, 3, token, false, false);
    add_text(&json,
             "],\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":" SMALL_MODEL
             "}");
    CHECK_FAILS(ignis_tokenizer_open(write_text("long.json", json.data)), IGNIS_ERROR_UNSUPPORTED,
                IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the added token 'aaaa");
    CHECK_MESSAGE_HAS("has 257 bytes; at most 256 are supported");
    free(json.data);
    memset(&json, 0, sizeof json); /* tokens of the same hash: in each 16 bytes three highest bits change together */
    add_text(&json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{"
                    "\"type\":\"BPE\",\"merges\":[],"
                    "\"vocab\":{");
    for (i = 0; i < 2048; i++) {
        char *out = token;
        for (group = 0; group < 11; group++)
            for (k = 0; k < 16; k++)
                out += sprintf(out,
                               i >> group & 1 && (k == 7 || k == 11 || k == 15) ? "\xC3\xA1" : "a"); /* the byte 0xE1 */
        add_text(&json, i ? ",\"" : "\"");
        add_text(&json, token);
        sprintf(token, "\":%d", i);
        add_text(&json, token);
    }
    add_text(&json, "}}}");
    CHECK_FAILS(ignis_tokenizer_open(write_text("collide.json", json.data)), IGNIS_ERROR_UNSUPPORTED,
                IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("the texts of its tokens collide");
    free(json.data);
    text = replaced("{\"type\":\"NFC\"}", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"bab\"},\"content\":\"ab\"}");
    tokenizer = ignis_tokenizer_open(write_text("replace.json", text));
    {
        static const int32_t ids[] = {3, 2, 0, 2, 1, 1};
        CHECK_IDS(tokenizer, "babababbb", 9, NULL, ids, 6); /* bab, a, bab, bb */
    }
    let_go(tokenizer);
    free(text);
}

static void free_kept(ignis__tokenizer *keeper)
{
    while (keeper->kept) {
        void *next = *(void **)keeper->kept;
        ignis__free(keeper->kept);
        keeper->kept = next;
    }
}

/*  Writes a tekken.json with one token for each byte, "ab" and "abc", and one that default_vocab_size cuts off. */
static void tekken_json(char *to, size_t room, const char *config, const char *specials, int first)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at = (size_t)snprintf(to, room, "{%s, \"vocab\": [", config);
    int i;
    for (i = 0; i < 256; i++)
        at += (size_t)snprintf(to + at, room - at, "%s{\"rank\": %d, \"token_bytes\": \"%c%c==\", \"token_str\": null}",
                               i ? ", " : "", i + first, digits[i >> 2], digits[(i & 3) << 4]);
    snprintf(
        to + at, room - at,
        ", {\"rank\": 256, \"token_bytes\": \"YWI=\"}, {\"rank\": 257, \"token_bytes\": \"YWJj\"}, {\"rank\": 258, "
        "\"token_bytes\": \"YWJjZA==\"}]%s}",
        specials);
}

#define TEKKEN(vocab, specials)                                              \
    "\"config\": {\"pattern\": \"[a-z]+|.\", \"default_vocab_size\": " vocab \
    ", \"default_num_special_tokens\": " specials ", \"version\": \"v3\"}"

TEST(tekken_files)
{
    static const struct {
        const char *config, *specials;
        int first;
        const char *message;
    } bad[] = {
        {"\"config\": {}", "", 0, "no pattern, default_vocab_size -1"},
        {TEKKEN("264", "4"), "", 0, "default_vocab_size 264 and default_num_special_tokens 4, beside 259 tokens"},
        {TEKKEN("260", "6"), "", 0, "default_vocab_size 260"},
        {TEKKEN("260", "2"), "", 0, "default_num_special_tokens 2"},
        {TEKKEN("264", "6"), "", 1, "entry 0 of its vocab has rank 1"},
        {TEKKEN("264", "6"), ", \"special_tokens\": [{\"rank\": 1, \"token_str\": \"<s>\"}]", 0,
         "entry 0 of its special_tokens has rank 1 and a text"},
        {TEKKEN("264", "6"), ", \"special_tokens\": [{\"rank\": 0}]", 0, "has rank 0 and no text"},
        {TEKKEN("264", "6"), ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<s>\"}]", 0, "have no </s>"},
        {TEKKEN("264", "6"), ", \"vocab\": 3", 0, "a [ is missing"},
        {TEKKEN("264", "6"), "} {", 0, "something follows the end"},
    };
    static const int32_t ids[] = {1, 6 + 257, 6 + 'd', 6 + ' ', 6 + 256, 6 + 0xC3, 6 + 0xA9, 3, 5};
    static char text[32768];
    ignis_tokenizer_info info;
    ignis_tokenizer tokenizer;
    char out[64];
    size_t i;
    DRY();
    tekken_json(text, sizeof text, TEKKEN("264", "6"), ", \"special_tokens\": null, \"audio\": {\"a\": [1]}", 0);
    CHECK_INT(ignis__folder_make_all(test_path("tk")), true);
    (void)write_text("tk/tekken.json", text);
    tokenizer = ignis_tokenizer_open(test_path("tk"));
    CHECK_IDS(tokenizer, "abcd ab\xC3\xA9[INST][AVAILABLE_TOOLS]", 32, NULL, ids, 9);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_INT(info.tokens, 264);
    CHECK_INT(info.bos, 1);
    CHECK_INT(info.eos, 2);
    CHECK_INT(info.unknown, 0);
    CHECK_INT(info.adds_bos, true);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, ids, 7, NULL, out, sizeof out), 9);
    CHECK(memcmp(out, "abcd ab\xC3\xA9", 9) == 0);
    let_go(tokenizer);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        tekken_json(text, sizeof text, bad[i].config, bad[i].specials, bad[i].first);
        CHECK_FAILS(ignis_tokenizer_open(write_text("v3.tekken.json", text)), IGNIS_ERROR_FORMAT,
                    IGNIS_DIAG_TOKENIZER_FORMAT);
        CHECK_MESSAGE_HAS(bad[i].message);
    }
}

/*  Matches of patterns that tokenizers would find in the same text, by their first place and their end. */
TEST(patterns)
{
    static const struct {
        const char *pattern, *text;
        int begin, end; /* -1: no match */
    } cases[] = {
        {"(?:ab|a)+", "xababa", 1, 6},
        {"(?:ab|a)*", "xa", 0, 0},
        {"x(?:a(?: a)*)+", "xaa a a b", 0, 7},
        {"x(?:a(?: a*)*)+", "xaa aa a b", 0, 9},
        {"(?:a{2})+a", "aaaaaa", 0, 5}, /* goes back by two */
        {"(?:a\xC3\xA9)*a",
         "a\xC3\xA9"
         "a\xC3\xA9"
         "b",
         0, 4},
        {"(?:\\d{3})+(?!\\d)", "1234567", 1, 7},
        {"(?=(?:\\d{3})+(?!\\d))", "1234567", 1, 1},
        {"(?:ab){2,3}", "ababababab", 0, 6},
        {"(?:ab){2,3}", "abxab", -1, -1},
        {"(?:a*)+", "aab", 0, 2},
        {"(?:|a)+", "aa", 0, 0},
        {"\\ba", "ba a", 3, 4},
        {"a\\b", "ab a", 3, 4},
        {"a\\b", "a\xC2\xB2 a\xE2\x82\xAC", 4, 5},                    /* a raised 2 is of the word, a sign is not */
        {"a\\b", "a\xE2\x80\x8D", 0, 1},                              /* a joiner */
        {"\\p{Han}+", "a\xE6\xBC\xA2\xE5\xAD\x97\xE3\x81\x8B", 1, 7}, /* two of them, and a Hiragana */
        {"\\P{Han}+",
         "\xE6\xBC\xA2\xE3\x81\x8B"
         "a",
         3, 7},
        {"[\\p{L}&&[^\\p{Han}]]+",
         "\xE6\xBC\xA2\xE3\x81\x8B"
         "a1",
         3, 7},
        {"[\\p{L}\\d&&[^b2]]+", "b2ab", 2, 3},
        {"[^\\p{L}&&[a-z]]+", "ab1", 2, 3},
    };
    size_t i;
    DRY();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        ignis__tokenizer keeper;
        ignis__pattern_search search;
        size_t begin = 0, end = 0;
        bool no_memory, found;
        memset(&keeper, 0, sizeof keeper);
        search.pattern = ignis__pattern_compile(&keeper, cases[i].pattern, &no_memory);
        search.text = cases[i].text;
        search.size = strlen(cases[i].text);
        search.steps = 1 << 20;
        CHECK(search.pattern != NULL);
        found = search.pattern && ignis__pattern_find(&search, 0, &begin, &end);
        if ((found ? (int)begin : -1) != cases[i].begin || (found ? (int)end : -1) != cases[i].end)
            printf("%s in %s: from %d to %d\n", cases[i].pattern, cases[i].text, found ? (int)begin : -1, (int)end);
        CHECK_INT(found ? (int)begin : -1, cases[i].begin);
        CHECK_INT(found ? (int)end : -1, cases[i].end);
        free_kept(&keeper);
    }
}

TEST(patterns_that_are_refused)
{
    static const char *const refused[] = {"(?:ab|c)*d", "(?:(?:ab|c)+d)+", "(?:a+){2,}", "(?:ab|c){2}", "(?:ab)++",
                                          "\\p{Hax}",   "[a&&b]",          "[&&[a]]",    "[a&&[b]c]",   "\\B",
                                          "\\b+",       "[a&&[b]",         "\\p{Lux}"};
    size_t i;
    DRY();
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        ignis__tokenizer keeper;
        bool no_memory;
        memset(&keeper, 0, sizeof keeper);
        if (ignis__pattern_compile(&keeper, refused[i], &no_memory))
            test__fail(__FILE__, __LINE__, refused[i]);
        CHECK_INT(no_memory, false);
        free_kept(&keeper);
    }
}

/*  A text made to take long ends by the limit of steps, and a long one does not use up the stack. */
TEST(patterns_of_long_texts)
{
    enum { LENGTH = 1 << 20 };
    static const char *const patterns[] = {"(?:a(?: a*)*)+", "(?:aa)*b", "(?=(?:a{3})+(?!a))b"};
    char *text = (char *)malloc(LENGTH);
    size_t i;
    DRY();
    memset(text, 'a', LENGTH);
    for (i = 0; i < 3; i++) {
        ignis__tokenizer keeper;
        ignis__pattern_search search;
        size_t begin = 0, end = 0;
        bool no_memory;
        memset(&keeper, 0, sizeof keeper);
        search.pattern = ignis__pattern_compile(&keeper, patterns[i], &no_memory);
        search.text = text;
        search.size = LENGTH;
        search.steps = 1 << 24;
        CHECK_INT(ignis__pattern_find(&search, 0, &begin, &end), i == 0);
        CHECK_INT(search.steps > 0, i == 0);
        CHECK_INT(i == 0 ? end : LENGTH, LENGTH);
        free_kept(&keeper);
    }
    free(text);
}

TEST(what_is_not_supported_is_named)
{
    static const char *const cases[][3] = {
        {"\"type\":\"BPE\"", "\"type\":\"WordLevel\"", "its model is of type 'WordLevel'; BPE, Unigram and WordPiece"},
        {"\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}", "\"dropout\":0.1,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}", "a dropout"},
        {"\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}", "\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0}",
         "end_of_word_suffix"},
        {"\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}", "\"byte_fallback\":true,\"vocab\":{\"a\":0}",
         "byte_fallback beside ByteLevel"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"ByteLevel\"}", "its normalizer 'ByteLevel' is not supported"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Other\"}]}",
         "'Other'"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?<=a)\"},\"content\":\"\"}",
         "'Replace' is not supported: (?<=a)"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", "its texts are missing"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"Precompiled\"}", "its map is missing"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"",
         "its pre_tokenizer 'UnicodeScripts'"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
         "its decoder 'ByteLevel'"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+|\\\\B\"},"
         "\"behavior\":\"Isolated\"}"
         ","
         "{\"type\":\"ByteLevel\",\"use_regex\":false}]}",
         "its pre_tokenizer 'Split' is not supported: [a-z]+|\\B"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}",
         "its replacement is not U+2581"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
         "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"last\"}",
         "'Metaspace' is not supported: last"},
        {"{\"type\":\"TemplateProcessing\"", "{\"type\":\"OtherProcessing\"", "its post_processor 'OtherProcessing'"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}", "its decoder 'WordPiece'"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":null", "it has no decoder"},
    };
    size_t i;
    DRY();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = replaced(cases[i][0], cases[i][1]);
        CHECK_FAILS(ignis_tokenizer_open(write_text("other.json", json)), IGNIS_ERROR_UNSUPPORTED,
                    IGNIS_DIAG_UNSUPPORTED);
        CHECK_MESSAGE_HAS(cases[i][2]);
        CHECK_MESSAGE_HAS("other.json': ");
        free(json);
    }
}

#define WORDS(unknown, decoder)                                                                                        \
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"                  \
    "\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"                    \
    "\"decoder\":" decoder                                                                                             \
    ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]},"                   \
    "\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\",\"special\":true,\"normalized\":false},"                        \
    "{\"id\":2,\"content\":\"[SEP]\",\"special\":true,\"normalized\":false}],\"model\":{\"type\":\"WordPiece\","       \
    "\"unk_token\":\"" unknown "\",\"max_input_chars_per_word\":6,\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,"     \
    "\"un\":3,\"##aff\":4,\"##able\":5,\"cafe\":6,\".\":7,\"\xE4\xB8\xAD\":8,\"i\":9,\"##a\":10,\"n't\":11,\"##\":12}" \
    "}}"
#define DECODER "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"

TEST(word_pieces)
{
    static const struct {
        const char *text;
        int32_t ids[8];
        int count;
    } cases[] = {{"Unaff.", {1, 3, 4, 7, 2}, 5},
                 {"CAF\xC3\x89  un\xC2\xAD"
                  "able",
                  {1, 6, 3, 5, 2},
                  5},                                     /* U+00AD is dropped */
                 {"unaff unaffaa", {1, 3, 4, 0, 2}, 5},   /* words have up to 6 characters */
                 {"unable cafex", {1, 3, 5, 0, 2}, 5},    /* a word with a part that is missing is unknown whole */
                 {"un\xE4\xB8\xADi", {1, 3, 8, 9, 2}, 5}, /* Chinese characters are words */
                 {"\xC4\xB0[SEP]\x7Fi##a", {1, 9, 2, 9, 0, 0, 0, 2}, 8},
                 {"", {1, 2}, 2}};
    static const int32_t decoded[] = {1, 6, 3, 5, 10, 7, 9, 11, 2};
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    char out[64];
    int i;
    DRY();
    tokenizer = ignis_tokenizer_open(write_text("words.json", WORDS("[UNK]", DECODER)));
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        CHECK_IDS(tokenizer, cases[i].text, (int64_t)strlen(cases[i].text), NULL, cases[i].ids, cases[i].count);
    i = (int)ignis_tokenizer_decode(tokenizer, decoded, 9, NULL, out, sizeof out);
    CHECK_INT(i, 18);
    CHECK(memcmp(out, "cafe unablea. in't", 18) == 0);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_INT(info.kind, IGNIS_TOKENIZER_WORDS);
    CHECK_TEXT(info.family, "bert");
    CHECK_INT(info.unknown, 0);
    CHECK_INT(info.bos, 1);
    let_go(tokenizer);
    CHECK_FAILS(ignis_tokenizer_open(write_text("words.json", WORDS("[GONE]", DECODER))), IGNIS_ERROR_FORMAT,
                IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("its unk_token '[GONE]' is not in its vocabulary");
    CHECK_FAILS(ignis_tokenizer_open(write_text("words.json", WORDS("[UNK]", "{\"type\":\"ByteLevel\"}"))),
                IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("its decoder is not that alone");
}

TEST(unigram)
{
    static const struct {
        const char *text;
        int32_t ids[8];
        int count;
    } cases[] = {
        {"abb", {2, 5, 4}, 3},
        {"ab  b\t\ta", {2, 5, 2, 4, 2, 3}, 6},                /* the map makes a tab a space */
        {"e\xCC\x81-ae\xCC\x81\xCC\x80", {2, 7, 0, 3, 7}, 5}, /* a cluster becomes the text of its first part */
        {"e\xCC\x81\xCC\x80\xCC\x80", {2, 0}, 2},             /* but not one of 6 bytes and more */
        {"?!xy!", {2, 0, 9, 0}, 4},                           /* unknown characters beside each other are one id */
        {"a<s>\xEF\xBD\x82 ", {2, 3, 1, 2, 4}, 5},            /* NFKC: a wide b */
        {"\t \t", {0}, 0},
        {"", {0}, 0}};
    static const char *const refused[][2] = {
        {"{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",0]]}", "its unk_id is -1, and it has 1 tokens"},
        {"{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}", "its unk_id is 1, and it has 1 tokens"},
        {"{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":{\"a\":0}}", "a vocab without scores"},
        {"{\"type\":\"BPE\",\"merges\":[],\"vocab\":[[\"a\",0]]}", "a vocab with scores"},
        {"{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0],[\"<s>\",0],[\"a\",1]]}", "have the same text 'a'"},
        {"{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\"]]}", "a , is missing"},
    };
    static const char *const maps[][2] = {{"A", "is not base64"},          {"AAA?", "is not base64"},
                                          {"AAAA", "its units 0"},         {"BQAAAAAAAAA=", "its units 5"},
                                          {"CAAAAAAAAAA=", "its units 8"}, {"BAAAAAAAAAD/", "not UTF-8"}};
    static const int32_t decoded[] = {2, 5, 8, 1, 4};
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    char out[2048], long_token[1026];
    int i;
    DRY();
    tokenizer = ignis_tokenizer_open(write_text("unigram.json", SMALL_UNIGRAM(SMALL_NORMALIZER, SMALL_SCORES)));
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        CHECK_IDS(tokenizer, cases[i].text, (int64_t)strlen(cases[i].text), NULL, cases[i].ids, cases[i].count);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, decoded, 5, NULL, out, sizeof out), 6);
    CHECK(memcmp(out, "ab abb", 6) == 0);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_INT(info.kind, IGNIS_TOKENIZER_PIECES);
    CHECK_TEXT(info.family, "unigram");
    CHECK_INT(info.unknown, 0);
    let_go(tokenizer);
    for (i = 0; i < (int)(sizeof refused / sizeof *refused); i++) {
        snprintf(out, sizeof out, SMALL_UNIGRAM("null", "%s"), refused[i][0]);
        CHECK_FAILS(ignis_tokenizer_open(write_text("unigram.json", out)), IGNIS_ERROR_FORMAT,
                    IGNIS_DIAG_TOKENIZER_FORMAT);
        CHECK_MESSAGE_HAS(refused[i][1]);
    }
    memset(long_token, 'a', sizeof long_token - 1);
    long_token[sizeof long_token - 1] = 0;
    snprintf(
        out, sizeof out,
        SMALL_UNIGRAM("null", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"<s>\",0],[\"%s\",0]]}"),
        long_token);
    CHECK_FAILS(ignis_tokenizer_open(write_text("unigram.json", out)), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("token 2 has 1025 bytes; with scores at most 1024");
    for (i = 0; i < (int)(sizeof maps / sizeof *maps); i++) {
        snprintf(out, sizeof out,
                 SMALL_UNIGRAM("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", SMALL_SCORES), maps[i][0]);
        CHECK_FAILS(ignis_tokenizer_open(write_text("unigram.json", out)), IGNIS_ERROR_FORMAT,
                    IGNIS_DIAG_TOKENIZER_FORMAT);
        CHECK_MESSAGE_HAS(maps[i][1]);
    }
}

/*  Normal forms of texts that tell them apart: Angstrom, ligature fi, Hangul, marks in the wrong order, the longest. */
TEST(normal_forms)
{
    static const char text[] = "\xE2\x84\xAB\xEF\xAC\x81\xED\x95\x9C"
                               "a\xCC\x81\xCC\xA3\xE1\xBA\x9B\xEF\xBE\x8A\xEF\xBE\x9F";
    static const char *const wanted[] = {
        "A\xCC\x8A\xEF\xAC\x81\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"
        "a\xCC\xA3\xCC\x81\xC5\xBF\xCC\x87\xEF\xBE\x8A\xEF\xBE\x9F",
        "\xC3\x85\xEF\xAC\x81\xED\x95\x9C\xE1\xBA\xA1\xCC\x81\xE1\xBA\x9B\xEF\xBE\x8A\xEF\xBE\x9F",
        "A\xCC\x8A"
        "fi\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"
        "a\xCC\xA3\xCC\x81s\xCC\x87\xE3\x83\x8F\xE3\x82\x9A",
        "\xC3\x85"
        "fi\xED\x95\x9C\xE1\xBA\xA1\xCC\x81\xE1\xB9\xA1\xE3\x83\x91"};
    static const char longest[] = "\xEF\xB7\xBA";
    unsigned form;
    for (form = 0; form < 4; form++) { /* 1: composed, 2: compatible */
        ignis__bytes out = IGNIS__ZERO;
        CHECK(ignis__normal_form_add(&out, text, sizeof text - 1, form));
        CHECK_INT(out.size, strlen(wanted[form]));
        CHECK(memcmp(out.data, wanted[form], out.size) == 0);
        out.size = 0;
        CHECK(ignis__normal_form_add(&out, longest, 3, form));
        CHECK_INT(out.size, form < 2 ? 3 : 33); /* 18 characters, 3 of them spaces */
        ignis__free(out.data);
    }
}

/*  Splits "a1, bb  C!" by the steps, and writes the pieces with a bar between them. */
static void pieces_of(const char *steps, char *out)
{
    static const char text[] = "a1, bb  C!";
    char json[2048], piece[64];
    ignis_tokenizer tokenizer;
    int32_t ids[32];
    int count, i;
    snprintf(json, sizeof json,
             "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s,{\"type\":\"ByteLevel\","
             "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
             "\"model\":{\"type\":\"BPE\","
             "\"ignore_merges\":true,\"vocab\":{%s},\"merges\":[]}}",
             steps,
             "\"a\":0,\"1\":1,\",\":2,\"\xC4\xA0\":3,\"b\":4,\"C\":5,\"!\":6,\"a1\":7,\"bb\":8,\"\xC4\xA0"
             "bb\":9,\"\xC4\xA0\xC4\xA0\":10,\"a1,\":11,\"C!\":12,\"\xC4\xA0"
             "C\":13,\",\xC4\xA0\":14,\"bb\xC4\xA0\":15,\"a1,\xC4\xA0\":16,\"\xC4\xA0"
             "bb\xC4\xA0\xC4\xA0\":17,\"\xC4\xA0\xC4\xA0"
             "C!\":18");
    tokenizer = ignis_tokenizer_open(write_text("steps.json", json));
    count = ignis_tokenizer_encode(tokenizer, text, (int64_t)strlen(text), NULL, ids, 32);
    for (*out = 0, i = 0; i < count; i++) {
        memset(piece, 0, sizeof piece);
        (void)ignis_tokenizer_decode(tokenizer, &ids[i], 1, NULL, piece, sizeof piece);
        sprintf(out + strlen(out), "%s%s", i ? "|" : "", piece);
    }
    CHECK_OK(ignis_tokenizer_free(tokenizer));
}

TEST(steps_of_the_pre_tokenizer)
{
#define SPLIT(pattern, behavior) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"" behavior "\",\"invert\":false}"
    static const char *const cases[][2] = {
        {"{\"type\":\"Whitespace\"}", "a1|,|bb|C|!"},
        {"{\"type\":\"WhitespaceSplit\"}", "a1,|bb|C!"},
        {"{\"type\":\"Punctuation\"},{\"type\":\"Digits\",\"individual_digits\":true}", "a|1|,| |b|b| | |C|!"},
        {SPLIT(" ", "MergedWithPrevious"), "a1, |bb | |C!"},
        {SPLIT("\\\\s+", "MergedWithNext"), "a1,| bb|  C!"},
        {SPLIT("\\\\s", "Removed"), "a1,|bb|C!"},
        {SPLIT("[^\\\\s\\\\p{L}]", "Contiguous"), "a|1|,| |b|b| | |C|!"},
        {SPLIT("\\\\p{Ll}+(?=1)|(?i:B{2})|\\\\s+(?!\\\\S)|!$", "Isolated"), "a|1|,| |bb| | C|!"},
    };
    char out[256];
    size_t i;
    DRY();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        pieces_of(cases[i][0], out);
        CHECK_TEXT(out, cases[i][1]);
    }
#undef SPLIT
}

TEST(files_that_contradict_themselves)
{
    static const char *const cases[][3] = {
        {"\"ab\":2", "\"ab\":1", "the tokens 'b' and 'ab' have the same id, 1"},
        {"\"ab\":2", "\"b\":2", "have the same text 'b'"},
        {"\"ab\":2", "\"ab\":4194304", "ids are below 4194304"},
        {"\"ab\":2", "\"ab\":-2", "a whole number"},
        {"\"ab\":2", "\"c\":2", "merge 0 makes a token that is not in its vocabulary"},
        {"[\"a b\"]", "[\"a ab\"]", "merge 0 makes a token"},
        {"[\"a b\"]", "[\"ab\"]", "the merge 'ab' is not two tokens with a space between them"},
        {"[\"a b\"]", "[\"a b c\"]", "the merge 'a b c' is not"},
        {"[\"a b\"]", "[[\"a\"]]", "a , is missing"},
        {",\"merges\":[\"a b\"]", "", "its model has no merges"},
        {"\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},", "", "its model has no vocab"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "{}", "its vocabulary is empty"},
        {"\"id\":3,", "\"id\":2,", "the added token '<s>' has the id 2, which is that of another token"},
        {"\"content\":\"<s>\"", "\"content\":\"ab\"", "the added token 'ab' has the id 3, but in the vocabulary 2"},
        {"\"content\":\"<s>\",", "", "an added token has no content"},
        {"\"id\":3,\"content\"", "\"content\"", "an added token has no id"},
        {"\"special\":true", "\"special\":1", "true or false is missing"},
        {"\"special_tokens\":{\"<s>\"", "\"special_tokens\":{\"<x>\"",
         "its template names the special token '<s>', which it does not have"},
        {"\"Sequence\":{\"id\":\"A\"", "\"Sequence\":{\"id\":\"B\"", "more than special tokens around the text A"},
        {"{\"type\":\"NFC\"}", "{}", "a normalizer has no type"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"N\\u0000FC\"}", "goes on behind a character 0"},
        {"\"ids\":[3]", "\"ids\":[99999999]", "has an id of at least 4194304"},
        {"\"ids\":[3]", "\"ids\":[77]", "its template has the id 77, and it has 4 tokens"},
    };
    size_t i;
    DRY();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = replaced(cases[i][0], cases[i][1]);
        CHECK_FAILS(ignis_tokenizer_open(write_text("damaged.json", json)), IGNIS_ERROR_FORMAT,
                    IGNIS_DIAG_TOKENIZER_FORMAT);
        CHECK_MESSAGE_HAS(cases[i][2]);
        free(json);
    }
}

TEST(files_that_end_too_early_or_too_late)
{
    size_t i, size = strlen(small);
    char *deep = (char *)malloc(4096), more[sizeof small + 1];
    int k, at = 0;
    DRY();
    for (i = 0; i < size; i += 2) {
        test_write_file(test_path("cut.json"), small, i);
        CHECK_FAILS(ignis_tokenizer_open(test_path("cut.json")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    }
    CHECK_MESSAGE_HAS("of the file, ");
    snprintf(more, sizeof more, "%s}", small);
    CHECK_FAILS(ignis_tokenizer_open(write_text("more.json", more)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("something follows the end");
    at += sprintf(deep + at, "{\"normalizer\":");
    for (k = 0; k < 50; k++)
        at += sprintf(deep + at, "{\"normalizers\":[");
    CHECK_FAILS(ignis_tokenizer_open(write_text("deep.json", deep)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("nested deeper than 8");
    at = sprintf(deep, "{\"decoder\":{\"decoders\":[");
    for (k = 0; k < 20; k++)
        at += sprintf(deep + at, "%s{\"type\":\"Fuse\"}", k ? "," : "");
    CHECK_FAILS(ignis_tokenizer_open(write_text("deep.json", deep)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("more than 16 steps");
    free(deep);
}

TEST(paths)
{
    DRY();
    CHECK_FAILS(ignis_tokenizer_open(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_open(test_path("none")), IGNIS_ERROR_IO, IGNIS_DIAG_TOKENIZER_IO);
    CHECK_MESSAGE_HAS("none/tokenizer.json': it cannot be opened");
    CHECK_FAILS(ignis_tokenizer_open(test_folder), IGNIS_ERROR_IO, IGNIS_DIAG_TOKENIZER_IO);
}

/* a folder ----------------------------------------------------------------------------------------------------------
   */

static ignis_tokenizer open_folder(const char *config, const char *jinja)
{
    char path[160];
    snprintf(path, sizeof path, "%s/model", test_folder);
    CHECK(ignis__folder_make(path));
    snprintf(path, sizeof path, "%s/model/tokenizer.json", test_folder);
    test_write_file(path, small, strlen(small));
    snprintf(path, sizeof path, "%s/model/tokenizer_config.json", test_folder);
    if (config)
        test_write_file(path, config, strlen(config));
    else
        (void)ignis__file_remove(path);
    snprintf(path, sizeof path, "%s/model/chat_template.jinja", test_folder);
    if (jinja)
        test_write_file(path, jinja, strlen(jinja));
    else
        (void)ignis__file_remove(path);
    snprintf(path, sizeof path, "%s/model", test_folder);
    return ignis_tokenizer_open(path);
}

TEST(what_lies_beside_the_file)
{
    static const struct {
        const char *config, *jinja, *chat_template;
        int bos, eos, padding, first, count;
    } cases[] = {
        {NULL, NULL, NULL, 3, -1, -1, 3, 2},
        {"{}", NULL, NULL, 3, -1, -1, 3, 2},
        {"{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"ab\",\"lstrip\":false},\"pad_token\":null,\"other\":[1,{}"
         "]}",
         NULL, NULL, 3, 2, -1, 3, 2},
        {"{\"add_bos_token\":false,\"bos_token\":\"<s>\"}", NULL, NULL, 3, -1, -1, 2, 1},
        {"{\"add_bos_token\":true,\"add_eos_token\":true,\"bos_token\":\"<s>\",\"eos_token\":\"b\"}", NULL, NULL, 3, 1,
         -1, 3, 3},
        {"{\"add_bos_token\":null,\"eos_token\":\"none of these\",\"pad_token\":\"a\"}", NULL, NULL, 3, -1, 0, 3, 2},
        {"{\"chat_template\":\"one\"}", NULL, "one", 3, -1, -1, 3, 2},
        {"{\"chat_template\":\"one\"}", "two\n", "two\n", 3, -1, -1, 3, 2},
        {NULL, "two", "two", 3, -1, -1, 3, 2},
        {"{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},{\"name\":\"default\",\"template\":\"y\"}]}", NULL,
         "y", 3, -1, -1, 3, 2},
    };
    ignis_tokenizer_info info;
    ignis__tokenizer *held;
    int32_t ids[8];
    size_t i;
    DRY();
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        ignis_tokenizer tokenizer = open_folder(cases[i].config, cases[i].jinja);
        CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
        CHECK_INT(info.bos, cases[i].bos);
        CHECK_INT(info.eos, cases[i].eos);
        CHECK_INT(info.padding, cases[i].padding);
        CHECK_INT(info.adds_bos, cases[i].first == 3);
        CHECK_INT(info.has_template, cases[i].chat_template != NULL);
        CHECK_INT(ignis_tokenizer_encode(tokenizer, "ab", 2, NULL, ids, 8), cases[i].count);
        CHECK_INT(ids[0], cases[i].first);
        held = ignis__tokenizer_hold("test", tokenizer);
        CHECK(held && (cases[i].chat_template ? strcmp(held->chat_template, cases[i].chat_template) == 0
                                              : !held->chat_template));
        ignis__tokenizer_drop(held);
        let_go(tokenizer);
    }
}

TEST(what_lies_beside_the_file_is_damaged)
{
    char path[160];
    DRY();
    snprintf(path, sizeof path, "%s/model", test_folder);
    let_go(open_folder(NULL, NULL));
    (void)open_folder("{\"add_bos_token\":1}", NULL);
    ignis_status_clear();
    CHECK_FAILS(ignis_tokenizer_open(path), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("tokenizer_config.json': at byte 17 of the file, true or false is missing");
    (void)open_folder("{\"chat_template\":[{\"name\":\"default\",\"template\":\"y\"}", NULL);
    ignis_status_clear();
    CHECK_FAILS(ignis_tokenizer_open(path), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    (void)open_folder(NULL, "\xFF");
    ignis_status_clear();
    CHECK_FAILS(ignis_tokenizer_open(path), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("chat_template.jinja': it is no text in UTF-8");
}

/* GGUF --------------------------------------------------------------------------------------------------------------
   */

static const char *write_gguf(buffer *keys)
{
    buffer file = gguf_file(keys);
    const char *path = test_path("file.gguf");
    test_write_file(path, file.data, file.size);
    free(file.data);
    return path;
}

TEST(gguf_of_bytes)
{
    static const int32_t plain[] = {2, 5, 2, 3, 0, 4}, llama[] = {3, 2};
    buffer keys = gguf_bytes("gpt-2", "111341");
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    DRY();
    add_key_text(&keys, "tokenizer.chat_template", "{{ x }}");
    tokenizer = ignis_tokenizer_open(write_gguf(&keys));
    CHECK_IDS(tokenizer, "ab ab<s>a<u>", 12, NULL, plain, 6);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_TEXT(info.family, "gpt2");
    CHECK_INT(info.bos, -1);
    CHECK_INT(info.has_template, 1);
    let_go(tokenizer);
    keys = gguf_bytes("llama-bpe", "111341");
    add_key_number(&keys, "tokenizer.ggml.bos_token_id", 3);
    tokenizer = ignis_tokenizer_open(write_gguf(&keys));
    CHECK_IDS(tokenizer, "ab", 2, NULL, llama, 2);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_TEXT(info.family, "llama3");
    CHECK_INT(info.adds_bos, 1);
    let_go(tokenizer);
}

TEST(gguf_of_pieces)
{
    /* ▁ab: ▁a is better than ab. abba: bb is best; of ab and ba, which are equal, the left one comes first. */
    static const int32_t one[] = {1, 7}, two[] = {1, 9, 12, 10, 8, 10}, three[] = {1, 9, 12, 5, 10}, byte[] = {1, 4, 3},
                         none[] = {1, 9, 0};
    buffer keys = gguf_pieces("2336111111111", 13);
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    char out[64];
    DRY();
    tokenizer = ignis_tokenizer_open(write_gguf(&keys));
    CHECK_IDS(tokenizer, "ab", 2, NULL, one, 2);
    CHECK_IDS(tokenizer, "cabba", 5, NULL, two, 6);
    CHECK_IDS(tokenizer, "caba", 4, NULL, three, 5);
    CHECK_IDS(tokenizer, "a\n", 2, NULL, byte, 3);
    CHECK_IDS(tokenizer, "xyz", 3, NULL, none, 3);
    CHECK_INT(ignis_tokenizer_decode(tokenizer, byte, 3, NULL, out, 64), 2);
    CHECK(memcmp(out, "a\n", 2) == 0);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_INT(info.bos, 1);
    CHECK_INT(info.eos, 2);
    CHECK_INT(info.unknown, 0);
    CHECK_TEXT(info.family, "llama");
    let_go(tokenizer);
}

TEST(gguf_of_unigram)
{
    /* ▁ab -3 is better than ▁a b; abba: ▁ab ba -5; an eos follows each text */
    static const int32_t one[] = {7, 4, 2}, two[] = {7, 6, 2}, three[] = {9, 0, 2};
    buffer keys = gguf_unigram("2336111111111");
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    DRY();
    tokenizer = ignis_tokenizer_open(write_gguf(&keys));
    CHECK_IDS(tokenizer, "ab \t a", 6, NULL, one, 3);
    CHECK_IDS(tokenizer, "abba", 4, NULL, two, 3);
    CHECK_IDS(tokenizer, "\xC3\xA9\xC3\xA9", 4, NULL, three, 3);
    CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
    CHECK_TEXT(info.family, "unigram");
    CHECK_INT(info.adds_bos, 0);
    let_go(tokenizer);
    keys = gguf_unigram("2336111111111");
    keys.data[keys.size - 114] = 1; /* of the size of the units */
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("its units 1");
    keys = gguf_unigram("1111111111111");
    add_key_number(&keys, "tokenizer.ggml.unknown_token_id", 13);
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
}

/*  Names that have patterns, but no text that tells them apart here: they open, and 1234 has its ids. */
TEST(gguf_names_of_patterns)
{
    static const char *const names[] = {"default", "kanana2",    "talkie",       "granite-embed-multi-97m",
                                        "youtu",   "minicpm5",   "ufakzeka",     "laguna",
                                        "jais-2",  "chameleon",  "deepseek-llm", "spark2_5",
                                        "hy_v4",   "tiny_aya",   "cohere2moe",   "kimi-k2",
                                        "afmoe",   "exaone-moe", "superbpe",     "whitespace"};
    static const int digits[] = {2, 2, 2, 2, 4, 2, 4, 4, 2, 4, 1, 4, 2, 4, 4, 2, 4, 4, 4, 1};
    /* 0 to 3 are digits, 4 12, 5 123, 6 1234 */
    static const int32_t ids[5][4] = {{0}, {6}, {5, 3}, {0}, {0, 1, 2, 3}};
    int i;
    DRY();
    for (i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        buffer keys = {NULL, 0, 0};
        ignis_tokenizer tokenizer;
        add_key_text(&keys, "tokenizer.ggml.model", "gpt2");
        add_key_text(&keys, "tokenizer.ggml.pre", names[i]);
        add_key_texts(&keys, "tokenizer.ggml.tokens", "1 2 3 4 12 123 1234", ' ');
        add_key_texts(&keys, "tokenizer.ggml.merges", "1 2\n12 3\n123 4", '\n');
        tokenizer = ignis_tokenizer_open(write_gguf(&keys));
        CHECK_IDS(tokenizer, "1234", 4, NULL, ids[digits[i]], digits[i]);
        let_go(tokenizer);
    }
}

/*  Names of pre-tokenizers by how they split: digits, texts that NFC changes, and whether a text begins with bos. */
TEST(gguf_names_of_splitters)
{
    static const struct {
        const char *names, *family;
        bool composes, adds_bos;
    } kinds[] = {
        {"jina-v1-en jina-v2-code roberta-bpe gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 "
         "mellum modern-bert exaone4 jais trillion "
         "granite-docling",
         "gpt2", false, false},
        {"mpt olmo", "gpt2", true, false},
        {"smollm starcoder refact codeshell exaone minerva-7b mellum2", "smollm", false, false},
        {"command-r", "smollm", true, false},
        {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", "llama3", false, true},
        {"dbrx smaug-bpe chatglm-bpe glm4 glm5", "llama3", false, false},
        {"qwen2 deepseek-r1-qwen", "qwen2", true, false},
        {"kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", "qwen2", false, false},
    };
    /* 0 to 3 are digits, 4 12, 5 123, 6 1234, 7 e, 8 and 9 the bytes of U+0301, 10 and 11 those of U+00E9, 12 bos */
    static const int32_t whole[] = {6}, three[] = {5, 3}, single[] = {0, 1, 2, 3}, apart[] = {7, 8, 9},
                         composed[] = {10, 11};
    int i;
    DRY();
    for (i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        const char *at = kinds[i].names;
        while (*at) {
            ignis_encode_desc no_bos;
            ignis_tokenizer_info info;
            ignis_tokenizer tokenizer;
            buffer keys = {NULL, 0, 0};
            char name[32];
            int length = (int)strcspn(at, " ");
            const char *family = kinds[i].family;
            snprintf(name, sizeof name, "%.*s", length, at);
            at += length + (at[length] == ' ');
            memset(&no_bos, 0, sizeof no_bos);
            no_bos.no_bos = true;
            add_key_text(&keys, "tokenizer.ggml.model", "gpt2");
            add_key_text(&keys, "tokenizer.ggml.pre", name);
            add_key_texts(&keys, "tokenizer.ggml.tokens",
                          "1 2 3 4 12 123 1234 e \xC3\x8C \xC4\xA3 \xC3\x83 \xC2\xA9 <b>", ' ');
            add_key_types(&keys, "1111111111113");
            add_key_texts(&keys, "tokenizer.ggml.merges", "1 2\n12 3\n123 4", '\n');
            add_key_number(&keys, "tokenizer.ggml.bos_token_id", 12);
            tokenizer = ignis_tokenizer_open(write_gguf(&keys));
            CHECK(tokenizer.id != 0);
            CHECK_OK(ignis_tokenizer_query(tokenizer, &info));
            CHECK_TEXT(info.family, family);
            CHECK_INT(info.adds_bos, kinds[i].adds_bos);
            if (strcmp(family, "gpt2") == 0)
                CHECK_IDS(tokenizer, "1234", 4, &no_bos, whole, 1);
            else if (strcmp(family, "llama3") == 0)
                CHECK_IDS(tokenizer, "1234", 4, &no_bos, three, 2);
            else
                CHECK_IDS(tokenizer, "1234", 4, &no_bos, single, 4);
            if (kinds[i].composes)
                CHECK_IDS(tokenizer, "e\xCC\x81", 3, &no_bos, composed, 2);
            else
                CHECK_IDS(tokenizer, "e\xCC\x81", 3, &no_bos, apart, 3);
            let_go(tokenizer);
        }
    }
}

/*  What ends a text is a control token, whatever the file says of its type, but for </s>, which HTML has, too. */
TEST(gguf_ends_are_control_tokens)
{
    static const struct {
        const char *name;
        char type; /* 1 normal, 3 control, 4 of the user */
        bool control;
    } cases[] = {{"<|im_end|>", '1', true},    {"<|im_end|>", '3', true}, {"<|im_end|>", '4', true},
                 {"<end_of_turn>", '4', true}, {"</s>", '1', false},      {"</s>", '3', true},
                 {"<|im_start|>", '4', false}};
    int i;
    DRY();
    for (i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        ignis_encode_desc plain;
        ignis_tokenizer tokenizer;
        buffer keys = {NULL, 0, 0};
        char texts[96], types[32];
        int32_t ids[32];
        int whole, letters = (int)strlen(cases[i].name);
        memset(&plain, 0, sizeof plain);
        plain.plain = true;
        snprintf(texts, sizeof texts, "a b ab %s < | > / i m _ e n d o f t u r s", cases[i].name);
        snprintf(types, sizeof types, "111%c1111111111111111", cases[i].type);
        add_key_text(&keys, "tokenizer.ggml.model", "gpt2");
        add_key_text(&keys, "tokenizer.ggml.pre", "gpt-2");
        add_key_texts(&keys, "tokenizer.ggml.tokens", texts, ' ');
        add_key_types(&keys, types);
        add_key_texts(&keys, "tokenizer.ggml.merges", "a b", '\n');
        tokenizer = ignis_tokenizer_open(write_gguf(&keys));
        CHECK(tokenizer.id != 0);
        whole = ignis_tokenizer_encode(tokenizer, cases[i].name, letters, NULL, ids, 32);
        CHECK_INT(whole, cases[i].type == '1' && !cases[i].control ? letters : 1);
        CHECK_INT(ignis_tokenizer_encode(tokenizer, cases[i].name, letters, &plain, ids, 32),
                  cases[i].control || cases[i].type == '1' ? letters : 1);
        let_go(tokenizer);
    }
}

TEST(gguf_that_is_refused)
{
    char long_token[1026];
    buffer keys = {NULL, 0, 0};
    DRY();
    add_key_text(&keys, "general.architecture", "llama");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("it has no tokenizer");
    add_key_text(&keys, "tokenizer.ggml.model", "rwkv");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("tokenizer.ggml.model 'rwkv'");
    add_key_number(&keys, "tokenizer.ggml.model", 3);
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_GGUF_FORMAT);
    keys = gguf_bytes("kimi-k3", "111341");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("tokenizer.ggml.pre 'kimi-k3'");
    keys = gguf_bytes(NULL, "111341");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    keys = gguf_bytes("gpt-2", "11134");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("it has 6 tokens, 5 token_types");
    keys = gguf_pieces("2336111111111", 12);
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    keys = gguf_bytes("gpt-2", "131341"); /* b is no token that text becomes */
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("merge 0 joins a token");
    keys = gguf_bytes("gpt-2", "111341");
    add_key_number(&keys, "tokenizer.ggml.bos_token_id", 6);
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("bos_token_id is 6, and it has 6 tokens");
    keys = gguf_bytes("gpt-2", "111341");
    add_key_text(&keys, "tokenizer.chat_template", "\xFF");
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    add_key_text(&keys, "tokenizer.ggml.model", "gpt2");
    add_key_text(&keys, "tokenizer.ggml.pre", "gpt-2");
    add_key_texts(&keys, "tokenizer.ggml.tokens", "a \xFF", ' ');
    add_key_texts(&keys, "tokenizer.ggml.merges", "a b", '\n');
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TOKENIZER_FORMAT);
    CHECK_MESSAGE_HAS("token 1 has no score, or is no text in UTF-8");
    CHECK_FAILS(ignis_tokenizer_open(write_text("short.gguf", "GGUF\3")), IGNIS_ERROR_FORMAT, IGNIS_DIAG_GGUF_FORMAT);
    memset(long_token, 'a', sizeof long_token - 1);
    long_token[sizeof long_token - 1] = 0;
    add_key_text(&keys, "tokenizer.ggml.model", "llama");
    add_key_texts(&keys, "tokenizer.ggml.tokens", long_token, ' ');
    add_key(&keys, "tokenizer.ggml.scores", 9);
    add_number(&keys, 6, 4);
    add_number(&keys, 1, 8);
    add_number(&keys, 0, 4);
    CHECK_FAILS(ignis_tokenizer_open(write_gguf(&keys)), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("token 0 has 1025 bytes; with scores at most 1024");
}

/* handles, arguments, memory, threads -------------------------------------------------------------------------------
   */

TEST(handles)
{
    ignis_tokenizer tokenizer, none;
    ignis_tokenizer_info info;
    ignis_text_stream stream;
    int32_t id = 0;
    char out[8];
    memset(&none, 0, sizeof none);
    memset(&stream, 0, sizeof stream);
    CHECK_FAILS(ignis_tokenizer_open("x"), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    DRY();
    tokenizer = open_family(0);
    stream.tokenizer = tokenizer;
    CHECK_STATUS(ignis_tokenizer_query(tokenizer, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    let_go(tokenizer);
    CHECK_STATUS(ignis_tokenizer_free(tokenizer), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_STATUS(ignis_tokenizer_query(tokenizer, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, "a", 1, NULL, &id, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, &id, 1, NULL, out, 8), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_FAILS(ignis_tokenizer_piece(tokenizer, 0, out, 8), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    CHECK_FAILS(ignis_text_stream_put(&stream, 0, out, 8), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
    {
        ignis_array array = {tokenizer.id};
        CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    }
}

TEST(arguments)
{
    ignis_tokenizer tokenizer;
    ignis_text_stream stream;
    int32_t ids[2] = {0, -1};
    char out[8];
    DRY();
    tokenizer = open_family(0);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, NULL, 1, NULL, ids, 2), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, "a", 1, NULL, NULL, 2), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, "a", -1, NULL, ids, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, "a", (int64_t)1 << 40, NULL, ids, 2), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_tokenizer_encode(tokenizer, "a", 1, NULL, ids, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, NULL, 1, NULL, out, 8), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, ids, 1, NULL, NULL, 8), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, ids, -1, NULL, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, ids, 1, NULL, out, -8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_tokenizer_decode(tokenizer, ids, 2, NULL, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TOKEN_RANGE);
    CHECK_MESSAGE_HAS("there is no id -1; those of this tokenizer are below");
    CHECK_FAILS(ignis_tokenizer_piece(tokenizer, BYTES_TOKENS + 1, out, 8), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_TOKEN_RANGE);
    CHECK_FAILS(ignis_tokenizer_piece(tokenizer, 0, NULL, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_tokenizer_piece(tokenizer, 0, out, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    memset(&stream, 0, sizeof stream);
    stream.tokenizer = tokenizer;
    CHECK_FAILS(ignis_text_stream_put(NULL, 0, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_text_stream_put(&stream, 0, NULL, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_text_stream_put(&stream, 0, out, -8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_text_stream_put(&stream, -5, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TOKEN_RANGE);
    CHECK_FAILS(ignis_text_stream_end(NULL, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    memset(&stream, 0x55, sizeof stream);
    CHECK_FAILS(ignis_text_stream_end(&stream, out, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_INT(ignis_tokenizer_encode(tokenizer, "a", 1, NULL, ids, 2), 1); /* works after the errors */
    let_go(tokenizer);
}

TEST(what_is_not_freed_is_reported)
{
    ignis_tokenizer tokenizer;
    ignis_tokenizer_info info;
    DRY();
    test_leaks_expected = true;
    tokenizer = open_family(0);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "tokenizer of 331 tokens, gpt2");
    SETUP(&dry_setup);
    CHECK_STATUS(ignis_tokenizer_query(tokenizer, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_TOKENIZER_FREED);
}

/*  Every allocation fails once, and everything that was taken is given back. */
TEST(no_memory)
{
    static const char text[] = "hello <|endoftext|> e\xCC\x81q\xCC\x87\xCC\xA3 \xFF "
                               "wordaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    int32_t ids[256], wanted[256];
    char out[512];
    int family, at, count, want;
    long long blocks;
    desc.dry_run = true;
    for (family = 0; family < 9; family++) {
        const char *path = family < 8 ? write_family(&families[family])
                                      : write_text("unigram.json", SMALL_UNIGRAM(SMALL_NORMALIZER, SMALL_SCORES));
        ignis_tokenizer tokenizer;
        bool over = false;
        SETUP(&desc);
        blocks = counter.blocks;
        for (at = 1; !over; at++) {
            fault_plan(NULL, at, 0, &counter, false);
            tokenizer = ignis_tokenizer_open(path);
            over = !fault_over(&counter);
            if (over)
                break;
            CHECK_INT(tokenizer.id, 0);
            CHECK(ignis_status_last() == IGNIS_ERROR_MEMORY ||
                  ignis_status_last() == IGNIS_ERROR_IO); /* a file that could not be read whole */
            ignis_status_clear();
            CHECK_INT(counter.blocks, blocks);
        }
        want = ignis_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, wanted, 256);
        CHECK(want > 0 && want <= 256);
        for (over = false, at = 1; !over; at++) {
            fault_plan(NULL, at, 0, &counter, false);
            count = ignis_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, ids, 256);
            over = !fault_over(&counter);
            CHECK_INT(count, over ? want : -1);
            if (!over)
                CHECK_INT(ignis_status_last(), IGNIS_ERROR_MEMORY);
            ignis_status_clear();
        }
        CHECK(memcmp(ids, wanted, sizeof *ids * (size_t)want) == 0);
        for (over = false, at = 1; !over; at++) {
            fault_plan(NULL, at, 0, &counter, false);
            count = (int)ignis_tokenizer_decode(tokenizer, ids, want, NULL, out, 512);
            over = !fault_over(&counter);
            CHECK((count > 0) == over);
            ignis_status_clear();
        }
        let_go(tokenizer);
        CHECK_INT(counter.blocks, blocks);
        CHECK_OK(ignis_shutdown());
    }
}

enum { THREADS = 4, ROUNDS = 300 };

static struct {
    ignis_tokenizer tokenizer;
    int32_t ids[256];
    int count, wrong, freed;
    uint64_t go, done;
    pthread_mutex_t lock;
} shared = {{0}, {0}, 0, 0, 0, 0, 0, PTHREAD_MUTEX_INITIALIZER};

static const char thread_text[] = "the tensors of the other world aren't here, hello \xE4\xB8\xAD\xE6\x96\x87; return "
                                  "0;\n    if (x == 12) aaaaaaaaaaaaa"
                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void *encode_often(void *until_freed)
{
    int32_t ids[256];
    char out[1024];
    int i, count, wrong = 0, freed = 0;
    for (i = 0; until_freed ? !freed : i < ROUNDS; i++) {
        count = ignis_tokenizer_encode(shared.tokenizer, thread_text, sizeof thread_text - 1, NULL, ids, 256);
        if (count < 0 && until_freed && ignis_status_last() == IGNIS_ERROR_FREED) {
            freed = 1;
            ignis_status_clear();
            break;
        }
        wrong += count != shared.count || memcmp(ids, shared.ids, sizeof *ids * (size_t)count) != 0;
        count = (int)ignis_tokenizer_decode(shared.tokenizer, ids, count < 0 ? 0 : count, NULL, out, sizeof out);
        if (count < 0 && until_freed && ignis_status_last() == IGNIS_ERROR_FREED) {
            freed = 1;
            ignis_status_clear();
            break;
        }
        wrong += count != (int)sizeof thread_text - 1;
        ignis__atomic_add(&shared.done, 1);
    }
    pthread_mutex_lock(&shared.lock);
    shared.wrong += wrong;
    shared.freed += freed;
    pthread_mutex_unlock(&shared.lock);
    return NULL;
}

/*  One tokenizer, and many threads; the last time one of them is freed while they use it. */
TEST(threads)
{
    static const int which[] = {0, 2, 5};
    pthread_t threads[THREADS];
    size_t round;
    int i, wait;
    DRY();
    for (round = 0; round < 2 * sizeof which / sizeof *which; round++) {
        bool until_freed = round % 2 == 1;
        ignis_encode_desc desc;
        ignis_tokenizer other = open_family(which[round / 2]);
        memset(&desc, 0, sizeof desc);
        shared.count = ignis_tokenizer_encode(other, thread_text, sizeof thread_text - 1, &desc, shared.ids, 256);
        let_go(other);
        shared.tokenizer = open_family(which[round / 2]); /* of which nothing is known yet */
        shared.wrong = shared.freed = 0;
        ignis__atomic_store(&shared.done, 0);
        for (i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, encode_often, until_freed ? &shared : NULL), 0);
        for (wait = 0; until_freed && wait < 5000 && ignis__atomic_load(&shared.done) < 20; wait++)
            test_sleep_ms(1);
        if (until_freed)
            let_go(shared.tokenizer);
        for (i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_INT(shared.wrong, 0);
        CHECK_INT(shared.freed, until_freed ? THREADS : 0);
        if (!until_freed)
            let_go(shared.tokenizer);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
