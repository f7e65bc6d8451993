"""The holders and the ends of the certificates and revocation lists of a PEM file.

`ssl` does not tell this of a chain or a revocation list, and more of X.509 is not read here: OpenSSL decides what is
valid. Only files of the operator are read, never what a peer has sent. Source: RFC 5280, 4.1 and 5.1; RFC 7468.
"""

from __future__ import annotations

import base64
import calendar
import re
import time
from typing import Final

from kraftlib.frozen import immutable

_BLOCK: Final = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?(CERTIFICATE|CRL)-----([^-]*)-----END (?:X509 |TRUSTED )?\1-----"
)
FIELDS_MIN: Final = 3
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_TIMES: Final = (_UTC_TIME, _GENERALIZED_TIME)


@immutable
class Part:
    """A certificate, or a revocation list. Times are in seconds since 1970."""

    is_list: bool
    name: bytes
    """The subject of a certificate, the issuer of a list, in DER."""
    begins_at: float
    ends_at: float | None
    """None: a list without a next update."""


def parts(data: bytes) -> list[Part]:
    """Return the certificates and revocation lists of a PEM file in their order. Raises: ValueError for other bytes."""
    return [
        _list(base64.b64decode(text)) if label == b"CRL" else _certificate(base64.b64decode(text))
        for label, text in _BLOCK.findall(data)
    ]


def _certificate(der: bytes) -> Part:
    fields = _fields(der)
    first = 0 if fields[0][0] == 0x02 else 1  # the version may be left out
    _serial, _algorithm, _issuer, validity, subject = fields[first : first + 5]
    begins, ends = _elements(der, *validity[1:])
    return Part(False, der[subject[1] : subject[2]], _time(der, begins), _time(der, ends))


def _list(der: bytes) -> Part:
    fields = _fields(der)
    first = 1 if fields[0][0] == 0x02 else 0  # the version may be left out
    _algorithm, issuer, begins, *rest = fields[first:]
    ends = _time(der, rest[0]) if rest and rest[0][0] in _TIMES else None
    return Part(True, der[issuer[1] : issuer[2]], _time(der, begins), ends)


Element = tuple[int, int, int]
"""The tag of a DER element, and where its contents begin and end."""


def _fields(der: bytes) -> list[Element]:
    """Return the elements of the signed part: the first element of the outermost one."""
    outer = _element(der, 0, len(der))
    found = _elements(der, *_element(der, outer[1], outer[2])[1:])
    if len(found) < FIELDS_MIN:
        raise ValueError(f"only {len(found)} fields are signed")
    return found


def _elements(der: bytes, start: int, end: int) -> list[Element]:
    found = []
    while start < end:
        found.append(_element(der, start, end))
        start = found[-1][2]
    return found


def _element(der: bytes, start: int, end: int) -> Element:
    if end - start < 2:
        raise ValueError("a DER element is cut off")
    tag, length, begin = der[start], der[start + 1], start + 2
    if length >= 0x80:
        begin += length - 0x80
        length = int.from_bytes(der[start + 2 : begin], "big")
    if begin + length > end:
        raise ValueError("a DER element is longer than the one around it")
    return tag, begin, begin + length


def _time(der: bytes, element: Element) -> float:
    tag, begin, end = element
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"a time in DER has the tag {tag}")
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
