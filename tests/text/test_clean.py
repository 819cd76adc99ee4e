"""Pairs are kept or left out as pairs, and every one is counted."""

import pytest

from translate.config import DataConfig
from translate.text.clean import FilterReport, Reason, why_left_out


def data_config(max_length: int = 128, max_ratio: float = 0.0) -> DataConfig:
    return DataConfig(folder=".", source_lang="en", target_lang="fr", max_length=max_length, max_ratio=max_ratio)


@pytest.mark.parametrize(
    ("num_src", "num_tgt", "max_ratio", "reason"),
    [
        (1, 1, 0.0, None),
        (10, 10, 1.0, None),
        (0, 3, 0.0, "empty side"),
        (3, 0, 0.0, "empty side"),
        (0, 99, 2.0, "empty side"),
        (10, 11, 0.0, "too long"),
        (11, 10, 0.0, "too long"),
        (11, 1, 2.0, "too long"),
        (1, 10, 0.0, None),
        (2, 5, 2.5, None),
        (5, 2, 2.4, "length ratio"),
        (2, 5, 2.4, "length ratio"),
    ],
)
def test_each_reason(num_src: int, num_tgt: int, max_ratio: float, reason: Reason | None) -> None:
    assert why_left_out(num_src, num_tgt, data_config(10, max_ratio)) == reason


@pytest.mark.parametrize(("num_src", "num_tgt", "reason"), [(1, 10**6, None), (0, 5, "empty side"), (9, 19, None)])
def test_no_limit_of_length(num_src: int, num_tgt: int, reason: Reason | None) -> None:
    assert why_left_out(num_src, num_tgt, data_config(max_length=0)) == reason
    assert why_left_out(9, 19, data_config(max_length=0, max_ratio=2.0)) == "length ratio"


def test_the_report_counts_and_reads_well() -> None:
    report = FilterReport(max_length=128, max_ratio=2.5)
    reasons: list[Reason | None] = [None] * 11_988 + ["empty side"] * 10 + ["too long"] * 2
    for reason in reasons:
        report.add(reason)
    assert report.kept == 11_988
    assert str(report) == ("12,000 pairs read, 11,988 kept; left out: 10 with an empty side, 2 longer than 128 pieces")
    report.add("length ratio", 3)
    assert str(report).endswith(", 3 with one side more than 2.5 times as long as the other")
    assert report.total == report.kept + sum(report.left_out.values()) == 12_003


def test_the_report_without_losses_is_short() -> None:
    report = FilterReport(max_length=128, max_ratio=0.0)
    report.add(None)
    assert str(report) == "1 pair read, 1 kept"
