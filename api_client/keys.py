"""The only speller of Redis keys, and the canonical form of a query's params.

========================  =======  ==========================================================
key                       type     what
========================  =======  ==========================================================
``ns:e1:{q:v:digest}``    string   the entry: header and payload (`entry`)
``ns:l1:{q:v:digest}``    hash     the lease record, only while something is going on (`lease`)
``ns:n1:{q:v:digest}``    channel  the notifications of commit, fail and invalidate
``ns:dead1``              zset     dead letters, newest last, bounded (`refresher.dead_letters`)
========================  =======  ==========================================================

The braces put entry and record in one slot of a cluster. The digit behind the letter is the version of the
format, because readers and workers of two releases run at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from api_client.errors import InvalidQuery

Params: TypeAlias = Mapping[str, Any]

MAX_PARAMS_BYTES: Final = 16_384
MAX_DEPTH: Final = 16
MAX_VERSION: Final = 65_535
DIGEST_BYTES: Final = 16
REMEMBERED_KEYS: Final = 4_096
MOST_REMEMBERED_PARAMS: Final = 8
LONGEST_REMEMBERED_TEXT: Final = 64

QUERY_NAME_PATTERN: Final = r"\A[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z"
_QUERY_NAME = re.compile(QUERY_NAME_PATTERN, re.ASCII)
_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)

QUERY_NAME_ALLOWED: Final = "1 to 100 of A-Z a-z 0-9 _ . - and no digit, dot or dash first"
NAMESPACE_ALLOWED: Final = "1 to 64 of A-Z a-z 0-9 _ . -"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One (query, version, params) and all that is named after it.

    ``canonical_params`` is the JSON text that was digested and that travels in messages; ``digest`` is the 16 bytes
    by which an entry is known to belong to this key.
    """

    query: str
    version: int
    canonical_params: str
    digest: bytes
    entry: str
    record: str
    channel: str

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest: for people, logs and Flower, where params may be sensitive."""
        return self.digest.hex()[:12]

    @property
    def params(self) -> dict[str, Any]:
        """The params, decoded from their canonical form."""
        decoded: dict[str, Any] = json.loads(self.canonical_params)
        return decoded


def make_key(namespace: str, query: str, params: Params | None, version: int) -> CacheKey:
    """Return the key of (query, version, params).

    The last few thousand are remembered where the params are short and flat: making one takes longer than looking at
    the entry.

    Raises:
        InvalidQuery: a name that is not one, a version outside 1 to 65,535, params that are not JSON-like.
    """
    try:
        if params is None:
            return _remembered_key(namespace, query, version)
        if type(params) is dict:
            return _remembered_key(namespace, query, version, *params, *params.values())
    except (TypeError, _NotRemembered):  # a TypeError: something that can't be hashed
        pass
    return _new_key(namespace, query, params, version)


class _NotRemembered(Exception):
    """Params that could be mistaken for others, or take much memory."""


@lru_cache(maxsize=REMEMBERED_KEYS, typed=True)
def _remembered_key(namespace: str, query: str, version: int, *names_then_values: Any) -> CacheKey:
    """Make a key once for arguments that are equal and of the same types.

    No floats: 0.0 and -0.0 are equal and not the same. Nothing nested: so are 1, 1.0 and True in there, where nobody
    compares the types. What is refused is not remembered, so that looking it up again refuses it again.
    """
    half = len(names_then_values) // 2
    names, values = names_then_values[:half], names_then_values[half:]
    if half > MOST_REMEMBERED_PARAMS or not all(map(_is_short_and_flat, values)):
        raise _NotRemembered
    return _new_key(namespace, query, dict(zip(names, values, strict=True)), version)


def _is_short_and_flat(value: object) -> bool:
    if type(value) is str:
        return len(value) <= LONGEST_REMEMBERED_TEXT
    return type(value) in {int, bool, type(None)}


def _new_key(namespace: str, query: str, params: Params | None, version: int) -> CacheKey:
    check_query_name(query)
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= MAX_VERSION:
        raise InvalidQuery(
            f"version {_shown(version)} of {query!r}: allowed is a whole number, 1 to {MAX_VERSION}", query=query
        )
    canonical = canonical_params(query, params)
    digest = hashlib.blake2b(f"{query}\n{version}\n{canonical}".encode(), digest_size=DIGEST_BYTES).digest()
    return _named(namespace, query, version, canonical, digest)


def key_of_digest(namespace: str, query: str, version: int, digest: bytes) -> CacheKey:
    """Return the key of a digest, where the params are not known: ``canonical_params`` is empty, it can't be asked for.

    Raises:
        InvalidQuery: a name that is not one.
    """
    return _named(namespace, check_query_name(query), version, "", digest)


def _named(namespace: str, query: str, version: int, canonical: str, digest: bytes) -> CacheKey:
    tag = f"{{{query}:{version}:{digest.hex()}}}"
    return CacheKey(
        query,
        version,
        canonical,
        digest,
        entry_prefix(namespace) + tag,
        f"{namespace}:l1:{tag}",
        f"{namespace}:n1:{tag}",
    )


def entry_prefix(namespace: str) -> str:
    """Return what every entry's key of a namespace begins with, and no other key."""
    return f"{namespace}:e1:"


