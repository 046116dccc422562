"""docs/security.md, from the results of the long runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from machine import RESULTS
from trust.long_fuzz import RUNS
from trust.long_ledger import TRIALS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
FAMILIES = {"logistic": "logistic", "poisson": "counts", "linear": "linear"}
READERS = {
    "release": "release files", "fit": "fit files", "schema": "schema files", "formula": "formulas",
    "ledger": "ledgers",
}  # fmt: skip

INTRODUCTION = """# Security: what was attacked, and what held

The bugs of privacy software sit in the glue, seldom in the mechanism. So the whole path is attacked here: the guarantee, the ledger, the files and the
inputs. Every attack is shown to work: planted bugs and ledgers that are wrong on purpose are convicted by the same code. The attacks are
in `benchmarks/trust`; `tests/trust` runs each for seconds in `make test`, and `make bench-trust` runs them for hours and writes this page. No outside audit has taken
place.
"""  # noqa: E501

NOT_PROTECTED = """## What is not protected

[What is not protected](not_protected.md) has the list and what to do about it. In short:

| | against whom | why not |
|---|---|---|
| N, the schema, the formula, that the dataset exists | readers | public by design |
| time and memory of a release | whoever can measure them | rows that are clamped, filled or shortened may take longer; nothing here is constant-time |
| how a broken file is parsed (an odd CSV line, a category of mixed kinds) | whoever can measure it | neighbouring tables are tables after parsing; the *result* is audited, the way through the parser is not |
| releases outside the ledger, or charged to a copy | readers | the ledger counts what goes through it; `verify --against` finds the others where their files are shown |
| a ledger rewritten as a whole, with its hash chain | whoever can write the ledger | keep it where only the custodian can write; published files still show it (`verify --against`) |
| rows, memory and entropy of the custodian's machine | whoever controls it | trusted |
| a release file that was made up as a whole | analysts | its checksum shows damage, not who made it: take files from people you trust; reading one is safe |
| machines that lose what they reported as written | the custodian | a disk that lies about its cache can lose the last entries; then `verify --against` shows it |
"""  # noqa: E501

FOUND = """## What the attacks found

Each of these was mended when it was found, and has a test.

| found by | what | test |
|---|---|---|
| fuzzing | **Code in a formula was run.** While splitting a formula, the parser library evaluates what is called on its left side: a hostile *release file* could run any program on an analyst's machine. Both sides are now parsed by themselves, which evaluates nothing, and calls of anything but a name are refused before | `test_no_formula_is_run` |
| record and replay | **One odd cell changed how other rows were read**: in a pandas category column of mixed kinds, Arrow turned `True` into `1.0`, which matched no level any more. More than one row's statistics moved | `test_one_odd_category_does_not_change_how_other_rows_are_read` |
| fuzzing | a fit file could unpack to any size; a schema file could be of any size | `test_a_fit_that_unpacks_to_more_than_it_may_is_not_unpacked`, `test_a_schema_that_is_a_bomb_is_refused` |
| fuzzing | a ledger with a view in place of a table, or with wrong types under a right hash chain, could hang its reader or end in an undocumented error; an entry of negative cost was not refused | `test_a_view_in_place_of_a_ledgers_table_is_never_read` |
| fuzzing | numbers of thousands of digits and deep nesting in schemas, fits and error messages ended in undocumented errors; messages had no longest length | `test_values_beyond_what_python_writes_are_refused` |
| crash rounds | on a disk that lets nothing go, the error of removing a half-written file hid the documented one | `test_a_disk_that_lets_nothing_go_is_one_error_too` |
| record and replay | `statistics=[(1, 0), (2, 0)]` with `allocation="auto"` and two columns ended in an undocumented error, before any row was read | the generator draws such lists |
"""  # noqa: E501


def write() -> None:
    text = "\n".join((
        INTRODUCTION, _threats(), NOT_PROTECTED, _replay(), _bugs(), _distribution(), _ledger(), _fuzz(), FOUND,
        _trusted(), _repeat(),
    ))  # fmt: skip
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"trust_{name}.json").read_text())["results"]


def _threats() -> str:
    replay, fuzz, ledger = _results("replay"), _results("fuzz"), _results("ledger")
    seen, bugs = _results("distribution"), _results("bugs")
    pairs = sum(each["pairs"] for each in replay.values())
    violations = sum(len(each["violations"]) for each in replay.values())
    cases = sum(each["cases"] for each in fuzz.values())
    breaches = sum(each["number_of_breaches"] for each in fuzz.values())
    rounds = {name: trial for name, trial in ledger.items() if trial["variant"] == "right"}
    crashes, problems = (sum(trial[key] for trial in rounds.values()) for key in ("rounds", "number_of_problems"))
    return f"""## What is protected, against whom, and the evidence

