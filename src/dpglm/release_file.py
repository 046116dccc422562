"""The release: the only thing that crosses from custodian to analyst. Frozen dataclasses, and their JSON file.

Nothing in it depends on the rows except the noisy integers. Reading checks the version, the published JSON Schema, the
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
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpglm.blocks import BlockShape
from dpglm.centring import CENTRED_BLOCKS, Centring
from dpglm.errors import FileError, InputError
from dpglm.expressions import Expression
from dpglm.formula import Design, Factor, build_design
from dpglm.grid import ROUNDING_RULE, Grid
from dpglm.privacy import Privacy, compose, delta_of, rho_of
from dpglm.schema import NEIGHBOURING_RELATION, Schema
from dpglm.statement import CAVEATS, plain_statement

SCHEMA_VERSION = 2  # what is read; a release of one stage is written as version 1, which older versions read too
FORMAT = "dpglm-release"
ACCOUNTANT = "Gaussian differential privacy: mu^2 adds up over releases of a table; analytic (epsilon, delta) of mu"
MECHANISM = "discrete Gaussian noise (OpenDP) on exact integer sums of fixed-point rows"
_LARGEST_FILE = 2**28
_SQLITE = b"SQLite format 3\0"  # how a ledger begins


@dataclass(frozen=True)
class Block:
    """One released block: y^y_power times the monomials of this degree, in ``BlockShape.monomials`` order.

    ``integers`` are what was released. ``values`` are the same in data units, plain monomials. ``noise_stddev`` is the
    noise in isometric coordinates and data units; a monomial of multinomial coefficient c has noise_stddev / sqrt(c).
    """

    y_power: int
    degree: int
    integers: tuple[int, ...]
    unit: float
    noise_stddev: float
    grid_stddevs: tuple[float, ...]
    multiplicities: tuple[int, ...]

    @property
    def shape(self) -> BlockShape:
        return BlockShape(self.y_power, self.degree)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        return np.array([float(integer) for integer in self.integers]) * self.unit

    @property
    def isometric_values(self) -> npt.NDArray[np.float64]:
        """The values times the square roots of their multinomial coefficients: isotropic noise ``noise_stddev``."""
        return self.values * np.sqrt(np.array(self.multiplicities, dtype=np.float64))


@dataclass(frozen=True)
class Stage:
    """One look at the table; ``mu`` is what it cost.

    The first takes the paper's "moments". Later ones are "centred": their blocks are the sums of the score, of the
    information and of the score's square (y_power is the power of the residual), and ``centring`` says from where.
    """

    kind: str
    allocation: str
    mu: float
    blocks: tuple[Block, ...]
    centring: Centring | None = None


@dataclass(frozen=True)
class LedgerFact:
    """What the ledger said when this release was entered: its number, and what the dataset had spent in all."""

    entry: int
    spent_mu: float
    spent_epsilon: float
    cap_epsilon: float
    cap_delta: float


@dataclass(frozen=True)
class Release:
    """A table as an analyst may see it."""

    id: str
    time: str
    versions: dict[str, str]
    design: Design
    radius: float
    grid: Grid
    stages: tuple[Stage, ...]
    privacy: Privacy
    ledger: LedgerFact | None
    private: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.stages[0].blocks

    @property
    def num_rows(self) -> int:
        return self.design.schema.dataset.rows

    @property
    def response_range(self) -> tuple[float, float]:
        return self.design.response_range

    @property
    def formula(self) -> str:
        return self.design.formula

    @property
    def family(self) -> str:
        return self.design.family.name

    @property
    def dataset_id(self) -> str:
        return self.design.schema.dataset.id

    @property
    def statement(self) -> str:
        """The guarantee in plain words, for the custodian and the reader of results."""
        dataset, fact = self.design.schema.dataset, self.ledger
        ledger = None if fact is None else (fact.entry, fact.spent_epsilon, fact.cap_epsilon, fact.cap_delta)
        return plain_statement(
            dataset, self.privacy.epsilon, self.privacy.delta, ledger, self.private, len(self.stages)
        )

    def to_json(self) -> str:
        """The file's text."""
        data = _to_dict(self)
        data["checksum"] = _checksum(data)
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file: all of it or nothing, durably."""
        write_atomically(as_path("output", path), self.to_json().encode())

    def __repr__(self) -> str:
        return (
            f"Release({self.formula!r}, family={self.family!r}, rows={self.num_rows}, "
            f"epsilon={self.privacy.epsilon:g}, delta={self.privacy.delta:g}, id={self.id!r})"
        )


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
        "schema_version": 1 if len(release.stages) == 1 else SCHEMA_VERSION,
        "release_id": release.id,
        "publication_time": release.time,
        "versions": release.versions,
        "dataset": {
            "id": dataset.id,
            "name": dataset.name,
            "rows": dataset.rows,
            "rows_are_public": True,
        },
        "regression": {
            "formula": design.formula,
            "family": design.family.name,
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
        },
        "grid": {
            "exponent": release.grid.exponent,
            "response_exponent": release.grid.response_exponent,
            "rounding": ROUNDING_RULE,
        },
        "stages": [_stage_dict(stage) for stage in release.stages],
        "privacy_loss": {
            "privacy_unit": dataset.unit,
            "privacy_unit_description": f"One row of the table is {dataset.unit}.",
            "neighbouring_relation": NEIGHBOURING_RELATION,
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


def _stage_dict(stage: Stage) -> dict[str, Any]:
    centring = {} if stage.centring is None else {"centring": asdict(stage.centring)}
    return {
        "kind": stage.kind,
        "allocation": stage.allocation,
        "mu": stage.mu,
        **centring,
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
    dataset = {key: data["dataset"][key] for key in ("id", "name", "rows")} | {"unit": loss["privacy_unit"]}
    schema = Schema.from_dict({"dataset": dataset, "columns": regression["declared_columns"]})
    design = build_design(regression["formula"], schema, regression["family"])
    grid = Grid(data["grid"]["exponent"], data["grid"]["response_exponent"])
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
    )
    # The stated coding must be what the formula and the declared columns give; texts may be another version's.
    again = _to_dict(release)
    if _canonical(again["regression"]) != _canonical(regression):
        raise InputError("regression", design.formula, "its stated coding is not the formula's", "ask again")
    for key in ("schema_version", "dataset", "stages", "ledger"):
        if _canonical(again[key]) != _canonical(data[key]):
            raise InputError(key, "(content)", "is not written as dpglm writes it", "ask again")
    _check_numbers(release)
    return release


def _check_numbers(release: Release) -> None:
    """Numbers that follow from each other must do so: noise in its two units, the parts of the guarantee, the ball."""
    privacy, squared_norm = release.privacy, release.design.largest_squared_norm
    if not isinstance(release.grid.exponent, int) or not isinstance(release.grid.response_exponent, int):
        raise InputError("grid", release.grid, "its exponents must be whole numbers", "ask again")
    if not release.radius <= math.sqrt(squared_norm) * (1 + 1e-9):
        raise InputError("radius", release.radius, f"must be at most sqrt({squared_norm})", "ask again")
    for block in (block for stage in release.stages for block in stage.blocks):
        for stddev, multiplicity in zip(block.grid_stddevs, block.multiplicities, strict=True):
            if not math.isclose(stddev * block.unit * math.sqrt(multiplicity), block.noise_stddev, rel_tol=1e-9):
                raise InputError("noise_stddev", block.noise_stddev, "is not the noise on the grid", "ask again")
    if not math.isclose(compose(stage.mu for stage in release.stages), privacy.mu, rel_tol=1e-9):
        raise InputError("mu", privacy.mu, "is not that of the stages", "ask again")
    if not math.isclose(rho_of(privacy.mu), privacy.rho, rel_tol=1e-9):
        raise InputError("rho", privacy.rho, "is not mu^2 / 2", "ask again")
    if not delta_of(privacy.mu, privacy.epsilon) <= privacy.delta * (1 + 1e-9):
        raise InputError("mu", privacy.mu, "does not give the stated epsilon and delta", "ask again")


def _stage(data: dict[str, Any], design: Design, grid: Grid) -> Stage:
    centring = _centring(data["centring"], design) if data["kind"] == "centred" else None
    shapes = [BlockShape(block["y_power"], block["degree"]) for block in data["blocks"]]
    if centring is None:
        dimension, units = design.dimension, [float(grid.unit(shape.y_power, shape.degree)) for shape in shapes]
    else:
        dimension, units = centring.dimension, list(centring.units)
        if tuple(shapes) != CENTRED_BLOCKS:
            raise InputError("blocks", len(shapes), "a centred stage has score, information and square", "ask again")
    blocks = []
    for block, shape, unit in zip(data["blocks"], shapes, units, strict=True):
        multiplicities = tuple(shape.multiplicities(dimension).tolist())
        if len(block["values"]) != len(multiplicities):
            raise InputError("values", len(block["values"]), f"a block needs {len(multiplicities)}", "ask again")
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
    return Stage(data["kind"], data["allocation"], data["mu"], tuple(blocks), centring)


def _centring(data: dict[str, Any], design: Design) -> Centring:
    """The centring of a later stage; its sizes must be the formula's."""
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
    return Centring(centre, whitening, **bounds)


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
