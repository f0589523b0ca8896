package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/test/logtest"
)

// Wrong tokens are logged once a minute, and the last ones at the end.
func TestWrongTokens_AreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		w := admin.NewWrongTokens(prometheus.NewRegistry())
		o := admin.Options{Token: "a-token-of-operators", WrongTokens: w}
		guess := func(n int, address string) {
			for range n {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/nodes", nil)
				r.RemoteAddr = address
				o.Authenticate(r, "a-token-that-is-wrong")
			}
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { logWrongTokens(ctx, w, zerolog.New(&log)); close(ended) }()
		guess(300, "203.0.113.7:4000")
		guess(1, "203.0.113.8:4001")
		synctest.Wait()
		if got := log.Count("wrong admin tokens"); got != 0 {
			t.Errorf("%d lines before the minute is over; want none", got)
		}
		time.Sleep(time.Minute + time.Second)
		time.Sleep(5 * time.Minute) // in which nothing is sent
		guess(1, "203.0.113.7:4002")
		end()
		<-ended
		want := []logtest.Line{
			{"level": "warn", "wrong": 6., "slowed": 295., "addresses": 2., "last": "203.0.113.8:4001", "message": "wrong admin tokens"},
			{"level": "warn", "wrong": 1., "slowed": 0., "addresses": 1., "last": "203.0.113.7:4002", "message": "wrong admin tokens"},
		}
		got := log.Lines()
		if len(got) != len(want) {
			t.Fatalf("got %s; want %d lines", log.String(), len(want))
		}
		for i := range want {
			for field, value := range want[i] {
				if got[i][field] != value {
					t.Errorf("line %d has %s %v; want %v", i+1, field, got[i][field], value)
				}
			}
		}
	})
}

// A node slows, counts and logs; its health checks go on.
func TestWrongTokens_OfANode(t *testing.T) {
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0', token: a-token-of-operators}\nroutes: [{match: {path: /a}, upstream: echo}]\nupstreams: {echo: echo}\n"))
	ask := func(token string) int {
		r, err := http.NewRequest(http.MethodGet, "http://"+n.Address("admin")+"/api/v1/nodes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for range 20 { // as weir top asks
		if got := ask("a-token-of-operators"); got != http.StatusOK {
			t.Fatalf("the right token is answered %d", got)
		}
	}
	slowed := 0
	for range 30 {
		if ask("a-token-that-is-wrong") == http.StatusTooManyRequests {
			slowed++
		}
	}
	if slowed == 0 {
		t.Error("thirty wrong tokens were compared")
	}
	if got := fetch(t, "http://"+n.Address("admin")+"/metrics"); !strings.Contains(got, "weir_admin_wrong_tokens_total ") || strings.Contains(got, "weir_admin_wrong_tokens_total 0") {
		t.Error("/metrics does not count the wrong tokens")
	}
	if got := fetch(t, "http://"+n.Address("admin")+"/healthz"); got != "ok\n" {
		t.Errorf("/healthz is answered %q", got)
	}
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	if line := n.findLog("wrong admin tokens"); line == nil || !strings.HasPrefix(line["last"].(string), "127.0.0.1:") {
		t.Errorf("log line %v; want the wrong tokens of 127.0.0.1", line)
	}
}
