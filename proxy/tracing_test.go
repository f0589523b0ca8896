package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/proxy/trace"
	"github.com/weir-proxy/weir/test/filetest"
)

const clientParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A tracedProxy is a proxy that traces to a collector, and what that got.
type tracedProxy struct {
	*testProxy
	flush    func()      // until all spans are sent
	upstream http.Header // of the last request that the upstream got

	mu   sync.Mutex // guards what follows
	data []*tracepb.TracesData
}

// newTracedProxy makes a proxy with these lines under traces, and with routes to an upstream
// that answers 200, or what X-Answer says.
func newTracedProxy(t *testing.T, traces string) *tracedProxy {
	w := &tracedProxy{}
	collector := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		data := &tracepb.TracesData{}
		if err == nil {
			err = proto.Unmarshal(body, data)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.URL.Path != "/v1/traces" || r.Header.Get("X-Team") != "b" {
			t.Errorf("%s %v: %v", r.URL, r.Header, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.data = append(w.data, data)
	})
	upstream := startUpstream(t, func(a http.ResponseWriter, r *http.Request) {
		w.upstream = r.Header.Clone()
		if r.Header.Get("X-Answer") == "503" {
			a.WriteHeader(503)
		}
	})
	config := "traces: {endpoint: " + collector + ", headers: {X-Team: b}, " + traces + "}\nclient_ip: {trusted_proxies: [192.0.2.0/24]}\n" + `
upstreams: {api: {targets: ["` + upstream + `"]}, gone: {targets: ["http://127.0.0.1:1"]}}
routes:
  - {name: a, match: {path: "/a/{phone}"}, upstream: api, limits: [{name: user, key: "header:X-User", rate: 2/1h}, {name: phone, key: "path:phone", rate: 100/1h}]}
  - {name: free, match: {path: /free}, upstream: api}
  - {name: gone, match: {path: /gone}, upstream: gone}
`
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	w.testProxy = newProxy(t, config, func(o *Options) {
		c := o.Config.Traces
		o.Traces = trace.NewExporter(trace.Options{Endpoint: c.Endpoint, Headers: c.Headers, Service: c.Service}, prometheus.NewRegistry())
		running.Go(func() { o.Traces.Run(ctx) })
	})
	w.flush = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(w.flush)
	return w
}

// spans are those that the collector has got, by name.
func (t *tracedProxy) spans() map[string]*tracepb.Span {
	t.flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]*tracepb.Span{}
	for _, data := range t.data {
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					all[s.GetName()] = s
				}
			}
		}
	}
	return all
}

// attributes are those of a span, as text.
func attributes(all []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		out[a.GetKey()] = a.GetValue().GetStringValue()
		if n, is := a.GetValue().GetValue().(*commonpb.AnyValue_IntValue); is {
			out[a.GetKey()] = strconv.FormatInt(n.IntValue, 10)
		}
	}
	return out
}

