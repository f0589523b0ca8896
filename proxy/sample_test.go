package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
)

// Of requests that are taken back over HTTP/2 a few lines are written each second; all
// are counted, and those of other clients are all told of.
func TestRecord_ResetsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, limitYAML("{key: global, rate: 1000/1h}"))
		record := func(r clientResponse) {
			x := finishedExchange(w.Proxy, "alice", limiter.Decision{Allowed: true})
			x.response = r
			w.recorder.record(x)
		}
		for range 100 {
			record(clientResponse{streamReset: true})
		}
		w.sends(200, "GET", "/a")
		if got := len(w.lines("request")); got != loggedResets+1 {
			t.Errorf("%d lines; want %d and that of the one that stayed", got, loggedResets)
		}
		w.counted(90, w.metrics.unloggedResets)
		if got := testutil.CollectAndCount(w.metrics.requests); got == 0 {
			t.Error("requests are not counted")
		}
		time.Sleep(time.Second)
		record(clientResponse{streamReset: true})
		for range 20 {
			record(clientResponse{}) // a connection each
		}
		if got := len(w.lines("request")); got != loggedResets+1+1+20 {
			t.Errorf("%d lines a second later; want 21 more", got)
		}
		w.Close()
	})
}
