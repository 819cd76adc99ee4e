"""The page of alignments: one file, nothing from elsewhere, tokens are text; and what a real browser makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from tests.figures.browser import Browser, browser, programs
from translate.figures.page import page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "<!--",
    "]]>",
    "&lt;",
    "$_$",
    "[/red]",
    "\x1b[31m",
    "\u202e",
    "'\"",
]
ARABIC = ["الكلب", "الصغير", "نائم"]


def record(line: int, source: list[str], target: list[str], score: float, **more: Any) -> dict[str, Any]:
    """A sentence in which target word j looks at source word j, or at nothing beyond its end, with weight 0.8."""
    weights = np.full((len(target), len(source) + 1), 0.2 / max(len(source), 1))
    for j in range(len(target)):
        weights[j, min(j, len(source))] = 0.8
    links = [[j, j] for j in range(min(len(source), len(target)))]
    words = {"source_words": source, "target_words": target}
    return {"line": line, **words, "word_weights": weights.tolist(), "links": links, "score": score, **more}


RECORDS = [
    record(1, ["the", "little", "dog"], ARABIC, -0.5),
    record(2, HOSTILE, HOSTILE, -0.9),
    record(3, ["我们", "喜欢", "苹果"], ["हम", "सेब", "🙂"], -0.1),
    record(4, [], [], -3.0),
    *(record(line, ["word", str(line)], ["mot", str(line)], -line / 100) for line in range(5, 130)),
]


class Tags(HTMLParser):
    """Collects start tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_alone_and_its_tokens_are_text() -> None:
    text = page(RECORDS, title="<script>evil</script>")
    parser = Tags()
    parser.feed(text)
    assert [attributes.get("type") for tag, attributes in parser.tags if tag == "script"] == ["application/json", None]
    assert not [attributes for _, attributes in parser.tags if {"src", "href", "style"} & attributes.keys()]
    assert not [name for _, attributes in parser.tags for name in attributes if name.startswith("on")]
    assert not re.search(r"https?://|@import|url\(", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["sentences"][1]["source"][:2] == HOSTILE[:2]
    assert data["sentences"][1]["source"][7:9] == ["<U+001B>[31m", "<U+202E>"]
    assert data["measures"] == [["score", "score", -1]]
    assert data["sentences"][0]["weights"][1] == [67, 800, 67, 67]


def test_a_page_without_sentences() -> None:
    assert '"sentences":[]' in page([], title="none")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page in a real browser."""
    if programs() is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(page(RECORDS, title="<i>demo"), encoding="utf-8")
    with browser(folder / "profile") as opened:
        opened.open(folder / "page.html")
        yield opened


@pytest.mark.slow
def test_a_browser_shows_what_a_word_looks_at(window: Browser) -> None:
    assert window.run("return document.querySelector('h1').firstChild.textContent") == "<i>demo "
    window.hover("#line-1 .words + .words .word:nth-child(2)")
    colours = window.run(
        "return [...document.querySelectorAll('#line-1 .words:first-of-type .word')].map(w => w.style.backgroundColor)"
    )
    strengths = [float(re.findall(r"([\d.]+)\)$", colour)[0]) for colour in colours]
    assert len(strengths) == 4
    assert strengths[1] > 0.6 > 0.2 > max(strengths[0], strengths[2], strengths[3])
    linked = window.run("return [...document.querySelectorAll('#line-1 .linked')].map(w => w.textContent)")
    assert linked == ["little"]
    said = window.run("return document.querySelector('#line-1 .said').textContent")
    assert said.startswith("الصغير: little 80 %")
    # A source word shows who looks at it.
    window.hover("#line-1 .words .word:nth-child(3)")
    assert window.run("return document.querySelector('#line-1 .said').textContent").startswith("dog: نائم 80 %")
    window.hover("h1")
    assert window.run("return document.querySelectorAll('.linked, .asked').length") == 0
    assert window.messages() == [], "nothing was refused by the page's own policy"


@pytest.mark.slow
def test_a_browser_runs_right_to_left_text_from_the_right(window: Browser) -> None:
    places = "return [...document.querySelectorAll(arguments[0])].map(w => Math.round(w.getBoundingClientRect().left))"
    target = window.run(places, "#line-1 .words + .words .word")
    assert target == sorted(target, reverse=True)
    source = window.run(places, "#line-1 .words:first-of-type .word")
    assert source == sorted(source)
    assert target[0] > 500 > source[0]


@pytest.mark.slow
def test_a_browser_takes_tokens_for_text(window: Browser) -> None:
    shown = window.run("return [...document.querySelectorAll('#line-2 .words + .words .word')].map(w => w.textContent)")
    assert shown == [*HOSTILE[:7], "<U+001B>[31m", "<U+202E>", HOSTILE[9]]
    assert window.run("return document.querySelectorAll('article script, article i').length") == 0
    assert window.run("return document.scripts.length") == 2


@pytest.mark.slow
def test_a_browser_sorts_and_jumps_to_the_worst(window: Browser) -> None:
    lines = "return [...document.querySelectorAll('article')].map(a => +a.id.slice(5))"
    assert window.run(lines) == list(range(1, 51))
    assert window.run("return document.getElementById('more').textContent") == "79 more"
    assert window.run("return document.getElementById('more').checkVisibility()")
    found = "return document.querySelector('.found').id"
    for expected in ("line-4", "line-129", "line-128"):  # by score; the second one was not drawn yet
        window.click("#worst")
        assert window.run(found) == expected
        middle = window.run(
            "const b = document.querySelector('.found').getBoundingClientRect(); return b.top + b.height/2"
        )
        assert 0 < middle < 800
    choose = (
        "const order = document.getElementById('order'); order.value = arguments[0];"
        "order.dispatchEvent(new Event('change'));"
    )
    window.run(choose, "score worst")
    assert window.run(lines)[:3] == [4, 129, 128]
    window.run(choose, "score best")
    assert window.run(lines)[:3] == [5, 6, 7]
    window.run(choose, "line")
    window.run(
        "const filter = document.getElementById('filter'); filter.value = 'DOG';"
        "filter.dispatchEvent(new Event('input'))"
    )
    assert window.run(lines) == [1]
    assert window.run("return document.getElementById('count').textContent") == "1 of 129 sentences"
    assert not window.run("return document.getElementById('more').checkVisibility()"), "there is no more"
    window.click("#line-1 button")
    assert window.run("return document.querySelectorAll('#line-1 td').length") == 3 * 4
    assert window.run("return document.querySelectorAll('#line-1 td.linked').length") == 3
    assert window.messages() == []
