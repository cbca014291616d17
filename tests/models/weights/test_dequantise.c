// SPDX-License-Identifier: MIT
/*  test_dequantise.c - rows of quantised weights on the device: the bits that the host finds, for each type of blocks
    and each dtype */
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

/*  Dequantises rows `first` to first + count - 1 of a matrix to an array, from its row `to` on. Rows of the matrix are
    blocks of `type`, and from other_from on of Q8_0. */
static void check_rows(int type, ignis_dtype dtype, int rows, int k, int other_from, int first, int count, int to)
{
    const int before = room_count, all = to + count + 1, size = (int)ignis__dtypes[dtype].size;
    double *numbers;
    ignis__array *blocks = room_blocks(rows, k, type, other_from, IGNIS__GGUF_Q8_0, 3, &numbers);
    ignis__array *out = room_noise(IGNIS_SHAPE(all, k), dtype, 4, 1, NULL);
    const size_t bytes = (size_t)all * (size_t)k * (size_t)size;
    char *start = (char *)malloc(bytes), *got = (char *)malloc(bytes);
    ignis__op op;
    CHECK_OK(ignis_array_to_host(handle_of(out), start, dtype, (int64_t)all * k));
    op = step_begin();
    ignis__op_dequantise(&op, out, to, blocks, &blocks->blocks, first, count);
    step_end(&op);
    CHECK_OK(ignis_array_to_host(handle_of(out), got, dtype, (int64_t)all * k));
    /* the rows around them stay */
    ignis__convert(start + (size_t)to * (size_t)k * (size_t)size, dtype, numbers + (size_t)first * (size_t)k, IGNIS_F64,
                   (int64_t)count * k);
    if (memcmp(start, got, bytes) != 0) {
        char text[160];
        snprintf(text, sizeof text, "blocks %d, dtype %d, rows %d to %d of %d by %d differ from the host's", type,
                 (int)dtype, first, first + count - 1, rows, k);
        test__fail(__FILE__, __LINE__, text);
    }
    free(start), free(got), free(numbers);
    rooms_end(before);
}

TEST(rows_have_the_bits_of_the_host)
{
    int t, d;
    SETUP(NULL);
    for (t = 0; t < IGNIS__BLOCKS_COUNT; t++) {
        static const ignis_dtype dtypes[] = {IGNIS_F16, IGNIS_BF16, IGNIS_F32, IGNIS_F64};
        const int type = (int)ignis__blocks_types[t].type, block = ignis__blocks_types[t].file_elements;
        for (d = 0; d < COUNT_OF(dtypes); d++) {
            if (d != t % 4 && dtypes[d] != IGNIS_BF16)
                continue;
            check_rows(type, dtypes[d], 1, block, 1, 0, 1, 0);       /* a block */
            check_rows(type, dtypes[d], 13, 9 * block, 13, 2, 9, 1); /* rows and records that fill no group */
            check_rows(type, dtypes[d], 19, 512, 11, 3, 15, 2);      /* of two types */
        }
        check_rows(type, IGNIS_BF16, 2, 4096 + block, 2, 0, 2, 0); /* several blocks for a row */
    }
}

/*  Long prompts, and devices without tensor cores, multiply dequantised weights: the record of a product of one row has
    what dequantises each of its types. */
TEST(a_product_of_one_row_records_what_dequantises)
{
    const char *const record = test_path("product.record");
    ignis_desc desc = test_desc(NULL);
    char text[1 << 16], line[128];
    double *numbers;
    FILE *file;
    int i;
    desc.record = record;
    SETUP(&desc);
    {
        const int before = room_count;
        ignis__array *weights = room_blocks(32, 256, IGNIS__GGUF_Q4_0, 16, IGNIS__GGUF_Q8_0, 2, &numbers);
        ignis__op op = step_begin();
        ignis__gemv_desc product;
        memset(&product, 0, sizeof product);
        product.count = 1;
        product.kind = IGNIS__GEMV_OUT;
        product.weights = weights;
        product.x = room_noise(IGNIS_SHAPE(1, 256), IGNIS_BF16, 1, 1, NULL);
        product.out = room(IGNIS_SHAPE(1, 32), IGNIS_BF16);
        product.dequantised = room(IGNIS_SHAPE(ignis__blocks_scratch_elements(256)), IGNIS_BF16);
        ignis__gemv_run(&op, &product);
        step_end(&op);
        free(numbers);
        rooms_end(before);
    }
    CHECK_OK(ignis_shutdown());
    file = fopen(record, "rb");
    REQUIRE(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "own 0-999 blocks_rows.cu ignis_blocks_rows -DIGNIS_T=2 -DIGNIS_BLOCKS=%d\n",
                 i ? IGNIS__GGUF_Q8_0 : IGNIS__GGUF_Q4_0);
        CHECK(strstr(text, line));
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
