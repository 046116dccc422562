"""The same facts as a record for the OpenDP deployments registry (https://github.com/opendp/deployments-registry-data).

Field names and their nesting are the registry's of July 2026. What dpglm cannot know (who publishes, what for, which
region) is an argument, or says that it is to be filled in; docs/statement.md lists what comes from where.
"""

from __future__ import annotations

import re
from typing import Any

from dpglm.review import words
from dpglm.review.facts import Facts, checksum

BLANK = "(to be filled in)"
_PREPARATION = (
    "Bounds, levels and formulas are declared by a person (whether without a look at the rows, the curator has to say)."
    " What is learnt of the rows (where columns live) is learnt through noise that is paid for."
)
_MECHANISMS = (
    "- Discrete Gaussian noise (OpenDP), drawn from the operating system's entropy, on exact integer sums of rows that"
    " are rounded one by one.\n- Time and memory are not protected.\n- "
)


def record(facts: Facts, *, curator: str | None, use: str | None, region: str | None) -> dict[str, Any]:
    """One record, as a draft of tier 3."""
    spent, releases = facts.spent, facts.releases
    formulas = "; ".join(dict.fromkeys(f"{release.family}: {release.formula}" for release in releases))
    versions = sorted({f"{name} {number}" for release in releases for name, number in release.versions.items()})
    many = len(releases) > 1
    parameters = {"epsilon": spent.epsilon, "delta": spent.delta, "rho": spent.rho}
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-") or "dataset",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": facts.name,
                "data_curators": [curator or BLANK],
                "intended_use": use or BLANK,
                "data_product_type": "Summary statistics",
                "data_product_region": region or BLANK,
                "description": f"Noisy sums for regressions ({formulas or 'none yet'}).",
                "publication_date": (facts.published or "0001-01-01")[:10],
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _domain(facts),
                "unprotected_quantities": "\n".join(f"- {each}" for each in words.not_protected(facts)),
            },
            "privacy_loss": {
                "privacy_unit": facts.unit,
                "privacy_unit_details": f"{facts.relation}: tables are adjacent that differ by {words.changed(facts)}.",
                "privacy_parameters": parameters,
                "privacy_parameters_details": (
                    f"mu = {spent.mu:.6g} in Gaussian differential privacy; rho = mu^2 / 2."
                    + ("" if spent.cap_epsilon is None else f" The cap is epsilon = {spent.cap_epsilon:g}.")
                ),
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": (
                    "- The custodian holds the rows, makes the releases and is trusted, with the machine.\n"
                    "- Analysts and the public read releases and are not trusted."
                ),
                "release_type": "Many releases" if many else "One release",
                "release_type_details": _account(facts),
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Posteriors of regression coefficients are computed from the released integers.",
                "composition": "Gaussian differential privacy: mu^2 adds up over the parts of a release and over"
                " releases, also where later ones are chosen by earlier ones.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _PREPARATION,
                "mechanisms": _MECHANISMS + (", ".join(versions) or "no release yet"),
            },
            "administrative": {
                "sources": "\n".join(f"- release {each.id}, SHA-256 {checksum(each)}" for each in releases) or BLANK,
                "notes": "Written by dpglm from the releases' own files.",
                "registry_authors": [curator or BLANK],
            },
        },
    }


def blanks(found: Any, path: str = "") -> list[str]:
    """Paths of what a person has to fill in."""
    if found == BLANK:
        return [path]
    pairs = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [each for key, value in pairs for each in blanks(value, f"{path}.{key}" if path else str(key))]


def _domain(facts: Facts) -> str:
    columns = "; ".join(f"{column.name}: {words.declared(column)}" for column in facts.columns)
    rows = (
        "tables of rows"
        if facts.rows is None
        else f"tables of {facts.rows} {'units' if facts.protection.several_rows else 'rows'}"
    )
    return f"{rows}, each {facts.unit}" + (f", with {columns}." if columns else ".")


def _account(facts: Facts) -> str:
    if not facts.ledger:
        return "One release; what else was released of these rows is not known to this record."
    cap = f"{facts.spent.cap_epsilon:g}" if facts.spent.cap_epsilon is not None else "none"
    return f"A ledger counts every release of the dataset, and refuses one beyond its cap (epsilon = {cap})."
