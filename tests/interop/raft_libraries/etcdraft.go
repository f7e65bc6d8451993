package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	// Messages that wait for a peer, or for a thread of the storage; beyond it those to a peer are lost.
	waitingMax = 4096
	// Bytes of a message. Nobody sends more.
	messageMax = 1 << 26
)

// etcdRaft is the raft of etcd with its asynchronous storage writes: one thread appends to etcd's own log on disk, one
// applies, and messages go over one TCP connection to each peer.
type etcdRaft struct {
	node    raft.Node
	number  uint64
	log     *wal.WAL
	memory  *raft.MemoryStorage
	appends chan *raftpb.Message
	applies chan *raftpb.Message
	peers   map[uint64]chan *raftpb.Message

	lock    sync.Mutex
	last    uint64
	waiting map[uint64]chan struct{}
}

func openEtcdRaft(number int, directory string, addresses []string) (replica, error) {
	one := &etcdRaft{
		number:  uint64(number),
		memory:  raft.NewMemoryStorage(),
		appends: make(chan *raftpb.Message, waitingMax),
		applies: make(chan *raftpb.Message, waitingMax),
		peers:   map[uint64]chan *raftpb.Message{},
		waiting: map[uint64]chan struct{}{},
	}
	config := &raft.Config{
		ID:                 one.number,
		ElectionTick:       10,
		HeartbeatTick:      1,
		Storage:            one.memory,
		MaxSizePerMsg:      1 << 20,
		MaxInflightMsgs:    256,
		CheckQuorum:        true,
		PreVote:            true,
		AsyncStorageWrites: true,
		Logger:             &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	}
	place := filepath.Join(directory, "wal")
	if wal.Exist(place) {
		if err := one.reopen(place); err != nil {
			return nil, err
		}
		one.node = raft.RestartNode(config)
	} else {
		created, err := wal.Create(zap.NewNop(), place, nil)
		if err != nil {
			return nil, err
		}
		one.log = created
		var voters []raft.Peer
		for at := range addresses {
			voters = append(voters, raft.Peer{ID: uint64(at + 1)})
		}
		one.node = raft.StartNode(config, voters)
	}
	listener, err := net.Listen("tcp", addresses[number-1])
	if err != nil {
		return nil, err
	}
	for at, address := range addresses {
		if at+1 != number {
			id := uint64(at + 1)
			one.peers[id] = make(chan *raftpb.Message, waitingMax)
			go one.sendTo(id, address)
		}
	}
	go one.accept(listener)
	go one.appendAll()
	go one.applyAll()
	go one.run()
	return one, nil
}

// reopen reads the log of before into memory.
func (one *etcdRaft) reopen(place string) error {
	opened, err := wal.Open(zap.NewNop(), place, &walpb.Snapshot{})
	if err != nil {
		return err
	}
	_, state, entries, err := opened.ReadAll()
	if err != nil {
		return err
	}
	one.log = opened
	if err := one.memory.SetHardState(state); err != nil {
		return err
	}
	return one.memory.Append(entries)
}

func (one *etcdRaft) run() {
	ticks := time.NewTicker(electionTimeout / 10)
	for {
		select {
		case <-ticks.C:
			one.node.Tick()
		case ready := <-one.node.Ready():
			one.route(ready.Messages)
		}
	}
}

func (one *etcdRaft) route(messages []*raftpb.Message) {
	for _, message := range messages {
		switch message.GetTo() {
		case raft.LocalAppendThread:
			one.appends <- message
		case raft.LocalApplyThread:
			one.applies <- message
		case one.number:
			check(one.node.Step(context.Background(), message))
		default:
			select {
			case one.peers[message.GetTo()] <- message:
			default:
				one.node.ReportUnreachable(message.GetTo())
			}
		}
	}
}

