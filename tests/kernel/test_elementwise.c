// SPDX-License-Identifier: MIT
/*  test_elementwise.c - fill, copy, cast, add, mul and scale on the device, bit for bit against reference.h */
#include "array.h"
#include "reference.h"

/* Around the borders of packs, warps and blocks. */
static const int64_t sizes[] = {0, 1, 2, 3, 7, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 10007};
enum { SIZES = COUNT_OF(sizes), MAX_SIZE = 10007, GUARD = 2, MAX_BYTES = 8 * (MAX_SIZE + 2 * GUARD) };

/*  An operand: a view of n elements that starts at an odd element (offset 1) or a well aligned one (0) of a larger
    array, whose elements outside the view have to stay as they are. */
typedef struct operand {
    ignis_array whole, view;
    ignis_dtype dtype;
    int64_t n, offset;
    unsigned char host[MAX_BYTES]; /* of the view */
} operand;

static unsigned char fetched[MAX_BYTES];

static void operand_open(operand *o, ignis_dtype dtype, int64_t n, int64_t offset)
{
    size_t size = ref_size(dtype), count = (size_t)(n + 2 * GUARD);
    o->dtype = dtype, o->n = n, o->offset = offset;
    o->whole = make(IGNIS_SHAPE((int64_t)count), dtype);
    memset(fetched, 0x3C, count * size);
    if (n)
        memcpy(fetched + (size_t)offset * size, o->host, (size_t)n * size);
    CHECK_OK(ignis_array_from_host_raw(o->whole, fetched, (int64_t)(count * size)));
    o->view = ignis_array_slice(o->whole, 0, offset, n);
}

static void operand_close(operand *o) { drop(o->view), drop(o->whole); }

/*  The device has what host says, and nothing around it changed. Reports the first difference. */
static void operand_check(const operand *o, const char *what)
{
    size_t size = ref_size(o->dtype), count = (size_t)(o->n + 2 * GUARD), first = (size_t)o->offset, i;
    char text[256];
    CHECK_OK(ignis_array_to_host_raw(o->whole, fetched, (int64_t)(count * size)));
    for (i = 0; i < count; i++) {
        bool inside = i >= first && i < first + (size_t)o->n;
        uint64_t got = ref_load(fetched, o->dtype, i),
                 expected = UINT64_C(0x3C3C3C3C3C3C3C3C) & ref_mask(8 * (int)size);
        if (inside)
            expected = ref_load(o->host, o->dtype, i - first);
        if (ref_same(o->dtype, got, expected))
            continue;
        snprintf(text, sizeof text,
                 "%s on %s[%lld] at offset %lld: element %lld is 0x%llx (%.17g), expected 0x%llx (%.17g)", what,
                 ref_formats[o->dtype].name, (long long)o->n, (long long)o->offset, (long long)i - (long long)first,
                 (unsigned long long)got, ref_to_double(o->dtype, got), (unsigned long long)expected,
                 ref_to_double(o->dtype, expected));
        test__fail(__FILE__, __LINE__, text);
        return;
    }
}

/*  Mostly numbers of one order of magnitude, with some of everything. */
static uint64_t random_element(ignis_dtype dtype, uint64_t *state)
{
    uint64_t x = ref_random(state);
    if (x % 8 == 0)
        return ref_random(state) & ref_mask(8 * (int)ref_size(dtype));
    return ref_convert(dtype, IGNIS_F64, ref_from_double((double)(int64_t)(x >> 40) / 65536.0 - 128.0));
}

/* the reference of each operation ------------------------------------------------------------------------------- */

typedef enum operation { ADD, MUL, SCALE } operation;

static uint64_t integer_scale(ignis_dtype dtype, uint64_t x, double factor)
{
    return ref_convert(dtype, IGNIS_F64, ref_from_double(ref_to_double(dtype, x) * factor));
}

static uint64_t expected_of(operation op, ignis_dtype dtype, uint64_t x, uint64_t y, double factor)
{
    if (dtype == IGNIS_F64) {
        double a = ref_to_double(dtype, x), b = ref_to_double(dtype, y);
        return ref_from_double(op == ADD ? a + b : op == MUL ? a * b : a * factor);
    }
    if (ref_is_float(dtype)) {
        float a = ref_to_float(dtype, x), b = ref_to_float(dtype, y);
        float result = op == ADD ? a + b : op == MUL ? a * b : a * (float)factor;
        return ref_convert(dtype, IGNIS_F32, ref_from_float(result));
    }
    if (op == SCALE)
        return integer_scale(dtype, x, factor);
    return (op == ADD ? x + y : x * y) & ref_mask(8 * (int)ref_size(dtype)); /* wraps */
}

