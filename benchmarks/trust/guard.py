"""What a reader may do with a hostile file: return, or raise one documented line. Anything else is a breach.

While the guard watches, each case has a limit on time and the process one on memory; starting a program, loading code,
unpickling, opening a socket, or touching any file but the one it was given is a breach as well.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpglm.errors import InputError

SECONDS = 20.0  # of the processor, a case: on a busy machine a clock on the wall would convict the scheduler
MEGABYTES = 2_000  # beyond what the process has when the watch begins
LONGEST_MESSAGE = 1_000
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename", "os.rmdir", "os.mkdir",
    "os.link", "os.symlink", "os.chmod", "os.truncate", "subprocess.Popen", "pickle.find_class", "socket.", "shutil.",
    "ctypes.dlopen", "urllib.", "webbrowser.", "sqlite3.load_extension", "sqlite3.enable_load_extension", "exec",
)  # fmt: skip


class TooLong(BaseException):
    """A case ran beyond its time; not an Exception, so that no reader can swallow it."""


@dataclass
class Guard:
    """Runs readers on hostile input and keeps count."""

    folder: Path
    seconds: float = SECONDS
    cases: int = 0
    accepted: int = 0
    slowest: float = 0.0
    breaches: list[str] = field(default_factory=list)
    _touched: list[str] = field(default_factory=list)
    _watching: bool = False

    def __post_init__(self) -> None:
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
        own = str(Path(sys.modules["dpglm"].__file__ or "").parent)
        self._readable = tuple(os.path.realpath(path) for path in (*libraries, own))
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event.startswith(FORBIDDEN) and not (event == "exec" and self._is_import(arguments[0])):
            self._touched.append(f"{event} {str(arguments)[:100]}")
        elif event in ("open", "sqlite3.connect"):
            self._opened(event, arguments)

    def _is_import(self, code: Any) -> bool:
        """A module of an installed library that is loaded when it is first needed."""
        return code.co_name == "<module>" and os.path.realpath(code.co_filename).startswith(self._readable)

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0]
        if isinstance(path, int):
            return
        text = os.fsdecode(path).removeprefix("file://").partition("?")[0]
        real = os.path.realpath(text)
        writing = event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if real.startswith(str(self.folder)) and not writing:
            return
        if writing or not real.startswith(self._readable):
            self._touched.append(f"{event} {str(arguments)[:100]}")

    def check(self, what: str, reader: Callable[[], object], shown: Callable[[], str]) -> bool:
        """Whether the reader accepted its input."""
        self.cases += 1
        problem, accepted = None, False
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        self._watching = True
        try:
            reader()
            accepted = True
        except InputError as error:
            message = str(error)
            if len(message) > LONGEST_MESSAGE or message.splitlines() != [message]:
                problem = f"a message that is not one line: {message[:200]!r}"
        except TooLong:
            problem = f"took longer than {self.seconds} s"
        except BaseException as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            self._watching = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.slowest = max(self.slowest, time.process_time() - start)
        if self._touched:
            problem = f"it touched {self._touched[:3]}"
            self._touched.clear()
        if problem is not None:
            self.breaches.append(f"{what}: {problem} for {shown()[:400]}")
        self.accepted += accepted
        return accepted


@contextlib.contextmanager
def limits(megabytes: int = MEGABYTES) -> Iterator[None]:
    """A limit on memory, beyond what the process has, and a clock that interrupts."""

    def interrupt(*_: object) -> None:
        raise TooLong

    old = signal.signal(signal.SIGPROF, interrupt)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, old)
