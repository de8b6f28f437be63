"""Expressions in a plan's details, and their reads of the plan's variables.

This is no Cypher parser: anything not understood for certain raises `NotUnderstood`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

NAME: Final = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"
_TOKEN: Final = re.compile(
    rf"{NAME}|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\$\w+|\d+(?:\.\d+)?|<>|<=|>=|=~|\.\.|\s+|.", re.DOTALL
)
_IDENTIFIER: Final = re.compile(rf"{NAME}\Z")
_LABELS: Final = re.compile(r":(!?\w+(?:[|&]!?\w+)*)(?![\w(|&$%!])")
CACHED: Final = re.compile(rf"cache\[({NAME})\.(\w+)\]")
_DEGREE: Final = re.compile(rf"getDegree\(\(({NAME})\)<?-(?:\[:([^\]]*)\])?->?\(\)\)")
_SUBQUERY: Final = re.compile(r"\bMATCH\b|\[(?:\w+ = )?\([^()]*\)<?-|\)<?-\[[^\]]*:")
"""A pattern that finds something, apart from degrees; one without types may be a path of what was already found."""
_PATH_LENGTH: Final = re.compile(rf"length\(\({NAME}\)<?-\[{NAME}\*\]->?\({NAME}\)\)")


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_KEYWORDS: Final = words(
    "AND OR XOR NOT IN IS NULL TRUE FALSE CASE WHEN THEN ELSE END AS DISTINCT ASC DESC LIMIT STARTS ENDS WITH CONTAINS "
    "WHERE NAN INF INFINITY"
)
_BOUNDARIES: Final = words("AND OR XOR NOT ( ) ,") | {""}
_IDENTITY: Final = words("count id elementid length")
CLOCKS: Final = words("rand randomuuid timestamp date time datetime localtime localdatetime")
"""Functions of time and randomness, with names in lower case."""
_FUNCTIONS: Final = _IDENTITY | words(
    "abs ceil floor round sign sqrt exp log log10 e pi sin cos tan cot asin acos atan atan2 degrees radians "
    "haversin isnan tointeger tofloat tostring toboolean tointegerornull tofloatornull tostringornull "
    "tobooleanornull tointegerlist tofloatlist tostringlist tobooleanlist size length char_length "
    "character_length collect sum avg min max stdev stdevp percentilecont percentiledisc head last tail reverse "
    "range keys properties labels type coalesce exists trim btrim ltrim rtrim replace substring left right "
    "tolower toupper lower upper normalize reduce any all none single isempty nullif valuetype relationships "
    "duration runtimeconstant split propertiesusingcachedproperties keysusingcachedproperties "
)
"""Functions that depend only on their arguments; a node as an argument counts as read completely."""


INNER_NODES: Final = "the nodes within a path: return its length, or match its hops one by one"


class NotUnderstood(Exception):
    """A plan has a part with unknown dependencies; the text names it and a remedy."""


@dataclass(slots=True)
class Reads:
    """The reads of an expression, by variable: ``content`` is properties, labels or the whole node.

    ``labels`` are label tests, each with all its labels; ``degrees`` the types of counted relationships.
    """

    content: set[str] = field(default_factory=set)
    labels: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    degrees: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


def types_of(text: str | None) -> tuple[str, ...]:
    """Return the types of a relationship's pattern, such as ``KNOWS|LIKES``.

    Raises:
        NotUnderstood: it has no types.
    """
    types = tuple(text.split("|")) if text else ()
    if not types or not all(map(re.compile(r"\w+\Z").match, types)):
        raise NotUnderstood("a relationship without a type: name its type, as in -[:KNOWS]-")
    return types


def is_identifier(word: str) -> bool:
    """Return whether a word is an identifier."""
    return _IDENTIFIER.match(word) is not None


def unquoted(name: str) -> str:
    """Return a name without a plan's backticks around it."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def divided(text: str, separator: str) -> list[str]:
    """Split at a separator outside of brackets: a comma, or a word that is no name."""
    parts, part, depth = [], "", 0
    for word in _TOKEN.findall(text):
        depth += (word in "([{") - (word in ")]}")
        if depth == 0 and word.upper() == separator and part.strip() and not part.endswith("."):
            parts.append(part.strip())
            part = ""
        else:
            part += word
    return [*parts, part.strip()] if part.strip() or parts else []