/* element by element -------------------------------------------------------------------------------------------- */

static operand src_a, src_b, dst;

static void check_operation(operation op, ignis_dtype dtype, int64_t n, const int64_t offsets[3], bool in_place)
{
    static const char *const names[] = {"add", "mul", "scale"};
    const double factor = -1.1;
    uint64_t state = 12345 + (uint64_t)n;
    operand *to = in_place ? &src_a : &dst;
    size_t i;
    for (i = 0; i < (size_t)n; i++) {
        ref_store(src_a.host, dtype, i, random_element(dtype, &state));
        ref_store(src_b.host, dtype, i, random_element(dtype, &state));
    }
    memset(dst.host, 0, sizeof dst.host);
    operand_open(&src_a, dtype, n, offsets[0]);
    operand_open(&src_b, dtype, n, offsets[1]);
    if (!in_place)
        operand_open(&dst, dtype, n, offsets[2]);
    if (op == ADD)
        CHECK_OK(ignis_array_add(to->view, src_a.view, src_b.view));
    if (op == MUL)
        CHECK_OK(ignis_array_mul(to->view, src_a.view, src_b.view));
    if (op == SCALE)
        CHECK_OK(ignis_array_scale(to->view, src_a.view, factor));
    for (i = 0; i < (size_t)n; i++)
        ref_store(to->host, dtype, i,
                  expected_of(op, dtype, ref_load(src_a.host, dtype, i), ref_load(src_b.host, dtype, i), factor));
    operand_check(to, names[op]);
    if (!in_place)
        operand_check(&src_a, "the first operand after it"), operand_close(&dst);
    operand_check(&src_b, "the second operand after it");
    operand_close(&src_a);
    operand_close(&src_b);
}

static void check_operation_everywhere(operation op)
{
    static const int64_t offsets[][3] = {{0, 0, 0}, {1, 1, 1}, {0, 1, 0}, {1, 0, 0}, {0, 0, 1}};
    ignis_dtype dtype;
    int s, k;
    REF_EACH_DTYPE(dtype)
    for (s = 0; s < SIZES; s++) {
        for (k = 0; k < COUNT_OF(offsets); k++)
            if (k < 2 || sizes[s] < 300)
                check_operation(op, dtype, sizes[s], offsets[k], false);
        check_operation(op, dtype, sizes[s], offsets[s % 2], true);
    }
}

TEST(add_is_exact)
{
    SETUP(NULL);
    check_operation_everywhere(ADD);
}
TEST(mul_is_exact)
{
    SETUP(NULL);
    check_operation_everywhere(MUL);
}
TEST(scale_is_exact)
{
    SETUP(NULL);
    check_operation_everywhere(SCALE);
}

TEST(fill_sets_the_view_and_nothing_else)
{
    static const double values[] = {0.0, -0.0, 1.0, -2.5, 300.7, 1e10, -1e300, 65519.99, 1.0 / 3.0};
    ignis_dtype dtype;
    int s, v;
    int64_t i, offset;
    SETUP(NULL);
    REF_EACH_DTYPE(dtype)
    for (s = 0; s < SIZES; s++)
        for (offset = 0; offset < 2; offset++) {
            double value = values[(s + (int)offset) % COUNT_OF(values)];
            memset(dst.host, 0, sizeof dst.host);
            operand_open(&dst, dtype, sizes[s], offset);
            CHECK_OK(ignis_array_fill(dst.view, value));
            for (i = 0; i < sizes[s]; i++)
                ref_store(dst.host, dtype, (size_t)i, ref_convert(dtype, IGNIS_F64, ref_from_double(value)));
            operand_check(&dst, "fill");
            operand_close(&dst);
        }
    REF_EACH_DTYPE(dtype)
    for (v = 0; v < COUNT_OF(values); v++) {
        ignis_array array = make(IGNIS_SHAPE(1), dtype); /* fill is its first use */
        uint64_t bits = 0;
        CHECK_OK(ignis_array_fill(array, values[v]));
        CHECK_OK(ignis_array_to_host_raw(array, &bits, (int64_t)ref_size(dtype)));
        CHECK_INT(bits, ref_convert(dtype, IGNIS_F64, ref_from_double(values[v])));
        drop(array);
    }
}

TEST(fill_with_special_values)
{
    const double zero = 0.0, values[] = {1.0 / zero, -1.0 / zero, zero / zero};
    ignis_dtype dtype;
    int v;
    SETUP(NULL);
    REF_EACH_DTYPE(dtype)
    for (v = 0; v < 3; v++) {
        ignis_array array = make(IGNIS_SHAPE(5), dtype);
        uint64_t all[5];
        CHECK_OK(ignis_array_fill(array, values[v]));
        CHECK_OK(ignis_array_to_host_raw(array, all, 5 * (int64_t)ref_size(dtype)));
        CHECK(ref_same(dtype, ref_load(all, dtype, 4), ref_convert(dtype, IGNIS_F64, ref_from_double(values[v]))));
        drop(array);
    }
}

