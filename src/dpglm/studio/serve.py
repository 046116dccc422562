"""Starting the studio: a socket on the loopback address, a secret in the address, and silence in the log."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from dpglm.custodian.files import wanted_names
from dpglm.errors import FileError, InputError
from dpglm.schema import Schema
from dpglm.studio.walk import STEPS, Walk

try:
    import uvicorn

    from dpglm.studio.app import Studio
    from dpglm.studio.guard import Guard
except ImportError:  # pragma: no cover
    raise InputError(
        "studio", None, "needs Starlette, Uvicorn and Jinja", 'install dpglm with its extra "studio"'
    ) from None


def first_walk(table: str, folder: Path, schema: Path | None, ledger: Path | None) -> Walk:
    """Where a walk begins: at the header; with a schema of before, at its columns' question."""
    if not folder.is_dir():
        raise FileError("folder", str(folder), "is not a folder", "create it first")
    names = wanted_names(table)
    stem = Path(table).resolve().name.split(".")[0]
    book = folder / f"{stem}.ledger" if ledger is None else ledger
    walk = Walk(table, folder, book, tuple(names), dataset=stem)
    if schema is None:
        return walk
    declared = Schema.load(schema)
    for name in declared.columns:
        if name not in names:
            raise InputError("column", name, "is declared and not in the table", "correct the schema")
    dataset = declared.dataset
    rows = "" if dataset.number is None else str(dataset.number)
    return Walk(
        table, folder, book, tuple(names), dataset.name, rows, dataset.unit, dataset.unit_column or "",
        private=dataset.number is None, schema=declared,
        schema_file=schema, reached=STEPS.index("question"),
    )  # fmt: skip


def serve(walk: Walk, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. ``announce`` is told the address, with its secret, once the socket listens."""
    listening = bound(port)
    server, address = studio_server(walk, listening)
    announce(address)
    server.run(sockets=[listening])


def bound(port: int) -> socket.socket:
    """A socket on the loopback address alone; port 0 is any free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except (OSError, OverflowError):
        listening.close()
        raise InputError("port", port, "cannot be listened on", "choose another, or 0 for any free one") from None
    return listening


def studio_server(walk: Walk, listening: socket.socket) -> tuple[uvicorn.Server, str]:
    """A server that logs nothing (an address would tell the secret), and the address to open."""
    port, secret = int(listening.getsockname()[1]), secrets.token_urlsafe(32)
    app = Guard(Studio(walk, secret).app(), secret, port)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, date_header=False, lifespan="off", ws="none",
        proxy_headers=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config), f"http://127.0.0.1:{port}/{secret}/"
