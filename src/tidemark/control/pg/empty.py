"""The relations of pg_catalog that are always empty here: clients ask, and there is none."""

from __future__ import annotations

from tidemark.control.pg.columns import relation

_COLUMNS = {
    "pg_aggregate": "aggfnoid oid, aggkind char, aggnumdirectargs int2",
    "pg_amop": "oid oid, amopfamily oid, amoplefttype oid, amoprighttype oid, amopstrategy int2,"
    " amoppurpose char, amopopr oid, amopmethod oid, amopsortfamily oid",
    "pg_amproc": "oid oid, amprocfamily oid, amproclefttype oid, amprocrighttype oid,"
    " amprocnum int2, amproc oid",
    "pg_available_extensions": "name name, default_version text, installed_version text,"
    " comment text",
    "pg_cast": "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char,"
    " castmethod char",
    "pg_constraint": "oid oid, conname name, connamespace oid, contype char, condeferrable bool,"
    " condeferred bool, convalidated bool, conrelid oid, contypid oid, conindid oid,"
    " conparentid oid, confrelid oid, confupdtype char, confdeltype char, confmatchtype char,"
    " conislocal bool, coninhcount int4, connoinherit bool, conkey int2[], confkey int2[],"
    " conpfeqop oid[], conppeqop oid[], conffeqop oid[], confdelsetcols int2[], conexclop oid[],"
    " conbin text",
    "pg_conversion": "oid oid, conname name, connamespace oid, conowner oid, conforencoding int4,"
    " contoencoding int4, conproc oid, condefault bool",
    "pg_cursors": "name text, statement text, is_holdable bool, is_binary bool,"
    " is_scrollable bool, creation_time timestamptz",
    "pg_default_acl": "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char,"
    " defaclacl text[]",
    "pg_enum": "oid oid, enumtypid oid, enumsortorder float, enumlabel name",
    "pg_event_trigger": "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid,"
    " evtenabled char, evttags text[]",
    "pg_extension": "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool,"
    " extversion text, extconfig oid[], extcondition text[]",
    "pg_foreign_data_wrapper": "oid oid, fdwname name, fdwowner oid, fdwhandler oid,"
    " fdwvalidator oid, fdwacl text[], fdwoptions text[]",
    "pg_foreign_server": "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text,"
    " srvversion text, srvacl text[], srvoptions text[]",
    "pg_foreign_table": "ftrelid oid, ftserver oid, ftoptions text[]",
    "pg_inherits": "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool",
    "pg_language": "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool,"
    " lanplcallfoid oid, laninline oid, lanvalidator oid, lanacl text[]",
    "pg_largeobject_metadata": "oid oid, lomowner oid, lomacl text[]",
    "pg_locks": "locktype text, database oid, relation oid, page int4, tuple int2,"
    " virtualxid text, transactionid oid, classid oid, objid oid, objsubid int2,"
    " virtualtransaction text, pid int4, mode text, granted bool, fastpath bool,"
    " waitstart timestamptz",
    "pg_opclass": "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid,"
    " opcfamily oid, opcintype oid, opcdefault bool, opckeytype oid",
    "pg_operator": "oid oid, oprname name, oprnamespace oid, oprowner oid, oprkind char,"
    " oprcanmerge bool, oprcanhash bool, oprleft oid, oprright oid, oprresult oid, oprcom oid,"
    " oprnegate oid, oprcode oid, oprrest oid, oprjoin oid",
    "pg_opfamily": "oid oid, opfmethod oid, opfname name, opfnamespace oid, opfowner oid",
    "pg_partitioned_table": "partrelid oid, partstrat char, partnatts int2, partdefid oid,"
    " partattrs int2vector, partclass oidvector, partcollation oidvector, partexprs text",
    "pg_policies": "schemaname name, tablename name, policyname name, permissive text,"
    " roles name[], cmd text, qual text, with_check text",
    "pg_policy": "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool,"
    " polroles oid[], polqual text, polwithcheck text",
    "pg_prepared_statements": "name text, statement text, prepare_time timestamptz,"
    " parameter_types text[], result_types text[], from_sql bool, generic_plans int8,"
    " custom_plans int8",
    "pg_publication": "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool,"
    " pubupdate bool, pubdelete bool, pubtruncate bool, pubviaroot bool",
    "pg_publication_namespace": "oid oid, pnpubid oid, pnnspid oid",
    "pg_publication_rel": "oid oid, prpubid oid, prrelid oid, prqual text, prattrs int2vector",
    "pg_publication_tables": "pubname name, schemaname name, tablename name, attnames name[],"
    " rowfilter text",
    "pg_range": "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid,"
    " rngsubopc oid, rngcanonical oid, rngsubdiff oid",
    "pg_rules": "schemaname name, tablename name, rulename name, definition text",
    "pg_seclabels": "objoid oid, classoid oid, objsubid int4, objtype text, objnamespace oid,"
    " objname text, provider text, label text",
    "pg_sequence": "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8,"
    " seqmin int8, seqcache int8, seqcycle bool",
    "pg_sequences": "schemaname name, sequencename name, sequenceowner name, data_type text,"
    " start_value int8, min_value int8, max_value int8, increment_by int8, cycle bool,"
    " cache_size int8, last_value int8",
    "pg_shdepend": "dbid oid, classid oid, objid oid, objsubid int4, refclassid oid,"
    " refobjid oid, deptype char",
    "pg_shdescription": "objoid oid, classoid oid, description text",
    "pg_stat_activity": "datid oid, datname name, pid int4, leader_pid int4, usesysid oid,"
    " usename name, application_name text, client_addr text, client_hostname text,"
    " client_port int4, backend_start timestamptz, xact_start timestamptz,"
    " query_start timestamptz, state_change timestamptz, wait_event_type text, wait_event text,"
    " state text, backend_xid oid, backend_xmin oid, query_id int8, query text,"
    " backend_type text",
    "pg_stat_user_tables": "relid oid, schemaname name, relname name, seq_scan int8,"
    " seq_tup_read int8, idx_scan int8, idx_tup_fetch int8, n_tup_ins int8, n_tup_upd int8,"
    " n_tup_del int8, n_live_tup int8, n_dead_tup int8",
    "pg_statistic_ext": "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid,"
    " stxstattarget int4, stxkeys int2vector, stxkind char[], stxexprs text",
    "pg_subscription": "oid oid, subdbid oid, subname name, subowner oid, subenabled bool,"
    " subconninfo text, subslotname name, subsynccommit text, subpublications text[]",
    "pg_timezone_names": "name text, abbrev text, utc_offset text, is_dst bool",
    "pg_transform": "oid oid, trftype oid, trflang oid, trffromsql oid, trftosql oid",
    "pg_trigger": "oid oid, tgrelid oid, tgparentid oid, tgname name, tgfoid oid, tgtype int2,"
    " tgenabled char, tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, tgconstraint oid,"
    " tgdeferrable bool, tginitdeferred bool, tgnargs int2, tgattr int2vector, tgargs text,"
    " tgqual text, tgoldtable name, tgnewtable name",
    "pg_ts_config": "oid oid, cfgname name, cfgnamespace oid, cfgowner oid, cfgparser oid",
    "pg_ts_config_map": "mapcfg oid, maptokentype int4, mapseqno int4, mapdict oid",
    "pg_ts_dict": "oid oid, dictname name, dictnamespace oid, dictowner oid, dicttemplate oid,"
    " dictinitoption text",
    "pg_ts_parser": "oid oid, prsname name, prsnamespace oid, prsstart oid, prstoken oid,"
    " prsend oid, prsheadline oid, prslextype oid",
    "pg_ts_template": "oid oid, tmplname name, tmplnamespace oid, tmplinit oid, tmpllexize oid",
    "pg_user_mapping": "oid oid, umuser oid, umserver oid, umoptions text[]",
    "pg_user_mappings": "umid oid, srvid oid, srvname name, umuser oid, usename name,"
    " umoptions text[]",
}

RELATIONS = tuple(relation("pg_catalog", name, columns) for name, columns in _COLUMNS.items())
