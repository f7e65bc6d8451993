"""The keys of an etcd, read from a snapshot file and copied into a `ReplicatedMap`."""
