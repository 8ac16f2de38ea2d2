"""PostgreSQL's wire protocol, version 3.0, so that psql and every driver can talk to Tidemark.

A session's life:

    client                                server
    SSLRequest / GSSENCRequest   ──►
                                 ◄──      'S', then TLS; or 'N'          (no encryption)
    Startup(user, database, …)   ──►
    SASL responses               ◄─►      SASL requests                  (with passwords only)
                                          SessionFactory opens a Session
                                 ◄──      AuthenticationOk, ParameterStatus…, BackendKeyData
                                 ◄──      ReadyForQuery                  ┐
    Query("SELECT 1; SELECT 2")  ──►      split, prepare, execute        │
                                 ◄──      RowDescription, DataRow…,      │ over and over
                                          CommandComplete, twice         │
                                 ◄──      ReadyForQuery                  ┘
    Parse, Bind, Describe,       ──►      prepare; params to text;
    Execute, Sync                ◄──      each answered in turn, then ReadyForQuery
    Terminate, or a hang-up      ──►      cancel what runs, close the Session

    a second connection:
    CancelRequest(pid, secret)   ──►      cancel that session's statement; it answers 57014

The modules, from the socket up:

    codec        bytes <-> messages; no I/O
    wire         a socket: frames in (read ahead), messages out (with back-pressure), hang-ups
    text, binary Arrow columns as PostgreSQL's text and binary formats
    params       Bind's parameters as text
    copy_out     rows as COPY sends them
    copy_fields, copy_binary     what COPY receives, cut into records and fields
    scram        the server's side of SCRAM-SHA-256; no I/O
    tls, passwords               what the listener is guarded by
    session      the seam: what the wire asks of the SQL layer, and the values that cross
    portal       a bound statement and its cursor
    connection   one client's conversation
    options      settings given at startup
    server       the listener: limits, cancel keys, shutdown

For example, with a `SessionFactory` at hand:

    async with Server(open_session, port=6875) as server:
        await stop.wait()

Not here: the function-call message, replication, and the implicit transaction that PostgreSQL puts
around a simple query of several statements or a pipeline: each statement is one of its own.
Transactions are the session's.
"""

from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.control.pgwire.server import SERVER_VERSION, Limits, Server
from tidemark.control.pgwire.session import (
    Copy,
    CopyIn,
    CopyOptions,
    Done,
    Notice,
    Param,
    Ready,
    Result,
    Rows,
    Session,
    SessionFactory,
    Statement,
    TransactionStatus,
)

__all__ = [
    "Server",
    "Limits",
    "SERVER_VERSION",
    "Session",
    "SessionFactory",
    "Statement",
    "TransactionStatus",
    "Ready",
    "Result",
    "Rows",
    "Copy",
    "CopyIn",
    "CopyOptions",
    "Done",
    "Param",
    "Notice",
    "ProtocolViolation",
]
