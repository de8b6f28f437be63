"""`hits`: the cost of a read, alone and when everything goes wrong at once. `hits.run` lists the groups.

It imports no other benchmark; what two of them need is in `competitors`, `reports` and `apparatus`.
"""
