// Package trace sends traces of requests to a collector, by OpenTelemetry's protocol
// over HTTP (OTLP/HTTP, protobuf), and reads and writes the fields by which a trace goes
// from process to process (W3C Trace Context).
//
// A span is handed to an [Exporter] when it is over. Nobody waits for the collector: an
// exporter keeps a bounded number of spans in memory, and drops and counts what is more.
//
// The messages are those that OpenTelemetry generates. Its SDK is not used: it makes the
// process 3 MB larger from the start, also where nothing is traced, links gRPC, and asks
// for a span to be made before it is known what of it is worth telling.
package trace

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// An ID is that of a trace.
type ID [16]byte

// A SpanID is that of a span within its trace.
type SpanID [8]byte

// The flags of traceparent that mean something here.
const (
	flagSampled = 1
	flagRandom  = 2 // the trace's ID is random; passed on as it came
)

// A Context is a span as other processes are told of it.
type Context struct {
	Trace ID
	Span  SpanID
	flags byte
}

// Sampled reports whether the span is recorded.
func (c Context) Sampled() bool { return c.flags&flagSampled != 0 }

// parentLength is the length of a traceparent of version 00.
const parentLength = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// Parse reads a traceparent. One of a later version is read as far as version 00 goes.
func Parse(text string) (c Context, ok bool) {
	if len(text) < parentLength || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], text[:2]) || !decode(c.Trace[:], text[3:35]) || !decode(c.Span[:], text[36:52]) || !decode(flags[:], text[53:55]) {
		return Context{}, false
	}
	if version[0] == 0xff || version[0] == 0 && len(text) != parentLength || len(text) > parentLength && text[parentLength] != '-' {
		return Context{}, false
	}
	c.flags = flags[0] & (flagSampled | flagRandom)
	return c, c.Trace != ID{} && c.Span != SpanID{}
}

// decode reads lower-case hexadecimal digits, the only ones that traceparent may have.
func decode(to []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// String is c as a traceparent.
func (c Context) String() string {
	b := append(make([]byte, 0, parentLength), "00-"...)
	b = append(hex.AppendEncode(b, c.Trace[:]), '-')
	b = append(hex.AppendEncode(b, c.Span[:]), '-')
	return string(hex.AppendEncode(b, []byte{c.flags}))
}

// String is id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// NewSpanID is the ID of another span.
func NewSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Child is a span below c, in the same trace, and recorded if c is.
func (c Context) Child() Context { return Context{c.Trace, NewSpanID(), c.flags} }

// Root is the first span of a trace, of which this share is recorded.
func Root(share float64) Context {
	c := Context{Span: NewSpanID(), flags: flagRandom}
	chance := rand.Uint64()
	binary.BigEndian.PutUint64(c.Trace[:8], rand.Uint64())
	binary.BigEndian.PutUint64(c.Trace[8:], chance|1) // never all zeros
	if float64(chance>>11)/(1<<53) < share {
		c.flags |= flagSampled
	}
	return c
}
