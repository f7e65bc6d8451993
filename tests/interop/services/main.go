// Load on a coordination service: `load KIND SERVERS CLIENTS OPERATION SECONDS` prints what it has measured as JSON.
//
// KIND is kraftlib, etcd or zookeeper. Each client has a connection of its own, to one of the servers in turn, a key of
// its own with 100 bytes, and sends its next operation when the last one is answered. OPERATION is
//
//	put    write the key
//	cas    write the key if it has the revision that the last write returned
//	get    read the key, linearizably
//	stale  read the key as the server that is asked has it
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const valueBytes = 100

// Of the seconds that are measured, so much is spent before them, at full load.
const warmUpShare = 0.25

// So many clients connect at once.
const connectingMax = 64

type client interface {
	put(value []byte) error
	cas(value []byte) error
	get() error
	stale() error
	close()
}

func connect(kind string, server string, number int) (client, error) {
	key := fmt.Sprintf("bench-%d", number)
	switch kind {
	case "kraftlib":
		return connectKraftlib(server, key)
	case "etcd":
		return connectEtcd(server, key)
	case "zookeeper":
		return connectZooKeeper(server, key)
	}
	return nil, fmt.Errorf("%q is no service that this program knows", kind)
}

func operation(one client, name string, value []byte) func() error {
	switch name {
	case "put":
		return func() error { return one.put(value) }
	case "cas":
		return func() error { return one.cas(value) }
	case "get":
		return one.get
	case "stale":
		return one.stale
	}
	fail(fmt.Errorf("%q is no operation", name))
	return nil
}

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: load KIND SERVERS CLIENTS OPERATION SECONDS"))
	}
	servers := strings.Split(os.Args[2], ",")
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	check(err)
	value := slices.Repeat([]byte("v"), valueBytes)
	clients := connectAll(os.Args[1], servers, count, value)
	began := time.Now().Add(time.Duration(seconds * warmUpShare * float64(time.Second)))
	end := began.Add(time.Duration(seconds * float64(time.Second)))
	took := make([][]time.Duration, count)
	var working sync.WaitGroup
	for number, one := range clients {
		working.Add(1)
		go func() {
			defer working.Done()
			do := operation(one, os.Args[4], value)
			for sent := time.Now(); sent.Before(end); {
				check(do())
				answered := time.Now()
				if answered.After(began) && answered.Before(end) {
					took[number] = append(took[number], answered.Sub(sent))
				}
				sent = answered
			}
		}()
	}
	working.Wait()
	for _, one := range clients {
		one.close()
	}
	report(slices.Concat(took...), seconds)
}

// connectAll connects the clients and has each write its key.
func connectAll(kind string, servers []string, count int, value []byte) []client {
	clients := make([]client, count)
	room := make(chan struct{}, connectingMax)
	var connecting sync.WaitGroup
	for number := range clients {
		connecting.Add(1)
		room <- struct{}{}
		go func() {
			defer connecting.Done()
			one, err := connect(kind, servers[number%len(servers)], number)
			check(err)
			check(one.put(value))
			clients[number] = one
			<-room
		}()
	}
	connecting.Wait()
	return clients
}

func report(took []time.Duration, seconds float64) {
	if len(took) == 0 {
		fail(fmt.Errorf("no operation was answered in time"))
	}
	slices.Sort(took)
	microseconds := func(share float64) float64 {
		return float64(took[int(float64(len(took)-1)*share)].Nanoseconds()) / 1e3
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"per_s":  float64(len(took)) / seconds,
		"p50_us": microseconds(0.5),
		"p99_us": microseconds(0.99),
	}))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
