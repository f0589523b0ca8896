package test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const tracedRoutes = "upstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo}]\n"

// What was traced until the end has arrived at the collector when weir has ended.
func TestTraces_ArriveAtACollector(t *testing.T) {
	t.Parallel()
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			t.Errorf("%v: %q", err, body)
		}
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans.Add(int64(len(scope.GetSpans())))
			}
		}
	}))
	defer collector.Close()
	w := start(t, "traces: {endpoint: \""+collector.URL+"\", sample: 100%}\n"+tracedRoutes)
	const requests = 50
	for range requests {
		w.get(w.URL + "/a")
	}
	w.Signal(syscall.SIGTERM)
	w.Exit()
	if n := spans.Load(); n != 2*requests {
		t.Errorf("%d spans, want one of each request and one of its upstream", n)
	}
}

// A collector that takes what it is sent and never answers keeps nobody waiting: neither
// requests, nor the end of weir for longer than a drain.
func TestTraces_ACollectorThatHangs(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	asked := make(chan struct{}, 1000)
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hangs
	}))
	defer collector.Close()
	defer close(hangs)
	w := start(t, "traces: {endpoint: \""+collector.URL+"\", sample: 100%}\n"+tracedRoutes)
	w.get(w.URL + "/a")
	<-asked
	for range 2500 { // more than there is room for
		if status, _ := w.get(w.URL + "/a"); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	if dropped := w.metric(`weir_trace_spans_total{result="dropped"}`); dropped < 500 {
		t.Errorf("%v spans are dropped", dropped)
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("weir ends with %d", code)
	}
}
