"""mkdocs hook that draws sequence diagrams. GitHub draws them itself; mkdocs would need a script from another host.

Supports the Mermaid syntax that the pages use: participants, three arrows, notes, loops. Anything else fails the build.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any, Final

_BLOCK: Final = re.compile(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PARTICIPANT: Final = re.compile(r"participant (\w+) as (.+)")
_MESSAGE: Final = re.compile(r"(\w+?)(->>|-->>|-\))(\w+): (.+)")
_NOTE: Final = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")
_LOOP: Final = re.compile(r"loop (.+)")

CHARACTER_PX: Final = 6.7
MAX_LINE: Final = 34
LINE_PX: Final = 14
ROW_PX: Final = 30
GAP_PX: Final = 120
MARGIN_PX: Final = 80


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each diagram by a drawing."""
    return _BLOCK.sub(lambda block: drawn(block[1]), markdown)


def drawn(source: str) -> str:
    """Return a diagram as SVG, in the colours of the page.

    Raises:
        ValueError: a line that is not supported.
    """
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    people = dict(found.groups() for line in lines if (found := _PARTICIPANT.fullmatch(line)))
    steps = [line for line in lines if not line.startswith("participant ")]
    drawing = _Drawing(_columns(people, steps))
    drawing.heads(people)
    for step in steps:
        drawing.step(step)
    return drawing.svg()


def _columns(people: dict[str, str], steps: list[str]) -> dict[str, float]:
    """Return the position of each participant: as far from the next one as the texts between them require."""
    names = list(people)
    gaps = dict.fromkeys(pairwise(names), float(GAP_PX))
    for sender, _, receiver, text in (found.groups() for step in steps if (found := _MESSAGE.fullmatch(step))):
        first, last = sorted((names.index(sender), names.index(receiver)))
        between = list(pairwise(names[first : last + 1]))
        for pair in between:
            longest = max(map(len, wrap(text, MAX_LINE)))
            gaps[pair] = max(gaps[pair], (longest * CHARACTER_PX + 20) / len(between))
    columns, x = {names[0]: float(MARGIN_PX)}, float(MARGIN_PX)
    for (_, name), gap in gaps.items():
        columns[name] = x = x + gap
    return columns


@dataclass
class _Drawing:
    columns: dict[str, float]
    parts: list[str] = field(default_factory=list)
    y: float = 50.0
    widest: float = 0.0

    def heads(self, people: dict[str, str]) -> None:
        for name, label in people.items():
            self.text(self.columns[name], 18, label, "middle", "head")

    def step(self, line: str) -> None:
        """Draw one line."""
        if found := _MESSAGE.fullmatch(line):
            self.message(*found.groups())
        elif found := _NOTE.fullmatch(line):
            at = [self.columns[name] for name in found.groups()[:2] if name]
            self.text(sum(at) / len(at), self.y, found[3], "middle", "note")
        elif found := _LOOP.fullmatch(line):
            self.text(10, self.y, f"↻ {found[1]}:", "start", "note")
        elif line != "end":
            raise ValueError(f"not known in a sequence diagram here: {line!r}")
        self.y += ROW_PX if line != "end" else 0

    def message(self, sender: str, arrow: str, receiver: str, text: str) -> None:
        """Draw a message, or a participant's message to itself."""
        start, end = self.columns[sender], self.columns[receiver]
        kind = {"->>": "", "-->>": "answer", "-)": "apart"}[arrow]
        if start == end:
            self.text(start + 8, self.y, f"↺ {text}", "start", kind)
            return
        for number, line in enumerate(lines := wrap(text, MAX_LINE)):
            self.text((start + end) / 2, self.y - 5 + number * LINE_PX, line, "middle", kind)
        self.y += (len(lines) - 1) * LINE_PX
        head = 7 if end < start else -7
        self.parts.append(
            f'<path class="{kind}" d="M{start:.0f} {self.y:.0f}H{end:.0f}"/>'
            f'<path d="M{end + head:.0f} {self.y - 4:.0f}L{end:.0f} {self.y:.0f}L{end + head:.0f} {self.y + 4:.0f}"/>'
        )

    def text(self, x: float, y: float, text: str, anchor: str, kind: str) -> None:
        """Add a text, and record its extent."""
        share = {"start": 1.0, "middle": 0.5}[anchor]
        self.widest = max(self.widest, x + len(text) * CHARACTER_PX * share)
        self.parts.append(f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>')

    def svg(self) -> str:
        """Return the drawing on one line, which Markdown leaves unchanged."""
        lives = "".join(
            f'<path class="life" d="M{x:.0f} 26V{self.y - ROW_PX / 2:.0f}"/>' for x in self.columns.values()
        )
        size = f"0 0 {max(self.widest, *self.columns.values()) + 10:.0f} {self.y:.0f}"
        return f'<div class="sequence"><svg viewBox="{size}" role="img">{lives}{"".join(self.parts)}</svg></div>'
