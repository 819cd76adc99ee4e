"""Given links become where pieces should look, and attention learns it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from translate.alignment.formats import parse_gold
from translate.config import TokenizerConfig
from translate.data.batches import collate, collate_shard
from translate.data.dataset import PairDataset
from translate.data.spelling import Spelling
from translate.errors import ConfigError, DataError
from translate.text.tokenizer import Tokenizer, train_tokenizer
from translate.training.extra_losses import guided_loss
from translate.training.guided import Guide

PAIRS = [("the little dog", "le petit chien"), ("she sees", "elle voit"), ("the dog sees", "le chien voit")]


@pytest.fixture(scope="module", params=["unigram", "char", "word"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    lines = [line for pair in PAIRS for line in pair] * 5
    return Tokenizer(train_tokenizer(lines, TokenizerConfig(kind=request.param, vocabulary=320), 1, lambda _: None))


@pytest.fixture
def pairs(tokenizer: Tokenizer) -> PairDataset:
    return PairDataset.from_pairs([(tokenizer.encode(source), tokenizer.encode(target)) for source, target in PAIRS])


def guide_of(tmp_path: Path, lines: list[str], pairs: PairDataset, tokenizer: Tokenizer) -> Guide:
    (tmp_path / "links").write_text("".join(line + "\n" for line in lines))
    return Guide(tmp_path / "links", pairs, tokenizer, tokenizer)


def test_every_piece_looks_at_the_pieces_of_linked_words(
    tmp_path: Path, pairs: PairDataset, tokenizer: Tokenizer
) -> None:
    lines = ["0-0 1-1 2p2 1-2", "", "2-2"]
    guide = guide_of(tmp_path, lines, pairs, tokenizer)
    for row, (source, target) in enumerate(PAIRS):
        links = parse_gold(lines[row], "here").possible
        src_ids, src_words = tokenizer.encode_words(source)
        tgt_ids, tgt_words = tokenizer.encode_words(target)
        matrix = guide.of_pieces(row + 1, src_ids, tgt_ids)
        assert matrix.shape == (len(tgt_ids) + 1, len(src_ids) + 1)
        assert not matrix[-1].any()
        assert not matrix[:, -1].any()
        for t, j in enumerate(tgt_words):
            wanted = np.array([(i, j) in links for i in src_words], float)
            np.testing.assert_allclose(matrix[t, :-1], wanted / max(wanted.sum(), 1), rtol=1e-6)
    batch = collate(pairs, np.array([2, 0]))
    targets = guide.targets(batch)
    assert targets.shape == (*batch.tgt_out.shape, batch.src.size(1))
    for place, row in enumerate((2, 0)):
        matrix = guide.of_pieces(row + 1, *(side.tolist() for side in pairs[row]))
        np.testing.assert_array_equal(targets[place, : matrix.shape[0], : matrix.shape[1]], matrix)
        assert float(targets[place].sum()) == pytest.approx(float(matrix.sum()))


def test_pieces_that_are_spelt_anew_are_guided_as_they_are(tmp_path: Path) -> None:
    sides = [line for pair in PAIRS for line in pair]
    settings = TokenizerConfig(kind="unigram", vocabulary=320)
    tokenizer = Tokenizer(train_tokenizer(sides * 5, settings, 1, lambda _: None))
    pairs = PairDataset.from_pairs([(tokenizer.encode(source), tokenizer.encode(target)) for source, target in PAIRS])
    guide = guide_of(tmp_path, ["0-0 1-1 2-2", "0-0 1-1", "0-0 1-1 2-2"], pairs, tokenizer)
    spelt = Spelling(tokenizer, tokenizer, 16, 0.1, 3, 0)
    batch = collate_shard(pairs, np.arange(3), 0, 1, epoch=1, respell=spelt)
    assert batch.num_tokens != int(pairs.tgt_lengths.sum()), "nothing is spelt anew"
    targets = guide.targets(batch)
    for place in range(3):
        src = batch.src[place, : int(batch.src_lengths[place]) - 1].tolist()
        tgt = batch.tgt_out[place, : int(batch.tgt_valid[place].sum()) - 1].tolist()
        src_words, tgt_words = (tokenizer.decode_words(ids)[1] for ids in (src, tgt))
        for t, word in enumerate(tgt_words):
            looked_at = {src_words[s] for s in targets[place, t, : len(src)].nonzero().flatten().tolist()}
            assert looked_at == {word} - {-1}, "a space by itself is in no word"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", ""], "has 2 lines of links"),
        (["", "", "0-7"], ":3: 0-7 links words that do not exist"),
        (["", "2-1 0-0", ""], "2 source and 2 target words"),
    ],
)
def test_links_that_do_not_fit_are_refused(
    tmp_path: Path, pairs: PairDataset, tokenizer: Tokenizer, lines: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        guide_of(tmp_path, lines, pairs, tokenizer)


def test_the_loss_is_a_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(2, 3, 4, generator=generator, dtype=torch.float32).softmax(dim=2).requires_grad_()
    guide = torch.zeros(2, 3, 4)
    guide[0, 0, 1] = 1.0
    guide[0, 1, [0, 3]] = 0.5
    guide[1, 2, 2] = 1.0  # padding, which does not count
    valid = torch.tensor([[True, True, True], [True, True, False]])
    loss = guided_loss(weights, guide, valid)
    by_hand = -(weights[0, 0, 1].log() + (weights[0, 1, 0].log() + weights[0, 1, 3].log()) / 2)
    torch.testing.assert_close(loss, by_hand, rtol=1e-4, atol=1e-4)
    loss.backward()
    assert weights.grad is not None
    assert torch.equal(weights.grad != 0, guide.bool() & valid.unsqueeze(2))
    assert torch.isfinite(guided_loss(torch.zeros(2, 3, 4), guide, valid))


@pytest.mark.slow
def test_guided_training_learns_the_links(
    new_project: Callable[[Path], Path], tmp_path: Path, translate: Any, command_line: Callable[..., Any]
) -> None:
    """After as few updates as these, a model without a guide knows next to nothing of links."""
    config = new_project(tmp_path / "project")
    data = tmp_path / "project" / "data"
    guided = (f"train.guided.links={data / 'train.align'}", "train.guided.weight=2")
    gold = ("--source", data / "test.en", "--target", data / "test.fr", "--gold", data / "test.align", "--json")
    rates = {}
    for name, more in (("plain", ()), ("guided", guided)):
        brief = ("train.steps=80", "train.valid_every=80", "--no-test", "--run", tmp_path / name)
        done = translate("train", config, *more, *brief)
        assert done.returncode == 0, done.stderr
        rates[name] = json.loads(command_line("align", tmp_path / name, *gold).out)["aer"]
    assert rates["guided"] < rates["plain"] - 0.1
    # A run goes on only with the links it was started with.
    links = (data / "train.align").read_text()
    (data / "train.align").write_text(links.replace("0-0", "", 1))
    more = (*guided, "train.steps=81", "train.valid_every=80", "--no-test", "--resume")
    refused = translate("train", config, *more, "--run", tmp_path / "guided")
    assert refused.returncode == 2
    assert "has changed since" in refused.stderr


def test_what_cannot_be_guided_is_refused(project: Path, tmp_path: Path) -> None:
    from translate.config import load_config

    links = f"train.guided.links={tmp_path / 'links'}"
    for more, message in (
        ("model.decoder.kind=plain", "'plain' has no attention"),
        ("model.attention.selection=hard_gumbel", "takes one position"),
        ("train.guided.weight=0", "greater than 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(project, [links, more])
    config = load_config(project, ["train.guided.links=mine.align"])
    assert config.train.guided.links == str(Path.cwd() / "mine.align")
