package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"

	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// kindsOfLimits is a file with a limit of each kind.
const kindsOfLimits = `
keys:
  phone: {from: "header:X-Phone", normalize: e164}
  country: {of: phone, part: country}
prices: {sms: {key: phone, unit: EUR, rows: ["*,*,0.075"]}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /send}
    upstream: demo
    limits:
      - {name: plain, key: phone, rates: [5/1h, 9/1d]}
      - {name: log, key: phone, rate: 5/1h, algorithm: sliding_log}
      - {name: fixed, key: phone, rate: 5/1h, algorithm: fixed_window}
      - {name: weighted, key: phone, rate: 5/1h, algorithm: sliding_window}
      - {name: smooth, key: phone, rate: 5/1h, algorithm: gcra, burst: 3}
      - {name: fan, key: phone, distinct: "header:X-User", rate: 5/1h}
      - {name: held, key: phone, concurrent: 4}
      - {name: money, key: country, budget: [400/1d], price: sms}
      - {name: pauses, key: phone, cooldown: [1s, 1h], mode: shadow}
      - {name: codes, key: country, rate: 2/1h, return_on: {route: verify, key: phone, status: [2xx]}, conversion: 50%, mode: enforce}
  - name: verify
    match: {path: /verify}
    upstream: demo
    limits: [{name: guesses, key: phone, rate: 99/1h}]
`

// A limit says the same everywhere, in its own unit: its rates, a key's standing, a decision and an explanation.
// What is used, what is left and what may be used agree.
func TestText_OfEachKindOfLimit(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, kindsOfLimits, use)
		phone := func(n int) string { return fmt.Sprintf("X-Phone: +4915123456%03d", n) }
		for n := range 4 {
			w.sends(200, "POST", "/send", phone(n), "X-User: a")
			w.sends(200, "POST", "/verify", phone(n))
		}
		w.sends(200, "POST", "/send", phone(9), "X-User: a")
		var last view.Amounts
		for name, l := range w.stands("phone=+4915123456009") {
			for _, s := range l.Windows {
				n := s.Texts()
				if l.Algorithm != "cooldown" && s.Left != max(s.Most-s.Used, 0) || l.Algorithm != "cooldown" && s.Used == 0 && !s.Next.IsZero() {
					t.Errorf("%s: %+v; want that the numbers agree", name, s)
				}
				switch name {
				case "send.money":
					last = n
					if s.Rate != "400 EUR/1d" || n.Used != "0.375 EUR" || n.Left != "399.625 EUR" || n.Most != "400 EUR" {
						t.Errorf("money: %s %+v", s.Rate, n)
					}
				case "send.held":
					if s.Rate != "4 at a time" || n.Left != "4" {
						t.Errorf("held: %s %+v", s.Rate, n)
					}
				case "send.pauses":
					if s.Rate != "1s 1h" || n.Used != "step 1" {
						t.Errorf("pauses: %s %+v", s.Rate, n)
					}
				case "send.codes":
					if s.Most != 6 || s.Used != 1 || s.Left != 5 || s.Conversion.Allowed != s.Most {
						t.Errorf("codes: %+v %+v; want 1 of 6 used and 5 left", s, s.Conversion)
					}
				}
			}
		}
		e := w.explains("POST", "/send", "X-Phone: +4915123456009", "X-User: a")
		rates := map[string]string{}
		for _, l := range e.Limits {
			rates[l.Name] = l.Windows[0].Rate
			if l.Name == "money" && l.Windows[0].Left != last.Left || l.Name == "codes" && (l.Windows[0].Most != 6 || l.Windows[0].Remaining != 5) {
				t.Errorf("explain: %+v; want what the standing says", l.Windows)
			}
		}
		d := w.Decisions(view.DecisionQuery{N: 1})[0]
		for _, l := range d.Limits {
			if l.Limit == "money" && (l.Amount != last.Left || l.Permits != "400 EUR/1d") {
				t.Errorf("decision: %+v; want %s left", l, last.Left)
			}
		}
		for _, l := range w.current.Load().config.Limits() {
			if got := strings.Join(l.RateTexts(), " "); l.Name != "plain" && l.Route == "send" && got != rates[l.Name] {
				t.Errorf("%s is configured as %s; explained as %s", l.Name, got, rates[l.Name])
			}
		}
	})
}

