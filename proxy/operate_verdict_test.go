package proxy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

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
	values.Algorithm, values.Windows[0].Next, other.Route = "distinct", time.Time{}, "verify"
	for _, c := range []struct {
		limits  []view.LimitStanding
		refused bool
		want    string
	}{
		{nil, false, "not refused: no limit that is enforced counts by this key"},
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
		{[]view.LimitStanding{limit("a", view.WindowStanding{Rate: "5/1h", Unreadable: true})}, false, "passes now: each enforced limit by this key has permits left"},
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
	server := redistest.Start(t)
	way := redistest.NewFaultProxy(t, server.Addr)
	near, _ := nodes(t, `
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: 'header:X-User', rate: 4/1h, on_store_failure: deny}]}
`, redisstore.ClientConfig{Addrs: []string{way.Addr}})
	way.Redirect("127.0.0.1:1")
	near.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=a")
	way.Redirect(server.Addr)
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
