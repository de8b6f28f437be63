"""``python -m celery`` without imports that a worker never uses: a quarter of the processor time of its start.

Celery's other commands bring a prompt, each plug-in of its command line comes with all of itself (Flower), and the
graph's driver probes for numpy, which the benchmarks need. The acceptance tests start hundreds of workers; those of
the documentation's own commands start the real one.
"""

from __future__ import annotations

import sys
from types import ModuleType

for missing in ("flower", "numpy", "pandas"):
    sys.modules[missing] = None  # type: ignore[assignment]
prompt = ModuleType("click_repl")
prompt.register_repl = lambda group: None  # type: ignore[attr-defined]
sys.modules["click_repl"] = prompt

if __name__ == "__main__":
    from celery.__main__ import main

    main()
