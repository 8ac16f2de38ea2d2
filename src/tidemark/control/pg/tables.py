"""The relations of pg_catalog that Tidemark has something to say about, as in PostgreSQL 16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.control.pg.columns import Row, relation
from tidemark.control.pg.definitions import index_statement, view_query
from tidemark.control.pg.names import (
    OWNER,
    Listed,
    listed,
    listed_items,
    oid_of,
)
from tidemark.control.pg.roles import database_row, owned, owner_name, schema_row
from tidemark.control.pg.types import (
    ARRAY_IN,
    ARRAY_RECV,
    CSTRING,
    DEFAULT_COLLATION,
    INTERNAL,
    TEXTUAL,
    TYPES,
    modifier,
)
from tidemark.control.relation import SystemRelation

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen

ROLE = "tidemark"
HEAP, BTREE = 2, 403
TABLESPACE = 1663
_FIRST_DEFAULT = 2_000_000_000
UTF8 = 6
"""PostgreSQL's number of the encoding."""


def _classes(seen: Seen) -> Iterator[Row]:
    items = seen.items.values()
    indexed = {item.depends[0] for item in items if item.kind == "index"}
    for each in listed(seen):
        yield {
            "oid": each.oid,
            "relname": each.name,
            "relnamespace": seen.namespaces[each.schema],
            "relam": {"i": BTREE, "v": 0}.get(each.kind, HEAP),
            "relfilenode": 0 if each.kind == "v" else each.oid,
            "relhasindex": each.item is not None and each.item.id in indexed,
            "relkind": each.kind,
            "relnatts": len(each.columns),
            "relhasrules": each.kind == "v",
            "relreplident": "n" if each.kind in "iv" else "d",
        } | owned(seen, each)


def _attributes(seen: Seen) -> Iterator[Row]:
    for each in listed(seen):
        for position, column in enumerate(each.columns, 1):
            oid = column.type.oid
            size = column.type.wire_size
            yield {
                "attrelid": each.oid,
                "attname": column.name,
                "atttypid": oid,
                "attlen": size,
                "attnum": position,
                "atttypmod": modifier(column.type),
                "attbyval": 0 < size <= 8,
                "attstorage": "p" if size > 0 else "m" if oid == 1700 else "x",
                "attnotnull": not column.nullable and each.kind in "rm",
                "atthasdef": each.default(column) is not None,
                "attndims": 1 if column.type.element is not None else 0,
                "attcollation": DEFAULT_COLLATION if oid in TEXTUAL else 0,
            }


def _defaults(seen: Seen) -> Iterator[Row]:
    for each in listed_items(seen):
        for position, column in enumerate(each.columns, 1):
            if (text := each.default(column)) is not None:
                yield {
                    # One of its own, of a relation that has at most 1,600 columns as PostgreSQL's,
                    # as far as 32 bits have room.
                    "oid": _FIRST_DEFAULT + (each.oid * 1600 + position) % _FIRST_DEFAULT,
                    "adrelid": each.oid,
                    "adnum": position,
                    "adbin": text,
                }


def _types(_: Seen) -> Iterator[Row]:
    for each in TYPES:
        yield {
            "oid": each.oid,
            "typname": each.name,
            "typlen": each.size,
            "typbyval": 0 < each.size <= 8,
            "typtype": each.kind,
            "typcategory": each.category,
            "typdelim": ",",
            "typispreferred": each.name in ("bool", "text", "oid", "float8", "timestamptz"),
            "typelem": each.element,
            "typarray": each.array,
            "typinput": ARRAY_IN if each.element else 0,
            "typreceive": ARRAY_RECV if each.element else 0,
            "typcollation": DEFAULT_COLLATION if each.oid in TEXTUAL else 0,
        }


def _namespaces(seen: Seen) -> list[Row]:
    return [
        {"oid": oid, "nspname": name} | schema_row(seen, name)
        for name, oid in seen.namespaces.items()
    ]


def _databases(seen: Seen) -> list[Row]:
    return [
        {"oid": oid_of(each.id), "datname": each.name} | database_row(seen, each)
        for each in seen.catalog.databases.values()
    ]


def _indexes(seen: Seen) -> Iterator[Row]:
    items = seen.items
    for each in listed_items(seen):
        if each.item is not None and each.kind == "i":
            on = items[each.item.depends[0]]
            names = [column.name for column in on.columns]
            count = len(each.item.key)
            yield {
                "indexrelid": each.oid,
                "indrelid": oid_of(on.id),
                "indnatts": count,
                "indnkeyatts": count,
                "indkey": [names.index(name) + 1 for name in each.item.key],
                "indcollation": [0] * count,
                "indclass": [0] * count,
                "indoption": [0] * count,
            }


