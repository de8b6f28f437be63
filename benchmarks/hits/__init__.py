"""`hits`: the cost of a read, alone and when everything goes wrong at once. `hits.run` lists the groups."""
