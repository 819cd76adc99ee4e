"""Alignment heads: their losses by hand, the links they are taught, and that they learn more than they are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from translate.alignment.aer import score
from translate.alignment.extract import Extraction, word_weights
from translate.alignment.formats import Gold, Link
from translate.alignment.symmetrize import transposed
from translate.config import ModelConfig, SearchConfig, TokenizerConfig
from translate.decoding.aligner import AlignSettings, align, align_both, translations_of, units_of_pair
from translate.decoding.translator import Translator
from translate.errors import DataError, RunError
from translate.models.alignment_head import AlignmentHead
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.text.tokenizer import Tokenizer, train_tokenizer
from translate.training.heads.links import UNKNOWN, links_of
from translate.training.heads.loop import HeadTrainer
from translate.training.heads.losses import agreement_loss, link_loss, link_targets
from translate.training.heads.pairs import HeadPairs, HeadText, read_text
from translate.training.heads.settings import HeadSettings
from translate.training.logging import Reporter
from translate.training.signals import StopSignals

LETTERS = "cdefghijklmn"  # the last ones of words, which tell them apart
SIZES = {"embedding.width": 14, "encoder.width": 6, "attention.width": 10, "decoder.width": 16}


def make_text(count: int, seed: int) -> tuple[HeadText, list[list[Link]]]:
    """Sentences whose words are translated one by one in another order, and the links."""
    generator = np.random.default_rng(seed)
    sources, targets, links = [], [], []
    for _ in range(count):
        words = generator.permutation(list(LETTERS))[: generator.integers(2, 6)]
        order = generator.permutation(len(words))
        sources.append(" ".join(f"ab{word}" for word in words))
        targets.append(" ".join(f"ob{words[place]}" for place in order))
        links.append([Link(int(place), j) for j, place in enumerate(order)])
    return HeadText(sources, targets, [*range(1, count + 1)]), links


def make_runs(kind: Literal["bpe", "word"], vocabularies: tuple[int, int, int, int]) -> tuple[Translator, Translator]:
    """Two models that have learnt nothing, the second back and with pieces of its own."""
    text, _ = make_text(200, seed=1)
    tokenizers = []
    sides = (text.sources, text.targets, text.targets, text.sources)
    for lines, vocabulary in zip(sides, vocabularies, strict=True):
        settings = TokenizerConfig(kind=kind, vocabulary=vocabulary, byte_fallback=False)
        tokenizers.append(Tokenizer(train_tokenizer(lines, settings, 1, lambda _: None)))
    torch.manual_seed(3)
    tree: dict[str, dict[str, object]] = {"embedding": {"tied": "none"}}
    for name, width in SIZES.items():
        section, _, key = name.partition(".")
        tree.setdefault(section, {})[key] = width
    config = ModelConfig.model_validate(tree)
    found = []
    for source, target in (tokenizers[:2], tokenizers[2:]):
        model = Seq2Seq(config, source.size, target.size, 50).eval()
        found.append(Translator(model, source, target, SearchConfig()))
    return found[0], found[1]


@pytest.fixture(scope="module")
def runs() -> tuple[Translator, Translator]:
    return make_runs("bpe", (24, 22, 28, 19))


def trainer_of(
    runs: tuple[Translator, Translator], train: HeadPairs, held_out: HeadPairs, settings: HeadSettings
) -> HeadTrainer:
    return HeadTrainer(*runs, train, held_out, settings, Reporter(quiet=True), StopSignals())


def replace_head(run: Translator, head: AlignmentHead) -> Translator:
    """The same run with a head; the fixture stays as it is."""
    found = Translator(run.model, run.source, run.target, run.search)
    found.head = head
    return found


# -- losses ------------------------------------------------------------------------------------------------------------


def test_targets_share_links_and_name_what_has_none() -> None:
    links = [[Link(0, 0), Link(2, 0), Link(1, 2)], [Link(0, 0)]]
    targets = link_targets(links, [(3, 3), (1, 2)], null=0.25)
    assert targets[0].tolist() == [[0.5, 0, 0.5, 0], [0, 0, 0, 0.25], [0, 1, 0, 0]]
    assert targets[1].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0.25], [0, 0, 0, 0]]


def test_link_loss_by_hand() -> None:
    words = torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]], dtype=torch.float64)
    targets = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 0.25]]], dtype=torch.float64)
    wanted = -(0.5 * math.log(0.2) + 0.5 * math.log(0.3) + 0.25 * math.log(0.1)) / 1.25
    assert float(link_loss(words, targets)) == pytest.approx(wanted, rel=1e-6)


def test_agreement_by_hand() -> None:
    forward = torch.tensor(
        [[[0.7, 0.2, 0.1], [0.3, 0.1, 0.6]]], dtype=torch.float64
    )  # of 2 target words on 2 source words
    backward = torch.tensor([[[0.5, 0.4, 0.1], [0.2, 0.1, 0.7]]], dtype=torch.float64)
    of_tgt = [0.7 * 0.5 + 0.2 * 0.2 + 0.1 * (0.5 * 0.8), 0.3 * 0.4 + 0.1 * 0.1 + 0.6 * (0.6 * 0.9)]
    of_src = [0.5 * 0.7 + 0.4 * 0.3 + 0.1 * (0.3 * 0.7), 0.2 * 0.2 + 0.1 * 0.1 + 0.7 * (0.8 * 0.9)]
    wanted = -sum(map(math.log, of_tgt + of_src)) / 4
    assert float(agreement_loss(forward, backward, [(2, 2)])) == pytest.approx(wanted, rel=1e-6)
    # A second, shorter pair: what its padding holds does not count.
    wide_forward = torch.cat([forward, torch.tensor([[[0.9, 0.0, 0.1], [0.0, 0.0, 0.0]]], dtype=torch.float64)])
    wide_backward = torch.cat([backward, torch.tensor([[[0.8, 0.0, 0.2], [0.0, 0.0, 0.0]]], dtype=torch.float64)])
    one = [0.9 * 0.8 + 0.1 * 0.2, 0.8 * 0.9 + 0.2 * 0.1]
    wanted = (4 * wanted - sum(map(math.log, one))) / 6
    assert float(agreement_loss(wide_forward, wide_backward, [(2, 2), (1, 1)])) == pytest.approx(wanted, rel=1e-6)


def test_two_heads_that_agree_lose_nothing_whether_linked_or_not() -> None:
    forward = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])  # word 1 of the target has no link
    backward = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    assert float(agreement_loss(forward, backward, [(2, 2)])) == pytest.approx(0.0, abs=1e-4)
    assert float(agreement_loss(forward, backward.flip(1), [(2, 2)])) > 1.0


def test_gradients_of_the_losses() -> None:
    generator = torch.Generator().manual_seed(1)
    forward = torch.rand((2, 3, 5), generator=generator, dtype=torch.float64).softmax(dim=-1).requires_grad_()
    backward = torch.rand((2, 4, 4), generator=generator, dtype=torch.float64).softmax(dim=-1).requires_grad_()
    sizes = [(4, 3), (2, 3)]
    assert torch.autograd.gradcheck(lambda a, b: agreement_loss(a, b, sizes), (forward, backward))
    targets = link_targets([[Link(0, 1)], [Link(1, 2), Link(0, 2)]], sizes, 0.5).double()
    assert torch.autograd.gradcheck(lambda a: link_loss(a, targets), (forward,))


# -- what is taught ----------------------------------------------------------------------------------------------------


def test_words_of_a_batch_are_those_of_the_aligner(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(9, seed=2)
    pairs = HeadPairs(*runs, text, AlignSettings(), 0)
    batch = pairs.batch(np.arange(9), torch.device("cpu"))
    generator = torch.Generator().manual_seed(4)
    for place, side in enumerate((batch.forward, batch.backward)):
        weights = torch.rand(
            side.tgt_members.size(0), side.tgt_members.size(1), side.src_members.size(1), generator=generator
        )
        found = side.by_word(weights).numpy()
        for row in range(9):
            src, tgt = units_of_pair(*runs, text.sources[row], text.targets[row], AlignSettings())[place][
                :: 1 - 2 * place
            ]
            own = weights[row, : len(tgt.of_piece), : len(src.of_piece)].numpy()
            wanted = word_weights(own, src.of_piece, tgt.of_piece, len(src.texts), len(tgt.texts))
            np.testing.assert_allclose(found[row, : len(tgt.texts)][:, [*range(len(src.texts)), -1]], wanted, rtol=1e-5)


@pytest.mark.parametrize("shift", [0, 1])
def test_the_links_taught_are_those_that_align_gives(runs: tuple[Translator, Translator], shift: int) -> None:
    text, _ = make_text(12, seed=3)
    align_settings = AlignSettings(Extraction(shift=shift, diagonal=0.01))
    settings = HeadSettings(width=4, null=1.0, method="grow-diag", align=align_settings)
    pairs = HeadPairs(*runs, text, align_settings, 0)
    trainer = trainer_of(runs, pairs, pairs, settings)
    batch = pairs.batch(np.arange(12), torch.device("cpu"))
    targets = trainer._targets(batch, trainer._inputs(batch))
    translations = translations_of(runs[0], text.sources, text.targets)
    wanted = align_both(*runs, text.sources, translations, text.targets, "grow-diag", settings=align_settings)
    links = [sentence.links for sentence in wanted]
    assert len({tuple(some) for some in links}) > 6
    assert torch.equal(targets[0], link_targets(links, batch.sizes, 1.0))
    transposed_sizes = [(num_tgt, num_src) for num_src, num_tgt in batch.sizes]
    assert torch.equal(targets[1], link_targets(list(map(transposed, links)), transposed_sizes, 1.0))


def test_a_lexicon_weighs_what_attention_says(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(40, seed=3)
    settings = HeadSettings(width=4, lexicon=True)
    pairs = HeadPairs(*runs, text, settings.align, 0)
    trainer = trainer_of(runs, pairs, pairs, settings)
    assert trainer.lexicon is not None
    batch = pairs.batch(np.arange(7), torch.device("cpu"))
    inputs = trainer._inputs(batch)
    found = trainer._taught(batch, inputs)
    trainer.lexicon, lexicon = None, trainer.lexicon
    attention = trainer._taught(batch, inputs)
    for row, (src, tgt) in enumerate(batch.words):
        assert pairs.words(row) == (src, tgt) == (text.sources[row].split(" "), text.targets[row].split(" "))
        for side, likely in enumerate(lexicon.look_up(src, tgt)):
            likely = likely if side == 0 else likely.T
            wanted = attention[side][row, : len(likely)].numpy().astype(np.float64)
            wanted *= UNKNOWN
            wanted[:, : likely.shape[1]] *= (likely + UNKNOWN) / UNKNOWN
            wanted /= wanted.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(found[side][row, : len(likely)], wanted, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(found[0], attention[0], atol=0.1)


def test_units_without_spaces_are_what_the_lexicon_counts(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(5, seed=3)
    pairs = HeadPairs(*runs, text, AlignSettings(source_spans=True), 0)
    batch = pairs.batch(np.arange(5), torch.device("cpu"))
    assert [pairs.words(row) for row in range(5)] == batch.words
    assert any(len(src) > len(source.split(" ")) for (src, _), source in zip(batch.words, text.sources, strict=True))


def test_what_is_empty_or_too_long_is_left_out(runs: tuple[Translator, Translator]) -> None:
    text = HeadText(["abc", "", "abc " * 40, "abd"], ["obc", "obc", "obc", "obd"], [1, 2, 3, 4])
    pairs = HeadPairs(*runs, text, AlignSettings(), 20)
    assert (pairs.text.lines, pairs.left_out) == ([1, 4], 2)


def test_links_to_words_that_are_not_there_are_refused(runs: tuple[Translator, Translator]) -> None:
    text = HeadText(["abc abd"], ["obc"], [7])
    pairs = HeadPairs(*runs, text, AlignSettings(), 0, {7: [Link(0, 1)]})
    with pytest.raises(DataError, match=r"line 7: 0-1 links words that do not exist.*2 source and 1 target"):
        pairs.batch(np.arange(1), torch.device("cpu"))


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_heads_are_better_than_the_links_they_were_taught() -> None:
    """Three links in ten are drawn; what words mean shows through all the same."""
    runs = make_runs("word", (20, 20, 20, 20))
    text, links = make_text(2000, seed=5)
    generator = np.random.default_rng(6)
    noisy = []
    for source, some in zip(text.sources, links, strict=True):
        wrong = generator.random(len(some)) < 0.3
        places = generator.integers(0, len(source.split(" ")), len(some))
        noisy.append([Link(int(i), x.target) if bad else x for x, bad, i in zip(some, wrong, places, strict=True)])
    test, gold_links = make_text(60, seed=7)
    gold = [Gold(frozenset(some), frozenset(some)) for some in gold_links]
    told = score(noisy, [Gold(frozenset(some), frozenset(some)) for some in links]).aer
    settings = HeadSettings(
        width=24, steps=150, rounds=1, agreement=0.5, null=0.5, valid_every=50, batch_tokens=500, learning_rate=0.01
    )
    given = dict(zip(text.lines, noisy, strict=True))
    pairs = HeadPairs(*runs, text, settings.align, 0, given)
    held_out, train = pairs.part(np.arange(100)), pairs.part(np.arange(100, 2000))
    trainer = trainer_of(runs, train, held_out, settings)
    validation = trainer.fit()
    given_translations = translations_of(runs[0], test.sources, test.targets)
    attention = score([one.links for one in align(runs[0], test.sources, test.targets)], gold).aer
    forward, backward = (replace_head(run, head) for run, head in zip(runs, trainer.heads.both, strict=True))
    by_head = score([one.links for one in align(forward, test.sources, test.targets)], gold).aer
    translations = translations_of(forward, test.sources, test.targets)
    assert not np.allclose(translations[0].attention, given_translations[0].attention, atol=0.05)
    both = align_both(forward, backward, test.sources, translations, test.targets, "intersect")
    assert attention > 0.5, "models that know nothing align nothing"
    assert 0.15 < told < 0.35
    assert by_head < told / 2
    assert score([one.links for one in both], gold).precision > 1 - told / 2
    assert validation.agreement > 0.7


@pytest.mark.slow
def test_a_lexicon_teaches_what_models_that_know_nothing_cannot() -> None:
    runs = make_runs("word", (20, 20, 20, 20))
    text, _ = make_text(2000, seed=5)
    test, gold_links = make_text(60, seed=7)
    gold = [Gold(frozenset(some), frozenset(some)) for some in gold_links]
    errors = []
    for lexicon in (False, True):
        settings = HeadSettings(
            width=24, steps=100, rounds=1, agreement=0.5, batch_tokens=500, learning_rate=0.01, lexicon=lexicon
        )
        pairs = HeadPairs(*runs, text, settings.align, 0)
        trainer = trainer_of(runs, pairs.part(np.arange(100, 2000)), pairs.part(np.arange(100)), settings)
        trainer.fit()
        forward = replace_head(runs[0], trainer.heads.forward_head)
        errors.append(score([one.links for one in align(forward, test.sources, test.targets)], gold).aer)
    assert errors[0] > 0.4
    assert errors[1] < 0.05


def test_a_second_round_learns_from_the_first(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(30, seed=8)
    settings = HeadSettings(width=4, steps=2, rounds=2, valid_every=1, batch_tokens=400)
    pairs = HeadPairs(*runs, text, settings.align, 0)
    trainer = trainer_of(runs, pairs, pairs, settings)
    trainer.fit()
    assert trainer.step == 4
    assert trainer.teacher is not None
    batch = pairs.batch(np.arange(30), torch.device("cpu"))
    inputs = trainer._inputs(batch)
    torch.manual_seed(1)
    for parameter in trainer.teacher.parameters():  # so short a round changes no link
        torch.nn.init.normal_(parameter)
    second = trainer._targets(batch, inputs)[0]
    trainer.teacher = None
    assert not torch.equal(second, trainer._targets(batch, inputs)[0])


def test_no_time_at_all_gives_heads_as_they_start(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(30, seed=8)
    settings = HeadSettings(width=4, steps=2, rounds=2, minutes=1e-9, batch_tokens=400)
    pairs = HeadPairs(*runs, text, settings.align, 0)
    trainer = trainer_of(runs, pairs, pairs, settings)
    assert np.isfinite(trainer.fit().loss)
    assert trainer.step == 0


def test_the_same_seed_gives_the_same_heads(runs: tuple[Translator, Translator]) -> None:
    text, _ = make_text(30, seed=9)
    heads = []
    for seed in (1, 1, 2):
        settings = HeadSettings(width=4, steps=3, rounds=1, valid_every=2, batch_tokens=300, seed=seed)
        pairs = HeadPairs(*runs, text, settings.align, 0)
        trainer = trainer_of(runs, pairs, pairs, settings)
        trainer.fit()
        heads.append({name: weight.clone() for name, weight in trainer.heads.named_parameters()})
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    assert any(not torch.equal(heads[0][name], heads[2][name]) for name in heads[0])


# -- text --------------------------------------------------------------------------------------------------------------


def test_text_comes_from_files_or_from_the_run(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    data = tiny_run.parent / "data"
    lines = (data / "train.en").read_text().split("\n")
    own = read_text(run, None, None, 1000, 1)
    assert [lines[line - 1] for line in own.lines] == own.sources
    some = read_text(run, None, None, 20, 1)
    assert len(set(some.lines)) == 20
    assert some == read_text(run, None, None, 20, 1) != read_text(run, None, None, 20, 2)
    given = read_text(run, data / "test.en", data / "test.fr", 1000, 1)
    assert given.targets == (data / "test.fr").read_text().split("\n")[:-1]


def test_a_run_without_its_pairs_asks_for_text(own_run: Path) -> None:
    (own_run / "cache" / "train.arrow").unlink()
    with pytest.raises(RunError, match=r"cache/train.arrow.*--source and --target"):
        read_text(Run.open(own_run), None, None, 10, 1)


def test_only_a_pairs_own_words_are_linked() -> None:
    words = np.zeros((1, 3, 4), np.float32)
    words[0, 0, 1], words[0, 1, 3], words[0, 2, 2] = 1.0, 1.0, 1.0
    assert links_of(words, [(2, 2)], AlignSettings()) == [[Link(1, 0)]]
