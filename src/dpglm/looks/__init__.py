"""Looks: the public mathematics of the default mechanism, used on both sides of the trust boundary. NumPy only.

A release surveys the table, then looks at it several times. ``survey`` says where the columns live; ``coding`` turns
that into standard units; ``viewpoint`` is what a look fixes before it looks, ``rule`` chooses it; ``reading`` says what
looks tell of the table's own estimate, by averages over a ``population`` of pseudo-rows, and ``gaussian`` what that
says of the population's coefficients. Nothing here ever sees a row.
"""