| what | against whom | how | evidence |
|---|---|---|---|
| the content of one row | anyone who reads releases, however clever, whatever else they know | (ε, δ)-differential privacy: [the proof](privacy.md), [for stages](stages_privacy.md) | {pairs:,} pairs of neighbouring tables, {violations} violations; {len(bugs["caught"])} of {len(bugs["caught"]) + len(bugs["missed"])} planted bugs caught (`tests/trust/test_replay.py`); proven epsilon {seen["epsilon_lower_bound"]:.2f} of {seen["epsilon"]:g} claimed, {seen["half_noise_epsilon_lower_bound"]:.2f} with half the noise (`test_distribution.py`) |
| the same, through messages, exit codes, log lines, warnings, progress, file names and sizes | whoever watches the custodian's terminal or disk | after the header nothing depends on rows but the noisy integers | the same pairs: all of these are compared byte by byte |
| the same, through low-order bits of the numbers | an analyst with Mironov's attack | released are integers on a declared grid, noise is exact and can be every integer | `test_every_output_of_one_table_is_possible_for_the_other`; the attack tells {100 * _float_share():.0f} % of floating-point outputs apart |
| the total over all releases | readers of all of them; a custodian in a hurry; crashes, races, full disks | a ledger: charge on disk before noise, never refunded, one exclusive transaction | {crashes:,} rounds of kills, power cuts and races, {problems} problems (`test_ledger_crashes.py`, `test_ledger_model.py`) |
| the ledger's history | mistakes; people without write access to it; people with, as far as files were published | hash chain; `dpglm ledger verify --against` | `tests/custodian/test_published.py` |
| the noise | an adversary who knows clock, process and seeds | OpenDP's sampler and the operating system's entropy; no seed | `test_the_sampler_has_no_seed_and_the_right_spread` |
| the analyst's machine | whoever writes a release, fit or schema file, or a formula | no pickle, no evaluation, checked sizes; one-line errors | {cases:,} hostile inputs, {breaches} breaches (`test_hostile_files.py`) |
| the reader of a report | whoever chose column names, levels or a dataset's name | everything is escaped; the page runs its own script only | `tests/report/test_html.py` (`test_hostile_names_add_no_element_and_no_attribute`) |
"""  # noqa: E501


def _float_share() -> float:
    from trust.low_bits import float_laplace, told_apart

    return told_apart(float_laplace(0.0, 1.0, 20_000, seed=1), 0.0, 1.0, 1.0)


def _replay() -> str:
    rows = "\n".join(
        f"| {FAMILIES[name]} | {each['pairs']:,} | {each['cases']:,} | {each['staged_cases']} |"
        f" {each['pairs_with_real_fits']} |"
        f" 1 − {1 - each['largest_share_of_mu_squared']:.0e} | {len(each['violations'])} |"
        for name, each in ((name, _results("replay")[name]) for name in FAMILIES)
    )
    return f"""## Record and replay

A generator draws a schema, a formula, a family, bounds, levels, a radius, a budget, a number of stages, a kind of table (Arrow types, pandas, CSV, Parquet, cut at
random) and rows: ordinary ones, corners, and cells such as NaN, 1e308, 5e-324, 2^64, text, bytes that are not UTF-8, lines with a wrong number of fields. One row
is replaced by several others; every two of the resulting tables are neighbours. The public function, or the command line, makes a release of each, with a ledger or
without.

The noise is recorded at the first table. At every other one it is *what makes the same release*: the recorded output less that table's own sums. Then

* the file, the ledger's entries and its copy of the release, standard output and error, log lines, warnings, progress, the files that appear, the order of charges and
  draws must be **the same to the last byte** (identity and clock are fixed); in a tenth of the cases also the number of calls of every function;
