"""Cursors: where the next page begins, opaque to the reader, stable while rows are added."""

import base64
import binascii

from lineside.remediation.api.problems import Problem


def cursor_after(at_ns: int, row_id: str) -> str:
    """
    >>> parse_cursor(cursor_after(17, "a"))
    (17, 'a')
    """
    return base64.urlsafe_b64encode(f"{at_ns}:{row_id}".encode()).decode()


def parse_cursor(cursor: str) -> tuple[int, str]:
    """Raises ``Problem`` (400) for a cursor that was not ours."""
    try:
        at_ns, _, row_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if abs(int(at_ns)) >= 1 << 63:
            raise ValueError("no database holds such a number")
        return int(at_ns), row_id
    except (ValueError, binascii.Error, UnicodeError):
        raise Problem(400, f"{cursor!r} is no cursor of a page") from None
