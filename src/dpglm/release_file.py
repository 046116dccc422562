"""The release's JSON file. Reading checks the version, the published JSON Schema, the
checksum, and that the stated coding is the one that the formula and the declared columns give.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections import Counter
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.blocks import BlockShape, refuse_many_monomials
from dpglm.errors import FileError, InputError
from dpglm.expressions import Expression
from dpglm.families import FAMILIES
from dpglm.formula import Design, Factor, build_design
from dpglm.grid import ROUNDING_RULE, Grid
from dpglm.looks.coding import LARGEST, look_grid, standard_design
from dpglm.looks.profile import LOOKS_BEFORE, Profile, cells, squared_change
from dpglm.looks.questions import Place, Question
from dpglm.looks.survey import SHARPER_COUNTED, Survey, SurveyRecord, counted_rows, subjects
from dpglm.looks.viewpoint import LOOK_BLOCKS, Viewpoint
from dpglm.privacy import Privacy, compose, delta_of, rho_of
from dpglm.protection import ONE_ROW_REPLACED, Protection
from dpglm.releases import Block, LedgerFact, Release, Stage
from dpglm.schema import Schema
from dpglm.statement import CAVEATS

SCHEMA_VERSION = 4  # what is read; releases that an older version could read are written as its
STAGED_VERSION = 2  # releases in stages, which an earlier version made
FORMAT = "dpglm-release"
ACCOUNTANT = "Gaussian differential privacy: mu^2 adds up over releases of a table; analytic (epsilon, delta) of mu"
MECHANISM = "discrete Gaussian noise (OpenDP) on exact integer sums of fixed-point rows"
_LARGEST_FILE = 2**24  # a look of 250 columns takes about three million characters
_SQLITE = b"SQLite format 3\0"  # how a ledger begins


def release_text(release: Release) -> str:
    """The file's text."""
    data = _to_dict(release)
    data["checksum"] = _checksum(data)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load_release(path: str | Path) -> Release:
    """Read a release file; one clear error if it is not whole, not a release, or newer than this version."""
    file = as_path("release", path)
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise FileError("release", str(path), "is larger than a release can be", "check the path")
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark before the text
    except UnicodeDecodeError:
        raise FileError("release", str(path), "is not a text file", "check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError("release", str(path), f"cannot be read ({reason})", "check the path") from None
    return read_release(text, str(path))


def read_release(text: str, name: str = "text") -> Release:
    """A release from its JSON text; ``name`` is how errors call it."""

    def wrong(rule: str, remedy: str = "ask for the file again") -> FileError:
        return FileError("release", name, rule, remedy)

    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise wrong("is not valid JSON: it may be truncated") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise wrong("is not a dpglm release", "check the path")
    version = data.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise wrong(f"has schema version {version}, this dpglm reads up to {SCHEMA_VERSION}", "update dpglm")
    if version == STAGED_VERSION:
        raise wrong("was made in stages by an earlier version", "release again")
    try:
        problem = _schema_problem(data)
        if problem:
            raise wrong(f"does not fit the release schema ({problem})")
        if data["checksum"] != _checksum(data):
            raise wrong("has a wrong checksum: it was changed after it was released")
        return _from_dict(data)
    except FileError:
        raise
    except InputError as error:
        raise wrong(f"contradicts itself ({error})") from None
    except (RecursionError, OverflowError, UnicodeEncodeError) as error:  # nesting, size, half a character
        raise wrong(f"holds a value that no release holds ({type(error).__name__})") from None


def as_path(name: str, value: object) -> Path:
    """What a user gave for a file, or an error that names it."""
    if not isinstance(value, str | os.PathLike):
        raise FileError(name, type(value).__name__, "must be the path of a file", "give its name")
    return Path(value)


def _begins_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(start)) == start


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, sync, and rename over it: a crash leaves the old file or the new one."""
    temporary = None
    try:
        if path.exists() and not path.is_file():  # a folder, or a device that a rename would replace
            raise FileError("output", str(path), "cannot be written (not a file)", "choose another path")
        if path.exists() and _begins_with(path, _SQLITE):
            raise FileError("output", str(path), "is a ledger, or another database", "choose another path")
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError("output", str(path), f"cannot be written ({reason})", "choose another path") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # a disk that takes no file may not let go of one either
                os.unlink(temporary)


def _to_dict(release: Release) -> dict[str, Any]:
    design, dataset, privacy = release.design, release.design.schema.dataset, release.privacy
    return {
        "format": FORMAT,
        "schema_version": _version(release),
        "release_id": release.id,
        "publication_time": release.time,
        "versions": release.versions,
        "dataset": {
            "id": dataset.id,
            "name": dataset.name,
            **({} if dataset.number is None else {dataset.counted: dataset.number}),
            **({} if dataset.unit_column is None else {"unit_column": dataset.unit_column}),
            **({} if dataset.unit_order is None else {"unit_order": dataset.unit_order}),
            "rows_are_public": dataset.rows is not None and dataset.number is not None,
        },
        "regression": {
            "formula": design.formula,
            "family": design.family.name,
            **_link_dict(design),
            "intercept": design.intercept,
            "radius": release.radius,
            "response_range": list(design.response_range),
            "outcome": _factor_dict(design.outcome),
            "terms": [
                {"name": term.name, "columns": [_column_dict(column) for column in term.columns]}
                for term in design.terms
            ],
            "offset": None if design.offset is None else _column_dict(design.offset),
            "declared_columns": {column.name: column.to_dict() for column in design.table_columns},
            **_where_dict(design),
        },
        "grid": {
            "exponent": release.grid.exponent,
            "response_exponent": release.grid.response_exponent,
            "rounding": ROUNDING_RULE,
        },
        **({} if release.survey_record is None else {"survey": _survey_dict(release.survey_record)}),
        **({} if release.profile is None else {"profile": _profile_dict(release.profile)}),
        "stages": [_stage_dict(stage) for stage in release.stages],
        "privacy_loss": {
            "privacy_unit": dataset.unit,
            "privacy_unit_description": f"One row of the table is {dataset.unit}.",
            "neighbouring_relation": dataset.protection.relation,
            "privacy_parameters": {
                "epsilon": privacy.epsilon, "delta": privacy.delta, "mu": privacy.mu, "rho": privacy.rho,
            },
            "mechanisms": MECHANISM,
            "accountant": ACCOUNTANT,
        },
        "ledger": None if release.ledger is None else {
            "entry": release.ledger.entry,
            "spent_mu": release.ledger.spent_mu,
            "spent_epsilon": release.ledger.spent_epsilon,
            "cap_epsilon": release.ledger.cap_epsilon,
            "cap_delta": release.ledger.cap_delta,
        },
        "private": release.private,
        "statement": release.statement,
        "unprotected_quantities": list(CAVEATS),
    }  # fmt: skip


def _version(release: Release) -> int:
    """The oldest version that can read a release."""
    if release.survey_record is None:
        return 1
    record_design = release.survey_record.design
    is_plain = (
        record_design.every_row_counts
        and record_design.weights is None
        and record_design.schema.dataset.protection == ONE_ROW_REPLACED
    )
    return 3 if is_plain else 4


def _several(design: Design) -> bool:
    return design.schema.dataset.protection.several_rows


def _where_dict(design: Design) -> dict[str, Any]:
    """Which rows count, and what they weigh."""
    found = {} if design.where is None else {"where": design.where.text}
    return found if design.weights is None else {**found, "weights": design.weights}


def _stage_dict(stage: Stage) -> dict[str, Any]:
    viewpoint = {} if stage.viewpoint is None else {"viewpoint": asdict(stage.viewpoint)}
    return {
        "kind": stage.kind,
        "allocation": stage.allocation,
        "mu": stage.mu,
        **viewpoint,
        "blocks": [
            {
                "y_power": block.y_power,
                "degree": block.degree,
                "noise_stddev": block.noise_stddev,
                # One exact scale for each multinomial coefficient, in grid units.
                "grid_noise_stddev": {
                    str(multiplicity): block.grid_stddevs[block.multiplicities.index(multiplicity)]
                    for multiplicity in sorted(set(block.multiplicities))
                },
                "values": [str(integer) for integer in block.integers],
            }
            for block in stage.blocks
        ],
    }


def _profile_dict(profile: Profile) -> dict[str, Any]:
    return {
        "mu": profile.mu,
        "noise_stddev": profile.stddev,
        "viewpoint": asdict(profile.view),
        "values": [[str(count) for count in counts] for counts in profile.counts],
    }


def _profile(data: dict[str, Any], design: Design) -> Profile:
    """A stated profile; it has a count for every cell of its family and formula."""
    counts = tuple(tuple(map(int, values)) for values in data["values"])
    wanted = list(cells(design.family, len(design.coefficient_names)))
    if [len(values) for values in counts] != wanted:
        raise InputError("profile", [len(values) for values in counts], f"must have {wanted} counts", "ask again")
    return Profile(_viewpoint(data["viewpoint"], design), counts, float(data["noise_stddev"]), float(data["mu"]))


def _survey_dict(record: SurveyRecord) -> dict[str, Any]:
    survey, design = record.survey, record.design
    return {
        "release_id": record.release_id,
        "formula": design.formula,
        "family": design.family.name,
        **_link_dict(design),
        "declared_columns": {column.name: column.to_dict() for column in design.table_columns},
        **_where_dict(design),
        "mu": record.mu,
        "noise_stddev": record.stddev,
        "questions": [
            {
                "subject": question.subject,
                "ranges": [list(each) for each in question.ranges],
                "squared_change": question.squared_change,
                "sharper": question.sharper,
                "values": [str(integer) for integer in integers],
            }
            for question, integers in record.asked
        ],
        "columns": [
            {
                "name": subject.name,
                **asdict(place),
                "shares": list(place.shares),
            }
            for subject, place in zip(survey.subjects, survey.places, strict=True)
        ],
        "missing": list(survey.missing),
        "complete": survey.complete,
        **({} if design.schema.dataset.number is not None else {"all": survey.total}),
        **({} if design.weights is None else {"mean_weight": survey.mean_weight}),
        **({"rows_of_units": [survey.mean_rows, survey.long_rows]} if _several(design) else {}),
        "missing_noise_stddev": survey.stddev,
        "problems": list(survey.problems),
    }


def _survey(data: dict[str, Any], dataset: dict[str, Any]) -> SurveyRecord:
    """A stated survey; its columns must be those of its formula."""
    schema = Schema.from_dict({"dataset": dataset, "columns": data["declared_columns"]})
    design = build_design(
        data["formula"], schema, data["family"], data.get("link"), data.get("where"), data.get("weights")
    )
    about = subjects(design)
    if [subject.name for subject in about] != [column["name"] for column in data["columns"]]:
        raise InputError("survey", data["formula"], "its columns are not its formula's", "ask again")
    places = []
    for subject, stated in zip(about, data["columns"], strict=True):
        shares = tuple(map(float, stated["shares"]))
        if len(shares) != (0 if subject.is_numeric else subject.cells):
            raise InputError("survey", subject.name, "has another number of levels", "ask again")
        centre, scale, stddev = (float(stated[part]) for part in ("centre", "scale", "stddev"))
        places.append(Place(centre, scale, shares, stddev, stated["varies"], stated["doubt"]))
    if len(data["missing"]) != len(design.table_columns):
        raise InputError("survey", len(data["missing"]), "needs one number of missing cells a column", "ask again")
    asked, known = [], len(about) + _several(design)
    for each in data["questions"]:
        ranges = tuple((int(first), int(last)) for first, last in each["ranges"])
        integers = tuple(int(value) for value in each["values"])
        if len(ranges) != len(integers) or not (each["subject"] is None or each["subject"] < known):
            raise InputError("survey", each["subject"], "has a question without its answer", "ask again")
        asked.append((Question(each["subject"], ranges, each["squared_change"], float(each["sharper"])), integers))
    mu, stddev, complete = float(data["mu"]), float(data["noise_stddev"]), float(data["complete"])
    number = design.schema.dataset.number
    if _several(design) != ("rows_of_units" in data):
        raise InputError("survey", "rows_of_units", "is stated where units have several rows", "ask again")
    if (design.weights is None) == ("mean_weight" in data):
        raise InputError("survey", "mean_weight", "is stated where rows are weighted", "ask again")
    if (number is None) != ("all" in data):
        raise InputError("survey", "all", "is stated where the number of rows is private", "ask again")
    survey = Survey(
        about, tuple(places), tuple(map(float, data["missing"])), complete, float(data["missing_noise_stddev"]),
        tuple(data["problems"]), counted_rows(design, complete, stddev / SHARPER_COUNTED).number,
        float(data["all"] if number is None else number), float(data.get("mean_weight", 1.0)),
        *map(float, data.get("rows_of_units", (1.0, 1.0))),
    )  # fmt: skip
    return SurveyRecord(data["release_id"], design, mu, stddev, tuple(asked), survey)


def _link_dict(design: Design) -> dict[str, Any]:
    """A link that is not the family's own is stated."""
    return {} if design.family == FAMILIES[design.family.name] else {"link": design.family.link}


