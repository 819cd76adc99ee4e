"""Pairs as piece ids on disk, and batches of them."""
