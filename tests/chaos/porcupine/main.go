// Command porcupine judges histories of registers for linearizability.
//
// It reads one operation a line as JSON (the fields of tests/chaos/history.py) and prints one JSON object: for every
// register true (linearizable), false (not linearizable) or null (not settled in time).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is one call. Ended is nil where the outcome is unknown.
type operation struct {
	Client int             `json:"client"`
	Key    string          `json:"key"`
	Kind   string          `json:"kind"`
	Value  *string         `json:"value"`
	Old    *string         `json:"old"`
	Output json.RawMessage `json:"output"`
	Began  int64           `json:"began"`
	Ended  *int64          `json:"ended"`
}

// register is the state: present is false before the first put.
type register struct {
	present bool
	value   string
}

func registerOf(text *string) register {
	if text == nil {
		return register{}
	}
	return register{true, *text}
}

// answer is what a caller was told.
type answer struct {
	unknown bool
	done    bool
	read    register
}

var model = porcupine.Model{
	Init: func() interface{} { return register{} },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		now, call, told := state.(register), input.(operation), output.(answer)
		switch call.Kind {
		case "put":
			return true, registerOf(call.Value)
		case "cas":
			done := now == registerOf(call.Old)
			if done {
				now = registerOf(call.Value)
			}
			return told.unknown || told.done == done, now
		default:
			return told.unknown || told.read == now, now
		}
	},
}

func parse(line []byte) (operation, answer, error) {
	var call operation
	if err := json.Unmarshal(line, &call); err != nil {
		return call, answer{}, err
	}
	told := answer{unknown: call.Ended == nil}
	if told.unknown {
		return call, told, nil
	}
	switch call.Kind {
	case "put":
		return call, told, nil
	case "cas":
		return call, told, json.Unmarshal(call.Output, &told.done)
	case "read":
		var text *string
		err := json.Unmarshal(call.Output, &text)
		told.read = registerOf(text)
		return call, told, err
	}
	return call, told, fmt.Errorf("kind %q is none of put, cas, read", call.Kind)
}

func read(source io.Reader) (map[string][]porcupine.Operation, error) {
	histories := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		call, told, err := parse(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%w in %s", err, lines.Bytes())
		}
		ended := int64(math.MaxInt64)
		if call.Ended != nil {
			ended = *call.Ended
		}
		histories[call.Key] = append(histories[call.Key], porcupine.Operation{
			ClientId: call.Client, Input: call, Call: call.Began, Output: told, Return: ended,
		})
	}
	return histories, lines.Err()
}

func main() {
	seconds := flag.Int("seconds", 60, "longest time for one register")
	flag.Parse()
	histories, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	verdicts := map[string]*bool{}
	for key, history := range histories {
		verdicts[key] = nil
		result := porcupine.CheckOperationsTimeout(model, history, time.Duration(*seconds)*time.Second)
		if result != porcupine.Unknown {
			sound := result == porcupine.Ok
			verdicts[key] = &sound
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		os.Exit(2)
	}
}
