"""What the demo types: a live auction, its tables, and the views that are kept over them.

    LOAD GENERATOR ──────────────────────────► users, auctions, bids        (plain)
    LOAD GENERATOR ─► sinks ─► Kafka ─► sources users, auctions, bids       (through Kafka)

    users, bids ─► bids_by_region
    auctions, bids ─► winning_bids ─► revenue_by_category
                                  └─► top_sellers
    linked_accounts ─► account_rings ─► suspicious_bidders ◄─ auctions, bids, clock

Either way the names and the columns are the same, so the views are, too. `linked_accounts` is for
the visitor to change. `clock` is for the one thing that a generator cannot know: it counts its
seconds from 2026-01-01, `behind` is how many to add for the time that it really is.
"""

from __future__ import annotations

TABLES = ("users", "auctions", "bids")

_GENERATOR = """FROM LOAD GENERATOR AUCTION
    (TICK INTERVAL '1s', USERS 300, AUCTIONS PER STEP 2, BIDS PER STEP 40, HISTORY 600, SEED 7)
  FOR ALL TABLES"""

PLAIN = (f"CREATE SOURCE IF NOT EXISTS auction {_GENERATOR}",)

_VALUES = {
    "users": "name text, region text",
    "auctions": "seller bigint, item text, category text, status text, end_time timestamptz",
    "bids": "auction_id bigint, buyer bigint, amount numeric(12, 2), bid_time timestamptz",
}


def through_kafka(bootstrap: str) -> tuple[str, ...]:
    """The same three relations, each written to a topic by a sink and read back by a source."""
    return (
        "CREATE SCHEMA IF NOT EXISTS house",
        f"CREATE SOURCE IF NOT EXISTS house.auction {_GENERATOR}",
        f"CREATE CONNECTION IF NOT EXISTS broker TO KAFKA (BROKER '{bootstrap}')",
        *(
            f"CREATE SINK IF NOT EXISTS house.{name}_out FROM house.{name}\n"
            f"  INTO KAFKA CONNECTION broker (TOPIC '{name}')\n"
            "  KEY (id) FORMAT JSON ENVELOPE UPSERT"
            for name in TABLES
        ),
        *(
            f"CREATE SOURCE IF NOT EXISTS {name} FROM KAFKA CONNECTION broker (TOPIC '{name}')\n"
            f"  KEY FORMAT JSON (id bigint) VALUE FORMAT JSON ({_VALUES[name]})\n"
            "  ENVELOPE UPSERT"
            for name in TABLES
        ),
    )


OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS linked_accounts (a bigint, b bigint)",
    "CREATE TABLE IF NOT EXISTS clock (behind bigint)",
)
FIRST_LINKS = "INSERT INTO linked_accounts VALUES (0, 1), (1, 2), (3, 4)"
NEWEST_BID = "SELECT floor(extract(epoch FROM max(bid_time)))::bigint FROM bids"

VIEWS = {
    "bids_by_region": """
  SELECT u.region, count(*) AS bids, sum(b.amount) AS total, max(b.amount) AS highest
  FROM bids b JOIN users u ON b.buyer = u.id
  GROUP BY u.region""",
    "winning_bids": """
  SELECT DISTINCT ON (a.id)
         a.id AS auction_id, a.item, a.category, a.seller, b.buyer, b.amount
  FROM auctions a JOIN bids b ON b.auction_id = a.id
  WHERE a.status = 'closed'
  ORDER BY a.id, b.amount DESC, b.id""",
    "revenue_by_category": """
  SELECT category, count(*) AS sold, sum(amount) AS revenue, avg(amount) AS mean
  FROM winning_bids
  GROUP BY category""",
    "top_sellers": """
  SELECT u.id, u.name, u.region, count(*) AS sold, sum(w.amount) AS revenue
  FROM winning_bids w JOIN users u ON w.seller = u.id
  GROUP BY u.id, u.name, u.region
  ORDER BY revenue DESC, u.id LIMIT 10""",
    # Accounts that belong together, however long the chain that links them.
    "account_rings": """
  WITH MUTUALLY RECURSIVE
    links (a bigint, b bigint) AS (
      SELECT a, b FROM linked_accounts UNION SELECT b, a FROM linked_accounts),
    reached (account bigint, other bigint) AS (
      SELECT a, a FROM links
      UNION SELECT r.account, l.b FROM reached r JOIN links l ON l.a = r.other)
  SELECT account, min(other) AS ring FROM reached GROUP BY account""",
    # Who has bid on an auction of an account of the same ring, within the last minute.
    "suspicious_bidders": """
  SELECT bidder.ring, u.id, u.name, count(*) AS bids, max(b.amount) AS highest
  FROM bids b
    JOIN auctions a ON b.auction_id = a.id
    JOIN account_rings bidder ON b.buyer = bidder.account
    JOIN account_rings seller ON a.seller = seller.account AND seller.ring = bidder.ring
    JOIN users u ON b.buyer = u.id
    CROSS JOIN clock c
  WHERE mz_now() <= b.bid_time + c.behind * interval '1 second' + interval '1 minute'
  GROUP BY bidder.ring, u.id, u.name""",
}


def create_view(name: str) -> str:
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS{VIEWS[name]}"
