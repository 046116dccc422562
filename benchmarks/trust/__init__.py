"""Attacks on dpglm's own promises: the guarantee, the ledger, the files and the inputs.

``tests/trust`` runs each for seconds, ``python -m trust`` (in ``benchmarks``; `make bench-trust`) for long, and writes
docs/security.md. The pieces are here, once:

    cases, sources     random tables, schemas, formulas and budgets
    replay, audit      releases of neighbouring tables with recorded noise, compared
    planting, bugs     planted bugs that the audit must catch
    distribution       100,000 releases: the privacy loss that can be seen; low-order bits
    crashes, races     a ledger under kills, power cuts, full disks and many processes
    fuzz               hostile files
    page               docs/security.md
"""