def _rewrites(seen: Seen) -> Iterator[Row]:
    """PostgreSQL keeps what a view reads with the rule that rewrites it: here they are one."""
    for each in _of_kind(seen, "vm"):
        yield {"oid": each.oid, "rulename": "_RETURN", "ev_class": each.oid}


def _depends(seen: Seen) -> Iterator[Row]:
    items = seen.items
    relations = {each.oid for each in listed_items(seen)}
    class_, rewrite = 1259, 2618
    for item in items.values():
        if item.kind in ("view", "materialized-view", "index"):
            for needed in item.depends:
                if oid_of(needed) in relations:
                    yield {
                        "classid": class_ if item.kind == "index" else rewrite,
                        "objid": oid_of(item.id),
                        "refclassid": class_,
                        "refobjid": oid_of(needed),
                        "deptype": "a" if item.kind == "index" else "n",
                    }


def _of_kind(seen: Seen, kinds: str) -> Iterator[Listed]:
    return (each for each in listed_items(seen) if each.kind in kinds)


def _tables(seen: Seen) -> Iterator[Row]:
    indexed = {i.depends[0] for i in seen.items.values() if i.kind == "index"}
    for each in _of_kind(seen, "r"):
        has = each.item is not None and each.item.id in indexed
        owner = owner_name(seen, each)
        named = {"schemaname": each.schema, "tablename": each.name, "tableowner": owner}
        yield named | {"hasindexes": has}


def _views(seen: Seen) -> Iterator[Row]:
    for each in listed(seen):
        if each.kind == "v":
            definition = view_query(each.item) if each.item is not None else None
            owner = owner_name(seen, each)
            named = {"schemaname": each.schema, "viewname": each.name, "viewowner": owner}
            yield named | {"definition": definition}


def _matviews(seen: Seen) -> Iterator[Row]:
    indexed = {i.depends[0] for i in seen.items.values() if i.kind == "index"}
    for each in _of_kind(seen, "m"):
        assert each.item is not None
        yield {
            "schemaname": each.schema,
            "matviewname": each.name,
            "matviewowner": owner_name(seen, each),
            "hasindexes": each.item.id in indexed,
            "definition": view_query(each.item),
        }


def _index_names(seen: Seen) -> Iterator[Row]:
    for each in _of_kind(seen, "i"):
        assert each.item is not None
        on = seen.items[each.item.depends[0]]
        yield {
            "schemaname": each.schema,
            "tablename": on.name,
            "indexname": each.name,
            "indexdef": index_statement(each.item, on),
        }


