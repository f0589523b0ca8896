package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
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

// A key is refused by the limits that are enforced and have nothing left, each until its own time.
func TestVerdict_NamesWhatRefusesAndUntilWhen(t *testing.T) {
	now := time.Date(2026, 1, 31, 7, 26, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d).In(time.FixedZone("here", 3600)) } // as the clock of this machine tells it
	full := func(rate string, d time.Duration) view.WindowStanding {
		return view.WindowStanding{Rate: rate, Most: 5, Used: 5, Next: in(d)}
	}
	open := view.WindowStanding{Rate: "9/1d", Most: 9, Used: 1, Left: 8, Next: in(time.Hour)}
	limit := func(name string, windows ...view.WindowStanding) view.LimitStanding {
		return view.LimitStanding{Route: "send", Limit: name, Mode: "enforce", Windows: windows}
	}
	shadow, unknown, banned, values, other := limit("s", full("5/1h", time.Hour)), limit("u"), limit("b", open), limit("d", full("3/1h", 0)), limit("o", full("1/1m", time.Second))
	shadow.Mode, unknown.Unknown, banned.BannedUntil = "shadow", "redis is unreachable", in(26*time.Hour)
	costly := limit("spend", open, view.WindowStanding{Rate: "50 EUR/1d", Most: 500, Left: 4, Amounts: &view.Amounts{Left: "0.04 EUR"}})
	costly.Costs = true
	ample := limit("spend", view.WindowStanding{Rate: "50 EUR/1d", Most: 500, Left: 400, Amounts: &view.Amounts{Left: "40 EUR"}})
	ample.Costs = true
	share := limit("phone", full("2/1h", time.Minute))
	share.Store = "local"
	exempt := limit("plan")
	exempt.Unknown, exempt.Exempt, exempt.Costs = "its plan partner has no limit", true, true
	spoiled := view.WindowStanding{Rate: "5/1h", Most: 5, Unreadable: true}
	dear := limit("spend", spoiled)
	dear.Costs = true
	values.Algorithm, values.Windows[0].Next, other.Route = "distinct", time.Time{}, "verify"
	for _, c := range []struct {
		limits  []view.LimitStanding
		refused bool
		want    string
	}{
		{nil, false, "not refused: no limit that is enforced counts by this key"},
		{[]view.LimitStanding{exempt}, false, "not refused: no limit that is enforced counts by this key"},
		{[]view.LimitStanding{exempt, limit("a", open)}, false, "passes now: each enforced limit by this key has permits left"},
		{[]view.LimitStanding{shadow}, false, "not refused: no limit that is enforced counts by this key"},
		{[]view.LimitStanding{limit("a", open)}, false, "passes now: each enforced limit by this key has permits left"},
		{[]view.LimitStanding{limit("a", open), limit("c", open), shadow}, false, "passes now: each enforced limit by this key has permits left"},
		{[]view.LimitStanding{limit("a", open), unknown}, false, "not known: 1 of 2 limits cannot be read"},
		{[]view.LimitStanding{unknown, limit("phone", full("1/1m", 40*time.Second), full("5/1h", 38*time.Minute-5*time.Second), open)}, true, "refused now by send.phone 5/1h until 08:03:55 UTC (37m55s)"},
		{[]view.LimitStanding{limit("phone", full("5/1h", time.Minute)), banned}, true, "refused now by send.phone 5/1h until 07:27:00 UTC (1m); by send.b (banned) until 2026-02-01 09:26:00 UTC (1d2h)"},
		{[]view.LimitStanding{limit("a", open), costly}, false, "passes now: each enforced limit by this key has permits left; send.spend refuses what costs more than 0.04 EUR"},
		{[]view.LimitStanding{other, costly}, true, "refused now by verify.o 1/1m until 07:26:01 UTC (1s); send.spend refuses what costs more than 0.04 EUR"},
		{[]view.LimitStanding{other, ample}, true, "refused now by verify.o 1/1m until 07:26:01 UTC (1s)"},
		{[]view.LimitStanding{limit("phone", full("5/1h", time.Minute)), limit("fan", full("9/1h", time.Minute)), other}, true, "refused now by send.phone 5/1h, send.fan 9/1h until 07:27:00 UTC (1m); by verify.o 1/1m until 07:26:01 UTC (1s)"},
		{[]view.LimitStanding{share}, true, "refused now by send.phone 2/1h (this node's share) until 07:27:00 UTC (1m)"},
		{[]view.LimitStanding{values}, true, "refused now by send.d 3/1h (new values only)"},
		{[]view.LimitStanding{limit("phone", full("5/1h", time.Minute)), other}, true, "refused now by send.phone 5/1h until 07:27:00 UTC (1m); by verify.o 1/1m until 07:26:01 UTC (1s)"},
		{[]view.LimitStanding{limit("a", spoiled), limit("c", open)}, false, "not known: 1 of 2 limits cannot be read"}, // it follows on_store_failure
		{[]view.LimitStanding{dear, other}, true, "refused now by verify.o 1/1m until 07:26:01 UTC (1s)"},
	} {
		if got := (view.KeyStanding{At: now, Limits: c.limits}).Verdict(); got.Text != c.want || got.Refused != c.refused {
			t.Errorf("got %v, want %v %q", got, c.refused, c.want)
		}
		want := c.want // other limits are not known, but one that refuses does
		if !c.refused && !strings.HasPrefix(want, "not known") {
			want = "not refused by the limits that were asked; others may refuse it"
		}
		if got := (view.KeyStanding{At: now, Limits: c.limits, Chosen: true}).Verdict(); got.Text != want || got.Refused != c.refused {
			t.Errorf("of limits that were chosen: got %v, want %v %q", got, c.refused, want)
		}
	}
}

