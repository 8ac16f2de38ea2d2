"""HTTP, beside the PostgreSQL wire and over the same sessions: for browsers, scripts and monitors.

    POST /api/sql              {"query": "…; …"} or {"queries": [{"query": "…", "params": […]}]}
    POST /api/webhook/d/s/name a request that becomes rows of a source
    GET  /api/experimental/sql a websocket: the same requests, in one session, and SUBSCRIBE
    GET  /api/ws               the same websocket
    GET  /metrics              for Prometheus
    GET  /, /console/…         the console (`tidemark.console`)
    GET  /api/livez            the process answers
    GET  /api/readyz           it can answer queries, or 503 and why not

    client                                server
    POST {"query": "SELECT 1"}   ──►      guard; SessionFactory opens a Session
                                          split, prepare, execute, as for a simple query
                                 ◄──      {"results": [{"desc": …, "rows": [["1"]], "tag": …}]}
                                          the Session is closed; an open transaction is undone

    websocket {"options": {}}    ──►      opens a Session
                                 ◄──      ParameterStatus…, ReadyForQuery     ┐
    {"query": "SUBSCRIBE t"}     ──►                                          │ over and over
                                 ◄──      CommandStarting, Rows, Row, Row, …  │
                                          CommandComplete | Error             │
                                 ◄──      ReadyForQuery                       ┘
    close, or a hang-up          ──►      cancels what runs, closes the Session

The shapes are those of Materialize's HTTP interface, so that its clients carry over. The modules:

    guard      who may ask at all: no other web site may, through somebody's browser
    requests   bodies and messages in
    values     Arrow rows as JSON: every number as text, as JSON's readers would round it
    answer     statements of a session, one after the other, told to whoever asked
    post       … in one body, sent piece by piece
    websocket  … as messages, with back-pressure
    webhooks   what is posted to sources, within limits
    server     the listener: routes, limits, shutdown

For example, with a `SessionFactory` at hand:

    async with HttpServer(sessions, unready=unready, metrics=metrics, port=6876):
        await stop.wait()

Not here: passwords and TLS (trust, and loopback only), CORS, COPY, binary values.
"""

from tidemark.control.http.server import HttpServer, Limits

__all__ = ["HttpServer", "Limits"]