def _column_dict(column: Any) -> dict[str, Any]:
    return {"name": column.name, "factors": [_factor_dict(factor) for factor in column.factors]}


def _factor_dict(factor: Factor) -> dict[str, Any]:
    if isinstance(factor.source, Expression):
        source: dict[str, Any] = {"expression": factor.source.text}
    else:
        source = {"column": factor.source.name, "level": factor.source.levels[factor.level]}
    return {**source, "center": factor.center, "scale": factor.scale}


def _from_dict(data: dict[str, Any]) -> Release:
    regression, loss = data["regression"], data["privacy_loss"]
    protection = Protection.named(loss["neighbouring_relation"])
    stated = ("id", "name", "rows", "units", "unit_column", "unit_order")
    dataset = {key: data["dataset"][key] for key in stated if key in data["dataset"]}
    dataset |= {"unit": loss["privacy_unit"], "neighbours": protection.neighbours}
    schema = Schema.from_dict({"dataset": dataset, "columns": regression["declared_columns"]})
    design = build_design(
        regression["formula"],
        schema,
        regression["family"],
        regression.get("link"),
        regression.get("where"),
        regression.get("weights"),
    )
    grid = Grid(data["grid"]["exponent"], data["grid"]["response_exponent"])
    record = _survey(data["survey"], dataset) if "survey" in data else None
    if record is None and "link" in regression:
        raise InputError("link", regression["link"], "belongs to releases by looks", "ask again")
    if (record is None) != (data["schema_version"] == 1):
        raise InputError("survey", data["schema_version"], "belongs to releases by looks", "ask again")
    if record is None and not (design.every_row_counts and design.weights is None and protection == ONE_ROW_REPLACED):
        rule = "of moments, where rows may not count, are weighted or are not replaced"
        raise InputError("regression", design.formula, rule, "ask again")
    kinds = [stage["kind"] for stage in data["stages"]]
    if kinds != (["moments"] if record is None else ["look"] * len(kinds)):
        raise InputError("stages", kinds, "are not those of one method", "ask again")
    # A release that an error ended has the parts that came before.
    if ("profile" in data) and (record is None or len(kinds) < LOOKS_BEFORE):
        raise InputError("profile", len(kinds), f"comes after {LOOKS_BEFORE} looks", "ask again")
    if record is not None and len(kinds) > LOOKS_BEFORE and "profile" not in data:
        raise InputError("profile", None, "is missing", "ask again")
    if record is not None:
        design = standard_design(design, record.survey_of(design))
        if grid != look_grid(design):
            raise InputError("grid", grid, "is not that of looks", "ask again")
    parameters = loss["privacy_parameters"]
    release = Release(
        id=data["release_id"],
        time=data["publication_time"],
        versions=data["versions"],
        design=design,
        radius=regression["radius"],
        grid=grid,
        stages=tuple(_stage(stage, design, grid) for stage in data["stages"]),
        privacy=Privacy(**{key: parameters[key] for key in ("epsilon", "delta", "mu", "rho")}),
        ledger=None if data["ledger"] is None else LedgerFact(**data["ledger"]),
        private=data["private"],
        survey_record=record,
        profile=_profile(data["profile"], design) if "profile" in data else None,
    )
    # The stated coding must be what the formula and the declared columns give; texts may be another version's.
    again = _to_dict(release)
    if _canonical(again["regression"]) != _canonical(regression):
        raise InputError("regression", design.formula, "its stated coding is not the formula's", "ask again")
    for key in ("schema_version", "dataset", "survey", "profile", "stages", "ledger"):
        if key in data and _canonical(again[key]) != _canonical(data[key]):
            raise InputError(key, "(content)", "is not written as dpglm writes it", "ask again")
    _check_numbers(release)
    return release


