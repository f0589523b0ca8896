package limit

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

func TestNear_FromWhichUseOnAKeyIsTold(t *testing.T) {
	for _, row := range []struct {
		count, used int64
		webhook     string
		mode        config.Mode
		want        int64 // permits used at which it is told; 0 never
	}{
		{100, 80, "x", config.Enforce, 80},
		{100, 1, "x", config.Enforce, 1},
		{100, 100, "x", config.Enforce, 100},
		{101, 80, "x", config.Enforce, 81}, // 80.8, rounded up
		{50000, 99, "x", config.Enforce, 49500},
		{99, 80, "x", config.Enforce, 0}, // too small to be of note
		{100, 80, "", config.Enforce, 0}, // nobody is told
		{100, 80, "x", config.Shadow, 0}, // on trial
	} {
		l := &Limit{Limit: &config.Limit{Mode: row.mode}, alerts: config.Alerts{Webhook: row.webhook, Used: []int64{row.used, 100}}}
		near := l.near(limiter.Limit{Rate: limiter.Rate{Count: row.count, Window: time.Hour}})
		told := int64(0)
		for used := int64(1); used <= row.count && told == 0; used++ {
			if row.count-used < near {
				told = used
			}
		}
		if told != row.want {
			t.Errorf("%+v: told of when %d are used", row, told)
		}
	}
}

// Of keys with rates of other plans, the one is told of that has used the largest part of its own.
func TestNear_OfSeveralPlans(t *testing.T) {
	n := newNearLimits()
	for _, row := range []struct{ count, left int64 }{{600, 100}, {100, 0}, {600, 60}} {
		q := nearing("phone", row.left)
		q.Claims[0].Limit.Rate.Count, q.Claims.Window(0).near = row.count, row.left+1
		n.record(q)
	}
	if got := n.Drain(); len(got) != 1 || got[0].Used != 100 || got[0].Of != 100 {
		t.Errorf("told are %+v; want the key that has used 100 of 100", got)
	}
}

// Of gcra a key can use the burst, whatever the rate is: with a small one nothing is told of, as of a small rate.
func TestNear_IsThatOfTheBurst(t *testing.T) {
	for burst, want := range map[int64]int64{0: 480, 50: 0, 100: 80, 1000: 800} {
		r := NewRoute(&config.Route{Limits: []*config.Limit{{
			Name: "even", Mode: config.Enforce, Algorithm: limiter.GCRA, Burst: burst, Rates: []limiter.Rate{{Count: 600, Window: time.Minute}}, Key: &key.Spec{},
		}}}, config.Alerts{Webhook: "x", Used: []int64{80}})
		w, n := r.Windows[0], newNearLimits()
		told := Near{}
		for used := int64(1); used <= w.Capacity() && told.Used == 0; used++ {
			n.record(&Admission{Asker: Asker{KeyNamer: maskedNamer{}}, Claims: ClaimSet{{Limit: &w.Limit}}, Verdict: Verdict{Decision: limiter.Decision{Outcomes: []limiter.Outcome{{Remaining: w.Capacity() - used}}}}})
			for _, near := range n.Drain() {
				told = near
			}
		}
		if told.Used != want || want > 0 && told.Of != w.Capacity() {
			t.Errorf("burst %d: told of %d of %d; want %d of %d", burst, told.Used, told.Of, want, w.Capacity())
		}
	}
}

// nearing is what leaves so many permits of a limit of 100.
func nearing(name string, left int64) *Admission {
	w := &Window{Of: &Limit{Limit: &config.Limit{Name: name, Route: "send"}}, near: 21, Limit: limiter.Limit{Name: "send." + name + ":1h", Rate: limiter.Rate{Count: 100, Window: time.Hour}}}
	w.Owner = w
	return &Admission{
		Asker:   Asker{KeyNamer: maskedNamer{}},
		Claims:  ClaimSet{{Limit: &w.Limit, Key: limiter.KeyOf(name)}},
		Verdict: Verdict{Decision: limiter.Decision{Outcomes: []limiter.Outcome{{Remaining: left}}}},
	}
}

// A maskedNamer names each key as the log does.
type maskedNamer struct{}

func (maskedNamer) LogKey(k limiter.Key) (hash, masked string) { return k.String()[:12], "+86****" }

func TestNear_RemembersWhoHasUsedMost(t *testing.T) {
	n := newNearLimits()
	for _, left := range []int64{50, 21, 20, 3, 10} {
		n.record(nearing("phone", left))
	}
	n.record(nearing("banned", -1))
	got := map[string]Near{}
	for _, near := range n.Drain() {
		got[near.Limit] = near
	}
	want := Near{Route: "send", Limit: "phone", Window: "1h", Used: 97, Of: 100, Key: limiter.KeyOf("phone").String()[:12], Masked: "+86****"}
	if len(got) != 2 || got["phone"] != want || got["banned"].Used != 100 {
		t.Errorf("told are %+v; want %+v, and 100 of a banned key", got, want)
	}
	if again := n.Drain(); len(again) != 0 {
		t.Errorf("told again are %+v", again)
	}
}

func TestNear_IsBoundedAndNeverWaits(t *testing.T) {
	n := newNearLimits()
	for i := range 2 * maxNear {
		n.record(nearing(string(rune('A'+i)), 0))
	}
	if got := len(n.Drain()); got != maxNear {
		t.Errorf("%d limits are told of; want %d", got, maxNear)
	}
	n.mu.Lock() // another request writes
	n.record(nearing("phone", 0))
	n.mu.Unlock()
	if got := n.Drain(); len(got) != 0 {
		t.Errorf("told are %+v by a request that should not have waited", got)
	}
}
