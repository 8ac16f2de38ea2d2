"""PostgreSQL's own catalog, as its clients expect to find it.

psql's backslash commands, drivers, ORMs and BI tools learn what there is by asking `pg_catalog`
and `information_schema`, in PostgreSQL's SQL with all its functions and casts:

    SELECT c.oid, n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ...
    WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$' COLLATE pg_catalog.default
    AND pg_catalog.pg_table_is_visible(c.oid)

        the tree, as parsed       rewrite   names, casts and literals as DuckDB has them
                                  engine    runs it in DuckDB, inside control
        the relations             tables    pg_catalog: what Tidemark has something to say about
                                  empty     pg_catalog: what it never has
                                  roles     roles, owners and privileges
                                  information_schema
        what they are made of     types     PostgreSQL's built-in types
                                  names     oids of objects and back
                                  columns   a short spelling of a relation's columns
        the functions             functions

A query of nothing but system relations, `mz_catalog` and `mz_internal` included, is answered so:
in milliseconds, whether or not a cluster is up. One that reads a collection as well is planned
and run as any other.

For example, an object with the id u7 has the oid 16391 (PostgreSQL's first free one, and 7): a
client that has remembered it finds the same object again after a restart.

Each database sees its own schemas and objects, as in PostgreSQL. Not here: constraints, of which
Tidemark has none.
"""
