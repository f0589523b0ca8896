package redisstore

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/weir-proxy/weir/limiter"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// A batch is what one script call asks: the windows that it touches, and what is
// to be done with them.
type batch struct {
	keys []string // three a window: state, log, base
	args []any    // of the windows, four each
	rest []any    // what else the script is told
}

const (
	windowArgs = 4
	// sharedKind is what scripts call a window that Redisson shares.
	sharedKind = int(limiter.Concurrent) + 1
)

// newBatch makes a batch of the windows of claims, in their order.
func newBatch(prefix string, claims []limiter.Claim, rest ...any) *batch {
	b := &batch{keys: make([]string, 0, 3*len(claims)), args: make([]any, 0, windowArgs*len(claims)), rest: rest}
	for _, c := range claims {
		b.window(prefix, c)
	}
	return b
}

// window appends the window of c and returns its number, counted from 1.
func (b *batch) window(prefix string, c limiter.Claim) int {
	b.keys = append(b.keys, windowKeys(prefix, c)...)
	l := c.Limit
	kind := int(l.Algorithm)
	if c.Redisson != "" {
		kind = sharedKind
	}
	b.args = append(b.args, kind, l.Rate.Count, l.Rate.Window.Milliseconds(), l.Most())
	return len(b.args) / windowArgs
}

// request appends a request of take or peek: the id, then window and cost of each
// claim. window tells the number of a claim's window.
func (b *batch) request(id [16]byte, claims []limiter.Claim, window func(c limiter.Claim) int) {
	request := make([]byte, 0, idBytes+6*len(claims))
	request = append(request, id[:idBytes]...)
	for _, c := range claims {
		request = binary.LittleEndian.AppendUint16(request, uint16(window(c)))
		request = binary.LittleEndian.AppendUint32(request, uint32(c.Cost))
	}
	b.rest = append(b.rest, request)
}

// argv are all arguments: the number of windows, the windows, and the rest.
func (b *batch) argv() []any {
	args := make([]any, 0, 1+len(b.args)+len(b.rest))
	args = append(args, len(b.args)/windowArgs)
	args = append(args, b.args...)
	return append(args, b.rest...)
}

// windowName is the name of the Redisson rate limiter that keeps one limit of
// one key. The braces make all limits of a key share a cluster slot.
func windowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}

// windowKeys are the three keys of a claim's window. Each algorithm has its own;
// a token bucket has those of Redisson.
func windowKeys(prefix string, c limiter.Claim) []string {
	if c.Redisson != "" {
		return []string{redissonKey(c.Redisson, "value"), redissonKey(c.Redisson, "permits"), c.Redisson}
	}
	name := windowName(prefix, c.Limit.Name, c.Key)
	state := suffix(c.Limit.Algorithm)
	switch c.Limit.Algorithm {
	case limiter.TokenBucket:
		return []string{name + state, name + ":permits", name + ":base"}
	case limiter.Concurrent:
		return []string{name + state, name + ":concurrent:permits", name + ":concurrent:base"}
	}
	return []string{name + state, name + state + ":refunds", name + state + ":base"}
}

// suffix ends the name of a window's first key.
func suffix(a limiter.Algorithm) string {
	switch a {
	case limiter.TokenBucket:
		return ":value"
	case limiter.Concurrent:
		return ":concurrent:value"
	}
	return ":" + a.String()
}

// readKey reads what Key.String writes.
func readKey(s string, k *limiter.Key) bool {
	if len(s) != hex.EncodedLen(len(k)) {
		return false
	}
	_, err := hex.Decode(k[:], []byte(s))
	return err == nil
}
