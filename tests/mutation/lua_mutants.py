"""Mutants of a Lua script: each leaves out or changes one thing in its text.

A guard is left out:

- a condition of ``if`` and ``elseif``: taken as true, taken as false;
- a side of ``and`` and ``or``, and ``not``: dropped;
- a bound of a comparison: moved by one (``<`` and ``<=``, ``>`` and ``>=``);
- an argument of ``math.max`` and ``math.min``, and a side of a sum, a difference, a product, a power, a text put
  together: dropped;
- a statement that calls something, or assigns to what exists: dropped; of HSET and HDEL each field too, of SET and
  ZADD the option.

A value is changed:

- a returned value, or a field of one: '0', a number increased by one, another word;
- a number, unless it is compared or a default for a missing value (guards, above): increased by one;
- a word or a digit that is stored, sent, or compared by ``==`` and ``~=``: another one; a ``true`` that is an
  argument: false;
- of struct.pack and struct.unpack: the order of bytes; the last item, dropped; each packed value.

The parser knows the subset of Lua that the scripts use, and rejects anything else.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Span: TypeAlias = tuple[int, int]

TOKEN: Final = re.compile(
    r"(?P<skip>\s+|--[^\n]*)|(?P<string>'(?:\\.|[^'\\])*')|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.|==|~=|<=|>=|[-+*/^#<>=(){}\[\],.])"
)
LEVELS: Final = [{"or"}, {"and"}, {"==", "~=", "<", "<=", ">", ">="}, {".."}, {"+", "-"}, {"*", "/"}]
BOUNDS: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
MAX_WHOLE: Final = 60
KEPT: Final = {"==", "~=", *BOUNDS}
UNARY: Final = {"not", "-", "#"}
COMPARING: Final = {"==", "~=", *BOUNDS, "and", "or"}
OTHER_WORD: Final = "'invalidated'"
# The index of the first field among the arguments, and the number of arguments per field.
FIELDS_FROM: Final = {"'HSET'": (2, 2), "'HDEL'": (2, 1), "'SET'": (3, 2)}
OPTIONS: Final = {"'GT'", "'XX'"}


@dataclass(frozen=True)
class Mutant:
    """One change of a script. ``name`` identifies it, and stays the same when lines move."""

    script: str
    name: str
    text: str


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Change:
    """Put ``text`` in place of what stands from ``start`` to ``end``; ``whole`` is the expression it is part of."""

    start: int
    end: int
    text: str
    whole: str = ""


def mutants(script: str, source: str) -> list[Mutant]:
    """Return all mutants of a script's own text.

    Raises:
        SyntaxError: this parser does not know some of the syntax.
    """
    found, seen = [], Counter[str]()
    for change in Reader(source).changes():
        name = _name_of(change, source)
        seen[name] += 1
        if seen[name] > 1:
            name += f" (no. {seen[name]})"
        found.append(Mutant(script, name, source[: change.start] + change.text + source[change.end :]))
    return found


def _name_of(change: Change, source: str) -> str:
    before, whole = (" ".join(text.split()) for text in (source[change.start : change.end], change.whole))
    name = f"{before} ⟶ {change.text}" if change.text else f"without {before}"
    return f"{whole}: {name}" if whole and len(whole) <= MAX_WHOLE else name


class Reader:
    """Reads statements from left to right and notes the possible changes of each."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = [*tokens(source), Token("end", "", len(source), len(source))]
        self.at = 0
        self.noted: list[Change] = []

    def changes(self) -> list[Change]:
        while self.peek.kind != "end":
            self.statement()
        return sorted(self.noted, key=lambda change: (change.start, change.end, change.text))

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> Token:
        token = self.peek
        if texts and token.text not in texts:
            raise SyntaxError(f"{texts} expected, not {token.text!r}: {self.source[token.start :][:60]!r}")
        self.at += 1
        return token

    def note(self, start: int, end: int, text: str, whole: Span = (0, 0)) -> None:
        self.noted.append(Change(start, end, text, self.source[slice(*whole)]))

    # ── statements ──

    def statement(self) -> None:
        word = self.peek.text
        if word in {"if", "elseif"}:
            self.take()
            start, end = self.expression()
            self.note(start, end, "true")
            self.note(start, end, "false")
            self.take("then")
        elif word in {"else", "end"}:
            self.take()
        elif word == "return":
            self.take()
            if self.peek.text not in {"end", "else", "elseif", ""}:
                self.returned()
        elif word == "local":
            self.take()
            self.local()
        else:
            self.call_or_assignment()

    def returned(self) -> None:
        if self.peek.text != "{":
            for span in self.expressions():
                self.value(span)
            return
        self.take()
        while self.peek.text != "}":
            if self.tokens[self.at + 1].text == "=":
                self.take()
                self.take()
                self.expression()
            else:
                self.value(self.expression())
            if self.peek.text == ",":
                self.take()
        self.take("}")

    def local(self) -> None:
        if self.peek.text == "function":
            while self.take().text != ")":
                pass
            return
        self.names()
        self.take("=")
        self.expressions()

    def names(self) -> None:
        self.take()
        while self.peek.text == ",":
            self.take()
            self.take()

    def call_or_assignment(self) -> None:
        start, end = self.operand()
        if self.peek.text in {"=", ","}:
            while self.peek.text == ",":
                self.take()
                self.operand()
            self.take("=")
            end = self.expressions()[-1][1]
        self.note(start, end, "")

    # ── expressions: each returns its start and end ──

    def expressions(self) -> list[Span]:
        spans = [self.expression()]
        while self.peek.text == ",":
            self.take()
            spans.append(self.expression())
        return spans

    def expression(self, level: int = 0) -> Span:
        if level == len(LEVELS):
            return self.unary()
        sides, signs = [self.expression(level + 1)], list[Token]()
        while self.peek.text in LEVELS[level]:
            signs.append(self.take())
            sides.append(self.expression(level + 1))
        whole = sides[0][0], sides[-1][1]
        for sign in signs:
            if sign.text in BOUNDS:
                self.note(sign.start, sign.end, BOUNDS[sign.text], whole)
            elif sign.text in {"==", "~="}:
                self.compared(sides[-1], whole)
        if signs and not {sign.text for sign in signs} & KEPT:
            # A difference or quotient without its first side would be another operation.
            for index in range(signs[0].text in {"-", "/"}, len(sides)):
                self.drop(sides, index, index + 1)
        return whole

    def compared(self, span: Span, whole: Span) -> None:
        """Note a replacement for a constant that something is compared with."""
        text = self.source[slice(*span)]
        if text.isdigit():
            self.note(*span, str(int(text) + 1), whole)
        elif text[0] == "'":
            self.value(span, whole)

    def value(self, span: Span, whole: Span = (0, 0)) -> None:
        """Note a replacement for a returned, stored or sent expression; numbers note themselves."""
        text = self.source[slice(*span)]
        if text[0] == "'":
            other = {"''": "'0'", "'0'": "'1'"}.get(text, "''" if text == OTHER_WORD else OTHER_WORD)
        elif text.isdigit() or " and " in text or text == "nil":
            return
        else:
            other = "'0'"
        self.note(*span, other, whole)

    def unary(self) -> Span:
        if self.peek.text in UNARY:
            sign = self.take()
            start, end = self.unary()
            if sign.text == "not":
                self.note(sign.start, end, self.source[start:end])
            return sign.start, end
        start, end = self.operand()
        if self.peek.text == "^":
            self.take()
            _, last = self.unary()
            self.note(start, last, self.source[start:end])
            return start, last
        return start, end

    def operand(self) -> Span:
        first = self.take()
        if first.text == "(":
            self.expression()
            return first.start, self.take(")").end
        if first.text == "{":
            return first.start, self.table()
        if first.kind not in {"string", "number", "name"}:
            raise SyntaxError(f"an operand expected, not {first.text!r}")
        beside = {self.tokens[self.at - 2].text, self.peek.text}
        if first.kind == "number" and not beside & COMPARING and not self._is_argument_of_the_script():
            self.note(first.start, first.end, str(int(first.text) + 1), self._around(first))
        end = first.end
        while self.peek.text in {".", "[", "("}:
            sign = self.take()
            if sign.text == ".":
                end = self.take().end
            elif sign.text == "[":
                self.expression()
                end = self.take("]").end
            else:
                end = self.arguments(self.source[first.start : sign.start])
        return first.start, end

    def _is_argument_of_the_script(self) -> bool:
        """Return whether the number just read is the index of one: the header tests cover those."""
        return (
            self.at > 2 and self.tokens[self.at - 2].text == "[" and self.tokens[self.at - 3].text in {"KEYS", "ARGV"}
        )

    def _around(self, token: Token) -> Span:
        """Return a part of a number's line: the number alone is ambiguous."""
        start, end = self.source.rfind("\n", 0, token.start) + 1, self.source.find("\n", token.end)
        end = len(self.source) if end < 0 else end
        return max(start, token.start - MAX_WHOLE // 2), min(end, token.end + MAX_WHOLE // 3)

    def table(self) -> int:
        while self.peek.text != "}":
            if self.tokens[self.at + 1].text == "=":
                self.take()
                self.take()
            self.expression()
            if self.peek.text == ",":
                self.take()
        return self.take("}").end

    def arguments(self, called: str) -> int:
        spans = [] if self.peek.text == ")" else self.expressions()
        end = self.take(")").end
        for argument, span in enumerate(spans):
            if self.source[slice(*span)] == "true":
                self.note(*span, "false")
            elif called.startswith("redis.") and self.source[slice(*span)] in OPTIONS:
                self.drop(spans, argument, argument + 1)
            elif called == "notify" or (
                called == "redis.call"
                and self.source[slice(*spans[0])] == "'HSET'"
                and argument > 1
                and argument % 2
                and self.source[span[0]] == "'"
            ):
                self.value(span)
        if called in {"struct.pack", "struct.unpack"}:
            self.struct(called, spans)
        size = 0
        if called in {"math.max", "math.min"}:
            first, size = 0, 1
        elif called == "redis.call" and self.source[slice(*spans[0])] in FIELDS_FROM:
            first, size = FIELDS_FROM[self.source[slice(*spans[0])]]
        # A call without its only field is not a call, except SET; that is the mutant without the statement.
        if size and len(spans) - first > size - (first == FIELDS_FROM["'SET'"][0]):
            for index in range(first, len(spans), size):
                self.drop(spans, index, index + size)
        return end

    def struct(self, called: str, spans: list[Span]) -> None:
        """Note the changes of a format, such as '>I8I8', and of what is packed."""
        (start, end), *values = spans
        whole = start, spans[-1][1]
        self.note(start + 1, start + 2, "<", whole)
        self.note(self.source.rindex("I", start, end), end - 1, "", whole)
        for span in values if called == "struct.pack" else []:
            self.value(span)

    def drop(self, spans: list[Span], start: int, stop: int) -> None:
        """Note the removal of some of several items, with the operator or comma that is then superfluous."""
        whole = spans[0][0], spans[-1][1]
        if start == 0:
            self.note(spans[0][0], spans[stop][0], "", whole)
        else:
            self.note(spans[start - 1][1], spans[stop - 1][1], "", whole)


def tokens(source: str) -> Iterator[Token]:
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        if match is None:
            raise SyntaxError(f"not known: {source[at:][:60]!r}")
        if match.lastgroup != "skip":
            yield Token(match.lastgroup or "", match.group(), at, match.end())
        at = match.end()
