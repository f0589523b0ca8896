package redisstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/limiter/reuse"
)

// idBytes of a permit's id are written to Redis: enough to tell the decisions of
// one window apart, in half the room.
const idBytes = 8

// valueBytes of a value tell it apart from the others of its key.
const valueBytes = 8

// A payload has the keys and arguments of one script call, in the bytes that Redis reads. It is filled in this order: a
// request begins, then for each of its claims window appends what names the window, if it is new, and claim appends
// what is asked of it.
type payload struct {
	keys      []byte // as commands carry them: those of the first window, of the second, and so on
	keyCount  int
	crossSlot bool // they are in several slots of one master

	limits     []byte           // ARGV[1], read by lua/limit.lua
	numbered   []*limiter.Limit // the limits in it, which windows name by their numbers from 1
	algorithms uint16           // of these, a bit each

	windows []byte      // ARGV[2], 3 bytes each: the number of its limit, and that of its first key (2 bytes), from 1
	index   windowIndex // the windows in it

	requests []byte // ARGV[3], read by lua/general/decide.lua
	follows  []byte // ARGV[4], a byte for each request: 1 if it is taken only if the one before was; nil if none is
	notes    []byte // ARGV[5], what granted requests note, read by lua/general/note.lua
	rest     []any  // arguments of other commands, in place of requests

	requestCount int
	resultCount  int       // numbers in the reply, without the time
	repeated     bool      // a request asks for a key that an earlier one has
	current      beginning // of the request that is written
	name         []byte    // scratch for the name of one key
}

// A beginning has the number of keys before a request, and the position of its result in the reply, from 1.
type beginning struct{ keys, result int }

// A windowIndex has the windows of a payload, at most maxClaims: too few for anything faster than looking at each.
type windowIndex []indexedWindow

// An indexedWindow is a window in a payload.
type indexedWindow struct {
	limit    *limiter.Limit
	slot     slot
	firstKey int // number of its first key
}

// Keys outlive what they must remember. Those of a token bucket live until the last permit
// has come back, so that without them there is nothing to read: TIME and the time by which
// keys expire may be read in two milliseconds.
const (
	keyTTLMargin = time.Second
	bucketSlack  = 2 * time.Millisecond
)

// newPayload returns a payload of the windows of claims, in their order: no two claims have the same.
func newPayload(n names, claims []limiter.Claim, rest ...any) *payload {
	p := &payload{rest: rest}
	for i := range claims {
		p.window(n, &claims[i])
	}
	return p
}

// emptied returns an empty payload with the memory of p.
func (p *payload) emptied() payload {
	clear(p.numbered)
	clear(p.index)
	return payload{
		keys: reuse.Memory(p.keys), limits: reuse.Memory(p.limits), numbered: reuse.Memory(p.numbered), windows: reuse.Memory(p.windows),
		index:    reuse.Memory(p.index),
		requests: reuse.Memory(p.requests), follows: reuse.Memory(p.follows), notes: reuse.Memory(p.notes), name: reuse.Memory(p.name),
	}
}

// find returns the position of the window of c, and that of a window with the same keys, which may be another one in the
// same packed string; -1 if there is none.
func (w windowIndex) find(c *limiter.Claim) (window, sharing int) {
	s := slotOf(c)
	sharing = -1
	for i := range w {
		switch o := &w[i]; {
		case o.slot != s:
		case isSameWindow(o.limit, c):
			return i, i
		case sharing < 0 && sameBox(o.limit, c.Limit):
			sharing = i
		}
	}
	return -1, sharing
}

// conflicts reports whether p has a window of claims with another version of its limit.
func (p *payload) conflicts(claims []limiter.Claim) bool {
	for i := range claims {
		if at, _ := p.index.find(&claims[i]); at >= 0 && !sameLimit(p.index[at].limit, claims[i].Limit) {
			return true
		}
	}
	return false
}

