package main

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

type zookeeper struct {
	connection *zk.Conn
	path       string
	version    int32
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connectZooKeeper(server string, key string) (client, error) {
	connection, _, err := zk.Connect([]string{server}, 30*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	path := "/" + key
	_, err = connection.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		err = nil
	}
	return &zookeeper{connection: connection, path: path}, err
}

func (one *zookeeper) close() { one.connection.Close() }

func (one *zookeeper) put(value []byte) error { return one.set(value, -1) }

func (one *zookeeper) cas(value []byte) error { return one.set(value, one.version) }

func (one *zookeeper) set(value []byte, version int32) error {
	stat, err := one.connection.Set(one.path, value, version)
	if err == nil {
		one.version = stat.Version
	}
	return err
}

// A read after a sync sees all that was written before: as near to linearizable as ZooKeeper offers.
func (one *zookeeper) get() error {
	if _, err := one.connection.Sync(one.path); err != nil {
		return err
	}
	return one.stale()
}

func (one *zookeeper) stale() error {
	_, _, err := one.connection.Get(one.path)
	return err
}
