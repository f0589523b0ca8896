package proxy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A key is refused by the limits that are enforced and have nothing left, and passes when the last of a route does.
func TestVerdict_NamesWhatRefusesAndUntilWhen(t *testing.T) {
	now := time.Date(2026, 1, 31, 7, 26, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	full := func(rate string, d time.Duration) WindowStanding {
		return WindowStanding{Rate: rate, Most: 5, Used: 5, Next: in(d)}
	}
	open := WindowStanding{Rate: "9/1d", Most: 9, Used: 1, Left: 8, Next: in(time.Hour)}
	limit := func(name string, windows ...WindowStanding) LimitStanding {
		return LimitStanding{Route: "send", Limit: name, Mode: "enforce", Windows: windows}
	}
	shadow, unknown, banned, values, other := limit("s", full("5/1h", time.Hour)), limit("u"), limit("b", open), limit("d", full("3/1h", 0)), limit("o", full("1/1m", time.Second))
	shadow.Mode, unknown.Unknown, banned.BannedUntil = "shadow", "the store is unreachable", in(26*time.Hour)
	values.Algorithm, values.Windows[0].Next, other.Route = "distinct", time.Time{}, "verify"
	for _, c := range []struct {
		limits  []LimitStanding
		refused bool
		want    string
	}{
		{nil, false, "not refused: no limit that is enforced counts by this key"},
		{[]LimitStanding{shadow}, false, "not refused: no limit that is enforced counts by this key"},
		{[]LimitStanding{limit("a", open)}, false, "passes now: the only limit by this key has permits left"},
		{[]LimitStanding{limit("a", open), limit("c", open), shadow}, false, "passes now: all 2 limits by this key have permits left"},
		{[]LimitStanding{limit("a", open), unknown}, false, "not known: 1 of 2 limits cannot be read"},
		{[]LimitStanding{unknown, limit("phone", full("1/1m", 40*time.Second), full("5/1h", 38*time.Minute-5*time.Second), open)}, true, "refused now by send.phone 5/1h, passes 08:03:55 UTC (38 min)"},
		{[]LimitStanding{limit("phone", full("5/1h", time.Minute)), banned}, true, "refused now by send.phone 5/1h and b, banned, passes 2026-02-01 09:26:00 UTC (26 h)"},
		{[]LimitStanding{values}, true, "refused now by send.d 3/1h (new values only)"},
		{[]LimitStanding{limit("phone", full("5/1h", time.Minute)), other}, true, "refused now by send.phone 5/1h, passes 07:27:00 UTC (60 s); by verify.o 1/1m, passes 07:26:01 UTC (1 s)"},
		{[]LimitStanding{limit("a", WindowStanding{Rate: "5/1h", Unreadable: true})}, false, "passes now: the only limit by this key has permits left"},
	} {
		if got := (KeyStanding{At: now, Limits: c.limits}).Verdict(); got.Text != c.want || got.Refused != c.refused {
			t.Errorf("got %v, want %v %q", got, c.refused, c.want)
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
		if r := w.changes(KeyChange{Action: KeyReset}, "header:X-User=a"); slices.Contains(r.Notes, note) != slow {
			t.Errorf("%q after a reset; want a note: %v", r.Notes, slow)
		}
	}
}
