"""C declarations of one family as ctypes types; each is made when it is first needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

from rkllm_mcp.errors import RkllmMcpError

LLMHandle = ctypes.c_void_p


class RKLLMParamReturn(ctypes.Structure):
    """Buffer for the result of rkllm_createDefaultParam.

    The library writes its own RKLLMParam (184 to 208 bytes so far) through a hidden pointer; a smaller result type
    would overrun the stack. The family's struct is copied out of this buffer.
    """

    _fields_ = (("raw", ctypes.c_ubyte * 512),)


_BASE_TYPES: Mapping[str, Any] = {
    "void": None,
    "char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "int8_t": ctypes.c_int8,
    "int32_t": ctypes.c_int32,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "LLMHandle": LLMHandle,
    "RKLLMParamReturn": RKLLMParamReturn,
}
# A function's status is checked unless it returns another kind: rkllm_createDefaultParam returns a struct, and headers
# and wrappers disagree about rkllm_is_running (0 is running in 1.2.0, 1 in 1.3.0), so nothing relies on it.
_UNCHECKED = frozenset({"rkllm_createDefaultParam", "rkllm_is_running"})


@dataclass(eq=False)
class CallFailedError(RkllmMcpError):
    """A C function returned a status other than 0. Callers convert it; it does not leave the runtime package."""

    function: str
    status: int

    def _parts(self) -> tuple[str, str]:
        return f"{self.function} returned {self.status}", ""


class Signature(NamedTuple):
    """C type of a function: result, arguments, and the check of its status; None if its result is not a status."""

    restype: Any
    argtypes: tuple[Any, ...]
    errcheck: Callable[[Any, Any, tuple[Any, ...]], Any] | None


def zero_is_success(status: int, function: Any, _arguments: tuple[Any, ...]) -> int:
    """A ctypes ``errcheck``: raise CallFailedError unless the status is 0."""
    if status != 0:
        raise CallFailedError(function.__name__, status)
    return status


@dataclass(eq=False)
class Declarations:
    """The declarations of one family in C's words, and the ctypes types that they name.

    Args:
        structs: members of each struct by name; a member ``union`` is its own anonymous union members.
        callbacks: result and arguments of each function type.
        functions: result and arguments of each function.
    """

    structs: Mapping[str, Mapping[str, Any]]
    callbacks: Mapping[str, Sequence[str]]
    functions: Mapping[str, Sequence[str]]
    _types: dict[str, Any] = field(default_factory=lambda: dict(_BASE_TYPES), repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return the type of a name such as ``int``, ``RKLLMInput*`` or ``uint8_t[104]``."""
        if name in self._types:
            return self._types[name]
        named_type: Any
        if name.endswith("*"):
            named_type = cast("type[Any]", ctypes.POINTER(self[name[:-1]]))
        elif name.endswith("]"):
            item, _, count = name[:-1].partition("[")
            named_type = self[item] * int(count)
        elif name in self.callbacks:
            named_type = ctypes.CFUNCTYPE(*(self[part] for part in self.callbacks[name]))
        else:
            named_type = self._record(ctypes.Structure, name, self.structs[name])
        self._types[name] = named_type
        return named_type

    @cached_property
    def signatures(self) -> Mapping[str, Signature]:
        """The signature of each function."""
        signatures: dict[str, Signature] = {}
        for name, (result, *arguments) in self.functions.items():
            check = None if name in _UNCHECKED else zero_is_success
            signatures[name] = Signature(self[result], tuple(self[argument] for argument in arguments), check)
        return signatures

    def _record(self, kind: type[Any], name: str, members: Mapping[str, Any]) -> type[Any]:
        fields: list[tuple[str, Any]] = []
        for member, declared in members.items():
            if isinstance(declared, str):
                fields.append((member, self[declared]))
            else:
                inner_kind = ctypes.Union if member == "union" else ctypes.Structure
                fields.append((member, self._record(inner_kind, member, declared)))
        return type(name, (kind,), {"_anonymous_": ("union",) if "union" in members else (), "_fields_": tuple(fields)})
