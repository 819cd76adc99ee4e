"""Pairs as piece ids on disk, and the batches made of them."""
