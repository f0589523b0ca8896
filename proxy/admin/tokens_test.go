package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/proxy/config"
)

// A guesser sends tokens to one admin API from any address.
type guesser struct {
	*testing.T
	o Options
}

func newGuesser(t *testing.T) guesser {
	o := reloads(Reloaded{}, nil)
	o.Gatherer, o.Token = prometheus.NewRegistry(), "secret"
	o.Tokens = []config.Token{{Name: "ann", Text: "token-of-ann", Write: true}, {Name: "bob", Text: "token-of-bob", Write: true}}
	o.WrongTokens = NewWrongTokens(prometheus.NewRegistry())
	return guesser{t, o}
}

// from sends a request with a token; without one if it is empty.
func (g guesser) from(address, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/reload", nil)
	r.RemoteAddr = address
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	New(g.o).ServeHTTP(w, r)
	return w
}

// answers fails unless a request with that token is answered with that status.
func (g guesser) answers(want int, address, token string) *httptest.ResponseRecorder {
	g.Helper()
	w := g.from(address, token)
	if w.Code != want || (w.Code == 429) != (w.Header().Get("Retry-After") != "") {
		g.Errorf("%q from %s = %d, Retry-After %q; want %d", token, address, w.Code, w.Header().Get("Retry-After"), want)
	}
	return w
}

func (g guesser) total() float64 { return testutil.ToFloat64(g.o.WrongTokens.total) }

// Five wrong tokens are compared at once, then one each two seconds; while an address has to wait,
// the right token is answered in the same way as a wrong one.
func TestWrongTokens_SlowTheirAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesser(t)
		for i := range 5 {
			g.answers(401, "203.0.113.7:4000", fmt.Sprint("wrong", i))
		}
		wrong, right := g.answers(429, "203.0.113.7:4001", "wrong"), g.answers(429, "203.0.113.7:4002", "secret")
		if wrong.Body.String() != right.Body.String() || !strings.Contains(wrong.Body.String(), "; try again in 2s\"") || wrong.Header().Get("Retry-After") != "2" || right.Header().Get("Retry-After") != "2" {
			t.Errorf("a wrong token is answered %v %s, the right one %v %s; want the same", wrong.Header(), wrong.Body, right.Header(), right.Body)
		}
		g.answers(200, "203.0.113.8:4000", "secret")
		time.Sleep(2*time.Second - time.Millisecond)
		if w := g.answers(429, "203.0.113.7:4000", "secret"); w.Header().Get("Retry-After") != "1" {
			t.Errorf("Retry-After = %s a millisecond before the next attempt; want 1", w.Header().Get("Retry-After"))
		}
		time.Sleep(time.Millisecond)
		g.answers(401, "203.0.113.7:4000", "wrong")
		g.answers(429, "203.0.113.7:4000", "secret")
		time.Sleep(2 * time.Second)
		for range 20 { // a right token uses up nothing
			g.answers(200, "203.0.113.7:4000", "token-of-ann")
		}
		time.Sleep(8 * time.Second)
		for range 5 {
			g.answers(401, "203.0.113.7:4000", "wrong")
		}
		g.answers(429, "203.0.113.7:4000", "wrong")
		if g.total() != 11 {
			t.Errorf("weir_admin_wrong_tokens_total = %v; want the 11 that were compared", g.total())
		}
	})
}

// The addresses of a /64 network belong to one client; programs on this machine are no exception.
func TestWrongTokens_ByNetwork(t *testing.T) {
	for _, c := range []struct{ one, same, other string }{
		{"[2001:db8:0:1::1]:4000", "[2001:db8:0:1:ffff::2]:4000", "[2001:db8:0:2::1]:4000"},
		{"[fe80::1%eth0]:4000", "[fe80::2%eth1]:4000", "[fe80:0:0:1::1%eth0]:4000"},
		{"127.0.0.1:4000", "[::ffff:127.0.0.1]:4000", "127.0.0.2:4000"},
		{"[64:ff9b::192.0.2.1]:4000", "192.0.2.1:4000", "[64:ff9b::192.0.2.2]:4000"}, // behind NAT64
		{"@", "", "127.0.0.1:4000"}, // a Unix domain socket
	} {
		g := newGuesser(t)
		for range 5 {
			g.answers(401, c.one, "wrong")
		}
		g.answers(429, c.same, "wrong")
		g.answers(401, c.other, "wrong")
	}
}

// A request without a token guesses nothing, and is told what to send.
func TestWrongTokens_NoTokenIsNoGuess(t *testing.T) {
	g := newGuesser(t)
	for range 20 {
		if said := g.answers(401, "127.0.0.1:4000", "").Body.String(); !strings.Contains(said, `"no admin token; set WEIR_ADMIN_TOKEN or --token `) {
			t.Fatal(said)
		}
	}
	for range 5 {
		if said := g.answers(401, "127.0.0.1:4000", "wrong").Body.String(); !strings.Contains(said, `"wrong admin token; set WEIR_ADMIN_TOKEN or --token `) {
			t.Fatal(said)
		}
	}
	g.answers(401, "127.0.0.1:4000", "")
	g.answers(429, "127.0.0.1:4000", "wrong")
	if g.total() != 5 {
		t.Errorf("weir_admin_wrong_tokens_total = %v; want 5", g.total())
	}
}

// Health checks and metrics need no token, and answer an address that is slowed as well.
func TestWrongTokens_HealthChecksAreNotAffected(t *testing.T) {
	g := newGuesser(t)
	for range 6 {
		g.from("192.0.2.1:1234", "wrong") // the address of httptest.NewRequest
	}
	g.answers(429, "192.0.2.1:1234", "secret")
	for _, path := range []string{"/healthz", "/metrics"} {
		if w := adminRequest(g.o, "GET", path, "Authorization: Bearer wrong"); w.Code != 200 {
			t.Errorf("%s = %d for an address that is slowed; want 200", path, w.Code)
		}
	}
}

