"""Heat maps show any token as text, stay within bounds, and are the same to the byte each time."""

import dataclasses
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.image import imread

from translate.alignment.formats import FloatArray
from translate.errors import UserError
from translate.figures import fonts
from translate.figures.heatmap import DPI, HEAD, save_heatmap

HOSTILE = ["$_$", "\\alpha", "<script>", "[/red]", "\x1b[31m", "a\nb", "\0", "", "$\\frac{", "]]>&amp;", "\ud800"]
SHOWN = ["$_$", "\\alpha", "<script>", "[/red]", "<U+001B>[31m", "a<U+000A>b", "<U+0000>", "∅", "$\\frac{"]
MAX_PIXELS = 18 * DPI


@pytest.fixture(autouse=True)
def fresh_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """See only the fonts that come with matplotlib, and forget what was warned about."""
    bundled = [font for font in font_manager.fontManager.ttflist if font.fname.startswith(mpl.get_data_path())]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", bundled)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    fonts._warn_once.cache_clear()
    fonts._add_new_fonts.cache_clear()


@pytest.fixture(scope="module")
def cjk_font(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a font whose only letter is 日, a filled square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 900), (900, 900), (900, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square = pen.glyph()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "sun"])
    font.setupCharacterMap({ord("日"): "sun"})
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "sun": square})
    font.setupHorizontalMetrics({".notdef": (1000, 0), "sun": (1000, 0)})
    font.setupHorizontalHeader(ascent=900, descent=-100)
    font.setupNameTable({"familyName": "Sun", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    path = tmp_path_factory.mktemp("fonts") / "sun.ttf"
    font.save(path)
    return path


def attention(num_tgt: int, num_src: int) -> FloatArray:
    """Give weights (T, S) whose rows sum to one."""
    return np.random.default_rng(1).dirichlet(np.full(num_src, 0.3), size=num_tgt)


def svg_texts(path: Path) -> list[str]:
    """List the texts of a picture."""
    return [element.text or "" for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def colours(path: Path) -> FloatArray:
    """Read the colours of a picture (height, width, 3)."""
    return np.asarray(imread(path))[:, :, :3]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_the_suffix_decides_and_bytes_repeat(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        save_heatmap(path, attention(3, 4), ["a", "longer", "c", "</s>"], ["x", "y", "</s>"], title="line 1")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix.lower()]
    assert paths[0].read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.png.exe"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        save_heatmap(tmp_path / name, attention(1, 1), ["a"], ["b"])
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        save_heatmap(tmp_path / "absent" / "a.png", attention(1, 1), ["a"], ["b"])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_hostile_labels_are_drawn(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    save_heatmap(path, attention(len(HOSTILE), len(HOSTILE)), HOSTILE, HOSTILE, title="$\\frac{ \x1b\n</text>")
    if suffix == ".svg":
        texts = svg_texts(path)
        assert all(texts.count(shown) == 2 for shown in SHOWN)
        assert "$\\frac{ <U+001B><U+000A></text>" in texts
        assert b"<script" not in path.read_bytes()


def test_the_users_matplotlibrc_changes_nothing(tmp_path: Path) -> None:
    for name, settings in (("plain", {}), ("odd", {"text.usetex": True, "font.size": 30, "savefig.dpi": 20})):
        with mpl.rc_context(settings):
            save_heatmap(tmp_path / f"{name}.png", attention(2, 3), ["a", "b", "$_$"], ["x", "y"])
            assert mpl.rcParams["font.size"] == settings.get("font.size", 10.0)
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "odd.png").read_bytes()


@pytest.mark.parametrize(("num_tgt", "num_src"), [(400, 2), (1, 500), (0, 1), (2, 0), (0, 0), (1, 1)])
def test_the_size_is_bounded(tmp_path: Path, num_tgt: int, num_src: int) -> None:
    path = tmp_path / "a.png"
    weights = np.full((num_tgt, num_src), 0.5)
    save_heatmap(path, weights, ["W" * 100] * num_src, ["W" * 1000] * num_tgt, title="title " * 1000)
    height, width, _ = colours(path).shape
    assert 0 < height <= MAX_PIXELS
    assert 0 < width <= MAX_PIXELS


def test_the_size_grows_with_the_tokens(tmp_path: Path) -> None:
    sizes = []
    for num_tgt, num_src in ((6, 5), (6, 9), (8, 5)):
        save_heatmap(tmp_path / "a.png", attention(num_tgt, num_src), ["a"] * num_src, ["b"] * num_tgt)
        sizes.append(colours(tmp_path / "a.png").shape[:2])
    assert sizes[0][0] == sizes[1][0] < sizes[2][0]
    assert sizes[0][1] == sizes[2][1] < sizes[1][1]


def test_crowded_labels_are_thinned(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(400)]
    save_heatmap(tmp_path / "a.svg", np.zeros((1, 400)), words, ["x"])
    shown = [text for text in svg_texts(tmp_path / "a.svg") if text.startswith("w")]
    assert 50 <= len(shown) <= 200
    assert shown[0] == "w0"
    assert (tmp_path / "a.svg").stat().st_size < 1_000_000


def test_source_goes_across_and_target_down_and_dark_is_one(tmp_path: Path) -> None:
    weights = np.zeros((3, 4))
    weights[2, 1] = 1.0
    save_heatmap(tmp_path / "one.png", weights, list("abcd"), list("xyz"))
    save_heatmap(tmp_path / "none.png", np.zeros((3, 4)), list("abcd"), list("xyz"))
    one, none = colours(tmp_path / "one.png"), colours(tmp_path / "none.png")
    rows, columns = np.nonzero(np.abs(one - none).sum(axis=2) > 0.5)
    grey = np.argwhere(np.abs(none - np.array([0x9A, 0xA5, 0xB1]) / 255).sum(axis=2) < 0.02)
    top, left = grey.min(axis=0)  # the frame of the cells begins there
    cell = 0.34 * DPI
    assert (rows.mean() - top) / cell == pytest.approx(2.5, abs=0.1)
    assert (columns.mean() - left) / cell == pytest.approx(1.5, abs=0.1)
    middle = int(rows.mean()), int(columns.mean())
    assert one[middle] == pytest.approx(np.array([0x08, 0x30, 0x6B]) / 255, abs=0.01)
    assert none[middle] == pytest.approx(np.ones(3))


def test_what_is_not_a_number_is_drawn_grey(tmp_path: Path) -> None:
    save_heatmap(tmp_path / "a.svg", np.array([[np.nan, np.inf, 2.0, -1.0]]), list("abcd"), ["x"])
    assert b"#e0e0e0" in (tmp_path / "a.svg").read_bytes()


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Collect log messages, and let no Python warning pass."""
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        # Older ones of matplotlib call what a newer pyparsing deprecates.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="matplotlib")
        yield caplog


def test_missing_letters_are_told_once_with_a_package(tmp_path: Path, warned: pytest.LogCaptureFixture) -> None:
    for name in ("a.png", "b.pdf"):
        save_heatmap(tmp_path / name, attention(2, 3), ["日本", "語", "🙂"], ["ꯃ", "한국"])
    packages = [message.rsplit(" ", 1)[1] for message in warned.messages]
    assert packages == ["fonts-noto-cjk.", "fonts-noto-core.", "fonts-symbola."]


def test_svg_leaves_letters_to_the_viewer(tmp_path: Path, warned: pytest.LogCaptureFixture) -> None:
    save_heatmap(tmp_path / "a.svg", attention(1, 2), ["日本", "🙂"], ["x"])
    assert not warned.messages
    assert "日本" in svg_texts(tmp_path / "a.svg")
    assert b"sans-serif" in (tmp_path / "a.svg").read_bytes()


def test_an_installed_font_is_found(
    tmp_path: Path, cjk_font: Path, warned: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_heatmap(tmp_path / "without.png", attention(1, 1), ["日"], ["x"])
    assert len(warned.messages) == 1
    fonts._add_new_fonts.cache_clear()
    # Installed after matplotlib wrote its list; beside it lies a file that is no font.
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken), str(cjk_font)])
    assert fonts.families_for("a日") == (["DejaVu Sans", "Sun"], set())
    save_heatmap(tmp_path / "with.png", attention(1, 1), ["日"], ["x"])
    save_heatmap(tmp_path / "with.pdf", attention(1, 1), ["日"], ["x"])
    assert len(warned.messages) == 1
    dark = [(colours(tmp_path / name).sum(axis=2) < 0.6).sum() for name in ("without.png", "with.png")]
    assert dark[1] > dark[0] + 300  # the square is solid, the box of the last resort is not


def test_a_font_without_a_regular_weight_is_passed_over(cjk_font: Path, warned: pytest.LogCaptureFixture) -> None:
    font_manager.fontManager.addfont(cjk_font)
    sun = font_manager.fontManager.ttflist.pop()
    font_manager.fontManager.ttflist.append(dataclasses.replace(sun, weight=200))
    assert fonts.families_for("日") == (["DejaVu Sans"], {"日"})
    assert not warned.messages


def test_ordinary_text_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_add_new_fonts", lambda: pytest.fail("searched"))
    assert fonts.families_for("Größe ελληνικά русский ▁…∅␣◌") == (["DejaVu Sans"], set())


def test_the_colour_bar_says_what_is_drawn(tmp_path: Path) -> None:
    save_heatmap(tmp_path / "a.svg", attention(2, 3), list("abc"), list("xy"))
    save_heatmap(tmp_path / "b.svg", attention(2, 3), list("abc"), list("xy"), measure=HEAD)
    assert "attention weight" in svg_texts(tmp_path / "a.svg")
    assert HEAD in svg_texts(tmp_path / "b.svg")
    assert "attention weight" not in svg_texts(tmp_path / "b.svg")
