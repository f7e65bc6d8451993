"""Proposals: any replica appends, through the leader.

    propose -> append here -> done                               on the leader
            -> NotLeaderError -> Propose to the leader -> done   on every other replica, until the deadline

An append has three outcomes, and the caller always learns the right one:

* **done**: the offsets, the epoch and the results are known;
* **refused**: certainly nothing was appended, and the error says why;
* **unknown**: a request that had left got no answer (OutcomeUnknownError). Values that carry an identity, by which the
  state machine recognises a repetition, are proposed again instead, until the deadline.

`forwarding` has the side that asks, `groups` what goes together in one request, `taking` the leader's side, and
`outcomes` the errors and results as bytes. This package knows no socket and no replica: `ports` says what it needs of
them.
"""
