"""Cache stampede: four classic strategies, this project's readers and other caches, on one key, in one run.

`strategies` has a class a file, `origin` is what they spare, and counts what they do not; `scenarios` says what is
played, `group` and `readers` are those who read, `herds` those who read at the same moment.
"""
