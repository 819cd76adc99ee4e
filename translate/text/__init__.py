"""Pairs of sentences from files, their filters, and the pieces they are cut into."""
