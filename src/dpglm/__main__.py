"""``python -m dpglm``, and what the shell calls."""

from __future__ import annotations

from dpglm.cli import main

if __name__ == "__main__":
    main()
