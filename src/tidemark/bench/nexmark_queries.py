"""The queries of Nexmark that need no window syntax of their own, over tables that may change.

`TABLES` are the columns of its three streams, `KEYS` what tells their rows apart; `QUERIES` maps
the benchmark's names to texts. Where it says "the first" or "the last", ties are settled, so that
everybody agrees. Left out are those about windows that move (q5, q7, q8, q11, q12), the side input
(q13) and the file sink (q10).
"""

from __future__ import annotations

TABLES: dict[str, dict[str, str]] = {
    "person": {"id": "bigint", "name": "text", "city": "text", "state": "text"},
    "auction": {
        "id": "bigint",
        "item_name": "text",
        "date_time": "timestamp",
        "expires": "timestamp",
        "seller": "bigint",
        "category": "bigint",
    },
    "bid": {
        "auction": "bigint",
        "bidder": "bigint",
        "price": "bigint",
        "channel": "text",
        "url": "text",
        "date_time": "timestamp",
    },
}
KEYS: dict[str, tuple[str, ...]] = {"person": ("id",), "auction": ("id",), "bid": ()}

QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 3 = 0",
    "q3": """
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
""",
    "q4": """
SELECT q.category, avg(q.final) AS average
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
) q
GROUP BY q.category
""",
    "q6": """
SELECT seller, id, avg(final) OVER (
         PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
       ) AS average
FROM (
  SELECT DISTINCT ON (a.id) a.id, a.seller, b.price AS final, b.date_time
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  ORDER BY a.id, b.price DESC, b.date_time
) q
""",
    "q9": """
SELECT DISTINCT ON (a.id)
       a.id, a.item_name, a.seller, a.category, b.bidder, b.price, b.date_time AS bid_time
FROM auction a JOIN bid b ON a.id = b.auction
WHERE b.date_time BETWEEN a.date_time AND a.expires
ORDER BY a.id, b.price DESC, b.date_time, b.bidder
""",
    "q14": """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN extract(hour FROM date_time) BETWEEN 8 AND 18 THEN 'day'
            WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20
            THEN 'night' ELSE 'other' END AS bid_time,
       length(url) - length(replace(url, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 100 AND 0.908 * price < 50000
""",
    "q15": """
SELECT date_trunc('day', date_time) AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 100) AS rank1_bids,
       count(*) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 100) AS rank1_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000) AS rank3_auctions
FROM bid
GROUP BY date_trunc('day', date_time)
""",
    "q16": """
SELECT channel, date_trunc('day', date_time) AS day, max(date_time) AS latest,
       count(*) AS total_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 100) AS rank2_bidders,
       count(DISTINCT auction) AS total_auctions
FROM bid
GROUP BY channel, date_trunc('day', date_time)
""",
    "q17": """
SELECT auction, date_trunc('day', date_time) AS day,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 100) AS rank1_bids,
       count(*) FILTER (WHERE price >= 100 AND price < 1000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price,
       avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, date_trunc('day', date_time)
""",
    "q18": """
SELECT DISTINCT ON (bidder, auction) auction, bidder, price, channel, date_time
FROM bid
ORDER BY bidder, auction, date_time DESC, price DESC, channel
""",
    "q19": """
SELECT * FROM (
  SELECT auction, bidder, price, date_time,
         row_number() OVER (
           PARTITION BY auction ORDER BY price DESC, date_time, bidder
         ) AS rank_number
  FROM bid
) q
WHERE rank_number <= 10
""",
    "q20": """
SELECT b.auction, b.bidder, b.price, b.channel, b.date_time AS bid_time,
       a.item_name, a.date_time, a.expires, a.seller
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
""",
    "q21": """
SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            ELSE substring(url, 24, 5) END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google') OR url LIKE '%channel_id=%'
""",
    "q22": """
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2
FROM bid
""",
}