// A request has a span, in the trace of whoever asked, with one each for the decision
// and the upstream below it; the upstream learns of its own.
func TestTraces_SpansOfARequest(t *testing.T) {
	w := newTracedProxy(t, "sample: 0%")
	began := time.Now()
	id := w.sends(200, "GET", "/a/13800138000?token=sesame", "X-User: alice-in-chains", "Traceparent: "+clientParent, "Tracestate: a=1", "Tracestate: b=2").Header().Get("X-Request-Id")
	spans := w.spans()
	request, decide, forward := spans["GET /a/{phone}"], spans["decide"], spans["GET api"]
	if len(spans) != 3 || request == nil || decide == nil || forward == nil {
		t.Fatalf("spans %v", spans)
	}
	parent, _ := trace.Parse(clientParent)
	if !bytes.Equal(request.GetParentSpanId(), parent.Span[:]) || request.GetTraceState() != "a=1,b=2" || request.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the request's span is %v", request)
	}
	for _, s := range spans {
		if !bytes.Equal(s.GetTraceId(), parent.Trace[:]) || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || s.GetStartTimeUnixNano() < uint64(began.UnixNano()) || s.GetStatus() != nil {
			t.Errorf("%v", s)
		}
		if s != request && (!bytes.Equal(s.GetParentSpanId(), request.GetSpanId()) || s.GetEndTimeUnixNano() > request.GetEndTimeUnixNano()) {
			t.Errorf("%s is not within the request", s.GetName())
		}
	}
	told, ok := trace.Parse(w.upstream.Get("Traceparent"))
	if !ok || !bytes.Equal(told.Span[:], forward.GetSpanId()) || told.Trace != parent.Trace || !told.Sampled() || w.upstream.Get("Tracestate") != "a=1,b=2" || len(w.upstream["Traceparent"]) != 1 {
		t.Errorf("the upstream is told %v, its span is %x", w.upstream, forward.GetSpanId())
	}
	for name, want := range map[string]string{
		"http.request.method": "GET", "http.route": "/a/{phone}", "weir.route": "a", "url.path": "/a/*", "http.response.status_code": "200",
		"weir.request_id": id, "client.address": "192.0.2.1", "server.address": "example.com", "network.protocol.version": "1.1", "url.scheme": "http",
	} {
		if got := attributes(request.GetAttributes())[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := attributes(decide.GetAttributes()); got["weir.decision"] != "allowed" || len(got) != 1 {
		t.Errorf("the decision is %v", got)
	}
	if line := w.lines("request")[0]; line["trace_id"] != parent.Trace.String() {
		t.Errorf("the log has %v", line["trace_id"])
	}
	if text := w.scrape("application/openmetrics-text; version=1.0.0"); !strings.Contains(text, `# {trace_id="`+parent.Trace.String()+`",request_id="`+id+`"}`) {
		t.Errorf("no exemplar of the trace:\n%s", text)
	}
	for _, data := range w.data {
		for _, secret := range []string{"13800138000", "sesame", "alice"} {
			if strings.Contains(protojson.Format(data), secret) {
				t.Errorf("%s is in the trace", secret)
			}
		}
		if got := attributes(data.GetResourceSpans()[0].GetResource().GetAttributes())["service.name"]; got != "weir" {
			t.Errorf("the service is %q", got)
		}
	}
}

// What became of a request is told: refused, by which limit, failed, and never routed.
func TestTraces_WhatBecameOfIt(t *testing.T) {
	w := newTracedProxy(t, "sample: 100%")
	w.sendsAll([]int{200, 200, 429}, "GET", "/a/1", "X-User: alice")
	refusal := w.spans()
	if got := attributes(refusal["decide"].GetAttributes()); got["weir.decision"] != "refused" || got["weir.limit"] != "user" || got["weir.rate"] != "user-1h" {
		t.Errorf("%v", got)
	}
	if s := refusal["GET /a/{phone}"]; s.GetStatus() != nil || len(s.GetParentSpanId()) != 0 {
		t.Errorf("%v; want a trace of its own, which is no failure", s)
	}
	broken := newTracedProxy(t, "sample: 100%")
	broken.sends(502, "GET", "/gone")
	broken.sends(503, "POST", "/free", "X-Answer: 503")
	broken.sends(404, "BREW", "/nowhere/13800138000")
	spans := broken.spans()
	if s := spans["GET gone"]; s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || attributes(s.GetAttributes())["error.type"] != "connect" {
		t.Errorf("%v", s)
	}
	if s := spans["POST api"]; s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || attributes(s.GetAttributes())["error.type"] != "" {
		t.Errorf("%v", s)
	}
	if s := spans["_OTHER"]; attributes(s.GetAttributes())["url.path"] != "/nowhere/*" || s.GetStatus() != nil {
		t.Errorf("%v", s)
	}
	if spans["decide"] != nil || len(spans) != 5 {
		t.Errorf("%d spans %v; want none of a decision where there is no limit", len(spans), spans)
	}
}

// A version is told as OpenTelemetry writes it, and never as an empty text.
func TestTraces_ProtocolVersion(t *testing.T) {
	for proto, want := range map[string]string{"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2", "": ""} {
		got := ""
		for _, a := range given(trace.String("network.protocol.version", protocolVersion(proto))) {
			got += fmt.Sprint(a)
		}
		if wanted := fmt.Sprint(trace.String("network.protocol.version", want)); want != "" && got != wanted || want == "" && got != "" {
			t.Errorf("%q: got %q, want %q", proto, got, want)
		}
	}
}

// Whose word counts about a trace is the operator's to say, and nobody else's goes to
// the upstream.
func TestTraces_WhoseParent(t *testing.T) {
	const unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, c := range []struct {
		traces, parent    string
		trusted           bool
		recorded, belongs bool
	}{
		{"sample: 0%", clientParent, true, true, true},
		{"sample: 0%", clientParent, false, false, false},
		{"sample: 100%", unsampled, true, false, true},
		{"sample: 100%", unsampled, false, true, false},
		{"sample: 0%, parent: any", clientParent, false, true, true},
		{"sample: 100%, parent: any", unsampled, false, false, true},
		{"sample: 100%, parent: none", unsampled, true, true, false},
		{"sample: 0%, parent: none", clientParent, true, false, false},
		{"sample: 0%", "nonsense", true, false, false},
		{"sample: 100%", "", true, true, false},
	} {
		w := newTracedProxy(t, c.traces)
		if !c.trusted {
			w.reloads(strings.Replace(string(filetest.Read(t, w.path)), "192.0.2.0/24", "198.51.100.0/24", 1))
		}
		lines := []string{"Tracestate: a=1"}
		if c.parent != "" {
			lines = append(lines, "Traceparent: "+c.parent)
		}
		w.sends(200, "GET", "/free", lines...)
		told, ok := trace.Parse(w.upstream.Get("Traceparent"))
		belongs := told.Trace.String() == clientParent[3:35]
		if !ok || told.Sampled() != c.recorded || belongs != c.belongs || (w.upstream["Tracestate"] != nil) != c.belongs || (len(w.spans()) > 0) != c.recorded {
			t.Errorf("%s, parent %q, trusted %v: the upstream is told %v, %d spans", c.traces, c.parent, c.trusted, w.upstream, len(w.spans()))
		}
	}
}

// Where nothing is traced, what clients say of a trace goes on as it came.
func TestTraces_OffTouchesNothing(t *testing.T) {
	var got http.Header
	upstream := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	w := newProxy(t, "routes:\n  - {name: a, match: {path: /a}, upstream: \""+upstream+"\"}\n")
	w.sends(200, "GET", "/a", "Traceparent: whatever", "Tracestate: a=1")
	if got.Get("Traceparent") != "whatever" || got.Get("Tracestate") != "a=1" {
		t.Errorf("the upstream got %v", got)
	}
	w.sends(200, "GET", "/a")
	if got["Traceparent"] != nil || got["Tracestate"] != nil {
		t.Errorf("the upstream got %v", got)
	}
}

// Another collector takes a restart, another share does not.
func TestTraces_AReload(t *testing.T) {
	w := newTracedProxy(t, "sample: 100%")
	text := string(filetest.Read(t, w.path))
	w.write(strings.Replace(text, "X-Team: b", "X-Team: c", 1))
	if _, err := w.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "traces.endpoint, headers or service changed") {
		t.Errorf("%v", err)
	}
	w.reloads(strings.Replace(text, "100%", "0%", 1))
	w.sends(200, "GET", "/free")
	if n := len(w.spans()); n != 0 {
		t.Errorf("%d spans, want none", n)
	}
}
