package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A blockingStore store gives nothing back before it is let.
type blockingStore struct {
	*limiter.Memory
	let  chan struct{}
	back atomic.Int64 // claims that were given back
}

func newBlockingStore() *blockingStore {
	return &blockingStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), let: make(chan struct{})}
}

func (s *blockingStore) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	<-s.let
	s.back.Add(int64(len(claims)))
	return s.Memory.Refund(ctx, claims, p)
}

// StartRefund implements limiter.AdminStore: what was started is made when the store lets.
func (s *blockingStore) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	claims = slices.Clone(claims)
	done := make(chan error, 1)
	go func() { done <- s.Refund(context.Background(), claims, p) }()
	return func() error { return <-done }
}

// startServerOver is a proxy that listens, with one limit over s; the upstream says hello, all at
// once or in pieces.
func startServerOver(t *testing.T, s *blockingStore, limit string) *testServer {
	hello := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("empty") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		text := "hello"
		if r.URL.Query().Has("pieces") {
			w.(http.Flusher).Flush()
			text = strings.Repeat(text, 1000)
		}
		fmt.Fprint(w, text)
	}
	yaml := "store: redis\n" + upstreamYAML(t, hello, "refund_on: {status: [200]}, limits: ["+limit+"]")
	return startServer(t, yaml, func(o *Options) { o.Store = s })
}

// The client has its whole answer, however long the refund takes after it; and the
// refund is made.
func TestSettle_NoAnswerWaitsForARefund(t *testing.T) {
	for _, query := range []string{"all", "pieces"} {
		t.Run(query, func(t *testing.T) {
			store := newBlockingStore()
			f := startServerOver(t, store, "{name: l, key: global, rate: 2/1h}")
			w := f.dial("")
			for range 2 {
				w.Send(fmt.Sprintf("GET /a?%s HTTP/1.1\r\nHost: a\r\n\r\n", query))
				answer, body := w.WantStatus(200)
				if !strings.HasPrefix(body, "hello") || answer.Header.Get("RateLimit") == "" {
					t.Errorf("answer %v %q", answer.Header, body)
				}
			}
			w.Send(fmt.Sprintf("GET /a?%s HTTP/1.1\r\nHost: a\r\n\r\n", query))
			w.WantStatus(429)
			if store.back.Load() != 0 || len(f.lines("request")) != 1 {
				t.Errorf("%d were given back, and %d lines written; want none before the store lets", store.back.Load(), len(f.lines("request")))
			}
			close(store.let)
			f.until(func() bool { return store.back.Load() == 2 && len(f.lines("request")) == 3 })
			w.Send(fmt.Sprintf("GET /a?%s HTTP/1.1\r\nHost: a\r\n\r\n", query))
			w.WantStatus(200)
		})
	}
}

// A concurrent permit is back before the client has read its answer's end, while the
// header does not wait for it.
func TestRelease_BeforeTheEndButNotBeforeTheHeader(t *testing.T) {
	for _, query := range []string{"all", "pieces"} {
		t.Run(query, func(t *testing.T) {
			store := newBlockingStore()
			f := startServerOver(t, store, "{name: l, key: global, concurrent: 1}")
			w := f.dial("GET /a?" + query + " HTTP/1.1\r\nHost: a\r\n\r\n")
			answer, err := http.ReadResponse(w.Reader, nil) // while the store lets nothing
			if err != nil {
				t.Fatal(err)
			}
			if store.back.Load() != 0 {
				t.Fatal("the store has let")
			}
			close(store.let)
			body, err := io.ReadAll(answer.Body)
			if err != nil || !strings.HasPrefix(string(body), "hello") {
				t.Errorf("body %q, %v", body, err)
			}
			if store.back.Load() != 1 {
				t.Error("the answer ended before the permit was back")
			}
			for range 20 {
				w.Send(fmt.Sprintf("GET /a?%s HTTP/1.1\r\nHost: a\r\n\r\n", query))
				w.WantStatus(200)
			}
		})
	}
}

// Who asks one after the other never meets the permit of the request before: not with
// an answer without a body either, nor with a store in this process.
func TestRelease_OneAfterTheOther(t *testing.T) {
	store := newBlockingStore()
	close(store.let)
	f := startServerOver(t, store, "{name: l, key: global, concurrent: 1}")
	own := startServer(t, upstreamYAML(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 100_000)) }, "limits: [{key: global, concurrent: 1}]"))
	for _, w := range []*sockettest.Client{f.dial(""), own.dial("")} {
		for i := range 50 {
			w.Send(fmt.Sprintf("%s /a?%s HTTP/1.1\r\nHost: a\r\n\r\n", []string{"GET", "HEAD"}[i%2], []string{"empty", "all", "pieces"}[i%3]))
			answer, _ := w.ReadResponse([]string{"GET", "HEAD"}[i%2])
			if answer.StatusCode >= 300 {
				t.Fatalf("request %d = %d; want that nothing is held any more", i+1, answer.StatusCode)
			}
		}
	}
	f.until(func() bool { return store.back.Load() == 50 })
}

// A request that is settled after its response is settled and logged by its own prices, and with its own version, whatever has
// followed on the connection.
func TestSettle_ReadsNothingOfTheNextRequest(t *testing.T) {
	store := newBlockingStore()
	up := upstreamYAML(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}, "usage: openai, limits: [{name: spend, key: global, budget: [50/1d], price: models, max_cost: 1000, cost: {reserve: 100}}, {name: texts, key: global, budget: [50/1d], price: sms}], refund_on: {status: [200]}")
	f := startServer(t, "store: redis\naccess_log: {fields: [standard, proto]}\nkeys: {phone: {from: \"header:X-Phone\", normalize: e164}}\n"+
		"prices:\n  models: {key: \"header:X-Model\", rows: [\"first,2,1,9\", \"other,1,1,3\"]}\n  sms: {key: phone, rows: [\"+4915,*,0.05\", \"+8613,*,0.02\"]}\n"+up,
		func(o *Options) { o.Store = store })
	w := f.dial("")
	for _, of := range []string{"X-Model: first\r\nX-Phone: +4915112345678", "X-Model: other\r\nX-Phone: +8613800138000"} {
		w.Send("GET /a HTTP/1.1\r\nHost: a\r\n" + of + "\r\n\r\n")
		w.WantStatus(200)
	}
	close(store.let)
	f.until(func() bool { return len(f.lines("request")) == 2 })
	lines := f.lines("request")
	all := fmt.Sprint(lines[0]["keys"], lines[1]["keys"])
	for _, want := range []string{"price:models=first price:sms=0.05 ", "price:models=other price:sms=0.02 "} {
		if !strings.Contains(all, want) {
			t.Errorf("the log has %s; want %s", all, want)
		}
	}
	if lines[0]["proto"] != "HTTP/1.1" {
		t.Errorf("the log has the version %v; want HTTP/1.1", lines[0]["proto"])
	}
}
