"""Calibration: the noise that is added gives at least the guarantee that is stated, on a grid that fits."""

import math
from fractions import Fraction

import pytest

from dpglm.custodian.mechanism import calibrate
from dpglm.custodian.noise import LARGEST_GRID_NOISE
from dpglm.custodian.sensitivity import sensitivity
from dpglm.custodian.sums import EXACT_BITS, rows_at_once
from dpglm.errors import InputError
from dpglm.formula import build_design
from dpglm.privacy import SMALLEST_GRID_NOISE, delta_of, discreteness, mu_of
from dpglm.schema import Schema


def design_of(family, dimension=3, largest_count=20, rows=1000):
    columns = {f"x{j}": {"type": "numeric", "lower": 0, "upper": 10} for j in range(dimension)}
    outcome = {
        "logistic": {"type": "binary", "levels": ["a", "b"], "fill": "a"},
        "poisson": {"type": "count", "upper": largest_count, "fill": 0},
        "linear": {"type": "numeric", "lower": 5, "upper": 7},
    }[family]
    schema = Schema.from_dict({"dataset": {"name": "t", "rows": rows}, "columns": columns | {"y": outcome}})
    return build_design("y ~ " + " + ".join(columns), schema, family)


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("dimension", [1, 8])
def test_guarantee_follows_from_the_noise_that_is_added(family, epsilon, dimension):
    design = design_of(family, dimension)
    mechanism = calibrate(design, epsilon, 1e-6, None, "auto", "full")
    # The noise in isometric coordinates and data units, worked back from the integers' own scales, exactly.
    achieved = []
    for block, stddevs, multiplicities in zip(
        mechanism.blocks, mechanism.grid_stddevs, mechanism.multiplicities, strict=True
    ):
        unit = mechanism.grid.unit(block.y_power, block.degree)
        squares = [Fraction(s) ** 2 * m * unit**2 for s, m in zip(stddevs, multiplicities, strict=True)]
        achieved.append(math.sqrt(min(squares)) * (1 - 1e-15))
    for real, stated in zip(achieved, mechanism.noise_stddevs, strict=True):
        assert stated * (1 - 1e-14) <= real <= stated * (1 + 1e-12)
    mu_squared = sensitivity(mechanism.blocks, achieved, mechanism.radius, design.response_range).mu_squared
    assert math.sqrt(mu_squared) <= mechanism.mu * (1 + 1e-13)
    smallest = min(map(min, mechanism.grid_stddevs))
    extra = discreteness(mechanism.mu, epsilon, smallest, sum(map(len, mechanism.grid_stddevs)))
    assert delta_of(mechanism.mu, epsilon) + extra <= 1e-6
    assert delta_of(mechanism.mu * 1.001, epsilon) > 1e-6  # and no noise is wasted
    assert mechanism.mu <= mu_of(epsilon, 1e-6)  # so a ledger whose cap is this budget grants it


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize("statistics", ["full", "paper", [(0, 1), (0, 6), (2, 3)]])
def test_grid_fits_products_and_noise(family, epsilon, statistics):
    if statistics not in ("full", "paper"):
        epsilon = min(epsilon, 3.0)  # six factors leave few bits: a very large budget would be refused
    mechanism = calibrate(design_of(family), epsilon, 1e-6, None, "auto", statistics)
    order = max(block.order for block in mechanism.blocks)
    assert rows_at_once(mechanism.blocks, mechanism.grid) * 2 ** (mechanism.grid.exponent * order) <= 2**EXACT_BITS
    assert rows_at_once(mechanism.blocks, mechanism.grid) >= 2
    scales = [scale for stddevs in mechanism.grid_stddevs for scale in stddevs]
    assert min(scales) >= SMALLEST_GRID_NOISE
    assert max(scales) <= LARGEST_GRID_NOISE


def test_large_counts_keep_whole_numbers_on_the_grid():
    mechanism = calibrate(design_of("poisson", largest_count=5000), 1.0, 1e-6, None, "auto", "full")
    step = mechanism.grid.unit(1, 0)
    assert step <= 1
    assert (1 / step).denominator == 1


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"), [(1e-12, 1e-30, "epsilon"), (1e9, 1e-6, "epsilon"), (1e8, 0.5, "epsilon")]
)
def test_budgets_that_do_not_fit_the_grid_are_refused_in_one_line(epsilon, delta, name):
    with pytest.raises(InputError, match=rf"^{name} = ") as caught:
        calibrate(design_of("poisson"), epsilon, delta, None, "equal", "full")
    assert "\n" not in str(caught.value)


def test_radius_default_covers_the_box_and_larger_ones_change_nothing():
    design = design_of("logistic", 3)
    default = calibrate(design, 1.0, 1e-6, None, "equal", "full").radius
    assert Fraction(default) ** 2 >= 3
    assert calibrate(design, 1.0, 1e-6, 99.0, "equal", "full").radius == default
    assert calibrate(design, 1.0, 1e-6, 0.5, "equal", "full").radius == 0.5
    for bad in (0, -1.0, math.nan, "1", True):
        with pytest.raises(InputError, match=r"^radius = "):
            calibrate(design, 1.0, 1e-6, bad, "equal", "full")
