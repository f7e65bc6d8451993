"""From Kafka in ZooKeeper mode to controllers of kraftlib: its metadata as a checkpoint with which they begin.

    ZooKeeper, or its files  ->  nodes  ->  metadata records  ->  <end offset>-<epoch>.checkpoint  ->  kraftlib restore

Kafka's own migration (KIP-866) writes the same records, while its brokers run: its controller claims the old
controller's place in ZooKeeper, and sends brokers requests that only controllers of 3.4 to 3.9 know. This import is the
way with the brokers stopped: it goes one way, and nothing is written to ZooKeeper.
"""