// window returns the number of the window of c. It appends the window unless it is there with the same limit, and its
// keys unless they are.
func (p *payload) window(n names, c *limiter.Claim) int {
	at, sharing := p.index.find(c)
	firstKey := p.keyCount + 1
	if sharing >= 0 {
		firstKey = p.index[sharing].firstKey
	} else {
		for i := range keyCount(c.Limit.Algorithm) {
			p.name = n.append(p.name[:0], c, i)
			p.keys = wire.AppendBulk(p.keys, p.name)
			p.keyCount++
		}
	}
	p.repeated = p.repeated || firstKey <= p.current.keys
	if at >= 0 && sameLimit(p.index[at].limit, c.Limit) {
		return at + 1
	}
	p.windows = binary.LittleEndian.AppendUint16(append(p.windows, p.limit(c.Limit)), uint16(firstKey))
	p.index = append(p.index, indexedWindow{c.Limit, slotOf(c), firstKey})
	return len(p.index)
}

// limit returns the number of l. It appends l, unless a limit that is the same to scripts is there.
func (p *payload) limit(l *limiter.Limit) byte {
	if i := slices.Index(p.numbered, l); i >= 0 { // as mostly
		return byte(i + 1)
	}
	for i, o := range p.numbered {
		if o.Algorithm == l.Algorithm && sameLimit(o, l) && fieldOf(o) == fieldOf(l) {
			return byte(i + 1)
		}
	}
	p.numbered = append(p.numbered, l)
	p.limits = appendLimit(p.limits, l)
	p.algorithms |= 1 << l.Algorithm
	return byte(len(p.numbered))
}

// fieldOf returns the name of the windows of l in packed strings; empty if they lie in keys of their own.
func fieldOf(l *limiter.Limit) (field string) {
	if l.Algorithm.IsPacked() {
		_, field = splitName(l.Name)
	}
	return field
}

// appendLimit appends what lua/limit.lua reads.
func appendLimit(out []byte, l *limiter.Limit) []byte {
	out = append(out, byte(l.Algorithm))
	out = binary.LittleEndian.AppendUint32(out, uint32(l.Rate.Count))
	out = appendTime(out, l.Rate.Window)
	out = binary.LittleEndian.AppendUint32(out, uint32(l.Capacity()))

	lengthAt := len(out)
	out = strconv.AppendInt(append(out, 0), timeToLive(l).Milliseconds(), 10)
	out[lengthAt] = byte(len(out) - lengthAt - 1)

	field := fieldOf(l)
	out = append(out, byte(len(field)+1), byte(len(field))) // the second begins the field in the string
	out = append(out, field...)

	lengthAt = len(out)
	out = append(out, 0, 0)
	for _, s := range l.Steps {
		out = appendTime(out, s)
	}
	if l.Algorithm.HasConversion() {
		out = append(out, byte(l.Conversion))
	}
	binary.LittleEndian.PutUint16(out[lengthAt:], uint16(len(out)-lengthAt-2))
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

// request begins a request of take or peek with the number of its claims, and the first half of the entries that record
// them in Redis: the length of the ID, and the ID. Its claims follow.
func (p *payload) request(id [16]byte, claims int) {
	p.requestCount++
	p.current = beginning{keys: p.keyCount, result: p.resultCount + 2}
	p.resultCount += 1 + 2*claims
	p.requests = append(append(p.requests, byte(claims), idBytes), id[:idBytes]...)
}

// claim appends the second half of the entry of c, which is the cost; then the number of its window, and the value
// where values are counted.
func (p *payload) claim(c *limiter.Claim, window int) {
	p.requests = binary.LittleEndian.AppendUint32(p.requests, uint32(c.Cost))
	p.requests = binary.LittleEndian.AppendUint16(p.requests, uint16(window))
	if c.Limit.Algorithm.HasValues() {
		p.requests = append(p.requests, c.Value[:valueBytes]...)
	}
}

// refund appends what permit took for claims, as lua/command/refund.lua reads it.
func (p *payload) refund(n names, claims []limiter.Claim, permit limiter.Permit) {
	p.requests = appendTime(append(p.requests, byte(len(claims))), time.Duration(max(0, permit.At.UnixMilli()))*time.Millisecond)
	p.requests = append(p.requests, permit.ID[:idBytes]...)
	for i := range claims {
		p.requests = binary.LittleEndian.AppendUint32(p.requests, uint32(claims[i].Cost))
		p.requests = binary.LittleEndian.AppendUint16(p.requests, uint16(p.window(n, &claims[i])))
	}
}

// packed returns the arguments that are bytes, without those at the end that no request has.
func (p *payload) packed() (all [5][]byte, n int) {
	all = [5][]byte{p.limits, p.windows, p.requests, p.follows, p.notes}
	n = len(all)
	for n > 2 && len(all[n-1]) == 0 {
		n--
	}
	return all, n
}

// args returns all arguments.
func (p *payload) args() (args []any) {
	packed, n := p.packed()
	for _, a := range packed[:n] {
		args = append(args, a)
	}
	return append(args, p.rest...)
}

// appendCall appends the command that runs sc on p, which has no other arguments.
func (p *payload) appendCall(out []byte, sc *script) []byte {
	packed, n := p.packed()
	if p.crossSlot { // they are arguments, behind their number
		out = append(wire.AppendHeader(out, '*', 4+p.keyCount+n), sc.call...)
		out = wire.AppendCount(out, 0)
	} else {
		out = append(wire.AppendHeader(out, '*', 3+p.keyCount+n), sc.call...) // EVALSHA, hash, number of keys
	}
	out = append(wire.AppendCount(out, p.keyCount), p.keys...)
	for _, a := range packed[:n] {
		out = wire.AppendBulk(out, a)
	}
	return out
}

// keyNames returns the names of all keys of p.
func (p *payload) keyNames() []string {
	all := make([]string, 0, p.keyCount)
	for rest := p.keys; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\r')
		n, _ := strconv.Atoi(string(rest[1:end]))
		begin := end + len("\r\n")
		all = append(all, string(rest[begin:begin+n]))
		rest = rest[begin+n+len("\r\n"):]
	}
	return all
}

