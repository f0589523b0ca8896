package redisstore

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// valueBytes of a value tell it apart from the others of its key.
const valueBytes = 8

// A batch is what one script call asks: the windows that it touches, and what is
// to be done with them.
type batch struct {
	keys     []string // of the windows, in their order
	limits   []any    // five a limit: see list_windows
	numbers  map[limitID]byte
	windows  []byte // the number of each window's limit, counted from 1
	requests []byte // one after another
	rest     []any  // what else the script is told
	kinds    uint16 // the algorithms of all windows, a bit each
	asked    int    // requests
	branched bool   // a request has several claims, or a window that an earlier one has
}

// A limitID is what scripts are told of a limit.
type limitID struct {
	rate  limiter.Rate
	burst int64
	steps string
	kind  int
}

// slack is how long keys outlive what they must remember.
const slack = time.Second

// newBatch makes a batch of the windows of claims, in their order.
func newBatch(n names, claims []limiter.Claim, rest ...any) *batch {
	b := &batch{rest: rest}
	for _, c := range claims {
		b.window(n, c)
	}
	return b
}

// window appends the window of c and returns its number, counted from 1.
func (b *batch) window(n names, c limiter.Claim) int {
	b.keys = append(b.keys, n.keys(c)...)
	b.windows = append(b.windows, b.limit(c))
	return len(b.windows)
}

// limit appends the limit of c, unless it is there, and returns its number.
func (b *batch) limit(c limiter.Claim) byte {
	l := c.Limit
	id := limitID{rate: l.Rate, burst: l.Burst, kind: int(l.Algorithm)}
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
	most := any(l.Most())
	if id.steps != "" {
		most = id.steps
	}
	b.limits = append(b.limits, id.kind, l.Rate.Count, l.Rate.Window.Milliseconds(), most, (l.Horizon() + slack).Milliseconds())
	b.kinds |= 1 << id.kind
	return n
}

// request appends a request of take or peek: the number of its claims, and for each
// the entry that records it in Redis, which is a length, the id and the cost, the
// number of its window, which window tells, and the value where values are counted.
func (b *batch) request(id [16]byte, claims []limiter.Claim, window func(c limiter.Claim) int) {
	b.requests = append(b.requests, byte(len(claims)))
	b.asked++
	for _, c := range claims {
		number := window(c)
		b.branched = b.branched || len(claims) > 1 || number != b.asked
		b.requests = append(append(b.requests, idBytes), id[:idBytes]...)
		b.requests = binary.LittleEndian.AppendUint32(b.requests, uint32(c.Cost))
		b.requests = binary.LittleEndian.AppendUint16(b.requests, uint16(number))
		if c.Limit.Algorithm == limiter.Distinct {
			b.requests = append(b.requests, c.Value[:valueBytes]...)
		}
	}
}

// argv are all arguments: the limits, the windows, the requests and the rest.
func (b *batch) argv() []any {
	args := make([]any, 0, 3+len(b.limits)+len(b.rest))
	args = append(args, len(b.numbers))
	args = append(args, b.limits...)
	args = append(args, b.windows)
	if len(b.requests) > 0 {
		args = append(args, b.requests)
	}
	return append(args, b.rest...)
}
