"""CRC-32C (Castagnoli), the checksum of a record batch. The only importer of the crc32c package.

`crc32c(data, start=0)` returns that of `data`, unsigned; `start` is the checksum of the bytes before, to go on from. It
is the package's own function: one more call would double its cost for a small batch. `is_in_hardware` says whether the
processor computes it, which is many times as fast.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
    from crc32c import hardware_based as is_in_hardware
else:

    def _load() -> Any:
        """Return the compiled module of the package, without its `__init__`, or else the package.

        `__init__` looks for the installed version, and makes a command: the modules for that (importlib.metadata,
        email, zipfile, argparse) take 70 times as long as the compiled one, and a tenth of a replica's start.
        """
        package = PathFinder.find_spec("crc32c")
        spec = None if package is None else PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if spec is None or spec.loader is None:
            import crc32c

            return crc32c
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    _loaded = _load()
    crc32c = _loaded.crc32c
    is_in_hardware = _loaded.hardware_based

__all__ = ["crc32c", "is_in_hardware"]
