"""The page's parts on tools that look for breaches: by recording and replaying, and by learning to tell tables"
" apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

from evidence.words import decimal, percent, table


def recorder(own: dict[str, Any]) -> list[str]:
    """dp-recorder's verdicts."""
    theirs, drawn, noise, asked = own["neighbours"], own["random"], own["noise"], own["sampled"]
    rows = [
        {
            "releases": f"{each['family']}, one {'person' if each['people'] else 'row'} {each['neighbours']}",
            "pairs": str(each["pairs"]), "convicted": str(len(each["convicted"])),
            "composed ε over stated": _share(each["composed"]),
        }
        for each in theirs
    ]  # fmt: skip
    rows += [
        {
            "releases": f"{family}, {each['releases']} random: {each['added']} added or removed, {each['people']} of"
            " people",
            "pairs": str(each["pairs"]), "convicted": str(len(each["convicted"])),
            "composed ε over stated": _share(each["composed"]),
        }
        for family, each in drawn.items()
    ]  # fmt: skip
    right, less = noise["as stated"], noise["a sixth of it"]
    pairs = sum(each["pairs"] for each in (*theirs, *drawn.values()))
    convicted = sum(len(each["convicted"]) for each in (*theirs, *drawn.values()))
    return [
        "dp-recorder (Cebere, Erb, Desfontaines, Bellet & Fitzimons, arXiv 2602.17454) records a release on one table"
        " and replays it on a neighbour with the same noisy answers: whatever else differs convicts, and so do sums"
        " that"
        " move further than was declared.",
        "Instrumented are every answer of the survey, every histogram of the profile and every look"
        " (`benchmarks/evidence/recording.py`); equal must be scales, viewpoints, charges, words, and the file to its"
        " last"
        " byte.",
        f"**Of {pairs:,} pairs {convicted} are convicted.**",
        "The first twelve lines are neighbours by all of dp-recorder's own strategies, missing, infinite and huge"
        " values"
        " among them; the others random schemas, formulas, kinds of tables and rows, two in five at the ends of all"
        " ranges, mostly with looks at places that a hash chose.",
        "Composed is what dp-accounting makes of the declared sensitivities, of some, where δ is at least 1e-9:"
        " nothing is spent"
        " twice.", "",
        *table(rows), "",
        "Its sampling learns to tell two tables by what a look gives, and composes what it finds with survey and"
        " profile:"
        f" of {asked['epsilon']:g} that are claimed at δ = {asked['delta']:g} it finds {decimal(right['composed'])}"
        f" with"
        f" noise as stated, {decimal(less['composed'])} with a sixth of it (looks where two rows differ most,"
        f" {asked['samples']:,} samples of each).",
    ]  # fmt: skip


def planted(own: dict[str, Any]) -> list[str]:
    """What dp-recorder sees of the mistakes that tests/trust plants."""
    bugs = own["bugs"]
    tried = [bug for bug in bugs if "why" not in bug]
    caught, missed = ([bug for bug in tried if bool(bug["check"]) == found] for found in (True, False))
    kinds = Counter(bug["check"] for bug in caught)
    by_kind = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    return [
        f"**Of {len(tried)} planted bugs of releases by looks dp-recorder convicts {len(caught)}** ({by_kind}), each"
        f" within {own['most_cases']} random releases, a table against its neighbours.",
        f"{len(bugs) - len(tried)} more are of releases of moments, the sampler or huge tables, which it was not put"
        " around.",
        "It does not see:", "", *(f"* {bug['bug']}" for bug in missed), "",
        "These are bugs of what its recording freezes or never compares (how noise is drawn, the order of events, what"
        " is"
        " kept), of sums that are wrong and yet move no further than stated, of releases of moments, or too rare for so"
        " few releases; [the audit of our own](security.md) catches them all.",
    ]  # fmt: skip


def _share(composed: float | None) -> str:
    return "–" if composed is None else f"{composed:.4f}"


def attacked(own: dict[str, Any]) -> list[str]:
    """What testers and a learned attack prove."""
    rows = []
    for each in own["found"]:
        testers = each["auditorium"]
        told = {
            name: f"{bound:.3g} ({'rejected' if rejected else 'kept'})"
            for name, bound, rejected in zip(testers["names"], testers["bounds"], testers["rejected"], strict=True)
        }
        rows.append(
            {"claimed ε": f"{each['epsilon']:g}", "noise": each["noise"], "releases": f"{2 * each['releases']:,}"}
            | told
            | {
                "DP-Sniper: ε proved": decimal(each["sniper"]["proved"]),
                "without δ": decimal(max(each["sniper"]["pure"], 0)),
            }
        )
    limits = own["found"][0]["auditorium"]["limits"]
    return [
        "Google's dp_auditorium and DP-Sniper (Bichsel, Steffen, Bogunovic & Vechev 2021) on real releases of two"
        " tables"
        " that differ in one row, at which the profile and all five looks are aimed; the survey is one of before.",
        f"δ is {own['delta']:g}, and every verdict holds with {percent(1 - own['alpha'])} confidence.",
        "dp_auditorium's testers are given the exact log likelihood ratio of each release: no statistic tells more.",
        f"Its columns are lower bounds on δ, and of Rényi on the divergence of order two; above {limits[0]:g}, and of"
        f" Rényi"
        " above the square of the stated μ, a claim is rejected.",
        f"DP-Sniper is given all {own['numbers']} numbers of a release, learns to tell by a logistic regression, and"
        " judges on two fifths of the releases, which it has not seen; its bound is on ε without δ, and with δ taken"
        " off.",
        "**No claim is rejected with the noise as stated; every planted one is convicted by some.**"
        if _sound(own)
        else "**Not every verdict is as it should be.**",
        "At ε = 3 the histogram would need many more releases, and MMD can reject nothing, whatever the noise: it"
        " needs ε"
        " below 0.88.", "", *table(rows),
    ]  # fmt: skip


def _sound(own: dict[str, Any]) -> bool:
    """Whether right noise is never convicted, and wrong noise always."""
    return all(_convicted(each) == (each["noise"] != "as stated") for each in own["found"])


def _convicted(each: dict[str, Any]) -> bool:
    return any(each["auditorium"]["rejected"]) or each["sniper"]["proved"] > each["epsilon"]


def failures(own: dict[str, Any]) -> list[str]:
    """Convictions of what is right, and bugs that nothing convicts."""
    found = []
    if "recorder" in own:
        for each in (*own["recorder"]["neighbours"], *own["recorder"]["random"].values()):
            found += [f"* dp-recorder: {said}." for said in each["convicted"]]
            if (each["composed"] or 0.0) > 1 + 1e-6:
                found.append(f"* dp-recorder: composed ε is {each['composed']:.4f} of what is stated.")
    for each in own.get("attacked", {}).get("found", []):
        where = f"ε = {each['epsilon']:g}, noise {each['noise']}"
        if _convicted(each) and each["noise"] == "as stated":
            found.append(f"* dp_auditorium or DP-Sniper: {where}: the claim is rejected.")
        if not _convicted(each) and each["noise"] != "as stated":
            found.append(f"* dp_auditorium and DP-Sniper: {where}: the planted mistake is not convicted.")
    return found
