"""Mutator of valid inputs: changes a few places, to values that decoders may reject."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

_BYTES: Final = (0, 1, 0x7F, 0x80, 0xC0, 0xC7, 0xDF, 0xFE, 0xFF)
_NUMBERS: Final = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**53 - 1, 2**53, 2**63, 2**64 - 1)
_MAX_CHANGES: Final = 6
_MAX_BYTES: Final = 4_096

_SCALARS: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "ä", "\ud800", "\x00", "e\u0301", "9" * 5_000, "x" * 20_000, "{}", "[]", '{"a":1}', "1e400",
    '{"__type__":"datetime","__value__":"x"}', "[" * 20_000, '{"a":' * 2_000,
)  # fmt: skip
_NAMES: Final = (
    "v", "items", "query", "version", "params", "claim_number", "reason", "ticket", "attempt", "cache_attempt",
    "__type__", "__value__", "task", "id", "eta", "expires", "timelimit", "retries", "args", "", "callbacks", "chain",
)  # fmt: skip


class Mutator:
    """Draws from one random source, so that a seed determines everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - not for secrets

    def of_bytes(self, corpus: Sequence[bytes]) -> bytes:
        """Return one of ``corpus``, changed."""
        raw = bytearray(self.random.choice(corpus))
        for _ in range(self.random.randint(1, _MAX_CHANGES)):
            self._change(raw, corpus)
        return bytes(raw[:_MAX_BYTES])

    def of_text(self, corpus: Sequence[str]) -> str:
        """Return one of ``corpus``, changed; any text."""
        return self.of_bytes([text.encode("utf-8", "surrogatepass") for text in corpus]).decode("utf-8", "replace")

    def of_json(self, corpus: Sequence[Any]) -> Any:
        """Return a copy of one of ``corpus``, changed: still JSON, with a few values beyond it."""
        value = json.loads(json.dumps(self.random.choice(corpus)))
        for _ in range(self.random.randint(1, _MAX_CHANGES)):
            value = self._changed(value)
        return value

    def _change(self, raw: bytearray, corpus: Sequence[bytes]) -> None:
        at, kind = self.random.randrange(len(raw) + 1), self.random.randrange(8)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << self.random.randrange(8)
        elif kind == 1 and at < len(raw):
            raw[at] = self.random.choice(_BYTES)
        elif kind == 2:
            size = self.random.choice((1, 2, 4, 8))
            raw[at : at + size] = (self.random.choice(_NUMBERS) % 256**size).to_bytes(size, "big")
        elif kind == 3:
            del raw[at : at + self.random.randint(1, 20)]
        elif kind == 4:
            raw[at:at] = self.random.randbytes(self.random.randint(1, 20))
        elif kind == 5:
            start = self.random.randrange(len(raw) + 1)
            raw[at:at] = raw[start : start + self.random.randint(1, 60)]
        elif kind == 6:
            other = self.random.choice(corpus)
            raw[at:] = other[self.random.randrange(len(other) + 1) :]
        else:
            del raw[at:]

    def _changed(self, value: Any) -> Any:
        if isinstance(value, dict) and value and self.random.random() < 0.8:
            return self._changed_object(value)
        if isinstance(value, list) and value and self.random.random() < 0.8:
            at = self.random.randrange(len(value))
            value[at : at + 1] = self.random.choice(([self._changed(value[at])], [], [value[at]] * 3))
            return value
        if isinstance(value, str) and self.random.random() < 0.5:
            return self.of_text([value])
        return self._other(value)

    def _changed_object(self, value: dict[str, Any]) -> dict[str, Any]:
        name = self.random.choice(list(value))
        if self.random.random() < 0.6:
            value[name] = self._changed(value[name])
        elif self.random.random() < 0.5:
            value[self.random.choice(_NAMES)] = value.pop(name)
        else:
            value[self.random.choice(_NAMES)] = self._other(value[name])
        return value

    def _other(self, value: Any) -> Any:
        kind = self.random.randrange(6)
        if kind == 0:
            return [value]
        if kind == 1:
            return {self.random.choice(_NAMES): value}
        if kind == 2:
            deep: Any = value
            for _ in range(self.random.choice((5, 17, 200))):
                deep = [deep] if self.random.random() < 0.5 else {"a": deep}
            return deep
        return self.random.choice(_SCALARS)