def _check_numbers(release: Release) -> None:
    """Numbers that follow from each other must do so: noise in its two units, the parts of the guarantee, the ball."""
    privacy, looks = release.privacy, release.survey_record is not None
    squared_norm = LARGEST**2 * release.design.dimension if looks else release.design.largest_squared_norm
    if not isinstance(release.grid.exponent, int) or not isinstance(release.grid.response_exponent, int):
        raise InputError("grid", release.grid, "its exponents must be whole numbers", "ask again")
    if not release.radius <= math.sqrt(squared_norm) * (1 + 1e-9):
        raise InputError("radius", release.radius, f"must be at most sqrt({squared_norm})", "ask again")
    for block in (block for stage in release.stages for block in stage.blocks):
        for stddev, multiplicity in zip(block.grid_stddevs, block.multiplicities, strict=True):
            if not math.isclose(stddev * block.unit * math.sqrt(multiplicity), block.noise_stddev, rel_tol=1e-9):
                raise InputError("noise_stddev", block.noise_stddev, "is not the noise on the grid", "ask again")
    if release.profile is not None:
        mu, stddev = release.profile.mu, release.profile.stddev
        change = squared_change(release.design.family, release.design.schema.dataset.protection)
        if not math.isclose(math.sqrt(change) / stddev, mu, rel_tol=1e-6):
            raise InputError("profile", mu, "is not what its noise costs", "ask again")
    cost = compose(release.costs)  # a release by looks that stopped early cost less than it promises
    if not (cost <= privacy.mu * (1 + 1e-9) if looks else math.isclose(cost, privacy.mu, rel_tol=1e-9)):
        raise InputError("mu", privacy.mu, "is not that of its parts", "ask again")
    if not math.isclose(rho_of(privacy.mu), privacy.rho, rel_tol=1e-9):
        raise InputError("rho", privacy.rho, "is not mu^2 / 2", "ask again")
    if not delta_of(privacy.mu, privacy.epsilon) <= privacy.delta * (1 + 1e-9):
        raise InputError("mu", privacy.mu, "does not give the stated epsilon and delta", "ask again")


