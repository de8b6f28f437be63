"""``python -m benchmarks hits``: what a hit costs, and what it costs when everything goes wrong at once.

A group a module; `hits.groups` is the list of them, `hits.run` runs it.
"""