// A windowID identifies the window of a key under a limit.
type windowID struct {
	limit     string
	algorithm limiter.Algorithm
	scope     limiter.Scope
	slot      slot
}

// A slot identifies what is in one slot of a cluster: a key, or the keys of one limiter
// shared with Redisson.
type slot struct {
	key      limiter.Key
	redisson string
}

func slotOf(c *limiter.Claim) slot {
	if c.RedissonName != "" {
		return slot{redisson: c.RedissonName}
	}
	return slot{key: c.Key}
}

// windowIDOf returns the window of c. All claims with the same Redisson limiter have the
// same window, because the limiter's config decides.
func windowIDOf(c *limiter.Claim) windowID {
	if c.RedissonName != "" {
		return windowID{slot: slotOf(c)}
	}
	return windowID{c.Limit.Name, c.Limit.Algorithm, c.Limit.Scope, slotOf(c)}
}

func sameLimit(a, b *limiter.Limit) bool {
	return a == b || a.Rate == b.Rate && a.Burst == b.Burst && a.Conversion == b.Conversion && slices.Equal(a.Steps, b.Steps)
}

// isSameWindow reports whether the window of l in the slot of c is the window of c.
func isSameWindow(l *limiter.Limit, c *limiter.Claim) bool {
	if c.RedissonName != "" || l == c.Limit {
		return true
	}
	return l.Algorithm == c.Limit.Algorithm && l.Scope == c.Limit.Scope && l.Name == c.Limit.Name
}

// sameBox reports whether the windows that two limits have of one key are stored in the
// same string.
func sameBox(a, b *limiter.Limit) bool {
	if a.Algorithm != b.Algorithm || a.Scope != b.Scope || !a.Algorithm.IsPacked() {
		return false
	}
	boxA, _ := splitName(a.Name)
	boxB, _ := splitName(b.Name)
	return boxA == boxB
}

