"""`dev.py bench-controller`: the metadata controller and that of Apache Kafka, asked the same in turns, in one run.

    metadata.py      a cluster of any size, as a checkpoint that both can load
    controllers.py   processes of ours and of Kafka's, with the processor time and memory that they take
    broker.py        simulated brokers and admin clients, in Kafka's protocol
    scenes.py        the measurements
    report.py        the tables

Brokers and clients are this one program, so its own share of the processors is the same for both.
"""
