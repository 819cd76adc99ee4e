"""Symmetrisation against the published definition, read word by word over full matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.alignment.formats import Link, parse_pharaoh
from translate.alignment.symmetrize import METHODS, agreement, symmetrize, transposed

NUM_SRC, NUM_TGT = 6, 5
link_sets = st.frozensets(st.builds(Link, st.integers(0, NUM_SRC - 1), st.integers(0, NUM_TGT - 1)), max_size=14)


def as_matrix(links: frozenset[Link]) -> np.ndarray:
    matrix = np.zeros((NUM_TGT, NUM_SRC), dtype=bool)
    for link in links:
        matrix[link.target, link.source] = True
    return matrix


def read_literally(forward: frozenset[Link], backward: frozenset[Link], method: str) -> set[Link]:
    """Koehn et al. 2005, figure 1, loop by loop."""
    one, other = as_matrix(forward), as_matrix(backward)
    if method == "union":
        return links_of(one | other)
    links = one & other
    if method == "intersect":
        return links_of(links)
    neighbouring = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
    added = True
    while added:
        added = False
        for e in range(NUM_TGT):
            for f in range(NUM_SRC):
                if not links[e, f]:
                    continue
                for step_e, step_f in neighbouring:
                    e_new, f_new = e + step_e, f + step_f
                    if not (0 <= e_new < NUM_TGT and 0 <= f_new < NUM_SRC):
                        continue
                    unaligned = not links[e_new, :].any() or not links[:, f_new].any()
                    if unaligned and (one | other)[e_new, f_new]:
                        links[e_new, f_new] = added = True
    if method == "grow-diag-final-and":
        for direction in (one, other):
            for e in range(NUM_TGT):
                for f in range(NUM_SRC):
                    if direction[e, f] and not links[e, :].any() and not links[:, f].any():
                        links[e, f] = True
    return links_of(links)


def links_of(matrix: np.ndarray) -> set[Link]:
    return {Link(int(source), int(target)) for target, source in np.argwhere(matrix)}


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=150)
@given(forward=link_sets, backward=link_sets)
def test_each_method_is_its_definition(method: str, forward: frozenset[Link], backward: frozenset[Link]) -> None:
    assert set(symmetrize(forward, backward, method)) == read_literally(forward, backward, method)


@given(link_sets, link_sets)
def test_methods_lie_inside_each_other(forward: frozenset[Link], backward: frozenset[Link]) -> None:
    joined = [set(symmetrize(forward, backward, method)) for method in METHODS]
    intersection, union, grown, final = joined
    assert intersection <= grown <= final <= union


@pytest.mark.parametrize("method", METHODS)
@given(links=link_sets)
def test_full_agreement_changes_nothing(method: str, links: frozenset[Link]) -> None:
    assert symmetrize(links, links, method) == sorted(links)


def test_a_case_drawn_by_hand() -> None:
    forward, backward = parse_pharaoh("0-0 1-1 2-1 4-4", "f:1"), parse_pharaoh("0-0 1-1 1-2 3-3", "b:1")
    assert symmetrize(forward, backward, "intersect") == [(0, 0), (1, 1)]
    # 2-1 gives source word 2 and 1-2 gives target word 2 its first link; 3-3 and 4-4 touch nothing that was linked.
    assert symmetrize(forward, backward, "grow-diag") == [(0, 0), (1, 1), (1, 2), (2, 1)]
    assert symmetrize(forward, backward, "grow-diag-final-and") == [(0, 0), (1, 1), (1, 2), (2, 1), (3, 3), (4, 4)]


def test_directions_are_turned_and_compared() -> None:
    assert transposed([Link(1, 2)]) == [Link(2, 1)]
    one = [[Link(0, 0), Link(1, 1)], [Link(0, 0)]]
    other = [[Link(0, 0)], []]
    assert agreement(one, other) == pytest.approx(2 * 1 / (3 + 1))
    assert agreement([[]], [[]]) == 1.0
