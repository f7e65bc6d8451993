"""Jobs: functions of a session and a path. Each has a twin without Spark in `kraftlib.analysis`, with equal answers.

audit        replicas against each other                     kraftlib.analysis.audit
compact      the latest of each key, folds, increments       kraftlib.analysis.compacting, metadata_state
history      what happened to a topic, a broker, a config    kraftlib.analysis.history
report       topics, partitions, brokers … as of an offset   kraftlib.analysis.reports
to_parquet   a second tier for repeated questions            kraftlib.analysis.export
sweep        simulation seeds over executors                 kraftlib.testing.campaign
"""
