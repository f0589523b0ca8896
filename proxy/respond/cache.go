package respond

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots is the number of refusals that a Cache keeps at most.
	cacheSlots = 256
	// cacheAfter is the number of equal refusals in a row, as far as they meet in a slot, after which the next is kept.
	// What keeping it costs is little for each of them, and refusals that are never the same do not pay it.
	cacheAfter = 16
)

// A Cache keeps rendered refusals. A flood of requests gets few different ones: until the second changes,
// they differ only in the id of the request and in the jitter of Retry-After. B is the form in which a downstream
// sends fields. A Cache takes 4 KB, and about 1 KB for each refusal that it keeps, at most 260 KB, whatever the
// number of routes. It is safe for concurrent use.
type Cache[B any] struct {
	render func(fields []Field) *B
	slots  [cacheSlots]cacheSlot[B]
}

// A cacheSlot holds a refusal.
type cacheSlot[B any] struct {
	missed atomic.Uint64 // the hash of the refusal that was last not found, and how often in its last byte
	kept   atomic.Pointer[cachedRefusal[B]]
}

// A cachedRefusal is the response to a request, for all requests with another id of the same length.
type cachedRefusal[B any] struct {
	of       *RateLimitFields
	state    []int64
	response Response
	block    *B
	idAt     int // where the body has the id of the request; -1 if it has none
}

// NewCache returns an empty Cache. render renders the fields of a response; nil is a response that is not kept.
func NewCache[B any](render func(fields []Field) *B) *Cache[B] { return &Cache[B]{render: render} }

// TooManyRequests returns the same response as l, and its fields without Content-Length as they were
// rendered before, or nil. All request ids must have the same length and be unlike any other text. r must have a
// Buffer.
func (c *Cache[B]) TooManyRequests(l *RateLimitFields, r *Refusal) (Response, *B) {
	m := r.Buffer
	if len(r.Without)+len(r.Counts) > 0 || l.reject.hasOrigin {
		return l.TooManyRequests(*r), nil
	}
	m.state = l.appendState(m.state[:0], r)
	hash := l.seed
	for _, v := range m.state {
		hash = (hash ^ uint64(v)) * 0x9E3779B97F4A7C15
	}
	slot := &c.slots[hash>>56]
	if k := slot.kept.Load(); k != nil && k.of == l && slices.Equal(k.state, m.state) {
		m.body = append(m.body[:0], k.response.Body...)
		if k.idAt >= 0 {
			copy(m.body[k.idAt:], r.RequestID)
		}
		return Response{k.response.Status, k.response.Fields, m.body}, k.block
	}
	answer := l.TooManyRequests(*r)
	switch missed := slot.missed.Load(); {
	case missed>>8 != hash>>8:
		slot.missed.Store(hash &^ 0xff)
	case missed&0xff < cacheAfter-1:
		slot.missed.Store(missed + 1)
	default:
		if k := c.keep(answer, r.RequestID); k != nil {
			k.of, k.state = l, slices.Clone(m.state)
			slot.kept.Store(k)
		}
	}
	return answer, nil
}

// keep returns a copy of a response, or nil if the id of the request is in one of its fields or more than once in its
// body.
func (c *Cache[B]) keep(answer Response, id string) *cachedRefusal[B] {
	k := &cachedRefusal[B]{idAt: bytes.Index(answer.Body, []byte(id))}
	if id == "" || bytes.LastIndex(answer.Body, []byte(id)) != k.idAt {
		return nil
	}
	k.response = Response{Status: answer.Status, Fields: slices.Clip(slices.Clone(answer.Fields)),
		Body: bytes.Clone(answer.Body)}
	for i := range k.response.Fields {
		f := &k.response.Fields[i]
		if strings.Contains(f.Value, id) {
			return nil
		}
		f.Value = strings.Clone(f.Value)
	}
	if k.block = c.render(k.response.Fields[:len(k.response.Fields)-1]); k.block == nil { // all but Content-Length
		return nil
	}
	return k
}

// appendState appends all that distinguishes the response to r from others of l, except for the request id and Without.
func (l *RateLimitFields) appendState(state []int64, r *Refusal) []int64 {
	state = append(state, l.retryAfter(r))
	for i := range r.Decision.Outcomes {
		p := l.policyOf(&r.Verdict, i)
		if p == nil {
			state = append(state, -1)
			continue
		}
		o := &r.Decision.Outcomes[i]
		flags := int64(0)
		if o.Allowed {
			flags |= 1
		}
		if o.Unknown {
			flags |= 2
		}
		state = append(state, flags, int64(p.index), p.remaining(o), p.reset(o))
	}
	return state
}
