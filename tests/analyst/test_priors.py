"""What a prior may be, what is refused, and the normal like it."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior, distribution_text, prior_of
from dpglm.errors import InputError
from dpglm.paper.prior_densities import sampled

NAMES = ("Intercept", "a", "b")
CUSTOM = CustomPrior((("a", dist.HalfNormal(0.8)), ("b", dist.Uniform(-1.0, 3.0))))
PRIORS = [NormalPrior(), NormalPrior(0.5, 2.0), SphericalPrior(4.0), CUSTOM]


@pytest.mark.parametrize(
    "prior",
    [NormalPrior(slopes=0.7), SphericalPrior(3.45), SphericalPrior(1e3)],
)
def test_a_normal_like_it_has_its_mean_and_covariance(prior: Any) -> None:
    draws = np.array([sampled(prior, NAMES, key) for key in jax.random.split(jax.random.key(2), 1_500)])
    mean, covariance = prior.as_normal(NAMES)
    scales = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.1 * scales.max())
    np.testing.assert_allclose(draws.std(axis=0), scales, rtol=0.07)
    assert np.count_nonzero(covariance - np.diag(np.diag(covariance))) == 0


def test_a_prior_by_names_without_numpyro_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpyro.distributions", None)
    with pytest.raises(InputError, match=r"needs NumPyro.*dpglm\[paper\]"):
        prior_of({"a": 3.0}, NAMES)


def test_prior_of_takes_what_a_user_may_pass() -> None:
    assert prior_of(None, NAMES) == prior_of("normal", NAMES) == NormalPrior()
    for prior in PRIORS:
        assert prior_of(prior, NAMES) is prior
    normal = dist.Normal(0.0, 1.0)
    assert prior_of({"a": normal}, NAMES) == CustomPrior((("a", normal),))


@pytest.mark.parametrize(
    ("prior", "part"),
    [
        ("horseshoe", "prior = horseshoe"),
        (3.0, "prior = 3.0"),
        (dist.Normal(0.0, 1.0), "must be None"),
        ({"c": dist.Normal(0.0, 1.0)}, "c: is not a coefficient of this model (Intercept, a, b)"),
        ({"a": 2.0}, "continuous NumPyro distribution"),
        ({"a": dist.Bernoulli(0.5)}, "continuous NumPyro distribution"),
        ({"a": dist.Delta(0.5)}, "is a single point, which cannot be sampled; use a narrow one"),
        ({"a": dist.Normal(jnp.zeros(2), 1.0)}, "of one number"),
        ({"a": dist.Dirichlet(jnp.ones(3))}, "of one number"),
        (CustomPrior((("z", dist.Normal(0.0, 1.0)),)), "z: is not a coefficient"),
    ],
)
def test_prior_of_refuses_in_one_line(prior: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        prior_of(prior, NAMES)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), "2", True])
def test_scales_must_be_positive_numbers(scale: Any) -> None:
    for make in (
        lambda: NormalPrior(slopes=scale),
        lambda: NormalPrior(intercept=scale),
        lambda: SphericalPrior(scale),
        lambda: SphericalPrior(1.0, intercept=scale),
    ):
        with pytest.raises(InputError, match="must be a number above 0"):
            make()


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (dist.Normal(0, 0.7), "Normal(loc=0, scale=0.7)"),
        (dist.StudentT(3.0), "StudentT(df=3, loc=0, scale=1)"),
        (dist.TruncatedNormal(0, 1, low=0), "LeftTruncatedDistribution(Normal(loc=0, scale=1), low=0)"),
        (
            dist.TruncatedCauchy(0, 2, low=-1, high=3),
            "TwoSidedTruncatedDistribution(Cauchy(loc=0, scale=2), low=-1, high=3)",
        ),
        (dist.LogNormal(0, 0.5), "LogNormal(loc=0, scale=0.5)"),
        (dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform()), "TransformedDistribution"),
        (dist.Normal(np.zeros(2), 1.0), "Normal"),
        ("Normal(loc=0, scale=0.7)", "Normal(loc=0, scale=0.7)"),
    ],
)
def test_a_distribution_is_told_as_it_is_written(distribution: object, text: str) -> None:
    assert distribution_text(distribution) == text
