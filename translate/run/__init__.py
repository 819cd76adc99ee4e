"""The run directory: its files, checkpoints and alignment head."""
