"""The relations of information_schema: the same catalog, as the SQL standard has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.control.pg.columns import Row, relation
from tidemark.control.pg.definitions import view_query
from tidemark.control.pg.names import Listed, listed
from tidemark.control.pg.tables import ROLE
from tidemark.control.pg.types import BY_OID
from tidemark.types import Column

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen

_SCHEMA = "information_schema"
_BITS = {"smallint": 16, "integer": 32, "bigint": 64, "double precision": 53}


_TABLE_TYPES = {"r": "BASE TABLE", "v": "VIEW", "m": "MATERIALIZED VIEW"}


def _readable(seen: Seen) -> Iterator[Listed]:
    """PostgreSQL leaves materialized views out; tools that look here would then not see them."""
    return (each for each in listed(seen) if each.kind in "rvm")


def _tables(seen: Seen) -> Iterator[Row]:
    for each in _readable(seen):
        yield {
            "table_schema": each.schema,
            "table_name": each.name,
            "table_type": _TABLE_TYPES[each.kind],
            "is_insertable_into": _yes_no(each.item is not None and each.item.kind == "table"),
        }


def _views(seen: Seen) -> Iterator[Row]:
    for each in _readable(seen):
        if each.kind == "v":
            definition = view_query(each.item) if each.item is not None else None
            yield {
                "table_schema": each.schema,
                "table_name": each.name,
                "view_definition": definition,
            }


def _columns(seen: Seen) -> Iterator[Row]:
    for each in _readable(seen):
        for position, column in enumerate(each.columns, 1):
            yield {
                "table_schema": each.schema,
                "table_name": each.name,
                "column_name": column.name,
                "ordinal_position": position,
                "column_default": each.default(column),
                "is_nullable": _yes_no(column.nullable),
                "dtd_identifier": str(position),
                "is_updatable": _yes_no(each.item is not None and each.item.kind == "table"),
                **_typed(column),
            }


def _typed(column: Column) -> Row:
    type_ = column.type
    known = BY_OID[type_.oid]
    found: Row = {
        "data_type": "ARRAY" if type_.element is not None else known.sql,
        "udt_name": known.name,
    }
    if known.name in ("timestamp", "timestamptz"):
        found["datetime_precision"] = 6
    elif known.name == "date":
        found["datetime_precision"] = 0
    elif type_.name in _BITS:
        found |= {"numeric_precision": _BITS[type_.name], "numeric_precision_radix": 2}
        if type_.is_integer:
            found["numeric_scale"] = 0
    elif type_.name == "numeric":
        found["numeric_precision_radix"] = 10
        found |= {"numeric_precision": type_.precision, "numeric_scale": type_.scale}
    return found


def _yes_no(flag: bool) -> str:
    return "YES" if flag else "NO"


_TABLE = "table_catalog name=@database, table_schema name, table_name name"
_CONSTRAINT = "constraint_catalog name, constraint_schema name, constraint_name name"

RELATIONS = (
    relation(
        _SCHEMA,
        "tables",
        f"{_TABLE}, table_type text, self_referencing_column_name name, reference_generation text,"
        " user_defined_type_catalog name, user_defined_type_schema name,"
        " user_defined_type_name name, is_insertable_into text, is_typed text=NO,"
        " commit_action text",
        _tables,
    ),
    relation(
        _SCHEMA,
        "columns",
        f"{_TABLE}, column_name name, ordinal_position int4, column_default text,"
        " is_nullable text, data_type text, character_maximum_length int4,"
        " character_octet_length int4, numeric_precision int4, numeric_precision_radix int4,"
        " numeric_scale int4, datetime_precision int4, interval_type text,"
        " interval_precision int4, character_set_catalog name, character_set_schema name,"
        " character_set_name name, collation_catalog name, collation_schema name,"
        " collation_name name, domain_catalog name, domain_schema name, domain_name name,"
        " udt_catalog name=@database, udt_schema name=pg_catalog, udt_name name,"
        " scope_catalog name, scope_schema name, scope_name name, maximum_cardinality int4,"
        " dtd_identifier name, is_self_referencing text=NO, is_identity text=NO,"
        " identity_generation text, identity_start text, identity_increment text,"
        " identity_maximum text, identity_minimum text, identity_cycle text=NO,"
        " is_generated text=NEVER, generation_expression text, is_updatable text",
        _columns,
    ),
    relation(
        _SCHEMA,
        "views",
        f"{_TABLE}, view_definition text, check_option text=NONE, is_updatable text=NO,"
        " is_insertable_into text=NO, is_trigger_updatable text=NO, is_trigger_deletable text=NO,"
        " is_trigger_insertable_into text=NO",
        _views,
    ),
    relation(
        _SCHEMA,
        "schemata",
        f"catalog_name name=@database, schema_name name, schema_owner name={ROLE},"
        " default_character_set_catalog name, default_character_set_schema name,"
        " default_character_set_name name, sql_path text",
        lambda seen: [{"schema_name": name} for name in seen.namespaces],
    ),
    relation(
        _SCHEMA,
        "character_sets",
        "character_set_catalog name, character_set_schema name, character_set_name name=UTF8,"
        " character_repertoire name=UCS, form_of_use name=UTF8,"
        " default_collate_catalog name=@database, default_collate_schema name=pg_catalog,"
        " default_collate_name name=default",
        lambda _: [{}],
    ),
    relation(
        _SCHEMA,
        "information_schema_catalog_name",
        "catalog_name name=@database",
        lambda _: [{}],
    ),
    relation(
        _SCHEMA,
        "enabled_roles",
        "role_name name",
        lambda each: [{"role_name": name} for name in each.catalog.roles.by_name],
    ),
    relation(
        _SCHEMA,
        "table_constraints",
        f"{_CONSTRAINT}, table_catalog name, table_schema name, table_name name,"
        " constraint_type text, is_deferrable text, initially_deferred text, enforced text,"
        " nulls_distinct text",
    ),
    relation(
        _SCHEMA,
        "key_column_usage",
        f"{_CONSTRAINT}, table_catalog name, table_schema name, table_name name,"
        " column_name name, ordinal_position int4, position_in_unique_constraint int4",
    ),
    relation(
        _SCHEMA,
        "constraint_column_usage",
        f"table_catalog name, table_schema name, table_name name, column_name name, {_CONSTRAINT}",
    ),
    relation(
        _SCHEMA,
        "referential_constraints",
        f"{_CONSTRAINT}, unique_constraint_catalog name, unique_constraint_schema name,"
        " unique_constraint_name name, match_option text, update_rule text, delete_rule text",
    ),
    relation(_SCHEMA, "check_constraints", f"{_CONSTRAINT}, check_clause text"),
    relation(
        _SCHEMA,
        "sequences",
        "sequence_catalog name, sequence_schema name, sequence_name name, data_type text,"
        " numeric_precision int4, numeric_precision_radix int4, numeric_scale int4,"
        " start_value text, minimum_value text, maximum_value text, increment text,"
        " cycle_option text",
    ),
    relation(
        _SCHEMA,
        "routines",
        "specific_catalog name, specific_schema name, specific_name name, routine_catalog name,"
        " routine_schema name, routine_name name, routine_type text, data_type text,"
        " routine_definition text, external_language text",
    ),
    relation(
        _SCHEMA,
        "triggers",
        "trigger_catalog name, trigger_schema name, trigger_name name, event_manipulation text,"
        " event_object_catalog name, event_object_schema name, event_object_table name,"
        " action_order int4, action_condition text, action_statement text,"
        " action_orientation text, action_timing text",
    ),
)
