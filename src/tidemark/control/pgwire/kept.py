"""What a client makes the server keep for it by name, and how much of that there may be.

A statement that is prepared stays, parsed, for as long as the session; a portal stays, with its
parameters, until its transaction ends. One client that never gives anything back must not be able
to take the memory of all others. The unnamed ones replace each other, so they are always allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.errors import SqlError

if TYPE_CHECKING:
    from tidemark.control.pgwire.portal import Portal
    from tidemark.control.pgwire.session import Param, Statement

MOST_STATEMENTS = 5_000
MOST_TEXT = 4 * 1024 * 1024
"""Characters of all prepared statements; parsed they take some hundred bytes each."""

MOST_PORTALS = 1_000
MOST_PARAMETERS = 64 * 1024 * 1024
"""Characters of the parameters of all portals: as much as one message may have."""

_UNNAMED = ""


class Statements(dict[str, "Statement | None"]):
    """Prepared statements by name; one too many is refused."""

    def __init__(self, *, most: int = MOST_STATEMENTS, most_text: int = MOST_TEXT):
        super().__init__()
        self._most = most
        self._most_text = most_text

    def __setitem__(self, name: str, statement: Statement | None) -> None:
        if name != _UNNAMED:
            others = [each for key, each in self.items() if key not in (_UNNAMED, name)]
            if len(others) >= self._most:
                raise _too_much(f"a session can have {self._most} prepared statements at most")
            text = sum(len(each.sql) for each in (*others, statement) if each is not None)
            if text > self._most_text:
                raise _too_much(
                    f"the prepared statements of a session can be {self._most_text} characters"
                    " long together at most"
                )
        super().__setitem__(name, statement)


def check_portals(portals: dict[str, Portal], name: str, params: tuple[Param, ...]) -> None:
    """Whether there may be one more."""
    if name == _UNNAMED:
        return
    if len(portals) >= MOST_PORTALS:
        raise _too_many_portals(f"a session can have {MOST_PORTALS} portals at most")
    size = _size(params) + sum(_size(portal.params) for portal in portals.values())
    if size > MOST_PARAMETERS:
        raise _too_many_portals(
            f"the parameters of a session's portals can be {MOST_PARAMETERS} characters long"
            " together at most"
        )


def _size(params: tuple[Param, ...]) -> int:
    return sum(len(param.value_text or "") for param in params)


def _too_much(message: str) -> SqlError:
    return SqlError(message, hint="DEALLOCATE those that are not needed", sqlstate="54000")


def _too_many_portals(message: str) -> SqlError:
    hint = "close those that are not needed, or end the transaction"
    return SqlError(message, hint=hint, sqlstate="54000")
