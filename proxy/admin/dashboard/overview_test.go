package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/view"
)

// steady are statistics of one request a second until now, as they are reported.
func steady(now time.Time, minutes int) (s view.Statistics) {
	for at := now.Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute); !at.After(now); at = at.Add(time.Minute) {
		n := int64(min(now.Sub(at), time.Minute) / time.Second)
		s.Minutes = append(s.Minutes, view.Minute{At: at, Routes: []view.RouteMinute{{Route: "a", Requests: n, Allowed: n - n/3, Refused: n / 3, Limits: []view.LimitMinute{{Limit: "l", Allowed: n}}}}})
	}
	return s
}

// At steady traffic no minute is lower than the others, at whatever second it is drawn: those that are over are drawn alone.
func TestSeries_HasNoFallAtTheEnd(t *testing.T) {
	for second := range 60 {
		now := time.Date(2026, 1, 31, 9, 30, second, 0, time.UTC)
		got := seriesOf(steady(now, 20), 15, now)
		if end := got.At[len(got.At)-1] + 60; len(got.At) != 15 || end > now.Unix() || now.Unix()-end >= 72 {
			t.Fatalf("at second %d %d minutes are drawn to %d", second, len(got.At), end)
		}
		for i, n := range got.Sums {
			if n.Requests != 60 || n.Allowed != 40 || n.Refused != 20 {
				t.Errorf("at second %d, minute %d has %d requests, %d allowed, %d refused; want 60, 40, 20", second, got.At[i], n.Requests, n.Allowed, n.Refused)
			}
		}
	}
}

// The last 15 minutes are 15 minutes, and not between 14 and 15.
func TestSum_IsOfTheWholeTime(t *testing.T) {
	for second := range 60 {
		now := time.Date(2026, 1, 31, 9, 30, second, 0, time.UTC)
		s := steady(now, 20)
		all := sumSince(s, now.Add(-15*time.Minute))
		if all.Requests < 899 || all.Requests > 901 || all.Allowed+all.Refused != all.Requests {
			t.Errorf("at second %d the sum is %+v; want 900 requests", second, all)
		}
		rows := countRows(routeRows(view.Routes{Routes: []view.Route{{Name: "a"}}}, view.Limits{Limits: []view.Limit{{Route: "a", Name: "l"}}}, 15), known[view.Statistics]{Value: s, At: now}, 15)
		if n := rows[0].Sum.Requests; n < 899 || n > 901 || rows[0].Rows[0].Asked() < 899 || rows[0].Spark[0] != 60 || rows[0].Spark[13] != 60 || rows[0].Spark[14] != int64(second) {
			t.Errorf("at second %d the route has %+v and %v; want 900 requests", second, rows[0].Sum, rows[0].Spark)
		}
	}
}