def dead_letters_key(namespace: str) -> str:
    """Return the one bounded key that holds the dead letters of a namespace."""
    return f"{namespace}:dead1"


def check_query_name(query: object) -> str:
    """Return ``query`` when it can be a query's name.

    Raises:
        InvalidQuery: it can't; the message says what is allowed.
    """
    if not isinstance(query, str) or not _QUERY_NAME.fullmatch(query):
        raise InvalidQuery(f"{_shown(query)} is not a query's name: allowed is {QUERY_NAME_ALLOWED}")
    return query


def canonical_params(query: str, params: Params | None) -> str:
    """Return the one JSON text of ``params``: sorted, compact, Unicode NFC, ints and floats kept apart.

    Raises:
        InvalidQuery: not a mapping of identifiers to JSON-like values (None, bool, int within 64 bits, finite float,
            str, list or tuple, dict with string keys), nested deeper than 16, or larger than 16 KiB.
    """
    if params is None:
        return "{}"
    if not isinstance(params, Mapping):
        raise InvalidQuery(
            f"params of {query!r} are {_kind(params)}: allowed is a mapping of names to values", query=query
        )
    for name in params:
        if not isinstance(name, str) or not _PARAM_NAME.fullmatch(name):
            raise InvalidQuery(
                f"params of {query!r}: {_shown(name)} is not a name: allowed are identifiers in ASCII", query=query
            )
    budget = _Budget(query)
    plain = _json_like(params, "", 0, budget)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MAX_PARAMS_BYTES:
        raise budget.too_large()
    return text


class _Budget:
    """Counts what has been walked, so that a 1 GB list or a cycle is refused before it is copied."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.left = MAX_PARAMS_BYTES

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise self.too_large()

    def too_large(self) -> InvalidQuery:
        return InvalidQuery(
            f"params of {self.query!r} are larger than {MAX_PARAMS_BYTES} bytes of JSON, which is the most allowed",
            query=self.query,
        )


def _json_like(value: object, path: str, depth: int, budget: _Budget) -> object:
    if depth > MAX_DEPTH:
        raise InvalidQuery(
            f"params of {budget.query!r}: {path} is nested deeper than {MAX_DEPTH} (or contains itself)",
            query=budget.query,
        )
    budget.spend(1)
    if isinstance(value, Mapping):
        return _json_object(value, path, depth, budget)
    if isinstance(value, list | tuple):
        return [_json_like(item, f"{path}[{index}]", depth + 1, budget) for index, item in enumerate(value)]
    return _scalar(value, path, budget)


def _json_object(value: Mapping[Any, Any], path: str, depth: int, budget: _Budget) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key, item in value.items():
        inner = f"{path}.{_step(key)}"
        name = _text(key, inner, budget)
        if name in plain:
            raise InvalidQuery(
                f"params of {budget.query!r}: {inner.lstrip('.')} is there twice (two keys are one in Unicode NFC)",
                query=budget.query,
            )
        plain[name] = _json_like(item, inner, depth + 1, budget)
    return plain


def _scalar(value: object, path: str, budget: _Budget) -> object:
    if value is None or isinstance(value, bool):
        return value
    # Exact values of subclasses: an IntEnum or a str subclass is the value that it stands for.
    if isinstance(value, str):
        return _text(value, path, budget)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise _not_json_like(value, path, budget, "integers fit in 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _not_json_like(value, path, budget, "NaN and infinities have no JSON")
        return float(value)
    raise _not_json_like(value, path, budget, "None, bool, int, float, str, list, tuple and dict are allowed")


def _text(value: object, path: str, budget: _Budget) -> str:
    if not isinstance(value, str):
        raise _not_json_like(value, path, budget, "keys of a dict are text")
    budget.spend(len(value))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _not_json_like(value, path, budget, "text is valid Unicode (no lone surrogates)") from error
    return unicodedata.normalize("NFC", value)


def _not_json_like(value: object, path: str, budget: _Budget, allowed: str) -> InvalidQuery:
    return InvalidQuery(
        f"params of {budget.query!r}: {path.lstrip('.')} is {_kind(value)}: {allowed}", query=budget.query
    )


def _step(key: object) -> str:
    """Show a key in a path: as it is where it looks like a name, else it may be a value just as well."""
    return key if isinstance(key, str) and _PARAM_NAME.fullmatch(key[:61]) else f"<{_kind(key)}>"


def _kind(value: object) -> str:
    """Say what a param is, not what it holds, which may be personal."""
    other = f"text of {len(value)} characters" if isinstance(value, str) else f"a {type(value).__name__}"
    return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else other


def _shown(value: object) -> str:
    """Show a wrong value short, and by its type alone where it could be large."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"text of {len(value)} characters"
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to write out a very large one.
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"
