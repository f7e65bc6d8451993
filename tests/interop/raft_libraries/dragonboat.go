package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/statemachine"
)

const (
	shard = 1
	// The unit of its clocks: ten of them are an election.
	dragonboatTick = electionTimeout / 10
)

type dragonboatReplica struct {
	host    *dragonboat.NodeHost
	session *client.Session
	number  uint64
}

func openDragonboat(number int, directory string, addresses []string) (replica, error) {
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "config", "tan"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	settings := config.NodeHostConfig{
		NodeHostDir:    filepath.Join(directory, "host"),
		RTTMillisecond: uint64(dragonboatTick / time.Millisecond),
		RaftAddress:    addresses[number-1],
	}
	settings.Expert.LogDBFactory = tan.Factory
	host, err := dragonboat.NewNodeHost(settings)
	if err != nil {
		return nil, err
	}
	members := map[uint64]string{}
	for at, address := range addresses {
		members[uint64(at+1)] = address
	}
	first := config.Config{ReplicaID: uint64(number), ShardID: shard, ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true}
	create := func(uint64, uint64) statemachine.IStateMachine { return nothing{} }
	if err := host.StartReplica(members, false, create, first); err != nil {
		return nil, err
	}
	return &dragonboatReplica{host, host.GetNoOPSession(shard), uint64(number)}, nil
}

func (one *dragonboatReplica) leader() (bool, uint64) {
	leader, term, known, err := one.host.GetLeaderID(shard)
	return err == nil && known && leader == one.number, term
}

func (one *dragonboatReplica) propose(value []byte) error {
	request, err := one.host.Propose(one.session, value, proposalTimeout)
	if err != nil {
		return err
	}
	defer request.Release()
	if result := <-request.ResultC(); !result.Completed() {
		return fmt.Errorf("a proposal was not committed")
	}
	return nil
}

// nothing is a state machine that does nothing.
type nothing struct{}

func (nothing) Update(statemachine.Entry) (statemachine.Result, error) {
	return statemachine.Result{}, nil
}
func (nothing) Lookup(any) (any, error) { return nil, nil }
func (nothing) SaveSnapshot(io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
func (nothing) RecoverFromSnapshot(io.Reader, []statemachine.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (nothing) Close() error { return nil }
