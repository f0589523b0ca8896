package decisions

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// plainView shows everything.
type plainView struct{}

func (plainView) KeyHash(k limiter.Key) string    { return k.String() }
func (plainView) KeyID(k limiter.Key) string      { return k.String() }
func (plainView) HidePersonal(path string) string { return path }

// refusals records n refusals of one key and client, evenly within a time.
type refusals struct {
	source uint64
	n      int
	within time.Duration
}

func (r refusals) record(o *Observer, from time.Time) {
	for i := range r.n {
		began := from.Add(r.within * time.Duration(i) / time.Duration(r.n))
		o.Record(&Request{
			Place: o.PlaceFor(began, RefusedByLimits, r.source), ID: fmt.Sprint(r.source, "-", i), Began: began, Facts: Facts{Outcome: RefusedByLimits}, Source: r.source,
		})
	}
}

// found is how many of the refusals from one are found by their ids, each once.
func (r refusals) found(t *testing.T, o *Observer, from int) (n int) {
	t.Helper()
	for i := from; i < r.n; i++ {
		found := o.Find(view.DecisionQuery{RequestID: fmt.Sprint(r.source, "-", i)}, Naming{Names: plainView{}})
		if len(found) > 1 {
			t.Errorf("%d decisions of %d-%d", len(found), r.source, i)
		}
		n += len(found)
	}
	return n
}

// The last 6144 refusals are found, whoever sent them, if there are no more than 1000 in a second.
func TestObserver_KeepsTheLastRefusals(t *testing.T) {
	o, now := NewObserver(1), time.Unix(1_800_000_000, 0)
	eve := refusals{source: 1, n: 9000, within: 9 * time.Second}
	eve.record(o, now)
	if got := eve.found(t, o, 9000-6144); got != 6144 {
		t.Errorf("%d of the last 6144 refusals are found", got)
	}
	if earlier := (refusals{source: 1, n: 9000 - 6144}).found(t, o, 0); earlier > earlierRecent {
		t.Errorf("%d earlier refusals of one are found", earlier)
	}
}

// A flood, of a second or of an hour, leaves the refusals of others, but of those that share its part.
func TestObserver_AFloodLeavesOthers(t *testing.T) {
	for _, flood := range []refusals{{1, 50_000, time.Second}, {1, 50_000, time.Hour}} {
		o, now := NewObserver(1), time.Unix(1_800_000_000, 0)
		others := 0
		for source := range uint64(200) {
			refusals{source: 2 + source, n: 3, within: time.Second}.record(o, now)
		}
		flood.record(o, now.Add(time.Second))
		for source := range uint64(200) {
			others += refusals{source: 2 + source, n: 3}.found(t, o, 0)
		}
		if others < 560 {
			t.Errorf("after a flood within %v %d of 600 refusals of others are found", flood.within, others)
		}
		if got := flood.found(t, o, flood.n-2000); got < earlierRecent {
			t.Errorf("of the flood within %v %d of the last 2000 are found, want %d", flood.within, got, earlierRecent)
		}
	}
}

// noLabels sets no texts.
type noLabels struct{}

func (noLabels) FillLabel(*Label, limiter.Key) {}

// Of many rates, the one that decided is kept.
func TestRecord_KeepsWhatRefusesOfManyRates(t *testing.T) {
	o, began := NewObserver(1), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	windows := make([]Window, 12)
	for i := range windows {
		windows[i].Limit = fmt.Sprint("l", i)
	}
	r := Request{Place: amongAll, Began: began, Labels: noLabels{}, Facts: Facts{Outcome: ShadowRefused, Route: &Route{Name: "r", Windows: windows}}}
	for i := range windows {
		c := Claim{Window: i, Flags: Shadow | Allowed}
		if i == 10 {
			c.Flags = Shadow
		}
		r.AddClaim(&c)
	}
	o.Record(&r)
	d := o.Find(view.DecisionQuery{}, Naming{Names: plainView{}})[0]
	if first := d.Limits[0]; len(d.Limits) != maxClaims || d.More != 4 || first.Limit != "l10" || first.Result != "shadow_refused" {
		t.Errorf("%d limits and %d more, the first is %+v; want 8, 4, and l10, which would refuse", len(d.Limits), d.More, first)
	}
}

// A limit or a ban may refuse for a year.
func TestRecord_LongWaits(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Millisecond, 4*time.Hour + time.Millisecond, 49 * 24 * time.Hour, 80 * 24 * time.Hour, limiter.MaxWindow} {
		o, now := NewObserver(1), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		r := Request{Place: amongAll, Began: now, Labels: noLabels{}, Facts: Facts{
			Outcome: RefusedByLimits, Route: &Route{Name: "r", Windows: make([]Window, 1)},
		}}
		r.AddClaim(&Claim{Wait: wait})
		o.Record(&r)
		d := o.Find(view.DecisionQuery{}, Naming{Names: plainView{}})
		got := time.Duration(d[0].Limits[0].WaitMS * float64(time.Millisecond))
		if off := (got - wait).Abs(); off > 2*time.Second || wait < 4*time.Hour && off != 0 {
			t.Errorf("a wait of %v is told as %v: %s", wait, got, d[0].Summary)
		}
	}
}