// Guesses that arrive together are compared no more often than those one after the other.
func TestWrongTokens_Together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesser(t)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { g.from("127.0.0.1:4000", "wrong") })
		}
		all.Wait()
		if g.total() != 5 {
			t.Errorf("%v of 50 guesses were compared; want 5", g.total())
		}
	})
}

// However many addresses guess, few are remembered, and the latest are among them.
func TestWrongTokens_RemembersFewAddresses(t *testing.T) {
	w := NewWrongTokens(prometheus.NewRegistry())
	hashes, now := Options{Token: "secret"}.tokenHashes(), time.Now()
	guess := func(i int) Attempt {
		return w.compare(hashes, "wrong", fmt.Sprintf("10.%d.%d.%d:4000", i>>16, i>>8&255, i&255), now)
	}
	for i := range 5 * maxGuessers {
		for range 5 {
			if a := guess(i); a.Wait > 0 {
				t.Fatalf("address %d has to wait %v for one of its first five attempts", i, a.Wait)
			}
		}
		if guess(i).Wait == 0 || len(w.young)+len(w.old) > maxGuessers {
			t.Fatalf("after address %d: wait %v, %d addresses; want a wait, and at most %d", i, guess(i).Wait, len(w.young)+len(w.old), maxGuessers)
		}
	}
	if guess(5*maxGuessers-maxGuessers/2).Wait == 0 {
		t.Error("one of the latest addresses is forgotten")
	}
}

// A summary has what was sent since the one before it.
func TestWrongTokens_Summary(t *testing.T) {
	g := newGuesser(t)
	if s := g.o.WrongTokens.Summary(); s != (WrongTokensSummary{}) {
		t.Errorf("summary %+v; want nothing", s)
	}
	for range 7 {
		g.from("203.0.113.7:4000", "wrong")
	}
	g.from("203.0.113.9:4001", "wrong")
	g.from("203.0.113.9:4002", "secret")
	if s, want := g.o.WrongTokens.Summary(), (WrongTokensSummary{Wrong: 6, Slowed: 2, Addresses: 2, Last: "203.0.113.9:4001"}); s != want {
		t.Errorf("summary %+v; want %+v", s, want)
	}
	g.from("203.0.113.7:4000", "wrong")
	if s := g.o.WrongTokens.Summary(); s.Wrong != 0 || s.Slowed != 1 {
		t.Errorf("summary %+v; an address that is slowed before a summary is slowed after it", s)
	}
}

// All tokens are compared, also after one that matches.
func TestOperatorOf_EachToken(t *testing.T) {
	all := newGuesser(t).o.tokenHashes()
	for token, want := range map[string]string{"secret": Admin, "token-of-ann": "ann", "token-of-bob": "bob", "wrong": "", "": "", strings.Repeat("x", 1<<16): ""} {
		if who, known := operatorOf(all, token); who.Name != want || known != (want != "") {
			t.Errorf("%q is of %q, %v; want %q", token, who.Name, known, want)
		}
	}
}

// A page that gives its own name the address of this machine is not answered.
func TestLocal_AnswersThisMachineAlone(t *testing.T) {
	for host, want := range map[string]int{
		"127.0.0.1:9901": 200, "127.8.8.8": 200, "localhost:9901": 200, "LocalHost.": 200, "[::1]:9901": 200, "[::ffff:127.0.0.1]": 200, "weir.internal:9901": 200, "": 200,
		"evil.example:9901": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "10.0.0.1:9901": 421, "0.0.0.0": 421, "[2001:db8::1]": 421,
	} {
		o := Options{Hosts: []string{"Weir.internal"}}
		for _, path := range []string{"/healthz", "/metrics"} {
			if w := adminRequest(o, "GET", path, "Host: "+host); w.Code != want {
				t.Errorf("%s for %q = %d %s; want %d", path, host, w.Code, w.Body, want)
			}
		}
		o.Token = "sixteen characters"
		if w := adminRequest(o, "GET", "/healthz", "Host: "+host); w.Code != 200 {
			t.Errorf("with a token, %q = %d; want 200", host, w.Code)
		}
	}
}

func TestLocal_NoPageChangesAnything(t *testing.T) {
	o := reloads(Reloaded{}, nil)
	for line, want := range map[string]int{
		"X-A: b": 200, "Origin: http://127.0.0.1:9901": 403, "Origin: null": 403, "Sec-Fetch-Site: same-origin": 403, "Sec-Fetch-Mode: navigate": 403, "Sec-Fetch-Site: none": 403,
	} {
		if w := adminRequest(o, "POST", "/reload", line); w.Code != want {
			t.Errorf("POST with %s = %d %s; want %d", line, w.Code, w.Body, want)
		}
	}
	o.Ready = func(context.Context) Health { return Health{Ready: true} }
	if w := adminRequest(o, http.MethodGet, "/readyz", "Sec-Fetch-Site: none"); w.Code != 200 {
		t.Errorf("somebody looks with a browser: %d; want 200", w.Code)
	}
	o.Token = "sixteen characters"
	if w := adminRequest(o, "POST", "/reload", "Host: weir.example", "Origin: http://weir.example", "Authorization: Bearer sixteen characters"); w.Code != 200 {
		t.Errorf("with a token, from its own page: %d %s; want 200", w.Code, w.Body)
	}
}
