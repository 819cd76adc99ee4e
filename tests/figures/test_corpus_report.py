"""The report on a corpus, as people read it: whatever the corpus holds is shown as text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from translate.figures.corpus_report import as_html, as_text
from translate.text.clean import FAULTS, Norms
from translate.text.corpus import parallel_files
from translate.text.inspection import Inspection, inspect


@pytest.fixture
def report(tmp_path: Path) -> Inspection:
    hostile = "<script>alert(1)</script> \x1b[31m [/red] $_$ &amp;"
    (tmp_path / "a<b>.en").write_text(f"{hostile}\n" + "one two three\n" * 5)
    (tmp_path / "a<b>.fr").write_text("@@\n" + "un deux trois\n" * 5)
    return inspect(parallel_files(tmp_path / "a<b>.en", tmp_path / "a<b>.fr"), Norms())


def test_text_has_every_fault_and_no_escape(report: Inspection) -> None:
    text = as_text(report)
    assert "\x1b" not in text
    assert "<U+001B>[31m" in text
    for fault in FAULTS:
        assert f"\n{fault} " in text
    assert "duplicate                   4  lines 3, 4, 5, 6\n" in text
    assert "  2-3         5 ████" in text or "    3         5 ████" in text


def test_html_shows_hostile_text_as_text(report: Inspection) -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[str] = []
            self.text = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)
            assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onload"}

        def handle_data(self, data: str) -> None:
            self.text += data

    page = Tags()
    page.feed(as_html(report))
    assert "script" not in page.tags
    assert "b" in page.tags  # of "line 1", not of the file's name
    assert "<script>alert(1)</script>" in page.text
    assert "a<b>.en" in page.text
    assert page.tags.count("svg") == 3
    assert page.tags.count("rect") == sum(len(histogram.counts) for histogram in report.histograms.values())
