"""Read two collections at one timestamp with plain Spark, and check an invariant between them.

    make demo                                              # in one terminal
    .venv/bin/python examples/joint_read.py demo.tidemark  # in another

Every bid belongs to an auction that exists at the same time. Read one after the other, the two
tables would sooner or later contradict each other, because auctions and their bids come and go
all the time; read at one timestamp they never do.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import tidemark


def main(data: str, rounds: int = 5) -> None:
    spark = (
        SparkSession.builder.appName("joint-read")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    with tidemark.open_region(data) as region:
        for _ in range(rounds):
            with region.at("auctions", "bids") as at:
                auctions, bids = at.frame(spark, "auctions"), at.frame(spark, "bids")
                orphans = bids.join(auctions, bids.auction_id == auctions.id, "left_anti").count()
                print(
                    f"at {at.as_of}: {auctions.count()} auctions, {bids.count()} bids, "
                    f"{orphans} bids without an auction",
                    flush=True,
                )
                if orphans:
                    sys.exit("the two collections contradict each other")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo.tidemark")
