"""Every command, on a run that the real command trained."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # nearly every test starts a process of its own, and torch takes seconds to load

CommandLine = Callable[..., Any]
SECONDS = 120  # a loaded machine takes long to import torch; nothing waits for this on a good day


@pytest.fixture
def files(tiny_run: Path) -> Path:
    """The folder of the corpus that the run was trained on."""
    return tiny_run.parent / "data"


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


# -- evaluate ---------------------------------------------------------------------------------------------------------


def test_evaluate_prints_scores_with_signatures_and_keeps_translations(
    answer: Callable[..., str], own_run: Path
) -> None:
    (own_run / "translations" / "test.txt").unlink()
    lines = answer("evaluate", own_run).splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "chrF", "chrF++", "TER", "12"]
    for line in lines[:4]:
        assert "nrefs:1|" in line
        assert "version:" in line
    assert lines[4].startswith("12 sentences in ")
    assert lines[4].endswith("beam 2")
    kept = (own_run / "translations" / "test.txt").read_text().split("\n")
    assert len(kept) == 13
    # One sentence, one translation: `text` says what `evaluate` scored.
    assert answer("text", own_run, own_run / "data" / "test.source").split("\n") == kept


def check_evaluation(text: str, sentences: int) -> dict[str, Any]:
    """One JSON object, alone, of exactly the keys that scripts rely on."""
    assert text.count("\n") == 1
    scores: dict[str, Any] = json.loads(text)
    assert set(scores) == {"bleu", "chrf", "chrf++", "ter", "sentences", "seconds"}
    for metric in ("bleu", "chrf", "chrf++", "ter"):
        assert set(scores[metric]) == {"score", "low", "high", "signature"}
        assert scores[metric]["low"] <= scores[metric]["high"]
        assert "version:" in scores[metric]["signature"]
    assert scores["sentences"] == sentences
    assert scores["seconds"] > 0
    return scores


def test_evaluate_json_is_all_there_is_on_stdout(answer: Callable[..., str], own_run: Path, files: Path) -> None:
    test = check_evaluation(answer("evaluate", own_run, "--json"), 12)
    check_evaluation(answer("evaluate", own_run, "--split", "valid", "--json"), 14)
    given = ("--source", files / "test.en", "--reference", files / "test.fr")
    same = check_evaluation(answer("evaluate", own_run, *given, "--json"), 12)
    assert {**same, "seconds": 0} == {**test, "seconds": 0}
    assert 0 < test["chrf"]["score"] < 100


def test_evaluate_knows_a_perfect_translation(answer: Callable[..., str], own_run: Path) -> None:
    source = own_run / "data" / "test.source"
    (own_run / "mine").write_text(answer("text", own_run, source))
    perfect = json.loads(answer("evaluate", own_run, "--source", source, "--reference", own_run / "mine", "--json"))
    assert (perfect["bleu"]["score"], perfect["chrf"]["score"], perfect["ter"]["score"]) == (100, 100, 0)


# -- text -------------------------------------------------------------------------------------------------------------


def test_text_answers_every_line_in_order(translate: Any, tiny_run: Path, files: Path) -> None:
    different = (files / "train.en").read_text().split("\n")[:7]
    lines = [different[i % 7] if i % 10 else "" for i in range(300)]
    done = translate("text", tiny_run, "-", "--scores", input="".join(line + "\n" for line in lines))
    assert done.returncode == 0
    assert done.stderr == ""
    answers = done.stdout.split("\n")
    assert len(answers) == 301
    assert answers.pop() == ""
    scores = [float(answer.split("\t")[0]) for answer in answers]
    expected = dict(zip(lines[1:10], scores[1:10], strict=True))
    assert len({round(score, 3) for score in expected.values()}) > 3, "the order shows only if the scores differ"
    for line, answer, score in zip(lines, answers, scores, strict=True):
        if line:
            assert score == pytest.approx(expected[line], abs=2e-4)
        else:
            assert answer == "0.0000\t"


def test_text_reads_a_file_and_gives_rivals(answer: Callable[..., str], tiny_run: Path, files: Path) -> None:
    best = answer("text", tiny_run, files / "test.en").split("\n")
    assert len(best) == 13
    assert all(best[:12])
    rivals = answer("text", tiny_run, files / "test.en", "--nbest", "3", "--scores").split("\n")
    assert len(rivals) == 3 * 12 + 1
    for i in range(12):
        scored = [rival.split("\t") for rival in rivals[3 * i : 3 * i + 3]]
        assert all(len(parts) == 2 for parts in scored)
        numbers = [float(score) for score, _ in scored]
        assert numbers == sorted(numbers, reverse=True)
        assert len({tuple(parts) for parts in scored}) == 3
    # A beam of three is what --nbest 3 searched with.
    alone = answer("text", tiny_run, files / "test.en", "--beam", "3").split("\n")
    assert alone[:12] == [rival.split("\t")[1] for rival in rivals[:-1:3]]


ODD = {
    "CRLF": b"the man\r\nthe dog\r\n",
    "stray CR": b"the\rman\nthe dog\r\r\n",
    "U+2028": "the\u2028man\nthe\u2029dog\n".encode(),
    "U+0085 and form feed": "the\u0085man\nthe\fdog\vruns\n".encode(),
    "byte-order marks": b"\xef\xbb\xbfthe man\n\xef\xbb\xbfthe dog\n",
    "tabs, quotes, NUL": b'\tthe\tman\n"the dog\n\x00the cat\n\x1b[31mred\n',
    "empty and blank": b"\n \n\t\n\xe2\x80\xa8\n\nthe dog\n",
    "no newline at the end": b"the man\nthe dog",
    "emoji and other scripts": "🙂 👩‍👩‍👧‍👦\nསེམས་ཅན\n漢字かな\n\U00010330\U0001fae0\n▁ ▅ ⁇ </s> <unk>\n".encode(),
}


@pytest.mark.parametrize("kind", ODD)
def test_text_gives_one_line_for_each_newline(
    command_line: CommandLine, tiny_run: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "odd").write_bytes(ODD[kind])
    result = command_line("text", tiny_run, tmp_path / "odd")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == ODD[kind].count(b"\n") + (not ODD[kind].endswith(b"\n"))
    # What others take for a line's end must not be in the answers either.
    assert len(result.out.splitlines()) == result.out.count("\n")
    assert not set(result.out) & {"\0", "\x1b", "\t", "\r"}


def test_text_leaves_blank_lines_empty(answer: Callable[..., str], tiny_run: Path, tmp_path: Path) -> None:
    lines = answer("text", tiny_run, write_lines(tmp_path / "blank", ["", "the man", " ", "\u2028", "the dog", ""]))
    assert [bool(line) for line in lines.split("\n")] == [False, True, False, False, True, False, False]


def start(environment: dict[str, str], *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "translate", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, **{**pipes, **options})


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    """A line within a time, where a command that waits for more input would give none."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], SECONDS)
    assert ready, "no answer while stdin is open"
    line: bytes = process.stdout.readline()
    return line


