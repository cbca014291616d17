// SPDX-License-Identifier: MIT
/*  fuzz_formula.c - damaged formulas: the reader must say no with a place and a reason, or what it says yes to must
    become a sound kernel

        fuzz_formula [iterations [seed]]

    It makes formulas by mutation from good ones; the same seed makes the same formulas.
    Build it with -fsanitize=address,undefined: each formula is in a block of memory of exactly its size. With
    -DFUZZ_LIBFUZZER and clang's -fsanitize=fuzzer the entry of libFuzzer is there instead of main. Neither needs a
    device. */
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#define FUZZER "fuzz_formula"
#include "fuzz.h"

/*  In a kernel's text each n12 and d12_3 is declared, once, before it is used; braces and parentheses are in pairs, and
    nothing is there that a formula's text could have brought in. */
static void check_kernel(const char *kernel, const char *text)
{
    static unsigned char declared[2][IGNIS__FORMULA_TERMS][IGNIS_MAX_INPUTS];
    const char *at = strstr(kernel, "DI void map_f("), *end = strstr(kernel, "struct P");
    int depth = 0;
    memset(declared, 0, sizeof declared);
    require_text(at && end, "a kernel has no function", text);
    for (; at < end; at++) {
        bool begins = !ignis__formula_is_letter(at[-1]) && !ignis__formula_is_digit(at[-1]);
        require_text(*at == '\n' || (*at >= ' ' && *at < 127 && !strchr("#\"'\\[]`@$", *at)),
                     "a kernel has a strange character", text);
        depth += strchr("({", *at) ? 1 : strchr(")}", *at) ? -1 : 0;
        require_text(depth >= 0, "a kernel has parentheses that nothing opens", text);
        if (begins && (*at == 'n' || *at == 'd') && ignis__formula_is_digit(at[1])) {
            char *behind;
            long term = strtol(at + 1, &behind, 10), input = *at == 'd' ? strtol(behind + 1, NULL, 10) : 0;
            bool declares = at > kernel + 10 &&
                            (strncmp(at - 2, "W ", 2) == 0 || strncmp(at - 4, "i64 ", 4) == 0 ||
                             strncmp(at - 5, "bool ", 5) == 0) &&
                            strncmp(behind + (*at == 'd' ? 2 : 0), " = ", 3) == 0;
            require_text(term < IGNIS__FORMULA_TERMS && input < IGNIS_MAX_INPUTS, "a kernel has a term that cannot be",
                         text);
            require_text(declares != (bool)declared[*at == 'd'][term][input],
                         "a term is used before it is there, or is there twice", text);
            declared[*at == 'd'][term][input] = 1;
        }
    }
    require_text(depth == 0, "a kernel has open parentheses", text);
}

/*  Reads a formula of four inputs; true when it is accepted. */
static bool try_formula(const char *text)
{
    static ignis__formula_parser reader;
    ignis__formula *formula = ignis__formula_read(&reader, text, "a, b, mask, IGNIS_VALUE(k, 1)", 1, 4, 4);
    ignis__formula_spec spec;
    ignis__formula_writer writer;
    int i, mode;
    if (!formula) {
        require_text(*reader.fault && strlen(reader.fault) > 5, "a refusal has no reason", text);
        require_text(reader.column <= strlen(text) + 1, "a refusal has no place", text);
        return false;
    }
    require_text(formula->term_count >= 4 && formula->result_count > 0, "a formula has no result", text);
    for (i = 0; i < formula->result_count; i++)
        require_text(formula->result[i] < formula->term_count, "a result is no term", text);
    for (i = 0; i < formula->term_count; i++) {
        const ignis__formula_function *f = &ignis__formula_functions[formula->term[i].function];
        for (mode = 0; mode < f->count; mode++)
            require_text(formula->term[i].arg[mode] >= 0 && formula->term[i].arg[mode] < i,
                         "a term comes before its arguments", text);
    }
    for (mode = 0; mode < 4; mode++) {
        memset(&spec, 0, sizeof spec);
        for (i = 0; i < 5; i++) {
            spec.kind[i] = (uint8_t)(i == 0   ? IGNIS__FORMULA_LINEAR
                                     : i == 1 ? IGNIS__FORMULA_ROW
                                     : i == 2 ? IGNIS__FORMULA_COLUMN
                                              : IGNIS__FORMULA_VALUE);
            spec.dtype[i] = (uint8_t)(i == 2 ? IGNIS_U8 : IGNIS_F32);
        }
        spec.kind[4] = IGNIS__FORMULA_UNUSED;
        spec.rank = 2;
        spec.pack = 4;
        spec.packs_per_thread = 1;
        spec.whole = mode != 1;
        spec.outs = (uint8_t)(mode == 0 ? formula->result_count : 1);
        for (i = 0; i < IGNIS_MAX_INPUTS; i++)
            spec.out[i] = IGNIS_F32;
        if (mode == 1) { /* the gradients of the last result by a and b */
            spec.result = (uint8_t)(formula->result_count - 1);
            spec.needed = 3;
            spec.outs = 2;
            spec.kind[4] = IGNIS__FORMULA_LINEAR;
        } else if (mode > 1) {
            spec.mode = (uint8_t)(mode - 1);
            spec.reduced = 1;
            spec.reduction = IGNIS_REDUCE_SUM;
            spec.team = 32;
        }
        require_text(ignis__formula_write_kernel(&writer, formula, &spec), "a kernel cannot be written", text);
        check_kernel(writer.text.data, text);
        ignis__free(writer.text.data);
    }
    ignis__free(formula->term);
    ignis__free(formula);
    return true;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = (char *)malloc(size + 1);
    memcpy(text, bytes, size);
    text[size] = 0;
    try_formula(text);
    free(text);
    return 0;
}

