"""The two ways in to a replicated machine: a replica in this process (`open`), and a client of replicas (`connect`).

    connect ... ClientAccess -- Connection == TCP, TLS or a Unix socket == AccessServer -- Service -- machine
    open ...... ReplicaAccess ------------------------------------------------------------ Service -- machine

`service` does the work, on the engine's loop of a replica; the machine runs there, too. `server` reads and writes its
requests, which docs/reference/client-protocol.md describes. `client` keeps one connection to one replica and looks for
another where that one does not answer; it need not know the leader, since every replica forwards to it.
"""
