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
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/proxy/protobuf"
)

const (
	// maxQueued is the maximum number of queued spans, about 2 MB.
	maxQueued = 4096
	// batchSize is the maximum number of spans in one call; as many queued spans are
	// sent at once.
	batchSize = 512
	// sendInterval is how long spans are queued to be sent together.
	sendInterval = time.Second
	// sendTimeout bounds one call to the collector.
	sendTimeout = 10 * time.Second
	// maxAttempts is how often a batch is sent before it is dropped.
	maxAttempts = 5
	// flushTimeout bounds the calls that are made when Weir stops, also the one that is being made then.
	flushTimeout = 2 * time.Second
)

// Options configure an Exporter.
type Options struct {
	Endpoint string            // URL of the collector, with its path
	Headers  map[string]string // added to each call, an API key for example; may be nil
	Service  string            // service.name
	Version  string            // service.version
	Instance string            // service.instance.id
	// Client sends the spans; nil means a client of the Exporter's own.
	Client *http.Client
}

// An Exporter sends spans to a collector. Its methods are safe for concurrent use, and
// those of a nil Exporter do nothing.
type Exporter struct {
	options  Options
	resource *resourcepb.Resource
	exported *prometheus.CounterVec // by result
	wake     chan struct{}          // buffered: a full batch is queued

	mu     sync.Mutex // guards what follows; never held while sending
	queued []*Span
}

// NewExporter returns an Exporter. It sends nothing before Run.
func NewExporter(o Options, r prometheus.Registerer) *Exporter {
	if o.Client == nil {
		stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		o.Client = &http.Client{Timeout: sendTimeout, CheckRedirect: stay}
	}
	e := &Exporter{
		options: o, wake: make(chan struct{}, 1),
		exported: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "weir_trace_spans_total", Help: "Spans, by result.",
		}, []string{"result"}),
		resource: &resourcepb.Resource{Attributes: []Attribute{
			String("service.name", o.Service), String("service.version", o.Version),
			String("service.instance.id", o.Instance),
			String("telemetry.sdk.name", "weir"), String("telemetry.sdk.language", "go"),
		}},
	}
	for _, result := range []string{"sent", "failed", "dropped"} {
		e.exported.WithLabelValues(result)
	}
	return e
}

// Add queues the spans of one request, or drops all of them if the queue is full. It
// never blocks.
func (e *Exporter) Add(spans []*Span) {
	if e == nil {
		return
	}
	e.mu.Lock()
	room := len(e.queued)+len(spans) <= maxQueued
	if room {
		e.queued = append(e.queued, spans...)
	}
	many := len(e.queued) >= batchSize
	e.mu.Unlock()
	if !room {
		e.count("dropped", len(spans))
	}
	if many {
		select {
		case e.wake <- struct{}{}:
		default: // Run has been woken already
		}
	}
}

func (e *Exporter) count(result string, n int) { e.exported.WithLabelValues(result).Add(float64(n)) }

// Run sends spans until ctx is done, and then flushes the queue.
func (e *Exporter) Run(ctx context.Context) {
	if e == nil {
		return
	}
	tick := time.NewTicker(sendInterval)
	defer tick.Stop()
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-tick.C:
		}
		e.sendAll(sending)
	}
	e.sendAll(sending) // what has come since
	e.options.Client.CloseIdleConnections()
}

// sendAll sends the queued spans, or drops them.
func (e *Exporter) sendAll(ctx context.Context) {
	for {
		e.mu.Lock()
		n := min(len(e.queued), batchSize)
		spans := e.queued[:n:n]
		e.queued = e.queued[n:]
		if len(e.queued) == 0 {
			e.queued = nil // for the garbage collector
		}
		e.mu.Unlock()
		if n == 0 {
			return
		}
		e.sendWithRetry(ctx, spans)
	}
}

// data returns the message for spans.
func (e *Exporter) data(spans []*Span) *tracepb.TracesData {
	messages := make([]*tracepb.Span, len(spans))
	for i, s := range spans {
		messages[i] = s.message()
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: e.resource,
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "weir", Version: e.options.Version}, Spans: messages,
		}},
	}}}
}

const (
	// minBackoff is the pause after the first failed attempt; it doubles with each
	// further one. maxBackoff is the longest pause that the collector can ask for with
	// Retry-After.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxResponse is how much of a response is read.
	maxResponse = 64 << 10
)

// errRetryable reports that the same spans may be sent again.
var errRetryable = errors.New("the spans may be sent again")

// sendWithRetry sends spans until the collector accepts or rejects them, maxAttempts
// is reached, or ctx is done.
func (e *Exporter) sendWithRetry(ctx context.Context, spans []*Span) {
	// A TracesData has the same encoding as an ExportTraceServiceRequest.
	body, err := proto.Marshal(e.data(spans))
	pause := minBackoff
	for attempt := 1; err == nil; attempt++ {
		refused, retryAfter, sendErr := e.send(ctx, body)
		if sendErr == nil {
			e.count("sent", len(spans)-refused)
			e.count("failed", refused)
			return
		}
		if !errors.Is(sendErr, errRetryable) || attempt == maxAttempts {
			break
		}
		select {
		case <-time.After(max(min(retryAfter, maxBackoff), pause/2+rand.N(pause/2))): // jitter
		case <-ctx.Done():
			err = ctx.Err()
		}
		pause = min(2*pause, maxBackoff)
		e.options.Client.CloseIdleConnections() // one that is silent would hold the same spans up again
	}
	e.count("failed", len(spans))
}

// send sends a message, and returns how many of its spans the collector rejected, or with errRetryable its
// Retry-After, 0 without one.
func (e *Exporter) send(ctx context.Context, body []byte) (refused int, retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.options.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	for name, value := range e.options.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "weir/"+e.options.Version)
	res, err := e.options.Client.Do(r)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errRetryable, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 502 && res.StatusCode <= 504:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		retryAfter = time.Duration(max(seconds, 0)) * time.Second
		return 0, retryAfter, fmt.Errorf("%w: collector answers %s", errRetryable, res.Status)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return 0, 0, fmt.Errorf("collector answers %s", res.Status)
	case err != nil:
		return 0, 0, nil // accepted, although the details are unreadable
	}
	return rejected(answer), 0, nil
}

// rejected returns the number of rejected spans in an ExportTraceServiceResponse: field
// 1 of its field 1. What cannot be read rejects none.
func rejected(answer []byte) int {
	var n uint64
	err := protobuf.Decode(answer, protobuf.Fields{1: func(partial []byte) error {
		return protobuf.Decode(partial, protobuf.Fields{1: &n}, nil)
	}}, nil)
	if err != nil || n > batchSize {
		return 0
	}
	return int(n)
}

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