// A part of a joined key is shown, or masked, as it is alone, whether a limit counts by it alone or not. A key that is
// not sensitive is masked where a sensitive one may be used instead: the two have one count, and one label.
func TestText_OfJoinedKeys(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [0.0.0.0/0], header: X-Real-Ip}
keys:
  phone: {from: "json:/phone", normalize: e164, sensitive: true}
  user: "header:X-User"
  ip: client_ip
  other: {from: "header:X-Other", on_missing: {use: phone}}
  pair: {join: [user, phone]}
  place: {join: [user, ip]}
  odd: {join: [user, other]}
  third: {from: "header:X-Third", on_missing: {use: phone}}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    respond: {body: ok}
    limits: [{name: pair, key: pair, rate: 5/1h}, {name: place, key: place, rate: 5/1h}, {name: odd, key: odd, rate: 5/1h}, {name: third, key: third, rate: 5/1h}]
`)
	w.posts(200, "/send", `{"phone": "+8613800138000"}`, "X-User: bob", "X-Real-Ip: 203.0.113.7")
	got := map[string]string{}
	for _, l := range w.Decisions(view.DecisionQuery{N: 1})[0].Limits {
		got[l.Limit] = l.Masked
	}
	for limit, want := range map[string]string{"pair": "user=bob phone=+86138****8000", "place": "user=bob ip=203.0.113.7", "odd": "user=bob other=+86****000", "third": "third=+86****000"} {
		if got[limit] != want {
			t.Errorf("%s is shown as %q; want %q", limit, got[limit], want)
		}
	}
}

// Operators read why something could not be done, and no chain of errors of a program.
func TestErrorText(t *testing.T) {
	open := errors.New("redis circuit breaker open")
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for err, want := range map[error]string{
		fmt.Errorf("read nodes: %w", fmt.Errorf("%w: %w", open, os.ErrDeadlineExceeded)):           "redis is unreachable: no answer in time",
		fmt.Errorf("%w: %w: %w", limiter.ErrUnavailable, open, context.DeadlineExceeded):           "redis is unreachable: no answer in time",
		fmt.Errorf("inspect key: %w: %w", limiter.ErrUnavailable, refused):                         "redis is unreachable: connect: connection refused",
		fmt.Errorf("inspect key: %w: %w", limiter.ErrUnavailable, errors.New("WRONGPASS invalid")): "redis is unreachable: WRONGPASS invalid",
		fmt.Errorf("inspect key: %w", limiter.ErrUnavailable):                                      "redis is unreachable",
		limiter.ErrUnavailable:              "redis is unreachable",
		errors.New(`there is no route "a"`): "there is no route \"a\"",
		refused:                             "redis is unreachable: connect: connection refused",
		fmt.Errorf("read history: %w", &net.OpError{Op: "read", Net: "tcp", Addr: addr, Err: os.ErrDeadlineExceeded}):                                        "redis is unreachable: no answer in time",
		fmt.Errorf("read the version of Redis: %w: %w", limiter.ErrUnavailable, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such", Name: "redis"}}): "redis is unreachable: lookup redis: no such",
	} {
		if got := ErrorText(err); got != want {
			t.Errorf("%v is told as %q; want %q", err, got, want)
		}
	}
}

// The numbers that are money are so in JSON too.
func TestText_InJSON(t *testing.T) {
	text, err := json.Marshal(view.WindowStanding{Used: 7, Amounts: &view.Amounts{Most: "1 EUR", Used: "0.07 EUR", Left: "0.93 EUR"}})
	if err != nil || !strings.Contains(string(text), `"used":7`) || !strings.Contains(string(text), `"amounts":{"most":"1 EUR","used":"0.07 EUR","left":"0.93 EUR"}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// The hash of a key in the log is told as one, as weir keys takes it; what is masked is not.
func TestReplay_CallsAHashAHash(t *testing.T) {
	q := LoggedRequest{At: time.Unix(1_800_000_000, 0), Method: "POST", Host: "example.com", Target: "/send", Client: netip.MustParseAddr("192.0.2.1"), Status: 200}
	masked := q
	masked.Fields = []LoggedField{{key.HeaderField("X-Phone"), "13800138000"}}
	q.Keys = "phone=q83vEjRW"
	var got []string
	for _, requests := range [][]LoggedRequest{{q, q, q, q, q}, {masked, masked, masked, masked, masked}} {
		for _, k := range replay(t, replayedFile, requests...).Routes[0].Limits[0].Top {
			got = append(got, k.Key)
		}
	}
	if len(got) != 2 || got[0] != "phone=hash:abcdef123456" || got[1] != "phone=13****00" {
		t.Errorf("the keys are %v; want a hash and a masked number", got)
	}
}