def _stage(data: dict[str, Any], design: Design, grid: Grid) -> Stage:
    viewpoint = _viewpoint(data["viewpoint"], design) if data["kind"] == "look" else None
    shapes = [BlockShape(block["y_power"], block["degree"]) for block in data["blocks"]]
    if viewpoint is None:
        dimension, units = design.dimension, [float(grid.unit(shape.y_power, shape.degree)) for shape in shapes]
    else:
        dimension, units = viewpoint.dimension, list(viewpoint.units)
        if tuple(shapes) != LOOK_BLOCKS:
            raise InputError("blocks", len(shapes), "a look has score, information and square", "ask again")
    refuse_many_monomials(shapes, dimension)
    blocks = []
    for block, shape, unit in zip(data["blocks"], shapes, units, strict=True):
        if len(block["values"]) != shape.size(dimension):  # before as many multiplicities are made
            raise InputError("values", len(block["values"]), f"a block needs {shape.size(dimension)}", "ask again")
        multiplicities = tuple(shape.multiplicities(dimension).tolist())
        noise = block["grid_noise_stddev"]
        if set(noise) != set(map(str, multiplicities)):
            raise InputError("grid_noise_stddev", sorted(noise), "does not fit the block", "ask again")
        integers = tuple(int(value) for value in block["values"])
        blocks.append(
            Block(
                shape.y_power, shape.degree, integers, unit, block["noise_stddev"],
                tuple(noise[str(multiplicity)] for multiplicity in multiplicities), multiplicities,
            )
        )  # fmt: skip
    repeated = [pair for pair, count in Counter((b.y_power, b.degree) for b in blocks).items() if count > 1]
    if repeated:
        raise InputError("blocks", repeated[0], "appears twice", "ask again")
    return Stage(data["kind"], data["allocation"], data["mu"], tuple(blocks), viewpoint)


