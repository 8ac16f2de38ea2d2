"""The console: what a browser shows of a server, at `/` of its HTTP port.

The pages are static: an HTML file, style sheets and ES modules that the browser runs as they are
(no build step). All that they show they ask for as any other client does, over `POST /api/sql` and
the websocket, as the user who has signed in; there is no other way in for them, so they can show
nobody more than SQL would.

    browser                                server
    GET /                        ──►       index.html          (says nothing of the server's data)
    GET /console/app.js, …       ──►       the modules, with an ETag each
    POST /api/sql                ──►       system relations, every two seconds while a page is seen
    websocket /api/ws            ──►       the SQL shell's session; SUBSCRIBE

Under `static/`: `app.js` is the frame with its addresses and keys, `api.js` speaks to the server,
`model.js` makes objects of the system relations' rows, `parts.js` is what pages are made of, and
each page is a module. `vendor/` is Preact with htm, as published.

Not here: any data, any state of a server, anything from another host.
"""

from tidemark.console.pages import routes

__all__ = ["routes"]
