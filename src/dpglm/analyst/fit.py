"""Fitting releases: one call, several releases jointly, or hundreds of one shape in one batched program."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from dpglm.analyst.closed_form import fit_looks
from dpglm.analyst.result import Fit, FitWarning
from dpglm.errors import InputError
from dpglm.releases import Release

METHODS = ("nuts", "laplace")
Progress = Callable[[int, int], None]  # done, of all
_LEAST_DRAWS = 4  # for an effective sample size
_LARGEST_DRAWS, _LARGEST_CHAINS, _LARGEST_PRODUCT, _LARGEST_SEED = 1_000_000, 1_000, 10_000_000, 2**63 - 1


def fit(
    releases: Release | Sequence[Release],
    *,
    link: str | None = None,
    dispersion: float | str | None = None,
    prior: Any = None,
    moments: str = "exact",
    noise_aware: bool = True,
    method: str = "nuts",
    draws: int | None = None,
    chains: int = 4,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Fit:
    """The posterior of the regression coefficients, given one release or several.

    Parameters
    ----------
    releases
        One release, or several: different datasets as independent tables with shared coefficients, releases of one
        dataset as one table seen through several noises.
    link
        Of moments, logistic: "logit" (default) or "probit"; counts: "log" (default) or "softplus" (the paper's).
        A release by looks fixed its link.
    dispersion
        Counts: "infer" (default), or a number; 1 is Poisson.
    prior
        None for independent normals in scaled coordinates, ``dpglm.NormalPrior``, ``dpglm.SphericalPrior``, or NumPyro
        distributions by coefficient name.
    moments
        "exact" (default), "taylor" (the paper's expansion, for comparison) or "numeric" (quasi-random, slow).
    noise_aware
        False treats the release as if it were exact. For comparison only: its intervals are wrong.
    method
        "nuts" or "laplace": a Gaussian at the mode, in a second, with a diagnostic of when not to trust it.
    draws
        Draws a chain. Default: 1,000, and more until every coefficient has 1,000 effective ones.
    progress
        A bar on a terminal (None), always (True) or never (False); or a function that is called with (done, total).
    """
    given = (releases,) if isinstance(releases, Release) else _listed(releases)
    options = {"link": link, "dispersion": dispersion, "moments": moments, "noise_aware": bool(noise_aware)}
    asked = Asked(prior, method, draws, chains, seed, _progress_bar(progress), options)
    (result,) = _fit_groups([given], asked)
    for message in result.warnings:
        warnings.warn(message, FitWarning, stacklevel=2)
    return result


def fit_many(
    releases: Sequence[Release],
    *,
    link: str | None = None,
    dispersion: float | str | None = None,
    prior: Any = None,
    moments: str = "exact",
    noise_aware: bool = True,
    method: str = "nuts",
    draws: int | None = None,
    chains: int = 4,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> list[Fit]:
    """One fit for each release, all of one shape (formula, family, statistics), in one batched program.

    For calibration, simulation and families of outcomes. Options are those of ``fit``; warnings are kept in each
    fit instead of being raised.
    """
    groups = [(release,) for release in _listed(releases)]
    options = {"link": link, "dispersion": dispersion, "moments": moments, "noise_aware": bool(noise_aware)}
    return _fit_groups(groups, Asked(prior, method, draws, chains, seed, _progress_bar(progress), options))


@dataclass(frozen=True)
class Asked:
    """What the user asked for; ``options`` are those of the model."""

    prior: Any
    method: str
    draws: int | None
    chains: int
    seed: int
    progress: Progress | None
    options: dict[str, Any]

    def check_looks(self, link: str) -> None:
        """Refuse options that only moments have an answer to: looks fixed their link, and measured what scatters."""
        answered = {
            "link": (None, link), "dispersion": (None, "infer"), "moments": (None, "exact"), "noise_aware": (True,),
        }  # fmt: skip
        for name, values in answered.items():
            if self.options.get(name) not in values:
                rule = "belongs to releases by method='moments'"
                raise InputError(name, self.options[name], rule, "leave it out, or release moments")

    def facts(self) -> dict[str, Any]:
        """What a fit remembers."""
        dispersion = self.options["dispersion"]
        plain = {"dispersion": float(dispersion) if isinstance(dispersion, Real) else dispersion}
        return {**self.options, **plain, "chains": int(self.chains), "seed": int(self.seed)}


def _fit_groups(groups: Sequence[tuple[Any, ...]], asked: Asked) -> list[Fit]:
    """One posterior a group of releases, all of one shape, in one batch."""
    for group in groups or [()]:
        _check(group, asked)
    if groups[0][0].method == "looks":
        asked.check_looks(groups[0][0].design.family.link)
        return [_fit_looks(group, asked) for group in groups]
    from dpglm.paper.posteriors import fit_moments  # JAX, which only releases of moments need

    return fit_moments(groups, asked)


def _fit_looks(group: tuple[Any, ...], asked: Asked) -> Fit:
    try:
        return fit_looks(group, asked)
    except (ArithmeticError, IndexError, np.linalg.LinAlgError):  # no release that dpglm made leads here
        rule = "holds looks that contradict each other"
        raise InputError("releases", group[0].id, rule, "ask for the file again") from None


def _progress_bar(progress: bool | Progress | None) -> Progress | None:
    """A progress bar on a terminal, unless it is switched off or the caller has a better one."""
    if callable(progress):
        return progress
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return None

    def show(done: int, total: int) -> None:
        width = 40 * done // total
        end = "\n" if done == total else ""
        sys.stderr.write(f"\rsampling [{'#' * width}{'.' * (40 - width)}] {done}/{total}{end}")
        sys.stderr.flush()

    return show


def _listed(releases: object) -> tuple[Any, ...]:
    if not isinstance(releases, Iterable):
        raise InputError("releases", type(releases).__name__, "must be releases", "use dpglm.load_release(path)")
    return tuple(releases)


def _check(releases: Sequence[Any], asked: Asked) -> None:
    if not releases:
        raise InputError("releases", releases, "must hold at least one release", "pass dpglm.load_release(path)")
    for release in releases:
        if isinstance(release, Release) and release.method != releases[0].method:
            rule = "is by another method than the first"
            raise InputError("releases", release.id, rule, "fit releases by looks and by moments by themselves")
        if not isinstance(release, Release):
            raise InputError("releases", type(release).__name__, "must be a Release", "use dpglm.load_release(path)")
    if asked.method not in METHODS:
        raise InputError("method", asked.method, f"must be one of {', '.join(METHODS)}", "choose one of them")
    for name, value, least, most in (
        ("draws", asked.draws, _LEAST_DRAWS, _LARGEST_DRAWS),
        ("chains", asked.chains, 1, _LARGEST_CHAINS),
        ("seed", asked.seed, 0, _LARGEST_SEED),
    ):
        if name == "draws" and value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
            raise InputError(name, value, f"must be a whole number from {least} to {most}", "correct it")
    if asked.draws is not None and asked.draws * asked.chains > _LARGEST_PRODUCT:
        rule = f"in each of {asked.chains} chains are more than {_LARGEST_PRODUCT:,} in all"
        raise InputError("draws", asked.draws, rule, "ask for fewer")
