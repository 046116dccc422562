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
| the folder of compiled programs (`DPGLM_CACHE`) | whoever can write to it | what is in it is run, as with JAX's own cache: keep it the user's, or set `DPGLM_CACHE=` to have none |
| a release file that was made up as a whole | analysts | its checksum shows damage, not who made it: take files from people you trust; reading one is safe |
| machines that lose what they reported as written | the custodian | a disk that lies about its cache can lose the last entries; then `verify --against` shows it |
"""  # noqa: E501

FOUND = """## What the attacks found

Each of these was mended when it was found, and has a test.

| found by | what | test |
|---|---|---|
| fuzzing | **Code in a formula was run.** While splitting a formula, the parser library evaluates what is called on its left side: a hostile *release file* could run any program on an analyst's machine. Both sides are now parsed by themselves, which evaluates nothing, and calls of anything but a name are refused before | `test_no_formula_is_run` |
| record and replay | **One odd cell changed how other rows were read**: in a pandas category column of mixed kinds, Arrow turned `True` into `1.0`, which matched no level any more. More than one row's statistics moved | `test_one_odd_category_does_not_change_how_other_rows_are_read` |
| an attack by hand on whole frames | **One odd cell changed how all other rows were read**, since the first version: where a column's levels are not all numbers, typed columns went through Arrow's text and columns of objects through Python's, and the two differ (`1` and `1.0`, `true` and `True`). One text or missing cell decides the type of a column of a frame, and then no other row matched its level. ε = 1, N = 1,000: 221 μ with floats, 239 μ with truth values, 211 μ with a pandas category; 6.7 μ at N = 200,000 with floats of 16 bits. The replays above did not see it, because their pandas tables held objects only. A column of dates was refused, and one text cell made it accepted | `test_the_tables_that_broke_the_guarantee_keep_it` |
| an attack by hand on dates and times | **The same once more, for rare moments**: with a zone whose offset has seconds, or beyond the year 9999, where a column's levels hold such a moment | `test_a_cell_is_read_alike_in_every_column_that_can_hold_it` |
| fuzzing | a fit file could unpack to any size; a schema file could be of any size | `test_a_fit_that_unpacks_to_more_than_it_may_is_not_unpacked`, `test_a_schema_that_is_a_bomb_is_refused` |
| fuzzing | a ledger with a view in place of a table, or with wrong types under a right hash chain, could hang its reader or end in an undocumented error; an entry of negative cost was not refused | `test_a_view_in_place_of_a_ledgers_table_is_never_read` |
| fuzzing | numbers of thousands of digits and deep nesting in schemas, fits and error messages ended in undocumented errors; messages had no longest length | `test_values_beyond_what_python_writes_are_refused` |
| crash rounds | on a disk that lets nothing go, the error of removing a half-written file hid the documented one | `test_a_disk_that_lets_nothing_go_is_one_error_too` |
| thinking like an author of such files | **Files of 4 to 30 kB took minutes or gigabytes** to read, although "sizes were checked": columns, monomials and the terms of a formula were counted after they had been built, and duplicates were looked for in time with the square of their number. Mutation had not found them in a million cases: 22 of 84 such files and formulas took longer than a second or more than 500 MB, some no end | `test_a_small_release_file_that_asks_for_much_ends_in_one_line`, `test_a_small_formula_that_asks_for_much_ends_in_one_line`, `test_a_small_schema_file_that_asks_for_much_ends_in_one_line` |
| reading the code | an error between looks that was not dpglm's own (linear algebra, memory) came up raw after the budget was charged | `test_whatever_fails_between_looks_ends_in_one_line_that_says_what_was_spent` |
| pressing Ctrl-C between looks | what had been paid for was lost: neither survey nor looks were left in the ledger | `test_looks_that_were_paid_for_are_kept_when_they_are_stopped` |
| using it | `dpglm init` on a file without a header printed the first person's row as names; with an open quote, the whole file; and so with semicolons, and for a Parquet file whose names were a row | `test_init_prints_no_row_for_names`, `test_a_first_line_that_is_a_row_is_not_quoted_whatever_its_delimiter`, `test_the_header_of_a_parquet_file_may_be_a_row_too` |
| using it | `dpglm ledger init` gave a second budget for the same dataset without a word | `test_a_second_ledger_of_a_dataset_is_refused_in_the_same_folder` |
| record and replay | the survey of a column whose wide range does not hold zero could end in an error, or in a release that cannot be written, after it was charged | the generator draws such columns |
| reading the proof | where another release took the rest of the budget between a survey and its looks, the survey was paid for and lost | `test_a_survey_is_kept_when_another_release_takes_the_rest_of_the_budget` |
| record and replay | `statistics=[(1, 0), (2, 0)]` with `allocation="auto"` and two columns ended in an undocumented error, before any row was read | the generator draws such lists |
"""  # noqa: E501


def write() -> None:
    text = "\n".join((
        INTRODUCTION, _threats(), NOT_PROTECTED, _replay(), _frames(), _bugs(), _distribution(), _ledger(), _fuzz(),
        FOUND, _trusted(), _repeat(),
    ))  # fmt: skip
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"trust_{name}.json").read_text())["results"]


def _threats() -> str:
    replay, fuzz, ledger = _results("replay"), _results("fuzz"), _results("ledger")
    seen, bugs, chain = _results("distribution"), _results("bugs"), _results("chain")
    worst = chain["worst viewpoints"]["epsilon_lower_bound"]
    less = chain["a sixth of the noise"]["epsilon_lower_bound"]
    pairs = sum(each["pairs"] for each in replay.values())
    violations = sum(len(each["violations"]) for each in replay.values())
    cases = sum(each["cases"] for each in fuzz.values())
    breaches = sum(each["number_of_breaches"] for each in fuzz.values())
    rounds = {name: trial for name, trial in ledger.items() if trial["variant"] == "right"}
    crashes, problems = (sum(trial[key] for trial in rounds.values()) for key in ("rounds", "number_of_problems"))
    return f"""## What is protected, against whom, and the evidence

