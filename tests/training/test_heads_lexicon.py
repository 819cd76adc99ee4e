"""The lexicon: its passes against a plain reading of them, and that it finds what words mean."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from translate.training.heads import lexicon as module
from translate.training.heads.lexicon import DIAGONAL, LEAST, NULL, Lexicon, WordPair, agreed, learn_lexicon

TEXT = [
    ("das haus ist alt", "the house is old"),
    ("das Haus", "the house"),
    ("ein altes haus ist das", "that is an old house"),
    ("das ist das buch", "this is the book"),
    ("ein buch", "a book"),
    ("ist das alt", "is it old"),
]


def split(text: list[tuple[str, str]]) -> list[WordPair]:
    return [(source.split(" "), target.split(" ")) for source, target in text]


def table(found: Lexicon, pairs: list[WordPair]) -> dict[tuple[str, str], tuple[float, float]]:
    """What the lexicon says of all pairs of words of a text."""
    src, tgt = (sorted({word.lower() for pair in pairs for word in pair[side]}) for side in (0, 1))
    forward, backward = found.look_up(src, tgt)
    assert forward.shape == backward.shape == (len(tgt), len(src))
    return {
        (x, y): (float(forward[j, i]), float(backward[j, i]))
        for i, x in enumerate(src)
        for j, y in enumerate(tgt)
        if forward[j, i] or backward[j, i]
    }


def plain_passes(pairs: list[WordPair], passes: int) -> dict[tuple[str, str], tuple[float, float]]:
    """The same passes word by word."""
    num_src, num_tgt = (len({word.lower() for pair in pairs for word in pair[side]}) for side in (0, 1))
    forward: dict[tuple[str, str], float] = defaultdict(lambda: 1 / num_tgt)
    backward: dict[tuple[str, str], float] = defaultdict(lambda: 1 / num_src)
    for _ in range(passes):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for source, target in pairs:
            src, tgt = ([word.lower() for word in side] for side in (source, target))
            near = [
                [math.exp(-DIAGONAL * abs((i + 0.5) / len(src) - (j + 0.5) / len(tgt))) for i in range(len(src))]
                for j in range(len(tgt))
            ]
            for j, y in enumerate(tgt):
                for i, x in enumerate(src):
                    column = [near[k][i] for k in range(len(tgt))]
                    ours = [forward[a, y] * near[j][k] / sum(near[j]) for k, a in enumerate(src)]
                    theirs = [backward[x, b] * column[k] / sum(column) for k, b in enumerate(tgt)]
                    of_tgt = ours[i] / (sum(ours) + NULL / num_tgt)
                    counts[x, y] += of_tgt * theirs[j] / (sum(theirs) + NULL / num_src)
        of_src, of_tgt_word = defaultdict[str, float](float), defaultdict[str, float](float)
        for (x, y), count in counts.items():
            of_src[x] += count
            of_tgt_word[y] += count
        forward.update({(x, y): count / of_src[x] for (x, y), count in counts.items()})
        backward.update({(x, y): count / of_tgt_word[y] for (x, y), count in counts.items()})
    return {pair: (forward[pair], backward[pair]) for pair in counts if max(forward[pair], backward[pair]) >= LEAST}


@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("block", [1, 9, 1000])
def test_passes_are_those_of_a_plain_reading(passes: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    pairs = split(TEXT)
    found, wanted = table(learn_lexicon(pairs, passes), pairs), plain_passes(pairs, passes)
    assert found.keys() == wanted.keys()
    for pair, shares in wanted.items():
        assert found[pair] == pytest.approx(shares, rel=1e-4), pair


def test_the_order_of_the_pairs_does_not_matter_and_turning_them_turns_the_lexicon() -> None:
    pairs = split(TEXT)
    forward = table(learn_lexicon(pairs), pairs)
    turned = [(target, source) for source, target in pairs]
    backward = table(learn_lexicon(turned[::-1]), turned)
    assert len(forward) == len(backward) > 10
    for (x, y), (ours, theirs) in forward.items():
        assert backward[y, x] == pytest.approx((theirs, ours), rel=1e-3)


def test_a_pair_with_a_side_of_no_words_changes_nothing() -> None:
    pairs = split(TEXT)
    assert table(learn_lexicon([*pairs, ([], ["old"]), (["das"], []), ([], [])]), pairs) == table(
        learn_lexicon(pairs), pairs
    )


def test_agreement_is_a_product_of_distributions_and_null() -> None:
    generator = torch.Generator().manual_seed(2)
    forward, backward = (torch.rand((3, 4, 5), generator=generator, dtype=torch.float64) for _ in range(2))
    both = agreed(forward, backward, (0.0, 0.0))
    assert both.shape == (3, 4, 5)
    assert bool((both > 0).all())
    assert bool((both.sum(dim=1) <= 1).all())
    assert bool((both.sum(dim=2) <= 1).all())
    assert bool((agreed(forward, backward, (0.1, 0.0)) < both).all())
    assert bool((agreed(forward, backward, (0.0, 0.1)) < both).all())
    alone = torch.ones((2, 1, 1), dtype=torch.float64)
    assert agreed(alone, alone, (0.0, 0.0)).flatten().tolist() == [1.0, 1.0]


def test_words_are_found_in_any_order_and_case() -> None:
    """Words are translated one by one and shuffled; function words that are everywhere do not attract the rest."""
    generator = np.random.default_rng(3)
    names = [f"w{number}" for number in range(40)]
    pairs: list[WordPair] = []
    for _ in range(300):
        words = ["the", *generator.choice(names, generator.integers(2, 7), replace=False)]
        order = generator.permutation(len(words))
        pairs.append(([w.upper() if generator.random() < 0.3 else w for w in words], [f"{words[k]}'" for k in order]))
    found = learn_lexicon(pairs)
    forward, backward = found.look_up(["THE", *names], ["the'", *(f"{name}'" for name in names)])
    assert (forward.argmax(axis=0) == np.arange(41)).all()
    assert (backward.argmax(axis=1) == np.arange(41)).all()
    assert np.diag(forward).min() > 0.8


def test_words_that_never_met_and_unknown_words_are_no_translations() -> None:
    found = learn_lexicon(split(TEXT))
    forward, backward = found.look_up(["buch", "Haus", "zebra"], ["house", "zebra"])
    assert forward.shape == backward.shape == (2, 3)
    assert not forward[:, [0, 2]].any()
    assert not backward[:, [0, 2]].any()
    assert not forward[1].any()
    assert forward[0, 1] > 0.5
    assert (np.diff(found.keys) > 0).all()
