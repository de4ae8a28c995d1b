"""The fields of the sampling options in settings, model cards and bodies, made of the table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, create_model

from rkllm_mcp.sampling import OPTIONS, Api, SamplingOption

ModelT = TypeVar("ModelT", bound=BaseModel)


def with_sampling(
    base: type[ModelT], apis: Collection[Api] = (), read: Callable[[SamplingOption, Any], Any] | None = None
) -> type[ModelT]:
    """Return a subclass of ``base`` with a field for each sampling option, to be read with ``overrides_of``.

    Args:
        base: the model whose fields precede the options.
        apis: the options by their names in these APIs; by their own names without any.
        read: returns a sent number as one that is in the range of the option, or None.
    """
    fields: dict[str, Any] = {}
    for option, details in OPTIONS.items():
        kind: Any = int if details.is_whole else float
        bounded: Any = Annotated[kind, Field(ge=details.least, le=details.most)]
        annotation: Any = bounded | None
        if read is not None:
            before = BeforeValidator(partial(read, details), json_schema_input_type=kind | None)
            annotation = Annotated[annotation, before]
        for name in [name for api in apis for name in details.names.get(api, ())] if apis else [option]:
            fields[name] = (annotation, Field(None, description=details.help))
    return create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields)