// A slowStore replies to the first inspection of a key only when it is asked again.
type slowStore struct {
	limiter.AdminStore
	slow bool
}

func (s *slowStore) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	in, err := s.AdminStore.Inspect(ctx, claims)
	in.Repeated, s.slow = s.slow, false
	return in, err
}

// A second question to a store that timed out is no secret, whether a key is looked up or changed; it is not told
// of the next lookup.
func TestStanding_SaysThatTheStoreWasAskedAgain(t *testing.T) {
	const note = "redis timed out, asked again"
	store := &slowStore{}
	w := newProxy(t, limitYAML("{name: l, key: header:X-User, rate: 4/1m}"), func(o *Options) { store.AdminStore, o.Store = o.Store, store })
	for _, slow := range []bool{true, false} {
		store.slow = slow
		if s, err := w.standing("header:X-User=a"); err != nil || slices.Contains(s.Notes, note) != slow {
			t.Errorf("%q, %v; want a note: %v", s.Notes, err, slow)
		}
		store.slow = slow
		if r := w.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=a"); slices.Contains(r.Notes, note) != slow {
			t.Errorf("%q after a reset; want a note: %v", r.Notes, slow)
		}
	}
}

// A change ends with what holds after it, for all limits and routes, whatever else refuses the key and however the
// key was named; where there was nothing to end, it says so.
func TestChange_EndsWithWhatHolds(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, `
client_ip: {trusted_proxies: [0.0.0.0/0], header: X-Real-Ip}
keys:
  addr: client_ip
  user: {from: "header:X-User"}
  pair: {join: [addr, user]}
lists:
  stolen: {key: user, values: [mallory], action: deny}
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, lists: [stolen], limits: [{name: l, key: addr, rate: 90/1h}, {name: u, key: user, rate: 1/1h}]}
  - {name: b, match: {path: /b}, respond: {body: ok}, limits: [{name: l, key: addr, rate: 90/1h}, {name: p, key: pair, rate: 90/1h}]}
`, use)
		w.sends(200, "GET", "/a", "X-Real-Ip: 203.0.113.7", "X-User: bob")
		id := w.stands("addr=203.0.113.7")["a.l"].ID
		ban := view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}
		w.changes(ban, "addr=203.0.113.7")
		w.changes(ban, "user=eve")
		w.SetDirectives(directive.NewSet([]directive.Directive{
			{Network: netip.MustParsePrefix("203.0.113.0/24"), Until: time.Now().Add(time.Hour)}, {Route: "b", Until: time.Now().Add(time.Hour)},
		}, time.Now()))
		for _, c := range []struct {
			change     view.KeyChange
			pairs      []string
			unaffected string
			now        []string
		}{
			{view.KeyChange{Action: view.KeyUnban}, []string{"addr=203.0.113.7", "@a"}, "", []string{"still refused by the ban of 203.0.113.0/24 until ", "; by the maintenance of b; by b.l (banned) until "}},
			{view.KeyChange{Action: view.KeyUnban}, []string{"addr=203.0.113.7"}, "a.l", []string{"still refused by the ban of 203.0.113.0/24 until ", "; by the maintenance of b"}},
			{view.KeyChange{Action: view.KeyUnban}, []string{"addr=" + id}, "a.l, b.l", []string{"still refused by the ban of 203.0.113.0/24 until "}},
			{view.KeyChange{Action: view.KeyReset}, []string{"addr=" + id}, "b.l", []string{"still refused by the ban of 203.0.113.0/24 until "}},
			{view.KeyChange{Action: view.KeyReset}, []string{"addr=203.0.113.7", "user=bob"}, "b.p", []string{"still refused by the ban of 203.0.113.0/24 until "}},
			{view.KeyChange{Action: view.KeyReset}, []string{"addr=198.51.100.1", "@a"}, "a.l", []string{"still refused by the maintenance of b"}},
			{view.KeyChange{Action: view.KeyUnban}, []string{"user=bob"}, "a.u", []string{"still refused by a.u 1/1h until "}},
			{view.KeyChange{Action: view.KeyGrant, Permits: 1}, []string{"user=bob"}, "", []string{"passes now: each enforced limit by this key has permits left"}},
			{view.KeyChange{Action: view.KeyReset}, []string{"user=mallory"}, "a.u", []string{"still refused by the list stolen on a"}},
			{view.KeyChange{Action: view.KeyUnban}, []string{"user=eve"}, "", []string{"passes now: "}},
			{ban, []string{"user=eve"}, "", []string{"refused now by a.u (banned) until "}},
		} {
			r := w.changes(c.change, c.pairs...)
			unaffected := map[string]view.LimitStanding{}
			for _, l := range r.Unaffected() {
				unaffected[l.Route+"."+l.Limit] = l
			}
			if got := names(unaffected); got != c.unaffected || len(r.Affected())+len(unaffected) != len(r.Changed) {
				t.Errorf("%s %v: nothing to do under %q, want %q", c.change.Action, c.pairs, got, c.unaffected)
			}
			for i, want := range c.now {
				if at := strings.Index(r.Now.Text, want); at < 0 || i == 0 && at > 0 {
					t.Errorf("%s %v ends with %q; want %q", c.change.Action, c.pairs, r.Now.Text, c.now)
				}
			}
			if refused := !strings.HasPrefix(r.Now.Text, "passes"); r.Now.Refused != refused {
				t.Errorf("%s %v: %+v", c.change.Action, c.pairs, r.Now)
			}
		}
		only := newProxy(t, "routes: [{name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: u, key: 'header:X-User', rate: 1/1h}]}]", use)
		only.SetDirectives(directive.NewSet([]directive.Directive{{Network: netip.MustParsePrefix("203.0.113.0/24"), Until: time.Now().Add(time.Hour)}}, time.Now()))
		_, err := only.Change(t.Context(), view.KeyChange{Action: view.KeyUnban, KeyQuery: query("client_ip=203.0.113.7")})
		if !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), "refused by the ban of 203.0.113.0/24: name that network") {
			t.Errorf("%v; want the network that is banned", err)
		}
	})
}

