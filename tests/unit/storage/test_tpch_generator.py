"""The TPC-H generator: cardinalities, references and distributions of the specification.

T1…T4 are the invariants that `tidemark.storage.generators.tpch` lists; T1 is checked for all
generators in test_generators.py. The predicates are those of the standard queries with their
validation parameters; at scale factor 0.01 each must let something through.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark.storage.generators import generator

REFRESH = 150
CURRENT = np.datetime64("1995-06-17")

Columns = dict[str, npt.NDArray]


def columns(table: pa.Table) -> Columns:
    """Columns as NumPy: amounts as whole cents, dates as days."""
    found = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_decimal(field.type):
            column = pc.multiply(column, Decimal(100)).cast(pa.int64())
        found[field.name] = column.to_numpy()
    return found


def after(steps: int, **options: str | int) -> dict[str, Columns]:
    """All columns of all tables after so many steps."""
    found = {}
    made = generator("tpch", options)
    for name, updates in made.updates(0, steps).items():
        names = [column.name for column in made.tables[name].columns]
        if steps > 1:
            updates = updates.group_by(names).aggregate([("_diff", "sum")])
            updates = updates.filter(pc.equal(updates["_diff_sum"], 1)).sort_by(
                [(key, "ascending") for key in made.tables[name].key]
            )
        found |= {name: columns(updates.select(names))}
    return found


@pytest.fixture(scope="module")
def loaded() -> dict[str, Columns]:
    return after(1)


@pytest.fixture(scope="module")
def refreshed() -> dict[str, Columns]:
    return after(8, refresh=REFRESH)


@pytest.fixture(params=["loaded", "refreshed"])
def tables(request: pytest.FixtureRequest) -> dict[str, Columns]:
    return request.getfixturevalue(request.param)


def like(values: npt.NDArray, pattern: str) -> npt.NDArray:
    return pc.match_like(pa.array(values, pa.string()), pattern).to_numpy(zero_copy_only=False)


def of_order(tables: dict[str, Columns], column: str) -> npt.NDArray:
    """A column of `orders` for each line."""
    orders = tables["orders"]
    return orders[column][np.searchsorted(orders["o_orderkey"], tables["lineitem"]["l_orderkey"])]


def of_part(tables: dict[str, Columns], column: str) -> npt.NDArray:
    return tables["part"][column][tables["lineitem"]["l_partkey"] - 1]


def rows(tables: dict[str, Columns], name: str) -> int:
    return len(next(iter(tables[name].values())))


def test_cardinalities(tables: dict[str, Columns]):
    lines = rows(tables, "lineitem")
    assert {name: rows(tables, name) for name in tables if name != "lineitem"} == {
        "region": 5,
        "nation": 25,
        "part": 2_000,
        "supplier": 100,
        "partsupp": 8_000,
        "customer": 1_500,
        "orders": 15_000,
    }
    assert 59_000 < lines < 61_000


def test_a_refresh_replaces_orders(loaded: dict[str, Columns], refreshed: dict[str, Columns]):
    gone = 7 * REFRESH
    old, new = (tables["orders"]["o_orderkey"] for tables in (loaded, refreshed))
    assert (old[gone:] == new[:-gone]).all()
    assert new[-gone:].min() > old.max()
    assert (new % 32 <= 8).all(), "keys are sparse"
    for name in ("part", "customer"):
        for column, values in loaded[name].items():
            assert (values == refreshed[name][column]).all(), column


def test_the_default_refresh_is_a_thousandth_of_the_orders():
    for scale_factor, orders in [("0.001", 1), ("0.01", 15)]:
        updates = generator("tpch", {"scale_factor": scale_factor}).updates(1, 2)["orders"]
        assert updates["_diff"].to_pylist() == [-1] * orders + [1] * orders


def test_references_hold(tables: dict[str, Columns]):
    """T2"""
    lines, pairs = tables["lineitem"], tables["partsupp"]
    assert set(lines["l_orderkey"]) == set(tables["orders"]["o_orderkey"])
    supplied = set(zip(pairs["ps_partkey"], pairs["ps_suppkey"], strict=True))
    assert len(supplied) == 8_000
    assert set(zip(lines["l_partkey"], lines["l_suppkey"], strict=True)) <= supplied
    assert set(pairs["ps_partkey"]) == set(tables["part"]["p_partkey"])
    assert set(pairs["ps_suppkey"]) == set(tables["supplier"]["s_suppkey"])
    assert set(tables["orders"]["o_custkey"]) <= set(tables["customer"]["c_custkey"])
    for name in ("customer", "supplier"):
        assert set(tables[name][f"{name[0]}_nationkey"]) <= set(tables["nation"]["n_nationkey"])
    assert set(tables["nation"]["n_regionkey"]) == set(tables["region"]["r_regionkey"])


@pytest.mark.parametrize("scale_factor", ["0.001", "0.0013", "0.0015", "0.005", "0.015", "0.023"])
def test_a_part_has_four_suppliers_at_any_scale(scale_factor: str):
    updates = generator("tpch", {"scale_factor": scale_factor}).updates(0, 1)["partsupp"]
    pairs = updates.group_by(["ps_partkey", "ps_suppkey"]).aggregate([])
    assert pairs.num_rows == updates.num_rows
    assert set(pairs["ps_suppkey"].to_pylist()) == set(
        range(1, int(10_000 * Decimal(scale_factor)) + 1)
    )


def test_orders_say_what_their_lines_say(tables: dict[str, Columns]):
    """T3"""
    lines, orders = tables["lineitem"], tables["orders"]
    at = np.searchsorted(orders["o_orderkey"], lines["l_orderkey"])
    net = lines["l_extendedprice"] * (100 - lines["l_discount"]) // 100
    total = np.bincount(at, net * (100 + lines["l_tax"]) // 100)
    assert (total == orders["o_totalprice"]).all()
    of_them, shipped = np.bincount(at), np.bincount(at, lines["l_linestatus"] == "F")
    expected = np.select([shipped == 0, shipped == of_them], ["O", "F"], "P")
    assert (expected == orders["o_orderstatus"]).all()
    assert set(of_them) == set(range(1, 8))


def test_one_customer_in_three_has_no_order(tables: dict[str, Columns]):
    """T4"""
    ordering = set(tables["orders"]["o_custkey"])
    assert not any(customer % 3 == 0 for customer in ordering)
    assert len(ordering) > 990


def test_lines_follow_their_order(tables: dict[str, Columns]):
    lines, ordered = tables["lineitem"], of_order(tables, "o_orderdate")
    day = np.timedelta64(1, "D")
    for late, low, high in [
        (lines["l_shipdate"] - ordered, 1, 121),
        (lines["l_commitdate"] - ordered, 30, 90),
        (lines["l_receiptdate"] - lines["l_shipdate"], 1, 30),
        (ordered - np.datetime64("1992-01-01"), 0, 2405),
    ]:
        assert (late.min() // day, late.max() // day) == (low, high)
    assert ((lines["l_linestatus"] == "O") == (lines["l_shipdate"] > CURRENT)).all()
    assert ((lines["l_returnflag"] == "N") == (lines["l_receiptdate"] > CURRENT)).all()
    assert set(lines["l_returnflag"]) == {"A", "N", "R"}
    price = of_part(tables, "p_retailprice")
    assert (lines["l_extendedprice"] * 100 == lines["l_quantity"] * price).all()


def test_prices_and_names(loaded: dict[str, Columns]):
    part = loaded["part"]
    key = part["p_partkey"]
    assert (part["p_retailprice"] == 90_000 + key // 10 % 20_001 + 100 * (key % 1000)).all()
    assert {len(set(name.split())) for name in part["p_name"]} == {5}
    assert len(set(part["p_type"])) == 150
    assert len(set(part["p_container"])) == 40
    assert len(set(part["p_brand"])) == 25
    assert all(m[-1] == b[-2] for m, b in zip(part["p_mfgr"], part["p_brand"], strict=True))
    customer = loaded["customer"]
    assert customer["c_name"][41] == "Customer#000000042"
    assert customer["c_acctbal"].min() < 0 < customer["c_acctbal"].max()
    for phone, nation in zip(customer["c_phone"], customer["c_nationkey"], strict=True):
        assert phone.startswith(f"{nation + 10}-")
        assert [len(part) for part in phone.split("-")] == [2, 3, 3, 4]


@pytest.mark.parametrize(
    ("table", "column", "low", "high"),
    [
        ("lineitem", "l_comment", 10, 43),
        ("orders", "o_comment", 19, 78),
        ("customer", "c_comment", 29, 116),
        ("customer", "c_address", 10, 40),
        ("partsupp", "ps_comment", 49, 198),
        ("part", "p_comment", 5, 22),
    ],
)
def test_lengths_of_text(loaded: dict[str, Columns], table: str, column: str, low: int, high: int):
    lengths = [len(value) for value in loaded[table][column]]
    assert (min(lengths), max(lengths)) == (low, high)


def test_rare_comments_are_rare():
    tables = generator("tpch", {"scale_factor": "0.2"}).updates(0, 1)
    special = like(tables["orders"]["o_comment"].to_numpy(), "%special%requests%")
    assert 0.005 < special.mean() < 0.02
    comments = tables["supplier"]["s_comment"].to_numpy()
    assert like(comments, "%Customer%Complaints%").sum() == 1
    assert like(comments, "%Customer%Recommends%").sum() == 1


def test_the_predicates_of_the_queries_let_something_through(tables: dict[str, Columns]):
    lines, part, nation = tables["lineitem"], tables["part"], tables["nation"]["n_name"]
    quantity, ship = lines["l_quantity"] // 100, lines["l_shipdate"]
    brand, container = of_part(tables, "p_brand"), of_part(tables, "p_container")
    size = of_part(tables, "p_size")
    from_ = nation[tables["supplier"]["s_nationkey"][lines["l_suppkey"] - 1]]
    to = nation[tables["customer"]["c_nationkey"][of_order(tables, "o_custkey") - 1]]
    late = lines["l_receiptdate"] > lines["l_commitdate"]

    def in_year(dates: npt.NDArray, year: int) -> npt.NDArray:
        return dates.astype("datetime64[Y]") == np.datetime64(str(year))

    assert (like(part["p_type"], "%BRASS") & (part["p_size"] == 15)).any(), "Q2"
    q6 = in_year(ship, 1994) & (abs(lines["l_discount"] - 6) <= 1) & (quantity < 24)
    assert 0.01 < q6.mean() < 0.03, "Q6"
    assert ((from_ == "FRANCE") & (to == "GERMANY") & in_year(ship, 1995)).any(), "Q7"
    assert like(part["p_name"], "%green%").any(), "Q9"
    q12 = np.isin(lines["l_shipmode"], ["MAIL", "SHIP"]) & late
    q12 &= (ship < lines["l_commitdate"]) & in_year(lines["l_receiptdate"], 1994)
    assert q12.any(), "Q12"
    assert like(part["p_type"], "PROMO%").any(), "Q14"
    assert ((brand == "Brand#23") & (container == "MED BOX") & (quantity < 5)).any(), "Q17"
    assert like(part["p_name"], "forest%").any(), "Q20"
    assert (late & (of_order(tables, "o_orderstatus") == "F") & (from_ == "SAUDI ARABIA")).any()
    assert np.isin([phone[:2] for phone in tables["customer"]["c_phone"]], ["13", "31"]).any()

    q19 = np.zeros(len(quantity), dtype=bool)
    for wanted, containers, first, largest in [
        ("Brand#12", "SM CASE, SM BOX, SM PACK, SM PKG", 1, 5),
        ("Brand#23", "MED BAG, MED BOX, MED PKG, MED PACK", 10, 10),
        ("Brand#34", "LG CASE, LG BOX, LG PACK, LG PKG", 20, 15),
    ]:
        q19 |= (
            (brand == wanted)
            & np.isin(container, containers.split(", "))
            & (first <= quantity)
            & (quantity <= first + 10)
            & (size <= largest)
        )
    q19 &= (lines["l_shipmode"] == "AIR") & (lines["l_shipinstruct"] == "DELIVER IN PERSON")
    assert q19.any(), "Q19"
    at = np.searchsorted(tables["orders"]["o_orderkey"], lines["l_orderkey"])
    assert (np.bincount(at, quantity) > 300).any(), "Q18"


def test_pinned_rows():
    """Existing sources generate their past again: these rows must never change."""
    updates = generator("tpch", {}).updates(0, 20)
    assert len(updates["lineitem"]) == 62_209
    assert pc.sum(updates["lineitem"]["l_extendedprice"]).as_py() == Decimal("2221377835.81")
    assert pc.sum(updates["orders"]["o_totalprice"]).as_py() == Decimal("2194549445.34")
    last = {n: tuple(t.slice(len(t) - 1).to_pylist()[0].values())[:-2] for n, t in updates.items()}
    assert last == {
        "region": (
            4,
            "MIDDLE EAST",
            "rts. slowly regular packages sublate carefully. quickly even",
        ),
        "nation": (
            24,
            "UNITED STATES",
            1,
            " the final packages. final deposits nag furiously ironic requests. special deposits"
            " around the ac",
        ),
        "part": (
            2000,
            "hot floral forest white deep",
            "Manufacturer#5",
            "Brand#54",
            "PROMO PLATED COPPER",
            8,
            "LG JAR",
            Decimal("902.00"),
            "sly ironic waters ",
        ),
        "supplier": (
            100,
            "Supplier#000000100",
            "hB1e qrRDPxXeHXx",
            1,
            "11-694-924-2775",
            Decimal("-739.18"),
            "re slyly. blithely silent deposits hagg",
        ),
        "partsupp": (
            2000,
            79,
            9253,
            Decimal("850.06"),
            " quickly ironic deposits sleep-- always regular asymptotes around the even, bold realms"
            " solve above the packages. even, bold re",
        ),
        "customer": (
            1500,
            "Customer#000001500",
            "5ErD87wI,S0o9gzaq3phHUTbyuvm4Yhy,DP66QU",
            18,
            "28-523-286-9011",
            Decimal("7346.15"),
            "BUILDING",
            " slyly even accounts sleep special, ironic accounts. deposits against the regular"
            " multipli",
        ),
        "orders": (
            61125,
            488,
            "F",
            Decimal("44284.27"),
            dt.date(1992, 8, 27),
            "5-LOW",
            "Clerk#000000002",
            0,
            " ideas. final pinto beans affix blithely always special",
        ),
        "lineitem": (
            61125,
            1293,
            50,
            1,
            Decimal("36.00"),
            Decimal("42994.44"),
            Decimal("0.00"),
            Decimal("0.03"),
            "A",
            "F",
            dt.date(1992, 9, 14),
            dt.date(1992, 11, 3),
            dt.date(1992, 9, 22),
            "DELIVER IN PERSON",
            "AIR",
            "olites haggle slyly among the bold, reg",
        ),
    }
