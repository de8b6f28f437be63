"""Entries of what was loaded: terms, header and payload; and how many of them are committed at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from api_client.protocol.entry import encode as encode_entry
from api_client.protocol.payload import Packed, pack
from refresher.errors import LoadFailed, text_of
from refresher.flow.ports import Encode
from refresher.flow.run import LoadedEntry, Run, header_of
from refresher.flow.terms import terms_of
from refresher.queries import Loaded, Query
from refresher.results import Previous
from refresher.settings import WorkerSettings


def entry_of(
    query: Query,
    run: Run,
    loaded: Loaded,
    read_started_us: int,
    previous: Previous | None,
    *,
    encode: Encode,
    settings: WorkerSettings,
    u: float,
) -> LoadedEntry | LoadFailed:
    """Return the entry of what a run has loaded, or why it has none; of an unchanged value it is a header alone."""
    try:
        terms = terms_of(query, loaded, run.key.params, run.before if previous else None)
        unchanged = run.before if terms.is_unchanged else None
        if unchanged:
            packed = Packed(b"", unchanged.is_compressed, unchanged.has_arrays)
        else:
            encoded = encode(terms.value, query=query.name, max_bytes=settings.max_value_bytes)
            packed = pack(encoded, settings.compress_min_bytes)
    except LoadFailed as failure:
        failure.locate(query.loader)
        return failure
    try:
        header = header_of(run, query, terms, loaded.degree, read_started_us, settings, u)
    except ValueError as error:
        return LoadFailed("beta_function", text_of(error), is_transient=False)
    header = msgspec.structs.replace(header, is_compressed=packed.is_compressed, has_arrays=packed.has_arrays)
    content = encode_entry(header, run.key.digest, packed.content)
    return LoadedEntry(content, terms.hard_ttl_seconds, terms.tags, unchanged.nonce if unchanged else b"")


def parts_of(
    results: Iterable[tuple[Run, LoadedEntry | LoadFailed]], max_bytes: int
) -> Iterator[list[tuple[Run, LoadedEntry | LoadFailed]]]:
    """Divide results so that the entries of a part take no more than ``max_bytes``, but for one that is larger."""
    part: list[tuple[Run, LoadedEntry | LoadFailed]] = []
    size = 0
    for run, entry in results:
        more = len(entry.content) if isinstance(entry, LoadedEntry) else 0
        if part and size + more > max_bytes:
            yield part
            part, size = [], 0
        part.append((run, entry))
        size += more
    yield part
