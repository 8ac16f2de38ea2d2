"""A table, a view over it that is kept up to date, and a look at both from Python.

    tidemark serve --data DIR                  # in one terminal
    .venv/bin/python examples/first_steps.py   # in another; a port may follow

It makes what it needs and removes it again.
"""

from __future__ import annotations

import sys

import pandas as pd

import tidemark


def main(port: int) -> None:
    with tidemark.connect(port=port) as db:
        db.execute("DROP TABLE IF EXISTS first_orders CASCADE")
        db.execute("CREATE TABLE first_orders (id int NOT NULL, region text, amount numeric(10,2))")
        db.execute(
            "CREATE MATERIALIZED VIEW first_totals AS "
            "SELECT region, count(*) AS orders, sum(amount) AS total FROM first_orders GROUP BY region"
        )
        orders = pd.DataFrame(
            {"id": [1, 2, 3], "region": ["north", "south", "north"], "amount": [10.5, 20, 0.25]}
        )
        print(db.insert("first_orders", orders), "orders inserted")

        # The view has them: whoever was told of a write finds it in what they read afterwards.
        totals = db.sql("SELECT * FROM first_totals ORDER BY region")
        print(totals.pandas())
        assert [str(row[2]) for row in totals] == ["10.75", "20.00"]

        with db.subscribe("first_totals") as batches:
            print("at first:", next(batches).rows())
            db.execute("UPDATE first_orders SET region = $1 WHERE id = $2", ["south", 3])
            changes = next(batches)
            print("then, all at once:", changes.rows())
            assert {row[1] for row in changes.rows()} == {1, -1}
            # A query at the time of a batch finds what the batches have said.
            then = db.sql(f"SELECT * FROM first_totals AS OF {changes.time}")
            print(sorted(then.rows()))
        db.execute("DROP TABLE first_orders CASCADE")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6875)