// What waits for Redis is applied before what comes after it.
func TestChange_ComesAfterWhatWaits(t *testing.T) {
	near := newCutNode(t, "rate: 4/1h, on_store_failure: deny")
	near.leave()
	near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=a")
	near.comeBack()
	var r view.KeyResult
	await.Until(t, "the ban ends in Redis", func() bool {
		r = near.changes(view.KeyChange{Action: view.KeyUnban}, "header:X-User=a")
		return !r.Later
	})
	near.ApplyDeferred(t.Context())
	if l := near.stands("header:X-User=a")["a.l"]; !l.BannedUntil.IsZero() || r.Now.Refused {
		t.Errorf("%+v, %+v; want that the ban has ended", l, r.Now)
	}
}

// A reset ends a ban also if Redis is away for longer than the window: what was taken has come back then, the ban has not ended.
func TestApplyDeferred_ResetEndsABan(t *testing.T) {
	near := newCutNode(t, "rate: 4/1s")
	near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=a")
	near.leave()
	r := near.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=a")
	near.deferred.waiting[0].until = time.Now() // the window is over
	near.comeBack()
	near.applies()
	if _, everywhere := r.Settled(); !everywhere {
		t.Error("the reset is said to be lost")
	}
	if l := near.stands("header:X-User=a")["a.l"]; !l.BannedUntil.IsZero() {
		t.Errorf("%+v; want that the ban has ended", l)
	}
}

// A ban that an operator has ended without Redis stays ended in the next outage, although Redis has refused a request before it
// was told.
func TestApplyDeferred_UnbanHoldsInTheNextOutage(t *testing.T) {
	near := newCutNode(t, "rate: 4/1h")
	near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=a")
	near.leave()
	near.changes(view.KeyChange{Action: view.KeyUnban}, "header:X-User=a")
	near.sends(200, "GET", "/a", "X-User: a")
	near.comeBack()
	await.Until(t, "Redis refuses it", func() bool { return near.send("GET", "/a", "X-User: a").Code == 429 })
	near.applies()
	near.leave()
	near.sends(200, "GET", "/a", "X-User: a")
}

// Who asks why a request was refused is told which ban it was, as far as addresses are shown.
func TestBan_OfANetworkIsNamed(t *testing.T) {
	for logs, want := range map[string]string{"full": "203.0.113.7/32", "network": "203.0.113.0/24", "hashed": "of the client"} {
		w := newProxy(t, "client_ip: {trusted_proxies: [0.0.0.0/0], header: X-Real-Ip}\nprivacy: {log_client: "+logs+"}\nroutes: [{name: a, match: {path: /a}, respond: {body: ok}}]")
		w.SetDirectives(directive.NewSet([]directive.Directive{{Network: netip.MustParsePrefix("203.0.113.7/32"), Until: time.Now().Add(time.Hour)}}, time.Now()))
		w.sends(403, "GET", "/a", "X-Real-Ip: 203.0.113.7")
		d := w.Decisions(view.DecisionQuery{N: 1})
		if len(d) != 1 || d[0].Summary != "rejected by the list banned networks: an operator has banned the network "+want {
			t.Errorf("%s: %+v; want %s", logs, d, want)
		}
	}
}