| what | against whom | how | evidence |
|---|---|---|---|
| the content of one row | anyone who reads releases, however clever, whatever else they know | (ε, δ)-differential privacy: [of moments](privacy.md), [of looks](looks_privacy.md) | {pairs:,} pairs of neighbouring tables, {violations} violations; {len(bugs["caught"])} of {len(bugs["caught"]) + len(bugs["missed"])} planted bugs caught (`tests/trust/test_replay.py`); neighbours that reach 99.99 % of a look's bound, all of a survey's, and never more (`tests/custodian/test_looks_privacy.py`); proven epsilon of survey and looks {worst:.2f} of {chain["epsilon"]:g} claimed, {less:.2f} with a sixth of the noise; of moments {seen["epsilon_lower_bound"]:.2f} of {seen["epsilon"]:g}, {seen["half_noise_epsilon_lower_bound"]:.2f} with half the noise (`test_distribution.py`) |
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
    found = {name: _results("replay")[name] for name in FAMILIES}
    rows = "\n".join(
        f"| {FAMILIES[name]} | {each['pairs']:,} | {each['cases']:,} | "
        + " | ".join(
            _share(each["largest_shares_of_mu_squared"].get(part, 0)) for part in ("survey", "looks", "moments")
        )
        + f" | {len(each['violations'])} |"
        for name, each in found.items()
    )
    kinds: dict[str, int] = {}
    for each in found.values():
        for kind, number in each["kinds"].items():
            kinds[kind] = kinds.get(kind, 0) + number
    of_a_hash = sum(number for kind, number in kinds.items() if "hash" in kind)
    again = sum(number for kind, number in kinds.items() if "known" in kind)
    return f"""## Record and replay

A generator draws a schema, a formula, a family, bounds, levels, a budget, a method with its options, a kind of table (Arrow types, pandas, CSV, Parquet, cut at
random) and rows: ordinary ones, corners, and cells such as NaN, 1e308, 5e-324, 2^64, text, bytes that are not UTF-8, lines with a wrong number of fields.
One row is replaced by several others; every two of the resulting tables are neighbours.
The public function, or the command line, makes a release of each, with a ledger or without.

The noise is recorded at the first table.
At every other one it is *what makes the same release*: the recorded output less that table's own sums.
The neighbour is so led to the same questions and the same viewpoints, which follow from noisy answers. Then

* the file, the ledger's entries and its copy of the release, standard output and error, log lines, warnings, progress, the files that appear, the order of charges and
  draws must be **the same to the last byte** (identity and clock are fixed); in a tenth of the cases also the number of calls of every function;
* what is left of the difference between the two tables is how far the noise had to move.
  In units of its scale it moved **by at most what each question states, by at most μ_k in the survey and in every look, and by at most μ in all**, in exact arithmetic.
  That is what [the proof](looks_privacy.md) says, and it says it of tables given the same earlier output.
  (With the same *noise* instead, later questions and viewpoints would differ, and rightly so.);
* released integers less noise are the sum over rows of what each row gives alone, in Python's integers; every integer has a draw of its own, of the stated scale; no survey could have asked more than it paid for;
  what a part costs is on disk before its first draw, and stays when the sampler fails half way, with what was released until then.

Viewpoints come from the product's rule, or ({of_a_hash:,} cases) from a hash of everything that was released: any function of it must do.
{again:,} cases use the survey of an earlier release; {kinds.get("stopped by the survey", 0):,} more are of {6000:,} rows and end with their survey, because no cell of a column can be read.

| family | pairs | cases | survey moved at most | a look | moments | violations |
|---|---|---|---|---|---|---|
{rows}

Moves are shares of μ².
Those of looks and moments show that the search is not idle.
That of a survey is of random rows and answers; rows that are looked for move every answer by all that it states (`test_one_row_can_move_the_whole_list_of_questions`).
Sums of 40,000 rows, beyond 2^53, are checked as well.
"""  # noqa: E501


