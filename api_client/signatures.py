"""What a query's handle says of its params and its value, checked where the handle is made."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api_client.errors import InvalidQuery


@dataclass(frozen=True, slots=True)
class Signature:
    """The params that a function declares. ``whole`` words the errors; it is too slow for the calls that are right."""

    names: tuple[str, ...]
    positional: tuple[str, ...]
    defaults: dict[str, Any] = field(hash=False)
    whole: inspect.Signature = field(hash=False)

    @classmethod
    def of(cls, query: str, function: Callable[..., Any]) -> Signature:
        """Return what ``function`` declares.

        Raises:
            InvalidQuery: a parameter has no name to be given by.
        """
        whole = inspect.signature(function)
        for parameter in whole.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidQuery(f"{query!r}: {parameter} is not a param with a name", query=query)
        return cls(
            names=tuple(whole.parameters),
            positional=tuple(
                name for name, parameter in whole.parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY
            ),
            defaults={
                name: parameter.default
                for name, parameter in whole.parameters.items()
                if parameter.default is not parameter.empty
            },
            whole=whole,
        )

    def params(self, query: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """Return the params of a call by their names.

        Raises:
            InvalidQuery: one is missing, unknown or there twice.
        """
        params = {**self.defaults, **kwargs}
        by_position = self.positional[: len(args)]
        params.update(zip(by_position, args, strict=False))
        if (
            params.keys() != set(self.names)
            or len(by_position) < len(args)
            or (kwargs and not kwargs.keys().isdisjoint(by_position))
        ):
            try:
                self.whole.bind(*args, **kwargs)
            except TypeError as error:
                raise InvalidQuery(f"{query!r}: {error}", query=query) from None
        return params


def returned_type(query: str, function: Callable[..., Any]) -> Any:
    """Return the type that a function says it returns.

    Raises:
        InvalidQuery: it says none, or its annotations can't be resolved.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidQuery(f"{query!r}: its signature can't be resolved: {error}", query=query) from error
    if "return" not in hints:
        raise InvalidQuery(f"{query!r}: its signature does not say what it returns", query=query)
    return hints["return"]
