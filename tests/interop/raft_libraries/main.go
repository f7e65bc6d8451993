// A replica of a raft library, with the load inside: `library KIND NUMBER DIRECTORY ADDRESS,ADDRESS,ADDRESS`.
//
// KIND is etcd-raft, hashicorp or dragonboat. The replica has the NUMBER-th address, counted from 1, and keeps its log in
// DIRECTORY, every entry synced before it counts. Its state machine does nothing. It reads one order a line, and answers
// each with one line of JSON; it ends with its standard input.
//
//	status                          {"leads": true, "term": 3}
//	bench CALLERS MILLISECONDS SIZE {"commits_per_s": …, "p50_us": …, "p99_us": …}: a closed loop of each caller
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An election begins when a leader was silent for so long; a leader is heard ten times as often.
const electionTimeout = time.Second

// No proposal of a bench takes longer.
const proposalTimeout = 20 * time.Second

type replica interface {
	// leader tells whether this replica leads, and its term.
	leader() (bool, uint64)
	// propose returns when the value is committed and applied here. The replica may write into its first 8 bytes.
	propose(value []byte) error
}

func open(kind string, number int, directory string, addresses []string) (replica, error) {
	switch kind {
	case "etcd-raft":
		return openEtcdRaft(number, directory, addresses)
	case "hashicorp":
		return openHashicorp(number, directory, addresses)
	case "dragonboat":
		return openDragonboat(number, directory, addresses)
	}
	return nil, fmt.Errorf("%q is no library that this program knows", kind)
}

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: library KIND NUMBER DIRECTORY ADDRESS,ADDRESS,ADDRESS"))
	}
	number, err := strconv.Atoi(os.Args[2])
	check(err)
	directory := filepath.Clean(os.Args[3])
	check(os.MkdirAll(directory, 0o700))
	one, err := open(os.Args[1], number, directory, strings.Split(os.Args[4], ","))
	check(err)
	answers := json.NewEncoder(os.Stdout)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer, err := obey(one, strings.Fields(orders.Text()))
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		check(answers.Encode(answer))
	}
}

func obey(one replica, order []string) (map[string]any, error) {
	switch {
	case len(order) == 1 && order[0] == "status":
		leads, term := one.leader()
		return map[string]any{"leads": leads, "term": term}, nil
	case len(order) == 4 && order[0] == "bench":
		numbers := make([]int, 3)
		for at := range numbers {
			number, err := strconv.Atoi(order[at+1])
			if err != nil || number < 1 {
				return nil, fmt.Errorf("%q is no number above 0", order[at+1])
			}
			numbers[at] = number
		}
		return bench(one, numbers[0], time.Duration(numbers[1])*time.Millisecond, numbers[2])
	}
	return nil, fmt.Errorf("%q is no order", strings.Join(order, " "))
}

func bench(one replica, callers int, duration time.Duration, size int) (map[string]any, error) {
	began := time.Now()
	end := began.Add(duration)
	took := make([][]time.Duration, callers)
	failures := make([]error, callers)
	var working sync.WaitGroup
	for caller := range callers {
		working.Add(1)
		go func() {
			defer working.Done()
			for sent := time.Now(); sent.Before(end); {
				value := make([]byte, max(size, 8))
				if failures[caller] = one.propose(value); failures[caller] != nil {
					return
				}
				answered := time.Now()
				took[caller] = append(took[caller], answered.Sub(sent))
				sent = answered
			}
		}()
	}
	working.Wait()
	elapsed := time.Since(began)
	for _, failure := range failures {
		if failure != nil {
			return nil, failure
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	microseconds := func(share float64) float64 {
		return float64(all[int(float64(len(all)-1)*share)].Nanoseconds()) / 1e3
	}
	return map[string]any{
		"commits":       len(all),
		"commits_per_s": float64(len(all)) / elapsed.Seconds(),
		"p50_us":        microseconds(0.5),
		"p99_us":        microseconds(0.99),
	}, nil
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "library:", err)
	os.Exit(1)
}
