"""Joining the links of both directions into one set (Och and Ney 2003; Koehn et al. 2005, fig. 1).

fast_align's `atools` and other scripts have slightly different rules for growing and can give other links.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable

from translate.alignment.formats import Link

# Steps to the eight neighbours as (target, source): horizontal and vertical ones before diagonal ones.
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Links = set[Link]
Method = Callable[[Links, Links], Links]


def intersect(forward: Links, backward: Links) -> Links:
    """Keep the links of both directions: the surest ones."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """Keep the links of either direction: the most links."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """Start from the intersection and add neighbouring links of the union that give a word its first link.

    Rounds over the links, by target word, then source word, are repeated until one adds nothing. An added link is
    visited in the same round if its place in the order is still ahead.
    """
    either = forward | backward
    grown = forward & backward
    linked_src, linked_tgt = {link.source for link in grown}, {link.target for link in grown}
    added = True
    while added:
        added = False
        turn = sorted((link.target, link.source) for link in grown)  # sorted is a heap
        while turn:
            place = heapq.heappop(turn)
            for step_tgt, step_src in NEIGHBOURS:
                new = Link(source=place[1] + step_src, target=place[0] + step_tgt)
                if new in grown or new not in either or (new.source in linked_src and new.target in linked_tgt):
                    continue
                grown.add(new)
                linked_src.add(new.source)
                linked_tgt.add(new.target)
                added = True
                if (new.target, new.source) > place:
                    heapq.heappush(turn, (new.target, new.source))
    return grown


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """Grow, then add links of either direction, the forward one first, between two words that have none."""
    grown = grow_diag(forward, backward)
    linked_src, linked_tgt = {link.source for link in grown}, {link.target for link in grown}
    for direction in (forward, backward):
        for link in sorted(direction, key=lambda link: (link.target, link.source)):
            if link.source not in linked_src and link.target not in linked_tgt:
                grown.add(link)
                linked_src.add(link.source)
                linked_tgt.add(link.target)
    return grown


METHODS: dict[str, Method] = {
    "intersect": intersect,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}


def symmetrize(forward: Iterable[Link], backward: Iterable[Link], method: str) -> list[Link]:
    """Join the links of both directions, all of them source-target, by a named method."""
    return sorted(METHODS[method](set(forward), set(backward)))


def transposed(links: Collection[Link]) -> list[Link]:
    """Give target-source links as source-target ones, and the other way round."""
    return [Link(source=link.target, target=link.source) for link in links]


def agreement(forward: Iterable[Collection[Link]], backward: Iterable[Collection[Link]]) -> float:
    """Say how far two directions agree over a corpus: 2|A∩B| / (|A|+|B|), both source-target; 1 for two empty ones."""
    both = total = 0
    for one, other in zip(forward, backward, strict=True):
        both += len(set(one) & set(other))
        total += len(set(one)) + len(set(other))
    return 2 * both / total if total else 1.0
