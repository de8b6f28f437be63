"""A heap of events. A key has at most one; when it gets another one, the old one stays in the heap.

An old event is recognised by its time, which is no longer the key's.
"""

from __future__ import annotations

import math
from typing import Final

from benchmarks.simulate.engine.compiled import compiled_within
from benchmarks.simulate.engine.state import Number, State

NO_KEY: Final = -1


@compiled_within
def schedule(state: State, number: int, at: float) -> None:
    """Set the key's event to this time, in place of any other; beyond the end it never comes."""
    state.keys[number].due = at
    if at < state.counters.shape[1]:
        _push(state, number, at)


@compiled_within
def pop(state: State, until: float) -> tuple[int, float]:
    """Return the key with the next event, and its time, or `NO_KEY` if there is none before ``until``."""
    heap, numbers = state.heap, state.numbers
    while numbers[Number.HEAP] > 0 and heap[0].at < until:
        at, number = float(heap[0].at), int(heap[0].key)
        numbers[Number.HEAP] -= 1
        last = numbers[Number.HEAP]
        heap[0].at = heap[last].at
        heap[0].key = heap[last].key
        _sink(state, 0, last)
        if at == state.keys[number].due:
            state.keys[number].due = math.inf
            return number, at
    return NO_KEY, math.inf


@compiled_within
def _push(state: State, number: int, at: float) -> None:
    heap, numbers = state.heap, state.numbers
    if numbers[Number.HEAP] == len(heap):
        _compact_heap(state)
    slot = numbers[Number.HEAP]
    numbers[Number.HEAP] += 1
    while slot > 0:
        parent = (slot - 1) // 2
        if heap[parent].at <= at:
            break
        heap[slot].at = heap[parent].at
        heap[slot].key = heap[parent].key
        slot = parent
    heap[slot].at = at
    heap[slot].key = number


@compiled_within
def _sink(state: State, slot: int, size: int) -> None:
    heap = state.heap
    at, number = float(heap[slot].at), int(heap[slot].key)
    while True:
        child = 2 * slot + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1].at < heap[child].at:
            child += 1
        if heap[child].at >= at:
            break
        heap[slot].at = heap[child].at
        heap[slot].key = heap[child].key
        slot = child
    heap[slot].at = at
    heap[slot].key = number


@compiled_within
def _compact_heap(state: State) -> None:
    """Make room by keeping only the keys' events, one each, for which the heap has room twice."""
    heap = state.heap
    kept = 0
    for slot in range(state.numbers[Number.HEAP]):
        if heap[slot].at == state.keys[heap[slot].key].due:
            heap[kept].at = heap[slot].at
            heap[kept].key = heap[slot].key
            kept += 1
    state.numbers[Number.HEAP] = kept
    for slot in range(kept // 2 - 1, -1, -1):
        _sink(state, slot, kept)
