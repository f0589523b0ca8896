package redisstore

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// valueBytes of a value tell it apart from the others of its key.
const valueBytes = 8

// A payload is what one script call asks: the windows that it touches, and what is
// to be done with them.
type payload struct {
	keys     []string // of the windows, in their order
	limits   []byte   // one after another: see limits.lua
	numbers  map[limitID]byte
	windows  []byte // of each the number of its limit, and of its first key, counted from 1
	requests []byte // one after another
	rest     []any  // what else the script is told
	kinds    uint16 // the algorithms of all windows, a bit each
	boarded  int    // windows
	several  bool   // a request has several claims
	again    bool   // a request asks for a key that an earlier one has
	earlier  int    // keys of earlier requests
}

// A limitID is what scripts are told of a limit.
type limitID struct {
	rate  limiter.Rate
	burst int64
	steps string
	tag   string
	kind  int
}

// slack is how long keys outlive what they must remember.
const slack = time.Second

// newPayload makes a batch of the windows of claims, in their order.
func newPayload(n names, claims []limiter.Claim, rest ...any) *payload {
	b := &payload{rest: rest}
	for _, c := range claims {
		b.window(n, c)
	}
	return b
}

// window appends the window of c and returns its number, counted from 1.
func (b *payload) window(n names, c limiter.Claim) int {
	keys := n.keys(c)
	first := -1
	if len(keys) == 1 {
		first = slices.Index(b.keys, keys[0])
		b.again = b.again || first >= 0 && first < b.earlier
	}
	if first < 0 {
		first = len(b.keys)
		b.keys = append(b.keys, keys...)
	}
	b.windows = binary.LittleEndian.AppendUint16(append(b.windows, b.limit(c)), uint16(first+1))
	b.boarded++
	return b.boarded
}

// limit appends the limit of c, unless it is there, and returns its number.
func (b *payload) limit(c limiter.Claim) byte {
	l := c.Limit
	id := limitID{rate: l.Rate, burst: l.Burst, kind: int(l.Algorithm)}
	if packed(l.Algorithm) {
		_, id.tag = split(l.Name)
	}
	for _, s := range l.Steps {
		id.steps += strconv.FormatInt(s.Milliseconds(), 10) + ","
	}
	if n, ok := b.numbers[id]; ok {
		return n
	}
	if b.numbers == nil {
		b.numbers = map[limitID]byte{}
	}
	n := byte(len(b.numbers) + 1)
	b.numbers[id] = n
	b.limits = append(b.limits, byte(id.kind))
	b.limits = binary.LittleEndian.AppendUint32(b.limits, uint32(l.Rate.Count))
	b.limits = appendTime(b.limits, l.Rate.Window)
	b.limits = binary.LittleEndian.AppendUint32(b.limits, uint32(l.Most()))
	b.limits = appendTime(b.limits, l.Horizon()+slack)
	b.limits = append(b.limits, byte(len(id.tag)+1), byte(len(id.tag)))
	b.limits = append(b.limits, id.tag...)
	b.limits = binary.LittleEndian.AppendUint16(b.limits, uint16(len(id.steps)))
	b.limits = append(b.limits, id.steps...)
	b.kinds |= 1 << id.kind
	return n
}

// appendTime appends whole ms in 6 bytes.
func appendTime(out []byte, d time.Duration) []byte {
	n := len(out)
	return binary.LittleEndian.AppendUint64(out, uint64(d.Milliseconds()))[:n+6]
}

// request appends a request of take or peek: the number of its claims, what
// begins the entry that records each in Redis, which is a length and the id, and for
// each claim what ends its entry, which is the cost, the number of its window, which
// window tells, and the value where values are counted.
func (b *payload) request(id [16]byte, claims []limiter.Claim, window func(c limiter.Claim) int) {
	b.requests = append(append(b.requests, byte(len(claims)), idBytes), id[:idBytes]...)
	before := b.boarded
	b.earlier = len(b.keys)
	b.several = b.several || len(claims) > 1
	for _, c := range claims {
		number := window(c)
		b.again = b.again || number <= before
		b.requests = binary.LittleEndian.AppendUint32(b.requests, uint32(c.Cost))
		b.requests = binary.LittleEndian.AppendUint16(b.requests, uint16(number))
		if c.Limit.Algorithm == limiter.Distinct {
			b.requests = append(b.requests, c.Value[:valueBytes]...)
		}
	}
}

// argv are all arguments: the limits, the windows, the requests and the rest.
func (b *payload) argv() []any {
	args := append(make([]any, 0, 3+len(b.rest)), b.limits, b.windows)
	if len(b.requests) > 0 {
		args = append(args, b.requests)
	}
	return append(args, b.rest...)
}
