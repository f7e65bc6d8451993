"""The extensions of Kafka's protocol, in one place: a reader of the protocol can leave them out.

* `snapshot_hash`: a download goes on with another leader that has the same bytes;
* `read_index`: reads that miss nothing that was committed before;
* `priority`: the voter that is to lead becomes the leader;
* `failed_state_machine`: a replica that cannot apply what is committed does not lead;
* `upstreams`, `downstream`: observers that fetch from other replicas than the leader;
* `epoch_budget`: peers cannot use the epochs up;
* `misconfiguration`: replicas that do not belong together say so.

Messages of ours are sent to replicas of ours alone. A replica of Kafka's in the same quorum is asked for nothing that
it does not know.
"""
