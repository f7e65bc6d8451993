"""Sessions, keys and locks as one replicated state machine, and the way in to it.

A client makes a command (bytes), hands it to an `Access`, and gets the result (bytes) of the record that it became. The
modules here decide what a command does; they open no connection and know no replica.

`kraftlib.coordination.access` is the way in, `kraftlib.coordination.messages` has the commands,
`kraftlib.coordination.machine` applies them, and `kraftlib.coordination.expiry` finds for the leader what is over.
"""
