# SPDX-License-Identifier: MIT
"""The formulas of formulas.h, computed by PyTorch: what torch_compare.py holds against ignis_map."""
import math
import os
import re

import torch
import torch.nn.functional as F

TABLE = [text.replace("\\n", "\n").replace("\\t", "\t") for text in
         re.findall(r'^    X\(\d+, "((?:[^"\\]|\\.)*)",', open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "formulas.h")).read(), re.M)]

FUNCTIONS = {
    "abs": torch.abs, "sign": torch.sign, "max": torch.maximum, "min": torch.minimum, "relu": torch.relu, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "cbrt": lambda x: torch.pow(x, 1 / 3), "pow": torch.pow,
    "square": torch.square, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "atan2": torch.atan2, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "logsigmoid": F.logsigmoid,
    "softplus": F.softplus, "silu": F.silu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "gelu_exact": F.gelu, "erf": torch.erf,
    "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma, "digamma": torch.digamma, "mod": torch.remainder,
    "lerp": torch.lerp, "clamp": torch.clamp, "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
}
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
LEVELS = [["||"], ["&&"], ["==", "!="], ["<=", ">=", "<", ">"], ["+", "-"], ["*", "/", "%"]]


class Formula:
    """A formula's text, read while it is computed. Numbers stay Python's until they meet a tensor."""

    def __init__(self, text, values):
        self.tokens = re.findall(r"[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[<>=!]=|&&|\|\||\S", text) + [""]
        self.at, self.names = 0, dict(values)
        self.like = next(iter(values.values()))

    def take(self, *tokens):
        if self.tokens[self.at] not in tokens:
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def tensor(self, x):
        """x in the type of the inputs."""
        return x.to(self.like.dtype) if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=self.like.dtype, device=self.like.device)

    def truth(self, x):
        return x if isinstance(x, torch.Tensor) and x.dtype == torch.bool else self.tensor(x) != 0

    def apply(self, sign, a, b):
        if sign in ("||", "&&"):
            return self.truth(a) | self.truth(b) if sign == "||" else self.truth(a) & self.truth(b)
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            a, b = self.tensor(a), self.tensor(b)
        fmod = torch.fmod if isinstance(a, torch.Tensor) else math.fmod
        return {"==": lambda: a == b, "!=": lambda: a != b, "<=": lambda: a <= b, ">=": lambda: a >= b, "<": lambda: a < b, ">": lambda: a > b,
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "%": lambda: fmod(a, b)}[sign]()

    def primary(self):
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            value = self.expression()
            self.take(")")
            return value
        if token[0].isdigit() or token[0] == ".":
            return float(token)
        if not self.take("("):
            return self.names[token] if token in self.names else CONSTANTS[token]
        args = [self.expression()]
        while self.take(","):
            args.append(self.expression())
        self.take(")")
        if token == "pow" and not isinstance(args[1], torch.Tensor):
            return torch.pow(self.tensor(args[0]), args[1])
        return FUNCTIONS[token](*[self.tensor(x) for x in args])

    def unary(self):
        sign = self.take("-", "+", "!")
        if not sign:
            return self.primary()
        value = self.unary()
        return ~self.truth(value) if sign == "!" else value if sign == "+" else -(self.tensor(value) if isinstance(value, torch.Tensor) else value)

    def binary(self, level):
        if level == len(LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while sign := self.take(*LEVELS[level]):
            value = self.apply(sign, value, self.binary(level + 1))
        return value

    def expression(self):
        value = self.binary(0)
        if self.take("?"):
            yes = self.expression()
            self.take(":")
            no = self.expression()
            value = torch.where(self.truth(value), self.tensor(yes), self.tensor(no))
        return value

    def compute(self):
        while self.tokens[self.at + 1] == "=":
            name = self.tokens[self.at]
            self.at += 2
            value = self.expression()
            self.take(";")
            self.names[name] = value
        value = self.tensor(self.expression())
        self.take(";")
        if self.tokens[self.at]:
            raise ValueError(f"{self.tokens[self.at]!r} is not expected in a formula")
        return value


def compute(text, a, b, c):
    """A formula of three tensors, in the shape that they spread to."""
    return Formula(text, {"a": a, "b": b, "c": c}).compute().expand(torch.broadcast_shapes(a.shape, b.shape, c.shape))
