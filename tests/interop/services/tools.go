//go:build tools

package main

// The server of etcd is built from the same list of modules: `go build go.etcd.io/etcd/server/v3`.
import _ "go.etcd.io/etcd/server/v3"
