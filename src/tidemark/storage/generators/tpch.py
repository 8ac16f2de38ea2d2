"""TPC-H: the eight tables of the benchmark, loaded at step 0, and its refreshes from then on.

Orders are numbered 0, 1, 2, … for ever, and those that exist are a window that moves:

    step      0             1                     2
    exist     [0, N)        [R, N + R)            [2R, N + 2R)
    RF1       +[0, N)       +[N, N + R)           +[N + R, N + 2R)
    RF2                     −[0, R)               −[R, 2R)

Everything about an order and its lines is a function of (seed, number), so RF2 computes the rows it
deletes; lines come and go with their order. The other six tables are loaded once and stay.

Columns, keys, cardinalities, names and distributions follow the specification (revision 3, clause
4.2), so that the standard queries with their validation parameters have sensible answers. The rows
are not those of `dbgen`: published answers do not apply. Where we differ from the specification:

    order keys  of refreshes continue the sequence (8 of every 32 keys) instead of filling its gaps,
                so that no key is used twice
    partsupp    hops from a part's supplier to its next one are bounded, so that also with few
                suppliers (below scale factor 0.03) a part has four different ones
    supplier    at least one complaint and one recommendation, also below scale factor 0.2

Invariants, at the end of every step:
    T1  every row has count 1, and keys are unique
    T2  foreign keys hold; (l_partkey, l_suppkey) is in partsupp
    T3  o_totalprice and o_orderstatus are what the order's lines say
    T4  the number of orders is N; one customer in three has none
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum, auto
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.storage.generators import columns as c
from tidemark.storage.generators import tpch_text as text
from tidemark.storage.generators.columns import TableSpec
from tidemark.storage.generators.draws import Bits, Ints, below, coprime_stride, draw
from tidemark.storage.generators.options import Decimals, Limit, refused
from tidemark.types import BIGINT, DATE, INTEGER, TEXT, Column, SqlType, numeric

DEFAULT_SEED = 24
"""With this one every standard query has an answer at scale factor 0.01, though some look for one
row in 50,000."""

MAX_LINES = 7
SUPPLIERS_PER_PART = 4

_MONEY = numeric(15, 2)
_START = int(np.datetime64("1992-01-01", "D").astype(np.int64))
_CURRENT = int(np.datetime64("1995-06-17", "D").astype(np.int64))
# The last order is so early that its lines still arrive by the end of 1998.
_ORDER_DAYS = int(np.datetime64("1998-12-31", "D").astype(np.int64)) - 151 - _START + 1

_STATUSES = pa.array(["O", "F", "P"])
_RETURNS = pa.array(["R", "A", "N"])


def _spec(*key: str, **types: SqlType) -> TableSpec:
    return TableSpec(tuple(Column(n, t, nullable=False) for n, t in types.items()), key)


TABLES = {
    "region": _spec("r_regionkey", r_regionkey=BIGINT, r_name=TEXT, r_comment=TEXT),
    "nation": _spec(
        "n_nationkey", n_nationkey=BIGINT, n_name=TEXT, n_regionkey=BIGINT, n_comment=TEXT
    ),
    "part": _spec(
        "p_partkey",
        p_partkey=BIGINT,
        p_name=TEXT,
        p_mfgr=TEXT,
        p_brand=TEXT,
        p_type=TEXT,
        p_size=INTEGER,
        p_container=TEXT,
        p_retailprice=_MONEY,
        p_comment=TEXT,
    ),
    "supplier": _spec(
        "s_suppkey",
        s_suppkey=BIGINT,
        s_name=TEXT,
        s_address=TEXT,
        s_nationkey=BIGINT,
        s_phone=TEXT,
        s_acctbal=_MONEY,
        s_comment=TEXT,
    ),
    "partsupp": _spec(
        "ps_partkey",
        "ps_suppkey",
        ps_partkey=BIGINT,
        ps_suppkey=BIGINT,
        ps_availqty=INTEGER,
        ps_supplycost=_MONEY,
        ps_comment=TEXT,
    ),
    "customer": _spec(
        "c_custkey",
        c_custkey=BIGINT,
        c_name=TEXT,
        c_address=TEXT,
        c_nationkey=BIGINT,
        c_phone=TEXT,
        c_acctbal=_MONEY,
        c_mktsegment=TEXT,
        c_comment=TEXT,
    ),
    "orders": _spec(
        "o_orderkey",
        o_orderkey=BIGINT,
        o_custkey=BIGINT,
        o_orderstatus=TEXT,
        o_totalprice=_MONEY,
        o_orderdate=DATE,
        o_orderpriority=TEXT,
        o_clerk=TEXT,
        o_shippriority=INTEGER,
        o_comment=TEXT,
    ),
    "lineitem": _spec(
        "l_orderkey",
        "l_linenumber",
        l_orderkey=BIGINT,
        l_partkey=BIGINT,
        l_suppkey=BIGINT,
        l_linenumber=INTEGER,
        l_quantity=_MONEY,
        l_extendedprice=_MONEY,
        l_discount=_MONEY,
        l_tax=_MONEY,
        l_returnflag=TEXT,
        l_linestatus=TEXT,
        l_shipdate=DATE,
        l_commitdate=DATE,
        l_receiptdate=DATE,
        l_shipinstruct=TEXT,
        l_shipmode=TEXT,
        l_comment=TEXT,
    ),
}


class _Stream(IntEnum):
    """What a hash is for: one independent sequence of draws each. Append only."""

    REGION_COMMENT = 0
    NATION_COMMENT = auto()
    PART_NAME = auto()
    MANUFACTURER = auto()
    BRAND = auto()
    TYPE = auto()
    SIZE = auto()
    CONTAINER = auto()
    PART_COMMENT = auto()
    SUPPLIER_ADDRESS = auto()
    SUPPLIER_NATION = auto()
    SUPPLIER_PHONE = auto()
    SUPPLIER_BALANCE = auto()
    SUPPLIER_COMMENT = auto()
    SUPPLIER_FEEDBACK = auto()
    AVAILABLE = auto()
    SUPPLY_COST = auto()
    PARTSUPP_COMMENT = auto()
    CUSTOMER_ADDRESS = auto()
    CUSTOMER_NATION = auto()
    CUSTOMER_PHONE = auto()
    CUSTOMER_BALANCE = auto()
    SEGMENT = auto()
    CUSTOMER_COMMENT = auto()
    CUSTOMER = auto()
    ORDER_DATE = auto()
    PRIORITY = auto()
    CLERK = auto()
    ORDER_COMMENT = auto()
    LINES = auto()
    PART = auto()
    SUPPLIER = auto()
    QUANTITY = auto()
    DISCOUNT = auto()
    TAX = auto()
    SHIP = auto()
    COMMIT = auto()
    RECEIPT = auto()
    RETURN = auto()
    INSTRUCTION = auto()
    MODE = auto()
    LINE_COMMENT = auto()


class _Lines(NamedTuple):
    """The lines of some orders; `order` is the place of each line's order among them."""

    first: Ints
    order: Ints
    number: Ints
    id: Ints
    part: Ints
    quantity: Ints
    price: Ints
    discount: Ints
    tax: Ints
    ship: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpch:
    """The options; `generators.generator` checks them against LIMITS."""

    seed: int = DEFAULT_SEED
    scale_factor: Decimal = Decimal("0.01")
    refresh: int | None = None

    LIMITS: ClassVar[dict[str, Limit]] = {
        "seed": range(0, 2**63),
        "scale_factor": Decimals(Decimal("0.001"), Decimal(10)),
        "refresh": range(1, 10**7 + 1),
    }

    def __post_init__(self) -> None:
        if self.per_step > self.orders:
            raise refused(
                "refresh", self.refresh, f"it must be at most the number of orders, {self.orders}"
            )

    @property
    def suppliers(self) -> int:
        return int(10_000 * self.scale_factor)

    @property
    def parts(self) -> int:
        return int(200_000 * self.scale_factor)

    @property
    def customers(self) -> int:
        return int(150_000 * self.scale_factor)

    @property
    def orders(self) -> int:
        return int(1_500_000 * self.scale_factor)

    @property
    def per_step(self) -> int:
        """How many orders a refresh inserts, and how many it deletes."""
        return self.refresh or max(1, self.orders // 1000)

    @property
    def tables(self) -> dict[str, TableSpec]:
        return dict(TABLES)

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        c.check_steps(start, stop)
        loads = start == 0 < stop
        part = _keys(self.parts, loads)
        supplied = np.repeat(part, SUPPLIERS_PER_PART)
        place = np.tile(np.arange(SUPPLIERS_PER_PART), len(part))
        loaded = {
            "region": self._region_rows(_keys(len(text.REGIONS), loads) - 1),
            "nation": self._nation_rows(_keys(len(text.NATIONS), loads) - 1),
            "part": self._part_rows(part),
            "supplier": self._supplier_rows(_keys(self.suppliers, loads)),
            "partsupp": self._partsupp_rows(supplied, place),
            "customer": self._customer_rows(_keys(self.customers, loads)),
        }
        tables = {
            name: c.updates(TABLES[name], rows, 0 * ones, ones)
            for name, rows in loaded.items()
            for ones in [np.ones(len(rows[0]), dtype=np.int64)]
        }

        order, offset, diff = self._order_changes(start, stop)
        lines = self._lines(order)
        tables["orders"] = c.updates(TABLES["orders"], self._order_rows(order, lines), offset, diff)
        tables["lineitem"] = c.updates(
            TABLES["lineitem"],
            self._line_rows(order, lines),
            offset[lines.order],
            diff[lines.order],
        )
        return tables

    def _order_changes(self, start: int, stop: int) -> tuple[Ints, Ints, Ints]:
        """Numbers of orders with the step and the diff, in the order of the steps."""
        loaded = np.arange(self.orders if start == 0 < stop else 0)
        refreshed = c.ids(start - 1, stop - 1, self.per_step)
        step = 1 + refreshed // self.per_step
        order = np.concatenate([loaded, refreshed, refreshed + self.orders])
        offset = np.concatenate([0 * loaded, step, step])
        diff = np.repeat([+1, -1, +1], [len(loaded), len(step), len(step)])
        at = c.by_offset(offset)
        return order[at], offset[at], diff[at]

    # What is loaded once.

    def _region_rows(self, region: Ints) -> list[pa.Array]:
        return [
            pa.array(region),
            text.REGIONS.take(pa.array(region)),
            self._comment(_Stream.REGION_COMMENT, region, 31, 115),
        ]

    def _nation_rows(self, nation: Ints) -> list[pa.Array]:
        return [
            pa.array(nation),
            text.NATIONS.take(pa.array(nation)),
            pa.array(text.REGION_OF_NATION[nation]),
            self._comment(_Stream.NATION_COMMENT, nation, 31, 114),
        ]

    def _part_rows(self, part: Ints) -> list[pa.Array]:
        manufacturer = self._from_1(_Stream.MANUFACTURER, part, 5)
        brand = 10 * manufacturer + self._from_1(_Stream.BRAND, part, 5)
        return [
            pa.array(part),
            self._part_name(part),
            _numbered("Manufacturer", manufacturer, 1),
            _numbered("Brand", brand, 2),
            self._word(_Stream.TYPE, part, text.TYPES),
            _int32(self._from_1(_Stream.SIZE, part, 50)),
            self._word(_Stream.CONTAINER, part, text.CONTAINERS),
            c.cents(_retail_price(part), _MONEY),
            self._comment(_Stream.PART_COMMENT, part, 5, 22),
        ]

    def _part_name(self, part: Ints) -> pa.Array:
        """Five different colours: each is drawn from those that are left."""
        chosen = np.empty((len(part), 0), dtype=np.int64)
        for place in range(5):
            left = len(text.COLOURS) - place
            colour = self._from_0(_Stream.PART_NAME, 8 * part + place, left)
            for taken in np.sort(chosen, axis=1).T:
                colour = colour + (colour >= taken)
            chosen = np.column_stack([chosen, colour])
        words = [text.COLOURS.take(pa.array(colour)) for colour in chosen.T]
        return pc.binary_join_element_wise(*words, " ")

    def _supplier_rows(self, supplier: Ints) -> list[pa.Array]:
        nation = self._from_0(_Stream.SUPPLIER_NATION, supplier, len(text.NATIONS))
        return [
            pa.array(supplier),
            _numbered("Supplier", supplier, 9),
            self._address(_Stream.SUPPLIER_ADDRESS, supplier),
            pa.array(nation),
            self._phone(_Stream.SUPPLIER_PHONE, supplier, nation),
            self._balance(_Stream.SUPPLIER_BALANCE, supplier),
            self._feedback(supplier),
        ]

    def _feedback(self, supplier: Ints) -> pa.Array:
        """Comments, 5 in 10,000 of them with complaints and as many with recommendations."""
        comment = self._comment(_Stream.SUPPLIER_COMMENT, supplier, 25, 100).combine_chunks()
        shift = below(self._draw(_Stream.SUPPLIER_FEEDBACK), self.suppliers)
        rank = (supplier * coprime_stride(self.suppliers) + shift) % self.suppliers
        each = max(1, self.suppliers // 2000)
        start = pc.utf8_slice_codeunits(comment, 0, 80)
        return pc.choose(
            pa.array(np.minimum(rank // each, 2)),
            pc.binary_join_element_wise("Customer", start, "Complaints", " "),
            pc.binary_join_element_wise("Customer", start, "Recommends", " "),
            comment,
        )

    def _partsupp_rows(self, part: Ints, place: Ints) -> list[pa.Array]:
        id_ = part * SUPPLIERS_PER_PART + place
        return [
            pa.array(part),
            pa.array(self._supplier_of(part, place)),
            _int32(self._from_1(_Stream.AVAILABLE, id_, 9999)),
            c.cents(100 + self._from_0(_Stream.SUPPLY_COST, id_, 99_901), _MONEY),
            self._comment(_Stream.PARTSUPP_COMMENT, id_, 49, 198),
        ]

    def _supplier_of(self, part: Ints, place: Ints) -> Ints:
        # Three hops are less than once around, so the four suppliers are different.
        shortest, longest = self.suppliers // 4, (self.suppliers - 1) // 3
        hop = shortest + (part - 1) // self.suppliers % (longest - shortest + 1)
        return (part + place * hop) % self.suppliers + 1

    def _customer_rows(self, customer: Ints) -> list[pa.Array]:
        nation = self._from_0(_Stream.CUSTOMER_NATION, customer, len(text.NATIONS))
        return [
            pa.array(customer),
            _numbered("Customer", customer, 9),
            self._address(_Stream.CUSTOMER_ADDRESS, customer),
            pa.array(nation),
            self._phone(_Stream.CUSTOMER_PHONE, customer, nation),
            self._balance(_Stream.CUSTOMER_BALANCE, customer),
            self._word(_Stream.SEGMENT, customer, text.SEGMENTS),
            self._comment(_Stream.CUSTOMER_COMMENT, customer, 29, 116),
        ]

    # What is refreshed.

    def _lines(self, order: Ints) -> _Lines:
        count = self._from_1(_Stream.LINES, order, MAX_LINES)
        first = np.cumsum(count) - count
        at = np.repeat(np.arange(len(order)), count)
        number = np.arange(len(at)) - first[at] + 1
        id_ = order[at] * (MAX_LINES + 1) + number
        part = self._from_1(_Stream.PART, id_, self.parts)
        quantity = self._from_1(_Stream.QUANTITY, id_, 50)
        return _Lines(
            first=first,
            order=at,
            number=number,
            id=id_,
            part=part,
            quantity=quantity,
            price=quantity * _retail_price(part),
            discount=self._from_0(_Stream.DISCOUNT, id_, 11),
            tax=self._from_0(_Stream.TAX, id_, 9),
            ship=self._order_date(order)[at] + self._from_1(_Stream.SHIP, id_, 121),
        )

    def _order_rows(self, order: Ints, lines: _Lines) -> list[pa.Array]:
        shipped = np.logical_and.reduceat(lines.ship <= _CURRENT, lines.first)
        waiting = np.logical_and.reduceat(lines.ship > _CURRENT, lines.first)
        charged = lines.price * (100 - lines.discount) // 100 * (100 + lines.tax) // 100
        # Numbers that are no multiple of 3: the other customers never order.
        pair, odd = np.divmod(
            self._from_0(_Stream.CUSTOMER, order, self.customers - self.customers // 3), 2
        )
        clerks = max(1, int(1000 * self.scale_factor))
        return [
            pa.array(_order_key(order)),
            pa.array(3 * pair + odd + 1),
            _STATUSES.take(pa.array(np.select([waiting, shipped], [0, 1], 2))),
            c.cents(np.add.reduceat(charged, lines.first), _MONEY),
            _dates(self._order_date(order)),
            self._word(_Stream.PRIORITY, order, text.PRIORITIES),
            _numbered("Clerk", self._from_1(_Stream.CLERK, order, clerks), 9),
            _int32(0 * order),
            self._comment(_Stream.ORDER_COMMENT, order, 19, 78),
        ]

    def _line_rows(self, order: Ints, lines: _Lines) -> list[pa.Array]:
        id_ = lines.id
        place = self._from_0(_Stream.SUPPLIER, id_, SUPPLIERS_PER_PART)
        commit = self._order_date(order)[lines.order] + 29 + self._from_1(_Stream.COMMIT, id_, 61)
        receipt = lines.ship + self._from_1(_Stream.RECEIPT, id_, 30)
        returned = np.where(receipt <= _CURRENT, self._from_0(_Stream.RETURN, id_, 2), 2)
        return [
            pa.array(_order_key(order)[lines.order]),
            pa.array(lines.part),
            pa.array(self._supplier_of(lines.part, place)),
            _int32(lines.number),
            c.cents(100 * lines.quantity, _MONEY),
            c.cents(lines.price, _MONEY),
            c.cents(lines.discount, _MONEY),
            c.cents(lines.tax, _MONEY),
            _RETURNS.take(pa.array(returned)),
            _STATUSES.take(pa.array((lines.ship <= _CURRENT).astype(np.int64))),
            _dates(lines.ship),
            _dates(commit),
            _dates(receipt),
            self._word(_Stream.INSTRUCTION, id_, text.INSTRUCTIONS),
            self._word(_Stream.MODE, id_, text.MODES),
            self._comment(_Stream.LINE_COMMENT, id_, 10, 43),
        ]

    def _order_date(self, order: Ints) -> Ints:
        return _START + self._from_0(_Stream.ORDER_DATE, order, _ORDER_DAYS)

    # Draws.

    def _draw(self, stream: _Stream, *key: Ints) -> Bits:
        return draw(self.seed, stream, *key)

    def _from_0(self, stream: _Stream, key: Ints, count: int) -> Ints:
        return below(self._draw(stream, key), count)

    def _from_1(self, stream: _Stream, key: Ints, count: int) -> Ints:
        return 1 + self._from_0(stream, key, count)

    def _word(self, stream: _Stream, key: Ints, words: pa.Array) -> pa.Array:
        return words.take(pa.array(self._from_0(stream, key, len(words))))

    def _comment(self, stream: _Stream, key: Ints, shortest: int, longest: int) -> pa.ChunkedArray:
        return _cut(text.prose(), self._draw(stream, key), shortest, longest)

    def _address(self, stream: _Stream, key: Ints) -> pa.ChunkedArray:
        return _cut(text.scribble(), self._draw(stream, key), 10, 40)

    def _phone(self, stream: _Stream, key: Ints, nation: Ints) -> pa.Array:
        bits = self._draw(stream, key)
        area, exchange = np.divmod(below(bits, 900 * 900), 900)
        line = below(_low(bits), 9000)
        parts = [10 + nation, 100 + area, 100 + exchange, 1000 + line]
        return pc.binary_join_element_wise(*(pa.array(p).cast(pa.string()) for p in parts), "-")

    def _balance(self, stream: _Stream, key: Ints) -> pa.Array:
        return c.cents(self._from_0(stream, key, 1_099_999) - 99_999, _MONEY)


def _keys(count: int, loads: bool) -> Ints:
    return np.arange(1, count + 1 if loads else 1)


def _order_key(order: Ints) -> Ints:
    """Keys are sparse: the first 8 of every 32."""
    return order // 8 * 32 + order % 8 + 1


def _retail_price(part: Ints) -> Ints:
    return 90_000 + part // 10 % 20_001 + 100 * (part % 1000)


def _cut(pool: np.ndarray, bits: Bits, shortest: int, longest: int) -> pa.ChunkedArray:
    """Text of a random length from a random place."""
    length = shortest + below(bits, longest - shortest + 1)
    return c.substrings(pool, below(_low(bits), len(pool) - longest), length)


def _low(bits: Bits) -> Bits:
    """The half of the bits that `below` does not use, for a second draw."""
    return bits << np.uint64(32)


def _numbered(name: str, number: Ints, digits: int) -> pa.Array:
    padded = pc.utf8_lpad(pa.array(number).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(name, padded, "#")


def _int32(values: Ints) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _dates(days: Ints) -> pa.Array:
    return _int32(days).cast(pa.date32())
