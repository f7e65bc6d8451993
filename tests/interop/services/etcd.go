package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type etcd struct {
	client   *clientv3.Client
	key      string
	revision int64
}

func connectEtcd(server string, key string) (client, error) {
	one, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server}, DialTimeout: 30 * time.Second, Logger: zap.NewNop(),
	})
	return &etcd{client: one, key: key}, err
}

func (one *etcd) close() { one.client.Close() }

func (one *etcd) put(value []byte) error {
	answer, err := one.client.Put(context.Background(), one.key, string(value))
	if err == nil {
		one.revision = answer.Header.Revision
	}
	return err
}

func (one *etcd) cas(value []byte) error {
	same := clientv3.Compare(clientv3.ModRevision(one.key), "=", one.revision)
	put := clientv3.OpPut(one.key, string(value))
	answer, err := one.client.Txn(context.Background()).If(same).Then(put).Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return errors.New("etcd: the key has another revision")
	}
	one.revision = answer.Header.Revision
	return nil
}

func (one *etcd) get() error {
	answer, err := one.client.Get(context.Background(), one.key)
	if err == nil && len(answer.Kvs) != 1 {
		return errors.New("etcd: the key is missing")
	}
	return err
}

func (one *etcd) stale() error {
	_, err := one.client.Get(context.Background(), one.key, clientv3.WithSerializable())
	return err
}
