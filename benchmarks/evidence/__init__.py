"""Other people's yardsticks: their accountants, tables, methods and tools, on releases of today's code.

``python -m evidence PART`` in ``benchmarks``. A part is a file of this folder; what runs in another environment is a
script of its own, named ``foreign_*``, that reads one file and writes one.
"""
