"""A local web page for the custodian: from a table's header to schema, plan, release and statement.

On the custodian's side of the trust boundary: it holds the table's path, and imports nothing of the analyst's. Needs
the extra ``studio``.

Guarantees
    *Nothing is spent before the last click*: no other request opens a ledger for writing or draws noise.
    *No row in a page*: pages hold the header, what the person typed, noisy or public numbers, and, on the page of
    ``check`` alone, counts that are marked as for the custodian's eyes. No text of a cell is shown, not even there.
    *Nobody else*: the server listens on the loopback address; requests need a secret address, this host's name and, to
    change anything, a form of this very page (``guard``).
"""
