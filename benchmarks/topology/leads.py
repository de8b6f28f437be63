"""How early refreshes were asked for, by the degree of their key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.statistics import percentile
from benchmarks.tables import Table
from benchmarks.topology.cell import Outcome
from benchmarks.topology.levels import GraphKind, Mode, Setting
from benchmarks.topology.options import BASE_BETA, BASE_PAUSE_SECONDS


def leads_ms(outcomes: Iterable[Outcome], setting: Setting, mode: Mode) -> dict[int, list[float]]:
    """Return leads by bucket of degrees: bucket b holds degrees from 2**b to 2**(b+1) - 1.

    Of the cells with the usual β0 and an added pause, so that δ is about the same in all of them.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for outcome in outcomes:
        who, point = outcome.cell.contestant, outcome.cell.point
        is_one = who.setting is setting and who.mode is mode and who.beta0 == BASE_BETA
        if is_one and point.pause_seconds == BASE_PAUSE_SECONDS:
            for lead in outcome.leads:
                found[max(lead.degree, 1).bit_length() - 1].append(lead.seconds * 1000)
    return dict(sorted(found.items()))


def leads_table(graph: GraphKind, outcomes: Sequence[Outcome]) -> Table:
    """Return the table: for each degree when early refreshes began, in both settings."""
    rows = [
        (
            setting.value, mode.value, _degrees(bucket), len(leads),
            *(percentile(leads, percent) for percent in (10, 50, 90)),
        )
        for setting in Setting
        for mode in (Mode.PLAIN, Mode.TOPOLOGY)
        for bucket, leads in leads_ms(outcomes, setting, mode).items()
    ]  # fmt: skip
    columns = ("refreshed_by", "mode", "degree", "early_refreshes", "p10_ms", "p50_ms", "p90_ms")
    title = "how long before the soft expiry early refreshes were asked for, β0 = 1, δ about 50 ms"
    return Table(f"leads-{graph}", title, columns, tuple(rows))


def _degrees(bucket: int) -> str:
    low, high = 2**bucket, 2 ** (bucket + 1) - 1
    return str(low) if low == high else f"{low}–{high}"