def conjuncts(text: str) -> Iterator[str]:
    """Yield the conditions of a conjunction; anything not understood as one is yielded whole."""
    text = text.strip()
    while text.startswith("(") and _encloses(text):
        text = text[1:-1].strip()
    if len(divided(text, "OR")) > 1 or len(divided(text, "XOR")) > 1:
        yield text
        return
    parts = divided(text, "AND")
    # Anything after a CASE may be part of it.
    certain = next((place for place, part in enumerate(parts) if "CASE" in _TOKEN.findall(part)), len(parts))
    if len(parts) == 1 or not certain:
        yield text
        return
    for part in parts[:certain]:
        yield from conjuncts(part)
    if rest := " AND ".join(parts[certain:]):
        yield rest


def _encloses(text: str) -> bool:
    depth = 0
    words = _TOKEN.findall(text)
    for place, word in enumerate(words):
        depth += (word in "([{") - (word in ")]}")
        if depth == 0:
            return place == len(words) - 1
    return False


def named(item: str) -> tuple[str, str]:
    """Return the expression of a projection's item, and its name."""
    parts = divided(item, "AS")
    return (parts[0], parts[1]) if len(parts) == 2 else (item, item)


def label_test(condition: str) -> tuple[str, frozenset[str]] | None:
    """Return the variable and the alternative labels of a condition such as ``f:Person``."""
    found = re.fullmatch(rf"({NAME}):(\w+(?:\|\w+)*)", condition)
    return (found[1], frozenset(found[2].split("|"))) if found else None


def reads_of(text: str, nodes: Collection[str], paths: Collection[str] = ()) -> Reads:
    """Return an expression's reads of nodes; ``paths`` are variables whose inner nodes are nowhere else.

    Raises:
        NotUnderstood: it has a function, labels or a path with unknown dependencies.
    """
    reads = Reads()
    text = _PATH_LENGTH.sub("0", text)
    for name, types in _DEGREE.findall(text):
        reads.degrees.append((name, types_of(types)))
    text = _DEGREE.sub("0", text)
    _check_subqueries(text)
    text = CACHED.sub(r"\1.\2", text)
    found = [(match.group(), match.start()) for match in _TOKEN.finditer(text) if not match.group().isspace()]
    pieces = ["", "", "", *(piece for piece, _ in found), "", ""]
    for place, (piece, start) in enumerate(found, 3):
        before, after = pieces[place - 1], pieces[place + 1]
        if piece == "*" and (before == "[" or after == "]"):
            raise NotUnderstood(INNER_NODES)
        if piece == "cache" and after == "[":
            raise NotUnderstood("a name of other characters than letters, digits and _")
        if not is_identifier(piece) or before == ".":
            continue
        _check_function(pieces[place:])
        if piece not in nodes and piece not in paths:
            continue
        if after == ":" and not text.startswith(": ", start + len(piece)):
            reads.labels.append((piece, _labels(text[start + len(piece) :])))
        elif not _is_identity(pieces, place):
            if piece in paths:
                raise NotUnderstood(INNER_NODES)
            reads.content.add(piece)
    return reads


def _labels(text: str) -> frozenset[str]:
    found = _LABELS.match(text)
    if found is None:
        raise NotUnderstood(f"labels that are not named one by one: {text[:40]}")
    return frozenset(re.findall(r"\w+", found[1]))


def _check_subqueries(text: str) -> None:
    if _SUBQUERY.search(re.sub(r"`(?:[^`]|``)+`", "name", text)):  # a column's name may be a whole expression
        raise NotUnderstood("a subquery within an expression: make it a MATCH or an OPTIONAL MATCH of its own")


def _check_function(pieces: list[str]) -> None:
    end = 1
    while pieces[end] == ".":
        end += 2
    name = "".join(pieces[:end])
    if pieces[end] != "(" or name.upper() in _KEYWORDS:
        return
    if name.lower() in CLOCKS:
        raise NotUnderstood(f"{name}(), which is another one each time")
    if name.lower() not in _FUNCTIONS:
        raise NotUnderstood(f"the function {name}()")


def _is_identity(pieces: list[str], place: int) -> bool:
    """Return whether only the node's identity matters at a variable's place."""
    before, after = pieces[place - 1], pieces[place + 1]
    if after.upper() == "IS":
        return True
    if after == ")" and (before == "(" or before.upper() == "DISTINCT"):
        return pieces[place - (2 if before == "(" else 3)].lower() in _IDENTITY
    if after in {"=", "<>"}:
        return before.upper() in _BOUNDARIES
    return before in {"=", "<>"} and after.upper() in _BOUNDARIES
