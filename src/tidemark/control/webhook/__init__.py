"""Webhooks: sources whose rows other services post over HTTP, one request at a time.

    POST /api/webhook/tidemark/public/github
      │ http/webhooks   limits: how large, how many at once
      │ receive         which source; counts; the answer
      │ check           its CHECK, over headers, body and secrets          403
      │ body            the body as rows                                   400
      ▼
    timeline            one commit for all requests that wait together     503
      │
      ▼ 200             durable, and seen by every strict serializable read from now on

For example:

    CREATE SOURCE github FROM WEBHOOK BODY FORMAT JSON
      CHECK (WITH (HEADERS, BODY BYTES, SECRET hook)
        constant_time_eq(headers->'x-hub-signature-256',
                         'sha256=' || encode(hmac(body, hook, 'sha256'), 'hex')));

The source's shard is written as a table's is (`storage/tables.py`, decision 21): whoever sends a
request keeps it until it is acknowledged, and nobody can read it again from somewhere, so there is
no offset to bind to a time.

    W1  a request is acknowledged only when its rows are committed
    W2  a request's rows are committed at one time, all of them or none

The modules:

    spec        what a source is, as the catalog keeps it
    check       SQL's CHECK into a typed condition, and whether a request meets it
    evaluate    the value of a typed expression over one request
    functions   what a condition may call
    body        a request as rows
    create      CREATE SOURCE
    receive     requests in

Not here: an acknowledgement that gets lost makes the sender send again, and the rows come twice.
Senders put an id into their requests for that: DISTINCT ON it.
"""