// The limits that refused most come first, with what they refused in the selected time alone.
func TestRefusers_AreThoseThatRefusedMost(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	limits := []view.LimitMinute{{Limit: "calm", Allowed: 9}, {Limit: "shadow", ShadowRefused: 90}, {Limit: "some", Refused: 4}, {Limit: "most", Refused: 60}}
	for i := range 2 {
		limits = append(limits, view.LimitMinute{Limit: string(rune('a' + i)), Refused: 2})
	}
	var s view.Statistics
	for _, at := range []time.Duration{30 * time.Minute, 15*time.Minute + 30*time.Second, 2 * time.Minute} { // before, half inside, inside
		s.Minutes = append(s.Minutes, view.Minute{At: now.Add(-at), Routes: []view.RouteMinute{{Route: "r", Limits: limits}}})
	}
	got := refusersSince(s, now.Add(-15*time.Minute))
	want := []refuser{{"r", "most", 90, 0}, {"r", "some", 6, 0}, {"r", "a", 3, 0}, {"r", "b", 3, 0}, {"r", "shadow", 0, 135}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFormat_GroupsThousandsInOneWay(t *testing.T) {
	for n, want := range map[float64]string{0: "0.0", 999.94: "999.9", 999.96: "1\u202f000.0", 1234567.24: "1\u202f234\u202f567.2"} {
		if got := formatRate(n); got != want {
			t.Errorf("%v: got %q, want %q", n, got, want)
		}
	}
}

// A time in a sentence is an element, which the script translates; what stands around it is escaped, and what is no
// time, or has no known day, stays as it is.
func TestTimed_MarksTheTimesOfASentence(t *testing.T) {
	at := time.Date(2026, 1, 31, 23, 30, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"passes 23:59:30 UTC (30m)":               `passes <time datetime="2026-01-31T23:59:30Z">23:59:30 UTC</time> (30m)`,
		"<b> until 2026-02-01 00:00:01 UTC & on.": `&lt;b&gt; until <time datetime="2026-02-01T00:00:01Z">2026-02-01 00:00:01 UTC</time> &amp; on.`,
		"at 99:00:00 UTC":                         "at 99:00:00 UTC",
		"":                                        "",
	} {
		if got := string(timed(text, at)); got != want {
			t.Errorf("%q is %s; want %s", text, got, want)
		}
	}
	if got := timed("passes 23:59:30 UTC"); got != "passes 23:59:30 UTC" {
		t.Errorf("without a day: %s", got)
	}
}

func TestSessions_EndAfterTwelveHours(t *testing.T) {
	s, now := kept[session]{ttl: sessionTTL, most: maxSessions}, time.Now()
	id := s.add(session{}, now)
	if _, found := s.find(id, now.Add(12*time.Hour-1)); !found {
		t.Error("got no session before its end")
	}
	if _, found := s.find(id, now.Add(12*time.Hour)); found {
		t.Error("got a session after its end")
	}
	if len(s.all) != 0 {
		t.Error("what has ended is kept")
	}
}

func TestSessions_AreBounded(t *testing.T) {
	s, now := kept[session]{ttl: sessionTTL, most: maxSessions}, time.Now()
	first := s.add(session{}, now)
	second := s.add(session{}, now)
	for range maxSessions - 1 {
		s.add(session{}, now)
	}
	if len(s.all) != maxSessions {
		t.Errorf("got %d sessions, want %d", len(s.all), maxSessions)
	}
	if _, found := s.find(first, now); found {
		t.Error("the oldest is still there")
	}
	if _, found := s.find(second, now); !found {
		t.Error("one that need not go is gone")
	}
}

func TestReading_TellsWhatHappenedLately(t *testing.T) {
	at := time.Now()
	then := reading{At: at, Requests: 100, Calls: 10, Seconds: 1}
	now := reading{At: at.Add(10 * time.Second), Requests: 150, Errors: 2, Calls: 20, Seconds: 1.02, CallFails: 1, Fallbacks: 3}
	got := now.since(then)
	if got.Total != now || got.Over != 10*time.Second || got.PerSecond() != 5 || got.StoreMS() < 1.999 || got.StoreMS() > 2.001 {
		t.Errorf("got %+v, want 5 requests a second, and 2 ms", got)
	}
	got.Lately.Seconds = 0 // in the mean duration
	if want := (reading{Requests: 50, Errors: 2, Calls: 10, CallFails: 1, Fallbacks: 3}); got.Lately != want {
		t.Errorf("lately %+v, want %+v", got.Lately, want)
	}
	if first := then.since(then); first != (Rates{Total: then}) || first.PerSecond() != 0 {
		t.Errorf("got %+v of one reading; want the counts since the start alone", first)
	}
}

// Rates are of the time since the last look, or since the start; with looks all the time, of a minute.
func TestRateGauge_IsOfTheTimeBetweenLooks(t *testing.T) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_requests_total"}, []string{"code"})
	registry.MustRegister(requests)
	start := time.Now()
	g := &rateGauge{from: registry, readings: []reading{{At: start}}}
	look := func(at, want time.Duration) {
		t.Helper()
		requests.WithLabelValues("503").Inc()
		r, err := g.read(start.Add(at))
		if err != nil || r.Over != want {
			t.Errorf("at %v rates are of %v (%v), want %v", at, r.Over, err, want)
		}
	}
	look(time.Hour, time.Hour)
	look(time.Hour+5*time.Second, time.Hour+5*time.Second) // 5 s alone would be few
	for s := 10; s < 300; s += 5 {
		look(time.Hour+time.Duration(s)*time.Second, time.Duration(map[bool]int{true: 3600 + s, false: 60}[s < 60])*time.Second)
	}
	if n := len(g.readings); n > 62 {
		t.Errorf("%d readings are kept", n)
	}
}

func TestOnPage_GroupsDigits(t *testing.T) {
	if got, want := onPage("2026-11-30: 16272 of 9999 requests at 1000/1m, 0.00001 EUR of 21474.83647, gpt-4o10000x, +861380013, tenant=1234, 2001:db8::1234, 127.0.0.1:6379"), "2026-11-30: 16\u202f272 of 9\u202f999 requests at 1\u202f000/1m, 0.00001 EUR of 21\u202f474.83647, gpt-4o10000x, +861380013, tenant=1234, 2001:db8::1234, 127.0.0.1:6379"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
