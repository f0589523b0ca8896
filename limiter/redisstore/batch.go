package redisstore

import (
	"encoding/binary"

	"github.com/weir-proxy/weir/limiter"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// A batch is what one script call asks: the windows that it touches, and
// requests that name windows by number.
type batch struct {
	keys     []string // three a window: value, permits, base
	windows  []any    // two a window: rate, length
	requests []any    // packed: the id, then window and cost of each claim
}

// add appends one request and the windows of its claims.
func (b *batch) add(prefix string, claims []limiter.Claim, id [16]byte) {
	request := make([]byte, 0, idBytes+6*len(claims))
	request = append(request, id[:idBytes]...)
	for _, c := range claims {
		request = binary.LittleEndian.AppendUint16(request, uint16(b.window(prefix, c)))
		request = binary.LittleEndian.AppendUint32(request, uint32(c.Cost))
	}
	b.requests = append(b.requests, request)
}

// window appends the window of c and returns its number, counted from 1.
func (b *batch) window(prefix string, c limiter.Claim) int {
	name := windowName(prefix, c.Limit.Name, c.Key)
	b.keys = append(b.keys, name+":value", name+":permits", name+":base")
	b.windows = append(b.windows, c.Limit.Rate.Count, c.Limit.Rate.Window.Milliseconds())
	return len(b.windows) / 2
}

// args are the arguments of take and peek.
func (b *batch) args() []any {
	args := make([]any, 0, 1+len(b.windows)+len(b.requests))
	args = append(args, len(b.windows)/2)
	args = append(args, b.windows...)
	return append(args, b.requests...)
}

// refund adds the windows of claims and returns the arguments of refund.
func (b *batch) refund(prefix string, claims []limiter.Claim, p limiter.Permit) []any {
	for _, c := range claims {
		b.window(prefix, c)
	}
	args := append(b.args(), p.ID[:idBytes], p.At.UnixMilli())
	for _, c := range claims {
		args = append(args, c.Cost)
	}
	return args
}

// windowName is the name of the Redisson rate limiter that keeps one limit of
// one key. The braces make all limits of a key share a cluster slot.
func windowName(prefix, limit string, k limiter.Key) string {
	return prefix + ":{" + k.String() + "}:" + limit
}
