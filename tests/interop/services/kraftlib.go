package main

// kraftlib's private requests, as docs/reference/client-protocol.md and docs/reference/coordination.md tell them.

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

const (
	callKey       = 30004
	queryKey      = 30005
	timeoutMs     = 30_000
	sessionMs     = 600_000
	maxFrameBytes = 1 << 20

	openSession  = 1
	closeSession = 3
	transact     = 5
	doPut        = 1
	askKeys      = 1
	linearizable = 0
	stale        = 2
)

type kraftlib struct {
	connection net.Conn
	reader     *bufio.Reader
	requests   int32
	session    [16]byte
	opened     int64
	sequence   int64
	key        string
	revision   int64
}

func connectKraftlib(server string, key string) (client, error) {
	connection, err := net.Dial("tcp", server)
	if err != nil {
		return nil, err
	}
	one := &kraftlib{connection: connection, reader: bufio.NewReader(connection), opened: -1, key: key}
	if _, err = rand.Read(one.session[:]); err != nil {
		return nil, err
	}
	var body writer
	body.int32(sessionMs)
	body.string("bench")
	body.tags()
	one.opened, err = one.call(openSession, body)
	return one, err
}

func (one *kraftlib) close() {
	var body writer
	body.tags()
	_, _ = one.call(closeSession, body) // it is only the bench that ends
	one.connection.Close()
}

func (one *kraftlib) put(value []byte) error {
	return one.write(value, false)
}

func (one *kraftlib) cas(value []byte) error {
	return one.write(value, true)
}

func (one *kraftlib) write(value []byte, compare bool) error {
	var body writer
	body.length(0) // fences
	if compare {
		body.length(1)
		body.string(one.key)
		body.null()
		body.int64(one.revision)
		body.tags()
	} else {
		body.length(0)
	}
	body.length(1)
	body.int8(doPut)
	body.string(one.key)
	body.bytes(value)
	body.int32(0) // time to live
	body.int8(0)  // ephemeral
	body.int64(0) // delta
	body.tags()
	body.length(0) // otherwise
	body.tags()
	one.sequence++
	offset, err := one.call(transact, body)
	one.revision = offset
	return err
}

func (one *kraftlib) get() error {
	return one.query(linearizable)
}

func (one *kraftlib) stale() error {
	return one.query(stale)
}

// call sends a command and returns the offset of its result.
func (one *kraftlib) call(kind int8, body writer) (int64, error) {
	var command writer
	command.int8(kind)
	command.int8(0)
	command.data = append(command.data, one.session[:]...)
	command.int64(one.opened)
	command.int64(one.sequence)
	command.int64(one.sequence) // all earlier ones are acknowledged
	command.tags()
	command.data = append(command.data, body.data...)
	var request writer
	request.int32(timeoutMs)
	request.bytes(command.data)
	request.tags()
	answer, err := one.ask(callKey, request)
	if err != nil {
		return 0, err
	}
	answer.skip(8 + 4) // offset and epoch
	result := reader{data: answer.bytes()}
	result.skip(1) // version
	status, reason := result.int8(), result.bytes()
	offset := result.int64()
	succeeded := result.int8()
	if status != 0 || succeeded != 1 {
		return 0, fmt.Errorf("status %d, succeeded %d: %s", status, succeeded, reason)
	}
	return offset, result.err
}

func (one *kraftlib) query(consistency int8) error {
	var question writer
	question.int8(0) // version
	question.int8(askKeys)
	question.string(one.key)
	question.int8(0) // prefix
	question.string("")
	question.int32(1)
	question.int64(-1)
	question.data = append(question.data, make([]byte, 16)...)
	question.tags()
	var request writer
	request.int32(timeoutMs)
	request.int8(consistency)
	request.int64(-1)
	request.bytes(question.data)
	request.tags()
	answer, err := one.ask(queryKey, request)
	if err != nil {
		return err
	}
	answer.skip(8) // offset
	rows := reader{data: answer.bytes()}
	rows.skip(1) // version
	if count := rows.length(); count != 1 && consistency == linearizable {
		return fmt.Errorf("%d rows for one key", count)
	}
	return rows.err
}

// ask sends a request and returns its answer behind the error code, which is 0.
func (one *kraftlib) ask(key int16, body writer) (reader, error) {
	one.requests++
	var frame writer
	frame.int32(0)
	frame.int16(key)
	frame.int16(0)
	frame.int32(one.requests)
	frame.int16(int16(len("bench")))
	frame.data = append(frame.data, "bench"...)
	frame.tags()
	frame.data = append(frame.data, body.data...)
	binary.BigEndian.PutUint32(frame.data, uint32(len(frame.data)-4))
	if _, err := one.connection.Write(frame.data); err != nil {
		return reader{}, err
	}
	var size [4]byte
	if _, err := io.ReadFull(one.reader, size[:]); err != nil {
		return reader{}, err
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxFrameBytes {
		return reader{}, fmt.Errorf("an answer of %d bytes", length)
	}
	answer := reader{data: make([]byte, length)}
	if _, err := io.ReadFull(one.reader, answer.data); err != nil {
		return reader{}, err
	}
	if id := answer.int32(); id != one.requests {
		return reader{}, fmt.Errorf("answer %d to request %d", id, one.requests)
	}
	answer.skip(1)
	if code, text := answer.int16(), answer.bytes(); code != 0 {
		return reader{}, fmt.Errorf("error %d: %s", code, text)
	}
	return answer, answer.err
}

// writer appends Kafka's flexible encoding.
type writer struct{ data []byte }

func (w *writer) int8(value int8)   { w.data = append(w.data, byte(value)) }
func (w *writer) int16(value int16) { w.data = binary.BigEndian.AppendUint16(w.data, uint16(value)) }
func (w *writer) int32(value int32) { w.data = binary.BigEndian.AppendUint32(w.data, uint32(value)) }
func (w *writer) int64(value int64) { w.data = binary.BigEndian.AppendUint64(w.data, uint64(value)) }
func (w *writer) length(count int)  { w.data = binary.AppendUvarint(w.data, uint64(count+1)) }
func (w *writer) null()             { w.data = append(w.data, 0) }
func (w *writer) tags()             { w.data = append(w.data, 0) }
func (w *writer) string(text string) {
	w.length(len(text))
	w.data = append(w.data, text...)
}
func (w *writer) bytes(value []byte) {
	w.length(len(value))
	w.data = append(w.data, value...)
}

// reader takes the same apart. What is missing becomes `err`, and zeros.
type reader struct {
	data []byte
	err  error
}

func (r *reader) skip(count int) { r.take(count) }
func (r *reader) take(count int) []byte {
	if count > len(r.data) {
		r.err = io.ErrUnexpectedEOF
		r.data = nil
		return make([]byte, min(count, 16))
	}
	taken := r.data[:count]
	r.data = r.data[count:]
	return taken
}
func (r *reader) int8() int8   { return int8(r.take(1)[0]) }
func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) length() int {
	value, size := binary.Uvarint(r.data)
	if size <= 0 {
		r.err = io.ErrUnexpectedEOF
		return 0
	}
	r.skip(size)
	return int(value) - 1
}
func (r *reader) bytes() []byte { return r.take(max(r.length(), 0)) }
