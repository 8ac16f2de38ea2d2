r"""`tidemark sql`: a terminal client, for people at a prompt and for scripts.

    text -> script.Reader -> Statement | Command -> Shell.run -> output.Output
                                  |         |
                      client.Database     commands.COMMANDS (\d, \watch, \copy, ...)

`prompt` asks for the text, with history, completion and colours; files, `-c` and pipes give it as
it is. A SUBSCRIBE is a table that changes if there is a terminal to show it on, else lines.

What it is not: a language. psql's variables, \if and \gset are not here; psql itself works, too.
"""
