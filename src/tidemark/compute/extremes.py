"""Which values can be the least or the greatest of their group at some time of an interval.

Before the interval a group's values lie in an arrangement, in order. Of these one more than the
changes delete is enough: the last of them survives. Many changes look for a survivor nearer to the
end first; what lies behind it cannot be an extreme at any time, and is left out.

    before   9 8 7 6 5 ...     deleted: 9, 7     inserted: 8, 3
    max      8 survives, so 9 and the two 8 are all that matter: neither 7 nor 3 ever does
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidemark.compute.delta import PRIOR
from tidemark.compute.run import COUNT
from tidemark.persist import DIFF
from tidemark.persist.arrange import Arrangement

MANY = 10_000
"""Changes from which on it pays to look for those that matter."""

FEW = 64
"""Values at the end of a group among which a survivor is looked for first."""


def values_that_matter(
    arrangement: Arrangement,
    ends: tuple[str, ...],
    touched: pa.Table,
    lost: np.ndarray,
    changed: pa.Table,
    prior: int,
) -> pa.Table:
    """Of each group that is `touched`, values and how their number changes: keys, v, _t, _d.

    `lost` is how many of its changes take something away; `changed` are those of the values.
    """
    keys = changed.column_names[:-3]
    if changed.num_rows < MANY or not keys or not _is_comparable(changed, keys):
        heads = [arrangement.heads(touched, lost + 1, prior, last=end == "hi") for end in ends]
        return pa.concat_tables([_placed(_once(heads), changed.schema), changed])
    found, kept = [], []
    for end in ends:
        heads = _down_to_survivors(arrangement, end, touched, lost, changed, prior)
        limits = _limits(heads, changed, keys, end)
        found.append(heads.take(_beyond(heads, limits, keys, end)))
        kept.append(_beyond(changed, limits, keys, end))
    matter = np.unique(np.concatenate(kept))
    return pa.concat_tables([_placed(_once(found), changed.schema), changed.take(matter)])


def _down_to_survivors(
    arrangement: Arrangement,
    end: str,
    touched: pa.Table,
    lost: np.ndarray,
    changed: pa.Table,
    prior: int,
) -> pa.Table:
    keys, last = touched.column_names, end == "hi"
    few = arrangement.heads(touched, np.minimum(lost + 1, FEW), prior, last=last)
    groups = touched.append_column("lost", pa.array(lost))
    groups = groups.join(_limits(few, changed, keys, end), keys, join_type="left outer")
    rest = groups.filter(
        pc.and_(pc.is_null(groups["limit"]), pc.greater_equal(groups["lost"], FEW))
    )
    if not rest.num_rows:
        return few
    more = arrangement.heads(rest.select(keys), rest["lost"].to_numpy() + 1, prior, last=last)
    return _once([few, more])


def _limits(heads: pa.Table, changed: pa.Table, keys: list[str], end: str) -> pa.Table:
    """For each group (keys) the extreme value that is there all the time: `limit`."""
    names = [*keys, "v", COUNT]
    went = changed.filter(pc.less(changed[COUNT], 0)).select(names)
    left = pa.concat_tables([heads.select([*keys, "v", DIFF]).rename_columns(names), went])
    left = left.group_by([*keys, "v"], use_threads=False).aggregate([(COUNT, "sum")])
    left = left.filter(pc.greater(left[f"{COUNT}_sum"], 0))
    choose = "max" if end == "hi" else "min"
    found = left.group_by(keys, use_threads=False).aggregate([("v", choose)])
    return found.rename_columns([*keys, "limit"])


def _beyond(rows: pa.Table, limits: pa.Table, keys: list[str], end: str) -> np.ndarray:
    """Where values are as extreme as their group's limit; all of a group that has none."""
    places = rows.select([*keys, "v"]).append_column("at", pa.array(np.arange(rows.num_rows)))
    places = places.join(limits, keys, join_type="left outer")
    beyond = pc.greater_equal if end == "hi" else pc.less_equal
    chosen = pc.fill_null(beyond(places["v"], places["limit"]), True)
    return places["at"].filter(chosen).to_numpy()


def _is_comparable(changed: pa.Table, keys: list[str]) -> bool:
    """Whether Arrow compares these as SQL does: not floats, which may be NaN."""
    types = [changed.schema.field(name).type for name in (*keys, "v")]
    plain = (kinds.is_integer, kinds.is_decimal, kinds.is_string, kinds.is_date, kinds.is_timestamp)
    return all(any(is_one(type_) for is_one in plain) for type_ in types)


def _once(tables: list[pa.Table]) -> pa.Table:
    """What was found several times is there only once."""
    if len(tables) == 1:
        return tables[0]
    both = pa.concat_tables(tables)
    return both.group_by(both.column_names, use_threads=False).aggregate([])


def _placed(heads: pa.Table, schema: pa.Schema) -> pa.Table:
    """What was there before the interval, as changes of `schema`."""
    *row, count = heads.columns
    rank = pa.repeat(pa.scalar(PRIOR, pa.int32()), heads.num_rows)
    return pa.table([*row, rank, count], names=schema.names).cast(schema)