RELATIONS: tuple[SystemRelation, ...] = (
    relation(
        "pg_catalog",
        "pg_proc",
        f"oid oid, proname name, pronamespace oid=11, proowner oid={OWNER}, prolang oid=12,"
        " procost float=1, prorows float=0, provariadic oid=0, prosupport oid=0, prokind char=f,"
        " prosecdef bool=f, proleakproof bool=f, proisstrict bool=t, proretset bool=f,"
        " provolatile char=s, proparallel char=s, pronargs int2=3, pronargdefaults int2=0,"
        " prorettype oid=2277, proargtypes oidvector, proallargtypes oid[], proargmodes char[],"
        " proargnames text[], proargdefaults text, protrftypes oid[], prosrc text, probin text,"
        " prosqlbody text, proconfig text[], proacl text[]",
        # Only those by which drivers tell that a type is an array.
        lambda _: [
            {"oid": ARRAY_IN, "proname": "array_in", "proargtypes": [CSTRING, 26, 23]},
            {"oid": ARRAY_RECV, "proname": "array_recv", "proargtypes": [INTERNAL, 26, 23]},
        ],
    ),
    relation(
        "pg_catalog",
        "pg_class",
        "oid oid, relname name, relnamespace oid, reltype oid=0, reloftype oid=0,"
        f" relowner oid={OWNER}, relam oid, relfilenode oid, reltablespace oid=0,"
        " relpages int4=0, reltuples float=-1, relallvisible int4=0, reltoastrelid oid=0,"
        " relhasindex bool=f, relisshared bool=f, relpersistence char=p, relkind char,"
        " relnatts int2, relchecks int2=0, relhasrules bool=f, relhastriggers bool=f,"
        " relhassubclass bool=f, relrowsecurity bool=f, relforcerowsecurity bool=f,"
        " relispopulated bool=t, relreplident char, relispartition bool=f, relrewrite oid=0,"
        " relfrozenxid oid=0, relminmxid oid=0, relacl text[], reloptions text[],"
        " relpartbound text",
        _classes,
    ),
    relation(
        "pg_catalog",
        "pg_attribute",
        "attrelid oid, attname name, atttypid oid, attstattarget int4=-1, attlen int2,"
        " attnum int2, attndims int4, attcacheoff int4=-1, atttypmod int4, attbyval bool,"
        " attalign char=i, attstorage char, attcompression char=, attnotnull bool,"
        " atthasdef bool=f, atthasmissing bool=f, attidentity char=, attgenerated char=,"
        " attisdropped bool=f, attislocal bool=t, attinhcount int4=0, attcollation oid,"
        " attacl text[], attoptions text[], attfdwoptions text[], attmissingval text",
        _attributes,
    ),
    relation("pg_catalog", "pg_attrdef", "oid oid, adrelid oid, adnum int2, adbin text", _defaults),
    relation(
        "pg_catalog",
        "pg_type",
        f"oid oid, typname name, typnamespace oid=11, typowner oid={OWNER}, typlen int2,"
        " typbyval bool, typtype char, typcategory char, typispreferred bool, typisdefined bool=t,"
        " typdelim char, typrelid oid=0, typsubscript oid=0, typelem oid, typarray oid,"
        " typinput oid, typoutput oid=0, typreceive oid, typsend oid=0, typmodin oid=0,"
        " typmodout oid=0, typanalyze oid=0, typalign char=i, typstorage char=p,"
        " typnotnull bool=f, typbasetype oid=0, typtypmod int4=-1, typndims int4=0,"
        " typcollation oid, typdefaultbin text, typdefault text, typacl text[]",
        _types,
    ),
    relation(
        "pg_catalog",
        "pg_namespace",
        f"oid oid, nspname name, nspowner oid={OWNER}, nspacl text[]",
        _namespaces,
    ),
    relation(
        "pg_catalog",
        "pg_index",
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool=f,"
        " indnullsnotdistinct bool=f, indisprimary bool=f, indisexclusion bool=f,"
        " indimmediate bool=t, indisclustered bool=f, indisvalid bool=t, indcheckxmin bool=f,"
        " indisready bool=t, indislive bool=t, indisreplident bool=f, indkey int2vector,"
        " indcollation oidvector, indclass oidvector, indoption int2vector, indexprs text, indpred text",
        _indexes,
    ),
    relation(
        "pg_catalog",
        "pg_database",
        f"oid oid, datname name, datdba oid={OWNER}, encoding int4={UTF8}, datlocprovider char=c,"
        " datistemplate bool=f, datallowconn bool=t, datconnlimit int4=-1, datfrozenxid oid=0,"
        f" datminmxid oid=0, dattablespace oid={TABLESPACE}, datcollate text=C, datctype text=C,"
        " daticulocale text, daticurules text, datcollversion text, datacl text[]",
        _databases,
    ),
    relation(
        "pg_catalog",
        "pg_am",
        "oid oid, amname name, amhandler oid=0, amtype char",
        lambda _: [
            {"oid": HEAP, "amname": "heap", "amtype": "t"},
            {"oid": BTREE, "amname": "btree", "amtype": "i"},
        ],
    ),
    relation(
        "pg_catalog",
        "pg_collation",
        f"oid oid, collname name, collnamespace oid=11, collowner oid={OWNER}, collprovider char,"
        " collisdeterministic bool=t, collencoding int4=-1, collcollate text, collctype text,"
        " colliculocale text, collicurules text, collversion text",
        lambda _: [
            {"oid": DEFAULT_COLLATION, "collname": "default", "collprovider": "d"},
            {"oid": 950, "collname": "C", "collprovider": "c"},
        ],
    ),
    relation(
        "pg_catalog",
        "pg_tablespace",
        f"oid oid, spcname name, spcowner oid={OWNER}, spcacl text[], spcoptions text[]",
        lambda _: [{"oid": TABLESPACE, "spcname": "pg_default"}],
    ),
    relation(
        "pg_catalog",
        "pg_rewrite",
        "oid oid, rulename name, ev_class oid, ev_type char=1, ev_enabled char=O,"
        " is_instead bool=t, ev_qual text, ev_action text",
        _rewrites,
    ),
    relation(
        "pg_catalog",
        "pg_depend",
        "classid oid, objid oid, objsubid int4=0, refclassid oid, refobjid oid,"
        " refobjsubid int4=0, deptype char",
        _depends,
    ),
    relation(
        "pg_catalog",
        "pg_tables",
        "schemaname name, tablename name, tableowner name, tablespace name,"
        " hasindexes bool, hasrules bool=f, hastriggers bool=f, rowsecurity bool=f",
        _tables,
    ),
    relation(
        "pg_catalog",
        "pg_views",
        "schemaname name, viewname name, viewowner name, definition text",
        _views,
    ),
    relation(
        "pg_catalog",
        "pg_matviews",
        "schemaname name, matviewname name, matviewowner name, tablespace name,"
        " hasindexes bool, ispopulated bool=t, definition text",
        _matviews,
    ),
    relation(
        "pg_catalog",
        "pg_indexes",
        "schemaname name, tablename name, indexname name, tablespace name, indexdef text",
        _index_names,
    ),
)
