"""Results: what they are, how they are shown, drawn and kept. Nothing here measures."""
