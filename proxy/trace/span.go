package trace

import (
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// A Kind is the role of a span in a call.
type Kind uint8

// The kinds of spans.
const (
	Internal Kind = iota
	Server
	Client
)

// A Span is a finished operation.
type Span struct {
	SpanContext
	Parent     SpanID // zero if there is none
	State      string // tracestate, forwarded unchanged
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	Failed     bool
}

// An Attribute describes a span. Names follow OpenTelemetry's semantic conventions
// where one applies.
type Attribute struct {
	name   string
	text   string
	number int64
	isText bool
}

// String returns an attribute with a string value.
func String(name, value string) Attribute { return Attribute{name: name, text: value, isText: true} }

// Int64 returns an attribute with an integer value.
func Int64(name string, value int64) Attribute { return Attribute{name: name, number: value} }

// message returns the protobuf message of s.
func (s *Span) message() *tracepb.Span {
	m := &tracepb.Span{
		TraceId: s.Trace[:], SpanId: s.Span[:], TraceState: s.State, Name: validUTF8(s.Name), Flags: uint32(s.flags),
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.End.UnixNano()),
		Kind: [...]tracepb.Span_SpanKind{tracepb.Span_SPAN_KIND_INTERNAL, tracepb.Span_SPAN_KIND_SERVER, tracepb.Span_SPAN_KIND_CLIENT}[s.Kind],
	}
	if s.Parent != (SpanID{}) {
		m.ParentSpanId = s.Parent[:]
	}
	if s.Failed {
		m.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	m.Attributes = messages(s.Attributes)
	return m
}

func messages(attributes []Attribute) (all []*commonpb.KeyValue) {
	for _, a := range attributes {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: a.number}}
		if a.isText {
			value.Value = &commonpb.AnyValue_StringValue{StringValue: validUTF8(a.text)}
		}
		all = append(all, &commonpb.KeyValue{Key: a.name, Value: value})
	}
	return all
}

// validUTF8 replaces invalid UTF-8 in s: a collector refuses a whole batch for one invalid byte in
// a protobuf string.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