* what is left of the difference between the two tables is how far the noise had to move. In units of its scale it moved **by at most μ_k in stage k**, in exact arithmetic. That is
  the [proof](privacy.md)'s statement, and it is also the right one for stages: a later stage is centred by the *released* earlier ones, so tables are compared given the
  same earlier output. (With the same *noise* instead, the centring would differ, and rightly so.) Most cases take their centrings from a hash of everything released; some
  from the real fits;
* released integers less noise are the sum over rows of what each row gives alone, in Python's integers; every integer has a draw of its own, of the stated scale; the charge covers the
  stages, is on disk before the first draw, and stays when the sampler fails half way.

| family | pairs | cases | of these in stages | further pairs with real fits | largest move, share of μ² | violations |
|---|---|---|---|---|---|---|
{rows}

The largest move shows that the search is not idle: some pairs use all of the sensitivity but one part in 10^11 or less. Sums of 40,000 rows, beyond 2^53, are checked as well.
"""  # noqa: E501


def _bugs() -> str:
    found = _results("bugs")
    rows = "\n".join(f"| {each['bug']} | {each['check']} | {each['cases']} |" for each in found["caught"])
    missed = "none" if not found["missed"] else ", ".join(found["missed"])
    return f"""## Planted bugs

Mistakes of the kind that privacy software has had, each put in by replacing a function, each caught by the audit above. "check" names what caught it: outcome, words,
file, flow, account, order, noise, sums, sensitivity, refund (`benchmarks/trust/audit.py`) or sampler. Missed: {missed}.

| bug | check | caught at case |
|---|---|---|
{rows}
"""  # noqa: E501


def _distribution() -> str:
    seen = _results("distribution")
    first, second = seen["whole_path_same_distribution_p_values"]
    return f"""## The privacy loss that can be seen

Two tables that differ in the worst row (they use {100 * seen["distance_over_mu"]:.9f} % of μ) were released {seen["releases_of_each_table"]:,} times each with the real sampler at
ε = {seen["epsilon"]:g}, δ = {seen["delta"]:g}, and every release projected onto the worst direction. Parsing, clamping and summing have no chance in them and were done once; adding noise was done every time.
From the tails of the two samples, with Clopper–Pearson limits that fail once in {1 / seen["failure_rate"]:,.0f} runs, **ε is at least {seen["epsilon_lower_bound"]:.3f}**: below the claim, and near enough to
show that the noise is not far too large. With half the noise ({seen["half_noise_releases_of_each_table"]:,} releases each) the same test proves **ε ≥ {seen["half_noise_epsilon_lower_bound"]:.3f}**: convicted.
{seen["whole_path_releases_of_each_table"]:,} whole releases each, written to text and read again, have the same distribution (Kolmogorov–Smirnov, p = {first:.2g} and {second:.2g}), and the last eight bits of the integers
are spread alike for both tables (χ², p = {seen["low_bits_same_distribution_p_value"]:.2g}).

*Low-order bits.* A sum plus floating-point noise can take only some doubles, and which ones depends on the sum (Mironov 2012). Released here are integers: an output less the neighbour's sum is an
integer again, within the sampler's range, so every output of one table is possible for the other, with a likelihood ratio that depends on its size alone. There is nothing in the low bits to find.
"""  # noqa: E501


def _ledger() -> str:
    trials = _results("ledger")
    rows = "\n".join(
        f"| {name} | {'as it is' if trials[name]['variant'] == 'right' else 'wrong on purpose'} |"
        f" {trials[name]['rounds']:,} | {trials[name]['number_of_problems']} |"
        for name in TRIALS
    )
    kills, power, races = (trials[name] for name in ("kills and failing disks", "power cuts", "races"))
    return f"""## The ledger

* **Kills and failing disks.** A library put before libc counts the calls by which a release changes files ({kills["calls_of_a_release"]} of them: writes, syncs, truncations, links, renames, removals) and lets the process
  end at the k-th, tear a write and end, or meet a full disk, a read-only one, a bad sector or a limit on file sizes, for every k in turn. Of {kills["rounds"]:,} releases {kills["ends"].get("died", 0)} died and
  {kills["ends"].get("one-line error", 0)} ended in one documented line.