def _viewpoint(data: dict[str, Any], design: Design) -> Viewpoint:
    """The viewpoint of a look; its sizes must be the formula's."""
    size = len(design.coefficient_names)
    whitening = tuple(tuple(map(float, row)) for row in data["whitening"])
    centre = tuple(map(float, data["centre"]))
    if {len(row) for row in whitening} != {size} or len(whitening) != size:
        raise InputError("whitening", len(whitening), f"must be square, of size {size}", "ask again")
    if len(centre) != size + (design.offset is not None):
        raise InputError("centre", len(centre), "needs one number a coefficient", "ask again")
    matrix = np.array(whitening)
    if not (1e-100 < np.abs(matrix).max() < 1e100 and np.linalg.cond(matrix) < 1e12):
        raise InputError("whitening", "(matrix)", "must be invertible", "ask again")
    bounds = {key: float(data[key]) for key in ("score_bound", "information_bound", "spread", "clip")}
    return Viewpoint(centre, whitening, **bounds)


def _checksum(data: dict[str, Any]) -> str:
    stated = {key: value for key, value in data.items() if key != "checksum"}
    return hashlib.sha256(_canonical(stated).encode()).hexdigest()


def _canonical(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


@lru_cache(maxsize=1)
def _validator() -> Any:
    import jsonschema

    text = files("dpglm").joinpath("release.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def _schema_problem(data: dict[str, Any]) -> str | None:
    """The first rule of the JSON Schema that the file breaks, with where."""
    error = next(iter(_validator().iter_errors(data)), None)
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "top level"
        return f"{where}: {error.message[:120]}"
    return _infinite_number(data)


def _infinite_number(data: Any) -> str | None:
    """JSON has no infinity, but 1e999 reads as one."""
    if isinstance(data, float) and not math.isfinite(data):
        return "a number is too large"
    children = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return next((problem for child in children if (problem := _infinite_number(child))), None)
