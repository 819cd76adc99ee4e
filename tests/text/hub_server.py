"""A hub on loopback: the paths of the Hugging Face hub that loading a data set asks for, served from a folder."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves every data set under `root`, as owner/name/files."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.asked: list[str] = []
        self.most_downloads: int | None = None
        """The connection goes dead after this number of downloads of Parquet files."""
        self.downloads = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        if match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
            self._info(match[1])
        elif match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/[^/]+(?:/(.*))?", path):
            self._tree(match[1], match[2] or "")
        elif match := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._file(self.server.root / match[1] / match[2])
        else:
            self._send(404, b"{}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """paths-info: what the named files are."""
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"POST {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        match = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/paths-info/[^/]+", path)
        if not match:
            self._send(404, b"{}")
            return
        names = json.loads(body)["paths"]
        folder = self.server.root / match[1]
        self._json([_entry(folder, folder / name) for name in names if (folder / name).exists()])

    def _info(self, name: str) -> None:
        folder = self.server.root / name
        if not folder.is_dir():
            self._send(404, b'{"error":"Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return
        files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
        self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files], "tags": []})

    def _tree(self, name: str, below: str) -> None:
        folder = self.server.root / name
        start = folder / below
        if not start.is_dir():
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        recursive = "recursive=true" in self.path.lower()
        found = sorted(start.rglob("*") if recursive else start.iterdir())
        self._json([_entry(folder, path) for path in found])

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        if path.suffix == ".parquet" and self.command == "GET":
            self.server.downloads += 1
            if self.server.most_downloads is not None and self.server.downloads > self.server.most_downloads:
                self.close_connection = True
                return
        content = path.read_bytes()
        extra = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            self._send(200, content, extra)
            return
        begin, end = int(span[1]), min(int(span[2] or len(content)), len(content) - 1)
        extra["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], extra)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _entry(folder: Path, path: Path) -> dict[str, object]:
    name = str(path.relative_to(folder))
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": "0" * 40}
    return {"type": "file", "path": name, "size": path.stat().st_size, "oid": hashlib.sha1(name.encode()).hexdigest()}


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    """A hub on a free port of this machine."""
    with Hub(root) as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
