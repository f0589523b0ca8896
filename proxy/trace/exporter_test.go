package trace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A collector answers what is sent, without a network, so that time can be made up.
type collector struct {
	mu     sync.Mutex // guards what follows
	asked  []time.Time
	spans  []*tracepb.Span
	answer func(n int) (*http.Response, error) // to the n-th call; nil: 200
}

// RoundTrip implements http.RoundTripper.
func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.asked = append(c.asked, time.Now())
	n := len(c.asked)
	c.mu.Unlock()
	res := answers(200, "")
	if c.answer != nil {
		if res, err = c.answer(n); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if res.StatusCode == 200 {
		var data tracepb.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}
	return res, nil
}

func answers(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func (c *collector) has() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// calls are the times of the calls so far: the exporter may make the next at any time.
func (c *collector) calls() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// A running is an Exporter that runs until stop is called.
type running struct {
	*testing.T
	*Exporter
	stop func()
}

func run(t *testing.T, c http.RoundTripper) running {
	e := NewExporter(Options{Endpoint: "http://collector/v1/traces", Service: "edge", Client: &http.Client{Transport: c, Timeout: sendTimeout}}, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { e.Run(ctx) })
	return running{t, e, func() {
		cancel()
		ended.Wait()
	}}
}

// counts checks how many spans were sent, failed and were dropped.
func (r running) counts(sent, failed, dropped float64) {
	r.Helper()
	for result, want := range map[string]float64{"sent": sent, "failed": failed, "dropped": dropped} {
		if got := testutil.ToFloat64(r.exported.WithLabelValues(result)); got != want {
			r.Errorf("%v spans %s, want %v", got, result, want)
		}
	}
}

func spans(n int) (all []*Span) {
	for range n {
		all = append(all, &Span{SpanContext: Root(1), Name: "GET /a", Start: time.Now(), End: time.Now()})
	}
	return all
}

// Spans are sent after a second, or at once when there are many, and at the end.
func TestExporter_SendsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		e := run(t, c)
		e.Add(spans(3))
		synctest.Wait()
		if n := c.has(); n != 0 {
			t.Errorf("%d spans are sent at once", n)
		}
		time.Sleep(sendInterval)
		synctest.Wait()
		if n := c.has(); n != 3 || len(c.calls()) != 1 {
			t.Errorf("%d spans are sent after %v in %d calls, want 3 in one", n, sendInterval, len(c.calls()))
		}
		e.Add(spans(batchSize + 1))
		synctest.Wait()
		if n := c.has(); n != batchSize+4 || len(c.calls()) != 3 {
			t.Errorf("%d spans in %d calls, want all in two more", n, len(c.calls()))
		}
		e.Add(spans(2))
		e.stop()
		e.counts(batchSize+6, 0, 0)
	})
}

// What is being sent when Weir stops arrives, and what is queued behind it.
func TestExporter_StopsWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int) (*http.Response, error) {
			<-time.After(flushTimeout / 4)
			return answers(200, ""), nil
		}}
		r := run(t, c)
		r.Add(spans(2))
		<-time.After(sendInterval + time.Millisecond)
		r.Add(spans(3))
		r.stop()
		r.counts(5, 0, 0)
	})
}

// While the collector is away nobody waits, as many are kept as there is room for, and
// the others are counted.
func TestExporter_CollectorAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int) (*http.Response, error) { return nil, errors.New("connection refused") }}
		e := run(t, c)
		began := time.Now()
		for range 2 * maxQueued {
			e.Add(spans(1))
		}
		if time.Since(began) != 0 {
			t.Error("somebody waited")
		}
		synctest.Wait()
		for range maxQueued {
			e.Add(spans(1))
		}
		if n := testutil.ToFloat64(e.exported.WithLabelValues("dropped")); n < maxQueued {
			t.Errorf("%v spans dropped", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(c.calls()); n < maxAttempts || n > maxQueued/batchSize*maxAttempts {
			t.Errorf("the collector was asked %d times in a minute", n)
		}
		began = time.Now()
		e.stop()
		if took := time.Since(began); took > flushTimeout {
			t.Errorf("the end took %v", took)
		}
	})
}

