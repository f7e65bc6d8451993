"""Bounded bytes to declared attrs classes and back: Kafka's flexible encoding.

`reader` and `varint` are the ground: values out of bytes that may be hostile, and numbers of any width. `declarations`
is the language in which messages are declared, `struct_codec` and `field_types` turn a declaration into the two
functions that read and write it, `declared` is the entry for other packages. `json_form` prints messages as Kafka's
tools do.
"""

from __future__ import annotations
