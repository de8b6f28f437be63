"""A herd: thousands of readers of one key in several processes, all at the same moment.

`herd.flock` is one process of readers, `herd.herd` all of them; `herd.makers` is what they read with in
`python -m benchmarks hits`, `herd.worker` the Celery worker that refreshes for them, `herd.queries` what it loads.
"""
