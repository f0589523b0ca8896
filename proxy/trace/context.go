// Package trace sends traces of requests to a collector by OTLP over HTTP (OpenTelemetry protocol,
// protobuf encoding), and reads and writes the fields that propagate a trace between processes (W3C
// Trace Context).
//
// A finished span is passed to an [Exporter]. Requests never wait for the collector: the
// exporter queues a bounded number of spans in memory, and drops and counts the rest.
//
// The protobuf messages are OpenTelemetry's. Its SDK is not used: it costs 3 MB of
// memory even where tracing is off, links gRPC, and requires a span to be created at the
// beginning of a request, before it is known what to record.
package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// A TraceID is a trace ID.
type TraceID [16]byte

// A SpanID identifies a span within its trace.
type SpanID [8]byte

// The flags of traceparent.
const (
	flagSampled = 1
	flagRandom  = 2 // the trace's ID is random; forwarded unchanged
)

// A SpanContext is a span context (W3C Trace Context): what is propagated to other
// processes.
type SpanContext struct {
	Trace TraceID
	Span  SpanID
	flags byte
}

// Sampled reports whether the span is recorded.
func (c SpanContext) Sampled() bool { return c.flags&flagSampled != 0 }

// parentLength is the length of a traceparent of version 00.
const parentLength = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// Parse parses a traceparent. Of a later version it reads the fields of version 00.
func Parse(text string) (c SpanContext, ok bool) {
	if len(text) < parentLength || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return SpanContext{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], text[:2]) || !decode(c.Trace[:], text[3:35]) || !decode(c.Span[:], text[36:52]) ||
		!decode(flags[:], text[53:55]) {
		return SpanContext{}, false
	}
	if version[0] == 0xff || version[0] == 0 && len(text) != parentLength ||
		len(text) > parentLength && text[parentLength] != '-' {
		return SpanContext{}, false
	}
	c.flags = flags[0] & (flagSampled | flagRandom)
	return c, c.Trace != TraceID{} && c.Span != SpanID{}
}

// decode decodes lower-case hexadecimal digits; traceparent allows no others.
func decode(to []byte, text string) bool {
	_, err := hex.Decode(to, []byte(text))
	return err == nil && text == strings.ToLower(text)
}

// String returns c as a traceparent.
func (c SpanContext) String() string {
	b := append(make([]byte, 0, parentLength), "00-"...)
	b = append(hex.AppendEncode(b, c.Trace[:]), '-')
	b = append(hex.AppendEncode(b, c.Span[:]), '-')
	return string(hex.AppendEncode(b, []byte{c.flags}))
}

// String returns t in hexadecimal.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// NewSpanID returns a random span ID.
func NewSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Child returns a new span context in the trace of c. It is sampled if c is.
func (c SpanContext) Child() SpanContext { return SpanContext{c.Trace, NewSpanID(), c.flags} }

// Root returns the context of the first span of a new trace. share is the
// sampling ratio.
func Root(share float64) SpanContext {
	c := SpanContext{Span: NewSpanID(), flags: flagRandom}
	chance := rand.Uint64()
	binary.BigEndian.PutUint64(c.Trace[:8], rand.Uint64())
	binary.BigEndian.PutUint64(c.Trace[8:], chance|1) // an ID must not be zero
	if float64(chance>>11)/(1<<53) < share {
		c.flags |= flagSampled
	}
	return c
}

// The kinds of spans that are not internal to Weir.
const (
	Server = tracepb.Span_SPAN_KIND_SERVER
	Client = tracepb.Span_SPAN_KIND_CLIENT
)

// A Span is a finished operation.
type Span struct {
	SpanContext
	Parent     SpanID // zero if there is none
	State      string // tracestate, forwarded unchanged
	Name       string
	Kind       tracepb.Span_SpanKind // the zero Kind is internal
	Start, End time.Time
	Attributes []Attribute
	Failed     bool
}

// An Attribute describes a span. Names follow OpenTelemetry's semantic conventions
// where one applies.
type Attribute = *commonpb.KeyValue

// String returns an attribute with a string value.
func String(name, value string) Attribute {
	text := &commonpb.AnyValue_StringValue{StringValue: validUTF8(value)}
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: text}}
}

// Int64 returns an attribute with an integer value.
func Int64(name string, value int64) Attribute {
	number := &commonpb.AnyValue_IntValue{IntValue: value}
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: number}}
}

// message returns the protobuf message of s.
func (s *Span) message() *tracepb.Span {
	m := &tracepb.Span{
		TraceId: s.Trace[:], SpanId: s.Span[:], TraceState: s.State, Name: validUTF8(s.Name), Flags: uint32(s.flags),
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.End.UnixNano()),
		Kind:       cmp.Or(s.Kind, tracepb.Span_SPAN_KIND_INTERNAL),
		Attributes: s.Attributes,
	}
	if s.Parent != (SpanID{}) {
		m.ParentSpanId = s.Parent[:]
	}
	if s.Failed {
		m.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return m
}

// validUTF8 replaces invalid UTF-8 in s: a collector refuses a whole batch for one invalid byte in
// a protobuf string.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
