"""What a member of the zoo declares in its own file.

Settings, checks, `translate zoo`, documentation and tests read these declarations: no other file names a member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Member:
    """A member declares all of these itself, but for `supports` and `reasons`, which it may inherit.

    The first line of its docstring is its summary.
    """

    name: ClassVar[str]
    """The word that chooses it in a configuration."""
    formula: ClassVar[str]
    paper: ClassVar[str]
    """Author, year and equation; "none: …" says what it is instead."""
    when: ClassVar[str]
    """When to use it."""
    supports: ClassVar[tuple[str, ...]] = ()
    """Optional settings that it works with, by their last word, as in "layers". The others are refused."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """For a setting that it does not support: why not, as the rest of a sentence that begins with its name."""

    def initialise(self) -> None:
        """Set the parameters that should not start as the others do: matrices by Xavier, vectors at zero."""