* **Power cuts.** Every write and sync of a ledger is recorded ({power["calls"]} calls). Then the disk is rebuilt as a power cut after each of them could leave it: what was not synced is there, or not, or torn at a
  sector, in any combination.
* **Races.** {races["processes"]} processes race for the last {races["charges"]} charges of a budget; {races["kills"]:,} kill signals hit some of them at random moments.
* **A model.** Sequences of charges, several stages, copies, rollbacks, edits, reopening and clock jumps agree with a model of a list and a cap (`tests/trust/test_ledger_model.py`).

After every round: the ledger opens and verifies; earlier entries are unchanged; every acknowledged charge is there; the sum is within the cap; noise was drawn only after its charge; an output is whole and has its entry.

| trial | ledger | rounds | problems |
|---|---|---|---|
{rows}

A ledger that was put back from a backup, or copied and spent from, is sound by itself. [`dpglm ledger verify LEDGER --against FILES`](cli.md#dpglm-ledger-verify) compares it with published releases, each of which states its
entry, cost, cap and what had been spent.
"""  # noqa: E501


def _fuzz() -> str:
    fuzz = _results("fuzz")
    rows = []
    for kind, reader in READERS.items():
        runs = [fuzz[name] for name, (of, _) in RUNS.items() if of == kind]
        cases, accepted, breaches = (
            sum(run[key] for run in runs) for key in ("cases", "accepted", "number_of_breaches")
        )
        slowest = max(run["slowest_case_seconds"] for run in runs)
        rows.append(f"| {reader} | {cases:,} | {accepted:,} | {slowest:g} s | {breaches} |")
    listed = "\n".join(rows)
    one = next(iter(fuzz.values()))
    return f"""## Hostile files

Good files are mutated: bytes flipped, cut, doubled and inserted; values replaced by hostile ones (10^400, 1e999, half a character, `../../etc/passwd`, code, nesting) with checksums, hash chains and archives made right again;
formulas put together from odd parts. A reader may return or raise its documented one-line error. Anything else is a breach: another error, a message of several lines or beyond 1,000 characters, more than
{one["limit_seconds"]:g} s or {one["limit_megabytes"]:,} MB, starting a program, evaluating code, unpickling, opening a socket, or touching any file but the one it was given.

| reader | cases | accepted | slowest | breaches |
|---|---|---|---|---|
{listed}
"""  # noqa: E501


def _trusted() -> str:
    facts = _results("dependencies")
    one, more = facts["loaded"]["1 stage"], facts["loaded"]["2 stages"]
    jobs = {
        "pyarrow": "reads tables", "pandas": "its tables, if given", "numpy": "clamps, rounds, multiplies",
        "opendp": "draws the noise", "dp-accounting": "(ε, δ) of the noise",
        "scipy": "distribution functions; choosing noise ratios", "formulaic": "parses formulas",
    }  # fmt: skip
    listed = "\n".join(f"| {name} {one[name]} | {job} |" for name, job in jobs.items() if name in one)
    others = ", ".join(f"{name} {number}" for name, number in one.items() if name not in jobs)
    added = ", ".join(f"{name} {number}" for name, number in more.items() if name not in one)
    audit = facts["audit"]
    if audit["asked"]:
        hits = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in audit["advisories"].items()) or "none"
        said = f"`pip-audit` asked about {audit['packages']} installed packages. Advisories: {hits}."
    else:
        said = "This page's machine could not reach a database of advisories: run `pip-audit` where you install."
    return f"""## The trust list

What a release of one stage loads, with SQLite and Python's own library, measured in a fresh process (`tests/trust/test_dependencies.py` fails if it grows):

| library | what it does there |
|---|---|
{listed}

These load by themselves: {others}. (OpenDP loads Polars where it is installed.) Later stages are centred by a fit to what was *released*, for which JAX is loaded: {added}. None of these needs a network, and dpglm opens no
connection. {said} The tested versions are in `constraints.txt`.
"""  # noqa: E501


def _repeat() -> str:
    facts = json.loads((RESULTS / "trust_replay.json").read_text())["machine"]
    return f"""## Repeat it

`make bench-trust` runs all of this again. Seeds are fixed, except where the noise is real. Measured on {facts["processor"]}, {facts["cores"]} cores, Python {facts["python"]}; results are in `benchmarks/results/trust_*.json`.
"""  # noqa: E501