def _share(share: float) -> str:
    return f"{share:.3f}" if share < 0.9995 else f"1 − {max(1 - share, 1e-15):.0e}"


def _frames() -> str:
    found = _results("frames")
    rows = "\n".join(
        f"| {FAMILIES[name]} | {each['pairs']:,} | {each['cases']:,} | {each['frames_not_made']:,} |"
        f" 1 − {1 - each['largest_share_of_mu_squared']:.0e} | {len(each['violations'])} |"
        for name, each in ((name, found[name]) for name in FAMILIES)
    )
    kinds = len({kind for each in found.values() for kind in each["kinds"]})
    former = "\n".join(
        f"| {bug} | {', '.join(str(found[name]['former'][bug][0]) for name in FAMILIES)} |"
        for bug in found["logistic"]["former"]
    )
    return f"""## Frames as users make them

What holds a table chooses the types of its columns by looking at all cells. So records are drawn (levels that are numbers, truth values, text, dates, and mixtures; cells of one type a column), one is replaced by
others with cells of any kind, and the frame is made from the records again, in {kinds} ways: pandas from records, columns, objects and parts, `convert_dtypes`, categories, nullable and Arrow-backed types, `read_csv`;
Polars with `strict=False`, by columns and rows, and its categories; DuckDB; Arrow, also with dictionaries; Parquet. The exact sums of every two of them are compared, in rational arithmetic. Frames that a library refuses to
make are counted, not compared; what a library changes for good is left out ([which](custodian.md#5-release)).

| family | pairs | cases | frames not made | largest move, share of μ² | violations |
|---|---|---|---|---|---|
{rows}

**What was wrong.** Until this audit was written, and since the first version, how a cell was read depended on its column's type, and so on other rows. The same generator convicts that code: in 39 of 600 cases one
record moved the sums by more than μ (up to 74 μ at N = 120; the move grows with N) or decided whether the table was taken. Releases of frames and Parquet files with typed columns and levels that are not all numbers,
made before, do not have the stated guarantee against a reader who may think of such a record; CSV files, which are read as text, and columns whose levels are all numbers, other than of floats
of 16 or 32 bits or of dates, were not affected. One kind of cell was left, and found by hand later: a moment with a zone whose offset has seconds (Berlin before 1893), or beyond the year 9999, was
one level in a typed column and none as an object. The generator draws such zones now, and convicts the code before that: 2 of 600 cases. Ways to read cells as at first, planted in today's code:

| planted | caught at case (logistic, counts, linear) |
|---|---|
{former}
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
    chain = _results("chain")
    rows = "\n".join(
        f"| {name} | {each['releases_of_each_table']:,} | {each['mean_share_of_mu_squared']:.3f} |"
        f" {each['epsilon_lower_bound']:.2f} |"
        for name, each in chain.items()
        if isinstance(each, dict)
    )
    return f"""## The privacy loss that can be seen

