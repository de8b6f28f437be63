"""The demo: a graph, queries over it and readers that ask for them."""