/* copies and casts ---------------------------------------------------------------------------------------------- */

/*  All pairs, on all values that are hard to convert. */
static void check_casts_of_hard_values(void)
{
    ignis_dtype from, to;
    REF_EACH_DTYPE(from)
    {
        size_t count, i;
        void *values = ref_hard_values(from, &count), *got = malloc(count * 8);
        ignis_array source = make(IGNIS_SHAPE((int64_t)count), from);
        CHECK_OK(ignis_array_from_host_raw(source, values, (int64_t)(count * ref_size(from))));
        REF_EACH_DTYPE(to)
        {
            ignis_array target = ignis_array_cast(source, to);
            char text[256];
            CHECK_INT(info_of(target).dtype, to);
            CHECK_OK(ignis_array_to_host_raw(target, got, (int64_t)(count * ref_size(to))));
            for (i = 0; i < count; i++) {
                uint64_t x = ref_load(values, from, i), y = ref_load(got, to, i), expected = ref_convert(to, from, x);
                if (to == from ? x == y : ref_same(to, y, expected))
                    continue;
                snprintf(text, sizeof text, "%s 0x%llx (%.17g) cast to %s gave 0x%llx (%.17g), expected 0x%llx (%.17g)",
                         ref_formats[from].name, (unsigned long long)x, ref_to_double(from, x), ref_formats[to].name,
                         (unsigned long long)y, ref_to_double(to, y), (unsigned long long)expected,
                         ref_to_double(to, expected));
                test__fail(__FILE__, __LINE__, text);
                break;
            }
            drop(target);
        }
        drop(source);
        free(values), free(got);
    }
}

TEST(casts_are_exact_for_hard_values)
{
    SETUP(NULL);
    check_casts_of_hard_values();
}

/*  Those of compute capability 8.9 and up round floats of 8 bits by an instruction. */
TEST(casts_are_exact_on_an_older_device)
{
    SETUP(NULL);
    if (!test_is_simulator())
        SKIP("kernels for an older device do not run on this one");
    ignis__devices[0].info.compute_major = 8, ignis__devices[0].info.compute_minor = 6;
    check_casts_of_hard_values();
}

static void check_copy(ignis_dtype to, ignis_dtype from, int64_t n, int64_t to_offset, int64_t from_offset)
{
    uint64_t state = 99 + (uint64_t)n;
    size_t i;
    for (i = 0; i < (size_t)n; i++)
        ref_store(src_a.host, from, i, random_element(from, &state));
    memset(dst.host, 0, sizeof dst.host);
    operand_open(&src_a, from, n, from_offset);
    operand_open(&dst, to, n, to_offset);
    CHECK_OK(ignis_array_copy(dst.view, src_a.view));
    for (i = 0; i < (size_t)n; i++)
        ref_store(dst.host, to, i, ref_convert(to, from, ref_load(src_a.host, from, i)));
    operand_check(&dst, "copy");
    operand_check(&src_a, "the source of a copy");
    operand_close(&dst);
    operand_close(&src_a);
}

TEST(copies_of_all_pairs_and_sizes)
{
    ignis_dtype from, to;
    int s;
    SETUP(NULL);
    REF_EACH_DTYPE(from)
    REF_EACH_DTYPE(to)
    for (s = 0; s < SIZES; s++) {
        check_copy(to, from, sizes[s], 0, 0);
        if (sizes[s] < 300)
            check_copy(to, from, sizes[s], 1, 0), check_copy(to, from, sizes[s], 0, 1);
        if (sizes[s] != 4095)
            check_copy(to, from, sizes[s], 1, 1);
    }
}

TEST(copy_fits_shapes_by_numel)
{
    ignis_array src, to;
    SETUP(NULL);
    src = make_counting(IGNIS_SHAPE(2, 3, 4), 7);
    to = make(IGNIS_SHAPE(24), IGNIS_I32);
    CHECK_OK(ignis_array_copy(to, src));
    CHECK_COUNTING(to, 24, 7);
    CHECK_OK(ignis_array_copy(to, to)); /* onto itself */
    CHECK_COUNTING(to, 24, 7);
    drop(src), drop(to);
}

