"""Statements about clusters and replicas: what each text means, and what is refused."""

from __future__ import annotations

import pytest

from tidemark.control import statements as s
from tidemark.control.parse import parse
from tidemark.errors import SqlError

PARSED: dict[str, s.Statement] = {
    "CREATE CLUSTER c": s.CreateCluster("c", (), False),
    "create cluster if not exists C (replication factor = 2, Memory '4g')": s.CreateCluster(
        "c", (("replication factor", "2"), ("memory", "4g")), True
    ),
    "CREATE CLUSTER c REPLICATION FACTOR 2, SPARK MASTER = 'spark://h:1'": s.CreateCluster(
        "c", (("replication factor", "2"), ("spark master", "spark://h:1")), False
    ),
    "CREATE CLUSTER c SIZE = 'small'": s.CreateCluster("c", (("size", "small"),), False),
    'CREATE CLUSTER "C x" ()': s.CreateCluster("C x", (), False),
    "CREATE CLUSTER REPLICA c.r2": s.CreateReplica("c", "r2", (), False),
    "CREATE CLUSTER REPLICA IF NOT EXISTS c.r2 WITH (READ ONLY)": s.CreateReplica(
        "c", "r2", (("read only", "true"),), True
    ),
    "CREATE CLUSTER REPLICA c.r2 (READ ONLY = false, MEMORY = '1g')": s.CreateReplica(
        "c", "r2", (("read only", "false"), ("memory", "1g")), False
    ),
    "ALTER CLUSTER c SET (REPLICATION FACTOR = 0)": s.AlterCluster(
        "c", (("replication factor", "0"),)
    ),
    "ALTER CLUSTER c SET REPLICATION FACTOR 3": s.AlterCluster("c", (("replication factor", "3"),)),
    "ALTER CLUSTER REPLICA c.r2 SET (READ ONLY = false)": s.AlterReplica(
        "c", "r2", (("read only", "false"),)
    ),
    "DROP CLUSTER a, b": s.DropClusters(("a", "b"), False, False),
    "DROP CLUSTER IF EXISTS a CASCADE": s.DropClusters(("a",), True, True),
    "DROP CLUSTER a RESTRICT": s.DropClusters(("a",), False, False),
    "DROP CLUSTER REPLICA IF EXISTS a.r1, b.r2": s.DropReplicas((("a", "r1"), ("b", "r2")), True),
    "SHOW CLUSTERS": s.ShowObjects("clusters"),
    "SHOW CLUSTER REPLICAS": s.ShowObjects("cluster replicas"),
    "SHOW CLUSTER": s.ShowVariable("cluster"),
    "SET cluster TO c": s.SetVariable("cluster", "c"),
}


@pytest.mark.parametrize("sql", PARSED)
def test_parsed(sql: str) -> None:
    assert parse(sql) == PARSED[sql]


REFUSED = {
    "CREATE CLUSTER": ("42601", "syntax error at end of input"),
    "CREATE CLUSTER c MEMORY '1g' SIZE": ("42601", 'syntax error at or near "SIZE"'),
    "CREATE CLUSTER c = 3": ("42601", "syntax error"),
    "CREATE CLUSTER c REPLICAS (r1 (SIZE 's'))": ("0A000", "REPLICAS (...) is not supported"),
    "CREATE CLUSTER REPLICA r2": ("42601", 'a replica is named with its cluster, not "r2"'),
    "CREATE CLUSTER REPLICA a.b.r2": ("42601", "a replica is named with its cluster"),
    "ALTER CLUSTER c": ("42601", "syntax error at end of input"),
    "ALTER CLUSTER c RENAME TO d": ("0A000", "ALTER CLUSTER ... RENAME is not supported"),
    "ALTER TABLE t ADD COLUMN a int": ("0A000", "this ALTER TABLE is not supported"),
    "DROP CLUSTER a b": ("42601", 'syntax error at or near "b"'),
    "CLUSTER t": ("0A000", "CLUSTER is not supported"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(sql: str) -> None:
    sqlstate, message = REFUSED[sql]
    with pytest.raises(SqlError) as raised:
        parse(sql)
    assert raised.value.sqlstate == sqlstate
    assert message in raised.value.message
