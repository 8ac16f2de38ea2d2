"""Tidemark in a program of its own: a folder, and no server to look after.

.venv/bin/python examples/embedded.py shop.tidemark

Run it twice: the second run goes on with what the first has left.
"""

from __future__ import annotations

import sys

import tidemark


def main(folder: str) -> None:
    with tidemark.local(folder) as db:
        db.execute("CREATE TABLE IF NOT EXISTS visits (day date, visitors int)")
        db.execute("INSERT INTO visits VALUES (current_date, 3)")
        visitors = db.sql("SELECT sum(visitors) AS n FROM visits").scalar()
        print(f"{visitors} visitors so far")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "embedded.tidemark")
