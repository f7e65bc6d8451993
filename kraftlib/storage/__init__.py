"""The log, the election state and the snapshots on disk, in Kafka's layout and bytes.

`interface` says per method what is durable on return. Everything else keeps those promises:

* `directory` formats and opens the directory of a replica: `lock`, `meta_properties`, `bootstrap`, `names`;
* `log` is the replicated log in files: `recovery` finds out what is there, with `salvage` for what is not whole,
  `segments` grows and cuts it, a `segment` has an `index`, the newest batches stay in the `tail`, and which epoch
  starts where stands in the `epoch_file`;
* `election_file` keeps the vote, `snapshot_files` the snapshots; `files` holds what the disk asks of all of them;
* `memory` is a log and an election store that lose what was not flushed, for tests and for the simulator.

A replica may forget only what it never acknowledged. So a torn tail is cut, damage is refused, an error of the disk
ends the use of the log, and a lost vote is an error of its own.
"""

from __future__ import annotations