#else

enum { FORMULA_MAX = 3000 };

/*  Formulas to begin with. */
static const char *const seeds[] = {
    "silu(a)*b",
    "d = a - b; abs(d) < k ? 0.5*d*d : k*(abs(d) - 0.5*k)",
    "mask ? k : a",
    "max(a, 0) - a*b + log1p(exp(-abs(a)))",
    "s = sigmoid(a); -(b*log(s) + (1-b)*log(1-s))*pow(1-s, 2)",
    "a > 0.5 && b > .5 ? a*b : a < 0.2 || !mask ? k*a : pow(a, -3) % 7e-1",
    "clamp(gelu(a), -1, lerp(a, b, k)) + atan2(a, b) + (mask*3 - 2)/mask",
    "((((a + 1)*b + 2)*a + 3)*b + 4)*a;",
    "isnan(a) || isinf(b) ? inf : pi*e + nan",
    "index(0) >= index(-1) ? a : -b*index(1)",
    "rand() < k ? 0 : a/(1 - k) + b*randn()",
    "(mask >> 3 & 0x1f ^ ~mask) << 2 | 1 ? max(sqrt(a), 1.5f) : floor(mask/7)*b",
    "s = sin(a); s*b, a > b, mask*2, with_grad(round(s), s) - detach(b)",
};

/*  What mutations put in. */
static const char *const words[] = {
    "a",
    "b",
    "mask",
    "k",
    "q",
    "x = ",
    "(",
    ")",
    "((((((((",
    "))))))))",
    ",",
    ";",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "?",
    ":",
    "<",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "=",
    "&",
    "|",
    "1",
    "0.5",
    ".",
    "1e9",
    "1e",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "0x10",
    "0xFFFFFFFFFFFFFFFF",
    "1.5f",
    "**",
    "^",
    "~",
    "<<",
    ">>",
    "floor(mask/",
    "pow(mask, 3)",
    "exp(",
    "pow(a, 2)",
    "pow(",
    "max(a,",
    "silu(",
    "relu(a)",
    "abs(",
    "min(b,",
    "gelu(gelu(gelu(a)))",
    "clamp(a, b, k)",
    "$a",
    "#",
    "\"",
    "\\",
    "//",
    "/*",
    "[0]",
    "->",
    "{",
    "}",
    " ",
    "\n",
    "\t",
    "\x80",
    "\xFF",
    "n4",
    "d4_0",
    "W",
    "------------------------",
    "!!!!!!!!",
    "a ? a : ",
    "index(",
    "index(0)",
    "index(-1)",
    "index(1)",
    "rand()",
    "randn(",
    "detach(",
    "with_grad(a,",
    ", a",
    "a*a*a*a*a*a*a*a*",
    "for(;;)",
    "asm",
    "p.w[0]",
};

static void mutate(char *text)
{
    size_t length = strlen(text), at = random_below(length + 1), left = length - at,
           some = random_below((left < 40 ? left : 40) + 1);
    const char *word = words[random_below(sizeof words / sizeof *words)];
    char piece[64], byte;
    switch (random_below(7)) {
    case 0: /* one byte */
        byte = (char)(1 + random_below(255));
        splice_string(text, FORMULA_MAX, at, left > 0, &byte, 1);
        break;
    case 1: splice_string(text, FORMULA_MAX, at, some, "", 0); break;
    case 2: /* a piece twice */
        memcpy(piece, text + at, some);
        splice_string(text, FORMULA_MAX, at, 0, piece, some);
        break;
    case 3: /* a piece elsewhere */
        memcpy(piece, text + at, some);
        splice_string(text, FORMULA_MAX, random_below(length + 1), 0, piece, some);
        break;
    case 4: /* another formula in it */
        word = seeds[random_below(sizeof seeds / sizeof *seeds)];
        splice_string(text, FORMULA_MAX, at, 0, word, strlen(word));
        break;
    case 5: splice_string(text, FORMULA_MAX, at, some < 4 ? some : 1, word, strlen(word)); break;
    default: splice_string(text, FORMULA_MAX, at, 0, word, strlen(word)); break;
    }
}

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, accepted = 0, done;
    static char formula[FORMULA_MAX];
    random_begin(argc, argv);
    for (done = 0; done < iterations; done++) {
        bool whole = done < sizeof seeds / sizeof *seeds, ok; /* each seed once as it is */
        size_t k;
        char *text;
        snprintf(formula, sizeof formula, "%s",
                 seeds[whole ? (size_t)done : random_below(sizeof seeds / sizeof *seeds)]);
        for (k = whole ? 0 : 1 + random_below(2) * random_below(12); k > 0; k--)
            mutate(formula);
        text = strdup(formula);
        if (!text)
            return 1;
        ok = try_formula(text);
        require_text(ok || !whole, "a good formula is refused", text);
        accepted += ok;
        free(text);
    }
    printf("fuzz_formula: %llu formulas, %llu accepted, %llu refused\n", iterations, accepted, iterations - accepted);
    return 0;
}

#endif
