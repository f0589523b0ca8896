package redisstore

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// valueBytes of a value tell it apart from the others of its key.
const valueBytes = 8

// A payload is what one script call asks: the windows that it touches, and what is
// to be done with them. Keys and arguments are written once, as Redis reads them.
type payload struct {
	keys        []byte // of the windows, in their order, as commands carry them
	nKeys       int
	limits      []byte    // one after another: see lua/frame.lua
	numbered    []limitOf // the limits that have a number, counted from 1
	windows     []byte    // of each the number of its limit, and of its first key, counted from 1
	requests    []byte    // one after another
	nRequests   int
	results     int       // numbers in the reply behind the time
	rest        []any     // what else the script is told
	algorithms  uint16    // the algorithms of all windows, a bit each
	windowCount int       // windows
	follows     []byte    // of each request 1 if it is taken only if the one before was; nil if none is
	notes       []byte    // what granted requests note: see lua/general/note.lua
	repeated    bool      // a request asks for a key that an earlier one has
	current     beginning // of the request that is written
	name        []byte    // of one key, while it is written
}

// A beginning is what is counted before a request. result is the place of its result in the reply, from 1.
type beginning struct{ keys, windows, result int }

// A limitOf is a limit as scripts are told of it.
type limitOf struct {
	limit *limiter.Limit
	tag   string
}

// slack is how long keys outlive what they must remember. Those of a token bucket live
// until the last permit has come back, so that without them there is nothing to read: TIME
// and the time by which keys expire may be read in two milliseconds.
const (
	keyTTLMargin = time.Second
	bucketSlack  = 2 * time.Millisecond
)

// newPayload makes a payload of the windows of claims, in their order.
func newPayload(n names, claims []limiter.Claim, rest ...any) *payload {
	p := &payload{rest: rest}
	firsts := make([]int, len(claims))
	for i := range claims {
		c := &claims[i]
		for j := range claims[:i] {
			if e := &claims[j]; c.RedissonName == "" && e.RedissonName == "" && e.Key == c.Key && sameBox(e.Limit, c.Limit) {
				firsts[i] = firsts[j]
				break
			}
		}
		_, firsts[i] = p.window(n, c, firsts[i])
	}
	return p
}

// emptied returns an empty payload with the memory of p.
func (p *payload) emptied() payload {
	clear(p.numbered)
	return payload{
		keys: p.keys[:0], limits: p.limits[:0], numbered: p.numbered[:0], windows: p.windows[:0],
		requests: p.requests[:0], follows: p.follows[:0], notes: p.notes[:0], name: p.name[:0],
	}
}

// window appends the window of c, which lies in the key of number first; 0: in keys
// of its own. It returns its number and that of its first key.
func (p *payload) window(n names, c *limiter.Claim, first int) (int, int) {
	if first == 0 {
		first = p.nKeys + 1
		p.key(n, c)
	}
	p.repeated = p.repeated || first <= p.current.keys
	p.windows = binary.LittleEndian.AppendUint16(append(p.windows, p.limit(c.Limit)), uint16(first))
	p.windowCount++
	return p.windowCount, first
}

// key appends the keys of the window of c.
func (p *payload) key(n names, c *limiter.Claim) {
	for i := range n.keyCount(c) {
		p.name = n.append(p.name[:0], c, i)
		p.keys = wire.AppendBulk(p.keys, p.name)
		p.nKeys++
	}
}

// limit appends l, unless one that scripts cannot tell from it is there, and returns
// its number.
func (p *payload) limit(l *limiter.Limit) byte {
	for i := range p.numbered {
		if p.numbered[i].limit == l {
			return byte(i + 1)
		}
	}
	tag := ""
	if isPacked(l.Algorithm) {
		_, tag = splitName(l.Name)
	}
	for i := range p.numbered {
		if o := &p.numbered[i]; o.limit.Algorithm == l.Algorithm && o.tag == tag && sameLimit(o.limit, l) {
			return byte(i + 1)
		}
	}
	p.numbered = append(p.numbered, limitOf{l, tag})
	p.limits = appendLimit(p.limits, l, tag)
	p.algorithms |= 1 << l.Algorithm
	return byte(len(p.numbered))
}

