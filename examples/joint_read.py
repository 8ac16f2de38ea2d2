"""Read three collections at one timestamp with plain Spark, and check that they agree.

    make demo                                              # in one terminal
    .venv/bin/python examples/joint_read.py demo.tidemark  # in another

Every auction has a seller, every bid a buyer and an auction, at each time that there is. Read one
after the other, the tables would sooner or later contradict each other, because auctions and their
bids come and go all the time; read at one timestamp they never do.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

import tidemark


def contradictions(users: DataFrame, auctions: DataFrame, bids: DataFrame) -> dict[str, int]:
    """How many rows refer to one that does not exist."""

    def orphans(rows: DataFrame, column: str, others: DataFrame) -> int:
        return rows.join(others, rows[column] == others["id"], "left_anti").count()

    return {
        "auctions without a seller": orphans(auctions, "seller", users),
        "bids without a buyer": orphans(bids, "buyer", users),
        "bids without an auction": orphans(bids, "auction_id", auctions),
    }


def main(data: str, rounds: int) -> None:
    spark = SparkSession.builder.appName("joint-read").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    region = tidemark.attach(spark, data)
    for _ in range(rounds):
        with region.at("users", "auctions", "bids") as at:
            users, auctions, bids = (at.frame(spark, n) for n in ("users", "auctions", "bids"))
            found = contradictions(users, auctions, bids)
            # The newest there is, which is later than `at`: a query in SQL has its own time.
            newest = spark.sql("SELECT max(id) FROM tidemark.bids").first()[0]
            print(
                f"at {at.as_of}: {users.count()} users, {auctions.count()} auctions, "
                f"{bids.count()} bids (by now up to bid {newest}); "
                + ", ".join(f"{count} {what}" for what, count in found.items()),
                flush=True,
            )
        if any(found.values()):
            sys.exit("the collections contradict each other")
    region.close()
    spark.stop()


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "demo.tidemark", int(given[1]) if len(given) > 1 else 5)
