"""A calendar queue: a list of keys for each hundredth of a second to come, and a heap for the one that has come.

A key has one event at most. When it gets another one it leaves the list of the old; in the heap the old one stays, and
is known by its time, which is not the key's any more.
"""

from __future__ import annotations

import math
from typing import Final

from benchmarks.simulate.compiled import compiled_within
from benchmarks.simulate.records import CURRENT, HEAP, State

NOBODY: Final = -1
PLACES_A_SECOND: Final = 100


@compiled_within
def schedule(state: State, number: int, at: float) -> None:
    """Let the key's event be at this time, instead of any other; beyond the end it never comes."""
    keys, heads = state.keys, state.heads
    _leave(state, number)
    key = keys[number]
    key.due = at
    if at * PLACES_A_SECOND >= len(heads):
        return
    place = int(at * PLACES_A_SECOND)
    if place <= state.numbers[CURRENT]:
        _push(state, number, at)
        return
    head = heads[place]
    key.before = NOBODY
    key.after = head
    if head != NOBODY:
        keys[head].before = number
    heads[place] = number


@compiled_within
def open_place(state: State, place: int) -> None:
    """Let the time of this list come: its events go into the heap."""
    state.numbers[CURRENT] = place
    number = int(state.heads[place])
    while number != NOBODY:
        key = state.keys[number]
        _push(state, number, float(key.due))
        number = int(key.after)


@compiled_within
def pop(state: State) -> tuple[int, float]:
    """Return the key whose event is next in the list that is open, and its time; NOBODY: there is none."""
    heap, numbers = state.heap, state.numbers
    while numbers[HEAP] > 0:
        at, number = float(heap[0].at), int(heap[0].key)
        numbers[HEAP] -= 1
        last = numbers[HEAP]
        heap[0].at = heap[last].at
        heap[0].key = heap[last].key
        _sink(state, 0, last)
        if at == state.keys[number].due:
            state.keys[number].due = math.inf
            return number, at
    return NOBODY, math.inf


@compiled_within
def _leave(state: State, number: int) -> None:
    key = state.keys[number]
    due = float(key.due) * PLACES_A_SECOND
    if due >= len(state.heads) or int(due) <= state.numbers[CURRENT]:
        return
    before, after = int(key.before), int(key.after)
    if before == NOBODY:
        state.heads[int(due)] = after
    else:
        state.keys[before].after = after
    if after != NOBODY:
        state.keys[after].before = before


@compiled_within
def _push(state: State, number: int, at: float) -> None:
    heap, numbers = state.heap, state.numbers
    if numbers[HEAP] == len(heap):
        _drop_old(state)
    place = numbers[HEAP]
    numbers[HEAP] += 1
    while place > 0:
        parent = (place - 1) // 2
        if heap[parent].at <= at:
            break
        heap[place].at = heap[parent].at
        heap[place].key = heap[parent].key
        place = parent
    heap[place].at = at
    heap[place].key = number


@compiled_within
def _sink(state: State, place: int, size: int) -> None:
    heap = state.heap
    at, number = float(heap[place].at), int(heap[place].key)
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1].at < heap[child].at:
            child += 1
        if heap[child].at >= at:
            break
        heap[place].at = heap[child].at
        heap[place].key = heap[child].key
        place = child
    heap[place].at = at
    heap[place].key = number


@compiled_within
def _drop_old(state: State) -> None:
    """Make room: what is left are events of keys, one each, which the heap can hold twice."""
    heap = state.heap
    kept = 0
    for place in range(state.numbers[HEAP]):
        if heap[place].at == state.keys[heap[place].key].due:
            heap[kept].at = heap[place].at
            heap[kept].key = heap[place].key
            kept += 1
    state.numbers[HEAP] = kept
    for place in range(kept // 2 - 1, -1, -1):
        _sink(state, place, kept)