// appendLimit appends what lua/frame.lua reads.
func appendLimit(out []byte, l *limiter.Limit, tag string) []byte {
	out = append(out, byte(l.Algorithm))
	out = binary.LittleEndian.AppendUint32(out, uint32(l.Rate.Count))
	out = appendTime(out, l.Rate.Window)
	out = binary.LittleEndian.AppendUint32(out, uint32(l.Capacity()))
	ttl := len(out)
	out = strconv.AppendInt(append(out, 0), timeToLive(l).Milliseconds(), 10)
	out[ttl] = byte(len(out) - ttl - 1)
	out = append(out, byte(len(tag)+1), byte(len(tag)))
	out = append(out, tag...)
	at := len(out)
	out = append(out, 0, 0) // how long the steps are
	for _, s := range l.Steps {
		out = appendTime(out, s)
	}
	if l.Algorithm.HasConversion() {
		out = append(out, byte(l.Conversion))
	}
	binary.LittleEndian.PutUint16(out[at:], uint16(len(out)-at-2))
	return out
}

// timeToLive is how long keys of l live after what they last remember.
func timeToLive(l *limiter.Limit) time.Duration {
	if l.Algorithm.IsRedisson() {
		return l.Rate.Window + bucketSlack
	}
	return l.Horizon() + keyTTLMargin
}

// appendTime appends whole ms in 6 bytes.
func appendTime(out []byte, d time.Duration) []byte {
	n := len(out)
	return binary.LittleEndian.AppendUint64(out, uint64(d.Milliseconds()))[:n+6]
}

// request begins a request of take or peek: the number of its claims, and what begins
// the entry that records each in Redis, which is a length and the id. Its claims follow.
func (p *payload) request(id [16]byte, claims int) {
	p.nRequests++
	p.current = beginning{keys: p.nKeys, windows: p.windowCount, result: p.results + 2}
	p.results += 1 + 2*claims
	p.requests = append(append(p.requests, byte(claims), idBytes), id[:idBytes]...)
}

// claim appends what ends the entry of c, which is the cost, the number of its window,
// and the value where values are counted.
func (p *payload) claim(c *limiter.Claim, window int) {
	p.repeated = p.repeated || window <= p.current.windows
	p.requests = binary.LittleEndian.AppendUint32(p.requests, uint32(c.Cost))
	p.requests = binary.LittleEndian.AppendUint16(p.requests, uint16(window))
	if c.Limit.Algorithm.HasValues() {
		p.requests = append(p.requests, c.Value[:valueBytes]...)
	}
}

// args are all arguments: the limits, the windows, the requests and the rest.
func (p *payload) args() []any {
	args := append(make([]any, 0, 3+len(p.rest)), p.limits, p.windows)
	if len(p.requests) > 0 {
		args = append(args, p.requests)
	}
	if len(p.follows)+len(p.notes) > 0 {
		args = append(args, p.follows)
	}
	if len(p.notes) > 0 {
		args = append(args, p.notes)
	}
	return append(args, p.rest...)
}

// appendCall appends the command that runs sc on p.
func (p *payload) appendCall(out []byte, sc *script) []byte {
	n := 5 + p.nKeys // EVALSHA, hash, number of keys, limits, windows
	if len(p.requests) > 0 {
		n++
	}
	if len(p.follows)+len(p.notes) > 0 {
		n++
	}
	if len(p.notes) > 0 {
		n++
	}
	out = append(wire.AppendHeader(out, '*', n), sc.call...)
	out = append(wire.AppendCount(out, p.nKeys), p.keys...)
	out = wire.AppendBulk(wire.AppendBulk(out, p.limits), p.windows)
	if len(p.requests) > 0 {
		out = wire.AppendBulk(out, p.requests)
	}
	if len(p.follows)+len(p.notes) > 0 {
		out = wire.AppendBulk(out, p.follows)
	}
	if len(p.notes) > 0 {
		out = wire.AppendBulk(out, p.notes)
	}
	return out
}

// keyNames are the names of all keys of p.
func (p *payload) keyNames() []string {
	all := make([]string, 0, p.nKeys)
	for rest := p.keys; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\r')
		n, _ := strconv.Atoi(string(rest[1:end]))
		begin := end + len("\r\n")
		all = append(all, string(rest[begin:begin+n]))
		rest = rest[begin+n+len("\r\n"):]
	}
	return all
}
