"""`translate init`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from translate.text.split import Split


OTHER_KINDS = {"tsv", "jsonl", "parquet"}  # endings of files that hold both sides, so no language codes


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the corpus and its configuration.")],
    source: Annotated[
        Path | None, typer.Option(help="Text in the language to translate from, one sentence a line.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Its translation, line by line.")] = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Language code, as in en or zh; the file's ending if left out.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Language code of the target; the file's ending if left out.")
    ] = None,
    valid: Annotated[int | None, typer.Option(min=1, help="Validation pairs; 2 % (20 to 1,000) if left out.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test pairs; 2 % (20 to 1,000) if left out.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Take the English-French demo corpus instead of files of your own.")
    ] = False,
) -> None:
    """Make a training folder from two text files, or from the demo corpus."""
    from translate.errors import UserError

    if (folder / "config.toml").exists() or (folder / "data").exists():
        raise UserError(f"{folder} holds a config.toml or data already; nothing was written. Give another folder.")
    if demo:
        own = {
            **{"--source": source, "--target": target, "--source-lang": source_lang, "--target-lang": target_lang},
            **{"--valid": valid, "--test": test},
        }
        if given := [option for option, value in own.items() if value is not None]:
            raise UserError(f"--demo brings its own corpus. Leave out {', '.join(given)}, or leave out --demo.")
        init_demo(folder)
    elif source is None or target is None:
        raise UserError(
            "Give --source and --target, two text files in which line N of one is the translation of line N of the "
            "other; or --demo, for the demo corpus."
        )
    else:
        init_from_files(folder, (source, target), (source_lang, target_lang), valid, test)


def init_demo(folder: Path) -> None:
    """Write the demo corpus and a configuration with the settings of configs/demo.toml."""
    from translate.text.demo_corpus import demo_files, demo_settings

    corpus = dict(demo_files())
    settings = demo_settings()
    settings["data"]["folder"] = "data"
    write_project(folder, corpus.items(), settings)
    train, valid, test = (corpus[f"{split}.en"].count(b"\n") for split in ("train", "valid", "test"))
    print(
        "From English to French: the demo corpus, artificial sentences with the word links between them.\n"
        f"{folder}/data: {train:,} pairs for training, {valid:,} for validation, {test:,} for test, "
        "and their links (.align).\n"
        f"{folder}/config.toml: every setting with its meaning.\n"
        f"Next: translate train {folder}/config.toml"
    )


def init_from_files(
    folder: Path,
    files: tuple[Path, Path],
    given_languages: tuple[str | None, str | None],
    valid: int | None,
    test: int | None,
) -> None:
    """Divide two text files into training, validation and test, and write a configuration that suits their size."""
    import warnings

    from translate.errors import UserError
    from translate.text.split import split_corpus

    source, target = files
    if source.is_file() and target.is_file() and source.samefile(target):
        raise UserError(f"--source and --target are the same file, {source}.")
    languages = _languages(source, target, *given_languages)
    if languages == ("src", "tgt"):
        warnings.warn(
            f"the endings of {source} and {target} do not name the languages, so they are called src and tgt. "
            "Scores and alignments depend on the language, as for Chinese: give --source-lang and --target-lang.",
            stacklevel=1,
        )
    split = split_corpus(source, target, valid, test)
    write_project(folder, _files_of(split, languages), suggested(len(split.train), languages))
    print(
        f"From {languages[0]} to {languages[1]}, by "
        f"{'the options' if all(given_languages) else 'the endings of the files'}.\n"
        f"{folder}/data: {len(split.train):,} pairs for training, {len(split.valid):,} for validation, "
        f"{len(split.test):,} for test ({split.num_duplicates:,} duplicates dropped).\n"
        f"{folder}/config.toml: every setting with its meaning.\n"
        f"Next: translate train {folder}/config.toml"
    )


def _languages(source: Path, target: Path, source_lang: str | None, target_lang: str | None) -> tuple[str, str]:
    from translate.errors import UserError

    endings = source.suffix[1:], target.suffix[1:]
    if not all(endings) or endings[0] == endings[1] or {*endings} & OTHER_KINDS:
        endings = ("src", "tgt")
    languages = source_lang or endings[0], target_lang or endings[1]
    if languages[0] == languages[1]:
        raise UserError(f"Both languages are called '{languages[0]}'. Give --source-lang and --target-lang.")
    for language in languages:
        if not language.replace("-", "").replace("_", "").isalnum() or language in OTHER_KINDS:
            raise UserError(f"'{language}' cannot name a language: use letters and digits, as in en or pt-BR.")
    return languages


def _files_of(split: Split, languages: tuple[str, str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a corpus; one content at a time is in memory."""
    for name, pairs in (("train", split.train), ("valid", split.valid), ("test", split.test)):
        for side, language in enumerate(languages):
            yield f"{name}.{language}", "".join(pair[side] + "\n" for pair in pairs).encode()


def write_project(folder: Path, corpus: Iterable[tuple[str, bytes]], settings: Mapping[str, Mapping[str, Any]]) -> None:
    """The corpus files, given by name and content, and a configuration in which every setting is explained."""
    from translate.errors import UserError

    try:
        data = folder / "data"
        data.mkdir(parents=True)
        for name, content in corpus:
            (data / name).write_bytes(content)
        (folder / "config.toml").write_text(commented_config(settings), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}.") from None


def suggested(num_pairs: int, languages: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """Settings that suit a corpus of this size on a laptop; all others keep their defaults."""
    sizes = ((2_000, 1_000, 1_500), (20_000, 2_000, 4_000), (200_000, 8_000, 20_000))
    vocabulary, steps = next(((v, s) for most, v, s in sizes if num_pairs < most), (16_000, 60_000))
    source_lang, target_lang = languages
    return {
        "data": {"folder": "data", "source_lang": source_lang, "target_lang": target_lang},
        "tokenizer": {"vocabulary": vocabulary},
        "train": {"steps": steps, "valid_every": steps // 10},
    }


def commented_config(values: Mapping[str, Mapping[str, Any]]) -> str:
    """A configuration file: the given settings, and all others as comments with their defaults."""
    from translate.config import Config

    lines = ["# A configuration of `translate train`. Settings after # have their default values."]
    _write_section(lines, "", Config, values)
    return "\n".join(lines) + "\n"


def _write_section(lines: list[str], prefix: str, section: Any, values: Mapping[str, Any]) -> None:
    import tomli_w
    from pydantic_core import PydanticUndefined

    from translate.config import choices

    inner = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
            inner.append((name, field.annotation))
            continue
        lines += ["", *(f"# {line}" for line in (field.description or "").split("\n"))]
        if choices(section, name):
            lines.append(f"# One of: {', '.join(choices(section, name))}.")
        if name in values:
            lines.append(tomli_w.dumps({name: values[name]}).strip())
        elif field.default is None or field.default is PydanticUndefined:
            lines.append(f"# {name} =")
        else:
            value = list(field.default) if isinstance(field.default, tuple) else field.default
            lines.append("# " + " ".join(tomli_w.dumps({name: value}).split()))
    for name, annotation in inner:
        lines += ["", f"[{prefix}{name}]"]
        lines += [f"# {annotation.__doc__}"]
        _write_section(lines, f"{prefix}{name}.", annotation, values.get(name, {}))
