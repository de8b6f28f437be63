"""``python -m celery`` without imports that a worker never uses: a third of the processor time of its start.

Celery's other commands bring a prompt, each plug-in of its command line comes with all of itself (Flower), and the
graph's driver probes for numpy, which the benchmarks need. Garbage is collected once all is imported. The acceptance
tests start hundreds of workers; those of the documentation's own commands start the real one.
"""

from __future__ import annotations

import gc
import sys
from types import ModuleType

gc.disable()
for missing in ("flower", "numpy", "pandas"):
    sys.modules[missing] = None  # type: ignore[assignment]
prompt = ModuleType("click_repl")
prompt.register_repl = lambda group: None  # type: ignore[attr-defined]
sys.modules["click_repl"] = prompt

if __name__ == "__main__":
    from celery.__main__ import main
    from celery.signals import worker_init

    worker_init.connect(lambda **_: gc.enable(), weak=False)
    main()
