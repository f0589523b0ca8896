package dashboard

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// steady are statistics of one request a second until now, as they are reported.
func steady(now time.Time, minutes int) (s admin.Statistics) {
	for at := now.Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute); !at.After(now); at = at.Add(time.Minute) {
		n := int64(min(now.Sub(at), time.Minute) / time.Second)
		s.Minutes = append(s.Minutes, admin.Minute{At: at, Routes: []admin.RouteMinute{{Route: "a", Requests: n, Allowed: n - n/3, Refused: n / 3, Limits: []admin.LimitMinute{{Limit: "l", Allowed: n}}}}})
	}
	return s
}

// At steady traffic no point of a chart is lower than the others, at whatever second it is drawn.
func TestSeries_HasNoFallAtTheEnd(t *testing.T) {
	for second := range 60 {
		now := time.Date(2026, 1, 31, 9, 30, second, 0, time.UTC)
		got := seriesOf(steady(now, 20), 15, now)
		if len(got.Requests) != 15 {
			t.Fatalf("%d points; want 15", len(got.Requests))
		}
		for i, n := range got.Requests {
			if n != 60 || got.Allowed[i] != 40 || got.Refused[i] != 20 {
				t.Errorf("at second %d, minute %d has %d requests, %d allowed, %d refused; want 60, 40, 20", second, got.At[i], n, got.Allowed[i], got.Refused[i])
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
		rows := countRows(routeRows(admin.Routes{Routes: []admin.Route{{Name: "a"}}}, admin.Limits{Limits: []admin.Limit{{Route: "a", Name: "l"}}}, 15), known[admin.Statistics]{Value: s, At: now}, 15)
		if n := rows[0].Sum.Requests; n < 899 || n > 901 || rows[0].Rows[0].Sum.Asked() < 899 || rows[0].Spark[0] != 60 || rows[0].Spark[14] != 60 {
			t.Errorf("at second %d the route has %+v and %v; want 900 requests", second, rows[0].Sum, rows[0].Spark)
		}
	}
}
