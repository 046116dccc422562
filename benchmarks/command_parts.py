"""`dpglm fit` in a process that watches itself: the seconds of each part, as JSON on standard error.

python benchmarks/command_parts.py RELEASE OUTPUT
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def seconds_since_the_process_began() -> float:
    """By the system's clock, which counts in hundredths."""
    began = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - began


def main() -> None:
    release, output = sys.argv[1:]
    zero = time.perf_counter() - seconds_since_the_process_began()
    spans: dict[str, list[tuple[float, float]]] = {}

    def watch(module: Any, *names: str) -> None:
        """Note when functions are called and when they return."""
        for name in names:
            setattr(module, name, watched(name, getattr(module, name)))

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter() - zero
            try:
                return function(*arguments, **options)
            finally:
                spans.setdefault(name, []).append((start, time.perf_counter() - zero))
                if name == "load_release":
                    from dpglm.analyst import fit, programs

                    watch(fit, "fit_moments", "fit_staged")
                    watch(programs, "_kept")

        return call

    def end(code: int) -> None:
        now = time.perf_counter() - zero
        ((read, has_read),) = spans["load_release"]
        ((fits, has_fitted),) = spans.get("fit_moments") or spans["fit_staged"]
        waited = sum(stop - start for start, stop in spans["_kept"])
        parts = {
            "command": read, "release": has_read - read, "analyst": fits - has_read, "waiting": waited,
            "sampling": has_fitted - fits - waited, "table": now - has_fitted,
        }  # fmt: skip
        print(json.dumps(parts), file=sys.stderr, flush=True)
        exit_now(code)

    sys.argv[1:] = ["fit", release, "--output", output, "--force"]
    import dpglm
    from dpglm import __main__ as command

    watch(dpglm, "load_release")
    exit_now, os._exit = os._exit, end
    command.program()


if __name__ == "__main__":
    main()