**Survey and looks.** Two tables of {chain["rows"]:,} rows differ in one: at one end of every column, or without any value.
Both are released again and again, through the public path, with the real sampler at ε = {chain["epsilon"]:g}, δ = {chain["delta"]:g}.
For each release the neighbour's sums are computed at the same noisy answers, and so the exact likelihood ratio of everything that was released: no test of the two tables does better than its tails.
Looks stand where the product's rule says, or where an adversary says who knows both rows and reads every noisy answer.
Clopper–Pearson limits fail once in {1 / chain["failure_rate"]:,.0f} runs.

| looks | releases of each table | share of μ² that moves | ε is at least |
|---|---|---|---|
{rows}

The last line is convicted: it proves more than {chain["epsilon"]:g}.

**Moments.** Two tables that differ in the worst row (they use {100 * seen["distance_over_mu"]:.9f} % of μ) were released {seen["releases_of_each_table"]:,} times each with the real sampler at
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
* **A model.** Sequences of charges, several parts, copies, rollbacks, edits, reopening and clock jumps agree with a model of a list and a cap (`tests/trust/test_ledger_model.py`).

After every round: the ledger opens and verifies; earlier entries are unchanged; every acknowledged charge is there; the sum is within the cap; noise was drawn only after its charge; an output is whole and has its entry.

| trial | ledger | rounds | problems |
|---|---|---|---|
{rows}

A ledger that was put back from a backup, or copied and spent from, is sound by itself. [`dpglm ledger verify LEDGER --against FILES`](cli.md#dpglm-ledger-verify) compares it with published releases, each of which states its
entry, cost, cap and what had been spent.
"""  # noqa: E501


def _fuzz() -> str:
    fuzz, small = _results("fuzz"), _results("bombs")
    largest = max(each["bytes"] for each in small["found"])
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

**Small files that ask for much.** Mutation seldom finds a small file that would fill the memory, so {small["cases"]} are written by hand (`benchmarks/trust/bombs.py`, at most {largest / 1000:,.0f} kB): interactions of
factors with a thousand levels, blocks of degree six over 250 columns, long chains of `/`, `:` and `%in%`, powers of sums, expressions that are repeated in every term, names that are hard to compare, keys of ten thousand dots, nesting, numbers of
thousands of digits. Each is read as a release file, as a schema with a formula, or as a schema file, in a process of its own that has read a good file before. **{small["held"]} of {small["cases"]} end in one line, or are read, within
{small["limit_seconds"]:g} s and {small["limit_megabytes"]} MB**: the slowest takes {small["slowest_seconds"]:g} s, the largest {small["most_megabytes"]} MB. Columns and monomials are counted before any is built. The fuzzer draws the same shapes in sizes of its own.
"""  # noqa: E501


def _trusted() -> str:
    facts = _results("dependencies")
    one = facts["loaded"]
    jobs = {
        "pyarrow": "reads tables", "pandas": "its tables, if given", "numpy": "clamps, rounds, multiplies",
        "opendp": "draws the noise", "dp-accounting": "(ε, δ) of the noise",
        "scipy": "distribution functions; choosing noise ratios", "formulaic": "parses formulas",
    }  # fmt: skip
    listed = "\n".join(f"| {name} {one[name]} | {job} |" for name, job in jobs.items() if name in one)
    others = ", ".join(f"{name} {number}" for name, number in one.items() if name not in jobs)
    audit = facts["audit"]
    if audit["asked"]:
        hits = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in audit["advisories"].items()) or "none"
        said = f"`pip-audit` asked about {audit['packages']} installed packages. Advisories: {hits}."
    else:
        said = "This page's machine could not reach a database of advisories: run `pip-audit` where you install."
    return f"""## The trust list

What a release loads, with SQLite and Python's own library, measured in a fresh process (`tests/trust/test_dependencies.py` fails if it grows):

| library | what it does there |
|---|---|
{listed}

These load by themselves: {others}. JAX is not among them. None of these needs a network, and dpglm opens no
connection. {said} The tested versions are in `constraints.txt`.
"""  # noqa: E501


def _repeat() -> str:
    facts = json.loads((RESULTS / "trust_replay.json").read_text())["machine"]
    return f"""## Repeat it

`make bench-trust` runs all of this again. Seeds are fixed, except where the noise is real. Measured on {facts["processor"]}, {facts["cores"]} cores, Python {facts["python"]}; results are in `benchmarks/results/trust_*.json`.
"""  # noqa: E501
