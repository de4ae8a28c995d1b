"""Arithmetic expressions as people and models write them -> numbers.

Expressions are parsed with ``ast`` and evaluated with a table of operators: no other names, no attributes, no other
calls, and every step is bounded before it is computed. Integers stay exact.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from rkllm_mcp.builtin.function import LocalToolError
from rkllm_mcp.builtin.sentences import sentences_for
from rkllm_mcp.builtin.worded_sums import WHICH_SHARE, expression_of

_MAX_CHARS = 1000
# About 1,200 digits; larger results are useless and slow to compute.
_MAX_BITS = 4000
_MAX_FACTORIAL = 400
_MAX_DEPTH = 60
# A float has 15 significant digits: 0.1 + 0.2 is 0.3.
_DIGITS = ".15g"

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
# Functions that are not those of the same name in ``math``.
_OTHERS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sum": lambda *numbers: sum(numbers),
    "ln": math.log,
}
_NAMES = (
    "sqrt abs round floor ceil min max sum exp log ln log2 log10 sin cos tan asin acos atan degrees radians gcd hypot"
)
_FUNCTIONS = {name: _OTHERS.get(name) or getattr(math, name) for name in _NAMES.split()}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_SIGNS = str.maketrans({"×": "*", "✕": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "√": "sqrt", "π": "pi", "、": ","})
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%(?=\s*(?:$|[-+*/)]))")
_PERCENT_OF = re.compile(r"(\d+(?:\.\d+)?)\s*%\s*of\s+", re.IGNORECASE)
# 5600 + 10% is 6160, as on a pocket calculator.
_PERCENT_MORE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([-+])\s*(\d+(?:\.\d+)?)\s*%\s*$")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def calculate(expression: str) -> str:
    """Return the value of an expression; for a sum in words, the expression and its value.

    Accepts ``+ - * / // % **`` and ``^``, parentheses, ``sqrt``, ``sin``, ``log`` and so on, ``pi``, ``e``, and also
    ``×``, ``÷``, ``15%``, full-width digits, and words such as ``18% of 245`` and ``1980円の3割引き``.

    Raises:
        LocalToolError: the expression is invalid, too large, or has no value.
    """
    if len(expression) > _MAX_CHARS:
        raise LocalToolError(f"The expression is longer than {_MAX_CHARS} characters; calculate it in parts.")
    try:
        return _value_of(expression)
    except LocalToolError:
        read = expression_of(expression)
        if not read or read == expression:
            raise
        return f"{read} = {_value_of(read)}"


def calculate_question(question: str) -> str:
    """Return the sum that a question says in words or signs, with its value.

    Raises:
        LocalToolError: it does not say a sum, or not with all of its numbers.
    """
    read = expression_of(question[:_MAX_CHARS])
    if not read:
        raise LocalToolError(sentences_for(question)["no_sum"], "unclear", question)
    sign = " %" if re.search(WHICH_SHARE, question, re.IGNORECASE) else ""
    return f"{read} = {_value_of(read)}{sign}"


def _value_of(expression: str) -> str:
    text = unicodedata.normalize("NFKC", expression).translate(_SIGNS).strip().rstrip("=").strip()
    # In a call a comma separates arguments; elsewhere a comma before three digits groups them.
    if not re.search(r"[A-Za-z]\s*\(", text):
        text = _GROUPED.sub(lambda match: match.group().replace(",", ""), text)
    text = _PERCENT_MORE.sub(r"\1*(1\2\3/100)", text)
    text = _PERCENT.sub(r"(\1/100)", _PERCENT_OF.sub(r"(\1/100)*", text)).replace("^", "**")
    try:
        tree = ast.parse(text, mode="eval")
        value = _value(tree.body, 0)
    except SyntaxError:
        raise LocalToolError(f"'{text}' is not an expression; write numbers, + - * / ** and brackets.") from None
    except ZeroDivisionError:
        raise LocalToolError("The expression contains a division by zero.") from None
    except OverflowError:
        raise LocalToolError("The result is too large.") from None
    except (RecursionError, MemoryError):
        raise LocalToolError("The expression is nested too deeply; calculate it in parts.") from None
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, LocalToolError) else LocalToolError(f"It has no value: {error}.") from None
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        raise LocalToolError("It has no value.")
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else format(value, _DIGITS)


def _value(node: ast.expr, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return _check_size(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, depth + 1))
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, depth + 1), _value(node.right, depth + 1)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) not in _BINARY:
            raise LocalToolError("This operator is not supported; use + - * / // % and **.")
        return _check_size(_BINARY[type(node.op)](left, right))
    if isinstance(node, ast.Name) and node.id.lower() in _CONSTANTS:
        return _CONSTANTS[node.id.lower()]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name, arguments = node.func.id.lower(), [_value(argument, depth + 1) for argument in node.args]
        if name == "factorial" and len(arguments) == 1:
            if not isinstance(arguments[0], int) or not 0 <= arguments[0] <= _MAX_FACTORIAL:
                raise LocalToolError(f"factorial takes a whole number from 0 to {_MAX_FACTORIAL}.")
            return math.factorial(arguments[0])
        if name == "pow" and len(arguments) == 2:
            return _power(*arguments)
        if name not in _FUNCTIONS:
            raise LocalToolError(f"Unknown function '{name}'; the functions are {', '.join(_FUNCTIONS)}.")
        return _check_size(_FUNCTIONS[name](*arguments))
    what = f"The name '{node.id}'" if isinstance(node, ast.Name) else f"'{ast.unparse(node)[:60]}'"
    raise LocalToolError(f"{what} cannot be calculated; use numbers, + - * / ** ( ) and {', '.join(_FUNCTIONS)}.")


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and abs(exponent) * abs(base).bit_length() > _MAX_BITS:
            raise OverflowError
        if exponent < 0:
            base = float(base)
    value = base**exponent
    if isinstance(value, complex):
        raise LocalToolError("The root of a negative number is not a real number.")
    return _check_size(value)


def _check_size(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise OverflowError
    if isinstance(value, float) and math.isinf(value):
        raise OverflowError
    return value