TEST(cast_keeps_the_attributes)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(2, 3), IGNIS_F32);
    ignis_array array, cast;
    SETUP(NULL);
    desc.owner = IGNIS_OWNER_NVCCL;
    desc.tag = "gradients";
    array = ignis_array_create(&desc);
    CHECK_OK(ignis_array_fill(array, 2));
    cast = ignis_array_cast(array, IGNIS_F64);
    CHECK_SHAPE(cast, IGNIS_SHAPE(2, 3));
    CHECK_INT(info_of(cast).owner, IGNIS_OWNER_NVCCL);
    CHECK_TEXT(info_of(cast).tag, "gradients");
    CHECK(info_of(cast).owns_memory);
    CHECK_INT(info_of(cast).parent, 0);
    CHECK_REFUSED(0, ignis_array_cast(array, IGNIS_DTYPE_COUNT).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_free_as(cast, IGNIS_OWNER_NVCCL));
}

TEST(integers_wrap_and_saturate)
{
    static const int32_t values[4] = {INT32_MAX, INT32_MIN, -1, 65536};
    int32_t back[4];
    ignis_array array;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_I32);
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 4));
    CHECK_OK(ignis_array_add(array, array, array));
    CHECK_OK(ignis_array_to_host(array, back, IGNIS_I32, 4));
    CHECK(back[0] == -2 && back[1] == 0 && back[2] == -2 && back[3] == 131072);
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 4));
    CHECK_OK(ignis_array_mul(array, array, array));
    CHECK_OK(ignis_array_to_host(array, back, IGNIS_I32, 4));
    CHECK(back[0] == 1 && back[1] == 0 && back[2] == 1 && back[3] == 0);
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 4));
    CHECK_OK(ignis_array_scale(array, array, 1.5));
    CHECK_OK(ignis_array_to_host(array, back, IGNIS_I32, 4));
    CHECK(back[0] == INT32_MAX && back[1] == INT32_MIN && back[2] == -1 && back[3] == 98304);
    drop(array);
}

/* what is refused ----------------------------------------------------------------------------------------------- */

TEST(operands_have_to_fit)
{
    ignis_array six, five, other;
    SETUP(NULL);
    six = make(IGNIS_SHAPE(2, 3), IGNIS_F32);
    five = make(IGNIS_SHAPE(5), IGNIS_F32);
    other = make(IGNIS_SHAPE(2, 3), IGNIS_F64);
    CHECK_OK(ignis_array_fill(six, 1));
    CHECK_OK(ignis_array_fill(five, 1));
    CHECK_OK(ignis_array_fill(other, 1));
    CHECK_STATUS(ignis_array_add(six, six, five), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[2, 3]");
    CHECK_MESSAGE_HAS("[5]");
    CHECK_STATUS(ignis_array_add(five, six, six), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_array_mul(six, five, six), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_array_scale(six, five, 2), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_array_copy(six, five), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_array_add(six, six, other), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("f32");
    CHECK_MESSAGE_HAS("f64");
    CHECK_STATUS(ignis_array_add(other, six, six), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_array_mul(six, other, six), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_array_scale(other, six, 2), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    drop(six), drop(five), drop(other);
}

TEST(more_than_2_to_the_32_elements)
{
    const int64_t n = (INT64_C(1) << 32) + 3;
    ignis_array bytes, halves, end;
    float values[4];
    SETUP(NULL);
    if (test_is_simulator())
        SKIP("12 GiB are too much for the simulator");
    bytes = make(IGNIS_SHAPE(n), IGNIS_U8);
    CHECK_OK(ignis_array_fill(bytes, 7));
    CHECK_OK(ignis_array_add(bytes, bytes, bytes));
    CHECK_OK(ignis_array_scale(bytes, bytes, 1.5));
    halves = ignis_array_cast(bytes, IGNIS_F16);
    end = ignis_array_slice(halves, 0, n - 4, 4);
    CHECK_OK(ignis_array_to_host(end, values, IGNIS_F32, 4));
    CHECK(values[0] == 21 && values[3] == 21);
    drop(bytes), drop(halves), drop(end);
}

TEST(copies_between_devices)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(1001), IGNIS_I32);
    ignis_array near, far, wide, slice;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    near = make_counting(IGNIS_SHAPE(1002), 1);
    slice = ignis_array_slice(near, 0, 1, 1001);
    desc.device = 1;
    far = ignis_array_create(&desc);
    CHECK_OK(ignis_array_copy(far, slice));
    CHECK_COUNTING(far, 1001, 2);
    CHECK_OK(ignis_array_fill(slice, 0));
    CHECK_OK(ignis_array_copy(slice, far));
    CHECK_COUNTING(near, 1002, 1);
    desc.dtype = IGNIS_F64;
    wide = ignis_array_create(&desc);
    CHECK_STATUS(ignis_array_copy(wide, slice), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_array_copy(wide, far));
    CHECK_INT(ignis_device_current(), 0);
    drop(near), drop(far), drop(wide), drop(slice);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
