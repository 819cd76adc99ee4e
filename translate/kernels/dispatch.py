"""Which code computes a result: a kernel, or its plain twin in `reference.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch

from translate.machine import kernels_setting

P = ParamSpec("P")
T = TypeVar("T")


class Kernel(NamedTuple):
    """A fast function and the plain torch code that gives the same values and gradients."""

    fast: Callable[..., Any]
    twin: Callable[..., Any]


KERNELS: dict[str, Kernel] = {}
_plain: set[str] = set()  # the names of those whose twin is used


def kernel(twin: Callable[P, T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a function as the kernel of a plain twin; callers run the one that is in use."""

    def mark(fast: Callable[P, T]) -> Callable[P, T]:
        name = fast.__name__
        assert name == twin.__name__, f"{name} and its twin {twin.__name__} have one name"
        KERNELS[name] = Kernel(fast, twin)
        if kernels_setting() == "reference":
            _plain.add(name)

        @functools.wraps(fast)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> T:
            return twin(*args, **kwargs) if uses_twin(name) else fast(*args, **kwargs)

        return chosen

    return mark


def uses_twin(name: str) -> bool:
    """Whether the plain twin is used: everywhere in a reference run, and always while torch.compile traces."""
    return name in _plain or torch.compiler.is_compiling()


@contextmanager
def plain(*names: str) -> Iterator[None]:
    """In this context these kernels are replaced by their twins; all of them if none is named."""
    before = set(_plain)
    _plain.update(names or KERNELS)
    try:
        yield
    finally:
        _plain.clear()
        _plain.update(before)
