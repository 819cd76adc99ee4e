"""From attention weights to word alignments, and how good they are. Arrays and text, no torch."""
