"""``python -m dpglm``, and what the shell calls.

A fit of a small model waits for its compiled programs more than for anything else. So another thread begins to load
them while the command line is still being imported and read.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import sys
from pathlib import Path
from threading import Thread

_LARGEST_FILE = 10_000_000  # bytes that are read before anybody has asked for it


def program() -> None:
    """A command, from its first import to its end."""
    gc.set_threshold(100_000)  # imports make many objects, and none of them is garbage
    atexit.register(gc.freeze)  # nor need Python look for garbage in them as it ends
    fits = sys.argv[1:2] == ["fit"]
    if fits:
        Thread(target=_load_ahead, args=(sys.argv[2:],), daemon=True).start()
    from dpglm.cli import STOPPED, main

    try:
        main()
    except SystemExit as end:
        if fits or end.code == STOPPED:
            # Compiled programs are slow to take apart, and threads that still work on some would crash meanwhile.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise


def _load_ahead(arguments: list[str]) -> None:
    """Guess which releases will be fitted. A wrong guess loads in vain; mistakes are the command's to find."""
    with contextlib.suppress(Exception):
        kinds = []
        for path in map(Path, arguments):
            if path.suffix == ".json" and path.is_file() and path.stat().st_size < _LARGEST_FILE:
                release = json.loads(path.read_bytes())
                regression = release["regression"]
                kinds.append((regression["family"], regression["formula"], len(release["stages"])))
        if kinds:
            from dpglm.analyst.programs import load_for

            load_for(kinds)


if __name__ == "__main__":
    program()
