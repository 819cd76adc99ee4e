"""`translate text` and `score` with all they offer, on a run that the real command trained."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import translate as package
from translate.config import TokenizerConfig
from translate.decoding.stream import LineAlignedFile, count_answered, line_chunks
from translate.errors import UserError
from translate.text.corpus import read_lines
from translate.text.tokenizer import train_tokenizer

pytestmark = pytest.mark.slow

CommandLine = Callable[..., Any]


@pytest.fixture
def answer(command_line: CommandLine) -> Callable[..., list[str]]:
    """Call a command that must succeed, and give back the lines of its stdout."""

    def call(*arguments: str | Path) -> list[str]:
        result = command_line(*arguments)
        assert result.code == 0, result.err
        assert result.out.endswith("\n")
        return result.out.split("\n")[:-1]

    return call


@pytest.fixture
def source(tiny_run: Path) -> Path:
    return tiny_run / "data" / "test.source"


def test_draws_can_be_repeated_and_do_not_depend_on_neighbours(
    answer: Callable[..., list[str]], tiny_run: Path, source: Path, tmp_path: Path
) -> None:
    drawn = answer("text", tiny_run, source, "--sample", "--nbest", "2")
    assert len(drawn) == 24
    assert answer("text", tiny_run, source, "--sample", "--nbest", "2") == drawn
    assert answer("text", tiny_run, source, "--sample", "--nbest", "2", "--seed", "2") != drawn
    small = ("--set", "search.batch_tokens=20")
    assert answer("text", tiny_run, source, "--sample", "--nbest", "2", *small) == drawn
    greedy = answer("text", tiny_run, source, "--beam", "1")
    assert answer("text", tiny_run, source, "--sample", "--top-k", "1") == greedy


def test_append_goes_on_where_the_output_ends(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    whole = answer("text", tiny_run, source, "--nbest", "2")
    assert len(whole) == 24
    out.write_text("".join(f"{line}\n" for line in whole[:7]) + "half a li")
    assert command_line("text", tiny_run, source, "--nbest", "2", "--output", out, "--append").code == 0
    assert out.read_text().split("\n")[:-1] == whole
    assert command_line("text", tiny_run, source, "--nbest", "2", "--output", out, "--append").code == 0
    assert out.read_text().split("\n")[:-1] == whole, "there was nothing left to do"
    longer = command_line("text", tiny_run, source, "--output", out, "--append")
    assert longer.code == 2
    assert "has 12 lines, but 24 are answered already" in longer.err
    refused = command_line("text", tiny_run, source, "--append")
    assert refused.code == 2
    assert "--output" in refused.err


def test_an_ensemble_with_itself_and_one_of_strangers(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, own_run: Path, source: Path
) -> None:
    alone = answer("text", tiny_run, source)
    assert answer("text", tiny_run, source, "--ensemble", own_run) == alone
    other = train_tokenizer(["other words"] * 9, TokenizerConfig(vocabulary=300), 1, print)
    (own_run / "tokenizer.target.model").write_bytes(other)
    refused = command_line("text", tiny_run, source, "--ensemble", own_run)
    assert refused.code == 2
    assert "different tokenizers" in refused.err
    turn(own_run)
    refused = command_line("text", tiny_run, source, "--ensemble", own_run)
    assert refused.code == 2
    assert "runs of an ensemble must have the same" in refused.err


def turn(run: Path) -> None:
    """Make a run say that it is of the other direction; its vocabulary is joint."""
    config = run / "config.toml"
    text = config.read_text()
    turned = text.replace('source_lang = "en"', 'source_lang = "fr"').replace(
        'target_lang = "fr"', 'target_lang = "en"'
    )
    assert turned != text
    config.write_text(turned)


def test_nothing_is_lost_by_a_mistake(command_line: CommandLine, tiny_run: Path, source: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_bytes(source.read_bytes())
    refused = command_line("text", tiny_run, text, "--output", text)
    assert refused.code == 2
    assert "is also an input" in refused.err
    assert text.read_bytes() == source.read_bytes()
    out.write_text("kept\n")
    beside = tmp_path / "beside"
    beside.write_text("le chien\n")
    (tmp_path / "bad").write_bytes(b"\xff\xfe\n")
    for file, more in (("nofile", ()), ("bad", ()), ("text", ("--prefix", beside)), ("text", ("--beam", "0"))):
        assert command_line("text", tiny_run, tmp_path / file, "--output", out, *more).code == 2
        assert out.read_text() == "kept\n"
    (tmp_path / "empty").write_text("")
    assert command_line("text", tiny_run, tmp_path / "empty", "--output", out).code == 0
    assert out.read_text() == ""
    full = command_line("text", tiny_run, source, "--output", "/dev/full")
    assert full.code == 2
    assert full.err.endswith("/dev/full: cannot be written: No space left on device.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--temperature", "0.5"), "--temperature belongs to --sample"),
        (("--seed", "3"), "--seed belongs to --sample"),
        (("--rerank-weight", "2"), "--rerank-weight belongs to --rerank"),
        (("--prefix", "-", "--require", "-"), "Only one of FILE, --prefix and --require"),
        (("--sample", "--keep-entities"), "need beam search"),
        (("--keep-entities", "--beam", "4", "--set", "search.groups=2"), "both divide the beam"),
        (("--beam", "1", "--set", "search.groups=4"), "does not divide search.beam = 1"),
    ],
)
def test_options_that_say_nothing_together_are_refused(
    command_line: CommandLine, tiny_run: Path, source: Path, options: tuple[str, ...], message: str
) -> None:
    refused = command_line("text", tiny_run, source, *options)
    assert refused.code == 2
    assert message in refused.err
    assert refused.out == ""


def test_wishes_and_bans_from_the_command_line(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, source: Path, tmp_path: Path
) -> None:
    count = len(source.read_text().split("\n")) - 1
    (tmp_path / "beside").write_text("le chien\n" * count)
    started = answer("text", tiny_run, source, "--prefix", tmp_path / "beside")
    assert all(line.startswith("le chien") for line in started)
    held = answer("text", tiny_run, source, "--require", tmp_path / "beside", "--beam", "1")
    assert all("le chien" in line for line in held)
    usual = answer("text", tiny_run, source)
    common = max((word for line in usual for word in line.split()), key=" ".join(usual).split().count)
    without = answer("text", tiny_run, source, "--ban", common)
    assert not any(common in line.split() for line in without)
    (tmp_path / "beside").write_text("le chien\n" * (count - 2))
    refused = command_line("text", tiny_run, source, "--prefix", tmp_path / "beside")
    assert refused.code == 2
    assert f"has {count - 2} lines" in refused.err
    (tmp_path / "beside").write_text("le chien\n" * (count + 1))
    refused = command_line("text", tiny_run, source, "--prefix", tmp_path / "beside")
    assert refused.code == 2
    assert "has more lines than the input" in refused.err
    (tmp_path / "beside").write_text(f"{common}\n" * count)
    refused = command_line("text", tiny_run, source, "--require", tmp_path / "beside", "--ban", common)
    assert refused.code == 2
    assert f"'{common}' is required and banned" in refused.err


def test_settings_of_search_can_be_changed(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, source: Path
) -> None:
    short = answer("text", tiny_run, source, "--set", "search.max_length=3")
    assert max(len(line.split()) for line in short) <= 2
    refused = command_line("text", tiny_run, source, "--set", "search.stpo=full")
    assert refused.code == 2
    assert "Did you mean 'search.stop'?" in refused.err
    assert command_line("text", tiny_run, source, "--set", "search.stop=never").code == 2
    assert command_line("text", tiny_run, source, "--set", "search.groups=2", "--beam", "3").code == 2
    assert command_line("text", tiny_run, source, "--set", "train.steps=3").code == 2


def test_reranking_orders_by_both_scores(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, own_run: Path, source: Path
) -> None:
    same = command_line("text", tiny_run, source, "--rerank", own_run)
    assert same.code == 2
    assert f"--rerank {own_run} translates en → fr, as" in same.err
    turn(own_run)
    rivals = answer("text", tiny_run, source, "--beam", "3", "--nbest", "3", "--scores")
    unweighted = ("--rerank", str(own_run), "--rerank-weight", "0")
    assert answer("text", tiny_run, source, "--beam", "3", "--nbest", "3", "--scores", *unweighted) == rivals
    ranked = answer("text", tiny_run, source, "--beam", "3", "--nbest", "3", "--scores", "--rerank", str(own_run))
    reverse = package.load(tiny_run)
    lines = source.read_text().split("\n")
    for i in range(0, len(ranked), 3):
        before = dict(rival.split("\t")[::-1] for rival in rivals[i : i + 3])
        after = [rival.split("\t") for rival in ranked[i : i + 3]]
        assert {text for _, text in after} == set(before)
        assert [float(score) for score, _ in after] == sorted((float(score) for score, _ in after), reverse=True)
        (back,) = reverse.force([after[0][1]], [lines[i // 3]])
        assert float(after[0][0]) == pytest.approx(float(before[after[0][1]]) + back.score, abs=3e-4)


def test_more_translations_than_the_beam_has_are_refused(tiny_run: Path) -> None:
    """The command widens the beam; whoever calls the library gets a message."""
    with pytest.raises(UserError, match=r"search\.beam = 2 .*--nbest"):
        package.load(tiny_run).translate(["the dog sleeps"], num_best=3)


def test_score_agrees_with_search(
    answer: Callable[..., list[str]], command_line: CommandLine, tiny_run: Path, source: Path, tmp_path: Path
) -> None:
    found = [line.split("\t") for line in answer("text", tiny_run, source, "--scores")]
    (tmp_path / "target").write_text("".join(f"{text}\n" for _, text in found))
    files = ("--source", source, "--target", tmp_path / "target")
    rows = [line.split("\t") for line in answer("score", tiny_run, *files, "--tokens")]
    summary = json.loads(answer("score", tiny_run, *files, "--json")[0])
    assert len(rows) == len(found) == summary["sentences"] == 12
    translator = package.load(tiny_run)
    best = [several[0] for several in translator.translate(list(read_lines(source)))]
    spelt_alike = [one.tgt_ids[:-1] == tuple(translator.target.encode(one.text)) for one in best]
    assert sum(spelt_alike) >= 6
    for (score, _), (log_prob, count, mean, pieces), alike in zip(found, rows, spelt_alike, strict=True):
        assert float(log_prob) / int(count) == pytest.approx(float(mean), abs=1e-3)
        parts = [float(piece.rpartition(":")[2]) for piece in pieces.split(" ")]
        assert len(parts) == int(count)
        assert sum(parts) == pytest.approx(float(log_prob), abs=1e-4 * len(parts))  # four decimals each
        if alike:  # else the text was cut into other pieces than were written
            assert float(mean) == pytest.approx(float(score), abs=2e-4)
    assert summary["tokens"] == sum(int(row[1]) for row in rows)
    assert summary["log_prob"] == pytest.approx(sum(float(row[0]) for row in rows), abs=1e-2)
    assert summary["perplexity"] == pytest.approx(math.exp(-summary["log_prob"] / summary["tokens"]))
    (tmp_path / "target").write_text("one line\n")
    refused = command_line("score", tiny_run, *files)
    assert refused.code == 2
    assert "12" in refused.err


def test_two_processes_share_a_file(
    answer: Callable[..., list[str]], tiny_run: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    lines = [line for line in (tiny_run.parent / "data" / "train.en").read_text().split("\n") if line]
    many = tmp_path / "many"
    many.write_text("".join(f"{line} {i % 7}\n" for i, line in enumerate(lines * 11)))  # three chunks
    arguments = ["text", str(tiny_run), str(many), "--beam", "1", "--output", str(tmp_path / "out")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "--", "translate"]
    done = subprocess.run([*launcher, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text().split("\n")[:-1] == answer("text", tiny_run, many, "--beam", "1")


def test_a_translator_in_python(answer: Callable[..., list[str]], tiny_run: Path, source: Path) -> None:
    translator = package.load(tiny_run)
    lines = source.read_text().split("\n")[:-1]
    found = [best[0] for best in translator.translate(lines)]
    assert [one.text for one in found] == answer("text", tiny_run, source)
    for one in found:
        assert one.tokens[-1] == "</s>"
        assert one.attention is not None
        assert one.attention.shape == (len(one.tokens), len(one.src_ids))
        assert sum(one.token_log_probs) == pytest.approx(one.log_prob, abs=1e-5)
    assert [len(several) for several in translator.translate(lines[:3], num_best=2)] == [2, 2, 2]


def test_chunks_of_files_are_large_and_skip(tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_text("".join(f"{i}\n" for i in range(2500)))
    assert [len(chunk) for chunk in line_chunks(path)] == [1000, 1000, 500]
    assert next(iter(line_chunks(path, skip=2300)))[0] == "2300"
    beside = LineAlignedFile(path, skip=2498)
    assert beside.next(1) == ["2498"]
    with pytest.raises(UserError, match="has 2500 lines"):
        beside.next(2)


def test_answers_are_counted_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert count_answered(path, 2) == 0
    path.write_bytes(b"a\nb\nc\nd\ne\nf")
    assert count_answered(path, 2) == 2
    assert path.read_bytes() == b"a\nb\nc\nd\n"
    assert count_answered(path, 3) == 1
    assert path.read_bytes() == b"a\nb\nc\n"


def test_an_endless_pipe_ends_with_its_reader(tiny_run: Path, environment: dict[str, str]) -> None:
    pipe = f"yes 'the dog sleeps' | {sys.executable} -m translate text {tiny_run} --beam 1 | head -3"
    begin = time.monotonic()
    done = subprocess.run(["bash", "-c", pipe], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.count("\n") == 3
    assert done.stderr == ""
    assert time.monotonic() - begin < 60
