"""Writes the tables of docs/settings.md from the classes that read the settings.

Name, default and text stand once, in `cachew_core/settings.py`; a test holds the page against it.

    python tools/render_settings.py            rewrites the page's tables
    python tools/render_settings.py --check    exits with 1 if they are out of date
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from cachew_core import settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
START = "<!-- tables: written by tools/render_settings.py -->\n"
END = "<!-- end of tables -->\n"


def main() -> int:
    """Returns the process's exit code."""
    page = PAGE.read_text()
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    fresh = f"{before}{START}{''.join(_tables())}{END}{after}"
    if "--check" in sys.argv:
        return int(page != fresh)
    PAGE.write_text(fresh)
    return 0


def _tables() -> Iterator[str]:
    for name, cls in inspect.getmembers(settings, inspect.isclass):
        if cls.__module__ == settings.__name__ and not name.startswith("_"):
            assert issubclass(cls, BaseSettings)
            yield _table(cls)


def _table(cls: type[BaseSettings]) -> str:
    texts = _texts(cls)
    rows = [
        f"| `{name}` | {_default(field)} | {texts[name]} |\n"
        for name, field in cls.model_fields.items()
    ]
    head = f"\n## {_title(cls)}\n\n| setting | default | meaning |\n| --- | --- | --- |\n"
    return "".join([head, *rows, "\n"])


def _title(cls: type[BaseSettings]) -> str:
    return inspect.cleandoc(cls.__doc__ or cls.__name__).splitlines()[0].rstrip(".")


def _texts(cls: type[BaseSettings]) -> dict[str, str]:
    """The string below each field; Python itself drops it."""
    tree = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "depends on the machine"
    value: Any = field.default
    if value is None or value == "":
        return "none"
    if isinstance(value, int) and value >= settings.MIB:
        return f"`{value}` ({value // settings.MIB} MiB)"
    return f"`{value}`"


if __name__ == "__main__":
    sys.exit(main())