// A collector that is there again gets what was kept meanwhile.
func TestExporter_CollectorComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(n int) (*http.Response, error) {
			if n < 4 {
				return answers(503, ""), nil
			}
			return answers(200, ""), nil
		}}
		e := run(t, c)
		e.Add(spans(1))
		time.Sleep(sendInterval)
		synctest.Wait()
		e.Add(spans(1))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		e.counts(2, 0, 0)
		for i, at := range c.calls()[1:4] {
			if pause := at.Sub(c.calls()[i]); pause < minBackoff<<i/2 || pause > minBackoff<<i {
				t.Errorf("pause %d is %v", i, pause)
			}
		}
		e.stop()
	})
}

// A muteConn is a connection that nothing arrives on any more when the server is mute, and that has no end.
type muteConn struct {
	net.Conn
	mute *atomic.Bool
}

func (c muteConn) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Of a connection that goes silent, as when a firewall has forgotten it, one call is lost at most, also over HTTP/2.
func TestExporter_ConnectionGoesSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.RoundTrip(r) })
		conns := make(chan muteConn, 3)
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		over := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			c := muteConn{server, new(atomic.Bool)}
			conns <- c
			go new(http2.Server).ServeConn(c, &http2.ServeConnOpts{Handler: handle})
			return client, nil
		}}
		e := run(t, over)
		e.Add(spans(1))
		time.Sleep(2 * sendInterval)
		(<-conns).mute.Store(true)
		e.Add(spans(1))
		time.Sleep(sendInterval + sendTimeout + maxBackoff)
		synctest.Wait()
		e.counts(2, 0, 0)
		e.stop()
		(<-conns).Close()
	})
}

// What the collector does not want is not sent again, and a pause that it asks for is
// kept.
func TestExporter_WhatTheCollectorSays(t *testing.T) {
	partial := protowire.AppendTag(nil, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, 2)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too old")
	response := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	busy := answers(429, "")
	busy.Header.Set("Retry-After", "7")
	for _, c := range []struct {
		name         string
		first        *http.Response
		calls        int
		pause        time.Duration
		sent, failed float64
	}{
		{"no such path", answers(404, ""), 1, 0, 0, 3},
		{"a bad request", answers(400, "no"), 1, 0, 0, 3},
		{"elsewhere", answers(307, ""), 1, 0, 0, 3},
		{"some refused", answers(200, string(response)), 1, 0, 1, 2},
		{"no protobuf", answers(200, "{}"), 1, 0, 3, 0},
		{"busy", busy, 2, 7 * time.Second, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &collector{answer: func(n int) (*http.Response, error) {
					if n == 1 {
						return c.first, nil
					}
					return answers(200, ""), nil
				}}
				e := run(t, to)
				e.Add(spans(3))
				time.Sleep(time.Minute)
				synctest.Wait()
				e.counts(c.sent, c.failed, 0)
				if len(to.asked) != c.calls || c.calls == 2 && to.asked[1].Sub(to.asked[0]) != c.pause {
					t.Errorf("asked at %v", to.asked)
				}
				e.stop()
			})
		})
	}
}

// What is no UTF-8 does not spoil the message it is in.
func TestSpan_AnyText(t *testing.T) {
	s := &Span{SpanContext: Root(1), Name: "GET \xff", Attributes: []Attribute{String("url.path", "/\xc3"), Int64("n", -1)}, Start: time.Unix(1, 0), End: time.Unix(2, 0), Kind: Client, Failed: true}
	message := s.message()
	b, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var back tracepb.Span
	if err := proto.Unmarshal(b, &back); err != nil || !proto.Equal(message, &back) {
		t.Errorf("%v: %v", err, &back)
	}
	if !bytes.Equal(back.GetSpanId(), s.Span[:]) || back.GetName() != "GET \ufffd" || back.GetAttributes()[0].GetValue().GetStringValue() != "/\ufffd" || back.GetAttributes()[1].GetValue().GetIntValue() != -1 ||
		back.GetEndTimeUnixNano()-back.GetStartTimeUnixNano() != uint64(time.Second) || back.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || len(back.GetParentSpanId()) != 0 {
		t.Errorf("%v", &back)
	}
}

// An exporter that is not there takes everything.
func TestExporter_None(t *testing.T) {
	var e *Exporter
	e.Add(spans(1))
	e.Run(t.Context())
}