def test_text_answers_before_its_input_ends_and_stops_on_ctrl_c(tiny_run: Path, environment: dict[str, str]) -> None:
    with ended(start(environment, "text", tiny_run)) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for sentence in (b"the man\n", b"\n", b"the dog\n"):
            process.stdin.write(sentence)
            process.stdin.flush()
            assert bool(next_line(process).strip()) == bool(sentence.strip())
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        # Python aborts if a thread waits inside sys.stdin while the interpreter ends.
        assert b"Fatal" not in process.stderr.read()


@pytest.mark.parametrize("more", [b"the dog runs\n" * 20_000, b"the dog\n"], ids=["a big file", "an open pipe"])
def test_text_ends_quietly_when_its_reader_has_gone(
    tiny_run: Path, tmp_path: Path, environment: dict[str, str], more: bytes
) -> None:
    (tmp_path / "big").write_bytes(more)
    big = len(more) > 1000
    with (tmp_path / "big").open("rb") as file:
        stdin = file if big else subprocess.PIPE
        with ended(start(environment, "text", tiny_run, "--beam", "1", stdin=stdin)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdin is not None:
                process.stdin.write(more)
                process.stdin.flush()
            assert next_line(process)
            process.stdout.close()
            if process.stdin is not None:  # it stays open: only the next answer can show that nobody reads
                process.stdin.write(more)
                process.stdin.flush()
            assert process.wait(SECONDS) == 0
            assert process.stderr.read() == b""
            process.stdout = None  # communicate() would read it again


def test_text_cuts_a_line_of_a_hundred_thousand_words(
    tiny_run: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    long = write_lines(tmp_path / "long", ["the man", "the dog runs " * 33_334, "the dog"])
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = start(environment, "text", tiny_run, long, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    warning = (tmp_path / "err").read_text()
    assert process.returncode == 0, warning
    assert (tmp_path / "out").read_bytes().count(b"\n") == 3
    assert warning.count("\n") == 1
    assert warning.startswith("Warning: line 2 has ")
    assert "512" in warning
    assert usage.ru_maxrss < 1_000_000, "kilobytes; torch alone takes a third of it"


# -- align ------------------------------------------------------------------------------------------------------------


def test_align_links_words_that_are_there(answer: Callable[..., str], tiny_run: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", ["the old man sleeps", "", "why ?", " ", "  two  spaces  "])
    pharaoh = answer("align", tiny_run, "--source", source).split("\n")
    records = answer("align", tiny_run, "--source", source, "--format", "json").split("\n")
    assert len(pharaoh) == len(records) == 6
    for number, (links, text) in enumerate(zip(pharaoh[:5], records[:5], strict=True), start=1):
        record = json.loads(text)
        assert record["line"] == number
        assert links == " ".join(f"{i}-{j}" for i, j in record["links"])
        for i, j in record["links"]:
            assert 0 <= i < len(record["source_words"])
            assert 0 <= j < len(record["target_words"])
        assert record["target"].split(" ") == (record["target_words"] or [""])
    assert pharaoh[0]
    assert pharaoh[1] == pharaoh[3] == ""
    assert json.loads(records[4])["source_words"] == ["two", "spaces"]


KEYS = {"line", "source", "target", "score", "weights", "word_weights", "links", "probabilities"} | {
    f"{side}_{what}" for side in ("source", "target") for what in ("words", "spans", "pieces")
}


def test_align_given_translations(answer: Callable[..., str], tiny_run: Path, files: Path) -> None:
    given = ("--source", files / "test.en", "--target", files / "test.fr")
    records = [json.loads(line) for line in answer("align", tiny_run, *given, "--format", "json").split("\n")[:-1]]
    assert len(records) == 12
    for record, source, target in zip(
        records, (files / "test.en").read_text().split("\n"), (files / "test.fr").read_text().split("\n"), strict=False
    ):
        assert set(record) == KEYS
        assert (record["source"], record["target"]) == (source, target)
        assert (record["source_words"], record["target_words"]) == (source.split(" "), target.split(" "))
        assert record["source_pieces"][-1] == record["target_pieces"][-1] == "</s>"
        assert len(record["weights"]) == len(record["target_pieces"])
        assert {len(row) for row in record["weights"]} == {len(record["source_pieces"])}
        assert len(record["word_weights"]) == len(record["target_words"])
        assert {len(row) for row in record["word_weights"]} == {len(record["source_words"]) + 1}
        for row in record["weights"] + record["word_weights"]:
            assert math.isclose(sum(row), 1.0, abs_tol=1e-4)


def test_align_lines_of_a_longer_file(answer: Callable[..., str], tiny_run: Path, files: Path) -> None:
    everything = answer("align", tiny_run, "--source", files / "test.en").split("\n")
    for lines, wanted in (("2-3", everything[1:3]), ("12", everything[11:12]), ("11-99", everything[10:12])):
        assert answer("align", tiny_run, "--source", files / "test.en", "--lines", lines).split("\n")[:-1] == wanted


@pytest.mark.parametrize(("format", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_align_draws_pictures_named_by_line(
    command_line: CommandLine, own_run: Path, files: Path, tmp_path: Path, format: str, magic: bytes
) -> None:
    arguments = ("align", own_run, "--source", files / "test.en", "--lines", "2-3", "--format", format)
    folder = tmp_path / "new" / "pictures"
    result = command_line(*arguments, "--output", folder)
    assert (result.code, result.out) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [f"2.{format}", f"3.{format}"]
    assert all(path.read_bytes().startswith(magic) for path in folder.iterdir())
    if format == "svg":  # the same in all formats, and svg is the quickest to draw
        assert command_line(*arguments).code == 0
        assert sorted(path.name for path in (own_run / "alignment").iterdir()) == ["2.svg", "3.svg"]


def test_align_against_gold(answer: Callable[..., str], tiny_run: Path, files: Path, tmp_path: Path) -> None:
    given = ("--source", files / "test.en", "--target", files / "test.fr", "--gold", files / "test.align")
    text = answer("align", tiny_run, *given, "--json")
    assert text.count("\n") == 1
    scores = json.loads(text)
    assert set(scores) == {"aer", "precision", "recall", "f1", "sentences", "shift"}
    assert scores["sentences"] == 12
    assert all(0 <= scores[name] <= 1 for name in ("aer", "precision", "recall"))
    plain = answer("align", tiny_run, *given, "--lines", "1-5").split("\n")
    assert plain[0].startswith("AER 0.")
    assert plain[1:] == ["over 5 sentences", ""]
    # With --output - the links come first, the scores after them; with a file they are apart.
    links = answer("align", tiny_run, *given[:4]).split("\n")
    both = answer("align", tiny_run, *given, "--output", "-").split("\n")
    assert both[:12] == links[:12]
    assert both[12].startswith("AER ")
    assert answer("align", tiny_run, *given, "--output", tmp_path / "links", "--json") == text
    assert (tmp_path / "links").read_text().split("\n") == links


def test_align_scores_its_own_links_as_perfect(
    answer: Callable[..., str], tiny_run: Path, files: Path, tmp_path: Path
) -> None:
    given = ("--source", files / "test.en", "--target", files / "test.fr")
    (tmp_path / "gold").write_text(answer("align", tiny_run, *given))
    scores = json.loads(answer("align", tiny_run, *given, "--gold", tmp_path / "gold", "--json"))
    assert scores == {"aer": 0, "precision": 1, "recall": 1, "f1": 1, "sentences": 12, "shift": 0}


def test_align_cuts_a_line_of_a_hundred_thousand_words(
    command_line: CommandLine, tiny_run: Path, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "long", ["the dog runs " * 33_334])
    result = command_line("align", tiny_run, "--source", source, "--format", "json", "--beam", "1")
    assert result.code == 0
    assert result.err.startswith("Warning: line 1 has ")
    record = json.loads(result.out)
    assert len(record["source_pieces"]) == 513
    assert 0 < len(record["source_words"]) <= 512
    assert {len(row) for row in record["word_weights"]} == {len(record["source_words"]) + 1}


def test_align_reads_stdin(translate: Any, answer: Callable[..., str], tiny_run: Path, files: Path) -> None:
    done = translate("align", tiny_run, "--source", "-", input=(files / "test.en").read_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == answer("align", tiny_run, "--source", files / "test.en")


# -- interactive ------------------------------------------------------------------------------------------------------


class Terminal:
    """A person at a prompt."""

    def __init__(self, environment: dict[str, str], *arguments: str | Path) -> None:
        self.controller, worker = pty.openpty()
        command = [sys.executable, "-m", "translate", *map(str, arguments)]
        plain = {**environment, "COLUMNS": "100", "LINES": "50"}
        self.process = subprocess.Popen(
            command, stdin=worker, stdout=worker, stderr=worker, env=plain, start_new_session=True
        )
        os.close(worker)

    def read_until(self, wanted: str) -> str:
        """What appears up to and including some text."""
        seen, end = "", time.monotonic() + SECONDS
        while not seen.endswith(wanted):
            left = end - time.monotonic()
            assert left > 0, f"waited for {wanted!r} and saw {seen!r}"
            if select.select([self.controller], [], [], left)[0]:
                try:
                    seen += os.read(self.controller, 65536).decode(errors="replace").replace("\r", "")
                except OSError:  # Linux reports the end of a terminal so
                    raise AssertionError(f"it ended; waited for {wanted!r} and saw {seen!r}") from None
        return seen

    def type(self, text: str) -> str:
        """Type a line and read until the next prompt; what the terminal echoes is left out."""
        os.write(self.controller, text.encode() + b"\n")
        return self.read_until("\n> ").partition("\n")[2].removesuffix("> ")

    def press(self, key: bytes) -> None:
        os.write(self.controller, key)


def test_interactive_session(tiny_run: Path, environment: dict[str, str], answer: Callable[..., str]) -> None:
    terminal = Terminal(environment, "interactive", tiny_run)
    try:
        assert str(tiny_run) in terminal.read_until("> ")
        sentence = "my nurse will have these dogs"
        alone = terminal.type(sentence)
        expected = answer("text", tiny_run, tiny_run / "data" / "test.source").split("\n")[0]
        assert alone.strip() == expected

        assert "heat map on" in terminal.type(":heat")
        with_heat = terminal.type(sentence)
        assert with_heat.startswith(expected + "\n")
        assert "nurse" in with_heat
        assert "</s>" in with_heat
        assert "heat map off" in terminal.type(":heat")

        assert terminal.type(":nbest 3").strip() == "beam 3, 3 best"
        rivals = terminal.type(sentence).strip().split("\n")
        scores = [float(rival.split()[0]) for rival in rivals]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert terminal.type(":beam 2").strip() == "beam 2, 2 best"
        assert len(terminal.type(sentence).strip().split("\n")) == 2
        assert "1 to 100" in terminal.type(":beam 0")
        assert "1 to 100" in terminal.type(":nbest lots")

        picture = tiny_run.parent / "seen.png"
        assert "saved" in terminal.type(f":save {picture}")
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert "ends in .png" in terminal.type(":save picture.doc")
        assert "cannot" in terminal.type(":save /nowhere/at/all.png")

        assert ":nbest N" in terminal.type(":help")
        assert ":haet: unknown command" in terminal.type(":haet")
        assert terminal.type("") == ""
        assert "Traceback" not in terminal.type("[/red] $_$ 🙂 <script>")
        os.write(terminal.controller, b"half a line")
        terminal.read_until("half a line")
        time.sleep(0.5)  # a signal that comes just before Python waits for a key is seen only with the next key
        terminal.process.send_signal(signal.SIGINT)  # Ctrl-C leaves the line, not the program
        terminal.read_until("\n> ")
        terminal.press(b"\x04")
        assert terminal.process.wait(SECONDS) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.controller)


# -- info, doctor, zoo ------------------------------------------------------------------------------------------------


def test_info_tells_what_the_run_is(answer: Callable[..., str], tiny_run: Path) -> None:
    facts = json.loads(answer("info", tiny_run, "--json"))
    assert facts["languages"] == "en → fr"
    assert facts["best"] == "step-00000040"
    assert facts["updates"] == 40
    assert facts["checkpoints"] == ["step-00000020", "step-00000030", "step-00000040"]
    assert 0 < facts["validation_loss"] < 6
    assert facts["vocabulary"] == [400, 400]
    assert facts["parameters"] > 10_000
    assert facts["test_bleu"] == json.loads((tiny_run / "translations" / "test.json").read_text())["bleu"]["score"]
    text = answer("info", tiny_run)
    for name in facts:
        assert name.replace("_", " ") in text
    assert "bahdanau, 1 × 16" in text
    assert "additive" in text


def test_doctor_tells_what_the_machine_is(answer: Callable[..., str]) -> None:
    facts = json.loads(answer("doctor", "--json"))
    import torch

    assert facts["torch"] == torch.__version__
    assert facts["cores"] == str(os.cpu_count())
    text = answer("doctor")
    assert all(f"{name} " in text for name in facts)


def test_zoo_shows_every_member(answer: Callable[..., str]) -> None:
    from translate.models.families import FAMILIES

    lines = answer("zoo").split("\n")
    for family in FAMILIES.values():
        for name, member in family.members.items():
            assert any(line.split()[:1] == [name] and member.formula in line for line in lines), name
            assert any(member.paper in line for line in lines), name


# -- init, then train -------------------------------------------------------------------------------------------------


def corpus(folder: Path, names: tuple[str, str], files: Path, count: int = 120, style: str = "") -> list[str | Path]:
    """Two files of training lines, as arguments of init."""
    arguments: list[str | Path] = []
    for option, name, side in zip(("--source", "--target"), names, ("en", "fr"), strict=True):
        lines = (files / f"train.{side}").read_text().split("\n")[:count]
        end = "\r\n" if style else "\n"
        text = ("\ufeff" if style else "") + "".join(line + end for line in lines)
        (folder / name).write_bytes(text.encode())
        arguments += [option, folder / name]
    return arguments


def test_init_divides_the_pairs(
    command_line: CommandLine, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = corpus(tmp_path, ("mine.en", "mine.de"), files, style="windows")
    for path in (tmp_path / "mine.en", tmp_path / "mine.de"):  # the first five pairs once more
        path.write_bytes(path.read_bytes() + b"".join(path.read_bytes()[3:].splitlines(keepends=True)[:5]))
    result = command_line("init", "project", *arguments)
    assert result.code == 0, result.err
    assert "5 duplicates dropped" in result.out
    assert "translate train project/config.toml" in result.out
    sides = {
        (split, side): (tmp_path / "project" / "data" / f"{split}.{side}").read_bytes().decode().split("\n")
        for split in ("train", "valid", "test")
        for side in ("en", "de")
    }
    assert all(lines.pop() == "" for lines in sides.values())
    everything = []
    for split in ("train", "valid", "test"):
        assert len(sides[split, "en"]) == len(sides[split, "de"]) == (20 if split != "train" else 80)
        everything += list(zip(sides[split, "en"], sides[split, "de"], strict=True))
    originals = [(files / f"train.{side}").read_text().split("\n")[:120] for side in ("en", "fr")]
    assert sorted(everything) == sorted(zip(*originals, strict=True)), "no pair is lost, torn, doubled or marked"
    assert not set(sides["train", "en"]) & {*sides["valid", "en"], *sides["test", "en"]}


SMALL = (
    *("train.steps=2", "train.valid_every=2", "train.threads=1", "tokenizer.vocabulary=400", "logging.pictures=false"),
    *("model.embedding.width=12", "model.encoder.width=8", "model.decoder.width=16"),
)


@pytest.mark.parametrize(
    ("names", "languages", "style"),
    [
        (("mine.en", "mine.de"), ("en", "de"), "windows"),
        (("source.txt", "target.txt"), ("src", "tgt"), ""),
    ],
)
def test_init_then_train(
    translate: Any, files: Path, tmp_path: Path, names: tuple[str, str], languages: tuple[str, str], style: str
) -> None:
    done = translate("init", "mine", *corpus(tmp_path, names, files, style=style), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for split in ("train", "valid", "test"):
        for language in languages:
            content = (tmp_path / "mine" / "data" / f"{split}.{language}").read_bytes()
            assert b"\r" not in content
            assert b"\xef\xbb\xbf" not in content
    done = translate("train", "mine/config.toml", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "80 pairs read, 80 kept" in done.stderr
    assert "test: BLEU" in done.stderr
    assert (tmp_path / "runs" / "mine" / "best").read_text() == "step-00000002\n"
    assert any((tmp_path / "runs" / "mine" / "tensorboard").iterdir())


@pytest.mark.parametrize("name", ["tsv", "jsonl", "parquet"])
def test_init_does_not_take_a_kind_of_file_for_a_language(
    answer: Callable[..., str], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # data/train.tsv beside data/train.txt would be two corpora at once, which training refuses.
    monkeypatch.chdir(tmp_path)
    answer("init", "project", *corpus(tmp_path, (f"mine.{name}", "mine.txt"), files))
    assert {path.suffix for path in (tmp_path / "project" / "data").iterdir()} == {".src", ".tgt"}


# -- the program itself -----------------------------------------------------------------------------------------------


def test_help_needs_no_torch(environment: dict[str, str], translate: Any) -> None:
    done = translate("--help")
    assert done.returncode == 0
    for command in (
        "init",
        "train",
        "evaluate",
        "compare",
        "curves",
        "aer",
        "text",
        "interactive",
        "align",
        "head",
        "info",
        "zoo",
        "doctor",
    ):
        assert f" {command} " in done.stdout
    script = subprocess.run(["translate", "--help"], env=environment, capture_output=True, text=True)
    assert script.returncode == 0
    assert script.stdout.split() == done.stdout.replace("python -m translate", "translate").split()
    code = (
        "import sys, translate.cli.app; print(sorted({'torch', 'numpy', 'matplotlib', 'pydantic'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert loaded.stdout == "[]\n", loaded.stderr
