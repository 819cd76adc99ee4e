"""The vocabulary's loss in chunks of tokens against torch's cross entropy, and log probabilities formed in place."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.kernel_inputs import check_all_close, check_close, every_processor, in_float32, sample, use_processor
from translate.kernels import log_softmax, matmul, slices, vocabulary, vocabulary_chunks, vocabulary_loss

TOKENS, WIDTH, VOCABULARY = 9, 6, 19
every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])


def leaves() -> list[Tensor]:
    return [
        sample(TOKENS, WIDTH, seed=1).requires_grad_(),
        sample(VOCABULARY, WIDTH, seed=2).requires_grad_(),
        sample(VOCABULARY, seed=3).requires_grad_(),
    ]


TARGETS = torch.randint(0, VOCABULARY, (TOKENS,), generator=torch.Generator().manual_seed(4))


def results(smoothing: float, given: list[Tensor] | None = None) -> list[Tensor]:
    """The loss, log p of the targets, and the gradients, of a loss that is scaled as that of a batch is."""
    features, weight, bias = given = leaves() if given is None else given
    loss, gold = vocabulary_loss(features, weight, bias, TARGETS, smoothing)
    assert loss.requires_grad
    assert not gold.requires_grad
    return [loss, gold, *torch.autograd.grad(loss / 3, given)]


def torchs(smoothing: float, given: list[Tensor] | None = None) -> list[Tensor]:
    features, weight, bias = given = leaves() if given is None else given
    logits = F.linear(features, weight, bias)
    loss = F.cross_entropy(logits, TARGETS, reduction="sum", label_smoothing=smoothing)
    gold = torch.log_softmax(logits, dim=-1).gather(1, TARGETS.unsqueeze(1)).squeeze(1)
    return [loss, gold.detach(), *torch.autograd.grad(loss / 3, given)]


@every_smoothing
def test_the_loss_is_torchs_cross_entropy(smoothing: float) -> None:
    check_all_close(results(smoothing), torchs(smoothing))


@every_smoothing
@pytest.mark.parametrize("some", [1, 3])
def test_the_loss_by_what_stays_in_the_cache_is_the_loss_at_once(
    smoothing: float, some: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(smoothing)
    monkeypatch.setattr(slices, "_CACHED_ELEMENTS", some * VOCABULARY)
    check_all_close(results(smoothing), whole)
    with torch.no_grad():
        features, weight, bias = leaves()
        check_all_close(vocabulary_loss(features, weight, bias, TARGETS, smoothing), whole[:2])


@every_smoothing
@pytest.mark.parametrize("some", [1, 4, TOKENS])
def test_the_loss_in_chunks_is_the_loss_at_once(smoothing: float, some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results(smoothing)
    sizes: list[int] = []
    product = matmul.linear_no_grad

    def noted(*given: Tensor) -> Tensor:
        found = product(*given)
        if found.size(-1) == VOCABULARY:
            sizes.append(len(found))
        return found

    monkeypatch.setattr(vocabulary, "linear_no_grad", noted)
    monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", (some + 1) * VOCABULARY - 1)
    check_all_close(results(smoothing), whole)
    assert max(sizes) == some
    assert sum(sizes) == TOKENS


def test_chunks_are_all_tokens_in_many_rows_that_need_no_rounding() -> None:
    for tokens in (0, 1, 63, 64, 1000, 12_345):
        for size in (1, 300, 8_000, 100_000, 1 << 23):
            chunks = vocabulary_chunks(tokens, size)
            assert [row for some in chunks for row in range(tokens)[some]] == list(range(tokens))
            for some in chunks:
                longest = some.stop - some.start
                assert longest == 1 or longest * size <= vocabulary.MAX_ELEMENTS
                assert longest < 64 or longest % 64 == 0


def test_a_row_wider_than_the_limit_is_a_chunk_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results(0.1)
    monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", 1)
    check_all_close(results(0.1), whole)


def test_chunks_need_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation computes the same sums where nothing is recorded for a backward pass."""
    whole = results(0.1)
    monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", 2 * VOCABULARY)
    with torch.inference_mode():
        features, weight, bias = leaves()
        check_all_close(vocabulary_loss(features, weight, bias, TARGETS, 0.1), [one.detach() for one in whole[:2]])


@pytest.mark.parametrize("chunked", [False, True])
@every_processor
def test_every_processor_forms_the_same_loss_and_gradients(
    processor: str, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = torchs(0.1)
    use_processor(monkeypatch, processor)
    if chunked:
        monkeypatch.setattr(vocabulary, "MAX_ELEMENTS", 4 * VOCABULARY)
    found = results(0.1, [one.detach().float().requires_grad_() for one in leaves()])
    torch.testing.assert_close(found[0], exact[0].float())
    for one, other in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-5)


def test_a_weight_that_is_frozen_gets_no_gradient() -> None:
    features, weight, bias = leaves()
    expected = results(0.1)[2]
    loss, _ = vocabulary_loss(features, weight.detach(), bias.detach(), TARGETS, 0.1)
    check_close(torch.autograd.grad(loss / 3, features)[0], expected)


def test_no_tokens_have_a_loss_and_gradients_of_zero() -> None:
    features, weight, bias = leaves()
    loss, gold = vocabulary_loss(features[:0], weight, bias, TARGETS[:0], 0.1)
    assert float(loss) == 0
    assert gold.shape == (0,)
    assert not any(one.any() for one in torch.autograd.grad(loss, [features, weight, bias]))


# -- log probabilities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("some", [1, 2, 100])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_log_probabilities_in_place_are_those_of_a_softmax(
    dtype: torch.dtype, some: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "_CACHED_ELEMENTS", some * VOCABULARY)
    logits, bias = sample(2, 3, VOCABULARY, seed=1, dtype=dtype), in_float32(VOCABULARY, seed=2).to(dtype)
    expected = torch.log_softmax(logits.double() + bias.double(), dim=-1)
    found = log_softmax(logits, bias)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.05 if dtype == torch.bfloat16 else 1e-6)
    assert (found.data_ptr() == logits.data_ptr()) == (dtype != torch.bfloat16)


def test_logits_that_need_a_gradient_are_not_overwritten() -> None:
    logits, bias = sample(3, VOCABULARY, seed=1).requires_grad_(), sample(VOCABULARY, seed=2).requires_grad_()
    before = logits.detach().clone()
    found = log_softmax(logits, bias)
    assert torch.equal(logits, before)
    assert torch.autograd.gradcheck(log_softmax, (logits, bias))
    check_close(found.exp().sum(dim=-1), torch.ones(3, dtype=torch.float64))
