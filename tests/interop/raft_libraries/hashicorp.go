package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// Entries of one AppendEntries: more than the default of 64, so that all callers of a bench fit.
const hashicorpEntriesMax = 1024

type hashicorp struct{ raft *raft.Raft }

func openHashicorp(number int, directory string, addresses []string) (replica, error) {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(strconv.Itoa(number))
	config.HeartbeatTimeout, config.ElectionTimeout = electionTimeout, electionTimeout
	config.BatchApplyCh = true
	config.MaxAppendEntries = hashicorpEntriesMax
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Error})
	place := filepath.Join(directory, "wal")
	_, missing := os.Stat(place)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return nil, err
	}
	log, err := wal.Open(place)
	if err != nil {
		return nil, err
	}
	snapshots := raft.NewDiscardSnapshotStore()
	transport, err := raft.NewTCPTransport(addresses[number-1], nil, len(addresses), proposalTimeout, os.Stderr)
	if err != nil {
		return nil, err
	}
	if missing != nil {
		var servers []raft.Server
		for at, address := range addresses {
			id := raft.ServerID(strconv.Itoa(at + 1))
			servers = append(servers, raft.Server{ID: id, Address: raft.ServerAddress(address)})
		}
		first := raft.Configuration{Servers: servers}
		if err := raft.BootstrapCluster(config, log, log, snapshots, transport, first); err != nil {
			return nil, err
		}
	}
	one, err := raft.NewRaft(config, idle{}, log, log, snapshots, transport)
	return hashicorp{one}, err
}

func (one hashicorp) leader() (bool, uint64) {
	return one.raft.State() == raft.Leader, one.raft.CurrentTerm()
}

func (one hashicorp) propose(value []byte) error {
	return one.raft.Apply(value, proposalTimeout).Error()
}

// idle is a state machine that does nothing.
type idle struct{}

func (idle) Apply(*raft.Log) any                 { return nil }
func (idle) Snapshot() (raft.FSMSnapshot, error) { return idle{}, nil }
func (idle) Restore(source io.ReadCloser) error  { return source.Close() }
func (idle) Persist(sink raft.SnapshotSink) error {
	return sink.Close()
}
func (idle) Release() {}
