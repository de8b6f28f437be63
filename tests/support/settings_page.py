"""The page of settings: all columns but the last come from the code (``python -m tests.support.settings_page``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_type_hints

from api_client.config.environment import Settings, extra_of, variable
from api_client.config.settings import ReaderSettings, SharedSettings
from refresher.settings import WorkerSettings

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
_ROW: Final = re.compile(r"^\| `(\w+)`.*\| (.+?) \|$", re.MULTILINE)
_UNITS: Final = ((3600, "h"), (1, "s"), (0.001, "ms"))
_KINDS: Final = {bool: "`true` or `false`", int: "integer", float: "number", str: "text"}


def settings_in_code() -> Iterator[tuple[str, str, type[Settings], str]]:
    """Yield variable, user, class and field of each setting; a shared one once for each of its two classes."""
    shared = set(SharedSettings.__struct_fields__)
    for kind, settings in (("reader", ReaderSettings), ("worker", WorkerSettings)):
        hints = get_type_hints(settings, include_extras=True)
        for field in settings.__struct_fields__:
            yield variable(hints[field], field), "both" if field in shared else kind, settings, field


def names_on_page(text: str) -> list[str]:
    """Return the variables that have a row, in their order."""
    return [found[1] for found in _ROW.finditer(text)]


def from_code(text: str) -> str:
    """Return the page with each row's cells from the code, and its meaning unchanged."""
    rows = {name: _cells(name, who, settings, field) for name, who, settings, field in settings_in_code()}
    return _ROW.sub(lambda row: f"| {' | '.join(rows[row[1]])} | {row[2]} |", text)


def _cells(name: str, who: str, settings: type[Settings], field: str) -> tuple[str, str, str, str]:
    annotation = get_type_hints(settings, include_extras=True)[field]
    kind, metas = annotation.__origin__, annotation.__metadata__
    extra = extra_of(annotation)
    bounds = {
        name: getattr(meta, name) for meta in metas for name in ("ge", "gt", "le") if getattr(meta, name) is not None
    }
    is_duration = extra.get("duration") or extra.get("milliseconds")
    scale = 0.001 if extra.get("milliseconds") else 1

    def shown(value: Any) -> str:
        return _duration(value * scale) if is_duration else str(value)

    default = getattr(settings(), field)
    text = str(default).lower() if isinstance(default, bool) else shown(default)
    names = f"`{name}`<br>`{field}`" + (f"<br>other name: `{extra['fallback']}`" if extra.get("fallback") else "")
    return names, f"`{text}`" if text else "–", _type(kind, bounds, extra, shown), who


def _type(kind: type, bounds: dict[str, float], extra: dict[str, Any], shown: Any) -> str:
    if issubclass(kind, Enum):
        return " or ".join(f"`{member.value}`" for member in kind)
    word = "duration" if shown(1.0)[-1].isalpha() else _KINDS[kind]
    word = "URL" if extra.get("url") else "secret" if extra.get("secret") else word
    low = f"≥ {shown(bounds['ge'])}" if "ge" in bounds else f"> {shown(bounds['gt'])}" if "gt" in bounds else ""
    high = f"≤ {shown(bounds['le'])}" if bounds.get("le", 1e9) < 1e9 else ""
    return ", ".join(filter(None, (word, low, high)))


def _duration(seconds: float) -> str:
    for factor, unit in _UNITS:
        if seconds >= factor and seconds / factor == round(seconds / factor):
            return f"{seconds / factor:.0f}{unit}"
    return "0" if not seconds else f"{seconds * 1000:.0f}ms"


if __name__ == "__main__":
    PAGE.write_text(from_code(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
