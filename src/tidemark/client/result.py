"""What a statement answered: a table, as Arrow, pandas, Polars, Spark or plain Python.

The whole answer has been received when there is a `Result`; it holds no connection. Conversions
are made when they are asked for. Shown in a notebook it is an HTML table of its first rows, in a
terminal a text one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.client import show
from tidemark.client.values import arrow_schema, python_values, record_batch
from tidemark.errors import InvalidUsage
from tidemark.types import Column

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

CHUNK_ROWS = 65_536


class Result:
    """Rows and their columns; `status` is the server's word for it, like `INSERT 0 3`.

    A statement that answers no rows has no `columns`; `affected` says how many rows one has written.
    """

    def __init__(self, columns: tuple[Column, ...], rows: list[tuple], status: str, count: int):
        self.columns = columns
        self.status = status
        wrote = not columns or status.startswith(("INSERT", "UPDATE", "DELETE"))
        self.affected = count if wrote else 0
        self._texts = rows

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def arrow(self) -> pa.Table:
        """An Arrow table; `numeric` is a decimal, `jsonb` its text, an array a list."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Table:
        cut = range(0, len(self._texts), CHUNK_ROWS)
        batches = [record_batch(self._texts[at : at + CHUNK_ROWS], self.columns) for at in cut]
        return pa.Table.from_batches(batches, schema=arrow_schema(self.columns))

    def pandas(self) -> pandas.DataFrame:
        return self.arrow().to_pandas()

    def polars(self) -> polars.DataFrame:
        """A Polars data frame; Polars is not one of Tidemark's own requirements."""
        try:
            import polars
        except ImportError as error:
            raise InvalidUsage("Polars is not installed", hint="pip install polars") from error
        found = polars.from_arrow(self.arrow())
        assert isinstance(found, polars.DataFrame)
        return found

    def spark(self, spark: SparkSession) -> DataFrame:
        """A DataFrame of these rows. To read collections where they lie, see `tidemark.attach`."""
        return spark.createDataFrame(self.arrow())

    def rows(self) -> list[tuple]:
        """Tuples of Python values, as psycopg gives them."""
        if not self.columns:
            return [() for _ in self._texts]
        cells = list(zip(*self._texts, strict=True)) or [()] * len(self.columns)
        typed = zip(cells, self.columns, strict=True)
        return list(zip(*(python_values(cell, column.type) for cell, column in typed), strict=True))

    def dicts(self) -> list[dict[str, object]]:
        """The same, each row by the names of its columns."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows()]

    def one(self) -> tuple:
        """The only row there is; another number of rows is an error."""
        if len(self) != 1:
            raise InvalidUsage(f"the answer has {len(self)} rows, not one")
        return self.rows()[0]

    def scalar(self) -> object:
        """The only value of the only row."""
        row = self.one()
        if len(row) != 1:
            raise InvalidUsage(f"the answer has {len(row)} columns, not one")
        return row[0]

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[tuple]:
        return iter(self.rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """So that DuckDB, Polars, pandas and others take a result as it is."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def texts(self) -> list[tuple]:
        """The values as the server prints them, for those who only show them; an array is a list."""
        return self._texts

    def __repr__(self) -> str:
        if not self.columns:
            return self.status
        return show.plain(self.columns, self._texts)

    def _repr_html_(self) -> str:
        if not self.columns:
            return f"<p>{show.escape(self.status)}</p>"
        return show.html(self.columns, self._texts)
