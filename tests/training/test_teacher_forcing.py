"""Scheduled sampling: how the share of reference tokens moves, and what the decoder is then fed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from translate.config import ModelConfig, TeacherForcingConfig
from translate.models.seq2seq import Seq2Seq
from translate.models.state import Decoded, EncodedSource
from translate.text.tokenizer import BOS, PAD
from translate.training.teacher_forcing import decode_mixed, ratio_at

SRC_VOCABULARY, TGT_VOCABULARY, BATCH, STEPS = 13, 11, 3, 6
OWN = 5  # the one word that an `obsessed` model writes, and that no reference holds
DECODERS = {
    "bahdanau": {"kind": "bahdanau", "layers": 2},
    "luong": {"kind": "luong", "input_feeding": True},
    "luong-unfed": {"kind": "luong", "input_feeding": False},
    "plain": {"kind": "plain"},
}
every_decoder = pytest.mark.parametrize("name", DECODERS)


def make_model(name: str = "bahdanau", obsessed: bool = False) -> Seq2Seq:
    """A model with varied distributions in evaluation mode."""
    config = ModelConfig.model_validate(
        {
            "embedding": {"width": 7, "tied": "none"},
            "encoder": {"width": 4},
            "attention": {"width": 9},
            "decoder": {"width": 10, **DECODERS[name]},
        }
    )
    torch.manual_seed(0)
    model = Seq2Seq(config, SRC_VOCABULARY, TGT_VOCABULARY, 20).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
        if obsessed:
            model.decoder.output.vocabulary.bias[OWN] = 1e4
    return model


def make_batch(model: Seq2Seq, batch: int = BATCH, steps: int = STEPS) -> tuple[EncodedSource, Tensor]:
    """Sources that are read, and targets without the word OWN."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 6, (batch,), generator=generator)
    src = torch.randint(4, SRC_VOCABULARY, (batch, 5), generator=generator)
    tgt_in = torch.randint(OWN + 1, TGT_VOCABULARY, (batch, steps), generator=generator)
    return model.encode(src, torch.arange(5) < lengths.unsqueeze(1), lengths), tgt_in


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def fed_to(model: Seq2Seq) -> Iterator[list[Tensor]]:
    """The tokens that the decoder reads, step by step."""
    tokens: list[Tensor] = []
    handle = model.decoder.embed.register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0]))
    yield tokens
    handle.remove()


def check_equal(found: Decoded, expected: Decoded) -> None:
    torch.testing.assert_close(found.features, expected.features, rtol=0, atol=1e-10)
    assert (found.weights is None) == (expected.weights is None)
    if found.weights is not None:
        torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=1e-10)


# -- the schedule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "share", "expected"),
    [
        ("constant", 0.0, 0.9),
        ("constant", 0.5, 0.9),
        ("constant", 1.0, 0.9),
        ("linear", 0.0, 0.9),
        ("linear", 0.25, 0.75),  # a quarter of the way from 0.9 to 0.3
        ("linear", 0.5, 0.6),
        ("linear", 1.0, 0.3),
        ("linear", 1.5, 0.3),  # a resumed run that was given fewer steps stays at the end
        ("inverse_sigmoid", 0.5, 0.6),  # half the way at half the updates
    ],
)
def test_schedules_pass_through_known_points(schedule: str, share: float, expected: float) -> None:
    config = TeacherForcingConfig(ratio=0.9, end=0.3, schedule=schedule)
    assert ratio_at(config, share, 10_000) == pytest.approx(expected, abs=1e-9)


def test_the_inverse_sigmoid_is_bengios_formula() -> None:
    """k / (k + exp(i / k)) after i updates; k log k = steps / 2 puts the middle there, as k = 100 shows."""
    steps = 2 * 100 * 4.605170185988092  # log 100
    config = TeacherForcingConfig(ratio=1.0, end=0.0, schedule="inverse_sigmoid")
    assert ratio_at(config, 0.0, steps) == pytest.approx(100 / 101)
    assert ratio_at(config, 1.0, steps) == pytest.approx(1 / 101)
    assert ratio_at(config, 50 / steps, steps) == pytest.approx(100 / (100 + 1.6487212707001282))  # exp(1/2)


@settings(deadline=None)
@given(
    schedule=st.sampled_from(["linear", "inverse_sigmoid"]),
    ratio=st.floats(0, 1),
    end=st.floats(0, 1),
    steps=st.integers(1, 10**7),
    shares=st.lists(st.floats(0, 2), min_size=2, max_size=2).map(sorted),
)
def test_schedules_move_one_way_between_their_ends(
    schedule: str, ratio: float, end: float, steps: int, shares: list[float]
) -> None:
    config = TeacherForcingConfig(ratio=ratio, end=end, schedule=schedule)
    earlier, later = (ratio_at(config, share, steps) for share in shares)
    low, high = sorted([ratio, end])
    assert low - 1e-9 <= min(earlier, later)
    assert max(earlier, later) <= high + 1e-9
    assert (later - earlier) * (end - ratio) >= -1e-9


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 10**6])
def test_half_the_way_is_gone_at_half_the_updates_of_any_run(steps: int) -> None:
    config = TeacherForcingConfig(ratio=1.0, end=0.0, schedule="inverse_sigmoid")
    assert ratio_at(config, 0.5, steps) == pytest.approx(0.5, abs=1e-6)


# -- decoding ---------------------------------------------------------------------------------------------------------


@every_decoder
@pytest.mark.parametrize("feed", ["sample", "argmax"])
@torch.no_grad()
def test_at_ratio_one_it_is_teacher_forcing(name: str, feed: str) -> None:
    model = make_model(name)
    source, tgt_in = make_batch(model)
    mixed = decode_mixed(model, source, tgt_in, 1.0, TeacherForcingConfig(feed=feed), seeded())
    check_equal(mixed, model.decoder(tgt_in, source))


