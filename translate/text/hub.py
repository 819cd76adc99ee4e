"""Data sets of the Hugging Face hub, and folders with the same structure, as streams of rows."""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from translate.errors import DataError

_SECONDS = 5.0
_RETRIES, _PAUSE = 3, 2  # of a download that stops in the middle


def open_hub(name: str, split: str, languages: Sequence[str], where: str, columns: Sequence[str] | None = None) -> Any:
    """A split as a stream of rows, or an error within seconds; only `columns` are downloaded if they are given."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets
    import huggingface_hub

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    datasets.config.STREAMING_READ_MAX_RETRIES = _RETRIES
    datasets.config.STREAMING_READ_RETRY_INTERVAL = _PAUSE
    huggingface_hub.logging.set_verbosity(logging.ERROR)
    if not Path(name).is_dir():
        _check(name, where)
    only = {} if columns is None else {"columns": list(columns)}
    try:
        configurations = datasets.get_dataset_config_names(name)
        configuration = _of_languages(configurations, languages)
        with tempfile.TemporaryDirectory() as cache:  # else lock files accumulate in the home folder
            return datasets.load_dataset(name, configuration, split=split, streaming=True, cache_dir=cache, **only)
    except Exception as error:  # the library raises many unrelated types for mistakes of the user
        raise DataError(f"{where}: {first_line(error)}. See data.folder and data.train|valid|test.") from None


def rows_of(rows: Iterable[dict[str, Any]], where: str) -> Iterator[dict[str, Any]]:
    """The rows one by one; all errors of the readers behind them become a DataError."""
    stream = iter(rows)
    for number in itertools.count(1):
        try:
            row = next(stream, None)
        except Exception as error:  # the readers behind a data set can raise anything
            raise DataError(f"{where}, row {number}: cannot be read: {first_line(error)}.") from None
        if row is None:
            return
        yield row


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _of_languages(configurations: Sequence[str], languages: Sequence[str]) -> str | None:
    """The configuration named by both languages, in either order; None leaves the choice to the data set."""
    both = ("-".join(languages), "-".join(reversed(languages)))
    chosen = next((pair for pair in both if pair in configurations), None)
    if chosen is None and len(configurations) > 1 and "default" not in configurations:
        some = ", ".join(configurations[:20]) + (" …" if len(configurations) > 20 else "")
        raise ValueError(f"it has no languages {' and '.join(both)}; there are: {some}")
    return chosen


def _check(name: str, where: str) -> None:
    """Check a name by one short request: `load_dataset` itself retries for half a minute."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=_SECONDS)
    except RepositoryNotFoundError:
        raise DataError(
            f"{where}: the hub has no such data set, or it is private. Search for the name at https://huggingface.co/datasets."
        ) from None
    except HFValidationError:
        raise DataError(f"{where}: neither a folder here nor a name of the form owner/name.") from None
    except HfHubHTTPError as error:
        raise DataError(f"{where}: the hub refused: {first_line(error)}.") from None
    except Exception as error:  # httpx errors, whose names differ between releases
        raise DataError(
            f"{where}: the Hugging Face hub cannot be reached ({first_line(error)}). Check the network or the proxy, "
            "or copy the data set to this machine and give its folder as data.folder, or by --mirror to `data fetch`."
        ) from None
