"""`simulate`: the policy in a discrete-event simulation, for sizes that no machine here can hold.

Imported on demand, since compiled functions need numba. It imports no other benchmark.
"""