// errType reports that a key of a window has another type, or holds data that is not
// valid. Reset deletes it. Nothing was taken, and other decisions are not affected.
var errType = fmt.Errorf("%w: a key in Redis is of another type than its limit keeps there; reset it", limiter.ErrUnreadable)

// numbersOf converts a reply of the client, a list of integers or one, to a list. It returns err if there is one.
func numbersOf(reply any, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	if n, ok := reply.(int64); ok {
		return []int64{n}, nil
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, wire.ErrReply
	}
	out := make([]int64, len(list))
	for i, v := range list {
		if out[i], ok = v.(int64); !ok {
			return nil, wire.ErrReply
		}
	}
	return out, nil
}

// readTime reads the time at the start of a reply. It returns err if there is one.
func readTime(list []int64, err error) (time.Time, []int64, error) {
	if err == nil && (len(list) == 0 || list[0] <= 0) {
		err = wire.ErrReply
	}
	if err != nil {
		return time.Time{}, nil, err
	}
	return time.UnixMilli(list[0]), list[1:], nil
}

// readOne reads a reply that contains one decision.
func readOne(list []int64, claims []limiter.Claim, d *limiter.Decision) error {
	at, rest, err := readTime(list, nil)
	if err == nil {
		rest, err = readDecision(rest, at, claims, d)
	}
	if err == nil && len(rest) > 0 {
		err = wire.ErrReply
	}
	return err
}

// readDecision reads one decision at the start of list into d, and checks the range of
// every number. It returns the rest of list, also with an error, which concerns this decision alone.
func readDecision(list []int64, at time.Time, claims []limiter.Claim, d *limiter.Decision) ([]int64, error) {
	if len(list) < 1+2*len(claims) {
		return nil, wire.ErrReply
	}
	allowed, rest := list[0], list[1+2*len(claims):]
	list = list[1 : 1+2*len(claims)]
	if allowed == 2 {
		return rest, badClaims(list, claims)
	}
	if allowed < 0 || allowed > 2 {
		return rest, wire.ErrReply
	}
	*d = limiter.Decision{Allowed: allowed == 1, At: at, Outcomes: d.Outcomes[:0]}
	for i := range claims {
		left, wait, ok := readClaim(list[2*i], list[2*i+1], &claims[i])
		if !ok || d.Allowed && left < 0 {
			return rest, wire.ErrReply
		}
		o := limiter.Outcome{
			Allowed:   d.Allowed || wait == 0,
			Remaining: max(0, left),
			Wait:      milliseconds(wait),
			Banned:    left < 0,
		}
		if !o.Allowed {
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	if !d.Allowed && d.Wait == 0 {
		return rest, wire.ErrReply // refused, but no limit refuses
	}
	return rest, nil
}

// badClaims returns the names of the limits whose windows are not readable.
func badClaims(list []int64, claims []limiter.Claim) error {
	var names []string
	for i, c := range claims {
		if list[2*i] == -2 {
			names = append(names, c.Limit.Name)
		}
	}
	if len(names) == 0 {
		return wire.ErrReply
	}
	return fmt.Errorf("%w: %s", errType, strings.Join(names, ", "))
}

// readClaim checks the remaining permits of a claim's limit, -1 if its key is banned, and
// the wait of the claim.
func readClaim(left, wait int64, c *limiter.Claim) (int64, int64, bool) {
	if left == -1 && wait > 0 {
		return left, wait, true
	}
	most, horizon := c.Limit.Capacity(), c.Limit.Horizon()
	if c.RedissonName != "" { // its config in Redis decides
		most, horizon = limiter.MaxCount, limiter.MaxWindow
	}
	isActive := c.Limit.Algorithm.HasValues() && wait == 0 // whatever remains
	ok := left >= 0 && wait >= 0 && left <= most && wait <= horizon.Milliseconds() && (isActive || (wait == 0) == (left >= c.Cost))
	return left, wait, ok
}
