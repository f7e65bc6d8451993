"""The log, the election state and the snapshots on disk, in Kafka's layout and bytes.

`interface` says per method what is durable on return. Everything else keeps those promises:

* `directory` formats and opens the directory of a replica: `claim`, `lock`, `meta_properties`, `bootstrap`,
  `names`;
* `file_log` is the replicated log in files. It is made of a `log` (segments, indexes, epochs and their notes), of the
  handling of `damage`, and of `snapshots`;
* `election` keeps the vote; `files` holds what the disk asks of all of them, `notes` is the JSON of the small ones, and
  the `reserve` is space for when the disk is full;
* `memory` is a log and an election store that lose what was not flushed, for tests and for the simulator.

A replica may forget only what it never acknowledged. So a torn tail is cut, damage is refused, an error of the disk
ends the use of the log, and a lost vote is an error of its own.

**Threads.** Three threads use a log: the loop of the engine, the disk thread, and the background. The rule is:

1. *One writer at a time.* The loop appends, begins epochs and deletes below a snapshot. The disk thread flushes
   meanwhile, which changes nothing that the loop reads but `flushed_offset`. Every other change (truncate, install, set
   aside, repair, split) is the disk thread's while the loop waits: then the loop only reads.
2. *Shared state is replaced, never changed in place*: the segments, epochs, control batches, holes and snapshots are
   tuples, each put in place by one assignment. A reader takes it once and works with that. The segment that grows, its
   index and the tail are the exceptions: only the loop adds to them, at their end, and where something is taken away
   another object takes their place.
3. *Two threads hand things over in queues*, which one fills and the other empties: the segments that are full, the
   files that are to be removed.
4. *A descriptor belongs to the thread that may close it.* A read opens the file for itself.
5. *A read that fails looks whether the segments are still those that it began with*, and begins anew if they are not.
6. *The background, and any thread that freezes a snapshot,* may change only what has a lock: the list of snapshots,
   the reserve and the spare segment.

| what | changed by | looked at by |
|---|---|---|
| segments, epochs, control batches, holes, start and end | the loop; the disk thread while the loop waits | all |
| size, CRC and index of the last segment, the tail | the loop | the disk thread: size and index |
| `mark` | the loop; the disk thread while the loop waits | the disk thread |
| full segments, files to be removed | filled by the loop | emptied by the disk thread |
| descriptor for appends | the loop; the disk thread while the loop waits | the disk thread, for its sync |
| flushed offset, sync point, prefix, sums, reserved blocks | the disk thread | the loop: the flushed offset |
| snapshots; reserve; spare | all, each under its lock | all |

`tests/storage/threads` lets any two of them meet at every line of this package.
"""

from __future__ import annotations