@every_decoder
@torch.no_grad()
def test_at_ratio_zero_it_reads_its_own_words(name: str) -> None:
    """The plain way: write one more word after each prefix, all from the start each time."""
    model = make_model(name)
    source, tgt_in = make_batch(model)
    prefix = tgt_in[:, :1]
    for _ in range(STEPS - 1):
        decoded = model.decoder(prefix, source)
        log_probs = model.decoder.output.log_probs(
            decoded.features[:, -1], None if decoded.weights is None else decoded.weights[:, -1], source
        )
        log_probs[:, [PAD, BOS]] = -torch.inf  # they never follow
        prefix = torch.cat([prefix, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    mixed = decode_mixed(model, source, tgt_in, 0.0, TeacherForcingConfig(feed="argmax"), seeded())
    check_equal(mixed, model.decoder(prefix, source))
    assert (prefix[:, 1:] != tgt_in[:, 1:]).any()


def forced(unit: str, ratio: float, seed: int, batch: int = BATCH, steps: int = STEPS) -> Tensor:
    """Which of the tokens read were the reference's, (B, T)."""
    model = make_model(obsessed=True)
    source, tgt_in = make_batch(model, batch, steps)
    with torch.no_grad(), fed_to(model) as tokens:
        decode_mixed(model, source, tgt_in, ratio, TeacherForcingConfig(unit=unit, feed="argmax"), seeded(seed))
    fed = torch.stack(tokens, dim=1)
    from_reference = fed == tgt_in
    assert (from_reference | (fed == OWN)).all()
    return from_reference


@pytest.mark.parametrize("unit", ["token", "sentence", "batch"])
def test_the_first_token_is_always_given(unit: str) -> None:
    assert forced(unit, 0.0, seed=0)[:, 0].all()
    assert not forced(unit, 0.0, seed=0)[:, 1:].any()


def test_one_coin_for_each_token() -> None:
    chosen = forced("token", 0.3, seed=0, batch=200, steps=21)[:, 1:].double()
    assert chosen.mean().item() == pytest.approx(0.3, abs=0.04)  # 4000 coins: 5 deviations
    assert 0 < chosen.mean(dim=1).std() < 0.2  # rows differ as 20 coins each do, not as one coin each
    assert chosen.mean(dim=0).std() < 0.1


def test_one_coin_for_each_sentence() -> None:
    chosen = forced("sentence", 0.3, seed=0, batch=1000, steps=3)[:, 1:]
    assert (chosen == chosen[:, :1]).all()
    assert chosen[:, 0].double().mean().item() == pytest.approx(0.3, abs=0.075)  # 1000 coins: 5 deviations


def test_one_coin_for_each_batch() -> None:
    coins = [forced("batch", 0.3, seed)[:, 1:] for seed in range(40)]
    assert all((coin == coin[0, 0]).all() for coin in coins)
    assert 4 <= sum(bool(coin[0, 0]) for coin in coins) <= 22  # 12 of 40 expected


@torch.no_grad()
def test_own_words_are_drawn_from_the_models_distribution() -> None:
    model = make_model()
    source, tgt_in = make_batch(model, batch=3000, steps=3)
    probabilities = torch.softmax(torch.arange(TGT_VOCABULARY).double() / 3, dim=0)
    model.decoder.output.vocabulary.weight.zero_()
    model.decoder.output.vocabulary.bias.copy_(probabilities.log())
    with fed_to(model) as tokens:
        decode_mixed(model, source, tgt_in, 0.0, TeacherForcingConfig(feed="sample"), seeded())
    counts = torch.bincount(torch.cat(tokens[1:]), minlength=TGT_VOCABULARY)
    probabilities[[PAD, BOS]] = 0.0  # they never follow
    probabilities /= probabilities.sum()
    deviation = (probabilities * (1 - probabilities) / 6000).sqrt()
    assert ((counts / 6000 - probabilities).abs() <= 5 * deviation).all()


@pytest.mark.parametrize("unit", ["token", "sentence", "batch"])
@torch.no_grad()
def test_the_generator_decides_everything(unit: str) -> None:
    """The same seed gives the same run, another seed another one, and the global generator is left alone."""
    model = make_model()
    source, tgt_in = make_batch(model, batch=8)
    config = TeacherForcingConfig(unit=unit, feed="sample")
    before = torch.get_rng_state()

    def features(seed: int) -> Tensor:
        return decode_mixed(model, source, tgt_in, 0.4, config, seeded(seed)).features

    assert torch.equal(features(1), features(1))
    assert any(not torch.equal(features(1), features(seed)) for seed in range(2, 6))
    assert torch.equal(torch.get_rng_state(), before)


@every_decoder
@pytest.mark.parametrize("feed", ["sample", "argmax"])
def test_chosen_words_carry_no_gradient(name: str, feed: str) -> None:
    """The gradients are those of teacher forcing with the same words as if someone had given them."""
    model = make_model(name)
    source, tgt_in = make_batch(model)
    config = TeacherForcingConfig(feed=feed)
    with fed_to(model) as tokens:
        mixed = decode_mixed(model, source, tgt_in, 0.5, config, seeded())
    fed = torch.stack(tokens, dim=1)
    assert (fed != tgt_in).any()
    given_words = model.decoder(fed, source)
    used = [parameter for key, parameter in model.named_parameters() if not key.startswith("decoder.output.")]
    found = torch.autograd.grad((mixed.features**2).sum(), used, retain_graph=True)
    expected = torch.autograd.grad((given_words.features**2).sum(), used)
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
