package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// A batch is what one script call asks: the windows that it touches, and what is
// to be done with them.
type batch struct {
	keys    []string // three a window: state, log, base
	limits  []any    // five a limit
	numbers map[limitID]byte
	windows []byte // the number of each window's limit, counted from 1
	rest    []any  // what else the script is told
	mixed   bool   // not all windows are logs of our own
}

// A limitID is what scripts are told of a limit.
type limitID struct {
	rate  limiter.Rate
	burst int64
	kind  int
}

const (
	// slack is how long keys outlive what they must remember.
	slack = time.Second
	// sharedKind is what scripts call a window that Redisson shares.
	sharedKind = int(limiter.Concurrent) + 1
)

// newBatch makes a batch of the windows of claims, in their order.
func newBatch(prefix string, claims []limiter.Claim, rest ...any) *batch {
	b := &batch{rest: rest}
	for _, c := range claims {
		b.window(prefix, c)
	}
	return b
}

// window appends the window of c and returns its number, counted from 1.
func (b *batch) window(prefix string, c limiter.Claim) int {
	b.keys = append(b.keys, windowKeys(prefix, c)...)
	b.windows = append(b.windows, b.limit(c))
	return len(b.windows)
}

// limit appends the limit of c, unless it is there, and returns its number.
func (b *batch) limit(c limiter.Claim) byte {
	l := c.Limit
	id := limitID{l.Rate, l.Burst, int(l.Algorithm)}
	if c.Redisson != "" {
		id.kind = sharedKind
	}
	if n, ok := b.numbers[id]; ok {
		return n
	}
	if b.numbers == nil {
		b.numbers = map[limitID]byte{}
	}
	n := byte(len(b.numbers) + 1)
	b.numbers[id] = n
	b.limits = append(b.limits, id.kind, l.Rate.Count, l.Rate.Window.Milliseconds(), l.Most(), (l.Horizon() + slack).Milliseconds())
	b.mixed = b.mixed || id.kind != int(limiter.TokenBucket) && id.kind != int(limiter.Concurrent)
	return n
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

// argv are all arguments: the limits, the windows, and the rest.
func (b *batch) argv() []any {
	args := make([]any, 0, 2+len(b.limits)+len(b.rest))
	args = append(args, len(b.numbers))
	args = append(args, b.limits...)
	args = append(args, b.windows)
	return append(args, b.rest...)
}

// windowName is the name of the Redisson rate limiter that keeps one limit of
// one key. The braces make all limits of a key share a cluster slot.
func windowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}

// windowKeys are the three keys of a claim's window. A token bucket has those of
// Redisson; the other algorithms have their own, told apart by braces, which no
// limit's name holds.
func windowKeys(prefix string, c limiter.Claim) []string {
	if c.Redisson != "" {
		return []string{redissonKey(c.Redisson, "value"), redissonKey(c.Redisson, "permits"), c.Redisson}
	}
	name := windowName(prefix, c.Limit.Name, c.Key)
	if a := c.Limit.Algorithm; a != limiter.TokenBucket {
		name += ":{" + a.String() + "}"
	}
	return []string{name + ":value", name + ":permits", name + ":base"}
}

// suffix ends the name of a window's first key.
func suffix(a limiter.Algorithm) string {
	if a == limiter.TokenBucket {
		return ":value"
	}
	return ":{" + a.String() + "}:value"
}

// readKey reads what Key.String writes.
func readKey(s string, k *limiter.Key) bool {
	if len(s) != hex.EncodedLen(len(k)) {
		return false
	}
	_, err := hex.Decode(k[:], []byte(s))
	return err == nil
}
