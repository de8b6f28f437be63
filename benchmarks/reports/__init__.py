"""Results: their types, tables, charts and files. Nothing here measures."""
