"""The predicted error of a look, against averages over every row and scale; and what bounds do to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpglm.families import Family, family_named
from dpglm.looks.error import Bounding, Lengths, predicted_error, taken_by
from dpglm.looks.population import Standing, of_moments
from dpglm.looks.tails import Mixture, Tails
from dpglm.looks.viewpoint import Viewpoint

ROWS, RHO = 20_000, 0.02
COVARIANCE = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 1.0]])
TAILS = Tails(
    Mixture(np.array([0.9, 2.7]), np.array([0.95, 0.05])), Mixture(np.array([1.0, 3.0]), np.array([0.97, 0.03])),
    np.array([0.1, 0.6, 0.2, 0.1]),
)  # fmt: skip
FAMILIES = ("logistic", "poisson", "linear")
BOUNDS = np.array([0.9, 1.6, 3.0, 8.0])


def standing(family: Family, clip: float = 2.5) -> tuple[Standing, np.ndarray]:
    """Where a look stands, and the information there."""
    population = of_moments(np.zeros(3), COVARIANCE, True, False)
    spread = {"logistic": 1.0, "poisson": 3.0, "linear": 1.0}[family.name]
    limits = (0.0, 60.0) if family.coding == "count" else (-30.0, 30.0)
    view = Viewpoint((0.2, 0.5, -0.3, 0.1), tuple(map(tuple, np.eye(4).tolist())), 1.0, 4.0, spread, clip)
    first = Standing(population, view, family, limits)
    information = population.moments(first.residual[0])
    values, vectors = np.linalg.eigh(information)
    whitening = (vectors / np.sqrt(values)) @ vectors.T
    return Standing(
        population, replace(view, whitening=tuple(map(tuple, whitening.tolist()))), family, limits
    ), information


def by_row(at: Standing, information: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of scores in typical ones, and what each row has of the mean square of a score without bounds."""
    family, view = at.family, at.view
    squared = at.seen(information).squared
    loose = replace(view, clip=10.0).residual_table(family, at.response_range)
    free = loose.at(at.u, loose.weight)[0] * squared
    return at.residual[1] * np.sqrt(squared) / np.sqrt(view.dimension * family.dispersion(view.spread)), free


@pytest.mark.parametrize("name", FAMILIES)
def test_what_looks_take_is_an_average_over_rows_and_scales(name: str) -> None:
    """Within the width of a cell of the histogram."""
    family = family_named(name)
    at, information = standing(family)
    length, free = by_row(at, information)
    looks = [Bounding(0.9, 2.5), Bounding(1.6, 2.5), Bounding(3.0, 4.0)]
    found = taken_by(Lengths(at, information, TAILS), looks)
    core = family.typical_residuals(at.u, at.view.spread) if family.has_spread else np.zeros(1)
    for j, one in enumerate(looks):
        for k, other in enumerate(looks):
            both = left = whole = beyond = 0.0
            for scale, share in zip(TAILS.lengths.scales, TAILS.lengths.shares, strict=True):
                kappas = [np.minimum(1, each.bound / (scale * length)) for each in (one, other)]
                whole += share * scale**2 * free.sum()
                both += share * scale**2 * float((1 - kappas[0]) * (1 - kappas[1]) @ free)
                left += share * scale**2 * float(kappas[0] * kappas[1] @ free)
            for scale, share in zip(TAILS.residuals.scales, TAILS.residuals.shares, strict=True):
                parts = [np.maximum(scale * core - each.clip, 0) for each in (one, other)]
                beyond += share * float(np.mean(parts[0] * parts[1]))
            assert found.by_length[j, k] == pytest.approx(both / whole, rel=0.03, abs=1e-5)
            assert found.by_clip[j, k] == pytest.approx(left / whole * beyond * family.has_spread, rel=0.03, abs=1e-6)
    np.testing.assert_allclose(found.uneven, 4 * TAILS.columns)


@pytest.mark.parametrize("name", FAMILIES)
def test_sampling_and_noise_are_those_of_bounded_rows(name: str) -> None:
    """Of the model's rows, whose lengths are one scale and even: by the sandwich of every row, and its slope."""
    family = family_named(name)
    at, information = standing(family)
    plain = Tails(Mixture(np.array([1.0]), np.array([1.0])), Mixture(np.array([1.0]), np.array([1.0])))
    found = predicted_error(Lengths(at, information, plain), ROWS, BOUNDS, 0.3, RHO)
    length, free = by_row(at, information)
    seen, view = at.seen(information), at.view
    variance = family.clipped_variance(at.table, view.spread, view.clip, at.u) * seen.squared
    dispersion, energy = family.dispersion(view.spread), free.mean()
    for n, bound in enumerate(BOUNDS):
        kappa = np.minimum(1, bound / length)
        slope = np.mean(kappa * at.residual[0] * seen.squared) / energy
        sampling = np.mean(kappa**2 * variance) / (dispersion * energy) / slope**2
        noise = (0.3 * bound) ** 2 * 16 / (ROWS * energy * slope**2)
        np.testing.assert_allclose(found.sampling[:, n], sampling, rtol=0.03)
        np.testing.assert_allclose(found.noise[:, n], noise, rtol=0.03)
    assert (np.diff(found.shift.mean(axis=0)) < 0).all()  # looser bounds shift less
    assert (np.diff(found.noise.mean(axis=0)) > 0).all()  # and take more noise
    assert found.sampling[0, -1] == pytest.approx(1, abs=0.35)


def test_the_coefficient_that_far_rows_reach_in_is_shifted_most() -> None:
    at, information = standing(family_named("logistic"))
    found = predicted_error(Lengths(at, information, TAILS), ROWS, BOUNDS, 0.3, RHO)
    assert (found.shift[1] > 2 * found.shift[0]).all()
    even = predicted_error(Lengths(at, information, replace(TAILS, columns=None)), ROWS, BOUNDS, 0.3, RHO)
    np.testing.assert_allclose(even.shift, even.shift[:1].repeat(4, axis=0))


def test_a_shift_grows_with_the_misfit_and_the_rows() -> None:
    at, information = standing(family_named("logistic"))
    lengths = Lengths(at, information, TAILS)
    once = predicted_error(lengths, ROWS, BOUNDS, 0.3, RHO).shift
    np.testing.assert_allclose(predicted_error(lengths, ROWS, BOUNDS, 0.3, 2 * RHO).shift, 4 * once)
    np.testing.assert_allclose(predicted_error(lengths, 4 * ROWS, BOUNDS, 0.3, RHO).shift, 4 * once)
