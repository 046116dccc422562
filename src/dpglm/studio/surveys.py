"""Surveys that a question can use again for nothing: of kept releases, where they know all its columns.

Of a ledger that cannot be read there are none: the last click, which opens it too, says why.
"""

from __future__ import annotations

from pathlib import Path

from dpglm.errors import DpglmError, InputError
from dpglm.formula import Design
from dpglm.release_file import read_release
from dpglm.releases import Release

_MOST = 20  # kept releases that are looked at, the newest


def usable_surveys(ledger: Path, design: Design) -> tuple[Release, ...]:
    """Releases whose survey knows this question's columns, condition and weights; one a survey, newest first."""
    from dpglm.custodian.ledger import Ledger

    if not ledger.exists():
        return ()
    try:
        book = Ledger.open(ledger)
        kept = dict.fromkeys(entry.release_id for entry in book.entries() if entry.has_release)
    except DpglmError:
        return ()
    found: dict[str, Release] = {}
    for release_id in reversed(list(kept)[-_MOST:]):
        try:
            release = read_release(book.export(release_id))
            if release.survey_record is None or release.dataset_id != design.schema.dataset.id:
                continue
            release.survey_record.survey_of(design)
        except DpglmError:
            continue
        found[release.survey_record.release_id] = release
    return tuple(found.values())


def chosen_survey(ledger: Path, design: Design, release_id: str) -> Release | None:
    """The release whose survey was asked for; None where a new one was."""
    if not release_id:
        return None
    for release in usable_surveys(ledger, design):
        if release.id == release_id:
            return release
    raise InputError("survey", release_id, "cannot be used for this question", "choose a new one")
