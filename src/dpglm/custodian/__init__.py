"""The only code that sees rows.

Nothing outside this package opens a table, and nothing in analyst/ or report/ imports it.
"""
