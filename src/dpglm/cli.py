"""The command line: each command does what the Python function of its name does.

Results go to standard output, errors and progress to standard error. The help texts are the reference.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dpglm import cli_analyst, cli_custodian, cli_review, cli_studio
from dpglm.cli_ledger import ledger_app
from dpglm.cli_options import STOPPED, QuietOption, fail
from dpglm.errors import DpglmError, FileError

HELP = """Honest regression coefficients from private tables.

A custodian turns a table into one noisy release file; an analyst turns the file into a posterior and a report.

\b
dpglm demo                        see it all on simulated rows
dpglm init, check, plan,
      ledger init, release        for the custodian, who has the table
dpglm studio                      the same steps as a local web page
dpglm statement                   for the board that has to agree
dpglm fit, report                 for the analyst, who has a release

\b
Exit codes:
  0    done
  1    a mistake in what was given, or a file that cannot be read or written
  2    no such command or option, or one is missing
  3    a bug of dpglm; DPGLM_TRACEBACK=1 shows where (it may quote the table)
  130  stopped by Ctrl-C; no output file is left half-written
With 1, 2, 3 and 130 comes one line on standard error that says what to do.
"""

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", no_args_is_help=False)
app.add_typer(ledger_app, name="ledger")


def _print_version(wanted: bool) -> None:
    if wanted:
        import dpglm

        typer.echo(f"dpglm {dpglm.__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Argument(help="Where to write; default: a new temporary folder.")] = None,
    quiet: QuietOption = False,
) -> None:
    """The whole story on a simulated table: schema, ledger, release, fit, report.

    \b
    Examples:
      dpglm demo
      dpglm demo my-first-release
    """
    import tempfile

    from dpglm.demo import run

    run(folder or Path(tempfile.mkdtemp(prefix="dpglm-demo-")), quiet=quiet)


COMMANDS: tuple[Callable[..., None], ...] = (
    cli_custodian.init, cli_custodian.check, cli_custodian.plan, cli_custodian.release, cli_analyst.fit,
    cli_analyst.report, cli_review.statement, cli_studio.studio,
)  # fmt: skip
for _command in COMMANDS:
    app.command()(_command)


def main(arguments: list[str] | None = None) -> None:
    """A command: one line on standard error and a non-zero exit for every mistake."""
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
    if sys.stdout is None:  # closed by the shell: there is nobody to tell
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        given = sys.argv[1:] if arguments is None else arguments
        code: Any = app(args=given or ["--help"], prog_name="dpglm", standalone_mode=False)
        sys.stdout.flush()
        if code == STOPPED:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
    except DpglmError as error:
        fail(str(error), 1)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "dpglm"
        fail(f"{where}: {error.format_message()} (see {where} --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        fail("stopped: no output file was written", STOPPED)
    except OSError as error:  # a full or closed standard output, mostly: dpglm's own files raise its own errors
        _close_output()
        name, value = ("output", "standard output") if error.filename is None else ("file", str(error.filename))
        fail(str(FileError(name, value, f"cannot be used ({error.strerror})", "make room, or choose another")), 1)
    except Exception as error:
        if os.environ.get("DPGLM_TRACEBACK"):
            raise
        fail(f"a bug of dpglm ({type(error).__name__}): set DPGLM_TRACEBACK=1 to see where, and report it", 3)
    sys.exit(code if isinstance(code, int) else 0)


def _close_output() -> None:
    """Point standard output elsewhere, so that Python does not complain again while it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
