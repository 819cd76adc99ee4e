"""What a member of the zoo declares in its own file.

Settings, checks, `translate zoo`, documentation and tests read these declarations: no other file names a member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Member:
    """A member declares all of these itself, except `supports` and `reasons`, which it may inherit.

    The first line of its docstring is its summary.
    """

    name: ClassVar[str]
    """Its name in a configuration."""
    formula: ClassVar[str]
    paper: ClassVar[str]
    """Author, year and equation; or "none: …" with a description."""
    when: ClassVar[str]
    """When to use it."""
    supports: ClassVar[tuple[str, ...]] = ()
    """Optional settings that it works with, by the last part of their names, as in "layers". Others are refused."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """Why it does not support a setting: the rest of a sentence that begins with the member's name."""

    def initialise(self) -> None:
        """Initialise parameters that differ from the default, which is Xavier for matrices and zero for vectors."""
