"""Train your own attention-based translator from the command line, and see how it thinks."""

__version__ = "0.1.0"
