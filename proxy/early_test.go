package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An unreadableBody is sent when the answer has come.
type unreadableBody struct {
	testing.TB
	answered <-chan struct{}
}

// Read implements io.Reader.
func (u unreadableBody) Read([]byte) (int, error) {
	select {
	case <-u.answered:
	case <-time.After(enough):
		u.Error("no answer before the body")
	}
	return 0, io.EOF
}

// A tellingWriter is a client that tells when the answer begins.
type tellingWriter struct {
	*httptest.ResponseRecorder
	answered chan struct{}
}

func (w tellingWriter) WriteHeader(status int) {
	w.ResponseRecorder.WriteHeader(status)
	close(w.answered)
}

// unread sends a request with a body that is not to be read.
func (p *testProxy) unread(want int, length int64, lines ...string) *httptest.ResponseRecorder {
	p.Helper()
	rec := tellingWriter{httptest.NewRecorder(), make(chan struct{})}
	r := httptest.NewRequest("POST", "/", unreadableBody{p.TB, rec.answered})
	r.ContentLength = length
	for i := 0; i+1 < len(lines); i += 2 {
		r.Header.Set(lines[i], lines[i+1])
	}
	p.ServeHTTP(rec, r)
	if rec.Code != want {
		p.Errorf("%d %s; want %d", rec.Code, rec.Body, want)
	}
	return rec.ResponseRecorder
}

// posts sends JSON.
func (p *testProxy) posts(want int, target, body string, lines ...string) *httptest.ResponseRecorder {
	p.Helper()
	return p.sends(want, "POST", target, append(lines, "Content-Type: application/json", body)...)
}

// Whoever is over a limit that needs no body is told so before the body is read, and
// has taken nothing of the other limits.
func TestEarly_RefusesBeforeTheBody(t *testing.T) {
	w := newProxy(t, bodyKeyYAML(", {name: ip, key: client_ip, rates: [2/1h, 9/1d]}, {name: watched, key: global, rate: 1/1h, mode: shadow}"))
	for range 2 {
		w.posts(200, "/", `{"phone": "1"}`)
	}
	rec := w.unread(429, 14)
	w.hasField(rec, "RateLimit", `"ip-1h";r=0;t=3600, "ip-1d";r=7`)
	line := w.lines("request")[2]
	if line["rate"] != "ip-1h" || line["status"] != 429.0 {
		t.Errorf("line %v; want a refusal of ip-1h", line)
	}
	if by := w.explains("POST", "/", "Content-Type: application/json", `{"phone": "1"}`).Decision.By; !slices.Equal(by, []string{"ip"}) {
		t.Errorf("explained as refused by %v; want ip", by)
	}
	if got := w.remainingOf("a.phone:1h", 100, "phone", "1"); got != 98 {
		t.Errorf("%d of phone are left; want 98", got)
	}
}

// A penalty hears of refusals that need no body as of all others.
func TestEarly_Penalizes(t *testing.T) {
	w := newProxy(t, bodyKeyYAML(", {name: ip, key: client_ip, rate: 1/1h, penalty: {ban: 2h, after: 2}}"))
	w.posts(200, "/", `{"phone": "1"}`)
	w.unread(429, -1)
	w.unread(429, -1)
	if line := w.lines("request")[2]; line["ban_began"] != true {
		t.Errorf("line %v; want a ban", line)
	}
}

// Where the body may tell that no limit counts, it is read first.
func TestEarly_NotBeforeWhatMayLetPass(t *testing.T) {
	w := newProxy(t, `
keys: {phone: json:/phone}
lists: {friends: {key: phone, values: ["7"], action: bypass}, foes: {key: phone, values: ["8"], action: deny}}
routes:
  - {name: a, match: {path: /a}, upstream: echo, lists: [foes, friends], limits: [{name: ip, key: client_ip, rate: 1/1h}]}
  - {name: b, match: {path: /b}, upstream: echo, limits: [{name: phone, key: phone, rate: 9/1h}, {name: ip, key: client_ip, rate: 1/1h}], idempotency: {}}
  - {name: c, match: {path: /c}, upstream: echo, limits: [{name: phone, key: phone, rate: 9/1h}, {name: ip, key: client_ip, rate: 1/1h, wait: 1ms}]}
`)
	w.posts(200, "/a", `{"phone": "1"}`)
	w.posts(429, "/a", `{"phone": "1"}`)
	w.posts(200, "/a", `{"phone": "7"}`)
	w.posts(403, "/a", `{"phone": "8"}`)
	w.posts(200, "/b", `{"phone": "1"}`, "Idempotency-Key: k")
	w.posts(200, "/b", `{"phone": "1"}`, "Idempotency-Key: k")
	w.posts(429, "/b", `{"phone": "1"}`)
	w.posts(200, "/c", `{"phone": "1"}`)
	w.posts(429, "/c", `{"phone": "1"}`)
}

// A remoteStore store counts what it is asked, and knows some refusals by itself.
type remoteStore struct {
	*limiter.Memory
	takes, peeks atomic.Int64
	knows        atomic.Bool
}

func (r *remoteStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	r.takes.Add(1)
	return r.Memory.Take(ctx, claims, d)
}

func (r *remoteStore) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	r.peeks.Add(1)
	return r.Memory.Peek(ctx, claims, d)
}

// Denied implements denier.
func (r *remoteStore) Denied(claims []limiter.Claim, d *limiter.Decision) bool {
	return r.knows.Load() && r.Memory.Peek(context.Background(), claims, d) == nil && !d.Allowed
}

// A shared store is asked about a short body once, as before; about a long one twice;
// and not at all about what is known to be refused.
func TestEarly_CostsASharedStoreNothing(t *testing.T) {
	store := &remoteStore{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
	w := newProxy(t, "store: redis\n"+bodyKeyYAML(", {name: ip, key: client_ip, rate: 2/1h}"), func(o *Options) { o.Store = store })
	asked := func(what string, takes, peeks int64) {
		t.Helper()
		if store.takes.Load() != takes || store.peeks.Load() != peeks {
			t.Errorf("%s: %d takes and %d peeks; want %d and %d", what, store.takes.Load(), store.peeks.Load(), takes, peeks)
		}
	}
	w.posts(200, "/", `{"phone": "1"}`)
	asked("a short body", 1, 0)
	w.posts(200, "/", fmt.Sprintf(`{"phone": "1", "pad": "%5000d"}`, 1))
	asked("a long body", 2, 1)
	w.posts(429, "/", `{"phone": "1"}`)
	asked("a short body that is refused", 3, 1)
	w.unread(429, 5000)
	asked("a long body that is refused", 3, 2)
	store.knows.Store(true)
	w.unread(429, 14)
	asked("what is known", 3, 2)
}
