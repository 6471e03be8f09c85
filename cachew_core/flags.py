"""Command-line flags made from settings, so that name, meaning and limits stand in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

_UNITS = {"_s": "SECONDS", "_bytes": "BYTES"}


def command_of(settings: type[BaseSettings], run: Callable[..., None]) -> Callable[..., None]:
    """A command that has a flag for each setting.

    Args:
        settings: the settings; the text under each is its help.
        run: called with what was given, by the settings' names; None where a flag was not given.

    Returns:
        A function that Typer takes as a command; its help is that of `run`.
    """

    def command(**given: Any) -> None:
        run(**given)

    parameters = [_parameter(name, field) for name, field in settings.model_fields.items()]
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    # Typer reads a command's flags from its signature.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    flag = "--" + name.removesuffix(unit).replace("_", "-")
    option = typer.Option(flag, metavar=_UNITS.get(unit), help=_help(field), show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_type_of(field) | None, option],
    )


def _type_of(field: FieldInfo) -> Any:
    if get_origin(field.annotation) is Literal:
        return field.annotation
    if get_origin(field.annotation) is dict:
        return str
    choices = [choice for choice in get_args(field.annotation) if choice is not type(None)]
    return choices[0] if choices else field.annotation


def _help(field: FieldInfo) -> str:
    meaning = inspect.cleandoc(field.description or "").replace("`", "")
    told = field.default not in (None, "", PydanticUndefined)
    return f"{meaning} (default {field.default})" if told else meaning