// appendAll makes durable what it is given, all that waits with one sync, and only then sends what tells of it.
func (one *etcdRaft) appendAll() {
	for message := range one.appends {
		state := &raftpb.HardState{}
		var entries []*raftpb.Entry
		var responses []*raftpb.Message
		for {
			if message.GetTerm() != 0 {
				state = &raftpb.HardState{Term: message.Term, Vote: message.Vote, Commit: message.Commit}
			}
			entries = joined(entries, message.GetEntries())
			responses = append(responses, message.GetResponses()...)
			if len(one.appends) == 0 {
				break
			}
			message = <-one.appends
		}
		if !raft.IsEmptyHardState(state) {
			check(one.memory.SetHardState(state))
		}
		check(one.log.Save(state, entries))
		check(one.memory.Append(entries))
		one.route(responses)
	}
}

// joined returns entries with later ones behind them, or in the place of some.
func joined(entries []*raftpb.Entry, later []*raftpb.Entry) []*raftpb.Entry {
	if len(entries) > 0 && len(later) > 0 {
		first, next := entries[0].GetIndex(), later[0].GetIndex()
		if next < first {
			return append([]*raftpb.Entry(nil), later...)
		}
		entries = entries[:min(uint64(len(entries)), next-first)]
	}
	return append(entries, later...)
}

func (one *etcdRaft) applyAll() {
	for message := range one.applies {
		for _, entry := range message.GetEntries() {
			one.apply(entry)
		}
		one.route(message.GetResponses())
	}
}

func (one *etcdRaft) apply(entry *raftpb.Entry) {
	if entry.GetType() == raftpb.EntryConfChange {
		var change raftpb.ConfChange
		check(proto.Unmarshal(entry.GetData(), &change))
		one.node.ApplyConfChange(&change)
		return
	}
	if len(entry.GetData()) < 8 {
		return
	}
	number := binary.BigEndian.Uint64(entry.GetData())
	one.lock.Lock()
	waiting := one.waiting[number]
	delete(one.waiting, number)
	one.lock.Unlock()
	if waiting != nil {
		close(waiting)
	}
}

func (one *etcdRaft) leader() (bool, uint64) {
	status := one.node.Status()
	return status.RaftState == raft.StateLeader, status.HardState.GetTerm()
}

func (one *etcdRaft) propose(value []byte) error {
	done := make(chan struct{})
	one.lock.Lock()
	one.last++
	binary.BigEndian.PutUint64(value, one.number<<56|one.last)
	one.waiting[one.number<<56|one.last] = done
	one.lock.Unlock()
	if err := one.node.Propose(context.Background(), value); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(proposalTimeout):
		return fmt.Errorf("a proposal was not committed")
	}
}

// sendTo keeps a connection to a peer, and loses what it cannot send.
func (one *etcdRaft) sendTo(id uint64, address string) {
	var connection net.Conn
	var writer *bufio.Writer
	for message := range one.peers[id] {
		if connection == nil {
			var err error
			if connection, err = net.DialTimeout("tcp", address, time.Second); err != nil {
				connection = nil
				one.node.ReportUnreachable(id)
				continue
			}
			writer = bufio.NewWriterSize(connection, 1<<16)
		}
		err := write(writer, message)
		if err == nil && len(one.peers[id]) == 0 {
			err = writer.Flush()
		}
		if err != nil {
			connection.Close()
			connection = nil
			one.node.ReportUnreachable(id)
		}
	}
}

func write(writer *bufio.Writer, message *raftpb.Message) error {
	data, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	if err := binary.Write(writer, binary.BigEndian, uint32(len(data))); err != nil {
		return err
	}
	_, err = writer.Write(data)
	return err
}

func (one *etcdRaft) accept(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		check(err)
		go one.receive(connection)
	}
}

func (one *etcdRaft) receive(connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReaderSize(connection, 1<<16)
	for {
		var size uint32
		if binary.Read(reader, binary.BigEndian, &size) != nil || size > messageMax {
			return
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(reader, data); err != nil {
			return
		}
		message := &raftpb.Message{}
		if proto.Unmarshal(data, message) != nil || one.node.Step(context.Background(), message) != nil {
			return
		}
	}
}
