/* ===============================================================================================================
   >>formula - formulas: a text becomes typed terms, their derivatives, a kernel.

   The parts in order: functions (the table), lexer, parse (terms), cache, derivative and emit (CUDA text), kernel
   (compile, record, bundle), broadcast, inputs, launch, reduce, array (the public functions).
   Uses the rooms base, device, array and kernel. Knows no tensor. Texts of kernels and records keep their form:
   programs have them in caches and bundles.
   =============================================================================================================== */

#include "room.h"

/* clang-format off */
IGNIS__PRIVATE const ignis__formula_function ignis__formula_functions[] = {
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL}, /* the first rows are in the order of the enumeration */
    {"", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"", 0, 'i', "", NULL, {NULL, NULL}, NULL},
    {"rand", 0, 'w', "", NULL, {NULL, NULL}, NULL},
    {"randn", 2, 'w', "map_normal($a,$b)", NULL, {NULL, NULL}, NULL}, /* of two rand, which the parser adds */
    {"?", 3, 'n', "$a?$b:$c", "$a?$b:$c", {NULL, NULL}, NULL},
    {"", 1, 'n', "map_power($a,$n)", "map_power_whole($a,$n)", {"(W)$n*map_power($a,$n-1)", NULL}, NULL},
    {"", 1, 'w', "(W)$a", NULL, {NULL, NULL}, NULL},
    {"", 1, 'b', "$a!=0", "$a!=0", {NULL, NULL}, NULL},
    {"", 1, 'n', "-$a", "(i64)(0-(u64)$a)", {"-1", NULL}, NULL},
    {"!", 1, 'b', "!$a", NULL, {NULL, NULL}, NULL},
    {"~", 1, 'i', "", "~(i64)$a", {NULL, NULL}, NULL},
    {"/", 2, 'w', "map_divide($a,$b)", NULL, {"1/$b", "-$r/$b"}, NULL},
    {"floor", 1, 'n', "floor($a)", "$a", {NULL, NULL}, NULL},
    {"ceil", 1, 'n', "ceil($a)", "$a", {NULL, NULL}, NULL},
    {"round", 1, 'n', "rint($a)", "$a", {NULL, NULL}, NULL},
    {"trunc", 1, 'n', "trunc($a)", "$a", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_floor($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_ceil($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_round($a,$b)", {NULL, NULL}, NULL},
    {"", 2, 'i', "", "map_trunc($a,$b)", {NULL, NULL}, NULL},
    {"||", 2, 'b', "$a||$b", NULL, {NULL, NULL}, NULL},
    {"&&", 2, 'b', "$a&&$b", NULL, {NULL, NULL}, NULL},
    {"|", 2, 'i', "", "$a|$b", {NULL, NULL}, NULL},
    {"^", 2, 'i', "", "$a^$b", {NULL, NULL}, NULL},
    {"&", 2, 'i', "", "$a&$b", {NULL, NULL}, NULL},
    {"<<", 2, 'i', "", "map_left($a,$b)", {NULL, NULL}, NULL},
    {">>", 2, 'i', "", "map_right($a,$b)", {NULL, NULL}, NULL},
    {"==", 2, 'b', "$a==$b", "$a==$b", {NULL, NULL}, NULL},
    {"!=", 2, 'b', "$a!=$b", "$a!=$b", {NULL, NULL}, NULL},
    {"<=", 2, 'b', "$a<=$b", "$a<=$b", {NULL, NULL}, NULL},
    {">=", 2, 'b', "$a>=$b", "$a>=$b", {NULL, NULL}, NULL},
    {"<", 2, 'b', "$a<$b", "$a<$b", {NULL, NULL}, NULL},
    {">", 2, 'b', "$a>$b", "$a>$b", {NULL, NULL}, NULL},
    {"+", 2, 'n', "$a+$b", "(i64)((u64)$a+(u64)$b)", {"1", "1"}, NULL},
    {"-", 2, 'n', "$a-$b", "(i64)((u64)$a-(u64)$b)", {"1", "-1"}, NULL},
    {"*", 2, 'n', "$a*$b", "(i64)((u64)$a*(u64)$b)", {"$b", "$a"}, NULL},
    {"%", 2, 'n', "fmod($a,$b)", "map_modulo($a,$b)", {"1", "-trunc(map_divide($a,$b))"}, NULL},
    {"abs", 1, 'n', "fabs($a)", "$a<0?(i64)(0-(u64)$a):$a", {"$a>0?$d:$a<0?-$d:$a==0||$d==0?(W)0:$a", NULL}, NULL},
    {"sign", 1, 'n', "$a!=$a?$a:(W)(($a>0)-($a<0))", "(i64)(($a>0)-($a<0))", {NULL, NULL}, NULL},
    {"max", 2, 'n', "map_most($a,$b)", "map_most((i64)$a,(i64)$b)",
     {"$a<$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b<$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"min", 2, 'n', "map_least($a,$b)", "map_least((i64)$a,(i64)$b)",
     {"$a>$b?(W)0:$a==$b?(W)0.5*$d:$d", "$b>$a?(W)0:$a==$b?(W)0.5*$d:$d"}, NULL},
    {"relu", 1, 'n', "map_most($a,(W)0)", "$a>0?$a:0", {"$a<=0?(W)0:$d", NULL}, NULL},
    {"exp", 1, 'w', "exp($a)", NULL, {"$r", NULL}, NULL},
    {"exp2", 1, 'w', "exp2($a)", NULL, {"$r*(W)0.693147180559945309", NULL}, NULL},
    {"expm1", 1, 'w', "expm1($a)", NULL, {"$r+1", NULL}, NULL},
    {"log", 1, 'w', "log($a)", NULL, {"1/$a", NULL}, NULL},
    {"log2", 1, 'w', "log2($a)", NULL, {"(W)1.44269504088896341/$a", NULL}, NULL},
    {"log10", 1, 'w', "log10($a)", NULL, {"(W)0.434294481903251828/$a", NULL}, NULL},
    {"log1p", 1, 'w', "log1p($a)", NULL, {"1/(1+$a)", NULL}, NULL},
    {"sqrt", 1, 'w', "sqrt($a)", NULL, {"(W)0.5/$r", NULL}, NULL},
    {"rsqrt", 1, 'w', "rsqrt($a)", NULL, {"(W)-0.5*$r*$r*$r", NULL}, NULL},
    {"cbrt", 1, 'w', "cbrt($a)", NULL, {"1/(3*$r*$r)", NULL}, NULL},
    {"sin", 1, 'w', "sin($a)", NULL, {"cos($a)", NULL}, NULL},
    {"cos", 1, 'w', "cos($a)", NULL, {"-sin($a)", NULL}, NULL},
    {"tan", 1, 'w', "tan($a)", NULL, {"1+$r*$r", NULL}, NULL},
    {"asin", 1, 'w', "asin($a)", NULL, {"rsqrt(1-$a*$a)", NULL}, NULL},
    {"acos", 1, 'w', "acos($a)", NULL, {"-rsqrt(1-$a*$a)", NULL}, NULL},
    {"atan", 1, 'w', "atan($a)", NULL, {"1/(1+$a*$a)", NULL}, NULL},
    {"sinh", 1, 'w', "sinh($a)", NULL, {"cosh($a)", NULL}, NULL},
    {"cosh", 1, 'w', "cosh($a)", NULL, {"sinh($a)", NULL}, NULL},
    {"tanh", 1, 'w', "tanh($a)", NULL, {"1-$r*$r", NULL}, NULL},
    {"sigmoid", 1, 'w', "map_sigmoid($a)", NULL, {"$r*(1-$r)", NULL}, NULL},
    {"softplus", 1, 'w', "map_softplus($a)", NULL, {"map_sigmoid($a)", NULL}, NULL},
    {"erf", 1, 'w', "erf($a)", NULL, {"(W)1.12837916709551257*exp(-$a*$a)", NULL}, NULL},
    {"erfc", 1, 'w', "erfc($a)", NULL, {"(W)-1.12837916709551257*exp(-$a*$a)", NULL}, NULL},
    {"erfinv", 1, 'w', "erfinv($a)", NULL, {"(W)0.886226925452758014*exp($r*$r)", NULL}, NULL},
    {"lgamma", 1, 'w', "lgamma($a)", NULL, {"map_digamma($a)", NULL}, NULL},
    {"digamma", 1, 'w', "map_digamma($a)", NULL, {"map_trigamma($a)", NULL}, NULL},
    {"pow", 2, 'w', "pow($a,$b)", NULL,
     {"$b==0||$d==0?(W)0:$b*pow($a,$b-1)*$d", "($a==0&&$b>=0)||$d==0?(W)0:$r*log($a)*$d"}, NULL},
    {"detach", 1, 'n', "$a", "$a", {NULL, NULL}, NULL},
    {"with_grad", 2, 'w', "$a", NULL, {NULL, "1"}, NULL},
    {"mod", 2, 'n', "map_mod($a,$b)", "map_mod_whole($a,$b)", {"1", "-floor(map_divide($a,$b))"}, NULL},
    {"atan2", 2, 'w', "atan2($a,$b)", NULL, {"$b/hypot($a,$b)/hypot($a,$b)", "-$a/hypot($a,$b)/hypot($a,$b)"}, NULL},
    {"silu", 1, 0, NULL, NULL, {NULL, NULL}, "a*sigmoid(a)"},
    {"gelu", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + tanh(0.79788456080286536*a*(1 + 0.044715*min(a*a, 100))))"},
    {"gelu_exact", 1, 0, NULL, NULL, {NULL, NULL}, "0.5*a*(1 + erf(a*0.70710678118654752))"},
    {"logsigmoid", 1, 0, NULL, NULL, {NULL, NULL}, "-softplus(-a)"},
    {"square", 1, 0, NULL, NULL, {NULL, NULL}, "a*a"},
    {"clamp", 3, 0, NULL, NULL, {NULL, NULL}, "a < b ? b : a > c ? c : a"},
    {"lerp", 3, 0, NULL, NULL, {NULL, NULL}, "a + c*(b - a)"},
    {"isnan", 1, 0, NULL, NULL, {NULL, NULL}, "a != a"},
    {"isinf", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) == inf"},
    {"isfinite", 1, 0, NULL, NULL, {NULL, NULL}, "abs(a) < inf"},
};

IGNIS__PRIVATE const struct ignis__formula_constants_type ignis__formula_constants[] = {
    {"pi", "(W)3.14159265358979324"},
    {"e", "(W)2.71828182845904524"},
    {"inf", "map_infinity"},
    {"nan", "map_nan"}};
/*  Names of other languages, and how a formula says them. */
static const struct {
    const char *name, *instead;
} ignis__formula_hints[] = {
    {"where", "write condition ? a : b"}, {"select", "write condition ? a : b"}, {"if", "write condition ? a : b"},
    {"else", "write condition ? a : b"}, {"maximum", "it is max(a, b)"}, {"fmax", "it is max(a, b)"},
    {"minimum", "it is min(a, b)"}, {"fmin", "it is min(a, b)"}, {"clip", "it is clamp(x, low, high)"},
    {"power", "it is pow(a, b)"}, {"absolute", "it is abs(x)"}, {"fabs", "it is abs(x)"}, {"sgn", "it is sign(x)"},
    {"ln", "it is log(x)"}, {"rint", "it is round(x)"}, {"nearbyint", "it is round(x)"}, {"around", "it is round(x)"},
    {"expit", "it is sigmoid(x)"}, {"logistic", "it is sigmoid(x)"}, {"swish", "it is silu(x)"},
    {"log_sigmoid", "it is logsigmoid(x)"}, {"arcsin", "it is asin(x)"}, {"arccos", "it is acos(x)"},
    {"arctan", "it is atan(x)"}, {"arctan2", "it is atan2(y, x)"}, {"gammaln", "it is lgamma(x)"},
    {"polygamma", "it is digamma(x)"}, {"fmod", "write a % b"}, {"remainder", "it is mod(a, b)"},
    {"reciprocal", "write 1/x"}, {"negative", "write -x"}, {"sqr", "it is square(x)"},
    {"hypot", "write sqrt(a*a + b*b)"}, {"heaviside", "write x > 0"}, {"exp10", "write pow(10, x)"},
    {"sinc", "write x == 0 ? 1 : sin(pi*x)/(pi*x)"}, {"leaky_relu", "write x > 0 ? x : 0.01*x"},
    {"elu", "write x > 0 ? x : expm1(x)"}, {"add", "write a + b"}, {"sub", "write a - b"}, {"mul", "write a*b"},
    {"div", "write a/b"}, {"logical_and", "write a && b"}, {"logical_or", "write a || b"},
    {"logical_not", "write !a"}, {"and", "write a && b"}, {"or", "write a || b"}, {"not", "write !a"},
    {"xor", "write a ^ b"}, {"stop_gradient", "it is detach(x)"}, {"arange", "index(0) is an element's position"},
    {"float", "ignis_cast changes the dtype of a tensor"}, {"int", "trunc(x) drops a fraction"},
    {"sum", "ignis_map_sum and ignis_map_reduce add up a formula"},
    {"mean", "ignis_map_mean and ignis_map_reduce give means of a formula"},
    {"prod", "ignis_map_reduce multiplies the elements of a formula"},
    {"amax", "ignis_map_reduce finds the largest element of a formula"},
    {"amin", "ignis_map_reduce finds the smallest element of a formula"},
    {"argmax", "ignis_map_reduce finds the position of the largest element"},
    {"argmin", "ignis_map_reduce finds the position of the smallest element"},
    {"any", "ignis_map_reduce tells whether any element is true"},
    {"all", "ignis_map_reduce tells whether all elements are true"},
    {"norm", "ignis_map_reduce computes norms of a formula"},
    {"logsumexp", "ignis_map_reduce computes it of a formula"},
    {"var", "write the mean of square(x - mean) by ignis_map_mean"},
    {"std", "write the mean of square(x - mean) by ignis_map_mean"}, {"cumsum", "the function is ignis_cumsum"},
    {"softmax", "the function is ignis_softmax"}, {"log_softmax", "the function is ignis_log_softmax"},
    {"layer_norm", "the function is ignis_layer_norm"}, {"matmul", "the function is ignis_matmul"},
    {"dot", "the function is ignis_matmul"}, {"dropout", "write rand() < p ? 0 : x/(1 - p), or call ignis_dropout"},
    {"PI", "it is pi"}, {"M_PI", "it is pi"}, {"M_E", "it is e"}, {"INFINITY", "it is inf"}, {"NAN", "it is nan"},
    {"NaN", "it is nan"}, {"true", "it is 1"}, {"True", "it is 1"}, {"false", "it is 0"}, {"False", "it is 0"},
};
/* clang-format on */

/*  Says how a formula writes a name of another language, after "; ". "" if it is not known. C's expf is exp. */
IGNIS__COLD IGNIS__PRIVATE ignis__formula_hint ignis__formula_hint_of(const char *name, size_t length)
{
    ignis__formula_hint hint = IGNIS__ZERO;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__formula_hints); i++)
        if (strlen(ignis__formula_hints[i].name) == length && strncmp(ignis__formula_hints[i].name, name, length) == 0)
            snprintf(hint.text, sizeof hint.text, "; %s", ignis__formula_hints[i].instead);
    for (i = 0; !*hint.text && length > 1 && name[length - 1] == 'f' && i < IGNIS__COUNT(ignis__formula_functions); i++)
        if (strlen(ignis__formula_functions[i].name) == length - 1 &&
            strncmp(ignis__formula_functions[i].name, name, length - 1) == 0)
            snprintf(hint.text, sizeof hint.text, "; it is %s", ignis__formula_functions[i].name);
    return hint;
}
