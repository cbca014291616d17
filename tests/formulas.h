// SPDX-License-Identifier: MIT
/*  formulas.h - the formulas that test_formula_table.c compares with C and with finite differences, and
    torch_compare.py with PyTorch */
#ifndef FORMULAS_H
#define FORMULAS_H

/*  X(number, formula, the same in C): a, b and c are between 0.1 and 1, odd multiples of 1/256 with the remainders 1, 3
    and 5 by 8, so that they are apart from each other and from all kinks. */
#define FORMULAS(X)                                                                                                    \
    X(0, "a*b+c", a *b + c)                                                                                            \
    X(1, "a/b - -c", a / b + c)                                                                                        \
    X(2, "a - b - c", a - b - c)                                                                                       \
    X(3, "a / b / c", a / b / c)                                                                                       \
    X(4, "-a*-b", a *b)                                                                                                \
    X(5, "2*a + 1e-3*b + .5", 2 * a + 1e-3 * b + 0.5)                                                                  \
    X(6, "exp(a)*log(b)/c", exp(a) * log(b) / c)                                                                       \
    X(7, "exp2(a) + expm1(b)", exp2(a) + expm1(b))                                                                     \
    X(8, "log2(a) + log10(b) + log1p(c)", log2(a) + log10(b) + log1p(c))                                               \
    X(9, "sqrt(a)*b", sqrt(a) * b)                                                                                     \
    X(10, "rsqrt(a*a + b*b + c*c)*a", a / sqrt(a * a + b * b + c * c))                                                 \
    X(11, "cbrt(a)*b", cbrt(a) * b)                                                                                    \
    X(12, "sin(a)*cos(b) + tan(c)", sin(a) * cos(b) + tan(c))                                                          \
    X(13, "asin(0.9*a) + acos(0.9*b) + atan(c)", asin(0.9 * a) + acos(0.9 * b) + atan(c))                              \
    X(14, "sinh(a) + cosh(b) + tanh(c)", sinh(a) + cosh(b) + tanh(c))                                                  \
    X(15, "sigmoid(a - b)", sigmoid(a - b))                                                                            \
    X(16, "softplus(4*(a - b))*c", softplus(4 * (a - b)) * c)                                                          \
    X(17, "erf(a) * b", erf(a) * b)                                                                                    \
    X(18, "pow(abs(a) + 0.1, b)", pow(a + 0.1, b))                                                                     \
    X(19, "pow(a, 3)", a *a *a)                                                                                        \
    X(20, "pow(a - b, 2)*c", (a - b) * (a - b) * c)                                                                    \
    X(21, "pow(a, -2)", 1 / (a * a))                                                                                   \
    X(22, "pow(a - b, 0) + a", 1 + a)                                                                                  \
    X(23, "pow(a, 1.5)", a *sqrt(a))                                                                                   \
    X(24, "atan2(a, b)", atan2(a, b))                                                                                  \
    X(25, "max(a, b)*c", (a > b ? a : b) * c)                                                                          \
    X(26, "min(a, b)/c", (a < b ? a : b) / c)                                                                          \
    X(27, "abs(a - b)", fabs(a - b))                                                                                   \
    X(28, "sign(a - b)*c", (a > b ? c : -c))                                                                           \
    X(29, "relu(a - b) + c", (a > b ? a - b : 0) + c)                                                                  \
    X(30, "silu(a)*b", a *sigmoid(a) * b)                                                                              \
    X(31, "gelu(a)*c", 0.5 * a * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a))) * c)        \
    X(32, "gelu_exact(a) + c", 0.5 * a * (1 + erf(a / sqrt(2.0))) + c)                                                 \
    X(33, "clamp(a, 0.25, 0.75)*b", (a < 0.25 ? 0.25 : a > 0.75 ? 0.75 : a) * b)                                       \
    X(34, "lerp(a, b, c)", a + c * (b - a))                                                                            \
    X(35, "square(a) - logsigmoid(b)", a *a + softplus(-b))                                                            \
    X(36, "a > b ? a*c : b*b", a > b ? a * c : b * b)                                                                  \
    X(37, "d = a - b; abs(d) < c ? 0.5*d*d : c*(abs(d) - 0.5*c)",                                                      \
      fabs(a - b) < c ? 0.5 * (a - b) * (a - b) : c * (fabs(a - b) - 0.5 * c))                                         \
    X(38, "max(a, 0) - a*b + log1p(exp(-abs(a)))", a - a * b + log1p(exp(-a)))                                         \
    X(39, "s = sigmoid(a); -(b*log(s) + (1-b)*log(1-s))*pow(1-s, 2)",                                                  \
      -(b * log(sigmoid(a)) + (1 - b) * log(1 - sigmoid(a))) * (1 - sigmoid(a)) * (1 - sigmoid(a)))                    \
    X(40, "a > 0.55 && b > 0.55 ? a*b : a < 0.25 || c > 0.95 ? c*a : !(b > 0.35) ? -b : 1/c",                          \
      a > 0.55 && b > 0.55 ? a * b : (a < 0.25 || c > 0.95 ? c * a : (!(b > 0.35) ? -b : 1 / c)))                      \
    X(41, "t = tanh(a*b); u = t*c; u*u + t", tanh(a *b) * c * tanh(a * b) * c + tanh(a * b))                           \
    X(42, "(a > b)*c + a*(c >= b)", (a > b) * c + a * (c >= b))                                                        \
    X(43, "x = a*b; x = x*x; x + c", a *b *a *b + c)                                                                   \
    X(44, "a > 0.55 ? log(a - 0.45) : b", a > 0.55 ? log(a - 0.45) : b)                                                \
    X(45, "isnan(a) || isinf(b) ? 0 : a*b", a *b)                                                                      \
    X(46, "isfinite(a) ? b : c", b)                                                                                    \
    X(47, "floor(4*a) + ceil(4*b) + trunc(3*c) + c", floor(4 * a) + ceil(4 * b) + trunc(3 * c) + c)                    \
    X(48, "round(3*a)*b", rint(3 * a) * b)                                                                             \
    X(49, "a % 0.3 + b", fmod(a, 0.3) + b)                                                                             \
    X(50, "pi*a + e*b", 3.14159265358979323846 * a + 2.71828182845904523536 * b)                                       \
    X(51, "a < inf ? a : nan", a)                                                                                      \
    X(52, "1/3*a", a / 3)                                                                                              \
    X(53, "7 % 4 + (5 > 3) + a", 4 + a)                                                                                \
    X(54, "a + 12345678901234567890", a + 12345678901234567890.0)                                                      \
    X(55, "a", a)                                                                                                      \
    X(56, "a + 0*b", a)                                                                                                \
    X(57, "c*(a*log(a/b) - a + b)", c *(a * log(a / b) - a + b))                                                       \
    X(58, "+a;", a)                                                                                                    \
    X(59, "((((a)))) + (b) \n\t - c", a + b - c)                                                                       \
    X(60, "exp(-a*a/2)/sqrt(2*pi)", exp(-a *a / 2) / sqrt(2 * 3.14159265358979323846))                                 \
    X(61, "a*log(a) + (1-a)*log1p(-a)", a *log(a) + (1 - a) * log(1 - a))                                              \
    X(62, "log(exp(a) + exp(b) + exp(c))", log(exp(a) + exp(b) + exp(c)))                                              \
    X(63, "m = max(a, max(b, c)); m + log(exp(a-m) + exp(b-m) + exp(c-m))", log(exp(a) + exp(b) + exp(c)))             \
    X(64, "x = a - b; x > 0 ? x : 0.01*x", a > b ? a - b : 0.01 * (a - b))                                             \
    X(65, "x = a - 0.5; x > 0 ? x : c*expm1(x)", a > 0.5 ? a - 0.5 : c * (exp(a - 0.5) - 1))                           \
    X(66, "1.0507*(a > b ? a - b : 1.67326*(exp(a - b) - 1))", 1.0507 * (a > b ? a - b : 1.67326 * (exp(a - b) - 1)))  \
    X(67, "x = a - b; x*tanh(softplus(x))", (a - b) * tanh(softplus(a - b)))                                           \
    X(68, "x = 6*(a - b); x*clamp(x + 3, 0, 6)/6", (a - b) * fmax(0, fmin(6, 6 * (a - b) + 3)))                        \
    X(69, "x = a - b; x/(1 + abs(x))", (a - b) / (1 + fabs(a - b)))                                                    \
    X(70, "abs(a - b) > 0.25 ? a - b - 0.25*sign(a - b) : 0", fabs(a - b) > 0.25 ? a - b - (a > b ? 0.25 : -0.25) : 0) \
    X(71, "a*b > 0.3 ? a*b : 0", a *b > 0.3 ? a * b : 0)                                                               \
    X(72, "log(cosh(a - b))", log(cosh(a - b)))                                                                        \
    X(73, "0.5*(log(c) + square(a - b)/c)", 0.5 * (log(c) + (a - b) * (a - b) / c))                                    \
    X(74, "a - b*log(a)", a - b * log(a))                                                                              \
    X(75, "max(0, 1 - a*b)*c", (1 - a * b) * c)                                                                        \
    X(76, "b*(log(b) - log(a))", b *log(b / a))                                                                        \
    X(77, "-c*pow(1 - a, 2)*log(a)", -c *(1 - a) * (1 - a) * log(a))                                                   \
    X(78, "sqrt(square(a - b) + 1e-2)", sqrt((a - b) * (a - b) + 0.01))                                                \
    X(79, "d = abs(a - b); c*d < 0.1 ? d*d : d", c *fabs(a - b) < 0.1 ? (a - b) * (a - b) : fabs(a - b))               \
    X(80, "(a*b + b*c + c*a)/(a + b + c)", (a * b + b * c + c * a) / (a + b + c))                                      \
    X(81, "rsqrt(a*a + 1)*rsqrt(b*b + 1)", 1 / sqrt((a * a + 1) * (b * b + 1)))                                        \
    X(82, "sin(pi*a)*sin(pi*b)*exp(-c)", sin(3.14159265358979323846 * a) * sin(3.14159265358979323846 * b) * exp(-c))  \
    X(83, "atan2(sin(a), cos(b))*c", atan2(sin(a), cos(b)) * c)                                                        \
    X(84, "pow(a, b)*pow(b, c)", pow(a, b) * pow(b, c))                                                                \
    X(85, "pow(2, a) + pow(a, 0.5)", pow(2, a) + sqrt(a))                                                              \
    X(86, "exp2(log2(a)*b)", pow(a, b))                                                                                \
    X(87, "tanh(a)/a + sinh(b)/cosh(b)", tanh(a) / a + tanh(b))                                                        \
    X(88, "asin(a*b) + acos(b*c)*atan(a/c)", asin(a *b) + acos(b * c) * atan(a / c))                                   \
    X(89, "erf(a - b)*erf(c)", erf(a - b) * erf(c))                                                                    \
    X(90, "gelu(a - b)*silu(c - a)", gelu(a - b) * (c - a) * sigmoid(c - a))                                           \
    X(91, "lerp(a, b, sigmoid(10*(c - 0.5)))", a + sigmoid(10 * (c - 0.5)) * (b - a))                                  \
    X(92, "u = a - floor(4*a)/4; u*u*(3 - 2*u)",                                                                       \
      (a - floor(4 * a) / 4) * (a - floor(4 * a) / 4) * (3 - 2 * (a - floor(4 * a) / 4)))                              \
    X(93, "(a < b) + 2*(b < c)*a", (a < b) + 2 * (b < c) * a)                                                          \
    X(94, "a < b && b < c ? a*c : a > b || !(c > b) ? b*b : -c",                                                       \
      a < b && b < c      ? a * c                                                                                      \
      : a > b || !(c > b) ? b * b                                                                                      \
                          : -c)                                                                                        \
    X(95, "min(max(a, b), c)/max(min(a, b), c)", fmin(fmax(a, b), c) / fmax(fmin(a, b), c))                            \
    X(96, "x = a; x = x*x - b; x = x*x - c; x*x", ((a * a - b) * (a * a - b) - c) * ((a * a - b) * (a * a - b) - c))   \
    X(97, "((a*0.3 + b)*0.2 - c)*a - 1/(1 + exp(-(a + b)*c))", ((a * 0.3 + b) * 0.2 - c) * a - sigmoid((a + b) * c))   \
    X(98, "isfinite(log(a)) ? log1p(a*a) : 0", log1p(a *a))                                                            \
    X(99, "clamp(a, 0.3, b + 0.2)*c", fmax(0.3, fmin(a, b + 0.2)) * c)                                                 \
    X(100, "erfc(a - b)*c", erfc(a - b) * c)                                                                           \
    X(101, "erfinv(a - 0.5)*c + erfinv(0.9*b)", erfinv_of(a - 0.5) * c + erfinv_of(0.9 * b))                           \
    X(102, "lgamma(a) + lgamma(9*b)*c + lgamma(-0.5 - 0.4*c)", lgamma(a) + lgamma(9 * b) * c + lgamma(-0.5 - 0.4 * c)) \
    X(103, "digamma(a) - digamma(20*b)", digamma_of(a) - digamma_of(20 * b))                                           \
    X(104, "digamma(-1.9*c - 0.05)*a", digamma_of(-1.9 * c - 0.05) * a)                                                \
    X(105, "mod(4*(a - b), c + 1)", 4 * (a - b) - (c + 1) * floor(4 * (a - b) / (c + 1)))

#endif /* FORMULAS_H */
